//! What is said on the socket: the greeting of who connects, and what goes to another process along with the descriptors.

use super::connection::Role;
use super::door::LEAD;
use super::view::Sizes;

/// The greeting: first on every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The rings whose memory comes along; without, bytes go on the socket.
    pub(super) sizes: Option<Sizes>,
}

impl Hello {
    pub(super) const BYTES: usize = 24;
    pub(super) const PLAIN: Self = Self { sizes: None };
    /// The last byte is the version.
    const MAGIC: [u8; 8] = *b"TWLSHM\0\x01";

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let (up, down) = match self.sizes {
            None => (0, 0),
            Some(sizes) => (sizes.to_acceptor, sizes.to_connector),
        };
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&Self::MAGIC);
        for (word, place) in [up, down, 0, 0].iter().zip(bytes[8..].chunks_mut(4)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let words = bytes.strip_prefix(&Self::MAGIC)?;
        let (words, _) = words.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
        let (up, down) = (words.next()?, words.next()?);
        // For later versions.
        if words.any(|word| word != 0) {
            return None;
        }
        match (up, down) {
            (0, 0) => Some(Self::PLAIN),
            (up, down) => Some(Self {
                sizes: Some(Sizes::checked(up, down)?),
            }),
        }
    }
}

/// What another process of this side needs to know, besides the descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passport {
    pub(super) role: Role,
    /// `None` where the peer has not said all of it.
    pub(super) hello: Option<Hello>,
    /// For messages.
    pub(super) peer: String,
    /// Whether the lead has come.
    pub(super) led: bool,
    /// What has not been read of the lead, or what has come of it or of the greeting.
    pub(super) heard: Vec<u8>,
}

impl Passport {
    /// Most bytes of one.
    pub(super) const MOST: usize = 3 + Hello::BYTES + 2 + Self::PEER + Hello::BYTES + LEAD;
    const PEER: usize = 512;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![
            u8::from(self.role == Role::Acceptor),
            u8::from(self.hello.is_some()),
            u8::from(self.led),
        ];
        bytes.extend_from_slice(&self.hello.unwrap_or(Hello::PLAIN).encode());
        let mut end = self.peer.len().min(Self::PEER);
        while !self.peer.is_char_boundary(end) {
            end -= 1;
        }
        bytes.extend_from_slice(&(end as u16).to_le_bytes());
        bytes.extend_from_slice(&self.peer.as_bytes()[..end]);
        bytes.extend_from_slice(&self.heard);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[role, known, led], bytes) = bytes.split_first_chunk()?;
        let (hello, bytes) = bytes.split_first_chunk()?;
        let hello = Hello::decode(hello)?;
        let (peer_len, bytes) = bytes.split_first_chunk()?;
        let (peer, heard) = bytes.split_at_checked(u16::from_le_bytes(*peer_len).into())?;
        Some(Self {
            role: match role {
                0 => Role::Connector,
                _ => Role::Acceptor,
            },
            hello: (known == 1).then_some(hello),
            peer: str::from_utf8(peer).ok()?.to_owned(),
            led: led == 1,
            heard: heard.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_rings(bytes: usize) -> Hello {
        Hello {
            sizes: Some(Sizes::both(bytes)),
        }
    }

    #[test]
    fn a_greeting_comes_back_as_it_was() {
        for hello in [Hello::PLAIN, with_rings(8192)] {
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        }
    }

    #[test]
    fn what_is_no_greeting_is_refused() {
        // Magic, version, a size that is no power of two, reserved words.
        for (place, value) in [(0, 0), (7, 2), (8, 1), (16, 1), (23, 1)] {
            let mut bytes = with_rings(4096).encode();
            bytes[place] = value;
            assert_eq!(Hello::decode(&bytes), None, "byte {place}");
        }
    }

    #[test]
    fn a_passport_comes_back_as_it_was_and_cut_off_it_does_not() {
        let passport = Passport {
            role: Role::Acceptor,
            hello: Some(with_rings(4096)),
            peer: "shm:///x (process 1 of user 2)".into(),
            led: true,
            heard: vec![1, 2, 3],
        };
        let bytes = passport.encode();
        assert!(bytes.len() <= Passport::MOST);
        assert_eq!(Passport::decode(&bytes), Some(passport));
        assert_eq!(Passport::decode(&bytes[..40]), None);
        assert_eq!(Passport::decode(&[]), None);
    }
}
