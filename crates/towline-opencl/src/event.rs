//! Events: completion of commands, and events that the application completes itself.
//!
//! An event lives on the provider of its command. Where a command of another provider waits for it, that provider gets a *proxy*: a
//! user event that is set when the first provider reports completion. A user event of the application is made of proxies only.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use towline_backend::opencl::*;

use crate::arena::{Kind, Object, Ref, get};
use crate::callback::{CALLBACKS, MOVES};
use crate::context::Context;
use crate::platform::{EventCalls, Platform};
use crate::queue::Queue;
use crate::raw::{Answer, Shared, check, create, provider};

type EventFn = unsafe extern "C" fn(cl_event, cl_int, *mut c_void);
/// An event as a provider has it.
pub(crate) type RawEvent = Shared<_cl_event>;

/// A user event on a provider that stands for an event from elsewhere.
struct Proxy {
    part: usize,
    raw: RawEvent,
    settled: bool,
}

/// A function of the application that waits for a status of a user event.
struct Waiting {
    at: cl_int,
    function: EventFn,
    user_data: Shared<c_void>,
}

#[derive(Default)]
struct Links {
    proxies: SmallVec<[Proxy; 1]>,
    waiting: Vec<Waiting>,
    profiling: SmallVec<[(cl_profiling_info, cl_ulong); 5]>,
}

type Unsettled = SmallVec<[(usize, RawEvent); 4]>;

impl Links {
    /// The proxies that whoever asks is going to settle.
    fn unsettled(&mut self) -> Unsettled {
        let open = self.proxies.iter_mut().filter(|proxy| !proxy.settled);
        open.map(|proxy| {
            proxy.settled = true;
            (proxy.part, proxy.raw)
        })
        .collect()
    }
}

/// An event.
pub(crate) struct Event {
    pub(crate) context: Ref<Context>,
    /// The queue of its command; none for a user event.
    pub(crate) queue: Option<Ref<Queue>>,
    command: cl_command_type,
    /// Its part of the context and the provider's event; none for a user event.
    home: Option<(usize, RawEvent)>,
    /// The last status known here; final once it is complete or negative.
    status: AtomicI32,
    links: Mutex<Links>,
    changed: Condvar,
}

impl Object for Event {
    type Raw = _cl_event;
    const KIND: Kind = Kind::Event;
    const INVALID: cl_int = CL_INVALID_EVENT;
}

impl Event {
    /// The event of a command that `raw` stands for at the queue's provider.
    pub(crate) fn of_command(
        queue: &Ref<Queue>,
        raw: cl_event,
        command: cl_command_type,
    ) -> Result<Ref<Self>, cl_int> {
        Ref::new(Self {
            context: queue.context.clone(),
            queue: Some(queue.clone()),
            command,
            home: Some((queue.part, Shared(raw))),
            status: AtomicI32::new(CL_QUEUED),
            links: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far its command has come.
    pub(crate) fn status(&self) -> cl_int {
        let known = self.status.load(Ordering::Acquire);
        let Some((part, raw)) = self.home else {
            return known;
        };
        if known <= CL_COMPLETE {
            return known;
        }
        let now = status_of(self.context.parts[part].api(), raw);
        // A final status stays; another thread may have seen it first.
        self.status.fetch_min(now, Ordering::AcqRel);
        now
    }

    /// Whether its command has ended, well or not.
    pub(crate) fn over(&self) -> bool {
        self.status() <= CL_COMPLETE
    }

    /// Whether its command is one of the queue's.
    pub(crate) fn is_of(&self, queue: &Queue) -> bool {
        let own = self.queue.as_deref();
        own.is_some_and(|own| std::ptr::eq(own, queue))
    }

    /// The provider's event, where it has one at home there.
    pub(crate) fn at_home(&self, part: usize) -> Option<RawEvent> {
        self.home
            .filter(|(home, _)| *home == part)
            .map(|(_, raw)| raw)
    }

    /// Ends a user event, or what stands for an event elsewhere, and everything that waits for it.
    fn settle(&self, status: cl_int) {
        let proxies = {
            let mut links = self.links();
            self.status.store(status, Ordering::Release);
            links.unsettled()
        };
        self.changed.notify_all();
        self.end(proxies, status);
    }

    /// Ends what stands for the event elsewhere, whose own end nobody will hear of: what waits for it fails instead of waiting for ever.
    fn give_up(&self, status: cl_int) {
        let proxies = self.links().unsettled();
        self.end(proxies, status);
    }

    fn end(&self, proxies: Unsettled, status: cl_int) {
        for (part, raw) in proxies {
            provider!(
                self.context.parts[part].provider.api,
                clSetUserEventStatus(raw.0, status)
            );
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some((part, raw)) = self.home {
            provider!(self.context.parts[part].provider.api, clReleaseEvent(raw.0));
        } else if *self.status.get_mut() > CL_COMPLETE {
            self.context.open_user_events.fetch_sub(1, Ordering::AcqRel);
        }
        let links = self.links.get_mut().unwrap_or_else(PoisonError::into_inner);
        for proxy in &links.proxies {
            provider!(
                self.context.parts[proxy.part].provider.api,
                clReleaseEvent(proxy.raw.0)
            );
        }
    }
}

/// What a command on `part` waits for instead of the event; nothing if it is complete already, unless `always` asks for something.
pub(crate) fn on(
    event: &Ref<Event>,
    part: usize,
    always: bool,
) -> Result<Option<RawEvent>, cl_int> {
    if let Some(raw) = event.at_home(part) {
        return Ok(Some(raw));
    }
    let status = event.status();
    if status == CL_COMPLETE && !always {
        return Ok(None);
    }
    let (proxy, first) = {
        let mut links = event.links();
        if let Some(proxy) = links.proxies.iter().find(|proxy| proxy.part == part) {
            return Ok(Some(proxy.raw));
        }
        let owner = &event.context.parts[part];
        let raw = Shared(create!(owner.provider.api, clCreateUserEvent(owner.raw.0))?);
        let first = links.proxies.is_empty();
        // The status may have become final before the lock was taken; then nobody else settles this proxy.
        let settled = event.status.load(Ordering::Acquire) <= CL_COMPLETE;
        links.proxies.push(Proxy { part, raw, settled });
        (settled.then_some(raw), first)
    };
    if let Some(raw) = proxy {
        provider!(
            event.context.parts[part].provider.api,
            clSetUserEventStatus(raw.0, event.status.load(Ordering::Acquire))
        );
    } else if first && event.home.is_some() {
        let source = event.clone();
        if let Err(status) = when_over(event, move |status| source.settle(status)) {
            event.give_up(status);
            return Err(status);
        }
    }
    let links = event.links();
    Ok(links
        .proxies
        .iter()
        .find(|proxy| proxy.part == part)
        .map(|proxy| proxy.raw))
}

/// What a report of a provider leads to, once, whoever notices first: some providers forget to report what has happened before
/// they are asked to (Oclgrind 21.10), or what failed (PoCL 3.1).
struct Report {
    then: Mutex<Option<Then>>,
}

type Then = Box<dyn FnOnce(cl_int) + Send>;

impl Report {
    fn make(&self, status: cl_int) {
        let then = self
            .then
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(then) = then {
            then(status);
        }
    }
}

unsafe extern "C" fn reported(_event: cl_event, status: cl_int, user_data: *mut c_void) {
    // SAFETY: `report` gave this reference for exactly this call.
    let report = unsafe { Arc::from_raw(user_data.cast_const().cast::<Report>()) };
    report.make(status);
}

/// The status of a provider's event; an error counts as the event's own.
pub(crate) fn status_of(api: &dyn OpenClApi, raw: RawEvent) -> cl_int {
    let mut status = CL_QUEUED;
    let failed = provider!(
        api,
        clGetEventInfo(
            raw.0,
            CL_EVENT_COMMAND_EXECUTION_STATUS,
            size_of::<cl_int>(),
            (&raw mut status).cast(),
            std::ptr::null_mut()
        )
    );
    if failed == CL_SUCCESS { status } else { failed }
}

/// Has `then` run, on whichever thread notices, once the provider's event has reached a status. The caller holds the event until this
/// returns: `then` may already have dropped everything else that did.
fn report(
    api: &dyn OpenClApi,
    raw: RawEvent,
    at: cl_int,
    then: impl FnOnce(cl_int) + Send + 'static,
) -> Result<(), cl_int> {
    let report = Arc::new(Report {
        then: Mutex::new(Some(Box::new(then))),
    });
    let user_data = Arc::into_raw(Arc::clone(&report));
    let status = provider!(
        api,
        clSetEventCallback(raw.0, at, Some(reported), user_data.cast_mut().cast())
    );
    if status != CL_SUCCESS {
        // SAFETY: the provider refused, so it never calls back.
        drop(unsafe { Arc::from_raw(user_data) });
        return Err(status);
    }
    let now = status_of(api, raw);
    if now <= at {
        report.make(now);
    }
    Ok(())
}

/// Has `then` run on the library's own thread once the provider's event is complete or failed.
pub(crate) fn watch(
    api: &dyn OpenClApi,
    raw: RawEvent,
    then: impl FnOnce(cl_int) + Send + 'static,
) -> Result<(), cl_int> {
    report(api, raw, CL_COMPLETE, |status| {
        MOVES.run(move || then(status));
    })
}

/// Has `then` run on the library's own thread once the command's event is complete or failed.
pub(crate) fn when_over(
    event: &Ref<Event>,
    then: impl FnOnce(cl_int) + Send + 'static,
) -> Result<(), cl_int> {
    let (part, raw) = event.home.ok_or(CL_INVALID_EVENT)?;
    watch(event.context.parts[part].api(), raw, then)
}

/// A function that the application registered for an event.
struct Registered {
    event: Ref<Event>,
    function: EventFn,
    user_data: Shared<c_void>,
}

/// Calls the application's function on the callback thread; the event stays valid until then.
fn call_later(registered: Box<Registered>, status: cl_int) {
    CALLBACKS.run(move || {
        let Registered {
            event,
            function,
            user_data,
        } = *registered;
        // SAFETY: the application registered the function with this data for this event.
        unsafe { function(event.handle(), status, user_data.0) };
    });
}

/// Looks up a list of events that shall be of one context.
fn events(list: &[cl_event]) -> Result<SmallVec<[Ref<Event>; 8]>, cl_int> {
    let events = list
        .iter()
        .map(|&event| get::<Event>(event))
        .collect::<Result<SmallVec<[_; 8]>, _>>()?;
    if events
        .iter()
        .any(|event| !event.context.is(&events[0].context))
    {
        return Err(CL_INVALID_CONTEXT);
    }
    Ok(events)
}

impl EventCalls for Platform {
    unsafe fn clCreateUserEvent(&self, context: cl_context) -> Result<cl_event, cl_int> {
        let context = get::<Context>(context)?;
        context.open_user_events.fetch_add(1, Ordering::AcqRel);
        // After the count, so that each write is met here or counts the event itself.
        for part in &context.parts {
            part.user_event_counted();
        }
        Ref::new(Event {
            context,
            queue: None,
            command: CL_COMMAND_USER,
            home: None,
            status: AtomicI32::new(CL_SUBMITTED),
            links: Mutex::default(),
            changed: Condvar::new(),
        })
        .map(Ref::publish)
    }

    unsafe fn clSetUserEventStatus(
        &self,
        event: cl_event,
        execution_status: cl_int,
    ) -> Result<(), cl_int> {
        let event = get::<Event>(event)?;
        if execution_status > CL_COMPLETE {
            return Err(CL_INVALID_VALUE);
        }
        if event.home.is_some() {
            return Err(CL_INVALID_EVENT);
        }
        let waiting = {
            let mut links = event.links();
            if event.status.load(Ordering::Acquire) <= CL_COMPLETE {
                return Err(CL_INVALID_OPERATION);
            }
            // Set under the lock, so that it is set once.
            event.status.store(execution_status, Ordering::Release);
            std::mem::take(&mut links.waiting)
        };
        event.settle(execution_status);
        event
            .context
            .open_user_events
            .fetch_sub(1, Ordering::AcqRel);
        for waiting in waiting {
            let registered = Box::new(Registered {
                event: event.clone(),
                function: waiting.function,
                user_data: waiting.user_data,
            });
            let status = if execution_status < 0 {
                execution_status
            } else {
                waiting.at
            };
            call_later(registered, status);
        }
        Ok(())
    }

    unsafe fn clWaitForEvents(
        &self,
        num_events: cl_uint,
        event_list: Option<&[cl_event]>,
    ) -> Result<(), cl_int> {
        let Some(list) = event_list.filter(|_| num_events > 0) else {
            return Err(CL_INVALID_VALUE);
        };
        let events = events(list)?;
        let mut failed = false;
        let mut per_part: SmallVec<[SmallVec<[cl_event; 8]>; 2]> = SmallVec::new();
        per_part.resize(events[0].context.parts.len(), SmallVec::new());
        for event in &events {
            if let Some((part, raw)) = event.home {
                per_part[part].push(raw.0);
            }
        }
        for (part, raws) in per_part.iter().enumerate() {
            if raws.is_empty() {
                continue;
            }
            let status = provider!(
                events[0].context.parts[part].provider.api,
                clWaitForEvents(raws.len() as cl_uint, raws.as_ptr())
            );
            match status {
                CL_SUCCESS => {}
                CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => failed = true,
                other => return Err(other),
            }
        }
        for event in events.iter().filter(|event| event.home.is_none()) {
            let mut links = event.links();
            while event.status.load(Ordering::Acquire) > CL_COMPLETE {
                links = event
                    .changed
                    .wait(links)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
        if failed || events.iter().any(|event| event.status() < 0) {
            return Err(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
        }
        Ok(())
    }

    unsafe fn clGetEventInfo(
        &self,
        event: cl_event,
        param_name: cl_event_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let event = get::<Event>(event)?;
        match param_name {
            CL_EVENT_COMMAND_QUEUE => answer.value(
                event
                    .queue
                    .as_ref()
                    .map_or(std::ptr::null_mut(), Ref::handle),
            ),
            CL_EVENT_CONTEXT => answer.value(event.context.handle()),
            CL_EVENT_COMMAND_TYPE => answer.value(event.command),
            CL_EVENT_REFERENCE_COUNT => answer.value(event.count()),
            CL_EVENT_COMMAND_EXECUTION_STATUS => answer.value(event.status()),
            _ => Err(CL_INVALID_VALUE),
        }
    }

    unsafe fn clSetEventCallback(
        &self,
        event: cl_event,
        command_exec_callback_type: cl_int,
        pfn_notify: Option<EventFn>,
        user_data: *mut c_void,
    ) -> Result<(), cl_int> {
        let event = get::<Event>(event)?;
        let at = command_exec_callback_type;
        let Some(function) = pfn_notify else {
            return Err(CL_INVALID_VALUE);
        };
        if !matches!(at, CL_SUBMITTED | CL_RUNNING | CL_COMPLETE) {
            return Err(CL_INVALID_VALUE);
        }
        let registered = Box::new(Registered {
            event: event.clone(),
            function,
            user_data: Shared(user_data),
        });
        let Some((part, raw)) = event.home else {
            let mut links = event.links();
            let now = event.status.load(Ordering::Acquire);
            if now <= at {
                drop(links);
                call_later(registered, if now < 0 { now } else { at });
            } else {
                links.waiting.push(Waiting {
                    at,
                    function,
                    user_data: Shared(user_data),
                });
            }
            return Ok(());
        };
        let now = event.status();
        if now <= at {
            call_later(registered, if now < 0 { now } else { at });
            return Ok(());
        }
        let owner = &event.context.parts[part].provider;
        // Sessions report completion only; what has been reached by then is called then.
        let level = if owner.local { at } else { CL_COMPLETE };
        report(&*owner.api, raw, level, move |status| {
            call_later(registered, if status < 0 { status } else { at });
        })
    }

    unsafe fn clGetEventProfilingInfo(
        &self,
        event: cl_event,
        param_name: cl_profiling_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let event = get::<Event>(event)?;
        let timed = event.queue.as_ref().is_some_and(|queue| queue.profiles());
        let Some((part, raw)) = event
            .home
            .filter(|_| timed && event.status() == CL_COMPLETE)
        else {
            return Err(CL_PROFILING_INFO_NOT_AVAILABLE);
        };
        if !matches!(
            param_name,
            CL_PROFILING_COMMAND_QUEUED
                | CL_PROFILING_COMMAND_SUBMIT
                | CL_PROFILING_COMMAND_START
                | CL_PROFILING_COMMAND_END
                | CL_PROFILING_COMMAND_COMPLETE
        ) {
            return Err(CL_INVALID_VALUE);
        }
        if !answer.announce(size_of::<cl_ulong>())? {
            return Ok(());
        }
        let known = event
            .links()
            .profiling
            .iter()
            .find(|(name, _)| *name == param_name)
            .map(|(_, value)| *value);
        if let Some(value) = known {
            return answer.value(value);
        }
        let mut value: cl_ulong = 0;
        check(provider!(
            event.context.parts[part].provider.api,
            clGetEventProfilingInfo(
                raw.0,
                param_name,
                size_of::<cl_ulong>(),
                (&raw mut value).cast(),
                std::ptr::null_mut()
            )
        ))?;
        event.links().profiling.push((param_name, value));
        answer.value(value)
    }

    unsafe fn clRetainEvent(&self, event: cl_event) -> Result<(), cl_int> {
        get::<Event>(event)?.retain();
        Ok(())
    }

    unsafe fn clReleaseEvent(&self, event: cl_event) -> Result<(), cl_int> {
        get::<Event>(event)?.release().map(|_| ())
    }
}
