//! `towline kill`: ends a session.

use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::ask::Server;
use crate::cli::KillOptions;
use crate::servers;

pub(crate) fn run(options: &KillOptions) -> anyhow::Result<ExitCode> {
    let chosen = servers::choose(&options.servers)?;
    let access = servers::access(&chosen.settings)?;
    let id = options.session;
    // Numbers of sessions mean something on their server alone.
    let [address] = chosen.servers.as_slice() else {
        bail!(
            "session {id} of which of {} servers ({})? name one with --server",
            chosen.servers.len(),
            chosen.origin
        );
    };
    Server::connect(address, &access)
        .and_then(|mut server| server.kill(id))
        .with_context(|| format!("could not end session {id} of {address}"))?;
    Ok(ExitCode::SUCCESS)
}
