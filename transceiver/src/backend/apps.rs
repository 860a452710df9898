//! Which model server an application's calls go to, and in which words: from flags, and from one file with a table for each application.
//!
//! ```toml
//! [app.default]          # realtime calls name no application; without this table they go where the flags say
//! backend = "realtime"
//! url = "wss://models.example/v1/realtime"
//! model = "voice-1"      # wins over what the client asks for
//! key_file = "key"       # relative to this file; read again when it changes
//! auth = "bearer"        # or "api-key"
//! format = "pcm"         # or "pcmu", "pcma"; when it is missing, the server's word counts (realtime alone)
//! rate = "16000"         # or "8000", "24000": what a bot is sent (pipecat alone)
//! session = { instructions = "Be brief.", audio = { output = { voice = "marin" } } }   # a client's request wins
//! ```

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use firsthop_shared::control::is_app_name;
use firsthop_shared::limits::APP_NAME_MAX;
use firsthop_shared::reload::{ReadError, Reloader, read_small_file};
use firsthop_shared::url_port;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_rustls::rustls::ClientConfig;
use tokio_tungstenite::tungstenite::http::Uri;

use super::connection::Target;
use super::key::{Auth, KeyFile, Secret};
use super::misplaced::misplaced;
use super::pipecat::Rate;
use super::realtime::Format;
use crate::audio::Codec;

/// The application of calls that name none, where the file has it.
pub const DEFAULT: &str = "default";

/// A kind of backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The session hears itself.
    #[default]
    Echo,
    /// A server that speaks OpenAI's Realtime protocol over a WebSocket.
    Realtime,
    /// A bot that speaks Pipecat's protobuf frames over a WebSocket.
    Pipecat,
}

impl Kind {
    /// Its name, as settings have it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Realtime => "realtime",
            Self::Pipecat => "pipecat",
        }
    }
}

/// What one application's calls are served by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct App {
    /// The kind of backend.
    pub kind: Kind,
    /// Where its server is; there for every kind but `echo`.
    pub url: Option<Uri>,
    /// The model, whatever the client asks for.
    pub model: Option<String>,
    /// What is shown to the server.
    pub key: Option<Secret>,
    /// How it is shown.
    pub auth: Auth,
    /// The audio format, when it is fixed.
    pub format: Option<Format>,
    /// The rate at which a bot is sent sound.
    pub rate: Option<Rate>,
    /// What a session begins with.
    pub session: Map<String, Value>,
}

impl App {
    /// The codec that a client had best speak, so that its audio passes through unchanged.
    #[must_use]
    pub fn codec(&self) -> Option<Codec> {
        self.format.and_then(Format::law).map(Codec::from)
    }

    /// Where a session of this application connects to. `asked` is the model that the client wants, for applications that leave it open.
    #[must_use]
    pub fn target(&self, asked: Option<&str>, tls: &Arc<ClientConfig>) -> Option<Target> {
        let url = self.url.as_ref()?;
        let model = self.model.as_deref().or(asked);
        let headers = self.key.iter().map(|key| key.header(self.auth)).collect();
        Some(Target {
            url: model.map_or_else(|| url.clone(), |model| with_model(url, model)),
            headers,
            tls: Arc::clone(tls),
        })
    }
}

/// The URL with the model in its query, unless the query names one.
fn with_model(url: &Uri, model: &str) -> Uri {
    let query = url.query().unwrap_or_default();
    if query.split('&').any(|pair| pair.starts_with("model=")) {
        return url.clone();
    }
    let mut path = format!("{}?{query}", url.path());
    if !query.is_empty() {
        path.push('&');
    }
    path.push_str("model=");
    for byte in model.bytes() {
        // RFC 3986 section 2.3.
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    let mut parts = url.clone().into_parts();
    let Ok(path) = path.parse() else {
        return url.clone();
    };
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).unwrap_or_else(|_| url.clone())
}

/// What is wrong with an application's settings.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The file, or a key's.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file is not of this form.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A setting of one application.
    #[error("{name}: {problem}")]
    Setting {
        /// Which.
        name: String,
        /// What is wrong, and what to do.
        problem: String,
    },
}

impl AppError {
    fn setting(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Setting {
            name: name.into(),
            problem: problem.into(),
        }
    }
}

/// Reads the URL of a server.
///
/// # Errors
/// It is none, or of another scheme, or its port is none; the problem in words.
pub fn parse_url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|error| {
        let shown = without_keys(text);
        format!("{shown} is not a URL ({error}); give one like wss://models.example/v1/realtime")
    })?;
    // A password in a URL would be logged.
    let authority = url.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(
            "there is a user or a password in it; leave it out: a key has a setting of its own"
                .to_owned(),
        );
    }
    let usable = matches!(url.scheme_str(), Some("ws" | "wss"));
    if !usable || authority.is_empty() {
        let shown = without_keys(text);
        return Err(format!(
            "{shown} is not the URL of a WebSocket; give ws:// or wss://, a host and a path, like wss://models.example/v1/realtime"
        ));
    }
    // The parser reads a port above 65535 as none: the key would be shown to whoever listens on the scheme's own.
    url_port::check(text).map_err(|error| {
        format!(
            "{}: {error}; give one from 1 to 65535, or leave the colon out",
            without_keys(text)
        )
    })?;
    Ok(url)
}

/// What may be shown of a text that was to be a URL: nothing of a query, where a key may stand, and nothing at all where a password may.
fn without_keys(text: &str) -> String {
    let shown = text.split(['?', '#']).next().unwrap_or_default();
    if text.contains('@') {
        "what is given".to_owned()
    } else {
        format!("'{shown}'")
    }
}

/// The applications, as they are now.
#[derive(Clone, Debug, Default)]
pub struct Apps {
    fallback: Arc<App>,
    /// `None` without a file: then every name is served by the flags' backend.
    named: Option<HashMap<String, Arc<App>>>,
}

impl Apps {
    /// All calls go there.
    #[must_use]
    pub fn only(app: App) -> Self {
        Self {
            fallback: Arc::new(app),
            named: None,
        }
    }

    /// Whether the server of any of them is connected to by TLS.
    pub(super) fn want_tls(&self) -> bool {
        let named = self.named.iter().flat_map(HashMap::values);
        let mut all = named.chain([&self.fallback]);
        all.any(|app| app.url.as_ref().and_then(Uri::scheme_str) == Some("wss"))
    }

    /// The application of a call that names this one, or none.
    #[must_use]
    pub fn find(&self, name: Option<&str>) -> Option<Arc<App>> {
        match (&self.named, name) {
            (None, _) => Some(Arc::clone(&self.fallback)),
            (Some(named), Some(name)) => named.get(name).cloned(),
            (Some(named), None) => Some(named.get(DEFAULT).unwrap_or(&self.fallback).clone()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Nothing in a file that an editor has only begun to write.
    app: Option<BTreeMap<String, Entry>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    backend: Kind,
    url: Option<String>,
    model: Option<String>,
    key_file: Option<PathBuf>,
    #[serde(default)]
    auth: Auth,
    format: Option<Format>,
    rate: Option<Rate>,
    #[serde(default)]
    session: Map<String, Value>,
}

fn read(path: &Path) -> Result<File, AppError> {
    let text = read_small_file(path)?;
    toml::from_str(&text).map_err(|error| {
        // The parser quotes the line as well, which may be a URL with a key.
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let before = &text.as_bytes()[..at];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        AppError::File {
            path: path.to_owned(),
            problem: format!("line {line}: {}", error.message()),
        }
    })
}

/// The applications, and the files that they come from: watched.
pub struct AppsReloader {
    fallback: App,
    fallback_key: Option<KeyFile>,
    file: Option<Reloader<File, AppError>>,
    /// Why the file, as it is, cannot be used; told already.
    file_fault: Option<String>,
    entries: BTreeMap<String, Entry>,
    keys: BTreeMap<PathBuf, KeyFile>,
}

/// What a look at the files has found.
#[derive(Debug)]
pub struct Look {
    /// The applications, when some file has changed that can be used.
    pub apps: Option<Apps>,
    /// What cannot be used, once for each change: what it says stays as it was.
    pub errors: Vec<AppError>,
    /// Whether any file cannot be used, told now or before: with it, the next start would fail.
    pub failing: bool,
}

impl AppsReloader {
    /// Reads what there is: `fallback` is what the flags say, `key_file` the file of its key, `file` the applications.
    ///
    /// # Errors
    /// The first thing that cannot be used.
    pub fn new(
        mut fallback: App,
        key_file: Option<&Path>,
        file: Option<&Path>,
    ) -> Result<(Self, Apps), AppError> {
        let fallback_key = key_file.map(KeyFile::new).transpose()?;
        if let Some(key) = &fallback_key {
            fallback.key = Some(key.secret().clone());
        }
        let mut this = Self {
            fallback,
            fallback_key,
            file: None,
            file_fault: None,
            entries: BTreeMap::new(),
            keys: BTreeMap::new(),
        };
        if let Some(path) = file {
            let (watch, file) = Reloader::new(path, read)?;
            this.file = Some(watch);
            this.take(file)?;
        }
        let apps = this.apps()?;
        Ok((this, apps))
    }

    /// Looks at the files; nothing when none has changed. Each counts for itself: one that cannot be used keeps nobody from another's new key.
    pub fn poll(&mut self) -> Option<Look> {
        let mut found: Vec<Result<(), AppError>> = self.poll_file().into_iter().collect();
        found.extend(self.keys.values_mut().filter_map(KeyFile::poll));
        if let Some(key) = &mut self.fallback_key {
            found.extend(key.poll());
            self.fallback.key = Some(key.secret().clone());
        }
        if found.is_empty() {
            return None;
        }
        let taken = found.iter().any(Result::is_ok);
        let mut errors: Vec<AppError> = found.into_iter().filter_map(Result::err).collect();
        let apps = taken.then(|| self.apps()).and_then(|apps| match apps {
            Ok(apps) => Some(apps),
            Err(error) => {
                errors.push(error);
                None
            }
        });
        let mut keys = self.keys.values().chain(&self.fallback_key);
        Some(Look {
            apps,
            failing: self.file_fault.is_some() || !errors.is_empty() || keys.any(KeyFile::failing),
            errors,
        })
    }

    /// Takes the file, when it has changed, or could not be taken before. One that has lost its last word of applications is taken for a half-written one: `[app]` alone says that
    /// there are none.
    fn poll_file(&mut self) -> Option<Result<(), AppError>> {
        let watch = self.file.as_mut()?;
        let path = watch.path().to_owned();
        let changed = watch.poll();
        let told = self.file_fault.take_if(|_| changed.is_none());
        let file = match (changed, &told) {
            (Some(file), _) => file,
            // It may be a key that it names and that was not there yet.
            (None, Some(_)) => read(&path),
            (None, None) => return None,
        };
        let taken = file.and_then(|file| match file.app {
            Some(_) => self.take(file),
            None => Err(AppError::File {
                path,
                problem: "it names no application: write [app] alone to have none".to_owned(),
            }),
        });
        self.file_fault = taken.as_ref().err().map(ToString::to_string);
        let untold = told.is_none() || told != self.file_fault;
        untold.then_some(taken)
    }

    /// Takes a new file, and the keys that it names; nothing changes when one of them cannot be used.
    fn take(&mut self, file: File) -> Result<(), AppError> {
        let folder = self.file.as_ref().and_then(|file| file.path().parent());
        let folder = folder.map_or_else(PathBuf::new, Path::to_path_buf);
        let mut entries = file.app.unwrap_or_default();
        let mut keys = BTreeMap::new();
        for (name, entry) in &mut entries {
            check(name, entry)?;
            if let Some(path) = &mut entry.key_file {
                *path = folder.join(&*path);
                if !keys.contains_key(path) {
                    keys.insert(path.clone(), KeyFile::new(path)?);
                }
            }
        }
        self.entries = entries;
        self.keys = keys;
        Ok(())
    }

    fn apps(&self) -> Result<Apps, AppError> {
        let mut named = HashMap::new();
        for (name, entry) in &self.entries {
            let secret = entry
                .key_file
                .as_ref()
                .and_then(|path| self.keys.get(path))
                .map(|key| key.secret().clone());
            named.insert(name.clone(), Arc::new(app(name, entry, secret)?));
        }
        Ok(Apps {
            fallback: Arc::new(self.fallback.clone()),
            named: self.file.is_some().then_some(named),
        })
    }
}

fn check(name: &str, entry: &Entry) -> Result<(), AppError> {
    if !is_app_name(name) {
        return Err(AppError::setting(
            format!("[app.{name:?}]"),
            format!(
                "no URL can name it; give it 1 to {APP_NAME_MAX} letters, digits, '-', '_' or '.'"
            ),
        ));
    }
    app(name, entry, None).map(|_| ())
}

fn app(name: &str, entry: &Entry, key: Option<Secret>) -> Result<App, AppError> {
    let setting = |field: &str| format!("app.{name}.{field}");
    let url = match (entry.backend, &entry.url) {
        (Kind::Echo, None) => None,
        (Kind::Echo, Some(_)) => {
            return Err(AppError::setting(
                setting("url"),
                "an echo has no server; leave it out, or name another backend",
            ));
        }
        (Kind::Realtime | Kind::Pipecat, None) => {
            return Err(AppError::setting(setting("url"), "is missing"));
        }
        (Kind::Realtime | Kind::Pipecat, Some(text)) => {
            Some(parse_url(text).map_err(|problem| AppError::setting(setting("url"), problem))?)
        }
    };
    if let Some((field, problem)) = misplaced(
        entry.backend,
        entry.format,
        entry.rate,
        entry.model.as_deref(),
    ) {
        return Err(AppError::setting(setting(field), problem));
    }
    Ok(App {
        kind: entry.backend,
        url,
        model: entry.model.clone(),
        key,
        auth: entry.auth,
        format: entry.format,
        rate: entry.rate,
        session: entry.session.clone(),
    })
}

#[cfg(test)]
#[path = "apps_tests.rs"]
mod tests;
