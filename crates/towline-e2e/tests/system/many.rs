//! Many devices, many clients, unlike vendors.

use crate::support::{Client, Finished, Server, opencl_program, workload};

/// Two devices where there is one processor, each with one thread.
const TWO_DEVICES: [(&str, &str); 2] = [
    ("POCL_DEVICES", "pthread pthread"),
    ("POCL_MAX_PTHREAD_COUNT", "1"),
];
/// PoCL 3.1 counts the users of a compiled kernel without a lock; two of its devices in one process can trip this
/// assertion of its own, natively too.
const POCL_ASSERTION: &str = "pocl_release_dlhandle_cache";
/// How often a test is tried again, if that is why it failed.
const TRIES: usize = 5;

/// A vendor that computes only inside a call, and is not registered on the machine.
const OCLGRIND: [&str; 2] = ["--icd", "/usr/lib/oclgrind/liboclgrind-rt-icd.so"];

/// Runs a client until it is not PoCL's own assertion that ends it, on whichever side that strikes.
fn run_despite_pocl(servers: &[Server], client: impl Fn() -> Client) -> Finished {
    let strikes = |finished: &Finished| {
        let sides = servers
            .iter()
            .map(|server| server.log().matches(POCL_ASSERTION).count());
        sides.sum::<usize>() + finished.errors.matches(POCL_ASSERTION).count()
    };
    let mut struck = 0;
    let mut finished = client().run();
    for _ in 1..TRIES {
        let now = strikes(&finished);
        if finished.status.success() || now == struck {
            break;
        }
        struck = now;
        eprintln!("again: assertion in PoCL: {POCL_ASSERTION}");
        finished = client().run();
    }
    finished
}

/// A buffer in one context of two devices of each of so many servers and two local ones.
fn buffer_goes_around(count: usize) {
    let servers = Server::start_several(count, &TWO_DEVICES);
    let addresses: Vec<&str> = servers.iter().map(Server::address).collect();
    let client = || {
        let client = Client::with_options(
            &["--with-local", "--server", &addresses.join(",")],
            workload("span"),
        );
        let arguments = [
            "--platform",
            "Towline",
            "--devices",
            "all",
            "--size",
            "64K",
            "--iterations",
            "1",
            "--json",
        ];
        TWO_DEVICES
            .iter()
            .fold(client.args(&arguments), |client, (name, value)| {
                client.env(name, value)
            })
    };
    let lines = run_despite_pocl(&servers, client).lines_of_success();
    let devices = format!(r#""devices":{}"#, 2 * count + 2);
    assert!(
        lines[0].contains(&devices) && lines[0].contains(r#""check":"pass""#),
        "{lines:?}"
    );
}

#[test]
fn buffer_goes_around_four_servers_and_local_devices() {
    buffer_goes_around(4);
}

#[test]
#[ignore = "takes a minute"]
fn buffer_goes_around_sixteen_servers_and_local_devices() {
    buffer_goes_around(16);
}

#[test]
fn devices_of_unlike_vendors_share_a_context() {
    let servers = [Server::start_with(&OCLGRIND, &[]), Server::start()];
    for both in [[&servers[0], &servers[1]], [&servers[1], &servers[0]]] {
        let lines = Client::new(&both, opencl_program("unlike")).run();
        let text = lines.lines_of_success().join("\n");
        assert!(
            text.contains("Oclgrind") && text.contains("PoCL") && text.ends_with("right"),
            "{text}"
        );
    }
}

#[test]
fn buffer_goes_around_the_devices_of_unlike_vendors() {
    let servers = [Server::start(), Server::start_with(&OCLGRIND, &[])];
    let arguments = ["--platform", "Towline", "--size", "10000", "--json"];
    let client = Client::new(&[&servers[0], &servers[1]], workload("span")).args(&arguments);
    let lines = client.run().lines_of_success();
    assert!(
        lines[0].contains(r#""devices":2"#) && lines[0].contains(r#""check":"pass""#),
        "{lines:?}"
    );
}

/// Oclgrind carries out commands only inside a call that waits, on the caller's thread.
#[test]
fn device_that_computes_only_while_somebody_waits_is_served() {
    let server = Server::start_with(&OCLGRIND, &[]);
    let arguments = ["--platform", "Towline", "--size", "1000", "--json"];
    let client = Client::new(&[&server], workload("span")).args(&arguments);
    let lines = client.run().lines_of_success();
    assert!(
        lines[0].contains("Oclgrind") && lines[0].contains(r#""check":"pass""#),
        "{lines:?}"
    );
}

#[test]
fn eight_clients_of_one_server_compute_at_the_same_time() {
    let server = Server::start();
    let mut clients: Vec<_> = (0..8)
        .map(|_| Client::new(&[&server], opencl_program("steady")).start())
        .collect();
    clients
        .iter_mut()
        .for_each(|client| client.wait_for("computing"));
    assert_eq!(
        server.log().matches(" steady (pid ").count(),
        8,
        "{}",
        server.log()
    );
    clients.iter_mut().for_each(|client| client.go_on());
    for client in clients {
        client.finish().lines_of_success();
    }
}

/// So many sessions of as many programs, which is all that the server takes, and one more.
fn open_at_once(count: usize) {
    let most = count.to_string();
    let server = Server::start_with(&["--backend", "null", "--max-sessions", &most], &[]);
    let steady = || Client::new(&[&server], opencl_program("steady")).args(&["built-in"]);
    let mut clients: Vec<_> = (0..count).map(|_| steady().start()).collect();
    clients
        .iter_mut()
        .for_each(|client| client.wait_for("computing"));
    let refused = steady().run();
    assert!(
        refused.errors.contains(&format!("{count} sessions")),
        "{}",
        refused.errors
    );
    clients.iter_mut().for_each(|client| client.go_on());
    for client in clients {
        client.finish().lines_of_success();
    }
}

#[test]
fn one_session_beyond_twenty_is_told_why_not() {
    open_at_once(20);
}

#[test]
#[ignore = "takes a minute"]
fn one_session_beyond_a_hundred_is_told_why_not() {
    open_at_once(100);
}

/// Software CUDA sessions that are asked for at the same moment and kept until all have their results.
fn all_of_a_burst_get_their_results(count: usize) {
    let arguments = [
        "--backend",
        "off",
        "--cuda",
        "soft",
        "--max-sessions",
        "1000",
    ];
    let server = Server::start_with(&arguments, &[]);
    let client = Client::new(&[&server], opencl_program("cuda_burst"));
    let lines = client.args(&[&count.to_string()]).run().lines_of_success();
    assert!(
        lines[0].starts_with(&format!("{count} right of {count}: ")),
        "{lines:?}"
    );
    assert_eq!(lines[3], format!("{count} ended well"));
}

#[test]
fn a_hundred_cuda_sessions_asked_for_at_once_all_compute() {
    all_of_a_burst_get_their_results(100);
}

#[test]
fn program_after_program_gets_the_only_place() {
    let options = ["--backend", "off", "--cuda", "soft", "--max-sessions", "1"];
    let server = Server::start_with(&options, &[]);
    for _ in 0..20 {
        let program = Client::new(&[&server], opencl_program("cuda_managed"));
        program.run().lines_of_success();
    }
}

#[test]
#[ignore = "takes a machine to itself: two cores for some ten seconds"]
fn a_thousand_cuda_sessions_asked_for_at_once_all_compute() {
    all_of_a_burst_get_their_results(1000);
}

#[test]
fn device_memory_of_a_session_ends_at_its_limit_and_others_have_theirs() {
    let arguments = [
        "--backend",
        "off",
        "--cuda",
        "soft",
        "--soft-memory",
        "1G",
        "--session-memory",
        "64M",
    ];
    let server = Server::start_with(&arguments, &[]);
    let clients = [(); 2].map(|()| Client::new(&[&server], opencl_program("cuda_hoards")).start());
    for client in clients {
        assert_eq!(
            client.finish().lines_of_success(),
            [
                "total 64, free 64",
                "allocated 64, free 0",
                "from a pool 64",
                "mapped 64",
                "free 64"
            ]
        );
    }
}
