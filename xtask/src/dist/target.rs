//! The systems that the release is built for, and the build: portable to glibc 2.17, and the same bytes from every folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use super::{LIBRARIES, PROGRAM, build_command, succeed};
use crate::workspace::Workspace;

/// The newest glibc that anything released may need.
const GLIBC: (u32, u32) = (2, 17);

/// An architecture of Linux systems that are released for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Target {
    #[value(name = "x86_64")]
    X86_64,
    #[value(name = "aarch64")]
    Aarch64,
}

impl Target {
    /// Its name for rpm, wheels, glibc and us.
    pub(super) fn arch(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Its name for Debian, OCI and nfpm.
    pub(super) fn debian_arch(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    pub(super) fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.arch())
    }

    /// Builds the release and gives the folder that it lies in.
    pub(super) fn build(self, workspace: &Workspace) -> Result<PathBuf> {
        let stubs = workspace.build_dir().join("glibc").join(self.arch());
        let script = workspace.root().join("packaging/glibc-stubs");
        succeed(Command::new(script).arg(self.arch()).arg(&stubs))?;
        let triple = self.triple();
        let linker = format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase()).replace('-', "_");
        let c_flags = format!("CFLAGS_{triple}").replace('-', "_");
        let built = workspace.metadata()?.target_directory;
        succeed(
            build_command(workspace)
                .args(["--target", &triple])
                .env(linker, stubs.join("cc"))
                .env("CARGO_INCREMENTAL", "0")
                .env(c_flags, path_flags("-ffile-prefix-map", workspace, &built)?)
                .env(
                    "RUSTFLAGS",
                    path_flags("--remap-path-prefix", workspace, &built)?,
                ),
        )?;
        let built = built.join(triple).join("release");
        for file in LIBRARIES.iter().chain([&PROGRAM]) {
            check_glibc(&built.join(file))?;
        }
        Ok(built)
    }
}

/// Compiler flags that keep the places of this checkout, of cargo's sources and of what is built out of the result. Those of C, too: the
/// linker's build id is a digest of all, also of debugging information that is stripped later.
fn path_flags(flag: &str, workspace: &Workspace, built: &Path) -> Result<String> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(home).context("HOME is not set")?;
    // The last that fits counts.
    let flags = [
        (workspace.root(), "/towline"),
        (built, "/towline/target"),
        (&cargo_home, "/cargo"),
    ]
    .map(|(from, to)| format!("{flag}={}={to}", from.display()));
    let spaced = flags.iter().find(|flag| flag.contains(' '));
    ensure!(
        spaced.is_none(),
        "`{}` has a space: build in folders without",
        spaced.map_or("", String::as_str)
    );
    Ok(flags.join(" "))
}

/// Fails if a file needs more of glibc than systems with the oldest one have.
fn check_glibc(file: &Path) -> Result<()> {
    let output = Command::new("readelf")
        .args(["--wide", "--dyn-syms"])
        .arg(file)
        .output()
        .context("cannot run readelf, of binutils")?;
    ensure!(output.status.success(), "readelf {}", file.display());
    let text = String::from_utf8_lossy(&output.stdout);
    match too_new(&text).as_slice() {
        [] => Ok(()),
        symbols => bail!(
            "{} needs symbols that glibc {}.{} lacks: {}",
            file.display(),
            GLIBC.0,
            GLIBC.1,
            symbols.join(", ")
        ),
    }
}

/// The undefined symbols in a table of readelf's that need a newer glibc. A symbol that the stubs lack has no version.
fn too_new(table: &str) -> Vec<&str> {
    let undefined = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            [_, _, _, _, binding, _, "UND", name, ..] => Some((*binding, *name)),
            _ => None,
        }
    });
    let is_too_new = |(binding, name): &(&str, &str)| match name.split_once('@') {
        // Of our own driver library, which is no part of glibc.
        None if name.starts_with("towline_") => false,
        None => *binding != "WEAK",
        Some((_, version)) => {
            let version = version.trim_start_matches('@').strip_prefix("GLIBC_");
            let numbers = version.and_then(|version| version.split_once('.'));
            numbers.is_some_and(|(major, minor)| {
                let minor = minor.split('.').next().unwrap_or_default();
                let number = |text: &str| text.parse().unwrap_or(u32::MAX);
                (number(major), number(minor)) > GLIBC
            })
        }
    };
    undefined
        .filter(is_too_new)
        .map(|(_, symbol)| symbol)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_newer_glibc_are_found() {
        let table = "
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND old@GLIBC_2.2.5 (2)
     2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND limit@GLIBC_2.17 (3)
     3: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND new@GLIBC_2.34 (4)
     4: 0000000000000000     0 FUNC    WEAK   DEFAULT  UND maybe
     5: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND unknown
     6: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND unwind@GCC_3.0 (5)
     7: 0000000000001000    10 FUNC    GLOBAL DEFAULT   12 ours@@libcudart.so.12
     8: 0000000000000000     0 NOTYPE  GLOBAL DEFAULT  UND towline_ncclSend
";
        assert_eq!(too_new(table), ["new@GLIBC_2.34", "unknown"]);
    }
}
