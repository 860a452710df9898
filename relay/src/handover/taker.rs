//! The successor's end of a hand-over.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use firsthop_relay_core::Inherited;
use firsthop_service::settings::SettingError;
use socket2::SockRef;
use tracing::info;

use super::HandoverError;
use super::channel::{Arrived, Connection, Listener};
use super::message::{Description, Offer, ToGiver, ToTaker, decode, encode};
use super::seat::Place;
use crate::config::Config;
use crate::group::Group;
use crate::limits::{HANDOVER_ANSWER, HANDOVER_LOOK, HANDOVER_PREPARE, HANDOVER_STEP};
use crate::relay::{Event, RelayError};
use crate::roster::Roster;
use crate::sockets::CoreSockets;

/// A successor that was accepted and has its predecessor's sockets; the predecessor still serves.
pub(crate) struct Taker {
    connection: Connection,
    /// The sockets of each core, until they are in use.
    sockets: Vec<CoreSockets>,
    /// The admin port's listener, when it is where this relay's shall be.
    pub(crate) admin: Option<TcpListener>,
    /// The hand-over's listener, until it is in use.
    pub(crate) listener: Option<Listener>,
}

/// Asks the relay that serves at `path`. Returns nothing when none does.
///
/// # Errors
/// One does, and cannot be followed.
pub(crate) fn connect(
    path: &Path,
    own: &Description,
    admin: SocketAddr,
) -> Result<Option<Taker>, HandoverError> {
    let connection = match Connection::connect(path) {
        Ok(connection) => connection,
        Err(error) if nobody_serves(&error) => {
            info!(path = %path.display(), "no relay serves there: starting anew");
            return Ok(None);
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(HandoverError::Late("before it accepted the connection"));
        }
        Err(error) => return Err(HandoverError::cannot_connect(path, &error)),
    };
    let trusted = connection.is_trusted();
    if !trusted.map_err(HandoverError::system("asking who serves"))? {
        return Err(HandoverError::Setting(SettingError::new(
            "--handover",
            format!("a process of another user listens at {}", path.display()),
            "give a path in a directory that nobody else may write to",
        )));
    }
    let step = "before it offered anything";
    let (bytes, _) = receive(&connection, HANDOVER_ANSWER, step)?;
    let fits = Offer::read(&bytes).and_then(|offer| own.can_follow(&offer.relay));
    if let Err(error) = fits {
        let refuse = ToGiver::Refuse {
            why: error.to_string(),
        };
        let _ = connection.send(&encode(&refuse), &[]);
        return Err(error.into());
    }
    say(&connection, &ToGiver::Accept)?;
    let sockets = receive_sockets(&connection, own)?;
    let step = "when its listeners were due";
    let (bytes, fds) = receive(&connection, HANDOVER_STEP, step)?;
    expect(&bytes, &ToTaker::Listeners, step)?;
    let [admin_fd, listener_fd] = <[OwnedFd; 2]>::try_from(fds)
        .map_err(|fds| HandoverError::Socket(format!("one of {} listeners", fds.len())))?;
    let inherited = TcpListener::from(admin_fd);
    let address = inherited.local_addr();
    let same = address.map_err(|_| HandoverError::Socket("the admin port's".to_owned()))? == admin;
    Ok(Some(Taker {
        connection,
        sockets,
        admin: same.then_some(inherited),
        listener: Some(Listener::inherit(listener_fd, path)),
    }))
}

fn nobody_serves(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

impl Taker {
    /// Starts a group over the predecessor's sockets, and takes one core after the other over. Each of them receives when this
    /// returns.
    ///
    /// # Errors
    /// It has failed: no core of this process is left, and the predecessor goes on.
    pub(crate) fn start_group(
        &mut self,
        config: &Config,
        roster: &Roster,
        events_in: &Sender<Event>,
        events: &Receiver<Event>,
    ) -> Result<Group, RelayError> {
        let sockets = std::mem::take(&mut self.sockets);
        let (mut group, places) = Group::succeed(config, roster, events_in, sockets)?;
        let taken = self.take(&places, events);
        // A core that still waits for its flows ends with this.
        drop(places);
        match taken {
            Ok(()) => Ok(group),
            Err(error) => {
                // First the cores, so that nobody receives here any more when the predecessor hears of it.
                let _ = group.stop();
                let why = error.to_string();
                let _ = self.say(&ToGiver::Refuse { why });
                Err(error.into())
            }
        }
    }

    fn take(&self, places: &[Place], events: &Receiver<Event>) -> Result<(), HandoverError> {
        let began = Instant::now();
        let prepared_by = began + HANDOVER_PREPARE;
        for (core, place) in (0..).zip(places) {
            self.wait_prepared(core, place, prepared_by, events)?;
        }
        let (mut flows, mut left_out, mut longest) = (0, 0, Duration::ZERO);
        for (core, place) in (0..).zip(places) {
            let asked = Instant::now();
            let inherited = self.take_core(core, place, events)?;
            longest = longest.max(asked.elapsed());
            flows += u64::from(inherited.flows);
            left_out += u64::from(inherited.left_out);
        }
        info!(
            flows,
            left_out,
            longest_gap_microseconds = longest.as_micros() as u64,
            milliseconds = began.elapsed().as_millis() as u64,
            "took over"
        );
        Ok(())
    }

    /// Waits until a core is prepared, or the serving relay goes on without: if it has lost a core, it needs its addresses.
    fn wait_prepared(
        &self,
        core: u16,
        place: &Place,
        deadline: Instant,
        events: &Receiver<Event>,
    ) -> Result<(), HandoverError> {
        let step = "while the cores were prepared";
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match place.wait_prepared(left.min(HANDOVER_LOOK)) {
                Ok(true) => return Ok(()),
                Ok(false) if left.is_zero() => {
                    return Err(problem(core, "was not prepared in time"));
                }
                Ok(false) => {}
                Err(()) => return Err(cause(core, events)),
            }
            let arrived = self.connection.receive(Duration::ZERO, None);
            match arrived.map_err(HandoverError::system("receiving"))? {
                Arrived::Nothing | Arrived::Interrupted => {}
                Arrived::Message(bytes, _) => return Err(not_due(&bytes, step)),
                Arrived::End => return Err(HandoverError::Gone(step)),
            }
        }
    }

    fn take_core(
        &self,
        core: u16,
        place: &Place,
        events: &Receiver<Event>,
    ) -> Result<Inherited, HandoverError> {
        self.say(&ToGiver::Take { core })?;
        let step = "while a core's flows were due";
        let (bytes, mut fds) = receive(&self.connection, 2 * HANDOVER_STEP, step)?;
        expect(&bytes, &ToTaker::Flows { core }, step)?;
        let (Some(file), true) = (fds.pop(), fds.is_empty()) else {
            return Err(HandoverError::Socket("what came with the flows".to_owned()));
        };
        let inherited = place
            .give(File::from(file), HANDOVER_STEP)
            .ok_or_else(|| problem(core, "did not read its flows in time"))?
            .map_err(|error| HandoverError::Flows { core, error })?;
        self.say(&ToGiver::Imported { core })?;
        let step = "while a core was to be given up";
        let (bytes, _) = receive(&self.connection, HANDOVER_STEP, step)?;
        expect(&bytes, &ToTaker::Yours { core }, step)?;
        if !place.go() {
            return Err(cause(core, events));
        }
        match events.recv_timeout(HANDOVER_STEP) {
            Ok(Event::Armed { .. }) => {}
            Ok(Event::CoreEnded { core, error, .. }) => return Err(ended(core, error)),
            _ => return Err(problem(core, "did not receive in time")),
        }
        self.say(&ToGiver::Armed { core })?;
        Ok(inherited)
    }

    /// Says that everything is taken over, and waits for the answer: a predecessor that agrees closes the connection, and ends;
    /// one that does not says so before. One that has died meanwhile has closed it too.
    ///
    /// # Errors
    /// The predecessor has given up before, and goes on: this relay must not. Nor when it does not answer, for it takes no word
    /// that is so late.
    pub(crate) fn serving(self) -> Result<(), HandoverError> {
        self.say(&ToGiver::Serving)?;
        let step = "after the last core";
        match receive(&self.connection, 2 * HANDOVER_STEP, step) {
            Ok((bytes, _)) => Err(not_due(&bytes, step)),
            Err(HandoverError::Gone(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Says why this relay does not serve. Its cores receive no more.
    pub(crate) fn refuse(self, error: &HandoverError) {
        let why = error.to_string();
        let _ = self.say(&ToGiver::Refuse { why });
    }

    fn say(&self, message: &ToGiver) -> Result<(), HandoverError> {
        say(&self.connection, message)
    }
}

fn problem(core: u16, problem: &str) -> HandoverError {
    HandoverError::Core {
        core,
        problem: problem.to_owned(),
    }
}

/// Why a core has ended before its time.
fn cause(core: u16, events: &Receiver<Event>) -> HandoverError {
    match events.recv_timeout(HANDOVER_STEP) {
        Ok(Event::CoreEnded { core, error, .. }) => ended(core, error),
        _ => problem(core, "has ended"),
    }
}

/// What it means that a core has ended, which may be another than the one that was waited for.
fn ended(core: usize, error: RelayError) -> HandoverError {
    match error {
        RelayError::Executor { error, .. } => {
            problem(core as u16, &format!("has no executor: {error}"))
        }
        RelayError::CoreLost { error, .. } => problem(core as u16, &format!("was lost: {error}")),
        other => problem(core as u16, &format!("has ended: {other}")),
    }
}

fn say(connection: &Connection, message: &ToGiver) -> Result<(), HandoverError> {
    match connection.send(&encode(message), &[]) {
        // What the other end has said before it closed tells more: it is read next.
        Err(error) if has_closed(&error) => Ok(()),
        sent => sent.map_err(HandoverError::system("sending")),
    }
}

fn has_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

fn receive(
    connection: &Connection,
    time: Duration,
    step: &'static str,
) -> Result<(Vec<u8>, Vec<OwnedFd>), HandoverError> {
    let deadline = Instant::now() + time;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let arrived = connection.receive(left, None);
        match arrived.map_err(HandoverError::system("receiving"))? {
            Arrived::Message(bytes, fds) => return Ok((bytes, fds)),
            Arrived::End => return Err(HandoverError::Gone(step)),
            Arrived::Nothing | Arrived::Interrupted if left.is_zero() => {
                return Err(HandoverError::Late(step));
            }
            Arrived::Nothing | Arrived::Interrupted => {}
        }
    }
}

fn expect(bytes: &[u8], due: &ToTaker, step: &'static str) -> Result<(), HandoverError> {
    if decode(bytes).as_ref() == Some(due) {
        Ok(())
    } else {
        Err(not_due(bytes, step))
    }
}

/// What it means that the serving relay has said this, which was not due.
fn not_due(bytes: &[u8], step: &'static str) -> HandoverError {
    let said = match decode(bytes) {
        Some(ToTaker::GiveUp { why, ends }) => return HandoverError::GivenUp { why, ends },
        Some(other) => format!("{other:?}"),
        None => "what no relay says".to_owned(),
    };
    HandoverError::Unexpected { said, step }
}

/// Receives the sockets of all cores, and sees that each is where it should be.
fn receive_sockets(
    connection: &Connection,
    own: &Description,
) -> Result<Vec<CoreSockets>, HandoverError> {
    let step = "when its sockets were due";
    (0..own.cores)
        .map(|core| {
            let (bytes, mut fds) = receive(connection, HANDOVER_STEP, step)?;
            expect(&bytes, &ToTaker::Sockets { core }, step)?;
            let wrong = |which: &str| HandoverError::Socket(format!("core {core}: {which}"));
            let internal = fds.pop().ok_or_else(|| wrong("the internal one"))?;
            let internal_address = SocketAddr::new(own.internal.ip(), own.internal.port() + core);
            if !is_udp_at(&internal, internal_address) {
                return Err(wrong("the internal one"));
            }
            let places = own.listen.iter().map(|place| place.address);
            let right = |(fd, address): (&OwnedFd, SocketAddr)| is_udp_at(fd, address);
            if fds.len() != own.listen.len() || !fds.iter().zip(places).all(right) {
                return Err(wrong("a public one"));
            }
            Ok(CoreSockets {
                public: fds,
                internal,
                internal_address,
            })
        })
        .collect()
}

fn is_udp_at(fd: &OwnedFd, address: SocketAddr) -> bool {
    let socket = SockRef::from(fd);
    let at = socket.local_addr().ok().and_then(|at| at.as_socket());
    let datagrams = socket
        .r#type()
        .is_ok_and(|kind| kind == socket2::Type::DGRAM);
    datagrams && at == Some(address)
}
