//! Where changes happen: this host, or in tests an emulated one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::address::PciAddress;
use crate::root::Root;

/// The most that a command may print; more is cut off.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;
/// How often a child is looked after. It is a file of sysfs that is waited for; nothing faster is worth it.
const POLL: Duration = Duration::from_millis(2);

/// A host that can be read and changed.
///
/// A change that returns has reached the disk where it is a file of one. Everything may end in the middle: whoever changes
/// things says so in the journal before.
pub trait World {
    /// What is read.
    fn root(&self) -> &Root;

    /// Writes a file of sysfs or procfs in one go.
    ///
    /// # Errors
    ///
    /// What the kernel answers, or that it did not within the limit.
    fn write(&mut self, path: &str, value: &str) -> Result<(), WorldError>;

    /// Writes a 16-bit register of a configuration space.
    ///
    /// # Errors
    ///
    /// What the kernel answers.
    fn write_register(
        &mut self,
        device: PciAddress,
        offset: u16,
        value: u16,
    ) -> Result<(), WorldError>;

    /// Puts a file in place as a whole, or removes it.
    ///
    /// # Errors
    ///
    /// What the kernel answers.
    fn replace(&mut self, path: &str, contents: Option<&str>) -> Result<(), WorldError>;

    /// Appends to a file, and has it on the disk.
    ///
    /// # Errors
    ///
    /// What the kernel answers.
    fn append(&mut self, path: &str, bytes: &[u8]) -> Result<(), WorldError>;

    /// Runs a command that changes something.
    ///
    /// # Errors
    ///
    /// When it is not there, fails, or takes longer than the limit.
    fn run(&mut self, words: &[String]) -> Result<(), WorldError>;

    /// Runs a command that changes nothing, and answers what it printed.
    ///
    /// # Errors
    ///
    /// As for [`World::run`].
    fn ask(&mut self, words: &[String]) -> Result<String, WorldError>;
}

/// A change that did not happen, or of which that is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// A command failed.
    #[error("`{command}` failed ({status}): {output}")]
    Command {
        /// The command.
        command: String,
        /// How it ended.
        status: String,
        /// What it said.
        output: String,
    },
    /// A command for a tree that is not this host.
    #[error("`{command}` can only be run on the host itself, not on a tree below another root")]
    Elsewhere {
        /// The command.
        command: String,
    },
    /// An NVMe drive does not do what its functions need.
    #[error("{controller} {what}")]
    Drive {
        /// What the driver calls it.
        controller: String,
        /// What it does instead.
        what: String,
    },
    /// The kernel refused.
    #[error("{path}: {cause}")]
    Io {
        /// The file or the program.
        path: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The kernel or a command did not answer.
    #[error("{what} has not answered after {limit_s} s; process {pid} still waits for it")]
    TimedOut {
        /// What was asked.
        what: String,
        /// How long it was given.
        limit_s: u64,
        /// Who waits.
        pid: u32,
    },
}

impl WorldError {
    fn io(path: &str) -> impl FnOnce(io::Error) -> Self + '_ {
        move |cause| Self::Io {
            path: path.to_owned(),
            cause,
        }
    }
}

/// A host as it is, below a root.
#[derive(Debug)]
pub struct LiveWorld {
    root: Root,
    /// Writes the file named by its last argument from its standard input, and ends with the error's number.
    writer: Vec<PathBuf>,
    limit: Duration,
}

impl LiveWorld {
    /// The host below `root`. `writer` is a program and its first arguments: it is given a path, and for a register where in the
    /// file, writes what it reads there with [`write_as_child`], and is left behind when the kernel does not answer within `limit`.
    #[must_use]
    pub fn new(root: Root, writer: Vec<PathBuf>, limit: Duration) -> Self {
        Self {
            root,
            writer,
            limit,
        }
    }

    /// Has a child write, which may hang in the kernel.
    fn write_by_child(&self, path: &str, at: Option<u16>, bytes: &[u8]) -> Result<(), WorldError> {
        let (program, arguments) = self.writer.split_first().expect("a writer has a program");
        let mut child = Command::new(program)
            .args(arguments)
            .arg(self.root.path(path))
            .args(at.map(|at| at.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(WorldError::io(&program.to_string_lossy()))?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(bytes).map_err(WorldError::io(path))?;
        }
        let (status, _) = self.wait(child, path)?;
        match status.code() {
            Some(0) => Ok(()),
            Some(number) => Err(WorldError::Io {
                path: path.to_owned(),
                cause: io::Error::from_raw_os_error(number),
            }),
            None => Err(WorldError::Command {
                command: format!("write to {path}"),
                status: status.to_string(),
                output: String::new(),
            }),
        }
    }

    /// Waits for a child. One that takes too long is left alone: a process that hangs in the kernel cannot be ended.
    fn wait(
        &self,
        mut child: Child,
        what: &str,
    ) -> Result<(std::process::ExitStatus, String), WorldError> {
        let deadline = Instant::now() + self.limit;
        let output = child.stdout.take();
        // The output is read beside: a child whose pipe is full would never end.
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(output) = output {
                let _ = output.take(MAX_OUTPUT_BYTES).read_to_string(&mut text);
            }
            text
        });
        loop {
            match child.try_wait().map_err(WorldError::io(what))? {
                Some(status) => return Ok((status, reader.join().unwrap_or_default())),
                None if Instant::now() >= deadline => {
                    return Err(WorldError::TimedOut {
                        what: what.to_owned(),
                        limit_s: self.limit.as_secs(),
                        pid: child.id(),
                    });
                }
                None => std::thread::sleep(POLL),
            }
        }
    }
}

impl World for LiveWorld {
    fn root(&self) -> &Root {
        &self.root
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), WorldError> {
        self.write_by_child(path, None, value.as_bytes())
    }

    fn write_register(
        &mut self,
        device: PciAddress,
        offset: u16,
        value: u16,
    ) -> Result<(), WorldError> {
        let path = format!("/sys/bus/pci/devices/{device}/config");
        self.write_by_child(&path, Some(offset), &value.to_le_bytes())
    }

    fn replace(&mut self, path: &str, contents: Option<&str>) -> Result<(), WorldError> {
        replace(&self.root.path(path), contents).map_err(WorldError::io(path))
    }

    fn append(&mut self, path: &str, bytes: &[u8]) -> Result<(), WorldError> {
        append(&self.root.path(path), bytes).map_err(WorldError::io(path))
    }

    fn run(&mut self, words: &[String]) -> Result<(), WorldError> {
        self.ask(words).map(drop)
    }

    fn ask(&mut self, words: &[String]) -> Result<String, WorldError> {
        let command = words.join(" ");
        if !self.root.is_live() {
            // It would act on the host that runs us.
            return Err(WorldError::Elsewhere { command });
        }
        let (program, arguments) = words.split_first().expect("a command has a program");
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(WorldError::io(program))?;
        let (status, output) = self.wait(child, &command)?;
        match status.success() {
            true => Ok(output),
            false => Err(WorldError::Command {
                command,
                status: status.to_string(),
                output: output.trim().to_owned(),
            }),
        }
    }
}

/// A world in which this process is killed before a change: tests show that undo copes.
#[derive(Debug)]
pub struct Mortal<W> {
    world: W,
    left: u64,
}

impl<W: World> Mortal<W> {
    /// Ends before the change of this number, from 0.
    pub fn new(world: W, change: u64) -> Self {
        Self {
            world,
            left: change,
        }
    }

    fn count(&mut self) {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => {
                // As hard as it gets: nothing is flushed, nothing is dropped.
                let _ = rustix::process::kill_process(
                    rustix::process::getpid(),
                    rustix::process::Signal::KILL,
                );
            }
        }
    }
}

impl<W: World> World for Mortal<W> {
    fn root(&self) -> &Root {
        self.world.root()
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), WorldError> {
        self.count();
        self.world.write(path, value)
    }

    fn write_register(
        &mut self,
        device: PciAddress,
        offset: u16,
        value: u16,
    ) -> Result<(), WorldError> {
        self.count();
        self.world.write_register(device, offset, value)
    }

    fn replace(&mut self, path: &str, contents: Option<&str>) -> Result<(), WorldError> {
        self.count();
        self.world.replace(path, contents)
    }

    fn append(&mut self, path: &str, bytes: &[u8]) -> Result<(), WorldError> {
        self.count();
        self.world.append(path, bytes)
    }

    fn run(&mut self, words: &[String]) -> Result<(), WorldError> {
        self.count();
        self.world.run(words)
    }

    // To be killed before a question is to be killed before the change that follows it.
    fn ask(&mut self, words: &[String]) -> Result<String, WorldError> {
        self.world.ask(words)
    }
}

/// Keeps others from applying and undoing at the same time, until it is dropped.
///
/// # Errors
///
/// `WouldBlock` when somebody else does; else when the folder cannot be made.
pub fn lock(root: &Root) -> io::Result<File> {
    let folder = root.path(crate::paths::STATE);
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&folder)?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !is_own || found.mode() & 0o022 != 0 {
        let why = format!(
            "{}: others could have written what is to be done; it has to be a folder that only its owner, who runs this, can write",
            folder.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(folder.join("lock"))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// The part of the writing child: one `write` of all that standard input has, to the whole file or `at` a place in it. Answers the
/// number of the error, 0 for none.
#[must_use]
pub fn write_as_child(path: &Path, at: Option<u16>, mut input: impl Read) -> i32 {
    /// Nothing in sysfs takes more than a page.
    const MAX_BYTES: u64 = 4096;
    let mut value = Vec::new();
    let written = input
        .by_ref()
        .take(MAX_BYTES)
        .read_to_end(&mut value)
        .and_then(|_| {
            // Not created: a file that is missing in sysfs is missing.
            let mut options = OpenOptions::new();
            let mut file = options.write(true).truncate(at.is_none()).open(path)?;
            match at {
                None => file.write_all(&value),
                Some(at) => file.write_all_at(&value, at.into()),
            }
        });
    match written {
        Ok(()) => 0,
        // EIO for what has no number.
        Err(error) => error.raw_os_error().unwrap_or(5),
    }
}

/// The name that a file has until it is whole.
#[must_use]
pub fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".towline-new");
    path.with_file_name(name)
}

/// Puts a file in place so that after a crash it is the old or the new one.
///
/// # Errors
///
/// What the kernel answers.
pub fn replace(path: &Path, contents: Option<&str>) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let new = unfinished(path);
    match contents {
        Some(contents) => {
            fs::create_dir_all(folder)?;
            let mut file = File::create(&new)?;
            file.write_all(contents.as_bytes())?;
            if let Ok(before) = fs::metadata(path) {
                file.set_permissions(before.permissions())?;
            }
            file.sync_all()?;
            fs::rename(&new, path)?;
        }
        None => {
            for path in [path, &new] {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
    }
    File::open(folder)?.sync_all()
}

/// Appends and has it on the disk.
///
/// # Errors
///
/// What the kernel answers.
pub fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let is_new = !path.exists();
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    if is_new {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
