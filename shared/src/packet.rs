//! Which protocol a packet on the public port belongs to, by its first byte (RFC 7983 section 7).
//!
//! The ranges do not overlap, so one byte decides. ZRTP, TURN channels and QUIC (RFC 9443) are not served here: they fall
//! under [`PacketClass::Other`].

/// The class of a packet from a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketClass {
    /// No payload at all.
    Empty,
    /// First byte 0 to 3.
    Stun,
    /// First byte 20 to 63.
    Dtls,
    /// First byte 128 to 191: RTP or RTCP, which only the session can tell apart.
    Rtp,
    /// Anything else.
    Other,
}

/// Classifies a UDP payload of any length.
#[must_use]
pub fn classify(payload: &[u8]) -> PacketClass {
    match payload.first() {
        None => PacketClass::Empty,
        Some(0..=3) => PacketClass::Stun,
        Some(20..=63) => PacketClass::Dtls,
        Some(128..=191) => PacketClass::Rtp,
        Some(_) => PacketClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_first_byte_has_the_class_of_rfc_7983() {
        for byte in 0..=255u8 {
            let expected = match byte {
                0..=3 => PacketClass::Stun,
                20..=63 => PacketClass::Dtls,
                128..=191 => PacketClass::Rtp,
                _ => PacketClass::Other,
            };
            assert_eq!(classify(&[byte, 0]), expected, "first byte {byte}");
        }
        assert_eq!(classify(&[]), PacketClass::Empty);
    }
}
