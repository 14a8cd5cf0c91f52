//! Who needs a device: the console, file systems, routes, processes.

use std::collections::{BTreeMap, BTreeSet};

use crate::address::PciAddress;
use crate::host::{Device, Interface, Use};
use crate::root::Root;

/// Layers of device mapper and RAID below a file system; more than anybody stacks.
const MAX_LAYERS: usize = 16;

pub(super) fn find(root: &Root, devices: &mut [Device], interfaces: &[Interface]) {
    let mut uses = block_uses(root);
    for (address, holder) in processes(root, devices) {
        uses.entry(address).or_default().insert(holder);
    }
    for interface in interfaces {
        let Some(address) = interface.address else {
            continue;
        };
        let name = interface.name.clone();
        if interface.is_default_route {
            uses.entry(address)
                .or_default()
                .insert(Use::DefaultRoute { interface: name });
        } else if interface.is_up {
            uses.entry(address)
                .or_default()
                .insert(Use::InterfaceUp { interface: name });
        }
    }
    for device in devices {
        let found = uses.entry(device.address).or_default();
        if device.is_boot_vga {
            found.insert(Use::Console);
        }
        if let Some(sriov) = device.sriov.as_ref().filter(|sriov| sriov.count > 0) {
            found.insert(Use::VirtualFunctions { count: sriov.count });
        }
        device.uses = found.iter().cloned().collect();
    }
}

/// Mounted file systems and swap, by the functions that their disks hang on.
fn block_uses(root: &Root) -> BTreeMap<PciAddress, BTreeSet<Use>> {
    let mut uses: BTreeMap<PciAddress, BTreeSet<Use>> = BTreeMap::new();
    let mut add = |disk: &str, by: Use| {
        for address in functions_below(root, disk) {
            uses.entry(address).or_default().insert(by.clone());
        }
    };
    // "36 35 98:0 /subtree /mnt rw,noatime master:1 - ext3 /dev/root rw"
    for line in root
        .text("/proc/self/mountinfo")
        .unwrap_or_default()
        .lines()
    {
        let words: Vec<&str> = line.split(' ').collect();
        let (Some(&number), Some(&place)) = (words.get(2), words.get(4)) else {
            continue;
        };
        let source = words
            .iter()
            .position(|&word| word == "-")
            .and_then(|at| words.get(at.checked_add(2)?));
        let by = match place {
            "/" => Use::RootFileSystem,
            path => Use::Mounted {
                path: unescape(path),
            },
        };
        match root.link_name(&format!("/sys/dev/block/{number}")) {
            Some(disk) => add(&disk, by),
            // Some file systems (btrfs) have a number of their own.
            None => {
                if let Some(disk) = source.and_then(|source| source.strip_prefix("/dev/")) {
                    add(&resolve(root, disk), by);
                }
            }
        }
    }
    for line in root.text("/proc/swaps").unwrap_or_default().lines().skip(1) {
        if let Some(disk) = line
            .split_whitespace()
            .next()
            .and_then(|path| path.strip_prefix("/dev/"))
        {
            add(&resolve(root, disk), Use::Swap);
        }
    }
    uses
}

/// `/dev/mapper/NAME` and `/dev/disk/by-...` are links to the device.
fn resolve(root: &Root, disk: &str) -> String {
    root.link_name(&format!("/dev/{disk}"))
        .unwrap_or_else(|| disk.to_owned())
}

/// Spaces and the like in paths are written in octal.
fn unescape(path: &str) -> String {
    path.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\134", "\\")
}

/// The PCI functions that a disk, a partition or a volume made of such lies on.
fn functions_below(root: &Root, disk: &str) -> BTreeSet<PciAddress> {
    let mut found = BTreeSet::new();
    let mut layer = vec![disk.to_owned()];
    for _ in 0..MAX_LAYERS {
        let mut below = Vec::new();
        for name in &layer {
            let link = root
                .link(&format!("/sys/class/block/{name}"))
                .unwrap_or_default();
            // The last address of the way is the controller.
            if let Some(address) = link.rsplit('/').find_map(|part| part.parse().ok()) {
                found.insert(address);
            }
            // A partition's slaves are those of its disk.
            let whole = link.rsplit('/').nth(1).unwrap_or_default();
            for folder in [name.as_str(), whole] {
                if !folder.is_empty() {
                    below.extend(root.entries(&format!("/sys/class/block/{folder}/slaves")));
                }
            }
        }
        if below.is_empty() {
            break;
        }
        layer = below;
    }
    found
}

/// The device files of the functions, and the processes that have one open.
fn processes(root: &Root, devices: &[Device]) -> BTreeSet<(PciAddress, Use)> {
    let nodes = device_nodes(root, devices);
    let mut found = BTreeSet::new();
    for pid in root
        .entries("/proc")
        .iter()
        .filter_map(|name| name.parse::<u32>().ok())
    {
        // Without rights on a process its files are unknown; that would be one line per process among what was denied.
        let folder = format!("/proc/{pid}/fd");
        for fd in root.entries(&folder) {
            let Some(node) = root.link(&format!("{folder}/{fd}")) else {
                continue;
            };
            for &address in nodes.get(node.as_str()).into_iter().flatten() {
                let name = root.text(&format!("/proc/{pid}/comm")).unwrap_or_default();
                let node = node.clone();
                found.insert((address, Use::Process { pid, name, node }));
            }
        }
    }
    found
}

fn device_nodes(root: &Root, devices: &[Device]) -> BTreeMap<String, Vec<PciAddress>> {
    let mut nodes: BTreeMap<String, Vec<PciAddress>> = BTreeMap::new();
    let mut add = |node: String, address| nodes.entry(node).or_default().push(address);
    for device in devices {
        let address = device.address;
        if let Some(minor) = nvidia_minor(root, address) {
            add(format!("/dev/nvidia{minor}"), address);
        }
        // A group is open as a whole. Bridges of it are not given away.
        if let Some(group) = device.group.filter(|_| device.is_set_aside()) {
            add(format!("/dev/vfio/{group}"), address);
            add(format!("/dev/vfio/noiommu-{group}"), address);
        }
        let folder = format!("/sys/bus/pci/devices/{address}");
        for name in root.entries(&format!("{folder}/vfio-dev")) {
            add(format!("/dev/vfio/devices/{name}"), address);
        }
        for name in root.entries(&format!("{folder}/drm")) {
            add(format!("/dev/dri/{name}"), address);
        }
        for class in ["infiniband_verbs", "infiniband_mad"] {
            for name in root.entries(&format!("{folder}/{class}")) {
                add(format!("/dev/infiniband/{name}"), address);
            }
        }
        for name in root.entries(&format!("{folder}/nvme")) {
            add(format!("/dev/{name}"), address);
        }
    }
    for disk in root.entries("/sys/class/block") {
        for address in functions_below(root, &disk) {
            add(format!("/dev/{disk}"), address);
        }
    }
    nodes
}

/// The number that NVIDIA's driver gave a GPU.
pub(super) fn nvidia_minor(root: &Root, address: PciAddress) -> Option<u32> {
    let text = root.text(&format!("/proc/driver/nvidia/gpus/{address}/information"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("Device Minor:")?.trim().parse().ok())
}
