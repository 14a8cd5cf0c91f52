//! Memory apart from its addresses: at those that another server's driver chose, which a session that comes from there has, and memory that may
//! be [swapped](crate::swap). Each run of whole pieces of it is memory of its own, which goes with the last allocation in it.

use std::collections::BTreeMap;

use towline_backend::cuda::*;

use super::region::Way;
use super::swap::{Enter, HostCopy, Part, copy};

/// Physical memory comes in pieces of this size.
pub(crate) const PIECE: u64 = 2 << 20;

/// Addresses in a row with memory behind them.
struct Run {
    size: u64,
    device: CUdevice,
    /// Other devices that reach it.
    peers: Vec<CUdevice>,
    /// `None` while it is swapped out.
    memory: Option<CUmemGenericAllocationHandle>,
    /// Where its contents are while it is swapped out.
    host: Option<HostCopy>,
    /// Allocations in it that have not been freed.
    live: usize,
    /// The span that it lies in.
    span: u64,
}

/// Reserved addresses.
struct Span {
    size: u64,
    users: usize,
}

/// Such memory of a session.
#[derive(Default)]
pub(crate) struct Placed {
    spans: BTreeMap<u64, Span>,
    runs: BTreeMap<u64, Run>,
    /// The run of each allocation.
    allocations: BTreeMap<u64, u64>,
}

/// Runs of whole pieces that allocations take, and how many begin in each; `None` where they leave the span, are empty, or overlap.
fn runs_of(allocations: &[[u64; 2]], span: (u64, u64)) -> Option<Vec<(u64, u64, usize)>> {
    let end_of_span = span.0.checked_add(span.1)?;
    let mut sorted = allocations.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<(u64, u64, usize)> = Vec::new();
    let mut free_from = span.0;
    for [start, size] in sorted {
        if size == 0 || start < free_from {
            return None;
        }
        free_from = start.checked_add(size)?;
        let end = free_from
            .checked_next_multiple_of(PIECE)
            .filter(|end| *end <= end_of_span)?;
        match runs.last_mut() {
            Some((_, last, count)) if start < *last => {
                *last = end.max(*last);
                *count += 1;
            }
            _ => runs.push((start / PIECE * PIECE, end, 1)),
        }
    }
    Some(runs)
}

/// Bytes of memory that [`Placed::place`] takes; `None` for what it refuses.
pub(crate) fn bytes_of(allocations: &[[u64; 2]], span: (u64, u64)) -> Option<u64> {
    let runs = runs_of(allocations, span)?;
    Some(runs.iter().map(|(start, end, _)| end - start).sum())
}

pub(super) fn check(status: CUresult) -> Result<(), CUresult> {
    match status {
        CUDA_SUCCESS => Ok(()),
        status => Err(status),
    }
}

impl Placed {
    /// Reserves a span of addresses, once, for one user more.
    pub(crate) fn hold(&mut self, api: &dyn CudaApi, span: (u64, u64)) -> Result<(), CUresult> {
        let (start, size) = span;
        if size == 0 || !start.is_multiple_of(PIECE) || !size.is_multiple_of(PIECE) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let Some(held) = self.spans.get_mut(&start) {
            if held.size != size {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            held.users += 1;
            return Ok(());
        }
        let mut address: CUdeviceptr = 0;
        // SAFETY: one place for the address.
        check(unsafe { api.cuMemAddressReserve(&raw mut address, size as usize, 0, start, 0) })?;
        if address != start {
            free_addresses(api, address, size);
            return Err(CUDA_ERROR_ALREADY_MAPPED);
        }
        self.spans.insert(start, Span { size, users: 1 });
        Ok(())
    }

    /// One user of a span less.
    pub(crate) fn let_go(&mut self, api: &dyn CudaApi, start: u64) {
        let Some(held) = self.spans.get_mut(&start) else {
            return;
        };
        held.users -= 1;
        if held.users == 0 {
            free_addresses(api, start, held.size);
            self.spans.remove(&start);
        }
    }

    /// Makes memory of a device for these allocations (start and size), all of it or none. `peers` reach it too.
    pub(crate) fn place(
        &mut self,
        api: &dyn CudaApi,
        device: CUdevice,
        peers: &[CUdevice],
        span: (u64, u64),
        allocations: &[[u64; 2]],
    ) -> Result<(), CUresult> {
        let runs = runs_of(allocations, span).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let is_taken = |(start, end, _): &(u64, u64, usize)| {
            let before = self.runs.range(..end).next_back();
            before.is_some_and(|(at, run)| at + run.size > *start)
        };
        if runs.iter().any(is_taken) {
            return Err(CUDA_ERROR_ALREADY_MAPPED);
        }
        let mut made: Vec<(u64, Run)> = Vec::new();
        for (start, end, live) in runs {
            let size = end - start;
            let backed = self.hold(api, span).and_then(|()| {
                let backed = back(api, device, peers, (start, size));
                backed.inspect_err(|_| self.let_go(api, span.0))
            });
            match backed {
                Ok(memory) => {
                    let run = Run {
                        size,
                        device,
                        peers: peers.to_vec(),
                        memory: Some(memory),
                        host: None,
                        live,
                        span: span.0,
                    };
                    made.push((start, run));
                }
                Err(status) => {
                    for (at, run) in made {
                        end_run(api, at, &run);
                        self.let_go(api, span.0);
                    }
                    return Err(status);
                }
            }
        }
        self.runs.extend(made);
        for [start, _] in allocations {
            if let Some((run, _)) = self.runs.range(..=*start).next_back() {
                self.allocations.insert(*start, *run);
            }
        }
        Ok(())
    }

    /// Makes memory of a device for one allocation, wherever there are addresses, and gives its address.
    pub(crate) fn allocate(
        &mut self,
        api: &dyn CudaApi,
        device: CUdevice,
        peers: &[CUdevice],
        size: u64,
    ) -> Result<CUdeviceptr, CUresult> {
        let size = whole_pieces(size).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut start: CUdeviceptr = 0;
        // SAFETY: one place for the address.
        check(unsafe { api.cuMemAddressReserve(&raw mut start, size as usize, 0, 0, 0) })?;
        let memory = back(api, device, peers, (start, size))
            .inspect_err(|_| free_addresses(api, start, size))?;
        let run = Run {
            size,
            device,
            peers: peers.to_vec(),
            memory: Some(memory),
            host: None,
            live: 1,
            span: start,
        };
        self.spans.insert(start, Span { size, users: 1 });
        self.runs.insert(start, run);
        self.allocations.insert(start, start);
        Ok(start)
    }

    /// Bytes that [`Self::swap_out`] would free.
    pub(crate) fn swappable(&self) -> u64 {
        let there = self.runs.values().filter(|run| run.memory.is_some());
        there.map(|run| run.size).sum()
    }

    /// Bytes on a device, or that were there before they were swapped out.
    pub(crate) fn bytes_on(&self, device: CUdevice) -> u64 {
        let there = self.runs.values().filter(|run| run.device == device);
        there.map(|run| run.size).sum()
    }

    /// Bytes that are swapped out.
    pub(crate) fn lacking(&self) -> u64 {
        let out = self.runs.values().filter(|run| run.memory.is_none());
        out.map(|run| run.size).sum()
    }

    /// Moves all contents to the host and frees the memory, or leaves all as it was. Nothing uses the memory; `enter` makes a context of a device
    /// current.
    pub(crate) fn swap_out(&mut self, api: &dyn CudaApi, enter: Enter<'_>) -> Result<(), CUresult> {
        let runs = self.runs.values_mut();
        let placed = runs.map(|run| HostCopy::new(run.size).map(|host| run.host = Some(host)));
        let copied = placed.fold(Ok(()), Result::and);
        let copied = copied.and_then(|()| copy(api, enter, &self.parts(), Way::ToHost));
        match copied {
            Ok(()) => self.unmap(api),
            Err(_) => self.forget_copies(),
        }
        copied
    }

    /// Makes memory for what is swapped out and moves the contents back, all of it or nothing.
    pub(crate) fn swap_in(&mut self, api: &dyn CudaApi, enter: Enter<'_>) -> Result<(), CUresult> {
        let backed = self.back_all(api);
        let backed = backed.and_then(|()| copy(api, enter, &self.parts(), Way::ToDevice));
        match backed {
            Ok(()) => self.forget_copies(),
            Err(_) => self.unmap(api),
        }
        backed
    }

    /// Those of a device follow each other.
    fn parts(&self) -> Vec<Part> {
        let runs = self.runs.iter();
        let copies = runs.filter_map(|(start, run)| Some((*start, run, run.host.as_ref()?)));
        let mut copies: Vec<_> = copies.collect();
        copies.sort_by_key(|(_, run, _)| run.device);
        let parts = copies
            .into_iter()
            .flat_map(|(start, run, host)| host.parts(run.device, start));
        parts.collect()
    }

    /// Takes all memory off its addresses.
    fn unmap(&mut self, api: &dyn CudaApi) {
        for (start, run) in &mut self.runs {
            end_run(api, *start, run);
            run.memory = None;
        }
    }

    fn forget_copies(&mut self) {
        self.runs.values_mut().for_each(|run| run.host = None);
    }

    fn back_all(&mut self, api: &dyn CudaApi) -> Result<(), CUresult> {
        for (start, run) in &mut self.runs {
            if run.memory.is_none() {
                run.memory = Some(back(api, run.device, &run.peers, (*start, run.size))?);
            }
        }
        Ok(())
    }

    /// Whether an allocation is of this kind.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.allocations.contains_key(&address)
    }

    /// Frees an allocation, which nothing uses any more, and gives the bytes of memory that went with it: a run goes as a whole.
    pub(crate) fn free(&mut self, api: &dyn CudaApi, address: u64) -> u64 {
        let Some(at) = self.allocations.remove(&address) else {
            return 0;
        };
        let Some(run) = self.runs.get_mut(&at) else {
            return 0;
        };
        run.live -= 1;
        if run.live > 0 {
            return 0;
        }
        let Some(run) = self.runs.remove(&at) else {
            return 0;
        };
        end_run(api, at, &run);
        self.let_go(api, run.span);
        run.memory.map_or(0, |_| run.size)
    }
}

/// Backs reserved addresses.
fn back(
    api: &dyn CudaApi,
    device: CUdevice,
    peers: &[CUdevice],
    (start, size): (u64, u64),
) -> Result<CUmemGenericAllocationHandle, CUresult> {
    let location = |id| CUmemLocation {
        r#type: CU_MEM_LOCATION_TYPE_DEVICE,
        either: CUmemLocation_either { id },
    };
    let prop = CUmemAllocationProp {
        r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: 0,
        location: location(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_allocFlags {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    };
    let mut memory: CUmemGenericAllocationHandle = 0;
    let bytes = size as usize;
    // SAFETY: one place for the handle; the properties are a local.
    check(unsafe { api.cuMemCreate(&raw mut memory, bytes, &raw const prop, 0) })?;
    // SAFETY: the addresses are reserved, and the memory is as long.
    let mapped = check(unsafe { api.cuMemMap(start, bytes, 0, memory, 0) });
    let usable = mapped.and_then(|()| {
        let devices = std::iter::once(&device).chain(peers);
        let access: Vec<CUmemAccessDesc> = devices
            .map(|device| CUmemAccessDesc {
                location: location(*device),
                flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            })
            .collect();
        // SAFETY: as many descriptors as said; all of it is mapped.
        let allowed =
            check(unsafe { api.cuMemSetAccess(start, bytes, access.as_ptr(), access.len()) });
        if allowed.is_err() {
            // SAFETY: it was mapped just now, and nothing uses it.
            unsafe { api.cuMemUnmap(start, bytes) };
        }
        allowed
    });
    if let Err(status) = usable {
        // SAFETY: the reference is ours.
        unsafe { api.cuMemRelease(memory) };
        return Err(status);
    }
    Ok(memory)
}

/// Takes the memory off its addresses, if there is any.
fn end_run(api: &dyn CudaApi, start: u64, run: &Run) {
    let Some(memory) = run.memory else {
        return;
    };
    // SAFETY: nothing uses the memory any more.
    unsafe { api.cuMemUnmap(start, run.size as usize) };
    // SAFETY: the reference is ours.
    unsafe { api.cuMemRelease(memory) };
}

/// Bytes of the pieces that so many bytes take.
pub(crate) fn whole_pieces(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PIECE)
}

fn free_addresses(api: &dyn CudaApi, start: u64, size: u64) {
    // SAFETY: nothing is mapped there any more.
    unsafe { api.cuMemAddressFree(start, size as usize) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x2100_0000_0000;

    #[test]
    fn allocations_that_share_a_piece_are_one_run() {
        let allocations = [
            [AT + 512, 1024],
            [AT + 8192, PIECE],
            [AT + 3 * PIECE, 1],
            [AT + 4 * PIECE, PIECE],
        ];
        let runs = runs_of(&allocations, (AT, 64 * PIECE)).expect("within the span");
        let at = |piece: u64| AT + piece * PIECE;
        assert_eq!(
            runs,
            [(at(0), at(2), 2), (at(3), at(4), 1), (at(4), at(5), 1)]
        );
    }

    #[test]
    fn allocations_outside_of_the_span_are_refused() {
        let span = (AT, 4 * PIECE);
        assert_eq!(runs_of(&[[AT - 512, 512]], span), None);
        assert_eq!(runs_of(&[[AT + 3 * PIECE, PIECE + 1]], span), None);
        assert_eq!(runs_of(&[[AT, u64::MAX]], span), None);
    }

    #[test]
    fn empty_allocations_and_those_in_others_are_refused() {
        let span = (AT, 4 * PIECE);
        assert_eq!(runs_of(&[[AT, 0]], span), None);
        assert_eq!(runs_of(&[[AT, 512], [AT, 512]], span), None);
        assert_eq!(runs_of(&[[AT, PIECE], [AT + 512, 512]], span), None);
    }

    #[test]
    fn whole_pieces_are_what_allocations_take() {
        let span = (AT, 4 * PIECE);
        let allocations = [[AT + 512, 512], [AT + 1024, 512], [AT + 2 * PIECE, 1]];
        assert_eq!(bytes_of(&allocations, span), Some(2 * PIECE));
    }
}
