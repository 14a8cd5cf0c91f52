//! Textures, surfaces, texture references, and descriptions of tensors. The kernel `fetch` reads through the first two.

use super::device::find;
use super::*;

/// A texture or a surface.
pub(super) struct Binding {
    pub(super) context: usize,
    surface: bool,
    resource: Resource,
    /// Ended by the application: kernels that were launched before still read through it.
    pub(super) ended: bool,
}

#[derive(Clone, Copy)]
enum Resource {
    Array(usize),
    Mipmap(usize),
    Memory(u64, usize),
}

/// Bytes of a tensor's rows must be a multiple of this, and its address too.
const TENSOR_ALIGN: u64 = 16;

/// Reads the first bytes of what a texture or a surface is over.
pub(super) fn fetch(state: &Mutex<State>, object: u64, to: u64, count: usize) -> CUresult {
    let state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(binding) = state.bindings.get(&object) else {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    };
    let array = |array: usize| {
        let memory = &state.arrays.array(array).ok()?.memory;
        (count <= memory.len()).then(|| memory.pointer())
    };
    let from = match binding.resource {
        Resource::Array(handle) => array(handle),
        Resource::Mipmap(handle) => {
            let first = state.arrays.mipmap(handle).ok();
            first.and_then(|mipmap| array(*mipmap.levels.first()?))
        }
        Resource::Memory(address, size) => {
            let inside = count <= size;
            inside.then(|| find(&state, address, count)).flatten()
        }
    };
    match from.zip(find(&state, to, count)) {
        None => CUDA_ERROR_ILLEGAL_ADDRESS,
        Some((from, to)) => {
            // SAFETY: both ranges lie in allocations, which the lock keeps.
            unsafe { std::ptr::copy(from, to, count) };
            CUDA_SUCCESS
        }
    }
}

/// Mixes a tensor's arguments, so that any other of them or another order gives another description.
pub(super) fn pack(address: u64, words: &[u64]) -> [u64; 16] {
    let mut map = [0x546f_776c_696e_6500; 16];
    let [place, rest @ ..] = &mut map;
    *place = address;
    for (index, word) in words.iter().enumerate() {
        let mut carry = word.wrapping_add(index as u64 + 1);
        for slot in rest.iter_mut() {
            carry = carry.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
            *slot = slot.rotate_left(7) ^ carry;
        }
    }
    map
}

/// What every kind of description asks of its tensor.
pub(super) fn is_tensor(address: u64, dims: &[u64], strides: &[u64], steps: &[u64]) -> bool {
    address.is_multiple_of(TENSOR_ALIGN)
        && dims.iter().all(|dim| (1..=1 << 32).contains(dim))
        && strides
            .iter()
            .all(|stride| stride.is_multiple_of(TENSOR_ALIGN) && *stride < 1 << 40)
        && steps.iter().all(|step| (1..=8).contains(step))
}

/// A list of an argument, widened.
///
/// # Safety
/// `list` has `count` elements.
pub(super) unsafe fn widened<T: std::marker::Copy + Into<i64>>(
    list: *const T,
    count: usize,
) -> Vec<u64> {
    // SAFETY: the caller's contract.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    list.iter().map(|value| (*value).into() as u64).collect()
}

impl NullCuda {
    pub(super) fn bind(
        &self,
        description: &CUDA_RESOURCE_DESC,
        surface: bool,
    ) -> Result<u64, CUresult> {
        let context = CURRENT.get();
        let mut state = self.lock();
        let resource = match description.resType {
            // SAFETY: in this and the others the kind says which field it is.
            CU_RESOURCE_TYPE_ARRAY => unsafe {
                Resource::Array(description.res.array.hArray.addr())
            },
            // SAFETY: as above.
            CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => unsafe {
                Resource::Mipmap(description.res.mipmap.hMipmappedArray.addr())
            },
            CU_RESOURCE_TYPE_LINEAR => {
                // SAFETY: as above.
                let linear = unsafe { description.res.linear };
                Resource::Memory(linear.devPtr, linear.sizeInBytes)
            }
            CU_RESOURCE_TYPE_PITCH2D => {
                // SAFETY: as above.
                let rows = unsafe { description.res.pitch2D };
                Resource::Memory(rows.devPtr, rows.pitchInBytes.saturating_mul(rows.height))
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let fits = match resource {
            Resource::Array(handle) => {
                let flags = state.arrays.array(handle)?.descriptor.Flags;
                !surface || flags & CUDA_ARRAY3D_SURFACE_LDST != 0
            }
            Resource::Mipmap(handle) => state.arrays.mipmap(handle).is_ok() && !surface,
            Resource::Memory(address, size) => {
                size > 0 && !surface && find(&state, address, size).is_some()
            }
        };
        if !fits {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let object = self.fresh() as u64;
        let binding = Binding {
            context,
            surface,
            resource,
            ended: false,
        };
        state.bindings.insert(object, binding);
        Ok(object)
    }

    pub(super) fn unbind(&self, object: u64, surface: bool) -> CUresult {
        let mut state = self.lock();
        match state.bindings.get_mut(&object) {
            Some(binding) if binding.surface == surface && !binding.ended => {
                binding.ended = true;
                CUDA_SUCCESS
            }
            _ => CUDA_ERROR_INVALID_VALUE,
        }
    }
}

impl ReferenceDevice for NullCuda {
    fn references<T>(&self, go: impl FnOnce(&mut HashMap<usize, Reference>) -> T) -> T {
        go(&mut self.lock().references)
    }

    fn reference_context(&self) -> Result<usize, CUresult> {
        Ok(CURRENT.get())
    }

    fn fresh_reference(&self) -> usize {
        self.fresh()
    }

    fn named_reference(&self, module: CUmodule, name: &std::ffi::CStr) -> Result<usize, CUresult> {
        let known = {
            let state = self.lock();
            let image = state.modules.get(&module.addr());
            let image = image.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            image.references.get(name.to_bytes()).copied()
        };
        known.ok_or(CUDA_ERROR_NOT_FOUND)
    }

    fn check_bound(&self, bound: &Bound) -> Result<(), CUresult> {
        let state = self.lock();
        match bound {
            Bound::Array(array, _) => state.arrays.array(*array).map(drop),
            Bound::Mipmap(mipmap, _) => state.arrays.mipmap(*mipmap).map(drop),
            _ => Ok(()),
        }
    }

    // No kernel here reads through one.
    fn has_changed(&self, _handle: usize, _reference: &Reference) {}
}

/// The contract's methods: an `impl` cannot lie in several files.
macro_rules! texture_calls {
    () => {
        unsafe fn cuTexObjectCreate(
            &self,
            object: *mut CUtexObject,
            resource: *const CUDA_RESOURCE_DESC,
            texture: *const CUDA_TEXTURE_DESC,
            _view: *const CUDA_RESOURCE_VIEW_DESC,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            let texture = unsafe { &*texture };
            if texture.maxAnisotropy > 16 || texture.filterMode > 1 {
                return CUDA_ERROR_INVALID_VALUE;
            }
            // SAFETY: as above.
            tell(object, self.bind(unsafe { &*resource }, false))
        }
        unsafe fn cuTexObjectDestroy(&self, object: CUtexObject) -> CUresult {
            self.unbind(object, false)
        }
        unsafe fn cuSurfObjectCreate(
            &self,
            object: *mut CUsurfObject,
            resource: *const CUDA_RESOURCE_DESC,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            tell(object, self.bind(unsafe { &*resource }, true))
        }
        unsafe fn cuSurfObjectDestroy(&self, object: CUsurfObject) -> CUresult {
            self.unbind(object, true)
        }
        unsafe fn cuTensorMapEncodeTiled(
            &self,
            map: *mut CUtensorMap,
            data_type: CUtensorMapDataType,
            rank: u32,
            address: *mut c_void,
            dims: *const u64,
            strides: *const u64,
            area: *const u32,
            steps: *const u32,
            interleave: CUtensorMapInterleave,
            swizzle: CUtensorMapSwizzle,
            promotion: CUtensorMapL2promotion,
            fill: CUtensorMapFloatOOBfill,
        ) -> CUresult {
            let (rank, address) = (rank as usize, address.addr() as u64);
            // SAFETY: the contract of the call, for this and the others.
            let dims = unsafe { std::slice::from_raw_parts(dims, rank) };
            // SAFETY: as above.
            let strides = unsafe { std::slice::from_raw_parts(strides, rank - 1) };
            // SAFETY: as above.
            let area = unsafe { texture::widened(area, rank) };
            // SAFETY: as above.
            let steps = unsafe { texture::widened(steps, rank) };
            let boxed = area.iter().all(|side| (1..=256).contains(side));
            if !boxed || !texture::is_tensor(address, dims, strides, &steps) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            let last = [interleave, swizzle, promotion, fill].map(u64::from);
            let first = [0, data_type.into(), rank as u64];
            let words = [&first, dims, strides, &area, &steps, &last].concat();
            let opaque = texture::pack(address, &words);
            put(map, CUtensorMap { opaque });
            CUDA_SUCCESS
        }
        unsafe fn cuTensorMapEncodeIm2col(
            &self,
            map: *mut CUtensorMap,
            data_type: CUtensorMapDataType,
            rank: u32,
            address: *mut c_void,
            dims: *const u64,
            strides: *const u64,
            lower: *const i32,
            upper: *const i32,
            channels: u32,
            pixels: u32,
            steps: *const u32,
            interleave: CUtensorMapInterleave,
            swizzle: CUtensorMapSwizzle,
            promotion: CUtensorMapL2promotion,
            fill: CUtensorMapFloatOOBfill,
        ) -> CUresult {
            let (rank, address) = (rank as usize, address.addr() as u64);
            // SAFETY: the contract of the call, for this and the others.
            let dims = unsafe { std::slice::from_raw_parts(dims, rank) };
            // SAFETY: as above.
            let strides = unsafe { std::slice::from_raw_parts(strides, rank - 1) };
            // SAFETY: as above.
            let lower = unsafe { texture::widened(lower, rank - 2) };
            // SAFETY: as above.
            let upper = unsafe { texture::widened(upper, rank - 2) };
            // SAFETY: as above.
            let steps = unsafe { texture::widened(steps, rank) };
            if channels > 256 || !texture::is_tensor(address, dims, strides, &steps) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            let last = [channels, pixels, interleave, swizzle, promotion, fill].map(u64::from);
            let first = [1, data_type.into(), rank as u64];
            let words = [&first, dims, strides, &lower, &upper, &steps, &last].concat();
            let opaque = texture::pack(address, &words);
            put(map, CUtensorMap { opaque });
            CUDA_SUCCESS
        }
        unsafe fn cuTensorMapEncodeIm2colWide(
            &self,
            map: *mut CUtensorMap,
            data_type: CUtensorMapDataType,
            rank: u32,
            address: *mut c_void,
            dims: *const u64,
            strides: *const u64,
            lower: i32,
            upper: i32,
            channels: u32,
            pixels: u32,
            steps: *const u32,
            interleave: CUtensorMapInterleave,
            mode: CUtensorMapIm2ColWideMode,
            swizzle: CUtensorMapSwizzle,
            promotion: CUtensorMapL2promotion,
            fill: CUtensorMapFloatOOBfill,
        ) -> CUresult {
            let (rank, address) = (rank as usize, address.addr() as u64);
            // SAFETY: the contract of the call, for this and the others.
            let dims = unsafe { std::slice::from_raw_parts(dims, rank) };
            // SAFETY: as above.
            let strides = unsafe { std::slice::from_raw_parts(strides, rank - 1) };
            // SAFETY: as above.
            let steps = unsafe { texture::widened(steps, rank) };
            if channels > 256 || !texture::is_tensor(address, dims, strides, &steps) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            let corners = [lower, upper].map(|corner| i64::from(corner) as u64);
            let last = [channels, pixels, interleave, mode, swizzle, promotion, fill];
            let first = [2, data_type.into(), rank as u64];
            let words = [
                &first,
                dims,
                strides,
                &corners,
                &steps,
                &last.map(u64::from),
            ]
            .concat();
            let opaque = texture::pack(address, &words);
            put(map, CUtensorMap { opaque });
            CUDA_SUCCESS
        }
        unsafe fn cuTensorMapReplaceAddress(
            &self,
            map: *mut CUtensorMap,
            address: *mut c_void,
        ) -> CUresult {
            if !texture::is_tensor(address.addr() as u64, &[], &[], &[]) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            // SAFETY: the contract of the call.
            unsafe { (*map).opaque[0] = address.addr() as u64 };
            CUDA_SUCCESS
        }
    };
}
pub(super) use texture_calls;
