//! Kernels and their arguments.
//!
//! An argument of eight bytes that is the address of a live handle of ours is that object; any other value is plain bytes. Values
//! are remembered, so that setting the same one again costs nothing, and so that a kernel of a context that spans providers can be
//! given its arguments on each of them when it is first launched there.

mod args;
mod launch;

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use towline_backend::opencl::*;

use crate::arena::{self, Kind, Object, Ref, get, lend};
use crate::context::Context;
use crate::device::Device;
use crate::info::{self, Cache, Key};
use crate::memory::Mem;
use crate::platform::{KernelCalls, Platform};
use crate::program::Program;
use crate::queue::{Queue, host_queue};
use crate::raw::{Answer, Out, OutList, Shared, check, create, provider};
use crate::sampler::Sampler;
use crate::signature;

use self::args::{Args, Recent, Value, address};
use self::launch::{pointer, replay};

pub(crate) use self::launch::{Range, launch};

/// A kernel.
pub(crate) struct Kernel {
    pub(crate) context: Ref<Context>,
    program: Ref<Program>,
    name: CString,
    raws: Box<[OnceLock<Shared<_cl_kernel>>]>,
    creating: Mutex<()>,
    args: Mutex<Args>,
    recent: Recent,
    /// Nothing but the provider, which is in this process, has to know plain values: `args` may have earlier ones of them, of the
    /// same size.
    direct: bool,
    /// What [`arena::ended`] said when all objects among the arguments were last seen alive.
    alive: AtomicU64,
    answers: Cache,
    /// Whether each argument is only read, for contexts that span providers.
    read_only: OnceLock<Vec<bool>>,
    /// It may ask for a work-group size.
    names_group: bool,
}

impl Object for Kernel {
    type Raw = _cl_kernel;
    const KIND: Kind = Kind::Kernel;
    const INVALID: cl_int = CL_INVALID_KERNEL;
}

impl Kernel {
    fn args(&self) -> MutexGuard<'_, Args> {
        self.args.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first part that has the kernel.
    fn first(&self) -> Result<(usize, cl_kernel), cl_int> {
        self.raws
            .iter()
            .enumerate()
            .find_map(|(part, raw)| raw.get().map(|raw| (part, raw.0)))
            .ok_or(CL_INVALID_PROGRAM_EXECUTABLE)
    }

    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// The provider's kernel, created now if it is not there yet.
    pub(crate) fn raw_on(&self, part: usize) -> Result<cl_kernel, cl_int> {
        if let Some(raw) = self.raws[part].get() {
            return Ok(raw.0);
        }
        let _creating = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(raw) = self.raws[part].get() {
            return Ok(raw.0);
        }
        let program = self
            .program
            .raw_on(part)
            .filter(|_| self.program.executable_parts().contains(&part))
            .ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?;
        let raw = create!(
            self.context.parts[part].provider.api,
            clCreateKernel(program, self.name.as_ptr())
        )?;
        // Set once: creation is under the lock.
        let _ = self.raws[part].set(Shared(raw));
        Ok(raw)
    }

    /// Gives one argument to a part's kernel.
    fn give(
        &self,
        (part, raw): (usize, cl_kernel),
        index: usize,
        value: Value,
        size: usize,
        bytes: &[u8],
    ) -> cl_int {
        let api = &self.context.parts[part].provider.api;
        let index = index as cl_uint;
        match value {
            Value::Null => {
                provider!(api, clSetKernelArg(raw, index, size, std::ptr::null()))
            }
            Value::Plain => provider!(api, clSetKernelArg(raw, index, size, bytes.as_ptr().cast())),
            Value::Svm => provider!(
                api,
                clSetKernelArgSVMPointer(
                    raw,
                    index,
                    std::ptr::with_exposed_provenance(address(bytes))
                )
            ),
            Value::Object(kind, _) => match object_on(kind, address(bytes), part, &self.context) {
                Ok(object) => {
                    let object = object.0;
                    provider!(
                        api,
                        clSetKernelArg(raw, index, size, (&raw const object).cast())
                    )
                }
                Err(status) => status,
            },
        }
    }

    /// Sets an argument, unless it has this value already.
    #[inline]
    fn set(&self, index: usize, value: Value, size: usize, bytes: &[u8]) -> Result<(), cl_int> {
        let caches = towline_client::tuning::tuning().argument_cache;
        if caches && self.recent.has(index, value, size, bytes) {
            return Ok(());
        }
        if self.direct && value == Value::Plain && self.recent.has_like(index, value, size) {
            check(self.give(self.first()?, index, value, size, bytes))?;
            self.recent.note(index, value, size, bytes);
            return Ok(());
        }
        self.change(index, value, size, bytes, caches)
    }

    fn change(
        &self,
        index: usize,
        value: Value,
        size: usize,
        bytes: &[u8],
        caches: bool,
    ) -> Result<(), cl_int> {
        let mut args = self.args();
        let listed = !(self.direct && Recent::holds(index, value, size, bytes));
        if caches && listed && args.is_set_to(index, value, size, bytes) {
            return Ok(());
        }
        // One provider says at once whether the value is right; the others get it when they launch the kernel.
        let (part, raw) = self.first()?;
        check(self.give((part, raw), index, value, size, bytes))?;
        let version = args.note(index, value, size, bytes);
        args.given(part, index, version);
        self.recent.note(index, value, size, bytes);
        Ok(())
    }

    /// Fails if an object among the arguments has ended since it was set: it must not reach the provider.
    #[inline]
    fn expect_alive(&self) -> Result<(), cl_int> {
        let ended = arena::ended();
        if self.alive.load(Ordering::Relaxed) != ended {
            self.args().expect_alive()?;
            self.alive.store(ended, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Which arguments are only read: what the provider knows of the kernel, or else what its source says.
    fn read_only(&self) -> &[bool] {
        self.read_only.get_or_init(|| {
            let count = self
                .ask(CL_KERNEL_NUM_ARGS)
                .map_or(0, |bytes| info::uint(&bytes) as usize);
            (0..count)
                .map(|index| self.argument_is_read_only(index as cl_uint))
                .collect::<Option<Vec<bool>>>()
                .or_else(|| signature::read_only(&self.program.source()?, self.name.to_str().ok()?))
                .unwrap_or_default()
        })
    }

    fn argument_is_read_only(&self, index: cl_uint) -> Option<bool> {
        let ask = |name| {
            self.argument(index, name)
                .ok()
                .map(|bytes| info::values(&bytes, u32::from_ne_bytes).next().unwrap_or(0))
        };
        let space = ask(CL_KERNEL_ARG_ADDRESS_QUALIFIER)?;
        let access = ask(CL_KERNEL_ARG_ACCESS_QUALIFIER)?;
        let qualifiers = self
            .argument(index, CL_KERNEL_ARG_TYPE_QUALIFIER)
            .ok()
            .map(|bytes| info::ulong(&bytes))?;
        Some(
            space == CL_KERNEL_ARG_ADDRESS_CONSTANT
                || access == CL_KERNEL_ARG_ACCESS_READ_ONLY
                || (access == CL_KERNEL_ARG_ACCESS_NONE
                    && qualifiers & CL_KERNEL_ARG_TYPE_CONST != 0),
        )
    }

    fn ask(&self, name: cl_kernel_info) -> Result<Vec<u8>, cl_int> {
        let (part, raw) = self.first()?;
        self.answers.get(Key(0, name, 0), |room, value, needed| {
            provider!(
                self.context.parts[part].provider.api,
                clGetKernelInfo(raw, name, room, value, needed)
            )
        })
    }

    fn argument(&self, index: cl_uint, name: cl_kernel_arg_info) -> Result<Vec<u8>, cl_int> {
        let (part, raw) = self.first()?;
        self.answers
            .get(Key(1, name, index as usize), |room, value, needed| {
                provider!(
                    self.context.parts[part].provider.api,
                    clGetKernelArgInfo(raw, index, name, room, value, needed)
                )
            })
    }

    /// The device that a query is about, and its part's kernel.
    fn on_device(&self, device: cl_device_id) -> Result<(Ref<Device>, usize, cl_kernel), cl_int> {
        let device = if device.is_null() {
            match self.program.devices.as_slice() {
                [only] => only.clone(),
                _ => return Err(CL_INVALID_DEVICE),
            }
        } else {
            get::<Device>(device)?
        };
        if !self.program.devices.iter().any(|own| own.is(&device)) {
            return Err(CL_INVALID_DEVICE);
        }
        let part = self.context.part_of(&device).ok_or(CL_INVALID_DEVICE)?;
        let raw = self.raw_on(part)?;
        Ok((device, part, raw))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for (part, raw) in self.raws.iter().enumerate() {
            if let Some(raw) = raw.get() {
                provider!(
                    self.context.parts[part].provider.api,
                    clReleaseKernel(raw.0)
                );
            }
        }
        self.program.lose_kernel();
    }
}

/// The provider's object for a handle of ours.
fn object_on(
    kind: Kind,
    handle: usize,
    part: usize,
    context: &Ref<Context>,
) -> Result<Shared<c_void>, cl_int> {
    fn of<T>(address: usize) -> *mut T {
        std::ptr::with_exposed_provenance_mut(address)
    }
    let raw = match kind {
        Kind::Sampler => {
            let sampler = get::<Sampler>(of(handle))?;
            if !sampler.context.is(context) {
                return Err(CL_INVALID_SAMPLER);
            }
            sampler.raw_on(part)?.cast()
        }
        Kind::Queue => {
            let queue = get::<Queue>(of(handle)).map_err(|_| CL_INVALID_DEVICE_QUEUE)?;
            if !queue.context.is(context)
                || queue.part != part
                || queue.properties & CL_QUEUE_ON_DEVICE == 0
            {
                return Err(CL_INVALID_DEVICE_QUEUE);
            }
            queue.raw.0.cast()
        }
        _ => {
            let mem = get::<Mem>(of(handle))?;
            if !mem.context.is(context) {
                return Err(CL_INVALID_MEM_OBJECT);
            }
            mem.raw_on(part)?.cast()
        }
    };
    Ok(Shared(raw))
}

/// Makes a kernel of a program, created on the first part that can.
fn open(program: &Ref<Program>, name: &CStr) -> Result<Ref<Kernel>, cl_int> {
    let parts = program.executable_parts();
    let first = *parts.first().ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?;
    let context = &program.context;
    program.adopt_kernel();
    let count = context.parts.len();
    let kernel = Ref::new(Kernel {
        context: context.clone(),
        program: program.clone(),
        name: name.into(),
        raws: (0..count).map(|_| OnceLock::new()).collect(),
        creating: Mutex::new(()),
        args: Mutex::new(Args {
            list: Vec::new(),
            given: vec![Vec::new(); count],
        }),
        recent: Recent::default(),
        direct: context.maps_natively()
            && context.parts[0]
                .devices
                .iter()
                .all(|device| device.limits.version >= (2, 1)),
        alive: AtomicU64::new(u64::MAX),
        answers: Cache::default(),
        read_only: OnceLock::new(),
        names_group: program.may_name_group(),
    })?;
    kernel.raw_on(first)?;
    Ok(kernel)
}

impl KernelCalls for Platform {
    unsafe fn clCreateKernel(
        &self,
        program: cl_program,
        kernel_name: Option<&CStr>,
    ) -> Result<cl_kernel, cl_int> {
        let name = kernel_name.ok_or(CL_INVALID_VALUE)?;
        let program = get::<Program>(program)?;
        open(&program, name).map(Ref::publish)
    }

    unsafe fn clCreateKernelsInProgram(
        &self,
        program: cl_program,
        num_kernels: cl_uint,
        kernels: OutList<cl_kernel>,
        num_kernels_ret: Out<cl_uint>,
    ) -> Result<(), cl_int> {
        let program = get::<Program>(program)?;
        let names = program.kernel_names()?;
        if kernels.wanted() && (num_kernels as usize) < names.len() {
            return Err(CL_INVALID_VALUE);
        }
        if kernels.wanted() {
            let made = names
                .iter()
                .map(|name| {
                    let name = CString::new(name.as_str()).map_err(|_| CL_INVALID_KERNEL_NAME)?;
                    open(&program, &name)
                })
                .collect::<Result<Vec<_>, cl_int>>()?;
            kernels.fill(made.into_iter().map(Ref::publish));
        }
        num_kernels_ret.set(names.len() as cl_uint);
        Ok(())
    }

    unsafe fn clCloneKernel(&self, source_kernel: cl_kernel) -> Result<cl_kernel, cl_int> {
        let source = get::<Kernel>(source_kernel)?;
        let parts = source.raws.len();
        let args = source.args();
        let mut copied = args.clone();
        drop(args);
        source.program.adopt_kernel();
        let clone = Kernel {
            context: source.context.clone(),
            program: source.program.clone(),
            name: source.name.clone(),
            raws: (0..parts).map(|_| OnceLock::new()).collect(),
            creating: Mutex::new(()),
            args: Mutex::default(),
            recent: Recent::default(),
            direct: source.direct,
            alive: AtomicU64::new(u64::MAX),
            answers: Cache::default(),
            read_only: OnceLock::new(),
            names_group: source.names_group,
        };
        for (part, raw) in source.raws.iter().enumerate() {
            let Some(raw) = raw.get() else {
                continue;
            };
            let own = &source.context.parts[part];
            let cloned = if own
                .devices
                .iter()
                .all(|device| device.limits.version >= (2, 1))
            {
                create!(own.provider.api, clCloneKernel(raw.0))?
            } else {
                // Devices before 2.1 have no such function; arguments are given at the launch, or below.
                copied.given[part].clear();
                let program = source.program.raw_on(part).ok_or(CL_INVALID_PROGRAM)?;
                create!(
                    own.provider.api,
                    clCreateKernel(program, source.name.as_ptr())
                )?
            };
            // Each part's place is set once, here.
            let _ = clone.raws[part].set(Shared(cloned));
            check(replay(&clone, &mut copied, part, cloned))?;
        }
        *clone.args() = copied;
        Ref::new(clone).map(Ref::publish)
    }

    unsafe fn clRetainKernel(&self, kernel: cl_kernel) -> Result<(), cl_int> {
        get::<Kernel>(kernel)?.retain();
        Ok(())
    }

    unsafe fn clReleaseKernel(&self, kernel: cl_kernel) -> Result<(), cl_int> {
        get::<Kernel>(kernel)?.release().map(|_| ())
    }

    unsafe fn clSetKernelArg(
        &self,
        kernel: cl_kernel,
        arg_index: cl_uint,
        arg_size: usize,
        arg_value: *const c_void,
    ) -> Result<(), cl_int> {
        // SAFETY: the application's contract: no object ends while a call uses it.
        let kernel = unsafe { lend::<Kernel>(kernel) }?;
        let index = arg_index as usize;
        if arg_value.is_null() {
            return kernel.set(index, Value::Null, arg_size, &[]);
        }
        if arg_size == size_of::<usize>() {
            // SAFETY: the application's contract: `arg_value` is readable for `arg_size` bytes.
            let bytes = unsafe {
                arg_value
                    .cast::<[u8; size_of::<usize>()]>()
                    .read_unaligned()
            };
            let handle = usize::from_ne_bytes(bytes);
            const KINDS: [Kind; 3] = [Kind::Mem, Kind::Sampler, Kind::Queue];
            if let Some((number, generation)) = arena::live_at(handle)
                && let Some(kind) = KINDS.into_iter().find(|kind| *kind as u32 == number)
            {
                return kernel.set(index, Value::Object(kind, generation), arg_size, &bytes);
            }
            if arena::is_handle_address(handle) {
                return Err(CL_INVALID_MEM_OBJECT);
            }
            return kernel.set(index, Value::Plain, arg_size, &bytes);
        }
        if arg_size > MOST_ARGUMENT_BYTES {
            return Err(CL_INVALID_ARG_SIZE);
        }
        // SAFETY: the application's contract: `arg_value` is readable for `arg_size` bytes.
        let bytes = unsafe { crate::raw::slice(arg_value.cast::<u8>(), arg_size) };
        kernel.set(index, Value::Plain, arg_size, bytes.unwrap_or(&[]))
    }

    unsafe fn clSetKernelArgSVMPointer(
        &self,
        kernel: cl_kernel,
        arg_index: cl_uint,
        arg_value: *const c_void,
    ) -> Result<(), cl_int> {
        let kernel = get::<Kernel>(kernel)?;
        crate::svm::expect(&kernel.context)?;
        let bytes = arg_value.expose_provenance().to_ne_bytes();
        kernel.set(arg_index as usize, Value::Svm, size_of::<usize>(), &bytes)
    }

    unsafe fn clSetKernelExecInfo(
        &self,
        kernel: cl_kernel,
        param_name: cl_kernel_exec_info,
        param_value_size: usize,
        param_value: *const c_void,
    ) -> Result<(), cl_int> {
        let kernel = get::<Kernel>(kernel)?;
        crate::svm::expect(&kernel.context)?;
        // No pointers at all unset those set before.
        if param_value.is_null() != (param_value_size == 0) {
            return Err(CL_INVALID_VALUE);
        }
        match param_name {
            CL_KERNEL_EXEC_INFO_SVM_PTRS => {
                if !param_value_size.is_multiple_of(size_of::<usize>()) {
                    return Err(CL_INVALID_VALUE);
                }
            }
            CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM => {
                if param_value_size != size_of::<cl_bool>() {
                    return Err(CL_INVALID_VALUE);
                }
                // SAFETY: the application's contract: readable for its size, which is that of a truth value.
                let wanted = unsafe { param_value.cast::<cl_bool>().read_unaligned() };
                return if wanted == CL_FALSE {
                    Ok(())
                } else {
                    Err(CL_INVALID_OPERATION)
                };
            }
            _ => return Err(CL_INVALID_VALUE),
        }
        let (part, raw) = kernel.first()?;
        check(provider!(
            kernel.context.parts[part].provider.api,
            clSetKernelExecInfo(raw, param_name, param_value_size, param_value)
        ))
    }

    unsafe fn clGetKernelInfo(
        &self,
        kernel: cl_kernel,
        param_name: cl_kernel_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let kernel = get::<Kernel>(kernel)?;
        match param_name {
            CL_KERNEL_FUNCTION_NAME => answer.bytes(kernel.name.to_bytes_with_nul()),
            CL_KERNEL_REFERENCE_COUNT => answer.value(kernel.count()),
            CL_KERNEL_CONTEXT => answer.value(kernel.context.handle()),
            CL_KERNEL_PROGRAM => answer.value(kernel.program.handle()),
            CL_KERNEL_NUM_ARGS | CL_KERNEL_ATTRIBUTES => answer.bytes(&kernel.ask(param_name)?),
            _ => Err(CL_INVALID_VALUE),
        }
    }

    unsafe fn clGetKernelArgInfo(
        &self,
        kernel: cl_kernel,
        arg_index: cl_uint,
        param_name: cl_kernel_arg_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let kernel = get::<Kernel>(kernel)?;
        if !kernel.program.shows_arguments() {
            if arg_index >= info::uint(&kernel.ask(CL_KERNEL_NUM_ARGS)?) {
                return Err(CL_INVALID_ARG_INDEX);
            }
            return Err(CL_KERNEL_ARG_INFO_NOT_AVAILABLE);
        }
        answer.bytes(&kernel.argument(arg_index, param_name)?)
    }

    unsafe fn clGetKernelWorkGroupInfo(
        &self,
        kernel: cl_kernel,
        device: cl_device_id,
        param_name: cl_kernel_work_group_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let kernel = get::<Kernel>(kernel)?;
        let (device, part, raw) = kernel.on_device(device)?;
        let ask = |room, value, needed| {
            provider!(
                kernel.context.parts[part].provider.api,
                clGetKernelWorkGroupInfo(raw, device.raw.0, param_name, room, value, needed)
            )
        };
        if param_name == CL_KERNEL_LOCAL_MEM_SIZE {
            // Arguments count into it, so it changes.
            let (room, value, needed) = answer.parts();
            return check(ask(room, value, needed));
        }
        let key = Key(2, param_name, device.handle().addr());
        answer.bytes(&kernel.answers.get(key, ask)?)
    }

    unsafe fn clGetKernelSubGroupInfo(
        &self,
        kernel: cl_kernel,
        device: cl_device_id,
        param_name: cl_kernel_sub_group_info,
        input_value_size: usize,
        input_value: *const c_void,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let kernel = get::<Kernel>(kernel)?;
        let (device, part, raw) = kernel.on_device(device)?;
        let (room, value, needed) = answer.parts();
        check(provider!(
            kernel.context.parts[part].provider.api,
            clGetKernelSubGroupInfo(
                raw,
                device.raw.0,
                param_name,
                input_value_size,
                input_value,
                room,
                value,
                needed
            )
        ))
    }

    unsafe fn clGetKernelSuggestedLocalWorkSizeKHR(
        &self,
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        global_work_offset: Option<&[usize]>,
        global_work_size: Option<&[usize]>,
        suggested_local_work_size: OutList<usize>,
    ) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        let kernel = get::<Kernel>(kernel)?;
        if !kernel.context.is(&queue.context) {
            return Err(CL_INVALID_CONTEXT);
        }
        let range = Range::new(&queue, work_dim, global_work_offset, global_work_size, None)?;
        if !suggested_local_work_size.wanted() {
            return Err(CL_INVALID_VALUE);
        }
        let raw = kernel.raw_on(queue.part)?;
        let status = replay(&kernel, &mut kernel.args(), queue.part, raw);
        check(status)?;
        let mut suggested = [1_usize; 3];
        check(provider!(
            queue.part().provider.api,
            clGetKernelSuggestedLocalWorkSizeKHR(
                queue.raw.0,
                raw,
                range.dims,
                pointer(range.offset),
                pointer(range.global),
                suggested.as_mut_ptr()
            )
        ))?;
        suggested_local_work_size.fill(suggested);
        Ok(())
    }
}

/// No device takes more in one argument; what is larger is a mistake that must not be read.
const MOST_ARGUMENT_BYTES: usize = 64 << 10;
