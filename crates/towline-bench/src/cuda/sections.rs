//! What is measured, section by section of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bars::{self, Basis};
use super::leg::{Reading, Task};
use super::legs::{LegKind, Legs, Turns};
use crate::cpu::CpuSeconds;
use crate::peer::Direction;
use crate::report::{Figure, Leg};
use crate::stats::{Summary, paired_ratios};
use crate::table;

/// How long a machine is left alone before a start that finds everything ready.
const SETTLING: Duration = Duration::from_secs(3);
/// Launches of a burst: below the depth at which a driver's queue makes the caller wait.
const BURST: u32 = 1_000;
/// Launches that no queue holds.
const SUSTAINED: u32 = 120_000;
/// Replays that are waited for once, and kernels of the graph.
const REPLAYS: u32 = 100;
const NODES: u32 = 20;

/// A run under way.
pub(super) struct Run {
    pub(super) legs: Legs,
    /// Fewer repetitions and sizes.
    pub(super) quick: bool,
    /// Most bytes of a message.
    pub(super) most_bytes: usize,
    pub(super) basis: Basis,
    /// Changes from run to run.
    pub(super) salt: u64,
    pub(super) figures: Vec<Figure>,
}

/// A measurement as a row of the report.
struct Row<'a> {
    id: &'a str,
    section: &'a str,
    title: &'a str,
    unit: &'a str,
    /// Its name in the readings, and what a reading is multiplied by.
    value: (&'a str, f64),
}

impl Run {
    fn repetitions(&self) -> usize {
        if self.quick { 3 } else { 9 }
    }

    /// Turns readings into a figure; nothing when no leg has any.
    fn report(&mut self, turns: &Turns, row: Row<'_>) {
        let scaled = |leg: LegKind| -> Vec<Option<f64>> {
            let values = turns.values(leg, row.value.0);
            values
                .into_iter()
                .map(|value| value.map(|value| value * row.value.1))
                .collect()
        };
        let native = scaled(LegKind::Native);
        let mut figure = Figure {
            id: row.id.into(),
            section: row.section.into(),
            title: row.title.into(),
            paper: None,
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
            figure.legs.insert(
                leg.name().into(),
                Leg {
                    summary,
                    cpu: turns.cpu(leg),
                    compute_share: None,
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

    fn turns_of(&mut self, what: &str, task: Task) -> Turns {
        let repetitions = self.repetitions();
        self.legs
            .take_turns(what, repetitions, |legs, leg| legs.perform(leg, task))
    }

    /// Start of a process, with an image that no cache knows and with one that all know by then.
    pub(super) fn start(&mut self) {
        let section = "Start of a process";
        let repetitions = self.repetitions().div_ceil(2);
        let first = self.salt;
        let turn = |cold: bool| {
            let mut salt = first;
            move |legs: &mut Legs, leg: LegKind| -> anyhow::Result<(Reading, CpuSeconds)> {
                salt = salt.wrapping_add(1);
                let salt = if cold { salt } else { 0 };
                if !cold {
                    // A server gets the next session's worker ready meanwhile, and the driver clears up after the last process.
                    std::thread::sleep(SETTLING);
                }
                legs.once(leg, Task::Start { salt })
            }
        };
        let cold = self.legs.take_turns("cold start", repetitions, turn(true));
        let warm = self.legs.take_turns("warm start", repetitions, turn(false));
        for (turns, id, kind) in [
            (
                &cold,
                "start.cold",
                "image that no cache knows, at once after another",
            ),
            (&warm, "start.warm", "known image, worker ready"),
        ] {
            let mut row = |suffix: &str, title: String, value: &str| {
                let id = format!("{id}{suffix}");
                self.report(
                    turns,
                    Row {
                        id: &id,
                        section,
                        title: &title,
                        unit: "ms",
                        value: (value, 1e-3),
                    },
                );
            };
            row("", format!("process to first result, {kind}"), "process");
            row(".init", "  cuInit".into(), "init");
            row(".context", "  context and stream".into(), "context");
            row(".module", "  image and kernel".into(), "module");
            row(".whole", format!("process to its end, {kind}"), "whole");
        }
    }

    pub(super) fn launches(&mut self) {
        let section = "Launches";
        let burst = self.turns_of("bursts", Task::Burst { launches: BURST });
        let launches = if self.quick {
            SUSTAINED / 10
        } else {
            SUSTAINED
        };
        let sustained = self.turns_of("sustained launches", Task::Burst { launches });
        let repeats = if self.quick { 200 } else { 1_000 };
        let round_trip = self.turns_of("launch + sync", Task::RoundTrip { repeats });
        let mut row = |turns: &Turns, id: &str, title: &str, value: &str| {
            let value = (value, 1.0);
            self.report(
                turns,
                Row {
                    id,
                    section,
                    title,
                    unit: "us",
                    value,
                },
            );
        };
        row(
            &burst,
            "launch.burst.issue",
            "issue, 1,000 after a sync",
            "issue",
        );
        row(&burst, "launch.burst", "the same until done", "complete");
        let title = format!("{launches} launches until done");
        row(&sustained, "launch.sustained", &title, "complete");
        row(&round_trip, "launch.sync", "launch + sync", "launch_sync");
    }

    pub(super) fn small(&mut self) {
        let section = "Copies of 4 bytes";
        let repeats = if self.quick { 200 } else { 1_000 };
        let turns = self.turns_of("small copies", Task::Small { repeats });
        for (id, title, value) in [
            ("small.write", "host to device", "write"),
            ("small.read", "device to host", "read"),
        ] {
            let value = (value, 1.0);
            self.report(
                &turns,
                Row {
                    id,
                    section,
                    title,
                    unit: "us",
                    value,
                },
            );
        }
    }

    pub(super) fn memory(&mut self) {
        let rounds = if self.quick { 65 } else { 650 };
        let turns = self.turns_of("allocation", Task::Allocate { rounds });
        self.report(
            &turns,
            Row {
                id: "memory.allocate_free",
                section: "Memory",
                title: "malloc + free, 2 to 6 MiB, idle",
                unit: "us",
                value: ("allocate_free", 1.0),
            },
        );
    }

    pub(super) fn bandwidth(&mut self) {
        let sizes: &[usize] = if self.quick {
            &[64 << 10, 4 << 20]
        } else {
            &[64 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30]
        };
        for pinned in [true, false] {
            for direction in Direction::ALL {
                for &bytes in sizes {
                    if bytes > self.most_bytes {
                        continue;
                    }
                    self.message(bytes, direction, pinned);
                }
            }
        }
    }

    fn message(&mut self, bytes: usize, direction: Direction, pinned: bool) {
        // Enough to see a rate, and no more than that of small ones.
        let times = ((64 << 20) / bytes).clamp(1, 64) as u32;
        let task = Task::Transfer {
            bytes,
            times,
            direction,
            pinned,
        };
        let kind = if pinned { "pinned" } else { "pageable" };
        let way = match direction {
            Direction::Write => "to the device",
            Direction::Read => "to the host",
        };
        let size = table::size(bytes as u64);
        let title = format!("{size}, {kind}, {way}");
        let repetitions = if bytes >= 1 << 27 {
            3
        } else {
            self.repetitions()
        };
        let turns = self
            .legs
            .take_turns(&title, repetitions, |legs, leg| legs.perform(leg, task));
        let id = format!(
            "bandwidth.{}.{kind}.{}",
            direction.name(),
            size.replace(' ', "")
        );
        self.report(
            &turns,
            Row {
                id: &id,
                section: "Bandwidth",
                title: &title,
                unit: "GB/s",
                value: ("gbytes_per_s", 1.0),
            },
        );
    }

    pub(super) fn graph(&mut self) {
        let section = "Graphs";
        let task = Task::Replay {
            nodes: NODES,
            replays: REPLAYS,
        };
        let turns = self.turns_of("graph replay", task);
        for (id, title, value) in [
            ("graph.issue", "issue of a replay, 20 kernels", "issue"),
            ("graph.replay", "a replay of 100, one sync", "complete"),
        ] {
            let value = (value, 1.0);
            self.report(
                &turns,
                Row {
                    id,
                    section,
                    title,
                    unit: "us",
                    value,
                },
            );
        }
    }

    pub(super) fn clients(&mut self) {
        let section = "Clients on one device";
        let (counts, milliseconds): (&[usize], _) = if self.quick {
            (&[1, 2], 100)
        } else {
            (&[1, 2, 4, 8, 16], 1_000)
        };
        for &clients in counts {
            let what = format!("{clients} clients");
            let task = Task::Work { milliseconds };
            let repetitions = if self.quick { 1 } else { 3 };
            let turns = self.legs.take_turns(&what, repetitions, |legs, leg| {
                legs.together(leg, clients, task, "launches_per_s")
            });
            for (suffix, title, unit, value) in [
                (
                    "launches",
                    format!("{what} together"),
                    "1000/s",
                    ("sum", 1e-3),
                ),
                (
                    "spread",
                    format!("{what}, spread over mean"),
                    "",
                    ("spread", 1.0),
                ),
            ] {
                let id = format!("clients.{clients}.{suffix}");
                self.report(
                    &turns,
                    Row {
                        id: &id,
                        section,
                        title: &title,
                        unit,
                        value,
                    },
                );
            }
        }
    }
}
