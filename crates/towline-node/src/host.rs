//! What a host is: the facts that `inspect` found, and the questions that planning asks of them.
//!
//! This is also the JSON of `towline node inspect --json`. A field that is `null` is not known: this user may not read it, or this
//! kernel does not tell. Plans are made of nothing else, so that a plan for a machine can be made on another.

use serde::{Deserialize, Serialize};

use crate::address::PciAddress;
use crate::config::{Acs, Ats, Port, Seen};

/// Everything that is known of a host.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Host {
    /// The system that runs on it.
    pub system: System,
    /// What translates addresses of devices.
    pub iommu: Iommu,
    /// The processors.
    pub cpus: Cpus,
    /// The NUMA nodes, in order.
    pub nodes: Vec<Node>,
    /// The PCI functions, in order of their addresses.
    pub devices: Vec<Device>,
    /// The InfiniBand and RoCE devices.
    pub rdma: Vec<Rdma>,
    /// The network interfaces.
    pub interfaces: Vec<Interface>,
    /// The interrupts that can be moved, and where they are.
    pub interrupts: Vec<Interrupt>,
    /// What could not be read for want of rights.
    pub denied: Vec<String>,
}

/// The operating system and how it was started.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct System {
    /// The name of the machine.
    pub name: String,
    /// The kernel's version.
    pub kernel: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// Different after each start.
    pub boot_id: String,
    /// What the kernel was started with.
    pub command_line: Vec<String>,
    /// Where kernel arguments for the next start are written.
    pub boot_loader: BootLoader,
    /// What makes the initramfs.
    pub initramfs: Option<Initramfs>,
    /// Whether this is a virtual machine itself.
    pub is_guest: bool,
    /// Whether `/dev/kvm` is there.
    pub has_kvm: bool,
    /// Whether guests can have guests.
    pub nested: Option<bool>,
    /// The modules that matter here and are loaded or built in.
    pub modules: Vec<String>,
    /// The services that matter here and run.
    pub services: Vec<String>,
    /// Virtual functions that parameters of `mlx4_core` ask for, as older ConnectX cards have it.
    pub mlx4_num_vfs: Option<String>,
    /// Devices given to `pci-stub` at the start, as `VENDOR:DEVICE`.
    pub pci_stub_ids: Vec<String>,
    /// Devices given to `vfio-pci` at the start, as `VENDOR:DEVICE`.
    pub vfio_ids: Vec<String>,
    /// What earlier runs wrote that only the next start reads: `path` and `contents`.
    pub files: Vec<ConfigFile>,
}

/// A file that steps write.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ConfigFile {
    /// Where it is.
    pub path: String,
    /// What it says.
    pub contents: String,
}

/// How kernel arguments get to the next start.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootLoader {
    /// Files in `/etc/default/grub.d`, read by `update-grub`
    GrubFolder,
    /// `grubby`, which edits the loader's entries
    Grubby,
    /// Not recognised
    #[default]
    Unknown,
}

/// What makes the initramfs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Initramfs {
    /// `dracut`
    Dracut,
    /// `update-initramfs`
    InitramfsTools,
}

/// The IOMMU.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Iommu {
    /// Its units as the kernel names them: `dmar0`, `ivhd0`, `smmu3.0x...`. Empty: none at work.
    pub units: Vec<String>,
    /// Whether the firmware tells of one (ACPI tables DMAR, IVRS, IORT); `None` when that cannot be seen.
    pub in_firmware: Option<bool>,
    /// Whether it remaps interrupts.
    pub remaps_interrupts: Option<bool>,
    /// What the kernel does for its own drivers: `identity` (passthrough), `DMA`, `DMA-FQ`.
    pub default_domain: Option<String>,
    /// The groups, in order.
    pub groups: Vec<Group>,
}

/// Devices that are given away together or not at all.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// Who is in it.
    pub devices: Vec<PciAddress>,
}

/// The processors.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Cpus {
    /// `GenuineIntel`, `AuthenticAMD`; empty where that is not told.
    pub vendor: String,
    /// What it is called.
    pub model: String,
    /// Whether it can run guests (VMX, SVM); `None` where that is not told.
    pub virtualizes: Option<bool>,
    /// Those in use.
    pub online: Vec<u32>,
    /// Those the scheduler leaves alone.
    pub isolated: Vec<u32>,
    /// Those without a timer tick.
    pub nohz_full: Vec<u32>,
    /// The cores, by package and number.
    pub cores: Vec<Core>,
}

/// A core and its threads.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Core {
    /// The socket.
    pub package: u32,
    /// Its number in the socket.
    pub id: u32,
    /// Its NUMA node.
    pub node: u32,
    /// The processors that run on it.
    pub threads: Vec<u32>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its processors.
    pub cpus: Vec<u32>,
    /// All of its memory.
    pub memory_kib: u64,
    /// What is free of it.
    pub free_kib: u64,
    /// How far the nodes are, in order.
    pub distances: Vec<u32>,
    /// Its pools of huge pages.
    pub pools: Vec<Pool>,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Pool {
    /// The size of a page.
    pub page_kib: u64,
    /// How many there are.
    pub total: u64,
    /// How many are not in use.
    pub free: u64,
}

/// What a function is for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A PCI bridge or a port of a switch
    Bridge,
    /// A display without 3D of its own: the console of a server
    Display,
    /// A GPU
    Gpu,
    /// An InfiniBand or Ethernet adapter
    Network,
    /// A switch of NVLink
    NvSwitch,
    /// Disks
    Storage,
    /// Anything else
    Other,
}

/// A PCI function.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Device {
    /// Where it is.
    pub address: PciAddress,
    /// The ports above it, the root port first.
    pub path: Vec<PciAddress>,
    /// Its root complex as the kernel names it: `pci0000:17`.
    pub root: String,
    /// Class, subclass and programming interface.
    pub class: u32,
    /// The vendor's number.
    pub vendor: u16,
    /// The device's number.
    pub device: u16,
    /// What it is for.
    pub kind: Kind,
    /// Its driver.
    pub driver: Option<String>,
    /// The only driver that may take it.
    pub driver_override: Option<String>,
    /// Its NUMA node, where there are nodes.
    pub node: Option<u32>,
    /// Its IOMMU group.
    pub group: Option<u32>,
    /// Whether the console is on it.
    pub is_boot_vga: bool,
    /// Its memory windows.
    pub bars: Vec<Bar>,
    /// Its link.
    pub link: Option<Link>,
    /// How much of its configuration space could be read.
    pub config: Seen,
    /// What kind of port it is.
    pub port: Option<Port>,
    /// Its access control.
    pub acs: Option<Acs>,
    /// Its address translation.
    pub ats: Option<Ats>,
    /// Its virtual functions, if it can have any.
    pub sriov: Option<Sriov>,
    /// Whose virtual function it is.
    pub physical_function: Option<PciAddress>,
    /// Whether it can be reset by itself.
    pub has_reset: bool,
    /// Its interfaces.
    pub interfaces: Vec<String>,
    /// Its RDMA devices.
    pub rdma: Vec<String>,
    /// Its controller as the NVMe driver names it: `nvme0`.
    #[serde(default)]
    pub nvme: Option<String>,
    /// What it can be parted into: MIG, vGPU.
    pub partitions: Vec<String>,
    /// Who needs it.
    pub uses: Vec<Use>,
}

/// A memory window.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Bar {
    /// Its number.
    pub index: u32,
    /// Its size.
    pub bytes: u64,
    /// Whether it may lie above 4 GiB.
    pub is_64_bit: bool,
}

/// The state of a link.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Link {
    /// Its speed: `32.0 GT/s PCIe`.
    pub speed: String,
    /// Its lanes.
    pub width: u32,
    /// What both could do.
    pub max_speed: String,
    /// The lanes that both have.
    pub max_width: u32,
}

/// The virtual functions of a physical one.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Sriov {
    /// How many there can be.
    pub total: u32,
    /// How many there are.
    pub count: u32,
    /// The first one's distance.
    pub offset: Option<u32>,
    /// Their distance from each other.
    pub stride: Option<u32>,
    /// Their device number; the vendor is the physical function's.
    #[serde(default)]
    pub device: Option<u16>,
    /// Whether drivers take them as they come.
    pub autoprobe: bool,
    /// Those there are, in order.
    pub functions: Vec<PciAddress>,
}

/// Who needs a device.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// The screen of this machine
    Console,
    /// The way out of this machine
    DefaultRoute {
        /// The interface that the route names or that lies below it.
        interface: String,
    },
    /// An interface that is up
    InterfaceUp {
        /// Which.
        interface: String,
    },
    /// A file system
    Mounted {
        /// Where.
        path: String,
    },
    /// A process that has a device file open
    Process {
        /// Its number.
        pid: u32,
        /// What it runs.
        name: String,
        /// The device file.
        node: String,
    },
    /// The file system that everything else lies in
    RootFileSystem,
    /// Memory that was swapped out
    Swap,
    /// Virtual functions, which go with their physical one
    VirtualFunctions {
        /// How many.
        count: u32,
    },
}

impl Use {
    /// Whether this machine could not go on without it.
    #[must_use]
    pub fn is_vital(&self) -> bool {
        matches!(
            self,
            Self::Console
                | Self::DefaultRoute { .. }
                | Self::Mounted { .. }
                | Self::RootFileSystem
                | Self::Swap
        )
    }
}

impl std::fmt::Display for Use {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Console => write!(f, "console"),
            Self::DefaultRoute { interface } => write!(f, "default route ({interface})"),
            Self::InterfaceUp { interface } => write!(f, "{interface} is up"),
            Self::Mounted { path } => write!(f, "mounted at {path}"),
            Self::Process { pid, name, node } => write!(f, "{name} ({pid}) has {node} open"),
            Self::RootFileSystem => write!(f, "root file system"),
            Self::Swap => write!(f, "swap"),
            Self::VirtualFunctions { count } => write!(f, "{count} virtual functions"),
        }
    }
}

/// An InfiniBand or RoCE device.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Rdma {
    /// Its name: `mlx5_0`.
    pub name: String,
    /// Where it is.
    pub address: Option<PciAddress>,
    /// The GUID of the adapter.
    pub node_guid: String,
    /// Its firmware.
    pub firmware: String,
    /// Its ports.
    pub ports: Vec<RdmaPort>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RdmaPort {
    /// Its number, from 1.
    pub number: u32,
    /// `ACTIVE`, `INIT`, `DOWN`.
    pub state: String,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// Its speed: `400 Gb/sec (4X NDR)`.
    pub rate: String,
    /// Its own GUID, of the first entry of its table.
    pub guid: String,
    /// Its local id; 0 without a subnet manager.
    pub lid: u32,
    /// The subnet manager's.
    pub subnet_manager: u32,
    /// The partitions that it is a member of.
    pub partition_keys: Vec<String>,
}

/// A network interface.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Where its device is.
    pub address: Option<PciAddress>,
    /// Its hardware address.
    pub mac: String,
    /// `up`, `down`.
    pub state: String,
    /// Whether somebody switched it on.
    pub is_up: bool,
    /// What it is a part of: a bond, a bridge.
    pub master: Option<String>,
    /// Whether the default route uses it, or something above it.
    pub is_default_route: bool,
    /// IP over InfiniBand: `datagram` or `connected`.
    pub ipoib: Option<String>,
}

/// An interrupt of a device.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// Where it may be delivered.
    pub cpus: Vec<u32>,
}

impl Host {
    /// The function at an address.
    #[must_use]
    pub fn device(&self, address: PciAddress) -> Option<&Device> {
        self.devices.iter().find(|device| device.address == address)
    }

    /// The other members of a device's group that would be given away with it; bridges stay with the host.
    #[must_use]
    pub fn companions(&self, device: &Device) -> Vec<&Device> {
        self.devices
            .iter()
            .filter(|other| {
                other.address != device.address
                    && other.group.is_some()
                    && other.group == device.group
                    && other.kind != Kind::Bridge
            })
            .collect()
    }

    /// The upstream port of the innermost switch above a device.
    ///
    /// Where the kind of the ports cannot be read, the order decides: below the root port, upstream and downstream ports take turns.
    #[must_use]
    pub fn switch(&self, device: &Device) -> Option<PciAddress> {
        let ports: Vec<Option<Port>> = device
            .path
            .iter()
            .map(|&address| self.device(address)?.port)
            .collect();
        if ports.iter().all(Option::is_some) {
            let innermost = ports
                .iter()
                .rposition(|&port| port == Some(Port::Upstream))?;
            return device.path.get(innermost).copied();
        }
        let above = device
            .path
            .len()
            .checked_sub(2)
            .filter(|&above| above > 0)?;
        device.path.get(above).copied()
    }

    /// How near two devices are.
    #[must_use]
    pub fn locality(&self, a: &Device, b: &Device) -> Locality {
        let switch = self.switch(a);
        if switch.is_some() && switch == self.switch(b) {
            Locality::Switch
        } else if a.root == b.root && a.address.domain() == b.address.domain() {
            Locality::RootComplex
        } else if a.node == b.node {
            // Without nodes everything is in one.
            Locality::Node
        } else {
            Locality::Host
        }
    }
}

/// How near two devices are; the smaller the nearer.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Locality {
    /// Below one switch
    Switch,
    /// Below one root complex
    RootComplex,
    /// On one NUMA node
    Node,
    /// In one machine, and that is all
    Host,
}

impl std::fmt::Display for Locality {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Switch => "switch",
            Self::RootComplex => "root complex",
            Self::Node => "NUMA node",
            Self::Host => "host",
        })
    }
}

impl Device {
    /// `10de:2330`.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{:04x}:{:04x}", self.vendor, self.device)
    }

    /// Whether a driver that only keeps others away has it.
    #[must_use]
    pub fn is_set_aside(&self) -> bool {
        matches!(self.driver.as_deref(), Some("vfio-pci" | "pci-stub"))
    }
}
