//! Arrays, textures, surfaces and tensor maps.

extern "C" {
    /// `cuArrayCreate_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0d01, local, since = "2.0")]
    fn cuArrayCreate(
        #[out] pHandle: *mut CUarray,
        #[input] pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR_v1,
    ) -> CUresult;

    /// Creates an array of one or two dimensions.
    #[call(id = 0x0d02, local, manual(client), since = "3.2")]
    fn cuArrayCreate_v2(
        #[out] pHandle: *mut CUarray,
        #[input] pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR,
    ) -> CUresult;

    /// `cuArrayGetDescriptor_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0d03, local, since = "2.0")]
    fn cuArrayGetDescriptor(
        #[out] pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR_v1,
        hArray: CUarray,
    ) -> CUresult;

    /// Tells how an array of one or two dimensions was created.
    #[call(id = 0x0d04, local, since = "3.2")]
    fn cuArrayGetDescriptor_v2(
        #[out] pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR,
        hArray: CUarray,
    ) -> CUresult;

    /// `cuArray3DCreate_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0d05, local, since = "2.0")]
    fn cuArray3DCreate(
        #[out] pHandle: *mut CUarray,
        #[input] pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR_v1,
    ) -> CUresult;

    /// Creates an array of up to three dimensions.
    #[call(id = 0x0d06, sync, manual, since = "3.2")]
    fn cuArray3DCreate_v2(
        #[out(creates)] pHandle: *mut CUarray,
        #[input] pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR,
    ) -> CUresult;

    /// `cuArray3DGetDescriptor_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0d07, local, since = "2.0")]
    fn cuArray3DGetDescriptor(
        #[out] pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v1,
        hArray: CUarray,
    ) -> CUresult;

    /// Tells how an array was created.
    #[call(id = 0x0d08, sync, manual(client), since = "3.2")]
    fn cuArray3DGetDescriptor_v2(
        #[out] pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR,
        hArray: CUarray,
    ) -> CUresult;

    /// Ends an array.
    #[call(id = 0x0d09, sync, waits, manual, since = "2.0")]
    fn cuArrayDestroy(#[destroys] hArray: CUarray) -> CUresult;

    /// Gives one plane of an array.
    #[call(id = 0x0d0a, sync, manual, since = "11.2")]
    fn cuArrayGetPlane(
        #[out(creates)] pPlaneArray: *mut CUarray,
        hArray: CUarray,
        planeIdx: u32,
    ) -> CUresult;

    /// Tells the layout of a sparse array.
    #[call(id = 0x0d0b, sync, manual(client), since = "11.1")]
    fn cuArrayGetSparseProperties(
        #[out] sparseProperties: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
        array: CUarray,
    ) -> CUresult;

    /// Tells what memory an array needs.
    #[call(id = 0x0d0c, sync, manual, since = "11.6")]
    fn cuArrayGetMemoryRequirements(
        #[out] memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        array: CUarray,
        device: CUdevice,
    ) -> CUresult;

    /// Creates an array with mipmap levels.
    #[call(id = 0x0d0d, sync, manual, since = "5.0")]
    fn cuMipmappedArrayCreate(
        #[out(creates)] pHandle: *mut CUmipmappedArray,
        #[input] pMipmappedArrayDesc: *const CUDA_ARRAY3D_DESCRIPTOR,
        numMipmapLevels: u32,
    ) -> CUresult;

    /// Gives one level of a mipmapped array.
    #[call(id = 0x0d0e, async, manual, since = "5.0")]
    fn cuMipmappedArrayGetLevel(
        #[out(creates)] pLevelArray: *mut CUarray,
        hMipmappedArray: CUmipmappedArray,
        level: u32,
    ) -> CUresult;

    /// Ends a mipmapped array.
    #[call(id = 0x0d0f, sync, waits, manual, since = "5.0")]
    fn cuMipmappedArrayDestroy(#[destroys] hMipmappedArray: CUmipmappedArray) -> CUresult;

    /// Tells the layout of a sparse mipmapped array.
    #[call(id = 0x0d10, sync, manual(client), since = "11.1")]
    fn cuMipmappedArrayGetSparseProperties(
        #[out] sparseProperties: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
        mipmap: CUmipmappedArray,
    ) -> CUresult;

    /// Tells what memory a mipmapped array needs.
    #[call(id = 0x0d11, sync, manual, since = "11.6")]
    fn cuMipmappedArrayGetMemoryRequirements(
        #[out] memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        mipmap: CUmipmappedArray,
        device: CUdevice,
    ) -> CUresult;

    /// Creates a texture.
    #[call(id = 0x0d12, local, manual(client), since = "5.0")]
    fn cuTexObjectCreate(
        #[out] pTexObject: *mut CUtexObject,
        #[input] pResDesc: *const CUDA_RESOURCE_DESC,
        #[input] pTexDesc: *const CUDA_TEXTURE_DESC,
        #[input(nullable)] pResViewDesc: *const CUDA_RESOURCE_VIEW_DESC,
    ) -> CUresult;

    /// Ends a texture.
    #[call(id = 0x0d13, async, manual, since = "5.0")]
    fn cuTexObjectDestroy(texObject: CUtexObject) -> CUresult;

    /// Tells what a texture reads.
    #[call(id = 0x0d14, local, since = "5.0")]
    fn cuTexObjectGetResourceDesc(
        #[out] pResDesc: *mut CUDA_RESOURCE_DESC,
        texObject: CUtexObject,
    ) -> CUresult;

    /// Tells how a texture reads.
    #[call(id = 0x0d15, local, since = "5.0")]
    fn cuTexObjectGetTextureDesc(
        #[out] pTexDesc: *mut CUDA_TEXTURE_DESC,
        texObject: CUtexObject,
    ) -> CUresult;

    /// Tells as what a texture reads.
    #[call(id = 0x0d16, local, since = "5.0")]
    fn cuTexObjectGetResourceViewDesc(
        #[out] pResViewDesc: *mut CUDA_RESOURCE_VIEW_DESC,
        texObject: CUtexObject,
    ) -> CUresult;

    /// Creates a surface.
    #[call(id = 0x0d17, local, manual(client), since = "5.0")]
    fn cuSurfObjectCreate(
        #[out] pSurfObject: *mut CUsurfObject,
        #[input] pResDesc: *const CUDA_RESOURCE_DESC,
    ) -> CUresult;

    /// Ends a surface.
    #[call(id = 0x0d18, async, manual, since = "5.0")]
    fn cuSurfObjectDestroy(surfObject: CUsurfObject) -> CUresult;

    /// Tells what a surface reaches.
    #[call(id = 0x0d19, local, since = "5.0")]
    fn cuSurfObjectGetResourceDesc(
        #[out] pResDesc: *mut CUDA_RESOURCE_DESC,
        surfObject: CUsurfObject,
    ) -> CUresult;

    /// Describes a tensor for tiled copies.
    #[call(id = 0x0d1a, local, manual(client), since = "12.0")]
    fn cuTensorMapEncodeTiled(
        #[out] tensorMap: *mut CUtensorMap,
        tensorDataType: CUtensorMapDataType,
        tensorRank: cuuint32_t,
        #[local] globalAddress: *mut c_void,
        #[input(len = tensorRank)] globalDim: *const cuuint64_t,
        #[input(len = tensorRank - 1)] globalStrides: *const cuuint64_t,
        #[input(len = tensorRank)] boxDim: *const cuuint32_t,
        #[input(len = tensorRank)] elementStrides: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> CUresult;

    /// Describes a tensor for image-to-column copies.
    #[call(id = 0x0d1b, local, manual(client), since = "12.0")]
    fn cuTensorMapEncodeIm2col(
        #[out] tensorMap: *mut CUtensorMap,
        tensorDataType: CUtensorMapDataType,
        tensorRank: cuuint32_t,
        #[local] globalAddress: *mut c_void,
        #[input(len = tensorRank)] globalDim: *const cuuint64_t,
        #[input(len = tensorRank - 1)] globalStrides: *const cuuint64_t,
        #[input(len = tensorRank - 2)] pixelBoxLowerCorner: *const i32,
        #[input(len = tensorRank - 2)] pixelBoxUpperCorner: *const i32,
        channelsPerPixel: cuuint32_t,
        pixelsPerColumn: cuuint32_t,
        #[input(len = tensorRank)] elementStrides: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> CUresult;

    /// Describes a tensor for wide image-to-column copies.
    #[call(id = 0x0d1c, local, manual(client), since = "12.8")]
    fn cuTensorMapEncodeIm2colWide(
        #[out] tensorMap: *mut CUtensorMap,
        tensorDataType: CUtensorMapDataType,
        tensorRank: cuuint32_t,
        #[local] globalAddress: *mut c_void,
        #[input(len = tensorRank)] globalDim: *const cuuint64_t,
        #[input(len = tensorRank - 1)] globalStrides: *const cuuint64_t,
        pixelBoxLowerCornerWidth: i32,
        pixelBoxUpperCornerWidth: i32,
        channelsPerPixel: cuuint32_t,
        pixelsPerColumn: cuuint32_t,
        #[input(len = tensorRank)] elementStrides: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        mode: CUtensorMapIm2ColWideMode,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> CUresult;

    /// Replaces the address in a tensor's description.
    #[call(id = 0x0d1d, local, manual(client), since = "12.0")]
    fn cuTensorMapReplaceAddress(
        #[inout] tensorMap: *mut CUtensorMap,
        #[local] globalAddress: *mut c_void,
    ) -> CUresult;

    /// Says what kind of memory a tensor's description points to.
    #[call(id = 0x0d1e, unsupported, since = "13.5")]
    fn cuTensorMapSetAllocationClass(
        #[inout] tensorMap: *mut CUtensorMap,
        allocClass: CUtensorMapAllocClass,
        #[out] outAllocClass: *mut CUtensorMapAllocClass,
    ) -> CUresult;

    /// Creates a texture reference of its own.
    #[call(id = 0x0d1f, sync, manual, since = "2.0")]
    fn cuTexRefCreate(#[out(creates)] pTexRef: *mut CUtexref) -> CUresult;

    /// Ends it.
    #[call(id = 0x0d20, sync, waits, manual, since = "2.0")]
    fn cuTexRefDestroy(#[destroys] hTexRef: CUtexref) -> CUresult;

    /// Binds a texture reference to an array.
    #[call(id = 0x0d21, local, manual(client), since = "2.0")]
    fn cuTexRefSetArray(hTexRef: CUtexref, hArray: CUarray, Flags: u32) -> CUresult;

    /// Binds a texture reference to a mipmapped array.
    #[call(id = 0x0d22, local, manual(client), since = "5.0")]
    fn cuTexRefSetMipmappedArray(
        hTexRef: CUtexref,
        hMipmappedArray: CUmipmappedArray,
        Flags: u32,
    ) -> CUresult;

    /// `cuTexRefSetAddress_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0d23, local, manual(client), since = "2.0")]
    fn cuTexRefSetAddress(
        #[out(nullable)] ByteOffset: *mut u32,
        hTexRef: CUtexref,
        dptr: CUdeviceptr_v1,
        bytes: u32,
    ) -> CUresult;

    /// Binds a texture reference to memory.
    #[call(id = 0x0d24, local, manual(client), since = "3.2")]
    fn cuTexRefSetAddress_v2(
        #[out(nullable)] ByteOffset: *mut usize,
        hTexRef: CUtexref,
        dptr: CUdeviceptr,
        bytes: usize,
    ) -> CUresult;

    /// `cuTexRefSetAddress2D_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0d25, local, manual(client), since = "2.2")]
    fn cuTexRefSetAddress2D(
        hTexRef: CUtexref,
        #[input] desc: *const CUDA_ARRAY_DESCRIPTOR_v1,
        dptr: CUdeviceptr_v1,
        Pitch: u32,
    ) -> CUresult;

    /// Binds a texture reference to a rectangle in memory: the form that takes any pitch.
    #[call(id = 0x0d26, local, manual(client), since = "3.2")]
    fn cuTexRefSetAddress2D_v2(
        hTexRef: CUtexref,
        #[input] desc: *const CUDA_ARRAY_DESCRIPTOR,
        dptr: CUdeviceptr,
        Pitch: usize,
    ) -> CUresult;

    /// Binds a texture reference to a rectangle in memory.
    #[call(id = 0x0d27, local, manual(client), since = "4.1")]
    fn cuTexRefSetAddress2D_v3(
        hTexRef: CUtexref,
        #[input] desc: *const CUDA_ARRAY_DESCRIPTOR,
        dptr: CUdeviceptr,
        Pitch: usize,
    ) -> CUresult;

    /// Says what a texture reference reads.
    #[call(id = 0x0d28, local, manual(client), since = "2.0")]
    fn cuTexRefSetFormat(
        hTexRef: CUtexref,
        fmt: CUarray_format,
        NumPackedComponents: i32,
    ) -> CUresult;

    /// Says what a texture reference does beyond its edges.
    #[call(id = 0x0d29, local, manual(client), since = "2.0")]
    fn cuTexRefSetAddressMode(hTexRef: CUtexref, dim: i32, am: CUaddress_mode) -> CUresult;

    /// Says how a texture reference interpolates.
    #[call(id = 0x0d2a, local, manual(client), since = "2.0")]
    fn cuTexRefSetFilterMode(hTexRef: CUtexref, fm: CUfilter_mode) -> CUresult;

    /// Says how a texture reference interpolates between levels.
    #[call(id = 0x0d2b, local, manual(client), since = "5.0")]
    fn cuTexRefSetMipmapFilterMode(hTexRef: CUtexref, fm: CUfilter_mode) -> CUresult;

    /// Shifts the level that a texture reference reads.
    #[call(id = 0x0d2c, local, manual(client), since = "5.0")]
    fn cuTexRefSetMipmapLevelBias(hTexRef: CUtexref, bias: f32) -> CUresult;

    /// Bounds the levels that a texture reference reads.
    #[call(id = 0x0d2d, local, manual(client), since = "5.0")]
    fn cuTexRefSetMipmapLevelClamp(
        hTexRef: CUtexref,
        minMipmapLevelClamp: f32,
        maxMipmapLevelClamp: f32,
    ) -> CUresult;

    /// Bounds the anisotropy of a texture reference.
    #[call(id = 0x0d2e, local, manual(client), since = "5.0")]
    fn cuTexRefSetMaxAnisotropy(hTexRef: CUtexref, maxAniso: u32) -> CUresult;

    /// Sets what a texture reference reads beyond its border.
    #[call(id = 0x0d2f, local, manual(client), since = "8.0")]
    fn cuTexRefSetBorderColor(
        hTexRef: CUtexref,
        #[input(len = 4)] pBorderColor: *mut f32,
    ) -> CUresult;

    /// Sets flags of a texture reference.
    #[call(id = 0x0d30, local, manual(client), since = "2.0")]
    fn cuTexRefSetFlags(hTexRef: CUtexref, Flags: u32) -> CUresult;

    /// `cuTexRefGetAddress_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0d31, local, manual(client), since = "2.0")]
    fn cuTexRefGetAddress(#[out] pdptr: *mut CUdeviceptr_v1, hTexRef: CUtexref) -> CUresult;

    /// Tells the memory that a texture reference is bound to.
    #[call(id = 0x0d32, local, manual(client), since = "3.2")]
    fn cuTexRefGetAddress_v2(#[out] pdptr: *mut CUdeviceptr, hTexRef: CUtexref) -> CUresult;

    /// Tells the array that a texture reference is bound to.
    #[call(id = 0x0d33, local, manual(client), since = "2.0")]
    fn cuTexRefGetArray(#[out] phArray: *mut CUarray, hTexRef: CUtexref) -> CUresult;

    /// Tells the mipmapped array that a texture reference is bound to.
    #[call(id = 0x0d34, local, manual(client), since = "5.0")]
    fn cuTexRefGetMipmappedArray(
        #[out] phMipmappedArray: *mut CUmipmappedArray,
        hTexRef: CUtexref,
    ) -> CUresult;

    /// Tells what a texture reference does beyond its edges.
    #[call(id = 0x0d35, local, manual(client), since = "2.0")]
    fn cuTexRefGetAddressMode(
        #[out] pam: *mut CUaddress_mode,
        hTexRef: CUtexref,
        dim: i32,
    ) -> CUresult;

    /// Tells how a texture reference interpolates.
    #[call(id = 0x0d36, local, manual(client), since = "2.0")]
    fn cuTexRefGetFilterMode(#[out] pfm: *mut CUfilter_mode, hTexRef: CUtexref) -> CUresult;

    /// Tells what a texture reference reads.
    #[call(id = 0x0d37, local, manual(client), since = "2.0")]
    fn cuTexRefGetFormat(
        #[out] pFormat: *mut CUarray_format,
        #[out] pNumChannels: *mut i32,
        hTexRef: CUtexref,
    ) -> CUresult;

    /// Tells how a texture reference interpolates between levels.
    #[call(id = 0x0d38, local, manual(client), since = "5.0")]
    fn cuTexRefGetMipmapFilterMode(#[out] pfm: *mut CUfilter_mode, hTexRef: CUtexref) -> CUresult;

    /// Tells the shift of levels of a texture reference.
    #[call(id = 0x0d39, local, manual(client), since = "5.0")]
    fn cuTexRefGetMipmapLevelBias(#[out] pbias: *mut f32, hTexRef: CUtexref) -> CUresult;

    /// Tells the bounds of levels of a texture reference.
    #[call(id = 0x0d3a, local, manual(client), since = "5.0")]
    fn cuTexRefGetMipmapLevelClamp(
        #[out] pminMipmapLevelClamp: *mut f32,
        #[out] pmaxMipmapLevelClamp: *mut f32,
        hTexRef: CUtexref,
    ) -> CUresult;

    /// Tells the anisotropy of a texture reference.
    #[call(id = 0x0d3b, local, manual(client), since = "5.0")]
    fn cuTexRefGetMaxAnisotropy(#[out] pmaxAniso: *mut i32, hTexRef: CUtexref) -> CUresult;

    /// Tells what a texture reference reads beyond its border.
    #[call(id = 0x0d3c, local, manual(client), since = "8.0")]
    fn cuTexRefGetBorderColor(
        #[out(len = 4, place)] pBorderColor: *mut f32,
        hTexRef: CUtexref,
    ) -> CUresult;

    /// Tells the flags of a texture reference.
    #[call(id = 0x0d3d, local, manual(client), since = "2.0")]
    fn cuTexRefGetFlags(#[out] pFlags: *mut u32, hTexRef: CUtexref) -> CUresult;

    /// Binds a surface reference to an array.
    #[call(id = 0x0d3e, sync, waits, manual, since = "3.0")]
    fn cuSurfRefSetArray(hSurfRef: CUsurfref, hArray: CUarray, Flags: u32) -> CUresult;

    /// Tells the array that a surface reference is bound to.
    #[call(id = 0x0d3f, local, since = "3.0")]
    fn cuSurfRefGetArray(#[out] phArray: *mut CUarray, hSurfRef: CUsurfref) -> CUresult;
}
