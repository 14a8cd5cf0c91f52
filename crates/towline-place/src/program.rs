//! What the ranks of a program do, in order and without times.
//!
//! A program is a *start* and a *body* that is repeated; of a trace everything is start. Amounts of computation are operations of a
//! core; [`crate::Cluster`] says how fast those go.

pub mod collective;
pub mod declared;
mod matching;
pub mod trace;

use std::sync::Arc;

use self::collective::Call;

/// Most ranks of a program: what is computed is at least in proportion to them.
pub const MAX_RANKS: usize = 1 << 16;

/// The speed of the core that rated speeds and demands of memory are stated for; others are in proportion.
pub const REFERENCE_SPEED: f64 = 1e9;

/// Operations per second of a program on a core of this speed; a program without a rated speed does what the core does.
pub fn speed(rated: f64, core_speed: f64) -> f64 {
    match rated > 0.0 {
        true => rated * core_speed / REFERENCE_SPEED,
        false => core_speed,
    }
}

/// A parallel program: the work of each rank.
#[derive(Clone, Debug)]
pub struct Program {
    /// A name for reports.
    pub name: String,
    /// One per rank.
    pub start: Vec<Vec<Op>>,
    /// One per rank; what is repeated after the start.
    pub body: Vec<Vec<Op>>,
    /// How many times the body is run.
    pub iterations: u64,
    /// Bytes per second that one rank with a socket of its own draws from memory while it computes on the reference core.
    pub memory_demand: f64,
    /// Operations per second of one rank with a socket of its own on the reference core; 0: as the cluster's cores.
    pub rated_speed: f64,
    /// Communicators beside that of all ranks, which has number 0.
    pub communicators: Vec<Arc<[u32]>>,
}

/// What a rank does next. Ranks are those of the program, sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Computes on its core.
    Compute {
        /// Operations.
        ops: f64,
    },
    /// Sends a message, and waits until its memory is free again.
    Send {
        /// The rank that receives.
        to: u32,
        /// The tag of the message.
        tag: u32,
        /// The length of the message.
        bytes: u64,
    },
    /// Begins to send a message.
    Isend {
        /// The rank that receives.
        to: u32,
        /// The tag of the message.
        tag: u32,
        /// The length of the message.
        bytes: u64,
    },
    /// Waits for a message.
    Recv {
        /// The rank that sends.
        from: u32,
        /// The tag of the message.
        tag: u32,
        /// The length of the message.
        bytes: u64,
    },
    /// Begins to receive a message.
    Irecv {
        /// The rank that sends.
        from: u32,
        /// The tag of the message.
        tag: u32,
        /// The length of the message.
        bytes: u64,
    },
    /// For the oldest request to or from this rank with this tag that is not waited for yet.
    Wait {
        /// The other rank.
        peer: u32,
        /// The tag of the message.
        tag: u32,
        /// Whether this rank sends.
        sent: bool,
    },
    /// For all requests.
    WaitAll,
    /// Sends and receives at once, and waits for both; what collectives are made of.
    Exchange {
        /// The rank that receives, and how many bytes.
        to: Option<(u32, u64)>,
        /// The rank that sends, and how many bytes.
        from: Option<(u32, u64)>,
        /// The tag of both messages.
        tag: u32,
    },
    /// Takes part in a collective.
    Collective {
        /// The collective.
        call: Call,
        /// The ranks that take part.
        communicator: u32,
    },
    /// Uses the rank's GPU: so many bytes up, a kernel of so many seconds, so many bytes down, in so many calls.
    Gpu {
        /// Bytes to the GPU.
        up: u64,
        /// Time of the kernel alone on the GPU.
        seconds: f64,
        /// Bytes from the GPU.
        down: u64,
        /// Calls of the GPU's interface.
        calls: u32,
    },
}

impl Program {
    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.start.len()
    }

    /// The operations of a rank, collectives taken apart into messages.
    pub fn flat<'a>(&'a self, ops: &'a [Op], rank: u32) -> impl Iterator<Item = Op> + 'a {
        ops.iter().flat_map(move |op| self.flat_one(op, rank))
    }

    fn flat_one(&self, op: &Op, rank: u32) -> Vec<Op> {
        let Op::Collective { call, communicator } = op else {
            return vec![op.clone()];
        };
        let tag = collective::TAG + communicator;
        match communicator.checked_sub(1) {
            None => call.steps(rank, self.ranks() as u32, tag, |index| index),
            Some(index) => {
                let members = &self.communicators[index as usize];
                let me = members.iter().position(|member| *member == rank);
                let me = me.expect("ranks call collectives of their own communicators") as u32;
                call.steps(me, members.len() as u32, tag, |index| {
                    members[index as usize]
                })
            }
        }
    }

    /// Operations that a rank computes in all.
    pub fn ops(&self, rank: usize) -> f64 {
        let sum = |ops: &[Op]| -> f64 {
            let of = |op: &Op| {
                if let Op::Compute { ops } = op {
                    *ops
                } else {
                    0.0
                }
            };
            ops.iter().map(of).sum()
        };
        sum(&self.start[rank]) + sum(&self.body[rank]) * self.iterations as f64
    }

    /// What a rank asks of its GPU in all: bytes up, seconds, bytes down, calls.
    pub fn gpu(&self, rank: usize) -> GpuUse {
        let sum = |ops: &[Op], times: f64, total: &mut GpuUse| {
            for op in ops {
                if let Op::Gpu {
                    up,
                    seconds,
                    down,
                    calls,
                } = op
                {
                    total.up += *up as f64 * times;
                    total.down += *down as f64 * times;
                    total.seconds += seconds * times;
                    total.calls += f64::from(*calls) * times;
                }
            }
        };
        let mut total = GpuUse::default();
        sum(&self.start[rank], 1.0, &mut total);
        sum(&self.body[rank], self.iterations as f64, &mut total);
        total
    }
}

/// What a rank asks of its GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuUse {
    /// Bytes to the GPU.
    pub up: f64,
    /// Bytes from the GPU.
    pub down: f64,
    /// Time of kernels.
    pub seconds: f64,
    /// Calls of the GPU's interface.
    pub calls: f64,
}

impl GpuUse {
    /// Whether it uses no GPU.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
