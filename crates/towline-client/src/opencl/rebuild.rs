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

use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::time::Duration;

use towline_session::Batch;

use super::event::times_request;
use super::program::ROOM;
use super::recipe::{Making, Origin, Recipe, Step, tag};
use super::transfer::{Command, Host, Place, shape};
use super::*;

/// Largest piece of contents that the client holds.
const PIECE: usize = 16 << 20;
/// Device queries whose answers must be the same on both servers.
const SAME: [(cl_device_info, &str); 5] = [
    (CL_DEVICE_NAME, "name"),
    (CL_DEVICE_VENDOR, "vendor"),
    (CL_DEVICE_VERSION, "version"),
    (CL_DRIVER_VERSION, "driver version"),
    (CL_DEVICE_MAX_MEM_ALLOC_SIZE, "largest allocation"),
];
/// The times of an event.
const TIMES: [cl_profiling_info; 5] = [
    CL_PROFILING_COMMAND_QUEUED,
    CL_PROFILING_COMMAND_SUBMIT,
    CL_PROFILING_COMMAND_START,
    CL_PROFILING_COMMAND_END,
    CL_PROFILING_COMMAND_COMPLETE,
];

/// Why a session stayed where it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RebuildError {
    /// Something is still going on.
    #[error("the session is not idle: {0}")]
    Busy(&'static str),
    /// The other server has no such device.
    #[error(
        "{server} has no device to stand for {device}: its {query} is {theirs}, and should be {ours}"
    )]
    Device {
        /// The other server.
        server: String,
        /// The device's name here.
        device: String,
        /// What differs.
        query: &'static str,
        /// The answer here.
        ours: String,
        /// The answer of the device there that comes closest, or "no device".
        theirs: String,
    },
    /// A session has ended: this one or the new one.
    #[error("the session with {server} has ended: {reason}")]
    Lost {
        /// Its server.
        server: String,
        /// Why.
        reason: String,
    },
    /// A server refused something.
    #[error("{server} refused {what} ({status})")]
    Refused {
        /// The server.
        server: String,
        /// What was asked of it.
        what: &'static str,
        /// Its answer, by name where it has one.
        status: String,
    },
    /// It cannot be made again elsewhere.
    #[error("the session cannot move: {0}")]
    Unmovable(&'static str),
    /// The session given to take its place was used before.
    #[error("the session with {0} is not new")]
    Used(String),
}

/// Contents of one memory object.
enum Contents {
    Bytes(usize),
    Texels { region: [usize; 3], element: usize },
}

/// A memory object whose contents move.
struct Moved {
    mem: u64,
    context: u64,
    flags: u64,
    contents: Contents,
}

impl Remote {
    /// Makes the session again on the server of `fresh`, a session that has just begun: later calls go there, every handle stays
    /// valid, and the session so far ends. Commands that are still running get `patience` to end. In case of an error nothing has
    /// changed, and `fresh` has ended.
    ///
    /// Devices go on telling what they told before: they must be alike for this to be allowed.
    pub fn rebuild(&self, fresh: Remote, patience: Duration) -> Result<(), RebuildError> {
        let _alone = self
            .calls
            .try_write()
            .map_err(|_| RebuildError::Busy("a call is under way"))?;
        let link = Arc::clone(self.link());
        self.alive(&link)?;
        if fresh.link().minted() != Link::FIRST_NUMBER {
            return Err(RebuildError::Used(fresh.server().into()));
        }
        self.movable()?;
        let names = self.match_devices(&fresh)?;
        self.quiesce(patience)?;
        let times = self.times_of_events()?;
        // What is made there from now on has numbers that nothing has here.
        fresh.link().count_from(link.minted());
        fresh.name_devices(names)?;
        self.make_objects(&fresh)?;
        self.make_programs(&fresh)?;
        self.make_kernels(&fresh)?;
        self.make_events(&fresh)?;
        fresh.accepted()?;
        self.move_contents(&fresh)?;
        fresh.accepted()?;
        self.alive(&link)?;
        self.take_over(&link, fresh, times);
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
        Ok(())
    }

    /// The other server's devices in the order of ours, then those that stand for none.
    fn match_devices(&self, fresh: &Self) -> Result<Vec<(u64, Option<u64>)>, RebuildError> {
        let mut theirs: Vec<_> = fresh.snapshot.devices.iter().collect();
        let mut names = Vec::new();
        for ours in &self.snapshot.devices {
            let alike = |device: &&towline_wire::snapshot::Device| {
                let same = |query| device.answers.get(query) == ours.answers.get(query);
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

    /// Waits until every command has ended and all data has arrived.
    fn quiesce(&self, patience: Duration) -> Result<(), RebuildError> {
        let mut markers = Vec::new();
        let marked = self.recipes.in_order(|id, recipe, _| {
            if tag(id) != wire::CommandQueueHandle::TAG
                || queue_properties(recipe) & CL_QUEUE_ON_DEVICE != 0
            {
                return Ok(());
            }
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
        let mut asked = Vec::new();
        for (event, queue) in ended {
            if times.contains_key(&event) || !profiles(queue) {
                continue;
            }
            for name in TIMES {
                let number = link.ask_only(&times_request(event, name));
                let number = number.map_err(|status| self.refused("an event's times", status))?;
                asked.push((event, name, number));
            }
        }
        for (event, name, number) in asked {
            let reply = link.wait_reply(number);
            let reply = reply.map_err(|status| self.refused("an event's times", status))?;
            let known = times.entry(event).or_default();
            // A time that the device does not know is not known afterwards either.
            if reply.status == CL_SUCCESS {
                let time = self.time_in(&reply.body);
                let time = time.map_err(|status| self.refused("an event's times", status))?;
                known.push((name, time));
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

    /// Makes programs: first all that were given, since others include them, then what was done to them, then what was linked.
    fn make_programs(&self, fresh: &Self) -> Result<(), RebuildError> {
        let mut live: Vec<(u64, Arc<Program>, Making)> = {
            let programs = self.programs.read().unwrap_or_else(PoisonError::into_inner);
            let copy = |(id, program): (&u64, &Arc<Program>)| {
                (*id, Arc::clone(program), lock(&program.making).clone())
            };
            programs.iter().map(copy).collect()
        };
        live.sort_unstable_by_key(|(id, ..)| *id);
        let mut shop = Workshop {
            fresh,
            live: live
                .iter()
                .map(|(id, _, making)| (*id, making.clone()))
                .collect(),
            borrowed: Vec::new(),
        };
        let given = |making: &Making| matches!(&*making.origin, Origin::Given { .. });
        for (id, _, making) in live.iter().filter(|(.., making)| given(making)) {
            shop.begin(*id, making)?;
        }
        let (given, linked): (Vec<_>, Vec<_>) = live.iter().partition(|(.., making)| given(making));
        for (id, program, making) in given {
            let facts = shop.steps(*id, making)?;
            fresh.same_kernels(program, facts)?;
        }
        for (id, program, making) in linked {
            let first = shop.begin(*id, making)?;
            let facts = shop.steps(*id, making)?.or(first);
            fresh.same_kernels(program, facts)?;
        }
        shop.clean_up()
    }

    /// Kernels keep what is known of their arguments, so a build that gave others is refused.
    fn same_kernels(&self, program: &Program, made: Option<Facts>) -> Result<(), RebuildError> {
        let known = lock(&program.facts).clone();
        let shape = |facts: &Facts| {
            let kernel =
                |kernel: &towline_wire::facts::Kernel| (kernel.name.clone(), kernel.num_args);
            let mut list: Vec<_> = facts.kernels.iter().map(kernel).collect();
            list.sort_unstable();
            list
        };
        match (known, made) {
            (Some(known), Some(made)) if shape(&known) != shape(&made) => Err(self.refused(
                "a program with the same kernels",
                CL_INVALID_KERNEL_DEFINITION,
            )),
            _ => Ok(()),
        }
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

    /// Events become user events there: what waits for one, or asks for its status, finds it as it is here.
    fn make_events(&self, fresh: &Self) -> Result<(), RebuildError> {
        let known: Vec<(u64, u64, Option<cl_int>)> = {
            let state = self.link().state();
            let live = state.events.iter().filter(|(_, event)| !event.released);
            live.map(|(id, event)| (*id, event.origin, event.status))
                .collect()
        };
        for (id, origin, status) in known {
            let context = match tag(origin) {
                wire::ContextHandle::TAG => Some(origin),
                _ => self.recipes.with(origin, queue_context).flatten(),
            };
            let Some(context) = context else {
                let why = "the queue of an event has ended before the event";
                return Err(RebuildError::Unmovable(why));
            };
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

    /// Reads the contents of buffers and images here and writes them there.
    fn move_contents(&self, fresh: &Self) -> Result<(), RebuildError> {
        let mut moved = Vec::new();
        let mut devices = HashMap::new();
        self.recipes.in_order(|id, recipe, _| {
            let context: Option<wire::CreateContext<'_>> = recipe.read();
            if let Some(device) = context.and_then(|context| context.devices.iter().next()) {
                devices.insert(id, device);
            }
            moved.extend(self.contents(id, recipe)?);
            Ok::<_, RebuildError>(())
        })?;
        let mut piece = Vec::new();
        let mut contexts: HashMap<u64, (Ferry<'_>, Ferry<'_>)> = HashMap::new();
        for object in moved {
            let (from, to) = match contexts.entry(object.context) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let Some(device) = devices.get(&object.context) else {
                        let why = "the context of a memory object has ended before the object";
                        return Err(RebuildError::Unmovable(why));
                    };
                    let from = Ferry::open(self, object.context, *device)?;
                    let to = Ferry::open(fresh, object.context, *device)?;
                    new.insert((from, to))
                }
            };
            object.pieces(|place| {
                let size = place.size();
                piece.resize(piece.len().max(size), 0);
                from.read(&object, place, &mut piece[..size])?;
                to.write(&object, place, &piece[..size])
            })?;
        }
        contexts
            .into_values()
            .try_for_each(|(from, to)| from.close().and(to.close()))
    }

    /// The contents that move with an object; parts of buffers and images of buffers have none of their own.
    fn contents(&self, mem: u64, recipe: &Recipe) -> Result<Option<Moved>, RebuildError> {
        let image = |context: wire::ContextHandle, flags, desc: wire::ImageDesc| {
            if desc.mem_object.0 != 0 {
                return Ok(None);
            }
            if desc.num_mip_levels > 1 || desc.num_samples > 1 {
                let why = "it has images of several levels or samples";
                return Err(RebuildError::Unmovable(why));
            }
            let element = lock(&self.images)
                .get(&mem)
                .map_or(1, |image| image.element);
            Ok(Some(Moved {
                mem,
                context: context.0,
                flags,
                contents: Contents::Texels {
                    region: region(&desc),
                    element,
                },
            }))
        };
        let buffer = |context: wire::ContextHandle, flags, size: u64| {
            Ok(Some(Moved {
                mem,
                context: context.0,
                flags,
                contents: Contents::Bytes(size as usize),
            }))
        };
        if let Some(made) = recipe.read::<wire::CreateBuffer<'_>>() {
            return buffer(made.context, made.flags, made.size);
        }
        if let Some(made) = recipe.read::<wire::CreateBufferWithProperties<'_>>() {
            return buffer(made.context, made.flags, made.size);
        }
        if let Some(made) = recipe.read::<wire::CreateImage>() {
            return image(made.context, made.flags, made.image_desc);
        }
        if let Some(made) = recipe.read::<wire::CreateImageWithProperties<'_>>() {
            return image(made.context, made.flags, made.image_desc);
        }
        Ok(None)
    }

    /// Calls go to the other server from now on. Nothing here can fail.
    fn take_over(&self, link: &Arc<Link>, fresh: Remote, times: EventTimes) {
        let new = Arc::clone(fresh.link());
        let waiting = {
            let (mut old, mut next) = (link.state(), new.state());
            next.events = std::mem::take(&mut old.events);
            next.failures = std::mem::take(&mut old.failures);
            next.events
                .values()
                .map(|event| event.callbacks.len())
                .sum::<usize>()
        };
        for _ in 0..waiting {
            new.raise_interest();
        }
        new.meter.add(&link.meter);
        *lock(&self.times) = times;
        let kernels = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        kernels.values().for_each(|kernel| lock(kernel).settled());
        // The other session's numbers are above ours already: both count on from one place.
        fresh.given_up.store(true, Ordering::Relaxed);
        log::info!("the session with {} moved to {}", link.name(), new.name());
        let control = fresh.control().cloned();
        let _ = self
            .links
            .last()
            .next
            .set(Box::new(Links::new(new, control)));
        let _ = link.post(&wire::Goodbye { reason: 0 });
        link.flush();
        link.end("the session moved to another server".into());
        link.clear();
    }
}

/// Times of ended events: query and answer.
type EventTimes = HashMap<u64, Vec<(cl_profiling_info, u64)>>;

/// The property bits that a queue was made with.
fn queue_properties(recipe: &Recipe) -> u64 {
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

/// The whole of an image.
fn region(desc: &wire::ImageDesc) -> [usize; 3] {
    let (height, depth) = match desc.image_type {
        CL_MEM_OBJECT_IMAGE1D_ARRAY => (desc.image_array_size, 1),
        CL_MEM_OBJECT_IMAGE2D => (desc.image_height, 1),
        CL_MEM_OBJECT_IMAGE2D_ARRAY => (desc.image_height, desc.image_array_size),
        CL_MEM_OBJECT_IMAGE3D => (desc.image_height, desc.image_depth),
        _ => (1, 1),
    };
    [desc.image_width, height, depth].map(|side| side as usize)
}

impl Moved {
    /// Cuts the contents into pieces that the client can hold.
    fn pieces(
        &self,
        mut with: impl FnMut(Place) -> Result<(), RebuildError>,
    ) -> Result<(), RebuildError> {
        match self.contents {
            Contents::Bytes(size) => {
                for offset in (0..size).step_by(PIECE) {
                    with(Place::linear(offset, PIECE.min(size - offset)))?;
                }
            }
            Contents::Texels { region, element } => {
                let [width, height, depth] = region;
                let rows = (PIECE / (width * element).max(1)).clamp(1, height.max(1));
                for z in 0..depth {
                    for y in (0..height).step_by(rows) {
                        with(Place {
                            shape: shape::IMAGE,
                            origin: [0, y, z],
                            region: [width, rows.min(height - y), 1],
                            element,
                            ..Place::linear(0, 0)
                        })?;
                    }
                }
            }
        }
        Ok(())
    }

    fn host_cannot(&self, forbidden: cl_mem_flags) -> bool {
        self.flags & (forbidden | CL_MEM_HOST_NO_ACCESS) != 0
    }
}

/// What moves contents between the client and one server: a queue of its own, and a buffer for objects that the host may not touch.
struct Ferry<'a> {
    session: &'a Remote,
    context: u64,
    queue: wire::CommandQueueHandle,
    between: Option<(wire::MemHandle, usize)>,
}

impl<'a> Ferry<'a> {
    fn open(
        session: &'a Remote,
        context: u64,
        device: wire::DeviceHandle,
    ) -> Result<Self, RebuildError> {
        let queue = wire::CommandQueueHandle(session.mint(wire::CommandQueueHandle::TAG));
        let request = wire::CreateCommandQueue {
            context: wire::ContextHandle(context),
            device,
            properties: 0,
            created: queue,
        };
        session.send("a queue", &request)?;
        Ok(Self {
            session,
            context,
            queue,
            between: None,
        })
    }

    /// A buffer of at least this size.
    fn between(&mut self, size: usize) -> Result<wire::MemHandle, RebuildError> {
        if let Some((buffer, room)) = self.between {
            if room >= size {
                return Ok(buffer);
            }
            let request = wire::ReleaseMemObject { memobj: buffer };
            self.session.send("a buffer", &request)?;
        }
        let created = wire::MemHandle(self.session.mint(wire::MemHandle::TAG));
        let request = wire::CreateBuffer {
            context: wire::ContextHandle(self.context),
            flags: CL_MEM_READ_WRITE,
            size: size as u64,
            host_ptr: None,
            created,
        };
        self.session.send("a buffer", &request)?;
        self.between = Some((created, size));
        Ok(created)
    }

    fn command(&self, mem: wire::MemHandle) -> Command<'static> {
        Command {
            call: "rebuild",
            queue: self.queue.to_raw(),
            mem: mem.to_raw(),
            blocking: true,
            waits: &[],
            event: std::ptr::null_mut(),
        }
    }

    /// Copies between an object and the buffer on the device; `out` is towards the buffer.
    fn copy(
        &self,
        object: &Moved,
        place: Place,
        between: wire::MemHandle,
        out: bool,
    ) -> Result<(), RebuildError> {
        let (mem, command_queue) = (wire::MemHandle(object.mem), self.queue);
        let origin = place.origin.map(|value| value as u64);
        let region = place.region.map(|value| value as u64);
        let what = "a copy on the device";
        match (&object.contents, out) {
            (Contents::Bytes(_), _) => {
                let ((from, at), (to, to_at)) = match out {
                    true => ((mem, origin[0]), (between, 0)),
                    false => ((between, 0), (mem, origin[0])),
                };
                let request = wire::EnqueueCopyBuffer {
                    command_queue,
                    src_buffer: from,
                    dst_buffer: to,
                    src_offset: at,
                    dst_offset: to_at,
                    size: region[0],
                    num_events_in_wait_list: 0,
                    event_wait_list: None,
                    event: None,
                };
                self.session.send(what, &request)
            }
            (Contents::Texels { .. }, true) => {
                let request = wire::EnqueueCopyImageToBuffer {
                    command_queue,
                    src_image: mem,
                    dst_buffer: between,
                    src_origin: wire::List::Values(&origin),
                    region: wire::List::Values(&region),
                    dst_offset: 0,
                    num_events_in_wait_list: 0,
                    event_wait_list: None,
                    event: None,
                };
                self.session.send(what, &request)
            }
            (Contents::Texels { .. }, false) => {
                let request = wire::EnqueueCopyBufferToImage {
                    command_queue,
                    src_buffer: between,
                    dst_image: mem,
                    src_offset: 0,
                    dst_origin: wire::List::Values(&origin),
                    region: wire::List::Values(&region),
                    num_events_in_wait_list: 0,
                    event_wait_list: None,
                    event: None,
                };
                self.session.send(what, &request)
            }
        }
    }

    fn read(&mut self, object: &Moved, place: Place, to: &mut [u8]) -> Result<(), RebuildError> {
        let host = packed(&place, to.as_mut_ptr());
        let (mem, place) = if object.host_cannot(CL_MEM_HOST_WRITE_ONLY) {
            let between = self.between(to.len())?;
            self.copy(object, place, between, true)?;
            (between, Place::linear(0, to.len()))
        } else {
            (wire::MemHandle(object.mem), place)
        };
        let status = self.session.read(&self.command(mem), place, host);
        self.session.expect("a read of contents", status)
    }

    fn write(&mut self, object: &Moved, place: Place, from: &[u8]) -> Result<(), RebuildError> {
        let host = packed(&place, from.as_ptr().cast_mut());
        let hidden = object.host_cannot(CL_MEM_HOST_READ_ONLY);
        let (mem, there) = if hidden {
            (self.between(from.len())?, Place::linear(0, from.len()))
        } else {
            (wire::MemHandle(object.mem), place)
        };
        let status = self.session.write(&self.command(mem), there, host);
        self.session.expect("a write of contents", status)?;
        if hidden {
            self.copy(object, place, mem, false)?;
        }
        Ok(())
    }

    fn close(self) -> Result<(), RebuildError> {
        let status = self.session.finish(self.queue.to_raw());
        self.session.expect("a copy of contents", status)?;
        if let Some((memobj, _)) = self.between {
            self.session
                .send("a buffer", &wire::ReleaseMemObject { memobj })?;
        }
        let command_queue = self.queue;
        self.session
            .send("a queue", &wire::ReleaseCommandQueue { command_queue })
    }
}

fn packed(place: &Place, start: *mut u8) -> Host {
    let row_pitch = place.region[0] * place.element;
    Host {
        start,
        row_pitch,
        slice_pitch: row_pitch * place.region[1],
    }
}

/// Makes programs on the other server, with those that they were made from.
struct Workshop<'a> {
    fresh: &'a Remote,
    live: Vec<(u64, Making)>,
    /// Programs that were only needed to make others.
    borrowed: Vec<u64>,
}

impl Workshop<'_> {
    /// Makes a program up to where its steps begin.
    fn begin(&mut self, id: u64, making: &Making) -> Result<Option<Facts>, RebuildError> {
        let created = wire::ProgramHandle(id);
        match &*making.origin {
            Origin::Given { request, body } => self.give(*request, body, created).map(|()| None),
            Origin::Linked {
                context,
                devices,
                options,
                inputs,
                status,
                ..
            } => {
                let mut programs = Vec::new();
                for (number, input) in inputs {
                    programs.push(wire::ProgramHandle(self.find(*number, input)?));
                }
                let request = wire::Link {
                    context: wire::ContextHandle(*context),
                    num_devices: devices.count(),
                    devices: devices.list(),
                    options: options.as_deref(),
                    num_programs: programs.len() as u32,
                    programs: (!programs.is_empty()).then_some(wire::List::Values(&programs)),
                    room: ROOM,
                    created,
                };
                let reply = self.fresh.link().ask("clLinkProgram", &request);
                let reply = reply.map_err(|status| self.fresh.refused("a link", status))?;
                if reply.status != *status {
                    return Err(self.fresh.refused("a link", reply.status));
                }
                let reply = wire::LinkReply::decode(&reply.body).ok();
                Ok(reply.and_then(|reply| Facts::decode(reply.facts?).ok()))
            }
            Origin::Forgotten => {
                let why = "a program was linked through more generations than are kept";
                Err(RebuildError::Unmovable(why))
            }
        }
    }

    /// Gives source, binaries, intermediate language or built-in kernels under the number `created`.
    fn give(
        &self,
        request: u16,
        body: &[u8],
        created: wire::ProgramHandle,
    ) -> Result<(), RebuildError> {
        let fresh = self.fresh;
        let what = "a program";
        if request == <wire::CreateProgramSource<'_> as Request<'_>>::ID
            && let Ok(given) = wire::CreateProgramSource::decode(body)
        {
            return fresh.send(what, &wire::CreateProgramSource { created, ..given });
        }
        if request == <wire::CreateProgramWithIL<'_> as Request<'_>>::ID
            && let Ok(given) = wire::CreateProgramWithIL::decode(body)
        {
            return fresh.send(what, &wire::CreateProgramWithIL { created, ..given });
        }
        if request == <wire::CreateProgramWithBuiltInKernels<'_> as Request<'_>>::ID
            && let Ok(given) = wire::CreateProgramWithBuiltInKernels::decode(body)
        {
            let again = wire::CreateProgramWithBuiltInKernels { created, ..given };
            return fresh.send(what, &again);
        }
        let Ok(given) = wire::CreateProgramBinary::decode(body) else {
            return Ok(());
        };
        let again = wire::CreateProgramBinary { created, ..given };
        let made = fresh.call_for("clCreateProgramWithBinary", &again);
        made.map(drop).map_err(|status| fresh.refused(what, status))
    }

    /// Does again what was done to a program; gives what the last build told of its kernels.
    fn steps(&mut self, id: u64, making: &Making) -> Result<Option<Facts>, RebuildError> {
        let fresh = self.fresh;
        let program = wire::ProgramHandle(id);
        let mut facts = None;
        for step in &making.steps {
            match &**step {
                Step::Constant { id, value } => {
                    let request = wire::SetProgramSpecializationConstant {
                        program,
                        spec_id: *id,
                        spec_size: value.len() as u64,
                        spec_value: value,
                    };
                    fresh.send("a specialization constant", &request)?;
                }
                Step::Build {
                    devices,
                    options,
                    files,
                    status,
                } => {
                    self.files(program, files.as_deref())?;
                    let request = wire::Build {
                        program,
                        num_devices: devices.count(),
                        devices: devices.list(),
                        options: options.as_deref(),
                        room: ROOM,
                    };
                    let body = self.judged("a build", "clBuildProgram", &request, *status)?;
                    let reply = wire::BuildReply::decode(&body).ok();
                    facts = reply.and_then(|reply| Facts::decode(reply.facts?).ok());
                }
                Step::Compile {
                    devices,
                    options,
                    headers,
                    files,
                    status,
                } => {
                    self.files(program, files.as_deref())?;
                    let (mut programs, mut names) = (Vec::new(), Vec::new());
                    for (number, header, name) in headers {
                        programs.push(wire::ProgramHandle(self.find_text(*number, header)?));
                        names.extend(name.iter().copied().chain([0]));
                    }
                    let request = wire::Compile {
                        program,
                        num_devices: devices.count(),
                        devices: devices.list(),
                        options: options.as_deref(),
                        num_headers: programs.len() as u32,
                        headers: (!programs.is_empty()).then_some(wire::List::Values(&programs)),
                        names_size: names.len() as u64,
                        names: &names,
                    };
                    self.judged("a compilation", "clCompileProgram", &request, *status)?;
                }
            }
        }
        Ok(facts)
    }

    /// Gives a program the files that a step took along.
    fn files(
        &self,
        program: wire::ProgramHandle,
        files: Option<&[u8]>,
    ) -> Result<(), RebuildError> {
        let Some(files) = files else { return Ok(()) };
        let request = wire::IncludeFiles {
            program,
            size: files.len() as u64,
            files,
        };
        self.fresh.send("files that a program includes", &request)
    }

    /// Asks for something whose outcome is known from the first time.
    fn judged<'a, R: Request<'a>>(
        &self,
        what: &'static str,
        call: &'static str,
        request: &R,
        expected: cl_int,
    ) -> Result<Vec<u8>, RebuildError> {
        let reply = self.fresh.link().ask(call, request);
        let reply = reply.map_err(|status| self.fresh.refused(what, status))?;
        match reply.status == expected {
            true => Ok(reply.body),
            false => Err(self.fresh.refused(what, reply.status)),
        }
    }

    /// The number of a program that was made in this way: the one that lives, or one made for the purpose.
    fn find(&mut self, number: u64, making: &Making) -> Result<u64, RebuildError> {
        if (self.live.iter()).any(|(id, live)| *id == number && live.is(making)) {
            return Ok(number);
        }
        let id = self.fresh.mint(wire::ProgramHandle::TAG);
        self.borrowed.push(id);
        self.begin(id, making)?;
        self.steps(id, making)?;
        Ok(id)
    }

    /// As [`Self::find`] for a header, of which only the text counts.
    fn find_text(&mut self, number: u64, making: &Making) -> Result<u64, RebuildError> {
        if (self.live.iter())
            .any(|(id, live)| *id == number && Arc::ptr_eq(&live.origin, &making.origin))
        {
            return Ok(number);
        }
        self.find(number, making)
    }

    fn clean_up(self) -> Result<(), RebuildError> {
        for id in self.borrowed {
            let program = wire::ProgramHandle(id);
            self.fresh
                .send("a program", &wire::ReleaseProgram { program })?;
        }
        Ok(())
    }
}
