//! What is measured, section by section of a run; each stands for tables or figures of the VOCL paper (section 5).

use std::collections::BTreeMap;
use std::time::Duration;

use super::bars::{self, Basis};
use super::leg::{Compute, Task};
use super::legs::{LegKind, Legs, Turns};
use crate::peer::Direction;
use crate::report::{Figure, Leg};
use crate::stats::{Summary, median, paired_ratios};
use crate::table;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) quick: bool,
    /// Repetitions of what takes micro- or milliseconds.
    pub(super) repetitions: usize,
    /// Most bytes of a window of messages.
    pub(super) window_bytes: usize,
}

/// A measurement as a row of the report.
pub(super) struct Row<'a> {
    pub(super) id: String,
    pub(super) section: &'a str,
    pub(super) title: String,
    pub(super) paper: Option<&'a str>,
    pub(super) unit: &'a str,
    /// Its name in the readings, and what a reading is multiplied by.
    pub(super) value: (&'a str, f64),
}

/// Legs of most figures.
pub(super) const OPENCL: [LegKind; 3] = [LegKind::Native, LegKind::Local, LegKind::Remote];

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) legs: Legs<'a>,
    pub(super) effort: Effort,
    pub(super) basis: Basis,
    pub(super) max_allocation: u64,
    pub(super) compute_units: u32,
    pub(super) double: bool,
    pub(super) figures: Vec<Figure>,
}

impl Run<'_> {
    /// Turns readings into a figure; nothing when no leg has any.
    pub(super) fn report(&mut self, turns: &Turns, row: Row<'_>) {
        let scaled = |leg: LegKind| -> Vec<Option<f64>> {
            let values = turns.values(leg, row.value.0);
            values
                .into_iter()
                .map(|value| value.map(|value| value * row.value.1))
                .collect()
        };
        let native = scaled(LegKind::Native);
        let mut figure = Figure {
            id: row.id,
            section: row.section.into(),
            title: row.title,
            paper: row.paper.map(str::to_owned),
            unit: row.unit.into(),
            legs: BTreeMap::new(),
            ratios: BTreeMap::new(),
            bars: Vec::new(),
        };
        for leg in turns.legs() {
            let values = scaled(leg);
            let present: Vec<f64> = values.iter().flatten().copied().collect();
            let Some(summary) = Summary::of(&present) else {
                continue;
            };
            let compute_share = {
                let shares = turns.values(leg, "compute_share");
                median(&shares.into_iter().flatten().collect::<Vec<_>>())
            };
            let cpu = turns.cpu(leg);
            figure.legs.insert(
                leg.name().into(),
                Leg {
                    summary,
                    cpu,
                    compute_share,
                },
            );
            if leg != LegKind::Native
                && let Some(ratio) = Summary::of(&paired_ratios(&values, &native))
            {
                figure.ratios.insert(leg.name().into(), ratio);
            }
        }
        bars::judge(&mut figure, &self.basis);
        if !figure.legs.is_empty() {
            self.figures.push(figure);
        }
    }

    fn repetitions(&self) -> usize {
        self.effort.repetitions
    }

    /// Plain TCP, which limits of other figures follow from.
    pub(super) fn network(&mut self) {
        let section = "Plain TCP between two processes";
        let task = Task::RoundTrip { repeats: 200 };
        let tcp = [LegKind::Tcp];
        let turns = self
            .legs
            .turns_of("TCP round trip", &tcp, self.repetitions(), &task);
        let pings: Vec<f64> = turns
            .values(LegKind::Tcp, "ping")
            .into_iter()
            .flatten()
            .collect();
        self.basis.round_trip_us = median(&pings);
        self.report(
            &turns,
            Row {
                id: "net.round_trip".into(),
                section,
                title: "round trip of 64 B".into(),
                paper: None,
                unit: "us",
                value: ("ping", 1.0),
            },
        );
        let mut worst: Option<f64> = None;
        for direction in Direction::ALL {
            let task = Task::Transfer {
                bytes: self.effort.window_bytes,
                window: 1,
                direction,
                blocking: true,
            };
            let turns = self
                .legs
                .turns_of("TCP bandwidth", &tcp, self.repetitions(), &task);
            let rates: Vec<f64> = turns
                .values(LegKind::Tcp, "gbytes_per_s")
                .into_iter()
                .flatten()
                .collect();
            if let Some(rate) = median(&rates) {
                worst = Some(worst.map_or(rate, |worst| worst.min(rate)));
            }
            self.report(
                &turns,
                Row {
                    id: format!("net.{}", direction.name()),
                    section,
                    title: format!("{}, all streams, from memory to memory", direction.name()),
                    paper: None,
                    unit: "GB/s",
                    value: ("gbytes_per_s", 1.0),
                },
            );
            let cached = Task::Cached {
                bytes: self.effort.window_bytes,
                direction,
            };
            let turns = self
                .legs
                .turns_of("TCP bandwidth", &tcp, self.repetitions(), &cached);
            self.report(
                &turns,
                Row {
                    id: format!("net.{}.cached", direction.name()),
                    section,
                    title: format!("{}, all streams, 128 KiB over and over", direction.name()),
                    paper: None,
                    unit: "GB/s",
                    value: ("gbytes_per_s", 1.0),
                },
            );
        }
        self.basis.tcp_bytes_per_s = worst.map(|rate| rate * 1e9);
    }

    /// Table 3: what makes and releases objects; and the start of a client.
    pub(super) fn calls(&mut self) {
        const CALLS: [&str; 13] = [
            "clGetPlatformIDs",
            "clGetDeviceIDs",
            "clCreateContext",
            "clCreateCommandQueue",
            "clCreateProgramWithSource",
            "clBuildProgram",
            "clCreateBuffer",
            "clCreateKernel",
            "clReleaseKernel",
            "clReleaseMemObject",
            "clReleaseProgram",
            "clReleaseCommandQueue",
            "clReleaseContext",
        ];
        let section = "API functions, first use in a process";
        let mut salt = u64::from(std::process::id()) << 12;
        let turns = self
            .legs
            .take_turns("calls", &OPENCL, self.repetitions(), |legs, leg| {
                salt += 1;
                legs.once(leg, &Task::Lifecycle { salt })
            });
        let rows = CALLS
            .map(|call| (format!("call.{call}"), call.to_owned(), call, "Table 3"))
            .into_iter()
            .chain([
                (
                    "call.launch_and_read".to_owned(),
                    "first launch and blocking read".to_owned(),
                    "launch and read",
                    "",
                ),
                (
                    "call.together".to_owned(),
                    "all of these".to_owned(),
                    "together",
                    "",
                ),
                (
                    "start.devices".to_owned(),
                    "start of the process to device list".to_owned(),
                    "listed",
                    "",
                ),
            ]);
        for (id, title, value, paper) in rows {
            self.report(
                &turns,
                Row {
                    id,
                    section,
                    title,
                    paper: (!paper.is_empty()).then_some(paper),
                    unit: "ms",
                    value: (value, 1e-3),
                },
            );
        }
        let task = Task::Objects { rounds: 500 };
        let turns = self
            .legs
            .turns_of("objects", &OPENCL, self.repetitions(), &task);
        for object in ["buffer", "kernel", "queue"] {
            self.report(
                &turns,
                Row {
                    id: format!("objects.{object}"),
                    section: "API functions, in a loop",
                    title: format!("create + release a {object}"),
                    paper: None,
                    unit: "us",
                    value: (object, 1.0),
                },
            );
        }
    }

    /// Tables 1 and 2: arguments and launches; and launches without waiting.
    pub(super) fn launches(&mut self) {
        let section = "Launches";
        let burst = Task::Burst {
            launches: 1000,
            arguments: true,
        };
        let with_uncached = [
            LegKind::Native,
            LegKind::Local,
            LegKind::Remote,
            LegKind::Uncached,
        ];
        let turns = self
            .legs
            .turns_of("bursts", &with_uncached, self.repetitions(), &burst);
        for (value, title) in [
            (
                "issue",
                "7 arguments + enqueue, burst of 1,000: per call issued",
            ),
            (
                "complete",
                "7 arguments + enqueue, burst of 1,000: per launch finished",
            ),
        ] {
            self.report(
                &turns,
                Row {
                    id: format!("launch.burst7.{value}"),
                    section,
                    title: title.into(),
                    paper: None,
                    unit: "us",
                    value: (value, 1.0),
                },
            );
        }
        let sustained = Task::Burst {
            launches: 20_000,
            arguments: true,
        };
        let turns = self
            .legs
            .turns_of("sustained", &with_uncached, self.repetitions(), &sustained);
        self.report(
            &turns,
            Row {
                id: "launch.sustained7".into(),
                section,
                title: "7 arguments + enqueue, 20,000 sustained".into(),
                paper: None,
                unit: "us",
                value: ("complete", 1.0),
            },
        );
        let streamed = Task::Burst {
            launches: 5000,
            arguments: false,
        };
        let turns = self
            .legs
            .turns_of("streamed", &OPENCL, self.repetitions(), &streamed);
        self.report(
            &turns,
            Row {
                id: "launch.streamed".into(),
                section,
                title: "enqueue without arguments, 5,000 streamed".into(),
                paper: None,
                unit: "us",
                value: ("complete", 1.0),
            },
        );
        let round_trip = Task::RoundTrip { repeats: 200 };
        let turns = self
            .legs
            .turns_of("launch + finish", &OPENCL, self.repetitions(), &round_trip);
        for (id, value, title) in [
            ("launch.finish", "launch_finish", "launch + finish"),
            (
                "launch.arguments_finish",
                "arguments_launch_finish",
                "7 arguments + launch + finish",
            ),
        ] {
            self.report(
                &turns,
                Row {
                    id: id.into(),
                    section,
                    title: title.into(),
                    paper: None,
                    unit: "us",
                    value: (value, 1.0),
                },
            );
        }
        self.arguments(&with_uncached);
    }

    fn arguments(&mut self, legs: &[LegKind]) {
        // As many launches as an alignment of 6K base pairs has.
        const LAUNCHES: u32 = 12_288;
        let task = Task::Split { launches: LAUNCHES };
        let turns = self
            .legs
            .turns_of("arguments", legs, self.repetitions(), &task);
        for value in ["clSetKernelArg", "clEnqueueNDRangeKernel", "total"] {
            self.report(
                &turns,
                Row {
                    id: format!("arguments.{value}"),
                    section: "Arguments and launches of Smith-Waterman 6K: 12,288 launches, 7 arguments each",
                    title: value.into(),
                    paper: Some("Tables 1 and 2"),
                    unit: "ms",
                    value: (value, f64::from(LAUNCHES) * 1e-3),
                },
            );
        }
    }

    /// Small transfers that wait.
    pub(super) fn small(&mut self) {
        let task = Task::Small { repeats: 200 };
        let turns = self
            .legs
            .turns_of("small transfers", &OPENCL, self.repetitions(), &task);
        for (id, value, title) in [
            ("small.write", "write_4", "blocking write of 4 B"),
            ("small.read", "read_4", "blocking read of 4 B"),
            (
                "small.write_kernel_read",
                "write_kernel_read_4096",
                "write 4 KiB + kernel + read 4 KiB",
            ),
        ] {
            self.report(
                &turns,
                Row {
                    id: id.into(),
                    section: "Small transfers",
                    title: title.into(),
                    paper: None,
                    unit: "us",
                    value: (value, 1.0),
                },
            );
        }
    }

    /// Figure 8: bandwidth by message size.
    pub(super) fn bandwidth(&mut self) {
        const LEGS: [LegKind; 5] = [
            LegKind::Native,
            LegKind::Local,
            LegKind::Remote,
            LegKind::Unpipelined,
            LegKind::Tcp,
        ];
        let sizes: &[usize] = if self.effort.quick {
            &[4 << 10, 256 << 10, 64 << 20, 256 << 20]
        } else {
            &[
                1 << 10,
                4 << 10,
                16 << 10,
                64 << 10,
                256 << 10,
                1 << 20,
                4 << 20,
                16 << 20,
                64 << 20,
                256 << 20,
            ]
        };
        // A message beyond the window would take too long on a slow link.
        let most = usize::try_from(self.max_allocation).unwrap_or(usize::MAX);
        let most = most.min(self.effort.window_bytes);
        for bytes in sizes.iter().copied().filter(|bytes| *bytes <= most) {
            let window = (most / bytes).clamp(1, 32);
            for direction in Direction::ALL {
                for blocking in [false, true] {
                    let task = Task::Transfer {
                        bytes,
                        window,
                        direction,
                        blocking,
                    };
                    let kind = if blocking { "blocking" } else { "nonblocking" };
                    let title = format!(
                        "{} {kind} {} x {window}",
                        direction.name(),
                        table::size(bytes as u64)
                    );
                    let turns = self.legs.turns_of(&title, &LEGS, self.repetitions(), &task);
                    self.report(
                        &turns,
                        Row {
                            id: format!(
                                "bandwidth.{}.{kind}.{}",
                                direction.name(),
                                table::size(bytes as u64).replace(' ', "")
                            ),
                            section: "Bandwidth by message size, in windows of up to 32",
                            title,
                            paper: Some("Figure 8"),
                            unit: "GB/s",
                            value: ("gbytes_per_s", 1.0),
                        },
                    );
                }
            }
        }
        self.legs.rest();
    }

    /// What SHOC verified: kernels themselves run at the same speed.
    pub(super) fn compute(&mut self) {
        let groups = self.compute_units as usize * if self.basis.gpu { 32 } else { 4 };
        let memory_items = if self.basis.gpu { 16 << 20 } else { 2 << 20 };
        let memory_items = memory_items.min(self.max_allocation as usize / 16 / 64 * 64);
        let kinds = [
            (
                Compute::FlopsSingle,
                "flops_single",
                "single-precision arithmetic",
                "Gflop/s",
                groups * 64,
            ),
            (
                Compute::FlopsDouble,
                "flops_double",
                "double-precision arithmetic",
                "Gflop/s",
                groups * 64,
            ),
            (
                Compute::GlobalMemory,
                "global_memory",
                "off-chip memory, read + write",
                "GB/s",
                memory_items,
            ),
            (
                Compute::LocalMemory,
                "local_memory",
                "on-chip memory, read + write",
                "GB/s",
                groups * 64,
            ),
        ];
        for (what, id, title, unit, global) in kinds {
            if what == Compute::FlopsDouble && !self.double {
                continue;
            }
            let Some(rounds) = self.calibrate(what, global) else {
                continue;
            };
            let task = Task::Compute {
                what,
                global,
                rounds,
            };
            let turns = self
                .legs
                .turns_of(title, &OPENCL, self.repetitions(), &task);
            self.report(
                &turns,
                Row {
                    id: format!("compute.{id}"),
                    section: "Inside kernels",
                    title: title.into(),
                    paper: Some("Section 5.1.2"),
                    unit,
                    value: ("rate", 1.0),
                },
            );
        }
    }

    /// Rounds that take some 20 ms, so that starting them hardly counts; the same for all legs.
    fn calibrate(&mut self, what: Compute, global: usize) -> Option<u32> {
        let leg = *self.legs.wanted(&OPENCL).first()?;
        let mut rounds = if what == Compute::GlobalMemory { 1 } else { 64 };
        loop {
            let task = Task::Compute {
                what,
                global,
                rounds,
            };
            let took = match self.legs.perform(leg, &task) {
                Ok((reading, _)) => reading.values.get("ms").copied().unwrap_or(f64::MAX),
                Err(error) => {
                    self.legs.note(format!("{what:?}: {error:#}"));
                    return None;
                }
            };
            if took >= 20.0 || rounds >= 1 << 20 {
                return Some(rounds);
            }
            rounds *= 2;
        }
    }

    /// CPU time of a session that has nothing to do.
    pub(super) fn idle(&mut self) {
        const LEGS: [LegKind; 2] = [LegKind::Native, LegKind::Remote];
        let watched = Duration::from_millis(500);
        let repetitions = if self.effort.quick { 3 } else { 5 };
        let turns = self
            .legs
            .take_turns("idle", &LEGS, repetitions, |legs, leg| {
                let (mut reading, cpu) = legs.perform(leg, &Task::Rest)?;
                // The promise begins 100 us after the last call.
                std::thread::sleep(Duration::from_micros(100));
                let before = legs.cpu_now(leg);
                std::thread::sleep(watched);
                let after = legs.cpu_now(leg);
                let used_ms = |before: Option<f64>, after: Option<f64>| {
                    after
                        .zip(before)
                        .map(|(after, before)| (after - before) * 1e3 / watched.as_secs_f64())
                };
                reading
                    .values
                    .extend(used_ms(before.0, after.0).map(|ms| ("client".to_owned(), ms)));
                // Natively the vendor's library idles in the program itself.
                let (before, after) = match leg {
                    LegKind::Native => (before.0, after.0),
                    _ => (before.1, after.1),
                };
                reading
                    .values
                    .extend(used_ms(before, after).map(|ms| ("server".to_owned(), ms)));
                Ok((reading, cpu))
            });
        for (value, title) in [
            ("client", "CPU time of an idle client"),
            (
                "server",
                "CPU time of its idle server and worker, natively of the program",
            ),
        ] {
            self.report(
                &turns,
                Row {
                    id: format!("idle.{value}"),
                    section: "Idle sessions",
                    title: title.into(),
                    paper: None,
                    unit: "ms/s",
                    value: (value, 1.0),
                },
            );
        }
        self.legs.rest();
    }
}
