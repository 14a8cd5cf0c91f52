//! Which tier runs a launch.

use std::sync::Arc;

use towline_ptx::ir::op::Op;
use towline_ptx::ir::{Code, Instruction};

use crate::exec::Launch;
use crate::jit::{Cache, Compiled, block_bytes};

/// How kernels are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SoftTier {
    /// Compiled once they have had enough to do to make up for that.
    #[default]
    Auto,
    /// Always by the interpreter.
    Interpreter,
    /// Always compiled, where that is possible.
    Jit,
}

/// Instructions of threads that the interpreter carries out in the time that compiling one instruction takes.
const WORTH: u64 = 6_000;
/// Rounds that a loop is thought to go.
const LOOP: u64 = 32;
/// Loops in loops that are counted.
const DEPTH: i64 = 2;

impl SoftTier {
    /// The code to run a launch with, or none if the interpreter is to run it.
    pub(crate) fn code(self, launch: &Launch, cache: &Cache) -> Option<Arc<Compiled>> {
        let worthwhile = match self {
            SoftTier::Interpreter => false,
            SoftTier::Jit => true,
            SoftTier::Auto => launch
                .kernel
                .is_busy(launch.blocks(), launch.threads_per_block()),
        };
        // Parameters that the launch lacks are zeros to the interpreter.
        let complete = launch.kernel.parameter_bytes() <= launch.parameters.len();
        let code = (worthwhile && complete).then(|| cache.get(&launch.kernel).ok())??;
        let at_once = launch.resident_blocks.min(launch.blocks());
        let bytes = (block_bytes(launch, &code) as u64).saturating_mul(at_once);
        (bytes <= launch.memory_limit as u64).then_some(code)
    }
}

/// Instructions of a thread, those in loops counted as often as they may come about.
pub(crate) fn weight(code: &Code) -> u64 {
    let len = code.instructions.len();
    // How many more loops an instruction is in than the one before it.
    let mut deeper = vec![0_i64; len + 1];
    for (at, Instruction { op, .. }) in code.instructions.iter().enumerate() {
        if let Op::Branch { target } = op
            && *target as usize <= at
        {
            deeper[*target as usize] += 1;
            deeper[at + 1] -= 1;
        }
    }
    let mut depth = 0;
    let weights = deeper.iter().take(len).map(|more| {
        depth += more;
        LOOP.pow(depth.clamp(0, DEPTH) as u32)
    });
    weights.sum()
}

/// Whether so much work makes up for compiling so many instructions.
pub(crate) fn is_worthwhile(work: u64, instructions: u64) -> bool {
    work >= instructions.saturating_mul(WORTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_ptx::ir::{Body, Program};
    use towline_ptx::ptx::Module;

    #[test]
    fn instructions_in_loops_count_more() {
        let text = ".version 8.0\n.target sm_75\n.entry k() { .reg .b32 a; .reg .pred p; mov.u32 a, 0;\n\
             again: add.u32 a, a, 1; setp.lt.u32 p, a, 9; @p bra again; ret; }";
        let module = Module::parse(text).expect("a module");
        let program = Program::link(std::slice::from_ref(&module)).expect("a program");
        let Body::Code(code) = &program.functions[0].body else {
            panic!("not refused");
        };
        // What is behind the loop counts once, and what ends the function.
        assert_eq!(weight(code), 3 + 3 * LOOP);
        assert!(is_worthwhile(6_000_000, 1000) && !is_worthwhile(5_999_999, 1000));
    }
}
