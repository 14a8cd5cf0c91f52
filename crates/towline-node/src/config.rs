//! What a function's configuration space says: its kind of port, ACS, ATS, SR-IOV.
//!
//! The bytes come from the file `config`. Root sees up to 4096 of them, others the first 64, and a conventional device has 256:
//! what lies beyond is unknown, which is not the same as absent. Loops of broken lists end.

use serde::{Deserialize, Serialize};

/// How much of the space could be read.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seen {
    /// Nothing, or only the header that everyone may read
    Header,
    /// The first 256 bytes: no extended capabilities
    Conventional,
    /// Everything
    Full,
}

/// What a function is on the way from the root complex to a device (PCI Express, 7.5.3.2).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Port {
    /// A device
    Endpoint,
    /// A device of the root complex itself
    Integrated,
    /// A port of the root complex
    Root,
    /// A switch's port towards the root
    Upstream,
    /// A switch's port towards a device
    Downstream,
    /// Anything else: bridges to and from conventional PCI, event collectors
    Other,
}

/// Access Control Services (PCI Express, 7.7.11).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Acs {
    /// Where the capability lies in the space.
    pub offset: u16,
    /// What the function can do, see the constants.
    pub capabilities: u16,
    /// What is switched on, by the same bits.
    pub control: u16,
}

impl Acs {
    /// Requests with a bus number that is not below the port are blocked.
    pub const SOURCE_VALIDATION: u16 = 1 << 0;
    /// Requests between devices below go up to the root complex.
    pub const REQUEST_REDIRECT: u16 = 1 << 2;
    /// Completions between devices below go up to the root complex.
    pub const COMPLETION_REDIRECT: u16 = 1 << 3;
    /// What comes from below goes up.
    pub const UPSTREAM_FORWARDING: u16 = 1 << 4;
    /// Addresses that the IOMMU has translated go directly all the same.
    pub const DIRECT_TRANSLATED: u16 = 1 << 6;
    /// Where the control register lies within the capability.
    pub const CONTROL: u16 = 6;

    /// Whether requests between devices below go up to the root complex.
    #[must_use]
    pub fn redirects(self) -> bool {
        self.control & (Self::REQUEST_REDIRECT | Self::COMPLETION_REDIRECT) != 0
    }

    /// Whether translated requests between devices below go directly.
    #[must_use]
    pub fn is_direct_translated(self) -> bool {
        self.control & Self::DIRECT_TRANSLATED != 0
    }
}

/// Address Translation Services (PCI Express, 10.5.1).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Ats {
    /// Whether it is switched on.
    pub enabled: bool,
}

/// The SR-IOV capability (PCI Express, 9.3.3).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SriovRegisters {
    /// How many virtual functions there can be.
    pub total: u16,
    /// How many there are.
    pub count: u16,
    /// The first one's distance from the physical function.
    pub offset: u16,
    /// Their distance from each other.
    pub stride: u16,
    /// Their device number; the vendor is the physical function's.
    pub device: u16,
}

/// What was found in a configuration space.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Config {
    /// How much could be read.
    pub seen: Seen,
    /// What the function is, if it speaks PCI Express and that could be read.
    pub port: Option<Port>,
    /// Its access control, if it has any.
    pub acs: Option<Acs>,
    /// Its address translation, if it has any.
    pub ats: Option<Ats>,
    /// Its virtual functions, if it can have any.
    pub sriov: Option<SriovRegisters>,
}

const STATUS: usize = 0x06;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const CAPABILITIES_POINTER: usize = 0x34;
const CAPABILITY_EXPRESS: u8 = 0x10;
const EXTENDED: usize = 0x100;
const EXTENDED_ACS: u16 = 0x0d;
const EXTENDED_ATS: u16 = 0x0f;
const EXTENDED_SRIOV: u16 = 0x10;

/// More capabilities than fit into a space do not exist: a longer list is a loop.
const MAX_CAPABILITIES: usize = 48;
const MAX_EXTENDED: usize = 960;

impl Config {
    /// Reads the bytes of a `config` file, however many there are.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let seen = match bytes.len() {
            0..=255 => Seen::Header,
            256..=4095 => Seen::Conventional,
            _ => Seen::Full,
        };
        let mut config = Self {
            seen,
            port: conventional(bytes, CAPABILITY_EXPRESS)
                .and_then(|at| word(bytes, at.checked_add(2)?))
                .map(port),
            acs: None,
            ats: None,
            sriov: None,
        };
        for (id, at) in extended(bytes) {
            let field = |offset: usize| word(bytes, at.checked_add(offset)?);
            match id {
                EXTENDED_ACS => {
                    config.acs = field(4).zip(field(6)).zip(u16::try_from(at).ok()).map(
                        |((capabilities, control), offset)| Acs {
                            offset,
                            capabilities,
                            control,
                        },
                    );
                }
                EXTENDED_ATS => {
                    config.ats = field(6).map(|control| Ats {
                        enabled: control & 1 << 15 != 0,
                    });
                }
                EXTENDED_SRIOV => {
                    config.sriov = field(0x0e)
                        .zip(field(0x10))
                        .zip(field(0x14).zip(field(0x16)))
                        .zip(field(0x1a))
                        .map(
                            |(((total, count), (offset, stride)), device)| SriovRegisters {
                                total,
                                count,
                                offset,
                                stride,
                                device,
                            },
                        );
                }
                _ => {}
            }
        }
        config
    }
}

fn port(flags: u16) -> Port {
    match flags >> 4 & 0xf {
        0 | 1 => Port::Endpoint,
        4 => Port::Root,
        5 => Port::Upstream,
        6 => Port::Downstream,
        9 => Port::Integrated,
        _ => Port::Other,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(field.try_into().ok()?))
}

/// Where the capability of this id lies, by the list below 256.
fn conventional(bytes: &[u8], wanted: u8) -> Option<usize> {
    if word(bytes, STATUS)? & STATUS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = usize::from(bytes.get(CAPABILITIES_POINTER)? & 0xfc);
    for _ in 0..MAX_CAPABILITIES {
        if at < 0x40 {
            return None;
        }
        let (id, next) = (*bytes.get(at)?, *bytes.get(at.checked_add(1)?)?);
        if id == wanted {
            return Some(at);
        }
        at = usize::from(next & 0xfc);
    }
    None
}

/// The extended capabilities: id and place.
fn extended(bytes: &[u8]) -> Vec<(u16, usize)> {
    let mut found = Vec::new();
    let mut at = EXTENDED;
    while at >= EXTENDED && found.len() < MAX_EXTENDED {
        let Some((id, link)) =
            word(bytes, at).zip(at.checked_add(2).and_then(|at| word(bytes, at)))
        else {
            break;
        };
        // All zeros: none. All ones: the device does not answer.
        if (id, link) == (0, 0) || id == 0xffff {
            break;
        }
        found.push((id, at));
        at = usize::from(link >> 4 & 0xffc);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: &mut [u8], at: usize, words: &[u16]) {
        for (index, word) in words.iter().enumerate() {
            bytes[at + 2 * index..at + 2 * index + 2].copy_from_slice(&word.to_le_bytes());
        }
    }

    /// A physical function with every capability that matters.
    fn space() -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        put(&mut bytes, STATUS, &[STATUS_CAPABILITIES]);
        bytes[CAPABILITIES_POINTER] = 0x40;
        put(&mut bytes, 0x40, &[0x6001, 0]);
        put(&mut bytes, 0x60, &[0x0010, 0x0002]);
        put(&mut bytes, 0x100, &[EXTENDED_ACS, 0x1401, 0x5f, 0x1d]);
        put(&mut bytes, 0x140, &[EXTENDED_ATS, 0x1601, 0, 1 << 15]);
        put(&mut bytes, 0x160, &[EXTENDED_SRIOV, 0x0001]);
        put(&mut bytes, 0x16e, &[16, 4, 0, 2, 1, 0, 0x101e]);
        bytes
    }

    #[test]
    fn everything_is_found_in_a_full_space() {
        let config = Config::parse(&space());
        assert_eq!(
            (config.seen, config.port),
            (Seen::Full, Some(Port::Endpoint))
        );
        let acs = config.acs.unwrap();
        assert_eq!(
            (acs.offset, acs.capabilities, acs.control),
            (0x100, 0x5f, 0x1d)
        );
        assert!(acs.redirects() && !acs.is_direct_translated());
        assert_eq!(config.ats, Some(Ats { enabled: true }));
        let sriov = config.sriov.unwrap();
        assert_eq!(
            (
                (sriov.total, sriov.count, sriov.offset, sriov.stride),
                sriov.device
            ),
            ((16, 4, 2, 1), 0x101e)
        );
    }

    #[test]
    fn what_an_ordinary_user_sees_says_so() {
        let config = Config::parse(&space()[..64]);
        assert_eq!(
            (config.seen, config.port, config.acs),
            (Seen::Header, None, None)
        );
        let config = Config::parse(&space()[..256]);
        assert_eq!(
            (config.seen, config.port),
            (Seen::Conventional, Some(Port::Endpoint))
        );
    }

    #[test]
    fn lists_that_loop_end() {
        let mut bytes = space();
        put(&mut bytes, 0x60, &[0x4001]);
        put(&mut bytes, 0x142, &[0x1001]);
        let config = Config::parse(&bytes);
        assert!(config.port.is_none() && config.acs.is_some() && config.sriov.is_none());
    }

    #[test]
    fn a_device_that_does_not_answer_has_nothing() {
        let config = Config::parse(&[0xff; 4096]);
        assert!(config.port.is_none() && config.acs.is_none() && config.ats.is_none());
    }

    #[test]
    fn no_cut_and_no_byte_makes_it_panic() {
        let bytes = space();
        for len in 0..bytes.len() {
            let _ = Config::parse(&bytes[..len]);
        }
        for at in 0..0x180 {
            for value in [0, 1, 0x7f, 0x80, 0xfc, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                let _ = Config::parse(&bytes);
            }
        }
    }
}
