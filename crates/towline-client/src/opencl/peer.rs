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
        let (queue, mem) = (
            wire::CommandQueueHandle::from_raw(queue),
            wire::MemHandle::from_raw(mem),
        );
        let event = self.pass_out((lane, payload), queue, mem, (0, size))?;
        Ok(event.to_raw())
    }

    /// The same of bytes anywhere in a buffer: where they begin, and how many.
    pub(super) fn pass_out(
        &self,
        (lane, payload): (&PeerLane, u64),
        command_queue: wire::CommandQueueHandle,
        mem: wire::MemHandle,
        (offset, size): (usize, usize),
    ) -> Result<wire::EventHandle, cl_int> {
        let event = self.mint_event(command_queue.0);
        self.post(&wire::PeerSend {
            command_queue,
            mem,
            offset: offset as u64,
            size: size as u64,
            lane: lane.number,
            payload,
            num_events_in_wait_list: 0,
            event_wait_list: None,
            event: Some(event),
        })?;
        Ok(event)
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
        let (queue, mem) = (
            wire::CommandQueueHandle::from_raw(queue),
            wire::MemHandle::from_raw(mem),
        );
        let event = self.take_in((lane, payload), queue, mem, (0, size))?;
        Ok(event.to_raw())
    }

    /// The same of bytes anywhere in a buffer: where they begin, and how many.
    pub(super) fn take_in(
        &self,
        (lane, payload): (&PeerLane, u64),
        command_queue: wire::CommandQueueHandle,
        mem: wire::MemHandle,
        (offset, size): (usize, usize),
    ) -> Result<wire::EventHandle, cl_int> {
        let event = self.mint_event(command_queue.0);
        self.post(&wire::PeerReceive {
            command_queue,
            mem,
            offset: offset as u64,
            size: size as u64,
            lane: lane.number,
            payload,
            num_events_in_wait_list: 0,
            event_wait_list: None,
            event: Some(event),
        })?;
        Ok(event)
    }
}
