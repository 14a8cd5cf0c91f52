//! What a server's one monitor does: asks NVML what clients ask, and keeps answers for a moment, so that many who poll cost what one
//! does.

mod dispatch;
mod manual;
mod session;
mod snapshot;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towline_backend::nvml::{
    FIXED_CALLS, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_SUCCESS, NvmlApi,
};
use towline_wire::control::limits::ANSWER_BYTES;
use towline_wire::control::{Answer, NvmlAnswers, NvmlQuestions, Question};

use session::Session;
pub use snapshot::NvmlOpenError;

/// How old an answer may be.
const AGE: Duration = Duration::from_millis(100);
/// Answers that are kept; those who ask for more than that begin anew.
const KEPT: usize = 4096;

/// NVML with its devices, started.
pub struct NvmlMonitor {
    session: Session,
    snapshot: Vec<u8>,
    kept: HashMap<Question, (Instant, Answer)>,
}

impl NvmlMonitor {
    /// Starts the library and takes the devices for which `select` says yes; its arguments are the number, the name and the UUID.
    pub fn open(
        api: Arc<dyn NvmlApi>,
        select: &dyn Fn(usize, &str, &str) -> bool,
    ) -> Result<Self, NvmlOpenError> {
        let (snapshot, devices) = snapshot::take(&*api, select)?;
        Ok(Self {
            session: Session::new(api, devices),
            snapshot: snapshot.encode(),
            kept: HashMap::new(),
        })
    }

    /// What never changes, in its encoding.
    pub fn snapshot(&self) -> &[u8] {
        &self.snapshot
    }

    /// Answers questions. `now` is the time, which answers age by.
    pub fn answer(&mut self, questions: &NvmlQuestions, now: Instant) -> NvmlAnswers {
        let answers = questions.questions.iter();
        NvmlAnswers {
            answers: answers.map(|question| self.one(question, now)).collect(),
        }
    }

    fn one(&mut self, question: &Question, now: Instant) -> Answer {
        if let Some((asked, answer)) = self.kept.get(question) {
            // A GPU that is lost may come back.
            let lasts = [NVML_SUCCESS, NVML_ERROR_NOT_SUPPORTED].contains(&answer.status);
            if lasts && FIXED_CALLS.contains(&question.call)
                || now.saturating_duration_since(*asked) < AGE
            {
                return answer.clone();
            }
        }
        // Nothing that a client sends may end the monitor, which others ask too.
        let answer = self.session.ask(question).unwrap_or_else(|error| {
            log::debug!("a question that is none: {error}");
            Answer {
                status: NVML_ERROR_INVALID_ARGUMENT,
                body: Vec::new(),
            }
        });
        if answer.body.len() > ANSWER_BYTES {
            return Answer {
                status: NVML_ERROR_INVALID_ARGUMENT,
                body: Vec::new(),
            };
        }
        if self.kept.len() >= KEPT {
            self.kept.clear();
        }
        self.kept.insert(question.clone(), (now, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests;
