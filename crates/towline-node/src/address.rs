//! Where a PCI function is: `domain:bus:device.function`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The address of a PCI function, as the kernel writes it: `0000:17:00.0`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// The domain, or segment: each has its own bus numbers.
    #[must_use]
    pub fn domain(self) -> u32 {
        self.domain
    }

    /// The bus.
    #[must_use]
    pub fn bus(self) -> u8 {
        self.bus
    }

    /// The device, 0 to 31.
    #[must_use]
    pub fn device(self) -> u8 {
        self.device
    }

    /// The function, 0 to 7.
    #[must_use]
    pub fn function(self) -> u8 {
        self.function
    }

    /// Whether both are functions of one device.
    #[must_use]
    pub fn is_same_device(self, other: Self) -> bool {
        (self.domain, self.bus, self.device) == (other.domain, other.bus, other.device)
    }

    /// The function that lies `distance` requester ids further on, as virtual functions lie behind their physical one
    /// (PCI Express, 9.2.1.2). `None` past the last bus.
    #[must_use]
    pub fn offset(self, distance: u32) -> Option<Self> {
        let id = u32::from(self.bus) << 8 | u32::from(self.device) << 3 | u32::from(self.function);
        let id = u16::try_from(id.checked_add(distance)?).ok()?;
        Some(Self {
            domain: self.domain,
            bus: (id >> 8) as u8,
            device: (id >> 3 & 0x1f) as u8,
            function: (id & 7) as u8,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// Text that is no PCI address.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no PCI address: write it like 0000:17:00.0, as `towline node inspect` does")]
pub struct NotAnAddress(String);

impl FromStr for PciAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        parse(text).ok_or_else(|| NotAnAddress(text.to_owned()))
    }
}

/// The domain may be left out, as people do.
fn parse(text: &str) -> Option<PciAddress> {
    let (front, function) = text.rsplit_once('.')?;
    let mut parts = front.rsplit(':');
    let device = hexadecimal(parts.next()?, 2)?;
    let bus = hexadecimal(parts.next()?, 2)?;
    let domain = match parts.next() {
        Some(domain) => hexadecimal(domain, 8)?,
        None => 0,
    };
    let function = hexadecimal(function, 1)?;
    (parts.next().is_none() && device < 32 && function < 8).then_some(PciAddress {
        domain,
        bus: u8::try_from(bus).ok()?,
        device: u8::try_from(device).ok()?,
        function: u8::try_from(function).ok()?,
    })
}

fn hexadecimal(text: &str, digits: usize) -> Option<u32> {
    let fits = !text.is_empty() && text.len() <= digits;
    (fits && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| u32::from_str_radix(text, 16).ok())
        .flatten()
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

impl TryFrom<String> for PciAddress {
    type Error = NotAnAddress;

    fn try_from(text: String) -> Result<Self, NotAnAddress> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_print_as_the_kernel_writes_them() {
        for text in ["0000:00:00.0", "0000:ff:1f.7", "10000:e1:00.0"] {
            assert_eq!(address(text).to_string(), text);
        }
        assert_eq!(address("17:00.1"), address("0000:17:00.1"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "17",
            "0000:17:00",
            "0000:17:20.0",
            "0000:17:00.8",
            "0:1:2:3.4",
            "+1:00.0",
            "0000:1é:00.0",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn virtual_functions_run_over_into_the_next_device_and_bus() {
        assert_eq!(
            address("0000:01:00.0").offset(1),
            Some(address("0000:01:00.1"))
        );
        assert_eq!(
            address("0000:01:00.6").offset(3),
            Some(address("0000:01:01.1"))
        );
        assert_eq!(
            address("0000:01:1f.7").offset(1),
            Some(address("0000:02:00.0"))
        );
        assert_eq!(address("0000:ff:1f.7").offset(1), None);
    }
}
