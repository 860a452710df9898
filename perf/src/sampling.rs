//! Samples of where a process spends its time, by Linux's `perf`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// What is kept of each sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// The function that ran: a line each, `symbol (file)`.
    Function,
    /// The functions that led there too, innermost first; an empty line ends a sample.
    Stack,
}

/// A process that is being sampled.
pub struct Sampling {
    perf: Child,
    data: PathBuf,
}

impl Sampling {
    /// Begins to sample a process, for so long.
    ///
    /// # Errors
    /// `perf` (Debian: linux-perf) cannot be started.
    pub fn start(pid: u32, seconds: Duration, data: &Path, depth: Depth) -> io::Result<Self> {
        let mut perf = Command::new("perf");
        // The clock, and not cycles: many virtual machines do not count those.
        perf.args(["record", "--event", "cpu-clock", "--freq", "4999"]);
        if depth == Depth::Stack {
            perf.arg("-g");
        }
        perf.arg("--pid")
            .arg(pid.to_string())
            .arg("--output")
            .arg(data)
            .args(["--", "sleep", &seconds.as_secs_f64().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok(Self {
            perf: perf.spawn()?,
            data: data.to_owned(),
        })
    }

    /// Whether the time is not over yet.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn goes_on(&mut self) -> io::Result<bool> {
        Ok(self.perf.try_wait()?.is_none())
    }

    /// Waits until the time is over, and returns the samples.
    ///
    /// # Errors
    /// The kernel does not let `perf` look, or the process had ended.
    pub fn finish(self) -> io::Result<String> {
        succeeded("record", &self.perf.wait_with_output()?)?;
        let script = Command::new("perf")
            .args(["script", "--fields", "ip,sym,dso", "--input"])
            .arg(self.data)
            .output()?;
        succeeded("script", &script)?;
        Ok(String::from_utf8_lossy(&script.stdout)
            .lines()
            // The address comes first.
            .map(|line| line.trim().split_once(' ').map_or("", |(_, rest)| rest))
            .flat_map(|line| [line, "\n"])
            .collect())
    }
}

fn succeeded(what: &str, output: &Output) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().next_back().unwrap_or_default();
    Err(io::Error::other(format!("perf {what}: {last}")))
}

/// The symbol and the file of a line: `symbol (file)`.
#[must_use]
pub fn symbol_and_file(line: &str) -> Option<(&str, &str)> {
    let (symbol, file) = line.trim().rsplit_once(" (")?;
    Some((symbol.trim(), file.strip_suffix(')')?))
}
