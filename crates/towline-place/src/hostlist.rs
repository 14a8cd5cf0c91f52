//! Names of nodes in brackets, as Slurm and people write them: `node[00-03,07],head`.

/// More names than any cluster has: a typing error such as `n[1-99999999]` ends here.
pub const MAX_NAMES: usize = 65_536;

/// The names that a list stands for, in its order; what is wrong with it otherwise.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in split(list)? {
        expand_part(part.trim(), &mut names)?;
    }
    match names.is_empty() {
        true => Err(format!("`{list}` names no node")),
        false => Ok(names),
    }
}

/// Cuts at the commas outside of brackets.
fn split(list: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (index, c) in list.char_indices() {
        match (c, inside) {
            ('[', false) => inside = true,
            (']', true) => inside = false,
            ('[', true) | (']', false) => {
                return Err(format!("the brackets of `{list}` do not match"));
            }
            (',', false) => {
                parts.extend(list.get(start..index));
                start = index + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("`{list}` lacks a closing bracket"));
    }
    parts.extend(list.get(start..));
    Ok(parts)
}

fn expand_part(part: &str, names: &mut Vec<String>) -> Result<(), String> {
    if part.is_empty() {
        return Err("an empty name between commas".to_owned());
    }
    let Some((prefix, rest)) = part.split_once('[') else {
        return push(part.to_owned(), names);
    };
    let Some((ranges, suffix)) = rest.split_once(']') else {
        return Err(format!("`{part}` lacks a closing bracket"));
    };
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| format!("`{range}` in `{part}` is no range of numbers"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(format!("`{range}` in `{part}` counts backwards"));
        }
        let width = first.len();
        for index in from..=to {
            // A second pair of brackets multiplies.
            expand_part(&format!("{prefix}{index:0width$}{suffix}"), names)?;
        }
    }
    Ok(())
}

fn push(name: String, names: &mut Vec<String>) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if !name.chars().all(fits) {
        return Err(format!(
            "`{name}` is no name of a node: letters, digits, `-`, `.` and `_` are allowed"
        ));
    }
    if names.len() >= MAX_NAMES {
        return Err(format!("more than {MAX_NAMES} nodes"));
    }
    names.push(name);
    Ok(())
}

/// The names in brackets again: runs of numbers with one prefix and width become ranges, order stays.
pub fn compress(names: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut run: Option<(&str, usize, u32, u32)> = None;
    let close = |run: (&str, usize, u32, u32)| {
        let (prefix, width, from, to) = run;
        match from == to {
            true => format!("{prefix}{from:0width$}"),
            false => format!("{prefix}[{from:0width$}-{to:0width$}]"),
        }
    };
    for name in names {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, number) = name.split_at(name.len() - digits);
        let number = number.parse::<u32>().ok();
        run = match (run, number) {
            (Some((p, w, from, to)), Some(n))
                if p == prefix && w == digits && to.checked_add(1) == Some(n) =>
            {
                Some((p, w, from, n))
            }
            (previous, number) => {
                parts.extend(previous.map(close));
                if number.is_none() {
                    parts.push(name.clone());
                }
                number.map(|n| (prefix, digits, n, n))
            }
        };
    }
    parts.extend(run.map(close));
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_keep_their_zeros_and_order() {
        let names = expand("b[08-10,1],a,r[1-2]n[1-2]").unwrap();
        let expected = [
            "b08", "b09", "b10", "b1", "a", "r1n1", "r1n2", "r2n1", "r2n2",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn wrong_lists_say_why() {
        for list in [
            "",
            "n[1-",
            "n1]",
            "n[3-1]",
            "n[a-b]",
            "a,,b",
            "n[1-99999999]",
            "a b",
            "n[[1]]",
        ] {
            assert!(expand(list).is_err(), "{list}");
        }
    }

    #[test]
    fn compressed_names_expand_to_themselves() {
        for list in ["n[00-31]", "a,b1,n[1-3],n5", "x9,x10", "head"] {
            let names = expand(list).unwrap();
            assert_eq!(expand(&compress(&names)).unwrap(), names, "{list}");
        }
        assert_eq!(compress(&expand("n1,n2,n3,m").unwrap()), "n[1-3],m");
    }
}
