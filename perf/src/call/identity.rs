//! One DTLS configuration and one certificate for all clients of the process.
//!
//! str0m's stock provider builds a configuration for every session and tests every algorithm in it: 1.6 ms a call, which would
//! make the load generator the slower side. What clients of different people have different, the certificate, is the same here: no
//! program under test looks at more of it than its fingerprint.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use str0m::config::{CryptoProvider, DtlsCert, DtlsVersion};
use str0m::crypto::CryptoError;
use str0m::crypto::dtls::{DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, ProtocolVersion};

/// When a client repeats its first flight, as browsers do.
const FIRST_RETRANSMIT: Duration = Duration::from_millis(50);

/// What every client shares.
#[derive(Clone, Debug)]
pub struct Identity {
    provider: Arc<CryptoProvider>,
    certificate: DtlsCert,
}

/// The cryptography library made no configuration or no certificate.
#[derive(Debug, thiserror::Error)]
#[error("DTLS: {0}")]
pub struct IdentityError(String);

impl Identity {
    /// Makes an identity. What it holds stays until the process ends.
    ///
    /// # Errors
    /// The cryptography library fails its own tests.
    pub fn new() -> Result<Self, IdentityError> {
        let failed = |error: &dyn fmt::Display| IdentityError(error.to_string());
        let config = dimpl::Config::builder()
            .mtu(str0m::DATAGRAM_MTU_TARGET)
            // As in browsers: ICE has shown that the server is where it says.
            .use_server_cookie(false)
            .flight_start_rto(FIRST_RETRANSMIT)
            .build()
            .map_err(|error| failed(&error))?;
        let certificate = dimpl::certificate::generate_self_signed_certificate()
            .map_err(|error| failed(&error))?;
        let mut provider = str0m::crypto::from_feature_flags();
        // str0m wants a `'static` provider: leaked once per process.
        provider.dtls_provider = Box::leak(Box::new(Shared(Arc::new(config))));
        Ok(Self {
            provider: Arc::new(provider),
            certificate,
        })
    }

    /// For [`str0m::RtcConfig::set_crypto_provider`].
    #[must_use]
    pub fn provider(&self) -> Arc<CryptoProvider> {
        Arc::clone(&self.provider)
    }

    /// For [`str0m::RtcConfig::set_dtls_cert`].
    #[must_use]
    pub fn certificate(&self) -> DtlsCert {
        self.certificate.clone()
    }
}

struct Shared(Arc<dimpl::Config>);

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl DtlsProvider for Shared {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        dimpl::certificate::generate_self_signed_certificate().ok()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        _mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        let (config, cert) = (Arc::clone(&self.0), cert.clone());
        Ok(Box::new(Instance(match version {
            DtlsVersion::Dtls12 => dimpl::Dtls::new_12(config, cert, now),
            DtlsVersion::Dtls13 => dimpl::Dtls::new_13(config, cert, now),
            DtlsVersion::Auto => dimpl::Dtls::new_auto(config, cert, now),
            other => return Err(CryptoError::Other(format!("unsupported version {other}"))),
        })))
    }
}

struct Instance(dimpl::Dtls);

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Instance")
    }
}

impl DtlsInstance for Instance {
    fn set_active(&mut self, active: bool) {
        self.0.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.0.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        self.0.poll_output(buf)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.0.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        self.0.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.0.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.0.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.0.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.0.close()
    }
}
