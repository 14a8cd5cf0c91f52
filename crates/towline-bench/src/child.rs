//! Child processes: this program again, in an environment of its own, asked line by line; and programs with a time limit.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The program that is running, whatever happened to its file since.
pub(crate) fn this_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("could not find out where this program lies")
}

/// A process that does not outlive this value.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        // SAFETY: between fork and exec only one system call is made, which is safe there.
        unsafe {
            command.pre_exec(|| {
                // Should this program be killed outright, what it started ends with it.
                Ok(end_with_parent()?)
            });
        }
        Self::spawn_plainly(command)
    }

    /// Starts a process that asks for [`end_with_parent`] itself. Nothing runs between fork and exec then, and the
    /// memory of this program need not be copied first, which takes milliseconds where it is large.
    fn spawn_plainly(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.spawn().with_context(|| {
            format!(
                "could not start {}",
                command.get_program().to_string_lossy()
            )
        })?;
        Ok(Self(child))
    }
}

/// Asks that this process ends when its parent does.
pub(crate) fn end_with_parent() -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        // It may end in between; both then say so, and there is nothing left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end, which it must reach within `limit`.
pub(crate) fn output(command: &mut Command, limit: Duration) -> anyhow::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::spawn(command)?;
    let mut stdout = process
        .0
        .stdout
        .take()
        .context("standard output is piped")?;
    let mut stderr = process.0.stderr.take().context("standard error is piped")?;
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).map(|_| text)
    });
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let result = stdout.read_to_end(&mut text).map(|_| text);
        // Nobody waits any more when it took too long.
        let _ = sender.send(result);
    });
    let stdout = match receiver.recv_timeout(limit) {
        Ok(result) => result?,
        // Dropping the process kills it.
        Err(_) => bail!("it did not end within {} s", limit.as_secs()),
    };
    let status = process.0.wait()?;
    let stderr = errors
        .join()
        .map_err(|_| anyhow::anyhow!("its standard error was lost"))??;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// A child that answers each line of JSON with one.
pub(crate) struct Asked {
    process: Process,
    requests: Option<ChildStdin>,
    replies: Receiver<std::io::Result<String>>,
}

impl Asked {
    /// Starts a process that ends by itself when its standard input does, and calls [`end_with_parent`].
    pub(crate) fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn_plainly(command)?;
        let requests = process.0.stdin.take();
        let stdout = process
            .0
            .stdout
            .take()
            .context("standard output is piped")?;
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            process,
            requests,
            replies,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask<R: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        limit: Duration,
    ) -> anyhow::Result<R> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        let written = match &mut self.requests {
            Some(pipe) => pipe.write_all(line.as_bytes()),
            None => bail!("the process was told to end"),
        };
        if written.is_err() {
            return Err(self.gone());
        }
        match self.replies.recv_timeout(limit) {
            Ok(line) => {
                let line = line?;
                serde_json::from_str(&line).with_context(|| format!("unexpected answer: {line}"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
            Err(RecvTimeoutError::Timeout) => {
                bail!("no answer within {} s", limit.as_secs())
            }
        }
    }

    /// Lets the process end in its own way, for a while.
    pub(crate) fn end(mut self, limit: Duration) -> anyhow::Result<()> {
        self.requests = None;
        match self.replies.recv_timeout(limit) {
            Err(RecvTimeoutError::Disconnected) => Ok(()),
            Ok(_) => Ok(()),
            Err(RecvTimeoutError::Timeout) => bail!("did not end within {} s", limit.as_secs()),
        }
    }

    fn gone(&mut self) -> anyhow::Error {
        match self.process.0.wait() {
            Ok(status) => anyhow::anyhow!("the process ended ({status})"),
            Err(error) => anyhow::anyhow!("the process ended: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_of_a_program_arrive() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let output = output(&mut command, Duration::from_secs(10)).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            (&output.stdout[..], &output.stderr[..]),
            (&b"out\n"[..], &b"err\n"[..])
        );
    }

    #[test]
    fn program_that_hangs_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let error = output(&mut command, Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
    }

    #[test]
    fn child_that_ends_is_no_endless_wait() {
        let mut asked = Asked::spawn(&mut Command::new("true")).unwrap();
        let answer: anyhow::Result<u32> = asked.ask(&1, Duration::from_secs(10));
        assert!(answer.unwrap_err().to_string().contains("ended"));
    }
}
