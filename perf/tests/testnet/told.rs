//! A program that is told what to do by lines, and answers each with one of JSON.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

/// `perf` with one of its commands, until it is dropped.
pub(crate) struct Told {
    child: Child,
    input: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Told {
    /// Starts it; what it says first is the answer.
    pub(crate) fn start(arguments: &[&str]) -> (Self, Value) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_perf"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("perf starts");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut told = Self {
            input: child.stdin.take(),
            child,
            answers,
        };
        let first = told.hear();
        (told, first)
    }

    /// The next line that it says.
    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Says a line, and returns the answer.
    pub(crate) fn tell(&mut self, line: &str) -> Value {
        let input = self.input.as_mut().expect("open");
        writeln!(input, "{line}").expect("it reads");
        self.hear()
    }

    /// Ends its input; it has to end without an error.
    pub(crate) fn end(mut self) {
        self.input = None;
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // One that was ended is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
