//! `towline node apply` and `undo`: change a host, and take it back.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use towline_node::Plan;
use towline_node::apply::{self, Applied};
use towline_node::world::{self, LiveWorld, Mortal, World};

use super::{ApplyOptions, UndoOptions, WorldOptions, plan, print_json, tell};

/// What `apply --json` prints.
#[derive(Serialize)]
struct ApplyReport {
    /// In the order in which they were made.
    changes: Vec<String>,
    /// Whether the rest waits for a restart of the host, and for another `apply` after it.
    restart_needed: bool,
}

/// What `undo --json` prints.
#[derive(Serialize)]
struct UndoReport {
    /// Steps that took changes back, in their order.
    changes: Vec<String>,
    /// Changes that were left in place, and why.
    left: Vec<String>,
}

pub(super) fn run(options: &ApplyOptions) -> anyhow::Result<ExitCode> {
    let mut world = live(&options.world)?;
    let _lock = lock(&options.world)?;
    let take = apply::ApplyOptions {
        take: options.take.clone(),
    };
    let mut changes = Vec::new();
    let mut progress = |line: &str| {
        tell(options.json, line);
        changes.push(line.to_owned());
    };
    let applied = match (&options.plan, &options.request) {
        (Some(path), _) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let plan: Plan = serde_json::from_str(&text).with_context(|| {
                format!(
                    "{} is not what `towline node plan --json` writes",
                    path.display()
                )
            })?;
            apply::apply_plan(world.as_mut(), &plan, &take, &mut progress)
        }
        (None, Some(path)) => {
            apply::apply(world.as_mut(), &plan::request(path)?, &take, &mut progress)
        }
        (None, None) => anyhow::bail!("name a request, or a plan with --plan"),
    };
    let applied = applied.context(
        "stopped; `towline node apply` goes on, `towline node undo` takes back what was done",
    )?;
    match applied {
        applied if options.json => print_json(&ApplyReport {
            changes,
            restart_needed: applied == Applied::RestartNeeded,
        })?,
        Applied::Complete => say!("The host is as planned."),
        Applied::RestartNeeded => {
            say!(
                "Restart the host, then apply again: the rest needs what was written for the next start."
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn undo(options: &UndoOptions) -> anyhow::Result<ExitCode> {
    let mut world = live(&options.world)?;
    let _lock = lock(&options.world)?;
    let how = apply::UndoOptions {
        skip_drifted: options.skip_drifted,
    };
    let mut changes = Vec::new();
    let mut progress = |line: &str| {
        tell(options.json, line);
        changes.push(line.to_owned());
    };
    let left = apply::undo(world.as_mut(), how, &mut progress)
        .context("stopped; `towline node undo` goes on from here")?;
    if options.json {
        print_json(&UndoReport { changes, left })?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in &left {
        say!("left: {line}");
    }
    match left.is_empty() {
        true => say!("The host is as it was."),
        false => say!("The host is as it was, but for what is listed here."),
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends with the error's number as status.
pub(super) fn write(path: &Path, at: Option<u16>) -> ExitCode {
    let status = world::write_as_child(path, at, io::stdin().lock());
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}

fn live(options: &WorldOptions) -> anyhow::Result<Box<dyn World>> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let writer = vec![program, "node".into(), "write".into()];
    let limit = Duration::from_secs(options.limit);
    let world = LiveWorld::new(options.root.root(), writer, limit);
    Ok(match options.die_at {
        Some(change) => Box::new(Mortal::new(world, change)),
        None => Box::new(world),
    })
}

fn lock(options: &WorldOptions) -> anyhow::Result<fs::File> {
    match world::lock(&options.root.root()) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            anyhow::bail!("another `towline node apply` or `undo` is running")
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(error).context("cannot lock /var/lib/towline-node: changing a host needs root")
        }
        Err(error) => Err(error).context("cannot lock /var/lib/towline-node"),
        Ok(lock) => Ok(lock),
    }
}
