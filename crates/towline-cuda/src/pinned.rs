//! Pinned host memory that is shared with its server, where that is on this host: its driver copies from and to it by itself, when the
//! stream comes to it. Nothing of such a copy passes a lane.
//!
//! What goes another way (a box, a copy to another server) is read by this process, which must not come before what the device is still
//! to write there. So the copies that write it are remembered until their stream is known to have done them.
//!
//! Where the worker has the memory at the same addresses, and its driver too, kernels reach it there, while they run: host and device see
//! each other's writes as natively. Once a kernel may use it, every copy of it is the device's.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use towline_backend::cuda::*;
use towline_client::cuda::{MovedTo, RebuildError, SharedHost};

use crate::context::Context;
use crate::driver::{Acting, Driver, lock, read, write};
use crate::mirror::{Hold, hold, let_go};

/// Where shared memory lies: nothing else of a client or a worker does, and drivers have it where hosts have it.
const PLACES: Range<u64> = 0x4000_0000_0000..0x4100_0000_0000;
/// What addresses are rounded to: a large page.
const ROUND: u64 = 2 << 20;
/// How often another address is tried.
const ATTEMPTS: usize = 64;

/// Whether a number may be an address of shared memory that kernels reach.
#[inline]
pub(crate) fn may_be_reached(number: u64) -> bool {
    PLACES.contains(&number)
}

/// Shared memory of the process.
#[derive(Default)]
pub(crate) struct Pins {
    /// By where it begins.
    all: RwLock<BTreeMap<usize, Arc<Pin>>>,
    /// How far addresses have been given out, going around.
    given: AtomicU64,
}

impl Pins {
    /// An address where this process has nothing; 0 when none is found soon.
    fn next_place(&self, size: usize) -> u64 {
        let most = PLACES.end - PLACES.start;
        let Some(room) = (size as u64).checked_next_multiple_of(ROUND) else {
            return 0;
        };
        if room > most {
            return 0;
        }
        let free = |_| {
            let offset = self.given.fetch_add(room, Ordering::Relaxed) % most;
            let place = PLACES.start + offset;
            let fits = offset <= most - room && hold(place, room) == Hold::Held;
            fits.then(|| {
                let_go(place, room);
                place
            })
        };
        (0..ATTEMPTS).find_map(free).unwrap_or(0)
    }
}

/// One allocation.
pub(crate) struct Pin {
    host: SharedHost,
    /// The session whose worker maps it.
    session: u8,
    written: Mutex<Vec<Written>>,
    /// Whether kernels may use it.
    used: AtomicBool,
}

/// The last copy of a stream that writes here.
struct Written {
    context: Arc<Context>,
    stream: u64,
    /// What had been posted to the stream with it.
    posted: u64,
}

impl Pin {
    /// Whether every copy that writes here is known to be done.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut written = lock(&self.written);
        written.retain(|copy| !copy.context.has_done(copy.stream, copy.posted));
        written.is_empty()
    }

    fn note_written(&self, context: &Arc<Context>, stream: u64, posted: u64) {
        let mut written = lock(&self.written);
        let same =
            |copy: &&mut Written| copy.stream == stream && copy.context.number == context.number;
        match written.iter_mut().find(same) {
            Some(copy) => copy.posted = posted,
            None => written.push(Written {
                context: Arc::clone(context),
                stream,
                posted,
            }),
        }
    }
}

impl Driver {
    /// Shares all pinned memory of a session with the worker that it moves to.
    pub(crate) fn share_pins_again(
        &self,
        session: u8,
        there: &MovedTo<'_>,
    ) -> Result<(), RebuildError> {
        let pins = read(&self.pins.all);
        for pin in pins.values().filter(|pin| pin.session == session) {
            if !there.shares_memory() {
                return Err(RebuildError::Unmovable(
                    "it has pinned memory that its server shares, and the other one is not on this host",
                ));
            }
            let contexts = read(&self.contexts);
            let mut contexts = contexts.values();
            // Any will do: the memory is the session's.
            let context = contexts.find(|context| context.session == session);
            let context = context.map_or(0, |context| context.number);
            there.share(context, &pin.host)?;
        }
        Ok(())
    }

    /// Pinned memory that the context's server shares, and that kernels reach if they must; `None` where it is elsewhere, or can share none
    /// such.
    pub(crate) fn share_host(
        &self,
        context: &Arc<Context>,
        size: usize,
        must_be_reached: bool,
    ) -> Result<Option<*mut u8>, CUresult> {
        let acting = self.acting_in(Arc::clone(context))?;
        if !acting.session.shares_memory() {
            return Ok(None);
        }
        let place = self.pins.next_place(size);
        let (session, actor) = (acting.session, acting.actor);
        let host = match session.share(actor, "cuMemHostAlloc", size, place) {
            // A driver that registers no memory is one that copies from any.
            Err(CUDA_ERROR_NOT_SUPPORTED) => return Ok(None),
            shared => shared?,
        };
        if must_be_reached && !host.is_reached() {
            session.unshare(&host)?;
            return Ok(None);
        }
        let start = host.start();
        let pin = Pin {
            host,
            session: context.session,
            written: Mutex::default(),
            used: AtomicBool::new(false),
        };
        write(&self.pins.all).insert(start.addr(), Arc::new(pin));
        Ok(Some(start))
    }

    /// Gives shared memory back; whether some begins here. What uses it on the server still has it.
    pub(crate) fn unshare_host(&self, start: usize) -> Result<bool, CUresult> {
        let Some(pin) = write(&self.pins.all).remove(&start) else {
            return Ok(false);
        };
        let sessions = &self.started()?.sessions;
        let session = sessions.get(usize::from(pin.session));
        if let Some(session) = session.filter(|session| session.lost().is_none()) {
            session.unshare(&pin.host)?;
        }
        Ok(true)
    }

    /// The shared memory that all of a range is in, and where in it that begins.
    fn pin(&self, start: usize, size: usize) -> Option<(Arc<Pin>, u64)> {
        let pins = read(&self.pins.all);
        let (_, pin) = pins.range(..=start).next_back()?;
        let offset = pin.host.offset(start, size)?;
        Some((Arc::clone(pin), offset))
    }

    /// Whether an address is in shared memory that kernels may use.
    #[inline]
    pub(crate) fn is_reached(&self, address: u64) -> bool {
        may_be_reached(address)
            && self
                .pin(address as usize, 1)
                .is_some_and(|(pin, _)| pin.used.load(Ordering::Acquire))
    }

    /// Has kernels of the session use the pinned memory that begins here; `false` where it is not shared.
    pub(crate) fn reach(
        &self,
        acting: &Acting<'_>,
        start: u64,
        size: usize,
    ) -> Result<bool, CUresult> {
        let Some((pin, _)) = self.pin(start as usize, size) else {
            return Ok(false);
        };
        if !pin.host.is_reached() || pin.session != acting.context.session {
            log::warn!(
                "pinned memory at {start:#x} cannot be used by kernels: the server {}",
                match pin.host.is_reached() {
                    true => "is not the one that shares it",
                    false => "has it elsewhere",
                }
            );
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if !pin.used.load(Ordering::Acquire) {
            // What goes there by other ways than the device's is there first.
            self.settle_host(start, size)?;
            pin.used.store(true, Ordering::Release);
        }
        Ok(true)
    }

    /// As [`Self::pin`], where it is shared with the server that acts.
    pub(crate) fn pin_for(
        &self,
        acting: &Acting<'_>,
        start: usize,
        size: usize,
    ) -> Option<(Arc<Pin>, u64)> {
        self.pin(start, size)
            .filter(|(pin, _)| pin.session == acting.context.session)
    }

    /// Waits until no device is to write to this memory any more, where it is shared: this process is about to read it.
    pub(crate) fn settle_pin(&self, start: usize, size: usize) -> Result<(), CUresult> {
        let Some((pin, _)) = self.pin(start, size) else {
            return Ok(());
        };
        if pin.is_quiet() {
            return Ok(());
        }
        let contexts: Vec<Arc<Context>> = {
            let written = lock(&pin.written);
            written
                .iter()
                .map(|copy| Arc::clone(&copy.context))
                .collect()
        };
        for context in contexts {
            self.acting_in(context)?.synchronise_all()?;
        }
        lock(&pin.written).clear();
        Ok(())
    }
}

impl Acting<'_> {
    /// Has the device read shared memory when the stream comes to it.
    pub(crate) fn write_from(
        &self,
        stream: towline_backend::cuda::StreamHandle,
        address: u64,
        (pin, offset): &(Arc<Pin>, u64),
        size: usize,
    ) -> Result<(), CUresult> {
        self.session
            .write_shared(self.actor, stream.0, address, &pin.host, *offset, size)?;
        self.touch(stream);
        Ok(())
    }

    /// Has the device write shared memory when the stream comes to it.
    pub(crate) fn read_into(
        &self,
        stream: towline_backend::cuda::StreamHandle,
        address: u64,
        (pin, offset): &(Arc<Pin>, u64),
        size: usize,
    ) -> Result<(), CUresult> {
        self.session
            .read_shared(self.actor, stream.0, address, &pin.host, *offset, size)?;
        self.touch(stream);
        pin.note_written(&self.context, stream.0, self.posted(stream));
        Ok(())
    }
}
