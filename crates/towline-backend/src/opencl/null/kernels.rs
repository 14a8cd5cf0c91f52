//! The built-in kernels: what the host-memory device can compute, and misbehave at.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::handles::Alive;
use super::super::scheduler::{Outcome, Scheduler};
use super::super::*;
use super::info::GROUP_LIMIT;
use super::memory::Memory;
use super::registry::Context;

/// How long `spin_until` spins before it gives up with `CL_OUT_OF_RESOURCES`.
const SPIN_LIMIT: Duration = Duration::from_secs(20);

/// What an argument has to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Parameter {
    /// `global uint *`
    Buffer,
    /// `uint`
    Number,
}

/// An argument that was set.
#[derive(Clone)]
pub(super) enum Argument {
    Buffer(Option<Arc<Memory>>),
    Number(u32),
}

/// A kernel that is part of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuiltIn {
    /// Adds one to `buf[id]`.
    AddOne,
    /// Multiplies `buf[id]` by `factor`.
    Scale,
    /// Runs until `flag[0]` is not zero.
    SpinUntil,
    /// Ends the process: a vendor's crash, on demand.
    Abort,
    /// Writes `n` lines to standard output.
    Print,
}

/// The names of all built-in kernels, as `CL_DEVICE_BUILT_IN_KERNELS` lists them.
pub(super) const NAMES: &str = "add_one;scale;spin_until;abort;print";

impl BuiltIn {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "add_one" => Self::AddOne,
            "scale" => Self::Scale,
            "spin_until" => Self::SpinUntil,
            "abort" => Self::Abort,
            "print" => Self::Print,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AddOne => "add_one",
            Self::Scale => "scale",
            Self::SpinUntil => "spin_until",
            Self::Abort => "abort",
            Self::Print => "print",
        }
    }

    /// Most items of a group: one that spins takes many registers.
    pub(super) fn group_limit(self) -> usize {
        match self {
            Self::SpinUntil => GROUP_LIMIT / 2,
            _ => GROUP_LIMIT,
        }
    }

    /// Names and kinds of the parameters.
    pub(super) fn parameters(self) -> &'static [(&'static str, Parameter)] {
        match self {
            Self::AddOne => &[("buf", Parameter::Buffer)],
            Self::Scale => &[("buf", Parameter::Buffer), ("factor", Parameter::Number)],
            Self::SpinUntil => &[("flag", Parameter::Buffer)],
            Self::Abort => &[],
            Self::Print => &[("n", Parameter::Number)],
        }
    }
}

/// A program: source that nothing here compiles, or built-in kernels.
pub(super) struct Program {
    pub(super) handle: usize,
    pub(super) context: Arc<Context>,
    pub(super) devices: Vec<usize>,
    pub(super) source: Option<Vec<u8>>,
    pub(super) kernels: Vec<BuiltIn>,
    pub(super) _alive: Alive,
}

/// A kernel and its arguments.
pub(super) struct Kernel {
    pub(super) program: Arc<Program>,
    pub(super) built_in: BuiltIn,
    arguments: Mutex<Vec<Option<Argument>>>,
    _alive: Alive,
}

impl Kernel {
    pub(super) fn new(program: Arc<Program>, built_in: BuiltIn, alive: Alive) -> Self {
        Self {
            program,
            built_in,
            arguments: Mutex::new(vec![None; built_in.parameters().len()]),
            _alive: alive,
        }
    }

    /// The same kernel with the same arguments.
    pub(super) fn copy(&self, alive: Alive) -> Self {
        let copy = Self::new(self.program.clone(), self.built_in, alive);
        *copy.arguments() = self.arguments().clone();
        copy
    }

    pub(super) fn set(&self, index: usize, argument: Argument) {
        if let Some(slot) = self.arguments().get_mut(index) {
            *slot = Some(argument);
        }
    }

    /// The launch of the kernel with its arguments of now, over work-items `first..first + count`.
    pub(super) fn launch(
        &self,
        scheduler: Arc<Scheduler>,
        first: usize,
        count: usize,
    ) -> Result<Box<dyn FnOnce() -> Outcome + Send>, cl_int> {
        let arguments: Option<Vec<Argument>> = self.arguments().iter().cloned().collect();
        let arguments = arguments.ok_or(CL_INVALID_KERNEL_ARGS)?;
        let built_in = self.built_in;
        Ok(Box::new(move || match (built_in, arguments.as_slice()) {
            (BuiltIn::AddOne, [Argument::Buffer(buffer)]) => {
                each(buffer.as_deref(), first, count, |value| {
                    value.wrapping_add(1)
                })
            }
            (BuiltIn::Scale, [Argument::Buffer(buffer), Argument::Number(factor)]) => {
                each(buffer.as_deref(), first, count, |value| {
                    value.wrapping_mul(*factor)
                })
            }
            (BuiltIn::SpinUntil, [Argument::Buffer(flag)]) => spin(flag.as_deref(), &scheduler),
            (BuiltIn::Abort, _) => std::process::abort(),
            (BuiltIn::Print, [Argument::Number(lines)]) => print(*lines),
            _ => Err(CL_INVALID_KERNEL_ARGS),
        }))
    }

    fn arguments(&self) -> std::sync::MutexGuard<'_, Vec<Option<Argument>>> {
        self.arguments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The word at `index`, if the buffer has that many.
fn word(buffer: &Memory, index: usize) -> Option<&AtomicU32> {
    let offset = index.checked_mul(4)?;
    buffer.range(offset, 4).ok()?;
    let word = buffer.place.at(offset).pointer().cast::<u32>();
    if !word.is_aligned() {
        return None;
    }
    // SAFETY: inside the buffer, aligned, alive as long as the buffer; other queues may use the word, so only atomically.
    Some(unsafe { AtomicU32::from_ptr(word) })
}

/// Work-items behind the end of the buffer do nothing: a kernel cannot leave its memory here.
fn each(
    buffer: Option<&Memory>,
    first: usize,
    count: usize,
    change: impl Fn(u32) -> u32,
) -> Outcome {
    let buffer = buffer.ok_or(CL_INVALID_KERNEL_ARGS)?;
    for index in first..first.saturating_add(count) {
        let Some(word) = word(buffer, index) else {
            break;
        };
        word.store(change(word.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
    Ok(())
}

fn spin(flag: Option<&Memory>, scheduler: &Scheduler) -> Outcome {
    let word = flag
        .and_then(|flag| word(flag, 0))
        .ok_or(CL_INVALID_KERNEL_ARGS)?;
    let start = Instant::now();
    while word.load(Ordering::Acquire) == 0 {
        if start.elapsed() > SPIN_LIMIT || scheduler.is_closed() {
            return Err(CL_OUT_OF_RESOURCES);
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

fn print(lines: u32) -> Outcome {
    let mut out = std::io::stdout().lock();
    for line in 0..lines {
        writeln!(out, "towline null: line {line}").map_err(|_| CL_OUT_OF_RESOURCES)?;
    }
    out.flush().map_err(|_| CL_OUT_OF_RESOURCES)
}
