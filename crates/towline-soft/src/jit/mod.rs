//! The second tier: kernels as machine code, made with Cranelift.
//!
//! Each kernel becomes one function that runs threads one after another, or four at a time, in place of the interpreter's lanes in step ([`emit`]). Whatever
//! threads do together stops them: they leave what is still needed in a frame, and [`run`] lets them go on once all have come. Results are
//! those of the interpreter, bit for bit, for every program whose result does not hang on the order in which threads come along.
//!
//! - [`flat`]: a kernel with all that it calls as one piece of code.
//! - [`live`]: which registers are needed where, and in which form.
//! - [`kept`]: what lies in frames while threads wait.
//! - [`emit`], [`arith`], [`float`], [`convert`], [`special`], [`memory`], [`texture`]: the translation.
//! - [`runs`]: loads that are checked together.
//! - [`shapes`]: what four lanes have in common that go together.
//! - [`code`]: machine code, and the cache of it.
//! - [`helpers`]: what machine code calls.
//! - [`run`]: blocks of threads.
//!
//! A kernel with anything that is not translated runs in the interpreter, which also is the reference: [`Refusal`] says why.

mod arith;
#[allow(unsafe_code, reason = "machine code is called, and has its memory")]
mod code;
mod convert;
mod emit;
mod flat;
mod float;
mod head;
#[allow(
    unsafe_code,
    reason = "machine code calls these with the block that it runs"
)]
mod helpers;
mod kept;
mod live;
mod memory;
mod operands;
mod run;
mod runs;
mod shapes;
mod special;
mod texture;

pub(crate) use code::{Cache, Compiled};
pub(crate) use run::{Threads, block_bytes};

/// State of a thread that has ended.
const DONE: u32 = u32::MAX;
/// Words of a frame that threads exchange through.
const EXCHANGE: usize = 5;
/// The one of them that shuffles have in the place of the first, with 32 bits for each lane: what lanes find there they may read when
/// others have left something for the next stop already, which must not lie across it.
const MOVED: usize = 4;
/// What a thread may use before others have their turn: rounds of loops, and looks at what others may change, which cost more.
const FUEL: i64 = 1 << 24;
const ROUND_COST: i64 = 1 << 8;
/// The least that a step of a round costs.
const STEP_COST: i64 = 1 << 4;
/// The cost of a step that a helper carries out.
const HELPER_COST: i64 = 1 << 10;
const POLL_COST: i64 = 1 << 20;

/// Why a kernel is not translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it has {0}")]
    Call(String),
    #[error("the compiler says: {0}")]
    Compiler(String),
    #[error("it reads shared memory as threads do that count on going in step")]
    InStep,
    #[error("it uses {0}")]
    Instruction(&'static str),
    #[error("it is too large")]
    Large,
}

#[cfg(test)]
mod tests;
