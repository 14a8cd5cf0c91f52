//! The API of the host-memory device, call by call.

use std::ffi::CStr;
use std::ptr;

use super::super::contract::*;
use super::super::handles::{Alive, Destructor, Destructors, Kind};
use super::super::scheduler::{Order, Work};
use super::super::*;
use super::NullOpenCl;
use super::info;
use super::kernels::{Argument, BuiltIn, Kernel, Parameter, Program};
use super::memory::{self, Memory, Place, Rect, copy_rect};
use super::registry::{Context, Event, Object, Queue};
use std::sync::Arc;

/// A queue and the wait list of a command for it.
type Target = (Arc<Queue>, Vec<Arc<Event>>);

const COPY_HOST: (bool, bool) = (true, false);
const WRITE_HOST: (bool, bool) = (false, true);

/// Gives a list of handles where a call asks for a count, a list, or both.
///
/// # Safety
/// `out` is NULL or has room for `room` handles, `count` is NULL or writable.
unsafe fn give_list<H>(all: &[usize], room: usize, out: *mut *mut H, count: *mut cl_uint) {
    // SAFETY: the caller's contract.
    unsafe { put(count, all.len() as cl_uint) };
    if !out.is_null() {
        for (index, number) in all.iter().take(room).enumerate() {
            // SAFETY: the caller's contract: `index` is below `room`.
            let slot = unsafe { out.add(index) };
            // SAFETY: as above.
            unsafe { slot.write(handle(*number)) };
        }
    }
}

impl NullOpenCl {
    fn alive(&self) -> Alive {
        Alive::new(&self.shared.scheduler.live)
    }

    fn get<T: Kind<Object>, H>(&self, handle: *mut H) -> Result<Arc<T>, cl_int> {
        self.shared.registry.get(handle)
    }

    fn references<H>(&self, handle: *mut H) -> Vec<u8> {
        self.shared.registry.references(handle).bytes()
    }

    fn device(&self, device: cl_device_id) -> Result<usize, cl_int> {
        let known = self
            .devices
            .iter()
            .position(|known| *known == device.addr());
        known.ok_or(CL_INVALID_DEVICE)
    }

    fn checked_platform(&self, platform: cl_platform_id) -> Result<(), cl_int> {
        let is_ours = platform.is_null() || platform.addr() == self.platform;
        require(is_ours, CL_INVALID_PLATFORM)
    }

    fn devices_of(&self, device_type: cl_device_type) -> Result<&[usize], cl_int> {
        const KINDS: cl_device_type = CL_DEVICE_TYPE_DEFAULT
            | CL_DEVICE_TYPE_CPU
            | CL_DEVICE_TYPE_GPU
            | CL_DEVICE_TYPE_ACCELERATOR
            | CL_DEVICE_TYPE_CUSTOM;
        let is_known = device_type == CL_DEVICE_TYPE_ALL || device_type & !KINDS == 0;
        require(is_known && device_type != 0, CL_INVALID_DEVICE_TYPE)?;
        let found = if device_type & CL_DEVICE_TYPE_ACCELERATOR != 0 {
            self.devices.as_slice()
        } else if device_type & CL_DEVICE_TYPE_DEFAULT != 0 {
            self.devices.get(..1).unwrap_or_default()
        } else {
            &[]
        };
        require(!found.is_empty(), CL_DEVICE_NOT_FOUND)?;
        Ok(found)
    }

    fn context(
        &self,
        properties: Vec<cl_context_properties>,
        devices: Vec<usize>,
    ) -> Result<usize, cl_int> {
        for pair in properties.chunks_exact(2) {
            match pair {
                [CL_CONTEXT_PLATFORM, platform] => {
                    self.checked_platform(handle(*platform as usize))?;
                }
                [CL_CONTEXT_INTEROP_USER_SYNC, _] => {}
                _ => return Err(CL_INVALID_PROPERTY),
            }
        }
        let make = |handle| Context {
            handle,
            devices,
            properties,
            destructors: Destructors::default(),
            _alive: self.alive(),
        };
        Ok(self.shared.registry.add(make).0)
    }

    fn queue(
        &self,
        context: cl_context,
        device: cl_device_id,
        properties: cl_command_queue_properties,
        property_list: Vec<cl_queue_properties>,
    ) -> Result<usize, cl_int> {
        const KNOWN: cl_command_queue_properties = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
            | CL_QUEUE_PROFILING_ENABLE
            | CL_QUEUE_ON_DEVICE
            | CL_QUEUE_ON_DEVICE_DEFAULT;
        let context: Arc<Context> = self.get(context)?;
        self.device(device)?;
        require(context.devices.contains(&device.addr()), CL_INVALID_DEVICE)?;
        require(properties & !KNOWN == 0, CL_INVALID_VALUE)?;
        let on_device = CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT;
        require(properties & on_device == 0, CL_INVALID_QUEUE_PROPERTIES)?;
        let (handle, queue) = self.shared.registry.add(|handle| {
            let alive = self.alive();
            Queue::new(
                handle,
                context,
                device.addr(),
                properties,
                property_list,
                !self.unified,
                alive,
            )
        });
        if let Err(error) = queue.start(&self.shared.scheduler, "null-queue") {
            log::warn!("no thread for a queue of the host-memory device: {error}");
            let _ = self
                .shared
                .registry
                .release::<Queue, _>(self::handle::<c_void>(handle));
            return Err(CL_OUT_OF_RESOURCES);
        }
        Ok(handle)
    }

    fn kernel(&self, program: &Arc<Program>, built_in: BuiltIn) -> usize {
        let make = |_| Kernel::new(program.clone(), built_in, self.alive());
        self.shared.registry.add(make).0
    }

    /// A buffer that a command of `queue` may use.
    fn buffer(&self, queue: &Queue, buffer: cl_mem) -> Result<Arc<Memory>, cl_int> {
        let buffer: Arc<Memory> = self.get(buffer)?;
        require(
            Arc::ptr_eq(&buffer.context, &queue.context),
            CL_INVALID_CONTEXT,
        )?;
        Ok(buffer)
    }

    /// The queue and wait list of a command.
    ///
    /// # Safety
    /// `events` is NULL or readable for `count` handles.
    unsafe fn target(
        &self,
        queue: cl_command_queue,
        count: cl_uint,
        events: *const cl_event,
    ) -> Result<Target, cl_int> {
        let queue: Arc<Queue> = self.get(queue)?;
        // SAFETY: the caller's contract.
        let events = unsafe { list(events, count as usize, CL_INVALID_EVENT_WAIT_LIST) }?;
        let mut waits = Vec::with_capacity(events.len());
        for event in events {
            let event: Arc<Event> = self.get(event).map_err(|_| CL_INVALID_EVENT_WAIT_LIST)?;
            require(
                Arc::ptr_eq(&event.context, &queue.context),
                CL_INVALID_CONTEXT,
            )?;
            waits.push(event);
        }
        Ok((queue, waits))
    }

    /// Enqueues `work`, gives its event, and waits where the call is to wait.
    ///
    /// # Safety
    /// `event` is NULL or writable.
    unsafe fn submit(
        &self,
        (queue, waits): Target,
        (command, order, blocking): (cl_command_type, Order, cl_bool),
        event: *mut cl_event,
        work: Work,
    ) -> Result<(), cl_int> {
        let made = queue.enqueue(&self.shared.scheduler, command, waits, order, work);
        if !event.is_null() {
            let published = handle(self.shared.registry.publish(made.clone()));
            // SAFETY: the caller's contract.
            unsafe { event.write(published) };
        }
        if blocking != CL_FALSE && self.shared.scheduler.wait_for(&made) < 0 {
            return Err(made.status());
        }
        Ok(())
    }

    /// A rectangular copy between a buffer and host memory, in the direction that `access` says.
    ///
    /// # Safety
    /// The contract of `clEnqueueReadBufferRect` and its twin: lists hold three sizes, `host` is good for the region.
    unsafe fn host_rect(
        &self,
        queue: &Queue,
        buffer: cl_mem,
        (origin, host_origin, region): (*const usize, *const usize, *const usize),
        (pitches, host_pitches): ((usize, usize), (usize, usize)),
        host: *const c_void,
        access: (bool, bool),
    ) -> Result<Work, cl_int> {
        let buffer = self.buffer(queue, buffer)?;
        // SAFETY: the caller's contract.
        let region = unsafe { triple(region) }?;
        // SAFETY: as above.
        let origin = unsafe { triple(origin) }?;
        // SAFETY: as above.
        let host_origin = unsafe { triple(host_origin) }?;
        let rect = Rect::new(origin, pitches.0, pitches.1, region)?;
        let host_rect = Rect::new(host_origin, host_pitches.0, host_pitches.1, region)?;
        buffer.range(0, rect.end(region).ok_or(CL_INVALID_VALUE)?)?;
        require(!host.is_null(), CL_INVALID_VALUE)?;
        buffer.host_may(access.0, access.1)?;
        let host = (Place::new(host), host_rect);
        Ok(Box::new(move || {
            let device = (buffer.place, rect);
            let (to, from) = if access == COPY_HOST {
                (host, device)
            } else {
                (device, host)
            };
            // SAFETY: the region was checked against the buffer; the caller's contract covers the host's side until the command ends.
            unsafe { copy_rect(to, from, region) };
            Ok(())
        }))
    }
}

/// Reference counts of all kinds but queues, whose end has a thread to tell.
macro_rules! counted {
    ($($retain:ident $release:ident $kind:ident $handle:ident;)*) => {$(
        unsafe fn $retain(&self, object: $handle) -> cl_int {
            self.count(stringify!($retain));
            status(self.shared.registry.retain::<$kind, _>(object))
        }

        unsafe fn $release(&self, object: $handle) -> cl_int {
            self.count(stringify!($release));
            status(self.shared.registry.release::<$kind, _>(object).map(drop))
        }
    )*};
}

#[allow(non_snake_case, clippy::too_many_arguments)]
impl OpenClApi for NullOpenCl {
    counted! {
        clRetainContext clReleaseContext Context cl_context;
        clRetainEvent clReleaseEvent Event cl_event;
        clRetainKernel clReleaseKernel Kernel cl_kernel;
        clRetainMemObject clReleaseMemObject Memory cl_mem;
        clRetainProgram clReleaseProgram Program cl_program;
    }

    unsafe fn clRetainCommandQueue(&self, command_queue: cl_command_queue) -> cl_int {
        self.count("clRetainCommandQueue");
        status(self.shared.registry.retain::<Queue, _>(command_queue))
    }

    unsafe fn clReleaseCommandQueue(&self, command_queue: cl_command_queue) -> cl_int {
        self.count("clReleaseCommandQueue");
        let last = self.shared.registry.release::<Queue, _>(command_queue);
        status(last.map(|queue| {
            if let Some(queue) = queue {
                queue.released(&self.shared.scheduler);
            }
        }))
    }

    unsafe fn clGetPlatformIDs(
        &self,
        num_entries: cl_uint,
        platforms: *mut cl_platform_id,
        num_platforms: *mut cl_uint,
    ) -> cl_int {
        self.count("clGetPlatformIDs");
        if platforms.is_null() != (num_entries == 0)
            || (platforms.is_null() && num_platforms.is_null())
        {
            return CL_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        unsafe {
            give_list(
                &[self.platform],
                num_entries as usize,
                platforms,
                num_platforms,
            )
        };
        CL_SUCCESS
    }

    unsafe fn clGetPlatformInfo(
        &self,
        platform: cl_platform_id,
        param_name: cl_platform_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetPlatformInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        let answer = self
            .checked_platform(platform)
            .and_then(|()| info::platform(param_name));
        // SAFETY: the caller's contract.
        status(answer.and_then(|answer| unsafe { asked.answer(&answer) }))
    }

    unsafe fn clGetDeviceIDs(
        &self,
        platform: cl_platform_id,
        device_type: cl_device_type,
        num_entries: cl_uint,
        devices: *mut cl_device_id,
        num_devices: *mut cl_uint,
    ) -> cl_int {
        self.count("clGetDeviceIDs");
        status((|| {
            self.checked_platform(platform)?;
            let asks = !devices.is_null() || !num_devices.is_null();
            require(
                devices.is_null() == (num_entries == 0) && asks,
                CL_INVALID_VALUE,
            )?;
            let found = self.devices_of(device_type)?;
            // SAFETY: the caller's contract.
            unsafe { give_list(found, num_entries as usize, devices, num_devices) };
            Ok(())
        })())
    }

    unsafe fn clGetDeviceInfo(
        &self,
        device: cl_device_id,
        param_name: cl_device_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetDeviceInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        let answer = self
            .device(device)
            .and_then(|index| info::device(param_name, index, self.platform, self.unified));
        // SAFETY: the caller's contract.
        status(answer.and_then(|answer| unsafe { asked.answer(&answer) }))
    }

    unsafe fn clRetainDevice(&self, device: cl_device_id) -> cl_int {
        self.count("clRetainDevice");
        status(self.device(device).map(drop))
    }

    unsafe fn clReleaseDevice(&self, device: cl_device_id) -> cl_int {
        self.count("clReleaseDevice");
        status(self.device(device).map(drop))
    }

    unsafe fn clGetDeviceAndHostTimer(
        &self,
        device: cl_device_id,
        device_timestamp: *mut cl_ulong,
        host_timestamp: *mut cl_ulong,
    ) -> cl_int {
        self.count("clGetDeviceAndHostTimer");
        status((|| {
            self.device(device)?;
            let both = !device_timestamp.is_null() && !host_timestamp.is_null();
            require(both, CL_INVALID_VALUE)?;
            let now = self.shared.scheduler.now();
            // SAFETY: the caller's contract.
            unsafe { put(device_timestamp, now) };
            // SAFETY: as above.
            unsafe { put(host_timestamp, now) };
            Ok(())
        })())
    }

    unsafe fn clGetHostTimer(&self, device: cl_device_id, host_timestamp: *mut cl_ulong) -> cl_int {
        self.count("clGetHostTimer");
        status((|| {
            self.device(device)?;
            require(!host_timestamp.is_null(), CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            unsafe { put(host_timestamp, self.shared.scheduler.now()) };
            Ok(())
        })())
    }

    unsafe fn clCreateContext(
        &self,
        properties: *const cl_context_properties,
        num_devices: cl_uint,
        devices: *const cl_device_id,
        pfn_notify: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>,
        user_data: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_context {
        self.count("clCreateContext");
        let made = (|| {
            // SAFETY: the caller's contract.
            let properties = unsafe { pairs(properties) }?;
            require(num_devices > 0, CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            let devices = unsafe { list(devices, num_devices as usize, CL_INVALID_VALUE) }?;
            require(
                pfn_notify.is_some() || user_data.is_null(),
                CL_INVALID_VALUE,
            )?;
            let mut all = Vec::new();
            for device in devices {
                self.device(device)?;
                if !all.contains(&device.addr()) {
                    all.push(device.addr());
                }
            }
            self.context(properties, all)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    unsafe fn clCreateContextFromType(
        &self,
        properties: *const cl_context_properties,
        device_type: cl_device_type,
        pfn_notify: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>,
        user_data: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_context {
        self.count("clCreateContextFromType");
        let made = (|| {
            // SAFETY: the caller's contract.
            let properties = unsafe { pairs(properties) }?;
            require(
                pfn_notify.is_some() || user_data.is_null(),
                CL_INVALID_VALUE,
            )?;
            self.context(properties, self.devices_of(device_type)?.to_vec())
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    unsafe fn clGetContextInfo(
        &self,
        context: cl_context,
        param_name: cl_context_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetContextInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Context, _>(context).and_then(|object| {
            let answer = match param_name {
                CL_CONTEXT_REFERENCE_COUNT => self.references(context),
                CL_CONTEXT_NUM_DEVICES => (object.devices.len() as cl_uint).bytes(),
                CL_CONTEXT_DEVICES => object.devices.bytes(),
                CL_CONTEXT_PROPERTIES => object.properties.bytes(),
                _ => return Err(CL_INVALID_VALUE),
            };
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    unsafe fn clSetContextDestructorCallback(
        &self,
        context: cl_context,
        pfn_notify: Option<unsafe extern "C" fn(cl_context, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int {
        self.count("clSetContextDestructorCallback");
        status(self.get::<Context, _>(context).and_then(|object| {
            let function = pfn_notify.ok_or(CL_INVALID_VALUE)?;
            let destructor = Destructor::new(function, context, user_data);
            object.destructors.add(destructor);
            Ok(())
        }))
    }

    unsafe fn clCreateCommandQueue(
        &self,
        context: cl_context,
        device: cl_device_id,
        properties: cl_command_queue_properties,
        errcode_ret: *mut cl_int,
    ) -> cl_command_queue {
        self.count("clCreateCommandQueue");
        let made = self.queue(context, device, properties, Vec::new());
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    unsafe fn clCreateCommandQueueWithProperties(
        &self,
        context: cl_context,
        device: cl_device_id,
        properties: *const cl_queue_properties,
        errcode_ret: *mut cl_int,
    ) -> cl_command_queue {
        self.count("clCreateCommandQueueWithProperties");
        let made = (|| {
            // SAFETY: the caller's contract.
            let list = unsafe { pairs(properties) }?;
            let mut bits = 0;
            for pair in list.chunks_exact(2) {
                match *pair {
                    [name, value] if name == cl_queue_properties::from(CL_QUEUE_PROPERTIES) => {
                        bits = value;
                    }
                    _ => return Err(CL_INVALID_VALUE),
                }
            }
            self.queue(context, device, bits, list)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    unsafe fn clGetCommandQueueInfo(
        &self,
        command_queue: cl_command_queue,
        param_name: cl_command_queue_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetCommandQueueInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Queue, _>(command_queue).and_then(|object| {
            let answer = match param_name {
                CL_QUEUE_CONTEXT => object.context.handle.bytes(),
                CL_QUEUE_DEVICE => object.device.bytes(),
                CL_QUEUE_REFERENCE_COUNT => self.references(command_queue),
                CL_QUEUE_PROPERTIES => object.properties.bytes(),
                CL_QUEUE_PROPERTIES_ARRAY => object.property_list.bytes(),
                CL_QUEUE_DEVICE_DEFAULT => 0_usize.bytes(),
                CL_QUEUE_SIZE => return Err(CL_INVALID_COMMAND_QUEUE),
                _ => return Err(CL_INVALID_VALUE),
            };
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    unsafe fn clFlush(&self, command_queue: cl_command_queue) -> cl_int {
        self.count("clFlush");
        // A queue's thread takes commands up as they come.
        status(self.get::<Queue, _>(command_queue).map(drop))
    }

    unsafe fn clFinish(&self, command_queue: cl_command_queue) -> cl_int {
        self.count("clFinish");
        let queue = self.get::<Queue, _>(command_queue);
        status(queue.map(|queue| queue.finish(&self.shared.scheduler)))
    }

    unsafe fn clCreateBuffer(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        self.count("clCreateBuffer");
        // SAFETY: the caller's contract, passed on.
        unsafe {
            self.clCreateBufferWithProperties(
                context,
                ptr::null(),
                flags,
                size,
                host_ptr,
                errcode_ret,
            )
        }
    }

    unsafe fn clCreateBufferWithProperties(
        &self,
        context: cl_context,
        properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        self.count("clCreateBufferWithProperties");
        let made = (|| {
            let context: Arc<Context> = self.get(context)?;
            // SAFETY: the caller's contract.
            let properties = unsafe { pairs(properties) }?;
            require(properties.len() <= 1, CL_INVALID_PROPERTY)?;
            let number = self.shared.registry.mint();
            let account = (&self.shared.allocated, self.alive());
            let made = Memory::new(number, context, flags, size, host_ptr, properties, account)?;
            self.shared.registry.name(number, Arc::new(made));
            Ok(number)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    unsafe fn clCreateSubBuffer(
        &self,
        buffer: cl_mem,
        flags: cl_mem_flags,
        buffer_create_type: cl_buffer_create_type,
        buffer_create_info: *const c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        self.count("clCreateSubBuffer");
        let made = (|| {
            let parent: Arc<Memory> = self.get(buffer)?;
            let is_region = buffer_create_type == CL_BUFFER_CREATE_TYPE_REGION;
            require(is_region && !buffer_create_info.is_null(), CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract: for this type it points to a region.
            let region = unsafe { buffer_create_info.cast::<cl_buffer_region>().read() };
            let number = self.shared.registry.mint();
            let made = Memory::part(number, parent, flags, region, self.alive())?;
            self.shared.registry.name(number, Arc::new(made));
            Ok(number)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    unsafe fn clGetMemObjectInfo(
        &self,
        memobj: cl_mem,
        param_name: cl_mem_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetMemObjectInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Memory, _>(memobj).and_then(|object| {
            let parent = object.parent.as_ref();
            let answer = match param_name {
                CL_MEM_TYPE => CL_MEM_OBJECT_BUFFER.bytes(),
                CL_MEM_FLAGS => object.flags.bytes(),
                CL_MEM_SIZE => object.size.bytes(),
                CL_MEM_HOST_PTR => object.host_ptr.bytes(),
                CL_MEM_MAP_COUNT => (object.map_count() as cl_uint).bytes(),
                CL_MEM_REFERENCE_COUNT => self.references(memobj),
                CL_MEM_CONTEXT => object.context.handle.bytes(),
                CL_MEM_ASSOCIATED_MEMOBJECT => {
                    parent.map_or(0, |(parent, _)| parent.handle).bytes()
                }
                CL_MEM_OFFSET => parent.map_or(0, |(_, origin)| *origin).bytes(),
                CL_MEM_USES_SVM_POINTER => CL_FALSE.bytes(),
                CL_MEM_PROPERTIES => object.properties.bytes(),
                _ => return Err(CL_INVALID_VALUE),
            };
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    unsafe fn clSetMemObjectDestructorCallback(
        &self,
        memobj: cl_mem,
        pfn_notify: Option<unsafe extern "C" fn(cl_mem, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int {
        self.count("clSetMemObjectDestructorCallback");
        status(self.get::<Memory, _>(memobj).and_then(|object| {
            let function = pfn_notify.ok_or(CL_INVALID_VALUE)?;
            let destructor = Destructor::new(function, memobj, user_data);
            object.destructors.add(destructor);
            Ok(())
        }))
    }

    unsafe fn clGetSupportedImageFormats(
        &self,
        context: cl_context,
        _flags: cl_mem_flags,
        _image_type: cl_mem_object_type,
        num_entries: cl_uint,
        image_formats: *mut cl_image_format,
        num_image_formats: *mut cl_uint,
    ) -> cl_int {
        self.count("clGetSupportedImageFormats");
        status(self.get::<Context, _>(context).and_then(|_| {
            let asks_for_none = num_entries == 0 && !image_formats.is_null();
            require(!asks_for_none, CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            unsafe { put(num_image_formats, 0) };
            Ok(())
        }))
    }

    unsafe fn clCreateProgramWithSource(
        &self,
        context: cl_context,
        count: cl_uint,
        strings: *mut *const c_char,
        lengths: *const usize,
        errcode_ret: *mut cl_int,
    ) -> cl_program {
        self.count("clCreateProgramWithSource");
        let made = (|| {
            let context: Arc<Context> = self.get(context)?;
            require(count > 0, CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            let strings = unsafe { list(strings, count as usize, CL_INVALID_VALUE) }?;
            let mut lens = vec![0; strings.len()];
            if !lengths.is_null() {
                // SAFETY: the caller's contract: one length per string.
                lens = unsafe { list(lengths, strings.len(), CL_INVALID_VALUE) }?;
            }
            let mut source = Vec::new();
            for (string, len) in strings.into_iter().zip(lens) {
                require(!string.is_null(), CL_INVALID_VALUE)?;
                source.extend_from_slice(match len {
                    // SAFETY: the caller's contract: without a length the string ends with a NUL.
                    0 => unsafe { CStr::from_ptr(string) }.to_bytes(),
                    // SAFETY: the caller's contract: the string has this length.
                    len => unsafe { std::slice::from_raw_parts(string.cast(), len) },
                });
            }
            let make = |handle| Program {
                handle,
                devices: context.devices.clone(),
                context,
                source: Some(source),
                kernels: Vec::new(),
                _alive: self.alive(),
            };
            Ok(self.shared.registry.add(make).0)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    unsafe fn clCreateProgramWithBuiltInKernels(
        &self,
        context: cl_context,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        kernel_names: *const c_char,
        errcode_ret: *mut cl_int,
    ) -> cl_program {
        self.count("clCreateProgramWithBuiltInKernels");
        let made = (|| {
            let context: Arc<Context> = self.get(context)?;
            require(num_devices > 0 && !kernel_names.is_null(), CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            let devices = unsafe { list(device_list, num_devices as usize, CL_INVALID_VALUE) }?;
            let devices: Vec<usize> = devices.iter().map(|device| device.addr()).collect();
            let are_known = devices
                .iter()
                .all(|device| context.devices.contains(device));
            require(are_known, CL_INVALID_DEVICE)?;
            // SAFETY: the caller's contract: a NUL-terminated list of names.
            let names = unsafe { CStr::from_ptr(kernel_names) }.to_string_lossy();
            let kernels: Option<Vec<_>> = names.split(';').map(BuiltIn::named).collect();
            let kernels = kernels.ok_or(CL_INVALID_VALUE)?;
            let make = |handle| Program {
                handle,
                context,
                devices,
                source: None,
                kernels,
                _alive: self.alive(),
            };
            Ok(self.shared.registry.add(make).0)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    unsafe fn clBuildProgram(
        &self,
        program: cl_program,
        _num_devices: cl_uint,
        _device_list: *const cl_device_id,
        _options: *const c_char,
        _pfn_notify: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
        _user_data: *mut c_void,
    ) -> cl_int {
        self.count("clBuildProgram");
        // There is no compiler, and built-in kernels are not built (section 5.8.6 lists what may be).
        match self.get::<Program, _>(program) {
            Ok(program) if program.source.is_some() => CL_COMPILER_NOT_AVAILABLE,
            Ok(_) => CL_INVALID_OPERATION,
            Err(error) => error,
        }
    }

    unsafe fn clUnloadPlatformCompiler(&self, platform: cl_platform_id) -> cl_int {
        self.count("clUnloadPlatformCompiler");
        require(!platform.is_null(), CL_INVALID_PLATFORM)
            .and_then(|()| self.checked_platform(platform))
            .err()
            .unwrap_or(CL_SUCCESS)
    }

    unsafe fn clGetProgramInfo(
        &self,
        program: cl_program,
        param_name: cl_program_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetProgramInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Program, _>(program).and_then(|object| {
            let is_executable = object.source.is_none();
            let names: Vec<_> = object.kernels.iter().map(|kernel| kernel.name()).collect();
            let source = object.source.as_deref().unwrap_or_default();
            let answer = match param_name {
                CL_PROGRAM_REFERENCE_COUNT => self.references(program),
                CL_PROGRAM_CONTEXT => object.context.handle.bytes(),
                CL_PROGRAM_NUM_DEVICES => (object.devices.len() as cl_uint).bytes(),
                CL_PROGRAM_DEVICES => object.devices.bytes(),
                CL_PROGRAM_SOURCE => [source, &[0]].concat(),
                CL_PROGRAM_IL => Vec::new(),
                CL_PROGRAM_BINARY_SIZES => vec![0_usize; object.devices.len()].bytes(),
                // The caller's array of pointers: nothing is written behind any of them.
                CL_PROGRAM_BINARIES => {
                    let size = object.devices.len() * size_of::<usize>();
                    require(
                        param_value.is_null() || param_value_size >= size,
                        CL_INVALID_VALUE,
                    )?;
                    // SAFETY: the caller's contract.
                    unsafe { put(param_value_size_ret, size) };
                    return Ok(());
                }
                CL_PROGRAM_NUM_KERNELS | CL_PROGRAM_KERNEL_NAMES if !is_executable => {
                    return Err(CL_INVALID_PROGRAM_EXECUTABLE);
                }
                CL_PROGRAM_NUM_KERNELS => names.len().bytes(),
                CL_PROGRAM_KERNEL_NAMES => text(&names.join(";")),
                CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT | CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT => {
                    CL_FALSE.bytes()
                }
                _ => return Err(CL_INVALID_VALUE),
            };
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    unsafe fn clGetProgramBuildInfo(
        &self,
        program: cl_program,
        device: cl_device_id,
        param_name: cl_program_build_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetProgramBuildInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Program, _>(program).and_then(|object| {
            require(object.devices.contains(&device.addr()), CL_INVALID_DEVICE)?;
            let is_executable = object.source.is_none();
            let answer = match param_name {
                CL_PROGRAM_BUILD_STATUS if is_executable => CL_BUILD_SUCCESS.bytes(),
                CL_PROGRAM_BUILD_STATUS => CL_BUILD_NONE.bytes(),
                CL_PROGRAM_BUILD_OPTIONS | CL_PROGRAM_BUILD_LOG => text(""),
                CL_PROGRAM_BINARY_TYPE if is_executable => {
                    CL_PROGRAM_BINARY_TYPE_EXECUTABLE.bytes()
                }
                CL_PROGRAM_BINARY_TYPE => CL_PROGRAM_BINARY_TYPE_NONE.bytes(),
                CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE => 0_usize.bytes(),
                _ => return Err(CL_INVALID_VALUE),
            };
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    unsafe fn clCreateKernel(
        &self,
        program: cl_program,
        kernel_name: *const c_char,
        errcode_ret: *mut cl_int,
    ) -> cl_kernel {
        self.count("clCreateKernel");
        let made = self.get::<Program, _>(program).and_then(|program| {
            require(!kernel_name.is_null(), CL_INVALID_VALUE)?;
            require(program.source.is_none(), CL_INVALID_PROGRAM_EXECUTABLE)?;
            // SAFETY: the caller's contract: a NUL-terminated name.
            let name = unsafe { CStr::from_ptr(kernel_name) }.to_string_lossy();
            let built_in = BuiltIn::named(&name).filter(|known| program.kernels.contains(known));
            Ok(self.kernel(&program, built_in.ok_or(CL_INVALID_KERNEL_NAME)?))
        });
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    unsafe fn clCreateKernelsInProgram(
        &self,
        program: cl_program,
        num_kernels: cl_uint,
        kernels: *mut cl_kernel,
        num_kernels_ret: *mut cl_uint,
    ) -> cl_int {
        self.count("clCreateKernelsInProgram");
        status(self.get::<Program, _>(program).and_then(|program| {
            require(program.source.is_none(), CL_INVALID_PROGRAM_EXECUTABLE)?;
            let has_room = num_kernels as usize >= program.kernels.len();
            require(kernels.is_null() || has_room, CL_INVALID_VALUE)?;
            let made: Vec<usize> = match kernels.is_null() {
                true => vec![0; program.kernels.len()],
                false => program
                    .kernels
                    .iter()
                    .map(|built_in| self.kernel(&program, *built_in))
                    .collect(),
            };
            // SAFETY: the caller's contract.
            unsafe { give_list(&made, made.len(), kernels, num_kernels_ret) };
            Ok(())
        }))
    }

    unsafe fn clCloneKernel(
        &self,
        source_kernel: cl_kernel,
        errcode_ret: *mut cl_int,
    ) -> cl_kernel {
        self.count("clCloneKernel");
        let made = self.get::<Kernel, _>(source_kernel).map(|kernel| {
            let make = |_| kernel.copy(self.alive());
            self.shared.registry.add(make).0
        });
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    unsafe fn clSetKernelArg(
        &self,
        kernel: cl_kernel,
        arg_index: cl_uint,
        arg_size: usize,
        arg_value: *const c_void,
    ) -> cl_int {
        self.count("clSetKernelArg");
        status(self.get::<Kernel, _>(kernel).and_then(|kernel| {
            let parameters = kernel.built_in.parameters();
            let parameter = parameters.get(arg_index as usize);
            let (_, parameter) = parameter.ok_or(CL_INVALID_ARG_INDEX)?;
            let argument = match parameter {
                Parameter::Buffer => {
                    require(arg_size == size_of::<cl_mem>(), CL_INVALID_ARG_SIZE)?;
                    let mut buffer: cl_mem = ptr::null_mut();
                    if !arg_value.is_null() {
                        // SAFETY: the caller's contract: readable for the size that was just checked.
                        buffer = unsafe { arg_value.cast::<cl_mem>().read_unaligned() };
                    }
                    Argument::Buffer(match buffer.is_null() {
                        true => None,
                        false => Some(self.get::<Memory, _>(buffer)?),
                    })
                }
                Parameter::Number => {
                    require(!arg_value.is_null(), CL_INVALID_ARG_VALUE)?;
                    require(arg_size == size_of::<cl_uint>(), CL_INVALID_ARG_SIZE)?;
                    // SAFETY: the caller's contract: readable for the size that was just checked.
                    Argument::Number(unsafe { arg_value.cast::<cl_uint>().read_unaligned() })
                }
            };
            kernel.set(arg_index as usize, argument);
            Ok(())
        }))
    }

    unsafe fn clGetKernelInfo(
        &self,
        kernel: cl_kernel,
        param_name: cl_kernel_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetKernelInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Kernel, _>(kernel).and_then(|object| {
            let answer = match param_name {
                CL_KERNEL_FUNCTION_NAME => text(object.built_in.name()),
                CL_KERNEL_NUM_ARGS => (object.built_in.parameters().len() as cl_uint).bytes(),
                CL_KERNEL_REFERENCE_COUNT => self.references(kernel),
                CL_KERNEL_CONTEXT => object.program.context.handle.bytes(),
                CL_KERNEL_PROGRAM => object.program.handle.bytes(),
                CL_KERNEL_ATTRIBUTES => text(""),
                _ => return Err(CL_INVALID_VALUE),
            };
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    unsafe fn clGetKernelArgInfo(
        &self,
        kernel: cl_kernel,
        arg_index: cl_uint,
        param_name: cl_kernel_arg_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetKernelArgInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Kernel, _>(kernel).and_then(|object| {
            let parameter = object.built_in.parameters().get(arg_index as usize);
            let (name, parameter) = parameter.ok_or(CL_INVALID_ARG_INDEX)?;
            let is_buffer = *parameter == Parameter::Buffer;
            let answer = match param_name {
                CL_KERNEL_ARG_ADDRESS_QUALIFIER if is_buffer => {
                    CL_KERNEL_ARG_ADDRESS_GLOBAL.bytes()
                }
                CL_KERNEL_ARG_ADDRESS_QUALIFIER => CL_KERNEL_ARG_ADDRESS_PRIVATE.bytes(),
                CL_KERNEL_ARG_ACCESS_QUALIFIER => CL_KERNEL_ARG_ACCESS_NONE.bytes(),
                CL_KERNEL_ARG_TYPE_NAME => text(if is_buffer { "uint*" } else { "uint" }),
                CL_KERNEL_ARG_TYPE_QUALIFIER => CL_KERNEL_ARG_TYPE_NONE.bytes(),
                CL_KERNEL_ARG_NAME => text(name),
                _ => return Err(CL_INVALID_VALUE),
            };
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    unsafe fn clGetKernelWorkGroupInfo(
        &self,
        kernel: cl_kernel,
        device: cl_device_id,
        param_name: cl_kernel_work_group_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetKernelWorkGroupInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Kernel, _>(kernel).and_then(|object| {
            let devices = &object.program.devices;
            let is_only = device.is_null() && devices.len() == 1;
            require(
                is_only || devices.contains(&device.addr()),
                CL_INVALID_DEVICE,
            )?;
            let answer = match param_name {
                CL_KERNEL_WORK_GROUP_SIZE => info::GROUP_LIMIT.bytes(),
                CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE => 1_usize.bytes(),
                CL_KERNEL_COMPILE_WORK_GROUP_SIZE => [0_usize; 3].bytes(),
                CL_KERNEL_GLOBAL_WORK_SIZE => [usize::MAX, 1, 1].bytes(),
                CL_KERNEL_LOCAL_MEM_SIZE | CL_KERNEL_PRIVATE_MEM_SIZE => 0_u64.bytes(),
                _ => return Err(CL_INVALID_VALUE),
            };
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    unsafe fn clEnqueueNDRangeKernel(
        &self,
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        global_work_offset: *const usize,
        global_work_size: *const usize,
        local_work_size: *const usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueNDRangeKernel");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let kernel: Arc<Kernel> = self.get(kernel)?;
            let program = &kernel.program;
            require(
                Arc::ptr_eq(&program.context, &target.0.context),
                CL_INVALID_CONTEXT,
            )?;
            require(
                program.devices.contains(&target.0.device),
                CL_INVALID_PROGRAM_EXECUTABLE,
            )?;
            require((1..=3).contains(&work_dim), CL_INVALID_WORK_DIMENSION)?;
            let dimensions = work_dim as usize;
            let read = |sizes: *const usize, default| match sizes.is_null() {
                true => Ok(vec![default; dimensions]),
                // SAFETY: the caller's contract: one size per dimension.
                false => unsafe { list(sizes, dimensions, CL_INVALID_VALUE) },
            };
            let global = read(global_work_size, 0)?;
            let offset = read(global_work_offset, 0)?;
            let local = read(local_work_size, 1)?;
            let ends = global
                .iter()
                .zip(&offset)
                .all(|(size, offset)| size.checked_add(*offset).is_some());
            require(ends, CL_INVALID_GLOBAL_OFFSET)?;
            require(!local.contains(&0), CL_INVALID_WORK_GROUP_SIZE)?;
            require(
                local.iter().all(|size| *size <= info::GROUP_LIMIT),
                CL_INVALID_WORK_ITEM_SIZE,
            )?;
            require(
                local.iter().product::<usize>() <= info::GROUP_LIMIT,
                CL_INVALID_WORK_GROUP_SIZE,
            )?;
            let divides = global
                .iter()
                .zip(&local)
                .all(|(size, local)| size.is_multiple_of(*local));
            require(divides, CL_INVALID_WORK_GROUP_SIZE)?;
            let count = global
                .iter()
                .try_fold(1_usize, |count, size| count.checked_mul(*size));
            let count = count.ok_or(CL_INVALID_GLOBAL_WORK_SIZE)?;
            let work = kernel.launch(self.shared.scheduler.clone(), offset[0], count)?;
            let how = (CL_COMMAND_NDRANGE_KERNEL, Order::Free, CL_FALSE);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, work) }
        })())
    }

    unsafe fn clEnqueueTask(
        &self,
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueTask");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let kernel: Arc<Kernel> = self.get(kernel)?;
            require(
                Arc::ptr_eq(&kernel.program.context, &target.0.context),
                CL_INVALID_CONTEXT,
            )?;
            let work = kernel.launch(self.shared.scheduler.clone(), 0, 1)?;
            let how = (CL_COMMAND_TASK, Order::Free, CL_FALSE);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, work) }
        })())
    }

    unsafe fn clEnqueueReadBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_read: cl_bool,
        offset: usize,
        size: usize,
        ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueReadBuffer");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let buffer = self.buffer(&target.0, buffer)?;
            buffer.range(offset, size)?;
            require(!ptr.is_null(), CL_INVALID_VALUE)?;
            buffer.host_may(true, false)?;
            let host = Place::new(ptr);
            let how = (CL_COMMAND_READ_BUFFER, Order::Free, blocking_read);
            let work = Box::new(move || {
                // SAFETY: the range was checked; the caller's contract: `ptr` is writable for `size` until the command ends.
                unsafe { host.copy_from(buffer.place.at(offset), size) };
                Ok(())
            });
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, work) }
        })())
    }

    unsafe fn clEnqueueWriteBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_write: cl_bool,
        offset: usize,
        size: usize,
        ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueWriteBuffer");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let buffer = self.buffer(&target.0, buffer)?;
            buffer.range(offset, size)?;
            require(!ptr.is_null(), CL_INVALID_VALUE)?;
            buffer.host_may(false, true)?;
            let host = Place::new(ptr);
            let how = (CL_COMMAND_WRITE_BUFFER, Order::Free, blocking_write);
            let work = Box::new(move || {
                // SAFETY: the range was checked; the caller's contract: `ptr` is readable for `size` until the command ends.
                unsafe { buffer.place.at(offset).copy_from(host, size) };
                Ok(())
            });
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, work) }
        })())
    }

    unsafe fn clEnqueueReadBufferRect(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_read: cl_bool,
        buffer_origin: *const usize,
        host_origin: *const usize,
        region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueReadBufferRect");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let sizes = (buffer_origin, host_origin, region);
            let pitches = (
                (buffer_row_pitch, buffer_slice_pitch),
                (host_row_pitch, host_slice_pitch),
            );
            // SAFETY: the caller's contract.
            let work =
                unsafe { self.host_rect(&target.0, buffer, sizes, pitches, ptr, COPY_HOST) }?;
            let how = (CL_COMMAND_READ_BUFFER_RECT, Order::Free, blocking_read);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, work) }
        })())
    }

    unsafe fn clEnqueueWriteBufferRect(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_write: cl_bool,
        buffer_origin: *const usize,
        host_origin: *const usize,
        region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueWriteBufferRect");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let sizes = (buffer_origin, host_origin, region);
            let pitches = (
                (buffer_row_pitch, buffer_slice_pitch),
                (host_row_pitch, host_slice_pitch),
            );
            // SAFETY: the caller's contract.
            let work =
                unsafe { self.host_rect(&target.0, buffer, sizes, pitches, ptr, WRITE_HOST) }?;
            let how = (CL_COMMAND_WRITE_BUFFER_RECT, Order::Free, blocking_write);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, work) }
        })())
    }

    unsafe fn clEnqueueFillBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        pattern: *const c_void,
        pattern_size: usize,
        offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueFillBuffer");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let buffer = self.buffer(&target.0, buffer)?;
            buffer.range(offset, size)?;
            let is_size = pattern_size.is_power_of_two() && pattern_size <= 128;
            require(is_size && !pattern.is_null(), CL_INVALID_VALUE)?;
            let divides = offset.is_multiple_of(pattern_size) && size.is_multiple_of(pattern_size);
            require(divides, CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            let pattern = unsafe { list(pattern.cast::<u8>(), pattern_size, CL_INVALID_VALUE) }?;
            let work = Box::new(move || {
                let source = Place::new(pattern.as_ptr().cast());
                for at in (offset..offset + size).step_by(pattern.len()) {
                    // SAFETY: the range was checked, and the pattern divides it.
                    unsafe { buffer.place.at(at).copy_from(source, pattern.len()) };
                }
                Ok(())
            });
            let how = (CL_COMMAND_FILL_BUFFER, Order::Free, CL_FALSE);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, work) }
        })())
    }

    unsafe fn clEnqueueCopyBuffer(
        &self,
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        src_offset: usize,
        dst_offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueCopyBuffer");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let source = self.buffer(&target.0, src_buffer)?;
            let destination = self.buffer(&target.0, dst_buffer)?;
            source.range(src_offset, size)?;
            destination.range(dst_offset, size)?;
            let (source_root, source_start) = source.root();
            let (destination_root, destination_start) = destination.root();
            let (from, to) = (source_start + src_offset, destination_start + dst_offset);
            let overlaps = source_root == destination_root && from.abs_diff(to) < size;
            require(!overlaps, CL_MEM_COPY_OVERLAP)?;
            let work = Box::new(move || {
                let (to, from) = (
                    destination.place.at(dst_offset),
                    source.place.at(src_offset),
                );
                // SAFETY: both ranges were checked.
                unsafe { to.copy_from(from, size) };
                Ok(())
            });
            let how = (CL_COMMAND_COPY_BUFFER, Order::Free, CL_FALSE);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, work) }
        })())
    }

    unsafe fn clEnqueueCopyBufferRect(
        &self,
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        src_origin: *const usize,
        dst_origin: *const usize,
        region: *const usize,
        src_row_pitch: usize,
        src_slice_pitch: usize,
        dst_row_pitch: usize,
        dst_slice_pitch: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueCopyBufferRect");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let source = self.buffer(&target.0, src_buffer)?;
            let destination = self.buffer(&target.0, dst_buffer)?;
            // SAFETY: the caller's contract.
            let region = unsafe { triple(region) }?;
            // SAFETY: as above.
            let from = Rect::new(
                unsafe { triple(src_origin) }?,
                src_row_pitch,
                src_slice_pitch,
                region,
            )?;
            // SAFETY: as above.
            let to = Rect::new(
                unsafe { triple(dst_origin) }?,
                dst_row_pitch,
                dst_slice_pitch,
                region,
            )?;
            source.range(0, from.end(region).ok_or(CL_INVALID_VALUE)?)?;
            destination.range(0, to.end(region).ok_or(CL_INVALID_VALUE)?)?;
            if source.handle == destination.handle {
                let same_pitches =
                    (from.row_pitch, from.slice_pitch) == (to.row_pitch, to.slice_pitch);
                require(same_pitches, CL_INVALID_VALUE)?;
            }
            require(
                !memory::overlaps((&source, from), (&destination, to), region),
                CL_MEM_COPY_OVERLAP,
            )?;
            let work = Box::new(move || {
                // SAFETY: both regions were checked, and that they do not overlap.
                unsafe { copy_rect((destination.place, to), (source.place, from), region) };
                Ok(())
            });
            let how = (CL_COMMAND_COPY_BUFFER_RECT, Order::Free, CL_FALSE);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, work) }
        })())
    }

    unsafe fn clEnqueueMapBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_map: cl_bool,
        map_flags: cl_map_flags,
        offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
        errcode_ret: *mut cl_int,
    ) -> *mut c_void {
        self.count("clEnqueueMapBuffer");
        let mapped = (|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let buffer = self.buffer(&target.0, buffer)?;
            buffer.range(offset, size)?;
            const KNOWN: cl_map_flags = CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
            let invalidates = map_flags & CL_MAP_WRITE_INVALIDATE_REGION != 0;
            let is_alone = map_flags == CL_MAP_WRITE_INVALIDATE_REGION;
            let are_known = map_flags & !KNOWN == 0 && (!invalidates || is_alone);
            require(are_known && size > 0, CL_INVALID_VALUE)?;
            let writes = map_flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0;
            buffer.host_may(map_flags & CL_MAP_READ != 0, writes)?;
            let place = buffer.map(offset);
            let how = (CL_COMMAND_MAP_BUFFER, Order::Free, blocking_map);
            let kept = buffer.clone();
            let work = Box::new(move || {
                drop(kept);
                Ok(())
            });
            // SAFETY: the caller's contract.
            let done = unsafe { self.submit(target, how, event, work) };
            if done.is_err() {
                buffer.unmap(place.pointer().addr());
            }
            done.map(|()| place.pointer())
        })();
        // SAFETY: the caller's contract.
        unsafe { put(errcode_ret, mapped.err().unwrap_or(CL_SUCCESS)) };
        mapped.map_or(ptr::null_mut(), |place| place.cast())
    }

    unsafe fn clEnqueueUnmapMemObject(
        &self,
        command_queue: cl_command_queue,
        memobj: cl_mem,
        mapped_ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueUnmapMemObject");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let buffer = self.buffer(&target.0, memobj)?;
            let address = mapped_ptr.addr();
            require(buffer.is_mapped_at(address), CL_INVALID_VALUE)?;
            let work = Box::new(move || {
                buffer.unmap(address);
                Ok(())
            });
            let how = (CL_COMMAND_UNMAP_MEM_OBJECT, Order::Free, CL_FALSE);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, work) }
        })())
    }

    unsafe fn clEnqueueMigrateMemObjects(
        &self,
        command_queue: cl_command_queue,
        num_mem_objects: cl_uint,
        mem_objects: *const cl_mem,
        flags: cl_mem_migration_flags,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueMigrateMemObjects");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let known = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
            require(num_mem_objects > 0 && flags & !known == 0, CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            for object in unsafe { list(mem_objects, num_mem_objects as usize, CL_INVALID_VALUE) }?
            {
                self.buffer(&target.0, object)?;
            }
            let how = (CL_COMMAND_MIGRATE_MEM_OBJECTS, Order::Free, CL_FALSE);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, Box::new(|| Ok(()))) }
        })())
    }

    unsafe fn clEnqueueMarkerWithWaitList(
        &self,
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueMarkerWithWaitList");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let how = (CL_COMMAND_MARKER, Order::Marker, CL_FALSE);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, Box::new(|| Ok(()))) }
        })())
    }

    unsafe fn clEnqueueBarrierWithWaitList(
        &self,
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueBarrierWithWaitList");
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let how = (CL_COMMAND_BARRIER, Order::Barrier, CL_FALSE);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, Box::new(|| Ok(()))) }
        })())
    }

    unsafe fn clEnqueueMarker(
        &self,
        command_queue: cl_command_queue,
        event: *mut cl_event,
    ) -> cl_int {
        self.count("clEnqueueMarker");
        if event.is_null() {
            return CL_INVALID_VALUE;
        }
        // SAFETY: the caller's contract, passed on.
        unsafe { self.clEnqueueMarkerWithWaitList(command_queue, 0, ptr::null(), event) }
    }

    unsafe fn clEnqueueBarrier(&self, command_queue: cl_command_queue) -> cl_int {
        self.count("clEnqueueBarrier");
        let none = ptr::null_mut();
        // SAFETY: the caller's contract, passed on.
        unsafe { self.clEnqueueBarrierWithWaitList(command_queue, 0, ptr::null(), none) }
    }

    unsafe fn clEnqueueWaitForEvents(
        &self,
        command_queue: cl_command_queue,
        num_events: cl_uint,
        event_list: *const cl_event,
    ) -> cl_int {
        self.count("clEnqueueWaitForEvents");
        if num_events == 0 || event_list.is_null() {
            return CL_INVALID_VALUE;
        }
        let none = ptr::null_mut();
        // SAFETY: the caller's contract, passed on.
        unsafe { self.clEnqueueBarrierWithWaitList(command_queue, num_events, event_list, none) }
    }

    unsafe fn clCreateUserEvent(&self, context: cl_context, errcode_ret: *mut cl_int) -> cl_event {
        self.count("clCreateUserEvent");
        let made = self.get::<Context, _>(context).map(|context| {
            let event = Event::new(&self.shared.scheduler, context, None, CL_COMMAND_USER);
            self.shared.registry.publish(Arc::new(event))
        });
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    unsafe fn clSetUserEventStatus(&self, event: cl_event, execution_status: cl_int) -> cl_int {
        self.count("clSetUserEventStatus");
        status(self.get::<Event, _>(event).and_then(|event| {
            require(event.queue.is_none(), CL_INVALID_EVENT)?;
            require(execution_status <= CL_COMPLETE, CL_INVALID_VALUE)?;
            event.end(&self.shared.scheduler, execution_status)
        }))
    }

    unsafe fn clWaitForEvents(&self, num_events: cl_uint, event_list: *const cl_event) -> cl_int {
        self.count("clWaitForEvents");
        status((|| {
            require(num_events > 0, CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            let events = unsafe { list(event_list, num_events as usize, CL_INVALID_VALUE) }?;
            let events: Result<Vec<Arc<Event>>, _> =
                events.into_iter().map(|event| self.get(event)).collect();
            let events = events?;
            let context = events.first().map(|event| event.context.handle);
            let is_one = events
                .iter()
                .all(|event| Some(event.context.handle) == context);
            require(is_one, CL_INVALID_CONTEXT)?;
            self.shared.scheduler.wait_for_all(&events)
        })())
    }

    unsafe fn clGetEventInfo(
        &self,
        event: cl_event,
        param_name: cl_event_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetEventInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Event, _>(event).and_then(|object| {
            let references = self.shared.registry.references(event);
            let answer = object.describe(param_name, object.context.handle, references)?;
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    unsafe fn clSetEventCallback(
        &self,
        event: cl_event,
        command_exec_callback_type: cl_int,
        pfn_notify: Option<unsafe extern "C" fn(cl_event, cl_int, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int {
        self.count("clSetEventCallback");
        status(self.get::<Event, _>(event).and_then(|object| {
            let function = pfn_notify.ok_or(CL_INVALID_VALUE)?;
            let is_type = (CL_COMPLETE..=CL_SUBMITTED).contains(&command_exec_callback_type);
            require(is_type, CL_INVALID_VALUE)?;
            let (number, data) = (event.addr(), user_data.expose_provenance());
            self.shared.registry.hold::<Event>(number)?;
            let shared = Arc::downgrade(&self.shared);
            let call = Box::new(move |status| {
                let data = ptr::with_exposed_provenance_mut(data);
                // SAFETY: the application gave this function to be called with its pointer at this status; the handle is held.
                unsafe { function(handle(number), status, data) };
                if let Some(shared) = shared.upgrade() {
                    shared.registry.let_go::<Event>(number);
                }
            });
            let at = command_exec_callback_type;
            self.shared.scheduler.on_status(&object, at, call);
            Ok(())
        }))
    }

    unsafe fn clGetEventProfilingInfo(
        &self,
        event: cl_event,
        param_name: cl_profiling_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.count("clGetEventProfilingInfo");
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Event, _>(event).and_then(|object| {
            let time = object.time(param_name)?;
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&time.bytes()) }
        }))
    }
}
