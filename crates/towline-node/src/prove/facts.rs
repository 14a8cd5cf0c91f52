//! What nodes are, as far as it decides whether two runs may be compared, and as far as it shows why one is slow.
//!
//! One line of shell prints `name=value` lines; what a node has not is empty. It runs as an ordinary user.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What has to be the same on both sides.
pub const COMPARED: [&str; 8] = [
    "kernel",
    "driver",
    "ofed",
    "mpi",
    "gpu",
    "processor",
    "cores",
    "numa",
];

/// What one node says of itself.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Facts(BTreeMap<String, String>);

/// The line of shell. `bind` is put before what depends on which processors a command may use.
#[must_use]
pub fn line(bind: &str, mpirun: &str) -> String {
    let launcher = mpirun.split_whitespace().next().unwrap_or("mpirun");
    SCRIPT
        .replace("{bind}", bind)
        .replace("{launcher}", launcher)
}

// `host-nodes` is written by cloud-init: the nodes of the host that the machine lies on; a native run lies on its own.
const SCRIPT: &str = r#"say() { printf '%s=%s\n' "$1" "$(printf '%s' "$2" | tr '\n' ' ' | sed 's/  */ /g; s/ *$//')"; }
say kernel "$(uname -r)"
say driver "$(sed -n 's/^NVRM version:.*Module  *\([0-9.]*\) .*/\1/p' /proc/driver/nvidia/version 2>/dev/null)"
say ofed "$(ofed_info -s 2>/dev/null)"
say mpi "$({launcher} --version 2>/dev/null | head -n 1)"
say gpu "$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sort | uniq -c)"
say processor "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
say cores "$({bind} nproc)"
say numa "$(cat /etc/towline/host-nodes 2>/dev/null || for cpu in $({bind} sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status | tr , ' '); do
  for one in $(seq $(echo $cpu | sed 's/-/ /')); do basename -a /sys/devices/system/cpu/cpu$one/node* 2>/dev/null; done; done | sed 's/^node//' | sort -un)"
say guest "$(grep -qw hypervisor /proc/cpuinfo && echo yes)"
say hypervisor "$(lscpu 2>/dev/null | sed -n 's/^Hypervisor vendor: *//p')"
say maker "$(cat /sys/class/dmi/id/sys_vendor 2>/dev/null)"
say clock "$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource 2>/dev/null)"
say topology "$(file=$(sed -n 's/^NCCL_TOPO_FILE=//p' /etc/nccl.conf 2>/dev/null); [ -s "${file:-/nonexistent}" ] && echo "$file")"
"#;

impl Facts {
    /// Reads what the line printed.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let pairs = text
            .lines()
            .filter_map(|line| line.trim_end().split_once('='));
        Self(
            pairs
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect(),
        )
    }

    /// A fact; nothing where the node has none.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether the node said anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A fact in which a native node and a machine differ.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Difference {
    /// Which.
    pub fact: String,
    /// Which nodes of their sides, from 0.
    pub node: usize,
    /// On the native one.
    pub native: String,
    /// In the machine.
    pub vm: String,
    /// Whether the specification allows it.
    pub is_allowed: bool,
}

/// In what the nodes of two sides differ, pair by pair.
#[must_use]
pub fn differences(native: &[Facts], vm: &[Facts], may_differ: &[String]) -> Vec<Difference> {
    let mut found = Vec::new();
    for (node, (native, vm)) in native.iter().zip(vm).enumerate() {
        for fact in COMPARED {
            let (native, vm) = (native.get(fact), vm.get(fact));
            if native != vm {
                found.push(Difference {
                    fact: fact.to_owned(),
                    node,
                    native: native.to_owned(),
                    vm: vm.to_owned(),
                    is_allowed: may_differ.iter().any(|allowed| allowed == fact),
                });
            }
        }
    }
    found
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let told = |value: &str| match value.is_empty() {
            true => "none".to_owned(),
            false => format!("`{value}`"),
        };
        let (native, vm) = (told(&self.native), told(&self.vm));
        write!(
            f,
            "{} of node {}: {native} natively, {vm} in the machine",
            self.fact, self.node
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::{Runner, Shell};

    #[test]
    fn this_machine_tells_its_facts() {
        let limit = std::time::Duration::from_secs(60);
        let output = Shell.run(&[], &line("", "mpirun"), limit).unwrap();
        let facts = Facts::parse(&output.text);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(facts.get("kernel"), kernel.trim());
        assert!(
            facts.get("cores").parse::<u32>().unwrap() >= 1,
            "{}",
            output.text
        );
        assert!(
            COMPARED.iter().all(|name| facts.0.contains_key(*name)),
            "{}",
            output.text
        );
    }

    #[test]
    fn what_differs_is_told_unless_it_is_nothing() {
        let native = Facts::parse("kernel=6.1\ncores=8\ngpu=1 NVIDIA H200\n");
        let vm = Facts::parse("kernel=6.1\r\ncores=4\n");
        let found = differences(std::slice::from_ref(&native), &[vm], &["cores".to_owned()]);
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "gpu of node 0: `1 NVIDIA H200` natively, none in the machine",
                "cores of node 0: `8` natively, `4` in the machine"
            ]
        );
        assert_eq!(
            found.iter().map(|one| one.is_allowed).collect::<Vec<_>>(),
            [false, true]
        );
        assert_eq!(
            differences(
                std::slice::from_ref(&native),
                std::slice::from_ref(&native),
                &[]
            ),
            []
        );
    }
}
