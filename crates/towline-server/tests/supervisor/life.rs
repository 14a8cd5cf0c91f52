//! The supervisor's own start and end, and the jail of its workers.

use super::*;

pub(super) fn failing_worker_says_why_at_start() -> Result<(), Failed> {
    let start = Instant::now();
    let error = Supervisor::start(config("broken"))
        .err()
        .expect("no worker, no server");
    assert_eq!(
        error.to_string(),
        "the worker process cannot start: no OpenCL platform was found"
    );
    assert!(start.elapsed() < Duration::from_secs(5));
    Ok(())
}

pub(super) fn start_can_be_interrupted() -> Result<(), Failed> {
    let interrupted = AtomicBool::new(false);
    let start = Instant::now();
    let result = std::thread::scope(|scope| {
        let starting = scope
            .spawn(|| Supervisor::start_unless(config("slow"), Vec::new(), &interrupted).map(drop));
        std::thread::sleep(Duration::from_millis(200));
        interrupted.store(true, Ordering::Release);
        starting.join().expect("no panic")
    });
    assert!(result.is_err());
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    Ok(())
}

/// Where servers of this user have their folders.
fn runtime_folder() -> std::path::PathBuf {
    let user = rustix::process::geteuid();
    match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user.is_root() => "/run/towline".into(),
        Some(folder) => Path::new(&folder).join("towline"),
        None => std::env::temp_dir().join(format!("towline-{}", user.as_raw())),
    }
}

pub(super) fn stop_leaves_nothing_behind() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!(lane.echoes());
    lane.order(b"hang----");
    let worker = only_worker(&server.address);
    let folders = || -> Vec<std::path::PathBuf> {
        let prefix = format!("serve-{}-", std::process::id());
        let entries = std::fs::read_dir(runtime_folder())
            .expect("readable")
            .flatten();
        let holds_worker =
            |path: &Path| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
        entries
            .filter(|entry| {
                entry.file_name().to_string_lossy().starts_with(&prefix)
                    && holds_worker(&entry.path())
            })
            .map(|entry| entry.path())
            .collect()
    };
    let before = folders();
    let start = Instant::now();
    server.supervisor.stop();
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    let Some(Message::SessionEnded(ended)) = client.message() else {
        panic!("not told")
    };
    assert_eq!(ended.reason, "the server is shutting down");
    assert!(!alive(worker));
    assert!(folders().len() < before.len(), "its folder stays behind");
    let refused = Registry::global()
        .connect(&server.address, &ConnectOptions::default())
        .err();
    assert!(matches!(
        refused,
        Some(TransportError::ConnectionRefused { .. })
    ));
    Ok(())
}

/// What a jailed worker says that it can do.
fn jail_report(lane: &Lane) -> String {
    assert!(lane.echoes());
    lane.order(b"jail----");
    let mut report = [0; 1024];
    recv_exact(&*lane.0, &mut report).expect("it reports");
    String::from_utf8(report.to_vec()).expect("text")
}

fn value(report: &str, name: &str) -> String {
    let line = report
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {name} in {report}"))
        .to_owned()
}

pub(super) fn worker_of_a_kind_that_starts_no_programs_cannot() -> Result<(), Failed> {
    for kind in [WorkerKind::SoftCuda, WorkerKind::Cuda] {
        let mut config = config("echo");
        config.jail = JailConfig::default();
        config.worker.as_mut().expect("it has one").kind = kind;
        let server = serve(config);
        let client = Client::session(&server.address);
        let report = jail_report(&client.lane(0, 1));
        assert_eq!(value(&report, "runs_programs"), "false", "{kind:?}");
        // In the host's namespace too.
        assert_eq!(
            value(&report, "processes").split(' ').count(),
            1,
            "{kind:?}: it sees itself alone"
        );
    }
    Ok(())
}

pub(super) fn jailed_worker_is_confined() -> Result<(), Failed> {
    let private = tempfile::tempdir_in("/var")?;
    let (open, secret) = (private.path().join("open"), private.path().join("secret"));
    std::fs::set_permissions(private.path(), std::fs::Permissions::from_mode(0o755))?;
    std::fs::write(&open, "readable")?;
    std::fs::write(&secret, "readable")?;
    let mut config = config("echo");
    config.jail = JailConfig {
        hide: vec![secret.clone()],
        ..JailConfig::default()
    };
    config
        .worker
        .as_mut()
        .expect("it has one")
        .environment
        .push((
            "TEST_PROBES".into(),
            format!("{}:{}", open.display(), secret.display()).into(),
        ));
    let server = serve(config);
    let mut client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    let report = jail_report(&lane);
    let value = |name: &str| value(&report, name);
    assert_ne!(value("uid"), "0");
    assert_eq!(value("no_new_privs"), "1");
    assert_eq!(value("seccomp"), "2");
    assert_eq!(value("capabilities"), "0000000000000000");
    assert_eq!(value("home"), "/tmp/home");
    assert_eq!(value("home_writable"), "yes");
    assert_ne!(value("etc_writable"), "yes");
    assert_eq!(value("tmp_entries"), "1");
    assert_eq!(value("probes"), "readable,", "what is hidden is empty");
    assert_eq!(value("home_entries"), "0");
    assert_eq!(value("interfaces"), "1", "only loopback");
    assert_eq!(value("runs_programs"), "true");
    assert_eq!(value("tcp_socket"), "PermissionDenied");
    assert_eq!(value("processes"), "1", "itself");
    assert_eq!(value("most_processes"), "1024");
    assert_eq!(
        value("devices"),
        "fd full null random shm stderr stdin stdout urandom zero"
    );
    assert_eq!(value("services"), "");
    // By the signal, although the kernel ignores what the first process of a namespace sends itself.
    lane.order(b"crash---");
    let Some(Message::SessionEnded(ended)) = client.message() else {
        panic!("not told")
    };
    assert!(ended.reason.contains("SIGABRT"), "{}", ended.reason);
    Ok(())
}

pub(super) fn temporary_files_of_a_session_can_be_resized() -> Result<(), Failed> {
    // Nobody else can.
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let server = serve(SupervisorConfig {
        jail: JailConfig::default(),
        ..config("echo")
    });
    let client = Client::session(&server.address);
    assert_eq!(
        value(&jail_report(&client.lane(0, 1)), "home_writable"),
        "yes"
    );
    let worker = only_worker(&server.address);
    towline_sys::jail::resize_temporary(worker, 1 << 20)?;
    let files = rustix::fs::statvfs(format!("/proc/{worker}/root/tmp"))?;
    assert_eq!(files.f_blocks * files.f_frsize, 1 << 20);
    Ok(())
}
