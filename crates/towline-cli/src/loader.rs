//! Which OpenCL loader a program gets, and whether that one can be told where our library is.
//!
//! Loaders (ocl-icd, Khronos's) read a folder of `.icd` files that a variable names. Some do not: the one of NVIDIA's CUDA
//! toolkit reads /etc/OpenCL/vendors and nothing else. Where such a loader comes first, another of this machine goes before it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name that programs load it by.
pub(crate) const SONAME: &str = "libOpenCL.so.1";
/// Variables that loaders take a folder from; one that reads a variable has its name in it.
pub(crate) const VARIABLES: [&str; 2] = ["OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"];
/// Where Debian, others and 64-bit multilib systems keep libraries.
const USUAL_FOLDERS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

/// What is to be done about the loader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The program's own can be told, or there is none.
    Own,
    /// This one must come first.
    Instead(PathBuf),
    /// This one comes first, cannot be told, and there is no other.
    Deaf(PathBuf),
}

/// Looks at the loaders of this machine in the order in which a program finds them.
pub(crate) fn choose() -> Choice {
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = std::env::split_paths(&named)
        .filter(|folder| !folder.as_os_str().is_empty())
        .map(|folder| folder.join(SONAME))
        .collect();
    // The cache of the dynamic linker has its order of folders; where it cannot be read, the usual ones have to do.
    if let Ok(output) = Command::new("/sbin/ldconfig").arg("-p").output() {
        found.extend(cached(&String::from_utf8_lossy(&output.stdout)));
    }
    found.extend(USUAL_FOLDERS.map(|folder| Path::new(folder).join(SONAME)));
    choose_among(&found)
}

/// The loaders that the linker's cache names for programs of this kind.
fn cached(listing: &str) -> Vec<PathBuf> {
    let kind = match std::env::consts::ARCH {
        "x86_64" => "x86-64",
        "aarch64" => "AArch64",
        other => other,
    };
    let path = |line: &str| {
        let (name, path) = line.trim().split_once(" => ")?;
        let (name, flags) = name.split_once(' ')?;
        (name == SONAME && flags.contains(kind)).then(|| PathBuf::from(path))
    };
    listing.lines().filter_map(path).collect()
}

fn choose_among(candidates: &[PathBuf]) -> Choice {
    let mut readable = candidates
        .iter()
        .filter_map(|path| Some((path, std::fs::read(path).ok()?)));
    let Some((first, contents)) = readable.next() else {
        return Choice::Own;
    };
    if can_be_told(&contents) {
        return Choice::Own;
    }
    match readable.find(|(_, contents)| can_be_told(contents)) {
        Some((other, _)) => Choice::Instead(other.clone()),
        None => Choice::Deaf(first.clone()),
    }
}

fn can_be_told(loader: &[u8]) -> bool {
    VARIABLES.iter().any(|name| {
        let name = OsStr::new(name).as_encoded_bytes();
        loader.windows(name.len()).any(|part| part == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loader(folder: &tempfile::TempDir, contents: &str) -> PathBuf {
        let path = folder.path().join(SONAME);
        std::fs::write(&path, contents).expect("the folder is ours");
        path
    }

    #[test]
    fn a_loader_that_knows_no_variable_gives_way_to_one_that_does() {
        let folders: [_; 3] = std::array::from_fn(|_| tempfile::tempdir().expect("a folder"));
        let none = folders[0].path().join(SONAME);
        let deaf = loader(&folders[1], "\0/etc/OpenCL/vendors\0");
        let good = loader(&folders[2], "\0OCL_ICD_VENDORS\0");
        let choose = |paths: &[&PathBuf]| {
            choose_among(&paths.iter().map(|path| (*path).clone()).collect::<Vec<_>>())
        };
        assert_eq!(choose(&[]), Choice::Own);
        assert_eq!(choose(&[&none]), Choice::Own);
        assert_eq!(choose(&[&none, &good, &deaf]), Choice::Own);
        assert_eq!(
            choose(&[&none, &deaf, &good]),
            Choice::Instead(good.clone())
        );
        assert_eq!(choose(&[&deaf, &deaf]), Choice::Deaf(deaf.clone()));
    }

    #[test]
    fn the_linkers_cache_is_read_for_programs_of_this_kind() {
        let listing = "123 libs found in cache `/etc/ld.so.cache'\n\
                       \tlibOpenCL.so.1 (libc6,x86-64) => /opt/cuda/lib64/libOpenCL.so.1\n\
                       \tlibOpenCL.so.1 (libc6,AArch64) => /usr/lib/aarch64-linux-gnu/libOpenCL.so.1\n\
                       \tlibOpenCL.so.1 (libc6) => /usr/lib/i386-linux-gnu/libOpenCL.so.1\n\
                       \tlibOpenCL.so (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libOpenCL.so\n";
        let wanted = match std::env::consts::ARCH {
            "x86_64" => "/opt/cuda/lib64/libOpenCL.so.1",
            _ => "/usr/lib/aarch64-linux-gnu/libOpenCL.so.1",
        };
        assert_eq!(cached(listing), [PathBuf::from(wanted)]);
    }
}
