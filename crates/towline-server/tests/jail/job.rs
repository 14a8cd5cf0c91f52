//! Workers of jobs: what those of one job reach of each other, and nobody else of them.

use std::fmt::Display;
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixListener, UnixStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::io::Errno;
use towline_server::supervisor::{
    CollectivesConfig, Reach, Supervisor, SupervisorConfig, TenantEntry, TenantTable,
};
use towline_server::worker::process::{Engine, EngineError, Lane, Session};
use towline_sys::jail::WorkerKind;
use towline_sys::process::WorkerProgram;
use towline_transport::{Address, Connection, recv_exact};
use towline_wire::control::{Hello, Purpose, SessionGrant, SessionLimits, Token};

use super::{config, copy_of_this_program, join_as, run};

/// Length of a command, and of its answer.
const TEXT_BYTES: usize = 256;
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) fn trials(not_root: bool) -> Vec<Trial> {
    let trial = |name: &str, body: fn() -> Result<(), Failed>| {
        Trial::test(name, body).with_ignored_flag(not_root)
    };
    vec![
        trial("job_workers_reach_each_other_alone", || compare("local")),
        trial("job_workers_of_network_reach_the_host", || {
            compare("network")
        }),
        trial("job_without_namespaces_shares_the_hosts_network", || {
            without_namespaces()
        }),
    ]
}

// --- The worker -------------------------------------------------------------------------------------------------

/// Does what its client says, in a sealed worker.
pub(super) struct Rank;

impl Engine for Rank {
    fn snapshot(&self) -> Vec<u8> {
        // Without any, the supervisor waits for a worker that sees devices.
        b"none".to_vec()
    }

    fn run(self: Box<Self>, session: Session) -> Result<(), EngineError> {
        let (Some(lane), Some(second)) = (session.lanes.next(), session.lanes.next()) else {
            return Ok(());
        };
        let (commands, spare) = match lane.kind {
            towline_server::worker::process::LaneKind::Client { index: 0, .. } => (lane, second),
            _ => (second, lane),
        };
        let mut bytes = [0; TEXT_BYTES];
        while recv_exact(&*commands.connection, &mut bytes).is_ok() {
            let command = String::from_utf8_lossy(&bytes);
            let answer = match command.trim() {
                "library" => {
                    let grant = session.parameters.collectives.as_ref();
                    grant.map_or_else(|| "none".to_owned(), |grant| grant.library.clone())
                }
                command => obey(command, &spare),
            };
            let answer = format!("{answer:<TEXT_BYTES$}");
            commands
                .connection
                .send(&[IoSlice::new(&answer.as_bytes()[..TEXT_BYTES])])?;
        }
        Ok(())
    }
}

fn obey(command: &str, spare: &Lane) -> String {
    let (verb, object) = command.split_once(' ').unwrap_or((command, ""));
    match verb {
        "pid" => std::process::id().to_string(),
        "user" => rustix::process::geteuid().as_raw().to_string(),
        "variable" => std::env::var(object).unwrap_or_else(|_| "none".into()),
        "listen" => told(listen()),
        "connect" => told(connect(object)),
        "listen-local" => told(listen_locally(object)),
        "connect-local" => told(connect_locally(object)),
        "write" => told(std::fs::write(format!("/dev/shm/{object}"), object)),
        "read" => told(std::fs::read_to_string(format!("/dev/shm/{object}"))),
        "socket" => told(socket(object)),
        "interfaces" => told(interfaces()),
        "reconnect" => told(reconnect(spare, object)),
        "unpin" => told(unpin(spare)),
        "processes" => told(most_processes()),
        "linger" => told(linger()),
        _ => "what?".into(),
    }
}

fn told<T: Answer>(outcome: std::io::Result<T>) -> String {
    match outcome {
        Ok(value) => value.text(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

trait Answer {
    fn text(&self) -> String;
}

impl Answer for () {
    fn text(&self) -> String {
        "done".into()
    }
}

impl Answer for String {
    fn text(&self) -> String {
        self.clone()
    }
}

/// Greets all that connect to a new port of loopback.
fn listen() -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = (&stream).write_all(b"hello");
        }
    });
    Ok(port)
}

fn connect(port: &str) -> std::io::Result<String> {
    let address: SocketAddr = format!("127.0.0.1:{port}").parse().expect("a port");
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    let mut text = [0; 5];
    stream.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn listen_locally(name: &str) -> std::io::Result<()> {
    let listener = UnixListener::bind_addr(&LocalAddr::from_abstract_name(name)?)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = (&stream).write_all(b"hello");
        }
    });
    Ok(())
}

fn connect_locally(name: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect_addr(&LocalAddr::from_abstract_name(name)?)?;
    let mut text = [0; 5];
    stream.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn socket(family: &str) -> std::io::Result<()> {
    let protocol = match family {
        "netlink xfrm" => {
            rustix::net::Protocol::from_raw(rustix::net::RawProtocol::new(6).expect("it is not 0"))
                .into()
        }
        _ => None,
    };
    let (family, kind) = match family {
        "inet" => (libc::AF_INET, libc::SOCK_STREAM),
        "netlink" | "netlink xfrm" => (libc::AF_NETLINK, libc::SOCK_RAW),
        "packet" => (libc::AF_PACKET, libc::SOCK_DGRAM),
        _ => (libc::AF_VSOCK, libc::SOCK_STREAM),
    };
    let family = rustix::net::AddressFamily::from_raw(family as u16);
    let kind = rustix::net::SocketType::from_raw(kind as u32);
    rustix::net::socket(family, kind, protocol)?;
    Ok(())
}

/// As NCCL finds them: by NETLINK.
fn interfaces() -> std::io::Result<String> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the place is written by the call.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut names = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: an entry of the list, which lives to the end of this process.
        let entry = unsafe { &*next };
        // SAFETY: the name ends with a zero byte, and lives as long.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
        names.push(name.to_string_lossy().into_owned());
        next = entry.ifa_next;
    }
    names.sort();
    names.dedup();
    Ok(names.join(","))
}

/// Tries to have a lane, which is a socket of the host's network, lead to another port.
fn reconnect(spare: &Lane, port: &str) -> std::io::Result<()> {
    let target: SocketAddr = format!("127.0.0.1:{port}").parse().expect("a port");
    let socket = spare
        .connection
        .descriptor()
        .ok_or(std::io::ErrorKind::Unsupported)?;
    rustix::net::connect_unspec(socket)?;
    rustix::fs::fcntl_setfl(socket, rustix::fs::OFlags::NONBLOCK)?;
    match rustix::net::connect(socket, &target) {
        Err(Errno::INPROGRESS) => {}
        other => return Ok(other?),
    }
    let mut wait = [rustix::event::PollFd::new(
        &socket,
        rustix::event::PollFlags::OUT,
    )];
    let limit = rustix::event::Timespec::try_from(PATIENCE).expect("half a second");
    match rustix::event::poll(&mut wait, Some(&limit))? {
        0 => Err(Errno::TIMEDOUT.into()),
        _ => Ok(rustix::net::sockopt::socket_error(socket)??),
    }
}

/// Tries to take the filter off that keeps a lane with its peer.
fn unpin(spare: &Lane) -> std::io::Result<()> {
    let socket = spare.connection.descriptor();
    let socket = socket.ok_or(std::io::ErrorKind::Unsupported)?;
    let option = libc::SO_DETACH_FILTER;
    // SAFETY: the option takes no value.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const option).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// As many processes and threads as its user may have.
fn most_processes() -> std::io::Result<String> {
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let mut lines = limits.lines();
    let most = lines.find_map(|line| line.strip_prefix("Max processes"));
    let most = most.and_then(|most| most.split_whitespace().next());
    Ok(most.unwrap_or("none").to_owned())
}

/// Tries to have a close wait.
fn linger() -> std::io::Result<()> {
    let (socket, _other) = UnixStream::pair()?;
    let limit = Some(Duration::from_secs(1));
    Ok(rustix::net::sockopt::set_socket_linger(&socket, limit)?)
}

// --- The supervisor and its clients -----------------------------------------------------------------------------

const TENANTS: [&str; 2] = ["anna", "bert"];

fn secret_of(tenant: &str) -> Token {
    Token::from_bytes(format!("the token of {tenant}").as_bytes()).expect("long enough")
}

/// The place of a server that may not pin connections of a network on every system: local sockets need no pin.
fn place(reach: Reach) -> Address {
    let root = rustix::process::geteuid().is_root();
    let place = match reach {
        Reach::Local if !root => {
            format!("shm:///tmp/towline-rank-{}", std::process::id())
        }
        _ => "tcp://127.0.0.1:0".to_owned(),
    };
    place.parse().expect("an address")
}

/// The server, whose jobs reach what the second argument says.
fn serve(reach: Reach) -> Supervisor {
    let entries = TENANTS.map(|name| (name.to_owned(), TenantEntry::new(name, secret_of(name))));
    let config = config();
    let worker = WorkerProgram {
        path: WorkerProgram::this_program(),
        arguments: vec!["rank".into()],
        environment: config.worker.expect("one for OpenCL").environment,
        kind: WorkerKind::SoftCuda,
    };
    let supervisor = Supervisor::start(SupervisorConfig {
        listen: vec![place(reach)],
        tenants: Arc::new(TenantTable::listed(entries.into())),
        no_encryption: true,
        max_sessions: 100,
        limits: SessionLimits {
            max_lanes: 2,
            ..config.limits
        },
        worker: None,
        cuda_worker: Some(worker),
        collectives: Some(CollectivesConfig {
            reach,
            library: "libtest.so".into(),
            environment: vec![("NCCL_DEBUG".into(), "WARN".into())],
            keep_readable: Vec::new(),
        }),
        ..config
    });
    supervisor.unwrap_or_else(|error| panic!("{error}"))
}

/// A session.
struct Member {
    _control: Arc<dyn Connection>,
    grant: SessionGrant,
    lanes: Vec<Arc<dyn Connection>>,
}

impl Member {
    fn new(address: &Address, tenant: &str, job: &str) -> Self {
        let hello = Hello::new(
            Purpose::CudaSession,
            "rank",
            std::process::id(),
            "here",
            [7; 32],
        );
        let hello = hello.of_tenant(tenant).of_job(job);
        let (control, grant, lanes) = join_as(address, hello, Some(secret_of(tenant)), 2);
        Self {
            _control: control,
            grant,
            lanes,
        }
    }

    fn does(&self, command: impl Display) -> String {
        let command = format!("{:<TEXT_BYTES$}", command.to_string());
        let lane = &self.lanes[0];
        lane.send(&[IoSlice::new(command.as_bytes())])
            .expect("it reads");
        let mut answer = [0; TEXT_BYTES];
        recv_exact(&**lane, &mut answer).expect("it answers");
        String::from_utf8_lossy(&answer).trim().to_owned()
    }
}

/// Has two members of a job, one of another job, one of another tenant and one without a job try to reach each other, and prints a table.
pub(super) fn supervise() {
    let reach = match std::env::args().nth(2).as_deref() {
        Some("network") => Reach::Network,
        _ => Reach::Local,
    };
    let before = namespaces();
    let supervisor = serve(reach);
    let address = supervisor.addresses().remove(0);
    let first = Member::new(&address, "anna", "train");
    let others = [
        ("sibling", Member::new(&address, "anna", "train")),
        ("other job", Member::new(&address, "anna", "test")),
        ("other tenant", Member::new(&address, "bert", "train")),
        ("no job", Member::new(&address, "anna", "")),
    ];
    // A service of the host.
    let service = TcpListener::bind("127.0.0.1:0").expect("a port");
    let service_port = service.local_addr().expect("it has one").port();
    std::thread::spawn(move || {
        for stream in service.incoming().flatten() {
            let _ = (&stream).write_all(b"hello");
        }
    });
    let name = format!("rank-{}", std::process::id());
    let host_file = std::path::Path::new("/dev/shm").join(format!("{name}-host"));
    std::fs::write(&host_file, "the host's").expect("a file in memory");
    println!("granted: {}", first.grant.collectives);
    println!("library: {}", first.does("library"));
    println!("variable: {}", first.does("variable NCCL_DEBUG"));
    let alone = first.does("interfaces") == "lo";
    println!("interfaces: {}", if alone { "lo alone" } else { "more" });
    println!("socket packet: {}", first.does("socket packet"));
    println!("socket vsock: {}", first.does("socket vsock"));
    println!("socket netlink xfrm: {}", first.does("socket netlink xfrm"));
    println!("linger: {}", first.does("linger"));
    println!("most processes: {}", first.does("processes"));
    println!(
        "host service: {}",
        first.does(format!("connect {service_port}"))
    );
    println!("host file: {}", first.does(format!("read {name}-host")));
    std::fs::remove_file(&host_file).expect("it was made");
    let port = first.does("listen");
    println!(
        "listen-local: {}",
        first.does(format!("listen-local {name}"))
    );
    println!("write: {}", first.does(format!("write {name}")));
    for (who, other) in &others {
        println!("{who}: granted: {}", other.grant.collectives);
        println!("{who}: library: {}", other.does("library"));
        println!("{who}: variable: {}", other.does("variable NCCL_DEBUG"));
        println!("{who}: tcp: {}", other.does(format!("connect {port}")));
        println!(
            "{who}: local: {}",
            other.does(format!("connect-local {name}"))
        );
        let read = other.does(format!("read {name}"));
        println!("{who}: file: {}", read.replace(&name, "NAME"));
        println!("{who}: socket netlink: {}", other.does("socket netlink"));
        let same = |what: &str| other.does(what) == first.does(what);
        println!("{who}: same pid: {}", same("pid"));
        println!("{who}: same user: {}", same("user"));
    }
    println!(
        "lane leads elsewhere: {}",
        first.does(format!("reconnect {service_port}"))
    );
    // One without a job could give its lane to one that can connect.
    println!("no job: lane set free: {}", others[3].1.does("unpin"));
    // The job lives on without its first member, and is gone with its last.
    drop(first);
    println!(
        "later: file: {}",
        others[0]
            .1
            .does(format!("read {name}"))
            .replace(&name, "NAME")
    );
    drop(others);
    let deadline = Instant::now() + Duration::from_secs(20);
    while supervisor.sessions() > 0 {
        assert!(Instant::now() < deadline, "sessions do not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    let again = Member::new(&address, "anna", "train");
    println!("again: file: {}", again.does(format!("read {name}")));
    drop(again);
    supervisor.stop();
    // Workers that share the host's have left it there.
    let _ = std::fs::remove_file(std::path::Path::new("/dev/shm").join(&name));
    let left = rustix::process::waitpid(None, rustix::process::WaitOptions::NOHANG);
    println!(
        "left behind: {}",
        if left.is_err() {
            "no process"
        } else {
            "a process"
        }
    );
    println!(
        "namespaces: {}",
        if namespaces() == before {
            "as before"
        } else {
            "more"
        }
    );
}

/// Descriptors of namespaces that this process holds.
fn namespaces() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd")
        .expect("/proc is mounted")
        .flatten();
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets
        .filter(|target| {
            let target = target.to_string_lossy();
            ["net:[", "mnt:[", "user:["]
                .iter()
                .any(|kind| target.starts_with(kind))
        })
        .count()
}

// --- The tests --------------------------------------------------------------------------------------------------

fn compare(reach: &str) -> Result<(), Failed> {
    let (_folder, program) = copy_of_this_program(0o755)?;
    let goldens = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jail/goldens");
    for (name, uid) in [("root", "0"), ("user", "65534")] {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", uid, "--regid", uid, "--clear-groups"])
            .arg(&program)
            .args(["jobs", reach])
            .env("TOWLINE_LOG", "warn");
        let (table, log) = run(&mut command)?;
        let golden = goldens.join(format!("job-{reach}-{name}"));
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::write(&golden, &table)?;
        }
        let expected = std::fs::read_to_string(&golden)?;
        assert_eq!(table, expected, "{reach} as {name}: {log}");
        assert!(!log.contains("the jail is incomplete"), "{log}");
    }
    Ok(())
}

/// As in a container that may not make namespaces.
fn without_namespaces() -> Result<(), Failed> {
    let (_folder, program) = copy_of_this_program(0o755)?;
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", "-sys_admin"])
        .arg(program)
        .args(["jobs", "local"]);
    let (table, log) = run(command.env("TOWLINE_LOG", "warn"))?;
    assert!(table.contains("sibling: tcp: hello\n"), "{table}{log}");
    assert!(
        table.contains("no job: tcp: PermissionDenied\n"),
        "{table}{log}"
    );
    assert!(log.contains("share the network of this host"), "{log}");
    Ok(())
}
