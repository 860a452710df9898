//! The relay as a whole: opens everything, starts the cores and the admin thread, and stops them.
//!
//! The order matters. Everything that can be refused (ports, memory, io_uring) is asked for before the first core starts;
//! all sockets of a group are bound by one thread in core order; a core makes its ring in its own thread. A core that is
//! lost cannot be replaced, because the group would be renumbered: the whole relay ends, and is started anew.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use firsthop_relay_core::{
    ConfigError, IngressPath, Micros, Placement, Router, RouterConfig, Seeds, Steering, Transport,
};
use firsthop_service::server;
use firsthop_service::settings::SettingError;
use firsthop_shared::keyring::DataKeyring;
use glommio::{Latency, LocalExecutorBuilder, Placement as Pinned, Shares};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::info;

use crate::admin::{self, CoreView, Reload};
use crate::config::Config;
use crate::control::{CoreControl, Mailbox};
use crate::counters::Published;
use crate::limits;
use crate::paths::PathSizes;
use crate::ring::{self, Ring, RingError, RingSize};
use crate::shard::{PublicPath, Shard, ShardParts};
use crate::sockets::{self, CoreSockets, GrantedBuffers, SocketError};
use crate::system;
use crate::wake::Wake;

/// Why a relay did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// A public or internal address cannot be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The admin address cannot be had.
    #[error("{}", SettingError::cannot_listen("--admin", address, error))]
    Admin {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// io_uring is not available as needed.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The router refused its configuration.
    #[error(transparent)]
    Router(#[from] ConfigError),
    /// A thread or a descriptor could not be made.
    #[error("{what}: {error}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The executor of a core could not be made.
    #[error("core {core}: the executor did not start: {error}")]
    Executor {
        /// The core's number.
        core: usize,
        /// What glommio said.
        error: String,
    },
    /// A core ended while it should run.
    #[error("core {core} was lost: {error}")]
    CoreLost {
        /// The core's number.
        core: usize,
        /// Why.
        error: String,
    },
    /// The admin thread ended while it should run.
    #[error("the admin thread ended: {0}")]
    AdminLost(String),
}

impl RelayError {
    /// Whether a setting, or a limit of the machine, is what must be changed.
    #[must_use]
    pub fn is_setting(&self) -> bool {
        match self {
            Self::Socket(_) | Self::Admin { .. } | Self::Router(_) => true,
            Self::Ring(error) => {
                matches!(
                    error,
                    RingError::Disabled(_) | RingError::Unsupported(_) | RingError::Memory(_)
                )
            }
            Self::System { .. }
            | Self::Executor { .. }
            | Self::CoreLost { .. }
            | Self::AdminLost(_) => false,
        }
    }
}

/// What a running relay tells its owner.
#[derive(Debug)]
pub enum Event {
    /// A core receives on all of its sockets.
    Armed,
    /// SIGTERM or SIGINT.
    Signal,
    /// Something ended.
    Ended(RelayError),
}

/// A relay whose threads run.
pub struct Relay {
    controls: Vec<Arc<CoreControl>>,
    cores: Vec<JoinHandle<()>>,
    admin: JoinHandle<()>,
    stop_admin: watch::Sender<bool>,
    events: Receiver<Event>,
    /// Where the admin pages are.
    pub admin_address: SocketAddr,
    /// Internal addresses, by core.
    pub internal: Vec<SocketAddr>,
}

impl Relay {
    /// Opens everything and starts the threads. The relay serves once [`Relay::wait_ready`] returns.
    ///
    /// # Errors
    /// What could not be had.
    pub fn start(config: Config) -> Result<Self, RelayError> {
        ring::probe()?;
        let steering = Steering::new(config.steering_seed, config.processors.len() as u16);
        let admin_listener = server::bind(config.admin).map_err(|error| RelayError::Admin {
            address: config.admin,
            error,
        })?;
        let system = |what| move |error| RelayError::System { what, error };
        let admin_address = admin_listener
            .local_addr()
            .map_err(system("admin address"))?;
        let listen: Vec<SocketAddr> = config.listen.iter().map(|one| one.address).collect();
        let (sockets, granted) =
            sockets::open(&listen, config.internal, config.internal_port, &steering)?;
        report_buffers(granted);
        let internal = sockets.iter().map(|core| core.internal_address).collect();

        let (events_in, events) = channel();
        let mut controls = Vec::new();
        let mut mailboxes = Vec::new();
        for _ in &sockets {
            let (wake, wake_fd) = Wake::new().map_err(system("eventfd"))?;
            let (control, mailbox) = CoreControl::new(Arc::clone(&config.keyring), wake);
            controls.push(control);
            mailboxes.push((mailbox, wake_fd));
        }
        let mut views = Vec::new();
        let mut cores = Vec::new();
        let start = Instant::now();
        for (number, (sockets, (mailbox, wake))) in sockets.into_iter().zip(mailboxes).enumerate() {
            let published = Arc::new(Published::new());
            views.push(
                view(&sockets, &published).map_err(system("descriptors for the admin thread"))?,
            );
            let core = Core {
                number,
                processor: config.processors[number],
                router: router_config(&config, &steering, number),
                keyring: Arc::clone(&config.keyring),
                public: public_paths(&config),
                path_sizes: PathSizes::new(config.trunks, config.internal_mtu),
                spin: config.spin,
                start,
                sockets,
                wake,
                mailbox,
                peers: controls.clone(),
                published,
            };
            cores.push(
                core.spawn(events_in.clone())
                    .map_err(system("a thread for a core"))?,
            );
        }
        let reload = Reload {
            keyring: config.keyring_reloader,
            fleet: config.fleet_reloader,
            controls: controls.clone(),
            listen: config.listen,
        };
        let (stop_admin, stopped) = watch::channel(false);
        let admin = std::thread::Builder::new()
            .name("relay-admin".to_owned())
            .spawn(move || {
                if let Err(error) =
                    run_admin(admin_listener, views, granted, reload, stopped, &events_in)
                {
                    let _ = events_in.send(Event::Ended(RelayError::AdminLost(error.to_string())));
                }
            })
            .map_err(system("the admin thread"))?;
        Ok(Self {
            controls,
            cores,
            admin,
            stop_admin,
            events,
            admin_address,
            internal,
        })
    }

    /// Waits until every core receives. Returns whether they do: `false` when a signal came first.
    ///
    /// # Errors
    /// A core did not start.
    pub fn wait_ready(&self) -> Result<bool, RelayError> {
        for _ in &self.cores {
            match self.next_event()? {
                Event::Armed => {}
                Event::Signal => return Ok(false),
                Event::Ended(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Waits until a signal asks to stop.
    ///
    /// # Errors
    /// Something ended by itself.
    pub fn wait_signal(&self) -> Result<(), RelayError> {
        loop {
            match self.next_event()? {
                Event::Armed => {}
                Event::Signal => return Ok(()),
                Event::Ended(error) => return Err(error),
            }
        }
    }

    /// Stops the cores after their turn, then the admin thread.
    pub fn stop(self) {
        for control in &self.controls {
            control.stop();
        }
        for core in self.cores {
            // A panic was reported as an event already.
            let _ = core.join();
        }
        let _ = self.stop_admin.send(true);
        let _ = self.admin.join();
    }

    fn next_event(&self) -> Result<Event, RelayError> {
        self.events
            .recv()
            .map_err(|_| RelayError::AdminLost("no thread is left".to_owned()))
    }
}

fn report_buffers(granted: GrantedBuffers) {
    if granted.capped() {
        info!(
            asked = limits::SOCKET_BUFFER,
            receive = granted.receive,
            send = granted.send,
            "the kernel caps socket buffers: raise net.core.rmem_max and net.core.wmem_max"
        );
    }
}

fn view(sockets: &CoreSockets, published: &Arc<Published>) -> io::Result<CoreView> {
    Ok(CoreView {
        published: Arc::clone(published),
        public: sockets
            .public
            .iter()
            .map(OwnedFd::try_clone)
            .collect::<io::Result<_>>()?,
        internal: sockets.internal.try_clone()?,
    })
}

fn public_paths(config: &Config) -> Vec<PublicPath> {
    config
        .listen
        .iter()
        .map(|one| PublicPath {
            ingress: one.ingress,
            ipv6: one.address.is_ipv6(),
        })
        .collect()
}

fn router_config(config: &Config, steering: &Steering, number: usize) -> RouterConfig {
    let seeds = Seeds {
        hash: rand::random(),
        generation: rand::random(),
        boot: rand::random(),
    };
    let mut router = RouterConfig::new(config.cluster, config.internal_networks.clone(), seeds);
    router.allow_internal_clients = config.allow_internal_clients;
    router.paths = public_paths(config)
        .into_iter()
        .map(|path| IngressPath {
            ingress: path.ingress,
            transport: Transport::Udp,
            ipv6: path.ipv6,
        })
        .collect();
    router.flows = config.flows;
    router.trunks = config.trunks;
    // Two sessions may claim an address: each buffer then waits in two datagrams.
    router.pending = 2 * u32::from(limits::PUBLIC_BUFFERS);
    router.linger = Micros(config.linger);
    router.placement = (steering.cores() > 1).then_some(Placement {
        steering: *steering,
        core: number as u16,
    });
    router
}

/// Everything that a core's thread takes with it.
struct Core {
    number: usize,
    processor: usize,
    router: RouterConfig,
    keyring: Arc<DataKeyring>,
    public: Vec<PublicPath>,
    path_sizes: PathSizes,
    spin: bool,
    start: Instant,
    sockets: CoreSockets,
    wake: OwnedFd,
    mailbox: Mailbox,
    peers: Vec<Arc<CoreControl>>,
    published: Arc<Published>,
}

impl Core {
    fn spawn(self, events: Sender<Event>) -> io::Result<JoinHandle<()>> {
        let number = self.number;
        std::thread::Builder::new()
            .name(format!("relay-core-{number}"))
            .spawn(move || {
                let mut report = Report {
                    core: number,
                    events,
                    done: false,
                };
                match self.run(&report.events) {
                    Ok(()) => {}
                    Err(error) => drop(report.events.send(Event::Ended(error))),
                }
                report.done = true;
            })
    }

    /// Runs the core in the calling thread until it is told to stop.
    fn run(self, events: &Sender<Event>) -> Result<(), RelayError> {
        let core = self.number;
        system::exact_timers();
        let executor = LocalExecutorBuilder::new(Pinned::Fixed(self.processor))
            .name("relay-core")
            .preempt_timer(limits::PREEMPT)
            .io_memory(limits::EXECUTOR_IO_MEMORY)
            .make()
            .map_err(|error| RelayError::Executor {
                core,
                error: error.to_string(),
            })?;
        let events = events.clone();
        executor.run(async move {
            let queue = glommio::executor().create_task_queue(
                Shares::default(),
                Latency::NotImportant,
                "pump",
            );
            let pump = glommio::spawn_local_into(self.pump(events), queue).map_err(|error| {
                RelayError::Executor {
                    core,
                    error: error.to_string(),
                }
            })?;
            pump.await
        })
    }

    /// Makes what must be made in the core's own thread, and pumps.
    async fn pump(self, events: Sender<Event>) -> Result<(), RelayError> {
        let router = Router::new(
            &self.router,
            self.keyring,
            Micros(self.start.elapsed().as_micros() as u64),
        )?;
        let ring = Ring::new(
            self.sockets.public,
            self.sockets.internal,
            self.wake,
            RingSize::default(),
        )?;
        let shard = Shard::new(ShardParts {
            router,
            ring,
            mailbox: self.mailbox,
            peers: self.peers,
            published: self.published,
            public: self.public,
            path_sizes: self.path_sizes,
            spin: self.spin,
            start: self.start,
        });
        let core = self.number;
        shard
            .run(move || drop(events.send(Event::Armed)))
            .await
            .map_err(|error| RelayError::CoreLost {
                core,
                error: error.to_string(),
            })
    }
}

/// Tells the owner when a core's thread ends by a panic.
struct Report {
    core: usize,
    events: Sender<Event>,
    done: bool,
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.done {
            let error = RelayError::CoreLost {
                core: self.core,
                error: "it panicked".to_owned(),
            };
            let _ = self.events.send(Event::Ended(error));
        }
    }
}

/// The admin thread: pages, files, signals.
fn run_admin(
    listener: std::net::TcpListener,
    views: Vec<CoreView>,
    granted: GrantedBuffers,
    reload: Reload,
    stopped: watch::Receiver<bool>,
    events: &Sender<Event>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let signals = tokio::spawn(report_signals(events.clone()));
        let listener = TcpListener::from_std(listener)?;
        // It also ends when the owner went away without a word.
        admin::serve(listener, views, granted, reload, stopped).await;
        signals.abort();
        Ok(())
    })
}

async fn report_signals(events: Sender<Event>) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let _ = events.send(Event::Signal);
    }
}
