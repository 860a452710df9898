//! The bounds that the servers of all programs have in common. What differs stands in each program's own `limits`, as [`Limits`].
//!
//! [`Limits`]: crate::server::Limits

use std::time::Duration;

/// How long accepting rests after a failure that is not one connection's own, such as too few file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often a failure to accept is complained of at the most, by each listener: there are ten a second.
pub const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// How long a connection has for its handshake before it may have to make room for another: a burst of handshakes does not end itself.
pub const HANDSHAKE_RESPITE: Duration = Duration::from_secs(1);

/// How long a client has to take an answer before its connection may have to make room for another.
pub const ANSWER_RESPITE: Duration = Duration::from_secs(1);

/// How many files a program must be able to open, beside what it demands itself, to start: what every program has open (up to twenty), what is
/// open for a moment only (files that are read, look-ups of names, certificates), and connections of a few who ask how it is.
pub const FILES_LEAST: u64 = 48;

/// How many files a program has open beside its sockets: event queues, timers, threads that look names up, files that are read.
pub const FILES_RESERVE: u64 = 128;

/// How long a line of the log waits for a reader that is busy. It then is lost, and the lines behind it do not wait for some time.
pub const LOG_PATIENCE: Duration = Duration::from_millis(50);

/// How long nothing waits for the log's reader after it has made a line be lost: it is no more than slow if it takes some in the meantime.
pub const LOG_IMPATIENCE: Duration = Duration::from_secs(1);

/// How much of a line is written at once, in bytes: as much as a pipe takes whole when it takes anything (`PIPE_BUF`).
pub const LOG_PIECE: usize = 4_096;

/// How many headers of a request are parsed; more get a bare 431. Above what servers take, so that their own refusal is heard, in words.
pub const HEADERS_PARSED: usize = 256;

/// How many bytes of a request's head are parsed at the most; more get a bare 431. A connection holds no more than that unread.
pub const HEAD_BYTES_PARSED: usize = 128 * 1_024;

/// How long the path MTU to another program is believed before the kernel is asked again.
pub const PATH_MTU_AGE: Duration = Duration::from_secs(10);

/// How soon it is asked again about a path that takes less than it said.
pub const PATH_MTU_DOUBT: Duration = Duration::from_secs(1);

/// The smallest MTU that a path to another program may be bound to, in bytes: what IPv6 guarantees (RFC 8200 section 5).
pub const MTU_MIN: u16 = 1_280;

/// The largest MTU that a path may be bound to, in bytes; datagrams end at the format's own bound below it.
pub const MTU_MAX: u16 = 9_216;

/// How long a connection that is closed before its request was read whole goes on reading, so that its client hears the answer.
pub const LINGER: Duration = Duration::from_secs(1);

/// How much is read then at the most, in bytes.
pub const LINGER_BYTES: usize = 1024 * 1_024;
