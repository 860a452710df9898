//! Keys that servers are shown, and the files that they come from.

use std::fmt;
use std::path::Path;

use firsthop_shared::reload::{Reloader, read_small_file};
use serde::Deserialize;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, header};

use super::apps::AppError;

/// How a server is shown the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Auth {
    /// `Authorization: Bearer KEY`.
    #[default]
    Bearer,
    /// `api-key: KEY`, as Azure wants it.
    ApiKey,
}

/// A key that is shown to servers and to nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(HeaderValue);

impl Secret {
    /// A key, without white space around it; `None` when it cannot stand in a header, or is empty.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut value = HeaderValue::from_str(text).ok()?;
        value.set_sensitive(true);
        (!text.is_empty()).then_some(Self(value))
    }

    pub(super) fn header(&self, auth: Auth) -> (HeaderName, HeaderValue) {
        if auth == Auth::ApiKey {
            return (HeaderName::from_static("api-key"), self.0.clone());
        }
        let bearer = [b"Bearer ", self.0.as_bytes()].concat();
        // Every byte has passed before.
        let mut value =
            HeaderValue::from_bytes(&bearer).unwrap_or_else(|_| HeaderValue::from_static(""));
        value.set_sensitive(true);
        (header::AUTHORIZATION, value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Reads a key.
fn read(path: &Path) -> Result<Secret, AppError> {
    let text = read_small_file(path)?;
    Secret::new(&text).ok_or_else(|| AppError::File {
        path: path.to_owned(),
        problem: "the key is empty or has characters that no header may have; write the key alone"
            .to_owned(),
    })
}

/// A file with a key: watched.
pub(super) struct KeyFile {
    watch: Reloader<Secret, AppError>,
    secret: Secret,
    failing: bool,
}

impl KeyFile {
    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, or holds no key.
    pub(super) fn new(path: &Path) -> Result<Self, AppError> {
        let (watch, secret) = Reloader::new(path, read)?;
        Ok(Self {
            watch,
            secret,
            failing: false,
        })
    }

    /// The last key that could be used.
    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Whether the file, as it is, cannot be used.
    pub(super) fn failing(&self) -> bool {
        self.failing
    }

    /// Takes the key, when the file has changed; or says why the last one stays, once for each change.
    pub(super) fn poll(&mut self) -> Option<Result<(), AppError>> {
        let read = self.watch.poll()?;
        self.failing = read.is_err();
        Some(read.map(|secret| self.secret = secret))
    }
}
