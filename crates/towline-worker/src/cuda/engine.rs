//! The engine for CUDA: opens a driver, describes its devices, then serves one session.

use std::sync::Arc;
use std::time::Duration;

use towline_backend::cuda::{CUdevice, CudaApi};
use towline_transport::Connection;

use super::ahead::Ahead;
use super::broker::{Broker, NoBroker};
use super::collective::{Collectives, OpenLibrary};
use super::messages;
use super::session::Session;
use super::shared::Shared;
use super::snapshot;
use super::swap::Moves;
use crate::lane::{self, Limits, RunError, SideLane};
use crate::link::{Counters, Link};
use crate::payload::Payloads;

pub use super::snapshot::CudaOpenError;

/// A driver with its devices, ready for one session.
pub struct CudaEngine {
    api: Arc<dyn CudaApi>,
    /// NVIDIA's own driver.
    genuine: bool,
    snapshot: Vec<u8>,
    devices: Vec<CUdevice>,
    ahead: Ahead,
    contexts: usize,
    broker: Arc<dyn Broker>,
    collectives: Option<OpenLibrary>,
    patience: Option<Duration>,
}

impl CudaEngine {
    /// Starts the driver and takes the devices for which `select` says yes; its arguments are the number among all devices and the
    /// name. `genuine` says whether it is NVIDIA's own driver. The session is to find the primary contexts of the first `contexts`
    /// devices: they take device memory.
    pub fn open(
        api: Arc<dyn CudaApi>,
        genuine: bool,
        select: &dyn Fn(usize, &str) -> bool,
        contexts: usize,
    ) -> Result<Self, CudaOpenError> {
        let taken = snapshot::take(&*api, genuine, select, contexts)?;
        Ok(Self {
            api,
            genuine,
            snapshot: taken.snapshot.encode(),
            devices: taken.devices,
            ahead: Ahead::of(taken.held),
            contexts,
            broker: Arc::new(NoBroker),
            collectives: None,
            patience: None,
        })
    }

    /// Begins to make those of the contexts that are not there yet, so that the session need not wait for them.
    pub fn make_contexts(&mut self) {
        self.ahead.make(&self.api, &self.devices, self.contexts);
    }

    /// Gives the session some of the devices alone, by number.
    #[must_use]
    pub fn with_devices(mut self, chosen: &[u32]) -> Self {
        let mut number = 0;
        self.devices.retain(|device| {
            number += 1;
            let is_chosen = chosen.contains(&(number - 1));
            if !is_chosen {
                self.ahead.give_up(&*self.api, *device);
            }
            is_chosen
        });
        self
    }

    /// Has the session share memory and events with others through a broker.
    pub fn with_broker(self, broker: Arc<dyn Broker>) -> Self {
        Self { broker, ..self }
    }

    /// Lets the session run collectives with others, by the library that `open` opens when they are first asked for.
    #[must_use]
    pub fn with_collectives(self, open: OpenLibrary) -> Self {
        Self {
            collectives: Some(open),
            ..self
        }
    }

    /// Has collectives wait for so long, and no longer, once another of their ranks is gone.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self {
            patience: Some(patience),
            ..self
        }
    }

    /// The devices in their encoding.
    pub fn snapshot(&self) -> &[u8] {
        &self.snapshot
    }

    /// Takes over this process's standard output and C's `stderr`, so that what kernels print and failed assertions say goes to the
    /// client. For worker processes only.
    pub fn capture_output(&self) -> std::io::Result<()> {
        if self.genuine {
            crate::print::capture_assertions()?;
        }
        crate::print::capture()
    }

    /// Serves a session; see [`crate::OpenClEngine::run`].
    pub fn run<L: Into<SideLane>>(
        self,
        command: Arc<dyn Connection>,
        lanes: impl FnMut() -> Option<L> + Send + 'static,
        limits: Limits,
        counters: Arc<Counters>,
    ) -> Result<(), RunError> {
        let payloads = Payloads::new(limits.chunk_bytes);
        let link = Arc::new(Link::new(Arc::clone(&command), counters, payloads, None));
        let shared = Arc::new(Shared::new(
            Arc::clone(&self.api),
            Arc::clone(&link),
            self.broker,
            Collectives::new(self.collectives, self.patience),
        ));
        if !self.genuine {
            messages::forward(&shared);
        }
        let looking = Arc::clone(&shared);
        link.device_time.look_by(move || looking.devices_at_work());
        let (looking, devices) = (Arc::clone(&shared), self.devices.clone());
        link.serve_turns(move |place, mark_every| {
            let device = devices.get(place as usize);
            device.map_or(0, |device| looking.launches_ended(*device, mark_every))
        });
        link.counters.swap.serve(Box::new(Moves::of(&shared)));
        let session = Session::new(shared, self.devices, self.ahead);
        lane::run(link, session, command, lanes, limits)
    }
}

#[cfg(test)]
mod tests {
    use towline_backend::cuda::NullCuda;

    use super::super::ahead::tests::references;
    use super::*;

    #[test]
    fn devices_that_are_not_chosen_are_given_up() {
        let null = Arc::new(NullCuda::new(3));
        let all = |_: usize, _: &str| true;
        let mut engine = CudaEngine::open(Arc::clone(&null) as _, false, &all, 3).unwrap();
        engine.make_contexts();
        let before = engine.devices.clone();
        let engine = engine.with_devices(&[2]);
        assert_eq!(engine.devices, [before[2]]);
        let held = before.iter().map(|device| references(&null, *device));
        assert_eq!(held.collect::<Vec<_>>(), [0, 0, 1]);
    }
}
