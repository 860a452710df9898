//! Folders for what a run writes: keys and secrets of programs that live as long as it does.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Makes a folder that no other user of the machine can look into; one that is there is left as it is.
///
/// # Errors
/// The system refuses it.
pub(crate) fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
