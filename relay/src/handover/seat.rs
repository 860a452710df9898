//! A core of a successor that has everything but its flows, and the end that tells it of them.

use std::fs::File;
use std::io::Seek as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use firsthop_relay_core::{ImportError, Inherited, Micros, Router};
use firsthop_shared::limits::FLOW_IDLE_SECS;

use crate::relay::RelayError;

/// The core's end.
pub(crate) struct Seat {
    core: u16,
    prepared: Sender<()>,
    flows: Receiver<File>,
    inherited: Sender<Result<Inherited, ImportError>>,
    yours: Receiver<()>,
}

/// The end of whoever takes over.
pub(crate) struct Place {
    prepared: Receiver<()>,
    flows: Sender<File>,
    inherited: Receiver<Result<Inherited, ImportError>>,
    yours: Sender<()>,
}

/// Makes both ends for a core.
pub(crate) fn seat(core: u16) -> (Seat, Place) {
    let (prepared, is_prepared) = channel();
    let (flows_in, flows) = channel();
    let (inherited, was_inherited) = channel();
    let (yours_in, yours) = channel();
    let seat = Seat {
        core,
        prepared,
        flows,
        inherited,
        yours,
    };
    let place = Place {
        prepared: is_prepared,
        flows: flows_in,
        inherited: was_inherited,
        yours: yours_in,
    };
    (seat, place)
}

/// The zero of the cores' time: so long ago that every flow that can be taken over was seen since.
pub(crate) fn zero_of_time() -> Instant {
    let now = Instant::now();
    let idle = Duration::from_secs(u64::from(FLOW_IDLE_SECS) + 1);
    now.checked_sub(idle).unwrap_or(now)
}

impl Seat {
    /// Waits for the flows, takes them into the fresh router, and waits until the core may receive. In the core's executor,
    /// whose other tasks run meanwhile.
    ///
    /// # Errors
    /// The flows cannot be used, or whoever takes over has given up.
    pub(crate) async fn take(
        self,
        router: &mut Router,
        now: impl Fn() -> Micros,
    ) -> Result<(), RelayError> {
        let core = usize::from(self.core);
        let given_up = || RelayError::CoreLost {
            core,
            error: "the hand-over was given up".to_owned(),
        };
        let Self {
            prepared,
            flows,
            inherited,
            yours,
            ..
        } = self;
        prepared.send(()).map_err(|_| given_up())?;
        let file = glommio::executor()
            .spawn_blocking(move || flows.recv().ok())
            .await;
        let mut file = file.ok_or_else(given_up)?;
        let read = file
            .rewind()
            .map_err(ImportError::from)
            .and_then(|()| router.import(now(), &mut file));
        let failed = read.is_err();
        inherited.send(read).map_err(|_| given_up())?;
        if failed {
            return Err(given_up());
        }
        let word = glommio::executor()
            .spawn_blocking(move || yours.recv().is_ok())
            .await;
        word.then_some(()).ok_or_else(given_up)
    }
}

impl Place {
    /// Whether the core is prepared within a time; an error says that it has ended.
    pub(crate) fn wait_prepared(&self, time: Duration) -> Result<bool, ()> {
        match self.prepared.recv_timeout(time) {
            Ok(()) => Ok(true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }

    /// Gives the core its flows, and waits until it knows them. Nothing when it did not say in time, or has ended.
    pub(crate) fn give(
        &self,
        file: File,
        time: Duration,
    ) -> Option<Result<Inherited, ImportError>> {
        self.flows.send(file).ok()?;
        self.inherited.recv_timeout(time).ok()
    }

    /// Lets the core receive. Returns whether it is still there.
    pub(crate) fn go(&self) -> bool {
        self.yours.send(()).is_ok()
    }
}
