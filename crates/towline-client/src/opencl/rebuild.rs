//! A session made again on another server, under the same numbers.
//!
//! The session must be idle: no call is under way, every command has ended, and no data is on its way. Then everything that lives is
//! made on the other server from what the client keeps ([`super::recipe`]), contents of buffers and images are read here and written
//! there piece by piece, and only when all of that went well do later calls go there and does the old session end. Until then the old
//! session is only read from, so a failure leaves it as it was.
//!
//! Regions that the application has mapped are memory of its own process, and stay where they are. What ended events tell (status,
//! times) moves too. What cannot move is refused: shared virtual memory, whose addresses are the old server's; pipes that a kernel
//! was given, since no call reads them; images with several levels or samples.

#[cfg(unix)]
mod checkpoint;
mod contents;
mod programs;

use std::sync::RwLockWriteGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use towline_session::Batch;

use super::event::times_request;
use super::recipe::{Origin, Recipe, tag};
use super::*;
use crate::tuning::tuning;

/// Device queries whose answers must be the same on both servers, the last one no less.
const SAME: [(cl_device_info, &str); 5] = [
    (CL_DEVICE_NAME, "name"),
    (CL_DEVICE_VENDOR, "vendor"),
    (CL_DEVICE_VERSION, "version"),
    (CL_DRIVER_VERSION, "driver version"),
    (CL_DEVICE_MAX_MEM_ALLOC_SIZE, "largest allocation"),
];
/// The times of an event.
pub(super) const TIMES: [cl_profiling_info; 5] = [
    CL_PROFILING_COMMAND_QUEUED,
    CL_PROFILING_COMMAND_SUBMIT,
    CL_PROFILING_COMMAND_START,
    CL_PROFILING_COMMAND_END,
    CL_PROFILING_COMMAND_COMPLETE,
];

/// How long calls are held back at first while commands end.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// How long they are let go on then.
const BREAK: Duration = Duration::from_millis(5);
/// Events whose times are asked for before an answer is waited for.
const ASKED_TOGETHER: usize = 200;

impl Remote {
    /// Makes the session again on the server of `fresh`, a session that has just begun: later calls go there, every handle stays
    /// valid, and the session so far ends. Commands that are still running get `patience` to end. In case of an error nothing has
    /// changed, and `fresh` has ended.
    ///
    /// Devices go on telling what they told before: they must be alike for this to be allowed.
    pub fn rebuild(&self, fresh: Remote, patience: Duration) -> Result<(), RebuildError> {
        self.rebuild_and(fresh, patience, || false)
    }

    /// As [`Self::rebuild`]. `leave` says goodbye to the server so far, once calls go to the other one, and whether that has been heard.
    pub(super) fn rebuild_and(
        &self,
        fresh: Remote,
        patience: Duration,
        leave: impl FnOnce() -> bool,
    ) -> Result<(), RebuildError> {
        let link = Arc::clone(self.link());
        self.alive(&link)?;
        // Obstacles that show before anything stops.
        self.movable()?;
        self.match_devices(&fresh)?;
        let began = Instant::now();
        let alone = self.stop(patience)?;
        let stopped = Instant::now();
        if fresh.link().minted() != Link::FIRST_NUMBER {
            return Err(RebuildError::Used(fresh.server().into()));
        }
        self.movable()?;
        let times = self.times_of_events()?;
        self.make_all(&fresh)?;
        self.move_contents(&fresh)?;
        fresh.accepted()?;
        self.alive(&link)?;
        self.take_over(fresh, times);
        drop(alone);
        log::info!(
            "the session with {} moved to {}: {:.3} s until calls paused, and {:.3} s more until they went on",
            link.name(),
            self.server(),
            (stopped - began).as_secs_f64(),
            stopped.elapsed().as_secs_f64()
        );
        if !leave() {
            let _ = link.post(&wire::Goodbye { reason: 0 });
            link.flush();
        }
        link.end("the session moved to another server".into());
        link.clear();
        Ok(())
    }

    /// Bytes of this process's memory that making the session again takes. Arguments of kernels, which launches need anyway, count.
    pub fn kept_bytes(&self) -> usize {
        let mut seen = std::collections::HashSet::new();
        let programs = self.programs.read().unwrap_or_else(PoisonError::into_inner);
        let kernels = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        let makings = programs
            .values()
            .map(|program| lock(&program.making).bytes(&mut seen));
        let kernels = kernels.values().map(|kernel| lock(kernel).kept_bytes());
        let events = self.link().state().events.capacity() * size_of::<(u64, Event)>();
        self.recipes.bytes() + makings.sum::<usize>() + kernels.sum::<usize>() + events
    }

    fn alive(&self, link: &Link) -> Result<(), RebuildError> {
        match link.lost() {
            None => Ok(()),
            Some(reason) => Err(RebuildError::Lost {
                server: link.name().into(),
                reason: reason.into(),
            }),
        }
    }

    /// What a status of this session says to who moves it.
    fn refused(&self, what: &'static str, status: cl_int) -> RebuildError {
        match self.alive(self.link()) {
            Err(lost) => lost,
            Ok(()) => RebuildError::Refused {
                server: self.server().into(),
                what,
                status: wire::status_name(status).map_or_else(|| status.to_string(), String::from),
            },
        }
    }

    fn expect(&self, what: &'static str, status: cl_int) -> Result<(), RebuildError> {
        match status {
            CL_SUCCESS => Ok(()),
            status => Err(self.refused(what, status)),
        }
    }

    /// Posts a recipe as it is.
    fn repeat(&self, recipe: &Recipe) -> Result<(), RebuildError> {
        let post = |batch: &mut Batch<'_>| {
            batch.post(recipe.request, |out| out.extend_from_slice(&recipe.body));
        };
        let posted = self.link().post_batch(post);
        posted.map_err(|status| self.refused("an object", status))
    }

    fn send<'a, R: Request<'a>>(
        &self,
        what: &'static str,
        request: &R,
    ) -> Result<(), RebuildError> {
        self.post(request)
            .map_err(|status| self.refused(what, status))
    }

    fn movable(&self) -> Result<(), RebuildError> {
        if !lock(&self.svm).is_empty() {
            let why = "it has shared virtual memory, whose addresses belong to the server";
            return Err(RebuildError::Unmovable(why));
        }
        if self.recipes.any_pipe_used() {
            let why = "a kernel was given a pipe, and what a pipe holds cannot be read";
            return Err(RebuildError::Unmovable(why));
        }
        let programs = self.programs.read().unwrap_or_else(PoisonError::into_inner);
        let mut programs = programs.values();
        if programs.any(|program| matches!(*lock(&program.making).origin, Origin::Forgotten)) {
            let why = "a program was linked through more generations than are kept";
            return Err(RebuildError::Unmovable(why));
        }
        Ok(())
    }

    /// Makes everything there but contents.
    fn make_all(&self, fresh: &Self) -> Result<(), RebuildError> {
        let names = self.match_devices(fresh)?;
        // Objects made there from now on have numbers that nothing has here.
        fresh.link().count_from(self.link().minted());
        fresh.name_devices(names)?;
        self.make_objects(fresh)?;
        self.make_programs(fresh)?;
        self.make_kernels(fresh)?;
        self.make_events(fresh)?;
        fresh.accepted()
    }

    /// The other server's devices in the order of ours, then those that stand for none.
    fn match_devices(&self, fresh: &Self) -> Result<Vec<(u64, Option<u64>)>, RebuildError> {
        let mut theirs: Vec<_> = fresh.snapshot.devices.iter().collect();
        let mut names = Vec::new();
        for ours in &self.snapshot.devices {
            let alike = |device: &&towline_wire::snapshot::Device| {
                let same = |query| match query {
                    // A promise to the program, which must go on to hold.
                    CL_DEVICE_MAX_MEM_ALLOC_SIZE => {
                        device.answers.number(query) >= ours.answers.number(query)
                    }
                    _ => device.answers.get(query) == ours.answers.get(query),
                };
                SAME.iter().take_while(|(query, _)| same(*query)).count()
            };
            let closest = theirs
                .iter()
                .enumerate()
                .max_by_key(|(index, device)| (alike(device), std::cmp::Reverse(*index)));
            let found = closest.map(|(index, device)| (index, *device, alike(device)));
            match found {
                Some((index, device, count)) if count == SAME.len() => {
                    names.push((device.handle, Some(ours.handle)));
                    theirs.remove(index);
                }
                found => {
                    let count = found.map_or(0, |(.., count)| count);
                    let (query, text) = SAME[count.min(SAME.len() - 1)];
                    let say = |device: &towline_wire::snapshot::Device| {
                        let number = || device.answers.number(query).map(|size| size.to_string());
                        match query {
                            CL_DEVICE_MAX_MEM_ALLOC_SIZE => number(),
                            _ => device.answers.text(query).map(|text| format!("'{text}'")),
                        }
                        .unwrap_or_else(|| "not told".into())
                    };
                    return Err(RebuildError::Device {
                        server: fresh.server().into(),
                        device: ours.answers.text(CL_DEVICE_NAME).unwrap_or_default(),
                        query: text,
                        ours: say(ours),
                        theirs: found.map_or("no device".into(), |(_, device, _)| say(device)),
                    });
                }
            }
        }
        names.extend(theirs.into_iter().map(|device| (device.handle, None)));
        Ok(names)
    }

    /// Has the server call its devices by these numbers, and those without one by new ones.
    fn name_devices(&self, names: Vec<(u64, Option<u64>)>) -> Result<(), RebuildError> {
        let changed = |(device, name): &(u64, Option<u64>)| *name != Some(*device);
        if !names.iter().any(changed) {
            return Ok(());
        }
        let (devices, names): (Vec<_>, Vec<u64>) = names
            .into_iter()
            .map(|(device, name)| {
                let name = name.unwrap_or_else(|| self.mint(wire::DeviceHandle::TAG));
                (wire::DeviceHandle(device), name)
            })
            .unzip();
        let request = wire::NameDevices {
            num_devices: devices.len() as u32,
            devices: wire::List::Values(&devices),
            names: wire::List::Values(&names),
        };
        self.send("its devices' numbers", &request)
    }

    /// Holds calls back when every command has ended. A command may wait for what a later call does, so they are let go on in between.
    fn stop(&self, patience: Duration) -> Result<RwLockWriteGuard<'_, ()>, RebuildError> {
        let deadline = Instant::now() + patience;
        let mut wait = FIRST_WAIT;
        loop {
            let left = || deadline.saturating_duration_since(Instant::now());
            let alone = self.calls.stop(left());
            let alone = alone.ok_or(RebuildError::Busy("calls are under way"))?;
            match self.quiesce(wait.min(left())) {
                Ok(()) => return Ok(alone),
                Err(RebuildError::Busy(_)) if !left().is_zero() => drop(alone),
                Err(error) => return Err(error),
            }
            std::thread::sleep(BREAK);
            wait *= 2;
        }
    }

    /// Waits until every command has ended and all data has arrived.
    fn quiesce(&self, patience: Duration) -> Result<(), RebuildError> {
        // Minting an event may look at recipes, which cannot be done while they are gone through.
        let mut queues = Vec::new();
        self.recipes.in_order(|id, recipe, _| {
            let is_queue = tag(id) == wire::CommandQueueHandle::TAG;
            if is_queue && queue_properties(recipe) & CL_QUEUE_ON_DEVICE == 0 {
                queues.push(id);
            }
            Ok::<(), RebuildError>(())
        })?;
        let mut markers = Vec::new();
        let marked = queues.into_iter().try_for_each(|id| {
            let event = self.mint_event(id);
            markers.push(event);
            let command_queue = wire::CommandQueueHandle(id);
            let marker = wire::EnqueueMarkerWithWaitList {
                command_queue,
                num_events_in_wait_list: 0,
                event_wait_list: None,
                event: Some(event),
            };
            self.send("a marker", &marker)?;
            self.send("a flush", &wire::Flush { command_queue })
        });
        let quiet = marked.and_then(|()| {
            self.link().flush();
            let quiet = self.link().wait_at_most(patience, |state| {
                let ended = state
                    .events
                    .values()
                    .all(|event| event.user || event.status.is_some());
                (ended && state.is_quiet()).then_some(())
            });
            match quiet {
                Ok(Some(())) => Ok(()),
                Ok(None) => Err(RebuildError::Busy("commands have not ended")),
                Err(status) => Err(self.refused("a wait", status)),
            }
        });
        for marker in markers {
            self.release_event(marker.to_raw());
        }
        quiet
    }

    /// What the server knows of when commands ran, for events of queues that keep it.
    fn times_of_events(&self) -> Result<EventTimes, RebuildError> {
        let link = self.link();
        let ended: Vec<(u64, u64)> = {
            let state = link.state();
            let ended = state.events.iter().filter(|(_, event)| !event.user);
            ended.map(|(id, event)| (*id, event.origin)).collect()
        };
        let profiles = |queue: u64| {
            let bits = self.recipes.with(queue, queue_properties);
            bits.unwrap_or_default() & CL_QUEUE_PROFILING_ENABLE != 0
        };
        let mut times = lock(&self.times).clone();
        let mut unknown: Vec<_> = ended
            .into_iter()
            .filter(|(event, queue)| !times.contains_key(event) && profiles(*queue))
            .map(|(event, _)| event)
            .collect();
        while !unknown.is_empty() {
            let batch = unknown.split_off(unknown.len().saturating_sub(ASKED_TOGETHER));
            let requests = batch
                .iter()
                .flat_map(|&event| TIMES.map(|name| (event, name)));
            let asked: Vec<_> = requests
                .map(|(event, name)| (event, name, link.ask_only(&times_request(event, name))))
                .collect();
            // Every answer is taken, whatever became of the others: what is left would stand in the way of later calls.
            let answers: Vec<_> = asked
                .into_iter()
                .map(|(event, name, number)| {
                    let number = number?;
                    let reply = link.wait_reply(number, tuning().spin_for_answer)?;
                    // A time that the device does not know is not known afterwards either.
                    let time = (reply.status == CL_SUCCESS).then(|| self.time_in(&reply.body));
                    Ok((event, name, time.transpose()?))
                })
                .collect();
            for answer in answers {
                let (event, name, time) =
                    answer.map_err(|status| self.refused("an event's times", status))?;
                let known = times.entry(event).or_default();
                known.extend(time.map(|time| (name, time)));
            }
        }
        Ok(times)
    }

    /// Makes contexts, queues, memory objects, samplers and parts of devices.
    fn make_objects(&self, fresh: &Self) -> Result<(), RebuildError> {
        self.recipes.in_order(|first, recipe, partition| {
            let Some(partition) = partition else {
                return fresh.repeat(recipe);
            };
            let request: Option<wire::PartitionDevice<'_>> = recipe.read();
            let Some(request) = request else {
                return Ok(());
            };
            let what = "the parts of a device";
            let body = fresh
                .call_for("clCreateSubDevices", &request)
                .map_err(|status| fresh.refused(what, status))?;
            let made = wire::PartitionDeviceReply::decode(&body).map(|reply| reply.count);
            if made != Ok(partition.made) {
                return Err(fresh.refused(what, CL_DEVICE_PARTITION_FAILED));
            }
            for device in first..first + partition.made.min(request.room.into()) {
                if !partition.live.contains(&device) {
                    let device = wire::DeviceHandle(device);
                    fresh.send(what, &wire::ReleaseDevice { device })?;
                }
            }
            Ok(())
        })?;
        for ((context, device), queue) in self.recipes.defaults() {
            let request = wire::SetDefaultDeviceCommandQueue {
                context: wire::ContextHandle(context),
                device: wire::DeviceHandle(device),
                command_queue: wire::CommandQueueHandle(queue),
            };
            fresh.send("a default queue", &request)?;
        }
        Ok(())
    }

    fn make_kernels(&self, fresh: &Self) -> Result<(), RebuildError> {
        let kernels = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        let mut kernels: Vec<_> = kernels.iter().collect();
        kernels.sort_unstable_by_key(|(id, _)| **id);
        for (id, kernel) in kernels {
            let kernel = lock(kernel);
            let Some(creation) = kernel.creation(*id) else {
                continue;
            };
            fresh.send("a kernel", &creation)?;
            let lives = |object: u64| self.recipes.with(object, |_| ()).is_some();
            for setting in kernel.settings(*id, lives) {
                fresh.send("an argument of a kernel", &setting)?;
            }
            for hint in kernel.hints(*id) {
                let given = fresh.call_for("clSetKernelExecInfo", &hint);
                given.map_err(|status| fresh.refused("a kernel's execution hint", status))?;
            }
        }
        Ok(())
    }

    /// Live events: number, context, status.
    fn events(&self) -> Result<Vec<(u64, u64, Option<cl_int>)>, RebuildError> {
        let known: Vec<(u64, u64, Option<cl_int>)> = {
            let state = self.link().state();
            let live = state.events.iter().filter(|(_, event)| !event.released);
            live.map(|(id, event)| (*id, event.origin, event.status))
                .collect()
        };
        let with_context = |(id, origin, status)| {
            let context = match tag(origin) {
                wire::ContextHandle::TAG => Some(origin),
                _ => self.recipes.with(origin, queue_context).flatten(),
            };
            let why = "the queue of an event has ended before the event";
            let context = context.ok_or(RebuildError::Unmovable(why))?;
            Ok((id, context, status))
        };
        known.into_iter().map(with_context).collect()
    }

    /// Events become user events there: what waits for one, or asks for its status, finds it as it is here.
    fn make_events(&self, fresh: &Self) -> Result<(), RebuildError> {
        for (id, context, status) in self.events()? {
            let (event, context) = (wire::EventHandle(id), wire::ContextHandle(context));
            let request = wire::CreateUserEvent {
                context,
                created: event,
            };
            fresh.send("an event", &request)?;
            if let Some(status) = status {
                let request = wire::SetUserEventStatus {
                    event,
                    execution_status: status.min(CL_COMPLETE),
                };
                fresh.send("an event's status", &request)?;
            }
        }
        Ok(())
    }

    /// Waits until the server has made all that was posted; a failure among it is one of the whole.
    fn accepted(&self) -> Result<(), RebuildError> {
        let answered = self.link().measure(&wire::Ping { token: 0 });
        answered.map_err(|status| self.refused("an object", status))?;
        let failed = self.link().state().failures.values().next().copied();
        match failed {
            Some(status) => Err(self.refused("an object", status)),
            None => Ok(()),
        }
    }

    /// Calls go to the other server from now on. Nothing here can fail.
    fn take_over(&self, fresh: Remote, times: EventTimes) {
        let new = Arc::clone(fresh.link());
        *lock(&self.times) = times;
        let kernels = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        kernels.values().for_each(|kernel| lock(kernel).settled());
        // The other session's numbers are above ours already: both count on from one place.
        fresh.given_up.store(true, Ordering::Relaxed);
        self.links.go_on(new, fresh.control().cloned());
    }
}

/// Times of ended events: query and answer.
type EventTimes = HashMap<u64, Vec<(cl_profiling_info, u64)>>;

/// The property bits that a queue was made with.
pub(super) fn queue_properties(recipe: &Recipe) -> u64 {
    if let Some(made) = recipe.read::<wire::CreateCommandQueue>() {
        return made.properties;
    }
    let made: Option<wire::CreateCommandQueueWithProperties<'_>> = recipe.read();
    let list: Vec<u64> = made
        .and_then(|made| made.properties)
        .map(|list| list.iter().collect())
        .unwrap_or_default();
    let bits = list
        .as_chunks::<2>()
        .0
        .iter()
        .find(|pair| pair[0] == u64::from(CL_QUEUE_PROPERTIES));
    bits.map_or(0, |pair| pair[1])
}

fn queue_context(recipe: &Recipe) -> Option<u64> {
    if let Some(made) = recipe.read::<wire::CreateCommandQueue>() {
        return Some(made.context.0);
    }
    let made: Option<wire::CreateCommandQueueWithProperties<'_>> = recipe.read();
    made.map(|made| made.context.0)
}
