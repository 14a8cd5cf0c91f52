//! Turns of sessions on devices that several tenants share: what the [arbiter](super::arbiter) says reaches their workers.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use towline_wire::control::TimeShare;

use super::arbiter::{Arbiter, DeviceName, Outcome};
use super::lock;
use super::tenant::Tenant;
use super::worker::Worker;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Turns {
    begun: Instant,
    /// In percent, of tenants without a share of their own.
    default_share: Option<u8>,
    state: Mutex<State>,
    /// Something is due at another time than before.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    arbiter: Arbiter,
    members: Vec<Member>,
    /// A thread does what is due.
    runs: bool,
}

#[derive(Debug)]
struct Member {
    session: u64,
    worker: Weak<Worker>,
    tenant: Arc<Tenant>,
}

impl State {
    /// Sends under the lock, so that no worker hears of turns in another order. A worker that does not read is not waited for.
    fn carry_out(&self, outcome: Outcome) {
        for word in outcome.words {
            let mut members = self.members.iter();
            let member = members.find(|member| member.session == word.session);
            if let Some(worker) = member.and_then(|member| member.worker.upgrade()) {
                worker.tell_turn(word.device, word.turn, word.number);
            }
        }
        for (tenant, ns) in outcome.waits {
            let mut members = self.members.iter();
            if let Some(member) = members.find(|member| member.tenant.number() == tenant) {
                member.tenant.count_wait(Duration::from_nanos(ns));
            }
        }
    }
}

impl Turns {
    pub(super) fn new(default_share: Option<u8>) -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            default_share,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// A session of a tenant on devices of these names, in its order.
    pub(super) fn join(
        self: &Arc<Self>,
        session: u64,
        tenant: &Arc<Tenant>,
        worker: &Arc<Worker>,
        devices: Vec<DeviceName>,
    ) -> TurnSeat {
        let member = Member {
            session,
            worker: Arc::downgrade(worker),
            tenant: Arc::clone(tenant),
        };
        lock(&self.state).members.push(member);
        TurnSeat {
            turns: Arc::clone(self),
            session,
            tenant: Arc::clone(tenant),
            devices,
        }
    }

    /// Tenants' shares may have changed.
    pub(super) fn refresh(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        let State {
            arbiter, members, ..
        } = &mut *state;
        let share = |tenant| {
            let mut members = members.iter();
            let member = members.find(|member| member.tenant.number() == tenant)?;
            Some(self.share_of(&member.tenant))
        };
        let outcome = arbiter.claim(&share, self.now());
        self.finish(&mut state, outcome);
    }

    fn share_of(&self, tenant: &Tenant) -> TimeShare {
        let share = tenant.limits().time;
        TimeShare {
            percent: share.percent.or(self.default_share),
            ..share
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn finish(self: &Arc<Self>, state: &mut State, outcome: Outcome) {
        state.carry_out(outcome);
        if state.arbiter.due().is_none() {
            return;
        }
        if !std::mem::replace(&mut state.runs, true) {
            let turns = Arc::clone(self);
            if let Err(error) = super::spawn("turns", move || turns.run()) {
                log::error!("nobody ends turns: {error}");
                state.runs = false;
            }
        }
        self.changed.notify_one();
    }

    /// Does what is due, until nothing is for a while.
    fn run(self: Arc<Self>) {
        /// For how long.
        const REST: u64 = 1_000_000_000;
        let mut state = lock(&self.state);
        loop {
            let now = self.now();
            let due = state.arbiter.due();
            if due.is_some_and(|due| due <= now) {
                let outcome = state.arbiter.tick(now);
                state.carry_out(outcome);
                continue;
            }
            let pause = Duration::from_nanos(due.map_or(REST, |due| due - now));
            let waited = self.changed.wait_timeout(state, pause);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            if due.is_none() && timeout.timed_out() && state.arbiter.due().is_none() {
                state.runs = false;
                return;
            }
        }
    }
}

/// A session's turns; dropping it ends them.
#[derive(Debug)]
pub(super) struct TurnSeat {
    turns: Arc<Turns>,
    session: u64,
    tenant: Arc<Tenant>,
    devices: Vec<DeviceName>,
}

impl TurnSeat {
    /// Number of its devices.
    pub(super) fn devices(&self) -> usize {
        self.devices.len()
    }

    /// The session has launches for a device; false if it has no such device.
    pub(super) fn want(&self, device: u32) -> bool {
        let Some(name) = self.devices.get(device as usize) else {
            return false;
        };
        let tenant = (self.tenant.number(), self.turns.share_of(&self.tenant));
        let mut state = lock(&self.turns.state);
        let now = self.turns.now();
        let outcome = state
            .arbiter
            .want(name, tenant, (self.session, device), now);
        self.turns.finish(&mut state, outcome);
        true
    }

    /// The session hands a turn over; false if it has no such device.
    pub(super) fn over(&self, device: u32, number: u64) -> bool {
        let Some(name) = self.devices.get(device as usize) else {
            return false;
        };
        let mut state = lock(&self.turns.state);
        let now = self.turns.now();
        let outcome = state.arbiter.over(name, self.session, number, now);
        self.turns.finish(&mut state, outcome);
        true
    }
}

impl Drop for TurnSeat {
    fn drop(&mut self) {
        let mut state = lock(&self.turns.state);
        state
            .members
            .retain(|member| member.session != self.session);
        let now = self.turns.now();
        let outcome = state.arbiter.leave(self.session, now);
        self.turns.finish(&mut state, outcome);
    }
}
