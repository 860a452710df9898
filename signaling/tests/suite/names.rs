//! Names of transceivers: one at each address, whatever becomes of the name server.

use std::collections::VecDeque;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::stage::{PATIENCE, Stage, Stub, told};
use firsthop_signaling::names::{LookingUp, Names};
use firsthop_signaling::placement::Standing;
use firsthop_signaling::transceivers::Transceivers;
use tokio::sync::{Barrier, oneshot};
use tokio::time::timeout;

#[tokio::test]
async fn a_name_stands_for_a_transceiver_at_each_of_its_addresses() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage
        .front_but(&[], |door| {
            let name = format!("http://localhost:{}", stub.control.port());
            let sources = vec![name.parse().expect("a name")];
            door.transceivers = Transceivers::new(sources, door.transceivers.client().clone());
        })
        .await;
    assert_eq!(told(front.call().await).await.status, 503);
    front.poll().await;
    front.call_id().await;
    assert_eq!(stub.sessions(), 1);
    // The name may have an address of the other family too, where nobody answers.
    let standings = front.door.transceivers.standings();
    assert!(standings.contains(&(stub.control, Standing::Ready)));
}

/// Names whose server says these things, one after the other.
fn names(said: Vec<LookingUp>) -> Names {
    let said = Arc::new(Mutex::new(VecDeque::from(said)));
    Names::new(move |_, _| {
        let next = said.lock().expect("not poisoned").pop_front();
        next.expect("one more thing to say")
    })
}

fn says(addresses: &[SocketAddr]) -> LookingUp {
    Box::pin(ready(Ok(addresses.to_vec())))
}

fn failure() -> LookingUp {
    Box::pin(ready(Err(io::Error::other("the name server is away"))))
}

/// What is said when the sender sends it.
fn in_its_own_time() -> (oneshot::Sender<Vec<SocketAddr>>, LookingUp) {
    let (sender, receiver) = oneshot::channel();
    let answer = async move { receiver.await.map_err(io::Error::other) };
    (sender, Box::pin(answer))
}

#[tokio::test]
async fn calls_go_to_every_address_of_a_name_and_to_none_that_it_lost() {
    let stage = Stage::new();
    let first = Stub::start(&stage, &[100]).await;
    let port = first.control.port();
    let second = Stub::start_at(&stage, &format!("127.0.0.2:{port}"), &[100]).await;
    second.state().owner = SocketAddr::from(([127, 0, 0, 2], port ^ 1));
    let (one, other) = (first.control, second.control);
    let (late, late_answer) = in_its_own_time();
    let front = stage
        .front_but(&[], |door| {
            let names = names(vec![
                // Not in order, and one of them twice, as name servers do.
                says(&[other, one, other]),
                failure(),
                late_answer,
                says(&[one, other]),
            ]);
            let sources = vec![
                format!("http://media.example:{port}")
                    .parse()
                    .expect("a name"),
            ];
            let client = door.transceivers.client().clone();
            door.transceivers = Transceivers::with_names(sources, names, client);
        })
        .await;
    let both = [(one, Standing::Ready), (other, Standing::Ready)];
    let said = ["both addresses", "a failure", "nothing in time"];
    for (round, said) in (1..).zip(said) {
        front.poll().await;
        assert_eq!(front.door.transceivers.standings(), both, "after {said}");
        for _ in 0..20 {
            front.call_id().await;
        }
        let made = [first.sessions(), second.sessions()];
        assert_eq!(made.iter().sum::<usize>(), 20 * round);
        assert!(made.iter().all(|made| *made > 0), "{made:?}");
    }
    let before = first.sessions();
    late.send(vec![other]).expect("it is still waited for");
    front.poll().await;
    for _ in 0..20 {
        front.call_id().await;
    }
    assert_eq!(first.sessions(), before, "the name has lost this one");
    front.poll().await;
    let standings = front.door.transceivers.standings();
    assert_eq!(standings.len(), 2, "it is there again: {standings:?}");
}

#[tokio::test]
async fn a_name_whose_look_up_is_under_way_is_not_looked_up_again() {
    let addresses = [1, 2].map(|end| SocketAddr::from(([127, 0, 0, end], 5080)));
    let (slow, slow_answer) = in_its_own_time();
    let next = Mutex::new(VecDeque::from([slow_answer, says(&addresses[1..])]));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let at = Arc::clone(&asked);
    let names = Names::new(move |host, _| {
        let answer = match host.as_str() {
            "slow" => next.lock().expect("not poisoned").pop_front(),
            _ => Some(says(&[])),
        };
        at.lock().expect("not poisoned").push(host);
        answer.expect("not looked up more often")
    });
    // Rounds that overlap, and one after the other; another name is none of its business.
    let (one, other, quick) = tokio::join!(
        names.addresses("slow", 5080),
        names.addresses("slow", 5080),
        names.addresses("quick", 5080),
    );
    assert!([one, other, quick].iter().all(Vec::is_empty));
    assert!(names.addresses("slow", 5080).await.is_empty());
    assert_eq!(*asked.lock().expect("not poisoned"), ["slow", "quick"]);
    // The answer is taken when it comes, and then the name is looked up anew.
    slow.send(addresses[..1].to_vec()).expect("waited for");
    assert_eq!(names.addresses("slow", 5080).await, addresses[..1]);
    assert_eq!(names.addresses("slow", 5080).await, addresses[1..]);
    let asked = asked.lock().expect("not poisoned");
    assert_eq!(*asked, ["slow", "quick", "slow"]);
}

#[tokio::test]
async fn names_are_looked_up_at_once_so_that_slow_ones_do_not_add_up() {
    let stage = Stage::new();
    let stubs = [
        Stub::start(&stage, &[10]).await,
        Stub::start(&stage, &[10]).await,
    ];
    let front = stage
        .front_but(&[], |door| {
            // Neither is answered before both are asked for.
            let both = Arc::new(Barrier::new(2));
            let names = Names::new(move |_, port| {
                let both = Arc::clone(&both);
                Box::pin(async move {
                    both.wait().await;
                    Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
                })
            });
            let sources = stubs.iter().map(|stub| {
                let port = stub.control.port();
                format!("http://media.example:{port}")
                    .parse()
                    .expect("a name")
            });
            let client = door.transceivers.client().clone();
            door.transceivers = Transceivers::with_names(sources.collect(), names, client);
        })
        .await;
    // A round may find no time on a slow machine, and the next one does.
    let found = async {
        while front.door.transceivers.standings().len() < 2 {
            front.poll().await;
        }
    };
    timeout(PATIENCE, found).await.expect("both were found");
}
