//! Virtual functions: how many, who they are, and what the network has to have for them.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::{Draft, Obstacle, Vf, Vm};
use crate::address::PciAddress;
use crate::host::{Device, Host};
use crate::request::Request;
use crate::step::{Action, Class, Form, Step};

/// What the addresses of a function are made of: the same for the same host and machine each time.
pub(super) fn identity(host: &str, name: &str) -> [u8; 6] {
    let hash = Sha256::digest(format!("{host}/{name}"));
    let mut bytes = [0; 6];
    bytes.copy_from_slice(hash.get(..6).expect("a SHA-256 hash has 32 bytes"));
    bytes
}

/// Locally administered, of one station.
pub(super) fn mac(mut bytes: [u8; 6]) -> String {
    bytes[0] = 0x02;
    colons(&bytes)
}

/// Of the node and of its port; both have to be set, and none may be zero.
pub(super) fn guids(bytes: [u8; 6]) -> (String, String) {
    let [_, a, b, c, d, e] = bytes;
    let guid = |last| colons(&[0x02, a, b, 0xff, c, d, e, last]);
    (guid(0), guid(1))
}

fn colons(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

pub(super) fn steps(host: &Host, request: &Request, vms: &[Vm], draft: &mut Draft) {
    let mut adapters: BTreeMap<PciAddress, Vec<&Vf>> = BTreeMap::new();
    for function in vms.iter().flat_map(|vm| &vm.vfs) {
        adapters
            .entry(function.physical)
            .or_default()
            .push(function);
    }
    for (address, functions) in adapters {
        if let Some(adapter) = host.device(address) {
            fabric(host, request, adapter, draft);
            if waits_for_start(adapter, &functions) {
                draft.notes.push(format!(
                    "GUIDs of the functions of {address} are set after the next start, in \
                     /sys/class/infiniband/{}/iov/ports/1/admin_guids/",
                    adapter.rdma.first().map_or("mlx4_0", String::as_str)
                ));
                continue;
            }
            if let Some(actions) = create(host, adapter, &functions, draft) {
                draft.steps.push(Step {
                    title: format!("make virtual functions of {address}"),
                    reason: "a machine gets a function of the adapter for itself; drivers of the host are kept off".to_owned(),
                    class: Class::Runtime,
                    actions,
                });
            }
            let actions = identify(host, request, adapter, &functions, draft);
            if !actions.is_empty() {
                draft.steps.push(Step {
                    title: format!("give the virtual functions of {address} their addresses"),
                    reason: "without them functions have random or zero addresses, and networks refuse zero GUIDs".to_owned(),
                    class: Class::Runtime,
                    actions,
                });
            }
        }
    }
}

/// How many functions an adapter has to have, when it has fewer.
pub(super) fn missing(adapter: &Device, functions: &[&Vf]) -> Option<u32> {
    let sriov = adapter.sriov.as_ref()?;
    let wanted = functions
        .iter()
        .map(|function| function.index.saturating_add(1))
        .max()?;
    (sriov.count < wanted).then_some(wanted)
}

/// Whether functions come with the next start only: older ConnectX cards have no other way.
fn waits_for_start(adapter: &Device, functions: &[&Vf]) -> bool {
    adapter.driver.as_deref() == Some("mlx4_core") && missing(adapter, functions).is_some()
}

/// Whether a function that is there has to go before it is there again among more.
pub(super) fn is_made_anew(host: &Host, vms: &[Vm], function: &Vf) -> bool {
    let of_adapter: Vec<&Vf> = vms
        .iter()
        .flat_map(Vm::functions)
        .filter(|other| other.physical == function.physical)
        .collect();
    host.device(function.physical)
        .is_some_and(|adapter| missing(adapter, &of_adapter).is_some())
}

/// The number can only go from or to 0 (EBUSY otherwise).
pub(super) fn create(
    host: &Host,
    adapter: &Device,
    functions: &[&Vf],
    draft: &mut Draft,
) -> Option<Vec<Action>> {
    let sriov = adapter.sriov.as_ref()?;
    let wanted = missing(adapter, functions)?;
    if adapter.driver.is_none() {
        draft.obstacles.push(Obstacle::new(
            format!(
                "adapter {} has no driver, and only its driver makes virtual functions",
                adapter.address
            ),
            "load its driver",
        ));
        return None;
    }
    let file = |name: &str| format!("/sys/bus/pci/devices/{}/{name}", adapter.address);
    let write = |name: &str, from: &str, to: &str| Action::Attribute {
        path: file(name),
        from: from.to_owned(),
        to: to.to_owned(),
        form: Form::Exact,
    };
    let mut actions = Vec::new();
    if sriov.autoprobe {
        actions.push(write("sriov_drivers_autoprobe", "1", "0"));
    }
    if sriov.count > 0 {
        draft.notes.push(format!(
            "the {} virtual functions of {} are made anew: addresses that were set for them are lost, and undo does not bring them back",
            sriov.count, adapter.address
        ));
        for function in sriov
            .functions
            .iter()
            .filter_map(|&function| host.device(function))
        {
            actions.extend(release(function));
        }
        actions.push(write("sriov_numvfs", &sriov.count.to_string(), "0"));
    }
    actions.push(write("sriov_numvfs", "0", &wanted.to_string()));
    Some(actions)
}

/// Takes a function from its driver so that undoing it gives it back.
fn release(function: &Device) -> Vec<Action> {
    let mut actions = Vec::new();
    if let Some(driver) = &function.driver {
        actions.push(Action::Unbind {
            device: function.address,
            driver: driver.clone(),
        });
    }
    if let Some(named) = &function.driver_override {
        actions.push(Action::Attribute {
            path: format!("/sys/bus/pci/devices/{}/driver_override", function.address),
            from: named.clone(),
            to: String::new(),
            form: Form::DriverName,
        });
    }
    actions
}

fn identify(
    host: &Host,
    request: &Request,
    adapter: &Device,
    functions: &[&Vf],
    draft: &mut Draft,
) -> Vec<Action> {
    let Some(interface) = adapter.interfaces.first() else {
        draft.notes.push(format!(
            "adapter {} has no network interface: the addresses of its functions cannot be set from here",
            adapter.address
        ));
        return Vec::new();
    };
    let is_up = host
        .interfaces
        .iter()
        .any(|known| known.name == *interface && known.is_up);
    let mut actions = Vec::new();
    if !is_up {
        let interface = interface.clone();
        actions.push(Action::InterfaceUp { interface });
    }
    let stays = missing(adapter, functions).is_none();
    for function in functions {
        let mut set = |setting: &str, to: &str| {
            actions.push(Action::VirtualFunction {
                interface: interface.clone(),
                index: function.index,
                setting: setting.to_owned(),
                to: to.to_owned(),
                stays,
            });
        };
        if let Some(mac) = &function.mac {
            set("mac", mac);
        }
        if let Some((node, port)) = &function.guids {
            set("node_guid", node);
            set("port_guid", port);
        }
        if request.trust {
            set("trust", "on");
        }
    }
    actions
}

/// What InfiniBand needs of its network: a subnet manager, the partition, and IPoIB on the host for looking at it.
fn fabric(host: &Host, request: &Request, adapter: &Device, draft: &mut Draft) {
    let ports = host
        .rdma
        .iter()
        .filter(|rdma| rdma.address == Some(adapter.address))
        .flat_map(|rdma| rdma.ports.iter().map(move |port| (rdma, port)))
        .filter(|(_, port)| port.link_layer == "InfiniBand");
    for (rdma, port) in ports {
        let name = format!("{} port {}", rdma.name, port.number);
        if port.state != "ACTIVE" {
            draft.obstacles.push(Obstacle::new(
                format!("{name} is {}", port.state),
                match port.state.as_str() {
                    "INIT" => {
                        "no subnet manager has set it up: start opensm on one host of the network"
                    }
                    _ => "check the cable and the switch",
                },
            ));
        } else if port.subnet_manager == 0 {
            draft.obstacles.push(Obstacle::new(
                format!("{name} knows no subnet manager"),
                "start opensm on one host of the network",
            ));
        }
        if let Some(key) = request.partition_key {
            // The upper bit tells full members from limited ones.
            let is_member = port.partition_keys.iter().any(|known| {
                let known = known
                    .strip_prefix("0x")
                    .and_then(|known| u16::from_str_radix(known, 16).ok());
                known.is_some_and(|known| known & 0x7fff == key & 0x7fff)
            });
            if !is_member {
                draft.obstacles.push(Obstacle::new(
                    format!("{name} is no member of partition {key:#06x} (it has {})", port.partition_keys.join(" ")),
                    "add its GUID and those of the functions to the partition in the subnet manager's partitions.conf",
                ));
            }
        }
        draft.notes.push(
            "the subnet manager has to know virtual ports (opensm: virt_enabled 2), else functions on InfiniBand stay down".to_owned(),
        );
        let ipoib = host
            .interfaces
            .iter()
            .any(|known| known.address == Some(adapter.address) && known.ipoib.is_some());
        if !ipoib {
            draft
                .notes
                .push(format!("{name} has no IPoIB interface (module ib_ipoib)"));
        }
    }
}
