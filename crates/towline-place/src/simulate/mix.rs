//! A mix of jobs on two kinds of cluster: a GPU in every node, or k servers that lend theirs. The argument for sharing GPUs is
//! that few are busy at a time: this says how few are enough, and what that saves.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

use super::{Machine, Simulator};
use crate::cluster::Node;
use crate::gpus::{GpuSlot, Home};
use crate::units::{Bytes, Quantity, Time};
use crate::{Cluster, Error, Result};

/// Jobs of all groups together.
const MAX_JOBS: usize = 20_000;

/// What runs: groups of jobs that are alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// A name for reports.
    pub name: String,
    /// Most jobs on a GPU of a server at once; 0: any.
    #[serde(default)]
    pub share: u32,
    /// Its jobs, by kind.
    pub jobs: Vec<Group>,
}

/// Jobs that are alike, one after another.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// A name for reports.
    pub name: String,
    /// The number of jobs.
    pub count: u32,
    /// The first arrival; at once by default.
    #[serde(default)]
    pub first: Option<Quantity<Time>>,
    /// Between arrivals.
    pub every: Quantity<Time>,
    /// Whole nodes of each.
    #[serde(default = "one")]
    pub nodes: u32,
    /// Times that what follows is done, on each of its nodes.
    pub iterations: u32,
    /// On the processors.
    pub compute: Quantity<Time>,
    /// Of a GPU; without, the job uses none.
    pub kernel: Option<Quantity<Time>>,
    /// To and from the GPU.
    pub upload: Option<Quantity<Bytes>>,
    /// Bytes from the GPU.
    pub download: Option<Quantity<Bytes>>,
}

fn one() -> u32 {
    1
}

/// How a mix went on one cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// GPU servers; none: a GPU in every node.
    pub servers: Option<usize>,
    /// GPUs in all.
    pub gpus: usize,
    /// Time from the first arrival to the last end.
    pub makespan_s: f64,
    /// Mean over jobs, from arrival to end.
    pub turnaround_s: f64,
    /// Of all GPUs over the makespan.
    pub gpu_utilisation: f64,
    /// Energy of all machines, in joules.
    pub energy_j: f64,
    /// Price of all machines.
    pub price: f64,
    /// Makespan against that with a GPU in every node.
    pub slowdown: f64,
}

impl Mix {
    /// Reads a description; `what` names it in errors.
    pub fn from_toml(text: &str, what: &str) -> Result<Self> {
        let fail = |reason: String| Error::Cluster {
            what: what.to_owned(),
            reason,
        };
        let mix: Self =
            toml::from_str(text).map_err(|error| fail(error.to_string().trim().to_owned()))?;
        let jobs: u64 = mix.jobs.iter().map(|group| u64::from(group.count)).sum();
        if jobs == 0 || jobs > MAX_JOBS as u64 {
            return Err(fail(format!("{jobs} jobs; 1 to {MAX_JOBS} are possible")));
        }
        if mix
            .jobs
            .iter()
            .any(|group| group.nodes == 0 || group.iterations == 0)
        {
            return Err(fail(
                "every job has at least one node and one iteration".to_owned(),
            ));
        }
        Ok(mix)
    }

    /// Arrival and group of each job, in order of arrival.
    fn arrivals(&self) -> Vec<(f64, &Group)> {
        let mut jobs = Vec::new();
        for group in &self.jobs {
            let first = group.first.map_or(0.0, |time| time.0);
            jobs.extend(
                (0..group.count).map(|index| (first + f64::from(index) * group.every.0, group)),
            );
        }
        jobs.sort_by(|a, b| a.0.total_cmp(&b.0));
        jobs
    }

    /// The reason why some job can never start on so many shared GPUs. Each node of a job takes a place on a GPU.
    fn obstacle(&self, gpus: usize) -> Option<String> {
        let places = gpus as u64 * u64::from(self.share);
        let users = self
            .jobs
            .iter()
            .filter(|group| group.count > 0 && group.kernel.is_some());
        let largest = users.max_by_key(|group| group.nodes)?;
        (self.share > 0 && u64::from(largest.nodes) > places).then(|| {
            format!(
                "jobs `{}` use GPUs from {} nodes at once, and `share = {}` allows {places}",
                largest.name, largest.nodes, self.share
            )
        })
    }
}

/// A number of servers on which some job can never start.
#[derive(Clone, Debug, PartialEq)]
pub struct Impossible {
    /// GPU servers.
    pub servers: usize,
    /// GPUs in all.
    pub gpus: usize,
    /// The jobs that cannot start, and their need.
    pub reason: String,
}

/// A mix on all clusters that were tried.
#[derive(Debug)]
pub struct Comparison {
    /// The cluster with a GPU in every node first, then by the number of servers.
    pub outcomes: Vec<Outcome>,
    /// Numbers of servers that were not played.
    pub impossible: Vec<Impossible>,
    /// The failure that ended the list of outcomes early.
    pub error: Option<Error>,
}

/// Plays the mix with a GPU in every node, then with 1 to `most` servers like the cluster's first, or like its nodes.
///
/// A failed simulation ends the list with its error; earlier outcomes are kept.
pub fn compare(
    simulator: &Simulator,
    cluster: &Cluster,
    mix: &Mix,
    most: usize,
) -> Result<Comparison> {
    let nodes = cluster.nodes.len();
    if let Some(group) = mix.jobs.iter().find(|group| group.nodes as usize > nodes) {
        return Err(Error::Size(format!(
            "jobs `{}` want {} nodes, and the cluster has {nodes}",
            group.name, group.nodes
        )));
    }
    let mut model = cluster
        .gpu_servers
        .first()
        .unwrap_or(&cluster.nodes[0])
        .clone();
    model.gpus = model.gpus.max(1);
    let local = play(simulator, cluster, mix, None)?;
    let mut compared = Comparison {
        outcomes: vec![local],
        impossible: Vec::new(),
        error: None,
    };
    for servers in 1..=most {
        let gpus = servers * model.gpus as usize;
        if let Some(reason) = mix.obstacle(gpus) {
            compared.impossible.push(Impossible {
                servers,
                gpus,
                reason,
            });
            continue;
        }
        let lent = Cluster {
            nodes: cluster
                .nodes
                .iter()
                .map(|node| Node {
                    gpus: 0,
                    ..node.clone()
                })
                .collect(),
            gpu_servers: (0..servers)
                .map(|index| Node {
                    name: format!("server{index}"),
                    ..model.clone()
                })
                .collect(),
            ..cluster.clone()
        };
        match play(simulator, &lent, mix, Some(servers)) {
            Ok(mut outcome) => {
                outcome.slowdown = outcome.makespan_s / compared.outcomes[0].makespan_s;
                compared.outcomes.push(outcome);
            }
            Err(error) => {
                compared.error = Some(error);
                break;
            }
        }
    }
    Ok(compared)
}

/// The cheapest outcome whose makespan is within this factor of a GPU in every node; of equals the one with fewer servers.
pub fn cheapest(outcomes: &[Outcome], slowdown: f64) -> Option<&Outcome> {
    let lent = outcomes.iter().filter(|outcome| outcome.servers.is_some());
    lent.filter(|outcome| outcome.slowdown <= slowdown)
        .min_by(|a, b| a.price.total_cmp(&b.price).then(a.servers.cmp(&b.servers)))
}

fn play(
    simulator: &Simulator,
    cluster: &Cluster,
    mix: &Mix,
    servers: Option<usize>,
) -> Result<Outcome> {
    let mut machine = Machine::new(cluster);
    let mut lines = format!("mix {}\n", mix.share);
    for index in 0..cluster.nodes.len() {
        let node = machine.node(Home::Node(index));
        // A job has its node to itself: its processors are one place that is busy or not.
        let socket = machine.socket(index, 0, |_, ranks| f64::from(ranks));
        let gpu = match servers {
            Some(_) => -1,
            None => {
                let slot = GpuSlot {
                    home: Home::Node(index),
                    index: 0,
                };
                machine.gpu(slot) as i64
            }
        };
        let _ = writeln!(lines, "client {node} {socket} {gpu}");
    }
    for (index, server) in cluster.gpu_servers.iter().enumerate() {
        for gpu in 0..if servers.is_some() { server.gpus } else { 0 } {
            let slot = GpuSlot {
                home: Home::Server(index),
                index: gpu,
            };
            let _ = writeln!(lines, "pool {}", machine.gpu(slot));
        }
    }
    let jobs = mix.arrivals();
    for (arrival, group) in &jobs {
        let size = |bytes: Option<Quantity<Bytes>>| bytes.map_or(0.0, |bytes| bytes.0);
        let _ = writeln!(
            lines,
            "job {arrival} {} {} {} {} {} {} {}",
            group.nodes,
            u8::from(group.kernel.is_some()),
            group.iterations,
            group.compute.0,
            size(group.upload),
            group.kernel.map_or(0.0, |kernel| kernel.0),
            size(group.download),
        );
    }
    let answer = simulator.ask(machine.lines()? + &lines + "end\n")?;
    if answer.ended.len() != jobs.len() || answer.socket_busy.len() != cluster.nodes.len() {
        return Err(Error::Simulator(
            "it answered for other jobs or nodes".to_owned(),
        ));
    }
    // The simulator's clock starts before the first arrival, and jobs are in order of arrival.
    let first = jobs.first().map_or(0.0, |(arrival, _)| *arrival);
    let makespan_s = answer.ended.iter().copied().fold(first, f64::max) - first;
    let waited = answer
        .ended
        .iter()
        .zip(&jobs)
        .map(|(end, (arrival, _))| end - arrival);
    let turnaround_s = waited.sum::<f64>() / jobs.len() as f64;
    let gpus = answer.gpu_busy.len();
    let gpu_busy: f64 = answer.gpu_busy.iter().sum();
    // Watts between idle and busy count for the seconds that something was busy.
    let node_energy = |node: &Node, busy: f64| {
        node.idle_w * makespan_s + (node.busy_w - node.idle_w).max(0.0) * busy
    };
    let clients: f64 = cluster
        .nodes
        .iter()
        .zip(&answer.socket_busy)
        .map(|(node, &busy)| node_energy(node, busy))
        .sum();
    let lent = if servers.is_some() {
        &cluster.gpu_servers[..]
    } else {
        &[]
    };
    // A server's processors move data and start kernels while one of its GPUs is used.
    let mut at = 0;
    let mut server_energy = 0.0;
    for server in lent {
        let mine = &answer.gpu_busy[at..at + server.gpus as usize];
        at += server.gpus as usize;
        let busy = mine.iter().copied().fold(0.0, f64::max).min(makespan_s);
        server_energy += node_energy(server, busy / f64::from(server.cores()));
    }
    let gpu = &cluster.gpu;
    let gpu_energy =
        gpu.idle_w * makespan_s * gpus as f64 + (gpu.busy_w - gpu.idle_w).max(0.0) * gpu_busy;
    let machines = cluster
        .nodes
        .iter()
        .chain(lent)
        .map(|node| node.price)
        .sum::<f64>();
    Ok(Outcome {
        servers,
        gpus,
        makespan_s,
        turnaround_s,
        gpu_utilisation: gpu_busy / (makespan_s * gpus as f64).max(f64::MIN_POSITIVE),
        energy_j: clients + server_energy + gpu_energy,
        price: machines + gpu.price * gpus as f64,
        slowdown: 1.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIX: &str = "name = \"m\"\n[[jobs]]\nname = \"a\"\ncount = 3\nevery = \"2 s\"\niterations = 5\n\
                       compute = \"1 s\"\nkernel = \"100 ms\"\nupload = \"16 MiB\"\n";

    #[test]
    fn jobs_arrive_in_order() {
        let text = MIX
            .replace("name = \"m\"", "name = \"m\"\nshare = 2")
            .to_owned()
            + "[[jobs]]\nname = \"b\"\ncount = 1\nfirst = \"3 s\"\nevery = \"0 s\"\niterations = 1\ncompute = \"1 s\"\n";
        let mix = Mix::from_toml(&text, "m").unwrap();
        let arrivals: Vec<(f64, &str)> = mix
            .arrivals()
            .iter()
            .map(|(at, group)| (*at, &*group.name))
            .collect();
        assert_eq!(arrivals, [(0.0, "a"), (2.0, "a"), (3.0, "b"), (4.0, "a")]);
    }

    #[test]
    fn wrong_mixes_are_refused() {
        for (from, to) in [
            ("count = 3", "count = 0"),
            ("count = 3", "count = 30000"),
            ("iterations = 5", "iterations = 0"),
            ("\"16 MiB\"", "16"),
            ("compute", "computes"),
        ] {
            assert!(Mix::from_toml(&MIX.replace(from, to), "m").is_err(), "{to}");
        }
    }

    #[test]
    fn the_cheapest_within_the_slowdown_is_named() {
        let outcome = |servers, price, slowdown| Outcome {
            servers,
            gpus: 1,
            makespan_s: 1.0,
            turnaround_s: 1.0,
            gpu_utilisation: 0.5,
            energy_j: 1.0,
            price,
            slowdown,
        };
        let outcomes = [
            outcome(None, 9.0, 1.0),
            outcome(Some(1), 1.0, 2.0),
            outcome(Some(2), 2.0, 1.05),
        ];
        assert_eq!(cheapest(&outcomes, 1.1).unwrap().servers, Some(2));
        assert_eq!(cheapest(&outcomes, 3.0).unwrap().servers, Some(1));
        assert!(cheapest(&outcomes, 1.0).is_none());
    }
}
