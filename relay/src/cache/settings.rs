//! Where the flow cache is, and how it is reached: settings, checked before anything starts.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use firsthop_relay_core::limits::{QUESTIONS_DEFAULT, QUESTIONS_MAX, QUESTIONS_PER_CORE_MIN};
use firsthop_service::settings::SettingError;
use firsthop_shared::reload::read_small_file;
use firsthop_shared::url_port;
use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::tls;
use super::way::Way;

/// The settings of the flow cache.
#[derive(Args, Clone, Debug)]
pub struct CacheSettings {
    /// Redis that keeps flows for the next start and for other relays of the site: such as redis://user@host:6379/0, rediss:// for
    /// TLS, unix:///path.
    #[arg(
        long = "redis",
        env = "FIRSTHOP_REDIS",
        value_name = "URL",
        hide_env_values = true
    )]
    pub url: Option<RedisUrl>,
    /// File with the password for that Redis.
    #[arg(
        long = "redis-password-file",
        env = "FIRSTHOP_REDIS_PASSWORD_FILE",
        value_name = "FILE"
    )]
    pub password_file: Option<PathBuf>,
    /// File with the certificates (PEM) that a rediss:// server is checked by, in place of the system's.
    #[arg(
        long = "redis-ca-file",
        env = "FIRSTHOP_REDIS_CA_FILE",
        value_name = "FILE"
    )]
    pub ca_file: Option<PathBuf>,
    /// Questions that Redis sees in a second at the most, from all cores of this relay.
    #[arg(
        long = "redis-questions",
        env = "FIRSTHOP_REDIS_QUESTIONS",
        value_name = "N",
        default_value_t = QUESTIONS_DEFAULT
    )]
    pub questions: u32,
}

/// A URL that may hold a password: it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl FromStr for RedisUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisUrl(…)")
    }
}

/// A Redis that can be connected to, and how often it may be asked.
#[derive(Clone)]
pub struct Target {
    pub(super) way: Way,
    /// User, password, database.
    pub(super) login: RedisConnectionInfo,
    /// The address, as logs may show it.
    pub(super) place: String,
    /// Questions in any second, of each core.
    pub questions_per_core: u32,
}

pub(super) const URL: &str = "--redis";
pub(super) const CA_FILE: &str = "--redis-ca-file";
const GOOD_URL: &str = "give one such as redis://10.0.0.5:6379, rediss://cache.example:6380/0 or unix:///run/redis.sock";

impl CacheSettings {
    /// The Redis that is set, for a relay of so many cores; nothing when there is none.
    ///
    /// # Errors
    /// The first setting that is wrong. The error holds no password.
    pub fn check(&self, cores: usize) -> Result<Option<Target>, SettingError> {
        let Some(RedisUrl(url)) = &self.url else {
            for (setting, set) in [
                ("--redis-password-file", self.password_file.is_some()),
                (CA_FILE, self.ca_file.is_some()),
            ] {
                if set {
                    return refuse(setting, "there is no --redis", "set that too, or neither");
                }
            }
            return Ok(None);
        };
        url_port::check(url)
            .map_err(|error| SettingError::new(URL, error.to_string(), GOOD_URL))?;
        // What the parser says of a URL names no part of it.
        let mut info: ConnectionInfo = url.parse().map_err(|error: redis::RedisError| {
            SettingError::new(URL, error.to_string(), GOOD_URL)
        })?;
        if let Some(file) = &self.password_file {
            if info.redis_settings().password().is_some() {
                return refuse(
                    "--redis-password-file",
                    "--redis has a password too",
                    "give one of the two",
                );
            }
            let password = read_password(file)?;
            let settings = info.redis_settings().clone().set_password(password);
            info = info.set_redis_settings(settings);
        }
        let least = QUESTIONS_PER_CORE_MIN.saturating_mul(cores as u32);
        if !(least..=QUESTIONS_MAX).contains(&self.questions) {
            return refuse(
                "--redis-questions",
                format!("{cores} cores cannot share {}", self.questions),
                format!("choose {least} to {QUESTIONS_MAX}"),
            );
        }
        let place = place(info.addr());
        let login = info.redis_settings().clone();
        Ok(Some(Target {
            way: self.way(info.addr())?,
            // Whatever the URL says: a server that does not know RESP3 shows the whole of its first command, which holds the password, in
            // its error, and replies are followed in this notation alone.
            login: login.set_protocol(ProtocolVersion::RESP2),
            place,
            questions_per_core: self.questions / cores as u32,
        }))
    }

    fn way(&self, address: &ConnectionAddr) -> Result<Way, SettingError> {
        let way = match address {
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return refuse(
                    URL,
                    "#insecure would let anybody pass for that Redis",
                    "leave it out, and give --redis-ca-file for certificates that the system does not know",
                );
            }
            ConnectionAddr::TcpTls { host, port, .. } => {
                return tls::way(host, *port, self.ca_file.as_deref());
            }
            ConnectionAddr::Tcp(host, port) => Way::Tcp {
                host: host.clone(),
                port: *port,
            },
            ConnectionAddr::Unix(path) => Way::Unix { path: path.clone() },
            _ => return refuse(URL, "it names no place that is known", GOOD_URL),
        };
        if self.ca_file.is_some() {
            return refuse(
                CA_FILE,
                "--redis is reached without TLS",
                "give a rediss:// URL, or no certificates",
            );
        }
        Ok(way)
    }
}

fn read_password(file: &Path) -> Result<String, SettingError> {
    const SETTING: &str = "--redis-password-file";
    const FIX: &str = "give a file that holds the password on one line";
    let text = read_small_file(file)
        .map_err(|error| SettingError::new(SETTING, error.to_string(), FIX))?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() || password.contains(['\r', '\n']) {
        return refuse(
            SETTING,
            format!("{} does not hold one line", file.display()),
            FIX,
        );
    }
    Ok(password.to_owned())
}

fn place(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) => format!("{host}:{port}"),
        ConnectionAddr::TcpTls { host, port, .. } => format!("{host}:{port} (TLS)"),
        other => other.to_string(),
    }
}

pub(super) fn refuse<T>(
    setting: &'static str,
    problem: impl Into<String>,
    fix: impl Into<std::borrow::Cow<'static, str>>,
) -> Result<T, SettingError> {
    Err(SettingError::new(setting, problem, fix))
}
