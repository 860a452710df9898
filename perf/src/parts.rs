//! The rule for runs of some parts (`--only`), the same for every command: what such a run does not measure stays in the file of results that is
//! there, if that is of the same commit and kind of machine. Otherwise nothing is measured, and another folder has to be named: parts of different commits
//! are never in one file.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use firsthop_perf::measured::Measured;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What every file of results begins with.
#[derive(Deserialize)]
struct Head {
    #[serde(flatten)]
    measured: Measured,
    #[serde(default)]
    quick: bool,
}

/// The file of results that a run of some parts adds to; nothing when there is none, or when this run measures anew all that it has.
///
/// # Errors
/// It has other parts, and they do not go with what this run will measure, or they cannot be read.
pub(crate) fn earlier<T: DeserializeOwned>(
    path: &Path,
    measured: &Measured,
    quick: bool,
    has_others: impl Fn(&T) -> bool,
) -> anyhow::Result<Option<T>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let unread = || {
        format!(
            "--only: {} has parts that this run does not measure, and cannot be read; --results names another folder",
            path.display()
        )
    };
    let file: T = serde_json::from_str(&text).with_context(unread)?;
    if !has_others(&file) {
        return Ok(None);
    }
    let head: Head = serde_json::from_str(&text).with_context(unread)?;
    let goes = match head.quick == quick {
        true => measured.goes_with(&head.measured),
        false => Err("one of them is of the short form".to_owned()),
    };
    if let Err(why) = goes {
        bail!(
            "--only: {} has parts that this run does not measure, and they do not go with it: {why}; --results names another folder",
            path.display()
        );
    }
    // That nobody can read it stops nothing.
    let _ = writeln!(
        std::io::stderr(),
        "{}: what is not measured now is kept as it was measured at {}.",
        path.display(),
        head.measured.date
    );
    Ok(Some(file))
}

/// Refuses to replace a file of results, of which parts cannot be kept: its figures are ratios within one run.
///
/// # Errors
/// It is there.
pub(crate) fn apart(path: &Path) -> anyhow::Result<()> {
    ensure!(
        !path.exists(),
        "{} is there, and parts of it do not stand beside those of another run; --results names another folder",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn measured(commit: &str) -> Measured {
        Measured {
            commit: commit.to_owned(),
            ..Measured::default()
        }
    }

    #[test]
    fn parts_are_kept_of_the_same_commit_and_form_alone() {
        let folder = std::env::temp_dir().join(format!("firsthop-parts-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("setup.json");
        let others = |_: &Value| true;
        let earlier = |commit: &str, quick| earlier(&path, &measured(commit), quick, others);
        assert!(earlier("c0ffee00", false).expect("no file").is_none());
        assert!(apart(&path).is_ok());

        let mut file = serde_json::to_value(measured("c0ffee00")).expect("JSON");
        file["quick"] = false.into();
        fs::write(&path, file.to_string()).expect("written");
        assert_eq!(earlier("c0ffee00", false).expect("kept"), Some(file));
        for (commit, quick, why) in [
            ("badc0de0", false, "commit c0ffee00"),
            ("c0ffee00", true, "short form"),
        ] {
            let error = earlier(commit, quick).expect_err("refused").to_string();
            assert!(
                error.contains(why) && error.contains("--results names"),
                "{error}"
            );
        }
        let all = super::earlier(&path, &measured("badc0de0"), false, |_: &Value| false);
        assert!(all.expect("all of it is measured anew").is_none());
        let error = apart(&path).expect_err("refused").to_string();
        assert!(error.contains("--results names"), "{error}");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
