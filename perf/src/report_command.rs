//! The command that makes a page of results.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use firsthop_perf::findings::Findings;
use firsthop_perf::page::{self, markdown};

/// Where results are, unless some are named.
const RESULTS: &str = "perf/results";

/// Where those are that they replaced.
const EARLIER: &str = "perf/results/history";

#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// Files of results, or folders with them. The newest of each kind is shown; older ones show how figures changed. When none is named:
    /// perf/results, and perf/results/history.
    results: Vec<PathBuf>,
    /// Where the page goes.
    #[arg(long, default_value = "perf/results/report.html")]
    out: PathBuf,
    /// Also write the first figures into this document, between its marks.
    #[arg(long)]
    document: Option<PathBuf>,
}

/// Writes the page, and says where it is.
pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<()> {
    let mut paths = args.results.clone();
    if paths.is_empty() {
        paths.push(RESULTS.into());
        paths.extend(Path::new(EARLIER).is_dir().then(|| EARLIER.into()));
    }
    let findings = Findings::read(&paths)?;
    replace(&args.out, page::page(&findings)?).context("--out")?;
    if let Some(document) = &args.document {
        let text = fs::read_to_string(document)
            .with_context(|| format!("--document {}", document.display()))?;
        let text = markdown::placed(&text, &markdown::table(&findings)?);
        ensure!(
            text.is_some(),
            "--document {}: it has no place for figures: write {} and {} where they go",
            document.display(),
            markdown::BEGIN,
            markdown::END
        );
        replace(document, text.unwrap_or_default()).context("--document")?;
    }
    let (out, files) = (args.out.display(), findings.all().len());
    writeln!(std::io::stdout(), "{out}: {files} files of results")?;
    Ok(())
}

/// Writes a file in one go: whoever reads it meanwhile shall not get half of it.
fn replace(path: &Path, text: String) -> anyhow::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, path))
        .with_context(|| path.display().to_string())
}
