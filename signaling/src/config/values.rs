//! What the text of each setting stands for.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use axum::http::{HeaderName, HeaderValue};
use firsthop_service::settings::SettingError;
use firsthop_service::traces::{ExportArgs, Share};
use firsthop_shared::address::{IngressId, Networks};
use firsthop_shared::control_secret::CONTROL_SECRET_FIX;
use firsthop_shared::reload::read_small_file;
use firsthop_shared::url_port;

use super::error;
use crate::client::Proxies;
use crate::credentials::Rate;
use crate::limits::ADDRESS_CONNECTIONS_DEFAULT;
use crate::owner::ControlSecret;
use crate::transceivers::{Source, SourceError};

pub(super) fn traces(share: Share, to: ExportArgs) -> Result<(Share, ExportArgs), SettingError> {
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

/// Checks the form; whether a name resolves shows when it is opened.
pub(super) fn listen(places: Vec<String>) -> Result<Vec<String>, SettingError> {
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

pub(super) fn sources(texts: &[String]) -> Result<Vec<Source>, SettingError> {
    let fix = "give control URLs such as http://10.0.0.1:5080";
    if texts.is_empty() {
        return Err(error("--transceivers", "it is not set", fix));
    }
    texts
        .iter()
        .map(|text| text.trim().parse())
        .collect::<Result<_, _>>()
        .map_err(|e: SourceError| error("--transceivers", e.to_string(), fix))
}

pub(super) fn ingresses(texts: &[String]) -> Result<Option<Vec<IngressId>>, SettingError> {
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

pub(super) fn tls(
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

pub(super) fn address_rate(text: &str) -> Result<Option<Rate>, SettingError> {
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
pub(super) fn address_connections(
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

pub(super) fn proxies(trusted: &str, headers: &[String]) -> Result<Proxies, SettingError> {
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
pub(super) fn ice_server(text: &str) -> Result<HeaderValue, SettingError> {
    let bad = || {
        error(
            "--ice-servers",
            "an entry is no stun: or turn: URL, or lacks the username or the credential that turn: needs",
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
    let host = url.split_once(':').map_or("", |(_, host)| host);
    if host.is_empty() {
        return Err(bad());
    }
    url_port::check(url).map_err(|wrong| {
        error(
            "--ice-servers",
            format!("a URL's port cannot be: {wrong}"),
            "give one from 1 to 65535, or leave the colon out",
        )
    })?;
    let (mut username, mut credential) = (None, None);
    for part in parts {
        let (name, value) = part.trim().split_once('=').ok_or_else(bad)?;
        let place = match name {
            "username" => &mut username,
            "credential" => &mut credential,
            _ => return Err(bad()),
        };
        if !plain(value) || place.replace(value).is_some() {
            return Err(bad());
        }
    }
    let mut link = format!("<{url}>; rel=\"ice-server\"");
    match (username, credential) {
        (Some(username), Some(credential)) => {
            link += &format!(
                "; username=\"{username}\"; credential=\"{credential}\"; credential-type=\"password\""
            );
        }
        // A browser takes no turn: URL without them (WebRTC section 4.2.4), and one of the two opens nothing.
        (None, None) if url.starts_with("stun") => {}
        _ => return Err(bad()),
    }
    HeaderValue::from_str(&link).map_err(|_| bad())
}

pub(super) fn control_secret(path: &Path) -> Result<ControlSecret, SettingError> {
    let setting = "--control-secret-file";
    let text = read_small_file(path).map_err(|e| {
        error(
            setting,
            e.to_string(),
            "give a file that holds the secret on one line",
        )
    })?;
    ControlSecret::parse(&text).map_err(|fault| {
        error(
            setting,
            format!("{}: {fault}", path.display()),
            CONTROL_SECRET_FIX,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ice_server_is_a_url_with_both_credentials_or_a_stun_server_with_none() {
        for (text, link) in [
            (
                "stun:stun.example",
                "<stun:stun.example>; rel=\"ice-server\"",
            ),
            (
                "turn:turn.example:3478?transport=udp;username=u;credential=c=d",
                "<turn:turn.example:3478?transport=udp>; rel=\"ice-server\"; username=\"u\"; credential=\"c=d\"; credential-type=\"password\"",
            ),
            (
                "turns:[2001:db8::1]; credential=c; username=u",
                "<turns:[2001:db8::1]>; rel=\"ice-server\"; username=\"u\"; credential=\"c\"; credential-type=\"password\"",
            ),
        ] {
            assert_eq!(ice_server(text).expect(text), link);
        }
        for text in [
            "",
            "http://x",
            "stun:",
            "stun:x:99999",
            "stun:x;username=a",
            "turn:x",
            "turn:x;username=a",
            "turns:x;credential=secret",
            "turn:x;username=;credential=secret",
            "turn:x;username=a;username=b;credential=secret",
            "turn:x:0;username=a;credential=secret",
            "turn:x;username=a;credential=secret;realm=r",
        ] {
            let said = ice_server(text).expect_err(text).to_string();
            assert!(said.starts_with("--ice-servers: "), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
