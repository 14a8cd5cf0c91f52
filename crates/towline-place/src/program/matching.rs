//! Whether sends and receives of a program fit together.

use std::collections::{HashMap, VecDeque};

use super::{Op, Program};
use crate::{Error, Result};

/// Sender, receiver, tag.
type Channel = (u32, u32, u32);

impl Program {
    /// Checks that every message that is sent is received, and gives receives the sizes that were sent: a trace may hold the size
    /// of the receiver's buffer.
    pub(crate) fn fit(&mut self) -> Result<()> {
        let ranks = self.ranks();
        let fail = |reason: String| Err(Error::Unmatched { ranks, reason });
        for part in [&mut self.start, &mut self.body] {
            let mut sent: HashMap<Channel, VecDeque<u64>> = HashMap::new();
            for (rank, ops) in (0..).zip(part.iter()) {
                for op in ops {
                    if let Op::Send { to, tag, bytes } | Op::Isend { to, tag, bytes } = op {
                        sent.entry((rank, *to, *tag)).or_default().push_back(*bytes);
                    }
                }
            }
            for (rank, ops) in (0..).zip(part.iter_mut()) {
                for op in ops {
                    if let Op::Recv { from, tag, bytes } | Op::Irecv { from, tag, bytes } = op {
                        let message = sent
                            .get_mut(&(*from, rank, *tag))
                            .and_then(VecDeque::pop_front);
                        match message {
                            Some(size) => *bytes = size,
                            None => {
                                return fail(format!(
                                    "rank {rank} receives more messages from rank {from} with tag {tag} than are sent"
                                ));
                            }
                        }
                    }
                }
            }
            let mut left: Vec<_> = sent.iter().filter(|(_, sizes)| !sizes.is_empty()).collect();
            left.sort_unstable_by_key(|(channel, _)| **channel);
            if let Some(((from, to, tag), sizes)) = left.first() {
                return fail(format!(
                    "{} messages from rank {from} to rank {to} with tag {tag} are never received",
                    sizes.len()
                ));
            }
        }
        self.fit_waits()?;
        self.fit_collectives()
    }

    /// Waits need a request. A wait for a message to oneself does not say for which end: it gets one that is open.
    fn fit_waits(&mut self) -> Result<()> {
        let ranks = self.ranks();
        for part in [&mut self.start, &mut self.body] {
            for (rank, ops) in (0..).zip(part.iter_mut()) {
                let mut open: HashMap<(u32, u32, bool), u64> = HashMap::new();
                for op in ops {
                    match op {
                        Op::Isend { to, tag, .. } => {
                            *open.entry((*to, *tag, true)).or_default() += 1
                        }
                        Op::Irecv { from, tag, .. } => {
                            *open.entry((*from, *tag, false)).or_default() += 1
                        }
                        Op::WaitAll => open.clear(),
                        Op::Wait { peer, tag, sent } => {
                            let is_open = |sent| {
                                open.get(&(*peer, *tag, sent))
                                    .is_some_and(|count| *count > 0)
                            };
                            if *peer == rank && !is_open(*sent) {
                                *sent = !*sent;
                            }
                            let count = open
                                .get_mut(&(*peer, *tag, *sent))
                                .filter(|count| **count > 0);
                            let Some(count) = count else {
                                return Err(Error::Unmatched {
                                    ranks,
                                    reason: format!(
                                        "rank {rank} waits for a request with rank {peer} and tag {tag} that it has not made"
                                    ),
                                });
                            };
                            *count -= 1;
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// All ranks call the same collectives of the communicator of all, with the same sizes.
    fn fit_collectives(&self) -> Result<()> {
        use super::collective::Call;
        for part in [&self.start, &self.body] {
            let of = |ops: &[Op]| -> Vec<Call> {
                let call = |op: &Op| match op {
                    Op::Collective {
                        call,
                        communicator: 0,
                    } => Some(call.clone()),
                    _ => None,
                };
                ops.iter().filter_map(call).collect()
            };
            let all: Vec<Vec<Call>> = part.iter().map(|ops| of(ops)).collect();
            let Some(first) = all.first() else { continue };
            for (rank, calls) in all.iter().enumerate() {
                let place =
                    (0..first.len().max(calls.len())).find(|&index| !agree(&all, rank, index));
                if let Some(index) = place {
                    return Err(Error::Unmatched {
                        ranks: self.ranks(),
                        reason: format!(
                            "collective {} of rank {rank} is {}, and of rank 0 {}",
                            index + 1,
                            name(calls.get(index)),
                            name(first.get(index))
                        ),
                    });
                }
            }
        }
        Ok(())
    }
}

fn agree(all: &[Vec<super::collective::Call>], rank: usize, index: usize) -> bool {
    use super::collective::Call::Alltoallv;
    match (all[0].get(index), all[rank].get(index)) {
        (Some(Alltoallv { .. }), Some(Alltoallv { receive, .. })) => (0..all.len()).all(|peer| {
            let theirs = match all[peer].get(index) {
                Some(Alltoallv { send, .. }) => send.get(rank),
                _ => None,
            };
            theirs == receive.get(peer)
        }),
        (first, mine) => first == mine,
    }
}

fn name(call: Option<&super::collective::Call>) -> String {
    call.map_or_else(
        || "none".to_owned(),
        |call| format!("{call:?}").chars().take(80).collect(),
    )
}
