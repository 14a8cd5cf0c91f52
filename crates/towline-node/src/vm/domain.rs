//! libvirt's XML of a machine.

use super::layout::{Layout, RootPort, Slot, TooManyBuses, layout};
use super::xml::Element;
use super::{CHASSIS_TAG, PORT_NAME, PORTS, Settings, VSOCK_PORT};
use crate::address::PciAddress;
use crate::host::Host;
use crate::plan::{Vm, management_mac};
use crate::root::list;

/// Above this, x2APIC and with it an IOMMU for interrupts are needed.
const MAX_XAPIC_CPUS: u32 = 255;
/// GPUs may share a GPUDirect clique of 4 bits.
const MAX_CLIQUES: usize = 16;
const NVIDIA: u16 = 0x10de;

/// The domain of a machine: for KVM, with its devices not managed by libvirt.
///
/// # Errors
///
/// When it has more devices than PCI can number.
pub fn domain(host: &Host, vm: &Vm, settings: &Settings) -> Result<String, TooManyBuses> {
    let layout = layout(host, vm)?;
    let is_arm = host.system.architecture == "aarch64";
    let cpus: u32 = vm
        .cells
        .iter()
        .map(|cell| u32::try_from(cell.cpus.len()).unwrap_or(u32::MAX))
        .sum();
    let memory_kib: u64 = vm.cells.iter().map(|cell| cell.memory_kib).sum();
    let mut os = Element::new("os");
    if settings.uefi {
        os = os.with("firmware", "efi");
    }
    let (architecture, machine) = if is_arm {
        ("aarch64", "virt")
    } else {
        ("x86_64", "q35")
    };
    let os = os.child(
        Element::new("type")
            .with("arch", architecture)
            .with("machine", machine)
            .text("hvm"),
    );
    let os = match settings.vsock {
        true => os.child(Element::new("smbios").with("mode", "sysinfo")),
        false => os,
    };
    let mut domain = Element::new("domain")
        .with("type", "kvm")
        .with("xmlns:qemu", "http://libvirt.org/schemas/domain/qemu/1.0")
        .child(Element::new("name").text(&vm.name))
        .child(Element::new("memory").with("unit", "KiB").text(memory_kib))
        .child(memory_backing(vm))
        .child(Element::new("vcpu").with("placement", "static").text(cpus))
        .child(pinning(vm))
        .child(numa(vm))
        .children(settings.vsock.then(chassis))
        .child(os)
        .child(features(is_arm, cpus))
        .child(processor(host, vm, cpus))
        .child(clock(is_arm))
        .child(Element::new("on_poweroff").text("destroy"))
        .child(Element::new("on_reboot").text("restart"))
        .child(Element::new("on_crash").text("destroy"))
        .child(devices(host, vm, settings, &layout, is_arm, cpus));
    let window = window_mib(host, vm);
    if settings.uefi && window > 0 && !is_arm {
        // OVMF takes the size of its 64-bit window from here.
        let argument = |value: String| Element::new("qemu:arg").with("value", value);
        domain = domain.child(Element::new("qemu:commandline").children([
            argument("-fw_cfg".to_owned()),
            argument(format!("name=opt/ovmf/X-PciMmio64Mb,string={window}")),
        ]));
    }
    let cliques = cliques(host, &layout);
    if !cliques.is_empty() {
        domain = domain.child(Element::new("qemu:override").children(cliques));
    }
    Ok(domain.render())
}

/// What tells the machine that its host's server is to be found over vsock.
fn chassis() -> Element {
    let tag = format!("{CHASSIS_TAG}vsock:host:{VSOCK_PORT}");
    Element::new("sysinfo")
        .with("type", "smbios")
        .child(Element::new("chassis").child(Element::new("entry").with("name", "asset").text(tag)))
}

fn memory_backing(vm: &Vm) -> Element {
    let cells: Vec<u32> = (0..).take(vm.cells.len()).collect();
    let page = Element::new("page")
        .with("size", vm.page_kib)
        .with("unit", "KiB")
        .with("nodeset", list(&cells));
    Element::new("memoryBacking")
        .child(Element::new("hugepages").child(page))
        .child(Element::new("nosharepages"))
        .child(Element::new("locked"))
}

fn pinning(vm: &Vm) -> Element {
    let cpus = vm.cells.iter().flat_map(|cell| &cell.cpus);
    let pins = (0_u32..).zip(cpus).map(|(number, cpu)| {
        Element::new("vcpupin")
            .with("vcpu", number)
            .with("cpuset", cpu)
    });
    let mut host_cpus: Vec<u32> = vm
        .cells
        .iter()
        .flat_map(|cell| cell.host_cpus.iter().copied())
        .collect();
    host_cpus.sort_unstable();
    host_cpus.dedup();
    let tune = Element::new("cputune").children(pins);
    match host_cpus.is_empty() {
        true => tune,
        false => tune.child(Element::new("emulatorpin").with("cpuset", list(&host_cpus))),
    }
}

fn numa(vm: &Vm) -> Element {
    let mut nodes: Vec<u32> = vm.cells.iter().map(|cell| cell.node).collect();
    nodes.sort_unstable();
    let cells = (0_u32..).zip(&vm.cells).map(|(number, cell)| {
        Element::new("memnode")
            .with("cellid", number)
            .with("mode", "strict")
            .with("nodeset", cell.node)
    });
    Element::new("numatune")
        .child(
            Element::new("memory")
                .with("mode", "strict")
                .with("nodeset", list(&nodes)),
        )
        .children(cells)
}

fn features(is_arm: bool, cpus: u32) -> Element {
    let features = Element::new("features").child(Element::new("acpi"));
    match is_arm {
        true => features.child(Element::new("gic").with("version", "3")),
        false if cpus > MAX_XAPIC_CPUS => features
            .child(Element::new("apic"))
            .child(Element::new("ioapic").with("driver", "qemu"))
            .child(Element::new("pmu").with("state", "on")),
        false => features
            .child(Element::new("apic"))
            .child(Element::new("pmu").with("state", "on")),
    }
}

fn processor(host: &Host, vm: &Vm, cpus: u32) -> Element {
    let mut cpu = Element::new("cpu")
        .with("mode", "host-passthrough")
        .with("check", "none");
    let threads: Vec<u32> = vm.cells.iter().map(|cell| cell.threads).collect();
    let first = threads.first().copied().unwrap_or(1).max(1);
    let is_even = vm.cells.windows(2).all(|pair| match pair {
        [a, b] => a.cpus.len() == b.cpus.len() && a.threads == b.threads,
        _ => true,
    });
    // Threads and sockets are told only where all cells are alike: the product has to be the number of processors.
    let (sockets, threads) = match is_even {
        true => (u32::try_from(vm.cells.len()).unwrap_or(1).max(1), first),
        false => (1, 1),
    };
    let cores = cpus / sockets / threads;
    cpu = cpu.child(
        Element::new("topology")
            .with("sockets", sockets)
            .with("dies", 1)
            .with("cores", cores)
            .with("threads", threads),
    );
    if host.system.architecture != "aarch64" {
        cpu = cpu
            .child(Element::new("cache").with("mode", "passthrough"))
            .child(Element::new("maxphysaddr").with("mode", "passthrough"));
    }
    let mut start = 0_u32;
    let cells = (0_u32..).zip(&vm.cells).map(|(number, cell)| {
        let numbers: Vec<u32> = (start..).take(cell.cpus.len()).collect();
        start = start.saturating_add(u32::try_from(cell.cpus.len()).unwrap_or(0));
        let element = Element::new("cell")
            .with("id", number)
            .with("cpus", list(&numbers))
            .with("memory", cell.memory_kib)
            .with("unit", "KiB");
        match distances(host, vm, cell.node) {
            Some(distances) => element.child(distances),
            None => element,
        }
    });
    let cells: Vec<Element> = cells.collect();
    cpu.child(Element::new("numa").children(cells))
}

/// As far as the host's nodes are.
fn distances(host: &Host, vm: &Vm, node: u32) -> Option<Element> {
    if vm.cells.len() < 2 {
        return None;
    }
    let from = host.nodes.iter().find(|known| known.id == node)?;
    let siblings: Option<Vec<Element>> = (0_u32..)
        .zip(&vm.cells)
        .map(|(number, cell)| {
            let position = host.nodes.iter().position(|known| known.id == cell.node)?;
            let distance = from.distances.get(position)?;
            Some(
                Element::new("sibling")
                    .with("id", number)
                    .with("value", distance),
            )
        })
        .collect();
    Some(Element::new("distances").children(siblings?))
}

/// Timers that cost no exits.
fn clock(is_arm: bool) -> Element {
    let timer = |name: &str| Element::new("timer").with("name", name);
    let clock = Element::new("clock").with("offset", "utc");
    match is_arm {
        true => clock,
        false => clock
            .child(timer("rtc").with("tickpolicy", "catchup"))
            .child(timer("pit").with("tickpolicy", "delay"))
            .child(timer("hpet").with("present", "no"))
            .child(timer("tsc").with("present", "yes").with("mode", "native"))
            .child(timer("kvmclock").with("present", "yes")),
    }
}

fn devices(
    host: &Host,
    vm: &Vm,
    settings: &Settings,
    layout: &Layout,
    is_arm: bool,
    cpus: u32,
) -> Element {
    let disk = |file: String, device: &str, format: &str, target: &str, bus: &str| {
        let disk = Element::new("disk")
            .with("type", "file")
            .with("device", device)
            .child(
                Element::new("driver")
                    .with("name", "qemu")
                    .with("type", format),
            )
            .child(Element::new("source").with("file", file))
            .child(Element::new("target").with("dev", target).with("bus", bus));
        match device {
            "cdrom" => disk.child(Element::new("readonly")),
            _ => disk,
        }
    };
    let images = settings.images.trim_end_matches('/');
    let mac = Element::new("mac").with("address", management_mac(&host.system.name, &vm.name));
    let interface = match &settings.bridge {
        Some(bridge) => Element::new("interface")
            .with("type", "bridge")
            .child(mac)
            .child(Element::new("source").with("bridge", bridge)),
        None => Element::new("interface")
            .with("type", "network")
            .child(mac)
            .child(Element::new("source").with("network", "default")),
    };
    let mut devices = Element::new("devices")
        .child(root(host, vm))
        .children(controllers(layout))
        .child(disk(
            format!("{images}/{}.qcow2", vm.name),
            "disk",
            "qcow2",
            "vda",
            "virtio",
        ))
        .child(disk(
            format!("{images}/{}-seed.iso", vm.name),
            "cdrom",
            "raw",
            "sda",
            "sata",
        ))
        .child(interface.child(Element::new("model").with("type", "virtio")))
        .child(Element::new("serial").with("type", "pty"))
        .child(Element::new("console").with("type", "pty"))
        .children((0..PORTS).map(|number| port(&settings.socket, number)))
        .child(
            Element::new("rng").with("model", "virtio").child(
                Element::new("backend")
                    .with("model", "random")
                    .text("/dev/urandom"),
            ),
        )
        .child(Element::new("memballoon").with("model", "none"));
    if cpus > MAX_XAPIC_CPUS && !is_arm {
        devices = devices.child(
            Element::new("iommu").with("model", "intel").child(
                Element::new("driver")
                    .with("intremap", "on")
                    .with("eim", "on"),
            ),
        );
    }
    if settings.vsock {
        let cid = Element::new("cid").with("auto", "yes");
        devices = devices.child(Element::new("vsock").with("model", "virtio").child(cid));
    }
    devices.children(hostdevs(layout))
}

/// A port to the host's server, whether that is there yet or not. The socket is everybody's, and stays so: libvirt would make it one
/// machine's, and start none without it.
fn port(socket: &str, number: u32) -> Element {
    let label = Element::new("seclabel")
        .with("model", "dac")
        .with("relabel", "no");
    let reconnect = Element::new("reconnect")
        .with("enabled", "yes")
        .with("timeout", 1);
    Element::new("channel")
        .with("type", "unix")
        .child(
            Element::new("source")
                .with("mode", "connect")
                .with("path", socket)
                .child(reconnect)
                .child(label),
        )
        .child(
            Element::new("target")
                .with("type", "virtio")
                .with("name", format!("{PORT_NAME}.{number}")),
        )
}

/// The first root bus, with room for large memory windows.
fn root(host: &Host, vm: &Vm) -> Element {
    let root = Element::new("controller")
        .with("type", "pci")
        .with("index", 0)
        .with("model", "pcie-root");
    match window_mib(host, vm) {
        0 => root,
        mib => root.child(
            Element::new("pcihole64")
                .with("unit", "KiB")
                .text(mib << 10),
        ),
    }
}

/// The window that all 64-bit memory of the devices fits into: each size a power of two, and as much again for alignment.
///
/// 0: what firmware has anyway is enough.
pub(super) fn window_mib(host: &Host, vm: &Vm) -> u64 {
    const USUAL_MIB: u64 = 32 << 10;
    let devices = vm
        .gpus
        .iter()
        .chain(&vm.companions)
        .filter_map(|&address| host.device(address));
    let bytes: u64 = devices
        .flat_map(|device| &device.bars)
        .filter(|bar| bar.is_64_bit)
        .map(|bar| bar.bytes.checked_next_power_of_two().unwrap_or(bar.bytes))
        .fold(0, u64::saturating_add);
    let mib = bytes
        .saturating_mul(2)
        .checked_next_power_of_two()
        .unwrap_or(u64::MAX)
        >> 20;
    if mib > USUAL_MIB { mib } else { 0 }
}

/// The controllers in the order of their numbers, from 1.
fn controllers(layout: &Layout) -> Vec<Element> {
    let mut made: Vec<Element> = Vec::new();
    let mut add =
        |model: &'static str, place: Option<(usize, usize)>, target: Option<Element>| -> usize {
            let index = made.len() + 1;
            let mut element = Element::new("controller")
                .with("type", "pci")
                .with("index", index)
                .with("model", model);
            if let Some(target) = target {
                element = element.child(target);
            }
            if let Some((bus, slot)) = place {
                element = element.child(address(bus, slot, 0));
            }
            made.push(element);
            index
        };
    // libvirt's slots of an expander and of a switch's inner bus count from 0.
    for expander in &layout.expanders {
        let target = Element::new("target").with("busNr", expander.bus);
        let target = match expander.cell {
            Some(cell) => target.child(Element::new("node").text(cell)),
            None => target,
        };
        let bus = add("pcie-expander-bus", None, Some(target));
        for (slot, port) in expander.ports.iter().enumerate() {
            let root_port = add("pcie-root-port", Some((bus, slot)), None);
            if let RootPort::Switch { slots, .. } = port {
                let upstream = add("pcie-switch-upstream-port", Some((root_port, 0)), None);
                for slot in 0..slots.len() {
                    add("pcie-switch-downstream-port", Some((upstream, slot)), None);
                }
            }
        }
    }
    made
}

/// The devices, each on the controller that was made for its slot.
fn hostdevs(layout: &Layout) -> Vec<Element> {
    let mut elements = Vec::new();
    let mut index = 0;
    for port in layout.expanders.iter().flat_map(|expander| {
        let first = expander.ports.first();
        expander
            .ports
            .iter()
            .map(move |port| (port, first.is_some_and(|first| std::ptr::eq(first, port))))
    }) {
        let (port, is_first) = port;
        // The expander itself, then the root port.
        index += if is_first { 2 } else { 1 };
        match port {
            RootPort::Device(slot) => elements.extend(hostdev(slot, index)),
            RootPort::Switch { slots, .. } => {
                index += 1;
                for slot in slots {
                    index += 1;
                    elements.extend(hostdev(slot, index));
                }
            }
        }
    }
    elements
}

fn hostdev(slot: &Slot, controller: usize) -> Vec<Element> {
    let source = |address: PciAddress| {
        Element::new("address")
            .with("domain", format!("{:#06x}", address.domain()))
            .with("bus", format!("{:#04x}", address.bus()))
            .with("slot", format!("{:#04x}", address.device()))
            .with("function", format!("{:#x}", address.function()))
    };
    slot.functions
        .iter()
        .map(|&(function, host)| {
            let place = address(controller, 0, function);
            let place = match slot.functions.len() > 1 && function == 0 {
                true => place.with("multifunction", "on"),
                false => place,
            };
            Element::new("hostdev")
                .with("mode", "subsystem")
                .with("type", "pci")
                .with("managed", "no")
                .child(Element::new("driver").with("name", "vfio"))
                .child(Element::new("source").child(source(host)))
                .child(Element::new("alias").with("name", alias(host)))
                .child(place)
        })
        .collect()
}

fn address(bus: usize, slot: usize, function: u8) -> Element {
    Element::new("address")
        .with("type", "pci")
        .with("domain", "0x0000")
        .with("bus", format!("{bus:#04x}"))
        .with("slot", format!("{slot:#04x}"))
        .with("function", format!("{function:#x}"))
}

/// libvirt lets users name devices that start with `ua-`.
fn alias(host: PciAddress) -> String {
    format!("ua-{}", host.to_string().replace([':', '.'], "-"))
}

/// GPUs of NVIDIA below one switch may talk directly; the driver in the machine believes that only when told.
fn cliques(host: &Host, layout: &Layout) -> Vec<Element> {
    let mut switches: Vec<PciAddress> = Vec::new();
    let mut elements = Vec::new();
    for (switch, slot) in layout.slots() {
        let Some(switch) = switch else { continue };
        for &(_, address) in &slot.functions {
            let is_gpu = host.device(address).is_some_and(|device| {
                device.vendor == NVIDIA && device.kind == crate::host::Kind::Gpu
            });
            if !is_gpu {
                continue;
            }
            let clique = switches
                .iter()
                .position(|&known| known == switch)
                .unwrap_or_else(|| {
                    switches.push(switch);
                    switches.len() - 1
                });
            if clique >= MAX_CLIQUES {
                continue;
            }
            let property = Element::new("qemu:property")
                .with("name", "x-nv-gpudirect-clique")
                .with("type", "unsigned")
                .with("value", clique);
            elements.push(
                Element::new("qemu:device")
                    .with("alias", alias(address))
                    .child(Element::new("qemu:frontend").child(property)),
            );
        }
    }
    elements
}
