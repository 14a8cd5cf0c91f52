//! Events: all of them the adapter's own, so nothing here needs the vendor.

use std::sync::Arc;

use super::super::contract::{Asked, Bytes, created, handle, list, require, status};
use super::super::*;
use super::Serial;
use super::objects::Event;

#[allow(non_snake_case)]
impl Serial {
    pub(super) unsafe fn clCreateUserEvent(
        &self,
        context: cl_context,
        errcode_ret: *mut cl_int,
    ) -> cl_event {
        let event = Event::new(&self.scheduler, context.addr(), None, CL_COMMAND_USER);
        let made = if context.is_null() {
            Err(CL_INVALID_CONTEXT)
        } else {
            Ok(self.registry.publish(Arc::new(event)))
        };
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
            event.end(&self.scheduler, execution_status)
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
            let is_one = events
                .windows(2)
                .all(|pair| pair[0].context == pair[1].context);
            require(is_one, CL_INVALID_CONTEXT)?;
            self.scheduler.wait_for_all(&events)
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
            let references = self.registry.references(event);
            let answer = object.describe(param_name, object.context, references)?;
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
            self.registry.hold::<Event>(number)?;
            let registry = Arc::downgrade(&self.registry);
            let call = Box::new(move |status| {
                let data = std::ptr::with_exposed_provenance_mut(data);
                // SAFETY: the application gave this function to be called with its pointer at this status; the handle is held.
                unsafe { function(handle(number), status, data) };
                if let Some(registry) = registry.upgrade() {
                    registry.let_go::<Event>(number);
                }
            });
            self.scheduler
                .on_status(&object, command_exec_callback_type, call);
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

    pub(super) unsafe fn clRetainEvent(&self, event: cl_event) -> cl_int {
        status(self.registry.retain::<Event, _>(event))
    }

    pub(super) unsafe fn clReleaseEvent(&self, event: cl_event) -> cl_int {
        status(self.registry.release::<Event, _>(event).map(drop))
    }
}
