//! TLS for the API, when a certificate is given: rustls on aws-lc, TLS 1.2 and 1.3, HTTP/1.1.
//!
//! Certificate and key are read again when either file changes, so that a renewed certificate needs no restart. A pair that cannot be used
//! leaves the old one in place: connections go on, and the log says why.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use firsthop_service::gate::Gate;
use firsthop_service::server;
use firsthop_shared::reload::{ReadError, Reloader, read_small_file};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;

use crate::limits::API;
use crate::metrics::Metrics;

/// The setting that names the certificate, as logs and metrics call it.
pub const CERTIFICATE: &str = "tls-certificate";

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate file.
    #[error("{path}: {problem}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The key file. No message holds any of its content.
    #[error("{path}: {problem}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The two do not belong together.
    #[error("certificate and key do not belong together: {0}")]
    Pair(String),
}

/// What connections are served with: the newest good pair.
pub type Tls = watch::Receiver<Arc<ServerConfig>>;

/// Serves the API, with TLS when there is a pair for it, to whom the gate lets in.
pub async fn serve(
    listeners: Vec<TcpListener>,
    router: Router,
    tls: Option<Tls>,
    gate: Arc<Gate>,
    stop: watch::Receiver<bool>,
) {
    match tls {
        None => {
            let plain = |stream| std::future::ready(Ok(stream));
            server::serve_after(plain, listeners, router, API, gate, stop).await;
        }
        Some(tls) => {
            let handshake = move |stream| {
                let config = Arc::clone(&tls.borrow());
                TlsAcceptor::from(config).accept(stream)
            };
            server::serve_after(handshake, listeners, router, API, gate, stop).await;
        }
    }
}

/// Looks at the two files; the other end of [`Tls`].
pub struct TlsWatch {
    certificate: Reloader<String, ReadError>,
    key: Reloader<String, ReadError>,
    sender: watch::Sender<Arc<ServerConfig>>,
}

impl TlsWatch {
    /// Reads both files.
    ///
    /// # Errors
    /// Which of them cannot be used, and why.
    pub fn open(certificate: &Path, key: &Path) -> Result<(Self, Tls), TlsError> {
        let (certificate, chain) =
            Reloader::new(certificate, read_small_file).map_err(|error| TlsError::Certificate {
                path: certificate.to_owned(),
                problem: error.to_string(),
            })?;
        let (key, secret) = Reloader::new(key, read_small_file).map_err(|error| TlsError::Key {
            path: key.to_owned(),
            problem: error.to_string(),
        })?;
        let config = configure(&certificate, &chain, &key, &secret)?;
        let (sender, receiver) = watch::channel(Arc::new(config));
        let watch = Self {
            certificate,
            key,
            sender,
        };
        Ok((watch, receiver))
    }

    /// Takes over what changed.
    pub fn poll(&mut self, metrics: &Metrics) {
        // Both are asked, so that one change of both is one reload.
        if let (None, None) = (self.certificate.poll(), self.key.poll()) {
            return;
        }
        let path = self.certificate.path().display().to_string();
        match self.load() {
            Ok(config) => {
                self.sender.send_replace(Arc::new(config));
                metrics.about().reloaded(CERTIFICATE, true);
                tracing::info!(setting = CERTIFICATE, path, "file reloaded");
            }
            Err(error) => {
                metrics.about().reloaded(CERTIFICATE, false);
                tracing::warn!(setting = CERTIFICATE, path, %error, "changed file cannot be used; the last good pair stays in use");
            }
        }
    }

    fn load(&self) -> Result<ServerConfig, TlsError> {
        let chain =
            read_small_file(self.certificate.path()).map_err(|error| TlsError::Certificate {
                path: self.certificate.path().to_owned(),
                problem: error.to_string(),
            })?;
        let secret = read_small_file(self.key.path()).map_err(|error| TlsError::Key {
            path: self.key.path().to_owned(),
            problem: error.to_string(),
        })?;
        configure(&self.certificate, &chain, &self.key, &secret)
    }
}

fn configure(
    certificate: &Reloader<String, ReadError>,
    chain: &str,
    key: &Reloader<String, ReadError>,
    secret: &str,
) -> Result<ServerConfig, TlsError> {
    let bad_certificate = |problem: String| TlsError::Certificate {
        path: certificate.path().to_owned(),
        problem,
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| bad_certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(bad_certificate("it holds no PEM certificate".to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_slice(secret.as_bytes()).map_err(|_| TlsError::Key {
        path: key.path().to_owned(),
        problem: "it holds no PEM private key".to_owned(),
    })?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_no_client_auth()
                .with_single_cert(chain, secret)
        })
        .map_err(|error| TlsError::Pair(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
