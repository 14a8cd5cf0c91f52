//! One PCI function of a described machine.

use super::config::Space;
use super::{Line, Shape};
use std::fs;

#[derive(Clone, Debug)]
pub struct Function {
    pub address: String,
    /// The folder of the bus above, below `/sys`: `devices/pci0000:17/0000:17:01.0`.
    pub above: String,
    pub class: u32,
    pub vendor: u16,
    pub device: u16,
    pub space: Space,
    pub line: Line,
}

impl Function {
    /// `gpu 0000:19:00.0 under=0000:18:00.0 id=10de:2330 driver=nvidia node=0 group=12 ...`; a function without `under` lies
    /// on the root bus of its own address, or on `root=`.
    pub fn parse(line: &Line) -> Self {
        let address = line.names[0].clone();
        let (class, port) = match line.keyword.as_str() {
            "bridge" => (0x06_0400, Space::ROOT),
            "gpu" => (0x03_0200, Space::ENDPOINT),
            "net" => (0x02_0000, Space::ENDPOINT),
            "nvme" => (0x01_0802, Space::ENDPOINT),
            _ => (0x08_8000, Space::ENDPOINT),
        };
        let port = match line.get("port") {
            Some("up") => Space::UPSTREAM,
            Some("down") => Space::DOWNSTREAM,
            _ => port,
        };
        let hex = |text: &str| u16::from_str_radix(text, 16).unwrap();
        let (vendor, device) = line
            .get("id")
            .unwrap_or("8086:0001")
            .split_once(':')
            .unwrap();
        let root = line
            .get("root")
            .map_or_else(|| format!("pci{}", &address[..7]), str::to_owned);
        Self {
            above: format!("devices/{root}"),
            class: line
                .get("class")
                .map_or(class, |class| u32::from_str_radix(class, 16).unwrap()),
            vendor: hex(vendor),
            device: hex(device),
            space: Space {
                port,
                acs: line.get("acs").map(|acs| {
                    let (capabilities, control) = acs.split_once(':').unwrap();
                    (hex(capabilities), hex(control))
                }),
                ats: line.get("ats").map(|ats| ats == "on"),
                sriov: line.get("vfs").map(|total| {
                    let number = |key: &str| line.get(key).map_or(1, |text| text.parse().unwrap());
                    (total.parse().unwrap(), number("offset"), number("stride"))
                }),
            },
            line: line.clone(),
            address,
        }
    }

    /// Below `/sys`.
    pub fn folder(&self) -> String {
        format!("{}/{}", self.above, self.address)
    }

    /// From its folder up to `/sys/`.
    pub fn up(&self) -> String {
        "../".repeat(self.folder().split('/').count())
    }

    pub fn lay_out(&self, shape: &Shape) {
        let folder = format!("/sys/{}", self.folder());
        let file = |name: &str, contents: &str| shape.write(&format!("{folder}/{name}"), contents);
        let get = |key: &str| self.line.get(key);
        shape.link(
            &format!("/sys/bus/pci/devices/{}", self.address),
            &format!("../../../{}", self.folder()),
        );
        file("class", &format!("0x{:06x}", self.class));
        file("vendor", &format!("0x{:04x}", self.vendor));
        file("device", &format!("0x{:04x}", self.device));
        file("numa_node", get("node").unwrap_or("-1"));
        file("driver_override", get("override").unwrap_or("(null)"));
        let mut space = self.space.bytes(self.vendor, self.device);
        space.truncate(get("seen").map_or(4096, |seen| seen.parse().unwrap()));
        fs::write(shape.path(&format!("{folder}/config")), space).unwrap();
        if self.class >> 8 == 0x0300 {
            file(
                "boot_vga",
                if self.line.has("boot-vga") { "1" } else { "0" },
            );
        }
        if !self.line.has("no-reset") && self.class >> 8 != 0x0604 {
            file("reset", "");
        }
        let mut at = 0x10_0000_0000_u64;
        let bars: Vec<String> = get("bars")
            .unwrap_or_default()
            .split(',')
            .map(|size| match size {
                "" | "-" => format!("0x{:016x} 0x{:016x} 0x{:016x}", 0, 0, 0),
                size => {
                    let (number, unit) = size.split_at(size.len() - 1);
                    let bytes = number.parse::<u64>().unwrap()
                        << match unit {
                            "K" => 10,
                            "M" => 20,
                            _ => 30,
                        };
                    at += bytes;
                    format!(
                        "0x{:016x} 0x{:016x} 0x{:016x}",
                        at,
                        at + bytes - 1,
                        0x14_220c
                    )
                }
            })
            .collect();
        file("resource", &bars.join("\n"));
        if let Some((speed, width)) = get("link").and_then(|link| link.split_once('x')) {
            for (which, value) in [("current", speed), ("max", speed)] {
                file(
                    &format!("{which}_link_speed"),
                    &format!("{value} GT/s PCIe"),
                );
                file(&format!("{which}_link_width"), width);
            }
        }
        if let Some(driver) = get("driver") {
            self.bind(shape, driver);
        }
        if let Some(group) = get("group") {
            shape.link(
                &format!("{folder}/iommu_group"),
                &format!("{}kernel/iommu_groups/{group}", self.up()),
            );
            shape.write(
                &format!("/sys/kernel/iommu_groups/{group}/type"),
                get("domain").unwrap_or("DMA-FQ"),
            );
        }
        if let Some((total, offset, stride)) = self.space.sriov {
            for (name, value) in [
                ("totalvfs", total),
                ("numvfs", 0),
                ("offset", offset),
                ("stride", stride),
                ("drivers_autoprobe", 1),
            ] {
                file(&format!("sriov_{name}"), &value.to_string());
            }
            if let Some((_, device)) = get("vfid").and_then(|id| id.split_once(':')) {
                file("sriov_vf_device", device);
            }
        }
        for index in 0..get("count").map_or(0, |count| count.parse().unwrap()) {
            self.virtual_function(shape, index);
        }
        if let Some(name) = get("if") {
            self.interface(shape, name);
        }
        if let Some(name) = get("ctrl") {
            shape.write(&format!("{folder}/nvme/{name}/cntlid"), "0");
            shape.link(
                &format!("/sys/class/nvme/{name}"),
                &format!("../../{}/nvme/{name}", self.folder()),
            );
        }
        // What the controllers of a drive share: `shares=QUEUES:INTERRUPTS`, all of it the physical function's. The names are in the
        // order of what a fake kernel writes.
        if let (Some(name), Some((queues, interrupts))) = (
            get("ctrl"),
            get("shares").and_then(|shares| shares.split_once(':')),
        ) {
            let primary = format!("[{queues},{interrupts}]");
            shape.write(
                &format!("/fake/{name}"),
                &format!(
                    r#"{{"functions":{{}},"next":{primary},"primary":{primary},"total":{primary}}}"#
                ),
            );
        }
        if let Some(name) = get("rdma") {
            self.rdma(shape, name);
        }
        if let Some(minor) = get("minor") {
            let proc = "/proc/driver/nvidia";
            shape.write(
                &format!("{proc}/gpus/{}/information", self.address),
                &format!("Model: NVIDIA\nDevice Minor: \t {minor}"),
            );
            if self.line.has("mig") {
                shape.write(
                    &format!("{proc}/capabilities/gpu{minor}/mig/gi1/access"),
                    "",
                );
            }
        }
    }

    /// A virtual function that was there from the start; those that `vfstub` lists are set aside.
    fn virtual_function(&self, shape: &Shape, index: u32) {
        let get = |key: &str| self.line.get(key);
        let is_stub = get("vfstub").is_some_and(|list| {
            list.split(',')
                .any(|set_aside| set_aside == index.to_string())
        });
        let function = self.make_virtual(
            shape,
            index,
            if is_stub {
                Some("vfio-pci")
            } else {
                get("vfdriver")
            },
        );
        if is_stub {
            shape.write(
                &format!("/sys/{}/driver_override", function.folder()),
                "vfio-pci",
            );
        }
        shape.write(
            &format!("/sys/{}/sriov_numvfs", self.folder()),
            &(index + 1).to_string(),
        );
    }

    /// Makes a virtual function, as the kernel does it: a folder and a link each way, and a driver when one is to take it.
    pub fn make_virtual(&self, shape: &Shape, index: u32, driver: Option<&str>) -> Self {
        let (total, offset, stride) = self.space.sriov.unwrap();
        assert!(index < total.into());
        let id = self.requester() + u32::from(offset) + u32::from(stride) * index;
        let (bus, slot, number) = (id >> 8, id >> 3 & 0x1f, id & 7);
        let address = format!("{}:{bus:02x}:{slot:02x}.{number}", &self.address[..4]);
        let get = |key: &str| self.line.get(key);
        let group: u32 =
            get("vfgroup").map_or(1000 + id, |group| group.parse::<u32>().unwrap() + index);
        let mut text = format!(
            "device {address} class={:06x} id={} node={} group={group} bars=1M",
            self.class,
            get("vfid").unwrap_or("ffff:ffff"),
            get("node").unwrap_or("-1"),
        );
        if let Some(driver) = driver {
            text.push_str(&format!(" driver={driver}"));
        }
        let mut function = Self::parse(&Line::parse(&text).unwrap());
        function.above = self.above.clone();
        function.lay_out(shape);
        shape.link(
            &format!("/sys/{}/physfn", function.folder()),
            &format!("../{}", self.address),
        );
        shape.link(
            &format!("/sys/{}/virtfn{index}", self.folder()),
            &format!("../{address}"),
        );
        function
    }

    fn requester(&self) -> u32 {
        let hex = |at: std::ops::Range<usize>| u32::from_str_radix(&self.address[at], 16).unwrap();
        hex(5..7) << 8 | hex(8..10) << 3 | hex(11..12)
    }

    pub fn bind(&self, shape: &Shape, driver: &str) {
        shape.link(
            &format!("/sys/{}/driver", self.folder()),
            &format!("{}bus/pci/drivers/{driver}", self.up()),
        );
        for name in ["bind", "unbind"] {
            shape.write(&format!("/sys/bus/pci/drivers/{driver}/{name}"), "");
        }
        shape.write(
            &format!("/sys/module/{}/initstate", driver.replace('-', "_")),
            "live",
        );
    }

    fn interface(&self, shape: &Shape, name: &str) {
        let folder = format!("/sys/{}/net/{name}", self.folder());
        let is_up = self.line.has("up");
        let tail: String = self
            .address
            .bytes()
            .filter(u8::is_ascii_hexdigit)
            .rev()
            .take(4)
            .map(char::from)
            .collect();
        let mac = format!("b8:59:9f:00:{}:{}", &tail[..2], &tail[2..]);
        shape.write(&format!("{folder}/address"), &mac);
        shape.write(
            &format!("{folder}/operstate"),
            if is_up { "up" } else { "down" },
        );
        shape.write(
            &format!("{folder}/flags"),
            if is_up { "0x1003" } else { "0x1002" },
        );
        if name.starts_with("ib") {
            shape.write(&format!("{folder}/mode"), "datagram");
        }
        shape.link(
            &format!("{folder}/device"),
            &format!("../../../{}", self.address),
        );
        shape.link(
            &format!("/sys/class/net/{name}"),
            &format!("../../{}/net/{name}", self.folder()),
        );
    }

    /// `rdma=mlx5_0 port=ACTIVE layer=InfiniBand lid=4 sm=1`; on Ethernet there are no local ids.
    fn rdma(&self, shape: &Shape, name: &str) {
        let folder = format!("/sys/{}/infiniband/{name}", self.folder());
        let file = |name: &str, contents: &str| shape.write(&format!("{folder}/{name}"), contents);
        let get = |key: &str, or: &str| self.line.get(key).unwrap_or(or).to_owned();
        file("node_guid", "b859:9f03:0000:1000");
        file("fw_ver", &get("firmware", "28.39.1002"));
        file("ports/1/state", &get("state", "4: ACTIVE"));
        file("ports/1/link_layer", &get("layer", "InfiniBand"));
        file("ports/1/rate", &get("rate", "400 Gb/sec (4X NDR)"));
        file("ports/1/lid", &get("lid", "0x4"));
        file("ports/1/sm_lid", &get("sm", "0x1"));
        file("ports/1/gids/0", "fe80:0000:0000:0000:b859:9f03:0000:1001");
        for (index, key) in get("pkeys", "0xffff").split(',').enumerate() {
            file(&format!("ports/1/pkeys/{index}"), key);
        }
        shape.link(
            &format!("{folder}/device"),
            &format!("../../../{}", self.address),
        );
        shape.link(
            &format!("/sys/class/infiniband/{name}"),
            &format!("../../{}/infiniband/{name}", self.folder()),
        );
    }
}
