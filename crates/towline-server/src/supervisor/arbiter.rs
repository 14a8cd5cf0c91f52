//! The order of turns on devices that several leases share: start-time fair queueing, by the shares of the leases that are busy.
//!
//! Times are nanoseconds of a clock that the caller has, so that tests have their own. A lease is a tenant's part of a device; its sessions
//! take their turns together. Virtual time is what a lease's time costs it: a nanosecond divided by its share. The next turn is of the
//! lease with the least; a lease that comes, or comes back, starts where the others are. Priorities move a lease's place by [`PRECEDENCE`],
//! so they say who is first and not how much anybody gets.

use towline_wire::control::{Priority, TimeShare};
use towline_worker::Turn;

/// Longest turn where somebody waits.
const QUANTUM: u64 = 5_000_000;
/// The same where the next one is owed more than [`OWED`] of virtual time.
const SHORT_QUANTUM: u64 = 1_000_000;
const OWED: u64 = 20_000_000;
/// The next one waits no longer than this for work that was launched before: longer kernels run beside its own.
const DRAIN: u64 = 100_000_000;
/// Virtual time by which priorities differ: 100 ms of a lease that has half a device.
const PRECEDENCE: u64 = 200_000_000;
/// A lease that comes back so soon was never idle: it waited for its last launch, and is owed what it missed.
const LINGER: u64 = 10_000_000;
const PERCENT: u64 = 100;

/// A device, by a name that all sessions have for it.
pub(super) type DeviceName = String;

/// A session is told this.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Word {
    pub(super) session: u64,
    /// Among the session's.
    pub(super) device: u32,
    pub(super) turn: Turn,
    pub(super) number: u64,
}

/// The consequences of a step.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) words: Vec<Word>,
    /// Tenants that have waited for turns that they have got, and for how long.
    pub(super) waits: Vec<(u64, u64)>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Arbiter {
    /// Few, by name.
    devices: Vec<(DeviceName, Device)>,
}

#[derive(Debug, Default)]
struct Device {
    leases: Vec<Lease>,
    serving: Option<Serving>,
    /// Of the lease that had the latest turn, when that ended.
    virtual_time: u64,
    turns: u64,
}

#[derive(Debug)]
struct Serving {
    tenant: u64,
    begun: u64,
    /// Since when the lease has not been charged.
    since: u64,
    /// Time at which it is judged next.
    due: u64,
    stopping: Option<u64>,
}

#[derive(Debug)]
struct Lease {
    tenant: u64,
    claim: TimeShare,
    seats: Vec<Seat>,
    /// Virtual time of its next turn, or of its present one.
    start: u64,
    waits_since: Option<u64>,
    /// Time at which it had the device last.
    held: u64,
}

/// A session of the lease.
#[derive(Debug)]
struct Seat {
    session: u64,
    /// Among the session's.
    device: u32,
    told: Turn,
    number: u64,
    wants: bool,
    holds: bool,
}

impl Lease {
    fn wants(&self) -> bool {
        self.seats.iter().any(|seat| seat.wants)
    }

    fn holds(&self) -> bool {
        self.seats.iter().any(|seat| seat.holds)
    }

    /// Its place in the queue.
    fn key(&self) -> u64 {
        let start = self.start + PRECEDENCE;
        match self.claim.priority {
            Priority::LatencyCritical => start - PRECEDENCE,
            Priority::Normal => start,
            Priority::BestEffort => start + PRECEDENCE,
        }
    }
}

impl Seat {
    fn tell(&mut self, turn: Turn, number: u64, outcome: &mut Outcome) {
        if self.told == turn && self.number == number {
            return;
        }
        (self.told, self.number) = (turn, number);
        outcome.words.push(Word {
            session: self.session,
            device: self.device,
            turn,
            number,
        });
    }
}

impl Arbiter {
    /// A session has launches for a device. The first time this only makes it known.
    pub(super) fn want(
        &mut self,
        name: &DeviceName,
        (tenant, claim): (u64, TimeShare),
        (session, place): (u64, u32),
        now: u64,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        if self.device(name).is_none() {
            self.devices.push((name.clone(), Device::default()));
        }
        if let Some(device) = self.device(name) {
            device.want((tenant, claim), (session, place), now, &mut outcome);
            device.schedule(now, &mut outcome);
        }
        outcome
    }

    /// A session hands a turn over.
    pub(super) fn over(
        &mut self,
        name: &DeviceName,
        session: u64,
        number: u64,
        now: u64,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(device) = self.device(name) {
            device.over(session, number, now, &mut outcome);
            device.schedule(now, &mut outcome);
        }
        outcome
    }

    /// A session is no more.
    pub(super) fn leave(&mut self, session: u64, now: u64) -> Outcome {
        let mut outcome = Outcome::default();
        for (_, device) in &mut self.devices {
            device.leave(session, now, &mut outcome);
            device.schedule(now, &mut outcome);
        }
        self.devices.retain(|(_, device)| !device.leases.is_empty());
        outcome
    }

    /// Shares or priorities may have changed.
    pub(super) fn claim(&mut self, of: &dyn Fn(u64) -> Option<TimeShare>, now: u64) -> Outcome {
        let mut outcome = Outcome::default();
        for (_, device) in &mut self.devices {
            // Time so far counts by the shares so far.
            device.settle(now);
            for lease in &mut device.leases {
                lease.claim = of(lease.tenant).unwrap_or(lease.claim);
            }
            device.share_or_free(&mut outcome);
            device.schedule(now, &mut outcome);
        }
        outcome
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now: u64) -> Outcome {
        let mut outcome = Outcome::default();
        for (_, device) in &mut self.devices {
            device.schedule(now, &mut outcome);
        }
        outcome
    }

    /// Time at which something is due next.
    pub(super) fn due(&self) -> Option<u64> {
        let due = self.devices.iter().filter_map(|(_, device)| {
            let serving = device.serving.as_ref()?;
            device.next()?;
            let stopped = serving.stopping.map(|since| since + DRAIN);
            Some(stopped.unwrap_or(serving.due))
        });
        due.min()
    }

    fn device(&mut self, name: &DeviceName) -> Option<&mut Device> {
        let mut devices = self.devices.iter_mut();
        let found = devices.find(|(known, _)| known == name);
        found.map(|(_, device)| device)
    }
}

impl Device {
    fn want(
        &mut self,
        (tenant, claim): (u64, TimeShare),
        (session, place): (u64, u32),
        now: u64,
        outcome: &mut Outcome,
    ) {
        let at = self.leases.iter().position(|lease| lease.tenant == tenant);
        let at = at.unwrap_or_else(|| {
            self.leases.push(Lease {
                tenant,
                claim,
                seats: Vec::new(),
                start: 0,
                waits_since: None,
                held: 0,
            });
            self.leases.len() - 1
        });
        let lease = &mut self.leases[at];
        lease.claim = claim;
        let seat = lease.seats.iter_mut().find(|seat| seat.session == session);
        match seat {
            // It has heard of nothing yet: its launch has gone to the device.
            Some(seat) => seat.wants = seat.told != Turn::Free,
            None => lease.seats.push(Seat {
                session,
                device: place,
                told: Turn::Free,
                number: 0,
                wants: false,
                holds: false,
            }),
        }
        self.share_or_free(outcome);
        let others_wait = self.next_but(tenant).is_some();
        let is_served = |serving: &Serving| serving.tenant == tenant && serving.stopping.is_none();
        if self.serving.as_ref().is_some_and(is_served) {
            // The others of its lease have their turn already. The number is new: this session may have handed the turn's own over.
            let lease = &mut self.leases[at];
            if lease.wants() {
                self.turns += 1;
            }
            let number = self.turns;
            for seat in lease.seats.iter_mut().filter(|seat| seat.wants) {
                seat.grant(others_wait, number, outcome);
            }
            return;
        }
        let is_serving = self.serving.as_ref().map(|serving| serving.tenant);
        if !self.leases[at].wants() || self.leases[at].waits_since.is_some() {
            return;
        }
        if is_serving != Some(tenant) {
            if !others_wait {
                // Nobody was kept waiting by what the present turn took so far.
                self.settle(now);
            }
            let present = self.present_but(tenant);
            let lease = &mut self.leases[at];
            let was_idle = !lease.holds() && now.saturating_sub(lease.held) > LINGER;
            let debt = if was_idle { 0 } else { PRECEDENCE };
            lease.start = lease.start.max(present.saturating_sub(debt));
        }
        self.leases[at].waits_since = Some(now);
    }

    fn over(&mut self, session: u64, number: u64, now: u64, outcome: &mut Outcome) {
        let found = self.leases.iter_mut().find_map(|lease| {
            let seats = lease.seats.iter_mut();
            let mut seats = seats.filter(|seat| seat.session == session && seat.number == number);
            let seat = seats.find(|seat| seat.holds)?;
            seat.holds = false;
            lease.held = now;
            // As it has it itself.
            seat.told = Turn::Wait;
            Some(lease.tenant)
        });
        let Some(tenant) = found else { return };
        self.release_if_done(now);
        let present = self.present_but(tenant);
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.tenant == tenant) {
            let is_ahead = lease.claim.priority == Priority::LatencyCritical
                && lease.start < present + PRECEDENCE;
            let seats = lease.seats.iter_mut();
            for seat in seats.filter(|seat| is_ahead && seat.session == session) {
                seat.tell(Turn::Ahead, 0, outcome);
            }
        }
    }

    fn leave(&mut self, session: u64, now: u64, outcome: &mut Outcome) {
        for lease in &mut self.leases {
            lease.seats.retain(|seat| seat.session != session);
            if !lease.wants() {
                lease.waits_since = None;
            }
        }
        self.release_if_done(now);
        self.leases.retain(|lease| !lease.seats.is_empty());
        self.share_or_free(outcome);
    }

    /// Whether turns are taken at all.
    fn is_shared(&self) -> bool {
        let mut leases = self.leases.iter();
        self.leases.len() > 1 && leases.any(|lease| lease.claim != TimeShare::default())
    }

    fn share_or_free(&mut self, outcome: &mut Outcome) {
        let is_shared = self.is_shared();
        if !is_shared {
            self.serving = None;
        }
        for lease in &mut self.leases {
            for seat in &mut lease.seats {
                match (is_shared, seat.told) {
                    (false, _) => {
                        (seat.wants, seat.holds) = (false, false);
                        seat.tell(Turn::Free, 0, outcome);
                    }
                    (true, Turn::Free) => {
                        let turn = match lease.claim.priority {
                            Priority::LatencyCritical => Turn::Ahead,
                            _ => Turn::Wait,
                        };
                        seat.tell(turn, 0, outcome);
                    }
                    _ => {}
                }
            }
            if !lease.wants() {
                lease.waits_since = None;
            }
        }
    }

    /// The share by which a lease's time counts now, in percent.
    fn weight(&self, of: &Lease) -> u64 {
        if let Some(share) = of.claim.percent {
            return u64::from(share.max(1));
        }
        let serving = self.serving.as_ref().map(|serving| serving.tenant);
        let is_busy = |lease: &&Lease| lease.wants() || Some(lease.tenant) == serving;
        let (mut left, mut heads) = (PERCENT, 0);
        for lease in self.leases.iter().filter(is_busy) {
            match lease.claim.percent {
                Some(share) => left = left.saturating_sub(share.into()),
                None => heads += 1,
            }
        }
        (left / heads.max(1)).max(1)
    }

    /// Charges the lease that has the turn for its time so far.
    fn settle(&mut self, now: u64) {
        let Some(serving) = &self.serving else { return };
        let (tenant, spent) = (serving.tenant, now.saturating_sub(serving.since));
        let Some(at) = self.leases.iter().position(|lease| lease.tenant == tenant) else {
            return;
        };
        let weight = self.weight(&self.leases[at]);
        let lease = &mut self.leases[at];
        lease.start += spent.saturating_mul(PERCENT) / weight;
        lease.held = now;
        if let Some(serving) = &mut self.serving {
            serving.since = now;
        }
    }

    /// The present of the busy leases without one: the mean of their virtual times, weighted by share.
    fn present_but(&self, tenant: u64) -> u64 {
        let serving = self.serving.as_ref().map(|serving| serving.tenant);
        let leases = self.leases.iter().filter(|lease| lease.tenant != tenant);
        let busy = leases.filter(|lease| lease.wants() || Some(lease.tenant) == serving);
        let (mut sum, mut weights) = (0, 0);
        for lease in busy {
            let weight = u128::from(self.weight(lease));
            sum += u128::from(lease.start) * weight;
            weights += weight;
        }
        match weights {
            0 => self.virtual_time,
            _ => u64::try_from(sum / weights).unwrap_or(u64::MAX),
        }
    }

    fn release_if_done(&mut self, now: u64) {
        let Some(serving) = &self.serving else { return };
        let tenant = serving.tenant;
        let mut holders = self.leases.iter().filter(|lease| lease.tenant == tenant);
        if !holders.any(Lease::holds) {
            self.release(now);
        }
    }

    fn release(&mut self, now: u64) {
        self.settle(now);
        let serving = self.serving.take();
        if let Some(serving) = serving
            && let Some(lease) = (self.leases.iter()).find(|lease| lease.tenant == serving.tenant)
        {
            self.virtual_time = lease.start;
        }
    }

    /// The lease whose turn is next.
    fn next(&self) -> Option<usize> {
        let serving = self.serving.as_ref().map(|serving| serving.tenant);
        self.next_but(serving.unwrap_or(u64::MAX))
    }

    fn next_but(&self, tenant: u64) -> Option<usize> {
        let leases = self.leases.iter().enumerate();
        let waiting = leases.filter(|(_, lease)| lease.tenant != tenant && lease.wants());
        let first = waiting.min_by_key(|(_, lease)| (lease.key(), lease.waits_since));
        first.map(|(at, _)| at)
    }

    fn schedule(&mut self, now: u64, outcome: &mut Outcome) {
        let Some(at) = self.next() else { return };
        let Some(serving) = &self.serving else {
            return self.grant(at, now, outcome);
        };
        let (tenant, begun, since) = (serving.tenant, serving.begun, serving.since);
        if let Some(stopping) = serving.stopping
            && now.saturating_sub(stopping) >= DRAIN
        {
            self.release(now);
            return self.grant(self.next().unwrap_or(at), now, outcome);
        }
        let Some(held) = self.leases.iter().position(|lease| lease.tenant == tenant) else {
            return;
        };
        let (holder, next) = (&self.leases[held], &self.leases[at]);
        let spent = now.saturating_sub(since).saturating_mul(PERCENT) / self.weight(holder);
        let is_before = next.key() <= holder.key() + spent;
        let is_higher = next.claim.priority > holder.claim.priority;
        let ran = now.saturating_sub(begun.max(since));
        let is_owed = next.key() + OWED <= holder.key() + spent;
        let is_over = ran >= QUANTUM || (is_owed && ran >= SHORT_QUANTUM);
        let stops = is_before && (is_higher || is_over) && serving.stopping.is_none();
        let goes_at_once =
            is_before && is_higher && next.claim.priority == Priority::LatencyCritical;
        let turn = match stops || serving.stopping.is_some() {
            true => Turn::Stop,
            false => Turn::Yield,
        };
        if is_over && !stops && serving.stopping.is_none() {
            // It goes on, as if with another turn.
            self.settle(now);
        }
        for seat in self.leases[held].seats.iter_mut().filter(|seat| seat.holds) {
            let number = seat.number;
            seat.tell(turn, number, outcome);
        }
        if let Some(serving) = &mut self.serving {
            serving.stopping = serving.stopping.or(stops.then_some(now));
            let begun = begun.max(serving.since);
            serving.due = match now < begun + SHORT_QUANTUM {
                true => begun + SHORT_QUANTUM,
                false => begun + QUANTUM,
            };
        }
        if goes_at_once {
            self.release(now);
            return self.grant(at, now, outcome);
        }
        // Launches went ahead of a turn that does not come now.
        let others = self
            .leases
            .iter_mut()
            .filter(|lease| lease.tenant != tenant);
        for seat in others.flat_map(|lease| &mut lease.seats) {
            if seat.wants && seat.told == Turn::Ahead {
                seat.tell(Turn::Wait, 0, outcome);
            }
        }
    }

    fn grant(&mut self, at: usize, now: u64, outcome: &mut Outcome) {
        self.turns += 1;
        let (number, tenant) = (self.turns, self.leases[at].tenant);
        let others_wait = self.next_but(tenant).is_some();
        let lease = &mut self.leases[at];
        if let Some(since) = lease.waits_since.take() {
            outcome.waits.push((tenant, now.saturating_sub(since)));
        }
        for seat in &mut lease.seats {
            // Nobody waits any more for work of an earlier turn.
            seat.holds = false;
            if seat.wants {
                seat.grant(others_wait, number, outcome);
            }
        }
        self.serving = Some(Serving {
            tenant,
            begun: now,
            since: now,
            due: now + SHORT_QUANTUM,
            stopping: None,
        });
    }
}

impl Seat {
    fn grant(&mut self, others_wait: bool, number: u64, outcome: &mut Outcome) {
        (self.wants, self.holds) = (false, true);
        let turn = match others_wait {
            true => Turn::Yield,
            false => Turn::Hold,
        };
        self.tell(turn, number, outcome);
    }
}

#[cfg(test)]
mod tests;
