//! The program as people and scripts meet it: output, files, exit status, and what is left behind.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

fn towline() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command
        .env_remove("TOWLINE_SERVERS")
        .env_remove("TOWLINE_PROFILE")
        .env_remove("TOWLINE_TOKEN_FILE")
        .env_remove("TOWLINE_NO_ENCRYPTION")
        .env_remove("TOWLINE_KNOWN_SERVERS")
        .env_remove("TOWLINE_LOCAL_ICD_VENDORS");
    command
        .env_remove("OCL_ICD_VENDORS")
        .env_remove("OPENCL_VENDOR_PATH")
        .env("XDG_CONFIG_HOME", "/nonexistent");
    command.stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    towline().args(arguments).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `towline serve` on a device that computes nothing, on a free port.
struct Server {
    child: Child,
    folder: TempDir,
    address: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let mut command = towline();
        command
            .args([
                "serve",
                "--backend",
                "null",
                "--listen",
                "127.0.0.1:0",
                "--ready-file",
            ])
            .arg(&ready);
        command
            .args(arguments)
            .env("TMPDIR", folder.path())
            .stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        let mut server = Self {
            child,
            folder,
            address: String::new(),
        };
        server.wait("the ready file", || ready.exists());
        server.address = std::fs::read_to_string(&ready).unwrap().trim().to_owned();
        server
    }

    fn wait(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert_eq!(
                self.child.try_wait().unwrap(),
                None,
                "the server ended before {what}"
            );
            assert!(Instant::now() < deadline, "no {what} in time");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its worker processes.
    fn workers(&self) -> Vec<Pid> {
        let parent = self.child.id().to_string();
        let numbers = std::fs::read_dir("/proc").unwrap().flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_ours = |pid: &i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // After the name in parentheses: state, parent.
            stat.rsplit_once(')')
                .and_then(|(_, rest)| rest.split_whitespace().nth(1))
                == Some(parent.as_str())
        };
        numbers.filter(is_ours).filter_map(Pid::from_raw).collect()
    }

    /// What is in its temporary folder.
    fn leftovers(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gone(pid: Pid) -> bool {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // A zombie that nobody reaps is the business of whatever is process 1 here.
    stat.is_empty()
        || stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

fn token_file(folder: &TempDir, token: &str) -> String {
    let path = folder.path().join("token");
    std::fs::write(&path, token).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn server_lists_its_device_and_its_status() {
    let server = Server::start(&[]);
    let devices = run(&["devices", "--server", &server.address]);
    assert!(devices.status.success(), "{}", err(&devices));
    assert!(
        out(&devices).starts_with("SERVER") && out(&devices).contains(&server.address),
        "{}",
        out(&devices)
    );
    let json = run(&["devices", "--json", "--server", &server.address]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(1));
    let status = run(&["status", "--json", "--server", &server.address]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status[0]["max_sessions"], 32);
    assert_eq!(status[0]["sessions"].as_array().map(Vec::len), Some(0));
}

#[test]
fn kill_of_unknown_session_says_where_to_look() {
    let server = Server::start(&[]);
    let output = run(&["kill", "7", "--server", &server.address]);
    assert_eq!(output.status.code(), Some(125));
    for part in ["session 7", &server.address, "towline status"] {
        assert!(err(&output).contains(part), "no {part} in {}", err(&output));
    }
    let two = format!("{},127.0.0.1:1", server.address);
    let output = run(&["kill", "7", "--server", &two]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        err(&output).contains("of which of 2 servers"),
        "{}",
        err(&output)
    );
}

#[test]
fn top_without_terminal_names_status() {
    let output = run(&["top", "--server", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        err(&output).contains("towline status --json"),
        "{}",
        err(&output)
    );
    assert_eq!(out(&output), "");
}

#[test]
fn terminated_server_exits_well_and_leaves_nothing() {
    let mut server = Server::start(&[]);
    let workers = server.workers();
    assert_eq!(workers.len(), 1);
    rustix::process::kill_process(server.pid(), Signal::TERM).unwrap();
    let start = Instant::now();
    assert!(server.child.wait().unwrap().success());
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert!(workers.into_iter().all(gone));
    assert_eq!(server.leftovers(), Vec::<PathBuf>::new());
    let mut printed = String::new();
    server
        .child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut printed)
        .unwrap();
    assert_eq!(printed, format!("towline: serving on {}\n", server.address));
}

#[test]
fn closed_terminal_ends_a_server_in_order() {
    let mut server = Server::start(&[]);
    rustix::process::kill_process(server.pid(), Signal::HUP).unwrap();
    assert!(server.child.wait().unwrap().success());
    assert_eq!(server.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn workers_die_with_a_killed_server() {
    let mut server = Server::start(&[]);
    let workers = server.workers();
    assert_eq!(workers.len(), 1);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(1);
    while !workers.iter().all(|worker| gone(*worker)) {
        assert!(Instant::now() < deadline, "a worker outlives its server");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn worker_that_is_killed_while_idle_is_replaced() {
    let mut server = Server::start(&[]);
    let first = server.workers();
    rustix::process::kill_process(first[0], Signal::KILL).unwrap();
    let pid = server.child.id();
    let mut next = Vec::new();
    for _ in 0..1000 {
        next = server.workers();
        if !next.is_empty() && next != first {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!next.is_empty() && next != first, "no new worker of {pid}");
    assert_eq!(server.child.try_wait().unwrap(), None);
    assert!(
        run(&["devices", "--server", &server.address])
            .status
            .success()
    );
}

#[test]
fn token_is_needed_and_its_lack_explained() {
    let folder = tempfile::tempdir().unwrap();
    let token = token_file(&folder, "a secret of enough bytes\n");
    let server = Server::start(&["--token-file", &token]);
    let with = run(&[
        "devices",
        "--server",
        &server.address,
        "--token-file",
        &token,
    ]);
    assert!(with.status.success(), "{}", err(&with));
    let without = run(&["devices", "--server", &server.address]);
    assert_eq!(without.status.code(), Some(125));
    assert!(
        err(&without).contains("requires a token") && err(&without).contains("--token-file"),
        "{}",
        err(&without)
    );
    let other = token_file(&tempfile::tempdir().unwrap(), "x");
    let unreadable = run(&[
        "devices",
        "--server",
        &server.address,
        "--token-file",
        &other,
    ]);
    assert!(
        err(&unreadable).contains("could not use the token file"),
        "{}",
        err(&unreadable)
    );
}

#[test]
fn new_token_of_a_tenant_is_printed_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tenants");
    let tenant = ["tenant", "--tenants-file", file.to_str().unwrap()];
    let tokens = ["add", "rotate"].map(|verb| {
        let output = run(&[&tenant[..], &[verb, "anna", "--json"]].concat());
        let issued: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
        assert_eq!(issued["name"], "anna");
        issued["token"].as_str().unwrap().to_owned()
    });
    assert_ne!(tokens[0], tokens[1]);
    assert!(std::fs::read_to_string(&file).unwrap().contains(&tokens[1]));
}

#[test]
fn changed_key_of_a_server_is_refused_until_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let token = token_file(&folder, "a secret of enough bytes\n");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let known = path("state/known_servers");
    // Of loopback addresses no key is kept; this leads there too.
    let serve = |port: u16, key: &str| {
        let (listen, key) = (format!("0.0.0.0:{port}"), path(key));
        let options = [
            "--token-file",
            &token,
            "--key-file",
            &key,
            "--listen",
            &listen,
        ];
        let server = Server::start(&options);
        let port = server.address.rsplit_once(':').unwrap().1.parse().unwrap();
        (server, port)
    };
    let (first, port) = serve(0, "first/server.key");
    let address = format!("0.0.0.0:{port}");
    let devices = || {
        let access = ["--token-file", &token, "--known-servers", &known];
        run(&[&["devices", "--server", &address][..], &access].concat())
    };
    for _ in 0..2 {
        assert!(devices().status.success(), "{}", err(&devices()));
    }
    drop(first);
    let (again, _) = serve(port, "first/server.key");
    assert!(devices().status.success(), "{}", err(&devices()));
    drop(again);
    let (_other, _) = serve(port, "other/server.key");
    let refused = err(&devices());
    assert!(
        refused.contains(&format!("towline servers forget tcp://{address}")),
        "{refused}"
    );
    let forget = ["servers", "forget", &address, "--known-servers", &known];
    assert!(run(&forget).status.success());
    assert!(!run(&forget).status.success());
    assert!(devices().status.success(), "{}", err(&devices()));
}

#[test]
fn unreachable_server_is_named_with_advice() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let output = run(&["devices", "--server", &format!("127.0.0.1:{port}")]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        err(&output).contains(&port.to_string()) && err(&output).contains("towline serve"),
        "{}",
        err(&output)
    );
}

#[test]
fn reachable_servers_are_listed_beside_one_that_is_not() {
    let server = Server::start(&[]);
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let output = run(&[
        "devices",
        "--server",
        &format!("127.0.0.1:{port},{}", server.address),
    ]);
    assert_eq!(output.status.code(), Some(125));
    assert!(out(&output).contains(&server.address) && err(&output).contains(&port.to_string()));
}

#[test]
fn no_server_at_all_says_how_to_name_one() {
    let output = run(&["status"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        err(&output).contains("--server") && err(&output).contains("TOWLINE_SERVERS"),
        "{}",
        err(&output)
    );
}

#[test]
fn routable_address_without_token_is_refused() {
    let output = run(&["serve", "--backend", "null", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).contains("--insecure"), "{}", err(&output));
}

#[test]
fn taken_port_and_missing_vendor_are_explained() {
    let server = Server::start(&[]);
    let taken = run(&["serve", "--backend", "null", "--listen", &server.address]);
    assert_eq!(taken.status.code(), Some(125));
    assert!(
        err(&taken).contains("something else already does"),
        "{}",
        err(&taken)
    );
    let missing = run(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--icd",
        "/nonexistent/vendor.icd",
    ]);
    assert_eq!(missing.status.code(), Some(125));
    assert!(
        err(&missing).contains("/nonexistent/vendor.icd"),
        "{}",
        err(&missing)
    );
}

/// Needs PoCL, the device that `make test` installs.
#[test]
fn vendor_in_a_folder_that_workers_cannot_enter_is_loaded() {
    // A folder of mode 0700 below /tmp: covered by the jail, and closed to the worker's user.
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(
        "/etc/OpenCL/vendors/pocl.icd",
        folder.path().join("pocl.icd"),
    )
    .expect("PoCL is installed");
    let ready = folder.path().join("ready");
    let mut command = towline();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--icd"])
        .arg(folder.path())
        .arg("--ready-file")
        .arg(&ready);
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut server = Server {
        child,
        folder,
        address: String::new(),
    };
    server.wait("the ready file", || ready.exists());
    let devices = run(&[
        "devices",
        "--server",
        std::fs::read_to_string(&ready).unwrap().trim(),
    ]);
    assert!(
        out(&devices).contains("PoCL"),
        "{}{}",
        out(&devices),
        err(&devices)
    );
}

#[test]
fn wrong_usage_exits_with_2() {
    assert_eq!(
        run(&["serve", "--listen", "nowhere:x"]).status.code(),
        Some(2)
    );
    assert_eq!(run(&["run", "--server", "a:1"]).status.code(), Some(2));
    assert_eq!(run(&[]).status.code(), Some(2));
}

#[test]
fn worker_started_by_hand_says_that_it_is_not_meant_to_be() {
    let output = run(&["worker"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("started by `towline serve`"),
        "{}",
        err(&output)
    );
}

#[test]
fn token_that_cannot_be_printed_is_said_lost() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tenants");
    let output = towline()
        .args(["tenant", "--tenants-file"])
        .arg(&file)
        .args(["add", "anna"])
        .stdout(std::fs::File::create("/dev/full").unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let text = err(&output);
    assert!(text.contains("towline tenant rotate anna"), "{text}");
}

/// A folder for XDG_CONFIG_HOME with this `towline/config.toml`.
fn config(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("towline")).unwrap();
    std::fs::write(folder.path().join("towline/config.toml"), text).unwrap();
    folder
}

#[test]
fn servers_and_token_come_from_the_config_file() {
    let folder = tempfile::tempdir().unwrap();
    token_file(&folder, "a secret of enough bytes\n");
    let token = folder.path().join("token");
    let server = Server::start(&["--token-file", token.to_str().unwrap()]);
    let text = format!(
        "servers = [\"127.0.0.1:1\"]\n[profile.lab]\nservers = [\"{}\"]\ntoken-file = \"token\"\n",
        server.address
    );
    let home = config(&text);
    // Paths lead from the file's folder.
    std::fs::rename(&token, home.path().join("towline/token")).unwrap();
    let status = |options: &[&str], variables: &[(&str, &str)]| {
        let mut command = towline();
        command.arg("devices").args(options);
        command.env("XDG_CONFIG_HOME", home.path());
        let output = command.envs(variables.iter().copied()).output().unwrap();
        output.status.code()
    };
    assert_eq!(status(&["--profile", "lab"], &[]), Some(0));
    assert_eq!(status(&[], &[("TOWLINE_PROFILE", "lab")]), Some(0));
    assert_eq!(
        status(&["--server", &server.address, "--profile", "lab"], &[]),
        Some(0)
    );
    assert_eq!(
        status(&["--profile", "lab"], &[("TOWLINE_SERVERS", "127.0.0.1:1")]),
        Some(0)
    );
    assert_eq!(status(&[], &[]), Some(125));
}

#[test]
fn login_keeps_the_token_that_a_server_knows() {
    let folder = tempfile::tempdir().unwrap();
    let token = token_file(&folder, "a secret of enough bytes\n");
    let [server, other] = [(), ()].map(|()| Server::start(&["--token-file", &token]));
    let home = tempfile::tempdir().unwrap();
    let towline = |arguments: &[&str], input: &str| {
        let mut command = towline();
        command
            .args(arguments)
            .env("HOME", home.path())
            .env_remove("XDG_STATE_HOME");
        command.env("XDG_CONFIG_HOME", home.path().join("config"));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    };
    let kept = home.path().join(".local/state/towline/token");
    let file = home.path().join("config/towline/config.toml");

    let wrong = towline(
        &["login", &server.address],
        "another secret of enough bytes\n",
    );
    assert_eq!(wrong.status.code(), Some(125));
    assert!(
        err(&wrong).contains("does not know this token"),
        "{}",
        err(&wrong)
    );
    assert!(!kept.exists() && !file.exists());

    let login = towline(&["login", &server.address], "a secret of enough bytes\n");
    assert!(login.status.success(), "{}", err(&login));
    assert_eq!(
        std::fs::read_to_string(&kept).unwrap(),
        "a secret of enough bytes\n"
    );
    assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let devices = towline(&["devices"], "");
    assert!(out(&devices).contains(&server.address), "{}", err(&devices));

    // A second server of the same token, and one of another.
    assert!(
        towline(&["login", "--token-file", &token, &other.address], "")
            .status
            .success()
    );
    assert!(out(&towline(&["devices"], "")).contains(&other.address));
    let third = Server::start(&[]);
    let mixed = towline(&["login", &third.address], "\n");
    assert!(err(&mixed).contains("--profile NAME"), "{}", err(&mixed));
    assert!(
        towline(&["login", "--profile", "open", &third.address], "\n")
            .status
            .success()
    );
    assert!(out(&towline(&["devices", "--profile", "open"], "")).contains(&third.address));

    assert!(towline(&["logout", &server.address], "").status.success());
    assert!(kept.exists());
    assert!(towline(&["logout", &other.address], "").status.success());
    assert!(!kept.exists());
    let again = towline(&["logout", &other.address], "");
    assert!(err(&again).contains("does not name"), "{}", err(&again));
}

#[test]
fn login_takes_and_keeps_variables() {
    let folder = tempfile::tempdir().unwrap();
    let token = token_file(&folder, "a secret of enough bytes\n");
    let server = Server::start(&["--token-file", &token]);
    let known = folder.path().join("known").display().to_string();
    let login = towline()
        .args(["login", &server.address])
        .env("HOME", folder.path())
        .env("XDG_STATE_HOME", folder.path().join("state"))
        .env("XDG_CONFIG_HOME", folder.path())
        .env("TOWLINE_TOKEN_FILE", &token)
        .env("TOWLINE_KNOWN_SERVERS", &known)
        .env("TOWLINE_PROFILE", "lab")
        .output()
        .unwrap();
    assert!(login.status.success(), "{}", err(&login));
    let text = std::fs::read_to_string(folder.path().join("towline/config.toml")).unwrap();
    for part in ["[profile.lab]", "token-lab", &known] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The finding of `towline doctor` about this machine's PyTorch.
fn pytorch_found(variables: &[(&str, &Path)]) -> String {
    let output = towline()
        .args(["doctor", "--json"])
        .env_remove("VIRTUAL_ENV")
        .envs(variables.iter().copied())
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    let findings = report["sections"][0]["findings"].as_array().unwrap();
    let finding = findings.iter().find(|found| found["subject"] == "PyTorch");
    finding.map_or(String::new(), |found| {
        found["text"].as_str().unwrap().to_owned()
    })
}

#[test]
fn doctor_finds_pytorch_of_path_or_virtual_environment() {
    let folder = tempfile::tempdir().unwrap();
    let torch = folder.path().join("torch");
    std::fs::create_dir(&torch).unwrap();
    // Importing it would fail.
    std::fs::write(torch.join("__init__.py"), "raise SystemExit(1)\n").unwrap();
    let text = "__version__ = '2.5.1+cu124'\ncuda: Optional[str] = '12.4'\n";
    std::fs::write(torch.join("version.py"), text).unwrap();
    let told = format!("2.5.1+cu124 in {}, built for CUDA 12.4", torch.display());
    assert_eq!(pytorch_found(&[("PYTHONPATH", folder.path())]), told);
    // A virtual environment comes before PATH; its python3 says where it is.
    let python = folder.path().join("bin/python3");
    std::fs::create_dir(folder.path().join("bin")).unwrap();
    std::fs::write(&python, format!("#!/bin/sh\necho {}\n", torch.display())).unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(pytorch_found(&[("VIRTUAL_ENV", folder.path())]), told);
    let elsewhere = folder.path().join("bin");
    let variables = [("PYTHONPATH", folder.path()), ("VIRTUAL_ENV", &elsewhere)];
    assert_eq!(pytorch_found(&variables), "");
}

#[test]
fn unknown_key_of_the_config_file_is_named() {
    let home = config("[profile.lab]\nsever = \"gpu1\"\n");
    let output = towline()
        .args(["devices", "--profile", "lab"])
        .env("XDG_CONFIG_HOME", home.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let text = err(&output);
    assert!(
        text.contains("config.toml: unknown key `profile.lab.sever`"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// Clauses of an error that stand in it twice.
fn repeated(text: &str) -> Vec<&str> {
    let clauses = text.split([':', ';', '\n']).map(str::trim);
    let clauses: Vec<&str> = clauses
        .filter(|clause| clause.split_whitespace().count() > 2)
        .collect();
    let is_again = |at: &usize| clauses[..*at].contains(&clauses[*at]);
    (0..clauses.len())
        .filter(is_again)
        .map(|at| clauses[at])
        .collect()
}

#[test]
fn errors_name_their_cause_once() {
    assert_eq!(
        repeated("x: it was not here: y: it was not here"),
        ["it was not here"]
    );
    let folder = tempfile::tempdir().unwrap();
    let token = token_file(&folder, "a secret of enough bytes\n");
    let server = Server::start(&["--token-file", &token]);
    let other = tempfile::tempdir().unwrap();
    let other = token_file(&other, "another secret of enough bytes\n");
    let list = folder.path().join("list").display().to_string();
    std::fs::write(&list, "gpu1:x\n").unwrap();
    let address = server.address.as_str();
    for arguments in [
        &["devices", "--server", "127.0.0.1:1"][..],
        &["devices", "--server", "gpu9.invalid"],
        &["devices", "--server", address],
        &["devices", "--server", address, "--token-file", &other],
        &[
            "devices",
            "--server",
            address,
            "--token-file",
            "/nonexistent",
        ],
        &["devices", "--server", address, "--ca", "/nonexistent"],
        &[
            "devices",
            "--server",
            address,
            "--certificate",
            "/nonexistent",
        ],
        &["devices", "--server-file", &list],
        &["devices", "--profile", "lab"],
        &["login", address, "--token-file", &other],
        &["run", "--server", "127.0.0.1:1", "--", "true"],
        &["serve", "--backend", "null", "--listen", address],
        &[
            "serve",
            "--backend",
            "off",
            "--cuda",
            "/etc/passwd",
            "--listen",
            "127.0.0.1:0",
        ],
        &["serve", "--icd", "/nonexistent"],
        &["status", "--server", "127.0.0.1:1"],
        &["node", "plan", "/nonexistent"],
        &["run", "--restore", "/nonexistent"],
    ] {
        let output = run(arguments);
        let text = err(&output);
        let last = text.lines().last().unwrap_or_default();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {text}");
        assert_eq!(repeated(last), [""; 0], "{arguments:?}: {last}");
    }
}

#[test]
fn program_is_not_started_where_no_server_answers() {
    let (_, folder) = towline_run(&[]);
    let library = folder.path().join("libtowline_opencl.so");
    let run = |options: &[&str]| {
        let mut command = towline();
        command
            .arg("run")
            .args(options)
            .args(["--", "echo", "started"]);
        command
            .env("TOWLINE_LIBRARY", &library)
            .env("XDG_RUNTIME_DIR", folder.path());
        command.output().unwrap()
    };
    let dead = run(&["--server", "127.0.0.1:1,127.0.0.1:2"]);
    assert_eq!(dead.status.code(), Some(125));
    assert_eq!(out(&dead), "");
    let text = err(&dead);
    assert!(
        text.starts_with("towline: echo was not started: tcp://127.0.0.1:1 refused"),
        "{text}"
    );
    assert!(
        text.ends_with("give --allow-none\n") && text.lines().count() == 1,
        "{text}"
    );
    let allowed = run(&["--server", "127.0.0.1:1", "--allow-none"]);
    assert_eq!(
        (allowed.status.code(), out(&allowed).as_str()),
        (Some(0), "started\n")
    );
    let server = Server::start(&[]);
    let alive = run(&["--server", &format!("127.0.0.1:1,{}", server.address)]);
    assert_eq!(
        (alive.status.code(), out(&alive).as_str()),
        (Some(0), "started\n")
    );
    assert_eq!(err(&alive), "");
}

#[test]
fn program_is_not_started_on_a_full_server() {
    let (_, folder) = towline_run(&[]);
    let server = Server::start(&["--max-sessions", "1"]);
    let run = |options: &[&str]| {
        let mut command = towline();
        command.args(["run", "--server", &server.address]);
        command.args(options).args(["--", "echo", "started"]);
        command
            .env(
                "TOWLINE_LIBRARY",
                folder.path().join("libtowline_opencl.so"),
            )
            .env("XDG_RUNTIME_DIR", folder.path());
        command.output().unwrap()
    };
    assert_eq!(run(&[]).status.code(), Some(0));
    let access = towline_client::access::Access::default();
    let address = server.address.parse().unwrap();
    let session = towline_client::opencl::Remote::connect_as(&address, &access).unwrap();
    let full = run(&[]);
    assert_eq!((full.status.code(), out(&full).as_str()), (Some(125), ""));
    assert!(err(&full).contains("1 of 1"), "{}", err(&full));
    assert_eq!(out(&run(&["--allow-none"])), "started\n");
    drop(session);
    assert_eq!(out(&run(&[])), "started\n");
}

#[test]
fn terminal_is_told_the_devices_in_one_line() {
    let server = Server::start(&[]);
    let (_, folder) = towline_run(&[]);
    let command = format!(
        "{} run --server {} -- true",
        env!("CARGO_BIN_EXE_towline"),
        server.address
    );
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TOWLINE_LIBRARY", folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let port = server.address.rsplit_once(':').unwrap().1;
    let text = out(&output);
    assert!(
        text.starts_with(&format!("towline: 127.0.0.1:{port}: ")),
        "{text}"
    );
    assert!(
        text.trim_end().ends_with("(OpenCL)") && text.lines().count() == 1,
        "{text}"
    );
}

/// A command `towline run` with a stand-in for the library, and the folder that holds it.
fn towline_run(arguments: &[&str]) -> (Command, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libtowline_opencl.so");
    for library in [&library, &folder.path().join("libtowline_cuda.so")] {
        std::fs::write(library, "").unwrap();
    }
    let mut command = towline();
    command.args(["run", "--allow-none"]).args(arguments);
    command
        .env("TOWLINE_LIBRARY", &library)
        .env("XDG_RUNTIME_DIR", folder.path());
    (command, folder)
}

#[test]
fn program_sees_servers_and_vendors() {
    let (mut command, folder) = towline_run(&[
        "--server",
        "a:1,b:2",
        "--with-local",
        "--report",
        "--",
        "sh",
        "-c",
    ]);
    let script = r#"echo "$TOWLINE_SERVERS $TOWLINE_WITH_LOCAL $TOWLINE_REPORT $TOWLINE_LOCAL_ICD_VENDORS"; cat ${OCL_ICD_VENDORS}*.icd"#;
    let local = folder.path().join("local");
    std::fs::create_dir(&local).unwrap();
    std::fs::write(local.join("pocl.icd"), "libpocl.so.2\n").unwrap();
    let output = command
        .arg(script)
        .env("OCL_ICD_VENDORS", &local)
        .output()
        .unwrap();
    let library = folder.path().join("libtowline_opencl.so");
    let expected = format!(
        "tcp://a:1,tcp://b:2 1 1 {}\nlibpocl.so.2\n{}\n",
        local.display(),
        library.display()
    );
    assert_eq!(out(&output), expected, "{}", err(&output));
}

#[test]
fn report_tells_of_program_that_goes_past() {
    let report = |script: &str| {
        let (mut command, _folder) =
            towline_run(&["--server", "a:1", "--report", "--", "sh", "-c", script]);
        err(&command.output().unwrap())
    };
    assert!(report("true").contains("loaded none of Towline's libraries"));
    assert_eq!(report(": >$TOWLINE_REPORT_MARK"), "");
    // The program finds no child that it did not start.
    assert_eq!(
        report("wait; : >$TOWLINE_REPORT_MARK; ps --ppid $$ | grep -v -e ps -e PID -e grep >&2"),
        ""
    );
}

#[test]
fn run_inside_run_still_finds_the_real_vendors() {
    let (mut command, folder) = towline_run(&[
        "--server",
        "a:1",
        "--",
        env!("CARGO_BIN_EXE_towline"),
        "run",
        "--allow-none",
    ]);
    let local = folder.path().join("local");
    std::fs::create_dir(&local).unwrap();
    command.args([
        "--server",
        "b:2",
        "--",
        "sh",
        "-c",
        "echo $TOWLINE_SERVERS $TOWLINE_LOCAL_ICD_VENDORS",
    ]);
    let output = command.env("OCL_ICD_VENDORS", &local).output().unwrap();
    assert_eq!(
        out(&output),
        format!("tcp://b:2 {}\n", local.display()),
        "{}",
        err(&output)
    );
}

#[test]
fn programs_own_exit_status_comes_back() {
    let status = |program: &[&str]| {
        let (mut command, _folder) = towline_run(&["--server", "a:1", "--"]);
        command.args(program).output().unwrap().status.code()
    };
    assert_eq!(status(&["sh", "-c", "exit 42"]), Some(42));
    assert_eq!(status(&["/nonexistent/program"]), Some(127));
    assert_eq!(status(&["/etc/passwd"]), Some(126));
    assert_eq!(status(&["sh", "-c", "kill -TERM $$"]), None);
}

#[test]
fn missing_library_says_where_it_was_looked_for() {
    let output = towline()
        .args(["run", "--server", "a:1", "--", "true"])
        .env("TOWLINE_LIBRARY", "/nonexistent")
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).contains("/nonexistent"), "{}", err(&output));
    let (mut command, folder) = towline_run(&["--server", "a:1", "--cudart", "--", "true"]);
    std::fs::remove_file(folder.path().join("libtowline_cuda.so")).unwrap();
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let text = err(&output);
    assert!(
        text.contains("libtowline_cuda.so") && text.contains("towline-client"),
        "{text}"
    );
}

#[test]
fn manual_and_completions_are_written() {
    let folder = tempfile::tempdir().unwrap();
    assert!(
        run(&["man", folder.path().to_str().unwrap()])
            .status
            .success()
    );
    let page = std::fs::read_to_string(folder.path().join("towline-serve.1")).unwrap();
    assert!(page.contains("max\\-sessions"), "{page}");
    let script = run(&["completions", "bash"]);
    assert!(out(&script).contains("--max-sessions"));
    assert!(!Path::new("towline.1").exists());
}
