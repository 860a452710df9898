//! Ends of a hand-over that a test plays itself, as far as it likes.

use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use firsthop_relay::handover::channel::{Arrived, Connection, Listener};
use firsthop_relay::handover::message::{Description, Offer, ToGiver, ToTaker, decode, encode};

use crate::testbed::{PATIENCE, until};

/// A successor that has received its offer.
pub(super) struct FakeSuccessor {
    connection: Connection,
    cores: u16,
}

impl FakeSuccessor {
    pub(super) fn connect(path: &Path) -> Self {
        let connection = Connection::connect(path).expect("a relay listens");
        let offer = Offer::read(&message(&connection)).expect("an offer");
        Self {
            connection,
            cores: offer.relay.cores,
        }
    }

    /// What a successor says that takes everything over but for its last word, which would end the serving relay.
    pub(super) fn script(cores: u16) -> Vec<ToGiver> {
        let mut script = vec![ToGiver::Accept];
        for core in 0..cores {
            script.push(ToGiver::Take { core });
            script.push(ToGiver::Imported { core });
            script.push(ToGiver::Armed { core });
        }
        script
    }

    /// Says that much of the script, and hears what is answered. Returns whether it came so far: a machine that stood still too
    /// long has made it too late.
    pub(super) fn play(&mut self, cores: u16, said: usize) -> bool {
        assert_eq!(self.cores, cores);
        for message in &Self::script(cores)[..said] {
            // Whoever was given up hears of it next.
            let _ = self.connection.send(&encode(message), &[]);
            let answers = match message {
                ToGiver::Accept => {
                    let sockets = (0..cores).map(|core| ToTaker::Sockets { core });
                    sockets.chain([ToTaker::Listeners]).collect()
                }
                ToGiver::Take { core } => vec![ToTaker::Flows { core: *core }],
                ToGiver::Imported { core } => vec![ToTaker::Yours { core: *core }],
                _ => vec![],
            };
            for due in answers {
                match self.hear() {
                    ToTaker::GiveUp { why, .. } if why.contains("in time") => return false,
                    said => assert_eq!(said, due),
                }
            }
        }
        true
    }

    /// Waits until the serving relay closes. Returns why it has given up, if it has.
    pub(super) fn end(self) -> Option<String> {
        let mut given_up = None;
        loop {
            match receive(&self.connection) {
                Arrived::Message(bytes, _) => match decode(&bytes) {
                    Some(ToTaker::GiveUp { why, .. }) => given_up = Some(why),
                    other => panic!("{other:?} at the end"),
                },
                Arrived::End => return given_up,
                other => panic!("{other:?} instead of an end"),
            }
        }
    }

    pub(super) fn say(&self, message: &ToGiver) {
        // Whoever was given up hears of it next.
        let _ = self.connection.send(&encode(message), &[]);
    }

    pub(super) fn send_raw(&self, bytes: &[u8]) {
        self.connection.send(bytes, &[]).expect("sent");
    }

    pub(super) fn hear(&mut self) -> ToTaker {
        decode(&message(&self.connection)).expect("what a relay says")
    }
}

fn message(connection: &Connection) -> Vec<u8> {
    match receive(connection) {
        Arrived::Message(bytes, _) => bytes,
        other => panic!("{other:?} instead of a message"),
    }
}

fn receive(connection: &Connection) -> Arrived {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match connection
            .receive(Duration::from_secs(1), None)
            .expect("received")
        {
            Arrived::Nothing if Instant::now() < deadline => {}
            arrived => return arrived,
        }
    }
}

/// A serving relay as a successor sees it: sockets, and flows of the test's choice.
pub(super) struct FakeRelay {
    listener: Listener,
    public: UdpSocket,
    internal: UdpSocket,
    admin: TcpListener,
}

/// How far a [`FakeRelay`] goes, and what it says wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    /// It says this instead of an offer.
    Says(&'static [u8]),
    /// It closes after its offer.
    Offer,
    /// It sends its sockets in the wrong order.
    WrongSockets,
    /// It closes when its sockets are out.
    Sockets,
    /// It sends these flows, and closes when the successor has said what it thinks of them.
    Flows(&'static [u8]),
    /// It closes instead of giving the core up.
    Imported,
    /// It gives the core up, and takes it back when the successor has said its last word.
    Serving,
    /// The same, because it ends.
    Ended,
}

impl FakeRelay {
    /// Takes the addresses of a relay with one core.
    pub(super) fn new(path: &Path, relay: &Description) -> Self {
        // The kernel takes the rings of a successor that has ended apart, and holds its sockets for that time.
        let bound = |address| until("an address is free", || UdpSocket::bind(address).ok());
        Self {
            listener: Listener::bind(path).expect("a path of the test's own"),
            public: bound(relay.listen[0].address),
            internal: bound(relay.internal),
            admin: TcpListener::bind("127.0.0.1:0").expect("free"),
        }
    }

    /// Answers one successor. Returns the last that it said.
    pub(super) fn serve(&self, relay: &Description, end: Until, flows: File) -> Option<ToGiver> {
        let connection = until("a successor comes", || {
            self.listener.accept().expect("accepted")
        });
        let say = |message: &ToTaker, fds: &[BorrowedFd<'_>]| {
            // A successor that refuses is gone at once.
            let _ = connection.send(&encode(message), fds);
        };
        let hear = || match receive(&connection) {
            Arrived::Message(bytes, _) => decode::<ToGiver>(&bytes),
            _ => None,
        };
        if let Until::Says(bytes) = end {
            connection.send(bytes, &[]).expect("sent");
            return hear();
        }
        let offer = encode(&Offer::of(relay.clone()));
        connection.send(&offer, &[]).expect("sent");
        if end == Until::Offer {
            return None;
        }
        let accepted = hear();
        if accepted != Some(ToGiver::Accept) {
            return accepted;
        }
        let mut sockets = [self.public.as_fd(), self.internal.as_fd()];
        if end == Until::WrongSockets {
            sockets.reverse();
        }
        say(&ToTaker::Sockets { core: 0 }, &sockets);
        say(
            &ToTaker::Listeners,
            &[self.admin.as_fd(), self.listener.fd()],
        );
        if matches!(end, Until::WrongSockets | Until::Sockets) {
            return None;
        }
        assert_eq!(hear(), Some(ToGiver::Take { core: 0 }));
        say(&ToTaker::Flows { core: 0 }, &[flows.as_fd()]);
        let imported = hear();
        if !matches!(end, Until::Serving | Until::Ended) {
            return imported;
        }
        say(&ToTaker::Yours { core: 0 }, &[]);
        assert_eq!(hear(), Some(ToGiver::Armed { core: 0 }));
        let last = hear();
        let why = "that was too late".to_owned();
        let ends = end == Until::Ended;
        say(&ToTaker::GiveUp { why, ends }, &[]);
        last
    }
}
