//! A kernel made of files: what writing does to a laid-out machine, with the answers that kernels were seen to give.
//!
//! - `sriov_numvfs`: ERANGE above the total, EBUSY from one number to another, functions come and go with their links;
//! - `unbind`, `bind`, `drivers_probe`: by driver and override, ENODEV when they do not fit; a device that is held hangs;
//! - a drive's queues and interrupts: given only from what is left, to functions out of service; what the physical one keeps
//!   counts from its reset on;
//! - huge pages: as many as there are in one piece;
//! - `modprobe`, `systemctl`, `ip link`, `nvme`, `update-grub`, `update-initramfs`: what of them can be seen.
//!
//! It can be killed before or after each change, or in the middle of an append.

#![allow(dead_code, unreachable_pub)] // Each test program uses a part of it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use towline_node::world::{World, WorldError};
use towline_node::{PciAddress, Root};

use crate::shape::Shape;

/// When a run is killed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kill {
    /// Before the change
    Before,
    /// After it
    After,
    /// With half of it made, where it is an append or a whole file
    Torn,
}

pub struct FakeWorld<'a> {
    shape: &'a Shape,
    root: Root,
    /// How many changes were made.
    pub changes: usize,
    /// At which change it ends, and how.
    kill: Option<(usize, Kill)>,
    is_dead: bool,
    /// Devices that somebody holds: taking one from its driver does not come back.
    pub held: Vec<String>,
    /// Pages that can be had on a node, all sizes.
    pub pages: u64,
    /// Everything that was written, in order.
    pub log: Vec<String>,
}

impl<'a> FakeWorld<'a> {
    pub fn new(shape: &'a Shape) -> Self {
        Self {
            root: Root::new(shape.folder()),
            shape,
            changes: 0,
            kill: None,
            is_dead: false,
            held: Vec::new(),
            pages: u64::MAX,
            log: Vec::new(),
        }
    }

    pub fn killed_at(shape: &'a Shape, change: usize, kill: Kill) -> Self {
        Self {
            kill: Some((change, kill)),
            ..Self::new(shape)
        }
    }

    /// Everything but the journal, by its path.
    pub fn snapshot(shape: &Shape) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        collect(shape.folder(), &mut found);
        found.retain(|path, _| {
            let path = path.strip_prefix(shape.folder()).unwrap();
            !path.starts_with("var") && !path.starts_with("saved")
        });
        found
    }

    /// Counts a change, and ends the run where it is to end.
    fn change(
        &mut self,
        what: String,
        make: impl FnOnce(&mut Self) -> Result<(), WorldError>,
        torn: impl FnOnce(&mut Self),
    ) -> Result<(), WorldError> {
        if self.is_dead {
            return Err(dead());
        }
        let number = self.changes;
        self.changes += 1;
        match self.kill.filter(|(at, _)| *at == number) {
            None => {
                self.log.push(what);
                make(self)
            }
            Some((_, kill)) => {
                self.is_dead = true;
                match kill {
                    Kill::Before => {}
                    Kill::After => drop(make(self)),
                    Kill::Torn => torn(self),
                }
                Err(dead())
            }
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.shape.path(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path))
            .unwrap_or_default()
            .trim()
            .to_owned()
    }

    fn kernel_write(&mut self, path: &str, value: &str) -> Result<(), WorldError> {
        let value = value.strip_suffix('\n').unwrap_or(value);
        if !self.path(path).exists() {
            return Err(refused(path, 2));
        }
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts[..] {
            ["sys", "bus", "pci", "drivers_probe"] => self.probe(path, value),
            ["sys", "bus", "pci", "drivers", driver, "unbind"] => self.unbind(path, value, driver),
            ["sys", "bus", "pci", "drivers", driver, "bind"] => self.bind(path, value, driver),
            [.., device, "sriov_numvfs"] => self.virtual_functions(path, value, device),
            [.., "driver_override"] => {
                self.shape
                    .write(path, if value.is_empty() { "(null)" } else { value });
                Ok(())
            }
            [.., "nr_hugepages"] => {
                let had = value.parse::<u64>().unwrap().min(self.pages);
                self.shape.write(path, &had.to_string());
                self.shape
                    .write(&path.replace("nr_", "free_"), &had.to_string());
                Ok(())
            }
            // One that the kernel manages itself.
            ["proc", "irq", "130", _] => Err(refused(path, 5)),
            _ => {
                self.shape.write(path, value);
                Ok(())
            }
        }
    }

    fn driver(&self, device: &str) -> Option<String> {
        let link =
            fs::read_link(self.path(&format!("/sys/bus/pci/devices/{device}/driver"))).ok()?;
        Some(link.file_name()?.to_str()?.to_owned())
    }

    fn unbind(&mut self, path: &str, device: &str, driver: &str) -> Result<(), WorldError> {
        if self.held.iter().any(|held| held == device) {
            return Err(WorldError::TimedOut {
                what: path.to_owned(),
                limit_s: 30,
                pid: 999,
            });
        }
        if self.driver(device).as_deref() != Some(driver) {
            return Err(refused(path, 19));
        }
        fs::remove_file(self.path(&format!("/sys/bus/pci/devices/{device}/driver"))).map_err(
            |cause| WorldError::Io {
                path: path.to_owned(),
                cause,
            },
        )
    }

    fn bind(&mut self, path: &str, device: &str, driver: &str) -> Result<(), WorldError> {
        let wanted = self.read(&format!("/sys/bus/pci/devices/{device}/driver_override"));
        let fits = match wanted.as_str() {
            "(null)" => driver != "vfio-pci",
            wanted => wanted == driver,
        };
        if !fits || self.driver(device).is_some() {
            return Err(refused(path, 19));
        }
        let link = fs::read_link(self.path(&format!("/sys/bus/pci/devices/{device}"))).unwrap();
        let depth = link
            .components()
            .filter(|part| part.as_os_str() != "..")
            .count();
        let target = format!("{}bus/pci/drivers/{driver}", "../".repeat(depth));
        self.shape
            .link(&format!("/sys/bus/pci/devices/{device}/driver"), &target);
        Ok(())
    }

    fn probe(&mut self, path: &str, device: &str) -> Result<(), WorldError> {
        let wanted = self.read(&format!("/sys/bus/pci/devices/{device}/driver_override"));
        let has_driver = self
            .path(&format!("/sys/bus/pci/drivers/{wanted}/bind"))
            .exists();
        match wanted.as_str() {
            // Nothing is no error: there may be no driver for it.
            "(null)" => Ok(()),
            _ if !has_driver => Ok(()),
            wanted => {
                let wanted = wanted.to_owned();
                self.bind(path, device, &wanted)
            }
        }
    }

    fn virtual_functions(
        &mut self,
        path: &str,
        value: &str,
        device: &str,
    ) -> Result<(), WorldError> {
        let function = self.shape.functions[device].clone();
        let wanted: u32 = value.parse().map_err(|_| refused(path, 22))?;
        let present: u32 = self.read(path).parse().unwrap();
        let (total, ..) = function.space.sriov.unwrap();
        if wanted > total.into() {
            return Err(refused(path, 34));
        }
        if wanted == present {
            return Ok(());
        }
        if wanted > 0 && present > 0 {
            return Err(refused(path, 16));
        }
        for index in 0..present {
            self.remove_function(device, index);
        }
        let autoprobe = self.read(&path.replace("numvfs", "drivers_autoprobe")) == "1";
        let driver = function
            .line
            .get("vfdriver")
            .filter(|_| autoprobe)
            .map(str::to_owned);
        for index in 0..wanted {
            function.make_virtual(self.shape, index, driver.as_deref());
        }
        self.shape.write(path, value);
        Ok(())
    }

    fn remove_function(&mut self, device: &str, index: u32) {
        let link = self.path(&format!("/sys/bus/pci/devices/{device}/virtfn{index}"));
        let name = fs::read_link(&link)
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let folder = format!("/sys/bus/pci/devices/{name}");
        let group = fs::read_link(self.path(&format!("{folder}/iommu_group"))).unwrap();
        let group = group.file_name().unwrap().to_str().unwrap().to_owned();
        fs::remove_dir_all(self.path(&format!("/sys/kernel/iommu_groups/{group}"))).unwrap();
        fs::remove_dir_all(fs::canonicalize(self.path(&folder)).unwrap()).unwrap();
        fs::remove_file(self.path(&folder)).unwrap();
        fs::remove_file(link).unwrap();
        let interface = self.shape.functions[device]
            .line
            .get("if")
            .unwrap_or_default();
        let _ = fs::remove_file(self.path(&format!("/fake/{interface}/{index}")));
    }

    fn command(&mut self, words: &[&str]) -> Result<(), WorldError> {
        match words {
            ["modprobe", "-r", module] => {
                let _ = fs::remove_dir_all(
                    self.path(&format!("/sys/module/{}", module.replace('-', "_"))),
                );
                let _ = fs::remove_dir_all(self.path(&format!("/sys/bus/pci/drivers/{module}")));
            }
            ["modprobe", module] => {
                self.shape.write(
                    &format!("/sys/module/{}/initstate", module.replace('-', "_")),
                    "live",
                );
                if *module == "vfio-pci" {
                    // It brings another, which stays when it goes.
                    self.shape
                        .write("/sys/module/vfio_virqfd/initstate", "live");
                    for file in ["bind", "unbind"] {
                        self.shape
                            .write(&format!("/sys/bus/pci/drivers/{module}/{file}"), "");
                    }
                }
            }
            ["systemctl", "stop", service] => {
                for entry in fs::read_dir(self.path("/proc")).unwrap() {
                    let folder = entry.unwrap().path();
                    let group = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
                    if group.contains(&format!("{service}.service")) {
                        let saved = self.path(&format!("/saved/{service}"));
                        fs::create_dir_all(&saved).unwrap();
                        fs::rename(&folder, saved.join(folder.file_name().unwrap())).unwrap();
                    }
                }
            }
            ["systemctl", "start", service] => {
                for entry in fs::read_dir(self.path(&format!("/saved/{service}"))).unwrap() {
                    let folder = entry.unwrap().path();
                    fs::rename(
                        &folder,
                        self.path("/proc").join(folder.file_name().unwrap()),
                    )
                    .unwrap();
                }
            }
            ["ip", "link", "set", "dev", interface, "up"] => self
                .shape
                .write(&format!("/sys/class/net/{interface}/flags"), "0x1003"),
            ["ip", "link", "set", "dev", interface, "down"] => self
                .shape
                .write(&format!("/sys/class/net/{interface}/flags"), "0x1002"),
            [
                "ip",
                "link",
                "set",
                "dev",
                interface,
                "vf",
                index,
                setting,
                value,
            ] => {
                let path = format!("/fake/{interface}/{index}");
                let mut settings: BTreeMap<String, String> =
                    serde_json::from_str(&self.read(&path)).unwrap_or_default();
                settings.insert((*setting).to_owned(), (*value).to_owned());
                self.shape
                    .write(&path, &serde_json::to_string(&settings).unwrap());
            }
            ["update-grub"] => {
                let line = self.read("/etc/default/grub.d/towline-node.cfg");
                self.shape
                    .write("/boot/grub/grub.cfg", &format!("generated {line}"));
            }
            ["update-initramfs", "-u"] => {
                let text = self.read("/etc/modprobe.d/towline-node.conf")
                    + &self.read("/etc/initramfs-tools/modules");
                self.shape
                    .write("/boot/initrd.img", &format!("generated {text}"));
            }
            ["nvme", "reset", node] => {
                let mut drive = self.drive(node);
                drive["primary"] = drive["next"].clone();
                self.keep_drive(node, &drive);
            }
            ["nvme", "virt-mgmt", node, cntlid, rt, act, nr] => {
                let number =
                    |word: &str| -> u64 { word.split_once('=').unwrap().1.parse().unwrap() };
                let (kind, amount) = (number(rt) as usize, number(nr));
                let id = number(cntlid).to_string();
                let mut drive = self.drive(node);
                let functions = drive["functions"].as_object().unwrap();
                let given: u64 = functions
                    .iter()
                    .filter(|(other, _)| **other != id)
                    .map(|(_, function)| function[kind].as_u64().unwrap())
                    .sum();
                let total = drive["total"][kind].as_u64().unwrap();
                let has = functions.get(&id).cloned().unwrap_or(json!([0, 0, 0]));
                let is_online = has[2] == json!(1);
                match number(act) {
                    1 if amount + given <= total => drive["next"][kind] = json!(amount),
                    8 if !is_online
                        && amount + given + drive["primary"][kind].as_u64().unwrap() <= total =>
                    {
                        let mut has = has;
                        has[kind] = json!(amount);
                        drive["functions"][&id] = has;
                    }
                    7 => drive["functions"][&id][2] = json!(0),
                    9 if has[0].as_u64() >= Some(2) && has[1].as_u64() >= Some(1) => {
                        drive["functions"][&id][2] = json!(1);
                    }
                    _ => {
                        return Err(WorldError::Command {
                            command: words.join(" "),
                            status: "exit status: 1".to_owned(),
                            output: format!("NVMe status: {drive}"),
                        });
                    }
                }
                // A function with nothing is as one that was never asked about.
                drive["functions"]
                    .as_object_mut()
                    .unwrap()
                    .retain(|_, has| *has != json!([0, 0, 0]));
                self.keep_drive(node, &drive);
            }
            other => panic!("{other:?} is no command here"),
        }
        Ok(())
    }

    fn drive(&self, node: &str) -> Value {
        serde_json::from_str(&self.read(&node.replace("/dev/", "/fake/"))).unwrap()
    }

    fn keep_drive(&self, node: &str, drive: &Value) {
        self.shape
            .write(&node.replace("/dev/", "/fake/"), &drive.to_string());
    }

    /// What `nvme COMMAND NODE -o json` prints.
    fn told_of_drive(&self, command: &str, node: &str) -> String {
        let drive = self.drive(node);
        if command == "primary-ctrl-caps" {
            let mut told = json!({ "cntlid": 0, "vqprt": 57, "viprt": 60 });
            for (kind, name) in [(0, "vq"), (1, "vi")] {
                told[format!("{name}frt")] = drive["total"][kind].clone();
                told[format!("{name}rfap")] = drive["primary"][kind].clone();
                told[format!("{name}frsm")] = json!(drive["total"][kind].as_u64().unwrap() / 4);
                told[format!("{name}gran")] = json!(1);
            }
            return told.to_string();
        }
        let controllers: Vec<Value> = (1..=4)
            .map(|number| {
                let has = drive["functions"].get(number.to_string());
                let has = has.cloned().unwrap_or(json!([0, 0, 0]));
                json!({
                    "secondary-controller-identifier": number,
                    "virtual-function-number": number,
                    "num-virtual-queues": has[0],
                    "num-virtual-interrupts": has[1],
                    "secondary-controller-state": has[2],
                })
            })
            .collect();
        json!({ "secondary-controllers": controllers }).to_string()
    }

    /// What `ip -j link show dev NAME` prints of virtual functions.
    fn link(&self, interface: &str) -> String {
        let folder =
            fs::canonicalize(self.path(&format!("/sys/class/net/{interface}/device"))).unwrap();
        let count: u64 = fs::read_to_string(folder.join("sriov_numvfs"))
            .unwrap_or_default()
            .trim()
            .parse()
            .unwrap_or(0);
        let functions: Vec<Value> = (0..count)
            .map(|index| {
                let settings: BTreeMap<String, String> =
                    serde_json::from_str(&self.read(&format!("/fake/{interface}/{index}")))
                        .unwrap_or_default();
                let get = |name: &str, or: &str| {
                    settings.get(name).cloned().unwrap_or_else(|| or.to_owned())
                };
                json!({
                    "vf": index,
                    "address": get("mac", "00:00:00:00:00:00"),
                    "trust": get("trust", "off") == "on",
                    "node guid": get("node_guid", "00:00:00:00:00:00:00:00"),
                    "port guid": get("port_guid", "00:00:00:00:00:00:00:00"),
                })
            })
            .collect();
        json!([{ "ifname": interface, "vfinfo_list": functions }]).to_string()
    }
}

impl World for FakeWorld<'_> {
    fn root(&self) -> &Root {
        &self.root
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), WorldError> {
        let what = format!("{} > {path}", value.trim());
        self.change(what, |world| world.kernel_write(path, value), |_| {})
    }

    fn write_register(
        &mut self,
        device: PciAddress,
        offset: u16,
        value: u16,
    ) -> Result<(), WorldError> {
        let make = |world: &mut Self| {
            let path = world.path(&format!("/sys/bus/pci/devices/{device}/config"));
            let mut bytes = fs::read(&path).unwrap();
            bytes[usize::from(offset)..usize::from(offset) + 2]
                .copy_from_slice(&value.to_le_bytes());
            fs::write(path, bytes).unwrap();
            Ok(())
        };
        self.change(
            format!("{value:#x} > register {offset:#x} of {device}"),
            make,
            |_| {},
        )
    }

    fn replace(&mut self, path: &str, contents: Option<&str>) -> Result<(), WorldError> {
        let place = self.path(path);
        let make = |_: &mut Self| {
            towline_node::world::replace(&place, contents).unwrap();
            Ok(())
        };
        let torn = |_: &mut Self| {
            if let Some(contents) = contents {
                let new = towline_node::world::unfinished(&place);
                fs::create_dir_all(new.parent().unwrap()).unwrap();
                fs::write(new, &contents[..contents.len() / 2]).unwrap();
            }
        };
        self.change(format!("replace {path}"), make, torn)
    }

    fn append(&mut self, path: &str, bytes: &[u8]) -> Result<(), WorldError> {
        let place = self.path(path);
        let append = |bytes: &[u8]| towline_node::world::append(&place, bytes).unwrap();
        let what = format!("append {path}");
        self.change(
            what,
            |_| {
                append(bytes);
                Ok(())
            },
            |_| append(&bytes[..bytes.len() / 2]),
        )
    }

    fn run(&mut self, words: &[String]) -> Result<(), WorldError> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.change(words.join(" "), |world| world.command(&words), |_| {})
    }

    fn ask(&mut self, words: &[String]) -> Result<String, WorldError> {
        if self.is_dead {
            return Err(dead());
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["ip", "-j", "link", "show", "dev", interface] => Ok(self.link(interface)),
            ["nvme", command, node, "-o", "json"] => Ok(self.told_of_drive(command, node)),
            _ => panic!("nobody answers `{}`", words.join(" ")),
        }
    }
}

fn refused(path: &str, number: i32) -> WorldError {
    WorldError::Io {
        path: path.to_owned(),
        cause: io::Error::from_raw_os_error(number),
    }
}

fn dead() -> WorldError {
    WorldError::Io {
        path: "this run".to_owned(),
        cause: io::Error::other("was killed"),
    }
}

fn collect(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match fs::symlink_metadata(&path).unwrap().file_type() {
            kind if kind.is_symlink() => {
                let target = fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes();
                found.insert(path, target);
            }
            kind if kind.is_dir() => collect(&path, found),
            _ => {
                let bytes = fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
}
