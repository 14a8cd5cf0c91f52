//! Proves what virtual machines cost: the same benchmarks natively and in the machines, in turns, and the ratio with its interval.
//!
//! - [`spec`]: what is to be run, and where: a TOML file.
//! - [`benchmark`]: the known benchmarks, their commands, and how their figures are read.
//! - [`facts`]: what the nodes are, and whether two sides may be compared.
//! - [`run`]: runs what is missing and keeps every result as it comes, so that it can be cut off and gone on with.
//! - [`stats`], [`report`], [`plot`]: efficiency, growth with the nodes, the study's figures beside ours.
//! - [`cause`]: why there is less than was hoped for, by looking.
//!
//! Commands are run by a [`Runner`], so that tests can play recorded outputs.

pub mod benchmark;
pub mod cause;
pub mod facts;
pub mod plot;
pub mod report;
pub mod run;
pub mod spec;
pub mod stats;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The two things that are compared.
#[derive(
    Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Hosts without virtual machines
    Native,
    /// Virtual machines
    Vm,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Native, Self::Vm];

    /// What it is called in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Vm => "vm",
        }
    }
}

/// What a command left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Output {
    /// Its exit status; `None` when a signal ended it.
    pub status: Option<i32>,
    /// What it printed.
    pub text: String,
}

/// Runs commands on nodes.
pub trait Runner {
    /// Runs a line of shell on the node that `prefix` leads to; nothing leads to this one.
    ///
    /// # Errors
    ///
    /// When it could not be started, or took longer than `limit`: said for people.
    fn run(&mut self, prefix: &[String], line: &str, limit: Duration) -> Result<Output, String>;
}

/// Runs commands for true: `sh -c LINE` here, and `PREFIX LINE` elsewhere, as `ssh HOST LINE` does.
#[derive(Debug, Default)]
pub struct Shell;

/// More output than any benchmark has.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;
/// How often a command is looked after: it takes seconds and more.
const POLL: Duration = Duration::from_millis(10);

impl Runner for Shell {
    fn run(&mut self, prefix: &[String], line: &str, limit: Duration) -> Result<Output, String> {
        let mut words: Vec<&str> = match prefix {
            [] => vec!["sh", "-c"],
            prefix => prefix.iter().map(String::as_str).collect(),
        };
        words.push(line);
        let (program, arguments) = words.split_first().ok_or("no command")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run {program}: {error}"))?;
        let output = child.stdout.take();
        // Read beside: a child whose pipe is full would never end.
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(output) = output {
                let _ = output.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let deadline = Instant::now() + limit;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    return Ok(Output {
                        status: status.code(),
                        text: reader.join().unwrap_or_default(),
                    });
                }
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
                Ok(None) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("took longer than {} s", limit.as_secs()));
                }
                Err(error) => return Err(format!("cannot wait for {program}: {error}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_run_here_and_behind_a_prefix() {
        let limit = Duration::from_secs(20);
        let here = Shell.run(&[], "echo $((1 + 1)); exit 3", limit).unwrap();
        assert_eq!((here.status, here.text.as_str()), (Some(3), "2\n"));
        let prefix = ["env", "A=5", "sh", "-c"].map(str::to_owned);
        let there = Shell.run(&prefix, "echo \"$A\"", limit).unwrap();
        assert_eq!(there.text, "5\n");
        let error = Shell
            .run(&["/no/such/program".to_owned()], "x", limit)
            .unwrap_err();
        assert!(error.contains("/no/such/program"), "{error}");
    }

    #[test]
    fn a_command_that_hangs_is_ended() {
        let error = Shell
            .run(&[], "exec sleep 1000", Duration::from_millis(50))
            .unwrap_err();
        assert!(error.contains("longer than"), "{error}");
    }
}
