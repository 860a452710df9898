//! The relay as a whole: opens everything, starts the cores and the admin thread, mends what it can, and stops them.
//!
//! The order matters. Everything that can be refused (ports, memory, io_uring) is asked for before the first core starts.
//! When a core is lost while the relay runs, the whole group stops and starts anew in the same process: the
//! numbering of its sockets is intact, its flows are gone, and calls heal by their next STUN check or downlink packet. That
//! happens so often and no more (see [`rebuilds`](crate::rebuilds)); then the relay ends, for its supervisor to act.

mod error;

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use firsthop_service::about::About;
use firsthop_service::server;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::admin::{self, Reload};
use crate::cache::FlowCache;
use crate::config::{Config, Files};
use crate::drain::{Drain, Next};
use crate::group::Group;
use crate::handover::HandoverError;
use crate::handover::channel::Listener;
use crate::handover::giver::{self, Giver};
use crate::handover::message::Description;
use crate::handover::taker;
use crate::limits::{ADMIN_FAREWELL, HANDOVER_STEP};
use crate::rebuilds::Rebuilds;
use crate::ring;
use crate::roster::Roster;
use crate::signals::{self, Signal};

pub use error::RelayError;
use error::message;

/// What threads tell the relay's owner.
#[derive(Debug)]
pub(crate) enum Event {
    /// A core receives on all of its sockets.
    Armed {
        /// Which group it is of.
        group: u64,
    },
    /// A core ended without being told to.
    CoreEnded {
        /// Which group it is of.
        group: u64,
        /// Its number.
        core: usize,
        /// Why.
        error: RelayError,
    },
    /// A successor serves: this relay has nothing left to do.
    HandedOver,
    /// Somebody asks the relay to end.
    Signal(Signal),
    /// The admin thread ended.
    AdminEnded(String),
}

/// A relay whose threads run.
pub struct Relay {
    config: Config,
    roster: Arc<Roster>,
    group: Group,
    rebuilds: Rebuilds,
    start: Instant,
    admin: JoinHandle<()>,
    stop_admin: watch::Sender<bool>,
    /// Tells the admin thread that a successor accepts now.
    leave_admin: watch::Sender<bool>,
    giver: Option<Giver>,
    /// Whether every core receives already, because it was taken over.
    ready: bool,
    /// Whether a successor has the sockets, and the file of the hand-over.
    handed_over: bool,
    /// Whether somebody has asked this relay to end, which it does once it is drained.
    told: bool,
    events: Receiver<Event>,
    /// For the threads of the next group.
    events_in: Sender<Event>,
    /// Where the admin pages are.
    pub admin_address: SocketAddr,
}

impl Relay {
    /// Opens everything and starts the threads. The relay serves once [`Relay::wait_ready`] returns; one that takes over from
    /// another serves at once.
    ///
    /// # Errors
    /// What could not be had.
    pub fn start(config: Config, files: Files) -> Result<Self, RelayError> {
        ring::probe()?;
        let system = |what| move |error| RelayError::System { what, error };
        let description = Description::of(&config);
        let mut taker = match &config.handover {
            Some(path) if config.takeover => taker::connect(path, &description, config.admin)?,
            _ => None,
        };
        let inherited = taker.as_mut().and_then(|taker| taker.admin.take());
        let admin_listener = match inherited {
            Some(listener) => listener,
            None => server::bind(config.admin).map_err(|error| RelayError::Admin {
                address: config.admin,
                error,
            })?,
        };
        let admin_copy = admin_listener.try_clone().map_err(system("admin port"))?;
        let admin_address = admin_listener
            .local_addr()
            .map_err(system("admin address"))?;
        // First, so that it may have connected when the first packet comes.
        let cache = config.cache.clone().map(FlowCache::start).transpose();
        let cache = cache.map_err(system("the flow cache's thread"))?;
        let (cores, keyring) = (config.processors.len(), Arc::clone(&config.keyring));
        let roster = Arc::new(Roster::new(cores, config.flows, keyring).with_cache(cache));
        roster.set_peers(Arc::clone(&config.peers));
        let (events_in, events) = channel();
        let listener = match (&mut taker, &config.handover) {
            (Some(taker), _) => taker.listener.take(),
            (None, Some(path)) => Some(giver::listen(path)?),
            (None, None) => None,
        };
        let group = match &mut taker {
            Some(taker) => taker.start_group(&config, &roster, &events_in, &events)?,
            None => Group::start(0, &config, &roster, &events_in)
                .inspect_err(|_| listener.iter().for_each(Listener::remove))?,
        };
        let reload = Reload {
            keyring: files.keyring,
            fleet: files.fleet,
            listen: config.listen.clone(),
            site: config.site.clone(),
            about: About::new(&["keyring", "fleet"]),
        };
        let (admin_up, admin_is_up) = sync_channel(1);
        let (stop_admin, stopped) = watch::channel(false);
        let (leave_admin, left) = watch::channel(false);
        let admin = {
            let (roster, events) = (Arc::clone(&roster), events_in.clone());
            let run = move || {
                let served = AssertUnwindSafe(|| {
                    let watches = (stopped, left);
                    run_admin(admin_listener, roster, reload, watches, &events, admin_up)
                });
                let ended = match catch_unwind(served) {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => error.to_string(),
                    Err(panic) => format!("it panicked: {}", message(panic.as_ref())),
                };
                let _ = events.send(Event::AdminEnded(ended));
            };
            std::thread::Builder::new()
                .name("relay-admin".to_owned())
                .spawn(run)
                .map_err(system("the admin thread"))?
        };
        let giver = listener
            .map(|listener| {
                let (roster, events) = (Arc::clone(&roster), events_in.clone());
                Giver::start(listener, description, admin_copy, roster, events)
            })
            .transpose()
            .map_err(system("the thread of hand-overs"))?;
        let relay = Self {
            config,
            roster,
            group,
            rebuilds: Rebuilds::default(),
            start: Instant::now(),
            admin,
            stop_admin,
            leave_admin,
            giver,
            ready: taker.is_some(),
            handed_over: false,
            told: false,
            events,
            events_in,
            admin_address,
        };
        if let Some(taker) = taker {
            // Nobody must hear that this relay serves before it can do all that it has to.
            if let Err(error) = relay.wait_admin(&admin_is_up) {
                relay.give_way();
                taker.refuse(&error);
                return Err(error.into());
            }
            if let Err(error) = taker.serving() {
                relay.give_way();
                return Err(error.into());
            }
        }
        Ok(relay)
    }

    /// Waits until the admin thread accepts connections and hears signals.
    fn wait_admin(&self, up: &Receiver<()>) -> Result<(), HandoverError> {
        let error = match up.recv_timeout(HANDOVER_STEP) {
            Ok(()) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => "not in time".to_owned(),
            // It says why when it has ended.
            Err(RecvTimeoutError::Disconnected) => match self.events.recv_timeout(HANDOVER_STEP) {
                Ok(Event::AdminEnded(error)) => error,
                _ => "it has ended".to_owned(),
            },
        };
        Err(HandoverError::Admin(error))
    }

    /// Internal addresses, by core.
    #[must_use]
    pub fn internal(&self) -> &[SocketAddr] {
        self.group.internal()
    }

    /// Waits until every core receives. Returns whether they do: `false` when a signal came first.
    ///
    /// # Errors
    /// A core did not start.
    pub fn wait_ready(&mut self) -> Result<bool, RelayError> {
        let mut missing = if self.ready { 0 } else { self.group.cores() };
        while missing > 0 {
            match self.next_event()? {
                Event::Armed { .. } => missing -= 1,
                Event::Signal(_) => return Ok(false),
                Event::HandedOver => {
                    self.handed_over = true;
                    return Ok(false);
                }
                Event::CoreEnded { error, .. } => return Err(error),
                Event::AdminEnded(error) => return Err(RelayError::AdminLost(error)),
            }
        }
        Ok(true)
    }

    /// Waits until a signal asks to stop, and has taken its effect: after SIGTERM the relay is not ready any more, and forwards
    /// until its [`Drain`] is over. Meanwhile, builds the group anew when a core is lost.
    ///
    /// # Errors
    /// Something ended by itself, and cannot be mended.
    pub fn wait_signal(&mut self) -> Result<(), RelayError> {
        // While a group is being built: since when, and how many of its cores do not receive yet.
        let mut building: Option<(Instant, usize)> = None;
        let mut drain: Option<Drain> = None;
        loop {
            let Some(event) = self.next_event_of(drain.as_mut())? else {
                return Ok(());
            };
            match event {
                Event::Armed { group } if group == self.group.number() => {
                    let Some((since, missing)) = &mut building else {
                        continue;
                    };
                    *missing -= 1;
                    if *missing == 0 {
                        info!(milliseconds = since.elapsed().as_millis(), "ready again");
                        building = None;
                    }
                }
                Event::CoreEnded { group, core, error } if group == self.group.number() => {
                    // Whoever takes over would hold the addresses of the group that ends; one that serves needs no other group.
                    if self.giver.as_ref().is_some_and(Giver::interrupt) {
                        self.handed_over = true;
                        return Ok(());
                    }
                    building = Some((Instant::now(), self.group.cores()));
                    self.rebuild(core, error)?;
                    drain.iter_mut().for_each(Drain::flows_lost);
                }
                // A core of a group that is gone.
                Event::Armed { .. } | Event::CoreEnded { .. } => {}
                Event::Signal(Signal::Terminate)
                    if drain.is_none() && !self.config.drain.is_zero() =>
                {
                    self.told = true;
                    drain = Some(self.begin_drain());
                }
                Event::Signal(_) => return Ok(()),
                Event::HandedOver => {
                    self.handed_over = true;
                    return Ok(());
                }
                Event::AdminEnded(error) => return Err(RelayError::AdminLost(error)),
            }
        }
    }

    /// Whether a successor serves, and nobody has asked this relay to end before.
    #[must_use]
    pub fn handed_over(&self) -> bool {
        self.handed_over && !self.told
    }

    /// Stops the cores after their turn, then the admin thread; the other way round when a successor serves, so that nobody who
    /// asks meanwhile hears that this relay is not ready. Returns whether a signal has come that nobody has read of.
    pub fn stop(mut self) -> bool {
        if let Some(giver) = self.giver.take() {
            self.handed_over |= giver.stop(self.handed_over);
        }
        if self.handed_over {
            let _ = self.leave_admin.send(true);
            let _ = self.admin.join();
            stop_cores(&mut self.group);
        } else {
            self.roster.set_stopping();
            stop_cores(&mut self.group);
            let _ = self.stop_admin.send(true);
            let _ = self.admin.join();
        }
        if let Some(cache) = self.roster.cache() {
            cache.stop();
        }
        // The thread that hears signals is gone: no other can come.
        self.events
            .try_iter()
            .any(|event| matches!(event, Event::Signal(_)))
    }

    /// Ends a relay whose predecessor goes on: the cores first, for both receive. Admin port and file are the other's.
    fn give_way(mut self) {
        stop_cores(&mut self.group);
        self.handed_over = true;
        self.stop();
    }

    /// Ends the group that has lost a core, and starts the next one.
    fn rebuild(&mut self, core: usize, lost: RelayError) -> Result<(), RelayError> {
        if !self.rebuilds.allow(self.start.elapsed()) {
            return Err(RelayError::LostAgain {
                lost: Box::new(lost),
            });
        }
        warn!(
            core,
            cause = %lost,
            "a core was lost: all cores stop, and their group starts anew without its flows"
        );
        self.roster.leave();
        let number = self.group.number() + 1;
        let next = self
            .group
            .stop()
            .and_then(|()| Group::start(number, &self.config, &self.roster, &self.events_in));
        match next {
            Ok(group) => self.group = group,
            Err(error) => {
                return Err(RelayError::Rebuild {
                    lost: Box::new(lost),
                    error: Box::new(error),
                });
            }
        }
        Ok(())
    }

    /// Says that the relay is about to end, and begins to wait until nobody needs it.
    fn begin_drain(&self) -> Drain {
        self.roster.set_stopping();
        info!(
            seconds = self.config.drain.as_secs(),
            flows = self.roster.flows(),
            "draining"
        );
        Drain::new(self.start.elapsed(), self.config.drain)
    }

    /// The next event, or nothing once the drain is over, if there is one.
    fn next_event_of(&self, drain: Option<&mut Drain>) -> Result<Option<Event>, RelayError> {
        let Some(drain) = drain else {
            return self.next_event().map(Some);
        };
        loop {
            let time = match drain.next(self.start.elapsed(), self.roster.flows()) {
                Next::Wait(time) => time,
                end => {
                    info!(flows_left = end == Next::Late, "drained");
                    return Ok(None);
                }
            };
            match self.events.recv_timeout(time) {
                Ok(event) => return Ok(Some(event)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(RelayError::no_thread()),
            }
        }
    }

    fn next_event(&self) -> Result<Event, RelayError> {
        self.events.recv().map_err(|_| RelayError::no_thread())
    }
}

fn stop_cores(group: &mut Group) {
    if let Err(error) = group.stop() {
        warn!(%error, "stopping without waiting for the rest");
    }
}

/// The admin thread: pages, files, signals.
fn run_admin(
    listener: std::net::TcpListener,
    roster: Arc<Roster>,
    reload: Reload,
    (stopped, mut left): (watch::Receiver<bool>, watch::Receiver<bool>),
    events: &Sender<Event>,
    up: SyncSender<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let signals = tokio::spawn(signals::report(events.clone())?);
        let listener = TcpListener::from_std(listener)?;
        // Whoever does not wait for it has forgotten the other end.
        let _ = up.send(());
        // It also ends when the owner went away without a word.
        tokio::select! {
            () = admin::serve(listener, roster, reload, stopped, left.clone()) => {}
            // The successor accepts. Connections that were accepted here are still answered.
            Ok(_) = left.wait_for(|left| *left) => {
                // In pieces: however late this thread gets its processor, every connection has a turn in each.
                for _ in 0..10 {
                    tokio::time::sleep(ADMIN_FAREWELL / 10).await;
                }
            }
        }
        signals.abort();
        Ok(())
    })
}
