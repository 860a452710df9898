//! Files that are read again when they change: keyrings, the fleet, API keys.
//!
//! The library starts no thread and reads no clock: the program calls [`Reloader::poll`] about once a second from a timer
//! of its own, off the packet path. A change is seen by modification time, length and inode, so that both an editor's
//! write and an atomic replacement (as Kubernetes does with mounted Secrets) are noticed; and by owner and mode, so that a file that
//! could not be read is read when that is mended.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::limits::CONFIG_FILE_MAX;

/// A file that could not be read as text.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refused.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder, a device or a pipe.
    #[error("{path} is not a regular file")]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// The file is larger than [`CONFIG_FILE_MAX`].
    #[error("{path} is larger than {CONFIG_FILE_MAX} bytes: is it the right file?")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a configuration file whole, as UTF-8, when it is not larger than [`CONFIG_FILE_MAX`].
///
/// # Errors
/// When it is larger, cannot be read, or is no UTF-8.
pub fn read_small_file(path: &Path) -> Result<String, ReadError> {
    let io = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    // Opening a pipe waits for its other end, and whoever reloads would wait with it.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(ReadError::NotAFile {
            path: path.to_owned(),
        });
    }
    let file = std::fs::File::open(path).map_err(io)?;
    let mut text = String::new();
    file.take(CONFIG_FILE_MAX + 1)
        .read_to_string(&mut text)
        .map_err(io)?;
    if text.len() as u64 > CONFIG_FILE_MAX {
        return Err(ReadError::TooLarge {
            path: path.to_owned(),
        });
    }
    Ok(text)
}

/// What a file looked like when it was last read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    modified: (i64, i64),
    length: u64,
    inode: u64,
    /// Mode, user and group: who may read it.
    rights: (u32, u32, u32),
}

fn stamp(path: &Path) -> Option<Stamp> {
    std::fs::metadata(path).ok().map(|meta| Stamp {
        modified: (meta.mtime(), meta.mtime_nsec()),
        length: meta.len(),
        inode: meta.ino(),
        rights: (meta.mode(), meta.uid(), meta.gid()),
    })
}

/// After how many polls without the file it counts as gone: who replaces a file by removing and writing it needs less than that.
pub const MISSING_POLLS: u32 = 3;

/// Watches one file, and loads it anew when it changed.
pub struct Reloader<T, E> {
    path: PathBuf,
    load: fn(&Path) -> Result<T, E>,
    seen: Option<Stamp>,
    /// How many polls in a row found no file.
    missing: u32,
}

impl<T, E> Reloader<T, E> {
    /// Loads the file, and remembers how it looked.
    ///
    /// # Errors
    /// Whatever `load` says.
    pub fn new(path: &Path, load: fn(&Path) -> Result<T, E>) -> Result<(Self, T), E> {
        // The stamp is taken first: a change between the two reads is then seen at the next poll.
        let seen = stamp(path);
        let value = load(path)?;
        Ok((
            Self {
                path: path.to_owned(),
                load,
                seen,
                missing: 0,
            },
            value,
        ))
    }

    /// The file that is watched.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the new value, or why it cannot be used, once for each change; nothing while the file stays as it was.
    ///
    /// A file that vanished is no change at once: somebody may be replacing it. At the [`MISSING_POLLS`]th poll without it, `load` says that it
    /// is not there, once; and when it is back it is loaded anew, also when it is the same. The last good value stays in use until then.
    pub fn poll(&mut self) -> Option<Result<T, E>> {
        let Some(now) = stamp(&self.path) else {
            self.missing = self.missing.saturating_add(1);
            if self.missing != MISSING_POLLS {
                return None;
            }
            self.seen = None;
            return Some((self.load)(&self.path));
        };
        self.missing = 0;
        if self.seen == Some(now) {
            return None;
        }
        self.seen = Some(now);
        Some((self.load)(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct TempFile(PathBuf);

    impl TempFile {
        fn new(name: &str, text: &str) -> Self {
            let path = std::env::temp_dir().join(format!("firsthop-{}-{name}", std::process::id()));
            std::fs::write(&path, text).expect("a writable temporary folder");
            Self(path)
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_change_is_reported_once() {
        let file = TempFile::new("once", "one");
        let (mut reloader, first) = Reloader::new(&file.0, read_small_file).expect("readable");
        assert_eq!(first, "one");
        assert!(reloader.poll().is_none());
        std::fs::write(&file.0, "second").expect("writable");
        assert_eq!(
            reloader.poll().and_then(Result::ok).as_deref(),
            Some("second")
        );
        assert!(reloader.poll().is_none());
    }

    #[test]
    fn an_atomic_replacement_of_equal_length_is_a_change() {
        let file = TempFile::new("replace", "aaa");
        let (mut reloader, _) = Reloader::new(&file.0, read_small_file).expect("readable");
        let other = TempFile::new("replacement", "bbb");
        std::fs::rename(&other.0, &file.0).expect("same file system");
        assert_eq!(reloader.poll().and_then(Result::ok).as_deref(), Some("bbb"));
    }

    #[test]
    fn a_vanished_file_is_told_once_when_it_stays_away_and_is_taken_when_it_is_back() {
        let file = TempFile::new("vanish", "one");
        let (mut reloader, _) = Reloader::new(&file.0, read_small_file).expect("readable");
        let aside = TempFile::new("vanish-aside", "");
        std::fs::rename(&file.0, &aside.0).expect("same file system");
        for _ in 1..MISSING_POLLS {
            assert!(reloader.poll().is_none());
        }
        let told = reloader.poll().expect("told").expect_err("not there");
        assert!(matches!(told, ReadError::Io { .. }), "{told}");
        for _ in 0..2 * MISSING_POLLS {
            assert!(reloader.poll().is_none(), "once");
        }
        // The very same file: whoever was told that it is gone is told that it is back.
        std::fs::rename(&aside.0, &file.0).expect("same file system");
        assert_eq!(reloader.poll().and_then(Result::ok).as_deref(), Some("one"));
        assert!(reloader.poll().is_none());
    }

    #[test]
    fn a_file_that_is_back_soon_was_not_away() {
        let file = TempFile::new("back", "one");
        let (mut reloader, _) = Reloader::new(&file.0, read_small_file).expect("readable");
        let aside = TempFile::new("back-aside", "");
        for _ in 0..2 {
            std::fs::rename(&file.0, &aside.0).expect("same file system");
            for _ in 1..MISSING_POLLS {
                assert!(reloader.poll().is_none());
            }
            std::fs::rename(&aside.0, &file.0).expect("same file system");
            assert!(reloader.poll().is_none());
        }
    }

    #[test]
    fn rights_that_were_mended_are_a_change() {
        let file = TempFile::new("rights", "one");
        let mode = |mode| {
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file.0, rights).expect("our own");
        };
        mode(0o600);
        let (mut reloader, _) = Reloader::new(&file.0, read_small_file).expect("readable");
        mode(0o640);
        assert_eq!(reloader.poll().and_then(Result::ok).as_deref(), Some("one"));
        assert!(reloader.poll().is_none());
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_refused_at_once() {
        let file = TempFile::new("pipe", "one");
        let (mut reloader, _) = Reloader::new(&file.0, read_small_file).expect("readable");
        std::fs::remove_file(&file.0).expect("removable");
        let made = std::process::Command::new("mkfifo").arg(&file.0).status();
        assert!(made.is_ok_and(|status| status.success()));
        let refused = reloader.poll().expect("a change");
        assert!(matches!(refused, Err(ReadError::NotAFile { .. })));
    }

    #[test]
    fn a_huge_file_is_refused() {
        let file = TempFile::new("huge", "");
        let large = std::fs::File::create(&file.0).expect("writable");
        large.set_len(CONFIG_FILE_MAX + 1).expect("sparse file");
        assert!(matches!(
            read_small_file(&file.0),
            Err(ReadError::TooLarge { .. })
        ));
    }
}
