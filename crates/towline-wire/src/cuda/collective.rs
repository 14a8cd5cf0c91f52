//! Communicators and collectives in the words of `CollectiveMake` and `CollectiveRun`. Numbers of operations, types of data and results
//! are NCCL's own.

use crate::error::DecodeError;

/// Bytes of the id under which the ranks of a communicator find each other.
pub const ID_BYTES: usize = 128;
/// Words of such an id.
const ID_WORDS: usize = ID_BYTES / 8;
/// Most words of a configuration. NCCL 2.32 has 16.
pub const CONFIG_WORDS: usize = 64;
/// Most ids, and most ranks left out, of one member.
const LIST_LIMIT: usize = 1 << 16;
/// Words of an operation.
const OPERATION_WORDS: usize = 11;
/// Words that a member begins with.
const HEAD_WORDS: usize = 6;

/// A communicator to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The client's number for it.
    pub number: u64,
    /// The context that it is made in.
    pub context: u64,
    /// Its origin.
    pub origin: Origin,
    /// NCCL's configuration as the program gave it, without its pointers; empty where it gave none.
    pub config: Vec<u64>,
}

/// A communicator's origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Ranks that know an id meet.
    Join {
        /// The number of ranks.
        ranks: i32,
        /// This one's rank.
        rank: i32,
        /// The id; more than one where several ranks are met at.
        ids: Vec<[u8; ID_BYTES]>,
    },
    /// The ranks of one color of another communicator.
    Split {
        /// The client's number of the other.
        parent: u64,
        /// The color; negative for none, and then there is no communicator.
        color: i32,
        /// Ranks are in this order.
        key: i32,
    },
    /// The ranks of another communicator but for some.
    Shrink {
        /// The client's number of the other.
        parent: u64,
        /// Those that are left out.
        excluded: Vec<i32>,
        /// NCCL's flags.
        flags: i32,
    },
}

/// A collective, or one side of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Its kind.
    pub kind: Kind,
    /// The client's number of the communicator.
    pub communicator: u64,
    /// The client's number of the stream.
    pub stream: u64,
    /// Device memory that is read; 0 for `Recv`.
    pub send: u64,
    /// Device memory that is written; 0 for `Send`.
    pub receive: u64,
    /// The number of elements.
    pub count: u64,
    /// Their type.
    pub datatype: i32,
    /// Their reduction.
    pub reduction: i32,
    /// The root, or the other rank.
    pub root: i32,
    /// A factor of the rank's own data; `reduction` means nothing then, for what was multiplied is summed.
    pub factor: Option<Factor>,
}

/// A factor of type `datatype`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Factor {
    /// Its bits, as many as it has; those above mean nothing.
    Bits(u64),
    /// It lies in device memory, and is read when the operation runs.
    At(u64),
}

impl Factor {
    fn words(factor: Option<Self>) -> [u64; 2] {
        match factor {
            None => [0, 0],
            Some(Self::Bits(bits)) => [1, bits],
            Some(Self::At(address)) => [2, address],
        }
    }

    fn of(words: [u64; 2]) -> Result<Option<Self>, DecodeError> {
        let what = "the kind of a factor";
        match words {
            [0, _] => Ok(None),
            [1, bits] => Ok(Some(Self::Bits(bits))),
            [2, address] => Ok(Some(Self::At(address))),
            [value, _] => Err(DecodeError::BadValue { what, value }),
        }
    }
}

/// Kinds of [`Operation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Every rank gets the reduction of all.
    AllReduce,
    /// The root gets it.
    Reduce,
    /// Every rank gets the root's data.
    Broadcast,
    /// Every rank gets a part of the reduction.
    ReduceScatter,
    /// Every rank gets the data of all.
    AllGather,
    /// One rank's data goes to another.
    Send,
    /// Another rank's data comes.
    Recv,
    /// Every rank sends a part to every rank.
    AllToAll,
    /// The root gets the data of all.
    Gather,
    /// Every rank gets a part of the root's data.
    Scatter,
}

impl Kind {
    /// All kinds, by their numbers.
    pub const ALL: [Self; 10] = [
        Self::AllReduce,
        Self::Reduce,
        Self::Broadcast,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Send,
        Self::Recv,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
    ];
}

/// Takes words off their front.
struct Words<'a>(&'a [u64]);

impl Words<'_> {
    fn take(&mut self, count: usize) -> Result<&[u64], DecodeError> {
        let short = || DecodeError::Truncated {
            wanted: count * 8,
            left: self.0.len() * 8,
        };
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// As many as the next word says, with a limit.
    fn list(&mut self, limit: usize, words: usize) -> Result<&[u64], DecodeError> {
        let count = usize::try_from(self.take(1)?[0]).unwrap_or(usize::MAX);
        match count <= limit {
            true => self.take(count * words),
            false => Err(DecodeError::TooLong {
                what: "a list of a communicator's",
                len: count as u64,
                limit: limit as u64,
            }),
        }
    }
}

fn signed(word: u64) -> i32 {
    word as u32 as i32
}

fn unsigned(value: i32) -> u64 {
    u64::from(value as u32)
}

fn id_of(words: &[u64; ID_WORDS]) -> [u8; ID_BYTES] {
    let mut id = [0; ID_BYTES];
    for (bytes, word) in id.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    id
}

/// The words of `CollectiveMake`.
pub fn encode_members(members: &[Member]) -> Vec<u64> {
    let mut words = Vec::new();
    for member in members {
        let (kind, parent, first, second) = match &member.origin {
            Origin::Join { ranks, rank, .. } => (0, 0, *ranks, *rank),
            Origin::Split { parent, color, key } => (1, *parent, *color, *key),
            Origin::Shrink { parent, flags, .. } => (2, *parent, *flags, 0),
        };
        words.extend([kind, member.number, member.context, parent]);
        words.extend([unsigned(first), unsigned(second)]);
        words.push(member.config.len() as u64);
        words.extend(&member.config);
        match &member.origin {
            Origin::Join { ids, .. } => {
                words.push(ids.len() as u64);
                let of_ids = ids.iter().flat_map(|id| id.as_chunks::<8>().0);
                words.extend(of_ids.map(|bytes| u64::from_le_bytes(*bytes)));
            }
            Origin::Split { .. } => {}
            Origin::Shrink { excluded, .. } => {
                words.push(excluded.len() as u64);
                words.extend(excluded.iter().map(|rank| unsigned(*rank)));
            }
        }
    }
    words
}

/// The members that words of `CollectiveMake` describe.
pub fn decode_members(words: &[u64]) -> Result<Vec<Member>, DecodeError> {
    let mut words = Words(words);
    let mut members = Vec::new();
    while !words.0.is_empty() {
        let head = words.take(HEAD_WORDS)?;
        let (kind, number, context, parent) = (head[0], head[1], head[2], head[3]);
        let (first, second) = (signed(head[4]), signed(head[5]));
        let config = words.list(CONFIG_WORDS, 1)?.to_vec();
        let origin = match kind {
            0 => Origin::Join {
                ranks: first,
                rank: second,
                ids: {
                    let ids = words.list(LIST_LIMIT, ID_WORDS)?;
                    ids.as_chunks::<ID_WORDS>().0.iter().map(id_of).collect()
                },
            },
            1 => Origin::Split {
                parent,
                color: first,
                key: second,
            },
            2 => Origin::Shrink {
                parent,
                excluded: {
                    let excluded = words.list(LIST_LIMIT, 1)?;
                    excluded.iter().map(|rank| signed(*rank)).collect()
                },
                flags: first,
            },
            value => {
                let what = "the origin of a communicator";
                return Err(DecodeError::BadValue { what, value });
            }
        };
        members.push(Member {
            number,
            context,
            origin,
            config,
        });
    }
    Ok(members)
}

/// The words of `CollectiveRun`.
pub fn encode_operations(operations: &[Operation]) -> Vec<u64> {
    let words = operations.iter().flat_map(|operation| {
        let [factor, value] = Factor::words(operation.factor);
        [
            operation.kind as u64,
            operation.communicator,
            operation.stream,
            operation.send,
            operation.receive,
            operation.count,
            unsigned(operation.datatype),
            unsigned(operation.reduction),
            unsigned(operation.root),
            factor,
            value,
        ]
    });
    words.collect()
}

/// The operations that words of `CollectiveRun` describe.
pub fn decode_operations(words: &[u64]) -> Result<Vec<Operation>, DecodeError> {
    let (operations, rest) = words.as_chunks::<OPERATION_WORDS>();
    if !rest.is_empty() {
        return Err(DecodeError::Trailing(rest.len() * 8));
    }
    let operation = |words: &[u64; OPERATION_WORDS]| {
        let &[value, communicator, stream, send, receive, count, ..] = words;
        let kind = usize::try_from(value)
            .ok()
            .and_then(|kind| Kind::ALL.get(kind));
        let what = "the kind of a collective";
        Ok(Operation {
            kind: *kind.ok_or(DecodeError::BadValue { what, value })?,
            communicator,
            stream,
            send,
            receive,
            count,
            datatype: signed(words[6]),
            reduction: signed(words[7]),
            root: signed(words[8]),
            factor: Factor::of([words[9], words[10]])?,
        })
    };
    operations.iter().map(operation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Vec<Member> {
        let origins = [
            Origin::Join {
                ranks: 3,
                rank: 2,
                ids: vec![[7; ID_BYTES], std::array::from_fn(|at| at as u8)],
            },
            Origin::Split {
                parent: 5,
                color: -1,
                key: -7,
            },
            Origin::Shrink {
                parent: 5,
                excluded: vec![0, 2],
                flags: 1,
            },
        ];
        let member = |(number, origin)| Member {
            number,
            context: 9,
            origin,
            config: vec![1; number as usize],
        };
        (0..).zip(origins).map(member).collect()
    }

    #[test]
    fn members_survive_their_words() {
        let words = encode_members(&members());
        assert_eq!(decode_members(&words), Ok(members()));
    }

    #[test]
    fn cut_members_are_refused() {
        let first = encode_members(&members()[..1]).len();
        let words = encode_members(&members()[..1]);
        assert!((1..first).all(|cut| decode_members(&words[..cut]).is_err()));
    }

    #[test]
    fn operations_survive_their_words() {
        let factors = [None, Some(Factor::Bits(9)), Some(Factor::At(10))];
        let operations: Vec<_> = Kind::ALL
            .into_iter()
            .zip(factors.into_iter().cycle())
            .map(|(kind, factor)| Operation {
                kind,
                communicator: 1,
                stream: 2,
                send: 3,
                receive: 4,
                count: 5,
                datatype: 6,
                reduction: -7,
                root: 8,
                factor,
            })
            .collect();
        let mut words = encode_operations(&operations);
        assert_eq!(decode_operations(&words), Ok(operations));
        words.push(0);
        assert!(decode_operations(&words).is_err());
    }

    #[test]
    fn unknown_kinds_are_refused() {
        let mut words = [0; OPERATION_WORDS];
        words[0] = Kind::ALL.len() as u64;
        assert!(decode_operations(&words).is_err());
        words[0] = 0;
        assert!(decode_operations(&words).is_ok());
        words[9] = 3;
        assert!(decode_operations(&words).is_err());
        assert!(decode_members(&[3, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
