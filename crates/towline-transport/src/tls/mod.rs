//! TLS 1.3 over any [`Connection`](crate::Connection).
//!
//! rustls makes the handshake and holds the key schedule. Records are sealed and opened here (`record`), through the interface that
//! rustls has for kernels and network cards that do the same ([`rustls::kernel`]): its own connections are one object for both
//! directions, so a thread that sends would wait for one that receives. Here each direction has its own lock, nothing is copied more than
//! once on its way to the cipher, and one send or receive of a small message stays one system call.
//!
//! Who the peer is, is not settled here alone: the token's proof covers [`TlsConnection::exporter`], which differs on both sides of anyone
//! who stands in the middle with two connections of his own. Without an [`Authority`] a client therefore takes any certificate, and tells
//! its [`Fingerprint`] to be compared with the one it saw before.

mod connection;
mod exporter;
mod handshake;
mod identity;
mod record;
mod refusal;

pub use connection::TlsConnection;
pub use handshake::{ClientTls, ServerTls};
pub use identity::{Authority, Fingerprint, Identity, MAX_KEY_BYTES};

/// Whether a connection that starts with these bytes is about to begin a TLS handshake: a record of that kind, of any version.
pub fn is_handshake(first: &[u8]) -> bool {
    first.starts_with(&[record::HANDSHAKE, 3])
}

/// Whether a stream that starts with these bytes may be one of records.
fn is_record(first: &[u8]) -> bool {
    let kinds = [record::HANDSHAKE, record::ALERT];
    let mut bytes = first.iter();
    bytes.next().is_none_or(|kind| kinds.contains(kind))
        && bytes.next().is_none_or(|version| *version == 3)
}

#[cfg(test)]
mod tests;
