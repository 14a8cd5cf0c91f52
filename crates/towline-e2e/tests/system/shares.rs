//! Shares of a device's time, by work that programs have counted.

use std::time::Duration;

use serde_json::Value;

use crate::support::{Client, PATIENCE, Running, Server, holds_within, opencl_program};
use crate::tenants::Tenants;

/// One CUDA device in software.
const CUDA: [&str; 4] = ["--backend", "off", "--cuda", "soft:1"];
/// Of programs' loops: some kernels in a millisecond, on any machine.
const ROUNDS: &str = "100000";
const WINDOW: Duration = Duration::from_secs(4);

/// A server with tenants of these names and shares.
fn serve(tenants: &Tenants, shares: &[(&str, &str)], options: &[&str]) -> Server {
    for (name, share) in shares {
        tenants.add(name, &["--share", share]);
    }
    let file = tenants.file();
    let own = ["--tenants-file", &file];
    Server::start_with(&[&own[..], options].concat(), &[])
}

/// A program of a tenant that keeps the device busy.
fn busy(tenants: &Tenants, server: &Server, tenant: &str, program: &[&str]) -> Running {
    let token = tenants.path(tenant);
    let options = ["--server", server.address(), "--tenant", tenant];
    let options = [&options[..], &["--token-file", &token]].concat();
    let client = Client::with_options(&options, opencl_program(program[0]));
    let mut running = client.args(&program[1..]).start();
    running.wait_for("busy");
    running
}

fn cuda(tenants: &Tenants, server: &Server, tenant: &str) -> Running {
    busy(
        tenants,
        server,
        tenant,
        &["cuda_counts", "busy", ROUNDS, "300"],
    )
}

/// Kernels that programs have done in one window.
fn count(programs: &mut [Running]) -> Vec<f64> {
    programs.iter_mut().for_each(Running::go_on);
    std::thread::sleep(WINDOW);
    programs.iter_mut().for_each(Running::go_on);
    let words = programs.iter_mut().map(|program| {
        let done = program.wait_for_word("done");
        let number = done.split(' ').next().unwrap_or_default();
        number.parse().expect("a number")
    });
    words.collect()
}

#[test]
fn cuda_sessions_get_their_tenants_shares() {
    let tenants = Tenants::new();
    let server = serve(&tenants, &[("large", "80"), ("small", "20")], &CUDA);
    let programs = ["large", "small"].map(|tenant| cuda(&tenants, &server, tenant));
    let mut programs = programs;
    let done = count(&mut programs);
    let ratio = done[0] / done[1];
    assert!((2.0..=8.0).contains(&ratio), "{done:?}");
}

#[test]
fn opencl_sessions_get_their_tenants_shares() {
    let tenants = Tenants::new();
    let server = serve(&tenants, &[("large", "80"), ("small", "20")], &[]);
    let program = ["counts", ROUNDS, "300"];
    let mut programs = ["large", "small"].map(|tenant| busy(&tenants, &server, tenant, &program));
    let done = count(&mut programs);
    let ratio = done[0] / done[1];
    assert!((2.0..=8.0).contains(&ratio), "{done:?}");
}

#[test]
fn killed_session_leaves_all_time_to_others() {
    let tenants = Tenants::new();
    let server = serve(&tenants, &[("large", "90"), ("small", "10")], &CUDA);
    let mut large = cuda(&tenants, &server, "large");
    let mut small = [cuda(&tenants, &server, "small")];
    let beside = count(&mut small);
    large.kill();
    let mut small = [cuda(&tenants, &server, "small")];
    let alone = count(&mut small);
    assert!(alone[0] > 2.5 * beside[0], "{beside:?} {alone:?}");
}

#[test]
fn idle_session_leaves_all_time_to_others() {
    let tenants = Tenants::new();
    let server = serve(&tenants, &[("large", "90"), ("small", "10")], &CUDA);
    let alone = count(&mut [cuda(&tenants, &server, "small")]);
    let mut idle = busy(
        &tenants,
        &server,
        "large",
        &["cuda_counts", "latency", "1000", "900000"],
    );
    let beside = count(&mut [cuda(&tenants, &server, "small")]);
    idle.go_on();
    idle.wait_for_word("times");
    assert!(beside[0] > 0.3 * alone[0], "{beside:?} {alone:?}");
}

#[test]
fn shares_and_waits_are_told_to_admins() {
    let tenants = Tenants::new();
    tenants.add("operators", &["--admin"]);
    let server = serve(&tenants, &[("large", "80"), ("small", "20")], &CUDA);
    tenants.tenant(&["set", "small", "--priority", "best-effort"]);
    let mut programs = ["large", "small"].map(|tenant| cuda(&tenants, &server, tenant));
    count(&mut programs);
    let mut told = Value::Null;
    let is_told = holds_within(PATIENCE, || {
        let status = tenants.status(&server, "operators");
        let all = status["tenants"].as_array().cloned().unwrap_or_default();
        let small = all.into_iter().find(|tenant| tenant["name"] == "small");
        told = small.unwrap_or_default();
        told["priority"] == "best-effort"
    });
    assert!(is_told, "{told}");
    assert_eq!(told["share"], 20);
    assert!(told["wait_ms"].as_u64() > Some(100), "{told}");
}
