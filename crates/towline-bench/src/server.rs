//! Servers that a run starts for itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::child::Process;

/// How long a server may take until it listens: it loads the vendor's libraries first.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a server may take to end its sessions.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Lines that tell of a worker's crash.
const CRASH_LINES: usize = 30;

/// So many ports of this machine that are free now.
pub(crate) fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let listeners = (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0"));
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    let ports = listeners
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()));
    ports.collect()
}

/// What to serve, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerSpec {
    /// The `towline` program.
    pub(crate) program: PathBuf,
    /// The vendors' libraries.
    pub(crate) icd: PathBuf,
    /// The CUDA driver, as `towline serve` is told it; OpenCL's vendors are left out then.
    pub(crate) cuda: Option<String>,
    /// Number of the only device to serve.
    pub(crate) device: Option<usize>,
    /// Payload connections that clients are told to open.
    pub(crate) payload_lanes: usize,
    /// CPUs to run on.
    pub(crate) cpus: Option<String>,
    /// How it is reached.
    pub(crate) over: Over,
    /// The port of this machine to listen on; any that is free, if 0.
    pub(crate) port: u16,
    /// Ports of the other servers that buffers go to and come from.
    pub(crate) peers: Vec<u16>,
}

/// What goes between a client and a server that a run starts for itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Over {
    /// TCP over loopback
    #[default]
    Tcp,
    /// Shared memory
    Shm,
}

/// `towline serve` on a free loopback port, or a socket of its own.
pub(crate) struct Server {
    process: Process,
    log: PathBuf,
    /// Where it listens.
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(spec: &ServerSpec, scratch: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("server-")
            .tempdir_in(scratch)
            .context("no place for temporary files")?
            .keep();
        let ready = folder.join("address");
        let log = folder.join("log");
        let listen = match spec.over {
            Over::Tcp => format!("127.0.0.1:{}", spec.port),
            Over::Shm => format!("shm://{}", folder.join("socket").display()),
        };
        let mut command = Command::new(&spec.program);
        command
            .args(["serve", "--listen", &listen, "--ready-file"])
            .arg(&ready)
            .args(["--payload-lanes", &spec.payload_lanes.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?);
        match &spec.cuda {
            Some(driver) => command.args(["--backend", "null", "--cuda", driver]),
            None => command.arg("--icd").arg(&spec.icd),
        };
        if let Some(device) = spec.device {
            command.args(["--device", &device.to_string()]);
        }
        if let Some(cpus) = &spec.cpus {
            command.args(["--cpus", cpus]);
        }
        for peer in &spec.peers {
            command.args(["--peer", &format!("127.0.0.1:{peer}")]);
        }
        let mut process = Process::spawn(&mut command)?;
        let start = Instant::now();
        let address = loop {
            if let Ok(text) = std::fs::read_to_string(&ready) {
                break text.lines().next().unwrap_or_default().to_owned();
            }
            let ended = process.0.try_wait()?.is_some();
            if ended || start.elapsed() > START_LIMIT {
                bail!(
                    "the server {}; it said:\n{}",
                    if ended { "ended" } else { "does not listen" },
                    last_lines(&log)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Ok(Self {
            process,
            log,
            address,
        })
    }

    /// What a server said last that ended by itself, or what one of its workers said that crashed.
    pub(crate) fn last_words(&mut self) -> Option<String> {
        if let Ok(Some(status)) = self.process.0.try_wait() {
            let said = last_lines(&self.log);
            return Some(format!(
                "the server ended ({status}); it said last:\n{said}"
            ));
        }
        let text = std::fs::read_to_string(&self.log).ok()?;
        let crash: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.starts_with("towline: crash:"))
            .take(CRASH_LINES)
            .collect();
        (!crash.is_empty()).then(|| crash.join("\n"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }
}

/// The end of a log.
fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.process.0.try_wait(), Ok(Some(_))) {
            return;
        }
        let Some(pid) = rustix::process::Pid::from_raw(self.process.0.id() as i32) else {
            return;
        };
        // An ended server needs no signal; a stuck one is killed when `process` is dropped.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < STOP_LIMIT && matches!(self.process.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
