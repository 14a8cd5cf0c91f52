//! Dialling a server: the control connection with its handshake, then the lanes.

use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towline_transport::tls::Fingerprint;
use towline_transport::{
    Address, ConnectOptions, Connection, Registry, TransportError, read_secret,
};
use towline_wire::control::{
    Channel, ClientHandshake, ClientProgress, ControlError, HandshakeError, Hello, LaneKey,
    Message, MessageBuffer, NONCE_BYTES, Purpose, RejectCode, SHOWN_TEXT, Token, TokenError,
    Welcome, limits, printable,
};
use towline_wire::error::DecodeError;

use crate::access::{Access, Secured};
use crate::config::ConfigError;
use crate::link::{Link, Vocabulary};
use crate::peer::Control;
use crate::rejoin::Place;
use crate::tuning::tuning;

/// Why there is no session with a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// The server does not encrypt.
    #[error(
        "{server} does not encrypt; if that is intended, say so with --no-encryption or TOWLINE_NO_ENCRYPTION=1, and else install the same \
         towline release on both"
    )]
    ClearServer {
        /// The server.
        server: String,
    },
    /// A file of settings, or a variable, cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A message of the control protocol was none.
    #[error(
        "{server} does not speak Towline's protocol{}: is the port right?",
        detail(seen)
    )]
    Control {
        /// The server.
        server: String,
        /// What was seen.
        seen: ControlError,
    },
    /// A file of keys or certificates cannot be used.
    #[error("cannot use {path}: {why}")]
    Credentials {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// The handshake failed.
    #[error("{server} refused the session: {}", reason(why))]
    Handshake {
        /// The server.
        server: String,
        /// Why.
        why: HandshakeError,
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
    /// The server has another key than before.
    #[error(
        "{server} has another key than it had before, now {seen}: it is not the same server, or it was set up anew; if that is so, run \
         `towline servers forget {server}`, which removes its line from {file}"
    )]
    ServerKeyChanged {
        /// The server.
        server: String,
        /// The key that it has now.
        seen: Fingerprint,
        /// Where the other one is kept.
        file: String,
    },
    /// The server says nothing.
    #[error(
        "{server} took the connection and then said nothing for {} s: it is stopped or overloaded, or the port belongs to another program",
        limit.as_secs()
    )]
    Silent {
        /// The server.
        server: String,
        /// How long it was waited for.
        limit: Duration,
    },
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
    /// The server says that it is alive and grants nothing.
    #[error("{server} had no worker for this session within {} s: it is overloaded", HANDSHAKE_LIMIT.as_secs())]
    Slow {
        /// The server.
        server: String,
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
    /// Nothing vouches for the server's identity.
    #[error(
        "the key of {server} is not known here: have `towline devices --server {server}` meet it first, or name it among the servers"
    )]
    UnknownServer {
        /// The server.
        server: String,
    },
}

/// The reason why a handshake failed, without the words that say it was refused.
fn reason(why: &HandshakeError) -> String {
    match why {
        HandshakeError::Rejected(reject) => reject.to_string(),
        why => why.to_string(),
    }
}

/// The detail that a message shows, unless it is no message of ours at all.
fn detail(seen: &ControlError) -> String {
    match seen {
        ControlError::BadMagic => String::new(),
        other => format!(" ({other})"),
    }
}

impl From<(String, TokenError)> for DialError {
    fn from((path, error): (String, TokenError)) -> Self {
        Self::Token {
            path,
            why: error.to_string(),
        }
    }
}

/// How long a server may say nothing in the handshake. One that starts a worker says each second that it is alive.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// Pauses before a connection is made again.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(800),
];
/// How long a handshake may take with a server that says so.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(300);

/// When a session asks whether its server is there.
#[derive(Clone, Copy)]
struct Pulse {
    /// Silence after which it asks.
    quiet: Duration,
    /// How long the answer may take.
    patience: Duration,
}

const PULSE: Pulse = Pulse {
    quiet: Duration::from_secs(10),
    patience: Duration::from_secs(15),
};

/// A session that has begun.
pub(crate) struct Dialled {
    pub(crate) link: Arc<Link>,
    pub(crate) control: Arc<Control>,
    /// The server's devices, as the session's API describes them.
    pub(crate) snapshot: Vec<u8>,
    /// Whether its worker reaches those of its job.
    pub(crate) collectives: bool,
}

/// Reads a token file.
pub fn read_token(path: &Path) -> Result<Token, DialError> {
    let shown = || path.display().to_string();
    let secret = read_secret(path, Token::MAX_BYTES + 64);
    let bytes = secret.map_err(|error| DialError::Token {
        path: shown(),
        why: error.to_string(),
    })?;
    Token::from_bytes(&bytes).map_err(|error| DialError::from((shown(), error)))
}

/// Begins a session with the server at `address`. Costs one round trip, two with a token; lanes cost none.
pub(crate) fn dial(
    address: &Address,
    access: &Access,
    purpose: Purpose,
    vocabulary: &'static Vocabulary,
) -> Result<Dialled, DialError> {
    let server = address.to_string();
    let Opened {
        connection,
        buffer,
        welcome,
        lane_key,
    } = knock(address, access, purpose)?;
    let Some(grant) = welcome.session else {
        return Err(DialError::NoSession(server));
    };
    let most = grant.limits.max_lanes.clamp(2, limits::LANES);
    let lanes = tuning()
        .payload_lanes
        .unwrap_or(grant.limits.payload_lanes)
        .clamp(1, most - 1);
    let is_encrypted = lane_key.is_some();
    let place = Arc::new(Place {
        address: address.clone(),
        access: access.clone(),
        session_id: grant.session_id,
        ticket: grant.ticket,
        count: lanes + 1,
        lane_key,
        grace: Duration::from_millis(grant.grace_ms),
        lanes: Mutex::default(),
    });
    let mut opened = match is_encrypted {
        false => (0..=lanes)
            .map(|index| place.open(index))
            .collect::<Result<Vec<_>, _>>()?,
        // Their handshakes take round trips: all at once.
        true => std::thread::scope(|scope| {
            let place = &place;
            let opening: Vec<_> = (0..=lanes)
                .map(|index| scope.spawn(move || place.open(index)))
                .collect();
            let opened = opening
                .into_iter()
                .map(|lane| lane.join().unwrap_or(Err(DialError::Panicked)));
            opened.collect::<Result<Vec<_>, _>>()
        })?,
    };
    let payload = opened.split_off(1);
    let Some(command) = opened.pop() else {
        return Err(DialError::NoSession(server));
    };
    let link = Link::start(
        &server,
        command,
        payload,
        grant.limits.chunk_bytes,
        vocabulary,
    )
    .map_err(DialError::Threads)?;
    let control = Control::new(Arc::clone(&connection), address, &grant.peers);
    watch(&link, connection, buffer, &control, place, PULSE).map_err(DialError::Threads)?;
    Ok(Dialled {
        link,
        control,
        snapshot: welcome.snapshot,
        collectives: grant.collectives,
    })
}

/// A control connection whose handshake is done.
pub struct Opened {
    /// The connection.
    pub connection: Arc<dyn Connection>,
    /// What has come on it beyond the welcome.
    pub buffer: MessageBuffer,
    /// What the server said.
    pub welcome: Welcome,
    /// The key that the lanes of its session must prove to know, where they are encrypted.
    pub lane_key: Option<LaneKey>,
}

/// Opens a control connection; once more, where it was cut before the handshake was done, and three times where the server had too much
/// to do.
pub fn knock(address: &Address, access: &Access, purpose: Purpose) -> Result<Opened, DialError> {
    let options = ConnectOptions::control();
    let mut pauses = PAUSES.iter();
    loop {
        let outcome = knock_within(address, access, purpose, &options, SILENCE_LIMIT);
        let pause = match &outcome {
            Err(DialError::Transport(
                TransportError::Closed { .. } | TransportError::Lost { .. },
            )) => std::mem::take(&mut pauses).next(),
            Err(error) if error.is_refusal(RejectCode::Busy) => pauses.next(),
            _ => None,
        };
        match (&outcome, pause) {
            (Err(error), Some(pause)) => {
                log::debug!("{address}: {error}; once more");
                std::thread::sleep(*pause);
            }
            _ => return outcome,
        }
    }
}

impl DialError {
    /// Whether the server is well, and has no devices for what was asked.
    pub fn is_for_want_of_devices(&self) -> bool {
        self.is_refusal(RejectCode::NoDevice)
    }

    fn is_refusal(&self, code: RejectCode) -> bool {
        let Self::Handshake { why, .. } = self else {
            return false;
        };
        matches!(why, HandshakeError::Rejected(reject) if reject.code == code)
    }
}

/// As [`knock`], with a limit to the server's silence.
pub(crate) fn knock_within(
    address: &Address,
    access: &Access,
    purpose: Purpose,
    options: &ConnectOptions,
    silence: Duration,
) -> Result<Opened, DialError> {
    let transport = Registry::global().get(address.scheme())?;
    let stream = transport.connect(address, options)?;
    let Secured {
        connection,
        channel,
        lane_key,
        unknown,
    } = access.secure(address, stream)?;
    let mut buffer = MessageBuffer::new(limits::SERVER_MESSAGE_BYTES);
    let server = address.to_string();
    let welcome = shake_hands(
        &*connection,
        &mut buffer,
        &server,
        access,
        channel,
        purpose,
        silence,
    )?;
    access.remember(address, unknown, welcome.server.key_lasts);
    Ok(Opened {
        connection,
        buffer,
        welcome,
        lane_key,
    })
}

fn shake_hands(
    control: &dyn Connection,
    buffer: &mut MessageBuffer,
    server: &str,
    access: &Access,
    channel: Channel,
    purpose: Purpose,
    silence: Duration,
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
    let hostname = host_name();
    let mut hello = Hello::new(purpose, &program, std::process::id(), &hostname, nonce)
        .of_tenant(&access.tenant);
    if purpose == Purpose::CudaSession {
        hello = hello.of_job(&access.job);
    }
    let (mut handshake, first) = ClientHandshake::start(hello, access.token.clone(), channel);
    control.send(&[IoSlice::new(&first)])?;
    let deadline = Instant::now() + HANDSHAKE_LIMIT;
    loop {
        let Some(frame) = next_frame(control, buffer, server, silence)? else {
            return Err(DialError::Silent {
                server: server.into(),
                limit: silence,
            });
        };
        match handshake
            .receive(&frame)
            .map_err(|why| DialError::Handshake {
                server: server.into(),
                why,
            })? {
            ClientProgress::Send(bytes) => control.send(&[IoSlice::new(&bytes)])?,
            ClientProgress::Wait if Instant::now() < deadline => {}
            ClientProgress::Wait => {
                return Err(DialError::Slow {
                    server: server.into(),
                });
            }
            ClientProgress::Done(welcome) => return Ok(*welcome),
        }
    }
}

/// The next whole frame; `None` when none has come within `limit`.
pub(crate) fn next_frame(
    control: &dyn Connection,
    buffer: &mut MessageBuffer,
    server: &str,
    limit: Duration,
) -> Result<Option<Vec<u8>>, DialError> {
    let deadline = Instant::now() + limit;
    loop {
        let frame = buffer.next_frame().map_err(|seen| DialError::Control {
            server: server.into(),
            seen,
        })?;
        if frame.is_some() {
            return Ok(frame);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !control.wait_readable(Some(left))? {
            return Ok(None);
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

/// Keeps an eye on the control connection. Its last words say why the session ends; when it ends without, it is dialled anew, and the session
/// ends if that is in vain. A server that does not answer is as good as gone: a stopped one answers nothing, though its host acknowledges
/// every byte.
fn watch(
    link: &Arc<Link>,
    connection: Arc<dyn Connection>,
    buffer: MessageBuffer,
    control: &Arc<Control>,
    place: Arc<Place>,
    pulse: Pulse,
) -> std::io::Result<()> {
    let (watched, asked) = (Arc::clone(link), Arc::clone(control));
    crate::threads::named("towline-control").spawn(move || {
        let (mut connection, mut buffer) = (connection, buffer);
        let reason = loop {
            let is_lost = || watched.lost().is_some();
            let heard = listen(
                &*connection,
                &mut buffer,
                watched.name(),
                &asked,
                pulse,
                is_lost,
            );
            let cut = match heard {
                Silence::Ended(reason) => break reason,
                Silence::Cut(reason) => reason,
            };
            connection.shutdown();
            match place.resume(&cut, || watched.lost().is_some()) {
                Ok(resumed) => (connection, buffer) = resumed,
                Err(reason) => break reason,
            }
            asked.goes_on(Arc::clone(&connection));
        };
        asked.ended();
        match asked.has_left() {
            true => watched.end(reason),
            false => watched.explained(reason),
        }
    })?;
    link.expect_explanation();
    Ok(())
}

/// The reason why nothing more is heard on a control connection.
enum Silence {
    /// The server has ended the session, for this reason.
    Ended(String),
    /// The connection is of no use any more.
    Cut(String),
}

/// Listens until nothing more can be heard.
fn listen(
    connection: &dyn Connection,
    buffer: &mut MessageBuffer,
    server: &str,
    control: &Arc<Control>,
    pulse: Pulse,
    is_lost: impl Fn() -> bool,
) -> Silence {
    let mut asked = false;
    loop {
        let limit = match asked {
            true => pulse.patience,
            false => pulse.quiet,
        };
        match next_frame(connection, buffer, server, limit) {
            Ok(Some(frame)) => {
                asked = false;
                match Message::decode(&frame) {
                    Ok(Message::SessionEnded(ended)) => {
                        return Silence::Ended(printable(&ended.reason, SHOWN_TEXT));
                    }
                    Ok(message) => control.heard(message),
                    // What this side does not know says nothing about the session's end.
                    Err(_) => {}
                }
            }
            // Without this connection the server ends it too.
            Ok(None) if is_lost() => return Silence::Cut("the session is over".into()),
            Ok(None) if !asked => {
                if let Err(error) = control.ping() {
                    return Silence::Cut(error.to_string());
                }
                asked = true;
            }
            Ok(None) => {
                let silence = pulse.quiet + pulse.patience;
                return Silence::Cut(format!(
                    "it has not answered for {} s: it is stopped, or the network between is down",
                    silence.as_secs()
                ));
            }
            Err(error) => return Silence::Cut(error.to_string()),
        }
    }
}

#[cfg(unix)]
fn host_name() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use towline_transport::Transport;
    use towline_transport::memory::MemoryTransport;

    use super::*;

    /// Both ends of a connection of their own.
    fn pair() -> (Arc<dyn Connection>, Arc<dyn Connection>) {
        let network = MemoryTransport::new();
        let address: Address = "memory://server".parse().expect("it is well formed");
        let listener = network.listen(&address).expect("the name is free");
        let ours = network.connect(&address, &ConnectOptions::default());
        let ours = ours.expect("it listens");
        (ours, listener.accept().expect("a connection"))
    }

    fn shake(connection: &dyn Connection) -> Result<Welcome, DialError> {
        let mut buffer = MessageBuffer::new(limits::SERVER_MESSAGE_BYTES);
        let silence = Duration::from_millis(300);
        let purpose = Purpose::Session;
        shake_hands(
            connection,
            &mut buffer,
            "server",
            &Access::default(),
            Channel::Clear,
            purpose,
            silence,
        )
    }

    #[test]
    fn refusal_tells_its_cause_once() {
        let reject = RejectCode::NoDevice.because("no driver");
        let error = DialError::Handshake {
            server: "gpu1".into(),
            why: HandshakeError::Rejected(reject),
        };
        assert_eq!(error.to_string(), "gpu1 refused the session: no driver");
        assert!(std::error::Error::source(&error).is_none());
        assert!(error.is_for_want_of_devices());
        assert!(!DialError::Random.is_for_want_of_devices());
    }

    #[test]
    fn silent_server_is_given_up() {
        let (client, _server) = pair();
        assert!(matches!(shake(&*client), Err(DialError::Silent { .. })));
    }

    #[test]
    fn foreign_greeting_is_refused_at_once() {
        let (client, server) = pair();
        server
            .send(&[IoSlice::new(b"SSH-2.0-OpenSSH_9.2\r\n")])
            .expect("it is read");
        assert!(matches!(shake(&*client), Err(DialError::Control { .. })));
    }

    #[test]
    fn server_that_says_it_is_alive_is_waited_for() {
        let (client, server) = pair();
        let saying = std::thread::spawn(move || {
            for _ in 0..8 {
                let alive = Message::Alive.encode();
                server.send(&[IoSlice::new(&alive)]).expect("it is read");
                std::thread::sleep(Duration::from_millis(100));
            }
            let reject = Message::Reject(RejectCode::Busy.plain()).encode();
            server.send(&[IoSlice::new(&reject)]).expect("it is read");
        });
        assert!(matches!(shake(&*client), Err(DialError::Handshake { .. })));
        saying.join().expect("the server does not panic");
    }

    #[test]
    fn connection_that_is_cut_in_its_handshake_is_made_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let serving = std::thread::spawn(move || {
            let accept = || listener.accept().expect("a connection").0;
            drop(accept());
            let busy = Message::Reject(RejectCode::Busy.plain()).encode();
            let mut second = accept();
            std::io::Write::write_all(&mut second, &busy).expect("it is read");
            second
        });
        let address = address.parse().expect("it is well formed");
        let answered = knock(&address, &Access::default(), Purpose::Query);
        assert!(matches!(answered, Err(DialError::Handshake { .. })));
        serving.join().expect("the server does not panic");
    }

    #[test]
    fn busy_server_is_asked_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let serving = std::thread::spawn(move || {
            let codes = [RejectCode::Busy, RejectCode::Busy, RejectCode::NoDevice];
            codes.map(|code| {
                let mut connection = listener.accept().expect("a connection").0;
                let reject = Message::Reject(code.plain()).encode();
                std::io::Write::write_all(&mut connection, &reject).expect("it is read");
                connection
            })
        });
        let address = address.parse().expect("it is well formed");
        let answered = knock(&address, &Access::default(), Purpose::Query);
        let error = answered.err().expect("it has no device").to_string();
        assert!(error.contains("no usable device"), "{error}");
        serving.join().expect("the server does not panic");
    }

    #[test]
    fn session_with_a_stopped_server_ends() {
        let pulse = Pulse {
            quiet: Duration::from_millis(50),
            patience: Duration::from_millis(50),
        };
        let (client, server) = pair();
        let address = "memory://server".parse().expect("it is well formed");
        let control = Control::new(Arc::clone(&client), &address, &[]);
        let mut buffer = MessageBuffer::new(limits::SERVER_MESSAGE_BYTES);
        let Silence::Cut(reason) =
            listen(&*client, &mut buffer, "server", &control, pulse, || false)
        else {
            panic!("the server said nothing of an end");
        };
        assert!(reason.contains("it is stopped"), "{reason}");
        let ping = Message::Ping.encode();
        let mut asked = vec![0; ping.len()];
        towline_transport::recv_exact(&*server, &mut asked).expect("it was asked");
        assert_eq!(asked, ping);
    }
}
