//! Arrays.

extern "C" {
    /// Puts together the description of an element.
    #[call]
    fn cudaCreateChannelDesc(
        x: i32,
        y: i32,
        z: i32,
        w: i32,
        f: cudaChannelFormatKind,
    ) -> cudaChannelFormatDesc;

    /// Makes an array of one or two dimensions.
    #[call]
    fn cudaMallocArray(
        array: *mut cudaArray_t,
        desc: *const cudaChannelFormatDesc,
        width: usize,
        height: usize,
        flags: u32,
    ) -> cudaError_t;

    /// Makes an array of up to three dimensions, layered or of a cube.
    #[call]
    fn cudaMalloc3DArray(
        array: *mut cudaArray_t,
        desc: *const cudaChannelFormatDesc,
        extent: cudaExtent,
        flags: u32,
    ) -> cudaError_t;

    /// Makes an array with smaller copies of itself.
    #[call]
    fn cudaMallocMipmappedArray(
        mipmappedArray: *mut cudaMipmappedArray_t,
        desc: *const cudaChannelFormatDesc,
        extent: cudaExtent,
        numLevels: u32,
        flags: u32,
    ) -> cudaError_t;

    /// Destroys an array.
    #[call(driver = "cuArrayDestroy")]
    fn cudaFreeArray(#[unless_null] array: cudaArray_t) -> cudaError_t;

    /// Destroys an array with smaller copies of itself.
    #[call(driver = "cuMipmappedArrayDestroy")]
    fn cudaFreeMipmappedArray(#[unless_null] mipmappedArray: cudaMipmappedArray_t) -> cudaError_t;

    /// Gives one level of a mipmapped array.
    #[call(driver = "cuMipmappedArrayGetLevel")]
    fn cudaGetMipmappedArrayLevel(
        levelArray: *mut cudaArray_t,
        mipmappedArray: cudaMipmappedArray_const_t,
        level: u32,
    ) -> cudaError_t;

    /// Gives one plane of an array of several planes.
    #[call(driver = "cuArrayGetPlane")]
    fn cudaArrayGetPlane(
        pPlaneArray: *mut cudaArray_t,
        hArray: cudaArray_t,
        planeIdx: u32,
    ) -> cudaError_t;

    /// Tells what an array is like.
    #[call]
    fn cudaArrayGetInfo(
        desc: *mut cudaChannelFormatDesc,
        extent: *mut cudaExtent,
        flags: *mut u32,
        array: cudaArray_t,
    ) -> cudaError_t;

    /// Tells what the elements of an array are like.
    #[call]
    fn cudaGetChannelDesc(
        desc: *mut cudaChannelFormatDesc,
        array: cudaArray_const_t,
    ) -> cudaError_t;

    /// Tells how a sparse array is laid out.
    #[call(driver = "cuArrayGetSparseProperties")]
    fn cudaArrayGetSparseProperties(
        sparseProperties: *mut cudaArraySparseProperties,
        array: cudaArray_t,
    ) -> cudaError_t;

    /// Tells how a sparse mipmapped array is laid out.
    #[call(driver = "cuMipmappedArrayGetSparseProperties")]
    fn cudaMipmappedArrayGetSparseProperties(
        sparseProperties: *mut cudaArraySparseProperties,
        mipmap: cudaMipmappedArray_t,
    ) -> cudaError_t;

    /// Tells how much memory a deferred array needs.
    #[call(driver = "cuArrayGetMemoryRequirements")]
    fn cudaArrayGetMemoryRequirements(
        memoryRequirements: *mut cudaArrayMemoryRequirements,
        array: cudaArray_t,
        device: i32,
    ) -> cudaError_t;

    /// Tells how much memory a deferred mipmapped array needs.
    #[call(driver = "cuMipmappedArrayGetMemoryRequirements")]
    fn cudaMipmappedArrayGetMemoryRequirements(
        memoryRequirements: *mut cudaArrayMemoryRequirements,
        mipmap: cudaMipmappedArray_t,
        device: i32,
    ) -> cudaError_t;
}
