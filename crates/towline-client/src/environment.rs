//! Sessions with the servers that this process is told of: by the environment, which `towline run` sets, or by files
//! ([`crate::config`]).

use std::net::ToSocketAddrs;
use std::sync::Arc;

use towline_transport::Address;
use towline_wire::control::Token;

use crate::access::{Access, is_trusted};
use crate::config;
use crate::dial::{DialError, read_token};
use crate::opencl::Remote;

/// Servers, separated by commas or white space.
pub const SERVERS: &str = "TOWLINE_SERVERS";

/// How much device memory that a CUDA program has freed is kept for its next allocations, in MiB.
pub const KEPT_MEMORY: &str = "TOWLINE_KEPT_MEMORY_MIB";

/// A server that gave no session.
#[derive(Debug, thiserror::Error)]
#[error("{}", named(server, source))]
pub struct Unreachable {
    /// Its address.
    pub server: String,
    /// Why.
    #[source]
    pub source: DialError,
}

/// A cause that names its server says all.
fn named(server: &str, cause: &DialError) -> String {
    let text = cause.to_string();
    match text.contains(server) {
        true => text,
        false => format!("no session with {server}: {text}"),
    }
}

/// Begins an OpenCL session with every server that environment or files name, all at once, in their order. Where none is named it costs a look for
/// the files.
pub fn sessions() -> Vec<Result<Arc<Remote>, Unreachable>> {
    let sessions = each_server(Remote::connect);
    let is_alone = sessions.iter().flatten().count() == 1;
    for session in sessions.iter().flatten() {
        session.let_move(is_alone, access_to_move);
    }
    sessions
}

/// The credentials for a server that another one wants a session to move to. What is not named here has to be known.
pub fn access_to_move(server: &Address) -> Result<Access, DialError> {
    let resolved = config::of_process(is_trusted())?;
    let is_given = resolved.servers().contains(server);
    // Any file of this host can be named as a port.
    if !is_given && server.scheme() == "virtio-serial" {
        let server = server.to_string();
        return Err(DialError::UnknownServer { server });
    }
    let token = resolved.settings.token_file.as_deref();
    let access = Access::from_environment(server, token.map(read_token).transpose()?)?;
    Ok(Access {
        only_known: !is_given,
        ..access
    })
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
    let resolved = match config::of_process(is_trusted()) {
        Ok(resolved) => resolved,
        Err(error) => {
            let server = "the configured servers".to_owned();
            let source = error.into();
            return vec![Err(Unreachable { server, source })];
        }
    };
    let token = resolved.settings.token_file.as_deref();
    let dial = |address: &Address| -> Result<Arc<S>, DialError> {
        connect(address, token.map(read_token).transpose()?).map(Arc::new)
    };
    let outcome = |server: &Address, outcome: Result<Arc<S>, DialError>| {
        outcome.map_err(|source| Unreachable {
            server: server.to_string(),
            source,
        })
    };
    let servers = resolved.servers();
    if let [server] = servers {
        return vec![outcome(server, dial(server))];
    }
    // The caller may be a library's constructor, whose thread holds the loader's lock: what random numbers and names need of the loader,
    // other threads could not have.
    let _ = getrandom::fill(&mut [0]);
    for address in servers {
        // What fails here fails again below, which tells of it.
        let _ = address.host_port().map(|place| place.to_socket_addrs());
    }
    let dial = &dial;
    std::thread::scope(|scope| {
        let dialling: Vec<_> = servers
            .iter()
            .map(|server| (server, scope.spawn(move || dial(server))))
            .collect();
        let joined = dialling.into_iter().map(|(server, thread)| {
            outcome(server, thread.join().unwrap_or(Err(DialError::Panicked)))
        });
        joined.collect()
    })
}
