//! `cargo xtask licences`: everything that Towline is built from may be shipped with it.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context, Result};
use spdx::{Expression, ParseMode};

use crate::workspace::{Package, Workspace};

/// Relative to the workspace's root.
const ALLOW_LIST: &str = "xtask/licences.allow";

/// Checks every package that the lock file names, for every platform and as development dependency too.
pub(crate) fn check(workspace: &Workspace) -> Result<ExitCode> {
    let path = workspace.root().join(ALLOW_LIST);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let allow_list = AllowList::parse(&text);
    let packages = workspace.metadata()?.packages;

    let mut refused = 0;
    for package in &packages {
        if let Err(reason) = allow_list.admits(package) {
            refused += 1;
            println!("{} {}: {reason}", package.name, package.version);
        }
    }
    if refused > 0 {
        println!(
            "\nUse another crate in place of each of these (`cargo tree --invert NAME` shows who asks for it). If its \
             licence lets it be part of an Apache-2.0 work without further duties, add the licence to {ALLOW_LIST}, \
             and say in the commit why."
        );
        return Ok(ExitCode::FAILURE);
    }
    println!("{} packages, all under allowed licences", packages.len());
    Ok(ExitCode::SUCCESS)
}

struct AllowList {
    licences: BTreeSet<String>,
}

impl AllowList {
    /// One licence a line; `#` starts a comment.
    fn parse(text: &str) -> Self {
        let licences = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim())
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
        Self { licences }
    }

    /// The error says what is wrong with the package's licence.
    fn admits(&self, package: &Package) -> Result<(), String> {
        let Some(text) = &package.license else {
            return Err("states no licence expression".to_owned());
        };
        // Crates may still write `A/B` for `A OR B`.
        let expression = Expression::parse_mode(text, ParseMode::LAX)
            .map_err(|error| format!("`{text}`: {}", error.reason))?;
        let is_allowed = |licence: &spdx::LicenseReq| self.licences.contains(&licence.to_string());
        match expression.evaluate(is_allowed) {
            true => Ok(()),
            false => Err(format!("`{text}` is not allowed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(license: Option<&str>) -> Package {
        Package {
            id: "some 1.0.0".into(),
            manifest_path: "Cargo.toml".into(),
            name: "some".into(),
            version: "1.0.0".into(),
            license: license.map(str::to_owned),
            source: None,
        }
    }

    #[test]
    fn comments_and_blank_lines_allow_nothing() {
        let list =
            AllowList::parse("# GPL-3.0-only\n\nMIT # the usual\nApache-2.0 WITH LLVM-exception\n");
        assert_eq!(
            list.licences.into_iter().collect::<Vec<_>>(),
            ["Apache-2.0 WITH LLVM-exception", "MIT"]
        );
    }

    #[test]
    fn a_package_without_a_licence_is_refused() {
        let list = AllowList::parse("MIT");
        assert_eq!(
            list.admits(&package(None)),
            Err("states no licence expression".to_owned())
        );
    }

    #[test]
    fn the_refusal_names_the_licence() {
        let list = AllowList::parse("MIT");
        assert_eq!(list.admits(&package(Some("MIT OR GPL-3.0"))), Ok(()));
        assert_eq!(
            list.admits(&package(Some("GPL-3.0-or-later"))),
            Err("`GPL-3.0-or-later` is not allowed".to_owned())
        );
    }

    #[test]
    fn expressions_are_judged_part_by_part() {
        let list = AllowList::parse("MIT\nZlib\nApache-2.0 WITH LLVM-exception");
        let admits = |text| list.admits(&package(Some(text))).is_ok();
        assert!(admits("GPL-3.0-only AND Zlib OR MIT") && admits("GPL-3.0/MIT"));
        assert!(!admits("GPL-3.0-only AND (Zlib OR MIT)"));
        assert!(admits("Apache-2.0 WITH LLVM-exception") && !admits("Apache-2.0"));
        assert!(!admits("MIT OR") && !admits("MIT-like"));
    }

    #[test]
    fn the_committed_list_allows_no_copyleft() {
        let list = AllowList::parse(include_str!("../licences.allow"));
        assert!(list.licences.contains("Apache-2.0"));
        for licence in [
            "AGPL-3.0-only",
            "GPL-2.0-only",
            "GPL-3.0-or-later",
            "LGPL-3.0-only",
        ] {
            assert!(
                list.admits(&package(Some(licence))).is_err(),
                "{licence} is allowed"
            );
        }
    }
}
