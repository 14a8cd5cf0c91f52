//! The worker processes of one kind: some are started ahead, so that clients do not wait for a driver to load.
//!
//! One thread starts them all, and waits for none to get ready. Several get ready at the same time. Clients that wait for one are served in the order in which they came, each woken by itself.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use towline_sys::channel::Channel;
use towline_sys::jail::{JailRequest, Network};
use towline_sys::process::{Started, WorkerProcess, WorkerProgram};
use towline_worker::{Images, Offers};

use super::ahead::{Ahead, Bounds};
use super::control::KILL_LIMIT;
use super::ending::Ending;
use super::folder::RuntimeFolder;
use super::job::{Account, Job};
use super::metrics::Timings;
use super::output;
use super::worker::{Worker, WorkerEvents};
use super::{
    JailConfig, SupervisorConfig, SupervisorError, WORKER_END_LIMIT, WORKER_START_LIMIT, lock,
    spawn,
};
use crate::worker::process::describe;
use crate::worker::protocol::ToWorker;

/// How often the wait for the first worker looks whether it was interrupted.
const INTERRUPT_PERIOD: Duration = Duration::from_millis(100);
/// How long to wait after a worker failed to start: doubled with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// After how many attempts in a row that failed all clients are told that wait, and not only the one that has waited longest.
const HOPELESS: u32 = 3;
/// A worker that has been getting ready for so long hangs, and is killed. Others are started in its place as soon as no client would wait
/// for it any more.
const HANGS_AFTER: Duration = WORKER_START_LIMIT.saturating_mul(2);
/// How many workers may be getting ready for each processor: they wait for the disk and for each other, too.
const STARTING_PER_PROCESSOR: usize = 2;

/// Properties of the workers of a pool.
pub(super) struct PoolKind {
    /// How bad it is when one cannot start.
    pub(super) failure: log::Level,
    /// How many wait for clients to come.
    pub(super) ahead: Bounds,
    /// Device code that they bring.
    pub(super) images: Arc<Images>,
    /// Objects that their sessions share.
    pub(super) offers: Offers,
    /// Connections that they are passed are pinned, for others have sockets that could lead them elsewhere.
    pub(super) pins_lanes: bool,
    /// Times that they take.
    pub(super) timings: Timings,
}

/// Told when the worker of a session is gone.
pub(super) type EndCallback = Box<dyn FnOnce(Option<Ending>) + Send>;

/// All workers of a supervisor.
pub(super) struct WorkerPool {
    program: WorkerProgram,
    /// How bad it is when a worker cannot start.
    failure: log::Level,
    jail: JailConfig,
    /// Bytes of a worker's temporary files; 0 limits them to what the system does.
    temporary_bytes: u64,
    /// Gone when stopped.
    folder: Mutex<Option<RuntimeFolder>>,
    /// Where the search for free user numbers starts; random, so that two supervisors rarely meet.
    first_user: u64,
    state: Mutex<State>,
    /// For the spawner, and those who wait for devices to be known: few.
    changed: Condvar,
    spawner: Mutex<Option<JoinHandle<()>>>,
    /// How many may be getting ready at once.
    most_starting: usize,
    /// Most lines of a worker in the log.
    log_lines: u32,
    /// What sessions of these workers share.
    offers: Arc<Offers>,
    /// Device code that they bring.
    images: Arc<Images>,
    pins_lanes: bool,
    timings: Timings,
    this: Weak<Self>,
}

/// A pool's workers and clients now.
pub(super) struct Census {
    pub(super) starting: usize,
    pub(super) ready: usize,
    pub(super) clients: usize,
    /// Workers that failed to start, since the start.
    pub(super) failures: u64,
}

struct State {
    starting: Vec<Arc<Worker>>,
    /// Empty while clients wait.
    ready: VecDeque<Arc<Worker>>,
    /// The devices, as the newest worker saw them: all workers see the same.
    snapshot: Vec<u8>,
    /// Workers of sessions, by number, and whom to tell when they end.
    assigned: HashMap<u64, EndCallback>,
    /// Clients that wait for a worker, in the order in which they came.
    clients: VecDeque<(Arc<WaitingClient>, EndCallback)>,
    /// Clients of jobs, each by the number of the worker that is started for it alone.
    promised: HashMap<u64, (Arc<WaitingClient>, EndCallback)>,
    /// How many wait for the devices to be known.
    lookers: usize,
    ahead: Ahead,
    /// When a worker last got ready.
    progress: Instant,
    /// Started in all.
    started: u64,
    /// Attempts that failed since the last success, and when the next may be.
    failures: u32,
    not_before: Option<Instant>,
    failure_count: u64,
    last_failure: String,
    /// Whether it was logged what the jail lacks.
    jail_told: bool,
    stopping: bool,
    /// The moment from which the end of workers is waited for no longer.
    stop_by: Option<Instant>,
}

/// A client that waits for a worker.
#[derive(Default)]
struct WaitingClient {
    /// Set with the pool's state locked.
    outcome: Mutex<Option<Result<Arc<Worker>, String>>>,
    told: Condvar,
}

impl WaitingClient {
    fn tell(&self, outcome: Result<Arc<Worker>, String>) {
        *lock(&self.outcome) = Some(outcome);
        self.told.notify_one();
    }

    /// The outcome, if it comes within `limit`.
    fn wait(&self, limit: Duration) -> Option<Result<Arc<Worker>, String>> {
        let outcome = lock(&self.outcome);
        let waited = self
            .told
            .wait_timeout_while(outcome, limit, |outcome| outcome.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

impl State {
    fn live(&self) -> usize {
        self.starting.len() + self.ready.len() + self.assigned.len() + self.promised.len()
    }

    /// How many are to be ready or on the way.
    fn wanted(&self) -> usize {
        let for_looking = usize::from(self.lookers > 0 && self.snapshot.is_empty());
        (self.clients.len() + self.ahead.wanted()).max(for_looking)
    }

    /// Takes workers that nobody has asked for out of the pool, until `count` are left; they are to be asked to end.
    fn dismiss_down_to(&mut self, count: usize) -> Vec<Arc<Worker>> {
        let spare = self.ready.split_off(count.min(self.ready.len()));
        for worker in &spare {
            // Taken by nobody, whom nobody is told of.
            self.assigned.insert(worker.number(), Box::new(|_| ()));
        }
        spare.into()
    }

    /// How many are getting ready that clients would wait for, and when that changes by itself. Kills those that hang.
    fn on_the_way(&self) -> (usize, Option<Instant>) {
        let (mut count, mut next) = (0, None);
        for worker in &self.starting {
            let age = worker.age();
            let limit = match age < WORKER_START_LIMIT {
                true => WORKER_START_LIMIT,
                false => HANGS_AFTER,
            };
            count += usize::from(age < WORKER_START_LIMIT);
            if age >= limit {
                // Of one that hangs in the kernel, nothing more is expected.
                worker.give_up(&format!("it was not ready within {} s", limit.as_secs()));
                continue;
            }
            let at = Instant::now() + (limit - age);
            next = Some(next.map_or(at, |next: Instant| next.min(at)));
        }
        (count, next)
    }

    /// Tells clients that wait, oldest first, why they get no worker.
    fn disappoint(&mut self, count: usize, reason: &str) {
        let count = count.min(self.clients.len());
        for (client, _) in self.clients.drain(..count) {
            client.tell(Err(reason.to_owned()));
        }
    }
}

impl WorkerPool {
    /// Starts the thread that starts workers of `program`.
    pub(super) fn start(
        config: &SupervisorConfig,
        program: &WorkerProgram,
        folder: RuntimeFolder,
        kind: PoolKind,
    ) -> Result<Arc<Self>, SupervisorError> {
        let first_user = u64::from(u32::from_le_bytes(super::random()?));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = Arc::new_cyclic(|this| Self {
            program: program.clone(),
            failure: kind.failure,
            jail: config.jail.clone(),
            temporary_bytes: config.quota.temporary_bytes,
            folder: Mutex::new(Some(folder)),
            first_user,
            state: Mutex::new(State {
                starting: Vec::new(),
                ready: VecDeque::new(),
                snapshot: Vec::new(),
                assigned: HashMap::new(),
                clients: VecDeque::new(),
                promised: HashMap::new(),
                lookers: 0,
                ahead: Ahead::new(kind.ahead),
                progress: Instant::now(),
                started: 0,
                failures: 0,
                not_before: None,
                failure_count: 0,
                last_failure: String::new(),
                jail_told: false,
                stopping: false,
                stop_by: None,
            }),
            changed: Condvar::new(),
            spawner: Mutex::new(None),
            most_starting: processors * STARTING_PER_PROCESSOR,
            log_lines: config.bounds.log_lines,
            offers: Arc::new(kind.offers),
            images: kind.images,
            pins_lanes: kind.pins_lanes,
            timings: kind.timings,
            this: this.clone(),
        });
        let body = Arc::clone(&pool);
        let spawner = spawn("spawner", move || body.start_wanted())?;
        *lock(&pool.spawner) = Some(spawner);
        Ok(pool)
    }

    /// Objects that sessions of these workers share, and device code that they bring.
    pub(super) fn shared(&self) -> (&Offers, &Images) {
        (&self.offers, &self.images)
    }

    pub(super) fn timings(&self) -> &Timings {
        &self.timings
    }

    pub(super) fn census(&self) -> Census {
        let state = lock(&self.state);
        Census {
            starting: state.starting.len(),
            ready: state.ready.len(),
            clients: state.clients.len(),
            failures: state.failure_count,
        }
    }

    /// Waits for the first worker; in the error, why there is none.
    pub(super) fn wait_first_ready(&self, interrupted: &AtomicBool) -> Result<(), String> {
        let deadline = Instant::now() + WORKER_START_LIMIT;
        let mut state = lock(&self.state);
        loop {
            if state.failure_count > 0 {
                return Err(state.last_failure.clone());
            }
            if !state.ready.is_empty() {
                return Ok(());
            }
            if interrupted.load(Ordering::Acquire) {
                return Err("interrupted".into());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!(
                    "it was not ready within {} s",
                    WORKER_START_LIMIT.as_secs()
                ));
            }
            let wait = left.min(INTERRUPT_PERIOD);
            state = self
                .changed
                .wait_timeout(state, wait)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// The devices, as the newest worker saw them.
    pub(super) fn snapshot(&self) -> Vec<u8> {
        lock(&self.state).snapshot.clone()
    }

    /// The devices, as a worker sees them that is started for that if none has been; in the error, why none sees them. Waits until
    /// `is_over` says that nobody wants to know.
    pub(super) fn look(
        &self,
        interrupted: &AtomicBool,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, String> {
        let deadline = Instant::now() + WORKER_START_LIMIT;
        let mut state = lock(&self.state);
        let pausing = state.not_before.is_some_and(|at| at > Instant::now());
        if state.snapshot.is_empty() && pausing {
            // Who asks again at once is told again.
            return Err(state.last_failure.clone());
        }
        let failures_before = state.failure_count;
        state.lookers += 1;
        self.changed.notify_all();
        let outcome = loop {
            if !state.snapshot.is_empty() {
                break Ok(state.snapshot.clone());
            }
            if state.failure_count > failures_before {
                break Err(state.last_failure.clone());
            }
            if state.stopping || interrupted.load(Ordering::Acquire) {
                break Err("the server is shutting down".into());
            }
            if is_over() {
                break Err("the question is not waited for any more".into());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(format!(
                    "no worker was ready within {} s",
                    WORKER_START_LIMIT.as_secs()
                ));
            }
            let wait = left.min(INTERRUPT_PERIOD);
            state = self
                .changed
                .wait_timeout(state, wait)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        };
        state.lookers -= 1;
        // Whom no client has asked for does not stay and hold the device.
        let spare = match state.wanted() {
            0 => state.dismiss_down_to(0),
            _ => Vec::new(),
        };
        drop(state);
        spare.iter().for_each(|worker| worker.ask_to_end());
        outcome
    }

    /// A worker for a session; in the error, why there is none. Give it back by ending it.
    ///
    /// Clients get theirs in the order in which they came, and wait as long as workers get ready. `ended` is called when the worker is
    /// gone, from another thread, and even if that is at once.
    pub(super) fn take(&self, ended: EndCallback) -> Result<Arc<Worker>, String> {
        let mut state = lock(&self.state);
        if state.stopping {
            return Err("the server is shutting down".into());
        }
        if let Some(worker) = state.ready.pop_front() {
            let left = state.ready.len();
            state.ahead.found(left);
            state.assigned.insert(worker.number(), ended);
            drop(state);
            self.changed.notify_all();
            return Ok(worker);
        }
        let client = Arc::new(WaitingClient::default());
        state.ahead.missed();
        state.clients.push_back((Arc::clone(&client), ended));
        drop(state);
        self.changed.notify_all();
        let mut limit = WORKER_START_LIMIT;
        loop {
            if let Some(outcome) = client.wait(limit) {
                return outcome;
            }
            let mut state = lock(&self.state);
            // Nobody is told while the state is locked.
            if let Some(outcome) = client.wait(Duration::ZERO) {
                return outcome;
            }
            limit = WORKER_START_LIMIT.saturating_sub(state.progress.elapsed());
            if limit.is_zero() {
                state
                    .clients
                    .retain(|(waiting, _)| !Arc::ptr_eq(waiting, &client));
                return Err(format!(
                    "no worker was ready within {} s",
                    WORKER_START_LIMIT.as_secs()
                ));
            }
        }
    }

    /// As [`take`](Self::take), with a worker that is started for the session, in its job.
    pub(super) fn take_of_job(&self, job: &Job, ended: EndCallback) -> Result<Arc<Worker>, String> {
        let client = Arc::new(WaitingClient::default());
        let mut state = lock(&self.state);
        if state.stopping {
            return Err("the server is shutting down".into());
        }
        state.started += 1;
        let number = state.started;
        state.promised.insert(number, (Arc::clone(&client), ended));
        drop(state);
        if let Err(reason) = self.start_one(number, Some(job)) {
            let mut state = lock(&self.state);
            state.promised.remove(&number);
            state.assigned.remove(&number);
            drop(state);
            self.changed.notify_all();
            return Err(reason);
        }
        if let Some(outcome) = client.wait(WORKER_START_LIMIT) {
            return outcome;
        }
        let mut state = lock(&self.state);
        // Nobody is told while the state is locked.
        if let Some(outcome) = client.wait(Duration::ZERO) {
            return outcome;
        }
        state.promised.remove(&number);
        // The end of the worker is nobody's failure to start one.
        state.assigned.insert(number, Box::new(|_| ()));
        let mut starting = state.starting.iter();
        let late = starting.find(|worker| worker.number() == number).cloned();
        drop(state);
        if let Some(worker) = late {
            worker.ask_to_end();
            // It is of use to nobody else, and may not listen.
            worker.wait_reaped(WORKER_END_LIMIT);
        }
        Err(format!(
            "its worker was not ready within {} s",
            WORKER_START_LIMIT.as_secs()
        ))
    }

    /// An account for the workers of a job; in the error, why there is none.
    pub(super) fn account(&self) -> Result<Account, String> {
        let first = self.first_user.wrapping_add(lock(&self.state).started);
        match &*lock(&self.folder) {
            Some(folder) => self.account_in(folder, first),
            None => Err("the server is shutting down".into()),
        }
    }

    /// The account that the server's operator names, or a number that no other has; nothing where this process cannot give any.
    fn account_in(&self, folder: &RuntimeFolder, first: u64) -> Result<Account, String> {
        let privileged = rustix::process::geteuid().is_root() && !self.jail.disabled;
        match (privileged, &self.jail.user) {
            (false, _) => Ok((None, None)),
            (true, Some(user)) => Ok((Some(user.clone()), None)),
            (true, None) => {
                let leased = folder.lease_user(first);
                let leased = leased.map_err(|error| format!("no user for it: {error}"))?;
                Ok((Some(leased.0), Some(Arc::new(leased.1))))
            }
        }
    }

    /// Ends all workers and returns when they are reaped, but for those that hang in the kernel.
    pub(super) fn stop(&self) {
        let mut state = lock(&self.state);
        state.stopping = true;
        state.stop_by = Some(Instant::now() + WORKER_END_LIMIT + KILL_LIMIT);
        state.disappoint(usize::MAX, "the server is shutting down");
        for (number, (client, _)) in std::mem::take(&mut state.promised) {
            client.tell(Err("the server is shutting down".into()));
            state.assigned.insert(number, Box::new(|_| ()));
        }
        let idle: Vec<_> = state.ready.iter().chain(&state.starting).cloned().collect();
        drop(state);
        self.changed.notify_all();
        idle.iter().for_each(|worker| worker.ask_to_end());
        for worker in idle {
            worker.wait_reaped(WORKER_END_LIMIT);
        }
        // It ends when every worker has.
        let spawner = lock(&self.spawner).take();
        if spawner.is_some_and(|spawner| spawner.join().is_err()) {
            log::error!("the thread that starts workers panicked");
        }
        drop(lock(&self.folder).take());
    }

    /// Body of the spawner thread.
    fn start_wanted(&self) {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            if let Some(stop_by) = state.stop_by {
                match state.live() {
                    0 => return,
                    left if stop_by <= now => {
                        log::error!("{left} workers do not die: they hang in the kernel");
                        return;
                    }
                    _ => {}
                }
            }
            let ready = state.ready.len();
            let review = state.ahead.review(ready, now);
            let (on_the_way, late) = state.on_the_way();
            let wanted = state.wanted();
            if wanted < ready && !state.stopping {
                let spare = state.dismiss_down_to(wanted);
                drop(state);
                spare.iter().for_each(|worker| worker.ask_to_end());
                state = lock(&self.state);
                continue;
            }
            let lacking =
                !state.stopping && ready + on_the_way < wanted && on_the_way < self.most_starting;
            let pausing = state.not_before.filter(|at| lacking && *at > now);
            if lacking && pausing.is_none() {
                state.started += 1;
                let number = state.started;
                drop(state);
                if let Err(reason) = self.start_one(number, None) {
                    self.note_failure(reason);
                }
                state = lock(&self.state);
                continue;
            }
            let until = [pausing, review, late, state.stop_by];
            let until = until.into_iter().flatten().min();
            state = match until {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    self.changed
                        .wait_timeout(state, at.saturating_duration_since(now))
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    /// Starts one worker, of a job or for any session; that it is ready, or has failed, comes as an event.
    fn start_one(&self, number: u64, job: Option<&Job>) -> Result<(), String> {
        let mut user = None;
        let home = match &*lock(&self.folder) {
            Some(folder) => {
                let account = match job {
                    Some(job) => job.account(),
                    None => self.account_in(folder, self.first_user.wrapping_add(number))?,
                };
                user = account.0;
                folder.make_home(number, &mut user, account.1)
            }
            None => Err(std::io::ErrorKind::NotFound.into()),
        };
        let home = home.map_err(|error| format!("no folder for it: {error}"))?;
        let shared_user = user.is_none() || self.jail.user.is_some();
        let own_pids = !self.jail.disabled && self.program.kind.has_own_pids(shared_user);
        let attempt = || {
            let (ours, theirs) = Channel::pair()?;
            let Started {
                process,
                output,
                missing,
            } = match job {
                None => WorkerProcess::start(&self.program, theirs, own_pids)?,
                Some(job) => {
                    let mut program = self.program.clone();
                    program.environment.extend(job.config().environment.clone());
                    WorkerProcess::start_of_job(&program, theirs, job.namespaces().cloned())?
                }
            };
            let mut keep_readable = self.jail.keep_readable.clone();
            keep_readable.extend(
                job.iter()
                    .flat_map(|job| job.config().keep_readable.clone()),
            );
            let numbers = user.as_ref().map(|user| (user.uid, user.gid));
            let jail = (!self.jail.disabled).then(|| JailRequest {
                kind: self.program.kind,
                user,
                numbers: (
                    rustix::process::geteuid().as_raw(),
                    rustix::process::getegid().as_raw(),
                ),
                shared_user,
                network: job.map_or(Network::Own, Job::network),
                shares_memory: job.is_some_and(|job| job.namespaces().is_some()),
                temporary_bytes: self.temporary_bytes,
                missing: missing.into_iter().collect(),
                home: home.path().to_owned(),
                keep_readable,
                hide: self.jail.hide.clone(),
            });
            let start = ToWorker::Start {
                jail,
                home: home.path().to_owned(),
            };
            let shares = (
                Arc::clone(&self.offers),
                Arc::clone(&self.images),
                job.map(Job::bonds),
            );
            let worker = Worker::new(number, &process, numbers, ours, shares, self.pins_lanes);
            output::follow(output, worker.label(), self.log_lines)?;
            log::debug!("worker {} starts", worker.pid());
            let mut state = lock(&self.state);
            state.starting.push(Arc::clone(&worker));
            let stopping = state.stopping;
            drop(state);
            if stopping {
                worker.ask_to_end();
            }
            let events: Arc<dyn WorkerEvents> =
                self.this.upgrade().expect("the spawner holds the pool");
            worker.watch(process, &start, home, events)
        };
        attempt().map_err(|error| {
            // Whatever was started is killed by now.
            lock(&self.state)
                .starting
                .retain(|worker| worker.number() != number);
            describe(&error)
        })
    }

    fn note_failure(&self, reason: String) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        // Several may fail in one attempt.
        if state.not_before.is_none_or(|at| at <= now) {
            let pause = FIRST_PAUSE.saturating_mul(1 << state.failures.min(10));
            state.not_before = Some(now + pause.min(LONGEST_PAUSE));
            state.failures += 1;
        }
        state.failure_count += 1;
        if !state.stopping {
            log::log!(self.failure, "a worker could not start: {reason}");
        }
        // Where one has been ready before, the next may well be.
        let told = match state.snapshot.is_empty() || state.failures >= HOPELESS {
            true => usize::MAX,
            false => 1,
        };
        state.disappoint(told, &reason);
        if state.snapshot.is_empty() {
            // The next client tries again, and nobody else.
            state.ahead.forget();
        }
        state.last_failure = reason;
        drop(state);
        self.changed.notify_all();
    }
}

impl WorkerEvents for WorkerPool {
    fn ready(&self, worker: &Arc<Worker>, jail_missing: &[String]) {
        self.timings.start.observe(worker.age().as_secs_f64());
        let mut state = lock(&self.state);
        // The same for every worker of this system: once is enough.
        let level = if std::mem::replace(&mut state.jail_told, true) {
            log::Level::Debug
        } else {
            log::Level::Warn
        };
        for missing in jail_missing {
            log::log!(
                level,
                "the jail is incomplete, because this system does not permit it: {missing}"
            );
        }
        state
            .starting
            .retain(|starting| !Arc::ptr_eq(starting, worker));
        state.snapshot = worker.snapshot().to_vec();
        state.failures = 0;
        state.not_before = None;
        state.progress = Instant::now();
        let stopping = state.stopping;
        let promised = state.promised.remove(&worker.number());
        let late = state.assigned.contains_key(&worker.number());
        let waits = promised.or_else(|| match late {
            true => None,
            false => state.clients.pop_front(),
        });
        match waits {
            // Its client waits no longer, and it was asked to end.
            None if late => {}
            Some((client, ended)) => {
                state.assigned.insert(worker.number(), ended);
                client.tell(Ok(Arc::clone(worker)));
            }
            None => state.ready.push_back(Arc::clone(worker)),
        }
        drop(state);
        self.changed.notify_all();
        log::debug!("worker {} is ready", worker.pid());
        if stopping {
            worker.ask_to_end();
        }
    }

    fn ended(&self, worker: &Arc<Worker>, ending: Option<Ending>) {
        let mut state = lock(&self.state);
        if let Some((client, _)) = state.promised.remove(&worker.number()) {
            state
                .starting
                .retain(|starting| !Arc::ptr_eq(starting, worker));
            let reason = ending.map(|ending| ending.reason);
            let reason = reason.unwrap_or_else(|| "it ended before it was ready".into());
            log::log!(self.failure, "a worker could not start: {reason}");
            client.tell(Err(reason));
            drop(state);
            self.changed.notify_all();
            return;
        }
        if let Some(tell) = state.assigned.remove(&worker.number()) {
            // It may not have been ready yet.
            state
                .starting
                .retain(|starting| !Arc::ptr_eq(starting, worker));
            drop(state);
            self.changed.notify_all();
            tell(ending);
            return;
        }
        state
            .starting
            .retain(|starting| !Arc::ptr_eq(starting, worker));
        let was_ready = state.ready.iter().any(|ready| Arc::ptr_eq(ready, worker));
        state.ready.retain(|ready| !Arc::ptr_eq(ready, worker));
        drop(state);
        match was_ready {
            true => {
                if let Some(Ending { reason, .. }) = ending {
                    log::error!(
                        "worker {} ended before it had a session: {reason}",
                        worker.pid()
                    );
                }
                self.changed.notify_all();
            }
            false => self.note_failure(ending.map_or_else(
                || "it ended before it was ready".into(),
                |ending| ending.reason,
            )),
        }
    }
}
