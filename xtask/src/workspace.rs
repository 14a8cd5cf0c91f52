//! What cargo knows about this workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The workspace, found from this package's own place in it.
pub(crate) struct Workspace {
    root: PathBuf,
}

/// The part of `cargo metadata` that is used here.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

/// A package of the workspace, or one that it depends on on any platform.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression, if the package states one.
    pub(crate) license: Option<String>,
}

impl Workspace {
    pub(crate) fn locate() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask has no parent directory")?;
        ensure!(
            root.join("Cargo.toml").is_file(),
            "{} is no workspace any more; build xtask again",
            root.display()
        );
        Ok(Self {
            root: root.to_owned(),
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where logs and packages go.
    pub(crate) fn build_dir(&self) -> PathBuf {
        self.root.join("build")
    }

    /// A `cargo` command that runs in the workspace's root.
    pub(crate) fn cargo(&self) -> Command {
        // The cargo that started us, so that one toolchain does everything.
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    pub(crate) fn metadata(&self) -> Result<Metadata> {
        let output = self
            .cargo()
            .args(["metadata", "--format-version", "1", "--locked"])
            .output()
            .context("cannot run cargo metadata")?;
        ensure!(
            output.status.success(),
            "cargo metadata failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).context("cargo metadata answered in an unknown form")
    }
}
