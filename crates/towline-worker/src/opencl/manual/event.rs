//! User events. Whoever waits for one waits for the client, so none may be left without an end.

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::ProtocolError;

use crate::opencl::session::Session;
use crate::opencl::shared::Raw;

impl Session {
    pub(crate) fn clCreateUserEvent(
        &mut self,
        number: u64,
        request: wire::CreateUserEvent,
    ) -> Result<(), ProtocolError> {
        let mut status = CL_SUCCESS;
        let mut native: cl_event = std::ptr::null_mut();
        match self.native(request.context.0, wire::ContextHandle::TAG)? {
            Err(failed) => status = failed,
            // SAFETY: the context is live or NULL, which the vendor refuses.
            Ok(context) => unsafe {
                native = self.api.clCreateUserEvent(context.cast(), &raw mut status);
            },
        }
        let id = request.created.0;
        self.born(id, wire::EventHandle::TAG, native.cast(), status)?;
        if !native.is_null() {
            // SAFETY: the event is live; this reference lasts until its status is set.
            unsafe { self.api.clRetainEvent(native) };
            self.open_events.insert(id, Raw(native.cast()));
        }
        self.settle(number, <wire::CreateUserEvent as Request<'_>>::ID, status);
        Ok(())
    }

    pub(crate) fn clSetUserEventStatus(
        &mut self,
        number: u64,
        request: wire::SetUserEventStatus,
    ) -> Result<(), ProtocolError> {
        let id = request.event.0;
        let status = match self.native(id, wire::EventHandle::TAG)? {
            Err(status) => status,
            // SAFETY: the event is live or NULL; the vendor judges whether it is a user event and the status one to set.
            Ok(event) => unsafe {
                self.api
                    .clSetUserEventStatus(event.cast(), request.execution_status as cl_int)
            },
        };
        if status == CL_SUCCESS
            && let Some(event) = self.open_events.remove(&id)
        {
            self.shared.release_event(event);
        }
        if status == CL_SUCCESS && (request.execution_status as cl_int) < 0 {
            // Not every vendor calls back for what fails with it (PoCL 3.1).
            self.shared.settle_before_answer();
        }
        self.settle(
            number,
            <wire::SetUserEventStatus as Request<'_>>::ID,
            status,
        );
        Ok(())
    }

    pub(crate) fn clGetEventProfilingInfo(
        &mut self,
        number: u64,
        request: wire::GetEventProfilingInfo,
    ) -> Result<(), ProtocolError> {
        let begins = matches!(
            request.param_name,
            CL_PROFILING_COMMAND_QUEUED | CL_PROFILING_COMMAND_SUBMIT | CL_PROFILING_COMMAND_START
        );
        let first = self.first_parts.get(&request.event.0).filter(|_| begins);
        let native = match first {
            Some(first) => Ok(first.0),
            None => self.native(request.event.0, wire::EventHandle::TAG)?,
        };
        let mut time = [0; size_of::<cl_ulong>()];
        let size = time.len();
        let status = match native {
            Err(status) => status,
            Ok(_) if request.want_param_value && request.param_value_size < size as u64 => {
                CL_INVALID_VALUE
            }
            // SAFETY: the event is live, the answer is one `cl_ulong`.
            Ok(event) => unsafe {
                self.api.clGetEventProfilingInfo(
                    event.cast(),
                    request.param_name,
                    size,
                    time.as_mut_ptr().cast(),
                    std::ptr::null_mut(),
                )
            },
        };
        let reply = wire::GetEventProfilingInfoReply {
            param_value: request.want_param_value.then_some(&time),
            param_value_size_ret: size as u64,
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    /// Ends a user event that nobody can set any more: what waits for it fails instead of waiting for ever.
    pub(crate) fn abandon_event(&mut self, id: u64) {
        if let Some(event) = self.open_events.remove(&id) {
            // SAFETY: the reference is ours until the next call.
            unsafe {
                self.api
                    .clSetUserEventStatus(event.0.cast(), CL_OUT_OF_RESOURCES)
            };
            self.shared.release_event(event);
        }
    }

    /// Ends every user event that is still open.
    pub(crate) fn abandon_events(&mut self) {
        let open: Vec<u64> = self.open_events.keys().copied().collect();
        for id in open {
            self.abandon_event(id);
        }
    }
}
