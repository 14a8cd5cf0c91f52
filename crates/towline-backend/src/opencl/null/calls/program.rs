//! Programs.

use std::ffi::CStr;
use std::sync::Arc;

use super::super::super::contract::*;
use super::super::super::*;
use super::super::kernels::{BuiltIn, Program};
use super::super::registry::Context;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl NullOpenCl {
    pub(super) unsafe fn clCreateProgramWithSource(
        &self,
        context: cl_context,
        count: cl_uint,
        strings: *mut *const c_char,
        lengths: *const usize,
        errcode_ret: *mut cl_int,
    ) -> cl_program {
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

    pub(super) unsafe fn clCreateProgramWithBuiltInKernels(
        &self,
        context: cl_context,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        kernel_names: *const c_char,
        errcode_ret: *mut cl_int,
    ) -> cl_program {
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

    pub(super) unsafe fn clBuildProgram(
        &self,
        program: cl_program,
        _num_devices: cl_uint,
        _device_list: *const cl_device_id,
        _options: *const c_char,
        _pfn_notify: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
        _user_data: *mut c_void,
    ) -> cl_int {
        // There is no compiler, and built-in kernels are not built (section 5.8.6 lists what may be).
        match self.get::<Program, _>(program) {
            Ok(program) if program.source.is_some() => CL_COMPILER_NOT_AVAILABLE,
            Ok(_) => CL_INVALID_OPERATION,
            Err(error) => error,
        }
    }

    pub(super) unsafe fn clGetProgramInfo(
        &self,
        program: cl_program,
        param_name: cl_program_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
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

    pub(super) unsafe fn clGetProgramBuildInfo(
        &self,
        program: cl_program,
        device: cl_device_id,
        param_name: cl_program_build_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
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
}
