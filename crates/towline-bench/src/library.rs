//! Which OpenCL a process sees: folders of `.icd` files for loaders, and Towline's library.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Our library's file name, wherever it lies.
const LIBRARY: &str = "libtowline_opencl.so";
/// Where OpenCL loaders look when not told otherwise.
const USUAL_VENDORS: &str = "/etc/OpenCL/vendors";

/// Folders that make a loader see exactly one OpenCL.
pub(crate) struct Folders {
    folder: tempfile::TempDir,
    /// Towline's library.
    pub(crate) towline: Option<PathBuf>,
}

impl Folders {
    /// Looks for both; a missing Towline library is an error only when it is used.
    pub(crate) fn prepare(icd: &[PathBuf]) -> anyhow::Result<Self> {
        let libraries = if icd.is_empty() {
            usual_libraries()?
        } else {
            icd.iter()
                .map(|path| path.to_string_lossy().into_owned())
                .collect()
        };
        if libraries.is_empty() {
            bail!(
                "no OpenCL vendor in {USUAL_VENDORS}: install one (on Debian, pocl-opencl-icd makes the CPU a device) or name its \
                 library with --icd"
            );
        }
        let folder = tempfile::tempdir().context("no place for temporary files")?;
        let towline = find_towline();
        let write = |name: &str, libraries: &[String]| -> anyhow::Result<()> {
            let folder = folder.path().join(name);
            std::fs::create_dir(&folder)?;
            for (index, library) in libraries.iter().enumerate() {
                std::fs::write(folder.join(format!("{index}.icd")), format!("{library}\n"))?;
            }
            Ok(())
        };
        write("native", &libraries).context("could not write a vendors folder")?;
        let ours: Vec<String> = towline
            .iter()
            .map(|path| path.to_string_lossy().into_owned())
            .collect();
        write("towline", &ours).context("could not write a vendors folder")?;
        Ok(Self { folder, towline })
    }

    /// A folder that names only this machine's own vendors.
    pub(crate) fn native(&self) -> PathBuf {
        self.folder.path().join("native")
    }

    /// A folder that names only Towline's library.
    pub(crate) fn towline_only(&self) -> PathBuf {
        self.folder.path().join("towline")
    }

    /// A place for files of this run.
    pub(crate) fn scratch(&self) -> &Path {
        self.folder.path()
    }

    /// Towline's library, which must be there.
    pub(crate) fn towline_library(&self) -> anyhow::Result<&Path> {
        self.towline.as_deref().with_context(|| {
            format!(
                "could not find {LIBRARY} beside this program nor in ../lib; install the package towline-client or the \
                 wheel, name it in TOWLINE_LIBRARY, or measure only `--legs native`"
            )
        })
    }
}

/// What the `.icd` files of this machine name, without Towline's.
fn usual_libraries() -> anyhow::Result<Vec<String>> {
    let folder = std::env::var_os("OCL_ICD_VENDORS")
        .filter(|value| Path::new(value).is_dir())
        .unwrap_or_else(|| USUAL_VENDORS.into());
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "icd"))
        .collect();
    files.sort();
    let mut libraries = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("could not read {}", file.display()))?;
        let named = text.lines().next().unwrap_or_default().trim();
        if !named.is_empty() && !named.ends_with(LIBRARY) {
            libraries.push(named.to_owned());
        }
    }
    Ok(libraries)
}

/// Where TOWLINE_LIBRARY says, or beside this program, as installed or as built.
fn find_towline() -> Option<PathBuf> {
    let named = std::env::var_os("TOWLINE_LIBRARY").map(|value| {
        let path = PathBuf::from(value);
        if path.is_dir() {
            path.join(LIBRARY)
        } else {
            path
        }
    });
    let program = std::env::current_exe().ok()?;
    let beside = program.parent()?;
    let places = [
        beside.join(LIBRARY),
        beside.join("..").join(LIBRARY),
        beside.join("../lib").join(LIBRARY),
        beside.join("../lib/towline").join(LIBRARY),
    ];
    named
        .into_iter()
        .chain(places)
        .find_map(|place| place.canonicalize().ok())
}
