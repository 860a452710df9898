//! Places calls one after another, each by a POST and a socket of its own, and says how each began.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::{Duration, Instant};

use reqwest::header::CONTENT_TYPE;

use super::opening::Opening;
use super::results::{Channel, Connection, Sample};
use super::subject::{Callee, Desk};
use super::world::World;
use crate::call::air::{Air, Way};
use crate::call::identity::Identity;
use crate::call::manner::Sharing;
use crate::call::recording::Recording;
use crate::readable;

/// How long a call may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest packet.
const PACKET_MAX: usize = 2_048;

/// What a caller does.
#[derive(Clone)]
pub struct CallerPlan {
    /// Whom it calls.
    pub callee: Callee,
    /// By which connection.
    pub connection: Connection,
    /// With which channel.
    pub channel: Channel,
    /// What it shows in DTLS.
    pub identity: Identity,
    /// What it says.
    pub recording: Recording,
}

/// Someone who calls.
pub struct Caller {
    plan: CallerPlan,
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
    /// The trunk, for calls that go past the relay, and how many did.
    trunk: Option<(Air, u32)>,
}

impl Caller {
    /// Gets what a caller needs, in the network namespace of this thread.
    ///
    /// # Errors
    /// The system has no socket.
    pub fn new(plan: CallerPlan) -> io::Result<Self> {
        let trunk = match &plan.callee.way {
            Way::Relay => None,
            way @ Way::Direct { .. } => Some((Air::open(way, Sharing::Shared)?, 0)),
        };
        Ok(Self {
            plan,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
            http: http()?,
            trunk,
        })
    }

    /// Places a call, and hangs up as soon as it has begun.
    ///
    /// # Errors
    /// Why it has not, in words.
    pub fn call(&mut self) -> Result<Sample, String> {
        let words = |error: io::Error| error.to_string();
        let mut ground = match &mut self.trunk {
            None => Ground::socket().map_err(words)?,
            Some((air, number)) => {
                *number += 1;
                Ground::Trunk(air, *number)
            }
        };
        if self.plan.connection == Connection::Cold {
            self.http = http().map_err(words)?;
        }
        let (mut opening, offer) = Opening::offer(
            &self.plan.identity,
            self.plan.channel,
            self.plan.recording.clone(),
            ground.address().map_err(words)?,
            Instant::now(),
        )?;
        let begin = Instant::now();
        let answer = self
            .runtime
            .block_on(ask(&self.http, &self.plan.callee.desk, offer))?;
        ground.join(&answer)?;
        let begun = open(&mut opening, &mut ground, &answer, begin + PATIENCE);
        let mut last = Vec::new();
        opening.leave(Instant::now(), &mut |to, packet| {
            last.push((to, packet.to_vec()));
        });
        for (to, packet) in last {
            ground.send(to, &packet).map_err(words)?;
        }
        ground.leave().map_err(words)?;
        begun.map(|()| opening.sample(begin))
    }
}

/// Leads a call from its answer to its first audio.
fn open(
    opening: &mut Opening,
    ground: &mut Ground<'_>,
    answer: &str,
    until: Instant,
) -> Result<(), String> {
    let words = |error: io::Error| error.to_string();
    let mut out: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
    opening.accept(answer, Instant::now(), &mut |to, packet| {
        out.push((to, packet.to_vec()));
    })?;
    while !opening.is_open() {
        let now = Instant::now();
        if now >= until {
            let last = opening
                .last()
                .map_or_else(String::new, |l| format!("{l:?}"));
            return Err(format!("nothing more came after {last}"));
        }
        let mut send = |to: SocketAddr, packet: &[u8]| out.push((to, packet.to_vec()));
        if opening.deadline() <= now {
            opening.poll(now, &mut send)?;
        }
        for (to, packet) in out.drain(..) {
            ground.send(to, &packet).map_err(words)?;
        }
        ground.flush().map_err(words)?;
        let wait = opening.deadline().min(until);
        let wait = wait.saturating_duration_since(Instant::now());
        readable::wait(&[ground.descriptor()], wait).map_err(words)?;
        let mut failed = None;
        ground
            .receive(&mut |from, packet| {
                let mut send = |to: SocketAddr, packet: &[u8]| out.push((to, packet.to_vec()));
                if let Err(error) = opening.receive(from, packet, Instant::now(), &mut send) {
                    failed.get_or_insert(error);
                }
            })
            .map_err(words)?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

fn http() -> io::Result<reqwest::Client> {
    reqwest::Client::builder()
        .timeout(PATIENCE)
        // Nobody stands between the generator and what it measures.
        .no_proxy()
        .build()
        .map_err(io::Error::other)
}

async fn ask(http: &reqwest::Client, desk: &Desk, offer: String) -> Result<String, String> {
    let mut post = http
        .post(&desk.url)
        .header(CONTENT_TYPE, "application/sdp")
        .body(offer);
    if let Some(key) = &desk.key {
        post = post.bearer_auth(key);
    }
    let answer = post.send().await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    match status.is_success() {
        true => Ok(text),
        false => Err(format!(
            "{status}: {}",
            text.chars().take(200).collect::<String>()
        )),
    }
}

/// What a call's packets go by.
enum Ground<'a> {
    Socket(UdpSocket),
    /// The trunk, and the call's number on it.
    Trunk(&'a mut Air, u32),
}

impl Ground<'_> {
    fn socket() -> io::Result<Self> {
        let socket = UdpSocket::bind((World::client_address(), 0))?;
        socket.set_nonblocking(true)?;
        Ok(Self::Socket(socket))
    }

    fn address(&mut self) -> io::Result<SocketAddr> {
        match self {
            Self::Socket(socket) => socket.local_addr(),
            Self::Trunk(air, number) => air.seat(*number),
        }
    }

    fn join(&mut self, answer: &str) -> Result<(), String> {
        match self {
            Self::Socket(_) => Ok(()),
            Self::Trunk(air, number) => air.join(*number, answer),
        }
    }

    fn descriptor(&self) -> RawFd {
        match self {
            Self::Socket(socket) => socket.as_raw_fd(),
            Self::Trunk(air, _) => air.descriptors().first().copied().unwrap_or(-1),
        }
    }

    fn send(&mut self, to: SocketAddr, packet: &[u8]) -> io::Result<()> {
        match self {
            // A candidate that cannot be reached is one that is not used.
            Self::Socket(socket) => match socket.send_to(packet, to) {
                Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable => Ok(()),
                other => other.map(|_| ()),
            },
            Self::Trunk(air, number) => air.send(*number, to, packet),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Socket(_) => Ok(()),
            Self::Trunk(air, _) => air.flush(),
        }
    }

    /// Takes what has come.
    fn receive(&mut self, take: &mut dyn FnMut(SocketAddr, &[u8])) -> io::Result<()> {
        match self {
            Self::Socket(socket) => {
                let mut buffer = [0; PACKET_MAX];
                loop {
                    match socket.recv_from(&mut buffer) {
                        Ok((length, from)) => take(from, &buffer[..length]),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                        // An address where nobody listens: others may.
                        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Self::Trunk(air, number) => {
                let number = *number;
                while air.receive(&mut |arrived| {
                    if arrived.client == number {
                        take(arrived.from, arrived.packet);
                    }
                })? {}
                Ok(())
            }
        }
    }

    fn leave(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Self::Trunk(air, number) = self {
            air.leave(*number);
        }
        Ok(())
    }
}
