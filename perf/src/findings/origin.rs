//! Where a file of results comes from.

use std::fmt::{self, Display};

use serde::Serialize;

/// Where, of what and when something was measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Origin {
    /// The machine, in a line. Equal lines are machines alike.
    pub machine: String,
    /// The commit that was built.
    pub commit: String,
    /// When, as the file has it: RFC 3339, or `unknown`.
    pub date: String,
    /// When earlier runs were that parts of the file may be of.
    pub earlier: Vec<String>,
    /// Whether the machine had other work when it began ([`is_busy`](crate::measured::is_busy)): its figures are worse than the programs.
    pub busy: bool,
}

impl Origin {
    /// When, for putting files in order: one whose date is not known is older than all others.
    pub(super) fn when(&self) -> (bool, &str) {
        when(&self.date)
    }

    /// The day, of a date that has one.
    #[must_use]
    pub fn day(&self) -> &str {
        day(&self.date)
    }

    /// The days of all runs that parts may be of, each once, the oldest first.
    #[must_use]
    pub fn days(&self) -> Vec<&str> {
        let mut days: Vec<&str> = self.earlier.iter().map(|date| day(date)).collect();
        days.push(self.day());
        days.sort_unstable();
        days.dedup();
        days
    }
}

/// See [`Origin::day`].
fn day(date: &str) -> &str {
    date.split('T').next().unwrap_or(date)
}

/// See [`Origin::when`].
pub(super) fn when(date: &str) -> (bool, &str) {
    (date.starts_with(|first: char| first.is_ascii_digit()), date)
}

impl Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "commit {}, {}, {}",
            self.commit,
            self.days().join(" and "),
            self.machine
        )
    }
}
