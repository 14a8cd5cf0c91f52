//! Arrays: what each is, its parts, and whether a copy lies in it.

use std::collections::HashMap;

use towline_backend::cuda as wire;
use towline_backend::cuda::arrays::most_levels;
use towline_backend::cuda::*;
use towline_client::cuda::Session;

use crate::driver::{Acting, Driver, read, room_beside, write};

/// An array, or a level or plane of one.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) context: u64,
    /// How it was created; planes are asked about when somebody wants to know.
    pub(crate) descriptor: Option<CUDA_ARRAY3D_DESCRIPTOR>,
    /// What it is a part of, and ends with.
    whole: Option<u64>,
    /// Parts that are known: levels and planes by their index.
    parts: HashMap<u32, u64>,
    /// Mipmap levels; 0 for an array.
    levels: u32,
}

/// Arrays and mipmapped arrays by number.
#[derive(Debug, Default)]
pub(crate) struct Arrays(HashMap<u64, Array>);

/// Bytes of an element; `None` for formats whose elements are blocks or lie in planes.
fn element_bytes(format: CUarray_format, channels: u32) -> Option<usize> {
    let (component, channels) = match format {
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
        _ => return None,
    };
    Some(component * channels as usize)
}

impl Array {
    /// Bytes of an element, where elements are what a row is made of.
    pub(crate) fn element(&self) -> Option<usize> {
        let known = self.descriptor.as_ref()?;
        element_bytes(known.Format, known.NumChannels)
    }

    /// Whether a box of bytes, rows and layers lies in it: it may begin and end within elements (seen with driver 580.159). Of a format
    /// whose layout is the driver's own, the driver judges.
    pub(crate) fn holds(&self, start: [usize; 3], size: [usize; 3]) -> bool {
        let (Some(known), Some(element)) = (&self.descriptor, self.element()) else {
            return true;
        };
        let limits = [
            known.Width.saturating_mul(element),
            known.Height.max(1),
            known.Depth.max(1),
        ];
        let mut sides = start.iter().zip(size).zip(limits);
        sides.all(|((start, size), limit)| start.checked_add(size).is_some_and(|end| end <= limit))
    }
}

impl Arrays {
    pub(crate) fn get(&self, number: u64) -> Result<&Array, CUresult> {
        self.0.get(&number).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The array of this number, and not a mipmapped one.
    pub(crate) fn plain(&self, number: u64) -> Result<&Array, CUresult> {
        let found = self.get(number)?;
        match found.levels {
            0 => Ok(found),
            _ => Err(CUDA_ERROR_INVALID_HANDLE),
        }
    }

    pub(crate) fn mipmap(&self, number: u64) -> Result<&Array, CUresult> {
        let found = self.get(number)?;
        match found.levels {
            0 => Err(CUDA_ERROR_INVALID_HANDLE),
            _ => Ok(found),
        }
    }

    /// Forgets an array with its parts.
    fn remove(&mut self, number: u64) {
        if let Some(array) = self.0.remove(&number) {
            for part in array.parts.values() {
                self.0.remove(part);
            }
        }
    }

    pub(crate) fn drop_context(&mut self, context: u64) {
        self.0.retain(|_, array| array.context != context);
    }
}

/// A side of a mipmap level; 0 says that there is no such dimension.
fn shrunk(side: usize, level: u32) -> usize {
    side.checked_shr(level).unwrap_or(0).max(side.min(1))
}

impl Driver {
    fn enter_array(&self, number: u64, array: Array) {
        write(&self.arrays).0.insert(number, array);
    }

    pub(crate) fn create_array(
        &self,
        descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    ) -> Result<CUarray, CUresult> {
        room_beside(read(&self.arrays).0.len())?;
        let acting = self.session_for(0)?;
        let handle = wire::ArrayHandle(acting.mint(wire::ArrayHandle::TAG));
        let request = wire::Array3DCreateV2 {
            pHandle: handle,
            pAllocateArray: descriptor.into(),
        };
        self.with_kept_released(acting.context.device, || {
            acting.call_for("cuArrayCreate", &request)
        })?;
        let array = Array {
            context: acting.context.number,
            descriptor: Some(descriptor),
            whole: None,
            parts: HashMap::new(),
            levels: 0,
        };
        self.enter_array(handle.0, array);
        Ok(handle.to_raw())
    }

    pub(crate) fn create_mipmap(
        &self,
        descriptor: CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
    ) -> Result<CUmipmappedArray, CUresult> {
        room_beside(read(&self.arrays).0.len())?;
        let acting = self.session_for(0)?;
        let tag = wire::MipmappedArrayHandle::TAG;
        let handle = wire::MipmappedArrayHandle(acting.mint(tag));
        let request = wire::MipmappedArrayCreate {
            pHandle: handle,
            pMipmappedArrayDesc: descriptor.into(),
            numMipmapLevels: levels,
        };
        self.with_kept_released(acting.context.device, || {
            acting.call_for("cuMipmappedArrayCreate", &request)
        })?;
        let array = Array {
            context: acting.context.number,
            descriptor: Some(descriptor),
            whole: None,
            parts: HashMap::new(),
            levels: levels.clamp(1, most_levels(&descriptor).max(1)),
        };
        self.enter_array(handle.0, array);
        Ok(handle.to_raw())
    }

    /// A call that acts where an array lies.
    pub(crate) fn with_array(&self, context: u64) -> Result<Acting<'_>, CUresult> {
        self.acting_in(self.context(context)?)
    }

    /// A level of a mipmapped array: the same array each time, which the driver names when it is first asked for.
    pub(crate) fn level(&self, mipmap: u64, level: u32) -> Result<u64, CUresult> {
        self.current()?;
        let known = read(&self.arrays).mipmap(mipmap)?.clone();
        if level >= known.levels {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let Some(number) = known.parts.get(&level) {
            return Ok(*number);
        }
        let acting = self.with_array(known.context)?;
        let handle = wire::ArrayHandle(acting.mint(wire::ArrayHandle::TAG));
        acting.post(&wire::MipmappedArrayGetLevel {
            pLevelArray: handle,
            hMipmappedArray: wire::MipmappedArrayHandle(mipmap),
            level,
        })?;
        let descriptor = known.descriptor.map(|whole| CUDA_ARRAY3D_DESCRIPTOR {
            Width: shrunk(whole.Width, level),
            Height: shrunk(whole.Height, level),
            // Layers stay.
            Depth: match whole.Flags & CUDA_ARRAY3D_LAYERED {
                0 if whole.Flags & CUDA_ARRAY3D_CUBEMAP == 0 => shrunk(whole.Depth, level),
                _ => whole.Depth,
            },
            ..whole
        });
        Ok(self.enter_part(mipmap, level, handle.0, known.context, descriptor))
    }

    /// Enters a part; of two that came at once, the first stays.
    fn enter_part(
        &self,
        whole: u64,
        index: u32,
        number: u64,
        context: u64,
        descriptor: Option<CUDA_ARRAY3D_DESCRIPTOR>,
    ) -> u64 {
        let mut arrays = write(&self.arrays);
        let Some(owner) = arrays.0.get_mut(&whole) else {
            return number;
        };
        let kept = *owner.parts.entry(index).or_insert(number);
        let part = Array {
            context,
            descriptor,
            whole: Some(whole),
            parts: HashMap::new(),
            levels: 0,
        };
        arrays.0.entry(kept).or_insert(part);
        kept
    }

    /// A plane of an array.
    pub(crate) fn plane(&self, array: u64, plane: u32) -> Result<u64, CUresult> {
        self.current()?;
        let known = read(&self.arrays).plain(array)?.clone();
        if let Some(number) = known.parts.get(&plane) {
            return Ok(*number);
        }
        let acting = self.with_array(known.context)?;
        let handle = wire::ArrayHandle(acting.mint(wire::ArrayHandle::TAG));
        let request = wire::ArrayGetPlane {
            pPlaneArray: handle,
            hArray: wire::ArrayHandle(array),
            planeIdx: plane,
        };
        acting.call_for("cuArrayGetPlane", &request)?;
        let plane = self.enter_part(array, plane, handle.0, known.context, None);
        // A copy is checked against it, so it is known from the start.
        self.describe_array(plane)?;
        Ok(plane)
    }

    /// How an array was created.
    pub(crate) fn describe_array(&self, array: u64) -> Result<CUDA_ARRAY3D_DESCRIPTOR, CUresult> {
        self.current()?;
        let known = read(&self.arrays).plain(array)?.clone();
        if let Some(descriptor) = known.descriptor {
            return Ok(descriptor);
        }
        let acting = self.with_array(known.context)?;
        let request = wire::Array3DGetDescriptorV2 {
            hArray: wire::ArrayHandle(array),
        };
        let body = acting.call_for("cuArrayGetDescriptor", &request)?;
        let reply =
            wire::Array3DGetDescriptorV2Reply::decode(&body).map_err(|_| acting.malformed())?;
        let told = reply.pArrayDescriptor.ok_or(CUDA_ERROR_UNKNOWN)?.to_raw();
        if let Some(array) = write(&self.arrays).0.get_mut(&array) {
            array.descriptor = Some(told);
        }
        Ok(told)
    }

    pub(crate) fn destroy_array(&self, array: u64) -> Result<(), CUresult> {
        self.current()?;
        let known = read(&self.arrays).plain(array)?.clone();
        if known.whole.is_some() {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let acting = self.with_array(known.context)?;
        let request = wire::ArrayDestroy {
            hArray: wire::ArrayHandle(array),
        };
        // Nothing may name it any more when it is gone there.
        write(&self.arrays).remove(array);
        acting.call_for("cuArrayDestroy", &request).map(|_| ())
    }

    pub(crate) fn destroy_mipmap(&self, mipmap: u64) -> Result<(), CUresult> {
        self.current()?;
        let context = read(&self.arrays).mipmap(mipmap)?.context;
        let acting = self.with_array(context)?;
        let request = wire::MipmappedArrayDestroy {
            hMipmappedArray: wire::MipmappedArrayHandle(mipmap),
        };
        write(&self.arrays).remove(mipmap);
        acting
            .call_for("cuMipmappedArrayDestroy", &request)
            .map(|_| ())
    }

    /// The number that a device has on the server of an array.
    pub(crate) fn ordinal_for(&self, array: u64, device: CUdevice) -> Result<i32, CUresult> {
        let known = self.device(device)?;
        match known.session == Session::index_of(array) {
            true => Ok(known.ordinal),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(format: CUarray_format, channels: u32, size: [usize; 3]) -> Array {
        let [Width, Height, Depth] = size;
        Array {
            context: 1,
            descriptor: Some(CUDA_ARRAY3D_DESCRIPTOR {
                Width,
                Height,
                Depth,
                Format: format,
                NumChannels: channels,
                Flags: 0,
            }),
            whole: None,
            parts: HashMap::new(),
            levels: 0,
        }
    }

    #[test]
    fn a_box_lies_in_an_array() {
        let array = array(CU_AD_FORMAT_FLOAT, 2, [10, 4, 0]);
        assert!(array.holds([0, 0, 0], [80, 4, 1]));
        assert!(array.holds([72, 3, 0], [8, 1, 1]));
        assert!(!array.holds([0, 0, 0], [88, 1, 1]));
        assert!(array.holds([4, 0, 0], [12, 1, 1]));
        assert!(!array.holds([76, 0, 0], [8, 1, 1]));
        assert!(!array.holds([0, 1, 0], [8, 4, 1]));
        assert!(!array.holds([0, 0, 1], [8, 1, 1]));
        assert!(!array.holds([0, usize::MAX, 0], [8, 1, 1]));
    }

    #[test]
    fn formats_of_blocks_and_planes_are_the_drivers_to_judge() {
        assert!(array(CU_AD_FORMAT_BC7_UNORM, 4, [16, 16, 0]).holds([0; 3], [64, 99, 1]));
        assert!(array(CU_AD_FORMAT_NV12, 3, [16, 16, 0]).element().is_none());
    }

    #[test]
    fn levels_halve_down_to_one_and_never_vanish() {
        assert_eq!(
            [0, 1, 2, 3, 9].map(|level| shrunk(5, level)),
            [5, 2, 1, 1, 1]
        );
        assert_eq!(shrunk(0, 3), 0);
        assert_eq!(shrunk(7, 200), 1);
    }
}
