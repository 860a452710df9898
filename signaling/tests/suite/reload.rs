//! Files that change while signaling runs: API keys, keyrings with rotation, the fleet.

use crate::stage::{KEY, OFFER, Stage, Stub, key_file, told};
use firsthop_shared::keyring::Masters;
use firsthop_shared::reload::MISSING_POLLS;

#[tokio::test]
async fn keys_of_a_changed_file_count_from_then_on() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let mut front = stage.front(&[&stub]).await;
    stage.write("keys.toml", &key_file(&[("new", "another-key")]));
    front.reload();
    let told = told(front.call().await).await;
    assert_eq!((told.status, told.code.as_str()), (401, "invalid_api_key"));
    let response = front
        .post("/v1/realtime/calls")
        .bearer_auth("another-key")
        .header("content-type", "application/sdp")
        .body(OFFER)
        .send()
        .await
        .expect("a response");
    assert_eq!(response.status(), 201);
    assert_eq!(stub.state().asked[0].client.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_slip_in_a_file_shuts_nobody_out() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let mut front = stage.front(&[&stub]).await;
    for file in ["keys.toml", "api.toml", "data.toml", "fleet.toml"] {
        stage.write(file, "[[key]\n");
    }
    front.reload();
    assert_eq!(front.call().await.status(), 201);
    std::fs::remove_file(stage.path("keys.toml")).expect("removed");
    front.reload();
    assert_eq!(front.call().await.status(), 201);
    let text = front.door.metrics.text();
    for file in ["keyring", "api-keyring", "fleet", "api-keys"] {
        let failed = format!("file_reload_failures_total{{file=\"{file}\"}} 1\n");
        assert!(text.contains(&failed), "{failed} in {text}");
    }

    stage.write("keys.toml", &key_file(&[("dev", KEY)]));
    front.reload();
    let text = front.door.metrics.text();
    let taken = "file_reloads_total{file=\"api-keys\"} 1\n";
    assert!(text.contains(taken), "{text}");
}

#[tokio::test]
async fn a_file_that_is_gone_is_unusable_until_it_is_back() {
    let stage = Stage::new();
    let mut front = stage.front(&[]).await;
    let unusable = |front: &crate::stage::Front, value: u8| {
        let text = front.door.metrics.text();
        let line = format!("file_unusable{{file=\"api-keys\"}} {value}\n");
        assert!(text.contains(&line), "{line} in {text}");
    };
    std::fs::remove_file(stage.path("keys.toml")).expect("removed");
    front.reload();
    unusable(&front, 0);
    for _ in 0..MISSING_POLLS {
        front.reload();
    }
    unusable(&front, 1);
    stage.write("keys.toml", &key_file(&[("dev", KEY)]));
    front.reload();
    unusable(&front, 0);
}

#[tokio::test]
async fn an_empty_list_of_keys_revokes_all_and_an_empty_file_revokes_none() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let mut front = stage.front(&[&stub]).await;
    // As an editor leaves it for a moment.
    for half in ["", "\n", "# keys\n"] {
        stage.write("keys.toml", half);
        front.reload();
        assert_eq!(front.call().await.status(), 201, "{half:?}");
    }
    let secret = front
        .post("/v1/realtime/client_secrets")
        .bearer_auth(KEY)
        .send()
        .await
        .expect("a response");
    let secret: serde_json::Value = secret.json().await.expect("JSON");
    let secret = secret["value"].as_str().expect("a secret").to_owned();
    stage.write("keys.toml", "key = []\n");
    front.reload();
    for key in [KEY, &secret] {
        let refused = front
            .post("/v1/realtime/calls")
            .bearer_auth(key)
            .header("content-type", "application/sdp")
            .body(OFFER)
            .send()
            .await
            .expect("a response");
        assert_eq!(refused.status(), 401, "{key}");
    }
    stage.write("keys.toml", &key_file(&[("dev", KEY)]));
    front.reload();
    assert_eq!(front.call().await.status(), 201);
}

#[tokio::test]
async fn calls_outlive_the_rotation_of_keys_until_theirs_is_removed() {
    let stage = Stage::new();
    let mut masters = Masters::new([7; 32]);
    let stub = Stub::start(&stage, &[10]).await;
    let mut front = stage.front(&[&stub]).await;
    let (first, second) = (front.call_id().await, front.call_id().await);

    let added = masters.add([8; 32]).expect("a free id");
    masters.activate(added.get()).expect("known");
    stage.write_keyrings(&masters);
    front.reload();
    // The owner learnt the key before signaling minted with it.
    stub.learn(&stage);
    let third = front.call_id().await;
    assert_ne!(first[..6], third[..6], "the new call names the new key");
    assert_eq!(front.hang_up(&first).await.status(), 200);

    masters.remove(1).expect("not active");
    stage.write_keyrings(&masters);
    front.reload();
    assert_eq!(told(front.hang_up(&second).await).await.status, 404);
    assert_eq!(front.hang_up(&third).await.status(), 200);
}

#[tokio::test]
async fn a_new_ingress_is_advertised_without_a_restart() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let mut front = stage.front(&[&stub]).await;
    stage.write(
        "fleet.toml",
        "[[cluster]]\nid = 1\nname = \"one\"\n[[ingress]]\nid = 9\nipv4 = \"203.0.113.1:3478\"\n",
    );
    front.reload();
    assert_eq!(front.call().await.status(), 201);
    assert_eq!(stub.state().asked[0].ingresses, [9]);
}
