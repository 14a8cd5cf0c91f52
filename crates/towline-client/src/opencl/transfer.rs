//! Reads and writes: small data travels with its request, the rest on the payload lanes, straight from and to the application's
//! memory.

use smallvec::SmallVec;
use towline_session::Landing;

use super::event::status_of;
use super::*;
use crate::memory::HostBox;
use crate::state::{Covered, Read, ToldBy};
use crate::tuning::{INLINE_BYTES, INLINE_CREDIT, SLAB_BYTES, tuning};

/// What `place` describes; the numbers are the protocol's.
pub(super) mod shape {
    pub(in super::super) const LINEAR: u32 = 0;
    pub(in super::super) const RECT: u32 = 1;
    pub(in super::super) const IMAGE: u32 = 2;
    pub(in super::super) const SVM: u32 = 3;
}

/// Reads up to this size come back on the command lane; the worker has the same number.
const INLINE_READ: usize = 128 << 10;

/// Most bytes under way that the worker stages in memory of its own: half of what it has for that.
const STAGED_CREDIT: u64 = 512 << 20;

/// A box on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) shape: u32,
    pub(super) origin: [usize; 3],
    pub(super) region: [usize; 3],
    pub(super) row_pitch: usize,
    pub(super) slice_pitch: usize,
    /// Bytes of one element of `region[0]`.
    pub(super) element: usize,
}

/// The application's box: where, and how far rows and slices are apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host {
    pub(super) start: *mut u8,
    pub(super) row_pitch: usize,
    pub(super) slice_pitch: usize,
}

/// What all transfers share.
pub(super) struct Command<'a> {
    pub(super) call: &'static str,
    pub(super) queue: cl_command_queue,
    pub(super) mem: cl_mem,
    pub(super) blocking: bool,
    pub(super) waits: &'a [cl_event],
    pub(super) event: *mut cl_event,
}

impl Place {
    pub(super) fn linear(offset: usize, size: usize) -> Self {
        let (origin, region) = ([offset, 0, 0], [size, 1, 1]);
        Self {
            shape: shape::LINEAR,
            origin,
            region,
            row_pitch: 0,
            slice_pitch: 0,
            element: 1,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.region.iter().product::<usize>() * self.element
    }

    fn words(&self) -> [u64; 8] {
        let [x, y, z] = self.origin;
        let [width, height, depth] = self.region;
        [
            x,
            y,
            z,
            width,
            height,
            depth,
            self.row_pitch,
            self.slice_pitch,
        ]
        .map(|word| word as u64)
    }

    fn host_box(&self, host: Host) -> HostBox {
        let row = self.region[0] * self.element;
        HostBox::pitched(
            host.start,
            row,
            self.region[1],
            self.region[2],
            host.row_pitch,
            host.slice_pitch,
        )
    }

    /// Cuts a transfer that the worker stages into slabs that it can: of whole rows where a row fits. Gives the host's part of each.
    fn slabs(self, host: Host) -> Vec<(Self, Host)> {
        if self.shape == shape::LINEAR || self.size() <= SLAB_BYTES {
            return vec![(self, host)];
        }
        let columns = (SLAB_BYTES / self.element.max(1)).clamp(1, self.region[0].max(1));
        let rows = (SLAB_BYTES / (columns * self.element).max(1)).clamp(1, self.region[1].max(1));
        let rows = if columns < self.region[0] { 1 } else { rows };
        let mut slabs = Vec::new();
        for z in 0..self.region[2] {
            for y in (0..self.region[1]).step_by(rows) {
                for x in (0..self.region[0]).step_by(columns) {
                    let mut place = self;
                    place.origin[0] += x;
                    place.origin[1] += y;
                    place.origin[2] += z;
                    place.region[0] = columns.min(self.region[0] - x);
                    place.region[1] = rows.min(self.region[1] - y);
                    place.region[2] = 1;
                    let start = host
                        .start
                        .wrapping_add(z * host.slice_pitch + y * host.row_pitch + x * self.element);
                    slabs.push((place, Host { start, ..host }));
                }
            }
        }
        slabs
    }
}

impl Remote {
    /// Writes; returns once the source may be changed when the command blocks.
    pub(super) fn write(&self, command: &Command<'_>, place: Place, host: Host) -> cl_int {
        if place.size() == 0 {
            return self.marker(command);
        }
        self.in_slabs(command, place, host, |command, place, host| {
            self.write_one(command, place, host)
        })
    }

    /// Reads; returns once the data is in place when the command blocks.
    pub(super) fn read(&self, command: &Command<'_>, place: Place, host: Host) -> cl_int {
        if place.size() == 0 {
            return self.marker(command);
        }
        self.in_slabs(command, place, host, |command, place, host| {
            self.read_one(command, place, host)
        })
    }

    fn in_slabs(
        &self,
        command: &Command<'_>,
        place: Place,
        host: Host,
        one: impl Fn(&Command<'_>, Place, Host) -> cl_int,
    ) -> cl_int {
        let slabs = place.slabs(host);
        if let [(place, host)] = slabs.as_slice() {
            return one(command, *place, *host);
        }
        let mut events: Vec<cl_event> = vec![std::ptr::null_mut(); slabs.len()];
        let mut status = CL_SUCCESS;
        for ((place, host), event) in slabs.into_iter().zip(&mut events) {
            let part = Command {
                event: if command.event.is_null() {
                    std::ptr::null_mut()
                } else {
                    event
                },
                ..*command
            };
            status = one(&part, place, host);
            if status != CL_SUCCESS {
                break;
            }
        }
        if status == CL_SUCCESS && !command.event.is_null() {
            // SAFETY: the queue and the events are this session's own; `event` is writable by the caller's contract.
            status = unsafe {
                self.clEnqueueMarkerWithWaitList(
                    command.queue,
                    events.len() as cl_uint,
                    events.as_ptr(),
                    command.event,
                )
            };
        }
        if status == CL_SUCCESS && !command.event.is_null() {
            // SAFETY: the marker's event was written above.
            let whole = unsafe { command.event.read() };
            let first = events.remove(0).addr() as u64;
            lock(&self.first_parts).insert(whole.addr() as u64, first);
        }
        // Also those of the parts before one that failed.
        for event in events.into_iter().filter(|event| !event.is_null()) {
            self.release_event(event);
        }
        status
    }

    fn write_one(&self, command: &Command<'_>, place: Place, host: Host) -> cl_int {
        let source = place.host_box(host);
        let size = source.size();
        let waits = handles(command.waits);
        let words = place.words();
        let queue = wire::CommandQueueHandle::from_raw(command.queue);
        let mem = wire::MemHandle::from_raw(command.mem);
        let most = tuning().inline_bytes.unwrap_or(INLINE_BYTES);
        let small = size <= most || !self.link().payload.exists();
        if small && self.link().state().take_inline(size as u64, INLINE_CREDIT) {
            let event = self.event_for(command);
            let mut packed = Vec::new();
            let data: &[u8] = if source.is_linear() {
                // SAFETY: the caller's contract of the write: the source is readable.
                unsafe { std::slice::from_raw_parts(host.start, size) }
            } else {
                // SAFETY: as above.
                unsafe { source.gather(0, size, &mut packed) };
                &packed
            };
            let posted = self.post(&wire::WriteInline {
                command_queue: queue,
                mem,
                shape: place.shape,
                place: wire::List::Values(&words),
                size: size as u64,
                data,
                num_events_in_wait_list: waits.len() as u32,
                event_wait_list: (!waits.is_empty()).then_some(wire::List::Values(&waits)),
                event,
            });
            return status_of(posted);
        }
        if let Err(status) = self.await_staged(place) {
            return status;
        }
        let payload = self.mint(PAYLOAD_TAG);
        if let Err(status) = self.link().expect_grants(payload, source) {
            return status;
        }
        let event = self
            .event_for(command)
            .or_else(|| self.event_to_stage(command, place));
        let posted = self.post(&wire::WriteBulk {
            command_queue: queue,
            mem,
            shape: place.shape,
            place: wire::List::Values(&words),
            size: size as u64,
            payload,
            num_events_in_wait_list: waits.len() as u32,
            event_wait_list: (!waits.is_empty()).then_some(wire::List::Values(&waits)),
            event,
        });
        if let Err(status) = posted {
            return status;
        }
        self.note_staged(command, place, event);
        if !command.blocking && tuning().pipeline {
            return CL_SUCCESS;
        }
        // The caller may change its memory when this returns: wait until the last byte has left.
        let started = std::time::Instant::now();
        self.link().flush();
        self.link().wait_write(payload);
        self.link().meter.waited(command.call, started.elapsed());
        match self.link().lost() {
            Some(_) => self.link().lost_status(),
            None if command.blocking => self.failure(command.queue),
            None => CL_SUCCESS,
        }
    }

    fn read_one(&self, command: &Command<'_>, place: Place, host: Host) -> cl_int {
        let target = place.host_box(host);
        let size = target.size();
        let waits = handles(command.waits);
        let awaited = command.blocking || !tuning().pipeline;
        let large = size > INLINE_READ && !awaited;
        if large && let Err(status) = self.await_staged(place) {
            return status;
        }
        let payload = self.mint(PAYLOAD_TAG);
        let own = || large.then(|| self.event_to_stage(command, place)).flatten();
        let event = self.event_for(command).or_else(own);
        let read = Read {
            target,
            landing: Landing::new(size as u64),
            active: 0,
            failed: None,
            event: event.map(|event| event.0),
            told_by: match awaited {
                true => ToldBy::Call,
                false => ToldBy::Queue(command.queue.addr() as u64),
            },
            place: (0, 0),
            covered: match awaited {
                true => self.reads_before(command.queue.addr() as u64),
                false => Covered::new(),
            },
        };
        {
            let mut state = self.link().state();
            state.reads.insert(payload, read);
            if let Some(known) = event.and_then(|event| state.events.get_mut(&event.0)) {
                known.read = Some(payload);
            }
        }
        if !awaited {
            self.link().raise_interest();
        }
        let words = place.words();
        let posted = self.post(&wire::Read {
            command_queue: wire::CommandQueueHandle::from_raw(command.queue),
            mem: wire::MemHandle::from_raw(command.mem),
            shape: place.shape,
            place: wire::List::Values(&words),
            size: size as u64,
            payload,
            urgent: u32::from(command.blocking),
            num_events_in_wait_list: waits.len() as u32,
            event_wait_list: (!waits.is_empty()).then_some(wire::List::Values(&waits)),
            event,
        });
        if let Err(status) = posted {
            self.link().state().withdraw(payload);
            self.link().notify();
            return status;
        }
        if large {
            self.note_staged(command, place, event);
        }
        if !awaited {
            return CL_SUCCESS;
        }
        let started = std::time::Instant::now();
        self.link().flush();
        let outcome = match size <= INLINE_READ && command.blocking {
            true => self.link().wait_data(payload, tuning().spin_for_answer),
            false => self.link().wait_read(payload),
        };
        self.link().meter.waited(command.call, started.elapsed());
        match outcome {
            Ok(()) => self.failure(command.queue),
            Err(status) => status,
        }
    }

    /// Waits until the worker has room to stage a transfer. What it stages may wait for what the application does next: then this does not.
    fn await_staged(&self, place: Place) -> Result<(), cl_int> {
        let size = place.size() as u64;
        if place.shape == shape::LINEAR || self.link().state().fits_staged(size, STAGED_CREDIT) {
            return Ok(());
        }
        self.link().flush();
        self.link().wait_told(|state| {
            let goes_on = state.fits_staged(size, STAGED_CREDIT) || state.awaits_application();
            goes_on.then_some(())
        })
    }

    /// An event that tells when a transfer is staged no more, where the application has asked for none.
    fn event_to_stage(&self, command: &Command<'_>, place: Place) -> Option<wire::EventHandle> {
        (place.shape != shape::LINEAR).then(|| self.mint_event(command.queue.addr() as u64))
    }

    /// Counts a transfer that the worker stages until its event has ended.
    fn note_staged(&self, command: &Command<'_>, place: Place, event: Option<wire::EventHandle>) {
        let Some(event) = event.filter(|_| place.shape != shape::LINEAR) else {
            return;
        };
        let size = place.size() as u64;
        self.link().state().staged.push((event.0, size));
        // With a callback it is known until it has ended, whoever releases it.
        self.on_complete(event.to_raw(), Box::new(|_| ()));
        if command.event.is_null() {
            self.release_event(event.to_raw());
        }
    }

    fn event_for(&self, command: &Command<'_>) -> Option<wire::EventHandle> {
        if command.event.is_null() {
            return None;
        }
        let handle = self.mint_event(command.queue.addr() as u64);
        // SAFETY: the caller's contract: an event pointer that is not NULL is writable.
        unsafe { command.event.write(handle.to_raw()) };
        Some(handle)
    }
}

/// Payload numbers come from the handles' counter, under a kind of their own.
const PAYLOAD_TAG: u8 = 0xff;

fn handles(events: &[cl_event]) -> SmallVec<[wire::EventHandle; 8]> {
    events
        .iter()
        .map(|event| wire::EventHandle::from_raw(*event))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_or_a_row_larger_than_a_slab_is_cut_too() {
        let start = std::ptr::null_mut();
        let size = 2 * SLAB_BYTES + 5;
        let range = Place {
            shape: shape::SVM,
            ..Place::linear(4096, size)
        };
        let host = Host {
            start,
            row_pitch: size,
            slice_pitch: size,
        };
        let cut = |slabs: Vec<(Place, Host)>| -> Vec<(usize, usize, usize)> {
            let part =
                |(place, host): (Place, Host)| (place.origin[0], place.size(), host.start.addr());
            slabs.into_iter().map(part).collect()
        };
        assert_eq!(
            cut(range.slabs(host)),
            [
                (4096, SLAB_BYTES, 0),
                (4096 + SLAB_BYTES, SLAB_BYTES, SLAB_BYTES),
                (4096 + 2 * SLAB_BYTES, 5, 2 * SLAB_BYTES)
            ]
        );
        let texels = SLAB_BYTES / 16 + 1;
        let row = Place {
            shape: shape::IMAGE,
            origin: [2, 0, 0],
            region: [texels, 1, 1],
            row_pitch: 0,
            slice_pitch: 0,
            element: 16,
        };
        assert_eq!(
            cut(row.slabs(host)),
            [(2, SLAB_BYTES, 0), (2 + texels - 1, 16, SLAB_BYTES)]
        );
    }

    #[test]
    fn a_large_box_is_cut_into_slabs_of_whole_rows() {
        let place = Place {
            shape: shape::RECT,
            origin: [4, 10, 2],
            region: [1 << 20, 40, 3],
            row_pitch: 2 << 20,
            slice_pitch: 100 << 20,
            element: 1,
        };
        let host = Host {
            start: std::ptr::null_mut(),
            row_pitch: 1 << 20,
            slice_pitch: 40 << 20,
        };
        let slabs = place.slabs(host);
        assert_eq!(
            slabs.iter().map(|(place, _)| place.size()).sum::<usize>(),
            place.size()
        );
        assert!(slabs.iter().all(|(place, _)| place.size() <= SLAB_BYTES));
        assert_eq!(slabs[1].0.origin, [4, 26, 2]);
        assert_eq!(slabs[1].1.start.addr(), 16 << 20);
        assert_eq!(slabs[3].0.origin, [4, 10, 3]);
        assert_eq!(slabs[3].1.start.addr(), 40 << 20);
    }
}
