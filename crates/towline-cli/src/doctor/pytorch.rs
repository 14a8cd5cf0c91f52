//! The PyTorch of this machine's `python3`: which CUDA it is built for, and whether a server's driver and devices fit.
//!
//! It is read, never imported: that takes seconds, and loads the driver library.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use towline_wire::cuda::{self, snapshot::Snapshot};

use super::{Finding, State};

/// Prints where PyTorch lies. A folder `torch` where doctor happens to be called is not meant.
const LOCATE: &str = "import sys; sys.path = [path for path in sys.path if path]; import importlib.util; \
     found = importlib.util.find_spec('torch'); print(*found.submodule_search_locations or [] if found else [], sep='\\n')";

/// A version of CUDA, or a compute capability.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Version(i32, i32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A build of PyTorch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PyTorch {
    version: String,
    folder: PathBuf,
    /// `None` of a build for processors or another vendor's GPUs.
    cuda: Option<Version>,
}

impl PyTorch {
    /// The one that `python3` imports: the virtual environment's, else that of PATH.
    pub(super) fn find() -> Option<Self> {
        let environment = std::env::var_os("VIRTUAL_ENV").filter(|folder| !folder.is_empty());
        let python = environment.map_or("python3".into(), |folder| {
            Path::new(&folder).join("bin/python3")
        });
        let output = Command::new(python)
            .args(["-c", LOCATE])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let folders = String::from_utf8_lossy(&output.stdout).into_owned();
        Self::in_folder(Path::new(folders.lines().next()?))
    }

    fn in_folder(folder: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(folder.join("version.py")).ok()?;
        let cuda = value(&text, "cuda").and_then(|version| {
            let (major, minor) = version.split_once('.')?;
            Some(Version(major.parse().ok()?, minor.parse().ok()?))
        });
        Some(Self {
            version: value(&text, "__version__")?.to_owned(),
            folder: folder.to_owned(),
            cuda,
        })
    }

    /// The build itself.
    pub(super) fn finding(&self) -> Finding {
        let text = format!("{} in {}", self.version, self.folder.display());
        match self.cuda {
            Some(cuda) => Finding::ok("PyTorch", format!("{text}, built for CUDA {cuda}")),
            None => Finding::new(
                "PyTorch",
                State::Warning,
                format!("{text} is built without CUDA: it uses no device of a server"),
            )
            .but("install a build for CUDA: https://pytorch.org/get-started/locally"),
        }
    }

    /// The build with a server's driver and devices.
    pub(super) fn fits(&self, server: &Snapshot) -> Option<Finding> {
        let cuda = self.cuda?;
        let new = |state, text| Some(Finding::new("PyTorch", state, text));
        if !server.genuine {
            return new(
                State::Warning,
                "does not run on a device in software: its kernels are machine code".to_owned(),
            );
        }
        let driver = Version(
            server.driver_version / 1000,
            server.driver_version % 1000 / 10,
        );
        if cuda.0 > driver.0 {
            let text = format!(
                "built for CUDA {cuda}, and the driver knows CUDA {driver}: it finds no device"
            );
            let remedy = format!(
                "install a build for CUDA {}.x, or a driver there that knows CUDA {}",
                driver.0, cuda.0
            );
            return new(State::Error, text).map(|finding| finding.but(remedy));
        }
        for device in &server.devices {
            let number = |attribute| device.attribute(attribute).unwrap_or(0);
            let capability = Version(
                number(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                number(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            );
            let name = String::from_utf8_lossy(&device.name).into_owned();
            if let Some(other) = cuda_for(capability, cuda) {
                let text = format!(
                    "CUDA {cuda} has no code for compute capability {capability} of {name}: kernels fail there"
                );
                let remedy = format!("install a build for CUDA {other}");
                return new(State::Error, text).map(|finding| finding.but(remedy));
            }
        }
        match cuda > driver {
            true => new(
                State::Note,
                format!(
                    "built for CUDA {cuda} and runs on a driver of CUDA {driver}, but the driver refuses newer PTX that extensions bring"
                ),
            ),
            false => new(
                State::Ok,
                format!("built for CUDA {cuda}: driver and devices run it"),
            ),
        }
    }
}

/// The CUDA to take for a device, where another one's compilers do not know it (release notes of the CUDA toolkit).
fn cuda_for(capability: Version, cuda: Version) -> Option<String> {
    let first = match capability.0 {
        8 => Version(11, 0),
        9 => Version(11, 8),
        10 | 12 => Version(12, 8),
        11 => Version(13, 0),
        _ => Version(0, 0),
    };
    match capability < Version(7, 5) {
        true => (cuda.0 >= 13).then(|| "12 or older".to_owned()),
        false => (cuda < first).then(|| format!("{first} or newer")),
    }
}

/// The value of a variable in Python's text: `name = 'value'` or `name: Type = 'value'`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (left, right) = line.split_once('=')?;
        let is_named = left.split(':').next()?.trim() == name;
        let quoted = right.trim().trim_matches(['\'', '"']);
        (is_named && quoted != "None").then_some(quoted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file as PyTorch's builds have it.
    fn torch(version: &str, cuda: &str) -> Option<PyTorch> {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']\n\
             __version__ = '{version}'\ndebug = False\ncuda: Optional[str] = {cuda}\ngit_version = '0'\nhip: Optional[str] = None\n"
        );
        std::fs::write(folder.path().join("version.py"), text).unwrap();
        PyTorch::in_folder(folder.path())
    }

    fn fits(cuda: &str, driver_version: i32, capability: (i32, i32)) -> Finding {
        let device = snapshot(driver_version, capability);
        torch("2.5.1", &format!("'{cuda}'"))
            .unwrap()
            .fits(&device)
            .unwrap()
    }

    fn snapshot(driver_version: i32, (major, minor): (i32, i32)) -> Snapshot {
        let device = cuda::snapshot::Device {
            name: b"a GPU".into(),
            attributes: vec![
                (cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major),
                (cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor),
            ],
            ..cuda::snapshot::Device::default()
        };
        Snapshot {
            driver_version,
            genuine: true,
            devices: vec![device],
        }
    }

    #[test]
    fn build_tells_its_version_and_cuda() {
        let build = torch("2.5.1+cu124", "'12.4'").unwrap();
        assert_eq!(build.cuda, Some(Version(12, 4)));
        let told = build.finding();
        assert_eq!(told.state, State::Ok);
        assert!(told.text.starts_with("2.5.1+cu124 in /") && told.text.ends_with("CUDA 12.4"));
        let without = torch("2.5.1+cpu", "None").unwrap();
        assert_eq!(without.finding().state, State::Warning);
        assert_eq!(without.fits(&snapshot(12_080, (9, 0))), None);
        assert_eq!(PyTorch::in_folder(Path::new("/nonexistent")), None);
    }

    #[test]
    fn driver_of_older_major_version_is_an_error() {
        let found = fits("13.0", 12_080, (9, 0));
        assert_eq!(found.state, State::Error);
        assert!(found.text.contains("CUDA 13.0") && found.text.contains("CUDA 12.8"));
        assert!(found.remedy.unwrap().contains("a build for CUDA 12.x"));
        assert_eq!(fits("12.8", 12_020, (9, 0)).state, State::Note);
        assert_eq!(fits("11.8", 13_000, (9, 0)).state, State::Ok);
    }

    #[test]
    fn unknown_compute_capability_is_an_error() {
        let newer = fits("12.4", 12_080, (12, 0));
        assert_eq!(newer.state, State::Error);
        assert!(newer.text.contains("compute capability 12.0 of a GPU"));
        assert_eq!(
            newer.remedy.unwrap(),
            "install a build for CUDA 12.8 or newer"
        );
        let older = fits("13.0", 13_000, (7, 0));
        assert_eq!(
            older.remedy.unwrap(),
            "install a build for CUDA 12 or older"
        );
        let state = |cuda, capability| fits(cuda, 13_000, capability).state;
        assert_eq!(state("13.0", (7, 5)), State::Ok);
        assert_eq!(state("12.8", (12, 1)), State::Ok);
        // Not known here, so nothing is said against it.
        assert_eq!(state("13.0", (14, 0)), State::Ok);
    }

    #[test]
    fn device_in_software_is_a_warning() {
        let software = Snapshot {
            genuine: false,
            ..snapshot(13_000, (9, 0))
        };
        let build = torch("2.5.1", "'12.4'").unwrap();
        assert_eq!(build.fits(&software).unwrap().state, State::Warning);
    }
}
