//! The calls of arrays, textures, surfaces, tensors and texture references.

use std::ffi::c_void;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::cuda::texture_reference as setting;

use super::reference::Bound;
use crate::driver::{Driver, TextureCalls, read, status, tell};
use crate::tensor::Arguments;

fn cuboid(rectangle: &CUDA_ARRAY_DESCRIPTOR) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: rectangle.Width,
        Height: rectangle.Height,
        Depth: 0,
        Format: rectangle.Format,
        NumChannels: rectangle.NumChannels,
        Flags: 0,
    }
}

fn rectangle(cuboid: CUDA_ARRAY3D_DESCRIPTOR) -> CUDA_ARRAY_DESCRIPTOR {
    CUDA_ARRAY_DESCRIPTOR {
        Width: cuboid.Width,
        Height: cuboid.Height,
        Format: cuboid.Format,
        NumChannels: cuboid.NumChannels,
    }
}

fn bits(value: f32) -> u64 {
    value.to_bits().into()
}

fn float(word: u64) -> f32 {
    f32::from_bits(word as u32)
}

/// The words of a rectangle in memory.
fn plane(rectangle: &CUDA_ARRAY_DESCRIPTOR, address: u64, pitch: usize) -> [u64; 6] {
    [
        rectangle.Width as u64,
        rectangle.Height as u64,
        rectangle.Format.into(),
        rectangle.NumChannels.into(),
        address,
        pitch as u64,
    ]
}

impl Driver {
    /// Tells the first word of a setting, as what it is.
    ///
    /// # Safety
    /// `target` is NULL or writable.
    unsafe fn tell_setting<T>(
        &self,
        target: *mut T,
        reference: CUtexref,
        which: u32,
        convert: impl FnOnce(u64) -> T,
    ) -> CUresult {
        let words = self.reference_words(reference, which, 0);
        // SAFETY: the caller's contract.
        unsafe { tell(target, words.map(|[first, ..]| convert(first))) }
    }

    fn change(&self, reference: CUtexref, which: u32, words: &[u64]) -> CUresult {
        status(self.set_reference(reference, which, words).map(|_| ()))
    }
}

impl TextureCalls for Driver {
    unsafe fn cuArrayCreate(
        &self,
        pHandle: *mut CUarray,
        pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR_v1,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let wanted = unsafe { pAllocateArray.as_ref() }.map(|wanted| CUDA_ARRAY_DESCRIPTOR {
            Width: wanted.Width as usize,
            Height: wanted.Height as usize,
            Format: wanted.Format,
            NumChannels: wanted.NumChannels,
        });
        let wanted = wanted.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: as above.
        unsafe { TextureCalls::cuArrayCreate_v2(self, pHandle, wanted) }
    }

    unsafe fn cuArrayCreate_v2(
        &self,
        pHandle: *mut CUarray,
        pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let wanted = unsafe { pAllocateArray.as_ref() }.map(cuboid);
        let wanted = wanted.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: as above.
        unsafe { TextureCalls::cuArray3DCreate_v2(self, pHandle, wanted) }
    }

    unsafe fn cuArrayGetDescriptor(
        &self,
        pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR_v1,
        hArray: CUarray,
    ) -> CUresult {
        let known = self.describe_array(hArray.addr() as u64);
        let narrow = |known: CUDA_ARRAY3D_DESCRIPTOR| CUDA_ARRAY_DESCRIPTOR_v1 {
            Width: known.Width as u32,
            Height: known.Height as u32,
            Format: known.Format,
            NumChannels: known.NumChannels,
        };
        // SAFETY: the caller's contract.
        unsafe { tell(pArrayDescriptor, known.map(narrow)) }
    }

    unsafe fn cuArrayGetDescriptor_v2(
        &self,
        pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR,
        hArray: CUarray,
    ) -> CUresult {
        let known = self.describe_array(hArray.addr() as u64);
        // SAFETY: the caller's contract.
        unsafe { tell(pArrayDescriptor, known.map(rectangle)) }
    }

    unsafe fn cuArray3DCreate(
        &self,
        pHandle: *mut CUarray,
        pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR_v1,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let wanted = unsafe { pAllocateArray.as_ref() }.map(|wanted| CUDA_ARRAY3D_DESCRIPTOR {
            Width: wanted.Width as usize,
            Height: wanted.Height as usize,
            Depth: wanted.Depth as usize,
            Format: wanted.Format,
            NumChannels: wanted.NumChannels,
            Flags: wanted.Flags,
        });
        let wanted = wanted.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: as above.
        unsafe { TextureCalls::cuArray3DCreate_v2(self, pHandle, wanted) }
    }

    unsafe fn cuArray3DCreate_v2(
        &self,
        pHandle: *mut CUarray,
        pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let wanted = unsafe { pAllocateArray.as_ref() };
        let (Some(wanted), false) = (wanted, pHandle.is_null()) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        // SAFETY: the caller's contract.
        unsafe { tell(pHandle, self.create_array(*wanted)) }
    }

    unsafe fn cuArray3DGetDescriptor(
        &self,
        pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v1,
        hArray: CUarray,
    ) -> CUresult {
        let known = self.describe_array(hArray.addr() as u64);
        let narrow = |known: CUDA_ARRAY3D_DESCRIPTOR| CUDA_ARRAY3D_DESCRIPTOR_v1 {
            Width: known.Width as u32,
            Height: known.Height as u32,
            Depth: known.Depth as u32,
            Format: known.Format,
            NumChannels: known.NumChannels,
            Flags: known.Flags,
        };
        // SAFETY: the caller's contract.
        unsafe { tell(pArrayDescriptor, known.map(narrow)) }
    }

    unsafe fn cuArray3DGetDescriptor_v2(
        &self,
        pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR,
        hArray: CUarray,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { tell(pArrayDescriptor, self.describe_array(hArray.addr() as u64)) }
    }

    unsafe fn cuArrayDestroy(&self, hArray: CUarray) -> CUresult {
        status(self.destroy_array(hArray.addr() as u64))
    }

    unsafe fn cuArrayGetPlane(
        &self,
        pPlaneArray: *mut CUarray,
        hArray: CUarray,
        planeIdx: u32,
    ) -> CUresult {
        if pPlaneArray.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let plane = self.plane(hArray.addr() as u64, planeIdx);
        // SAFETY: the caller's contract.
        unsafe {
            tell(
                pPlaneArray,
                plane.map(|number| wire::ArrayHandle(number).to_raw()),
            )
        }
    }

    unsafe fn cuArrayGetSparseProperties(
        &self,
        sparseProperties: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
        array: CUarray,
    ) -> CUresult {
        let number = array.addr() as u64;
        let told = self.current().and_then(|_| {
            let context = read(&self.arrays).plain(number)?.context;
            let acting = self.with_array(context)?;
            let body = acting.call(&wire::ArrayGetSparseProperties {
                array: wire::ArrayHandle(number),
            })?;
            let reply = wire::ArrayGetSparsePropertiesReply::decode(&body);
            let reply = reply.map_err(|_| acting.malformed())?;
            let told = reply.sparseProperties.ok_or(CUDA_ERROR_UNKNOWN)?;
            Ok(told.to_raw())
        });
        // SAFETY: the caller's contract.
        unsafe { tell(sparseProperties, told) }
    }

    unsafe fn cuArrayGetMemoryRequirements(
        &self,
        memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        array: CUarray,
        device: CUdevice,
    ) -> CUresult {
        let number = array.addr() as u64;
        let told = self.current().and_then(|_| {
            let context = read(&self.arrays).plain(number)?.context;
            let device = self.ordinal_for(number, device)?;
            let acting = self.with_array(context)?;
            let body = acting.call(&wire::ArrayGetMemoryRequirements {
                array: wire::ArrayHandle(number),
                device,
            })?;
            let reply = wire::ArrayGetMemoryRequirementsReply::decode(&body);
            let reply = reply.map_err(|_| acting.malformed())?;
            let told = reply.memoryRequirements.ok_or(CUDA_ERROR_UNKNOWN)?;
            Ok(told.to_raw())
        });
        // SAFETY: the caller's contract.
        unsafe { tell(memoryRequirements, told) }
    }

    unsafe fn cuMipmappedArrayCreate(
        &self,
        pHandle: *mut CUmipmappedArray,
        pMipmappedArrayDesc: *const CUDA_ARRAY3D_DESCRIPTOR,
        numMipmapLevels: u32,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let wanted = unsafe { pMipmappedArrayDesc.as_ref() };
        let (Some(wanted), false) = (wanted, pHandle.is_null()) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        // SAFETY: the caller's contract.
        unsafe { tell(pHandle, self.create_mipmap(*wanted, numMipmapLevels)) }
    }

    unsafe fn cuMipmappedArrayGetLevel(
        &self,
        pLevelArray: *mut CUarray,
        hMipmappedArray: CUmipmappedArray,
        level: u32,
    ) -> CUresult {
        if pLevelArray.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let level = self.level(hMipmappedArray.addr() as u64, level);
        // SAFETY: the caller's contract.
        unsafe {
            tell(
                pLevelArray,
                level.map(|number| wire::ArrayHandle(number).to_raw()),
            )
        }
    }

    unsafe fn cuMipmappedArrayDestroy(&self, hMipmappedArray: CUmipmappedArray) -> CUresult {
        status(self.destroy_mipmap(hMipmappedArray.addr() as u64))
    }

    unsafe fn cuMipmappedArrayGetSparseProperties(
        &self,
        sparseProperties: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
        mipmap: CUmipmappedArray,
    ) -> CUresult {
        let number = mipmap.addr() as u64;
        let told = self.current().and_then(|_| {
            let context = read(&self.arrays).mipmap(number)?.context;
            let acting = self.with_array(context)?;
            let body = acting.call(&wire::MipmappedArrayGetSparseProperties {
                mipmap: wire::MipmappedArrayHandle(number),
            })?;
            let reply = wire::MipmappedArrayGetSparsePropertiesReply::decode(&body);
            let reply = reply.map_err(|_| acting.malformed())?;
            let told = reply.sparseProperties.ok_or(CUDA_ERROR_UNKNOWN)?;
            Ok(told.to_raw())
        });
        // SAFETY: the caller's contract.
        unsafe { tell(sparseProperties, told) }
    }

    unsafe fn cuMipmappedArrayGetMemoryRequirements(
        &self,
        memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        mipmap: CUmipmappedArray,
        device: CUdevice,
    ) -> CUresult {
        let number = mipmap.addr() as u64;
        let told = self.current().and_then(|_| {
            let context = read(&self.arrays).mipmap(number)?.context;
            let device = self.ordinal_for(number, device)?;
            let acting = self.with_array(context)?;
            let body = acting.call(&wire::MipmappedArrayGetMemoryRequirements {
                mipmap: wire::MipmappedArrayHandle(number),
                device,
            })?;
            let reply = wire::MipmappedArrayGetMemoryRequirementsReply::decode(&body);
            let reply = reply.map_err(|_| acting.malformed())?;
            let told = reply.memoryRequirements.ok_or(CUDA_ERROR_UNKNOWN)?;
            Ok(told.to_raw())
        });
        // SAFETY: the caller's contract.
        unsafe { tell(memoryRequirements, told) }
    }

    unsafe fn cuTexObjectCreate(
        &self,
        pTexObject: *mut CUtexObject,
        pResDesc: *const CUDA_RESOURCE_DESC,
        pTexDesc: *const CUDA_TEXTURE_DESC,
        pResViewDesc: *const CUDA_RESOURCE_VIEW_DESC,
    ) -> CUresult {
        // SAFETY: the caller's contract, for this and the others.
        let resource = unsafe { pResDesc.as_ref() };
        // SAFETY: as above.
        let texture = unsafe { pTexDesc.as_ref() };
        // SAFETY: as above.
        let view = unsafe { pResViewDesc.as_ref() };
        let (Some(resource), Some(texture), false) = (resource, texture, pTexObject.is_null())
        else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let made = self.create_texture(resource, *texture, view.copied());
        // SAFETY: the caller's contract.
        unsafe { tell(pTexObject, made) }
    }

    unsafe fn cuTexObjectDestroy(&self, texObject: CUtexObject) -> CUresult {
        status(self.destroy_texture(texObject, false))
    }

    unsafe fn cuTexObjectGetResourceDesc(
        &self,
        pResDesc: *mut CUDA_RESOURCE_DESC,
        texObject: CUtexObject,
    ) -> CUresult {
        let known = self.texture(texObject, false);
        // SAFETY: the caller's contract.
        unsafe { tell(pResDesc, known.map(|known| known.resource.to_raw())) }
    }

    unsafe fn cuTexObjectGetTextureDesc(
        &self,
        pTexDesc: *mut CUDA_TEXTURE_DESC,
        texObject: CUtexObject,
    ) -> CUresult {
        let known = self.texture(texObject, false);
        let told = known.and_then(|known| known.texture.ok_or(CUDA_ERROR_INVALID_VALUE));
        // SAFETY: the caller's contract.
        unsafe { tell(pTexDesc, told) }
    }

    unsafe fn cuTexObjectGetResourceViewDesc(
        &self,
        pResViewDesc: *mut CUDA_RESOURCE_VIEW_DESC,
        texObject: CUtexObject,
    ) -> CUresult {
        let known = self.texture(texObject, false);
        let told = known.and_then(|known| known.view.ok_or(CUDA_ERROR_INVALID_VALUE));
        // SAFETY: the caller's contract.
        unsafe { tell(pResViewDesc, told) }
    }

    unsafe fn cuSurfObjectCreate(
        &self,
        pSurfObject: *mut CUsurfObject,
        pResDesc: *const CUDA_RESOURCE_DESC,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let resource = unsafe { pResDesc.as_ref() };
        let (Some(resource), false) = (resource, pSurfObject.is_null()) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        // SAFETY: the caller's contract.
        unsafe { tell(pSurfObject, self.create_surface(resource)) }
    }

    unsafe fn cuSurfObjectDestroy(&self, surfObject: CUsurfObject) -> CUresult {
        status(self.destroy_texture(surfObject, true))
    }

    unsafe fn cuSurfObjectGetResourceDesc(
        &self,
        pResDesc: *mut CUDA_RESOURCE_DESC,
        surfObject: CUsurfObject,
    ) -> CUresult {
        let known = self.texture(surfObject, true);
        // SAFETY: the caller's contract.
        unsafe { tell(pResDesc, known.map(|known| known.resource.to_raw())) }
    }

    unsafe fn cuTensorMapEncodeTiled(
        &self,
        tensorMap: *mut CUtensorMap,
        tensorDataType: CUtensorMapDataType,
        tensorRank: cuuint32_t,
        globalAddress: *mut c_void,
        globalDim: *const cuuint64_t,
        globalStrides: *const cuuint64_t,
        boxDim: *const cuuint32_t,
        elementStrides: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> CUresult {
        let rank = tensorRank;
        // SAFETY: the caller's contract, for this and the others.
        let words = unsafe { Arguments::new(1, tensorDataType, rank, globalDim, globalStrides) };
        let words = words.and_then(|mut words| {
            // SAFETY: as above.
            unsafe { words.list(boxDim, rank) }?;
            // SAFETY: as above.
            unsafe { words.list(elementStrides, rank) }?;
            words.words([interleave, swizzle, l2Promotion, oobFill]);
            Ok(words)
        });
        // SAFETY: the caller's contract.
        unsafe { self.describe_tensor(tensorMap, 0, globalAddress, words) }
    }

    unsafe fn cuTensorMapEncodeIm2col(
        &self,
        tensorMap: *mut CUtensorMap,
        tensorDataType: CUtensorMapDataType,
        tensorRank: cuuint32_t,
        globalAddress: *mut c_void,
        globalDim: *const cuuint64_t,
        globalStrides: *const cuuint64_t,
        pixelBoxLowerCorner: *const i32,
        pixelBoxUpperCorner: *const i32,
        channelsPerPixel: cuuint32_t,
        pixelsPerColumn: cuuint32_t,
        elementStrides: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> CUresult {
        let rank = tensorRank;
        // SAFETY: the caller's contract, for this and the others.
        let words = unsafe { Arguments::new(3, tensorDataType, rank, globalDim, globalStrides) };
        let words = words.and_then(|mut words| {
            // Corners are in the dimensions between the first and the last.
            // SAFETY: as above.
            unsafe { words.list(pixelBoxLowerCorner, rank - 2) }?;
            // SAFETY: as above.
            unsafe { words.list(pixelBoxUpperCorner, rank - 2) }?;
            words.words([channelsPerPixel, pixelsPerColumn]);
            // SAFETY: as above.
            unsafe { words.list(elementStrides, rank) }?;
            words.words([interleave, swizzle, l2Promotion, oobFill]);
            Ok(words)
        });
        // SAFETY: the caller's contract.
        unsafe { self.describe_tensor(tensorMap, 1, globalAddress, words) }
    }

    unsafe fn cuTensorMapEncodeIm2colWide(
        &self,
        tensorMap: *mut CUtensorMap,
        tensorDataType: CUtensorMapDataType,
        tensorRank: cuuint32_t,
        globalAddress: *mut c_void,
        globalDim: *const cuuint64_t,
        globalStrides: *const cuuint64_t,
        pixelBoxLowerCornerWidth: i32,
        pixelBoxUpperCornerWidth: i32,
        channelsPerPixel: cuuint32_t,
        pixelsPerColumn: cuuint32_t,
        elementStrides: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        mode: CUtensorMapIm2ColWideMode,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> CUresult {
        let rank = tensorRank;
        let corners = [pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth];
        // SAFETY: the caller's contract, for this and the others.
        let words = unsafe { Arguments::new(3, tensorDataType, rank, globalDim, globalStrides) };
        let words = words.and_then(|mut words| {
            // SAFETY: as above.
            unsafe { words.list(corners.as_ptr(), 2) }?;
            words.words([channelsPerPixel, pixelsPerColumn]);
            // SAFETY: as above.
            unsafe { words.list(elementStrides, rank) }?;
            words.words([interleave, mode, swizzle, l2Promotion, oobFill]);
            Ok(words)
        });
        // SAFETY: the caller's contract.
        unsafe { self.describe_tensor(tensorMap, 2, globalAddress, words) }
    }

    unsafe fn cuTensorMapReplaceAddress(
        &self,
        tensorMap: *mut CUtensorMap,
        globalAddress: *mut c_void,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { self.move_tensor(tensorMap, globalAddress) }
    }

    unsafe fn cuTexRefCreate(&self, pTexRef: *mut CUtexref) -> CUresult {
        if pTexRef.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        unsafe { tell(pTexRef, self.create_reference()) }
    }

    unsafe fn cuTexRefDestroy(&self, hTexRef: CUtexref) -> CUresult {
        status(self.destroy_reference(hTexRef))
    }

    unsafe fn cuTexRefSetArray(&self, hTexRef: CUtexref, hArray: CUarray, Flags: u32) -> CUresult {
        let bound = Bound::Array(hArray.addr() as u64);
        status(self.bind_reference(hTexRef, bound, Flags))
    }

    unsafe fn cuTexRefSetMipmappedArray(
        &self,
        hTexRef: CUtexref,
        hMipmappedArray: CUmipmappedArray,
        Flags: u32,
    ) -> CUresult {
        let bound = Bound::Mipmap(hMipmappedArray.addr() as u64);
        status(self.bind_reference(hTexRef, bound, Flags))
    }

    unsafe fn cuTexRefSetAddress(
        &self,
        ByteOffset: *mut u32,
        hTexRef: CUtexref,
        dptr: CUdeviceptr_v1,
        bytes: u32,
    ) -> CUresult {
        let mut offset = 0;
        let (address, bytes) = (dptr.into(), bytes as usize);
        // SAFETY: the offset is a local.
        let set = unsafe {
            TextureCalls::cuTexRefSetAddress_v2(self, &raw mut offset, hTexRef, address, bytes)
        };
        if set == CUDA_SUCCESS {
            // SAFETY: the caller's contract: NULL or writable.
            unsafe { crate::raw::fill(ByteOffset, 1, [offset as u32].into_iter()) };
        }
        set
    }

    unsafe fn cuTexRefSetAddress_v2(
        &self,
        ByteOffset: *mut usize,
        hTexRef: CUtexref,
        dptr: CUdeviceptr,
        bytes: usize,
    ) -> CUresult {
        match self.set_reference(hTexRef, setting::ADDRESS, &[dptr, bytes as u64]) {
            Ok(offset) => {
                // SAFETY: the caller's contract: NULL or writable.
                unsafe { crate::raw::fill(ByteOffset, 1, [offset as usize].into_iter()) };
                CUDA_SUCCESS
            }
            Err(status) => status,
        }
    }

    unsafe fn cuTexRefSetAddress2D(
        &self,
        hTexRef: CUtexref,
        desc: *const CUDA_ARRAY_DESCRIPTOR_v1,
        dptr: CUdeviceptr_v1,
        Pitch: u32,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let Some(desc) = (unsafe { desc.as_ref() }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let wide = CUDA_ARRAY_DESCRIPTOR {
            Width: desc.Width as usize,
            Height: desc.Height as usize,
            Format: desc.Format,
            NumChannels: desc.NumChannels,
        };
        let words = plane(&wide, dptr.into(), Pitch as usize);
        self.change(hTexRef, setting::ADDRESS_2D_UNALIGNED, &words)
    }

    unsafe fn cuTexRefSetAddress2D_v2(
        &self,
        hTexRef: CUtexref,
        desc: *const CUDA_ARRAY_DESCRIPTOR,
        dptr: CUdeviceptr,
        Pitch: usize,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        match unsafe { desc.as_ref() } {
            None => CUDA_ERROR_INVALID_VALUE,
            Some(desc) => {
                let words = plane(desc, dptr, Pitch);
                self.change(hTexRef, setting::ADDRESS_2D_UNALIGNED, &words)
            }
        }
    }

    unsafe fn cuTexRefSetAddress2D_v3(
        &self,
        hTexRef: CUtexref,
        desc: *const CUDA_ARRAY_DESCRIPTOR,
        dptr: CUdeviceptr,
        Pitch: usize,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        match unsafe { desc.as_ref() } {
            None => CUDA_ERROR_INVALID_VALUE,
            Some(desc) => {
                let words = plane(desc, dptr, Pitch);
                self.change(hTexRef, setting::ADDRESS_2D, &words)
            }
        }
    }

    unsafe fn cuTexRefSetFormat(
        &self,
        hTexRef: CUtexref,
        fmt: CUarray_format,
        NumPackedComponents: i32,
    ) -> CUresult {
        let words = [fmt.into(), NumPackedComponents as u64];
        self.change(hTexRef, setting::FORMAT, &words)
    }

    unsafe fn cuTexRefSetAddressMode(
        &self,
        hTexRef: CUtexref,
        dim: i32,
        am: CUaddress_mode,
    ) -> CUresult {
        self.change(hTexRef, setting::ADDRESS_MODE, &[dim as u64, am.into()])
    }

    unsafe fn cuTexRefSetFilterMode(&self, hTexRef: CUtexref, fm: CUfilter_mode) -> CUresult {
        self.change(hTexRef, setting::FILTER_MODE, &[fm.into()])
    }

    unsafe fn cuTexRefSetMipmapFilterMode(&self, hTexRef: CUtexref, fm: CUfilter_mode) -> CUresult {
        self.change(hTexRef, setting::MIPMAP_FILTER_MODE, &[fm.into()])
    }

    unsafe fn cuTexRefSetMipmapLevelBias(&self, hTexRef: CUtexref, bias: f32) -> CUresult {
        self.change(hTexRef, setting::MIPMAP_LEVEL_BIAS, &[bits(bias)])
    }

    unsafe fn cuTexRefSetMipmapLevelClamp(
        &self,
        hTexRef: CUtexref,
        minMipmapLevelClamp: f32,
        maxMipmapLevelClamp: f32,
    ) -> CUresult {
        let words = [minMipmapLevelClamp, maxMipmapLevelClamp].map(bits);
        self.change(hTexRef, setting::MIPMAP_LEVEL_CLAMP, &words)
    }

    unsafe fn cuTexRefSetMaxAnisotropy(&self, hTexRef: CUtexref, maxAniso: u32) -> CUresult {
        self.change(hTexRef, setting::MAX_ANISOTROPY, &[maxAniso.into()])
    }

    unsafe fn cuTexRefSetBorderColor(&self, hTexRef: CUtexref, pBorderColor: *mut f32) -> CUresult {
        // SAFETY: the caller's contract: four components.
        let color = unsafe { crate::raw::slice(pBorderColor.cast_const(), 4) };
        match color {
            None => CUDA_ERROR_INVALID_VALUE,
            Some(color) => {
                let words: Vec<u64> = color.iter().copied().map(bits).collect();
                self.change(hTexRef, setting::BORDER_COLOR, &words)
            }
        }
    }

    unsafe fn cuTexRefSetFlags(&self, hTexRef: CUtexref, Flags: u32) -> CUresult {
        self.change(hTexRef, setting::FLAGS, &[Flags.into()])
    }

    unsafe fn cuTexRefGetAddress(&self, pdptr: *mut CUdeviceptr_v1, hTexRef: CUtexref) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { self.tell_setting(pdptr, hTexRef, setting::ADDRESS, |word| word as u32) }
    }

    unsafe fn cuTexRefGetAddress_v2(&self, pdptr: *mut CUdeviceptr, hTexRef: CUtexref) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { self.tell_setting(pdptr, hTexRef, setting::ADDRESS, |word| word) }
    }

    unsafe fn cuTexRefGetArray(&self, phArray: *mut CUarray, hTexRef: CUtexref) -> CUresult {
        let bound = match self.bound_to(hTexRef.addr() as u64) {
            Ok(Bound::Array(array)) => Ok(wire::ArrayHandle(array).to_raw()),
            Ok(Bound::Mipmap(_)) => Err(CUDA_ERROR_INVALID_VALUE),
            Err(status) => Err(status),
        };
        // SAFETY: the caller's contract.
        unsafe { tell(phArray, bound) }
    }

    unsafe fn cuTexRefGetMipmappedArray(
        &self,
        phMipmappedArray: *mut CUmipmappedArray,
        hTexRef: CUtexref,
    ) -> CUresult {
        let bound = match self.bound_to(hTexRef.addr() as u64) {
            Ok(Bound::Mipmap(mipmap)) => Ok(wire::MipmappedArrayHandle(mipmap).to_raw()),
            Ok(Bound::Array(_)) => Err(CUDA_ERROR_INVALID_VALUE),
            Err(status) => Err(status),
        };
        // SAFETY: the caller's contract.
        unsafe { tell(phMipmappedArray, bound) }
    }

    unsafe fn cuTexRefGetAddressMode(
        &self,
        pam: *mut CUaddress_mode,
        hTexRef: CUtexref,
        dim: i32,
    ) -> CUresult {
        let words = self.reference_words(hTexRef, setting::ADDRESS_MODE, dim);
        // SAFETY: the caller's contract.
        unsafe { tell(pam, words.map(|[mode, ..]| mode as u32)) }
    }

    unsafe fn cuTexRefGetFilterMode(&self, pfm: *mut CUfilter_mode, hTexRef: CUtexref) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { self.tell_setting(pfm, hTexRef, setting::FILTER_MODE, |word| word as u32) }
    }

    unsafe fn cuTexRefGetFormat(
        &self,
        pFormat: *mut CUarray_format,
        pNumChannels: *mut i32,
        hTexRef: CUtexref,
    ) -> CUresult {
        let words = self.reference_words(hTexRef, setting::FORMAT, 0);
        // SAFETY: the caller's contract.
        let told = unsafe { tell(pFormat, words.map(|[format, ..]| format as u32)) };
        if told != CUDA_SUCCESS {
            return told;
        }
        // SAFETY: the caller's contract.
        unsafe { tell(pNumChannels, words.map(|[_, channels, ..]| channels as i32)) }
    }

    unsafe fn cuTexRefGetMipmapFilterMode(
        &self,
        pfm: *mut CUfilter_mode,
        hTexRef: CUtexref,
    ) -> CUresult {
        let which = setting::MIPMAP_FILTER_MODE;
        // SAFETY: the caller's contract.
        unsafe { self.tell_setting(pfm, hTexRef, which, |word| word as u32) }
    }

    unsafe fn cuTexRefGetMipmapLevelBias(&self, pbias: *mut f32, hTexRef: CUtexref) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { self.tell_setting(pbias, hTexRef, setting::MIPMAP_LEVEL_BIAS, float) }
    }

    unsafe fn cuTexRefGetMipmapLevelClamp(
        &self,
        pminMipmapLevelClamp: *mut f32,
        pmaxMipmapLevelClamp: *mut f32,
        hTexRef: CUtexref,
    ) -> CUresult {
        let words = self.reference_words(hTexRef, setting::MIPMAP_LEVEL_CLAMP, 0);
        // SAFETY: the caller's contract.
        let told = unsafe { tell(pminMipmapLevelClamp, words.map(|[least, ..]| float(least))) };
        if told != CUDA_SUCCESS {
            return told;
        }
        // SAFETY: the caller's contract.
        unsafe { tell(pmaxMipmapLevelClamp, words.map(|[_, most, ..]| float(most))) }
    }

    unsafe fn cuTexRefGetMaxAnisotropy(&self, pmaxAniso: *mut i32, hTexRef: CUtexref) -> CUresult {
        let which = setting::MAX_ANISOTROPY;
        // SAFETY: the caller's contract.
        unsafe { self.tell_setting(pmaxAniso, hTexRef, which, |word| word as i32) }
    }

    unsafe fn cuTexRefGetBorderColor(&self, pBorderColor: *mut f32, hTexRef: CUtexref) -> CUresult {
        match self.reference_words(hTexRef, setting::BORDER_COLOR, 0) {
            Ok(_) if pBorderColor.is_null() => CUDA_ERROR_INVALID_VALUE,
            Ok(words) => {
                // SAFETY: the caller's contract: room for four components.
                unsafe { crate::raw::fill(pBorderColor, 4, words.into_iter().map(float)) };
                CUDA_SUCCESS
            }
            Err(status) => status,
        }
    }

    unsafe fn cuTexRefGetFlags(&self, pFlags: *mut u32, hTexRef: CUtexref) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { self.tell_setting(pFlags, hTexRef, setting::FLAGS, |word| word as u32) }
    }

    unsafe fn cuSurfRefSetArray(
        &self,
        hSurfRef: CUsurfref,
        hArray: CUarray,
        Flags: u32,
    ) -> CUresult {
        status(self.bind_surface(hSurfRef, hArray, Flags))
    }

    unsafe fn cuSurfRefGetArray(&self, phArray: *mut CUarray, hSurfRef: CUsurfref) -> CUresult {
        let bound = match self.bound_to(hSurfRef.addr() as u64) {
            Ok(Bound::Array(array)) => Ok(wire::ArrayHandle(array).to_raw()),
            Ok(Bound::Mipmap(_)) => Err(CUDA_ERROR_INVALID_VALUE),
            Err(status) => Err(status),
        };
        // SAFETY: the caller's contract.
        unsafe { tell(phArray, bound) }
    }
}
