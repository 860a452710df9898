//! Every bound of the relay's acting part, each written once. Those of its pure part stand in `firsthop-relay-core`.

use std::ops::Range;
use std::time::Duration;

use firsthop_relay_core::limits::{
    CHANGES_MAX, CLAIMS_PER_FLOW, EXPIRY_BUDGET, RECALL_PACKETS, RECALL_WAIT,
};
use firsthop_service::server::Limits;
use firsthop_shared::limits::{
    CLIENT_PACKET_MAX, FLOW_IDLE_SECS, TRUNK_DATAGRAM_MAX, TRUNK_RECORDS_MAX,
};
use firsthop_shared::trunk::RECORD_HEADER_MAX;

use crate::ring::HEADROOM;

/// Submission queue entries of a packet ring: how much one turn sends at the most.
pub const RING_ENTRIES: u16 = 1_024;

/// Receive buffers of a core's public sockets. Trunks that wait and sends under way hold some of them.
pub const PUBLIC_BUFFERS: u16 = 1_024;

/// Length of a public receive buffer, in bytes: headroom and the largest client packet.
pub const PUBLIC_BUFFER_LEN: usize = 2_048;

/// Receive buffers of a core's internal socket.
pub const INTERNAL_BUFFERS: u16 = 128;

/// Length of an internal receive buffer, in bytes: headroom, the largest trunk datagram, and behind it the headers that its
/// records get when they go on to other relays. They are longer than those that they came with.
pub const INTERNAL_BUFFER_LEN: usize = 15 * 1_024;

/// Records that may wait in trunk datagrams: all that the receive buffers can hold, because a turn that cannot send them
/// leaves them to the next. A public buffer waits in two when two sessions claim its address, an internal one in as many as a
/// datagram has.
pub const PENDING_RECORDS: u32 = CLAIMS_PER_FLOW as u32 * PUBLIC_BUFFERS as u32
    + INTERNAL_BUFFERS as u32 * TRUNK_RECORDS_MAX as u32;

/// Trunk datagrams of a core that may be under way to the kernel.
pub const MESSAGE_SLOTS: u16 = 256;

/// Trains of packets to one client that may be under way to the kernel; with more, packets go one by one.
pub const TRAIN_SLOTS: u16 = 64;

/// Packets of a train at the most: what every kernel with `UDP_SEGMENT` cuts.
pub const TRAIN_MAX: usize = 64;

/// Datagrams that a core may have taken and not yet handled: one for each receive buffer, so that there is always room for
/// all that the completion queue brings. Sends complete behind receives in that queue, and they free what receives wait for.
pub const RECEIVED_MAX: usize = PUBLIC_BUFFERS as usize + INTERNAL_BUFFERS as usize;

/// Receives at the most that are armed ahead of the one that stays, at a socket where empty datagrams end them: so many of those share a
/// turn and its system call.
pub const GLANCES_MAX: u16 = 15;

/// Packets whose flows are looked up ahead at a time, so that waits for memory overlap.
pub const LOOK_AHEAD: usize = 32;

/// A turn with fewer datagrams than this found nothing waiting: the core has time, and trunks are flushed at once.
///
/// The kernel hands over 32 datagrams per socket and turn before it looks at the next socket; half of that means a queue.
pub const BUSY_RECEIVES: usize = 16;

/// Submission entries that downlink packets leave free in every turn, so that trunks can always be sent.
pub const MESSAGE_RESERVE: usize = 64;

/// When fewer public or internal buffers than this are free, in percent, trunks are flushed whatever their age: they hold the
/// others.
pub const BUFFERS_LOW_PERCENT: usize = 25;

/// How often a dropped ring asks the kernel to let go of its memory before it leaks it.
pub const RING_STOP_ROUNDS: usize = 64;

/// How long a core without packets polls before it waits.
pub const SPIN: Duration = Duration::from_micros(50);

/// A turn with so many packets was full: the kernel hands over 32 datagrams per socket before it looks at the next.
pub const FULL_TURN: usize = 32;

/// From so many packets in a millisecond on, a core gathers them instead of waking up for each.
pub const WARM_PACKETS: usize = 16;

/// How long it gathers. It is latency for the first packet of a batch, so it is well below what is heard.
pub const GATHER: Duration = Duration::from_micros(100);

/// How long a core sleeps at the most: glommio's timers and tasks wait that long.
pub const SLEEP_MAX: Duration = Duration::from_millis(10);

/// Keepalives that a turn sends to other relays, at the most: all that one interval has.
pub const QUESTIONS_PER_TURN: usize = firsthop_shared::limits::FLEET_RELAYS_MAX;

/// How often a core publishes its counters.
pub const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

/// How long the task sleeps that measures how late timers are: 200 looks a second.
pub const LATENESS_INTERVAL: Duration = Duration::from_millis(5);

/// Records that other cores may have waiting for a core: state of a client whose downlink came to the wrong core.
pub const NOTES_MAX: usize = 4_096;

/// How many of them a turn takes.
pub const NOTES_PER_TURN: usize = 256;

/// Questions to the flow cache that all cores may have waiting.
pub const CACHE_QUESTIONS: usize = 8_192;

/// Changes for the flow cache that all cores may have waiting.
pub const CACHE_CHANGES: usize = 16_384;

/// Answers of the flow cache that may wait for a core.
pub const CACHE_ANSWERS: usize = 4_096;

/// How many of them a turn takes.
pub const CACHE_ANSWERS_PER_TURN: usize = 256;

/// Questions or changes that go to Redis in one pipeline.
pub const CACHE_BATCH: usize = 256;

/// Pipelines of questions that may be under way at a time.
pub const CACHE_QUESTION_BATCHES: usize = 16;

/// How long an entry of the flow cache lives. A flow that lives longer has it renewed when the expiry wheel looks at it, which is
/// after half of that, and not much more.
pub const CACHE_ENTRY: Duration = Duration::from_secs(60);

/// Bytes in a line that Redis replies: most are `+OK`, and the longest of its errors has a few hundred. Of strings see
/// [`VALUE_MAX`](firsthop_relay_core::cache::VALUE_MAX).
pub const CACHE_REPLY_LINE: usize = 1_024;

/// How much of what Redis says a line of the log shows, in bytes.
pub const CACHE_WORDS: usize = 300;

/// Addresses of Redis' name that are tried, all at once.
pub const CACHE_ADDRESSES: usize = 8;

/// How long it may take to connect to Redis.
pub const CACHE_CONNECT: Duration = Duration::from_secs(2);

/// How long Redis may take to answer. No packet waits that long; who is so late does not only pause, but is out of reach.
pub const CACHE_RESPONSE: Duration = Duration::from_secs(2);

/// After how much silence Redis is asked whether it is still there.
pub const CACHE_PING: Duration = Duration::from_secs(1);

/// The first and the longest pause between two attempts to connect to Redis; each is twice the one before,
/// and shortened by up to a half at random.
pub const CACHE_BACKOFF: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(5);

/// After a connection of so long the pauses begin anew: the end of a shorter one is more of the same.
pub const CACHE_STEADY: Duration = Duration::from_secs(10);

/// A Redis that refused something, and then nothing for so long, has a line in the log again when it refuses the next.
pub const CACHE_REFUSAL_OVER: Duration = Duration::from_secs(60);

/// The receive and send buffer that a public or internal socket asks of the kernel, in bytes.
///
/// At 100,000 packets a second and about 1 KiB of kernel memory for each, this is 40 ms.
pub const SOCKET_BUFFER: usize = 4 * 1_024 * 1_024;

/// How long a start waits for an address that is in use: a former relay's sockets outlive its process for a moment.
pub const BIND_PATIENCE: Duration = Duration::from_secs(2);

/// How often it tries meanwhile.
pub const BIND_RETRY: Duration = Duration::from_millis(10);

/// Listen addresses that one relay serves.
pub const LISTEN_MAX: usize = 16;

/// Cores that one relay runs on.
pub const CORES_MAX: usize = firsthop_shared::limits::CORES_MAX as usize;

/// Locked memory that an executor of glommio needs, in bytes.
pub const MEMLOCK_PER_CORE: u64 = 512 * 1_024;

/// How many files a core has open, at the most: its rings and what wakes them, and a socket for each listen address and the trunks.
pub const FILES_PER_CORE: usize = 64;

/// How many files a core opens at the start beside its sockets, which the admin thread holds once more: rings and what wakes them.
pub const FILES_PER_CORE_START: usize = 8;

/// Memory that an executor registers for storage I/O, in bytes: the least that glommio takes, because there is no storage.
pub const EXECUTOR_IO_MEMORY: usize = 64 * 1_024;

/// How often the pump lets its executor look at timers and run other tasks.
pub const YIELD_INTERVAL: Duration = Duration::from_millis(1);

/// How long the pump's task then pauses at the least. It only has to be pending: see [`shard`](crate::shard).
pub const YIELD: Duration = Duration::from_micros(1);

/// The executor's preemption timer: never, for all practical purposes (see [`shard`](crate::shard)).
pub const PREEMPT: Duration = Duration::from_secs(3_600);

/// How often a relay that loses cores builds its group anew within [`REBUILD_WINDOW`] before its process ends.
pub const REBUILDS_MAX: usize = 3;

/// How long a rebuild counts against the next ones.
pub const REBUILD_WINDOW: Duration = Duration::from_secs(60);

/// How long cores that were asked to stop may take: a turn, and what the kernel needs to let go of a ring.
pub const CORES_STOP: Duration = Duration::from_secs(5);

/// How long a relay forwards after SIGTERM unless set: two looks of a usual health check at `/readyz`, and within the 30 s that
/// Kubernetes gives by default.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(25);

/// The longest time that can be set for it.
pub const DRAIN_MAX: Duration = Duration::from_secs(3_600);

/// How long a core that shall stand still for a hand-over may take to forward what it has.
pub const STAND_STILL: Duration = Duration::from_secs(1);

/// How much of that the flow cache may take to answer what it has been asked: ten times what it needs when it is well, and less
/// than what fills the socket buffers.
pub const STAND_STILL_ANSWERS: Duration = Duration::from_millis(10);

/// How long each end of a hand-over waits for the other's next word. A core may stand still meanwhile, and calls bear some seconds
/// of silence (consent lasts 30); on a machine that does nothing else it takes a millisecond.
pub const HANDOVER_STEP: Duration = Duration::from_secs(5);

/// How long either end waits for the first word of the other.
pub const HANDOVER_ANSWER: Duration = Duration::from_secs(5);

/// How long a successor may take to make its cores. Nobody stands still meanwhile.
pub const HANDOVER_PREPARE: Duration = Duration::from_secs(60);

/// How often a successor whose cores are not prepared yet looks whether the serving relay still waits for it.
pub const HANDOVER_LOOK: Duration = Duration::from_millis(50);

/// How long the thread pauses that could not accept a successor.
pub const HANDOVER_PAUSE: Duration = Duration::from_millis(100);

/// The longest message of a hand-over, in bytes: an offer with all listen addresses has less than 2 KiB.
pub const HANDOVER_MESSAGE: usize = 16 * 1_024;

/// Descriptors that come with one message at the most: the sockets of a core.
pub const HANDOVER_DESCRIPTORS: usize = LISTEN_MAX + 1;

/// How often a relay that stands by looks whether somebody serves.
pub const BYSTANDER_LOOK: Duration = Duration::from_secs(1);

/// How long a relay that has handed over finishes the admin requests that it accepted before.
pub const ADMIN_FAREWELL: Duration = Duration::from_millis(500);

/// What the admin port allows: probes, scrapers, and a person's browser.
pub const ADMIN: Limits = Limits {
    connections: 64,
    head: Duration::from_secs(10),
    body: Duration::from_secs(5),
    stop: Duration::from_secs(1),
};

/// The largest request body that the admin port takes, in bytes: there is nothing to send.
pub const ADMIN_BODY_MAX: usize = 0;

/// How often the control thread looks for changed files.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

const _: () = {
    assert!(
        RING_ENTRIES.is_power_of_two()
            && PUBLIC_BUFFERS.is_power_of_two()
            && INTERNAL_BUFFERS.is_power_of_two()
    );
    // A packet that two sessions claim has a header before and one behind it.
    assert!(
        RECORD_HEADER_MAX <= HEADROOM
            && HEADROOM + CLIENT_PACKET_MAX + RECORD_HEADER_MAX <= PUBLIC_BUFFER_LEN
    );
    assert!(
        HEADROOM + TRUNK_DATAGRAM_MAX + TRUNK_RECORDS_MAX * RECORD_HEADER_MAX
            <= INTERNAL_BUFFER_LEN
    );
    assert!(TRAIN_MAX <= TRUNK_RECORDS_MAX);
    // Whatever lies in receive buffers may wait: what finds no room is never a record that was accepted.
    assert!(
        PENDING_RECORDS as usize
            >= CLAIMS_PER_FLOW * PUBLIC_BUFFERS as usize
                + TRUNK_RECORDS_MAX * INTERNAL_BUFFERS as usize
    );
    // One datagram's records must fit into an empty turn, or it would never be sent on.
    assert!(TRUNK_RECORDS_MAX + MESSAGE_RESERVE + LISTEN_MAX + 2 < RING_ENTRIES as usize);
    // A packet waits for the flow cache no longer than 200 ms, though a sleeping core looks late; and those that wait hold an
    // eighth of the buffers at the most.
    assert!(RECALL_WAIT.0 + SLEEP_MAX.as_micros() as u64 <= 200_000);
    assert!(RECALL_PACKETS <= PUBLIC_BUFFERS / 8);
    // A flow is looked at once in its idle time and a bucket of the wheel: an entry must outlive that, and be renewed at half its life.
    assert!(CACHE_ENTRY.as_secs() == 2 * FLOW_IDLE_SECS as u64);
    // What the expiry and the notes of a turn bring for the cache finds room until the pump takes it.
    assert!(EXPIRY_BUDGET as usize + NOTES_PER_TURN <= CHANGES_MAX);
    assert!(FILES_PER_CORE_START + 2 * (LISTEN_MAX + 1) <= FILES_PER_CORE);
    assert!(MESSAGE_SLOTS < RING_ENTRIES && LISTEN_MAX < u8::MAX as usize);
};
