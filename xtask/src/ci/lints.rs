//! Which warnings fail the stages that look for them.
//!
//! A fresh machine gets the newest Rust, whose lints nobody here may have seen. They are told, and do not fail a tree that was clean
//! the day before.

use std::process::Command;

use crate::workspace::Workspace;

/// The newest compiler, 1.N, that this tree was seen to be clean with.
const SEEN: u32 = 99;

/// What clippy and rustdoc are told of warnings.
pub(super) fn of_the_compiler(workspace: &Workspace) -> &'static str {
    let version = Command::new("rustc")
        .arg("--version")
        .current_dir(workspace.root())
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    of(&version)
}

/// By what `rustc --version` says.
fn of(version: &str) -> &'static str {
    match minor(version) {
        Some(minor) if minor > SEEN => {
            println!("this compiler is newer than 1.{SEEN}: what its lints say is no failure");
            ""
        }
        _ => "-D warnings",
    }
}

fn minor(version: &str) -> Option<u32> {
    let number = version.split_whitespace().nth(1)?;
    number.split('.').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lints_of_a_newer_compiler_are_told_only() {
        assert_eq!(of("rustc 1.95.0 (59807616e 2026-04-14)"), "-D warnings");
        assert_eq!(of("rustc 1.99.1"), "-D warnings");
        assert_eq!(of("rustc 1.100.0 (0000 2026-12-17)"), "");
        assert_eq!(of(""), "-D warnings");
    }
}
