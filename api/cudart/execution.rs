//! Parts of a device as contexts of their own.

extern "C" {
    /// Tells what a device can be divided into.
    #[call(refused, only = 13)]
    fn cudaDeviceGetDevResource(
        device: i32,
        resource: *mut cudaDevResource,
        type_: cudaDevResourceType,
    ) -> cudaError_t;

    /// Divides multiprocessors into groups.
    #[call(refused, only = 13)]
    fn cudaDevSmResourceSplit(
        result: *mut cudaDevResource,
        nbGroups: u32,
        input: *const cudaDevResource,
        remainder: *mut cudaDevResource,
        flags: u32,
        groupParams: *mut cudaDevSmResourceGroupParams,
    ) -> cudaError_t;

    /// Divides multiprocessors into groups of one size.
    #[call(refused, only = 13)]
    fn cudaDevSmResourceSplitByCount(
        result: *mut cudaDevResource,
        nbGroups: *mut u32,
        input: *const cudaDevResource,
        remaining: *mut cudaDevResource,
        flags: u32,
        minCount: u32,
    ) -> cudaError_t;

    /// Describes a part of a device.
    #[call(refused, only = 13)]
    fn cudaDevResourceGenerateDesc(
        phDesc: *mut cudaDevResourceDesc_t,
        resources: *mut cudaDevResource,
        nbResources: u32,
    ) -> cudaError_t;

    /// Makes a context of a part of a device.
    #[call(refused, only = 13)]
    fn cudaGreenCtxCreate(
        phCtx: *mut cudaExecutionContext_t,
        desc: cudaDevResourceDesc_t,
        device: i32,
        flags: u32,
    ) -> cudaError_t;

    /// Gives a device's own execution context.
    #[call(refused, only = 13)]
    fn cudaDeviceGetExecutionCtx(ctx: *mut cudaExecutionContext_t, device: i32) -> cudaError_t;

    /// Destroys an execution context.
    #[call(refused, only = 13)]
    fn cudaExecutionCtxDestroy(ctx: cudaExecutionContext_t) -> cudaError_t;

    /// Tells what part of a device a context has.
    #[call(refused, only = 13)]
    fn cudaExecutionCtxGetDevResource(
        ctx: cudaExecutionContext_t,
        resource: *mut cudaDevResource,
        type_: cudaDevResourceType,
    ) -> cudaError_t;

    /// Tells a context's device.
    #[call(refused, only = 13)]
    fn cudaExecutionCtxGetDevice(device: *mut i32, ctx: cudaExecutionContext_t) -> cudaError_t;

    /// Tells a context's number.
    #[call(refused, only = 13)]
    fn cudaExecutionCtxGetId(ctx: cudaExecutionContext_t, ctxId: *mut u64) -> cudaError_t;

    /// Makes a stream in a context.
    #[call(refused, only = 13)]
    fn cudaExecutionCtxStreamCreate(
        phStream: *mut cudaStream_t,
        ctx: cudaExecutionContext_t,
        flags: u32,
        priority: i32,
    ) -> cudaError_t;

    /// Waits for a context.
    #[call(refused, only = 13)]
    fn cudaExecutionCtxSynchronize(ctx: cudaExecutionContext_t) -> cudaError_t;

    /// Records an event behind a context's work.
    #[call(refused, only = 13)]
    fn cudaExecutionCtxRecordEvent(ctx: cudaExecutionContext_t, event: cudaEvent_t) -> cudaError_t;

    /// Has a context's work wait for an event.
    #[call(refused, only = 13)]
    fn cudaExecutionCtxWaitEvent(ctx: cudaExecutionContext_t, event: cudaEvent_t) -> cudaError_t;

    /// Tells what part of a device a stream has.
    #[call(refused, only = 13, ptsz)]
    fn cudaStreamGetDevResource(
        hStream: cudaStream_t,
        resource: *mut cudaDevResource,
        type_: cudaDevResourceType,
    ) -> cudaError_t;
}
