//! A relay that has handed everything over, and stays: it holds no socket, no flow and no port, and waits for SIGTERM.
//!
//! A supervisor that starts again whatever ends by itself (Kubernetes, while the old pod and the new one run side by side) would have
//! the old relay take everything back, and the new one in turn. So the old one stays (`--handed-over stay`) until it is told to go.
//!
//! Should the successor end meanwhile, nobody serves. Then the bystander ends with an error, and whoever supervises it starts it again
//! as a relay that serves. It sees that without asking, for a connection would be the beginning of a hand-over: as long as any
//! process listens at the hand-over's socket, the kernel lists it in `/proc/net/unix`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::limits::BYSTANDER_LOOK;

/// One that hears signals already.
pub struct Bystander {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    path: PathBuf,
}

/// Why a bystander left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// It was told to.
    Told,
    /// Nobody serves any more.
    Alone,
}

impl Bystander {
    /// Begins to hear signals. `path` is the hand-over's socket, spelled as it was when it was opened.
    ///
    /// # Errors
    /// The system has no room for what wakes it.
    pub fn new(path: PathBuf) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (terminate, interrupt) = {
            let _inside = runtime.enter();
            (
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
            )
        };
        Ok(Self {
            runtime,
            terminate,
            interrupt,
            path,
        })
    }

    /// Waits for a signal, or until nobody serves. To be called when this process holds nothing of the relay any more.
    #[must_use]
    pub fn wait(self) -> Left {
        let Self {
            runtime,
            mut terminate,
            mut interrupt,
            path,
        } = self;
        info!("standing by until SIGTERM: the successor serves");
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => Left::Told,
                _ = interrupt.recv() => Left::Told,
                () = until_alone(&path) => Left::Alone,
            }
        })
    }
}

/// Returns when nobody listens at `path` any more; never when that cannot be known.
async fn until_alone(path: &Path) {
    let mut look = interval(BYSTANDER_LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        match File::open(SOCKETS).and_then(|file| is_served(BufReader::new(file), path)) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                warn!(%error, "{SOCKETS} cannot be read: whether the successor serves is not known");
                return std::future::pending().await;
            }
        }
    }
}

/// The Unix sockets of this network namespace, in which both processes are.
const SOCKETS: &str = "/proc/net/unix";

/// The flag of a socket that listens (`__SO_ACCEPTCON`).
const LISTENS: u32 = 0x1_0000;

/// Whether a socket in this list (`Num: RefCount Protocol Flags Type St Inode Path`) listens at a path.
fn is_served(list: impl BufRead, path: &Path) -> io::Result<bool> {
    for line in list.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let mut fields = line.split_ascii_whitespace();
        let Some(flags) = fields.nth(3) else { continue };
        let listens = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & LISTENS != 0);
        // Type, state and number stand between. A path may have spaces: it is the rest of the line.
        let Some(number) = fields.nth(2) else {
            continue;
        };
        let end = number.as_ptr() as usize + number.len() - line.as_ptr() as usize;
        if listens && Path::new(line[end..].strip_prefix(' ').unwrap_or_default()) == path {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "Num       RefCount Protocol Flags    Type St Inode Path
ffff8d6f: 00000002 00000000 00010000 0005 01 12345 /run/firsthop/relay.sock
ffff8d70: 00000003 00000000 00000000 0005 03 12346 /run/other.sock
ffff8d71: 00000003 00000000 00000000 0001 03 12347
ffff8d72: 00000002 00000000 00010000 0005 01 12348 /run/with a space
";

    #[test]
    fn a_path_is_served_while_a_socket_listens_there() {
        let served = |path| is_served(LIST.as_bytes(), Path::new(path)).expect("text");
        assert!(served("/run/firsthop/relay.sock"));
        assert!(served("/run/with a space"));
        assert!(!served("/run/other.sock"), "a connection to it");
        assert!(!served("/run/firsthop/relay"));
        assert!(!served(""));
    }
}
