//! What clients ask NVML of a server's devices, and what it answers: calls of `api/nvml/`, several to a message.

use super::codec::{ControlError, Reader, Writer};
use super::limits;

/// A call of NVML.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Question {
    /// Its id.
    pub call: u16,
    /// Its request.
    pub body: Vec<u8>,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// What NVML answered.
    pub status: i32,
    /// The reply; empty unless the status is 0.
    pub body: Vec<u8>,
}

/// Client to server: questions, answered all together.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NvmlQuestions {
    /// At most [`limits::QUESTIONS`].
    pub questions: Vec<Question>,
}

/// Server to client: an answer to each question, in their order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NvmlAnswers {
    /// As many as there were questions.
    pub answers: Vec<Answer>,
}

impl NvmlQuestions {
    pub(super) fn write(&self, writer: &mut Writer) {
        let questions = self.questions.iter().take(limits::QUESTIONS);
        writer.u32(u32::try_from(questions.len()).expect("the limit fits 32 bits"));
        for question in questions {
            writer.u16(question.call);
            writer.blob(&question.body, limits::QUESTION_BYTES);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        let mut questions = Vec::new();
        for _ in 0..reader.len("question count", limits::QUESTIONS)? {
            questions.push(Question {
                call: reader.u16("call")?,
                body: reader.blob("question", limits::QUESTION_BYTES)?,
            });
        }
        Ok(Self { questions })
    }
}

impl NvmlAnswers {
    pub(super) fn write(&self, writer: &mut Writer) {
        let answers = self.answers.iter().take(limits::QUESTIONS);
        writer.u32(u32::try_from(answers.len()).expect("the limit fits 32 bits"));
        for answer in answers {
            writer.raw(&answer.status.to_le_bytes());
            writer.blob(&answer.body, limits::ANSWER_BYTES);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        let mut answers = Vec::new();
        for _ in 0..reader.len("answer count", limits::QUESTIONS)? {
            answers.push(Answer {
                status: i32::from_le_bytes(reader.array("status")?),
                body: reader.blob("answer", limits::ANSWER_BYTES)?,
            });
        }
        Ok(Self { answers })
    }
}
