//! A bounded first-in, first-out queue from which anything can leave: the order of provisional claims.
//!
//! Nodes are numbers below a fixed count; the links lie in one array, so that entering, leaving and finding the oldest are
//! O(1) and nothing is allocated after the start.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
}

/// A queue of node numbers, each in it at most once.
pub(crate) struct Fifo {
    links: Box<[Link]>,
    oldest: u32,
    newest: u32,
    len: u32,
    capacity: u32,
}

impl Fifo {
    /// A queue that holds at most `capacity` of the nodes `0..nodes`.
    pub(crate) fn new(nodes: u32, capacity: u32) -> Self {
        Self {
            links: vec![
                Link {
                    older: NONE,
                    newer: NONE
                };
                nodes as usize
            ]
            .into_boxed_slice(),
            oldest: NONE,
            newest: NONE,
            len: 0,
            capacity,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    /// The node that has waited longest.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The node that entered next after one that is in the queue.
    pub(crate) fn newer(&self, node: u32) -> Option<u32> {
        let newer = self.links[node as usize].newer;
        (newer != NONE).then_some(newer)
    }

    /// All nodes, the one that has waited longest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.oldest(), move |&node| self.newer(node))
    }

    /// Enters a node that is not in the queue; the caller has made room.
    pub(crate) fn push(&mut self, node: u32) {
        assert!(!self.is_full(), "a full queue must be drained first");
        self.links[node as usize] = Link {
            older: self.newest,
            newer: NONE,
        };
        match self.newest {
            NONE => self.oldest = node,
            newest => self.links[newest as usize].newer = node,
        }
        self.newest = node;
        self.len += 1;
    }

    /// Takes a node that is in the queue out of it.
    pub(crate) fn remove(&mut self, node: u32) {
        let Link { older, newer } = self.links[node as usize];
        match older {
            NONE => {
                assert!(self.oldest == node, "node {node} is not in the queue");
                self.oldest = newer;
            }
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn keeps_the_order_of_a_deque(steps in prop::collection::vec((any::<bool>(), 0u32..12), 1..200)) {
            let mut fifo = Fifo::new(12, 5);
            let mut model: VecDeque<u32> = VecDeque::new();
            for (add, node) in steps {
                let inside = model.contains(&node);
                if add && !inside {
                    if fifo.is_full() {
                        let oldest = fifo.oldest().expect("a full queue has an oldest node");
                        prop_assert_eq!(model.pop_front(), Some(oldest));
                        fifo.remove(oldest);
                    }
                    fifo.push(node);
                    model.push_back(node);
                } else if !add && inside {
                    fifo.remove(node);
                    model.retain(|n| *n != node);
                }
                prop_assert_eq!(fifo.oldest(), model.front().copied());
                prop_assert_eq!(fifo.len() as usize, model.len());
                prop_assert!(fifo.iter().eq(model.iter().copied()));
            }
        }
    }
}
