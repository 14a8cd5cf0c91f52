//! Modules, and the calls for them and for libraries.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Answer;
use towline_client::raw::{Out, OutList, Vouched};
use towline_wire::cuda::facts::ModuleFacts;

use crate::driver::{Acting, Driver, ModuleCalls, read, write};
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
    pub(crate) fn load_module(
        &self,
        start: Vouched<'_, *const c_void>,
        wrapped: bool,
        options: &Options,
    ) -> Result<CUmodule, CUresult> {
        let acting = self.session_for(0)?;
        let device = self.target(&acting)?;
        let travelling = image::travelling(start, wrapped, &[device])?;
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
        options.tell(&told);
        let facts = Arc::new(facts(&acting, &answer, reply.facts)?);
        let (context, session) = (acting.context.number, acting.context.session);
        self.check_stated(&layout, &facts, session)?;
        let kept = image::kept(start, wrapped, vec![device], &travelling);
        acting.session.keep_image(module.0, kept);
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

    /// As [`Self::attribute_of`]; what the server's driver had not told when it loaded a module, it tells of a function that is loaded (seen
    /// with driver 580.159).
    pub(crate) fn told_attribute(
        &self,
        acting: &Acting<'_>,
        known: &Known,
        number: u64,
        attribute: CUfunction_attribute,
    ) -> Result<i32, CUresult> {
        let device = acting.context.device;
        let told = self.attribute_of(known, device, attribute);
        if told.is_ok() || attribute >= CU_FUNC_ATTRIBUTE_MAX {
            return told;
        }
        let function = wire::FunctionHandle(number);
        acting.call(&wire::FuncLoad { function })?;
        let body = acting.call(&wire::FuncGetAttribute {
            attrib: attribute,
            hfunc: function,
        })?;
        let reply = wire::FuncGetAttributeReply::decode(&body).map_err(|_| acting.malformed())?;
        let value = reply.pi.ok_or_else(|| acting.malformed())?;
        known.set_attribute(device, attribute, value);
        Ok(value)
    }

    /// The number of a function by its name. The driver looks at the handle first (seen with driver 580.159).
    fn named(&self, image: u64, name: Option<&[u8]>) -> Result<u64, CUresult> {
        let image = self.image(image)?;
        let name = name.ok_or(CUDA_ERROR_INVALID_VALUE)?;
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
        // A library's managed variable is shown anew where its pages went with the context that showed it.
        let is_there = |place: &(u64, usize)| context != 0 || self.is_mirrored(place.0);
        if let Some(known) = image.global(context, name).filter(is_there) {
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

    fn tell_parameter(
        &self,
        number: u64,
        index: usize,
        size: &Out<usize>,
    ) -> Result<usize, CUresult> {
        let (offset, bytes) = self.parameter(number, index)?;
        size.set(bytes);
        Ok(offset)
    }

    fn enumerate<T: std::marker::Copy>(
        &self,
        number: u64,
        target: &OutList<T>,
        handle: impl Fn(u64) -> T,
    ) -> Result<(), CUresult> {
        let image = self.image(number)?;
        if !target.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let count = image.facts.functions.len() as u64;
        target.fill((0..count).map(|index| handle(image.first + index)));
        Ok(())
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
    // Attributes of a kernel's build cannot be set, not even to their own values (seen with driver 580.159).
    if attribute <= CU_FUNC_ATTRIBUTE_CACHE_MODE_CA
        || attribute == CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
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
fn read_file(path: &[u8]) -> Result<Vec<u8>, CUresult> {
    let path = std::str::from_utf8(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    let size = std::fs::metadata(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    if size.len() > FILE_LIMIT {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    std::fs::read(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)
}

/// An image file in memory.
struct FileImage(Vec<u8>);

impl FileImage {
    /// Reads a file, and ends one that is text. An image is read by what its headers say, which must not pass its end: the longest header
    /// is followed by this much of nothing.
    fn read(path: &[u8]) -> Result<Self, CUresult> {
        let mut bytes = read_file(path)?;
        image::check_file(&bytes)?;
        bytes.extend([0; 64]);
        Ok(Self(bytes))
    }

    fn start(&self) -> Vouched<'_, *const c_void> {
        // SAFETY: the file is in memory, ends with zeros, and is as long as its headers say.
        unsafe { Vouched::new(self.0.as_ptr().cast()) }
    }
}

impl ModuleCalls for Driver {
    fn cuModuleLoad(&self, fname: &[u8]) -> Result<CUmodule, CUresult> {
        let file = FileImage::read(fname)?;
        self.load_module(file.start(), false, &Options::default())
    }

    fn cuModuleLoadData(&self, image: Vouched<'_, *const c_void>) -> Result<CUmodule, CUresult> {
        self.load_module(image, false, &Options::default())
    }

    fn cuModuleLoadDataEx(
        &self,
        image: Vouched<'_, *const c_void>,
        options: &[CUjit_option],
        optionValues: Vouched<'_, *mut *mut c_void>,
    ) -> Result<CUmodule, CUresult> {
        let options = Options::read(options, optionValues)?;
        self.load_module(image, false, &options)
    }

    fn cuModuleLoadFatBinary(
        &self,
        fatCubin: Vouched<'_, *const c_void>,
    ) -> Result<CUmodule, CUresult> {
        ModuleCalls::cuModuleLoadData(self, fatCubin)
    }

    fn cuModuleUnload(&self, hmod: CUmodule) -> Result<(), CUresult> {
        self.at_module(hmod).and_then(|(image, acting)| {
            self.safe_in_captures()?;
            self.finish_printing(&acting.context);
            acting.post(&wire::ModuleUnload {
                hmod: wire::ModuleHandle(image.number),
            })?;
            let removed = write(&self.functions).remove(image.number);
            self.hide_variables(&image);
            removed.map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
        })
    }

    fn cuModuleGetLoadingMode(&self) -> Result<CUmoduleLoadingMode, CUresult> {
        let lazy = std::env::var("CUDA_MODULE_LOADING").map_or(true, |mode| mode != "EAGER");
        let mode_here = match lazy {
            true => CU_MODULE_LAZY_LOADING,
            false => CU_MODULE_EAGER_LOADING,
        };
        self.ready().map(|_| mode_here)
    }

    fn cuModuleGetFunction(
        &self,
        hfunc: Out<CUfunction>,
        hmod: CUmodule,
        name: Option<&[u8]>,
    ) -> Result<(), CUresult> {
        if !hfunc.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let found = self.named(hmod.addr() as u64, name);
        if found == Err(CUDA_ERROR_NOT_FOUND) {
            // An empty name is refused, and another leaves NULL (seen with driver 580.159).
            if name.is_some_and(<[u8]>::is_empty) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            hfunc.set(std::ptr::null_mut());
        }
        hfunc.set(wire::FunctionHandle(found?).to_raw());
        Ok(())
    }

    fn cuModuleGetFunctionCount(&self, r#mod: CUmodule) -> Result<u32, CUresult> {
        let image = self.image(r#mod.addr() as u64);
        image.map(|image| image.facts.functions.len() as u32)
    }

    fn cuModuleEnumerateFunctions(
        &self,
        functions: OutList<CUfunction>,
        r#mod: CUmodule,
    ) -> Result<(), CUresult> {
        let handle = |number| wire::FunctionHandle(number).to_raw();
        self.enumerate(r#mod.addr() as u64, &functions, handle)
    }

    fn cuModuleGetGlobal_v2(
        &self,
        dptr: Out<CUdeviceptr>,
        bytes: Out<usize>,
        hmod: CUmodule,
        name: &[u8],
    ) -> Result<(), CUresult> {
        if !dptr.wanted() && !bytes.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        tell_global(self.module_variable(hmod, name)?, &dptr, &bytes);
        Ok(())
    }

    fn cuModuleGetGlobal(
        &self,
        dptr: Out<CUdeviceptr_v1>,
        bytes: Out<u32>,
        hmod: CUmodule,
        name: &[u8],
    ) -> Result<(), CUresult> {
        let (address, size) = self.module_variable(hmod, name)?;
        let (Ok(address), Ok(size)) = (u32::try_from(address), u32::try_from(size)) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        dptr.set(address);
        bytes.set(size);
        Ok(())
    }

    fn cuLibraryLoadData(
        &self,
        code: Vouched<'_, *const c_void>,
        jitOptions: &[CUjit_option],
        jitOptionsValues: Vouched<'_, *mut *mut c_void>,
        _libraryOptions: Option<&[CUlibraryOption]>,
        _libraryOptionValues: Vouched<'_, *mut *mut c_void>,
        _numLibraryOptions: u32,
    ) -> Result<CUlibrary, CUresult> {
        let options = Options::read(jitOptions, jitOptionsValues)?;
        self.load_library(code, &options)
    }

    fn cuLibraryLoadFromFile(
        &self,
        fileName: &[u8],
        jitOptions: &[CUjit_option],
        jitOptionsValues: Vouched<'_, *mut *mut c_void>,
        _libraryOptions: Option<&[CUlibraryOption]>,
        _libraryOptionValues: Vouched<'_, *mut *mut c_void>,
        _numLibraryOptions: u32,
    ) -> Result<CUlibrary, CUresult> {
        let options = Options::read(jitOptions, jitOptionsValues)?;
        self.load_library(FileImage::read(fileName)?.start(), &options)
    }

    fn cuLibraryUnload(&self, library: CUlibrary) -> Result<(), CUresult> {
        self.unload_library(library)
    }

    fn cuLibraryGetKernel(
        &self,
        library: CUlibrary,
        name: Option<&[u8]>,
    ) -> Result<CUkernel, CUresult> {
        if name.is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let found = self.named(library.addr() as u64, name);
        let number = found.map_err(|status| self.why_not_found(library, name, status))?;
        Ok(wire::KernelHandle(number).to_raw())
    }

    fn cuLibraryGetKernelCount(&self, lib: CUlibrary) -> Result<u32, CUresult> {
        let image = self.image(lib.addr() as u64);
        image.map(|image| image.facts.functions.len() as u32)
    }

    fn cuLibraryEnumerateKernels(
        &self,
        kernels: OutList<CUkernel>,
        lib: CUlibrary,
    ) -> Result<(), CUresult> {
        let handle = |number| wire::KernelHandle(number).to_raw();
        self.enumerate(lib.addr() as u64, &kernels, handle)
    }

    fn cuLibraryGetModule(&self, library: CUlibrary) -> Result<CUmodule, CUresult> {
        let module = self.library_module(library);
        module.map(|number| wire::ModuleHandle(number).to_raw())
    }

    fn cuLibraryGetGlobal(
        &self,
        dptr: Out<CUdeviceptr>,
        bytes: Out<usize>,
        library: CUlibrary,
        name: &[u8],
    ) -> Result<(), CUresult> {
        if !dptr.wanted() && !bytes.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        tell_global(self.library_variable(library, name)?, &dptr, &bytes);
        Ok(())
    }

    fn cuLibraryGetManaged(
        &self,
        dptr: Out<CUdeviceptr>,
        bytes: Out<usize>,
        library: CUlibrary,
        name: &[u8],
    ) -> Result<(), CUresult> {
        tell_global(self.managed_variable(library, name)?, &dptr, &bytes);
        Ok(())
    }

    fn cuKernelGetFunction(&self, kernel: CUkernel) -> Result<CUfunction, CUresult> {
        self.kernel_function(kernel)
    }

    fn cuKernelGetLibrary(&self, kernel: CUkernel) -> Result<CUlibrary, CUresult> {
        self.library_of(kernel)
    }

    fn cuKernelGetAttribute(
        &self,
        attrib: CUfunction_attribute,
        kernel: CUkernel,
        dev: CUdevice,
    ) -> Result<i32, CUresult> {
        let known = self.kernel_on(kernel, dev);
        known.and_then(|(known, _)| self.attribute_of(&known, dev, attrib))
    }

    fn cuKernelSetAttribute(
        &self,
        attrib: CUfunction_attribute,
        val: i32,
        kernel: CUkernel,
        dev: CUdevice,
    ) -> Result<(), CUresult> {
        self.kernel_on(kernel, dev).and_then(|(known, number)| {
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
        })
    }

    fn cuKernelSetCacheConfig(
        &self,
        kernel: CUkernel,
        config: CUfunc_cache,
        dev: CUdevice,
    ) -> Result<(), CUresult> {
        self.kernel_on(kernel, dev).and_then(|(_, number)| {
            expect_cache(config)?;
            let device = self.device(dev)?;
            self.acting_for(device.session)?
                .post(&wire::KernelSetCacheConfig {
                    kernel: wire::KernelHandle(number),
                    config,
                    dev: device.ordinal,
                })
        })
    }

    fn cuKernelGetName(&self, hfunc: CUkernel) -> Result<*const c_char, CUresult> {
        let known = self.function(hfunc.addr() as u64);
        known.map(|known| known.name())
    }

    fn cuKernelGetParamInfo(
        &self,
        kernel: CUkernel,
        paramIndex: usize,
        paramSize: Out<usize>,
    ) -> Result<usize, CUresult> {
        self.tell_parameter(kernel.addr() as u64, paramIndex, &paramSize)
    }

    fn cuKernelGetParamCount(&self, kernel: CUkernel) -> Result<usize, CUresult> {
        self.parameter_count(kernel.addr() as u64)
    }

    fn cuFuncGetAttribute(
        &self,
        attrib: CUfunction_attribute,
        hfunc: CUfunction,
    ) -> Result<i32, CUresult> {
        let (acting, known, number) = self.at_function(hfunc)?;
        self.told_attribute(&acting, &known, number, attrib)
    }

    fn cuFuncSetAttribute(
        &self,
        hfunc: CUfunction,
        attrib: CUfunction_attribute,
        value: i32,
    ) -> Result<(), CUresult> {
        self.at_function(hfunc).and_then(|(acting, known, number)| {
            set_attribute(&known, acting.context.device, attrib, value, || {
                acting.call(&wire::FuncSetAttribute {
                    hfunc: wire::FunctionHandle(number),
                    attrib,
                    value,
                })
            })
        })
    }

    fn cuFuncSetCacheConfig(
        &self,
        hfunc: CUfunction,
        config: CUfunc_cache,
    ) -> Result<(), CUresult> {
        self.at_function(hfunc).and_then(|(acting, _, number)| {
            expect_cache(config)?;
            acting.post(&wire::FuncSetCacheConfig {
                hfunc: wire::FunctionHandle(number),
                config,
            })
        })
    }

    fn cuFuncSetSharedMemConfig(
        &self,
        hfunc: CUfunction,
        config: CUsharedconfig,
    ) -> Result<(), CUresult> {
        self.at_function(hfunc).and_then(|(acting, _, number)| {
            expect_banks(config)?;
            acting.post(&wire::FuncSetSharedMemConfig {
                hfunc: wire::FunctionHandle(number),
                config,
            })
        })
    }

    fn cuFuncLoad(&self, function: CUfunction) -> Result<(), CUresult> {
        self.at_function(function).and_then(|(acting, _, number)| {
            acting
                .call(&wire::FuncLoad {
                    function: wire::FunctionHandle(number),
                })
                .map(|_| ())
        })
    }

    fn cuFuncGetModule(&self, hfunc: CUfunction) -> Result<CUmodule, CUresult> {
        if hfunc.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let of = self.module_of(hfunc);
        of.map(|number| wire::ModuleHandle(number).to_raw())
    }

    fn cuFuncGetName(&self, hfunc: CUfunction) -> Result<*const c_char, CUresult> {
        if hfunc.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let known = self.function(hfunc.addr() as u64);
        known.map(|known| known.name())
    }

    fn cuFuncGetParamInfo(
        &self,
        func: CUfunction,
        paramIndex: usize,
        paramSize: Out<usize>,
    ) -> Result<usize, CUresult> {
        if func.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.tell_parameter(func.addr() as u64, paramIndex, &paramSize)
    }

    fn cuFuncGetParamCount(&self, func: CUfunction) -> Result<usize, CUresult> {
        self.parameter_count(func.addr() as u64)
    }

    fn cuLinkCreate_v2(
        &self,
        options: &[CUjit_option],
        optionValues: Vouched<'_, *mut *mut c_void>,
    ) -> Result<CUlinkState, CUresult> {
        self.begin_link(Options::read(options, optionValues)?)
    }

    fn cuLinkAddData_v2(
        &self,
        state: CUlinkState,
        r#type: CUjitInputType,
        data: &[u8],
        name: Option<&[u8]>,
        options: &[CUjit_option],
        optionValues: Vouched<'_, *mut *mut c_void>,
    ) -> Result<(), CUresult> {
        let options = Options::read(options, optionValues);
        self.add_to_link(state, r#type, data, name.unwrap_or_default(), &options?)
    }

    fn cuLinkAddFile_v2(
        &self,
        state: CUlinkState,
        r#type: CUjitInputType,
        path: &[u8],
        options: &[CUjit_option],
        optionValues: Vouched<'_, *mut *mut c_void>,
    ) -> Result<(), CUresult> {
        let code = read_file(path)?;
        let options = Options::read(options, optionValues);
        if code.is_empty() {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        self.add_to_link(state, r#type, &code, path, &options?)
    }

    fn cuLinkComplete(
        &self,
        state: CUlinkState,
        sizeOut: Out<usize>,
    ) -> Result<*mut c_void, CUresult> {
        let (image, size) = self.complete_link(state)?;
        sizeOut.set(size);
        Ok(image)
    }

    fn cuLinkDestroy(&self, state: CUlinkState) -> Result<(), CUresult> {
        self.end_link(state)
    }

    fn cuFuncIsLoaded(&self, function: CUfunction) -> Result<CUfunctionLoadingState, CUresult> {
        // The server asked for the function's attributes, which loads it.
        let known = self.function(function.addr() as u64);
        known.map(|_| CU_FUNCTION_LOADING_STATE_LOADED)
    }
}

/// Refuses what is no preference for a cache.
pub(crate) fn expect_cache(config: CUfunc_cache) -> Result<(), CUresult> {
    match config <= CU_FUNC_CACHE_PREFER_EQUAL {
        true => Ok(()),
        false => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Refuses what is no width of shared memory's banks.
pub(crate) fn expect_banks(config: CUsharedconfig) -> Result<(), CUresult> {
    match config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE {
        true => Ok(()),
        false => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn tell_global((address, size): (u64, usize), dptr: &Out<CUdeviceptr>, bytes: &Out<usize>) {
    dptr.set(address);
    bytes.set(size);
}
