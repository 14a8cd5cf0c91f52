//! Credentials of this process, and what it expects of servers: token and tenant, encryption, keys.
//!
//! Servers make a key of their own, which clients keep in a file as ssh does. The token alone proves that a server knows it; the kept key
//! proves that it is no other holder of the same token.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

pub(crate) use towline_transport::is_trusted;
use towline_transport::tls::{
    Authority, ClientTls, Fingerprint, Identity, MAX_KEY_BYTES, TlsConnection,
};
use towline_transport::{Address, Connection, Registry, TransportError, read_secret};
use towline_wire::control::{
    Channel, HandshakeError, LaneEnd, LaneKey, Message, MessageBuffer, RejectCode,
    SUPPORTED_VERSIONS, Token, labels, limits,
};

use crate::collectives;
use crate::config::{self, Settings};
use crate::dial::DialError;
use crate::private;

/// How long a server may take for a TLS handshake, and again for the proof of a lane.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// A file of known servers that is longer is none.
const FILE_LIMIT: u64 = 16 << 20;

/// How to be let in.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The secret shared with the servers.
    pub token: Option<Token>,
    /// The tenant that the token belongs to; empty where the servers have one token for all.
    pub tenant: String,
    /// The job that CUDA sessions ask for collectives with; empty where they ask for none.
    pub job: String,
    /// Do not encrypt.
    pub no_encryption: bool,
    /// The authority that must have signed servers' certificates. Their names are those of the servers' addresses.
    pub authority: Option<Authority>,
    /// The certificate for servers that ask for one.
    pub identity: Option<Identity>,
    /// Where the keys of servers are kept; without it none are.
    pub known_servers: Option<PathBuf>,
    /// Turn away from servers whose identity nothing vouches for: no key that is kept, no authority.
    pub only_known: bool,
}

/// How to be let in by servers that a session moves to.
pub(crate) type Admission = Arc<dyn Fn(&Address) -> Result<Access, DialError> + Send + Sync>;

impl Access {
    /// As environment and files say for a server, with a token.
    pub fn from_environment(address: &Address, token: Option<Token>) -> Result<Self, DialError> {
        let trusted = is_trusted();
        let given = Settings {
            servers: Some(vec![address.clone()]),
            ..Settings::default()
        };
        let places = config::Places::of_process(trusted);
        let resolved = config::resolve(&given, None, |name| std::env::var_os(name), &places)?;
        let settings = resolved.settings;
        let read = |path: &Option<PathBuf>| path.as_deref().map(read_file).transpose();
        let identity = match (read(&settings.certificate)?, &settings.key) {
            (Some(certificate), Some(key)) => {
                Some(Identity::from_pem(&certificate, &read_key(key)?)?)
            }
            _ => None,
        };
        let authority = read(&settings.ca)?;
        Ok(Self {
            token,
            tenant: settings.tenant.unwrap_or_default(),
            job: collectives::job_of_process(),
            no_encryption: settings.no_encryption.unwrap_or(false),
            authority: authority.map(|pem| Authority::from_pem(&pem)).transpose()?,
            identity,
            known_servers: settings.known_servers.filter(|_| trusted),
            only_known: false,
        })
    }

    /// Makes a control connection ready for its handshake: encrypts it, unless it is to stay clear, and compares the server's key.
    pub(crate) fn secure(
        &self,
        address: &Address,
        stream: Arc<dyn Connection>,
    ) -> Result<Secured, DialError> {
        let over_network = Registry::global()
            .get(address.scheme())?
            .capabilities()
            .over_network;
        let wanted = self.token.is_some() || !address.is_loopback();
        if over_network && self.only_known && self.no_encryption && !address.is_loopback() {
            let server = address.to_string();
            return Err(DialError::UnknownServer { server });
        }
        if !over_network || !wanted || self.no_encryption {
            return Ok(Secured {
                connection: stream,
                channel: Channel::Clear,
                lane_key: None,
                unknown: None,
            });
        }
        let tls = ClientTls {
            authority: self
                .authority
                .clone()
                .map(|authority| (authority, name(address))),
            identity: self.identity.clone(),
        };
        let connection = tls
            .connect(stream, HANDSHAKE_LIMIT)
            .map_err(|error| explain(address, error))?;
        let unknown = self.identify(address, connection.peer_fingerprint())?;
        Ok(Secured {
            channel: Channel::Encrypted(connection.exporter(labels::CONTROL, b"")),
            lane_key: Some(LaneKey::from_bytes(
                connection.exporter(labels::LANE_KEY, b""),
            )),
            connection,
            unknown,
        })
    }

    /// Compares a server's key with the one that is kept; gives it back if none is.
    fn identify(
        &self,
        address: &Address,
        seen: Option<Fingerprint>,
    ) -> Result<Option<Fingerprint>, DialError> {
        // On one host servers come and go, and so do ports that lead elsewhere; a name that an authority vouches for needs no key.
        if self.authority.is_some() || address.is_loopback() {
            return Ok(None);
        }
        let unknown = match (self.known_servers.as_deref(), seen) {
            (Some(file), Some(seen)) => KnownServers { file }.check(address, seen)?,
            (None, seen) => seen,
            (Some(_), None) => None,
        };
        if self.only_known && (self.known_servers.is_none() || unknown.is_some()) {
            let server = address.to_string();
            return Err(DialError::UnknownServer { server });
        }
        Ok(unknown)
    }

    /// Keeps the key of a server that has proven itself, unless it makes another whenever it starts.
    pub(crate) fn remember(&self, address: &Address, unknown: Option<Fingerprint>, lasts: bool) {
        let (Some(seen), true) = (unknown, lasts) else {
            return;
        };
        let why = match self.known_servers.as_deref() {
            None => "there is no home folder".to_owned(),
            Some(file) => match (KnownServers { file }).add(address, seen) {
                Ok(()) => return,
                Err(error) => format!("{}: {error}", file.display()),
            },
        };
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            log::warn!(
                "the key of {address} is not kept ({why}): another server would not be told from it next time; name a file in --known-servers or \
                 TOWLINE_KNOWN_SERVERS"
            );
        });
    }
}

/// A control connection that is ready for its handshake.
pub(crate) struct Secured {
    pub(crate) connection: Arc<dyn Connection>,
    pub(crate) channel: Channel,
    /// The key that the lanes of its session must prove to know, where they are encrypted.
    pub(crate) lane_key: Option<LaneKey>,
    /// The server's key, which is not known yet.
    pub(crate) unknown: Option<Fingerprint>,
}

/// Encrypts a lane behind its preamble, and shows and sees that it belongs to the session.
pub(crate) fn secure_lane(
    stream: Arc<dyn Connection>,
    key: &LaneKey,
    end: LaneEnd,
) -> Result<Arc<dyn Connection>, TransportError> {
    let lane: Arc<TlsConnection> = ClientTls::default().connect(stream, HANDSHAKE_LIMIT)?;
    let binding = lane.exporter(labels::LANE, b"");
    let check = |proof: &_| key.verify(end.other(), &binding, proof);
    lane.exchange_proofs(true, &key.prove(end, &binding), check, HANDSHAKE_LIMIT)?;
    Ok(lane)
}

/// The name that a server's certificate must hold.
fn name(address: &Address) -> String {
    let host = address.host_port().map(|(host, _)| host);
    host.unwrap_or(address.rest()).to_owned()
}

/// What an answer in the clear means: a refusal, by a server that does not encrypt or has no time to; or no Towline server at all.
fn explain(address: &Address, error: TransportError) -> DialError {
    let server = address.to_string();
    let said = match &error {
        TransportError::NotTls { said, .. } => said,
        TransportError::TimedOut { timeout, .. } => {
            let limit = *timeout;
            return DialError::Silent { server, limit };
        }
        _ => return error.into(),
    };
    let mut buffer = MessageBuffer::new(limits::SERVER_MESSAGE_BYTES);
    buffer.push(said);
    let message = buffer
        .next_frame()
        .and_then(|frame| frame.map(|frame| Message::decode(&frame)).transpose());
    match message {
        Ok(Some(Message::Reject(reject))) => {
            let common = reject.versions.newest_common(SUPPORTED_VERSIONS);
            let why = match common {
                None => HandshakeError::VersionMismatch {
                    client: SUPPORTED_VERSIONS,
                    server: reject.versions,
                },
                Some(_) if reject.code == RejectCode::Malformed => {
                    return DialError::ClearServer { server };
                }
                Some(_) => HandshakeError::Rejected(reject),
            };
            DialError::Handshake { server, why }
        }
        Ok(_) => DialError::ClearServer { server },
        Err(seen) => DialError::Control { server, seen },
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, DialError> {
    std::fs::read(path).map_err(|error| unusable(path, &error))
}

fn read_key(path: &Path) -> Result<Vec<u8>, DialError> {
    read_secret(path, MAX_KEY_BYTES).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &std::io::Error) -> DialError {
    DialError::Credentials {
        path: path.display().to_string(),
        why: error.to_string(),
    }
}

/// Where keys of servers are kept when nothing else is said.
pub fn usual_known_servers() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state =
        variable("XDG_STATE_HOME").or_else(|| Some(variable(config::HOME)?.join(".local/state")));
    Some(state?.join("towline/known_servers"))
}

/// The file of keys: a server's address and its key on each line; `#` starts a comment.
#[derive(Clone, Copy, Debug)]
pub struct KnownServers<'a> {
    /// The file.
    pub file: &'a Path,
}

impl KnownServers<'_> {
    /// Compares a key with the one that is kept; gives it back if none is.
    pub fn check(
        &self,
        address: &Address,
        seen: Fingerprint,
    ) -> Result<Option<Fingerprint>, DialError> {
        let text = self.text().map_err(|error| DialError::Credentials {
            path: self.file.display().to_string(),
            why: error.to_string(),
        })?;
        let server = address.to_string();
        let known: Vec<&str> = keys(&text, &server).collect();
        match known.iter().any(|known| known.parse() == Ok(seen)) {
            _ if known.is_empty() => Ok(Some(seen)),
            true => Ok(None),
            false => Err(DialError::ServerKeyChanged {
                server,
                seen,
                file: self.file.display().to_string(),
            }),
        }
    }

    /// Adds the key of a server.
    pub fn add(&self, address: &Address, key: Fingerprint) -> std::io::Result<()> {
        if let Some(folder) = self.file.parent() {
            private::create_folder(folder)?;
        }
        let mut options = private::options();
        options.append(true).create(true);
        // One write, so that lines of processes that begin together do not mix.
        options
            .open(self.file)?
            .write_all(format!("{address} {key}\n").as_bytes())
    }

    /// Removes the keys of a server; says whether there were any.
    pub fn forget(&self, address: &Address) -> std::io::Result<bool> {
        let text = self.text()?;
        let server = address.to_string();
        let mut kept = String::new();
        for line in text.lines().filter(|line| key_of(line, &server).is_none()) {
            // Writing to a string does not fail.
            let _ = writeln!(kept, "{line}");
        }
        let found = keys(&text, &server).next().is_some();
        if found {
            let mut new = self.file.as_os_str().to_owned();
            new.push(".new");
            let mut options = private::options();
            options.write(true).create(true).truncate(true);
            options.open(&new)?.write_all(kept.as_bytes())?;
            std::fs::rename(&new, self.file)?;
        }
        Ok(found)
    }

    fn text(&self) -> std::io::Result<String> {
        let mut text = String::new();
        match File::open(self.file) {
            Ok(file) => file.take(FILE_LIMIT).read_to_string(&mut text)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(text)
    }
}

fn keys<'a>(text: &'a str, server: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| key_of(line, server))
}

/// The key on a line that is this server's.
fn key_of<'a>(line: &'a str, server: &str) -> Option<&'a str> {
    let mut words = line.split('#').next()?.split_whitespace();
    (words.next()? == server).then(|| words.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const FIRST: Fingerprint = Fingerprint([1; 32]);
    const SECOND: Fingerprint = Fingerprint([2; 32]);

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn known_key_passes_and_another_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/known_servers");
        let known = KnownServers { file: &file };
        let (one, other) = (address("gpu1:7140"), address("gpu2:7140"));
        assert_eq!(known.check(&one, FIRST).unwrap(), Some(FIRST));
        known.add(&one, FIRST).unwrap();
        assert_eq!(known.check(&one, FIRST).unwrap(), None);
        let error = known.check(&one, SECOND).unwrap_err().to_string();
        assert!(
            error.contains("towline servers forget tcp://gpu1:7140"),
            "{error}"
        );
        assert_eq!(known.check(&other, SECOND).unwrap(), Some(SECOND));
        known.add(&other, SECOND).unwrap();
        assert!(known.forget(&one).unwrap() && !known.forget(&one).unwrap());
        assert_eq!(known.check(&one, SECOND).unwrap(), Some(SECOND));
        assert_eq!(known.check(&other, SECOND).unwrap(), None);
    }

    #[test]
    fn stranger_is_turned_away_where_only_known_servers_will_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("known_servers");
        let [anyone, known] = [false, true].map(|only_known| Access {
            known_servers: Some(file.clone()),
            only_known,
            ..Access::default()
        });
        let server = address("gpu1:7140");
        assert_eq!(anyone.identify(&server, Some(FIRST)).unwrap(), Some(FIRST));
        let error = known.identify(&server, Some(FIRST)).unwrap_err();
        assert!(error.to_string().contains("is not known here"), "{error}");
        KnownServers { file: &file }.add(&server, FIRST).unwrap();
        assert_eq!(known.identify(&server, Some(FIRST)).unwrap(), None);
        assert!(known.identify(&server, Some(SECOND)).is_err());
        let keeps_none = Access {
            known_servers: None,
            ..known
        };
        assert!(keeps_none.identify(&server, Some(FIRST)).is_err());
        let takes_any = Access::default();
        let seen = takes_any.identify(&server, Some(FIRST)).unwrap();
        assert_eq!(seen, Some(FIRST), "it is warned of");
        assert_eq!(
            keeps_none
                .identify(&address("127.0.0.1:7140"), Some(FIRST))
                .unwrap(),
            None
        );
    }

    #[test]
    fn key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, "secret").unwrap();
        let read_with = |mode| {
            std::fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
            read_key(&key).map_err(|error| error.to_string())
        };
        assert_eq!(read_with(0o600).unwrap(), b"secret");
        let error = read_with(0o644).unwrap_err();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn damaged_line_is_a_changed_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("known_servers");
        std::fs::write(
            &file,
            "# keys\n tcp://gpu1:7140\ntcp://gpu2:7140 zz # ours\n",
        )
        .unwrap();
        let known = KnownServers { file: &file };
        assert!(known.check(&address("gpu1:7140"), FIRST).is_err());
        assert!(known.check(&address("gpu2:7140"), FIRST).is_err());
    }

    #[test]
    fn answer_in_the_clear_is_explained() {
        let explained = |said: &[u8]| {
            let peer = "tcp://gpu1:7140".to_owned();
            let said = said.to_vec();
            explain(&address("gpu1:7140"), TransportError::NotTls { peer, said }).to_string()
        };
        let mut old = RejectCode::Malformed.plain();
        (old.versions.min, old.versions.max) = (1, 1);
        let old = Message::Reject(old).encode();
        assert!(
            explained(&old).contains("the server 1 to 1"),
            "{}",
            explained(&old)
        );
        let busy = Message::Reject(RejectCode::Busy.plain()).encode();
        assert!(explained(&busy).contains("too many connections"));
        assert!(explained(b"HTTP/1.1 400 Bad Request").contains("is the port right"));
        assert!(explained(&old[..9]).contains("does not encrypt"));
    }
}
