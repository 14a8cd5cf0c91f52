//! Memory that the process has mapped twice: a view for the application, whose pages are protected while the device has newer contents,
//! and an alias for transfers, which never is.

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
    alias: usize,
    size: usize,
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
        Self::new(address as usize, size, libc::MAP_FIXED_NOREPLACE)
    }

    /// Memory in the place of a mapping of ours, with its contents.
    pub(super) fn over(address: usize, size: usize) -> Option<Self> {
        Self::new(address, size, libc::MAP_FIXED)
    }

    fn new(address: usize, size: usize, fixed: i32) -> Option<Self> {
        // SAFETY: the name is a string.
        let file = unsafe { libc::memfd_create(c"towline-mirror".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return None;
        }
        // SAFETY: the file was opened just now.
        let sized = unsafe { libc::ftruncate(file, size as libc::off_t) } == 0;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let alias = sized
            .then(|| map(0, size, both, libc::MAP_SHARED, file))
            .flatten();
        if let (Some(alias), libc::MAP_FIXED) = (alias, fixed) {
            let from = std::ptr::with_exposed_provenance::<u8>(address);
            let to = std::ptr::with_exposed_provenance_mut::<u8>(alias);
            // SAFETY: what is there is the caller's mapping of this size; the alias was made just now.
            unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
        }
        let view = alias.and_then(|_| {
            let flags = libc::MAP_SHARED | fixed;
            map(address, size, libc::PROT_READ, flags, file)
        });
        // SAFETY: as above; mappings do not need it.
        unsafe { libc::close(file) };
        match (alias, view) {
            (Some(alias), Some(view)) => Some(Self { view, alias, size }),
            (Some(alias), None) => {
                unmap(alias, size);
                None
            }
            _ => None,
        }
    }

    pub(super) fn view(&self) -> usize {
        self.view
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Where transfers find what lies at an offset.
    pub(super) fn alias(&self, offset: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.alias + offset)
    }

    /// Says what the application may do with part of the view.
    pub(super) fn protect(&self, span: &Span, access: Access) {
        let access = match access {
            Access::Nothing => libc::PROT_NONE,
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        let start = std::ptr::with_exposed_provenance_mut(self.view + span.start);
        // SAFETY: the view is ours; the application's accesses are what this is to stop.
        let status = unsafe { libc::mprotect(start, span.len(), access) };
        if status != 0 {
            log::error!("the pages of mirrored memory cannot be protected");
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        unmap(self.view, self.size);
        unmap(self.alias, self.size);
    }
}
