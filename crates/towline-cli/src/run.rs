//! `towline run`: a program with the devices of servers.
//!
//! It asks the servers first, since a program without a device may go on for days on the processor: where none has a device, it ends.
//! Then it prepares the environment and becomes the program, so that process id, signals, exit status and debuggers are the
//! program's own. The OpenCL loader finds our library through a folder of `.icd` files, which holds ours and copies of
//! those of this machine, so that local platforms stay visible. The folder is named by its contents and used again.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

use towline_client::collectives::COLLECTIVES;
use towline_client::config;
use towline_client::report::MARK_VARIABLE;
use towline_client::timeline;

use crate::cli::RunOptions;
use crate::servers::{self, Chosen};
use crate::trace::could_not_run;
use crate::{bypass, probe};

/// Our library's file name, wherever it lies.
pub(crate) const LIBRARY: &str = "libtowline_opencl.so";
/// Our CUDA driver library's, beside it.
pub(crate) const CUDA_LIBRARY: &str = "libtowline_cuda.so";
/// Our NVML library's, beside it.
pub(crate) const NVML_LIBRARY: &str = "libtowline_nvml.so";
/// The names that programs load the driver and NVML by; those without a version too, though only development packages have them.
const CUDA_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
const NVML_NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
/// Our CUDA runtime libraries, beside them, with the names that programs load them by.
pub(crate) const CUDART: [(&str, &str); 2] = [
    ("libcudart.so.12", "libtowline_cudart12.so"),
    ("libcudart.so.13", "libtowline_cudart13.so"),
];
/// Our NCCL library, beside them, and the name that programs load it by.
const NCCL: (&str, &str) = ("libnccl.so.2", "libtowline_nccl.so");
/// Libraries that the loader takes before all others.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// Where OpenCL loaders look when not told otherwise.
const USUAL_VENDORS: &str = "/etc/OpenCL/vendors";
/// Tells our library where this machine's own vendors are.
const LOCAL_VENDORS_VARIABLE: &str = "TOWLINE_LOCAL_ICD_VENDORS";

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<ExitCode> {
    let chosen = servers::choose(&options.servers)?;
    // Checked now: the program itself could only say that it has no device.
    let access = servers::access(&chosen.settings)?;
    let refused = is_set(options.no_collectives, chosen.settings.run.no_collectives);
    let asked = wants_collectives();
    let mut command = command(options, &chosen)?;
    let program = command.get_program().to_string_lossy().into_owned();
    let allow_none = is_set(options.allow_none, chosen.settings.run.allow_none);
    let terminal = std::io::stderr().is_terminal();
    if terminal || !allow_none {
        match probe::ask(&chosen, &access, terminal) {
            Ok(offer) => {
                if terminal {
                    eprintln!("{}", offer.line);
                }
                if offer.collectives && !asked && !refused {
                    command = prepared(options, &chosen, true)?;
                }
            }
            Err(why) if allow_none => eprintln!("towline: no device: {why}"),
            Err(why) => {
                let join = if why.ends_with('?') { " To" } else { "; to" };
                bail!(
                    "{program} was not started: {why}{join} start it without remote devices, give --allow-none"
                )
            }
        }
    }
    if let Some(file) = &options.trace {
        let action = || format!("could not write the trace {}", file.display());
        let file = std::path::absolute(file).with_context(action)?;
        std::fs::write(&file, timeline::HEAD).with_context(action)?;
        command.env(timeline::VARIABLE, file);
    }
    if is_set(options.report, chosen.settings.run.report) {
        command.env(MARK_VARIABLE, bypass::watch(&private_folder()?)?);
    }
    let error = command.exec();
    Ok(could_not_run(program.as_ref(), &error))
}

fn is_set(option: bool, setting: Option<bool>) -> bool {
    option || setting == Some(true)
}

/// The program with the variables that give it the devices of servers.
pub(crate) fn command(options: &RunOptions, chosen: &Chosen) -> anyhow::Result<Command> {
    let refused = is_set(options.no_collectives, chosen.settings.run.no_collectives);
    prepared(options, chosen, wants_collectives() && !refused)
}

/// Whether the user knows that the servers offer collectives: they may not be asked.
fn wants_collectives() -> bool {
    std::env::var_os(COLLECTIVES).is_some_and(|value| value == "1")
}

/// As [`command`]; with collectives our NCCL stands in for the program's own.
fn prepared(options: &RunOptions, chosen: &Chosen, collectives: bool) -> anyhow::Result<Command> {
    let settings = &chosen.settings;
    let library = find_library()?;
    let (program, arguments) = options.program.split_first().context("no program given")?;
    let list = chosen
        .servers
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",");
    let vendors = local_vendors();
    let links = options.links.clone();
    let links = links.map_or_else(private_folder, Ok)?;
    // With a slash at its end: the loader of NVIDIA's CUDA toolkit puts a file's name behind it as it is.
    let folder = vendors_folder(&links, &library, &vendor_files(&vendors)?)?.join("");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env(servers::SERVERS_VARIABLE, list)
        .env(LOCAL_VENDORS_VARIABLE, &vendors)
        .env("OCL_ICD_VENDORS", &folder)
        .env("OPENCL_VENDOR_PATH", &folder);
    let cudart = is_set(options.cudart, settings.run.cudart);
    let report = is_set(options.report, settings.run.report);
    let with_local = is_set(options.with_local, settings.run.with_local);
    let beside = |name: &str| library.parent()?.join(name).canonicalize().ok();
    if cudart && beside(CUDA_LIBRARY).is_none() {
        bail!(missing(CUDA_LIBRARY, &library));
    }
    if let Some(cuda) = beside(CUDA_LIBRARY) {
        let mut libraries = driver_links(&cuda, beside(NVML_LIBRARY).as_deref());
        if cudart {
            for (soname, name) in CUDART {
                let cudart = beside(name).with_context(|| missing(name, &library))?;
                libraries.push((soname, cudart));
            }
        }
        let nccl = collectives.then(|| beside(NCCL.1)).flatten();
        libraries.extend(nccl.clone().map(|library| (NCCL.0, library)));
        let folder = driver_folder(&links, &libraries)?;
        command.env("LD_LIBRARY_PATH", search_path(&folder)?);
        if nccl.is_some() {
            // PyTorch finds its own copy by a DT_RPATH, which goes before LD_LIBRARY_PATH, unless one of its name is loaded already. The
            // link is named, not the library, for the driver to be found beside it where a program sets another LD_LIBRARY_PATH.
            let before = std::env::var_os(PRELOAD_VARIABLE).unwrap_or_default();
            command
                .env(PRELOAD_VARIABLE, preload(&folder.join(NCCL.0), &before)?)
                .env(COLLECTIVES, "1");
        } else {
            // Another `towline run` may have started this one.
            if let Some(before) = std::env::var_os(PRELOAD_VARIABLE) {
                command.env(PRELOAD_VARIABLE, without_ours(&before));
            }
            command.env_remove(COLLECTIVES);
        }
    }
    if is_set(
        options.no_cudart_handshake,
        settings.run.no_cudart_handshake,
    ) {
        command.env("TOWLINE_CUDART_HANDSHAKE", "0");
    }
    for (name, file) in [
        ("TOWLINE_TOKEN_FILE", &settings.token_file),
        ("TOWLINE_KNOWN_SERVERS", &settings.known_servers),
        ("TOWLINE_CA", &settings.ca),
        ("TOWLINE_CERTIFICATE", &settings.certificate),
        ("TOWLINE_KEY", &settings.key),
    ] {
        if let Some(file) = file {
            let file = std::path::absolute(file)
                .with_context(|| format!("could not find {}", file.display()))?;
            command.env(name, file);
        }
    }
    for (name, text) in [
        ("TOWLINE_TENANT", &settings.tenant),
        (config::PROFILE, &chosen.profile),
    ] {
        if let Some(text) = text {
            command.env(name, text);
        }
    }
    for (name, wanted) in [
        (
            "TOWLINE_NO_ENCRYPTION",
            settings.no_encryption == Some(true),
        ),
        ("TOWLINE_WITH_LOCAL", with_local),
        ("TOWLINE_REPORT", report),
    ] {
        if wanted {
            command.env(name, "1");
        }
    }
    Ok(command)
}

/// Our OpenCL library: where TOWLINE_LIBRARY says, or beside this program, as installed or as built.
pub(crate) fn find_library() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("TOWLINE_LIBRARY") {
        let path = PathBuf::from(named);
        let path = if path.is_dir() {
            path.join(LIBRARY)
        } else {
            path
        };
        return path
            .canonicalize()
            .with_context(|| format!("could not find {} (TOWLINE_LIBRARY)", path.display()));
    }
    let program = std::env::current_exe().context("could not find out where this program lies")?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let places = [
        beside.join(LIBRARY),
        beside.join("../lib").join(LIBRARY),
        beside.join("../lib/towline").join(LIBRARY),
    ];
    match places.iter().find_map(|place| place.canonicalize().ok()) {
        Some(library) => Ok(library),
        None => bail!(
            "could not find {LIBRARY} beside {} nor in ../lib; install the package towline-client or the wheel, or name its folder in \
             TOWLINE_LIBRARY",
            program.display()
        ),
    }
}

fn missing(name: &str, library: &Path) -> String {
    format!(
        "could not find {name} beside {}; install the package towline-client or the wheel of this release",
        library.display()
    )
}

/// Where this machine's vendors are registered, seen from outside any other `towline run`.
fn local_vendors() -> OsString {
    [
        LOCAL_VENDORS_VARIABLE,
        "OCL_ICD_VENDORS",
        "OPENCL_VENDOR_PATH",
    ]
    .iter()
    .find_map(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    .unwrap_or_else(|| USUAL_VENDORS.into())
}

/// Names and contents of the vendors' `.icd` files, without ours. As the loaders do, takes a folder, a `.icd` file or a
/// library.
fn vendor_files(vendors: &OsStr) -> anyhow::Result<Vec<(OsString, Vec<u8>)>> {
    let path = Path::new(vendors);
    let is_icd = |path: &Path| path.extension() == Some(OsStr::new("icd"));
    let files: Vec<PathBuf> = match std::fs::read_dir(path) {
        Ok(entries) => entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| is_icd(path))
            .collect(),
        Err(_) if is_icd(path) => vec![path.to_owned()],
        // No vendor is installed here: the usual case on a machine without devices.
        Err(_) if path == Path::new(USUAL_VENDORS) => Vec::new(),
        Err(_) => {
            return Ok(vec![(
                "local.icd".into(),
                vendors.as_encoded_bytes().to_vec(),
            )]);
        }
    };
    let mut found = Vec::new();
    for file in files {
        match std::fs::read(&file) {
            Ok(contents)
                if contents
                    .windows(LIBRARY.len())
                    .any(|part| part == LIBRARY.as_bytes()) => {}
            Ok(contents) => found.push((file.file_name().unwrap_or_default().to_owned(), contents)),
            Err(error) => log::warn!("leaving out {}: {error}", file.display()),
        }
    }
    found.sort();
    Ok(found)
}

/// `LD_PRELOAD` with a library in front.
fn preload(library: &Path, before: &OsStr) -> anyhow::Result<OsString> {
    let library = library.as_os_str();
    if library.as_bytes().iter().any(separates) {
        bail!(
            "{PRELOAD_VARIABLE} cannot hold {}, which has a space or a colon: give --no-collectives, or name another folder in \
             XDG_RUNTIME_DIR",
            library.display()
        );
    }
    let others = before.as_bytes().split(separates);
    let others = others.filter(|other| !other.is_empty() && *other != library.as_bytes());
    let all: Vec<&[u8]> = std::iter::once(library.as_bytes()).chain(others).collect();
    Ok(OsString::from_vec(all.join(&b':')))
}

fn separates(byte: &u8) -> bool {
    matches!(byte, b' ' | b':')
}

/// `LD_PRELOAD` without our NCCL.
fn without_ours(before: &OsStr) -> OsString {
    let is_ours = |path: &&[u8]| {
        let path = Path::new(OsStr::from_bytes(path)).canonicalize();
        path.is_ok_and(|path| path.ends_with(NCCL.1))
    };
    let all = before.as_bytes().split(separates);
    let kept: Vec<&[u8]> = all.filter(|path| !is_ours(path)).collect();
    OsString::from_vec(kept.join(&b':'))
}

/// Our libraries, each under the names that programs load it by.
fn driver_links(cuda: &Path, nvml: Option<&Path>) -> Vec<(&'static str, PathBuf)> {
    // Without NVML programs would find this machine's own, and devices that CUDA does not have.
    let nvml = nvml
        .into_iter()
        .flat_map(|nvml| NVML_NAMES.map(|name| (name, nvml)));
    let all = CUDA_NAMES.map(|name| (name, cuda)).into_iter().chain(nvml);
    all.map(|(name, library)| (name, library.to_owned()))
        .collect()
}

/// Our libraries for a container, each under a name that programs or OpenCL's loader find it by.
pub(crate) fn container_libraries() -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let opencl = find_library()?;
    let beside = |name: &str| opencl.parent()?.join(name).canonicalize().ok();
    let cuda = beside(CUDA_LIBRARY);
    let mut libraries = cuda.map_or_else(Vec::new, |cuda| {
        driver_links(&cuda, beside(NVML_LIBRARY).as_deref())
    });
    libraries.push((LIBRARY, opencl));
    Ok(libraries)
}

/// A folder that holds our libraries under the names that programs load; the same one each time for the same libraries.
pub(crate) fn driver_folder(parent: &Path, links: &[(&str, PathBuf)]) -> anyhow::Result<PathBuf> {
    let mut hash = Sha256::new();
    for (_, library) in links {
        hash.update(library.as_os_str().as_encoded_bytes());
        hash.update([0]);
    }
    let digest: String = hash
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let folder = parent.join(format!("cuda-{digest}"));
    let action = || format!("could not make {}", folder.display());
    std::fs::create_dir_all(&folder).with_context(action)?;
    for (name, library) in links {
        match std::os::unix::fs::symlink(library, folder.join(name)) {
            // Another process made it, of the same name and so for the same library.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            outcome => outcome.with_context(action)?,
        }
    }
    Ok(folder)
}

/// `LD_LIBRARY_PATH` with a folder in front.
fn search_path(folder: &Path) -> anyhow::Result<OsString> {
    let before = std::env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty());
    let before = before.iter().flat_map(|path| std::env::split_paths(path));
    let folders = std::iter::once(folder.to_owned()).chain(before.filter(|other| other != folder));
    std::env::join_paths(folders).context("LD_LIBRARY_PATH cannot hold our folder")
}

/// A folder with our `.icd` file and `vendors`; the same one each time for the same contents.
fn vendors_folder(
    parent: &Path,
    library: &Path,
    vendors: &[(OsString, Vec<u8>)],
) -> anyhow::Result<PathBuf> {
    let ours = (
        OsString::from("towline.icd"),
        [library.as_os_str().as_encoded_bytes(), b"\n"].concat(),
    );
    let files: Vec<&(OsString, Vec<u8>)> = std::iter::once(&ours).chain(vendors).collect();
    let mut hash = Sha256::new();
    for (name, contents) in &files {
        for part in [name.as_encoded_bytes(), contents] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    let digest: String = hash
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let folder = parent.join(format!("vendors-{digest}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    // Made under another name and moved into place whole, so that two programs started together do no harm.
    let draft = parent.join(format!("draft-{}", std::process::id()));
    let action = || format!("could not make {}", folder.display());
    std::fs::create_dir_all(&draft).with_context(action)?;
    for (name, contents) in files {
        std::fs::File::create(draft.join(name))
            .and_then(|mut file| file.write_all(contents))
            .with_context(action)?;
    }
    match std::fs::rename(&draft, &folder) {
        Ok(()) => Ok(folder),
        // Another process was faster, with the same contents.
        Err(_) if folder.is_dir() => {
            std::fs::remove_dir_all(&draft).with_context(action)?;
            Ok(folder)
        }
        Err(error) => Err(error).with_context(action),
    }
}

/// A folder that only this user can write to, and that the system clears: what lies there names libraries to load.
pub(crate) fn private_folder() -> anyhow::Result<PathBuf> {
    let user = rustix::process::geteuid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from);
    let candidates = runtime
        .map(|folder| folder.join("towline"))
        .into_iter()
        .chain([std::env::temp_dir().join(format!("towline-{user}"))]);
    let mut refusal = None;
    for folder in candidates {
        match make_private(&folder, user.as_raw()) {
            Ok(()) => return Ok(folder),
            Err(error) => refusal = Some(error),
        }
    }
    Err(refusal.context("no place for temporary files")?)
}

fn make_private(folder: &Path, user: u32) -> anyhow::Result<()> {
    let action = || format!("could not make {}", folder.display());
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(action);
        }
        _ => {}
    }
    let metadata = folder.symlink_metadata().with_context(action)?;
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        bail!(
            "{} exists but is not a private folder of this user; remove it",
            folder.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn contents(folder: &Path) -> Vec<(String, String)> {
        let mut found: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (
                    entry.file_name().into_string().unwrap(),
                    std::fs::read_to_string(entry.path()).unwrap(),
                )
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn folder_holds_ours_beside_the_local_vendors_and_is_used_again() {
        let parent = tempfile::tempdir().unwrap();
        let local = tempfile::tempdir().unwrap();
        std::fs::write(local.path().join("pocl.icd"), "libpocl.so.2\n").unwrap();
        std::fs::write(
            local.path().join("old-towline.icd"),
            "/usr/lib/libtowline_opencl.so\n",
        )
        .unwrap();
        std::fs::write(local.path().join("README"), "not a vendor").unwrap();
        let vendors = vendor_files(local.path().as_os_str()).unwrap();
        let folder = vendors_folder(
            parent.path(),
            Path::new("/lib/libtowline_opencl.so"),
            &vendors,
        )
        .unwrap();
        let expected = [
            ("pocl.icd", "libpocl.so.2\n"),
            ("towline.icd", "/lib/libtowline_opencl.so\n"),
        ];
        assert_eq!(
            contents(&folder),
            expected.map(|(name, text)| (name.to_owned(), text.to_owned()))
        );
        let again = vendors_folder(
            parent.path(),
            Path::new("/lib/libtowline_opencl.so"),
            &vendors,
        )
        .unwrap();
        assert_eq!(again, folder);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_driver_lies_under_the_name_that_programs_load_and_is_used_again() {
        let parent = tempfile::tempdir().unwrap();
        let links = [
            ("libcuda.so.1", PathBuf::from("/lib/libtowline_cuda.so")),
            (
                "libnvidia-ml.so.1",
                PathBuf::from("/lib/libtowline_nvml.so"),
            ),
        ];
        let folder = driver_folder(parent.path(), &links).unwrap();
        for (name, library) in &links {
            assert_eq!(&std::fs::read_link(folder.join(name)).unwrap(), library);
        }
        assert_eq!(driver_folder(parent.path(), &links).unwrap(), folder);
        let without = driver_folder(parent.path(), &links[..1]).unwrap();
        assert_ne!(without, folder);
    }

    #[test]
    fn programs_find_our_libraries_with_and_without_a_version() {
        let (cuda, nvml) = (Path::new("/lib/cuda"), Path::new("/lib/nvml"));
        let found = driver_links(cuda, Some(nvml));
        let expected = [
            ("libcuda.so.1", cuda),
            ("libcuda.so", cuda),
            ("libnvidia-ml.so.1", nvml),
            ("libnvidia-ml.so", nvml),
        ];
        assert_eq!(
            found,
            expected.map(|(name, library)| (name, library.to_owned()))
        );
        assert_eq!(driver_links(cuda, None).len(), 2);
    }

    #[test]
    fn preloaded_library_comes_once_and_first() {
        let library = Path::new("/links/libnccl.so.2");
        let with = |before: &str| preload(library, OsStr::new(before)).unwrap();
        assert_eq!(with(""), "/links/libnccl.so.2");
        assert_eq!(with("/a.so b.so"), "/links/libnccl.so.2:/a.so:b.so");
        assert_eq!(
            with("/a.so:/links/libnccl.so.2"),
            "/links/libnccl.so.2:/a.so"
        );
        let error = preload(Path::new("/my links/libnccl.so.2"), OsStr::new("")).unwrap_err();
        assert!(error.to_string().contains("a space"), "{error}");
    }

    #[test]
    fn our_library_is_not_preloaded_where_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, link) = (folder.path().join(NCCL.1), folder.path().join(NCCL.0));
        std::fs::write(&ours, "").unwrap();
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        let before = format!("/a.so:{}:/b.so", link.display());
        assert_eq!(without_ours(OsStr::new(&before)), "/a.so:/b.so");
    }

    #[test]
    fn machine_without_vendors_is_no_error() {
        let single = vendor_files(OsStr::new("/nonexistent/libvendor.so")).unwrap();
        assert_eq!(
            single,
            [("local.icd".into(), b"/nonexistent/libvendor.so".to_vec())]
        );
    }

    #[test]
    fn folder_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = make_private(folder.path(), rustix::process::geteuid().as_raw()).unwrap_err();
        assert!(
            error.to_string().contains("not a private folder"),
            "{error}"
        );
    }
}
