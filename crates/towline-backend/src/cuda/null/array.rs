//! Arrays, and copies of boxes. An array's elements lie row by row without gaps.

use super::device::{Allocation, Place, find};
use super::*;

/// An array, or a part of one.
pub(super) struct Array {
    pub(super) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub(super) memory: Allocation,
    element: usize,
    pub(super) context: usize,
    /// A level or a plane: it ends with what it is a part of.
    pub(super) part: bool,
    pub(super) planes: Vec<usize>,
}

/// An array with mipmap levels.
pub(super) struct Mipmap {
    pub(super) levels: Vec<usize>,
    pub(super) context: usize,
}

/// Bytes of an element; `None` for formats that this device has not.
fn element_bytes(format: CUarray_format, channels: u32) -> Option<usize> {
    let component = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        CU_AD_FORMAT_NV12 => return (channels == 3).then_some(1),
        _ => return None,
    };
    matches!(channels, 1 | 2 | 4).then_some(component * channels as usize)
}

impl Array {
    /// `None` when the description is of nothing that there could be.
    fn new(descriptor: CUDA_ARRAY3D_DESCRIPTOR, context: usize, part: bool) -> Option<Self> {
        let element = element_bytes(descriptor.Format, descriptor.NumChannels)?;
        let bytes = descriptor.Width.checked_mul(descriptor.Height.max(1))?;
        let bytes = bytes.checked_mul(descriptor.Depth.max(1))?;
        let bytes = bytes.checked_mul(element)?;
        // Planes hold the elements of a planar array.
        let held = if descriptor.Format == CU_AD_FORMAT_NV12 {
            0
        } else {
            bytes
        };
        (bytes > 0 && bytes <= 8 << 30).then(|| Self {
            descriptor,
            memory: Allocation::new(held),
            element,
            context,
            part,
            planes: Vec::new(),
        })
    }

    fn row_bytes(&self) -> usize {
        self.descriptor.Width * self.element
    }

    /// Whether a box lies in it, at whole elements.
    fn holds(&self, [x, y, z]: [usize; 3], [width, height, depth]: [usize; 3]) -> bool {
        let within = |start: usize, size: usize, limit: usize| {
            start.checked_add(size).is_some_and(|end| end <= limit)
        };
        x.is_multiple_of(self.element)
            && width.is_multiple_of(self.element)
            && within(x, width, self.row_bytes())
            && within(y, height, self.descriptor.Height.max(1))
            && within(z, depth, self.descriptor.Depth.max(1))
    }
}

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
                let array = state.arrays.get(&array)?;
                let rows = array.descriptor.Height.max(1);
                let offset = (z * rows + y) * array.row_bytes() + x;
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
            let array = state.arrays.get(&handle);
            let array = array.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            if !array.holds(start, size) {
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

impl NullCuda {
    /// Adds an array with its planes.
    fn add_array(
        &self,
        state: &mut State,
        descriptor: CUDA_ARRAY3D_DESCRIPTOR,
        part: bool,
    ) -> Result<usize, CUresult> {
        let context = CURRENT.get();
        let mut array = Array::new(descriptor, context, part).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if descriptor.Format == CU_AD_FORMAT_NV12 {
            for (channels, shrink) in [(1, 1), (2, 2)] {
                let plane = CUDA_ARRAY3D_DESCRIPTOR {
                    Width: descriptor.Width / shrink,
                    Height: descriptor.Height / shrink,
                    Format: CU_AD_FORMAT_UNSIGNED_INT8,
                    NumChannels: channels,
                    ..descriptor
                };
                array.planes.push(self.add_array(state, plane, true)?);
            }
        }
        let handle = self.fresh();
        state.arrays.insert(handle, array);
        Ok(handle)
    }

    pub(super) fn create_array(
        &self,
        descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
    ) -> Result<usize, CUresult> {
        if CURRENT.get() == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        self.add_array(&mut self.lock(), *descriptor, false)
    }

    pub(super) fn create_mipmap(
        &self,
        descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
    ) -> Result<usize, CUresult> {
        let context = CURRENT.get();
        let layered = descriptor.Flags & CUDA_ARRAY3D_LAYERED != 0;
        let depth = if layered { 0 } else { descriptor.Depth };
        let longest = descriptor.Width.max(descriptor.Height).max(depth);
        if context == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if levels == 0 || levels > longest.checked_ilog2().map_or(0, |last| last + 1) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = self.lock();
        let side = |side: usize, level: u32| (side >> level).max(side.min(1));
        let mut made = Vec::new();
        for level in 0..levels {
            let level = CUDA_ARRAY3D_DESCRIPTOR {
                Width: side(descriptor.Width, level),
                Height: side(descriptor.Height, level),
                Depth: side(descriptor.Depth, if layered { 0 } else { level }),
                ..*descriptor
            };
            made.push(self.add_array(&mut state, level, true)?);
        }
        let handle = self.fresh();
        let levels = made;
        state.mipmaps.insert(handle, Mipmap { levels, context });
        Ok(handle)
    }

    pub(super) fn level(&self, mipmap: usize, level: u32) -> Result<usize, CUresult> {
        let state = self.lock();
        let mipmap = state.mipmaps.get(&mipmap);
        let levels = &mipmap.ok_or(CUDA_ERROR_INVALID_HANDLE)?.levels;
        levels
            .get(level as usize)
            .copied()
            .ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(super) fn plane(&self, array: usize, plane: u32) -> Result<usize, CUresult> {
        let state = self.lock();
        let array = state.arrays.get(&array);
        let planes = &array.ok_or(CUDA_ERROR_INVALID_HANDLE)?.planes;
        planes
            .get(plane as usize)
            .copied()
            .ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(super) fn destroy_array(&self, array: usize) -> CUresult {
        self.streams.wait_all(None);
        let mut state = self.lock();
        if state.arrays.get(&array).is_none_or(|array| array.part) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        let planes = state.arrays.remove(&array).map(|array| array.planes);
        for plane in planes.into_iter().flatten() {
            state.arrays.remove(&plane);
        }
        CUDA_SUCCESS
    }

    pub(super) fn destroy_mipmap(&self, mipmap: usize) -> CUresult {
        self.streams.wait_all(None);
        let mut state = self.lock();
        match state.mipmaps.remove(&mipmap) {
            None => CUDA_ERROR_INVALID_HANDLE,
            Some(mipmap) => {
                for level in mipmap.levels {
                    state.arrays.remove(&level);
                }
                CUDA_SUCCESS
            }
        }
    }

    /// What memory arrays need, and what they are.
    pub(super) fn with_array<T>(
        &self,
        array: usize,
        tell: impl FnOnce(&Array) -> T,
    ) -> Result<T, CUresult> {
        let state = self.lock();
        let array = state.arrays.get(&array);
        array.map(tell).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

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
        state.arrays.retain(|_, array| array.context != context);
        state.mipmaps.retain(|_, mipmap| mipmap.context != context);
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

/// The copy as it is where contexts do not matter.
pub(super) fn without_contexts(copy: &CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcLOD: copy.srcLOD,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        reserved0: std::ptr::null_mut(),
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
        reserved1: std::ptr::null_mut(),
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
    }
}

/// The contract's methods: an `impl` cannot lie in several files.
macro_rules! array_calls {
    () => {
        unsafe fn cuArray3DCreate_v2(
            &self,
            array: *mut CUarray,
            descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            let descriptor = unsafe { &*descriptor };
            hand_out(array, self.create_array(descriptor))
        }
        unsafe fn cuArray3DGetDescriptor_v2(
            &self,
            descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR,
            array: CUarray,
        ) -> CUresult {
            tell(
                descriptor,
                self.with_array(array.addr(), |array| array.descriptor),
            )
        }
        unsafe fn cuArrayDestroy(&self, array: CUarray) -> CUresult {
            self.destroy_array(array.addr())
        }
        unsafe fn cuArrayGetPlane(
            &self,
            plane: *mut CUarray,
            array: CUarray,
            index: u32,
        ) -> CUresult {
            hand_out(plane, self.plane(array.addr(), index))
        }
        unsafe fn cuArrayGetSparseProperties(
            &self,
            _properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
            _array: CUarray,
        ) -> CUresult {
            // No array here is sparse.
            CUDA_ERROR_INVALID_VALUE
        }
        unsafe fn cuArrayGetMemoryRequirements(
            &self,
            requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
            array: CUarray,
            _device: CUdevice,
        ) -> CUresult {
            let told = self.with_array(array.addr(), |array| CUDA_ARRAY_MEMORY_REQUIREMENTS {
                size: array.memory.len(),
                alignment: 16,
                reserved: [0; 4],
            });
            tell(requirements, told)
        }
        unsafe fn cuMipmappedArrayCreate(
            &self,
            mipmap: *mut CUmipmappedArray,
            descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
            levels: u32,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            let descriptor = unsafe { &*descriptor };
            hand_out(mipmap, self.create_mipmap(descriptor, levels))
        }
        unsafe fn cuMipmappedArrayGetLevel(
            &self,
            array: *mut CUarray,
            mipmap: CUmipmappedArray,
            level: u32,
        ) -> CUresult {
            hand_out(array, self.level(mipmap.addr(), level))
        }
        unsafe fn cuMipmappedArrayDestroy(&self, mipmap: CUmipmappedArray) -> CUresult {
            self.destroy_mipmap(mipmap.addr())
        }
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
            self.copy_box(&array::without_contexts(copy), stream)
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
pub(super) use array_calls;

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
