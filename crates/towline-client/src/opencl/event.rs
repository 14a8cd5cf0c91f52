//! Waits and events: status comes by itself, waits are one round trip.

use super::rebuild::TIMES;
use super::*;
use crate::state::Callback;

impl Remote {
    pub(super) fn finish(&self, queue: cl_command_queue) -> cl_int {
        let request = wire::Finish {
            command_queue: wire::CommandQueueHandle::from_raw(queue),
        };
        let id = queue.addr() as u64;
        let reply = self
            .link()
            .ask_behind("clFinish", &request, |state| state.reads_of(id, (0, 0)));
        match reply.map(|reply| reply.status) {
            Ok(status) if status < 0 => status,
            Ok(_) => self.failure(queue),
            Err(status) => status,
        }
    }

    /// The failure of a posted command on this queue that no wait has reported.
    pub(super) fn failure(&self, queue: cl_command_queue) -> cl_int {
        let mut state = self.link().state();
        if state.failures.is_empty() {
            return CL_SUCCESS;
        }
        state
            .failures
            .remove(&(queue.addr() as u64))
            .unwrap_or(CL_SUCCESS)
    }

    pub(super) fn wait_for_events(&self, events: &[cl_event]) -> cl_int {
        let mut failed = false;
        let mut open: smallvec::SmallVec<[wire::EventHandle; 8]> = smallvec::SmallVec::new();
        self.link().poll();
        {
            let state = self.link().state();
            for event in events {
                let handle = wire::EventHandle::from_raw(*event);
                match state.events.get(&handle.0).map(|known| known.status) {
                    Some(Some(status)) => failed |= status < 0,
                    Some(None) => open.push(handle),
                    None => return CL_INVALID_EVENT,
                }
            }
        }
        if !open.is_empty() {
            let request = wire::Wait {
                num_events: open.len() as u32,
                events: wire::List::Values(&open),
            };
            let covered = |state: &crate::state::State| {
                open.iter()
                    .flat_map(|event| state.reads_before(event.0))
                    .collect()
            };
            let reply = self.link().ask_behind("clWaitForEvents", &request, covered);
            let reply = reply.and_then(|reply| match reply.status {
                failure if failure < 0 => Err(failure),
                _ => Ok(()),
            });
            match reply {
                Ok(()) => {}
                Err(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) => failed = true,
                Err(status) => return status,
            }
        }
        if failed {
            CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
        } else {
            CL_SUCCESS
        }
    }

    pub(super) fn event_status(&self, event: cl_event) -> Option<cl_int> {
        let id = event.addr() as u64;
        let known = |link: &Link| link.state().events.get(&id).map(|event| event.status);
        match known(self.link())? {
            Some(status) => Some(status),
            None => {
                // Whoever polls reads the lane: completions are pushed, but somebody must take them in.
                self.link().poll();
                Some(known(self.link())?.unwrap_or(crate::state::SUBMITTED))
            }
        }
    }

    /// One of an event's times: as told with its end, or else asked of the server, unless the session has moved since.
    pub(super) fn profiled(&self, event: cl_event, name: cl_profiling_info) -> Result<u64, cl_int> {
        let mut id = event.addr() as u64;
        if matches!(
            name,
            CL_PROFILING_COMMAND_QUEUED | CL_PROFILING_COMMAND_SUBMIT | CL_PROFILING_COMMAND_START
        ) {
            id = lock(&self.first_parts).get(&id).copied().unwrap_or(id);
        }
        if let Some(known) = lock(&self.times).get(&id) {
            let found = known.iter().find(|(known, _)| *known == name);
            return found
                .map(|(_, time)| *time)
                .ok_or(CL_PROFILING_INFO_NOT_AVAILABLE);
        }
        let told = self
            .link()
            .state()
            .events
            .get(&id)
            .and_then(|event| event.times);
        let place = TIMES.iter().position(|known| *known == name);
        if let (Some(told), Some(place)) = (told, place)
            && told[place] != 0
        {
            return Ok(told[place]);
        }
        let body = self.call_for("clGetEventProfilingInfo", &times_request(id, name))?;
        self.time_in(&body)
    }

    /// The time in an answer to [`times_request`].
    pub(super) fn time_in(&self, body: &[u8]) -> Result<u64, cl_int> {
        let reply = wire::GetEventProfilingInfoReply::decode(body).map_err(|_| self.malformed())?;
        let bytes = reply.param_value.and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(u64::from_le_bytes)
            .ok_or_else(|| self.malformed())
    }

    /// Has `callback` run when the event has ended. It must not wait for this session.
    pub(super) fn on_complete(&self, event: cl_event, callback: Callback) -> cl_int {
        let mut state = self.link().state();
        let Some(known) = state.events.get_mut(&(event.addr() as u64)) else {
            return CL_INVALID_EVENT;
        };
        match known.status {
            Some(status) => {
                drop(state);
                callback(status);
            }
            None => {
                known.callbacks.push(callback);
                drop(state);
                self.link().raise_interest();
            }
        }
        CL_SUCCESS
    }

    pub(super) fn release_event(&self, event: cl_event) -> cl_int {
        let id = event.addr() as u64;
        lock(&self.times).remove(&id);
        let first = lock(&self.first_parts).remove(&id);
        if let Some(first) = first {
            self.release_event(wire::EventHandle(first).to_raw());
        }
        {
            let mut state = self.link().state();
            let Some(known) = state.events.get_mut(&id) else {
                return CL_INVALID_EVENT;
            };
            if known.status.is_some() || known.callbacks.is_empty() {
                state.events.remove(&id);
            } else {
                known.released = true;
            }
        }
        status_of(self.post(&wire::ReleaseEvent {
            event: wire::EventHandle(id),
        }))
    }

    pub(super) fn set_user_event(&self, event: cl_event, status: cl_int) -> cl_int {
        let id = event.addr() as u64;
        let callbacks: Vec<Callback> = {
            let mut state = self.link().state();
            let Some(known) = state.events.get_mut(&id) else {
                return CL_INVALID_EVENT;
            };
            if known.status.is_some() {
                return CL_INVALID_OPERATION;
            }
            known.status = Some(status);
            let callbacks: Vec<Callback> = std::mem::take(&mut known.callbacks);
            state.settled += callbacks.len();
            callbacks
        };
        let request = wire::SetUserEventStatus {
            event: wire::EventHandle(id),
            execution_status: status,
        };
        let posted = status_of(self.post(&request));
        self.link().notify();
        for callback in callbacks {
            callback(status);
        }
        posted
    }
}

/// Asks for one of an event's times.
pub(super) fn times_request(event: u64, name: cl_profiling_info) -> wire::GetEventProfilingInfo {
    wire::GetEventProfilingInfo {
        event: wire::EventHandle(event),
        param_name: name,
        param_value_size: size_of::<u64>() as u64,
        want_param_value: true,
    }
}

/// A posted request's outcome as a status.
pub(super) fn status_of(result: Result<(), cl_int>) -> cl_int {
    result.err().unwrap_or(CL_SUCCESS)
}
