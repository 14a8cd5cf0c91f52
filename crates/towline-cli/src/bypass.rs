//! The words of `towline run --report` about a program that went past our libraries. The program takes this process's place, so that a process
//! of no relation to it watches: it learns of the end by a file descriptor, and looks now and then which libraries there are until then.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::cli::WatchOptions;

/// Libraries that lead to this machine's devices, or to none.
const OTHERS: [&str; 2] = ["libcuda.so", "libOpenCL.so"];
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(2);

/// Has this process watched, whatever it becomes. Gives the file that one of our libraries makes when it starts.
pub(crate) fn watch(folder: &Path) -> anyhow::Result<PathBuf> {
    let own = std::process::id();
    let mark = folder.join(format!("report-{own}"));
    let _ = std::fs::remove_file(&mark);
    let program = std::env::current_exe().context("could not find out where this program lies")?;
    // The process between ends at once: the program finds no child that it did not start.
    let status = Command::new(program)
        .args(["watch", &own.to_string()])
        .arg(&mark)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(mark),
        Ok(status) => bail!("the process that watches the program ended with {status}"),
        Err(error) => Err(error).context("could not watch the program"),
    }
}

pub(crate) fn run(options: &WatchOptions) -> anyhow::Result<ExitCode> {
    if !options.detached {
        Command::new(std::env::current_exe()?)
            .args(["watch", "--detached", &options.process.to_string()])
            .arg(&options.mark)
            .spawn()?;
        return Ok(ExitCode::SUCCESS);
    }
    let others = libraries_until_end(options.process)?;
    if std::fs::remove_file(&options.mark).is_err() {
        eprint!("{}", text(&others));
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the end of a process. Gives which of the others' libraries were seen in it.
fn libraries_until_end(process: u32) -> anyhow::Result<Vec<PathBuf>> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.context("no such process")?;
    let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(Vec::new()),
        // Linux has it since 5.3, and some sandboxes refuse it.
        opened => opened.ok(),
    };
    // Its files are this process's, though the number may be another's by then.
    let folder = File::open(format!("/proc/{process}"))?;
    let (mut seen, mut pause) = (Vec::new(), FIRST_LOOK);
    loop {
        let opened = openat(&folder, "maps", OFlags::RDONLY, Mode::empty()).map(File::from);
        let mut maps = String::new();
        let read = opened.is_ok_and(|mut file| file.read_to_string(&mut maps).is_ok());
        for path in others_in(&maps) {
            if !seen.contains(&path) {
                seen.push(path);
            }
        }
        let Some(descriptor) = &descriptor else {
            if !read {
                return Ok(seen);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LAST_LOOK);
            continue;
        };
        let mut ended = [PollFd::new(descriptor, PollFlags::IN)];
        let limit = Timespec::try_from(pause)?;
        if poll(&mut ended, Some(&limit)).is_ok_and(|count| count > 0) {
            return Ok(seen);
        }
        pause = (pause * 2).min(LAST_LOOK);
    }
}

/// The others' libraries among the files of a process's memory.
fn others_in(maps: &str) -> impl Iterator<Item = PathBuf> {
    let paths = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    let others = paths.filter(|path| {
        let name = Path::new(path)
            .file_name()
            .and_then(OsStr::to_str)
            .unwrap_or_default();
        OTHERS.iter().any(|other| name.starts_with(other))
    });
    others.map(PathBuf::from)
}

fn text(others: &[PathBuf]) -> String {
    let mut text =
        "towline: the program loaded none of Towline's libraries, and so used no remote device\n"
            .to_owned();
    for other in others {
        let other = other.display();
        text += &format!(
            "towline: it loaded {other}: by its whole path, by the program's own DT_RPATH, or by another LD_LIBRARY_PATH\n"
        );
    }
    if others.is_empty() {
        text += "towline: where it was to use one, LD_DEBUG=libs shows what it looks for; programs that are linked statically, run with \
                 other rights, or reset LD_LIBRARY_PATH and OCL_ICD_VENDORS go past\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_others_libraries_are_told() {
        let maps = "7f00-7f01 r--p 0 0:1 5                      /usr/lib/x86_64-linux-gnu/libcuda.so.580.1\n\
                    7f01-7f02 r--p 0 0:1 6                      /opt/a b/libtowline_cuda.so\n\
                    7f02-7f03 rw-p 0 0:0 0 \n\
                    7f03-7f04 r--p 0 0:1 7                      /usr/lib/libcudart.so.12\n";
        let others: Vec<_> = others_in(maps).collect();
        assert_eq!(
            others,
            [Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.580.1")]
        );
        assert!(text(&others).contains("libcuda.so.580.1: by its whole path"));
    }
}
