//! Other programs: run with a limit, ended when it is over, and with the process that runs them.

use std::io::{Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use towline_sys::process::tie_to_starter;

use crate::{Error, Result};

/// What is kept of each stream; more is read and thrown away.
const MAX_OUTPUT_BYTES: usize = 256 << 20;

/// How a program ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Ended {
    /// The last words of its errors, for messages of our own.
    pub(crate) fn complaint(&self) -> String {
        let lines: Vec<&str> = self
            .errors
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let last = lines
            .get(lines.len().saturating_sub(4)..)
            .unwrap_or_default();
        match last.is_empty() {
            true => self.status.to_string(),
            false => format!("{}: {}", self.status, last.join(" | ")),
        }
    }
}

/// Runs a program with this input until it ends, at most so long. If this process is killed meanwhile, so is the program.
pub(crate) fn run(command: &mut Command, input: Vec<u8>, limit: Duration) -> Result<Ended> {
    let program = command.get_program().to_string_lossy().into_owned();
    let fail = |reason: String| Error::Tool {
        program: program.clone(),
        reason,
    };
    let mut child = tie_to_starter(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| fail(error.to_string()))?;
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = streams else {
        unreachable!("all three streams are pipes");
    };
    // A program that ends before it has read everything says why by other ways.
    let writer = thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let readers = [
        thread::spawn(move || keep(stdout)),
        thread::spawn(move || keep(stderr)),
    ];
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    let status = loop {
        match child.try_wait().map_err(|error| fail(error.to_string()))? {
            Some(status) => break status,
            None if Instant::now() < deadline => thread::sleep(pause),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(fail(format!("still running after {} s", limit.as_secs())));
            }
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let _ = writer.join();
    let [output, errors] = readers.map(|reader| reader.join().unwrap_or_default());
    Ok(Ended {
        status,
        output,
        errors,
    })
}

fn keep(mut stream: impl Read) -> String {
    let (mut kept, mut chunk) = (Vec::new(), vec![0; 65536]);
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        let room = MAX_OUTPUT_BYTES - kept.len();
        kept.extend_from_slice(&chunk[..count.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_their_input_and_end_in_time() {
        let ended = run(
            &mut Command::new("cat"),
            b"words".to_vec(),
            Duration::from_secs(20),
        )
        .unwrap();
        assert_eq!(ended.output, "words");
        let mut slow = Command::new("sleep");
        let error = run(slow.arg("100"), Vec::new(), Duration::from_millis(20))
            .err()
            .unwrap();
        assert!(error.to_string().contains("still running"));
        assert!(
            run(
                &mut Command::new("/nonexistent"),
                Vec::new(),
                Duration::from_secs(1)
            )
            .is_err()
        );
    }

    #[test]
    fn complaints_are_kept() {
        let mut failing = Command::new("sh");
        let ended = run(
            failing.args(["-c", "echo no good >&2; exit 3"]),
            Vec::new(),
            Duration::from_secs(20),
        )
        .unwrap();
        assert!(ended.complaint().contains("no good") && ended.complaint().contains('3'));
    }
}
