//! The same plan as OpenStack's configuration: Nova's devices and aliases, a flavor, Neutron's ports.
//!
//! The host is prepared as for libvirt, but for the driver of the network's virtual functions: Nova and Neutron bind those themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::address::PciAddress;
use crate::host::{Host, Locality};
use crate::plan::{Plan, Vf};
use crate::request::Affinity;

/// The pieces, each for its file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OpenStack {
    /// For `nova.conf` of the compute node and, but for `device_spec`, of the API.
    pub nova: String,
    /// For `sriov_agent.ini` of the compute node.
    pub neutron_agent: String,
    /// Commands that make the flavor, the network's ports and the servers.
    pub commands: String,
}

/// Nova asks for functions by their device number, and nobody tells it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the device number of the functions of {0} is not known: look at the host as root, with a kernel that has sriov_vf_device (4.14)"
)]
pub struct UnknownFunctions(PciAddress);

/// What a plan means to OpenStack. `network` is the physical network's name in Neutron.
///
/// # Errors
///
/// When it is not known what the functions of a drive are.
pub fn openstack(host: &Host, plan: &Plan, network: &str) -> Result<OpenStack, UnknownFunctions> {
    let mut specs: Vec<Value> = Vec::new();
    let mut aliases: BTreeMap<String, Value> = BTreeMap::new();
    let gpus: BTreeSet<_> = plan.vms.iter().flat_map(|vm| &vm.gpus).copied().collect();
    let policy = match plan.request.affinity {
        Affinity::Strict => "required",
        Affinity::Preferred => "preferred",
    };
    for device in gpus.iter().filter_map(|&gpu| host.device(gpu)) {
        specs.push(json!({ "address": device.address.to_string() }));
        // A GPU that can have virtual functions counts as a physical one.
        let kind = match device.sriov {
            Some(_) => "type-PF",
            None => "type-PCI",
        };
        let name = alias("gpu", device.vendor, device.device);
        let value = alias_value(&name, device.vendor, device.device, kind, policy);
        aliases.insert(name, value);
    }
    for function in plan.vms.iter().flat_map(|vm| &vm.drives) {
        // By its own address: the drive's would give the host's disk away with it.
        specs.push(json!({ "address": function.address.to_string() }));
        let (vendor, product) = function_id(host, function)?;
        let name = alias("drive", vendor, product);
        let value = alias_value(&name, vendor, product, "type-VF", policy);
        aliases.insert(name, value);
    }
    let adapters: BTreeSet<_> = plan
        .vms
        .iter()
        .flat_map(|vm| &vm.vfs)
        .map(|function| function.physical)
        .collect();
    let mut mappings = Vec::new();
    for adapter in adapters.iter().filter_map(|&adapter| host.device(adapter)) {
        if let Some(interface) = adapter.interfaces.first() {
            specs.push(json!({ "devname": interface, "physical_network": network }));
            mappings.push(format!("{network}:{interface}"));
        }
    }
    let mut nova = "[pci]\n".to_owned();
    for spec in &specs {
        let _ = writeln!(nova, "device_spec = {spec}");
    }
    for alias in aliases.values() {
        let _ = writeln!(nova, "alias = {alias}");
    }
    let cpus: BTreeSet<u32> = plan
        .vms
        .iter()
        .flat_map(|vm| &vm.cells)
        .flat_map(|cell| cell.cpus.iter().copied())
        .collect();
    let cpus: Vec<u32> = cpus.into_iter().collect();
    let _ = writeln!(
        nova,
        "\n[compute]\ncpu_dedicated_set = {}",
        crate::root::list(&cpus)
    );
    nova.push_str("\n[filter_scheduler]\n# Add NUMATopologyFilter and PciPassthroughFilter to enabled_filters.\n");
    let neutron_agent = format!(
        "[sriov_nic]\nphysical_device_mappings = {}\n",
        mappings.join(",")
    );
    Ok(OpenStack {
        nova,
        neutron_agent,
        commands: commands(host, plan, network)?,
    })
}

fn alias(what: &str, vendor: u16, product: u16) -> String {
    format!("{what}-{vendor:04x}-{product:04x}")
}

fn alias_value(name: &str, vendor: u16, product: u16, kind: &str, policy: &str) -> Value {
    json!({
        "name": name,
        "vendor_id": format!("{vendor:04x}"),
        "product_id": format!("{product:04x}"),
        "device_type": kind,
        "numa_policy": policy,
    })
}

/// What a virtual function is, whether it is there yet or not.
fn function_id(host: &Host, function: &Vf) -> Result<(u16, u16), UnknownFunctions> {
    let unknown = || UnknownFunctions(function.physical);
    let physical = host.device(function.physical).ok_or_else(unknown)?;
    let present = host.device(function.address).map(|present| present.device);
    let told = physical.sriov.as_ref().and_then(|sriov| sriov.device);
    Ok((physical.vendor, present.or(told).ok_or_else(unknown)?))
}

fn commands(host: &Host, plan: &Plan, network: &str) -> Result<String, UnknownFunctions> {
    let Some(vm) = plan.vms.first() else {
        return Ok(String::new());
    };
    let request = &plan.request;
    let cpus: usize = vm.cells.iter().map(|cell| cell.cpus.len()).sum();
    let memory_mib: u64 = vm.cells.iter().map(|cell| cell.memory_kib >> 10).sum();
    let mut properties = vec![
        "hw:cpu_policy=dedicated".to_owned(),
        "hw:emulator_threads_policy=share".to_owned(),
        format!("hw:numa_nodes={}", vm.cells.len()),
        format!("hw:mem_page_size={}", vm.page_kib),
    ];
    if vm.cells.iter().any(|cell| cell.threads > 1) {
        properties.push("hw:cpu_thread_policy=require".to_owned());
    }
    let affinity = match (request.affinity, vm.locality) {
        (Affinity::Strict, Some(Locality::Host)) | (Affinity::Preferred, _) => "preferred",
        _ => "required",
    };
    properties.push(format!("hw:pci_numa_affinity_policy={affinity}"));
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for gpu in vm.gpus.iter().filter_map(|&gpu| host.device(gpu)) {
        *kinds
            .entry(alias("gpu", gpu.vendor, gpu.device))
            .or_default() += 1;
    }
    for function in &vm.drives {
        let (vendor, product) = function_id(host, function)?;
        *kinds.entry(alias("drive", vendor, product)).or_default() += 1;
    }
    if !kinds.is_empty() {
        let kinds: Vec<String> = kinds
            .iter()
            .map(|(name, count)| format!("{name}:{count}"))
            .collect();
        properties.push(format!("pci_passthrough:alias={}", kinds.join(",")));
    }
    let flavor = format!("{}.flavor", request.name);
    let mut text =
        format!("openstack flavor create {flavor} --vcpus {cpus} --ram {memory_mib} --disk 40\n");
    for property in &properties {
        let _ = writeln!(text, "openstack flavor set {flavor} --property {property}");
    }
    let _ = writeln!(
        text,
        "openstack network create {network} --provider-physical-network {network} --provider-network-type vlan"
    );
    for vm in &plan.vms {
        let mut nics = String::from(" --network management");
        for (number, function) in vm.vfs.iter().enumerate() {
            let port = format!("{}-{number}", vm.name);
            let mac = function
                .mac
                .as_ref()
                .map(|mac| format!(" --mac-address {mac}"))
                .unwrap_or_default();
            let _ = writeln!(
                text,
                "openstack port create {port} --network {network} --vnic-type direct{mac}"
            );
            let _ = write!(nics, " --port {port}");
        }
        let _ = writeln!(
            text,
            "openstack server create {} --flavor {flavor} --image IMAGE{nics}",
            vm.name
        );
    }
    Ok(text)
}
