//! A model server that costs little: it takes what the transceiver sends without reading it, and speaks without a pause.
//!
//! It has the outside of OpenAI's Realtime protocol over a WebSocket (RFC 6455), in G.711 µ-law or in PCM: `session.created`, one response that never
//! ends, a second of audio every second, and an answer to each ping. So the transceiver does all its work, and the load generator's
//! processor is left to the clients. One with a [`Judge`] reads what it is sent, as soon as it comes. One that [echoes](super::echoing) gives some
//! or all callers their own audio back in place of its speech.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::echoing::{Echo, delta};
use super::frames::{Frames, frame};
use super::judge::{Judge, Listener};
use super::recording::{Codec, Recording, RecordingError};
use crate::clock::wall_nanos;

/// RFC 6455, section 1.3.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The largest head of a handshake.
const HEAD_MAX: usize = 8_192;

/// How often a connection is looked at: ten messages of the client's are taken at once.
const LOOK: Duration = Duration::from_millis(200);

/// How much is spoken ahead, and how often: a second each second, and two more in hand at the start.
const SPOKEN: Duration = Duration::from_secs(1);

/// Speech in hand at the start.
const IN_HAND: usize = 2;

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

    /// So much silence.
    pub(super) fn silence(self, length: Duration) -> Vec<u8> {
        let (bytes_per_ms, nothing) = match self {
            Self::Pcmu => (8, 0xff),
            Self::Pcm => (48, 0),
        };
        vec![nothing; bytes_per_ms * length.as_millis() as usize]
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
        Self::open(address, format, None, None)
    }

    /// The same, and gives one caller in so many its own audio back.
    ///
    /// # Errors
    /// As [`ModelServer::start`].
    pub fn echoing(address: SocketAddr, format: Format, one_in: NonZeroU32) -> io::Result<Self> {
        Self::open(address, format, None, Some(one_in))
    }

    /// The same, and has what it hears judged.
    ///
    /// # Errors
    /// As [`ModelServer::start`].
    pub fn judged(
        address: SocketAddr,
        format: Format,
        judge: Arc<Mutex<Judge>>,
    ) -> io::Result<Self> {
        Self::open(address, format, Some(judge), None)
    }

    fn open(
        address: SocketAddr,
        format: Format,
        judge: Option<Arc<Mutex<Judge>>>,
        echoes: Option<NonZeroU32>,
    ) -> io::Result<Self> {
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
                        () = accept(listener, words, judge, echoes) => {}
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

async fn accept(
    listener: std::net::TcpListener,
    words: Arc<Words>,
    judge: Option<Arc<Mutex<Judge>>>,
    echoes: Option<NonZeroU32>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let mut callers = 0u32;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (words, judge) = (Arc::clone(&words), judge.clone());
                let echo = echoes
                    .is_some_and(|one_in| callers.is_multiple_of(one_in.get()))
                    .then(|| Echo::new(words.format));
                callers = callers.wrapping_add(1);
                // A caller that goes ends its conversation.
                tokio::spawn(async move { converse(stream, &words, judge.as_deref(), echo).await });
            }
            // Out of descriptors: some will come free.
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// What it says, as whole WebSocket frames: made once for all.
struct Words {
    format: Format,
    hello: Vec<u8>,
    /// Said after it, by one that speaks.
    ahead: Vec<u8>,
    second: Vec<u8>,
}

impl Words {
    fn new(format: Format) -> Result<Self, RecordingError> {
        let json = format.json();
        let session = format!(
            r#"{{"type":"session.created","event_id":"e1","session":{{"type":"realtime","id":"sess_perf","audio":{{"input":{{"format":{json},"turn_detection":null}},"output":{{"format":{json}}}}}}}}}"#
        );
        let response = r#"{"type":"response.created","event_id":"e2","response":{"id":"resp_1","status":"in_progress"}}"#;
        let second = delta(&STANDARD.encode(format.second()?));
        let mut hello = frame(1, session.as_bytes());
        hello.extend(frame(1, response.as_bytes()));
        Ok(Self {
            format,
            hello,
            ahead: second.repeat(IN_HAND),
            second,
        })
    }
}

async fn converse(
    mut stream: TcpStream,
    words: &Words,
    judge: Option<&Mutex<Judge>>,
    echo: Option<Echo>,
) {
    let mut ears = judge.map(|judge| {
        locked(judge).connected();
        Ears {
            judge,
            listener: Listener::default(),
        }
    });
    // What breaks is a conversation that has ended.
    let _ = try_converse(&mut stream, words, ears.as_mut(), echo).await;
}

fn locked(judge: &Mutex<Judge>) -> std::sync::MutexGuard<'_, Judge> {
    judge.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection's share in a judge.
struct Ears<'a> {
    judge: &'a Mutex<Judge>,
    listener: Listener,
}

impl Drop for Ears<'_> {
    fn drop(&mut self) {
        locked(self.judge).ended(&self.listener);
    }
}

impl Ears<'_> {
    fn hear(&mut self, message: Option<&[u8]>, at: u64) {
        let mut judge = locked(self.judge);
        match message {
            Some(message) => judge.message(&mut self.listener, message, at),
            None => judge.unread(),
        }
    }
}

async fn try_converse(
    stream: &mut TcpStream,
    words: &Words,
    mut ears: Option<&mut Ears<'_>>,
    mut echo: Option<Echo>,
) -> io::Result<()> {
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
    let speaks = echo.is_none();
    if speaks {
        stream.write_all(&words.ahead).await?;
    }
    let mut next = tokio::time::Instant::now() + SPOKEN;
    let mut frames = Frames::new(ears.is_some() || echo.is_some());
    let mut buffer = vec![0; 16_384];
    let mut said = Vec::new();
    loop {
        let look = async {
            if frames.keeps {
                return stream.readable().await;
            }
            tokio::time::sleep(LOOK).await;
            Ok(())
        };
        tokio::select! {
            looked = look => looked?,
            () = tokio::time::sleep_until(next), if speaks => {}
        }
        let at = wall_nanos();
        // All that is there, in the buffer's lengths; the connection's own window bounds it.
        loop {
            match stream.try_read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    let mut hear = |message: Option<&[u8]>| {
                        if let Some(ears) = &mut ears {
                            ears.hear(message, at);
                        }
                        if let (Some(echo), Some(message)) = (&mut echo, message) {
                            echo.reply(message, &mut said);
                        }
                    };
                    let reply = frames.take(&buffer[..count], &mut hear);
                    if !said.is_empty() {
                        stream.write_all(&said).await?;
                        said.clear();
                    }
                    if let Some(reply) = reply {
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
        if speaks && now >= next {
            next += SPOKEN;
            stream.write_all(&words.second).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_json() {
        for format in [Format::Pcmu, Format::Pcm] {
            let words = Words::new(format).expect("words");
            let whole = [&words.hello[..], &words.ahead].concat();
            let mut rest = &whole[..];
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
            assert_eq!(kinds[2..], ["response.output_audio.delta"; IN_HAND]);
        }
    }
}
