// ---- the C ABI (stub)

/// Enqueues a command.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clEnqueueCommand(command_queue: cl_command_queue, src_buffer: cl_mem, blocking_read: cl_bool, origin: *const usize, pattern: *const c_void, src_offset: usize, size: usize, ptr: *mut c_void, num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event, event: *mut cl_event) -> cl_int {
    guard("clEnqueueCommand", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clEnqueueCommand(library, command_queue, src_buffer, blocking_read, origin, pattern, src_offset, size, ptr, num_events_in_wait_list, event_wait_list, event) }
    })
}

// ---- the contract (backend)

    /// Enqueues a command.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clEnqueueCommand(&self, command_queue: cl_command_queue, src_buffer: cl_mem, blocking_read: cl_bool, origin: *const usize, pattern: *const c_void, src_offset: usize, size: usize, ptr: *mut c_void, num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event, event: *mut cl_event) -> cl_int {
        let _ = (command_queue, src_buffer, blocking_read, origin, pattern, src_offset, size, ptr, num_events_in_wait_list, event_wait_list, event);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Enqueues a command.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clEnqueueCommand(&self, command_queue: cl_command_queue, src_buffer: cl_mem, blocking_read: cl_bool, origin: Option<&[usize]>, pattern: *const c_void, src_offset: usize, size: usize, ptr: *mut c_void, num_events_in_wait_list: cl_uint, event_wait_list: Option<&[cl_event]>, event: Out<cl_event>) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clEnqueueCommand(&self, command_queue: cl_command_queue, src_buffer: cl_mem, blocking_read: cl_bool, origin: *const usize, pattern: *const c_void, src_offset: usize, size: usize, ptr: *mut c_void, num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event, event: *mut cl_event) -> cl_int {
        // SAFETY: the caller's contract: `origin` is NULL or points as far as the declaration says.
        let origin = unsafe { raw::slice(origin, 3) };
        // SAFETY: the caller's contract: `event_wait_list` is NULL or points as far as the declaration says.
        let event_wait_list = unsafe { raw::slice(event_wait_list, num_events_in_wait_list as usize) };
        // SAFETY: the caller's contract: `event` is NULL or points as far as the declaration says.
        let event = unsafe { Out::new(event) };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clEnqueueCommand(self, command_queue, src_buffer, blocking_read, origin, pattern, src_offset, size, ptr, num_events_in_wait_list, event_wait_list, event) };
        raw::status(result)
    }

// ---- the session's method to write (remote)

    /// # Safety
    /// The contract of the C function.
    unsafe fn clEnqueueCommand(&self, command_queue: cl_command_queue, src_buffer: cl_mem, blocking_read: cl_bool, origin: *const usize, pattern: *const c_void, src_offset: usize, size: usize, ptr: *mut c_void, num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event, event: *mut cl_event) -> cl_int;

// ---- the session's half (remote)

    unsafe fn clEnqueueCommand(&self, command_queue: cl_command_queue, src_buffer: cl_mem, blocking_read: cl_bool, origin: *const usize, pattern: *const c_void, src_offset: usize, size: usize, ptr: *mut c_void, num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event, event: *mut cl_event) -> cl_int {
        let _call = self.enter();
        // SAFETY: the caller's contract, passed on.
        unsafe { CallsCalls::clEnqueueCommand(self, command_queue, src_buffer, blocking_read, origin, pattern, src_offset, size, ptr, num_events_in_wait_list, event_wait_list, event) }
    }

// ---- the vendors' half (backend)

    unsafe fn clEnqueueCommand(&self, command_queue: cl_command_queue, src_buffer: cl_mem, blocking_read: cl_bool, origin: *const usize, pattern: *const c_void, src_offset: usize, size: usize, ptr: *mut c_void, num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event, event: *mut cl_event) -> cl_int {
        if let Some(function) = self.vendor(command_queue.cast()).functions.clEnqueueCommand {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(command_queue, src_buffer, blocking_read, origin, pattern, src_offset, size, ptr, num_events_in_wait_list, event_wait_list, event) };
        }
        let _ = (command_queue, src_buffer, blocking_read, origin, pattern, src_offset, size, ptr, num_events_in_wait_list, event_wait_list, event);
        NOT_SUPPORTED as cl_int
    }

// ---- a device with queues of its own (command)

status((|| {
    // SAFETY: the caller's contract.
    let target = unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
    // SAFETY: the caller's contract, passed on.
    let work = unsafe { self.clEnqueueCommand(&target.0, src_buffer, origin, pattern, src_offset, size, ptr) }?;
    let how = (CL_COMMAND_COMMAND, Order::Free, blocking_read);
    // SAFETY: the caller's contract.
    unsafe { self.submit(target, how, event, work) }
})())

// ---- passed to a serial vendor as it is (command)

    unsafe fn clEnqueueCommand(&self, at: &CommandQueue, src_buffer: cl_mem, origin: *const usize, pattern: *const c_void, src_offset: usize, size: usize, ptr: *mut c_void) -> Result<Work, cl_int> {
        let src_buffer = self.memory(at, src_buffer)?;
        src_buffer.range(src_offset, size)?;
        // SAFETY: the caller's contract.
        let origin = unsafe { triple(origin) }?;
        // SAFETY: the caller's contract.
        let pattern = unsafe { list(pattern.cast::<u8>(), 16, CL_INVALID_VALUE) }?;
        let ptr = Host::new(ptr)?;
        // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.
        Ok(self.work(at, move |native, queue, done| unsafe {
            native.clEnqueueCommand(queue, src_buffer.mem(), CL_FALSE, origin.as_ptr(), pattern.as_ptr().cast(), src_offset, size, ptr.at(), 0, std::ptr::null(), done)
        }))
    }
