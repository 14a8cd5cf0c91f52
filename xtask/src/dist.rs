//! `cargo xtask dist` and `cargo xtask install`: the release as files in their places.
//!
//! ```text
//! bin/towline
//! bin/towline-sim                                   where this machine has SimGrid
//! lib/libtowline_cuda.so
//! lib/libtowline_cudart{12,13}.so
//! lib/libtowline_nvml.so
//! lib/libtowline_opencl.so
//! lib/towline/libtowline_pmpi_{mpich,openmpi}.so    of those MPIs that this machine has a compiler for
//! lib/towline/python/towline_bench/                  the benchmark suite; needs Python 3.11 and matplotlib
//! share/man/man1/towline*.1
//! share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}/...
//! share/doc/towline/{CHANGELOG.md,LICENSE,README.md}
//! ```
//!
//! Manual pages and completions come from the built program itself, so that they cannot differ from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::workspace::Workspace;

const PROGRAM: &str = "towline";
const LIBRARIES: &[&str] = &[
    "libtowline_cuda.so",
    "libtowline_cudart12.so",
    "libtowline_cudart13.so",
    "libtowline_nvml.so",
    "libtowline_opencl.so",
];
/// Compiler of an MPI, and what the tracing library for it is called after.
const TRACED_MPIS: &[(&str, &str)] = &[("mpicc.mpich", "mpich"), ("mpicc.openmpi", "openmpi")];
const DOCUMENTS: &[&str] = &["CHANGELOG.md", "LICENSE", "README.md"];
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Shell, and where its completions are looked for below `share/`.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "bash-completion/completions/towline"),
    ("fish", "fish/vendor_completions.d/towline.fish"),
    ("zsh", "zsh/site-functions/_towline"),
];

/// Packs the release into `build/dist/towline-<version>-<triple>.tar.gz`; the same commit gives the same bytes.
pub(crate) fn pack(workspace: &Workspace) -> Result<ExitCode> {
    let name = format!("{PROGRAM}-{VERSION}-{}", host_triple()?);
    let dist = workspace.build_dir().join("dist");
    let tree = dist.join(&name);
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    stage(workspace, &tree)?;

    let archive = dist.join(format!("{name}.tar.gz"));
    succeed(
        Command::new("tar")
            .args([
                "--sort=name",
                "--owner=0",
                "--group=0",
                "--numeric-owner",
                "--mode=go=rX,u+rw",
            ])
            .arg(format!("--mtime=@{}", commit_time(workspace)))
            .args(["--use-compress-program", "gzip -9n"])
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .arg(&dist)
            .arg(&name),
    )?;
    println!("{}", archive.display());
    Ok(ExitCode::SUCCESS)
}

/// Installs the release below `prefix`, within `destdir` if that is not empty.
pub(crate) fn install(workspace: &Workspace, prefix: &Path, destdir: &Path) -> Result<ExitCode> {
    ensure!(
        prefix.is_absolute(),
        "the prefix has to be an absolute path, not `{}`",
        prefix.display()
    );
    let tree = within(destdir, prefix);
    stage(workspace, &tree)?;
    println!("installed Towline {VERSION} below {}", tree.display());
    Ok(ExitCode::SUCCESS)
}

fn within(destdir: &Path, prefix: &Path) -> PathBuf {
    if destdir.as_os_str().is_empty() {
        return prefix.to_owned();
    }
    // `join` would let an absolute path replace the directory.
    destdir.join(prefix.strip_prefix("/").unwrap_or(prefix))
}

/// Builds the release and puts its files in their places below `tree`.
fn stage(workspace: &Workspace, tree: &Path) -> Result<()> {
    succeed(workspace.cargo().args([
        "build",
        "--release",
        "--locked",
        "--package",
        "towline-cli",
        "--package",
        "towline-cuda",
        "--package",
        "towline-cudart12",
        "--package",
        "towline-cudart13",
        "--package",
        "towline-nvml",
        "--package",
        "towline-opencl",
    ]))?;
    let built = workspace.metadata()?.target_directory.join("release");

    let program = tree.join("bin").join(PROGRAM);
    place_stripped(&built.join(PROGRAM), &program)?;
    for library in LIBRARIES {
        place_stripped(&built.join(library), &tree.join("lib").join(library))?;
    }

    place_tracing_libraries(workspace, tree)?;
    place_simulator(workspace, tree)?;
    let package = workspace.root().join("python/src/towline_bench");
    place_python(&package, &tree.join("lib/towline/python/towline_bench"))?;

    let share = tree.join("share");
    let manual = share.join("man/man1");
    create_dir(&manual)?;
    succeed(Command::new(&program).arg("man").arg(&manual))?;
    for (shell, place) in COMPLETIONS {
        let output = Command::new(&program)
            .args(["completions", shell])
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        ensure!(
            output.status.success(),
            "towline completions {shell}: {}",
            output.status
        );
        write(&share.join(place), &output.stdout)?;
    }
    for document in DOCUMENTS {
        let from = workspace.root().join(document);
        let text = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        write(&share.join("doc").join(PROGRAM).join(document), &text)?;
    }
    Ok(())
}

/// What `towline trace` loads into MPI programs. Without an MPI it has nothing to trace.
fn place_tracing_libraries(workspace: &Workspace, tree: &Path) -> Result<()> {
    let build = workspace.build_dir().join("pmpi");
    for (compiler, family) in TRACED_MPIS {
        if Command::new(compiler).arg("--version").output().is_err() {
            println!("without {compiler} there is no tracing library for {family}");
            continue;
        }
        succeed(
            Command::new("make")
                .env_remove("MAKEFLAGS")
                .arg("-C")
                .arg(workspace.root().join("pmpi"))
                .arg(format!("BUILD={}", build.display()))
                .arg(family),
        )?;
        let name = format!("libtowline_pmpi_{family}.so");
        place_stripped(
            &build.join(&name),
            &tree.join("lib").join(PROGRAM).join(&name),
        )?;
    }
    Ok(())
}

/// What `towline simulate` starts. Without SimGrid it says how to get one.
fn place_simulator(workspace: &Workspace, tree: &Path) -> Result<()> {
    let source = workspace.root().join("sim");
    let built = workspace.build_dir().join("towline-sim");
    let compiled = Command::new("make")
        .env_remove("MAKEFLAGS")
        .arg("--silent")
        .arg("-C")
        .arg(&source)
        .arg(format!("OUT={}", built.display()))
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        println!("without SimGrid (libsimgrid-dev) there is no towline-sim");
        return Ok(());
    }
    place_stripped(&built, &tree.join("bin/towline-sim"))
}

/// Copies a Python package: its sources, not what the interpreter leaves beside them.
fn place_python(from: &Path, to: &Path) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(from)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .with_context(|| format!("cannot read {}", from.display()))?
        .into_iter()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().context("an entry without a name")?;
        let is_source = path
            .extension()
            .is_some_and(|extension| extension == "py" || extension == "typed");
        if path.is_dir() && name != "__pycache__" {
            place_python(&path, &to.join(name))?;
        } else if is_source {
            let text =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            write(&to.join(name), &text)?;
        }
    }
    Ok(())
}

/// Copies an executable or library without its debugging information. An older file in its place may be in use: it
/// is replaced, never written into.
fn place_stripped(from: &Path, to: &Path) -> Result<()> {
    create_dir(to.parent().context("a place without a directory")?)?;
    let temporary = to.with_extension("new");
    succeed(
        Command::new("strip")
            .arg("--strip-unneeded")
            .arg("-o")
            .arg(&temporary)
            .arg(from),
    )?;
    fs::rename(&temporary, to).with_context(|| format!("cannot put {} in its place", to.display()))
}

fn write(to: &Path, bytes: &[u8]) -> Result<()> {
    create_dir(to.parent().context("a place without a directory")?)?;
    fs::write(to, bytes).with_context(|| format!("cannot write {}", to.display()))
}

fn create_dir(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// The target that a plain `cargo build` builds for.
fn host_triple() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("-vV")
        .output()
        .context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

/// Seconds since the epoch: what packagers ask for, else the last commit's, else zero (a source archive has none).
fn commit_time(workspace: &Workspace) -> String {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return time;
    }
    let output = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(workspace.root())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destdir_stands_before_the_prefix() {
        assert_eq!(
            within(Path::new("/tmp/pkg"), Path::new("/usr/local")),
            Path::new("/tmp/pkg/usr/local")
        );
        assert_eq!(
            within(Path::new(""), Path::new("/usr/local")),
            Path::new("/usr/local")
        );
    }

    #[test]
    fn a_relative_prefix_is_refused_before_anything_is_built() {
        let workspace = Workspace::locate().unwrap();
        let error = install(&workspace, Path::new("usr"), Path::new(""))
            .unwrap_err()
            .to_string();
        assert!(error.contains("absolute"), "{error}");
    }

    #[test]
    fn the_host_triple_names_an_architecture_and_a_system() {
        let triple = host_triple().unwrap();
        assert!(
            triple.starts_with(std::env::consts::ARCH) && triple.contains("linux"),
            "{triple}"
        );
    }
}
