//! Model servers: what translates their protocols, and what keeps the connections to them.
//!
//! ```text
//! audio::Conversation ◄─► Linked<Translator> ◄═ bounded queues ═► connection (a task) ◄─ WebSocket ─► server
//!       worker's turn           sans-IO                          on the worker's runtime
//! ```
//!
//! A [`Translator`] is pure: a protocol needs one, and nothing else here. [`Linked`] joins it to a connection that knows no protocol, and
//! wakes the worker when the server has said something.

mod ahead;
mod apps;
mod args;
mod connection;
mod dial;
mod key;
mod link;
mod misplaced;
mod outage;
mod outputs;
mod pipecat;
mod realtime;
mod retry;
mod speech;
mod stats;
mod tls;
mod translator;
mod unreadable;
mod upstream;

pub use ahead::Glance;
pub use apps::{App, AppError, Apps, AppsReloader, DEFAULT, Kind, Look, parse_url};
pub use args::{BackendArgs, BackendConfig};
pub use connection::{Target, serve};
pub use dial::{Backends, Dialer, Echoes, NoSuchApp, Opened, Wanted};
pub use key::{Auth, Secret};
pub use link::{Line, Linked, Outgoing, Teller, Waker};
pub use outage::Outages;
pub use pipecat::{Pipecat, PipecatSettings, Rate, wire};
pub use realtime::{Format, Realtime, RealtimeSettings, merge};
pub use stats::{BackendStats, LOSSES, encode as encode_stats};
pub use tls::{Roots, TlsError, config as tls_config};
pub use translator::{FromServer, Loss, LossCause, Message, Translator, TranslatorCounters};
