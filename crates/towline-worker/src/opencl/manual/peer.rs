//! Buffers that go to, or come from, the worker of another server: mapped here, mapped there, and sent from one mapping into the
//! other.
//!
//! The event of such a command is one of ours and not the vendor's: when a transfer fails half-way, the mapping must end in order,
//! which the vendor calls a success, and the event must not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::ProtocolError;

use super::gate::Gate;
use super::place::Place;
use super::transfer::Transfer;
use crate::opencl::peer::PeerLane;
use crate::opencl::session::Session;
use crate::opencl::shared::{Raw, Shared};

/// How long a client may wait for a lane that the supervisors have made.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(5);

/// The end of a transfer: the client's event, and what went wrong so far.
struct Outcome {
    shared: Arc<Shared>,
    event: Gate,
    told: Option<u64>,
    status: AtomicI32,
}

impl Outcome {
    /// Notes how a part of the transfer ended.
    fn note(&self, status: i32) {
        if status < 0 {
            // The first failure says why.
            let _ = self
                .status
                .compare_exchange(0, status, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Ends the client's event.
    fn tell(&self, status: i32) {
        self.note(status);
        let status = self.status.load(Ordering::Acquire);
        self.event.set(status);
        if let Some(id) = self.told {
            // Vendors report the end of a user event when they get round to it.
            self.shared.event_done(id, status);
            self.shared.flush();
        }
    }
}

impl Session {
    pub(crate) fn PeerOpen(
        &mut self,
        number: u64,
        request: wire::PeerOpen,
    ) -> Result<(), ProtocolError> {
        let shared = Arc::clone(&self.shared);
        self.shared.waiters.run(move || {
            let status = match shared.peers.wait(request.lane, ARRIVAL_LIMIT) {
                true => CL_SUCCESS,
                false => CL_DEVICE_NOT_AVAILABLE,
            };
            shared.reply(number, status, &wire::PeerOpenReply {});
            shared.flush();
        });
        Ok(())
    }

    pub(crate) fn PeerSend(
        &mut self,
        number: u64,
        request: wire::PeerSend<'_>,
    ) -> Result<(), ProtocolError> {
        let place = Place::linear(request.offset, request.size)?;
        let payload = request.payload;
        let lane = self.shared.peers.lane(request.lane);
        if let Some(lane) = &lane {
            lane.begin_send(payload, request.size)?;
        }
        let transfer = self.transfer(
            number,
            <wire::PeerSend<'_> as Request<'_>>::ID,
            request.command_queue,
            request.mem,
            place,
            request.event_wait_list,
            request.event,
        )?;
        let Some((transfer, lane)) = self.over_lane(transfer, lane.as_ref())? else {
            if let Some(lane) = lane {
                lane.fail(payload, CL_OUT_OF_RESOURCES);
            }
            return Ok(());
        };
        let (memory, mapped) = match self.map(&transfer, CL_MAP_READ as cl_map_flags)? {
            Ok(mapped) => mapped,
            Err(status) => {
                lane.fail(payload, status);
                return Ok(());
            }
        };
        let (gate, outcome, end) = self.unmap_behind(&transfer, memory);
        let told = Arc::clone(&outcome);
        let (lane, size) = (Arc::clone(lane), request.size);
        self.on_complete(&transfer, mapped, move |status| {
            if status < 0 {
                lane.fail(payload, status);
                return gate.set(status);
            }
            let sent = Box::new(move |status| {
                outcome.note(status);
                gate.set(CL_COMPLETE);
            });
            lane.send(payload, size, memory, sent);
        });
        self.conclude_peer(&transfer, &told, end)
    }

    pub(crate) fn PeerReceive(
        &mut self,
        number: u64,
        request: wire::PeerReceive<'_>,
    ) -> Result<(), ProtocolError> {
        let place = Place::linear(request.offset, request.size)?;
        let payload = request.payload;
        let lane = self.shared.peers.lane(request.lane);
        if let Some(lane) = &lane {
            lane.begin_receive(payload)?;
        }
        let transfer = self.transfer(
            number,
            <wire::PeerReceive<'_> as Request<'_>>::ID,
            request.command_queue,
            request.mem,
            place,
            request.event_wait_list,
            request.event,
        )?;
        let Some((transfer, lane)) = self.over_lane(transfer, lane.as_ref())? else {
            if let Some(lane) = lane {
                lane.refuse(payload, CL_OUT_OF_RESOURCES);
            }
            return Ok(());
        };
        let flags = CL_MAP_WRITE_INVALIDATE_REGION as cl_map_flags;
        let (memory, mapped) = match self.map(&transfer, flags)? {
            Ok(mapped) => mapped,
            Err(status) => {
                lane.refuse(payload, status);
                return Ok(());
            }
        };
        let (gate, outcome, end) = self.unmap_behind(&transfer, memory);
        let told = Arc::clone(&outcome);
        let (lane, size) = (Arc::clone(lane), request.size);
        self.on_complete(&transfer, mapped, move |status| {
            if status < 0 {
                lane.refuse(payload, status);
                return gate.set(status);
            }
            let landed = Box::new(move |status| {
                outcome.note(status);
                gate.set(CL_COMPLETE);
            });
            lane.open(payload, size, memory, landed);
        });
        self.conclude_peer(&transfer, &told, end)
    }

    /// A transfer with its lane; `None` when one of them is missing, which has been told.
    fn over_lane<'a>(
        &mut self,
        transfer: Result<Transfer, cl_int>,
        lane: Option<&'a Arc<PeerLane>>,
    ) -> Result<Option<(Transfer, &'a Arc<PeerLane>)>, ProtocolError> {
        match (transfer, lane) {
            (Ok(transfer), Some(lane)) => Ok(Some((transfer, lane))),
            (Ok(transfer), None) => {
                self.unwritable(&transfer, CL_DEVICE_NOT_AVAILABLE)?;
                Ok(None)
            }
            (Err(_), _) => Ok(None),
        }
    }

    /// Enqueues the end of a mapping behind a gate, and gives its event.
    fn unmap_behind(&mut self, transfer: &Transfer, memory: Raw) -> (Gate, Arc<Outcome>, Raw) {
        let context = self.context(transfer.queue);
        let gate = Gate::new(&self.shared, context);
        let outcome = Outcome {
            shared: Arc::clone(&self.shared),
            event: Gate::new(&self.shared, context),
            told: transfer.event.map(|event| event.0),
            status: AtomicI32::new(0),
        };
        let end = self.unmap(transfer, memory, &gate);
        // SAFETY: the queue is live. Completion comes only for commands that were submitted.
        unsafe { self.api.clFlush(transfer.queue) };
        (gate, Arc::new(outcome), end)
    }

    /// Gives the client the event of a transfer, which ends behind its mapping. After what waits for the mapping's beginning: a
    /// queue's events are waited for in the order in which that was asked.
    fn conclude_peer(
        &mut self,
        transfer: &Transfer,
        outcome: &Arc<Outcome>,
        end: Raw,
    ) -> Result<(), ProtocolError> {
        if !end.0.is_null() {
            let ended = Arc::clone(outcome);
            self.on_complete(transfer, end, move |status| ended.tell(status));
        }
        let event = outcome.event.event();
        if transfer.event.is_none() || event.is_null() {
            return Ok(());
        }
        // SAFETY: the event is live; this reference goes to the client's handle.
        unsafe { self.api.clRetainEvent(event) };
        self.born_event(transfer.event, event, CL_OUT_OF_RESOURCES)
    }
}
