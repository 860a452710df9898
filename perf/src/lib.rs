//! Measures Firsthop from outside, with the formats of [`firsthop_shared`], beside what the kernel charges and what else
//! there is.
//!
//! | modules | what they are |
//! |---|---|
//! | [`packet`], [`wire`], [`turn`] | what is sent: stamped media of voice sizes, and how programs under test wrap it |
//! | [`place`], [`crowd`], [`owners`], [`rig`] | thousands of clients and hundreds of owners, played by one thread |
//! | [`burst`], [`sinks`] | the cost of a packet at saturation, to receivers that look all the time or that sleep |
//! | [`load`] | latency and loss in an open loop |
//! | [`flood`] | junk at the highest rate, beside live calls |
//! | [`expiry`] | most of a large table is forgotten, beside live calls |
//! | [`subject`], [`process`], [`metrics`] | programs under test, and what the kernel and they themselves say they did |
//! | [`floor`], [`forward`] | the floors, and forwarders to compare with |
//! | [`call`] | whole calls, with ICE, DTLS and SRTP |
//! | [`setup`] | how long a call takes to begin, on lines of every length |
//! | [`sampling`], [`spent`] | where a program's time goes, by Linux's `perf` |
//! | [`measured`] | what every file of results begins with |
//! | [`bench`](mod@bench), [`report`], [`table`] | the whole comparison, and its files |
//! | [`findings`], [`page`] | files of results read back, and all of them as one page |
//! | [`plan`] | how many machines a number of users takes, from what was measured |
//! | [`front_door`], [`stubs`], [`http`] | signaling as a program under test, before transceivers that answer at once |
//! | [`asking`], [`asking_report`] | calls on it: how many a second, and how long each takes |
//! | [`hold`] | calls that are held while something fails, and what their clients hear of it |
//! | [`impair`] | a link of any length between two interfaces |
//! | [`pauses`], [`orders`], [`lines`], [`clock`] | what these two and the model server have in common |
//! | [`mmsg`], [`readable`], [`impair::link`], [`signal`], [`counters`], `drops`, [`setup::world`] | system calls: all `unsafe` of this crate |

pub mod asking;
pub mod asking_report;
pub mod bench;
pub mod burst;
pub mod call;
pub mod clock;
pub mod counters;
pub mod crowd;
mod drops;
pub mod expiry;
pub mod findings;
pub mod flood;
pub mod floor;
mod folder;
pub mod forward;
pub mod front_door;
pub mod hold;
pub mod http;
pub mod impair;
pub mod lines;
pub mod load;
pub mod measured;
pub mod metrics;
pub mod mmsg;
pub mod orders;
pub mod owners;
pub mod packet;
pub mod page;
pub mod pauses;
pub mod place;
pub mod plan;
pub mod process;
pub mod readable;
pub mod report;
pub mod rig;
pub mod sampling;
pub mod setup;
pub mod signal;
pub mod sinks;
pub mod spent;
pub mod stubs;
pub mod subject;
pub mod table;
pub mod turn;
pub mod wire;
