//! Addresses as users and servers write them.

use towline_transport::Address;

use crate::Seed;
use crate::memory::{bounded, proportional};

/// Any text parses or is refused with advice; what parses has one spelling.
pub fn target(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let parsed = bounded(proportional(text.as_bytes()), || Address::parse(&text));
    match parsed {
        Err(error) => assert!(!error.to_string().is_empty(), "an error that says nothing"),
        Ok(address) => {
            assert_eq!(Address::parse(&address.to_string()).ok().as_ref(), Some(&address));
            assert_eq!(address.scheme(), address.scheme().to_ascii_lowercase());
            assert_eq!(address.host_port().is_some(), address.scheme() == "tcp");
            assert!(!address.is_loopback() || address.scheme() == "tcp");
        }
    }
}

/// Addresses of every form, and near misses.
pub fn seeds() -> Vec<Seed> {
    [
        "gpu1:7000",
        "tcp://[::1]:0",
        "[fe80::1%eth0]:65535",
        "[::ffff:127.0.0.1]:1",
        "memory://a/b",
        "unix:///run/towline.sock",
        "UCX+ib://node-3.cluster",
        "::1:7000",
        "gpu1:+7",
    ]
    .iter()
    .enumerate()
    .map(|(index, text)| Seed::new(format!("{index}"), *text))
    .collect()
}
