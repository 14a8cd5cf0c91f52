//! Processors, NUMA nodes, their memory and interrupts.

use std::collections::BTreeMap;

use crate::host::{Core, Cpus, Interrupt, Node, Pool};
use crate::root::{Root, numbers};

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

pub(super) fn cpus(root: &Root) -> Cpus {
    let text = root.text("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim().to_owned())
    };
    let flags = field("flags");
    let virtualizes = flags.map(|flags| flags.split(' ').any(|flag| matches!(flag, "vmx" | "svm")));
    let set = |name: &str| numbers(&root.text(&format!("{CPUS}/{name}")).unwrap_or_default());
    let online = set("online");
    Cpus {
        vendor: field("vendor_id").unwrap_or_default(),
        model: field("model name").unwrap_or_default(),
        virtualizes,
        cores: cores(root, &online),
        isolated: set("isolated"),
        nohz_full: set("nohz_full"),
        online,
    }
}

fn cores(root: &Root, online: &[u32]) -> Vec<Core> {
    let nodes: BTreeMap<u32, u32> = nodes(root)
        .iter()
        .flat_map(|node| node.cpus.iter().map(|&cpu| (cpu, node.id)))
        .collect();
    let mut cores: BTreeMap<(u32, u32, u32), Core> = BTreeMap::new();
    for &cpu in online {
        let topology = format!("{CPUS}/cpu{cpu}/topology");
        let package = root
            .value(&format!("{topology}/physical_package_id"))
            .unwrap_or(0);
        let id = root.value(&format!("{topology}/core_id")).unwrap_or(cpu);
        let node = nodes.get(&cpu).copied().unwrap_or(0);
        // Dies of a package may count their cores from 0 each: the first thread tells cores apart.
        let siblings = numbers(
            &root
                .text(&format!("{topology}/thread_siblings_list"))
                .unwrap_or_default(),
        );
        let first = siblings.first().copied().unwrap_or(cpu);
        let core = cores.entry((package, node, first)).or_insert_with(|| Core {
            package,
            id,
            node,
            threads: Vec::new(),
        });
        core.threads.push(cpu);
    }
    cores.into_values().collect()
}

pub(super) fn nodes(root: &Root) -> Vec<Node> {
    let names = root.entries(NODES);
    let mut nodes: Vec<Node> = names
        .iter()
        .filter_map(|name| {
            let id = name.strip_prefix("node")?.parse().ok()?;
            Some(node(root, id, &format!("{NODES}/{name}")))
        })
        .collect();
    nodes.sort_by_key(|node| node.id);
    nodes
}

fn node(root: &Root, id: u32, folder: &str) -> Node {
    let text = |name: &str| root.text(&format!("{folder}/{name}")).unwrap_or_default();
    let memory = text("meminfo");
    // "Node 0 MemTotal:  527966140 kB"
    let amount = |name: &str| {
        memory
            .lines()
            .find_map(|line| {
                line.split_once(name)?
                    .1
                    .trim_start_matches(':')
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()
            })
            .unwrap_or(0)
    };
    let pools = root.entries(&format!("{folder}/hugepages"));
    Node {
        id,
        cpus: numbers(&text("cpulist")),
        memory_kib: amount("MemTotal"),
        free_kib: amount("MemFree"),
        distances: text("distance")
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect(),
        pools: pools
            .iter()
            .filter_map(|name| {
                let page_kib = name
                    .strip_prefix("hugepages-")?
                    .strip_suffix("kB")?
                    .parse()
                    .ok()?;
                let count = |what: &str| {
                    root.value(&format!("{folder}/hugepages/{name}/{what}"))
                        .unwrap_or(0)
                };
                Some(Pool {
                    page_kib,
                    total: count("nr_hugepages"),
                    free: count("free_hugepages"),
                })
            })
            .collect(),
    }
}

/// Those that somebody handles and that can be moved: the others have no such file, or an empty one.
pub(super) fn interrupts(root: &Root) -> Vec<Interrupt> {
    let mut interrupts: Vec<Interrupt> = root
        .entries("/proc/irq")
        .iter()
        .filter_map(|name| {
            let number = name.parse().ok()?;
            // Numbers of old devices that are not there.
            if root
                .text(&format!("/sys/kernel/irq/{name}/actions"))
                .is_some_and(|names| names.is_empty())
            {
                return None;
            }
            let cpus = numbers(&root.text(&format!("/proc/irq/{name}/smp_affinity_list"))?);
            (!cpus.is_empty()).then_some(Interrupt { number, cpus })
        })
        .collect();
    interrupts.sort_by_key(|interrupt| interrupt.number);
    interrupts
}
