//! Voice between a client's RTP packets and a backend: everything pure, with the time passed in.
//!
//! ```text
//! client's packets ─► Uplink (Reorder, Decoder) ─► PCM ─► Backend ─► PCM ─► Playout ─► Encoder ─► packets to the client
//!                                                         │  ▲                │
//!                            events to the client ◄───────┘  └── what was sent ┘
//! ```
//!
//! [`Conversation`] joins the parts; a session needs only it. PCM is 24 kHz mono, as signed 16-bit samples: the rate of
//! model audio, which Opus takes and gives directly. Every queue is bounded, and says here what happens when it is full.
//!
//! A backend that speaks the client's own G.711 takes and gives its samples, and nothing is resampled: the parts then work at 8 kHz, on
//! samples that turn back into the same bytes ([`Law`]). Opus is never passed through: no backend takes it.

mod backend;
mod codec;
mod coding;
mod conceal;
mod conversation;
mod decode;
mod echo;
mod encode;
mod events;
mod g711;
mod ledger;
mod loss;
mod playout;
mod reorder;
mod resample;
mod tap;
mod turns;
mod uplink;
mod voice;
mod waiting;

pub use backend::{
    Backend, BackendEnd, BackendReport, BackendState, Format, Input, Output, QueueState,
};
pub use codec::{Codec, CodecError, MAX_PACKET};
pub use coding::{Coding, Work};
pub use conversation::{Conversation, ConversationCounters, ConversationSettings, RtpOut};
pub use decode::{Decoder, Origin};
pub use echo::{Echo, EchoCounters};
pub use encode::{Encoder, EncoderSettings, MAX_PAYLOAD, OpusMode};
pub use events::Ids;
pub(crate) use events::{
    OutputBuffer, client_error, disconnected, event, event_id, output_audio_buffer, response_of,
    server_error,
};
pub use g711::Law;
pub use ledger::{ItemId, MAX_ITEMS, PlayoutEvent};
pub use loss::ExpectedLoss;
pub use playout::{MAX_LATE, MIN_SPACING, OutFrame, Playout, PlayoutCounters, PlayoutSettings};
pub use reorder::{CAPACITY, MAX_WAIT, Pushed, Released, Reorder, ReorderCounters};
pub(crate) use resample::{Narrower, Resampler, Widener};
pub use tap::Tap;
pub use turns::Turns;
pub use uplink::{RtpIn, STALL, Uplink, UplinkCounters};
pub use voice::{VoiceDetector, VoiceEvent, VoiceSettings};
pub use waiting::MAX_EVENTS;

/// Samples per second of all PCM: 24 kHz.
pub const SAMPLE_RATE: u32 = 24_000;

/// Samples in one frame of 20 ms.
pub const FRAME: usize = SAMPLE_RATE as usize / 50;
