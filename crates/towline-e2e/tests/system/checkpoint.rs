//! Sessions that leave their servers for a folder while their programs run, and come back from there: `towline checkpoint`, and `towline run
//! --restore`.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::migration::{
    LIMIT, WORKLOADS, ask, ends_well, errors, finds_right, has_sessions, moves, only, sessions,
    soft, steady, steady_cuda, working,
};
use crate::support::{
    Client, Proxy, Random, Server, forget_surroundings, holds_within, opencl_program, towline,
};

/// A folder for checkpoints, which is not made yet.
struct Place {
    _above: TempDir,
    folder: PathBuf,
}

impl Place {
    fn new() -> Self {
        let above = tempfile::tempdir().expect("room for temporary files");
        let folder = above.path().join("held");
        Self {
            _above: above,
            folder,
        }
    }

    fn name(&self) -> &str {
        self.folder.to_str().expect("it is text")
    }

    fn checkpoint(&self, server: &Server) -> Output {
        self.checkpoint_of(only(server), server.address())
    }

    fn checkpoint_of(&self, session: u64, server: &str) -> Output {
        let session = session.to_string();
        let arguments = ["checkpoint", &session, "--out", self.name()];
        ask(&[&arguments[..], &["--server", server]].concat())
    }

    /// Has the only session of a server held here.
    fn hold(&self, server: &Server) {
        let output = self.checkpoint(server);
        assert!(output.status.success(), "{}", errors(&output));
        assert!(sessions(server).is_empty());
    }

    /// A checkpoint that is refused for this reason, after which the program goes on.
    fn refuses(&self, server: &Server, reason: &str) {
        let output = self.checkpoint(server);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains(reason), "{said}");
        assert!(has_sessions(server, 1));
    }

    fn restore(&self, server: &str, command: &[&str]) -> Output {
        let arguments = ["run", "--restore", self.name(), "--server", server];
        ask(&[&arguments[..], &["--"], command].concat())
    }

    /// Has the held program go on with a server.
    fn restores(&self, server: &Server) {
        let output = self.restore(server.address(), &[]);
        assert!(output.status.success(), "{}", errors(&output));
        assert!(has_sessions(server, 1));
        assert!(!self.folder.join("held.toml").exists());
    }

    /// A restore that fails for this reason, after which the program is still held.
    fn stays(&self, server: &str, reason: &str) {
        let output = self.restore(server, &[]);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(
            said.contains("still held") && said.contains(reason),
            "{said}"
        );
        assert!(self.folder.join("held.toml").exists());
    }

    /// Files of chunks, with what tells each from a later one of its name.
    fn chunks(&self) -> Vec<(PathBuf, u64)> {
        let entries = fs::read_dir(self.folder.join("chunks")).expect("it is there");
        let entries = entries.map(|entry| entry.expect("it is readable"));
        let number = |entry: &fs::DirEntry| entry.metadata().expect("a file").ino();
        let mut chunks: Vec<_> = entries
            .map(|entry| (entry.path(), number(&entry)))
            .collect();
        chunks.sort();
        chunks
    }
}

/// Targets of a process's descriptors that lead out of it: sockets and memory that others share.
fn ties(process: Pid) -> Vec<String> {
    let folder = format!("/proc/{}/fd", process.as_raw_nonzero());
    let entries = fs::read_dir(folder).expect("it lives");
    let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let targets = targets.map(|target| target.display().to_string());
    targets
        .filter(|target| target.starts_with("socket:") || target.contains("memfd:"))
        .collect()
}

/// Bytes of device memory that all sessions of a server hold.
fn memory(server: &Server) -> u64 {
    let output = ask(&["status", "--json", "--server", server.address()]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let sessions = status[0]["sessions"].as_array().expect("a list");
    let held = sessions
        .iter()
        .map(|session| session["device_memory_bytes"].as_u64());
    held.map(|bytes| bytes.expect("a number")).sum()
}

#[test]
fn checkpointed_program_goes_on_elsewhere() {
    let (mut server, other) = (soft(), soft());
    let client = steady_cuda(&server, &["40"]);
    assert!(memory(&server) >= 40 << 20);
    let place = Place::new();
    place.hold(&server);
    assert_eq!(memory(&server), 0);
    assert_eq!(ties(client.pid()), Vec::<String>::new());
    // It needs the server that it left no more.
    server.kill();
    place.restores(&other);
    ends_well(client);
}

#[test]
fn program_is_held_again_and_again() {
    let servers = [soft(), soft()];
    let client = steady_cuda(&servers[0], &["4"]);
    let place = Place::new();
    for turn in 0..4 {
        place.hold(&servers[turn % 2]);
        place.restores(&servers[(turn + 1) % 2]);
    }
    ends_well(client);
}

#[test]
fn opencl_program_is_held_again_and_again() {
    let mut servers = [Server::start(), Server::start()];
    let client = steady(&servers[0]);
    let place = Place::new();
    for turn in 0..4 {
        place.hold(&servers[turn % 2]);
        assert_eq!(ties(client.pid()), Vec::<String>::new());
        place.restores(&servers[(turn + 1) % 2]);
    }
    place.hold(&servers[0]);
    servers[0].kill();
    place.stays(servers[0].address(), servers[0].address());
    place.restores(&servers[1]);
    ends_well(client);
}

#[test]
fn all_objects_of_opencl_come_back() {
    let servers = [Server::start(), Server::start()];
    finds_all_again(&servers, "objects", "right");
}

/// A program finds everything right after it was held, moved and held again.
fn finds_all_again(servers: &[Server; 2], program: &str, verdict: &str) {
    let mut client = Client::new(&[&servers[0]], opencl_program(program)).start();
    client.wait_for("holds");
    let place = Place::new();
    place.hold(&servers[0]);
    place.restores(&servers[1]);
    moves(&servers[1], &servers[0]);
    place.hold(&servers[0]);
    place.restores(&servers[1]);
    client.go_on();
    let lines = client.finish().lines_of_success();
    assert!(lines.contains(&verdict.to_owned()), "{lines:?}");
}

#[test]
fn large_buffers_of_opencl_are_written_once() {
    let servers = [Server::start(), Server::start()];
    let client = Client::new(&[&servers[0]], opencl_program("holds"));
    let mut client = client.args(&["50"]).start();
    client.wait_for("holds");
    let place = Place::new();
    place.hold(&servers[0]);
    let before = place.chunks();
    place.restores(&servers[1]);
    place.hold(&servers[1]);
    assert_eq!(place.chunks(), before);
    place.restores(&servers[0]);
    client.go_on();
    client.wait_for("holds");
    place.hold(&servers[0]);
    place.restores(&servers[1]);
    client.go_on();
    client.finish().lines_of_success();
}

#[test]
fn opencl_program_over_shared_memory_is_held() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let listen = |name: &str| format!("shm://{}/{name}", folder.path().display());
    let servers = ["one", "two"].map(|name| Server::start_at(&listen(name), &[]));
    let client = steady(&servers[0]);
    let place = Place::new();
    place.hold(&servers[0]);
    assert_eq!(ties(client.pid()), Vec::<String>::new());
    place.restores(&servers[1]);
    ends_well(client);
}

#[test]
fn program_over_shared_memory_is_held() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let listen = |name: &str| format!("shm://{}/{name}", folder.path().display());
    let options = ["--backend", "null", "--cuda", "soft"];
    let servers = ["one", "two"].map(|name| Server::start_at(&listen(name), &options));
    let client = steady_cuda(&servers[0], &["4"]);
    let place = Place::new();
    place.hold(&servers[0]);
    let sockets = ties(client.pid());
    let sockets = sockets.iter().filter(|tie| tie.starts_with("socket:"));
    assert_eq!(sockets.count(), 0);
    place.restores(&servers[1]);
    ends_well(client);
}

#[test]
fn without_server_it_returns_where_it_was() {
    let server = soft();
    let client = steady_cuda(&server, &[]);
    let place = Place::new();
    place.hold(&server);
    let output = ask(&["run", "--restore", place.name()]);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(has_sessions(&server, 1));
    ends_well(client);
}

#[test]
fn variables_come_back_with_what_the_program_was_told() {
    let servers = [soft(), soft()];
    let client = steady_cuda(&servers[0], &["0", "asks"]);
    let place = Place::new();
    for turn in 0..3 {
        place.hold(&servers[turn % 2]);
        place.restores(&servers[(turn + 1) % 2]);
    }
    ends_well(client);
}

#[test]
fn arrays_and_second_devices_come_back() {
    let two_devices = ["--backend", "null", "--cuda", "soft:2"];
    let servers = [(); 2].map(|()| Server::start_with(&two_devices, &[]));
    finds_all_again(&servers, "cuda_arrays", "right on 2 devices");
}

#[test]
fn later_checkpoint_writes_only_what_changed() {
    let server = soft();
    let client = steady_cuda(&server, &["40"]);
    let place = Place::new();
    place.hold(&server);
    let before = place.chunks();
    place.restores(&server);
    place.hold(&server);
    let after = place.chunks();
    let kept = before.iter().filter(|chunk| after.contains(chunk)).count();
    // The program never changes its 40 MiB, of ten chunks.
    assert!(kept >= 10 && after.len() <= before.len() + 2, "{after:?}");
    place.restores(&server);
    ends_well(client);
}

#[test]
fn encrypted_checkpoint_shows_nothing_and_comes_back() {
    let servers = [soft(), soft()];
    let client = steady_cuda(&servers[0], &["40"]);
    let place = Place::new();
    place.hold(&servers[0]);
    let manifest = place.folder.join("manifest.toml");
    let is_text = || fs::read_to_string(&manifest).is_ok_and(|text| text.contains("cuda_steady"));
    assert!(is_text());
    let plain = place.chunks();
    place.restores(&servers[1]);
    let session = only(&servers[1]).to_string();
    let arguments = ["checkpoint", &session, "--out", place.name(), "--encrypt"];
    let output = ask(&[&arguments[..], &["--server", servers[1].address()]].concat());
    assert!(output.status.success(), "{}", errors(&output));
    assert!(!is_text());
    let chunks = place.chunks();
    assert!(chunks.len() >= 10 && plain.iter().all(|(name, _)| !name.exists()));
    let (chunk, _) = &chunks[0];
    let contents = fs::read(chunk).expect("it is there");
    fs::write(chunk, &contents[1..]).expect("it is ours");
    place.stays(servers[0].address(), "was changed, or has another key");
    fs::write(chunk, &contents).expect("it is ours");
    place.restores(&servers[0]);
    ends_well(client);
}

#[test]
fn damaged_contents_are_refused_until_mended() {
    let (server, other) = (soft(), soft());
    let null = Server::start_with(&["--backend", "null", "--cuda", "null"], &[]);
    let client = steady_cuda(&server, &["4"]);
    let place = Place::new();
    place.hold(&server);
    let (chunk, _) = place.chunks().remove(0);
    let contents = fs::read(&chunk).expect("it is there");
    let mut flipped = contents.clone();
    flipped[0] ^= 1;
    fs::write(&chunk, &flipped).expect("it is ours");
    place.stays(other.address(), "other contents than its name says");
    fs::remove_file(&chunk).expect("it is there");
    place.stays(other.address(), "is missing");
    fs::write(&chunk, &contents).expect("it is ours");
    let manifest = place.folder.join("manifest.toml");
    let text = fs::read_to_string(&manifest).expect("it is there");
    fs::write(&manifest, text.replacen("address = ", "address = 1", 1)).expect("it is ours");
    place.stays(other.address(), "not the one that the program wrote");
    fs::write(&manifest, text).expect("it is ours");
    // Servers that cannot take it.
    place.stays(null.address(), "has no device to stand for");
    place.stays("127.0.0.1:1", "127.0.0.1:1");
    assert!(has_sessions(&other, 0) && has_sessions(&null, 0));
    place.restores(&other);
    ends_well(client);
}

#[test]
fn programs_that_cannot_be_held_go_on() {
    let server = soft();
    let place = Place::new();
    let client = steady_cuda(&server, &["0", "stores"]);
    place.refuses(&server, "the address of a variable");
    ends_well(client);
    let servers = [Server::start(), Server::start()];
    let client = Client::new(&[&servers[0], &servers[1]], opencl_program("steady"));
    let mut client = client.start();
    client.wait_for("computing");
    place.refuses(&servers[0], "sessions with other servers");
    ends_well(client);
    let servers = [soft(), soft()];
    let client = Client::new(&[&servers[0], &servers[1]], opencl_program("cuda_steady"));
    let mut client = client.start();
    client.wait_for("computing");
    place.refuses(&servers[0], "sessions with other servers");
    ends_well(client);
}

#[test]
fn folders_that_the_user_did_not_offer_are_refused() {
    let server = soft();
    let client = steady_cuda(&server, &[]);
    let place = Place::new();
    fs::create_dir(&place.folder).expect("there is room");
    let close = |mode| fs::set_permissions(&place.folder, PermissionsExt::from_mode(mode));
    close(0o755).expect("it is ours");
    place.refuses(&server, "chmod 700");
    close(0o700).expect("it is ours");
    // As from another machine: nobody makes an invitation.
    fs::write(place.folder.join("held.toml"), "{").expect("it is ours");
    place.refuses(&server, "held.toml");
    fs::remove_file(place.folder.join("held.toml")).expect("it is there");
    place.hold(&server);
    // Each invitation is for one checkpoint.
    assert!(!place.folder.join("invitation").exists());
    place.restores(&server);
    ends_well(client);
}

#[test]
fn second_checkpoint_at_once_is_the_same_or_refused() {
    let server = soft();
    let client = steady_cuda(&server, &["40"]);
    let (place, other) = (Place::new(), Place::new());
    let outputs = std::thread::scope(|scope| {
        let (session, server) = (only(&server), server.address());
        let start = |place| scope.spawn(move || Place::checkpoint_of(place, session, server));
        let asking = [start(&place), start(&place), start(&other)];
        asking.map(|asking| asking.join().expect("no panic"))
    });
    assert!(outputs.iter().any(|output| output.status.success()));
    let is_held = |place: &Place| place.folder.join("held.toml").exists();
    assert!(is_held(&place) != is_held(&other));
    match is_held(&place) {
        true => place.restores(&server),
        false => other.restores(&server),
    }
    ends_well(client);
}

#[test]
fn program_that_dies_while_held_leaves_the_folder() {
    let server = soft();
    for signal in [Signal::KILL, Signal::TERM] {
        let client = steady_cuda(&server, &["4"]);
        let place = Place::new();
        place.hold(&server);
        kill_process(client.pid(), signal).expect("it lives");
        drop(client.finish());
        let output = place.restore(server.address(), &[]);
        let said = errors(&output);
        assert!(said.contains("no program answers"), "{said}");
        assert!(place.folder.join("manifest.toml").exists());
        assert!(!place.folder.join("restore.toml").exists());
        assert!(has_sessions(&server, 0));
    }
}

#[test]
fn command_runs_before_the_program_goes_on() {
    let (server, place) = (soft(), Place::new());
    let client = steady_cuda(&server, &[]);
    place.hold(&server);
    let output = place.restore(server.address(), &["false"]);
    assert!(errors(&output).contains("the command has failed"));
    let mark = place.folder.with_extension("ran");
    let touch = format!("touch {}; exit 0", mark.display());
    let output = place.restore(server.address(), &["sh", "-c", &touch]);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(mark.exists() && has_sessions(&server, 1));
    let output = place.restore(server.address(), &[]);
    assert!(errors(&output).contains("no program is held"));
    ends_well(client);
}

#[test]
fn programs_are_held_at_any_moment() {
    let servers = [soft(), soft()];
    let mut random = Random::new();
    for mode in ["asks", "none"].iter().cycle().take(6) {
        let program = Client::new(&[&servers[0]], opencl_program("cuda_steady"));
        let mut client = program.args(&["4", mode]).start();
        std::thread::sleep(Duration::from_micros(random.below(400_000)));
        let place = Place::new();
        for (from, to) in [(0, 1), (1, 0)] {
            if let [_] = sessions(&servers[from])[..] {
                // Between two calls the program may have what cannot be held.
                let held = || {
                    let output = place.checkpoint(&servers[from]);
                    let said = errors(&output);
                    let passes = said.contains("not mapped as a whole");
                    assert!(output.status.success() || passes, "{said}");
                    output.status.success()
                };
                assert!(holds_within(LIMIT, held));
                assert!(sessions(&servers[from]).is_empty());
                place.restores(&servers[to]);
            }
        }
        client.go_on();
        client.finish().lines_of_success();
    }
}

#[test]
fn opencl_programs_are_held_at_any_moment() {
    let servers = [Server::start(), Server::start()];
    let mut random = Random::new();
    let mut count = 0;
    for (name, size) in WORKLOADS {
        let client = working(&servers[0], name, size, &mut random);
        let place = Place::new();
        for (from, to) in [(0, 1), (1, 0)] {
            // It may have ended before, but not while it is held.
            if let [session] = sessions(&servers[from])[..]
                && place
                    .checkpoint_of(session, servers[from].address())
                    .status
                    .success()
            {
                let output = place.restore(servers[to].address(), &[]);
                assert!(output.status.success(), "{}", errors(&output));
                count += 1;
            }
        }
        finds_right(client);
    }
    assert!(count > 0);
}

#[test]
fn client_that_dies_in_a_checkpoint_leaves_no_session() {
    let mut random = Random::new();
    for _ in 0..4 {
        let (server, place) = (soft(), Place::new());
        let mut client = steady_cuda(&server, &["40"]);
        let session = only(&server);
        std::thread::scope(|scope| {
            scope.spawn(|| place.checkpoint_of(session, server.address()));
            std::thread::sleep(Duration::from_micros(random.below(150_000)));
            client.kill();
        });
        assert!(holds_within(LIMIT, || sessions(&server).is_empty()));
    }
}

#[test]
fn server_that_dies_in_a_checkpoint_leaves_none_or_all() {
    let mut random = Random::new();
    for _ in 0..4 {
        let (mut server, other) = (soft(), soft());
        let place = Place::new();
        let mut client = steady_cuda(&server, &["40"]);
        let (session, address) = (only(&server), server.address().to_owned());
        std::thread::scope(|scope| {
            let (place, address) = (&place, &address);
            scope.spawn(move || place.checkpoint_of(session, address));
            std::thread::sleep(Duration::from_micros(random.below(300_000)));
            server.kill();
        });
        match place.folder.join("held.toml").exists() {
            true => {
                place.restores(&other);
                ends_well(client);
            }
            // Its session has ended with the server.
            false => client.kill(),
        }
    }
}

#[test]
fn connections_may_be_cut_in_a_checkpoint() {
    let server = soft();
    let proxy = Proxy::to(server.address(), None);
    let options = ["--server", &proxy.address()];
    let mut client = Client::with_options(&options, opencl_program("cuda_steady")).start();
    client.wait_for("computing");
    let place = Place::new();
    let mut random = Random::new();
    for _ in 0..4 {
        let session = only(&server);
        std::thread::scope(|scope| {
            scope.spawn(|| place.checkpoint_of(session, server.address()));
            std::thread::sleep(Duration::from_micros(random.below(100_000)));
            proxy.reset_all();
        });
        // It is held, or goes on.
        if place.folder.join("held.toml").exists() {
            assert!(has_sessions(&server, 0));
            let output = ask(&["run", "--restore", place.name()]);
            assert!(output.status.success(), "{}", errors(&output));
        }
        assert!(has_sessions(&server, 1));
    }
    ends_well(client);
}

/// Whether CRIU can dump processes here; it says why not.
fn criu_works() -> bool {
    let checked = Command::new("criu").arg("check").output();
    let works = checked.is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: `criu check` does not succeed here");
    }
    works
}

/// A program whose input and output are files, as CRIU can bring them back.
struct OfFiles {
    folder: TempDir,
    process: Child,
}

impl OfFiles {
    fn start(server: &Server) -> Self {
        let folder = tempfile::tempdir().expect("room for temporary files");
        let input = folder.path().join("input");
        let made = Command::new("mkfifo").arg(&input).status();
        assert!(made.expect("mkfifo is a program").success());
        // Both ends are its own: it waits until somebody writes.
        let input = fs::File::options().read(true).write(true).open(&input);
        let output = fs::File::create(folder.path().join("output"));
        let errors = fs::File::create(folder.path().join("errors"));
        let mut program = Command::new("setsid");
        forget_surroundings(&mut program);
        let process = program
            .arg(towline())
            .args(["run", "--server", server.address()])
            .arg(opencl_program("cuda_steady"))
            .arg("4")
            .stdin(input.expect("it is there"))
            .stdout(output.expect("there is room"))
            .stderr(errors.expect("there is room"))
            .spawn();
        let started = Self {
            folder,
            process: process.expect("setsid is a program"),
        };
        assert!(holds_within(LIMIT, || started.has_said("computing")));
        started
    }

    fn has_said(&self, word: &str) -> bool {
        let said = fs::read_to_string(self.folder.path().join("output"));
        said.is_ok_and(|said| said.contains(word))
    }

    fn go_on(&self) {
        let written = fs::write(self.folder.path().join("input"), "\n");
        written.expect("it listens");
    }
}

#[test]
fn held_program_is_dumped_and_brought_back() {
    if !criu_works() {
        return;
    }
    let (server, other) = (soft(), soft());
    let place = Place::new();
    let images = tempfile::tempdir().expect("room for temporary files");
    let images = images.path().to_str().expect("it is text");
    let mut program = OfFiles::start(&server);
    place.hold(&server);
    let tree = program.process.id().to_string();
    let dump = ["dump", "--tree", &tree, "--images-dir", images];
    let dumped = Command::new("criu").args(dump).output();
    let dumped = dumped.expect("criu is a program");
    assert!(dumped.status.success(), "{}", errors(&dumped));
    // It is dead, and its process id free.
    program.process.wait().expect("it is a child");
    let restore = [
        "criu",
        "restore",
        "--restore-detached",
        "--images-dir",
        images,
    ];
    let restored = place.restore(other.address(), &restore);
    assert!(restored.status.success(), "{}", errors(&restored));
    assert!(has_sessions(&other, 1));
    program.go_on();
    assert!(holds_within(LIMIT, || program.has_said("rounds")));
    assert!(has_sessions(&other, 0));
}
