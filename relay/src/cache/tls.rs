//! TLS to Redis: rustls on aws-lc, and whom it trusts.

use std::path::Path;
use std::sync::Arc;

use firsthop_service::settings::SettingError;
use firsthop_shared::reload::read_small_file;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::settings::{CA_FILE, URL, refuse};
use super::way::Way;

/// The way over TLS 1.2 or 1.3 to a server whose certificate is for that host, and signed by one of the file's, or of the system's
/// when there is no file.
///
/// # Errors
/// No certificate can be for that host, or there are none to check it by.
pub(super) fn way(host: &str, port: u16, ca_file: Option<&Path>) -> Result<Way, SettingError> {
    let Ok(name) = ServerName::try_from(host.to_owned()) else {
        let fix = "give the name or address that its certificate is for";
        return refuse(URL, format!("no certificate can be for '{host}'"), fix);
    };
    let roots = match ca_file {
        Some(file) => of_file(file)?,
        None => of_system()?,
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingError::new(URL, error.to_string(), "reach it without TLS"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Way::Tls {
        host: host.to_owned(),
        port,
        name,
        connector: TlsConnector::from(Arc::new(config)),
    })
}

fn of_file(file: &Path) -> Result<RootCertStore, SettingError> {
    let cannot = |problem: &dyn std::fmt::Display| {
        SettingError::new(
            CA_FILE,
            format!("{}: {problem}", file.display()),
            "give a PEM file with certificates",
        )
    };
    let text = read_small_file(file).map_err(|error| cannot(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = certificate.map_err(|error| cannot(&error))?;
        roots.add(certificate).map_err(|error| cannot(&error))?;
    }
    if roots.is_empty() {
        return Err(cannot(&"it has no certificate"));
    }
    Ok(roots)
}

fn of_system() -> Result<RootCertStore, SettingError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return refuse(
            CA_FILE,
            format!(
                "there is none, and the system has no certificates ({})",
                errors.join("; ")
            ),
            "give a PEM file with those that Redis' certificate is signed by",
        );
    }
    Ok(roots)
}
