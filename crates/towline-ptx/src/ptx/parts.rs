//! Several modules in one text: what a link of PTX gives, since nothing of it has to be compiled.
//!
//! One module is its own text. More of them follow a comment that tells how many bytes each has; a reader that does not know of it
//! finds a second `.version` where no module has one. Lines count through the whole text, so that messages name a place in it.

use super::{Module, Position, SyntaxError};

/// How a text of several modules begins.
const MARK: &str = "// Towline: PTX of several modules, in bytes:";
/// Most modules of a text.
const PARTS_LIMIT: usize = 4096;

/// The modules in one text, that [`modules`] reads again.
pub fn join(texts: &[&str]) -> String {
    if let [text] = texts {
        return (*text).to_owned();
    }
    let mut whole = MARK.to_owned();
    for text in texts {
        whole.push_str(&format!(" {}", text.len()));
    }
    whole.push('\n');
    whole.extend(texts.iter().copied());
    whole
}

/// The texts of the modules in one text, and the line that each begins in.
pub fn parts(text: &str) -> Result<Vec<(&str, u32)>, SyntaxError> {
    let Some(rest) = text.strip_prefix(MARK) else {
        return Ok(vec![(text, 1)]);
    };
    let refuse = |message: &str| {
        Err(SyntaxError {
            at: Position { line: 1, column: 1 },
            message: message.into(),
        })
    };
    let Some((lengths, mut rest)) = rest.split_once('\n') else {
        return refuse("modules that are announced and not there");
    };
    let (mut parts, mut line) = (Vec::new(), 2_u32);
    for length in lengths.split_ascii_whitespace() {
        let cut = length
            .parse()
            .ok()
            .and_then(|len| rest.split_at_checked(len));
        let Some((part, behind)) = cut else {
            return refuse("a module is shorter than announced");
        };
        if parts.len() == PARTS_LIMIT {
            return refuse("too many modules");
        }
        parts.push((part, line));
        let lines = part.bytes().filter(|byte| *byte == b'\n').count();
        line = line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        rest = behind;
    }
    match rest.trim_ascii() {
        "" => Ok(parts),
        _ => refuse("more text than the modules have"),
    }
}

/// Reads all modules of a text.
///
/// ```
/// use towline_ptx::ptx::{join, modules};
///
/// let (one, two) = (".version 8.0 .target sm_75\n", ".version 8.1 .target sm_80\n");
/// let both = join(&[one, two]);
/// assert_eq!(modules(&both)?.len(), 2);
/// assert_eq!(modules(one)?.len(), 1);
/// # Ok::<(), towline_ptx::ptx::SyntaxError>(())
/// ```
pub fn modules(text: &str) -> Result<Vec<Module<'_>>, SyntaxError> {
    let parts = parts(text)?.into_iter();
    parts
        .map(|(part, line)| Module::parse_from(part, line))
        .collect()
}

/// As [`modules`], with the bodies of functions passed over: they are empty, whatever is in them.
pub fn heads(text: &str) -> Result<Vec<Module<'_>>, SyntaxError> {
    let parts = parts(text)?.into_iter();
    parts
        .map(|(part, line)| Module::parse_heads(part, line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: &str =
        ".version 8.0\n.target sm_75\n.extern .func far();\n.entry k() { call far; ret; }\n";
    const CALLED: &str = ".version 7.0\n.target sm_70\n.visible .func far()\n{ ret; }";

    #[test]
    fn modules_come_back_as_they_went_and_their_lines_count_on() {
        let text = join(&[CALLS, CALLED, CALLS]);
        let parts = modules(&text).expect("modules");
        let alone = [CALLS, CALLED, CALLS].map(|text| Module::parse(text).expect("a module"));
        assert_eq!(parts, alone);
        // The third begins in the line in which the second ends.
        let wrong = join(&[CALLS, CALLED, ".version 8.0 .target sm_75\n\nwrong"]);
        let error = modules(&wrong).expect_err("no directive");
        let line = wrong
            .lines()
            .position(|line| line == "wrong")
            .expect("it is there");
        assert_eq!(
            error.at,
            Position {
                line: line as u32 + 1,
                column: 1
            }
        );
    }

    #[test]
    fn one_module_is_its_own_text_and_none_are_none() {
        assert_eq!(join(&[CALLS]), CALLS);
        assert_eq!(modules(&join(&[])), Ok(Vec::new()));
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let text = format!("{MARK} 3 9999\n.version");
        let cut = format!("{MARK} 1");
        let long = join(&[CALLS, CALLED]) + "ret;";
        let inside = format!("{MARK} 1\n\u{e9}");
        let many = format!("{MARK}{}\n", " 0".repeat(PARTS_LIMIT + 1));
        for text in [text, cut, long, inside, many] {
            assert!(modules(&text).is_err(), "{text:.60}");
        }
    }
}
