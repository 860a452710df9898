//! Which relay leads, on virtual time.

use firsthop_shared::address::Networks;
use firsthop_shared::fleet::Fleet;
use proptest::prelude::*;

use super::*;

const OWN: ClusterId = ClusterId(1);
const OTHER: ClusterId = ClusterId(2);
const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLI;

/// A list with so many relays in cluster 2, at 10.2.0.1 and on, of two cores each, and one in cluster 3.
fn list(relays: u8) -> Arc<PeerList> {
    let entries: Vec<String> = (1..=relays)
        .map(|host| format!("{{ address = \"10.2.0.{host}\", cores = 2 }}"))
        .collect();
    let text = format!(
        "[[cluster]]\nid = 1\nname = \"own\"\n[[cluster]]\nid = 2\nname = \"b\"\nrelays = [{}]
         [[cluster]]\nid = 3\nname = \"c\"\nrelays = [{{ address = \"10.3.0.1\", cores = 1 }}]
         [[ingress]]\nid = 0\nipv4 = \"203.0.113.1:3478\"\n",
        entries.join(",")
    );
    let fleet = Fleet::parse(&text).expect("a fleet");
    let internal = Networks::parse("10.0.0.0/8").expect("networks");
    Arc::new(PeerList::new(&fleet, OWN, &internal).0)
}

/// Peers, and the relays at the other end, each at some distance and alive or not.
struct World {
    peers: Peers,
    now: Micros,
    /// By host of cluster 2, from 1: whether it answers.
    alive: [bool; 4],
    /// There and back.
    way: u64,
    /// Questions and answers on their way: when they arrive, to or from where, of which number.
    questions: Vec<(Micros, Hop, u64)>,
    answers: Vec<(Micros, Hop, u64)>,
    asked: Vec<(Micros, Hop)>,
    fail_overs: u64,
}

impl World {
    fn new(relays: u8, way: u64) -> Self {
        let now = Micros(77 * SECOND);
        Self {
            peers: Peers::new(list(relays), true, now),
            now,
            alive: [true; 4],
            way,
            questions: Vec::new(),
            answers: Vec::new(),
            asked: Vec::new(),
            fail_overs: 0,
        }
    }

    /// The host of cluster 2's leading relay.
    fn leader(&self) -> u8 {
        let (_, entry) = self
            .peers
            .leaders()
            .find(|(cluster, _)| *cluster == OTHER)
            .expect("a relay");
        match entry.address {
            std::net::IpAddr::V4(ip) => ip.octets()[3],
            std::net::IpAddr::V6(_) => panic!("no such relay"),
        }
    }

    fn is_alive(&self, hop: Hop) -> bool {
        match hop.ip() {
            std::net::IpAddr::V4(ip) if ip.octets()[1] == 2 => {
                self.alive[usize::from(ip.octets()[3]) - 1]
            }
            _ => true,
        }
    }

    /// Lets time pass in turns of ten milliseconds, as an idle core's.
    fn run(&mut self, duration: u64) {
        let end = self.now.after(Micros(duration));
        while self.now < end {
            self.now = self.now.after(Micros(10 * MILLI));
            for (at, to, number) in arrived(&mut self.questions, self.now) {
                if self.is_alive(to) {
                    self.answers
                        .push((at.after(Micros(self.way / 2)), to, number));
                }
            }
            for (_, from, number) in arrived(&mut self.answers, self.now) {
                let turned = self.peers.answer(self.now, from, number);
                self.fail_overs += turned.expect("it was asked").fail_overs;
            }
            self.fail_overs += self.peers.watch(self.now).fail_overs;
            while let Some(question) = self.peers.question(self.now) {
                self.asked.push((self.now, question.to));
                let at = self.now.after(Micros(self.way / 2));
                self.questions.push((at, question.to, question.number));
            }
        }
    }

    /// Runs until the leader is another one, and returns how long that took.
    fn until_leader_is(&mut self, host: u8) -> u64 {
        let start = self.now;
        while self.leader() != host {
            self.run(10 * MILLI);
            assert!(self.now.0 - start.0 < 60 * SECOND, "waited in vain");
        }
        self.now.0 - start.0
    }
}

/// Takes what has arrived by now.
fn arrived(on_the_way: &mut Vec<(Micros, Hop, u64)>, now: Micros) -> Vec<(Micros, Hop, u64)> {
    let (due, later) = on_the_way.iter().partition(|one| one.0 <= now);
    *on_the_way = later;
    due
}

#[test]
fn each_relay_is_asked_once_a_second_at_its_first_core() {
    let mut world = World::new(3, 20 * MILLI);
    world.run(9_990 * MILLI);
    for host in 1..=3 {
        let of_host: Vec<Hop> = world
            .asked
            .iter()
            .map(|(_, hop)| *hop)
            .filter(|hop| hop.ip().to_string() == format!("10.2.0.{host}"))
            .collect();
        assert_eq!(of_host.len(), 10, "relay {host}");
        // The file may give it more cores than it runs yet.
        assert!(of_host.iter().all(|hop| hop.port() == 4_000));
    }
    assert_eq!(world.leader(), 1);
    assert_eq!(world.fail_overs, 0);
}

#[test]
fn a_dead_relay_gives_way_to_the_next_within_three_seconds_and_a_fifth() {
    // However the death falls between two questions, and however far it is.
    for way in [0, 20 * MILLI, 150 * MILLI] {
        for phase in 0..10 {
            let mut world = World::new(2, way);
            world.run(10 * SECOND + phase * 100 * MILLI);
            assert_eq!(world.leader(), 1);
            world.alive[0] = false;
            let took = world.until_leader_is(2);
            let most = 3 * SECOND + 200 * MILLI;
            assert!(took <= most, "{took} us, {way} us away, phase {phase}");
            // It missed three answers, and not fewer.
            assert!(took > 2 * SECOND, "{took} us");
            assert_eq!(world.fail_overs, 1);
        }
    }
}

#[test]
fn two_lost_answers_in_a_row_are_no_death() {
    let mut world = World::new(2, 150 * MILLI);
    world.run(5 * SECOND);
    for _ in 0..5 {
        // Long enough for two questions, whatever the phase.
        world.alive[0] = false;
        world.run(1_900 * MILLI);
        world.alive[0] = true;
        world.run(3 * SECOND);
        assert_eq!(world.leader(), 1);
    }
    assert_eq!(world.fail_overs, 0);
}

#[test]
fn the_preferred_relay_is_taken_again_after_three_answers_in_a_row() {
    let mut world = World::new(2, 10 * MILLI);
    world.run(5 * SECOND);
    world.alive[0] = false;
    world.until_leader_is(2);
    // It answers now and then: never three times in a row.
    for _ in 0..5 {
        world.alive[0] = true;
        world.run(1_900 * MILLI);
        world.alive[0] = false;
        world.run(2 * SECOND);
        assert_eq!(world.leader(), 2);
    }
    world.alive[0] = true;
    let took = world.until_leader_is(1);
    assert!((2 * SECOND..4 * SECOND).contains(&took), "{took} us");
}

#[test]
fn when_none_answers_the_first_of_the_list_is_tried_on() {
    let mut world = World::new(3, 10 * MILLI);
    world.run(5 * SECOND);
    world.alive = [false; 4];
    world.run(20 * SECOND);
    assert_eq!(world.leader(), 1);
    world.alive[2] = true;
    world.until_leader_is(3);
}

#[test]
fn a_relay_that_never_answered_leads_until_its_time_is_over() {
    let mut world = World::new(2, 10 * MILLI);
    world.alive = [false; 4];
    assert_eq!(world.leader(), 1);
    world.alive[1] = true;
    // The second has answered, the first has not yet: who answers is surer.
    assert!(world.until_leader_is(2) < SECOND);
    world.run(5 * SECOND);
    assert_eq!(world.leader(), 2);
    assert_eq!(world.fail_overs, 0, "the first has never led anything");
}

#[test]
fn whoever_answers_first_leads_until_the_preferred_one_does_and_none_has_failed() {
    let mut world = World::new(2, 10 * MILLI);
    world.alive[0] = false;
    world.until_leader_is(2);
    world.alive[0] = true;
    world.until_leader_is(1);
    assert_eq!(world.fail_overs, 0);
    world.alive[0] = false;
    world.until_leader_is(2);
    world.alive[0] = true;
    world.until_leader_is(1);
    assert_eq!(world.fail_overs, 2, "over, and back");
}

#[test]
fn a_core_that_was_away_takes_nobody_for_dead_and_asks_nobody_twice_at_once() {
    let mut world = World::new(2, 10 * MILLI);
    world.run(5 * SECOND);
    world.now = world.now.after(Micros(60 * SECOND));
    world.asked.clear();
    world.answers.clear();
    world.questions.clear();
    world.run(10 * MILLI);
    assert_eq!((world.leader(), world.fail_overs), (1, 0));
    assert!(world.asked.len() <= 1);
    world.run(10 * SECOND);
    assert_eq!((world.leader(), world.fail_overs), (1, 0));
}

#[test]
fn a_core_that_has_no_time_to_ask_takes_nobody_for_dead() {
    // At first, when nobody has been asked yet; and when all have answered before.
    for before in [0, 5 * SECOND] {
        let mut world = World::new(2, 10 * MILLI);
        world.run(before);
        let known = world.peers.bits();
        for _ in 0..1_000 {
            world.now = world.now.after(Micros(10 * MILLI));
            assert_eq!(world.peers.watch(world.now), Turned::default());
        }
        assert_eq!(world.peers.bits(), known);
        // It asks again, and finds that one has died.
        world.questions.clear();
        world.answers.clear();
        world.alive[0] = false;
        assert!(world.until_leader_is(2) <= 3 * SECOND + 200 * MILLI);
    }
}

#[test]
fn an_answer_counts_once_and_only_from_whom_it_was_asked() {
    let mut world = World::new(2, 10 * MILLI);
    let question = loop {
        world.now = world.now.after(Micros(10 * MILLI));
        if let Some(question) = world.peers.question(world.now) {
            break question;
        }
    };
    let from = |text: &str| Hop::new(text.parse().expect("an address"));
    let now = world.now;
    for (hop, number) in [
        (from("10.2.0.1:4900"), question.number),
        (from("10.9.0.1:4000"), question.number),
        (question.to, question.number + 1),
        (question.to, 0),
    ] {
        assert_eq!(world.peers.answer(now, hop, number), None);
    }
    for known in [true, false] {
        let turned = world.peers.answer(now, question.to, question.number);
        assert_eq!(turned.is_some(), known);
    }
}

#[test]
fn a_reload_keeps_what_is_known_of_relays_that_stay() {
    let mut world = World::new(2, 10 * MILLI);
    world.run(5 * SECOND);
    world.alive[0] = false;
    world.until_leader_is(2);
    world.peers.set_list(list(3), world.now);
    assert_eq!(world.leader(), 2, "the first is still down");
    assert!(world.peers.lead_to(ClusterId(3)));
    world.run(5 * SECOND);
    assert_eq!(world.leader(), 2);
    assert_eq!(world.peers.bits()[0][0], 0b1110);
    assert_eq!(world.peers.bits()[1][0], 0b1010);
    world.peers.set_list(list(1), world.now);
    assert_eq!(world.leader(), 1, "there is no other");
    world.peers.set_list(Arc::default(), world.now);
    assert!(!world.peers.lead_to(OTHER));
    assert_eq!(
        world.peers.question(world.now.after(Micros(9 * SECOND))),
        None
    );
}

#[test]
fn who_sends_to_no_other_cluster_asks_nobody() {
    let mut peers = Peers::new(list(2), false, Micros(0));
    for second in 1..20 {
        let now = Micros(second * SECOND);
        assert_eq!(peers.watch(now), Turned::default());
        assert_eq!(peers.question(now), None);
    }
    assert!(
        peers
            .cluster_of(Hop::new(([10, 2, 0, 1], 4000).into()))
            .is_some()
    );
}

#[test]
fn a_client_takes_the_core_that_its_address_selects_at_the_leading_relay() {
    let world = World::new(2, 10 * MILLI);
    let mut seen = [false; 2];
    for port in 1_000..1_050u16 {
        let client = ClientAddr::new(([203, 0, 113, 9], port).into());
        let lane = world.peers.lane(OTHER, &client).expect("a relay");
        let expected = crate::Steering::new(0, 2).core_for(&client);
        assert_eq!(lane.core, expected);
        seen[usize::from(expected)] = true;
    }
    assert_eq!(seen, [true; 2]);
    assert!(
        world
            .peers
            .lane(ClusterId(9), &ClientAddr::new(([203, 0, 113, 9], 1).into()))
            .is_none()
    );
}

proptest! {
    /// Whatever dies and comes back: each cluster with relays has exactly one that leads, and once things have been still for
    /// long enough, it is the first that lives.
    #[test]
    fn the_first_living_relay_leads_in_the_end(
        steps in prop::collection::vec((0usize..3, any::<bool>(), 1u64..4_000), 0..12), way in 0u64..200,
    ) {
        let mut world = World::new(3, way * MILLI);
        for (relay, alive, millis) in steps {
            world.alive[relay] = alive;
            world.run(millis * MILLI);
            let leaders = world.peers.leaders().filter(|(cluster, _)| *cluster == OTHER).count();
            prop_assert_eq!(leaders, 1);
        }
        world.run(10 * SECOND);
        let first = world.alive[..3].iter().position(|alive| *alive).unwrap_or(0);
        prop_assert_eq!(usize::from(world.leader()), first + 1);
    }
}
