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

/// A texture reference: its settings, each under its number and an index.
#[derive(Default)]
pub(super) struct Reference {
    pub(super) context: usize,
    settings: HashMap<(u32, i32), [u64; 4]>,
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

    pub(super) fn create_reference(&self) -> Result<usize, CUresult> {
        let handle = self.fresh();
        let reference = Reference {
            context: CURRENT.get(),
            ..Reference::default()
        };
        self.lock().references.insert(handle, reference);
        Ok(handle)
    }

    pub(super) fn set<T>(
        &self,
        reference: *mut T,
        setting: u32,
        index: i32,
        words: [u64; 4],
    ) -> CUresult {
        match self.lock().references.get_mut(&reference.addr()) {
            None => CUDA_ERROR_INVALID_HANDLE,
            Some(reference) => {
                reference.settings.insert((setting, index), words);
                CUDA_SUCCESS
            }
        }
    }

    pub(super) fn setting<T>(
        &self,
        reference: *mut T,
        setting: u32,
        index: i32,
    ) -> Result<[u64; 4], CUresult> {
        let state = self.lock();
        let reference = state.references.get(&reference.addr());
        let settings = &reference.ok_or(CUDA_ERROR_INVALID_HANDLE)?.settings;
        Ok(settings.get(&(setting, index)).copied().unwrap_or_default())
    }

    /// The texture or surface reference of a module.
    pub(super) fn named_reference(
        &self,
        module: CUmodule,
        name: *const c_char,
    ) -> Result<usize, CUresult> {
        // SAFETY: the contract of the call: the name ends with a NUL.
        let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_bytes();
        let known = {
            let state = self.lock();
            let image = state.modules.get(&module.addr());
            let image = image.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            image.references.get(name).copied()
        };
        known.ok_or(CUDA_ERROR_NOT_FOUND)
    }
}

pub(super) fn float_bits(value: f32) -> u64 {
    value.to_bits().into()
}

pub(super) fn float_of(word: u64) -> f32 {
    f32::from_bits(word as u32)
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
        unsafe fn cuModuleGetTexRef(
            &self,
            reference: *mut CUtexref,
            module: CUmodule,
            name: *const c_char,
        ) -> CUresult {
            hand_out(reference, self.named_reference(module, name))
        }
        unsafe fn cuModuleGetSurfRef(
            &self,
            reference: *mut CUsurfref,
            module: CUmodule,
            name: *const c_char,
        ) -> CUresult {
            hand_out(reference, self.named_reference(module, name))
        }
        unsafe fn cuTexRefCreate(&self, reference: *mut CUtexref) -> CUresult {
            hand_out(reference, self.create_reference())
        }
        unsafe fn cuTexRefDestroy(&self, reference: CUtexref) -> CUresult {
            match self.lock().references.remove(&reference.addr()) {
                Some(_) => CUDA_SUCCESS,
                None => CUDA_ERROR_INVALID_HANDLE,
            }
        }
        unsafe fn cuTexRefSetArray(&self, to: CUtexref, array: CUarray, flags: u32) -> CUresult {
            match self.lock().arrays.array(array.addr()).map(|_| ()) {
                Ok(()) => self.set(to, 0, 0, [array.addr() as u64, flags.into(), 0, 0]),
                Err(status) => status,
            }
        }
        unsafe fn cuTexRefSetMipmappedArray(
            &self,
            to: CUtexref,
            mipmap: CUmipmappedArray,
            flags: u32,
        ) -> CUresult {
            match self.lock().arrays.mipmap(mipmap.addr()).map(|_| ()) {
                Ok(()) => self.set(to, 1, 0, [mipmap.addr() as u64, flags.into(), 0, 0]),
                Err(status) => status,
            }
        }
        unsafe fn cuTexRefSetAddress_v2(
            &self,
            offset: *mut usize,
            to: CUtexref,
            address: CUdeviceptr,
            bytes: usize,
        ) -> CUresult {
            // As a device would that binds at multiples of 512 bytes.
            put(offset, (address % 512) as usize);
            self.set(to, 2, 0, [address, bytes as u64, 0, 0])
        }
        unsafe fn cuTexRefSetAddress2D_v3(
            &self,
            to: CUtexref,
            rectangle: *const CUDA_ARRAY_DESCRIPTOR,
            address: CUdeviceptr,
            pitch: usize,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            let rectangle = unsafe { &*rectangle };
            if pitch < rectangle.Width {
                return CUDA_ERROR_INVALID_VALUE;
            }
            self.set(to, 2, 0, [address, pitch as u64, 0, 0])
        }
        unsafe fn cuTexRefSetAddress2D_v2(
            &self,
            to: CUtexref,
            rectangle: *const CUDA_ARRAY_DESCRIPTOR,
            address: CUdeviceptr,
            pitch: usize,
        ) -> CUresult {
            // SAFETY: the caller's.
            unsafe { self.cuTexRefSetAddress2D_v3(to, rectangle, address, pitch) }
        }
        unsafe fn cuTexRefSetFormat(
            &self,
            to: CUtexref,
            format: CUarray_format,
            components: i32,
        ) -> CUresult {
            self.set(to, 3, 0, [format.into(), components as u64, 0, 0])
        }
        unsafe fn cuTexRefSetAddressMode(
            &self,
            to: CUtexref,
            dim: i32,
            mode: CUaddress_mode,
        ) -> CUresult {
            match dim {
                0..=2 => self.set(to, 4, dim, [mode.into(), 0, 0, 0]),
                _ => CUDA_ERROR_INVALID_VALUE,
            }
        }
        unsafe fn cuTexRefSetFilterMode(&self, to: CUtexref, mode: CUfilter_mode) -> CUresult {
            self.set(to, 5, 0, [mode.into(), 0, 0, 0])
        }
        unsafe fn cuTexRefSetMipmapFilterMode(
            &self,
            to: CUtexref,
            mode: CUfilter_mode,
        ) -> CUresult {
            self.set(to, 6, 0, [mode.into(), 0, 0, 0])
        }
        unsafe fn cuTexRefSetMipmapLevelBias(&self, to: CUtexref, bias: f32) -> CUresult {
            self.set(to, 7, 0, [texture::float_bits(bias), 0, 0, 0])
        }
        unsafe fn cuTexRefSetMipmapLevelClamp(
            &self,
            to: CUtexref,
            least: f32,
            most: f32,
        ) -> CUresult {
            let [least, most] = [least, most].map(texture::float_bits);
            self.set(to, 8, 0, [least, most, 0, 0])
        }
        unsafe fn cuTexRefSetMaxAnisotropy(&self, to: CUtexref, most: u32) -> CUresult {
            self.set(to, 9, 0, [most.into(), 0, 0, 0])
        }
        unsafe fn cuTexRefSetBorderColor(&self, to: CUtexref, color: *mut f32) -> CUresult {
            // SAFETY: the contract of the call: four components.
            let color = unsafe { color.cast::<[f32; 4]>().read() };
            self.set(to, 10, 0, color.map(texture::float_bits))
        }
        unsafe fn cuTexRefSetFlags(&self, to: CUtexref, flags: u32) -> CUresult {
            self.set(to, 11, 0, [flags.into(), 0, 0, 0])
        }
        unsafe fn cuTexRefGetAddress_v2(
            &self,
            address: *mut CUdeviceptr,
            of: CUtexref,
        ) -> CUresult {
            tell(address, self.setting(of, 2, 0).map(|words| words[0]))
        }
        unsafe fn cuTexRefGetFormat(
            &self,
            format: *mut CUarray_format,
            channels: *mut i32,
            of: CUtexref,
        ) -> CUresult {
            let words = self.setting(of, 3, 0);
            tell(channels, words.map(|words| words[1] as i32));
            tell(format, words.map(|words| words[0] as u32))
        }
        unsafe fn cuTexRefGetAddressMode(
            &self,
            mode: *mut CUaddress_mode,
            of: CUtexref,
            dim: i32,
        ) -> CUresult {
            tell(mode, self.setting(of, 4, dim).map(|words| words[0] as u32))
        }
        unsafe fn cuTexRefGetFilterMode(&self, mode: *mut CUfilter_mode, of: CUtexref) -> CUresult {
            tell(mode, self.setting(of, 5, 0).map(|words| words[0] as u32))
        }
        unsafe fn cuTexRefGetMipmapFilterMode(
            &self,
            mode: *mut CUfilter_mode,
            of: CUtexref,
        ) -> CUresult {
            tell(mode, self.setting(of, 6, 0).map(|words| words[0] as u32))
        }
        unsafe fn cuTexRefGetMipmapLevelBias(&self, bias: *mut f32, of: CUtexref) -> CUresult {
            let words = self.setting(of, 7, 0);
            tell(bias, words.map(|words| texture::float_of(words[0])))
        }
        unsafe fn cuTexRefGetMipmapLevelClamp(
            &self,
            least: *mut f32,
            most: *mut f32,
            of: CUtexref,
        ) -> CUresult {
            let words = self.setting(of, 8, 0);
            tell(least, words.map(|words| texture::float_of(words[0])));
            tell(most, words.map(|words| texture::float_of(words[1])))
        }
        unsafe fn cuTexRefGetMaxAnisotropy(&self, most: *mut i32, of: CUtexref) -> CUresult {
            tell(most, self.setting(of, 9, 0).map(|words| words[0] as i32))
        }
        unsafe fn cuTexRefGetBorderColor(&self, color: *mut f32, of: CUtexref) -> CUresult {
            let words = self.setting(of, 10, 0);
            let color = color.cast::<[f32; 4]>();
            tell(color, words.map(|words| words.map(texture::float_of)))
        }
        unsafe fn cuTexRefGetFlags(&self, flags: *mut u32, of: CUtexref) -> CUresult {
            tell(flags, self.setting(of, 11, 0).map(|words| words[0] as u32))
        }
        unsafe fn cuSurfRefSetArray(&self, to: CUsurfref, array: CUarray, flags: u32) -> CUresult {
            match self.lock().arrays.array(array.addr()).map(|_| ()) {
                Ok(()) => self.set(to, 0, 0, [array.addr() as u64, flags.into(), 0, 0]),
                Err(status) => status,
            }
        }
    };
}
pub(super) use texture_calls;
