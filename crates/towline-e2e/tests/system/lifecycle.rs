//! A server's configuration file, what it takes over while it runs, and its orderly end.

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::support::{Client, PATIENCE, Running, Server, holds_within, opencl_program};

/// A server with a file of options, which a test can change.
struct Configured {
    folder: TempDir,
}

impl Configured {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("room for temporary files");
        let configured = Self { folder };
        configured.write(text);
        configured
    }

    fn write(&self, text: &str) {
        let devices = "backend = \"null\"\ncuda = \"soft\"\n";
        std::fs::write(self.path(), format!("{devices}{text}")).expect("room for a file");
    }

    fn path(&self) -> String {
        let path = self.folder.path().join("server.toml");
        path.to_str().expect("plain letters").to_owned()
    }

    fn serve(&self) -> Server {
        Server::start_with(&["--config", &self.path()], &[])
    }
}

fn signal(server: &Server, signal: Signal) {
    kill_process(server.pid(), signal).expect("it runs");
}

fn says_within(server: &Server, part: &str) -> bool {
    holds_within(PATIENCE, || server.log().contains(part))
}

/// A program with a session that does nothing until the test says so.
fn idle(server: &Server) -> Running {
    let program = Client::new(&[server], opencl_program("cuda_takes")).args(&["1"]);
    let mut running = program.start();
    running.wait_for_word("has");
    running
}

#[test]
fn server_waits_for_sessions_and_refuses_new_ones() {
    let configured = Configured::new("drain-time = 600\n");
    let mut server = configured.serve();
    let mut running = idle(&server);
    signal(&server, Signal::TERM);
    assert!(says_within(&server, "waiting for 1 session to end"));
    let refused = Client::new(&[&server], opencl_program("list")).run();
    assert_eq!(refused.lines, ["status -1, 0 devices"]);
    assert!(
        refused.errors.contains("shutting down"),
        "{}",
        refused.errors
    );
    running.go_on();
    running.wait_for("freed");
    running.go_on();
    running.finish().lines_of_success();
    assert!(server.ends_well(), "{}", server.log());
}

#[test]
fn sessions_end_when_drain_time_is_over() {
    let configured = Configured::new("drain-time = 1\n");
    let mut server = configured.serve();
    let _running = idle(&server);
    signal(&server, Signal::TERM);
    assert!(server.ends_well(), "{}", server.log());
    let log = server.log();
    assert!(log.contains("1 session has not ended in time"), "{log}");
}

#[test]
fn second_signal_ends_a_draining_server() {
    let configured = Configured::new("drain-time = 600\n");
    let mut server = configured.serve();
    let _running = idle(&server);
    signal(&server, Signal::TERM);
    assert!(says_within(&server, "waiting for 1 session to end"));
    signal(&server, Signal::TERM);
    assert!(!server.ends_well(), "it leaves at once, and says so");
}

#[test]
fn changed_limits_act_after_a_hangup_signal() {
    let configured = Configured::new("max-sessions = 1\n");
    let server = configured.serve();
    let _running = idle(&server);
    let list = || Client::new(&[&server], opencl_program("list")).run();
    assert!(list().errors.contains("all 1 sessions"));
    configured.write("max-sessions = 2\nquery-timeout = 7\n");
    signal(&server, Signal::HUP);
    assert!(
        says_within(&server, "server.toml again"),
        "{}",
        server.log()
    );
    assert!(says_within(
        &server,
        "query-timeout: changes of these act at the next start"
    ));
    assert_eq!(list().lines_of_success(), ["status 0, 1 devices"]);
}

#[test]
fn damaged_configuration_changes_nothing() {
    let configured = Configured::new("max-sessions = 2\n");
    let server = configured.serve();
    configured.write("max-sesions = 1\n");
    signal(&server, Signal::HUP);
    assert!(
        says_within(&server, "`max-sesions` is no option"),
        "{}",
        server.log()
    );
    let _running = idle(&server);
    let list = Client::new(&[&server], opencl_program("list")).run();
    assert_eq!(list.lines_of_success(), ["status 0, 1 devices"]);
}
