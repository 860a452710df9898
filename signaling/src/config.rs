//! The settings: read from the command line or the environment, checked before anything is opened.
//!
//! A value that cannot be used stops the start with one line that names the setting and the fix.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use axum::http::{HeaderName, HeaderValue};
use clap::Parser;
use firsthop_service::gate::AddressBound;
use firsthop_service::settings::{Log, SettingError};
use firsthop_service::traces::{ExportArgs, Share};
use firsthop_shared::address::{ClusterId, IngressId, Networks};
use firsthop_shared::fleet::Fleet;
use firsthop_shared::reload::read_small_file;

use crate::calls::Steering;
use crate::client::Proxies;
use crate::credentials::Rate;
use crate::files::{FilesError, Paths};
use crate::limits::{ADDRESS_CONNECTIONS_DEFAULT, ADDRESS_RATE_DEFAULT};
use crate::owner::ControlSecret;
use crate::tls::TlsError;
use crate::transceivers::Source;

/// Firsthop signaling: takes SDP offers over HTTP and has transceivers answer them.
#[derive(Parser, Debug)]
#[command(name = "signaling", version)]
pub struct Settings {
    /// Address of the HTTP API, as address:port or name:port; may be repeated, or a comma-separated list.
    #[arg(
        long,
        env = "FIRSTHOP_LISTEN",
        value_delimiter = ',',
        default_value = "127.0.0.1:8080"
    )]
    listen: Vec<String>,

    /// Address of the metrics.
    #[arg(long, env = "FIRSTHOP_METRICS", default_value = "127.0.0.1:9103")]
    metrics: String,

    /// Control URLs of the transceivers, such as http://10.0.0.1:5080; may be repeated, or a comma-separated list. A name stands
    /// for a transceiver at each of its addresses.
    #[arg(long, env = "FIRSTHOP_TRANSCEIVERS", value_delimiter = ',')]
    transceivers: Vec<String>,

    /// File with the secret that transceivers ask for on their control port.
    #[arg(long, env = "FIRSTHOP_CONTROL_SECRET_FILE")]
    control_secret_file: Option<PathBuf>,

    /// File with the API keys: `[[key]]` tables with name and sha256. It is read again when it changes; a key that is taken out is
    /// revoked, with the client secrets minted with it. `key = []` alone revokes all; an empty file changes nothing.
    #[arg(long, env = "FIRSTHOP_API_KEYS")]
    api_keys: Option<PathBuf>,

    /// Ingress points that answers may advertise, by id, the preferred first: a client whose place is known gets the nearest of them
    /// [default: all of the fleet, in its order].
    #[arg(long, env = "FIRSTHOP_INGRESSES", value_delimiter = ',')]
    ingresses: Vec<String>,

    /// File with the data keyring.
    #[arg(long, env = "FIRSTHOP_KEYRING")]
    keyring: Option<PathBuf>,

    /// File with the API keyring.
    #[arg(long, env = "FIRSTHOP_API_KEYRING")]
    api_keyring: Option<PathBuf>,

    /// File with the fleet.
    #[arg(long, env = "FIRSTHOP_FLEET")]
    fleet: Option<PathBuf>,

    /// PEM file with the certificate chain: the API is then served over TLS.
    #[arg(long, env = "FIRSTHOP_TLS_CERTIFICATE")]
    tls_certificate: Option<PathBuf>,

    /// PEM file with the private key of the certificate.
    #[arg(long, env = "FIRSTHOP_TLS_KEY")]
    tls_key: Option<PathBuf>,

    /// How many requests one client address may make, as RATE/BURST: so many a second in the long run, so many at once; off sets no limit.
    #[arg(long, env = "FIRSTHOP_ADDRESS_RATE", default_value = ADDRESS_RATE_DEFAULT)]
    address_rate: String,

    /// How many connections one client address may hold at once, or one IPv6 /64; off sets no limit. Trusted proxies have none. Give off, or name the proxies,
    /// where clients come through a balancer that they share the address of [default: 2048; off when --address-rate is off].
    #[arg(long, env = "FIRSTHOP_ADDRESS_CONNECTIONS")]
    address_connections: Option<String>,

    /// Networks of our own proxies and of the CDN, as a comma-separated list of CIDRs: only they are believed about a client's address and place.
    #[arg(long, env = "FIRSTHOP_TRUSTED_PROXIES", default_value = "")]
    trusted_proxies: String,

    /// Headers in which a trusted proxy tells a client's latitude, longitude and country, in this order.
    #[arg(
        long,
        env = "FIRSTHOP_PLACE_HEADERS",
        value_delimiter = ',',
        default_value = "cf-iplatitude,cf-iplongitude,cf-ipcountry"
    )]
    place_headers: Vec<String>,

    /// MaxMind database (.mmdb) of cities or countries: places clients of which no proxy tells the place.
    #[arg(long, env = "FIRSTHOP_PLACES")]
    places: Option<PathBuf>,

    /// How a call gets to the cluster nearest to its client: forward, redirect (307; clients in pages are forwarded all the same, browsers
    /// leave the key out when they follow) or off.
    #[arg(long, env = "FIRSTHOP_STEERING", default_value = "forward")]
    steering: String,

    /// ICE servers that WHIP clients are told of, as stun: or turn: URLs; a turn: URL may be followed by ;username=NAME;credential=SECRET.
    #[arg(long, env = "FIRSTHOP_ICE_SERVERS", value_delimiter = ',')]
    ice_servers: Vec<String>,

    /// Id of the cluster that this signaling serves.
    #[arg(long, env = "FIRSTHOP_CLUSTER")]
    cluster: Option<String>,

    /// Which share of calls is traced, 0 to 1; whoever sends a traceparent with its sampled flag is traced, too, a few calls a second.
    #[arg(
        long,
        env = "FIRSTHOP_TRACE_SAMPLE",
        value_name = "SHARE",
        default_value = "0"
    )]
    trace_sample: Share,

    /// Where traces go.
    #[command(flatten)]
    traces: ExportArgs,

    /// What is logged, and how.
    #[command(flatten)]
    pub log: Log,
}

/// The settings, checked.
#[derive(Debug)]
pub struct Config {
    /// Where the API is served: `address:port` or `name:port`.
    pub listen: Vec<String>,
    /// Where the metrics are served.
    pub metrics: SocketAddr,
    /// Where transceivers are found.
    pub transceivers: Vec<Source>,
    /// The secret of their control port.
    pub control_secret: ControlSecret,
    /// The cluster.
    pub cluster: ClusterId,
    /// Which ingress points are advertised; nothing means all of the fleet's.
    pub ingresses: Option<Vec<IngressId>>,
    /// Certificate chain and key, when the API is served over TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// How often one client address may ask.
    pub address_rate: Option<Rate>,
    /// How many connections it may hold.
    pub address_connections: Option<AddressBound>,
    /// Whom to believe about where a client is.
    pub proxies: Proxies,
    /// The database of places.
    pub places: Option<PathBuf>,
    /// How calls get to other clusters.
    pub steering: Steering,
    /// The values of `Link` headers that name ICE servers.
    pub ice_servers: Vec<HeaderValue>,
    /// Which share of calls is traced, and where traces go.
    pub traces: (Share, ExportArgs),
    keyring: PathBuf,
    api_keyring: PathBuf,
    fleet: PathBuf,
    api_keys: PathBuf,
}

fn error(setting: &'static str, problem: impl Into<String>, fix: &'static str) -> SettingError {
    SettingError::new(setting, problem, fix)
}

impl Config {
    /// Where the reloadable files are.
    #[must_use]
    pub fn paths(&self) -> Paths<'_> {
        Paths {
            keyring: &self.keyring,
            api_keyring: &self.api_keyring,
            fleet: &self.fleet,
            api_keys: &self.api_keys,
        }
    }

    /// Checks what the fleet file must hold for these settings.
    ///
    /// # Errors
    /// A cluster or an ingress that it does not have.
    pub fn check_fleet(&self, fleet: &Fleet) -> Result<(), SettingError> {
        if fleet.cluster(self.cluster).is_none() {
            return Err(error(
                "--cluster",
                format!("{} is not a cluster of the fleet file", self.cluster),
                "name one that is, or add it there",
            ));
        }
        let unknown = self
            .ingresses
            .iter()
            .flatten()
            .find(|id| fleet.ingress(**id).is_none());
        if let Some(id) = unknown {
            return Err(error(
                "--ingresses",
                format!("{id} is not an ingress of the fleet file"),
                "name ids that are, or add it there",
            ));
        }
        Ok(())
    }

    /// Checks every setting, and reads the control secret.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn check(settings: Settings) -> Result<Self, SettingError> {
        let address_rate = address_rate(&settings.address_rate)?;
        let proxies = proxies(&settings.trusted_proxies, &settings.place_headers)?;
        let cluster = required("--cluster", settings.cluster, "give the id of this cluster")?;
        Ok(Self {
            listen: listen(settings.listen)?,
            metrics: settings.metrics.parse().map_err(|_| {
                error(
                    "--metrics",
                    format!("'{}' is not an address and port", settings.metrics),
                    "give one such as 127.0.0.1:9103",
                )
            })?,
            transceivers: sources(&settings.transceivers)?,
            cluster: cluster.parse().map(ClusterId).map_err(|_| {
                error(
                    "--cluster",
                    format!("'{cluster}' is not a cluster id"),
                    "give a number from 0 to 65535",
                )
            })?,
            ingresses: ingresses(&settings.ingresses)?,
            tls: tls(settings.tls_certificate, settings.tls_key)?,
            address_connections: address_connections(
                settings.address_connections.as_deref(),
                address_rate,
            )?
            .map(|connections| AddressBound {
                connections,
                but_for: proxies.trusted.clone(),
            }),
            address_rate,
            proxies,
            places: settings.places,
            steering: match settings.steering.as_str() {
                "forward" => Steering::Forward,
                "redirect" => Steering::Redirect,
                "off" => Steering::Off,
                other => {
                    return Err(error(
                        "--steering",
                        format!("'{other}' is no way to steer"),
                        "give forward, redirect or off",
                    ));
                }
            },
            traces: traces(settings.trace_sample, settings.traces)?,
            ice_servers: settings
                .ice_servers
                .iter()
                .map(|text| ice_server(text.trim()))
                .collect::<Result<_, _>>()?,
            keyring: required(
                "--keyring",
                settings.keyring,
                "give the data keyring, made by `keys init`",
            )?,
            api_keyring: required(
                "--api-keyring",
                settings.api_keyring,
                "give the API keyring, made by `keys init`",
            )?,
            fleet: required("--fleet", settings.fleet, "give the fleet file")?,
            api_keys: required(
                "--api-keys",
                settings.api_keys,
                "give the file of API keys: [[key]] tables with name and sha256",
            )?,
            control_secret: control_secret(&required(
                "--control-secret-file",
                settings.control_secret_file,
                "give the file whose secret the transceivers were given too",
            )?)?,
        })
    }
}

/// The line for a certificate or key that cannot be used.
#[must_use]
pub fn bad_tls(fault: &TlsError) -> SettingError {
    let (setting, fix) = match fault {
        TlsError::Certificate { .. } => (
            "--tls-certificate",
            "give a PEM file with the certificate and those between it and its root",
        ),
        TlsError::Key { .. } => ("--tls-key", "give a PEM file with the private key"),
        TlsError::Pair(_) => (
            "--tls-key",
            "give the key that the certificate was made for",
        ),
    };
    error(setting, fault.to_string(), fix)
}

/// The line for a database of places that cannot be used.
#[must_use]
pub fn bad_places(path: &Path, cause: &dyn fmt::Display) -> SettingError {
    error(
        "--places",
        format!("{}: {cause}", path.display()),
        "give a MaxMind database (.mmdb) of cities or countries",
    )
}

/// The line for a file that cannot be used at the start.
#[must_use]
pub fn bad_file(fault: &FilesError) -> SettingError {
    let (setting, problem, fix) = match fault {
        FilesError::Keyring(e) => (
            "--keyring",
            e.to_string(),
            "make one with `keys init`, and give its data keyring",
        ),
        FilesError::ApiKeyring(e) => (
            "--api-keyring",
            e.to_string(),
            "make one with `keys init`, and give its API keyring",
        ),
        FilesError::Fleet(e) => ("--fleet", e.to_string(), "correct the fleet file"),
        FilesError::ApiKeys(e) => ("--api-keys", e.to_string(), "correct the file of API keys"),
    };
    error(setting, problem, fix)
}

fn traces(share: Share, to: ExportArgs) -> Result<(Share, ExportArgs), SettingError> {
    let nowhere = to.otlp_endpoint.as_deref().unwrap_or_default().is_empty();
    if nowhere && !share.is_none() {
        return Err(error(
            "--trace-sample",
            "there is no collector that takes traces",
            "give its URL as --otlp-endpoint, or leave this out",
        ));
    }
    Ok((share, to))
}

fn required<T>(
    setting: &'static str,
    value: Option<T>,
    fix: &'static str,
) -> Result<T, SettingError> {
    value.ok_or_else(|| error(setting, "it is not set", fix))
}

/// Checks the form; whether a name resolves shows when it is opened.
fn listen(places: Vec<String>) -> Result<Vec<String>, SettingError> {
    let places: Vec<String> = places.iter().map(|p| p.trim().to_owned()).collect();
    let good = |place: &String| {
        let host = place
            .rsplit_once(':')
            .filter(|(_, port)| port.parse::<u16>().is_ok())
            .map(|(host, _)| host);
        match host {
            None | Some("") => false,
            Some(host) => {
                place.parse::<SocketAddr>().is_ok()
                    || host
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
            }
        }
    };
    match places.iter().find(|place| !good(place)) {
        Some(bad) => Err(error(
            "--listen",
            format!("'{bad}' is not an address and port"),
            "give one such as 127.0.0.1:8080, [::1]:8080 or localhost:8080",
        )),
        None => Ok(places),
    }
}

fn sources(texts: &[String]) -> Result<Vec<Source>, SettingError> {
    let fix = "give control URLs such as http://10.0.0.1:5080";
    if texts.is_empty() {
        return Err(error("--transceivers", "it is not set", fix));
    }
    texts
        .iter()
        .map(|text| text.trim().parse())
        .collect::<Result<_, _>>()
        .map_err(|e: crate::transceivers::SourceError| error("--transceivers", e.to_string(), fix))
}

fn ingresses(texts: &[String]) -> Result<Option<Vec<IngressId>>, SettingError> {
    let mut ids = Vec::with_capacity(texts.len());
    for text in texts {
        let id = text.trim().parse().map(IngressId).ok();
        match id.filter(|id| !ids.contains(id)) {
            Some(id) => ids.push(id),
            None => {
                return Err(error(
                    "--ingresses",
                    format!("'{text}' is not an ingress id, or stands there twice"),
                    "give ids of the fleet file, such as 0,1",
                ));
            }
        }
    }
    Ok((!ids.is_empty()).then_some(ids))
}

fn tls(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<(PathBuf, PathBuf)>, SettingError> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(error(
            "--tls-key",
            "it is not set, and --tls-certificate is",
            "give both, or neither",
        )),
        (None, Some(_)) => Err(error(
            "--tls-certificate",
            "it is not set, and --tls-key is",
            "give both, or neither",
        )),
    }
}

fn address_rate(text: &str) -> Result<Option<Rate>, SettingError> {
    if text.trim() == "off" {
        return Ok(None);
    }
    let number = |text: &str| text.trim().parse::<NonZeroU32>().ok();
    text.split_once('/')
        .and_then(|(rate, burst)| {
            Some(Rate {
                per_second: number(rate)?,
                burst: number(burst)?,
            })
        })
        .map(Some)
        .ok_or_else(|| {
            error(
                "--address-rate",
                format!("'{text}' is no rate"),
                "give requests a second and a burst, such as 200/2000, or off",
            )
        })
}

/// Without a word, addresses that may ask as often as they like may hold what they like: many clients share them.
fn address_connections(
    text: Option<&str>,
    rate: Option<Rate>,
) -> Result<Option<NonZeroUsize>, SettingError> {
    match text.map(str::trim) {
        None => Ok(rate.map(|_| ADDRESS_CONNECTIONS_DEFAULT)),
        Some("off") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            error(
                "--address-connections",
                format!("'{text}' is no number of connections"),
                "give one such as 2048, or off where clients share the address of a balancer",
            )
        }),
    }
}

fn proxies(trusted: &str, headers: &[String]) -> Result<Proxies, SettingError> {
    let trusted = if trusted.trim().is_empty() {
        Networks::default()
    } else {
        Networks::parse(trusted).map_err(|e| {
            error(
                "--trusted-proxies",
                e.to_string(),
                "give CIDRs such as 10.0.0.0/8,fd00::/8",
            )
        })?
    };
    let name = |text: &String| text.trim().to_ascii_lowercase().parse::<HeaderName>().ok();
    let names: Option<Vec<HeaderName>> = headers.iter().map(name).collect();
    match names.as_deref() {
        Some([latitude, longitude, country]) => Ok(Proxies {
            trusted,
            latitude: latitude.clone(),
            longitude: longitude.clone(),
            country: country.clone(),
        }),
        _ => Err(error(
            "--place-headers",
            format!("'{}' are not three names of headers", headers.join(",")),
            "give those of latitude, longitude and country",
        )),
    }
}

/// Makes the value of a `Link` header (RFC 9725 section 4.6) of `turn:host:port;username=NAME;credential=SECRET`.
fn ice_server(text: &str) -> Result<HeaderValue, SettingError> {
    let bad = || {
        error(
            "--ice-servers",
            "an entry is no stun: or turn: URL with username and credential",
            "give entries such as stun:stun.example:3478 or turn:turn.example;username=NAME;credential=SECRET",
        )
    };
    let mut parts = text.split(';');
    let url = parts.next().unwrap_or_default();
    let known = ["stun:", "stuns:", "turn:", "turns:"];
    let plain = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_graphic() && !b"<>\"\\".contains(&b))
    };
    if !known.iter().any(|scheme| url.starts_with(scheme)) || !plain(url) {
        return Err(bad());
    }
    let mut link = format!("<{url}>; rel=\"ice-server\"");
    for part in parts {
        match part.trim().split_once('=') {
            Some((name @ ("username" | "credential"), value)) if plain(value) => {
                link += &format!("; {name}=\"{value}\"");
            }
            _ => return Err(bad()),
        }
    }
    if link.contains("; credential=") {
        link += "; credential-type=\"password\"";
    }
    HeaderValue::from_str(&link).map_err(|_| bad())
}

fn control_secret(path: &Path) -> Result<ControlSecret, SettingError> {
    let setting = "--control-secret-file";
    let text = read_small_file(path).map_err(|e| {
        error(
            setting,
            e.to_string(),
            "give a file that holds the secret on one line",
        )
    })?;
    ControlSecret::parse(&text).ok_or_else(|| {
        error(
            setting,
            format!("{} holds no secret", path.display()),
            "put one line of letters, digits and punctuation into it",
        )
    })
}
