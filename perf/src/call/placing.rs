//! Places calls over HTTP: with signaling, as an app does, or with a transceiver's control API, as signaling does.
//!
//! Requests run on a thread of their own, so that no media waits for them. Whoever asked is woken by a datagram on a socket of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::mpsc;

use firsthop_shared::address::ClusterId;
use firsthop_shared::keyring::DataKeyring;
use tokio::sync::{Semaphore, mpsc as tokio_mpsc};

use super::clerk::{self, Clerk};

/// Requests under way at once.
const AT_ONCE: usize = 64;

/// Who places calls.
#[derive(Clone, Debug)]
pub enum Desk {
    /// Signaling.
    Signaling {
        /// Its URL, without a path; or with one, when calls are placed at another than the usual.
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
    /// Janus's echo test.
    Janus {
        /// The URL of its HTTP API, with the path.
        url: String,
    },
}

impl Desk {
    /// The address by which this machine reaches it.
    ///
    /// # Errors
    /// Its URL is none, or its name is not known, in words.
    pub fn reached_from(&self) -> Result<Ipv4Addr, String> {
        let (Self::Signaling { url, .. } | Self::Control { url, .. } | Self::Janus { url }) = self;
        let url = clerk::calls_url(url)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let addresses = url.socket_addrs(|| None);
        let addresses = addresses.map_err(|error| format!("{host}: {error}"))?;
        let there = addresses.into_iter().find(SocketAddr::is_ipv4);
        let there = there.ok_or_else(|| format!("{host} has no IPv4 address"))?;
        // A UDP socket that is connected has sent nothing, and has a route.
        let here = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
            .and_then(|socket| socket.connect(there).and_then(|()| socket.local_addr()));
        match here {
            Ok(SocketAddr::V4(here)) => Ok(*here.ip()),
            Ok(SocketAddr::V6(_)) => Err(format!("{host} is reached by IPv6")),
            Err(error) => Err(format!("{host}: {error}")),
        }
    }
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
    /// A session of Janus's.
    Janus {
        /// Its id.
        session: u64,
    },
}

/// An offer that was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The answer.
    pub sdp: String,
    /// The call.
    pub name: CallName,
    /// Its ICE session's entity tag; a transceiver gives none.
    pub etag: Option<String>,
}

/// What became of an offer.
#[derive(Debug)]
pub struct Placed {
    /// Whose it was.
    pub client: u32,
    /// The answer, and how to hang up.
    pub result: Result<Answered, PlacingError>,
    /// It was one that restarts ICE.
    pub restarted: bool,
}

enum Ask {
    Place {
        client: u32,
        offer: String,
    },
    Restart {
        client: u32,
        call: CallName,
        etag: String,
        offer: String,
    },
    HangUp(CallName),
    /// Answered at once by who can ask.
    Ready(mpsc::Sender<()>),
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

    /// Waits until calls can be placed: the HTTP client is made, which takes some milliseconds. No connection is.
    pub fn wait_until_ready(&self) {
        let (tell, told) = mpsc::channel();
        self.ask(Ask::Ready(tell));
        // Nobody tells when the thread has ended: then nothing can be asked, and whoever asks will hear of it.
        let _ = told.recv();
    }

    /// Places a call. [`Placer::take`] says what came of it.
    pub fn place(&mut self, client: u32, offer: String) {
        self.waiting += 1;
        self.ask(Ask::Place { client, offer });
    }

    /// Restarts the ICE of a call whose entity tag is known. [`Placer::take`] says what came of it.
    pub fn restart(&mut self, client: u32, call: CallName, etag: String, offer: String) {
        self.waiting += 1;
        self.ask(Ask::Restart {
            client,
            call,
            etag,
            offer,
        });
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
            let restarted = matches!(ask, Ask::Restart { .. });
            let told = |client, result| {
                Some(Placed {
                    client,
                    result,
                    restarted,
                })
            };
            let placed = match (ask, clerk) {
                (Ask::Place { client, .. } | Ask::Restart { client, .. }, Err(error)) => {
                    told(client, Err(error))
                }
                (Ask::Place { client, offer }, Ok(clerk)) => {
                    told(client, clerk.place(client, offer).await)
                }
                (
                    Ask::Restart {
                        client,
                        call,
                        etag,
                        offer,
                    },
                    Ok(clerk),
                ) => told(client, clerk.restart(call, etag, offer).await),
                (Ask::HangUp(call), clerk) => {
                    if let Ok(clerk) = clerk {
                        clerk.hang_up(&call).await;
                    }
                    None
                }
                (Ask::Ready(ready), _) => {
                    // Whoever asked may have gone.
                    let _ = ready.send(());
                    None
                }
            };
            if let Some(placed) = placed {
                let _ = tell.send(placed);
                // A full socket means that enough was told.
                let _ = wake.send(&[1]);
            }
            drop(permit);
        });
    }
    let _ = room.acquire_many(AT_ONCE as u32).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;
    use std::time::Duration;

    #[test]
    fn a_desk_on_this_machine_is_reached_from_loopback() {
        let desk = |url: &str| Desk::Signaling {
            url: url.to_owned(),
            key: String::new(),
        };
        let here = desk("http://127.0.0.1:8080").reached_from();
        assert_eq!(here, Ok(Ipv4Addr::LOCALHOST));
        let refused = desk("nowhere").reached_from().expect_err("refused");
        assert!(refused.contains("is no URL"), "{refused}");
    }

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
}
