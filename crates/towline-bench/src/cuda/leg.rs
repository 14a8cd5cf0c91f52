//! The child that measures one leg: it does one repetition of one task at a time, as its parent asks, so that legs can take turns.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use towline_backend::cuda::{CUdeviceptr, CUgraphExec};

use super::device::{Cuda, Kernel, Pinned};
use crate::child::end_with_parent;
use crate::cpu;
use crate::peer::Direction;
use crate::report::Device;

/// Hidden `towline bench cuda-leg`.
#[derive(Args, Debug)]
pub struct LegOptions {
    /// Driver to load, or null
    #[arg(long, value_name = "NAME")]
    pub(super) driver: String,
    /// Number of the device
    #[arg(long, default_value_t = 0)]
    pub(super) device: usize,
}

/// What a leg is asked to do.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub(super) enum Task {
    /// Say what the device is.
    Describe,
    /// From nothing to a first result; the image is new to every cache unless the salt is known. Once per process.
    Start { salt: u64 },
    /// Launches without waiting, then a wait.
    Burst { launches: u32 },
    /// One launch, then a wait: the median of many.
    RoundTrip { repeats: u32 },
    /// Copies of 4 bytes that wait: medians of many.
    Small { repeats: u32 },
    /// Memory of about 4 MiB, taken and given back.
    Allocate { rounds: u32 },
    /// A message that is copied, so many times.
    Transfer {
        bytes: usize,
        times: u32,
        direction: Direction,
        pinned: bool,
    },
    /// A captured graph, launched so many times and waited for once.
    Replay { nodes: u32, replays: u32 },
    /// Bursts of launches for so long: what one of many clients gets.
    Work { milliseconds: u64 },
}

/// What a repetition measured.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Reading {
    /// Measurements by name.
    pub(super) values: Values,
    /// CPU seconds of this process in it.
    pub(super) client_s: f64,
    /// The answer to [`Task::Describe`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) device: Option<Description>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) error: Option<String>,
}

/// A device, and how much memory it has left.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Description {
    #[serde(flatten)]
    pub(super) facts: Device,
    pub(super) free_bytes: usize,
}

pub(super) type Values = BTreeMap<String, f64>;

/// Answers tasks from standard input until it ends.
pub(crate) fn run(options: &LegOptions) -> anyhow::Result<ExitCode> {
    end_with_parent()?;
    // Libraries may print: from here on, that goes to standard error, and only answers to our parent.
    let stdout = rustix::io::dup(rustix::stdio::stdout())?;
    rustix::stdio::dup2_stdout(std::io::stderr().as_fd())?;
    let mut answers = std::fs::File::from(stdout);
    let mut bench = None;
    for line in std::io::stdin().lock().lines() {
        let task: Task = serde_json::from_str(&line?).context("no task")?;
        let before = cpu::of_self();
        let mut reading = perform(task, options, &mut bench).unwrap_or_else(|error| Reading {
            error: Some(format!("{error:#}")),
            ..Reading::default()
        });
        reading.client_s = cpu::of_self() - before;
        let mut answer = serde_json::to_vec(&reading)?;
        answer.push(b'\n');
        answers.write_all(&answer)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn perform(task: Task, options: &LegOptions, bench: &mut Option<Bench>) -> anyhow::Result<Reading> {
    let mut reading = Reading::default();
    if let Task::Start { salt } = task {
        reading.values = start(options, salt)?;
        return Ok(reading);
    }
    let bench = match bench {
        Some(bench) => bench,
        none => none.insert(Bench::open(options)?),
    };
    match task {
        Task::Describe => {
            reading.device = Some(Description {
                facts: bench.cuda.facts(),
                free_bytes: bench.cuda.free_bytes()?,
            });
        }
        Task::Start { .. } => {}
        Task::Burst { launches } => reading.values = bench.burst(launches)?,
        Task::RoundTrip { repeats } => reading.values = bench.round_trip(repeats)?,
        Task::Small { repeats } => reading.values = bench.small(repeats)?,
        Task::Allocate { rounds } => reading.values = bench.allocate(rounds)?,
        Task::Transfer {
            bytes,
            times,
            direction,
            pinned,
        } => reading.values = bench.transfer(bytes, times, direction, pinned)?,
        Task::Replay { nodes, replays } => reading.values = bench.replay(nodes, replays)?,
        Task::Work { milliseconds } => reading.values = bench.work(milliseconds)?,
    }
    Ok(reading)
}

fn us_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn values<const N: usize>(pairs: [(&str, f64); N]) -> Values {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Everything between a new process and the first number that it computed.
fn start(options: &LegOptions, salt: u64) -> anyhow::Result<Values> {
    let begin = Instant::now();
    let mut cuda = Cuda::open(&options.driver, options.device)?;
    let init = us_since(begin);
    cuda.start()?;
    let context = us_since(begin);
    let kernel = cuda.kernel(salt)?;
    let module = us_since(begin);
    let place = cuda.allocate(4)?;
    cuda.write(place, &41_u32.to_le_bytes())?;
    cuda.launch(&kernel, place, 1)?;
    let mut result = [0; 4];
    cuda.finish()?;
    cuda.read(&mut result, place)?;
    let result = u32::from_le_bytes(result);
    ensure!(result == 42, "41 + 1 is {result}");
    Ok(values([
        ("init", init),
        ("context", context - init),
        ("module", module - context),
        ("first_result", us_since(begin)),
    ]))
}

/// What stays between tasks.
struct Bench {
    cuda: Cuda,
    kernel: Kernel,
    /// Counts launches.
    counter: CUdeviceptr,
    launched: u32,
    /// Memory of transfers: kept, so that only the first repetition (a warm-up) finds fresh pages.
    messages: Option<Messages>,
    graph: Option<(u32, CUgraphExec)>,
}

struct Messages {
    host: Host,
    device: CUdeviceptr,
}

/// Host memory of either kind.
enum Host {
    Pageable(Vec<u8>),
    Pinned(Pinned),
}

impl Host {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Pageable(bytes) => bytes,
            Self::Pinned(memory) => memory.bytes(),
        }
    }

    fn fits(&mut self, bytes: usize, pinned: bool) -> bool {
        matches!(self, Self::Pinned(_)) == pinned && self.bytes().len() == bytes
    }
}

impl Bench {
    fn open(options: &LegOptions) -> anyhow::Result<Self> {
        let mut cuda = Cuda::open(&options.driver, options.device)?;
        cuda.start()?;
        let kernel = cuda.kernel(0)?;
        let counter = cuda.allocate(4)?;
        cuda.write(counter, &[0; 4])?;
        Ok(Self {
            kernel,
            counter,
            launched: 0,
            messages: None,
            graph: None,
            cuda,
        })
    }

    #[inline]
    fn launch(&mut self) -> anyhow::Result<()> {
        self.launched = self.launched.wrapping_add(1);
        Ok(self.cuda.launch(&self.kernel, self.counter, 1)?)
    }

    /// That every launch up to now was done, once.
    fn check(&self) -> anyhow::Result<()> {
        let mut count = [0; 4];
        self.cuda.finish()?;
        self.cuda.read(&mut count, self.counter)?;
        let count = u32::from_le_bytes(count);
        ensure!(
            count == self.launched,
            "{} launches were counted as {count}",
            self.launched
        );
        Ok(())
    }

    fn burst(&mut self, launches: u32) -> anyhow::Result<Values> {
        self.cuda.finish()?;
        let start = Instant::now();
        for _ in 0..launches {
            self.launch()?;
        }
        let issued = us_since(start);
        self.cuda.finish()?;
        let completed = us_since(start);
        self.check()?;
        let per = |us: f64| us / f64::from(launches);
        Ok(values([
            ("issue", per(issued)),
            ("complete", per(completed)),
        ]))
    }

    fn round_trip(&mut self, repeats: u32) -> anyhow::Result<Values> {
        self.cuda.finish()?;
        let us = median_of(repeats, || {
            let start = Instant::now();
            self.launch()?;
            self.cuda.finish()?;
            Ok(us_since(start))
        })?;
        self.check()?;
        Ok(values([("launch_sync", us)]))
    }

    fn small(&mut self, repeats: u32) -> anyhow::Result<Values> {
        let place = self.cuda.allocate(4)?;
        let mut sent = 0_u32;
        let write = median_of(repeats, || {
            sent = sent.wrapping_add(0x0101_0101);
            let start = Instant::now();
            self.cuda.write(place, &sent.to_le_bytes())?;
            Ok(us_since(start))
        })?;
        let mut found = [0; 4];
        let read = median_of(repeats, || {
            let start = Instant::now();
            self.cuda.read(&mut found, place)?;
            Ok(us_since(start))
        })?;
        self.cuda.free(place)?;
        ensure!(found == sent.to_le_bytes(), "{found:?} came back");
        Ok(values([("write", write), ("read", read)]))
    }

    fn allocate(&mut self, rounds: u32) -> anyhow::Result<Values> {
        self.cuda.finish()?;
        let start = Instant::now();
        for round in 0..rounds {
            let address = self.cuda.allocate(varied_bytes(round))?;
            self.cuda.free(address)?;
        }
        let us = us_since(start) / f64::from(rounds);
        Ok(values([("allocate_free", us)]))
    }

    fn transfer(
        &mut self,
        bytes: usize,
        times: u32,
        direction: Direction,
        pinned: bool,
    ) -> anyhow::Result<Values> {
        let kept = self.messages.as_mut();
        if !kept.is_some_and(|kept| kept.host.fits(bytes, pinned)) {
            if let Some(old) = self.messages.take() {
                self.cuda.free(old.device)?;
                if let Host::Pinned(memory) = old.host {
                    self.cuda.unpin(memory)?;
                }
            }
            let host = if pinned {
                Host::Pinned(self.cuda.pin(bytes)?)
            } else {
                Host::Pageable(vec![0xa5; bytes])
            };
            let device = self.cuda.allocate(bytes)?;
            self.messages = Some(Messages { host, device });
        }
        let messages = self.messages.as_mut().context("they were just made")?;
        let Messages { host, device } = messages;
        // The ends of a message differ from run to run, and are looked at afterwards.
        let mark = host.bytes()[0].wrapping_add(1);
        let last = bytes - 1;
        if direction == Direction::Write {
            host.bytes()[0] = mark;
            host.bytes()[last] = mark;
        } else {
            self.cuda.write(*device, &[mark])?;
            self.cuda.write(*device + last as CUdeviceptr, &[mark])?;
        }
        self.cuda.finish()?;
        let start = Instant::now();
        for _ in 0..times {
            match (&mut *host, direction) {
                (Host::Pinned(host), Direction::Write) => self.cuda.start_write(*device, host)?,
                (Host::Pinned(host), Direction::Read) => self.cuda.start_read(host, *device)?,
                (Host::Pageable(host), Direction::Write) => self.cuda.write(*device, host)?,
                (Host::Pageable(host), Direction::Read) => self.cuda.read(host, *device)?,
            }
        }
        self.cuda.finish_all()?;
        let seconds = start.elapsed().as_secs_f64();
        let mut ends = [0; 2];
        if direction == Direction::Write {
            let (first, second) = ends.split_at_mut(1);
            self.cuda.read(first, *device)?;
            self.cuda.read(second, *device + last as CUdeviceptr)?;
        } else {
            ends = [host.bytes()[0], host.bytes()[last]];
        }
        ensure!(ends == [mark; 2], "other bytes arrived than were copied");
        let total = bytes as f64 * f64::from(times);
        Ok(values([("gbytes_per_s", total / seconds * 1e-9)]))
    }

    fn replay(&mut self, nodes: u32, replays: u32) -> anyhow::Result<Values> {
        let graph = match self.graph {
            Some((kept, graph)) if kept == nodes => graph,
            _ => {
                let graph = self.cuda.capture(|| {
                    (0..nodes).try_for_each(|_| self.cuda.launch(&self.kernel, self.counter, 1))
                })?;
                self.graph = Some((nodes, graph));
                graph
            }
        };
        self.cuda.finish()?;
        let start = Instant::now();
        for _ in 0..replays {
            self.cuda.replay(graph)?;
        }
        let issued = us_since(start);
        self.cuda.finish()?;
        let completed = us_since(start);
        self.launched = self.launched.wrapping_add(nodes.wrapping_mul(replays));
        self.check()?;
        let per = |us: f64| us / f64::from(replays);
        Ok(values([
            ("issue", per(issued)),
            ("complete", per(completed)),
        ]))
    }

    fn work(&mut self, milliseconds: u64) -> anyhow::Result<Values> {
        const BURST: u32 = 100;
        let limit = Duration::from_millis(milliseconds);
        let mut bursts = 0_u32;
        let start = Instant::now();
        while start.elapsed() < limit {
            for _ in 0..BURST {
                self.launch()?;
            }
            self.cuda.finish()?;
            bursts += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        self.check()?;
        let launches = f64::from(bursts) * f64::from(BURST);
        Ok(values([("launches_per_s", launches / seconds)]))
    }
}

/// From 2 to 6 MiB, another size every time, 4 MiB on average.
fn varied_bytes(round: u32) -> usize {
    const STEPS: u32 = 65;
    (2 << 20) + (round.wrapping_mul(29) % STEPS) as usize * (64 << 10)
}

fn median_of(repeats: u32, mut once: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(repeats as usize);
    for _ in 0..repeats {
        times.push(once()?);
    }
    crate::stats::median(&times).context("nothing measured")
}

#[cfg(test)]
mod tests {
    use super::super::device::NULL;
    use super::*;

    fn bench() -> Bench {
        let options = LegOptions {
            driver: NULL.into(),
            device: 0,
        };
        Bench::open(&options).unwrap()
    }

    #[test]
    fn tasks_survive_the_pipe() {
        let task = Task::Transfer {
            bytes: 1024,
            times: 3,
            direction: Direction::Read,
            pinned: true,
        };
        let line = serde_json::to_string(&task).unwrap();
        assert_eq!(
            line,
            r#"{"task":"transfer","bytes":1024,"times":3,"direction":"read","pinned":true}"#
        );
        let again: Task = serde_json::from_str(&line).unwrap();
        assert_eq!(format!("{again:?}"), format!("{task:?}"));
    }

    #[test]
    fn start_computes_a_first_result() {
        let options = LegOptions {
            driver: NULL.into(),
            device: 0,
        };
        let values = start(&options, 7).unwrap();
        assert!(values["first_result"] >= values["module"], "{values:?}");
    }

    #[test]
    fn missing_driver_and_device_are_told() {
        let open = |driver: &str, device| {
            let driver = driver.into();
            Bench::open(&LegOptions { driver, device })
                .err()
                .map(|error| format!("{error:#}"))
        };
        let error = open("/nonexistent/libcuda.so.1", 0).unwrap();
        assert!(error.contains("/nonexistent/libcuda.so.1"), "{error}");
        let error = open(NULL, 9).unwrap();
        assert!(error.contains("the driver has 1"), "{error}");
    }

    #[test]
    fn launches_are_counted_one_by_one() {
        let mut bench = bench();
        bench.burst(10).unwrap();
        bench.round_trip(3).unwrap();
        bench.work(1).unwrap();
        assert!(bench.launched >= 113, "{}", bench.launched);
        bench.launched += 1;
        let error = bench.check().unwrap_err();
        assert!(error.to_string().contains("were counted as"), "{error}");
    }

    #[test]
    fn transfers_of_every_kind_bring_their_bytes() {
        let mut bench = bench();
        for pinned in [false, true] {
            for direction in Direction::ALL {
                for bytes in [1, 4096] {
                    let values = bench.transfer(bytes, 2, direction, pinned).unwrap();
                    assert!(values["gbytes_per_s"] > 0.0);
                }
            }
        }
        bench.small(5).unwrap();
        bench.allocate(5).unwrap();
    }

    #[test]
    fn sizes_of_allocations_vary_about_four_mib() {
        let sizes: std::collections::BTreeSet<usize> = (0..65).map(varied_bytes).collect();
        assert_eq!(sizes.len(), 65);
        let mean = sizes.iter().sum::<usize>() / 65;
        assert_eq!(mean, 4 << 20);
    }
}
