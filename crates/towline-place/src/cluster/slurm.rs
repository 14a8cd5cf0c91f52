//! Nodes from Slurm: the output of `scontrol --oneliner show nodes`, or the NodeName lines of a slurm.conf. Both say
//! `NodeName=... Key=Value ...`.

use std::collections::HashMap;

use super::{Cluster, text};
use crate::{Error, Result, hostlist};

/// A cluster of the nodes that the text lists; network and speeds are assumed, to be changed in the TOML.
///
/// With `wanted`, only these nodes; in a job's allocation that is `SLURM_JOB_NODELIST`.
pub fn cluster(source: &str, wanted: Option<&str>, what: &str) -> Result<Cluster> {
    let fail = |reason: String| Error::Cluster {
        what: what.to_owned(),
        reason,
    };
    let mut nodes = Vec::new();
    let mut defaults: HashMap<String, String> = HashMap::new();
    for line in joined_lines(source) {
        let keys = keys(&line);
        let Some(names) = keys.get("nodename") else {
            continue;
        };
        if names.eq_ignore_ascii_case("default") {
            defaults.extend(keys);
            continue;
        }
        let keys: HashMap<String, String> = defaults.clone().into_iter().chain(keys).collect();
        let shape = Shape::of(&keys)
            .map_err(|reason| fail(format!("nodes `{}`: {reason}", keys["nodename"])))?;
        for name in hostlist::expand(&keys["nodename"]).map_err(fail)? {
            let sockets = vec![shape.cores; shape.sockets as usize];
            nodes.push(text::plain_node(name, sockets, shape.threads, shape.gpus));
        }
    }
    if nodes.is_empty() {
        return Err(fail(
            "no line with NodeName=: is it what `scontrol --oneliner show nodes` wrote?".to_owned(),
        ));
    }
    let (memory, gpu, network) = text::defaults();
    let cluster = Cluster {
        name: "from Slurm".to_owned(),
        network,
        memory,
        nodes,
        gpu_servers: Vec::new(),
        switches: Vec::new(),
        gpu,
    };
    cluster.check(what)?;
    match wanted {
        Some(list) => cluster.only(&hostlist::expand(list).map_err(fail)?),
        None => Ok(cluster),
    }
}

/// Lines without comments; a backslash at the end joins the next, as in slurm.conf. `scontrol` names kernels such as
/// `OS=Linux 6.1 #1 SMP`, which is no comment.
fn joined_lines(source: &str) -> Vec<String> {
    let (mut lines, mut open) = (Vec::new(), String::new());
    for line in source.lines() {
        let line = match line.trim_start().starts_with('#') {
            true => "",
            false => line.split(" # ").next().unwrap_or_default(),
        };
        match line.strip_suffix('\\') {
            Some(start) => open.push_str(start),
            None => lines.push(std::mem::take(&mut open) + line),
        }
    }
    lines.push(open);
    lines
}

fn keys(line: &str) -> HashMap<String, String> {
    line.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .map(|(key, value)| (key.to_ascii_lowercase(), value.to_owned()))
        .collect()
}

struct Shape {
    sockets: u32,
    cores: u32,
    threads: u32,
    gpus: u32,
}

impl Shape {
    fn of(keys: &HashMap<String, String>) -> Result<Self, String> {
        let number = |names: &[&str]| {
            let Some(text) = names.iter().find_map(|name| keys.get(*name)) else {
                return Ok(None);
            };
            match text.parse::<u32>() {
                Ok(value) if (1..=super::MAX_PER_NODE).contains(&value) => Ok(Some(value)),
                _ => Err(format!(
                    "`{}={text}` is no number of sensible size",
                    names[0]
                )),
            }
        };
        let sockets = number(&["sockets", "socketsperboard"])?;
        let cores = number(&["corespersocket"])?;
        let threads = number(&["threadspercore"])?.unwrap_or(1);
        let cpus = number(&["cputot", "cpus"])?;
        let sockets = sockets.unwrap_or(1);
        // Without a topology Slurm counts what it schedules: a CPU is a core, then.
        let cores = cores.or_else(|| cpus.map(|cpus| (cpus / sockets / threads).max(1)));
        Ok(Self {
            sockets,
            cores: cores.ok_or("neither CoresPerSocket nor CPUs is known")?,
            threads,
            gpus: keys.get("gres").map_or(0, |gres| gpus(gres)),
        })
    }
}

/// How many of `gpu:t4:4(S:0-1),rgpu:8` are GPUs of the node.
fn gpus(gres: &str) -> u32 {
    let count = |item: &str| {
        let mut parts = item.split('(').next().unwrap_or_default().split(':');
        if parts.next() != Some("gpu") {
            return 0;
        }
        match parts.next_back() {
            None => 1,
            Some(last) => last.parse().unwrap_or(1),
        }
    };
    gres.split(',').map(count).fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scontrol_and_slurm_conf_give_the_same_nodes() {
        let scontrol = "NodeName=n1 Arch=x86_64 CoresPerSocket=6 CPUTot=12 Gres=gpu:t4:2(S:0) OS=Linux 6.1 #1 SMP Sockets=2 ThreadsPerCore=1\n\
                        NodeName=n2 Arch=x86_64 CoresPerSocket=6 CPUTot=12 Gres=gpu:t4:2(S:0) Sockets=2 ThreadsPerCore=1\n";
        let conf = "#NodeName=n0 CPUs=1\nNodeName=DEFAULT CoresPerSocket=6 \\\n SocketsPerBoard=2\nNodeName=n[1-2] CPUs=12 Gres=gpu:2 # Gres=gpu:4\n";
        let first = cluster(scontrol, None, "a").unwrap();
        assert_eq!(first.nodes, cluster(conf, None, "b").unwrap().nodes);
        assert_eq!((first.nodes[0].cores(), first.nodes[0].gpus), (12, 2));
        let one = cluster(conf, Some("n2"), "b").unwrap();
        assert_eq!(one.nodes.len(), 1);
    }

    #[test]
    fn what_is_no_list_of_nodes_is_refused() {
        for text in [
            "",
            "hello",
            "NodeName=a",
            "NodeName=a CPUs=x",
            "NodeName=a CPUs=999999",
        ] {
            assert!(cluster(text, None, "x").is_err(), "{text}");
        }
        assert!(cluster("NodeName=a CPUs=2", Some("b"), "x").is_err());
    }
}
