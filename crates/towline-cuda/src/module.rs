//! Modules, and the calls for them and for libraries.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Answer;
use towline_wire::cuda::facts::ModuleFacts;

use crate::driver::{Acting, Driver, ModuleCalls, read, status, tell, write};
use crate::image::{self, Image, Known};
use crate::jit::{Options, Told};
use crate::layout::Layout;

/// Most bytes of facts that a server may answer with.
pub(crate) const FACTS_ROOM: u64 = 64 << 20;
/// Functions of one image get numbers out of a row this long; cuBLAS has some ten thousand.
pub(crate) const FUNCTION_ROW: u64 = 262_144;
/// Largest image file.
const FILE_LIMIT: u64 = 4 << 30;

impl Driver {
    /// Loads an image as a module.
    ///
    /// # Safety
    /// `start` is an image as the driver takes it; what the options named is writable.
    pub(crate) unsafe fn load_module(
        &self,
        start: *const c_void,
        wrapped: bool,
        options: &Options,
    ) -> Result<CUmodule, CUresult> {
        let acting = self.session_for(0)?;
        let device = self.target(&acting)?;
        // SAFETY: the caller's contract.
        let travelling = unsafe { image::travelling(start, wrapped, device) }?;
        let bytes = travelling.bytes();
        let first = acting
            .session
            .mint_many(wire::FunctionHandle::TAG, FUNCTION_ROW);
        let module = wire::ModuleHandle(acting.mint(wire::ModuleHandle::TAG));
        let layout = Layout::of(&travelling, device);
        let digest = acting.session.image_digest(bytes);
        let answer = acting
            .session
            .ask_with_image(bytes, &digest, |image, payload| {
                acting.ask(
                    "cuModuleLoadData",
                    &wire::ModuleLoad {
                        digest: &digest,
                        size: bytes.len() as u64,
                        payload,
                        image_size: image.map_or(0, <[u8]>::len) as u64,
                        image,
                        num_options: options.names.len() as u32,
                        options: wire::List::Values(&options.names),
                        values: wire::List::Values(&options.values),
                        first,
                        room: FACTS_ROOM,
                        log_room: options.log_room(),
                        info_room: options.info_room(),
                        module,
                    },
                )
            })?;
        let reply = wire::ModuleLoadReply::decode(&answer.body).map_err(|_| acting.malformed())?;
        let told = Told {
            error: reply.log,
            info: reply.info,
            wall: reply.wall,
        };
        // SAFETY: the caller's contract.
        unsafe { options.tell(&told) };
        let facts = Arc::new(facts(&acting, &answer, reply.facts)?);
        let (context, session) = (acting.context.number, acting.context.session);
        self.check_stated(&layout, &facts, session)?;
        let image = Image::new(module.0, context, session, first, facts, layout);
        write(&self.functions).insert(&Arc::new(image));
        Ok(module.to_raw())
    }

    fn image(&self, number: u64) -> Result<Arc<Image>, CUresult> {
        self.ready()?;
        let found = read(&self.functions).images.get(&number).cloned();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// An attribute of a function on a device. Drivers do not tell of every function how much dynamic shared memory launches may use before
    /// it is set: what a block has, but for the function's own.
    pub(crate) fn attribute_of(
        &self,
        known: &Known,
        device: CUdevice,
        attribute: CUfunction_attribute,
    ) -> Result<i32, CUresult> {
        if let Some(value) = known.attribute(device, attribute) {
            return Ok(value);
        }
        if attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let most = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK;
        let own = known.attribute(device, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
        Ok((self.device(device)?.attribute(most) - own.unwrap_or(0)).max(0))
    }

    /// The number of a function by its name.
    ///
    /// # Safety
    /// `name` is NULL or a string.
    unsafe fn named(&self, image: u64, name: *const c_char) -> Result<u64, CUresult> {
        let image = self.image(image)?;
        // SAFETY: the caller's contract.
        let name = unsafe { crate::raw::text(name) }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        image.find(name).ok_or(CUDA_ERROR_NOT_FOUND)
    }

    /// Address and size of a global in a context; asked for once.
    pub(crate) fn global(
        &self,
        image: &Image,
        acting: &Acting<'_>,
        context: u64,
        name: &[u8],
        ask: impl FnOnce() -> Result<(Option<u64>, Option<u64>), CUresult>,
    ) -> Result<(u64, usize), CUresult> {
        if let Some(known) = image.global(context, name) {
            return Ok(known);
        }
        let (address, size) = ask()?;
        let address = address.ok_or(CUDA_ERROR_UNKNOWN)?;
        let place = (address, size.unwrap_or(0) as usize);
        // It lies where it lies, and most copies of it say which way they go. A managed variable beside it may have its page.
        let session = acting.context.session;
        let managed = context == 0 || image.layout.is_managed(name);
        if managed {
            self.show_variable(acting, address, place.1)?;
        } else if !self.is_mirrored(address) && !self.addresses.claim(session, address, place.1) {
            log::debug!(
                "a variable of the device lies at {address:#x}, where this process has something else"
            );
        }
        image.note_global(context, name, place);
        let mut range = crate::memory::Range::device(&acting.context, place.1, self.new_id());
        if managed {
            range.kind = crate::memory::Kind::Managed;
        }
        write(&self.memory).insert(place.0, range);
        Ok(place)
    }

    /// Ends what the application was shown of an image's variables.
    pub(crate) fn hide_variables(&self, image: &Image) {
        for (address, size) in image.take_globals() {
            write(&self.memory).remove(address);
            self.hide_variable(address, size);
        }
    }

    /// A module, and a call in its context.
    fn at_module(&self, module: CUmodule) -> Result<(Arc<Image>, Acting<'_>), CUresult> {
        let image = self.image(module.addr() as u64)?;
        // A library is none.
        let context = match image.context {
            0 => return Err(CUDA_ERROR_INVALID_HANDLE),
            context => self.context(context)?,
        };
        Ok((image, self.acting_in(context)?))
    }

    /// Address and size of a global of a module.
    fn module_variable(&self, module: CUmodule, name: &[u8]) -> Result<(u64, usize), CUresult> {
        let (image, acting) = self.at_module(module)?;
        self.global(&image, &acting, image.context, name, || {
            let body = acting.call(&wire::ModuleGetGlobalV2 {
                want_dptr: true,
                want_bytes: true,
                hmod: wire::ModuleHandle::from_raw(module),
                name,
            })?;
            let reply =
                wire::ModuleGetGlobalV2Reply::decode(&body).map_err(|_| acting.malformed())?;
            Ok((reply.dptr, reply.bytes))
        })
    }

    fn parameter_count(&self, number: u64) -> Result<usize, CUresult> {
        let known = self.function(number)?;
        Ok(self.parameters(&known)?.len())
    }

    fn parameter(&self, number: u64, index: usize) -> Result<(usize, usize), CUresult> {
        let known = self.function(number)?;
        let parameter = self.parameters(&known)?.get(index);
        let parameter = parameter.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok((parameter.offset as usize, parameter.size as usize))
    }

    /// # Safety
    /// `offset` is writable, `size` is NULL or writable.
    unsafe fn tell_parameter(
        &self,
        number: u64,
        index: usize,
        offset: *mut usize,
        size: *mut usize,
    ) -> CUresult {
        let parameter = self.parameter(number, index);
        if let Ok((_, bytes)) = parameter {
            // SAFETY: the caller's contract.
            unsafe { crate::raw::fill(size, 1, [bytes].into_iter()) };
        }
        // SAFETY: the caller's contract.
        unsafe { tell(offset, parameter.map(|(offset, _)| offset)) }
    }

    /// # Safety
    /// `target` is writable for `room` handles.
    unsafe fn enumerate<T>(
        &self,
        number: u64,
        target: *mut T,
        room: u32,
        handle: impl Fn(u64) -> T,
    ) -> CUresult {
        match self.image(number) {
            Ok(_) if target.is_null() => CUDA_ERROR_INVALID_VALUE,
            Ok(image) => {
                let count = image.facts.functions.len() as u64;
                let handles = (0..count).map(|index| handle(image.first + index));
                // SAFETY: the caller's contract.
                unsafe { crate::raw::fill(target, room as usize, handles) };
                CUDA_SUCCESS
            }
            Err(status) => status,
        }
    }

    /// The functions of a module.
    pub(crate) fn functions_of(&self, module: CUmodule) -> Result<Vec<CUfunction>, CUresult> {
        let image = self.image(module.addr() as u64)?;
        let count = image.facts.functions.len() as u64;
        let numbers = image.first..image.first + count;
        Ok(numbers
            .map(|number| wire::FunctionHandle(number).to_raw())
            .collect())
    }
}

/// What a server told of a module's or library's functions.
pub(crate) fn facts(
    acting: &Acting<'_>,
    answer: &Answer,
    told: Option<&[u8]>,
) -> Result<ModuleFacts, CUresult> {
    if answer.status != CUDA_SUCCESS {
        return Err(answer.status);
    }
    let facts = ModuleFacts::decode(told.unwrap_or_default());
    let facts = facts.map_err(|_| acting.malformed())?;
    match facts.functions.len() as u64 <= FUNCTION_ROW {
        true => Ok(facts),
        false => Err(acting.malformed()),
    }
}

/// Sets an attribute of a function on a device; `ask` has the server's driver do so, where it has to.
fn set_attribute(
    known: &Known,
    device: CUdevice,
    attribute: CUfunction_attribute,
    value: i32,
    ask: impl FnOnce() -> Result<Vec<u8>, CUresult>,
) -> Result<(), CUresult> {
    if known.attribute(device, attribute) == Some(value) {
        return Ok(());
    }
    let is_shared = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    if !(is_shared && known.is_granted(device, value)) {
        ask()?;
        if is_shared {
            known.grant(device, value);
        }
    }
    known.set_attribute(device, attribute, value);
    Ok(())
}

/// The bytes of a file with device code.
///
/// # Safety
/// `path` is NULL or a string.
unsafe fn read_file(path: *const c_char) -> Result<Vec<u8>, CUresult> {
    if path.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's contract.
    let path = unsafe { CStr::from_ptr(path) };
    let path = std::path::Path::new(std::ffi::OsStr::new(
        path.to_str().map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?,
    ));
    let size = std::fs::metadata(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    if size.len() > FILE_LIMIT {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    std::fs::read(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)
}

/// The bytes of an image file, and what ends those that are text. An image is read by what its headers say: the longest header is
/// followed by this much of nothing.
///
/// # Safety
/// `path` is NULL or a string.
unsafe fn read_image(path: *const c_char) -> Result<Vec<u8>, CUresult> {
    // SAFETY: the caller's contract.
    let mut bytes = unsafe { read_file(path) }?;
    bytes.extend([0; 64]);
    Ok(bytes)
}

impl ModuleCalls for Driver {
    unsafe fn cuModuleLoad(&self, module: *mut CUmodule, fname: *const c_char) -> CUresult {
        // SAFETY: the caller's contract.
        let loaded = unsafe { read_image(fname) }.and_then(|bytes| {
            // SAFETY: the file is in memory, and ends with zeros.
            unsafe { self.load_module(bytes.as_ptr().cast(), false, &Options::default()) }
        });
        // SAFETY: the caller's contract.
        unsafe { tell(module, loaded) }
    }

    unsafe fn cuModuleLoadData(&self, module: *mut CUmodule, image: *const c_void) -> CUresult {
        // SAFETY: the caller's contract.
        let loaded = unsafe { self.load_module(image, false, &Options::default()) };
        // SAFETY: the caller's contract.
        unsafe { tell(module, loaded) }
    }

    unsafe fn cuModuleLoadDataEx(
        &self,
        module: *mut CUmodule,
        image: *const c_void,
        numOptions: u32,
        options: *mut CUjit_option,
        optionValues: *mut *mut c_void,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let options = unsafe { Options::read(numOptions, options, optionValues) };
        // SAFETY: the caller's contract.
        let loaded =
            options.and_then(|options| unsafe { self.load_module(image, false, &options) });
        // SAFETY: the caller's contract.
        unsafe { tell(module, loaded) }
    }

    unsafe fn cuModuleLoadFatBinary(
        &self,
        module: *mut CUmodule,
        fatCubin: *const c_void,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { ModuleCalls::cuModuleLoadData(self, module, fatCubin) }
    }

    unsafe fn cuModuleUnload(&self, hmod: CUmodule) -> CUresult {
        status(self.at_module(hmod).and_then(|(image, acting)| {
            self.safe_in_captures()?;
            acting.post(&wire::ModuleUnload {
                hmod: wire::ModuleHandle(image.number),
            })?;
            let removed = write(&self.functions).remove(image.number);
            self.hide_variables(&image);
            removed.map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
        }))
    }

    unsafe fn cuModuleGetLoadingMode(&self, mode: *mut CUmoduleLoadingMode) -> CUresult {
        let lazy = std::env::var("CUDA_MODULE_LOADING").map_or(true, |mode| mode != "EAGER");
        let mode_here = match lazy {
            true => CU_MODULE_LAZY_LOADING,
            false => CU_MODULE_EAGER_LOADING,
        };
        // SAFETY: the caller's contract.
        unsafe { tell(mode, self.ready().map(|_| mode_here)) }
    }

    unsafe fn cuModuleGetFunction(
        &self,
        hfunc: *mut CUfunction,
        hmod: CUmodule,
        name: *const c_char,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let found = unsafe { self.named(hmod.addr() as u64, name) };
        if found == Err(CUDA_ERROR_NOT_FOUND) {
            // SAFETY: as above: it is no NULL. An empty name is refused, and another leaves NULL (seen with driver 580.159).
            if unsafe { *name } == 0 {
                return CUDA_ERROR_INVALID_VALUE;
            }
            // SAFETY: as above: NULL or writable.
            unsafe { crate::raw::fill(hfunc, 1, [std::ptr::null_mut()].into_iter()) };
        }
        // SAFETY: as above.
        unsafe {
            tell(
                hfunc,
                found.map(|number| wire::FunctionHandle(number).to_raw()),
            )
        }
    }

    unsafe fn cuModuleGetFunctionCount(&self, count: *mut u32, r#mod: CUmodule) -> CUresult {
        let image = self.image(r#mod.addr() as u64);
        // SAFETY: the caller's contract.
        unsafe { tell(count, image.map(|image| image.facts.functions.len() as u32)) }
    }

    unsafe fn cuModuleEnumerateFunctions(
        &self,
        functions: *mut CUfunction,
        numFunctions: u32,
        r#mod: CUmodule,
    ) -> CUresult {
        let handle = |number| wire::FunctionHandle(number).to_raw();
        // SAFETY: the caller's contract.
        unsafe { self.enumerate(r#mod.addr() as u64, functions, numFunctions, handle) }
    }

    unsafe fn cuModuleGetGlobal_v2(
        &self,
        dptr: *mut CUdeviceptr,
        bytes: *mut usize,
        hmod: CUmodule,
        name: *const c_char,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let name = unsafe { crate::raw::text(name) };
        let Some(name) = name.filter(|_| !(dptr.is_null() && bytes.is_null())) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let place = self.module_variable(hmod, name);
        // SAFETY: the caller's contract.
        unsafe { tell_global(place, dptr, bytes) }
    }

    unsafe fn cuModuleGetGlobal(
        &self,
        dptr: *mut CUdeviceptr_v1,
        bytes: *mut u32,
        hmod: CUmodule,
        name: *const c_char,
    ) -> CUresult {
        let (mut address, mut size) = (0, 0);
        // SAFETY: both are locals; the rest is the caller's contract.
        let found = unsafe {
            let (address, size) = (&raw mut address, &raw mut size);
            ModuleCalls::cuModuleGetGlobal_v2(self, address, size, hmod, name)
        };
        if found != CUDA_SUCCESS {
            return found;
        }
        let (Ok(address), Ok(size)) = (u32::try_from(address), u32::try_from(size)) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        // SAFETY: the caller's contract; either may be NULL.
        unsafe { crate::raw::fill(dptr, 1, [address].into_iter()) };
        // SAFETY: as above.
        unsafe { crate::raw::fill(bytes, 1, [size].into_iter()) };
        CUDA_SUCCESS
    }

    unsafe fn cuLibraryLoadData(
        &self,
        library: *mut CUlibrary,
        code: *const c_void,
        jitOptions: *mut CUjit_option,
        jitOptionsValues: *mut *mut c_void,
        numJitOptions: u32,
        _libraryOptions: *mut CUlibraryOption,
        _libraryOptionValues: *mut *mut c_void,
        _numLibraryOptions: u32,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let options = unsafe { Options::read(numJitOptions, jitOptions, jitOptionsValues) };
        // SAFETY: the caller's contract.
        let loaded = options.and_then(|options| unsafe { self.load_library(code, &options) });
        // SAFETY: the caller's contract.
        unsafe { tell(library, loaded) }
    }

    unsafe fn cuLibraryLoadFromFile(
        &self,
        library: *mut CUlibrary,
        fileName: *const c_char,
        jitOptions: *mut CUjit_option,
        jitOptionsValues: *mut *mut c_void,
        numJitOptions: u32,
        _libraryOptions: *mut CUlibraryOption,
        _libraryOptionValues: *mut *mut c_void,
        _numLibraryOptions: u32,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let options = unsafe { Options::read(numJitOptions, jitOptions, jitOptionsValues) };
        let loaded = options.and_then(|options| {
            // SAFETY: the caller's contract.
            let bytes = unsafe { read_image(fileName) }?;
            // SAFETY: the file is in memory, and ends with zeros.
            unsafe { self.load_library(bytes.as_ptr().cast(), &options) }
        });
        // SAFETY: the caller's contract.
        unsafe { tell(library, loaded) }
    }

    unsafe fn cuLibraryUnload(&self, library: CUlibrary) -> CUresult {
        status(self.unload_library(library))
    }

    unsafe fn cuLibraryGetKernel(
        &self,
        pKernel: *mut CUkernel,
        library: CUlibrary,
        name: *const c_char,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let found = unsafe { self.named(library.addr() as u64, name) };
        // SAFETY: the caller's contract.
        unsafe {
            tell(
                pKernel,
                found.map(|number| wire::KernelHandle(number).to_raw()),
            )
        }
    }

    unsafe fn cuLibraryGetKernelCount(&self, count: *mut u32, lib: CUlibrary) -> CUresult {
        let image = self.image(lib.addr() as u64);
        // SAFETY: the caller's contract.
        unsafe { tell(count, image.map(|image| image.facts.functions.len() as u32)) }
    }

    unsafe fn cuLibraryEnumerateKernels(
        &self,
        kernels: *mut CUkernel,
        numKernels: u32,
        lib: CUlibrary,
    ) -> CUresult {
        let handle = |number| wire::KernelHandle(number).to_raw();
        // SAFETY: the caller's contract.
        unsafe { self.enumerate(lib.addr() as u64, kernels, numKernels, handle) }
    }

    unsafe fn cuLibraryGetModule(&self, pMod: *mut CUmodule, library: CUlibrary) -> CUresult {
        let module = self.library_module(library);
        // SAFETY: the caller's contract.
        unsafe {
            tell(
                pMod,
                module.map(|number| wire::ModuleHandle(number).to_raw()),
            )
        }
    }

    unsafe fn cuLibraryGetGlobal(
        &self,
        dptr: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let Some(name) = (unsafe { crate::raw::text(name) }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let place = self.library_variable(library, name);
        // SAFETY: the caller's contract.
        unsafe { tell_global(place, dptr, bytes) }
    }

    unsafe fn cuLibraryGetManaged(
        &self,
        dptr: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let Some(name) = (unsafe { crate::raw::text(name) }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let place = self.managed_variable(library, name);
        // SAFETY: the caller's contract.
        unsafe { tell_global(place, dptr, bytes) }
    }

    unsafe fn cuKernelGetFunction(&self, pFunc: *mut CUfunction, kernel: CUkernel) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { tell(pFunc, self.kernel_function(kernel)) }
    }

    unsafe fn cuKernelGetLibrary(&self, pLib: *mut CUlibrary, kernel: CUkernel) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { tell(pLib, self.library_of(kernel)) }
    }

    unsafe fn cuKernelGetAttribute(
        &self,
        pi: *mut i32,
        attrib: CUfunction_attribute,
        kernel: CUkernel,
        dev: CUdevice,
    ) -> CUresult {
        let known = self.kernel_on(kernel, dev);
        let value = known.and_then(|(known, _)| self.attribute_of(&known, dev, attrib));
        // SAFETY: the caller's contract.
        unsafe { tell(pi, value) }
    }

    unsafe fn cuKernelSetAttribute(
        &self,
        attrib: CUfunction_attribute,
        val: i32,
        kernel: CUkernel,
        dev: CUdevice,
    ) -> CUresult {
        status(self.kernel_on(kernel, dev).and_then(|(known, number)| {
            set_attribute(&known, dev, attrib, val, || {
                let device = self.device(dev)?;
                self.acting_for(device.session)?
                    .call(&wire::KernelSetAttribute {
                        attrib,
                        val,
                        kernel: wire::KernelHandle(number),
                        dev: device.ordinal,
                    })
            })
        }))
    }

    unsafe fn cuKernelSetCacheConfig(
        &self,
        kernel: CUkernel,
        config: CUfunc_cache,
        dev: CUdevice,
    ) -> CUresult {
        status(self.kernel_on(kernel, dev).and_then(|(_, number)| {
            let device = self.device(dev)?;
            self.acting_for(device.session)?
                .post(&wire::KernelSetCacheConfig {
                    kernel: wire::KernelHandle(number),
                    config,
                    dev: device.ordinal,
                })
        }))
    }

    unsafe fn cuKernelGetName(&self, name: *mut *const c_char, hfunc: CUkernel) -> CUresult {
        let known = self.function(hfunc.addr() as u64);
        // SAFETY: the caller's contract.
        unsafe { tell(name, known.map(|known| known.name())) }
    }

    unsafe fn cuKernelGetParamInfo(
        &self,
        kernel: CUkernel,
        paramIndex: usize,
        paramOffset: *mut usize,
        paramSize: *mut usize,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { self.tell_parameter(kernel.addr() as u64, paramIndex, paramOffset, paramSize) }
    }

    unsafe fn cuKernelGetParamCount(&self, kernel: CUkernel, paramCount: *mut usize) -> CUresult {
        let count = self.parameter_count(kernel.addr() as u64);
        // SAFETY: the caller's contract.
        unsafe { tell(paramCount, count) }
    }

    unsafe fn cuFuncGetAttribute(
        &self,
        pi: *mut i32,
        attrib: CUfunction_attribute,
        hfunc: CUfunction,
    ) -> CUresult {
        let value = self.at_function(hfunc).and_then(|(acting, known, _)| {
            self.attribute_of(&known, acting.context.device, attrib)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(pi, value) }
    }

    unsafe fn cuFuncSetAttribute(
        &self,
        hfunc: CUfunction,
        attrib: CUfunction_attribute,
        value: i32,
    ) -> CUresult {
        status(self.at_function(hfunc).and_then(|(acting, known, number)| {
            set_attribute(&known, acting.context.device, attrib, value, || {
                acting.call(&wire::FuncSetAttribute {
                    hfunc: wire::FunctionHandle(number),
                    attrib,
                    value,
                })
            })
        }))
    }

    unsafe fn cuFuncSetCacheConfig(&self, hfunc: CUfunction, config: CUfunc_cache) -> CUresult {
        status(self.at_function(hfunc).and_then(|(acting, _, number)| {
            acting.post(&wire::FuncSetCacheConfig {
                hfunc: wire::FunctionHandle(number),
                config,
            })
        }))
    }

    unsafe fn cuFuncSetSharedMemConfig(
        &self,
        hfunc: CUfunction,
        config: CUsharedconfig,
    ) -> CUresult {
        status(self.at_function(hfunc).and_then(|(acting, _, number)| {
            acting.post(&wire::FuncSetSharedMemConfig {
                hfunc: wire::FunctionHandle(number),
                config,
            })
        }))
    }

    unsafe fn cuFuncLoad(&self, function: CUfunction) -> CUresult {
        status(self.at_function(function).and_then(|(acting, _, number)| {
            acting
                .call(&wire::FuncLoad {
                    function: wire::FunctionHandle(number),
                })
                .map(|_| ())
        }))
    }

    unsafe fn cuFuncGetModule(&self, hmod: *mut CUmodule, hfunc: CUfunction) -> CUresult {
        if hfunc.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let of = self.module_of(hfunc);
        // SAFETY: the caller's contract.
        unsafe { tell(hmod, of.map(|number| wire::ModuleHandle(number).to_raw())) }
    }

    unsafe fn cuFuncGetName(&self, name: *mut *const c_char, hfunc: CUfunction) -> CUresult {
        if hfunc.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let known = self.function(hfunc.addr() as u64);
        // SAFETY: the caller's contract.
        unsafe { tell(name, known.map(|known| known.name())) }
    }

    unsafe fn cuFuncGetParamInfo(
        &self,
        func: CUfunction,
        paramIndex: usize,
        paramOffset: *mut usize,
        paramSize: *mut usize,
    ) -> CUresult {
        if func.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        unsafe { self.tell_parameter(func.addr() as u64, paramIndex, paramOffset, paramSize) }
    }

    unsafe fn cuFuncGetParamCount(&self, func: CUfunction, paramCount: *mut usize) -> CUresult {
        let count = self.parameter_count(func.addr() as u64);
        // SAFETY: the caller's contract.
        unsafe { tell(paramCount, count) }
    }

    unsafe fn cuLinkCreate_v2(
        &self,
        numOptions: u32,
        options: *mut CUjit_option,
        optionValues: *mut *mut c_void,
        stateOut: *mut CUlinkState,
    ) -> CUresult {
        if stateOut.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        let options = unsafe { Options::read(numOptions, options, optionValues) };
        let begun = options.and_then(|options| self.begin_link(options));
        // SAFETY: the caller's contract.
        unsafe { tell(stateOut, begun) }
    }

    unsafe fn cuLinkAddData_v2(
        &self,
        state: CUlinkState,
        r#type: CUjitInputType,
        data: *mut c_void,
        size: usize,
        name: *const c_char,
        numOptions: u32,
        options: *mut CUjit_option,
        optionValues: *mut *mut c_void,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let code = unsafe { crate::raw::slice(data.cast_const().cast::<u8>(), size) };
        // SAFETY: as above.
        let name = unsafe { crate::raw::text(name) }.unwrap_or_default();
        // SAFETY: as above.
        let options = unsafe { Options::read(numOptions, options, optionValues) };
        status(code.ok_or(CUDA_ERROR_INVALID_VALUE).and_then(|code| {
            // SAFETY: as above: what the link's options name is writable while it lives.
            unsafe { self.add_to_link(state, r#type, code, name, &options?) }
        }))
    }

    unsafe fn cuLinkAddFile_v2(
        &self,
        state: CUlinkState,
        r#type: CUjitInputType,
        path: *const c_char,
        numOptions: u32,
        options: *mut CUjit_option,
        optionValues: *mut *mut c_void,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let file = unsafe { read_file(path) };
        // SAFETY: as above.
        let name = unsafe { crate::raw::text(path) }.unwrap_or_default();
        // SAFETY: as above.
        let options = unsafe { Options::read(numOptions, options, optionValues) };
        status(file.and_then(|code| {
            if code.is_empty() {
                return Err(CUDA_ERROR_INVALID_IMAGE);
            }
            // SAFETY: as above: what the link's options name is writable while it lives.
            unsafe { self.add_to_link(state, r#type, &code, name, &options?) }
        }))
    }

    unsafe fn cuLinkComplete(
        &self,
        state: CUlinkState,
        cubinOut: *mut *mut c_void,
        sizeOut: *mut usize,
    ) -> CUresult {
        if cubinOut.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        let linked = unsafe { self.complete_link(state) };
        if let Ok((_, size)) = linked {
            // SAFETY: the caller's contract: NULL or writable.
            unsafe { crate::raw::fill(sizeOut, 1, [size].into_iter()) };
        }
        // SAFETY: the caller's contract.
        unsafe { tell(cubinOut, linked.map(|(image, _)| image)) }
    }

    unsafe fn cuLinkDestroy(&self, state: CUlinkState) -> CUresult {
        status(self.end_link(state))
    }

    unsafe fn cuFuncIsLoaded(
        &self,
        state: *mut CUfunctionLoadingState,
        function: CUfunction,
    ) -> CUresult {
        // The server asked for the function's attributes, which loads it.
        let known = self.function(function.addr() as u64);
        // SAFETY: the caller's contract.
        unsafe { tell(state, known.map(|_| CU_FUNCTION_LOADING_STATE_LOADED)) }
    }
}

/// # Safety
/// Both are NULL or writable.
unsafe fn tell_global(
    place: Result<(u64, usize), CUresult>,
    dptr: *mut CUdeviceptr,
    bytes: *mut usize,
) -> CUresult {
    match place {
        Ok((address, size)) => {
            // SAFETY: the caller's contract.
            unsafe { crate::raw::fill(dptr, 1, [address].into_iter()) };
            // SAFETY: as above.
            unsafe { crate::raw::fill(bytes, 1, [size].into_iter()) };
            CUDA_SUCCESS
        }
        Err(status) => status,
    }
}
