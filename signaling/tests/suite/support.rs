//! What support asks of a call by the id that its client knows.

use serde_json::Value;

use crate::stage::{KEY, Stage, Stub, key_file};

async fn stage_of_an_admin() -> (Stage, Stub) {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let keys = key_file(&[("dev", KEY)]) + "scopes = [\"admin\", \"calls\"]\n";
    stage.write("keys.toml", &keys);
    (stage, stub)
}

#[tokio::test]
async fn a_call_id_leads_to_what_the_owner_tells_alive_or_ended() {
    let (stage, stub) = stage_of_an_admin().await;
    let front = stage.front(&[&stub]).await;
    let id = front.call_id().await;
    let path = format!("/v1/fleet/calls/{id}");
    let session = *stub.state().sessions.keys().next().expect("a session");

    let ask = async || {
        let response = front
            .request("GET", &path)
            .send()
            .await
            .expect("a response");
        let status = response.status().as_u16();
        (status, response.json::<Value>().await.expect("JSON"))
    };
    let (status, told) = ask().await;
    assert_eq!(status, 200);
    assert_eq!(told["session"], session);
    assert_eq!(told["control"], stub.control.to_string());
    assert_eq!(told["call"]["state"], "live");
    assert!(told.get("ended").is_none(), "{told}");

    stub.state().sessions.clear();
    stub.state().ended.push(session);
    let (status, told) = ask().await;
    assert_eq!(
        (status, &told["ended"]["reason"]),
        (200, &Value::from("hung_up"))
    );
    assert!(told.get("call").is_none(), "{told}");

    stub.state().ended.clear();
    assert_eq!(ask().await.0, 404);
    stub.stop().await;
    assert_eq!(ask().await.0, 404, "it took what it knew along");
}

#[tokio::test]
async fn a_key_without_the_scope_is_told_nothing() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let id = front.call_id().await;
    let path = format!("/v1/fleet/calls/{id}");
    let refused = front
        .request("GET", &path)
        .send()
        .await
        .expect("a response");
    assert_eq!(refused.status(), 403);
    let nobody = front.get(&path).await;
    assert_eq!(nobody.status(), 401);
}

#[tokio::test]
async fn an_id_that_was_never_given_is_unknown() {
    let (stage, stub) = stage_of_an_admin().await;
    let front = stage.front(&[&stub]).await;
    let path = "/v1/fleet/calls/rtc_0123456789";
    let unknown = front.request("GET", path).send().await.expect("a response");
    assert_eq!(unknown.status(), 404);
}
