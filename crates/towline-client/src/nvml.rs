//! What NVML tells of one server's devices: a control connection that asks, and the answers of a moment.
//!
//! Tools that poll ask the same questions round after round. When an answer is too old, everything that was asked since that answer came
//! goes along in one message, so a round costs one wait however many questions it has.
//!
//! The server closes connections that nobody uses; the next question opens another.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towline_transport::{Address, Connection, TransportError};
use towline_wire::control::{
    Answer, Message, MessageBuffer, NvmlQuestions, Purpose, Question, Token, limits,
};
use towline_wire::nvml::snapshot::Snapshot;
use towline_wire::nvml::{
    FIXED_CALLS, NVML_ERROR_GPU_IS_LOST, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_UNKNOWN,
    NVML_SUCCESS, Request,
};

use crate::access::Access;
use crate::dial::{DialError, Opened, knock};
use crate::meter::Meter;

/// How old an answer may be.
pub const AGE: Duration = Duration::from_millis(100);
/// How long a server may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Answers that are kept; who asks for more begins anew.
const KEPT: usize = 4096;
/// Bytes of questions in one message, below what a server accepts.
const MESSAGE_BYTES: usize = limits::CLIENT_MESSAGE_BYTES - 256;
/// Bytes that a question takes beside its body.
const QUESTION_HEAD: usize = 6;

/// One server's devices through NVML.
pub struct Monitor {
    address: Address,
    access: Access,
    server: String,
    snapshot: Snapshot,
    /// Waits by call.
    pub meter: Meter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    line: Option<Line>,
    kept: HashMap<Question, Kept>,
}

/// A connection.
struct Line {
    connection: Arc<dyn Connection>,
    buffer: MessageBuffer,
}

/// An answer.
struct Kept {
    answer: Answer,
    /// When it came.
    came: Instant,
    /// When it was last asked for.
    asked: Instant,
}

/// Why a server gave no answers.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("it closed the connection")]
    Closed,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("it did not answer within {} s", ANSWER_LIMIT.as_secs())]
    Silent,
    #[error("what it said is no answer")]
    Strange,
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl Monitor {
    /// Asks the server at `address` for its devices. Costs one round trip, two with a token.
    pub fn connect(address: &Address, token: Option<Token>) -> Result<Self, DialError> {
        let access = Access::from_environment(address, token)?;
        let Opened {
            connection,
            buffer,
            welcome,
            ..
        } = knock(address, &access, Purpose::Nvml)?;
        let server = address.to_string();
        let snapshot = Snapshot::decode(&welcome.snapshot);
        let snapshot = snapshot.map_err(|source| DialError::Snapshot {
            server: server.clone(),
            source,
        })?;
        let line = Some(Line { connection, buffer });
        Ok(Self {
            address: address.clone(),
            access,
            server,
            snapshot,
            meter: Meter::default(),
            state: Mutex::new(State {
                line,
                ..State::default()
            }),
        })
    }

    /// What never changes.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The reply to a request, or NVML's status; an answer of the last [`AGE`] will do. A server that is gone is a GPU that is lost.
    pub fn call<'a, R: Request<'a>>(&self, request: &R) -> Result<Vec<u8>, i32> {
        let mut body = Vec::new();
        request.encode(&mut body);
        if body.len() > limits::QUESTION_BYTES {
            return Err(NVML_ERROR_UNKNOWN);
        }
        let question = Question { call: R::ID, body };
        let mut state = self.state();
        let now = Instant::now();
        if let Some(kept) = state.kept.get_mut(&question) {
            kept.asked = now;
            // A server that cannot ask just now says that the error is unknown: that does not last.
            let lasts = [NVML_SUCCESS, NVML_ERROR_NOT_SUPPORTED].contains(&kept.answer.status);
            if lasts && FIXED_CALLS.contains(&question.call) || now - kept.came < AGE {
                return outcome(&kept.answer);
            }
        }
        let questions = state.round(question, now);
        let answers = self.ask_again(&mut state, &questions);
        self.meter.waited(R::NAME, now.elapsed());
        let answers = answers.map_err(|error| {
            log::warn!("{}: NVML cannot be asked: {error}", self.server);
            NVML_ERROR_GPU_IS_LOST
        })?;
        if state.kept.len() + answers.len() > KEPT {
            state.kept.clear();
        }
        let came = Instant::now();
        let wanted = answers.first().cloned();
        for (question, answer) in questions.questions.into_iter().zip(answers) {
            // What was fetched along is not thereby asked for: whoever stops asking is not asked for again.
            let asked = state.kept.get(&question).map_or(now, |kept| kept.asked);
            let kept = Kept {
                answer,
                came,
                asked,
            };
            state.kept.insert(question, kept);
        }
        wanted.as_ref().map_or(Err(NVML_ERROR_UNKNOWN), outcome)
    }

    /// Asks; where the connection has ended since it was last used, over another.
    fn ask_again(
        &self,
        state: &mut State,
        questions: &NvmlQuestions,
    ) -> Result<Vec<Answer>, AskError> {
        if let Some(line) = &mut state.line {
            match line.ask(questions) {
                Err(AskError::Closed | AskError::Transport(_)) => state.line = None,
                outcome => {
                    if outcome.is_err() {
                        state.line = None;
                    }
                    return outcome;
                }
            }
        }
        let Opened {
            connection, buffer, ..
        } = knock(&self.address, &self.access, Purpose::Nvml)?;
        let line = state.line.insert(Line { connection, buffer });
        let outcome = line.ask(questions);
        if outcome.is_err() {
            state.line = None;
        }
        outcome
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn outcome(answer: &Answer) -> Result<Vec<u8>, i32> {
    match answer.status {
        0 => Ok(answer.body.clone()),
        status => Err(status),
    }
}

impl State {
    /// A question, and what was asked since it was last answered and is too old by now.
    fn round(&self, question: Question, now: Instant) -> NvmlQuestions {
        let mut room = MESSAGE_BYTES.saturating_sub(question.body.len() + QUESTION_HEAD);
        let mut questions = Vec::new();
        if let Some(before) = self.kept.get(&question) {
            for (other, kept) in &self.kept {
                let wanted = kept.asked >= before.came
                    && now.saturating_duration_since(kept.came) >= AGE
                    && !FIXED_CALLS.contains(&other.call)
                    && *other != question;
                let taken = other.body.len() + QUESTION_HEAD;
                if wanted && taken <= room && questions.len() + 1 < limits::QUESTIONS {
                    room -= taken;
                    questions.push(other.clone());
                }
            }
        }
        questions.insert(0, question);
        NvmlQuestions { questions }
    }
}

impl Line {
    fn ask(&mut self, questions: &NvmlQuestions) -> Result<Vec<Answer>, AskError> {
        let frame = Message::NvmlQuestions(questions.clone()).encode();
        self.connection.send(&[IoSlice::new(&frame)])?;
        match Message::decode(&self.frame()?) {
            Ok(Message::NvmlAnswers(answers))
                if answers.answers.len() == questions.questions.len() =>
            {
                Ok(answers.answers)
            }
            // A server that goes away says so; the next attempt tells why.
            Ok(Message::Reject(_)) => Err(AskError::Closed),
            _ => Err(AskError::Strange),
        }
    }

    fn frame(&mut self) -> Result<Vec<u8>, AskError> {
        let deadline = Instant::now() + ANSWER_LIMIT;
        let mut bytes = [0; 16 << 10];
        loop {
            match self.buffer.next_frame() {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(_) => return Err(AskError::Strange),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.connection.wait_readable(Some(left))? {
                return Err(AskError::Silent);
            }
            match self.connection.recv(&mut bytes)? {
                0 => return Err(AskError::Closed),
                count => self.buffer.push(bytes.get(..count).unwrap_or_default()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    fn question(call: u16) -> Question {
        Question {
            call,
            body: vec![1, 2, 3],
        }
    }

    /// Answers that came and were last asked for so many milliseconds after the start.
    fn state(start: Instant, kept: &[(u16, u64, u64)]) -> State {
        let at = |ms| start + Duration::from_millis(ms);
        let kept = kept.iter().map(|&(call, came, asked)| {
            let answer = Answer {
                status: 0,
                body: Vec::new(),
            };
            let kept = Kept {
                answer,
                came: at(came),
                asked: at(asked),
            };
            (question(call), kept)
        });
        State {
            kept: kept.collect(),
            ..State::default()
        }
    }

    fn calls(round: NvmlQuestions) -> Vec<u16> {
        let mut calls: Vec<u16> = round.questions.iter().map(|asked| asked.call).collect();
        if let Some(further) = calls.get_mut(1..) {
            further.sort_unstable();
        }
        calls
    }

    #[test]
    fn a_round_asks_again_what_the_last_one_asked() {
        let start = Instant::now() + START;
        let state = state(start, &[(1, 0, 0), (2, 1, 1), (3, 2, 2)]);
        let now = start + Duration::from_millis(1000);
        assert_eq!(calls(state.round(question(1), now)), [1, 2, 3]);
        // A question that is new brings nothing along.
        assert_eq!(calls(state.round(question(9), now)), [9]);
    }

    #[test]
    fn what_nobody_asks_any_more_does_not_go_along() {
        let start = Instant::now() + START;
        // Number 2 was fetched along in the second round, and asked for only in the first.
        let state = state(start, &[(1, 1000, 1000), (2, 1000, 1), (3, 1001, 1001)]);
        let now = start + Duration::from_millis(2000);
        assert_eq!(calls(state.round(question(1), now)), [1, 3]);
    }

    #[test]
    fn what_is_fresh_or_never_changes_does_not_go_along() {
        let start = Instant::now() + START;
        let fixed = FIXED_CALLS[0];
        let state = state(start, &[(1, 0, 0), (2, 950, 950), (fixed, 5, 5)]);
        let now = start + Duration::from_millis(1000);
        assert_eq!(calls(state.round(question(1), now)), [1]);
    }

    #[test]
    fn a_round_fits_a_message_of_the_servers_limit() {
        let start = Instant::now() + START;
        let many: Vec<(u16, u64, u64)> = (1..1000).map(|call| (call, 0, 0)).collect();
        let mut state = state(start, &many);
        let now = start + Duration::from_millis(1000);
        let round = state.round(question(1), now);
        assert_eq!(round.questions.len(), limits::QUESTIONS);
        let long = Question {
            call: 2000,
            body: vec![0; limits::QUESTION_BYTES],
        };
        let kept = state.kept.remove(&question(1)).unwrap();
        state.kept.insert(long.clone(), kept);
        let frame = Message::NvmlQuestions(state.round(long, now)).encode();
        assert!(frame.len() <= limits::CLIENT_MESSAGE_BYTES);
    }
}
