//! Servers, clients and their processes.

mod build;
mod client;
mod process;
mod proxy;
mod random;
mod server;

use std::time::{Duration, Instant};

pub(crate) use build::{mpi_program, opencl_program, towline, workload};
pub(crate) use client::{Client, Finished, Running, forget_surroundings};
pub(crate) use process::{Usage, family, is_gone};
pub(crate) use proxy::{Break, Cut, Proxy, Towards};
pub(crate) use random::Random;
pub(crate) use server::{Server, free_addresses};

/// How long anything may take that does take its time on a busy machine: loading a driver, building kernels.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// What a second on paper may take on a machine with more to do than processors.
pub(crate) const A_SECOND_AND_SLACK: Duration = Duration::from_secs(3);

/// Waits until `condition` holds; whether it did in time.
pub(crate) fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
