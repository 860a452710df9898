//! One DTLS configuration and one certificate for all sessions of the process.
//!
//! str0m's stock provider builds a DTLS configuration for every session, and building one self-tests every key exchange
//! and every signature scheme: 1.6 ms. This provider builds one and shares it. It is also where the first retransmission
//! is lowered: a lost flight otherwise costs a whole second of call setup.
//!
//! The certificate is ECDSA P-256 (small, so that a flight fits a few packets), made when the process starts, and never
//! written down. Clients check it against the fingerprint in the answer (RFC 8827 section 6.5), so it needs no name.
//!
//! A handshake that is ours to begin waits for its session: see [`Hello`].

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use str0m::config::{CryptoProvider, DtlsCert, DtlsVersion};
use str0m::crypto::CryptoError;
use str0m::crypto::dtls::{DtlsInstance, DtlsProvider};
use str0m::{Rtc, RtcConfig};

use crate::hello::Hello;
use crate::limits;
use crate::srtp::Counting;

thread_local! {
    /// What the engine that is being built on this thread begins its handshake by.
    static BUILT: Cell<Option<Hello>> = const { Cell::new(None) };
}

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

    fn config() -> Result<dimpl::Config, dimpl::Error> {
        // ICE proves the return path before DTLS (and our own check proves the source), so the cookie round trip that
        // guards a bare DTLS server would only cost setup time.
        dimpl::Config::builder()
            .mtu(str0m::DATAGRAM_MTU_TARGET)
            .use_server_cookie(false)
            .flight_start_rto(limits::DTLS_FIRST_RETRANSMIT)
            .flight_retries(limits::DTLS_RETRANSMITS)
            .handshake_timeout(limits::CONNECT_TIMEOUT + Duration::from_secs(5))
            .build()
    }

    fn make() -> Result<Self, IdentityError> {
        let config = Self::config()?;
        let certificate = dimpl::certificate::generate_self_signed_certificate()?;

        let shared = Box::new(SharedConfig {
            config: Arc::new(config),
        });
        let mut provider = str0m::crypto::from_feature_flags();
        // str0m wants a `'static` provider. Leaked once per process, as a static would be.
        provider.dtls_provider = Box::leak(shared);
        provider.srtp_provider = Counting::leaked(provider.srtp_provider);
        Ok(Self {
            provider: Arc::new(provider),
            certificate,
        })
    }

    /// Builds an engine with this identity, and what begins its handshake where that is ours to begin.
    ///
    /// The engine makes its DTLS while it is built, and nobody gets at that afterwards: so its maker leaves word for this thread.
    #[must_use]
    pub fn engine(&self, config: RtcConfig, now: Instant) -> (Rtc, Hello) {
        BUILT.set(None);
        let rtc = config
            .set_crypto_provider(self.provider())
            .set_dtls_cert(self.certificate())
            .build(now);
        let hello = BUILT.take().unwrap_or_default();
        hello.hold();
        (rtc, hello)
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
        let hello = Hello::default();
        BUILT.set(Some(hello.clone()));
        Ok(Box::new(hello.instance(dtls, now)))
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

    /// A certificate that fills several packets: one with very many names.
    fn large_certificate() -> dimpl::DtlsCertificate {
        let names: Vec<String> = (0..150).map(|n| format!("name-{n}.example.org")).collect();
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(names).expect("names");
        let certificate = params.self_signed(&key).expect("a certificate");
        dimpl::DtlsCertificate {
            certificate: certificate.der().to_vec(),
            private_key: key.serialize_der(),
        }
    }

    /// Everything that one end has to send; whether it is connected.
    fn packets(dtls: &mut dimpl::Dtls, connected: &mut bool) -> Vec<Vec<u8>> {
        let mut buffer = vec![0; 16_384];
        let mut packets = Vec::new();
        loop {
            match dtls.poll_output(&mut buffer) {
                dimpl::Output::Packet(packet) => packets.push(packet.to_vec()),
                dimpl::Output::Timeout(_) => return packets,
                dimpl::Output::Connected => *connected = true,
                _ => {}
            }
        }
    }

    #[test]
    fn flights_are_cut_into_packets_of_1200_bytes_at_the_most() {
        let config = Arc::new(Identity::config().expect("a configuration"));
        let now = Instant::now();
        let end = |active: bool| {
            let mut dtls = dimpl::Dtls::new_12(Arc::clone(&config), large_certificate(), now);
            dtls.set_active(active);
            dtls
        };
        let mut ends = [end(true), end(false)];
        let mut connected = [false; 2];
        let mut sizes = [Vec::new(), Vec::new()];
        for at in [now, now + limits::DTLS_FIRST_RETRANSMIT] {
            for dtls in &mut ends {
                dtls.handle_timeout(at).expect("a timeout");
            }
            for round in 0..20 {
                let from = round % 2;
                for packet in packets(&mut ends[from], &mut connected[from]) {
                    sizes[from].push(packet.len());
                    ends[1 - from].handle_packet(&packet).expect("a packet");
                }
            }
        }
        assert_eq!(connected, [true; 2]);
        for sizes in sizes {
            let total: usize = sizes.iter().sum();
            assert!(total > 3_000, "{sizes:?}: more than fits two packets");
            assert!(sizes.iter().all(|size| *size <= 1_200), "{sizes:?}");
        }
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
