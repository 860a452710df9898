//! A front door on loopback, and what a client asks of it.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::HeaderName;
use firsthop_service::gate::Gate;
use firsthop_service::server;
use firsthop_shared::address::{ClusterId, IngressId, Networks};
use firsthop_signaling::calls::{FrontDoor, Steering};
use firsthop_signaling::client::Proxies;
use firsthop_signaling::files::{FILES, FileWatch, Paths};
use firsthop_signaling::metrics::Metrics;
use firsthop_signaling::neighbours::Neighbours;
use firsthop_signaling::owner::{ControlSecret, OwnerClient, Patience};
use firsthop_signaling::rates::Rates;
use firsthop_signaling::routes;
use firsthop_signaling::tls;
use firsthop_signaling::transceivers::{Source, Transceivers};
use tokio::sync::{Semaphore, watch};

use super::{KEY, OFFER, PATIENCE, PATIENT, SECRET, Stage, Stub, header};

/// A served front door, and a client for it.
pub(crate) struct Front {
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    pub(crate) door: Arc<FrontDoor>,
    pub(crate) files_watch: FileWatch,
    pub(crate) client: reqwest::Client,
    _stop: watch::Sender<bool>,
}

impl Front {
    /// Asks for a call as a client does.
    pub(crate) async fn call(&self) -> reqwest::Response {
        self.post("/v1/realtime/calls")
            .bearer_auth(KEY)
            .header("content-type", "application/sdp")
            .body(OFFER)
            .send()
            .await
            .expect("a response")
    }

    /// Asks for a call and returns its id.
    pub(crate) async fn call_id(&self) -> String {
        let response = self.call().await;
        assert_eq!(response.status(), 201);
        let location = header(&response, "location");
        location
            .strip_prefix("/v1/realtime/calls/")
            .expect("the path of the call")
            .to_owned()
    }

    pub(crate) async fn hang_up(&self, call_id: &str) -> reqwest::Response {
        self.post(&format!("/v1/realtime/calls/{call_id}/hangup"))
            .bearer_auth(KEY)
            .send()
            .await
            .expect("a response")
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().expect("a method");
        self.client
            .request(method, format!("{}{path}", self.url))
            .bearer_auth(KEY)
    }

    pub(crate) fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.post(format!("{}{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> reqwest::Response {
        self.client
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .expect("a response")
    }

    /// Looks at the files now.
    pub(crate) fn reload(&mut self) {
        self.files_watch.poll(&self.door.metrics);
    }

    pub(crate) async fn poll(&self) {
        self.door.transceivers.poll_once().await;
    }
}

impl Stage {
    /// A front door that knows these transceivers and has their status.
    pub(crate) async fn front(&self, stubs: &[&Stub]) -> Front {
        let controls: Vec<SocketAddr> = stubs.iter().map(|stub| stub.control).collect();
        self.front_with(&controls, None, PATIENT).await
    }

    pub(crate) async fn front_with(
        &self,
        controls: &[SocketAddr],
        ingresses: Option<Vec<IngressId>>,
        patience: Patience,
    ) -> Front {
        self.front_changed(controls, ingresses, patience, |_| {})
            .await
    }

    /// A front door like the others, but for what `change` makes of it.
    pub(crate) async fn front_but(
        &self,
        stubs: &[&Stub],
        change: impl FnOnce(&mut FrontDoor),
    ) -> Front {
        let controls: Vec<SocketAddr> = stubs.iter().map(|stub| stub.control).collect();
        self.front_changed(&controls, None, PATIENT, change).await
    }

    async fn front_changed(
        &self,
        controls: &[SocketAddr],
        ingresses: Option<Vec<IngressId>>,
        patience: Patience,
        change: impl FnOnce(&mut FrontDoor),
    ) -> Front {
        let paths = [
            self.path("data.toml"),
            self.path("api.toml"),
            self.path("fleet.toml"),
            self.path("keys.toml"),
        ];
        let (files_watch, files) = FileWatch::open(Paths {
            keyring: &paths[0],
            api_keyring: &paths[1],
            fleet: &paths[2],
            api_keys: &paths[3],
        })
        .expect("usable files");
        let secret = ControlSecret::parse(SECRET).expect("a secret");
        let client = OwnerClient::new(&secret, patience).expect("a client");
        let sources = controls.iter().copied().map(Source::Address).collect();
        let transceivers = Transceivers::new(sources, client);
        transceivers.poll_once().await;
        let metrics = Arc::new(Metrics::new(&[&FILES[..], &[tls::CERTIFICATE]].concat()));
        let mut door = FrontDoor {
            cluster: ClusterId(1),
            files,
            ingresses,
            transceivers,
            metrics,
            rates: Rates::new(None),
            proxies: Proxies {
                trusted: Networks::default(),
                latitude: HeaderName::from_static("x-latitude"),
                longitude: HeaderName::from_static("x-longitude"),
                country: HeaderName::from_static("x-country"),
            },
            places: None,
            neighbours: Arc::new(Neighbours::new(PATIENCE).expect("a client")),
            steering: Steering::Forward,
            ice_servers: Vec::new(),
            sidebands: Arc::new(Semaphore::new(8)),
            traces: None,
        };
        change(&mut door);
        let door = Arc::new(door);
        let listeners = server::listen(&["127.0.0.1:0".into()])
            .await
            .expect("a free port");
        let address = listeners[0].local_addr().expect("bound");
        let (stop, stopping) = watch::channel(false);
        let router = routes::router(Arc::clone(&door));
        let gate = Gate::new(None, door.metrics.refusals());
        tokio::spawn(tls::serve(listeners, router, None, gate, stopping));
        Front {
            url: format!("http://{address}"),
            address,
            door,
            files_watch,
            client: reqwest::Client::builder()
                .no_proxy()
                .timeout(2 * PATIENCE)
                .build()
                .expect("a client"),
            _stop: stop,
        }
    }
}
