//! What sessions cost when they do nothing, and when they hold much.

use std::time::Duration;

use crate::support::{Client, Server, Usage, opencl_program};

const MIB: u64 = 1 << 20;
/// What clients may hold beside the program's own memory (32), and workers beside the buffers (64) and the pool of
/// payload buffers (16), with slack for what an allocator keeps.
const CLIENT_BOUND: u64 = 32 * MIB + 8 * MIB;
const WORKER_BOUND: u64 = (64 + 16) * MIB + 8 * MIB;

#[test]
fn idle_session_uses_no_processor_time() {
    let server = Server::start();
    let mut client = Client::new(&[&server], opencl_program("idle")).start();
    client.wait_for("idle");
    let processes = [client.pid(), server.worker_of(client.pid())];
    std::thread::sleep(Duration::from_secs(1));
    let before = processes.map(|process| Usage::of(process).time);
    std::thread::sleep(Duration::from_secs(2));
    for (process, before) in processes.into_iter().zip(before) {
        // One tick of the system's clock.
        let used = Usage::of(process).time - before;
        assert!(
            used <= Duration::from_millis(10),
            "process {process:?} used {used:?} while idle"
        );
    }
    client.go_on();
    client.finish().lines_of_success();
}

#[test]
fn writes_that_wait_are_held_in_bounded_memory() {
    let server = Server::start();
    let mut client = Client::new(&[&server], opencl_program("queued_writes")).start();
    client.wait_for("start");
    let processes = [client.pid(), server.worker_of(client.pid())];
    let resident = || processes.map(|process| Usage::of(process).resident);
    let [client_start, worker_start] = resident();
    client.go_on();
    client.wait_for("queued");
    let [client_queued, worker_queued] = resident();
    client.go_on();
    client.wait_for("written");
    let [client_written, worker_written] = resident();
    client.go_on();
    client.finish().lines_of_success();

    let figures = format!(
        "MiB more than at the start: client {} queued, {} written; worker {} queued, {} written",
        client_queued.saturating_sub(client_start) / MIB,
        client_written.saturating_sub(client_start) / MIB,
        worker_queued.saturating_sub(worker_start) / MIB,
        worker_written.saturating_sub(worker_start) / MIB,
    );
    println!("{figures}");
    assert!(
        client_queued.max(client_written) <= client_start + CLIENT_BOUND,
        "{figures}"
    );
    assert!(worker_queued <= worker_start + WORKER_BOUND, "{figures}");
    // The buffer itself is there now.
    assert!(
        worker_written <= worker_start + 256 * MIB + WORKER_BOUND,
        "{figures}"
    );
}
