//! Copies of a memory object on several providers of one context, kept equal.
//!
//! Each root object knows which providers hold its current contents. A command on a provider without them first has them moved:
//! read from one that has them into memory of this process, then written to the other. The command is enqueued at once and waits
//! for a gate, a user event of its provider that opens when the contents have arrived; no thread of the application waits. The
//! write is issued when the bytes are here: a provider may take the bytes of a write at the call.
//!
//! Single-provider contexts never come here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use smallvec::SmallVec;
use towline_backend::opencl::*;

use crate::arena::Ref;
use crate::command::Waits;
use crate::context::Context;
use crate::event::{Event, RawEvent, watch};
use crate::map::Shadow;
use crate::memory::{Form, Mem};
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

/// An event of a provider that the library itself made.
struct Own {
    context: Ref<Context>,
    part: usize,
    raw: RawEvent,
    /// Set once it is complete.
    done: AtomicBool,
}

impl Own {
    fn new(context: &Ref<Context>, part: usize, raw: cl_event) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            part,
            raw: Shared(raw),
            done: AtomicBool::new(false),
        })
    }

    /// A user event, to be opened by [`finish`](Self::finish).
    fn gate(context: &Ref<Context>, part: usize) -> Result<Arc<Self>, cl_int> {
        let owner = &context.parts[part];
        let raw = create!(owner.provider.api, clCreateUserEvent(owner.raw.0))?;
        Ok(Self::new(context, part, raw))
    }

    fn finish(&self, status: cl_int) {
        provider!(
            self.context.parts[self.part].provider.api,
            clSetUserEventStatus(self.raw.0, status.min(CL_COMPLETE))
        );
        // A failed gate stays in wait lists: what needs the contents must fail.
        self.done.store(status >= CL_COMPLETE, Ordering::Release);
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        provider!(
            self.context.parts[self.part].provider.api,
            clReleaseEvent(self.raw.0)
        );
    }
}

/// Something that uses a copy, or did.
#[derive(Clone)]
enum Use {
    Command(Ref<Event>),
    Transfer(Arc<Own>),
}

impl Use {
    fn raw(&self, part: usize) -> Option<RawEvent> {
        match self {
            Self::Command(event) => event.at_home(part),
            Self::Transfer(own) => Some(own.raw),
        }
    }

    fn over(&self) -> bool {
        match self {
            Self::Command(event) => event.over(),
            Self::Transfer(own) => own.done.load(Ordering::Acquire),
        }
    }
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
    arriving: Option<Arc<Own>>,
}

/// The state of a root object.
pub(crate) struct Coherence {
    copies: Vec<Copy>,
    /// The current contents in this process, without gaps.
    host: Option<Arc<Shadow>>,
}

/// Uses the keeper of a list: later commands of an in-order queue stand for the earlier ones.
fn remember(list: &mut Vec<Use>, event: &Ref<Event>) {
    if let Some(queue) = event.queue.as_ref().filter(|queue| queue.in_order()) {
        list.retain(|used| match used {
            Use::Command(earlier) => !earlier
                .queue
                .as_ref()
                .is_some_and(|earlier| earlier.is(queue)),
            Use::Transfer(_) => true,
        });
    }
    if list.len() >= PRUNE_AT {
        list.retain(|used| !used.over());
    }
    list.push(Use::Command(event.clone()));
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
    if copy
        .arriving
        .as_ref()
        .is_some_and(|gate| gate.done.load(Ordering::Acquire))
    {
        copy.arriving = None;
    }
    if let Some(gate) = &copy.arriving {
        waits.add_own(gate.raw, Arc::clone(gate) as Arc<dyn Send + Sync>);
    }
    if access.writes() {
        for used in &copy.users {
            if let Use::Transfer(own) = used
                && !used.over()
            {
                waits.add_own(own.raw, Arc::clone(own) as Arc<dyn Send + Sync>);
            }
        }
    }
    Ok(())
}

/// Notes that a command on `part` uses the object.
pub(crate) fn record(mem: &Ref<Mem>, part: usize, access: Access, event: &Ref<Event>) {
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
    remember(&mut copy.users, event);
    if access.writes() {
        remember(&mut copy.writers, event);
    }
}

/// Gives a new object of a single-provider context its contents by a command, where creation cannot take them along. Commands wait
/// for it, the application does not.
pub(crate) fn fill(mem: &Ref<Mem>, contents: Arc<Shadow>) -> Result<(), cl_int> {
    let own = write(mem, 0, &contents, &[])?;
    state(mem).copies.push(Copy {
        current: true,
        arriving: Some(Arc::clone(&own)),
        ..Copy::default()
    });
    let context = mem.context.clone();
    context.filling.fetch_add(1, Ordering::AcqRel);
    let raw = own.raw;
    watch(mem.context.parts[0].api(), raw, move |status| {
        if status >= CL_COMPLETE {
            own.done.store(true, Ordering::Release);
            context.filling.fetch_sub(1, Ordering::AcqRel);
        }
        drop(contents);
    })
}

/// Moves the current contents to `part`.
fn bring(root: &Ref<Mem>, state: &mut Coherence, part: usize) -> Result<(), cl_int> {
    if let Some(host) = state.host.clone() {
        if !root.exists_on(part) && root.takes_contents_on(part) {
            root.create_on(part, host.at(0))?;
        } else {
            let waits: SmallVec<[Use; 8]> = state.copies[part].users.iter().cloned().collect();
            let own = write(root, part, &host, &waits)?;
            let done = Arc::clone(&own);
            watch(root.context.parts[part].api(), own.raw, move |status| {
                done.done.store(status >= CL_COMPLETE, Ordering::Release);
                drop(host);
            })?;
            state.copies[part].arriving = Some(own);
        }
    } else {
        let source = state
            .copies
            .iter()
            .position(|copy| copy.current)
            .ok_or(CL_OUT_OF_RESOURCES)?;
        relay(root, state, source, part)?;
    }
    state.copies[part].current = true;
    state.copies[part].writers.clear();
    if state.copies.iter().all(|copy| copy.current) {
        state.host = None;
    }
    Ok(())
}

/// Reads from one provider and, once the bytes are here, writes to another; a gate holds back what needs them there.
fn relay(root: &Ref<Mem>, state: &mut Coherence, from: usize, to: usize) -> Result<(), cl_int> {
    let shadow = Shadow::new(root.size)?;
    root.raw_on(to)?;
    let gate = Own::gate(&root.context, to)?;
    let reading = read(root, state, from, &shadow)?;
    let users: SmallVec<[Use; 8]> = state.copies[to].users.iter().cloned().collect();
    let (mem, opening, own) = (root.clone(), Arc::clone(&gate), Arc::clone(&reading));
    let watching = watch(root.context.parts[from].api(), reading.raw, move |status| {
        own.done.store(true, Ordering::Release);
        if status < CL_COMPLETE {
            return opening.finish(status);
        }
        let written = write(&mem, to, &shadow, &users).and_then(|own| {
            let then = Arc::clone(&opening);
            // The event outlives the call that watches it, whatever the watcher drops.
            let held = Arc::clone(&own);
            watch(held.context.parts[to].api(), held.raw, move |status| {
                then.finish(status);
                drop((shadow, own));
            })
        });
        if let Err(status) = written {
            opening.finish(status);
        }
    });
    if let Err(status) = watching {
        gate.finish(status);
        return Err(status);
    }
    state.copies[from].users.push(Use::Transfer(reading));
    state.copies[to].arriving = Some(gate);
    Ok(())
}

/// Starts reading everything from a provider's copy, behind what makes it.
fn read(
    root: &Ref<Mem>,
    state: &Coherence,
    part: usize,
    shadow: &Shadow,
) -> Result<Arc<Own>, cl_int> {
    let owner = &root.context.parts[part];
    let copy = &state.copies[part];
    let mut waits: SmallVec<[cl_event; 8]> = SmallVec::new();
    for writer in &copy.writers {
        if let Some(raw) = writer.raw(part) {
            waits.push(raw.0);
        }
        if let Use::Command(event) = writer
            && let Some(queue) = &event.queue
        {
            // A command that nobody flushed might never start.
            provider!(owner.provider.api, clFlush(queue.raw.0));
        }
    }
    if let Some(gate) = &copy.arriving {
        waits.push(gate.raw.0);
    }
    let (count, list) = parts_of(&waits);
    let raw = root.raw_on(part)?;
    let api = &owner.provider.api;
    let mut event = std::ptr::null_mut();
    owner.transfer(|queue| {
        check(match &root.form {
            Form::Image(shape) => {
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
                        shadow.at(0),
                        count,
                        list,
                        &raw mut event
                    )
                )
            }
            _ => provider!(
                api,
                clEnqueueReadBuffer(
                    queue,
                    raw,
                    CL_FALSE,
                    0,
                    root.size,
                    shadow.at(0),
                    count,
                    list,
                    &raw mut event
                )
            ),
        })
    })?;
    Ok(Own::new(&root.context, part, event))
}

/// Starts writing everything to a provider's copy, behind what still uses it.
fn write(root: &Mem, part: usize, shadow: &Shadow, users: &[Use]) -> Result<Arc<Own>, cl_int> {
    let owner = &root.context.parts[part];
    let waits: SmallVec<[cl_event; 8]> = users
        .iter()
        .filter(|used| !used.over())
        .filter_map(|used| used.raw(part))
        .map(|raw| raw.0)
        .collect();
    let (count, list) = parts_of(&waits);
    let raw = root.raw_on(part)?;
    let api = &owner.provider.api;
    let mut event = std::ptr::null_mut();
    owner.transfer(|queue| {
        check(match &root.form {
            Form::Image(shape) => {
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
                        shadow.at(0),
                        count,
                        list,
                        &raw mut event
                    )
                )
            }
            _ => provider!(
                api,
                clEnqueueWriteBuffer(
                    queue,
                    raw,
                    CL_FALSE,
                    0,
                    root.size,
                    shadow.at(0),
                    count,
                    list,
                    &raw mut event
                )
            ),
        })
    })?;
    Ok(Own::new(&root.context, part, event))
}

fn parts_of(waits: &[cl_event]) -> (cl_uint, *const cl_event) {
    if waits.is_empty() {
        (0, std::ptr::null())
    } else {
        (waits.len() as cl_uint, waits.as_ptr())
    }
}
