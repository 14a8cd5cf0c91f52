//! Text of a peer, on its way to a terminal or a log.

/// Most characters of a name that are shown.
pub const SHOWN_NAME: usize = 64;
/// Most characters of an explanation that are shown.
pub const SHOWN_TEXT: usize = 1024;

/// A peer's text without what moves a cursor, breaks a line or turns the direction of writing, and no longer than `most` characters.
pub fn printable(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == most {
            shown.push('…');
            break;
        }
        match character {
            // Joiners, marks and overrides of direction, separators of lines, and a byte order mark.
            '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' => {
                shown.extend(character.escape_unicode());
            }
            control if control.is_control() => shown.extend(control.escape_default()),
            other => shown.push(other),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_the_cursor_or_turns_the_writing() {
        assert_eq!(
            printable("a\u{1b}[2J\r\nb\u{9b}1A\u{202e}c\u{2028}\u{feff}", 100),
            "a\\u{1b}[2J\\r\\nb\\u{9b}1A\\u{202e}c\\u{2028}\\u{feff}"
        );
        assert_eq!(printable("Grüße, 世界", 100), "Grüße, 世界");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(printable("ääää", 3), "äää…");
        assert_eq!(printable("äää", 3), "äää");
    }
}
