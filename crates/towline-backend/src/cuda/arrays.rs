//! Arrays and mipmapped arrays of devices that keep them by themselves: descriptions, limits, parts and handles.
//!
//! A device gives memory for elements and says in which context calls act ([`ArrayDevice`]); [`array_calls!`](crate::array_calls) has the
//! methods of the contract. Elements lie row by row without gaps, rows slice by slice.

use std::collections::HashMap;

use super::*;

/// Most elements of each side: of one dimension, of two, of three, of layers of one and of two dimensions, of faces of cubes. Those of an
/// H100.
const LIMIT_1D: usize = 131_072;
const LIMIT_2D: [usize; 2] = [131_072, 65_536];
const LIMIT_3D: usize = 16_384;
const LIMIT_3D_ALTERNATE: [usize; 3] = [8192, 8192, 32_768];
const LIMIT_LAYERED: usize = 32_768;
const LIMIT_LAYERS: usize = 2048;
const LIMIT_CUBE_LAYERS: usize = 2046;
const LIMIT_GATHER: usize = 32_768;
/// The same of surfaces where it is less.
const LIMIT_1D_SURFACE: usize = 32_768;

/// The value of a device attribute that tells one of these limits; `None` for other attributes.
pub fn limit(which: CUdevice_attribute) -> Option<i32> {
    let most = match which {
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH => LIMIT_1D,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH => LIMIT_1D_SURFACE,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH => LIMIT_2D[0],
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT => LIMIT_2D[1],
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH => LIMIT_3D,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT => LIMIT_LAYERED,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS => LIMIT_LAYERS,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS => LIMIT_CUBE_LAYERS,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT => LIMIT_GATHER,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE => LIMIT_3D_ALTERNATE[0],
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE => LIMIT_3D_ALTERNATE[1],
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE => LIMIT_3D_ALTERNATE[2],
        _ => return None,
    };
    Some(most as i32)
}

/// Bytes of an element; `None` for formats that arrays here do not have, and numbers of channels that no format has.
pub fn element_bytes(format: CUarray_format, channels: u32) -> Option<usize> {
    let (component, own) = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => (1, channels),
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => {
            (2, channels)
        }
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => {
            (4, channels)
        }
        CU_AD_FORMAT_UNORM_INT8X1 | CU_AD_FORMAT_SNORM_INT8X1 => (1, 1),
        CU_AD_FORMAT_UNORM_INT8X2 | CU_AD_FORMAT_SNORM_INT8X2 => (1, 2),
        CU_AD_FORMAT_UNORM_INT8X4 | CU_AD_FORMAT_SNORM_INT8X4 => (1, 4),
        CU_AD_FORMAT_UNORM_INT16X1 | CU_AD_FORMAT_SNORM_INT16X1 => (2, 1),
        CU_AD_FORMAT_UNORM_INT16X2 | CU_AD_FORMAT_SNORM_INT16X2 => (2, 2),
        CU_AD_FORMAT_UNORM_INT16X4 | CU_AD_FORMAT_SNORM_INT16X4 => (2, 4),
        // Its planes hold the elements.
        CU_AD_FORMAT_NV12 => return (channels == 3).then_some(1),
        _ => return None,
    };
    (own == channels && matches!(channels, 1 | 2 | 4)).then_some(component * channels as usize)
}

/// Whether there may be such an array.
fn can_be(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> bool {
    let (width, height, depth) = (descriptor.Width, descriptor.Height, descriptor.Depth);
    let has = |flag: u32| descriptor.Flags & flag != 0;
    let known = CUDA_ARRAY3D_LAYERED
        | CUDA_ARRAY3D_SURFACE_LDST
        | CUDA_ARRAY3D_CUBEMAP
        | CUDA_ARRAY3D_TEXTURE_GATHER
        | CUDA_ARRAY3D_COLOR_ATTACHMENT;
    let layers = match has(CUDA_ARRAY3D_CUBEMAP) {
        true => LIMIT_CUBE_LAYERS,
        false => LIMIT_LAYERS,
    };
    let within = match (has(CUDA_ARRAY3D_LAYERED), has(CUDA_ARRAY3D_CUBEMAP)) {
        (layered, true) => {
            let faces = match layered {
                true => depth.is_multiple_of(6) && (6..=layers).contains(&depth),
                false => depth == 6,
            };
            width == height && width <= LIMIT_LAYERED && faces
        }
        (true, false) => {
            let most = LIMIT_LAYERED;
            width <= most && height <= most && (1..=layers).contains(&depth)
        }
        (false, false) => match (height, depth) {
            (0, 0) if has(CUDA_ARRAY3D_SURFACE_LDST) => width <= LIMIT_1D_SURFACE,
            (0, 0) => width <= LIMIT_1D,
            (height, 0) => width <= LIMIT_2D[0] && height <= LIMIT_2D[1],
            (0, _) => false,
            (height, depth) => {
                let sides = [width, height, depth];
                let mut other = sides.iter().zip(LIMIT_3D_ALTERNATE);
                sides.iter().all(|side| *side <= LIMIT_3D)
                    || other.all(|(side, most)| *side <= most)
            }
        },
    };
    let gathers = !has(CUDA_ARRAY3D_TEXTURE_GATHER)
        || height > 0
            && width.max(height) <= LIMIT_GATHER
            && (depth == 0 || has(CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP));
    width > 0 && descriptor.Flags & !known == 0 && within && gathers
}

/// An array, or a part of one.
#[derive(Debug)]
pub struct Array<M> {
    /// How it was created; a part, as if it had been.
    pub descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    /// The memory of its elements.
    pub memory: M,
    /// Bytes of an element.
    pub element: usize,
    /// The context that it ends with.
    pub context: usize,
    /// A level or a plane: it ends with what it is a part of.
    pub part: bool,
    /// Planes, by their handles.
    pub planes: Vec<usize>,
}

impl<M> Array<M> {
    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.descriptor.Width * self.element
    }

    /// Rows of a slice.
    pub fn rows(&self) -> usize {
        self.descriptor.Height.max(1)
    }

    /// Whether a box lies in it: its first byte of a row, row and slice, and its bytes of a row, rows and slices.
    pub fn holds(&self, [x, y, z]: [usize; 3], [width, height, depth]: [usize; 3]) -> bool {
        let within = |start: usize, size: usize, limit: usize| {
            start.checked_add(size).is_some_and(|end| end <= limit)
        };
        within(x, width, self.row_bytes())
            && within(y, height, self.rows())
            && within(z, depth, self.descriptor.Depth.max(1))
    }
}

/// An array with mipmap levels.
#[derive(Debug)]
pub struct Mipmap {
    /// How it was created.
    pub descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    /// Levels, by their handles.
    pub levels: Vec<usize>,
    /// The context that it ends with.
    pub context: usize,
}

/// Arrays and mipmapped arrays of a device, by handle.
#[derive(Debug)]
pub struct Arrays<M> {
    /// Arrays, parts among them.
    pub arrays: HashMap<usize, Array<M>>,
    /// Mipmapped arrays.
    pub mipmaps: HashMap<usize, Mipmap>,
}

impl<M> Default for Arrays<M> {
    fn default() -> Self {
        Self {
            arrays: HashMap::new(),
            mipmaps: HashMap::new(),
        }
    }
}

impl<M> Arrays<M> {
    /// The array of a handle.
    pub fn array(&self, handle: usize) -> Result<&Array<M>, CUresult> {
        self.arrays.get(&handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The mipmapped array of a handle.
    pub fn mipmap(&self, handle: usize) -> Result<&Mipmap, CUresult> {
        self.mipmaps.get(&handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Those that are no parts.
    pub fn live(&self) -> usize {
        let whole = self.arrays.values().filter(|array| !array.part);
        whole.count() + self.mipmaps.len()
    }

    /// Takes what lies in a context.
    pub fn end_context(&mut self, context: usize) -> Vec<Array<M>> {
        self.mipmaps.retain(|_, mipmap| mipmap.context != context);
        let gone = self.arrays.extract_if(|_, array| array.context == context);
        gone.map(|(_, array)| array).collect()
    }

    fn take(&mut self, handles: &[usize]) -> Vec<Array<M>> {
        let taken = handles.iter().filter_map(|one| self.arrays.remove(one));
        taken.collect()
    }
}

/// A device that keeps arrays.
pub trait ArrayDevice {
    /// Memory of an array, given back when it is dropped.
    type Memory;

    /// The device's arrays.
    fn arrays<T>(&self, go: impl FnOnce(&mut Arrays<Self::Memory>) -> T) -> T;

    /// The context that calls act in.
    fn array_context(&self) -> Result<usize, CUresult>;

    /// Memory for so many bytes, which may be none.
    fn array_memory(&self, bytes: usize) -> Result<Self::Memory, CUresult>;

    /// A handle that nothing has had.
    fn fresh_handle(&self) -> usize;

    /// Waits until nothing runs that may use what is about to end.
    fn wait_for_users(&self);

    /// Bytes of some memory.
    fn bytes_of(memory: &Self::Memory) -> usize;
}

fn make<D: ArrayDevice>(
    device: &D,
    descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    part: bool,
) -> Result<usize, CUresult> {
    let context = device.array_context()?;
    let element = element_bytes(descriptor.Format, descriptor.NumChannels);
    let element = element
        .filter(|_| part || can_be(&descriptor))
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let sides = [descriptor.Width, descriptor.Height, descriptor.Depth];
    let sized = sides
        .iter()
        .try_fold(element, |bytes, side| bytes.checked_mul(*side.max(&1)));
    let is_planar = descriptor.Format == CU_AD_FORMAT_NV12;
    let bytes = match is_planar {
        true => 0,
        false => sized.ok_or(CUDA_ERROR_INVALID_VALUE)?,
    };
    let mut array = Array {
        descriptor,
        memory: device.array_memory(bytes)?,
        element,
        context,
        part,
        planes: Vec::new(),
    };
    if is_planar {
        for (channels, shrink) in [(1, 1), (2, 2)] {
            let plane = CUDA_ARRAY3D_DESCRIPTOR {
                Width: (descriptor.Width / shrink).max(1),
                Height: descriptor.Height / shrink,
                Format: CU_AD_FORMAT_UNSIGNED_INT8,
                NumChannels: channels,
                ..descriptor
            };
            array.planes.push(make(device, plane, true)?);
        }
    }
    let handle = device.fresh_handle();
    device.arrays(|all| all.arrays.insert(handle, array));
    Ok(handle)
}

/// Most levels of a mipmapped array.
pub fn most_levels(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> u32 {
    // Layers and faces stay.
    let deep = descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) == 0;
    let depth = if deep { descriptor.Depth } else { 0 };
    let longest = descriptor.Width.max(descriptor.Height).max(depth);
    longest.checked_ilog2().map_or(0, |last| last + 1)
}

/// A side of a mipmap level; 0 says that there is no such dimension.
pub fn shrunk(side: usize, level: u32) -> usize {
    side.checked_shr(level).unwrap_or(0).max(side.min(1))
}

fn make_mipmap<D: ArrayDevice>(
    device: &D,
    descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
) -> Result<usize, CUresult> {
    let context = device.array_context()?;
    let deep = descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) == 0;
    let fits = descriptor.Width.max(descriptor.Height) <= LIMIT_LAYERED;
    if !fits || !can_be(&descriptor) || descriptor.Format == CU_AD_FORMAT_NV12 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // The driver's documentation has it clamped.
    let levels = levels.clamp(1, most_levels(&descriptor));
    let mut made = Vec::new();
    for level in 0..levels {
        let one = CUDA_ARRAY3D_DESCRIPTOR {
            Width: shrunk(descriptor.Width, level),
            Height: shrunk(descriptor.Height, level),
            Depth: shrunk(descriptor.Depth, if deep { level } else { 0 }),
            ..descriptor
        };
        match make(device, one, true) {
            Ok(handle) => made.push(handle),
            Err(status) => {
                drop(device.arrays(|all| all.take(&made)));
                return Err(status);
            }
        }
    }
    let handle = device.fresh_handle();
    let mipmap = Mipmap {
        descriptor,
        levels: made,
        context,
    };
    device.arrays(|all| all.mipmaps.insert(handle, mipmap));
    Ok(handle)
}

/// The copy as it is where contexts do not matter.
pub fn without_contexts(copy: &CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D {
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

/// Functions behind [`array_calls!`](crate::array_calls).
pub mod calls {
    use super::*;

    fn put<T>(place: *mut T, result: Result<T, CUresult>) -> CUresult {
        match result {
            Err(status) => status,
            // SAFETY: the contract of every call here: places for answers are writable.
            Ok(value) => {
                if !place.is_null() {
                    // SAFETY: as above.
                    unsafe { place.write(value) };
                }
                CUDA_SUCCESS
            }
        }
    }

    fn hand_out<T>(place: *mut *mut T, result: Result<usize, CUresult>) -> CUresult {
        put(place, result.map(std::ptr::without_provenance_mut))
    }

    /// # Safety
    ///
    /// The contract of `cuArray3DCreate`.
    pub unsafe fn create<D: ArrayDevice>(
        device: &D,
        array: *mut CUarray,
        descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    ) -> CUresult {
        // SAFETY: the caller's contract: a description.
        let descriptor = unsafe { descriptor.as_ref() };
        let descriptor = descriptor.ok_or(CUDA_ERROR_INVALID_VALUE);
        hand_out(array, descriptor.and_then(|one| make(device, *one, false)))
    }

    /// # Safety
    ///
    /// The contract of `cuMipmappedArrayCreate`.
    pub unsafe fn create_mipmap<D: ArrayDevice>(
        device: &D,
        mipmap: *mut CUmipmappedArray,
        descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
    ) -> CUresult {
        // SAFETY: the caller's contract: a description.
        let descriptor = unsafe { descriptor.as_ref() };
        let descriptor = descriptor.ok_or(CUDA_ERROR_INVALID_VALUE);
        hand_out(
            mipmap,
            descriptor.and_then(|one| make_mipmap(device, *one, levels)),
        )
    }

    /// The contract of `cuArray3DGetDescriptor`.
    pub fn describe<D: ArrayDevice>(
        device: &D,
        place: *mut CUDA_ARRAY3D_DESCRIPTOR,
        array: CUarray,
    ) -> CUresult {
        let found = |all: &mut Arrays<D::Memory>| Ok(all.array(array.addr())?.descriptor);
        put(place, device.arrays(found))
    }

    /// The contract of `cuArrayGetPlane`.
    pub fn plane<D: ArrayDevice>(
        device: &D,
        place: *mut CUarray,
        array: CUarray,
        index: u32,
    ) -> CUresult {
        let found = device.arrays(|all| {
            let planes = &all.array(array.addr())?.planes;
            let plane = planes.get(index as usize).copied();
            plane.ok_or(CUDA_ERROR_INVALID_VALUE)
        });
        hand_out(place, found)
    }

    /// The contract of `cuMipmappedArrayGetLevel`.
    pub fn level<D: ArrayDevice>(
        device: &D,
        place: *mut CUarray,
        mipmap: CUmipmappedArray,
        level: u32,
    ) -> CUresult {
        let found = device.arrays(|all| {
            let levels = &all.mipmap(mipmap.addr())?.levels;
            let level = levels.get(level as usize).copied();
            level.ok_or(CUDA_ERROR_INVALID_VALUE)
        });
        hand_out(place, found)
    }

    /// The contract of `cuArrayDestroy`.
    pub fn destroy<D: ArrayDevice>(device: &D, array: CUarray) -> CUresult {
        device.wait_for_users();
        let gone = device.arrays(|all| {
            let known = all.array(array.addr())?;
            if known.part {
                return Err(CUDA_ERROR_INVALID_HANDLE);
            }
            let planes = known.planes.clone();
            Ok((all.take(&planes), all.take(&[array.addr()])))
        });
        gone.err().unwrap_or(CUDA_SUCCESS)
    }

    /// The contract of `cuMipmappedArrayDestroy`.
    pub fn destroy_mipmap<D: ArrayDevice>(device: &D, mipmap: CUmipmappedArray) -> CUresult {
        device.wait_for_users();
        let gone = device.arrays(|all| {
            let known = all.mipmaps.remove(&mipmap.addr());
            known.map(|mipmap| all.take(&mipmap.levels))
        });
        match gone {
            Some(_) => CUDA_SUCCESS,
            None => CUDA_ERROR_INVALID_HANDLE,
        }
    }

    fn requirements(bytes: usize) -> CUDA_ARRAY_MEMORY_REQUIREMENTS {
        CUDA_ARRAY_MEMORY_REQUIREMENTS {
            size: bytes,
            alignment: 16,
            reserved: [0; 4],
        }
    }

    /// The contract of `cuArrayGetMemoryRequirements`.
    pub fn memory<D: ArrayDevice>(
        device: &D,
        place: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        array: CUarray,
    ) -> CUresult {
        let found = device.arrays(|all| {
            let array = all.array(array.addr())?;
            Ok(requirements(D::bytes_of(&array.memory)))
        });
        put(place, found)
    }

    /// The contract of `cuMipmappedArrayGetMemoryRequirements`.
    pub fn mipmap_memory<D: ArrayDevice>(
        device: &D,
        place: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        mipmap: CUmipmappedArray,
    ) -> CUresult {
        let found = device.arrays(|all| {
            let levels = &all.mipmap(mipmap.addr())?.levels;
            let levels = levels.iter().filter_map(|level| all.arrays.get(level));
            let bytes = levels.map(|level| D::bytes_of(&level.memory)).sum();
            Ok(requirements(bytes))
        });
        put(place, found)
    }
}

/// The methods of the contract for arrays, for an [`ArrayDevice`]: an `impl` cannot lie in several files.
#[macro_export]
macro_rules! array_calls {
    () => {
        unsafe fn cuArray3DCreate_v2(
            &self,
            array: *mut $crate::cuda::CUarray,
            descriptor: *const $crate::cuda::CUDA_ARRAY3D_DESCRIPTOR,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::arrays::calls::create(self, array, descriptor) }
        }
        unsafe fn cuArray3DGetDescriptor_v2(
            &self,
            descriptor: *mut $crate::cuda::CUDA_ARRAY3D_DESCRIPTOR,
            array: $crate::cuda::CUarray,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::arrays::calls::describe(self, descriptor, array)
        }
        unsafe fn cuArrayDestroy(&self, array: $crate::cuda::CUarray) -> $crate::cuda::CUresult {
            $crate::cuda::arrays::calls::destroy(self, array)
        }
        unsafe fn cuArrayGetPlane(
            &self,
            plane: *mut $crate::cuda::CUarray,
            array: $crate::cuda::CUarray,
            index: u32,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::arrays::calls::plane(self, plane, array, index)
        }
        // No array here is sparse.
        unsafe fn cuArrayGetSparseProperties(
            &self,
            _properties: *mut $crate::cuda::CUDA_ARRAY_SPARSE_PROPERTIES,
            _array: $crate::cuda::CUarray,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::CUDA_ERROR_INVALID_VALUE
        }
        unsafe fn cuMipmappedArrayGetSparseProperties(
            &self,
            _properties: *mut $crate::cuda::CUDA_ARRAY_SPARSE_PROPERTIES,
            _mipmap: $crate::cuda::CUmipmappedArray,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::CUDA_ERROR_INVALID_VALUE
        }
        unsafe fn cuArrayGetMemoryRequirements(
            &self,
            requirements: *mut $crate::cuda::CUDA_ARRAY_MEMORY_REQUIREMENTS,
            array: $crate::cuda::CUarray,
            _device: $crate::cuda::CUdevice,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::arrays::calls::memory(self, requirements, array)
        }
        unsafe fn cuMipmappedArrayGetMemoryRequirements(
            &self,
            requirements: *mut $crate::cuda::CUDA_ARRAY_MEMORY_REQUIREMENTS,
            mipmap: $crate::cuda::CUmipmappedArray,
            _device: $crate::cuda::CUdevice,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::arrays::calls::mipmap_memory(self, requirements, mipmap)
        }
        unsafe fn cuMipmappedArrayCreate(
            &self,
            mipmap: *mut $crate::cuda::CUmipmappedArray,
            descriptor: *const $crate::cuda::CUDA_ARRAY3D_DESCRIPTOR,
            levels: u32,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::arrays::calls::create_mipmap(self, mipmap, descriptor, levels) }
        }
        unsafe fn cuMipmappedArrayGetLevel(
            &self,
            array: *mut $crate::cuda::CUarray,
            mipmap: $crate::cuda::CUmipmappedArray,
            level: u32,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::arrays::calls::level(self, array, mipmap, level)
        }
        unsafe fn cuMipmappedArrayDestroy(
            &self,
            mipmap: $crate::cuda::CUmipmappedArray,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::arrays::calls::destroy_mipmap(self, mipmap)
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(sides: [usize; 3], flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
        let [width, height, depth] = sides;
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: CU_AD_FORMAT_FLOAT,
            NumChannels: 1,
            Flags: flags,
        }
    }

    #[test]
    fn arrays_up_to_the_advertised_limits_can_be() {
        let (layered, cube) = (CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_CUBEMAP);
        let (surface, gather) = (CUDA_ARRAY3D_SURFACE_LDST, CUDA_ARRAY3D_TEXTURE_GATHER);
        for (sides, flags, expected) in [
            ([131_072, 0, 0], 0, true),
            ([131_073, 0, 0], 0, false),
            ([32_769, 0, 0], surface, false),
            ([0, 0, 0], 0, false),
            ([131_072, 65_536, 0], 0, true),
            ([1, 65_537, 0], 0, false),
            ([16_384, 16_384, 16_384], 0, true),
            ([1, 1, 32_768], 0, true),
            ([8193, 1, 16_385], 0, false),
            ([1, 1, 32_769], 0, false),
            ([4, 0, 4], 0, false),
            ([32_768, 0, 2048], layered, true),
            ([8, 8, 2049], layered, false),
            ([8, 8, 0], layered, false),
            ([8, 8, 6], cube, true),
            ([8, 4, 6], cube, false),
            ([8, 8, 5], cube, false),
            ([8, 8, 2046], cube | layered, true),
            ([8, 8, 8], cube | layered, false),
            ([8, 8, 2052], cube | layered, false),
            ([32_768, 8, 0], gather, true),
            ([32_769, 8, 0], gather, false),
            ([8, 0, 0], gather, false),
            ([8, 8, 0], 1 << 20, false),
            ([8, 8, 0], CUDA_ARRAY3D_SPARSE, false),
        ] {
            let can = can_be(&described(sides, flags));
            assert_eq!(can, expected, "{sides:?} {flags:#x}");
        }
    }

    #[test]
    fn levels_go_down_to_one_element_and_layers_stay() {
        assert_eq!(most_levels(&described([16, 5, 0], 0)), 5);
        assert_eq!(most_levels(&described([16, 5, 33], 0)), 6);
        assert_eq!(
            most_levels(&described([16, 5, 33], CUDA_ARRAY3D_LAYERED)),
            5
        );
        assert_eq!(most_levels(&described([0, 0, 0], 0)), 0);
    }

    #[test]
    fn a_format_with_its_own_channels_takes_no_others() {
        assert_eq!(element_bytes(CU_AD_FORMAT_UNORM_INT8X2, 2), Some(2));
        assert_eq!(element_bytes(CU_AD_FORMAT_UNORM_INT8X2, 4), None);
        assert_eq!(element_bytes(CU_AD_FORMAT_FLOAT, 3), None);
        assert_eq!(element_bytes(CU_AD_FORMAT_HALF, 4), Some(8));
        assert_eq!(element_bytes(CU_AD_FORMAT_BC1_UNORM, 4), None);
    }
}
