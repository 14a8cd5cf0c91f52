//! The files of `raw/`, as `pmpi/record.h` lays them out. Little-endian.
//!
//! ```text
//! rank-N.counts   head (4096 bytes): "TWLCOUNT", u32 version, rank, ranks, state, notes, slots; u64 seconds_ns, compute_ns,
//!                 mpi_ns, calls, events, events_lost, event_bytes; host[64], program[256], mpi[128], each up to a NUL.
//!                 Then per rank 8 u64: messages and bytes sent, put, got, and sent within direct collectives.
//!                 Then `slots` times u32 used, communicator, call, i32 root; u64 calls, bytes.
//! rank-N.comms    records of u32 words: how many words, id, ordinal, whether it has two groups, both sizes, both groups' ranks
//! rank-N.events   see events.rs
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::collective::Call;
use crate::error::TraceError;

const MAGIC: &[u8; 8] = b"TWLCOUNT";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 4096;
const PAIR_BYTES: usize = 64;
const SLOT_BYTES: usize = 32;
/// More ranks than any machine has; bounds what a file can make us allocate.
const MOST_RANKS: u32 = 1 << 20;
const MOST_SLOTS: u32 = 1 << 16;
/// A rank's communicators: 65536 of 512 ranks.
const MOST_COMMUNICATOR_WORDS: u64 = 1 << 26;
const STATE_FINALIZED: u32 = 2;

/// What makes a trace incomplete.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Notes(u32);

impl Notes {
    /// Each bit, and what it means for the replay.
    pub(crate) const REASONS: [(Self, &'static str); 8] = [
        (Self(1), "one-sided communication cannot be replayed"),
        (Self(2), "processes outside of MPI_COMM_WORLD took part"),
        (
            Self(4),
            "several threads called MPI, and their events are mixed",
        ),
        (Self(8), "the limit for events was reached"),
        (Self(16), "events could not be written"),
        (
            Self(32),
            "there were more communicators or kinds of collectives than are recorded",
        ),
        (
            Self(64),
            "collectives between two groups cannot be replayed",
        ),
        (Self(128), "calls were used that are not recorded"),
    ];

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// What one rank did to one other.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct PairCounts {
    pub(crate) sent: (u64, u64),
    pub(crate) put: (u64, u64),
    pub(crate) got: (u64, u64),
    pub(crate) direct: (u64, u64),
}

/// One kind of collective on one communicator, as one rank saw it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CollectiveCounts {
    pub(crate) communicator: u32,
    pub(crate) call: Call,
    pub(crate) root: Option<u32>,
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
}

/// A `rank-N.counts`.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) finished: bool,
    pub(crate) notes: Notes,
    pub(crate) seconds_ns: u64,
    pub(crate) compute_ns: u64,
    pub(crate) mpi_ns: u64,
    pub(crate) calls: u64,
    pub(crate) events: u64,
    pub(crate) events_lost: u64,
    pub(crate) event_bytes: u64,
    pub(crate) host: String,
    pub(crate) program: String,
    pub(crate) mpi: String,
    pub(crate) pairs: Vec<PairCounts>,
    pub(crate) collectives: Vec<CollectiveCounts>,
}

pub(crate) fn path_of(folder: &Path, rank: u32, kind: &str) -> PathBuf {
    folder.join(format!("rank-{rank}.{kind}"))
}

/// Reads the counters of all ranks. Those that are damaged, or of another run, are left out and named in `damaged`.
pub(crate) fn read_all(
    folder: &Path,
    damaged: &mut Vec<String>,
) -> Result<BTreeMap<u32, Counts>, TraceError> {
    let mut found = BTreeMap::new();
    let entries = fs::read_dir(folder).map_err(TraceError::io("read", folder))?;
    for entry in entries {
        let entry = entry.map_err(TraceError::io("read", folder))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| {
            name.strip_prefix("rank-")?
                .strip_suffix(".counts")?
                .parse::<u32>()
                .ok()
        });
        let Some(rank) = number else { continue };
        match read_counts(&entry.path(), rank) {
            Ok(Some(counts)) => drop(found.insert(rank, counts)),
            // The rank ended before it had written anything.
            Ok(None) => {}
            Err(error) => damaged.push(error.to_string()),
        }
    }
    let ranks = found.values().map(|counts| counts.ranks).max().unwrap_or(0);
    found.retain(|rank, counts| {
        let fits = counts.ranks == ranks;
        if !fits {
            damaged.push(format!(
                "rank {rank} speaks of {} ranks, others of {ranks}",
                counts.ranks
            ));
        }
        fits
    });
    if found.is_empty() && damaged.is_empty() {
        return Err(TraceError::Nothing {
            path: folder.to_owned(),
        });
    }
    Ok(found)
}

/// None for a file without the mark that its head is complete.
fn read_counts(path: &Path, rank: u32) -> Result<Option<Counts>, TraceError> {
    let most = HEAD_BYTES + MOST_RANKS as usize * PAIR_BYTES + MOST_SLOTS as usize * SLOT_BYTES;
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes))
        .map_err(TraceError::io("read", path))?;
    if bytes.get(..8).is_none_or(|magic| magic == [0; 8]) {
        return Ok(None);
    }
    parse_counts(&bytes, rank)
        .map(Some)
        .map_err(|what| TraceError::damaged(path, what))
}

/// Takes fields off the front of a slice.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("it is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_le_bytes(
            bytes.try_into().map_err(|_| "it is cut off")?,
        ))
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        let bytes = self.bytes(8)?;
        Ok(u64::from_le_bytes(
            bytes.try_into().map_err(|_| "it is cut off")?,
        ))
    }

    fn pair(&mut self) -> Result<(u64, u64), &'static str> {
        Ok((self.u64()?, self.u64()?))
    }

    fn text(&mut self, count: usize) -> Result<String, &'static str> {
        let bytes = self.bytes(count)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(count);
        let bytes = bytes.get(..end).unwrap_or_default();
        Ok(String::from_utf8_lossy(bytes).replace(char::is_control, "?"))
    }
}

pub(crate) fn parse_counts(bytes: &[u8], rank: u32) -> Result<Counts, &'static str> {
    let mut fields = Fields(bytes);
    let mut head = Fields(fields.bytes(HEAD_BYTES)?);
    if head.bytes(8)? != MAGIC {
        return Err("it does not begin as such a file does");
    }
    if head.u32()? != VERSION {
        return Err("it was written by another version of the library");
    }
    if head.u32()? != rank {
        return Err("it is of another rank than its name says");
    }
    let ranks = head.u32()?;
    if ranks > MOST_RANKS || rank >= ranks {
        return Err("its number of ranks is impossible");
    }
    let finished = head.u32()? == STATE_FINALIZED;
    let notes = Notes(head.u32()?);
    let slots = head.u32()?;
    if slots > MOST_SLOTS {
        return Err("its table is impossibly large");
    }
    let mut counts = Counts {
        rank,
        ranks,
        finished,
        notes,
        seconds_ns: head.u64()?,
        compute_ns: head.u64()?,
        mpi_ns: head.u64()?,
        calls: head.u64()?,
        events: head.u64()?,
        events_lost: head.u64()?,
        event_bytes: head.u64()?,
        host: head.text(64)?,
        program: head.text(256)?,
        mpi: head.text(128)?,
        pairs: Vec::new(),
        collectives: Vec::new(),
    };
    for _ in 0..ranks {
        counts.pairs.push(PairCounts {
            sent: fields.pair()?,
            put: fields.pair()?,
            got: fields.pair()?,
            direct: fields.pair()?,
        });
    }
    for _ in 0..slots {
        let used = fields.u32()?;
        let communicator = fields.u32()?;
        let call = fields.u32()?;
        let root = fields.u32()?;
        let (calls, bytes) = fields.pair()?;
        if used != 0 {
            counts.collectives.push(CollectiveCounts {
                communicator,
                call: Call::from_number(u64::from(call)).ok_or("it has an unknown collective")?,
                root: (root < ranks).then_some(root),
                calls,
                bytes,
            });
        }
    }
    Ok(counts)
}

/// A communicator as all of its ranks see it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Group {
    /// In the order of their ranks in the communicator. One that lies outside of `MPI_COMM_WORLD` is `u32::MAX`.
    pub(crate) ranks: Vec<u32>,
    /// Of the other group, where there are two.
    pub(crate) remote: Option<Vec<u32>>,
    /// How many communicators with these ranks there were before.
    pub(crate) ordinal: u32,
}

/// The communicators of all ranks, each once.
#[derive(Debug, Default)]
pub(crate) struct Communicators {
    pub(crate) groups: Vec<Group>,
    known: HashMap<Group, usize>,
    /// By rank and by the rank's own number.
    of_ranks: HashMap<(u32, u32), usize>,
}

impl Communicators {
    /// Where in `groups` the communicator is that `rank` calls `id`.
    pub(crate) fn index_of(&self, rank: u32, id: u32) -> Option<usize> {
        self.of_ranks.get(&(rank, id)).copied()
    }

    pub(crate) fn get(&self, rank: u32, id: u32) -> Option<&Group> {
        self.groups.get(self.index_of(rank, id)?)
    }

    /// Reads `rank-N.comms`. What comes before a damage is kept.
    pub(crate) fn read(&mut self, folder: &Path, rank: u32, ranks: u32) -> Result<(), TraceError> {
        let path = path_of(folder, rank, "comms");
        let file = File::open(&path).map_err(TraceError::io("read", &path))?;
        self.read_from(BufReader::new(file), &path, rank, ranks)
    }

    /// The same from anywhere; `path` is what errors name.
    pub(crate) fn read_from(
        &mut self,
        input: impl Read,
        path: &Path,
        rank: u32,
        ranks: u32,
    ) -> Result<(), TraceError> {
        let mut words = Words {
            input,
            left: MOST_COMMUNICATOR_WORDS,
        };
        while let Some(length) = words.next(path)? {
            let id = words.expect(path)?;
            let ordinal = words.expect(path)?;
            let inter = words.expect(path)? != 0;
            let sizes = [words.expect(path)?, words.expect(path)?];
            let expected = 6 + u64::from(sizes[0]) + u64::from(sizes[1]);
            if u64::from(length) != expected
                || sizes.iter().any(|&size| size > ranks.saturating_mul(2))
            {
                return Err(TraceError::damaged(
                    path,
                    "a communicator's size is impossible",
                ));
            }
            let mut lists = [Vec::new(), Vec::new()];
            for (list, size) in lists.iter_mut().zip(sizes) {
                for _ in 0..size {
                    let member = words.expect(path)?;
                    list.push(if member < ranks { member } else { u32::MAX });
                }
            }
            let [members, remote] = lists;
            self.add(rank, id, members, inter.then_some(remote), ordinal);
        }
        Ok(())
    }

    fn add(&mut self, rank: u32, id: u32, ranks: Vec<u32>, remote: Option<Vec<u32>>, ordinal: u32) {
        let group = Group {
            ranks,
            remote,
            ordinal,
        };
        let next = self.groups.len();
        let index = *self.known.entry(group.clone()).or_insert(next);
        if index == next {
            self.groups.push(group);
        }
        self.of_ranks.insert((rank, id), index);
    }
}

struct Words<R> {
    input: R,
    left: u64,
}

impl<R: Read> Words<R> {
    /// None at the end of the file. A word that is cut off counts as the end: its writer was killed.
    fn next(&mut self, path: &Path) -> Result<Option<u32>, TraceError> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| TraceError::damaged(path, "it is too long"))?;
        let mut bytes = [0; 4];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => Ok(Some(u32::from_le_bytes(bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(TraceError::io("read", path)(error)),
        }
    }

    fn expect(&mut self, path: &Path) -> Result<u32, TraceError> {
        self.next(path)?
            .ok_or_else(|| TraceError::damaged(path, "it is cut off within a communicator"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The counters of rank 1 of 2, which sent 3 messages of 30 bytes to rank 0, with one collective.
    fn counts() -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for word in [VERSION, 1, 2, STATE_FINALIZED, 0, 1] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.resize(HEAD_BYTES, 0);
        for number in [3u64, 30, 0, 0, 0, 0, 0, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([0; PAIR_BYTES]);
        for word in [1u32, 0, 3, u32::MAX] {
            bytes.extend(word.to_le_bytes());
        }
        for number in [7u64, 56] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn counters_are_read_as_they_lie() {
        let counts = parse_counts(&counts(), 1).unwrap();
        assert!(counts.finished);
        assert_eq!(counts.pairs[0].sent, (3, 30));
        assert_eq!(
            counts.collectives,
            [CollectiveCounts {
                communicator: 0,
                call: Call::Allreduce,
                root: None,
                calls: 7,
                bytes: 56
            }]
        );
    }

    #[test]
    fn counters_under_another_ranks_name_are_refused() {
        assert_eq!(
            parse_counts(&counts(), 0).err(),
            Some("it is of another rank than its name says")
        );
    }

    #[test]
    fn a_communicator_of_impossible_size_is_refused_before_its_ranks_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let words = [u32::MAX, 0, 0, 0, u32::MAX, 0];
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        fs::write(path_of(folder.path(), 0, "comms"), bytes).unwrap();
        let error = Communicators::default()
            .read(folder.path(), 0, 4)
            .unwrap_err();
        assert!(error.to_string().contains("impossible"), "{error}");
    }

    proptest! {
        #[test]
        fn no_damage_to_counters_makes_the_reader_panic(
            damages in proptest::collection::vec((0..4400usize, any::<u8>()), 0..20),
            length in 0..5000usize,
        ) {
            let mut bytes = counts();
            bytes.truncate(length);
            for (at, value) in damages {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            let _ = parse_counts(&bytes, 1);
        }

        #[test]
        fn no_bytes_make_the_reader_of_communicators_panic(words in proptest::collection::vec(0..20u32, 0..60)) {
            let folder = tempfile::tempdir().unwrap();
            let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
            fs::write(path_of(folder.path(), 0, "comms"), bytes).unwrap();
            let _ = Communicators::default().read(folder.path(), 0, 8);
        }
    }
}
