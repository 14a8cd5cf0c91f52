//! Functions of the driver by name, and the driver's log.

extern "C" {
    /// Finds a function of the driver by name.
    #[call(by = self.entry_point(symbol, funcPtr, self.version(), flags, driverStatus), ptsz)]
    fn cudaGetDriverEntryPoint(
        symbol: *const c_char,
        funcPtr: *mut *mut c_void,
        flags: u64,
        driverStatus: *mut cudaDriverEntryPointQueryResult,
    ) -> cudaError_t;

    /// Finds a function of the driver by name and version.
    #[call(ptsz)]
    fn cudaGetDriverEntryPointByVersion(
        symbol: *const c_char,
        funcPtr: *mut *mut c_void,
        cudaVersion: u32,
        flags: u64,
        driverStatus: *mut cudaDriverEntryPointQueryResult,
    ) -> cudaError_t;

    /// Gives undocumented tables; this library has none.
    #[call(refused)]
    fn cudaGetExportTable(
        ppExportTable: *mut *const c_void,
        pExportTableId: *const cudaUUID_t,
    ) -> cudaError_t;

    /// Registers a function for the driver's messages.
    #[call(bare = "cuLogsRegisterCallback", only = 13)]
    fn cudaLogsRegisterCallback(
        callbackFunc: cudaLogsCallback_t,
        userData: *mut c_void,
        callback_out: *mut cudaLogsCallbackHandle,
    ) -> cudaError_t;

    /// Ends the calls for the driver's messages.
    #[call(bare = "cuLogsUnregisterCallback", only = 13)]
    fn cudaLogsUnregisterCallback(callback: cudaLogsCallbackHandle) -> cudaError_t;

    /// Tells the place of the newest message.
    #[call(bare = "cuLogsCurrent", only = 13)]
    fn cudaLogsCurrent(iterator_out: *mut cudaLogIterator, flags: u32) -> cudaError_t;

    /// Writes messages to a file.
    #[call(bare = "cuLogsDumpToFile", only = 13)]
    fn cudaLogsDumpToFile(
        iterator: *mut cudaLogIterator,
        pathToFile: *const c_char,
        flags: u32,
    ) -> cudaError_t;

    /// Writes messages to memory.
    #[call(bare = "cuLogsDumpToMemory", only = 13)]
    fn cudaLogsDumpToMemory(
        iterator: *mut cudaLogIterator,
        buffer: *mut c_char,
        size: *mut usize,
        flags: u32,
    ) -> cudaError_t;
}
