//! A program under `towline run`.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::Pid;
use tempfile::TempDir;

use super::{PATIENCE, Server, holds_within, towline};

/// Takes Towline's and the loaders' variables away from a command.
pub(crate) fn forget_surroundings(command: &mut Command) {
    let ours = |name: &str| {
        ["TOWLINE_", "OCL_ICD_", "OPENCL_", "POCL_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(ours) && name != super::build::BINARIES {
            command.env_remove(name);
        }
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent");
}

/// A program to start.
pub(crate) struct Client {
    command: Command,
    folder: TempDir,
}

/// One that runs.
pub(crate) struct Running {
    child: Child,
    folder: TempDir,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

/// One that has ended.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// Lines of standard output that were not waited for.
    pub(crate) lines: Vec<String>,
    /// Standard error.
    pub(crate) errors: String,
    /// What it left in its temporary folder.
    pub(crate) left_behind: Vec<PathBuf>,
}

impl Client {
    /// A program with the devices of these servers.
    pub(crate) fn new(servers: &[&Server], program: impl AsRef<OsStr>) -> Self {
        let addresses: Vec<&str> = servers.iter().map(|server| server.address()).collect();
        Self::with_options(&["--server", &addresses.join(",")], program)
    }

    /// A program under `towline run` with these options.
    pub(crate) fn with_options(options: &[&str], program: impl AsRef<OsStr>) -> Self {
        let folder = tempfile::tempdir().expect("room for temporary files");
        let part = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).expect("room for a folder");
            path
        };
        let mut command = Command::new(towline());
        forget_surroundings(&mut command);
        // The look at servers beforehand is not what is tested, and would use up what proxies count.
        command.args(["run", "--allow-none"]).args(options);
        command.arg("--").arg(program);
        command
            .env("TMPDIR", part("tmp"))
            .env("XDG_RUNTIME_DIR", part("run"))
            .env("POCL_CACHE_DIR", part("cache"));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self { command, folder }
    }

    /// Arguments of the program.
    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    /// A variable of its environment.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn start(mut self) -> Running {
        let mut child = self.command.spawn().expect("towline is a program");
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            // The test may have heard enough.
            output
                .lines()
                .map_while(Result::ok)
                .all(|line| sender.send(line).is_ok())
        });
        let mut stderr = child.stderr.take().expect("piped");
        let errors = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What came before a failure is what there is.
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let input = child.stdin.take();
        Running {
            child,
            folder: self.folder,
            input,
            lines,
            errors: Some(errors),
        }
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Finished {
        self.start().finish()
    }
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for a line of standard output.
    pub(crate) fn wait_for(&mut self, wanted: &str) {
        self.wait_until(wanted, |line| (line == wanted).then_some(()));
    }

    /// Waits for a line that begins with a word, and gives what follows.
    pub(crate) fn wait_for_word(&mut self, word: &str) -> String {
        self.wait_until(word, |line| {
            let rest = line.strip_prefix(word)?.strip_prefix(' ')?;
            Some(rest.to_owned())
        })
    }

    fn wait_until<T>(&mut self, wanted: &str, found: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left).map(|line| found(&line)) {
                Ok(Some(found)) => return found,
                Ok(None) => {}
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{} does not say {wanted:?}", self.describe())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("{} ended before it said {wanted:?}", self.describe())
                }
            }
        }
    }

    /// Lets the program go on from where it waits for a word.
    pub(crate) fn go_on(&mut self) {
        let input = self.input.as_mut().expect("open until the end");
        if let Err(e) = input.write_all(b"go on\n") {
            panic!("{} does not listen: {e}", self.describe());
        }
    }

    /// Kills it outright.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it was our child");
    }

    /// Waits for its end, and ends what does not end.
    pub(crate) fn finish(mut self) -> Finished {
        drop(self.input.take());
        let child = &mut self.child;
        let mut status = None;
        holds_within(PATIENCE, || {
            status = child.try_wait().expect("it was our child");
            status.is_some()
        });
        let Some(status) = status else {
            panic!("{} does not end", self.describe());
        };
        let errors = self
            .errors
            .take()
            .map(|thread| thread.join().expect("it only reads"));
        Finished {
            status,
            lines: self.lines.iter().collect(),
            errors: errors.unwrap_or_default(),
            left_behind: files_in(&self.folder.path().join("tmp")),
        }
    }

    /// Ends it, and gives what it wrote on standard error.
    fn describe(&mut self) -> String {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let errors = self
            .errors
            .take()
            .map(|thread| thread.join().expect("it only reads"));
        format!(
            "the program (which wrote {:?} on standard error)",
            errors.unwrap_or_default()
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// Its lines, if it ended well.
    pub(crate) fn lines_of_success(self) -> Vec<String> {
        assert!(
            self.status.success(),
            "{}: {:?}\n{}",
            self.status,
            self.lines,
            self.errors
        );
        self.lines
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is ours");
    entries.flatten().map(|entry| entry.path()).collect()
}
