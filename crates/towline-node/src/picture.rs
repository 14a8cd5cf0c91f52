//! A host as a picture: what it has, and the tree of its devices.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::address::PciAddress;
use crate::config::{Acs, Port};
use crate::host::{Device, Host, Kind};
use crate::root::list;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The picture of a host. Functions that nobody gives to a virtual machine are left out unless `all` are asked for.
#[must_use]
pub fn picture(host: &Host, all: bool) -> String {
    let mut text = String::new();
    summary(&mut text, host);
    let shown = shown(host, all);
    let mut roots: BTreeMap<(u32, &str), Vec<&Device>> = BTreeMap::new();
    for device in host
        .devices
        .iter()
        .filter(|device| shown.contains(&device.address))
    {
        roots
            .entry((device.address.domain(), &device.root))
            .or_default()
            .push(device);
    }
    for ((_, root), devices) in roots {
        let node = devices.iter().find_map(|device| device.node);
        let node = node
            .map(|node| format!(" (node {node})"))
            .unwrap_or_default();
        let _ = writeln!(text, "{root}{node}");
        branch(&mut text, host, &devices, &[], "");
    }
    text
}

fn summary(text: &mut String, host: &Host) {
    let system = &host.system;
    let _ = writeln!(
        text,
        "{}: {} on {}",
        system.name, system.kernel, system.architecture
    );
    let cpus = &host.cpus;
    let packages: BTreeSet<u32> = cpus.cores.iter().map(|core| core.package).collect();
    let isolated = match cpus.isolated.as_slice() {
        [] => String::new(),
        isolated => format!(", {} isolated", list(isolated)),
    };
    let _ = writeln!(
        text,
        "processors: {} socket{}, {} cores, {} threads{isolated}{}{}",
        packages.len(),
        if packages.len() == 1 { "" } else { "s" },
        cpus.cores.len(),
        cpus.online.len(),
        if cpus.model.is_empty() { "" } else { ", " },
        cpus.model
    );
    for node in &host.nodes {
        let _ = write!(
            text,
            "node {}: processors {}, {} GiB of memory, {} free",
            node.id,
            list(&node.cpus),
            node.memory_kib >> 20,
            node.free_kib >> 20
        );
        for pool in &node.pools {
            let _ = write!(
                text,
                ", {} of {} pages of {} free",
                pool.free,
                pool.total,
                size(pool.page_kib << 10)
            );
        }
        text.push('\n');
    }
    let iommu = &host.iommu;
    let state = match (iommu.units.len(), iommu.in_firmware) {
        (0, Some(true)) => "off, though the firmware tells of one".to_owned(),
        (0, Some(false)) => "none that the firmware tells of".to_owned(),
        (0, None) => "none at work".to_owned(),
        (units, _) => {
            let remaps = match iommu.remaps_interrupts {
                Some(true) => "remaps interrupts",
                Some(false) => "does not remap interrupts",
                None => "remapping of interrupts unknown",
            };
            format!("{units} units, {} groups, {remaps}", iommu.groups.len())
        }
    };
    let _ = writeln!(text, "IOMMU: {state}");
    let mut guests = vec![if system.has_kvm { "KVM" } else { "no /dev/kvm" }];
    guests.extend(system.is_guest.then_some("is a guest itself"));
    guests.extend((system.nested == Some(true)).then_some("guests may have guests"));
    let _ = writeln!(text, "virtual machines: {}", guests.join(", "));
    for rdma in &host.rdma {
        for port in &rdma.ports {
            let _ = writeln!(
                text,
                "{} port {}: {} {}, {}, guid {}, lid {}, subnet manager {}, partitions {}",
                rdma.name,
                port.number,
                port.link_layer,
                port.state,
                port.rate,
                port.guid,
                port.lid,
                if port.subnet_manager == 0 {
                    "none".to_owned()
                } else {
                    format!("at {}", port.subnet_manager)
                },
                port.partition_keys.join(" ")
            );
        }
    }
    if !host.denied.is_empty() {
        let _ = writeln!(
            text,
            "not readable for this user: {} files (see --json)",
            host.denied.len()
        );
    }
    let cut: usize = host
        .devices
        .iter()
        .filter(|device| device.config == crate::config::Seen::Header)
        .count();
    if cut > 0 {
        let _ = writeln!(
            text,
            "configuration spaces cut short: {cut}; ACS, ATS and kinds of ports are unknown there (root sees them)"
        );
    }
}

/// The functions that matter, and the ports above them.
fn shown(host: &Host, all: bool) -> BTreeSet<PciAddress> {
    let mut shown = BTreeSet::new();
    for device in &host.devices {
        let matters = !matches!(device.kind, Kind::Bridge | Kind::Other) || !device.uses.is_empty();
        if all || matters {
            shown.insert(device.address);
            shown.extend(&device.path);
        }
    }
    // Who shares a group with one that matters goes along with it.
    for group in &host.iommu.groups {
        let matters = |&address: &PciAddress| {
            shown.contains(&address)
                && host
                    .device(address)
                    .is_some_and(|device| device.kind != Kind::Bridge)
        };
        if group.devices.iter().any(matters) {
            shown.extend(&group.devices);
        }
    }
    shown
}

/// The devices right below `path`, each with what is below it.
fn branch(text: &mut String, host: &Host, devices: &[&Device], path: &[PciAddress], indent: &str) {
    let here: Vec<&&Device> = devices
        .iter()
        .filter(|device| device.path == path)
        .collect();
    for (index, device) in here.iter().enumerate() {
        let (corner, below) = match index.checked_add(1) == Some(here.len()) {
            true => ("└─ ", "   "),
            false => ("├─ ", "│  "),
        };
        let _ = writeln!(
            text,
            "{indent}{corner}{} {}",
            device.address,
            describe(host, device)
        );
        let mut path = path.to_vec();
        path.push(device.address);
        branch(text, host, devices, &path, &format!("{indent}{below}"));
    }
}

fn describe(host: &Host, device: &Device) -> String {
    let mut parts = vec![name(host, device)];
    if let Some(group) = device.group {
        parts.push(format!("group {group}"));
    }
    if let Some(acs) = device.acs.filter(|_| device.kind == Kind::Bridge) {
        parts.push(access(acs));
    } else if device.kind == Kind::Bridge && device.config == crate::config::Seen::Full {
        // Nothing passes from one device to another within an upstream port.
        if device.port != Some(Port::Upstream) {
            parts.push("no ACS".to_owned());
        }
    }
    if let Some(driver) = &device.driver {
        parts.push(driver.clone());
    } else if device.kind != Kind::Bridge {
        parts.push("no driver".to_owned());
    }
    let largest = device.bars.iter().map(|bar| bar.bytes).max().unwrap_or(0);
    if device.kind == Kind::Gpu && largest >= MIB {
        parts.push(format!("BAR {}", size(largest)));
    }
    if let Some(ats) = device.ats {
        parts.push(format!("ATS {}", if ats.enabled { "on" } else { "off" }));
    }
    if let Some(link) = device.link.as_ref().filter(|_| device.kind != Kind::Bridge) {
        let speed = link.speed.split(' ').next().unwrap_or_default();
        let cut = match link.width < link.max_width || link.speed != link.max_speed {
            true => format!(
                " of {} x{}",
                link.max_speed.split(' ').next().unwrap_or_default(),
                link.max_width
            ),
            false => String::new(),
        };
        parts.push(format!("{speed} GT/s x{}{cut}", link.width));
    }
    if let Some(sriov) = &device.sriov {
        parts.push(format!(
            "{} of {} virtual functions",
            sriov.count, sriov.total
        ));
    }
    parts.extend(device.interfaces.iter().chain(&device.rdma).cloned());
    parts.extend(device.partitions.iter().cloned());
    if !device.uses.is_empty() {
        let uses: Vec<String> = device.uses.iter().map(ToString::to_string).collect();
        parts.push(format!("in use: {}", uses.join("; ")));
    }
    parts.join(", ")
}

/// What a function is, with its vendor's number.
pub(crate) fn name(host: &Host, device: &Device) -> String {
    let kind = match device.kind {
        Kind::Bridge => match device.port {
            Some(Port::Root) => "root port",
            Some(Port::Upstream) => "switch",
            Some(Port::Downstream) => "switch port",
            _ => "bridge",
        },
        Kind::Display => "console",
        Kind::Gpu => "GPU",
        Kind::Network => match (device.physical_function, is_infiniband(host, device)) {
            (None, true) => "InfiniBand adapter",
            (None, false) => "Ethernet adapter",
            (Some(_), true) => "InfiniBand function",
            (Some(_), false) => "Ethernet function",
        },
        Kind::NvSwitch => "NVSwitch",
        Kind::Storage => "disk controller",
        Kind::Other => "device",
    };
    format!("{kind} {}", device.id())
}

/// By the class of the function or the link of its RDMA ports: an adapter for both has either.
pub(crate) fn is_infiniband(host: &Host, device: &Device) -> bool {
    let mut ports = host
        .rdma
        .iter()
        .filter(|rdma| rdma.address == Some(device.address))
        .flat_map(|rdma| &rdma.ports)
        .peekable();
    match ports.peek() {
        Some(_) => ports.any(|port| port.link_layer == "InfiniBand"),
        None => device.class >> 8 == 0x0207,
    }
}

fn access(acs: Acs) -> String {
    let bits = [
        (Acs::SOURCE_VALIDATION, "SV"),
        (Acs::REQUEST_REDIRECT, "RR"),
        (Acs::COMPLETION_REDIRECT, "CR"),
        (Acs::UPSTREAM_FORWARDING, "UF"),
        (Acs::DIRECT_TRANSLATED, "DT"),
    ];
    let on: Vec<&str> = bits
        .iter()
        .filter(|(bit, _)| acs.control & bit != 0)
        .map(|&(_, name)| name)
        .collect();
    match on.is_empty() {
        true => "ACS off".to_owned(),
        false => format!("ACS {}", on.join(" ")),
    }
}

/// A size in the largest unit that it is whole in.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= GIB && bytes.is_multiple_of(GIB) => format!("{} GiB", bytes / GIB),
        _ if bytes >= MIB && bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        _ => format!("{} KiB", bytes >> 10),
    }
}
