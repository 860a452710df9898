//! The frames of Pipecat's protobuf serializer, as `pipecat/frames/frames.proto` of pipecat-ai 1.14 has them.
//!
//! Every WebSocket message is binary and holds one [`Frame`]. Fields and kinds that are not known here are skipped, as protobuf has it.

use prost::{Message as _, Oneof};

/// Text: what the bot says, or is to say.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Text {
    /// Counted by the sender; nothing depends on it.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// For the sender's log.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The text.
    #[prost(string, tag = "3")]
    pub text: String,
}

/// Sound, either way.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Audio {
    /// Counted by the sender; nothing depends on it.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// For the sender's log.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Signed 16-bit samples, little-endian, the channels in turn.
    #[prost(bytes = "vec", tag = "3")]
    pub audio: Vec<u8>,
    /// Samples per second of each channel.
    #[prost(uint32, tag = "4")]
    pub sample_rate: u32,
    /// How many channels there are.
    #[prost(uint32, tag = "5")]
    pub num_channels: u32,
    /// When it is to be presented, in nanoseconds; not used on this transport.
    #[prost(uint64, optional, tag = "6")]
    pub pts: Option<u64>,
}

/// What the user said.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Transcription {
    /// Counted by the sender; nothing depends on it.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// For the sender's log.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The text.
    #[prost(string, tag = "3")]
    pub text: String,
    /// Who said it.
    #[prost(string, tag = "4")]
    pub user_id: String,
    /// When, in ISO 8601.
    #[prost(string, tag = "5")]
    pub timestamp: String,
}

/// A message of the application's, or of RTVI.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Note {
    /// JSON.
    #[prost(string, tag = "1")]
    pub data: String,
}

/// The bot was interrupted, or is to be.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Interruption {
    /// Counted by the sender; nothing depends on it.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// For the sender's log.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// One message of the protocol.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Frame {
    /// What it is; `None` for a kind that is not known here.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5")]
    pub frame: Option<Kind>,
}

/// The kinds of frames.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Kind {
    /// Text.
    #[prost(message, tag = "1")]
    Text(Text),
    /// Sound.
    #[prost(message, tag = "2")]
    Audio(Audio),
    /// What the user said.
    #[prost(message, tag = "3")]
    Transcription(Transcription),
    /// A message.
    #[prost(message, tag = "4")]
    Message(Note),
    /// An interruption.
    #[prost(message, tag = "5")]
    Interruption(Interruption),
}

/// Reads one message; `None` when it is no frame at all.
#[must_use]
pub fn read(bytes: &[u8]) -> Option<Frame> {
    Frame::decode(bytes).ok()
}

/// One message with this frame.
#[must_use]
pub fn write(kind: Kind) -> Vec<u8> {
    Frame { frame: Some(kind) }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The bytes on the left are what pipecat-ai's own ProtobufFrameSerializer writes.
    #[test]
    fn frames_are_read_and_written_as_pipecat_does() {
        let frames: [(&[u8], Kind); 5] = [
            (
                b"\x12\x25\x08\x01\x12\x15OutputAudioRawFrame#0\x1a\x04\x01\x00\xff\x7f \xc0\xbb\x01(\x01",
                Kind::Audio(Audio {
                    id: 1,
                    name: "OutputAudioRawFrame#0".into(),
                    audio: vec![1, 0, 255, 127],
                    sample_rate: 24_000,
                    num_channels: 1,
                    pts: None,
                }),
            ),
            (
                b"\n\x13\x08\x02\x12\x0bTextFrame#0\x1a\x02hi",
                Kind::Text(Text {
                    id: 2,
                    name: "TextFrame#0".into(),
                    text: "hi".into(),
                }),
            ),
            (
                b"\x1a\x1f\x08\x03\x12\x14TranscriptionFrame#0\x1a\x02hi\"\x01u",
                Kind::Transcription(Transcription {
                    id: 3,
                    name: "TranscriptionFrame#0".into(),
                    text: "hi".into(),
                    user_id: "u".into(),
                    timestamp: String::new(),
                }),
            ),
            (
                b"*\x17\x08\x04\x12\x13InterruptionFrame#0",
                Kind::Interruption(Interruption {
                    id: 4,
                    name: "InterruptionFrame#0".into(),
                }),
            ),
            (
                b"\"\x04\n\x02{}",
                Kind::Message(Note { data: "{}".into() }),
            ),
        ];
        for (bytes, kind) in frames {
            assert_eq!(read(bytes).and_then(|f| f.frame), Some(kind.clone()));
            assert_eq!(write(kind), bytes);
        }
    }

    #[test]
    fn kinds_of_tomorrow_are_none_and_broken_bytes_are_no_frame() {
        assert_eq!(read(b"\x32\x00"), Some(Frame { frame: None }));
        assert_eq!(read(b""), Some(Frame { frame: None }));
        for bytes in [
            &b"\x12"[..],
            b"\x12\x09\x1a",
            b"\x0a\x03\x1a\x01\xff",
            b"\xff",
        ] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }
}
