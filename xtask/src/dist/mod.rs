//! `cargo xtask dist` and `cargo xtask install`: the release as files in their places, and packages of them.
//!
//! ```text
//! bin/towline
//! bin/towline-sim                                   only by install, where this machine has SimGrid
//! lib/libtowline_cuda.so
//! lib/libtowline_cudart{12,13}.so
//! lib/libtowline_nccl.so
//! lib/libtowline_nvml.so
//! lib/libtowline_opencl.so
//! lib/towline/libtowline_pmpi_{mpich,openmpi}.so    only by install, of those MPIs that this machine has a compiler for
//! lib/towline/python/towline_bench/                  the benchmark suite; needs Python 3.11 and matplotlib
//! share/man/man1/towline*.1
//! share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}/...
//! share/doc/towline/{CHANGELOG.md,LICENSE,README.md}
//! share/doc/towline/{THIRD-PARTY-LICENSES,sbom.cdx.json}   only by dist
//! share/modulefiles/towline/<version>{,.lua}        only by dist
//! ```
//!
//! Manual pages and completions come from the built program itself, so that they cannot differ from it. Packages
//! ([`pack`]) are built for glibc 2.17, whatever this machine has, and the same commit gives the same bytes.

mod deflate;
mod native;
mod sbom;
mod target;
#[cfg(test)]
mod tests;
mod wheel;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use sha2::{Digest, Sha256};

use self::sbom::Parts;
pub(crate) use self::target::Target;
use crate::workspace::Workspace;

const PROGRAM: &str = "towline";
/// The packages whose programs and libraries are released.
const PACKAGES: [&str; 7] = [
    "towline-cli",
    "towline-cuda",
    "towline-cudart12",
    "towline-cudart13",
    "towline-nccl",
    "towline-nvml",
    "towline-opencl",
];
const LIBRARIES: &[&str] = &[
    "libtowline_cuda.so",
    "libtowline_cudart12.so",
    "libtowline_cudart13.so",
    "libtowline_nccl.so",
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

/// A form that the release is packed in.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Form {
    /// Packages for Debian and its relatives
    Deb,
    /// Packages for Red Hat's systems and their relatives
    Rpm,
    /// A tar archive with an installer
    Tarball,
    /// A Python wheel
    Wheel,
}

/// A run of `cargo xtask dist`.
struct Packing<'a> {
    workspace: &'a Workspace,
    /// The folder for packages.
    dist: PathBuf,
    /// Seconds since the epoch that everything packed is of.
    time: String,
    version: String,
}

impl<'a> Packing<'a> {
    fn new(workspace: &'a Workspace, folder: &str) -> Result<Self> {
        let packing = Self {
            workspace,
            dist: workspace.build_dir().join(folder),
            time: commit_time(workspace),
            // Of an earlier release, to test upgrades from.
            version: std::env::var("TOWLINE_DIST_VERSION").unwrap_or_else(|_| VERSION.to_owned()),
        };
        empty_dir(&packing.dist)?;
        Ok(packing)
    }

    fn pack(&self, target: Target, built: &Path, program: &Path, forms: &[Form]) -> Result<()> {
        let tree = self.scratch(&format!("towline-{}-{}", self.version, target.triple()));
        empty_dir(&tree)?;
        let strip = format!("{}-linux-gnu-strip", target.arch());
        place_release(self.workspace, built, program, &strip, &tree)?;
        place_lists(self, target, &tree)?;
        place_modules(self, &tree)?;
        self.pack_tree(target, &tree, forms)
    }

    /// Packs files that are in their places: the same files give the same bytes, wherever and whenever, under any umask.
    fn pack_tree(&self, target: Target, tree: &Path, forms: &[Form]) -> Result<()> {
        self.settle(tree)?;
        for form in forms {
            match form {
                Form::Deb => native::pack(self, target, tree, "deb")?,
                Form::Rpm => native::pack(self, target, tree, "rpm")?,
                Form::Tarball => tarball(self, tree)?,
                Form::Wheel => wheel::pack(self, target, tree)?,
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<ExitCode> {
        write_digests(&self.dist)?;
        println!("{}", self.dist.display());
        Ok(ExitCode::SUCCESS)
    }

    /// Gives a folder, and all in it, the modes of the usual umask and the release's time: some packers keep them.
    fn settle(&self, path: &Path) -> Result<()> {
        let action = || format!("cannot set mode and time of {}", path.display());
        let found = path.metadata().with_context(action)?;
        if found.is_dir() {
            entries(path)?
                .iter()
                .try_for_each(|path| self.settle(path))?;
        }
        // Folders are executable, too.
        let mode = match found.permissions().mode() & 0o100 {
            0 => 0o644,
            _ => 0o755,
        };
        fs::set_permissions(path, Permissions::from_mode(mode)).with_context(action)?;
        let seconds = self.time.parse();
        let seconds = seconds.with_context(|| format!("`{}` is no time", self.time))?;
        let time = UNIX_EPOCH + Duration::from_secs(seconds);
        let file = File::open(path).and_then(|file| file.set_modified(time));
        file.with_context(action)
    }

    /// A folder for what is on its way into a package.
    fn scratch(&self, name: &str) -> PathBuf {
        self.dist.with_extension("scratch").join(name)
    }

    /// A program that `scripts/setup dist` installed.
    fn tool(&self, name: &str) -> Command {
        let mut command =
            Command::new(self.workspace.build_dir().join("dist-tools/bin").join(name));
        command.env("SOURCE_DATE_EPOCH", &self.time);
        command
    }

    /// [`Self::time`] as in 2026-11-25T12:00:00Z.
    fn rfc3339(&self) -> Result<String> {
        let output = Command::new("date")
            .args(["--utc", "+%Y-%m-%dT%H:%M:%SZ", "--date"])
            .arg(format!("@{}", self.time))
            .output()
            .context("cannot run date")?;
        ensure!(output.status.success(), "`{}` is no time", self.time);
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

/// Packs the release into `build/dist/`: the same commit gives the same bytes.
pub(crate) fn pack(workspace: &Workspace, targets: &[Target], forms: &[Form]) -> Result<ExitCode> {
    let packing = Packing::new(workspace, "dist")?;
    // Its program writes the manual pages and completions of all.
    let native = Target::X86_64.build(workspace)?;
    let program = native.join(PROGRAM);
    for &target in targets {
        let built = match target {
            Target::X86_64 => native.clone(),
            Target::Aarch64 => target.build(workspace)?,
        };
        packing.pack(target, &built, &program, forms)?;
    }
    packing.finish()
}

/// Packs what `cargo build --release` made for this machine into `build/dist-quick/`, to test packages by: they need this machine's
/// glibc.
pub(crate) fn pack_quick(workspace: &Workspace) -> Result<ExitCode> {
    let packing = Packing::new(workspace, "dist-quick")?;
    let built = match std::env::var_os("TOWLINE_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => workspace.metadata()?.target_directory.join("release"),
    };
    packing.pack(
        Target::X86_64,
        &built,
        &built.join(PROGRAM),
        Form::value_variants(),
    )?;
    packing.finish()
}

/// The tree, with an installer that checks its files.
fn tarball(packing: &Packing<'_>, tree: &Path) -> Result<()> {
    let name = tree.file_name().context("a tree without a name")?;
    let whole = packing.scratch("tarball").join(name);
    empty_dir(&whole)?;
    copy_tree(tree, &whole)?;
    write_digests(&whole)?;
    let installer = packing.workspace.root().join("packaging/install.sh");
    fs::copy(&installer, whole.join("install.sh"))
        .with_context(|| format!("cannot copy {}", installer.display()))?;
    let mut file = name.to_owned();
    file.push(".tar.gz");
    let archive = packing.dist.join(file);
    succeed(
        Command::new("tar")
            .args([
                "--sort=name",
                "--owner=0",
                "--group=0",
                "--numeric-owner",
                "--mode=go=rX,u+rw",
                "--format=gnu",
            ])
            .arg(format!("--mtime=@{}", packing.time))
            .args(["--use-compress-program", "gzip -9n"])
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .arg(packing.scratch("tarball"))
            .arg(name),
    )
}

/// Writes the digests of all files below a folder, as `sha256sum` does, to SHA256SUMS there.
fn write_digests(folder: &Path) -> Result<()> {
    let mut lines = String::new();
    for file in files_below(folder)? {
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let digest = Sha256::digest(&bytes);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = file.strip_prefix(folder)?.display();
        lines += &format!("{digest}  {name}\n");
    }
    write(&folder.join("SHA256SUMS"), lines.as_bytes())
}

/// All files below a folder, in order.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        match path.is_dir() {
            true => files.extend(files_below(&path)?),
            false => files.push(path),
        }
    }
    Ok(files)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = || {
        fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect()
    };
    let result: std::io::Result<Vec<PathBuf>> = read();
    let mut paths = result.with_context(|| format!("cannot read {}", folder.display()))?;
    paths.sort();
    Ok(paths)
}

/// Copies what lies in a folder into another one.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    create_dir(to)?;
    for path in entries(from)? {
        let place = to.join(path.file_name().context("an entry without a name")?);
        match path.is_dir() {
            true => copy_tree(&path, &place)?,
            false => {
                fs::copy(&path, &place)
                    .with_context(|| format!("cannot copy {}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// The release's parts, and their licences.
fn place_lists(packing: &Packing<'_>, target: Target, tree: &Path) -> Result<()> {
    let parts = Parts::of(packing.workspace, &target.triple())?;
    let lock = packing.workspace.root().join("Cargo.lock");
    let lock =
        fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let documents = tree.join("share/doc").join(PROGRAM);
    let sbom = parts.cyclonedx(&lock, &rustc_says("release: ")?)?;
    write(&documents.join("sbom.cdx.json"), sbom.as_bytes())?;
    write(
        &documents.join("THIRD-PARTY-LICENSES"),
        parts.licences()?.as_bytes(),
    )
}

/// Files for environment modules, which find the tree by their own place in it.
fn place_modules(packing: &Packing<'_>, tree: &Path) -> Result<()> {
    for (from, to) in [
        ("modulefile.tcl", packing.version.clone()),
        ("modulefile.lua", format!("{}.lua", packing.version)),
    ] {
        let from = packing.workspace.root().join("packaging").join(from);
        let text = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        write(&tree.join("share/modulefiles/towline").join(to), &text)?;
    }
    Ok(())
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

/// Builds the release for this machine, with what it has libraries for, and puts its files in their places below `tree`.
fn stage(workspace: &Workspace, tree: &Path) -> Result<()> {
    succeed(&mut build_command(workspace))?;
    let built = workspace.metadata()?.target_directory.join("release");
    place_release(workspace, &built, &built.join(PROGRAM), "strip", tree)?;
    place_tracing_libraries(workspace, tree)?;
    place_simulator(workspace, tree)
}

fn build_command(workspace: &Workspace) -> Command {
    let mut command = workspace.cargo();
    command.args(["build", "--release", "--locked"]);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    command
}

/// Puts what was built in its places. `program` runs on this machine and is of the same sources.
fn place_release(
    workspace: &Workspace,
    built: &Path,
    program: &Path,
    strip: &str,
    tree: &Path,
) -> Result<()> {
    place_stripped(strip, &built.join(PROGRAM), &tree.join("bin").join(PROGRAM))?;
    for library in LIBRARIES {
        place_stripped(strip, &built.join(library), &tree.join("lib").join(library))?;
    }
    let package = workspace.root().join("python/src/towline_bench");
    place_python(&package, &tree.join("lib/towline/python/towline_bench"))?;

    let share = tree.join("share");
    let manual = share.join("man/man1");
    create_dir(&manual)?;
    succeed(Command::new(program).arg("man").arg(&manual))?;
    for (shell, place) in COMPLETIONS {
        let output = Command::new(program)
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

/// Libraries that `towline trace` loads into MPI programs. Without an MPI it has nothing to trace.
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
            "strip",
            &build.join(&name),
            &tree.join("lib").join(PROGRAM).join(&name),
        )?;
    }
    Ok(())
}

/// The program that `towline simulate` starts. Without SimGrid it says how to get one.
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
    place_stripped("strip", &built, &tree.join("bin/towline-sim"))
}

/// Copies a Python package: its sources, not what the interpreter leaves beside them.
fn place_python(from: &Path, to: &Path) -> Result<()> {
    for path in entries(from)? {
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
fn place_stripped(strip: &str, from: &Path, to: &Path) -> Result<()> {
    create_dir(to.parent().context("a place without a directory")?)?;
    let temporary = to.with_extension("new");
    succeed(
        Command::new(strip)
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

/// Makes a folder, without what may be in it.
fn empty_dir(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    create_dir(directory)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// The compiler's words about itself in the line that begins with `key`.
fn rustc_says(key: &str) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("-vV")
        .output()
        .context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.map(str::to_owned)
        .with_context(|| format!("rustc -vV says no `{key}`"))
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
