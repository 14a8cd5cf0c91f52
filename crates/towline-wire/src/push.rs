//! What a worker sends to its client on the command lane: replies, completions, grants, data, text.

use crate::codec::{Decoder, List, Scalar, put_blob, put_flag};
use crate::error::DecodeError;

/// Ids of the pushes, apart from all call ids.
pub mod id {
    /// [`super::Push::Reply`].
    pub const REPLY: u16 = 0xf001;
    /// [`super::Push::Event`].
    pub const EVENT: u16 = 0xf002;
    /// [`super::Push::Failed`].
    pub const FAILED: u16 = 0xf003;
    /// [`super::Push::Grant`].
    pub const GRANT: u16 = 0xf004;
    /// [`super::Push::Data`].
    pub const DATA: u16 = 0xf005;
    /// [`super::Push::Text`].
    pub const TEXT: u16 = 0xf006;
    /// [`super::Push::Notice`].
    pub const NOTICE: u16 = 0xf007;
    /// [`super::Push::Close`].
    pub const CLOSE: u16 = 0xf008;
    /// [`super::Push::NoData`].
    pub const NO_DATA: u16 = 0xf009;
    /// [`super::Push::Ack`].
    pub const ACK: u16 = 0xf00a;
    /// [`super::Push::Sent`].
    pub const SENT: u16 = 0xf00b;
    /// [`super::Push::Retired`].
    pub const RETIRED: u16 = 0xf00c;
    /// [`super::Push::ErrorText`].
    pub const ERROR_TEXT: u16 = 0xf00d;
}

/// Most bytes of a [`Push::Text`] or [`Push::ErrorText`], which a client writes out before it reads on.
pub const TEXT_LIMIT: usize = 1 << 20;

/// One push.
#[derive(Debug, Clone, PartialEq)]
pub enum Push<'a> {
    /// The answer to a request.
    Reply {
        /// Number of the request.
        to: u64,
        /// Status of the API; the body is empty when it is negative.
        status: i32,
        /// Reads whose data the client must have before it lets the caller go on.
        after: List<'a, u64>,
        /// The generated reply.
        body: &'a [u8],
    },
    /// An event reached its last state.
    Event {
        /// The event.
        event: u64,
        /// `CL_COMPLETE`, or a negative status.
        status: i32,
        /// As for a reply.
        after: List<'a, u64>,
        /// Queued, submitted, start, end, complete in nanoseconds of the device's clock, where the queue profiles.
        times: Option<[u64; 5]>,
    },
    /// A posted request failed.
    Failed {
        /// Number of the request.
        number: u64,
        /// Its call.
        call: u16,
        /// The queue it was for; 0 where it was for none.
        queue: u64,
        /// Status of the API.
        status: i32,
    },
    /// The worker is ready for payload.
    Grant {
        /// Which payload.
        payload: u64,
        /// From where.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// Small data of a read; the whole of it.
    Data {
        /// Which payload.
        payload: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A read brought nothing: its command failed.
    NoData {
        /// Which payload.
        payload: u64,
        /// Why.
        status: i32,
    },
    /// What kernels printed.
    Text {
        /// The bytes, for standard output.
        bytes: &'a [u8],
    },
    /// Lines that the vendor's library printed of a kernel's failed assertions.
    ErrorText {
        /// The bytes, for standard error.
        bytes: &'a [u8],
    },
    /// A vendor's message about a context, for its callback, or the worker's about the session.
    Notice {
        /// The context; 0 for the session.
        context: u64,
        /// The text.
        text: &'a [u8],
    },
    /// The worker ends the session.
    Close {
        /// A number of [`crate::error::CloseCode`].
        code: u16,
        /// What was seen.
        text: &'a [u8],
    },
    /// The last byte of a read has gone out on a payload lane: no completion behind this may be seen before it has landed.
    Sent {
        /// Which payload.
        payload: u64,
    },
    /// Bytes of inline writes, counted from the session's start, that the worker no longer holds.
    Retired {
        /// The count.
        bytes: u64,
    },
    /// Nothing but the acknowledgement in the frame's header.
    Ack,
}

impl<'a> Push<'a> {
    /// The message id.
    pub fn id(&self) -> u16 {
        match self {
            Self::Reply { .. } => id::REPLY,
            Self::Event { .. } => id::EVENT,
            Self::Failed { .. } => id::FAILED,
            Self::Grant { .. } => id::GRANT,
            Self::Data { .. } => id::DATA,
            Self::NoData { .. } => id::NO_DATA,
            Self::Text { .. } => id::TEXT,
            Self::ErrorText { .. } => id::ERROR_TEXT,
            Self::Notice { .. } => id::NOTICE,
            Self::Close { .. } => id::CLOSE,
            Self::Ack => id::ACK,
            Self::Sent { .. } => id::SENT,
            Self::Retired { .. } => id::RETIRED,
        }
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Reply {
                to,
                status,
                after,
                body,
            } => {
                to.put(out);
                status.put(out);
                after.put(out);
                put_blob(out, body);
            }
            Self::Event {
                event,
                status,
                after,
                times,
            } => {
                event.put(out);
                status.put(out);
                after.put(out);
                put_flag(out, times.is_some());
                times.iter().flatten().for_each(|time| time.put(out));
            }
            Self::Failed {
                number,
                call,
                queue,
                status,
            } => {
                number.put(out);
                call.put(out);
                queue.put(out);
                status.put(out);
            }
            Self::Grant {
                payload,
                offset,
                length,
            } => {
                payload.put(out);
                offset.put(out);
                length.put(out);
            }
            Self::Data { payload, bytes } => {
                payload.put(out);
                put_blob(out, bytes);
            }
            Self::NoData { payload, status } => {
                payload.put(out);
                status.put(out);
            }
            Self::Text { bytes } | Self::ErrorText { bytes } => put_blob(out, bytes),
            Self::Notice { context, text } => {
                context.put(out);
                put_blob(out, text);
            }
            Self::Close { code, text } => {
                code.put(out);
                put_blob(out, text);
            }
            Self::Ack => {}
            Self::Sent { payload } => payload.put(out),
            Self::Retired { bytes } => bytes.put(out),
        }
    }

    /// Reads a push.
    pub fn decode(kind: u16, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let push = match kind {
            id::REPLY => Self::Reply {
                to: decoder.scalar()?,
                status: decoder.scalar()?,
                after: decoder.list()?,
                body: decoder.blob()?,
            },
            id::EVENT => Self::Event {
                event: decoder.scalar()?,
                status: decoder.scalar()?,
                after: decoder.list()?,
                times: match decoder.flag()? {
                    false => None,
                    true => {
                        let mut times = [0; 5];
                        for time in &mut times {
                            *time = decoder.scalar()?;
                        }
                        Some(times)
                    }
                },
            },
            id::FAILED => Self::Failed {
                number: decoder.scalar()?,
                call: decoder.scalar()?,
                queue: decoder.scalar()?,
                status: decoder.scalar()?,
            },
            id::GRANT => Self::Grant {
                payload: decoder.scalar()?,
                offset: decoder.scalar()?,
                length: decoder.scalar()?,
            },
            id::DATA => Self::Data {
                payload: decoder.scalar()?,
                bytes: decoder.blob()?,
            },
            id::NO_DATA => Self::NoData {
                payload: decoder.scalar()?,
                status: decoder.scalar()?,
            },
            id::TEXT => Self::Text {
                bytes: text(&mut decoder)?,
            },
            id::ERROR_TEXT => Self::ErrorText {
                bytes: text(&mut decoder)?,
            },
            id::NOTICE => Self::Notice {
                context: decoder.scalar()?,
                text: decoder.blob()?,
            },
            id::CLOSE => Self::Close {
                code: decoder.scalar()?,
                text: decoder.blob()?,
            },
            id::ACK => Self::Ack,
            id::SENT => Self::Sent {
                payload: decoder.scalar()?,
            },
            id::RETIRED => Self::Retired {
                bytes: decoder.scalar()?,
            },
            other => {
                return Err(DecodeError::BadValue {
                    what: "push",
                    value: other.into(),
                });
            }
        };
        decoder.finish()?;
        Ok(push)
    }
}

fn text<'a>(decoder: &mut Decoder<'a>) -> Result<&'a [u8], DecodeError> {
    match decoder.blob()? {
        bytes if bytes.len() <= TEXT_LIMIT => Ok(bytes),
        bytes => Err(DecodeError::TooLong {
            what: "printed text",
            len: bytes.len() as u64,
            limit: TEXT_LIMIT as u64,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_push_survives_the_wire_and_no_cut_decodes() {
        let all = [
            Push::Reply {
                to: 1,
                status: -5,
                after: List::Values(&[3, 4]),
                body: b"body",
            },
            Push::Event {
                event: 2,
                status: 0,
                after: List::Values(&[]),
                times: Some([1, 2, 3, 4, 5]),
            },
            Push::Event {
                event: 2,
                status: -14,
                after: List::Values(&[9]),
                times: None,
            },
            Push::Failed {
                number: 3,
                call: 0x0b01,
                queue: 4,
                status: -30,
            },
            Push::Grant {
                payload: 1,
                offset: 2,
                length: 3,
            },
            Push::Data {
                payload: 7,
                bytes: b"data",
            },
            Push::NoData {
                payload: 7,
                status: -4,
            },
            Push::Text { bytes: b"hello" },
            Push::ErrorText { bytes: b"failed" },
            Push::Notice {
                context: 1,
                text: b"oops",
            },
            Push::Close {
                code: 1,
                text: b"bad",
            },
            Push::Sent { payload: 7 },
            Push::Retired { bytes: 9 },
            Push::Ack,
        ];
        for push in all {
            let mut body = Vec::new();
            push.encode(&mut body);
            assert_eq!(Push::decode(push.id(), &body).as_ref(), Ok(&push));
            for cut in 0..body.len() {
                assert!(Push::decode(push.id(), &body[..cut]).is_err());
            }
        }
    }
}
