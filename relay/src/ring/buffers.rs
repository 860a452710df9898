//! Receive buffers that the kernel picks itself, and that come back when nobody reads them any more.
//!
//! A [`BufferPool`] is one provided-buffer ring of io_uring (`IORING_REGISTER_PBUF_RING`): the kernel takes a buffer from
//! its head for every datagram, and this side puts it back at the tail. Between the two a buffer may be read by several
//! sends (a packet that goes to two claims, a trunk datagram whose records go to many clients), so each has a count of
//! readers, and goes back when the last reader is done: never earlier, or the kernel would overwrite what it still sends.

#![allow(unsafe_code)] // Shares memory with the kernel: the ring of free buffers, and the buffers themselves.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

const PAGE: usize = 4096;

/// A block of zeroed, page-aligned memory that stays where it is until it is dropped.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

impl Block {
    fn new(len: usize) -> Self {
        assert!(len > 0, "an empty block has no address");
        let layout =
            Layout::from_size_align(len, PAGE).expect("block sizes are far below isize::MAX");
        // SAFETY: the layout's size is not zero, as asserted.
        let Some(start) = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }) else {
            alloc::handle_alloc_error(layout)
        };
        // The packet path shall not meet a page fault: make every page real now.
        for page in (0..len).step_by(PAGE) {
            // SAFETY: `page` is below `len`, so the byte is inside the block, which nobody else knows yet.
            unsafe { start.as_ptr().add(page).write_volatile(0) };
        }
        Self { start, layout }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and freed only here.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A group of receive buffers of one size, with a count of readers for each.
///
/// A buffer is in one of two states. *Free*: in the ring, the kernel may write it, count 0. *Held*: the kernel gave it to
/// us with a completion, count 1 or more, and only we and our sends read it.
pub(super) struct BufferPool {
    group: u16,
    size: usize,
    /// How many readers each buffer has; 0 while the kernel owns it.
    readers: Box<[u16]>,
    /// How many buffers are in the ring.
    free: usize,
    /// Tail of the ring, not yet shown to the kernel.
    tail: u16,
    entries: Block,
    memory: Block,
}

impl BufferPool {
    /// Makes `count` buffers (a power of two, at most 32,768) of `size` bytes for buffer group `group`, all of them free.
    ///
    /// The kernel knows nothing of them yet: see [`BufferPool::ring_address`].
    pub(super) fn new(group: u16, count: u16, size: usize) -> Self {
        assert!(
            count.is_power_of_two() && count <= 1 << 15,
            "the kernel's bound on a buffer ring"
        );
        let mut pool = Self {
            group,
            size,
            readers: vec![0; usize::from(count)].into_boxed_slice(),
            free: 0,
            tail: 0,
            entries: Block::new(usize::from(count) * size_of::<BufRingEntry>()),
            memory: Block::new(usize::from(count) * size),
        };
        for id in 0..count {
            pool.give(id);
        }
        pool.publish();
        pool
    }

    /// The address of the ring's entries, to register with the kernel; valid as long as the pool lives.
    pub(super) fn ring_address(&self) -> u64 {
        self.entries.start.as_ptr() as u64
    }

    /// The buffer group that requests name.
    pub(super) fn group(&self) -> u16 {
        self.group
    }

    /// How many buffers there are.
    pub(super) fn count(&self) -> u16 {
        u16::try_from(self.readers.len()).expect("at most 32,768, checked in new")
    }

    /// How many buffers the kernel may still fill.
    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// Takes note that the kernel gave buffer `id` to us: it has one reader now, the caller.
    pub(super) fn taken(&mut self, id: u16) {
        let readers = &mut self.readers[usize::from(id)];
        assert_eq!(*readers, 0, "the kernel gave a buffer that it did not own");
        *readers = 1;
        self.free -= 1;
    }

    /// Adds a reader to a held buffer.
    pub(super) fn retain(&mut self, id: u16) {
        let readers = &mut self.readers[usize::from(id)];
        assert!(*readers > 0, "only a held buffer gets readers");
        *readers += 1;
    }

    /// Takes a reader from a held buffer; the last one gives it back to the ring (visible after [`BufferPool::publish`]).
    pub(super) fn release(&mut self, id: u16) {
        let readers = &mut self.readers[usize::from(id)];
        assert!(*readers > 0, "only a held buffer loses readers");
        *readers -= 1;
        if *readers == 0 {
            self.give(id);
        }
    }

    /// The bytes of a held buffer.
    pub(super) fn bytes(&self, id: u16) -> &[u8] {
        assert!(
            self.readers[usize::from(id)] > 0,
            "only a held buffer may be read"
        );
        // SAFETY: `id` is below the count (the index above checked it), so the range is inside the memory. The buffer is
        // held, so the kernel does not write it, and `&self` keeps `bytes_mut` away.
        unsafe { std::slice::from_raw_parts(self.start_of(id), self.size) }
    }

    /// The bytes of a held buffer, to write a header into the headroom.
    ///
    /// Sends that already read this buffer are done by the kernel at any time; the caller writes only where none reads.
    pub(super) fn bytes_mut(&mut self, id: u16) -> &mut [u8] {
        assert!(
            self.readers[usize::from(id)] > 0,
            "only a held buffer may be written"
        );
        // SAFETY: as in `bytes`; `&mut self` makes it the only slice on this side. The kernel only reads held buffers.
        unsafe { std::slice::from_raw_parts_mut(self.start_of(id), self.size) }
    }

    /// Shows the kernel the buffers given back since the last call.
    pub(super) fn publish(&mut self) {
        // SAFETY: the entries start at a page and are initialised (zeroed, then written); the tail lies in the reserved
        // field of the first entry, two bytes, aligned, inside the block.
        let tail = unsafe {
            let base = self.entries.start.as_ptr().cast::<BufRingEntry>();
            AtomicU16::from_ptr(BufRingEntry::tail(base).cast_mut())
        };
        tail.store(self.tail, Ordering::Release);
    }

    /// Puts buffer `id` at the tail of the ring.
    fn give(&mut self, id: u16) {
        let slot = usize::from(self.tail) & (self.readers.len() - 1);
        let address = self.start_of(id) as u64;
        // SAFETY: `slot` is below the count, so the entry is inside the block. The kernel reads entries between its head
        // and the published tail only, and there are never more free buffers than entries, so it is not reading this one.
        // The three setters leave the reserved field alone, which in entry 0 is the tail itself.
        let entry = unsafe { &mut *self.entries.start.as_ptr().cast::<BufRingEntry>().add(slot) };
        entry.set_addr(address);
        entry.set_len(u32::try_from(self.size).expect("buffers are a few KiB"));
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        self.free += 1;
    }

    fn start_of(&self, id: u16) -> *mut u8 {
        // SAFETY: ids come from the kernel or from `new` and are below the count; callers index `readers` with them first
        // or run in `new`. So the offset is inside the memory block.
        unsafe { self.memory.start.as_ptr().add(usize::from(id) * self.size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_with_its_last_reader() {
        let mut pool = BufferPool::new(0, 4, 2048);
        assert_eq!(pool.free(), 4);
        pool.taken(2);
        pool.retain(2);
        assert_eq!(pool.free(), 3);
        pool.release(2);
        assert_eq!(pool.free(), 3, "one reader is left");
        pool.release(2);
        assert_eq!(pool.free(), 4);
    }

    #[test]
    fn buffers_do_not_overlap() {
        let mut pool = BufferPool::new(0, 4, 2048);
        for id in 0..4 {
            pool.taken(id);
            pool.bytes_mut(id).fill(id as u8 + 1);
        }
        for id in 0..4 {
            assert!(pool.bytes(id).iter().all(|&b| b == id as u8 + 1));
        }
    }

    #[test]
    #[should_panic(expected = "did not own")]
    fn a_buffer_given_twice_is_our_bug_or_the_kernels() {
        let mut pool = BufferPool::new(0, 2, 2048);
        pool.taken(1);
        pool.taken(1);
    }
}
