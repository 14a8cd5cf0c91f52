//! Keying material of a TLS connection (RFC 8446, section 7.5): bytes that only its two ends know, and that no other connection has.
//!
//! rustls exports it from its own connections only, not from those whose records others seal. It tells the secret behind it to a key log,
//! so a key log of this process takes it.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use ring::hkdf::{HKDF_SHA256, Prk};
use rustls::KeyLog;

const SECRET: &str = "EXPORTER_SECRET";

type Secret = [u8; SHA256_OUTPUT_LEN];

/// Takes the exporter's secret of one connection.
#[derive(Default)]
pub(super) struct Listener(Mutex<Option<Secret>>);

impl Listener {
    /// What the handshake left; `None` before its end.
    pub(super) fn take(&self) -> Option<Exporter> {
        let mut secret = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        secret.take().map(Exporter)
    }
}

impl KeyLog for Listener {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == SECRET {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = secret.try_into().ok();
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == SECRET
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener(..)")
    }
}

/// The exporter of one connection.
pub(super) struct Exporter(Secret);

impl Exporter {
    /// TLS-Exporter(label, context, 32).
    pub(super) fn export(&self, label: &[u8], context: &[u8]) -> [u8; 32] {
        let derived = expand_label(&self.0, label, digest(&SHA256, b"").as_ref());
        expand_label(&derived, b"exporter", digest(&SHA256, context).as_ref())
    }
}

/// HKDF-Expand-Label (section 7.1) of 32 bytes.
fn expand_label(secret: &Secret, label: &[u8], context: &[u8]) -> Secret {
    const PREFIX: &[u8] = b"tls13 ";
    let length = |part: usize| u8::try_from(part).expect("labels and hashes are short");
    let info: [&[u8]; 6] = [
        &(SHA256_OUTPUT_LEN as u16).to_be_bytes(),
        &[length(PREFIX.len() + label.len())],
        PREFIX,
        label,
        &[length(context.len())],
        context,
    ];
    let mut out = [0; SHA256_OUTPUT_LEN];
    Prk::new_less_safe(HKDF_SHA256, secret)
        .expand(&info, HKDF_SHA256)
        .and_then(|expanded| expanded.fill(&mut out))
        .expect("one block of SHA-256 can be expanded");
    out
}
