//! Libraries: device code that belongs to no context. A program loads one once, and uses its kernels wherever it is.
//!
//! The server of whoever loads a library is sent it then. Each of the process's other servers is sent it when something of it is first
//! needed there: a kernel, a module, a variable, an attribute. The handles that the application has are those of the first server; what
//! they are on another is looked up without a lock. What another server is sent is kept here, once, and only where there is one.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::KeptImage;
use towline_client::raw::Vouched;
use towline_ptx::ComputeCapability;

use crate::device::Device;
use crate::driver::{Acting, Driver, actor, lock, read, write};
use crate::image::{self, Image, Known, Target, Travelling};
use crate::jit::{Options, Told};
use crate::layout::Layout;
use crate::module::{FACTS_ROOM, FUNCTION_ROW, facts};

/// A library on servers other than the one that was sent it first.
pub(crate) struct Elsewhere {
    /// The image that their devices load, by kinds of devices.
    images: Vec<(Vec<Target>, Arc<Vec<u8>>)>,
    options: Options,
    /// By session.
    copies: Box<[OnceLock<Copy>]>,
    /// Whether the library has been unloaded; held while a server is sent it.
    ended: Mutex<bool>,
}

/// What a server has of a library that another has too.
struct Copy {
    image: Arc<Image>,
    /// Where each kernel of the first server's list is in this one's; devices of another kind may lack some.
    indices: Box<[Option<u32>]>,
}

impl Copy {
    fn new(of: &Image, image: Image) -> Self {
        let kernels = of.facts.functions.iter();
        Self {
            indices: kernels.map(|kernel| image.index(&kernel.name)).collect(),
            image: Arc::new(image),
        }
    }
}

impl Elsewhere {
    /// The library on the servers that have been sent it.
    pub(crate) fn images(&self) -> impl Iterator<Item = &Arc<Image>> {
        let copies = self.copies.iter().filter_map(OnceLock::get);
        copies.map(|copy| &copy.image)
    }
}

/// What a device loads.
pub(crate) fn target(device: &Device, machine_code: bool) -> Target {
    let of = |attribute| device.attribute(attribute) as u32;
    Target {
        capability: ComputeCapability::new(
            of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        ),
        machine_code,
    }
}

impl Driver {
    /// What the device of whoever acts loads.
    pub(crate) fn target(&self, acting: &Acting<'_>) -> Result<Target, CUresult> {
        let device = self.device(acting.context.device)?;
        Ok(target(device, acting.session.snapshot().genuine))
    }

    /// The kinds of a server's devices, each once: a library is for all of them.
    fn targets(&self, session: u8) -> Result<Vec<Target>, CUresult> {
        let genuine = self.session(session)?.snapshot().genuine;
        let mut targets = Vec::new();
        let devices = self.started()?.devices().iter();
        for device in devices.filter(|device| device.session == session) {
            let target = target(device, genuine);
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        Ok(targets)
    }

    /// Links the objects of device code that was linked for other devices alone.
    fn link_objects(&self, objects: &[&[u8]], device: Target) -> Result<Vec<u8>, CUresult> {
        let link = self.begin_link(Options::default())?;
        let linked = objects.iter().try_for_each(|object| {
            let kind = CU_JIT_INPUT_FATBINARY;
            self.add_to_link(link, kind, object, b"an object", &Options::default())
        });
        let linked = linked.and_then(|()| self.complete_link(link));
        let linked = linked.map(|(image, length)| {
            // SAFETY: the link's image, which is there until the link ends.
            unsafe { std::slice::from_raw_parts(image.cast::<u8>(), length) }.to_vec()
        });
        let ended = self.end_link(link);
        if let Err(status) = linked {
            let ComputeCapability { major, minor } = device.capability;
            log::error!(
                "the program's device code was linked by nvcc -rdc=true for other devices than this one, and its objects cannot be \
                 linked for it (error {status}): compile it with PTX too, as with -gencode arch=compute_75,code=compute_75, or with \
                 -arch=sm_{major}{minor} for a GPU of this kind"
            );
        }
        let linked = linked?;
        ended.map(|()| linked)
    }

    /// Loads an image as a library.
    pub(crate) fn load_library(
        &self,
        start: Vouched<'_, *const c_void>,
        options: &Options,
    ) -> Result<CUlibrary, CUresult> {
        let acting = self.session_for_any()?;
        let device = self.target(&acting)?;
        let session = acting.context.session;
        let linked = match image::objects(start, device) {
            Some(objects) => Some(Arc::new(self.link_objects(&objects, device)?)),
            None => None,
        };
        let targets = self.targets(session)?;
        let travelling = match &linked {
            Some(linked) => Travelling::Chosen(Arc::clone(linked)),
            None => image::travelling(start, true, &targets)?,
        };
        let mut image = self.send_library(&acting, &travelling, device, options)?;
        let kept = match &linked {
            Some(linked) => KeptImage::Bytes(Arc::clone(linked)),
            None => image::kept(start, true, targets.clone(), &travelling),
        };
        acting.session.keep_image(image.number, kept);
        let linked = linked.map(|linked| (targets, linked));
        image.elsewhere = self.elsewhere(start, session, linked, options)?;
        let library = wire::LibraryHandle(image.number);
        write(&self.functions).insert(&Arc::new(image));
        Ok(library.to_raw())
    }

    /// Sends a server a library, and waits for its driver's verdict.
    fn send_library(
        &self,
        acting: &Acting<'_>,
        travelling: &Travelling<'_>,
        device: Target,
        options: &Options,
    ) -> Result<Image, CUresult> {
        let bytes = travelling.bytes();
        let layout = Layout::of(travelling, device);
        let first = acting
            .session
            .mint_many(wire::KernelHandle::TAG, FUNCTION_ROW);
        let library = wire::LibraryHandle(acting.mint(wire::LibraryHandle::TAG));
        let digest = acting.session.image_digest(bytes);
        let answer = acting
            .session
            .ask_with_image(bytes, &digest, |image, payload| {
                acting.ask(
                    "cuLibraryLoadData",
                    &wire::LibraryLoad {
                        digest: &digest,
                        size: bytes.len() as u64,
                        payload,
                        image_size: image.map_or(0, <[u8]>::len) as u64,
                        image,
                        num_options: options.names.len() as u32,
                        options: wire::List::Values(&options.names),
                        values: wire::List::Values(&options.values),
                        // What the application promises of its copy of the image means nothing to the server's.
                        num_library_options: 0,
                        library_options: wire::List::Values(&[]),
                        library_values: wire::List::Values(&[]),
                        first,
                        room: FACTS_ROOM,
                        log_room: options.log_room(),
                        info_room: options.info_room(),
                        library,
                    },
                )
            })?;
        let reply = wire::LibraryLoadReply::decode(&answer.body).map_err(|_| acting.malformed())?;
        let told = Told {
            error: reply.log,
            info: reply.info,
            wall: reply.wall,
        };
        options.tell(&told);
        let facts = Arc::new(facts(acting, &answer, reply.facts)?);
        let session = acting.context.session;
        self.check_stated(&layout, &facts, session)?;
        Ok(Image::new(library.0, 0, session, first, facts, layout))
    }

    /// Images to send a library to the process's other servers by, where there are any. Code that was linked for devices like those of the
    /// first is for theirs, too.
    fn elsewhere(
        &self,
        start: Vouched<'_, *const c_void>,
        session: u8,
        linked: Option<(Vec<Target>, Arc<Vec<u8>>)>,
        options: &Options,
    ) -> Result<Option<Box<Elsewhere>>, CUresult> {
        let started = self.started()?;
        let others = started.devices().iter().map(|device| device.session);
        let others = others.filter(|other| *other != session);
        let mut images: Vec<_> = linked.into_iter().collect();
        let mut has_others = false;
        for other in others {
            has_others = true;
            let wanted = self.targets(other)?;
            if images.iter().any(|(known, _)| *known == wanted) {
                continue;
            }
            let travelling = image::travelling(start, true, &wanted)?;
            let bytes = travelling.bytes();
            let same = images.iter().find(|(_, known)| known.as_slice() == bytes);
            let kept = match (same, &travelling) {
                (Some((_, known)), _) | (None, Travelling::Chosen(known)) => Arc::clone(known),
                (None, Travelling::Whole(bytes)) => Arc::new(bytes.to_vec()),
            };
            images.push((wanted, kept));
        }
        if !has_others {
            return Ok(None);
        }
        let copies = started.sessions.iter().map(|_| OnceLock::new());
        Ok(Some(Box::new(Elsewhere {
            images,
            options: options.without_answers(),
            copies: copies.collect(),
            ended: Mutex::new(false),
        })))
    }

    /// A library on the server of whoever acts, which is sent it now if it lacks it.
    fn copy<'a>(&self, image: &'a Image, acting: &Acting<'_>) -> Result<&'a Copy, CUresult> {
        let elsewhere = image.elsewhere.as_deref();
        let elsewhere = elsewhere.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let place = elsewhere.copies.get(usize::from(acting.context.session));
        let place = place.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if let Some(copy) = place.get() {
            return Ok(copy);
        }
        let ended = lock(&elsewhere.ended);
        if *ended {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        if let Some(copy) = place.get() {
            return Ok(copy);
        }
        let wanted = self.target(acting)?;
        let targets = self.targets(acting.context.session)?;
        let mut images = elsewhere.images.iter();
        let kept = images.find(|(known, _)| *known == targets);
        let (_, bytes) = kept.ok_or(CUDA_ERROR_NO_BINARY_FOR_GPU)?;
        let travelling = Travelling::Chosen(Arc::clone(bytes));
        let sent = self.send_library(acting, &travelling, wanted, &elsewhere.options)?;
        let kept = KeptImage::Bytes(Arc::clone(bytes));
        acting.session.keep_image(sent.number, kept);
        Ok(place.get_or_init(|| Copy::new(image, sent)))
    }

    /// A library as the server of whoever acts has it.
    fn library_at(&self, image: &Arc<Image>, acting: &Acting<'_>) -> Result<Arc<Image>, CUresult> {
        if image.session == acting.context.session {
            return Ok(Arc::clone(image));
        }
        Ok(Arc::clone(&self.copy(image, acting)?.image))
    }

    /// A function as the server of whoever acts has it, and its number there.
    #[inline]
    pub(crate) fn function_at(
        &self,
        known: Known,
        number: u64,
        acting: &Acting<'_>,
    ) -> Result<(Known, u64), CUresult> {
        if known.image.session == acting.context.session {
            return Ok((known, number));
        }
        // What is of a context is of its server alone.
        if known.context != 0 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let copy = self.copy(&known.image, acting)?;
        let index = copy.indices.get(known.index as usize).copied().flatten();
        let index = index.ok_or(CUDA_ERROR_NOT_FOUND)?;
        let there = Known {
            image: Arc::clone(&copy.image),
            index,
            context: 0,
        };
        let number = copy.image.first + u64::from(index);
        Ok((there, number))
    }

    /// The calling thread's context, or one in use of a server where the thread has none: for what belongs to no context.
    fn current_or_of(&self, session: u8) -> Result<Acting<'_>, CUresult> {
        let context = match self.current() {
            Err(CUDA_ERROR_INVALID_CONTEXT) => self.context_in_use(Some(session))?,
            current => current?,
        };
        self.acting_in(context)
    }

    /// Where a call about a function acts: in the function's context, or in the current one about a kernel. With what the function is
    /// there, and its number.
    pub(crate) fn at_function(
        &self,
        function: CUfunction,
    ) -> Result<(Acting<'_>, Known, u64), CUresult> {
        let number = function.addr() as u64;
        let known = self.function(number)?;
        let acting = match known.context {
            0 => self.current_or_of(known.image.session)?,
            context => self.acting_in(self.context(context)?)?,
        };
        let (known, number) = self.function_at(known, number, &acting)?;
        Ok((acting, known, number))
    }

    fn kernel(&self, kernel: CUkernel) -> Result<Known, CUresult> {
        let known = self.function(kernel.addr() as u64)?;
        match known.context {
            0 => Ok(known),
            _ => Err(CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// The library that a kernel is of.
    pub(crate) fn library_of(&self, kernel: CUkernel) -> Result<CUlibrary, CUresult> {
        let number = self.kernel(kernel)?.image.number;
        Ok(wire::LibraryHandle(number).to_raw())
    }

    /// A kernel as the server of a device has it, and its number there.
    pub(crate) fn kernel_on(
        &self,
        kernel: CUkernel,
        device: CUdevice,
    ) -> Result<(Known, u64), CUresult> {
        let session = self.device(device)?.session;
        let (known, number) = (self.kernel(kernel)?, kernel.addr() as u64);
        if known.image.session == session {
            return Ok((known, number));
        }
        self.function_at(known, number, &self.acting_for(session)?)
    }

    /// The module that a library is in the current context.
    pub(crate) fn library_module(&self, library: CUlibrary) -> Result<u64, CUresult> {
        let image = self.library(library)?;
        let acting = self.current_or_of(image.session)?;
        self.module_in(&image, &acting)
    }

    /// The module that a function is of.
    pub(crate) fn module_of(&self, function: CUfunction) -> Result<u64, CUresult> {
        let (acting, known, _) = self.at_function(function)?;
        match known.image.context {
            0 => self.module_in(&known.image, &acting),
            _ => Ok(known.image.number),
        }
    }

    fn module_in(&self, image: &Arc<Image>, acting: &Acting<'_>) -> Result<u64, CUresult> {
        let image = self.library_at(image, acting)?;
        let context = acting.context.number;
        if let Some(module) = image.module_in(context) {
            return Ok(module);
        }
        let count = image.facts.functions.len() as u64;
        let first = acting
            .session
            .mint_many(wire::FunctionHandle::TAG, count.max(1));
        let module = wire::ModuleHandle(acting.mint(wire::ModuleHandle::TAG));
        acting.post(&wire::LibraryModule {
            library: wire::LibraryHandle(image.number),
            first,
            module,
        })?;
        let facts = Arc::clone(&image.facts);
        let layout = Arc::clone(&image.layout);
        let made = Image::new(module.0, context, image.session, first, facts, layout);
        write(&self.functions).insert(&Arc::new(made));
        image.note_module(context, module.0);
        Ok(module.0)
    }

    /// The function that a kernel is in the current context.
    pub(crate) fn kernel_function(&self, kernel: CUkernel) -> Result<CUfunction, CUresult> {
        let known = self.kernel(kernel)?;
        let acting = self.current_or_of(known.image.session)?;
        let (known, number) = self.function_at(known, kernel.addr() as u64, &acting)?;
        let context = acting.context.number;
        if let Some(function) = known.function_in(context) {
            return Ok(wire::FunctionHandle(function).to_raw());
        }
        let function = wire::FunctionHandle(acting.mint(wire::FunctionHandle::TAG));
        acting.post(&wire::KernelFunction {
            kernel: wire::KernelHandle(number),
            function,
        })?;
        write(&self.functions).add_function(function.0, &known, context);
        known.note_function(context, function.0);
        Ok(function.to_raw())
    }

    /// Address and size of a variable of a library in the current context.
    pub(crate) fn library_variable(
        &self,
        library: CUlibrary,
        name: &[u8],
    ) -> Result<(u64, usize), CUresult> {
        let image = self.library(library)?;
        let acting = self.current_or_of(image.session)?;
        let image = self.library_at(&image, &acting)?;
        self.global(&image, &acting, acting.context.number, name, || {
            let body = acting.call(&wire::LibraryGetGlobal {
                want_dptr: true,
                want_bytes: true,
                library: wire::LibraryHandle(image.number),
                name,
            })?;
            let reply =
                wire::LibraryGetGlobalReply::decode(&body).map_err(|_| acting.malformed())?;
            Ok((reply.dptr, reply.bytes))
        })
    }

    /// Why a library lacks a kernel: its code may be of no use, which the driver tells of when it is first asked for any.
    pub(crate) fn why_not_found(
        &self,
        library: CUlibrary,
        name: Option<&[u8]>,
        status: CUresult,
    ) -> CUresult {
        let has_none = |image: Arc<Image>| image.facts.functions.is_empty();
        match (status, name) {
            (CUDA_ERROR_NOT_FOUND, Some(name)) if self.library(library).is_ok_and(has_none) => {
                // Nothing is called nothing, which the driver would find first.
                let name = if name.is_empty() { b" " } else { name };
                self.library_variable(library, name).err().unwrap_or(status)
            }
            _ => status,
        }
    }

    /// Address and size of a managed variable of a library, which is the same in all contexts of a server.
    pub(crate) fn managed_variable(
        &self,
        library: CUlibrary,
        name: &[u8],
    ) -> Result<(u64, usize), CUresult> {
        let image = self.library(library)?;
        let acting = self.current_or_of(image.session)?;
        let image = self.library_at(&image, &acting)?;
        let place = self.global(&image, &acting, 0, name, || {
            let body = acting.call(&wire::LibraryGetManaged {
                library: wire::LibraryHandle(image.number),
                name,
            })?;
            let reply =
                wire::LibraryGetManagedReply::decode(&body).map_err(|_| acting.malformed())?;
            Ok((reply.dptr, reply.bytes))
        })?;
        Ok(place)
    }

    /// The library that a handle names.
    fn library(&self, library: CUlibrary) -> Result<Arc<Image>, CUresult> {
        self.ready()?;
        let found = read(&self.functions)
            .images
            .get(&(library.addr() as u64))
            .cloned();
        found
            .filter(|image| image.context == 0)
            .ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Ends a library on every server that has it.
    pub(crate) fn unload_library(&self, library: CUlibrary) -> Result<(), CUresult> {
        let image = self.library(library)?;
        self.safe_in_captures()?;
        if let Some(elsewhere) = &image.elsewhere {
            // A server that is being sent it has it when this is set, and none is sent it any more.
            *lock(&elsewhere.ended) = true;
        }
        let removed = write(&self.functions).remove(image.number);
        removed.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let copies = image.elsewhere.iter().flat_map(|other| other.images());
        let mut outcome = Ok(());
        for image in std::iter::once(&image).chain(copies) {
            self.hide_variables(image);
            let request = wire::LibraryUnload {
                library: wire::LibraryHandle(image.number),
            };
            let session = self.session(image.session)?;
            outcome = outcome.and(session.post(actor(0), &request));
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use towline_wire::cuda::facts::{Function, ModuleFacts};

    use super::*;

    fn image(first: u64, names: &[&[u8]]) -> Image {
        let functions = names.iter().map(|name| Function {
            name: name.to_vec(),
            parameters: Vec::new(),
            attributes: Vec::new(),
        });
        let functions = functions.collect();
        let device = Target {
            capability: ComputeCapability::new(9, 0),
            machine_code: true,
        };
        let layout = Layout::of(&Travelling::Whole(b""), device);
        Image::new(1, 0, 0, first, Arc::new(ModuleFacts { functions }), layout)
    }

    #[test]
    fn kernels_are_found_by_name_on_devices_with_other_code() {
        let of = image(100, &[b"one", b"two", b"three"]);
        let copy = Copy::new(&of, image(200, &[b"three", b"four", b"one"]));
        assert_eq!(*copy.indices, [Some(2), None, Some(0)]);
    }
}
