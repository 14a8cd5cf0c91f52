//! Memory of arrays, and copies of boxes.

use super::device::{Allocation, Place, find};
use super::*;

/// Most bytes of an array.
const ARRAY_LIMIT: usize = 8 << 30;

/// What one side of a copy is in.
#[derive(Clone, Copy)]
enum Memory {
    Host(Place),
    Device(u64),
    Array(usize),
}

/// One side of a copy of a box.
#[derive(Clone, Copy)]
struct Side {
    memory: Memory,
    start: [usize; 3],
    pitch: usize,
    height: usize,
}

impl Side {
    /// Where a row of the box begins.
    fn row(&self, state: &State, y: usize, z: usize, width: usize) -> Option<*mut u8> {
        let [x, first, slice] = self.start;
        let (y, z) = (first + y, slice + z);
        let offset = (z * self.height + y) * self.pitch + x;
        match self.memory {
            Memory::Host(place) => Some(place.0.wrapping_add(offset)),
            Memory::Device(address) => find(state, address.wrapping_add(offset as u64), width),
            Memory::Array(array) => {
                let array = state.arrays.array(array).ok()?;
                let offset = (z * array.rows() + y) * array.row_bytes() + x;
                Some(array.memory.pointer().wrapping_add(offset))
            }
        }
    }
}

/// The sides of a copy with 3D's checks.
fn sides(state: &State, copy: &CUDA_MEMCPY3D) -> Result<[Side; 2], CUresult> {
    let size = [copy.WidthInBytes, copy.Height, copy.Depth];
    let side = |memory, start: [usize; 3], pitch: usize, height: usize| {
        let reach = |begin: usize, size: usize| begin.checked_add(size);
        let pitched = reach(start[0], size[0]).zip(reach(start[1], size[1]));
        let (row, rows) = pitched.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let given = |given: usize, least: usize| match given {
            0 => Ok(least),
            given if given < least => Err(CUDA_ERROR_INVALID_VALUE),
            given => Ok(given),
        };
        if let Memory::Array(handle) = memory {
            if !state.arrays.array(handle)?.holds(start, size) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let (pitch, height) = (0, 0);
            return Ok(Side {
                memory,
                start,
                pitch,
                height,
            });
        }
        Ok(Side {
            memory,
            start,
            pitch: given(pitch, row)?,
            height: given(height, rows)?,
        })
    };
    let memory = |kind, host: *const c_void, device, array: CUarray| match kind {
        CU_MEMORYTYPE_HOST => Ok(Memory::Host(Place(host.cast_mut().cast()))),
        CU_MEMORYTYPE_DEVICE => Ok(Memory::Device(device)),
        CU_MEMORYTYPE_ARRAY => Ok(Memory::Array(array.addr())),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    };
    if copy.srcLOD != 0 || copy.dstLOD != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let from = memory(
        copy.srcMemoryType,
        copy.srcHost,
        copy.srcDevice,
        copy.srcArray,
    )?;
    let to = memory(
        copy.dstMemoryType,
        copy.dstHost,
        copy.dstDevice,
        copy.dstArray,
    )?;
    let from_start = [copy.srcXInBytes, copy.srcY, copy.srcZ];
    let to_start = [copy.dstXInBytes, copy.dstY, copy.dstZ];
    Ok([
        side(from, from_start, copy.srcPitch, copy.srcHeight)?,
        side(to, to_start, copy.dstPitch, copy.dstHeight)?,
    ])
}

fn copy_rows(state: &State, [from, to]: [Side; 2], [width, height, depth]: [usize; 3]) -> CUresult {
    for (z, y) in (0..depth).flat_map(|z| (0..height).map(move |y| (z, y))) {
        let rows = from.row(state, y, z, width).zip(to.row(state, y, z, width));
        let Some((source, target)) = rows else {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        };
        // SAFETY: rows of the device were found or checked to lie in allocations, which the lock keeps; rows of the host are the
        // caller's until the command is done.
        unsafe { std::ptr::copy(source, target, width) };
    }
    CUDA_SUCCESS
}

impl ArrayDevice for NullCuda {
    type Memory = Allocation;

    fn arrays<T>(&self, go: impl FnOnce(&mut Arrays<Allocation>) -> T) -> T {
        go(&mut self.lock().arrays)
    }

    fn array_context(&self) -> Result<usize, CUresult> {
        match CURRENT.get() {
            0 => Err(CUDA_ERROR_INVALID_CONTEXT),
            context => Ok(context),
        }
    }

    fn array_memory(&self, bytes: usize) -> Result<Allocation, CUresult> {
        match bytes {
            0..=ARRAY_LIMIT => Ok(Allocation::new(bytes)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn fresh_handle(&self) -> usize {
        self.fresh()
    }

    fn wait_for_users(&self) {
        self.streams.wait_all(None);
    }

    fn bytes_of(memory: &Allocation) -> usize {
        memory.len()
    }
}

impl NullCuda {
    pub(super) fn copy_box(&self, copy: &CUDA_MEMCPY3D, stream: CUstream) -> CUresult {
        let size = [copy.WidthInBytes, copy.Height, copy.Depth];
        let sides = match sides(&self.lock(), copy) {
            Ok(sides) => sides,
            Err(status) => return status,
        };
        self.enqueue(stream, move |state| {
            let state = state.lock().unwrap_or_else(PoisonError::into_inner);
            copy_rows(&state, sides, size)
        })
    }

    /// Objects that lie in a context's memory end with it.
    pub(super) fn end_residents(state: &mut State, context: usize) {
        state.arrays.end_context(context);
        state
            .bindings
            .retain(|_, binding| binding.context != context);
        state
            .references
            .retain(|_, reference| reference.context != context);
        state
            .peers
            .retain(|(from, to)| *from != context && *to != context);
    }
}

/// The contract's methods for boxes and peers: an `impl` cannot lie in several files.
macro_rules! box_calls {
    () => {
        unsafe fn cuMemcpy3DAsync_v2(
            &self,
            copy: *const CUDA_MEMCPY3D,
            stream: CUstream,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            self.copy_box(unsafe { &*copy }, stream)
        }
        unsafe fn cuMemcpy3DPeerAsync(
            &self,
            copy: *const CUDA_MEMCPY3D_PEER,
            stream: CUstream,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            let copy = unsafe { &*copy };
            if !self.are_contexts(&[copy.srcContext, copy.dstContext]) {
                return CUDA_ERROR_INVALID_CONTEXT;
            }
            self.copy_box(&without_contexts(copy), stream)
        }
        unsafe fn cuMemcpyPeerAsync(
            &self,
            to: CUdeviceptr,
            to_context: CUcontext,
            from: CUdeviceptr,
            from_context: CUcontext,
            size: usize,
            stream: CUstream,
        ) -> CUresult {
            if !self.are_contexts(&[to_context, from_context]) {
                return CUDA_ERROR_INVALID_CONTEXT;
            }
            // SAFETY: the caller's.
            unsafe { self.cuMemcpyDtoDAsync_v2(to, from, size, stream) }
        }
        unsafe fn cuMemsetD2D16Async(
            &self,
            to: CUdeviceptr,
            pitch: usize,
            value: u16,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> CUresult {
            let element = value.to_ne_bytes().to_vec();
            self.fill(to, element, (pitch, width, height), stream)
        }
        unsafe fn cuMemsetD2D32Async(
            &self,
            to: CUdeviceptr,
            pitch: usize,
            value: u32,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> CUresult {
            let element = value.to_ne_bytes().to_vec();
            self.fill(to, element, (pitch, width, height), stream)
        }
        unsafe fn cuDeviceCanAccessPeer(
            &self,
            answer: *mut i32,
            device: CUdevice,
            peer: CUdevice,
        ) -> CUresult {
            put(answer, i32::from(device != peer));
            CUDA_SUCCESS
        }
        unsafe fn cuDeviceGetP2PAttribute(
            &self,
            value: *mut i32,
            attribute: CUdevice_P2PAttribute,
            device: CUdevice,
            peer: CUdevice,
        ) -> CUresult {
            let told = match attribute {
                CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK => Ok(device + 10 * peer),
                CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED => Ok(1),
                CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
                | CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => Ok(0),
                _ => Err(CUDA_ERROR_INVALID_VALUE),
            };
            let told = if device == peer {
                Err(CUDA_ERROR_INVALID_DEVICE)
            } else {
                told
            };
            tell(value, told)
        }
        unsafe fn cuCtxEnablePeerAccess(&self, peer: CUcontext, flags: u32) -> CUresult {
            let here = CURRENT.get();
            if flags != 0 {
                return CUDA_ERROR_INVALID_VALUE;
            }
            if here == peer.addr() || !self.are_contexts(&[peer]) {
                return CUDA_ERROR_INVALID_CONTEXT;
            }
            match self.lock().peers.insert((here, peer.addr())) {
                true => CUDA_SUCCESS,
                false => CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
            }
        }
        unsafe fn cuCtxDisablePeerAccess(&self, peer: CUcontext) -> CUresult {
            if !self.are_contexts(&[peer]) {
                return CUDA_ERROR_INVALID_CONTEXT;
            }
            match self.lock().peers.remove(&(CURRENT.get(), peer.addr())) {
                true => CUDA_SUCCESS,
                false => CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
            }
        }
    };
}
pub(super) use box_calls;

impl NullCuda {
    /// Whether all of these live.
    pub(super) fn are_contexts(&self, contexts: &[CUcontext]) -> bool {
        let state = self.lock();
        contexts.iter().all(|context| {
            state.contexts.contains_key(&context.addr())
                || state
                    .primaries
                    .values()
                    .any(|(_, known)| *known == context.addr())
        })
    }
}
