//! `towline migrate` and `towline drain`: move sessions to another server.

use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Context;
use towline_client::access::Access;
use towline_transport::Address;

use crate::ask::Server;
use crate::cli::{DrainOptions, MigrateOptions};
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
        println!(
            "{address} takes no more sessions, and ends after the last of {}",
            sessions.len()
        );
        return Ok(ExitCode::SUCCESS);
    };
    let waiting = Mutex::new(sessions.iter());
    let failures = Mutex::new(0);
    let next = || waiting.lock().ok().and_then(|mut waiting| waiting.next());
    let work = || {
        while let Some(session) = next() {
            let (id, program) = (session.session_id, &session.program);
            match move_one(&address, &access, id, to) {
                Ok(()) => println!("session {id} ({program}): moved to {to}"),
                Err(error) => {
                    println!("session {id} ({program}): stays: {error:#}");
                    if let Ok(mut failures) = failures.lock() {
                        *failures += 1;
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(sessions.len()) {
            scope.spawn(work);
        }
    });
    Ok(match failures.into_inner().unwrap_or_default() {
        0 => ExitCode::SUCCESS,
        stay => {
            println!("{address} takes no more sessions, and ends after the last of {stay}");
            ExitCode::from(FAILURE)
        }
    })
}

fn move_one(address: &Address, access: &Access, id: u64, to: &Address) -> anyhow::Result<()> {
    Server::connect(address, access)?.migrate(id, to)
}
