//! Where the time of a program that forwards packets goes: samples with their stacks, by what the kernel was asked for.

use serde::Serialize;

use crate::sampling::symbol_and_file;

/// Shares of a program's time. They add up to 1, or are 0 all of them when nothing was sampled.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Spent {
    /// How many samples.
    pub samples: u64,
    /// In the kernel, to send: on loopback with what the receiver's side of it takes.
    pub send: f64,
    /// In the kernel, to receive.
    pub receive: f64,
    /// In the kernel otherwise: entering it, waiting, waking up, files.
    pub kernel: f64,
    /// In the program itself and its libraries.
    pub program: f64,
}

impl Spent {
    /// Of samples with stacks, as [`Sampling`](crate::sampling::Sampling) gives them.
    #[must_use]
    pub fn of(samples: &str) -> Self {
        let mut counts = [0_u64; 4];
        let mut stack: Vec<(&str, &str)> = Vec::new();
        for line in samples.lines().chain([""]) {
            if let Some(frame) = symbol_and_file(line) {
                stack.push(frame);
            } else if !stack.is_empty() {
                counts[place(&stack)] += 1;
                stack.clear();
            }
        }
        let samples: u64 = counts.iter().sum();
        let share = |count: u64| count as f64 / samples.max(1) as f64;
        Self {
            samples,
            send: share(counts[0]),
            receive: share(counts[1]),
            kernel: share(counts[2]),
            program: share(counts[3]),
        }
    }
}

/// What a sample counts as: its place in the counts.
fn place(stack: &[(&str, &str)]) -> usize {
    let in_kernel = |file: &str| file.starts_with("[kernel");
    if !stack.first().is_some_and(|(_, file)| in_kernel(file)) {
        return 3;
    }
    let passes = |names: &[&str]| {
        stack
            .iter()
            .any(|(symbol, file)| in_kernel(file) && names.iter().any(|name| symbol.contains(name)))
    };
    // Sending ends in the receiver's queue and never in a receive, so no stack has both.
    if passes(&["sendmsg", "io_send", "sendto"]) {
        0
    } else if passes(&["recvmsg", "io_recv", "recvfrom"]) {
        1
    } else {
        2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_as_what_the_kernel_was_asked_for() {
        let samples = "\
_copy_from_iter ([kernel.kallsyms])
udp_sendmsg ([kernel.kallsyms])
io_send ([kernel.kallsyms])
do_syscall_64 ([kernel.kallsyms])
syscall (/usr/lib/libc.so.6)
relay::turn (/opt/relay)

_copy_to_iter ([kernel.kallsyms])
udp_recvmsg ([kernel.kallsyms])
io_recvmsg ([kernel.kallsyms])

schedule ([kernel.kallsyms])
io_cqring_wait ([kernel.kallsyms])

relay::sendmsg (/opt/relay)
relay::turn (/opt/relay)
";
        let spent = Spent::of(samples);
        let quarter = 0.25;
        assert_eq!(
            spent,
            Spent {
                samples: 4,
                send: quarter,
                receive: quarter,
                kernel: quarter,
                program: quarter,
            }
        );
        assert_eq!(Spent::of(""), Spent::default());
    }
}
