//! Where log lines go: to standard error, and to nobody while that takes none.
//!
//! A line is written by the thread that has something to say. When the reader of the log stands still, the pipe to it is full after
//! 64 KiB, and a write would wait for as long as that lasts: no request would be answered any more, and no signal. So a line is
//! written only when there is room for it, after a moment's patience with a reader that is busy. What finds none is lost, and counted:
//! the number is told in a line of its own as soon as lines are taken again.

#![allow(unsafe_code)] // `poll` has no safe wrapper among the crates used here.

use std::io::{self, Stderr, Write};
use std::os::fd::{AsFd, AsRawFd as _};
use std::panic::{self, PanicHookInfo};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use crate::limits::{LOG_IMPATIENCE, LOG_PATIENCE, LOG_PIECE};
use crate::settings::LogFormat;

/// Standard error, for all that the process says there.
static STDERR: LazyLock<Lines<Stderr>> =
    LazyLock::new(|| Lines::new(io::stderr(), LogFormat::Text));

/// Has what is said on standard error be in this form, and panics be told there as everything else: without waiting for long.
pub(crate) fn start(format: LogFormat) {
    STDERR.way().format = format;
    panic::set_hook(Box::new(tell_panic));
}

/// The way of log lines to standard error, one line per write.
pub(crate) fn to_stderr() -> Line<'static, Stderr> {
    Line(&STDERR)
}

/// Says a line on standard error that is the last for a while: there is a moment's time for it, whatever was lost before.
pub(crate) fn say(line: &str) {
    let mut way = STDERR.way();
    let line = match way.format {
        LogFormat::Text => format!("{line}\n"),
        LogFormat::Json => json_line("ERROR", line, None),
    };
    way.line(line.as_bytes(), LOG_PATIENCE);
}

/// Says what Rust's own hook would say, which waits for the reader: a thread that stood still there would never be missed.
fn tell_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    // Nothing, unless the environment asks for it.
    let backtrace = std::backtrace::Backtrace::capture();
    say(&match backtrace.status() {
        std::backtrace::BacktraceStatus::Captured => {
            format!("thread '{name}' {panic}\n{backtrace}")
        }
        _ => format!("thread '{name}' {panic}"),
    });
}

/// A way to something like a pipe, on which no line waits for its reader.
#[derive(Debug)]
struct Lines<T> {
    /// Locked by whoever writes: the room that was seen is the writer's. Nothing panics under the lock.
    to: Mutex<Way<T>>,
}

#[derive(Debug)]
struct Way<T> {
    to: T,
    /// How what is said here looks.
    format: LogFormat,
    /// Lines that found no room since the last one that did.
    lost: u64,
    /// When the last of them was.
    lost_at: Option<Instant>,
    /// Whether the last line was cut off.
    cut: bool,
}

impl<T: Write + AsFd> Lines<T> {
    fn new(to: T, format: LogFormat) -> Self {
        let way = Way {
            to,
            format,
            lost: 0,
            lost_at: None,
            cut: false,
        };
        Self {
            to: Mutex::new(way),
        }
    }

    fn way(&self) -> MutexGuard<'_, Way<T>> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, line: &[u8]) {
        let mut way = self.way();
        // Who has just lost lines knows that the reader stands still, or is slow, and waits no more for it.
        let lost = way.lost_at.is_some_and(|at| at.elapsed() < LOG_IMPATIENCE);
        let patience = if lost || way.lost > 0 {
            Duration::ZERO
        } else {
            LOG_PATIENCE
        };
        way.line(line, patience);
    }
}

impl<T: Write + AsFd> Way<T> {
    /// Writes a line, and what has to be said before it; or counts it. Each piece waits for so long at the most.
    fn line(&mut self, line: &[u8], patience: Duration) {
        // In one buffer: of a reader that makes room for little at a time, the note alone would take it all, each time.
        let mut text = Vec::new();
        if self.cut {
            text.push(b'\n');
        }
        if self.lost > 0 {
            text.extend(note(self.format, self.lost).bytes());
        }
        text.extend(line);
        let written = self.pieces(&text, patience);
        if written == text.len() {
            self.lost = 0;
            self.cut = false;
            return;
        }
        self.lost_at = Some(Instant::now());
        if written > 0 {
            // What was lost before is told; this line is not whole.
            self.lost = 1;
            self.cut = true;
        } else {
            self.lost += 1;
        }
    }

    /// Writes a text in pieces for each of which there is room. Returns how many bytes were written.
    fn pieces(&mut self, text: &[u8], patience: Duration) -> usize {
        let mut written = 0;
        for piece in text.chunks(LOG_PIECE) {
            if !self.has_room(patience) {
                break;
            }
            let end = written + piece.len();
            while written < end {
                match self.to.write(&text[written..end]) {
                    // A disk is full, or the reader has gone.
                    Ok(0) => return written,
                    Ok(count) => written += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return written,
                }
            }
        }
        written
    }

    /// Whether a piece can be written without waiting, now or within this time.
    fn has_room(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut left = time;
        loop {
            let mut entry = libc::pollfd {
                fd: self.to.as_fd().as_raw_fd(),
                events: libc::POLLOUT,
                revents: 0,
            };
            // SAFETY: the kernel reads and writes one entry, during the call.
            let ready = unsafe { libc::poll(&raw mut entry, 1, left.as_millis() as libc::c_int) };
            if ready >= 0 {
                // What has an error to tell is tried: it does not wait.
                return ready > 0;
            }
            // A signal's handler ran on this thread, which is no room yet.
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return false;
            }
            left = end.saturating_duration_since(Instant::now());
        }
    }
}

/// What says that so many lines were lost.
fn note(format: LogFormat, lines: u64) -> String {
    match format {
        LogFormat::Text => format!("WARN {LOST} lines={lines}\n"),
        LogFormat::Json => json_line("WARN", LOST, Some(lines)),
    }
}

/// A line in the form of those that `tracing-subscriber` writes, for whoever reads them one by one.
fn json_line(level: &str, message: &str, lines: Option<u64>) -> String {
    let mut timestamp = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let mut fields = json!({ "message": message });
    if let Some(lines) = lines {
        fields["lines"] = lines.into();
    }
    let target = module_path!();
    let line =
        json!({ "timestamp": timestamp, "level": level, "fields": fields, "target": target });
    format!("{line}\n")
}

const LOST: &str = "lines of this log were lost: nobody took them";

/// One line on its way.
#[derive(Debug)]
pub(crate) struct Line<'a, T: Write + AsFd>(&'a Lines<T>);

impl<T: Write + AsFd> Write for Line<'_, T> {
    /// Takes a whole line, whatever becomes of it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read as _, pipe};
    use std::os::unix::thread::JoinHandleExt as _;
    use std::process::{Command, Stdio, exit};
    use std::thread;

    use clap::Parser;

    use super::*;
    use crate::settings::{self, Log};

    /// What no event ends by itself is given up after this.
    const LONG: Duration = Duration::from_secs(60);

    fn lines() -> (PipeReader, Lines<PipeWriter>) {
        let (reader, writer) = pipe().expect("a pipe");
        (reader, Lines::new(writer, LogFormat::Text))
    }

    /// Ends the log, and reads what was written.
    fn rest(mut reader: PipeReader, lines: Lines<PipeWriter>) -> String {
        drop(lines);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        text
    }

    #[test]
    fn lines_arrive_as_they_are() {
        let (reader, lines) = lines();
        let long = format!("{}\n", "x".repeat(3 * LOG_PIECE));
        for line in ["one\n", &long, "two\n"] {
            Line(&lines).write_all(line.as_bytes()).expect("taken");
        }
        assert_eq!(rest(reader, lines), format!("one\n{long}two\n"));
    }

    #[test]
    fn a_reader_that_stands_still_holds_nobody_and_hears_later_how_much_it_missed() {
        let (mut reader, lines) = lines();
        let line = format!("{}\n", "x".repeat(999));
        let began = Instant::now();
        for _ in 0..10_000 {
            lines.line(line.as_bytes());
        }
        // It has waited once, not ten thousand times.
        assert!(began.elapsed() < 1_000 * LOG_PATIENCE);
        let mut taken = vec![0; 20_000];
        reader.read_exact(&mut taken).expect("as much is there");
        lines.line(b"there again\n");
        lines.line(b"and more\n");
        let text = String::from_utf8(taken).expect("text") + &rest(reader, lines);
        let whole = text.matches(&line).count();
        let note = note(LogFormat::Text, 10_000 - whole as u64);
        let expected = format!("{}{note}there again\nand more\n", line.repeat(whole));
        assert!(text == expected, "{whole}: {}", &text[text.len() - 300..]);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error() {
        let (reader, lines) = lines();
        drop(reader);
        for _ in 0..10 {
            Line(&lines).write_all(b"nobody hears\n").expect("taken");
        }
    }

    /// Writes until the pipe takes no more.
    fn fill(lines: &Lines<PipeWriter>) {
        while lines.way().lost == 0 {
            let mut line = [b'x'; LOG_PIECE];
            line[LOG_PIECE - 1] = b'\n';
            lines.line(&line);
        }
    }

    /// One that takes a page whenever it has got some: there is never room for more than that.
    #[test]
    fn a_reader_that_makes_little_room_gets_a_line_and_how_much_it_missed_by_each() {
        let (mut reader, lines) = lines();
        fill(&lines);
        let line = format!("{}\n", "y".repeat(999));
        let began = Instant::now();
        let mut read = Vec::new();
        for _ in 0..1_000 {
            let mut page = [0; LOG_PIECE];
            reader.read_exact(&mut page).expect("a page");
            read.extend(page);
            for _ in 0..10 {
                lines.line(line.as_bytes());
            }
        }
        // Nobody has waited for it.
        assert!(began.elapsed() < 400 * LOG_PATIENCE);
        let text = String::from_utf8(read).expect("text") + &rest(reader, lines);
        let told: u64 = text
            .lines()
            .filter_map(|line| {
                line.strip_prefix("WARN ")?
                    .rsplit_once('=')?
                    .1
                    .parse::<u64>()
                    .ok()
            })
            .sum();
        let whole = text.matches(line.as_str()).count() as u64;
        assert!(whole >= 1_000, "{whole} whole lines");
        // What came after the last line that was taken has not been told; the first that was lost is the one that filled the pipe.
        assert!(
            (9_990..=10_001).contains(&(told + whole)),
            "{told} + {whole}"
        );
    }

    extern "C" fn nothing(_: libc::c_int) {}

    #[test]
    fn a_signal_is_no_room() {
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as libc::sighandler_t) };
        let (_reader, lines) = lines();
        fill(&lines);
        let writer = thread::spawn(move || {
            for _ in 0..20 {
                lines.way().line(b"nobody reads\n", LOG_PATIENCE);
            }
            lines.way().lost
        });
        let began = Instant::now();
        while !writer.is_finished() {
            assert!(began.elapsed() < LONG, "it waits for the reader");
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(writer.as_pthread_t(), libc::SIGUSR2) };
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(writer.join().expect("written"), 21);
    }

    fn broken() {
        panic!("on purpose");
    }

    #[derive(Parser)]
    struct Settings {
        #[command(flatten)]
        log: Log,
    }

    /// This program, to run one of these tests with the variable that says so to it.
    fn this(test: &str, variable: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this"));
        command
            .args(["--exact", &format!("log::tests::{test}")])
            .args(["--nocapture", "--test-threads=1"])
            .env(variable, "1");
        command
    }

    /// This test runs itself, as a program whose standard error nobody reads.
    #[test]
    fn last_words_and_panics_wait_for_nobody() {
        const CHILD: &str = "FIRSTHOP_TEST_LAST_WORDS";
        if std::env::var_os(CHILD).is_some() {
            let Settings { log } = Settings::parse_from(["program"]);
            log.start(&[]).expect("a log");
            let core = thread::spawn(broken);
            assert!(core.join().is_err());
            settings::say("program", "why");
            exit(7);
        }
        let (_reader, writer) = pipe().expect("a pipe");
        fill(&Lines::new(
            writer.try_clone().expect("a pipe"),
            LogFormat::Text,
        ));
        let mut child = this("last_words_and_panics_wait_for_nobody", CHILD)
            .stdout(Stdio::null())
            .stderr(writer)
            .spawn()
            .expect("it starts");
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            if began.elapsed() > LONG {
                child.kill().expect("killed");
                panic!("it waits for the reader");
            }
            thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(7));
    }

    /// Whoever reads JSON must be able to read all of it: panics, last words, and what was lost.
    #[test]
    fn every_line_of_a_json_log_is_an_object_with_the_same_fields() {
        const CHILD: &str = "FIRSTHOP_TEST_JSON";
        if std::env::var_os(CHILD).is_some() {
            let Settings { log } = Settings::parse_from(["program", "--log-format", "json"]);
            log.start(&[]).expect("a log");
            tracing::warn!(setting = "fleet", "as usual");
            assert!(thread::spawn(broken).join().is_err());
            STDERR.way().lost = 3;
            settings::say("program", "a \"quoted\" cause");
            exit(7);
        }
        let child = this(
            "every_line_of_a_json_log_is_an_object_with_the_same_fields",
            CHILD,
        )
        .output()
        .expect("it runs");
        assert_eq!(child.status.code(), Some(7));
        let said = String::from_utf8(child.stderr).expect("text");
        let lines: Vec<serde_json::Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line} in {said}")))
            .collect();
        let levels: Vec<_> = lines.iter().map(|line| &line["level"]).collect();
        assert_eq!(levels, ["WARN", "ERROR", "WARN", "ERROR"], "{said}");
        for line in &lines {
            for field in ["timestamp", "target"] {
                assert!(
                    line[field].as_str().is_some_and(|text| text.len() > 5),
                    "{said}"
                );
            }
            assert_eq!(
                line["timestamp"].as_str().map(str::len),
                lines[0]["timestamp"].as_str().map(str::len),
                "{said}"
            );
        }
        let message = |at: usize| lines[at]["fields"]["message"].as_str().expect("text");
        assert!(
            message(1).contains("panicked at") && message(1).contains("\non purpose"),
            "{said}"
        );
        assert_eq!(
            (message(2), &lines[2]["fields"]["lines"]),
            (LOST, &json!(3))
        );
        assert_eq!(message(3), "program: a \"quoted\" cause");
    }

    #[test]
    fn a_panic_is_told_with_its_place_and_thread() {
        const CHILD: &str = "FIRSTHOP_TEST_PANIC";
        if std::env::var_os(CHILD).is_some() {
            let Settings { log } = Settings::parse_from(["program"]);
            log.start(&[]).expect("a log");
            let core = thread::Builder::new().name("core-3".to_owned());
            let core = core.spawn(broken).expect("a thread");
            assert!(core.join().is_err());
            exit(7);
        }
        let child = this("a_panic_is_told_with_its_place_and_thread", CHILD)
            .output()
            .expect("it runs");
        let said = String::from_utf8(child.stderr).expect("text");
        assert_eq!(child.status.code(), Some(7), "{said}");
        assert!(said.contains("thread 'core-3' panicked at "), "{said}");
        assert!(
            said.contains("log.rs:") && said.contains("\non purpose\n"),
            "{said}"
        );
    }
}
