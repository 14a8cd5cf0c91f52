//! Commands on images. Origins, regions and colours are copied; host memory is the application's until the command has ended.

use std::ptr;

use super::super::contract::{require, status, triple};
use super::super::scheduler::Order;
use super::super::*;
use super::{Host, Serial};

#[allow(non_snake_case, clippy::too_many_arguments)]
impl Serial {
    pub(super) unsafe fn clEnqueueReadImage(
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
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let image = self.memory(&target, image)?;
            let host = Host::new(ptr)?;
            // SAFETY: the caller's contract.
            let origin = unsafe { triple(origin) }?;
            // SAFETY: the caller's contract.
            let region = unsafe { triple(region) }?;
            let how = (CL_COMMAND_READ_IMAGE, Order::Free, blocking_read);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueReadImage(
                    queue,
                    image.mem(),
                    CL_FALSE,
                    origin.as_ptr(),
                    region.as_ptr(),
                    row_pitch,
                    slice_pitch,
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

    pub(super) unsafe fn clEnqueueWriteImage(
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
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let image = self.memory(&target, image)?;
            let host = Host::new(ptr)?;
            // SAFETY: the caller's contract.
            let origin = unsafe { triple(origin) }?;
            // SAFETY: the caller's contract.
            let region = unsafe { triple(region) }?;
            let how = (CL_COMMAND_WRITE_IMAGE, Order::Free, blocking_write);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueWriteImage(
                    queue,
                    image.mem(),
                    CL_FALSE,
                    origin.as_ptr(),
                    region.as_ptr(),
                    input_row_pitch,
                    input_slice_pitch,
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

    pub(super) unsafe fn clEnqueueFillImage(
        &self,
        command_queue: cl_command_queue,
        image: cl_mem,
        fill_color: *const c_void,
        origin: *const usize,
        region: *const usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let image = self.memory(&target, image)?;
            require(!fill_color.is_null(), CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract: a colour of four channels.
            let color = unsafe { fill_color.cast::<[u32; 4]>().read_unaligned() };
            // SAFETY: the caller's contract.
            let origin = unsafe { triple(origin) }?;
            // SAFETY: the caller's contract.
            let region = unsafe { triple(region) }?;
            let how = (CL_COMMAND_FILL_IMAGE, Order::Free, CL_FALSE);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueFillImage(
                    queue,
                    image.mem(),
                    color.as_ptr().cast(),
                    origin.as_ptr(),
                    region.as_ptr(),
                    0,
                    ptr::null(),
                    done,
                )
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }

    pub(super) unsafe fn clEnqueueCopyImage(
        &self,
        command_queue: cl_command_queue,
        src_image: cl_mem,
        dst_image: cl_mem,
        src_origin: *const usize,
        dst_origin: *const usize,
        region: *const usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let src_image = self.memory(&target, src_image)?;
            let dst_image = self.memory(&target, dst_image)?;
            // SAFETY: the caller's contract.
            let src_origin = unsafe { triple(src_origin) }?;
            // SAFETY: the caller's contract.
            let dst_origin = unsafe { triple(dst_origin) }?;
            // SAFETY: the caller's contract.
            let region = unsafe { triple(region) }?;
            let how = (CL_COMMAND_COPY_IMAGE, Order::Free, CL_FALSE);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueCopyImage(
                    queue,
                    src_image.mem(),
                    dst_image.mem(),
                    src_origin.as_ptr(),
                    dst_origin.as_ptr(),
                    region.as_ptr(),
                    0,
                    ptr::null(),
                    done,
                )
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }

    pub(super) unsafe fn clEnqueueCopyImageToBuffer(
        &self,
        command_queue: cl_command_queue,
        src_image: cl_mem,
        dst_buffer: cl_mem,
        src_origin: *const usize,
        region: *const usize,
        dst_offset: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let src_image = self.memory(&target, src_image)?;
            let dst_buffer = self.memory(&target, dst_buffer)?;
            // SAFETY: the caller's contract.
            let src_origin = unsafe { triple(src_origin) }?;
            // SAFETY: the caller's contract.
            let region = unsafe { triple(region) }?;
            let how = (CL_COMMAND_COPY_IMAGE_TO_BUFFER, Order::Free, CL_FALSE);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueCopyImageToBuffer(
                    queue,
                    src_image.mem(),
                    dst_buffer.mem(),
                    src_origin.as_ptr(),
                    region.as_ptr(),
                    dst_offset,
                    0,
                    ptr::null(),
                    done,
                )
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }

    pub(super) unsafe fn clEnqueueCopyBufferToImage(
        &self,
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_image: cl_mem,
        src_offset: usize,
        dst_origin: *const usize,
        region: *const usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let src_buffer = self.memory(&target, src_buffer)?;
            let dst_image = self.memory(&target, dst_image)?;
            // SAFETY: the caller's contract.
            let dst_origin = unsafe { triple(dst_origin) }?;
            // SAFETY: the caller's contract.
            let region = unsafe { triple(region) }?;
            let how = (CL_COMMAND_COPY_BUFFER_TO_IMAGE, Order::Free, CL_FALSE);
            // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
            let call = move |native: &NativeOpenCl, queue, done| unsafe {
                native.clEnqueueCopyBufferToImage(
                    queue,
                    src_buffer.mem(),
                    dst_image.mem(),
                    src_offset,
                    dst_origin.as_ptr(),
                    region.as_ptr(),
                    0,
                    ptr::null(),
                    done,
                )
            };
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, call) }
        })())
    }
}
