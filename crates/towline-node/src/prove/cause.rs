//! Why machines are slower than their hosts: each known cause is looked for, none is guessed.

use std::collections::BTreeSet;
use std::time::Duration;

use roxmltree::Document;
use serde::{Deserialize, Serialize};

use super::Runner;
use super::facts::Facts;
use super::spec::{Hypervisor, Spec};
use crate::address::PciAddress;
use crate::config::Port;
use crate::host::{Device, Host, Kind, Locality};

/// Something that was looked for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// What.
    pub cause: String,
    /// On which machine.
    pub machine: String,
    /// What was seen: it is there, it is not, or it could not be looked at.
    pub state: State,
    /// What shows it.
    pub evidence: String,
    /// What helps, where it is there.
    pub remedy: String,
}

/// What was seen of a cause.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is there
    Found,
    /// It could not be looked at
    Unseen,
    /// It is not there
    Clear,
}

/// How long a host may take to answer.
const LIMIT: Duration = Duration::from_secs(120);

/// Gathers findings of one machine.
struct Look<'a> {
    machine: &'a str,
    findings: Vec<Finding>,
}

impl Look<'_> {
    /// What speaks for a cause, or nothing.
    fn note(&mut self, cause: &str, evidence: Option<String>, clear: &str, remedy: &str) {
        let (state, evidence, remedy) = match evidence {
            Some(evidence) => (State::Found, evidence, remedy),
            None => (State::Clear, clear.to_owned(), ""),
        };
        self.push(cause, state, evidence, remedy);
    }

    fn push(&mut self, cause: &str, state: State, evidence: String, remedy: &str) {
        self.findings.push(Finding {
            cause: cause.to_owned(),
            machine: self.machine.to_owned(),
            state,
            evidence,
            remedy: remedy.to_owned(),
        });
    }

    fn unseen(&mut self, cause: &str, why: &str) {
        self.push(cause, State::Unseen, why.to_owned(), "");
    }
}

const EMULATED: &str = "the processor is emulated";
const TIMER: &str = "the timer is emulated";
const TOPOLOGY: &str = "NCCL's topology file is missing";
const PINNING: &str = "virtual processors are not pinned";
const PAGES: &str = "memory is in pages of 4 KiB";
const NODE: &str = "processors, memory and devices are on several NUMA nodes";
const ACS: &str = "ACS redirects what GPU and adapter say to each other";
const ATS: &str = "ATS is missing";

/// Looks for every known cause on every machine that runs are made on.
pub fn look(spec: &Spec, machines: &[Facts], runner: &mut dyn Runner) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, facts) in machines.iter().enumerate() {
        let hypervisor = spec.hypervisors.get(number);
        let name = match hypervisor {
            Some(hypervisor) => hypervisor.domain.clone(),
            None => format!("node {number}"),
        };
        let mut look = Look {
            machine: &name,
            findings: Vec::new(),
        };
        inside(spec, facts, &mut look);
        outside(hypervisor, runner, &mut look);
        findings.append(&mut look.findings);
    }
    findings.sort_by(|a, b| (a.state, &a.cause, &a.machine).cmp(&(b.state, &b.cause, &b.machine)));
    findings
}

/// What the machine itself shows.
fn inside(spec: &Spec, facts: &Facts, look: &mut Look<'_>) {
    let is_emulated = facts.get("guest") == "yes"
        && facts.get("maker") == "QEMU"
        && facts.get("hypervisor") != "KVM";
    look.note(
        EMULATED,
        is_emulated.then(|| {
            format!(
                "it runs in QEMU, and names no KVM but {:?}",
                facts.get("hypervisor")
            )
        }),
        match facts.get("hypervisor") {
            "KVM" => "it names KVM as its hypervisor",
            _ => "it is not QEMU's",
        },
        "the domain has to be of type kvm, and its host needs /dev/kvm: `towline node plan` says what is missing",
    );
    let clock = facts.get("clock");
    match clock {
        "" => look.unseen(TIMER, "the machine does not tell its clock"),
        clock => look.note(
            TIMER,
            (!matches!(clock, "tsc" | "kvm-clock" | "arch_sys_counter"))
                .then(|| format!("its clock is {clock}, of which each reading leaves the machine")),
            clock,
            "give it the processor's own: `towline vm` does by <timer name='tsc' mode='native'/> and kvmclock",
        ),
    }
    if spec.gpus > 0 {
        let file = facts.get("topology");
        look.note(
            TOPOLOGY,
            file.is_empty()
                .then(|| "NCCL_TOPO_FILE in /etc/nccl.conf names no file that is there".to_owned()),
            file,
            "`towline vm cluster` writes it",
        );
    }
}

/// What its host shows: libvirt's description and the host's devices.
fn outside(hypervisor: Option<&Hypervisor>, runner: &mut dyn Runner, look: &mut Look<'_>) {
    let all = [PINNING, PAGES, NODE, ACS, ATS];
    let Some(hypervisor) = hypervisor else {
        for cause in all {
            look.unseen(cause, "the specification names no [[hypervisors]] for it");
        }
        return;
    };
    let mut ask = |line: String| {
        let output = runner.run(&hypervisor.reach, &line, LIMIT)?;
        match output.status {
            Some(0) => Ok(output.text),
            _ => Err(format!("`{line}` failed there")),
        }
    };
    let xml = ask(format!(
        "virsh -c qemu:///system dumpxml {}",
        hypervisor.domain
    ));
    let host = ask(format!("{} node inspect --json", hypervisor.towline)).and_then(|text| {
        serde_json::from_str::<Host>(&text)
            .map_err(|error| format!("what it says of itself: {error}"))
    });
    let text = match xml {
        Ok(text) => text,
        Err(why) => {
            for cause in all {
                look.unseen(cause, &why);
            }
            return;
        }
    };
    let document = match Document::parse(&text) {
        Ok(document) => document,
        Err(error) => {
            for cause in all {
                look.unseen(cause, &format!("libvirt's description: {error}"));
            }
            return;
        }
    };
    let domain = Domain::read(&document);
    look.note(
        PINNING,
        domain.unpinned(),
        "each has a processor of its own",
        "`towline vm` pins them one to one",
    );
    look.note(
        PAGES,
        (!domain.has_huge_pages).then(|| "the domain has no <hugepages>".to_owned()),
        "the domain has <hugepages>",
        "`towline node apply` reserves huge pages, and `towline vm` uses them",
    );
    match host {
        Ok(host) => {
            look.note(
                NODE,
                domain.scattered(&host),
                "all are on one, or in cells of their own",
                "plan with affinity = \"strict\"",
            );
            paths(&domain, &host, look);
        }
        Err(why) => {
            for cause in [NODE, ACS, ATS] {
                look.unseen(cause, &why);
            }
        }
    }
}

/// What of a domain matters here.
struct Domain {
    cpus: u32,
    /// For each pinned virtual processor, those that it may run on.
    pins: Vec<Vec<u32>>,
    has_huge_pages: bool,
    /// The nodes of its memory, where they are bound strictly.
    memory_nodes: Option<Vec<u32>>,
    cells: usize,
    devices: Vec<PciAddress>,
}

impl Domain {
    fn read(document: &Document<'_>) -> Self {
        let find = |name: &'static str| {
            document
                .descendants()
                .filter(move |node| node.has_tag_name(name))
        };
        let list = |text: Option<&str>| crate::root::numbers(text.unwrap_or_default());
        let memory = find("numatune").next().and_then(|tune| {
            let memory = tune.children().find(|node| node.has_tag_name("memory"))?;
            (memory.attribute("mode") == Some("strict")).then(|| list(memory.attribute("nodeset")))
        });
        let number = |text: Option<&str>| {
            let text = text?;
            match text.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            }
        };
        let devices = find("hostdev").filter_map(|device| {
            let source = device.children().find(|node| node.has_tag_name("source"))?;
            let address = source
                .children()
                .find(|node| node.has_tag_name("address"))?;
            let part = |name| number(address.attribute(name));
            format!(
                "{:04x}:{:02x}:{:02x}.{}",
                part("domain")?,
                part("bus")?,
                part("slot")?,
                part("function")?
            )
            .parse()
            .ok()
        });
        Self {
            cpus: find("vcpu")
                .next()
                .and_then(|node| node.text()?.trim().parse().ok())
                .unwrap_or(0),
            pins: find("vcpupin")
                .map(|pin| list(pin.attribute("cpuset")))
                .collect(),
            has_huge_pages: find("hugepages").next().is_some(),
            memory_nodes: memory,
            cells: find("cell").count(),
            devices: devices.collect(),
        }
    }

    fn unpinned(&self) -> Option<String> {
        let single = self.pins.iter().filter(|pin| pin.len() == 1).count();
        let distinct: BTreeSet<&Vec<u32>> = self.pins.iter().collect();
        if single < self.cpus as usize {
            return Some(format!(
                "{single} of {} have one processor to run on",
                self.cpus
            ));
        }
        (distinct.len() < self.pins.len()).then(|| "several share a processor".to_owned())
    }

    /// Whether a machine without cells for several nodes has parts on several.
    fn scattered(&self, host: &Host) -> Option<String> {
        let of_cpus: BTreeSet<u32> = host
            .nodes
            .iter()
            .filter(|node| {
                self.pins
                    .iter()
                    .flatten()
                    .any(|cpu| node.cpus.contains(cpu))
            })
            .map(|node| node.id)
            .collect();
        let of_devices: BTreeSet<u32> = self
            .devices
            .iter()
            .filter_map(|&address| host.device(address)?.node)
            .collect();
        let Some(memory) = &self.memory_nodes else {
            return (host.nodes.len() > 1).then(|| "its memory is bound to no node".to_owned());
        };
        let of_memory: BTreeSet<u32> = memory.iter().copied().collect();
        let all: BTreeSet<u32> = of_cpus
            .iter()
            .chain(&of_devices)
            .chain(&of_memory)
            .copied()
            .collect();
        let is_one = all.len() <= 1 || all.len() <= self.cells;
        (!is_one).then(|| {
            let list = |nodes: &BTreeSet<u32>| {
                crate::root::list(&nodes.iter().copied().collect::<Vec<_>>())
            };
            format!(
                "processors on {}, memory on {}, devices on {}",
                list(&of_cpus),
                list(&of_memory),
                list(&of_devices)
            )
        })
    }
}

/// ACS and ATS between the machine's GPUs and adapters.
fn paths(domain: &Domain, host: &Host, look: &mut Look<'_>) {
    let of_kind = |kind| -> Vec<&Device> {
        let devices = domain
            .devices
            .iter()
            .filter_map(|&address| host.device(address));
        devices.filter(|device| device.kind == kind).collect()
    };
    let (gpus, adapters) = (of_kind(Kind::Gpu), of_kind(Kind::Network));
    if gpus.is_empty() || adapters.is_empty() {
        let why = "it has no GPU and adapter of its own to talk directly";
        look.push(ACS, State::Clear, why.to_owned(), "");
        look.push(ATS, State::Clear, why.to_owned(), "");
        return;
    }
    let mut redirecting = BTreeSet::new();
    let mut is_hidden = false;
    for gpu in &gpus {
        for adapter in adapters
            .iter()
            .filter(|adapter| host.locality(gpu, adapter) == Locality::Switch)
        {
            let shared = host.switch(gpu);
            for device in [gpu, adapter] {
                let below = device.path.iter().skip_while(|&&port| Some(port) != shared);
                for port in below.filter_map(|&port| host.device(port)) {
                    is_hidden |= port.config != crate::config::Seen::Full;
                    let redirects = port
                        .acs
                        .is_some_and(|acs| acs.redirects() && !acs.is_direct_translated());
                    if port.port == Some(Port::Downstream) && redirects {
                        redirecting.insert(port.address.to_string());
                    }
                }
            }
        }
    }
    let listed: Vec<String> = redirecting.into_iter().collect();
    match (listed.is_empty(), is_hidden) {
        (true, true) => look.unseen(
            ACS,
            "configuration spaces are readable by root only: let its `towline` be run by `sudo`",
        ),
        (is_clear, _) => look.note(
            ACS,
            (!is_clear).then(|| {
                format!(
                    "ports {} redirect, and let no translated requests through",
                    listed.join(" ")
                )
            }),
            "no port between them redirects translated requests",
            "`towline node apply` with gpudirect = true",
        ),
    }
    let devices = || gpus.iter().chain(&adapters);
    if devices().any(|device| device.config != crate::config::Seen::Full) {
        return look.unseen(
            ATS,
            "configuration spaces are readable by root only: let its `towline` be run by `sudo`",
        );
    }
    let without: Vec<String> = devices()
        .filter(|device| device.ats.is_none())
        .map(|device| device.address.to_string())
        .collect();
    look.note(
        ATS,
        (!without.is_empty()).then(|| {
            format!(
                "{} cannot ask the IOMMU for translations",
                without.join(" ")
            )
        }),
        "all of them can",
        "for adapters of NVIDIA: mlxconfig set ATS_ENABLED=true, then restart the host",
    );
}
