//! What the compiler's host code calls: registration of code, and the launch with angle brackets.

extern "C" {
    /// Takes note of a program's device code.
    #[call]
    fn __cudaRegisterFatBinary(fatCubin: *mut c_void) -> *mut *mut c_void;

    /// Says that all of some device code's functions and variables are registered.
    #[call]
    fn __cudaRegisterFatBinaryEnd(fatCubinHandle: *mut *mut c_void);

    /// Forgets a program's device code.
    #[call]
    fn __cudaUnregisterFatBinary(fatCubinHandle: *mut *mut c_void);

    /// Ties a kernel to the function that stands for it in host code.
    #[call]
    fn __cudaRegisterFunction(
        fatCubinHandle: *mut *mut c_void,
        hostFun: *const c_char,
        deviceFun: *mut c_char,
        deviceName: *const c_char,
        thread_limit: i32,
        tid: *mut c_void,
        bid: *mut c_void,
        bDim: *mut dim3,
        gDim: *mut dim3,
        wSize: *mut i32,
    );

    /// Ties a variable of the device to its shadow in host code.
    #[call]
    fn __cudaRegisterVar(
        fatCubinHandle: *mut *mut c_void,
        hostVar: *mut c_char,
        deviceAddress: *mut c_char,
        deviceName: *const c_char,
        ext: i32,
        size: usize,
        constant: i32,
        global: i32,
    );

    /// Ties a managed variable to the pointer that host code reaches it by.
    #[call]
    fn __cudaRegisterManagedVar(
        fatCubinHandle: *mut *mut c_void,
        hostVarPtrAddress: *mut *mut c_void,
        deviceAddress: *mut c_char,
        deviceName: *const c_char,
        ext: i32,
        size: usize,
        constant: i32,
        global: i32,
    );

    /// Ties a variable of the host to the name by which device code reaches it.
    #[call]
    fn __cudaRegisterHostVar(
        fatCubinHandle: *mut *mut c_void,
        deviceName: *const c_char,
        hostVar: *mut c_char,
        size: usize,
    );

    /// Takes note of functions that host and device call by one address.
    #[call]
    fn __cudaRegisterUnifiedTable(fatCubinHandle: *mut *mut c_void, table: *mut c_void);

    /// Loads device code before its managed variables are used.
    #[call]
    fn __cudaInitModule(fatCubinHandle: *mut *mut c_void) -> c_char;

    /// Keeps what stands in angle brackets.
    #[call]
    fn __cudaPushCallConfiguration(
        gridDim: dim3,
        blockDim: dim3,
        sharedMem: usize,
        stream: cudaStream_t,
    ) -> u32;

    /// Gives back what stood in angle brackets.
    #[call]
    fn __cudaPopCallConfiguration(
        gridDim: *mut dim3,
        blockDim: *mut dim3,
        sharedMem: *mut usize,
        stream: *mut c_void,
    ) -> cudaError_t;

    /// Finds the kernel of a function of host code, before its launch.
    #[call]
    fn __cudaGetKernel(kernelPtr: *mut cudaKernel_t, entryFuncAddr: *const c_void) -> cudaError_t;

    /// Launches a kernel that __cudaGetKernel gave.
    #[call(ptsz)]
    fn __cudaLaunchKernel(
        kernel: cudaKernel_t,
        gridDim: dim3,
        blockDim: dim3,
        args: *mut *mut c_void,
        sharedMem: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;
}
