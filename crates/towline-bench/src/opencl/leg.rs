//! The child that measures one leg: it does one repetition of one task at a time, as its parent asks, so that legs can take turns.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use towline_backend::opencl::{CL_FALSE, CL_TRUE};

use super::device::{self, Buffer, Context, Kernel, Opencl, Program, Queue};
use crate::child::end_with_parent;
use crate::cpu;
use crate::peer::Direction;
use crate::report::Device;

/// Hidden `towline bench leg`.
#[derive(Args, Debug)]
pub struct LegOptions {
    /// Libraries to load, or one folder of .icd files
    #[arg(long, value_name = "PATH", required = true)]
    pub(super) icd: Vec<PathBuf>,
    /// Number of the device
    #[arg(long, default_value_t = 0)]
    pub(super) device: usize,
}

/// What a leg is asked to do.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub(super) enum Task {
    /// Say what the device is.
    Describe,
    /// From nothing to a list of devices and through every object's life: once per process.
    Lifecycle { salt: u64 },
    /// Calls that make and release objects, over and over.
    Objects { rounds: u32 },
    /// Launches without waiting, then a finish.
    Burst { launches: u32, arguments: bool },
    /// The same with the time inside each kind of call apart.
    Split { launches: u32 },
    /// One launch, then a finish: the median of many.
    RoundTrip { repeats: u32 },
    /// Small transfers that wait: medians of many.
    Small { repeats: u32 },
    /// A window of messages, then a finish.
    Transfer {
        bytes: usize,
        window: usize,
        direction: Direction,
        blocking: bool,
    },
    /// Plain TCP only: bytes that never leave the cache.
    Cached { bytes: usize, direction: Direction },
    /// What the device computes inside one launch.
    Compute {
        what: Compute,
        global: usize,
        rounds: u32,
    },
    /// Finish, and use nothing from then on.
    Rest,
}

/// What is computed inside kernels.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Compute {
    FlopsSingle,
    FlopsDouble,
    GlobalMemory,
    LocalMemory,
}

/// What a repetition measured.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Reading {
    /// Measurements by name.
    pub(super) values: BTreeMap<String, f64>,
    /// CPU seconds of this process in it.
    pub(super) client_s: f64,
    /// The answer to [`Task::Describe`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) device: Option<Description>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) error: Option<String>,
}

/// A device, and what sizes its measurements.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Description {
    #[serde(flatten)]
    pub(super) facts: Device,
    pub(super) max_allocation: u64,
    pub(super) compute_units: u32,
}

type Values = BTreeMap<String, f64>;

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
        let mut reading = perform(&task, options, &mut bench).unwrap_or_else(|error| Reading {
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

fn perform(
    task: &Task,
    options: &LegOptions,
    bench: &mut Option<Bench>,
) -> anyhow::Result<Reading> {
    let mut reading = Reading::default();
    if let Task::Lifecycle { salt } = task {
        reading.values = lifecycle(options, *salt)?;
        return Ok(reading);
    }
    let bench = match bench {
        Some(bench) => bench,
        none => none.insert(Bench::open(options)?),
    };
    match *task {
        Task::Describe => reading.device = Some(bench.describe()),
        Task::Lifecycle { .. } => {}
        Task::Cached { .. } => bail!("only plain TCP has such a task"),
        Task::Objects { rounds } => reading.values = bench.objects(rounds)?,
        Task::Burst {
            launches,
            arguments,
        } => reading.values = bench.burst(launches, arguments)?,
        Task::Split { launches } => reading.values = bench.split(launches)?,
        Task::RoundTrip { repeats } => reading.values = bench.round_trip(repeats)?,
        Task::Small { repeats } => reading.values = bench.small(repeats)?,
        Task::Transfer {
            bytes,
            window,
            direction,
            blocking,
        } => reading.values = bench.transfer(bytes, window, direction, blocking)?,
        Task::Compute {
            what,
            global,
            rounds,
        } => reading.values = bench.compute(what, global, rounds)?,
        Task::Rest => bench.queue.finish()?,
    }
    Ok(reading)
}

fn us_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn values<const N: usize>(pairs: [(&str, f64); N]) -> Values {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The value of [`Task::Lifecycle`] that is no span but a moment: when the devices were listed, on [`monotonic_us`]'s
/// clock.
pub(super) const LISTED_AT: &str = "listed at";

/// Microseconds on the clock that all processes of this machine share.
pub(super) fn monotonic_us() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

/// Table 3 of the paper: every call that makes or releases an object, in a process that has not used OpenCL before.
fn lifecycle(options: &LegOptions, salt: u64) -> anyhow::Result<Values> {
    let mut times = Values::new();
    let all = Instant::now();
    let mut start = Instant::now();
    let mut lap = |name: &str| {
        times.insert(name.into(), us_since(start));
        start = Instant::now();
    };
    let api = device::load(&options.icd)?;
    let platforms = device::platforms(&api)?;
    lap("clGetPlatformIDs");
    let mut devices = Vec::new();
    for platform in platforms {
        let found = device::devices(&api, platform)?;
        devices.extend(found.into_iter().map(|device| (platform, device)));
    }
    lap("clGetDeviceIDs");
    let listed_us = monotonic_us();
    let opencl = Opencl::choose(api, &devices, options.device)?;
    let context = opencl.context()?;
    lap("clCreateContext");
    let queue = context.queue()?;
    lap("clCreateCommandQueue");
    // A source that no compiler has seen before, so that no cache answers.
    let source = format!(
        "kernel void fresh(global int *out) {{ out[get_global_id(0)] = (int)get_global_id(0) ^ {}; }}",
        salt & 0x7fff_ffff
    );
    let program = context.program(&source)?;
    lap("clCreateProgramWithSource");
    program.build()?;
    lap("clBuildProgram");
    let buffer = context.buffer(4096)?;
    lap("clCreateBuffer");
    let kernel = program.kernel("fresh")?;
    lap("clCreateKernel");
    kernel.set_buffer(0, &buffer)?;
    queue.launch(&kernel, 1024)?;
    let mut result = vec![0; 4096];
    queue.read(&buffer, 0, &mut result)?;
    lap("launch and read");
    let expected = 7 ^ (salt & 0x7fff_ffff) as i32;
    ensure!(
        int_at(&result, 7) == expected,
        "the kernel computed something else"
    );
    drop(kernel);
    lap("clReleaseKernel");
    drop(buffer);
    lap("clReleaseMemObject");
    drop(program);
    lap("clReleaseProgram");
    drop(queue);
    lap("clReleaseCommandQueue");
    drop(context);
    lap("clReleaseContext");
    times.insert("together".into(), us_since(all));
    times.insert(LISTED_AT.into(), listed_us);
    Ok(times)
}

fn int_at(bytes: &[u8], index: usize) -> i32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[4 * index..4 * index + 4]);
    i32::from_le_bytes(word)
}

/// What stays between tasks.
struct Bench {
    opencl: Rc<Opencl>,
    context: Context,
    queue: Queue,
    program: Program,
    nothing: Kernel,
    seven: Kernel,
    increment: Kernel,
    out: Buffer,
    block: Buffer,
    /// Memory of transfers: kept, so that only the first repetition (a warm-up) finds fresh pages.
    messages: Option<Messages>,
    compute: Option<(Compute, usize, Buffer, Buffer)>,
}

struct Messages {
    host: Vec<u8>,
    device: Buffer,
}

/// Bytes of the small transfers.
const BLOCK: usize = 4096;

impl Bench {
    fn open(options: &LegOptions) -> anyhow::Result<Self> {
        let opencl = Opencl::open(&options.icd, options.device)?;
        let context = opencl.context()?;
        let queue = context.queue()?;
        let program = context.program(include_str!("kernels.cl"))?;
        program.build()?;
        let out = context.buffer(BLOCK)?;
        let block = context.buffer(BLOCK)?;
        let increment = program.kernel("increment")?;
        increment.set_buffer(0, &block)?;
        let seven = program.kernel("seven")?;
        seven.set_buffer(0, &out)?;
        Ok(Self {
            nothing: program.kernel("nothing")?,
            seven,
            increment,
            out,
            block,
            messages: None,
            compute: None,
            opencl,
            context,
            queue,
            program,
        })
    }

    fn describe(&self) -> Description {
        Description {
            facts: self.opencl.facts(),
            max_allocation: self.opencl.max_allocation(),
            compute_units: self.opencl.compute_units(),
        }
    }

    fn objects(&self, rounds: u32) -> anyhow::Result<Values> {
        let per = |start: Instant| us_since(start) / f64::from(rounds);
        let start = Instant::now();
        for _ in 0..rounds {
            drop(self.context.buffer(BLOCK)?);
        }
        let buffers = per(start);
        let start = Instant::now();
        for _ in 0..rounds {
            drop(self.program.kernel("increment")?);
        }
        let kernels = per(start);
        let start = Instant::now();
        for _ in 0..rounds {
            drop(self.context.queue()?);
        }
        let queues = per(start);
        self.queue.finish()?;
        Ok(values([
            ("buffer", buffers),
            ("kernel", kernels),
            ("queue", queues),
        ]))
    }

    /// Sets all arguments of `seven` but one to values of this launch.
    #[inline]
    fn set_seven(&self, launch: i32) -> anyhow::Result<()> {
        self.seven.set_buffer(0, &self.out)?;
        for argument in 1..7_i32 {
            self.seven.set(argument as u32, launch + argument)?;
        }
        Ok(())
    }

    /// What `seven` leaves behind after this launch was the last.
    fn check_seven(&self, launch: i32) -> anyhow::Result<()> {
        let mut result = [0; 4];
        self.queue.read(&self.out, 0, &mut result)?;
        let expected: i32 = (1..7).map(|argument| argument * (launch + argument)).sum();
        ensure!(
            int_at(&result, 0) == expected,
            "a launch saw the arguments of another one: {} instead of {expected}",
            int_at(&result, 0)
        );
        Ok(())
    }

    fn burst(&self, launches: u32, arguments: bool) -> anyhow::Result<Values> {
        self.queue.finish()?;
        let start = Instant::now();
        for launch in 0..launches as i32 {
            if arguments {
                self.set_seven(launch)?;
                self.queue.launch(&self.seven, 1)?;
            } else {
                self.queue.launch(&self.nothing, 1)?;
            }
        }
        let issued = us_since(start);
        self.queue.finish()?;
        let completed = us_since(start);
        if arguments {
            self.check_seven(launches as i32 - 1)?;
        }
        let per = |us: f64| us / f64::from(launches);
        Ok(values([
            ("issue", per(issued)),
            ("complete", per(completed)),
        ]))
    }

    fn split(&self, launches: u32) -> anyhow::Result<Values> {
        self.queue.finish()?;
        let (mut setting, mut launching) = (0.0, 0.0);
        let start = Instant::now();
        for launch in 0..launches as i32 {
            let begin = Instant::now();
            self.set_seven(launch)?;
            setting += us_since(begin);
            let begin = Instant::now();
            self.queue.launch(&self.seven, 1)?;
            launching += us_since(begin);
        }
        self.queue.finish()?;
        let total = us_since(start);
        self.check_seven(launches as i32 - 1)?;
        let per = |us: f64| us / f64::from(launches);
        Ok(values([
            ("clSetKernelArg", per(setting)),
            ("clEnqueueNDRangeKernel", per(launching)),
            ("total", per(total)),
        ]))
    }

    fn round_trip(&self, repeats: u32) -> anyhow::Result<Values> {
        self.queue.finish()?;
        let bare = median_of(repeats, |_| {
            let start = Instant::now();
            self.queue.launch(&self.nothing, 1)?;
            self.queue.finish()?;
            Ok(us_since(start))
        })?;
        let with_arguments = median_of(repeats, |launch| {
            let start = Instant::now();
            self.set_seven(launch)?;
            self.queue.launch(&self.seven, 1)?;
            self.queue.finish()?;
            Ok(us_since(start))
        })?;
        self.check_seven(repeats as i32 - 1)?;
        Ok(values([
            ("launch_finish", bare),
            ("arguments_launch_finish", with_arguments),
        ]))
    }

    fn small(&self, repeats: u32) -> anyhow::Result<Values> {
        let mut data = vec![0; BLOCK];
        self.queue.finish()?;
        let write = median_of(repeats, |_| {
            let start = Instant::now();
            self.queue.write(&self.block, 0, &data[..4])?;
            Ok(us_since(start))
        })?;
        self.queue.finish()?;
        let read = median_of(repeats, |_| {
            let start = Instant::now();
            self.queue.read(&self.block, 0, &mut data[..4])?;
            Ok(us_since(start))
        })?;
        let all = median_of(repeats, |round| {
            data.fill(round as u8);
            let sent = int_at(&data, 0);
            let start = Instant::now();
            self.queue.write(&self.block, 0, &data)?;
            self.queue.launch(&self.increment, BLOCK / 4)?;
            self.queue.read(&self.block, 0, &mut data)?;
            let us = us_since(start);
            let last = int_at(&data, BLOCK / 4 - 1);
            ensure!(last == sent.wrapping_add(1), "{last} came back for {sent}");
            Ok(us)
        })?;
        Ok(values([
            ("write_4", write),
            ("read_4", read),
            ("write_kernel_read_4096", all),
        ]))
    }

    fn transfer(
        &mut self,
        bytes: usize,
        window: usize,
        direction: Direction,
        blocking: bool,
    ) -> anyhow::Result<Values> {
        let total = bytes * window;
        if self
            .messages
            .as_ref()
            .is_none_or(|kept| kept.host.len() != total)
        {
            self.messages = None;
            self.messages = Some(Messages {
                host: vec![0xa5; total],
                device: self.context.buffer(total)?,
            });
        }
        let Some(messages) = &mut self.messages else {
            bail!("no memory for messages");
        };
        let Messages { host, device } = messages;
        if direction == Direction::Write {
            // The ends of every message differ from run to run, and are looked at afterwards.
            stamp(host, bytes);
        }
        self.queue.finish()?;
        let wait = if blocking { CL_TRUE } else { CL_FALSE };
        let start = Instant::now();
        for (index, message) in host.chunks_mut(bytes).enumerate() {
            let offset = index * bytes;
            match direction {
                // SAFETY: nothing touches the message until the queue has finished.
                Direction::Write => unsafe {
                    self.queue.enqueue_write(device, offset, message, wait)?;
                },
                // SAFETY: as above.
                Direction::Read => unsafe {
                    self.queue.enqueue_read(device, offset, message, wait)?;
                },
            }
        }
        let issued = us_since(start);
        self.queue.finish()?;
        let seconds = start.elapsed().as_secs_f64();
        if direction == Direction::Write {
            let mut end = [0; 8];
            let from = total - end.len().min(total);
            self.queue.read(device, from, &mut end[..total - from])?;
            ensure!(
                end[..total - from] == host[from..],
                "other bytes arrived than were written"
            );
        }
        Ok(values([
            ("gbytes_per_s", total as f64 / seconds * 1e-9),
            ("issue_us", issued / window as f64),
        ]))
    }

    fn compute(&mut self, what: Compute, global: usize, rounds: u32) -> anyhow::Result<Values> {
        let element = if what == Compute::GlobalMemory { 16 } else { 8 };
        let bytes = global * element;
        if self
            .compute
            .as_ref()
            .is_none_or(|kept| (kept.0, kept.1) != (what, bytes))
        {
            self.compute = None;
            let (input, output) = (self.context.buffer(bytes)?, self.context.buffer(bytes)?);
            // Also makes the pages there before anything is measured.
            let zeros = vec![0; bytes];
            self.queue.write(&input, 0, &zeros)?;
            self.queue.write(&output, 0, &zeros)?;
            self.compute = Some((what, bytes, input, output));
        }
        let Some((_, _, input, output)) = &self.compute else {
            bail!("no memory to compute in");
        };
        let name = match what {
            Compute::FlopsSingle => "flops_single",
            Compute::FlopsDouble => "flops_double",
            Compute::GlobalMemory => "global_copy",
            Compute::LocalMemory => "local_copy",
        };
        let kernel = self.program.kernel(name)?;
        let launches = if what == Compute::GlobalMemory {
            kernel.set_buffer(0, input)?;
            kernel.set_buffer(1, output)?;
            rounds
        } else {
            kernel.set_buffer(0, output)?;
            kernel.set(1, rounds as i32)?;
            match what {
                Compute::FlopsSingle => kernel.set(2, 0.5_f32)?,
                Compute::FlopsDouble => kernel.set(2, 0.5_f64)?,
                _ => {}
            }
            1
        };
        self.queue.finish()?;
        let start = Instant::now();
        for _ in 0..launches {
            self.queue.launch_groups(&kernel, global, 64)?;
        }
        self.queue.finish()?;
        let seconds = start.elapsed().as_secs_f64();
        let items = global as f64 * f64::from(rounds);
        let (rate, expected) = match what {
            // The chains go to 1, and there are 16.
            Compute::FlopsSingle | Compute::FlopsDouble => (items * 32.0 / seconds * 1e-9, 16.0),
            Compute::GlobalMemory => (items * 32.0 / seconds * 1e-9, 1.0),
            Compute::LocalMemory => (
                items * 8.0 / seconds * 1e-9,
                f64::from((0..rounds).fold(0, |sum, round| (sum + round) % 64) + rounds),
            ),
        };
        let mut first = [0; 8];
        self.queue.read(output, 0, &mut first)?;
        let result = if what == Compute::FlopsDouble {
            f64::from_le_bytes(first)
        } else {
            let [a, b, c, d, ..] = first;
            f64::from(f32::from_le_bytes([a, b, c, d]))
        };
        ensure!(
            (result - expected).abs() <= expected * 1e-3,
            "{name} computed {result} instead of {expected}"
        );
        Ok(values([("rate", rate), ("ms", seconds * 1e3)]))
    }
}

/// Writes something new into both ends of every message.
fn stamp(host: &mut [u8], bytes: usize) {
    for message in host.chunks_mut(bytes) {
        let last = message.len() - 1;
        message[0] = message[0].wrapping_add(1);
        message[last] = message[last].wrapping_add(3);
    }
}

fn median_of(
    repeats: u32,
    mut once: impl FnMut(i32) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(repeats as usize);
    for round in 0..repeats as i32 {
        times.push(once(round)?);
    }
    crate::stats::median(&times).context("nothing measured")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_survive_the_pipe() {
        let task = Task::Transfer {
            bytes: 1024,
            window: 32,
            direction: Direction::Read,
            blocking: true,
        };
        let line = serde_json::to_string(&task).unwrap();
        assert_eq!(
            line,
            r#"{"task":"transfer","bytes":1024,"window":32,"direction":"read","blocking":true}"#
        );
        let again: Task = serde_json::from_str(&line).unwrap();
        assert_eq!(format!("{again:?}"), format!("{task:?}"));
    }

    #[test]
    fn stamping_changes_both_ends_of_every_message() {
        let mut host = vec![0; 12];
        stamp(&mut host, 4);
        stamp(&mut host, 4);
        assert_eq!(host, [2, 0, 0, 6, 2, 0, 0, 6, 2, 0, 0, 6]);
    }

    #[test]
    fn median_of_repetitions_passes_errors_on() {
        assert_eq!(median_of(3, |round| Ok(f64::from(round))).unwrap(), 1.0);
        assert!(median_of(3, |_| anyhow::bail!("broken")).is_err());
    }
}
