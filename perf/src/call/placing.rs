//! Places calls over HTTP: with signaling, as an app does, or with a transceiver's control API, as signaling does.
//!
//! Requests run on a thread of their own, so that no media waits for them. Whoever asked is woken by a datagram on a socket of its own.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use firsthop_shared::address::{ClusterId, Restart, SessionId, ShardId};
use firsthop_shared::control::{
    ControlError, CreateRequest, CreateResponse, SESSIONS_PATH, STATUS_PATH, Status,
};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::token::{self, Route};
use reqwest::header::{CONTENT_TYPE, LOCATION};
use tokio::sync::{Semaphore, mpsc as tokio_mpsc};

/// Requests under way at once.
const AT_ONCE: usize = 64;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often another session id is tried, when one was taken.
const TRIES: usize = 3;

/// Who places calls.
#[derive(Clone, Debug)]
pub enum Desk {
    /// Signaling.
    Signaling {
        /// Its URL, without a path.
        url: String,
        /// An API key, or a client secret.
        key: String,
    },
    /// A transceiver's control API.
    Control {
        /// Its URL, without a path.
        url: String,
        /// The control secret.
        secret: String,
        /// The fleet's keys, to mint ufrags with.
        keyring: Arc<DataKeyring>,
        /// The transceiver's cluster.
        cluster: ClusterId,
        /// The ingress points to advertise.
        ingresses: Vec<u8>,
    },
}

/// A request that failed, in words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PlacingError(pub String);

/// How a call is called where it was placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallName {
    /// The URL of its resource.
    Url(String),
    /// A session at a transceiver.
    Session {
        /// Its id.
        id: u32,
        /// When it was created.
        created: u64,
    },
}

/// What became of an offer.
#[derive(Debug)]
pub struct Placed {
    /// Whose it was.
    pub client: u32,
    /// The answer, and how to hang up.
    pub result: Result<(String, CallName), PlacingError>,
}

enum Ask {
    Place { client: u32, offer: String },
    HangUp(CallName),
}

/// Asks for calls, and takes the answers.
pub struct Placer {
    asks: Option<tokio_mpsc::UnboundedSender<Ask>>,
    placed: mpsc::Receiver<Placed>,
    woken: UnixDatagram,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Offers without an answer yet.
    waiting: usize,
}

impl Placer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread or no socket.
    pub fn start(desk: Desk) -> io::Result<Self> {
        // Bounded by the calls of the load that asks.
        let (asks, asked) = tokio_mpsc::unbounded_channel();
        let (tell, placed) = mpsc::channel();
        let (wake, woken) = UnixDatagram::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new()
            .name("placer".to_owned())
            .spawn(move || runtime.block_on(serve(desk, asked, tell, wake)))?;
        Ok(Self {
            asks: Some(asks),
            placed,
            woken,
            thread: Some(thread),
            waiting: 0,
        })
    }

    /// Places a call. [`Placer::take`] says what came of it.
    pub fn place(&mut self, client: u32, offer: String) {
        self.waiting += 1;
        self.ask(Ask::Place { client, offer });
    }

    /// Hangs up; whether that succeeded nobody hears.
    pub fn hang_up(&self, call: CallName) {
        self.ask(Ask::HangUp(call));
    }

    fn ask(&self, ask: Ask) {
        if let Some(asks) = &self.asks {
            // The thread ends only when this value does.
            let _ = asks.send(ask);
        }
    }

    /// The next answer, if one has come.
    pub fn take(&mut self) -> Option<Placed> {
        let mut told = [0; 1];
        // It only wakes: how often says nothing.
        let _ = self.woken.recv(&mut told);
        let placed = self.placed.try_recv().ok()?;
        self.waiting -= 1;
        Some(placed)
    }

    /// Offers without an answer yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Readable when there may be an answer.
    #[must_use]
    pub fn socket(&self) -> &UnixDatagram {
        &self.woken
    }
}

impl Drop for Placer {
    fn drop(&mut self) {
        // What was asked is still done: hang-ups above all.
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(
    desk: Desk,
    mut asked: tokio_mpsc::UnboundedReceiver<Ask>,
    tell: mpsc::Sender<Placed>,
    wake: UnixDatagram,
) {
    let clerk = Clerk::new(desk).await.map(Arc::new);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let wake = Arc::new(wake);
    while let Some(ask) = asked.recv().await {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let (clerk, tell, wake) = (clerk.clone(), tell.clone(), Arc::clone(&wake));
        tokio::spawn(async move {
            match ask {
                Ask::Place { client, offer } => {
                    let result = match clerk {
                        Ok(clerk) => clerk.place(client, offer).await,
                        Err(error) => Err(error),
                    };
                    let _ = tell.send(Placed { client, result });
                    // A full socket means that enough was told.
                    let _ = wake.send(&[1]);
                }
                Ask::HangUp(call) => {
                    if let Ok(clerk) = clerk {
                        clerk.hang_up(&call).await;
                    }
                }
            }
            drop(permit);
        });
    }
    let _ = room.acquire_many(AT_ONCE as u32).await;
}

struct Clerk {
    http: reqwest::Client,
    desk: Desk,
    /// The transceiver, when calls are placed there.
    status: Option<Status>,
}

impl Clerk {
    async fn new(desk: Desk) -> Result<Self, PlacingError> {
        let http = reqwest::Client::builder()
            .timeout(PATIENCE)
            // Nobody stands between the generator and what it measures.
            .no_proxy()
            .build()
            .map_err(|error| failed(&error))?;
        let mut clerk = Self {
            http,
            desk,
            status: None,
        };
        if let Desk::Control { url, secret, .. } = &clerk.desk {
            let request = clerk.http.get(format!("{url}{STATUS_PATH}"));
            let answer = request.bearer_auth(secret).send().await;
            let answer = answer.map_err(|error| failed(&error))?;
            if !answer.status().is_success() {
                return Err(PlacingError(format!(
                    "the transceiver's status: {}",
                    answer.status()
                )));
            }
            clerk.status = Some(answer.json().await.map_err(|error| failed(&error))?);
        }
        Ok(clerk)
    }

    async fn place(&self, client: u32, offer: String) -> Result<(String, CallName), PlacingError> {
        match &self.desk {
            Desk::Signaling { url, key } => {
                let post = self.http.post(format!("{url}/v1/realtime/calls"));
                let post = post
                    .bearer_auth(key)
                    .header(CONTENT_TYPE, "application/sdp");
                let answer = post.body(offer).send().await.map_err(|e| failed(&e))?;
                let status = answer.status();
                let location = answer
                    .headers()
                    .get(LOCATION)
                    .and_then(|location| location.to_str().ok())
                    .map(|location| match location.starts_with('/') {
                        true => format!("{url}{location}"),
                        false => location.to_owned(),
                    });
                let text = answer.text().await.map_err(|error| failed(&error))?;
                match location {
                    Some(location) if status.as_u16() == 201 => Ok((text, CallName::Url(location))),
                    _ => Err(PlacingError(format!("{status}: {}", first_words(&text)))),
                }
            }
            Desk::Control { .. } => self.create(client, &offer).await,
        }
    }

    async fn create(&self, client: u32, offer: &str) -> Result<(String, CallName), PlacingError> {
        let mut last = PlacingError("there is no transceiver".to_owned());
        for _ in 0..TRIES {
            let Some((request, url, secret)) = self.request(client, offer) else {
                return Err(last);
            };
            let post = self.http.post(format!("{url}{SESSIONS_PATH}"));
            let sent = post.bearer_auth(secret).json(&request).send().await;
            let answer = sent.map_err(|error| failed(&error))?;
            let status = answer.status();
            let text = answer.text().await.map_err(|error| failed(&error))?;
            if status.as_u16() == 201 {
                let made: CreateResponse =
                    serde_json::from_str(&text).map_err(|error| PlacingError(error.to_string()))?;
                let name = CallName::Session {
                    id: request.session,
                    created: request.created,
                };
                return Ok((made.answer, name));
            }
            let words = match serde_json::from_str::<ControlError>(&text) {
                Ok(error) => error.to_string(),
                Err(_) => first_words(&text),
            };
            last = PlacingError(format!("{status}: {words}"));
            // The id was taken: another is tried.
            if status.as_u16() != 409 {
                break;
            }
        }
        Err(last)
    }

    /// A request for a session under a random id, at one worker after the other.
    fn request(&self, client: u32, offer: &str) -> Option<(CreateRequest, &str, &str)> {
        let (
            Desk::Control {
                url,
                secret,
                keyring,
                cluster,
                ingresses,
            },
            Some(status),
        ) = (&self.desk, &self.status)
        else {
            return None;
        };
        let shards = status.shards.len().max(1);
        let shard = u8::try_from(client as usize % shards).ok()?;
        let session: u32 = rand::random();
        let route = Route {
            cluster: *cluster,
            owner: status.owner.into(),
            shard: ShardId(shard),
            restart: Restart(0),
            session: SessionId(session),
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let request = CreateRequest {
            session,
            shard,
            created: since.as_millis() as u64,
            ufrag: token::mint(keyring.active(), &route).to_string(),
            offer: offer.to_owned(),
            ingresses: ingresses.clone(),
            client: Some("perf".to_owned()),
            ..CreateRequest::default()
        };
        Some((request, url, secret))
    }

    async fn hang_up(&self, call: &CallName) {
        // The call may have ended meanwhile.
        let _ = match (&self.desk, call) {
            (Desk::Signaling { key, .. }, CallName::Url(url)) => {
                let post = self.http.post(format!("{url}/hangup"));
                post.bearer_auth(key).send().await
            }
            (Desk::Control { url, secret, .. }, CallName::Session { id, created }) => {
                let path = format!("{url}{SESSIONS_PATH}/{id}?created={created}");
                self.http.delete(path).bearer_auth(secret).send().await
            }
            _ => return,
        };
    }
}

/// An error of the HTTP library's, with its cause: it says "error sending request" of all of them.
fn failed(error: &reqwest::Error) -> PlacingError {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(because) = cause {
        words = because.to_string();
        cause = because.source();
    }
    PlacingError(words)
}

/// The beginning of a body, in one line.
fn first_words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_desk_that_is_not_there_is_told_to_each_who_asks() {
        // Nobody listens on port 1 of this address.
        let desk = Desk::Signaling {
            url: "http://127.99.0.1:1".to_owned(),
            key: "k".to_owned(),
        };
        let mut placer = Placer::start(desk).expect("a thread");
        placer.place(7, "v=0".to_owned());
        placer.place(8, "v=0".to_owned());
        let mut refused = Vec::new();
        while placer.waiting() > 0 {
            let socket = [placer.socket().as_raw_fd()];
            crate::readable::wait(&socket, Duration::from_secs(20)).expect("waited");
            while let Some(placed) = placer.take() {
                assert!(placed.result.is_err());
                refused.push(placed.client);
            }
        }
        refused.sort_unstable();
        assert_eq!(refused, [7, 8]);
    }

    #[test]
    fn what_a_server_says_is_cut_to_one_line() {
        assert_eq!(first_words("{\n  \"error\": 1\n}"), "{ \"error\": 1 }");
        assert_eq!(first_words(&"x".repeat(1_000)).len(), 200);
    }
}
