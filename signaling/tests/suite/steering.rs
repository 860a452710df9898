//! Steering between clusters, and the choice of ingress points, over real HTTP: headers of a CDN, a MaxMind database, health.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::mmdb;
use crate::stage::{Front, KEY, OFFER, Stage, Stub, header, told};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use firsthop_shared::address::{ClusterId, Networks};
use firsthop_signaling::calls::{FrontDoor, Steering};
use firsthop_signaling::files::PlacesWatch;
use tokio::net::TcpListener;

/// Frankfurt and Virginia, each with an ingress of two families, and one in São Paulo.
fn fleet(first: &str, second: &str, health: &str) -> String {
    format!(
        "[[cluster]]\nid = 1\nname = \"fra\"\nsignaling = \"{first}\"\nposition = [50.1, 8.7]\n\
         [[cluster]]\nid = 2\nname = \"iad\"\nsignaling = \"{second}\"\nposition = [39.0, -77.5]\n\
         [[ingress]]\nid = 1\nipv4 = \"203.0.113.1:3478\"\nipv6 = \"[2001:db8::1]:3478\"\nposition = [50.1, 8.7]\n\
         [[ingress]]\nid = 2\nipv4 = \"203.0.113.2:3478\"\nposition = [39.0, -77.5]\n\
         [[ingress]]\nid = 3\nipv4 = \"203.0.113.3:3478\"\nposition = [-23.5, -46.6]\n{health}"
    )
}

/// A front door of a cluster that believes loopback about places.
async fn front(stage: &Stage, stubs: &[&Stub], cluster: u16, steering: Steering) -> Front {
    front_but(stage, stubs, cluster, steering, |_| {}).await
}

async fn front_but(
    stage: &Stage,
    stubs: &[&Stub],
    cluster: u16,
    steering: Steering,
    change: impl FnOnce(&mut FrontDoor),
) -> Front {
    stage
        .front_but(stubs, |door| {
            door.cluster = ClusterId(cluster);
            door.proxies.trusted = Networks::parse("127.0.0.0/8").expect("a network");
            door.steering = steering;
            change(door);
        })
        .await
}

async fn call_from(front: &Front, place: &[(&str, &str)]) -> reqwest::Response {
    let mut request = front
        .post("/v1/realtime/calls")
        .bearer_auth(KEY)
        .header("content-type", "application/sdp")
        .body(OFFER);
    for (name, value) in place {
        request = request.header(*name, *value);
    }
    request.send().await.expect("a response")
}

async fn ask_neighbours(front: &Front) {
    let fleet = Arc::clone(&front.door.files.fleet.borrow());
    front
        .door
        .neighbours
        .poll_once(&fleet, front.door.cluster)
        .await;
}

const BERLIN: [(&str, &str); 2] = [("x-latitude", "52.5"), ("x-longitude", "13.4")];
const NEW_YORK: [(&str, &str); 2] = [("x-latitude", "40.7"), ("x-longitude", "-74.0")];

/// Two clusters that know each other, with one transceiver each.
async fn two_clusters(stage: &Stage, steering: Steering) -> (Front, Front, Stub, Stub) {
    let (here, there) = (
        Stub::start(stage, &[10]).await,
        Stub::start(stage, &[10]).await,
    );
    let mut first = front(stage, &[&here], 1, steering).await;
    let mut second = front(stage, &[&there], 2, steering).await;
    stage.write(
        "fleet.toml",
        &fleet(&first.url, &format!("{}/", second.url), ""),
    );
    first.reload();
    second.reload();
    ask_neighbours(&first).await;
    ask_neighbours(&second).await;
    (first, second, here, there)
}

#[tokio::test]
async fn a_call_is_forwarded_to_the_nearest_cluster_and_served_from_either() {
    let stage = Stage::new();
    let (first, second, here, there) = two_clusters(&stage, Steering::Forward).await;
    assert_eq!(call_from(&first, &BERLIN).await.status(), 201);
    assert_eq!((here.sessions(), there.sessions()), (1, 0));
    let made = call_from(&first, &NEW_YORK).await;
    assert_eq!(made.status(), 201);
    assert_eq!((here.sessions(), there.sessions()), (1, 1));
    assert_eq!(header(&made, "content-type"), "application/sdp");
    let asked = there.state().asked.pop().expect("asked");
    assert_eq!(asked.ingresses, [2, 1], "the place travelled along");
    let url = header(&made, "location");
    let ended = first
        .post(&format!("{url}/hangup"))
        .bearer_auth(KEY)
        .send()
        .await
        .expect("a response");
    assert_eq!(ended.status(), 200);
    assert_eq!(there.sessions(), 0);
    let again = second
        .request("DELETE", &url)
        .send()
        .await
        .expect("a response");
    assert_eq!(told(again).await.status, 404);
    let text = first.door.metrics.text();
    assert!(text.contains("steered_total{to=\"forward\"} 1"), "{text}");
}

/// A client's place as a CDN tells it, for [`call_from`].
fn at<'a>(latitude: &'a str, longitude: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![("x-latitude", latitude), ("x-longitude", longitude)]
}

#[tokio::test]
async fn calls_from_ten_places_of_the_world_reach_their_cluster_and_name_their_ingresses() {
    let stage = Stage::new();
    let (first, _second, fra, iad) = two_clusters(&stage, Steering::Forward).await;
    let country = |code| vec![("x-country", code)];
    for (city, place, owner, ingresses) in [
        ("Berlin", at("52.5", "13.4"), &fra, [1, 2]),
        ("London", country("GB"), &fra, [1, 2]),
        ("Lagos", country("NG"), &fra, [1, 3]),
        ("Mumbai", at("19.1", "72.9"), &fra, [1, 2]),
        ("Tokyo", country("JP"), &fra, [1, 2]),
        ("New York", at("40.7", "-74.0"), &iad, [2, 1]),
        ("San Francisco", at("37.8", "-122.4"), &iad, [2, 1]),
        ("Mexico City", country("MX"), &iad, [2, 3]),
        ("São Paulo", country("BR"), &iad, [3, 2]),
        ("Sydney", at("-33.9", "151.2"), &iad, [3, 2]),
    ] {
        let made = call_from(&first, &place).await;
        assert_eq!(made.status(), 201, "{city}");
        let asked = owner.state().asked.pop();
        let asked = asked.unwrap_or_else(|| panic!("{city} reached the other cluster"));
        assert_eq!(asked.ingresses, ingresses, "{city}");
    }
}

#[tokio::test]
async fn a_client_is_redirected_once_when_that_is_the_way() {
    let stage = Stage::new();
    let (first, second, here, there) = two_clusters(&stage, Steering::Redirect).await;
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .expect("a client");
    let mut request = client
        .post(format!("{}/v1/realtime/calls", first.url))
        .bearer_auth(KEY)
        .header("content-type", "application/sdp")
        .body(OFFER);
    for (name, value) in NEW_YORK {
        request = request.header(name, value);
    }
    let told = request.send().await.expect("a response");
    assert_eq!(told.status(), 307);
    let location = header(&told, "location");
    assert!(location.starts_with(&second.url), "{location}");
    // Even with a place that the other cluster would send back here, it stays there.
    let followed = client
        .post(location)
        .bearer_auth(KEY)
        .header("content-type", "application/sdp")
        .header(BERLIN[0].0, BERLIN[0].1)
        .header(BERLIN[1].0, BERLIN[1].1)
        .body(OFFER)
        .send()
        .await
        .expect("a response");
    assert_eq!(followed.status(), 201);
    assert_eq!((here.sessions(), there.sessions()), (0, 1));
}

/// Fetch, section 4.4: a browser drops `Authorization` when it follows to another origin, so the call would end there with 401.
#[tokio::test]
async fn a_page_is_served_by_the_nearer_cluster_without_a_redirect() {
    let stage = Stage::new();
    let (first, _second, here, there) = two_clusters(&stage, Steering::Redirect).await;
    let page = ("origin", "https://shop.example");
    let made = call_from(&first, &[page, NEW_YORK[0], NEW_YORK[1]]).await;
    assert_eq!(made.status(), 201);
    assert_eq!((here.sessions(), there.sessions()), (0, 1));
}

#[tokio::test]
async fn a_nearer_cluster_without_room_or_out_of_reach_leaves_the_call_here() {
    let stage = Stage::new();
    let (first, second, here, there) = two_clusters(&stage, Steering::Forward).await;
    there.state().draining = true;
    second.poll().await;
    // What is known of it is old: it is asked, refuses, and the call stays.
    assert_eq!(call_from(&first, &NEW_YORK).await.status(), 201);
    assert_eq!((here.sessions(), there.sessions()), (1, 0));
    assert!(
        first
            .door
            .metrics
            .text()
            .contains("steered_total{to=\"failed\"} 1")
    );
    ask_neighbours(&first).await;
    ask_neighbours(&first).await;
    assert_eq!(call_from(&first, &NEW_YORK).await.status(), 201);
    assert!(
        first
            .door
            .metrics
            .text()
            .contains("steered_total{to=\"failed\"} 1")
    );
}

#[tokio::test]
async fn a_full_cluster_sends_its_calls_to_one_with_room_and_never_in_circles() {
    let stage = Stage::new();
    let (first, second, here, there) = two_clusters(&stage, Steering::Forward).await;
    here.state().draining = true;
    first.poll().await;
    assert_eq!(call_from(&first, &BERLIN).await.status(), 201);
    assert_eq!(there.sessions(), 1);
    there.state().draining = true;
    second.poll().await;
    // Both believe the other has room, and each would forward: the second serves what it gets, and refuses.
    let told = told(call_from(&first, &BERLIN).await).await;
    assert_eq!(told.status, 503);
}

#[tokio::test]
async fn a_forged_note_is_believed_in_nothing_but_that_the_request_stays() {
    let stage = Stage::new();
    let (first, _second, here, there) = two_clusters(&stage, Steering::Forward).await;
    let mut place = NEW_YORK.to_vec();
    place.push(("firsthop-forwarded", "fw_AAAA"));
    assert_eq!(call_from(&first, &place).await.status(), 201);
    assert_eq!((here.sessions(), there.sessions()), (1, 0));
}

#[tokio::test]
async fn the_sideband_and_the_restart_of_another_clusters_call_are_passed_on() {
    let stage = Stage::new();
    let (first, _second, _here, there) = two_clusters(&stage, Steering::Forward).await;
    let made = call_from(&first, &NEW_YORK).await;
    let url = header(&made, "location");
    let restarted = first
        .request("PATCH", &url)
        .header("content-type", "application/sdp")
        .header("if-match", "*")
        .body(OFFER)
        .send()
        .await
        .expect("a response");
    assert_eq!(restarted.status(), 200);
    assert_eq!(header(&restarted, "etag"), "\"ice-1\"");
    let id = url.rsplit('/').next().expect("an id");
    let joined = first
        .request("GET", &format!("/v1/realtime?call_id={id}"))
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .send()
        .await
        .expect("a response");
    assert_eq!(joined.status(), 101);
    assert_eq!(there.state().joined.len(), 1);
}

#[tokio::test]
async fn strangers_say_nothing_about_their_place() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let mut front = front_but(&stage, &[&stub], 1, Steering::Off, |door| {
        door.proxies.trusted = Networks::default();
    })
    .await;
    stage.write(
        "fleet.toml",
        &fleet("http://a.example", "http://b.example", ""),
    );
    front.reload();
    assert_eq!(call_from(&front, &NEW_YORK).await.status(), 201);
    assert_eq!(stub.state().asked[0].ingresses, [1, 2, 3]);
}

#[tokio::test]
async fn a_database_places_clients_that_no_proxy_places() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let path = stage.path("places.mmdb");
    std::fs::write(
        &path,
        mmdb::write(&[
            ("198.51.100.0", 24, mmdb::City::At(40.7, -74.0)),
            ("2001:db8:5::", 48, mmdb::City::Country("BR")),
        ]),
    )
    .expect("a writable folder");
    let (_watch, places) = PlacesWatch::open(&path).expect("a database");
    let mut front = front_but(&stage, &[&stub], 1, Steering::Off, |door| {
        door.places = Some(places);
    })
    .await;
    stage.write(
        "fleet.toml",
        &fleet("http://a.example", "http://b.example", ""),
    );
    front.reload();
    for (client, ingresses) in [
        ("198.51.100.7", vec![2, 1]),
        ("2001:db8:5::7", vec![3, 2]),
        ("192.0.2.1", vec![1, 2, 3]),
    ] {
        let response = call_from(&front, &[("x-forwarded-for", client)]).await;
        assert_eq!(response.status(), 201);
        let asked = stub.state().asked.pop().expect("asked");
        assert_eq!(asked.ingresses, ingresses, "{client}");
    }
    // What a proxy says goes before what the database knows.
    let mut both = BERLIN.to_vec();
    both.push(("x-forwarded-for", "198.51.100.7"));
    assert_eq!(call_from(&front, &both).await.status(), 201);
    assert_eq!(stub.state().asked[0].ingresses, [1, 2]);
}

#[tokio::test]
async fn an_ill_ingress_is_left_out_until_it_is_well_again() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let (address, well) = relay().await;
    let mut front = front(&stage, &[&stub], 1, Steering::Off).await;
    let health = format!(
        "[[ingress]]\nid = 4\nipv4 = \"203.0.113.4:3478\"\nposition = [52.5, 13.4]\nhealth = \"http://{address}/readyz\"\n"
    );
    stage.write(
        "fleet.toml",
        &fleet("http://a.example", "http://b.example", &health),
    );
    front.reload();
    let named = async || {
        assert_eq!(call_from(&front, &BERLIN).await.status(), 201);
        stub.state().asked.pop().expect("asked").ingresses
    };
    ask_neighbours(&front).await;
    assert_eq!(named().await, [4, 1]);
    well.send_replace(false);
    ask_neighbours(&front).await;
    assert_eq!(named().await, [4, 1], "one failure is no verdict");
    ask_neighbours(&front).await;
    assert_eq!(named().await, [1, 2]);
    well.send_replace(true);
    ask_neighbours(&front).await;
    assert_eq!(named().await, [4, 1]);
}

/// Something with a `/readyz` that says what it is told to.
async fn relay() -> (SocketAddr, tokio::sync::watch::Sender<bool>) {
    let (well, known) = tokio::sync::watch::channel(true);
    let answer = move || {
        let well = *known.borrow();
        async move {
            if well {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let router = Router::new().route("/readyz", get(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, well)
}
