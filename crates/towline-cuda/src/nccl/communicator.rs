//! Communicators: what the program has of those that live on servers.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_backend::nccl::{Factor, result};
use towline_client::cuda::{Actor, Session};

use crate::context::Context;
use crate::driver::{Acting, Driver, lock};

/// Reductions that need not be made.
const BUILT_IN_REDUCTIONS: i32 = 5;
/// Most bytes of a text of the server's.
const TEXT_ROOM: u64 = 1024;
/// Handles of communicators are no addresses of anything; this is between two of them.
const STEP: u64 = 16;

const NONE_OFFERED: &str = "the server offers no collectives to this program: start it with `towline serve --collectives`, and the program \
     by `towline run`; if it was, the server's log says why its NCCL cannot be used";

/// All communicators of the process, by their handles.
#[derive(Default)]
pub(crate) struct Communicators {
    known: Mutex<HashMap<u64, Arc<Communicator>>>,
    next: AtomicU64,
    versions: Mutex<HashMap<u8, i32>>,
    /// The last failure, in words.
    text: Mutex<CString>,
    /// Memory of `ncclMemAlloc`: its bytes by its addresses.
    pub(super) memory: Mutex<HashMap<u64, usize>>,
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
    /// NCCL's result of its finalization; negative before.
    finalized: AtomicI32,
    /// The program has ended it while it was being made.
    given_up: AtomicBool,
    /// Others that are being made of it.
    children: AtomicUsize,
    /// Reductions of the program's own, by their numbers: the type of their data, and what it is multiplied by before it is summed.
    reductions: Mutex<HashMap<i32, (i32, Factor)>>,
    next_reduction: AtomicI32,
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
            result::SUCCESS if self.finalization().is_none() => Ok(()),
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

    /// Its finalization has begun, or has come to its end.
    pub(crate) fn finalized(&self, outcome: i32) {
        self.finalized.store(outcome, Ordering::Release);
    }

    /// The outcome of its finalization: success, in progress, or a failure; none before.
    pub(crate) fn finalization(&self) -> Option<i32> {
        let outcome = self.finalized.load(Ordering::Acquire);
        (outcome >= result::SUCCESS).then_some(outcome)
    }

    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Another is being made of it, or is so no longer.
    pub(crate) fn parent(&self, makes: bool) {
        match makes {
            true => self.children.fetch_add(1, Ordering::AcqRel),
            false => self.children.fetch_sub(1, Ordering::AcqRel),
        };
    }

    pub(crate) fn is_parent(&self) -> bool {
        self.children.load(Ordering::Acquire) > 0
    }

    /// Keeps a reduction of the program's own; its number.
    pub(crate) fn keep_reduction(&self, datatype: i32, factor: Factor) -> i32 {
        let number = self.next_reduction.fetch_add(1, Ordering::Relaxed);
        lock(&self.reductions).insert(number, (datatype, factor));
        number
    }

    /// The factor of a reduction; none for those that NCCL has.
    pub(crate) fn factor(&self, reduction: i32, datatype: i32) -> Result<Option<Factor>, i32> {
        if (0..BUILT_IN_REDUCTIONS).contains(&reduction) {
            return Ok(None);
        }
        match lock(&self.reductions).get(&reduction) {
            Some((of, factor)) if *of == datatype => Ok(Some(*factor)),
            _ => Err(result::INVALID_ARGUMENT),
        }
    }

    /// Forgets one. Operations that were called with it have its factor.
    pub(crate) fn drop_reduction(&self, reduction: i32) -> Result<(), i32> {
        let dropped = lock(&self.reductions).remove(&reduction);
        dropped.map(drop).ok_or(result::INVALID_ARGUMENT)
    }
}

/// NCCL's result for a call of CUDA that failed: a lost server is a rank that cannot be reached.
pub(crate) fn of_cuda(acting: &Acting<'_>) -> impl Fn(CUresult) -> i32 {
    let session = Arc::clone(acting.session);
    move |_| of_session(&session)
}

/// As [`of_cuda`].
pub(crate) fn of_session(session: &Session) -> i32 {
    match session.broken() {
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
            finalized: AtomicI32::new(-1),
            given_up: AtomicBool::new(false),
            children: AtomicUsize::new(0),
            reductions: Mutex::default(),
            next_reduction: AtomicI32::new(BUILT_IN_REDUCTIONS),
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

    /// Notes a failure that a server told, in its words; gives its result back.
    pub(crate) fn note_collective_failure(
        &self,
        session: &Session,
        actor: Actor,
        failed: i32,
    ) -> i32 {
        if !matches!(failed, result::SUCCESS | result::IN_PROGRESS) {
            let request = wire::CollectiveText { room: TEXT_ROOM };
            let body = session.call(actor, "ncclGetLastError", &request);
            let reply = body
                .as_ref()
                .map(|body| wire::CollectiveTextReply::decode(body));
            if let Ok(Ok(reply)) = reply
                && let Some(text) = reply.text
            {
                let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
                self.note_collective_text(text.to_vec());
            }
        }
        failed
    }

    /// Notes the last failure, in words.
    pub(crate) fn note_collective_text(&self, text: impl Into<Vec<u8>>) {
        *lock(&self.communicators.text) = CString::new(text).unwrap_or_default();
    }

    pub(crate) fn collective_text(&self) -> CString {
        lock(&self.communicators.text).clone()
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
                SAID.call_once(|| log::error!("{NONE_OFFERED}"));
                self.note_collective_text(NONE_OFFERED);
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
