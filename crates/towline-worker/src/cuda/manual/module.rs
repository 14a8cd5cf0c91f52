//! Modules and libraries: loaded off the lane, with the facts that let the client answer for their kernels.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::sync::mpsc::channel;

use towline_backend::cuda as wire;
use towline_backend::cuda::facts::{Function, ModuleFacts, Parameter};
use towline_backend::cuda::*;
use towline_session::Entry;
use towline_wire::error::{CloseCode, ProtocolError};
use towline_wire::push::Push;

use super::context::free;
use super::jit::Jit;
use crate::code::Coded;
use crate::cuda::context::Context;
use crate::cuda::images::{self, ImageDigest};
use crate::cuda::may_print::may_print;
use crate::cuda::session::{Session, failure};
use crate::cuda::shared::{Layout, Shared};
use crate::decode::broken;
use crate::link::Raw;

/// Most kernels whose numbers a request can take.
const KERNEL_LIMIT: usize = 262_144;

/// A module that seems to take more of a device is loaded twice to see: others may allocate while that is measured.
const OTHERS_BYTES: u64 = 16 << 20;

/// What is to be loaded, and how.
struct Load {
    number: u64,
    /// What the image is known by, where the client says so.
    digest: Option<ImageDigest>,
    payload: u64,
    size: u64,
    image: Option<Vec<u8>>,
    options: Vec<(u32, u64)>,
    first: u64,
    room: u64,
    log_room: u64,
    info_room: u64,
    id: u64,
    library: bool,
}

/// What the driver made of an image.
struct Loaded {
    object: Raw,
    kernels: Vec<Raw>,
    facts: ModuleFacts,
}

/// What a request says that an image is known by; zeros say nothing.
fn digest(said: &[u8]) -> Option<ImageDigest> {
    let digest = said.try_into().ok()?;
    (digest != ImageDigest::default()).then_some(digest)
}

/// Takes an image off the payload lanes; `None` when the session is over.
pub(super) fn receive(shared: &Shared, payload: u64, size: u64) -> Option<Vec<u8>> {
    let mut image = vec![0; size as usize];
    let (sender, landed) = channel();
    let done = Box::new(move |all| {
        // The receiver is there until it has been told.
        let _ = sender.send(all);
    });
    let memory = Raw(image.as_mut_ptr().cast());
    let opened = shared.payloads.open(payload, 0, size, memory, done);
    if let Err(error) = opened {
        shared.close(&error);
        return None;
    }
    shared.push(&Push::Grant {
        payload,
        offset: 0,
        length: size,
    });
    (landed.recv() == Ok(true)).then_some(image)
}

impl Load {
    fn run(mut self, shared: &Arc<Shared>, context: Option<&Context>) {
        let mut keep = None;
        let image = match self.image.take() {
            None if self.payload != 0 => match self.known(shared) {
                Some(image) => Some(image),
                None => match receive(shared, self.payload, self.size) {
                    Some(image) => {
                        keep = self.digest;
                        Some(image)
                    }
                    // The session is over.
                    None => return,
                },
            },
            image => image,
        };
        let Some(mut image) = image else {
            return self.answer(shared, CUDA_SUCCESS, &[], None, 1);
        };
        let loaded = self.carry_out(shared, context, &mut image);
        // The client need not wait for what follows.
        shared.flush();
        if loaded && !may_print(&image) {
            shared.printing.cannot();
        }
        if let Some(digest) = keep {
            match images::sealed(&image[..self.size as usize]) {
                Ok(file) => shared.broker.keep_image(&digest, file),
                Err(error) => log::debug!("an image cannot be kept: {error}"),
            }
        }
    }

    /// The image as another session has brought it.
    fn known(&self, shared: &Shared) -> Option<Vec<u8>> {
        let file = shared.broker.image(self.digest.as_ref()?)?;
        match images::read_sealed(file, self.size) {
            Ok(image) => Some(image),
            Err(error) => {
                log::debug!("an image that was kept is of no use: {error}");
                None
            }
        }
    }

    /// Loads and answers; whether it is loaded.
    fn carry_out(
        &mut self,
        shared: &Arc<Shared>,
        context: Option<&Context>,
        image: &mut Vec<u8>,
    ) -> bool {
        // Assembly ends with a NUL, which need not travel.
        image.extend_from_slice(&[0; 8]);
        let mut jit = Jit::new(&self.options, self.log_room, self.info_room);
        let loaded = match context.map(|context| (context, context.enter(&*shared.api))) {
            None => Err(CUDA_ERROR_INVALID_CONTEXT),
            Some((context, CUDA_SUCCESS)) => {
                self.load_charged(shared, context.device, image, &mut jit)
            }
            Some((_, status)) => Err(status),
        };
        let text = Some(&jit);
        match loaded {
            Err(status) => {
                self.answer(shared, failure(status), &[], text, 0);
                false
            }
            Ok(loaded) => {
                let facts = loaded.facts.encode();
                let (tag, member) = self.tags();
                if facts.len() as u64 > self.room {
                    release(&*shared.api, self.library, loaded.object);
                    self.answer(shared, CUDA_ERROR_OUT_OF_MEMORY, &[], text, 0);
                    return false;
                }
                // Until it has been looked through.
                shared.printing.expect();
                shared.arrive(self.id, tag, Entry::Live(loaded.object));
                let functions = &loaded.facts.functions;
                for (kernel, function) in loaded.kernels.iter().zip(functions) {
                    let offsets = function.parameters.iter().map(|place| place.offset);
                    let layout = Layout {
                        offsets: offsets.collect(),
                        bytes: function.parameter_bytes(),
                    };
                    shared.note_layout(*kernel, Arc::new(layout));
                }
                for (kernel, id) in loaded.kernels.iter().zip(self.first..) {
                    shared.arrive(id, member, Entry::Live(*kernel));
                }
                self.answer(shared, CUDA_SUCCESS, &facts, text, 0);
                true
            }
        }
    }

    /// Bytes of the image as it has come or is to come.
    fn bytes(&self) -> u64 {
        match (&self.image, self.payload) {
            (Some(image), _) => image.len() as u64,
            (None, 0) => 0,
            (None, _) => self.size,
        }
    }

    /// The kinds of the object and of its kernels.
    fn tags(&self) -> (u8, u8) {
        if self.library {
            (wire::LibraryHandle::TAG, wire::KernelHandle::TAG)
        } else {
            (wire::ModuleHandle::TAG, wire::FunctionHandle::TAG)
        }
    }

    fn answer(
        &self,
        shared: &Shared,
        status: CUresult,
        facts: &[u8],
        jit: Option<&Jit>,
        missing: u32,
    ) {
        if status != CUDA_SUCCESS || missing != 0 {
            // Before the client knows that the number is free.
            shared.credit_code(Coded::Object(self.tags().0, self.id));
        }
        let mut body = Vec::new();
        let log = jit.map_or(&[][..], Jit::error);
        let info = Some(jit.map_or(&[][..], Jit::info));
        let wall = Some(jit.map_or(0, Jit::wall));
        if self.library {
            let reply = wire::LibraryLoadReply {
                facts: Some(facts),
                log: Some(log),
                info,
                wall,
                missing: Some(missing),
            };
            reply.encode(&mut body);
        } else {
            let reply = wire::ModuleLoadReply {
                facts: Some(facts),
                log: Some(log),
                info,
                wall,
                missing: Some(missing),
            };
            reply.encode(&mut body);
        }
        shared.answer(self.number, status, &body);
    }

    /// Loads, and charges what the device has less for it: variables have any size, whatever the image's.
    fn load_charged(
        &self,
        shared: &Shared,
        device: CUdevice,
        image: &[u8],
        jit: &mut Jit,
    ) -> Result<Loaded, CUresult> {
        let api = &*shared.api;
        if !shared.counters.is_memory_limited() {
            return self.load(api, device, image, jit);
        }
        let before = free(api);
        let loaded = self.load(api, device, image, jit)?;
        let left = free(api);
        let mut taken = before.saturating_sub(left);
        // Memory that others allocate meanwhile counts once in a while, and hardly twice.
        if taken > OTHERS_BYTES && taken < left {
            let mut unheard = Jit::new(&self.options, 0, 0);
            if let Ok(again) = self.load(api, device, image, &mut unheard) {
                taken = taken.min(left.saturating_sub(free(api)));
                release(api, self.library, again.object);
            }
        }
        let key = Coded::Object(self.tags().0, self.id);
        if taken > 0 && !shared.charge_memory_of_code(key, taken) {
            release(api, self.library, loaded.object);
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        Ok(loaded)
    }

    fn load(
        &self,
        api: &dyn CudaApi,
        device: CUdevice,
        image: &[u8],
        jit: &mut Jit,
    ) -> Result<Loaded, CUresult> {
        let count = jit.count();
        let (image, options, values) = (image.as_ptr().cast::<c_void>(), jit.names(), jit.values());
        if self.library {
            let mut library: CUlibrary = std::ptr::null_mut();
            // SAFETY: the image is there while the driver reads it, and a library that is loaded without the option to keep it has a
            // copy; the options are as many as said.
            let status = unsafe {
                api.cuLibraryLoadData(
                    &raw mut library,
                    image,
                    options,
                    values,
                    count,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    0,
                )
            };
            check(status)?;
            let object = Raw(library.cast());
            let kernels = kernels(api, library);
            described(api, true, device, object, kernels)
        } else {
            let mut module: CUmodule = std::ptr::null_mut();
            // SAFETY: as above.
            let status =
                unsafe { api.cuModuleLoadDataEx(&raw mut module, image, count, options, values) };
            check(status)?;
            let object = Raw(module.cast());
            let functions = functions(api, module);
            described(api, false, device, object, functions)
        }
    }
}

fn described(
    api: &dyn CudaApi,
    library: bool,
    device: CUdevice,
    object: Raw,
    kernels: Result<Vec<Raw>, CUresult>,
) -> Result<Loaded, CUresult> {
    let facts = kernels.and_then(|kernels| {
        let functions: Result<Vec<_>, _> = kernels
            .iter()
            .map(|kernel| describe(api, library, device, *kernel))
            .collect();
        Ok((kernels, functions?))
    });
    match facts {
        Ok((kernels, functions)) => Ok(Loaded {
            object,
            kernels,
            facts: ModuleFacts { functions },
        }),
        Err(status) => {
            release(api, library, object);
            Err(status)
        }
    }
}

fn release(api: &dyn CudaApi, library: bool, object: Raw) {
    if library {
        // SAFETY: it was loaded just now, and nobody knows it.
        unsafe { api.cuLibraryUnload(object.0.cast()) };
    } else {
        // SAFETY: as above.
        unsafe { api.cuModuleUnload(object.0.cast()) };
    }
}

fn check(status: CUresult) -> Result<(), CUresult> {
    if status == CUDA_SUCCESS {
        Ok(())
    } else {
        Err(status)
    }
}

/// The functions of a module, in the driver's order.
fn functions(api: &dyn CudaApi, module: CUmodule) -> Result<Vec<Raw>, CUresult> {
    let mut count = 0;
    // SAFETY: the module is live; one place for the count.
    check(unsafe { api.cuModuleGetFunctionCount(&raw mut count, module) })?;
    let count = (count as usize).min(KERNEL_LIMIT);
    let mut functions: Vec<CUfunction> = vec![std::ptr::null_mut(); count];
    if count > 0 {
        // SAFETY: as above; room for as many as said.
        check(unsafe {
            api.cuModuleEnumerateFunctions(functions.as_mut_ptr(), count as u32, module)
        })?;
    }
    Ok(functions.into_iter().map(|one| Raw(one.cast())).collect())
}

/// The kernels of a library, in the driver's order.
fn kernels(api: &dyn CudaApi, library: CUlibrary) -> Result<Vec<Raw>, CUresult> {
    let mut count = 0;
    // SAFETY: the library is live; one place for the count.
    check(unsafe { api.cuLibraryGetKernelCount(&raw mut count, library) })?;
    let count = (count as usize).min(KERNEL_LIMIT);
    let mut kernels: Vec<CUkernel> = vec![std::ptr::null_mut(); count];
    if count > 0 {
        // SAFETY: as above; room for as many as said.
        check(unsafe {
            api.cuLibraryEnumerateKernels(kernels.as_mut_ptr(), count as u32, library)
        })?;
    }
    Ok(kernels.into_iter().map(|one| Raw(one.cast())).collect())
}

/// What the client needs to know of a kernel.
fn describe(
    api: &dyn CudaApi,
    library: bool,
    device: CUdevice,
    kernel: Raw,
) -> Result<Function, CUresult> {
    let mut name: *const c_char = std::ptr::null();
    let (function, kernel): (CUfunction, CUkernel) = (kernel.0.cast(), kernel.0.cast());
    let status = if library {
        // SAFETY: the kernel is live; one place for each answer.
        unsafe { api.cuKernelGetName(&raw mut name, kernel) }
    } else {
        // SAFETY: the kernel is live; one place for each answer.
        unsafe { api.cuFuncGetName(&raw mut name, function) }
    };
    check(status)?;
    let name = if name.is_null() {
        Vec::new()
    } else {
        // SAFETY: the driver's names are NUL-terminated, and there as long as the kernel.
        unsafe { CStr::from_ptr(name) }.to_bytes().to_vec()
    };
    let mut parameters = Vec::new();
    // The driver says where the list ends; the limit is the facts' own.
    for index in 0..4096 {
        let (mut offset, mut size) = (0, 0);
        let status = if library {
            // SAFETY: the kernel is live; one place for each answer.
            unsafe { api.cuKernelGetParamInfo(kernel, index, &raw mut offset, &raw mut size) }
        } else {
            // SAFETY: the kernel is live; one place for each answer.
            unsafe { api.cuFuncGetParamInfo(function, index, &raw mut offset, &raw mut size) }
        };
        match status {
            CUDA_SUCCESS => parameters.push(Parameter {
                offset: offset as u32,
                size: size as u32,
            }),
            CUDA_ERROR_INVALID_VALUE => break,
            status => return Err(status),
        }
    }
    let mut attributes = Vec::new();
    for attribute in 0..CU_FUNC_ATTRIBUTE_MAX {
        let mut value = 0;
        let status = if library {
            // SAFETY: the kernel is live; one place for each answer.
            unsafe { api.cuKernelGetAttribute(&raw mut value, attribute, kernel, device) }
        } else {
            // SAFETY: the kernel is live; one place for each answer.
            unsafe { api.cuFuncGetAttribute(&raw mut value, attribute, function) }
        };
        if status == CUDA_SUCCESS {
            attributes.push((attribute, value));
        }
    }
    Ok(Function {
        name,
        parameters,
        attributes,
    })
}

impl Session {
    fn start_load(&mut self, load: Load) -> Result<(), ProtocolError> {
        if load.size > towline_wire::cuda::IMAGE_LIMIT {
            let detail = format!("an image has {} bytes", load.size);
            return Err(ProtocolError::new(CloseCode::LimitExceeded, detail));
        }
        let (tag, _) = load.tags();
        let key = Coded::Object(tag, load.id);
        if self.shared.has_code(key) || self.table.entry(load.id, tag).is_ok() {
            let detail = format!("code has the number {:#x} already", load.id);
            return Err(ProtocolError::new(CloseCode::DuplicateHandle, detail));
        }
        let context = self.acting.clone();
        // Libraries outlive contexts.
        let home = context.as_ref().filter(|_| !load.library);
        let home = home.map_or(0, |context| context.id);
        // Before it is received: that takes memory, too.
        let is_charged = self.shared.charge_code(key, home, load.bytes());
        self.wait(move |shared| match is_charged {
            true => load.run(shared, context.as_deref()),
            false => load.answer(shared, CUDA_ERROR_OUT_OF_MEMORY, &[], None, 0),
        });
        Ok(())
    }

    pub(crate) fn ModuleLoad(
        &mut self,
        number: u64,
        request: wire::ModuleLoad<'_>,
    ) -> Result<(), ProtocolError> {
        self.start_load(Load {
            number,
            digest: digest(request.digest),
            payload: request.payload,
            size: request.size,
            image: request.image.map(<[u8]>::to_vec),
            options: request.options.iter().zip(request.values.iter()).collect(),
            first: request.first,
            room: request.room,
            log_room: request.log_room,
            info_room: request.info_room,
            id: request.module.0,
            library: false,
        })
    }

    pub(crate) fn LibraryLoad(
        &mut self,
        number: u64,
        request: wire::LibraryLoad<'_>,
    ) -> Result<(), ProtocolError> {
        self.start_load(Load {
            number,
            digest: digest(request.digest),
            payload: request.payload,
            size: request.size,
            image: request.image.map(<[u8]>::to_vec),
            options: request.options.iter().zip(request.values.iter()).collect(),
            first: request.first,
            room: request.room,
            log_room: request.log_room,
            info_room: request.info_room,
            id: request.library.0,
            library: true,
        })
    }

    pub(crate) fn LibraryModule(
        &mut self,
        number: u64,
        request: wire::LibraryModule,
    ) -> Result<(), ProtocolError> {
        let call = <wire::LibraryModule as Request<'_>>::ID;
        let id = request.module.0;
        let mut module: CUmodule = std::ptr::null_mut();
        let mut found = Vec::new();
        let status = match self.native(request.library.0, wire::LibraryHandle::TAG)? {
            Err(status) => status,
            Ok(library) => {
                // SAFETY: the library is live; one place for the module.
                let status =
                    unsafe { self.api.cuLibraryGetModule(&raw mut module, library.cast()) };
                if status == CUDA_SUCCESS {
                    found = kernels(&*self.api, library.cast()).unwrap_or_default();
                }
                status
            }
        };
        let entry = if status == CUDA_SUCCESS {
            Entry::Live(Raw(module.cast()))
        } else {
            Entry::Failed(status)
        };
        // The library owns it: it is never unloaded by itself.
        self.borrowed.insert(id);
        self.table
            .insert(id, wire::ModuleHandle::TAG, entry)
            .map_err(broken)?;
        for (kernel, number) in found.iter().zip(request.first..) {
            let mut function: CUfunction = std::ptr::null_mut();
            // SAFETY: the kernel is live; one place for the function.
            let status = unsafe {
                self.api
                    .cuKernelGetFunction(&raw mut function, kernel.0.cast())
            };
            self.lay_out(kernel, function);
            self.born(number, wire::FunctionHandle::TAG, function.cast(), status)?;
        }
        self.settle(number, call, status);
        Ok(())
    }

    /// A function that a kernel is has the kernel's parameters.
    fn lay_out(&self, kernel: &Raw, function: CUfunction) {
        if let Some(layout) = self.shared.layout(*kernel)
            && !function.is_null()
        {
            self.shared.note_layout(Raw(function.cast()), layout);
        }
    }

    pub(crate) fn KernelFunction(
        &mut self,
        number: u64,
        request: wire::KernelFunction,
    ) -> Result<(), ProtocolError> {
        let call = <wire::KernelFunction as Request<'_>>::ID;
        let mut function: CUfunction = std::ptr::null_mut();
        let status = match self.native(request.kernel.0, wire::KernelHandle::TAG)? {
            Err(status) => status,
            Ok(kernel) => {
                // SAFETY: the kernel is live; one place for the function.
                let status = unsafe {
                    self.api
                        .cuKernelGetFunction(&raw mut function, kernel.cast())
                };
                self.lay_out(&Raw(kernel), function);
                status
            }
        };
        let id = request.function.0;
        self.born(id, wire::FunctionHandle::TAG, function.cast(), status)?;
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn cuModuleUnload(
        &mut self,
        number: u64,
        request: wire::ModuleUnload,
    ) -> Result<(), ProtocolError> {
        let call = <wire::ModuleUnload as Request<'_>>::ID;
        let id = request.hmod.0;
        if self.borrowed.remove(&id) {
            self.table
                .remove(id, wire::ModuleHandle::TAG)
                .map_err(broken)?;
            return Ok(());
        }
        self.end_of_object(number, call, id, wire::ModuleHandle::TAG)
    }

    pub(crate) fn cuLibraryUnload(
        &mut self,
        number: u64,
        request: wire::LibraryUnload,
    ) -> Result<(), ProtocolError> {
        let call = <wire::LibraryUnload as Request<'_>>::ID;
        self.end_of_object(number, call, request.library.0, wire::LibraryHandle::TAG)
    }

    pub(crate) fn cuKernelSetAttribute(
        &mut self,
        number: u64,
        request: wire::KernelSetAttribute,
    ) -> Result<(), ProtocolError> {
        let kernel = self.native(request.kernel.0, wire::KernelHandle::TAG)?;
        let status = match (kernel, self.device(request.dev)) {
            (Err(status), _) | (_, Err(status)) => status,
            // SAFETY: the kernel is live.
            (Ok(kernel), Ok(device)) => unsafe {
                self.api
                    .cuKernelSetAttribute(request.attrib, request.val, kernel.cast(), device)
            },
        };
        self.reply(number, status, &wire::KernelSetAttributeReply {});
        Ok(())
    }

    pub(crate) fn cuKernelSetCacheConfig(
        &mut self,
        number: u64,
        request: wire::KernelSetCacheConfig,
    ) -> Result<(), ProtocolError> {
        let call = <wire::KernelSetCacheConfig as Request<'_>>::ID;
        let kernel = self.native(request.kernel.0, wire::KernelHandle::TAG)?;
        let status = match (kernel, self.device(request.dev)) {
            (Err(status), _) | (_, Err(status)) => status,
            // SAFETY: the kernel is live.
            (Ok(kernel), Ok(device)) => unsafe {
                self.api
                    .cuKernelSetCacheConfig(kernel.cast(), request.config, device)
            },
        };
        self.settle(number, call, status);
        Ok(())
    }
}
