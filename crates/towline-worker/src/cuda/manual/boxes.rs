//! Boxes: of arrays, and of memory with pitches.

use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::error::ProtocolError;

use super::transfer::read_failed;
use crate::cuda::pinned::{Block, SMALL};
use crate::cuda::region::{Area, Region, Way, blank};
use crate::cuda::session::Session;
use crate::cuda::shared::Shared;
use crate::cuda::streams::{Places, Target};
use crate::link::Raw;

/// Copies the rows of a box to the device, from byte `next` of them on. The driver reads ordinary memory of a box when it likes, so they
/// go through blocks, which `take` gives; it stops where there is none.
fn write_captured(
    shared: &Arc<Shared>,
    target: &Target,
    region: Region,
    data: &[u8],
    next: &mut usize,
    take: impl Fn(&Shared, &Target) -> Result<Option<Block>, CUresult>,
) -> CUresult {
    while let Some(rest) = data.get(*next..).filter(|rest| !rest.is_empty()) {
        let block = match take(shared, target) {
            Ok(Some(block)) => block,
            Ok(None) => return CUDA_SUCCESS,
            Err(status) => return status,
        };
        let length = region.window(*next as u64, data.len() as u64);
        let length = length.min(SMALL);
        let Some(part) = rest.get(..length) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        // SAFETY: the block has room for the part, and nobody else uses it.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), block.memory.0.cast(), length) };
        let (api, stream, part) = (&*shared.api, target.stream(), (*next as u64, length));
        // SAFETY: the block holds the bytes and is not given back before the copy is done.
        let status = unsafe {
            region.copy(api, stream, Way::ToDevice, part, block.memory, || {
                shared.enqueued(target);
            })
        };
        // After a failure too: a part of the copy may be under way.
        let given = shared.give_small_behind(target, block);
        if status != CUDA_SUCCESS {
            return status;
        }
        if let Err(status) = given {
            return status;
        }
        *next += length;
    }
    CUDA_SUCCESS
}

impl Session {
    /// The stream and the box that a request names, which must have `size` bytes.
    fn place(
        &self,
        stream: wire::StreamHandle,
        array: wire::ArrayHandle,
        address: u64,
        place: &List<'_, u64>,
        size: u64,
    ) -> Result<Result<(Target, Region), CUresult>, ProtocolError> {
        let target = self.target(stream)?;
        let array = self.optional(array.0, wire::ArrayHandle::TAG)?;
        let words: Vec<u64> = place.iter().collect();
        Ok(target.and_then(|target| {
            let area = Area::new(array?, address, &words);
            let area = area.filter(|area| area.bytes() == size);
            area.map(|area| (target, Region::Box(area)))
                .ok_or(CUDA_ERROR_INVALID_VALUE)
        }))
    }

    pub(crate) fn WriteBox(
        &mut self,
        number: u64,
        request: wire::WriteBox<'_>,
    ) -> Result<(), ProtocolError> {
        let call = <wire::WriteBox<'_> as Request<'_>>::ID;
        let wire::WriteBox {
            stream,
            array,
            address,
            ref place,
            payload,
            size,
            data,
        } = request;
        let to = self.place(stream, array, address, place, size)?;
        let Some(data) = data else {
            self.write_payload(number, call, stream, to, (size, payload));
            return Ok(());
        };
        let (target, region) = match to {
            Ok(to) => to,
            Err(status) => {
                self.shared.retire(data.len() as u64);
                self.shared.settle(number, call, stream.0, status);
                return Ok(());
            }
        };
        let mut next = 0;
        if self.shared.is_clear(&target, &[]) {
            let status = self.run(&target, |shared, target| {
                write_captured(shared, target, region, data, &mut next, Shared::take_small)
            });
            if status != CUDA_SUCCESS || next == data.len() {
                self.shared.retire(data.len() as u64);
                self.shared.settle(number, call, target.id, status);
                return Ok(());
            }
        }
        let data: Box<[u8]> = data.into();
        let go = move |shared: &Arc<Shared>, target: &Target| {
            let take = Shared::await_small;
            let status = write_captured(shared, target, region, &data, &mut next, take);
            shared.retire(data.len() as u64);
            shared.tell_retired();
            status
        };
        self.park(number, call, &target, Places::new(), go);
        Ok(())
    }

    pub(crate) fn ReadBox(
        &mut self,
        number: u64,
        request: wire::ReadBox<'_>,
    ) -> Result<(), ProtocolError> {
        let call = <wire::ReadBox<'_> as Request<'_>>::ID;
        let wire::ReadBox {
            stream,
            array,
            address,
            ref place,
            size,
            payload,
            urgent,
        } = request;
        match self.place(stream, array, address, place, size)? {
            Ok((target, region)) => {
                self.read_region(number, call, target, region, (size, payload), urgent != 0);
            }
            Err(status) => read_failed(&self.shared, payload, status),
        }
        Ok(())
    }

    pub(crate) fn CopyBox(
        &mut self,
        number: u64,
        request: wire::CopyBox<'_>,
    ) -> Result<(), ProtocolError> {
        let call = <wire::CopyBox<'_> as Request<'_>>::ID;
        let target = self.target(request.stream)?;
        let array = |handle: wire::ArrayHandle| self.optional(handle.0, wire::ArrayHandle::TAG);
        let arrays = (
            array(request.source_array)?,
            array(request.destination_array)?,
        );
        let context = |handle: wire::ContextHandle| {
            self.native(handle.0, wire::ContextHandle::TAG)
                .map(|native| native.map(Raw))
        };
        let contexts = (
            context(request.source_context)?,
            context(request.destination_context)?,
        );
        let ready = target.and_then(|target| {
            let arrays = (arrays.0?, arrays.1?);
            Ok((target, arrays, (contexts.0?, contexts.1?)))
        });
        let (target, arrays, contexts) = match ready {
            Ok(ready) => ready,
            Err(status) => {
                self.shared.settle(number, call, request.stream.0, status);
                return Ok(());
            }
        };
        let words: Vec<usize> = request.place.iter().map(|word| word as usize).collect();
        let (source, destination) = (request.source, request.destination);
        let go = move |shared: &Arc<Shared>, target: &Target| {
            let addresses = (source, destination);
            let status = copy(shared, target, arrays, addresses, contexts, &words);
            shared.enqueued(target);
            status
        };
        self.issue(number, call, &target, Places::new(), go);
        Ok(())
    }
}

/// Copies a box on the device, or between two. Each pair is of the source and the destination.
fn copy(
    shared: &Shared,
    target: &Target,
    arrays: (Raw, Raw),
    addresses: (u64, u64),
    contexts: (Raw, Raw),
    words: &[usize],
) -> CUresult {
    let kind = |array: Raw| {
        if array.0.is_null() {
            CU_MEMORYTYPE_DEVICE
        } else {
            CU_MEMORYTYPE_ARRAY
        }
    };
    let &[
        x,
        y,
        z,
        level,
        pitch,
        slice,
        to_x,
        to_y,
        to_z,
        to_level,
        to_pitch,
        to_slice,
        width,
        height,
        depth,
    ] = words
    else {
        return CUDA_ERROR_INVALID_VALUE;
    };
    let mut copy = blank();
    copy.srcMemoryType = kind(arrays.0);
    (copy.srcArray, copy.srcDevice) = (arrays.0.0.cast(), addresses.0);
    (copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcLOD) = (x, y, z, level);
    (copy.srcPitch, copy.srcHeight) = (pitch, slice);
    copy.dstMemoryType = kind(arrays.1);
    (copy.dstArray, copy.dstDevice) = (arrays.1.0.cast(), addresses.1);
    (copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstLOD) = (to_x, to_y, to_z, to_level);
    (copy.dstPitch, copy.dstHeight) = (to_pitch, to_slice);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (width, height, depth);
    if contexts.0.0.is_null() && contexts.1.0.is_null() {
        // SAFETY: the arrays and the stream are live; the driver judges the rest.
        return unsafe {
            shared
                .api
                .cuMemcpy3DAsync_v2(&raw const copy, target.stream())
        };
    }
    let here = target.context.native;
    let or_here = |context: Raw| if context.0.is_null() { here } else { context };
    let copy = between(&copy, or_here(contexts.0), or_here(contexts.1));
    // SAFETY: as above; the contexts are live.
    unsafe {
        shared
            .api
            .cuMemcpy3DPeerAsync(&raw const copy, target.stream())
    }
}

/// The copy between two contexts.
fn between(copy: &CUDA_MEMCPY3D, source: Raw, destination: Raw) -> CUDA_MEMCPY3D_PEER {
    CUDA_MEMCPY3D_PEER {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcLOD: copy.srcLOD,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcContext: source.0.cast(),
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstLOD: copy.dstLOD,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstContext: destination.0.cast(),
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
    }
}
