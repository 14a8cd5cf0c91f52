//! The driver's part when a session moves to another server ([`towline_client::cuda::Session::let_move`]): calls held back, and what is made
//! again from what the driver knows.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::calls::Calls;
use towline_client::cuda::{Actor, MovedTo, Owner, RebuildError, Session, Variable};
use towline_client::environment;
use towline_ptx::parameters;

use crate::driver::{Driver, lock, read};
use crate::event::Recorded;

/// Calls of the application that are under way, and what else uses sessions in between.
pub(crate) static CALLS: Calls = Calls::new();

/// Pauses between two looks whether a capture has ended.
const BREAK: Duration = Duration::from_millis(5);

/// Has the process's sessions move when their servers wish.
pub(crate) fn let_sessions_move(driver: &'static Driver, sessions: &[Arc<Session>]) {
    for session in sessions {
        let mover = Arc::new(Mover {
            driver,
            times: Mutex::default(),
            later: Mutex::default(),
        });
        session.let_move(mover, environment::access_to_move);
    }
}

/// Moves a session of the process's driver.
struct Mover {
    driver: &'static Driver,
    /// Events that tell the time of their recordings, by their contexts, as they were when the device came to rest.
    times: Mutex<HashMap<u64, Times>>,
    /// Milliseconds by which what stands for recordings on the other server is later than they were, by the events' numbers.
    later: Mutex<HashMap<u64, f64>>,
}

impl Mover {
    fn index_of(&self, session: &Session) -> Option<u8> {
        let started = self.driver.started().ok()?;
        let mut sessions = started.sessions.iter();
        let at = sessions.position(|other| std::ptr::eq(Arc::as_ptr(other), session))?;
        u8::try_from(at).ok()
    }

    /// Events of a session's contexts that were recorded, outside of captures.
    fn recorded(&self, session: u8) -> Vec<(u64, Arc<Recorded>)> {
        let contexts = read(&self.driver.contexts);
        let events = read(&self.driver.events);
        let of_session = events.iter().filter(|(_, event)| {
            let context = contexts.get(&event.context);
            context.is_some_and(|context| context.session == session)
                && event.is_recorded()
                && !event.meets_captures()
        });
        of_session
            .map(|(number, event)| (*number, Arc::clone(event)))
            .collect()
    }
}

fn in_context(context: u64) -> Actor {
    Actor {
        context,
        ..Actor::default()
    }
}

impl Owner for Mover {
    fn stop(&self, patience: Duration) -> Option<Box<dyn Any>> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let alone = CALLS.stop(left)?;
            if self.driver.capturing.load(Ordering::Acquire) == 0 {
                return Some(Box::new(alone));
            }
            // A capture belongs to the driver here and to the one there.
            drop(alone);
            if left.is_zero() {
                return None;
            }
            std::thread::sleep(BREAK);
        }
    }

    fn is_alone(&self, _session: &Session) -> bool {
        let started = self.driver.started();
        started.is_ok_and(|started| started.sessions.len() == 1)
    }

    fn obstacle(&self, session: &Session) -> Option<&'static str> {
        let index = self.index_of(session)?;
        if self.driver.has_communicators(index) {
            return Some("it has NCCL communicators, whose other ranks would lose it");
        }
        let graphs = lock(&self.driver.graphs);
        let mut execs = graphs.execs.values();
        let anchored = execs.any(|exec| exec.session() == index && exec.anchor != 0);
        anchored.then_some("it has executable graphs with conditional nodes or memory")
    }

    fn prepare(&self, session: &Session) {
        let (Some(index), Ok(started)) = (self.index_of(session), self.driver.started()) else {
            return;
        };
        for (device, known) in (0..).zip(started.devices()) {
            if known.session == index {
                self.driver.release_kept(device);
            }
        }
    }

    fn at_rest(&self, session: &Session) -> Result<(), RebuildError> {
        lock(&self.times).clear();
        let Some(index) = self.index_of(session) else {
            return Ok(());
        };
        let mut by_context: HashMap<u64, Vec<u64>> = HashMap::new();
        for (number, event) in self.recorded(index) {
            if event.is_timed() {
                by_context.entry(event.context).or_default().push(number);
            }
        }
        for (context, events) in by_context {
            let times = times_of(session, context, events)?;
            lock(&self.times).insert(context, times);
        }
        Ok(())
    }

    fn remake(&self, session: &Session, there: &MovedTo<'_>) -> Result<(), RebuildError> {
        let Some(index) = self.index_of(session) else {
            return Ok(());
        };
        self.driver.share_pins_again(index, there)?;
        let execs: Vec<_> = lock(&self.driver.graphs).execs.values().cloned().collect();
        for exec in execs.iter().filter(|exec| exec.session() == index) {
            exec.remake(there)?;
        }
        for (number, event) in self.recorded(index) {
            let request = wire::EventRecord {
                event: wire::EventHandle(number),
                stream: wire::StreamHandle(0),
                flags: 0,
                record: there.unheard(),
            };
            there.post(event.context, "a recording of an event", &request)?;
        }
        let mut later = lock(&self.later);
        later.clear();
        for (&context, here) in &*lock(&self.times) {
            let events = here.since.keys().copied().collect();
            let there = times_of(there.session(), context, events)?;
            let between = there.told.duration_since(here.told).as_secs_f64() * 1e3;
            for (event, after) in there.since {
                let before = here.since.get(&event).copied().unwrap_or_default();
                later.insert(event, before + between - after);
            }
        }
        Ok(())
    }

    fn element(&self, array: u64) -> Option<usize> {
        read(&self.driver.arrays).get(array).ok()?.element()
    }

    fn variables(&self, session: &Session, code: &[u8]) -> Option<Vec<Variable>> {
        let index = self.index_of(session)?;
        let started = self.driver.started().ok()?;
        let mut devices = started.devices().iter();
        let device = devices.find(|device| device.session == index)?;
        let target = crate::library::target(device, session.snapshot().genuine);
        let (capability, machine_code) = (target.capability, target.machine_code);
        let found = parameters::read_image(code, capability, machine_code, |code| {
            Ok((code.variables()?, code.uses_heap()?))
        });
        let (variables, uses_heap) = found.ok().flatten()?;
        let variables = variables.into_iter();
        let variables = variables.map(|(name, has_addresses)| Variable {
            name,
            has_addresses,
        });
        (!uses_heap).then(|| variables.collect())
    }

    fn moved(&self, session: &Session) {
        let Some(index) = self.index_of(session) else {
            return;
        };
        let later = std::mem::take(&mut *lock(&self.later));
        for (number, event) in self.recorded(index) {
            event.moved(later.get(&number).copied().unwrap_or(0.0));
        }
        for exec in lock(&self.driver.graphs).execs.values() {
            if exec.session() == index {
                exec.moved();
            }
        }
    }
}

/// The times of events of a context.
struct Times {
    /// Milliseconds since their last recordings, by the events' numbers.
    since: HashMap<u64, f64>,
    /// The moment that they are counted to.
    told: Instant,
}

fn times_of(session: &Session, context: u64, events: Vec<u64>) -> Result<Times, RebuildError> {
    let times = ask_for_times(session, context, events);
    times.map_err(|_| RebuildError::Unmovable("the times of its events cannot be had"))
}

fn ask_for_times(session: &Session, context: u64, events: Vec<u64>) -> Result<Times, CUresult> {
    let actor = in_context(context);
    let now = wire::EventHandle(session.mint(wire::EventHandle::TAG));
    session.post(
        actor,
        &wire::EventCreate {
            phEvent: now,
            Flags: 0,
        },
    )?;
    session.post(
        actor,
        &wire::EventRecord {
            event: now,
            stream: wire::StreamHandle(0),
            flags: 0,
            record: session.mint(wire::EventHandle::TAG),
        },
    )?;
    session.call(actor, "rebuild", &wire::SynchronizeEvent { event: now })?;
    let told = Instant::now();
    let to_now: Vec<_> = events.into_iter().map(|event| (event, now.0)).collect();
    let mut coarse: Vec<_> = times_between(session, actor, &to_now)?
        .into_iter()
        .zip(to_now)
        .map(|(time, (event, _))| (event, time.unwrap_or_default()))
        .collect();
    // A long time is told coarsely: what lies between neighbours is asked for, too.
    coarse.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let gaps: Vec<_> = coarse
        .windows(2)
        .filter_map(|pair| Some((pair.last()?.0, pair.first()?.0)))
        .collect();
    let gaps = times_between(session, actor, &gaps)?;
    session.post(actor, &wire::EventDestroyV2 { hEvent: now })?;
    let since = added_up(&coarse, &gaps);
    Ok(Times { since, told })
}

/// Milliseconds between two events each, where that is told.
fn times_between(
    session: &Session,
    actor: Actor,
    pairs: &[(u64, u64)],
) -> Result<Vec<Option<f64>>, CUresult> {
    let question = |(start, end): &(u64, u64)| wire::EventElapsedTimeV2 {
        hStart: wire::EventHandle(*start),
        hEnd: wire::EventHandle(*end),
    };
    let questions: Vec<_> = pairs.iter().map(question).collect();
    let answers = session.measure(actor, &questions).into_iter();
    let told = answers.map(|answer| {
        let answer = answer?;
        let reply = wire::EventElapsedTimeV2Reply::decode(&answer.body).ok();
        Ok(reply.and_then(|reply| reply.pMilliseconds).map(f64::from))
    });
    told.collect()
}

/// Times since recordings, from the latest on: `coarse` as they were told, `gaps` from each to the one before it in the list.
fn added_up(coarse: &[(u64, f64)], gaps: &[Option<f64>]) -> HashMap<u64, f64> {
    let (mut last, mut sum) = (0.0, 0.0);
    let gaps = std::iter::once(&None).chain(gaps);
    let times = coarse.iter().zip(gaps).map(|(&(event, time), gap)| {
        sum += gap.unwrap_or(time - last);
        last = time;
        (event, sum)
    });
    times.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_recordings_keep_their_distance() {
        // An hour in milliseconds, of which a number of 32 bits tells every quarter.
        let hour = 3_600_000.0;
        let coarse = [(3, 5.0), (2, hour), (1, hour)];
        let times = added_up(&coarse, &[Some(hour - 5.0), Some(0.1)]);
        assert_eq!((times[&3], times[&2]), (5.0, hour));
        assert!((times[&1] - times[&2] - 0.1).abs() < 1e-6);
        let times = added_up(&coarse, &[None, Some(0.1)]);
        assert_eq!(times[&2], hour);
    }
}
