//! Which machine gets which devices, processors and memory.
//!
//! Machines are placed one after the other. Each goes into the smallest part of the host that has all it needs: what is below one
//! switch, else below one root complex, else on one NUMA node, else, with `affinity = "preferred"`, the whole host. Among parts
//! of one size it takes the one that fits best, then the first, so that the same host gives the same plan.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cell, Draft, Obstacle, Vf, Vm};
use crate::address::PciAddress;
use crate::host::{Device, Host, Kind, Locality, Use};
use crate::picture::{is_infiniband, size};
use crate::request::{Affinity, Request};

/// What the host keeps of each node's memory.
const HOST_KIB: u64 = 1 << 20;
const GIB_KIB: u64 = 1 << 20;

/// What is left to give.
struct Pool<'a> {
    gpus: Vec<&'a Device>,
    /// Physical functions, and how many virtual functions of each are given.
    adapters: Vec<(&'a Device, u32)>,
    /// The same of NVMe drives.
    drives: Vec<(&'a Device, u32)>,
    /// Free cores of each node, by their threads.
    cores: BTreeMap<u32, Vec<Vec<u32>>>,
    /// Processors that stay with the host, by node.
    host_cpus: BTreeMap<u32, Vec<u32>>,
    memory_kib: BTreeMap<u32, u64>,
}

/// A part of the host.
struct Part<'a> {
    locality: Locality,
    gpus: Vec<&'a Device>,
    /// Positions in the pool.
    adapters: Vec<usize>,
    /// Free virtual functions, all adapters together.
    functions: u32,
    nodes: Vec<u32>,
}

pub(super) fn vms(host: &Host, request: &Request, draft: &mut Draft) -> Vec<Vm> {
    let page_kib = page_kib(host, request, draft);
    let mut refused = Vec::new();
    let mut pool = Pool {
        gpus: eligible(host, request, Kind::Gpu, &mut refused),
        adapters: Vec::new(),
        drives: Vec::new(),
        cores: BTreeMap::new(),
        host_cpus: BTreeMap::new(),
        memory_kib: BTreeMap::new(),
    };
    if request.vfs > 0 {
        let adapters = eligible(host, request, Kind::Network, &mut refused);
        pool.adapters = adapters.into_iter().map(|adapter| (adapter, 0)).collect();
    }
    if request.drives > 0 {
        let drives = eligible(host, request, Kind::Storage, &mut refused);
        pool.drives = drives.into_iter().map(|drive| (drive, 0)).collect();
    }
    for node in &host.nodes {
        let mut cores: Vec<Vec<u32>> = host
            .cpus
            .cores
            .iter()
            .filter(|core| core.node == node.id)
            .map(|core| core.threads.clone())
            .collect();
        let kept = cores.len().min(request.host_cores as usize);
        let free = cores.split_off(kept);
        pool.host_cpus
            .insert(node.id, cores.into_iter().flatten().collect());
        pool.cores.insert(node.id, free);
        let reserved: u64 = node
            .pools
            .iter()
            .map(|pages| pages.free.saturating_mul(pages.page_kib))
            .sum();
        pool.memory_kib.insert(
            node.id,
            node.free_kib
                .saturating_sub(HOST_KIB)
                .saturating_add(reserved),
        );
    }
    let mut vms = Vec::new();
    for index in 0..request.vms {
        match place(host, request, &mut pool, index, page_kib) {
            Some(vm) => vms.push(vm),
            None => {
                draft.obstacles.push(lack(host, request, &pool, vms.len()));
                draft.obstacles.append(&mut refused);
                break;
            }
        }
    }
    vms
}

/// The size asked for, or the largest that divides the memory.
fn page_kib(host: &Host, request: &Request, draft: &mut Draft) -> u64 {
    let mut sizes: Vec<u64> = host
        .nodes
        .iter()
        .flat_map(|node| &node.pools)
        .map(|pool| pool.page_kib)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let fits = |size: &u64| *size > 0 && request.memory.kib().is_multiple_of(*size);
    let found =
        match request.page {
            Some(page) => sizes
                .iter()
                .copied()
                .find(|&size| size == page.kib())
                .filter(|size| fits(size)),
            // Each cell of a machine needs whole pages; 2 GiB and more is worth pages of 1 GiB.
            None => sizes.iter().rev().copied().find(|size| {
                fits(size) && (*size < GIB_KIB || request.memory.kib() >= 2 * GIB_KIB)
            }),
        };
    found.unwrap_or_else(|| {
        let sizes: Vec<String> = sizes.iter().map(|kib| size(kib << 10)).collect();
        let remedy = match sizes.is_empty() {
            true => "start a kernel with huge pages (CONFIG_HUGETLBFS)".to_owned(),
            false => format!(
                "ask for memory in multiples of a size that there is: {}",
                sizes.join(", ")
            ),
        };
        draft.obstacles.push(Obstacle::new(
            "there are no huge pages that the memory asked for is whole in",
            remedy,
        ));
        GIB_KIB
    })
}

/// The devices that could be given away; why others could not goes to `refused`.
fn eligible<'a>(
    host: &'a Host,
    request: &Request,
    kind: Kind,
    refused: &mut Vec<Obstacle>,
) -> Vec<&'a Device> {
    let mut found = Vec::new();
    for device in &host.devices {
        // Of what holds disks only NVMe drives have functions to give.
        let is_candidate = device.kind == kind
            && device.physical_function.is_none()
            && (kind != Kind::Storage || device.nvme.is_some());
        let is_named = request.only.is_empty() || request.only.contains(&device.address);
        if !is_candidate || !is_named || request.exclude.contains(&device.address) {
            continue;
        }
        let reason = match kind {
            Kind::Gpu => gpu_obstacle(host, request, device),
            _ => functions_obstacle(host, request, device),
        };
        match reason {
            None => found.push(device),
            Some(obstacle) => refused.push(obstacle),
        }
    }
    found
}

fn gpu_obstacle(host: &Host, request: &Request, device: &Device) -> Option<Obstacle> {
    let address = device.address;
    if let Some(obstacle) = use_obstacle(host, request, device) {
        return Some(obstacle);
    }
    for companion in host.companions(device) {
        let goes_along = companion.address.is_same_device(address)
            || companion.driver.is_none()
            || companion.is_set_aside();
        if !goes_along {
            let group = device.group.unwrap_or_default();
            return Some(Obstacle::new(
                format!(
                    "GPU {address} shares IOMMU group {group} with {}, which {} drives",
                    companion.address,
                    companion.driver.as_deref().unwrap_or_default()
                ),
                group_remedy(host, device),
            ));
        }
        if let Some(obstacle) = use_obstacle(host, request, companion) {
            return Some(obstacle);
        }
    }
    None
}

fn group_remedy(host: &Host, device: &Device) -> String {
    let port = device
        .path
        .iter()
        .filter_map(|&port| host.device(port))
        .find(|port| port.acs.is_none());
    match port {
        Some(port) => format!(
            "{} has no ACS, so that what is below it cannot be kept apart: switch ACS on in the firmware's setup if it is there, \
             else put the device into a slot of its own root port",
            port.address
        ),
        None => "put the device into a slot of its own root port, or give the other one away too"
            .to_owned(),
    }
}

/// Why an adapter or a drive cannot give virtual functions.
fn functions_obstacle(host: &Host, request: &Request, device: &Device) -> Option<Obstacle> {
    let address = device.address;
    let what = match device.kind {
        Kind::Storage => "drive",
        _ => "adapter",
    };
    let Some(sriov) = &device.sriov else {
        let remedy = match device.vendor {
            0x15b3 => format!(
                "if the card can: mlxconfig -d {address} set SRIOV_EN=1 NUM_OF_VFS={}, then a cold restart",
                request.vfs.saturating_mul(request.vms).max(8)
            ),
            _ => format!("switch on SR-IOV in the firmware's setup, or use another {what}"),
        };
        return Some(Obstacle::new(
            format!("{what} {address} has no virtual functions"),
            remedy,
        ));
    };
    // What only the virtual functions' users need does not stand in the way; whoever needs the way out of the host does.
    let vital: Vec<String> = device
        .uses
        .iter()
        .filter(|by| by.is_vital())
        .map(ToString::to_string)
        .collect();
    if !vital.is_empty() && !request.take_in_use.contains(&address) {
        return Some(in_use(&format!("{what} {address}"), address, &vital));
    }
    let others: Vec<String> = host
        .companions(device)
        .iter()
        .filter(|other| !sriov.functions.contains(&other.address))
        .map(|other| other.address.to_string())
        .collect();
    if !others.is_empty() {
        return Some(Obstacle::new(
            format!(
                "the virtual functions of {address} would be in one IOMMU group with it and {}",
                others.join(", ")
            ),
            group_remedy(host, device),
        ));
    }
    // The kernel puts a function where it put the port above, as it did with the physical one.
    let port = device.path.iter().copied().find(|&port| {
        device.group.is_some() && host.device(port).and_then(|port| port.group) == device.group
    });
    if let Some(port) = port {
        return Some(Obstacle::new(
            format!(
                "the virtual functions of {address} would be in one IOMMU group with it and {port}"
            ),
            group_remedy(host, device),
        ));
    }
    // Another number of functions means none in between.
    let missing = sriov.count > 0 && sriov.count < sriov.total;
    let busy = sriov
        .functions
        .iter()
        .filter_map(|&function| host.device(function))
        .find(|function| !function.uses.is_empty());
    match busy.filter(|_| missing) {
        Some(function) => {
            let uses: Vec<String> = function.uses.iter().map(ToString::to_string).collect();
            Some(in_use(
                &format!("function {} of {what} {address}", function.address),
                function.address,
                &uses,
            ))
        }
        None => None,
    }
}

fn in_use(what: &str, address: PciAddress, uses: &[String]) -> Obstacle {
    Obstacle::new(
        format!("{what} is in use: {}", uses.join("; ")),
        format!("free it, or name {address} in take_in_use and to apply (--take {address})"),
    )
}

/// A device that somebody needs, unless a step stops that somebody or the request names it.
fn use_obstacle(host: &Host, request: &Request, device: &Device) -> Option<Obstacle> {
    if request.take_in_use.contains(&device.address) && !device.is_boot_vga {
        return None;
    }
    let uses: Vec<String> = device
        .uses
        .iter()
        .filter(|by| !is_stopped(host, by))
        .map(ToString::to_string)
        .collect();
    match (uses.is_empty(), device.is_boot_vga) {
        (true, _) => None,
        (false, true) => Some(Obstacle::new(
            format!(
                "{} has the console of this machine, and is never taken",
                device.address
            ),
            "let the firmware use another display (the management controller's) as the first one",
        )),
        (false, false) => Some(in_use(&device.address.to_string(), device.address, &uses)),
    }
}

/// Whether the user is a service that a step stops. The kernel cuts names of processes after 15 letters.
pub(super) fn is_stopped(host: &Host, by: &Use) -> bool {
    match by {
        Use::Process { name, .. } => {
            let stopped = |service: &&str| {
                host.system
                    .services
                    .iter()
                    .any(|running| running == service)
            };
            super::runtime::STOPPED
                .iter()
                .filter(|service| stopped(service))
                .any(|service| {
                    let cut = service.get(..15).unwrap_or(service);
                    name == cut || (*service == "nvidia-dcgm" && name == "nv-hostengine")
                })
        }
        _ => false,
    }
}

fn place(
    host: &Host,
    request: &Request,
    pool: &mut Pool<'_>,
    index: u32,
    page_kib: u64,
) -> Option<Vm> {
    let parts = parts(host, request, pool);
    let part = parts.into_iter().find_map(|part| {
        let cells = cells(request, pool, &part, page_kib)?;
        let drives = nearest_drives(request, pool, &part)?;
        Some((part, cells, drives))
    });
    let (part, cells, drives) = part?;
    let gpus: Vec<&Device> = part.gpus.into_iter().take(request.gpus as usize).collect();
    let name = format!("{}{index}", request.name);
    let vfs = functions(host, request, pool, &part.adapters, &gpus, &name)?;
    let drives = drives
        .into_iter()
        .map(|position| {
            let (drive, given) = pool.drives.get_mut(position)?;
            let index = *given;
            *given = given.saturating_add(1);
            Some(Vf {
                address: function_address(drive, index)?,
                physical: drive.address,
                index,
                is_infiniband: false,
                mac: None,
                guids: None,
            })
        })
        .collect::<Option<Vec<Vf>>>()?;
    let locality = gpus
        .iter()
        .filter_map(|gpu| {
            vfs.iter()
                .filter_map(|vf| Some(host.locality(gpu, host.device(vf.physical)?)))
                .min()
        })
        .max();
    let mut companions: BTreeSet<PciAddress> = gpus
        .iter()
        .flat_map(|gpu| host.companions(gpu))
        // What no driver has may stay so.
        .filter(|other| other.driver.is_some())
        .map(|other| other.address)
        .collect();
    let addresses: Vec<PciAddress> = gpus.iter().map(|gpu| gpu.address).collect();
    companions.retain(|other| !addresses.contains(other));
    // A group is one machine's, also what of it the machine does not get.
    let groups: Vec<u32> = gpus.iter().filter_map(|gpu| gpu.group).collect();
    pool.gpus.retain(|gpu| {
        let is_left = !addresses.contains(&gpu.address) && !companions.contains(&gpu.address);
        is_left && gpu.group.is_none_or(|group| !groups.contains(&group))
    });
    for cell in &cells {
        let taken: usize = cell.cpus.len() / cell.threads.max(1) as usize;
        if let Some(cores) = pool.cores.get_mut(&cell.node) {
            cores.drain(..taken.min(cores.len()));
        }
        if let Some(left) = pool.memory_kib.get_mut(&cell.node) {
            *left = left.saturating_sub(cell.memory_kib);
        }
    }
    Some(Vm {
        name,
        cells,
        page_kib,
        gpus: addresses,
        companions: companions.into_iter().collect(),
        vfs,
        drives,
        locality,
    })
}

/// The drives whose functions a machine in this part gets, by their positions in the pool: those on its nodes first, the one that has
/// given the fewest first. `None` when there are too few, or with `affinity = "strict"` too few on its nodes.
fn nearest_drives(request: &Request, pool: &Pool<'_>, part: &Part<'_>) -> Option<Vec<usize>> {
    let is_near = |drive: &Device| drive.node.is_none_or(|node| part.nodes.contains(&node));
    let mut given: Vec<u32> = pool.drives.iter().map(|&(_, given)| given).collect();
    let mut taken = Vec::new();
    for _ in 0..request.drives {
        let (_, _, position) = pool
            .drives
            .iter()
            .zip(&given)
            .enumerate()
            .filter(|(_, ((drive, _), given))| **given < total(drive))
            .filter(|(_, ((drive, _), _))| {
                is_near(drive) || request.affinity == Affinity::Preferred
            })
            .map(|(position, ((drive, _), given))| (!is_near(drive), *given, position))
            .min()?;
        *given.get_mut(position)? += 1;
        taken.push(position);
    }
    Some(taken)
}

/// How many virtual functions a device can have.
fn total(device: &Device) -> u32 {
    device.sriov.as_ref().map_or(0, |sriov| sriov.total)
}

/// The parts that have enough devices, the best first.
fn parts<'a>(host: &'a Host, request: &Request, pool: &Pool<'a>) -> Vec<Part<'a>> {
    type Key = (Locality, String);
    let mut parts: BTreeMap<Key, Part<'a>> = BTreeMap::new();
    let nodes: Vec<u32> = host.nodes.iter().map(|node| node.id).collect();
    let widest = match request.affinity {
        Affinity::Strict => Locality::Node,
        Affinity::Preferred => Locality::Host,
    };
    let keys = |device: &Device| -> Vec<Key> {
        let mut keys = vec![
            (Locality::RootComplex, device.root.clone()),
            (Locality::Host, String::new()),
        ];
        keys.extend(
            host.switch(device)
                .map(|switch| (Locality::Switch, switch.to_string())),
        );
        match (device.node, nodes.as_slice()) {
            (Some(node), _) | (None, &[node]) => keys.push((Locality::Node, format!("{node:08}"))),
            (None, _) => {}
        }
        keys.retain(|(locality, _)| *locality <= widest);
        keys
    };
    let new = |locality| Part {
        locality,
        gpus: Vec::new(),
        adapters: Vec::new(),
        functions: 0,
        nodes: Vec::new(),
    };
    let add = |part: &mut Part<'a>, device: &Device| {
        let node = device.node.or(match nodes.as_slice() {
            &[node] => Some(node),
            _ => None,
        });
        part.nodes
            .extend(node.filter(|node| !part.nodes.contains(node)));
    };
    for &gpu in pool.gpus.iter().filter(|_| request.gpus > 0) {
        for key in keys(gpu) {
            let part = parts.entry(key.clone()).or_insert_with(|| new(key.0));
            part.gpus.push(gpu);
            add(part, gpu);
        }
    }
    for (position, &(adapter, given)) in pool.adapters.iter().enumerate() {
        let free = total(adapter).saturating_sub(given);
        for key in keys(adapter).into_iter().filter(|_| free > 0) {
            let part = parts.entry(key.clone()).or_insert_with(|| new(key.0));
            part.adapters.push(position);
            part.functions = part.functions.saturating_add(free);
            add(part, adapter);
        }
    }
    if request.gpus == 0 && request.vfs == 0 {
        for &node in &nodes {
            let part = parts
                .entry((Locality::Node, format!("{node:08}")))
                .or_insert_with(|| new(Locality::Node));
            part.nodes = vec![node];
        }
        if widest == Locality::Host {
            parts
                .entry((Locality::Host, String::new()))
                .or_insert_with(|| new(Locality::Host))
                .nodes = nodes.clone();
        }
    }
    let mut parts: Vec<(Key, Part<'a>)> = parts
        .into_iter()
        .filter(|(_, part)| {
            part.gpus.len() >= request.gpus as usize && part.functions >= request.vfs
        })
        .collect();
    parts.sort_by_key(|(key, part)| (part.locality, part.gpus.len(), key.1.clone()));
    let mut parts: Vec<Part<'a>> = parts.into_iter().map(|(_, part)| part).collect();
    for part in &mut parts {
        // GPUs with an adapter near them first, so that those without are left for machines that need none.
        let nearest = |gpu: &Device| {
            part.adapters
                .iter()
                .filter_map(|&position| Some(host.locality(gpu, pool.adapters.get(position)?.0)))
                .min()
        };
        if request.vfs > 0 {
            part.gpus.sort_by_key(|gpu| (nearest(gpu), gpu.address));
        } else {
            part.gpus
                .sort_by_key(|gpu| (std::cmp::Reverse(nearest(gpu)), gpu.address));
        }
        // A part that spans the host needs only the nodes of the devices that are taken from it.
        let taken: Vec<u32> = part
            .gpus
            .iter()
            .take(request.gpus as usize)
            .filter_map(|gpu| gpu.node)
            .collect();
        if part.locality == Locality::Host && !taken.is_empty() {
            part.nodes = taken;
        }
        part.nodes.sort_unstable();
        part.nodes.dedup();
    }
    parts
}

/// The machine's nodes in this part, if they have enough cores and memory.
fn cells(request: &Request, pool: &Pool<'_>, part: &Part<'_>, page_kib: u64) -> Option<Vec<Cell>> {
    let count = u32::try_from(part.nodes.len())
        .ok()
        .filter(|&count| count > 0)?;
    let pages = request.memory.kib() / page_kib;
    let share = |whole: u64, position: usize| {
        let (each, rest) = (whole / u64::from(count), whole % u64::from(count));
        if (position as u64) < rest {
            each.saturating_add(1)
        } else {
            each
        }
    };
    part.nodes
        .iter()
        .enumerate()
        .map(|(position, node)| {
            let cores = usize::try_from(share(request.cores.into(), position)).ok()?;
            let memory_kib = share(pages, position).checked_mul(page_kib)?;
            let free = pool.cores.get(node)?.get(..cores)?;
            let threads = free.iter().map(Vec::len).min().unwrap_or(1);
            let is_enough =
                memory_kib > 0 && cores > 0 && *pool.memory_kib.get(node)? >= memory_kib;
            is_enough.then(|| Cell {
                node: *node,
                // Cores of one processor may differ in their threads; a machine has the same of each.
                cpus: free
                    .iter()
                    .flat_map(|core| core.iter().copied().take(threads))
                    .collect(),
                threads: u32::try_from(threads).unwrap_or(1),
                host_cpus: pool.host_cpus.get(node).cloned().unwrap_or_default(),
                memory_kib,
            })
        })
        .collect()
}

/// Takes virtual functions: for each GPU in turn the nearest adapter, of those the one that has given the fewest.
fn functions(
    host: &Host,
    request: &Request,
    pool: &mut Pool<'_>,
    positions: &[usize],
    gpus: &[&Device],
    name: &str,
) -> Option<Vec<Vf>> {
    let mut taken = Vec::new();
    for number in 0..request.vfs {
        let near = gpus.get(number as usize % gpus.len().max(1)).copied();
        let position = positions
            .iter()
            .copied()
            .filter(|&position| pool.adapters.get(position).is_some_and(is_free))
            .min_by_key(|&position| {
                let adapter = pool
                    .adapters
                    .get(position)
                    .map(|&(adapter, given)| (adapter, given));
                adapter.map(|(adapter, given)| {
                    (
                        near.map(|gpu| host.locality(gpu, adapter)),
                        given,
                        adapter.address,
                    )
                })
            })?;
        let (adapter, given) = pool.adapters.get_mut(position)?;
        let index = *given;
        *given = given.saturating_add(1);
        taken.push(function(host, adapter, index, &format!("{name}/{number}"))?);
    }
    Some(taken)
}

fn is_free((device, given): &(&Device, u32)) -> bool {
    total(device) > *given
}

/// How many functions devices have that nobody was given.
fn free(devices: &[(&Device, u32)]) -> u32 {
    devices
        .iter()
        .map(|(device, given)| total(device).saturating_sub(*given))
        .sum()
}

/// Where a virtual function is, or will be.
fn function_address(device: &Device, index: u32) -> Option<PciAddress> {
    let sriov = device.sriov.as_ref()?;
    let present = sriov.functions.get(index as usize).copied();
    let predicted = || {
        device.address.offset(
            sriov
                .offset?
                .checked_add(sriov.stride?.checked_mul(index)?)?,
        )
    };
    present.or_else(predicted)
}

fn function(host: &Host, adapter: &Device, index: u32, name: &str) -> Option<Vf> {
    let is_infiniband = is_infiniband(host, adapter);
    let bytes = super::network::identity(&host.system.name, name);
    Some(Vf {
        address: function_address(adapter, index)?,
        physical: adapter.address,
        index,
        is_infiniband,
        mac: (!is_infiniband).then(|| super::network::mac(bytes)),
        guids: is_infiniband.then(|| super::network::guids(bytes)),
    })
}

/// Says what there is too little of for one machine more.
fn lack(host: &Host, request: &Request, pool: &Pool<'_>, placed: usize) -> Obstacle {
    let gpus = pool.gpus.len();
    let (functions, drives) = (free(&pool.adapters), free(&pool.drives));
    let cores: Vec<String> = pool
        .cores
        .iter()
        .map(|(node, free)| format!("{} on node {node}", free.len()))
        .collect();
    let memory: Vec<String> = pool
        .memory_kib
        .iter()
        .map(|(node, kib)| format!("{} GiB on node {node}", kib / GIB_KIB))
        .collect();
    // Few ask for drives.
    let of_drives = match request.drives {
        0 => String::new(),
        wanted => format!(" {drives} functions of drives of {wanted},"),
    };
    let what = format!(
        "there is room for {placed} of {} machines; the next finds {gpus} GPUs of {}, {functions} virtual functions of {},{of_drives} \
         cores: {} of {}, memory: {} of {}",
        request.vms,
        request.gpus,
        request.vfs,
        cores.join(", "),
        request.cores,
        memory.join(", "),
        String::from(request.memory)
    );
    let cores: usize = pool.cores.values().map(Vec::len).sum();
    let kib: u64 = pool.memory_kib.values().sum();
    let is_enough = gpus >= request.gpus as usize
        && functions >= request.vfs
        && drives >= request.drives
        && cores >= request.cores as usize
        && kib >= request.memory.kib();
    let remedy = match (is_enough, request.affinity, host.nodes.len()) {
        (true, Affinity::Strict, 2..) => {
            "the host has enough, but not on one NUMA node: ask for less per machine, put devices into slots of one socket, or \
             allow affinity = \"preferred\""
        }
        _ => "ask for fewer or smaller machines, or free what is listed here",
    };
    Obstacle::new(what, remedy)
}
