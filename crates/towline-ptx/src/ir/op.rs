//! Operations.
//!
//! Registers hold 64 bits. An operation reads as many of them as its type has, and writes its result with zeros above, or, where it
//! widens a signed value, the sign.

use std::sync::Arc;

pub use super::Space;
use super::matrix::Matrix;
use super::{FunctionId, texture};
use crate::ptx::{Position, Type};

/// A register of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reg(pub u32);

/// A predicate of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pred(pub u32);

/// What an operation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// A register.
    Reg(Reg),
    /// One of the body's constants, by index.
    Constant(u32),
}

/// A truth value that an operation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flag {
    /// The same for all threads.
    Known(bool),
    /// A predicate.
    Pred(Pred),
    /// A predicate's opposite.
    Not(Pred),
}

/// The address of an access: `base + offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// A register, or a constant.
    pub base: Source,
    /// What is added.
    pub offset: i64,
}

/// An instruction.
#[derive(Debug, Clone)]
pub struct Instruction {
    /// Threads for which this does not hold pass it by.
    pub guard: Option<Flag>,
    /// What it does.
    pub op: Op,
    /// Where it stands.
    pub at: Position,
}

/// How a result is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rounding {
    /// To nearest, ties to even.
    #[default]
    Nearest,
    /// To nearest, ties away from zero.
    NearestAway,
    /// Towards zero.
    Zero,
    /// Towards minus infinity.
    Down,
    /// Towards plus infinity.
    Up,
}

/// What modifiers say of arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mode {
    /// Rounding.
    pub rounding: Rounding,
    /// To an integral value: `.rni` and the like.
    pub integral: bool,
    /// Subnormal numbers count as zero.
    pub flush: bool,
    /// The result is held to its type's range, or for floating point to 0 to 1.
    pub saturate: bool,
    /// A NaN among the inputs gives NaN.
    pub nan: bool,
    /// The sign is the product of the inputs' signs.
    pub xor_sign: bool,
    /// Negative results become zero.
    pub relu: bool,
    /// The magnitudes of the inputs count.
    pub magnitude: bool,
}

/// Operations with one input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the instructions")]
pub enum Unary {
    Abs,
    Bfind,
    BfindShift,
    Brev,
    Clz,
    Cnot,
    Cos,
    Ex2,
    Lg2,
    Neg,
    Not,
    Popc,
    Rcp,
    Rsqrt,
    Sin,
    Sqrt,
    Tanh,
}

/// Operations with two inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the instructions")]
pub enum Binary {
    Add,
    And,
    BmskClamp,
    BmskWrap,
    CopySign,
    Div,
    /// `div.approx.f32`: nothing comes of divisors beyond 2^126.
    DivApprox,
    Max,
    Min,
    Mul,
    Mul24Hi,
    Mul24Lo,
    MulHi,
    MulWide,
    Or,
    Rem,
    Shl,
    Shr,
    Sub,
    SzextClamp,
    SzextWrap,
    Xor,
}

/// Operations with three inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the instructions")]
pub enum Ternary {
    Bfe,
    /// `dp2a`: which half of the second vector, and whether the inputs are signed.
    Dp2a {
        high: bool,
        signed: [bool; 2],
    },
    Dp4a {
        signed: [bool; 2],
    },
    Fma,
    /// `fns`
    FindNthSet,
    Lop3(u8),
    /// The low half of the product, and the sum.
    Mad,
    Mad24Hi,
    Mad24Lo,
    MadHi,
    MadWide,
    Max3,
    Min3,
    Prmt(Permute),
    Sad,
    /// `shf`: funnel shifts.
    ShfLeft {
        wrap: bool,
    },
    ShfRight {
        wrap: bool,
    },
    /// `vadd` and the like.
    Video(Video),
}

/// What the instructions for video compute: from parts of `a` and `b`, one result or several side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Video {
    /// The operation.
    pub op: VideoOp,
    /// Results: 1, 2 or 4.
    pub results: u8,
    /// Whether the result's type is signed.
    pub signed: bool,
    /// What `a` and `b` are read as.
    pub inputs: [VideoInput; 2],
    /// Results are held to their type's range.
    pub saturate: bool,
    /// What becomes of the results.
    pub then: VideoThen,
}

/// Operations of [`Video`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the instructions")]
pub enum VideoOp {
    AbsDiff,
    Add,
    Avrg,
    Max,
    Min,
    Sub,
}

/// An operand of [`Video`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VideoInput {
    /// Whether its parts are signed.
    pub signed: bool,
    /// Bits of each part.
    pub bits: u8,
    /// The part that each result is made from, four bits each, the lowest first. Where there are several results, those of `b` are
    /// numbered behind those of `a`.
    pub parts: u16,
}

/// What becomes of the results of [`Video`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VideoThen {
    /// They are the result, or those of this mask are, each in its place, and `c` has the others. A single result has as many bits as
    /// are said here.
    Merge {
        /// Bits of each.
        bits: u8,
        /// By place.
        mask: u8,
    },
    /// Those of this mask are added to `c`.
    Add {
        /// By place.
        mask: u8,
    },
    /// The lesser of it and `c`.
    Min,
    /// The greater of it and `c`.
    Max,
}

/// Modes of `prmt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the modifiers")]
pub enum Permute {
    Index,
    B4e,
    Ecl,
    Ecr,
    F4e,
    Rc16,
    Rc8,
}

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the modifiers")]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// The same, and true for NaN.
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    /// Both are numbers.
    Num,
    /// Some is NaN.
    Nan,
}

/// Logic on predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the modifiers")]
pub enum Logic {
    And,
    Or,
    Xor,
}

/// Classes of numbers that `testp` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the modifiers")]
pub enum Class {
    Finite,
    Infinite,
    Normal,
    NotANumber,
    Number,
    Subnormal,
}

/// Operations with a carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the instructions")]
pub enum Carried {
    Add,
    Sub,
    MadLo,
    MadHi,
}

/// Special registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the registers")]
pub enum Special {
    Clock,
    ClockHi,
    Clock64,
    Ctaid(u8),
    DynamicSharedBytes,
    Envreg(u8),
    GlobalTimer,
    GlobalTimerHi,
    GlobalTimerLo,
    GridId,
    LaneId,
    LaneMaskEq,
    LaneMaskGe,
    LaneMaskGt,
    LaneMaskLe,
    LaneMaskLt,
    Nctaid(u8),
    Nsmid,
    Ntid(u8),
    Nwarpid,
    One,
    SmId,
    Tid(u8),
    TotalSharedBytes,
    WarpId,
    WarpSize,
    Zero,
}

/// How an access is ordered with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// With none.
    #[default]
    Weak,
    /// It is not torn, and not repeated or left out.
    Relaxed,
    /// Later accesses stay behind it.
    Acquire,
    /// Earlier accesses stay before it.
    Release,
    /// Both.
    AcquireRelease,
}

/// What an atomic operation computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the modifiers")]
pub enum Atomic {
    Add,
    And,
    Cas,
    Dec,
    Exch,
    Inc,
    Max,
    /// A change of a barrier in memory.
    Mbarrier(Arrival),
    Min,
    Or,
    Xor,
}

/// Changes of a barrier in memory (`mbarrier`), by a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// So many threads come.
    Arrive,
    /// They come, and are expected in no later phase.
    ArriveDrop,
    /// So many bytes have come that were expected.
    Complete,
    /// So many bytes are expected in this phase.
    Expect,
    /// The barrier is made, for so many threads.
    Init,
}

impl Arrival {
    /// Bits of the number of threads that are expected, and of those that are missing, which lie above them.
    pub const COUNT_BITS: u32 = 20;
    /// First bit of the number of the phase.
    pub const PHASE_SHIFT: u32 = 61;
}

/// How a shuffle picks its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the modifiers")]
pub enum Shuffle {
    Bfly,
    Down,
    Idx,
    Up,
}

/// What a vote asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the modifiers")]
pub enum Vote {
    All,
    Any,
    Ballot,
    Uniform,
}

/// What threads of a warp do together, once all of a member mask have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Together {
    /// `elect.sync`: one of them, by its lane number and a predicate.
    Elect {
        /// Which lane.
        d: Option<Reg>,
        /// Whether this thread is it.
        p: Option<Pred>,
    },
    /// `match.any.sync`, `match.all.sync`
    Match {
        /// All must be equal.
        all: bool,
        /// Bits that are compared.
        bits: u8,
        /// Who has the same value.
        d: Reg,
        /// Whether all have.
        p: Option<Pred>,
        /// The value.
        a: Source,
    },
    /// An operation on matrices.
    Matrix {
        /// The operation.
        what: Matrix,
        /// Offset of each lane's scratch in the frame's local memory.
        scratch: u32,
    },
    /// `redux.sync`
    Reduce {
        /// How.
        op: Atomic,
        /// Type.
        ty: Type,
        /// Result.
        d: Reg,
        /// Each thread's value.
        a: Source,
    },
    /// `shfl.sync`
    Shuffle {
        /// How the source is picked.
        kind: Shuffle,
        /// Result.
        d: Option<Reg>,
        /// Whether the source is in range.
        p: Option<Pred>,
        /// Each thread's value.
        a: Source,
        /// Lane, or distance.
        b: Source,
        /// Segment mask and clamp.
        c: Source,
    },
    /// `vote.sync`
    Vote {
        /// What is asked.
        kind: Vote,
        /// The ballot.
        d: Option<Reg>,
        /// The verdict.
        p: Option<Pred>,
        /// Each thread's answer.
        a: Flag,
    },
    /// `bar.warp.sync`
    Wait,
}

/// What arriving at a barrier means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// Come, and go on.
    Arrive,
    /// Come to the cluster's barrier, and go on.
    ClusterArrive,
    /// Wait at the cluster's barrier, if others are missing since this thread has come.
    ClusterWait,
    /// Come, and wait for the others.
    Sync,
    /// The same; then know whether it holds for all or any.
    Reduce {
        /// How answers are put together.
        op: Logic,
        /// The verdict.
        d: Pred,
        /// Each thread's answer.
        a: Flag,
    },
    /// The same, and know for how many.
    Count {
        /// For how many.
        d: Reg,
        /// Each thread's answer.
        a: Flag,
    },
}

/// Arguments and results of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// A variable in parameter space: offset and bytes.
    Memory {
        /// Where.
        offset: u32,
        /// Bytes.
        len: u32,
    },
    /// A value, of so many bytes.
    Value(Source, u8),
    /// A predicate.
    Flag(Flag),
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Whom.
    pub callee: Callee,
    /// What is taken.
    pub arguments: Vec<Argument>,
    /// Where results go.
    pub returns: Vec<Argument>,
}

/// Who is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    /// A function.
    Function(FunctionId),
    /// What an address points to.
    Address(Source),
}

/// What an instruction does. Fields: `d` is the destination, `a`, `b`, `c` the inputs.
#[derive(Debug, Clone)]
#[allow(
    missing_docs,
    reason = "named like the instructions and their operands in the PTX ISA"
)]
pub enum Op {
    ActiveMask {
        d: Reg,
    },
    Atomic {
        op: Atomic,
        space: Space,
        ty: Type,
        d: Option<Reg>,
        address: Address,
        a: Source,
        b: Option<Source>,
    },
    Barrier {
        kind: Barrier,
        id: Source,
        threads: Option<Source>,
    },
    Binary {
        op: Binary,
        ty: Type,
        mode: Mode,
        d: Reg,
        a: Source,
        b: Source,
    },
    /// To a bit position: `bfi d, a, b, c, e`.
    BitInsert {
        ty: Type,
        d: Reg,
        a: Source,
        b: Source,
        c: Source,
        e: Source,
    },
    Branch {
        target: u32,
    },
    BranchIndexed {
        index: Source,
        targets: Arc<[u32]>,
    },
    Call(Box<Call>),
    /// With the carry that the flag holds, and into it.
    Carry {
        op: Carried,
        ty: Type,
        reads: bool,
        writes: bool,
        carry: Pred,
        d: Reg,
        a: Source,
        b: Source,
        c: Option<Source>,
    },
    /// The number's class.
    Classify {
        class: Class,
        ty: Type,
        d: Pred,
        a: Source,
    },
    Convert {
        to: Type,
        from: Type,
        mode: Mode,
        d: Reg,
        a: Source,
    },
    /// Two numbers into a pair: `a` above `b`.
    ConvertPair {
        to: Type,
        from: Type,
        mode: Mode,
        d: Reg,
        a: Source,
        b: Source,
    },
    Exit,
    Fence {
        strong: bool,
    },
    /// From or to a generic address.
    Generic {
        to_generic: bool,
        space: Space,
        d: Reg,
        a: Source,
    },
    InSpace {
        space: Space,
        d: Pred,
        a: Source,
    },
    /// The address of a byte of the frame's local memory.
    LocalAddress {
        d: Reg,
        offset: u32,
    },
    Load {
        space: Space,
        ty: Type,
        order: Order,
        /// It may be a poll: `.volatile`, `.relaxed`, `.acquire`.
        polls: bool,
        /// The destination is wider than the type, and takes its sign.
        d: Reg,
        address: Address,
    },
    LoadVector {
        space: Space,
        ty: Type,
        order: Order,
        polls: bool,
        d: Box<[Option<Reg>]>,
        address: Address,
    },
    Mov {
        d: Reg,
        a: Source,
    },
    Nanosleep {
        a: Source,
    },
    Nop,
    /// Parts of so many bits each, the lowest first.
    Pack {
        bits: u8,
        d: Reg,
        parts: Box<[Source]>,
    },
    PredLogic {
        op: Logic,
        d: Pred,
        a: Flag,
        b: Flag,
    },
    PredMov {
        d: Pred,
        a: Flag,
    },
    Return,
    Select {
        d: Reg,
        a: Source,
        b: Source,
        p: Flag,
    },
    /// `slct`: by the sign of `c`.
    SelectSign {
        c_float: bool,
        flush: bool,
        d: Reg,
        a: Source,
        b: Source,
        c: Source,
    },
    Set {
        compare: Compare,
        combine: Option<(Logic, Flag)>,
        to: Type,
        ty: Type,
        flush: bool,
        d: Reg,
        a: Source,
        b: Source,
    },
    SetPredicate {
        compare: Compare,
        combine: Option<(Logic, Flag)>,
        ty: Type,
        flush: bool,
        p: Option<Pred>,
        /// The opposite outcome.
        q: Option<Pred>,
        a: Source,
        b: Source,
    },
    Special {
        d: Reg,
        which: Special,
    },
    Store {
        space: Space,
        ty: Type,
        order: Order,
        address: Address,
        a: Source,
    },
    StoreVector {
        space: Space,
        ty: Type,
        order: Order,
        address: Address,
        a: Box<[Source]>,
    },
    Ternary {
        op: Ternary,
        ty: Type,
        mode: Mode,
        d: Reg,
        a: Source,
        b: Source,
        c: Source,
    },
    Texture(Box<texture::Access>),
    Together {
        /// Lanes that take part.
        mask: Source,
        what: Box<Together>,
    },
    Trap {
        breakpoint: bool,
    },
    Unary {
        op: Unary,
        ty: Type,
        mode: Mode,
        d: Reg,
        a: Source,
    },
    Unpack {
        bits: u8,
        d: Box<[Option<Reg>]>,
        a: Source,
    },
}
