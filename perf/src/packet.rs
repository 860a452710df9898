//! What the load sends: RTP-like packets that say which flow they are of and when they were due, in the sizes of real voice.

use firsthop_shared::packet::{PacketClass, classify};

/// The shortest media packet: an RTP header, the flow's number, a sequence number and the time it was due.
pub const MEDIA_MIN: usize = 12 + 4 + 4 + 8;

/// What a media packet says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The flow's number.
    pub flow: u32,
    /// The packet's number within the run.
    pub sequence: u32,
    /// When it was due, in nanoseconds since the load's start.
    pub due_nanos: u64,
}

impl Stamp {
    /// Writes an RTP-like packet of `size` bytes (at least [`MEDIA_MIN`]) to the start of `out`, and returns its length.
    ///
    /// What lies behind the stamp is whatever `out` holds: nobody reads it.
    ///
    /// # Panics
    /// When `out` is shorter than `size`.
    pub fn write(&self, out: &mut [u8], size: usize) -> usize {
        let out = &mut out[..size.max(MEDIA_MIN)];
        out[0] = 0x80;
        out[1] = 111;
        out[2..4].copy_from_slice(&(self.sequence as u16).to_be_bytes());
        out[12..16].copy_from_slice(&self.flow.to_be_bytes());
        out[16..20].copy_from_slice(&self.sequence.to_be_bytes());
        out[20..28].copy_from_slice(&self.due_nanos.to_be_bytes());
        out.len()
    }

    /// Reads the stamp of a packet that [`Stamp::write`] made.
    #[must_use]
    pub fn read(packet: &[u8]) -> Option<Self> {
        if classify(packet) != PacketClass::Rtp {
            return None;
        }
        Some(Self {
            flow: u32::from_be_bytes(packet.get(12..16)?.try_into().ok()?),
            sequence: u32::from_be_bytes(packet.get(16..20)?.try_into().ok()?),
            due_nanos: u64::from_be_bytes(packet.get(20..28)?.try_into().ok()?),
        })
    }
}

/// Payload sizes of Opus in sixteen equally likely classes: wideband speech with its pauses, 20 ms frames, variable rate
/// around 32 kb/s, as `opusenc --speech --bitrate 32 --vbr` encodes a minute of spoken English.
const VOICE: [u8; 16] = [
    39, 45, 50, 64, 74, 77, 79, 82, 84, 86, 88, 90, 92, 95, 98, 103,
];

/// What SRTP adds to a payload: RTP header, one header extension with the audio level, authentication tag.
const SRTP: usize = 12 + 8 + 10;

/// How large the packets are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizes {
    /// All of one size, in bytes.
    Fixed(usize),
    /// As SRTP packets of a voice call are.
    Voice,
}

impl Sizes {
    /// The size of packet number `sequence`.
    #[must_use]
    pub fn of(self, sequence: u32) -> usize {
        match self {
            Self::Fixed(size) => size.max(MEDIA_MIN),
            // A permutation of the classes, so that neighbours differ and every sixteen packets weigh the same.
            Self::Voice => usize::from(VOICE[sequence.wrapping_mul(7) as usize % 16]) + SRTP,
        }
    }

    /// The largest of them.
    #[must_use]
    pub fn largest(self) -> usize {
        match self {
            Self::Fixed(size) => size.max(MEDIA_MIN),
            Self::Voice => usize::from(VOICE[15]) + SRTP,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_from_its_packet() {
        let stamp = Stamp {
            flow: 70_000,
            sequence: 5,
            due_nanos: 123_456_789_012,
        };
        let mut out = [0; 200];
        assert_eq!(stamp.write(&mut out, 172), 172);
        assert_eq!(Stamp::read(&out), Some(stamp));
        assert_eq!(stamp.write(&mut out, 1), MEDIA_MIN);
        assert_eq!(Stamp::read(&[0x80, 111]), None);
        assert_eq!(Stamp::read(&[22; 60]), None);
    }

    #[test]
    fn every_class_of_voice_is_as_likely() {
        let mut sizes: Vec<usize> = (0..16).map(|i| Sizes::Voice.of(i)).collect();
        sizes.sort_unstable();
        let all: Vec<usize> = VOICE.iter().map(|size| usize::from(*size) + SRTP).collect();
        assert_eq!(sizes, all);
        assert_eq!(Sizes::Fixed(172).of(9), 172);
    }
}
