//! The OpenCL engine in a worker process: opens the backend that the command line names, and joins the engine of
//! `towline-worker` to the lanes that the supervisor passes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use towline_backend::opencl::{NativeOpenCl, NullOpenCl, OpenClApi, SerialOpenCl};

use super::lanes::{self, is_selected};
use super::process::{Engine, EngineError, Session};

/// Where vendors are registered when nothing else is said.
const USUAL_VENDORS: &str = "/etc/OpenCL/vendors";
/// Our own client library: loading it here would make the server a client of itself.
const OWN_LIBRARY: &str = "libtowline_opencl.so";

/// What to open.
#[derive(Clone, Debug, Default)]
pub struct OpenClOptions {
    /// Not the machine's devices but one that computes nothing.
    pub null: bool,
    /// Vendors: folders of `.icd` files, `.icd` files, libraries. Empty: those registered on this machine.
    pub vendors: Vec<PathBuf>,
    /// Devices to offer, by number or part of their name. Empty: all.
    pub devices: Vec<String>,
}

/// Before the jail: has NVIDIA's set-uid helper make the device nodes that the driver needs. Inside the jail, where no
/// program gains rights, the driver could not run it itself.
pub fn prepare() {
    let driver_loaded = Path::new("/proc/driver/nvidia/version").exists();
    let nodes = ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"];
    if !driver_loaded || nodes.iter().all(|node| Path::new(node).exists()) {
        return;
    }
    // Without the helper (containers usually lack it) whoever made the container has made the nodes.
    match Command::new("nvidia-modprobe")
        .args(["-c", "0", "-u"])
        .status()
    {
        Ok(status) if status.success() => {}
        Ok(status) => log::warn!("nvidia-modprobe could not make NVIDIA's device nodes ({status})"),
        Err(error) => log::debug!("nvidia-modprobe: {error}"),
    }
}

/// Opens the backend and looks at its devices.
pub fn open(options: &OpenClOptions) -> Result<Box<dyn Engine>, EngineError> {
    let api: Arc<dyn OpenClApi> = match options.null {
        true => Arc::new(NullOpenCl::new(1)),
        false => SerialOpenCl::where_needed(open_native(&options.vendors)?),
    };
    let selected = |number: usize, name: &str| is_selected(&options.devices, number, name);
    let engine = towline_worker::OpenClEngine::open(api, &selected)?;
    // Kernels print to the client, not to whoever started the server.
    engine.capture_output()?;
    Ok(Box::new(OpenClEngine(engine)))
}

fn open_native(vendors: &[PathBuf]) -> Result<NativeOpenCl, EngineError> {
    let is_ours = |library: &str| library.contains(OWN_LIBRARY);
    match vendors {
        [] => {
            let named = ["OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"]
                .iter()
                .find_map(std::env::var_os);
            let folder = named
                .filter(|folder| Path::new(folder).is_dir())
                .unwrap_or_else(|| USUAL_VENDORS.into());
            Ok(NativeOpenCl::from_vendors(Path::new(&folder), &is_ours)?)
        }
        [folder] if folder.is_dir() => Ok(NativeOpenCl::from_vendors(folder, &is_ours)?),
        several => {
            let mut libraries = Vec::new();
            for vendor in several {
                libraries.extend(libraries_of(vendor)?);
            }
            Ok(NativeOpenCl::from_libraries(&libraries)?)
        }
    }
}

/// The libraries that a library, a `.icd` file or a folder of them names.
fn libraries_of(vendor: &Path) -> Result<Vec<String>, EngineError> {
    let unreadable = |error| format!("cannot read {}: {error}", vendor.display());
    if vendor.is_dir() {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(vendor).map_err(unreadable)? {
            files.push(entry.map_err(unreadable)?.path());
        }
        files.retain(|file| file.extension() == Some(OsStr::new("icd")));
        files.sort();
        let mut libraries = Vec::new();
        for file in files {
            libraries.extend(libraries_of(&file)?);
        }
        return Ok(libraries);
    }
    if vendor.extension() != Some(OsStr::new("icd")) {
        return Ok(vec![vendor.display().to_string()]);
    }
    let text = std::fs::read_to_string(vendor).map_err(unreadable)?;
    match text
        .lines()
        .next()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        Some(library) => Ok(vec![library.to_owned()]),
        None => Err(format!("{} names no library", vendor.display()).into()),
    }
}

struct OpenClEngine(towline_worker::OpenClEngine);

impl Engine for OpenClEngine {
    fn snapshot(&self) -> Vec<u8> {
        self.0.snapshot().to_vec()
    }

    fn run(self: Box<Self>, session: Session) -> Result<(), EngineError> {
        let Session {
            parameters,
            lanes,
            counters,
            ..
        } = session;
        let Some((command, further)) = lanes::of(lanes) else {
            return Ok(());
        };
        let limits = towline_worker::Limits {
            chunk_bytes: parameters.chunk_bytes,
        };
        let engine = match &parameters.devices {
            Some(devices) => self.0.with_devices(devices),
            None => self.0,
        };
        Ok(engine.run(command, further, limits, counters)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_are_folders_files_or_libraries() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("b.icd"), "libb.so.1\n").unwrap();
        std::fs::write(folder.path().join("a.icd"), "/opt/liba.so\n").unwrap();
        std::fs::write(folder.path().join("README"), "no").unwrap();
        assert_eq!(
            libraries_of(folder.path()).unwrap(),
            ["/opt/liba.so", "libb.so.1"]
        );
        assert_eq!(
            libraries_of(&folder.path().join("b.icd")).unwrap(),
            ["libb.so.1"]
        );
        assert_eq!(
            libraries_of(Path::new("/opt/libc.so")).unwrap(),
            ["/opt/libc.so"]
        );
    }

    #[test]
    fn empty_vendor_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("empty.icd");
        std::fs::write(&file, "\n").unwrap();
        assert!(
            libraries_of(&file)
                .unwrap_err()
                .to_string()
                .contains("empty.icd names no library")
        );
    }
}
