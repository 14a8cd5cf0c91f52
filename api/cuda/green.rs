//! Green contexts: parts of a device. Refused until they are measured over a wire.

extern "C" {
    /// Makes a green context of some resources.
    #[call(id = 0x1001, unsupported, since = "12.4")]
    fn cuGreenCtxCreate(
        #[out] phCtx: *mut CUgreenCtx,
        desc: CUdevResourceDesc,
        dev: CUdevice,
        flags: u32,
    ) -> CUresult;

    /// Ends a green context.
    #[call(id = 0x1002, unsupported, since = "12.4")]
    fn cuGreenCtxDestroy(#[destroys] hCtx: CUgreenCtx) -> CUresult;

    /// Gives the context that a green context is.
    #[call(id = 0x1003, unsupported, since = "12.4")]
    fn cuCtxFromGreenCtx(#[out] pContext: *mut CUcontext, hCtx: CUgreenCtx) -> CUresult;

    /// Tells the resources of a green context.
    #[call(id = 0x1004, unsupported, since = "12.4")]
    fn cuGreenCtxGetDevResource(
        hCtx: CUgreenCtx,
        #[out] resource: *mut CUdevResource,
        r#type: CUdevResourceType,
    ) -> CUresult;

    /// Tells a green context's number.
    #[call(id = 0x1005, unsupported, since = "12.9")]
    fn cuGreenCtxGetId(greenCtx: CUgreenCtx, #[out] greenCtxId: *mut u64) -> CUresult;

    /// Records an event behind everything in a green context.
    #[call(id = 0x1006, unsupported, since = "12.4")]
    fn cuGreenCtxRecordEvent(hCtx: CUgreenCtx, hEvent: CUevent) -> CUresult;

    /// Makes a green context wait for an event.
    #[call(id = 0x1007, unsupported, since = "12.4")]
    fn cuGreenCtxWaitEvent(hCtx: CUgreenCtx, hEvent: CUevent) -> CUresult;

    /// Creates a stream in a green context.
    #[call(id = 0x1008, unsupported, since = "12.5")]
    fn cuGreenCtxStreamCreate(
        #[out] phStream: *mut CUstream,
        greenCtx: CUgreenCtx,
        flags: u32,
        priority: i32,
    ) -> CUresult;

    /// Tells the resources of a device.
    #[call(id = 0x1009, unsupported, since = "12.4")]
    fn cuDeviceGetDevResource(
        device: CUdevice,
        #[out] resource: *mut CUdevResource,
        r#type: CUdevResourceType,
    ) -> CUresult;

    /// Divides multiprocessors into groups that are described.
    #[call(id = 0x100a, unsupported, since = "13.1")]
    fn cuDevSmResourceSplit(
        #[out(nullable)] result: *mut CUdevResource,
        nbGroups: u32,
        #[input] input: *const CUdevResource,
        #[out(nullable)] remainder: *mut CUdevResource,
        flags: u32,
        #[inout] groupParams: *mut CU_DEV_SM_RESOURCE_GROUP_PARAMS,
    ) -> CUresult;

    /// Divides multiprocessors into groups of a size.
    #[call(id = 0x100b, unsupported, since = "12.4")]
    fn cuDevSmResourceSplitByCount(
        #[out(nullable)] result: *mut CUdevResource,
        #[inout] nbGroups: *mut u32,
        #[input] input: *const CUdevResource,
        #[out(nullable)] remainder: *mut CUdevResource,
        flags: u32,
        minCount: u32,
    ) -> CUresult;

    /// Turns resources into a description for a green context.
    #[call(id = 0x100c, unsupported, since = "12.4")]
    fn cuDevResourceGenerateDesc(
        #[out] phDesc: *mut CUdevResourceDesc,
        #[input(len = nbResources)] resources: *mut CUdevResource,
        nbResources: u32,
    ) -> CUresult;

    /// Tells a stream's green context.
    #[call(id = 0x100d, unsupported, since = "12.4")]
    fn cuStreamGetGreenCtx(hStream: CUstream, #[out] phCtx: *mut CUgreenCtx) -> CUresult;

    /// Tells the resources of a stream.
    #[call(
        id = 0x100e,
        unsupported,
        since = "13.1",
        per_thread = "cuStreamGetDevResource_ptsz@13.1"
    )]
    fn cuStreamGetDevResource(
        hStream: CUstream,
        #[out] resource: *mut CUdevResource,
        r#type: CUdevResourceType,
    ) -> CUresult;
}
