//! Addresses: a scheme that chooses the transport, and a rest that only the transport reads.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::TransportError;

/// The port of a tcp or rdma address that names none: where `towline serve` listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 7140;

/// Where to connect or listen: `tcp://host:port`, `shm:///path`, `memory://name`, or whatever a loaded transport defines.
///
/// Without a scheme it is tcp, and without a port [`DEFAULT_PORT`]; `local` is this host's own server, `shm://local`; `vsock:2:7000` and `virtio-serial:/dev/...` may leave
/// the slashes out. [`Display`](fmt::Display) gives a text that parses to the same address.
///
/// ```
/// use towline_transport::Address;
///
/// let address: Address = "gpu1:7000".parse()?;
/// assert_eq!(address.scheme(), "tcp");
/// assert_eq!(address.to_string(), "tcp://gpu1:7000");
/// # Ok::<(), towline_transport::TransportError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    scheme: String,
    rest: String,
}

impl Address {
    /// Parses `text`; the error says what to write instead.
    pub fn parse(text: &str) -> Result<Self, TransportError> {
        let invalid = |advice: String| TransportError::InvalidAddress {
            text: text.to_owned(),
            advice,
        };
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None if text == "local" => ("shm".to_owned(), text),
            // A path begins with a slash, so that two of three are easily left out.
            None if text.starts_with("shm:/") => ("shm".to_owned(), &text["shm:".len()..]),
            None => match short(text) {
                Some((scheme, rest)) => (scheme.to_owned(), rest),
                None => ("tcp".to_owned(), text),
            },
        };
        let named_well = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        if !named_well {
            return Err(invalid(
                "write SCHEME://..., for example tcp://gpu1:7000".into(),
            ));
        }
        if rest.is_empty() {
            return Err(invalid(match scheme.as_str() {
                "tcp" | "rdma" => "write HOST:PORT, for example gpu1:7000".into(),
                _ => format!("something must follow `{scheme}://`"),
            }));
        }
        if rest.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err(invalid("remove the spaces".into()));
        }
        let rest = match scheme.as_str() {
            "tcp" | "rdma" => with_port(rest).map_err(invalid)?,
            _ => rest.to_owned(),
        };
        Ok(Self { scheme, rest })
    }

    /// The name of the transport, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What follows `://`.
    pub fn rest(&self) -> &str {
        &self.rest
    }

    /// Host, without the brackets of an IPv6 address, and port of a tcp or rdma address; `None` for other schemes.
    pub fn host_port(&self) -> Option<(&str, u16)> {
        if !matches!(self.scheme.as_str(), "tcp" | "rdma") {
            return None;
        }
        let (host, port) = split_host_port(&self.rest).ok()?;
        Some((host, port?))
    }

    /// Whether only this host can reach a tcp, rdma or vsock listener at this address. Judged by the text alone, so a host name
    /// other than `localhost` is not loopback; nor is any address of another scheme, for which
    /// [`crosses_hosts`](crate::Capabilities::crosses_hosts) says what is needed.
    pub fn is_loopback(&self) -> bool {
        if self.scheme == "vsock" {
            return self.rest.starts_with("local:") || self.rest.starts_with("1:");
        }
        self.host_port()
            .is_some_and(|(host, _)| match host.parse::<IpAddr>() {
                Ok(ip) => ip.to_canonical().is_loopback(),
                Err(_) => host.eq_ignore_ascii_case("localhost"),
            })
    }
}

/// Schemes of virtual machines without slashes. No tcp address looks like these: that of a host called `vsock` has one colon, and
/// no port has a slash.
fn short(text: &str) -> Option<(&'static str, &str)> {
    if let Some(rest) = text.strip_prefix("vsock:") {
        return rest.contains(':').then_some(("vsock", rest));
    }
    let rest = text.strip_prefix("virtio-serial:")?;
    rest.starts_with('/').then_some(("virtio-serial", rest))
}

/// A tcp or rdma address with its port.
fn with_port(rest: &str) -> Result<String, String> {
    match split_host_port(rest)? {
        (_, Some(_)) => Ok(rest.to_owned()),
        (_, None) => Ok(format!("{rest}:{DEFAULT_PORT}")),
    }
}

fn split_host_port(rest: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = if let Some(bracketed) = rest.strip_prefix('[') {
        let (host, port) = bracketed
            .split_once(']')
            .ok_or("the `[` has no `]`: write [ADDRESS]:PORT, for example [::1]:7000")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() && !host.contains('%') {
            return Err(format!(
                "`{host}` is no IPv6 address: write one between the brackets, for example [::1]:7000"
            ));
        }
        match port.strip_prefix(':') {
            None if !port.is_empty() => {
                return Err(
                    "a colon stands before the port: write [ADDRESS]:PORT, for example [::1]:7000"
                        .into(),
                );
            }
            port => (host, port),
        }
    } else {
        match rest.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => {
                return Err("an IPv6 address goes into brackets: write [ADDRESS]:PORT, for example [::1]:7000".into());
            }
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        }
    };
    if host.is_empty() {
        return Err("the host is missing: write HOST:PORT, for example 127.0.0.1:7000, or 0.0.0.0:7000 to listen on \
                    all interfaces"
            .into());
    }
    if host.contains(['/', '@', '?', '#']) {
        return Err("write HOST:PORT and nothing else, for example gpu1:7000".into());
    }
    let Some(port) = port else {
        return Ok((host, None));
    };
    // `u16::from_str` takes a leading plus sign; an address does not.
    match port.parse() {
        Ok(number) if port.bytes().all(|b| b.is_ascii_digit()) => Ok((host, Some(number))),
        _ => Err(format!(
            "`{port}` is no port: write a number from 0 to 65535 behind the last colon"
        )),
    }
}

impl FromStr for Address {
    type Err = TransportError;

    fn from_str(text: &str) -> Result<Self, TransportError> {
        Self::parse(text)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(text: &str) -> String {
        Address::parse(text)
            .expect_err("must not parse")
            .to_string()
    }

    #[test]
    fn scheme_defaults_to_tcp() {
        assert_eq!(
            Address::parse("gpu1:7000").unwrap(),
            Address::parse("tcp://gpu1:7000").unwrap()
        );
    }

    #[test]
    fn missing_port_is_the_default_one() {
        for (short, long) in [
            ("gpu1", "tcp://gpu1:7140"),
            ("tcp://10.0.0.1", "tcp://10.0.0.1:7140"),
            ("[::1]", "tcp://[::1]:7140"),
            ("rdma://gpu1", "rdma://gpu1:7140"),
        ] {
            assert_eq!(Address::parse(short).unwrap().to_string(), long);
        }
    }

    #[test]
    fn addresses_of_this_host_have_short_forms() {
        for (short, long) in [("local", "shm://local"), ("shm:/run/x", "shm:///run/x")] {
            assert_eq!(Address::parse(short).unwrap().to_string(), long);
        }
    }

    #[test]
    fn display_parses_to_the_same_address() {
        for text in [
            "tcp://gpu1:7000",
            "tcp://[::1]:0",
            "memory://a/b",
            "unix:///run/towline.sock",
            "tcp://[fe80::1%eth0]:1",
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn addresses_of_virtual_machines_need_no_slashes() {
        for (short, long) in [
            ("vsock:2:7000", "vsock://2:7000"),
            ("virtio-serial:/dev/x", "virtio-serial:///dev/x"),
            ("vsock:7000", "tcp://vsock:7000"),
        ] {
            assert_eq!(Address::parse(short).unwrap().to_string(), long);
        }
    }

    #[test]
    fn host_port_drops_brackets() {
        assert_eq!(
            Address::parse("[::1]:7000").unwrap().host_port(),
            Some(("::1", 7000))
        );
        assert_eq!(Address::parse("memory://x").unwrap().host_port(), None);
    }

    #[test]
    fn loopback_is_judged_by_the_text() {
        for loopback in [
            "127.0.0.1:1",
            "127.8.0.1:1",
            "[::1]:1",
            "localhost:1",
            "[::ffff:127.0.0.1]:1",
            "vsock:local:1",
            "vsock:1:1",
            "rdma://127.0.0.1:1",
        ] {
            assert!(
                Address::parse(loopback).unwrap().is_loopback(),
                "{loopback}"
            );
        }
        for other in [
            "0.0.0.0:1",
            "[::]:1",
            "gpu1:1",
            "10.0.0.1:1",
            "memory://127.0.0.1:1",
            "rdma://10.0.0.1:1",
            "vsock:any:1",
            "vsock:2:1",
        ] {
            assert!(!Address::parse(other).unwrap().is_loopback(), "{other}");
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        assert!(advice("::1:7000").contains("write [ADDRESS]:PORT"));
        assert!(advice("[::1:7000").contains("has no `]`"));
        assert!(advice("[gpu1]:7000").contains("is no IPv6 address"));
        assert!(advice("[::1]7000").contains("a colon stands before the port"));
        assert!(advice(":7000").contains("the host is missing"));
        assert!(advice("gpu1:http").contains("`http` is no port"));
        assert!(advice("gpu1:70000").contains("`70000` is no port"));
        assert!(advice("gpu1:+7").contains("`+7` is no port"));
        assert!(advice("tcp://gpu1:7/x").contains("is no port"));
        assert!(advice("").contains("write HOST:PORT"));
        assert!(advice("memory://").contains("something must follow"));
        assert!(advice("://x").contains("write SCHEME://"));
        assert!(advice("gpu 1:7").contains("remove the spaces"));
    }
}
