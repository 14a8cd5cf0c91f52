//! `towline migrate` and `towline drain`: move sessions to another server.

use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Context;
use serde::Serialize;
use towline_client::access::Access;
use towline_transport::Address;

use crate::ask::Server;
use crate::cli::{DrainOptions, MigrateOptions};
use crate::node::print_json;
use crate::{FAILURE, servers};

/// Sessions that a drained server's clients move at once: each sends what its devices hold.
const AT_ONCE: usize = 4;

pub(crate) fn migrate(options: &MigrateOptions) -> anyhow::Result<ExitCode> {
    let id = options.session;
    let (address, access) = servers::choose_one(&options.servers, &format!("session {id}"))?;
    move_one(&address, &access, id, &options.to)
        .with_context(|| format!("session {id} of {address} stays where it is"))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn drain(options: &DrainOptions) -> anyhow::Result<ExitCode> {
    let (address, access) = servers::choose_one(&options.servers, "drain")?;
    let mut server = Server::connect(&address, &access)?;
    server
        .drain()
        .with_context(|| format!("could not drain {address}"))?;
    let sessions = server.status()?.sessions;
    drop(server);
    let Some(to) = &options.to else {
        let sessions = sessions.iter().map(|session| Moved {
            id: session.session_id,
            program: session.program.clone(),
            moved_to: None,
            error: None,
        });
        let drained = Drained::new(&address, sessions.collect());
        drained.tell(options.json)?;
        return Ok(ExitCode::SUCCESS);
    };
    let waiting = Mutex::new(sessions.iter());
    let ended = Mutex::new(Vec::new());
    let next = || waiting.lock().ok().and_then(|mut waiting| waiting.next());
    let work = || {
        while let Some(session) = next() {
            let moved = move_one(&address, &access, session.session_id, to);
            let moved = Moved {
                id: session.session_id,
                program: session.program.clone(),
                moved_to: moved.is_ok().then(|| to.to_string()),
                error: moved.err().map(|error| format!("{error:#}")),
            };
            if !options.json {
                moved.tell(to);
            }
            if let Ok(mut ended) = ended.lock() {
                ended.push(moved);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(sessions.len()) {
            scope.spawn(work);
        }
    });
    let mut ended = ended.into_inner().unwrap_or_default();
    ended.sort_by_key(|moved| moved.id);
    let drained = Drained::new(&address, ended);
    let all_moved = drained.left == 0;
    if options.json || !all_moved {
        drained.tell(options.json)?;
    }
    Ok(match all_moved {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FAILURE),
    })
}

/// A drained server, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Drained {
    server: String,
    /// Sessions that it still had.
    sessions: Vec<Moved>,
    /// Number of those that stay with it to their end.
    left: usize,
}

/// A session of a drained server.
#[derive(Debug, Serialize)]
struct Moved {
    id: u64,
    program: String,
    /// Null if it stays.
    moved_to: Option<String>,
    /// The reason why it could not move.
    error: Option<String>,
}

impl Drained {
    fn new(address: &Address, sessions: Vec<Moved>) -> Self {
        Self {
            server: address.to_string(),
            left: sessions.iter().filter(|one| one.moved_to.is_none()).count(),
            sessions,
        }
    }

    fn tell(&self, json: bool) -> anyhow::Result<()> {
        match json {
            true => print_json(self)?,
            false => say!(
                "{} takes no more sessions, and ends after the last of {}",
                self.server,
                self.left
            ),
        }
        Ok(())
    }
}

impl Moved {
    fn tell(&self, to: &Address) {
        let Self { id, program, .. } = self;
        match &self.error {
            None => say!("session {id} ({program}): moved to {to}"),
            Some(error) => say!("session {id} ({program}): stays: {error}"),
        }
    }
}

fn move_one(address: &Address, access: &Access, id: u64, to: &Address) -> anyhow::Result<()> {
    Server::connect(address, access)?.migrate(id, to)
}
