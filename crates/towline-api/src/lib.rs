//! Reads the declarations in `api/` and emits, at build time, everything that follows from them: wire messages and codec, the
//! backend trait, the client's sending half, the server's dispatcher, the exported stubs and the coverage pages.
//!
//! A build script calls [`load`] and one function of [`emit`]; nothing generated is committed. The language is described in
//! `docs/adding-a-call.md`. Whatever the declarations leave open (a pointer without a direction, an id used twice, a length that
//! names no parameter) fails the build with file and line.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod emit;
pub mod jumps;
pub mod model;
mod parse;
pub mod runtime;

use std::path::{Path, PathBuf};

pub use model::Api;

/// Why an API description could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The declarations say something that the language does not allow.
    #[error("{file}:{line}: {what}")]
    Declaration {
        /// File below `api/`.
        file: String,
        /// Line in it.
        line: usize,
        /// What is wrong, and what to do.
        what: String,
    },
    /// `ids.lock` and the declarations disagree.
    #[error("api/ids.lock: {0}")]
    IdsLock(String),
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The folder `api/` of this checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../api")
}

/// Reads and checks one API (`"opencl"`) from `root`.
pub fn load(root: &Path, name: &str) -> Result<Api, ApiError> {
    parse::parse(name, &sources(root, name)?)
}

/// The files of one API in order: `opencl/types.rs` and its text.
fn sources(root: &Path, name: &str) -> Result<Vec<(String, String)>, ApiError> {
    let folder = root.join(name);
    let listing = std::fs::read_dir(&folder).map_err(|source| ApiError::Read {
        path: folder.clone(),
        source,
    })?;
    let mut files = Vec::new();
    for entry in listing {
        let path = entry
            .map_err(|source| ApiError::Read {
                path: folder.clone(),
                source,
            })?
            .path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    let mut sources = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).map_err(|source| ApiError::Read {
            path: path.clone(),
            source,
        })?;
        let file = format!(
            "{name}/{}",
            path.file_name().unwrap_or_default().to_string_lossy()
        );
        sources.push((file, text));
    }
    Ok(sources)
}

/// Loads an API for a build script: tells cargo what to watch, and panics with the error's text, which cargo shows.
#[allow(
    clippy::panic,
    reason = "a build script reports its failure by panicking"
)]
pub fn load_for_build(name: &str) -> Api {
    let root = root();
    println!("cargo::rerun-if-changed={}", root.display());
    match load(&root, name) {
        Ok(api) => api,
        Err(error) => panic!("{error}"),
    }
}

/// Writes generated code where `include!` finds it.
#[allow(
    clippy::panic,
    reason = "a build script reports its failure by panicking"
)]
pub fn write_for_build(file: &str, code: &str) {
    let folder = std::env::var_os("OUT_DIR")
        .map(PathBuf::from)
        .unwrap_or_default();
    if let Err(error) = std::fs::write(folder.join(file), code) {
        panic!("cannot write {file} into {}: {error}", folder.display());
    }
}

/// Compares the ids of `api` with its part of `ids.lock`: every id ever given stays with its call.
pub fn check_ids(api: &Api, lock: &str) -> Result<(), ApiError> {
    let mut locked = std::collections::BTreeMap::new();
    let mut part = None;
    for (index, line) in lock.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            part = Some(name.trim_end_matches(']'));
            continue;
        }
        let Some(part) = part else {
            return Err(ApiError::IdsLock(format!(
                "line {}: an id stands before the first `[opencl]`",
                index + 1
            )));
        };
        if part != api.name {
            continue;
        }
        let mut words = line.split_whitespace();
        let entry = (
            words
                .next()
                .and_then(|id| u16::from_str_radix(id.trim_start_matches("0x"), 16).ok()),
            words.next(),
        );
        let (Some(id), Some(name)) = entry else {
            return Err(ApiError::IdsLock(format!(
                "line {}: expected `0x0501 clName`",
                index + 1
            )));
        };
        if let Some(before) = locked.insert(id, name) {
            return Err(ApiError::IdsLock(format!(
                "id {id:#06x} stands there twice, for {before} and {name}"
            )));
        }
    }
    for call in &api.calls {
        match locked.get(&call.id) {
            Some(name) if *name == call.name => {}
            Some(name) => {
                return Err(ApiError::IdsLock(format!(
                    "id {:#06x} belongs to {name}; give {} a new one",
                    call.id, call.name
                )));
            }
            None => {
                return Err(ApiError::IdsLock(format!(
                    "add the line `{:#06x} {}` below [{}]",
                    call.id, call.name, api.name
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opencl() -> Api {
        load(&root(), "opencl").unwrap()
    }

    fn lock(api: &Api) -> String {
        let lines = api.calls.iter();
        let lines = lines.map(|call| format!("{:#06x} {}\n", call.id, call.name));
        format!("[{}]\n{}", api.name, lines.collect::<String>())
    }

    #[test]
    fn ids_of_calls_that_are_gone_stay_given() {
        let api = opencl();
        assert!(
            check_ids(
                &api,
                &(lock(&api) + "# a comment\n\n0xff01 clGoneLongAgo\n")
            )
            .is_ok()
        );
    }

    #[test]
    fn an_id_that_was_never_given_is_to_be_written_down() {
        let api = opencl();
        let error = check_ids(&api, "").unwrap_err().to_string();
        assert!(
            error.contains("add the line `0x0101 clGetPlatformIDs`"),
            "{error}"
        );
    }

    #[test]
    fn each_api_counts_for_itself() {
        let api = opencl();
        let others = "[cuda]\n0x0101 cuInit\nno id at all\n";
        assert!(check_ids(&api, &(others.to_owned() + &lock(&api))).is_ok());
        let error = check_ids(&api, "0x0101 clGetPlatformIDs\n").unwrap_err();
        let error = error.to_string();
        assert!(error.contains("before the first `[opencl]`"), "{error}");
    }

    #[test]
    fn an_id_stays_with_its_call() {
        let api = opencl();
        let lock = lock(&api).replace("clGetPlatformIDs", "clSomethingElse");
        let error = check_ids(&api, &lock).unwrap_err().to_string();
        assert!(
            error.contains("id 0x0101 belongs to clSomethingElse; give clGetPlatformIDs a new one"),
            "{error}"
        );
    }

    #[test]
    fn a_lock_that_gives_an_id_twice_or_says_nothing_is_refused() {
        let api = opencl();
        let twice = check_ids(&api, "[opencl]\n0x0101 clOne\n0x0101 clTwo\n")
            .unwrap_err()
            .to_string();
        assert!(
            twice.contains("stands there twice, for clOne and clTwo"),
            "{twice}"
        );
        let garbled = check_ids(&api, "[opencl]\nclOne 0x0101\n")
            .unwrap_err()
            .to_string();
        assert!(
            garbled.contains("line 2: expected `0x0501 clName`"),
            "{garbled}"
        );
    }
}
