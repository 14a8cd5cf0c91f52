//! The PCI functions, as `/sys/bus/pci/devices` has them.

use crate::address::PciAddress;
use crate::config::{Config, SriovRegisters};
use crate::host::{Bar, Device, Kind, Link, Sriov};
use crate::root::Root;

const DEVICES: &str = "/sys/bus/pci/devices";

/// A function has six windows; the lines after them are its ROM and those of its virtual functions or of a bridge.
const BARS: usize = 6;
/// Flags of the kernel's resources (`include/linux/ioport.h`).
const RESOURCE_MEMORY: u64 = 0x200;
const RESOURCE_64_BIT: u64 = 0x0010_0000;

pub(super) fn devices(root: &Root) -> Vec<Device> {
    let mut devices: Vec<Device> = root
        .entries(DEVICES)
        .iter()
        .filter_map(|name| Some(device(root, name.parse().ok()?)))
        .collect();
    devices.sort_by_key(|device| device.address);
    devices
}

fn device(root: &Root, address: PciAddress) -> Device {
    let file = |name: &str| format!("{DEVICES}/{address}/{name}");
    let (complex, path) = ancestry(root, address);
    let config = Config::parse(&root.bytes(&file("config")).unwrap_or_default());
    let class = root.hexadecimal(&file("class")).unwrap_or(0);
    let number = |name: &str| {
        root.hexadecimal(&file(name))
            .and_then(|id| u16::try_from(id).ok())
            .unwrap_or(0)
    };
    let vendor = number("vendor");
    Device {
        address,
        path,
        root: complex,
        class,
        vendor,
        device: number("device"),
        kind: kind(class, vendor),
        driver: root.link_name(&file("driver")),
        driver_override: root
            .text(&file("driver_override"))
            .filter(|name| !name.is_empty() && name != "(null)"),
        // -1: no node.
        node: root.value(&file("numa_node")),
        group: root
            .link_name(&file("iommu_group"))
            .and_then(|group| group.parse().ok()),
        is_boot_vga: root.text(&file("boot_vga")).as_deref() == Some("1"),
        bars: bars(&root.text(&file("resource")).unwrap_or_default()),
        link: link(root, &file("")),
        config: config.seen,
        port: config.port,
        acs: config.acs,
        ats: config.ats,
        sriov: sriov(root, &file(""), config.sriov),
        physical_function: root
            .link_name(&file("physfn"))
            .and_then(|name| name.parse().ok()),
        has_reset: root.exists(&file("reset")),
        interfaces: Vec::new(),
        rdma: Vec::new(),
        nvme: root.entries(&file("nvme")).into_iter().next(),
        partitions: partitions(root, address),
        uses: Vec::new(),
    }
}

/// The root complex and the ports above, from where the function's folder lies:
/// `../../../devices/pci0000:17/0000:17:01.0/0000:18:00.0`.
fn ancestry(root: &Root, address: PciAddress) -> (String, Vec<PciAddress>) {
    let link = root
        .link(&format!("{DEVICES}/{address}"))
        .unwrap_or_default();
    let complex = link
        .split('/')
        .find(|part| part.starts_with("pci") && part.contains(':'));
    let mut path: Vec<PciAddress> = link
        .split('/')
        .filter_map(|part| part.parse().ok())
        .collect();
    path.retain(|&port| port != address);
    (complex.unwrap_or_default().to_owned(), path)
}

fn kind(class: u32, vendor: u16) -> Kind {
    const NVIDIA: u16 = 0x10de;
    const AMD: u16 = 0x1002;
    match (class >> 16, class >> 8 & 0xff) {
        (0x01, _) => Kind::Storage,
        (0x02, _) => Kind::Network,
        // VGA: management controllers of servers have one too.
        (0x03, 0x00) if vendor != NVIDIA && vendor != AMD => Kind::Display,
        (0x03, _) => Kind::Gpu,
        (0x06, 0x80) if vendor == NVIDIA => Kind::NvSwitch,
        (0x06, 0x04 | 0x09) => Kind::Bridge,
        // Processing accelerators.
        (0x12, _) => Kind::Gpu,
        _ => Kind::Other,
    }
}

/// Lines of `0xSTART 0xEND 0xFLAGS`.
fn bars(text: &str) -> Vec<Bar> {
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    text.lines()
        .take(BARS)
        .zip(0..)
        .filter_map(|(line, index)| {
            let mut words = line.split_whitespace().map(number);
            let (start, end, flags) = (words.next()??, words.next()??, words.next()??);
            (end > start && flags & RESOURCE_MEMORY != 0).then(|| Bar {
                index,
                bytes: (end - start).saturating_add(1),
                is_64_bit: flags & RESOURCE_64_BIT != 0,
            })
        })
        .collect()
}

fn link(root: &Root, folder: &str) -> Option<Link> {
    let file = |name: &str| format!("{folder}{name}");
    Some(Link {
        speed: root.text(&file("current_link_speed"))?,
        width: root.value(&file("current_link_width"))?,
        max_speed: root.text(&file("max_link_speed"))?,
        max_width: root.value(&file("max_link_width"))?,
    })
}

fn sriov(root: &Root, folder: &str, registers: Option<SriovRegisters>) -> Option<Sriov> {
    let file = |name: &str| format!("{folder}{name}");
    let total = root
        .value(&file("sriov_totalvfs"))
        .or(registers.map(|found| found.total.into()))?;
    Some(Sriov {
        total,
        count: root
            .value(&file("sriov_numvfs"))
            .or(registers.map(|found| found.count.into()))
            .unwrap_or(0),
        offset: root
            .value(&file("sriov_offset"))
            .or(registers.map(|found| found.offset.into())),
        stride: root
            .value(&file("sriov_stride"))
            .or(registers.map(|found| found.stride.into())),
        // The file has no `0x`, unlike others.
        device: root
            .text(&file("sriov_vf_device"))
            .and_then(|text| u16::from_str_radix(&text, 16).ok())
            .or(registers.map(|found| found.device)),
        autoprobe: root.text(&file("sriov_drivers_autoprobe")).as_deref() != Some("0"),
        functions: root
            .entries(folder)
            .iter()
            .filter(|name| name.starts_with("virtfn"))
            .filter_map(|name| root.link_name(&file(name))?.parse().ok())
            .collect(),
    })
}

/// What hints that a GPU is or can be parted.
fn partitions(root: &Root, address: PciAddress) -> Vec<String> {
    let mut found: Vec<String> = root
        .entries(&format!("{DEVICES}/{address}/mdev_supported_types"))
        .into_iter()
        .map(|name| format!("vGPU {name}"))
        .collect();
    if root.exists(&format!("{DEVICES}/{address}/nvidia")) {
        // NVIDIA's vGPU driver on SR-IOV GPUs has this folder instead of mediated devices.
        found.push("vGPU".to_owned());
    }
    if let Some(minor) = crate::inspect::uses::nvidia_minor(root, address)
        && root.exists(&format!("/proc/driver/nvidia/capabilities/gpu{minor}/mig"))
    {
        let instances = root
            .entries(&format!("/proc/driver/nvidia/capabilities/gpu{minor}/mig"))
            .iter()
            .filter(|name| name.starts_with("gi"))
            .count();
        found.push(format!("MIG ({instances} instances)"));
    }
    found
}
