//! One DTLS configuration and one certificate for all sessions of the process.
//!
//! str0m's stock provider builds a DTLS configuration for every session, and building one self-tests every key exchange
//! and every signature scheme: 1.6 ms. This provider builds one and shares it. It is also where the first retransmission
//! is lowered: a lost flight otherwise costs a whole second of call setup.
//!
//! The certificate is ECDSA P-256 (small, so that a flight fits a few packets), made when the process starts, and never
//! written down. Clients check it against the fingerprint in the answer (RFC 8827 section 6.5), so it needs no name.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use str0m::config::{CryptoProvider, DtlsCert, DtlsVersion};
use str0m::crypto::CryptoError;
use str0m::crypto::dtls::{
    DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, ProtocolVersion, SrtpProfile,
};

use crate::limits;

/// The process could not make its DTLS identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The configuration was refused: a broken cryptography library.
    #[error("DTLS configuration: {0}")]
    Config(#[from] dimpl::Error),
    /// The certificate could not be made.
    #[error("DTLS certificate: {0}")]
    Certificate(#[from] dimpl::certificate::CertificateError),
}

/// What every session of the process shares for DTLS: the cryptography provider and the certificate.
#[derive(Clone, Debug)]
pub struct Identity {
    provider: Arc<CryptoProvider>,
    certificate: DtlsCert,
}

impl Identity {
    /// Returns the process's identity; the first call makes it.
    ///
    /// # Errors
    /// When the cryptography library fails its own tests or makes no certificate.
    pub fn process() -> Result<&'static Self, IdentityError> {
        static IDENTITY: OnceLock<Identity> = OnceLock::new();
        if let Some(identity) = IDENTITY.get() {
            return Ok(identity);
        }
        let made = Self::make()?;
        Ok(IDENTITY.get_or_init(|| made))
    }

    fn make() -> Result<Self, IdentityError> {
        // ICE proves the return path before DTLS (and our own check proves the source), so the cookie round trip that
        // guards a bare DTLS server would only cost setup time.
        let config = dimpl::Config::builder()
            .mtu(str0m::DATAGRAM_MTU_TARGET)
            .use_server_cookie(false)
            .flight_start_rto(limits::DTLS_FIRST_RETRANSMIT)
            .flight_retries(limits::DTLS_RETRANSMITS)
            .handshake_timeout(limits::CONNECT_TIMEOUT + Duration::from_secs(5))
            .build()?;
        let certificate = dimpl::certificate::generate_self_signed_certificate()?;

        let shared = Box::new(SharedConfig {
            config: Arc::new(config),
        });
        let mut provider = str0m::crypto::from_feature_flags();
        // str0m wants a `'static` provider. Leaked once per process, as a static would be.
        provider.dtls_provider = Box::leak(shared);
        Ok(Self {
            provider: Arc::new(provider),
            certificate,
        })
    }

    /// The provider for [`str0m::RtcConfig::set_crypto_provider`].
    #[must_use]
    pub fn provider(&self) -> Arc<CryptoProvider> {
        Arc::clone(&self.provider)
    }

    /// The certificate for [`str0m::RtcConfig::set_dtls_cert`].
    #[must_use]
    pub fn certificate(&self) -> DtlsCert {
        self.certificate.clone()
    }
}

struct SharedConfig {
    config: Arc<dimpl::Config>,
}

impl fmt::Debug for SharedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedConfig")
    }
}

impl DtlsProvider for SharedConfig {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        dimpl::certificate::generate_self_signed_certificate().ok()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        if mtu.is_some_and(|mtu| mtu < self.config.mtu()) {
            return Err(CryptoError::Other(
                "the shared DTLS configuration has a larger MTU than the session".to_owned(),
            ));
        }
        let config = Arc::clone(&self.config);
        let cert = cert.clone();
        let dtls = match version {
            DtlsVersion::Dtls12 => dimpl::Dtls::new_12(config, cert, now),
            DtlsVersion::Dtls13 => dimpl::Dtls::new_13(config, cert, now),
            DtlsVersion::Auto => dimpl::Dtls::new_auto(config, cert, now),
            other => return Err(CryptoError::Other(format!("unsupported version {other}"))),
        };
        Ok(Box::new(Instance(dtls)))
    }
}

thread_local! {
    /// What the last handshake that ended on this thread agreed on.
    static AGREED: Cell<Option<SrtpProfile>> = const { Cell::new(None) };
}

/// The SRTP profile that the handshake has agreed on which has just ended on this thread; told once.
///
/// The engine keeps it to itself. It takes it from the instance in the drain that ends with its `Connected` event, so whoever
/// takes that event asks right then.
#[must_use]
pub fn take_agreed_profile() -> Option<SrtpProfile> {
    AGREED.take()
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
        let output = self.0.poll_output(buf);
        if let DtlsOutput::KeyingMaterial(_, profile) = &output {
            AGREED.set(Some(*profile));
        }
        output
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Processor time of this thread so far: other load on the machine does not count.
    fn thread_time() -> Duration {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("procfs");
        let nanos = text.split(' ').next().and_then(|n| n.parse().ok());
        Duration::from_nanos(nanos.expect("a number"))
    }

    fn cost_per_session(mut make: impl FnMut()) -> Duration {
        const ROUNDS: u32 = 50;
        make();
        let start = thread_time();
        for _ in 0..ROUNDS {
            make();
        }
        (thread_time() - start) / ROUNDS
    }

    #[test]
    fn every_session_presents_the_same_certificate() {
        let first = Identity::process().expect("an identity");
        let second = Identity::process().expect("an identity");
        assert_eq!(
            first.certificate.certificate,
            second.certificate.certificate
        );
        assert!(
            first.certificate.certificate.len() < 600,
            "one small certificate"
        );
    }

    #[test]
    fn a_session_costs_far_less_than_with_the_stock_provider() {
        let identity = Identity::process().expect("an identity");
        let now = Instant::now();
        let shared = cost_per_session(|| {
            let _rtc = str0m::RtcConfig::new()
                .set_crypto_provider(identity.provider())
                .set_dtls_cert(identity.certificate())
                .build(now);
        });
        let stock = cost_per_session(|| {
            let _rtc = str0m::RtcConfig::new()
                .set_dtls_cert(identity.certificate())
                .build(now);
        });
        println!("per session: shared {shared:?}, stock {stock:?}");
        assert!(shared * 5 < stock, "shared {shared:?}, stock {stock:?}");
    }
}
