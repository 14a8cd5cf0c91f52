//! Communicators that have lost a rank. What the others have enqueued comes to no end then: NCCL's kernels wait on the device, and no program
//! that waits for its stream would learn of it.
//!
//! The supervisor tells of the ends of sessions on its server, by [bonds](crate::bonds), and the library of connections to others that broke.
//! A thread looks at both. Operations that have not come to their end some time later are ended with the communicator; a program whose other
//! ranks end early, and that has nothing left to do with them, notices nothing. The making of a communicator counts as an operation of it, and
//! that of its parent's parts as one of the parent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;
use towline_backend::cuda::*;
use towline_backend::nccl::{Collectives as Library, result};
use towline_wire::cuda::collective::{Member, Origin};

use super::{Communicator, FAILED, Known, PAUSE, Posted, Shared};
use crate::bonds::{BOND_BYTES, Bond};
use crate::cuda::shared::lock;
use crate::cuda::streams::Target;
use crate::link::Raw;

/// Operations have so long to come to their end once a rank is gone.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks, at most.
const LOOK: Duration = Duration::from_secs(2);

/// The latest operations of a communicator.
#[derive(Default)]
pub(super) struct Latest {
    /// An event of ours behind the last one.
    event: Option<Raw>,
    /// The last one of each stream.
    streams: SmallVec<[(u64, Posted); 2]>,
    /// Since when they have been seen to wait for a rank that is gone.
    waiting_since: Option<Instant>,
}

/// Tells the client what came of communicators that were made together, for each what two facts say; once.
pub(super) type Tell = Arc<Mutex<Option<Box<dyn FnOnce(&Arc<Shared>, Made) + Send>>>>;
type Made = Result<Vec<i32>, i32>;

pub(super) fn tell_once(shared: &Arc<Shared>, tell: &Tell, made: Made) {
    let tell = lock(tell).take();
    if let Some(tell) = tell {
        tell(shared, made);
    }
}

/// A communicator that is being made.
pub(super) struct Making {
    /// The context's number.
    pub(super) context: u64,
    /// The session of another rank is gone.
    pub(super) bereaved: Arc<AtomicBool>,
    waiting_since: Option<Instant>,
    tell: Tell,
}

impl Making {
    pub(super) fn new(context: u64, tell: &Tell) -> Self {
        Self {
            context,
            bereaved: Arc::default(),
            waiting_since: None,
            tell: Arc::clone(tell),
        }
    }

    /// Whether it has waited for long for a rank that is gone.
    fn is_lost(&mut self, patience: Duration) -> bool {
        if !self.bereaved.load(Ordering::Acquire) {
            return false;
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        since.elapsed() >= patience
    }
}

/// Communicators of which others are made by all of their ranks.
pub(super) struct Parting(Vec<Arc<Communicator>>);

impl Parting {
    pub(super) fn of(members: &[Member], parents: &[Option<Arc<Communicator>>]) -> Self {
        // Ranks that are gone have no part in a shrink.
        let is_split = |member: &Member| matches!(member.origin, Origin::Split { .. });
        let all = members.iter().zip(parents);
        let split = all.filter(|(member, _)| is_split(member));
        let parents: Vec<_> = split.filter_map(|(_, parent)| parent.clone()).collect();
        for parent in &parents {
            parent.parting.fetch_add(1, Ordering::AcqRel);
        }
        Self(parents)
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        for parent in &self.0 {
            parent.parting.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The name of the bond between the ranks of a communicator: each derives the same.
pub(super) fn bond_of(origin: &Origin, parent: Option<&Communicator>) -> Option<Bond> {
    let mut digest = Sha256::new();
    match origin {
        Origin::Join { ids, .. } => ids.iter().for_each(|id| digest.update(id)),
        Origin::Split { color, .. } => {
            digest.update(parent?.name_child()?);
            digest.update(color.to_le_bytes());
        }
        Origin::Shrink { .. } => digest.update(parent?.name_child()?),
    }
    digest.finalize().first_chunk::<BOND_BYTES>().copied()
}

impl Communicator {
    /// A name for what comes from it next: ranks make communicators of one in the same order.
    fn name_child(&self) -> Option<[u8; BOND_BYTES + 4]> {
        let number = self.children.fetch_add(1, Ordering::Relaxed);
        let mut name = [0; BOND_BYTES + 4];
        name[..BOND_BYTES].copy_from_slice(&self.bond?);
        name[BOND_BYTES..].copy_from_slice(&number.to_le_bytes());
        Some(name)
    }

    /// Notes an operation that the driver has. Its context is current.
    pub(crate) fn note(&self, api: &dyn CudaApi, target: &Target, request: Posted) {
        let mut latest = lock(&self.latest);
        let known = latest.streams.iter_mut().find(|(id, _)| *id == target.id);
        match known {
            Some((_, last)) => *last = request,
            None => latest.streams.push((target.id, request)),
        }
        if latest.event.is_none() && !self.has_ended() {
            latest.event = self.context.take_event(api).ok();
        }
        if let Some(event) = latest.event {
            // SAFETY: the event is ours, the stream is live.
            unsafe { api.cuEventRecord(event.0.cast(), target.stream()) };
        }
    }

    /// Whether it was ended because a rank is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The result of calls for it once it has ended.
    pub(super) fn gone(&self) -> i32 {
        match self.is_lost() {
            true => self.failed.load(Ordering::Acquire),
            false => result::INVALID_ARGUMENT,
        }
    }

    /// Gives its event back, once it has ended.
    pub(super) fn put_away(&self) {
        if let Some(event) = lock(&self.latest).event.take() {
            self.context.give_event(event);
        }
    }

    /// The reason for which operations may never come to their end.
    fn cause(&self, library: &dyn Library) -> Option<i32> {
        if self.bereaved.load(Ordering::Acquire) {
            return Some(result::REMOTE_ERROR);
        }
        let state = self.ask(|of| library.state(of))?;
        (!matches!(state, result::SUCCESS | result::IN_PROGRESS)).then_some(state)
    }
}

impl Shared {
    /// Binds a communicator that is to be made to its ranks in other sessions, and has a thread look after it.
    pub(super) fn attend(
        self: &Arc<Self>,
        number: u64,
        bond: Option<Bond>,
        bereaved: Arc<AtomicBool>,
    ) {
        if let Some(bond) = bond {
            let ear = move || bereaved.store(true, Ordering::Release);
            self.counters.bonds.bind(bond, number, Box::new(ear));
        }
        if self.collectives.attended.swap(true, Ordering::AcqRel) {
            return;
        }
        let (shared, patience) = (Arc::downgrade(self), self.collectives.patience);
        let thread = std::thread::Builder::new().name("collectives".into());
        if let Err(error) = thread.spawn(move || look_after(&shared, patience)) {
            self.collectives.attended.store(false, Ordering::Release);
            log::warn!("nothing will tell a program that another rank is gone: {error}");
        }
    }

    /// A communicator is no more.
    pub(super) fn forget(&self, communicator: &Communicator) {
        communicator.put_away();
        lock(&self.collectives.known).remove(&communicator.number);
        self.part(communicator.number, communicator.bond);
    }

    /// Ends the bond of a communicator.
    pub(super) fn part(&self, number: u64, bond: Option<Bond>) {
        if let Some(bond) = &bond {
            self.counters.bonds.part(bond, number);
        }
    }

    /// Communicators have not come about.
    pub(super) fn forget_unmade(&self, members: &[Member], bonds: &[Option<Bond>]) {
        for (member, bond) in members.iter().zip(bonds) {
            lock(&self.collectives.known).remove(&member.number);
            self.part(member.number, *bond);
        }
    }

    /// Waits for the end of a communicator's operations: the library would wait for them too, and could not be stopped any more.
    pub(super) fn wait_for_last(&self, communicator: &Communicator) {
        while !communicator.has_ended() && !self.ended() && self.is_pending(communicator) {
            std::thread::sleep(PAUSE);
        }
    }

    /// Gives up communicators whose making waits for a rank that is gone.
    fn give_lost_up(self: &Arc<Self>, patience: Duration) {
        let mut known = lock(&self.collectives.known);
        let mut lost: Vec<Tell> = Vec::new();
        for known in known.values_mut() {
            if let Known::Making(making) = known
                && making.is_lost(patience)
            {
                lost.push(Arc::clone(&making.tell));
            }
        }
        // With those that are made together with them.
        for known in known.values_mut() {
            if let Known::Making(making) = known
                && lost.iter().any(|lost| Arc::ptr_eq(lost, &making.tell))
            {
                *known = Known::GivenUp;
            }
        }
        drop(known);
        for tell in &lost {
            log::warn!("a communicator is not made: it waits for a rank that is gone");
            tell_once(self, tell, Err(result::REMOTE_ERROR));
            self.flush();
        }
    }

    /// Has nobody use a communicator any more that waits for a rank that is gone; whether it does.
    fn lose(&self, communicator: &Communicator, library: &dyn Library, patience: Duration) -> bool {
        if communicator.has_ended() {
            return false;
        }
        let Some(cause) = communicator.cause(library) else {
            return false;
        };
        let is_pending = self.is_pending(communicator);
        let mut latest = lock(&communicator.latest);
        if !is_pending {
            latest.waiting_since = None;
            return false;
        }
        let since = *latest.waiting_since.get_or_insert_with(Instant::now);
        if since.elapsed() < patience {
            return false;
        }
        let streams = std::mem::take(&mut latest.streams);
        drop(latest);
        communicator.fail(cause);
        communicator.lost.store(true, Ordering::Release);
        if communicator.end() {
            return false;
        }
        log::warn!(
            "rank {} of {} waits for a rank that is gone: its collectives fail",
            communicator.made.rank,
            communicator.made.ranks
        );
        // Before those go on that wait for the streams.
        for (stream, (number, call)) in streams {
            self.settle(number, call, stream, FAILED);
        }
        true
    }

    /// Whether operations have not come to their end.
    fn is_pending(&self, communicator: &Communicator) -> bool {
        let parts = communicator.parting.load(Ordering::Acquire) > 0;
        if parts || !self.streams.have_passed(&communicator.places()) {
            return true;
        }
        let latest = lock(&communicator.latest);
        latest.event.is_some_and(|event| {
            // SAFETY: the event is ours: whoever gives it back takes it out first.
            let status = unsafe { self.api.cuEventQuery(event.0.cast()) };
            status == CUDA_ERROR_NOT_READY
        })
    }
}

/// Looks after a session's communicators as long as it lives.
fn look_after(shared: &Weak<Shared>, patience: Duration) {
    loop {
        std::thread::sleep(LOOK.min(patience / 4));
        let Some(shared) = shared.upgrade().filter(|shared| !shared.ended()) else {
            return;
        };
        let Some(library) = shared.collectives.library() else {
            return;
        };
        let known: Vec<_> = lock(&shared.collectives.known)
            .values()
            .filter_map(|known| match known {
                Known::There(communicator) => Some(Arc::clone(communicator)),
                Known::Making(_) | Known::GivenUp => None,
            })
            .filter(|communicator| communicator.made.ranks > 1)
            .collect();
        // All are lost before one is aborted.
        let lost = known
            .into_iter()
            .filter(|communicator| shared.lose(communicator, &**library, patience));
        for communicator in lost.collect::<Vec<_>>() {
            let endings = &shared.collectives.endings;
            endings.abort(&communicator, &shared.api, library);
        }
        shared.give_lost_up(patience);
        // A context that is about to end waits until nobody holds it.
        shared.streams.wake();
    }
}
