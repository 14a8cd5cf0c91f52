//! The replay: SimGrid's time-independent trace, one file per rank.
//!
//! SimGrid replays messages by rank and tag, without communicators, and collectives on all ranks. So here
//!
//! - every message gets a tag of its own kind: made of its communicator, its tag, and how many there were before between the two
//!   ranks, so that no two that are under way are mistaken for each other;
//! - a receive from anywhere names the rank that it came from in the end;
//! - collectives on all ranks stay collectives, except those with unequal parts; all others become messages, by the algorithms of
//!   docs/placement.md. One that does not block takes place where it began.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use std::collections::BTreeMap;

use crate::collective::{self, Call, Part};
use crate::error::TraceError;
use crate::events::{Collective, Event, Events, Message, What};
use crate::raw::{self, Communicators, Counts, Group};
use crate::{RAW_FOLDER, REPLAY_FOLDER, REPLAY_LIST, ranks_as_text};

/// Tags of messages that collectives became: more than any tag of a program.
const COLLECTIVE_TAG: u64 = 1 << 40;
/// A tag in the replay is a kind of messages and a number within it.
const KIND_BITS: u32 = 18;
const NUMBER_BITS: u32 = 12;

/// Writes the files. Answers why the replay is not the whole program.
pub(crate) fn write(
    folder: &Path,
    counts: &BTreeMap<u32, Counts>,
    communicators: &Communicators,
    ranks: u32,
    flops_per_second: u64,
) -> Result<Vec<String>, TraceError> {
    let replay = folder.join(REPLAY_FOLDER);
    fs::create_dir_all(&replay).map_err(TraceError::io("create", &replay))?;
    let mut balance = Balance::default();
    let mut reasons = Vec::new();
    for counts in counts.values() {
        let rank = Rank {
            counts,
            communicators,
            ranks,
            flops_per_second,
        };
        let path = replay.join(format!("rank-{}.txt", counts.rank));
        let events = raw::path_of(&folder.join(RAW_FOLDER), counts.rank, "events");
        if let Some(reason) = rank.write(&path, &events, &mut balance)? {
            reasons.push(reason);
        }
    }
    let list = folder.join(REPLAY_LIST);
    let names: String = counts
        .keys()
        .map(|rank| format!("{REPLAY_FOLDER}/rank-{rank}.txt\n"))
        .collect();
    fs::write(&list, names).map_err(TraceError::io("write", &list))?;
    // Where ranks died, messages are missing anyhow.
    let whole = counts.len() == ranks as usize
        && counts
            .values()
            .all(|counts| counts.finished && counts.events_lost == 0);
    if whole {
        reasons.extend(balance.reason());
    }
    Ok(reasons)
}

/// Messages sent less messages received, by pair of ranks.
#[derive(Default)]
struct Balance(HashMap<(u32, u32), i64>);

impl Balance {
    fn add(&mut self, from: u32, to: u32, change: i64) {
        let sum = self.0.entry((from, to)).or_default();
        *sum = sum.saturating_add(change);
    }

    fn reason(&self) -> Option<String> {
        let mut senders: Vec<u32> = self
            .0
            .iter()
            .filter(|(_, sum)| **sum != 0)
            .map(|((from, _), _)| *from)
            .collect();
        senders.sort_unstable();
        senders.dedup();
        (!senders.is_empty()).then(|| {
            format!(
                "messages of {} were sent but not received, or the reverse",
                ranks_as_text(&senders)
            )
        })
    }
}

/// What a rank's files say.
struct Rank<'a> {
    counts: &'a Counts,
    communicators: &'a Communicators,
    ranks: u32,
    flops_per_second: u64,
}

/// Where a message from anywhere came from.
enum Fate {
    Came { peer: Option<u32>, tag: Option<u64> },
    Cancelled,
}

/// One of this rank's messages in a collective.
#[derive(Clone, Copy)]
struct Duty {
    round: usize,
    peer: u32,
    sends: bool,
    part: Part,
}

impl Rank<'_> {
    fn write(
        &self,
        path: &Path,
        events: &Path,
        balance: &mut Balance,
    ) -> Result<Option<String>, TraceError> {
        let file = File::create(path).map_err(TraceError::io("create", path))?;
        let mut lines = Lines {
            out: BufWriter::new(file),
            path: path.to_owned(),
            rank: self.counts.rank,
            flops_per_second: self.flops_per_second,
            pending_ns: 0,
            numbers: HashMap::new(),
            requests: HashMap::new(),
            plans: HashMap::new(),
        };
        lines.line("init")?;
        let mut seen_ns = 0u64;
        let mut reason = None;
        if self.counts.event_bytes > 0 {
            let fates = self.fates(events)?;
            for event in self.open(events)? {
                let event = match event {
                    Ok(event) => event,
                    Err(what) => {
                        reason = Some(format!("{} {what}", events.display()));
                        break;
                    }
                };
                seen_ns = seen_ns.saturating_add(event.compute_ns);
                lines.pending_ns = lines.pending_ns.saturating_add(event.compute_ns);
                self.event(&mut lines, event, &fates, balance)?;
            }
        }
        if self.counts.events_lost == 0 {
            let rest = self.counts.compute_ns.saturating_sub(seen_ns);
            lines.pending_ns = lines.pending_ns.saturating_add(rest);
        }
        lines.compute()?;
        lines.line("finalize")?;
        lines.out.flush().map_err(TraceError::io("write", path))?;
        Ok(reason)
    }

    fn open(&self, path: &Path) -> Result<Events<BufReader<impl Read + use<>>>, TraceError> {
        let file = File::open(path).map_err(TraceError::io("read", path))?;
        Ok(Events::new(BufReader::new(
            file.take(self.counts.event_bytes),
        )))
    }

    /// Of the requests for messages from anywhere, and of those that were cancelled.
    fn fates(&self, events: &Path) -> Result<HashMap<u64, Fate>, TraceError> {
        let mut fates = HashMap::new();
        for event in self.open(events)?.map_while(Result::ok) {
            match event.what {
                What::Cancelled { request } => drop(fates.insert(request, Fate::Cancelled)),
                What::Wait { request, peer, tag } if peer.is_some() => {
                    fates.insert(request, Fate::Came { peer, tag });
                }
                _ => {}
            }
        }
        Ok(fates)
    }

    fn event(
        &self,
        lines: &mut Lines,
        event: Event,
        fates: &HashMap<u64, Fate>,
        balance: &mut Balance,
    ) -> Result<(), TraceError> {
        let me = self.counts.rank;
        match event.what {
            What::Send(message) => {
                if let Some((peer, kind)) = self.address(message) {
                    balance.add(me, peer, 1);
                    lines.send(peer, kind, message.bytes)?;
                }
            }
            What::Recv(message) => {
                if let Some((peer, kind)) = self.address(message) {
                    balance.add(peer, me, -1);
                    lines.recv(peer, kind, message.bytes)?;
                }
            }
            What::Isend { request, message } => {
                if let Some((peer, kind)) = self.address(message) {
                    balance.add(me, peer, 1);
                    lines.isend(Some(request), peer, kind, message.bytes)?;
                }
            }
            What::Irecv {
                request,
                mut message,
            } => {
                match fates.get(&request) {
                    Some(Fate::Cancelled) => return Ok(()),
                    Some(Fate::Came { peer, tag }) => (message.peer, message.tag) = (*peer, *tag),
                    None => {}
                }
                if let Some((peer, kind)) = self.address(message) {
                    balance.add(peer, me, -1);
                    lines.irecv(request, peer, kind, message.bytes)?;
                }
            }
            What::Wait { request, .. } => lines.wait(request)?,
            What::Cancelled { .. } => {}
            What::Collective(collective) => self.collective(lines, &collective)?,
        }
        Ok(())
    }

    /// The peer of a message, and its kind: one number for its communicator and tag. None for what cannot be replayed.
    fn address(&self, message: Message) -> Option<(u32, u64)> {
        let peer = message.peer.filter(|&peer| peer < self.ranks)?;
        Some((peer, self.kind(message.communicator, message.tag?)?))
    }

    /// The same at all ranks of the communicator.
    fn kind(&self, communicator: u32, tag: u64) -> Option<u64> {
        let index = self
            .communicators
            .index_of(self.counts.rank, communicator)? as u64;
        Some(tag.wrapping_add(index.wrapping_mul(0x9e37_79b9)))
    }

    fn collective(&self, lines: &mut Lines, collective: &Collective) -> Result<(), TraceError> {
        let Some(group) = self
            .communicators
            .get(self.counts.rank, collective.communicator)
        else {
            return Ok(());
        };
        let Some(kind) = self.kind(collective.communicator, COLLECTIVE_TAG) else {
            return Ok(());
        };
        let Some(me) = group
            .ranks
            .iter()
            .position(|&rank| rank == self.counts.rank)
        else {
            return Ok(());
        };
        let is_world = group.ranks.len() == self.ranks as usize
            && (0..)
                .zip(&group.ranks)
                .all(|(rank, &member)| rank == member);
        if is_world && lines.native(collective)? {
            return Ok(());
        }
        match collective.call {
            Call::Gather | Call::Gatherv | Call::Scatter | Call::Scatterv => {
                self.rooted(lines, collective, group, kind)
            }
            Call::Alltoall => {
                let sizes = vec![collective.bytes; group.ranks.len()];
                lines.exchange(&group.ranks, me, kind, &sizes, &sizes, 0)
            }
            Call::Alltoallv | Call::Alltoallw => {
                let [sent, received] = &collective.sizes;
                lines.exchange(&group.ranks, me, kind, sent, received, 1)
            }
            call if call.is_direct() => lines.neighbours(kind, &collective.neighbours, self.ranks),
            _ => lines.planned(collective, group, me, kind),
        }
    }

    fn rooted(
        &self,
        lines: &mut Lines,
        collective: &Collective,
        group: &Group,
        kind: u64,
    ) -> Result<(), TraceError> {
        let Some(root) = collective.root else {
            return Ok(());
        };
        let gathers = matches!(collective.call, Call::Gather | Call::Gatherv);
        if root != self.counts.rank {
            return match gathers {
                true => lines.send(root, kind, collective.bytes),
                false => lines.recv(root, kind, collective.bytes),
            };
        }
        for (place, &member) in group.ranks.iter().enumerate() {
            if member == root || member >= self.ranks {
                continue;
            }
            let bytes = collective.sizes[0]
                .get(place)
                .copied()
                .unwrap_or(collective.bytes);
            match gathers {
                true => lines.recv(member, kind, bytes)?,
                false => lines.send(member, kind, bytes)?,
            }
        }
        Ok(())
    }
}

/// A rank's file while it is written.
struct Lines {
    out: BufWriter<File>,
    path: PathBuf,
    rank: u32,
    flops_per_second: u64,
    /// Since the last line.
    pending_ns: u64,
    /// Messages so far by peer, kind, and whether they were sent.
    numbers: HashMap<(u32, u64, bool), u64>,
    /// Source, target and tag of what is under way.
    requests: HashMap<u64, (u32, u32, u64)>,
    /// This rank's messages in collectives, by communicator, call and root.
    plans: HashMap<(u32, Call, Option<u32>), Vec<Duty>>,
}

impl Lines {
    fn line(&mut self, action: impl std::fmt::Display) -> Result<(), TraceError> {
        writeln!(self.out, "{} {action}", self.rank).map_err(TraceError::io("write", &self.path))
    }

    /// What was computed since the last line, as a line.
    fn compute(&mut self) -> Result<(), TraceError> {
        let flops = u128::from(self.pending_ns) * u128::from(self.flops_per_second) / 1_000_000_000;
        self.pending_ns = 0;
        match flops {
            0 => Ok(()),
            flops => self.line(format_args!("compute {flops}")),
        }
    }

    /// The tag of the next message to or from a peer: the same at both, since messages of a kind stay in order.
    fn tag(&mut self, peer: u32, kind: u64, sends: bool) -> u64 {
        let number = self.numbers.entry((peer, kind, sends)).or_default();
        let tag =
            (mixed(kind) >> (64 - KIND_BITS)) << NUMBER_BITS | (*number & ((1 << NUMBER_BITS) - 1));
        *number = number.wrapping_add(1);
        tag
    }

    fn send(&mut self, to: u32, kind: u64, bytes: u64) -> Result<(), TraceError> {
        self.compute()?;
        let tag = self.tag(to, kind, true);
        self.line(format_args!("send {to} {tag} {}", Size(bytes)))
    }

    fn recv(&mut self, from: u32, kind: u64, bytes: u64) -> Result<(), TraceError> {
        self.compute()?;
        let tag = self.tag(from, kind, false);
        self.line(format_args!("recv {from} {tag} {}", Size(bytes.max(1))))
    }

    /// Answers what waits for it; with a request, also remembers it.
    fn isend(
        &mut self,
        request: Option<u64>,
        to: u32,
        kind: u64,
        bytes: u64,
    ) -> Result<(u32, u32, u64), TraceError> {
        self.compute()?;
        let tag = self.tag(to, kind, true);
        let key = (self.rank, to, tag);
        if let Some(request) = request {
            self.requests.insert(request, key);
        }
        self.line(format_args!("isend {to} {tag} {}", Size(bytes)))?;
        Ok(key)
    }

    /// SimGrid would look for a message before it receives nothing, and so wait for it: there is always a byte.
    fn irecv(&mut self, request: u64, from: u32, kind: u64, bytes: u64) -> Result<(), TraceError> {
        self.compute()?;
        let tag = self.tag(from, kind, false);
        self.requests.insert(request, (from, self.rank, tag));
        self.line(format_args!("irecv {from} {tag} {}", Size(bytes.max(1))))
    }

    fn wait(&mut self, request: u64) -> Result<(), TraceError> {
        match self.requests.remove(&request) {
            Some(key) => {
                self.compute()?;
                self.wait_for(key)
            }
            None => Ok(()),
        }
    }

    fn wait_for(&mut self, (from, to, tag): (u32, u32, u64)) -> Result<(), TraceError> {
        self.line(format_args!("wait {from} {to} {tag}"))
    }

    /// A collective on all ranks as SimGrid has it. False for those with unequal parts, whose replay it does not survive.
    fn native(&mut self, collective: &Collective) -> Result<bool, TraceError> {
        let (size, root) = (Size(collective.bytes), collective.root.unwrap_or(0));
        let (count, types) = (size.count(), size.type_suffix());
        let both = if types.is_empty() {
            String::new()
        } else {
            format!("{types}{types}")
        };
        let line = match collective.call {
            Call::Barrier => "barrier".to_owned(),
            Call::Bcast => format!("bcast {count} {root}{types}"),
            Call::Reduce => format!("reduce {count} 0 {root}{types}"),
            Call::Allreduce => format!("allreduce {count} 0{types}"),
            Call::Allgather => format!("allgather {count} {count}{both}"),
            Call::Alltoall => format!("alltoall {count} {count}{both}"),
            Call::Gather => format!("gather {count} {count} {root}{both}"),
            Call::Scatter => format!("scatter {count} {count} {root}{both}"),
            _ => return Ok(false),
        };
        self.compute()?;
        self.line(line)?;
        Ok(true)
    }

    /// Everyone with everyone, in rounds. Messages of less than `least` bytes are not sent.
    fn exchange(
        &mut self,
        members: &[u32],
        me: usize,
        kind: u64,
        sent: &[u64],
        received: &[u64],
        least: u64,
    ) -> Result<(), TraceError> {
        let size = members.len();
        for distance in 1..size {
            let (to, from) = ((me + distance) % size, (me + size - distance) % size);
            let outgoing = sent.get(to).copied().unwrap_or(0);
            let incoming = received.get(from).copied().unwrap_or(0);
            let (Some(&to), Some(&from)) = (members.get(to), members.get(from)) else {
                continue;
            };
            let under_way = match outgoing >= least && to != u32::MAX {
                true => Some(self.isend(None, to, kind, outgoing)?),
                false => None,
            };
            if incoming >= least && from != u32::MAX {
                self.recv(from, kind, incoming)?;
            }
            if let Some(key) = under_way {
                self.wait_for(key)?;
            }
        }
        Ok(())
    }

    fn neighbours(
        &mut self,
        kind: u64,
        lists: &[Vec<(Option<u32>, u64)>; 2],
        ranks: u32,
    ) -> Result<(), TraceError> {
        let [to, from] = lists;
        let known = |peer: &Option<u32>| peer.filter(|&peer| peer < ranks);
        let mut under_way = Vec::new();
        for (peer, bytes) in to {
            if let Some(peer) = known(peer) {
                under_way.push(self.isend(None, peer, kind, *bytes)?);
            }
        }
        for (peer, bytes) in from {
            if let Some(peer) = known(peer) {
                self.recv(peer, kind, *bytes)?;
            }
        }
        under_way.into_iter().try_for_each(|key| self.wait_for(key))
    }

    /// By the usual algorithm, round after round.
    fn planned(
        &mut self,
        collective: &Collective,
        group: &Group,
        me: usize,
        kind: u64,
    ) -> Result<(), TraceError> {
        let key = (collective.communicator, collective.call, collective.root);
        let plan = match self.plans.remove(&key) {
            Some(plan) => plan,
            None => plan(collective, group, me),
        };
        let share = |member: usize| match collective.call {
            Call::Allgatherv | Call::ReduceScatter => {
                collective.sizes[0].get(member).copied().unwrap_or(0)
            }
            _ => collective.bytes,
        };
        for round in plan.chunk_by(|left, right| left.round == right.round) {
            let mut under_way = Vec::new();
            let bytes_of = |step: &Duty| match step.part {
                Part::Nothing => 0,
                Part::Whole => collective.bytes,
                Part::Of(member) => share(member),
            };
            for step in round.iter().filter(|step| step.sends) {
                under_way.push(self.isend(None, step.peer, kind, bytes_of(step))?);
            }
            for step in round.iter().filter(|step| !step.sends) {
                self.recv(step.peer, kind, bytes_of(step))?;
            }
            under_way
                .into_iter()
                .try_for_each(|key| self.wait_for(key))?;
        }
        self.plans.insert(key, plan);
        Ok(())
    }
}

/// What of a collective is this member's to do.
fn plan(collective: &Collective, group: &Group, me: usize) -> Vec<Duty> {
    let root = collective
        .root
        .and_then(|root| group.ranks.iter().position(|&rank| rank == root))
        .unwrap_or(0);
    collective::steps(collective.call, group.ranks.len(), root)
        .into_iter()
        .filter(|step| step.from == me || step.to == me)
        .filter_map(|step| {
            let sends = step.from == me;
            let peer = *group.ranks.get(if sends { step.to } else { step.from })?;
            (peer != u32::MAX).then_some(Duty {
                round: step.round,
                peer,
                sends,
                part: step.part,
            })
        })
        .collect()
}

/// Spreads the bits of a number over all 64 (the finaliser of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Bytes, or doubles where there are more bytes than SimGrid can count.
struct Size(u64);

impl Size {
    fn fits(&self) -> bool {
        i32::try_from(self.0).is_ok()
    }

    fn count(&self) -> u64 {
        if self.fits() {
            self.0
        } else {
            self.0.div_ceil(8)
        }
    }

    /// SimGrid's number for a double; nothing is a byte.
    fn type_suffix(&self) -> &'static str {
        if self.fits() { "" } else { " 0" }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.count(), self.type_suffix())
    }
}
