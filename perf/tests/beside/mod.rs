//! A real relay for a test, built beside it.

use std::path::PathBuf;

use firsthop_perf::subject::Lab;

/// The relay that was built beside this test, or the one that `FIRSTHOP_RELAY` names.
fn relay() -> PathBuf {
    if let Some(named) = std::env::var_os("FIRSTHOP_RELAY") {
        return named.into();
    }
    let test = std::env::current_exe().expect("this test's own path");
    let built = test.ancestors().nth(2).map(|folder| folder.join("relay"));
    built
        .filter(|path| path.is_file())
        .expect("a relay beside this test: cargo build -p firsthop-relay, or set FIRSTHOP_RELAY")
}

/// Where a relay runs on the last processor; folders of its own by the name.
pub(crate) fn lab(name: &str) -> Lab {
    let cores = core_affinity::get_core_ids().expect("processors");
    let processor = cores.last().expect("at least one").id;
    let folder = format!("firsthop-{name}-{}", std::process::id());
    Lab::new(processor, std::env::temp_dir().join(folder), relay(), None).expect("a directory")
}
