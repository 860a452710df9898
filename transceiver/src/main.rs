//! The transceiver: see the library's documentation.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use firsthop_service::about::About;
use firsthop_service::open_files::{self, Demand, OpenFiles};
use firsthop_service::secret_files::Secrets;
use firsthop_service::settings::{self, SettingError};
use firsthop_service::traces::{Counts, Exporter, Tracer};
use firsthop_service::{file_size, files, server};
use firsthop_shared::address::ShardId;
use firsthop_shared::keyring::DataKeyring;
use firsthop_transceiver::backend::{Apps, AppsReloader, Dialer, Kind, Outages};
use firsthop_transceiver::config::{Args, Config, FleetReloader, KeyringReloader, QUIET};
use firsthop_transceiver::control::{Control, WorkerHandle, router};
use firsthop_transceiver::descriptors;
use firsthop_transceiver::dtls::Identity;
use firsthop_transceiver::limits;
use firsthop_transceiver::metrics::Metrics;
use firsthop_transceiver::socket;
use firsthop_transceiver::worker::{
    Core, CoreSettings, Directory, Endings, Shared, Worker, WorkerStats, spawn,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};

const PROGRAM: &str = "transceiver";

fn main() -> ExitCode {
    file_size::outlive_limit();
    let args: Args = match settings::of_process(PROGRAM) {
        Ok(args) => args,
        Err(ended) => return ended,
    };
    let mut config = match args.log.start(&QUIET).and_then(|()| Config::load(&args)) {
        Ok(config) => config,
        Err(error) => return settings::refuse(PROGRAM, &error),
    };
    // A file of applications may name servers at any time.
    let dials = args.backend.backend != Kind::Echo || args.backend.apps.is_some();
    let dialled = if dials {
        let sessions = config.workers.saturating_mul(config.sessions_per_worker);
        sessions.saturating_mul(limits::FILES_PER_SESSION)
    } else {
        0
    };
    let served = limits::CONTROL.connections + limits::SIDEBANDS_MAX;
    let workers = config.workers * limits::FILES_PER_WORKER;
    let demand = Demand {
        start: workers,
        full: dialled.saturating_add(served).saturating_add(workers),
    };
    let open_files = match open_files::provide(demand) {
        Ok(open_files) => open_files,
        Err(error) => return settings::refuse(PROGRAM, &error),
    };
    let wanted = config.sessions_per_worker;
    if dials {
        let spare = open_files.spare();
        config.sessions_per_worker =
            descriptors::sessions_per_worker(wanted, config.workers, served, spare);
    }
    let counts = Arc::new(Counts::default());
    let traced = match args.traces.open(PROGRAM, Arc::clone(&counts)) {
        Ok(traced) => traced,
        Err(error) => return settings::refuse(PROGRAM, &error),
    };
    match serve(config, wanted, &args.secrets(), &open_files, traced, counts) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn random() -> u64 {
    rand::random()
}

fn serve(
    config: Config,
    wanted: usize,
    secrets: &Secrets,
    open_files: &OpenFiles,
    traced: Option<(Tracer, Exporter)>,
    counts: Arc<Counts>,
) -> anyhow::Result<ExitCode> {
    let (tracer, exporter) = traced.unzip();
    let identity = Identity::process()?;
    let about = About::new(&["keyring", "fleet", "apps"]);
    let (keyring_watch, keyring) = config.keyring;
    show_keyring(&about, &keyring);
    let (fleet_watch, fleet) = config.fleet;
    let (apps_watch, apps) = config.backend.apps;
    let (apps, apps_now) = watch::channel(Arc::new(apps));
    let (shared, shared_now) = watch::channel(Shared {
        keyring: Arc::new(keyring),
        fleet: Arc::new(fleet),
    });

    let bad_address = |setting: &'static str, error: &std::io::Error, address| {
        let error = SettingError::cannot_listen(setting, &address, error);
        Ok(settings::refuse(PROGRAM, &error))
    };
    let (sockets, sizes) = match socket::bind_group(config.trunk, config.workers) {
        Ok(bound) => bound,
        Err(error) => return bad_address("--trunk", &error, config.trunk),
    };
    let listener = match server::bind(config.control) {
        Ok(listener) => listener,
        Err(error) => return bad_address("--control", &error, config.control),
    };
    if sizes.capped() {
        tracing::info!(
            granted = sizes.receive.min(sizes.send),
            wanted = 2 * limits::SOCKET_BUFFER,
            "the kernel caps the trunk's buffers; raise net.core.rmem_max and wmem_max for bursts of calls"
        );
    }

    let draining = Arc::new(AtomicBool::new(false));
    let directory = Directory::default();
    let endings = Endings::default();
    let outages = Arc::new(Outages::default());
    let sidebands = Arc::new(Semaphore::new(limits::SIDEBANDS_MAX));
    let (drain, drained) = watch::channel(None);
    let (stop, stopped) = watch::channel(false);
    let processors = core_affinity::get_core_ids().unwrap_or_default();
    let epoch = Instant::now();
    let mut handles = Vec::new();
    let (ended, mut ends) = mpsc::unbounded_channel();
    for (index, socket) in sockets.into_iter().enumerate() {
        let settings = CoreSettings {
            // `Config` allows 256 workers at most.
            shard: ShardId(u8::try_from(index)?),
            capacity: config.sessions_per_worker,
            networks: config.networks.clone(),
            lifetimes: config.lifetimes,
            opus: config.opus,
            directory: directory.clone(),
            endings: endings.clone(),
            epoch,
        };
        let (commands, queue) = mpsc::channel(limits::COMMANDS_WAITING);
        let stats = Arc::new(WorkerStats::default());
        // Bounded by the worker's sessions: see `backend::Waker`.
        let (wakes, woken) = mpsc::unbounded_channel();
        let (alive, connections) = mpsc::channel(1);
        let dialer = Dialer {
            apps: apps_now.clone(),
            tls: Arc::clone(&config.backend.tls),
            wakes,
            stats: Arc::clone(&stats.backend),
            outages: Arc::clone(&outages),
            alive,
        };
        let core = Core::new(settings, shared_now.borrow().clone(), identity, random)
            .with_backends(Box::new(dialer));
        handles.push(WorkerHandle {
            commands,
            stats: Arc::clone(&stats),
        });
        let worker = Worker {
            core,
            socket,
            commands: queue,
            shared: shared_now.clone(),
            wakes: woken,
            connections,
            drain: drained.clone(),
            stop: stopped.clone(),
            stats,
            internal_mtu: config.internal_mtu,
            cpu: processors.get(index % processors.len().max(1)).copied(),
        };
        spawn(worker, format!("worker-{index}"), ended.clone()).context("a worker's thread")?;
    }

    drop(ended);

    let stats = handles.iter().map(|h| Arc::clone(&h.stats)).collect();
    let control = Arc::new(Control {
        boot: rand::random(),
        owner: config.owner,
        cluster: config.cluster,
        workers: handles,
        sessions_per_worker: config.sessions_per_worker,
        directory: directory.clone(),
        endings,
        shared: shared_now,
        draining: Arc::clone(&draining),
        secret: config.control_secret,
        sidebands: Arc::clone(&sidebands),
        metrics: Metrics::new(
            stats,
            config.sessions_per_worker,
            Arc::clone(&draining),
            Arc::clone(&sidebands),
            &about,
            counts,
        ),
        tracer,
    });

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::spawn(reload(
            shared,
            keyring_watch,
            fleet_watch,
            Arc::clone(&about),
        ));
        tokio::spawn(reload_apps(apps, apps_watch, Arc::clone(&about)));
        let (last, end) = watch::channel(false);
        let exporting = exporter.map(|exporter| tokio::spawn(exporter.run(end)));
        if config.sessions_per_worker < wanted {
            let setting = "--sessions-per-worker";
            open_files.report_lowered(setting, wanted, config.sessions_per_worker);
        } else {
            open_files.report();
        }
        secrets.warn_of_exposed();
        tracing::info!(
            trunk = %config.trunk,
            owner = %config.owner,
            control = %config.control,
            workers = config.workers,
            "ready"
        );
        let serving = tokio::spawn(server::serve(
            vec![listener],
            router(Arc::clone(&control)),
            limits::CONTROL,
            stopped.clone(),
        ));
        let mut running = config.workers;
        let mut fault = None;
        let drain_on_term = async {
            terminate.recv().await;
            if config.drain.is_zero() {
                return;
            }
            draining.store(true, Relaxed);
            let end = Instant::now() + config.drain;
            drain.send_replace(Some(end));
            tracing::info!(
                seconds = config.drain.as_secs(),
                sessions = directory.sessions(),
                "draining"
            );
            // Each session ends itself; one that cannot is ended with the workers.
            let overdue = tokio::time::sleep_until((end + limits::STOP_TIMEOUT).into());
            tokio::select! {
                () = directory.empty() => {}
                () = overdue => {}
                _ = terminate.recv() => {}
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            () = drain_on_term => {}
            // Nothing but a fault ends a worker now. Its clients are lost and its shard answers nobody: better a process that
            // ends, and is started anew, than one that looks well.
            end = ends.recv() => {
                running -= 1;
                fault = Some(match end {
                    Some(Err(error)) => anyhow::Error::new(error).context("a worker has ended"),
                    _ => anyhow::anyhow!("a worker has ended before the stop"),
                });
            }
        }
        tracing::info!("stopping");
        draining.store(true, Relaxed);
        let _ = stop.send(true);
        // Workers say goodbye to their clients meanwhile; a control connection that stays open does not keep us.
        serving.await.context("the control server failed")?;
        let goodbyes = async {
            while running > 0 {
                match ends.recv().await {
                    Some(end) => end.context("a worker")?,
                    None => anyhow::bail!("a worker has ended without a word"),
                }
                running -= 1;
            }
            anyhow::Ok(())
        };
        // A worker that hangs must not keep the process: its thread ends with it.
        let stopped = match tokio::time::timeout(limits::STOP_TIMEOUT, goodbyes).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("a worker did not stop in time")),
        };
        // The sessions have ended: their sidebands say so, and give their permits back.
        let all = u32::try_from(limits::SIDEBANDS_MAX)?;
        let _ = tokio::time::timeout(limits::STOP_TIMEOUT, sidebands.acquire_many(all)).await;
        // What the workers have told at their end goes with it.
        last.send_replace(true);
        if let Some(exporting) = exporting {
            exporting.await.context("the export of traces failed")?;
        }
        fault.map_or(stopped, Err)
    })?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

fn show_keyring(about: &About, keyring: &DataKeyring) {
    about.keyring("keyring", keyring.active().id(), keyring.len());
}

/// Looks at the applications and their keys once a second.
async fn reload_apps(apps: watch::Sender<Arc<Apps>>, mut files: AppsReloader, about: Arc<About>) {
    let mut every = tokio::time::interval(Duration::from_secs(1));
    loop {
        every.tick().await;
        let Some(look) = files.poll() else {
            continue;
        };
        if let Some(new) = look.apps {
            // All files are one setting: it is usable when each of them is.
            if !look.failing {
                about.reloaded("apps", true);
            }
            tracing::info!("applications reloaded");
            apps.send_replace(Arc::new(new));
        }
        for error in look.errors {
            about.reloaded("apps", false);
            // One line, whatever a parser said.
            let error = error.to_string();
            let error: Vec<&str> = error.split_whitespace().collect();
            tracing::warn!(
                error = error.join(" "),
                "a changed file of the applications cannot be used; what it said stays as it was"
            );
        }
    }
}

/// Looks at the files once a second; a file that cannot be used leaves the last good one in place.
async fn reload(
    shared: watch::Sender<Shared>,
    mut keyring: KeyringReloader,
    mut fleet: FleetReloader,
    about: Arc<About>,
) {
    let mut every = tokio::time::interval(Duration::from_secs(1));
    loop {
        every.tick().await;
        if let Ok(Some(new)) = files::changed("keyring", &mut keyring, &about) {
            show_keyring(&about, &new);
            shared.send_modify(|shared| shared.keyring = Arc::new(new));
        }
        if let Ok(Some(new)) = files::changed("fleet", &mut fleet, &about) {
            shared.send_modify(|shared| shared.fleet = Arc::new(new));
        }
    }
}
