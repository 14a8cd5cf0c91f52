//! Worker processes, from the supervisor's side and from their own.
//!
//! A worker is a new execution of this very program, not a fork: driver state does not survive a fork. It is started
//! from `/proc/self/exe`, so it is the same program even when the file on disk was replaced or lies in a folder that
//! the worker's later user cannot enter.

#![allow(unsafe_code)]

mod job;
mod separate;
mod start;

use std::ffi::OsString;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions,
};

pub use self::job::{JobNamespaces, can_have_network};
pub use self::separate::{can_change_user, can_separate};
pub(crate) use self::separate::{in_child, settle_user_namespace};
use self::start::{Namespaces, Plan};
use crate::channel::{Channel, wait_readable};
use crate::jail::WorkerKind;
use crate::{Context, SysError, signals};

/// Where a worker finds its end of the channel.
pub const CHANNEL_DESCRIPTOR: RawFd = 3;

/// What to start.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    /// The program; [`WorkerProgram::this_program`] in production.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment: nothing is inherited.
    pub environment: Vec<(OsString, OsString)>,
    /// What it does, and so what it may do.
    pub kind: WorkerKind,
}

impl WorkerProgram {
    /// This program, whatever has become of its file.
    pub fn this_program() -> PathBuf {
        PathBuf::from("/proc/self/exe")
    }
}

/// A worker that was just started.
#[derive(Debug)]
pub struct Started {
    /// The process.
    pub process: WorkerProcess,
    /// The reading end of its standard output and error. The worker waits when nobody reads.
    pub output: OwnedFd,
    /// Why it has no PID namespace of its own, where it was to have one.
    pub missing: Option<String>,
}

/// A child process that leads a session and process group of its own. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct WorkerProcess {
    leader: Arc<Leader>,
    /// It is the first process of a PID namespace.
    is_first: bool,
}

/// Kills a worker from any thread, also while another waits for its end.
#[derive(Clone, Debug)]
pub struct Killer(Arc<Leader>);

/// The process that leads a process group.
#[derive(Debug)]
struct Leader {
    pid: Pid,
    pidfd: OwnedFd,
    reaped: Mutex<bool>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Someone else reaped it.
    Unknown,
}

impl Exit {
    /// Whether the process ended as it should.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

/// What [`crate::crash`] adds to a signal's number to end the first process of a PID namespace, on which signals of its own have no effect.
pub(crate) const SIGNAL_CODE: i32 = 128;

impl Exit {
    /// How the first process of a PID namespace ended.
    fn of_first(code: i32) -> Self {
        match code - SIGNAL_CODE {
            signal @ 1..=31 => Self::Signal(signal),
            _ => Self::Code(code),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => f.write_str(&signals::signal_name(*signal)),
            Self::Unknown => f.write_str("unknown cause"),
        }
    }
}

impl WorkerProcess {
    /// Starts `program` with `channel` as descriptor 3, standard input on /dev/null, standard output and error on a pipe,
    /// and nothing else open. It dies with this process, whichever thread calls this.
    ///
    /// With `own_pids` it is the first process of a PID namespace, if the system permits that: everything it starts ends with it,
    /// and it can name no process but those.
    pub fn start(
        program: &WorkerProgram,
        channel: Channel,
        own_pids: bool,
    ) -> Result<Started, SysError> {
        Self::start_in(program, channel, own_pids, None)
    }

    /// As [`start`](Self::start), in the namespaces of a job, whose workers know each other by their numbers: none is first in a namespace.
    pub fn start_of_job(
        program: &WorkerProgram,
        channel: Channel,
        job: Option<Arc<JobNamespaces>>,
    ) -> Result<Started, SysError> {
        Self::start_in(program, channel, false, job)
    }

    fn start_in(
        program: &WorkerProgram,
        channel: Channel,
        own_pids: bool,
        job: Option<Arc<JobNamespaces>>,
    ) -> Result<Started, SysError> {
        let action = || format!("start {}", program.path.display());
        let (output, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .while_trying_to("make a pipe")?;
        let plan = Plan::new(program, channel.into_descriptor(), writer, apart(), job);
        let plan = Arc::new(plan.while_trying_to(action())?);
        let mut missing = None;
        let mut started = match own_pids {
            true => plan.start(Namespaces::own()),
            false => plan.start(Namespaces::Ours),
        };
        let mut is_first = own_pids;
        if let (true, Err(error)) = (own_pids, &started) {
            missing = Some(format!("a PID namespace: {error}"));
            is_first = false;
            started = plan.start(Namespaces::Ours);
        }
        let (pid, pidfd) = started.while_trying_to(action())?;
        Ok(Started {
            process: Self {
                leader: Arc::new(Leader {
                    pid,
                    pidfd,
                    reaped: Mutex::new(false),
                }),
                is_first,
            },
            output,
            missing,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.leader.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The means to kill it from other threads.
    pub fn killer(&self) -> Killer {
        Killer(Arc::clone(&self.leader))
    }

    /// Waits until it has ended; `false` when `timeout` passed first. It stays to be reaped.
    pub fn wait_ended(&self, timeout: Duration) -> bool {
        // An error of poll can only mean that the descriptor is unusable; then the caller goes on to kill and reap.
        wait_readable(self.leader.pidfd.as_fd(), timeout).unwrap_or(true)
    }

    /// Kills it and everything it started, and waits for the end. Says how it ended, which is how it would have ended
    /// without this call if it was dead already.
    pub fn kill_and_reap(self) -> Exit {
        self.kill_and_reap_once()
    }

    fn kill_and_reap_once(&self) -> Exit {
        self.leader.kill();
        let exit = match self.leader.reap() {
            Exit::Code(code) if self.is_first => Exit::of_first(code),
            exit => exit,
        };
        // What the worker started itself (a compiler, a linker) came to us as subreaper: leave no zombies.
        while let Ok(Some(_)) = rustix::process::waitpgid(self.leader.pid, WaitOptions::empty()) {}
        exit
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if !*self.leader.reaped() {
            self.kill_and_reap_once();
        }
    }
}

impl Killer {
    /// Kills the worker and everything it started, unless it has been reaped. Does not wait.
    pub fn kill(&self) {
        self.0.kill();
    }
}

impl Leader {
    fn reaped(&self) -> MutexGuard<'_, bool> {
        self.reaped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self) {
        let reaped = self.reaped();
        if !*reaped {
            // The group's number stays reserved as long as its leader is not reaped, so this cannot hit strangers. It
            // fails only when all of the group is gone.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// Waits for the end, while others may kill.
    fn reap(&self) -> Exit {
        let pidfd = self.pidfd.as_fd();
        wait(pidfd, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let mut reaped = self.reaped();
        *reaped = true;
        wait(pidfd, WaitIdOptions::EXITED)
    }
}

fn wait(pidfd: BorrowedFd<'_>, options: WaitIdOptions) -> Exit {
    loop {
        match rustix::process::waitid(WaitId::PidFd(pidfd), options) {
            Err(Errno::INTR) => {}
            Err(_) | Ok(None) => return Exit::Unknown,
            Ok(Some(status)) => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => Exit::Unknown,
                };
            }
        }
    }
}

/// How far below the top of its addresses a worker's libraries, and what drivers map, shall begin.
///
/// Device memory lies where the worker's system put it, and a client's process has to have nothing there, nor another worker whose
/// devices the same client uses. All begin at the top otherwise. By chance, then: between what programs that map nothing fixed
/// have there, and the program itself further down.
fn apart() -> u64 {
    const NEAREST: u64 = 48 << 40;
    const ROOM: u64 = 32 << 40;
    // The keys of a new map are random, which is what is needed of it.
    NEAREST + RandomState::new().hash_one(NEAREST) % ROOM
}

/// Lets a worker's stacks be as large as usual again, after [`apart`].
fn limit_stacks() -> Result<(), SysError> {
    let usual = 8 << 20;
    let maximum = rustix::process::getrlimit(Resource::Stack).maximum;
    let current = Some(maximum.map_or(usual, |maximum| maximum.min(usual)));
    rustix::process::setrlimit(Resource::Stack, Rlimit { current, maximum })
        .while_trying_to("limit the stack")?;
    let done = |code| match code {
        0 => Ok(()),
        code => {
            let error = std::io::Error::from_raw_os_error(code);
            Err(SysError::new(
                "give threads stacks of the usual size",
                error,
            ))
        }
    };
    let mut attributes = std::mem::MaybeUninit::uninit();
    // SAFETY: the place is large enough.
    done(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
    // SAFETY: they were initialised just now.
    let mut attributes = unsafe { attributes.assume_init() };
    // SAFETY: they are initialised, and nobody else's; so in what follows.
    done(unsafe { libc::pthread_attr_setstacksize(&raw mut attributes, usual as usize) })?;
    // By name, since glibc 2.17 lacks it, on which client libraries and this program's other commands run. A server needs glibc 2.18.
    // SAFETY: the name ends with a zero byte.
    let function =
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pthread_setattr_default_np".as_ptr()) };
    type SetDefault = unsafe extern "C" fn(*const libc::pthread_attr_t) -> libc::c_int;
    // SAFETY: a function of that name has this type, by which threads get their stacks that say nothing of them; null is `None`.
    let function: Option<SetDefault> = unsafe { std::mem::transmute(function) };
    if let Some(set_default) = function {
        // SAFETY: they are initialised; the function copies them.
        done(unsafe { set_default(&raw const attributes) })?;
    }
    // SAFETY: as above, and this is their last use.
    done(unsafe { libc::pthread_attr_destroy(&raw mut attributes) })
}

/// Takes some addresses, as many as chance will have it, from where NVIDIA's driver (580.159, for one) begins to give out those of
/// pools and of reservations. Call it before the driver is opened.
///
/// It takes the first that are free there, which is the same place in every process: a client of two servers would get one address
/// from both. Older devices know no more than a terabyte of addresses, so that is not used up.
pub fn shift_drivers_addresses() {
    const FIRST: usize = 0x3_0200_0000;
    const STEP: usize = 2 << 20;
    const ROOM: usize = 512 << 30;
    let steps = RandomState::new().hash_one(FIRST) as usize % (ROOM / STEP) + 1;
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let first = std::ptr::without_provenance_mut(FIRST);
    // Where they are not free, the driver goes elsewhere anyway.
    // SAFETY: replaces nothing, and nobody can look at what it maps.
    unsafe { libc::mmap(first, steps * STEP, libc::PROT_NONE, flags, -1, 0) };
}

/// In a worker: takes the channel that [`WorkerProcess::start`] put there.
///
/// Call it once, first thing in `main`. Fails when this process was not started as a worker.
pub fn take_channel() -> Result<Channel, SysError> {
    let action =
        "take the supervisor's channel: this subcommand is started by `towline serve`, not by hand";
    // SAFETY: nothing has been opened yet, so nobody else owns the descriptor; the borrow ends in this function.
    let inherited = unsafe { BorrowedFd::borrow_raw(CHANNEL_DESCRIPTOR) };
    let kind = rustix::net::sockopt::socket_type(inherited).while_trying_to(action)?;
    if kind != rustix::net::SocketType::SEQPACKET {
        return Err(SysError::new(action, Errno::NOTSOCK));
    }
    rustix::io::fcntl_setfd(inherited, rustix::io::FdFlags::CLOEXEC).while_trying_to(action)?;
    limit_stacks()?;
    // SAFETY: it is open (above), and this process was executed with it for us to own.
    let owned = unsafe { OwnedFd::from_raw_fd(CHANNEL_DESCRIPTOR) };
    Ok(Channel::from_descriptor(owned))
}

/// Has the kernel kill this process when its parent's thread ends. A change of user clears it, so it is set again then.
pub fn die_with_parent() -> std::io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(
        Signal::KILL,
    ))?)
}

/// Has the kernel kill what `command` starts when the thread that starts it ends, this process's end included, whatever ended it.
///
/// For tools that are started and waited for by the same thread. What they start themselves lives on.
pub fn tie_to_starter(command: &mut Command) -> &mut Command {
    let parent = rustix::process::getpid();
    // SAFETY: the closure makes only system calls, by async-signal-safe wrappers that take no lock and do not allocate.
    unsafe { command.pre_exec(move || die_with(parent)) }
}

/// Runs in the child between fork and exec: [`die_with_parent`], and no further if the parent died before that took effect.
fn die_with(parent: Pid) -> std::io::Result<()> {
    die_with_parent()?;
    match rustix::process::getppid() == Some(parent) {
        true => Ok(()),
        false => Err(Errno::SRCH.into()),
    }
}

/// Makes orphans of our workers our children, so that they can be reaped.
pub fn become_subreaper() -> Result<(), SysError> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .while_trying_to("become a subreaper")
}

/// Keeps processes of the same user from reading this one's memory (and so its secrets), and it from leaving a core.
pub fn forbid_inspection() -> Result<(), SysError> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .while_trying_to("make this process uninspectable")
}

/// Sets soft and hard limit of open descriptors to `count`, or to the present hard limit when that is lower.
pub fn limit_descriptors(count: u64) -> Result<(), SysError> {
    let hard = rustix::process::getrlimit(Resource::Nofile)
        .maximum
        .unwrap_or(u64::MAX);
    let limit = Some(count.min(hard));
    rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit,
            maximum: limit,
        },
    )
    .while_trying_to("limit open files")
}

/// How many descriptors this process may have.
pub fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(Resource::Nofile)
        .current
        .unwrap_or(u64::MAX)
}

/// Lets this process open as many files as it may at all: a server needs three for each session.
pub fn raise_descriptor_limit() -> Result<(), SysError> {
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit {
            current: hard,
            maximum: hard,
        },
    )
    .while_trying_to("raise the limit of open files")
}

/// The first descriptor that systemd passes.
const FIRST_GIVEN: RawFd = 3;

/// The sockets that systemd passed to this process (`LISTEN_FDS`). To be called once, before anything else opens descriptors.
pub fn given_sockets() -> Vec<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let is_ours = number("LISTEN_PID") == Some(std::process::id());
    if !is_ours || TAKEN.swap(true, Ordering::AcqRel) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or(0).min(64) as RawFd;
    let mut sockets = Vec::new();
    for descriptor in FIRST_GIVEN..FIRST_GIVEN + count {
        // SAFETY: by the protocol of LISTEN_PID and LISTEN_FDS this descriptor is open and this process's to own, and `TAKEN` lets it be
        // taken once.
        sockets.push(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    for socket in &sockets {
        // It comes without the flag, so that it survives the start of this program. A worker is not to have it.
        let _ = rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::CLOEXEC);
    }
    sockets
}

/// Ends this process now, without running destructors or exit handlers: those of a vendor runtime may wait for ever
/// for a device that still works.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn shell(script: &str) -> (WorkerProcess, Channel) {
        let (started, channel) = start_shell(script, false);
        (started.process, channel)
    }

    fn start_shell(script: &str, own_pids: bool) -> (Started, Channel) {
        let (ours, theirs) = Channel::pair().unwrap();
        let program = shell_program(script);
        let started = WorkerProcess::start(&program, theirs, own_pids).unwrap();
        (started, ours)
    }

    fn shell_program(script: &str) -> WorkerProgram {
        WorkerProgram {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            kind: WorkerKind::OpenCl,
        }
    }

    fn next_text(channel: &Channel) -> String {
        String::from_utf8(channel.recv().unwrap().unwrap().bytes).unwrap()
    }

    #[test]
    fn exit_code_and_signal_are_told_apart() {
        let (process, _channel) = shell("exit 7");
        assert!(process.wait_ended(Duration::from_secs(10)));
        assert_eq!(process.kill_and_reap(), Exit::Code(7));
        let (process, _channel) = shell("kill -SEGV $$");
        assert!(process.wait_ended(Duration::from_secs(10)));
        assert_eq!(process.kill_and_reap().to_string(), "SIGSEGV");
    }

    #[test]
    fn worker_is_killed_while_its_end_is_awaited() {
        let (process, channel) = shell("echo >&3; exec sleep 1000");
        let killer = process.killer();
        next_text(&channel);
        let exit = std::thread::scope(|scope| {
            let waits = scope.spawn(|| process.leader.reap());
            killer.kill();
            waits.join().unwrap()
        });
        assert_eq!(exit, Exit::Signal(libc::SIGKILL));
        killer.kill();
        assert_eq!(process.kill_and_reap(), Exit::Unknown);
    }

    #[test]
    fn what_a_worker_started_dies_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("held");
        let (process, channel) = shell(&format!("sleep 1000 & echo $! > {}; wait", fifo.display()));
        let grandchild = (0..1000)
            .find_map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                std::fs::read_to_string(&fifo)
                    .ok()?
                    .trim()
                    .parse::<i32>()
                    .ok()
            })
            .expect("the worker starts its child");
        process.kill_and_reap();
        // Every holder of the other end of the channel is gone, the grandchild included.
        assert!(channel.recv().unwrap().is_none());
        let deadline = Instant::now() + Duration::from_secs(5);
        let grandchild = Pid::from_raw(grandchild).unwrap();
        while rustix::process::test_kill_process(grandchild).is_ok() && !is_zombie(grandchild) {
            assert!(Instant::now() < deadline, "the grandchild lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn is_zombie(pid: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
            .unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('Z'))
    }

    #[test]
    fn worker_holds_only_its_channel_and_standard_streams() {
        let inheritable = std::fs::File::open("/proc/self/status").unwrap();
        rustix::io::fcntl_setfd(&inheritable, rustix::io::FdFlags::empty()).unwrap();
        let script = "for number in 0 1 2 3; do readlink /proc/self/fd/$number | cut -d: -f1; done | tr '\\n' ' ' >&3;
            ls /proc/self/fd | tr '\\n' ' ' >&3;
            env | cut -d= -f1 | grep -v -x -e PWD -e _ | tr '\\n' ' ' >&3";
        for own_pids in [false, true] {
            let (started, channel) = start_shell(script, own_pids);
            // `cut` reads a pipe; so its standard output, of which `readlink` tells, is one too.
            assert_eq!(next_text(&channel), "/dev/null pipe pipe socket ");
            // 4 is `ls` reading the directory.
            assert_eq!(next_text(&channel), "0 1 2 3 4 ");
            assert_eq!(next_text(&channel), "PATH ");
            started.process.kill_and_reap();
        }
    }

    #[test]
    fn output_and_errors_come_through_the_pipe() {
        let (started, _channel) = start_shell("echo out; echo error >&2", false);
        let text = std::io::read_to_string(std::fs::File::from(started.output)).unwrap();
        assert_eq!(text, "out\nerror\n");
    }

    #[test]
    fn worker_outlives_the_thread_that_started_it() {
        let started = std::thread::spawn(|| start_shell("dd bs=100 count=1 <&3 >&3", true));
        let (_started, channel) = started.join().unwrap();
        channel.send(b"still there\n", None).unwrap();
        assert_eq!(next_text(&channel), "still there\n");
    }

    #[test]
    fn worker_is_the_first_process_and_leads_its_session() {
        let (started, channel) = start_shell("echo $$ $(cut -d' ' -f6 /proc/self/stat) >&3", true);
        assert_eq!(started.missing, None);
        // The second number is that of /proc, which is the host's still.
        let host = started.process.id();
        assert_eq!(next_text(&channel), format!("1 {host}\n"));
    }

    #[test]
    fn first_process_that_crashes_ends_by_its_signal() {
        let (started, _channel) = start_shell("exit 139", true);
        assert!(started.process.wait_ended(Duration::from_secs(10)));
        assert_eq!(started.process.kill_and_reap(), Exit::Signal(libc::SIGSEGV));
    }

    /// Takes a lock in a process that has left its parent, its session and its death signal behind.
    fn hold(path: &std::path::Path) -> String {
        let path = path.display();
        format!("exec 9>>{path}; setsid sh -c 'flock 9; echo held >&3; exec sleep 1000' & wait")
    }

    fn wait_until_free(path: &std::path::Path) {
        let file = std::fs::File::open(path).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while file.try_lock().is_err() {
            assert!(
                Instant::now() < deadline,
                "a process holds {} still",
                path.display()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn process_that_left_its_session_dies_with_the_worker() {
        let held = tempfile::NamedTempFile::new().unwrap();
        let (started, channel) = start_shell(&hold(held.path()), true);
        assert_eq!(next_text(&channel), "held\n");
        started.process.kill_and_reap();
        // All of a namespace are gone when its first process is reaped.
        std::fs::File::open(held.path())
            .unwrap()
            .try_lock()
            .unwrap();
    }

    #[test]
    #[ignore = "does not end: the test below kills it"]
    fn supervisor() {
        let path = std::env::var_os("TEST_HELD").unwrap();
        let (_started, channel) = start_shell(&hold(path.as_ref()), true);
        println!("\n{}", next_text(&channel));
        let _ = channel.recv();
    }

    #[test]
    fn process_that_left_its_session_dies_with_a_killed_supervisor() {
        use std::io::BufRead;
        let held = tempfile::NamedTempFile::new().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "process::tests::supervisor",
                "--ignored",
                "--nocapture",
            ])
            .env("TEST_HELD", held.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "held"));
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until_free(held.path());
    }

    #[test]
    fn worker_has_no_signal_blocked_or_ignored() {
        let _blocked = signals::BlockedSignals::of_parent().unwrap();
        let (process, channel) = shell("grep -E 'Sig(Blk|Ign)' /proc/self/status >&3");
        let lines = String::from_utf8(channel.recv().unwrap().unwrap().bytes).unwrap();
        process.kill_and_reap();
        let sets = lines.lines().map(|line| {
            let set = line.split_whitespace().last().unwrap();
            u64::from_str_radix(set, 16).unwrap()
        });
        // Signals 32 and 33 are the C library's own, and stay as they were inherited.
        let others: Vec<u64> = sets.map(|set| set & !(0b11 << 31)).collect();
        assert_eq!(others, [0, 0], "{lines}");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_a_worker_maps_lies_apart_from_what_others_do() {
        let place = || {
            let (process, channel) = shell("grep -m 1 libc /proc/self/maps >&3");
            let line = String::from_utf8(channel.recv().unwrap().unwrap().bytes).unwrap();
            process.kill_and_reap();
            u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
        };
        let places = [place(), place(), place()];
        // A terabyte is what the system itself varies.
        let room = 0x2f00_0000_0000..0x5000_0000_0000;
        assert!(
            places.iter().all(|place| room.contains(place)),
            "{places:x?}"
        );
        assert!(
            places[0]
                .abs_diff(places[1])
                .max(places[0].abs_diff(places[2]))
                > 1 << 30
        );
    }

    #[test]
    fn stacks_are_of_the_usual_size_after_all() {
        let soft = || rustix::process::getrlimit(Resource::Stack).current;
        limit_stacks().unwrap();
        assert!(soft().is_some_and(|size| size <= 8 << 20));
        let mut attributes = std::mem::MaybeUninit::uninit();
        // SAFETY: the place is large enough.
        let outcome = unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
        assert_eq!(outcome, 0);
        let mut size = 0;
        // SAFETY: they were initialised just now.
        unsafe { libc::pthread_attr_getstacksize(attributes.as_ptr(), &raw mut size) };
        assert_eq!(size, 8 << 20);
    }

    #[test]
    fn addresses_of_drivers_begin_elsewhere_in_every_process() {
        let held = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| line.starts_with("302000000-"))
        };
        assert!(!held());
        shift_drivers_addresses();
        assert!(held());
    }

    fn start_in_job(script: &str, job: &Arc<JobNamespaces>) -> (Started, Channel) {
        let (ours, theirs) = Channel::pair().unwrap();
        let program = shell_program(script);
        let job = Some(Arc::clone(job));
        let started = WorkerProcess::start_of_job(&program, theirs, job).unwrap();
        (started, ours)
    }

    #[test]
    fn workers_of_one_job_share_network_and_memory() {
        let jobs = [(); 2].map(|()| Arc::new(JobNamespaces::make(true, 1 << 20).unwrap()));
        let script = "readlink /proc/self/ns/net >&3; stat -c %d /dev/shm >&3";
        let places = [&jobs[0], &jobs[0], &jobs[1]].map(|job| {
            let (started, channel) = start_in_job(script, job);
            let place = [next_text(&channel), next_text(&channel)];
            drop(started);
            place
        });
        assert_eq!(places[0], places[1]);
        assert_ne!(places[0][0], places[2][0]);
        assert_ne!(places[0][1], places[2][1]);
        let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
        assert_ne!(places[0][0].trim(), ours.to_str().unwrap());
    }

    #[test]
    fn job_of_hosts_network_has_memory_of_its_own() {
        let job = Arc::new(JobNamespaces::make(false, 1 << 20).unwrap());
        assert!(!job.has_network());
        let script = "readlink /proc/self/ns/net >&3; df --output=size /dev/shm | tail -n 1 >&3";
        let (_started, channel) = start_in_job(script, &job);
        let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
        assert_eq!(next_text(&channel).trim(), ours.to_str().unwrap());
        assert_eq!(next_text(&channel).trim(), "1024");
    }

    #[test]
    fn missing_program_is_an_error_that_names_it() {
        let (_ours, theirs) = Channel::pair().unwrap();
        let program = WorkerProgram {
            path: "/nonexistent/towline".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            kind: WorkerKind::OpenCl,
        };
        let error = WorkerProcess::start(&program, theirs, true).unwrap_err();
        assert_eq!(error.to_string(), "cannot start /nonexistent/towline");
    }
}
