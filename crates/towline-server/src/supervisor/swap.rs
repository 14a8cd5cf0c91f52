//! Swapping: which session gives its device memory up for another that lacks some.
//!
//! One session is asked at a time, and it goes as a whole, within a budget of host memory: first one that has nothing to do, then the one that has
//! been on the device for the longest time, once its turn is over. A turn is long against the time that moving takes.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use towline_worker::SwapRequest;

use super::arbiter::DeviceName;
use super::lock;
use super::tenant::Tenant;
use super::worker::Worker;

/// A session that was swapped in keeps its memory for so long, and for
const TURN: Duration = Duration::from_secs(2);
/// so many times the time that it took to swap it out.
const TURN_FACTOR: u32 = 8;
/// A session that could not give way is not asked again for so long.
const REFUSED: Duration = Duration::from_secs(10);
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
    /// Somebody is being asked.
    asking: bool,
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
}

impl Member {
    /// It has given way, as it was asked `since`, within `most` bytes of host memory.
    fn gave(&mut self, freed: u64, most: u64, since: Instant) {
        // What a worker says is no more than was asked of it.
        self.out = freed.clamp(1, most.max(1));
        self.turn = TURN.max(since.elapsed() * TURN_FACTOR);
    }
}

/// Who lacks memory.
#[derive(Clone, Copy, Debug)]
struct Asker<'a> {
    session: u64,
    tenant: u64,
    devices: &'a [DeviceName],
    /// Its tenant has too little, not the device.
    of_tenant: bool,
}

/// What is to be done next for a session that lacks memory.
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
    fn step(&self, asker: Asker<'_>, asked: &[u64], now: Instant) -> Step {
        let helps = |member: &Member| match asker.of_tenant {
            true => member.tenant == asker.tenant,
            false => member
                .devices
                .iter()
                .any(|device| asker.devices.contains(device)),
        };
        let candidates = || {
            let members = self.members.iter();
            members.filter(|member| {
                member.session != asker.session
                    && member.out == 0
                    && member.refused <= now
                    && helps(member)
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

    /// A session of a tenant on devices of these names.
    pub(super) fn join(
        self: &Arc<Self>,
        session: u64,
        tenant: &Tenant,
        worker: &Arc<Worker>,
        devices: Vec<DeviceName>,
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
    fn make_room(&self, asker: Asker<'_>) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let mut state = lock(&self.state);
        let given = state.given;
        while state.asking {
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            // Whoever gave way for another may have left enough for this one.
            if state.given != given {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
        state.asking = true;
        let mut asked = Vec::new();
        let made = loop {
            let now = Instant::now();
            match state.step(asker, &asked, now) {
                Step::Ask { session, idle } => {
                    let most = state.most(session, self.budget);
                    let worker = state
                        .member(session)
                        .and_then(|member| member.worker.upgrade());
                    drop(state);
                    let request = SwapRequest { most, idle };
                    let moved = worker.map_or(Err("it is over".to_owned()), |worker| {
                        worker.give_way(request, MOVE_LIMIT)
                    });
                    state = lock(&self.state);
                    match (moved, state.member(session)) {
                        (Ok(freed), Some(member)) => {
                            member.gave(freed, most, now);
                            state.given += 1;
                            log::info!(
                                "session {session}: swapped out for session {} in {:.1?}: {} bytes",
                                asker.session,
                                now.elapsed(),
                                freed
                            );
                            break true;
                        }
                        // Its end has freed its memory.
                        (Ok(_), None) => break true,
                        (Err(why), member) => {
                            log::debug!("session {session} is not swapped out: {why}");
                            match member {
                                Some(member) if !idle => member.refused = Instant::now() + REFUSED,
                                _ => asked.push(session),
                            }
                        }
                    }
                }
                Step::Wait(until) if until < deadline && now < deadline => {
                    let waited = self.changed.wait_timeout(state, until - now);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    asked.clear();
                }
                Step::Wait(_) | Step::Nobody => break false,
            }
        };
        state.asking = false;
        drop(state);
        self.changed.notify_all();
        made
    }
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
        self.space.make_room(Asker {
            session: self.session,
            tenant: self.tenant,
            devices: &self.devices,
            of_tenant,
        })
    }

    /// The session's memory is on the device again.
    pub(super) fn is_back(&self) {
        let mut state = lock(&self.space.state);
        if let Some(member) = state.member(self.session) {
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
        }
    }

    fn asker(devices: &[DeviceName]) -> Asker<'_> {
        Asker {
            session: 9,
            tenant: ANNA,
            devices,
            of_tenant: false,
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
        let device = ["a".to_owned()];
        let step = |state: &State, asked: &[u64]| state.step(asker(&device), asked, now);
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
    fn others_help_only_with_the_device_or_the_tenant_that_lacks_memory() {
        let now = Instant::now() + Duration::from_secs(100);
        let state = State {
            members: vec![
                member(1, BERT, "a", 1, now),
                member(2, ANNA, "b", 1, now),
                member(9, ANNA, "a", 1, now),
            ],
            ..State::default()
        };
        let device = ["a".to_owned()];
        let own = Asker {
            of_tenant: true,
            ..asker(&device)
        };
        assert_eq!(state.step(asker(&device), &[], now), ask(1, true));
        assert_eq!(state.step(own, &[], now), ask(2, true));
        assert_eq!(state.step(asker(&[]), &[], now), Step::Nobody);
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
        // More than it was told.
        state.member(1).unwrap().gave(u64::MAX, 600, now);
        assert_eq!([1, 2].map(|session| state.most(session, 1000)), [1000, 400]);
    }
}
