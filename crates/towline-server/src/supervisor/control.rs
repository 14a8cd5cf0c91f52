//! A connection from its first byte: a lane goes to its session, a control connection stays here to its last byte. One that takes the place
//! of a session's control connection goes to the thread that serves the session.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use towline_transport::{Address, Connection, Registry, TransportError, recv_exact, tls};
use towline_wire::control::{
    AttachPreamble, Channel, CheckpointSession, ConnectionKind, ControlError, CudaDevices, Devices,
    HandshakeError, Hello, KillSession, LaneKey, LeaseChanged, LeaseGiven, Message, MessageBuffer,
    MigrateSession, NONCE_BYTES, Purpose, Reject, RejectCode, ResumeSession, SHOWN_NAME,
    SHOWN_TEXT, ServerDrains, ServerHandshake, ServerLimit, ServerProgress, SessionCheckpointed,
    SessionEnded, SessionGrant, SessionKilled, SessionMigrated, SessionResumed, Status,
    TICKET_BYTES, Tenants as _, Ticket, labels, limits, printable,
};

use super::accept::UnprovenGuard;
use super::audit::Event;
use super::cgroup::{Controller, Group};
use super::deadline::{Deadline, Deadlines};
use super::devices::{self, Snapshots};
use super::ending::{Cause, Ending};
use super::lease;
use super::migration::{self, Migration, Wish};
use super::monitor::Asker;
use super::peer::{self, Peering};
use super::pool::WorkerPool;
use super::query::QueryPlace;
use super::quota::{Quota, WHOLE_DEVICES};
use super::session::{Api, LaneAccount, Session};
use super::tenant::Tenant;
use super::worker::Worker;
use super::{
    ANSWER_LIMIT, HANDSHAKE_LIMIT, Shared, SupervisorConfig, WORKER_END_LIMIT, lock, random,
};
use crate::worker::process::SessionParameters;

/// How often a client that waits for a worker hears that the server is alive.
const ALIVE_PERIOD: Duration = Duration::from_secs(1);
/// Longest time until the worker of a killed session is gone: more than a worker is waited for, less than clients wait for answers.
pub(super) const KILL_LIMIT: Duration = Duration::from_secs(7);

/// Why a connection is over, other than by its peer's wish.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("turned away: {0}")]
    Rejected(Reject),
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl Fault {
    /// The reason as the client is told it; none where there is nobody to tell.
    fn reject(&self) -> Option<Reject> {
        match self {
            Self::Handshake(error) => Some(error.to_reject()),
            Self::Rejected(reject) => Some(reject.clone()),
            Self::Transport(_) => None,
        }
    }
}

impl From<ControlError> for Fault {
    fn from(error: ControlError) -> Self {
        Self::Handshake(error.into())
    }
}

/// A client that has proven itself.
pub(super) struct Client {
    pub(super) hello: Hello,
    pub(super) tenant: Arc<Tenant>,
}

impl Client {
    /// Fails once its tenant is revoked.
    fn check(&self) -> Result<(), Fault> {
        match self.tenant.is_revoked() {
            true => Err(Fault::Rejected(
                RejectCode::TenantEnded.because(self.tenant.revocation()),
            )),
            false => Ok(()),
        }
    }
}

/// Body of a connection's thread.
pub(super) fn serve(
    connection: Arc<dyn Connection>,
    unproven: UnprovenGuard,
    scheme: &str,
    shared: &Arc<Shared>,
) {
    let peer = connection.peer();
    let claimed = OnceLock::new();
    match serve_connection(connection, unproven, scheme, &claimed, shared) {
        Ok(()) => {}
        // Ends of connections are everyday; what a client did wrong is worth a line.
        Err(Fault::Transport(error)) => log::debug!("{peer}: {error}"),
        Err(fault) => {
            let tenant = claimed.get().map(String::as_str);
            let kind = fault
                .reject()
                .map_or("Unknown", |reject| reject.code.name());
            shared.refusals.note(&peer, tenant, kind, &fault);
        }
    }
}

fn serve_connection(
    connection: Arc<dyn Connection>,
    mut unproven: UnprovenGuard,
    scheme: &str,
    claimed: &OnceLock<String>,
    shared: &Arc<Shared>,
) -> Result<(), Fault> {
    let late = Message::Reject(RejectCode::HandshakeTimeout.plain()).encode();
    let deadline = shared
        .deadlines
        .set(&connection, HANDSHAKE_LIMIT, late.clone());
    let mut first = [0; ConnectionKind::BYTES];
    recv_exact(&*connection, &mut first)?;
    if tls::is_handshake(&first) {
        unproven.spoke();
        let accepted = shared
            .config
            .tls
            .accept(connection, &first, HANDSHAKE_LIMIT)?;
        let secure: Arc<dyn Connection> = Arc::clone(&accepted) as _;
        unproven.secure(Arc::clone(&secure));
        drop(deadline);
        let deadline = shared.deadlines.set(&secure, HANDSHAKE_LIMIT, late);
        let channel = Channel::Encrypted(accepted.exporter(labels::CONTROL, b""));
        let lane_key = LaneKey::from_bytes(accepted.exporter(labels::LANE_KEY, b""));
        let deadlines = Arc::clone(&shared.deadlines);
        let control = ControlConnection::new(secure, deadlines, Some(lane_key));
        return serve_control(control, channel, &[], (deadline, unproven), claimed, shared);
    }
    let kind = ConnectionKind::of(&first)?;
    unproven.spoke();
    if kind == ConnectionKind::Peer {
        let accepted = peer::accept(&*connection, &first, scheme, shared);
        drop((deadline, unproven));
        peer::hand_over(&*connection, accepted, scheme, shared);
        return Ok(());
    }
    if kind == ConnectionKind::Lane {
        let mut preamble = [0; AttachPreamble::BYTES];
        let (head, rest) = preamble.split_at_mut(first.len());
        head.copy_from_slice(&first);
        recv_exact(&*connection, rest)?;
        // The deadline would end the lane for the worker too.
        drop((deadline, unproven));
        attach(&*connection, &preamble, scheme, shared);
        return Ok(());
    }
    let asked = shared.config.tenants.are_asked();
    let channel = match may_be_clear(&*connection, scheme, asked, &shared.config)? {
        true => Channel::Clear,
        false => Channel::Refused,
    };
    let control = ControlConnection::new(connection, Arc::clone(&shared.deadlines), None);
    serve_control(
        control,
        channel,
        &first,
        (deadline, unproven),
        claimed,
        shared,
    )
}

/// Whether a connection may do without encryption: where nobody else can listen, where the operator said so, or on this host, as long as
/// there is no `secret` that one of its users might be after.
pub(super) fn may_be_clear(
    connection: &dyn Connection,
    scheme: &str,
    secret: bool,
    config: &SupervisorConfig,
) -> Result<bool, TransportError> {
    let over_network = Registry::global().get(scheme)?.capabilities().over_network;
    let on_this_host = || {
        let from = connection.peer().parse();
        from.is_ok_and(|from: Address| from.is_loopback())
    };
    Ok(!over_network || config.no_encryption || (!secret && on_this_host()))
}

/// A control connection, of which `first` has been read, until its end. The tenant that its client names goes to `claimed`.
fn serve_control(
    control: ControlConnection,
    channel: Channel,
    first: &[u8],
    limits: (Deadline, UnprovenGuard),
    claimed: &OnceLock<String>,
    shared: &Arc<Shared>,
) -> Result<(), Fault> {
    let control = Arc::new(control);
    let mut inbox = Inbox::starting_with(first);
    let authenticated = authenticate(&control, channel, &mut inbox, claimed, shared);
    drop(limits);
    let result = authenticated.and_then(|(handshake, client)| match client.hello.purpose {
        Purpose::Query => answer_queries(&control, &handshake, &client, &mut inbox, shared),
        Purpose::Nvml => tell_of_devices(&control, &handshake, &client, &mut inbox, shared),
        Purpose::Resume => resume(&control, &handshake, &client, &mut inbox, shared),
        Purpose::Session => match &shared.pool {
            Ok(pool) => run_session(&control, &handshake, client, &mut inbox, shared, pool),
            Err(reason) => Err(Fault::Rejected(
                RejectCode::NoDevice
                    .because(format!("this server gives no OpenCL devices: {reason}")),
            )),
        },
        Purpose::CudaSession => match &shared.cuda_pool {
            Some(pool) => run_session(&control, &handshake, client, &mut inbox, shared, pool),
            None => Err(Fault::Rejected(
                RejectCode::NoDevice.because("this server gives no CUDA devices"),
            )),
        },
    });
    if let Err(fault) = &result {
        control.turn_away(fault);
    }
    result
}

fn attach(
    connection: &dyn Connection,
    preamble: &[u8; AttachPreamble::BYTES],
    scheme: &str,
    shared: &Shared,
) {
    let peer = connection.peer();
    let attached = AttachPreamble::decode(preamble)
        .map_err(|error| error.to_string())
        .and_then(|preamble| {
            shared
                .sessions
                .attach(&preamble, scheme, connection)
                .map(|id| (id, preamble))
        });
    match attached {
        Ok((id, preamble)) => log::debug!("session {id}: {peer} is lane {}", preamble.lane_index),
        Err(reason) => {
            shared
                .refusals
                .note(&peer, None, "Lane", &format_args!("lane refused: {reason}"));
            // Dropping our descriptor is enough: nobody else has it.
        }
    }
}

fn authenticate(
    control: &ControlConnection,
    channel: Channel,
    inbox: &mut Inbox,
    claimed: &OnceLock<String>,
    shared: &Shared,
) -> Result<(ServerHandshake, Client), Fault> {
    let nonce = random::<NONCE_BYTES>().map_err(|error| Fault::Rejected(internal(&error)))?;
    let mut handshake = ServerHandshake::new(
        shared.config.identity.clone(),
        Arc::clone(&shared.config.tenants) as _,
        nonce,
        channel,
    );
    loop {
        let Some(frame) = inbox.next_frame(&*control.connection())? else {
            return Err(TransportError::Closed {
                peer: control.peer(),
            }
            .into());
        };
        let progress = handshake.receive(&frame);
        if let (Some(name), true) = (
            handshake.claimed_tenant(),
            shared.config.tenants.is_listed(),
        ) {
            let _ = claimed.set(printable(name, SHOWN_NAME));
        }
        match progress? {
            ServerProgress::Send(answer) => control.send(&answer)?,
            ServerProgress::Authenticated(hello) => {
                // Revoked within the handshake, even if another has its name now.
                let gone = || Fault::Rejected(RejectCode::AuthenticationFailed.plain());
                let tenant = shared.config.tenants.proven(&hello.tenant, &handshake);
                let client = Client {
                    hello: shown(hello),
                    tenant: tenant.ok_or_else(gone)?,
                };
                client.check()?;
                return Ok((handshake, client));
            }
        }
    }
}

/// With names as they can be shown and logged.
fn shown(hello: Hello) -> Hello {
    Hello {
        program: printable(&hello.program, SHOWN_NAME),
        hostname: printable(&hello.hostname, SHOWN_NAME),
        ..hello
    }
}

/// A connection that only asks.
fn answer_queries(
    control: &ControlConnection,
    handshake: &ServerHandshake,
    client: &Client,
    inbox: &mut Inbox,
    shared: &Shared,
) -> Result<(), Fault> {
    let place = query_place(control, shared)?;
    let devices = devices::of_opencl(shared, &client.tenant);
    control.welcome(&handshake.welcome(None, devices))?;
    while let Some(message) = next_message(control, inbox, &place, shared)? {
        client.check()?;
        answer_alone(control, message, client, &place, shared)?;
    }
    Ok(())
}

/// A place among the connections without a session, whatever they are for.
fn query_place<'a>(
    control: &ControlConnection,
    shared: &'a Shared,
) -> Result<QueryPlace<'a>, Fault> {
    let place = shared.queries.take(&control.connection());
    place.ok_or_else(|| Fault::Rejected(RejectCode::Busy.plain()))
}

/// A connection that asks what NVML tells.
fn tell_of_devices(
    control: &ControlConnection,
    handshake: &ServerHandshake,
    client: &Client,
    inbox: &mut Inbox,
    shared: &Shared,
) -> Result<(), Fault> {
    let place = query_place(control, shared)?;
    let none = |reason: &str| {
        let text = format!("this server tells nothing of its devices through NVML: {reason}");
        Fault::Rejected(RejectCode::NoDevice.because(text))
    };
    let Some(monitor) = &shared.monitor else {
        return Err(none("it was started without"));
    };
    let snapshot = monitor.snapshot().map_err(|reason| none(&reason))?;
    let (_, snapshot) = devices::chosen(Snapshots::Nvml, &snapshot, &client.tenant);
    control.welcome(&handshake.welcome(None, snapshot))?;
    let peer = control.peer();
    let asker = Asker {
        hello: &client.hello,
        tenant: &client.tenant,
        peer: &peer,
        memory_limit: match client.tenant.quota(shared.quota()).device_memory_bytes {
            WHOLE_DEVICES => 0,
            bytes => bytes,
        },
    };
    while let Some(message) = next_message(control, inbox, &place, shared)? {
        client.check()?;
        match message {
            Message::NvmlQuestions(asked) => {
                let answers = monitor.answer(&asked, &asker, &shared.sessions);
                control.send(&Message::NvmlAnswers(answers).encode())?;
            }
            other => answer_alone(control, other, client, &place, shared)?,
        }
    }
    Ok(())
}

/// What a connection without a session says next; `None` at its end.
fn next_message(
    control: &ControlConnection,
    inbox: &mut Inbox,
    place: &QueryPlace<'_>,
    shared: &Shared,
) -> Result<Option<Message>, Fault> {
    let idle = shared.deadlines.set(
        &control.connection(),
        shared.config.bounds.query_silence,
        Vec::new(),
    );
    let frame = inbox.next_frame(&*control.connection())?;
    drop(idle);
    place.asks();
    Ok(frame.map(|frame| Message::decode(&frame)).transpose()?)
}

/// Limits a worker's temporary files, which were mounted before it had a session; whether they are.
fn limits_files(worker: &Worker, quota: &Quota, config: &SupervisorConfig) -> bool {
    if config.jail.disabled || quota.temporary_bytes == config.quota.temporary_bytes {
        return !config.jail.disabled;
    }
    let resized = towline_sys::jail::resize_temporary(worker.pid(), quota.temporary_bytes);
    if let Err(error) = &resized {
        log::warn!("worker {}: {error}: {}", worker.pid(), error.source);
    }
    resized.is_ok()
}

/// A session, from admission to the reaping of its worker.
fn run_session(
    control: &Arc<ControlConnection>,
    handshake: &ServerHandshake,
    client: Client,
    inbox: &mut Inbox,
    shared: &Arc<Shared>,
    pool: &WorkerPool,
) -> Result<(), Fault> {
    let Client { hello, tenant } = client;
    let alive = control.say_alive();
    let mut seat = tenant.admit().map_err(Fault::Rejected)?;
    let mut place = shared.sessions.admit(&tenant).map_err(Fault::Rejected)?;
    let id = place.id;
    let mut quota = tenant.quota(shared.quota());
    if quota.host_memory_bytes > 0 {
        let swap_bytes = shared.config.bounds.swap_bytes;
        quota.host_memory_bytes = quota.host_memory_bytes.saturating_add(swap_bytes);
    }
    let end: Arc<Mutex<Option<Ending>>> = Arc::default();
    let group: Arc<Mutex<Option<Arc<Group>>>> = Arc::default();
    let ended = {
        let group = Arc::clone(&group);
        let (control, end) = (Arc::clone(control), Arc::clone(&end));
        move |mut ending: Option<Ending>| {
            let group = lock(&group).take();
            if let Some(ending) = &mut ending
                && group.is_some_and(|group| group.ran_out_of_memory())
            {
                ending.reason = format!(
                    "the session has used more memory of the server's host than its {} bytes (--session-host-memory)",
                    quota.host_memory_bytes
                );
                ending.cause = Cause::HostMemory;
            }
            if let Some(Ending { reason, cause }) = &ending {
                let level = match cause {
                    Cause::Crash => log::Level::Error,
                    _ => log::Level::Info,
                };
                log::log!(level, "session {id}: {reason}");
            }
            let reason = ending.as_ref().map(|ending| ending.reason.clone());
            *lock(&end) = ending;
            control.end(reason.as_deref());
        }
    };
    let asked = Instant::now();
    // The job outlives the worker.
    let job = match (&shared.jobs, hello.purpose) {
        (Some(jobs), Purpose::CudaSession) if !hello.job.is_empty() => {
            let joined = jobs.join(tenant.number(), &hello.job, || pool.account());
            Some(joined.map_err(Fault::Rejected)?)
        }
        _ => None,
    };
    let taken = match &job {
        Some(job) => pool.take_of_job(job, Box::new(ended)),
        None => pool.take(Box::new(ended)),
    };
    drop(alive);
    if taken.is_ok() {
        pool.timings().wait.observe(asked.elapsed().as_secs_f64());
    }
    let worker = taken.map_err(|reason| {
        // Whether there is a driver is known when a worker has tried to load it.
        let code = match hello.purpose {
            Purpose::CudaSession => RejectCode::NoDevice,
            _ => RejectCode::WorkerFailed,
        };
        Fault::Rejected(code.because(format!("no worker for it: {reason}")))
    })?;
    let kind_of_devices = Snapshots::of(hello.purpose);
    let (devices, snapshot) = devices::chosen(kind_of_devices, worker.snapshot(), &tenant);
    if devices.as_ref().is_some_and(Vec::is_empty) {
        worker.ask_to_end();
        return Err(Fault::Rejected(RejectCode::NoDevice.because(format!(
            "the tenant `{}` has none of the devices that this server has for {}; ask the server's operator for some",
            tenant.name(),
            kind_of_devices.api(),
        ))));
    }
    let whole_devices = quota.device_memory_bytes == WHOLE_DEVICES;
    if whole_devices {
        quota.device_memory_bytes = devices::memory(kind_of_devices, &snapshot);
    }
    let entered = shared
        .groups
        .as_ref()
        .map(|groups| groups.enter(id, &quota, worker.pid()));
    let entered = match entered.transpose() {
        Ok(entered) => entered.map(Arc::new),
        Err(error) => {
            log::warn!("session {id}: no control group: {error}");
            None
        }
    };
    if let Some(entered) = &entered {
        *lock(&group) = Some(Arc::clone(entered));
    }
    let kind = match hello.purpose {
        Purpose::CudaSession => &shared.config.cuda_worker,
        _ => &shared.config.worker,
    };
    let kernels = match (&shared.kernels, kind) {
        (Some(stores), Some(program)) => stores.join(id, &tenant, &worker, program.kind),
        _ => None,
    };
    // Given back when the worker is gone.
    let (_membership, kernels) = kernels.unzip();
    let has_own_files = limits_files(&worker, &quota, &shared.config);
    let session = match random::<TICKET_BYTES>() {
        Ok(ticket) => Arc::new(Session {
            id,
            ticket: Ticket::from_random(ticket),
            lane_key: control.lane_key.clone(),
            worker: Arc::clone(&worker),
            control: Arc::clone(control),
            since: Instant::now(),
            job,
            quota,
            whole_devices,
            bounds: shared.config.bounds,
            group: entered.clone(),
            has_own_files,
            lanes: Arc::new(LaneAccount::new(shared.config.limits.max_lanes)),
            peering: Peering::default(),
            killed: OnceLock::new(),
            migration: Migration::default(),
            departure: OnceLock::new(),
            hello,
            tenant,
        }),
        Err(error) => {
            worker.ask_to_end();
            return Err(Fault::Rejected(internal(&error)));
        }
    };
    let of_tenant = match shared.config.tenants.is_listed() {
        true => format!(" of tenant {}", session.tenant.name()),
        false => String::new(),
    };
    log::info!(
        "session {id}: {} (pid {} on {}){} from {}, worker {}",
        session.hello.program,
        session.hello.pid,
        session.hello.hostname,
        of_tenant,
        control.peer(),
        worker.pid()
    );
    let address = control.peer();
    if let Some(audit) = &shared.audit {
        audit.tell(&Event::SessionStarted {
            session: id,
            tenant: session.tenant.name(),
            api: session.api().name(),
            program: &session.hello.program,
            host: &session.hello.hostname,
            client_pid: session.hello.pid,
            address: &address,
            worker_pid: worker.pid(),
            job: session.job.as_ref().map(|job| job.name()),
        });
    }
    session.tenant.count_begun(session.api());
    let devices = (devices, snapshot);
    let result = serve_session(&session, kernels, devices, handshake, inbox, shared);
    session.migration.end();
    seat.leave();
    place.leave();
    // Before the worker's end closes the connection.
    if let Err(fault) = &result {
        control.turn_away(fault);
    }
    // The worker and what it holds are gone before the place is free for the next client.
    worker.ask_statistics();
    worker.ask_to_end();
    let hangs = !worker.wait_reaped(WORKER_END_LIMIT);
    if hangs {
        log::error!(
            "session {id}: worker {} does not die: it hangs in the kernel",
            worker.pid()
        );
    }
    if let Some(group) = entered {
        group.remove();
    }
    let ending = lock(&end).take();
    let departure = session.departure.get();
    let cause = match (departure.or(ending.as_ref()), &result) {
        (Some(ending), _) => ending.cause,
        (None, _) if session.killed.get().is_some() => Cause::Killed,
        (None, _) if session.tenant.is_revoked() => Cause::Revoked,
        (None, Err(Fault::Handshake(_))) => Cause::Protocol,
        (None, Err(Fault::Rejected(_))) => Cause::Stop,
        (None, Err(Fault::Transport(_))) => Cause::Lost,
        (None, Ok(())) => Cause::Client,
    };
    if cause == Cause::Crash {
        shared.sessions.count_crash();
    }
    session.tenant.count_ended(cause);
    let statistics = worker.statistics(Instant::now());
    if let Some(audit) = &shared.audit {
        let fault = result.as_ref().err().map(Fault::to_string);
        let tenant = &session.tenant;
        let killed = session.killed.get().map(String::as_str);
        let departed = departure.map(|departure| departure.reason.as_str());
        let revoked = tenant.is_revoked().then(|| tenant.revocation());
        audit.tell(&Event::SessionEnded {
            session: id,
            tenant: session.tenant.name(),
            program: &session.hello.program,
            address: &address,
            seconds: session.since.elapsed().as_secs_f64(),
            received_bytes: statistics.received_bytes,
            sent_bytes: statistics.sent_bytes,
            calls: statistics.calls,
            device_memory_peak: statistics.device_memory_peak,
            device_seconds: statistics.device_time_us as f64 / 1e6,
            crashed: cause == Cause::Crash,
            reason: departed
                .or(ending.as_ref().map(|ending| ending.reason.as_str()))
                .or(killed)
                .or(revoked.as_deref())
                .or(fault.as_deref()),
        });
    }
    log::info!(
        "session {id}: ended after {:.1} s",
        session.since.elapsed().as_secs_f64()
    );
    // Both tell its end before anyone hears that it is gone.
    if hangs {
        place.outlive_session();
        worker.keep(seat, place);
    }
    result
}

fn serve_session(
    session: &Arc<Session>,
    kernels: Option<OwnedFd>,
    (devices, snapshot): (Option<Vec<u32>>, Vec<u8>),
    handshake: &ServerHandshake,
    inbox: &mut Inbox,
    shared: &Arc<Shared>,
) -> Result<(), Fault> {
    let control = &session.control;
    let limits = shared.config.limits.clone();
    let grace = match control.may_be_cut() {
        true => shared.config.bounds.grace,
        false => Duration::ZERO,
    };
    let parameters = SessionParameters {
        session_id: session.id,
        program: session.hello.program.clone(),
        peer: control.peer(),
        max_lanes: limits.max_lanes,
        chunk_bytes: limits.chunk_bytes,
        chunk_count: limits.chunk_count,
        devices,
        quota: session.quota,
        whole_devices: session.whole_devices,
        limits_own_memory: !session
            .group
            .as_ref()
            .is_some_and(|group| group.limits(Controller::Memory)),
        resumes: !grace.is_zero(),
        collectives: session.job.as_ref().map(|job| job.grant()),
    };
    let names = devices::scheduled(
        Snapshots::of(session.hello.purpose),
        &snapshot,
        parameters.devices.as_deref(),
    );
    let encrypted = session.lane_key.as_ref();
    let encrypted = encrypted.map(|key| (key, Arc::clone(&session.lanes)));
    let swap = shared.swap.as_ref().filter(|_| session.api() == Api::Cuda);
    let swap = swap.map(|space| {
        let (tenant, worker) = (&session.tenant, &session.worker);
        let most = parameters.quota.device_memory_bytes;
        Arc::new(space.join(session.id, tenant, worker, names.clone(), most))
    });
    let rooms = super::swap::rooms(shared, session, swap.as_ref());
    let turns = shared.turns.as_ref();
    let turns = turns.map(|turns| turns.join(session.id, &session.tenant, &session.worker, names));
    // If the worker is dead, its end is told by the callback.
    let _ = session.worker.assign(
        parameters,
        encrypted,
        &session.tenant,
        kernels,
        (rooms, turns, swap),
    );
    shared
        .sessions
        .insert(Arc::clone(session))
        .map_err(Fault::Rejected)?;
    let grant = SessionGrant {
        session_id: session.id,
        ticket: session.ticket.clone(),
        limits,
        grace_ms: grace.as_millis() as u64,
        collectives: session.job.is_some(),
        peers: shared.config.peers.iter().map(Address::to_string).collect(),
    };
    expect_lanes(session, shared);
    let snapshot = devices::limited(
        Snapshots::of(session.hello.purpose),
        &snapshot,
        &session.quota,
    );
    control.welcome(&handshake.welcome(Some(grant), snapshot))?;
    loop {
        let (connection, link) = control.link();
        let cut = match serve_link(session, &*connection, inbox, shared) {
            Err(fault @ Fault::Transport(_)) => Err(fault),
            Ok(()) => Ok(()),
            Err(fault) => return Err(fault),
        };
        // It may be cut in one direction only: the client finds out.
        connection.shutdown();
        let grace = match session.lanes.are_open() {
            true => grace,
            false => grace.min(lanes_time_left(session, shared)),
        };
        if grace.is_zero() || !wait_for_client(session, link, grace)? {
            return cut;
        }
        expect_lanes(session, shared);
        *inbox = Inbox::starting_with(&[]);
        // It may not have heard, or not have been heard. What cannot be sent now is cut again.
        let _ = session.migration.repeat(session);
    }
}

/// Time that the client has left to open its lanes.
fn lanes_time_left(session: &Session, shared: &Shared) -> Duration {
    let limit = shared.config.bounds.lanes;
    limit.saturating_sub(session.since.elapsed())
}

/// Ends the session unless its client opens all lanes in time.
fn expect_lanes(session: &Session, shared: &Shared) {
    if session.lanes.are_open() {
        return;
    }
    let late = Message::SessionEnded(SessionEnded {
        reason: format!(
            "the client did not open the lanes of its session within {:?}",
            shared.config.bounds.lanes
        ),
    });
    let deadline = shared.deadlines.set(
        &session.control.connection(),
        lanes_time_left(session, shared),
        late.encode(),
    );
    session.lanes.set_deadline(deadline);
}

/// Answers the client of a session until this connection ends.
fn serve_link(
    session: &Arc<Session>,
    connection: &dyn Connection,
    inbox: &mut Inbox,
    shared: &Arc<Shared>,
) -> Result<(), Fault> {
    let control = &session.control;
    while let Some(frame) = inbox.next_frame(connection)? {
        match Message::decode(&frame)? {
            Message::PeerOffer(offer) => {
                let answer = Message::PeerTicket(peer::offer(session, &offer, shared));
                control.send(&answer.encode())?;
            }
            Message::PeerConnect(request) => peer::connect(session, request, shared)?,
            message @ (Message::SessionMigrated(_) | Message::SessionCheckpointed(_)) => {
                let unasked = HandshakeError::Unexpected {
                    message: message.name(),
                };
                let answered = match message {
                    Message::SessionCheckpointed(SessionCheckpointed { outcome, .. }) => {
                        session.migration.answered(true, outcome)
                    }
                    Message::SessionMigrated(SessionMigrated { outcome, .. }) => {
                        session.migration.answered(false, outcome)
                    }
                    _ => Err(()),
                };
                if let Some(ending) = answered.map_err(|()| unasked)? {
                    log::info!("session {}: {}", session.id, ending.reason);
                    control.end(Some(&ending.reason));
                    let _ = session.departure.set(ending);
                    return Ok(());
                }
            }
            other => answer(control, other, &session.tenant, &|| false, shared)?,
        }
    }
    Ok(())
}

/// Waits until the client of a session is back that was cut off from `link`; false when the session is over, and an error when the client
/// takes too long.
fn wait_for_client(session: &Session, link: u64, grace: Duration) -> Result<bool, Fault> {
    let (id, control) = (session.id, &session.control);
    let here = ProcessHere::of(&session.hello, &control.peer());
    // Most clients that leave have said goodbye to the worker, which ends the session.
    let mut told = false;
    let since = Instant::now();
    loop {
        match control.wait_for_link(link, AWAY_PERIOD) {
            Away::Over => return Ok(false),
            Away::Back => {
                if told {
                    let seconds = since.elapsed().as_secs_f64();
                    log::info!("session {id}: its client is back after {seconds:.1} s");
                }
                return Ok(true);
            }
            Away::Still => {}
        }
        if here.as_ref().is_some_and(ProcessHere::has_ended) {
            return Ok(false);
        }
        let seconds = grace.as_secs_f64();
        if since.elapsed() >= grace {
            let reason = format!("its client did not come back within {seconds} s (--grace)");
            log::info!("session {id}: {reason}");
            let peer = control.peer();
            return Err(TransportError::Lost { peer, reason }.into());
        }
        // The worker of a client that said goodbye takes a moment to end.
        if since.elapsed() >= AWAY_TOLD && !std::mem::replace(&mut told, true) {
            log::info!("session {id}: its client is cut off: it has {seconds} s to come back");
        }
    }
}

/// A connection that is to take the place of a session's control connection.
fn resume(
    control: &ControlConnection,
    handshake: &ServerHandshake,
    client: &Client,
    inbox: &mut Inbox,
    shared: &Shared,
) -> Result<(), Fault> {
    let place = query_place(control, shared)?;
    let connection = control.connection();
    let late = Message::Reject(RejectCode::HandshakeTimeout.plain()).encode();
    let deadline = shared.deadlines.set(&connection, HANDSHAKE_LIMIT, late);
    control.welcome(&handshake.welcome(None, Vec::new()))?;
    let Some(frame) = inbox.next_frame(&*control.connection())? else {
        return Ok(());
    };
    drop(deadline);
    let asked = match Message::decode(&frame)? {
        Message::ResumeSession(asked) => asked,
        other => {
            let message = other.name();
            return Err(HandshakeError::Unexpected { message }.into());
        }
    };
    // As far as a stranger can tell, a session of others is none.
    let found = shared.sessions.get(asked.session_id).filter(|session| {
        let ResumeSession { ticket, .. } = &asked;
        Arc::ptr_eq(&session.tenant, &client.tenant) && session.ticket == *ticket
    });
    let say = |outcome: Result<(), String>| {
        control.send(&Message::SessionResumed(SessionResumed { outcome }).encode())
    };
    let Some(session) = found else {
        return Ok(say(Err(
            "the session is over: its grace time has passed, or the server was started anew".into(),
        ))?);
    };
    say(Ok(()))?;
    drop(place);
    session.control.take_over(connection);
    Ok(())
}

/// Answers on a connection without a session.
fn answer_alone(
    control: &ControlConnection,
    request: Message,
    client: &Client,
    place: &QueryPlace<'_>,
    shared: &Shared,
) -> Result<(), Fault> {
    let is_over = || place.is_lost();
    match request {
        Message::KillSession(request) => {
            let outcome = kill(request, client, &control.peer(), shared);
            control.send(&Message::SessionKilled(SessionKilled { outcome }).encode())?;
            Ok(())
        }
        Message::MigrateSession(request) => {
            let session_id = request.session_id;
            let alive = control.say_alive();
            let outcome = migrate(request, client, &control.peer(), &is_over, shared);
            drop(alive);
            let answer = SessionMigrated {
                session_id,
                outcome,
            };
            control.send(&Message::SessionMigrated(answer).encode())?;
            Ok(())
        }
        Message::CheckpointSession(request) => {
            let session_id = request.session_id;
            let alive = control.say_alive();
            let outcome = checkpoint(request, client, &control.peer(), &is_over, shared);
            drop(alive);
            let answer = SessionCheckpointed {
                session_id,
                outcome,
            };
            control.send(&Message::SessionCheckpointed(answer).encode())?;
            Ok(())
        }
        Message::DrainServer => {
            let outcome = shared.drain_for(client, &control.peer());
            control.send(&Message::ServerDrains(ServerDrains { outcome }).encode())?;
            Ok(())
        }
        Message::GiveLease(request) => {
            // A worker may have to start first, to see the devices.
            let alive = control.say_alive();
            let outcome = lease::give(&request, client, &control.peer(), shared);
            drop(alive);
            control.send(&Message::LeaseGiven(LeaseGiven { outcome }).encode())?;
            Ok(())
        }
        Message::RenewLease(request) => {
            let outcome = lease::renew(&request, client, shared);
            control.send(&Message::LeaseChanged(LeaseChanged { outcome }).encode())?;
            Ok(())
        }
        Message::EndLease(request) => {
            let outcome = lease::end(&request, client, &control.peer(), shared);
            control.send(&Message::LeaseChanged(LeaseChanged { outcome }).encode())?;
            Ok(())
        }
        other => answer(control, other, &client.tenant, &is_over, shared),
    }
}

/// The session of this number, if a client may do something to it. Sessions of others are as unknown as in the status.
fn session_of(id: u64, by: &Client, what: &str, shared: &Shared) -> Result<Arc<Session>, String> {
    let may =
        |session: &Arc<Session>| by.tenant.is_admin() || Arc::ptr_eq(&by.tenant, &session.tenant);
    shared.sessions.get(id).filter(may).ok_or_else(|| {
        format!(
            "there is no session {id} that you may {what}; `towline status` lists those that there are"
        )
    })
}

/// Has a session move on request; in the error, why it is where it was.
fn migrate(
    request: MigrateSession,
    by: &Client,
    address: &str,
    is_over: &dyn Fn() -> bool,
    shared: &Shared,
) -> Result<(), String> {
    let MigrateSession { session_id: id, to } = request;
    let wish = Wish::Move(to.clone());
    wish.check()?;
    let to = printable(&to, SHOWN_NAME);
    let session = session_of(id, by, "move", shared)?;
    let host = &by.hello.hostname;
    let is_told = by.tenant.requests().admit();
    if is_told {
        log::info!("session {id}: to move to {to}: `towline migrate` on {host}, from {address}");
    }
    let outcome = migration::send_away(&session, &wish, is_over, shared);
    if let (Err(reason), true) = (&outcome, is_told) {
        log::warn!("session {id}: it stays: {reason}");
    }
    if let Some(audit) = &shared.audit
        && (is_told || outcome.is_ok())
    {
        audit.tell(&Event::SessionMigrated {
            session: id,
            tenant: session.tenant.name(),
            to: &to,
            failure: outcome.as_ref().err().map(String::as_str),
            by_tenant: by.tenant.name(),
            by_host: host,
            by_pid: by.hello.pid,
            by_address: address,
        });
    }
    outcome
}

/// Has a session write a checkpoint and leave, on request; in the error, why it goes on.
fn checkpoint(
    request: CheckpointSession,
    by: &Client,
    address: &str,
    is_over: &dyn Fn() -> bool,
    shared: &Shared,
) -> Result<(), String> {
    let CheckpointSession {
        session_id: id,
        folder,
    } = request;
    let shown = printable(&folder, SHOWN_TEXT);
    let wish = Wish::Checkpoint(folder);
    wish.check()?;
    let session = session_of(id, by, "checkpoint", shared)?;
    let host = &by.hello.hostname;
    let is_told = by.tenant.requests().admit();
    if is_told {
        log::info!(
            "session {id}: to write a checkpoint into {shown}: `towline checkpoint` on {host}, from {address}"
        );
    }
    let outcome = migration::send_away(&session, &wish, is_over, shared);
    if let (Err(reason), true) = (&outcome, is_told) {
        log::warn!("session {id}: it goes on, without a checkpoint: {reason}");
    }
    if let Some(audit) = &shared.audit
        && (is_told || outcome.is_ok())
    {
        audit.tell(&Event::SessionCheckpointed {
            session: id,
            tenant: session.tenant.name(),
            folder: &shown,
            failure: outcome.as_ref().err().map(String::as_str),
            by_tenant: by.tenant.name(),
            by_host: host,
            by_pid: by.hello.pid,
            by_address: address,
        });
    }
    outcome
}

/// Ends a session on request and waits until its worker is gone; in the error, why it is not.
fn kill(request: KillSession, by: &Client, address: &str, shared: &Shared) -> Result<(), String> {
    let id = request.session_id;
    let session = session_of(id, by, "end", shared)?;
    let host = &by.hello.hostname;
    let reason = match shared.config.tenants.is_listed() {
        true => {
            let tenant = by.tenant.name();
            format!("the tenant `{tenant}` ended the session with `towline kill` on {host}")
        }
        false => format!("the session was ended with `towline kill` on {host}"),
    };
    if session.killed.set(reason.clone()).is_ok() {
        log::info!("session {id}: {reason}, from {address}");
        if let Some(audit) = &shared.audit {
            audit.tell(&Event::SessionKilled {
                session: id,
                tenant: session.tenant.name(),
                by_tenant: by.tenant.name(),
                by_host: host,
                by_pid: by.hello.pid,
                by_address: address,
            });
        }
    }
    session.control.end(Some(&reason));
    match shared.sessions.wait_gone(id, KILL_LIMIT) && session.worker.is_reaped() {
        true => Ok(()),
        false => Err(format!(
            "session {id} is cut off from its client, but its worker {} has not ended within {} s: it hangs in the kernel",
            session.worker.pid(),
            KILL_LIMIT.as_secs()
        )),
    }
}

fn answer(
    control: &ControlConnection,
    request: Message,
    tenant: &Arc<Tenant>,
    is_over: &dyn Fn() -> bool,
    shared: &Shared,
) -> Result<(), Fault> {
    let reply = match request {
        Message::Ping => Message::Alive,
        Message::StatusRequest => Message::Status(status(tenant, shared)),
        Message::DevicesRequest => Message::Devices(Devices {
            snapshot: devices::of_opencl(shared, tenant),
        }),
        Message::CudaDevicesRequest => Message::CudaDevices(CudaDevices {
            snapshot: devices::of_cuda(shared, tenant, is_over),
        }),
        other => {
            return Err(HandshakeError::Unexpected {
                message: other.name(),
            }
            .into());
        }
    };
    control.send(&reply.encode())?;
    Ok(())
}

/// Status for a client of `tenant`: all sessions for an admin, its own for others.
fn status(tenant: &Arc<Tenant>, shared: &Shared) -> Status {
    let all = tenant.is_admin();
    let (mut sessions_started, mut sessions_crashed) = shared.sessions.totals();
    let (mut max_sessions, mut rejected) = (shared.sessions.max(), shared.refusals.count());
    if !all {
        let usage = tenant.usage();
        (sessions_started, sessions_crashed) = (usage.started, usage.crashed);
        max_sessions = max_sessions.min(tenant.limits().sessions.unwrap_or(max_sessions));
        rejected = usage.refused;
    }
    let tenants = match (shared.config.tenants.is_listed(), all) {
        (false, _) => Vec::new(),
        (true, true) => shared.config.tenants.all(),
        (true, false) => vec![Arc::clone(tenant)],
    };
    let sessions = shared.sessions.status((!all).then_some(tenant));
    // Behind its sessions: they have told it by now what they have used.
    let tenants = tenants.iter().map(|tenant| tenant.status());
    Status {
        uptime_ms: u64::try_from(shared.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        max_sessions,
        draining: shared.draining.load(Ordering::Acquire),
        sessions_started,
        sessions_crashed,
        rejected,
        tenants: tenants.collect(),
        limits: server_limits(tenant, shared),
        sessions,
    }
}

/// Limits of the server, with their use where the client may see that.
fn server_limits(tenant: &Tenant, shared: &Shared) -> Vec<ServerLimit> {
    let with_use = tenant.is_admin();
    let kernels = shared.kernels.as_ref();
    let kernels = kernels.map_or((0, 0), |stores| {
        stores.in_use((!with_use).then_some(tenant))
    });
    let bounds = &shared.config.bounds;
    let offers = shared.cuda_pool.as_ref().map(|pool| pool.shared());
    let [images, image_bytes] = offers.map_or([(0, 0); 2], |(_, images)| images.in_use());
    let offers = offers.map_or((0, 0), |(offers, _)| offers.in_use());
    let counted = |name: &str, (used, value)| ServerLimit {
        name: name.to_owned(),
        value,
        used: with_use.then_some(used),
    };
    let time = |name: &str, limit: Duration| ServerLimit {
        name: name.to_owned(),
        value: limit.as_millis() as u64,
        used: None,
    };
    vec![
        sessions_in_use(with_use, shared),
        counted(
            "queries",
            (shared.queries.count() as u64, bounds.queries as u64),
        ),
        counted("offer_descriptors", offers),
        counted("images", images),
        counted("image_bytes", image_bytes),
        ServerLimit {
            name: "kernel_cache_bytes".to_owned(),
            value: kernels.1,
            // A tenant's own use is its to know.
            used: Some(kernels.0),
        },
        time("handshake_ms", HANDSHAKE_LIMIT),
        time("lanes_ms", bounds.lanes),
        time("query_silence_ms", bounds.query_silence),
        time("answer_ms", ANSWER_LIMIT),
    ]
}

/// Places that are taken. A tenant that sees its own sessions alone hears of them where none is left to it, as a refusal would say.
fn sessions_in_use(with_use: bool, shared: &Shared) -> ServerLimit {
    let (used, value) = shared.sessions.in_use();
    // Sessions that are cut off give way to new ones.
    let all_are_there = || {
        let sessions = shared.sessions.status(None);
        sessions.iter().all(|session| session.away_ms == 0)
    };
    ServerLimit {
        name: "sessions".to_owned(),
        value,
        used: (with_use || used >= value && all_are_there()).then_some(used),
    }
}

fn internal(error: &super::SupervisorError) -> Reject {
    RejectCode::WorkerFailed.because(error.to_string())
}

/// Time between two looks whether a client that is cut off has ended.
const AWAY_PERIOD: Duration = Duration::from_millis(20);

/// A client that is cut off for longer is told of in the log.
const AWAY_TOLD: Duration = Duration::from_secs(1);

/// A client on this host.
struct ProcessHere {
    stat: String,
}

impl ProcessHere {
    /// The process of a client that reaches this host from itself.
    fn of(hello: &Hello, peer: &str) -> Option<Self> {
        let from: Address = peer.parse().ok()?;
        let name = rustix::system::uname();
        let is_here = from.is_loopback() && name.nodename().to_bytes() == hello.hostname.as_bytes();
        is_here.then(|| Self {
            stat: format!("/proc/{}/stat", hello.pid),
        })
    }

    fn has_ended(&self) -> bool {
        let Ok(stat) = std::fs::read(&self.stat) else {
            return true;
        };
        // The state stands behind the name, which is in parentheses and may hold some.
        let state = stat
            .iter()
            .rposition(|byte| *byte == b')')
            .and_then(|end| stat.get(end + 2));
        matches!(state, Some(b'Z' | b'X'))
    }
}

/// State of a client that was cut off.
enum Away {
    Back,
    Over,
    Still,
}

/// The connection of a control connection that has one after another.
struct Line {
    connection: Arc<dyn Connection>,
    /// Counts them.
    generation: u64,
    /// It has been cut since.
    cut: Option<Instant>,
    /// The session is to end.
    over: bool,
}

/// How far the client has been welcomed.
#[derive(Default)]
struct Greeting {
    is_over: bool,
    /// A wish that came before, which the client would not expect until then.
    wish: Option<Vec<u8>>,
}

/// A control connection, as seen by all threads that have something to say on it.
pub(super) struct ControlConnection {
    line: Mutex<Line>,
    changed: Condvar,
    deadlines: Arc<Deadlines>,
    /// The key that lanes of its session must prove to know, where it is encrypted.
    lane_key: Option<LaneKey>,
    /// Held while sending: messages must not mix.
    greeting: Mutex<Greeting>,
}

impl ControlConnection {
    fn new(
        connection: Arc<dyn Connection>,
        deadlines: Arc<Deadlines>,
        lane_key: Option<LaneKey>,
    ) -> Self {
        Self {
            line: Mutex::new(Line {
                connection,
                generation: 0,
                cut: None,
                over: false,
            }),
            changed: Condvar::new(),
            deadlines,
            lane_key,
            greeting: Mutex::default(),
        }
    }

    pub(super) fn peer(&self) -> String {
        self.connection().peer()
    }

    fn connection(&self) -> Arc<dyn Connection> {
        self.link().0
    }

    /// The connection, and its number.
    fn link(&self) -> (Arc<dyn Connection>, u64) {
        let line = lock(&self.line);
        (Arc::clone(&line.connection), line.generation)
    }

    /// Whether its transport is one over which sessions have been seen to outlive cuts.
    fn may_be_cut(&self) -> bool {
        self.peer().split(':').next() == Some("tcp")
    }

    /// How long the client has been cut off, if it is.
    pub(super) fn away(&self) -> Option<Duration> {
        lock(&self.line).cut.map(|since| since.elapsed())
    }

    /// Waits for a connection after that of `generation`, for at most so long.
    fn wait_for_link(&self, generation: u64, limit: Duration) -> Away {
        let mut line = lock(&self.line);
        if line.generation == generation {
            line.cut.get_or_insert_with(Instant::now);
        }
        let waits = |line: &mut Line| !line.over && line.generation == generation;
        let waited = self.changed.wait_timeout_while(line, limit, waits);
        let (line, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (line.over, line.generation == generation) {
            (true, _) => Away::Over,
            (false, true) => Away::Still,
            (false, false) => Away::Back,
        }
    }

    /// Goes on over another connection.
    fn take_over(&self, connection: Arc<dyn Connection>) {
        let mut line = lock(&self.line);
        if line.over {
            drop(line);
            return connection.shutdown();
        }
        line.generation += 1;
        line.cut = None;
        let old = std::mem::replace(&mut line.connection, connection);
        drop(line);
        old.shutdown();
        self.changed.notify_all();
    }

    /// Closes, for good.
    fn close(&self) {
        let mut line = lock(&self.line);
        line.over = true;
        let connection = Arc::clone(&line.connection);
        drop(line);
        self.changed.notify_all();
        connection.shutdown();
    }

    /// Sends a frame; a client that does not read it in time loses its connection.
    pub(super) fn send(&self, frame: &[u8]) -> Result<(), TransportError> {
        let _sending = lock(&self.greeting);
        self.send_alone(frame)
    }

    /// As [`Self::send`], of something that the server wishes by itself: after the welcome.
    pub(super) fn send_wish(&self, frame: Vec<u8>) -> Result<(), TransportError> {
        let mut greeting = lock(&self.greeting);
        if greeting.is_over {
            return self.send_alone(&frame);
        }
        greeting.wish = Some(frame);
        Ok(())
    }

    /// Sends while nobody else does.
    fn send_alone(&self, frame: &[u8]) -> Result<(), TransportError> {
        let connection = self.connection();
        let _deadline = self.deadlines.set(&connection, ANSWER_LIMIT, Vec::new());
        connection.send(&[IoSlice::new(frame)])
    }

    /// Tells the client that the server is alive, until the result is dropped. Nothing else may be sent meanwhile.
    fn say_alive(&self) -> Deadline {
        let message = Message::Alive.encode();
        self.deadlines
            .repeat(&self.connection(), ALIVE_PERIOD, message)
    }

    fn welcome(&self, frame: &[u8]) -> Result<(), TransportError> {
        let mut greeting = lock(&self.greeting);
        self.send_alone(frame)?;
        greeting.is_over = true;
        greeting
            .wish
            .take()
            .map_or(Ok(()), |wish| self.send_alone(&wish))
    }

    /// Says why the session is over, if that needs no waiting, and closes. For any thread.
    pub(super) fn end(&self, reason: Option<&str>) {
        // Who holds the lock waits for the client to read; then there is no place for another message.
        let welcomed = match self.greeting.try_lock() {
            Ok(greeting) => Some(greeting.is_over),
            Err(TryLockError::Poisoned(poisoned)) => {
                Some(PoisonError::into_inner(poisoned).is_over)
            }
            Err(TryLockError::WouldBlock) => None,
        };
        if let (Some(welcomed), Some(reason)) = (welcomed, reason) {
            let message = match welcomed {
                true => Message::SessionEnded(SessionEnded {
                    reason: reason.to_owned(),
                }),
                false => Message::Reject(RejectCode::WorkerFailed.because(reason)),
            };
            let _ = self.connection().try_send(&message.encode());
        }
        self.close();
    }

    /// Says what was wrong, if that needs no waiting, and closes. Does nothing when that has been done.
    fn turn_away(&self, fault: &Fault) {
        let Some(reject) = fault.reject() else {
            return;
        };
        let _ = self
            .connection()
            .try_send(&Message::Reject(reject).encode());
        self.close();
    }
}

/// What has come in on a control connection.
struct Inbox {
    buffer: MessageBuffer,
}

impl Inbox {
    fn starting_with(bytes: &[u8]) -> Self {
        let mut buffer = MessageBuffer::new(limits::CLIENT_MESSAGE_BYTES);
        buffer.push(bytes);
        Self { buffer }
    }

    /// Waits for a whole frame; `None` when the client has closed.
    fn next_frame(&mut self, connection: &dyn Connection) -> Result<Option<Vec<u8>>, Fault> {
        let mut bytes = [0; 1024];
        loop {
            if let Some(frame) = self.buffer.next_frame()? {
                return Ok(Some(frame));
            }
            match connection.recv(&mut bytes)? {
                0 => return Ok(None),
                count => self.buffer.push(&bytes[..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use towline_transport::memory::MemoryTransport;
    use towline_transport::{ConnectOptions, Transport};

    use super::*;

    #[test]
    fn wish_comes_after_the_welcome() {
        let network = MemoryTransport::new();
        let address: Address = "memory://server".parse().expect("it is well formed");
        let listener = network.listen(&address).expect("the name is free");
        let client = network.connect(&address, &ConnectOptions::default());
        let client = client.expect("it listens");
        let deadlines = Deadlines::start().expect("a thread");
        let ours = listener.accept().expect("a connection");
        let control = ControlConnection::new(ours, Arc::clone(&deadlines), None);
        for said in [b"2", b"4"] {
            control.send_wish(said.to_vec()).expect("it is kept");
            control.send(b"1").expect("the client takes it");
            control.welcome(b"3").expect("the client takes it");
        }
        let mut said = [0; 6];
        recv_exact(&*client, &mut said).expect("all of it");
        assert_eq!(&said, b"132413");
        deadlines.stop();
    }
}
