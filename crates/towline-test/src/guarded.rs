//! Memory of an application's that ends at a page nobody may touch, and begins behind bytes that nobody may read or write.

use std::ffi::c_void;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// What lies before the memory, over and over.
pub const SECRET: &[u8; 16] = b"not lent, secret";

/// Memory between what nobody may touch: one byte too far behind it ends the test, and before it is a pattern.
pub struct Guarded {
    start: *mut c_void,
    pages: usize,
    size: usize,
}

// SAFETY: the memory is this value's own.
unsafe impl Send for Guarded {}

impl Guarded {
    /// Memory of this size, with nothing in it.
    pub fn new(size: usize) -> Self {
        let page = rustix::param::page_size();
        let pages = size.div_ceil(page) + 3;
        let all = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping takes nobody's place.
        let start = unsafe { mmap_anonymous(null_mut(), pages * page, all, MapFlags::PRIVATE) };
        let start = start.expect("memory for a test");
        let this = Self { start, pages, size };
        for guard in [start, start.wrapping_byte_add((pages - 1) * page)] {
            // SAFETY: the page belongs to the mapping that was just made.
            let protected = unsafe { mprotect(guard, page, MprotectFlags::empty()) };
            protected.expect("pages can be protected");
        }
        let first = this.middle().cast::<u8>();
        for at in 0..this.before() {
            // SAFETY: the bytes before the memory belong to the mapping and are writable.
            unsafe { first.wrapping_add(at).write(SECRET[at % SECRET.len()]) };
        }
        this
    }

    /// Memory with these bytes.
    pub fn filled(bytes: &[u8]) -> Self {
        let this = Self::new(bytes.len());
        // SAFETY: the memory is as long, and nobody else's.
        unsafe { this.memory().copy_from(bytes.as_ptr().cast(), bytes.len()) };
        this
    }

    fn middle(&self) -> *mut c_void {
        self.start.wrapping_byte_add(rustix::param::page_size())
    }

    /// Bytes between the first guard and the memory.
    fn before(&self) -> usize {
        (self.pages - 2) * rustix::param::page_size() - self.size
    }

    /// The memory, which ends where the guard begins.
    pub fn memory(&self) -> *mut c_void {
        self.middle().wrapping_byte_add(self.before())
    }

    /// The memory, as a place for so much.
    pub fn place<T>(&self) -> *mut T {
        assert!(size_of::<T>() <= self.size);
        self.memory().cast()
    }

    /// How much it is.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What is in it now.
    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: the memory is this value's own, and no session uses it any more.
        unsafe { std::slice::from_raw_parts(self.memory().cast::<u8>(), self.size) }.to_vec()
    }

    /// Whether the bytes before the memory are as they were.
    pub fn is_whole(&self) -> bool {
        // SAFETY: these bytes are this value's own, and in no session's reach.
        let before =
            unsafe { std::slice::from_raw_parts(self.middle().cast::<u8>(), self.before()) };
        before
            .iter()
            .zip(SECRET.iter().cycle())
            .all(|(byte, secret)| byte == secret)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        assert!(
            std::thread::panicking() || self.is_whole(),
            "memory beside what was lent has been written"
        );
        // SAFETY: the mapping is ours, and nobody uses it any more.
        let _ = unsafe { munmap(self.start, self.pages * rustix::param::page_size()) };
    }
}
