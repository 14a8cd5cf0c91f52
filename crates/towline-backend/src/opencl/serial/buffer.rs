//! Commands on buffers. Offsets, sizes and patterns are copied; host memory is the application's until the command has ended.

use std::ptr;

use super::super::contract::{list, require, status, triple};
use super::super::scheduler::Order;
use super::super::*;
use super::{Host, Serial};

/// Longest pattern: sixteen `double`s.
const PATTERN_LIMIT: usize = 128;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl Serial {
    pub(super) unsafe fn clEnqueueReadBuffer(
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
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let buffer = self.memory(&target, buffer)?;
            let host = Host::new(ptr)?;
            buffer.range(offset, size)?;
            let how = (CL_COMMAND_READ_BUFFER, Order::Free, blocking_read);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueReadBuffer(
                    queue,
                    buffer.mem(),
                    CL_FALSE,
                    offset,
                    size,
                    host.at(),
                    0,
                    ptr::null(),
                    done,
                )
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }

    pub(super) unsafe fn clEnqueueReadBufferRect(
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
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let buffer = self.memory(&target, buffer)?;
            let host = Host::new(ptr)?;
            // SAFETY: the caller's contract.
            let buffer_origin = unsafe { triple(buffer_origin) }?;
            // SAFETY: the caller's contract.
            let host_origin = unsafe { triple(host_origin) }?;
            // SAFETY: the caller's contract.
            let region = unsafe { triple(region) }?;
            let how = (CL_COMMAND_READ_BUFFER_RECT, Order::Free, blocking_read);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueReadBufferRect(
                    queue,
                    buffer.mem(),
                    CL_FALSE,
                    buffer_origin.as_ptr(),
                    host_origin.as_ptr(),
                    region.as_ptr(),
                    buffer_row_pitch,
                    buffer_slice_pitch,
                    host_row_pitch,
                    host_slice_pitch,
                    host.at(),
                    0,
                    ptr::null(),
                    done,
                )
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }

    pub(super) unsafe fn clEnqueueWriteBuffer(
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
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let buffer = self.memory(&target, buffer)?;
            let host = Host::new(ptr)?;
            buffer.range(offset, size)?;
            let how = (CL_COMMAND_WRITE_BUFFER, Order::Free, blocking_write);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueWriteBuffer(
                    queue,
                    buffer.mem(),
                    CL_FALSE,
                    offset,
                    size,
                    host.at(),
                    0,
                    ptr::null(),
                    done,
                )
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }

    pub(super) unsafe fn clEnqueueWriteBufferRect(
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
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let buffer = self.memory(&target, buffer)?;
            let host = Host::new(ptr)?;
            // SAFETY: the caller's contract.
            let buffer_origin = unsafe { triple(buffer_origin) }?;
            // SAFETY: the caller's contract.
            let host_origin = unsafe { triple(host_origin) }?;
            // SAFETY: the caller's contract.
            let region = unsafe { triple(region) }?;
            let how = (CL_COMMAND_WRITE_BUFFER_RECT, Order::Free, blocking_write);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueWriteBufferRect(
                    queue,
                    buffer.mem(),
                    CL_FALSE,
                    buffer_origin.as_ptr(),
                    host_origin.as_ptr(),
                    region.as_ptr(),
                    buffer_row_pitch,
                    buffer_slice_pitch,
                    host_row_pitch,
                    host_slice_pitch,
                    host.at(),
                    0,
                    ptr::null(),
                    done,
                )
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }

    pub(super) unsafe fn clEnqueueFillBuffer(
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
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let buffer = self.memory(&target, buffer)?;
            require(!pattern.is_null(), CL_INVALID_VALUE)?;
            require(
                pattern_size.is_power_of_two() && pattern_size <= PATTERN_LIMIT,
                CL_INVALID_VALUE,
            )?;
            // SAFETY: the caller's contract.
            let pattern =
                unsafe { std::slice::from_raw_parts(pattern.cast::<u8>(), pattern_size) }.to_vec();
            buffer.range(offset, size)?;
            let how = (CL_COMMAND_FILL_BUFFER, Order::Free, CL_FALSE);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueFillBuffer(
                    queue,
                    buffer.mem(),
                    pattern.as_ptr().cast(),
                    pattern.len(),
                    offset,
                    size,
                    0,
                    ptr::null(),
                    done,
                )
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }

    pub(super) unsafe fn clEnqueueCopyBuffer(
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
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let src_buffer = self.memory(&target, src_buffer)?;
            let dst_buffer = self.memory(&target, dst_buffer)?;
            src_buffer.range(src_offset, size)?;
            dst_buffer.range(dst_offset, size)?;
            let how = (CL_COMMAND_COPY_BUFFER, Order::Free, CL_FALSE);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueCopyBuffer(
                    queue,
                    src_buffer.mem(),
                    dst_buffer.mem(),
                    src_offset,
                    dst_offset,
                    size,
                    0,
                    ptr::null(),
                    done,
                )
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }

    pub(super) unsafe fn clEnqueueCopyBufferRect(
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
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let src_buffer = self.memory(&target, src_buffer)?;
            let dst_buffer = self.memory(&target, dst_buffer)?;
            // SAFETY: the caller's contract.
            let src_origin = unsafe { triple(src_origin) }?;
            // SAFETY: the caller's contract.
            let dst_origin = unsafe { triple(dst_origin) }?;
            // SAFETY: the caller's contract.
            let region = unsafe { triple(region) }?;
            let how = (CL_COMMAND_COPY_BUFFER_RECT, Order::Free, CL_FALSE);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueCopyBufferRect(
                    queue,
                    src_buffer.mem(),
                    dst_buffer.mem(),
                    src_origin.as_ptr(),
                    dst_origin.as_ptr(),
                    region.as_ptr(),
                    src_row_pitch,
                    src_slice_pitch,
                    dst_row_pitch,
                    dst_slice_pitch,
                    0,
                    ptr::null(),
                    done,
                )
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }

    pub(super) unsafe fn clEnqueueMigrateMemObjects(
        &self,
        command_queue: cl_command_queue,
        num_mem_objects: cl_uint,
        mem_objects: *const cl_mem,
        flags: cl_mem_migration_flags,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            require(num_mem_objects > 0, CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            let objects = unsafe { list(mem_objects, num_mem_objects as usize, CL_INVALID_VALUE) }?;
            let objects: Result<Vec<_>, _> = objects
                .into_iter()
                .map(|object| self.memory(&target, object))
                .collect();
            let objects = objects?;
            let how = (CL_COMMAND_MIGRATE_MEM_OBJECTS, Order::Free, CL_FALSE);
            let call = move |native: &NativeOpenCl, queue, done| {
                let all: Vec<cl_mem> = objects.iter().map(|object| object.mem()).collect();
                // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
                unsafe {
                    native.clEnqueueMigrateMemObjects(
                        queue,
                        num_mem_objects,
                        all.as_ptr(),
                        flags,
                        0,
                        ptr::null(),
                        done,
                    )
                }
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }
}
