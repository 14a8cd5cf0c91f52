//! Memory objects: buffers, sub-buffers and pipes here, images in [`crate::image`].
//!
//! A context with a single provider creates the provider's object at once. One that spans providers creates it where it is first
//! used; [`crate::coherence`] then keeps the copies equal. The unit of coherence is the root: a buffer with all its sub-buffers and
//! the images made from it.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use towline_backend::opencl::*;
use towline_client::opencl::CONTENTS_LIMIT;

use crate::arena::{Kind, Object, Ref, get};
use crate::callback::CALLBACKS;
use crate::coherence::{self, Coherence};
use crate::context::Context;
use crate::image::Shape;
use crate::map::{Mapping, Shadow};
use crate::platform::{MemoryCalls, Platform};
use crate::queue::Queue;
use crate::raw::{Answer, Shared, check, create, pairs, provider};
use crate::svm::Allocation;

type DestructorFn = unsafe extern "C" fn(cl_mem, *mut c_void);

/// What kind of memory object it is, beyond its size.
pub(crate) enum Form {
    Buffer,
    Image(Shape),
    Pipe { packet: cl_uint, packets: cl_uint },
}

/// A memory object.
pub(crate) struct Mem {
    pub(crate) context: Ref<Context>,
    pub(crate) form: Form,
    pub(crate) flags: cl_mem_flags,
    pub(crate) size: usize,
    /// The application's memory behind it (`CL_MEM_USE_HOST_PTR`), already at this object's offset.
    pub(crate) host_ptr: Shared<c_void>,
    /// That memory, where it is shared with the device: buffer and allocation are one memory.
    svm: Option<Arc<Allocation>>,
    /// The buffer that it is a part of, or the memory that it is an image of.
    pub(crate) parent: Option<Ref<Mem>>,
    pub(crate) offset: usize,
    properties: Vec<cl_mem_properties>,
    /// The providers' objects, by part of the context.
    raws: Box<[OnceLock<Shared<_cl_mem>>]>,
    creating: Mutex<()>,
    /// Of the root only.
    pub(crate) coherence: Mutex<Coherence>,
    pub(crate) maps: Mutex<Vec<Mapping>>,
    /// Memory that maps point into, where the provider's own cannot be reached; allocated at the first map.
    pub(crate) shadow: OnceLock<Result<Arc<Shadow>, cl_int>>,
    destructors: Mutex<Vec<(DestructorFn, Shared<c_void>)>>,
    handle: OnceLock<Shared<_cl_mem>>,
}

impl Object for Mem {
    type Raw = _cl_mem;
    const KIND: Kind = Kind::Mem;
    const INVALID: cl_int = CL_INVALID_MEM_OBJECT;
}

/// How a new memory object begins.
pub(crate) struct Beginning {
    pub(crate) context: Ref<Context>,
    pub(crate) form: Form,
    pub(crate) flags: cl_mem_flags,
    pub(crate) size: usize,
    pub(crate) host_ptr: *mut c_void,
    pub(crate) svm: Option<Arc<Allocation>>,
    pub(crate) parent: Option<Ref<Mem>>,
    pub(crate) offset: usize,
    pub(crate) properties: Vec<cl_mem_properties>,
}

impl Beginning {
    /// Makes the object; providers get theirs at once unless the context spans several.
    pub(crate) fn open(self) -> Result<cl_mem, cl_int> {
        let parts = self.context.parts.len();
        let given =
            self.flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0 && self.parent.is_none();
        let uses = self.flags & CL_MEM_USE_HOST_PTR != 0;
        let single = parts == 1;
        let initial = if given && !single {
            Some(initial_copy(self.host_ptr, &self.form, self.size)?)
        } else {
            None
        };
        let mem = Ref::new(Mem {
            coherence: Mutex::new(Coherence::new(if single { 0 } else { parts }, initial)),
            raws: (0..parts).map(|_| OnceLock::new()).collect(),
            creating: Mutex::new(()),
            maps: Mutex::default(),
            shadow: OnceLock::new(),
            destructors: Mutex::default(),
            handle: OnceLock::new(),
            host_ptr: Shared(if uses {
                self.host_ptr
            } else {
                std::ptr::null_mut()
            }),
            svm: self.svm,
            context: self.context,
            form: self.form,
            flags: self.flags,
            size: self.size,
            parent: self.parent,
            offset: self.offset,
            properties: self.properties,
        })?;
        // The handle is new: it was not set before.
        let _ = mem.handle.set(Shared(mem.handle()));
        if single {
            let along = given && mem.takes_contents_on(0);
            let data = if along {
                self.host_ptr
            } else {
                std::ptr::null_mut()
            };
            mem.create_on(0, data)?;
            if given && !along && mem.is_buffer() {
                coherence::fill(&mem, self.host_ptr, None)?;
            } else if given && !along {
                let contents = initial_copy(self.host_ptr, &mem.form, mem.size)?;
                coherence::fill(&mem, contents.at(0), Some(contents))?;
            }
        }
        Ok(mem.publish())
    }
}

/// Copies the contents that the application gives a new object, without the gaps of its own pitches.
fn initial_copy(from: *mut c_void, form: &Form, size: usize) -> Result<Arc<Shadow>, cl_int> {
    let copy = Shadow::new(size)?;
    match form {
        Form::Image(shape) => shape.pack(from, copy.at(0)),
        // SAFETY: the application's contract: `host_ptr` is readable for the object's size; the copy is as large and new.
        _ => unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), copy.at(0).cast(), size) },
    }
    Ok(copy)
}

impl Mem {
    /// The object whose copies are kept equal.
    pub(crate) fn root(self: &Mem) -> Option<&Ref<Mem>> {
        let mut root = self.parent.as_ref()?;
        while let Some(parent) = &root.parent {
            root = parent;
        }
        Some(root)
    }

    pub(crate) fn maps(&self) -> MutexGuard<'_, Vec<Mapping>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is a buffer or part of one.
    pub(crate) fn is_buffer(&self) -> bool {
        matches!(self.form, Form::Buffer)
    }

    /// Its shape, if it is an image.
    pub(crate) fn shape(&self) -> Result<&Shape, cl_int> {
        match &self.form {
            Form::Image(shape) => Ok(shape),
            _ => Err(CL_INVALID_MEM_OBJECT),
        }
    }

    /// The kind that `CL_MEM_TYPE` answers.
    fn kind(&self) -> cl_mem_object_type {
        match &self.form {
            Form::Buffer => CL_MEM_OBJECT_BUFFER,
            Form::Image(shape) => shape.desc.image_type,
            Form::Pipe { .. } => CL_MEM_OBJECT_PIPE,
        }
    }

    /// Whether creation on the part takes contents along; sessions create images and large buffers without.
    pub(crate) fn takes_contents_on(&self, part: usize) -> bool {
        let travels = self.is_buffer() && (self.size <= CONTENTS_LIMIT || self.svm.is_some());
        travels || self.context.parts[part].provider.local
    }

    /// Whether the provider's object exists.
    pub(crate) fn exists_on(&self, part: usize) -> bool {
        self.raws[part].get().is_some()
    }

    /// The provider's object, created now if it is not there yet.
    #[inline]
    pub(crate) fn raw_on(&self, part: usize) -> Result<cl_mem, cl_int> {
        match self.raws[part].get() {
            Some(raw) => Ok(raw.0),
            None => self.create_on(part, std::ptr::null_mut()),
        }
    }

    /// Has `run` use the provider's object; the status of whichever fails.
    pub(crate) fn with_raw(&self, part: usize, run: impl FnOnce(cl_mem) -> cl_int) -> cl_int {
        match self.raw_on(part) {
            Ok(raw) => run(raw),
            Err(status) => status,
        }
    }

    /// Creates the provider's object, with contents if there are any: at the application's pitches in a single-provider context,
    /// without gaps in others.
    pub(crate) fn create_on(&self, part: usize, data: *mut c_void) -> Result<cl_mem, cl_int> {
        let _creating = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(raw) = self.raws[part].get() {
            return Ok(raw.0);
        }
        let owner = &self.context.parts[part];
        let native = self.context.maps_natively();
        let flags = self.flags_on_provider(native, data);
        let parent = match &self.parent {
            Some(parent) => parent.raw_on(part)?,
            None => std::ptr::null_mut(),
        };
        let api = &owner.provider.api;
        let raw = match &self.form {
            Form::Buffer if parent.is_null() => {
                create!(api, clCreateBuffer(owner.raw.0, flags, self.size, data))
            }
            Form::Buffer => {
                let region = cl_buffer_region {
                    origin: self.offset,
                    size: self.size,
                };
                create!(
                    api,
                    clCreateSubBuffer(
                        parent,
                        flags,
                        CL_BUFFER_CREATE_TYPE_REGION,
                        (&raw const region).cast()
                    )
                )
            }
            Form::Image(shape) => {
                let desc = shape.desc_on_provider(parent, !self.context.single(), data.is_null());
                create!(
                    api,
                    clCreateImage(
                        owner.raw.0,
                        flags,
                        &raw const shape.format,
                        &raw const desc,
                        data
                    )
                )
            }
            Form::Pipe { packet, packets } => create!(
                api,
                clCreatePipe(owner.raw.0, flags, *packet, *packets, std::ptr::null())
            ),
        }?;
        // Set once: creation is under the lock.
        let _ = self.raws[part].set(Shared(raw));
        Ok(raw)
    }

    /// The flags for a provider: where the host's memory is not the provider's, only its contents travel, and the library's own
    /// transfers need the access that the application may have given up.
    fn flags_on_provider(&self, native: bool, data: *mut c_void) -> cl_mem_flags {
        if native {
            let mut flags = self.flags;
            if self.parent.is_some() {
                flags &= !(CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR);
            }
            return flags;
        }
        let access = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
        let mut flags = self.flags & access;
        if self.svm.is_some() {
            flags |= CL_MEM_USE_HOST_PTR;
        } else if !data.is_null() {
            flags |= CL_MEM_COPY_HOST_PTR;
        }
        flags
    }

    /// Whether the host may read (or write) it by commands.
    pub(crate) fn expect_host_access(&self, writes: bool) -> Result<(), cl_int> {
        let forbidden = CL_MEM_HOST_NO_ACCESS
            | if writes {
                CL_MEM_HOST_READ_ONLY
            } else {
                CL_MEM_HOST_WRITE_ONLY
            };
        if self.flags & forbidden == 0 {
            Ok(())
        } else {
            Err(CL_INVALID_OPERATION)
        }
    }

    /// Whether a command of the queue may use it.
    #[inline]
    pub(crate) fn expect_usable(&self, queue: &Queue) -> Result<(), cl_int> {
        if !self.context.is(&queue.context) {
            return Err(CL_INVALID_CONTEXT);
        }
        if self.offset != 0
            && self.is_buffer()
            && !self.offset.is_multiple_of(queue.device.limits.base_align)
        {
            return Err(CL_MISALIGNED_SUB_BUFFER_OFFSET);
        }
        Ok(())
    }

    /// Whether `size` bytes at `offset` lie inside.
    #[inline]
    pub(crate) fn expect_range(&self, offset: usize, size: usize) -> Result<(), cl_int> {
        match offset.checked_add(size) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(CL_INVALID_VALUE),
        }
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        for (part, raw) in self.raws.iter().enumerate() {
            if let Some(raw) = raw.get() {
                provider!(
                    self.context.parts[part].provider.api,
                    clReleaseMemObject(raw.0)
                );
            }
        }
        if let Some(allocation) = self.svm.take() {
            self.context.svm_release(allocation);
        }
        let handle = self
            .handle
            .get()
            .copied()
            .unwrap_or(Shared(std::ptr::null_mut()));
        let list = std::mem::take(
            self.destructors
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        if !list.is_empty() {
            let destructors = Arc::new(Destructors { handle, list });
            let used = self.context.parts.iter().zip(&self.raws);
            for (part, _) in used.filter(|(_, raw)| raw.get().is_some()) {
                part.keep_until_quiet(&self.context, &destructors);
            }
        }
    }
}

/// The application's functions that are called once no command uses a memory object any more.
struct Destructors {
    handle: Shared<_cl_mem>,
    list: Vec<(DestructorFn, Shared<c_void>)>,
}

impl Drop for Destructors {
    fn drop(&mut self) {
        for (function, user_data) in self.list.drain(..).rev() {
            call_destructor(function, self.handle, user_data);
        }
    }
}

fn call_destructor(function: DestructorFn, handle: Shared<_cl_mem>, user_data: Shared<c_void>) {
    CALLBACKS.run(move || {
        let (handle, user_data) = (handle, user_data);
        // SAFETY: the application registered the function with this data; the handle is only a name by now.
        unsafe { function(handle.0, user_data.0) };
    });
}

/// A destructor callback that a local provider calls once nothing uses the memory any more.
struct NativeDestructor {
    function: DestructorFn,
    handle: Shared<_cl_mem>,
    user_data: Shared<c_void>,
}

unsafe extern "C" fn native_destructor(_mem: cl_mem, user_data: *mut c_void) {
    // SAFETY: `clSetMemObjectDestructorCallback` leaked this box for exactly this call.
    let callback = unsafe { Box::from_raw(user_data.cast::<NativeDestructor>()) };
    call_destructor(callback.function, callback.handle, callback.user_data);
}

/// The buffer behind a handle.
#[inline]
pub(crate) fn buffer(handle: cl_mem) -> Result<Ref<Mem>, cl_int> {
    let mem = get::<Mem>(handle)?;
    if mem.is_buffer() {
        Ok(mem)
    } else {
        Err(CL_INVALID_MEM_OBJECT)
    }
}

/// The image behind a handle.
pub(crate) fn image(handle: cl_mem) -> Result<Ref<Mem>, cl_int> {
    let mem = get::<Mem>(handle)?;
    mem.shape()?;
    Ok(mem)
}

const KERNEL_ACCESS: cl_mem_flags = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
const HOST_ACCESS: cl_mem_flags =
    CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
const HOST_POINTER: cl_mem_flags =
    CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;

/// Checks the flags of a new object.
pub(crate) fn check_flags(flags: cl_mem_flags) -> Result<(), cl_int> {
    let more_than_one = |mask: cl_mem_flags| (flags & mask).count_ones() > 1;
    if flags & !(KERNEL_ACCESS | HOST_ACCESS | HOST_POINTER) != 0
        || more_than_one(KERNEL_ACCESS)
        || more_than_one(HOST_ACCESS)
        || (flags & CL_MEM_USE_HOST_PTR != 0
            && flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0)
    {
        return Err(CL_INVALID_VALUE);
    }
    Ok(())
}

/// Checks that a host pointer is given exactly where the flags ask for one.
pub(crate) fn check_host_ptr(flags: cl_mem_flags, host_ptr: *mut c_void) -> Result<(), cl_int> {
    let asked = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0;
    if asked == host_ptr.is_null() {
        return Err(CL_INVALID_HOST_PTR);
    }
    Ok(())
}

/// The flags that an object has: queries answer what was given, and the default where nothing was.
pub(crate) fn or_default(flags: cl_mem_flags) -> cl_mem_flags {
    if flags == 0 { CL_MEM_READ_WRITE } else { flags }
}

/// Adds what the application left open to the flags.
pub(crate) fn with_default_access(flags: cl_mem_flags) -> cl_mem_flags {
    if flags & KERNEL_ACCESS == 0 {
        flags | CL_MEM_READ_WRITE
    } else {
        flags
    }
}

/// The flags of an object made from another, or why they contradict it.
pub(crate) fn inherit(parent: &Mem, flags: cl_mem_flags) -> Result<cl_mem_flags, cl_int> {
    let asks = |bits: cl_mem_flags| flags & bits != 0;
    let has = |bits: cl_mem_flags| parent.flags & bits != 0;
    if (has(CL_MEM_WRITE_ONLY) && asks(CL_MEM_READ_WRITE | CL_MEM_READ_ONLY))
        || (has(CL_MEM_READ_ONLY) && asks(CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY))
        || asks(HOST_POINTER)
        || (has(CL_MEM_HOST_WRITE_ONLY) && asks(CL_MEM_HOST_READ_ONLY))
        || (has(CL_MEM_HOST_READ_ONLY) && asks(CL_MEM_HOST_WRITE_ONLY))
        || (has(CL_MEM_HOST_NO_ACCESS) && asks(CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY))
    {
        return Err(CL_INVALID_VALUE);
    }
    let mut flags = flags;
    for group in [KERNEL_ACCESS, HOST_ACCESS] {
        if flags & group == 0 {
            flags |= parent.flags & group;
        }
    }
    Ok(flags | (parent.flags & HOST_POINTER))
}

/// No property of memory objects is supported; the empty list is.
pub(crate) fn check_properties(properties: Option<&[cl_mem_properties]>) -> Result<(), cl_int> {
    match pairs(properties).next() {
        Some(_) => Err(CL_INVALID_PROPERTY),
        None => Ok(()),
    }
}

fn create_buffer(
    context: cl_context,
    properties: Option<&[cl_mem_properties]>,
    flags: cl_mem_flags,
    size: usize,
    host_ptr: *mut c_void,
) -> Result<cl_mem, cl_int> {
    let context = get::<Context>(context)?;
    check_properties(properties)?;
    if size == 0 {
        return Err(CL_INVALID_BUFFER_SIZE);
    }
    check_flags(flags)?;
    check_host_ptr(flags, host_ptr)?;
    let largest = context
        .devices
        .iter()
        .map(|device| device.limits.max_alloc)
        .max();
    if largest.is_some_and(|largest| largest != 0 && size as u64 > largest) {
        return Err(CL_INVALID_BUFFER_SIZE);
    }
    let svm = if flags & CL_MEM_USE_HOST_PTR == 0 {
        None
    } else {
        context.svm_behind(host_ptr, size)?
    };
    Beginning {
        context,
        form: Form::Buffer,
        flags: or_default(flags),
        size,
        host_ptr,
        svm,
        parent: None,
        offset: 0,
        properties: properties.unwrap_or(&[]).to_vec(),
    }
    .open()
}

impl MemoryCalls for Platform {
    unsafe fn clCreateBuffer(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
    ) -> Result<cl_mem, cl_int> {
        create_buffer(context, None, flags, size, host_ptr)
    }

    unsafe fn clCreateBufferWithProperties(
        &self,
        context: cl_context,
        properties: Option<&[cl_mem_properties]>,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
    ) -> Result<cl_mem, cl_int> {
        create_buffer(context, properties, flags, size, host_ptr)
    }

    unsafe fn clCreateSubBuffer(
        &self,
        buffer: cl_mem,
        flags: cl_mem_flags,
        buffer_create_type: cl_buffer_create_type,
        buffer_create_info: *const c_void,
    ) -> Result<cl_mem, cl_int> {
        let parent = self::buffer(buffer)?;
        if parent.parent.is_some() {
            return Err(CL_INVALID_MEM_OBJECT);
        }
        if buffer_create_type != CL_BUFFER_CREATE_TYPE_REGION {
            return Err(CL_INVALID_VALUE);
        }
        // SAFETY: the application's contract: NULL or a region.
        let region = unsafe { crate::raw::one(buffer_create_info.cast::<cl_buffer_region>()) }
            .ok_or(CL_INVALID_VALUE)?;
        if region.size == 0 {
            return Err(CL_INVALID_BUFFER_SIZE);
        }
        check_flags(flags)?;
        let flags = inherit(&parent, flags)?;
        parent.expect_range(region.origin, region.size)?;
        let aligned = parent
            .context
            .devices
            .iter()
            .any(|device| region.origin.is_multiple_of(device.limits.base_align));
        if !aligned {
            return Err(CL_MISALIGNED_SUB_BUFFER_OFFSET);
        }
        let host_ptr = if parent.host_ptr.0.is_null() {
            std::ptr::null_mut()
        } else {
            parent.host_ptr.0.wrapping_byte_add(region.origin)
        };
        Beginning {
            context: parent.context.clone(),
            form: Form::Buffer,
            flags,
            size: region.size,
            host_ptr,
            svm: None,
            offset: region.origin,
            parent: Some(parent),
            properties: Vec::new(),
        }
        .open()
    }

    unsafe fn clCreatePipe(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        pipe_packet_size: cl_uint,
        pipe_max_packets: cl_uint,
        properties: Option<&[cl_pipe_properties]>,
    ) -> Result<cl_mem, cl_int> {
        let context = get::<Context>(context)?;
        if !context.devices.iter().any(|device| device.limits.pipes) {
            return Err(CL_INVALID_OPERATION);
        }
        if flags & !(CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS) != 0
            || pairs(properties).next().is_some()
        {
            return Err(CL_INVALID_VALUE);
        }
        let fits = context
            .devices
            .iter()
            .any(|device| device.limits.pipes && pipe_packet_size <= device.limits.max_pipe_packet);
        if pipe_packet_size == 0 || pipe_max_packets == 0 || !fits {
            return Err(CL_INVALID_PIPE_SIZE);
        }
        Beginning {
            context,
            form: Form::Pipe {
                packet: pipe_packet_size,
                packets: pipe_max_packets,
            },
            flags: CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS,
            size: pipe_packet_size as usize * pipe_max_packets as usize,
            host_ptr: std::ptr::null_mut(),
            svm: None,
            parent: None,
            offset: 0,
            properties: Vec::new(),
        }
        .open()
    }

    unsafe fn clRetainMemObject(&self, memobj: cl_mem) -> Result<(), cl_int> {
        get::<Mem>(memobj)?.retain();
        Ok(())
    }

    unsafe fn clReleaseMemObject(&self, memobj: cl_mem) -> Result<(), cl_int> {
        get::<Mem>(memobj)?.release().map(|_| ())
    }

    unsafe fn clGetMemObjectInfo(
        &self,
        memobj: cl_mem,
        param_name: cl_mem_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let mem = get::<Mem>(memobj)?;
        match param_name {
            CL_MEM_TYPE => answer.value(mem.kind()),
            CL_MEM_FLAGS => answer.value(mem.flags),
            CL_MEM_SIZE => answer.value(mem.size),
            CL_MEM_HOST_PTR => answer.value(mem.host_ptr.0),
            CL_MEM_MAP_COUNT => answer.value(mem.maps().len() as cl_uint),
            CL_MEM_REFERENCE_COUNT => answer.value(mem.count()),
            CL_MEM_CONTEXT => answer.value(mem.context.handle()),
            CL_MEM_ASSOCIATED_MEMOBJECT => answer.value(
                mem.parent
                    .as_ref()
                    .map_or(std::ptr::null_mut(), Ref::handle),
            ),
            CL_MEM_OFFSET => answer.value(mem.offset),
            CL_MEM_USES_SVM_POINTER => answer.value::<cl_bool>(
                (!mem.host_ptr.0.is_null() && mem.context.svm_holds(mem.host_ptr.0, 0)).into(),
            ),
            CL_MEM_PROPERTIES => answer.slice(&mem.properties),
            _ => Err(CL_INVALID_VALUE),
        }
    }

    unsafe fn clGetPipeInfo(
        &self,
        pipe: cl_mem,
        param_name: cl_pipe_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let mem = get::<Mem>(pipe)?;
        let Form::Pipe { packet, packets } = mem.form else {
            return Err(CL_INVALID_MEM_OBJECT);
        };
        match param_name {
            CL_PIPE_PACKET_SIZE => answer.value(packet),
            CL_PIPE_MAX_PACKETS => answer.value(packets),
            CL_PIPE_PROPERTIES => answer.bytes(&[]),
            _ => Err(CL_INVALID_VALUE),
        }
    }

    unsafe fn clSetMemObjectDestructorCallback(
        &self,
        memobj: cl_mem,
        pfn_notify: Option<DestructorFn>,
        user_data: *mut c_void,
    ) -> Result<(), cl_int> {
        let mem = get::<Mem>(memobj)?;
        let function = pfn_notify.ok_or(CL_INVALID_VALUE)?;
        let user_data = Shared(user_data);
        if mem.context.maps_natively() {
            let raw = mem.raw_on(0)?;
            let callback = Box::into_raw(Box::new(NativeDestructor {
                function,
                handle: Shared(memobj),
                user_data,
            }));
            let status = provider!(
                mem.context.parts[0].provider.api,
                clSetMemObjectDestructorCallback(raw, Some(native_destructor), callback.cast())
            );
            if status != CL_SUCCESS {
                // SAFETY: the provider refused, so it never calls back.
                drop(unsafe { Box::from_raw(callback) });
            }
            return check(status);
        }
        mem.destructors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((function, user_data));
        Ok(())
    }
}
