//! The files that may change while signaling runs: keyrings, fleet and API keys.
//!
//! Each is read at the start, where a fault stops the start, and looked at again once a second. A changed file that cannot be
//! used is reported once, and the last good content stays in use: a slip in an editor must not shut callers out.
//!
//! Requests read through [`Files`], a set of `watch` receivers: a request keeps the content it began with.

use std::path::Path;
use std::sync::Arc;

use firsthop_service::files::{Unusable, changed};
use firsthop_shared::fleet::{Fleet, FleetError};
use firsthop_shared::keyring::{ApiKeyring, DataKeyring, KeyringError};
use firsthop_shared::reload::Reloader;
use maxminddb::MaxMindDbError;
use tokio::sync::watch;

use crate::client::Places;
use crate::credentials::{ApiKeys, CredentialsError};
use crate::metrics::Metrics;

const KEYRING: &str = "keyring";
const API_KEYRING: &str = "api-keyring";
const FLEET: &str = "fleet";
const API_KEYS: &str = "api-keys";

/// The settings that name the files which everybody has, as logs and metrics call them.
pub const FILES: [&str; 4] = [KEYRING, API_KEYRING, FLEET, API_KEYS];

/// The same of the database of places.
pub const PLACES: &str = "places";

/// Where the files are.
#[derive(Clone, Copy, Debug)]
pub struct Paths<'a> {
    /// The data keyring.
    pub keyring: &'a Path,
    /// The API keyring.
    pub api_keyring: &'a Path,
    /// The fleet.
    pub fleet: &'a Path,
    /// The API keys.
    pub api_keys: &'a Path,
}

/// Which file could not be used at the start, and why.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The data keyring.
    #[error("keyring: {0}")]
    Keyring(KeyringError),
    /// The API keyring.
    #[error("api keyring: {0}")]
    ApiKeyring(KeyringError),
    /// The fleet.
    #[error("fleet: {0}")]
    Fleet(FleetError),
    /// The API keys.
    #[error("api keys: {0}")]
    ApiKeys(CredentialsError),
}

/// What requests read: the newest good content of each file.
#[derive(Clone, Debug)]
pub struct Files {
    /// Mints ufrags.
    pub keyring: watch::Receiver<Arc<DataKeyring>>,
    /// Seals and opens call ids.
    pub api_keyring: watch::Receiver<Arc<ApiKeyring>>,
    /// Names the ingress points.
    pub fleet: watch::Receiver<Arc<Fleet>>,
    /// Lets callers in.
    pub api_keys: watch::Receiver<Arc<ApiKeys>>,
}

/// Looks at the files; the other end of [`Files`].
pub struct FileWatch {
    keyring: Watched<DataKeyring, KeyringError>,
    api_keyring: Watched<ApiKeyring, KeyringError>,
    fleet: Watched<Fleet, FleetError>,
    api_keys: Watched<ApiKeys, CredentialsError>,
}

impl FileWatch {
    /// Reads all files.
    ///
    /// # Errors
    /// The first one that cannot be used.
    pub fn open(paths: Paths<'_>) -> Result<(Self, Files), FilesError> {
        let (keyring, keyring_rx) = Watched::open(KEYRING, paths.keyring, DataKeyring::load)
            .map_err(FilesError::Keyring)?;
        let (api_keyring, api_keyring_rx) =
            Watched::open(API_KEYRING, paths.api_keyring, ApiKeyring::load)
                .map_err(FilesError::ApiKeyring)?;
        let (fleet, fleet_rx) =
            Watched::open(FLEET, paths.fleet, Fleet::load).map_err(FilesError::Fleet)?;
        let (api_keys, api_keys_rx) =
            Watched::open(API_KEYS, paths.api_keys, ApiKeys::load).map_err(FilesError::ApiKeys)?;
        Ok((
            Self {
                keyring,
                api_keyring,
                fleet,
                api_keys,
            },
            Files {
                keyring: keyring_rx,
                api_keyring: api_keyring_rx,
                fleet: fleet_rx,
                api_keys: api_keys_rx,
            },
        ))
    }

    /// Takes over what changed, and shows which keys are in use. The caller decides when; it reads small local files, and blocks no longer than that takes.
    pub fn poll(&mut self, metrics: &Metrics) {
        self.keyring.poll(metrics);
        self.api_keyring.poll(metrics);
        let about = metrics.about();
        let (data, api) = (
            self.keyring.sender.borrow(),
            self.api_keyring.sender.borrow(),
        );
        about.keyring(KEYRING, data.active().id(), data.len());
        about.keyring(API_KEYRING, api.active().id(), api.len());
        self.fleet.poll(metrics);
        self.api_keys.poll(metrics);
    }
}

/// Looks at the database of places, which is no part of [`Files`] since not everybody has one.
pub struct PlacesWatch(Watched<Places, MaxMindDbError>);

impl PlacesWatch {
    /// Reads the database.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(path: &Path) -> Result<(Self, watch::Receiver<Arc<Places>>), MaxMindDbError> {
        let (watched, places) = Watched::open(PLACES, path, Places::load)?;
        Ok((Self(watched), places))
    }

    /// Takes over a change.
    pub fn poll(&mut self, metrics: &Metrics) {
        self.0.poll(metrics);
    }
}

struct Watched<T, E> {
    setting: &'static str,
    reloader: Reloader<T, E>,
    sender: watch::Sender<Arc<T>>,
}

impl<T, E: std::fmt::Display> Watched<T, E> {
    fn open(
        setting: &'static str,
        path: &Path,
        load: fn(&Path) -> Result<T, E>,
    ) -> Result<(Self, watch::Receiver<Arc<T>>), E> {
        let (reloader, value) = Reloader::new(path, load)?;
        let (sender, receiver) = watch::channel(Arc::new(value));
        Ok((
            Self {
                setting,
                reloader,
                sender,
            },
            receiver,
        ))
    }

    fn poll(&mut self, metrics: &Metrics) {
        match changed(self.setting, &mut self.reloader, metrics.about()) {
            Ok(None) | Err(Unusable) => {}
            Ok(Some(value)) => {
                self.sender.send_replace(Arc::new(value));
            }
        }
    }
}
