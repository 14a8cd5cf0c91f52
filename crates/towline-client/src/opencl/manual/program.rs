//! Programs.

use super::*;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl ProgramCalls for Remote {
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
        let made = self.post(&request).map(|()| {
            self.new_program(id.0, None, Origin::given(&request));
            id.to_raw()
        });
        // SAFETY: the caller's contract of the C function.
        unsafe { created(made, errcode_ret) }
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
        let made = self.post(&request).map(|()| {
            self.new_program(id.0, None, Origin::given(&request));
            id.to_raw()
        });
        // SAFETY: the caller's contract of the C function.
        unsafe { created(made, errcode_ret) }
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
            param_value_size: raw::room(param_value_size as u64, 1),
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
        if param_name == CL_PROGRAM_BINARY_SIZES
            && !param_value.is_null()
            && let Some(known) = self.program(program)
        {
            let sizes = bytes.as_chunks::<8>().0.iter();
            known.tell_sizes(sizes.map(|size| u64::from_ne_bytes(*size)));
        }
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
}
