//! Network interfaces and RDMA devices.

use std::collections::BTreeSet;

use crate::address::PciAddress;
use crate::host::{Interface, Rdma, RdmaPort};
use crate::root::Root;

const NET: &str = "/sys/class/net";
const INFINIBAND: &str = "/sys/class/infiniband";
/// `IFF_UP` (`include/uapi/linux/if.h`).
const UP: u32 = 1;
/// A partition table has up to this many entries that are in use.
const MAX_KEYS: usize = 32;

pub(super) fn interfaces(root: &Root) -> Vec<Interface> {
    let routes = default_routes(root);
    root.entries(NET)
        .into_iter()
        .filter(|name| root.exists(&format!("{NET}/{name}/address")))
        .map(|name| {
            let file = |file: &str| format!("{NET}/{name}/{file}");
            let flags = root.hexadecimal(&file("flags")).unwrap_or(0);
            Interface {
                address: pci_of(root, &file("device")),
                mac: root.text(&file("address")).unwrap_or_default(),
                state: root.text(&file("operstate")).unwrap_or_default(),
                is_up: flags & UP != 0,
                master: root.link_name(&file("master")),
                is_default_route: routes.contains(&name),
                ipoib: root.text(&file("mode")),
                name,
            }
        })
        .collect()
}

/// The PCI function that a `device` link points at; a virtio device lies one folder below its function.
fn pci_of(root: &Root, link: &str) -> Option<PciAddress> {
    root.link(link)?
        .rsplit('/')
        .find_map(|part| part.parse().ok())
}

/// The interfaces of default routes, and those that they are made of.
fn default_routes(root: &Root) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in root.text("/proc/net/route").unwrap_or_default().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [name, "00000000", _, _, _, _, _, "00000000", ..] = words[..] {
            names.insert(name.to_owned());
        }
    }
    for line in root
        .text("/proc/net/ipv6_route")
        .unwrap_or_default()
        .lines()
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [destination, "00", .., name] = words[..]
            && destination.bytes().all(|byte| byte == b'0')
            && name != "lo"
        {
            names.insert(name.to_owned());
        }
    }
    // Bonds, bridges and VLANs are made of others. Each is visited once.
    let mut waiting: Vec<String> = names.iter().cloned().collect();
    while let Some(name) = waiting.pop() {
        for entry in root.entries(&format!("{NET}/{name}")) {
            if let Some(lower) = entry.strip_prefix("lower_")
                && names.insert(lower.to_owned())
            {
                waiting.push(lower.to_owned());
            }
        }
    }
    names
}

pub(super) fn rdma(root: &Root) -> Vec<Rdma> {
    root.entries(INFINIBAND)
        .into_iter()
        .map(|name| {
            let file = |file: &str| format!("{INFINIBAND}/{name}/{file}");
            let text = |path: &str| root.text(&file(path)).unwrap_or_default();
            Rdma {
                address: pci_of(root, &file("device")),
                node_guid: text("node_guid"),
                firmware: text("fw_ver"),
                ports: root
                    .entries(&file("ports"))
                    .iter()
                    .filter_map(|number| {
                        Some(port(
                            root,
                            number.parse().ok()?,
                            &file(&format!("ports/{number}")),
                        ))
                    })
                    .collect(),
                name,
            }
        })
        .collect()
}

fn port(root: &Root, number: u32, folder: &str) -> RdmaPort {
    let text = |name: &str| root.text(&format!("{folder}/{name}")).unwrap_or_default();
    // "4: ACTIVE"
    let state = text("state");
    // "fe80:0000:0000:0000:506b:4b03:005c:d9a6": the lower half is the port's GUID.
    let gid = text("gids/0");
    let guid: Vec<&str> = gid.split(':').skip(4).collect();
    let keys: BTreeSet<String> = root
        .entries(&format!("{folder}/pkeys"))
        .iter()
        .take(MAX_KEYS)
        .map(|index| text(&format!("pkeys/{index}")))
        .filter(|key| !key.is_empty() && key != "0x0000")
        .collect();
    let id = |name: &str| root.hexadecimal(&format!("{folder}/{name}")).unwrap_or(0);
    RdmaPort {
        number,
        state: state
            .split_once(": ")
            .map_or(state.clone(), |(_, name)| name.to_owned()),
        link_layer: text("link_layer"),
        rate: text("rate"),
        guid: guid.join(":"),
        lid: id("lid"),
        subnet_manager: id("sm_lid"),
        partition_keys: keys.into_iter().collect(),
    }
}
