//! The settings: read from the command line or the environment, checked before anything is opened.
//!
//! A value that cannot be used stops the start with one line that names the setting and the fix.

mod faults;
mod settings;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use axum::http::HeaderValue;
use firsthop_service::gate::AddressBound;
use firsthop_service::secret_files::Secrets;
use firsthop_service::settings::SettingError;
use firsthop_service::traces::{ExportArgs, Share};
use firsthop_shared::address::{ClusterId, IngressId};
use firsthop_shared::fleet::Fleet;

use crate::calls::Steering;
use crate::client::Proxies;
use crate::credentials::Rate;
use crate::files::Paths;
use crate::owner::ControlSecret;
use crate::transceivers::Source;

pub use faults::{bad_file, bad_places, bad_tls};
pub use settings::Settings;

use values::{
    address_connections, address_rate, control_secret, ice_server, ingresses, listen, proxies,
    sources, tls, traces,
};

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
    control_secret_file: PathBuf,
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

    /// The files with secrets.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        Secrets::of([
            ("keyring", Some(self.keyring.as_path())),
            ("api-keyring", Some(self.api_keyring.as_path())),
            (
                "control-secret-file",
                Some(self.control_secret_file.as_path()),
            ),
            ("tls-key", self.tls.as_ref().map(|(_, key)| key.as_path())),
        ])
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
        let control_secret_file = required(
            "--control-secret-file",
            settings.control_secret_file,
            "give the file whose secret the transceivers were given too",
        )?;
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
            control_secret: control_secret(&control_secret_file)?,
            control_secret_file,
        })
    }
}

fn required<T>(
    setting: &'static str,
    value: Option<T>,
    fix: &'static str,
) -> Result<T, SettingError> {
    value.ok_or_else(|| error(setting, "it is not set", fix))
}
