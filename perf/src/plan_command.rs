//! The command that plans.

use std::io::Write as _;
use std::path::PathBuf;

use firsthop_perf::findings::Findings;
use firsthop_perf::plan::{Assumptions, Costs, Plan};

#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    assumptions: Assumptions,
    /// Files of results, or folders with them: the newest of each kind counts.
    #[arg(long, value_delimiter = ',', default_value = "perf/results")]
    results: Vec<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Plans, and prints the plan.
pub(crate) fn plan(args: &PlanArgs) -> anyhow::Result<()> {
    let costs = Costs::of(&Findings::read(&args.results)?)?;
    let plan = Plan::of(&args.assumptions, &costs);
    let text = if args.json {
        serde_json::to_string_pretty(&plan)? + "\n"
    } else {
        plan.text()
    };
    Ok(write!(std::io::stdout(), "{text}")?)
}
