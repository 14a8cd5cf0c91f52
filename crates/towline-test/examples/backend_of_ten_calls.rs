//! A backend of ten calls, and a client that uses it: `cargo run -p towline-test --example backend_of_ten_calls`.
//!
//! The device keeps buffers in host memory and carries out each command within the call, so that an event is complete as soon as it is
//! there. Every other call answers `CL_INVALID_OPERATION`, as the trait has it. docs/adding-a-backend.md goes on from here.

#![allow(
    non_snake_case,
    reason = "the contract's methods have the names of the C functions"
)]

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::{Arc, Mutex, PoisonError};

use towline_backend::opencl::*;
use towline_test::pair::Pair;

/// The only platform, device, context, queue and event; buffers are numbered from here on.
const ONLY: usize = 1;

#[derive(Default)]
struct HostMemory {
    buffers: Mutex<HashMap<usize, Vec<u8>>>,
}

impl HostMemory {
    /// Gives the bytes of a buffer to `copy`, if there are so many there.
    fn with<R>(
        &self,
        buffer: cl_mem,
        offset: usize,
        size: usize,
        copy: impl FnOnce(&mut [u8]) -> R,
    ) -> cl_int {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bytes) = buffers.get_mut(&buffer.addr()) else {
            return CL_INVALID_MEM_OBJECT;
        };
        let range = offset..offset.saturating_add(size);
        match bytes.get_mut(range) {
            Some(bytes) => {
                copy(bytes);
                CL_SUCCESS
            }
            None => CL_INVALID_VALUE,
        }
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `place` is NULL or writable.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's contract.
        unsafe { place.write(value) };
    }
}

/// Answers a query for bytes.
///
/// # Safety
/// `value` is NULL or has room for `room` bytes; `actual` is NULL or writable.
unsafe fn answer(bytes: &[u8], room: usize, value: *mut c_void, actual: *mut usize) -> cl_int {
    // SAFETY: the caller's contract.
    unsafe { put(actual, bytes.len()) };
    if value.is_null() {
        return CL_SUCCESS;
    }
    if room < bytes.len() {
        return CL_INVALID_VALUE;
    }
    // SAFETY: the caller's contract; there is room for all bytes.
    unsafe { value.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
    CL_SUCCESS
}

impl OpenClApi for HostMemory {
    unsafe fn clGetPlatformIDs(
        &self,
        num_entries: cl_uint,
        platforms: *mut cl_platform_id,
        num_platforms: *mut cl_uint,
    ) -> cl_int {
        // SAFETY: the caller's contract.
        unsafe { put(num_platforms, 1) };
        if num_entries > 0 {
            // SAFETY: the caller's contract: there is room for an entry.
            unsafe { put(platforms, without_provenance_mut(ONLY)) };
        }
        CL_SUCCESS
    }

    unsafe fn clGetDeviceIDs(
        &self,
        _platform: cl_platform_id,
        _device_type: cl_device_type,
        num_entries: cl_uint,
        devices: *mut cl_device_id,
        num_devices: *mut cl_uint,
    ) -> cl_int {
        // SAFETY: the caller's contract.
        unsafe { put(num_devices, 1) };
        if num_entries > 0 {
            // SAFETY: the caller's contract: there is room for an entry.
            unsafe { put(devices, without_provenance_mut(ONLY)) };
        }
        CL_SUCCESS
    }

    unsafe fn clGetDeviceInfo(
        &self,
        _device: cl_device_id,
        param_name: cl_device_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        let bytes: &[u8] = match param_name {
            CL_DEVICE_NAME => b"ten calls\0",
            CL_DEVICE_VERSION => b"OpenCL 1.2 example\0",
            CL_DEVICE_TYPE => &CL_DEVICE_TYPE_ACCELERATOR.to_ne_bytes(),
            _ => return CL_INVALID_VALUE,
        };
        // SAFETY: the caller's contract.
        unsafe { answer(bytes, param_value_size, param_value, param_value_size_ret) }
    }

    unsafe fn clCreateContext(
        &self,
        _properties: *const cl_context_properties,
        _num_devices: cl_uint,
        _devices: *const cl_device_id,
        _pfn_notify: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>,
        _user_data: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_context {
        // SAFETY: the caller's contract.
        unsafe { put(errcode_ret, CL_SUCCESS) };
        without_provenance_mut(ONLY)
    }

    unsafe fn clCreateCommandQueue(
        &self,
        _context: cl_context,
        _device: cl_device_id,
        _properties: cl_command_queue_properties,
        errcode_ret: *mut cl_int,
    ) -> cl_command_queue {
        // SAFETY: the caller's contract.
        unsafe { put(errcode_ret, CL_SUCCESS) };
        without_provenance_mut(ONLY)
    }

    unsafe fn clCreateBuffer(
        &self,
        _context: cl_context,
        _flags: cl_mem_flags,
        size: usize,
        _host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = buffers.keys().max().unwrap_or(&ONLY) + 1;
        buffers.insert(number, vec![0; size]);
        // SAFETY: the caller's contract.
        unsafe { put(errcode_ret, CL_SUCCESS) };
        without_provenance_mut(number)
    }

    unsafe fn clReleaseMemObject(&self, memobj: cl_mem) -> cl_int {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        match buffers.remove(&memobj.addr()) {
            Some(_) => CL_SUCCESS,
            None => CL_INVALID_MEM_OBJECT,
        }
    }

    unsafe fn clEnqueueWriteBuffer(
        &self,
        _command_queue: cl_command_queue,
        buffer: cl_mem,
        _blocking_write: cl_bool,
        offset: usize,
        size: usize,
        ptr: *const c_void,
        _num_events_in_wait_list: cl_uint,
        _event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract.
        unsafe { put(event, without_provenance_mut(ONLY)) };
        self.with(buffer, offset, size, |bytes| {
            // SAFETY: the caller's contract: `ptr` is readable for `size` bytes.
            unsafe { bytes.as_mut_ptr().copy_from(ptr.cast(), bytes.len()) }
        })
    }

    unsafe fn clEnqueueReadBuffer(
        &self,
        _command_queue: cl_command_queue,
        buffer: cl_mem,
        _blocking_read: cl_bool,
        offset: usize,
        size: usize,
        ptr: *mut c_void,
        _num_events_in_wait_list: cl_uint,
        _event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract.
        unsafe { put(event, without_provenance_mut(ONLY)) };
        self.with(buffer, offset, size, |bytes| {
            // SAFETY: the caller's contract: `ptr` is writable for `size` bytes.
            unsafe { ptr.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) }
        })
    }

    unsafe fn clGetEventInfo(
        &self,
        _event: cl_event,
        _param_name: cl_event_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        let complete = CL_COMPLETE.to_ne_bytes();
        // SAFETY: the caller's contract.
        unsafe {
            answer(
                &complete,
                param_value_size,
                param_value,
                param_value_size_ret,
            )
        }
    }
}

fn main() {
    // A worker with this backend and a client, in one process; `Remote` has the same contract as the backend.
    let pair = Pair::new(Arc::new(HostMemory::default()));
    let remote = Arc::clone(&pair.remote);
    let device = remote.platforms()[0].1[0];
    let mut status = CL_SUCCESS;
    // SAFETY: one device; one place for the status.
    let context = unsafe {
        remote.clCreateContext(
            null(),
            1,
            &raw const device,
            None,
            null_mut(),
            &raw mut status,
        )
    };
    assert_eq!(status, CL_SUCCESS, "clCreateContext");
    // SAFETY: context and device are live.
    let queue = unsafe { remote.clCreateCommandQueue(context, device, 0, &raw mut status) };
    assert_eq!(status, CL_SUCCESS, "clCreateCommandQueue");
    let written: Vec<u8> = (0..10_000).map(|number| (number % 251) as u8).collect();
    let size = written.len();
    // SAFETY: the context is live.
    let buffer = unsafe { remote.clCreateBuffer(context, 0, size, null_mut(), &raw mut status) };
    assert_eq!(status, CL_SUCCESS, "clCreateBuffer");
    let (from, none) = (written.as_ptr().cast(), null());
    // SAFETY: queue and buffer are live; `from` is readable for `size` bytes until the blocking call returns.
    let status = unsafe {
        remote.clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, size, from, 0, none, null_mut())
    };
    assert_eq!(status, CL_SUCCESS, "clEnqueueWriteBuffer");
    let mut read = vec![0_u8; size];
    let to = read.as_mut_ptr().cast();
    // SAFETY: queue and buffer are live; `to` is writable for `size` bytes until the blocking call returns.
    let status = unsafe {
        remote.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, to, 0, none, null_mut())
    };
    assert_eq!(status, CL_SUCCESS, "clEnqueueReadBuffer");
    assert!(read == written, "other bytes came back");
    // SAFETY: the buffer is live, and nobody uses it any more.
    unsafe { remote.clReleaseMemObject(buffer) };
    pair.finish().expect("the client ends the session");
    println!("{size} bytes went to the device of ten calls and came back");
}
