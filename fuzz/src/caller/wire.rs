//! A client's DTLS, by which it sends other SCTP than its engine means to, and which tells what keys it has agreed on.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use crc::{CRC_32_ISCSI, Crc};
use firsthop_transceiver::dtls::Identity;
use str0m::config::{CryptoProvider, DtlsCert, DtlsVersion};
use str0m::crypto::CryptoError;
use str0m::crypto::dtls::{
    DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, ProtocolVersion, SrtpProfile,
};

/// Of an SCTP packet: ports, tag, checksum (RFC 9260 section 3).
const COMMON: usize = 12;
/// Of a DATA chunk, with all that is before the user's data (section 3.3.1).
const DATA: usize = 16;
/// More than this DTLS does not take in one.
const LONGEST: usize = 1_100;
/// RFC 9260 appendix A.
const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

thread_local! {
    /// That of the engine that was built last on this thread.
    static BUILT: RefCell<Option<Wire>> = const { RefCell::new(None) };
}

/// What takes the place of the next DATA chunk.
#[derive(Clone, Debug)]
pub(super) enum Instead {
    /// Whatever these are: chunks, if they parse.
    Chunks(Vec<u8>),
    /// A message: its stream, its protocol (RFC 8831 section 8), its bytes.
    Message(u16, u32, Vec<u8>),
}

/// The holder's end of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    keys: Option<(Vec<u8>, SrtpProfile, bool)>,
    instead: Option<Instead>,
}

impl Wire {
    /// A provider whose DTLS has such an end: [`Wire::built`], once an engine has been built with it.
    pub(super) fn provider() -> Arc<CryptoProvider> {
        static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
        let make = || {
            let stock = Identity::process().expect("an identity").provider();
            let mut provider = (*stock).clone();
            provider.dtls_provider = Box::leak(Box::new(Tapping(stock)));
            Arc::new(provider)
        };
        Arc::clone(PROVIDER.get_or_init(make))
    }

    /// That of the engine which this thread has built last.
    pub(super) fn built() -> Self {
        BUILT.take().expect("an engine with DTLS")
    }

    /// The keying material, its profile, and whether the client began the handshake.
    pub(super) fn keys(&self) -> Option<(Vec<u8>, SrtpProfile, bool)> {
        self.state().keys.clone()
    }

    /// What the next DATA chunk becomes.
    pub(super) fn send_instead(&self, instead: Instead) {
        self.state().instead = Some(instead);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An SCTP packet as it is to be sent.
    fn rewritten(&self, packet: &[u8]) -> Vec<u8> {
        let mut packet = packet.to_vec();
        let mut state = self.state();
        if let Some(at) = data_chunk(&packet)
            && let Some(instead) = state.instead.take()
        {
            match instead {
                Instead::Chunks(chunks) => {
                    packet.truncate(COMMON);
                    packet.extend_from_slice(&chunks[..chunks.len().min(LONGEST)]);
                }
                Instead::Message(stream, protocol, message) => {
                    let message = &message[..message.len().min(LONGEST)];
                    let length = u16::try_from(DATA + message.len()).unwrap_or_default();
                    packet.truncate(at + DATA);
                    packet[at + 2..at + 4].copy_from_slice(&length.to_be_bytes());
                    packet[at + 8..at + 10].copy_from_slice(&stream.to_be_bytes());
                    packet[at + 12..at + 16].copy_from_slice(&protocol.to_be_bytes());
                    packet.extend_from_slice(message);
                    packet.resize(packet.len().next_multiple_of(4), 0);
                }
            }
            packet[8..COMMON].fill(0);
            let checksum = CHECKSUM.checksum(&packet);
            packet[8..COMMON].copy_from_slice(&checksum.to_le_bytes());
        }
        packet
    }
}

/// Where the first DATA chunk of an SCTP packet begins.
fn data_chunk(packet: &[u8]) -> Option<usize> {
    let mut at = COMMON;
    loop {
        let [kind, _, high, low] = *packet.get(at..at + 4)?.first_chunk()?;
        if kind == 0 {
            return (at + DATA <= packet.len()).then_some(at);
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        at += length.max(4).next_multiple_of(4);
    }
}

struct Tapping(Arc<CryptoProvider>);

impl fmt::Debug for Tapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tapping")
    }
}

impl DtlsProvider for Tapping {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        self.0.dtls_provider.generate_certificate()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        let dtls = self.0.dtls_provider.new_dtls(cert, now, version, mtu)?;
        let wire = Wire::default();
        BUILT.set(Some(wire.clone()));
        Ok(Box::new(Tapped { dtls, wire }))
    }
}

#[derive(Debug)]
struct Tapped {
    dtls: Box<dyn DtlsInstance>,
    wire: Wire,
}

impl DtlsInstance for Tapped {
    fn set_active(&mut self, active: bool) {
        self.dtls.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.dtls.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        let active = self.dtls.is_active();
        let output = self.dtls.poll_output(buf);
        if let DtlsOutput::KeyingMaterial(material, profile) = &output {
            self.wire.state().keys = Some((material.to_vec(), *profile, active));
        }
        output
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.dtls.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        let packet = self.wire.rewritten(data);
        self.dtls.send_application_data(&packet)
    }

    fn is_active(&self) -> bool {
        self.dtls.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.dtls.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.dtls.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.dtls.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.dtls.close()
    }
}
