//! The cost of a call by hand: the lines of its declaration and of every method that is named like it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::workspace::Workspace;

/// Crates with halves of calls. Vendors' and software devices are not among them.
const CRATES: [&str; 6] = [
    "towline-client",
    "towline-cuda",
    "towline-cudart",
    "towline-monitor",
    "towline-opencl",
    "towline-worker",
];

/// A function's place in a file.
#[derive(Debug, PartialEq)]
struct Place {
    first: usize,
    lines: usize,
}

/// The function of this name in a file that rustfmt has formatted, with its attributes and documentation.
fn find(text: &str, name: &str) -> Option<Place> {
    let lines: Vec<&str> = text.lines().collect();
    let head = format!("fn {name}(");
    let at = lines.iter().position(|line| {
        let line = line.trim_start();
        line.split_once(&head).is_some_and(|(before, _)| {
            matches!(
                before,
                "" | "unsafe " | "pub(crate) " | "pub(crate) unsafe "
            )
        })
    })?;
    let indent = lines[at].len() - lines[at].trim_start().len();
    let ends = |line: &str| {
        let inner = line.trim_start();
        line.len() - inner.len() == indent && (inner == "}" || inner.ends_with(';'))
    };
    let whole = lines[at].ends_with(';') || lines[at].ends_with('}');
    let last = match whole {
        true => at,
        false => at + 1 + lines[at + 1..].iter().position(|line| ends(line))?,
    };
    let of_it = |line: &&&str| {
        !line.is_empty() && !matches!(line.trim_start(), "}" | "{") && !line.ends_with('{')
    };
    let above = lines[..at].iter().rev().take_while(of_it).count();
    Some(Place {
        first: at + 1 - above,
        lines: last + 1 - at + above,
    })
}

/// The Rust files below a folder, in order.
fn files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let listing =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths = listing
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// One line for each place, and their sum.
pub(super) fn print(workspace: &Workspace, name: &str) -> Result<String> {
    let root = workspace.root();
    let mut all = Vec::new();
    files(&root.join("api"), &mut all)?;
    for one in CRATES {
        files(&root.join("crates").join(one).join("src"), &mut all)?;
    }
    let (mut out, mut count, mut sum) = (String::new(), 0, 0);
    for path in all {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let Some(place) = find(&text, name) else {
            continue;
        };
        let shown = path.strip_prefix(root).unwrap_or(&path).display();
        out += &format!("{:5} {shown}:{}\n", place.lines, place.first);
        (count, sum) = (count + 1, sum + place.lines);
    }
    ensure!(count > 0, "no call `{name}` is declared in api/");
    Ok(format!("{out}{sum:5} lines in {count} files\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
impl GraphCalls for Driver {
    fn cuOne(&self) -> u32 {
        match 1 {
            _ => 2,
        }
    }

    /// Documented.
    unsafe fn cuTwo(
        &self,
    ) -> u32 {
        GraphCalls::cuOne(self)
    }
}

extern \"C\" {
    /// A call.
    #[call(id = 1)]
    fn cuThree(flags: u32) -> CUresult;
}
";

    #[test]
    fn function_ends_at_its_own_brace() {
        let one = find(TEXT, "cuOne").unwrap();
        assert_eq!(one, Place { first: 2, lines: 5 });
        let two = find(TEXT, "cuTwo").unwrap();
        assert_eq!(two, Place { first: 8, lines: 6 });
    }

    #[test]
    fn declaration_counts_with_its_attributes() {
        let three = find(TEXT, "cuThree").unwrap();
        assert_eq!(
            three,
            Place {
                first: 17,
                lines: 3
            }
        );
        assert_eq!(find(TEXT, "cuThre"), None);
    }

    #[test]
    fn getter_costs_its_declaration_and_three_lines() {
        let workspace = Workspace::locate().unwrap();
        let cost = print(&workspace, "cuGraphNodeGetLocalId").unwrap();
        assert!(cost.ends_with("    6 lines in 2 files\n"), "{cost}");
        assert!(print(&workspace, "cuNobodyHasThis").is_err());
    }
}
