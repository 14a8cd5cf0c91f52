//! What translates addresses of devices.

use std::collections::BTreeMap;

use crate::address::PciAddress;
use crate::host::{Device, Group, Iommu};
use crate::root::Root;

/// The ACPI tables that tell of one, on Intel, AMD and Arm.
const TABLES: [&str; 3] = ["DMAR", "IVRS", "IORT"];

pub(super) fn iommu(root: &Root, devices: &[Device]) -> Iommu {
    let mut groups: BTreeMap<u32, Vec<PciAddress>> = BTreeMap::new();
    for device in devices {
        if let Some(group) = device.group {
            groups.entry(group).or_default().push(device.address);
        }
    }
    let tables = root.entries("/sys/firmware/acpi/tables");
    let default_domain = groups
        .keys()
        .next()
        .and_then(|group| root.text(&format!("/sys/kernel/iommu_groups/{group}/type")));
    Iommu {
        units: root.entries("/sys/class/iommu"),
        in_firmware: (!tables.is_empty()).then(|| {
            TABLES
                .iter()
                .any(|table| tables.iter().any(|name| name == table))
        }),
        remaps_interrupts: remaps_interrupts(root),
        default_domain,
        groups: groups
            .into_iter()
            .map(|(id, devices)| Group { id, devices })
            .collect(),
    }
}

/// The kernel names the chip of each interrupt: `IR-` is remapped on Intel and AMD. On Arm the translation service does it always.
fn remaps_interrupts(root: &Root) -> Option<bool> {
    let text = root.text("/proc/interrupts")?;
    let mut has_messages = false;
    for word in text.split_whitespace() {
        if word.starts_with("IR-") || word.starts_with("ITS-") {
            return Some(true);
        }
        has_messages |= word.starts_with("PCI-MSI") || word.starts_with("IO-APIC");
    }
    has_messages.then_some(false)
}
