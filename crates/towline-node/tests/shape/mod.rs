//! Lays out the `/sys`, `/proc`, `/dev` and `/etc` of a described machine below a folder.
//!
//! `tests/shapes/*.host` describe machines, one thing per line: a keyword, names, and `key=value`. What real kernels show was
//! the model: the links are relative as in sysfs, configuration spaces have real capabilities in real places.

#![allow(dead_code, unreachable_pub)] // Each test program uses a part of it.

mod config;
mod function;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub use function::Function;
use tempfile::TempDir;

/// One line of a description.
#[derive(Clone, Debug)]
pub struct Line {
    pub keyword: String,
    pub names: Vec<String>,
    pub values: BTreeMap<String, String>,
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let mut words = Vec::<String>::new();
        let mut is_quoted = false;
        let mut word = String::new();
        for c in text.chars().chain([' ']) {
            match c {
                '"' => is_quoted = !is_quoted,
                '#' if !is_quoted && word.is_empty() => break,
                c if c.is_whitespace() && !is_quoted => {
                    if !word.is_empty() {
                        words.push(std::mem::take(&mut word));
                    }
                }
                c => word.push(c),
            }
        }
        let mut words = words.into_iter();
        let keyword = words.next()?;
        let (mut names, mut values) = (Vec::new(), BTreeMap::new());
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => {
                    values.insert(key.to_owned(), value.to_owned());
                }
                None => names.push(word),
            }
        }
        Some(Self {
            keyword,
            names,
            values,
        })
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|other| other == name)
    }
}

/// A laid-out machine. The folder goes with it.
pub struct Shape {
    folder: TempDir,
    pub functions: BTreeMap<String, Function>,
}

/// The descriptions, by name.
pub fn names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../towline-node/tests/shapes");
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    names.sort();
    names
}

impl Shape {
    /// Lays out `tests/shapes/NAME.host`.
    pub fn named(name: &str) -> Self {
        let file = format!("../towline-node/tests/shapes/{name}.host");
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        Self::of(&text)
    }

    pub fn of(text: &str) -> Self {
        let mut shape = Self {
            // In memory where that can be: the exhaustive tests wait for the disk at each record otherwise.
            folder: tempfile::tempdir_in("/dev/shm")
                .or_else(|_| tempfile::tempdir())
                .unwrap(),
            functions: BTreeMap::new(),
        };
        for folder in [
            "/sys/bus/pci/devices",
            "/sys/bus/pci/drivers",
            "/sys/class/iommu",
            "/sys/class/net",
            "/proc",
            "/dev",
            "/etc",
        ] {
            fs::create_dir_all(shape.path(folder)).unwrap();
        }
        shape.write("/sys/bus/pci/drivers_probe", "");
        let mut uptime = Vec::new();
        for line in text.lines().filter_map(Line::parse) {
            shape.add(&line, &mut uptime);
        }
        if !uptime.is_empty() {
            let header = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT";
            shape.write(
                "/proc/net/route",
                &format!("{header}\n{}", uptime.join("\n")),
            );
        }
        shape
    }

    fn add(&mut self, line: &Line, routes: &mut Vec<String>) {
        match line.keyword.as_str() {
            "machine" => self.machine(line),
            "node" => self.node(line),
            "bridge" | "gpu" | "net" | "nvme" | "device" => {
                let mut function = Function::parse(line);
                if let Some(above) = line.get("under") {
                    function.above = self.functions[above].folder();
                }
                function.lay_out(self);
                self.functions.insert(function.address.clone(), function);
            }
            "disk" => self.disk(line),
            "process" => self.process(line),
            "route" => routes.push(format!(
                "{} 00000000 0100000A 0003 0 0 100 00000000 0 0 0",
                line.names[0]
            )),
            "bond" => self.bond(line),
            "irq" => self.write(
                &format!("/proc/irq/{}/smp_affinity_list", line.names[0]),
                &line.names[1],
            ),
            "file" => self.write(&line.names[0], &line.names[1].replace("\\n", "\n")),
            other => panic!("`{other}` describes nothing"),
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    pub fn write(&self, path: &str, contents: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let end = if contents.is_empty() || contents.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        fs::write(path, format!("{contents}{end}")).unwrap();
    }

    pub fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    fn machine(&self, line: &Line) {
        let get = |key: &str| line.get(key).unwrap_or_default();
        self.write("/proc/sys/kernel/hostname", get("name"));
        self.write(
            "/proc/sys/kernel/osrelease",
            line.get("kernel").unwrap_or("6.8.0"),
        );
        self.write(
            "/proc/sys/kernel/random/boot_id",
            line.get("boot")
                .unwrap_or("11111111-2222-3333-4444-555555555555"),
        );
        self.write(
            "/proc/cmdline",
            &format!("BOOT_IMAGE=/vmlinuz root=/dev/sda2 {}", get("cmdline")),
        );
        let (vendor, flag, architecture, table, unit) = match get("cpu") {
            "intel" => ("GenuineIntel", "vmx", "x86_64", "DMAR", "dmar"),
            "amd" => ("AuthenticAMD", "svm", "x86_64", "IVRS", "ivhd"),
            "arm" => ("", "", "aarch64", "IORT", "smmu3.0x00000000"),
            other => panic!("what processor is `{other}`?"),
        };
        self.write("/proc/sys/kernel/arch", architecture);
        let guest = if line.has("guest") { " hypervisor" } else { "" };
        let flag = if line.has("no-virtualization") {
            ""
        } else {
            flag
        };
        match vendor {
            "" => self.write("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41"),
            _ => self.write(
                "/proc/cpuinfo",
                &format!("processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: {}\nflags\t\t: fpu {flag}{guest}", get("model")),
            ),
        }
        let chip = match (get("cpu"), get("irq")) {
            ("arm", _) => "ITS-PCI-MSI",
            (_, "plain") => "PCI-MSI",
            _ => "IR-PCI-MSI",
        };
        self.write(
            "/proc/interrupts",
            &format!("     CPU0\n 40:    17   {chip} 524288-edge   nvme0q0"),
        );
        if get("iommu") != "absent" {
            self.write(&format!("/sys/firmware/acpi/tables/{table}"), "");
        }
        self.write("/sys/firmware/acpi/tables/FACP", "");
        for index in 0..get("iommu").parse().unwrap_or(0) {
            fs::create_dir_all(self.path(&format!("/sys/class/iommu/{unit}{index}"))).unwrap();
        }
        if line.has("kvm") {
            self.write("/dev/kvm", "");
            let module = if vendor == "AuthenticAMD" {
                "kvm_amd"
            } else {
                "kvm_intel"
            };
            self.write(&format!("/sys/module/{module}/parameters/nested"), "Y");
        }
        match line.get("loader") {
            Some("grub") => {
                self.write("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=quiet");
                self.write("/usr/sbin/update-grub", "");
            }
            Some("grubby") => self.write("/usr/sbin/grubby", ""),
            _ => {}
        }
        match line.get("initramfs") {
            Some("tools") => {
                self.write("/usr/sbin/update-initramfs", "");
                self.write("/etc/initramfs-tools/modules", "# List of modules\nloop");
            }
            Some("dracut") => self.write("/usr/bin/dracut", ""),
            _ => {}
        }
        let cpus: u32 = line.get("cpus").unwrap_or("4").parse().unwrap();
        self.write("/sys/devices/system/cpu/online", &format!("0-{}", cpus - 1));
        self.write("/sys/devices/system/cpu/isolated", get("isolated"));
    }

    /// `node 0 cpus=0-3 siblings=8 memory=64 free=60 page1g=0/0 page2m=0/0`: memory in GiB; thread `n` shares its core with
    /// `n + siblings`.
    fn node(&self, line: &Line) {
        let id: u32 = line.names[0].parse().unwrap();
        let folder = format!("/sys/devices/system/node/node{id}");
        let cpus = line.get("cpus").unwrap();
        self.write(&format!("{folder}/cpulist"), cpus);
        self.write(
            &format!("{folder}/distance"),
            line.get("distance").unwrap_or("10"),
        );
        let kib = |key: &str| line.get(key).unwrap().parse::<u64>().unwrap() << 20;
        self.write(
            &format!("{folder}/meminfo"),
            &format!(
                "Node {id} MemTotal:       {} kB\nNode {id} MemFree:        {} kB",
                kib("memory"),
                kib("free")
            ),
        );
        for (key, kib) in [("page1g", 1 << 20), ("page2m", 2048)] {
            if let Some((total, free)) = line.get(key).and_then(|pages| pages.split_once('/')) {
                self.write(
                    &format!("{folder}/hugepages/hugepages-{kib}kB/nr_hugepages"),
                    total,
                );
                self.write(
                    &format!("{folder}/hugepages/hugepages-{kib}kB/free_hugepages"),
                    free,
                );
            }
        }
        let siblings: u32 = line.get("siblings").unwrap_or("0").parse().unwrap();
        let mut all = Vec::new();
        for part in cpus.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            all.extend(first.parse::<u32>().unwrap()..=last.parse::<u32>().unwrap());
        }
        for cpu in all {
            let topology = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
            let first = if siblings > 0 { cpu % siblings } else { cpu };
            let package = line.get("package").unwrap_or(&line.names[0]);
            self.write(&format!("{topology}/physical_package_id"), package);
            self.write(&format!("{topology}/core_id"), &first.to_string());
            let threads = if siblings > 0 {
                format!("{first},{}", first + siblings)
            } else {
                cpu.to_string()
            };
            self.write(&format!("{topology}/thread_siblings_list"), &threads);
        }
    }

    /// `disk nvme0n1 on=0000:01:00.0 number=259:0 mount=/`, `disk dm-0 over=sda2 number=253:0 mount=/ swap`.
    fn disk(&self, line: &Line) {
        let name = &line.names[0];
        let target = match line.get("on") {
            Some(address) => format!("../../{}/block/{name}", self.functions[address].folder()),
            None => format!("../../devices/virtual/block/{name}"),
        };
        let real = format!("/sys/{}", target.trim_start_matches("../../"));
        fs::create_dir_all(self.path(&real)).unwrap();
        self.link(&format!("/sys/class/block/{name}"), &target);
        if let Some(number) = line.get("number") {
            self.link(&format!("/sys/dev/block/{number}"), &target);
            if let Some(place) = line.get("mount") {
                self.append(
                    "/proc/self/mountinfo",
                    &format!("30 1 {number} / {place} rw - ext4 /dev/{name} rw"),
                );
            }
        }
        if let Some(below) = line.get("over") {
            self.write(&format!("{real}/slaves/{below}"), "");
        }
        if line.has("swap") {
            self.write(
                "/proc/swaps",
                &format!("Filename Type Size Used Priority\n/dev/{name} partition 1 0 -2"),
            );
        }
    }

    /// `process 812 nvidia-persistenced opens=/dev/nvidia0,/dev/nvidia1 service=nvidia-persistenced`.
    fn process(&self, line: &Line) {
        let folder = format!("/proc/{}", line.names[0]);
        self.write(&format!("{folder}/comm"), &line.names[1]);
        for (index, node) in line.get("opens").unwrap_or_default().split(',').enumerate() {
            self.link(&format!("{folder}/fd/{index}"), node);
        }
        if let Some(service) = line.get("service") {
            self.write(
                &format!("{folder}/cgroup"),
                &format!("0::/system.slice/{service}.service"),
            );
        }
    }

    fn bond(&self, line: &Line) {
        let name = &line.names[0];
        let folder = format!("/sys/devices/virtual/net/{name}");
        self.write(&format!("{folder}/address"), "02:00:00:00:00:01");
        self.write(&format!("{folder}/operstate"), "up");
        self.write(&format!("{folder}/flags"), "0x1403");
        self.link(
            &format!("/sys/class/net/{name}"),
            &format!("../../devices/virtual/net/{name}"),
        );
        for lower in line.get("over").unwrap().split(',') {
            self.link(&format!("{folder}/lower_{lower}"), &format!("../{lower}"));
        }
    }

    fn append(&self, path: &str, text: &str) {
        let before = fs::read_to_string(self.path(path)).unwrap_or_default();
        self.write(path, &format!("{before}{text}"));
    }
}
