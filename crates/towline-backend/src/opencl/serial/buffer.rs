//! Commands on buffers of which the vendor does not get the parameters as they are: patterns and lists are copied.

use std::sync::Arc;

use super::super::contract::{list, require};
use super::super::scheduler::Work;
use super::super::*;
use super::Serial;
use super::objects::{CommandQueue, Memory};

/// Longest pattern: sixteen `double`s.
const PATTERN_LIMIT: usize = 128;

#[allow(non_snake_case)]
impl Serial {
    pub(super) unsafe fn clEnqueueFillBuffer(
        &self,
        at: &CommandQueue,
        buffer: cl_mem,
        pattern: *const c_void,
        pattern_size: usize,
        offset: usize,
        size: usize,
    ) -> Result<Work, cl_int> {
        let buffer = self.memory(at, buffer)?;
        let is_size = pattern_size.is_power_of_two() && pattern_size <= PATTERN_LIMIT;
        require(is_size, CL_INVALID_VALUE)?;
        // SAFETY: the caller's contract.
        let pattern = unsafe { list(pattern.cast::<u8>(), pattern_size, CL_INVALID_VALUE) }?;
        buffer.range(offset, size)?;
        // SAFETY: the closure holds the object and the pattern.
        Ok(self.work(at, move |native, queue, done| unsafe {
            let (first, len) = (pattern.as_ptr().cast(), pattern.len());
            let none = std::ptr::null();
            native.clEnqueueFillBuffer(queue, buffer.mem(), first, len, offset, size, 0, none, done)
        }))
    }

    pub(super) unsafe fn clEnqueueMigrateMemObjects(
        &self,
        at: &CommandQueue,
        num_mem_objects: cl_uint,
        mem_objects: *const cl_mem,
        flags: cl_mem_migration_flags,
    ) -> Result<Work, cl_int> {
        require(num_mem_objects > 0, CL_INVALID_VALUE)?;
        // SAFETY: the caller's contract.
        let objects = unsafe { list(mem_objects, num_mem_objects as usize, CL_INVALID_VALUE) }?;
        let objects: Result<Vec<Arc<Memory>>, _> = objects
            .into_iter()
            .map(|object| self.memory(at, object))
            .collect();
        let objects = objects?;
        Ok(self.work(at, move |native, queue, done| {
            let all: Vec<cl_mem> = objects.iter().map(|object| object.mem()).collect();
            let (first, none) = (all.as_ptr(), std::ptr::null());
            // SAFETY: the closure holds the objects.
            unsafe {
                native.clEnqueueMigrateMemObjects(
                    queue,
                    num_mem_objects,
                    first,
                    flags,
                    0,
                    none,
                    done,
                )
            }
        }))
    }
}
