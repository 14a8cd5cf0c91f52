//! The table of sessions: who has which worker, and what joins a lane to a session.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use towline_transport::Connection;
use towline_wire::control::{
    AttachPreamble, Enforcement, Hello, LIMITS, LaneKey, LimitStatus, Purpose, Reject, RejectCode,
    SessionStatus, Ticket,
};

use super::cgroup::{Controller, Group};
use super::control::{ControlConnection, KILL_LIMIT};
use super::deadline::Deadline;
use super::ending::Ending;
use super::job::Job;
use super::migration::Migration;
use super::peer::Peering;
use super::quota::{Quota, ServerLimits};
use super::tenant::Tenant;
use super::worker::Worker;
use super::{lock, wait_for_place};
use crate::worker::process::Statistics;

/// How long `towline status` waits for workers to report.
const STATISTICS_LIMIT: Duration = Duration::from_millis(200);

/// The API that a session is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Api {
    Cuda,
    OpenCl,
}

impl Api {
    /// All of them, in their order.
    pub(super) const ALL: [Self; 2] = [Self::Cuda, Self::OpenCl];

    /// Its name in the audit log and in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::OpenCl => "opencl",
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// One client's session.
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) hello: Hello,
    pub(super) tenant: Arc<Tenant>,
    pub(super) ticket: Ticket,
    /// The key that its lanes must prove to know; `None` where they are not encrypted.
    pub(super) lane_key: Option<LaneKey>,
    pub(super) worker: Arc<Worker>,
    pub(super) control: Arc<ControlConnection>,
    pub(super) since: Instant,
    /// Its job, where it has one.
    pub(super) job: Option<Arc<Job>>,
    /// How much it may have.
    pub(super) quota: Quota,
    /// Its device memory is limited to what its devices have.
    pub(super) whole_devices: bool,
    pub(super) bounds: ServerLimits,
    /// Its control group, where it has one.
    pub(super) group: Option<Arc<Group>>,
    /// Whether its temporary files lie in a file system of a limited size.
    pub(super) has_own_files: bool,
    pub(super) lanes: Arc<LaneAccount>,
    pub(super) peering: Peering,
    /// Why, where someone has ended it on request.
    pub(super) killed: OnceLock<String>,
    pub(super) migration: Migration,
    /// That it has left, for another server or a checkpoint.
    pub(super) departure: OnceLock<Ending>,
}

/// The account of a session's lanes.
pub(super) struct LaneAccount {
    max_lanes: u16,
    lanes: Mutex<Lanes>,
    /// Until all lanes are open.
    deadline: Mutex<Option<Deadline>>,
}

impl LaneAccount {
    pub(super) fn new(max_lanes: u16) -> Self {
        Self {
            max_lanes,
            lanes: Mutex::default(),
            deadline: Mutex::default(),
        }
    }

    /// Sets what ends the session unless all lanes are opened before.
    pub(super) fn set_deadline(&self, deadline: Deadline) {
        let lanes = lock(&self.lanes);
        if !lanes.are_all_open() {
            *lock(&self.deadline) = Some(deadline);
        }
    }

    /// Notes that a lane is opened; in the error, why it must not.
    pub(super) fn open(&self, index: u16, count: u16) -> Result<(), &'static str> {
        let mut lanes = lock(&self.lanes);
        lanes.open(index, count, self.max_lanes)?;
        if lanes.are_all_open() {
            *lock(&self.deadline) = None;
        }
        Ok(())
    }

    fn is_open(&self, index: u16) -> bool {
        let bit = 1u64.checked_shl(index.into()).unwrap_or_default();
        lock(&self.lanes).opened & bit != 0
    }

    /// Whether all lanes have been opened.
    pub(super) fn are_open(&self) -> bool {
        lock(&self.lanes).are_all_open()
    }

    /// Whether a lane might be opened. Notes nothing of what a preamble says, which is not proven.
    fn check(&self, index: u16, count: u16) -> Result<(), &'static str> {
        let opened = lock(&self.lanes).opened;
        Lanes {
            count: None,
            opened,
        }
        .open(index, count, self.max_lanes)
    }

    fn opened(&self) -> u16 {
        let opened = lock(&self.lanes).opened;
        u16::try_from(opened.count_ones()).expect("64 bits at most")
    }
}

/// Which lanes of a session have been opened, where they are not encrypted. Each can be opened once, so a ticket that someone saw is
/// worth nothing after its owner used it. Encrypted lanes prove themselves to the worker, and until then a ticket is not used up.
#[derive(Default)]
struct Lanes {
    /// What the first lane said.
    count: Option<u16>,
    /// One bit per lane; `limits::LANES` is 64.
    opened: u64,
}

impl Lanes {
    /// Notes that a lane is opened; in the error, why it must not.
    fn open(&mut self, index: u16, lanes: u16, max_lanes: u16) -> Result<(), &'static str> {
        let count = *self.count.get_or_insert(lanes);
        if count != lanes {
            return Err("the lanes of a session disagree about their number");
        }
        if count > max_lanes {
            return Err("more lanes than the session may have");
        }
        let bit = 1u64.checked_shl(index.into()).ok_or("no such lane")?;
        if self.opened & bit != 0 {
            return Err("the lane is open already: the ticket was used before");
        }
        self.opened |= bit;
        Ok(())
    }

    fn are_all_open(&self) -> bool {
        self.count.map(u32::from) == Some(self.opened.count_ones())
    }
}

/// The sessions of a supervisor.
pub(super) struct SessionTable {
    state: Mutex<State>,
    /// A place is free.
    left: Condvar,
}

#[derive(Default)]
struct State {
    /// The most that there may be.
    max: u32,
    /// The most that there are descriptors for.
    possible: u32,
    sessions: BTreeMap<u64, Arc<Session>>,
    /// Places promised to clients whose worker is not there yet.
    reserved: u32,
    /// Those of them whose clients have left.
    leaving: u32,
    /// Those of them whose sessions are over, and whose workers hang.
    hanging: u32,
    /// Clients that wait for a place.
    waiting: u32,
    last_id: u64,
    crashed: u64,
    closed: bool,
}

impl State {
    /// The session that makes place for one of `tenant`, if one does.
    fn gives_way(&self, tenant: &Arc<Tenant>) -> Option<Arc<Session>> {
        let sessions = self.sessions.values();
        let cut_off = sessions
            .filter_map(|session| Some((session, &session.tenant, session.control.away()?)));
        first_to_go(cut_off, tenant).map(Arc::clone)
    }
}

/// Of sessions whose clients are cut off, each with its tenant and for how long, the first to end for one of `tenant`: its own before others,
/// and of others only where it has no more sessions than they, with the one that is to begin.
fn first_to_go<'a, S>(
    cut_off: impl Iterator<Item = (S, &'a Arc<Tenant>, Duration)>,
    tenant: &Arc<Tenant>,
) -> Option<S> {
    let is_own = |of: &Arc<Tenant>| Arc::ptr_eq(of, tenant);
    let own = tenant.usage().sessions;
    let may = cut_off.filter(|(_, of, _)| is_own(of) || own <= of.usage().sessions);
    let first = may.max_by_key(|(_, of, away)| (is_own(of), *away));
    first.map(|(session, ..)| session)
}

/// A place in the table, held from admission to the end of the session.
pub(super) struct Place {
    table: Arc<SessionTable>,
    /// Number of the session.
    pub(super) id: u64,
    leaving: bool,
    hanging: bool,
}

impl SessionTable {
    /// At most `max` sessions, and no more than there are descriptors for.
    pub(super) fn new(max: u32, possible: u32) -> Self {
        let state = State {
            max,
            possible,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            left: Condvar::new(),
        }
    }

    /// Admits a client of `tenant`, or says why not. Waits for the places of clients that have left.
    pub(super) fn admit(self: &Arc<Self>, tenant: &Arc<Tenant>) -> Result<Place, Reject> {
        let is_full =
            |state: &State| state.reserved >= state.max.min(state.possible) && !state.closed;
        let is_leaving = |state: &State| state.leaving > 0;
        let mut state = lock(&self.state);
        if is_full(&state) {
            let cut_off = state.gives_way(tenant);
            drop(state);
            cut_off.inspect(|session| {
                let reason = "the client was cut off, and another one needed its place";
                session.control.end(Some(reason));
            });
            state = lock(&self.state);
        }
        let mut state = wait_for_place(
            &self.left,
            state,
            |state| &mut state.waiting,
            is_full,
            is_leaving,
        );
        if state.closed {
            return Err(RejectCode::ShuttingDown.plain());
        }
        if state.reserved >= state.max {
            let text = format!(
                "all {} sessions of the server are in use; wait for one to end, or start it with a higher --max-sessions",
                state.max
            );
            return Err(RejectCode::TooManySessions.because(text));
        }
        if state.reserved >= state.possible {
            let text = format!(
                "all {} sessions of the server are in use that it has descriptors for; wait for one to end, or raise its limit of \
                 open files",
                state.possible
            );
            return Err(RejectCode::TooManySessions.because(text));
        }
        state.reserved += 1;
        state.last_id += 1;
        Ok(Place {
            table: Arc::clone(self),
            id: state.last_id,
            leaving: false,
            hanging: false,
        })
    }

    /// Makes a session known, so that lanes can join it.
    pub(super) fn insert(&self, session: Arc<Session>) -> Result<(), Reject> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(RejectCode::ShuttingDown.plain());
        }
        // It may have been when this session was not known yet.
        if session.tenant.is_revoked() {
            let text = session.tenant.revocation();
            return Err(RejectCode::TenantEnded.because(text));
        }
        state.sessions.insert(session.id, session);
        Ok(())
    }

    /// Gives a lane to the worker of the session that its ticket belongs to; in the error, why not.
    pub(super) fn attach(
        &self,
        preamble: &AttachPreamble,
        scheme: &str,
        connection: &dyn Connection,
    ) -> Result<u64, String> {
        // Tickets compare in constant time; which session it is shows in none of what a stranger sees.
        let found = lock(&self.state)
            .sessions
            .values()
            .find(|session| session.ticket == preamble.ticket)
            .cloned();
        let session = found.ok_or("no session has this ticket")?;
        let descriptor = connection
            .descriptor()
            .ok_or("its transport cannot pass connections to a worker")?;
        let (index, count) = (preamble.lane_index, preamble.lane_count);
        match session.lane_key {
            _ if preamble.again && session.lanes.is_open(index) => {}
            None => session.lanes.open(index, count)?,
            // The worker notes it when it has proven itself.
            Some(_) => session.lanes.check(index, count)?,
        }
        session
            .worker
            .pass_lane(preamble, scheme, descriptor)
            .map_err(|error| format!("{error}: {}", error.source))?;
        Ok(session.id)
    }

    /// The session of this number.
    pub(super) fn get(&self, id: u64) -> Option<Arc<Session>> {
        lock(&self.state).sessions.get(&id).cloned()
    }

    /// Ends a session whose client is cut off and that holds device memory, for the session `but` that lacks some: the one that was cut off
    /// first, of that session's tenant before others, and of no other where `own_only`. False where there is none, where all of them hold less
    /// than what is lacking, or where it does not end.
    pub(super) fn make_room(
        &self,
        lacking: u64,
        (tenant, own_only): (&Arc<Tenant>, bool),
        but: u64,
    ) -> bool {
        let is_own = |session: &Session| Arc::ptr_eq(tenant, &session.tenant);
        let mut held = self.statistics(own_only.then_some(tenant));
        held.retain(|(session, statistics)| {
            session.id != but
                && session.control.away().is_some()
                && statistics.device_memory_bytes > 0
        });
        let all = held
            .iter()
            .map(|(_, statistics)| statistics.device_memory_bytes);
        if all.fold(0, u64::saturating_add) < lacking {
            return false;
        }
        let first = held
            .into_iter()
            .max_by_key(|(session, _)| (is_own(session), session.control.away()));
        let Some((session, _)) = first else {
            return false;
        };
        log::info!(
            "session {}: its memory is needed by session {but}",
            session.id
        );
        let reason = "the client was cut off, and another session needed its memory";
        session.control.end(Some(reason));
        self.wait_gone(session.id, KILL_LIMIT) && session.worker.is_reaped()
    }

    /// Waits until the place of a session is free again; false if that takes longer than `limit`.
    pub(super) fn wait_gone(&self, id: u64, limit: Duration) -> bool {
        let state = lock(&self.state);
        let is_there = |state: &mut State| state.sessions.contains_key(&id);
        let waited = self.left.wait_timeout_while(state, limit, is_there);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.sessions.contains_key(&id)
    }

    /// What `towline status` shows of each session that a tenant may see: `of` one, or all.
    pub(super) fn status(&self, of: Option<&Arc<Tenant>>) -> Vec<SessionStatus> {
        let sessions = self.statistics(of).into_iter();
        let told = sessions.map(|(session, statistics)| session.status(&statistics));
        told.collect()
    }

    /// Sessions with what each has used so far; what their tenants have used counts that, too.
    pub(super) fn statistics(&self, of: Option<&Arc<Tenant>>) -> Vec<(Arc<Session>, Statistics)> {
        let is_seen =
            |session: &&Arc<Session>| of.is_none_or(|tenant| Arc::ptr_eq(tenant, &session.tenant));
        let state = lock(&self.state);
        let sessions: Vec<_> = state.sessions.values().filter(is_seen).cloned().collect();
        drop(state);
        // All are asked before the first is waited for.
        sessions
            .iter()
            .for_each(|session| session.worker.ask_statistics());
        let deadline = Instant::now() + STATISTICS_LIMIT;
        let told = sessions.into_iter().map(|session| {
            let statistics = session.worker.statistics(deadline);
            (session, statistics)
        });
        told.collect()
    }

    /// Sessions since the start, and how many of them crashed.
    pub(super) fn totals(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.last_id, state.crashed)
    }

    /// Sessions that are not over.
    pub(super) fn count(&self) -> u64 {
        let state = lock(&self.state);
        (state.reserved - state.hanging).into()
    }

    /// Places that are taken, and how many there are.
    pub(super) fn in_use(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.reserved.into(), state.max.min(state.possible).into())
    }

    /// The most that there may be; those beyond it go on.
    pub(super) fn max(&self) -> u32 {
        lock(&self.state).max
    }

    /// Changes that; there are descriptors for `most`.
    pub(super) fn set_max(&self, max: u32, most: u32) {
        let mut state = lock(&self.state);
        state.max = max;
        state.possible = state.possible.max(most.min(max));
        self.left.notify_all();
    }

    /// Admits no more; those that there are go on.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.left.notify_all();
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        lock(&self.state).sessions.values().cloned().collect()
    }

    pub(super) fn count_crash(&self) {
        lock(&self.state).crashed += 1;
    }

    /// Ends the sessions of a tenant that was revoked. Their threads clean up.
    pub(super) fn end_of(&self, tenant: &Arc<Tenant>) {
        let state = lock(&self.state);
        let own = state.sessions.values();
        let own: Vec<_> = own
            .filter(|session| Arc::ptr_eq(&session.tenant, tenant))
            .cloned()
            .collect();
        drop(state);
        let reason = tenant.revocation();
        own.iter()
            .for_each(|session| session.control.end(Some(&reason)));
    }

    /// Ends all sessions and admits no more. Their threads clean up.
    pub(super) fn end_all(&self, reason: &str) {
        let mut state = lock(&self.state);
        state.closed = true;
        self.left.notify_all();
        let sessions: Vec<_> = state.sessions.values().cloned().collect();
        drop(state);
        sessions
            .iter()
            .for_each(|session| session.control.end(Some(reason)));
    }
}

impl Place {
    /// The client has left: who wants a place waits for this one.
    pub(super) fn leave(&mut self) {
        if !std::mem::replace(&mut self.leaving, true) {
            lock(&self.table.state).leaving += 1;
            self.table.left.notify_all();
        }
    }

    /// The session is over. Its worker hangs, and has the place until it is gone: nobody waits for that.
    pub(super) fn outlive_session(&mut self) {
        let mut state = lock(&self.table.state);
        state.sessions.remove(&self.id);
        state.leaving -= u32::from(std::mem::take(&mut self.leaving));
        state.hanging += u32::from(!std::mem::replace(&mut self.hanging, true));
        drop(state);
        self.table.left.notify_all();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = lock(&self.table.state);
        state.sessions.remove(&self.id);
        state.reserved -= 1;
        state.leaving -= u32::from(self.leaving);
        state.hanging -= u32::from(self.hanging);
        drop(state);
        self.table.left.notify_all();
    }
}

impl Session {
    /// Its limits, in the order of the protocol.
    fn limits(&self, statistics: &Statistics) -> [LimitStatus; LIMITS.len()] {
        let quota = &self.quota;
        let group = self.group.as_deref();
        let limited = |controller| group.is_some_and(|group| group.limits(controller));
        let or = |controller, otherwise| match limited(controller) {
            true => Enforcement::Cgroup,
            false => otherwise,
        };
        // Those of a job are counted together.
        let processes = match self.worker.counts_processes() && self.job.is_none() {
            true => Enforcement::Rlimit,
            false => Enforcement::None,
        };
        let files = match self.has_own_files {
            true => Enforcement::Mount,
            false => Enforcement::None,
        };
        let status = |value, used, enforcement| LimitStatus {
            value,
            used,
            enforcement: if value == 0 {
                Enforcement::None
            } else {
                enforcement
            },
        };
        [
            status(
                quota.device_memory_bytes,
                Some(statistics.device_memory_bytes),
                Enforcement::Worker,
            ),
            status(
                quota.host_memory_bytes,
                group.and_then(Group::memory_bytes),
                or(Controller::Memory, Enforcement::Rlimit),
            ),
            status(quota.temporary_bytes, None, files),
            status(
                quota.processes,
                group.and_then(Group::processes),
                or(Controller::Pids, processes),
            ),
            status(quota.kernel_time_ms, None, Enforcement::Worker),
            status(
                quota.code_bytes,
                Some(statistics.code_bytes),
                Enforcement::Worker,
            ),
            status(
                quota.cpu_percent,
                None,
                or(Controller::Cpu, Enforcement::None),
            ),
            status(
                self.bounds.session_offers as u64,
                Some(self.worker.offered()),
                Enforcement::Server,
            ),
            status(self.bounds.log_lines.into(), None, Enforcement::Server),
            status(quota.descriptors, None, Enforcement::Rlimit),
        ]
    }

    pub(super) fn api(&self) -> Api {
        match self.hello.purpose {
            Purpose::CudaSession => Api::Cuda,
            _ => Api::OpenCl,
        }
    }

    fn status(&self, statistics: &Statistics) -> SessionStatus {
        SessionStatus {
            session_id: self.id,
            purpose: self.hello.purpose,
            program: self.hello.program.clone(),
            hostname: self.hello.hostname.clone(),
            client_pid: self.hello.pid,
            peer: self.control.peer(),
            worker_pid: self.worker.pid(),
            age_ms: milliseconds(self.since.elapsed()),
            away_ms: self
                .control
                .away()
                .map_or(0, |away| milliseconds(away).max(1)),
            lanes: self.lanes.opened(),
            peer_lanes: self.peering.passed(),
            device_memory_bytes: statistics.device_memory_bytes,
            swapped_bytes: self.worker.swapped_bytes(),
            device_memory_peak: statistics.device_memory_peak,
            device_memory_limit: self.quota.device_memory_bytes,
            received_bytes: statistics.received_bytes,
            sent_bytes: statistics.sent_bytes,
            calls: statistics.calls,
            launches: statistics.launches,
            device_time_us: statistics.device_time_us,
            tenant: self.tenant.name().to_owned(),
            limits: self.limits(statistics),
        }
    }
}

#[cfg(test)]
mod tests {
    use towline_wire::control::Token;

    use super::super::tenant::{TenantEntry, TenantTable};
    use super::super::{LEAVING_LIMIT, NOTICE_LIMIT};
    use super::*;

    fn table(max: u32, possible: u32) -> Arc<SessionTable> {
        Arc::new(SessionTable::new(max, possible))
    }

    fn tenants() -> [Arc<Tenant>; 2] {
        let entry = |name: &str| {
            let token = Token::from_bytes(b"a token that is long enough").unwrap();
            (name.to_owned(), TenantEntry::new(name, token))
        };
        let table = TenantTable::listed(["anna", "bert"].map(entry).into());
        ["anna", "bert"].map(|name| table.get(name).unwrap())
    }

    #[test]
    fn own_sessions_give_way_before_those_of_others() {
        let [anna, bert] = tenants();
        let second = Duration::from_secs(1);
        let of_both = || {
            [
                (1, &anna, second),
                (2, &bert, 2 * second),
                (3, &bert, 3 * second),
            ]
        };
        let for_anna = |cut_off: &[_]| first_to_go(cut_off.iter().copied(), &anna);
        let _annas = [anna.admit().unwrap(), anna.admit().unwrap()];
        assert_eq!(for_anna(&of_both()), Some(1));
        let only_of_bert = &of_both()[1..];
        let berts = [bert.admit().unwrap()];
        assert_eq!(for_anna(only_of_bert), None);
        let _more = [bert.admit().unwrap()];
        assert_eq!(for_anna(only_of_bert), Some(3));
        drop(berts);
        assert_eq!(first_to_go(of_both().into_iter(), &bert), Some(3));
    }

    #[test]
    fn each_lane_opens_once() {
        let mut lanes = Lanes::default();
        assert!(lanes.open(0, 2, 8).is_ok());
        assert!(lanes.open(1, 2, 8).is_ok());
        assert!(lanes.open(1, 2, 8).is_err());
    }

    #[test]
    fn lanes_must_agree_and_keep_to_the_limit() {
        let mut lanes = Lanes::default();
        assert!(lanes.open(0, 2, 8).is_ok());
        assert!(lanes.open(2, 3, 8).is_err());
        assert!(Lanes::default().open(0, 9, 8).is_err());
    }

    #[test]
    fn places_are_limited_and_come_back() {
        let table = table(1, 1);
        let place = table.admit(&tenants()[0]).ok().unwrap();
        assert_eq!(
            table.admit(&tenants()[0]).err().unwrap().code,
            RejectCode::TooManySessions
        );
        drop(place);
        assert_eq!(table.admit(&tenants()[0]).ok().unwrap().id, 2);
    }

    #[test]
    fn hanging_worker_keeps_its_place_and_nobody_waiting() {
        let table = table(1, 1);
        let mut place = table.admit(&tenants()[0]).ok().unwrap();
        place.leave();
        place.outlive_session();
        let begun = Instant::now();
        assert!(table.admit(&tenants()[0]).is_err());
        assert!(begun.elapsed() < LEAVING_LIMIT);
        assert_eq!((table.count(), table.in_use()), (0, (1, 1)));
        drop(place);
        assert_eq!((table.count(), table.in_use()), (0, (0, 1)));
        assert!(table.admit(&tenants()[0]).is_ok());
    }

    #[test]
    fn place_of_client_that_left_is_waited_for() {
        let table = table(1, 1);
        let mut place = table.admit(&tenants()[0]).ok().unwrap();
        place.leave();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| table.admit(&tenants()[0]).map(|place| place.id));
            // Whether it has begun to wait by now is chance, and shows in nothing.
            std::thread::sleep(Duration::from_millis(20));
            drop(place);
            assert_eq!(next.join().unwrap().ok(), Some(2));
        });
    }

    #[test]
    fn place_of_client_about_to_leave_is_waited_for() {
        let table = table(1, 1);
        let mut place = table.admit(&tenants()[0]).ok().unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| table.admit(&tenants()[0]).map(|place| place.id));
            std::thread::sleep(Duration::from_millis(20));
            place.leave();
            std::thread::sleep(NOTICE_LIMIT);
            drop(place);
            assert_eq!(next.join().unwrap().ok(), Some(2));
        });
    }

    #[test]
    fn missing_descriptors_are_said_to_be_the_limit() {
        let table = table(2, 1);
        let _place = table.admit(&tenants()[0]).ok().unwrap();
        let reject = table.admit(&tenants()[0]).err().unwrap();
        assert_eq!(reject.code, RejectCode::TooManySessions);
        assert!(reject.text.contains("open files"), "{}", reject.text);
    }

    #[test]
    fn changed_limit_holds_for_new_sessions() {
        let table = table(2, 2);
        let _places = [
            table.admit(&tenants()[0]).ok().unwrap(),
            table.admit(&tenants()[0]).ok().unwrap(),
        ];
        table.set_max(1, 2);
        let reject = table.admit(&tenants()[0]).err().unwrap();
        assert!(reject.text.contains("all 1 sessions"), "{}", reject.text);
        table.set_max(4, 3);
        let _third = table.admit(&tenants()[0]).ok().unwrap();
        let reject = table.admit(&tenants()[0]).err().unwrap();
        assert!(reject.text.contains("descriptors for"), "{}", reject.text);
    }

    #[test]
    fn closed_table_admits_nobody() {
        let table = table(1, 1);
        table.end_all("test");
        assert_eq!(
            table.admit(&tenants()[0]).err().unwrap().code,
            RejectCode::ShuttingDown
        );
    }
}
