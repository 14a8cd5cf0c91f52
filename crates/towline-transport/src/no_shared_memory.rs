//! Systems without memory that passes between processes as a descriptor.

use std::convert::Infallible;
use std::io;
use std::ptr::NonNull;

use rustix::fd::BorrowedFd;

/// Shared memory: there is none.
#[derive(Debug)]
pub struct SharedMemory(Infallible);

#[allow(clippy::len_without_is_empty, reason = "there is none")]
impl SharedMemory {
    /// Fails.
    pub fn allocate_near(_name: &str, _len: usize, _wish: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Its beginning.
    pub fn start(&self) -> NonNull<u8> {
        match self.0 {}
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        match self.0 {}
    }

    /// Its file.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}
