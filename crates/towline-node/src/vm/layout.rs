//! Where a machine's devices lie in its own PCI tree: as they lie in the host's.
//!
//! Devices of one host root complex get a bus of their own (pxb-pcie), bound to the cell of their node; devices below one host
//! switch get a switch. So software in the machine that looks for short ways between GPUs and adapters finds those that there
//! are. Firmware numbers buses depth first from the number that the expander bus is given, so that addresses are known before
//! the machine is started.

use std::collections::BTreeMap;

use crate::address::PciAddress;
use crate::host::Host;
use crate::plan::Vm;

/// A machine's PCI tree below its root bus.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Layout {
    /// A bus for each host root complex.
    pub expanders: Vec<Expander>,
}

/// A root bus beside the first one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Expander {
    /// The machine's cell that it belongs to, if it has several.
    pub cell: Option<u32>,
    /// Its bus in the machine.
    pub bus: u8,
    /// What hangs on it.
    pub ports: Vec<RootPort>,
}

/// A root port on an expander.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RootPort {
    /// One slot, for the functions of one host device
    Device(Slot),
    /// A switch
    Switch {
        /// The host's upstream port that it stands for.
        host: PciAddress,
        /// Its slots.
        slots: Vec<Slot>,
        /// The bus of its upstream port; the downstream ports are on the next.
        bus: u8,
    },
}

/// A slot of the machine and the host's functions in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Slot {
    /// The bus in the machine; the device is 0.
    pub bus: u8,
    /// The functions, by their number in the machine.
    pub functions: Vec<(u8, PciAddress)>,
}

/// More devices than a machine's buses can number.
#[derive(Debug, thiserror::Error)]
#[error("{0} has more devices than PCI buses can be numbered for")]
pub struct TooManyBuses(String);

/// Buses below this are left to the machine's other devices.
const FIRST_BUS: usize = 64;
const LAST_BUS: usize = 255;

/// Lays out a machine's devices.
///
/// # Errors
///
/// When there are more than PCI can number.
pub fn layout(host: &Host, vm: &Vm) -> Result<Layout, TooManyBuses> {
    // In order, so that the same plan gives the same tree.
    type Devices = Vec<Vec<PciAddress>>;
    let mut roots: BTreeMap<(u32, String), BTreeMap<Option<PciAddress>, Devices>> = BTreeMap::new();
    let functions = vm
        .functions()
        .map(|function| (function.address, function.physical));
    let gpus = vm.gpus.iter().chain(&vm.companions).map(|&gpu| (gpu, gpu));
    for (address, place) in gpus.chain(functions) {
        let device = host.device(place);
        let root = device.map(|device| device.root.clone()).unwrap_or_default();
        let switch = device.and_then(|device| host.switch(device));
        let devices = roots
            .entry((address.domain(), root))
            .or_default()
            .entry(switch)
            .or_default();
        // Functions of one GPU stay together; virtual functions look like functions of one device and are not.
        let is_virtual = address != place;
        match devices
            .iter_mut()
            .find(|known| !is_virtual && known.iter().any(|known| known.is_same_device(address)))
        {
            Some(known) => known.push(address),
            None => devices.push(vec![address]),
        }
    }
    let mut layout = Layout::default();
    let width: usize = roots.values().map(buses).sum();
    let mut bus = LAST_BUS
        .checked_sub(width)
        .filter(|&bus| bus >= FIRST_BUS)
        .ok_or_else(|| TooManyBuses(vm.name.clone()))?;
    let mut next = || {
        bus += 1;
        u8::try_from(bus).expect("as many buses were counted as are numbered")
    };
    for switches in roots.into_values() {
        let node = switches
            .values()
            .flatten()
            .flatten()
            .find_map(|&address| node_of(host, vm, address));
        let cell = vm
            .cells
            .iter()
            .position(|cell| Some(cell.node) == node)
            .filter(|_| vm.cells.len() > 1);
        let mut expander = Expander {
            cell: cell.and_then(|cell| u32::try_from(cell).ok()),
            bus: next(),
            ports: Vec::new(),
        };
        for (switch, devices) in switches {
            match switch {
                None => {
                    let slots = devices
                        .into_iter()
                        .map(|functions| RootPort::Device(slot(next(), &functions)));
                    expander.ports.extend(slots);
                }
                Some(host) => {
                    let bus = next();
                    let _downstream = next();
                    let slots = devices
                        .into_iter()
                        .map(|functions| slot(next(), &functions))
                        .collect();
                    expander.ports.push(RootPort::Switch { host, slots, bus });
                }
            }
        }
        layout.expanders.push(expander);
    }
    Ok(layout)
}

/// How many buses a root complex takes.
fn buses(switches: &BTreeMap<Option<PciAddress>, Vec<Vec<PciAddress>>>) -> usize {
    let ports: usize = switches
        .iter()
        .map(|(switch, devices)| devices.len() + if switch.is_some() { 2 } else { 0 })
        .sum();
    ports + 1
}

fn node_of(host: &Host, vm: &Vm, address: PciAddress) -> Option<u32> {
    let physical = vm
        .functions()
        .find(|function| function.address == address)
        .map(|function| function.physical);
    host.device(physical.unwrap_or(address))?.node
}

fn slot(bus: u8, functions: &[PciAddress]) -> Slot {
    let mut functions: Vec<PciAddress> = functions.to_vec();
    functions.sort_unstable();
    // There is no device without a function 0.
    let first = functions.first().map_or(0, |first| first.function());
    Slot {
        bus,
        functions: functions
            .into_iter()
            .map(|function| (function.function().saturating_sub(first), function))
            .collect(),
    }
}

impl Layout {
    /// All slots, with the host switch that they are below.
    pub fn slots(&self) -> impl Iterator<Item = (Option<PciAddress>, &Slot)> {
        self.expanders
            .iter()
            .flat_map(|expander| &expander.ports)
            .flat_map(|port| match port {
                RootPort::Device(slot) => vec![(None, slot)],
                RootPort::Switch { host, slots, .. } => {
                    slots.iter().map(|slot| (Some(*host), slot)).collect()
                }
            })
    }
}
