//! The first figures as a table in Markdown, and its place in a document.

use std::fmt::Write as _;

use super::metric::{Metric, Verdict};
use super::sections;
use crate::findings::{Findings, FindingsError};

/// What stands before the table in a document.
pub const BEGIN: &str = "<!-- measured: scripts/bench report writes this -->";

/// What stands after it.
pub const END: &str = "<!-- /measured -->";

/// The table: a row for each of the first figures, with what it must be, in the order of the files that they are from; and a line for each of those.
///
/// # Errors
/// A file has something else than what is shown of it: the error names the field.
pub fn table(findings: &Findings) -> Result<String, FindingsError> {
    let mut out = String::from("| | found | must be | |\n|---|---|---|---|\n");
    let mut left_out = 0;
    let mut missed = 0;
    for source in findings.newest() {
        let metrics = sections::metrics(source)?;
        for metric in metrics.iter().filter(|metric| !metric.headline) {
            left_out += usize::from(metric.target.is_some());
            missed += usize::from(metric.verdict() == Some(Verdict::Missed));
        }
        for metric in metrics.iter().filter(|metric| metric.headline) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} |",
                cell(&metric.what),
                cell(&metric.figure()) + metric.sign() + &cell(&besides(metric)),
                cell(&metric.asks().unwrap_or_default()),
                metric.verdict().map_or("", |verdict| verdict.word())
            );
        }
    }
    if left_out > 0 {
        let _ = writeln!(
            out,
            "\nThe page has all targets: {left_out} that this table leaves out, of which {missed} {} missed.",
            if missed == 1 { "is" } else { "are" }
        );
    }
    let _ = writeln!(out, "\nThe rows are from these files, in this order:\n");
    for source in findings.newest() {
        let _ = writeln!(
            out,
            "- `{}`, by `{}`{}: {}",
            source.file.replace('`', "'"),
            source.kind.command(),
            if source.quick {
                " in its short form"
            } else {
                ""
            },
            cell(&source.origin.to_string())
        );
    }
    Ok(out)
}

/// What was found with a figure, to stand behind it.
fn besides(metric: &Metric) -> String {
    let besides = metric.besides.as_deref();
    besides.map_or_else(String::new, |besides| format!(" {besides}"))
}

/// Text that no file can end a cell with, or begin markup in.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '|' | '<' | '[' | '`' | '*' | '_' | '\\' => out.extend(['\\', letter]),
            '\n' | '\r' | '\u{a0}' => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

/// The document with another table between its marks; nothing when it has no such marks.
#[must_use]
pub fn placed(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::{Kind, Source};

    fn signaling(calls: f64) -> Findings {
        let text = format!(
            r#"{{"machine": "m", "commit": "c", "date": "d", "calls_per_core": {calls}, "calls_per_core_must": 2000}}"#
        );
        Findings::of(vec![
            Source::parse("s.json".to_owned(), Kind::Signaling, &text).expect("good"),
        ])
    }

    #[test]
    fn a_table_says_what_was_found_and_what_must_be() {
        let table = table(&signaling(12_707.3)).expect("readable");
        let row = "| Calls a second of signaling, for each core that is busy with them | 12,707 | at least 2,000 | met |\n";
        assert!(table.contains(row), "{table}");
        // Which file that is, which command makes it, and of what, when and where it is.
        let made = "\n- `s.json`, by `scripts/bench signaling`: commit c, d, m\n";
        assert!(table.ends_with(made), "{table}");
        assert!(!table.contains('\u{a0}'));
    }

    #[test]
    fn a_table_says_how_many_targets_it_leaves_out() {
        let text = r#"{"machine": "m", "commit": "c", "date": "d", "targets": [
            {"name": "a", "key": {"of": "audio", "rtt_ms": 20, "channel": "snap"}, "found": 6, "must": 5}, {"name": "b", "found": 6, "must": 5}, {"name": "c", "found": 4, "must": 5}]}"#;
        let source = Source::parse("s.json".to_owned(), Kind::Setup, text).expect("good");
        let table = table(&Findings::of(vec![source])).expect("readable");
        let line =
            "The page has all targets: 2 that this table leaves out, of which 1 is missed.\n";
        assert!(table.contains(line), "{table}");
    }

    #[test]
    fn it_takes_its_place_in_a_document_as_often_as_one_likes() {
        let document = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let once = placed(&document, "new\n").expect("marks");
        assert_eq!(once, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(placed(&once, "new\n").as_deref(), Some(once.as_str()));
        assert_eq!(placed("no marks", "new"), None);
    }

    #[test]
    fn what_a_file_says_is_no_markup() {
        assert_eq!(
            cell("a|b <img> [x](y) `c`"),
            "a\\|b \\<img> \\[x](y) \\`c\\`"
        );
    }
}
