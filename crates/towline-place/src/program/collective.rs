//! Collectives as messages: the algorithms that MPI libraries commonly choose.
//!
//! | call | algorithm |
//! | --- | --- |
//! | barrier | dissemination |
//! | bcast, reduce | binomial tree |
//! | allreduce | recursive doubling up to [`SMALL`], ring beyond |
//! | allgather | ring |
//! | alltoall | Bruck up to [`TINY`] a peer, else pairwise |
//! | alltoallv, reduce_scatter | pairwise |
//! | gather, scatter | directly |
//! | scan | chain |

use std::sync::Arc;

use super::Op;

/// Tags of collectives start here, one per communicator; programs' own are below.
pub const TAG: u32 = 1 << 31;

/// Largest allreduce whose contents go whole in each step.
pub const SMALL: u64 = 16384;

/// Largest share of an alltoall that is worth forwarding.
pub const TINY: u64 = 256;

/// A collective as one rank calls it. Roots are numbers within the communicator.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// `bytes`: what each contributes.
    Allgather {
        /// Bytes that each contributes.
        bytes: u64,
    },
    /// `MPI_Allreduce`.
    Allreduce {
        /// Bytes that each contributes.
        bytes: u64,
    },
    /// `bytes`: to each.
    Alltoall {
        /// Bytes to each.
        bytes: u64,
    },
    /// `MPI_Alltoallv`.
    Alltoallv {
        /// Bytes to each rank.
        send: Arc<[u64]>,
        /// Bytes from each rank.
        receive: Arc<[u64]>,
    },
    /// `MPI_Barrier`.
    Barrier,
    /// `MPI_Bcast`.
    Bcast {
        /// Bytes that each gets.
        bytes: u64,
        /// The rank that sends.
        root: u32,
    },
    /// `MPI_Gather`.
    Gather {
        /// Bytes that each contributes.
        bytes: u64,
        /// The rank that receives.
        root: u32,
    },
    /// `MPI_Reduce`.
    Reduce {
        /// Bytes that each contributes.
        bytes: u64,
        /// The rank that receives.
        root: u32,
    },
    /// `bytes`: what each gets.
    ReduceScatter {
        /// Bytes that each gets.
        bytes: u64,
    },
    /// `MPI_Scan`.
    Scan {
        /// Bytes that each contributes.
        bytes: u64,
    },
    /// `MPI_Scatter`.
    Scatter {
        /// Bytes that each gets.
        bytes: u64,
        /// The rank that sends.
        root: u32,
    },
}

impl Call {
    /// What rank `me` of `n` does; `rank` turns numbers of the communicator into ranks.
    pub(super) fn steps(&self, me: u32, n: u32, tag: u32, rank: impl Fn(u32) -> u32) -> Vec<Op> {
        let mut steps = Steps {
            ops: Vec::new(),
            tag,
            rank,
        };
        if n > 1 {
            self.emit(me, n, &mut steps);
        }
        steps.ops
    }

    fn emit<R: Fn(u32) -> u32>(&self, me: u32, n: u32, steps: &mut Steps<R>) {
        // The numbers of a ring, without overflow.
        let ahead = |by: u32| ((u64::from(me) + u64::from(by)) % u64::from(n)) as u32;
        let behind = |by: u32| ahead(n - by % n);
        match self {
            Self::Barrier => {
                let mut distance = 1;
                while distance < n {
                    steps.both(ahead(distance), 0, behind(distance), 0);
                    distance *= 2;
                }
            }
            Self::Bcast { bytes, root } => tree(me, n, *root, |peer, down| match down {
                true => steps.send(peer, *bytes),
                false => steps.receive(peer, *bytes),
            }),
            Self::Reduce { bytes, root } => {
                let mut edges = Vec::new();
                tree(me, n, *root, |peer, down| edges.push((peer, down)));
                for (peer, down) in edges.into_iter().rev() {
                    match down {
                        true => steps.receive(peer, *bytes),
                        false => steps.send(peer, *bytes),
                    }
                }
            }
            Self::Allreduce { bytes } if *bytes <= SMALL => doubling(me, n, *bytes, steps),
            Self::Allreduce { bytes } => {
                let share = bytes.div_ceil(u64::from(n));
                for _ in 0..2 * (n - 1) {
                    steps.both(ahead(1), share, behind(1), share);
                }
            }
            Self::Allgather { bytes } => {
                for _ in 1..n {
                    steps.both(ahead(1), *bytes, behind(1), *bytes);
                }
            }
            Self::Alltoall { bytes } if *bytes <= TINY && n > 8 => {
                let mut distance = 1;
                while distance < n {
                    let blocks = (0..n).filter(|block| block & distance != 0).count() as u64;
                    steps.both(
                        ahead(distance),
                        blocks * bytes,
                        behind(distance),
                        blocks * bytes,
                    );
                    distance *= 2;
                }
            }
            Self::Alltoall { bytes } | Self::ReduceScatter { bytes } => {
                for by in 1..n {
                    steps.both(ahead(by), *bytes, behind(by), *bytes);
                }
            }
            Self::Alltoallv { send, receive } => {
                for by in 1..n {
                    let (to, from) = (ahead(by), behind(by));
                    let size =
                        |sizes: &[u64], peer: u32| sizes.get(peer as usize).copied().unwrap_or(0);
                    steps.both(to, size(send, to), from, size(receive, from));
                }
            }
            Self::Gather { bytes, root } | Self::Scatter { bytes, root } => {
                let gathers = matches!(self, Self::Gather { .. });
                match (me == *root, gathers) {
                    (true, true) => (1..n).for_each(|by| steps.receive(ahead(by), *bytes)),
                    (true, false) => (1..n).for_each(|by| steps.send(ahead(by), *bytes)),
                    (false, true) => steps.send(*root, *bytes),
                    (false, false) => steps.receive(*root, *bytes),
                }
            }
            Self::Scan { bytes } => {
                if me > 0 {
                    steps.receive(me - 1, *bytes);
                }
                if me + 1 < n {
                    steps.send(me + 1, *bytes);
                }
            }
        }
    }
}

/// The edges of a binomial tree at `me`, from the root down: first that to the parent (`false`), then those to children.
fn tree(me: u32, n: u32, root: u32, mut edge: impl FnMut(u32, bool)) {
    let wrap = |value: u64| (value % u64::from(n)) as u32;
    let place = wrap(u64::from(me) + u64::from(n) - u64::from(root));
    let peer = |place: u32| wrap(u64::from(place) + u64::from(root));
    let mut mask = 1;
    while mask < n {
        if place & mask != 0 {
            edge(peer(place - mask), false);
            break;
        }
        mask <<= 1;
    }
    mask >>= 1;
    while mask > 0 {
        if place + mask < n {
            edge(peer(place + mask), true);
        }
        mask >>= 1;
    }
}

/// Recursive doubling; what is over a power of two hands in before and gets the result after.
fn doubling<R: Fn(u32) -> u32>(me: u32, n: u32, bytes: u64, steps: &mut Steps<R>) {
    let power = 1 << n.ilog2();
    let over = n - power;
    if me >= power {
        steps.send(me - power, bytes);
        steps.receive(me - power, bytes);
        return;
    }
    if me < over {
        steps.receive(me + power, bytes);
    }
    let mut distance = 1;
    while distance < power {
        steps.both(me ^ distance, bytes, me ^ distance, bytes);
        distance <<= 1;
    }
    if me < over {
        steps.send(me + power, bytes);
    }
}

struct Steps<R> {
    ops: Vec<Op>,
    tag: u32,
    rank: R,
}

impl<R: Fn(u32) -> u32> Steps<R> {
    fn push(&mut self, to: Option<(u32, u64)>, from: Option<(u32, u64)>) {
        let rank = |end: Option<(u32, u64)>| end.map(|(index, bytes)| ((self.rank)(index), bytes));
        self.ops.push(Op::Exchange {
            to: rank(to),
            from: rank(from),
            tag: self.tag,
        });
    }

    fn send(&mut self, to: u32, bytes: u64) {
        self.push(Some((to, bytes)), None);
    }

    fn receive(&mut self, from: u32, bytes: u64) {
        self.push(None, Some((from, bytes)));
    }

    fn both(&mut self, to: u32, sent: u64, from: u32, received: u64) {
        self.push(Some((to, sent)), Some((from, received)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// What is under way from one rank to another: sizes, and what the sender knew.
    type Wires = BTreeMap<(u32, u32), Vec<(u64, Vec<bool>)>>;

    /// Runs the steps of all ranks until none can go on, with receives that block and sends that do not; answers which
    /// contributions each rank then knows.
    fn run(call: impl Fn(u32) -> Call, n: u32) -> Vec<Vec<bool>> {
        let scripts: Vec<Vec<Op>> = (0..n)
            .map(|me| call(me).steps(me, n, TAG, |index| index))
            .collect();
        let mut known: Vec<Vec<bool>> = (0..n)
            .map(|me| (0..n).map(|other| me == other).collect())
            .collect();
        let mut wires: Wires = BTreeMap::new();
        let (mut at, mut sent) = (vec![0; n as usize], vec![false; n as usize]);
        let mut moved = true;
        while moved {
            moved = false;
            for me in 0..n as usize {
                let Some(Op::Exchange { to, from, .. }) = scripts[me].get(at[me]) else {
                    continue;
                };
                if let (Some((to, bytes)), false) = (to, sent[me]) {
                    wires
                        .entry((me as u32, *to))
                        .or_default()
                        .push((*bytes, known[me].clone()));
                    sent[me] = true;
                }
                if let Some((from, bytes)) = from {
                    let wire = wires.entry((*from, me as u32)).or_default();
                    if wire.is_empty() {
                        continue;
                    }
                    let (size, what) = wire.remove(0);
                    assert_eq!(size, *bytes, "sizes of both ends agree");
                    for (mine, new) in known[me].iter_mut().zip(what) {
                        *mine |= new;
                    }
                }
                (at[me], sent[me], moved) = (at[me] + 1, false, true);
            }
        }
        assert!(
            at.iter()
                .zip(&scripts)
                .all(|(at, script)| *at == script.len()),
            "a rank hangs"
        );
        assert!(wires.values().all(Vec::is_empty), "messages are left over");
        known
    }

    #[test]
    fn everybody_learns_what_everybody_had() {
        for n in [1, 2, 3, 5, 8, 12, 13, 16] {
            for call in [
                Call::Barrier,
                Call::Allreduce { bytes: 8 },
                Call::Allreduce { bytes: 1 << 20 },
                Call::Allgather { bytes: 8 },
                Call::Alltoall { bytes: 8 },
                Call::Alltoall { bytes: 4096 },
                Call::ReduceScatter { bytes: 8 },
            ] {
                let known = run(|_| call.clone(), n);
                assert!(
                    known.iter().flatten().all(|known| *known),
                    "{call:?} of {n}"
                );
            }
        }
    }

    #[test]
    fn trees_reach_all_from_any_root() {
        for n in [2, 3, 7, 8, 11] {
            for root in 0..n {
                let down = run(|_| Call::Bcast { bytes: 8, root }, n);
                assert!(
                    down.iter().all(|known| known[root as usize]),
                    "bcast of {n} from {root}"
                );
                for call in [
                    Call::Reduce { bytes: 8, root },
                    Call::Gather { bytes: 8, root },
                ] {
                    let up = run(|_| call.clone(), n);
                    assert!(
                        up[root as usize].iter().all(|known| *known),
                        "{call:?} of {n}"
                    );
                }
            }
        }
    }

    #[test]
    fn sizes_of_an_alltoallv_are_each_pair_s_own() {
        let size = |from: u32, to: u32| u64::from(from * 10 + to);
        let call = |me: u32| Call::Alltoallv {
            send: (0..5).map(|peer| size(me, peer)).collect(),
            receive: (0..5).map(|peer| size(peer, me)).collect(),
        };
        assert!(run(call, 5).iter().flatten().all(|known| *known));
    }
}
