//! Code that programs load by themselves.

extern "C" {
    /// Loads code from memory.
    #[call(bare = "cuLibraryLoadData")]
    fn cudaLibraryLoadData(
        library: *mut cudaLibrary_t,
        code: *const c_void,
        jitOptions: *mut cudaJitOption,
        jitOptionsValues: *mut *mut c_void,
        numJitOptions: u32,
        libraryOptions: *mut cudaLibraryOption,
        libraryOptionValues: *mut *mut c_void,
        numLibraryOptions: u32,
    ) -> cudaError_t;

    /// Loads code from a file.
    #[call(bare = "cuLibraryLoadFromFile")]
    fn cudaLibraryLoadFromFile(
        library: *mut cudaLibrary_t,
        fileName: *const c_char,
        jitOptions: *mut cudaJitOption,
        jitOptionsValues: *mut *mut c_void,
        numJitOptions: u32,
        libraryOptions: *mut cudaLibraryOption,
        libraryOptionValues: *mut *mut c_void,
        numLibraryOptions: u32,
    ) -> cudaError_t;

    /// Unloads code.
    #[call(bare = "cuLibraryUnload")]
    fn cudaLibraryUnload(library: cudaLibrary_t) -> cudaError_t;

    /// Finds a kernel by name.
    #[call]
    fn cudaLibraryGetKernel(
        pKernel: *mut cudaKernel_t,
        library: cudaLibrary_t,
        name: *const c_char,
    ) -> cudaError_t;

    /// Tells how many kernels there are.
    #[call(bare = "cuLibraryGetKernelCount")]
    fn cudaLibraryGetKernelCount(count: *mut u32, lib: cudaLibrary_t) -> cudaError_t;

    /// Lists the kernels.
    #[call]
    fn cudaLibraryEnumerateKernels(
        kernels: *mut cudaKernel_t,
        numKernels: u32,
        lib: cudaLibrary_t,
    ) -> cudaError_t;

    /// Finds a variable by name.
    #[call(driver = "cuLibraryGetGlobal")]
    fn cudaLibraryGetGlobal(
        dptr: *mut *mut c_void,
        bytes: *mut usize,
        library: cudaLibrary_t,
        name: *const c_char,
    ) -> cudaError_t;

    /// Finds a managed variable by name.
    #[call(driver = "cuLibraryGetManaged")]
    fn cudaLibraryGetManaged(
        dptr: *mut *mut c_void,
        bytes: *mut usize,
        library: cudaLibrary_t,
        name: *const c_char,
    ) -> cudaError_t;

    /// Finds a function that host and device call by one address.
    #[call(driver = "cuLibraryGetUnifiedFunction")]
    fn cudaLibraryGetUnifiedFunction(
        fptr: *mut *mut c_void,
        library: cudaLibrary_t,
        symbol: *const c_char,
    ) -> cudaError_t;
}
