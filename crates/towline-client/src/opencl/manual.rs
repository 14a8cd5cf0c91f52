//! The hand-written halves of API calls: C pointers in, the methods of the other modules, C pointers out.

use super::event::status_of;
use super::image::Image;
use super::recipe::Origin;
use super::transfer::{Command, Host, Place, shape};
use super::*;
use crate::raw;

/// Flags that name or ask for client memory; the platform layer gives them their meaning.
const HOST_FLAGS: cl_mem_flags =
    (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR | CL_MEM_ALLOC_HOST_PTR) as cl_mem_flags;
/// Initial contents up to this size travel with the creation of a buffer.
const CONTENTS_LIMIT: usize = 32 << 20;

/// Gives a creating call's result and status.
///
/// # Safety
/// `errcode` is NULL or writable.
unsafe fn created<T>(result: Result<*mut T, cl_int>, errcode: *mut cl_int) -> *mut T {
    let (handle, status) = match result {
        Ok(handle) => (handle, CL_SUCCESS),
        Err(status) => (std::ptr::null_mut(), status),
    };
    // SAFETY: the caller's contract.
    unsafe { tell(errcode, status) };
    handle
}

/// Three sizes at a pointer.
///
/// # Safety
/// `at` is readable for three elements.
unsafe fn triple(at: *const usize) -> Option<[usize; 3]> {
    // SAFETY: the caller's contract.
    unsafe { raw::slice(at, 3) }
        .filter(|list| list.len() == 3)
        .map(|list| [list[0], list[1], list[2]])
}

impl Remote {
    #[allow(clippy::too_many_arguments, reason = "the parameters of two API calls")]
    unsafe fn create_buffer(
        &self,
        context: cl_context,
        properties: Option<&[u64]>,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
    ) -> Result<cl_mem, cl_int> {
        let created = wire::MemHandle(self.mint(wire::MemHandle::TAG));
        let wanted = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) as cl_mem_flags != 0;
        let contents = match wanted && !host_ptr.is_null() {
            true if size > CONTENTS_LIMIT => return Err(CL_OUT_OF_HOST_MEMORY),
            // SAFETY: the caller's contract: the host pointer is readable for the buffer's size.
            true => unsafe { raw::slice(host_ptr.cast::<u8>().cast_const(), size) },
            false => None,
        };
        let copy = if contents.is_some() {
            CL_MEM_COPY_HOST_PTR as cl_mem_flags
        } else {
            0
        };
        let (context, flags) = (
            wire::ContextHandle::from_raw(context),
            ((flags & !HOST_FLAGS) | copy) as u64,
        );
        let size = size as u64;
        // Contents are not kept: the server has them.
        let bare = flags & !(CL_MEM_COPY_HOST_PTR as u64);
        match properties {
            None => {
                let request = |flags, host_ptr| wire::CreateBuffer {
                    context,
                    flags,
                    size,
                    host_ptr,
                    created,
                };
                self.post(&request(flags, contents))?;
                self.made(created.0, &request(bare, None));
            }
            Some(list) => {
                let request = |flags, host_ptr| wire::CreateBufferWithProperties {
                    context,
                    properties: Some(wire::List::Values(list)),
                    flags,
                    size,
                    host_ptr,
                    created,
                };
                self.post(&request(flags, contents))?;
                self.made(created.0, &request(bare, None));
            }
        }
        Ok(created.to_raw())
    }

    unsafe fn create_image(
        &self,
        context: cl_context,
        properties: Option<&[u64]>,
        flags: cl_mem_flags,
        format: *const cl_image_format,
        desc: *const cl_image_desc,
    ) -> Result<cl_mem, cl_int> {
        // SAFETY: the caller's contract: NULL or readable.
        let format = *unsafe { raw::slice(format, 1) }
            .and_then(<[_]>::first)
            .ok_or(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        // SAFETY: as above.
        let desc = *unsafe { raw::slice(desc, 1) }
            .and_then(<[_]>::first)
            .ok_or(CL_INVALID_IMAGE_DESCRIPTOR)?;
        let created = wire::MemHandle(self.mint(wire::MemHandle::TAG));
        lock(&self.images).insert(created.0, Image::new(&format, &desc));
        // Pitches describe a host pointer, which does not travel, or a buffer, which does.
        let mut wire_desc = wire::ImageDesc::from(desc);
        if desc.mem_object.is_null() {
            (wire_desc.image_row_pitch, wire_desc.image_slice_pitch) = (0, 0);
        }
        let (context, flags) = (
            wire::ContextHandle::from_raw(context),
            (flags & !HOST_FLAGS) as u64,
        );
        let image_format = wire::ImageFormat::from(format);
        match properties {
            None => {
                let request = wire::CreateImage {
                    context,
                    flags,
                    image_format,
                    image_desc: wire_desc,
                    created,
                };
                self.post(&request)?;
                self.made(created.0, &request);
            }
            Some(list) => {
                let request = wire::CreateImageWithProperties {
                    context,
                    properties: Some(wire::List::Values(list)),
                    flags,
                    image_format,
                    image_desc: wire_desc,
                    created,
                };
                self.post(&request)?;
                self.made(created.0, &request);
            }
        }
        Ok(created.to_raw())
    }

    /// Image regions in elements, with the application's pitches.
    unsafe fn image_place(
        &self,
        image: cl_mem,
        origin: *const usize,
        region: *const usize,
        row_pitch: usize,
        slice_pitch: usize,
        start: *mut c_void,
    ) -> Result<(Place, Host), cl_int> {
        let known = *lock(&self.images)
            .get(&(image.addr() as u64))
            .ok_or(CL_INVALID_MEM_OBJECT)?;
        // SAFETY: the caller's contract: three elements each.
        let origin = unsafe { triple(origin) }.ok_or(CL_INVALID_VALUE)?;
        // SAFETY: as above.
        let region = unsafe { triple(region) }.ok_or(CL_INVALID_VALUE)?;
        let row = if row_pitch == 0 {
            region[0] * known.element
        } else {
            row_pitch
        };
        let row = if known.layers_in_rows && slice_pitch != 0 {
            slice_pitch
        } else {
            row
        };
        let slice = if slice_pitch == 0 || known.layers_in_rows {
            row * region[1]
        } else {
            slice_pitch
        };
        let place = Place {
            shape: shape::IMAGE,
            origin,
            region,
            row_pitch: 0,
            slice_pitch: 0,
            element: known.element,
        };
        Ok((
            place,
            Host {
                start: start.cast(),
                row_pitch: row,
                slice_pitch: slice,
            },
        ))
    }
}

/// Rectangles in bytes, with the pitches of both sides filled in.
#[allow(
    clippy::too_many_arguments,
    reason = "the parameters of the rectangular transfers"
)]
unsafe fn rect(
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row_pitch: usize,
    buffer_slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    start: *mut c_void,
) -> Option<(Place, Host)> {
    // SAFETY: the caller's contract: three elements each.
    let origin = unsafe { triple(buffer_origin) }?;
    // SAFETY: as above.
    let host_origin = unsafe { triple(host_origin) }?;
    // SAFETY: as above.
    let region = unsafe { triple(region) }?;
    let filled = |row: usize, slice: usize| {
        let row = if row == 0 { region[0] } else { row };
        (row, if slice == 0 { row * region[1] } else { slice })
    };
    let (row_pitch, slice_pitch) = filled(buffer_row_pitch, buffer_slice_pitch);
    let (host_row, host_slice) = filled(host_row_pitch, host_slice_pitch);
    let within = host_origin[2] * host_slice + host_origin[1] * host_row + host_origin[0];
    let place = Place {
        shape: shape::RECT,
        origin,
        region,
        row_pitch,
        slice_pitch,
        element: 1,
    };
    Some((
        place,
        Host {
            start: start.cast::<u8>().wrapping_add(within),
            row_pitch: host_row,
            slice_pitch: host_slice,
        },
    ))
}

/// Events at a pointer.
///
/// # Safety
/// `list` is NULL or readable for `count` events.
unsafe fn events<'a>(list: *const cl_event, count: cl_uint) -> &'a [cl_event] {
    // SAFETY: the caller's contract.
    unsafe { raw::slice(list, count as usize) }.unwrap_or_default()
}

#[allow(non_snake_case, clippy::too_many_arguments)]
impl ManualCalls for Remote {
    unsafe fn clGetPlatformIDs(
        &self,
        num_entries: cl_uint,
        platforms: *mut cl_platform_id,
        num_platforms: *mut cl_uint,
    ) -> cl_int {
        self.get_platform_ids(num_entries, platforms, num_platforms)
    }

    unsafe fn clGetPlatformInfo(
        &self,
        platform: cl_platform_id,
        param_name: cl_platform_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.get_platform_info(
            platform,
            param_name,
            param_value_size,
            param_value,
            param_value_size_ret,
        )
    }

    unsafe fn clGetDeviceIDs(
        &self,
        platform: cl_platform_id,
        device_type: cl_device_type,
        num_entries: cl_uint,
        devices: *mut cl_device_id,
        num_devices: *mut cl_uint,
    ) -> cl_int {
        self.get_device_ids(platform, device_type, num_entries, devices, num_devices)
    }

    unsafe fn clGetDeviceInfo(
        &self,
        device: cl_device_id,
        param_name: cl_device_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.get_device_info(
            device,
            param_name,
            param_value_size,
            param_value,
            param_value_size_ret,
        )
    }

    unsafe fn clCreateSubDevices(
        &self,
        in_device: cl_device_id,
        properties: *const cl_device_partition_property,
        num_devices: cl_uint,
        out_devices: *mut cl_device_id,
        num_devices_ret: *mut cl_uint,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let list = unsafe { zero_ended(properties) };
        self.create_sub_devices(in_device, &list, num_devices, out_devices, num_devices_ret)
    }

    unsafe fn clGetDeviceAndHostTimer(
        &self,
        device: cl_device_id,
        device_timestamp: *mut cl_ulong,
        host_timestamp: *mut cl_ulong,
    ) -> cl_int {
        match self.device_timers(device) {
            Ok((device_time, host_time)) => {
                // SAFETY: the caller's contract of the C function.
                unsafe { raw::fill(device_timestamp, 1, [device_time].into_iter()) };
                // SAFETY: as above.
                unsafe { raw::fill(host_timestamp, 1, [host_time].into_iter()) };
                CL_SUCCESS
            }
            Err(status) => status,
        }
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
        let _ = (properties, user_data);
        // SAFETY: the caller's contract of the C function.
        let devices = unsafe { raw::slice(devices, num_devices as usize) }.unwrap_or_default();
        let devices: Vec<wire::DeviceHandle> = devices
            .iter()
            .map(|device| wire::DeviceHandle::from_raw(*device))
            .collect();
        let created = wire::ContextHandle(self.mint(wire::ContextHandle::TAG));
        // Platform properties name objects of this process; the worker's platform follows from the devices.
        let request = wire::CreateContext {
            properties: None,
            num_devices: devices.len() as u32,
            devices: wire::List::Values(&devices),
            notify: pfn_notify.is_some(),
            created,
        };
        let posted = self.post(&request);
        if posted.is_ok() {
            self.made(created.0, &request);
        }
        // SAFETY: the caller's contract of the C function.
        unsafe { self::created(posted.map(|()| created.to_raw()), errcode_ret) }
    }

    unsafe fn clSetDefaultDeviceCommandQueue(
        &self,
        context: cl_context,
        device: cl_device_id,
        command_queue: cl_command_queue,
    ) -> cl_int {
        let request = wire::SetDefaultDeviceCommandQueue {
            context: wire::ContextHandle::from_raw(context),
            device: wire::DeviceHandle::from_raw(device),
            command_queue: wire::CommandQueueHandle::from_raw(command_queue),
        };
        let posted = self.post(&request);
        if posted.is_ok() {
            let key = (request.context.0, request.device.0);
            self.recipes.set_default(key, request.command_queue.0);
        }
        status_of(posted)
    }

    unsafe fn clFinish(&self, command_queue: cl_command_queue) -> cl_int {
        self.finish(command_queue)
    }

    unsafe fn clCreateBuffer(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        // SAFETY: the caller's contract of the C function.
        let result = unsafe { self.create_buffer(context, None, flags, size, host_ptr) };
        // SAFETY: the caller's contract of the C function.
        unsafe { created(result, errcode_ret) }
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
        // SAFETY: the caller's contract of the C function.
        let list = unsafe { raw::pairs(properties.cast()) };
        // SAFETY: the caller's contract of the C function.
        let result = unsafe { self.create_buffer(context, list.as_deref(), flags, size, host_ptr) };
        // SAFETY: the caller's contract of the C function.
        unsafe { created(result, errcode_ret) }
    }

    unsafe fn clReleaseMemObject(&self, memobj: cl_mem) -> cl_int {
        lock(&self.images).remove(&(memobj.addr() as u64));
        self.ended(memobj.addr() as u64);
        status_of(self.post(&wire::ReleaseMemObject {
            memobj: wire::MemHandle::from_raw(memobj),
        }))
    }

    unsafe fn clCreateImage(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        image_format: *const cl_image_format,
        image_desc: *const cl_image_desc,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        let _ = host_ptr;
        // SAFETY: the caller's contract of the C function.
        let result = unsafe { self.create_image(context, None, flags, image_format, image_desc) };
        // SAFETY: the caller's contract of the C function.
        unsafe { created(result, errcode_ret) }
    }

    unsafe fn clCreateImageWithProperties(
        &self,
        context: cl_context,
        properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        image_format: *const cl_image_format,
        image_desc: *const cl_image_desc,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        let _ = host_ptr;
        // SAFETY: the caller's contract of the C function.
        let list = unsafe { raw::pairs(properties.cast()) };
        // SAFETY: the caller's contract of the C function.
        let result =
            unsafe { self.create_image(context, list.as_deref(), flags, image_format, image_desc) };
        // SAFETY: the caller's contract of the C function.
        unsafe { created(result, errcode_ret) }
    }

    unsafe fn clCreateProgramWithSource(
        &self,
        context: cl_context,
        count: cl_uint,
        strings: *mut *const c_char,
        lengths: *const usize,
        errcode_ret: *mut cl_int,
    ) -> cl_program {
        // SAFETY: the caller's contract of the C function.
        let strings =
            unsafe { raw::slice(strings.cast_const(), count as usize) }.unwrap_or_default();
        // SAFETY: the caller's contract of the C function.
        let lengths =
            unsafe { raw::slice(lengths, if lengths.is_null() { 0 } else { count as usize }) }
                .unwrap_or_default();
        let mut source = Vec::new();
        for (index, string) in strings.iter().enumerate() {
            let part = match lengths.get(index).copied().filter(|length| *length > 0) {
                // SAFETY: the caller's contract: a length counts the bytes of its string.
                Some(length) => unsafe { raw::slice(string.cast::<u8>(), length) },
                // SAFETY: the caller's contract: without a length the string ends with a NUL.
                None => unsafe { raw::text(*string) },
            };
            source.extend_from_slice(part.unwrap_or_default());
        }
        let result = self.create_program_source(context, &source);
        // SAFETY: the caller's contract of the C function.
        unsafe { created(result, errcode_ret) }
    }

    unsafe fn clCreateProgramWithBinary(
        &self,
        context: cl_context,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        lengths: *const usize,
        binaries: *mut *const u8,
        binary_status: *mut cl_int,
        errcode_ret: *mut cl_int,
    ) -> cl_program {
        // SAFETY: the caller's contract of the C function.
        let devices = unsafe { raw::slice(device_list, num_devices as usize) }.unwrap_or_default();
        // SAFETY: the caller's contract of the C function.
        let lengths = unsafe { raw::slice(lengths, num_devices as usize) }.unwrap_or_default();
        // SAFETY: the caller's contract of the C function.
        let pointers =
            unsafe { raw::slice(binaries.cast_const(), num_devices as usize) }.unwrap_or_default();
        let parts: Vec<&[u8]> = pointers
            .iter()
            .zip(lengths)
            // SAFETY: the caller's contract: each binary has its length.
            .map(|(binary, length)| unsafe { raw::slice(*binary, *length) }.unwrap_or_default())
            .collect();
        let (verdicts, result) = self.create_program_binary(context, devices, &parts);
        // SAFETY: the caller's contract of the C function.
        unsafe { raw::fill(binary_status, num_devices as usize, verdicts.into_iter()) };
        // SAFETY: the caller's contract of the C function.
        unsafe { created(result, errcode_ret) }
    }

    unsafe fn clCreateProgramWithBuiltInKernels(
        &self,
        context: cl_context,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        kernel_names: *const c_char,
        errcode_ret: *mut cl_int,
    ) -> cl_program {
        // SAFETY: the caller's contract of the C function.
        let devices = unsafe { raw::slice(device_list, num_devices as usize) }.unwrap_or_default();
        let devices: Vec<wire::DeviceHandle> = devices
            .iter()
            .map(|device| wire::DeviceHandle::from_raw(*device))
            .collect();
        // SAFETY: the caller's contract of the C function.
        let kernel_names = unsafe { raw::text(kernel_names) }.unwrap_or_default();
        let id = wire::ProgramHandle(self.mint(wire::ProgramHandle::TAG));
        let request = wire::CreateProgramWithBuiltInKernels {
            context: wire::ContextHandle::from_raw(context),
            num_devices: devices.len() as u32,
            device_list: wire::List::Values(&devices),
            kernel_names,
            created: id,
        };
        let posted = self.post(&request);
        self.new_program(id.0, None, Origin::given(&request));
        // SAFETY: the caller's contract of the C function.
        unsafe { created(posted.map(|()| id.to_raw()), errcode_ret) }
    }

    unsafe fn clCreateProgramWithIL(
        &self,
        context: cl_context,
        il: *const c_void,
        length: usize,
        errcode_ret: *mut cl_int,
    ) -> cl_program {
        // SAFETY: the caller's contract of the C function.
        let il = unsafe { raw::slice(il.cast::<u8>(), length) }.unwrap_or_default();
        let id = wire::ProgramHandle(self.mint(wire::ProgramHandle::TAG));
        let request = wire::CreateProgramWithIL {
            context: wire::ContextHandle::from_raw(context),
            il,
            length: il.len() as u64,
            created: id,
        };
        let posted = self.post(&request);
        self.new_program(id.0, None, Origin::given(&request));
        // SAFETY: the caller's contract of the C function.
        unsafe { created(posted.map(|()| id.to_raw()), errcode_ret) }
    }

    unsafe fn clReleaseProgram(&self, program: cl_program) -> cl_int {
        self.release_program(program)
    }

    unsafe fn clBuildProgram(
        &self,
        program: cl_program,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        options: *const c_char,
        pfn_notify: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let devices = unsafe { raw::slice(device_list, num_devices as usize) }.unwrap_or_default();
        // SAFETY: the caller's contract of the C function.
        let options = unsafe { raw::text(options) };
        let status = self.build(program, devices, options);
        if let Some(notify) = pfn_notify {
            // SAFETY: the caller's own function, with its own data.
            unsafe { notify(program, user_data) };
        }
        status
    }

    unsafe fn clCompileProgram(
        &self,
        program: cl_program,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        options: *const c_char,
        num_input_headers: cl_uint,
        input_headers: *const cl_program,
        header_include_names: *mut *const c_char,
        pfn_notify: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let devices = unsafe { raw::slice(device_list, num_devices as usize) }.unwrap_or_default();
        // SAFETY: the caller's contract of the C function.
        let options = unsafe { raw::text(options) };
        // SAFETY: the caller's contract of the C function.
        let programs =
            unsafe { raw::slice(input_headers, num_input_headers as usize) }.unwrap_or_default();
        // SAFETY: the caller's contract of the C function.
        let names = unsafe {
            raw::slice(
                header_include_names.cast_const(),
                num_input_headers as usize,
            )
        }
        .unwrap_or_default();
        let headers: Vec<(cl_program, &[u8])> = programs
            .iter()
            .zip(names)
            // SAFETY: the caller's contract: names end with a NUL.
            .map(|(program, name)| (*program, unsafe { raw::text(*name) }.unwrap_or_default()))
            .collect();
        let status = self.compile(program, devices, options, &headers);
        if let Some(notify) = pfn_notify {
            // SAFETY: the caller's own function, with its own data.
            unsafe { notify(program, user_data) };
        }
        status
    }

    unsafe fn clLinkProgram(
        &self,
        context: cl_context,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        options: *const c_char,
        num_input_programs: cl_uint,
        input_programs: *const cl_program,
        pfn_notify: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
        user_data: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_program {
        // SAFETY: the caller's contract of the C function.
        let devices = unsafe { raw::slice(device_list, num_devices as usize) }.unwrap_or_default();
        // SAFETY: the caller's contract of the C function.
        let options = unsafe { raw::text(options) };
        // SAFETY: the caller's contract of the C function.
        let programs =
            unsafe { raw::slice(input_programs, num_input_programs as usize) }.unwrap_or_default();
        let (program, status) = self.link_programs(context, devices, options, programs);
        // SAFETY: the caller's contract of the C function.
        unsafe { tell(errcode_ret, status) };
        if let Some(notify) = pfn_notify {
            // SAFETY: the caller's own function, with its own data.
            unsafe { notify(program, user_data) };
        }
        program
    }

    unsafe fn clSetProgramSpecializationConstant(
        &self,
        program: cl_program,
        spec_id: cl_uint,
        spec_size: usize,
        spec_value: *const c_void,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        match unsafe { raw::slice(spec_value.cast::<u8>(), spec_size) } {
            Some(value) => self.set_constant(program, spec_id, value),
            None => CL_INVALID_VALUE,
        }
    }

    unsafe fn clGetProgramInfo(
        &self,
        program: cl_program,
        param_name: cl_program_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        if param_name == CL_PROGRAM_BINARIES {
            let parts = match self.binaries(program) {
                Ok(parts) => parts,
                Err(status) => return status,
            };
            let room = param_value_size / size_of::<*mut u8>();
            if !param_value.is_null() && room < parts.len() {
                return CL_INVALID_VALUE;
            }
            // SAFETY: the caller's contract: an array of pointers, each NULL or writable for its binary.
            let targets = unsafe {
                raw::slice(
                    param_value.cast::<*mut u8>().cast_const(),
                    if param_value.is_null() {
                        0
                    } else {
                        parts.len()
                    },
                )
            };
            for (target, part) in targets.unwrap_or_default().iter().zip(&parts) {
                // SAFETY: as above.
                unsafe { raw::fill(*target, part.len(), part.iter().copied()) };
            }
            // SAFETY: the caller's contract: NULL or writable.
            unsafe {
                raw::fill(
                    param_value_size_ret,
                    1,
                    [parts.len() * size_of::<*mut u8>()].into_iter(),
                )
            };
            return CL_SUCCESS;
        }
        let request = wire::GetProgramInfo {
            program: wire::ProgramHandle::from_raw(program),
            param_name,
            param_value_size: param_value_size as u64,
            want_param_value: !param_value.is_null(),
        };
        let body = match self.call(&request) {
            Ok(body) => body,
            Err(status) => return status,
        };
        let Ok(reply) = wire::GetProgramInfoReply::decode(&body) else {
            return self.malformed();
        };
        let bytes = reply.param_value.unwrap_or_default();
        // SAFETY: the caller's contract: room for `param_value_size` bytes, which `fill` does not exceed.
        unsafe {
            raw::fill(
                param_value.cast::<u8>(),
                param_value_size,
                bytes.iter().copied(),
            )
        };
        // SAFETY: the caller's contract: NULL or writable.
        unsafe {
            raw::fill(
                param_value_size_ret,
                1,
                [reply.param_value_size_ret as usize].into_iter(),
            )
        };
        CL_SUCCESS
    }

    unsafe fn clCreateKernel(
        &self,
        program: cl_program,
        kernel_name: *const c_char,
        errcode_ret: *mut cl_int,
    ) -> cl_kernel {
        // SAFETY: the caller's contract of the C function.
        let name = unsafe { raw::text(kernel_name) };
        let result = name
            .ok_or(CL_INVALID_VALUE)
            .and_then(|name| self.create_kernel(program, name));
        // SAFETY: the caller's contract of the C function.
        unsafe { created(result, errcode_ret) }
    }

    unsafe fn clCreateKernelsInProgram(
        &self,
        program: cl_program,
        num_kernels: cl_uint,
        kernels: *mut cl_kernel,
        num_kernels_ret: *mut cl_uint,
    ) -> cl_int {
        let facts = match self.facts_of(program) {
            Ok(facts) => facts,
            Err(status) => return status,
        };
        if !kernels.is_null() && (num_kernels as usize) < facts.kernels.len() {
            return CL_INVALID_VALUE;
        }
        if !kernels.is_null() {
            let mut made = Vec::new();
            for kernel in &facts.kernels {
                match self.create_kernel(program, &kernel.name) {
                    Ok(kernel) => made.push(kernel),
                    Err(status) => return status,
                }
            }
            // SAFETY: the caller's contract: room for `num_kernels`.
            unsafe { raw::fill(kernels, num_kernels as usize, made.into_iter()) };
        }
        // SAFETY: the caller's contract: NULL or writable.
        unsafe {
            raw::fill(
                num_kernels_ret,
                1,
                [facts.kernels.len() as cl_uint].into_iter(),
            )
        };
        CL_SUCCESS
    }

    unsafe fn clCloneKernel(
        &self,
        source_kernel: cl_kernel,
        errcode_ret: *mut cl_int,
    ) -> cl_kernel {
        // SAFETY: the caller's contract of the C function.
        unsafe { created(self.clone_kernel(source_kernel), errcode_ret) }
    }

    unsafe fn clReleaseKernel(&self, kernel: cl_kernel) -> cl_int {
        self.release_kernel(kernel)
    }

    unsafe fn clSetKernelArg(
        &self,
        kernel: cl_kernel,
        arg_index: cl_uint,
        arg_size: usize,
        arg_value: *const c_void,
    ) -> cl_int {
        let value = match arg_value.is_null() {
            true => None,
            // SAFETY: the caller's contract: `arg_size` bytes.
            false => unsafe { raw::slice(arg_value.cast::<u8>(), arg_size) },
        };
        self.set_arg(kernel, arg_index, arg_size, value)
    }

    unsafe fn clSetKernelArgSVMPointer(
        &self,
        kernel: cl_kernel,
        arg_index: cl_uint,
        arg_value: *const c_void,
    ) -> cl_int {
        self.set_arg_svm(kernel, arg_index, arg_value)
    }

    unsafe fn clSetKernelExecInfo(
        &self,
        kernel: cl_kernel,
        param_name: cl_kernel_exec_info,
        param_value_size: usize,
        param_value: *const c_void,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let value =
            unsafe { raw::slice(param_value.cast::<u8>(), param_value_size) }.unwrap_or_default();
        self.set_hint(kernel, param_name, value)
    }

    unsafe fn clCreateUserEvent(&self, context: cl_context, errcode_ret: *mut cl_int) -> cl_event {
        let event = self.mint_event(context.addr() as u64);
        if let Some(known) = self.link().state().events.get_mut(&event.0) {
            known.user = true;
        }
        let posted = self.post(&wire::CreateUserEvent {
            context: wire::ContextHandle::from_raw(context),
            created: event,
        });
        // SAFETY: the caller's contract of the C function.
        unsafe { created(posted.map(|()| event.to_raw()), errcode_ret) }
    }

    unsafe fn clSetUserEventStatus(&self, event: cl_event, execution_status: cl_int) -> cl_int {
        self.set_user_event(event, execution_status)
    }

    unsafe fn clWaitForEvents(&self, num_events: cl_uint, event_list: *const cl_event) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        self.wait_for_events(unsafe { events(event_list, num_events) })
    }

    unsafe fn clGetEventInfo(
        &self,
        event: cl_event,
        param_name: cl_event_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        if param_name != CL_EVENT_COMMAND_EXECUTION_STATUS {
            return CL_INVALID_VALUE;
        }
        match self.event_status(event) {
            // SAFETY: the caller's contract of the C function.
            Some(status) => unsafe {
                answer(
                    &status.to_ne_bytes(),
                    param_value_size,
                    param_value,
                    param_value_size_ret,
                )
            },
            None => CL_INVALID_EVENT,
        }
    }

    unsafe fn clGetEventProfilingInfo(
        &self,
        event: cl_event,
        param_name: cl_profiling_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        match self.profiled(event, param_name) {
            // SAFETY: the caller's contract of the C function.
            Ok(time) => unsafe {
                answer(
                    &time.to_ne_bytes(),
                    param_value_size,
                    param_value,
                    param_value_size_ret,
                )
            },
            Err(status) => status,
        }
    }

    unsafe fn clSetEventCallback(
        &self,
        event: cl_event,
        command_exec_callback_type: cl_int,
        pfn_notify: Option<unsafe extern "C" fn(cl_event, cl_int, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int {
        let _ = command_exec_callback_type;
        let Some(notify) = pfn_notify else {
            return CL_INVALID_VALUE;
        };
        let target = Notify {
            event,
            notify,
            user_data,
        };
        self.on_complete(event, Box::new(move |status| target.call(status)))
    }

    unsafe fn clReleaseEvent(&self, event: cl_event) -> cl_int {
        self.release_event(event)
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
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueReadBuffer",
            queue: command_queue,
            mem: buffer,
            blocking: blocking_read != 0,
            waits,
            event,
        };
        let host = Host {
            start: ptr.cast(),
            row_pitch: size,
            slice_pitch: size,
        };
        self.read(&command, Place::linear(offset, size), host)
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
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueReadBufferRect",
            queue: command_queue,
            mem: buffer,
            blocking: blocking_read != 0,
            waits,
            event,
        };
        // SAFETY: the caller's contract of the C function.
        let area = unsafe {
            rect(
                buffer_origin,
                host_origin,
                region,
                buffer_row_pitch,
                buffer_slice_pitch,
                host_row_pitch,
                host_slice_pitch,
                ptr,
            )
        };
        let Some((place, host)) = area else {
            return CL_INVALID_VALUE;
        };
        self.read(&command, place, host)
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
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueWriteBuffer",
            queue: command_queue,
            mem: buffer,
            blocking: blocking_write != 0,
            waits,
            event,
        };
        let host = Host {
            start: ptr.cast_mut().cast(),
            row_pitch: size,
            slice_pitch: size,
        };
        self.write(&command, Place::linear(offset, size), host)
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
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueWriteBufferRect",
            queue: command_queue,
            mem: buffer,
            blocking: blocking_write != 0,
            waits,
            event,
        };
        // SAFETY: the caller's contract of the C function.
        let area = unsafe {
            rect(
                buffer_origin,
                host_origin,
                region,
                buffer_row_pitch,
                buffer_slice_pitch,
                host_row_pitch,
                host_slice_pitch,
                ptr.cast_mut(),
            )
        };
        let Some((place, host)) = area else {
            return CL_INVALID_VALUE;
        };
        self.write(&command, place, host)
    }

    unsafe fn clEnqueueReadImage(
        &self,
        command_queue: cl_command_queue,
        image: cl_mem,
        blocking_read: cl_bool,
        origin: *const usize,
        region: *const usize,
        row_pitch: usize,
        slice_pitch: usize,
        ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueReadImage",
            queue: command_queue,
            mem: image,
            blocking: blocking_read != 0,
            waits,
            event,
        };
        // SAFETY: the caller's contract of the C function.
        match unsafe { self.image_place(image, origin, region, row_pitch, slice_pitch, ptr) } {
            Ok((place, host)) => self.read(&command, place, host),
            Err(status) => status,
        }
    }

    unsafe fn clEnqueueWriteImage(
        &self,
        command_queue: cl_command_queue,
        image: cl_mem,
        blocking_write: cl_bool,
        origin: *const usize,
        region: *const usize,
        input_row_pitch: usize,
        input_slice_pitch: usize,
        ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueWriteImage",
            queue: command_queue,
            mem: image,
            blocking: blocking_write != 0,
            waits,
            event,
        };
        // SAFETY: the caller's contract of the C function.
        match unsafe {
            self.image_place(
                image,
                origin,
                region,
                input_row_pitch,
                input_slice_pitch,
                ptr.cast_mut(),
            )
        } {
            Ok((place, host)) => self.write(&command, place, host),
            Err(status) => status,
        }
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
        // SAFETY: the caller's contract: NULL or `work_dim` elements.
        let global_work_offset = unsafe { raw::slice(global_work_offset, work_dim as usize) };
        // SAFETY: the caller's contract: NULL or `work_dim` elements.
        let global_work_size = unsafe { raw::slice(global_work_size, work_dim as usize) };
        // SAFETY: the caller's contract: NULL or `work_dim` elements.
        let local_work_size = unsafe { raw::slice(local_work_size, work_dim as usize) };
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        self.launch(
            command_queue,
            kernel,
            work_dim,
            global_work_offset,
            global_work_size,
            local_work_size,
            waits,
            event,
        )
    }

    unsafe fn clEnqueueTask(
        &self,
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract, passed on: a task is a range of one.
        unsafe {
            ManualCalls::clEnqueueNDRangeKernel(
                self,
                command_queue,
                kernel,
                1,
                std::ptr::null(),
                [1].as_ptr(),
                [1].as_ptr(),
                num_events_in_wait_list,
                event_wait_list,
                event,
            )
        }
    }

    unsafe fn clSVMAlloc(
        &self,
        context: cl_context,
        flags: cl_svm_mem_flags,
        size: usize,
        alignment: cl_uint,
    ) -> *mut c_void {
        self.svm_alloc(context, flags, size, alignment)
    }

    unsafe fn clSVMFree(&self, context: cl_context, svm_pointer: *mut c_void) {
        self.svm_free(context, svm_pointer)
    }

    unsafe fn clEnqueueSVMMemcpy(
        &self,
        command_queue: cl_command_queue,
        blocking_copy: cl_bool,
        dst_ptr: *mut c_void,
        src_ptr: *const c_void,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueSVMMemcpy",
            queue: command_queue,
            mem: std::ptr::null_mut(),
            blocking: blocking_copy != 0,
            waits,
            event,
        };
        self.svm_copy(&command, dst_ptr, src_ptr, size)
    }

    unsafe fn clEnqueueSVMMemFill(
        &self,
        command_queue: cl_command_queue,
        svm_ptr: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueSVMMemFill",
            queue: command_queue,
            mem: std::ptr::null_mut(),
            blocking: false,
            waits,
            event,
        };
        // SAFETY: the caller's contract of the C function.
        let pattern = unsafe { raw::slice(pattern.cast::<u8>(), pattern_size) }.unwrap_or_default();
        self.svm_fill(&command, svm_ptr, pattern, size)
    }

    unsafe fn clEnqueueSVMMap(
        &self,
        command_queue: cl_command_queue,
        blocking_map: cl_bool,
        flags: cl_map_flags,
        svm_ptr: *mut c_void,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueSVMMap",
            queue: command_queue,
            mem: std::ptr::null_mut(),
            blocking: blocking_map != 0,
            waits,
            event,
        };
        self.svm_map(&command, flags, svm_ptr, size)
    }

    unsafe fn clEnqueueSVMUnmap(
        &self,
        command_queue: cl_command_queue,
        svm_ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueSVMUnmap",
            queue: command_queue,
            mem: std::ptr::null_mut(),
            blocking: false,
            waits,
            event,
        };
        self.svm_unmap(&command, svm_ptr)
    }
}

/// A C callback with its data.
struct Notify {
    event: cl_event,
    notify: unsafe extern "C" fn(cl_event, cl_int, *mut c_void),
    user_data: *mut c_void,
}

// SAFETY: the API has callbacks called from any thread; the pointers are the registrant's and only passed on.
unsafe impl Send for Notify {}

impl Notify {
    fn call(self, status: cl_int) {
        // SAFETY: the registrant's own function, with its own data.
        unsafe { (self.notify)(self.event, status, self.user_data) };
    }
}

/// A list that ends with a zero, without it.
///
/// # Safety
/// `list` is NULL or ends with a zero.
unsafe fn zero_ended(list: *const cl_device_partition_property) -> Vec<u64> {
    let mut values = Vec::new();
    while !list.is_null() {
        // SAFETY: the caller's contract: the list has not ended before this.
        let at = unsafe { list.add(values.len()) };
        // SAFETY: as above.
        match unsafe { at.read() } {
            // A partition by counts ends its counts with a zero of its own, then the list.
            0 if values.first() == Some(&(CL_DEVICE_PARTITION_BY_COUNTS as u64))
                && !values.ends_with(&[0]) =>
            {
                values.push(0)
            }
            0 => break,
            value => values.push(value as u64),
        }
    }
    values
}
