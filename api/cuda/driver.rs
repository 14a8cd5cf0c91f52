//! The driver itself: start, version, error texts, and how its functions are found. All answered by the client.

extern "C" {
    /// Starts the driver interface in this process.
    #[call(id = 0x0101, local, since = "2.0")]
    fn cuInit(Flags: u32) -> CUresult;

    /// Tells the driver's version as one number.
    #[call(id = 0x0102, local, since = "2.2")]
    fn cuDriverGetVersion(#[out] driverVersion: *mut i32) -> CUresult;

    /// Describes an error code.
    #[call(id = 0x0103, local, since = "6.0")]
    fn cuGetErrorString(error: CUresult, #[out(place)] pStr: *mut *const c_char) -> CUresult;

    /// Names an error code.
    #[call(id = 0x0104, local, since = "6.0")]
    fn cuGetErrorName(error: CUresult, #[out(place)] pStr: *mut *const c_char) -> CUresult;

    /// Finds the address of a driver function by base name and version; before CUDA 12, without saying why not.
    #[call(id = 0x0105, local, since = "11.3")]
    fn cuGetProcAddress(
        #[input(cstr)] symbol: *const c_char,
        #[out] pfn: *mut *mut c_void,
        cudaVersion: i32,
        flags: cuuint64_t,
    ) -> CUresult;

    /// Finds the address of a driver function by base name and version, and says why there is none.
    #[call(id = 0x0106, local, since = "12.0")]
    fn cuGetProcAddress_v2(
        #[input(cstr)] symbol: *const c_char,
        #[out] pfn: *mut *mut c_void,
        cudaVersion: i32,
        flags: cuuint64_t,
        #[out(nullable)] symbolStatus: *mut CUdriverProcAddressQueryResult,
    ) -> CUresult;

    /// Finds a table of functions by its identifier.
    #[call(id = 0x0107, local, since = "3.0")]
    fn cuGetExportTable(
        #[out(place)] ppExportTable: *mut *const c_void,
        #[input] pExportTableId: *const CUuuid,
    ) -> CUresult;
}
