//! A real device runtime inside the jail: PoCL compiles, links and loads kernels, which is what jails break.
//!
//! Like `supervisor.rs` this program is its own worker, and with the argument `supervise` its own supervisor, so that it
//! can be run as another user and from a folder that workers cannot enter.

#[cfg(target_arch = "x86_64")]
mod attacks;
mod job;

use std::ffi::{CStr, OsString};
use std::io::IoSlice;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use libtest_mimic::{Arguments, Failed, Trial};
use towline_backend::opencl::*;
use towline_server::supervisor::{
    ImageConfig, JailConfig, KernelConfig, MostAhead, Quota, ServerLimits, Supervisor,
    SupervisorConfig, TenantTable,
};
use towline_server::worker::process::{self, Engine, EngineError, Session};
use towline_sys::jail::{UnprivilegedUser, WorkerKind};
use towline_sys::process::WorkerProgram;
use towline_transport::{Address, ConnectOptions, Connection, Registry, recv_exact};
use towline_wire::control::{
    AttachPreamble, Channel, ClientHandshake, ClientProgress, Hello, MessageBuffer, Purpose,
    ServerIdentity, SessionGrant, SessionLimits, Token, limits,
};

/// The vendors to test with; those of OCL_ICD_VENDORS on a machine where it is set.
fn vendors() -> PathBuf {
    std::env::var_os("OCL_ICD_VENDORS").map_or_else(|| "/etc/OpenCL/vendors".into(), PathBuf::from)
}

/// Length of what the engine reports.
const REPORT_BYTES: usize = 32 << 10;
/// The path of the server's secret.
const TOKEN: &str = "TEST_TOKEN";
/// The server's process id.
const SERVER: &str = "TEST_SERVER";
/// The folder where the server keeps compiled kernels.
const KERNELS: &str = "TEST_KERNELS";

fn main() {
    env_logger::Builder::from_env(env_logger::Env::new().filter("TOWLINE_LOG")).init();
    match std::env::args().nth(1).as_deref() {
        Some("worker") => process::main(
            || {},
            || {
                Ok(Box::new(Compiler(NativeOpenCl::from_vendors(
                    &vendors(),
                    &|_| false,
                )?)))
            },
        ),
        Some("supervise") => return supervise(),
        Some("serve-everybody") => return serve_everybody(),
        Some("rank") => process::main(|| {}, || Ok(Box::new(job::Rank))),
        Some("jobs") => return job::supervise(),
        _ => {}
    }
    let no_vendor = std::fs::read_dir(vendors()).map_or(0, Iterator::count) == 0;
    let not_root = !rustix::process::geteuid().is_root();
    let trials = vec![
        Trial::test(
            "root_in_a_private_folder_builds_kernels_in_the_jail",
            root_in_a_private_folder,
        )
        .with_ignored_flag(no_vendor || not_root),
        Trial::test(
            "unprivileged_user_builds_kernels_in_the_jail",
            unprivileged_user,
        )
        .with_ignored_flag(no_vendor || not_root),
        Trial::test(
            "root_without_namespaces_still_gives_up_its_rights",
            without_namespaces,
        )
        .with_ignored_flag(no_vendor || not_root),
        Trial::test(
            "workers_of_one_user_without_namespaces_serve_no_other_machine",
            one_user_without_namespaces,
        )
        .with_ignored_flag(no_vendor || not_root),
        Trial::test("hostile_kernel_reaches_what_its_table_says", hostile_kernel)
            .with_ignored_flag(no_vendor || not_root || !cfg!(target_arch = "x86_64")),
        Trial::test(
            "session_starts_with_cold_caches_and_leaves_none",
            cold_caches,
        )
        .with_ignored_flag(no_vendor),
        Trial::test(
            "later_session_compiles_nothing_as_root_and_other_user",
            later_session,
        )
        .with_ignored_flag(no_vendor || not_root),
    ];
    let trials = trials.into_iter().chain(job::trials(not_root)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

// --- The worker -------------------------------------------------------------------------------------------------

struct Compiler(NativeOpenCl);

impl Engine for Compiler {
    fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    fn run(self: Box<Self>, session: Session) -> Result<(), EngineError> {
        let Some(lane) = session.lanes.next() else {
            return Ok(());
        };
        let report = match std::env::var(TOKEN) {
            Ok(token) => attack(&self.0, &token)?,
            Err(_) => compile(&self.0)?,
        };
        lane.connection
            .send(&[IoSlice::new(format!("{report:<REPORT_BYTES$}").as_bytes())])?;
        while session.lanes.next().is_some() {}
        Ok(())
    }
}

fn compile(api: &NativeOpenCl) -> Result<String, EngineError> {
    let began = SystemTime::now();
    // SAFETY: the caller contract of each OpenCL call is upheld in the function.
    let result = unsafe { build_and_run(api) };
    let compiled = count_compiled(Path::new(&std::env::var("XDG_CACHE_HOME")?), began);
    let uid = rustix::process::geteuid().as_raw();
    let caches = count_files(Path::new(&std::env::var("HOME")?));
    let folder = std::env::var("HOME")?;
    Ok(format!(
        "result={result:?} uid={uid} home={folder} compiled={compiled} cached_files={caches}"
    ))
}

#[cfg(target_arch = "x86_64")]
fn attack(api: &NativeOpenCl, token: &str) -> Result<String, EngineError> {
    let server = std::env::var(SERVER)?.parse()?;
    // SAFETY: PoCL works, and computes on this processor.
    Ok(unsafe { attacks::report(api, token, server) })
}

#[cfg(not(target_arch = "x86_64"))]
fn attack(_: &NativeOpenCl, _: &str) -> Result<String, EngineError> {
    Err("the attacks are written for x86-64".into())
}

fn count_files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            if entry.path().is_dir() {
                count_files(&entry.path())
            } else {
                1
            }
        })
        .sum()
}

/// Files with anything in them that were written since `began`.
fn count_compiled(folder: &Path, began: SystemTime) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let counts = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => count_compiled(&entry.path(), began),
        Ok(data) if data.len() > 0 => {
            usize::from(data.modified().is_ok_and(|modified| modified >= began))
        }
        _ => 0,
    });
    counts.sum()
}

const SOURCE: &CStr =
    c"kernel void f(global float *a) { size_t i = get_global_id(0); a[i] = sqrt(a[i]) + i; }";

/// Builds a kernel, runs it over 64 numbers and gives the last: 2 + 63.
///
/// # Safety
/// `api` is a working OpenCL runtime with at least one device.
#[allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one plain OpenCL program, as in C"
)]
unsafe fn build_and_run(api: &dyn OpenClApi) -> Result<f32, cl_int> {
    use std::ptr::{null, null_mut};
    let check = |status: cl_int| {
        if status == CL_SUCCESS {
            Ok(())
        } else {
            Err(status)
        }
    };
    let (mut platform, mut device, mut status) = (null_mut(), null_mut(), 0);
    let mut numbers = [4f32; 64];
    let size = std::mem::size_of_val(&numbers);
    // SAFETY: objects come from the calls before and live to the end; pointers are to locals of the size that is given.
    unsafe {
        check(api.clGetPlatformIDs(1, &raw mut platform, null_mut()))?;
        check(api.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &raw mut device, null_mut()))?;
        let context = api.clCreateContext(
            null(),
            1,
            &raw const device,
            None,
            null_mut(),
            &raw mut status,
        );
        check(status)?;
        let queue = api.clCreateCommandQueue(context, device, 0, &raw mut status);
        check(status)?;
        let mut source = SOURCE.as_ptr();
        let program = api.clCreateProgramWithSource(
            context,
            1,
            (&raw mut source).cast(),
            null(),
            &raw mut status,
        );
        check(status)?;
        check(api.clBuildProgram(
            program,
            1,
            &raw const device,
            c"".as_ptr(),
            None,
            null_mut(),
        ))?;
        let kernel = api.clCreateKernel(program, c"f".as_ptr(), &raw mut status);
        check(status)?;
        let flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
        let memory = api.clCreateBuffer(
            context,
            flags,
            size,
            numbers.as_mut_ptr().cast(),
            &raw mut status,
        );
        check(status)?;
        check(api.clSetKernelArg(
            kernel,
            0,
            std::mem::size_of_val(&memory),
            (&raw const memory).cast(),
        ))?;
        let count = numbers.len();
        check(api.clEnqueueNDRangeKernel(
            queue,
            kernel,
            1,
            null(),
            &raw const count,
            null(),
            0,
            null(),
            null_mut(),
        ))?;
        let target = numbers.as_mut_ptr().cast();
        check(api.clEnqueueReadBuffer(
            queue,
            memory,
            CL_TRUE,
            0,
            size,
            target,
            0,
            null(),
            null_mut(),
        ))?;
    }
    Ok(numbers[63])
}

// --- The supervisor and its client ------------------------------------------------------------------------------

/// Serves one session, is its client too, and prints the engine's report.
fn supervise() {
    let supervisor = Supervisor::start(config());
    let supervisor = supervisor.unwrap_or_else(|error| panic!("{error}"));
    let (control, lane) = join(&supervisor.addresses()[0]);
    let mut report = [0; REPORT_BYTES];
    recv_exact(&*lane, &mut report).expect("the engine reports");
    println!("{}", String::from_utf8_lossy(&report).trim_end());
    drop(control);
    supervisor.stop();
    // What a worker has left would be ours by now.
    let left = rustix::process::waitpid(None, rustix::process::WaitOptions::NOHANG);
    println!(
        "left behind: {}",
        if left.is_err() {
            "nothing"
        } else {
            "a process"
        }
    );
}

/// Tries to serve other machines with workers of one user, and says how that went.
fn serve_everybody() {
    let mut config = config();
    config.listen = vec!["tcp://0.0.0.0:0".parse().expect("an address")];
    let token = Token::from_bytes(b"sixteen bytes or more").expect("long enough");
    config.tenants = Arc::new(TenantTable::single(Some(token)));
    config.jail.user = Some(UnprivilegedUser::named("nobody").expect("an account"));
    match Supervisor::start(config) {
        Ok(_) => println!("serves"),
        Err(error) => println!("{error}"),
    }
}

fn config() -> SupervisorConfig {
    let token = std::env::var_os(TOKEN);
    let kernels = std::env::var_os(KERNELS).map(PathBuf::from);
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| {
            ["TOWLINE_LOG", "PATH", "OCL_ICD_VENDORS", TOKEN]
                .iter()
                .any(|wanted| name == wanted)
        })
        .collect();
    environment.push((SERVER.into(), std::process::id().to_string().into()));
    SupervisorConfig {
        listen: vec!["tcp://127.0.0.1:0".parse().expect("an address")],
        tenants: Arc::new(TenantTable::single(None)),
        leases: None,
        tls: towline_transport::tls::ServerTls {
            identity: towline_transport::tls::Identity::generate().unwrap().0,
            authority: None,
        },
        no_encryption: false,
        peer_token: None,
        insecure: false,
        peers: Vec::new(),
        max_sessions: 1,
        audit_log: None,
        metrics: None,
        quota: Quota {
            temporary_bytes: 1 << 30,
            processes: 1024,
            ..Quota::default()
        },
        bounds: ServerLimits::default(),
        limits: SessionLimits {
            max_lanes: 1,
            payload_lanes: 0,
            chunk_bytes: 4096,
            chunk_count: 2,
        },
        worker: Some(WorkerProgram {
            path: WorkerProgram::this_program(),
            arguments: vec!["worker".into()],
            environment,
            kind: WorkerKind::OpenCl,
        }),
        cuda_worker: None,
        cuda_is_expected: true,
        most_ahead: MostAhead { opencl: 1, cuda: 1 },
        collectives: None,
        nvml_worker: None,
        images: ImageConfig::default(),
        kernels: kernels.clone().map(|folder| KernelConfig {
            folder,
            bytes: 64 << 20,
            scope: "test".into(),
        }),
        jail: JailConfig {
            hide: token
                .map(PathBuf::from)
                .into_iter()
                .chain(kernels)
                .collect(),
            ..JailConfig::default()
        },
        identity: ServerIdentity::default(),
    }
}

fn join(address: &Address) -> (Arc<dyn Connection>, Arc<dyn Connection>) {
    let hello = Hello::new(
        Purpose::Session,
        "jail",
        std::process::id(),
        "here",
        [7; 32],
    );
    let (control, _, mut lanes) = join_as(address, hello, None, 1);
    (control, lanes.remove(0))
}

/// Begins a session, and opens so many lanes.
fn join_as(
    address: &Address,
    hello: Hello,
    token: Option<Token>,
    lane_count: u16,
) -> (Arc<dyn Connection>, SessionGrant, Vec<Arc<dyn Connection>>) {
    let control = Registry::global()
        .connect(address, &ConnectOptions::control())
        .expect("it listens");
    let (mut handshake, first) = ClientHandshake::start(hello, token, Channel::Clear);
    control.send(&[IoSlice::new(&first)]).expect("it reads");
    let mut buffer = MessageBuffer::new(limits::SERVER_MESSAGE_BYTES);
    let welcome = loop {
        let Some(frame) = buffer.next_frame().expect("a message") else {
            let mut bytes = [0; 4096];
            let count = control.recv(&mut bytes).expect("an answer");
            assert_ne!(count, 0, "closed instead of answered");
            buffer.push(&bytes[..count]);
            continue;
        };
        match handshake.receive(&frame) {
            Ok(ClientProgress::Done(welcome)) => break welcome,
            Ok(ClientProgress::Send(proof)) => {
                control.send(&[IoSlice::new(&proof)]).expect("it reads")
            }
            Ok(ClientProgress::Wait) => {}
            Err(error) => panic!("not let in: {error}"),
        }
    };
    let grant = welcome.session.expect("a session");
    let open = |lane_index| {
        let lane = Registry::global()
            .connect(address, &ConnectOptions::default())
            .expect("it listens");
        let preamble = AttachPreamble {
            ticket: grant.ticket.clone(),
            lane_index,
            lane_count,
            again: false,
        };
        lane.send(&[IoSlice::new(&preamble.encode())])
            .expect("it reads");
        lane
    };
    let lanes = (0..lane_count).map(open).collect();
    (control, grant, lanes)
}

// --- The tests --------------------------------------------------------------------------------------------------

/// Runs `command` with a time limit, and gives what it printed on standard output and error.
fn run(command: &mut Command) -> Result<(String, String), Failed> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let killer = rustix::process::pidfd_open(
        rustix::process::Pid::from_child(&child),
        rustix::process::PidfdFlags::empty(),
    )?;
    let (done, finished) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if finished.recv_timeout(Duration::from_secs(60)).is_err() {
            let _ = rustix::process::pidfd_send_signal(&killer, rustix::process::Signal::KILL);
        }
    });
    let mut errors = child.stderr.take().expect("piped");
    let reader =
        std::thread::spawn(move || std::io::read_to_string(&mut errors).unwrap_or_default());
    let output = std::io::read_to_string(child.stdout.take().expect("piped"))?;
    child.wait()?;
    let _ = done.send(());
    watch.join().expect("the watch does not panic");
    Ok((output, reader.join().expect("the reader does not panic")))
}

/// A copy of this program in a folder of `mode`.
fn copy_of_this_program(mode: u32) -> std::io::Result<(tempfile::TempDir, std::path::PathBuf)> {
    let folder = tempfile::tempdir()?;
    std::fs::DirBuilder::new()
        .mode(mode)
        .create(folder.path().join("checkout"))?;
    let program = folder.path().join("checkout/program");
    // By a process of its own: a process that another test starts just then would hold what we write the copy through until it runs its
    // program, and a program that somebody may write to cannot be started.
    let mut copy = Command::new("cp");
    let copied = copy.arg(std::env::current_exe()?).arg(&program).status()?;
    assert!(copied.success(), "{copied}");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode))?;
    Ok((folder, program))
}

fn root_in_a_private_folder() -> Result<(), Failed> {
    let (_folder, program) = copy_of_this_program(0o700)?;
    let (output, errors) = run(Command::new(program)
        .arg("supervise")
        .env("TOWLINE_LOG", "warn"))?;
    assert!(
        output.starts_with("result=Ok(65.0) uid="),
        "{output}{errors}"
    );
    assert!(!output.contains("uid=0 "), "{output}");
    assert!(!errors.contains("the jail is incomplete"), "{errors}");
    Ok(())
}

fn unprivileged_user() -> Result<(), Failed> {
    let (_folder, program) = copy_of_this_program(0o755)?;
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(program)
        .arg("supervise");
    let (output, errors) = run(command.env("TOWLINE_LOG", "warn"))?;
    assert!(
        output.starts_with("result=Ok(65.0) uid=65534 "),
        "{output}{errors}"
    );
    Ok(())
}

/// As in a container that may not make namespaces.
fn without_namespaces() -> Result<(), Failed> {
    let (_folder, program) = copy_of_this_program(0o755)?;
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", "-sys_admin"])
        .arg(program)
        .arg("supervise");
    let (output, errors) = run(command.env("TOWLINE_LOG", "warn"))?;
    assert!(
        output.starts_with("result=Ok(65.0) uid=6"),
        "{output}{errors}"
    );
    assert!(
        output.contains("/worker-1 "),
        "its home is a folder of the supervisor's: {output}"
    );
    assert!(
        errors.contains("does not permit it: a mount namespace"),
        "{errors}"
    );
    Ok(())
}

fn one_user_without_namespaces() -> Result<(), Failed> {
    let (_folder, program) = copy_of_this_program(0o755)?;
    let (output, errors) = run(Command::new(&program).arg("serve-everybody"))?;
    assert_eq!(output, "serves\n", "{errors}");
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", "-sys_admin"])
        .arg(program)
        .arg("serve-everybody");
    let (output, errors) = run(&mut command)?;
    assert!(
        output.contains("Operation not permitted") && output.contains("--shared-user"),
        "{output}{errors}"
    );
    Ok(())
}

/// Native code of a client in the worker of a server of root, and of another user.
fn hostile_kernel() -> Result<(), Failed> {
    let (_folder, program) = copy_of_this_program(0o755)?;
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jail/goldens");
    for (name, uid) in [("root", 0), ("user", 65534)] {
        let secrets = tempfile::tempdir_in("/var")?;
        std::fs::set_permissions(secrets.path(), std::fs::Permissions::from_mode(0o755))?;
        let token = secrets.path().join("token");
        std::fs::write(&token, "a secret of the server's")?;
        std::os::unix::fs::chown(&token, Some(uid), Some(uid))?;
        let kernels = secrets.path().join("kernels");
        std::fs::DirBuilder::new().mode(0o700).create(&kernels)?;
        std::os::unix::fs::chown(&kernels, Some(uid), Some(uid))?;
        let mut command = Command::new("setpriv");
        let user = uid.to_string();
        command
            .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
            .arg(&program)
            .arg("supervise")
            .env(TOKEN, &token)
            .env(KERNELS, &kernels)
            .env("TOWLINE_LOG", "warn");
        let (table, log) = run(&mut command)?;
        assert!(!log.contains("the jail is incomplete"), "{log}");
        let golden = goldens.join(name);
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::write(&golden, &table)?;
        }
        let expected = std::fs::read_to_string(&golden)?;
        let differing: Vec<_> = table
            .lines()
            .filter(|line| !expected.lines().any(|known| known == *line))
            .collect();
        assert_eq!(table, expected, "as {name}: {differing:#?}\n{log}");
        // What it wrote into the log says whose it is, and gives no orders to a terminal.
        let forged = log.lines().find(|line| line.contains("forged"));
        let forged = forged.unwrap_or_else(|| panic!("no line of the worker's in {log}"));
        assert!(
            forged.starts_with("towline: worker ")
                && forged.ends_with(" (session 1): \\u{1b}[2Jforged"),
            "{forged}"
        );
        // The server has kept what is a kernel, as files of its own.
        let stores: Vec<_> = std::fs::read_dir(&kernels)?.collect::<Result<_, _>>()?;
        let kept: Vec<_> = std::fs::read_dir(stores[0].path())?.collect::<Result<_, _>>()?;
        assert!(stores.len() == 1 && kept.len() >= 2, "{stores:?} {kept:?}");
        for file in kept {
            let data = file.path().symlink_metadata()?;
            assert!(data.is_file(), "{file:?}");
            let bytes = std::fs::read(file.path())?;
            let secret = b"a secret of the server's";
            let leaks = bytes.windows(secret.len()).any(|part| part == secret);
            assert!(!leaks, "{file:?} is the token");
        }
    }
    Ok(())
}

fn later_session() -> Result<(), Failed> {
    let (_folder, program) = copy_of_this_program(0o755)?;
    for uid in ["0", "65534"] {
        let kernels = tempfile::tempdir_in("/var")?;
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(kernels.path(), private)?;
        let owner = Some(uid.parse()?);
        std::os::unix::fs::chown(kernels.path(), owner, owner)?;
        let serve = || {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid", uid, "--regid", uid, "--clear-groups"])
                .arg(&program)
                .arg("supervise")
                .env(KERNELS, kernels.path())
                .env("TOWLINE_LOG", "warn");
            run(&mut command)
        };
        let (first, errors) = serve()?;
        assert!(first.starts_with("result=Ok(65.0) "), "{first}{errors}");
        assert!(!first.contains(" compiled=0 "), "{first}{errors}");
        assert!(!errors.contains("not kept"), "{errors}");
        // Another server, and so a worker of another user where each has its own.
        let (second, errors) = serve()?;
        assert!(second.starts_with("result=Ok(65.0) "), "{second}{errors}");
        assert!(second.contains(" compiled=0 "), "{second}{errors}");
    }
    Ok(())
}

fn cold_caches() -> Result<(), Failed> {
    let program = std::env::current_exe()?;
    let count = |output: &str| {
        let report = output.lines().next().unwrap_or_default();
        report
            .rsplit_once('=')
            .and_then(|(_, count)| count.parse::<usize>().ok())
    };
    let (first, errors) = run(Command::new(&program).arg("supervise"))?;
    let (second, _) = run(Command::new(&program).arg("supervise"))?;
    // What is cached is in the session's own home, and is as much the second time.
    assert!(
        count(&first).is_some_and(|files| files > 0),
        "{first}{errors}"
    );
    assert_eq!(count(&first), count(&second));
    Ok(())
}
