//! What the machine must give before a relay can start: processors to pin to, and memory to lock.

#![allow(unsafe_code)] // `getrlimit` and `setrlimit` have no safe wrapper among the crates used here.

use std::io;

use firsthop_service::settings::SettingError;

use crate::limits::{CORES_MAX, MEMLOCK_PER_CORE};

/// The processors that this process may run on, in ascending order.
#[must_use]
pub fn processors() -> Vec<usize> {
    let mut ids: Vec<usize> = core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .map(|core| core.id)
        .collect();
    ids.sort_unstable();
    ids
}

/// Reads which processors the relay's cores are pinned to: a number of them (`2`: the first two of `available`), or a list
/// with a comma or a dash (`0,2`, `4-7`, `3-3` for one), in the order of the relay's core numbers.
///
/// # Errors
/// What is wrong, and the fix.
pub fn choose_processors(text: &str, available: &[usize]) -> Result<Vec<usize>, SettingError> {
    let refuse = |problem: String, fix: &str| {
        let problem = format!("{text}: {problem}");
        SettingError::new("--cores", problem, fix.to_owned())
    };
    let number = |part: &str| {
        part.trim().parse::<usize>().map_err(|_| {
            refuse(
                format!("'{part}' is not a number"),
                "give a count such as 2, or a list such as 0,2 or 4-7",
            )
        })
    };
    let list = if text.contains([',', '-']) {
        let mut list = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last - first >= CORES_MAX {
                return Err(refuse(
                    format!("{part} is not an ascending range of at most {CORES_MAX} processors"),
                    "give one such as 4-7",
                ));
            }
            list.extend(first..=last);
        }
        list
    } else {
        let count = number(text)?;
        if count > available.len() {
            return Err(refuse(
                format!("this process may use {} processors", available.len()),
                "ask for no more, or widen its CPU set",
            ));
        }
        available[..count].to_vec()
    };
    if list.is_empty() || list.len() > CORES_MAX {
        return Err(refuse(
            format!("a relay runs on 1 to {CORES_MAX} cores"),
            "give as many",
        ));
    }
    for (i, core) in list.iter().enumerate() {
        if !available.contains(core) {
            return Err(refuse(
                format!("processor {core} does not exist, or is not in this process's CPU set"),
                &format!("choose among {}", listed(available)),
            ));
        }
        if list[..i].contains(core) {
            return Err(refuse(
                format!("processor {core} is named twice"),
                "name it once",
            ));
        }
    }
    Ok(list)
}

fn listed(numbers: &[usize]) -> String {
    let texts: Vec<String> = numbers.iter().map(usize::to_string).collect();
    texts.join(",")
}

/// Sees to it that the `cores` executors of each of `relays` at once may lock the memory they need, raising the soft limit as far as the hard one allows.
///
/// # Errors
/// The limit, and the fix.
pub fn ensure_memlock(cores: usize, relays: u64) -> Result<(), SettingError> {
    let needed = MEMLOCK_PER_CORE * cores as u64 * relays;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one `rlimit`.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } != 0 {
        return Err(SettingError::new(
            "--cores",
            format!(
                "the limit of locked memory is not known ({})",
                io::Error::last_os_error()
            ),
            "allow getrlimit, in the container's seccomp profile",
        ));
    }
    if limit.rlim_cur >= needed {
        return Ok(());
    }
    if limit.rlim_max >= needed {
        limit.rlim_cur = needed;
        // SAFETY: the kernel reads one `rlimit`.
        if unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) } == 0 {
            return Ok(());
        }
    }
    let (now, needed) = (limit.rlim_cur / 1_024, needed / 1_024);
    Err(SettingError::new(
        "--cores",
        match relays {
            1 => format!("{now} KiB of memory may be locked, {cores} cores need {needed} KiB"),
            _ => format!(
                "{now} KiB of memory may be locked, {cores} cores and those of a successor need {needed} KiB"
            ),
        },
        format!("raise the limit (ulimit -l {needed}, LimitMEMLOCK=)"),
    ))
}

/// Has the calling thread's timers fire when they are due. Without this the kernel takes 50 µs more to join timers, which is half of
/// what a core gathers packets for. A kernel that refuses leaves it at that.
pub fn exact_timers() {
    // SAFETY: takes a number, and concerns the calling thread's timers alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_takes_the_first_ones_that_are_allowed() {
        assert_eq!(choose_processors("2", &[1, 3, 5]), Ok(vec![1, 3]));
    }

    #[test]
    fn a_list_keeps_its_order() {
        assert_eq!(choose_processors("5,1", &[1, 3, 5]), Ok(vec![5, 1]));
        assert_eq!(choose_processors("3-3", &[1, 3, 5]), Ok(vec![3]));
        assert_eq!(
            choose_processors("0-2,4", &[0, 1, 2, 3, 4]),
            Ok(vec![0, 1, 2, 4])
        );
    }

    #[test]
    fn what_the_machine_has_not_is_refused() {
        for (text, part) in [
            ("0", "1 to"),
            ("4", "3 processors"),
            ("0,1", "processor 0 does not exist"),
            ("1,1", "named twice"),
            ("5-1", "not an ascending range"),
            ("1-99999999999", "not an ascending range"),
            ("two", "not a number"),
            ("", "not a number"),
            ("1,", "not a number"),
            ("-1", "not a number"),
        ] {
            let error = choose_processors(text, &[1, 3, 5])
                .expect_err(text)
                .to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
