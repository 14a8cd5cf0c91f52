//! The tenants file of a running server, which follows it and keeps its leases in it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use towline_server::supervisor::{LeaseChange, LeaseChooser, LeaseStore, Supervisor, TenantEntry};
use towline_wire::control::Priority;

use super::{Bytes, Entry, ID_BYTES, Moment, Store, check, check_name, load, random_text};

/// Follows a tenants file, and changes it for leases. Who changes the file or takes its entries over does so alone: entries from before
/// a change never reach the server behind those from after it.
#[derive(Debug)]
pub(crate) struct Follower {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Result of the last read.
    taken: Stamp,
    /// State at the last look.
    seen: Stamp,
}

/// Identity of a file's state; `None` if the file is missing.
type Stamp = Option<[i64; 7]>;

impl Follower {
    /// Reads the file for the first time.
    pub(crate) fn start(file: &Path) -> anyhow::Result<(Self, BTreeMap<String, TenantEntry>)> {
        let taken = stamp(file);
        let entries = load(file)?;
        let follower = Self {
            file: file.to_owned(),
            state: Mutex::new(State { taken, seen: taken }),
        };
        Ok((follower, entries))
    }

    /// Looks for changes, which the server takes over. To be called several times a second.
    pub(crate) fn look(&self, supervisor: &Supervisor) {
        self.look_with(|entries| {
            log::info!("{} tenants in {}", entries.len(), self.file.display());
            supervisor.set_tenants(entries);
        });
        supervisor.end_expired();
    }

    /// Hands the tenants on, if they have changed. A file that cannot be used is told of once.
    pub(super) fn look_with(&self, take: impl FnOnce(BTreeMap<String, TenantEntry>)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(&self.file);
        // An editor may be writing it: it has to be the same at two looks.
        let settled = std::mem::replace(&mut state.seen, now) == now;
        if !settled || now == state.taken {
            return;
        }
        state.taken = now;
        match load(&self.file) {
            Ok(entries) => take(entries),
            Err(error) => log::error!("{error:#}; the tenants stay as they were"),
        }
    }

    fn change(
        &self,
        change: &mut LeaseChooser<'_>,
        take: &dyn Fn(BTreeMap<String, TenantEntry>),
    ) -> anyhow::Result<Result<(), String>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut store = Store::open(&self.file, false)?;
        let changes = match change(&check(&store.entries)?) {
            Ok(changes) if changes.is_empty() => return Ok(Ok(())),
            Ok(changes) => changes,
            Err(reason) => return Ok(Err(reason)),
        };
        for change in changes {
            match change {
                LeaseChange::Add(name, entry) => {
                    if let Err(error) = check_name(&name) {
                        return Ok(Err(format!("{error:#}")));
                    }
                    store.entries.insert(name, Entry::of_lease(&entry)?);
                }
                LeaseChange::Renew(name, until) => store.find(&name)?.until = until.map(Moment),
                LeaseChange::Remove(name) => {
                    store.entries.remove(&name);
                }
            }
        }
        store.save()?;
        let now = stamp(&self.file);
        (state.taken, state.seen) = (now, now);
        take(check(&store.entries)?);
        Ok(Ok(()))
    }
}

impl LeaseStore for Follower {
    fn change(
        &self,
        change: &mut LeaseChooser<'_>,
        take: &dyn Fn(BTreeMap<String, TenantEntry>),
    ) -> Result<(), String> {
        self.change(change, take).unwrap_or_else(|error| {
            let file = self.file.display();
            log::error!("could not change the tenants file {file}: {error:#}");
            // A path is the operator's to know.
            Err("the server could not change its file of tenants; its log says why".into())
        })
    }
}

impl Entry {
    fn of_lease(entry: &TenantEntry) -> anyhow::Result<Self> {
        Ok(Self {
            id: random_text::<ID_BYTES>()?,
            token: entry.token.to_text(),
            sessions: entry.limits.sessions,
            memory: entry.limits.memory.map(Bytes),
            until: entry.limits.until.map(Moment),
            devices: entry.devices.clone(),
            share: entry.limits.time.percent,
            priority: (entry.limits.time.priority != Priority::default())
                .then(|| entry.limits.time.priority.name().to_owned()),
            lease: true,
            ..Self::default()
        })
    }
}

fn stamp(file: &Path) -> Stamp {
    let found = file.metadata().ok()?;
    Some([
        found.dev() as i64,
        found.ino() as i64,
        found.size() as i64,
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    ])
}
