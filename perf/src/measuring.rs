//! What every command that measures is told: which processors it uses, and what its results say was measured.

use std::io::Write as _;

use anyhow::ensure;
use firsthop_perf::measured::{Machine, Measured, is_busy};

#[derive(clap::Args)]
pub(crate) struct Measuring {
    /// What the results say was measured.
    #[arg(long, default_value = "unknown")]
    commit: String,
    /// What the results say when it was.
    #[arg(long, default_value = "unknown")]
    date: String,
    /// The processor of programs under test.
    #[arg(long, default_value_t = 1)]
    pub(crate) processor: usize,
    /// The processor of whatever they serve: clients, owners, model servers, stub transceivers.
    #[arg(long, default_value_t = 0)]
    generator: usize,
}

impl Measuring {
    /// Looks at the machine, then keeps this process to its processor.
    pub(crate) fn begin(&self) -> anyhow::Result<Measured> {
        let machine = Machine::this();
        if is_busy(machine.load_at_start, machine.processors) {
            // Nobody to tell is no reason not to measure.
            let _ = writeln!(
                std::io::stderr(),
                "This machine is busy (load {:.1} on {} processors): figures will be worse than the programs. Measure again when it has nothing else to do.",
                machine.load_at_start,
                machine.processors
            );
        }
        let generator = self.generator;
        ensure!(
            generator != self.processor,
            "--generator and --processor are two processors"
        );
        ensure!(
            core_affinity::set_for_current(core_affinity::CoreId { id: generator }),
            "--generator {generator}: this process may not run there"
        );
        Ok(Measured {
            machine,
            commit: self.commit.clone(),
            date: self.date.clone(),
            earlier: Vec::new(),
        })
    }
}
