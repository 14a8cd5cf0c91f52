//! The worker processes: one is always started ahead, so that a client does not wait for a driver to load.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use towline_sys::channel::Channel;
use towline_sys::jail::{JailRequest, UnprivilegedUser};
use towline_sys::process::{WorkerProcess, WorkerProgram};
use towline_worker::{Images, Offers};

use super::folder::{self, RuntimeFolder};
use super::worker::{Ending, Worker, WorkerEvents};
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

/// Told when the worker of a session is gone.
pub(super) type EndCallback = Box<dyn FnOnce(Option<Ending>) + Send>;

/// All workers of a supervisor.
pub(super) struct WorkerPool {
    program: WorkerProgram,
    /// How bad it is when a worker cannot start.
    failure: log::Level,
    jail: JailConfig,
    /// Gone when stopped.
    folder: Mutex<Option<RuntimeFolder>>,
    /// Where this supervisor's user numbers start; random, so that those of two supervisors rarely meet.
    first_user: u64,
    state: Mutex<State>,
    changed: Condvar,
    spawner: Mutex<Option<JoinHandle<()>>>,
    /// What sessions of these workers share.
    offers: Arc<Offers>,
    /// Device code that they bring.
    images: Arc<Images>,
    this: Weak<Self>,
}

#[derive(Default)]
struct State {
    starting: Vec<Arc<Worker>>,
    ready: VecDeque<Arc<Worker>>,
    /// The devices, as the newest worker saw them: all workers see the same.
    snapshot: Vec<u8>,
    /// Workers of sessions, by number, and whom to tell when they end.
    assigned: HashMap<u64, EndCallback>,
    /// Clients that wait for a worker.
    waiting: usize,
    /// How many workers to have ready for clients to come.
    ahead: usize,
    /// Whether one is kept ready once a client has come.
    learns: bool,
    /// Started in all.
    started: u64,
    /// Failures to start since the last success, and when the next attempt may be.
    failures: u32,
    failure_count: u64,
    last_failure: String,
    /// Whether it was logged what the jail lacks.
    jail_told: bool,
    not_before: Option<Instant>,
    stopping: bool,
}

impl State {
    fn live(&self) -> usize {
        self.starting.len() + self.ready.len() + self.assigned.len()
    }
}

impl WorkerPool {
    /// Starts the thread that starts workers of `program`: at once as many as there are to be `ahead` of clients; with none, the first
    /// when a client asks for it, and from then on one ahead.
    pub(super) fn start(
        config: &SupervisorConfig,
        program: &WorkerProgram,
        folder: RuntimeFolder,
        ahead: usize,
        images: Arc<Images>,
    ) -> Result<Arc<Self>, SupervisorError> {
        let failure = log::Level::Error;
        Self::start_with(config, program, failure, folder, ahead, true, images)
    }

    /// As [`start`](Self::start) with none ahead, of a program that may well be of no use here.
    pub(super) fn start_hopefully(
        config: &SupervisorConfig,
        program: &WorkerProgram,
        folder: RuntimeFolder,
        images: Arc<Images>,
    ) -> Result<Arc<Self>, SupervisorError> {
        let failure = log::Level::Info;
        Self::start_with(config, program, failure, folder, 0, true, images)
    }

    /// As [`start`](Self::start), with none ahead ever.
    pub(super) fn start_on_demand(
        config: &SupervisorConfig,
        program: &WorkerProgram,
        folder: RuntimeFolder,
    ) -> Result<Arc<Self>, SupervisorError> {
        let (failure, images) = (log::Level::Error, Arc::default());
        Self::start_with(config, program, failure, folder, 0, false, images)
    }

    fn start_with(
        config: &SupervisorConfig,
        program: &WorkerProgram,
        failure: log::Level,
        folder: RuntimeFolder,
        ahead: usize,
        learns: bool,
        images: Arc<Images>,
    ) -> Result<Arc<Self>, SupervisorError> {
        let first_user = u64::from(u32::from_le_bytes(super::random()?));
        let pool = Arc::new_cyclic(|this| Self {
            program: program.clone(),
            failure,
            jail: config.jail.clone(),
            folder: Mutex::new(Some(folder)),
            first_user,
            state: Mutex::new(State {
                ahead,
                learns,
                ..State::default()
            }),
            changed: Condvar::new(),
            spawner: Mutex::new(None),
            offers: Arc::default(),
            images,
            this: this.clone(),
        });
        let body = Arc::clone(&pool);
        let spawner = spawn("spawner", move || body.keep_one_ready())?;
        *lock(&pool.spawner) = Some(spawner);
        Ok(pool)
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

    /// The devices, as a worker sees them that is started for that if none has been; in the error, why none sees them.
    pub(super) fn look(&self, interrupted: &AtomicBool) -> Result<Vec<u8>, String> {
        let deadline = Instant::now() + WORKER_START_LIMIT;
        let mut state = lock(&self.state);
        let pausing = state.not_before.is_some_and(|at| at > Instant::now());
        if state.snapshot.is_empty() && pausing {
            // Who asks again at once is told again.
            return Err(state.last_failure.clone());
        }
        let failures_before = state.failure_count;
        state.waiting += 1;
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
        state.waiting -= 1;
        // Whom no client has asked for does not stay and hold the device.
        let spare: Vec<_> = match (state.ahead, state.waiting) {
            (0, 0) => state.ready.drain(..).collect(),
            _ => Vec::new(),
        };
        for worker in &spare {
            // Taken by nobody, whom nobody is told of.
            state.assigned.insert(worker.number(), Box::new(|_| ()));
        }
        drop(state);
        spare.iter().for_each(|worker| worker.ask_to_end());
        outcome
    }

    /// A worker for a session; in the error, why there is none. Give it back by ending it.
    ///
    /// `ended` is called when the worker is gone, from another thread, and even if that is at once.
    pub(super) fn take(&self, ended: EndCallback) -> Result<Arc<Worker>, String> {
        let mut state = lock(&self.state);
        state.waiting += 1;
        state.ahead = state.ahead.max(usize::from(state.learns));
        self.changed.notify_all();
        let failures_before = state.failure_count;
        let waited = self
            .changed
            .wait_timeout_while(state, WORKER_START_LIMIT, |state| {
                state.ready.is_empty() && state.failure_count == failures_before && !state.stopping
            });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        if state.stopping {
            return Err("the server is shutting down".into());
        }
        let Some(worker) = state.ready.pop_front() else {
            if state.snapshot.is_empty() {
                // None has ever been ready: the next client tries again, and nobody else.
                state.ahead = 0;
            }
            return Err(match state.failure_count == failures_before {
                true => format!(
                    "no worker was ready within {} s",
                    WORKER_START_LIMIT.as_secs()
                ),
                false => state.last_failure.clone(),
            });
        };
        state.assigned.insert(worker.number(), ended);
        drop(state);
        self.changed.notify_all();
        Ok(worker)
    }

    /// Ends all workers and returns when they are reaped.
    pub(super) fn stop(&self) {
        let mut state = lock(&self.state);
        state.stopping = true;
        let idle: Vec<_> = state.ready.iter().chain(&state.starting).cloned().collect();
        drop(state);
        self.changed.notify_all();
        idle.iter().for_each(|worker| worker.ask_to_end());
        for worker in idle {
            worker.wait_reaped(WORKER_END_LIMIT);
        }
        // The spawner outlives every worker: they die with the thread that started them.
        let spawner = lock(&self.spawner).take();
        if spawner.is_some_and(|spawner| spawner.join().is_err()) {
            log::error!("the thread that starts workers panicked");
        }
        drop(lock(&self.folder).take());
    }

    /// Body of the spawner thread.
    fn keep_one_ready(&self) {
        let mut state = lock(&self.state);
        loop {
            if state.stopping && state.live() == 0 {
                return;
            }
            let wanted = !state.stopping
                && state.ready.len() + state.starting.len() < state.ahead + state.waiting;
            let pause = state
                .not_before
                .map(|at| at.saturating_duration_since(Instant::now()));
            state = match (wanted, pause) {
                (true, Some(pause)) if !pause.is_zero() => {
                    self.changed
                        .wait_timeout(state, pause)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                (true, _) => {
                    state.started += 1;
                    let number = state.started;
                    drop(state);
                    if let Err(reason) = self.start_one(number) {
                        self.note_failure(reason);
                    }
                    lock(&self.state)
                }
                (false, _) => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Starts one worker; that it is ready, or has failed, comes as an event.
    fn start_one(&self, number: u64) -> Result<(), String> {
        let privileged = rustix::process::geteuid().is_root();
        let mut user = (privileged && !self.jail.disabled).then(|| {
            let dynamic = || UnprivilegedUser::dynamic(self.first_user.wrapping_add(number));
            self.jail.user.clone().unwrap_or_else(dynamic)
        });
        let home = match &*lock(&self.folder) {
            Some(folder) => folder.make_home(number, &mut user),
            None => Err(std::io::ErrorKind::NotFound.into()),
        };
        let home = home.map_err(|error| format!("no folder for it: {error}"))?;
        let jail = (!self.jail.disabled).then(|| JailRequest {
            user,
            home: home.clone(),
            keep_readable: self.jail.keep_readable.clone(),
            hide: self.jail.hide.clone(),
        });
        let attempt = || {
            let (ours, theirs) = Channel::pair()?;
            let process = WorkerProcess::start(&self.program, theirs)?;
            let worker = Worker::new(
                number,
                &process,
                ours,
                Arc::clone(&self.offers),
                Arc::clone(&self.images),
            );
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
            worker.watch(
                process,
                &ToWorker::Start {
                    jail,
                    home: home.clone(),
                },
                home.clone(),
                events,
            )
        };
        attempt().map_err(|error| {
            // Whatever was started is killed by now.
            lock(&self.state)
                .starting
                .retain(|worker| worker.number() != number);
            folder::remove(&home);
            describe(&error)
        })
    }

    fn note_failure(&self, reason: String) {
        let mut state = lock(&self.state);
        let pause = FIRST_PAUSE
            .saturating_mul(1 << state.failures.min(10))
            .min(LONGEST_PAUSE);
        state.failures += 1;
        state.failure_count += 1;
        state.not_before = Some(Instant::now() + pause);
        if !state.stopping {
            log::log!(self.failure, "a worker could not start: {reason}");
        }
        state.last_failure = reason;
        drop(state);
        self.changed.notify_all();
    }
}

impl WorkerEvents for WorkerPool {
    fn ready(&self, worker: &Arc<Worker>, jail_missing: &[String]) {
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
        let stopping = state.stopping;
        state.ready.push_back(Arc::clone(worker));
        drop(state);
        self.changed.notify_all();
        log::debug!("worker {} is ready", worker.pid());
        if stopping {
            worker.ask_to_end();
        }
    }

    fn ended(&self, worker: &Arc<Worker>, ending: Option<Ending>) {
        let mut state = lock(&self.state);
        if let Some(tell) = state.assigned.remove(&worker.number()) {
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
