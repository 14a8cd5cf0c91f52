//! Copies between the client's memory and the device's, and on the device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::error::ProtocolError;
use towline_wire::push::Push;

use crate::cuda::context::Context;
use crate::cuda::pinned::{Block, LARGE, SMALL};
use crate::cuda::region::{Region, Way};
use crate::cuda::session::Session;
use crate::cuda::shared::Shared;
use crate::cuda::streams::{Places, Target};
use crate::link::Raw;

/// Most that the driver copies out of ordinary memory before the call returns, without waiting for the stream.
const CAPTURED: usize = 64 << 10;
/// Windows of a stream's transfers that are under way at once: one on the network, one on the bus, and one each way to spare.
const WINDOWS: usize = 4;

/// Copies bytes to the device; the driver has them when this returns.
fn write_captured(shared: &Shared, target: &Target, address: CUdeviceptr, data: &[u8]) -> CUresult {
    let mut at = address;
    for part in data.chunks(CAPTURED) {
        // SAFETY: the bytes are there until the driver has taken them; it judges the address.
        let status = unsafe {
            shared
                .api
                .cuMemcpyHtoDAsync_v2(at, part.as_ptr().cast(), part.len(), target.stream())
        };
        if status != CUDA_SUCCESS {
            return status;
        }
        shared.enqueued(target);
        at = at.wrapping_add(part.len() as u64);
    }
    CUDA_SUCCESS
}

/// A window of a write that the client may fill.
struct Granted {
    block: Block,
    offset: u64,
    length: usize,
    landed: Receiver<bool>,
}

/// Takes in payload that has no place to go, since the client has to send what it announced.
pub(super) fn discard(shared: &Arc<Shared>, size: u64, payload: u64) {
    shared.start(move |shared| {
        let mut room = vec![0_u8; size.min(LARGE as u64) as usize];
        let mut next = 0;
        while next < size {
            let length = (size - next).min(LARGE as u64);
            let (sender, landed) = channel();
            let done = Box::new(move |all: bool| {
                // The receiver is there until this has run.
                let _ = sender.send(all);
            });
            let memory = Raw(room.as_mut_ptr().cast());
            if let Err(error) = shared.payloads.open(payload, next, length, memory, done) {
                shared.close(&error);
                return;
            }
            shared.push(&Push::Grant {
                payload,
                offset: next,
                length,
            });
            if landed.recv() != Ok(true) {
                return;
            }
            next += length;
        }
    });
}

/// Writes payload as it lands. Runs on the stream's thread: whatever stands behind it on the stream is parked.
pub(super) fn write_bulk(
    shared: &Arc<Shared>,
    target: &Target,
    region: Region,
    size: u64,
    payload: u64,
) -> CUresult {
    let api = &*shared.api;
    let depth = &target.depth;
    let mut granted: VecDeque<Granted> = VecDeque::new();
    let mut next = 0;
    let mut failed = CUDA_SUCCESS;
    while next < size || !granted.is_empty() {
        while next < size && granted.len() + depth.windows() < WINDOWS {
            let length = region.window(next, size);
            let under_way = depth.windows();
            let first = granted.is_empty() && under_way == 0;
            let block = match target.context.pinned.take(api, length, first) {
                Ok(block) => block,
                // The client has to send what it was told to; so wait for a block of our own, or give up on the session.
                Err(_) if !granted.is_empty() => break,
                Err(_) if under_way > 0 => {
                    if !shared.streams.wait_until(|| depth.windows() < under_way) {
                        return CUDA_SUCCESS;
                    }
                    continue;
                }
                Err(status) => {
                    log::error!("no pinned memory for a write");
                    shared.end();
                    return status;
                }
            };
            let (sender, landed) = channel();
            let done = Box::new(move |all: bool| {
                // Nobody listens after a failure.
                let _ = sender.send(all);
            });
            let opened = shared
                .payloads
                .open(payload, next, length as u64, block.memory, done);
            if let Err(error) = opened {
                shared.close(&error);
                return CUDA_SUCCESS;
            }
            shared.push(&Push::Grant {
                payload,
                offset: next,
                length: length as u64,
            });
            granted.push_back(Granted {
                block,
                offset: next,
                length,
                landed,
            });
            next += length as u64;
        }
        let Some(window) = granted.pop_front() else {
            // All blocks are being copied from.
            if !shared.streams.wait_until(|| depth.windows() < WINDOWS) {
                return CUDA_SUCCESS;
            }
            continue;
        };
        if window.landed.recv() != Ok(true) {
            shared.give(&target.context, window.block);
            return CUDA_SUCCESS;
        }
        if failed != CUDA_SUCCESS {
            shared.give(&target.context, window.block);
            continue;
        }
        target.context.enter(api);
        // SAFETY: the block holds the window's bytes and is not given back before the copy is done.
        failed = unsafe {
            region.copy(
                api,
                target.stream(),
                Way::ToDevice,
                (window.offset, window.length),
                window.block.memory,
                || shared.enqueued(target),
            )
        };
        // After a failure too: a part of the copy may be under way.
        match shared.mark(target) {
            // It is not known when the copy is done with the block: it stays out of use.
            Err(status) if failed == CUDA_SUCCESS => failed = status,
            Err(_) => {}
            Ok(mark) => {
                depth.window_begins();
                let (depth, context) = (Arc::clone(depth), Arc::clone(&target.context));
                shared.when_done(target, mark, move |shared, _| {
                    shared.give(&context, window.block);
                    drop(context);
                    depth.window_ends();
                    shared.streams.wake();
                });
            }
        }
    }
    failed
}

/// The end of a read: its data comes, or the reason why not.
pub(super) fn read_failed(shared: &Shared, payload: u64, status: CUresult) {
    shared.look(status);
    shared.post(&Push::NoData { payload, status });
    shared.read_over(payload);
}

/// Enqueues the copy of a part of a region into a block.
///
/// # Safety
/// The block has room, and is not given back before the copy is done.
unsafe fn copy_out(
    shared: &Shared,
    target: &Target,
    region: &Region,
    part: (u64, usize),
    block: Block,
) -> CUresult {
    let (api, stream) = (&*shared.api, target.stream());
    // SAFETY: the caller's contract.
    unsafe {
        region.copy(api, stream, Way::ToHost, part, block.memory, || {
            shared.enqueued(target);
        })
    }
}

impl Shared {
    /// A small block for a copy of the stream, whose context must be current; `None` where one of its own must come back first.
    pub(super) fn take_small(&self, target: &Target) -> Result<Option<Block>, CUresult> {
        let counted = &target.depth.small_blocks;
        let first = counted.load(Ordering::Acquire) == 0;
        match target.context.pinned.take(&*self.api, SMALL, first) {
            Ok(block) => {
                counted.fetch_add(1, Ordering::AcqRel);
                Ok(Some(block))
            }
            Err(CUDA_ERROR_OUT_OF_MEMORY) if !first => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// As [`Self::take_small`], on the stream's thread, which waits for it; `None` when the session is over first.
    pub(super) fn await_small(&self, target: &Target) -> Result<Option<Block>, CUresult> {
        let counted = &target.depth.small_blocks;
        let may_come = || target.context.pinned.has_any() || counted.load(Ordering::Acquire) == 0;
        loop {
            match self.take_small(target) {
                Ok(None) if self.streams.wait_until(may_come) => {}
                taken => return taken,
            }
        }
    }

    /// A copy is done with its small block.
    pub(super) fn give_small(&self, target: &Target, block: Block) {
        target.depth.small_blocks.fetch_sub(1, Ordering::AcqRel);
        self.give(&target.context, block);
    }

    /// Nothing uses a block any more.
    fn give(&self, context: &Context, block: Block) {
        if context.pinned.give(block) {
            self.streams.wake();
        }
    }

    /// As [`Self::give_small`], of a copy that the stream may have.
    pub(super) fn give_small_behind(
        self: &Arc<Self>,
        target: &Target,
        block: Block,
    ) -> Result<(), CUresult> {
        let mark = self.mark(target).inspect_err(|_| self.lose_small(target))?;
        let on = target.clone();
        self.when_done(target, mark, move |shared, _| shared.give_small(&on, block));
        Ok(())
    }

    /// It is not known when a copy is done with its small block, which stays out of use.
    fn lose_small(&self, target: &Target) {
        target.depth.small_blocks.fetch_sub(1, Ordering::AcqRel);
        self.streams.wake();
    }
}

/// Enqueues a read of at most [`SMALL`] bytes into its block: the event behind the copy.
fn start_small_read(
    shared: &Arc<Shared>,
    target: &Target,
    region: &Region,
    block: Block,
    (size, payload): (usize, u64),
) -> Result<Raw, CUresult> {
    // SAFETY: the block has room, and is not given back before the copy is done.
    let status = unsafe { copy_out(shared, target, region, (0, size), block) };
    if status != CUDA_SUCCESS {
        // The first failure is the one to tell of.
        let _ = shared.give_small_behind(target, block);
        return Err(status);
    }
    let mark = shared.mark(target);
    match mark {
        Ok(mark) => shared.read_enqueued(payload, mark),
        Err(_) => shared.lose_small(target),
    }
    mark
}

/// Sends a small read whose copy is done.
fn finish_small_read(
    shared: &Shared,
    target: &Target,
    block: Block,
    (size, payload): (usize, u64),
    status: CUresult,
) {
    // A client that has the data knows the stream to be idle, and asks no more.
    shared.tell_printed();
    if status == CUDA_SUCCESS {
        // SAFETY: the copy is done, and nobody writes to the block.
        let bytes = unsafe { std::slice::from_raw_parts(block.memory.0.cast::<u8>(), size) };
        shared.post(&Push::Data { payload, bytes });
        shared.read_over(payload);
    } else {
        read_failed(shared, payload, status);
    }
    shared.give_small(target, block);
}

/// A small read whose completion a thread waits for in the stream's order.
fn small_read(
    shared: &Arc<Shared>,
    target: &Target,
    region: &Region,
    block: Block,
    read: (usize, u64),
) {
    match start_small_read(shared, target, region, block, read) {
        Err(status) => read_failed(shared, read.1, status),
        Ok(mark) => {
            let on = target.clone();
            shared.when_done(target, mark, move |shared, status| {
                finish_small_read(shared, &on, block, read, status);
            });
        }
    }
}

/// What the windows of a read share.
struct BulkRead {
    payload: u64,
    /// Windows that are not sent yet, and one for the reader itself.
    left: AtomicUsize,
    failed: AtomicI32,
}

impl BulkRead {
    fn fail(&self, status: CUresult) {
        if status != CUDA_SUCCESS {
            self.failed.store(status, Ordering::Release);
        }
    }

    /// A window has been sent, or the reader has enqueued all.
    fn part_over(&self, shared: &Shared) {
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let payload = self.payload;
        match self.failed.load(Ordering::Acquire) {
            CUDA_SUCCESS => {
                shared.tell_printed();
                shared.post(&Push::Sent { payload });
                shared.read_over(payload);
            }
            status => read_failed(shared, payload, status),
        }
        shared.flush();
    }
}

/// Reads window by window. Runs on the stream's thread until the last window is enqueued.
fn bulk_read(shared: &Arc<Shared>, target: &Target, region: &Region, size: u64, payload: u64) {
    let read = Arc::new(BulkRead {
        payload,
        left: AtomicUsize::new(1),
        failed: AtomicI32::new(CUDA_SUCCESS),
    });
    let mut next = 0;
    while next < size && read.failed.load(Ordering::Acquire) == CUDA_SUCCESS {
        let depth = &target.depth;
        if !shared.streams.wait_until(|| depth.windows() < WINDOWS) {
            return;
        }
        let length = region.window(next, size);
        target.context.enter(&*shared.api);
        let last = next + length as u64 == size;
        let under_way = depth.windows();
        match start_window(shared, target, region, (next, length), under_way == 0) {
            Err(CUDA_ERROR_OUT_OF_MEMORY) if under_way > 0 => {
                if !shared.streams.wait_until(|| depth.windows() < under_way) {
                    return;
                }
                continue;
            }
            Err(status) => read.fail(status),
            Ok((block, mark)) => {
                read.left.fetch_add(1, Ordering::AcqRel);
                depth.window_begins();
                if last {
                    shared.read_enqueued(payload, mark);
                }
                let (offset, read, depth) = (next, Arc::clone(&read), Arc::clone(depth));
                let context = Arc::clone(&target.context);
                shared.when_done(target, mark, move |shared, status| {
                    if last {
                        shared.read_copied(payload);
                    }
                    read.fail(status);
                    let (telling, on) = (Arc::clone(shared), block);
                    let done: Box<dyn FnOnce(bool) + Send> = Box::new(move |_| {
                        telling.give(&context, on);
                        drop(context);
                        depth.window_ends();
                        telling.streams.wake();
                        read.part_over(&telling);
                    });
                    if status == CUDA_SUCCESS {
                        let memory = block.memory;
                        let length = length as u64;
                        shared.payloads.send(payload, offset, length, memory, done);
                    } else {
                        done(false);
                    }
                });
            }
        }
        next += length as u64;
    }
    read.part_over(shared);
}

fn start_window(
    shared: &Arc<Shared>,
    target: &Target,
    region: &Region,
    part: (u64, usize),
    first: bool,
) -> Result<(Block, Raw), CUresult> {
    // A window of few bytes is a small block's.
    let block = target.context.pinned.take(&*shared.api, part.1, first)?;
    // SAFETY: the block has room, and is not given back before the copy is done.
    let status = unsafe { copy_out(shared, target, region, part, block) };
    // After a failure too: a part of the copy may be under way.
    let mark = shared.mark(target);
    if status == CUDA_SUCCESS {
        return mark.map(|mark| (block, mark));
    }
    if let Ok(mark) = mark {
        let context = Arc::clone(&target.context);
        shared.when_done(target, mark, move |shared, _| shared.give(&context, block));
    }
    Err(status)
}

impl Session {
    pub(crate) fn WriteInline(
        &mut self,
        number: u64,
        request: wire::WriteInline<'_>,
    ) -> Result<(), ProtocolError> {
        let call = <wire::WriteInline<'_> as Request<'_>>::ID;
        let bytes = request.data.len() as u64;
        let target = match self.target(request.stream)? {
            Ok(target) => target,
            Err(status) => {
                self.shared.retire(bytes);
                self.shared.settle(number, call, request.stream.0, status);
                return Ok(());
            }
        };
        let address = request.address;
        if self.shared.is_clear(&target, &[]) {
            let status = self.run(&target, |shared, target| {
                write_captured(shared, target, address, request.data)
            });
            self.shared.retire(bytes);
            self.shared.settle(number, call, target.id, status);
            return Ok(());
        }
        let data: Box<[u8]> = request.data.into();
        let go = move |shared: &Arc<Shared>, target: &Target| {
            let status = write_captured(shared, target, address, &data);
            shared.retire(data.len() as u64);
            shared.tell_retired();
            status
        };
        self.park(number, call, &target, Places::new(), go);
        Ok(())
    }

    pub(crate) fn WriteBulk(
        &mut self,
        number: u64,
        request: wire::WriteBulk,
    ) -> Result<(), ProtocolError> {
        let call = <wire::WriteBulk as Request<'_>>::ID;
        let wire::WriteBulk {
            stream,
            address,
            size,
            payload,
        } = request;
        let target = self.target(stream)?;
        self.write_payload(
            number,
            call,
            stream,
            target.map(|target| (target, Region::Linear(address))),
            (size, payload),
        );
        Ok(())
    }

    /// Writes payload to a region behind what stands before it on the stream, or takes it in for nothing.
    pub(super) fn write_payload(
        &mut self,
        number: u64,
        call: u16,
        stream: wire::StreamHandle,
        to: Result<(Target, Region), CUresult>,
        (size, payload): (u64, u64),
    ) {
        match to {
            Ok((target, region)) => {
                let go = move |shared: &Arc<Shared>, target: &Target| {
                    write_bulk(shared, target, region, size, payload)
                };
                self.park(number, call, &target, Places::new(), go);
            }
            Err(status) => {
                discard(&self.shared, size, payload);
                self.shared.settle(number, call, stream.0, status);
            }
        }
    }

    pub(crate) fn Read(&mut self, number: u64, request: wire::Read) -> Result<(), ProtocolError> {
        let call = <wire::Read as Request<'_>>::ID;
        let wire::Read {
            stream,
            address,
            size,
            payload,
            urgent,
        } = request;
        match self.target(stream)? {
            Ok(target) => {
                let region = Region::Linear(address);
                self.read_region(number, call, target, region, (size, payload), urgent != 0);
            }
            Err(status) => read_failed(&self.shared, payload, status),
        }
        Ok(())
    }

    /// Reads a region behind what stands before the read on the stream.
    pub(super) fn read_region(
        &mut self,
        number: u64,
        call: u16,
        target: Target,
        region: Region,
        (size, payload): (u64, u64),
        urgent: bool,
    ) {
        self.shared.read_started(payload);
        if size > SMALL as u64 {
            let go = move |shared: &Arc<Shared>, target: &Target| {
                bulk_read(shared, target, &region, size, payload);
                CUDA_SUCCESS
            };
            self.park(number, call, &target, Places::new(), go);
            return;
        }
        let read = (size as usize, payload);
        let shared = Arc::clone(&self.shared);
        let mut block = None;
        if shared.is_clear(&target, &[]) {
            let taken = match target.context.enter(&*self.api) {
                CUDA_SUCCESS => shared.take_small(&target),
                status => Err(status),
            };
            match taken {
                Err(status) => return read_failed(&shared, payload, status),
                Ok(taken) => block = taken,
            }
        }
        let Some(block) = block else {
            let go = move |shared: &Arc<Shared>, target: &Target| {
                match shared.await_small(target) {
                    Ok(Some(block)) => small_read(shared, target, &region, block, read),
                    // The session is over.
                    Ok(None) => {}
                    Err(status) => read_failed(shared, payload, status),
                }
                CUDA_SUCCESS
            };
            self.park(number, call, &target, Places::new(), go);
            return;
        };
        if !urgent || shared.is_watched(&target) {
            return small_read(&shared, &target, &region, block, read);
        }
        // The client waits for this and nothing else: the thread that is awake does so too. Not past a thread that waits for earlier data
        // of the stream, which must not come later: with this data the client takes the stream for idle.
        match start_small_read(&shared, &target, &region, block, read) {
            Err(status) => read_failed(&shared, payload, status),
            Ok(mark) => self.wait(move |shared| {
                target.context.enter(&*shared.api);
                // SAFETY: the event is ours.
                let status = shared
                    .usage
                    .waiting(|| unsafe { shared.api.cuEventSynchronize(mark.0.cast()) });
                finish_small_read(shared, &target, block, read, status);
                target.context.give_event(mark);
            }),
        }
    }

    pub(crate) fn Copy(&mut self, number: u64, request: wire::Copy) -> Result<(), ProtocolError> {
        let call = <wire::Copy as Request<'_>>::ID;
        let target = self.target(request.stream)?;
        let to = self.native(request.destination_context.0, wire::ContextHandle::TAG)?;
        let from = self.native(request.source_context.0, wire::ContextHandle::TAG)?;
        let (target, to, from) = match (target, to, from) {
            (Ok(target), Ok(to), Ok(from)) => (target, Raw(to), Raw(from)),
            (Err(status), ..) | (_, Err(status), _) | (_, _, Err(status)) => {
                self.shared.settle(number, call, request.stream.0, status);
                return Ok(());
            }
        };
        let wire::Copy {
            destination,
            source,
            size,
            ..
        } = request;
        let go = move |shared: &Arc<Shared>, target: &Target| {
            let (to, from, size) = (to, from, size as usize);
            let here = target.context.native;
            let or_here = |context: Raw| if context.0.is_null() { here } else { context };
            let status = if to.0.is_null() && from.0.is_null() {
                // SAFETY: the driver judges the addresses; the stream is live.
                unsafe {
                    shared
                        .api
                        .cuMemcpyDtoDAsync_v2(destination, source, size, target.stream())
                }
            } else {
                // SAFETY: as above; the contexts are live.
                unsafe {
                    shared.api.cuMemcpyPeerAsync(
                        destination,
                        or_here(to).0.cast(),
                        source,
                        or_here(from).0.cast(),
                        size,
                        target.stream(),
                    )
                }
            };
            shared.enqueued(target);
            status
        };
        self.issue(number, call, &target, Places::new(), go);
        Ok(())
    }

    pub(crate) fn Memset(
        &mut self,
        number: u64,
        request: wire::Memset,
    ) -> Result<(), ProtocolError> {
        let call = <wire::Memset as Request<'_>>::ID;
        let target = match self.target(request.stream)? {
            Ok(target) => target,
            Err(status) => {
                self.shared.settle(number, call, request.stream.0, status);
                return Ok(());
            }
        };
        let wire::Memset {
            address,
            pitch,
            value,
            element_size,
            width,
            height,
            ..
        } = request;
        let go = move |shared: &Arc<Shared>, target: &Target| {
            let (api, on) = (&*shared.api, target.stream());
            let (pitch, width, height) = (pitch as usize, width as usize, height as usize);
            let status = match (element_size, height) {
                // SAFETY: in this and the others the driver judges the addresses; the stream is live.
                (1, 1) => unsafe { api.cuMemsetD8Async(address, value as u8, width, on) },
                // SAFETY: as above.
                (2, 1) => unsafe { api.cuMemsetD16Async(address, value as u16, width, on) },
                // SAFETY: as above.
                (4, 1) => unsafe { api.cuMemsetD32Async(address, value, width, on) },
                // SAFETY: as above.
                (1, _) => unsafe {
                    api.cuMemsetD2D8Async(address, pitch, value as u8, width, height, on)
                },
                // SAFETY: as above.
                (2, _) => unsafe {
                    api.cuMemsetD2D16Async(address, pitch, value as u16, width, height, on)
                },
                // SAFETY: as above.
                (4, _) => unsafe {
                    api.cuMemsetD2D32Async(address, pitch, value, width, height, on)
                },
                _ => CUDA_ERROR_INVALID_VALUE,
            };
            shared.enqueued(target);
            status
        };
        self.issue(number, call, &target, Places::new(), go);
        Ok(())
    }
}
