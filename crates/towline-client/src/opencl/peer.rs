//! Buffers that go to another server, or come from one, over a peer lane.

use super::*;
use crate::peer::{Control, PeerLane};

impl Remote {
    /// What is asked of this session's supervisor; `None` for a session without one.
    pub(crate) fn control(&self) -> Option<&Arc<Control>> {
        self.links.last().control.as_ref()
    }

    /// Waits until this session's worker has a lane.
    pub fn open_peer(&self, lane: u64) -> Result<(), cl_int> {
        let reply = self.link().measure(&wire::PeerOpen { lane })?;
        match reply.status {
            CL_SUCCESS => Ok(()),
            status => Err(status),
        }
    }

    /// Counts what went to another server directly.
    pub fn sent_to_peer(&self, bytes: usize) {
        self.link().meter.sent_to_peer(bytes);
    }

    /// Sends the first `size` bytes of a buffer as `payload` of a lane; gives the command's event, which is the caller's.
    pub fn send_to_peer(
        &self,
        lane: &PeerLane,
        payload: u64,
        queue: cl_command_queue,
        mem: cl_mem,
        size: usize,
    ) -> Result<cl_event, cl_int> {
        let _call = self.enter();
        let event = self.mint_event(queue.addr() as u64);
        self.post(&wire::PeerSend {
            command_queue: wire::CommandQueueHandle::from_raw(queue),
            mem: wire::MemHandle::from_raw(mem),
            offset: 0,
            size: size as u64,
            lane: lane.number,
            payload,
            num_events_in_wait_list: 0,
            event_wait_list: None,
            event: Some(event),
        })?;
        Ok(event.to_raw())
    }

    /// Takes `payload` of a lane into the first `size` bytes of a buffer; gives the command's event, which is the caller's.
    pub fn receive_from_peer(
        &self,
        lane: &PeerLane,
        payload: u64,
        queue: cl_command_queue,
        mem: cl_mem,
        size: usize,
    ) -> Result<cl_event, cl_int> {
        let _call = self.enter();
        let event = self.mint_event(queue.addr() as u64);
        self.post(&wire::PeerReceive {
            command_queue: wire::CommandQueueHandle::from_raw(queue),
            mem: wire::MemHandle::from_raw(mem),
            offset: 0,
            size: size as u64,
            lane: lane.number,
            payload,
            num_events_in_wait_list: 0,
            event_wait_list: None,
            event: Some(event),
        })?;
        Ok(event.to_raw())
    }
}
