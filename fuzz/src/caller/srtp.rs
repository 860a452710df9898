//! What a client makes of the keys that its DTLS has agreed on: packets of SRTP and SRTCP out of any plain text.

use std::fmt;

use str0m::crypto::dtls::SrtpProfile;
use str0m::crypto::{AeadAes256Gcm, AeadAes256GcmCipher, SrtpProvider};

/// The labels of RFC 3711 section 4.3.1.
const RTP: [u8; 2] = [0, 2];
const RTCP: [u8; 2] = [3, 5];

/// A key, and a salt.
const MASTER: usize = AeadAes256Gcm::KEY_LEN;
const SALT: usize = AeadAes256Gcm::SALT_LEN;

/// RFC 3550 section 5.1, and RFC 3711 section 3.4: what is in the clear at the least.
const RTP_HEADER: usize = 12;
const RTCP_HEADER: usize = 8;

struct Half {
    cipher: Box<dyn AeadAes256GcmCipher>,
    salt: [u8; SALT],
}

/// The sender's half of SRTP.
pub(super) struct Srtp {
    rtp: Half,
    rtcp: Half,
    /// Of RTCP: packets sent.
    index: u32,
    /// Of RTP: the last packet's sequence number, and how often these have begun anew.
    last: u64,
}

impl fmt::Debug for Srtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Srtp")
    }
}

impl Srtp {
    /// From the material of RFC 5764 section 4.2, by whoever began the handshake or did not.
    pub(super) fn new(
        provider: &dyn SrtpProvider,
        material: &[u8],
        profile: SrtpProfile,
        active: bool,
    ) -> Self {
        assert_eq!(
            profile,
            SrtpProfile::AEAD_AES_256_GCM,
            "what the engines prefer"
        );
        let own = usize::from(!active);
        let master = &material[own * MASTER..][..MASTER];
        let salt = &material[2 * MASTER + own * SALT..][..SALT];
        let half = |[key, salting]: [u8; 2]| Half {
            cipher: provider
                .aead_aes_256_gcm()
                .create_cipher(derive(provider, master, salt, key), true),
            salt: derive(provider, master, salt, salting),
        };
        Self {
            rtp: half(RTP),
            rtcp: half(RTCP),
            index: 0,
            last: 0,
        }
    }

    /// A packet of RTP, whatever it says. `None` for what has no header.
    pub(super) fn rtp(&mut self, plain: &[u8]) -> Option<Vec<u8>> {
        let header = rtp_header(plain)?;
        let sequence = u16::from_be_bytes([plain[2], plain[3]]);
        let ssrc = u32::from_be_bytes(plain[8..12].try_into().ok()?);
        self.last = extended(self.last, sequence);
        let again = u32::try_from(self.last >> 16).ok()?;
        let iv = AeadAes256Gcm::rtp_iv(self.rtp.salt, ssrc, again, sequence);
        sealed(
            &mut self.rtp,
            &iv,
            &plain[..header],
            &plain[..header],
            &plain[header..],
        )
    }

    /// A packet of RTCP, whatever it says. `None` for what has no header.
    pub(super) fn rtcp(&mut self, plain: &[u8]) -> Option<Vec<u8>> {
        let (header, rest) = plain.split_at_checked(RTCP_HEADER)?;
        let ssrc = u32::from_be_bytes(header[4..].try_into().ok()?);
        let trailer = (0x8000_0000 | self.index).to_be_bytes();
        let iv = AeadAes256Gcm::rtcp_iv(self.rtcp.salt, ssrc, self.index);
        self.index += 1;
        let aad = [header, &trailer].concat();
        let mut packet = sealed(&mut self.rtcp, &iv, header, &aad, rest)?;
        packet.extend_from_slice(&trailer);
        Some(packet)
    }
}

/// How much of a packet is in the clear: the header with all that it says belongs to it, as far as there is so much.
fn rtp_header(packet: &[u8]) -> Option<usize> {
    let first = *packet.get(..RTP_HEADER)?.first()?;
    let mut length = RTP_HEADER + 4 * usize::from(first & 0x0f);
    if first & 0x10 != 0 {
        let words = packet.get(length + 2..length + 4)?;
        length += 4 + 4 * usize::from(u16::from_be_bytes([words[0], words[1]]));
    }
    (length <= packet.len()).then_some(length)
}

/// The number next to the last that ends in this sequence number.
fn extended(last: u64, sequence: u16) -> u64 {
    let ahead = sequence.wrapping_sub(last as u16) as i16;
    last.checked_add_signed(i64::from(ahead))
        .unwrap_or(u64::from(sequence))
}

fn sealed(
    half: &mut Half,
    iv: &[u8; 12],
    header: &[u8],
    aad: &[u8],
    rest: &[u8],
) -> Option<Vec<u8>> {
    let mut packet = header.to_vec();
    packet.resize(header.len() + rest.len() + AeadAes256Gcm::TAG_LEN, 0);
    let output = &mut packet[header.len()..];
    half.cipher.encrypt(iv, aad, rest, output).ok()?;
    Some(packet)
}

/// RFC 3711 section 4.3.3, for a key derivation rate of zero.
fn derive<const N: usize>(
    provider: &dyn SrtpProvider,
    master: &[u8],
    salt: &[u8],
    label: u8,
) -> [u8; N] {
    let mut input = [0; 16];
    input[..SALT].copy_from_slice(salt);
    input[7] ^= label;
    let mut derived = [0; N];
    for (round, piece) in (0u16..).zip(derived.chunks_mut(16)) {
        input[14..].copy_from_slice(&round.to_be_bytes());
        // The provider wants room for a block more.
        let mut block = [0; 32];
        provider.srtp_aes_256_ecb_round(master, &input, &mut block);
        piece.copy_from_slice(&block[..piece.len()]);
    }
    derived
}
