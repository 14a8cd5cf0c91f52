//! A session made again on another server, under the same numbers and addresses.
//!
//! As an OpenCL session's move ([`crate::opencl`]): calls are held back, all work ends, what lives is made on the other server from what the
//! client keeps ([`super::recipe`]), contents follow, and only when all of that went well do later calls go there and does the old session end.
//! Until then the old session is only read from, so a failure leaves it as it was.
//!
//! A CUDA program knows addresses. Memory that the driver has placed is placed there at the same addresses, where the other worker has them
//! free. Values that the device sees and the driver picks (variables' addresses, textures' numbers) are compared: one that differs, and that the
//! program was told, refuses the move.

#[cfg(unix)]
mod checkpoint;
mod contents;
mod memory;

use std::any::Any;
use std::collections::HashMap;
use std::time::Instant;

use towline_backend::cuda::Message;

use super::aliases::{Alias, Aliases, Search};
use super::recipe::{Key, Recipe};
use super::*;
use crate::access::Admission;
pub(super) use crate::moved::RebuildError;
use crate::peer::Wish;

/// Longest time for a program's calls and work to pause.
const PATIENCE: Duration = Duration::from_secs(60);
/// Workers that are tried where addresses are in use, while calls pause.
const ATTEMPTS: usize = 8;
/// Numbers of what is made there before calls pause, and of nothing that lives: this session's count from 1 on.
const AHEAD_NUMBER: u64 = 0xf000_0000;
/// Textures and surfaces that are made only for the numbers that they take.
const FILLERS: usize = 4096;

/// Acts for the session itself.
const MOVER: Actor = Actor {
    thread: u64::MAX,
    context: 0,
    capture_mode: 0,
    sleeps: false,
};

/// A variable of device code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name, as the driver knows it.
    pub name: Vec<u8>,
    /// Its first contents have addresses in them.
    pub has_addresses: bool,
}

/// The session that is to take a session's place, for what its owner makes in it.
#[derive(Debug)]
pub struct MovedTo<'a> {
    fresh: &'a Session,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "session with {}", self.server())
    }
}

impl MovedTo<'_> {
    /// Posts a request in a context.
    pub fn post<'a, R: Request<'a>>(
        &self,
        context: u64,
        what: &'static str,
        request: &R,
    ) -> Result<(), RebuildError> {
        let posted = self.fresh.post_rare(in_context(context), request);
        posted.map_err(|status| self.fresh.refused(what, status))
    }

    /// Asks something in a context; what it answers is a success.
    pub fn ask<'a, R: Request<'a>>(
        &self,
        context: u64,
        what: &'static str,
        request: &R,
    ) -> Result<Vec<u8>, RebuildError> {
        let answer = self.fresh.ask_rare(in_context(context), request);
        let answer = answer.map_err(|status| self.fresh.refused(what, status))?;
        match answer.status {
            0 => Ok(answer.body),
            status => Err(self.fresh.refused(what, status)),
        }
    }

    /// The session there, for what is of no lasting effect.
    pub fn session(&self) -> &Session {
        self.fresh
    }

    /// A number under which something is told that nobody waits for.
    pub fn unheard(&self) -> u64 {
        self.fresh.mint(MARK_TAG)
    }

    /// Shares memory with the other worker that this session's has.
    pub fn share(&self, context: u64, shared: &SharedHost) -> Result<(), RebuildError> {
        self.fresh.share_again(in_context(context), shared)
    }

    /// Whether that server is on this host too, and takes memory to share.
    pub fn shares_memory(&self) -> bool {
        self.fresh.shares_memory()
    }
}

fn in_context(context: u64) -> Actor {
    Actor { context, ..MOVER }
}

#[inline(never)]
fn encoded<'a, R: Request<'a>>(request: &R) -> Vec<u8> {
    let mut body = Vec::new();
    request.encode(&mut body);
    body
}

/// The owner of a session that moves: it knows of the objects that have no recipes.
pub trait Owner: Send + Sync {
    /// Holds calls back until the result is dropped; `None` if no moment without calls comes.
    fn stop(&self, patience: Duration) -> Option<Box<dyn Any>>;
    /// Whether the session is the program's only one.
    fn is_alone(&self, session: &Session) -> bool;
    /// The reason why the session cannot move now.
    fn obstacle(&self, session: &Session) -> Option<&'static str>;
    /// The moves begins, between two calls: what need not go along is given back.
    fn prepare(&self, session: &Session);
    /// The device has nothing to do any more: what is to be asked of the old server is asked now.
    fn at_rest(&self, session: &Session) -> Result<(), RebuildError>;
    /// Makes what has no recipes. Nothing of the owner's own is changed.
    fn remake(&self, session: &Session, there: &MovedTo<'_>) -> Result<(), RebuildError>;
    /// Bytes of an element of an array; `None` where elements are not what it is made of.
    fn element(&self, array: u64) -> Option<usize>;
    /// The variables of device code, for the session's devices; `None` for code that cannot be read or has memory that nobody can name.
    fn variables(&self, session: &Session, code: &[u8]) -> Option<Vec<Variable>>;
    /// Later calls go to the other server.
    fn moved(&self, session: &Session);
}

impl Session {
    /// Has the session move to another server when its server wishes, `access` being how to be let in there.
    pub fn let_move(
        self: &Arc<Self>,
        owner: Arc<dyn Owner>,
        access: impl Fn(&Address) -> Result<Access, DialError> + Send + Sync + 'static,
    ) {
        self.follow(owner, Arc::new(access));
    }

    fn follow(self: &Arc<Self>, owner: Arc<dyn Owner>, access: Admission) {
        let Some(control) = self.links.last().control.clone() else {
            return;
        };
        let session = Arc::downgrade(self);
        control.let_move(move |wish, left| {
            let Some(moved) = session.upgrade() else {
                return Err("the session has ended".into());
            };
            let to = match wish {
                #[cfg(unix)]
                Wish::Checkpoint(folder) => {
                    return moved.checkpoint(&folder, &owner, &access, left);
                }
                #[cfg(not(unix))]
                Wish::Checkpoint(_) => return Err("this system has no checkpoints".into()),
                Wish::Move(to) => to.parse::<Address>(),
            };
            let to = &to.map_err(|error| error.to_string())?;
            let mut attempt = 1;
            loop {
                let access_there = access(to).map_err(|error| error.to_string())?;
                let fresh = Self::connect_as(to, &access_there);
                let fresh = fresh.map_err(|error| error.to_string())?;
                let leave = || {
                    moved.follow(Arc::clone(&owner), Arc::clone(&access));
                    left.leave()
                };
                match moved.rebuild(fresh, &*owner, PATIENCE, leave) {
                    // Another worker has other addresses in use.
                    Err(RebuildError::Taken { .. }) if attempt < ATTEMPTS => attempt += 1,
                    outcome => return outcome.map_err(|error| error.to_string()),
                }
            }
        });
    }

    /// Makes the session again on the server of `fresh`, a session that has just begun: later calls go there, numbers and addresses stay
    /// valid, and the session so far ends. `leave` says goodbye to the server so far, once calls go to the other one, and whether that has
    /// been heard. In case of an error nothing has changed, and `fresh` has ended.
    pub fn rebuild(
        &self,
        fresh: Self,
        owner: &dyn Owner,
        patience: Duration,
        leave: impl FnOnce() -> bool,
    ) -> Result<(), RebuildError> {
        let link = Arc::clone(self.link());
        self.alive()?;
        // Obstacles that show before anything stops.
        self.movable(owner)?;
        self.match_devices(&fresh)?;
        fresh.unused()?;
        let mut ahead = self.make_ahead(&fresh, owner)?;
        let began = Instant::now();
        let alone = owner.stop(patience);
        let alone = alone.ok_or(RebuildError::Busy("calls are under way"))?;
        let stopped = Instant::now();
        self.movable(owner)?;
        self.end_what_ended(&fresh, &mut ahead)?;
        owner.prepare(self);
        self.quiesce(patience)?;
        owner.at_rest(self)?;
        // Numbers given there from now on are those of nothing here.
        fresh.link().count_from(link.minted());
        let rested = Instant::now();
        self.make_all(&fresh, &ahead)?;
        owner.remake(self, &MovedTo { fresh: &fresh })?;
        fresh.accepted()?;
        let made = Instant::now();
        self.move_contents(&fresh, owner, &ahead)?;
        fresh.rest(patience)?;
        fresh.accepted()?;
        self.alive()?;
        log::debug!(
            "of the pause, {:.3} s were for work to end, {:.3} s for objects, {:.3} s for contents",
            (rested - stopped).as_secs_f64(),
            (made - rested).as_secs_f64(),
            made.elapsed().as_secs_f64()
        );
        self.take_over(fresh);
        owner.moved(self);
        drop(alone);
        let pause = stopped.elapsed();
        log::info!(
            "the session with {} moved to {}: {:.3} s until calls paused, and {:.3} s more until they went on",
            link.name(),
            self.server(),
            (stopped - began).as_secs_f64(),
            pause.as_secs_f64()
        );
        if !leave() {
            let _ = link.post(&wire::Goodbye { reason: 0 });
            link.flush();
        }
        link.end("the session moved to another server".into());
        link.clear();
        Ok(())
    }

    /// As [`Self::post`], for requests that are made again here: one copy of the code serves all of them.
    fn post_rare<'a, R: Request<'a>>(&self, actor: Actor, request: &R) -> Result<(), i32> {
        self.post_bytes(actor, R::ID, &encoded(request))
    }

    /// As [`Self::ask`], likewise.
    fn ask_rare<'a, R: Request<'a>>(&self, actor: Actor, request: &R) -> Result<Answer, i32> {
        self.ask_bytes(actor, R::ID, &encoded(request))
    }

    /// As [`Self::call`], likewise.
    fn call_rare<'a, R: Request<'a>>(&self, actor: Actor, request: &R) -> Result<Vec<u8>, i32> {
        let answer = self.ask_rare(actor, request)?;
        match answer.status {
            0 => Ok(answer.body),
            status => Err(status),
        }
    }

    #[inline(never)]
    fn post_bytes(&self, actor: Actor, id: u16, body: &[u8]) -> Result<(), i32> {
        self.healthy()?;
        self.post_held(&mut self.posting())?;
        let changed = self.changed(id, body);
        self.post_raw(actor, id, changed.as_deref().unwrap_or(body))
    }

    #[inline(never)]
    fn ask_bytes(&self, actor: Actor, id: u16, body: &[u8]) -> Result<Answer, i32> {
        self.healthy()?;
        self.post_held(&mut self.posting())?;
        let changed = self.changed(id, body);
        let began = Instant::now();
        self.link().meter.requested();
        let answer = self.ask_raw(actor, id, changed.as_deref().unwrap_or(body));
        self.link().meter.waited("rebuild", began.elapsed());
        answer
    }

    /// A request as the server is to have it, where that differs.
    fn changed(&self, id: u16, body: &[u8]) -> Option<Vec<u8>> {
        let has_aliases = self.has_aliases.load(Ordering::Relaxed);
        let aliases = || self.aliases.read().unwrap_or_else(PoisonError::into_inner);
        has_aliases.then(|| aliases().changed(id, body)).flatten()
    }

    /// Bytes of this process's memory that making the session again takes, without device code that lies in the program's own files.
    pub fn kept_bytes(&self) -> usize {
        self.recipes.lock().bytes()
    }

    /// Nothing has been made in the session.
    fn unused(&self) -> Result<(), RebuildError> {
        match self.link().minted() == Link::FIRST_NUMBER {
            true => Ok(()),
            false => Err(RebuildError::Used(self.server().into())),
        }
    }

    fn alive(&self) -> Result<(), RebuildError> {
        match self.lost() {
            None => Ok(()),
            Some(reason) => Err(RebuildError::Lost {
                server: self.server().into(),
                reason: reason.into(),
            }),
        }
    }

    /// The meaning of this session's status for who moves it.
    pub(super) fn refused(&self, what: &'static str, status: i32) -> RebuildError {
        match self.alive() {
            Err(lost) => lost,
            Ok(()) => RebuildError::Refused {
                server: self.server().into(),
                what,
                status: wire::status_name(status).map_or_else(|| status.to_string(), String::from),
            },
        }
    }

    fn movable(&self, owner: &dyn Owner) -> Result<(), RebuildError> {
        if self.healthy().is_err() {
            return Err(RebuildError::Unmovable("its device has failed"));
        }
        let obstacle = self.recipes.lock().obstacle();
        let obstacle = obstacle.or_else(|| owner.obstacle(self));
        obstacle.map_or(Ok(()), |why| Err(RebuildError::Unmovable(why)))
    }

    /// Each device here has one with the same number there that is like it.
    fn match_devices(&self, fresh: &Self) -> Result<(), RebuildError> {
        let (ours, theirs) = (&self.snapshot, &fresh.snapshot);
        let differs = |query, device: &str, ours: String, theirs: String| RebuildError::Device {
            server: fresh.server().into(),
            device: device.into(),
            query,
            ours,
            theirs,
        };
        let kind = |genuine| match genuine {
            true => "NVIDIA's".to_owned(),
            false => "software".to_owned(),
        };
        for (index, device) in ours.devices.iter().enumerate() {
            let name = String::from_utf8_lossy(&device.name).into_owned();
            if ours.genuine != theirs.genuine {
                let (ours, theirs) = (kind(ours.genuine), kind(theirs.genuine));
                return Err(differs("driver", &name, ours, theirs));
            }
            if ours.driver_version != theirs.driver_version {
                let (ours, theirs) = (ours.driver_version, theirs.driver_version);
                let (ours, theirs) = (ours.to_string(), theirs.to_string());
                return Err(differs("driver's version of CUDA", &name, ours, theirs));
            }
            let Some(there) = theirs.devices.get(index) else {
                return Err(differs(
                    "name",
                    &name,
                    format!("'{name}'"),
                    "no device".into(),
                ));
            };
            if there.name != device.name {
                let theirs = String::from_utf8_lossy(&there.name);
                let (ours, theirs) = (format!("'{name}'"), format!("'{theirs}'"));
                return Err(differs("name", &name, ours, theirs));
            }
            if there.total_bytes < device.total_bytes {
                let (ours, theirs) = (device.total_bytes, there.total_bytes);
                let (ours, theirs) = (ours.to_string(), theirs.to_string());
                return Err(differs("memory", &name, ours, theirs));
            }
        }
        Ok(())
    }

    /// The contexts that live.
    fn contexts(&self) -> Vec<u64> {
        contexts_in(&self.recipes.lock())
    }

    /// Waits until the device has done all that it was given.
    fn rest(&self, patience: Duration) -> Result<(), RebuildError> {
        let mut asked = Vec::new();
        for number in self.contexts() {
            let context = wire::ContextHandle(number);
            let request = wire::SynchronizeContext { context };
            let number = {
                let mut posting = self.posting();
                let ready = self.post_held(&mut posting);
                let ready = ready.and_then(|()| self.act_as(&mut posting, in_context(number)));
                ready.and_then(|()| self.link().ask_only(&request))
            };
            asked.push(number.map_err(|status| self.refused("a wait", status))?);
        }
        let answered = self.link().wait_at_most(patience, |state| {
            let is_ready = |number: &u64| {
                let slot = state.replies.get(number);
                matches!(slot, Some(crate::state::Slot::Ready(_)) | None)
            };
            asked.iter().all(is_ready).then_some(())
        });
        let answered = answered.map_err(|status| self.refused("a wait", status))?;
        if answered.is_none() {
            // The answers are taken when they come: nothing may be left that is awaited.
            let link = Arc::clone(self.link());
            let take = move || {
                for number in asked {
                    let _ = link.wait_reply(number, Duration::ZERO);
                }
            };
            let thread = crate::threads::named("towline-rest");
            let _ = thread.spawn(take);
            return Err(RebuildError::Busy("the device has work that does not end"));
        }
        for number in asked {
            let reply = self.link().wait_reply(number, Duration::ZERO);
            let reply = reply.map_err(|status| self.refused("a wait", status))?;
            if reply.status != 0 {
                return Err(self.refused("the device's work", reply.status));
            }
        }
        Ok(())
    }

    /// Waits until all work has ended, and all data has arrived.
    fn quiesce(&self, patience: Duration) -> Result<(), RebuildError> {
        self.rest(patience)?;
        self.link().flush();
        let quiet = self.link().wait_at_most(patience, |state| {
            let ended = state.events.values().all(|event| event.status.is_some());
            (ended && state.is_quiet()).then_some(())
        });
        match quiet {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(RebuildError::Busy("data or functions are under way")),
            Err(status) => Err(self.refused("a wait", status)),
        }
    }

    /// Waits until the server has made all that was posted; a failure among it is one of the whole.
    fn accepted(&self) -> Result<(), RebuildError> {
        let answered = self.call_rare(MOVER, &wire::Ping { token: 0 });
        answered.map_err(|status| self.refused("an object", status))?;
        let failed = self.link().state().failures.values().next().copied();
        match failed {
            Some(status) => Err(self.refused("an object", status)),
            None => Ok(()),
        }
    }

    /// Makes what takes long and hardly ever ends before calls pause: contexts and device code.
    fn make_ahead(&self, fresh: &Self, owner: &dyn Owner) -> Result<Ahead, RebuildError> {
        let in_session = self.link().minted() & !u64::from(u32::MAX);
        fresh.link().count_from(in_session | AHEAD_NUMBER);
        let recipes: Vec<(u64, Recipe, Option<Arc<KeptImage>>)> = {
            let known = self.recipes.lock();
            let recipes = known.numbered().filter(|(_, recipe)| is_made_ahead(recipe));
            let recipes = recipes.map(|(number, recipe)| {
                let image = match recipe.key {
                    Key::Object(object) if is_code(recipe) => known.image(object),
                    _ => None,
                };
                (number, recipe.clone(), image)
            });
            recipes.collect()
        };
        let mut ahead = Ahead::default();
        let spans = memory::Spans::default();
        for (number, recipe, image) in recipes {
            // Read without the lock: the program goes on.
            let image = image.and_then(|image| image.bytes());
            if let (Key::Object(object), Some(image)) = (recipe.key, &image)
                && let Some(variables) = owner.variables(self, image)
            {
                ahead.variables.insert(object, variables);
            }
            self.make(fresh, &recipe, |_| image, &spans)?;
            ahead.made.insert(number, recipe);
        }
        fresh.accepted()?;
        Ok(ahead)
    }

    /// Ends there what has ended here since it was made ahead.
    fn end_what_ended(&self, fresh: &Self, ahead: &mut Ahead) -> Result<(), RebuildError> {
        let known = self.recipes.lock();
        let ended = ahead.made.extract_if(|number, _| !known.has(*number));
        for (_, recipe) in ended {
            let actor = in_context(recipe.context);
            let module = recipe.read::<wire::ModuleLoad<'_>>();
            let library = recipe.read::<wire::LibraryLoad<'_>>();
            let posted = if let Some(made) = module {
                fresh.post_rare(actor, &wire::ModuleUnload { hmod: made.module })
            } else if let Some(made) = library {
                let library = made.library;
                fresh.post_rare(actor, &wire::LibraryUnload { library })
            } else if recipe.read::<wire::CtxSetLimit>().is_some()
                || recipe.read::<wire::LibraryModule>().is_some()
                || recipe.read::<wire::KernelFunction>().is_some()
            {
                // Set again since, or part of a library.
                Ok(())
            } else {
                return Err(RebuildError::Busy("it has ended a context meanwhile"));
            };
            posted.map_err(|status| fresh.refused("device code", status))?;
        }
        Ok(())
    }

    /// Makes everything that has a recipe, in three steps: what memory is made in, memory, and what reads it. Variables that lie elsewhere
    /// than the program was told are known to `fresh` then.
    fn make_all(&self, fresh: &Self, ahead: &Ahead) -> Result<(), RebuildError> {
        let known = self.recipes.lock();
        let is_numbered =
            |recipe: &Recipe| matches!(recipe.key, Key::Texture(..) | Key::Surface(..));
        let is_late = |recipe: &Recipe| {
            is_numbered(recipe)
                || recipe.read::<wire::TextureReferenceSet<'_>>().is_some()
                || recipe.read::<wire::SurfRefSetArray>().is_some()
        };
        let spans = memory::spans(known.in_order());
        let mut aliases = Vec::new();
        for (number, recipe) in known.numbered() {
            if is_late(recipe) || ahead.made.contains_key(&number) {
                continue;
            }
            match variable(recipe) {
                Some((_, told)) => aliases.extend(self.find_again(fresh, recipe, told)?),
                None if matches!(recipe.key, Key::Memory(_)) => {}
                None => {
                    let image = |object| known.image(object)?.bytes();
                    self.make(fresh, recipe, image, &spans)?;
                }
            }
        }
        for memory in known.released() {
            let request = wire::PhysicalRelease { memory };
            let posted = fresh.post_rare(MOVER, &request);
            posted.map_err(|status| fresh.refused("physical memory", status))?;
        }
        self.place_memory(fresh, &known, &spans)?;
        for alias in &aliases {
            self.keep_free(fresh, alias, &spans)?;
        }
        // Those that come now may name variables.
        fresh.set_aliases(aliases);
        let late = known.in_order().filter(|recipe| is_late(recipe));
        let (numbered, others): (Vec<_>, Vec<_>) = late.partition(|recipe| is_numbered(recipe));
        for recipe in others {
            self.make(fresh, recipe, |_| None, &spans)?;
        }
        make_numbered(fresh, numbered)
    }

    /// Asks where a variable lies there that lies here where the program was told; where that is elsewhere.
    fn find_again(
        &self,
        fresh: &Self,
        recipe: &Recipe,
        told: Option<(u64, u64)>,
    ) -> Result<Option<Alias>, RebuildError> {
        let Some((known, size)) = told else {
            return Ok(None);
        };
        let what = "the address of a variable";
        let actor = in_context(recipe.context);
        let answer = fresh.ask_raw(actor, recipe.request, &recipe.body);
        let answer = answer.map_err(|status| fresh.refused(what, status))?;
        if answer.status != 0 {
            return Err(fresh.refused(what, answer.status));
        }
        let there = place_in(recipe.request, &answer.body);
        let (actual, there) = there.ok_or_else(|| fresh.refused(what, fresh.malformed()))?;
        Ok((actual != known).then_some(Alias {
            known,
            size: size.min(there),
            actual,
        }))
    }

    fn set_aliases(&self, aliases: Vec<Alias>) {
        self.has_aliases
            .store(!aliases.is_empty(), Ordering::Relaxed);
        let mut held = self.aliases.write().unwrap_or_else(PoisonError::into_inner);
        *held = Arc::new(Aliases::new(aliases));
    }

    fn make(
        &self,
        fresh: &Self,
        recipe: &Recipe,
        image: impl FnOnce(u64) -> Option<Arc<Vec<u8>>>,
        spans: &memory::Spans,
    ) -> Result<(), RebuildError> {
        let actor = in_context(recipe.context);
        if let Some(load) = recipe.read::<wire::ModuleLoad<'_>>() {
            let code = image(load.module.0);
            return self.load(fresh, recipe, code, |image, payload, digest| {
                let load = wire::ModuleLoad {
                    image_size: image.map_or(0, <[u8]>::len) as u64,
                    image,
                    payload,
                    digest,
                    ..load
                };
                let answer = fresh.ask_rare(actor, &load)?;
                let facts = wire::ModuleLoadReply::decode(&answer.body).ok();
                let facts = facts.and_then(|reply| reply.facts.map(<[u8]>::to_vec));
                Ok((answer, facts.unwrap_or_default()))
            });
        }
        if let Some(load) = recipe.read::<wire::LibraryLoad<'_>>() {
            let code = image(load.library.0);
            return self.load(fresh, recipe, code, |image, payload, digest| {
                let load = wire::LibraryLoad {
                    image_size: image.map_or(0, <[u8]>::len) as u64,
                    image,
                    payload,
                    digest,
                    ..load
                };
                let answer = fresh.ask_rare(actor, &load)?;
                let facts = wire::LibraryLoadReply::decode(&answer.body).ok();
                let facts = facts.and_then(|reply| reply.facts.map(<[u8]>::to_vec));
                Ok((answer, facts.unwrap_or_default()))
            });
        }
        if let Some(reserve) = recipe.read::<wire::AddressReserve>() {
            return self.reserve_again(fresh, recipe, &reserve, spans);
        }
        self.repeat(fresh, recipe)
    }

    /// Sends a request again as it was. What the server answered here, it has to answer there.
    fn repeat(&self, fresh: &Self, recipe: &Recipe) -> Result<(), RebuildError> {
        let actor = in_context(recipe.context);
        let what = wire::call_name(recipe.request).unwrap_or("an object");
        if !recipe.asked {
            let posted = fresh.post_raw(actor, recipe.request, &recipe.body);
            return posted.map_err(|status| fresh.refused(what, status));
        }
        let changed = fresh.changed(recipe.request, &recipe.body);
        let body = changed.as_deref().unwrap_or(&recipe.body);
        let answer = fresh.ask_raw(actor, recipe.request, body);
        let answer = answer.map_err(|status| fresh.refused(what, status))?;
        if answer.status != 0 {
            return Err(fresh.refused(what, answer.status));
        }
        match answer.body == *recipe.reply {
            true => Ok(()),
            false => Err(RebuildError::Differs {
                what: format!("the answer to {what}"),
                ours: "another one".into(),
                theirs: "another one".into(),
            }),
        }
    }

    /// Loads device code again; its kernels must be the same.
    fn load(
        &self,
        fresh: &Self,
        recipe: &Recipe,
        image: Option<Arc<Vec<u8>>>,
        ask: impl FnOnce(Option<&[u8]>, u64, &[u8]) -> Result<(Answer, Vec<u8>), i32>,
    ) -> Result<(), RebuildError> {
        let what = "device code";
        let image = image.ok_or(RebuildError::Unmovable(
            "its device code is not where the program had it any more",
        ))?;
        let digest = fresh.image_digest(&image);
        let mut facts = Vec::new();
        let answer = fresh.ask_with_image(&image, &digest, |image, payload| {
            let (answer, told) = ask(image, payload, &digest)?;
            facts = told;
            Ok(answer)
        });
        let answer = answer.map_err(|status| fresh.refused(what, status))?;
        if answer.status != 0 {
            return Err(fresh.refused(what, answer.status));
        }
        let before = wire::ModuleLoadReply::decode(&recipe.reply).ok();
        let before = before.and_then(|reply| reply.facts.map(<[u8]>::to_vec));
        let library = wire::LibraryLoadReply::decode(&recipe.reply).ok();
        let before = before.or(library.and_then(|reply| reply.facts.map(<[u8]>::to_vec)));
        match before.is_none_or(|before| before == facts) {
            true => Ok(()),
            false => Err(RebuildError::Differs {
                what: "what kernels need".into(),
                ours: "other".into(),
                theirs: "other".into(),
            }),
        }
    }

    /// Calls go to the other server from now on. Nothing here can fail.
    fn take_over(&self, fresh: Self) {
        let last = fresh.links.last();
        // The other session's numbers are above ours already: both count on from one place.
        fresh.given_up.store(true, Ordering::Relaxed);
        let granted = fresh.collectives.load(Ordering::Relaxed);
        self.collectives.store(granted, Ordering::Relaxed);
        self.staging.take_over(&fresh.staging);
        let aliases = fresh.aliases.read().unwrap_or_else(PoisonError::into_inner);
        self.has_aliases
            .store(!aliases.is_empty(), Ordering::Relaxed);
        let mut held = self.aliases.write().unwrap_or_else(PoisonError::into_inner);
        held.clone_from(&aliases);
        drop(held);
        let mut posting = self.posting();
        posting.actor = None;
        self.links
            .go_on(Arc::clone(&last.link), last.control.clone());
    }
}

/// Objects that were made before calls paused.
#[derive(Default)]
struct Ahead {
    /// The recipes that were carried out.
    made: HashMap<u64, Recipe>,
    /// The variables of modules and libraries.
    variables: HashMap<u64, Vec<Variable>>,
}

/// Whether a recipe loads device code.
fn is_code(recipe: &Recipe) -> bool {
    recipe.read::<wire::ModuleLoad<'_>>().is_some()
        || recipe.read::<wire::LibraryLoad<'_>>().is_some()
}

fn is_made_ahead(recipe: &Recipe) -> bool {
    is_code(recipe)
        || recipe.read::<wire::ContextCreate>().is_some()
        || recipe.read::<wire::PrimaryRetain>().is_some()
        || recipe.read::<wire::CtxSetLimit>().is_some()
        || recipe.read::<wire::LibraryModule>().is_some()
        || recipe.read::<wire::KernelFunction>().is_some()
}

fn hex(value: Option<u64>) -> String {
    value.map_or("not told".into(), |value| format!("{value:#x}"))
}

/// The address and size in an answer to where a variable lies.
fn place_in(request: u16, body: &[u8]) -> Option<(u64, u64)> {
    if request == <wire::ModuleGetGlobalV2<'_> as Request<'_>>::ID {
        let reply = wire::ModuleGetGlobalV2Reply::decode(body).ok()?;
        return Some((reply.dptr?, reply.bytes?));
    }
    if request == <wire::LibraryGetGlobal<'_> as Request<'_>>::ID {
        let reply = wire::LibraryGetGlobalReply::decode(body).ok()?;
        return Some((reply.dptr?, reply.bytes?));
    }
    let reply = wire::LibraryGetManagedReply::decode(body).ok()?;
    Some((reply.dptr?, reply.bytes?))
}

/// The contexts among recipes.
fn contexts_in(known: &recipe::Known) -> Vec<u64> {
    let contexts = known.in_order().filter_map(|recipe| {
        let created = recipe.read::<wire::ContextCreate>();
        let retained = recipe.read::<wire::PrimaryRetain>();
        let created = created.map(|made| made.context.0);
        created.or(retained.map(|made| made.context.0))
    });
    contexts.collect()
}

/// The first address of something, and its bytes.
type Extent = (u64, u64);

/// The name of a variable that the program asked for, and where it was told that it lies.
fn variable(recipe: &Recipe) -> Option<(&[u8], Option<Extent>)> {
    let of_module = recipe.read::<wire::ModuleGetGlobalV2<'_>>();
    let of_library = recipe.read::<wire::LibraryGetGlobal<'_>>();
    let managed = recipe.read::<wire::LibraryGetManaged<'_>>();
    let name = of_module.map(|asked| asked.name);
    let name = name.or(of_library.map(|asked| asked.name));
    let name = name.or(managed.map(|asked| asked.name))?;
    Some((name, place_in(recipe.request, &recipe.reply)))
}

/// Makes textures and surfaces of each context in the order of their numbers: drivers count. Numbers of some that have ended are taken
/// meanwhile.
fn make_numbered(fresh: &Session, mut recipes: Vec<&Recipe>) -> Result<(), RebuildError> {
    let number = |recipe: &Recipe| match recipe.key {
        Key::Texture(_, number) | Key::Surface(_, number) => number,
        _ => 0,
    };
    recipes.sort_unstable_by_key(|recipe| (recipe.context, number(recipe)));
    let mut fillers: HashMap<(u64, u64), &Recipe> = HashMap::new();
    for recipe in recipes {
        let (actor, wanted) = (in_context(recipe.context), number(recipe));
        let changed = fresh.changed(recipe.request, &recipe.body);
        let body = changed.as_deref().unwrap_or(&recipe.body);
        loop {
            let refused = |status| fresh.refused("a texture or surface", status);
            let answer = fresh.ask_raw(actor, recipe.request, body);
            let answer = answer.map_err(refused)?;
            if answer.status != 0 {
                return Err(refused(answer.status));
            }
            let made = match recipe.key {
                Key::Texture(..) => wire::TextureCreateReply::decode(&answer.body)
                    .ok()
                    .and_then(|reply| reply.object),
                _ => wire::SurfaceCreateReply::decode(&answer.body)
                    .ok()
                    .and_then(|reply| reply.object),
            };
            let made = made.ok_or_else(|| refused(fresh.malformed()))?;
            if made == wanted {
                break;
            }
            fillers.insert((recipe.context, made), recipe);
            if made > wanted || fillers.len() > FILLERS {
                return Err(RebuildError::Differs {
                    what: "the number of a texture or surface".into(),
                    ours: hex(Some(wanted)),
                    theirs: hex(Some(made)),
                });
            }
        }
    }
    for ((context, number), like) in fillers {
        let actor = in_context(context);
        let ended = match like.key {
            Key::Texture(..) => {
                fresh.post_rare(actor, &wire::TexObjectDestroy { texObject: number })
            }
            _ => fresh.post_rare(actor, &wire::SurfObjectDestroy { surfObject: number }),
        };
        ended.map_err(|status| fresh.refused("a texture or surface", status))?;
    }
    Ok(())
}
