//! Files with secrets that every user of the machine can read: the warning that all programs give of them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The right of others to read a file.
const READ_BY_OTHERS: u32 = 0o004;

/// The right of others to reach what is in a folder.
const PASS_BY_OTHERS: u32 = 0o001;

/// The files with secrets that a program was given.
#[derive(Clone, Debug)]
pub struct Secrets(Vec<(&'static str, PathBuf)>);

impl Secrets {
    /// Of files named by their settings. Those that are not set are left out.
    #[must_use]
    pub fn of<const N: usize>(files: [(&'static str, Option<&Path>); N]) -> Self {
        let set = files.into_iter();
        Self(
            set.filter_map(|(setting, path)| Some((setting, path?.to_owned())))
                .collect(),
        )
    }

    /// Warns of each that every user of the machine can read. To be called once the program has started: what stops the start has a line of
    /// its own.
    ///
    /// A warning and no refusal: calls are as well as before, and what supervises the program may give it no other file. One that cannot be
    /// looked at is not warned of; who reads it says why.
    pub fn warn_of_exposed(&self) {
        for (setting, path) in &self.0 {
            if exposed(path) {
                tracing::warn!(
                    setting,
                    path = %path.display(),
                    "every user of this machine can read this secret: give the file mode 0640 and the program's group"
                );
            }
        }
    }
}

/// Whether others may read the file, and reach it: links are followed, and each folder above counts.
fn exposed(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else {
        return false;
    };
    let grants = |path: &Path, right| path.metadata().is_ok_and(|meta| meta.mode() & right != 0);
    grants(&path, READ_BY_OTHERS)
        && path
            .ancestors()
            .skip(1)
            .all(|folder| grants(folder, PASS_BY_OTHERS))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("firsthop-{}-{name}", std::process::id()));
            fs::create_dir(&path).expect("a new folder");
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own");
    }

    #[test]
    fn a_file_is_exposed_when_others_may_read_and_reach_it() {
        let folder = Folder::new("exposed");
        let file = folder.0.join("secret");
        fs::write(&file, "secret").expect("writable");
        let link = folder.0.join("link");
        symlink(&file, &link).expect("writable");
        // As far as others get by themselves: where temporary files are is not ours to choose.
        let reached = std::env::temp_dir()
            .canonicalize()
            .expect("there")
            .ancestors()
            .all(|above| above.metadata().is_ok_and(|meta| meta.mode() & 0o001 != 0));
        for (above, mode, open) in [
            (0o755, 0o644, true),
            (0o711, 0o604, true),
            (0o755, 0o640, false),
            (0o755, 0o600, false),
            // As /etc/firsthop is.
            (0o750, 0o644, false),
            (0o700, 0o666, false),
        ] {
            set(&folder.0, above);
            set(&file, mode);
            for path in [&file, &link] {
                assert_eq!(exposed(path), open && reached, "{above:o} {mode:o}");
            }
        }
        assert!(!exposed(&folder.0.join("nowhere")));
    }
}
