//! Streams. Progress is pushed by the server, so that questions about it are local.

extern "C" {
    /// Creates a stream.
    #[call(id = 0x0a01, async, manual(client), since = "2.0")]
    fn cuStreamCreate(#[out(creates, place)] phStream: *mut CUstream, Flags: u32) -> CUresult;

    /// Creates a stream with a priority.
    #[call(id = 0x0a02, async, manual(client), since = "5.5")]
    fn cuStreamCreateWithPriority(
        #[out(creates, place)] phStream: *mut CUstream,
        flags: u32,
        priority: i32,
    ) -> CUresult;

    /// Ends a stream once its work is done.
    #[call(
        id = 0x0a03,
        async,
        manual,
        since = "4.0",
        alias = "cuStreamDestroy@2.0"
    )]
    fn cuStreamDestroy_v2(#[destroys] hStream: CUstream) -> CUresult;

    /// Tells whether a stream is idle.
    #[call(
        id = 0x0a04,
        local,
        since = "2.0",
        per_thread = "cuStreamQuery_ptsz@7.0"
    )]
    fn cuStreamQuery(hStream: CUstream) -> CUresult;

    /// Waits until a stream is idle.
    #[call(
        id = 0x0a05,
        local,
        manual(client),
        since = "2.0",
        per_thread = "cuStreamSynchronize_ptsz@7.0"
    )]
    fn cuStreamSynchronize(hStream: CUstream) -> CUresult;

    /// Makes a stream wait for an event.
    #[call(
        id = 0x0a06,
        async,
        manual,
        since = "3.2",
        per_thread = "cuStreamWaitEvent_ptsz@7.0"
    )]
    fn cuStreamWaitEvent(hStream: CUstream, hEvent: CUevent, Flags: u32) -> CUresult;

    /// Calls the application back when a stream has come so far.
    #[call(
        id = 0x0a07,
        local,
        manual(client),
        since = "5.0",
        per_thread = "cuStreamAddCallback_ptsz@7.0"
    )]
    fn cuStreamAddCallback(
        hStream: CUstream,
        #[callback] callback: CUstreamCallback,
        #[user_data] userData: *mut c_void,
        flags: u32,
    ) -> CUresult;

    /// Tells a stream's priority.
    #[call(
        id = 0x0a08,
        local,
        since = "5.5",
        per_thread = "cuStreamGetPriority_ptsz@7.0"
    )]
    fn cuStreamGetPriority(hStream: CUstream, #[out] priority: *mut i32) -> CUresult;

    /// Tells a stream's flags.
    #[call(
        id = 0x0a09,
        local,
        since = "5.5",
        per_thread = "cuStreamGetFlags_ptsz@7.0"
    )]
    fn cuStreamGetFlags(hStream: CUstream, #[out] flags: *mut u32) -> CUresult;

    /// Tells a number that no other stream of the process has had.
    #[call(
        id = 0x0a0a,
        local,
        since = "12.0",
        per_thread = "cuStreamGetId_ptsz@12.0"
    )]
    fn cuStreamGetId(hStream: CUstream, #[out] streamId: *mut u64) -> CUresult;

    /// Tells a stream's context.
    #[call(
        id = 0x0a0b,
        local,
        since = "9.2",
        per_thread = "cuStreamGetCtx_ptsz@9.2"
    )]
    fn cuStreamGetCtx(hStream: CUstream, #[out] pctx: *mut CUcontext) -> CUresult;

    /// Tells a stream's context, or green context.
    #[call(
        id = 0x0a0c,
        local,
        since = "12.5",
        per_thread = "cuStreamGetCtx_v2_ptsz@12.5"
    )]
    fn cuStreamGetCtx_v2(
        hStream: CUstream,
        #[out] pCtx: *mut CUcontext,
        #[out(nullable)] pGreenCtx: *mut CUgreenCtx,
    ) -> CUresult;

    /// Tells a stream's device.
    #[call(
        id = 0x0a0d,
        local,
        since = "12.8",
        per_thread = "cuStreamGetDevice_ptsz@12.8"
    )]
    fn cuStreamGetDevice(hStream: CUstream, #[out] device: *mut CUdevice) -> CUresult;

    /// Copies the attributes of a stream to another.
    #[call(
        id = 0x0a0e,
        local,
        since = "11.0",
        per_thread = "cuStreamCopyAttributes_ptsz@11.0"
    )]
    fn cuStreamCopyAttributes(dst: CUstream, src: CUstream) -> CUresult;

    /// Tells an attribute of a stream.
    #[call(
        id = 0x0a0f,
        local,
        since = "11.0",
        per_thread = "cuStreamGetAttribute_ptsz@11.0"
    )]
    fn cuStreamGetAttribute(
        hStream: CUstream,
        attr: CUstreamAttrID,
        #[out] value_out: *mut CUlaunchAttributeValue,
    ) -> CUresult;

    /// Sets an attribute of a stream.
    #[call(
        id = 0x0a10,
        local,
        since = "11.0",
        per_thread = "cuStreamSetAttribute_ptsz@11.0"
    )]
    fn cuStreamSetAttribute(
        hStream: CUstream,
        attr: CUstreamAttrID,
        #[input] value: *const CUlaunchAttributeValue,
    ) -> CUresult;

    /// Ties managed memory to a stream.
    #[call(
        id = 0x0a11,
        local,
        since = "6.0",
        per_thread = "cuStreamAttachMemAsync_ptsz@7.0"
    )]
    fn cuStreamAttachMemAsync(
        hStream: CUstream,
        dptr: CUdeviceptr,
        length: usize,
        flags: u32,
    ) -> CUresult;

    /// Makes a stream wait for a 32-bit value in memory.
    #[call(
        id = 0x0a12,
        local,
        since = "11.7",
        alias = "cuStreamWaitValue32@8.0",
        per_thread = "cuStreamWaitValue32_v2_ptsz@11.7",
        per_thread = "cuStreamWaitValue32_ptsz@8.0"
    )]
    fn cuStreamWaitValue32_v2(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint32_t,
        flags: u32,
    ) -> CUresult;

    /// Makes a stream wait for a 64-bit value in memory.
    #[call(
        id = 0x0a13,
        local,
        since = "11.7",
        alias = "cuStreamWaitValue64@9.0",
        per_thread = "cuStreamWaitValue64_v2_ptsz@11.7",
        per_thread = "cuStreamWaitValue64_ptsz@9.0"
    )]
    fn cuStreamWaitValue64_v2(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint64_t,
        flags: u32,
    ) -> CUresult;

    /// Writes a 32-bit value to memory, in stream order.
    #[call(
        id = 0x0a14,
        local,
        since = "11.7",
        alias = "cuStreamWriteValue32@8.0",
        per_thread = "cuStreamWriteValue32_v2_ptsz@11.7",
        per_thread = "cuStreamWriteValue32_ptsz@8.0"
    )]
    fn cuStreamWriteValue32_v2(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint32_t,
        flags: u32,
    ) -> CUresult;

    /// Writes a 64-bit value to memory, in stream order.
    #[call(
        id = 0x0a15,
        local,
        since = "11.7",
        alias = "cuStreamWriteValue64@9.0",
        per_thread = "cuStreamWriteValue64_v2_ptsz@11.7",
        per_thread = "cuStreamWriteValue64_ptsz@9.0"
    )]
    fn cuStreamWriteValue64_v2(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint64_t,
        flags: u32,
    ) -> CUresult;

    /// Waits for and writes several values, in stream order.
    #[call(
        id = 0x0a16,
        local,
        since = "11.7",
        alias = "cuStreamBatchMemOp@8.0",
        per_thread = "cuStreamBatchMemOp_v2_ptsz@11.7",
        per_thread = "cuStreamBatchMemOp_ptsz@8.0"
    )]
    fn cuStreamBatchMemOp_v2(
        stream: CUstream,
        count: u32,
        #[input(len = count)] paramArray: *mut CUstreamBatchMemOpParams,
        flags: u32,
    ) -> CUresult;

    /// Begins to capture a stream into a graph, in the global mode.
    #[call(
        id = 0x0a17,
        local,
        manual(client),
        since = "10.0",
        per_thread = "cuStreamBeginCapture_ptsz@10.0"
    )]
    fn cuStreamBeginCapture(hStream: CUstream) -> CUresult;

    /// Begins to capture a stream into a graph.
    #[call(
        id = 0x0a18,
        local,
        manual(client),
        since = "10.1",
        per_thread = "cuStreamBeginCapture_v2_ptsz@10.1"
    )]
    fn cuStreamBeginCapture_v2(hStream: CUstream, mode: CUstreamCaptureMode) -> CUresult;

    /// Begins to capture a stream into a graph that exists.
    #[call(
        id = 0x0a19,
        local,
        manual(client),
        since = "12.3",
        per_thread = "cuStreamBeginCaptureToGraph_ptsz@12.3"
    )]
    fn cuStreamBeginCaptureToGraph(
        hStream: CUstream,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        #[input(len = numDependencies, nullable)] dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        mode: CUstreamCaptureMode,
    ) -> CUresult;

    /// Captures anew into a captured graph.
    #[call(
        id = 0x0a1a,
        unsupported,
        since = "13.3",
        per_thread = "cuStreamBeginRecaptureToGraph_ptsz@13.3"
    )]
    fn cuStreamBeginRecaptureToGraph(
        hStream: CUstream,
        mode: CUstreamCaptureMode,
        hGraph: CUgraph,
        #[callback] callbackFunc: CUgraphRecaptureCallback,
        #[user_data] userData: *mut c_void,
    ) -> CUresult;

    /// Captures for a graphics queue.
    #[call(
        id = 0x0a1b,
        unsupported,
        since = "13.1",
        per_thread = "cuStreamBeginCaptureToCig_ptsz@13.1"
    )]
    fn cuStreamBeginCaptureToCig(
        hStream: CUstream,
        #[input] streamCigCaptureParams: *mut CUstreamCigCaptureParams,
    ) -> CUresult;

    /// Ends a capture for a graphics queue.
    #[call(
        id = 0x0a1c,
        unsupported,
        since = "13.1",
        per_thread = "cuStreamEndCaptureToCig_ptsz@13.1"
    )]
    fn cuStreamEndCaptureToCig(hStream: CUstream) -> CUresult;

    /// Ends a capture and gives its graph.
    #[call(
        id = 0x0a1d,
        local,
        manual(client),
        since = "10.0",
        per_thread = "cuStreamEndCapture_ptsz@10.0"
    )]
    fn cuStreamEndCapture(hStream: CUstream, #[out(nullable)] phGraph: *mut CUgraph) -> CUresult;

    /// Tells whether a stream is captured.
    #[call(
        id = 0x0a1e,
        local,
        since = "10.0",
        per_thread = "cuStreamIsCapturing_ptsz@10.0"
    )]
    fn cuStreamIsCapturing(
        hStream: CUstream,
        #[out] captureStatus: *mut CUstreamCaptureStatus,
    ) -> CUresult;

    /// Exchanges the thread's rule for calls that endanger a capture.
    #[call(id = 0x0a1f, local, since = "10.1")]
    fn cuThreadExchangeStreamCaptureMode(#[inout] mode: *mut CUstreamCaptureMode) -> CUresult;

    /// Tells the state of a capture: CUDA 10's form.
    #[call(
        id = 0x0a20,
        local,
        since = "10.1",
        per_thread = "cuStreamGetCaptureInfo_ptsz@10.1"
    )]
    fn cuStreamGetCaptureInfo(
        hStream: CUstream,
        #[out] captureStatus_out: *mut CUstreamCaptureStatus,
        #[out(nullable)] id_out: *mut cuuint64_t,
    ) -> CUresult;

    /// Tells the state of a capture with its graph: CUDA 11's form.
    #[call(
        id = 0x0a21,
        local,
        manual(client),
        since = "11.3",
        per_thread = "cuStreamGetCaptureInfo_v2_ptsz@11.3"
    )]
    fn cuStreamGetCaptureInfo_v2(
        hStream: CUstream,
        #[out] captureStatus_out: *mut CUstreamCaptureStatus,
        #[out(nullable)] id_out: *mut cuuint64_t,
        #[out(nullable)] graph_out: *mut CUgraph,
        #[out(nullable)] dependencies_out: *mut *const CUgraphNode,
        #[out(nullable)] numDependencies_out: *mut usize,
    ) -> CUresult;

    /// Tells the state of a capture with its graph and edges.
    #[call(
        id = 0x0a22,
        local,
        manual(client),
        since = "12.3",
        per_thread = "cuStreamGetCaptureInfo_v3_ptsz@12.3"
    )]
    fn cuStreamGetCaptureInfo_v3(
        hStream: CUstream,
        #[out] captureStatus_out: *mut CUstreamCaptureStatus,
        #[out(nullable)] id_out: *mut cuuint64_t,
        #[out(nullable)] graph_out: *mut CUgraph,
        #[out(nullable)] dependencies_out: *mut *const CUgraphNode,
        #[out(nullable)] edgeData_out: *mut *const CUgraphEdgeData,
        #[out(nullable)] numDependencies_out: *mut usize,
    ) -> CUresult;

    /// Changes what the next captured node depends on: CUDA 11's form.
    #[call(
        id = 0x0a23,
        local,
        manual(client),
        since = "11.3",
        per_thread = "cuStreamUpdateCaptureDependencies_ptsz@11.3"
    )]
    fn cuStreamUpdateCaptureDependencies(
        hStream: CUstream,
        #[input(len = numDependencies, nullable)] dependencies: *mut CUgraphNode,
        numDependencies: usize,
        flags: u32,
    ) -> CUresult;

    /// Changes what the next captured node depends on.
    #[call(
        id = 0x0a24,
        local,
        since = "12.3",
        per_thread = "cuStreamUpdateCaptureDependencies_v2_ptsz@12.3"
    )]
    fn cuStreamUpdateCaptureDependencies_v2(
        hStream: CUstream,
        #[input(len = numDependencies, nullable)] dependencies: *mut CUgraphNode,
        #[input(len = numDependencies, nullable)] dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        flags: u32,
    ) -> CUresult;
}
