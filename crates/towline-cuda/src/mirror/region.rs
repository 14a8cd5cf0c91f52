//! Memory of which the application has a view, whose pages are protected while the device has newer contents, while transfers read and
//! write it all the same: by an alias, which never is protected, or where the pages are the application's own, by the system's view of
//! this process.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::ipc::memory_file;

/// Part of a view.
pub(super) type Span = std::ops::Range<usize>;

/// What the application may do with pages of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Nothing,
    Read,
    Write,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Region {
    view: usize,
    size: usize,
    pages: Pages,
}

/// Access that a program has to its memory.
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Whose the pages are.
#[derive(Debug)]
enum Pages {
    /// Ours, mapped here too.
    Alias(usize),
    /// The application's: `/proc/self/mem` writes private pages whatever their protection.
    Own(File),
}

/// Where a transfer from the device leads.
pub(super) enum Target {
    /// There.
    Place(*mut u8),
    /// Into this, which is then [put](Region::put) where it belongs.
    Buffer(Vec<u8>),
}

impl Target {
    pub(super) fn start(&mut self) -> *mut u8 {
        match self {
            Self::Place(start) => *start,
            Self::Buffer(bytes) => bytes.as_mut_ptr(),
        }
    }
}

/// Whether all of these addresses are private memory that may be read and written, and nothing else, by the text of `/proc/self/maps`.
fn is_private(maps: &str, start: usize, end: usize) -> bool {
    let mut reached = start;
    for line in maps.lines() {
        let mut words = line.split(' ');
        let (Some(range), Some(access)) = (words.next(), words.next()) else {
            continue;
        };
        let bounds = range.split_once('-').and_then(|(from, to)| {
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some((number(from)?, number(to)?))
        });
        let Some((from, to)) = bounds else { continue };
        if (from..to).contains(&reached) {
            // Exactly so: it is given back with these rights.
            if access != "rw-p" {
                return false;
            }
            reached = to;
        }
        if reached >= end {
            return true;
        }
    }
    false
}

/// Maps `size` bytes of a file; `None` where that cannot be.
fn map(address: usize, size: usize, access: i32, flags: i32, file: i32) -> Option<usize> {
    let wanted = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: with MAP_FIXED the caller owns what is there; otherwise nothing that is mapped is touched.
    let place = unsafe { libc::mmap(wanted, size, access, flags, file, 0) };
    if place == libc::MAP_FAILED {
        return None;
    }
    let place = place.expose_provenance();
    // Kernels before 4.17 take the fixed address for a hint.
    if address != 0 && place != address {
        unmap(place, size);
        return None;
    }
    Some(place)
}

/// Private memory of zeros at an address where nothing is mapped, or anywhere.
pub(crate) fn map_private(address: Option<u64>, size: usize) -> Option<*mut libc::c_void> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let fixed = address.map_or(0, |_| libc::MAP_FIXED_NOREPLACE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    let address = address.unwrap_or(0);
    map(address as usize, size, access, flags, -1).map(std::ptr::with_exposed_provenance_mut)
}

/// What became of a wish to reserve addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Held,
    /// Something lies there.
    Taken,
    /// The system reserves none there, for whatever reason.
    Refused,
}

/// Reserves addresses: nothing is mapped there by chance any more, and nobody can look.
pub(crate) fn hold(address: u64, size: u64) -> Hold {
    let wanted = std::ptr::with_exposed_provenance_mut(address as usize);
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: nothing that is mapped is touched.
    let place = unsafe { libc::mmap(wanted, size as usize, libc::PROT_NONE, flags, -1, 0) };
    if place == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EEXIST) => Hold::Taken,
            _ => Hold::Refused,
        };
    }
    // Kernels before 4.17 take the fixed address for a hint.
    if place.addr() as u64 != address {
        unmap(place.addr(), size as usize);
        return Hold::Taken;
    }
    Hold::Held
}

/// Lets reserved addresses be used.
pub(crate) fn let_go(address: u64, size: u64) {
    unmap(address as usize, size as usize);
}

/// Ends a mapping of ours.
pub(super) fn unmap(place: usize, size: usize) {
    // SAFETY: the mapping is the caller's, and nothing refers to it any more.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(place), size) };
}

impl Region {
    /// Memory of zeros at an address where nothing is mapped.
    pub(super) fn at(address: u64, size: usize) -> Option<Self> {
        let (beside, file) = Self::beside(address as usize, size)?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let view = address as usize;
        let placed = map(view, size, libc::PROT_READ, flags, file.as_raw_fd());
        if let (None, Pages::Alias(alias)) = (placed, &beside.pages) {
            unmap(*alias, size);
            // Nothing of ours lies there.
            std::mem::forget(beside);
            return None;
        }
        Some(beside)
    }

    /// Memory that is to [take](Self::move_in) the place of a mapping of ours.
    pub(super) fn beside(view: usize, size: usize) -> Option<(Self, File)> {
        let file = File::from(memory_file(c"towline-mirror", libc::MFD_CLOEXEC)?);
        file.set_len(size as u64).ok()?;
        let alias = map(0, size, BOTH, libc::MAP_SHARED, file.as_raw_fd())?;
        let pages = Pages::Alias(alias);
        Some((Self { view, size, pages }, file))
    }

    /// Takes the place of the mapping, with its contents, while other threads that write there fault; whether it has. Otherwise all is as it
    /// was.
    pub(super) fn move_in(&self, file: &File) -> bool {
        let Pages::Alias(alias) = self.pages else {
            return false;
        };
        self.protect(&(0..self.size), Access::Read);
        let from = std::ptr::with_exposed_provenance::<u8>(self.view);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(alias);
        // SAFETY: there is the mapping, of this size, which nobody can write; the alias is ours.
        unsafe { std::ptr::copy_nonoverlapping(from, to, self.size) };
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let placed = map(self.view, self.size, BOTH, flags, file.as_raw_fd());
        if placed.is_none() {
            self.protect(&(0..self.size), Access::Write);
        }
        placed.is_some()
    }

    /// Whole pages of the application's own, which it may write; in the error, why they cannot be mirrored.
    pub(super) fn own(view: usize, size: usize) -> Result<Self, String> {
        let maps = std::fs::read_to_string("/proc/self/maps");
        let maps = maps.map_err(|error| format!("/proc/self/maps: {error}"))?;
        if !is_private(&maps, view, view + size) {
            return Err("it is shared with other processes, cannot be written, or is code".into());
        }
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/proc/self/mem");
        let memory = memory.map_err(|error| format!("/proc/self/mem: {error}"))?;
        let region = Self {
            view,
            size,
            pages: Pages::Own(memory),
        };
        match region.set_access(&(0..size), Access::Write) {
            0 => Ok(region),
            _ => Err("its pages cannot be protected".into()),
        }
    }

    pub(super) fn view(&self) -> usize {
        self.view
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Keeps the application from writing part of the view, so that it can be sent.
    pub(super) fn freeze(&self, span: &Span) {
        match self.pages {
            Pages::Alias(_) => self.protect(span, Access::Nothing),
            Pages::Own(_) => self.protect(span, Access::Read),
        }
    }

    /// Keeps the application from looking at a frozen part.
    pub(super) fn close(&self, span: &Span) {
        match self.pages {
            Pages::Alias(_) => {}
            Pages::Own(_) => self.protect(span, Access::Nothing),
        }
    }

    /// Where transfers find what lies at an offset, while that is frozen.
    pub(super) fn source(&self, offset: usize) -> *const u8 {
        match self.pages {
            Pages::Alias(alias) => std::ptr::with_exposed_provenance(alias + offset),
            Pages::Own(_) => std::ptr::with_exposed_provenance(self.view + offset),
        }
    }

    /// Where a transfer of a part that the application may not look at is to lead.
    pub(super) fn target(&self, span: &Span) -> Target {
        match self.pages {
            Pages::Alias(alias) => {
                Target::Place(std::ptr::with_exposed_provenance_mut(alias + span.start))
            }
            Pages::Own(_) => Target::Buffer(vec![0; span.len()]),
        }
    }

    /// Puts what has been transferred where it belongs, where it is not there; whether it is now.
    pub(super) fn put(&self, span: &Span, target: &Target) -> bool {
        let (Pages::Own(memory), Target::Buffer(bytes)) = (&self.pages, target) else {
            return true;
        };
        let put = memory.write_all_at(bytes, (self.view + span.start) as u64);
        if let Err(error) = &put {
            log::error!("/proc/self/mem: {error}");
        }
        put.is_ok()
    }

    /// Says what the application may do with part of the view.
    pub(super) fn protect(&self, span: &Span, access: Access) {
        if self.set_access(span, access) != 0 {
            log::error!("the pages of mirrored memory cannot be protected");
        }
    }

    fn set_access(&self, span: &Span, access: Access) -> i32 {
        let access = match access {
            Access::Nothing => libc::PROT_NONE,
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        let start = std::ptr::with_exposed_provenance_mut(self.view + span.start);
        // SAFETY: the view is ours, or the application has registered it; its accesses are what this is to stop.
        unsafe { libc::mprotect(start, span.len(), access) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.pages {
            Pages::Alias(alias) => {
                unmap(self.view, self.size);
                unmap(alias, self.size);
            }
            Pages::Own(_) => self.protect(&(0..self.size), Access::Write),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_told_from_what_others_see_or_nobody_writes() {
        let maps = "1000-3000 rw-p 00000000 00:00 0 [heap]\n3000-4000 rw-p 00000000 00:00 0 \n\
                    5000-6000 r--p 00000000 08:01 7 /lib/x\n6000-7000 rw-s 00000000 00:01 9 /dev/shm/x\n\
                    7000-8000 rwxp 00000000 00:00 0 \n";
        let private = |start, end| is_private(maps, start, end);
        assert!(private(0x1000, 0x3000) && private(0x2000, 0x4000));
        assert!(!private(0x3000, 0x5000), "nothing lies behind it");
        assert!(!private(0x5000, 0x6000) && !private(0x6000, 0x7000));
        assert!(!private(0x7000, 0x8000), "its rights would be lost");
        assert!(!private(0, 0x1000) && !private(0x8000, 0x9000));
    }

    #[test]
    fn pages_of_the_applications_own_are_put_while_nobody_may_look_and_left_as_they_were() {
        let size = 4 * super::super::PAGE;
        let place = map_private(None, size).expect("there is room");
        let region = Region::own(place.addr(), size).expect("they are private");
        let span = size / 2..size;
        region.protect(&span, Access::Nothing);
        let mut target = region.target(&span);
        // SAFETY: the buffer has the span's length.
        unsafe { target.start().write_bytes(7, span.len()) };
        assert!(region.put(&span, &target));
        drop(region);
        let bytes: &mut [u8] =
            // SAFETY: the mapping is of this size, and nobody else's.
            unsafe { std::slice::from_raw_parts_mut(place.cast(), size) };
        assert!(bytes[..size / 2].iter().all(|byte| *byte == 0));
        assert!(bytes[size / 2..].iter().all(|byte| *byte == 7));
        bytes.fill(1);
        unmap(place.addr(), size);
    }
}
