//! Communicators: what the program has of those that live on servers.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_backend::nccl::result;

use crate::context::Context;
use crate::driver::{Acting, Driver, lock};

/// Handles of communicators are no addresses of anything; this is between two of them.
const STEP: u64 = 16;

/// All communicators of the process, by their handles.
#[derive(Default)]
pub(crate) struct Communicators {
    known: Mutex<HashMap<u64, Arc<Communicator>>>,
    next: AtomicU64,
    versions: Mutex<HashMap<u8, i32>>,
}

/// A communicator, of one rank of which a device of ours is.
pub(crate) struct Communicator {
    /// Its handle, which is its number on the server too.
    pub(crate) number: u64,
    pub(crate) context: Arc<Context>,
    /// Its calls wait.
    pub(crate) blocking: bool,
    /// Its rank, and how many there are; once it has come about.
    facts: OnceLock<(i32, i32)>,
    /// NCCL's result of how it came about.
    state: AtomicI32,
    finalized: AtomicBool,
}

impl Communicator {
    /// Its rank, and how many ranks there are.
    pub(crate) fn facts(&self) -> Result<(i32, i32), i32> {
        let facts = self.facts.get().copied();
        // Some of a size are told before all have met.
        facts.ok_or(result::INVALID_ARGUMENT)
    }

    /// The outcome of its making: success, in progress, or a failure.
    pub(crate) fn state(&self) -> i32 {
        self.state.load(Ordering::Acquire)
    }

    /// Refuses what is too early or too late.
    pub(crate) fn expect_ready(&self) -> Result<(), i32> {
        match self.state() {
            result::SUCCESS if !self.finalized.load(Ordering::Acquire) => Ok(()),
            result::SUCCESS | result::IN_PROGRESS => Err(result::INVALID_ARGUMENT),
            failed => Err(failed),
        }
    }

    /// It has come about, or has not.
    pub(crate) fn settle(&self, outcome: Result<(i32, i32), i32>) {
        let state = match outcome {
            Ok(facts) => {
                let _ = self.facts.set(facts);
                result::SUCCESS
            }
            Err(failed) => failed,
        };
        self.state.store(state, Ordering::Release);
    }

    pub(crate) fn finalize(&self) {
        self.finalized.store(true, Ordering::Release);
    }
}

/// NCCL's result for a call of CUDA that failed: a lost server is a rank that cannot be reached.
pub(crate) fn of_cuda(acting: &Acting<'_>) -> impl Fn(CUresult) -> i32 {
    let session = Arc::clone(acting.session);
    move |_| match session.broken() {
        Some(_) => result::REMOTE_ERROR,
        None => result::CUDA_ERROR,
    }
}

impl Driver {
    /// A communicator that is to come about, under a handle of its own.
    pub(crate) fn new_communicator(
        &self,
        context: Arc<Context>,
        blocking: bool,
    ) -> Arc<Communicator> {
        let all = &self.communicators;
        let number = (all.next.fetch_add(1, Ordering::Relaxed) + 1) * STEP;
        let communicator = Arc::new(Communicator {
            number,
            context,
            blocking,
            facts: OnceLock::new(),
            state: AtomicI32::new(result::IN_PROGRESS),
            finalized: AtomicBool::new(false),
        });
        lock(&all.known).insert(number, Arc::clone(&communicator));
        communicator
    }

    pub(crate) fn communicator(&self, handle: *mut c_void) -> Result<Arc<Communicator>, i32> {
        let found = lock(&self.communicators.known)
            .get(&(handle.addr() as u64))
            .cloned();
        found.ok_or(result::INVALID_ARGUMENT)
    }

    pub(crate) fn forget_communicator(&self, number: u64) {
        lock(&self.communicators.known).remove(&number);
    }

    /// Whether a session has communicators: it stays where it is then.
    pub(crate) fn has_communicators(&self, session: u8) -> bool {
        let known = lock(&self.communicators.known);
        known.values().any(|of| of.context.session == session)
    }

    /// The context of the calling thread or, as the runtime has it where there is none, the first device's.
    pub(crate) fn collective_context(&self) -> Result<Arc<Context>, CUresult> {
        self.initialise()?;
        match self.current() {
            Err(CUDA_ERROR_INVALID_CONTEXT) => self.primary(0),
            context => context,
        }
    }

    /// A call for a communicator.
    pub(crate) fn acting_with(&self, communicator: &Communicator) -> Result<Acting<'_>, i32> {
        let acting = self.acting_in(Arc::clone(&communicator.context));
        acting.map_err(|_| result::CUDA_ERROR)
    }

    /// The version of a server's NCCL; says once why there is none.
    pub(crate) fn collective_version(&self, acting: &Acting<'_>) -> Result<i32, i32> {
        static SAID: Once = Once::new();
        let session = acting.context.session;
        if let Some(version) = lock(&self.communicators.versions).get(&session) {
            return Ok(*version);
        }
        let asked = acting.call_for("ncclGetVersion", &wire::CollectiveVersion {});
        let body = asked.map_err(|status| {
            if status == CUDA_ERROR_NOT_SUPPORTED {
                SAID.call_once(|| {
                    log::error!(
                        "the server offers no collectives to this program: start it with `towline serve --collectives`, and the program \
                         by `towline run`; if it was, the server's log says why its NCCL cannot be used"
                    );
                });
                return result::SYSTEM_ERROR;
            }
            of_cuda(acting)(status)
        })?;
        let reply = wire::CollectiveVersionReply::decode(&body);
        let version = reply.ok().and_then(|reply| reply.version);
        let version = version.ok_or_else(|| of_cuda(acting)(acting.malformed()))?;
        lock(&self.communicators.versions).insert(session, version);
        Ok(version)
    }
}
