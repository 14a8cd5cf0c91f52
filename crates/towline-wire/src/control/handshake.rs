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
//! The client's proof covers `Hello` and `Challenge`, the server's also `Proof` and the whole `Welcome`, ticket included. Both cover what
//! the connection exports where it is encrypted ([`Channel`]): who stands in the middle of two connections can pass neither proof on.
//! A client that has a token refuses a server that does not ask for it: otherwise an impostor would only have to say
//! that no token is needed.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::codec::{ControlError, Reader, Writer};
use super::frame::{self, HEADER_BYTES};
use super::message::{
    Challenge, HELLO_KIND, Hello, Message, Nonce, PROOF_BYTES, Proof, SessionGrant, VersionRange,
    Welcome,
};
use super::token::{Exported, Role, Token};
use super::{Reject, RejectCode, SUPPORTED_VERSIONS, Tenants, limits};

type Hash = [u8; 32];

/// The channel that carries a control connection.
#[derive(Clone, Copy, Eq, PartialEq)]
pub enum Channel {
    /// Nothing that hides it: no stranger can listen there, or both sides were told that they may.
    Clear,
    /// Nothing that hides it, although this side wants it encrypted. A server tells the client so, a client does not begin.
    Refused,
    /// TLS, with what it exports under [`labels::CONTROL`](super::labels::CONTROL).
    Encrypted(Exported),
}

impl Channel {
    /// The bytes that bind proofs to the channel.
    fn binding(&self) -> &Exported {
        match self {
            Self::Clear | Self::Refused => &[0; 32],
            Self::Encrypted(exported) => exported,
        }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Clear => "Clear",
            Self::Refused => "Refused",
            Self::Encrypted(_) => "Encrypted(..)",
        })
    }
}

/// Who a server is. Not proven to a client without a token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServerIdentity {
    /// Its host name.
    pub name: String,
    /// Its software and version.
    pub software: String,
    /// Whether its key of TLS will be the same when it starts anew.
    pub key_lasts: bool,
    /// Whether sessions of a job can reach each other for collectives.
    pub collectives: bool,
}

impl ServerIdentity {
    pub(super) fn write(&self, writer: &mut Writer) {
        writer.text(&self.name, limits::NAME_BYTES);
        writer.text(&self.software, limits::NAME_BYTES);
        writer.bool(self.key_lasts);
        writer.bool(self.collectives);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        Ok(Self {
            name: reader.text("server name", limits::NAME_BYTES)?,
            software: reader.text("server software", limits::NAME_BYTES)?,
            key_lasts: reader.bool("whether the server's key lasts")?,
            collectives: reader.bool("whether the server offers collectives")?,
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
    /// The server takes encrypted connections only.
    #[error("{}", RejectCode::EncryptionRequired.advice())]
    EncryptionRequired,
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
            Self::EncryptionRequired => RejectCode::EncryptionRequired,
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
    channel: Channel,
    hello: Hash,
    /// Hashes of `Challenge` and `Proof`, once they were exchanged.
    proven: Option<[Hash; 2]>,
    failed: Option<HandshakeError>,
}

impl ClientHandshake {
    /// Begins: the second value is the first frame to send.
    pub fn start(hello: Hello, token: Option<Token>, channel: Channel) -> (Self, Vec<u8>) {
        let versions = hello.versions;
        let frame = Message::Hello(hello).encode();
        (
            Self {
                versions,
                token,
                channel,
                hello: hash(&frame),
                proven: None,
                failed: None,
            },
            frame,
        )
    }

    #[cfg(test)]
    pub(super) fn set_channel(&mut self, channel: Channel) {
        self.channel = channel;
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
                let binding = self.channel.binding();
                let proof = token.prove(Role::Client, &[binding, &self.hello, &challenge]);
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
                        let binding = self.channel.binding();
                        let transcript =
                            [binding, &self.hello, challenge, proof, &welcome_hash(frame)];
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
            // A client encrypts when it has a token.
            RejectCode::EncryptionRequired if self.token.is_none() => HandshakeError::TokenRequired,
            RejectCode::EncryptionRequired => HandshakeError::EncryptionRequired,
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
    /// The client is who it must be: give it what it wants, then [`ServerHandshake::welcome`]. The name of a tenant in it is proven.
    Authenticated(Hello),
}

#[derive(Debug)]
enum ServerState {
    AwaitHello,
    AwaitProof {
        hello: Hello,
        /// `None` for a tenant that is not known: no proof is right then.
        token: Option<Token>,
        hello_hash: Hash,
        challenge: Hash,
    },
    Authenticated {
        proven: Option<(Token, [Hash; 3])>,
        version: u16,
    },
    Failed(HandshakeError),
}

/// The server's side.
#[derive(Debug)]
pub struct ServerHandshake {
    identity: ServerIdentity,
    tenants: Arc<dyn Tenants>,
    channel: Channel,
    nonce: Nonce,
    claimed: Option<String>,
    state: ServerState,
}

impl ServerHandshake {
    /// A server that awaits a `Hello`. `nonce` must be fresh random bytes when tenants are asked for their token.
    pub fn new(
        identity: ServerIdentity,
        tenants: Arc<dyn Tenants>,
        nonce: Nonce,
        channel: Channel,
    ) -> Self {
        Self {
            identity,
            tenants,
            channel,
            nonce,
            claimed: None,
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

    /// The tenant that the client named, which nothing may have proven. For logs.
    pub fn claimed_tenant(&self) -> Option<&str> {
        self.claimed.as_deref()
    }

    /// Whether what the client has proven is the token that its tenant has now: it was asked for one when it said `Hello`.
    pub fn has_proven(&self, token: Option<&Token>) -> bool {
        match &self.state {
            ServerState::Authenticated { proven, .. } => {
                let proven = proven.as_ref();
                proven.is_none_or(|(proven, _)| token == Some(proven))
            }
            _ => false,
        }
    }

    /// The `Welcome` for an authenticated client, with the server's own proof.
    ///
    /// # Panics
    /// Before [`ServerProgress::Authenticated`]: nothing may be granted to a client that has not proven itself.
    pub fn welcome(&self, session: Option<SessionGrant>, snapshot: Vec<u8>) -> Vec<u8> {
        let ServerState::Authenticated { proven, version } = &self.state else {
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
        if let Some((token, [hello, challenge, proof])) = proven {
            let unsigned = Message::Welcome(Box::new(welcome.clone())).encode();
            let binding = self.channel.binding();
            welcome.proof = token.prove(
                Role::Server,
                &[binding, hello, challenge, proof, &welcome_hash(&unsigned)],
            );
        }
        Message::Welcome(Box::new(welcome)).encode()
    }

    fn step(&mut self, frame: &[u8]) -> Result<ServerProgress, HandshakeError> {
        match &self.state {
            ServerState::AwaitHello => self.hello(frame),
            ServerState::AwaitProof {
                hello,
                token,
                hello_hash,
                challenge,
            } => {
                let Message::Proof(Proof { proof }) = Message::decode(frame)? else {
                    return Err(HandshakeError::Unexpected {
                        message: "something else than Proof",
                    });
                };
                let known = token.clone().unwrap_or_else(Token::of_nobody);
                let transcript = [self.channel.binding(), hello_hash, challenge];
                let right = known.verify(Role::Client, &transcript, &proof);
                if !right || token.is_none() {
                    return Err(HandshakeError::TokenWrong);
                }
                let hello = hello.clone();
                let version = common_version(hello.versions)?;
                let proven = Some((known, [*hello_hash, *challenge, hash(frame)]));
                self.state = ServerState::Authenticated { proven, version };
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
        let Message::Hello(mut hello) = Message::decode(frame)? else {
            return Err(HandshakeError::Unexpected {
                message: "something else than Hello",
            });
        };
        self.claimed = Some(hello.tenant.clone());
        if self.channel == Channel::Refused {
            return Err(HandshakeError::EncryptionRequired);
        }
        if !self.tenants.are_asked() {
            self.state = ServerState::Authenticated {
                proven: None,
                version,
            };
            // Nothing has proven it.
            hello.tenant.clear();
            return Ok(ServerProgress::Authenticated(hello));
        }
        let challenge = Message::Challenge(Challenge {
            version,
            nonce: self.nonce,
        })
        .encode();
        self.state = ServerState::AwaitProof {
            token: self.tenants.token(&hello.tenant),
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
