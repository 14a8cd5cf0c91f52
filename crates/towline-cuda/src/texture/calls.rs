//! The calls of arrays, textures, surfaces, tensors and texture references.

use std::ffi::c_void;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::raw::{Out, OutList, Vouched};
use towline_wire::cuda::texture_reference as setting;

use super::reference::Bound;
use crate::driver::{Driver, TextureCalls, read};
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

/// The descriptor of CUDA 2's form.
fn wide(narrow: &CUDA_ARRAY_DESCRIPTOR_v1) -> CUDA_ARRAY_DESCRIPTOR {
    CUDA_ARRAY_DESCRIPTOR {
        Width: narrow.Width as usize,
        Height: narrow.Height as usize,
        Format: narrow.Format,
        NumChannels: narrow.NumChannels,
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
    /// The first word of a setting.
    fn setting(&self, reference: CUtexref, which: u32) -> Result<u64, CUresult> {
        let [first, ..] = self.reference_words(reference, which, 0)?;
        Ok(first)
    }

    fn change(&self, reference: CUtexref, which: u32, words: &[u64]) -> Result<(), CUresult> {
        self.set_reference(reference, which, words).map(|_| ())
    }

    fn bound_array(&self, reference: u64) -> Result<CUarray, CUresult> {
        match self.bound_to(reference)? {
            Bound::Array(array) => Ok(wire::ArrayHandle(array).to_raw()),
            Bound::Mipmap(_) => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

impl TextureCalls for Driver {
    fn cuArrayCreate(
        &self,
        pAllocateArray: &CUDA_ARRAY_DESCRIPTOR_v1,
    ) -> Result<CUarray, CUresult> {
        TextureCalls::cuArrayCreate_v2(self, &wide(pAllocateArray))
    }

    fn cuArrayCreate_v2(
        &self,
        pAllocateArray: &CUDA_ARRAY_DESCRIPTOR,
    ) -> Result<CUarray, CUresult> {
        self.create_array(cuboid(pAllocateArray))
    }

    fn cuArrayGetDescriptor(&self, hArray: CUarray) -> Result<CUDA_ARRAY_DESCRIPTOR_v1, CUresult> {
        let known = self.describe_array(hArray.addr() as u64);
        let narrow = |known: CUDA_ARRAY3D_DESCRIPTOR| CUDA_ARRAY_DESCRIPTOR_v1 {
            Width: known.Width as u32,
            Height: known.Height as u32,
            Format: known.Format,
            NumChannels: known.NumChannels,
        };
        known.map(narrow)
    }

    fn cuArrayGetDescriptor_v2(&self, hArray: CUarray) -> Result<CUDA_ARRAY_DESCRIPTOR, CUresult> {
        let known = self.describe_array(hArray.addr() as u64);
        known.map(rectangle)
    }

    fn cuArray3DCreate(
        &self,
        pAllocateArray: &CUDA_ARRAY3D_DESCRIPTOR_v1,
    ) -> Result<CUarray, CUresult> {
        self.create_array(CUDA_ARRAY3D_DESCRIPTOR {
            Width: pAllocateArray.Width as usize,
            Height: pAllocateArray.Height as usize,
            Depth: pAllocateArray.Depth as usize,
            Format: pAllocateArray.Format,
            NumChannels: pAllocateArray.NumChannels,
            Flags: pAllocateArray.Flags,
        })
    }

    fn cuArray3DCreate_v2(
        &self,
        pAllocateArray: &CUDA_ARRAY3D_DESCRIPTOR,
    ) -> Result<CUarray, CUresult> {
        self.create_array(*pAllocateArray)
    }

    fn cuArray3DGetDescriptor(
        &self,
        hArray: CUarray,
    ) -> Result<CUDA_ARRAY3D_DESCRIPTOR_v1, CUresult> {
        let known = self.describe_array(hArray.addr() as u64);
        let narrow = |known: CUDA_ARRAY3D_DESCRIPTOR| CUDA_ARRAY3D_DESCRIPTOR_v1 {
            Width: known.Width as u32,
            Height: known.Height as u32,
            Depth: known.Depth as u32,
            Format: known.Format,
            NumChannels: known.NumChannels,
            Flags: known.Flags,
        };
        known.map(narrow)
    }

    fn cuArray3DGetDescriptor_v2(
        &self,
        hArray: CUarray,
    ) -> Result<CUDA_ARRAY3D_DESCRIPTOR, CUresult> {
        self.describe_array(hArray.addr() as u64)
    }

    fn cuArrayDestroy(&self, hArray: CUarray) -> Result<(), CUresult> {
        self.destroy_array(hArray.addr() as u64)
    }

    fn cuArrayGetPlane(&self, hArray: CUarray, planeIdx: u32) -> Result<CUarray, CUresult> {
        let plane = self.plane(hArray.addr() as u64, planeIdx)?;
        Ok(wire::ArrayHandle(plane).to_raw())
    }

    fn cuArrayGetSparseProperties(
        &self,
        array: CUarray,
    ) -> Result<CUDA_ARRAY_SPARSE_PROPERTIES, CUresult> {
        let number = array.addr() as u64;
        self.current().and_then(|_| {
            let context = read(&self.arrays).plain(number)?.context;
            let acting = self.with_array(context)?;
            let body = acting.call(&wire::ArrayGetSparseProperties {
                array: wire::ArrayHandle(number),
            })?;
            let reply = wire::ArrayGetSparsePropertiesReply::decode(&body);
            let reply = reply.map_err(|_| acting.malformed())?;
            let told = reply.sparseProperties.ok_or(CUDA_ERROR_UNKNOWN)?;
            Ok(told.to_raw())
        })
    }

    fn cuArrayGetMemoryRequirements(
        &self,
        array: CUarray,
        device: CUdevice,
    ) -> Result<CUDA_ARRAY_MEMORY_REQUIREMENTS, CUresult> {
        let number = array.addr() as u64;
        self.current().and_then(|_| {
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
        })
    }

    fn cuMipmappedArrayCreate(
        &self,
        pMipmappedArrayDesc: &CUDA_ARRAY3D_DESCRIPTOR,
        numMipmapLevels: u32,
    ) -> Result<CUmipmappedArray, CUresult> {
        self.create_mipmap(*pMipmappedArrayDesc, numMipmapLevels)
    }

    fn cuMipmappedArrayGetLevel(
        &self,
        hMipmappedArray: CUmipmappedArray,
        level: u32,
    ) -> Result<CUarray, CUresult> {
        let level = self.level(hMipmappedArray.addr() as u64, level)?;
        Ok(wire::ArrayHandle(level).to_raw())
    }

    fn cuMipmappedArrayDestroy(&self, hMipmappedArray: CUmipmappedArray) -> Result<(), CUresult> {
        self.destroy_mipmap(hMipmappedArray.addr() as u64)
    }

    fn cuMipmappedArrayGetSparseProperties(
        &self,
        mipmap: CUmipmappedArray,
    ) -> Result<CUDA_ARRAY_SPARSE_PROPERTIES, CUresult> {
        let number = mipmap.addr() as u64;
        self.current().and_then(|_| {
            let context = read(&self.arrays).mipmap(number)?.context;
            let acting = self.with_array(context)?;
            let body = acting.call(&wire::MipmappedArrayGetSparseProperties {
                mipmap: wire::MipmappedArrayHandle(number),
            })?;
            let reply = wire::MipmappedArrayGetSparsePropertiesReply::decode(&body);
            let reply = reply.map_err(|_| acting.malformed())?;
            let told = reply.sparseProperties.ok_or(CUDA_ERROR_UNKNOWN)?;
            Ok(told.to_raw())
        })
    }

    fn cuMipmappedArrayGetMemoryRequirements(
        &self,
        mipmap: CUmipmappedArray,
        device: CUdevice,
    ) -> Result<CUDA_ARRAY_MEMORY_REQUIREMENTS, CUresult> {
        let number = mipmap.addr() as u64;
        self.current().and_then(|_| {
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
        })
    }

    fn cuTexObjectCreate(
        &self,
        pResDesc: &CUDA_RESOURCE_DESC,
        pTexDesc: &CUDA_TEXTURE_DESC,
        pResViewDesc: Option<&CUDA_RESOURCE_VIEW_DESC>,
    ) -> Result<CUtexObject, CUresult> {
        self.create_texture(pResDesc, *pTexDesc, pResViewDesc.copied())
    }

    fn cuTexObjectDestroy(&self, texObject: CUtexObject) -> Result<(), CUresult> {
        self.destroy_texture(texObject, false)
    }

    fn cuTexObjectGetResourceDesc(
        &self,
        texObject: CUtexObject,
    ) -> Result<CUDA_RESOURCE_DESC, CUresult> {
        let known = self.texture(texObject, false);
        known.map(|known| known.resource.to_raw())
    }

    fn cuTexObjectGetTextureDesc(
        &self,
        texObject: CUtexObject,
    ) -> Result<CUDA_TEXTURE_DESC, CUresult> {
        let known = self.texture(texObject, false);
        known.and_then(|known| known.texture.ok_or(CUDA_ERROR_INVALID_VALUE))
    }

    fn cuTexObjectGetResourceViewDesc(
        &self,
        texObject: CUtexObject,
    ) -> Result<CUDA_RESOURCE_VIEW_DESC, CUresult> {
        // A texture without a view is told to have an empty one (seen with driver 580.159).
        let none = CUDA_RESOURCE_VIEW_DESC {
            format: CU_RES_VIEW_FORMAT_NONE,
            width: 0,
            height: 0,
            depth: 0,
            firstMipmapLevel: 0,
            lastMipmapLevel: 0,
            firstLayer: 0,
            lastLayer: 0,
            reserved: [0; 16],
        };
        let known = self.texture(texObject, false);
        known.map(|known| known.view.unwrap_or(none))
    }

    fn cuSurfObjectCreate(&self, pResDesc: &CUDA_RESOURCE_DESC) -> Result<CUsurfObject, CUresult> {
        self.create_surface(pResDesc)
    }

    fn cuSurfObjectDestroy(&self, surfObject: CUsurfObject) -> Result<(), CUresult> {
        self.destroy_texture(surfObject, true)
    }

    fn cuSurfObjectGetResourceDesc(
        &self,
        surfObject: CUsurfObject,
    ) -> Result<CUDA_RESOURCE_DESC, CUresult> {
        let known = self.texture(surfObject, true);
        known.map(|known| known.resource.to_raw())
    }

    fn cuTensorMapEncodeTiled(
        &self,
        tensorDataType: CUtensorMapDataType,
        globalAddress: Vouched<'_, *mut c_void>,
        globalDim: &[cuuint64_t],
        globalStrides: &[cuuint64_t],
        boxDim: &[cuuint32_t],
        elementStrides: &[cuuint32_t],
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> Result<CUtensorMap, CUresult> {
        let mut words = Arguments::new(1, tensorDataType, globalDim, globalStrides)?;
        words.list(boxDim);
        words.list(elementStrides);
        words.list(&[interleave, swizzle, l2Promotion, oobFill]);
        self.describe_tensor(0, *globalAddress, words)
    }

    fn cuTensorMapEncodeIm2col(
        &self,
        tensorDataType: CUtensorMapDataType,
        globalAddress: Vouched<'_, *mut c_void>,
        globalDim: &[cuuint64_t],
        globalStrides: &[cuuint64_t],
        pixelBoxLowerCorner: &[i32],
        pixelBoxUpperCorner: &[i32],
        channelsPerPixel: cuuint32_t,
        pixelsPerColumn: cuuint32_t,
        elementStrides: &[cuuint32_t],
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> Result<CUtensorMap, CUresult> {
        let mut words = Arguments::new(3, tensorDataType, globalDim, globalStrides)?;
        // Corners are in the dimensions between the first and the last.
        words.list(pixelBoxLowerCorner);
        words.list(pixelBoxUpperCorner);
        words.list(&[channelsPerPixel, pixelsPerColumn]);
        words.list(elementStrides);
        words.list(&[interleave, swizzle, l2Promotion, oobFill]);
        self.describe_tensor(1, *globalAddress, words)
    }

    fn cuTensorMapEncodeIm2colWide(
        &self,
        tensorDataType: CUtensorMapDataType,
        globalAddress: Vouched<'_, *mut c_void>,
        globalDim: &[cuuint64_t],
        globalStrides: &[cuuint64_t],
        pixelBoxLowerCornerWidth: i32,
        pixelBoxUpperCornerWidth: i32,
        channelsPerPixel: cuuint32_t,
        pixelsPerColumn: cuuint32_t,
        elementStrides: &[cuuint32_t],
        interleave: CUtensorMapInterleave,
        mode: CUtensorMapIm2ColWideMode,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> Result<CUtensorMap, CUresult> {
        let mut words = Arguments::new(3, tensorDataType, globalDim, globalStrides)?;
        words.list(&[pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth]);
        words.list(&[channelsPerPixel, pixelsPerColumn]);
        words.list(elementStrides);
        words.list(&[interleave, mode, swizzle, l2Promotion, oobFill]);
        self.describe_tensor(2, *globalAddress, words)
    }

    fn cuTensorMapReplaceAddress(
        &self,
        tensorMap: &mut CUtensorMap,
        globalAddress: Vouched<'_, *mut c_void>,
    ) -> Result<(), CUresult> {
        *tensorMap = self.move_tensor(tensorMap, *globalAddress)?;
        Ok(())
    }

    fn cuTexRefCreate(&self) -> Result<CUtexref, CUresult> {
        self.create_reference()
    }

    fn cuTexRefDestroy(&self, hTexRef: CUtexref) -> Result<(), CUresult> {
        self.destroy_reference(hTexRef)
    }

    fn cuTexRefSetArray(
        &self,
        hTexRef: CUtexref,
        hArray: CUarray,
        Flags: u32,
    ) -> Result<(), CUresult> {
        let bound = Bound::Array(hArray.addr() as u64);
        self.bind_reference(hTexRef, bound, Flags)
    }

    fn cuTexRefSetMipmappedArray(
        &self,
        hTexRef: CUtexref,
        hMipmappedArray: CUmipmappedArray,
        Flags: u32,
    ) -> Result<(), CUresult> {
        let bound = Bound::Mipmap(hMipmappedArray.addr() as u64);
        self.bind_reference(hTexRef, bound, Flags)
    }

    fn cuTexRefSetAddress(
        &self,
        ByteOffset: Out<u32>,
        hTexRef: CUtexref,
        dptr: CUdeviceptr_v1,
        bytes: u32,
    ) -> Result<(), CUresult> {
        let offset = self.set_reference(hTexRef, setting::ADDRESS, &[dptr.into(), bytes.into()])?;
        ByteOffset.set(offset as u32);
        Ok(())
    }

    fn cuTexRefSetAddress_v2(
        &self,
        ByteOffset: Out<usize>,
        hTexRef: CUtexref,
        dptr: CUdeviceptr,
        bytes: usize,
    ) -> Result<(), CUresult> {
        let words = [dptr, bytes as u64];
        let offset = self.set_reference(hTexRef, setting::ADDRESS, &words)?;
        ByteOffset.set(offset as usize);
        Ok(())
    }

    fn cuTexRefSetAddress2D(
        &self,
        hTexRef: CUtexref,
        desc: &CUDA_ARRAY_DESCRIPTOR_v1,
        dptr: CUdeviceptr_v1,
        Pitch: u32,
    ) -> Result<(), CUresult> {
        let words = plane(&wide(desc), dptr.into(), Pitch as usize);
        self.change(hTexRef, setting::ADDRESS_2D_UNALIGNED, &words)
    }

    fn cuTexRefSetAddress2D_v2(
        &self,
        hTexRef: CUtexref,
        desc: &CUDA_ARRAY_DESCRIPTOR,
        dptr: CUdeviceptr,
        Pitch: usize,
    ) -> Result<(), CUresult> {
        let words = plane(desc, dptr, Pitch);
        self.change(hTexRef, setting::ADDRESS_2D_UNALIGNED, &words)
    }

    fn cuTexRefSetAddress2D_v3(
        &self,
        hTexRef: CUtexref,
        desc: &CUDA_ARRAY_DESCRIPTOR,
        dptr: CUdeviceptr,
        Pitch: usize,
    ) -> Result<(), CUresult> {
        self.change(hTexRef, setting::ADDRESS_2D, &plane(desc, dptr, Pitch))
    }

    fn cuTexRefSetFormat(
        &self,
        hTexRef: CUtexref,
        fmt: CUarray_format,
        NumPackedComponents: i32,
    ) -> Result<(), CUresult> {
        let words = [fmt.into(), NumPackedComponents as u64];
        self.change(hTexRef, setting::FORMAT, &words)
    }

    fn cuTexRefSetAddressMode(
        &self,
        hTexRef: CUtexref,
        dim: i32,
        am: CUaddress_mode,
    ) -> Result<(), CUresult> {
        self.change(hTexRef, setting::ADDRESS_MODE, &[dim as u64, am.into()])
    }

    fn cuTexRefSetFilterMode(&self, hTexRef: CUtexref, fm: CUfilter_mode) -> Result<(), CUresult> {
        self.change(hTexRef, setting::FILTER_MODE, &[fm.into()])
    }

    fn cuTexRefSetMipmapFilterMode(
        &self,
        hTexRef: CUtexref,
        fm: CUfilter_mode,
    ) -> Result<(), CUresult> {
        self.change(hTexRef, setting::MIPMAP_FILTER_MODE, &[fm.into()])
    }

    fn cuTexRefSetMipmapLevelBias(&self, hTexRef: CUtexref, bias: f32) -> Result<(), CUresult> {
        self.change(hTexRef, setting::MIPMAP_LEVEL_BIAS, &[bits(bias)])
    }

    fn cuTexRefSetMipmapLevelClamp(
        &self,
        hTexRef: CUtexref,
        minMipmapLevelClamp: f32,
        maxMipmapLevelClamp: f32,
    ) -> Result<(), CUresult> {
        let words = [minMipmapLevelClamp, maxMipmapLevelClamp].map(bits);
        self.change(hTexRef, setting::MIPMAP_LEVEL_CLAMP, &words)
    }

    fn cuTexRefSetMaxAnisotropy(&self, hTexRef: CUtexref, maxAniso: u32) -> Result<(), CUresult> {
        self.change(hTexRef, setting::MAX_ANISOTROPY, &[maxAniso.into()])
    }

    fn cuTexRefSetBorderColor(
        &self,
        hTexRef: CUtexref,
        pBorderColor: &[f32],
    ) -> Result<(), CUresult> {
        let words: Vec<u64> = pBorderColor.iter().copied().map(bits).collect();
        self.change(hTexRef, setting::BORDER_COLOR, &words)
    }

    fn cuTexRefSetFlags(&self, hTexRef: CUtexref, Flags: u32) -> Result<(), CUresult> {
        self.change(hTexRef, setting::FLAGS, &[Flags.into()])
    }

    fn cuTexRefGetAddress(&self, hTexRef: CUtexref) -> Result<CUdeviceptr_v1, CUresult> {
        Ok(self.setting(hTexRef, setting::ADDRESS)? as u32)
    }

    fn cuTexRefGetAddress_v2(&self, hTexRef: CUtexref) -> Result<CUdeviceptr, CUresult> {
        self.setting(hTexRef, setting::ADDRESS)
    }

    fn cuTexRefGetArray(&self, hTexRef: CUtexref) -> Result<CUarray, CUresult> {
        self.bound_array(hTexRef.addr() as u64)
    }

    fn cuTexRefGetMipmappedArray(&self, hTexRef: CUtexref) -> Result<CUmipmappedArray, CUresult> {
        match self.bound_to(hTexRef.addr() as u64)? {
            Bound::Mipmap(mipmap) => Ok(wire::MipmappedArrayHandle(mipmap).to_raw()),
            Bound::Array(_) => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuTexRefGetAddressMode(
        &self,
        hTexRef: CUtexref,
        dim: i32,
    ) -> Result<CUaddress_mode, CUresult> {
        let [mode, ..] = self.reference_words(hTexRef, setting::ADDRESS_MODE, dim)?;
        Ok(mode as u32)
    }

    fn cuTexRefGetFilterMode(&self, hTexRef: CUtexref) -> Result<CUfilter_mode, CUresult> {
        Ok(self.setting(hTexRef, setting::FILTER_MODE)? as u32)
    }

    fn cuTexRefGetFormat(&self, hTexRef: CUtexref) -> Result<(CUarray_format, i32), CUresult> {
        let [format, channels, ..] = self.reference_words(hTexRef, setting::FORMAT, 0)?;
        Ok((format as u32, channels as i32))
    }

    fn cuTexRefGetMipmapFilterMode(&self, hTexRef: CUtexref) -> Result<CUfilter_mode, CUresult> {
        Ok(self.setting(hTexRef, setting::MIPMAP_FILTER_MODE)? as u32)
    }

    fn cuTexRefGetMipmapLevelBias(&self, hTexRef: CUtexref) -> Result<f32, CUresult> {
        self.setting(hTexRef, setting::MIPMAP_LEVEL_BIAS).map(float)
    }

    fn cuTexRefGetMipmapLevelClamp(&self, hTexRef: CUtexref) -> Result<(f32, f32), CUresult> {
        let which = setting::MIPMAP_LEVEL_CLAMP;
        let [least, most, ..] = self.reference_words(hTexRef, which, 0)?;
        Ok((float(least), float(most)))
    }

    fn cuTexRefGetMaxAnisotropy(&self, hTexRef: CUtexref) -> Result<i32, CUresult> {
        Ok(self.setting(hTexRef, setting::MAX_ANISOTROPY)? as i32)
    }

    fn cuTexRefGetBorderColor(
        &self,
        pBorderColor: OutList<f32>,
        hTexRef: CUtexref,
    ) -> Result<(), CUresult> {
        let words = self.reference_words(hTexRef, setting::BORDER_COLOR, 0)?;
        if !pBorderColor.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pBorderColor.fill(words.into_iter().map(float));
        Ok(())
    }

    fn cuTexRefGetFlags(&self, hTexRef: CUtexref) -> Result<u32, CUresult> {
        Ok(self.setting(hTexRef, setting::FLAGS)? as u32)
    }

    fn cuSurfRefSetArray(
        &self,
        hSurfRef: CUsurfref,
        hArray: CUarray,
        Flags: u32,
    ) -> Result<(), CUresult> {
        self.bind_surface(hSurfRef, hArray, Flags)
    }

    fn cuSurfRefGetArray(&self, hSurfRef: CUsurfref) -> Result<CUarray, CUresult> {
        self.bound_array(hSurfRef.addr() as u64)
    }
}
