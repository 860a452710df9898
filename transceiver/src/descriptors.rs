//! How many sessions the limit of open files has room for.
//!
//! A session whose backend is a model server holds a connection to it, and its client could take those of the control port away: sessions
//! that nobody can end or ask about, and no metrics. So a worker takes no more of them than there is room for, and is full then.

use crate::limits::FILES_PER_SESSION;

/// How many sessions a worker takes of the `wanted` ones, when the process may open `spare` files beside what its start takes.
///
/// `served` are the connections that the control port and sidebands may come to. What is too little for all is shared by half. A worker
/// takes one session in any case.
#[must_use]
pub fn sessions_per_worker(wanted: usize, workers: usize, served: usize, spare: u64) -> usize {
    let spare = usize::try_from(spare).unwrap_or(usize::MAX);
    let for_sessions = spare - served.min(spare / 2);
    let room = for_sessions / FILES_PER_SESSION / workers.max(1);
    wanted.min(room.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_are_wanted_when_there_is_room_for_all() {
        assert_eq!(sessions_per_worker(1_000, 2, 5_120, 2_000 + 5_120), 1_000);
        assert_eq!(sessions_per_worker(1_000, 2, 5_120, u64::MAX), 1_000);
        assert_eq!(sessions_per_worker(3, 2, 100, 12), 3);
    }

    #[test]
    fn what_is_short_is_shared_with_those_who_ask_and_no_worker_is_left_without() {
        assert_eq!(sessions_per_worker(1_000, 2, 5_120, 2_000), 500);
        assert_eq!(sessions_per_worker(1_000, 2, 100, 2_000), 950);
        assert_eq!(sessions_per_worker(1_000, 1, 5_120, 14), 7);
        assert_eq!(sessions_per_worker(1_000, 2, 5_120, 14), 3);
        for spare in 0..4 {
            assert_eq!(sessions_per_worker(1_000, 8, 5_120, spare), 1, "{spare}");
        }
    }

    #[test]
    fn more_files_never_mean_fewer_sessions() {
        let rooms = (0..20_000).map(|spare| sessions_per_worker(1_000, 4, 5_120, spare));
        assert!(rooms.is_sorted());
    }
}
