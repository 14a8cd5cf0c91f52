//! What a rule runs over: an implementation of the contract, its device, and calls made short.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use towline_backend::opencl::*;

use super::call::*;

/// An implementation of the contract and the device that rules run on.
pub struct Fixture {
    /// The implementation.
    pub api: Arc<dyn OpenClApi>,
    /// The device's platform.
    pub platform: cl_platform_id,
    /// Devices of the platform; rules use the first, and the second where they need two.
    pub devices: Vec<cl_device_id>,
    /// What the device can do.
    pub caps: Caps,
    /// Rules (`module::name`) that this implementation is known to break, and why. One that holds after all is a failure.
    pub deviations: &'static [(&'static str, Deviation)],
}

/// How an implementation is known to break a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// It answers otherwise. The rule runs, and holding after all is a failure.
    Differs(&'static str),
    /// It crashes or hangs. The rule does not run.
    Fatal(&'static str),
}

// SAFETY: platforms and devices are valid for the life of the implementation, on every thread.
unsafe impl Send for Fixture {}
// SAFETY: as above.
unsafe impl Sync for Fixture {}

/// What a device can do, as far as rules ask.
#[derive(Clone, Debug)]
pub struct Caps {
    /// Has a compiler for source.
    pub compiler: bool,
    /// Has images.
    pub images: bool,
    /// Has a linker.
    pub linker: bool,
    /// Largest work-group.
    pub group_limit: usize,
    /// Offsets of sub-buffers are multiples of this many bytes.
    pub sub_buffer_align: usize,
    /// Has queues out of order.
    pub out_of_order: bool,
    /// How it can be divided.
    pub partitions: Vec<u64>,
    /// `CL_DEVICE_SVM_CAPABILITIES`.
    pub svm: u64,
    /// Compute units.
    pub units: u64,
    /// OpenCL version of the device.
    pub version: (u64, u64),
}

/// Numbers that may have any bits.
pub(super) trait Plain: Copy + Default + 'static {}
impl Plain for u8 {}
impl Plain for i32 {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for i64 {}
impl Plain for f32 {}

/// The kernels that most rules use.
pub(super) const KERNELS: &str = r"
    kernel void add_one(global uint *buf) { buf[get_global_id(0)] += 1; }
    kernel void scale(global uint *buf, uint factor) { buf[get_global_id(0)] *= factor; }
    kernel void ids(global uint *out) { out[get_global_id(0) - get_global_offset(0)] = get_global_id(0); }
    kernel void ids2(global uint *out) {
        out[get_global_id(1) * get_global_size(0) + get_global_id(0)] = get_global_id(1) * 100 + get_global_id(0);
    }
    kernel void ids3(global uint *out) {
        size_t at = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
        out[at] = get_global_id(2) * 10000 + get_global_id(1) * 100 + get_global_id(0);
    }
    kernel void groups(global uint *out) { out[get_global_id(0)] = get_group_id(0) * 1000 + get_local_id(0); }
    kernel void turn(global uint *in, global uint *out, local uint *scratch) {
        size_t at = get_local_id(0), size = get_local_size(0);
        scratch[at] = in[get_global_id(0)];
        barrier(CLK_LOCAL_MEM_FENCE);
        out[get_global_id(0)] = scratch[size - 1 - at];
    }
    struct mixed { char small; int middle; long large; };
    kernel void by_value(global long *out, struct mixed value) {
        out[0] = value.small; out[1] = value.middle; out[2] = value.large;
    }
    kernel void three(global float *out, float3 value) { out[0] = value.x; out[1] = value.y; out[2] = value.z; }
    kernel void narrow(global int *out, char a, short b, uchar4 c) {
        out[0] = a; out[1] = b; out[2] = c.x + 1000 * c.w;
    }
    kernel void is_null(global uint *out, global uint *maybe) { out[0] = maybe == 0 ? 1 : 2; }
    kernel void lookup(global uint *out, constant uint *in) { out[get_global_id(0)] = in[3 - get_global_id(0)]; }
    kernel void copy(global const uint *from, global uint *to) { to[get_global_id(0)] = from[get_global_id(0)]; }
    kernel __attribute__((reqd_work_group_size(4, 2, 1))) void required(global uint *out) {
        out[get_global_id(1) * get_global_size(0) + get_global_id(0)] = get_local_size(0) * 10 + get_local_size(1);
    }
    kernel void spin(global volatile uint *flag) { while (atomic_add(flag, 0) == 0) { } }
";

/// Where and how a kernel runs.
#[derive(Default)]
pub(super) struct Range<'a> {
    pub(super) global: &'a [usize],
    pub(super) local: &'a [usize],
    pub(super) offset: &'a [usize],
    pub(super) waits: &'a [&'a Event],
}

/// A wait list as the calls take it.
pub(super) struct Waits(Vec<cl_event>);

impl Waits {
    pub(super) fn new(events: &[&Event]) -> Self {
        Self(events.iter().map(|event| event.raw()).collect())
    }

    pub(super) fn len(&self) -> cl_uint {
        self.0.len() as cl_uint
    }

    pub(super) fn list(&self) -> *const cl_event {
        if self.0.is_empty() {
            ptr::null()
        } else {
            self.0.as_ptr()
        }
    }
}

fn list_or_null<T>(list: &[T]) -> *const T {
    if list.is_empty() {
        ptr::null()
    } else {
        list.as_ptr()
    }
}

type Context = Owned<cl_context>;
type Queue = Owned<cl_command_queue>;
type Buffer = Owned<cl_mem>;
type Program = Owned<cl_program>;
type Kernel = Owned<cl_kernel>;

impl Fixture {
    /// The first platform and its devices.
    pub fn first(api: Arc<dyn OpenClApi>) -> Result<Self, String> {
        let mut platform = ptr::null_mut();
        // SAFETY: room for one platform is given.
        let status = unsafe { api.clGetPlatformIDs(1, &raw mut platform, ptr::null_mut()) };
        checked("clGetPlatformIDs", status).map_err(|status| format!("no platform: {status:?}"))?;
        let mut count = 0;
        // SAFETY: only the count is asked for.
        let status = unsafe {
            api.clGetDeviceIDs(
                platform,
                CL_DEVICE_TYPE_ALL,
                0,
                ptr::null_mut(),
                &raw mut count,
            )
        };
        checked("clGetDeviceIDs", status).map_err(|status| format!("no device: {status:?}"))?;
        let mut devices = vec![ptr::null_mut(); count as usize];
        let room = devices.as_mut_ptr();
        // SAFETY: room for `count` devices is given.
        let status = unsafe {
            api.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, room, ptr::null_mut())
        };
        checked("clGetDeviceIDs", status).map_err(|status| format!("no device: {status:?}"))?;
        Self::new(api, platform, devices).map_err(|status| format!("no usable device: {status:?}"))
    }

    /// These devices of this platform.
    pub fn new(
        api: Arc<dyn OpenClApi>,
        platform: cl_platform_id,
        devices: Vec<cl_device_id>,
    ) -> Result<Self, Status> {
        let caps = Caps {
            compiler: false,
            images: false,
            linker: false,
            group_limit: 1,
            sub_buffer_align: 1,
            out_of_order: false,
            partitions: Vec::new(),
            svm: 0,
            units: 0,
            version: (0, 0),
        };
        let mut fixture = Self {
            api,
            platform,
            devices,
            caps,
            deviations: &[],
        };
        let number = |query| info!(fixture, clGetDeviceInfo(fixture.device(), query));
        let version = number(CL_DEVICE_VERSION)?.text();
        let mut version = version
            .trim_start_matches("OpenCL ")
            .split(['.', ' '])
            .map(|digits| digits.parse().unwrap_or(0));
        let queues = number(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES)?.number();
        let caps = Caps {
            compiler: number(CL_DEVICE_COMPILER_AVAILABLE)?.number() != 0,
            images: number(CL_DEVICE_IMAGE_SUPPORT)?.number() != 0,
            linker: number(CL_DEVICE_LINKER_AVAILABLE)?.number() != 0,
            group_limit: number(CL_DEVICE_MAX_WORK_GROUP_SIZE)?.number() as usize,
            sub_buffer_align: number(CL_DEVICE_MEM_BASE_ADDR_ALIGN)?.number() as usize / 8,
            out_of_order: queues & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0,
            partitions: number(CL_DEVICE_PARTITION_PROPERTIES)?.words(),
            svm: number(CL_DEVICE_SVM_CAPABILITIES).map_or(0, |answer| answer.number()),
            units: number(CL_DEVICE_MAX_COMPUTE_UNITS)?.number(),
            version: (version.next().unwrap_or(0), version.next().unwrap_or(0)),
        };
        fixture.caps = caps;
        Ok(fixture)
    }

    /// The same fixture with known deviations.
    pub fn with_deviations(self, deviations: &'static [(&'static str, Deviation)]) -> Self {
        Self { deviations, ..self }
    }

    /// How the rule of this name is known to be broken.
    pub(super) fn deviation(&self, rule: &str) -> Option<Deviation> {
        let known = self.deviations.iter().find(|(name, _)| *name == rule);
        known.map(|(_, deviation)| *deviation)
    }

    /// The device that rules run on.
    pub(super) fn device(&self) -> cl_device_id {
        self.devices.first().copied().unwrap_or(ptr::null_mut())
    }

    /// Goes on only if the rule applies.
    pub(super) fn requires(&self, applies: bool, reason: &str) -> Verdict {
        if applies {
            Ok(())
        } else {
            Err(Stop::Skipped(reason.into()))
        }
    }

    /// A context over the device.
    pub(super) fn context(&self) -> Result<Context, Status> {
        let device = self.device();
        let (none, user) = (ptr::null(), ptr::null_mut());
        create!(
            self,
            clCreateContext(none, 1, &raw const device, None, user)
        )
    }

    /// A context and an in-order queue.
    pub(super) fn context_and_queue(&self) -> Result<(Context, Queue), Status> {
        let context = self.context()?;
        let queue = self.queue(&context, 0)?;
        Ok((context, queue))
    }

    /// A queue with these properties.
    pub(super) fn queue(&self, context: &Context, properties: u64) -> Result<Queue, Status> {
        create!(
            self,
            clCreateCommandQueue(context.raw(), self.device(), properties)
        )
    }

    /// An out-of-order queue, where the device has them.
    pub(super) fn out_of_order(&self, context: &Context) -> Result<Queue, Stop> {
        self.requires(
            self.caps.out_of_order,
            "the device has no out-of-order queues",
        )?;
        Ok(self.queue(context, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)?)
    }

    /// A buffer of `size` bytes.
    pub(super) fn buffer(&self, context: &Context, size: usize) -> Result<Buffer, Status> {
        self.buffer_with(context, CL_MEM_READ_WRITE, size, ptr::null_mut())
    }

    /// A buffer with these flags.
    pub(super) fn buffer_with(
        &self,
        context: &Context,
        flags: cl_mem_flags,
        size: usize,
        host: *mut c_void,
    ) -> Result<Buffer, Status> {
        create!(self, clCreateBuffer(context.raw(), flags, size, host))
    }

    /// A buffer that starts with a copy of `data`.
    pub(super) fn buffer_of<T: Plain>(
        &self,
        context: &Context,
        data: &[T],
    ) -> Result<Buffer, Status> {
        let host = data.as_ptr().cast_mut().cast();
        self.buffer_with(context, CL_MEM_COPY_HOST_PTR, size_of_val(data), host)
    }

    /// A part of a buffer.
    pub(super) fn part(
        &self,
        buffer: &Buffer,
        flags: cl_mem_flags,
        origin: usize,
        size: usize,
    ) -> Result<Buffer, Status> {
        let region = cl_buffer_region { origin, size };
        let (kind, region) = (CL_BUFFER_CREATE_TYPE_REGION, (&raw const region).cast());
        create!(self, clCreateSubBuffer(buffer.raw(), flags, kind, region))
    }

    /// Writes and waits.
    pub(super) fn write<T: Plain>(
        &self,
        queue: &Queue,
        buffer: &Buffer,
        offset: usize,
        data: &[T],
    ) -> Result<(), Status> {
        let (size, from) = (size_of_val(data), data.as_ptr().cast());
        let (none, event) = (ptr::null(), ptr::null_mut());
        call!(
            self,
            clEnqueueWriteBuffer(
                queue.raw(),
                buffer.raw(),
                CL_TRUE,
                offset,
                size,
                from,
                0,
                none,
                event
            )
        )
    }

    /// Writes some time later; `data` has to stay until then.
    pub(super) fn write_later<T: Plain>(
        &self,
        queue: &Queue,
        buffer: &Buffer,
        data: &[T],
        waits: &[&Event],
    ) -> Result<Event, Status> {
        let (size, from) = (size_of_val(data), data.as_ptr().cast());
        let waits = Waits::new(waits);
        self.event(|event| {
            call!(
                self,
                clEnqueueWriteBuffer(
                    queue.raw(),
                    buffer.raw(),
                    CL_FALSE,
                    0,
                    size,
                    from,
                    waits.len(),
                    waits.list(),
                    event
                )
            )
        })
    }

    /// Waits and reads.
    pub(super) fn read<T: Plain>(
        &self,
        queue: &Queue,
        buffer: &Buffer,
        offset: usize,
        count: usize,
    ) -> Result<Vec<T>, Status> {
        let mut data = vec![T::default(); count];
        let (size, to) = (size_of_val(data.as_slice()), data.as_mut_ptr().cast());
        let (none, event) = (ptr::null(), ptr::null_mut());
        call!(
            self,
            clEnqueueReadBuffer(
                queue.raw(),
                buffer.raw(),
                CL_TRUE,
                offset,
                size,
                to,
                0,
                none,
                event
            )
        )?;
        Ok(data)
    }

    /// Reads some time later; `data` has to stay until then.
    pub(super) fn read_later<T: Plain>(
        &self,
        queue: &Queue,
        buffer: &Buffer,
        data: &mut [T],
        waits: &[&Event],
    ) -> Result<Event, Status> {
        let (size, to) = (size_of_val(data), data.as_mut_ptr().cast());
        let waits = Waits::new(waits);
        self.event(|event| {
            call!(
                self,
                clEnqueueReadBuffer(
                    queue.raw(),
                    buffer.raw(),
                    CL_FALSE,
                    0,
                    size,
                    to,
                    waits.len(),
                    waits.list(),
                    event
                )
            )
        })
    }

    /// Copies some time later.
    pub(super) fn copy(
        &self,
        queue: &Queue,
        (from, from_offset): (&Buffer, usize),
        (to, to_offset): (&Buffer, usize),
        size: usize,
    ) -> Result<Event, Status> {
        self.event(|event| {
            call!(
                self,
                clEnqueueCopyBuffer(
                    queue.raw(),
                    from.raw(),
                    to.raw(),
                    from_offset,
                    to_offset,
                    size,
                    0,
                    ptr::null(),
                    event
                )
            )
        })
    }

    /// Fills some time later.
    pub(super) fn fill<T: Plain>(
        &self,
        queue: &Queue,
        buffer: &Buffer,
        pattern: &[T],
        offset: usize,
        size: usize,
    ) -> Result<Event, Status> {
        let (length, pattern) = (size_of_val(pattern), pattern.as_ptr().cast());
        self.event(|event| {
            call!(
                self,
                clEnqueueFillBuffer(
                    queue.raw(),
                    buffer.raw(),
                    pattern,
                    length,
                    offset,
                    size,
                    0,
                    ptr::null(),
                    event
                )
            )
        })
    }

    /// Maps and waits.
    pub(super) fn map(
        &self,
        queue: &Queue,
        buffer: &Buffer,
        flags: cl_map_flags,
        offset: usize,
        size: usize,
    ) -> Result<*mut u8, Status> {
        let mut code = UNSET;
        let (none, event) = (ptr::null(), ptr::null_mut());
        let (queue, buffer) = (queue.raw(), buffer.raw());
        // SAFETY: live handles, and a local for the code.
        let mapped = unsafe {
            self.api.clEnqueueMapBuffer(
                queue,
                buffer,
                CL_TRUE,
                flags,
                offset,
                size,
                0,
                none,
                event,
                &raw mut code,
            )
        };
        checked("clEnqueueMapBuffer", code)?;
        assert!(
            !mapped.is_null(),
            "clEnqueueMapBuffer answered success and NULL"
        );
        Ok(mapped.cast())
    }

    /// Ends a mapping some time later.
    pub(super) fn unmap(
        &self,
        queue: &Queue,
        object: &Buffer,
        at: *mut u8,
    ) -> Result<Event, Status> {
        self.event(|event| {
            call!(
                self,
                clEnqueueUnmapMemObject(
                    queue.raw(),
                    object.raw(),
                    at.cast(),
                    0,
                    ptr::null(),
                    event
                )
            )
        })
    }

    /// Waits for all commands of a queue.
    pub(super) fn finish(&self, queue: &Queue) -> Result<(), Status> {
        call!(self, clFinish(queue.raw()))
    }

    /// Waits for events.
    pub(super) fn wait(&self, events: &[&Event]) -> Result<(), Status> {
        let waits = Waits::new(events);
        call!(self, clWaitForEvents(waits.len(), waits.list()))
    }

    /// A marker.
    pub(super) fn marker(&self, queue: &Queue, waits: &[&Event]) -> Result<Event, Status> {
        let waits = Waits::new(waits);
        self.event(|event| {
            call!(
                self,
                clEnqueueMarkerWithWaitList(queue.raw(), waits.len(), waits.list(), event)
            )
        })
    }

    /// A barrier.
    pub(super) fn barrier(&self, queue: &Queue, waits: &[&Event]) -> Result<Event, Status> {
        let waits = Waits::new(waits);
        self.event(|event| {
            call!(
                self,
                clEnqueueBarrierWithWaitList(queue.raw(), waits.len(), waits.list(), event)
            )
        })
    }

    /// The event that a call gives through its last parameter.
    pub(super) fn event(
        &self,
        enqueue: impl FnOnce(*mut cl_event) -> Result<(), Status>,
    ) -> Result<Event, Status> {
        let mut event = ptr::null_mut();
        enqueue(&raw mut event)?;
        assert!(!event.is_null(), "the call succeeded and gave no event");
        Ok(Owned::new(&self.api, event))
    }

    /// A user event.
    pub(super) fn user_event(&self, context: &Context) -> Result<Event, Status> {
        create!(self, clCreateUserEvent(context.raw()))
    }

    /// Ends a user event.
    pub(super) fn set(&self, event: &Event, status: cl_int) -> Result<(), Status> {
        call!(self, clSetUserEventStatus(event.raw(), status))
    }

    /// An event's status.
    pub(super) fn status(&self, event: &Event) -> Result<Code, Status> {
        let answer = info!(
            self,
            clGetEventInfo(event.raw(), CL_EVENT_COMMAND_EXECUTION_STATUS)
        )?;
        Ok(answer.code())
    }

    /// A program from source, not built.
    pub(super) fn program(&self, context: &Context, source: &str) -> Result<Program, Status> {
        let (mut text, length) = (source.as_ptr().cast(), source.len());
        create!(
            self,
            clCreateProgramWithSource(context.raw(), 1, &raw mut text, &raw const length)
        )
    }

    /// Builds a program for the device.
    pub(super) fn build_with(&self, program: &Program, options: &CStr) -> Result<(), Status> {
        let device = self.device();
        let (options, user) = (options.as_ptr(), ptr::null_mut());
        call!(
            self,
            clBuildProgram(program.raw(), 1, &raw const device, options, None, user)
        )
    }

    /// A program that is built; skips the rule on a device without a compiler.
    pub(super) fn build(&self, context: &Context, source: &str) -> Result<Program, Stop> {
        self.requires(self.caps.compiler, "the device has no compiler")?;
        let program = self.program(context, source)?;
        match self.build_with(&program, c"") {
            Ok(()) => Ok(program),
            Err(status) => Err(Stop::Failed(format!(
                "{status:?}: {}",
                self.build_log(&program)?
            ))),
        }
    }

    /// What the compiler said.
    pub(super) fn build_log(&self, program: &Program) -> Result<String, Status> {
        let log = info!(
            self,
            clGetProgramBuildInfo(program.raw(), self.device(), CL_PROGRAM_BUILD_LOG)
        )?;
        Ok(log.text())
    }

    /// A kernel of a program.
    pub(super) fn kernel(&self, program: &Program, name: &CStr) -> Result<Kernel, Status> {
        create!(self, clCreateKernel(program.raw(), name.as_ptr()))
    }

    /// One of [`KERNELS`].
    pub(super) fn kernel_of(&self, context: &Context, name: &CStr) -> Result<Kernel, Stop> {
        let program = self.build(context, KERNELS)?;
        Ok(self.kernel(&program, name)?)
    }

    /// Sets an argument to plain bytes.
    pub(super) fn arg<T: Copy>(
        &self,
        kernel: &Kernel,
        index: u32,
        value: &T,
    ) -> Result<(), Status> {
        let (size, value) = (size_of::<T>(), ptr::from_ref(value).cast());
        call!(self, clSetKernelArg(kernel.raw(), index, size, value))
    }

    /// Sets an argument to a memory object.
    pub(super) fn arg_mem(
        &self,
        kernel: &Kernel,
        index: u32,
        memory: &Buffer,
    ) -> Result<(), Status> {
        self.arg(kernel, index, &memory.raw())
    }

    /// Launches over a range.
    pub(super) fn launch(
        &self,
        queue: &Queue,
        kernel: &Kernel,
        size: usize,
    ) -> Result<Event, Status> {
        let global = [size];
        self.launch_over(
            queue,
            kernel,
            Range {
                global: &global,
                ..Range::default()
            },
        )
    }

    /// Launches over a range with all that goes with it.
    pub(super) fn launch_over(
        &self,
        queue: &Queue,
        kernel: &Kernel,
        range: Range<'_>,
    ) -> Result<Event, Status> {
        let dimensions = range.global.len() as cl_uint;
        let (global, local) = (range.global.as_ptr(), list_or_null(range.local));
        let (offset, waits) = (list_or_null(range.offset), Waits::new(range.waits));
        self.event(|event| {
            call!(
                self,
                clEnqueueNDRangeKernel(
                    queue.raw(),
                    kernel.raw(),
                    dimensions,
                    offset,
                    global,
                    local,
                    waits.len(),
                    waits.list(),
                    event
                )
            )
        })
    }
}

/// Statuses that callbacks came with, in order.
#[derive(Default)]
pub(super) struct Record {
    seen: Mutex<Vec<cl_int>>,
    more: Condvar,
    /// Held back by a rule to see that nobody waits for a callback's end.
    pub(super) is_open: AtomicBool,
}

impl Record {
    /// Longest that a rule waits for a callback.
    const PATIENCE: Duration = Duration::from_secs(20);

    pub(super) fn add(&self, status: cl_int) {
        self.seen().push(status);
        self.more.notify_all();
    }

    /// What came, once there are `count` of them or patience ends.
    pub(super) fn wait_for(&self, count: usize) -> Vec<cl_int> {
        let seen = self.seen();
        let waited = self
            .more
            .wait_timeout_while(seen, Self::PATIENCE, |seen| seen.len() < count);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Vec<cl_int>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pointer to hand to one registration of a callback.
    pub(super) fn user_data(self: &Arc<Self>) -> *mut c_void {
        Arc::into_raw(self.clone()).cast_mut().cast()
    }

    /// Takes back what [`user_data`](Self::user_data) gave.
    fn taken(user_data: *mut c_void) -> Arc<Self> {
        // SAFETY: every registration was given its own reference, and a callback comes once.
        unsafe { Arc::from_raw(user_data.cast_const().cast()) }
    }

    pub(super) unsafe extern "C" fn event_callback(
        _event: cl_event,
        status: cl_int,
        user_data: *mut c_void,
    ) {
        Self::taken(user_data).add(status);
    }

    /// An event callback that stays until the rule opens the record.
    pub(super) unsafe extern "C" fn slow_event_callback(
        _event: cl_event,
        status: cl_int,
        user_data: *mut c_void,
    ) {
        let record = Self::taken(user_data);
        while !record.is_open.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        record.add(status);
    }

    pub(super) unsafe extern "C" fn memory_callback(_memory: cl_mem, user_data: *mut c_void) {
        Self::taken(user_data).add(CL_COMPLETE);
    }

    pub(super) unsafe extern "C" fn program_callback(_program: cl_program, user_data: *mut c_void) {
        Self::taken(user_data).add(CL_COMPLETE);
    }
}
