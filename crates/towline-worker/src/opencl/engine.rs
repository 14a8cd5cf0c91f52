//! The engine for OpenCL: opens a backend, describes its devices, then serves one session.

use std::sync::Arc;
use std::time::Duration;

use towline_backend::opencl::{CL_OUT_OF_RESOURCES, EnqueueNDRangeKernel, OpenClApi, Request};
use towline_transport::Connection;
use towline_wire::error::{DecodeError, ProtocolError};

use super::completion::Overruns;
use super::peer::Peers;
use super::session::Session;
use super::shared::{Raw, Shared};
use super::snapshot::{self, OpenClOpenError};
use crate::lane::{self, Limits, RunError, Serve, SideLane};
use crate::link::{Counters, Link};
use crate::payload::Payloads;
use crate::waiters::Job;

/// A backend with its devices, ready for one session.
pub struct OpenClEngine {
    api: Arc<dyn OpenClApi>,
    snapshot: Vec<u8>,
    devices: Vec<(u64, Raw)>,
}

impl OpenClEngine {
    /// Takes the devices of `api` for which `select` says yes; its arguments are the number among all devices and the name.
    pub fn open(
        api: Arc<dyn OpenClApi>,
        select: &dyn Fn(usize, &str) -> bool,
    ) -> Result<Self, OpenClOpenError> {
        let (snapshot, devices) = snapshot::take(&*api, select)?;
        Ok(Self {
            api,
            snapshot: snapshot.encode(),
            devices,
        })
    }

    /// Gives the session some of the devices alone, by number.
    #[must_use]
    pub fn with_devices(mut self, chosen: &[u32]) -> Self {
        let mut number = 0;
        self.devices.retain(|_| {
            number += 1;
            chosen.contains(&(number - 1))
        });
        self
    }

    /// The devices in their encoding.
    pub fn snapshot(&self) -> &[u8] {
        &self.snapshot
    }

    /// Takes over this process's standard output, so that what kernels print goes to the client. For worker processes only.
    pub fn capture_output(&self) -> std::io::Result<()> {
        crate::print::capture()
    }

    /// Serves a session: `command` is its command lane; `lanes` is called on a thread of its own and gives each payload lane and
    /// peer lane as it is opened, then `None`.
    pub fn run<L: Into<SideLane>>(
        self,
        command: Arc<dyn Connection>,
        lanes: impl FnMut() -> Option<L> + Send + 'static,
        limits: Limits,
        counters: Arc<Counters>,
    ) -> Result<(), RunError> {
        let payloads = Payloads::new(limits.chunk_bytes);
        let peers = Arc::new(Peers::default());
        let link = Arc::new(Link::new(
            Arc::clone(&command),
            counters,
            payloads,
            Some(peers.clone()),
        ));
        let shared = Arc::new(Shared::new(Arc::clone(&self.api), Arc::clone(&link), peers));
        let looking = Arc::clone(&shared);
        link.device_time.look_by(move || looking.devices_at_work());
        let looking = Arc::clone(&shared);
        link.serve_turns(move |place, _| looking.launches_ended(place));
        let session = Session::new(shared, &self.devices);
        lane::run(link, session, command, lanes, limits)
    }
}

impl Serve for Session {
    const LAUNCHES: &'static [u16] = &[<EnqueueNDRangeKernel<'static> as Request<'static>>::ID];

    fn dispatch(&mut self, number: u64, id: u16, body: &[u8]) -> Result<(), ProtocolError> {
        match self.shared.counters.turns.are_asked() && Self::LAUNCHES.contains(&id) {
            true => self.dispatch_launch(number, id, body),
            false => self.dispatch(number, id, body),
        }
    }

    fn describe(id: u16, body: &[u8]) -> Result<String, DecodeError> {
        towline_wire::opencl::describe(id, body)
    }

    fn take_wait(&mut self) -> Option<Job> {
        self.waiting.take()
    }

    fn is_owed(&mut self) -> bool {
        self.debts.are_open(&self.shared)
    }

    fn is_overdue(&self) -> bool {
        self.debts.are_overdue()
    }

    fn collect(&mut self) {
        self.debts.collect(&self.shared);
    }

    fn end_of_frame(&mut self) -> bool {
        self.retire();
        !self.goodbye
    }

    fn release_all(&mut self) {
        self.release_all();
    }

    fn watch(&self, limit: Duration) -> (i32, Box<dyn FnMut() -> bool + Send>) {
        let shared = Arc::clone(&self.shared);
        let mut overruns = Overruns::watch(&shared, limit);
        let look = move || overruns.look(&shared);
        (CL_OUT_OF_RESOURCES, Box::new(look))
    }
}
