//! The one error type of this crate. Texts are for the person at the terminal: what failed, where, what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a connection could not be made, or is gone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A shared object speaks another version of the plugin ABI.
    #[error(
        "{path} is built for version {found} of Towline's transport ABI, this program speaks version {expected}: \
         rebuild it against this release's towline_transport.h"
    )]
    AbiMismatch {
        /// The shared object.
        path: PathBuf,
        /// The version that it speaks.
        found: u32,
        /// The version that this program speaks: [`ABI_VERSION`](crate::plugin::ABI_VERSION).
        expected: u32,
    },

    /// Another listener has the address.
    #[error(
        "cannot listen on {address}: something else already does; stop it or choose another address"
    )]
    AddressInUse {
        /// The address.
        address: String,
    },

    /// The peer closed the connection, or this end was shut down.
    #[error("the connection to {peer} is closed")]
    Closed {
        /// A name of the other end.
        peer: String,
    },

    /// Nobody listens there.
    #[error("{address} refused the connection: {}", how_to_serve(address))]
    ConnectionRefused {
        /// The address.
        address: String,
    },

    /// A key or certificate cannot be used.
    #[error("a key or certificate cannot be used: {reason}")]
    Credentials {
        /// The reason.
        reason: String,
    },

    /// The text is no address.
    #[error("`{text}` is not an address: {advice}")]
    InvalidAddress {
        /// The text.
        text: String,
        /// The form that it should have.
        advice: String,
    },

    /// The operating system refused; `action` says what was tried.
    #[error("cannot {action}")]
    Io {
        /// The attempt, in the infinitive.
        action: String,
        /// The operating system's error.
        source: io::Error,
    },

    /// [`close`](crate::Listener::close) was called.
    #[error("no longer listening on {address}")]
    ListenerClosed {
        /// The address of the listener.
        address: String,
    },

    /// The link broke without an orderly close: reset, cut, or the peer stopped answering.
    #[error("lost the connection to {peer}: {reason}")]
    Lost {
        /// A name of the other end.
        peer: String,
        /// The sign of the loss.
        reason: String,
    },

    /// A shared object cannot be used as a transport, or failed.
    #[error("transport plugin {path}: {reason}")]
    Plugin {
        /// The shared object.
        path: PathBuf,
        /// Its own words, or what it lacks.
        reason: String,
    },

    /// Another transport has this scheme.
    #[error(
        "a transport for `{scheme}://` is already there: load each plugin once, and give yours its own scheme"
    )]
    SchemeTaken {
        /// The scheme.
        scheme: String,
    },

    /// No answer in time.
    #[error(
        "{address} did not answer within {}: check the address, that the host is up and that no firewall is in between",
        seconds(timeout)
    )]
    TimedOut {
        /// The address.
        address: String,
        /// The time that it had.
        timeout: Duration,
    },

    /// This host has no libraries or no device for RDMA.
    #[error("cannot use RDMA: {reason}")]
    NoRdma {
        /// The reason.
        reason: String,
    },

    /// The peer answered a TLS handshake in the clear.
    #[error("{peer} does not encrypt")]
    NotTls {
        /// A name of the other end.
        peer: String,
        /// What it has said so far.
        said: Vec<u8>,
    },

    /// No encrypted connection came about.
    #[error("no encrypted connection to {peer}: {reason}")]
    Tls {
        /// A name of the other end.
        peer: String,
        /// The reason.
        reason: String,
    },

    /// No transport for the scheme.
    #[error("no transport for `{scheme}://`: this program knows {known}; {advice}")]
    UnknownScheme {
        /// The scheme.
        scheme: String,
        /// The schemes that this program knows.
        known: String,
        /// Advice on a transport for the scheme.
        advice: String,
    },

    /// The network has no way there.
    #[error("cannot reach {address}: check the address and this host's network")]
    Unreachable {
        /// The address.
        address: String,
        /// The operating system's error.
        source: io::Error,
    },

    /// The name has no address.
    #[error("cannot find host `{host}`: check the spelling, or write its IP address")]
    Unresolvable {
        /// The name.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },

    /// The transport has no such operation.
    #[error("transport `{scheme}` cannot {operation}")]
    Unsupported {
        /// The scheme of the transport.
        scheme: String,
        /// The operation, in the infinitive.
        operation: &'static str,
    },
}

fn how_to_serve(address: &str) -> &'static str {
    match address.split_once("://") {
        Some(("shm", "local")) => "start a server on this host with `towline serve --listen local`",
        Some(("shm", _)) => "is `towline serve --listen` running there, with that path?",
        _ => "is `towline serve` running there, on that port?",
    }
}

fn seconds(timeout: &Duration) -> String {
    format!("{} s", timeout.as_millis() as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_what_to_do() {
        let refused = TransportError::ConnectionRefused {
            address: "tcp://gpu1:7000".into(),
        };
        assert_eq!(
            refused.to_string(),
            "tcp://gpu1:7000 refused the connection: is `towline serve` running there, on that port?"
        );
        let late = TransportError::TimedOut {
            address: "tcp://gpu1:7000".into(),
            timeout: Duration::from_millis(1500),
        };
        assert!(
            late.to_string()
                .starts_with("tcp://gpu1:7000 did not answer within 1.5 s: check")
        );
    }
}
