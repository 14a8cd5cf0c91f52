//! `towline nvcc`: nvcc for programs that run with `towline run --cudart`.
//!
//! nvcc links `-lcudart` and `-lcuda` by names without a version. Packages of Python have no such files, and the driver's is only where a
//! driver is. Towline's libraries stand under these names in a folder that goes before nvcc's own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};

use crate::cli::NvccOptions;
use crate::run::{self, CUDA_LIBRARY, CUDART};

/// Places of nvcc in packages of Python, below their folder.
const PACKAGES: [&str; 3] = [
    "nvidia/cu13/bin/nvcc",
    "nvidia/cuda_nvcc/bin/nvcc",
    "nvidia/cu12/bin/nvcc",
];

pub(crate) fn run(options: &NvccOptions) -> anyhow::Result<ExitCode> {
    let nvcc = find()?;
    let release = release(&nvcc)?;
    let library = run::find_library()?;
    let folder = library.parent().unwrap_or(Path::new("/"));
    let soname = format!("libcudart.so.{release}");
    let Some((_, cudart)) = CUDART.iter().find(|(name, _)| *name == soname) else {
        bail!(
            "{} is of CUDA {release}; Towline has a runtime library for 12 and 13",
            nvcc.display()
        );
    };
    let named = |name: &str| {
        let path = folder.join(name);
        path.canonicalize().with_context(|| {
            format!(
                "could not find {}, which `towline nvcc` links with",
                path.display()
            )
        })
    };
    let links = [
        ("libcudart.so", named(cudart)?),
        ("libcuda.so", named(CUDA_LIBRARY)?),
    ];
    let links = run::driver_folder(&run::private_folder()?, &links)?;
    let error = Command::new(&nvcc)
        .args(arguments(&options.arguments, &links))
        .exec();
    Err(error).with_context(|| format!("could not run {}", nvcc.display()))
}

/// The arguments for nvcc: the user's, and ours where they do not say otherwise.
fn arguments(given: &[OsString], links: &Path) -> Vec<OsString> {
    let chooses = |argument: &OsString| {
        let text = argument.to_string_lossy();
        let name = text
            .trim_start_matches('-')
            .split('=')
            .next()
            .unwrap_or_default();
        text.starts_with('-') && name == "cudart"
    };
    let mut all = vec![OsString::from("-L"), links.into()];
    if !given.iter().any(chooses) {
        all.extend(["-cudart", "shared"].map(OsString::from));
    }
    all.extend(given.iter().cloned());
    all
}

/// The compiler: `NVCC`, in `PATH`, in a virtual environment, or among the packages of `python3`.
fn find() -> anyhow::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = variable("NVCC") {
        return Ok(named.into());
    }
    let path = variable("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("nvcc"));
    if let Some(found) = in_path.into_iter().find(|file| file.is_file()) {
        return Ok(found);
    }
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(variable);
    let mut folders: Vec<PathBuf> = environments
        .flat_map(|folder| site_packages(Path::new(&folder)))
        .collect();
    folders.extend(python_folders());
    in_packages(&folders).context(
        "there is no nvcc: `pip install nvidia-cuda-nvcc nvidia-cuda-runtime`, or name one in NVCC",
    )
}

/// Folders of packages in an environment.
fn site_packages(environment: &Path) -> Vec<PathBuf> {
    let versions = std::fs::read_dir(environment.join("lib"))
        .into_iter()
        .flatten()
        .flatten();
    let mut folders: Vec<PathBuf> = versions
        .map(|entry| entry.path().join("site-packages"))
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

fn python_folders() -> Vec<PathBuf> {
    let output = Command::new("python3")
        .args(["-c", "import sys; print('\\n'.join(sys.path))"])
        .output();
    let said = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said)
        .lines()
        .filter(|line| !line.is_empty())
        .map(PathBuf::from)
        .collect()
}

fn in_packages(folders: &[PathBuf]) -> Option<PathBuf> {
    let files = folders
        .iter()
        .flat_map(|folder| PACKAGES.map(|name| folder.join(name)));
    files.into_iter().find(|file| file.is_file())
}

/// The CUDA release that a compiler is of.
fn release(nvcc: &Path) -> anyhow::Result<u32> {
    let output = Command::new(nvcc)
        .arg("--version")
        .output()
        .with_context(|| format!("could not run {}", nvcc.display()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    release_of(&said).with_context(|| format!("{} --version names no release", nvcc.display()))
}

fn release_of(said: &str) -> Option<u32> {
    said.split("release ")
        .nth(1)?
        .split('.')
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_is_shared_unless_arguments_choose() {
        let all = |given: &[&str]| {
            let given: Vec<OsString> = given.iter().map(OsString::from).collect();
            let all = arguments(&given, Path::new("/links"));
            all.iter()
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(all(&["x.cu"]), "-L /links -cudart shared x.cu");
        for chosen in ["-cudart=static", "--cudart=none"] {
            assert_eq!(all(&[chosen, "x.cu"]), format!("-L /links {chosen} x.cu"));
        }
        assert_eq!(all(&["--cudart", "static"]), "-L /links --cudart static");
        assert_eq!(all(&["cudart"]), "-L /links -cudart shared cudart");
    }

    #[test]
    fn release_is_read_from_the_version() {
        assert_eq!(
            release_of("Cuda compilation tools, release 13.5, V13.5.37\n"),
            Some(13)
        );
        assert_eq!(release_of("gcc 12"), None);
    }

    #[test]
    fn compiler_of_a_package_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().join("lib/python3.11/site-packages");
        let nvcc = packages.join("nvidia/cu13/bin/nvcc");
        std::fs::create_dir_all(nvcc.parent().unwrap()).unwrap();
        std::fs::write(&nvcc, "").unwrap();
        assert_eq!(in_packages(&site_packages(folder.path())), Some(nvcc));
        assert_eq!(in_packages(&[folder.path().into()]), None);
    }
}
