//! The addresses that names of transceivers have: looked up anew for each round of questions.
//!
//! A name keeps the addresses that it last had when it cannot be looked up, or not in time: a name server that fails for a moment
//! takes no transceiver away.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use firsthop_shared::address::canonical;
use tokio::net::lookup_host;
use tokio::time::timeout;

use crate::limits::STATUS_TIMEOUT;

/// A look-up that is under way.
pub type LookingUp = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Names and the addresses that they last had, by host and port.
pub struct Names {
    look_up: Box<dyn Fn(String, u16) -> LookingUp + Send + Sync>,
    known: Mutex<HashMap<(String, u16), Vec<SocketAddr>>>,
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
            known: Mutex::default(),
        }
    }

    /// Every address of a name, in an order that does not depend on the name server; the last known ones when it does not answer.
    pub async fn addresses(&self, host: &str, port: u16) -> Vec<SocketAddr> {
        let found = timeout(STATUS_TIMEOUT, (self.look_up)(host.to_owned(), port)).await;
        // Every change is complete in itself, so a panic elsewhere leaves nothing half done.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry((host.to_owned(), port)).or_default();
        if let Ok(Ok(addresses)) = found {
            *known = addresses.into_iter().map(canonical).collect();
            known.sort_unstable();
        }
        known.clone()
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}
