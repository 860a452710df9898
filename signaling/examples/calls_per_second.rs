//! How many calls a second signaling makes on one core, and how long each takes: against stub transceivers that answer at once.
//!
//! Signaling runs on a runtime of one thread, pinned to nothing but measured by its own CPU time; stubs and clients run on another
//! thread each. So the figure that counts is calls per second **of signaling's CPU time**, which says what a core gives when it has one to
//! itself, besides the wall-clock rate, which on a machine with fewer cores than threads says little. Latency is what clients see, with a
//! fixed number of them always asking.
//!
//! Usage: `cargo run --release -p firsthop-signaling --example calls_per_second [calls] [clients]`

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::http::HeaderName;
use axum::routing::{get, post};
use axum::{Json, Router};
use firsthop_service::server;
use firsthop_shared::address::{ClusterId, Networks};
use firsthop_shared::control::{CreateResponse, ShardStatus, Status};
use firsthop_shared::keyring::Masters;
use firsthop_signaling::calls::{FrontDoor, Steering};
use firsthop_signaling::client::Proxies;
use firsthop_signaling::files::{FileWatch, Paths};
use firsthop_signaling::limits::{API, HEALTH_TIMEOUT};
use firsthop_signaling::metrics::Metrics;
use firsthop_signaling::neighbours::Neighbours;
use firsthop_signaling::owner::{ControlSecret, OwnerClient, Patience};
use firsthop_signaling::rates::Rates;
use firsthop_signaling::routes;
use firsthop_signaling::transceivers::{Source, Transceivers};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

const KEY: &str = "bench-key";
const STUBS: usize = 2;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let calls = number(arguments.next(), 20_000);
    let clients = number(arguments.next(), 32);
    let stubs = start_stubs();
    let (address, cpu) = start_signaling(stubs);

    let left = Arc::new(AtomicUsize::new(calls));
    // Everything is opened and warm before it counts.
    run(address, clients, &Arc::new(AtomicUsize::new(clients * 20)));
    let before = cpu.used();
    let started = Instant::now();
    let mut took = run(address, clients, &left);
    let wall = started.elapsed();
    let used = cpu.used() - before;
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!("calls              {}", took.len());
    println!("clients            {clients}");
    println!(
        "calls/s, wall      {:.0}",
        took.len() as f64 / wall.as_secs_f64()
    );
    println!(
        "calls/s of CPU     {:.0}",
        took.len() as f64 / used.as_secs_f64()
    );
    println!(
        "CPU per call       {:.1} us",
        used.as_secs_f64() * 1e6 / took.len() as f64
    );
    println!("latency p50        {:.2} ms", at(0.5).as_secs_f64() * 1e3);
    println!("latency p90        {:.2} ms", at(0.9).as_secs_f64() * 1e3);
    println!("latency p99        {:.2} ms", at(0.99).as_secs_f64() * 1e3);
    println!("latency max        {:.2} ms", at(1.0).as_secs_f64() * 1e3);
}

fn number(argument: Option<String>, default: usize) -> usize {
    argument.map_or(default, |text| text.parse().expect("a number"))
}

/// The CPU time of one thread, as the kernel accounts it.
struct Cpu(String);

impl Cpu {
    /// Of the calling thread.
    fn of_this_thread() -> Self {
        let link = fs::read_link("/proc/thread-self").expect("procfs");
        Self(format!("/proc/{}/schedstat", link.display()))
    }

    fn used(&self) -> Duration {
        let text = fs::read_to_string(&self.0).expect("schedstat");
        let nanos = text.split_whitespace().next().expect("a figure");
        Duration::from_nanos(nanos.parse().expect("a number"))
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn start_stubs() -> Vec<SocketAddr> {
    let (found, stubs) = std::sync::mpsc::channel();
    for _ in 0..STUBS {
        let found = found.clone();
        std::thread::spawn(move || {
            runtime().block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                let address = listener.local_addr().expect("bound");
                found.send(address).expect("awaited");
                let owner = SocketAddr::from(([127, 0, 0, 1], address.port() ^ 1));
                let status = move || async move {
                    let shard = ShardStatus {
                        sessions: 0,
                        capacity: u32::MAX,
                    };
                    let version = String::from("stub");
                    Json(Status {
                        boot: 1,
                        owner,
                        draining: false,
                        shards: vec![shard; 2],
                        version,
                    })
                };
                let create = async || {
                    let answer = answer();
                    (
                        axum::http::StatusCode::CREATED,
                        Json(CreateResponse { answer }),
                    )
                };
                let router = Router::new()
                    .route("/v1/status", get(status))
                    .route("/v1/sessions", post(create));
                axum::serve(listener, router).await.expect("served");
            });
        });
    }
    stubs.iter().take(STUBS).collect()
}

/// As long as a real answer with four candidates.
fn answer() -> String {
    let mut text = String::from("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n");
    while text.len() < 1_400 {
        text += "a=candidate:1 1 udp 2130706431 203.0.113.10 3478 typ host\r\n";
    }
    text
}

fn start_signaling(stubs: Vec<SocketAddr>) -> (SocketAddr, Cpu) {
    let (ready, started) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let cpu = Cpu::of_this_thread();
        runtime().block_on(async {
            let folder =
                std::env::temp_dir().join(format!("firsthop-bench-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a writable folder");
            let door = Arc::new(front_door(&folder, stubs));
            door.transceivers.poll_once().await;
            let _ = fs::remove_dir_all(&folder);
            let listeners = server::listen(&["127.0.0.1:0".into()])
                .await
                .expect("a free port");
            let address = listeners[0].local_addr().expect("bound");
            let (_stop, stopping) = watch::channel(false);
            tokio::spawn(Arc::clone(&door.transceivers).poll_forever(Arc::clone(&door.metrics)));
            ready.send((address, cpu)).expect("awaited");
            server::serve(listeners, routes::router(door), API, stopping).await;
        });
    });
    started.recv().expect("started")
}

fn front_door(folder: &Path, stubs: Vec<SocketAddr>) -> FrontDoor {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("a writable folder");
        path
    };
    let masters = Masters::new([7; 32]);
    let hash: String = Sha256::digest(KEY)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let fleet =
        "[[cluster]]\nid = 1\nname = \"one\"\n[[ingress]]\nid = 1\nipv4 = \"203.0.113.10:3478\"\n";
    let paths = [
        write("data.toml", &masters.data_toml()),
        write("api.toml", &masters.api_toml()),
        write("fleet.toml", fleet),
        write(
            "keys.toml",
            &format!("[[key]]\nname = \"bench\"\nsha256 = \"{hash}\"\n"),
        ),
    ];
    let (_, files) = FileWatch::open(Paths {
        keyring: &paths[0],
        api_keyring: &paths[1],
        fleet: &paths[2],
        api_keys: &paths[3],
    })
    .expect("usable files");
    let secret = ControlSecret::parse("bench").expect("a secret");
    let client = OwnerClient::new(&secret, Patience::default()).expect("a client");
    FrontDoor {
        cluster: ClusterId(1),
        files,
        ingresses: None,
        transceivers: Transceivers::new(stubs.into_iter().map(Source::Address).collect(), client),
        metrics: Arc::new(Metrics::new()),
        rates: Rates::new(None),
        proxies: Proxies {
            trusted: Networks::default(),
            latitude: HeaderName::from_static("x-latitude"),
            longitude: HeaderName::from_static("x-longitude"),
            country: HeaderName::from_static("x-country"),
        },
        places: None,
        neighbours: Arc::new(Neighbours::new(HEALTH_TIMEOUT).expect("a client")),
        steering: Steering::Forward,
        ice_servers: Vec::new(),
        sidebands: Arc::new(Semaphore::new(1)),
    }
}

/// Has so many clients ask until none is left, and returns how long each call took.
fn run(address: SocketAddr, clients: usize, left: &Arc<AtomicUsize>) -> Vec<Duration> {
    runtime().block_on(async {
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..clients {
            asking.spawn(client(address, Arc::clone(left)));
        }
        asking.join_all().await.concat()
    })
}

/// One client with a connection of its own. It speaks HTTP by hand: a library's would cost more than what is measured.
async fn client(address: SocketAddr, left: Arc<AtomicUsize>) -> Vec<Duration> {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.set_nodelay(true).expect("a TCP socket");
    let offer = include_str!("offer.sdp");
    let request = format!(
        "POST /v1/realtime/calls HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/sdp\r\n\
         content-length: {}\r\n\r\n{offer}",
        offer.len()
    );
    let mut took = Vec::new();
    let mut buffer = vec![0; 16 * 1_024];
    while left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
        .is_ok()
    {
        let started = Instant::now();
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut have = 0;
        loop {
            have += stream.read(&mut buffer[have..]).await.expect("answered");
            let text = std::str::from_utf8(&buffer[..have]).expect("text");
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            assert!(head.starts_with("HTTP/1.1 201"), "{text}");
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .expect("a length");
            if body.len() >= length.parse::<usize>().expect("a number") {
                break;
            }
        }
        took.push(started.elapsed());
    }
    took
}
