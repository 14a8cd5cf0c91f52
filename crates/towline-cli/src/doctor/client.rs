//! This machine: settings, libraries, loaders, container.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Finding, State};
use crate::run::{self, CUDA_LIBRARY};
use crate::servers::{self, Chosen, short};
use crate::table;

/// The oldest C library that the client libraries load with.
const OLDEST_GLIBC: (u32, u32) = (2, 17);
/// Less shared memory than this is what container runtimes give unless told otherwise.
const LITTLE_SHARED_MEMORY: u64 = 1 << 30;

pub(super) fn look(chosen: &Chosen) -> Vec<Finding> {
    let mut findings = vec![settings(chosen), access(chosen)];
    let library = run::find_library();
    match &library {
        Ok(library) => {
            findings.push(Finding::ok(
                "libraries",
                folder_of(library).display().to_string(),
            ));
            let cuda = folder_of(library).join(CUDA_LIBRARY);
            if !cuda.exists() {
                let text = format!(
                    "no {}: CUDA programs find this machine's driver",
                    cuda.display()
                );
                findings.push(
                    Finding::new("libraries", State::Warning, text)
                        .but("install all of Towline's libraries in one folder"),
                );
            }
        }
        Err(error) => findings.push(
            Finding::new("libraries", State::Error, format!("{error:#}"))
                .but("install the package with client libraries, or set TOWLINE_LIBRARY"),
        ),
    }
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    findings.push(loader_path(&path));
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let vendors = variable("OCL_ICD_VENDORS").or_else(|| variable("OPENCL_VENDOR_PATH"));
    findings.push(vendor_files(
        vendors
            .as_deref()
            .unwrap_or(OsStr::new("/etc/OpenCL/vendors")),
    ));
    findings.push(opencl_loader(Path::new("/")));
    findings.push(glibc(&glibc_version()));
    findings.extend(container(Path::new("/")));
    findings
}

fn settings(chosen: &Chosen) -> Finding {
    let profile = chosen
        .profile
        .as_ref()
        .map_or_else(String::new, |name| format!("; profile {name}"));
    match chosen.servers.is_empty() {
        true => Finding::new(
            "settings",
            State::Error,
            format!("no server is named{profile}"),
        )
        .but("towline login HOST, or towline doctor HOST"),
        false => {
            let names: Vec<String> = chosen.servers.iter().map(short).collect();
            Finding::ok(
                "settings",
                format!("{} by {}{profile}", names.join(", "), chosen.origin),
            )
        }
    }
}

fn access(chosen: &Chosen) -> Finding {
    match (
        servers::access(&chosen.settings),
        &chosen.settings.token_file,
    ) {
        (Err(error), _) => Finding::new("token", State::Error, format!("{error:#}")),
        (Ok(_), Some(file)) => Finding::ok("token", format!("from {}", file.display())),
        (Ok(_), None) => Finding::new(
            "token",
            State::Note,
            "none: servers that ask for one refuse",
        ),
    }
}

fn folder_of(library: &Path) -> &Path {
    library.parent().unwrap_or(Path::new("/"))
}

/// Which driver library programs without `towline run` load.
fn loader_path(path: &OsStr) -> Finding {
    let is_ours = |found: &Path| {
        let file = found.canonicalize().unwrap_or(found.to_owned());
        file.file_name() == Some(OsStr::new(CUDA_LIBRARY))
    };
    let usual = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ]
    .map(PathBuf::from);
    let folders = std::env::split_paths(path)
        .filter(|folder| !folder.as_os_str().is_empty())
        .chain(usual);
    let found = folders
        .map(|folder| folder.join("libcuda.so.1"))
        .find(|file| file.exists());
    match found {
        Some(found) if is_ours(&found) => {
            Finding::ok("CUDA loader", format!("{} is Towline's", found.display()))
        }
        Some(found) => Finding::new(
            "CUDA loader",
            State::Note,
            format!("without `towline run` programs load {}", found.display()),
        ),
        None => Finding::new(
            "CUDA loader",
            State::Note,
            "CUDA programs need `towline run`: no libcuda.so.1 is in the loader's path",
        ),
    }
}

/// Whether OpenCL programs without `towline run` find Towline.
fn vendor_files(vendors: &OsStr) -> Finding {
    let names_ours = |path: &Path| {
        std::fs::read_to_string(path).is_ok_and(|text| text.contains("towline_opencl"))
    };
    let path = Path::new(vendors);
    let mut files = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    match names_ours(path) || files.any(|file| names_ours(&file)) {
        true => Finding::ok("OpenCL ICD", format!("registered in {}", path.display())),
        false => Finding::new(
            "OpenCL ICD",
            State::Note,
            format!(
                "OpenCL programs need `towline run`: {} does not name Towline",
                path.display()
            ),
        ),
    }
}

fn opencl_loader(root: &Path) -> Finding {
    let folders = [
        "usr/lib/x86_64-linux-gnu",
        "usr/lib/aarch64-linux-gnu",
        "usr/lib64",
        "usr/lib",
    ];
    match folders.iter().map(|folder| root.join(folder).join("libOpenCL.so.1")).find(|file| file.exists()) {
        Some(file) => Finding::ok("OpenCL loader", file.display().to_string()),
        None => Finding::new("OpenCL loader", State::Note, "no libOpenCL.so.1 in the system's folders: OpenCL programs bring their own or do not start")
            .but("install ocl-icd-libopencl1 (Debian) or ocl-icd (Red Hat)"),
    }
}

/// `glibc 2.36`, as `getconf` says it.
fn glibc_version() -> String {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

fn glibc(said: &str) -> Finding {
    let mut numbers = said
        .strip_prefix("glibc ")
        .unwrap_or_default()
        .split('.')
        .map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= OLDEST_GLIBC => {
            Finding::ok("C library", said)
        }
        (Some(Ok(_)), Some(Ok(_))) => Finding::new(
            "C library",
            State::Error,
            format!("{said} is older than 2.17: Towline's libraries do not load"),
        ),
        _ => Finding::new(
            "C library",
            State::Warning,
            "getconf names no version of glibc: with another C library Towline's libraries do not load",
        ),
    }
}

/// Things that a container may lack.
fn container(root: &Path) -> Vec<Finding> {
    let marks = [".dockerenv", "run/.containerenv", ".singularity.d"];
    let Some(mark) = marks.iter().find(|mark| root.join(mark).exists()) else {
        return Vec::new();
    };
    let inside = Finding::new(
        "container",
        State::Note,
        format!("this is one (/{mark}); `local` needs the host's /run/towline mounted"),
    );
    let size = rustix::fs::statvfs(root.join("dev/shm")).map(|shm| shm.f_blocks * shm.f_frsize);
    let shared = match size {
        Ok(bytes) if bytes < LITTLE_SHARED_MEMORY => {
            let text = format!(
                "{} in /dev/shm: PyTorch's data loaders with workers may need more",
                table::bytes(bytes)
            );
            Finding::new("shared memory", State::Warning, text)
                .but("start the container with --shm-size 8g or --ipc host")
        }
        Ok(bytes) => Finding::ok(
            "shared memory",
            format!("{} in /dev/shm", table::bytes(bytes)),
        ),
        Err(error) => Finding::new(
            "shared memory",
            State::Warning,
            format!("no /dev/shm: {error}"),
        ),
    };
    vec![inside, shared]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_or_other_c_library_is_told() {
        assert_eq!(glibc("glibc 2.17").state, State::Ok);
        assert_eq!(glibc("glibc 3.0").state, State::Ok);
        assert_eq!(glibc("glibc 2.12").state, State::Error);
        assert_eq!(glibc("").state, State::Warning);
    }

    #[test]
    fn driver_first_in_the_path_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name));
        for path in [&ours, &theirs] {
            std::fs::create_dir(path).unwrap();
        }
        std::fs::write(ours.join(CUDA_LIBRARY), "").unwrap();
        std::os::unix::fs::symlink(ours.join(CUDA_LIBRARY), ours.join("libcuda.so.1")).unwrap();
        std::fs::write(theirs.join("libcuda.so.1"), "").unwrap();
        let path = |folders: [&PathBuf; 2]| std::env::join_paths(folders).unwrap();
        assert_eq!(loader_path(&path([&ours, &theirs])).state, State::Ok);
        let other = loader_path(&path([&theirs, &ours]));
        assert_eq!(other.state, State::Note);
        assert!(other.text.contains("theirs/libcuda.so.1"), "{}", other.text);
    }

    #[test]
    fn registered_icd_is_found() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(vendor_files(folder.path().as_os_str()).state, State::Note);
        std::fs::write(
            folder.path().join("towline.icd"),
            "/lib/libtowline_opencl.so\n",
        )
        .unwrap();
        assert_eq!(vendor_files(folder.path().as_os_str()).state, State::Ok);
    }

    #[test]
    fn container_is_told_with_its_shared_memory() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(container(root.path()), []);
        std::fs::write(root.path().join(".dockerenv"), "").unwrap();
        let findings = container(root.path());
        assert_eq!(findings.len(), 2);
        assert!(
            findings[1].text.contains("no /dev/shm"),
            "{}",
            findings[1].text
        );
    }
}
