//! Whether a program's kernels may print. Where none of a session's may, its completions need not look for text.

/// Whether kernels of this source, or of these build options, may print.
pub(crate) fn may_print(text: &[u8]) -> bool {
    // A line that goes on in the next may be cut in the middle of a name.
    let mut whole = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = match rest {
            [b'\\', b'\n', behind @ ..] | [b'\\', b'\r', b'\n', behind @ ..] => behind,
            _ => {
                whole.push(*first);
                behind
            }
        };
    }
    // Joined names, and text from files of the server, may hide the name.
    ["printf", "##", "%:%:", "include", "-I"]
        .iter()
        .any(|sign| {
            whole
                .windows(sign.len())
                .any(|part| part == sign.as_bytes())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_may_print_are_told_from_others() {
        let printing: [&[u8]; 7] = [
            b"kernel void k() { printf(\"%d\", 1); }",
            b"#define SAY pri ## ntf",
            b"#define SAY pri %:%: ntf",
            b"kernel void k() { pri\\\nntf(\"%d\", 1); }",
            b"kernel void k() { pri\\\r\nntf(\"%d\", 1); }",
            b"#include <say.h>",
            b"-I/usr/share/kernels",
        ];
        for text in printing {
            assert!(may_print(text), "{}", String::from_utf8_lossy(text));
        }
        assert!(!may_print(b"kernel void k(global int *a) { a[0] = 1; }"));
        assert!(!may_print(b"-DN=4 -cl-fast-relaxed-math"));
    }
}
