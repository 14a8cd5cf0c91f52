//! One CUDA session with a server: posting in the name of a thread and its context, waiting, events, host functions. What the driver's
//! calls mean is the driver's (`towline-cuda`).
//!
//! What a message needs of the thread that posts it does not travel with the message: an `Act` precedes it when thread, context or
//! capture mode differ from the last message's.

#![allow(
    clippy::too_many_arguments,
    reason = "a transfer is what the API says of it, and who asks"
)]

mod aliases;
mod area;
mod measure;
mod moving;
mod recipe;
mod shared;
mod staging;
mod transfer;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use towline_backend::cuda as wire;
use towline_backend::cuda::{CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_OUT_OF_MEMORY, Request};
use towline_transport::{Address, Connection};
use towline_wire::control::{Purpose, Token};
use towline_wire::cuda::IMAGE_LIMIT;
use towline_wire::cuda::snapshot::Snapshot;

use crate::access::Access;
use crate::dial::{DialError, dial};
use crate::link::{Link, Vocabulary};
use crate::links::Links;
use crate::memory::HostBox;
use crate::meter::Meter;
use crate::peer::Control;
use crate::state::{Callback, Covered, Event, State};
use crate::tuning::tuning;

use staging::Staging;
use transfer::HeldRead;

pub use crate::moved::RebuildError;
pub use area::HostArea;
pub use measure::Bandwidth;
pub use moving::{MovedTo, Owner, Variable};
pub use recipe::KeptImage;
pub use shared::SharedHost;
pub use transfer::{DeviceBox, HostRows, Source};

/// CUDA's words.
const CUDA: &Vocabulary = &Vocabulary {
    is_failure: |status| status > 0,
    lost: CUDA_ERROR_DEVICE_UNAVAILABLE,
    unposted: CUDA_ERROR_OUT_OF_MEMORY,
    call_name: wire::call_name,
    status_name: wire::status_name,
    notice: |server, _, text| {
        // `TOWLINE_LOG=warn,device=off` leaves them out.
        log::error!(target: "device", "{server}: {text}");
        if let Some(listener) = LISTENER.get() {
            listener(text);
        }
    },
};

/// Takes the messages of all sessions' devices; any thread may call it, also one in the middle of a wait.
pub type Listener = fn(&str);

static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Has messages of devices told to a function too. The first stays.
pub fn listen(listener: Listener) {
    let _ = LISTENER.set(listener);
}

/// Kind of the numbers of payload; as in the OpenCL half.
const PAYLOAD_TAG: u8 = 0xff;
/// Kind of the numbers of recordings of events and of host functions.
const MARK_TAG: u8 = 0xfe;
/// Kind of the numbers of memory that is shared with the worker.
const AREA_TAG: u8 = 0xfd;
/// Images up to this size travel with their request.
const INLINE_IMAGE: usize = 1 << 20;
/// Those from this size on are named first, where they travel over a network: the server may know them.
const NAMED_IMAGE: usize = 64 << 10;
/// The sessions of a process are told apart by these bits of every number that they mint.
const SESSION_SHIFT: u32 = 32;

/// In whose name a message is posted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Actor {
    /// The client's thread.
    pub thread: u64,
    /// Its current context, 0 for none.
    pub context: u64,
    /// How strictly a capture guards it.
    pub capture_mode: u32,
    /// It sleeps while it waits for the device, as its context or event asks (CU_CTX_SCHED_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC).
    pub sleeps: bool,
}

impl Actor {
    /// Where a stream of that number is: its context, and the thread where each has its own.
    fn place(self, stream: u64) -> (u64, u64) {
        match stream == wire::CU_STREAM_PER_THREAD {
            true => (self.context, self.thread),
            false => (self.context, 0),
        }
    }

    /// How long it looks for what it waits for.
    fn patience(self) -> Duration {
        match self.sleeps {
            true => Duration::ZERO,
            false => tuning().spin_for_gpu,
        }
    }
}

/// The work that a wait covers.
#[derive(Clone, Copy)]
enum Behind {
    /// All streams of the actor's context.
    Context,
    /// The work posted before a mark.
    Mark(u64),
    /// One stream of the actor's context.
    Stream(u64),
}

/// What a request that loads an image brought.
#[derive(Debug)]
pub struct Answer {
    /// The driver's verdict.
    pub status: i32,
    /// The reply's body.
    pub body: Vec<u8>,
}

/// One server's devices through one session.
/// The session may move to another server ([`Session::let_move`]); what it is made of keeps its numbers and addresses.
pub struct Session {
    links: Links,
    /// The link was taken over by another session: ending it is not this one's business any more.
    given_up: AtomicBool,
    recipes: recipe::Recipes,
    /// Variables that lie elsewhere than the program was told.
    aliases: RwLock<Arc<aliases::Aliases>>,
    /// Whether there are any.
    has_aliases: AtomicBool,
    snapshot: Snapshot,
    collectives: AtomicBool,
    posting: Mutex<Posting>,
    staging: Arc<Staging>,
    /// Streams that keep no order with their context's default stream.
    apart: Mutex<HashSet<u64>>,
}

/// What posting in order goes by.
#[derive(Default)]
struct Posting {
    /// In whose name the last message was posted.
    actor: Option<Actor>,
    /// A small read that has not been posted: a wait for its stream, which most likely comes next, then is a wait for its data. Whatever
    /// else is posted comes behind it.
    held: Option<HeldRead>,
}

impl Session {
    /// Begins a session with the server at `address`.
    pub fn connect(address: &Address, token: Option<Token>) -> Result<Self, DialError> {
        Self::connect_as(address, &Access::from_environment(address, token)?)
    }

    /// As [`Self::connect`], with these credentials.
    pub fn connect_as(address: &Address, access: &Access) -> Result<Self, DialError> {
        let dialled = dial(address, access, Purpose::CudaSession, CUDA)?;
        let snapshot = decode(dialled.link.name(), &dialled.snapshot)?;
        let session = Self::over(dialled.link, Some(dialled.control), snapshot);
        session
            .collectives
            .store(dialled.collectives, Ordering::Relaxed);
        Ok(session)
    }

    /// A session over lanes that are already open; for tests and tools that have no supervisor.
    pub fn over_lanes(
        name: &str,
        command: Arc<dyn Connection>,
        payload: Vec<Arc<dyn Connection>>,
        snapshot: &[u8],
        chunk_bytes: u64,
    ) -> Result<Self, DialError> {
        let snapshot = decode(name, snapshot)?;
        let link =
            Link::start(name, command, payload, chunk_bytes, CUDA).map_err(DialError::Threads)?;
        Ok(Self::over(link, None, snapshot))
    }

    /// The lanes that the session has now.
    #[inline]
    fn link(&self) -> &Arc<Link> {
        &self.links.last().link
    }

    /// As with a control connection: when a lane breaks, the server has a moment to say why on another way. For tests of sessions
    /// without one.
    pub fn expect_explanation(&self) {
        self.link().expect_explanation();
    }

    fn over(link: Arc<Link>, control: Option<Arc<Control>>, snapshot: Snapshot) -> Self {
        Self {
            links: Links::new(link, control),
            given_up: AtomicBool::new(false),
            recipes: recipe::Recipes::default(),
            aliases: RwLock::default(),
            has_aliases: AtomicBool::new(false),
            snapshot,
            collectives: AtomicBool::new(false),
            posting: Mutex::default(),
            staging: Arc::default(),
            apart: Mutex::default(),
        }
    }

    /// A new stream keeps no order with its context's default stream.
    pub fn note_apart(&self, stream: u64) {
        self.apart().insert(stream);
    }

    /// A stream has ended.
    pub fn forget_stream(&self, stream: u64) {
        self.apart().remove(&stream);
    }

    fn apart(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.apart.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads that end before what `actor` has posted on a stream. The default stream keeps order with all others of its context, except
    /// those that want none.
    fn reads_of(&self, state: &State, actor: Actor, stream: u64) -> Covered {
        let (apart, place) = (self.apart(), actor.place(stream));
        let is_default = |stream: u64| stream <= wire::CU_STREAM_LEGACY;
        let is_apart = |stream: u64| apart.contains(&stream);
        state.reads_ordered(actor.context, |other, at| {
            let same = other == stream && at == place;
            let ordered =
                is_default(stream) && !is_apart(other) || is_default(other) && !is_apart(stream);
            same || ordered
        })
    }

    /// Has every number that is minted from now on tell that it is of the process's session `index`. Before the first is minted.
    pub fn number_as(&self, index: u8) {
        self.link()
            .count_from((u64::from(index) << SESSION_SHIFT) | Link::FIRST_NUMBER);
    }

    /// The session that minted a number, by the index that it was given.
    pub fn index_of(number: u64) -> u8 {
        (number >> SESSION_SHIFT) as u8
    }

    /// The devices.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether the session's worker reaches those of its job, as the environment asked ([`crate::collectives`]).
    pub fn collectives(&self) -> bool {
        self.collectives.load(Ordering::Relaxed)
    }

    /// The server.
    pub fn server(&self) -> &str {
        self.link().name()
    }

    /// What the session has done so far.
    pub fn meter(&self) -> &Meter {
        &self.link().meter
    }

    /// Why the session is over, when it is.
    pub fn lost(&self) -> Option<&str> {
        self.link().lost()
    }

    /// The error that has ended the device's work for the session, if one has.
    pub fn fault(&self) -> Option<i32> {
        self.healthy().err()
    }

    /// What every call answers from now on, if something has ended the session or the device's work for it.
    pub fn broken(&self) -> Option<i32> {
        let lost = || self.lost().map(|_| self.link().lost_status());
        self.healthy().err().or_else(lost)
    }

    /// A new number of a handle of the kind `tag`.
    pub fn mint(&self, tag: u8) -> u64 {
        self.link().mint(tag)
    }

    /// The first of `count` numbers of the kind `tag` in a row.
    pub fn mint_many(&self, tag: u8, count: u64) -> u64 {
        self.link().mint_many(tag, count)
    }

    /// Posts a request, one way.
    #[inline]
    pub fn post<'a, R: Request<'a>>(&self, actor: Actor, request: &R) -> Result<(), i32> {
        self.healthy()?;
        let mut posting = self.posting();
        self.post_held(&mut posting)?;
        self.post_as(&mut posting, actor, request)?;
        if const { recipe::is_noted(R::ID) } {
            self.recipes.note(actor.context, request);
        }
        Ok(())
    }

    #[inline]
    fn post_as<'a, R: Request<'a>>(
        &self,
        posting: &mut Posting,
        actor: Actor,
        request: &R,
    ) -> Result<(), i32> {
        if self.has_aliases.load(Ordering::Relaxed)
            && let Some(changed) = self.with_aliases(request)
        {
            return self.post_encoded(posting, actor, R::ID, &changed);
        }
        if posting.actor == Some(actor) {
            return self.link().post(request).map(|_| ());
        }
        let act = act(actor);
        let number = self.link().post_batch(|batch| {
            batch.post(wire::Act::ID, |out| wire::Message::encode(&act, out));
            batch.post(R::ID, |out| request.encode(out))
        })?;
        posting.actor = Some(actor);
        self.link().numbered(number).map(|_| ())
    }

    /// Has what is posted next be in the name of `actor`.
    fn act_as(&self, posting: &mut Posting, actor: Actor) -> Result<(), i32> {
        if posting.actor != Some(actor) {
            self.link().post(&act(actor))?;
            posting.actor = Some(actor);
        }
        Ok(())
    }

    /// Posts a request that needs neither thread nor context.
    pub fn post_plain<'a, R: Request<'a>>(&self, request: &R) -> Result<(), i32> {
        let mut posting = self.posting();
        self.post_held(&mut posting)?;
        self.link().post(request)?;
        if const { recipe::is_noted(R::ID) } {
            self.recipes.note(0, request);
        }
        Ok(())
    }

    /// Sends a request and waits for its answer on behalf of `call`: the reply's body, or the driver's status.
    pub fn call<'a, R: Request<'a>>(
        &self,
        actor: Actor,
        call: &'static str,
        request: &R,
    ) -> Result<Vec<u8>, i32> {
        let answer = self.ask(actor, call, request)?;
        match answer.status {
            0 => Ok(answer.body),
            status => Err(status),
        }
    }

    /// As [`Self::call`], where a refusal has a body too.
    pub fn ask<'a, R: Request<'a>>(
        &self,
        actor: Actor,
        call: &'static str,
        request: &R,
    ) -> Result<Answer, i32> {
        self.ask_behind(actor, call, request, None)
    }

    /// Waits, on behalf of `call`, for what was posted on a stream of the actor's context, or on all of them.
    pub fn synchronise<'a, R: Request<'a>>(
        &self,
        actor: Actor,
        call: &'static str,
        request: &R,
        stream: Option<u64>,
    ) -> Result<(), i32> {
        let behind = stream.map_or(Behind::Context, Behind::Stream);
        let answer = self.ask_behind(actor, call, request, Some(behind))?;
        match answer.status {
            0 => Ok(()),
            status => Err(status),
        }
    }

    /// As [`Self::synchronise`], for what was posted before a mark.
    pub fn synchronise_mark<'a, R: Request<'a>>(
        &self,
        actor: Actor,
        call: &'static str,
        request: &R,
        mark: u64,
    ) -> Result<(), i32> {
        let answer = self.ask_behind(actor, call, request, Some(Behind::Mark(mark)))?;
        match answer.status {
            0 => Ok(()),
            status => Err(status),
        }
    }

    fn ask_behind<'a, R: Request<'a>>(
        &self,
        actor: Actor,
        call: &'static str,
        request: &R,
        behind: Option<Behind>,
    ) -> Result<Answer, i32> {
        self.healthy()?;
        let started = std::time::Instant::now();
        let (number, before) = {
            let mut posting = self.posting();
            self.post_held(&mut posting)?;
            self.act_as(&mut posting, actor)?;
            let before = match const { recipe::is_noted(R::ID) } {
                true => self.recipes.count(),
                false => 0,
            };
            let changed = match self.has_aliases.load(Ordering::Relaxed) {
                true => self.with_aliases(request),
                false => None,
            };
            let number = if let Some(changed) = changed {
                // None of these stands behind reads.
                self.link()
                    .ask_encoded(R::ID, |out| out.extend_from_slice(&changed))?
            } else {
                self.link().ask_only_behind(request, |state| match behind {
                    None => Covered::new(),
                    Some(Behind::Context) => state.reads_in(actor.context),
                    Some(Behind::Mark(mark)) => state.reads_before(mark),
                    Some(Behind::Stream(stream)) => self.reads_of(state, actor, stream),
                })?
            };
            (number, before)
        };
        self.link().meter.requested();
        let reply = self.link().wait_reply(number, actor.patience());
        self.link().meter.waited(call, started.elapsed());
        let reply = reply?;
        if const { recipe::is_noted(R::ID) } && reply.status == 0 {
            let told = Some(reply.body.as_slice());
            self.recipes
                .note_answered(actor.context, request, told, before);
        }
        Ok(Answer {
            status: reply.status,
            body: reply.body,
        })
    }

    /// Posts a request as it was encoded.
    fn post_raw(&self, actor: Actor, id: u16, body: &[u8]) -> Result<(), i32> {
        self.post_encoded(&mut self.posting(), actor, id, body)
    }

    fn post_encoded(
        &self,
        posting: &mut Posting,
        actor: Actor,
        id: u16,
        body: &[u8],
    ) -> Result<(), i32> {
        self.act_as(posting, actor)?;
        let number = self
            .link()
            .post_batch(|batch| batch.post(id, |out| out.extend_from_slice(body)))?;
        self.link().numbered(number).map(|_| ())
    }

    /// A request as the server is to have it, where that differs.
    #[cold]
    fn with_aliases<'a, R: Request<'a>>(&self, request: &R) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        request.encode(&mut body);
        let aliases = self.aliases.read().unwrap_or_else(PoisonError::into_inner);
        aliases.changed(R::ID, &body)
    }

    /// Asks what was encoded.
    fn ask_raw(&self, actor: Actor, id: u16, body: &[u8]) -> Result<Answer, i32> {
        let number = {
            let mut posting = self.posting();
            self.act_as(&mut posting, actor)?;
            self.link()
                .ask_encoded(id, |out| out.extend_from_slice(body))?
        };
        let reply = self.link().wait_reply(number, actor.patience())?;
        Ok(Answer {
            status: reply.status,
            body: reply.body,
        })
    }

    /// Keeps the device code of a module or library, for when the session moves.
    pub fn keep_image(&self, object: u64, image: KeptImage) {
        self.recipes.keep_image(object, image);
    }

    /// Answers to questions that are not the application's, and not counted as its waits. All are sent before the first is waited for.
    pub fn measure<'a, R: Request<'a>>(
        &self,
        actor: Actor,
        requests: &[R],
    ) -> Vec<Result<Answer, i32>> {
        let mut posting = self.posting();
        let ready = self
            .healthy()
            .and_then(|()| self.post_held(&mut posting))
            .and_then(|()| self.act_as(&mut posting, actor));
        let ask = |request| ready.and_then(|()| self.link().ask_only(request));
        let asked: Vec<_> = requests.iter().map(ask).collect();
        drop(posting);
        let answer = |number: Result<u64, i32>| {
            let reply = self.link().wait_reply(number?, actor.patience())?;
            Ok(Answer {
                status: reply.status,
                body: reply.body,
            })
        };
        asked.into_iter().map(answer).collect()
    }

    /// What the server may know an image by; zeros for one that is sent sooner than named.
    pub fn image_digest(&self, image: &[u8]) -> [u8; 32] {
        // Within a host copying takes less time than hashing.
        if image.len() < NAMED_IMAGE || self.shares_memory() || !self.link().payload.exists() {
            return [0; 32];
        }
        Sha256::digest(image).into()
    }

    /// A request whose image may be too large to travel with it, or be known to the server: `request` is given what the image's fields
    /// say, and the payload's number. A server that knows the digest asks for no payload.
    pub fn ask_with_image(
        &self,
        image: &[u8],
        digest: &[u8; 32],
        ask: impl FnOnce(Option<&[u8]>, u64) -> Result<Answer, i32>,
    ) -> Result<Answer, i32> {
        if image.len() as u64 > IMAGE_LIMIT {
            log::warn!(
                "device code of {} bytes is not sent: the limit is {IMAGE_LIMIT} bytes",
                image.len()
            );
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let unnamed = *digest == [0; 32];
        if unnamed && image.len() <= INLINE_IMAGE || !self.link().payload.exists() {
            return ask(Some(image), 0);
        }
        self.healthy()?;
        let payload = self.mint(PAYLOAD_TAG);
        let source = HostBox::linear(image.as_ptr(), image.len());
        self.link().expect_grants(payload, source)?;
        let answer = ask(None, payload);
        // What was granted has left, or leaves; what was not granted is not wanted.
        self.link().state().ungranted(payload);
        self.link().notify();
        self.link().wait_write(payload);
        answer
    }

    /// A reply that does not decode ends the session.
    pub fn malformed(&self) -> i32 {
        self.disbelieve("the server sent a reply that does not decode".into())
    }

    /// An answer that cannot be true ends the session, for this reason.
    pub fn disbelieve(&self, reason: String) -> i32 {
        self.link().fail(reason);
        CUDA.lost
    }

    /// The first failure of a posted request on `stream`, or on any; it is told once.
    pub fn take_failure(&self, stream: Option<u64>) -> Option<i32> {
        let mut state = self.link().state();
        let is_ours = |queue: &u64| match stream {
            Some(stream) => *queue == stream || *queue == 0,
            None => (*queue >> 40) as u8 != PAYLOAD_TAG,
        };
        let queue = state.failures.keys().copied().find(is_ours)?;
        state.told_elsewhere.remove(&queue);
        state.failures.remove(&queue)
    }

    /// The failure that a wait on `stream` tells: as [`Self::take_failure`], else the first on another stream, for the wait may stand behind
    /// that. The other stream's own wait tells it again.
    pub fn failure_behind(&self, stream: u64) -> Option<i32> {
        if let Some(own) = self.take_failure(Some(stream)) {
            return Some(own);
        }
        let mut state = self.link().state();
        let State {
            failures,
            told_elsewhere,
            ..
        } = &mut *state;
        let mut others = failures.iter();
        let mut is_new =
            |queue: u64| (queue >> 40) as u8 != PAYLOAD_TAG && told_elsewhere.insert(queue);
        let (_, status) = others.find(|(queue, _)| is_new(**queue))?;
        Some(*status)
    }

    /// Notes a failure of something on `stream` that this side found.
    pub fn note_failure(&self, stream: u64, status: i32) {
        self.link().state().failures.entry(stream).or_insert(status);
    }

    /// A number for something that the server will tell the end of.
    pub fn mark(&self) -> u64 {
        let mark = self.mint(MARK_TAG);
        self.link().state().events.insert(mark, Event::default());
        mark
    }

    /// As [`Self::mark`], behind what `actor` has posted on a stream: a recording of an event.
    pub fn mark_behind(&self, actor: Actor, stream: u64) -> Result<u64, i32> {
        self.post_held(&mut self.posting())?;
        let mark = self.mint(MARK_TAG);
        let mut state = self.link().state();
        let event = Event {
            covered: self.reads_of(&state, actor, stream),
            ..Event::default()
        };
        state.events.insert(mark, event);
        Ok(mark)
    }

    /// As [`Self::mark`]; its end calls `due`, which must not wait.
    pub fn mark_with(&self, due: impl FnOnce(i32) + Send + 'static) -> u64 {
        self.mark_covering(Covered::new(), Box::new(due))
    }

    /// As [`Self::mark_behind`]; its end calls `due`, which must not wait.
    pub fn mark_behind_with(
        &self,
        actor: Actor,
        stream: u64,
        due: impl FnOnce(i32) + Send + 'static,
    ) -> Result<u64, i32> {
        self.post_held(&mut self.posting())?;
        let covered = self.reads_of(&self.link().state(), actor, stream);
        Ok(self.mark_covering(covered, Box::new(due)))
    }

    fn mark_covering(&self, covered: Covered, due: Callback) -> u64 {
        let mark = self.mint(MARK_TAG);
        let event = Event {
            callbacks: vec![due],
            released: true,
            covered,
            ..Event::default()
        };
        self.link().state().events.insert(mark, event);
        self.link().raise_interest();
        mark
    }

    /// Has `due` called when a mark ends, now where it has; it must not wait.
    pub fn when_ended(&self, mark: u64, due: impl FnOnce(i32) + Send + 'static) {
        let mut state = self.link().state();
        let status = match state.events.get_mut(&mark) {
            Some(event) => match event.status {
                None => {
                    event.callbacks.push(Box::new(due));
                    drop(state);
                    self.link().raise_interest();
                    return;
                }
                Some(status) => status,
            },
            // What nobody asks for any more has ended.
            None => 0,
        };
        drop(state);
        due(status);
    }

    /// The status that a mark ended with. What has come from the server is read first; nothing is waited for.
    pub fn ended(&self, mark: u64) -> Option<i32> {
        if let Some(status) = self.known_end(mark) {
            return Some(status);
        }
        self.link().poll();
        match self.link().lost() {
            Some(_) => Some(self.link().lost_status()),
            None => self.known_end(mark),
        }
    }

    fn known_end(&self, mark: u64) -> Option<i32> {
        match self.link().state().events.get(&mark) {
            Some(event) => event.status,
            None => Some(0),
        }
    }

    /// Nobody will ask for a mark any more.
    pub fn forget(&self, mark: u64) {
        let mut state = self.link().state();
        match state.events.get_mut(&mark) {
            Some(event) if event.status.is_none() => event.released = true,
            Some(_) => drop(state.events.remove(&mark)),
            None => {}
        }
    }

    /// Says goodbye at the process's end, see [`crate::farewell`]; what is still called may find the session lost.
    pub fn leave(&self) {
        self.link().leave(&wire::Goodbye { reason: 0 });
    }

    /// Ends the session in good order; later calls find it lost.
    pub fn close(&self) {
        if self.link().lost().is_none() {
            let _ = self.link().post(&wire::Goodbye { reason: 0 });
            self.link().flush();
        }
        self.link().end("the client closed the session".into());
    }

    fn healthy(&self) -> Result<(), i32> {
        match self.link().fault() {
            0 => Ok(()),
            fault => Err(fault),
        }
    }

    fn posting(&self) -> MutexGuard<'_, Posting> {
        self.posting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.given_up.load(Ordering::Relaxed) {
            self.close();
        }
    }
}

fn act(actor: Actor) -> wire::Act {
    wire::Act {
        thread: actor.thread,
        context: wire::ContextHandle(actor.context),
        capture_mode: actor.capture_mode,
    }
}

fn decode(server: &str, bytes: &[u8]) -> Result<Snapshot, DialError> {
    Snapshot::decode(bytes).map_err(|source| DialError::Snapshot {
        server: server.into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use towline_session::Landing;
    use towline_transport::memory::MemoryTransport;
    use towline_transport::{ConnectOptions, Listener, Transport};

    use super::*;
    use crate::state::{Read, ToldBy};

    /// A session, and what has its server's ends: without it, the session is lost as soon as its threads see that.
    fn session() -> (Session, Box<dyn Listener>) {
        let network = MemoryTransport::new();
        let address: Address = "memory://server".parse().unwrap();
        let listener = network.listen(&address).unwrap();
        let connect = || network.connect(&address, &ConnectOptions::default());
        let (command, lane) = (connect().unwrap(), connect().unwrap());
        let snapshot = Snapshot::default().encode();
        let session =
            Session::over_lanes("server", command, vec![lane], &snapshot, 64 << 10).unwrap();
        (session, listener)
    }

    #[test]
    fn default_stream_covers_reads_of_streams_that_keep_its_order() {
        let (session, _server) = session();
        let (actor, other) = (
            Actor {
                context: 7,
                ..Actor::default()
            },
            Actor {
                context: 8,
                ..Actor::default()
            },
        );
        session.note_apart(30);
        let reads = [(actor, 0), (actor, 20), (actor, 30), (other, 0)];
        for (payload, (actor, stream)) in (1..).zip(reads) {
            let read = Read {
                target: HostBox::linear(std::ptr::null(), 8),
                landing: Landing::new(8),
                active: 0,
                failed: None,
                event: None,
                told_by: ToldBy::Queue(stream),
                place: actor.place(stream),
                covered: Covered::new(),
            };
            session.link().state().reads.insert(payload, read);
        }
        let covered = |stream| {
            let mut reads = session.reads_of(&session.link().state(), actor, stream);
            reads.sort_unstable();
            reads.to_vec()
        };
        assert_eq!(covered(0), [1, 2]);
        assert_eq!(covered(wire::CU_STREAM_LEGACY), [1, 2]);
        assert_eq!(covered(20), [1, 2]);
        assert_eq!(covered(21), [1]);
        assert_eq!(covered(30), [3]);
        session.forget_stream(30);
        assert_eq!(covered(0), [1, 2, 3]);
    }

    #[test]
    fn every_wait_tells_of_a_failure_once() {
        let (session, _server) = session();
        session.note_failure(20, -5);
        assert_eq!(session.failure_behind(30), Some(-5));
        assert_eq!(session.failure_behind(0), None);
        assert_eq!(session.take_failure(Some(30)), None);
        assert_eq!(session.failure_behind(20), Some(-5));
        assert_eq!(session.failure_behind(20), None);
        session.note_failure(20, -6);
        assert_eq!(session.failure_behind(30), Some(-6));
    }
}
