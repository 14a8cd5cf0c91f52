//! Where connections come from, as far as one sender can have many of them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// An address without its port; of IPv6 the network, since a host has all addresses of one, and on this host the user, who has many
/// processes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Origin(String);

impl Origin {
    /// Of a connection's peer, as its transport writes it.
    pub(super) fn of(peer: &str) -> Self {
        if let Some((_, user)) = peer.rsplit_once(" of user ") {
            return Self(format!("user {}", user.trim_end_matches(')')));
        }
        let peer = peer.split_once("://").map_or(peer, |(_, rest)| rest);
        let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.parse() {
            Ok(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
                Some(address) => Self(address.to_string()),
                None => {
                    let network = address.to_bits() & (u128::MAX << 64);
                    Self(Ipv6Addr::from_bits(network).to_string())
                }
            },
            _ => Self(host.to_owned()),
        }
    }
}

/// The origin that is named most often.
pub(super) fn heaviest<'a>(origins: impl Iterator<Item = &'a Origin>) -> Option<Origin> {
    let mut counts: HashMap<&Origin, usize> = HashMap::new();
    for origin in origins {
        *counts.entry(origin).or_default() += 1;
    }
    let heaviest = counts.into_iter().max_by_key(|(_, count)| *count);
    heaviest.map(|(origin, _)| origin.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_addresses_of_one_network_do_not_matter() {
        let same = |one: &str, other: &str| Origin::of(one) == Origin::of(other);
        assert!(same("192.0.2.1:1", "tcp://192.0.2.1:2"));
        assert!(same("[2001:db8::1]:1", "[2001:db8::ffff:2]:3"));
        assert!(same("[::ffff:192.0.2.1]:1", "192.0.2.1:1"));
        assert!(!same("192.0.2.1:1", "192.0.2.2:1"));
        assert!(!same("[2001:db8::1]:1", "[2001:db8:0:1::1]:1"));
        let local = |process: u32, user: u32| {
            format!("shm:///run/a.sock (process {process} of user {user})")
        };
        assert!(same(&local(1, 1000), &local(2, 1000)));
        assert!(!same(&local(1, 1000), &local(1, 1001)));
    }

    #[test]
    fn heaviest_is_named_most_often() {
        let origins = ["a:1", "b:1", "b:2", "c:1"].map(Origin::of);
        assert_eq!(heaviest(origins.iter()), Some(Origin::of("b:3")));
        assert_eq!(heaviest([].iter()), None);
    }
}
