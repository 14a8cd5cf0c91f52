//! Tokens of PTX.
//!
//! A directive, a type and a modifier all look alike, a dot and a word, so they are one token. It may start with a digit (`.2d`) and
//! hold what is glued on with `::` (`.shared::cta`, `.L2::128B`).

use super::{Position, SyntaxError};

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// An identifier, opcode or label: `mov`, `%r1`, `$L__BB0_2`, `_`.
    Word(&'a str),
    /// A dot and a word, without the dot.
    Dot(&'a str),
    /// A number as written.
    Number(&'a str),
    /// A string, without its quotes, escapes as written.
    Text(&'a str),
    /// Punctuation.
    Mark(&'static str),
    /// The end of the text.
    End,
}

impl Token<'_> {
    /// How messages call it.
    pub(super) fn describe(&self) -> String {
        // What was written may be as long as the text.
        let cut = |text: &str| text.chars().take(40).collect::<String>();
        match self {
            Token::Word(word) => format!("`{}`", cut(word)),
            Token::Dot(word) => format!("`.{}`", cut(word)),
            Token::Number(number) => format!("`{}`", cut(number)),
            Token::Text(_) => "a string".into(),
            Token::Mark(mark) => format!("`{mark}`"),
            Token::End => "the end of the text".into(),
        }
    }
}

/// Longest first.
const MARKS: [&str; 33] = [
    "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "(", ")", "[", "]", "{", "}", "<", ">", ",",
    ";", ":", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "?", "=", "@", ".",
];

/// Cuts a text into tokens.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str, line: u32) -> Self {
        Self {
            text,
            at: 0,
            line,
            line_start: 0,
        }
    }

    /// The text from one byte to another.
    pub(super) fn between(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// The next token, where it stands, and at which byte it starts and ends.
    pub(super) fn next(&mut self) -> Result<(Token<'a>, Position, (usize, usize)), SyntaxError> {
        self.skip_blank()?;
        let position = self.position();
        let start = self.at;
        let token = self.token()?;
        Ok((token, position, (start, self.at)))
    }

    fn position(&self) -> Position {
        Position {
            line: self.line,
            column: u32::try_from(self.at - self.line_start + 1).unwrap_or(u32::MAX),
        }
    }

    fn fail<T>(&self, message: &str) -> Result<T, SyntaxError> {
        Err(SyntaxError {
            at: self.position(),
            message: message.into(),
        })
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Moves on by `len` bytes, none of which ends a line.
    fn advance(&mut self, len: usize) -> &'a str {
        let start = self.at;
        self.at += len;
        self.between(start, self.at)
    }

    /// Moves on by `len` bytes, counting lines.
    fn pass(&mut self, len: usize) {
        let start = self.at;
        for (index, byte) in self.advance(len).bytes().enumerate() {
            if byte == b'\n' {
                self.line = self.line.saturating_add(1);
                self.line_start = start + index + 1;
            }
        }
    }

    /// Skips spaces, comments, and the lines of a preprocessor.
    fn skip_blank(&mut self) -> Result<(), SyntaxError> {
        loop {
            let rest = self.rest();
            match rest.as_bytes() {
                [b' ' | b'\t'..=b'\r', ..] => {
                    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
                    self.pass(
                        rest.as_bytes()
                            .iter()
                            .take_while(|byte| is_blank(byte))
                            .count(),
                    );
                }
                [b'/', b'/', ..] | [b'#', ..] => {
                    self.advance(rest.find('\n').unwrap_or(rest.len()));
                }
                [b'/', b'*', ..] => match rest.find("*/") {
                    Some(end) => self.pass(end + 2),
                    None => return self.fail("a comment that does not end"),
                },
                _ => return Ok(()),
            }
        }
    }

    fn token(&mut self) -> Result<Token<'a>, SyntaxError> {
        let rest = self.rest();
        let mut bytes = rest.bytes();
        let (Some(first), second) = (bytes.next(), bytes.next()) else {
            return Ok(Token::End);
        };
        match first {
            b'"' => self.string(),
            b'0'..=b'9' => Ok(Token::Number(self.advance(number_len(rest)))),
            b'.' if second.is_some_and(is_word) => {
                let len = 1 + qualified_len(&rest[1..]);
                Ok(Token::Dot(&self.advance(len)[1..]))
            }
            b'%' if !second.is_some_and(is_word) => self.mark(),
            b'%' | b'_' | b'$' | b'a'..=b'z' | b'A'..=b'Z' => {
                Ok(Token::Word(self.advance(1 + word_len(&rest[1..]))))
            }
            _ => self.mark(),
        }
    }

    fn mark(&mut self) -> Result<Token<'a>, SyntaxError> {
        let rest = self.rest();
        match MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            Some(mark) => {
                self.advance(mark.len());
                Ok(Token::Mark(mark))
            }
            None => self.fail("a character that PTX does not have"),
        }
    }

    fn string(&mut self) -> Result<Token<'a>, SyntaxError> {
        let mut escaped = false;
        for (index, byte) in self.rest().bytes().enumerate().skip(1) {
            match byte {
                b'"' if !escaped => {
                    let text = self.advance(index + 1);
                    return Ok(Token::Text(&text[1..index]));
                }
                b'\n' => break,
                _ => escaped = byte == b'\\' && !escaped,
            }
        }
        self.fail("a string that does not end")
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

fn word_len(text: &str) -> usize {
    text.bytes().take_while(|&byte| is_word(byte)).count()
}

/// A word, and further ones behind `::`.
fn qualified_len(text: &str) -> usize {
    let mut len = word_len(text);
    while let Some(next) = text[len..].strip_prefix("::") {
        match word_len(next) {
            0 => break,
            more => len += 2 + more,
        }
    }
    len
}

/// Digits and letters, as in `0x1fU` and `0f3F800000`, and the rest of a decimal fraction.
fn number_len(text: &str) -> usize {
    let mut len = word_len(text);
    let decimal = text[..len].bytes().all(|byte| byte.is_ascii_digit());
    if decimal && text[len..].starts_with('.') {
        len += 1 + word_len(&text[len + 1..]);
    }
    // The sign of an exponent. A number with a letter in front (0x1e, 0f3e) has none.
    let prefixed =
        text.len() > 1 && text.starts_with('0') && text.as_bytes()[1].is_ascii_alphabetic();
    if !prefixed && text[..len].ends_with(['e', 'E']) && text[len..].starts_with(['+', '-']) {
        len += 1 + word_len(&text[len + 1..]);
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text, 1);
        let next = || match lexer.next().expect("tokens").0 {
            Token::End => None,
            token => Some(token),
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_modifier_is_one_token() {
        assert_eq!(
            tokens("ld.global.L2::128B tex.2d cp.shared::cluster.x"),
            [
                Token::Word("ld"),
                Token::Dot("global"),
                Token::Dot("L2::128B"),
                Token::Word("tex"),
                Token::Dot("2d"),
                Token::Word("cp"),
                Token::Dot("shared::cluster"),
                Token::Dot("x"),
            ]
        );
    }

    #[test]
    fn numbers_keep_their_spelling() {
        for number in [
            "0",
            "017",
            "0x1eU",
            "0b101",
            "9.5",
            "1.5e-7",
            "2E+3",
            "0f3F800000",
            "0d3ff0000000000000",
        ] {
            assert_eq!(tokens(number), [Token::Number(number)]);
        }
        assert_eq!(
            tokens("0x1e+4"),
            [Token::Number("0x1e"), Token::Mark("+"), Token::Number("4")]
        );
    }

    #[test]
    fn names_may_start_with_a_mark() {
        assert_eq!(
            tokens("%r1 $L__BB0_2 _ %tid.x a%b"),
            [
                Token::Word("%r1"),
                Token::Word("$L__BB0_2"),
                Token::Word("_"),
                Token::Word("%tid"),
                Token::Dot("x"),
                Token::Word("a"),
                Token::Word("%b"),
            ]
        );
        assert_eq!(tokens("5 % 3").len(), 3);
    }

    #[test]
    fn comments_and_preprocessor_lines_are_skipped_and_lines_counted() {
        let mut lexer = Lexer::new("// one\n/* two\n three */ # four\n  ret", 1);
        let (token, at, _) = lexer.next().expect("a token");
        assert_eq!(token, Token::Word("ret"));
        assert_eq!((at.line, at.column), (4, 3));
    }

    #[test]
    fn what_does_not_end_is_an_error_with_its_place() {
        for (text, line, column) in [
            ("\n /* x", 2, 2),
            ("\"x", 1, 1),
            ("\"x\n\"", 1, 1),
            ("a\n`", 2, 1),
        ] {
            let mut lexer = Lexer::new(text, 1);
            let error = loop {
                match lexer.next() {
                    Ok((token, ..)) => assert_ne!(token, Token::End),
                    Err(error) => break error,
                }
            };
            assert_eq!((error.at.line, error.at.column), (line, column), "{text:?}");
        }
    }
}
