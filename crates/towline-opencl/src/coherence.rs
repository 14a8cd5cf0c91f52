//! Copies of a memory object on several providers of one context, kept equal.
//!
//! Each root object knows which providers hold its current contents. A command on a provider without them first has them moved:
//! read from one that has them into memory of this process, then written to the other. The command is enqueued at once and waits
//! for a gate, a user event of its provider that opens when the contents have arrived; no thread of the application waits. Buffers
//! go from server to server without this process where the servers are peers.
//!
//! The library's own reads and writes are enqueued when everything that they wait for is over, and never before: a command that
//! waits at the head of a queue may hold up the next one even in a queue without order (NVIDIA's driver 580.159), and that next
//! one may be what the first waits for, around a few corners.
//!
//! Single-provider contexts never come here.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_backend::opencl::*;
use towline_client::opencl::Remote;
use towline_client::peer::{self, PeerLane};

use crate::arena::Ref;
use crate::batch::{self, Batch};
use crate::command::Waits;
use crate::context::{Context, Direction};
use crate::event::{Event, RawEvent, watch, when_over};
use crate::map::Shadow;
use crate::memory::{Form, Mem};
use crate::queue::Queue;
use crate::raw::{Shared, check, create, provider};

/// What a command does with a memory object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads only.
    Read,
    /// Writes some of it, or reads and writes.
    Modify,
    /// Writes all of it: what was there does not matter.
    Replace,
}

impl Access {
    fn writes(self) -> bool {
        self != Self::Read
    }
}

/// After so many recorded uses of a copy, those that are over are forgotten.
const PRUNE_AT: usize = 16;

type Then = Box<dyn FnOnce(cl_int) + Send>;

/// A user event of a provider that stands for a move of the library's own.
pub(crate) struct Gate {
    made: Made,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// How it ended.
    status: Option<cl_int>,
    waiting: Vec<Then>,
}

impl Gate {
    fn new(context: &Ref<Context>, part: usize) -> Result<Arc<Self>, cl_int> {
        let owner = &context.parts[part];
        let raw = Shared(create!(owner.provider.api, clCreateUserEvent(owner.raw.0))?);
        let made = Made {
            context: context.clone(),
            part,
            raw,
        };
        Ok(Arc::new(Self {
            made,
            progress: Mutex::default(),
        }))
    }

    /// Ends what the gate stands for. It is open before the provider hears of it: who has waited for a command behind the gate finds it
    /// open.
    fn finish(&self, status: cl_int) {
        let status = status.min(CL_COMPLETE);
        let waiting = {
            let mut progress = self.progress();
            progress.status = Some(status);
            std::mem::take(&mut progress.waiting)
        };
        let owner = &self.made.context.parts[self.made.part];
        provider!(owner.api(), clSetUserEventStatus(self.made.raw.0, status));
        for then in waiting {
            then(status);
        }
    }

    /// Whether nothing has to wait for it any more. A failed gate stays in wait lists: what needs the contents must fail.
    fn open(&self) -> bool {
        self.progress().status == Some(CL_COMPLETE)
    }

    /// Whether it has ended, well or not.
    fn over(&self) -> bool {
        self.progress().status.is_some()
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A provider's event that the library made.
struct Made {
    context: Ref<Context>,
    part: usize,
    raw: RawEvent,
}

impl Drop for Made {
    fn drop(&mut self) {
        provider!(
            self.context.parts[self.part].api(),
            clReleaseEvent(self.raw.0)
        );
    }
}

/// Something that uses a copy, or did.
#[derive(Clone)]
pub(crate) enum Use {
    Command(Ref<Event>),
    /// A command without an event of its own.
    Batch(Ref<Queue>, Arc<Batch>),
    Move(Arc<Gate>),
}

impl Use {
    /// Whether it has ended, well or not.
    fn over(&self) -> bool {
        match self {
            Self::Command(event) => event.over(),
            Self::Batch(_, batch) => batch.event().is_some_and(|event| event.over()),
            Self::Move(gate) => gate.over(),
        }
    }

    /// The in-order queue of its command.
    fn queue(&self) -> Option<&Ref<Queue>> {
        match self {
            Self::Command(event) => event.queue.as_ref().filter(|queue| queue.in_order()),
            Self::Batch(queue, _) => Some(queue),
            Self::Move(_) => None,
        }
    }

    /// Has `then` run with its final status, here and now if it has one.
    fn when_over(&self, then: Then) {
        match self {
            Self::Command(event) => when_event_is_over(event, then),
            Self::Batch(queue, batch) => match batch::event_of(queue, batch) {
                Ok(event) => when_event_is_over(&event, then),
                Err(status) => then(status),
            },
            Self::Move(gate) => {
                let mut progress = gate.progress();
                match progress.status {
                    Some(status) => {
                        drop(progress);
                        then(status);
                    }
                    None => progress.waiting.push(then),
                }
            }
        }
    }
}

fn when_event_is_over(event: &Ref<Event>, then: Then) {
    if event.over() {
        return then(event.status());
    }
    // Kept by both sides, so that a refusal still leaves something to run.
    let then = Arc::new(Mutex::new(Some(then)));
    let told = Arc::clone(&then);
    if let Err(status) = when_over(event, move |status| run(&told, status)) {
        run(&then, status);
    }
}

/// Runs what has not run.
fn run(then: &Mutex<Option<Then>>, status: cl_int) {
    let then = then.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(then) = then {
        then(status);
    }
}

/// Has `then` run when all uses are over, with the first failure among them or `CL_COMPLETE`; here and now if they are over.
fn when_all_over(uses: Vec<Use>, then: impl FnOnce(cl_int) + Send + 'static) {
    struct Pending {
        left: AtomicUsize,
        status: AtomicI32,
        then: Mutex<Option<Then>>,
    }
    impl Pending {
        fn one_less(&self, status: cl_int) {
            if status < CL_COMPLETE {
                self.status.store(status, Ordering::Release);
            }
            if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            run(&self.then, self.status.load(Ordering::Acquire));
        }
    }
    let pending = Arc::new(Pending {
        // One more than there are uses, so that it does not end while they are gone through.
        left: AtomicUsize::new(uses.len() + 1),
        status: AtomicI32::new(CL_COMPLETE),
        then: Mutex::new(Some(Box::new(then))),
    });
    for used in uses {
        let pending = Arc::clone(&pending);
        used.when_over(Box::new(move |status| pending.one_less(status)));
    }
    pending.one_less(CL_COMPLETE);
}

/// One provider's copy.
#[derive(Default)]
struct Copy {
    current: bool,
    /// Commands and transfers that read or write it.
    users: Vec<Use>,
    /// Commands that made it what it is.
    writers: Vec<Use>,
    /// Opens when contents on their way have arrived.
    arriving: Option<Arc<Gate>>,
}

/// The state of a root object.
pub(crate) struct Coherence {
    copies: Vec<Copy>,
    /// The current contents in this process, without gaps.
    host: Option<Arc<Shadow>>,
}

/// Notes a use in a list: later commands of an in-order queue stand for the earlier ones.
fn remember(list: &mut Vec<Use>, used: &Use) {
    if let Some(queue) = used.queue() {
        list.retain(|earlier| !earlier.queue().is_some_and(|earlier| earlier.is(queue)));
    }
    if list.len() >= PRUNE_AT {
        list.retain(|used| !used.over());
    }
    list.push(used.clone());
}

impl Coherence {
    /// Contents of an object over so many parts; without initial contents every copy is as good as any.
    pub(crate) fn new(parts: usize, initial: Option<Arc<Shadow>>) -> Self {
        Self {
            copies: (0..parts)
                .map(|_| Copy {
                    current: initial.is_none(),
                    ..Copy::default()
                })
                .collect(),
            host: initial,
        }
    }
}

fn state(mem: &Mem) -> MutexGuard<'_, Coherence> {
    mem.coherence.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object whose copies are kept equal.
fn root(mem: &Ref<Mem>) -> &Ref<Mem> {
    mem.root().unwrap_or(mem)
}

/// Sees to it that a command on `part` finds the current contents; what it has to wait for is added to `waits`.
pub(crate) fn prepare(
    mem: &Ref<Mem>,
    part: usize,
    access: Access,
    waits: &mut Waits,
) -> Result<(), cl_int> {
    // The command is going to use the object itself, not only its root.
    let replaces_root = access == Access::Replace && mem.parent.is_none();
    let root = root(mem);
    if matches!(root.form, Form::Pipe { .. }) {
        return mem.raw_on(part).map(|_| ());
    }
    let mut state = state(root);
    if state.copies.is_empty() {
        // The only provider of its context has had the contents from the beginning.
        return mem.raw_on(part).map(|_| ());
    }
    if !state.copies[part].current && !replaces_root {
        bring(root, &mut state, part)?;
    }
    mem.raw_on(part)?;
    let copy = &mut state.copies[part];
    // Contents that never came are not missed where all of them are replaced.
    if copy
        .arriving
        .as_ref()
        .is_some_and(|gate| gate.open() || (replaces_root && gate.over()))
    {
        copy.arriving = None;
    }
    if let Some(gate) = &copy.arriving {
        waits.add_own(gate.made.raw, Arc::clone(gate) as Arc<dyn Send + Sync>);
    }
    if access.writes() {
        for used in &copy.users {
            if let Use::Move(gate) = used
                && !used.over()
            {
                waits.add_own(gate.made.raw, Arc::clone(gate) as Arc<dyn Send + Sync>);
            }
        }
    }
    Ok(())
}

/// Notes that a command on `part` uses the object.
pub(crate) fn record(mem: &Ref<Mem>, part: usize, access: Access, used: &Use) {
    let root = root(mem);
    if matches!(root.form, Form::Pipe { .. }) {
        return;
    }
    let mut state = state(root);
    if access.writes() {
        state.host = None;
        for (index, copy) in state.copies.iter_mut().enumerate() {
            copy.current = index == part;
            if index != part {
                copy.writers.clear();
            }
        }
    }
    let copy = &mut state.copies[part];
    remember(&mut copy.users, used);
    if access == Access::Replace && mem.parent.is_none() {
        // How they ended says nothing about the contents any more.
        copy.writers.retain(|used| !used.over());
    }
    if access.writes() {
        remember(&mut copy.writers, used);
    }
}

/// Gives a new object of a single-provider context its contents by a command, where creation cannot take them along. Commands wait
/// for it. The application does so for memory that it may change when this returns: without a `keeper`, until the contents have left.
pub(crate) fn fill(
    mem: &Ref<Mem>,
    contents: *mut c_void,
    keeper: Option<Arc<Shadow>>,
) -> Result<(), cl_int> {
    let gate = Gate::new(&mem.context, 0)?;
    let filled = Arc::clone(&gate);
    let context = mem.context.clone();
    context.filling.fetch_add(1, Ordering::AcqRel);
    let from = (contents, keeper.is_none().into());
    let writing = transfer(mem, 0, Direction::Write, from, move |status| {
        filled.finish(status);
        if status >= CL_COMPLETE {
            context.filling.fetch_sub(1, Ordering::AcqRel);
        }
        drop(keeper);
    });
    if let Err(status) = writing {
        mem.context.filling.fetch_sub(1, Ordering::AcqRel);
        gate.finish(status);
        return Err(status);
    }
    state(mem).copies.push(Copy {
        current: true,
        arriving: Some(gate),
        ..Copy::default()
    });
    Ok(())
}

/// Moves the current contents to `part`.
fn bring(root: &Ref<Mem>, state: &mut Coherence, part: usize) -> Result<(), cl_int> {
    match state.host.clone() {
        Some(host) if !root.exists_on(part) && root.takes_contents_on(part) => {
            root.create_on(part, host.at(0))?;
        }
        Some(host) => {
            root.raw_on(part)?;
            let gate = Gate::new(&root.context, part)?;
            deliver(root, part, host, state.copies[part].users.clone(), &gate);
            state.copies[part].arriving = Some(gate);
        }
        None => {
            let source = state
                .copies
                .iter()
                .position(|copy| copy.current)
                .ok_or(CL_OUT_OF_RESOURCES)?;
            relay(root, state, source, part)?;
        }
    }
    state.copies[part].current = true;
    state.copies[part].writers.clear();
    if state.copies.iter().all(|copy| copy.current) {
        state.host = None;
    }
    Ok(())
}

/// Contents on their way from one provider to another.
struct Move {
    mem: Ref<Mem>,
    from: usize,
    to: usize,
    /// What uses the copy that is to be replaced.
    users: Vec<Use>,
    /// Holds back what would change the contents where they are.
    leaving: Arc<Gate>,
    /// Holds back what needs them where they go.
    there: Arc<Gate>,
}

impl Move {
    /// The sessions of both sides, where a buffer might go without this process.
    fn peers(&self) -> Option<(Arc<Remote>, Arc<Remote>)> {
        let session = |part: usize| self.mem.context.parts[part].provider.session.clone();
        let (source, target) = (session(self.from)?, session(self.to)?);
        let buffer = !matches!(self.mem.form, Form::Image(_));
        (buffer && peer::may_connect(&source, &target)).then_some((source, target))
    }

    /// Fails: there is nothing to move, or no way to.
    fn fail(&self, status: cl_int) {
        self.leaving.finish(status);
        self.there.finish(status);
    }

    /// Reads into memory of this process and writes from there.
    fn through_here(self, shadow: Result<Arc<Shadow>, cl_int>) {
        let shadow = match shadow {
            Ok(shadow) => shadow,
            Err(status) => return self.fail(status),
        };
        let (source, from, read) = (self.mem.clone(), self.from, Arc::clone(&shadow));
        let (leaving, failed) = (Arc::clone(&self.leaving), Arc::clone(&self.there));
        let reading = transfer(
            &source,
            from,
            Direction::Read,
            later(&shadow),
            move |status| {
                self.leaving.finish(status);
                if status < CL_COMPLETE {
                    self.there.finish(status);
                } else {
                    deliver(&self.mem, self.to, read, self.users, &self.there);
                }
            },
        );
        if let Err(status) = reading {
            leaving.finish(status);
            failed.finish(status);
        }
    }

    /// Has the servers pass the contents on, once nothing uses what is there.
    fn directly(mut self, source: Arc<Remote>, target: Arc<Remote>, lane: Arc<PeerLane>) {
        let users = std::mem::take(&mut self.users);
        when_all_over(users, move |_| {
            let (size, payload) = (self.mem.size, lane.payload());
            let receiving = self.command(self.to, |queue, mem| {
                target.receive_from_peer(&lane, payload, queue, mem, size)
            });
            let sending = self.command(self.from, |queue, mem| {
                source.send_to_peer(&lane, payload, queue, mem, size)
            });
            let passing = Arc::new(Passing {
                there: Arc::clone(&self.there),
                size,
                moved: Mutex::new(Some(self)),
                source,
                lane,
                ends: Mutex::default(),
            });
            let received = Arc::clone(&passing);
            follow(receiving, move |status| received.ended(None, Some(status)));
            follow(sending, move |status| passing.ended(Some(status), None));
        });
    }

    /// Enqueues a command of one side on a queue of its own: the two wait for each other, and must hold up nothing else.
    fn command(
        &self,
        part: usize,
        enqueue: impl FnOnce(cl_command_queue, cl_mem) -> Result<cl_event, cl_int>,
    ) -> Result<Arc<Made>, cl_int> {
        let owner = &self.mem.context.parts[part];
        let device = owner.devices.first().ok_or(CL_INVALID_DEVICE)?;
        let mem = self.mem.raw_on(part)?;
        let api = owner.api();
        let queue = create!(api, clCreateCommandQueue(owner.raw.0, device.raw.0, 0))?;
        let event = enqueue(queue, mem);
        provider!(api, clFlush(queue));
        // The provider keeps it until its command is complete.
        provider!(api, clReleaseCommandQueue(queue));
        Ok(Arc::new(Made {
            context: self.mem.context.clone(),
            part,
            raw: Shared(event?),
        }))
    }
}

/// Has `then` run with the final status of a command, or why it was not enqueued.
fn follow(command: Result<Arc<Made>, cl_int>, then: impl FnOnce(cl_int) + Send + 'static) {
    let made = match command {
        Ok(made) => made,
        Err(status) => return then(status),
    };
    // Kept by both sides, so that a refusal still leaves something to run.
    let then: Arc<Mutex<Option<Then>>> = Arc::new(Mutex::new(Some(Box::new(then))));
    let (told, held) = (Arc::clone(&then), Arc::clone(&made));
    let watching = watch(
        held.context.parts[held.part].api(),
        held.raw,
        move |status| {
            drop(made);
            run(&told, status);
        },
    );
    if let Err(status) = watching {
        run(&then, status);
    }
}

/// A move between two servers, until both have ended their part.
struct Passing {
    there: Arc<Gate>,
    size: usize,
    moved: Mutex<Option<Move>>,
    source: Arc<Remote>,
    lane: Arc<PeerLane>,
    /// How the sending and the receiving side ended.
    ends: Mutex<(Option<cl_int>, Option<cl_int>)>,
}

impl Passing {
    /// One side has ended; the second to do so ends the move.
    fn ended(&self, sent: Option<cl_int>, received: Option<cl_int>) {
        if received == Some(CL_COMPLETE) {
            // The contents have arrived, also if the other side fails. They are counted first, since the program may end next.
            self.source.sent_to_peer(self.size);
            self.there.finish(CL_COMPLETE);
        }
        let (sent, received) = {
            let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
            *ends = (ends.0.or(sent), ends.1.or(received));
            match *ends {
                (Some(sent), Some(received)) => (sent, received),
                _ => return,
            }
        };
        let moved = self
            .moved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(moved) = moved else {
            return;
        };
        if received == CL_COMPLETE {
            return moved.leaving.finish(CL_COMPLETE);
        }
        if [sent, received].contains(&CL_DEVICE_NOT_AVAILABLE) {
            self.lane.give_up();
        }
        // The contents are still where they were. If they cannot be read there, or written here, that tells.
        let shadow = Shadow::new(moved.mem.size);
        moved.through_here(shadow);
    }
}

/// Has contents moved from one provider, behind what makes its copy, to another; a gate holds back what needs the contents there, and
/// another what would change them here.
fn relay(root: &Ref<Mem>, state: &mut Coherence, from: usize, to: usize) -> Result<(), cl_int> {
    root.raw_on(from)?;
    root.raw_on(to)?;
    let arriving = Gate::new(&root.context, to)?;
    let reading = Gate::new(&root.context, from)?;
    let copy = &state.copies[from];
    let mut before = copy.writers.clone();
    before.extend(copy.arriving.iter().cloned().map(Use::Move));
    let users = state.copies[to].users.clone();
    for writer in &before {
        let queue = match writer {
            Use::Command(event) => event.queue.as_ref(),
            Use::Batch(queue, _) => Some(queue),
            Use::Move(_) => None,
        };
        if let Some(queue) = queue {
            // A command that nobody flushed might never start.
            provider!(root.context.parts[from].api(), clFlush(queue.raw.0));
        }
    }
    let moved = Move {
        mem: root.clone(),
        from,
        to,
        users,
        leaving: Arc::clone(&reading),
        there: Arc::clone(&arriving),
    };
    let peers = moved.peers();
    // Memory that this process lacks is told at the call, where it is known to be needed.
    let shadow = match &peers {
        None => Some(Shadow::new(root.size)?),
        Some(_) => None,
    };
    when_all_over(before, move |status| {
        if status < CL_COMPLETE {
            moved.leaving.finish(status);
            return moved
                .there
                .finish(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
        }
        let here = move |moved: Move| {
            let size = moved.mem.size;
            moved.through_here(shadow.map_or_else(|| Shadow::new(size), Ok));
        };
        match peers {
            None => here(moved),
            Some((source, target)) => {
                let (one, other) = (Arc::clone(&source), Arc::clone(&target));
                peer::with_lane(&one, &other, move |lane| match lane {
                    Some(lane) => moved.directly(source, target, lane),
                    None => here(moved),
                });
            }
        }
    });
    state.copies[from].users.push(Use::Move(reading));
    state.copies[to].arriving = Some(arriving);
    Ok(())
}

/// Writes contents of this process to a provider's copy once nothing uses what is there, and opens the gate then.
fn deliver(root: &Ref<Mem>, to: usize, contents: Arc<Shadow>, users: Vec<Use>, gate: &Arc<Gate>) {
    let (mem, gate) = (root.clone(), Arc::clone(gate));
    // A command that failed has stopped using the copy like any other.
    when_all_over(users, move |_| {
        let (held, there) = (Arc::clone(&contents), Arc::clone(&gate));
        let writing = transfer(
            &mem,
            to,
            Direction::Write,
            later(&contents),
            move |status| {
                there.finish(status);
                drop(held);
            },
        );
        if let Err(status) = writing {
            gate.finish(status);
        }
    });
}

/// Memory that a transfer does not block for.
fn later(shadow: &Shadow) -> (*mut c_void, cl_bool) {
    (shadow.at(0), CL_FALSE)
}

/// Moves all of a provider's copy between the provider and memory of this process, at once; a write may block until it has left that.
/// `then` runs with the final status; it keeps the memory otherwise.
fn transfer(
    root: &Mem,
    part: usize,
    direction: Direction,
    (memory, blocking): (*mut c_void, cl_bool),
    then: impl FnOnce(cl_int) + Send + 'static,
) -> Result<(), cl_int> {
    let owner = &root.context.parts[part];
    let raw = root.raw_on(part)?;
    let api = &owner.provider.api;
    let none = std::ptr::null();
    let mut event = std::ptr::null_mut();
    owner.transfer(direction, |queue| {
        check(match (&root.form, direction) {
            (Form::Image(shape), Direction::Read) => {
                let (origin, region) = ([0; 3], shape.region());
                provider!(
                    api,
                    clEnqueueReadImage(
                        queue,
                        raw,
                        CL_FALSE,
                        origin.as_ptr(),
                        region.as_ptr(),
                        0,
                        0,
                        memory,
                        0,
                        none,
                        &raw mut event
                    )
                )
            }
            (Form::Image(shape), Direction::Write) => {
                let (origin, region) = ([0; 3], shape.region());
                provider!(
                    api,
                    clEnqueueWriteImage(
                        queue,
                        raw,
                        CL_FALSE,
                        origin.as_ptr(),
                        region.as_ptr(),
                        0,
                        0,
                        memory,
                        0,
                        none,
                        &raw mut event
                    )
                )
            }
            (_, Direction::Read) => provider!(
                api,
                clEnqueueReadBuffer(
                    queue,
                    raw,
                    CL_FALSE,
                    0,
                    root.size,
                    memory,
                    0,
                    none,
                    &raw mut event
                )
            ),
            (_, Direction::Write) => provider!(
                api,
                clEnqueueWriteBuffer(
                    queue,
                    raw,
                    blocking,
                    0,
                    root.size,
                    memory,
                    0,
                    none,
                    &raw mut event
                )
            ),
        })
    })?;
    let made = Arc::new(Made {
        context: root.context.clone(),
        part,
        raw: Shared(event),
    });
    // `then` may run, and let go of everything, before this returns.
    let held = Arc::clone(&made);
    let watching = watch(&**api, made.raw, move |status| {
        drop(held);
        then(status);
    });
    if watching.is_err() {
        // Nobody will hear of its end, so it is waited for: the memory is the command's until then.
        provider!(api, clWaitForEvents(1, &raw const event));
    }
    watching
}
