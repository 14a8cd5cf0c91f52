//! What a session waits for: replies, events, reads, granted writes. Guarded by one lock; see [`crate::link`] for who takes it.

use std::collections::{HashMap, HashSet, VecDeque};

use smallvec::SmallVec;
use towline_session::{Landing, Whole};

use crate::memory::HostBox;

/// Status of an event that has not ended: `CL_SUBMITTED`.
pub(crate) const SUBMITTED: i32 = 2;

/// Reads that something covers by the API's order: they must have ended before it counts, whatever the server says of them. That holds for
/// failures too: the application may free a read's target once it knows that the wait for it is over.
pub(crate) type Covered = SmallVec<[u64; 4]>;

/// Most writes whose payload has not left: half of what a server takes before it ends the session.
pub(crate) const WRITE_LIMIT: usize = 1 << 15;

/// Runs when an event has ended, with its status. Must not wait.
pub(crate) type Callback = Box<dyn FnOnce(i32) + Send>;

/// An event of this session.
#[derive(Default)]
pub(crate) struct Event {
    /// `None` until it has ended.
    pub(crate) status: Option<i32>,
    pub(crate) callbacks: Vec<Callback>,
    /// Read whose data must have landed before the event counts as complete.
    pub(crate) read: Option<u64>,
    /// Reads before its command, in the order that the application counts on.
    pub(crate) covered: Covered,
    /// The read's data did not come: the event cannot end well, whatever the server says.
    pub(crate) read_failed: Option<i32>,
    /// Its end has come and waits for data that must be in place before.
    pub(crate) held: bool,
    /// Nobody will ask any more: forget it when it has ended.
    pub(crate) released: bool,
    /// The queue of its command; of a user event the context.
    pub(crate) origin: u64,
    /// The application sets its status.
    pub(crate) user: bool,
    /// Times at which its command was queued, submitted, started, ended and complete, as told with its end; 0 stands for what is not known.
    pub(crate) times: Option<[u64; 5]>,
}

/// A read whose data is to come.
pub(crate) struct Read {
    pub(crate) target: HostBox,
    pub(crate) landing: Landing,
    /// Lanes that are writing into the target right now.
    pub(crate) active: u32,
    /// The data will not come.
    pub(crate) failed: Option<i32>,
    /// The event of its command.
    pub(crate) event: Option<u64>,
    /// Where a failure is reported: by the call that waits for the data, or by the next wait for its queue or stream.
    pub(crate) told_by: ToldBy,
    /// The context of its stream, and the thread of a stream that each thread has; 0 where queues are told apart by themselves.
    pub(crate) place: (u64, u64),
    /// Of a read that a call waits for: reads before it.
    pub(crate) covered: Covered,
}

/// How an application learns of a read's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToldBy {
    /// A call of this process waits for the data and takes the outcome.
    Call,
    /// The event of the command, else the next wait for this queue or stream. The background thread reads until the data is there.
    Queue(u64),
}

/// A write whose payload the server takes window by window.
pub(crate) struct Write {
    pub(crate) source: HostBox,
    /// Bytes not granted yet.
    pub(crate) ungranted: u64,
    /// Bytes not sent yet.
    pub(crate) left: u64,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: i32,
    pub(crate) body: Vec<u8>,
}

/// A reply's way.
pub(crate) enum Slot {
    /// Asked, not answered; and the reads before it.
    Asked(Covered),
    /// Answered; data that must be in place before is still coming.
    Held,
    /// Ready to be taken.
    Ready(Reply),
}

/// Something that counts only once reads have landed.
pub(crate) struct Held {
    pub(crate) after: SmallVec<[u64; 4]>,
    pub(crate) what: HeldWhat,
}

/// What is held back.
pub(crate) enum HeldWhat {
    Reply(u64, Reply),
    Event(u64, i32),
}

/// How far an awaited read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Its data is coming.
    Coming,
    /// Its data is there, and that of reads before it is coming.
    Behind,
    Ended(Result<(), i32>),
}

/// Reads that failed and whose chunks may still come. A server has a few windows of a read under way when it fails, so a chunk that is
/// late by this many failed reads is none of an honest server's.
const FAILED_READS: usize = 4096;

/// The application's function that hears of a context.
type Listener = Box<dyn Fn(&str) + Send>;

/// See the module's text.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) replies: HashMap<u64, Slot>,
    pub(crate) events: HashMap<u64, Event>,
    pub(crate) reads: HashMap<u64, Read>,
    /// Reads that failed, the oldest first: chunks sent before travel on other lanes than the news, and may come later.
    failed_reads: VecDeque<(u64, Landing)>,
    pub(crate) writes: HashMap<u64, Write>,
    /// How reads ended that a call waits for.
    pub(crate) outcomes: HashMap<u64, (Result<Whole, i32>, Covered)>,
    /// Reads that the server has sent and that have not landed.
    pub(crate) in_flight: SmallVec<[u64; 4]>,
    pub(crate) held: Vec<Held>,
    /// First failure per queue, or of a read, that no wait has reported.
    pub(crate) failures: HashMap<u64, i32>,
    /// Those of them that a wait for something else has reported.
    pub(crate) told_elsewhere: HashSet<u64>,
    /// Functions that take a vendor's messages about a context. They must not wait.
    pub(crate) listeners: HashMap<u64, Listener>,
    /// Events of transfers that the server stages, and their bytes.
    pub(crate) staged: Vec<(u64, u64)>,
    /// Bytes of inline writes posted, and given back by the server.
    pub(crate) inline_posted: u64,
    pub(crate) inline_retired: u64,
    /// Threads that wait for somebody else to read.
    pub(crate) followers: usize,
    /// Reads and callbacks over since the background thread's tasks were last counted.
    pub(crate) settled: usize,
    /// The session has ended: nothing that comes later completes anything, since its data can no longer be told from data that is missing.
    over: bool,
}

impl State {
    /// Notes a completion, or holds it back until the reads in `after` and those in flight have landed. Callbacks that are due go
    /// into `due`.
    pub(crate) fn complete(
        &mut self,
        after: impl Iterator<Item = u64>,
        what: HeldWhat,
        due: &mut Vec<(Callback, i32)>,
    ) {
        if self.over {
            return;
        }
        let covered = match &what {
            HeldWhat::Event(event, _) => self.reads_before(*event),
            HeldWhat::Reply(number, _) => match self.replies.get(number) {
                Some(Slot::Asked(covered)) => covered.clone(),
                _ => Covered::new(),
            },
        };
        let after: SmallVec<[u64; 4]> = after
            .chain(self.in_flight.iter().copied())
            .chain(covered)
            .filter(|payload| self.reads.contains_key(payload))
            .collect();
        if after.is_empty() {
            return self.conclude(what, due);
        }
        match &what {
            // What nobody asked for, or what has come before, is dropped: the server cannot make the list grow.
            HeldWhat::Reply(number, _) => match self.replies.get_mut(number) {
                Some(slot @ Slot::Asked(_)) => *slot = Slot::Held,
                _ => return,
            },
            HeldWhat::Event(number, _) => match self.events.get_mut(number) {
                Some(event) if event.status.is_none() && !event.held => event.held = true,
                _ => return,
            },
        }
        self.held.push(Held { after, what });
    }

    fn conclude(&mut self, what: HeldWhat, due: &mut Vec<(Callback, i32)>) {
        match what {
            HeldWhat::Reply(number, reply) => {
                // A reply that nobody asked for is dropped: the server cannot make the table grow.
                if let Some(slot) = self.replies.get_mut(&number) {
                    *slot = Slot::Ready(reply);
                }
            }
            HeldWhat::Event(number, status) => {
                let Some(event) = self.events.get_mut(&number) else {
                    return;
                };
                if event.status.is_none() {
                    let status = match status {
                        0 => event.read_failed.unwrap_or(0),
                        failure => failure,
                    };
                    event.status = Some(status);
                    self.settled += event.callbacks.len();
                    due.extend(event.callbacks.drain(..).map(|callback| (callback, status)));
                }
                if event.released {
                    self.events.remove(&number);
                }
            }
        }
    }

    /// The server will grant no more of a write: it is over with the last byte that was granted.
    pub(crate) fn ungranted(&mut self, payload: u64) {
        let Some(write) = self.writes.get_mut(&payload) else {
            return;
        };
        write.left -= write.ungranted;
        write.ungranted = 0;
        if write.left == 0 {
            self.writes.remove(&payload);
            self.settled += 1;
        }
    }

    /// Whether no data is on its way and no answer is awaited.
    pub(crate) fn is_quiet(&self) -> bool {
        self.replies.is_empty()
            && self.reads.is_empty()
            && self.writes.is_empty()
            && self.held.is_empty()
    }

    /// A read is over: all of its data is in place.
    pub(crate) fn landed(&mut self, payload: u64, whole: Whole, due: &mut Vec<(Callback, i32)>) {
        self.read_ended(payload, Ok(whole), due);
    }

    /// A read is over: its data will not come, or not all of it.
    pub(crate) fn read_failed(
        &mut self,
        payload: u64,
        status: i32,
        due: &mut Vec<(Callback, i32)>,
    ) {
        self.read_ended(payload, Err(status), due);
    }

    fn read_ended(
        &mut self,
        payload: u64,
        outcome: Result<Whole, i32>,
        due: &mut Vec<(Callback, i32)>,
    ) {
        let Some(read) = self.reads.remove(&payload) else {
            return;
        };
        if let Err(status) = outcome {
            if let Some(event) = read.event.and_then(|event| self.events.get_mut(&event)) {
                event.read_failed = Some(status);
            }
            if self.failed_reads.len() == FAILED_READS {
                self.failed_reads.pop_front();
            }
            self.failed_reads.push_back((payload, read.landing));
        }
        match (read.told_by, outcome) {
            (ToldBy::Call, outcome) => {
                self.outcomes.insert(payload, (outcome, read.covered));
            }
            (ToldBy::Queue(queue), Err(status)) if read.event.is_none() => {
                self.failures.entry(queue).or_insert(status);
                self.settled += 1;
            }
            (ToldBy::Queue(_), _) => self.settled += 1,
        }
        self.in_flight.retain(|other| *other != payload);
        let mut at = 0;
        while at < self.held.len() {
            self.held[at].after.retain(|other| *other != payload);
            if self.held[at].after.is_empty() {
                let held = self.held.remove(at);
                self.conclude(held.what, due);
            } else {
                at += 1;
            }
        }
    }

    /// Bytes that a failed read still lacks: late chunks of them are dropped.
    pub(crate) fn failed_read(&mut self, payload: u64) -> Option<&mut Landing> {
        let mut reads = self.failed_reads.iter_mut();
        let (_, landing) = reads.find(|(failed, _)| *failed == payload)?;
        Some(landing)
    }

    /// A read was never asked for: nothing will come.
    pub(crate) fn withdraw(&mut self, payload: u64) {
        let read = self.reads.remove(&payload);
        self.settled += usize::from(read.is_some_and(|read| read.told_by != ToldBy::Call));
    }

    /// How an awaited read ended, taken once, when the reads that it covers have ended too. Only the session's end takes a read away without
    /// an outcome.
    pub(crate) fn take_outcome(&mut self, payload: u64, lost: i32) -> Progress {
        if self.reads.contains_key(&payload) {
            return Progress::Coming;
        }
        let Some((outcome, covered)) = self.outcomes.remove(&payload) else {
            return Progress::Ended(Err(lost));
        };
        if covered.iter().any(|read| self.reads.contains_key(read)) {
            self.outcomes.insert(payload, (outcome, covered));
            return Progress::Behind;
        }
        match outcome {
            // The session may have ended before they came.
            Ok(_) if self.over && !covered.is_empty() => Progress::Ended(Err(lost)),
            outcome => Progress::Ended(outcome.map(|Whole { .. }| ())),
        }
    }

    /// Reads that wait for nothing but their turn in a queue or stream.
    pub(crate) fn reads_of(&self, queue: u64, place: (u64, u64)) -> Covered {
        let reads = self.reads.iter();
        let own = |read: &Read| read.told_by == ToldBy::Queue(queue) && read.place == place;
        let own = reads.filter(|(_, read)| own(read));
        own.map(|(payload, _)| *payload).collect()
    }

    /// Those of the streams of a context that `keeps_order` with the stream that waits.
    pub(crate) fn reads_ordered(
        &self,
        context: u64,
        keeps_order: impl Fn(u64, (u64, u64)) -> bool,
    ) -> Covered {
        let ordered = |read: &Read| match read.told_by {
            ToldBy::Queue(queue) => read.place.0 == context && keeps_order(queue, read.place),
            ToldBy::Call => false,
        };
        let reads = self.reads.iter().filter(|(_, read)| ordered(read));
        reads.map(|(payload, _)| *payload).collect()
    }

    /// The same, of all streams of a context.
    pub(crate) fn reads_in(&self, context: u64) -> Covered {
        let reads = self.reads.iter();
        let own = |read: &Read| read.told_by != ToldBy::Call && read.place.0 == context;
        let own = reads.filter(|(_, read)| own(read));
        own.map(|(payload, _)| *payload).collect()
    }

    /// Those before a recording, or another event.
    pub(crate) fn reads_before(&self, event: u64) -> Covered {
        let event = self.events.get(&event);
        event.map_or_else(Covered::new, |event| {
            event.covered.iter().copied().chain(event.read).collect()
        })
    }

    /// The session has ended: every transfer and event that is under way fails with `lost`. The callbacks of the events are due.
    pub(crate) fn end(&mut self, lost: i32) -> Vec<(Callback, i32)> {
        self.over = true;
        self.held.clear();
        self.writes.clear();
        self.reads.clear();
        let mut due: Vec<(Callback, i32)> = Vec::new();
        for event in self.events.values_mut() {
            if event.status.is_none() {
                event.status = Some(lost);
                due.extend(event.callbacks.drain(..).map(|callback| (callback, lost)));
            }
        }
        due
    }

    /// Whether there is room for another write, or an error where none can come before the application does something else: what it has
    /// enqueued may wait for an event that it sets itself.
    pub(crate) fn room_for_write(&self) -> Option<Result<(), ()>> {
        if self.writes.len() < WRITE_LIMIT {
            return Some(Ok(()));
        }
        self.awaits_application().then_some(Err(()))
    }

    /// Whether commands may wait for what the application does next.
    pub(crate) fn awaits_application(&self) -> bool {
        let mut open = self.events.values().filter(|event| event.status.is_none());
        open.any(|event| event.user)
    }

    /// Whether transfers that the server stages leave room for so many bytes more.
    pub(crate) fn fits_staged(&mut self, bytes: u64, credit: u64) -> bool {
        let events = &self.events;
        self.staged.retain(|(event, _)| {
            events
                .get(event)
                .is_some_and(|event| event.status.is_none())
        });
        let held: u64 = self.staged.iter().map(|(_, bytes)| bytes).sum();
        held == 0 || held + bytes <= credit
    }

    /// Room for inline data, as far as the server's bound leaves any.
    pub(crate) fn take_inline(&mut self, bytes: u64, credit: u64) -> bool {
        let held = self.inline_posted.saturating_sub(self.inline_retired);
        if held + bytes > credit {
            return false;
        }
        self.inline_posted += bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(state: &mut State, payload: u64, told_by: ToldBy) {
        let target = HostBox::linear(std::ptr::null(), 8);
        state.reads.insert(
            payload,
            Read {
                target,
                landing: Landing::new(8),
                active: 0,
                failed: None,
                event: None,
                told_by,
                place: (0, 0),
                covered: Covered::new(),
            },
        );
    }

    /// All bytes of a read have come.
    fn land(state: &mut State, payload: u64, due: &mut Vec<(Callback, i32)>) {
        let landing = &mut state.reads.get_mut(&payload).unwrap().landing;
        let claim = landing.claim(0, 8).unwrap();
        let whole = landing.arrived(claim).unwrap();
        state.landed(payload, whole, due);
    }

    #[test]
    fn an_event_counts_only_when_data_before_it_has_landed() {
        let mut state = State::default();
        let mut due = Vec::new();
        state.events.insert(1, Event::default());
        read(&mut state, 7, ToldBy::Call);
        state.complete([7].into_iter(), HeldWhat::Event(1, 0), &mut due);
        assert_eq!(state.events[&1].status, None);
        land(&mut state, 7, &mut due);
        assert_eq!(state.events[&1].status, Some(0));
    }

    #[test]
    fn data_in_flight_holds_back_every_later_completion() {
        let mut state = State::default();
        let mut due = Vec::new();
        state.replies.insert(3, Slot::Asked(Covered::new()));
        read(&mut state, 7, ToldBy::Call);
        state.in_flight.push(7);
        state.complete(
            [].into_iter(),
            HeldWhat::Reply(
                3,
                Reply {
                    status: 0,
                    body: vec![],
                },
            ),
            &mut due,
        );
        assert!(matches!(state.replies[&3], Slot::Held));
        land(&mut state, 7, &mut due);
        assert!(matches!(state.replies[&3], Slot::Ready(_)));
    }

    #[test]
    fn a_reply_or_event_that_nobody_asked_for_leaves_nothing_behind() {
        let mut state = State::default();
        let mut due = Vec::new();
        state.complete(
            [9].into_iter(),
            HeldWhat::Reply(
                3,
                Reply {
                    status: 0,
                    body: vec![],
                },
            ),
            &mut due,
        );
        state.complete([].into_iter(), HeldWhat::Event(4, 0), &mut due);
        assert!(state.replies.is_empty() && state.events.is_empty() && state.held.is_empty());
    }

    #[test]
    fn a_write_that_is_granted_no_further_ends_with_what_was_granted() {
        let mut state = State::default();
        let write = |ungranted, left| Write {
            source: HostBox::linear(std::ptr::null(), 8),
            ungranted,
            left,
        };
        state.writes.insert(1, write(8, 8));
        state.writes.insert(2, write(3, 5));
        state.ungranted(1);
        state.ungranted(2);
        assert!(!state.writes.contains_key(&1));
        assert_eq!(state.writes[&2].left, 2);
        assert_eq!(state.settled, 1);
    }

    #[test]
    fn event_of_a_read_without_its_data_fails() {
        let mut state = State::default();
        let mut due = Vec::new();
        let event = Event {
            read: Some(7),
            ..Event::default()
        };
        state.events.insert(1, event);
        read(&mut state, 7, ToldBy::Queue(5));
        state.reads.get_mut(&7).unwrap().event = Some(1);
        state.complete([].into_iter(), HeldWhat::Event(1, 0), &mut due);
        assert_eq!(state.events[&1].status, None);
        state.read_failed(7, -5, &mut due);
        assert_eq!(state.events[&1].status, Some(-5));
        // The failure has been told: by the event.
        assert!(state.failures.is_empty());
    }

    #[test]
    fn failed_read_without_event_is_told_by_its_queue() {
        let mut state = State::default();
        read(&mut state, 7, ToldBy::Queue(5));
        state.read_failed(7, -5, &mut Vec::new());
        assert_eq!(state.failures.get(&5), Some(&-5));
    }

    #[test]
    fn awaited_read_succeeds_only_when_its_data_landed() {
        let mut state = State::default();
        read(&mut state, 7, ToldBy::Call);
        read(&mut state, 8, ToldBy::Call);
        read(&mut state, 9, ToldBy::Call);
        assert_eq!(state.take_outcome(7, -2), Progress::Coming);
        land(&mut state, 7, &mut Vec::new());
        state.read_failed(8, -5, &mut Vec::new());
        state.end(-2);
        assert_eq!(state.take_outcome(7, -2), Progress::Ended(Ok(())));
        assert_eq!(state.take_outcome(8, -2), Progress::Ended(Err(-5)));
        assert_eq!(state.take_outcome(9, -2), Progress::Ended(Err(-2)));
    }

    #[test]
    fn awaited_read_waits_for_reads_before_it() {
        let mut state = State::default();
        read(&mut state, 7, ToldBy::Queue(5));
        let covered = state.reads_of(5, (0, 0));
        read(&mut state, 8, ToldBy::Call);
        state.reads.get_mut(&8).unwrap().covered = covered;
        land(&mut state, 8, &mut Vec::new());
        assert_eq!(state.take_outcome(8, -2), Progress::Behind);
        land(&mut state, 7, &mut Vec::new());
        assert_eq!(state.take_outcome(8, -2), Progress::Ended(Ok(())));
    }

    #[test]
    fn failed_read_waits_for_reads_before_it() {
        let mut state = State::default();
        read(&mut state, 7, ToldBy::Queue(5));
        let covered = state.reads_of(5, (0, 0));
        read(&mut state, 8, ToldBy::Call);
        state.reads.get_mut(&8).unwrap().covered = covered;
        state.read_failed(8, -5, &mut Vec::new());
        assert_eq!(state.take_outcome(8, -2), Progress::Behind);
        land(&mut state, 7, &mut Vec::new());
        assert_eq!(state.take_outcome(8, -2), Progress::Ended(Err(-5)));
    }

    #[test]
    fn failure_counts_only_when_reads_before_it_ended() {
        let mut state = State::default();
        let mut due = Vec::new();
        read(&mut state, 7, ToldBy::Queue(5));
        let covered = state.reads_of(5, (0, 0));
        state.replies.insert(3, Slot::Asked(covered.clone()));
        let event = Event {
            covered,
            ..Event::default()
        };
        state.events.insert(1, event);
        let reply = Reply {
            status: -5,
            body: vec![],
        };
        state.complete([].into_iter(), HeldWhat::Reply(3, reply), &mut due);
        state.complete([].into_iter(), HeldWhat::Event(1, -5), &mut due);
        assert!(matches!(state.replies[&3], Slot::Held));
        assert_eq!(state.events[&1].status, None);
        land(&mut state, 7, &mut due);
        assert!(matches!(state.replies[&3], Slot::Ready(_)));
        assert_eq!(state.events[&1].status, Some(-5));
    }

    #[test]
    fn success_counts_only_when_reads_before_it_ended() {
        let mut state = State::default();
        let mut due = Vec::new();
        read(&mut state, 7, ToldBy::Queue(5));
        let covered = state.reads_of(5, (0, 0));
        state.replies.insert(3, Slot::Asked(covered.clone()));
        let event = Event {
            covered,
            ..Event::default()
        };
        state.events.insert(1, event);
        let reply = Reply {
            status: 0,
            body: vec![],
        };
        // The server names no read.
        state.complete([].into_iter(), HeldWhat::Reply(3, reply), &mut due);
        state.complete([].into_iter(), HeldWhat::Event(1, 0), &mut due);
        assert!(matches!(state.replies[&3], Slot::Held));
        assert_eq!(state.events[&1].status, None);
        land(&mut state, 7, &mut due);
        assert!(matches!(state.replies[&3], Slot::Ready(_)));
        assert_eq!(state.events[&1].status, Some(0));
    }

    #[test]
    fn nothing_completes_after_the_session_ended() {
        let mut state = State::default();
        let mut due = Vec::new();
        state.replies.insert(3, Slot::Asked(Covered::new()));
        read(&mut state, 7, ToldBy::Queue(5));
        state.end(-2);
        let reply = Reply {
            status: 0,
            body: vec![],
        };
        state.complete([7].into_iter(), HeldWhat::Reply(3, reply), &mut due);
        assert!(matches!(state.replies[&3], Slot::Asked(_)));
    }

    #[test]
    fn staged_transfers_hold_room_until_they_end() {
        let mut state = State::default();
        state.events.insert(1, Event::default());
        state.staged.push((1, 70));
        assert!(state.fits_staged(30, 100));
        assert!(!state.fits_staged(31, 100));
        let mut due = Vec::new();
        state.complete([].into_iter(), HeldWhat::Event(1, 0), &mut due);
        assert!(state.fits_staged(31, 100));
        // One that is larger than all room goes alone.
        assert!(state.fits_staged(101, 100));
    }

    #[test]
    fn callbacks_fall_due_once() {
        let mut state = State::default();
        let mut due = Vec::new();
        state.events.insert(
            1,
            Event {
                callbacks: vec![Box::new(|_| ())],
                ..Event::default()
            },
        );
        state.complete([].into_iter(), HeldWhat::Event(1, -5), &mut due);
        state.complete([].into_iter(), HeldWhat::Event(1, 0), &mut due);
        assert_eq!(due.len(), 1);
        assert_eq!(state.events[&1].status, Some(-5));
    }
}
