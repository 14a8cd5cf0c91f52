//! Calls that belong together: between `ncclGroupStart` and `ncclGroupEnd` they are kept, and sent as one. A call outside is a group of its
//! own.

use std::cell::RefCell;
use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_backend::nccl::{Factor, result};
use towline_client::cuda::{Actor, Session};
use towline_wire::cuda::collective::{
    Kind, Member, Operation, Origin, encode_members, encode_operations,
};

use super::communicator::{Communicator, of_cuda, of_session};
use crate::driver::{Acting, Driver, process};
use crate::graph::{Captured, Content, OnStream};

/// The way in which a communicator ends at once, in the words of `CollectiveEnd`.
pub(super) const ABORT: u32 = 2;

/// A communicator that the group is to make.
pub(super) struct Making {
    pub(super) communicator: Arc<Communicator>,
    /// The one that it is made of.
    pub(super) parent: Option<Arc<Communicator>>,
    pub(super) origin: Origin,
    pub(super) config: Vec<u64>,
    /// The program's place for its handle, which is taken back if it does not come about.
    pub(super) place: Place,
}

/// A place of the program's for a communicator's handle.
#[derive(Clone, Copy)]
pub(super) struct Place(pub(super) *mut *mut std::ffi::c_void);

impl Place {
    pub(super) fn set(self, number: u64) {
        let handle = std::ptr::without_provenance_mut(number as usize);
        // SAFETY: the program's contract: the place of a handle is writable until its group has ended.
        unsafe { self.0.write(handle) };
    }
}

/// An operation, and the stream as the program names it.
pub(super) struct Enqueued {
    pub(super) communicator: Arc<Communicator>,
    pub(super) stream: CUstream,
    pub(super) operation: Operation,
}

/// A call for a communicator that may wait for other ranks: it gives a handle where it has a place for one.
pub(super) struct Later {
    pub(super) call: Box<dyn FnOnce() -> Result<u64, i32> + Send>,
    pub(super) place: Option<Place>,
    /// It ends a communicator, which the program can do once: it is made whatever becomes of the group.
    pub(super) ends: bool,
}

/// The calling thread's group.
#[derive(Default)]
struct Group {
    depth: u32,
    /// The first call that failed in it.
    failed: i32,
    making: Vec<Making>,
    operations: Vec<Enqueued>,
    later: Vec<Later>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Begins a group, or one within it.
pub(super) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// Ends a group: the outermost is sent.
pub(super) fn end() -> Result<(), i32> {
    let group = GROUP.with_borrow_mut(|group| match group.depth {
        0 => Err(result::INVALID_USAGE),
        1 => Ok(Some(std::mem::take(group))),
        _ => {
            group.depth -= 1;
            Ok(None)
        }
    });
    let Some(group) = group? else { return Ok(()) };
    let (driver, mut later) = (process(), group.later);
    let outcome = match group.failed {
        result::SUCCESS => driver.send_all(group.making, group.operations),
        failed => {
            let unmade = group.making.iter();
            unmade.for_each(|making| drop_unmade(driver, making));
            Err(failed)
        }
    };
    if !matches!(outcome, Ok(()) | Err(result::IN_PROGRESS)) {
        later.retain(|later| later.ends);
    }
    worse(outcome, run_all(later))
}

/// The outcome of two: a failure before what is in progress, and the first before the second.
fn worse(one: Result<(), i32>, other: Result<(), i32>) -> Result<(), i32> {
    match (one, other) {
        (Err(result::IN_PROGRESS), Err(_)) | (Ok(()), _) => other,
        _ => one,
    }
}

/// Makes calls that may wait for each other, at once.
fn run_all(later: Vec<Later>) -> Result<(), i32> {
    let (calls, places): (Vec<_>, Vec<_>) = later
        .into_iter()
        .map(|later| (later.call, later.place))
        .unzip();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let mut calls = calls.into_iter();
        let first = calls.next();
        let others: Vec<_> = calls.map(|call| scope.spawn(call)).collect();
        let first = first.map(|call| call());
        let others = others
            .into_iter()
            .map(|other| other.join().unwrap_or(Err(result::INTERNAL_ERROR)));
        first.into_iter().chain(others).collect()
    });
    let mut all = Ok(());
    for (outcome, place) in outcomes.into_iter().zip(places) {
        if let (Ok(handle), Some(place)) = (outcome, place) {
            place.set(handle);
        }
        all = worse(all, outcome.map(drop));
    }
    all
}

/// Drops the group that is open, with what was kept but ends of communicators.
pub(super) fn drop_open() {
    let mut group = GROUP.take();
    let driver = process();
    group
        .making
        .iter()
        .for_each(|making| drop_unmade(driver, making));
    group.later.retain(|later| later.ends);
    let _ = run_all(group.later);
}

/// Runs a call that belongs to a group: a failure is the group's too.
pub(super) fn within(call: impl FnOnce() -> Result<(), i32>) -> i32 {
    start();
    let outcome = call();
    let failed = outcome.err().unwrap_or(result::SUCCESS);
    GROUP.with_borrow_mut(|group| {
        if group.failed == result::SUCCESS && failed != result::IN_PROGRESS {
            group.failed = failed;
        }
    });
    let ended = end().err().unwrap_or(result::SUCCESS);
    match failed {
        result::SUCCESS => ended,
        failed => failed,
    }
}

/// Keeps a communicator that is to be made.
pub(super) fn make(making: Making) {
    GROUP.with_borrow_mut(|group| group.making.push(making));
}

/// Keeps an operation.
pub(super) fn enqueue(operation: Enqueued) {
    GROUP.with_borrow_mut(|group| group.operations.push(operation));
}

/// Keeps a call that may wait for other ranks.
pub(super) fn later(later: Later) {
    GROUP.with_borrow_mut(|group| group.later.push(later));
}

fn drop_unmade(driver: &Driver, making: &Making) {
    making.place.set(0);
    driver.forget_communicator(making.communicator.number);
}

/// A request to one server to make communicators: its session, who asks, and for which.
struct Asked {
    session: Arc<Session>,
    actor: Actor,
    members: Vec<Member>,
    communicators: Vec<Arc<Communicator>>,
}

impl Asked {
    /// Has the server make them, and waits.
    fn make(&self) -> Result<(), i32> {
        let words = encode_members(&self.members);
        let request = wire::CollectiveMake {
            count: words.len() as u32,
            words: wire::List::Values(&words),
            room: 2 * self.members.len() as u32,
        };
        let asked = self.session.call(self.actor, "ncclCommInitRank", &request);
        let outcome = asked
            .map_err(|_| of_session(&self.session))
            .and_then(|body| {
                let reply = wire::CollectiveMakeReply::decode(&body).ok();
                let parts = reply.and_then(|reply| Some((reply.result?, reply.facts?)));
                let (outcome, facts) = parts.ok_or(result::INTERNAL_ERROR)?;
                match outcome {
                    result::SUCCESS => Ok(facts.iter().collect::<Vec<i32>>()),
                    failed => Err(failed),
                }
            });
        for (number, communicator) in self.communicators.iter().enumerate() {
            let facts = outcome.as_ref().map_err(|failed| *failed);
            communicator.settle(facts.and_then(|facts| match facts.get(2 * number..) {
                Some(&[rank, ranks, ..]) => Ok((rank, ranks)),
                _ => Err(result::INTERNAL_ERROR),
            }));
        }
        self.abort(Communicator::is_given_up);
        outcome
            .map(drop)
            .map_err(|failed| process().note_collective_failure(&self.session, self.actor, failed))
    }

    /// Makes them where nobody waits for that; their states tell.
    fn make_unwatched(&self, parents: &[Arc<Communicator>]) {
        let _ = self.make();
        for communicator in &self.communicators {
            // One of no color has no handle that the program could end it by.
            if communicator.facts().is_ok_and(|(rank, _)| rank < 0) {
                process().forget_communicator(communicator.number);
            }
        }
        parents.iter().for_each(|parent| parent.parent(false));
    }

    /// Ends what was made, and is not wanted after all.
    fn abort(&self, is_unwanted: impl Fn(&Communicator) -> bool) {
        let made = self
            .communicators
            .iter()
            .filter(|made| made.state() == result::SUCCESS && is_unwanted(made));
        for communicator in made {
            let request = wire::CollectiveEnd {
                communicator: communicator.number,
                how: ABORT,
            };
            // It may be that none came about.
            let _ = self.session.call(self.actor, "ncclCommAbort", &request);
        }
    }
}

/// A group's operations in one capture, each with the context of its stream.
struct Gathered<'a> {
    streams: Vec<Captured<'a>>,
    operations: Vec<(u64, Operation)>,
}

impl Gathered<'_> {
    /// Adds them to the graph: those of a context are one node.
    fn add(self) -> Result<(), CUresult> {
        let mut by_context: Vec<(u64, Vec<Operation>)> = Vec::new();
        for (context, operation) in self.operations {
            match by_context.iter_mut().find(|(of, _)| *of == context) {
                Some((_, operations)) => operations.push(operation),
                None => by_context.push((context, vec![operation])),
            }
        }
        let contents = by_context.into_iter().map(|(context, operations)| {
            let communicators = operations.iter().map(|operation| operation.communicator);
            let words = encode_operations(&operations);
            (communicators.collect(), Content::Collective(context, words))
        });
        Captured::add_collectives(&self.streams, contents.collect())
    }
}

impl Driver {
    /// Makes a group's communicators, and enqueues its operations.
    fn send_all(&self, making: Vec<Making>, operations: Vec<Enqueued>) -> Result<(), i32> {
        let made = self.make_all(making);
        match made {
            Ok(()) | Err(result::IN_PROGRESS) => self.enqueue_all(operations).and(made),
            failed => failed,
        }
    }

    /// Makes communicators, on all their servers at once.
    fn make_all(&self, making: Vec<Making>) -> Result<(), i32> {
        if making.is_empty() {
            return Ok(());
        }
        let mut asked: Vec<Asked> = Vec::new();
        for making in &making {
            let communicator = &making.communicator;
            let acting = self.acting_with(communicator)?;
            let member = Member {
                number: communicator.number,
                context: communicator.context.number,
                origin: making.origin.clone(),
                config: making.config.clone(),
            };
            let same = |asked: &&mut Asked| Arc::ptr_eq(&asked.session, acting.session);
            match asked.iter_mut().find(same) {
                Some(asked) => {
                    asked.members.push(member);
                    asked.communicators.push(Arc::clone(communicator));
                }
                None => asked.push(Asked {
                    session: Arc::clone(acting.session),
                    actor: acting.actor,
                    members: vec![member],
                    communicators: vec![Arc::clone(communicator)],
                }),
            }
        }
        if making.iter().all(|making| !making.communicator.blocking) {
            for asked in asked {
                let own = |making: &&Making| {
                    let mut members = asked.communicators.iter();
                    members.any(|member| Arc::ptr_eq(member, &making.communicator))
                };
                let parents = making.iter().filter(own);
                let parents: Vec<_> = parents.filter_map(|making| making.parent.clone()).collect();
                parents.iter().for_each(|parent| parent.parent(true));
                let unmade = asked.communicators.clone();
                let named = towline_client::threads::named("towline-nccl");
                let spawned = {
                    let parents = parents.clone();
                    named.spawn(move || asked.make_unwatched(&parents))
                };
                if spawned.is_err() {
                    parents.iter().for_each(|parent| parent.parent(false));
                    unmade
                        .iter()
                        .for_each(|unmade| unmade.settle(Err(result::SYSTEM_ERROR)));
                }
            }
            return Err(result::IN_PROGRESS);
        }
        let outcome = std::thread::scope(|scope| {
            let (last, others) = asked.split_last()?;
            let others: Vec<_> = others
                .iter()
                .map(|asked| scope.spawn(|| asked.make()))
                .collect();
            let mut outcome = last.make();
            for other in others {
                let other = other.join().unwrap_or(Err(result::INTERNAL_ERROR));
                outcome = outcome.and(other);
            }
            Some(outcome)
        });
        let outcome = outcome.unwrap_or(Ok(()));
        if outcome.is_err() {
            // Others that were to be made with them were not.
            asked.iter().for_each(|asked| asked.abort(|_| true));
        }
        for making in &making {
            // A rank of no color has none; neither has one that failed.
            if outcome.is_err() || making.communicator.facts().is_ok_and(|(rank, _)| rank < 0) {
                drop_unmade(self, making);
            }
        }
        outcome
    }

    /// Enqueues operations, those of one server together; those of captured streams become nodes.
    fn enqueue_all(&self, operations: Vec<Enqueued>) -> Result<(), i32> {
        let mut by_server: Vec<(Acting<'_>, Vec<Operation>)> = Vec::new();
        let mut by_capture: Vec<Gathered<'_>> = Vec::new();
        let mut worked: Vec<(Acting<'_>, wire::StreamHandle)> = Vec::new();
        for enqueued in operations {
            let (acting, stream, captured) = self.collective_stream(&enqueued)?;
            let operation = self.prepared(&acting, stream, captured.is_some(), &enqueued)?;
            if let Some(captured) = captured {
                let with = |other: &&mut Gathered<'_>| other.streams[0].is_with(&captured);
                let context = acting.context.number;
                match by_capture.iter_mut().find(with) {
                    Some(gathered) => {
                        gathered.streams.push(captured);
                        gathered.operations.push((context, operation));
                    }
                    None => by_capture.push(Gathered {
                        streams: vec![captured],
                        operations: vec![(context, operation)],
                    }),
                }
                continue;
            }
            let same = |(other, _): &(Acting<'_>, _)| Arc::ptr_eq(other.session, acting.session);
            match by_server.iter().position(same) {
                Some(at) => by_server[at].1.push(operation),
                None => {
                    let own = self.acting_with(&enqueued.communicator)?;
                    by_server.push((own, vec![operation]));
                }
            }
            worked.push((acting, stream));
        }
        for gathered in by_capture {
            gathered.add().map_err(|_| result::CUDA_ERROR)?;
        }
        for (acting, operations) in &by_server {
            let words = encode_operations(operations);
            let request = wire::CollectiveRun {
                count: words.len() as u32,
                words: wire::List::Values(&words),
            };
            acting.post(&request).map_err(of_cuda(acting))?;
        }
        for (acting, stream) in &worked {
            acting.touch(*stream);
        }
        Ok(())
    }

    /// The stream of an operation on its server. A default stream is the one of the communicator's context, whatever is current.
    fn collective_stream(&self, enqueued: &Enqueued) -> Result<OnStream<'_>, i32> {
        let refused = |_| result::CUDA_ERROR;
        if enqueued.stream.addr() > 2 {
            return self.enqueue_on(enqueued.stream).map_err(refused);
        }
        let acting = self.acting_with(&enqueued.communicator)?;
        let stream = acting.stream(enqueued.stream);
        let captured = self.captured(&acting, stream).map_err(refused)?;
        Ok((acting, stream, captured))
    }

    /// An operation with its addresses on the device, where what the program has written has been brought. What is captured brings that when it
    /// runs.
    fn prepared(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        is_captured: bool,
        enqueued: &Enqueued,
    ) -> Result<Operation, i32> {
        let communicator = &enqueued.communicator;
        let mut operation = enqueued.operation;
        operation.communicator = communicator.number;
        operation.stream = stream.0;
        let (rank, ranks) = communicator.facts()?;
        let (sent, received) = bytes_of(&operation, rank, ranks);
        let (mut none, one) = (0, size_of_type(operation.datatype));
        let factor = match &mut operation.factor {
            Some(Factor::At(address)) => address,
            _ => &mut none,
        };
        for (address, bytes) in [
            (&mut operation.send, sent),
            (&mut operation.receive, received),
            (factor, one),
        ] {
            if *address == 0 || bytes == 0 {
                continue;
            }
            if self.is_host(*address) {
                *address = self.device_pointer(*address).map_err(of_cuda(acting))?;
            }
            if is_captured {
                continue;
            }
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let ready = self.before_use(acting, stream, *address, bytes);
            ready.map_err(of_cuda(acting))?;
        }
        Ok(operation)
    }
}

/// Bytes of a type of data; 0 for none that there is.
pub(super) fn size_of_type(datatype: i32) -> u64 {
    match datatype {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => 0,
    }
}

/// Bytes that a rank of so many reads and writes.
fn bytes_of(operation: &Operation, rank: i32, ranks: i32) -> (u64, u64) {
    let one = operation
        .count
        .saturating_mul(size_of_type(operation.datatype));
    let all = one.saturating_mul(ranks.max(0) as u64);
    let is_root = rank == operation.root;
    let at_root = |bytes: u64| if is_root { bytes } else { 0 };
    match operation.kind {
        Kind::AllReduce => (one, one),
        Kind::Reduce => (one, at_root(one)),
        Kind::Broadcast => (at_root(one), one),
        Kind::ReduceScatter => (all, one),
        Kind::AllGather => (one, all),
        Kind::Send => (one, 0),
        Kind::Recv => (0, one),
        Kind::AllToAll => (all, all),
        Kind::Gather => (one, at_root(all)),
        Kind::Scatter => (at_root(all), one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(kind: Kind, root: i32) -> Operation {
        Operation {
            kind,
            communicator: 0,
            stream: 0,
            send: 0,
            receive: 0,
            count: 10,
            datatype: 7,
            reduction: 0,
            root,
            factor: None,
        }
    }

    #[test]
    fn roots_alone_have_the_whole() {
        let bytes = |kind, root| bytes_of(&operation(kind, root), 1, 4);
        assert_eq!(bytes(Kind::AllReduce, 0), (40, 40));
        assert_eq!(bytes(Kind::ReduceScatter, 0), (160, 40));
        assert_eq!(bytes(Kind::AllGather, 0), (40, 160));
        assert_eq!(
            (bytes(Kind::Reduce, 1), bytes(Kind::Reduce, 0)),
            ((40, 40), (40, 0))
        );
        assert_eq!(
            (bytes(Kind::Scatter, 1), bytes(Kind::Scatter, 0)),
            ((160, 40), (0, 40))
        );
        assert_eq!(
            (bytes(Kind::Gather, 1), bytes(Kind::Gather, 0)),
            ((40, 160), (40, 0))
        );
    }

    #[test]
    fn failures_come_before_progress() {
        let (progress, failed) = (Err(result::IN_PROGRESS), Err(result::REMOTE_ERROR));
        assert_eq!(worse(progress, failed), failed);
        assert_eq!(worse(failed, progress), failed);
        assert_eq!(worse(Ok(()), progress), progress);
        assert_eq!(worse(progress, Ok(())), progress);
    }

    #[test]
    fn a_call_within_groups_waits_for_the_last_end() {
        start();
        start();
        assert_eq!(end(), Ok(()));
        assert_eq!(
            within(|| Err(result::INVALID_ARGUMENT)),
            result::INVALID_ARGUMENT
        );
        // A failure in it is the group's.
        assert_eq!(end(), Err(result::INVALID_ARGUMENT));
        assert_eq!(end(), Err(result::INVALID_USAGE));
    }
}
