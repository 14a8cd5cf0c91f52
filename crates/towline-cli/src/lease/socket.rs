//! `towline lease serve`: leases for a program on this machine, such as a driver of Kubernetes: JSON over a Unix socket, a request and an
//! answer a line. docs/leases-by-socket.md describes it.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use towline_wire::control::{GiveLease, LeasedPart, Priority, TimeShare};

use super::{Pool, cdi, describe, new_nonce};
use crate::cli::{device_word, share};
use crate::tenants::write_new_secret;

/// Of the requests and answers.
const VERSION: u64 = 1;
/// Most devices of a lease, as on the command line.
const DEVICES: u32 = 64;
/// Longest request.
const REQUEST_BYTES: u64 = 64 << 10;
/// Most connections at once.
const CONNECTIONS: usize = 64;
/// Longest time that one may say nothing.
const SILENCE: Duration = Duration::from_secs(10 * 60);
/// After a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// Of a request, which has a `version` and an `id` beside it. Fields that it does not know it does not mind.
#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
enum Command {
    /// The devices of all servers, as `towline devices --json` has them.
    Devices {},
    /// The leases, as `towline lease list --json` has them.
    List {},
    Give(Give),
    Renew {
        name: String,
        /// From now; 0 for no end.
        seconds: u64,
    },
    End {
        name: String,
    },
}

#[derive(Debug, Deserialize)]
struct Give {
    name: String,
    /// So many whole devices, or
    devices: Option<u32>,
    /// so much of one.
    memory_bytes: Option<u64>,
    /// Only these devices.
    #[serde(default)]
    on: Vec<String>,
    #[serde(default)]
    seconds: u64,
    #[serde(default)]
    sessions: u32,
    /// Of the device's time, in percent.
    share: Option<u8>,
    /// As in `--priority`.
    priority: Option<String>,
    /// The token goes into this file, which must not be there, and not into the answer.
    token_file: Option<PathBuf>,
}

/// A connection's place among [`CONNECTIONS`], given back however the connection ends.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves until it is killed.
pub(super) fn serve(socket: &Path, pool: &Pool) -> anyhow::Result<()> {
    let listener = listen(socket)?;
    log::warn!("leases are given at {}", socket.display());
    let connections = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for connection in listener.incoming() {
            let place = Place(&connections);
            if connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS {
                log::warn!("more than {CONNECTIONS} connections; one is closed");
                continue;
            }
            let begun = connection.and_then(|connection| {
                std::thread::Builder::new().spawn_scoped(scope, move || {
                    let _place = place;
                    if let Err(error) = converse(connection, pool) {
                        log::info!("a connection: {error:#}");
                    }
                })
            });
            if let Err(error) = begun {
                // Descriptors or threads may be free again soon.
                log::warn!("could not take a connection: {error}");
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    })
}

/// A socket for this user alone, in the place of one that nobody listens on.
fn listen(socket: &Path) -> anyhow::Result<UnixListener> {
    let action = || format!("could not listen on {}", socket.display());
    let listener = match UnixListener::bind(socket) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            // A file that is no socket refuses connections too.
            let found = std::fs::symlink_metadata(socket).with_context(action)?;
            if !found.file_type().is_socket() {
                bail!("{}: there is a file, and no socket", action());
            }
            let is_left = UnixStream::connect(socket)
                .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
            if !is_left {
                bail!("{}: somebody listens there already", action());
            }
            std::fs::remove_file(socket).with_context(action)?;
            UnixListener::bind(socket)
        }
        bound => bound,
    };
    let listener = listener.with_context(action)?;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(socket, mode).with_context(action)?;
    Ok(listener)
}

fn converse(connection: UnixStream, pool: &Pool) -> anyhow::Result<()> {
    connection.set_read_timeout(Some(SILENCE))?;
    connection.set_write_timeout(Some(SILENCE))?;
    let mut writer = connection.try_clone()?;
    let mut reader = BufReader::new(connection);
    loop {
        let mut line = String::new();
        let count = (&mut reader).take(REQUEST_BYTES).read_line(&mut line)?;
        if count == 0 {
            return Ok(());
        }
        if !line.ends_with('\n') && count as u64 == REQUEST_BYTES {
            bail!("a request of more than {REQUEST_BYTES} bytes");
        }
        let mut answer = answer(&line, pool).to_string();
        answer.push('\n');
        writer.write_all(answer.as_bytes())?;
    }
}

/// The answer to a line: what was asked for, or `error`.
fn answer(line: &str, pool: &Pool) -> Value {
    let (id, command) = parsed(line);
    let done = command.and_then(|command| carry_out(command, pool));
    let mut answer = done.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
    answer["version"] = VERSION.into();
    answer["id"] = id;
    answer
}

/// The `id` of a request, which comes back with a faulty one too, and its command.
fn parsed(line: &str) -> (Value, anyhow::Result<Command>) {
    let request: Value = match serde_json::from_str(line) {
        Ok(request) => request,
        Err(error) => return (Value::Null, Err(error.into())),
    };
    let (id, version) = (request["id"].clone(), &request["version"]);
    let command = match *version == VERSION {
        true => serde_json::from_value(request).map_err(Into::into),
        false => Err(anyhow!("version {version}: this towline knows {VERSION}")),
    };
    (id, command)
}

fn carry_out(command: Command, pool: &Pool) -> anyhow::Result<Value> {
    Ok(match command {
        Command::Devices {} => {
            let (devices, failed) = pool.devices();
            json!({ "devices": devices, "failed": failed })
        }
        Command::List {} => {
            let (leases, failed) = pool.look();
            json!({ "leases": leases, "failed": failed })
        }
        Command::Give(wanted) => give(wanted, pool)?,
        Command::Renew { name, seconds } => json!({ "found": pool.renew(&name, seconds)? }),
        Command::End { name } => json!({ "found": pool.end(&name)? }),
    })
}

fn give(wanted: Give, pool: &Pool) -> anyhow::Result<Value> {
    let part = match (wanted.devices, wanted.memory_bytes) {
        (Some(devices @ 1..=DEVICES), None) => LeasedPart::Whole(devices),
        (Some(_), None) => bail!("`devices` is 1 to {DEVICES}"),
        (None, Some(bytes)) => LeasedPart::Memory(bytes),
        _ => bail!("one of `devices` and `memory_bytes` is needed"),
    };
    let percent = wanted.share.map(|percent| share(&percent.to_string()));
    let percent = percent.transpose().map_err(anyhow::Error::msg)?;
    let priority = match &wanted.priority {
        None => Priority::default(),
        Some(name) => Priority::from_name(name).context("`priority` is unknown")?,
    };
    let time = TimeShare { percent, priority };
    if time != TimeShare::default() && wanted.memory_bytes.is_none() {
        bail!("`share` and `priority` are of a part: `memory_bytes` is needed");
    }
    for word in &wanted.on {
        device_word(word).map_err(anyhow::Error::msg)?;
    }
    pool.check_new(&wanted.name)?;
    let request = GiveLease {
        name: wanted.name,
        nonce: new_nonce()?,
        part,
        on: wanted.on,
        seconds: wanted.seconds,
        sessions: wanted.sessions,
        time,
    };
    let token = pool.token_of(&request).to_text();
    let given = pool.give(&request)?;
    let mut lease = describe(&request.name, &given);
    let told = match &wanted.token_file {
        None => {
            lease["token"] = token.into();
            Ok(())
        }
        Some(file) => hand_over(file, &token, || {
            lease["cdi"] = cdi::specification(&request.name, &given, file)?;
            Ok(())
        }),
    };
    if let Err(error) = told {
        // Nobody could use it.
        return Err(match pool.end(&request.name) {
            Ok(_) => error,
            Err(end) => error.context(format!("the lease stays: {end:#}; nobody has its token")),
        });
    }
    Ok(json!({ "lease": lease }))
}

/// Writes a token into a new file, which goes again where `describe` fails, so that the request can be made again.
fn hand_over(
    file: &Path,
    token: &str,
    describe: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    write_new_secret(file, token)?;
    describe().inspect_err(|_| {
        let _ = std::fs::remove_file(file);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_others_refused() {
        let give =
            r#"{"version":1,"id":7,"command":"give","name":"a","memory_bytes":5,"seconds":60}"#;
        let (id, command) = parsed(give);
        assert_eq!(id, json!(7));
        assert!(matches!(
            command.unwrap(),
            Command::Give(Give {
                memory_bytes: Some(5),
                ..
            })
        ));
        for wrong in [
            "",
            "{}",
            r#"{"version":1}"#,
            r#"{"version":1,"command":"steal"}"#,
            r#"{"version":1,"command":"give"}"#,
            r#"{"version":1,"command":"end"}"#,
            r#"{"version":1,"command":"give","name":"a","devices":-1}"#,
        ] {
            assert!(parsed(wrong).1.is_err(), "{wrong}");
        }
        let (id, command) = parsed(r#"{"version":2,"id":[4],"command":"later"}"#);
        assert_eq!(id, json!([4]));
        assert!(command.unwrap_err().to_string().starts_with("version 2"));
        assert_eq!(
            parsed(r#"{"version":1,"id":3,"command":"steal"}"#).0,
            json!(3)
        );
    }

    #[test]
    fn token_file_goes_where_the_rest_fails() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let error = hand_over(&file, "secret", || bail!("no libraries")).unwrap_err();
        assert!(error.to_string() == "no libraries" && !file.exists());
        hand_over(&file, "secret", || Ok(())).unwrap();
        // One that was there before is somebody's.
        assert!(hand_over(&file, "other", || Ok(())).is_err() && file.exists());
    }

    #[test]
    fn socket_that_was_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("leases.sock");
        let first = listen(&socket).unwrap();
        assert_eq!(
            socket.metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
        let error = format!("{:#}", listen(&socket).unwrap_err());
        assert!(error.contains("somebody listens"), "{error}");
        drop(first);
        listen(&socket).unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(listen(&file).is_err() && file.exists());
    }
}
