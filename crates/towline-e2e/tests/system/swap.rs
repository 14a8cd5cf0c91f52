//! Sessions with more device memory together than there is: whole ones take turns, and none can tell by its data.

use serde_json::Value;

use crate::support::{PATIENCE, Running, Server, holds_within};
use crate::tenants::Tenants;

const MIB: u64 = 1 << 20;

/// A tenant with 64 MiB, on a server with so much host memory for its sessions.
fn serve(swap: &str) -> (Tenants, Server) {
    let tenants = Tenants::new();
    tenants.add("anna", &["--memory", "64M"]);
    let server = tenants.serve(&["--swap", swap]);
    (tenants, server)
}

/// A program of the tenant that takes so many MiB, and looks at them so many times when it is told to go on.
fn keeps(tenants: &Tenants, server: &Server, mib: &str, rounds: &str) -> Running {
    let client = tenants.program(server, ["anna", "anna"], "cuda_keeps");
    client.args(&[mib, rounds]).start()
}

fn bytes_of(tenants: &Tenants, server: &Server, which: &str) -> Vec<u64> {
    let status = tenants.status(server, "anna");
    let sessions = status["sessions"].as_array().expect("a list").iter();
    let mut bytes: Vec<_> = sessions
        .filter_map(|session| session[which].as_u64())
        .collect();
    bytes.sort_unstable();
    bytes
}

fn ends_well(running: Running) {
    running.finish().lines_of_success();
}

#[test]
fn sessions_take_turns_where_memory_is_not_enough_for_all() {
    let (tenants, server) = serve("1G");
    let mut both = [(); 2].map(|()| {
        let mut running = keeps(&tenants, &server, "40", "1");
        running.wait_for("has");
        running
    });
    for value in 2..5 {
        for running in &mut both {
            running.go_on();
            running.wait_for(&format!("right {value}"));
            assert_eq!(bytes_of(&tenants, &server, "swapped_bytes"), [0, 40 * MIB]);
            assert_eq!(
                bytes_of(&tenants, &server, "device_memory_bytes"),
                [0, 40 * MIB]
            );
        }
    }
    both.into_iter().for_each(ends_well);
    let gone = holds_within(PATIENCE, || {
        bytes_of(&tenants, &server, "swapped_bytes").is_empty()
    });
    assert!(gone, "ended sessions are kept");
}

#[test]
fn busy_sessions_take_turns_too() {
    let (tenants, server) = serve("1G");
    let mut all = [(); 3].map(|()| keeps(&tenants, &server, "30", "60"));
    for running in &mut all {
        running.wait_for("has");
        running.go_on();
    }
    for mut running in all {
        running.wait_for("right 61");
        ends_well(running);
    }
}

#[test]
fn memory_is_refused_where_host_memory_is_not_enough() {
    let (tenants, server) = serve("16M");
    let mut first = keeps(&tenants, &server, "40", "1");
    first.wait_for("has");
    let mut second = keeps(&tenants, &server, "40", "1");
    assert_eq!(second.wait_for_word("refused"), "2");
    first.go_on();
    first.wait_for("right 2");
    ends_well(first);
}

#[test]
fn killed_program_that_was_swapped_out_leaves_the_others_alone() {
    let (tenants, server) = serve("1G");
    let mut killed = keeps(&tenants, &server, "40", "1");
    killed.wait_for("has");
    let mut other = keeps(&tenants, &server, "40", "1");
    other.wait_for("has");
    assert_eq!(bytes_of(&tenants, &server, "swapped_bytes"), [0, 40 * MIB]);
    killed.kill();
    let alone = holds_within(PATIENCE, || {
        bytes_of(&tenants, &server, "swapped_bytes") == [0]
    });
    assert!(alone, "the killed program's session stays");
    other.go_on();
    other.wait_for("right 2");
    let told: Value = tenants.status(&server, "anna");
    assert_eq!(told["tenants"][0]["device_memory_bytes"], 40 * MIB);
    ends_well(other);
}
