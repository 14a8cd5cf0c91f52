//! Which arguments a kernel only reads, as its source text says.
//!
//! Contexts that span providers need to know it, and devices tell only of programs built with `-cl-kernel-arg-info`, an option that
//! must not be added behind the application's back. When in doubt an argument counts as written: that costs a transfer, no more.

/// Whether each argument of the kernel is only read; nothing where the text leaves room for doubt.
pub(crate) fn read_only(source: &str, kernel: &str) -> Option<Vec<bool>> {
    let text = without_comments(source);
    // A redefined keyword makes every word doubtful.
    if text
        .lines()
        .map(str::trim_start)
        .filter_map(|line| line.strip_prefix('#'))
        .filter_map(|line| line.trim_start().strip_prefix("define"))
        .filter_map(|line| words(line).next())
        .any(|word| READ_ONLY.contains(&word) || word == kernel)
    {
        return None;
    }
    let mut found = None;
    for (at, _) in text.match_indices(kernel) {
        let before = text[..at].trim_end();
        let after = text[at + kernel.len()..].trim_start();
        if before.ends_with("void") && after.starts_with('(') && found.replace(after).is_some() {
            // Two definitions: only a compiler knows which one counts.
            return None;
        }
    }
    let list = parameters(found?)?;
    if list.contains('#') {
        return None;
    }
    if matches!(list.trim(), "" | "void") {
        return Some(Vec::new());
    }
    Some(split(list).into_iter().map(reads).collect())
}

/// Words that say that a parameter is only read.
const READ_ONLY: [&str; 5] = [
    "const",
    "constant",
    "__constant",
    "read_only",
    "__read_only",
];

/// Whether a parameter is only read: what stands before the first `*` says it of what is pointed to.
fn reads(parameter: &str) -> bool {
    let pointee = parameter.split('*').next().unwrap_or(parameter);
    words(pointee).any(|word| READ_ONLY.contains(&word))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
        .filter(|word| !word.is_empty())
}

/// The text between the parenthesis that `text` begins with and its partner.
fn parameters(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return text.get(1..at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Splits at commas outside parentheses.
fn split(list: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    list.split(move |letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .collect()
}

fn without_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('/') {
        text.push_str(&rest[..at]);
        let tail = &rest[at..];
        rest = if tail.starts_with("//") {
            tail.find('\n').map_or("", |end| &tail[end..])
        } else if tail.starts_with("/*") {
            text.push(' ');
            tail.find("*/").map_or("", |end| &tail[end + 2..])
        } else {
            text.push('/');
            &tail[1..]
        };
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::read_only;

    #[test]
    fn const_before_the_star_means_read_only() {
        let source = "__kernel void add(__global const float *a, global float* restrict b, __constant int *c, int n) {}";
        assert_eq!(
            read_only(source, "add"),
            Some(vec![true, false, true, false])
        );
    }

    #[test]
    fn const_behind_the_star_says_nothing_about_the_memory() {
        let source = "kernel void f(global int * const p) {}";
        assert_eq!(read_only(source, "f"), Some(vec![false]));
    }

    #[test]
    fn comments_and_attributes_are_passed_over() {
        let source = "/* void f(global int *p) */ __kernel __attribute__((reqd_work_group_size(1, 1, 1)))\n\
                      void f(/* in */ const global int *p, // out, const\n global int *q) {}";
        assert_eq!(read_only(source, "f"), Some(vec![true, false]));
    }

    #[test]
    fn doubtful_text_gives_no_answer() {
        assert_eq!(
            read_only("#define const\nkernel void f(global const int *p) {}", "f"),
            None
        );
        assert_eq!(
            read_only(
                "kernel void f(global const int *p) {}\nkernel void f(global int *p) {}",
                "f"
            ),
            None
        );
        assert_eq!(
            read_only("kernel void g(global const int *p) {}", "f"),
            None
        );
        assert_eq!(
            read_only(
                "kernel void f(global\n#ifdef X\nconst\n#endif\nint *p) {}",
                "f"
            ),
            None
        );
    }
}
