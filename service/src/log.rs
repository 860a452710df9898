//! Where log lines go: to standard error, and to nobody while that takes none.
//!
//! A line is written by the thread that has something to say. When the reader of the log stands still, the pipe to it is full after
//! 64 KiB, and a write would wait for as long as that lasts: no request would be answered any more, and no signal. So a line is
//! written only when there is room for it, after a moment's patience with a reader that is busy. What finds none is lost, and counted:
//! the number is told in a line of its own as soon as lines are taken again.

#![allow(unsafe_code)] // `poll` has no safe wrapper among the crates used here.

use std::io::{self, Stderr, Write};
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::limits::{LOG_PATIENCE, LOG_PIECE};
use crate::settings::LogFormat;

/// A way to something like a pipe, on which no line waits for its reader.
#[derive(Debug)]
pub(crate) struct Lines<T> {
    /// Locked by whoever writes: the room that was seen is the writer's.
    to: Mutex<Way<T>>,
}

#[derive(Debug)]
struct Way<T> {
    to: T,
    /// What says that so many lines were lost.
    note: fn(u64) -> String,
    /// Lines that found no room since the last one that did.
    lost: u64,
    /// Whether the last line was cut off.
    cut: bool,
}

impl Lines<Stderr> {
    /// To standard error, in this form.
    pub(crate) fn to_stderr(format: LogFormat) -> Self {
        let note = match format {
            LogFormat::Text => text_note,
            LogFormat::Json => json_note,
        };
        Self::new(io::stderr(), note)
    }
}

impl<T: Write + AsFd> Lines<T> {
    fn new(to: T, note: fn(u64) -> String) -> Self {
        let way = Way {
            to,
            note,
            lost: 0,
            cut: false,
        };
        Self {
            to: Mutex::new(way),
        }
    }

    fn line(&self, line: &[u8]) {
        let mut way = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        way.line(line);
    }
}

impl<T: Write + AsFd> Way<T> {
    /// Writes a line, and what has to be said before it; or counts it.
    fn line(&mut self, line: &[u8]) {
        // Who has lost lines knows that the reader stands still, and waits no more for it.
        let patience = if self.lost > 0 {
            Duration::ZERO
        } else {
            LOG_PATIENCE
        };
        if !self.has_room(patience) {
            self.lost += 1;
            return;
        }
        let mut note = Vec::new();
        if self.cut {
            note.push(b'\n');
        }
        if self.lost > 0 {
            note.extend((self.note)(self.lost).bytes());
        }
        let written =
            (note.is_empty() || self.to.write_all(&note).is_ok()).then(|| self.pieces(line));
        match written {
            Some(whole) => {
                self.lost = u64::from(!whole);
                self.cut = !whole;
            }
            // A disk is full, or the reader has gone.
            None => self.lost += 1,
        }
    }

    /// Writes a line in pieces for each of which there is room. Returns whether it is whole.
    fn pieces(&mut self, line: &[u8]) -> bool {
        line.chunks(LOG_PIECE)
            .all(|piece| self.has_room(LOG_PATIENCE) && self.to.write_all(piece).is_ok())
    }

    /// Whether a piece can be written without waiting, now or within this time.
    fn has_room(&self, time: Duration) -> bool {
        let mut entry = libc::pollfd {
            fd: self.to.as_fd().as_raw_fd(),
            events: libc::POLLOUT,
            revents: 0,
        };
        // SAFETY: the kernel reads and writes one entry, during the call.
        let ready = unsafe { libc::poll(&raw mut entry, 1, time.as_millis() as libc::c_int) };
        // What cannot be asked, or has an error to tell, is tried: it does not wait.
        ready != 0
    }
}

fn text_note(lines: u64) -> String {
    format!("WARN {LOST} lines={lines}\n")
}

fn json_note(lines: u64) -> String {
    format!("{{\"level\":\"WARN\",\"fields\":{{\"message\":\"{LOST}\",\"lines\":{lines}}}}}\n")
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

impl<'a, T: Write + AsFd + 'a> MakeWriter<'a> for Lines<T> {
    type Writer = Line<'a, T>;

    fn make_writer(&'a self) -> Line<'a, T> {
        Line(self)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read as _, pipe};
    use std::time::Instant;

    use super::*;

    fn lines() -> (PipeReader, Lines<PipeWriter>) {
        let (reader, writer) = pipe().expect("a pipe");
        (reader, Lines::new(writer, text_note))
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
            lines
                .make_writer()
                .write_all(line.as_bytes())
                .expect("taken");
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
        let note = text_note(10_000 - whole as u64);
        let expected = format!("{}{note}there again\nand more\n", line.repeat(whole));
        assert!(text == expected, "{whole}: {}", &text[text.len() - 300..]);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error() {
        let (reader, lines) = lines();
        drop(reader);
        for _ in 0..10 {
            lines
                .make_writer()
                .write_all(b"nobody hears\n")
                .expect("taken");
        }
    }
}
