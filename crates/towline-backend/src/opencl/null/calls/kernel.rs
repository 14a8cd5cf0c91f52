//! Kernels and launches.

use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;

use super::super::super::contract::*;
use super::super::super::scheduler::Work;
use super::super::super::*;
use super::super::info;
use super::super::kernels::{Argument, BuiltIn, Kernel, Parameter, Program};
use super::super::memory::Memory;
use super::super::registry::Queue;
use super::give_list;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl NullOpenCl {
    fn kernel(&self, program: &Arc<Program>, built_in: BuiltIn) -> usize {
        let make = |_| Kernel::new(program.clone(), built_in, self.alive());
        self.shared.registry.add(make).0
    }

    pub(super) unsafe fn clCreateKernel(
        &self,
        program: cl_program,
        kernel_name: *const c_char,
        errcode_ret: *mut cl_int,
    ) -> cl_kernel {
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

    pub(super) unsafe fn clCreateKernelsInProgram(
        &self,
        program: cl_program,
        num_kernels: cl_uint,
        kernels: *mut cl_kernel,
        num_kernels_ret: *mut cl_uint,
    ) -> cl_int {
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

    pub(super) unsafe fn clCloneKernel(
        &self,
        source_kernel: cl_kernel,
        errcode_ret: *mut cl_int,
    ) -> cl_kernel {
        let made = self.get::<Kernel, _>(source_kernel).map(|kernel| {
            let make = |_| kernel.copy(self.alive());
            self.shared.registry.add(make).0
        });
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    pub(super) unsafe fn clSetKernelArg(
        &self,
        kernel: cl_kernel,
        arg_index: cl_uint,
        arg_size: usize,
        arg_value: *const c_void,
    ) -> cl_int {
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

    pub(super) unsafe fn clGetKernelInfo(
        &self,
        kernel: cl_kernel,
        param_name: cl_kernel_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
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

    pub(super) unsafe fn clGetKernelArgInfo(
        &self,
        kernel: cl_kernel,
        arg_index: cl_uint,
        param_name: cl_kernel_arg_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
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

    pub(super) unsafe fn clGetKernelWorkGroupInfo(
        &self,
        kernel: cl_kernel,
        device: cl_device_id,
        param_name: cl_kernel_work_group_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Kernel, _>(kernel).and_then(|object| {
            let devices = &object.program.devices;
            let is_only = device.is_null() && devices.len() == 1;
            require(
                is_only || devices.contains(&device.addr()),
                CL_INVALID_DEVICE,
            )?;
            let answer = match param_name {
                CL_KERNEL_WORK_GROUP_SIZE => object.built_in.group_limit().bytes(),
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

    pub(super) unsafe fn clEnqueueNDRangeKernel(
        &self,
        queue: &Queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        global_work_offset: *const usize,
        global_work_size: *const usize,
        local_work_size: *const usize,
    ) -> Result<Work, cl_int> {
        let kernel: Arc<Kernel> = self.get(kernel)?;
        let program = &kernel.program;
        require(
            Arc::ptr_eq(&program.context, &queue.context),
            CL_INVALID_CONTEXT,
        )?;
        require(
            program.devices.contains(&queue.device),
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
            local.iter().product::<usize>() <= kernel.built_in.group_limit(),
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
        kernel.launch(self.shared.scheduler.clone(), offset[0], count)
    }

    pub(super) unsafe fn clEnqueueTask(
        &self,
        queue: &Queue,
        kernel: cl_kernel,
    ) -> Result<Work, cl_int> {
        let kernel: Arc<Kernel> = self.get(kernel)?;
        require(
            Arc::ptr_eq(&kernel.program.context, &queue.context),
            CL_INVALID_CONTEXT,
        )?;
        kernel.launch(self.shared.scheduler.clone(), 0, 1)
    }
}
