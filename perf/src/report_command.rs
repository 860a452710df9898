//! The command that makes a page of results.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use firsthop_perf::findings::Findings;
use firsthop_perf::page;

#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// Files of results, or folders with them. The newest of each kind is shown; older ones show how figures changed.
    #[arg(default_value = "perf/results")]
    results: Vec<PathBuf>,
    /// Where the page goes.
    #[arg(long, default_value = "perf/results/report.html")]
    out: PathBuf,
}

/// Writes the page, and says where it is.
pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<()> {
    let findings = Findings::read(&args.results)?;
    let page = page::page(&findings)?;
    let out = args.out.display();
    // Whoever has the page open shall not read half of it.
    let beside = args.out.with_extension("html.tmp");
    fs::write(&beside, page)
        .and_then(|()| fs::rename(&beside, &args.out))
        .with_context(|| format!("--out {out}"))?;
    writeln!(
        std::io::stdout(),
        "{out}: {} files of results",
        findings.all().len()
    )?;
    Ok(())
}
