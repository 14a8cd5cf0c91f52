//! Streams, functions of the host in them, and capture.

extern "C" {
    /// Makes a stream.
    #[call]
    fn cudaStreamCreate(pStream: *mut cudaStream_t) -> cudaError_t;

    /// Makes a stream with flags.
    #[call(driver = "cuStreamCreate")]
    fn cudaStreamCreateWithFlags(pStream: *mut cudaStream_t, flags: u32) -> cudaError_t;

    /// Makes a stream with flags and a priority.
    #[call(driver = "cuStreamCreateWithPriority")]
    fn cudaStreamCreateWithPriority(
        pStream: *mut cudaStream_t,
        flags: u32,
        priority: i32,
    ) -> cudaError_t;

    /// Destroys a stream.
    #[call(driver = "cuStreamDestroy_v2")]
    fn cudaStreamDestroy(stream: cudaStream_t) -> cudaError_t;

    /// Waits for a stream.
    #[call(driver = "cuStreamSynchronize", ptsz)]
    fn cudaStreamSynchronize(stream: cudaStream_t) -> cudaError_t;

    /// Tells whether a stream has finished.
    #[call(driver = "cuStreamQuery", ptsz)]
    fn cudaStreamQuery(stream: cudaStream_t) -> cudaError_t;

    /// Has a stream wait for an event.
    #[call(driver = "cuStreamWaitEvent", ptsz)]
    fn cudaStreamWaitEvent(stream: cudaStream_t, event: cudaEvent_t, flags: u32) -> cudaError_t;

    /// Tells a stream's flags.
    #[call(driver = "cuStreamGetFlags", ptsz)]
    fn cudaStreamGetFlags(hStream: cudaStream_t, flags: *mut u32) -> cudaError_t;

    /// Tells a stream's priority.
    #[call(driver = "cuStreamGetPriority", ptsz)]
    fn cudaStreamGetPriority(hStream: cudaStream_t, priority: *mut i32) -> cudaError_t;

    /// Tells a number that no other stream has.
    #[call(driver = "cuStreamGetId", ptsz)]
    fn cudaStreamGetId(hStream: cudaStream_t, streamId: *mut u64) -> cudaError_t;

    /// Tells a stream's device.
    #[call(driver = "cuStreamGetDevice", ptsz)]
    fn cudaStreamGetDevice(hStream: cudaStream_t, device: *mut i32) -> cudaError_t;

    /// Copies a stream's attributes to another.
    #[call(driver = "cuStreamCopyAttributes", ptsz)]
    fn cudaStreamCopyAttributes(dstStream: cudaStream_t, srcStream: cudaStream_t) -> cudaError_t;

    /// Tells an attribute of a stream.
    #[call(driver = "cuStreamGetAttribute", ptsz)]
    fn cudaStreamGetAttribute(
        stream: cudaStream_t,
        attr: cudaLaunchAttributeID,
        value: *mut cudaLaunchAttributeValue,
    ) -> cudaError_t;

    /// Sets an attribute of a stream.
    #[call(driver = "cuStreamSetAttribute", ptsz)]
    fn cudaStreamSetAttribute(
        stream: cudaStream_t,
        attr: cudaLaunchAttributeID,
        param: *const cudaLaunchAttributeValue,
    ) -> cudaError_t;

    /// Ties managed memory to a stream.
    #[call(driver = "cuStreamAttachMemAsync", ptsz)]
    fn cudaStreamAttachMemAsync(
        stream: cudaStream_t,
        devPtr: *mut c_void,
        length: usize,
        flags: u32,
    ) -> cudaError_t;

    /// Has a function of the host called when a stream gets there.
    #[call(driver = "cuStreamAddCallback", ptsz)]
    fn cudaStreamAddCallback(
        stream: cudaStream_t,
        callback: cudaStreamCallback_t,
        userData: *mut c_void,
        flags: u32,
    ) -> cudaError_t;

    /// Puts a function of the host into a stream.
    #[call(driver = "cuLaunchHostFunc", ptsz)]
    fn cudaLaunchHostFunc(
        stream: cudaStream_t,
        func: cudaHostFn_t,
        userData: *mut c_void,
    ) -> cudaError_t;

    /// Puts a function of the host into a stream, and says how the device waits for it.
    #[call(driver = "cuLaunchHostFunc_v2", only = 13, ptsz)]
    fn cudaLaunchHostFunc_v2(
        stream: cudaStream_t,
        func: cudaHostFn_t,
        userData: *mut c_void,
        syncMode: u32,
    ) -> cudaError_t;

    /// Begins to record a stream into a graph.
    #[call(driver = "cuStreamBeginCapture_v2", ptsz)]
    fn cudaStreamBeginCapture(stream: cudaStream_t, mode: cudaStreamCaptureMode) -> cudaError_t;

    /// Begins to record a stream into a graph that is there.
    #[call(driver = "cuStreamBeginCaptureToGraph", ptsz)]
    fn cudaStreamBeginCaptureToGraph(
        stream: cudaStream_t,
        graph: cudaGraph_t,
        dependencies: *const cudaGraphNode_t,
        dependencyData: *const cudaGraphEdgeData,
        numDependencies: usize,
        mode: cudaStreamCaptureMode,
    ) -> cudaError_t;

    /// Begins to record a stream over a graph that was captured before.
    #[call(refused, only = 13, ptsz)]
    fn cudaStreamBeginRecaptureToGraph(
        stream: cudaStream_t,
        mode: cudaStreamCaptureMode,
        graph: cudaGraph_t,
        callbackData: *mut cudaGraphRecaptureCallbackData,
    ) -> cudaError_t;

    /// Ends recording and gives the graph.
    #[call(driver = "cuStreamEndCapture", ptsz)]
    fn cudaStreamEndCapture(stream: cudaStream_t, pGraph: *mut cudaGraph_t) -> cudaError_t;

    /// Tells whether a stream is recorded.
    #[call(driver = "cuStreamIsCapturing", ptsz)]
    fn cudaStreamIsCapturing(
        stream: cudaStream_t,
        pCaptureStatus: *mut cudaStreamCaptureStatus,
    ) -> cudaError_t;

    /// Tells how far recording has come, with the data of edges.
    #[call(
        driver = "cuStreamGetCaptureInfo_v3",
        symbol_12 = "cudaStreamGetCaptureInfo_v3",
        ptsz
    )]
    fn cudaStreamGetCaptureInfo(
        stream: cudaStream_t,
        captureStatus_out: *mut cudaStreamCaptureStatus,
        id_out: *mut u64,
        graph_out: *mut cudaGraph_t,
        dependencies_out: *mut *const cudaGraphNode_t,
        edgeData_out: *mut *const cudaGraphEdgeData,
        numDependencies_out: *mut usize,
    ) -> cudaError_t;

    /// Tells how far recording has come.
    #[call(driver = "cuStreamGetCaptureInfo_v2", only = 12, ptsz)]
    fn cudaStreamGetCaptureInfo_v2(
        stream: cudaStream_t,
        captureStatus_out: *mut cudaStreamCaptureStatus,
        id_out: *mut u64,
        graph_out: *mut cudaGraph_t,
        dependencies_out: *mut *const cudaGraphNode_t,
        numDependencies_out: *mut usize,
    ) -> cudaError_t;

    /// Tells whether a stream is recorded, and the recording's number.
    #[call(
        driver = "cuStreamGetCaptureInfo",
        only = 12,
        symbol = "cudaStreamGetCaptureInfo",
        ptsz
    )]
    fn cudaStreamGetCaptureInfo_v1(
        stream: cudaStream_t,
        captureStatus_out: *mut cudaStreamCaptureStatus,
        id_out: *mut u64,
    ) -> cudaError_t;

    /// Changes what the next recorded node depends on, with the data of edges.
    #[call(
        driver = "cuStreamUpdateCaptureDependencies_v2",
        symbol_12 = "cudaStreamUpdateCaptureDependencies_v2",
        ptsz
    )]
    fn cudaStreamUpdateCaptureDependencies(
        stream: cudaStream_t,
        dependencies: *mut cudaGraphNode_t,
        dependencyData: *const cudaGraphEdgeData,
        numDependencies: usize,
        flags: u32,
    ) -> cudaError_t;

    /// Changes what the next recorded node depends on.
    #[call(
        driver = "cuStreamUpdateCaptureDependencies",
        only = 12,
        symbol = "cudaStreamUpdateCaptureDependencies",
        ptsz
    )]
    fn cudaStreamUpdateCaptureDependencies_v1(
        stream: cudaStream_t,
        dependencies: *mut cudaGraphNode_t,
        numDependencies: usize,
        flags: u32,
    ) -> cudaError_t;

    /// Swaps what the thread may do while streams are recorded.
    #[call(driver = "cuThreadExchangeStreamCaptureMode")]
    fn cudaThreadExchangeStreamCaptureMode(mode: *mut cudaStreamCaptureMode) -> cudaError_t;
}
