//! MPI programs on CUDA devices: a session for each rank.

use crate::support::{Client, Finished, Server, mpi_program};

const RANKS: usize = 4;

/// Runs the ranks with Open MPI, more of them than processors, also as root in a container.
fn ranks(servers: &[&Server]) -> Finished {
    let variables = [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("OMPI_MCA_mpi_yield_when_idle", "1"),
        ("OMPI_MCA_btl", "self,vader"),
        ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
        ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ];
    let program = mpi_program("cuda_ranks");
    let program = program.to_str().expect("paths of the build are text");
    let client = Client::new(servers, "mpirun.openmpi").args(&["-np", "4", program]);
    let client = variables
        .iter()
        .fold(client, |client, (name, value)| client.env(name, value));
    client.run()
}

fn server() -> Server {
    Server::start_with(&["--backend", "null", "--cuda", "null"], &[])
}

#[test]
fn ranks_have_a_session_each_and_pass_device_memory_through_the_host() {
    let server = server();
    let mut lines = ranks(&[&server]).lines_of_success();
    lines.sort();
    // The device in host memory lies in each worker for itself: what another rank offers cannot be opened there, as where a server
    // shares nothing.
    let expected: Vec<_> = (0..RANKS)
        .map(|rank| format!("rank {rank} of {RANKS}: staged, event passed, memory refused"))
        .collect();
    assert_eq!(lines, expected);
    let log = server.log();
    let sessions = log.lines().filter(|line| line.contains("cuda_ranks (pid"));
    assert_eq!(sessions.count(), RANKS, "{log}");
}
