//! Looks at a host: `/sys`, `/proc`, `/dev` and `/etc`, nothing else, and changes nothing.
//!
//! What an ordinary user may not read is left unknown and listed in [`Host::denied`].

mod cpu;
mod interface;
mod iommu;
mod pci;
mod system;
mod uses;

pub(crate) use system::services;

use crate::host::Host;
use crate::root::Root;

/// Looks at the host below `root`.
#[must_use]
pub fn inspect(root: &Root) -> Host {
    let mut devices = pci::devices(root);
    let iommu = iommu::iommu(root, &devices);
    let interfaces = interface::interfaces(root);
    let rdma = interface::rdma(root);
    for device in &mut devices {
        let is_its = |address| address == Some(device.address);
        device.interfaces = interfaces
            .iter()
            .filter(|interface| is_its(interface.address))
            .map(|interface| interface.name.clone())
            .collect();
        device.rdma = rdma
            .iter()
            .filter(|rdma| is_its(rdma.address))
            .map(|rdma| rdma.name.clone())
            .collect();
    }
    uses::find(root, &mut devices, &interfaces);
    Host {
        system: system::system(root),
        iommu,
        cpus: cpu::cpus(root),
        nodes: cpu::nodes(root),
        devices,
        rdma,
        interfaces,
        interrupts: cpu::interrupts(root),
        denied: root.denied(),
    }
}
