//! Both sides of the handshake as state machines: whole frames in, whole frames out.
//!
//! ```text
//! client                                server
//!   Hello{versions, purpose, nonce} ──►
//!                                   ◄──  Challenge{version, nonce}         only when the server has a token
//!   Proof{HMAC}                     ──►
//!                                   ◄──  Welcome{HMAC, session, snapshot}  or Reject at any point
//! ```
//!
//! The client's proof covers `Hello` and `Challenge`, the server's also `Proof` and the whole `Welcome`, ticket included.
//! A client that has a token refuses a server that does not ask for it: otherwise an impostor would only have to say
//! that no token is needed.

use sha2::{Digest, Sha256};

use super::codec::{ControlError, Reader, Writer};
use super::frame::{self, HEADER_BYTES};
use super::message::{
    Challenge, HELLO_KIND, Hello, Message, Nonce, PROOF_BYTES, Proof, SessionGrant, VersionRange,
    Welcome,
};
use super::token::{Role, Token};
use super::{Reject, RejectCode, SUPPORTED_VERSIONS, limits};

type Hash = [u8; 32];

/// Who a server is. Not proven to a client without a token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServerIdentity {
    /// Its host name.
    pub name: String,
    /// Its software and version.
    pub software: String,
}

impl ServerIdentity {
    pub(super) fn write(&self, writer: &mut Writer) {
        writer.text(&self.name, limits::NAME_BYTES);
        writer.text(&self.software, limits::NAME_BYTES);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        Ok(Self {
            name: reader.text("server name", limits::NAME_BYTES)?,
            software: reader.text("server software", limits::NAME_BYTES)?,
        })
    }
}

/// Why a handshake failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer sent something that is no control message.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The server turned the client away.
    #[error("the server refused: {0}")]
    Rejected(Reject),
    /// The server does not know the token.
    #[error(
        "the server does not know the token; either it is not the server you mean, or its token file differs from yours"
    )]
    ServerNotAuthentic,
    /// The client has a token and the server does not ask for one.
    #[error(
        "the server does not ask for a token although you gave one, so it cannot show that it is the right one; start it with \
         --token-file, or use no token for it"
    )]
    ServerWithoutToken,
    /// The server wants a token and the client has none.
    #[error("{}", RejectCode::AuthenticationRequired.advice())]
    TokenRequired,
    /// The client's token is not the server's.
    #[error("{}", RejectCode::AuthenticationFailed.advice())]
    TokenWrong,
    /// A message at the wrong time.
    #[error("the peer sent {message} where it has no place")]
    Unexpected {
        /// Its name.
        message: &'static str,
    },
    /// No version in common.
    #[error(
        "the client speaks protocol versions {} to {}, the server {} to {}; install the same towline release on both",
        client.min, client.max, server.min, server.max
    )]
    VersionMismatch {
        /// The client's versions.
        client: VersionRange,
        /// The server's versions.
        server: VersionRange,
    },
}

impl HandshakeError {
    /// What a server tells the client before it closes the connection.
    pub fn to_reject(&self) -> Reject {
        let code = match self {
            Self::Rejected(reject) => return reject.clone(),
            Self::Control(_) | Self::Unexpected { .. } => RejectCode::Malformed,
            Self::VersionMismatch { .. } => RejectCode::VersionMismatch,
            Self::TokenRequired => RejectCode::AuthenticationRequired,
            Self::TokenWrong | Self::ServerNotAuthentic | Self::ServerWithoutToken => {
                RejectCode::AuthenticationFailed
            }
        };
        match code {
            RejectCode::Malformed => code.because(format!("{self}; {}", code.advice())),
            _ => code.because(self.to_string()),
        }
    }
}

/// What a client does next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClientProgress {
    /// Send this frame, then wait for the next one.
    Send(Vec<u8>),
    /// The server is alive and has nothing to grant yet: wait for the next frame.
    Wait,
    /// The handshake is done.
    Done(Box<Welcome>),
}

/// The client's side.
#[derive(Debug)]
pub struct ClientHandshake {
    versions: VersionRange,
    token: Option<Token>,
    hello: Hash,
    /// Hashes of `Challenge` and `Proof`, once they were exchanged.
    proven: Option<[Hash; 2]>,
    failed: Option<HandshakeError>,
}

impl ClientHandshake {
    /// Begins: the second value is the first frame to send.
    pub fn start(hello: Hello, token: Option<Token>) -> (Self, Vec<u8>) {
        let versions = hello.versions;
        let frame = Message::Hello(hello).encode();
        (
            Self {
                versions,
                token,
                hello: hash(&frame),
                proven: None,
                failed: None,
            },
            frame,
        )
    }

    /// Takes one whole frame from the server. After an error every later call gives the same error.
    pub fn receive(&mut self, frame: &[u8]) -> Result<ClientProgress, HandshakeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.step(frame)
            .inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn step(&mut self, frame: &[u8]) -> Result<ClientProgress, HandshakeError> {
        match Message::decode(frame)? {
            Message::Challenge(challenge) if self.proven.is_none() => {
                self.check_version(challenge.version)?;
                let token = self.token.as_ref().ok_or(HandshakeError::TokenRequired)?;
                let challenge = hash(frame);
                let proof = token.prove(Role::Client, &[&self.hello, &challenge]);
                let answer = Message::Proof(Proof { proof }).encode();
                self.proven = Some([challenge, hash(&answer)]);
                Ok(ClientProgress::Send(answer))
            }
            Message::Welcome(welcome) => {
                self.check_version(welcome.version)?;
                match (&self.token, &self.proven) {
                    (None, _) => {}
                    (Some(_), None) => return Err(HandshakeError::ServerWithoutToken),
                    (Some(token), Some([challenge, proof])) => {
                        let transcript = [&self.hello, challenge, proof, &welcome_hash(frame)];
                        if !token.verify(Role::Server, &transcript, &welcome.proof) {
                            return Err(HandshakeError::ServerNotAuthentic);
                        }
                    }
                }
                Ok(ClientProgress::Done(welcome))
            }
            Message::Reject(reject) => Err(self.explain(reject)),
            Message::Alive => Ok(ClientProgress::Wait),
            other => Err(HandshakeError::Unexpected {
                message: other.name(),
            }),
        }
    }

    fn check_version(&self, version: u16) -> Result<(), HandshakeError> {
        if (self.versions.min..=self.versions.max).contains(&version) {
            return Ok(());
        }
        let server = VersionRange {
            min: version,
            max: version,
        };
        Err(HandshakeError::VersionMismatch {
            client: self.versions,
            server,
        })
    }

    fn explain(&self, reject: Reject) -> HandshakeError {
        match reject.code {
            RejectCode::VersionMismatch => HandshakeError::VersionMismatch {
                client: self.versions,
                server: reject.versions,
            },
            RejectCode::AuthenticationRequired => HandshakeError::TokenRequired,
            RejectCode::AuthenticationFailed => HandshakeError::TokenWrong,
            _ => HandshakeError::Rejected(reject),
        }
    }
}

/// What a server does next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ServerProgress {
    /// Send this frame, then wait for the next one.
    Send(Vec<u8>),
    /// The client is who it must be: give it what it wants, then [`ServerHandshake::welcome`].
    Authenticated(Hello),
}

#[derive(Debug)]
enum ServerState {
    AwaitHello,
    AwaitProof {
        hello: Hello,
        hello_hash: Hash,
        challenge: Hash,
    },
    Authenticated {
        transcript: Option<[Hash; 3]>,
        version: u16,
    },
    Failed(HandshakeError),
}

/// The server's side.
#[derive(Debug)]
pub struct ServerHandshake {
    identity: ServerIdentity,
    token: Option<Token>,
    nonce: Nonce,
    state: ServerState,
}

impl ServerHandshake {
    /// A server that awaits a `Hello`. `nonce` must be fresh random bytes when there is a token.
    pub fn new(identity: ServerIdentity, token: Option<Token>, nonce: Nonce) -> Self {
        Self {
            identity,
            token,
            nonce,
            state: ServerState::AwaitHello,
        }
    }

    /// Takes one whole frame from the client. After an error every later call gives the same error.
    pub fn receive(&mut self, frame: &[u8]) -> Result<ServerProgress, HandshakeError> {
        if let ServerState::Failed(error) = &self.state {
            return Err(error.clone());
        }
        self.step(frame)
            .inspect_err(|error| self.state = ServerState::Failed(error.clone()))
    }

    /// The `Welcome` for an authenticated client, with the server's own proof.
    ///
    /// # Panics
    /// Before [`ServerProgress::Authenticated`]: nothing may be granted to a client that has not proven itself.
    pub fn welcome(&self, session: Option<SessionGrant>, snapshot: Vec<u8>) -> Vec<u8> {
        let ServerState::Authenticated {
            transcript,
            version,
        } = &self.state
        else {
            panic!("welcome() before the client is authenticated");
        };
        let server = self.identity.clone();
        let mut welcome = Welcome {
            proof: [0; PROOF_BYTES],
            version: *version,
            server,
            session,
            snapshot,
        };
        if let (Some(token), Some([hello, challenge, proof])) = (&self.token, transcript) {
            let unsigned = Message::Welcome(Box::new(welcome.clone())).encode();
            welcome.proof = token.prove(
                Role::Server,
                &[hello, challenge, proof, &welcome_hash(&unsigned)],
            );
        }
        Message::Welcome(Box::new(welcome)).encode()
    }

    fn step(&mut self, frame: &[u8]) -> Result<ServerProgress, HandshakeError> {
        match &self.state {
            ServerState::AwaitHello => self.hello(frame),
            ServerState::AwaitProof {
                hello,
                hello_hash,
                challenge,
            } => {
                let Message::Proof(Proof { proof }) = Message::decode(frame)? else {
                    return Err(HandshakeError::Unexpected {
                        message: "something else than Proof",
                    });
                };
                let token = self
                    .token
                    .as_ref()
                    .expect("only a server with a token awaits a proof");
                if !token.verify(Role::Client, &[hello_hash, challenge], &proof) {
                    return Err(HandshakeError::TokenWrong);
                }
                let hello = hello.clone();
                let version = common_version(hello.versions)?;
                let transcript = Some([*hello_hash, *challenge, hash(frame)]);
                self.state = ServerState::Authenticated {
                    transcript,
                    version,
                };
                Ok(ServerProgress::Authenticated(hello))
            }
            ServerState::Authenticated { .. } => Err(HandshakeError::Unexpected {
                message: "a second handshake",
            }),
            ServerState::Failed(error) => Err(error.clone()),
        }
    }

    fn hello(&mut self, frame: &[u8]) -> Result<ServerProgress, HandshakeError> {
        // Versions first: the rest of a `Hello` of another version may not be readable.
        let (kind, body) = frame::split(frame)?;
        if kind != HELLO_KIND {
            let message =
                Message::decode(frame).map_or("an unknown message", |message| message.name());
            return Err(HandshakeError::Unexpected { message });
        }
        let version = common_version(VersionRange::peek(body)?)?;
        let Message::Hello(hello) = Message::decode(frame)? else {
            return Err(HandshakeError::Unexpected {
                message: "something else than Hello",
            });
        };
        if self.token.is_none() {
            self.state = ServerState::Authenticated {
                transcript: None,
                version,
            };
            return Ok(ServerProgress::Authenticated(hello));
        }
        let challenge = Message::Challenge(Challenge {
            version,
            nonce: self.nonce,
        })
        .encode();
        self.state = ServerState::AwaitProof {
            hello,
            hello_hash: hash(frame),
            challenge: hash(&challenge),
        };
        Ok(ServerProgress::Send(challenge))
    }
}

fn common_version(client: VersionRange) -> Result<u16, HandshakeError> {
    let server = SUPPORTED_VERSIONS;
    client
        .newest_common(server)
        .ok_or(HandshakeError::VersionMismatch { client, server })
}

fn hash(frame: &[u8]) -> Hash {
    Sha256::digest(frame).into()
}

/// Hash of a `Welcome` frame without the proof, which comes first in its body.
fn welcome_hash(frame: &[u8]) -> Hash {
    hash(frame.get(HEADER_BYTES + PROOF_BYTES..).unwrap_or_default())
}
