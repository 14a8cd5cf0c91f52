//! What the tiers of CUDA devices in software give: instructions per second of eight kernels, by the interpreter and compiled, how long
//! compiling takes, and what more threads of the host bring.
//!
//! Speeds on one thread of the host are per second of its processor time, best of several turns, so that other work on the machine does not
//! count; those on several threads are by the clock on the wall. Both tiers must leave the same bytes.

mod kernels;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use towline_progress::Progress;
use towline_soft::measure::{Shape, Subject};

use crate::machine::{Machine, now_utc};
use crate::report::SCHEMA;
use kernels::Case;

/// Instructions of the kernel whose first launch is timed.
const LONG: u32 = 500;
/// Milliseconds that this may take.
const FIRST_LAUNCH_MS: f64 = 20.0;

/// `towline bench soft`.
#[derive(Args, Debug)]
pub struct Options {
    /// Smaller inputs and fewer turns
    #[arg(long)]
    quick: bool,
    /// Write the figures to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Exit with 1 when a bar is missed
    #[arg(long)]
    check: bool,
}

/// All figures.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `soft`.
    pub kind: String,
    /// When.
    pub started: String,
    /// Fewer turns and smaller inputs.
    pub quick: bool,
    /// Version of Towline.
    pub version: String,
    /// Where.
    pub machine: Machine,
    /// Kernel by kernel.
    pub kernels: Vec<Figure>,
    /// Instructions of a long kernel, and milliseconds from the loaded module to the end of its first, compiled launch.
    pub first_launch: FirstLaunch,
}

/// The first launch of a long kernel.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FirstLaunch {
    /// Instructions that it has.
    pub instructions: u32,
    /// From the loaded module to the end of the launch, in processor time.
    pub milliseconds: f64,
    /// Most that it should take.
    pub bar: f64,
}

/// What a kernel gives.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Instructions of threads in one launch.
    pub instructions: u64,
    /// Millions of them per second of processor time.
    pub interpreter: f64,
    /// The same, compiled.
    pub compiled: f64,
    /// Least that this should be: what a prototype without checks of addresses made, on a machine of its own.
    pub bar: f64,
    /// Milliseconds that compiling takes.
    pub compile_ms: f64,
    /// Bytes of machine code.
    pub code_bytes: usize,
    /// Compiled, by the clock on the wall, on so many threads of the host.
    pub scaling: Vec<Scaling>,
}

/// A speed on several threads of the host.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Scaling {
    /// Threads of the host.
    pub threads: usize,
    /// Millions of instructions per second.
    pub speed: f64,
}

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let turns = if options.quick { 2 } else { 5 };
    let progress = Progress::new(true);
    progress.tell("first launch");
    let mut report = Report {
        schema: SCHEMA,
        kind: "soft".into(),
        started: now_utc(),
        quick: options.quick,
        version: env!("CARGO_PKG_VERSION").into(),
        machine: Machine::here(),
        kernels: Vec::new(),
        first_launch: first_launch(turns)?,
    };
    for case in kernels::all(options.quick) {
        progress.tell(case.name);
        let figure = measure(&case, turns, report.machine.cores);
        report
            .kernels
            .push(figure.with_context(|| format!("cannot measure `{}`", case.name))?);
    }
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(file, text + "\n")
            .with_context(|| format!("could not write {}", file.display()))?;
    }
    progress.clear();
    print!("{}", render(&report));
    let missed = options.check && !report.keeps_its_bars();
    Ok(ExitCode::from(u8::from(missed)))
}

impl Report {
    /// Whether every kernel is as fast as it should be, and the first launch.
    fn keeps_its_bars(&self) -> bool {
        let first = self.first_launch.milliseconds <= self.first_launch.bar;
        first && self.kernels.iter().all(Figure::keeps_its_bar)
    }
}

impl Figure {
    fn keeps_its_bar(&self) -> bool {
        self.compiled >= self.bar
    }
}

/// How a table marks what misses its bar.
fn mark(kept: bool) -> &'static str {
    if kept { "kept" } else { "MISSED" }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn failed(why: String) -> anyhow::Error {
    anyhow!(why)
}

fn first_launch(turns: usize) -> anyhow::Result<FirstLaunch> {
    let text = kernels::long(LONG);
    let mut best = Duration::MAX;
    for _ in 0..turns {
        let mut subject = Subject::new(&text, "k").map_err(failed)?;
        let out = subject.memory(&[0; 1024]).map_err(failed)?;
        let before = processor_time();
        subject.compile().map_err(failed)?;
        let shape = Shape {
            grid: [1, 1, 1],
            block: [256, 1, 1],
            host_threads: 1,
            compiled: true,
        };
        subject
            .launch(shape, &parameters(&[out, out, out], &[9]))
            .map_err(failed)?;
        best = best.min(processor_time() - before);
    }
    Ok(FirstLaunch {
        instructions: LONG,
        milliseconds: best.as_secs_f64() * 1e3,
        bar: FIRST_LAUNCH_MS,
    })
}

fn parameters(pointers: &[u64], numbers: &[u32]) -> Vec<u8> {
    let pointers = pointers.iter().flat_map(|pointer| pointer.to_le_bytes());
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    pointers.chain(numbers).collect()
}

/// One launch in fresh memory: its result, and the instructions that the interpreter counted.
fn launch(
    subject: &Subject,
    case: &Case,
    host_threads: usize,
    compiled: bool,
) -> anyhow::Result<(Vec<u8>, u64, Duration, Duration)> {
    let memory: Result<Vec<u64>, String> = case
        .memory
        .iter()
        .map(|bytes| subject.memory(bytes))
        .collect();
    let memory = memory.map_err(failed)?;
    let shape = Shape {
        grid: case.grid,
        block: case.block,
        host_threads,
        compiled,
    };
    let bytes = parameters(&memory, &case.numbers);
    let (clock, before) = (Instant::now(), processor_time());
    let counted = subject.launch(shape, &bytes).map_err(failed)?;
    let (wall, used) = (clock.elapsed(), processor_time() - before);
    let mut result = vec![0; case.memory[case.result].len()];
    subject
        .read(memory[case.result], &mut result)
        .map_err(failed)?;
    for address in memory {
        subject.free(address);
    }
    Ok((result, counted, wall, used))
}

fn measure(case: &Case, turns: usize, cores: usize) -> anyhow::Result<Figure> {
    let mut subject = Subject::new(&case.text, "k").map_err(failed)?;
    let (mut compile, mut code_bytes) = (Duration::MAX, 0);
    for _ in 0..turns {
        let before = processor_time();
        (_, code_bytes) = subject.compile().map_err(failed)?;
        compile = compile.min(processor_time() - before);
    }
    let (mut interpreter, mut compiled) = (Duration::MAX, Duration::MAX);
    let mut instructions = 0;
    for _ in 0..turns {
        let (reference, counted, _, used) = launch(&subject, case, 1, false)?;
        interpreter = interpreter.min(used);
        instructions = counted;
        let (result, _, _, used) = launch(&subject, case, 1, true)?;
        compiled = compiled.min(used);
        ensure!(reference == result, "the tiers leave different results");
        ensure!(result.iter().any(|byte| *byte != 0), "nothing was computed");
    }
    let mut scaling = Vec::new();
    let mut threads = 1;
    while threads <= cores {
        let mut best = Duration::MAX;
        for _ in 0..turns {
            best = best.min(launch(&subject, case, threads, true)?.2);
        }
        scaling.push(Scaling {
            threads,
            speed: millions(instructions, best),
        });
        threads *= 2;
    }
    Ok(Figure {
        name: case.name.to_owned(),
        instructions,
        interpreter: millions(instructions, interpreter),
        compiled: millions(instructions, compiled),
        bar: case.bar,
        compile_ms: compile.as_secs_f64() * 1e3,
        code_bytes,
        scaling,
    })
}

fn millions(instructions: u64, time: Duration) -> f64 {
    instructions as f64 / time.as_secs_f64().max(1e-9) / 1e6
}

fn render(report: &Report) -> String {
    let mut out = format!(
        "{:<28} {:>9} {:>12} {:>10} {:>7} {:>7} {:>6} {:>11}  by threads of the host\n",
        "kernel", "M instr.", "interpreter", "compiled", "bar", "", "ratio", "compile, ms"
    );
    for figure in &report.kernels {
        let scaling: Vec<String> = figure
            .scaling
            .iter()
            .map(|one| format!("{}: {:.0}", one.threads, one.speed))
            .collect();
        out += &format!(
            "{:<28} {:>9.1} {:>12.0} {:>10.0} {:>7.0} {:>7} {:>6.1} {:>11.2}  {}\n",
            figure.name,
            figure.instructions as f64 / 1e6,
            figure.interpreter,
            figure.compiled,
            figure.bar,
            mark(figure.keeps_its_bar()),
            figure.compiled / figure.interpreter,
            figure.compile_ms,
            scaling.join(", ")
        );
    }
    let first = &report.first_launch;
    out += &format!(
        "first launch of a kernel of {} instructions: {:.1} ms, bar {:.0} ms: {}\n",
        first.instructions,
        first.milliseconds,
        first.bar,
        mark(first.milliseconds <= first.bar)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of one kernel and a first launch.
    fn report(compiled: f64, milliseconds: f64) -> Report {
        Report {
            schema: SCHEMA,
            kind: "soft".into(),
            quick: true,
            version: String::new(),
            started: String::new(),
            machine: Machine::here(),
            kernels: vec![Figure {
                name: "one".to_owned(),
                instructions: 1_000_000,
                interpreter: 100.0,
                compiled,
                bar: 500.0,
                compile_ms: 1.0,
                code_bytes: 100,
                scaling: vec![Scaling {
                    threads: 1,
                    speed: compiled,
                }],
            }],
            first_launch: FirstLaunch {
                instructions: LONG,
                milliseconds,
                bar: FIRST_LAUNCH_MS,
            },
        }
    }

    #[test]
    fn bars_stand_beside_figures_and_what_misses_one_is_marked() {
        let kept = report(500.0, 20.0);
        assert!(kept.keeps_its_bars());
        assert!(!render(&kept).contains("MISSED"));
        let slow = report(499.0, 20.0);
        assert!(!slow.keeps_its_bars());
        let table = render(&slow);
        let line = table.lines().nth(1).expect("a kernel");
        assert!(line.contains("499     500  MISSED"), "{line}");
        let late = report(500.0, 20.1);
        assert!(!late.keeps_its_bars());
        assert!(render(&late).ends_with("20.1 ms, bar 20 ms: MISSED\n"));
    }

    #[test]
    fn the_eight_kernels_have_bars() {
        let all = kernels::all(true);
        assert_eq!(all.len(), 8);
        assert!(all.iter().all(|case| case.bar > 1000.0));
    }

    #[test]
    fn every_kernel_computes_the_same_in_both_tiers() {
        for case in kernels::all(true) {
            let figure = measure(&case, 1, 1).expect(case.name);
            assert!(figure.instructions > 0, "{}", case.name);
        }
    }

    #[test]
    fn a_sum_of_a_vector_is_right() {
        let case = &kernels::all(true)[0];
        let mut subject = Subject::new(&case.text, "k").expect("a module");
        subject.compile().expect("compiled");
        let (result, ..) = launch(&subject, case, 1, true).expect("no fault");
        let number = |bytes: &[u8], index: usize| {
            let word = bytes.as_chunks::<4>().0[index];
            f32::from_le_bytes(word)
        };
        for index in [0, 77, 65_535] {
            let expected = number(&case.memory[0], index) + number(&case.memory[1], index);
            assert_eq!(number(&result, index), expected);
        }
    }
}
