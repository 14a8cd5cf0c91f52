//! Dialling a server: the control connection with its handshake, then the lanes.

use std::io::IoSlice;
use std::sync::Arc;

use towline_transport::{Address, ConnectOptions, Connection, Registry, TransportError};
use towline_wire::control::{
    AttachPreamble, ClientHandshake, ClientProgress, ControlError, HandshakeError, Hello, Message,
    MessageBuffer, NONCE_BYTES, Purpose, Token, TokenError, Welcome, limits,
};
use towline_wire::error::DecodeError;

use crate::link::{Link, Vocabulary};
use crate::peer::Control;
use crate::tuning::tuning;

/// Why there is no session with a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// A message of the control protocol was none.
    #[error("{server} does not speak Towline's protocol: is the port right?")]
    Control {
        /// The server.
        server: String,
        /// What was seen.
        #[source]
        source: ControlError,
    },
    /// The handshake failed.
    #[error("{server} refused the session: {source}")]
    Handshake {
        /// The server.
        server: String,
        /// Why.
        #[source]
        source: HandshakeError,
    },
    /// The server grants no session.
    #[error("{0} welcomed this client but granted no session")]
    NoSession(String),
    /// The dialling thread died; what it said is in the log.
    #[error("the connection attempt failed inside Towline: please report it")]
    Panicked,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// The device list does not decode.
    #[error(
        "{server} sent a device list that does not decode: are both sides of the same version?"
    )]
    Snapshot {
        /// The server.
        server: String,
        /// What was seen.
        #[source]
        source: DecodeError,
    },
    /// Threads could not be started.
    #[error("cannot start the session's threads")]
    Threads(#[source] std::io::Error),
    /// The token file cannot be used.
    #[error("cannot use the token file {path}: {why}")]
    Token {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// The link failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl From<(String, TokenError)> for DialError {
    fn from((path, error): (String, TokenError)) -> Self {
        Self::Token {
            path,
            why: error.to_string(),
        }
    }
}

/// A session that has begun.
pub(crate) struct Dialled {
    pub(crate) link: Arc<Link>,
    pub(crate) control: Arc<Control>,
    /// The server's devices, as the session's API describes them.
    pub(crate) snapshot: Vec<u8>,
}

/// Reads a token file.
pub fn read_token(path: &str) -> Result<Token, DialError> {
    let bytes = std::fs::read(path).map_err(|error| DialError::Token {
        path: path.into(),
        why: error.to_string(),
    })?;
    Token::from_bytes(&bytes).map_err(|error| DialError::from((path.to_string(), error)))
}

/// Begins a session with the server at `address`. Costs one round trip, two with a token; lanes cost none.
pub(crate) fn dial(
    address: &Address,
    token: Option<Token>,
    purpose: Purpose,
    vocabulary: &'static Vocabulary,
) -> Result<Dialled, DialError> {
    let server = address.to_string();
    let transport = Registry::global().get(address.scheme())?;
    let (connection, buffer, welcome) = knock(address, token, purpose)?;
    let Some(grant) = welcome.session else {
        return Err(DialError::NoSession(server));
    };
    let most = grant.limits.max_lanes.clamp(2, limits::LANES);
    let lanes = tuning()
        .payload_lanes
        .unwrap_or(grant.limits.payload_lanes)
        .clamp(1, most - 1);
    let attach = |index: u16| -> Result<Arc<dyn Connection>, DialError> {
        let lane = transport.connect(address, &ConnectOptions::default())?;
        let preamble = AttachPreamble {
            ticket: grant.ticket.clone(),
            lane_index: index,
            lane_count: lanes + 1,
        };
        lane.send(&[IoSlice::new(&preamble.encode())])?;
        Ok(lane)
    };
    let command = attach(0)?;
    let payload = (1..=lanes).map(attach).collect::<Result<Vec<_>, _>>()?;
    let link = Link::start(
        &server,
        command,
        payload,
        grant.limits.chunk_bytes,
        vocabulary,
    )
    .map_err(DialError::Threads)?;
    let control = Control::new(Arc::clone(&connection), address, &grant.peers);
    watch(Arc::clone(&link), connection, buffer, Arc::clone(&control))
        .map_err(DialError::Threads)?;
    Ok(Dialled {
        link,
        control,
        snapshot: welcome.snapshot,
    })
}

/// Opens a control connection: what has come on it beyond the welcome, and the welcome.
pub(crate) fn knock(
    address: &Address,
    token: Option<Token>,
    purpose: Purpose,
) -> Result<(Arc<dyn Connection>, MessageBuffer, Welcome), DialError> {
    let transport = Registry::global().get(address.scheme())?;
    let connection = transport.connect(address, &ConnectOptions::control())?;
    let mut buffer = MessageBuffer::new(limits::SERVER_MESSAGE_BYTES);
    let server = address.to_string();
    let welcome = shake_hands(&*connection, &mut buffer, &server, token, purpose)?;
    Ok((connection, buffer, welcome))
}

fn shake_hands(
    control: &dyn Connection,
    buffer: &mut MessageBuffer,
    server: &str,
    token: Option<Token>,
    purpose: Purpose,
) -> Result<Welcome, DialError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|_| DialError::Random)?;
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        })
        .unwrap_or_else(|| "?".into());
    let hostname = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let hello = Hello::new(purpose, &program, std::process::id(), &hostname, nonce);
    let (mut handshake, first) = ClientHandshake::start(hello, token);
    control.send(&[IoSlice::new(&first)])?;
    loop {
        let frame = next_frame(control, buffer, server)?;
        match handshake
            .receive(&frame)
            .map_err(|source| DialError::Handshake {
                server: server.into(),
                source,
            })? {
            ClientProgress::Send(bytes) => control.send(&[IoSlice::new(&bytes)])?,
            ClientProgress::Done(welcome) => return Ok(*welcome),
        }
    }
}

fn next_frame(
    control: &dyn Connection,
    buffer: &mut MessageBuffer,
    server: &str,
) -> Result<Vec<u8>, DialError> {
    loop {
        let frame = buffer.next_frame().map_err(|source| DialError::Control {
            server: server.into(),
            source,
        })?;
        if let Some(frame) = frame {
            return Ok(frame);
        }
        let mut bytes = [0; 16 << 10];
        let count = control.recv(&mut bytes)?;
        if count == 0 {
            return Err(TransportError::Closed {
                peer: server.into(),
            }
            .into());
        }
        buffer.push(bytes.get(..count).unwrap_or_default());
    }
}

/// Keeps an eye on the control connection: when it ends, so does the session, and its last words say why.
fn watch(
    link: Arc<Link>,
    connection: Arc<dyn Connection>,
    mut buffer: MessageBuffer,
    control: Arc<Control>,
) -> std::io::Result<()> {
    let listened = Arc::clone(&link);
    std::thread::Builder::new()
        .name("towline-control".into())
        .spawn(move || {
            let reason = loop {
                match next_frame(&*connection, &mut buffer, link.name()) {
                    Ok(frame) => match Message::decode(&frame) {
                        Ok(Message::SessionEnded(ended)) => break ended.reason,
                        Ok(message) => control.heard(message),
                        // What this side does not know says nothing about the session's end.
                        Err(_) => {}
                    },
                    Err(error) => break error.to_string(),
                }
            };
            control.ended();
            link.fail(reason);
        })?;
    listened.expect_explanation();
    Ok(())
}
