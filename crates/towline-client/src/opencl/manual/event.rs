//! Events.

use super::*;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl EventCalls for Remote {
    unsafe fn clCreateUserEvent(&self, context: cl_context, errcode_ret: *mut cl_int) -> cl_event {
        let event = self.mint_event(context.addr() as u64);
        if let Some(known) = self.link().state().events.get_mut(&event.0) {
            known.user = true;
        }
        let posted = self.post(&wire::CreateUserEvent {
            context: wire::ContextHandle::from_raw(context),
            created: event,
        });
        // SAFETY: the caller's contract of the C function.
        unsafe { created(posted.map(|()| event.to_raw()), errcode_ret) }
    }

    unsafe fn clSetUserEventStatus(&self, event: cl_event, execution_status: cl_int) -> cl_int {
        self.set_user_event(event, execution_status)
    }

    unsafe fn clWaitForEvents(&self, num_events: cl_uint, event_list: *const cl_event) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        self.wait_for_events(unsafe { events(event_list, num_events) })
    }

    unsafe fn clGetEventInfo(
        &self,
        event: cl_event,
        param_name: cl_event_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        if param_name != CL_EVENT_COMMAND_EXECUTION_STATUS {
            return CL_INVALID_VALUE;
        }
        match self.event_status(event) {
            // SAFETY: the caller's contract of the C function.
            Some(status) => unsafe {
                answer(
                    &status.to_ne_bytes(),
                    param_value_size,
                    param_value,
                    param_value_size_ret,
                )
            },
            None => CL_INVALID_EVENT,
        }
    }

    unsafe fn clGetEventProfilingInfo(
        &self,
        event: cl_event,
        param_name: cl_profiling_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        match self.profiled(event, param_name) {
            // SAFETY: the caller's contract of the C function.
            Ok(time) => unsafe {
                answer(
                    &time.to_ne_bytes(),
                    param_value_size,
                    param_value,
                    param_value_size_ret,
                )
            },
            Err(status) => status,
        }
    }

    unsafe fn clSetEventCallback(
        &self,
        event: cl_event,
        command_exec_callback_type: cl_int,
        pfn_notify: Option<unsafe extern "C" fn(cl_event, cl_int, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int {
        let _ = command_exec_callback_type;
        let Some(notify) = pfn_notify else {
            return CL_INVALID_VALUE;
        };
        let target = Notify {
            event,
            notify,
            user_data,
        };
        self.on_complete(event, Box::new(move |status| target.call(status)))
    }

    unsafe fn clReleaseEvent(&self, event: cl_event) -> cl_int {
        self.release_event(event)
    }
}

/// A C callback with its data.
struct Notify {
    event: cl_event,
    notify: unsafe extern "C" fn(cl_event, cl_int, *mut c_void),
    user_data: *mut c_void,
}

// SAFETY: the API has callbacks called from any thread; the pointers are the registrant's and only passed on.
unsafe impl Send for Notify {}

impl Notify {
    fn call(self, status: cl_int) {
        // SAFETY: the registrant's own function, with its own data.
        unsafe { (self.notify)(self.event, status, self.user_data) };
    }
}
