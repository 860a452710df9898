//! What every program says of itself on its metrics page: which build it is, what it uses of the machine, which files it runs with.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use firsthop_shared::address::KeyId;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::{open_files, usage};

/// The version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that was built, as whoever built it said in `FIRSTHOP_COMMIT`.
pub const COMMIT: &str = match option_env!("FIRSTHOP_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// What there is to say of one process.
#[derive(Debug)]
pub struct About {
    started: Duration,
    files: Vec<FileState>,
}

/// One file that is read again when it changes.
#[derive(Debug)]
struct FileState {
    /// The setting that names it, without its dashes.
    setting: &'static str,
    reloads: AtomicU64,
    failures: AtomicU64,
    /// Whether the last change is not in use: 1, or 0.
    unusable: AtomicU64,
    /// When what is in use was read: milliseconds since 1970.
    read: AtomicU64,
    /// Of a keyring: the id of its active key, and how many it has. [`NO_KEY`] and 0 of another file.
    key: AtomicU64,
    keys: AtomicU64,
}

const NO_KEY: u64 = u64::MAX;

impl About {
    /// A process that has just started, and has read the files that these settings name.
    #[must_use]
    pub fn new(settings: &[&'static str]) -> Arc<Self> {
        let started = since_1970();
        let files = settings.iter().map(|setting| FileState {
            setting,
            reloads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            unusable: AtomicU64::new(0),
            read: AtomicU64::new(millis(started)),
            key: AtomicU64::new(NO_KEY),
            keys: AtomicU64::new(0),
        });
        Arc::new(Self {
            started,
            files: files.collect(),
        })
    }

    /// The file of a setting was read again, and is in use or not.
    pub fn reloaded(&self, setting: &str, usable: bool) {
        let Some(file) = self.file(setting) else {
            return;
        };
        if usable {
            file.read.store(millis(since_1970()), Relaxed);
            file.unusable.store(0, Relaxed);
            file.reloads.fetch_add(1, Relaxed);
        } else {
            file.unusable.store(1, Relaxed);
            file.failures.fetch_add(1, Relaxed);
        }
    }

    /// The keyring of a setting is in use: with this active key, and so many keys in all.
    pub fn keyring(&self, setting: &str, active: KeyId, keys: usize) {
        if let Some(file) = self.file(setting) {
            file.key.store(u64::from(active.get()), Relaxed);
            file.keys.store(keys as u64, Relaxed);
        }
    }

    fn file(&self, setting: &str) -> Option<&FileState> {
        let file = self.files.iter().find(|file| file.setting == setting);
        debug_assert!(file.is_some(), "{setting} is not among the files");
        file
    }

    /// Shows it among the metrics of a program.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        let build = Info::new(vec![("version", VERSION), ("commit", COMMIT)]);
        registry.register("build", "Which build of the program this is", build);
        registry.register_collector(Box::new(Shown(Arc::clone(self))));
    }
}

fn since_1970() -> Duration {
    // A clock before 1970 is one that nobody has set yet.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Debug)]
struct Shown(Arc<About>);

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let started = ConstGauge::new(self.0.started.as_secs_f64());
        let help = "When the process started, in seconds since 1970";
        show(encoder, "process_start_time_seconds", help, &started)?;
        if let Some(time) = usage::processor_time() {
            let help = "Processor time of the process, in the program and in the kernel";
            let time = ConstCounter::new(time.as_secs_f64());
            show(encoder, "process_cpu_seconds", help, &time)?;
        }
        let sizes = [
            (
                "process_resident_memory_bytes",
                "Memory of the process that is in RAM",
                usage::resident_bytes(),
            ),
            (
                "process_open_files",
                "Files that the process has open, sockets included",
                usage::open_files(),
            ),
            (
                "process_open_files_limit",
                "Files that the process may have open",
                open_files::now(),
            ),
        ];
        for (name, help, size) in sizes {
            if let Some(size) = size {
                show(encoder, name, help, &ConstGauge::new(size))?;
            }
        }
        self.encode_files(encoder)
    }
}

impl Shown {
    fn encode_files(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Pick = fn(&FileState) -> &AtomicU64;
        let counters: [(&str, &str, Pick); 2] = [
            (
                "file_reloads",
                "Times that a changed file was taken over, by the setting that names it",
                |file| &file.reloads,
            ),
            (
                "file_reload_failures",
                "Times that a changed file could not be used: the last good content stays in use",
                |file| &file.failures,
            ),
        ];
        for (name, help, pick) in counters {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for file in &self.0.files {
                let labels = [("file", file.setting)];
                let metric = family.encode_family(&labels)?;
                ConstCounter::new(pick(file).load(Relaxed)).encode(metric)?;
            }
        }
        let help = "When the content of a file that is in use was read, in seconds since 1970";
        let mut family = encoder.encode_descriptor(
            "file_read_timestamp_seconds",
            help,
            None,
            MetricType::Gauge,
        )?;
        for file in &self.0.files {
            let labels = [("file", file.setting)];
            let metric = family.encode_family(&labels)?;
            let read = Duration::from_millis(file.read.load(Relaxed));
            ConstGauge::new(read.as_secs_f64()).encode(metric)?;
        }
        let help = "Whether the last change of a file cannot be used, so that an older content is in use: 1, or 0";
        let mut family =
            encoder.encode_descriptor("file_unusable", help, None, MetricType::Gauge)?;
        for file in &self.0.files {
            let labels = [("file", file.setting)];
            let metric = family.encode_family(&labels)?;
            ConstGauge::new(file.unusable.load(Relaxed)).encode(metric)?;
        }
        let gauges: [(&str, &str, Pick); 2] = [
            (
                "keyring_active_key_id",
                "Id of the key that new tokens and trunk datagrams use",
                |file| &file.key,
            ),
            (
                "keyring_keys",
                "Keys that are accepted: more than one while keys are rotated",
                |file| &file.keys,
            ),
        ];
        for (name, help, pick) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for file in &self.0.files {
                if file.key.load(Relaxed) != NO_KEY {
                    let labels = [("file", file.setting)];
                    let metric = family.encode_family(&labels)?;
                    ConstGauge::new(pick(file).load(Relaxed)).encode(metric)?;
                }
            }
        }
        Ok(())
    }
}

fn show(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn page(about: &Arc<About>) -> String {
        let mut registry = Registry::with_prefix("firsthop_test");
        about.register(&mut registry);
        let mut page = String::new();
        encode(&mut page, &registry).expect("a page");
        page
    }

    fn value(page: &str, sample: &str) -> f64 {
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        let value = line.unwrap_or_else(|| panic!("{sample} in\n{page}"));
        value.parse().expect("a number")
    }

    #[test]
    fn what_it_is_and_uses_is_shown() {
        let page = page(&About::new(&[]));
        let build =
            format!("firsthop_test_build_info{{version=\"{VERSION}\",commit=\"{COMMIT}\"}} 1");
        assert!(page.contains(&build), "{page}");
        let now = since_1970().as_secs_f64();
        let started = value(&page, "firsthop_test_process_start_time_seconds");
        assert!((now - 60.0..=now).contains(&started), "{started} at {now}");
        for name in [
            "cpu_seconds_total",
            "resident_memory_bytes",
            "open_files",
            "open_files_limit",
        ] {
            assert!(value(&page, &format!("firsthop_test_process_{name}")) > 0.0);
        }
    }

    #[test]
    fn files_show_what_became_of_their_changes() {
        let about = About::new(&["keyring", "fleet"]);
        about.keyring("keyring", KeyId::new(7).expect("an id"), 2);
        let of = |name: &str, file: &str| format!("firsthop_test_{name}{{file=\"{file}\"}}");
        let before = page(&about);
        assert_eq!(value(&before, &of("keyring_active_key_id", "keyring")), 7.0);
        assert_eq!(value(&before, &of("keyring_keys", "keyring")), 2.0);
        assert!(!before.contains(&of("keyring_keys", "fleet")), "{before}");

        let read = of("file_read_timestamp_seconds", "fleet");
        about.files[1].read.store(1_500, Relaxed);
        about.reloaded("fleet", false);
        let failed = page(&about);
        assert_eq!(value(&failed, &read), 1.5);
        assert_eq!(value(&failed, &of("file_unusable", "fleet")), 1.0);
        assert_eq!(
            value(&failed, &of("file_reload_failures_total", "fleet")),
            1.0
        );
        assert_eq!(
            value(&failed, &of("file_reload_failures_total", "keyring")),
            0.0
        );

        about.reloaded("fleet", true);
        let taken = page(&about);
        assert!(value(&taken, &read) > 1e9);
        assert_eq!(value(&taken, &of("file_unusable", "fleet")), 0.0);
        assert_eq!(value(&taken, &of("file_reloads_total", "fleet")), 1.0);
    }
}
