//! Cycles and instructions of another program's threads, where the machine counts them (many virtual machines do not).

#![allow(unsafe_code)] // `perf_event_open` has no wrapper in libc.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::FromRawFd as _;

/// What to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Processor cycles, user and kernel.
    Cycles,
    /// Instructions that were retired, user and kernel.
    Instructions,
    /// Nanoseconds on a processor: every kernel counts these.
    TaskClock,
}

/// `struct perf_event_attr` as far as its first version goes.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

const HARDWARE: u32 = 0;
const CLOSE_ON_EXEC: u64 = 8;
const SOFTWARE: u32 = 1;

/// One event, counted in every thread that a program had when this was made.
pub struct Counter(Vec<File>);

impl Counter {
    /// Counts from now on.
    ///
    /// # Errors
    /// The machine does not count this, the kernel does not allow it, or the program has ended.
    pub fn open(pid: u32, event: Event) -> io::Result<Self> {
        let mut files = Vec::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let name = thread?.file_name();
            let thread = name
                .to_str()
                .and_then(|name| name.parse().ok())
                .ok_or_else(|| io::Error::other("not a thread"))?;
            files.push(open(thread, event)?);
        }
        Ok(Self(files))
    }

    /// What was counted so far, over all threads.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn read(&mut self) -> io::Result<u64> {
        let mut sum = 0;
        for file in &mut self.0 {
            let mut value = [0; 8];
            file.read_exact(&mut value)?;
            sum += u64::from_ne_bytes(value);
        }
        Ok(sum)
    }
}

fn open(thread: i32, event: Event) -> io::Result<File> {
    let (kind, config) = match event {
        Event::Cycles => (HARDWARE, 0),
        Event::Instructions => (HARDWARE, 1),
        Event::TaskClock => (SOFTWARE, 1),
    };
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config,
        sample_period: 0,
        sample_type: 0,
        read_format: 0,
        flags: 0,
        wakeup_events: 0,
        breakpoint_type: 0,
        config1: 0,
    };
    // SAFETY: the kernel reads as many bytes of the attributes as their size says, during the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            -1,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to us alone.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_program_does_is_counted() {
        // Where the kernel allows no counters at all, there is nothing to test.
        let Ok(mut counter) = Counter::open(std::process::id(), Event::TaskClock) else {
            return;
        };
        let before = counter.read().expect("a count");
        let mut sum = 0u64;
        for i in 0..1_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
        assert!(counter.read().expect("a count") > before);
    }
}
