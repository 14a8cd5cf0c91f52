//! `towline top` as a person sees it: in a terminal of 80 columns by 24 lines, which tmux keeps. And `towline kill`, which does the same
//! for scripts.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::support::{
    Client, PATIENCE, Running, Server, forget_surroundings, holds_within, opencl_program, towline,
};

/// A shell in a terminal.
struct Terminal {
    folder: TempDir,
}

impl Terminal {
    /// `None`, and why, where there is no tmux.
    fn open() -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("skipped: no tmux: run `scripts/setup test`");
            return None;
        }
        let folder = tempfile::tempdir().expect("room for temporary files");
        let terminal = Self { folder };
        let mut command = terminal.tmux();
        command.args([
            "-f",
            "/dev/null",
            "-u",
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
            "sh",
        ]);
        forget_surroundings(&mut command);
        command.env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        assert!(command.status().expect("tmux is installed").success());
        terminal.wait_until("a prompt", |shown| !shown.trim().is_empty());
        Some(terminal)
    }

    fn tmux(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.path().join("socket"));
        command
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let output = self.tmux().args(arguments).output();
        let output = output.expect("tmux is installed").stdout;
        String::from_utf8_lossy(&output).into_owned()
    }

    fn press(&self, key: &str) {
        self.ask(&["send-keys", key]);
    }

    fn run(&self, command: &str) {
        self.ask(&["send-keys", "-l", command]);
        self.press("Enter");
    }

    fn shown(&self) -> String {
        self.ask(&["capture-pane", "-p"])
    }

    fn wait_until(&self, wanted: &str, condition: impl Fn(&str) -> bool) {
        let came = holds_within(PATIENCE, || condition(&self.shown()));
        assert!(came, "{wanted} does not come:\n{}", self.shown());
    }

    fn wait_for(&self, text: &str) {
        self.wait_until(text, |shown| shown.contains(text));
    }

    /// The shell has its own screen again, and lines with their echo.
    fn is_sane(&self) {
        self.wait_until("the shell's screen", |_| {
            self.ask(&["display-message", "-p", "#{alternate_on}"])
                .trim()
                == "0"
        });
        self.run("clear; stty -a");
        self.wait_until("echo and lines", |shown| {
            [" icanon", " echo "]
                .iter()
                .all(|word| shown.contains(word))
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.ask(&["kill-server"]);
    }
}

const DEVICE: [&str; 6] = ["--backend", "off", "--cuda", "soft", "--soft-memory", "1G"];

/// A program with a session that does nothing until it ends.
fn idle(server: &Server) -> Running {
    let client = Client::new(&[server], opencl_program("cuda_takes")).args(&["1"]);
    let mut running = client.start();
    running.wait_for_word("has");
    running
}

/// A program whose session was killed: it is told why.
fn is_told(mut running: Running) {
    running.go_on();
    let finished = running.finish();
    assert!(!finished.status.success());
    assert!(
        finished
            .errors
            .contains("was ended with `towline kill` on "),
        "{}",
        finished.errors
    );
}

#[test]
fn session_is_watched_and_killed_from_top() {
    let Some(terminal) = Terminal::open() else {
        return;
    };
    let server = Server::start_with(&DEVICE, &[]);
    let program = idle(&server);
    let towline = towline();
    let (towline, address) = (towline.display(), server.address());
    terminal.run(&format!(
        "{towline} top --interval 1 --server {address}; echo code $?"
    ));
    terminal.wait_for("cuda_takes");
    let shown = terminal.shown();
    for word in ["1 session", "BUSY%", "MEMORY", "1.0 MiB", "? help"] {
        assert!(shown.contains(word), "no {word} in\n{shown}");
    }
    terminal.press("k");
    terminal.wait_for("end session 1 of ");
    terminal.press("y");
    terminal.wait_until("the end of the session", |shown| {
        shown.contains("no sessions") && !shown.contains("cuda_takes")
    });
    is_told(program);
    terminal.press("q");
    terminal.wait_for("code 0");
    terminal.is_sane();
}

#[test]
fn top_gives_terminal_back_on_signal() {
    let Some(terminal) = Terminal::open() else {
        return;
    };
    let server = Server::start_with(&DEVICE, &[]);
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let hangs = silent.local_addr().expect("it is bound");
    let file = terminal.folder.path().join("pid");
    let towline = towline();
    for (signal, code) in [(Signal::TERM, "code 143"), (Signal::INT, "code 130")] {
        terminal.run(&format!(
            "sh -c 'echo $$ > {}; exec {} top --server {},{hangs}'; echo code $?",
            file.display(),
            towline.display(),
            server.address()
        ));
        terminal.wait_until("both servers", |shown| {
            shown.contains("no answer yet") && shown.contains("0/32")
        });
        let pid = std::fs::read_to_string(&file).expect("the shell wrote it");
        let pid = Pid::from_raw(pid.trim().parse().expect("a number")).expect("not 0");
        rustix::process::kill_process(pid, signal).expect("it runs");
        terminal.wait_for(code);
        terminal.is_sane();
    }
}

#[test]
fn top_ends_with_its_terminal() {
    let server = Server::start_with(&DEVICE, &[]);
    let folder = tempfile::tempdir().expect("room for temporary files");
    let file = folder.path().join("pid");
    // The second is not told: its terminal is all it has.
    for before in ["", "trap '' HUP; "] {
        let Some(terminal) = Terminal::open() else {
            return;
        };
        terminal.run(&format!(
            "sh -c \"{before}echo \\$\\$ >{}; exec {} top --server {}\"",
            file.display(),
            towline().display(),
            server.address()
        ));
        terminal.wait_for("0/32");
        let pid = std::fs::read_to_string(&file).expect("the shell wrote it");
        drop(terminal);
        let line = format!("/proc/{}/cmdline", pid.trim());
        // Nobody may have asked for its status yet.
        let is_over = || std::fs::read(&line).is_ok_and(|line| line.is_empty());
        let ended = holds_within(PATIENCE, || is_over() || !Path::new(&line).exists());
        assert!(ended, "process {pid} still runs, {before:?}");
    }
}

#[test]
fn kill_ends_session_for_scripts() {
    let server = Server::start_with(&DEVICE, &[]);
    let program = idle(&server);
    let kill = || {
        let mut command = Command::new(towline());
        forget_surroundings(&mut command);
        let output = command
            .args(["kill", "1", "--server", server.address()])
            .output();
        output.expect("towline is a program")
    };
    let killed = kill();
    assert!(killed.status.success(), "{killed:?}");
    is_told(program);
    let again = kill();
    let errors = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(125));
    assert!(errors.contains("there is no session 1"), "{errors}");
}
