//! A value that one thread replaces now and then, and another takes up once for each time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The newest value, and how often it was replaced. To ask whether there is a new one costs a load.
#[derive(Debug)]
pub(crate) struct Latest<T> {
    generation: AtomicU64,
    value: Mutex<Arc<T>>,
}

impl<T> Latest<T> {
    /// Starts with a value that who asks has already.
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self {
            generation: AtomicU64::new(0),
            value: Mutex::new(value),
        }
    }

    /// Replaces the value.
    pub(crate) fn set(&self, value: Arc<T>) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The newest value, if it is newer than the generation that was `seen`, which is brought up to date.
    pub(crate) fn newer(&self, seen: &mut u64) -> Option<Arc<T>> {
        let generation = self.generation.load(Ordering::Acquire);
        if generation == *seen {
            return None;
        }
        *seen = generation;
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_taken_once_and_the_newest_of_several() {
        let latest = Latest::new(Arc::new(0));
        let mut seen = 0;
        assert_eq!(latest.newer(&mut seen), None);
        latest.set(Arc::new(1));
        latest.set(Arc::new(2));
        assert_eq!(latest.newer(&mut seen).as_deref(), Some(&2));
        assert_eq!(latest.newer(&mut seen), None);
    }
}
