//! Registered memory of the application's that kernels reach.
//!
//! Where it lies was the application's choice, so the device has a twin of it at another address, as
//! `CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM` tells. What one side changes the other sees where CUDA says so: the device
//! in the work that it is given next, the host when it has waited.
//!
//! Whole pages of a long range are mirrored as managed memory is. A short range, and pages that a range has only parts of, hold other
//! things of the program's too, which no protection may keep other threads or the system from: those bytes are compared with what both
//! sides had last, and what has changed is sent, or brought after every wait that may have been for work that changed it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::{Session, Source};
use towline_client::pinned;
use towline_client::raw::HostPtr;

use super::region::Region;
use super::{Holder, Mirror, PAGE, PushLane, differences, pushed};
use crate::context::Context;
use crate::driver::{Acting, Driver, actor, lock, read, write};
use crate::memory::{Kind, Range};

/// Up to this length a range is compared as a whole.
const SHORT: usize = 16 << 10;

/// The twins of a session.
#[derive(Default)]
pub(crate) struct Twins {
    any: AtomicBool,
    /// Held by who makes one.
    making: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By where the application has them.
    all: BTreeMap<u64, Twin>,
    /// How far streams of contexts are to come before the host has seen what their work changed.
    unseen: HashMap<(u64, u64), (Weak<Context>, u64)>,
}

/// What the device has of a registered range.
struct Twin {
    host: u64,
    size: usize,
    device: u64,
    /// The context that the device's memory is of.
    context: u64,
    lane: Arc<PushLane>,
    /// What is compared.
    parts: Vec<Part>,
    /// The whole pages between.
    pages: Option<Arc<Mirror>>,
}

/// Bytes that are compared.
struct Part {
    offset: usize,
    /// What both sides had last; the device has none yet where it is empty.
    known: Vec<u8>,
    size: usize,
}

impl Twin {
    fn host_at(&self, offset: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.host as usize + offset)
    }

    /// Sends what the host has changed; whether anything was.
    fn give(&mut self, session: &Session) -> Result<bool, CUresult> {
        let mut sent = false;
        for at in 0..self.parts.len() {
            let Part { offset, size, .. } = self.parts[at];
            // SAFETY: the application has registered these bytes, and has to leave them readable until it ends that.
            let now = unsafe { std::slice::from_raw_parts(self.host_at(offset), size) };
            let part = &mut self.parts[at];
            if part.known == now {
                continue;
            }
            // What is compared, sent and remembered must be the same, whatever other threads write meanwhile.
            let now = now.to_vec();
            let runs = match part.known.is_empty() {
                true => std::iter::once(0..size).collect(),
                false => differences(&part.known, &now),
            };
            for run in runs {
                let address = self.device + (offset + run.start) as u64;
                let (stream, bytes) = (self.lane.stream, &now[run]);
                // SAFETY: the slice is readable, and captured when this has been written.
                let start = unsafe { HostPtr::new(bytes.as_ptr()) };
                let (own, call) = (actor(self.context), "registered memory");
                session.write(
                    own,
                    call,
                    stream,
                    address,
                    start,
                    bytes.len(),
                    Source::Fleeting,
                )?;
            }
            part.known = now;
            sent = true;
        }
        if let Some(pages) = &self.pages {
            sent |= pages.give(&mut lock(&pages.blocks), 0..usize::MAX)?;
        }
        Ok(sent)
    }

    /// Shows the host what the device has changed: `now` is what it has of the compared bytes.
    fn show(&mut self, mut now: &[u8]) {
        for at in 0..self.parts.len() {
            let (mine, rest) = now.split_at(self.parts[at].size);
            now = rest;
            let changed = differences(&self.parts[at].known, mine);
            for run in changed {
                let target = self.host_at(self.parts[at].offset + run.start);
                // SAFETY: the application has registered these bytes, and has to leave them writable until it ends that.
                unsafe { target.copy_from_nonoverlapping(mine[run.clone()].as_ptr(), run.len()) };
                self.parts[at].known[run.clone()].copy_from_slice(&mine[run]);
            }
        }
    }

    /// How many bytes are compared, and are on the device.
    fn compared(&self) -> usize {
        let on_device = |part: &&Part| !part.known.is_empty();
        match self.parts.iter().all(|part| on_device(&part)) {
            true => self.parts.iter().map(|part| part.size).sum(),
            false => 0,
        }
    }
}

impl State {
    /// Brings what the device has of the compared bytes, all in one round trip.
    fn pull(&mut self, acting: &Acting<'_>) -> Result<(), CUresult> {
        let total: usize = self.all.values().map(Twin::compared).sum();
        if total == 0 {
            return Ok(());
        }
        let mut bytes = vec![0_u8; total];
        // SAFETY: the bytes live, and are left alone, until all reads have been waited for below.
        let start = unsafe { HostPtr::new(bytes.as_mut_ptr()) };
        let mut reads = Vec::new();
        for twin in self.all.values().filter(|twin| twin.compared() > 0) {
            for part in &twin.parts {
                let address = twin.device + part.offset as u64;
                reads.push((actor(twin.context), twin.lane.stream, address, part.size));
            }
        }
        let (mut at, last, mut outcome) = (0, reads.len() - 1, Ok(()));
        for (number, (own, stream, address, size)) in reads.into_iter().enumerate() {
            let (target, call, wait) = (start.offset(at), "registered memory", number == last);
            let session = acting.session;
            let asked = session.read(own, call, stream, address, target, size, wait);
            outcome = outcome.and(asked);
            at += size;
        }
        let settled = acting.session.settle(start.addr(), total);
        // A read that nobody waits for tells its failure by its stream.
        let mut twins = self.all.values();
        let failed = twins.find_map(|twin| acting.session.take_failure(Some(twin.lane.stream)));
        let outcome = outcome.and(settled).and(failed.map_or(Ok(()), Err));
        if let Err(status) = outcome {
            if acting.session.lost().is_none() {
                // Something may still be on its way there.
                std::mem::forget(bytes);
            }
            return Err(status);
        }
        let mut left = bytes.as_slice();
        for twin in self.all.values_mut() {
            let (mine, rest) = left.split_at(twin.compared());
            left = rest;
            if !mine.is_empty() {
                twin.show(mine);
            }
        }
        Ok(())
    }

    /// The twin that an address of the application's lies in.
    fn of_host(&self, address: u64) -> Option<&Twin> {
        let (start, twin) = self.all.range(..=address).next_back()?;
        (address - start < twin.size as u64).then_some(twin)
    }
}

impl Twins {
    fn enter(&self, twin: Twin) {
        let mut state = lock(&self.state);
        state.all.insert(twin.host, twin);
        self.any.store(true, Ordering::Release);
    }

    fn take(&self, host: u64) -> Option<Twin> {
        let mut state = lock(&self.state);
        let twin = state.all.remove(&host);
        if state.all.is_empty() {
            state.unseen.clear();
            self.any.store(false, Ordering::Release);
        }
        twin
    }

    /// Has the device have what the host has changed, by lanes whose streams are added to `sent`.
    pub(super) fn give(&self, session: &Session, sent: &mut Vec<u64>) -> Result<(), CUresult> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        for twin in lock(&self.state).all.values_mut() {
            if twin.give(session)? {
                pushed(session, twin.context, &twin.lane)?;
                if !sent.contains(&twin.lane.stream) {
                    sent.push(twin.lane.stream);
                }
            }
        }
        Ok(())
    }

    /// Whether the device has a twin at this address.
    #[inline]
    pub(super) fn has_device(&self, address: u64) -> bool {
        self.any.load(Ordering::Acquire) && {
            let state = lock(&self.state);
            let mut all = state.all.values();
            all.any(|twin| address.wrapping_sub(twin.device) < twin.size as u64)
        }
    }

    /// Where the device has what the application has here; refused where it has only a part of these bytes.
    pub(crate) fn device_side(&self, address: u64, size: usize) -> Result<Option<u64>, CUresult> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(None);
        }
        let state = lock(&self.state);
        let end = address.saturating_add(size as u64);
        match state.of_host(address) {
            Some(twin) if end <= twin.host + twin.size as u64 => {
                Ok(Some(twin.device + (address - twin.host)))
            }
            None if state.all.range(address..end).next().is_none() => Ok(None),
            // As the driver: no copy goes beyond what is registered.
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Where the application has what the device has here.
    fn host_side(&self, address: u64) -> Option<u64> {
        let state = lock(&self.state);
        let mut all = state.all.values();
        let twin = all.find(|twin| address.wrapping_sub(twin.device) < twin.size as u64)?;
        Some(twin.host + (address - twin.device))
    }
}

impl Acting<'_> {
    /// After a wait: the host sees what the device has changed, or the wait fails.
    #[inline]
    pub(crate) fn show_twins(&self) -> Result<(), CUresult> {
        self.settle_mirrors()?;
        match self.context.mirrored.twins.any.load(Ordering::Acquire) {
            true => self.bring_twins(),
            false => Ok(()),
        }
    }

    fn bring_twins(&self) -> Result<(), CUresult> {
        let state = &mut *lock(&self.context.mirrored.twins.state);
        if state.unseen.is_empty() {
            return Ok(());
        }
        if let Some(broken) = self.session.broken() {
            return Err(broken);
        }
        // Asked for before the bytes are.
        let unseen = state.unseen.iter();
        let seen = unseen.filter(|((_, stream), (context, posted))| {
            let context = context.upgrade();
            context.is_none_or(|context| context.has_done(*stream, *posted))
        });
        let seen: Vec<(u64, u64)> = seen.map(|(place, _)| *place).collect();
        state.pull(self).inspect_err(|status| {
            log::error!("registered memory cannot be had from the server: error {status}");
        })?;
        for place in &seen {
            state.unseen.remove(place);
        }
        Ok(())
    }
}

impl Driver {
    /// Before the device is given work on this stream: it has what the host has changed, and will be asked what it changed.
    #[inline]
    pub(super) fn give_twins(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
    ) -> Result<(), CUresult> {
        match acting.context.mirrored.twins.any.load(Ordering::Acquire) {
            true => self.give_all_twins(acting, stream),
            false => Ok(()),
        }
    }

    fn give_all_twins(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
    ) -> Result<(), CUresult> {
        let state = &mut *lock(&acting.context.mirrored.twins.state);
        // By context, and whether anything was sent.
        let mut lanes: BTreeMap<u64, (Arc<PushLane>, bool)> = BTreeMap::new();
        for twin in state.all.values_mut() {
            let sent = twin.give(acting.session)?;
            let lane = lanes.entry(twin.context);
            lane.or_insert_with(|| (Arc::clone(&twin.lane), false)).1 |= sent;
        }
        // The work that is about to be posted.
        let place = (acting.context.number, stream.0);
        let posted = acting.posted(stream) + 1;
        let context = Arc::downgrade(&acting.context);
        state.unseen.insert(place, (context, posted));
        for (context, (lane, sent)) in lanes {
            if sent {
                pushed(acting.session, context, &lane)?;
            }
            self.stand_behind(acting, stream, &lane)?;
        }
        Ok(())
    }

    /// Where the device has what the application has at an address, of memory that both have; refused where it has only a part of it.
    #[inline]
    pub(crate) fn device_side(&self, address: u64, size: usize) -> Result<Option<u64>, CUresult> {
        if self.is_both(address) {
            return Ok(Some(address));
        }
        match self.mirrors.twins.load(Ordering::Acquire) {
            true => self.twin_side(address, size),
            false => Ok(None),
        }
    }

    fn twin_side(&self, address: u64, size: usize) -> Result<Option<u64>, CUresult> {
        let context = match read(&self.memory).first_of(address, size) {
            Some(range) if matches!(range.kind, Kind::Registered(_)) => range.context,
            _ => return Ok(None),
        };
        match self.context(context) {
            Ok(context) => context.mirrored.twins.device_side(address, size),
            Err(_) => Ok(None),
        }
    }

    /// Where the application has what a context's device has at an address.
    pub(crate) fn host_of_twin(&self, context: u64, address: u64) -> Option<u64> {
        let context = self.context(context).ok()?;
        context.mirrored.twins.host_side(address)
    }

    /// Where the device has a registered range, from now on.
    pub(super) fn twin(
        &self,
        acting: &Acting<'_>,
        start: u64,
        size: usize,
    ) -> Result<u64, CUresult> {
        let twins = &acting.context.mirrored.twins;
        let _making = lock(&twins.making);
        if let Some(twin) = lock(&twins.state).all.get(&start) {
            return Ok(twin.device);
        }
        let device = self.device(acting.context.device)?;
        if device.attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) == 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        // As for pinned memory.
        pinned::withdraw(start as usize);
        self.settle_host(start, size)?;
        let begin = start as usize;
        let (first, last) = (begin.next_multiple_of(PAGE), (begin + size) / PAGE * PAGE);
        let whole = size > SHORT && last > first;
        let region = match whole {
            true => Some(Region::own(first, last - first).map_err(|reason| {
                log::warn!("registered memory at {start:#x} cannot be used by kernels: {reason}");
                CUDA_ERROR_NOT_SUPPORTED
            })?),
            false => None,
        };
        let compared = match whole {
            true => vec![(0, first - begin), (last - begin, begin + size - last)],
            false => vec![(0, size)],
        };
        let parts = compared.into_iter().filter(|(_, size)| *size > 0);
        let parts = parts.map(|(offset, size)| Part {
            offset,
            known: Vec::new(),
            size,
        });
        let lane = self.push_lane(acting)?;
        let address =
            self.with_kept_released(acting.context.device, || self.allocate_anew(acting, size))?;
        let pages = match region {
            Some(region) => Some(self.mirror_pages(acting, &lane, region, begin, address)?),
            None => None,
        };
        let range = Range {
            kind: Kind::Twin,
            ..Range::device(&acting.context, size, self.new_id())
        };
        write(&self.memory).insert(address, range);
        let twin = Twin {
            host: start,
            size,
            device: address,
            context: acting.context.number,
            lane,
            parts: parts.collect(),
            pages,
        };
        twins.enter(twin);
        self.mirrors.twins.store(true, Ordering::Release);
        Ok(address)
    }

    /// Has the whole pages of a range that begins at `start` mirrored; the device has the range at `device`.
    fn mirror_pages(
        &self,
        acting: &Acting<'_>,
        lane: &Arc<PushLane>,
        region: Region,
        start: usize,
        device: u64,
    ) -> Result<Arc<Mirror>, CUresult> {
        let offset = (region.view() - start) as u64;
        let bytes = region.size();
        let mut mirror = Mirror::new(region, bytes, acting, Arc::clone(lane), 0);
        mirror.device = device + offset;
        lock(&mirror.blocks).holders.fill(Holder::Host);
        let mirror = Arc::new(mirror);
        match super::fault::add(&mirror) {
            true => {
                mirror.of.add(&mirror);
                Ok(mirror)
            }
            false => {
                acting.call_for("cuMemFree", &wire::MemoryFree { address: device })?;
                lock(&self.kept_memory).forget(device);
                Err(CUDA_ERROR_OPERATING_SYSTEM)
            }
        }
    }

    /// Ends the twin of a registered range, once what uses it is done, and leaves its contents with the application.
    pub(crate) fn end_twin(&self, context: u64, start: u64) -> Result<(), CUresult> {
        let Ok(context) = self.context(context) else {
            return Ok(());
        };
        let acting = self.acting_in(context)?;
        let twins = &acting.context.mirrored.twins;
        let users: Vec<Arc<Context>> = {
            let state = lock(&twins.state);
            if !state.all.contains_key(&start) {
                return Ok(());
            }
            let users = state.unseen.values();
            users.filter_map(|(context, _)| context.upgrade()).collect()
        };
        // As for memory that is freed: what uses it is waited for, and the host sees what that left.
        let waited = users
            .into_iter()
            .map(|context| self.acting_in(context)?.synchronise_all());
        let waited = waited.fold(acting.synchronise_all(), Result::and);
        let Some(twin) = twins.take(start) else {
            return waited;
        };
        let back = match &twin.pages {
            Some(pages) => pages.take_back(),
            None => Ok(()),
        };
        let waited = waited.and(back);
        write(&self.memory).remove(twin.device);
        let address = twin.device;
        acting.call_for("cuMemFree", &wire::MemoryFree { address })?;
        lock(&self.kept_memory).forget(address);
        waited
    }

    /// Ends all twins of a context that is about to end.
    pub(crate) fn end_twins(&self, context: u64) {
        let Ok(known) = self.context(context) else {
            return;
        };
        let twins = &known.mirrored.twins;
        if !twins.any.load(Ordering::Acquire) {
            return;
        }
        let starts: Vec<u64> = {
            let state = lock(&twins.state);
            let own = state.all.values().filter(|twin| twin.context == context);
            own.map(|twin| twin.host).collect()
        };
        for start in starts {
            // The pages are the application's again, whatever the server says.
            if let Err(status) = self.end_twin(context, start) {
                log::debug!("registered memory at {start:#x}: error {status}");
            }
        }
    }
}
