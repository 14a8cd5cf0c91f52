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
    pub(crate) resolve: Resolve,
    pub(crate) target_directory: PathBuf,
}

/// Which package depends on which.
#[derive(Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

/// A package's place among the others.
#[derive(Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) deps: Vec<Dependency>,
}

/// A package that another one depends on.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<DependencyKind>,
}

/// For what.
#[derive(Deserialize)]
pub(crate) struct DependencyKind {
    /// `build` or `dev`; `None` where it becomes part of the dependent.
    pub(crate) kind: Option<String>,
}

/// A package of the workspace, or one that it depends on on any platform.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression, if the package states one.
    pub(crate) license: Option<String>,
    /// The registry it comes from; `None` for packages of the workspace.
    pub(crate) source: Option<String>,
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

    /// With the packages for every platform.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        self.metadata_with(&[])
    }

    /// With the packages for one platform alone.
    pub(crate) fn metadata_for(&self, triple: &str) -> Result<Metadata> {
        self.metadata_with(&["--filter-platform", triple])
    }

    fn metadata_with(&self, options: &[&str]) -> Result<Metadata> {
        let output = self
            .cargo()
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(options)
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
