//! TLS to model servers: rustls on aws-lc, and whom it trusts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Whose certificates are trusted, beside those of [`config`]'s extra file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Roots {
    /// Mozilla's list, compiled in: the same everywhere.
    #[default]
    Webpki,
    /// The system's list.
    Native,
    /// Nobody's.
    None,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The extra file.
    #[error("cannot read certificates from {path}: {problem}; give a PEM file")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The system's list.
    #[error("the system has no usable root certificates: {0}")]
    System(String),
    /// The library refused.
    #[error(transparent)]
    Library(#[from] tokio_rustls::rustls::Error),
}

/// TLS 1.2 and 1.3 that trusts these, and the certificates in the file.
///
/// # Errors
/// The file or the system has no usable certificate.
pub fn config(roots: Roots, extra: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::Webpki => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Roots::Native => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = store.add_parsable_certificates(found.certs);
            if added == 0 {
                let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
                return Err(TlsError::System(errors.join("; ")));
            }
        }
        Roots::None => {}
    }
    if let Some(path) = extra {
        let file = |problem: String| TlsError::File {
            path: path.to_owned(),
            problem,
        };
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| file(error.to_string()))?;
        if certificates.is_empty() {
            return Err(file("it has none".to_owned()));
        }
        for certificate in certificates {
            store
                .add(certificate)
                .map_err(|error| file(error.to_string()))?;
        }
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
