//! For tools and administrators: profiler, core dumps, logs, checkpoints.

extern "C" {
    /// Sets up the profiler from files; refused by every driver since CUDA 12.
    #[call(id = 0x1101, local, since = "4.0")]
    fn cuProfilerInitialize(
        #[input(cstr, nullable)] configFile: *const c_char,
        #[input(cstr, nullable)] outputFile: *const c_char,
        outputMode: CUoutput_mode,
    ) -> CUresult;

    /// Starts profiling.
    #[call(id = 0x1102, local, since = "4.0")]
    fn cuProfilerStart() -> CUresult;

    /// Stops profiling.
    #[call(id = 0x1103, local, since = "4.0")]
    fn cuProfilerStop() -> CUresult;

    /// Tells a setting of the current context's core dumps.
    #[call(id = 0x1104, unsupported, since = "12.1")]
    fn cuCoredumpGetAttribute(
        attrib: CUcoredumpSettings,
        #[local] value: *mut c_void,
        #[inout] size: *mut usize,
    ) -> CUresult;

    /// Tells a setting of core dumps.
    #[call(id = 0x1105, unsupported, since = "12.1")]
    fn cuCoredumpGetAttributeGlobal(
        attrib: CUcoredumpSettings,
        #[local] value: *mut c_void,
        #[inout] size: *mut usize,
    ) -> CUresult;

    /// Changes a setting of the current context's core dumps.
    #[call(id = 0x1106, unsupported, since = "12.1")]
    fn cuCoredumpSetAttribute(
        attrib: CUcoredumpSettings,
        #[local] value: *mut c_void,
        #[inout] size: *mut usize,
    ) -> CUresult;

    /// Changes a setting of core dumps.
    #[call(id = 0x1107, unsupported, since = "12.1")]
    fn cuCoredumpSetAttributeGlobal(
        attrib: CUcoredumpSettings,
        #[local] value: *mut c_void,
        #[inout] size: *mut usize,
    ) -> CUresult;

    /// Calls the application back before a core dump.
    #[call(id = 0x1108, unsupported, since = "13.2")]
    fn cuCoredumpRegisterStartCallback(
        #[callback] callback: CUcoredumpStatusCallback,
        #[user_data] userData: *mut c_void,
        #[out] callbackOut: *mut CUcoredumpCallbackHandle,
    ) -> CUresult;

    /// Calls the application back after a core dump.
    #[call(id = 0x1109, unsupported, since = "13.2")]
    fn cuCoredumpRegisterCompleteCallback(
        #[callback] callback: CUcoredumpStatusCallback,
        #[user_data] userData: *mut c_void,
        #[out] callbackOut: *mut CUcoredumpCallbackHandle,
    ) -> CUresult;

    /// Ends such calls before a core dump.
    #[call(id = 0x110a, unsupported, since = "13.2")]
    fn cuCoredumpDeregisterStartCallback(callback: CUcoredumpCallbackHandle) -> CUresult;

    /// Ends such calls after a core dump.
    #[call(id = 0x110b, unsupported, since = "13.2")]
    fn cuCoredumpDeregisterCompleteCallback(callback: CUcoredumpCallbackHandle) -> CUresult;

    /// Calls the application back with the driver's error log.
    #[call(id = 0x110c, local, since = "12.9")]
    fn cuLogsRegisterCallback(
        #[callback] callbackFunc: CUlogsCallback,
        #[user_data] userData: *mut c_void,
        #[out] callback_out: *mut CUlogsCallbackHandle,
    ) -> CUresult;

    /// Ends such calls.
    #[call(id = 0x110d, local, since = "12.9")]
    fn cuLogsUnregisterCallback(callback: CUlogsCallbackHandle) -> CUresult;

    /// Marks the present end of the driver's error log.
    #[call(id = 0x110e, local, since = "12.9")]
    fn cuLogsCurrent(#[out] iterator_out: *mut CUlogIterator, flags: u32) -> CUresult;

    /// Writes the driver's error log to a file.
    #[call(id = 0x110f, local, since = "12.9")]
    fn cuLogsDumpToFile(
        #[inout(nullable)] iterator: *mut CUlogIterator,
        #[input(cstr)] pathToFile: *const c_char,
        flags: u32,
    ) -> CUresult;

    /// Writes the driver's error log to memory.
    #[call(id = 0x1110, local, since = "12.9")]
    fn cuLogsDumpToMemory(
        #[inout(nullable)] iterator: *mut CUlogIterator,
        #[out(bytes = size)] buffer: *mut c_char,
        #[inout] size: *mut usize,
        flags: u32,
    ) -> CUresult;

    /// Tells the thread that restores a process.
    #[call(id = 0x1111, unsupported, since = "12.8")]
    fn cuCheckpointProcessGetRestoreThreadId(pid: i32, #[out] tid: *mut i32) -> CUresult;

    /// Tells whether a process is locked or checkpointed.
    #[call(id = 0x1112, unsupported, since = "12.8")]
    fn cuCheckpointProcessGetState(pid: i32, #[out] state: *mut CUprocessState) -> CUresult;

    /// Locks a process before its checkpoint.
    #[call(id = 0x1113, unsupported, since = "12.8")]
    fn cuCheckpointProcessLock(pid: i32, #[inout] args: *mut CUcheckpointLockArgs) -> CUresult;

    /// Moves a process's device state to host memory.
    #[call(id = 0x1114, unsupported, since = "12.8")]
    fn cuCheckpointProcessCheckpoint(
        pid: i32,
        #[inout] args: *mut CUcheckpointCheckpointArgs,
    ) -> CUresult;

    /// Moves it back.
    #[call(id = 0x1115, unsupported, since = "12.8")]
    fn cuCheckpointProcessRestore(
        pid: i32,
        #[inout] args: *mut CUcheckpointRestoreArgs,
    ) -> CUresult;

    /// Lets a process go on.
    #[call(id = 0x1116, unsupported, since = "12.8")]
    fn cuCheckpointProcessUnlock(pid: i32, #[inout] args: *mut CUcheckpointUnlockArgs) -> CUresult;

    /// Ends a checkpoint whose data the application stored.
    #[call(id = 0x1117, unsupported, since = "13.4")]
    fn cuCheckpointOperationComplete(handle: CUcheckpointOperationHandle) -> CUresult;
}
