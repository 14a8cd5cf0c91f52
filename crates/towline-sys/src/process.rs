//! Worker processes, from the supervisor's side and from their own.
//!
//! A worker is a new execution of this very program, not a fork: driver state does not survive a fork. It is started
//! from `/proc/self/exe`, so it is the same program even when the file on disk was replaced or lies in a folder that
//! the worker's later user cannot enter.

#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions,
};

use crate::channel::{Channel, wait_readable};
use crate::spawn::Program;
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
}

impl WorkerProgram {
    /// This program, whatever has become of its file.
    pub fn this_program() -> PathBuf {
        PathBuf::from("/proc/self/exe")
    }
}

/// A child process that leads its own process group. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct WorkerProcess {
    pid: Pid,
    pidfd: OwnedFd,
    reaped: bool,
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
    /// Starts `program` with `channel` as descriptor 3, standard input and output on /dev/null, and nothing else open
    /// but standard error.
    ///
    /// **Call it from a thread that lives as long as this process**: the kernel kills the worker when the thread that
    /// started it ends (`PR_SET_PDEATHSIG`), and that is what keeps workers from outliving a killed supervisor.
    pub fn start(program: &WorkerProgram, channel: Channel) -> Result<Self, SysError> {
        let socket = channel.into_descriptor();
        let socket_number = socket.as_raw_fd();
        let parent = rustix::process::getpid();
        let gap = apart();
        let action = || format!("start {}", program.path.display());
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .while_trying_to(action())?;
        let arguments = [OsStr::new("towline")]
            .into_iter()
            .chain(program.arguments.iter().map(OsString::as_os_str));
        let environment = program.environment.iter();
        let environment = environment.map(|(name, value)| (name.as_os_str(), value.as_os_str()));
        let prepared = Program::new(program.path.as_os_str(), arguments, environment)
            .while_trying_to(action())?;
        let mut prepare = || prepare_child(socket_number, null.as_fd(), parent, gap);
        // SAFETY: the closure makes only system calls, by async-signal-safe wrappers that take no lock and do not allocate; both
        // descriptors stay open until after the start because their owners live that long.
        let started = unsafe { prepared.start(&mut prepare) };
        let (pid, pidfd) = started.while_trying_to(action())?;
        drop(socket);
        Ok(Self {
            pid,
            pidfd,
            reaped: false,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until it has ended; `false` when `timeout` passed first. It stays to be reaped.
    pub fn wait_ended(&self, timeout: Duration) -> bool {
        // An error of poll can only mean that the descriptor is unusable; then the caller goes on to kill and reap.
        wait_readable(self.pidfd.as_fd(), timeout).unwrap_or(true)
    }

    /// Kills it and everything it started, and waits for the end. Says how it ended, which is how it would have ended
    /// without this call if it was dead already.
    pub fn kill_and_reap(mut self) -> Exit {
        self.kill_and_reap_once()
    }

    fn kill_and_reap_once(&mut self) -> Exit {
        self.reaped = true;
        // The group's number stays reserved as long as its leader is not reaped, so this cannot hit strangers. It
        // fails only when all of the group is gone.
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        let exit = reap(self.pidfd.as_fd());
        // What the worker started itself (a compiler, a linker) came to us as subreaper: leave no zombies.
        while let Ok(Some(_)) = rustix::process::waitpgid(self.pid, WaitOptions::empty()) {}
        exit
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill_and_reap_once();
        }
    }
}

fn reap(pidfd: BorrowedFd<'_>) -> Exit {
    loop {
        match rustix::process::waitid(WaitId::PidFd(pidfd), WaitIdOptions::EXITED) {
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
    // SAFETY: as above; the function copies them.
    done(unsafe { pthread_setattr_default_np(&raw const attributes) })?;
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

unsafe extern "C" {
    /// Of the C library, by which threads get their stacks that say nothing of them: as large as the process's at its start.
    fn pthread_setattr_default_np(attributes: *const libc::pthread_attr_t) -> libc::c_int;
}

/// Runs in the child before it executes the worker: system calls only.
fn prepare_child(
    socket: RawFd,
    null: BorrowedFd<'_>,
    parent: Pid,
    gap: u64,
) -> std::io::Result<()> {
    die_with(parent)?;
    rustix::process::setpgid(None, None)?;
    rustix::process::chdir("/")?;
    rustix::stdio::dup2_stdin(null)?;
    rustix::stdio::dup2_stdout(null)?;
    // The system leaves so much room for the stack. Where that may not be as large, nothing is lost but the distance.
    let maximum = rustix::process::getrlimit(Resource::Stack).maximum;
    let stack = Rlimit {
        current: Some(gap),
        maximum,
    };
    let _ = rustix::process::setrlimit(Resource::Stack, stack);
    // SAFETY: plain system call on two descriptor numbers; the target is replaced on purpose.
    let duplicated = unsafe { libc::dup2(socket, CHANNEL_DESCRIPTOR) };
    if duplicated < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // dup2 onto itself keeps close-on-exec; it has to go either way.
    // SAFETY: plain system call on a descriptor that was just made.
    let cleared = unsafe { libc::fcntl(CHANNEL_DESCRIPTOR, libc::F_SETFD, 0) };
    if cleared < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let first = CHANNEL_DESCRIPTOR as libc::c_uint + 1;
    // Belt and braces: everything we open is close-on-exec, but what we inherited may not be. Kernels before 5.11 do
    // not know the flag; there the belt alone holds.
    // SAFETY: plain system call that only sets a flag on open descriptors.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    Ok(())
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
        let (ours, theirs) = Channel::pair().unwrap();
        let program = WorkerProgram {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        };
        (WorkerProcess::start(&program, theirs).unwrap(), ours)
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
        let (process, channel) = shell(
            "ls /proc/self/fd | tr '\\n' ' ' >&3; env | cut -d= -f1 | grep -v -x -e PWD -e _ | tr '\\n' ' ' >&3",
        );
        let descriptors = String::from_utf8(channel.recv().unwrap().unwrap().bytes).unwrap();
        // 4 is `ls` reading the directory.
        assert_eq!(descriptors, "0 1 2 3 4 ");
        let environment = String::from_utf8(channel.recv().unwrap().unwrap().bytes).unwrap();
        assert_eq!(environment, "PATH ");
        process.kill_and_reap();
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

    #[test]
    fn worker_dies_with_the_thread_that_started_it() {
        let (process, channel) = std::thread::spawn(|| shell("sleep 1000")).join().unwrap();
        assert!(process.wait_ended(Duration::from_secs(10)));
        drop(channel);
        assert_eq!(process.kill_and_reap(), Exit::Signal(libc::SIGKILL));
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

    #[test]
    fn missing_program_is_an_error_that_names_it() {
        let (_ours, theirs) = Channel::pair().unwrap();
        let program = WorkerProgram {
            path: "/nonexistent/towline".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        };
        let error = WorkerProcess::start(&program, theirs).unwrap_err();
        assert_eq!(error.to_string(), "cannot start /nonexistent/towline");
    }
}
