//! A `towline serve` process.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::{PATIENCE, client, holds_within, process, towline};

const LEAST_PORT: u32 = 10_000;
/// The option that names where a server keeps compiled kernels.
const KERNELS: &str = "--kernel-cache-folder";
/// The option that says how much of them.
const KERNEL_BYTES: &str = "--kernel-cache";

/// Compiled kernels of all tests' servers.
fn kernels() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels")
}

/// A server on a free port of this machine, and everything it writes.
pub(crate) struct Server {
    child: Child,
    folder: TempDir,
    address: String,
}

impl Server {
    /// A server with this machine's vendors: PoCL.
    pub(crate) fn start() -> Self {
        Self::start_with(&[], &[])
    }

    /// A server whose device is host memory.
    pub(crate) fn start_null() -> Self {
        Self::start_with(&["--backend", "null"], &[])
    }

    /// A server with these arguments and variables.
    pub(crate) fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut server = Self::spawn(arguments, variables);
        server.wait_until_ready();
        server
    }

    /// A server at an address that is known before it starts.
    pub(crate) fn start_at(address: &str, arguments: &[&str]) -> Self {
        let mut server = Self::spawn_at(address, arguments, &[]);
        server.wait_until_ready();
        server
    }

    /// Several equal servers, which start at the same time.
    pub(crate) fn start_several(count: usize, variables: &[(&str, &str)]) -> Vec<Self> {
        let mut servers: Vec<Self> = (0..count).map(|_| Self::spawn(&[], variables)).collect();
        servers.iter_mut().for_each(Self::wait_until_ready);
        servers
    }

    fn spawn(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::spawn_at("127.0.0.1:0", arguments, variables)
    }

    fn spawn_at(listen: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("room for temporary files");
        let temporary = folder.path().join("tmp");
        std::fs::create_dir(&temporary).expect("room for a folder");
        // As /tmp is: workers of users of their own pass through.
        for path in [folder.path(), &temporary] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
                .expect("the folder is ours");
        }
        let log = std::fs::File::create(folder.path().join("log")).expect("room for a file");
        let mut command = Command::new(towline());
        client::forget_surroundings(&mut command);
        command
            .args(["serve", "--listen", listen, "--ready-file"])
            .arg(folder.path().join("ready"));
        // Compilers take most of the tests' time: kernels of one test serve the next.
        if !arguments.contains(&KERNELS) {
            command.arg(KERNELS).arg(kernels());
        }
        if !arguments.contains(&KERNEL_BYTES) {
            command.args([KERNEL_BYTES, "256M"]);
        }
        command.args(arguments).envs(variables.iter().copied());
        command
            .env("TMPDIR", &temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn().expect("towline is a program");
        Self {
            child,
            folder,
            address: String::new(),
        }
    }

    fn wait_until_ready(&mut self) {
        let ready = self.folder.path().join("ready");
        let child = &mut self.child;
        let came = holds_within(PATIENCE, || {
            ready.exists() || !matches!(child.try_wait(), Ok(None))
        });
        assert!(
            came && ready.exists(),
            "the server does not start; it says:\n{}",
            self.log()
        );
        let address = std::fs::read_to_string(&ready).expect("the file is there");
        self.address = address.trim().to_owned();
    }

    /// Where clients find it.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// What it has said so far, its workers included.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The worker process of a client, by what the log says of its session.
    pub(crate) fn worker_of(&self, client: Pid) -> Pid {
        let client = format!("(pid {} on ", client.as_raw_nonzero());
        let mut found = None;
        let came = holds_within(PATIENCE, || {
            let log = self.log();
            let line = log.lines().find(|line| line.contains(&client));
            let number = line.and_then(|line| line.rsplit_once("worker ")?.1.parse().ok());
            found = number.and_then(Pid::from_raw);
            found.is_some()
        });
        assert!(came, "no session of {client} in the log:\n{}", self.log());
        found.expect("just found")
    }

    /// Its children: workers with a session, and one that waits for the next.
    pub(crate) fn workers(&self) -> Vec<Pid> {
        let ours = |pid: &Pid| process::parent(*pid) == Some(self.child.id());
        process::all().into_iter().filter(ours).collect()
    }

    /// Its own folders, in which those of its workers are. They outlive neither it nor a server that starts later.
    pub(crate) fn runtime_folders(&self) -> Vec<PathBuf> {
        let user = rustix::process::geteuid();
        let parent = match std::env::var_os("XDG_RUNTIME_DIR") {
            _ if user.is_root() => PathBuf::from("/run/towline"),
            Some(folder) => PathBuf::from(folder).join("towline"),
            None => self
                .folder
                .path()
                .join(format!("tmp/towline-{}", user.as_raw())),
        };
        let prefix = format!("serve-{}-", self.child.id());
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .map(|entry| entry.path())
            .collect()
    }

    /// The workers' folders.
    pub(crate) fn worker_folders(&self) -> Vec<PathBuf> {
        let entries = self
            .runtime_folders()
            .into_iter()
            .filter_map(|folder| std::fs::read_dir(folder).ok());
        let entries = entries.flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.is_dir()).collect()
    }

    /// Kills it outright.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it was our child");
    }

    /// Ends it as an administrator does; whether it ended well.
    pub(crate) fn terminate(&mut self) -> bool {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM)
            .expect("it can be told");
        self.ends_well()
    }

    /// Whether it comes to its end, and a good one.
    pub(crate) fn ends_well(&mut self) -> bool {
        let mut status = None;
        let child = &mut self.child;
        let ended = holds_within(PATIENCE, || {
            status = child.try_wait().expect("it was our child");
            status.is_some()
        });
        ended && status.is_some_and(|status| status.success())
    }
}

/// Two addresses that nobody listens at, with ports below those that the kernel gives to others: it could give one away before a server
/// has it.
pub(crate) fn free_addresses() -> [String; 2] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let least = range
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok());
    let (first, end) = (
        LEAST_PORT,
        least.unwrap_or(32768_u32).max(LEAST_PORT + 1000),
    );
    let next = || {
        let number = std::process::id().wrapping_mul(101) + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (first + number % (end - first)) as u16;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
    };
    let listeners = [(); 2].map(|()| std::iter::repeat_with(next).flatten().next());
    listeners.map(|listener| {
        let listener = listener.expect("a free port");
        listener.local_addr().expect("it is bound").to_string()
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of {}:\n{}", self.address, self.log());
        }
    }
}
