//! Why a relay did not start, or ended.

use std::any::Any;
use std::io;
use std::net::SocketAddr;

use firsthop_relay_core::ConfigError;
use firsthop_service::settings::SettingError;

use crate::handover::HandoverError;
use crate::limits::{CORES_STOP, REBUILD_WINDOW, REBUILDS_MAX};
use crate::ring::RingError;
use crate::sockets::SocketError;

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
    /// Sockets and flows were not handed over.
    #[error("{}", .0.told())]
    Handover(HandoverError),
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
    /// A core did not stop when it was asked to.
    #[error("a core did not stop within {} s", CORES_STOP.as_secs())]
    CoreStuck,
    /// A core was lost, and the group was built anew too often already.
    #[error(
        "{lost}; the group was built anew {REBUILDS_MAX} times within {} s already",
        REBUILD_WINDOW.as_secs()
    )]
    LostAgain {
        /// How the core was lost.
        lost: Box<RelayError>,
    },
    /// A core was lost, and the group could not be built anew.
    #[error("{lost}; the group cannot be built anew: {error}")]
    Rebuild {
        /// How the core was lost.
        lost: Box<RelayError>,
        /// What could not be had.
        error: Box<RelayError>,
    },
    /// The admin thread ended while it should run.
    #[error("the admin thread ended: {0}")]
    AdminLost(String),
}

impl From<HandoverError> for RelayError {
    fn from(error: HandoverError) -> Self {
        Self::Handover(error)
    }
}

impl RelayError {
    /// Whether a setting, or a limit of the machine, is what must be changed.
    #[must_use]
    pub fn is_setting(&self) -> bool {
        match self {
            Self::Socket(_) | Self::Admin { .. } | Self::Router(_) => true,
            Self::Handover(error) => error.is_setting(),
            Self::Ring(error) => {
                matches!(
                    error,
                    RingError::Disabled(_) | RingError::Unsupported(_) | RingError::Memory(_)
                )
            }
            Self::System { .. }
            | Self::Executor { .. }
            | Self::CoreLost { .. }
            | Self::CoreStuck
            | Self::LostAgain { .. }
            | Self::Rebuild { .. }
            | Self::AdminLost(_) => false,
        }
    }

    pub(super) fn no_thread() -> Self {
        Self::AdminLost("no thread is left".to_owned())
    }

    /// A core ended by a panic, with what `catch_unwind` says of it.
    pub(crate) fn panicked(core: usize, panic: &(dyn Any + Send)) -> Self {
        Self::CoreLost {
            core,
            error: format!("it panicked: {}", message(panic)),
        }
    }
}

/// What a panic says.
pub(super) fn message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "without a message",
    }
}
