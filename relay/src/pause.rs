//! A pause that is one: the pump's task is pending at least once, whatever the clock says.
//!
//! A glommio timer that is due when it is first polled is ready at once, and then nobody else runs. On a core that has just
//! woken up, cold as it is, more than a microsecond passes between the making of a timer and its first poll; so a bare
//! sleep of a microsecond never let an idle core's other tasks and timers run.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use glommio::timer::Timer;

/// Lets the executor look at everything else once, and comes back after `wait` or a little later.
pub(crate) async fn pause(mut wait: Duration) {
    let mut timer = Timer::new(wait);
    let mut paused = false;
    std::future::poll_fn(|context| {
        loop {
            match Pin::new(&mut timer).poll(context) {
                Poll::Pending => {
                    paused = true;
                    return Poll::Pending;
                }
                Poll::Ready(_) if paused => return Poll::Ready(()),
                Poll::Ready(_) => {
                    // Soon long enough for any processor.
                    wait = wait.saturating_mul(2).max(Duration::from_micros(1));
                    timer = Timer::new(wait);
                }
            }
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    use glommio::LocalExecutor;

    #[test]
    fn other_tasks_run_in_every_pause_however_short() {
        LocalExecutor::default().run(async {
            let turns = Rc::new(Cell::new(0));
            let seen = Rc::clone(&turns);
            glommio::spawn_local(async move {
                loop {
                    seen.set(seen.get() + 1);
                    pause(Duration::ZERO).await;
                }
            })
            .detach();
            for paused in 0..100 {
                assert!(turns.get() >= paused, "{} in {paused}", turns.get());
                pause(Duration::ZERO).await;
            }
        });
    }
}
