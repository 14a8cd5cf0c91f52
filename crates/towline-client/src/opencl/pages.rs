//! Pages of this process at addresses that a server has chosen.

#[cfg(unix)]
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
#[cfg(unix)]
pub(super) use rustix::param::page_size;

/// An address that is not free is refused.
#[cfg(target_os = "linux")]
const FLAGS: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED_NOREPLACE);
/// An address that is not free gives another.
#[cfg(all(unix, not(target_os = "linux")))]
const FLAGS: MapFlags = MapFlags::PRIVATE;

/// Maps zeros at whole pages that this process does not use; false if it uses some.
#[cfg(unix)]
pub(super) fn map_at(start: usize, length: usize) -> bool {
    let wanted = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the flags map only what nothing else uses.
    let mapped =
        unsafe { mmap_anonymous(wanted, length, ProtFlags::READ | ProtFlags::WRITE, FLAGS) };
    match mapped {
        Ok(memory) if memory.addr() == start => {
            memory.expose_provenance();
            true
        }
        Ok(elsewhere) => {
            // A kernel that does not know NOREPLACE maps elsewhere.
            // SAFETY: the mapping was just made and is used by nobody.
            let _ = unsafe { munmap(elsewhere, length) };
            false
        }
        Err(_) => false,
    }
}

/// Unmaps what [`map_at`] has mapped.
///
/// # Safety
///
/// Nobody uses it any more.
#[cfg(unix)]
pub(super) unsafe fn unmap(start: usize, length: usize) {
    // SAFETY: the caller's contract.
    let _ = unsafe { munmap(std::ptr::with_exposed_provenance_mut(start), length) };
}

/// Windows maps 64 KiB at once, more than the space between two allocations of a server.
#[cfg(not(unix))]
pub(super) fn page_size() -> usize {
    64 << 10
}

#[cfg(not(unix))]
pub(super) fn map_at(_start: usize, _length: usize) -> bool {
    false
}

/// # Safety
///
/// None.
#[cfg(not(unix))]
pub(super) unsafe fn unmap(_start: usize, _length: usize) {}
