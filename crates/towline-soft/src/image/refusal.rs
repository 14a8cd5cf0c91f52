//! Why device code cannot be used here: in a line for the program, and as the log of the driver's compiler. Places are those of a module of
//! its own, whatever text it came in.

use std::fmt::Display;

use towline_ptx::ptx::{self, Position};
use towline_ptx::{ComputeCapability, Error as ImageError};

use crate::messages::shown;

/// Why an image cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("{}{_0}", if matches!(_0, ImageError::Syntax(_)) { "" } else { "the image is damaged: " })]
    Image(#[from] ImageError),
    #[error("{0}")]
    Link(#[from] towline_ptx::ir::Error),
    /// A module without a kernel that can run.
    #[error(
        "no kernel of it can run on this software device: {}; {remedy}",
        listed(refusals)
    )]
    Kernels {
        refusals: Vec<Refusal>,
        remedy: String,
    },
    #[error("{line}: unresolved function `{name}`, called by `{by}`")]
    Missing {
        line: Position,
        name: String,
        by: String,
    },
    #[error("the device has no memory for the {0} bytes of the module's variables")]
    NoMemory(u64),
    #[error(
        "the image is machine code, and this software device needs PTX: build with {}; in CuPy set CUPY_COMPILE_WITH_PTX=1; with Numba \
         uninstall nvidia-nvjitlink", gencode(*_0)
    )]
    MachineCode(ComputeCapability),
    #[error("the fat binary has {has} and no PTX; this software device needs PTX: build with {}", gencode(*device))]
    NoPtx {
        has: String,
        device: ComputeCapability,
    },
    #[error("{error}; PTX {}.{} is newer than what this device knows ({NEWEST_PTX}.x): compile with an earlier toolkit", version.0, version.1)]
    Version {
        version: (u32, u32),
        error: ptx::SyntaxError,
    },
}

/// Most refused kernels that a message lists.
const LISTED: usize = 3;
/// Newest major version of PTX that is known.
const NEWEST_PTX: u32 = 9;

/// The option of nvcc that gives PTX which a device of this capability prefers.
pub(super) fn gencode(device: ComputeCapability) -> String {
    let number = device.major * 10 + device.minor;
    format!("nvcc -gencode arch=compute_{number},code=compute_{number}")
}

/// Why a kernel cannot run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{}`: {}", shown(kernel), self.reason())]
pub(crate) struct Refusal {
    pub(super) kernel: String,
    /// The function that it calls, where it is not itself to blame.
    pub(super) function: Option<String>,
    /// Where, in a module of its own, and what; no place where the kernel as a whole asks for too much.
    pub(super) at: Option<Position>,
    pub(super) what: String,
}

impl Refusal {
    /// Why, without the kernel's name.
    fn reason(&self) -> String {
        let mut text = self.at.map_or(String::new(), |at| format!("PTX {at}: "));
        text += &self.what;
        if let Some(function) = &self.function {
            text += &format!(", in `{}`", shown(function));
        }
        text
    }
}

/// The first of the refusals.
fn listed(refusals: &[Refusal]) -> String {
    let mut told: Vec<String> = refusals
        .iter()
        .take(LISTED)
        .map(Refusal::to_string)
        .collect();
    told.extend((refusals.len() > LISTED).then(|| "and so on".into()));
    told.join("; ")
}

impl LoadError {
    /// The same with the place in its own module, where it was found in a text of several.
    pub(super) fn at_home(self, text: &str) -> Self {
        let home = |at: Position| own_place(text, at);
        match self {
            LoadError::Image(ImageError::Syntax(mut error)) => {
                error.at = home(error.at);
                let version = version_of(text);
                match version.filter(|(major, _)| *major > NEWEST_PTX) {
                    Some(version) => LoadError::Version { version, error },
                    None => LoadError::Image(ImageError::Syntax(error)),
                }
            }
            LoadError::Link(mut error) => {
                error.at = home(error.at);
                LoadError::Link(error)
            }
            LoadError::Missing { line, name, by } => LoadError::Missing {
                line: home(line),
                name,
                by,
            },
            other => other,
        }
    }

    /// The driver's text in the error log of its caller.
    pub(crate) fn log(&self, input: &str) -> String {
        let one = |at: Position, what: &dyn Display| {
            let Position { line, column } = at;
            format!("ptxas {input}, line {line}; error   : {what} (column {column})\n")
        };
        let mut text = match self {
            LoadError::Image(ImageError::Syntax(error)) => one(error.at, &error.message),
            LoadError::Version { error, .. } => {
                one(error.at, &error.message) + &format!("ptxas fatal   : {self}\n")
            }
            LoadError::Link(error) => one(error.at, &error.message),
            LoadError::Missing { line, name, by } => one(
                *line,
                &format!("unresolved function `{name}`, called by `{by}`"),
            ),
            LoadError::Kernels { refusals, remedy } => {
                let lines: String = refusals.iter().map(|refusal| refusal.log(input)).collect();
                lines + &format!("info    : {remedy}\n")
            }
            other => return format!("error   : {other}\n"),
        };
        text += "ptxas fatal   : Ptx assembly aborted due to errors\n";
        text
    }
}

impl Refusal {
    /// As a line of the compiler's log.
    pub(crate) fn log(&self, input: &str) -> String {
        let (line, column) = self.at.map_or((0, 0), |at| (at.line, at.column));
        let (kernel, what) = (shown(&self.kernel), &self.what);
        match self.at {
            Some(_) => format!(
                "ptxas {input}, line {line}; error   : {what}, in `{kernel}` (column {column})\n"
            ),
            None => format!("ptxas {input}; error   : {what}, in `{kernel}`\n"),
        }
    }
}

/// A module of a text, and a place of the text in it.
pub(super) fn own_part(text: &str, at: Position) -> (&str, Position) {
    let parts = ptx::parts(text).unwrap_or_default();
    let found = parts.into_iter().rev().find(|(_, first)| *first <= at.line);
    match found {
        Some((part, first)) => (
            part,
            Position {
                line: at.line - first + 1,
                ..at
            },
        ),
        None => (text, at),
    }
}

pub(super) fn own_place(text: &str, at: Position) -> Position {
    own_part(text, at).1
}

/// The version of PTX that a text says it has.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let (_, rest) = text.split_once(".version")?;
    let (major, minor) = rest.split_ascii_whitespace().next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The architecture that a module says it is for.
pub(super) fn target_of(part: &str) -> Option<u32> {
    let (_, rest) = part.split_once(".target")?;
    let (_, number) = rest.lines().next()?.split_once("sm_")?;
    let digits = number.find(|letter: char| !letter.is_ascii_digit());
    number.get(..digits.unwrap_or(number.len()))?.parse().ok()
}

/// Where the compiler says that a line of PTX comes from: the last `.loc` before it in its function.
pub(super) fn source_of(part: &str, line: u32) -> Option<String> {
    let before: Vec<&str> = part.lines().take(line as usize).collect();
    let place = before
        .iter()
        .rev()
        .map(|line| line.trim_start())
        .take_while(|line| !line.contains(".entry ") && !line.contains(".func "))
        .find_map(|line| line.strip_prefix(".loc"))?;
    let mut words = place.split_ascii_whitespace();
    let (file, line) = (words.next()?, words.next()?);
    let line: u32 = line.trim_end_matches(',').parse().ok()?;
    let named = part
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix(".file"));
    let mut named = named.filter_map(|rest| rest.trim_start().split_once(char::is_whitespace));
    let (_, name) = named.find(|(number, _)| *number == file)?;
    let name = name.split('"').nth(1)?;
    Some(format!("{}:{line}", shown(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_a_text_of_several_modules_are_those_of_their_own() {
        let (one, two) = (
            ".version 8.0\n.target sm_75\n",
            ".version 8.0\n.target sm_80\n",
        );
        let text = ptx::join(&[one, two]);
        let at = |line| Position { line, column: 7 };
        assert_eq!(own_part(&text, at(3)), (one, at(2)));
        assert_eq!(own_part(&text, at(5)), (two, at(2)));
        assert_eq!(own_place(one, at(2)), at(2));
        assert_eq!((target_of(one), target_of(two)), (Some(75), Some(80)));
        assert_eq!(target_of(".target texmode_independent\n"), None);
    }

    #[test]
    fn source_is_what_the_last_loc_of_the_function_says() {
        let text = ".file 1 \"a.cu\"\n.file 12 \"dir/b.cuh\", 5, 6\n.entry k()\n{\n.loc 1 10 3\nadd;\n\t.loc\t12 20 1, function_name $L, inlined_at 1 10 3\n\
            mul;\n}\n.entry l()\n{\nret;\n}\n";
        let of = |line| source_of(text, line);
        assert_eq!(of(6).as_deref(), Some("a.cu:10"));
        assert_eq!(of(8).as_deref(), Some("dir/b.cuh:20"));
        assert_eq!(of(12), None);
        assert_eq!(source_of(".entry k() {\n.loc 9 1 1\nret;\n}", 3), None);
    }
}
