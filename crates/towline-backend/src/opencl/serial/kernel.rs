//! Kernels: arguments are remembered here, so that a launch has those of the time when it was enqueued.

use std::ptr;
use std::sync::Arc;

use super::super::contract::{Asked, Bytes, list, put, require, status};
use super::super::scheduler::Work;
use super::super::*;
use super::objects::{Argument, CommandQueue, Kept, Kernel, Memory, Named, Sampler};
use super::{Serial, turn};

/// Calls that count references, and the query that tells them.
macro_rules! counted {
    ($($retain:ident $release:ident $info:ident $count:ident $name:ident $kind:ident $handle:ident;)*) => {$(
        pub(super) unsafe fn $retain(&self, object: $handle) -> cl_int {
            status(self.registry.retain::<$kind, _>(object))
        }

        pub(super) unsafe fn $release(&self, object: $handle) -> cl_int {
            status(self.registry.release::<$kind, _>(object).map(drop))
        }

        pub(super) unsafe fn $info(
            &self,
            object: $handle,
            param_name: $name,
            param_value_size: usize,
            param_value: *mut c_void,
            param_value_size_ret: *mut usize,
        ) -> cl_int {
            if let Err(error) = self.get::<$kind, _>(object) {
                return error;
            }
            if param_name == $count {
                let references = self.registry.references(object).bytes();
                let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
                // SAFETY: the caller's contract.
                return status(unsafe { asked.answer(&references) });
            }
            let _turn = turn::take();
            // SAFETY: the caller's contract, passed on.
            unsafe {
                self.native.$info(
                    object,
                    param_name,
                    param_value_size,
                    param_value,
                    param_value_size_ret,
                )
            }
        }
    )*};
}

#[allow(non_snake_case, clippy::too_many_arguments)]
impl Serial {
    counted! {
        clRetainKernel clReleaseKernel clGetKernelInfo CL_KERNEL_REFERENCE_COUNT cl_kernel_info Kernel cl_kernel;
        clRetainSampler clReleaseSampler clGetSamplerInfo CL_SAMPLER_REFERENCE_COUNT cl_sampler_info Sampler cl_sampler;
    }

    pub(super) unsafe fn clCreateKernelsInProgram(
        &self,
        program: cl_program,
        num_kernels: cl_uint,
        kernels: *mut cl_kernel,
        num_kernels_ret: *mut cl_uint,
    ) -> cl_int {
        let _turn = turn::take();
        let mut count = 0;
        // SAFETY: the caller's contract; the count is a local.
        let made = unsafe {
            self.native
                .clCreateKernelsInProgram(program, num_kernels, kernels, &raw mut count)
        };
        if made != CL_SUCCESS {
            return made;
        }
        // SAFETY: the caller's contract.
        unsafe { put(num_kernels_ret, count) };
        if !kernels.is_null() {
            // SAFETY: the vendor has written that many.
            let all = unsafe { std::slice::from_raw_parts(kernels, count as usize) };
            all.iter().for_each(|kernel| self.adopt(*kernel));
        }
        CL_SUCCESS
    }

    pub(super) unsafe fn clSetKernelArg(
        &self,
        kernel: cl_kernel,
        arg_index: cl_uint,
        arg_size: usize,
        arg_value: *const c_void,
    ) -> cl_int {
        status((|| {
            let known: Arc<Kernel> = self.get(kernel)?;
            let _turn = turn::take();
            // The vendor judges the argument; every launch sets it again.
            // SAFETY: the caller's contract, passed on.
            super::check(unsafe {
                self.native
                    .clSetKernelArg(kernel, arg_index, arg_size, arg_value)
            })?;
            let value: Option<Arc<[u8]>> = (!arg_value.is_null()).then(|| {
                // SAFETY: the caller's contract.
                unsafe { std::slice::from_raw_parts(arg_value.cast::<u8>(), arg_size) }.into()
            });
            let named = value.as_deref().and_then(|value| self.named(value));
            let argument = Argument {
                size: arg_size,
                value,
                named,
            };
            let mut arguments = known.arguments();
            let slot = arguments.get_mut(arg_index as usize);
            *slot.ok_or(CL_INVALID_ARG_INDEX)? = Some(argument);
            Ok(())
        })())
    }

    /// The object that an argument's bytes name, if they name one.
    fn named(&self, value: &[u8]) -> Option<Named> {
        let handle: *mut c_void =
            ptr::without_provenance_mut(usize::from_ne_bytes(value.try_into().ok()?));
        if let Ok(memory) = self.get::<Memory, _>(handle) {
            return Some(Named::Memory(Arc::downgrade(&memory)));
        }
        let sampler = self.get::<Sampler, _>(handle).ok()?;
        Some(Named::Sampler(Arc::downgrade(&sampler)))
    }

    pub(super) unsafe fn clEnqueueNDRangeKernel(
        &self,
        at: &CommandQueue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        global_work_offset: *const usize,
        global_work_size: *const usize,
        local_work_size: *const usize,
    ) -> Result<Work, cl_int> {
        require((1..=3).contains(&work_dim), CL_INVALID_WORK_DIMENSION)?;
        let sizes = |first: *const usize| -> Result<Option<Vec<usize>>, cl_int> {
            if first.is_null() {
                return Ok(None);
            }
            // SAFETY: the caller's contract: one size for each dimension.
            unsafe { list(first, work_dim as usize, CL_INVALID_VALUE) }.map(Some)
        };
        let global = sizes(global_work_size)?.ok_or(CL_INVALID_GLOBAL_WORK_SIZE)?;
        let range = Range {
            offset: sizes(global_work_offset)?,
            global,
            local: sizes(local_work_size)?,
        };
        self.launch(at, kernel, range)
    }

    pub(super) unsafe fn clEnqueueTask(
        &self,
        at: &CommandQueue,
        kernel: cl_kernel,
    ) -> Result<Work, cl_int> {
        let range = Range {
            offset: None,
            global: vec![1],
            local: Some(vec![1]),
        };
        self.launch(at, kernel, range)
    }

    /// A launch with the arguments of now.
    fn launch(&self, at: &CommandQueue, kernel: cl_kernel, range: Range) -> Result<Work, cl_int> {
        let kernel: Arc<Kernel> = self.get(kernel)?;
        require(kernel.context == at.queue.context, CL_INVALID_CONTEXT)?;
        require(
            range.has_groups_of(kernel.required_group),
            CL_INVALID_WORK_GROUP_SIZE,
        )?;
        let arguments: Option<Vec<Argument>> = kernel.arguments().iter().cloned().collect();
        let arguments = arguments.ok_or(CL_INVALID_KERNEL_ARGS)?;
        let kept: Option<Vec<Kept>> = arguments
            .iter()
            .filter_map(|argument| argument.named.as_ref())
            .map(Named::keep)
            .collect();
        let kept = kept.ok_or(CL_INVALID_KERNEL_ARGS)?;
        Ok(self.work(at, move |native, queue, done| {
            let _kept = kept;
            let handle = kernel.vendored.handle();
            for (index, argument) in (0..).zip(&arguments) {
                let value = argument.value.as_deref();
                let value = value.map_or(ptr::null(), |value| value.as_ptr().cast());
                // SAFETY: the closure holds the kernel and what the argument names; the vendor took the same bytes before.
                let set = unsafe { native.clSetKernelArg(handle, index, argument.size, value) };
                if set != CL_SUCCESS {
                    return set;
                }
            }
            let first =
                |list: &Option<Vec<usize>>| list.as_ref().map_or(ptr::null(), |list| list.as_ptr());
            // SAFETY: the closure holds the kernel; every list has the length of the first.
            unsafe {
                native.clEnqueueNDRangeKernel(
                    queue,
                    handle,
                    range.global.len() as cl_uint,
                    first(&range.offset),
                    range.global.as_ptr(),
                    first(&range.local),
                    0,
                    ptr::null(),
                    done,
                )
            }
        }))
    }
}

/// The work-items of a launch.
struct Range {
    offset: Option<Vec<usize>>,
    global: Vec<usize>,
    local: Option<Vec<usize>>,
}

impl Range {
    /// Whether its work-groups, if it says what they are, have work-items, and as many as the kernel demands.
    fn has_groups_of(&self, required: [usize; 3]) -> bool {
        let is_demanded = required != [0; 3];
        match &self.local {
            None => !is_demanded,
            Some(local) => {
                let full = |at: usize| local.get(at).copied().unwrap_or(1);
                let sizes = [full(0), full(1), full(2)];
                !sizes.contains(&0) && (!is_demanded || sizes == required)
            }
        }
    }
}
