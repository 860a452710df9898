//! Virtual time, many clients, and a naive model.

use std::collections::{HashMap, HashSet, VecDeque};

use firsthop_shared::address::{ClientAddr, IngressId};
use proptest::prelude::*;

use super::*;
use crate::flows::{FlowKey, Flows, Transport};

const QUESTIONS: u32 = 10_000;
const UNKNOWN: Reason = Reason::NoFlowRtp;
const MS: u64 = 1_000;

/// A core's recall and its clock.
struct Core {
    recall: Recall,
    hasher: Flows,
    now: Micros,
    buffers: u32,
}

impl Core {
    fn new(questions: u32) -> Self {
        let now = Micros(77);
        Self {
            recall: Recall::new(questions, now),
            hasher: Flows::new(4, [1, 2], 0, 0, false),
            now,
            buffers: 0,
        }
    }

    fn source(&self, client: u32) -> Source {
        let octets = [198, 18, (client >> 24) as u8, (client >> 16) as u8];
        let client = ClientAddr::new((octets, client as u16).into());
        let (ingress, transport) = (IngressId(0), Transport::Udp);
        let key = FlowKey::new(ingress, transport, &client);
        Source {
            ingress,
            transport,
            client,
            key: self.hasher.hashed(key),
        }
    }

    /// A packet in the next buffer. Its number is the buffer's.
    fn packet(&mut self, client: u32) -> Outcome {
        let held = Held {
            source: self.source(client),
            buffer: BufferId(self.buffers),
            len: 99,
        };
        self.buffers += 1;
        self.recall.packet(self.now, held, UNKNOWN)
    }

    fn answer(&mut self, client: u32, denied: Option<Reason>) {
        let key = self.source(client).key;
        self.recall.answer(self.now, &key, denied);
    }

    fn pass(&mut self, millis: u64) {
        self.now.0 += millis * MS;
        self.recall.tick(self.now, u32::MAX);
    }

    /// Buffers whose wait is over, and why they are dropped if they are.
    fn ready(&mut self) -> Vec<(u32, Reason)> {
        std::iter::from_fn(|| self.recall.take_ready())
            .map(|(held, reason)| {
                assert_eq!(held.len, 99);
                (held.buffer.0, reason)
            })
            .collect()
    }
}

const WAITS: Outcome = Outcome {
    ask: false,
    dropped: None,
};

const ASKS: Outcome = Outcome {
    ask: true,
    dropped: None,
};

fn dropped(reason: Reason) -> Outcome {
    Outcome {
        ask: false,
        dropped: Some(reason),
    }
}

#[test]
fn a_client_is_asked_about_once_and_its_first_packets_wait_in_order() {
    let mut core = Core::new(QUESTIONS);
    assert_eq!(core.packet(1), ASKS);
    for _ in 1..RECALL_PACKETS_PER_CLIENT {
        assert_eq!(core.packet(1), WAITS);
    }
    assert_eq!(core.packet(1), dropped(Reason::CacheFull));
    assert_eq!(core.packet(2), ASKS, "another client is another question");
    assert_eq!(core.ready(), []);
    core.answer(1, None);
    let buffers: Vec<u32> = core.ready().into_iter().map(|(buffer, _)| buffer).collect();
    assert_eq!(buffers, (0..8).collect::<Vec<u32>>());
    // The flow is known from now on. Were it lost again, the cache would be asked again.
    assert_eq!(core.packet(1), ASKS);
}

#[test]
fn who_has_no_entry_is_not_asked_about_again_for_a_second() {
    let mut core = Core::new(QUESTIONS);
    assert_eq!(core.packet(1), ASKS);
    core.pass(5);
    core.answer(1, Some(Reason::CacheMiss));
    assert_eq!(core.ready(), [(0, Reason::CacheMiss)]);
    assert_eq!(core.packet(1), dropped(UNKNOWN));
    core.pass(999);
    assert_eq!(core.packet(1), dropped(UNKNOWN));
    core.pass(1);
    assert_eq!(core.packet(1), ASKS);
}

#[test]
fn a_wait_ends_after_its_time_and_a_late_answer_that_helps_is_taken() {
    let mut core = Core::new(QUESTIONS);
    let wait = RECALL_WAIT.0 / MS;
    assert_eq!(core.packet(1), ASKS);
    core.pass(wait - 1);
    assert_eq!(core.ready(), []);
    core.pass(1);
    assert_eq!(core.ready(), [(0, Reason::CacheLate)]);
    assert_eq!(core.packet(1), dropped(UNKNOWN));
    // One that says no changes nothing, and does not begin the second anew.
    core.pass(500);
    core.answer(1, Some(Reason::CacheMiss));
    core.pass(500);
    assert_eq!(core.packet(1), ASKS);
    core.pass(wait);
    assert_eq!(core.ready().len(), 1);
    core.answer(1, None);
    assert_eq!(core.packet(1), ASKS, "what was denied is forgotten");
    assert_eq!(core.recall.counts().late, 2);
}

#[test]
fn all_waits_can_be_ended_before_their_time() {
    let mut core = Core::new(QUESTIONS);
    assert!(!core.recall.is_busy());
    for client in [1, 2] {
        assert_eq!(core.packet(client), ASKS);
    }
    assert!(core.recall.is_busy());
    core.recall.end_all(core.now);
    assert!(core.recall.is_busy(), "packets are left to take");
    let late = Reason::CacheLate;
    assert_eq!(core.ready(), [(0, late), (1, late)]);
    assert!(!core.recall.is_busy());
    assert_eq!(core.recall.counts().late, 2);
    assert_eq!(core.packet(1), dropped(UNKNOWN));
    core.answer(2, None);
    assert_eq!(core.packet(2), ASKS, "a late answer is taken as ever");
}

#[test]
fn a_client_whose_question_found_no_room_is_asked_about_by_its_next_packet() {
    let mut core = Core::new(QUESTIONS);
    assert_eq!(core.packet(1), ASKS);
    let key = core.source(1).key;
    core.recall.withdraw(&key, UNKNOWN);
    assert_eq!(core.ready(), [(0, UNKNOWN)]);
    assert!(!core.recall.is_busy());
    assert_eq!(core.recall.counts().questions, 0);
    assert_eq!(core.packet(1), ASKS);
    assert_eq!(core.recall.counts().questions, 1);
    // Who was answered about has no question to take back.
    core.answer(1, Some(Reason::CacheMiss));
    core.recall.withdraw(&key, UNKNOWN);
    assert_eq!(core.ready(), [(1, Reason::CacheMiss)]);
    assert_eq!(core.packet(1), dropped(UNKNOWN));
}

#[test]
fn an_answer_about_nobody_changes_nothing() {
    let mut core = Core::new(QUESTIONS);
    core.answer(1, None);
    core.answer(1, Some(Reason::CacheMiss));
    assert_eq!(core.ready(), []);
    assert_eq!(core.packet(1), ASKS);
}

#[test]
fn all_clients_together_hold_a_bounded_number_of_packets_and_are_asked_about_all_the_same() {
    let mut core = Core::new(QUESTIONS);
    for client in 0..u32::from(RECALL_PACKETS) {
        assert_eq!(core.packet(client), ASKS);
    }
    let full = Outcome {
        ask: true,
        dropped: Some(Reason::CacheFull),
    };
    assert_eq!(core.packet(500), full);
    core.answer(500, None);
    core.answer(7, None);
    assert_eq!(core.ready(), [(7, Reason::CacheRefused)]);
    // The place is free again.
    assert_eq!(core.packet(501), ASKS);
    assert_eq!(core.packet(502), full);
}

/// A million addresses in three seconds, and a cache that has none of them: what it sees in any second is bounded,
/// and so is what is remembered.
#[test]
fn a_flood_from_a_million_addresses_asks_a_bounded_number_of_questions() {
    const RATE: u32 = 1_000;
    const PER_MS: u32 = 350;
    let mut core = Core::new(RATE);
    let mut asked: VecDeque<(u64, u32)> = VecDeque::new();
    let (mut client, mut questions) = (0, 0u64);
    for millisecond in 0..3_000u64 {
        for _ in 0..PER_MS {
            client += 1;
            if core.packet(client).ask {
                asked.push_back((millisecond, client));
                questions += 1;
            }
        }
        // The cache answers after a millisecond.
        for (_, client) in asked.iter().filter(|(at, _)| at + 1 == millisecond) {
            core.answer(*client, Some(Reason::CacheMiss));
        }
        core.pass(1);
        core.ready();
        while asked
            .front()
            .is_some_and(|(at, _)| at + 1_000 <= millisecond)
        {
            asked.pop_front();
        }
        assert!(
            asked.len() <= RATE as usize,
            "in the second before {millisecond}"
        );
        let known = core.recall.clients.len() - core.recall.free.len();
        assert!(known <= 2 * RATE as usize);
    }
    assert!(
        questions >= 2 * u64::from(RATE),
        "it may ask more: {questions}"
    );
    assert_eq!(
        core.recall.counts().withheld + core.recall.counts().questions,
        u64::from(client)
    );
}

/// When all that are remembered are waited for, nobody gives way: it is not asked.
#[test]
fn a_client_that_waits_gives_way_to_none() {
    let mut core = Core::new(QUESTIONS);
    let places = core.recall.clients.len() as u32;
    // More at once than may be asked about in a second: as the places are twice as many, the clock must stand still.
    core.recall.questions = Budget::new(core.now, 2 * places, 0);
    assert!((0..places).all(|client| core.packet(client).ask));
    assert_eq!(core.packet(places), dropped(UNKNOWN));
    core.answer(3, Some(Reason::CacheMiss));
    assert!(core.packet(places).ask, "in the place of who was denied");
    assert_eq!(core.packet(places + 1), dropped(UNKNOWN));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Packet(u32),
    Hit(u32),
    Miss(u32),
    Pass(u64),
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let client = 0u32..40;
    let step = prop_oneof![
        12 => client.clone().prop_map(Step::Packet),
        2 => client.clone().prop_map(Step::Hit),
        2 => client.prop_map(Step::Miss),
        2 => (0u64..120).prop_map(Step::Pass),
        1 => (400u64..1_300).prop_map(Step::Pass),
        2 => Just(Step::Take),
    ];
    prop::collection::vec(step, 1..400)
}

/// What is known of a client, written from the rules.
struct Known {
    asked: bool,
    since: Micros,
    waiting: Vec<u32>,
}

#[derive(Default)]
struct Model {
    clients: HashMap<u32, Known>,
    ready: Vec<u32>,
    held: HashSet<u32>,
}

impl Model {
    fn packet(&mut self, now: Micros, client: u32, buffer: u32) -> Outcome {
        let denied = |known: &Known| !known.asked && now.0 - known.since.0 >= RECALL_DENIED.0;
        if self.clients.get(&client).is_some_and(denied) {
            self.clients.remove(&client);
        }
        let ask = !self.clients.contains_key(&client);
        let known = self.clients.entry(client).or_insert(Known {
            asked: true,
            since: now,
            waiting: Vec::new(),
        });
        let full = known.waiting.len() == usize::from(RECALL_PACKETS_PER_CLIENT)
            || self.held.len() == usize::from(RECALL_PACKETS);
        let dropped = match (known.asked, full) {
            (false, _) => Some(UNKNOWN),
            (true, true) => Some(Reason::CacheFull),
            (true, false) => None,
        };
        if dropped.is_none() {
            known.waiting.push(buffer);
            self.held.insert(buffer);
        }
        Outcome { ask, dropped }
    }

    fn answer(&mut self, now: Micros, client: u32, hit: bool) {
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        if known.asked {
            self.ready.append(&mut known.waiting);
            known.asked = false;
            known.since = now;
        }
        if hit {
            self.clients.remove(&client);
        }
    }

    fn pass(&mut self, now: Micros) {
        let late = |known: &Known| known.asked && now.0 - known.since.0 >= RECALL_WAIT.0;
        let mut late: Vec<(Micros, u32)> = self
            .clients
            .iter()
            .filter(|(_, known)| late(known))
            .map(|(client, known)| (known.since, *client))
            .collect();
        late.sort();
        for (_, client) in late {
            self.answer(now, client, false);
        }
    }
}

proptest! {
    #[test]
    fn it_does_what_the_naive_model_does(steps in steps()) {
        let mut core = Core::new(2_000);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Packet(client) => {
                    let expected = model.packet(core.now, client, core.buffers);
                    prop_assert_eq!(core.packet(client), expected);
                }
                Step::Hit(client) => {
                    model.answer(core.now, client, true);
                    core.answer(client, None);
                }
                Step::Miss(client) => {
                    model.answer(core.now, client, false);
                    core.answer(client, Some(Reason::CacheMiss));
                }
                Step::Pass(millis) => {
                    core.pass(millis);
                    model.pass(core.now);
                }
                Step::Take => {
                    let mut got: Vec<u32> = core.ready().into_iter().map(|(b, _)| b).collect();
                    for buffer in &got {
                        prop_assert!(model.held.remove(buffer), "held once, returned once");
                    }
                    // Those whose time was up in the same moment come in the order of their questions, or of their clients.
                    got.sort_unstable();
                    model.ready.sort_unstable();
                    prop_assert_eq!(&got, &model.ready);
                    model.ready.clear();
                }
            }
        }
        // In the end nothing is left.
        core.pass(RECALL_WAIT.0 / MS);
        core.ready();
        core.pass(RECALL_DENIED.0 / MS);
        prop_assert_eq!(core.recall.free.len(), core.recall.clients.len());
        prop_assert!(core.recall.ready.first == NONE);
    }

    /// Whatever the moments at which strangers come, in no second are more questions asked than may be.
    #[test]
    fn in_no_second_are_more_questions_asked_than_may_be(
        rate in crate::limits::QUESTIONS_PER_CORE_MIN..60,
        turns in prop::collection::vec((0u64..300_000, 0u32..80), 1..60),
    ) {
        let mut core = Core::new(rate);
        let mut asked: VecDeque<u64> = VecDeque::new();
        let mut client = 0;
        for (passed, packets) in turns {
            core.now.0 += passed;
            core.recall.tick(core.now, u32::MAX);
            for _ in 0..packets {
                client += 1;
                if core.packet(client).ask {
                    asked.push_back(core.now.0);
                }
            }
            core.ready();
            while asked.front().is_some_and(|at| at + 1_000_000 <= core.now.0) {
                asked.pop_front();
            }
            prop_assert!(asked.len() <= rate as usize);
        }
    }
}
