//! `towline trace`: who talks to whom in an MPI program.
//!
//! The program runs under its own launcher with the library of `pmpi/` between it and MPI. When it has ended, well or not,
//! `towline-trace` makes the matrix and the replay out of what the ranks wrote. Handles differ between families of MPI, so
//! there is a library for each, and the right one has to be known before the program starts.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{IsTerminal, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use towline_sys::signals::{BlockedSignals, signal_name};
use towline_trace::{RAW_FOLDER, ReplayOptions, Run, Summary, ranks_as_text};

use crate::cli::{MpiFamily, TraceClock, TraceOptions};
use crate::node::print_json;
use crate::table;

/// Where the libraries are, when they do not lie beside this program.
const LIBRARIES_VARIABLE: &str = "TOWLINE_PMPI";
/// How much of a program's file is searched for the names of its libraries.
const SEARCHED_BYTES: u64 = 64 << 20;
/// Launchers that take settings for all ranks as options.
const LAUNCHERS: [&str; 6] = [
    "mpirun",
    "mpiexec",
    "orterun",
    "prterun",
    "mpiexec.hydra",
    "mpirun.hydra",
];

pub(crate) fn run(options: &TraceOptions) -> anyhow::Result<ExitCode> {
    let replay = ReplayOptions {
        wanted: !options.no_replay,
        flops_per_second: options.flops_per_second,
    };
    if let Some(folder) = &options.collect {
        let summary = towline_trace::collect(folder, Run::default(), replay)?;
        tell(folder, &summary, options.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (program, arguments) = options.program.split_first().context("no program given")?;
    let (family, library) = find_library(options.mpi, &options.program)?;
    let folder = make_folder(&options.out)?;
    // Before any thread or child: who ends this program ends the one that it runs, and what was recorded is kept.
    let signals = BlockedSignals::of_parent()?;
    let settings = settings(options, &folder, &library);
    let mut command = Command::new(program);
    command
        .args(launcher_arguments(family, program, &settings))
        .args(arguments);
    if !is_launcher(program) {
        // Another launcher hands its environment on.
        command.envs(settings);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(could_not_run(program, &error)),
    };
    let status = wait(&mut child, &signals)?;
    let described = Run {
        command: options
            .program
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        exit_status: status.code(),
    };
    match towline_trace::collect(&folder, described, replay) {
        Ok(summary) => tell(&folder, &summary, options.json)?,
        Err(towline_trace::TraceError::Nothing { .. }) => {
            eprintln!(
                "towline: nothing was traced: no rank started MPI through {}. Is the program linked statically, or with another \
                 MPI than {}? --mpi chooses",
                library.display(),
                family.name()
            );
        }
        Err(error) => return Err(error.into()),
    }
    Ok(exit_code(status))
}

/// A new folder, or an empty one, with a place for what ranks write.
fn make_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    let raw = folder.join(RAW_FOLDER);
    fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    let mut entries =
        fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))?;
    if entries.next().is_some() {
        bail!(
            "{} is not empty: name another folder with --out, or remove it",
            folder.display()
        );
    }
    fs::create_dir(&raw).with_context(|| format!("could not create {}", raw.display()))?;
    folder
        .canonicalize()
        .with_context(|| format!("could not find {}", folder.display()))
}

/// What the library is told, and how it gets in.
fn settings(
    options: &TraceOptions,
    folder: &Path,
    library: &Path,
) -> Vec<(&'static str, OsString)> {
    let mut preload = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let clock = match options.clock {
        TraceClock::Auto => "auto",
        TraceClock::Cpu => "cpu",
        TraceClock::Wall => "wall",
    };
    let events = if options.no_replay {
        0
    } else {
        options.events_limit
    };
    vec![
        ("LD_PRELOAD", preload),
        (
            "TOWLINE_TRACE_DIR",
            folder.join(RAW_FOLDER).into_os_string(),
        ),
        ("TOWLINE_TRACE_CLOCK", clock.into()),
        ("TOWLINE_TRACE_EVENT_BYTES", events.to_string().into()),
    ]
}

fn name_of(program: &OsStr) -> &str {
    Path::new(program)
        .file_name()
        .and_then(OsStr::to_str)
        .unwrap_or("")
}

/// Debian calls them `mpirun.openmpi` and so on.
fn is_launcher(program: &OsStr) -> bool {
    let name = name_of(program);
    let plain = name
        .strip_suffix(".openmpi")
        .or(name.strip_suffix(".mpich"))
        .unwrap_or(name);
    LAUNCHERS.contains(&plain)
}

/// The settings as options, which reach ranks on other machines too, and not the launcher itself.
fn launcher_arguments(
    family: MpiFamily,
    program: &OsStr,
    settings: &[(&'static str, OsString)],
) -> Vec<OsString> {
    let mut arguments = Vec::new();
    if !is_launcher(program) {
        return arguments;
    }
    for (name, value) in settings {
        if family == MpiFamily::Openmpi {
            let mut setting = OsString::from(format!("{name}="));
            setting.push(value);
            arguments.extend(["-x".into(), setting]);
        } else {
            arguments.extend(["-genv".into(), name.into(), value.clone()]);
        }
    }
    arguments
}

/// Waits for a program, and passes signals on to it.
pub(crate) fn wait(child: &mut Child, signals: &BlockedSignals) -> anyhow::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().context("could not wait for the program")? {
            return Ok(status);
        }
        let number = signals.wait()?;
        let (Some(signal), Some(pid)) = (
            Signal::from_named_raw(number),
            i32::try_from(child.id()).ok().and_then(Pid::from_raw),
        ) else {
            continue;
        };
        // A terminal sends these two to the program itself as well; launchers give up in haste at the second.
        let has_it_already =
            std::io::stdin().is_terminal() && (signal == Signal::INT || signal == Signal::QUIT);
        if signal != Signal::CHILD && !has_it_already {
            // It may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Tells that a program could not be run, and gives the exit status for that, as `env` and `nohup` do.
pub(crate) fn could_not_run(program: &OsStr, error: &std::io::Error) -> ExitCode {
    let program = program.to_string_lossy();
    eprintln!("towline: could not run {program}: {error}");
    ExitCode::from(match error.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    })
}

/// The program's own status, as a shell tells it.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => {
            eprintln!("towline: the program was ended by {}", signal_name(signal));
            128 + signal
        }
        (None, None) => i32::from(crate::FAILURE),
    };
    ExitCode::from(u8::try_from(code).unwrap_or(crate::FAILURE))
}

// --- which MPI ------------------------------------------------------------------------------------------------------

/// The library for the program's MPI.
fn find_library(
    wanted: Option<MpiFamily>,
    command: &[OsString],
) -> anyhow::Result<(MpiFamily, PathBuf)> {
    let family = match wanted {
        Some(family) => family,
        None => guess_family(command).context(
            "could not find out which MPI the program uses: say --mpi openmpi, or --mpi mpich (for Intel MPI and MVAPICH too)",
        )?,
    };
    let name = format!("libtowline_pmpi_{}.so", family.name());
    if let Some(folder) = std::env::var_os(LIBRARIES_VARIABLE) {
        let path = Path::new(&folder).join(&name);
        let path = path
            .canonicalize()
            .with_context(|| format!("could not find {} ({LIBRARIES_VARIABLE})", path.display()))?;
        return Ok((family, path));
    }
    let program = std::env::current_exe().context("could not find out where this program lies")?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let places = [
        beside.join(&name),
        beside.join("../lib/towline").join(&name),
        beside.join("../lib").join(&name),
    ];
    match places.iter().find_map(|place| place.canonicalize().ok()) {
        Some(library) => Ok((family, library)),
        None => bail!(
            "could not find {name} beside {} nor in ../lib/towline; build it with `make -C pmpi {}` in Towline's source, and name its folder in \
             {LIBRARIES_VARIABLE}",
            program.display(),
            family.name()
        ),
    }
}

/// By the libraries that a program of the command names, else by what its launcher says of itself.
fn guess_family(command: &[OsString]) -> Option<MpiFamily> {
    command
        .iter()
        .filter(|word| !word.to_string_lossy().starts_with('-'))
        .filter(|word| !is_launcher(word))
        .find_map(|word| linked_family(&find_program(word)?))
        .or_else(|| {
            command
                .first()
                .and_then(|launcher| launcher_family(launcher))
        })
}

fn find_program(word: &OsStr) -> Option<PathBuf> {
    let path = Path::new(word);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(path))
        .find(|path| path.is_file())
}

/// The names of MPI libraries that an ELF file needs.
fn linked_family(path: &Path) -> Option<MpiFamily> {
    let mut bytes = Vec::new();
    fs::File::open(path)
        .ok()?
        .take(SEARCHED_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    if !bytes.starts_with(b"\x7fELF") {
        return None;
    }
    let names = |name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    if names(b"\0libmpi.so.40\0") || names(b"\0libmpi.so.20\0") {
        Some(MpiFamily::Openmpi)
    } else if names(b"\0libmpi.so.12\0") || names(b"\0libmpich.so.12\0") {
        Some(MpiFamily::Mpich)
    } else {
        None
    }
}

fn launcher_family(launcher: &OsStr) -> Option<MpiFamily> {
    if !is_launcher(launcher) {
        return None;
    }
    let output = Command::new(launcher).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.contains("Open MPI") || text.contains("OpenRTE") || text.contains("PRRTE") {
        Some(MpiFamily::Openmpi)
    } else if text.contains("HYDRA") || text.contains("Intel(R) MPI") || text.contains("MPICH") {
        Some(MpiFamily::Mpich)
    } else {
        None
    }
}

// --- what came out --------------------------------------------------------------------------------------------------

fn tell(folder: &Path, summary: &Summary, json: bool) -> anyhow::Result<()> {
    for damage in &summary.damaged {
        eprintln!("towline: {damage}");
    }
    let calls: u64 = summary.processes.iter().map(|process| process.calls).sum();
    let on_disk: u64 = ["raw", "replay"]
        .iter()
        .map(|name| bytes_below(&folder.join(name)))
        .sum();
    eprintln!(
        "towline: traced {} ranks with {calls} MPI calls in {:.2} s: {} ({})",
        summary.processes.len(),
        summary.seconds,
        folder.display(),
        table::bytes(on_disk)
    );
    if !summary.missing.is_empty() {
        eprintln!(
            "towline: {} of {} left nothing",
            ranks_as_text(&summary.missing),
            summary.ranks
        );
    }
    if !summary.unfinished.is_empty() {
        eprintln!(
            "towline: {} did not reach MPI_Finalize; what they did until then is in the trace",
            ranks_as_text(&summary.unfinished)
        );
    }
    for reason in &summary.replay.reasons {
        eprintln!("towline: the replay is not the whole program: {reason}");
    }
    match json {
        true => print_json(summary),
        false => Ok(()),
    }
}

fn bytes_below(folder: &Path) -> u64 {
    fs::read_dir(folder).map_or(0, |entries| {
        entries
            .flatten()
            .filter_map(|entry| entry.metadata().ok())
            .map(|metadata| metadata.len())
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debians_names_of_launchers_are_known() {
        for name in [
            "mpirun",
            "/usr/bin/mpirun.openmpi",
            "mpiexec.mpich",
            "mpiexec.hydra",
        ] {
            assert!(is_launcher(OsStr::new(name)), "{name}");
        }
        assert!(!is_launcher(OsStr::new("srun")));
    }

    #[test]
    fn settings_go_to_the_ranks_and_not_to_the_launcher() {
        let settings = [("A", OsString::from("1"))];
        let of = |family, program| launcher_arguments(family, OsStr::new(program), &settings);
        assert_eq!(of(MpiFamily::Openmpi, "mpirun"), ["-x", "A=1"]);
        assert_eq!(of(MpiFamily::Mpich, "mpirun"), ["-genv", "A", "1"]);
        assert!(of(MpiFamily::Mpich, "srun").is_empty());
    }

    #[test]
    fn the_mpi_of_a_program_is_what_it_is_linked_with() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        for (needed, family) in [
            ("libmpi.so.40", Some(MpiFamily::Openmpi)),
            ("libmpich.so.12", Some(MpiFamily::Mpich)),
            ("libc.so.6", None),
        ] {
            fs::write(&program, format!("\x7fELF...\0libm.so.6\0{needed}\0")).unwrap();
            assert_eq!(linked_family(&program), family);
        }
        fs::write(&program, "#!/bin/sh\n# \0libmpi.so.40\0").unwrap();
        assert_eq!(linked_family(&program), None);
    }

    #[test]
    fn a_folder_with_something_in_it_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.tex"), "").unwrap();
        let error = make_folder(folder.path()).unwrap_err().to_string();
        assert!(error.contains("--out"), "{error}");
    }
}
