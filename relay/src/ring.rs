//! The packet ring of one core: receives that stay armed, sends that hold what they read, one system call per turn.
//!
//! glommio has rings of its own; this one carries packets only. It is made inside the executor's thread, because it is
//! `SINGLE_ISSUER | DEFER_TASKRUN`: only that thread may enter it, and completions are made only while it does. Its rules:
//!
//! - [`Ring::enter`] is the turn's one system call. It always asks for events, otherwise a ring of this kind delivers none.
//! - A receive is multishot and ends without notice: out of buffers, an empty datagram, a full completion queue. So
//!   [`Ring::reap`] looks at `F_MORE` of every completion, whatever its result, and [`Ring::arm`] arms again.
//! - The kernel lays a datagram out as 16 bytes of header, [`NAME_LEN`] bytes of name, payload. Once the address is read, these
//!   80 bytes are headroom: the trunk's record header is written there, in front of the payload, and nothing is copied.
//! - Sends never wait (`MSG_DONTWAIT`): a full socket refuses, and the datagram is dropped and counted.
//! - A buffer has readers (see [`BufferId`]); the kernel gets it back when the last is done.

#![allow(unsafe_code)] // Talks to the kernel through shared memory; every pointer in a request is justified below.

mod address;
mod arming;
mod buffers;
mod completions;
mod empties;
mod receives;
mod report;
mod sends;
mod submissions;

use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, squeue};

use buffers::BufferPool;
use empties::Empties;
pub use report::{RingCounters, RingError};
use sends::{Message, Packet, Slots, Train};

use crate::limits;
use crate::waiting::Wait;

/// How many bytes of name a receive asks for. An address needs 28; the rest is room for the largest record header.
pub const NAME_LEN: usize = 64;

/// The kernel's own header in front of the name (`struct io_uring_recvmsg_out`: four 32-bit words).
const RECEIVE_HEADER_LEN: usize = 16;

/// Where a payload starts in its buffer: the headroom in front of it.
pub const HEADROOM: usize = RECEIVE_HEADER_LEN + NAME_LEN;

const PUBLIC_GROUP: u16 = 0;
const INTERNAL_GROUP: u16 = 1;

/// A receive buffer of this core: which pool, and which of its buffers.
///
/// Whoever keeps one counts as a reader: [`Ring::reap`] gives out buffers with one reader, [`Ring::retain`] and
/// [`Ring::release`] change the number, sends keep theirs until the kernel is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferId(u32);

impl BufferId {
    /// No buffer: fills places that hold none yet.
    pub(crate) const NONE: Self = Self(u32::MAX);
    const INTERNAL: u32 = 1 << 16;

    fn new(internal: bool, id: u16) -> Self {
        Self(u32::from(id) | if internal { Self::INTERNAL } else { 0 })
    }

    /// Whether the buffer belongs to the internal socket's pool.
    fn internal(self) -> bool {
        self.0 & Self::INTERNAL != 0
    }

    fn index(self) -> u16 {
        self.0 as u16
    }

    /// The id as a number, for code that only carries it.
    #[must_use]
    pub fn to_raw(self) -> u32 {
        self.0
    }

    /// The id from the number that [`BufferId::to_raw`] gave.
    #[must_use]
    pub fn from_raw(raw: u32) -> Self {
        Self(raw)
    }
}

/// A datagram that came in.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Which socket: an index into the public sockets, or one more than the last for the internal socket.
    pub socket: u8,
    /// Its buffer, with one reader: whoever takes this value.
    pub buffer: BufferId,
    /// Bytes of payload, from [`HEADROOM`] on. 0 is an empty datagram.
    pub len: usize,
    /// Whether the datagram was longer than the buffer, and its rest is lost.
    pub truncated: bool,
    /// The sender's address, as the socket gave it. `None` for a family that is neither IPv4 nor IPv6.
    pub from: Option<SocketAddr>,
}

/// A piece of a trunk datagram: one record, whose buffer has a reader for it.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The buffer that holds both parts.
    pub buffer: BufferId,
    /// A record header that stands apart from its payload; empty when it is part of `body`.
    pub side: Range<usize>,
    /// The record header and the payload, or the payload alone.
    pub body: Range<usize>,
}

/// Why a send was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFull;

/// What a request was, kept in the upper half of its user data; the lower half is a socket or a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Kind {
    Receive = 1,
    Message = 2,
    Packet = 3,
    Wake = 4,
    Train = 5,
    Cancel = 6,
    /// A receive that does not stay: it takes what is there, and has ended when it is submitted.
    Glance = 7,
}

impl Kind {
    fn data(self, index: u16) -> u64 {
        u64::from(self as u32) << 32 | u64::from(index)
    }

    fn of(data: u64) -> (Option<Self>, u16) {
        let kind = match data >> 32 {
            1 => Some(Self::Receive),
            2 => Some(Self::Message),
            3 => Some(Self::Packet),
            4 => Some(Self::Wake),
            5 => Some(Self::Train),
            6 => Some(Self::Cancel),
            7 => Some(Self::Glance),
            _ => None,
        };
        (kind, data as u16)
    }
}

/// How many buffers and slots a ring has.
#[derive(Clone, Copy, Debug)]
pub struct RingSize {
    /// Submission queue entries; the completion queue has eight times as many.
    pub queue: u16,
    /// Buffers of the public sockets.
    pub public_buffers: u16,
    /// Buffers of the internal socket.
    pub internal_buffers: u16,
}

impl Default for RingSize {
    fn default() -> Self {
        Self {
            queue: limits::RING_ENTRIES,
            public_buffers: limits::PUBLIC_BUFFERS,
            internal_buffers: limits::INTERNAL_BUFFERS,
        }
    }
}

/// One core's packet ring over its public sockets, its internal socket and its wake-up eventfd.
///
/// Not `Send`: it works only in the thread that made it.
pub struct Ring {
    /// Dropped first: the kernel forgets the ring before the memory goes that it may read or write.
    uring: Option<IoUring>,
    public: ManuallyDrop<BufferPool>,
    internal: ManuallyDrop<BufferPool>,
    messages: ManuallyDrop<Slots<Message>>,
    packets: ManuallyDrop<Slots<Packet>>,
    trains: ManuallyDrop<Slots<Train>>,
    /// Whether the kernel cuts trains: not on a device that computes no checksums.
    segments: bool,
    /// For each socket whether its multishot receive is armed. The internal socket is the last.
    armed: Box<[bool]>,
    /// For each socket how often empty datagrams end its receives.
    empties: Box<[Empties]>,
    /// Whether receives shall be armed: not while the core stands still (see [`Ring::stop_receiving`]).
    receiving: bool,
    /// What every receive asks for: a name of `NAME_LEN` bytes, no control data, a buffer of the kernel's choice.
    receive: ManuallyDrop<Box<libc::msghdr>>,
    wake_armed: bool,
    /// Where the kernel writes the eventfd's count.
    wake_count: ManuallyDrop<Box<u64>>,
    /// Set when a receive failed in a way that arming again cannot heal.
    broken: Option<(u8, i32)>,
    /// Requests that the kernel may still complete.
    under_way: usize,
    /// Requests queued since the last system call that complete while they are submitted: sends, and glances.
    at_once: u32,
    enter_flags: EnterFlags,
    counters: RingCounters,
    /// Kept open as long as the ring uses them.
    _sockets: Vec<OwnedFd>,
}

impl Ring {
    /// Makes the ring in the calling thread, over sockets that it keeps: the public ones, the internal one, and an eventfd
    /// whose writes wake the ring. Nothing is received before [`Ring::arm`] and [`Ring::enter`].
    ///
    /// # Errors
    /// io_uring is forbidden, too old, or the locked memory is too small.
    pub fn new(
        public: Vec<OwnedFd>,
        internal: OwnedFd,
        wake: OwnedFd,
        size: RingSize,
    ) -> Result<Self, RingError> {
        let sockets = public.len() + 1;
        assert!(sockets < usize::from(u8::MAX), "a socket index is one byte");
        let uring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(8 * u32::from(size.queue))
            .dontfork()
            .build(u32::from(size.queue))
            .map_err(RingError::from_setup)?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(RingError::Unsupported(io::Error::from_raw_os_error(
                libc::EINVAL,
            )));
        }
        let mut enter_flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        if uring.params().is_feature_no_iowait() {
            // A core that waits for packets is idle, not waiting for a disk.
            enter_flags |= EnterFlags::NO_IOWAIT;
        }

        let mut files = public;
        files.push(internal);
        files.push(wake);
        let fds: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        uring
            .submitter()
            .register_files(&fds)
            .map_err(RingError::from_setup)?;

        let public = BufferPool::new(PUBLIC_GROUP, size.public_buffers, limits::PUBLIC_BUFFER_LEN);
        let internal = BufferPool::new(
            INTERNAL_GROUP,
            size.internal_buffers,
            limits::INTERNAL_BUFFER_LEN,
        );
        for pool in [&public, &internal] {
            // SAFETY: the address is the pool's page-aligned array of `count` entries, which lives as long as the pool; the
            // pool lives until after the ring is gone (see `Drop`).
            unsafe {
                uring.submitter().register_buf_ring_with_flags(
                    pool.ring_address(),
                    pool.count(),
                    pool.group(),
                    0,
                )
            }
            .map_err(RingError::from_setup)?;
        }

        // SAFETY: `msghdr` is integers and pointers, for which all zeroes is a valid value.
        let mut receive: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
        receive.msg_namelen = NAME_LEN as libc::socklen_t;

        Ok(Self {
            uring: Some(uring),
            public: ManuallyDrop::new(public),
            internal: ManuallyDrop::new(internal),
            messages: ManuallyDrop::new(Slots::messages(limits::MESSAGE_SLOTS)),
            packets: ManuallyDrop::new(Slots::packets(size.queue)),
            trains: ManuallyDrop::new(Slots::trains(limits::TRAIN_SLOTS)),
            segments: true,
            armed: vec![false; sockets].into_boxed_slice(),
            empties: vec![Empties::default(); sockets].into_boxed_slice(),
            receiving: true,
            receive: ManuallyDrop::new(receive),
            wake_armed: false,
            wake_count: ManuallyDrop::new(Box::new(0)),
            broken: None,
            under_way: 0,
            at_once: 0,
            enter_flags,
            counters: RingCounters::default(),
            _sockets: files,
        })
    }

    /// The index of the internal socket, as in [`Received::socket`].
    #[must_use]
    pub fn internal_socket(&self) -> u8 {
        u8::try_from(self.armed.len() - 1).expect("checked in new")
    }

    /// What the ring has counted so far.
    #[must_use]
    pub fn counters(&self) -> &RingCounters {
        &self.counters
    }

    /// Whether every socket has its receive armed.
    #[must_use]
    pub fn all_armed(&self) -> bool {
        self.armed.iter().all(|&armed| armed)
    }

    /// The turn's system call: submits what is queued, makes completions, and waits for packets as `wait` says.
    ///
    /// # Errors
    /// The ring is unusable, or a receive failed for good. Interruptions, time-outs and a full completion queue are none:
    /// the next turn goes on.
    pub fn enter(&mut self, wait: Wait) -> Result<(), RingError> {
        if let Some((socket, errno)) = self.broken {
            let error = io::Error::from_raw_os_error(errno);
            return Err(RingError::Receive { socket, error });
        }
        let uring = self.uring.as_mut().expect("only drop takes the ring");
        let queued = uring.submission().len();
        if uring.submission().cq_overflow() {
            self.counters.overflows += 1;
        }
        // Sends and glances complete while they are submitted. To wait for a packet means to wait for one completion more; to
        // gather, for more of them than can come.
        let (timeout, wanted) = match wait {
            Wait::No => (Duration::ZERO, 0),
            Wait::Sleep(most) => (most, self.at_once + 1),
            Wait::Gather(time) => (time, self.at_once + limits::RECEIVED_MAX as u32),
        };
        let timeout = Timespec::from(timeout);
        let arguments = SubmitArgs::new().timespec(&timeout);
        self.at_once = 0;
        self.counters.enters += 1;
        // SAFETY: with EXT_ARG the argument is a `io_uring_getevents_arg`, which `SubmitArgs` is; it and the time-out it
        // points to outlive the call. Queued requests were justified where they were pushed.
        let entered = unsafe {
            uring.submitter().enter(
                queued as u32,
                wanted,
                self.enter_flags.bits(),
                Some(&arguments),
            )
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(RingError::Io(error)),
            },
        }
    }

    /// The share of public buffers that the kernel may still fill, in percent.
    #[must_use]
    pub fn public_buffers_free(&self) -> usize {
        self.public.free() * 100 / usize::from(self.public.count())
    }

    /// The share of internal buffers that the kernel may still fill, in percent.
    #[must_use]
    pub fn internal_buffers_free(&self) -> usize {
        self.internal.free() * 100 / usize::from(self.internal.count())
    }

    /// The bytes of a buffer that the caller holds: headroom, payload, and what lay there before.
    #[must_use]
    pub fn bytes(&self, buffer: BufferId) -> &[u8] {
        if buffer.internal() {
            self.internal.bytes(buffer.index())
        } else {
            self.public.bytes(buffer.index())
        }
    }

    /// The bytes of a buffer that the caller holds, to write record headers beside the payload.
    #[must_use]
    pub fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        self.pool(buffer.internal()).bytes_mut(buffer.index())
    }

    /// Adds a reader to a buffer that the caller holds.
    pub fn retain(&mut self, buffer: BufferId) {
        self.pool(buffer.internal()).retain(buffer.index());
    }

    /// Takes a reader away; after the last one the kernel may fill the buffer again (from the next [`Ring::arm`] on).
    pub fn release(&mut self, buffer: BufferId) {
        self.pool(buffer.internal()).release(buffer.index());
    }

    fn pool(&mut self, internal: bool) -> &mut BufferPool {
        if internal {
            &mut self.internal
        } else {
            &mut self.public
        }
    }
}

impl Drop for Ring {
    /// Cancels what is under way and waits for it, so that the kernel does not write into memory that is gone.
    fn drop(&mut self) {
        self.broken = None;
        let mut scratch = Vec::with_capacity(limits::RECEIVED_MAX);
        // What is queued must be known to the kernel to be cancelled; then each round takes what was completed.
        for _ in 0..limits::RING_STOP_ROUNDS {
            if self.under_way == 0 || self.enter(Wait::No).is_err() {
                break;
            }
            if let Some(uring) = &self.uring {
                let _nothing_matched = uring
                    .submitter()
                    .register_sync_cancel(None, CancelBuilder::any());
            }
            self.reap(&mut scratch);
            scratch.clear();
        }
        drop(self.uring.take());
        if self.under_way > 0 {
            // The kernel would not let go. Leaking the memory is sound, freeing it is not.
            return;
        }
        // SAFETY: the ring is gone and had completed every request, so the kernel follows no pointer into these any more.
        // Each is dropped once, here, and nothing touches it later.
        unsafe {
            ManuallyDrop::drop(&mut self.public);
            ManuallyDrop::drop(&mut self.internal);
            ManuallyDrop::drop(&mut self.messages);
            ManuallyDrop::drop(&mut self.packets);
            ManuallyDrop::drop(&mut self.trains);
            ManuallyDrop::drop(&mut self.receive);
            ManuallyDrop::drop(&mut self.wake_count);
        }
    }
}

/// Says whether this process may make a ring of the kind that [`Ring::new`] makes.
///
/// # Errors
/// As [`Ring::new`].
pub fn probe() -> Result<(), RingError> {
    IoUring::<squeue::Entry, cqueue::Entry>::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .build(2)
        .map(drop)
        .map_err(RingError::from_setup)
}
