//! What is done while the host runs: services, modules, huge pages, bindings, ACS, interrupts.

use std::collections::{BTreeMap, BTreeSet};

use super::{Draft, Obstacle, Vm};
use crate::address::PciAddress;
use crate::config::{Acs, Port, Seen};
use crate::host::{Device, Host, Kind, Locality};
use crate::request::Request;
use crate::root::list;
use crate::step::{Action, Class, Form, Step};

/// Services that hold GPUs and can go without.
pub(super) const STOPPED: [&str; 2] = ["nvidia-dcgm", "nvidia-persistenced"];

/// What has to happen before devices change hands.
pub(super) fn before_devices(host: &Host, vms: &[Vm], draft: &mut Draft) {
    huge_pages(host, vms, draft);
    let needs_vfio = vms.iter().any(Vm::has_devices);
    let modules: Vec<Action> = ["vfio_iommu_type1", "vfio-pci"]
        .into_iter()
        .filter(|module| needs_vfio && !host.system.modules.contains(&module.replace('-', "_")))
        .map(|name| Action::Module {
            name: name.to_owned(),
        })
        .collect();
    push(
        draft,
        "load vfio",
        "vfio-pci holds devices for machines and lets the IOMMU confine them",
        modules,
    );
    let takes_nvidia = vms
        .iter()
        .flat_map(|vm| &vm.gpus)
        .filter_map(|&gpu| host.device(gpu))
        .any(|gpu| gpu.driver.as_deref() == Some("nvidia"));
    let services: Vec<Action> = STOPPED
        .into_iter()
        .filter(|&service| {
            takes_nvidia
                && host
                    .system
                    .services
                    .iter()
                    .any(|running| running == service)
        })
        .map(|name| Action::Service {
            name: name.to_owned(),
        })
        .collect();
    push(
        draft,
        "stop services that hold GPUs",
        "taking a GPU from NVIDIA's driver hangs while somebody has it open",
        services,
    );
}

fn push(draft: &mut Draft, title: &str, reason: &str, actions: Vec<Action>) {
    if !actions.is_empty() {
        draft.steps.push(Step {
            title: title.to_owned(),
            reason: reason.to_owned(),
            class: Class::Runtime,
            actions,
        });
    }
}

fn huge_pages(host: &Host, vms: &[Vm], draft: &mut Draft) {
    let mut wanted: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for vm in vms {
        for cell in &vm.cells {
            let pages = cell.memory_kib / vm.page_kib.max(1);
            let sum = wanted.entry((cell.node, vm.page_kib)).or_default();
            *sum = sum.saturating_add(pages);
        }
    }
    let mut actions = Vec::new();
    for ((id, page_kib), pages) in wanted {
        let node = host.nodes.iter().find(|node| node.id == id);
        let pool = node.and_then(|node| node.pools.iter().find(|pool| pool.page_kib == page_kib));
        let (total, free) = pool.map_or((0, 0), |pool| (pool.total, pool.free));
        if free >= pages {
            continue;
        }
        actions.push(Action::Attribute {
            path: format!(
                "/sys/devices/system/node/node{id}/hugepages/hugepages-{page_kib}kB/nr_hugepages"
            ),
            from: total.to_string(),
            to: total.saturating_add(pages - free).to_string(),
            form: Form::Amount,
        });
    }
    push(
        draft,
        "reserve huge pages on the machines' nodes",
        "small pages cost time at each translation, and memory of another node at each access",
        actions,
    );
}

/// Devices change hands; then what depends on that.
pub(super) fn devices(host: &Host, request: &Request, vms: &[Vm], draft: &mut Draft) {
    for vm in vms {
        let mut actions = Vec::new();
        for &address in vm.gpus.iter().chain(&vm.companions) {
            actions.extend(rebind(host, address));
        }
        for function in vm.functions() {
            let is_new = super::network::is_made_anew(host, vms, function);
            let is_mlx4 = host
                .device(function.physical)
                .is_some_and(|physical| physical.driver.as_deref() == Some("mlx4_core"));
            match (is_new, is_mlx4) {
                // Those come with the next start.
                (true, true) => {}
                (true, false) => actions.extend(set_aside(None, "", function.address)),
                (false, _) => actions.extend(rebind(host, function.address)),
            }
        }
        push(
            draft,
            &format!("set the devices of {} aside", vm.name),
            "a machine can only be given what vfio-pci has; libvirt then has nothing to rebind and nothing to hang at",
            actions,
        );
    }
    if request.gpudirect {
        access(host, vms, draft);
    }
    interrupts(host, vms, draft);
    advice(host, vms, draft);
}

/// From whatever driver a device has to vfio-pci.
fn rebind(host: &Host, address: PciAddress) -> Vec<Action> {
    let device = host.device(address);
    let named = device
        .and_then(|device| device.driver_override.as_deref())
        .unwrap_or_default();
    set_aside(
        device.and_then(|device| device.driver.as_deref()),
        named,
        address,
    )
}

/// The override is set between drivers: with it set the old one would not take the device back.
fn set_aside(driver: Option<&str>, named: &str, device: PciAddress) -> Vec<Action> {
    const DRIVER: &str = "vfio-pci";
    let mut actions = Vec::new();
    if driver == Some(DRIVER) {
        return actions;
    }
    if let Some(driver) = driver {
        let driver = driver.to_owned();
        actions.push(Action::Unbind { device, driver });
    }
    if named != DRIVER {
        actions.push(Action::Attribute {
            path: format!("/sys/bus/pci/devices/{device}/driver_override"),
            from: named.to_owned(),
            to: DRIVER.to_owned(),
            form: Form::DriverName,
        });
    }
    let driver = DRIVER.to_owned();
    actions.push(Action::Probe { device, driver });
    actions
}

/// Lets translated requests go directly between a GPU and an adapter below one switch.
///
/// Only the ports between the two, and only that bit: what keeps machines apart stays on.
fn access(host: &Host, vms: &[Vm], draft: &mut Draft) {
    let mut ports: BTreeSet<PciAddress> = BTreeSet::new();
    for vm in vms {
        for gpu in vm.gpus.iter().filter_map(|&gpu| host.device(gpu)) {
            for adapter in vm
                .vfs
                .iter()
                .filter_map(|function| host.device(function.physical))
            {
                if host.locality(gpu, adapter) != Locality::Switch {
                    continue;
                }
                if adapter.ats.is_none() || gpu.ats.is_none() {
                    let (which, remedy) = match adapter.ats {
                        None => (
                            adapter,
                            format!(
                                ": mlxconfig -d {} set ATS_ENABLED=true, then restart the host",
                                adapter.address
                            ),
                        ),
                        Some(_) => (gpu, String::new()),
                    };
                    draft.notes.push(format!(
                        "{} has no ATS: GPUDirect goes up to the root complex and back, or not at all{remedy}",
                        which.address
                    ));
                    continue;
                }
                // What is above the switch that they share is not between them.
                let shared = host.switch(gpu);
                for device in [gpu, adapter] {
                    let below = device
                        .path
                        .iter()
                        .skip_while(|&&port| Some(port) != shared)
                        .filter_map(|&port| host.device(port));
                    ports.extend(
                        below
                            .filter(|port| port.port == Some(Port::Downstream))
                            .map(|port| port.address),
                    );
                }
            }
        }
    }
    let mut actions = Vec::new();
    for port in ports.into_iter().filter_map(|port| host.device(port)) {
        let Some(acs) = port.acs else { continue };
        if acs.capabilities & Acs::DIRECT_TRANSLATED == 0 {
            draft.notes.push(format!(
                "{} cannot let translated requests through (no ACS Direct Translated): GPUDirect goes up to the root complex",
                port.address
            ));
        } else if acs.redirects() && !acs.is_direct_translated() {
            actions.push(Action::Register {
                device: port.address,
                offset: acs.offset.saturating_add(Acs::CONTROL),
                mask: Acs::DIRECT_TRANSLATED,
                from: 0,
                to: Acs::DIRECT_TRANSLATED,
            });
        }
    }
    push(
        draft,
        "let GPUs and adapters below one switch talk directly",
        "redirected requests go up to the root complex; those that the IOMMU has translated (ATS) are safe to go straight, and \
         everything that keeps machines apart stays on",
        actions,
    );
}

/// Interrupts of the host off the machines' processors.
fn interrupts(host: &Host, vms: &[Vm], draft: &mut Draft) {
    let taken: BTreeSet<u32> = vms
        .iter()
        .flat_map(|vm| &vm.cells)
        .flat_map(|cell| cell.cpus.iter().copied())
        .collect();
    let kept: Vec<u32> = host
        .cpus
        .online
        .iter()
        .copied()
        .filter(|cpu| !taken.contains(cpu))
        .collect();
    if kept.is_empty() {
        if !vms.is_empty() {
            draft.obstacles.push(Obstacle::new(
                "no processor is left for the host",
                "leave it at least one core: host_cores = 1",
            ));
        }
        return;
    }
    let actions: Vec<Action> = host
        .interrupts
        .iter()
        .filter(|interrupt| interrupt.cpus.iter().any(|cpu| taken.contains(cpu)))
        .map(|interrupt| {
            let left: Vec<u32> = interrupt
                .cpus
                .iter()
                .copied()
                .filter(|cpu| !taken.contains(cpu))
                .collect();
            Action::Attribute {
                path: format!("/proc/irq/{}/smp_affinity_list", interrupt.number),
                from: list(&interrupt.cpus),
                to: list(if left.is_empty() { &kept } else { &left }),
                form: Form::Processors,
            }
        })
        .collect();
    if !actions.is_empty() {
        draft.notes.push(
            "irqbalance, where it runs, moves interrupts back: stop it, or name the machines' processors in IRQBALANCE_BANNED_CPULIST".to_owned(),
        );
    }
    push(
        draft,
        "move interrupts off the machines' processors",
        "each interrupt of the host on a machine's processor stops the machine for a moment",
        actions,
    );
}

/// What no step does and somebody should know.
fn advice(host: &Host, vms: &[Vm], draft: &mut Draft) {
    const WINDOW: u64 = 64 << 30;
    let gpus: Vec<&Device> = vms
        .iter()
        .flat_map(|vm| &vm.gpus)
        .filter_map(|&gpu| host.device(gpu))
        .collect();
    for gpu in &gpus {
        if !gpu.has_reset {
            draft.notes.push(format!("GPU {} cannot be reset by itself: after a crash of its machine the host may have to be restarted", gpu.address));
        }
        if gpu.partitions.iter().any(|part| part.starts_with("MIG")) {
            draft.notes.push(format!(
                "GPU {} is parted by MIG; the machine gets it whole, and parts it anew itself",
                gpu.address
            ));
        }
        if gpu.bars.iter().any(|bar| bar.bytes >= WINDOW) {
            draft.notes.push("the machines' firmware needs a large window for the GPUs' memory; `towline vm` computes it".to_owned());
        }
    }
    if !gpus.is_empty()
        && host
            .devices
            .iter()
            .any(|device| device.kind == Kind::NvSwitch)
    {
        draft.notes.push(
            "this host has NVSwitches, which stay with it: machines with fewer than all GPUs have NVLink only where the fabric \
             manager runs in shared NVSwitch mode (FABRIC_MODE=1) and activates their partition"
                .to_owned(),
        );
    }
    let header = host
        .devices
        .iter()
        .filter(|device| device.config == Seen::Header)
        .count();
    if header > 0 {
        draft.notes.push(
            "configuration spaces were not readable: ACS and ATS are unknown. Plan as root"
                .to_owned(),
        );
    }
    if !gpus.is_empty() && host.iommu.units.is_empty() {
        draft.notes.push("without an IOMMU at work groups are unknown: plan again after the restart, before anything else".to_owned());
    }
    if host
        .system
        .pci_stub_ids
        .iter()
        .any(|id| gpus.iter().any(|gpu| gpu.id() == *id))
    {
        draft.notes.push(
            "pci-stub takes GPUs at the start (pci-stub.ids); vfio-pci takes them from it"
                .to_owned(),
        );
    }
}
