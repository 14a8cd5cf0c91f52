//! What is to be proven: a TOML file.

use serde::{Deserialize, Serialize};

use super::Side;
use super::benchmark::Kind;

/// What is to be run, and where.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// How often each is run on each side.
    #[serde(default = "default_runs")]
    pub runs: u32,
    /// On how many nodes.
    #[serde(default = "default_nodes")]
    pub nodes: Vec<u32>,
    /// The share of native that is hoped for; below it causes are looked for.
    #[serde(default = "default_goal")]
    pub goal: f64,
    /// Seconds that one run may take.
    #[serde(default = "default_limit")]
    pub limit_s: u64,
    /// Facts that may differ between the sides all the same: said in the report. See [`super::facts::COMPARED`].
    #[serde(default)]
    pub may_differ: Vec<String>,
    /// GPUs of each node.
    #[serde(default)]
    pub gpus: u32,
    /// The nodes without virtual machines.
    pub native: Nodes,
    /// The virtual machines.
    pub vm: Nodes,
    /// The hosts of the virtual machines, in their order: where causes are looked for. Without them some cannot be seen.
    #[serde(default)]
    pub hypervisors: Vec<Hypervisor>,
    /// What is run.
    pub benchmark: Vec<Benchmark>,
}

/// The nodes of a side.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// What leads to each node: `[]` is this one, `["ssh", "gpu2"]` another. A line of shell is added as the last word.
    pub reach: Vec<Vec<String>>,
    /// What MPI calls the nodes, in the same order. Needed for more than one.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// What is put before each command: `numactl --cpunodebind=1 --membind=1` gives a native node what the machine has.
    #[serde(default)]
    pub bind: String,
    /// Where our benchmarks lie.
    #[serde(default = "default_programs")]
    pub programs: String,
    /// Starts MPI programs; `{ranks}`, `{per_node}` and `{hosts}` are filled in.
    #[serde(default = "default_mpirun")]
    pub mpirun: String,
}

/// A host of virtual machines.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hypervisor {
    /// What leads to it.
    pub reach: Vec<String>,
    /// What libvirt calls the machine.
    pub domain: String,
    /// How `towline` is called there.
    #[serde(default = "default_towline")]
    pub towline: String,
}

/// A benchmark.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Benchmark {
    /// Which.
    pub kind: Kind,
    /// Its sizes; what it takes for one depends on the kind.
    #[serde(default)]
    pub sizes: Vec<String>,
    /// Processes for each GPU, or for each node without any: 1 and 8 in the study.
    #[serde(default = "default_per_gpu")]
    pub per_gpu: Vec<u32>,
    /// On how many nodes, where that is not what all are run on.
    #[serde(default)]
    pub nodes: Option<Vec<u32>>,
    /// The command, where the usual one does not do. See [`super::benchmark`] for what is filled in.
    #[serde(default)]
    pub command: Option<String>,
}

fn default_runs() -> u32 {
    10
}

fn default_nodes() -> Vec<u32> {
    vec![1]
}

fn default_goal() -> f64 {
    0.95
}

fn default_limit() -> u64 {
    1800
}

fn default_programs() -> String {
    "/usr/local/libexec/towline".to_owned()
}

fn default_mpirun() -> String {
    "mpirun -np {ranks} --host {hosts} --map-by ppr:{per_node}:node".to_owned()
}

fn default_towline() -> String {
    "towline".to_owned()
}

fn default_per_gpu() -> Vec<u32> {
    vec![1]
}

/// A file that makes no sense.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Says what.
    #[error("{0}")]
    Sense(String),
    /// Not TOML, or not with these fields.
    #[error("the file cannot be read")]
    Syntax(#[from] toml::de::Error),
}

/// One thing that is run on both sides.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Case {
    /// Which benchmark.
    pub kind: Kind,
    /// Its size.
    pub size: String,
    /// Processes for each GPU.
    pub per_gpu: u32,
    /// Nodes.
    pub nodes: u32,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.kind.name())?;
        if !self.size.is_empty() {
            write!(f, " {}", self.size)?;
        }
        if self.kind.takes_ranks() {
            write!(f, ", {}:1", self.per_gpu)?;
        }
        let s = if self.nodes == 1 { "" } else { "s" };
        write!(f, ", {} node{s}", self.nodes)
    }
}

impl Spec {
    /// Reads a specification.
    ///
    /// # Errors
    ///
    /// When it is no TOML, has unknown fields, or asks for what makes no sense.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let spec: Self = toml::from_str(text)?;
        spec.check().map_err(SpecError::Sense)?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), String> {
        if !(2..=1000).contains(&self.runs) {
            return Err(format!(
                "`runs` is {}: it has to be 2 to 1000, for there is no interval of one",
                self.runs
            ));
        }
        if !(self.goal > 0.0 && self.goal <= 1.0) {
            return Err(format!(
                "`goal` is {}: it is a share of native, as in 0.95",
                self.goal
            ));
        }
        if self.benchmark.is_empty() {
            return Err("there is no [[benchmark]]".to_owned());
        }
        for name in &self.may_differ {
            if !super::facts::COMPARED.contains(&name.as_str()) {
                return Err(format!(
                    "`may_differ` has `{name}`; it can have {}",
                    super::facts::COMPARED.join(", ")
                ));
            }
        }
        let wanted = self
            .benchmark
            .iter()
            .flat_map(|benchmark| benchmark.nodes.as_ref().unwrap_or(&self.nodes));
        let most = wanted.copied().max().unwrap_or(0);
        for side in Side::ALL {
            let nodes = self.side(side);
            let there = nodes.reach.len();
            if (there as u64) < u64::from(most) {
                return Err(format!(
                    "{most} nodes are asked for, and [{}] reaches {there}",
                    side.name()
                ));
            }
            if most > 1 && nodes.hosts.len() != there {
                return Err(format!(
                    "[{}] has {there} nodes and {} names in `hosts`: MPI has to know what each is called",
                    side.name(),
                    nodes.hosts.len()
                ));
            }
        }
        for benchmark in &self.benchmark {
            let least = benchmark.kind.least_nodes();
            let nodes = benchmark.nodes.as_ref().unwrap_or(&self.nodes);
            if nodes.contains(&0) || benchmark.per_gpu.contains(&0) {
                return Err("a number of nodes or processes is 0".to_owned());
            }
            if nodes.iter().all(|&count| count < least) {
                return Err(format!(
                    "{} takes {least} nodes: say nodes = [{least}]",
                    benchmark.kind.name()
                ));
            }
        }
        Ok(())
    }

    /// The nodes of a side.
    #[must_use]
    pub fn side(&self, side: Side) -> &Nodes {
        match side {
            Side::Native => &self.native,
            Side::Vm => &self.vm,
        }
    }

    /// Everything that is run, in order.
    #[must_use]
    pub fn cases(&self) -> Vec<(Case, &Benchmark)> {
        let mut cases = Vec::new();
        for benchmark in &self.benchmark {
            let kind = benchmark.kind;
            let sizes = match benchmark.sizes.is_empty() {
                true => kind.sizes(),
                false => benchmark.sizes.clone(),
            };
            let per_gpu: &[u32] = match kind.takes_ranks() {
                true => &benchmark.per_gpu,
                false => &[1],
            };
            for &nodes in benchmark.nodes.as_ref().unwrap_or(&self.nodes) {
                if nodes < kind.least_nodes() || nodes > kind.most_nodes() {
                    continue;
                }
                for &per_gpu in per_gpu {
                    for size in &sizes {
                        let case = Case {
                            kind,
                            size: size.clone(),
                            per_gpu,
                            nodes,
                        };
                        cases.push((case, benchmark));
                    }
                }
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        [native]
        reach = [[]]
        [vm]
        reach = [["ssh", "node0"]]
        [[benchmark]]
        kind = "lj"
        sizes = ["S", "W"]
        per_gpu = [1, 8]
    "#;

    #[test]
    fn a_small_file_has_sensible_defaults() {
        let spec = Spec::parse(SMALL).unwrap();
        assert_eq!(
            (spec.runs, spec.nodes.as_slice(), spec.goal),
            (10, &[1][..], 0.95)
        );
        let cases: Vec<String> = spec
            .cases()
            .iter()
            .map(|(case, _)| case.to_string())
            .collect();
        assert_eq!(
            cases,
            [
                "lj S, 1:1, 1 node",
                "lj W, 1:1, 1 node",
                "lj S, 8:1, 1 node",
                "lj W, 8:1, 1 node"
            ]
        );
    }

    #[test]
    fn files_that_make_no_sense_say_what_would() {
        for (line, part) in [
            ("runs = 1", "2 to 1000"),
            ("goal = 95.0", "a share of native"),
            ("nodes = [2]", "[native] reaches 1"),
            ("nodes = [0]", "is 0"),
            ("may_differ = [\"weather\"]", "kernel"),
            ("benchmarks = []", "unknown field"),
        ] {
            let error = Spec::parse(&format!("{line}\n{SMALL}")).unwrap_err();
            let text = match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            };
            assert!(text.contains(part), "{text}");
        }
        let latency = SMALL.replace("\"lj\"", "\"latency\"");
        let error = Spec::parse(&latency).unwrap_err().to_string();
        assert!(error.contains("takes 2 nodes"), "{error}");
    }
}
