//! What goes wrong while a kernel runs.

use std::fmt;

use towline_backend::cuda::*;
use towline_ptx::ir::Space;
use towline_ptx::ptx::Position;

use crate::image::Kernel;
use crate::messages::shown;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// An access outside of every allocation, or of a space.
    Address {
        space: Space,
        address: u64,
        bytes: u64,
        write: bool,
        /// What lies near it.
        near: String,
    },
    /// An assertion of the program's.
    Assertion(String),
    /// An access beyond the edge of a surface, where that is a fault: the coordinates, and how many of each there are.
    Beyond {
        at: [i64; 3],
        sides: [i64; 3],
    },
    Breakpoint,
    /// A call of what is no function.
    Callee(u64),
    /// All threads wait for each other.
    Deadlock,
    Misaligned {
        address: u64,
        bytes: u64,
    },
    /// A handle that is none of what the instruction wants.
    Object(u64, &'static str),
    /// More memory for registers and stacks than a block may have.
    Resources(String),
    /// Calls nested too deep, or too much local memory.
    Stack,
    /// The launch took longer than the server allows.
    TimeLimit,
    Trap,
}

impl FaultKind {
    /// What the driver answers from then on.
    pub(crate) fn status(&self) -> CUresult {
        match self {
            FaultKind::Address { .. } => CUDA_ERROR_ILLEGAL_ADDRESS,
            FaultKind::Assertion(_) => CUDA_ERROR_ASSERT,
            FaultKind::Beyond { .. } | FaultKind::Breakpoint | FaultKind::Trap => {
                CUDA_ERROR_LAUNCH_FAILED
            }
            FaultKind::Object(..) => CUDA_ERROR_ILLEGAL_ADDRESS,
            FaultKind::Callee(_) => CUDA_ERROR_INVALID_PC,
            FaultKind::Deadlock | FaultKind::TimeLimit => CUDA_ERROR_LAUNCH_TIMEOUT,
            FaultKind::Misaligned { .. } => CUDA_ERROR_MISALIGNED_ADDRESS,
            FaultKind::Resources(_) => CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            FaultKind::Stack => CUDA_ERROR_HARDWARE_STACK_ERROR,
        }
    }
}

impl FaultKind {
    /// Its name in messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            FaultKind::Address { .. } => "invalid address",
            FaultKind::Assertion(_) => "failed assertion",
            FaultKind::Beyond { .. } => "access beyond a surface",
            FaultKind::Breakpoint => "breakpoint",
            FaultKind::Object(..) => "handle of no object",
            FaultKind::Callee(_) => "call of no function",
            FaultKind::Deadlock => "deadlock",
            FaultKind::Misaligned { .. } => "misaligned address",
            FaultKind::Resources(_) => "too few resources",
            FaultKind::Stack => "stack overflow",
            FaultKind::TimeLimit => "time limit",
            FaultKind::Trap => "trap",
        }
    }

    /// The remedy, where it is not said already.
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        match self {
            FaultKind::Address { near, .. } if near.ends_with(NOWHERE) => Some(
                "pass memory of the device that has not been freed; what the host has allocated by itself is none",
            ),
            FaultKind::Address { near, .. }
                if near.is_empty() || near.contains("the allocation") =>
            {
                Some("compare the index with the length of the array before the access")
            }
            FaultKind::Beyond { .. } => Some(
                "compare the coordinates with the surface's sides (those along rows count bytes, but for converting stores), or name another \
                 boundary mode",
            ),
            FaultKind::Object(..) => {
                Some("pass a handle of a live object of that kind, made in this context")
            }
            FaultKind::Callee(_) => Some("take pointers to device functions in device code"),
            FaultKind::Deadlock => {
                Some("let all threads of the block, or of the mask, come to the same one")
            }
            FaultKind::Misaligned { .. } => {
                Some("align the data to the type's size, or access it by a smaller type")
            }
            FaultKind::Stack => Some("limit the recursion, or the size of local arrays"),
            FaultKind::Trap => Some(
                "the program ends itself so: look for __trap() and for checks of its own before it",
            ),
            FaultKind::Address { .. }
            | FaultKind::Assertion(_)
            | FaultKind::Breakpoint
            | FaultKind::Resources(_)
            | FaultKind::TimeLimit => None,
        }
    }
}

/// Ends what is said of an address that no allocation is near.
pub(crate) const NOWHERE: &str = "where nothing is allocated";

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::Address {
                space,
                address,
                bytes,
                write,
                near,
            } => {
                let access = if *write { "write" } else { "read" };
                write!(
                    f,
                    "invalid {access} of {bytes} bytes at {space} address {address:#x}{near}"
                )
            }
            FaultKind::Assertion(text) => f.write_str(text),
            FaultKind::Breakpoint => f.write_str("breakpoint, and no debugger"),
            FaultKind::Callee(address) => write!(f, "call of {address:#x}, which is no function"),
            FaultKind::Deadlock => f.write_str(
                "all threads of the block wait for each other at barriers or warp-wide operations",
            ),
            FaultKind::Beyond {
                at: [x, y, z],
                sides: [width, height, depth],
            } => write!(
                f,
                "access at ({x}, {y}, {z}) of a surface of {width} by {height} by {depth}"
            ),
            FaultKind::Object(handle, wanted) => {
                write!(f, "access through {handle:#x}, which is no {wanted}")
            }
            FaultKind::Misaligned { address, bytes } => {
                write!(
                    f,
                    "access of {bytes} bytes at {address:#x}, which is no multiple of that"
                )
            }
            FaultKind::Resources(what) => f.write_str(what),
            FaultKind::Stack => f.write_str(
                "stack overflow: calls are nested too deep, or local memory is too large",
            ),
            FaultKind::TimeLimit => {
                f.write_str("the launch ran longer than the server's limit (--kernel-time-limit)")
            }
            FaultKind::Trap => f.write_str("trap"),
        }
    }
}

/// What went wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// Function that was being carried out.
    pub(crate) function: String,
    pub(crate) at: Position,
    pub(crate) block: [u32; 3],
    /// A thread of the block; with warp-wide faults one of them.
    pub(crate) thread: [u32; 3],
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([x, y, z], [i, j, k]) = (self.block, self.thread);
        write!(
            f,
            "{}: block ({x}, {y}, {z}), thread ({i}, {j}, {k}), in {} at {}",
            self.kind, self.function, self.at
        )
    }
}

impl Fault {
    /// The message about it: what, where in the grid, in which line of the PTX and of the source, and what helps.
    pub(crate) fn message(&self, kernel: &Kernel, shared_bytes: u32) -> String {
        let ([x, y, z], [i, j, k]) = (self.block, self.thread);
        let image = &kernel.image;
        let near = match &self.kind {
            FaultKind::Address {
                space: Space::Shared,
                near,
                ..
            } if near.is_empty() => {
                format!(", where the block has {shared_bytes} bytes")
            }
            _ => String::new(),
        };
        let mut text = format!(
            "kernel `{}`: {}{near}: block ({x}, {y}, {z}), thread ({i}, {j}, {k}), ",
            shown(kernel.name()),
            self.kind
        );
        if self.function != kernel.name() {
            text += &format!("in `{}`, ", shown(&self.function));
        }
        if let Some(source) = image.source(self.at) {
            text += &format!("{source}, ");
        }
        text += &format!(
            "PTX {}: `{}`",
            image.own_place(self.at),
            shown(image.line(self.at))
        );
        if let Some(remedy) = self.kind.remedy() {
            text += &format!("; {remedy}");
        }
        text
    }
}
