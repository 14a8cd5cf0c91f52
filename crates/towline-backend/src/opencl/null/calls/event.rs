//! Events.

use std::ptr;
use std::sync::Arc;

use super::super::super::contract::*;
use super::super::super::*;
use super::super::registry::{Context, Event};

#[allow(non_snake_case, clippy::too_many_arguments)]
impl NullOpenCl {
    pub(super) unsafe fn clCreateUserEvent(
        &self,
        context: cl_context,
        errcode_ret: *mut cl_int,
    ) -> cl_event {
        let made = self.get::<Context, _>(context).map(|context| {
            let event = Event::new(&self.shared.scheduler, context, None, CL_COMMAND_USER);
            self.shared.registry.publish(Arc::new(event))
        });
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    pub(super) unsafe fn clSetUserEventStatus(
        &self,
        event: cl_event,
        execution_status: cl_int,
    ) -> cl_int {
        status(self.get::<Event, _>(event).and_then(|event| {
            require(event.queue.is_none(), CL_INVALID_EVENT)?;
            require(execution_status <= CL_COMPLETE, CL_INVALID_VALUE)?;
            event.end(&self.shared.scheduler, execution_status)
        }))
    }

    pub(super) unsafe fn clWaitForEvents(
        &self,
        num_events: cl_uint,
        event_list: *const cl_event,
    ) -> cl_int {
        status((|| {
            require(num_events > 0, CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            let events = unsafe { list(event_list, num_events as usize, CL_INVALID_VALUE) }?;
            let events: Result<Vec<Arc<Event>>, _> =
                events.into_iter().map(|event| self.get(event)).collect();
            let events = events?;
            let context = events.first().map(|event| event.context.handle);
            let is_one = events
                .iter()
                .all(|event| Some(event.context.handle) == context);
            require(is_one, CL_INVALID_CONTEXT)?;
            self.shared.scheduler.wait_for_all(&events)
        })())
    }

    pub(super) unsafe fn clGetEventInfo(
        &self,
        event: cl_event,
        param_name: cl_event_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Event, _>(event).and_then(|object| {
            let references = self.shared.registry.references(event);
            let answer = object.describe(param_name, object.context.handle, references)?;
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    pub(super) unsafe fn clSetEventCallback(
        &self,
        event: cl_event,
        command_exec_callback_type: cl_int,
        pfn_notify: Option<unsafe extern "C" fn(cl_event, cl_int, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int {
        status(self.get::<Event, _>(event).and_then(|object| {
            let function = pfn_notify.ok_or(CL_INVALID_VALUE)?;
            let is_type = (CL_COMPLETE..=CL_SUBMITTED).contains(&command_exec_callback_type);
            require(is_type, CL_INVALID_VALUE)?;
            let (number, data) = (event.addr(), user_data.expose_provenance());
            self.shared.registry.hold::<Event>(number)?;
            let shared = Arc::downgrade(&self.shared);
            let call = Box::new(move |status| {
                let data = ptr::with_exposed_provenance_mut(data);
                // SAFETY: the application gave this function to be called with its pointer at this status; the handle is held.
                unsafe { function(handle(number), status, data) };
                if let Some(shared) = shared.upgrade() {
                    shared.registry.let_go::<Event>(number);
                }
            });
            let at = command_exec_callback_type;
            self.shared.scheduler.on_status(&object, at, call);
            Ok(())
        }))
    }

    pub(super) unsafe fn clGetEventProfilingInfo(
        &self,
        event: cl_event,
        param_name: cl_profiling_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Event, _>(event).and_then(|object| {
            let time = object.time(param_name)?;
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&time.bytes()) }
        }))
    }
}
