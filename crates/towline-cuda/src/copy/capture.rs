//! Copies and fills on captured streams: they become nodes.

use std::ffi::c_void;
use std::ptr::null_mut;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use super::Mode;
use super::boxes::{BoxCopy, Memory, Side};
use crate::driver::{Acting, Driver};
use crate::graph::Captured;

/// One side of a copy node: kind, address on the host, address on the device, array.
fn described(side: &Side) -> (CUmemorytype, *mut c_void, u64, CUarray) {
    match side.memory {
        Memory::Host(start) => (CU_MEMORYTYPE_HOST, start.start().cast(), 0, null_mut()),
        Memory::Device(address) => (CU_MEMORYTYPE_DEVICE, null_mut(), address, null_mut()),
        Memory::Array(array) => {
            let array = wire::ArrayHandle(array).to_raw();
            (CU_MEMORYTYPE_ARRAY, null_mut(), 0, array)
        }
    }
}

/// A copy as copy nodes have it.
fn node(copy: &BoxCopy) -> CUDA_MEMCPY3D {
    let (from, to) = (&copy.from, &copy.to);
    let [width, height, depth] = copy.size;
    let (from_kind, from_host, from_device, from_array) = described(from);
    let (to_kind, to_host, to_device, to_array) = described(to);
    let pitch = |side: &Side| match side.pitch {
        0 => side.start[0] + width,
        pitch => pitch,
    };
    let rows = |side: &Side| match side.height {
        0 => side.start[1] + height,
        rows => rows,
    };
    CUDA_MEMCPY3D {
        srcXInBytes: from.start[0],
        srcY: from.start[1],
        srcZ: from.start[2],
        srcLOD: 0,
        srcMemoryType: from_kind,
        srcHost: from_host,
        srcDevice: from_device,
        srcArray: from_array,
        reserved0: null_mut(),
        srcPitch: pitch(from),
        srcHeight: rows(from),
        dstXInBytes: to.start[0],
        dstY: to.start[1],
        dstZ: to.start[2],
        dstLOD: 0,
        dstMemoryType: to_kind,
        dstHost: to_host,
        dstDevice: to_device,
        dstArray: to_array,
        reserved1: null_mut(),
        dstPitch: pitch(to),
        dstHeight: rows(to),
        WidthInBytes: width,
        Height: height,
        Depth: depth,
    }
}

impl Driver {
    /// Captures a copy. What the application waits for, or may change at once, cannot be captured.
    pub(super) fn capture_copy(
        &self,
        acting: &Acting<'_>,
        captured: &Captured<'_>,
        copy: &BoxCopy,
        mode: Mode,
    ) -> Result<(), CUresult> {
        if mode != Mode::Async {
            return Err(captured.refuse());
        }
        let node = node(copy);
        if captured.fills_body() {
            self.reach_pins(&node)?;
        }
        captured.add(self.copy_content(&node, acting.context.number)?)
    }
}
