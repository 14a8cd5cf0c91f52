//! Goes on with a session whose connections were cut.
//!
//! Each lane outlives its links by itself ([`Resumable`]): when one is cut, a thread dials until another link is there or the server's grace
//! time has passed. The control connection is simply dialled anew; it decides whether the session is over.

use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use towline_transport::resume::Resumable;
use towline_transport::{Address, ConnectOptions, Connection, Registry, TransportError};
use towline_wire::control::{
    AttachPreamble, HandshakeError, LaneEnd, LaneKey, Message, MessageBuffer, Purpose, RejectCode,
    ResumeSession, SHOWN_TEXT, Ticket, printable,
};

use crate::access::{Access, secure_lane};
use crate::dial::{DialError, Opened, knock_within, next_frame};
use crate::farewell;

/// Longest pause between two attempts, and how long one may take to connect: a link that is back is found within about a second.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(1);
const PAUSE_LIMIT: Duration = Duration::from_millis(400);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// A server that refuses connections for so long has ended, and its sessions with it.
const REFUSED_LIMIT: Duration = Duration::from_secs(5);
/// The server's time to answer on a connection that it took.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// A session's place on its server, as the grant tells it.
pub(crate) struct Place {
    pub(crate) address: Address,
    pub(crate) access: Access,
    pub(crate) session_id: u64,
    pub(crate) ticket: Ticket,
    /// Lanes, the command lane included.
    pub(crate) count: u16,
    /// The key that the lanes must prove to know, where they are encrypted.
    pub(crate) lane_key: Option<LaneKey>,
    /// How long the session outlives a cut; zero: not at all.
    pub(crate) grace: Duration,
    pub(crate) lanes: Mutex<Vec<Weak<Resumable>>>,
}

/// The reason why a session cannot go on now.
enum Refusal {
    /// It is over.
    Over(String),
    /// It may still go on.
    Later(DialError),
}

impl From<DialError> for Refusal {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Transport(_) | DialError::Silent { .. } | DialError::Slow { .. } => {
                Self::Later(error)
            }
            // The server has too much to do.
            DialError::Handshake {
                why: HandshakeError::Rejected(ref reject),
                ..
            } if matches!(reject.code, RejectCode::Busy | RejectCode::HandshakeTimeout) => {
                Self::Later(error)
            }
            error => Self::Over(error.to_string()),
        }
    }
}

impl From<TransportError> for Refusal {
    fn from(error: TransportError) -> Self {
        Self::Later(error.into())
    }
}

impl Place {
    /// Opens a lane, which outlives cuts if the session does.
    pub(crate) fn open(self: &Arc<Self>, index: u16) -> Result<Arc<dyn Connection>, DialError> {
        let link = self.dial(index, false, &ConnectOptions::default())?;
        if self.grace.is_zero() {
            return Ok(link);
        }
        let place = Arc::clone(self);
        let lane = Resumable::new(link, move |lane, reason| {
            log::debug!("{}: lane {index} is cut: {reason}", place.address);
            let (place, cut, reason) = (Arc::clone(&place), Arc::clone(lane), reason.to_owned());
            let rejoin = move || place.rejoin(&cut, index, &reason);
            if let Err(error) = spawn(rejoin) {
                lane.fail(format!("cannot start a thread to dial again: {error}"));
            }
        });
        self.lanes().push(Arc::downgrade(&lane));
        Ok(lane)
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Weak<Resumable>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a lane, the first time or `again`.
    fn dial(
        &self,
        index: u16,
        again: bool,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, DialError> {
        let transport = Registry::global().get(self.address.scheme())?;
        let lane = transport.connect(&self.address, options)?;
        let preamble = AttachPreamble {
            ticket: self.ticket.clone(),
            lane_index: index,
            lane_count: self.count,
            again,
        };
        lane.send(&[IoSlice::new(&preamble.encode())])?;
        let end = LaneEnd::Client {
            index,
            count: self.count,
        };
        match &self.lane_key {
            None => Ok(lane),
            Some(key) => Ok(secure_lane(lane, key, end)?),
        }
    }

    /// Dials a lane until it goes on, or too long.
    fn rejoin(&self, lane: &Resumable, index: u16, reason: &str) {
        let mut attempts = Attempts::new(self.grace);
        while lane.is_cut() {
            if farewell::is_leaving() {
                return lane.fail(reason.to_owned());
            }
            let options = ConnectOptions {
                timeout: ATTEMPT_LIMIT,
                ..ConnectOptions::default()
            };
            let dialled = self.dial(index, true, &options);
            let joined = dialled.and_then(|link| Ok(lane.reattach(link)?));
            match joined {
                Ok(()) => return log::debug!("{}: lane {index} goes on", self.address),
                Err(error) if attempts.are_over() => {
                    let seconds = self.grace.as_secs_f64();
                    return lane.fail(format!(
                        "{reason}; it did not come back within {seconds} s: {error}"
                    ));
                }
                Err(error) => log::debug!("{}: lane {index}: {error}", self.address),
            }
            attempts.pause();
        }
    }

    /// Dials the control connection until the session goes on; in the error, why it does not. `is_over` tells that nobody wants it any more.
    pub(crate) fn resume(
        &self,
        reason: &str,
        is_over: impl Fn() -> bool,
    ) -> Result<(Arc<dyn Connection>, MessageBuffer), String> {
        if self.grace.is_zero() || is_over() || farewell::is_leaving() {
            return Err(reason.to_owned());
        }
        // They share its way, and may not have noticed.
        let lanes: Vec<_> = self.lanes().iter().filter_map(Weak::upgrade).collect();
        lanes
            .iter()
            .for_each(|lane| lane.cut("the control connection is cut"));
        let (server, seconds) = (&self.address, self.grace.as_secs_f64());
        let mut attempts = Attempts::new(self.grace);
        let mut refused: Option<Instant> = None;
        loop {
            let error = match self.ask_to_resume() {
                Ok(resumed) => {
                    if attempts.count > 0 {
                        let away = attempts.began.elapsed().as_secs_f64();
                        log::warn!("the session with {server} goes on after {away:.1} s");
                    }
                    return Ok(resumed);
                }
                Err(Refusal::Over(why)) => return Err(format!("{reason}; {why}")),
                Err(Refusal::Later(error)) => error,
            };
            let is_refused = matches!(
                error,
                DialError::Transport(TransportError::ConnectionRefused { .. })
            );
            refused = is_refused.then(|| refused.unwrap_or_else(Instant::now));
            let has_ended = refused.is_some_and(|since| since.elapsed() >= REFUSED_LIMIT);
            if is_over() || has_ended || attempts.are_over() {
                return Err(format!("{reason}; {error}"));
            }
            if attempts.count == 0 {
                log::warn!(
                    "the link to {server} is cut ({reason}); waiting up to {seconds} s for it to come back"
                );
            }
            attempts.pause();
        }
    }

    fn ask_to_resume(&self) -> Result<(Arc<dyn Connection>, MessageBuffer), Refusal> {
        let options = ConnectOptions {
            timeout: ATTEMPT_LIMIT,
            ..ConnectOptions::control()
        };
        let opened = knock_within(
            &self.address,
            &self.access,
            Purpose::Resume,
            &options,
            ANSWER_LIMIT,
        )?;
        let Opened {
            connection,
            mut buffer,
            ..
        } = opened;
        let question = Message::ResumeSession(ResumeSession {
            session_id: self.session_id,
            ticket: self.ticket.clone(),
        });
        connection.send(&[IoSlice::new(&question.encode())])?;
        let server = self.address.to_string();
        let frame = next_frame(&*connection, &mut buffer, &server, ANSWER_LIMIT)?;
        let Some(frame) = frame else {
            let limit = ANSWER_LIMIT;
            return Err(Refusal::Later(DialError::Silent { server, limit }));
        };
        match Message::decode(&frame) {
            Ok(Message::SessionResumed(resumed)) => match resumed.outcome {
                Ok(()) => Ok((connection, buffer)),
                Err(why) => Err(Refusal::Over(printable(&why, SHOWN_TEXT))),
            },
            Ok(Message::Reject(reject)) => {
                let why = HandshakeError::Rejected(reject);
                Err(DialError::Handshake { server, why }.into())
            }
            Ok(other) => Err(Refusal::Over(format!(
                "it answers {} to a session that is to go on",
                other.name()
            ))),
            Err(seen) => Err(DialError::Control { server, seen }.into()),
        }
    }
}

/// Attempts until a time limit, with pauses that grow.
struct Attempts {
    began: Instant,
    limit: Duration,
    pause: Duration,
    count: u32,
}

impl Attempts {
    fn new(limit: Duration) -> Self {
        Self {
            began: Instant::now(),
            limit,
            pause: FIRST_PAUSE,
            count: 0,
        }
    }

    fn are_over(&self) -> bool {
        self.began.elapsed() >= self.limit
    }

    fn pause(&mut self) {
        self.count += 1;
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_LIMIT);
    }
}

fn spawn(body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = crate::threads::named("towline-rejoin");
    thread.spawn(body).map(drop)
}
