//! Shared virtual memory of the coarse kind: the same addresses here and at the worker, moved by map and unmap.

use std::collections::BTreeMap;

use super::event::status_of;
use super::pages::{self, page_size};
use super::transfer::{Command, Host, Place, shape};
use super::*;

/// The session's allocations and what is mapped of them.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Start to length in bytes, as allocated.
    allocations: BTreeMap<usize, usize>,
    /// Start to (length, may have been written) of what the application has mapped, as often as it has.
    mapped: BTreeMap<usize, Vec<(usize, bool)>>,
}

/// How often another address is asked for when this process uses the one that the worker got.
const TRIES: usize = 16;

impl Regions {
    pub(super) fn is_empty(&self) -> bool {
        self.allocations.is_empty()
    }

    /// Whether so many bytes lie in one allocation: any number is the application's.
    fn holds(&self, address: usize, size: usize) -> bool {
        let below = self.allocations.range(..=address).next_back();
        below.is_some_and(|(start, length)| {
            let end = (address - start).checked_add(size);
            end.is_some_and(|end| end <= *length)
        })
    }

    /// Forgets an allocation and what of it is mapped, and gives its length.
    fn forget(&mut self, start: usize) -> Option<usize> {
        let length = self.allocations.remove(&start)?;
        self.mapped
            .retain(|address, _| *address < start || *address - start >= length);
        Some(length)
    }
}

impl Regions {
    /// Ends one mapping that starts at an address: how much of it may have been written, if any. Nobody says which one of several is meant:
    /// the last to end is one for writing, and until then the others send what that covers.
    fn unmap(&mut self, address: usize) -> Option<Option<usize>> {
        let list = self.mapped.get_mut(&address)?;
        let written = list.iter().filter(|(_, writes)| *writes);
        let written = written.map(|(length, _)| *length).max();
        let reader = list.iter().rposition(|(_, writes)| !writes);
        list.remove(reader.unwrap_or(list.len() - 1));
        if list.is_empty() {
            self.mapped.remove(&address);
        }
        Some(written)
    }

    /// Of the pages of a range, those that no other allocation has: start and length, possibly none.
    fn own_pages(&self, address: usize, size: usize) -> Option<(usize, usize)> {
        let (start, length) = pages(address, size)?;
        let page = page_size();
        // Allocations do not overlap: only the first and the last page can be another's too.
        let others = |page_start: usize| {
            let end = page_start.saturating_add(page);
            let mut near = self.allocations.range(..end).rev();
            near.next()
                .is_some_and(|(other, other_size)| other.saturating_add(*other_size) > page_start)
        };
        let mut end = start + length;
        let mut first = start;
        if others(first) {
            first += page;
        }
        if end > first && others(end - page) {
            end -= page;
        }
        Some((first, end.saturating_sub(first)))
    }
}

/// Nothing is mapped below, whatever a server says: a NULL pointer with an offset must fault.
const LOWEST_ADDRESS: usize = 64 << 10;

/// The pages that hold a range: start and length. `None` where no memory of a program can be.
fn pages(address: usize, size: usize) -> Option<(usize, usize)> {
    let page = page_size();
    let start = address / page * page;
    let end = address.checked_add(size)?.checked_next_multiple_of(page)?;
    (start >= LOWEST_ADDRESS).then_some((start, end - start))
}

impl Remote {
    /// Whether so many bytes lie in one allocation of shared memory.
    pub(super) fn svm_holds(&self, address: *const c_void, size: usize) -> bool {
        lock(&self.svm).holds(address.addr(), size)
    }

    pub(super) fn svm_alloc(
        &self,
        context: cl_context,
        flags: cl_svm_mem_flags,
        size: usize,
        alignment: cl_uint,
    ) -> *mut c_void {
        let context = wire::ContextHandle::from_raw(context);
        let mut refused = Vec::new();
        let mut found = std::ptr::null_mut();
        for _ in 0..TRIES {
            let request = wire::SvmAlloc {
                context,
                flags: flags as u64,
                size: size as u64,
                alignment,
            };
            let Ok(body) = self.call_for("clSVMAlloc", &request) else {
                break;
            };
            let Ok(reply) = wire::SvmAllocReply::decode(&body) else {
                self.malformed();
                break;
            };
            let address = reply.address.unwrap_or_default();
            let mut regions = lock(&self.svm);
            let Some((start, length)) = regions.own_pages(address as usize, size) else {
                drop(regions);
                self.malformed();
                break;
            };
            if length == 0 {
                regions.allocations.insert(address as usize, size);
                found = std::ptr::with_exposed_provenance_mut(address as usize);
                break;
            }
            if pages::map_at(start, length) {
                regions.allocations.insert(address as usize, size);
                found = std::ptr::with_exposed_provenance_mut(address as usize);
                break;
            }
            // An allocation whose pages this process uses already: keep it while asking for another.
            refused.push(address);
        }
        for address in refused {
            let _ = self.post(&wire::SvmFree { context, address });
        }
        found
    }

    pub(super) fn svm_free(&self, context: cl_context, address: *mut c_void) {
        let start = address.addr();
        let mut regions = lock(&self.svm);
        let Some(size) = regions.forget(start) else {
            return;
        };
        if let Some((page, length)) = regions.own_pages(start, size)
            && length > 0
        {
            // SAFETY: the pages were mapped for this allocation and others that are gone; the application gives it up.
            unsafe { pages::unmap(page, length) };
        }
        drop(regions);
        let context = wire::ContextHandle::from_raw(context);
        let _ = self.post(&wire::SvmFree {
            context,
            address: start as u64,
        });
    }

    pub(super) fn svm_map(
        &self,
        command: &Command<'_>,
        flags: cl_map_flags,
        address: *mut c_void,
        size: usize,
    ) -> cl_int {
        if !lock(&self.svm).holds(address.addr(), size) {
            return CL_INVALID_VALUE;
        }
        let writes = flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) as cl_map_flags != 0;
        let mut regions = lock(&self.svm);
        let list = regions.mapped.entry(address.addr()).or_default();
        list.push((size, writes));
        drop(regions);
        let fetched = match flags & CL_MAP_WRITE_INVALIDATE_REGION as cl_map_flags {
            0 => size,
            // Nothing of the old contents is wanted: one byte keeps the place in the order.
            _ => 1,
        };
        self.read(
            command,
            svm_place(address.addr(), fetched),
            host(address, fetched),
        )
    }

    pub(super) fn svm_unmap(&self, command: &Command<'_>, address: *mut c_void) -> cl_int {
        let Some(written) = lock(&self.svm).unmap(address.addr()) else {
            return CL_INVALID_VALUE;
        };
        let Some(size) = written else {
            return self.marker(command);
        };
        self.write(
            command,
            svm_place(address.addr(), size),
            host(address, size),
        )
    }

    pub(super) fn svm_copy(
        &self,
        command: &Command<'_>,
        to: *mut c_void,
        from: *const c_void,
        size: usize,
    ) -> cl_int {
        let (to_svm, from_svm) = {
            let regions = lock(&self.svm);
            (
                regions.holds(to.addr(), size),
                regions.holds(from.addr(), size),
            )
        };
        match (to_svm, from_svm) {
            (true, true) => {
                let waits: Vec<wire::EventHandle> = command
                    .waits
                    .iter()
                    .map(|event| wire::EventHandle::from_raw(*event))
                    .collect();
                let event = (command.blocking || !command.event.is_null())
                    .then(|| self.mint_event(command.queue.addr() as u64));
                let posted = self.post(&wire::SvmCopy {
                    command_queue: wire::CommandQueueHandle::from_raw(command.queue),
                    destination: to.addr() as u64,
                    source: from.addr() as u64,
                    size: size as u64,
                    num_events_in_wait_list: waits.len() as u32,
                    event_wait_list: (!waits.is_empty()).then_some(wire::List::Values(&waits)),
                    event,
                });
                self.hand_out(command, event);
                match (posted, event) {
                    (Ok(()), Some(event)) if command.blocking => self.complete(command, event),
                    (posted, _) => status_of(posted),
                }
            }
            (true, false) => self.write(
                command,
                svm_place(to.addr(), size),
                host(from.cast_mut(), size),
            ),
            (false, true) => self.read(command, svm_place(from.addr(), size), host(to, size)),
            (false, false) => CL_INVALID_VALUE,
        }
    }

    pub(super) fn svm_fill(
        &self,
        command: &Command<'_>,
        to: *mut c_void,
        pattern: &[u8],
        size: usize,
    ) -> cl_int {
        let waits: Vec<wire::EventHandle> = command
            .waits
            .iter()
            .map(|event| wire::EventHandle::from_raw(*event))
            .collect();
        let event =
            (!command.event.is_null()).then(|| self.mint_event(command.queue.addr() as u64));
        let posted = self.post(&wire::SvmFill {
            command_queue: wire::CommandQueueHandle::from_raw(command.queue),
            destination: to.addr() as u64,
            pattern_size: pattern.len() as u64,
            pattern,
            size: size as u64,
            num_events_in_wait_list: waits.len() as u32,
            event_wait_list: (!waits.is_empty()).then_some(wire::List::Values(&waits)),
            event,
        });
        self.hand_out(command, event);
        status_of(posted)
    }

    fn hand_out(&self, command: &Command<'_>, event: Option<wire::EventHandle>) {
        if let Some(event) = event.filter(|_| !command.event.is_null()) {
            // SAFETY: the caller's contract: an event pointer that is not NULL is writable.
            unsafe { command.event.write(event.to_raw()) };
        }
    }

    /// A command that moves nothing keeps its place in the order.
    pub(super) fn marker(&self, command: &Command<'_>) -> cl_int {
        let (count, list) = (command.waits.len() as cl_uint, command.waits.as_ptr());
        let list = if count == 0 { std::ptr::null() } else { list };
        let mut own = std::ptr::null_mut();
        let event = match command.event.is_null() && command.blocking {
            true => &raw mut own,
            false => command.event,
        };
        // SAFETY: the queue and the events are this session's own; `event` is a local, or NULL or writable by the caller's contract.
        let status = unsafe { self.clEnqueueMarkerWithWaitList(command.queue, count, list, event) };
        if status != CL_SUCCESS || !command.blocking {
            return status;
        }
        // SAFETY: a place that the call above has written.
        let marker = unsafe { event.read() };
        self.complete(command, wire::EventHandle::from_raw(marker))
    }

    /// Waits until a command that blocks is complete: for it alone, since others of its queue may wait for what the application does next.
    fn complete(&self, command: &Command<'_>, event: wire::EventHandle) -> cl_int {
        let status = self.wait_for_events(&[event.to_raw()]);
        if command.event.is_null() {
            self.release_event(event.to_raw());
        }
        match status {
            CL_SUCCESS => self.failure(command.queue),
            status => status,
        }
    }
}

fn svm_place(address: usize, size: usize) -> Place {
    Place {
        shape: shape::SVM,
        ..Place::linear(address, size)
    }
}

fn host(start: *mut c_void, size: usize) -> Host {
    Host {
        start: start.cast(),
        row_pitch: size,
        slice_pitch: size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_size_makes_a_range_end_before_it_begins() {
        let mut regions = Regions::default();
        regions.allocations.insert(0x1000, 0x100);
        assert!(regions.holds(0x1000, 0x100));
        assert!(regions.holds(0x10ff, 1));
        assert!(!regions.holds(0x10ff, 2));
        assert!(!regions.holds(0x1001, usize::MAX));
        assert!(!regions.holds(0xfff, 1));
    }

    #[test]
    fn a_page_of_two_allocations_is_mapped_once() {
        let page = page_size();
        let base = 0x7000_0000 / page * page;
        let mut regions = Regions::default();
        regions.allocations.insert(base + 64, 64);
        assert_eq!(regions.own_pages(base + 128, 64), Some((base + page, 0)));
        let across = regions.own_pages(base + 128, page);
        assert_eq!(across, Some((base + page, page)));
        regions.allocations.insert(base + page + 128, 64);
        assert_eq!(
            regions.own_pages(base + 256, page - 128),
            Some((base + page, 0))
        );
        assert_eq!(
            regions.own_pages(base + 2 * page, page),
            Some((base + 2 * page, page))
        );
    }

    #[test]
    fn what_was_mapped_of_freed_memory_is_mapped_no_more() {
        let mut regions = Regions::default();
        regions
            .allocations
            .extend([(0x1000, 0x100), (0x1100, 0x100)]);
        regions
            .mapped
            .extend([(0x1080, vec![(8, true)]), (0x1100, vec![(8, true)])]);
        assert_eq!(regions.forget(0x1000), Some(0x100));
        assert_eq!(regions.mapped.into_keys().collect::<Vec<_>>(), [0x1100]);
    }

    #[test]
    fn each_unmap_at_one_address_sends_writes() {
        let mut regions = Regions::default();
        let maps = vec![(8, false), (16, true), (32, false)];
        regions.mapped.insert(0x1000, maps);
        let ends: Vec<_> = (0..4).map(|_| regions.unmap(0x1000)).collect();
        let sends = Some(Some(16));
        assert_eq!(ends, [sends, sends, sends, None]);
    }
}
