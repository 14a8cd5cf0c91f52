//! Programs under placements in SimGrid: what the estimate of [`crate::score`] leaves out, such as the order of messages and who
//! waits for whom.
//!
//! The simulator is a child process, `towline-sim` (the folder `sim/`), and everything else works without it. What it gets is a
//! *scenario*: sockets with what they do for n ranks, links, and the messages of each rank. A simulator that fails is an error,
//! never a time.

pub mod mix;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::gpus::{Assignment, GpuSlot, Home};
use crate::program::{self, Op, REFERENCE_SPEED};
use crate::score::Sockets;
use crate::{Cluster, Error, Placement, Program, Result, child};

/// Iterations that are played where the caller does not say: the first is warming up, the second is the steady state.
pub const ITERATIONS: u64 = 2;

/// Sockets and GPUs that take part: the simulator keeps a route for each pair.
const MAX_PLACES: usize = 1500;

/// What a call costs on the wire beside its data: a request and its share of an answer.
const CALL_BYTES: f64 = 64.0;

/// The simulator's program.
#[derive(Clone, Debug)]
pub struct Simulator {
    path: PathBuf,
    limit: Duration,
}

/// What the simulator answers.
#[derive(Debug, Deserialize)]
struct Answer {
    version: u32,
    end: f64,
    marks: Vec<f64>,
    socket_busy: Vec<f64>,
    gpu_busy: Vec<f64>,
    started: Vec<f64>,
    ended: Vec<f64>,
}

/// A program's run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Of the whole program; what was not played is taken from the steady state.
    pub seconds: f64,
    /// Of one iteration in the steady state; of a program without iterations, everything.
    pub iteration_s: f64,
    /// Iterations that were played.
    pub played: u64,
}

impl Simulator {
    /// The one that is named, or TOWLINE_SIM, or beside this program, or in PATH.
    pub fn find(named: Option<&Path>, limit: Duration) -> Result<Self> {
        let beside = std::env::current_exe()
            .ok()
            .and_then(|path| Some(path.parent()?.join("towline-sim")));
        let path = named
            .map(Path::to_owned)
            .or_else(|| std::env::var_os("TOWLINE_SIM").map(PathBuf::from))
            .or_else(|| beside.filter(|path| path.exists()))
            .unwrap_or_else(|| PathBuf::from("towline-sim"));
        let missing = |why: String| Error::Tool {
            program: path.display().to_string(),
            reason: format!(
                "{why}; simulation needs the program towline-sim: install SimGrid (Debian: libsimgrid-dev), run `make -C sim` in Towline's \
                 source, and name the program with --simulator or TOWLINE_SIM"
            ),
        };
        let mut version = Command::new(&path);
        let ended = child::run(
            version.arg("--version"),
            Vec::new(),
            Duration::from_secs(30),
        )
        .map_err(|error| missing(error.to_string()))?;
        match ended.output.starts_with("towline-sim 1,") {
            true => Ok(Self { path, limit }),
            false => Err(missing(
                "it does not say that it is towline-sim of version 1".to_owned(),
            )),
        }
    }

    fn ask(&self, scenario: String) -> Result<Answer> {
        let mut command = Command::new(&self.path);
        // SimGrid tells its settings otherwise.
        command.arg("--log=xbt_cfg.thres:warning");
        let ended = child::run(&mut command, scenario.into_bytes(), self.limit)
            .map_err(|error| Error::Simulator(error.to_string()))?;
        if !ended.status.success() {
            return Err(Error::Simulator(ended.complaint()));
        }
        let answer: Answer = serde_json::from_str(&ended.output)
            .map_err(|error| Error::Simulator(format!("its answer cannot be read: {error}")))?;
        let times = [
            &answer.marks,
            &answer.started,
            &answer.ended,
            &answer.socket_busy,
            &answer.gpu_busy,
        ];
        let sane = |time: &f64| time.is_finite() && *time >= 0.0;
        match answer.version == 1 && sane(&answer.end) && times.into_iter().flatten().all(sane) {
            true => Ok(answer),
            false => Err(Error::Simulator(
                "its answer has times that are none".to_owned(),
            )),
        }
    }

    /// Plays a program; `iterations` of its body at most.
    pub fn run(
        &self,
        cluster: &Cluster,
        program: &Program,
        sockets: &Sockets,
        placement: &Placement,
        gpus: Option<&Assignment>,
        iterations: u64,
    ) -> Result<Run> {
        let played = program.iterations.min(iterations.max(1));
        let scenario = scenario(cluster, program, sockets, placement, gpus, played)?;
        let answer = self.ask(scenario)?;
        if answer.marks.len() as u64 != played {
            return Err(Error::Simulator(
                "it played another number of iterations".to_owned(),
            ));
        }
        let (Some(first), Some(last)) = (answer.marks.first(), answer.marks.last()) else {
            return Ok(Run {
                seconds: answer.end,
                iteration_s: answer.end,
                played,
            });
        };
        let iteration_s = match played {
            1 => *last,
            _ => (last - first) / (played - 1) as f64,
        };
        Ok(Run {
            seconds: last + (program.iterations - played) as f64 * iteration_s,
            iteration_s,
            played,
        })
    }
}

/// The lines of a scenario that describe the machine; places get their numbers as they are asked for.
struct Machine<'a> {
    cluster: &'a Cluster,
    nodes: BTreeMap<Home, usize>,
    node_lines: String,
    sockets: BTreeMap<(usize, u32), usize>,
    gpus: BTreeMap<(Home, u32), usize>,
    place_lines: String,
}

impl<'a> Machine<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            nodes: BTreeMap::new(),
            node_lines: String::new(),
            sockets: BTreeMap::new(),
            gpus: BTreeMap::new(),
            place_lines: String::new(),
        }
    }

    fn node(&mut self, home: Home) -> usize {
        let next = self.nodes.len();
        let of = match home {
            Home::Node(index) => &self.cluster.nodes[index],
            Home::Server(index) => &self.cluster.gpu_servers[index],
        };
        let at = of.switch.map_or(-1, |switch| switch as i64);
        *self.nodes.entry(home).or_insert_with(|| {
            let _ = writeln!(self.node_lines, "node {at}");
            next
        })
    }

    /// The number of a socket, with what it does for 1, 2, ... ranks that each draw so much from memory.
    fn socket(&mut self, node: usize, socket: u32, capacity: impl Fn(u32, u32) -> f64) -> usize {
        let at = self.node(Home::Node(node));
        let next = self.sockets.len();
        let of = &self.cluster.nodes[node];
        *self.sockets.entry((node, socket)).or_insert_with(|| {
            let cores = of.sockets[socket as usize];
            let _ = write!(self.place_lines, "socket {at}");
            for ranks in 1..=cores * of.threads {
                let _ = write!(self.place_lines, " {}", capacity(cores, ranks));
            }
            self.place_lines.push('\n');
            next
        })
    }

    fn gpu(&mut self, slot: GpuSlot) -> usize {
        let at = self.node(slot.home);
        let next = self.gpus.len();
        *self.gpus.entry((slot.home, slot.index)).or_insert_with(|| {
            let _ = writeln!(self.place_lines, "gpu {at}");
            next
        })
    }

    fn lines(&self) -> Result<String> {
        let places = self.sockets.len() + self.gpus.len();
        if places > MAX_PLACES {
            return Err(Error::Size(format!(
                "{places} sockets and GPUs take part, and the simulator has room for {MAX_PLACES}: use fewer nodes"
            )));
        }
        let (network, memory) = (&self.cluster.network, &self.cluster.memory);
        // What posting and taking a message costs the processors is part of its way.
        let mut text = format!(
            "towline-sim 1\nnetwork {} {} {}\nmemory {} {} {}\ngpulink {}\n",
            network.latency_s + 2.0 * network.overhead_s,
            network.bandwidth,
            network.eager_bytes,
            memory.latency_s + network.overhead_s,
            memory.bandwidth,
            memory.socket_link,
            self.cluster.gpu.link
        );
        for switch in &self.cluster.switches {
            let _ = writeln!(text, "switch {}", switch.uplink);
        }
        Ok(text + &self.node_lines + &self.place_lines)
    }
}

fn scenario(
    cluster: &Cluster,
    program: &Program,
    sockets: &Sockets,
    placement: &Placement,
    gpus: Option<&Assignment>,
    played: u64,
) -> Result<String> {
    if placement.ranks() != program.ranks() {
        return Err(Error::OtherRanks {
            placed: placement.ranks(),
            ranks: program.ranks(),
        });
    }
    let mut machine = Machine::new(cluster);
    let mut ranks = format!("program {played}\n");
    for (rank, slot) in placement.slots.iter().enumerate() {
        let node = &cluster.nodes[slot.node as usize];
        let (socket, _) = node.socket_of(slot.core).expect("placements are checked");
        let demand = program.memory_demand * node.core_speed / REFERENCE_SPEED;
        let capacity = |cores, ranks| sockets.capacity(node, cores, ranks, demand);
        let socket = machine.socket(slot.node as usize, socket, capacity);
        let gpu = gpus.and_then(|gpus| gpus.gpus.get(rank).copied().flatten());
        let gpu = gpu.map_or(-1, |slot| machine.gpu(slot) as i64);
        let _ = writeln!(ranks, "rank {socket} {gpu}");
        let speed = program::speed(program.rated_speed, node.core_speed);
        write_ops(
            &mut ranks,
            program,
            &program.start[rank],
            rank as u32,
            speed,
        );
        if played > 0 {
            ranks.push_str("b\n");
            write_ops(&mut ranks, program, &program.body[rank], rank as u32, speed);
        }
    }
    Ok(machine.lines()? + &ranks + "end\n")
}

fn write_ops(text: &mut String, program: &Program, ops: &[Op], rank: u32, speed: f64) {
    for op in program.flat(ops, rank) {
        let _ = match op {
            Op::Compute { ops } => writeln!(text, "c {}", ops / speed),
            Op::Send { to, tag, bytes } => writeln!(text, "s {to} {tag} {bytes}"),
            Op::Isend { to, tag, bytes } => writeln!(text, "i {to} {tag} {bytes}"),
            Op::Recv { from, tag, bytes } => writeln!(text, "r {from} {tag} {bytes}"),
            Op::Irecv { from, tag, bytes } => writeln!(text, "j {from} {tag} {bytes}"),
            Op::Wait { peer, tag, sent } => writeln!(text, "w {peer} {tag} {}", u8::from(sent)),
            Op::WaitAll => writeln!(text, "a"),
            Op::Exchange { to, from, tag } => {
                let end = |end: Option<(u32, u64)>| {
                    end.map_or((-1, 0), |(peer, bytes)| (i64::from(peer), bytes))
                };
                let ((to, sent), (from, received)) = (end(to), end(from));
                writeln!(text, "x {to} {sent} {from} {received} {tag}")
            }
            Op::Gpu {
                up,
                seconds,
                down,
                calls,
            } => {
                let up = up as f64 + f64::from(calls) * CALL_BYTES;
                writeln!(text, "g {up} {seconds} {}", down as f64 + CALL_BYTES)
            }
            Op::Collective { .. } => unreachable!("collectives were taken apart"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use crate::cluster::sample;
    use crate::program::declared::Kernel;

    #[test]
    fn a_scenario_names_what_takes_part_and_no_more() {
        let cluster = sample(4, 2, 3);
        let program = Kernel::Cg.program(4).unwrap();
        let placement = Policy::RoundRobin(2).place(&cluster, 4, false).unwrap();
        let text = scenario(&cluster, &program, &Sockets::default(), &placement, None, 2).unwrap();
        let count = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(
            (count("node"), count("socket"), count("rank"), count("gpu ")),
            (2, 2, 4, 0)
        );
        // Three cores of two threads each: six capacities.
        let socket = text
            .lines()
            .find(|line| line.starts_with("socket"))
            .unwrap();
        assert_eq!(socket.split(' ').count(), 2 + 6);
        assert!(text.starts_with("towline-sim 1\n") && text.ends_with("end\n"));
    }

    #[test]
    fn a_missing_simulator_says_how_to_get_one() {
        let error = Simulator::find(
            Some(Path::new("/nonexistent/towline-sim")),
            Duration::from_secs(1),
        );
        let text = error.err().unwrap().to_string();
        assert!(text.contains("make -C sim"), "{text}");
        let other = Simulator::find(Some(Path::new("true")), Duration::from_secs(1))
            .err()
            .unwrap();
        assert!(other.to_string().contains("does not say"), "{other}");
    }
}
