//! The audit log: one line of JSON for each session that begins, is killed, is asked to move and ends, for leases that are given and ended, for
//! a drain on request, and for refusals, in a file that is only ever appended to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::lock;

/// What is told of.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    /// A session was admitted.
    SessionStarted {
        session: u64,
        tenant: &'a str,
        api: &'static str,
        program: &'a str,
        host: &'a str,
        client_pid: u32,
        address: &'a str,
        worker_pid: u32,
        /// Its job, where it has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        job: Option<&'a str>,
    },
    /// A session has ended.
    SessionEnded {
        session: u64,
        tenant: &'a str,
        program: &'a str,
        address: &'a str,
        seconds: f64,
        received_bytes: u64,
        sent_bytes: u64,
        calls: u64,
        device_memory_peak: u64,
        /// For which its work kept devices busy.
        device_seconds: f64,
        crashed: bool,
        /// Why, where it was not its client's wish.
        reason: Option<&'a str>,
    },
    /// A client has ended a session on request.
    SessionKilled {
        session: u64,
        /// The session's.
        tenant: &'a str,
        by_tenant: &'a str,
        /// As the client gave it.
        by_host: &'a str,
        by_pid: u32,
        by_address: &'a str,
    },
    /// A client has asked for a checkpoint of a session.
    SessionCheckpointed {
        session: u64,
        /// The session's.
        tenant: &'a str,
        /// On the machine of the session's client.
        folder: &'a str,
        /// The reason why it goes on without.
        failure: Option<&'a str>,
        by_tenant: &'a str,
        /// As the client gave it.
        by_host: &'a str,
        by_pid: u32,
        by_address: &'a str,
    },
    /// A client has asked for a session to move.
    SessionMigrated {
        session: u64,
        /// The session's.
        tenant: &'a str,
        to: &'a str,
        /// The reason why it stayed.
        failure: Option<&'a str>,
        by_tenant: &'a str,
        /// As the client gave it.
        by_host: &'a str,
        by_pid: u32,
        by_address: &'a str,
    },
    /// An admin has given a lease, or been told of it again.
    LeaseGiven {
        /// The lease's.
        tenant: &'a str,
        devices: &'a [String],
        /// Bytes of one device; none where devices are whole.
        device_memory: Option<u64>,
        /// Of the device's time, in percent.
        share: Option<u8>,
        priority: &'a str,
        /// Seconds since 1970.
        until_s: Option<u64>,
        by_tenant: &'a str,
        /// As the client gave it.
        by_host: &'a str,
        by_address: &'a str,
    },
    /// An admin has ended a lease.
    LeaseEnded {
        tenant: &'a str,
        by_tenant: &'a str,
        /// As the client gave it.
        by_host: &'a str,
        by_address: &'a str,
    },
    /// A client has drained the server.
    ServerDrained {
        by_tenant: &'a str,
        /// As the client gave it.
        by_host: &'a str,
        by_pid: u32,
        by_address: &'a str,
    },
    /// Connections were refused: those of a period in one line.
    Refused {
        count: u64,
        last: &'a str,
        /// The tenant that the last one named, which nothing may have proven.
        tenant: Option<&'a str>,
    },
}

#[derive(Serialize)]
struct Line<'a> {
    /// Milliseconds since 1970.
    time_ms: u64,
    #[serde(flatten)]
    event: &'a Event<'a>,
}

/// See the module's text.
pub(super) struct Audit {
    path: PathBuf,
    file: Mutex<File>,
}

impl Audit {
    /// Opens the file, which is made for its owner alone.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(open(path)?),
        })
    }

    /// Writes a line. What cannot be written is told in the server's log.
    pub(super) fn tell(&self, event: &Event<'_>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let line = Line {
            time_ms: now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX)),
            event,
        };
        let mut file = lock(&self.file);
        let written = self.follow(&mut file).and_then(|()| {
            let mut bytes = serde_json::to_vec(&line)?;
            bytes.push(b'\n');
            file.write_all(&bytes)
        });
        if let Err(error) = written {
            log::error!(
                "could not write to the audit log {}: {error}: {event:?}",
                self.path.display()
            );
        }
    }

    /// Opens the file anew where what has its name is another: log rotation renames it.
    fn follow(&self, file: &mut File) -> io::Result<()> {
        let held = file.metadata()?;
        let same = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino()));
        if !same {
            *file = open(&self.path)?;
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn lines_are_appended_and_follow_the_name_when_the_file_is_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("audit"), folder.path().join("audit.1"));
        let audit = Audit::open(&path).unwrap();
        let refused = |count| Event::Refused {
            count,
            last: "192.0.2.1:5: \"no\"\n",
            tenant: None,
        };
        audit.tell(&refused(1));
        std::fs::rename(&path, &old).unwrap();
        audit.tell(&refused(2));
        audit.tell(&refused(3));
        let counts = |path: &Path| {
            lines(path)
                .iter()
                .map(|line| line["count"].as_u64().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!((counts(&old), counts(&path)), (vec![1], vec![2, 3]));
        assert_eq!(lines(&path)[0]["event"], "refused");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn drain_is_told_with_who_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let drained = Event::ServerDrained {
            by_tenant: "operators",
            by_host: "desk",
            by_pid: 7,
            by_address: "192.0.2.1:5",
        };
        Audit::open(&path).unwrap().tell(&drained);
        let line = &lines(&path)[0];
        assert_eq!(line["event"], "server_drained");
        assert_eq!(line["by_tenant"], "operators");
        assert_eq!(line["by_address"], "192.0.2.1:5");
    }

    #[test]
    fn link_in_the_place_of_the_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).unwrap();
        assert!(Audit::open(&path).is_err());
    }
}
