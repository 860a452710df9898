//! A model server that costs little: it takes what the transceiver sends without reading it, and speaks without a pause.
//!
//! It has the outside of OpenAI's Realtime protocol over a WebSocket (RFC 6455), in G.711 µ-law or in PCM: `session.created`, one response that never
//! ends, a second of audio every second, and an answer to each ping. So the transceiver does all its work, and the load generator's
//! processor is left to the clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::recording::{Codec, Recording, RecordingError};

/// RFC 6455, section 1.3.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The largest head of a handshake.
const HEAD_MAX: usize = 8_192;

/// How often a connection is looked at: ten messages of the client's are taken at once.
const LOOK: Duration = Duration::from_millis(200);

/// How much is spoken ahead, and how often: a second each second, and two more in hand at the start.
const SPOKEN: Duration = Duration::from_secs(1);

/// Speech in hand at the start.
const IN_HAND: u32 = 2;

/// In which form a server takes and gives audio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// G.711 µ-law.
    Pcmu,
    /// 24 kHz, 16 bits.
    Pcm,
}

impl Format {
    /// What the transceiver's settings call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pcmu => "pcmu",
            Self::Pcm => "pcm",
        }
    }

    /// How a session describes it.
    fn json(self) -> &'static str {
        match self {
            Self::Pcmu => r#"{"type":"audio/pcmu"}"#,
            Self::Pcm => r#"{"type":"audio/pcm","rate":24000}"#,
        }
    }

    /// A second of speech.
    fn second(self) -> Result<Vec<u8>, RecordingError> {
        Ok(match self {
            Self::Pcm => Recording::second_of_pcm(),
            Self::Pcmu => {
                let recording = Recording::new(Codec::Pcmu)?;
                (0..50).flat_map(|n| recording.frame(n).to_vec()).collect()
            }
        })
    }
}

/// A server on a thread of its own, until it is dropped.
pub struct ModelServer {
    url: String,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ModelServer {
    /// Listens at `address`, and speaks in a format.
    ///
    /// # Errors
    /// The address is taken, or the system gives no thread.
    pub fn start(address: SocketAddr, format: Format) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let url = format!("ws://{}/v1/realtime", listener.local_addr()?);
        let words = Arc::new(Words::new(format).map_err(io::Error::other)?);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new()
            .name("model".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        () = accept(listener, words) => {}
                    }
                });
            })?;
        Ok(Self {
            url,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: std::net::TcpListener, words: Arc<Words>) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let words = Arc::clone(&words);
                // A caller that goes ends its conversation.
                tokio::spawn(async move { converse(stream, &words).await });
            }
            // Out of descriptors: some will come free.
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// What it says, as whole WebSocket frames: made once for all.
struct Words {
    hello: Vec<u8>,
    second: Vec<u8>,
}

impl Words {
    fn new(format: Format) -> Result<Self, RecordingError> {
        let json = format.json();
        let session = format!(
            r#"{{"type":"session.created","event_id":"e1","session":{{"type":"realtime","id":"sess_perf","audio":{{"input":{{"format":{json},"turn_detection":null}},"output":{{"format":{json}}}}}}}}}"#
        );
        let response = r#"{"type":"response.created","event_id":"e2","response":{"id":"resp_1","status":"in_progress"}}"#;
        let delta = format!(
            r#"{{"type":"response.output_audio.delta","event_id":"e3","response_id":"resp_1","item_id":"item_1","output_index":0,"content_index":0,"delta":"{}"}}"#,
            STANDARD.encode(format.second()?)
        );
        let second = frame(1, delta.as_bytes());
        let mut hello = frame(1, session.as_bytes());
        hello.extend(frame(1, response.as_bytes()));
        for _ in 0..IN_HAND {
            hello.extend_from_slice(&second);
        }
        Ok(Self { hello, second })
    }
}

/// A frame of a server's: not masked, and whole.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => frame.push(length as u8),
        length @ 126..0x1_0000 => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

async fn converse(mut stream: TcpStream, words: &Words) {
    // What breaks is a conversation that has ended.
    let _ = try_converse(&mut stream, words).await;
}

async fn try_converse(stream: &mut TcpStream, words: &Words) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > HEAD_MAX || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head);
    let Some(key) = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key")
            .then(|| value.trim())
    }) else {
        return Ok(());
    };
    let accept = STANDARD.encode(Sha1::digest(format!("{key}{MAGIC}")));
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.write_all(&words.hello).await?;
    let mut next = tokio::time::Instant::now() + SPOKEN;
    let mut frames = Frames::default();
    let mut buffer = vec![0; 16_384];
    loop {
        tokio::time::sleep(LOOK).await;
        // All that is there, in the buffer's lengths; the connection's own window bounds it.
        loop {
            match stream.try_read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    if let Some(reply) = frames.take(&buffer[..count]) {
                        let closes = reply.closes;
                        stream.write_all(&reply.bytes).await?;
                        if closes {
                            return Ok(());
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let now = tokio::time::Instant::now();
        if now >= next {
            next += SPOKEN;
            stream.write_all(&words.second).await?;
        }
    }
}

/// What a client's frames call for.
struct Reply {
    bytes: Vec<u8>,
    closes: bool,
}

/// Finds the frames in a client's stream, and passes over their payloads but for those of control frames.
#[derive(Default)]
struct Frames {
    /// The head of a frame, as far as it has come: two bytes, length and mask; then a control frame's payload.
    head: Vec<u8>,
    /// Bytes of a payload that are still to be passed over.
    pass: u64,
}

impl Frames {
    /// Takes bytes; returns what is to be answered, if anything.
    fn take(&mut self, mut bytes: &[u8]) -> Option<Reply> {
        let mut reply = Reply {
            bytes: Vec::new(),
            closes: false,
        };
        // Each turn takes a byte at least.
        while let Some(&byte) = bytes.first() {
            if self.pass > 0 {
                let passed = self.pass.min(bytes.len() as u64);
                self.pass -= passed;
                bytes = &bytes[passed as usize..];
                continue;
            }
            self.head.push(byte);
            bytes = &bytes[1..];
            self.look(&mut reply);
        }
        (!reply.bytes.is_empty()).then_some(reply)
    }

    /// Looks whether the head is whole, and acts on it.
    fn look(&mut self, reply: &mut Reply) {
        let &[first, second, ..] = &self.head[..] else {
            return;
        };
        let short = usize::from(second & 0x7f);
        let extended = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = 2 + extended;
        let begin = mask + 4 * usize::from(second >> 7);
        if self.head.len() < begin {
            return;
        }
        let opcode = first & 0x0f;
        if opcode < 8 {
            let length = self.head[2..mask]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            self.pass = if extended == 0 { short as u64 } else { length };
            self.head.clear();
        } else if self.head.len() == begin + short {
            let key = &self.head[mask..begin];
            let payload: Vec<u8> = self.head[begin..]
                .iter()
                .zip(key.iter().cycle())
                .map(|(byte, key)| byte ^ key)
                .collect();
            match opcode {
                8 => {
                    reply.closes = true;
                    reply.bytes.extend(frame(8, &payload));
                }
                9 => reply.bytes.extend(frame(10, &payload)),
                _ => {}
            }
            self.head.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's frame: masked.
    fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let key = [1, 2, 3, 4];
        let mut bytes = frame(opcode, payload);
        let body = bytes.split_off(bytes.len() - payload.len());
        bytes[1] |= 0x80;
        bytes.extend(key);
        bytes.extend(
            body.iter()
                .zip(key.iter().cycle())
                .map(|(byte, key)| byte ^ key),
        );
        bytes
    }

    #[test]
    fn what_it_says_is_json() {
        for format in [Format::Pcmu, Format::Pcm] {
            let words = Words::new(format).expect("words");
            let mut rest = &words.hello[..];
            let mut kinds = Vec::new();
            while let [0x81, length, after @ ..] = rest {
                let (length, after) = match (length, after) {
                    (126, [a, b, after @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), after),
                    (127, [_, _, _, _, _, a, b, c, after @ ..]) => {
                        (u32::from_be_bytes([0, *a, *b, *c]) as usize, after)
                    }
                    (length, after) => (usize::from(*length), after),
                };
                let event: serde_json::Value =
                    serde_json::from_slice(&after[..length]).expect("JSON");
                kinds.push(event["type"].as_str().expect("a type").to_owned());
                rest = &after[length..];
            }
            assert!(rest.is_empty());
            assert_eq!(kinds[..2], ["session.created", "response.created"]);
            assert_eq!(
                kinds[2..],
                ["response.output_audio.delta"; IN_HAND as usize]
            );
        }
    }

    #[test]
    fn pings_and_closes_are_answered_wherever_the_stream_is_cut() {
        let mut stream = masked(1, &[7; 300]);
        stream.extend(masked(9, b"are you there"));
        stream.extend(masked(1, &[8; 70_000]));
        stream.extend(masked(2, b""));
        stream.extend(masked(8, &[3, 232]));
        for cut in [1, 7, 1_000, stream.len()] {
            let mut frames = Frames::default();
            let replies: Vec<Reply> = stream
                .chunks(cut)
                .filter_map(|part| frames.take(part))
                .collect();
            let bytes: Vec<u8> = replies
                .iter()
                .flat_map(|reply| reply.bytes.clone())
                .collect();
            let mut expected = frame(10, b"are you there");
            expected.extend(frame(8, &[3, 232]));
            assert_eq!(bytes, expected, "cut every {cut} bytes");
            assert!(replies.last().is_some_and(|reply| reply.closes));
        }
    }
}
