//! Modules, libraries, kernels and functions. Loading waits once and brings the facts; every question after that is local.

extern "C" {
    /// Loads a module from a file.
    #[call(id = 0x0801, local, manual(client), since = "2.0")]
    fn cuModuleLoad(#[out] module: *mut CUmodule, #[input(cstr)] fname: *const c_char) -> CUresult;

    /// Loads a module from memory.
    #[call(id = 0x0802, local, manual(client), since = "2.0")]
    fn cuModuleLoadData(#[out] module: *mut CUmodule, #[local] image: *const c_void) -> CUresult;

    /// Loads a module from memory, with compiler options.
    #[call(id = 0x0803, local, manual(client), since = "2.1")]
    fn cuModuleLoadDataEx(
        #[out] module: *mut CUmodule,
        #[local] image: *const c_void,
        numOptions: u32,
        #[input(len = numOptions)] options: *mut CUjit_option,
        #[local] optionValues: *mut *mut c_void,
    ) -> CUresult;

    /// Loads the entry of a fat binary that suits the device.
    #[call(id = 0x0804, local, manual(client), since = "2.0")]
    fn cuModuleLoadFatBinary(
        #[out] module: *mut CUmodule,
        #[local] fatCubin: *const c_void,
    ) -> CUresult;

    /// Ends a module.
    #[call(id = 0x0805, async, manual, since = "2.0")]
    fn cuModuleUnload(#[destroys] hmod: CUmodule) -> CUresult;

    /// Tells whether kernels are loaded when first used.
    #[call(id = 0x0806, local, since = "11.7")]
    fn cuModuleGetLoadingMode(#[out] mode: *mut CUmoduleLoadingMode) -> CUresult;

    /// Finds a kernel of a module by name.
    #[call(id = 0x0807, local, since = "2.0")]
    fn cuModuleGetFunction(
        #[out(place)] hfunc: *mut CUfunction,
        hmod: CUmodule,
        #[input(cstr, nullable)] name: *const c_char,
    ) -> CUresult;

    /// Counts the kernels of a module.
    #[call(id = 0x0808, local, since = "12.4")]
    fn cuModuleGetFunctionCount(#[out] count: *mut u32, r#mod: CUmodule) -> CUresult;

    /// Lists the kernels of a module.
    #[call(id = 0x0809, local, since = "12.4")]
    fn cuModuleEnumerateFunctions(
        #[out(len = numFunctions, place)] functions: *mut CUfunction,
        numFunctions: u32,
        r#mod: CUmodule,
    ) -> CUresult;

    /// `cuModuleGetGlobal_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x080a, local, since = "2.0")]
    fn cuModuleGetGlobal(
        #[out(nullable)] dptr: *mut CUdeviceptr_v1,
        #[out(nullable)] bytes: *mut u32,
        hmod: CUmodule,
        #[input(cstr)] name: *const c_char,
    ) -> CUresult;

    /// Tells where a variable of a module lies.
    #[call(id = 0x080b, sync, manual(client), since = "3.2")]
    fn cuModuleGetGlobal_v2(
        #[out(nullable, device_value, cleared)] dptr: *mut CUdeviceptr,
        #[out(nullable, cleared)] bytes: *mut usize,
        hmod: CUmodule,
        #[input(cstr)] name: *const c_char,
    ) -> CUresult;

    /// Finds a texture reference of a module.
    #[call(id = 0x080c, sync, since = "2.0")]
    fn cuModuleGetTexRef(
        #[out(creates)] pTexRef: *mut CUtexref,
        hmod: CUmodule,
        #[input(cstr)] name: *const c_char,
    ) -> CUresult;

    /// Finds a surface reference of a module.
    #[call(id = 0x080d, sync, since = "3.0")]
    fn cuModuleGetSurfRef(
        #[out(creates)] pSurfRef: *mut CUsurfref,
        hmod: CUmodule,
        #[input(cstr)] name: *const c_char,
    ) -> CUresult;

    /// Loads a library, for all contexts, from memory.
    #[call(id = 0x080e, local, manual(client), since = "12.0")]
    fn cuLibraryLoadData(
        #[out] library: *mut CUlibrary,
        #[local] code: *const c_void,
        #[input(len = numJitOptions)] jitOptions: *mut CUjit_option,
        #[local] jitOptionsValues: *mut *mut c_void,
        numJitOptions: u32,
        #[input(len = numLibraryOptions, nullable)] libraryOptions: *mut CUlibraryOption,
        #[local] libraryOptionValues: *mut *mut c_void,
        numLibraryOptions: u32,
    ) -> CUresult;

    /// Loads a library, for all contexts, from a file.
    #[call(id = 0x080f, local, manual(client), since = "12.0")]
    fn cuLibraryLoadFromFile(
        #[out] library: *mut CUlibrary,
        #[input(cstr)] fileName: *const c_char,
        #[input(len = numJitOptions)] jitOptions: *mut CUjit_option,
        #[local] jitOptionsValues: *mut *mut c_void,
        numJitOptions: u32,
        #[input(len = numLibraryOptions, nullable)] libraryOptions: *mut CUlibraryOption,
        #[local] libraryOptionValues: *mut *mut c_void,
        numLibraryOptions: u32,
    ) -> CUresult;

    /// Ends a library.
    #[call(id = 0x0810, async, manual, since = "12.0")]
    fn cuLibraryUnload(#[destroys] library: CUlibrary) -> CUresult;

    /// Finds a kernel of a library by name.
    #[call(id = 0x0811, local, since = "12.0")]
    fn cuLibraryGetKernel(
        #[out] pKernel: *mut CUkernel,
        library: CUlibrary,
        #[input(cstr, nullable)] name: *const c_char,
    ) -> CUresult;

    /// Counts the kernels of a library.
    #[call(id = 0x0812, local, since = "12.4")]
    fn cuLibraryGetKernelCount(#[out] count: *mut u32, lib: CUlibrary) -> CUresult;

    /// Lists the kernels of a library.
    #[call(id = 0x0813, local, since = "12.4")]
    fn cuLibraryEnumerateKernels(
        #[out(len = numKernels, place)] kernels: *mut CUkernel,
        numKernels: u32,
        lib: CUlibrary,
    ) -> CUresult;

    /// Gives the module that a library is in the current context.
    #[call(id = 0x0814, local, manual(client), since = "12.0")]
    fn cuLibraryGetModule(#[out] pMod: *mut CUmodule, library: CUlibrary) -> CUresult;

    /// Tells where a variable of a library lies in the current context.
    #[call(id = 0x0815, sync, manual(client), since = "12.0")]
    fn cuLibraryGetGlobal(
        #[out(nullable, device_value)] dptr: *mut CUdeviceptr,
        #[out(nullable)] bytes: *mut usize,
        library: CUlibrary,
        #[input(cstr)] name: *const c_char,
    ) -> CUresult;

    /// Tells where a managed variable of a library lies, which is another variable on each server.
    #[call(id = 0x0816, sync, manual(client), since = "12.0")]
    fn cuLibraryGetManaged(
        #[out(device_value, place)] dptr: *mut CUdeviceptr,
        #[out(place)] bytes: *mut usize,
        library: CUlibrary,
        #[input(cstr)] name: *const c_char,
    ) -> CUresult;

    /// Finds a function that host and device share.
    #[call(id = 0x0817, unsupported, since = "12.0")]
    fn cuLibraryGetUnifiedFunction(
        #[out] fptr: *mut *mut c_void,
        library: CUlibrary,
        #[input(cstr)] symbol: *const c_char,
    ) -> CUresult;

    /// Gives the function that a kernel is in the current context.
    #[call(id = 0x0818, local, since = "12.0")]
    fn cuKernelGetFunction(#[out] pFunc: *mut CUfunction, kernel: CUkernel) -> CUresult;

    /// Tells the library that a kernel belongs to.
    #[call(id = 0x0819, local, since = "12.5")]
    fn cuKernelGetLibrary(#[out] pLib: *mut CUlibrary, kernel: CUkernel) -> CUresult;

    /// Tells an attribute of a kernel on a device.
    #[call(id = 0x081a, local, since = "12.0")]
    fn cuKernelGetAttribute(
        #[out] pi: *mut i32,
        attrib: CUfunction_attribute,
        kernel: CUkernel,
        dev: CUdevice,
    ) -> CUresult;

    /// Sets an attribute of a kernel on a device; repeated settings are remembered.
    #[call(id = 0x081b, sync, manual, since = "12.0")]
    fn cuKernelSetAttribute(
        attrib: CUfunction_attribute,
        val: i32,
        kernel: CUkernel,
        dev: CUdevice,
    ) -> CUresult;

    /// Says how a kernel wants the first-level cache divided.
    #[call(id = 0x081c, async, manual, since = "12.0")]
    fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, dev: CUdevice) -> CUresult;

    /// Names a kernel.
    #[call(id = 0x081d, local, since = "12.3")]
    fn cuKernelGetName(#[out] name: *mut *const c_char, hfunc: CUkernel) -> CUresult;

    /// Tells where a kernel's parameter lies, and its size.
    #[call(id = 0x081e, local, since = "12.4")]
    fn cuKernelGetParamInfo(
        kernel: CUkernel,
        paramIndex: usize,
        #[out] paramOffset: *mut usize,
        #[out(nullable)] paramSize: *mut usize,
    ) -> CUresult;

    /// Counts a kernel's parameters.
    #[call(id = 0x081f, local, since = "13.2")]
    fn cuKernelGetParamCount(kernel: CUkernel, #[out] paramCount: *mut usize) -> CUresult;

    /// Tells an attribute of a function.
    #[call(id = 0x0820, sync, manual(client), since = "2.2")]
    fn cuFuncGetAttribute(
        #[out] pi: *mut i32,
        attrib: CUfunction_attribute,
        hfunc: CUfunction,
    ) -> CUresult;

    /// Sets an attribute of a function; repeated settings are remembered.
    #[call(id = 0x0821, sync, manual(client), since = "9.0")]
    fn cuFuncSetAttribute(hfunc: CUfunction, attrib: CUfunction_attribute, value: i32) -> CUresult;

    /// Says how a function wants the first-level cache divided.
    #[call(id = 0x0822, async, manual(client), since = "3.0")]
    fn cuFuncSetCacheConfig(hfunc: CUfunction, config: CUfunc_cache) -> CUresult;

    /// Says how wide a function wants the shared memory banks.
    #[call(id = 0x0823, async, manual(client), since = "4.2")]
    fn cuFuncSetSharedMemConfig(hfunc: CUfunction, config: CUsharedconfig) -> CUresult;

    /// Tells the module that a function belongs to.
    #[call(id = 0x0824, local, since = "11.0")]
    fn cuFuncGetModule(#[out] hmod: *mut CUmodule, hfunc: CUfunction) -> CUresult;

    /// Names a function.
    #[call(id = 0x0825, local, since = "12.3")]
    fn cuFuncGetName(#[out] name: *mut *const c_char, hfunc: CUfunction) -> CUresult;

    /// Tells where a function's parameter lies, and its size.
    #[call(id = 0x0826, local, since = "12.4")]
    fn cuFuncGetParamInfo(
        func: CUfunction,
        paramIndex: usize,
        #[out] paramOffset: *mut usize,
        #[out(nullable)] paramSize: *mut usize,
    ) -> CUresult;

    /// Counts a function's parameters.
    #[call(id = 0x0827, local, since = "13.2")]
    fn cuFuncGetParamCount(func: CUfunction, #[out] paramCount: *mut usize) -> CUresult;

    /// Tells whether a function is on the device already.
    #[call(id = 0x0828, local, since = "12.4")]
    fn cuFuncIsLoaded(#[out] state: *mut CUfunctionLoadingState, function: CUfunction) -> CUresult;

    /// Brings a function to the device.
    #[call(id = 0x0829, sync, manual(client), since = "12.4")]
    fn cuFuncLoad(function: CUfunction) -> CUresult;

    /// Begins to link device code.
    #[call(id = 0x082a, local, since = "6.5", alias = "cuLinkCreate@5.5")]
    fn cuLinkCreate_v2(
        numOptions: u32,
        #[input(len = numOptions)] options: *mut CUjit_option,
        #[local] optionValues: *mut *mut c_void,
        #[out] stateOut: *mut CUlinkState,
    ) -> CUresult;

    /// Adds device code from memory to a link.
    #[call(id = 0x082b, local, since = "6.5", alias = "cuLinkAddData@5.5")]
    fn cuLinkAddData_v2(
        state: CUlinkState,
        r#type: CUjitInputType,
        #[input(bytes = size)] data: *mut c_void,
        size: usize,
        #[input(cstr, nullable)] name: *const c_char,
        numOptions: u32,
        #[input(len = numOptions)] options: *mut CUjit_option,
        #[local] optionValues: *mut *mut c_void,
    ) -> CUresult;

    /// Adds device code from a file to a link.
    #[call(id = 0x082c, local, since = "6.5", alias = "cuLinkAddFile@5.5")]
    fn cuLinkAddFile_v2(
        state: CUlinkState,
        r#type: CUjitInputType,
        #[input(cstr)] path: *const c_char,
        numOptions: u32,
        #[input(len = numOptions)] options: *mut CUjit_option,
        #[local] optionValues: *mut *mut c_void,
    ) -> CUresult;

    /// Links what was added into an image.
    #[call(id = 0x082d, local, since = "5.5")]
    fn cuLinkComplete(
        state: CUlinkState,
        #[out] cubinOut: *mut *mut c_void,
        #[out(nullable)] sizeOut: *mut usize,
    ) -> CUresult;

    /// Ends a link and its image.
    #[call(id = 0x082e, local, since = "5.5")]
    fn cuLinkDestroy(#[destroys] state: CUlinkState) -> CUresult;
}
