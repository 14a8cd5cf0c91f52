//! NCCL's topology file: in a machine it cannot see how near GPUs and adapters are.

use super::layout::{RootPort, Slot, TooManyBuses, layout};
use super::xml::Element;
use crate::host::{Host, Kind};
use crate::plan::Vm;

/// The file for a machine, with the addresses that its devices have in it.
///
/// # Errors
///
/// When the machine has more devices than PCI can number.
pub fn topology(host: &Host, vm: &Vm) -> Result<String, TooManyBuses> {
    let layout = layout(host, vm)?;
    let mut cells: Vec<Element> = Vec::new();
    for number in 0..vm.cells.len().max(1) {
        let mut cpu = Element::new("cpu")
            .with("numaid", number)
            .with("arch", &host.system.architecture);
        if !host.cpus.vendor.is_empty() {
            cpu = cpu.with("vendor", &host.cpus.vendor);
        }
        for expander in &layout.expanders {
            if expander.cell.map_or(0, |cell| cell as usize) != number {
                continue;
            }
            for port in &expander.ports {
                match port {
                    RootPort::Device(slot) => cpu = cpu.children(functions(host, vm, slot)),
                    RootPort::Switch { slots, bus, .. } => {
                        let bridge = pci(*bus, 0, "0x060400", "", "");
                        cpu = cpu.child(
                            bridge
                                .children(slots.iter().flat_map(|slot| functions(host, vm, slot))),
                        );
                    }
                }
            }
        }
        cells.push(cpu);
    }
    Ok(Element::new("system")
        .with("version", 1)
        .children(cells)
        .render())
}

fn functions(host: &Host, vm: &Vm, slot: &Slot) -> Vec<Element> {
    slot.functions
        .iter()
        .filter_map(|&(number, address)| {
            let physical = vm
                .vfs
                .iter()
                .find(|function| function.address == address)
                .map(|function| function.physical);
            let device = host.device(physical.unwrap_or(address))?;
            let matters = matches!(device.kind, Kind::Gpu | Kind::Network);
            let link = device.link.as_ref();
            let speed = link.map_or("", |link| link.speed.as_str());
            let width = link.map_or_else(String::new, |link| link.width.to_string());
            matters.then(|| {
                pci(
                    slot.bus,
                    number,
                    &format!("{:#08x}", device.class),
                    speed,
                    &width,
                )
            })
        })
        .collect()
}

fn pci(bus: u8, function: u8, class: &str, speed: &str, width: &str) -> Element {
    Element::new("pci")
        .with("busid", format!("0000:{bus:02x}:00.{function}"))
        .with("class", class)
        .with("link_speed", speed)
        .with("link_width", width)
}
