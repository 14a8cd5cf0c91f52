//! What goes wrong while a kernel runs.

use std::fmt;

use towline_backend::cuda::*;
use towline_ptx::ir::Space;
use towline_ptx::ptx::Position;

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
    Breakpoint,
    /// A call of what is no function.
    Callee(u64),
    /// All threads wait for each other.
    Deadlock,
    Misaligned {
        address: u64,
        bytes: u64,
    },
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
            FaultKind::Breakpoint | FaultKind::Trap => CUDA_ERROR_LAUNCH_FAILED,
            FaultKind::Callee(_) => CUDA_ERROR_INVALID_PC,
            FaultKind::Deadlock | FaultKind::TimeLimit => CUDA_ERROR_LAUNCH_TIMEOUT,
            FaultKind::Misaligned { .. } => CUDA_ERROR_MISALIGNED_ADDRESS,
            FaultKind::Resources(_) => CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            FaultKind::Stack => CUDA_ERROR_HARDWARE_STACK_ERROR,
        }
    }
}

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
        let (block, thread) = (self.block, self.thread);
        write!(
            f,
            "{}: block ({}, {}, {}), thread ({}, {}, {}), in {} at {}",
            self.kind,
            block[0],
            block[1],
            block[2],
            thread[0],
            thread[1],
            thread[2],
            self.function,
            self.at
        )
    }
}
