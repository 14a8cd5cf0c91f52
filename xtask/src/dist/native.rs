//! Packages for Debian's and Red Hat's systems, by nfpm from the descriptions in packaging/nfpm/.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::target::Target;
use super::{Packing, succeed, write};

/// The program; what programs load; the service.
const PACKAGES: [&str; 3] = ["towline", "towline-client", "towline-server"];

/// Makes all packages of a kind (`deb`, `rpm`).
pub(super) fn pack(packing: &Packing<'_>, target: Target, tree: &Path, kind: &str) -> Result<()> {
    let root = packing.workspace.root();
    for package in PACKAGES {
        let name = format!("packaging/nfpm/{package}.yaml");
        let text =
            fs::read_to_string(root.join(&name)).with_context(|| format!("cannot read {name}"))?;
        let text = text
            .replace("@ARCH@", target.debian_arch())
            .replace("@HOMEPAGE@", env!("CARGO_PKG_REPOSITORY"))
            .replace("@ROOT@", &root.display().to_string())
            .replace("@TIME@", &packing.rfc3339()?)
            .replace("@TREE@", &tree.display().to_string())
            .replace("@VERSION@", &packing.version);
        let description = packing.scratch(&format!("{package}-{}.yaml", target.arch()));
        write(&description, text.as_bytes())?;
        succeed(
            packing
                .tool("nfpm")
                .args(["package", "--packager", kind, "--config"])
                .arg(&description)
                .arg("--target")
                .arg(&packing.dist),
        )?;
    }
    Ok(())
}
