//! Where the binaries are, and how the C programs come about.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Folder of the release build, where it is not the one of this build.
pub(super) const BINARIES: &str = "TOWLINE_BIN_DIR";

/// The program `towline`.
pub(crate) fn towline() -> PathBuf {
    binary("towline")
}

fn binary(name: &str) -> PathBuf {
    let folder = std::env::var_os(BINARIES).map_or_else(release_folder, PathBuf::from);
    let library = folder.join("libtowline_opencl.so");
    let path = folder.join(name);
    assert!(
        path.exists() && library.exists(),
        "{} or {} is missing: run `cargo build --release -p towline-cli -p towline-opencl` first, or name the folder of \
         the binaries in {BINARIES}",
        path.display(),
        library.display()
    );
    path
}

/// `release` beside the folder of this build's profile: this program lies in `TARGET/PROFILE/deps`.
fn release_folder() -> PathBuf {
    let this = std::env::current_exe().expect("a program knows where it lies");
    let target = this
        .ancestors()
        .nth(3)
        .expect("it lies in TARGET/PROFILE/deps");
    target.join("release")
}

/// One of `workloads/opencl`.
pub(crate) fn workload(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let source = ["..", "..", "workloads", "opencl"];
    built(&FOLDER, "workloads", &source, "all").join(name)
}

/// One of `programs/`.
pub(crate) fn opencl_program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    built(&FOLDER, "programs", &["programs"], "all").join(name)
}

/// One of `programs/mpi/`, for Open MPI.
pub(crate) fn mpi_program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = built(&FOLDER, "mpi-programs", &["programs"], "mpi");
    folder.join("mpi").join(name)
}

/// Has `make` bring the programs up to date, once for all tests.
fn built<'a>(folder: &'a OnceLock<PathBuf>, name: &str, source: &[&str], goal: &str) -> &'a Path {
    folder.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let source = source
            .iter()
            .fold(PathBuf::from(env!("CARGO_MANIFEST_DIR")), |path, part| {
                path.join(part)
            });
        let mut build = OsStr::new("BUILD=").to_owned();
        build.push(&target);
        let output = Command::new("make")
            .arg("--silent")
            .arg("-C")
            .arg(&source)
            .arg(build)
            .arg(goal)
            .output();
        let output = output.expect("make is installed");
        assert!(
            output.status.success(),
            "make -C {}: {}",
            source.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        target
    })
}
