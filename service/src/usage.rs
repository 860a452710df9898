//! What the process uses of the machine: processor time, memory, open files.

#![allow(unsafe_code)] // `clock_gettime` has no safe wrapper among the crates used here.

use std::fs;
use std::time::Duration;

/// The processor time of all of its threads since it began, in the program and in the kernel; nothing where the kernel does not tell.
#[must_use]
pub fn processor_time() -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one `timespec`.
    match unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) } {
        0 => Some(Duration::new(
            u64::try_from(time.tv_sec).ok()?,
            u32::try_from(time.tv_nsec).ok()?,
        )),
        _ => None,
    }
}

/// How many bytes of its memory are in RAM.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// How many files it has open, sockets included.
#[must_use]
pub fn open_files() -> Option<u64> {
    let open = fs::read_dir("/proc/self/fd").ok()?.count();
    // The folder itself is one of them while it is read.
    u64::try_from(open).ok()?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_shows() {
        let before = processor_time().expect("a time");
        let held = vec![1_u8; 32 << 20];
        assert!(resident_bytes().expect("a size") > held.len() as u64);
        // It is whoever reads the memory that makes it resident, and time pass.
        let sum: u64 = held.iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(sum, 32 << 20);
        assert!(processor_time().expect("a time") > before);
        let file = fs::File::open("/proc/self/status").expect("readable");
        assert!(open_files().expect("a number") >= 1);
        drop(file);
    }
}
