//! Devices and what code is made for: `sm_90`, `sm_90a`, `compute_100f`.
//!
//! The rules are those of the CUDA C++ Programming Guide ("Compute Capabilities", "Binary Compatibility", "PTX Compatibility",
//! "Architecture-Specific" and "Family-Specific Features").

use std::fmt;

/// What a device can do, as `cuDeviceGetAttribute` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
    pub major: u32,
    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
    pub minor: u32,
}

impl ComputeCapability {
    /// A compute capability, `9, 0` for 9.0.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// As compilers write it: 90 for 9.0, 121 for 12.1. `None` for what has no such number.
    const fn number(self) -> Option<u32> {
        match self.major.checked_mul(10) {
            Some(tens) if self.minor < 10 => tens.checked_add(self.minor),
            _ => None,
        }
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// How far code made for one device reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// To later devices as well: `sm_90`.
    Portable,
    /// To later devices of the same family: `sm_100f`.
    Family,
    /// To no other: `sm_90a`.
    Specific,
}

/// What code is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    /// 90 for `sm_90`.
    pub number: u32,
    /// The letter behind it.
    pub variant: Variant,
}

/// Devices on a system-on-chip: their machine code and that of other devices do not mix, not even within one major version.
const INTEGRATED: [u32; 7] = [32, 53, 62, 72, 87, 101, 110];

impl Arch {
    /// `sm_<number>` without a letter.
    pub const fn portable(number: u32) -> Self {
        Self {
            number,
            variant: Variant::Portable,
        }
    }

    /// The device that it was made for.
    pub const fn capability(self) -> ComputeCapability {
        ComputeCapability::new(self.number / 10, self.number % 10)
    }

    /// Whether machine code for this runs on `device`.
    pub fn runs_on(self, device: ComputeCapability) -> bool {
        self.capability() == device
            || (self.variant != Variant::Specific && self.has_successor(device))
    }

    /// Whether the driver can compile PTX for this into code for `device`.
    pub fn compiles_for(self, device: ComputeCapability) -> bool {
        match self.variant {
            Variant::Portable => self.capability() <= device,
            Variant::Family => self.capability() == device || self.has_successor(device),
            Variant::Specific => self.capability() == device,
        }
    }

    /// Whether `device` is a later minor version of what this was made for.
    fn has_successor(self, device: ComputeCapability) -> bool {
        let made_for = self.capability();
        let integrated = |capability: ComputeCapability| {
            capability
                .number()
                .is_none_or(|number| INTEGRATED.contains(&number))
        };
        made_for.major == device.major
            && made_for.minor <= device.minor
            && !integrated(made_for)
            && !integrated(device)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.variant {
            Variant::Portable => "",
            Variant::Family => "f",
            Variant::Specific => "a",
        };
        write!(f, "{}{letter}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn arch(number: u32, variant: Variant) -> Arch {
        Arch { number, variant }
    }

    #[test]
    fn machine_code_runs_on_later_devices_of_its_major_version() {
        let code = Arch::portable(80);
        assert!(code.runs_on(ComputeCapability::new(8, 0)));
        assert!(code.runs_on(ComputeCapability::new(8, 9)));
        assert!(!code.runs_on(ComputeCapability::new(7, 5)));
        assert!(!code.runs_on(ComputeCapability::new(9, 0)));
        assert!(!Arch::portable(86).runs_on(ComputeCapability::new(8, 0)));
    }

    #[test]
    fn machine_code_does_not_mix_with_systems_on_chip() {
        assert!(!Arch::portable(80).runs_on(ComputeCapability::new(8, 7)));
        assert!(!Arch::portable(87).runs_on(ComputeCapability::new(8, 9)));
        assert!(Arch::portable(87).runs_on(ComputeCapability::new(8, 7)));
    }

    #[test]
    fn specific_code_runs_on_its_device_only() {
        let code = arch(100, Variant::Specific);
        assert!(code.runs_on(ComputeCapability::new(10, 0)));
        assert!(!code.runs_on(ComputeCapability::new(10, 3)));
        assert!(code.compiles_for(ComputeCapability::new(10, 0)));
        assert!(!code.compiles_for(ComputeCapability::new(10, 3)));
        assert!(!code.compiles_for(ComputeCapability::new(12, 0)));
    }

    #[test]
    fn family_code_stays_in_its_family() {
        let code = arch(100, Variant::Family);
        assert!(code.runs_on(ComputeCapability::new(10, 3)));
        assert!(code.compiles_for(ComputeCapability::new(10, 3)));
        assert!(!code.runs_on(ComputeCapability::new(12, 0)));
        assert!(!code.compiles_for(ComputeCapability::new(12, 0)));
    }

    #[test]
    fn ptx_compiles_for_every_later_device() {
        let code = Arch::portable(75);
        assert!(code.compiles_for(ComputeCapability::new(7, 5)));
        assert!(code.compiles_for(ComputeCapability::new(12, 1)));
        assert!(!code.compiles_for(ComputeCapability::new(7, 0)));
    }

    #[test]
    fn absurd_devices_run_nothing() {
        let absurd = ComputeCapability::new(u32::MAX, u32::MAX);
        assert!(!Arch::portable(u32::MAX).runs_on(absurd));
    }

    #[test]
    fn names_are_those_of_the_compiler() {
        assert_eq!(Arch::portable(75).to_string(), "75");
        assert_eq!(arch(90, Variant::Specific).to_string(), "90a");
        assert_eq!(arch(100, Variant::Family).to_string(), "100f");
        assert_eq!(Arch::portable(121).capability().to_string(), "12.1");
    }
}
