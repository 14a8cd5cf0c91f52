//! Swapping: which session gives its device memory up for another that lacks some.
//!
//! One session is asked at a time, and it goes as a whole, within a budget of host memory: first one that has nothing to do, then the one that has
//! been on the device for the longest time, once its turn is over. A turn is long against the time that moving takes.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use towline_worker::SwapRequest;

use super::arbiter::DeviceName;
use super::session::Session;
use super::tenant::Tenant;
use super::worker::{NO_ANSWER, RoomMaker, Worker};
use super::{Shared, lock};

/// A session that was swapped in keeps its memory for so long, and for
const TURN: Duration = Duration::from_secs(2);
/// so many times the time that it took to swap it out.
const TURN_FACTOR: u32 = 8;
/// A session that could not give way is not asked again for so long,
const REFUSED: Duration = Duration::from_secs(10);
/// and one whose worker did not answer for so long.
const SILENT: Duration = Duration::from_secs(600);
/// Between two looks whether a session that waits for others is still there.
const LOOK: Duration = Duration::from_secs(1);
/// How long a session may take to give way: its kernels are waited for, and its memory is copied.
const MOVE_LIMIT: Duration = Duration::from_secs(60);
/// How long a session waits for others to give way, at most.
const PATIENCE: Duration = Duration::from_secs(90);

/// See the module's text.
#[derive(Debug)]
pub(super) struct SwapSpace {
    /// Bytes of host memory.
    budget: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<Member>,
    /// Those for whom others are asked at the moment. No two of them concern the same sessions.
    askers: Vec<Asker>,
    /// How often somebody has given way.
    given: u64,
}

#[derive(Debug)]
struct Member {
    session: u64,
    worker: Weak<Worker>,
    /// Of the tenant.
    tenant: u64,
    devices: Vec<DeviceName>,
    /// Bytes that it has given up and keeps in host memory; 0 while they are on the device.
    out: u64,
    /// How long it keeps its memory once it is back.
    turn: Duration,
    /// It keeps its memory until then, unless it has nothing to do.
    until: Instant,
    /// It is not asked until then.
    refused: Instant,
    /// The most that it may have on devices.
    most: u64,
    /// Since when it is asked, and what it may hold of host memory.
    asked: Option<(Instant, u64)>,
}

impl Member {
    /// It has given way. A worker's word is worth no more than what its session may have.
    fn gave(&mut self, freed: u64) -> Option<u64> {
        let (since, most) = self.asked.take()?;
        self.out = freed.min(self.most).clamp(1, most.max(1));
        self.turn = TURN.max(since.elapsed() * TURN_FACTOR);
        Some(self.out)
    }
}

/// A session that lacks memory, its own or its tenant's.
#[derive(Clone, Debug)]
struct Asker {
    session: u64,
    tenant: u64,
    devices: Vec<DeviceName>,
    /// Its tenant has too little, not the device.
    of_tenant: bool,
}

impl Asker {
    /// Whether a session with these would help.
    fn concerns(&self, tenant: u64, devices: &[DeviceName]) -> bool {
        match self.of_tenant {
            true => tenant == self.tenant,
            false => devices.iter().any(|device| self.devices.contains(device)),
        }
    }

    /// Whether the same session might help both.
    fn rivals(&self, other: &Self) -> bool {
        self.concerns(other.tenant, &other.devices) || other.concerns(self.tenant, &self.devices)
    }
}

/// The next thing to do for a session that lacks memory.
#[derive(Debug, PartialEq)]
enum Step {
    /// Ask a session to give way; only if it has nothing to do where it is `idle`.
    Ask { session: u64, idle: bool },
    /// Nobody's turn is over before.
    Wait(Instant),
    /// Nobody can give way.
    Nobody,
}

impl State {
    /// `asked` have said that they are busy.
    fn step(&self, asker: &Asker, asked: &[u64], now: Instant) -> Step {
        let candidates = || {
            let members = self.members.iter();
            members.filter(|member| {
                member.session != asker.session
                    && member.out == 0
                    && member.refused <= now
                    && member.asked.is_none()
                    && asker.concerns(member.tenant, &member.devices)
            })
        };
        let unasked = candidates().filter(|member| !asked.contains(&member.session));
        if let Some(member) = unasked.min_by_key(|member| member.until) {
            return Step::Ask {
                session: member.session,
                idle: true,
            };
        }
        match candidates().min_by_key(|member| member.until) {
            Some(member) if member.until > now => Step::Wait(member.until),
            Some(member) => Step::Ask {
                session: member.session,
                idle: false,
            },
            None => Step::Nobody,
        }
    }

    /// Whether a session has not ended.
    fn is_there(&self, session: u64) -> bool {
        let mut members = self.members.iter();
        let member = members.find(|member| member.session == session);
        let worker = member.and_then(|member| member.worker.upgrade());
        worker.is_some_and(|worker| !worker.is_reaped())
    }

    fn member(&mut self, session: u64) -> Option<&mut Member> {
        self.members
            .iter_mut()
            .find(|member| member.session == session)
    }

    /// Bytes of host memory that a session may hold.
    fn most(&self, session: u64, budget: u64) -> u64 {
        let others = self
            .members
            .iter()
            .filter(|member| member.session != session);
        let held = others.map(|member| member.out).fold(0, u64::saturating_add);
        budget.saturating_sub(held)
    }
}

impl SwapSpace {
    /// With so many bytes of host memory.
    pub(super) fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            budget,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// A session of a tenant on devices of these names, on which it may have `most` bytes.
    pub(super) fn join(
        self: &Arc<Self>,
        session: u64,
        tenant: &Tenant,
        worker: &Arc<Worker>,
        devices: Vec<DeviceName>,
        most: u64,
    ) -> SwapSeat {
        let tenant = tenant.number();
        lock(&self.state).members.push(Member {
            session,
            worker: Arc::downgrade(worker),
            tenant,
            devices: devices.clone(),
            out: 0,
            turn: TURN,
            until: Instant::now(),
            refused: Instant::now(),
            most,
            asked: None,
        });
        SwapSeat {
            space: Arc::clone(self),
            session,
            tenant,
            devices,
        }
    }

    /// Bytes that sessions have given up.
    pub(super) fn in_use(&self) -> u64 {
        let state = lock(&self.state);
        let given = state.members.iter().map(|member| member.out);
        given.fold(0, u64::saturating_add)
    }

    /// How often sessions have given way.
    pub(super) fn given(&self) -> u64 {
        lock(&self.state).given
    }

    /// Has another session give way. Whether one did.
    fn make_room(&self, asker: &Asker) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let mut state = lock(&self.state);
        let given = state.given;
        while state.askers.iter().any(|other| other.rivals(asker)) {
            if Instant::now() >= deadline || !state.is_there(asker.session) {
                return false;
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            // One that gave way for another session may have left enough for this one.
            if state.given != given {
                return true;
            }
        }
        state.askers.push(asker.clone());
        drop(state);
        let made = self.ask_others(asker, deadline);
        let mut state = lock(&self.state);
        state.askers.retain(|other| other.session != asker.session);
        drop(state);
        self.changed.notify_all();
        made
    }

    fn ask_others(&self, asker: &Asker, deadline: Instant) -> bool {
        let mut asked = Vec::new();
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            if now >= deadline || !state.is_there(asker.session) {
                return false;
            }
            match state.step(asker, &asked, now) {
                Step::Ask { session, idle } => {
                    let most = state.most(session, self.budget);
                    let Some(member) = state.member(session) else {
                        continue;
                    };
                    member.asked = Some((now, most));
                    let worker = member.worker.upgrade();
                    drop(state);
                    let request = SwapRequest { most, idle };
                    let moved = worker.map_or(Err("it is over".to_owned()), |worker| {
                        worker.give_way(request, MOVE_LIMIT)
                    });
                    state = lock(&self.state);
                    if let Ok(freed) = moved {
                        state.given += 1;
                        log::info!(
                            "session {session}: swapped out for session {} in {:.1?}: {freed} bytes",
                            asker.session,
                            now.elapsed()
                        );
                        return true;
                    }
                    let why = moved.err().unwrap_or_default();
                    log::debug!("session {session} is not swapped out: {why}");
                    asked.push(session);
                    let Some(member) = state.member(session) else {
                        continue;
                    };
                    if why == NO_ANSWER {
                        // A late answer still counts.
                        member.refused = Instant::now() + SILENT;
                        continue;
                    }
                    member.asked = None;
                    if !idle {
                        member.refused = Instant::now() + REFUSED;
                    }
                }
                Step::Wait(until) if until < deadline => {
                    let waited = self.changed.wait_timeout(state, LOOK.min(until - now));
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    asked.clear();
                }
                Step::Wait(_) | Step::Nobody => return false,
            }
        }
    }
}

/// Has others make room for a session. `seat` is its own place among those that are swapped, where there is one.
pub(super) fn rooms(
    shared: &Arc<Shared>,
    session: &Session,
    seat: Option<&Arc<SwapSeat>>,
) -> RoomMaker {
    let (shared, tenant, id) = (Arc::clone(shared), Arc::clone(&session.tenant), session.id);
    let seat = seat.map(Arc::downgrade);
    Arc::new(move |lacking, own| {
        let seat = seat.as_ref().and_then(Weak::upgrade);
        // A session that is swapped out goes on later, and one that ends does not.
        seat.is_some_and(|seat| seat.make_room(own))
            || shared.sessions.make_room(lacking, (&tenant, own), id)
    })
}

/// A session that may be swapped; dropping it ends that.
#[derive(Debug)]
pub(super) struct SwapSeat {
    space: Arc<SwapSpace>,
    session: u64,
    tenant: u64,
    devices: Vec<DeviceName>,
}

impl SwapSeat {
    /// Has another session give way for this one; of the same tenant, where it is the tenant's memory that is lacking. Whether one did. Waits.
    pub(super) fn make_room(&self, of_tenant: bool) -> bool {
        self.space.make_room(&Asker {
            session: self.session,
            tenant: self.tenant,
            devices: self.devices.clone(),
            of_tenant,
        })
    }

    /// The session has given so many bytes up, and what is believed of that; `None` where it was not asked to.
    pub(super) fn gave(&self, freed: u64) -> Option<u64> {
        let mut state = lock(&self.space.state);
        state.member(self.session)?.gave(freed)
    }

    /// The session's memory is on the device again.
    pub(super) fn is_back(&self) {
        let mut state = lock(&self.space.state);
        if let Some(member) = state.member(self.session).filter(|member| member.out > 0) {
            member.out = 0;
            member.until = Instant::now() + member.turn;
        }
    }

    /// Bytes that the session has given up.
    pub(super) fn out(&self) -> u64 {
        let mut state = lock(&self.space.state);
        state.member(self.session).map_or(0, |member| member.out)
    }
}

impl Drop for SwapSeat {
    fn drop(&mut self) {
        let mut state = lock(&self.space.state);
        state
            .members
            .retain(|member| member.session != self.session);
        drop(state);
        self.space.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNA: u64 = 1;
    const BERT: u64 = 2;

    /// On one device, with its turn over for so many seconds; negative while it has it.
    fn member(session: u64, tenant: u64, device: &str, over_for: i64, now: Instant) -> Member {
        let span = Duration::from_secs(over_for.unsigned_abs());
        Member {
            session,
            worker: Weak::new(),
            tenant,
            devices: vec![device.to_owned()],
            out: 0,
            turn: TURN,
            until: if over_for < 0 { now + span } else { now - span },
            refused: now,
            most: 1 << 40,
            asked: None,
        }
    }

    fn asker(session: u64, device: &str, of_tenant: bool) -> Asker {
        Asker {
            session,
            tenant: ANNA,
            devices: vec![device.to_owned()],
            of_tenant,
        }
    }

    fn ask(session: u64, idle: bool) -> Step {
        Step::Ask { session, idle }
    }

    #[test]
    fn idle_sessions_go_first_and_then_who_was_there_longest() {
        let now = Instant::now() + Duration::from_secs(100);
        let members = [(1, 5), (2, 50), (3, -5)];
        let members = members.map(|(session, over)| member(session, BERT, "a", over, now));
        let mut state = State {
            members: members.into(),
            ..State::default()
        };
        let asker = asker(9, "a", false);
        let step = |state: &State, asked: &[u64]| state.step(&asker, asked, now);
        assert_eq!(step(&state, &[]), ask(2, true));
        assert_eq!(step(&state, &[2]), ask(1, true));
        assert_eq!(step(&state, &[2, 1]), ask(3, true));
        assert_eq!(step(&state, &[1, 2, 3]), ask(2, false));
        state.member(2).unwrap().refused = now + REFUSED;
        assert_eq!(step(&state, &[1, 2, 3]), ask(1, false));
        state.member(1).unwrap().out = 1;
        assert_eq!(
            step(&state, &[1, 2, 3]),
            Step::Wait(now + Duration::from_secs(5))
        );
        state.member(3).unwrap().out = 1;
        assert_eq!(step(&state, &[]), Step::Nobody);
    }

    #[test]
    fn others_help_only_with_the_memory_that_is_lacking() {
        let now = Instant::now() + Duration::from_secs(100);
        let state = State {
            members: vec![
                member(1, BERT, "a", 1, now),
                member(2, ANNA, "b", 1, now),
                member(9, ANNA, "a", 1, now),
            ],
            ..State::default()
        };
        let step = |asker| state.step(&asker, &[], now);
        assert_eq!(step(asker(9, "a", false)), ask(1, true));
        assert_eq!(step(asker(9, "a", true)), ask(2, true));
        assert_eq!(step(asker(9, "c", false)), Step::Nobody);
    }

    #[test]
    fn only_sessions_that_others_could_help_both_wait_for_each_other() {
        let [own, device] = [true, false].map(|of_tenant| asker(1, "a", of_tenant));
        assert!(device.rivals(&asker(2, "a", false)) && own.rivals(&asker(2, "b", true)));
        let bert = Asker {
            tenant: BERT,
            ..asker(2, "b", false)
        };
        assert!(!device.rivals(&bert) && !own.rivals(&bert));
    }

    #[test]
    fn host_memory_is_what_others_leave_of_the_budget() {
        let now = Instant::now();
        let mut state = State {
            members: [1, 2]
                .map(|session| member(session, ANNA, "a", 0, now))
                .into(),
            ..State::default()
        };
        let first = state.member(1).unwrap();
        assert_eq!(first.gave(1), None, "nobody has asked it");
        // More than it has, and than it was told.
        (first.asked, first.most) = (Some((now, 700)), 600);
        assert_eq!(first.gave(u64::MAX), Some(600));
        assert_eq!([1, 2].map(|session| state.most(session, 1000)), [1000, 400]);
    }
}
