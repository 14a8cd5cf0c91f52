//! `towline kill`: ends a session.

use std::process::ExitCode;

use anyhow::Context;

use crate::ask::Server;
use crate::cli::KillOptions;
use crate::servers;

pub(crate) fn run(options: &KillOptions) -> anyhow::Result<ExitCode> {
    let id = options.session;
    let (address, access) = servers::choose_one(&options.servers, &format!("session {id}"))?;
    Server::connect(&address, &access)
        .and_then(|mut server| server.kill(id))
        .with_context(|| format!("could not end session {id} of {address}"))?;
    Ok(ExitCode::SUCCESS)
}
