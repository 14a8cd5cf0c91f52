//! Memory that two processes map: an anonymous file without a name, so that nothing of it is left behind however they end.
//!
//! Whoever makes it seals its size; whoever is given one checks that before mapping it. Otherwise a peer could cut the file short, and
//! touching what is gone would kill the process. What lies in it can change at any moment: see [`Memory`](crate::shm::ring::Memory) for
//! how rings are read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The file system of anonymous files. Those of huge pages are of another, and touching one kills where no such page is left.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// Sizes from which the system is asked whether it has so much.
const LARGE: usize = 256 << 20;

/// Shared memory, mapped readable and writable, with its file.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
    file: OwnedFd,
}

// SAFETY: it is memory like any other; who touches it when is up to those who get its address.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes `len` bytes of zeros. They are there: the process that makes them pays for them, and learns now if it cannot.
    pub fn allocate(name: &str, len: usize) -> io::Result<Self> {
        Self::allocate_near(name, len, 0)
    }

    /// As [`Self::allocate`], at the address `wish` where nothing is mapped there, and elsewhere otherwise.
    pub fn allocate_near(name: &str, len: usize, wish: usize) -> io::Result<Self> {
        if len > LARGE && len as u64 > available_bytes() {
            // The system would look for that much, and end processes until it is found.
            return Err(Errno::NOMEM.into());
        }
        let file = make(name, len)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len as u64)?;
        let memory = map(file, len, wish)?;
        // A child that the process forks must not change what is its parent's, and has nobody to share it with.
        // SAFETY: the range is the mapping's own, and this changes nothing for this process.
        unsafe {
            rustix::mm::madvise(
                memory.start.as_ptr().cast(),
                len,
                rustix::mm::Advice::LinuxDontFork,
            )
        }?;
        Ok(memory)
    }

    /// Makes `len` bytes of zeros, of which pages come to be when they are touched.
    pub fn reserve(name: &str, len: usize) -> io::Result<Self> {
        map(make(name, len)?, len, 0)
    }

    /// Maps what a peer made. It must be of exactly `len` bytes for good.
    pub fn open(file: OwnedFd, len: usize) -> io::Result<Self> {
        Self::open_near(file, len, 0)
    }

    /// As [`Self::open`], at the address `wish` where nothing is mapped there, and elsewhere otherwise.
    pub fn open_near(file: OwnedFd, len: usize, wish: usize) -> io::Result<Self> {
        check(file.as_fd(), len)?;
        map(file, len, wish)
    }

    /// Where it begins.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The file, to hand to the peer.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and nobody may use it longer than this value lives.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Memory that the system could give without taking it from processes; the largest number if the system does not say.
fn available_bytes() -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

/// Refuses what a peer could take away again, or what is not what it says.
pub(crate) fn check(file: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let refused = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let sealed = match fcntl_get_seals(file) {
        Ok(seals) => seals.contains(SealFlags::SHRINK),
        Err(Errno::INVAL) => false,
        Err(errno) => return Err(errno.into()),
    };
    if !sealed {
        return Err(refused("the peer's memory is not sealed against shrinking"));
    }
    if rustix::fs::fstatfs(file)?.f_type as u64 != TMPFS_MAGIC {
        return Err(refused("the peer's memory is of huge pages"));
    }
    if u64::try_from(rustix::fs::fstat(file)?.st_size) != Ok(len as u64) {
        return Err(refused("the peer's memory has another size than it says"));
    }
    Ok(())
}

fn make(name: &str, len: usize) -> io::Result<OwnedFd> {
    if len == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags)?,
        outcome => outcome?,
    };
    rustix::fs::ftruncate(&file, len as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

fn map(file: OwnedFd, len: usize, wish: usize) -> io::Result<SharedMemory> {
    let map_at = |address: usize, flags| {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let address = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: nothing that is mapped is mapped over. A system that does not know the flag takes the address for a hint.
        unsafe { mmap(address, len, access, MapFlags::SHARED | flags, &file, 0) }
    };
    let there = (wish != 0).then(|| map_at(wish, MapFlags::FIXED_NOREPLACE));
    let start = match there {
        Some(Ok(start)) => start,
        _ => map_at(0, MapFlags::empty())?,
    };
    let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(SharedMemory { start, len, file })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(name: &str, len: u64) -> OwnedFd {
        let file = rustix::fs::memfd_create(name, MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, len).unwrap();
        file
    }

    fn refusal(file: OwnedFd, len: usize) -> String {
        SharedMemory::open(file, len).unwrap_err().to_string()
    }

    #[test]
    fn both_sides_see_the_same_bytes() {
        let made = SharedMemory::allocate("test", 8192).unwrap();
        let file = made.descriptor().try_clone_to_owned().unwrap();
        let opened = SharedMemory::open(file, 8192).unwrap();
        // SAFETY: the byte is within the mapping, which lives on.
        unsafe { made.start().as_ptr().wrapping_add(8191).write_volatile(42) };
        // SAFETY: as above.
        let seen = unsafe { opened.start().as_ptr().wrapping_add(8191).read_volatile() };
        assert_eq!(seen, 42);
    }

    #[test]
    fn memory_lies_where_it_is_wished_unless_something_else_does() {
        const WISH: usize = 0x4321_0000_0000;
        let made = SharedMemory::allocate_near("test", 8192, WISH).unwrap();
        assert_eq!(made.start().addr().get(), WISH);
        let file = made.descriptor().try_clone_to_owned().unwrap();
        for taken in [WISH, WISH + 4096, WISH + 1, usize::MAX & !4095] {
            let file = file.try_clone().unwrap();
            let opened = SharedMemory::open_near(file, 8192, taken).unwrap();
            assert_ne!(opened.start().addr().get(), taken);
        }
        drop(made);
        let opened = SharedMemory::open_near(file, 8192, WISH).unwrap();
        assert_eq!(opened.start().addr().get(), WISH);
    }

    #[test]
    fn more_than_system_has_is_refused() {
        let error = SharedMemory::allocate_near("test", 1 << 50, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOMEM.raw_os_error()));
    }

    #[test]
    fn what_could_shrink_is_refused() {
        assert!(refusal(raw("test", 4096), 4096).contains("not sealed"));
        let pipe = rustix::pipe::pipe().unwrap().0;
        assert!(refusal(pipe, 4096).contains("not sealed"));
    }

    #[test]
    fn another_size_is_refused() {
        let file = raw("test", 4096);
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(refusal(file, 8192).contains("another size"));
    }

    #[test]
    fn what_was_made_neither_shrinks_nor_grows() {
        let made = SharedMemory::reserve("test", 4096).unwrap();
        for len in [0, 8192] {
            let error = rustix::fs::ftruncate(made.descriptor(), len).unwrap_err();
            assert_eq!(error, Errno::PERM);
        }
    }
}
