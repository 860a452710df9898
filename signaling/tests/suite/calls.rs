//! Calls over real HTTP against stub transceivers: made, retried, minted again, refused, hung up from another replica.

use std::collections::HashSet;
use std::time::Duration;

use crate::stage::{ANSWER, KEY, OFFER, PATIENCE, PATIENT, Reply, Stage, Stub, header, told};
use axum::http::StatusCode;
use firsthop_shared::address::IngressId;
use firsthop_shared::control::{ControlCode, CreateRequest};

#[tokio::test]
async fn an_offer_is_answered_by_its_owner_with_a_location() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10, 10]).await;
    let front = stage.front(&[&stub]).await;

    let response = front.call().await;
    assert_eq!(response.status(), 201);
    assert_eq!(header(&response, "content-type"), "application/sdp");
    let location = header(&response, "location");
    assert!(
        location.starts_with("/v1/realtime/calls/rtc_"),
        "{location}"
    );
    assert!(response.text().await.expect("a body").starts_with(ANSWER));

    let state = stub.state();
    let asked = &state.asked[0];
    assert_eq!(asked.offer, OFFER);
    assert_eq!(asked.ingresses, [4, 2], "all of the fleet, in file order");
    assert_eq!(asked.client.as_deref(), Some("dev"));
    assert_eq!(state.sessions.len(), 1);
}

#[tokio::test]
async fn an_answer_advertises_the_ingresses_that_were_set_in_their_order() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let set = Some(vec![IngressId(2)]);
    let front = stage.front_with(&[stub.control], set, PATIENT).await;
    assert_eq!(front.call().await.status(), 201);
    assert_eq!(stub.state().asked[0].ingresses, [2]);
}

#[tokio::test]
async fn a_call_ends_by_hang_up_and_is_unknown_from_then_on() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let id = front.call_id().await;

    let ended = front.hang_up(&id).await;
    assert_eq!(ended.status(), 200);
    assert_eq!(ended.text().await.expect("a body"), "");
    assert_eq!(stub.sessions(), 0);

    // Ended, never existed, altered, and no id at all: one answer.
    let altered = format!(
        "{}{}",
        &id[..id.len() - 1],
        if id.ends_with('A') { "B" } else { "A" }
    );
    let mut answers = HashSet::new();
    for unknown in [id.as_str(), &altered, "rtc_", "call_1", "rtc_%ff%fe", "%00"] {
        let told = told(front.hang_up(unknown).await).await;
        assert_eq!(told.status, 404, "{unknown}");
        assert_eq!(told.code, "call_not_found");
        answers.insert(told.message);
    }
    assert_eq!(answers.len(), 1);
}

#[tokio::test]
async fn another_replica_with_the_same_keys_hangs_up() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let one = stage.front(&[&stub]).await;
    // The other replica does not even have this transceiver on its list.
    let other = stage.front(&[]).await;
    let id = one.call_id().await;
    assert_eq!(other.hang_up(&id).await.status(), 200);
    assert_eq!(stub.sessions(), 0);
    assert_eq!(told(one.hang_up(&id).await).await.status, 404);
}

#[tokio::test]
async fn a_session_number_that_was_used_again_is_another_call() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let id = front.call_id().await;
    let session = stub.state().asked[0].session;
    stub.state().sessions.insert(session, (1, 0, 0));
    assert_eq!(told(front.hang_up(&id).await).await.status, 404);
    assert_eq!(stub.sessions(), 1, "the newer call lives on");
}

#[tokio::test]
async fn the_call_of_an_owner_that_is_gone_has_ended() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let id = front.call_id().await;
    stub.stop().await;
    assert_eq!(told(front.hang_up(&id).await).await.code, "call_not_found");
}

#[tokio::test]
async fn a_taken_session_id_is_minted_again_at_the_same_owner() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    stub.reply(Reply::Refuse(ControlCode::SessionExists));
    stub.reply(Reply::Refuse(ControlCode::SessionExists));
    assert_eq!(front.call().await.status(), 201);

    let state = stub.state();
    let sessions: HashSet<u32> = state.asked.iter().map(|asked| asked.session).collect();
    let ufrags: HashSet<&str> = state.asked.iter().map(|a| a.ufrag.as_str()).collect();
    assert_eq!(sessions.len(), 3);
    assert_eq!(ufrags.len(), 3);
}

#[tokio::test]
async fn an_owner_that_has_fewer_workers_takes_calls_before_its_next_status() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10, 10]).await;
    let front = stage.front(&[&stub]).await;
    // It is another process by now.
    stub.state().capacity = vec![10];
    stub.state().boot += 1;
    for call in 0..10 {
        assert_eq!(front.call().await.status(), 201, "{call}");
    }
    let gone = |asked: &&CreateRequest| asked.shard == 1;
    assert!(stub.state().asked.iter().filter(gone).count() <= 1);
    assert_eq!(told(front.call().await).await.code, "no_capacity");
}

#[tokio::test]
async fn minting_again_has_an_end() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    for _ in 0..20 {
        stub.reply(Reply::Refuse(ControlCode::SessionExists));
    }
    let told = told(front.call().await).await;
    assert_eq!((told.status, told.kind.as_str()), (502, "server_error"));
    assert_eq!(told.headers["retry-after"], "2");
    assert_eq!(stub.state().asked.len(), 4);
}

#[tokio::test]
async fn a_failed_owner_is_tried_once_elsewhere_and_left_alone_until_it_reports() {
    let stage = Stage::new();
    let (bad, good) = (
        Stub::start(&stage, &[20]).await,
        Stub::start(&stage, &[20]).await,
    );
    // The emptier one is tried first.
    good.state().sessions.insert(1, (1, 0, 0));
    let front = stage.front(&[&bad, &good]).await;
    for fault in [
        Reply::Refuse(ControlCode::Draining),
        Reply::Refuse(ControlCode::Full),
        Reply::Refuse(ControlCode::Internal),
        Reply::Raw(StatusCode::OK, "not JSON"),
        Reply::Raw(StatusCode::INTERNAL_SERVER_ERROR, "oops"),
    ] {
        front.poll().await;
        let before = good.sessions();
        bad.state().replies.push_back(fault.clone());
        assert_eq!(front.call().await.status(), 201, "{fault:?}");
        assert!(
            bad.state().replies.is_empty(),
            "{fault:?} was not asked for"
        );
        assert_eq!(front.call().await.status(), 201);
        assert_eq!(good.sessions(), before + 2, "{fault:?}");
    }
    assert_eq!(bad.sessions(), 0);
}

#[tokio::test]
async fn an_owner_that_went_away_between_polls_costs_the_caller_nothing() {
    let stage = Stage::new();
    let (gone, good) = (
        Stub::start(&stage, &[10]).await,
        Stub::start(&stage, &[10]).await,
    );
    let front = stage.front(&[&gone, &good]).await;
    gone.stop().await;
    for _ in 0..8 {
        assert_eq!(front.call().await.status(), 201);
    }
    assert_eq!(good.sessions(), 8);
}

#[tokio::test]
async fn a_request_that_an_owner_does_not_understand_leaves_it_in_placement() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    stub.reply(Reply::Refuse(ControlCode::BadRequest));
    assert_eq!(told(front.call().await).await.status, 502);
    // Whoever can provoke that must not make it refuse the calls of others.
    assert_eq!(front.call().await.status(), 201);
}

#[tokio::test]
async fn failures_of_the_only_owner_are_told_apart() {
    let stage = Stage::new();
    for (fault, status, code) in [
        (Reply::Refuse(ControlCode::Full), 503, "no_capacity"),
        (Reply::Refuse(ControlCode::Draining), 503, "no_capacity"),
        (
            Reply::Refuse(ControlCode::Internal),
            502,
            "media_server_failed",
        ),
        (
            Reply::Refuse(ControlCode::BadUfrag),
            502,
            "media_server_failed",
        ),
        (Reply::Raw(StatusCode::OK, "{}"), 502, "media_server_failed"),
        (
            Reply::Raw(StatusCode::CREATED, r#"{"answer":""}"#),
            502,
            "media_server_failed",
        ),
        (Reply::Never, 504, "media_server_timeout"),
    ] {
        let stub = Stub::start(&stage, &[10]).await;
        let mut patience = PATIENT;
        if matches!(fault, Reply::Never) {
            patience.create = Duration::from_millis(300);
        }
        let front = stage.front_with(&[stub.control], None, patience).await;
        stub.reply(fault.clone());
        let told = told(front.call().await).await;
        assert_eq!(told.status, status, "{fault:?}");
        assert_eq!(told.code, code, "{fault:?}");
        assert_eq!(told.kind, "server_error");
        assert!(!told.message.contains("stub"), "{}", told.message);
    }
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    stub.stop().await;
    let told = told(front.call().await).await;
    assert_eq!(told.status, 502);
    assert_eq!(told.code, "media_server_unreachable");
}

#[tokio::test]
async fn the_owners_verdict_on_a_request_is_passed_on_and_not_tried_elsewhere() {
    let stage = Stage::new();
    let (one, two) = (
        Stub::start(&stage, &[10]).await,
        Stub::start(&stage, &[10]).await,
    );
    let front = stage.front(&[&one, &two]).await;
    for (code, status, told_code, field) in [
        (ControlCode::BadOffer, 400, "invalid_offer", "sdp"),
        (
            ControlCode::UnsupportedOffer,
            422,
            "unsupported_offer",
            "sdp",
        ),
        (ControlCode::TooLarge, 413, "offer_too_large", "sdp"),
        (ControlCode::UnknownApp, 404, "unknown_app", "app"),
    ] {
        one.reply(Reply::Refuse(code));
        two.reply(Reply::Refuse(code));
        let told = told(front.call().await).await;
        assert_eq!(told.status, status);
        assert_eq!(told.code, told_code);
        assert_eq!(told.kind, "invalid_request_error");
        assert_eq!(told.param.as_deref(), Some(field));
        assert_eq!(told.message, "the stub's reason");
        for stub in [&one, &two] {
            stub.state().replies.clear();
        }
    }
    let asked = one.state().asked.len() + two.state().asked.len();
    assert_eq!(asked, 4);
}

#[tokio::test]
async fn without_a_free_transceiver_a_call_gets_503_with_retry_after() {
    let stage = Stage::new();
    let (draining, full, gone) = (
        Stub::start(&stage, &[10]).await,
        Stub::start(&stage, &[1, 0]).await,
        Stub::start(&stage, &[10]).await,
    );
    draining.state().draining = true;
    let nowhere = gone.control;
    gone.stop().await;
    let front = stage
        .front_with(&[draining.control, full.control, nowhere], None, PATIENT)
        .await;
    // One place is left at the nearly full one.
    assert_eq!(front.get("/readyz").await.status(), 200);
    assert_eq!(front.call().await.status(), 201);

    for polled in [false, true] {
        let told = told(front.call().await).await;
        assert_eq!(told.status, 503, "polled: {polled}");
        assert_eq!(told.code, "no_capacity");
        assert_eq!(told.headers["retry-after"], "2");
        assert_eq!(front.get("/readyz").await.status(), 503);
        assert_eq!(front.get("/healthz").await.status(), 200);
        front.poll().await;
    }
    assert_eq!(draining.sessions(), 0);

    // A hang-up and a status later there is room again.
    full.state().sessions.clear();
    front.poll().await;
    assert_eq!(front.call().await.status(), 201);
}

#[tokio::test]
async fn a_transceiver_that_starts_later_gets_calls_after_its_first_status() {
    let stage = Stage::new();
    let placeholder = Stub::start(&stage, &[10]).await;
    let control = placeholder.control;
    placeholder.stop().await;
    let front = stage.front_with(&[control], None, PATIENT).await;
    assert_eq!(told(front.call().await).await.status, 503);
    let stub = Stub::start_at(&stage, &control.to_string(), &[10]).await;
    front.poll().await;
    assert_eq!(front.call().await.status(), 201);
    assert_eq!(stub.sessions(), 1);
}

#[tokio::test]
async fn a_burst_between_two_polls_spreads_over_owners_and_workers() {
    let stage = Stage::new();
    let (one, two) = (
        Stub::start(&stage, &[100, 100]).await,
        Stub::start(&stage, &[100, 100]).await,
    );
    let front = stage.front(&[&one, &two]).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let request = front
            .post("/v1/realtime/calls")
            .bearer_auth(KEY)
            .header("content-type", "application/sdp")
            .body(OFFER);
        calls.spawn(request.send());
    }
    while let Some(response) = calls.join_next().await {
        let response = response.expect("no panic").expect("a response");
        assert_eq!(response.status(), 201);
    }
    for stub in [&one, &two] {
        let state = stub.state();
        assert!(
            (45..=55).contains(&state.sessions.len()),
            "{}",
            state.sessions.len()
        );
        let first = state
            .sessions
            .values()
            .filter(|(_, shard, _)| *shard == 0)
            .count();
        assert!((20..=30).contains(&first), "{first}");
    }
}

#[tokio::test]
async fn a_thousand_calls_through_two_replicas_fill_transceivers_evenly() {
    let stage = Stage::new();
    let (one, two) = (
        Stub::start(&stage, &[500, 500]).await,
        Stub::start(&stage, &[500, 500]).await,
    );
    let fronts = [
        stage.front(&[&one, &two]).await,
        stage.front(&[&one, &two]).await,
    ];
    // Ten rounds, as many as polls would see in ten seconds of a hundred calls each.
    for _ in 0..10 {
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..100 {
            let request = fronts[number % 2]
                .post("/v1/realtime/calls")
                .bearer_auth(KEY)
                .header("content-type", "application/sdp")
                .body(OFFER);
            calls.spawn(request.send());
        }
        while let Some(response) = calls.join_next().await {
            assert_eq!(
                response.expect("no panic").expect("a response").status(),
                201
            );
        }
        for front in &fronts {
            front.poll().await;
        }
    }
    assert_eq!(one.sessions() + two.sessions(), 1_000);
    for stub in [&one, &two] {
        assert!(
            (450..=550).contains(&stub.sessions()),
            "{}",
            stub.sessions()
        );
        for shard in 0..2 {
            let state = stub.state();
            let there = state.sessions.values().filter(|(_, s, _)| *s == shard);
            let there = there.count();
            assert!((225..=275).contains(&there), "{there}");
        }
    }
}

#[tokio::test]
async fn a_transceiver_that_drains_under_load_costs_no_call() {
    let stage = Stage::new();
    let (one, two) = (
        Stub::start(&stage, &[500]).await,
        Stub::start(&stage, &[500]).await,
    );
    let front = stage.front(&[&one, &two]).await;
    let mut calls = tokio::task::JoinSet::new();
    let mut made = Vec::new();
    for round in 0..4 {
        // From the second round on it refuses, and no status has said so yet: those calls are tried elsewhere.
        if round == 1 {
            one.state().draining = true;
            for _ in 0..200 {
                one.reply(Reply::Refuse(ControlCode::Draining));
            }
        }
        for _ in 0..25 {
            let request = front
                .post("/v1/realtime/calls")
                .bearer_auth(KEY)
                .header("content-type", "application/sdp")
                .body(OFFER);
            calls.spawn(request.send());
        }
        while let Some(response) = calls.join_next().await {
            let response = response.expect("no panic").expect("a response");
            assert_eq!(response.status(), 201);
            made.push(header(&response, "location"));
        }
    }
    let before = one.sessions();
    assert!(before > 0, "it had calls when it began to drain");
    assert_eq!(before + two.sessions(), 100);
    // Those that it has go on and can be ended.
    for url in made {
        let ended = front.request("DELETE", &url).send().await;
        assert_eq!(ended.expect("a response").status(), 200);
    }
    assert_eq!(one.sessions() + two.sessions(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_takes_no_place_for_good() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[1]).await;
    let front = stage.front(&[&stub]).await;
    stub.reply(Reply::Never);
    let impatient = front
        .post("/v1/realtime/calls")
        .bearer_auth(KEY)
        .header("content-type", "application/sdp")
        .body(OFFER);
    let impatient = tokio::spawn(impatient.send());
    let asked = async {
        while stub.state().asked.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked)
        .await
        .expect("the transceiver is asked");
    impatient.abort();
    assert!(impatient.await.expect_err("it has left").is_cancelled());
    // The server notices in its own time; from then on the next status tells that the call never was.
    let noticed = async {
        while !front.door.transceivers.placeable() {
            front.poll().await;
        }
    };
    tokio::time::timeout(PATIENCE, noticed)
        .await
        .expect("the place is free again");
    assert_eq!(front.call().await.status(), 201);
}
