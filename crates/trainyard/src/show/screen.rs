//! What a terminal is shown of text that others have written: a log line must not move the cursor, set the title or
//! answer for its reader.

use std::borrow::Cow;

/// The same text with control characters made visible; tabs, ends of lines, and colours (SGR) stay.
pub(crate) fn screen(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|character| is_control(character) && !matches!(character, '\n' | '\t')) {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest, mut coloured) = (String::with_capacity(text.len() + 8), text, false);
    while let Some(character) = rest.chars().next() {
        if let Some(length) = colour(rest) {
            coloured = !matches!(&rest[..length], "\x1b[m" | "\x1b[0m");
            shown.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        rest = &rest[character.len_utf8()..];
        match character {
            '\n' | '\t' => shown.push(character),
            // Of a line that ends as on Windows.
            '\r' if rest.is_empty() || rest.starts_with('\n') => {}
            // Control pictures (Unicode, U+2400 to U+2421).
            '\0'..='\x1f' => shown.push(char::from_u32(0x2400 + u32::from(character)).unwrap_or('\u{fffd}')),
            '\x7f' => shown.push('\u{2421}'),
            _ if is_control(character) => shown.push('\u{fffd}'),
            _ => shown.push(character),
        }
    }
    if coloured {
        shown.push_str("\x1b[0m");
    }
    Cow::Owned(shown)
}

/// Control characters, and those that turn the direction of the text around them.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// How long the select-graphic-rendition sequence is with which the text begins (ECMA-48, 8.3.117).
fn colour(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\x1b[")?;
    let end = numbers.find(|character: char| !matches!(character, '0'..='9' | ';' | ':'))?;
    (numbers[end..].starts_with('m')).then_some(2 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::screen;

    #[test]
    fn colours_stay_and_end_with_their_text() {
        assert_eq!(screen("plain\ttext\n"), "plain\ttext\n");
        assert_eq!(screen("\x1b[1;31mred\x1b[0m end"), "\x1b[1;31mred\x1b[0m end");
        assert_eq!(screen("\x1b[38:5:1mred"), "\x1b[38:5:1mred\x1b[0m");
        assert_eq!(screen("line\r\nline\r"), "line\nline");
    }

    #[test]
    fn what_would_move_the_cursor_or_talk_to_the_terminal_is_made_visible() {
        let table = [
            ("10%\r20%", "10%\u{240d}20%"),
            ("\x1b[2J", "\u{241b}[2J"),
            ("\x1b]0;title\x07", "\u{241b}]0;title\u{2407}"),
            ("\x1b[6n", "\u{241b}[6n"),
            ("\x1b[31", "\u{241b}[31"),
            ("\u{9b}2J\x7f", "\u{fffd}2J\u{2421}"),
            ("a\u{202e}b", "a\u{fffd}b"),
        ];
        for (text, shown) in table {
            assert_eq!(screen(text), shown, "{text:?}");
        }
    }
}
