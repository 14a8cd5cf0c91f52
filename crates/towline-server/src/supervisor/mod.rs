//! The supervisor: the process that clients reach.
//!
//! It accepts connections, makes clients prove themselves, gives each session a worker process of its own, passes the
//! session's lanes to it, and cleans up after it however it ends. It runs no device code and reads no data of a session.
//!
//! - `accept`: listeners, and the bounded set of connections that have not proven themselves yet.
//! - `ahead`: how many workers wait for clients to come.
//! - `arbiter`, `turns`: which tenant's sessions have a device next that several share.
//! - `audit`: a line of JSON for each session and for refusals.
//! - `budget`: how many descriptors sessions, offers and images may have.
//! - `cgroup`: a control group for each session, where this server may make some.
//! - `control`: a control connection from its first byte to its last.
//! - `ending`: why sessions end.
//! - `job`: sessions of a tenant whose workers reach each other.
//! - `kernels`: what compilers of a tenant's sessions have made, for its later sessions.
//! - `metrics`: figures of all of this for a monitoring system, over HTTP.
//! - `monitor`: the one worker that asks NVML what clients ask.
//! - `origin`: where connections come from.
//! - `peer`: connections between workers here and workers of the servers that this one lists.
//! - `session`: the table of sessions, and what joins a lane to one.
//! - `pool`: worker processes of one kind; some are started ahead, so that clients do not wait for a driver to load: always for
//!   OpenCL, for CUDA once somebody has asked for it.
//! - `query`: connections that only ask.
//! - `quota`: how much of the server one session may have.
//! - `refusal`: counts refused connections, and logs few of them.
//! - `swap`: which session gives its device memory up for another.
//! - `tenant`: whose sessions are whose, and what each tenant may have.
//! - `worker`: one worker process, from start to reaping.
//! - `deadline`: closes connections whose peers are too slow.
//! - `folder`: the workers' folders on disk, and their user numbers.
//! - `output`: what workers write, on its way to the log.
//!
//! Lock order: jobs, then the folders of workers. Tickets of peer lanes, a session's lanes, then the table of sessions, then a pool, then swaps, then a worker's state, then turns, then the
//! table of tenants, then a tenant. Places of questions come last. Stores of kernels, then the sessions of one, then what is saved of one. No lock is held while sending to
//! a client.

mod accept;
mod ahead;
mod arbiter;
mod audit;
mod budget;
mod cgroup;
mod control;
mod deadline;
mod devices;
mod ending;
mod folder;
mod job;
mod kernels;
mod lease;
mod metrics;
mod migration;
mod monitor;
mod origin;
mod output;
mod peer;
mod pool;
mod query;
mod quota;
mod refusal;
mod session;
mod swap;
mod tenant;
mod turns;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use towline_sys::SysError;
use towline_sys::jail::UnprivilegedUser;
use towline_sys::process::WorkerProgram;
use towline_transport::tls::ServerTls;
use towline_transport::{Address, Listener, Registry, TransportError};
use towline_wire::control::{
    Message, RejectCode, ServerIdentity, SessionLimits, Tenants as _, Token,
};
use towline_worker::{Images, Offers};

use self::accept::Unproven;
use self::ahead::Bounds;
use self::audit::{Audit, Event};
use self::budget::Budget;
use self::cgroup::Groups;
use self::control::Client;
use self::deadline::Deadlines;
use self::folder::RuntimeFolder;
use self::job::Jobs;
pub use self::job::{CollectivesConfig, Reach};
pub use self::kernels::KernelConfig;
use self::kernels::KernelStores;
pub use self::lease::{LeaseChange, LeaseChooser, LeaseStore};
pub use self::metrics::MetricsConfig;
use self::metrics::{Metrics, TimingFamilies};
use self::migration::{Wish, send_away};
use self::monitor::Monitor;
use self::peer::PeerTickets;
use self::pool::{PoolKind, WorkerPool};
use self::query::Queries;
pub use self::quota::{Quota, ServerLimits, WHOLE_DEVICES};
use self::refusal::Refusals;
use self::session::{Api, SessionTable};
use self::swap::SwapSpace;
pub use self::tenant::{DEFAULT_TENANT, QuotaChanges, TenantEntry, TenantLimits, TenantTable};
use self::turns::Turns;

/// How long a client may take for the whole handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// How long a client may take to read one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Connections that have not proven themselves, at once.
const MAX_UNPROVEN: usize = 256;
/// How old one of them must be before it makes place for a new one; until then new ones wait to be accepted, whoever they are of. An honest
/// client is through in milliseconds, so only those who flood us lose theirs. All that the system lets wait come in within a second.
const UNPROVEN_GRACE: Duration = Duration::from_millis(200);
/// The same for one that has said nothing yet.
const SILENT_GRACE: Duration = Duration::from_millis(50);
/// How long a client may wait for a worker to start: loading a driver on a machine with many devices takes seconds.
const WORKER_START_LIMIT: Duration = Duration::from_secs(60);

/// Longest time for which a client that has left goes unnoticed, where processors are busy.
const NOTICE_LIMIT: Duration = Duration::from_millis(500);

/// Longest wait for the place of a client that has left: its worker is killed before, and only a kernel that hangs keeps it.
const LEAVING_LIMIT: Duration = Duration::from_secs(5);

/// So many clients wait for a place at a time: of each tenant, and of the server.
const MOST_WAITING: u32 = 64;

/// How long a worker may take to end by itself before it is killed.
const WORKER_END_LIMIT: Duration = Duration::from_millis(300);

/// How to supervise.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    /// Where to listen.
    pub listen: Vec<Address>,
    /// The tenants that clients belong to, and their secrets. Without any secret, every client that can connect is let in.
    pub tenants: Arc<TenantTable>,
    /// Keeps the leases that admins ask for; `None` where they get none.
    pub leases: Option<Arc<dyn LeaseStore>>,
    /// What this server shows to clients, and whose certificates they must have, where connections are encrypted.
    pub tls: ServerTls,
    /// Take connections in the clear where they would be encrypted.
    pub no_encryption: bool,
    /// Listen and connect beyond this host although there is no token.
    pub insecure: bool,
    /// Servers whose workers may be connected to ours, if they list this one too.
    pub peers: Vec<Address>,
    /// The secret shared with those servers, which no client has.
    pub peer_token: Option<Token>,
    /// Most sessions at once.
    pub max_sessions: u32,
    /// File to append a line to for each session that begins and ends, and for refusals.
    pub audit_log: Option<PathBuf>,
    /// Figures for a monitoring system, if it is to get some.
    pub metrics: Option<MetricsConfig>,
    /// The limits of one session.
    pub quota: Quota,
    /// The limits of what clients take besides.
    pub bounds: ServerLimits,
    /// What sessions are told they may use.
    pub limits: SessionLimits,
    /// How to start a worker for OpenCL; `None` where OpenCL is not offered.
    pub worker: Option<WorkerProgram>,
    /// How to start a worker for CUDA; `None` where CUDA is not offered.
    pub cuda_worker: Option<WorkerProgram>,
    /// Whether it is an error when that cannot start, or only means that there is no CUDA here.
    pub cuda_is_expected: bool,
    /// How many workers may wait for clients to come.
    pub most_ahead: MostAhead,
    /// The way in which CUDA sessions of a job reach each other; `None` where they do not.
    pub collectives: Option<CollectivesConfig>,
    /// How to start the worker that asks NVML; `None` where nothing of it is told.
    pub nvml_worker: Option<WorkerProgram>,
    /// What is kept of the device code that CUDA programs bring.
    pub images: ImageConfig,
    /// How compiled kernels are kept for later sessions; `None` keeps none.
    pub kernels: Option<KernelConfig>,
    /// How to jail it.
    pub jail: JailConfig,
    /// What to call this server.
    pub identity: ServerIdentity,
}

/// How many workers may wait for clients to come, of each kind: one does, and more once clients had to wait.
#[derive(Clone, Copy, Debug)]
pub struct MostAhead {
    /// For OpenCL.
    pub opencl: usize,
    /// For CUDA. Each holds memory of the devices that it has contexts on.
    pub cuda: usize,
}

/// What is kept of the device code that CUDA programs bring, so that it need not come again.
#[derive(Clone, Debug, Default)]
pub struct ImageConfig {
    /// Most bytes in memory; with 0 nothing is kept.
    pub memory_bytes: u64,
    /// Folder where it outlives the server, with the most bytes there.
    pub folder: Option<(PathBuf, u64)>,
}

/// How to jail workers.
#[derive(Clone, Debug, Default)]
pub struct JailConfig {
    /// Not at all: for debugging.
    pub disabled: bool,
    /// The account that workers run as when the supervisor is root; without it each gets a user number of its own.
    pub user: Option<UnprivilegedUser>,
    /// Paths that workers must be able to read wherever they lie.
    pub keep_readable: Vec<PathBuf>,
    /// Paths that workers must not see although they could read them: secrets.
    pub hide: Vec<PathBuf>,
    /// Serve others than this host's users although this system does not keep apart workers that share a user.
    pub shared_user: bool,
}

/// Why a supervisor could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// The audit log cannot be written.
    #[error("cannot append to the audit log {}", path.display())]
    AuditLog {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Workers of a job could not be kept together and apart from all else.
    #[error(
        "cannot offer collectives between workers of this host (--collectives local): {reason}; run the server as root or where it may \
         make namespaces, have clients come over local sockets alone (--listen local), or have workers share the network of this host \
         (--collectives network)"
    )]
    Collectives {
        /// The cause.
        reason: String,
    },
    /// The workers' folders could not be made.
    #[error("cannot make a folder for workers in {}", folder.display())]
    Folder {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Device code cannot be kept.
    #[error("cannot keep device code in {}; name a folder that this user may write to", folder.display())]
    ImageFolder {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Compiled kernels cannot be kept.
    #[error("cannot keep compiled kernels in {}; name a folder of this user alone (--kernel-cache-folder), or say --kernel-cache 0", folder.display())]
    KernelFolder {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Anyone could read the metrics.
    #[error(
        "metrics at {address} could be read from other hosts; give --metrics-token-file, or listen on loopback or on unix:/PATH"
    )]
    MetricsWithoutToken {
        /// The address.
        address: Address,
    },
    /// Nowhere to listen.
    #[error("no address to listen on")]
    NoAddress,
    /// Anyone could use this host's devices.
    #[error(
        "{address} can be reached from other hosts, and without a token anyone there could use this host's devices; \
         give --token-file or --tenants-file, or say --insecure if the network is trusted"
    )]
    NoToken {
        /// The address.
        address: Address,
    },
    /// Anyone could pass for a peer.
    #[error(
        "the peer {address} is beyond this host, and without a token of their own neither server could tell the other from a client or \
         a stranger; give both --peer-token-file, or say --insecure if the network is trusted"
    )]
    PeerWithoutToken {
        /// The address.
        address: Address,
    },
    /// No random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
    /// Sessions of different people could reach each other.
    #[error(
        "{address} is not for this user's programs alone, and sessions would not be kept apart: workers share a user number, and \
         {reason}; serve loopback or a socket of this user alone, as root without --user, or say --shared-user if all clients trust \
         each other"
    )]
    SharedUser {
        /// The address.
        address: Address,
        /// What keeps workers from being apart.
        reason: String,
    },
    /// A system call failed.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// Listening failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The first worker did not get ready.
    #[error("the worker process cannot start: {reason}")]
    Worker {
        /// Why, as the worker says.
        reason: String,
    },
}

/// A running supervisor. [`stop`](Supervisor::stop) it, or drop it, to end it and its workers.
pub struct Supervisor {
    shared: Arc<Shared>,
    listeners: Vec<Arc<dyn Listener>>,
    /// For metrics.
    metrics: Option<Arc<dyn Listener>>,
    threads: Vec<JoinHandle<()>>,
}

/// What all threads of a supervisor share.
struct Shared {
    config: SupervisorConfig,
    started: Instant,
    draining: AtomicBool,
    /// A client has asked for the end of the server after that of its last session.
    ends_when_empty: AtomicBool,
    /// The most sessions that there are descriptors for.
    most_sessions: u32,
    /// The limits of one session, from now on.
    quota: Mutex<Quota>,
    sessions: Arc<SessionTable>,
    peer_tickets: PeerTickets,
    /// Workers for OpenCL; in the error, why there are none.
    pool: Result<Arc<WorkerPool>, String>,
    /// Workers for CUDA.
    cuda_pool: Option<Arc<WorkerPool>>,
    /// Jobs, where CUDA sessions may have some.
    jobs: Option<Jobs>,
    monitor: Option<Monitor>,
    /// Compiled kernels.
    kernels: Option<Arc<KernelStores>>,
    /// Turns on devices, where there are several tenants.
    turns: Option<Arc<Turns>>,
    /// Host memory for sessions that give their device memory up, where there is any.
    swap: Option<Arc<SwapSpace>>,
    /// Where sessions get control groups.
    groups: Option<Groups>,
    unproven: Unproven,
    deadlines: Arc<Deadlines>,
    queries: Queries,
    refusals: Refusals,
    audit: Option<Arc<Audit>>,
    metrics: Option<Metrics>,
}

impl Shared {
    /// See [`Supervisor::drain`].
    fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.sessions.close();
    }

    /// Drains the server because a client asks for it from `address`, and has it end with its last session; in the error, why not.
    fn drain_for(&self, by: &Client, address: &str) -> Result<(), String> {
        let (tenant, host) = (by.tenant.name(), &by.hello.hostname);
        if !by.tenant.is_admin() {
            return Err("only tenants that are admins may drain the server".into());
        }
        let is_told = by.tenant.requests().admit() || !self.draining.load(Ordering::Acquire);
        if is_told {
            log::info!(
                "no more sessions: `towline drain` on {host}, from {address}, asked for it as tenant {tenant}"
            );
        }
        self.drain();
        self.ends_when_empty.store(true, Ordering::Release);
        if let (Some(audit), true) = (&self.audit, is_told) {
            audit.tell(&Event::ServerDrained {
                by_tenant: tenant,
                by_host: host,
                by_pid: by.hello.pid,
                by_address: address,
            });
        }
        Ok(())
    }
}

impl Supervisor {
    /// Listens, starts the first worker, and accepts clients once that is ready.
    pub fn start(config: SupervisorConfig) -> Result<Self, SupervisorError> {
        Self::start_unless(config, Vec::new(), &AtomicBool::new(false))
    }

    /// Like [`start`](Self::start), but gives up soon after `interrupted` becomes true: a driver may take long to load. Of the addresses
    /// to listen on, those that `given` listens on already are left to it.
    pub fn start_unless(
        mut config: SupervisorConfig,
        mut given: Vec<Box<dyn Listener>>,
        interrupted: &AtomicBool,
    ) -> Result<Self, SupervisorError> {
        if config.listen.is_empty() {
            return Err(SupervisorError::NoAddress);
        }
        for address in &config.listen {
            check_reach(address, &config)?;
        }
        for address in &config.peers {
            check_peer(address, &config)?;
        }
        if let Some(metrics) = &config.metrics {
            metrics.check()?;
        }
        check_separation(&config)?;
        // It tells of all tenants, and workers may have our own user.
        let told = config.audit_log.as_deref().map(std::path::absolute);
        config.jail.hide.extend(told.and_then(Result::ok));
        towline_sys::process::become_subreaper()?;
        let collectives = config.collectives.as_ref();
        let collectives = collectives.filter(|_| config.cuda_worker.is_some());
        let jobs = collectives
            .map(|collectives| Jobs::new(collectives, &config))
            .transpose()?;
        config.identity.collectives = jobs.is_some();
        let listeners = config
            .listen
            .iter()
            .map(|address| {
                let mut there = given.iter();
                let there = there.position(|listener| listener.local_address() == *address);
                Ok(match there {
                    Some(index) => Arc::from(given.swap_remove(index)),
                    None => Arc::from(Registry::global().listen(address)?),
                })
            })
            .collect::<Result<Vec<Arc<dyn Listener>>, TransportError>>()?;
        let metrics = config.metrics.as_ref();
        let metrics_listener = metrics.map(MetricsConfig::listen).transpose()?;
        let audit = config.audit_log.as_deref().map(|path| {
            Audit::open(path).map_err(|source| SupervisorError::AuditLog {
                path: path.to_owned(),
                source,
            })
        });
        let audit = audit.transpose()?.map(Arc::new);
        let budget = Budget::of(
            towline_sys::process::descriptor_limit(),
            config.max_sessions,
            config.bounds.queries,
        );
        if budget.sessions < config.max_sessions {
            log::warn!(
                "this process may have descriptors for {} sessions only, not for {}: raise its limit of open files (LimitNOFILE=, ulimit -n)",
                budget.sessions,
                config.max_sessions
            );
        }
        let kernels = KernelStores::start(&config)?;
        if let (Some(kernels), true) = (&kernels, config.tenants.is_listed()) {
            kernels.keep_only(&config.tenants.all());
        }
        // Before the first worker, which this process cannot take along into another group.
        let groups = groups(&config);
        let timings = TimingFamilies::new();
        let pins_lanes = jobs.as_ref().is_some_and(Jobs::have_network);
        let (pool, cuda_pool) = start_pools(&config, budget, &timings, pins_lanes, interrupted)?;
        let monitor = match &config.nvml_worker {
            None => None,
            Some(program) => Some(Monitor::new(WorkerPool::start(
                &config,
                program,
                RuntimeFolder::make()?,
                PoolKind {
                    failure: log::Level::Error,
                    ahead: Bounds {
                        initial: 0,
                        least: 0,
                        most: 0,
                    },
                    images: Arc::default(),
                    offers: Offers::new(0, 0),
                    pins_lanes,
                    timings: timings.of("nvml"),
                },
            )?)),
        };
        let shared = Arc::new(Shared {
            started: Instant::now(),
            draining: AtomicBool::new(false),
            ends_when_empty: AtomicBool::new(false),
            most_sessions: budget.most,
            quota: Mutex::new(config.quota),
            sessions: Arc::new(SessionTable::new(config.max_sessions, budget.sessions)),
            peer_tickets: PeerTickets::default(),
            pool,
            cuda_pool,
            jobs,
            monitor,
            kernels,
            turns: config
                .tenants
                .is_listed()
                .then(|| Turns::new(config.bounds.default_share)),
            swap: (config.bounds.swap_bytes > 0).then(|| SwapSpace::new(config.bounds.swap_bytes)),
            groups,
            unproven: Unproven::default(),
            deadlines: Deadlines::start()?,
            queries: Queries::new(
                config.bounds.queries,
                config.bounds.queries.max(1).saturating_mul(2),
                Message::Reject(RejectCode::Busy.plain()).encode(),
            ),
            refusals: Refusals::new(audit.clone()),
            audit,
            metrics: metrics.map(|metrics| Metrics::new(metrics, timings)),
            config,
        });
        let mut supervisor = Self {
            shared,
            listeners,
            metrics: metrics_listener,
            threads: Vec::new(),
        };
        for listener in &supervisor.listeners {
            let (listener, shared) = (Arc::clone(listener), Arc::clone(&supervisor.shared));
            let accept = move || accept::accept_loop(&*listener, &shared);
            supervisor.threads.push(spawn("accept", accept)?);
        }
        if let Some(listener) = &supervisor.metrics {
            metrics::announce(&**listener);
            let (listener, shared) = (Arc::clone(listener), Arc::clone(&supervisor.shared));
            let accept = move || metrics::accept_loop(&*listener, &shared);
            supervisor.threads.push(spawn("accept", accept)?);
        }
        Ok(supervisor)
    }

    /// Where it listens, with real port numbers.
    pub fn addresses(&self) -> Vec<Address> {
        self.listeners
            .iter()
            .map(|listener| listener.local_address())
            .collect()
    }

    /// The address of its metrics, with the real port number.
    pub fn metrics_address(&self) -> Option<Address> {
        self.metrics
            .as_ref()
            .map(|listener| listener.local_address())
    }

    /// Takes new entries of tenants: sessions of tenants that have none any more end, and what else has changed acts on new sessions and
    /// new allocations. Only where there were entries at the start.
    pub fn set_tenants(&self, entries: BTreeMap<String, TenantEntry>) {
        self.shared.set_tenants(entries);
    }

    /// Ends the sessions of tenants whose time is over, for new ones are refused from then on. To be called several times a second.
    pub fn end_expired(&self) {
        self.shared.end_expired();
    }

    /// Takes a new secret in the place of the one that all clients share; false where there was none at the start.
    pub fn set_token(&self, token: Token) -> bool {
        self.shared.config.tenants.set_shared_token(token)
    }

    /// Takes other limits for sessions that begin from now on; the size of their temporary files stays that of the start.
    pub fn set_limits(&self, max_sessions: u32, quota: Quota) {
        let shared = &self.shared;
        shared.sessions.set_max(max_sessions, shared.most_sessions);
        *lock(&self.shared.quota) = Quota {
            temporary_bytes: self.shared.config.quota.temporary_bytes,
            ..quota
        };
    }

    /// Refuses new sessions; those that there are go on, and questions are answered.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Whether the server was asked to end without sessions, and has none.
    pub fn is_drained(&self) -> bool {
        self.shared.ends_when_empty.load(Ordering::Acquire) && self.sessions() == 0
    }

    /// Asks the clients of all sessions to move them to the server at `to`. They do so while this returns; the log says which stayed.
    pub fn migrate_all(&self, to: &Address) {
        for session in self.shared.sessions.all() {
            let (id, shared) = (session.id, Arc::clone(&self.shared));
            let wish = Wish::Move(to.to_string());
            let work = move || {
                let possible = wish.check();
                let sent = possible.and_then(|()| send_away(&session, &wish, &|| false, &shared));
                if let Err(reason) = sent {
                    log::warn!("session {}: it stays: {reason}", session.id);
                }
            };
            if let Err(error) = spawn("migrate", work) {
                log::error!("session {id}: it stays: {error}");
            }
        }
    }

    /// The number of sessions, with those that are about to begin.
    pub fn sessions(&self) -> u64 {
        self.shared.sessions.count()
    }

    /// Stops accepting, tells every client, ends every worker, and returns when nothing is left.
    pub fn stop(mut self) {
        self.stop_now();
    }

    fn stop_now(&mut self) {
        self.shared.draining.store(true, Ordering::Release);
        let listeners = self.listeners.iter().chain(&self.metrics);
        listeners.for_each(|listener| listener.close());
        self.shared.unproven.close_all();
        self.shared.sessions.end_all("the server is shutting down");
        if let Ok(pool) = &self.shared.pool {
            pool.stop();
        }
        if let Some(pool) = &self.shared.cuda_pool {
            pool.stop();
        }
        if let Some(monitor) = &self.shared.monitor {
            monitor.stop();
        }
        if let Some(kernels) = &self.shared.kernels {
            kernels.stop();
        }
        self.shared.deadlines.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("a listener's thread panicked");
            }
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop_now();
    }
}

/// Where sessions get control groups.
fn groups(config: &SupervisorConfig) -> Option<Groups> {
    if config.jail.disabled {
        return None;
    }
    let quota = &config.quota;
    match Groups::open() {
        Ok(groups) => Some(groups),
        Err(reason) if quota.cpu_percent > 0 => {
            log::warn!("--session-cpus limits nothing, without control groups: {reason}");
            None
        }
        Err(reason) => {
            log::debug!("sessions have no control groups: {reason}");
            None
        }
    }
}

/// Where device code is kept.
fn images(config: &ImageConfig) -> Result<Images, SupervisorError> {
    let images = Images::in_memory(config.memory_bytes);
    match &config.folder {
        None => Ok(images),
        Some((folder, bytes)) => {
            images
                .with_folder(folder, *bytes)
                .map_err(|source| SupervisorError::ImageFolder {
                    folder: folder.clone(),
                    source,
                })
        }
    }
}

/// Workers for OpenCL, or why there are none, and for CUDA.
type Pools = (Result<Arc<WorkerPool>, String>, Option<Arc<WorkerPool>>);

/// Starts the pools of both APIs. Without OpenCL devices there must be CUDA devices.
fn start_pools(
    config: &SupervisorConfig,
    budget: Budget,
    timings: &TimingFamilies,
    pins_lanes: bool,
    interrupted: &AtomicBool,
) -> Result<Pools, SupervisorError> {
    let pool = match &config.worker {
        None => Err("it was started without".to_owned()),
        Some(program) => {
            let kind = PoolKind {
                failure: log::Level::Error,
                ahead: Bounds {
                    initial: 1,
                    least: 1,
                    most: config.most_ahead.opencl,
                },
                images: Arc::default(),
                offers: Offers::new(0, 0),
                pins_lanes,
                timings: timings.of(Api::OpenCl.name()),
            };
            let pool = WorkerPool::start(config, program, RuntimeFolder::make()?, kind)?;
            match pool.wait_first_ready(interrupted) {
                Ok(()) => Ok(pool),
                Err(reason) => {
                    pool.stop();
                    Err(reason)
                }
            }
        }
    };
    // A driver holds memory of every device while it is loaded: none is before somebody wants it.
    let cuda_pool = match &config.cuda_worker {
        None => None,
        Some(program) => {
            let kind = PoolKind {
                failure: match config.cuda_is_expected {
                    true => log::Level::Error,
                    false => log::Level::Info,
                },
                ahead: Bounds {
                    initial: 0,
                    least: 1,
                    most: config.most_ahead.cuda,
                },
                images: Arc::new(
                    images(&config.images)?.with_most(budget.images.min(config.bounds.images)),
                ),
                offers: Offers::new(config.bounds.session_offers, budget.offers),
                pins_lanes,
                timings: timings.of(Api::Cuda.name()),
            };
            let folder = RuntimeFolder::make()?;
            Some(WorkerPool::start(config, program, folder, kind)?)
        }
    };
    if let Err(reason) = &pool {
        let Some(cuda) = &cuda_pool else {
            return Err(SupervisorError::Worker {
                reason: reason.clone(),
            });
        };
        if let Err(cuda_reason) = cuda.look(interrupted, &|| false) {
            cuda.stop();
            return Err(SupervisorError::Worker {
                reason: format!("{reason}; nor for CUDA: {cuda_reason}"),
            });
        }
        if config.worker.is_some() {
            log::warn!("this server offers CUDA devices only; for OpenCL: {reason}");
        }
    }
    Ok((pool, cuda_pool))
}

fn check_reach(address: &Address, config: &SupervisorConfig) -> Result<(), SupervisorError> {
    let crosses_hosts = Registry::global()
        .get(address.scheme())?
        .capabilities()
        .crosses_hosts;
    if !crosses_hosts || address.is_loopback() {
        return Ok(());
    }
    if config.no_encryption {
        log::warn!(
            "{address}: clients may leave encryption out (--no-encryption): what they send can then be read and changed on the way"
        );
    }
    match (config.tenants.are_asked(), config.insecure) {
        (false, false) => Err(SupervisorError::NoToken {
            address: address.clone(),
        }),
        (false, true) => {
            log::warn!("{address} lets everyone in who can reach it (--insecure)");
            Ok(())
        }
        (true, _) => {
            log::info!("{address}: clients must prove that they know the token");
            Ok(())
        }
    }
}

/// Refuses clients of other users and machines where workers could reach each other.
fn check_separation(config: &SupervisorConfig) -> Result<(), SupervisorError> {
    let root = rustix::process::geteuid().is_root();
    let own_users = root && config.jail.user.is_none() && towline_sys::process::can_change_user();
    let reason = match config.jail.disabled {
        true => "--no-jail leaves them unconfined".to_owned(),
        false if own_users => return Ok(()),
        false => match towline_sys::process::can_separate() {
            Ok(()) => return Ok(()),
            Err(error) => format!("this system does not permit {error}"),
        },
    };
    for address in &config.listen {
        let crosses_hosts = Registry::global()
            .get(address.scheme())?
            .capabilities()
            .crosses_hosts;
        // A socket has the mode of its user alone, unless that is root or its address says otherwise.
        let shared_socket =
            address.scheme() == "shm" && (root || address.to_string().contains('?'));
        if address.is_loopback() || !(crosses_hosts || shared_socket) {
            continue;
        }
        if !config.jail.shared_user {
            return Err(SupervisorError::SharedUser {
                address: address.clone(),
                reason,
            });
        }
        log::warn!("{address}: sessions are not kept apart (--shared-user): {reason}");
    }
    Ok(())
}

fn check_peer(address: &Address, config: &SupervisorConfig) -> Result<(), SupervisorError> {
    let crosses_hosts = Registry::global()
        .get(address.scheme())?
        .capabilities()
        .crosses_hosts;
    match crosses_hosts && !address.is_loopback() && config.peer_token.is_none() && !config.insecure
    {
        true => Err(SupervisorError::PeerWithoutToken {
            address: address.clone(),
        }),
        false => Ok(()),
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, SysError> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|source| SysError {
            action: format!("start the {name} thread"),
            source,
        })
}

impl Shared {
    /// The limits of a session that begins now.
    fn quota(&self) -> Quota {
        *lock(&self.quota)
    }

    /// See [`Supervisor::end_expired`].
    fn end_expired(&self) {
        for tenant in self.config.tenants.expired() {
            log::info!("tenant {}: its time is over", tenant.name());
            self.sessions.end_of(&tenant);
        }
    }

    /// See [`Supervisor::set_tenants`].
    fn set_tenants(&self, entries: BTreeMap<String, TenantEntry>) {
        let mut is_revoked = false;
        for tenant in self.config.tenants.replace(entries) {
            log::info!("tenant {}: revoked", tenant.name());
            self.sessions.end_of(&tenant);
            is_revoked = true;
        }
        if let (Some(kernels), true) = (&self.kernels, is_revoked) {
            kernels.keep_only(&self.config.tenants.all());
        }
        if let Some(turns) = &self.turns {
            turns.refresh();
        }
    }
}

/// Locks for state that no panic leaves half-changed: each change is one assignment or one call of a collection.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a place while there is none: for the end of a session whose client has left, or until such a client had been noticed.
/// `waiting` counts those that do; beyond [`MOST_WAITING`] nobody waits, since each has a thread and a connection.
fn wait_for_place<'a, T>(
    left: &Condvar,
    mut state: MutexGuard<'a, T>,
    waiting: impl Fn(&mut T) -> &mut u32,
    is_full: impl Fn(&T) -> bool,
    is_leaving: impl Fn(&T) -> bool,
) -> MutexGuard<'a, T> {
    if !is_full(&state) || *waiting(&mut state) >= MOST_WAITING {
        return state;
    }
    *waiting(&mut state) += 1;
    let noticed = left.wait_timeout_while(state, NOTICE_LIMIT, |state| {
        is_full(state) && !is_leaving(state)
    });
    let (state, _) = noticed.unwrap_or_else(PoisonError::into_inner);
    let ended = left.wait_timeout_while(state, LEAVING_LIMIT, |state| {
        is_full(state) && is_leaving(state)
    });
    let mut state = ended.unwrap_or_else(PoisonError::into_inner).0;
    *waiting(&mut state) -= 1;
    state
}

fn random<const N: usize>() -> Result<[u8; N], SupervisorError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(SupervisorError::Random)?;
    Ok(bytes)
}
