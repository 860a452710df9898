//! Files that are read again when they change: the report that all programs give of it.

use std::fmt::Display;

use firsthop_shared::reload::Reloader;

use crate::about::About;

/// A changed file could not be used, and the log says why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unusable;

/// Returns the new content of a file that has changed, and logs and counts that; nothing while it stays as it was.
///
/// `setting` names the file in the log and the metrics. Call it about once a second, off the packet path: it reads a small local file.
///
/// # Errors
/// The changed file cannot be used: a slip in an editor, or half a file. The last good content stays in use.
pub fn changed<T, E: Display>(
    setting: &'static str,
    file: &mut Reloader<T, E>,
    about: &About,
) -> Result<Option<T>, Unusable> {
    match file.poll() {
        None => Ok(None),
        Some(Ok(content)) => {
            about.reloaded(setting, true);
            tracing::info!(setting, path = %file.path().display(), "file reloaded");
            Ok(Some(content))
        }
        Some(Err(error)) => {
            about.reloaded(setting, false);
            tracing::warn!(
                setting,
                path = %file.path().display(),
                %error,
                "changed file cannot be used; the last good content stays in use"
            );
            Err(Unusable)
        }
    }
}
