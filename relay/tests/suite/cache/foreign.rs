//! Somebody else in the place of Redis: what it says costs a bounded amount of memory and log, and no call.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::testbed::process::RelayProcess;
use crate::testbed::{PATIENCE, Testbed, rtp, until};

use super::answers;

/// Answers as Redis does, but for questions, which it answers with a text, and then a mebibyte again and again if there is to be more.
struct Stranger {
    /// Bytes that somebody took of these mebibytes.
    taken: Arc<AtomicU64>,
}

/// Of mebibytes, how many are sent to whoever takes them.
const MORE: usize = 512;

impl Stranger {
    /// It stays until the test's process ends.
    fn start(testbed: &Testbed, answer: &str, more: bool) -> Self {
        let listener = TcpListener::bind(testbed.redis()).expect("free");
        let taken = Arc::new(AtomicU64::new(0));
        let (count, answer) = (Arc::clone(&taken), answer.to_owned());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // Whoever hangs up has heard enough.
                let _ = serve(&stream, &answer, more, &count);
            }
        });
        Self { taken }
    }
}

fn serve(
    mut stream: &TcpStream,
    answer: &str,
    more: bool,
    taken: &AtomicU64,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut number = |kind: char| -> std::io::Result<usize> {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let number = line.trim_end().strip_prefix(kind).map(str::parse);
        let Some(Ok(number)) = number else {
            return Err(std::io::Error::other("no command"));
        };
        if kind == '$' {
            let mut word = vec![0; number + 2];
            reader.read_exact(&mut word)?;
            return Ok(usize::from(word.starts_with(b"GETRANGE")));
        }
        Ok(number)
    };
    loop {
        let words = number('*')?;
        let mut is_question = false;
        for _ in 0..words {
            is_question |= number('$')? == 1;
        }
        let reply = if is_question { answer } else { "+OK\r\n" };
        stream.write_all(reply.as_bytes())?;
        if is_question && more {
            let mebibyte = vec![b'x'; 1 << 20];
            for _ in 0..MORE {
                stream.write_all(&mebibyte)?;
                taken.fetch_add(1 << 20, Ordering::Relaxed);
            }
        }
    }
}

/// A relay with such a flow cache.
fn start(testbed: &Testbed) -> RelayProcess {
    let url = format!("redis://{}", testbed.redis());
    testbed.relay(&[("--redis", url)])
}

/// Has packets of an unknown client make a relay ask, until its log has a line with all of this. On a machine without time for the
/// stranger there may be other outages before.
fn ask_until(testbed: &Testbed, relay: &RelayProcess, parts: [&str; 2]) -> String {
    let client = testbed.client(0);
    until(parts[1], || {
        client.send(testbed.public(0), &rtp(1));
        let log = relay.log();
        let mut lines = log.lines();
        let line = lines.find(|line| parts.iter().all(|part| line.contains(part)))?;
        Some(line.to_owned())
    })
}

#[test]
fn a_reply_without_end_is_not_read_to_its_end() {
    for begin in ["$536870912\r\n", "-ERR ", "+", "*1000000\r\n$"] {
        let testbed = Testbed::new();
        let stranger = Stranger::start(&testbed, begin, true);
        let relay = start(&testbed);
        ask_until(&testbed, &relay, ["out of reach", "it replies "]);
        // What the sockets hold on both ends, and not what there is.
        let taken = stranger.taken.load(Ordering::Relaxed);
        assert!(taken < (MORE << 20) as u64 / 4, "{begin:?}: {taken} bytes");
        relay.stop_warned();
    }
}

#[test]
fn words_of_others_are_cut_and_stay_on_their_line() {
    let testbed = Testbed::new();
    let forged = "-EVIL a\n2026-01-01T00:00:00Z ERROR relay: forged\u{1b}[31m";
    Stranger::start(&testbed, &format!("{forged}{}\r\n", "x".repeat(800)), false);
    let relay = start(&testbed);
    let parts = ["refuses what is asked of it", "EVIL"];
    let line = ask_until(&testbed, &relay, parts);
    for part in [r"a\n2026-01-01T", r"forged\u{1b}[31mx"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(line.len() < 600, "{line}");
    until("the answer is refused", || {
        (answers(&relay, "refused") >= 1).then_some(())
    });
    relay.stop_warned();
}
