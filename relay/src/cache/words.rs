//! What Redis says, as the log shows it: whoever is in its place shall neither fill the log nor write lines of its own in it.

use std::fmt::Display;

use crate::limits::CACHE_WORDS;

/// A text of others on one line: cut, and with all but printable ASCII escaped.
pub(super) fn shown(said: &impl Display) -> String {
    let mut shown = String::new();
    for c in said.to_string().chars() {
        if shown.len() >= CACHE_WORDS {
            shown.push_str("...");
            break;
        }
        match c {
            ' '..='~' => shown.push(c),
            _ => shown.extend(c.escape_default()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_words_are_shown_as_they_are() {
        let text = r#"NOPERM User 'relay' has no permissions to run the "get" command"#;
        assert_eq!(shown(&text), text);
    }

    #[test]
    fn words_cannot_end_their_line_or_steer_a_terminal() {
        let text = "EVIL a\r\n2026 ERROR relay: forged\u{1b}[31m\u{9b}\u{2028}\0é";
        let expected = r"EVIL a\r\n2026 ERROR relay: forged\u{1b}[31m\u{9b}\u{2028}\u{0}\u{e9}";
        assert_eq!(shown(&text), expected);
    }

    #[test]
    fn long_words_are_cut() {
        for c in ["x", "\u{10ffff}"] {
            let long = shown(&c.repeat(1_000_000));
            assert!(long.len() <= CACHE_WORDS + 16, "{}", long.len());
            assert!(long.ends_with("..."));
        }
        let fits = "x".repeat(CACHE_WORDS);
        assert_eq!(shown(&fits), fits);
    }
}
