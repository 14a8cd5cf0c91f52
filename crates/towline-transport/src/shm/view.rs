//! Rings where they lie: in memory that a peer maps too.
//!
//! One file holds both directions: a page of words, then the bytes of the ring to the side that accepted, then those of the ring to the
//! side that connected. Each word has cache lines of its own, since different sides write them.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::ring::{Memory, Sleeper};
use crate::shared_memory::SharedMemory;

/// The page of words.
const WORDS: usize = 4096;
/// Words of a ring, and how far they are apart: two cache lines, which processors fetch together.
const STRIDE: usize = 128;
const TAIL: usize = 0;
const HEAD: usize = STRIDE;
const PARKED: [usize; 2] = [2 * STRIDE, 3 * STRIDE];
/// Cache lines that a launch fills.
#[cfg(target_arch = "x86_64")]
const NEXT_LINES: usize = 4;
/// Where the words of the second ring begin.
const SECOND: usize = 1024;

/// Smallest and largest ring. The largest bounds what a peer can have us map.
pub(super) const RING_BYTES: std::ops::RangeInclusive<u32> = 4096..=16 << 20;

/// Bytes of the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) to_acceptor: u32,
    pub(super) to_connector: u32,
}

impl Sizes {
    /// Rings of this size both ways, as near as may be.
    pub(super) fn both(bytes: usize) -> Self {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let bytes = bytes
            .clamp(*RING_BYTES.start(), *RING_BYTES.end())
            .next_power_of_two();
        Self {
            to_acceptor: bytes,
            to_connector: bytes,
        }
    }

    /// What a peer says, if it may be.
    pub(super) fn checked(to_acceptor: u32, to_connector: u32) -> Option<Self> {
        let fits = |bytes: u32| RING_BYTES.contains(&bytes) && bytes.is_power_of_two();
        (fits(to_acceptor) && fits(to_connector)).then_some(Self {
            to_acceptor,
            to_connector,
        })
    }

    fn file_len(self) -> usize {
        WORDS + self.to_acceptor as usize + self.to_connector as usize
    }
}

/// Makes the memory for two rings.
pub(super) fn make(sizes: Sizes) -> io::Result<SharedMemory> {
    SharedMemory::reserve("towline-lane", sizes.file_len())
}

/// Maps what the peer made.
pub(super) fn open(file: OwnedFd, sizes: Sizes) -> io::Result<SharedMemory> {
    SharedMemory::open(file, sizes.file_len())
}

/// One ring of the two.
#[derive(Clone, Debug)]
pub(crate) struct View {
    memory: Arc<SharedMemory>,
    words: usize,
    bytes: usize,
    capacity: usize,
}

impl View {
    /// The rings to the accepting and to the connecting side.
    pub(super) fn pair(memory: Arc<SharedMemory>, sizes: Sizes) -> (Self, Self) {
        assert!(memory.len() >= sizes.file_len());
        let first = Self {
            memory: Arc::clone(&memory),
            words: 0,
            bytes: WORDS,
            capacity: sizes.to_acceptor as usize,
        };
        let second = Self {
            memory,
            words: SECOND,
            bytes: WORDS + sizes.to_acceptor as usize,
            capacity: sizes.to_connector as usize,
        };
        (first, second)
    }

    fn count(&self, offset: usize) -> &AtomicU64 {
        let at = self
            .memory
            .start()
            .as_ptr()
            .wrapping_add(self.words + offset);
        // SAFETY: the place is within the first page of the mapping, which lives as long as `self`, aligned by its constants, and both
        // sides touch it with atomic operations only. A peer that does not harms itself: any value of the word is a valid one.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    fn parked(&self, who: Sleeper) -> &AtomicU32 {
        let offset = self.words + PARKED[who as usize];
        let at = self.memory.start().as_ptr().wrapping_add(offset);
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    /// The bytes of the ring, for something else that reads or writes them.
    pub(crate) fn bytes(&self) -> (Arc<SharedMemory>, NonNull<[u8]>) {
        let start = NonNull::new(self.place(0, self.capacity)).expect("a mapping is not at zero");
        let bytes = NonNull::slice_from_raw_parts(start, self.capacity);
        (Arc::clone(&self.memory), bytes)
    }

    fn place(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.capacity && len <= self.capacity - at);
        self.memory.start().as_ptr().wrapping_add(self.bytes + at)
    }
}

impl Memory for View {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn load_tail(&self) -> u64 {
        self.count(TAIL).load(Ordering::Acquire)
    }

    fn store_tail(&self, tail: u64) {
        self.count(TAIL).store(tail, Ordering::Release);
    }

    fn load_head(&self) -> u64 {
        self.count(HEAD).load(Ordering::Acquire)
    }

    fn store_head(&self, head: u64) {
        self.count(HEAD).store(head, Ordering::Release);
    }

    fn set_parked(&self, who: Sleeper, parked: bool) {
        self.parked(who).store(u32::from(parked), Ordering::Relaxed);
    }

    fn is_parked(&self, who: Sleeper) -> bool {
        self.parked(who).load(Ordering::Relaxed) != 0
    }

    fn take_parked(&self, who: Sleeper) -> bool {
        self.parked(who).swap(0, Ordering::Relaxed) != 0
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let place = self.place(at, bytes.len());
        // SAFETY: `place` checked that the range is within the ring's bytes. The ring's counts keep an honest peer away from it until
        // it is published; a hostile one sees or spoils bytes that are its own to read.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    fn expect_write(&self, at: usize) {
        // The peer has read these lines, the last time around: to have them back takes longer than to fill them, and the fence after the
        // next bytes would wait for that.
        #[cfg(target_arch = "x86_64")]
        for line in 0..NEXT_LINES {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let place = self.place(at, 0).wrapping_add(line * 64);
            // SAFETY: a hint, whatever the address is.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(place.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        let place = self.place(at, bytes.len());
        // SAFETY: as above; bytes that a hostile peer changes meanwhile are copied as they come.
        unsafe { std::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), bytes.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::{Consumer, Producer};
    use super::*;

    #[test]
    fn sizes_of_a_peer_are_held_to_their_limits() {
        assert!(Sizes::checked(4096, 16 << 20).is_some());
        for wrong in [0, 2048, 4097, 5000, 32 << 20, u32::MAX] {
            assert!(Sizes::checked(wrong, 4096).is_none(), "{wrong}");
            assert!(Sizes::checked(4096, wrong).is_none(), "{wrong}");
        }
        assert_eq!(Sizes::both(0).to_acceptor, 4096);
        assert_eq!(Sizes::both(5000).to_connector, 8192);
        assert_eq!(Sizes::both(usize::MAX).to_connector, 16 << 20);
    }

    #[test]
    fn the_two_directions_do_not_touch_each_other() {
        let sizes = Sizes::checked(4096, 8192).unwrap();
        let memory = make(sizes).unwrap();
        let file = memory.descriptor().try_clone_to_owned().unwrap();
        let peer = Arc::new(open(file, sizes).unwrap());
        let (to_acceptor, to_connector) = View::pair(Arc::new(memory), sizes);
        let (peer_in, peer_out) = View::pair(peer, sizes);
        let (mut out, mut back) = (Producer::new(to_acceptor), Producer::new(peer_out));
        assert_eq!(out.put(&[1; 9000]), Ok(4096));
        assert_eq!(back.put(&[2; 9000]), Ok(8192));
        let mut bytes = vec![0; 9000];
        assert_eq!(Consumer::new(peer_in).take(&mut bytes), Ok(4096));
        assert!(bytes[..4096].iter().all(|byte| *byte == 1));
        assert_eq!(Consumer::new(to_connector).take(&mut bytes), Ok(8192));
        assert!(bytes[..8192].iter().all(|byte| *byte == 2));
    }
}
