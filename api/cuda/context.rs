//! Contexts, and the stack of them that each client thread has. The stack is the client's own.

extern "C" {
    /// Takes a reference to a device's primary context, and makes it if need be.
    #[call(id = 0x0301, local, manual(client), since = "7.0")]
    fn cuDevicePrimaryCtxRetain(#[out] pctx: *mut CUcontext, dev: CUdevice) -> CUresult;

    /// Drops a reference to a device's primary context; the last one ends it.
    #[call(
        id = 0x0302,
        local,
        manual(client),
        since = "11.0",
        alias = "cuDevicePrimaryCtxRelease@7.0"
    )]
    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) -> CUresult;

    /// Sets the flags of a device's primary context.
    #[call(
        id = 0x0303,
        local,
        manual(client),
        since = "11.0",
        alias = "cuDevicePrimaryCtxSetFlags@7.0"
    )]
    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32) -> CUresult;

    /// Tells the flags of a device's primary context and whether it lives.
    #[call(id = 0x0304, local, since = "7.0")]
    fn cuDevicePrimaryCtxGetState(
        dev: CUdevice,
        #[out] flags: *mut u32,
        #[out] active: *mut i32,
    ) -> CUresult;

    /// Ends everything in a device's primary context.
    #[call(
        id = 0x0305,
        local,
        manual(client),
        since = "11.0",
        alias = "cuDevicePrimaryCtxReset@7.0"
    )]
    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) -> CUresult;

    /// Makes a context and pushes it on the thread's stack.
    #[call(
        id = 0x0306,
        local,
        manual(client),
        since = "3.2",
        alias = "cuCtxCreate@2.0"
    )]
    fn cuCtxCreate_v2(#[out] pctx: *mut CUcontext, flags: u32, dev: CUdevice) -> CUresult;

    /// Makes a context that is bound to part of a device.
    #[call(id = 0x0307, local, since = "11.4")]
    fn cuCtxCreate_v3(
        #[out(place)] pctx: *mut CUcontext,
        #[input(len = numParams, nullable)] paramsArray: *mut CUexecAffinityParam,
        numParams: i32,
        flags: u32,
        dev: CUdevice,
    ) -> CUresult;

    /// Makes a context with parameters for affinity or graphics.
    #[call(id = 0x0308, local, since = "12.5")]
    fn cuCtxCreate_v4(
        #[out(place)] pctx: *mut CUcontext,
        #[input(nullable)] ctxCreateParams: *mut CUctxCreateParams,
        flags: u32,
        dev: CUdevice,
    ) -> CUresult;

    /// Ends a context and everything in it.
    #[call(
        id = 0x0309,
        local,
        manual(client),
        since = "4.0",
        alias = "cuCtxDestroy@2.0"
    )]
    fn cuCtxDestroy_v2(#[destroys] ctx: CUcontext) -> CUresult;

    /// Counts one more user of the current context: CUDA 3's way.
    #[call(id = 0x030a, local, since = "2.0")]
    fn cuCtxAttach(#[out] pctx: *mut CUcontext, flags: u32) -> CUresult;

    /// Counts one user less of a context; the last one ends it.
    #[call(id = 0x030b, local, since = "2.0")]
    fn cuCtxDetach(#[destroys] ctx: CUcontext) -> CUresult;

    /// Pushes a context on the thread's stack.
    #[call(id = 0x030c, local, since = "4.0", alias = "cuCtxPushCurrent@2.0")]
    fn cuCtxPushCurrent_v2(ctx: CUcontext) -> CUresult;

    /// Pops the thread's current context.
    #[call(id = 0x030d, local, since = "4.0", alias = "cuCtxPopCurrent@2.0")]
    fn cuCtxPopCurrent_v2(#[out(nullable)] pctx: *mut CUcontext) -> CUresult;

    /// Replaces the thread's current context.
    #[call(id = 0x030e, local, since = "4.0")]
    fn cuCtxSetCurrent(ctx: CUcontext) -> CUresult;

    /// Tells the thread's current context.
    #[call(id = 0x030f, local, since = "4.0")]
    fn cuCtxGetCurrent(#[out] pctx: *mut CUcontext) -> CUresult;

    /// Tells the device of the current context.
    #[call(id = 0x0310, local, since = "2.0")]
    fn cuCtxGetDevice(#[out] device: *mut CUdevice) -> CUresult;

    /// Tells the device of a context.
    #[call(id = 0x0311, local, since = "13.0")]
    fn cuCtxGetDevice_v2(#[out] device: *mut CUdevice, ctx: CUcontext) -> CUresult;

    /// Tells the flags of the current context.
    #[call(id = 0x0312, local, since = "7.0")]
    fn cuCtxGetFlags(#[out] flags: *mut u32) -> CUresult;

    /// Sets the flags of the current context.
    #[call(id = 0x0313, local, since = "12.1")]
    fn cuCtxSetFlags(flags: u32) -> CUresult;

    /// Tells a number that no other context of the process has had.
    #[call(id = 0x0314, local, since = "12.0")]
    fn cuCtxGetId(ctx: CUcontext, #[out] ctxId: *mut u64) -> CUresult;

    /// Waits until everything in the current context is done.
    #[call(id = 0x0315, local, manual(client), since = "2.0")]
    fn cuCtxSynchronize() -> CUresult;

    /// Waits until everything in a context is done.
    #[call(id = 0x0316, local, manual(client), since = "13.0")]
    fn cuCtxSynchronize_v2(ctx: CUcontext) -> CUresult;

    /// Sets a limit of the current context, such as its heap.
    #[call(id = 0x0317, sync, manual(client), since = "3.1")]
    fn cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult;

    /// Tells a limit of the current context; asked once, then remembered.
    #[call(id = 0x0318, sync, manual(client), since = "3.1")]
    fn cuCtxGetLimit(#[out] pvalue: *mut usize, limit: CUlimit) -> CUresult;

    /// Tells how the current context divides its first-level cache.
    #[call(id = 0x0319, local, since = "3.2")]
    fn cuCtxGetCacheConfig(#[out] pconfig: *mut CUfunc_cache) -> CUresult;

    /// Sets how the current context divides its first-level cache.
    #[call(id = 0x031a, async, manual(client), since = "3.2")]
    fn cuCtxSetCacheConfig(config: CUfunc_cache) -> CUresult;

    /// Tells the width of the shared memory banks.
    #[call(id = 0x031b, local, since = "4.2")]
    fn cuCtxGetSharedMemConfig(#[out] pConfig: *mut CUsharedconfig) -> CUresult;

    /// Sets the width of the shared memory banks.
    #[call(id = 0x031c, async, manual(client), since = "4.2")]
    fn cuCtxSetSharedMemConfig(config: CUsharedconfig) -> CUresult;

    /// Tells the interface version that a context was made with.
    #[call(id = 0x031d, local, since = "3.2")]
    fn cuCtxGetApiVersion(ctx: CUcontext, #[out] version: *mut u32) -> CUresult;

    /// Tells the priorities that streams can have.
    #[call(id = 0x031e, local, since = "5.5")]
    fn cuCtxGetStreamPriorityRange(
        #[out(nullable)] leastPriority: *mut i32,
        #[out(nullable)] greatestPriority: *mut i32,
    ) -> CUresult;

    /// Makes all lines of the second-level cache ordinary again.
    #[call(id = 0x031f, async, since = "11.0")]
    fn cuCtxResetPersistingL2Cache() -> CUresult;

    /// Tells which part of the device the current context is bound to.
    #[call(id = 0x0320, local, since = "11.4")]
    fn cuCtxGetExecAffinity(
        #[out(place)] pExecAffinity: *mut CUexecAffinityParam,
        r#type: CUexecAffinityType,
    ) -> CUresult;

    /// Records an event behind everything in a context.
    #[call(id = 0x0321, unsupported, since = "12.5")]
    fn cuCtxRecordEvent(hCtx: CUcontext, hEvent: CUevent) -> CUresult;

    /// Makes everything that a context does later wait for an event.
    #[call(id = 0x0322, unsupported, since = "12.5")]
    fn cuCtxWaitEvent(hCtx: CUcontext, hEvent: CUevent) -> CUresult;

    /// Lets the current context reach the memory of another device's context.
    #[call(id = 0x0323, sync, manual(client), since = "4.0")]
    fn cuCtxEnablePeerAccess(peerContext: CUcontext, Flags: u32) -> CUresult;

    /// Ends that.
    #[call(id = 0x0324, sync, waits, manual, since = "4.0")]
    fn cuCtxDisablePeerAccess(peerContext: CUcontext) -> CUresult;

    /// Tells the resources of a context, to divide them.
    #[call(id = 0x0325, unsupported, since = "12.4")]
    fn cuCtxGetDevResource(
        hCtx: CUcontext,
        #[out] resource: *mut CUdevResource,
        r#type: CUdevResourceType,
    ) -> CUresult;
}
