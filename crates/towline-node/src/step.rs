//! What is done to a host, one change at a time.
//!
//! An [`Action`] is one change with the state before and after it. Whether it is due, done or disturbed is read from the host; so
//! is what undoing it takes. A [`Step`] is a few of them with one reason.

use serde::{Deserialize, Serialize};

use crate::address::PciAddress;

/// A few changes with one reason.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Step {
    /// What it does.
    pub title: String,
    /// Why.
    pub reason: String,
    /// When it counts.
    pub class: Class,
    /// The changes, in order; undone in reverse.
    pub actions: Vec<Action>,
}

/// When a step counts.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// At once, until the next start
    Runtime,
    /// At each start from now on, and not before
    NeedsReboot,
}

/// One change.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Action {
    /// Writes a file of sysfs or procfs.
    Attribute {
        /// Which.
        path: String,
        /// What it says before.
        from: String,
        /// What it is to say.
        to: String,
        /// How what it says is to be read.
        form: Form,
    },
    /// Takes a device from its driver.
    Unbind {
        /// Which device.
        device: PciAddress,
        /// Its driver.
        driver: String,
    },
    /// Gives a device to the driver that its override names.
    Probe {
        /// Which device.
        device: PciAddress,
        /// The driver.
        driver: String,
    },
    /// Loads a module.
    Module {
        /// Which, as `modprobe` calls it.
        name: String,
    },
    /// Stops a service.
    Service {
        /// Which.
        name: String,
    },
    /// Switches an interface on.
    InterfaceUp {
        /// Which.
        interface: String,
    },
    /// Sets what a physical function keeps for a virtual one.
    VirtualFunction {
        /// The interface of the physical function.
        interface: String,
        /// Which virtual function.
        index: u32,
        /// What: `mac`, `trust`, `node_guid`, `port_guid`, as `ip link` calls it.
        setting: String,
        /// What it is to be.
        to: String,
        /// Whether the virtual function was there before and stays: then undoing it sets what was found, else it goes with the
        /// function.
        stays: bool,
    },
    /// Gives a controller of an NVMe drive its share of what the drive's controllers have together, or puts it in service.
    DriveShare {
        /// The physical function.
        device: PciAddress,
        /// What the driver calls its controller: `nvme0`.
        controller: String,
        /// Whose share: that of a virtual function, or what the physical one keeps.
        function: Option<u32>,
        /// Of what.
        share: DriveShare,
        /// How many virtual functions there are to share.
        among: u32,
    },
    /// Sets bits of a 16-bit register in a configuration space.
    Register {
        /// Which device.
        device: PciAddress,
        /// Where the register is.
        offset: u16,
        /// Which bits.
        mask: u16,
        /// What they are before.
        from: u16,
        /// What they are to be.
        to: u16,
    },
    /// Writes a file that the next start reads.
    File {
        /// Which.
        path: String,
        /// What it says before; `None`: there is none.
        from: Option<String>,
        /// What it is to say.
        to: String,
    },
    /// Runs a command after the changes before it, or after they are undone.
    Run {
        /// After the changes.
        forward: Option<Vec<String>>,
        /// After they are undone.
        backward: Option<Vec<String>>,
    },
}

/// What a controller of an NVMe drive has a share of, by the Virtualization Enhancements of NVMe 1.3.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveShare {
    /// Pairs of queues
    Queues,
    /// Interrupts
    Interrupts,
    /// Whether it is in service
    Online,
}

impl DriveShare {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queues => "queues",
            Self::Interrupts => "interrupts",
            Self::Online => "service",
        }
    }
}

/// How what a file of sysfs says is to be read.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// As it is written
    Exact,
    /// A number of which less may be had than was asked for
    Amount,
    /// A list of processors of an interrupt, which may be gone or not want to be moved
    Processors,
    /// A driver's name; nothing reads as `(null)`
    DriverName,
}

impl Action {
    /// What makes the change, for people: a line that a shell would do it by.
    #[must_use]
    pub fn forward(&self) -> String {
        match self {
            Self::Attribute { path, to, .. } => format!("echo {} > {path}", quoted(to)),
            Self::Unbind { device, driver } => {
                format!("echo {device} > /sys/bus/pci/drivers/{driver}/unbind")
            }
            Self::Probe { device, .. } => format!("echo {device} > /sys/bus/pci/drivers_probe"),
            Self::Module { name } => format!("modprobe {name}"),
            Self::Service { name } => format!("systemctl stop {name}"),
            Self::InterfaceUp { interface } => format!("ip link set dev {interface} up"),
            Self::VirtualFunction {
                interface,
                index,
                setting,
                to,
                ..
            } => format!("ip link set dev {interface} vf {index} {setting} {to}"),
            Self::DriveShare {
                controller,
                function,
                share,
                ..
            } => match (function, share) {
                (Some(index), DriveShare::Online) => {
                    format!("nvme virt-mgmt /dev/{controller} -a 9 -c FUNCTION {index}")
                }
                (Some(index), share) => format!(
                    "nvme virt-mgmt /dev/{controller} -a 8 -r {} -c FUNCTION {index} -n ITS SHARE",
                    *share as u8
                ),
                (None, share) => format!(
                    "nvme virt-mgmt /dev/{controller} -a 1 -r {} -n WHAT THE FUNCTIONS LEAVE; nvme reset /dev/{controller}",
                    *share as u8
                ),
            },
            Self::Register {
                device,
                offset,
                mask,
                to,
                ..
            } => format!("setpci -s {device} {offset:x}.w={to:x}:{mask:x}"),
            Self::File { path, to, .. } => format!("write {path}:{}", indented(to)),
            Self::Run { forward, .. } => command(forward),
        }
    }

    /// What undoes it, for people.
    #[must_use]
    pub fn backward(&self) -> String {
        match self {
            Self::Attribute { path, from, .. } => format!("echo {} > {path}", quoted(from)),
            Self::Unbind { device, driver } => {
                format!("echo {device} > /sys/bus/pci/drivers/{driver}/bind")
            }
            Self::Probe { device, driver } => {
                format!("echo {device} > /sys/bus/pci/drivers/{driver}/unbind")
            }
            Self::Module { name } => format!("modprobe -r {name}"),
            Self::Service { name } => format!("systemctl start {name}"),
            Self::InterfaceUp { interface } => format!("ip link set dev {interface} down"),
            Self::VirtualFunction { stays: false, .. } => {
                "goes with the virtual function".to_owned()
            }
            Self::VirtualFunction {
                interface,
                index,
                setting,
                ..
            } => format!("ip link set dev {interface} vf {index} {setting} WHAT IT WAS"),
            Self::DriveShare {
                controller,
                function,
                share,
                ..
            } => match (function, share) {
                (Some(index), DriveShare::Online) => {
                    format!("nvme virt-mgmt /dev/{controller} -a 7 -c FUNCTION {index}")
                }
                (Some(index), share) => format!(
                    "nvme virt-mgmt /dev/{controller} -a 8 -r {} -c FUNCTION {index} -n WHAT IT WAS",
                    *share as u8
                ),
                (None, share) => format!(
                    "nvme virt-mgmt /dev/{controller} -a 1 -r {} -n WHAT IT WAS; nvme reset /dev/{controller}",
                    *share as u8
                ),
            },
            Self::Register {
                device,
                offset,
                mask,
                from,
                ..
            } => format!("setpci -s {device} {offset:x}.w={from:x}:{mask:x}"),
            Self::File {
                path, from: None, ..
            } => format!("rm {path}"),
            Self::File {
                path,
                from: Some(from),
                ..
            } => format!("write {path}:{}", indented(from)),
            Self::Run { backward, .. } => command(backward),
        }
    }

    /// What tells that it is done, for people.
    #[must_use]
    pub fn check(&self) -> String {
        match self {
            Self::Attribute { path, to, form, .. } => match form {
                Form::Amount => format!("{path} says {to} or more"),
                _ => format!("{path} says {}", quoted(to)),
            },
            Self::Unbind { device, .. } => format!("{device} has no driver"),
            Self::Probe { device, driver } => format!("the driver of {device} is {driver}"),
            Self::Module { name } => format!("/sys/module/{} is there", name.replace('-', "_")),
            Self::Service { name } => format!("no process of {name}.service runs"),
            Self::InterfaceUp { interface } => {
                format!("/sys/class/net/{interface}/flags has bit 0")
            }
            Self::VirtualFunction {
                interface,
                index,
                setting,
                to,
                ..
            } => {
                format!("ip -j link show dev {interface} tells {setting} {to} for function {index}")
            }
            Self::DriveShare {
                controller,
                function,
                share,
                ..
            } => match (function, share) {
                (Some(index), DriveShare::Online) => {
                    format!("nvme list-secondary /dev/{controller} tells function {index} online")
                }
                (Some(index), share) => format!(
                    "nvme list-secondary /dev/{controller} tells {} of function {index}",
                    share.name()
                ),
                (None, share) => {
                    format!(
                        "nvme primary-ctrl-caps /dev/{controller} tells {} to give",
                        share.name()
                    )
                }
            },
            Self::Register {
                device,
                offset,
                mask,
                to,
                ..
            } => format!("register {offset:#x} of {device} has {to:#x} in {mask:#x}"),
            Self::File { path, .. } => format!("{path} says so"),
            Self::Run { .. } => "it ends with status 0".to_owned(),
        }
    }

    /// The present state and the one that is asked for, for people.
    #[must_use]
    pub fn difference(&self) -> Option<String> {
        let nothing = |text: &str| {
            if text.is_empty() {
                "nothing".to_owned()
            } else {
                text.to_owned()
            }
        };
        Some(match self {
            Self::Attribute { path, from, to, .. } => {
                format!("{path}: {} -> {}", nothing(from), nothing(to))
            }
            Self::Unbind { device, driver } => format!("driver of {device}: {driver} -> none"),
            Self::Probe { device, driver } => format!("driver of {device}: none -> {driver}"),
            Self::Module { name } => format!("module {name}: not loaded -> loaded"),
            Self::Service { name } => format!("service {name}: running -> stopped"),
            Self::InterfaceUp { interface } => format!("interface {interface}: down -> up"),
            Self::VirtualFunction {
                interface,
                index,
                setting,
                to,
                ..
            } => format!("{setting} of {interface} function {index}: -> {to}"),
            Self::DriveShare {
                device,
                function,
                share,
                ..
            } => match function {
                Some(index) => format!(
                    "{} of function {index} of drive {device}: -> its share",
                    share.name()
                ),
                None => format!(
                    "{} of drive {device}: -> what its functions leave",
                    share.name()
                ),
            },
            Self::Register {
                device,
                offset,
                from,
                to,
                ..
            } => format!("register {offset:#x} of {device}: {from:#x} -> {to:#x}"),
            Self::File { path, from, .. } => match from {
                None => format!("{path}: none -> written"),
                Some(_) => format!("{path}: changed"),
            },
            Self::Run { .. } => return None,
        })
    }
}

fn quoted(value: &str) -> String {
    let is_plain = value
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.,:".contains(&byte));
    match is_plain && !value.is_empty() {
        true => value.to_owned(),
        false => format!("'{value}'"),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("\n  | {line}")).collect()
}

fn command(words: &Option<Vec<String>>) -> String {
    words
        .as_ref()
        .map_or_else(|| "nothing".to_owned(), |words| words.join(" "))
}
