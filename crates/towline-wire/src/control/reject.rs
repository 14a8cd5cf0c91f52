//! Why a server turns a client away. The table here is the one in `docs/protocol.md`.

use super::codec::{ControlError, Reader, Writer};
use super::{VersionRange, limits};

/// A refusal, in a form for programs and one for people.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", super::printable(text, super::SHOWN_TEXT))]
pub struct Reject {
    /// Why.
    pub code: RejectCode,
    /// The same for a person: what happened and what to do.
    pub text: String,
    /// The versions that the server speaks, so that a client of another version can say which is the older one.
    pub versions: VersionRange,
}

macro_rules! reject_codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal: $text:literal,)*) => {
        /// The reasons that a server gives for refusing a client, with their numbers on the wire.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum RejectCode {
            $($(#[$doc])* $name,)*
            /// A code that this build does not know: the server is newer.
            Unknown(u16),
        }

        impl RejectCode {
            /// Every code of this version.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The number on the wire.
            pub fn number(self) -> u16 {
                match self {
                    $(Self::$name => $value,)*
                    Self::Unknown(value) => value,
                }
            }

            /// Its name in this program.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::Unknown(_) => "Unknown",
                }
            }

            /// What the code means and what to do about it, when the server knows nothing more exact.
            pub fn advice(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Unknown(_) => "the server refused for a reason that this version of towline does not know; upgrade it",
                }
            }
        }

        impl From<u16> for RejectCode {
            fn from(value: u16) -> Self {
                match value {
                    $($value => Self::$name,)*
                    value => Self::Unknown(value),
                }
            }
        }
    };
}

reject_codes! {
    /// No protocol version in common.
    VersionMismatch = 1:
        "client and server have no protocol version in common; install the same towline release on both",
    /// The server wants a token and the client has none.
    AuthenticationRequired = 2:
        "the server requires a token; give the client the server's token file with --token-file or TOWLINE_TOKEN_FILE",
    /// The token is not the server's.
    AuthenticationFailed = 3:
        "the server does not know this token, or not for this tenant; copy the server's token file to the client, and name the tenant that \
         it is for with --tenant or TOWLINE_TENANT",
    /// Every session that the server allows is in use.
    TooManySessions = 4:
        "the server has no free session; wait for one to end, or start it with a higher --max-sessions",
    /// There is no device to give.
    NoDevice = 5:
        "the server has no usable device; see its log, and check with `clinfo` on the server that its driver works",
    /// The server is going away.
    ShuttingDown = 6:
        "the server is shutting down; use another one, or try again once it has restarted",
    /// The client broke the protocol.
    Malformed = 7:
        "the server did not understand the client; install the same towline release on both",
    /// The handshake took too long.
    HandshakeTimeout = 8:
        "the client did not complete the handshake in time; check the network between client and server",
    /// The worker process for the session did not start.
    WorkerFailed = 9:
        "the server could not start a worker process; its log says why",
    /// Too many handshakes at once.
    Busy = 10:
        "the server has too many connections in progress; try again in a moment",
    /// The connection is not encrypted.
    EncryptionRequired = 11:
        "the server takes encrypted connections only; leave out --no-encryption and TOWLINE_NO_ENCRYPTION, or start the server with \
         --no-encryption too",
    /// The tenant was revoked, or its time is over.
    TenantEnded = 12:
        "the server takes no sessions of this tenant any more; ask its operator",
}

impl RejectCode {
    /// A refusal with the code's own advice as its text.
    pub fn plain(self) -> Reject {
        self.because(self.advice())
    }

    /// A refusal with a more exact text.
    pub fn because(self, text: impl Into<String>) -> Reject {
        Reject {
            code: self,
            text: text.into(),
            versions: super::SUPPORTED_VERSIONS,
        }
    }
}

impl Reject {
    pub(super) fn write(&self, writer: &mut Writer) {
        writer.u16(self.code.number());
        self.versions.write(writer);
        writer.text(&self.text, limits::TEXT_BYTES);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        Ok(Self {
            code: reader.u16("reject code")?.into(),
            versions: VersionRange::read(reader)?,
            text: reader.text("reject text", limits::TEXT_BYTES)?,
        })
    }
}
