//! The addresses that names of transceivers have: looked up anew for each round of questions.
//!
//! A name keeps the addresses that it last had when it cannot be looked up, or not in time: a name server that fails for a moment
//! takes no transceiver away.
//!
//! A name is looked up once at a time. The system's look-up is a thread that nobody can stop: were one begun in each round, a name
//! server that is silent would soon hold every thread that there may be.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firsthop_shared::address::canonical;
use tokio::net::lookup_host;
use tokio::time::timeout;

use crate::limits::STATUS_TIMEOUT;

/// A look-up that is under way.
pub type LookingUp = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Names and the addresses that they last had, by host and port.
pub struct Names {
    look_up: Box<dyn Fn(String, u16) -> LookingUp + Send + Sync>,
    names: Mutex<HashMap<(String, u16), Arc<Name>>>,
}

#[derive(Default)]
struct Name {
    known: Mutex<Vec<SocketAddr>>,
    /// The look-up that is under way, which may be an earlier round's. Who holds the lock waits for it.
    under_way: tokio::sync::Mutex<Option<LookingUp>>,
}

impl Name {
    fn known(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        locked(&self.known)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete in itself, so a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Names {
    /// Names as this machine resolves them.
    #[must_use]
    pub fn of_the_system() -> Self {
        Self::new(|host, port| {
            Box::pin(async move { Ok(lookup_host((host, port)).await?.collect()) })
        })
    }

    /// Names as something else resolves them.
    #[must_use]
    pub fn new(look_up: impl Fn(String, u16) -> LookingUp + Send + Sync + 'static) -> Self {
        Self {
            look_up: Box::new(look_up),
            names: Mutex::default(),
        }
    }

    /// Every address of a name, in an order that does not depend on the name server; the last known ones when it does not answer
    /// in time. Its answer then counts for whoever asks next.
    pub async fn addresses(&self, host: &str, port: u16) -> Vec<SocketAddr> {
        let key = (host.to_owned(), port);
        let name = Arc::clone(locked(&self.names).entry(key).or_default());
        let ask = async {
            let mut under_way = name.under_way.lock().await;
            let asked = under_way.get_or_insert_with(|| (self.look_up)(host.to_owned(), port));
            let found = asked.await;
            *under_way = None;
            if let Ok(addresses) = found {
                let mut known = name.known();
                *known = addresses.into_iter().map(canonical).collect();
                known.sort_unstable();
            }
        };
        // Whether it is in time or not, what is known now is the answer.
        let _ = timeout(STATUS_TIMEOUT, ask).await;
        name.known().clone()
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}
