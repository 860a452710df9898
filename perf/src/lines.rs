//! Programs that are told what to do by lines on their standard input, and answer each with one line of JSON.

use std::io::{self, BufRead, Write};

use serde_json::{Value, json};

/// The longest line, in bytes.
const LINE_MAX: u64 = 1_024;

/// Writes one line of JSON.
///
/// # Errors
/// Nobody reads any more.
pub fn say(out: &mut impl Write, value: &Value) -> io::Result<()> {
    writeln!(out, "{value}")?;
    out.flush()
}

/// Obeys line by line, to the end of the input. What cannot be done is answered with an object that has an `error`, in words; an empty line is not
/// answered.
///
/// # Errors
/// The input cannot be read, or nobody reads the answers.
pub fn obey(
    input: impl BufRead,
    out: &mut impl Write,
    mut order: impl FnMut(&str) -> Result<Value, String>,
) -> io::Result<()> {
    // One more than a line may have tells a longer one.
    let mut input = input.take(0);
    loop {
        let mut line = Vec::new();
        input.set_limit(LINE_MAX + 1);
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() as u64 > LINE_MAX {
            let error = format!("a line has at most {LINE_MAX} bytes");
            say(out, &json!({ "error": error }))?;
            // The rest of it belongs to it.
            while line.last() != Some(&b'\n') {
                line.clear();
                input.set_limit(LINE_MAX);
                if input.read_until(b'\n', &mut line)? == 0 {
                    return Ok(());
                }
            }
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        let answer = order(text).unwrap_or_else(|error| json!({ "error": error }));
        say(out, &answer)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_answered_with_one_of_json() {
        let long = "x".repeat(5_000);
        let input = format!("mark\n\n  measure \n{long}\nwhat\nmark");
        let mut out = Vec::new();
        obey(input.as_bytes(), &mut out, |line| match line {
            "mark" => Ok(json!({ "marked": true })),
            "measure" => Ok(json!({ "calls": 3 })),
            other => Err(format!("there is no {other}\nhere")),
        })
        .expect("obeyed");
        let out = String::from_utf8(out).expect("text");
        let answers: Vec<Value> = out
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let expected = [
            json!({ "marked": true }),
            json!({ "calls": 3 }),
            json!({ "error": "a line has at most 1024 bytes" }),
            json!({ "error": "there is no what\nhere" }),
            json!({ "marked": true }),
        ];
        assert_eq!(answers, expected);
    }
}
