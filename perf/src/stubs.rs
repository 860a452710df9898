//! Transceivers that answer at once: signaling is measured against these, so that what is measured is signaling.
//!
//! They speak the control protocol of [`firsthop_shared::control`] as far as making calls goes, on one thread.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use firsthop_shared::control::{CreateResponse, SESSIONS_PATH, STATUS_PATH, ShardStatus, Status};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::http::Messages;
use crate::place;

/// As long as a real answer with four candidates.
const ANSWER_BYTES: usize = 1_400;

/// Workers that each of them says it has.
const SHARDS: usize = 2;

/// Stub transceivers; they end when this is dropped.
pub struct Stubs {
    /// Where their control ports are.
    pub control: Vec<SocketAddrV4>,
    created: Arc<AtomicU64>,
    _stop: oneshot::Sender<()>,
}

impl Stubs {
    /// Starts so many, on a thread of theirs, which may run where the calling thread may.
    ///
    /// # Errors
    /// No sockets, or no thread.
    pub fn start(count: u16) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listeners = (0..count)
            .map(|n| runtime.block_on(TcpListener::bind((place::owner(n), 0))))
            .collect::<io::Result<Vec<_>>>()?;
        let control = listeners
            .iter()
            .map(|listener| match listener.local_addr()? {
                SocketAddr::V4(address) => Ok(address),
                SocketAddr::V6(_) => Err(io::Error::other("bound to IPv4")),
            })
            .collect::<io::Result<Vec<_>>>()?;
        let created = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = oneshot::channel::<()>();
        let counted = Arc::clone(&created);
        std::thread::Builder::new()
            .name("stubs".into())
            .spawn(move || {
                runtime.block_on(async {
                    for listener in listeners {
                        tokio::spawn(serve(listener, Arc::clone(&counted)));
                    }
                    // Dropped, not sent.
                    let _ = stopped.await;
                });
            })?;
        Ok(Self {
            control,
            created,
            _stop: stop,
        })
    }

    /// How many sessions they have been asked for.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.created.load(Relaxed)
    }
}

async fn serve(listener: TcpListener, created: Arc<AtomicU64>) {
    let Ok(SocketAddr::V4(control)) = listener.local_addr() else {
        return;
    };
    let status: Arc<[u8]> = response("200 OK", &status(*control.ip())).into();
    let answer: Arc<[u8]> = response("201 Created", &CreateResponse { answer: answer() }).into();
    while let Ok((stream, _)) = listener.accept().await {
        let (status, answer) = (Arc::clone(&status), Arc::clone(&answer));
        // A connection that breaks is signaling's to notice.
        tokio::spawn(converse(stream, status, answer, Arc::clone(&created)));
    }
}

async fn converse(
    stream: TcpStream,
    status: Arc<[u8]>,
    answer: Arc<[u8]>,
    created: Arc<AtomicU64>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut requests = Messages::of(stream);
    while let Some(head) = requests.next().await? {
        let is = |method: &str, path: &str| {
            let mut words = head.split(' ');
            (words.next(), words.next()) == (Some(method), Some(path))
        };
        let said: &[u8] = if is("GET", STATUS_PATH) {
            &status
        } else if is("POST", SESSIONS_PATH) {
            created.fetch_add(1, Relaxed);
            &answer
        } else {
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
        };
        requests.stream().write_all(said).await?;
    }
    Ok(())
}

/// The status of a transceiver that is never full.
fn status(address: Ipv4Addr) -> Status {
    let shard = ShardStatus {
        sessions: 0,
        capacity: u32::MAX,
    };
    Status {
        boot: 1,
        owner: SocketAddr::from((address, 5_000)),
        draining: false,
        shards: vec![shard; SHARDS],
        version: "stub".to_owned(),
    }
}

fn answer() -> String {
    let mut text = String::from("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n");
    while text.len() < ANSWER_BYTES {
        text += "a=candidate:1 1 udp 2130706431 203.0.113.10 3478 typ host\r\n";
    }
    text
}

fn response(status: &str, body: &impl serde::Serialize) -> Vec<u8> {
    // These are numbers and text: they become JSON without fail.
    let body = serde_json::to_string(body).unwrap_or_default();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
