//! What the kernel says that programs under test have used and hold: processor time, memory, descriptors, threads.

use std::fs;
use std::io;

use serde::Serialize;

use crate::process::Usage;

/// What a program holds at one moment.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Held {
    /// Processor time of all its threads so far, in nanoseconds.
    pub cpu_nanos: u64,
    /// Memory in use, in bytes.
    pub resident: u64,
    /// Open files and sockets.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
}

/// Asks the kernel about a process.
///
/// # Errors
/// It has ended, or is another user's.
pub fn look(pid: u32) -> io::Result<Held> {
    let Usage {
        cpu_nanos,
        resident,
    } = Usage::of(pid)?;
    let count = |folder: &str| -> io::Result<u64> {
        Ok(fs::read_dir(format!("/proc/{pid}/{folder}"))?.count() as u64)
    };
    Ok(Held {
        cpu_nanos,
        resident,
        descriptors: count("fd")?,
        threads: count("task")?,
    })
}

/// Processor time of the calling thread so far, in nanoseconds.
#[must_use]
pub fn this_thread() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

/// What became of a program over a load.
#[derive(Clone, Debug, Serialize)]
pub struct Watched {
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Before the first call.
    pub before: Held,
    /// While the calls that count were up.
    pub during: Held,
    /// At the end.
    pub after: Held,
    /// Share of one processor that it used while calls counted.
    pub busy: f64,
    /// Processor time per call and second, in microseconds.
    pub micros_per_call_second: f64,
}

/// The name of a process, as the kernel knows it.
#[must_use]
pub fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

/// How many datagrams the kernel dropped at the UDP sockets of these local ports, because nobody took them in time.
///
/// # Errors
/// `/proc` is not readable.
pub fn dropped_at(ports: &[u16]) -> io::Result<u64> {
    let table = fs::read_to_string("/proc/net/udp")?;
    Ok(drops_in(&table, ports))
}

fn drops_in(table: &str, ports: &[u16]) -> u64 {
    let of_line = |line: &str| -> Option<u64> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        ports.contains(&port).then_some(())?;
        fields.last()?.parse().ok()
    };
    table.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_holds_something() {
        let before = look(std::process::id()).expect("this one runs");
        let file = fs::File::open("/proc/self/stat").expect("a file");
        let with = look(std::process::id()).expect("this one runs");
        assert!(before.resident > 1 << 20 && before.threads >= 1);
        // Other tests of this process open files, too.
        assert!(with.descriptors >= 1);
        drop(file);
        assert!(!name(std::process::id()).is_empty());
    }

    #[test]
    fn drops_are_those_of_the_ports_asked_for() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
                       12: 00000000:0D96 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 ff 3\n\
                       13: 00000000:0D97 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 ff 40\n";
        assert_eq!(drops_in(table, &[0x0d96]), 3);
        assert_eq!(drops_in(table, &[0x0d96, 0x0d97]), 43);
        assert_eq!(drops_in(table, &[]), 0);
    }
}
