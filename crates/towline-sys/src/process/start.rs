//! Starting workers, in namespaces of their own.
//!
//! One thread, which lives as long as this process, makes them all: the kernel kills a child when the *thread* that made it ends
//! (`PR_SET_PDEATHSIG`), and the threads that ask for workers come and go.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::job::JobNamespaces;
use super::{CHANNEL_DESCRIPTOR, WorkerProgram};
use crate::spawn::Program;

/// The namespaces that a child is started in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Namespaces {
    /// Those of this process.
    Ours,
    /// A PID namespace of its own, whose first process it is: all of them end with it.
    Pids,
    /// The same in a user namespace of its own, in which it may administer namespaces: for who is not root. Its numbers there are
    /// for itself to set, when it runs its own program: until then it shares this process's memory, which nobody may inspect.
    UserAndPids,
}

impl Namespaces {
    /// The best that this user may have.
    pub(super) fn own() -> Self {
        match rustix::process::geteuid().is_root() {
            true => Self::Pids,
            false => Self::UserAndPids,
        }
    }

    pub(super) fn flags(self) -> libc::c_int {
        match self {
            Self::Ours => 0,
            Self::Pids => libc::CLONE_NEWPID,
            Self::UserAndPids => libc::CLONE_NEWPID | libc::CLONE_NEWUSER,
        }
    }
}

/// A worker that can be started.
pub(super) struct Plan {
    program: Program,
    null: OwnedFd,
    output: OwnedFd,
    channel: OwnedFd,
    /// Room to leave for the stack; see [`super::apart`].
    gap: u64,
    /// Namespaces to join.
    job: Option<Arc<JobNamespaces>>,
}

impl Plan {
    pub(super) fn new(
        program: &WorkerProgram,
        channel: OwnedFd,
        output: OwnedFd,
        gap: u64,
        job: Option<Arc<JobNamespaces>>,
    ) -> io::Result<Self> {
        let arguments = program.arguments.iter().map(OsString::as_os_str);
        let arguments = [OsStr::new("towline")].into_iter().chain(arguments);
        let environment = program.environment.iter();
        let environment = environment.map(|(name, value)| (name.as_os_str(), value.as_os_str()));
        Ok(Self {
            program: Program::new(program.path.as_os_str(), arguments, environment)?,
            null: rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?,
            output,
            channel,
            gap,
            job,
        })
    }

    /// Starts it.
    pub(super) fn start(self: &Arc<Self>, namespaces: Namespaces) -> io::Result<(Pid, OwnedFd)> {
        let plan = Arc::clone(self);
        on_lasting_thread(move || {
            let mut prepare = || plan.prepare(namespaces);
            // SAFETY: the closure makes only system calls, by async-signal-safe wrappers that take no lock and do not allocate.
            unsafe { plan.program.start(namespaces.flags(), &mut prepare) }
        })
    }

    /// Runs in the child before it executes the worker: system calls only.
    fn prepare(&self, namespaces: Namespaces) -> io::Result<()> {
        if let Some(job) = &self.job {
            job.join()?;
        }
        if namespaces == Namespaces::UserAndPids {
            keep_administration()?;
        }
        // A session and a process group of its own.
        rustix::process::setsid()?;
        // Where this process has died before that took effect, the end of the channel tells the worker.
        super::die_with_parent()?;
        rustix::process::chdir(c"/")?;
        rustix::stdio::dup2_stdin(&self.null)?;
        rustix::stdio::dup2_stdout(&self.output)?;
        rustix::stdio::dup2_stderr(&self.output)?;
        // The system leaves so much room for the stack. Where that may not be as large, nothing is lost but the distance.
        let maximum = rustix::process::getrlimit(Resource::Stack).maximum;
        let stack = Rlimit {
            current: Some(self.gap),
            maximum,
        };
        let _ = rustix::process::setrlimit(Resource::Stack, stack);
        // SAFETY: plain system call on two descriptor numbers; the target is replaced on purpose.
        let duplicated =
            unsafe { libc::dup2(self.channel.as_fd().as_raw_fd(), CHANNEL_DESCRIPTOR) };
        if duplicated < 0 {
            return Err(io::Error::last_os_error());
        }
        // dup2 onto itself keeps close-on-exec; it has to go either way.
        // SAFETY: plain system call on a descriptor that was just made.
        let cleared = unsafe { libc::fcntl(CHANNEL_DESCRIPTOR, libc::F_SETFD, 0) };
        if cleared < 0 {
            return Err(io::Error::last_os_error());
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
}

/// Keeps the right to administer a new user namespace over an exec, by which all others go.
fn keep_administration() -> io::Result<()> {
    let administration = CapabilitySet::SYS_ADMIN;
    let sets = CapabilitySets {
        effective: administration,
        permitted: administration,
        inheritable: administration,
    };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::configure_capability_in_ambient_set(administration, true)?;
    Ok(())
}

type Job = Box<dyn FnOnce() + Send>;

/// Runs `job` on a thread that ends with this process, and gives what it gives.
fn on_lasting_thread<T: Send + 'static>(
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    static STARTER: Mutex<Option<Sender<Job>>> = Mutex::new(None);
    let gone = || io::Error::other("the thread that starts workers is gone");
    let (answer, answered) = mpsc::channel();
    let job: Job = Box::new(move || {
        // The caller waits.
        let _ = answer.send(job());
    });
    let mut starter = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    let sender = match &*starter {
        Some(sender) => sender,
        None => {
            let (sender, jobs) = mpsc::channel::<Job>();
            std::thread::Builder::new()
                .name("starter".into())
                .spawn(move || jobs.into_iter().for_each(|job| job()))?;
            starter.insert(sender)
        }
    };
    sender.send(job).map_err(|_| gone())?;
    drop(starter);
    answered.recv().map_err(|_| gone())?
}
