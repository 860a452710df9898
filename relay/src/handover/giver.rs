//! The serving relay's end of hand-overs: a thread that answers successors, one at a time.
//!
//! It stands beside the cores and the admin thread, because it waits: for a peer that says nothing, for a core that writes a
//! million flows. What it does to a core is one order; the other cores notice nothing.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use firsthop_service::server::Complaints;
use tracing::{info, warn};

use super::HandoverError;
use super::channel::{Arrived, Connection, Listener, Ready, wait};
use super::giving::{Giving, Step};
use super::message::{Description, Offer, ToGiver, ToTaker, decode, encode};
use crate::control::CoreControl;
use crate::limits::{HANDOVER_PAUSE, HANDOVER_STEP};
use crate::relay::Event;
use crate::roster::Roster;

/// Opens the hand-over's socket of a relay that starts anew.
///
/// # Errors
/// Another relay has it, or it cannot be made.
pub(crate) fn listen(path: &Path) -> Result<Listener, HandoverError> {
    Listener::bind(path).map_err(|error| HandoverError::cannot_listen(path, &error))
}

/// The thread, and how it is told to leave off.
pub(crate) struct Giver {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

/// What the thread and its owner share.
struct Shared {
    listener: Listener,
    ended: AtomicBool,
    /// A byte in it interrupts whatever the thread waits for.
    interrupt: UnixStream,
    word: Mutex<Word>,
}

/// What the thread and its owner must agree on: whichever comes first keeps the other from coming.
#[derive(Default)]
struct Word {
    /// A byte is under way to the thread.
    interrupted: bool,
    handed_over: bool,
}

/// What the thread works with.
struct Work {
    shared: Arc<Shared>,
    interrupts: UnixStream,
    description: Description,
    admin: TcpListener,
    roster: Arc<Roster>,
    events: Sender<Event>,
    start: Instant,
}

impl Giver {
    /// Starts it. `admin` is a copy of the admin port's listener, to be passed on.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub(crate) fn start(
        listener: Listener,
        description: Description,
        admin: TcpListener,
        roster: Arc<Roster>,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let (interrupt, interrupts) = UnixStream::pair()?;
        interrupt.set_nonblocking(true)?;
        interrupts.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            listener,
            ended: AtomicBool::new(false),
            interrupt,
            word: Mutex::default(),
        });
        let work = Work {
            shared: Arc::clone(&shared),
            interrupts,
            description,
            admin,
            roster,
            events,
            start: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("relay-handover".to_owned())
            .spawn(move || work.run())?;
        Ok(Self { thread, shared })
    }

    /// Ends a hand-over that is under way: what it spoke of is not there any more. Returns whether it came too late for that:
    /// a successor serves.
    pub(crate) fn interrupt(&self) -> bool {
        let mut word = self.shared.word();
        word.interrupted = true;
        // Full means that it is interrupted already.
        let _ = (&self.shared.interrupt).write(&[1]);
        word.handed_over
    }

    /// Ends the thread. Returns whether a successor serves, which may be so although nobody has read of it yet. The file goes
    /// too, unless it is left to somebody.
    pub(crate) fn stop(self, leave_file: bool) -> bool {
        self.shared.ended.store(true, Ordering::Release);
        self.interrupt();
        let _ = self.thread.join();
        let handed_over = self.shared.word().handed_over;
        if !handed_over && !leave_file {
            self.shared.listener.remove();
        }
        handed_over
    }
}

impl Shared {
    fn word(&self) -> MutexGuard<'_, Word> {
        // It is two flags: whole at any moment.
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    fn run(self) {
        let mut complaints = Complaints::default();
        while !self.shared.ended.load(Ordering::Acquire) {
            let ready = wait(
                self.shared.listener.fd(),
                Some(self.interrupts.as_fd()),
                None,
            );
            let accepted = match ready {
                Ok(Ready::First) => self.shared.listener.accept(),
                Ok(Ready::Second) => {
                    self.answer_interrupt();
                    continue;
                }
                Ok(Ready::None) => continue,
                Err(error) => Err(error),
            };
            match accepted {
                Ok(Some(connection)) => {
                    if self.serve(&connection) {
                        let _ = self.events.send(Event::HandedOver);
                        return;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    if let Some(failures) = complaints.due(Instant::now()) {
                        warn!(%error, failures, "hand-overs cannot be accepted for the moment: may enough files be open?");
                    }
                    std::thread::sleep(HANDOVER_PAUSE);
                }
            }
        }
    }

    /// Takes what interrupts, so that the next wait waits.
    fn answer_interrupt(&self) {
        let mut word = self.shared.word();
        let _ = (&self.interrupts).read(&mut [0; 64]);
        word.interrupted = false;
    }

    /// Settles that the successor serves, unless an interrupt came first.
    fn conclude(&self) -> Result<(), HandoverError> {
        let mut word = self.shared.word();
        if word.interrupted {
            return Err(HandoverError::Interrupted);
        }
        word.handed_over = true;
        Ok(())
    }

    /// Answers one peer. Returns whether it is the relay that serves now.
    fn serve(&self, connection: &Connection) -> bool {
        match connection.is_trusted() {
            Ok(true) => {}
            Ok(false) | Err(_) => {
                info!("a hand-over was refused: only this relay's user and root may ask for it");
                return false;
            }
        }
        let group = self.roster.group();
        // The controls alone: whoever holds a group's sockets keeps its addresses from the next group.
        let controls: Vec<Arc<CoreControl>> = group
            .cores
            .iter()
            .map(|core| Arc::clone(&core.control))
            .collect();
        drop(group);
        let mut giving = Giving::new(self.description.cores, self.start.elapsed());
        let began = Instant::now();
        let result = self.give(connection, &controls, &mut giving);
        if result.is_ok() {
            let milliseconds = began.elapsed().as_millis();
            info!(milliseconds, "handed over: the successor serves");
            return true;
        }
        let standing = giving.standing();
        for core in standing.clone() {
            controls[usize::from(core)].go_on();
        }
        if let Err(error) = result {
            let error = match error {
                HandoverError::Interrupted if self.shared.ended.load(Ordering::Acquire) => {
                    HandoverError::Ending
                }
                error => error,
            };
            if standing.is_empty() {
                info!(%error, "nothing was handed over");
            } else {
                warn!(%error, cores = standing.len(), "nothing was handed over, and the cores that stood still go on");
            }
            let give_up = ToTaker::GiveUp {
                why: error.to_string(),
                ends: error.is_end(),
            };
            let _ = connection.send(&encode(&give_up), &[]);
        }
        false
    }

    fn give(
        &self,
        connection: &Connection,
        controls: &[Arc<CoreControl>],
        giving: &mut Giving,
    ) -> Result<(), HandoverError> {
        let say = |message: &ToTaker, fds: &[BorrowedFd<'_>]| {
            let sent = connection.send(&encode(message), fds);
            sent.map_err(HandoverError::system("sending"))
        };
        if controls.len() != usize::from(self.description.cores) {
            return Err(HandoverError::Interrupted);
        }
        let offer = Offer::of(self.description.clone());
        let sent = connection.send(&encode(&offer), &[]);
        sent.map_err(HandoverError::system("sending"))?;
        loop {
            let left = giving.deadline().saturating_sub(self.start.elapsed());
            let arrived = connection.receive(left, Some(self.interrupts.as_fd()));
            let message: ToGiver = match arrived.map_err(HandoverError::system("receiving"))? {
                Arrived::Message(bytes, _) => {
                    decode(&bytes).ok_or_else(|| HandoverError::Unexpected {
                        said: "what no successor says".to_owned(),
                        step: giving.step(),
                    })?
                }
                Arrived::End => return Err(HandoverError::Gone(giving.step())),
                Arrived::Interrupted => {
                    self.answer_interrupt();
                    return Err(HandoverError::Interrupted);
                }
                Arrived::Nothing if self.start.elapsed() < giving.deadline() => continue,
                Arrived::Nothing => return Err(HandoverError::Late(giving.step())),
            };
            match giving.on(&message, self.start.elapsed())? {
                Step::Wait => {}
                Step::SendSockets => self.send_sockets(&say)?,
                Step::StandStill(core) => {
                    let file = stand_still(&controls[usize::from(core)], core)?;
                    say(&ToTaker::Flows { core }, &[file.as_fd()])?;
                    giving.sent_flows(self.start.elapsed());
                }
                Step::SendYours(core) => say(&ToTaker::Yours { core }, &[])?,
                Step::End => return self.conclude(),
            }
        }
    }

    fn send_sockets(
        &self,
        say: &impl Fn(&ToTaker, &[BorrowedFd<'_>]) -> Result<(), HandoverError>,
    ) -> Result<(), HandoverError> {
        let group = self.roster.group();
        for (core, view) in (0..).zip(&group.cores) {
            let mut fds: Vec<BorrowedFd<'_>> = view.public.iter().map(|fd| fd.as_fd()).collect();
            fds.push(view.internal.as_fd());
            say(&ToTaker::Sockets { core }, &fds)?;
        }
        let listeners = [self.admin.as_fd(), self.shared.listener.fd()];
        say(&ToTaker::Listeners, &listeners)
    }
}

/// Has a core stand still, and returns its flows.
fn stand_still(control: &CoreControl, core: u16) -> Result<File, HandoverError> {
    let problem = |problem| HandoverError::Core { core, problem };
    match control.stand_still().recv_timeout(HANDOVER_STEP) {
        Ok(left) => left.map_err(problem),
        Err(_) => Err(problem("did not come to stand still in time".to_owned())),
    }
}
