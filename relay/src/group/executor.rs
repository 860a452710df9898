//! One core of a group: its thread, its executor, and what it pumps with.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Instant;

use firsthop_relay_core::{Micros, Router, RouterConfig};
use firsthop_service::paths::PathSizes;
use firsthop_shared::keyring::DataKeyring;
use glommio::{Latency, LocalExecutorBuilder, Placement as Pinned, Shares};

use crate::cache::CoreCache;
use crate::control::{CoreControl, Mailbox};
use crate::counters::Published;
use crate::handover::seat::Seat;
use crate::relay::{Event, RelayError};
use crate::ring::{Ring, RingSize};
use crate::shard::{PublicPath, Shard, ShardParts};
use crate::sockets::CoreSockets;
use crate::{lateness, limits, system};

/// Everything that a core's thread takes with it.
pub(super) struct Core {
    pub(super) number: usize,
    pub(super) processor: usize,
    pub(super) router: RouterConfig,
    pub(super) keyring: Arc<DataKeyring>,
    pub(super) public: Vec<PublicPath>,
    pub(super) path_sizes: PathSizes,
    pub(super) spin: bool,
    pub(super) start: Instant,
    pub(super) sockets: CoreSockets,
    pub(super) wake: OwnedFd,
    pub(super) mailbox: Mailbox,
    pub(super) cores: Vec<Arc<CoreControl>>,
    pub(super) cache: Option<CoreCache>,
    pub(super) published: Arc<Published>,
    /// Where it waits for its flows, when another process serves yet.
    pub(super) seat: Option<Seat>,
}

impl Core {
    /// Starts its thread, which holds `alive` until the core is gone.
    pub(super) fn spawn(
        self,
        group: u64,
        events: Sender<Event>,
        alive: Sender<Infallible>,
    ) -> io::Result<JoinHandle<()>> {
        let core = self.number;
        std::thread::Builder::new()
            .name(format!("relay-core-{core}"))
            .spawn(move || {
                let published = Arc::clone(&self.published);
                // The core is gone when the closure ends; nothing that a panic left half done is seen by anybody.
                let ended = catch_unwind(AssertUnwindSafe(|| self.run(group, &events)))
                    .unwrap_or_else(|panic| Err(RelayError::panicked(core, panic.as_ref())));
                published.set_armed(false);
                if let Err(error) = ended {
                    let _ = events.send(Event::CoreEnded { group, core, error });
                }
                drop(alive);
            })
    }

    /// Runs the core in the calling thread until it is told to stop.
    fn run(self, group: u64, events: &Sender<Event>) -> Result<(), RelayError> {
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
            glommio::spawn_local(lateness::watch(Arc::clone(&self.published))).detach();
            let queue = glommio::executor().create_task_queue(
                Shares::default(),
                Latency::NotImportant,
                "pump",
            );
            let armed = move || drop(events.send(Event::Armed { group }));
            let pump = caught(core, self.pump(armed));
            let pump =
                glommio::spawn_local_into(pump, queue).map_err(|error| RelayError::Executor {
                    core,
                    error: error.to_string(),
                })?;
            pump.await
        })
    }

    /// Makes what must be made in the core's own thread, and pumps.
    async fn pump(self, armed: impl FnOnce()) -> Result<(), RelayError> {
        let now = || Micros(self.start.elapsed().as_micros() as u64);
        let mut router = Router::new(&self.router, self.keyring, now())?;
        let ring = Ring::new(
            self.sockets.public,
            self.sockets.internal,
            self.wake,
            RingSize::default(),
        )?;
        if let Some(seat) = self.seat {
            seat.take(&mut router, now).await?;
        }
        let shard = Shard::new(ShardParts {
            router,
            ring,
            mailbox: self.mailbox,
            cores: self.cores,
            cache: self.cache,
            published: self.published,
            public: self.public,
            path_sizes: self.path_sizes,
            spin: self.spin,
            start: self.start,
        });
        let core = self.number;
        shard
            .run(armed)
            .await
            .map_err(|error| RelayError::CoreLost {
                core,
                error: error.to_string(),
            })
    }
}

/// Runs a core's future. A panic in it is an error, so that the executor ends in good order and the future's sockets close.
async fn caught(
    core: usize,
    future: impl Future<Output = Result<(), RelayError>>,
) -> Result<(), RelayError> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        // A future that has panicked is never polled again: what it left half done is only dropped.
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)))
            .unwrap_or_else(|panic| Poll::Ready(Err(RelayError::panicked(core, panic.as_ref()))))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::task::{Context, Waker};

    use super::*;

    fn ended(future: impl Future<Output = Result<(), RelayError>>) -> Result<(), RelayError> {
        let mut future = pin!(caught(3, future));
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                return result;
            }
        }
    }

    #[test]
    fn a_panic_in_a_turn_is_a_lost_core_with_a_cause_and_lets_go_of_everything() {
        let socket = Rc::new(());
        let held = Rc::clone(&socket);
        let mut turns = 0;
        let error = ended(async move {
            std::future::poll_fn(|_| {
                turns += 1;
                assert!(turns < 3, "turn {turns} of {}", Rc::strong_count(&held));
                Poll::<()>::Pending
            })
            .await;
            Ok(())
        })
        .expect_err("it panicked");
        assert_eq!(
            error.to_string(),
            "core 3 was lost: it panicked: turn 3 of 2"
        );
        assert_eq!(Rc::strong_count(&socket), 1);
    }

    #[test]
    fn a_core_that_ends_says_what_it_said() {
        assert!(ended(async { Ok(()) }).is_ok());
        let stuck = ended(async { Err(RelayError::CoreStuck) });
        assert!(matches!(stuck, Err(RelayError::CoreStuck)));
    }
}
