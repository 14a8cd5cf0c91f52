//! Kernels.

use super::*;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl KernelCalls for Remote {
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
}
