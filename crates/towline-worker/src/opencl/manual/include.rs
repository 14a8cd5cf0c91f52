//! Files of the client's machine that programs include: written where this worker's compiler finds them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::{CloseCode, ProtocolError};
use towline_wire::opencl::files::{Files, LEVELS};

use crate::opencl::session::Session;

/// Most bytes of such files that a worker holds at once.
const HELD_LIMIT: u64 = 128 << 20;

static HELD: AtomicU64 = AtomicU64::new(0);

/// Files in a folder of their own, deleted with it.
pub(crate) struct IncludeTree {
    root: tempfile::TempDir,
    folders: u32,
    bytes: u64,
}

impl IncludeTree {
    fn new(files: &Files) -> std::io::Result<Self> {
        let tree = Self {
            root: tempfile::Builder::new().prefix("include-").tempdir()?,
            folders: files.folders,
            bytes: files.files.iter().map(|file| file.text.len() as u64).sum(),
        };
        if HELD.fetch_add(tree.bytes, Ordering::Relaxed) + tree.bytes > HELD_LIMIT {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        for folder in 0..files.folders {
            std::fs::create_dir_all(tree.folder(folder))?;
        }
        for file in &files.files {
            let place = tree.folder(file.folder).join(&file.path);
            if let Some(parent) = place.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(place, &file.text)?;
        }
        Ok(tree)
    }

    /// Where a folder lies: so deep that what is named above it is still in the tree.
    fn folder(&self, number: u32) -> PathBuf {
        let levels = std::iter::repeat_n("above", LEVELS);
        let mut folder = self.root.path().join(number.to_string());
        folder.extend(levels);
        folder
    }

    /// The options that name the folders, behind `options`.
    pub(crate) fn added_to(&self, options: &str) -> String {
        let mut all = options.to_owned();
        for number in 0..self.folders {
            all.push_str(&format!(" -I{}", self.folder(number).display()));
        }
        all.trim_start().to_owned()
    }
}

impl Drop for IncludeTree {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Session {
    pub(crate) fn IncludeFiles(
        &mut self,
        number: u64,
        request: wire::IncludeFiles<'_>,
    ) -> Result<(), ProtocolError> {
        let files = Files::decode(request.files)
            .map_err(|error| ProtocolError::new(CloseCode::Malformed, error.to_string()))?;
        let status = match self.native(request.program.0, wire::ProgramHandle::TAG)? {
            Err(status) => status,
            Ok(_) if files.folders == 0 => {
                self.includes.remove(&request.program.0);
                CL_SUCCESS
            }
            Ok(_) => match IncludeTree::new(&files) {
                Ok(tree) => {
                    self.includes.insert(request.program.0, Arc::new(tree));
                    CL_SUCCESS
                }
                Err(error) => {
                    log::error!("cannot keep files that a program includes: {error}");
                    CL_OUT_OF_RESOURCES
                }
            },
        };
        self.settle(number, <wire::IncludeFiles<'_> as Request<'_>>::ID, status);
        Ok(())
    }
}
