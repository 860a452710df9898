//! The group of cores that serves: opens its sockets, starts a thread for each core, and stops them all.
//!
//! All sockets of a group are bound by one thread in core order, because that order is the numbering that the steering
//! program speaks of; a core makes its ring in its own thread. A core that is lost cannot be replaced alone: its sockets
//! would join the group as the last ones. So a group starts whole, and ends whole.

mod executor;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use firsthop_relay_core::{
    CacheConfig, IngressPath, Micros, PeerList, Placement, RouterConfig, Seeds, Steering, Transport,
};
use firsthop_service::paths::PathSizes;
use tracing::info;

use crate::config::Config;
use crate::control::CoreControl;
use crate::counters::Published;
use crate::handover::seat::{Place, Seat, seat, zero_of_time};
use crate::limits;
use crate::relay::{Event, RelayError};
use crate::roster::{CoreView, GroupView, Roster};
use crate::shard::PublicPath;
use crate::sockets::{self, CoreSockets, GrantedBuffers};
use crate::wake::Wake;
use executor::Core;

/// Cores that run. Dropping it stops them.
pub(crate) struct Group {
    number: u64,
    controls: Vec<Arc<CoreControl>>,
    threads: Vec<JoinHandle<()>>,
    /// Closed once every core's thread has ended.
    ended: Receiver<Infallible>,
    internal: Vec<SocketAddr>,
}

impl Group {
    /// Opens every socket, starts every core, and enters them into the roster. They serve once each has sent
    /// [`Event::Armed`]; a core that ends without being told to sends [`Event::CoreEnded`]. Both carry `number`, which tells
    /// this group from those before it.
    ///
    /// # Errors
    /// What could not be had. Then no core runs.
    pub(crate) fn start(
        number: u64,
        config: &Config,
        roster: &Roster,
        events: &Sender<Event>,
    ) -> Result<Self, RelayError> {
        let listen: Vec<SocketAddr> = config.listen.iter().map(|one| one.address).collect();
        let (internal, port) = (config.internal, config.internal_port);
        let sockets = sockets::open(&listen, internal, port, &steering(config))?;
        Self::run(number, config, roster, events, sockets, Vec::new())
    }

    /// Starts every core over sockets that another process has opened, and still serves. Each core waits at its place for its
    /// flows and the word.
    ///
    /// # Errors
    /// What could not be had. Then no core runs.
    pub(crate) fn succeed(
        config: &Config,
        roster: &Roster,
        events: &Sender<Event>,
        sockets: Vec<CoreSockets>,
    ) -> Result<(Self, Vec<Place>), RelayError> {
        let granted = sockets::size_inherited(&sockets).map_err(|error| RelayError::System {
            what: "the buffers of the sockets",
            error,
        })?;
        let cores = 0..sockets.len() as u16;
        let (seats, places) = cores.map(seat).unzip();
        let group = Self::run(0, config, roster, events, (sockets, granted), seats)?;
        Ok((group, places))
    }

    fn run(
        number: u64,
        config: &Config,
        roster: &Roster,
        events: &Sender<Event>,
        (sockets, granted): (Vec<CoreSockets>, GrantedBuffers),
        seats: Vec<Seat>,
    ) -> Result<Self, RelayError> {
        let system = |what| move |error| RelayError::System { what, error };
        let steering = steering(config);
        let mut seats = seats.into_iter();
        let (alive, ended) = channel();
        let mut group = Self {
            number,
            controls: Vec::new(),
            threads: Vec::new(),
            ended,
            internal: sockets.iter().map(|core| core.internal_address).collect(),
        };
        // Dropped before the group, which waits until the last of them is gone.
        let alive = alive;
        let keyring = roster.keyring();
        let mut mailboxes = Vec::new();
        for _ in &sockets {
            let (wake, wake_fd) = Wake::new().map_err(system("eventfd"))?;
            let (control, mailbox) = CoreControl::new(Arc::clone(&keyring), wake);
            group.controls.push(control);
            mailboxes.push((mailbox, wake_fd));
        }
        let mut caches = roster
            .cache()
            .map(|cache| cache.enter(&group.controls))
            .unwrap_or_default()
            .into_iter();
        let start = zero_of_time();
        let mut views = Vec::new();
        for (core, (sockets, (mailbox, wake))) in sockets.into_iter().zip(mailboxes).enumerate() {
            let published = Arc::new(Published::new());
            let control = Arc::clone(&group.controls[core]);
            views.push(
                view(&sockets, &published, control)
                    .map_err(system("descriptors for the admin thread"))?,
            );
            let core = Core {
                number: core,
                processor: config.processors[core],
                router: router_config(config, roster.peers(), &steering, core),
                keyring: Arc::clone(&keyring),
                public: public_paths(config),
                path_sizes: PathSizes::new(config.trunks, config.internal_mtu),
                spin: config.spin,
                start,
                sockets,
                wake,
                mailbox,
                cores: group.controls.clone(),
                cache: caches.next(),
                published,
                seat: seats.next(),
            };
            let thread = core
                .spawn(number, events.clone(), alive.clone())
                .map_err(system("a thread for a core"))?;
            group.threads.push(thread);
        }
        roster.enter(GroupView {
            cores: views,
            granted: Some(granted),
        });
        report_buffers(granted);
        Ok(group)
    }

    /// What tells this group from those before it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// How many cores it has.
    pub(crate) fn cores(&self) -> usize {
        self.threads.len()
    }

    /// Internal addresses, by core.
    pub(crate) fn internal(&self) -> &[SocketAddr] {
        &self.internal
    }

    /// Stops the cores after their turn, and waits until their threads have ended.
    ///
    /// # Errors
    /// A core did not end in time.
    pub(crate) fn stop(&mut self) -> Result<(), RelayError> {
        for control in &self.controls {
            control.stop();
        }
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(limits::CORES_STOP) {
            return Err(RelayError::CoreStuck);
        }
        for thread in self.threads.drain(..) {
            // A panic was reported as an event already.
            let _ = thread.join();
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Nobody is left who could do more than to end the process.
        let _ = self.stop();
    }
}

fn steering(config: &Config) -> Steering {
    Steering::new(config.steering_seed, config.processors.len() as u16)
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

fn view(
    sockets: &CoreSockets,
    published: &Arc<Published>,
    control: Arc<CoreControl>,
) -> io::Result<CoreView> {
    Ok(CoreView {
        published: Arc::clone(published),
        public: sockets
            .public
            .iter()
            .map(OwnedFd::try_clone)
            .collect::<io::Result<_>>()?,
        internal: sockets.internal.try_clone()?,
        control,
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

fn router_config(
    config: &Config,
    peers: Arc<PeerList>,
    steering: &Steering,
    number: usize,
) -> RouterConfig {
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
    router.pending = limits::PENDING_RECORDS;
    router.peers = peers;
    router.relays_away = config.site.role.serves_clients();
    router.takes_relayed = config.site.role.takes_relayed();
    router.linger = Micros(config.linger);
    router.placement = (steering.cores() > 1).then_some(Placement {
        steering: *steering,
        core: number as u16,
    });
    router.cache = config.cache.as_ref().map(|cache| CacheConfig {
        questions: cache.questions_per_core,
    });
    router
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("the log").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn reported(granted: GrantedBuffers) -> String {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .finish();
        tracing::subscriber::with_default(subscriber, || report_buffers(granted));
        let text = log.0.lock().expect("the log").clone();
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn a_kernel_that_caps_buffers_is_reported_with_the_settings_that_do() {
        let asked = limits::SOCKET_BUFFER;
        let all = GrantedBuffers {
            receive: asked,
            send: asked,
        };
        assert_eq!(reported(all), "");
        for capped in [
            GrantedBuffers {
                receive: 212_992,
                ..all
            },
            GrantedBuffers {
                send: 212_992,
                ..all
            },
        ] {
            let line = reported(capped);
            assert!(
                line.contains(" INFO ") && line.contains("=212992"),
                "{line}"
            );
            assert!(
                line.contains("net.core.rmem_max and net.core.wmem_max"),
                "{line}"
            );
        }
    }
}
