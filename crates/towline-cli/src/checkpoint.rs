//! `towline checkpoint`, and `towline run --restore`: a program's session leaves its server for a folder, and comes back from there.

use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use towline_checkpoint::Folder;
use towline_checkpoint::message::{Answer, INVITATION, Restore};

use crate::ask::Server;
use crate::cli::{CheckpointOptions, RunOptions};
use crate::servers;
use crate::trace::{could_not_run, exit_code};

/// Time between two looks for an answer.
const LOOK: Duration = Duration::from_millis(20);
/// Longest time for a held program to see that it is to go on: it looks ten times a second.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn checkpoint(options: &CheckpointOptions) -> anyhow::Result<ExitCode> {
    let id = options.session;
    let (address, access) = servers::choose_one(&options.servers, &format!("session {id}"))?;
    let path = std::path::absolute(&options.out)
        .with_context(|| format!("could not find {}", options.out.display()))?;
    let name = path.to_str().context("the folder's path is no text")?;
    let mut server = Server::connect(&address, &access)?;
    let sessions = server.status()?.sessions;
    let session = sessions.iter().find(|session| session.session_id == id);
    let host = rustix::system::uname();
    let is_here =
        session.is_some_and(|session| session.hostname.as_bytes() == host.nodename().to_bytes());
    let folder = match is_here {
        true => Some(invited(&path, options.encrypt)?),
        false => None,
    };
    let outcome = server.checkpoint(id, name);
    // A later checkpoint needs one of its own, also if the program has not taken this one.
    if let Some(folder) = folder {
        folder.remove(INVITATION)?;
    }
    outcome.with_context(|| format!("session {id} of {address} goes on, without a checkpoint"))?;
    say!("session {id} is held in {name}; `towline run --restore {name}` has it go on");
    Ok(ExitCode::SUCCESS)
}

fn invited(path: &Path, is_encrypted: bool) -> anyhow::Result<Folder> {
    let folder = Folder::make(path)?;
    folder.invite(is_encrypted)?;
    Ok(folder)
}

pub(crate) fn restore(folder: &Path, options: &RunOptions) -> anyhow::Result<ExitCode> {
    let path = std::path::absolute(folder)
        .with_context(|| format!("could not find {}", folder.display()))?;
    let servers = servers::named(&options.servers)?;
    if !path.try_exists().unwrap_or(true) {
        bail!("no checkpoint is in {}: it is not there", path.display());
    }
    let folder = Folder::open(&path)?;
    let Some(alone) = folder.restoring()? else {
        bail!("another command restores {} now", path.display());
    };
    let Some(held) = folder.held()? else {
        bail!("no program is held for {}", path.display());
    };
    let mut child = match options.program.split_first() {
        Some((program, arguments)) => match Command::new(program).args(arguments).spawn() {
            Ok(child) => Some(child),
            Err(error) => return Ok(could_not_run(program, &error)),
        },
        None => None,
    };
    let wish = Restore {
        id: number_of_now(),
        servers: servers.iter().map(ToString::to_string).collect(),
    };
    folder.ask(&wish)?;
    let answered = wait_for_answer(&folder, &wish.id, child.as_mut());
    if answered.is_err() {
        folder.take_back()?;
    }
    // The program may be held again while this waits for its end.
    drop(alone);
    match answered?.outcome {
        Ok(server) => eprintln!("towline: {} goes on with {server}", held.program),
        Err(reason) => bail!("{} is still held: {reason}", held.program),
    }
    let Some(mut child) = child else {
        return Ok(ExitCode::SUCCESS);
    };
    let status = child.wait().context("could not wait for the program")?;
    Ok(exit_code(status))
}

/// Waits for the held program's answer, as long as it may come.
fn wait_for_answer(
    folder: &Folder,
    id: &str,
    mut child: Option<&mut Child>,
) -> anyhow::Result<Answer> {
    let mut asked = Instant::now();
    loop {
        if let Some(answer) = folder.take_answer(id)? {
            return Ok(answer);
        }
        if let Some(running) = &mut child {
            match running
                .try_wait()
                .context("could not wait for the program")?
            {
                // It takes its time to bring the program back.
                None if folder.is_asking() => asked = Instant::now(),
                None => {}
                Some(status) if status.success() => child = None,
                Some(status) if folder.take_back()? => {
                    bail!("the command has failed ({status}); nothing was restored")
                }
                // The program has taken the wish, and answers.
                Some(_) => child = None,
            }
        }
        if folder.is_asking() {
            if asked.elapsed() >= PATIENCE && folder.take_back()? {
                bail!(
                    "no program answers for {} within {} s: it has ended, or is on another machine, and held.toml is of no use any more",
                    folder.path().display(),
                    PATIENCE.as_secs()
                );
            }
        } else if folder.lock().unwrap_or(false) {
            // Its process had the lock from before it took the wish until it had answered.
            let answer = folder.take_answer(id)?;
            return answer.context("no answer came; see the program's log");
        }
        std::thread::sleep(LOOK);
    }
}

/// A text that no earlier wish has.
fn number_of_now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |now| now.as_nanos());
    format!("{}-{nanoseconds}", std::process::id())
}
