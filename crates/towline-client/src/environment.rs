//! Sessions with the servers that the environment names: what `towline run` sets, or the user.

use std::net::ToSocketAddrs;
use std::sync::Arc;

use towline_transport::Address;
use towline_wire::control::Token;

use crate::dial::{DialError, read_token};
use crate::opencl::Remote;

/// Servers, separated by commas or white space.
pub const SERVERS: &str = "TOWLINE_SERVERS";
/// File with the token that servers ask for.
pub const TOKEN_FILE: &str = "TOWLINE_TOKEN_FILE";

/// How much device memory that a CUDA program has freed is kept for its next allocations, in MiB.
pub const KEPT_MEMORY: &str = "TOWLINE_KEPT_MEMORY_MIB";

/// A server that gave no session.
#[derive(Debug, thiserror::Error)]
#[error("no session with {server}: {source}")]
pub struct Unreachable {
    /// As the environment names it.
    pub server: String,
    /// Why.
    #[source]
    pub source: DialError,
}

/// Begins an OpenCL session with every server that the environment names, all at once, in its order. Costs nothing where it names none.
pub fn sessions() -> Vec<Result<Arc<Remote>, Unreachable>> {
    each_server(Remote::connect)
}

/// As [`sessions`], for CUDA.
pub fn cuda_sessions() -> Vec<Result<Arc<crate::cuda::Session>, Unreachable>> {
    each_server(crate::cuda::Session::connect)
}

/// As [`sessions`], of what NVML tells: no sessions, and nothing of it uses a device.
pub fn monitors() -> Vec<Result<Arc<crate::nvml::Monitor>, Unreachable>> {
    each_server(crate::nvml::Monitor::connect)
}

fn each_server<S: Send + Sync>(
    connect: impl Fn(&Address, Option<Token>) -> Result<S, DialError> + Sync,
) -> Vec<Result<Arc<S>, Unreachable>> {
    let servers = std::env::var(SERVERS).unwrap_or_default();
    let servers: Vec<&str> = servers
        .split([',', ' ', '\t', '\n'])
        .map(str::trim)
        .filter(|server| !server.is_empty())
        .collect();
    let token = std::env::var(TOKEN_FILE)
        .ok()
        .filter(|path| !path.is_empty());
    let dial = |server: &str| -> Result<Arc<S>, DialError> {
        let address: Address = server.parse()?;
        let token = token.as_deref().map(read_token).transpose()?;
        connect(&address, token).map(Arc::new)
    };
    let outcome = |server: &str, outcome: Result<Arc<S>, DialError>| {
        outcome.map_err(|source| Unreachable {
            server: server.into(),
            source,
        })
    };
    if let [server] = servers[..] {
        return vec![outcome(server, dial(server))];
    }
    // The caller may be a library's constructor, whose thread holds the loader's lock: what random numbers and names need of the loader,
    // other threads could not have.
    let _ = getrandom::fill(&mut [0]);
    for address in servers.iter().flat_map(|server| server.parse::<Address>()) {
        // What fails here fails again below, which tells of it.
        let _ = address.host_port().map(|place| place.to_socket_addrs());
    }
    let dial = &dial;
    std::thread::scope(|scope| {
        let dialling: Vec<_> = servers
            .iter()
            .map(|server| (*server, scope.spawn(move || dial(server))))
            .collect();
        let joined = dialling.into_iter().map(|(server, thread)| {
            outcome(server, thread.join().unwrap_or(Err(DialError::Panicked)))
        });
        joined.collect()
    })
}
