//! The pointers of the C APIs as Rust values: slices, structures, and places for results. Generated glue makes them; the code behind it
//! is safe.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::ops::Deref;

use smallvec::SmallVec;

/// `count` elements at `start`; `None` when it is NULL, unless nothing is counted, and where so many cannot be.
///
/// # Safety
/// `start` is NULL or readable for `count` elements as long as the result lives.
pub unsafe fn slice<'a, T>(start: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    if start.is_null() || count > isize::MAX.cast_unsigned() / size_of::<T>().max(1) {
        return None;
    }
    // SAFETY: the caller's contract; no object is larger than was just checked.
    Some(unsafe { std::slice::from_raw_parts(start, count) })
}

/// Most bytes of an answer that a server is asked to make room for, whatever room the application has: a worker makes no more.
const ROOM: u64 = towline_wire::frame::MESSAGE_LIMIT as u64 / 2;

/// How much room to ask for where the application has room for `given` elements of so many bytes.
pub fn room(given: u64, element: usize) -> u64 {
    given.min(ROOM / element.max(1) as u64)
}

/// The bytes of a C string without its NUL.
///
/// # Safety
/// `start` is NULL or a NUL-terminated string that outlives the result.
pub unsafe fn text<'a>(start: *const c_char) -> Option<&'a [u8]> {
    if start.is_null() {
        return None;
    }
    // SAFETY: the caller's contract.
    Some(unsafe { CStr::from_ptr(start) }.to_bytes())
}

/// A list of (name, value) pairs without its terminating zero.
///
/// # Safety
/// `start` is NULL or a list of pairs that ends with a zero name.
pub unsafe fn pairs(start: *const u64) -> Option<SmallVec<[u64; 8]>> {
    if start.is_null() {
        return None;
    }
    let mut list = SmallVec::new();
    loop {
        // SAFETY: the caller's contract: the list has not ended before this.
        let at = unsafe { start.add(list.len()) };
        // SAFETY: as above.
        let name = unsafe { at.read() };
        if name == 0 {
            return Some(list);
        }
        list.push(name);
        // SAFETY: a value follows its name.
        let at = unsafe { start.add(list.len()) };
        // SAFETY: as above.
        list.push(unsafe { at.read() });
    }
}

/// A structure whose first word has its size in the low 24 bits, as its caller knows it; `Some(None)` where that is not this one's
/// size, and `None` where it is NULL.
///
/// # Safety
/// `start` is NULL or readable for as many bytes as its first word says.
pub unsafe fn versioned<T: Copy>(start: *const T) -> Option<Option<T>> {
    if start.is_null() {
        return None;
    }
    // SAFETY: the caller's contract: the first word is there.
    let word = unsafe { start.cast::<u32>().read() };
    if (word & 0x00ff_ffff) as usize != size_of::<T>() {
        return Some(None);
    }
    // SAFETY: the caller's contract: all of it is.
    Some(Some(unsafe { start.read() }))
}

/// Writes at most `room` values to `target`, unless it is NULL.
///
/// # Safety
/// `target` is NULL or writable for `room` elements.
pub unsafe fn fill<T>(target: *mut T, room: usize, values: impl Iterator<Item = T>) {
    if target.is_null() {
        return;
    }
    for (index, value) in values.take(room).enumerate() {
        // SAFETY: the caller's contract; `index` is below `room`.
        let slot = unsafe { target.add(index) };
        // SAFETY: as above.
        unsafe { slot.write(value) };
    }
}

/// A place for a value. The caller may have left it out.
///
/// To C, a parameter of this type, or a [`Vouched`] pointer, is a pointer: the caller of such a function gives the promise of `new`.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// `place` is NULL or writable for as long as the value lives.
    pub unsafe fn new(place: *mut T) -> Self {
        Self(place)
    }

    /// A place that was left out.
    pub fn none() -> Self {
        Self(std::ptr::null_mut())
    }

    /// Whether the caller wants the value.
    pub fn wanted(&self) -> bool {
        !self.0.is_null()
    }

    /// Writes the value, if it is wanted.
    pub fn set(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the contract of `new`: writable.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

/// Room for several values. The caller may have left it out.
#[derive(Debug)]
pub struct OutList<T> {
    first: *mut T,
    room: usize,
}

impl<T: Copy> OutList<T> {
    /// # Safety
    /// `first` is NULL or writable for `room` values for as long as the list lives.
    pub unsafe fn new(first: *mut T, room: usize) -> Self {
        Self { first, room }
    }

    /// Room that was left out.
    pub fn none() -> Self {
        Self {
            first: std::ptr::null_mut(),
            room: 0,
        }
    }

    /// The number of values that fit.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Whether the caller wants the values.
    pub fn wanted(&self) -> bool {
        !self.first.is_null()
    }

    /// Writes one value where there is room for it.
    pub fn set(&self, index: usize, value: T) {
        if self.wanted() && index < self.room {
            // SAFETY: the index is inside the room that `new` was promised.
            let place = unsafe { self.first.add(index) };
            // SAFETY: as above.
            unsafe { place.write_unaligned(value) };
        }
    }

    /// Writes as many values as fit.
    pub fn fill(&self, values: impl IntoIterator<Item = T>) {
        for (index, value) in values.into_iter().take(self.room).enumerate() {
            self.set(index, value);
        }
    }
}

/// Host memory that the application names for a copy. Its address may be the device's after all, or of a page that has yet to be fetched, so
/// no reference to it is made before the copy takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPtr(*mut u8);

impl HostPtr {
    /// # Safety
    /// `start` is valid for as much as copies read or write there, until they are done.
    pub unsafe fn new<T>(start: *const T) -> Self {
        Self(start.cast_mut().cast())
    }

    /// The memory at an address that was exposed or is the application's.
    ///
    /// # Safety
    /// As for [`Self::new`].
    pub unsafe fn at(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address))
    }

    /// Whether nothing was named.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The first byte's address, which [`Self::at`] takes.
    pub fn addr(self) -> usize {
        self.0.expose_provenance()
    }

    /// The first byte.
    pub fn start(self) -> *mut u8 {
        self.0
    }

    /// The memory so many bytes further on.
    pub fn offset(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Copies bytes that may overlap these.
    pub fn copy_from(self, source: Self, bytes: usize) {
        // SAFETY: the contract of `new`, for both.
        unsafe { std::ptr::copy(source.0, self.0, bytes) };
    }
}

/// A pointer of the application, or a structure with pointers inside: they are NULL or valid for what the call does with them, as long as
/// the call lasts.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Vouched<'a, T> {
    value: T,
    call: PhantomData<&'a T>,
}

impl<T: Copy> Vouched<'_, T> {
    /// # Safety
    /// The pointers inside are valid, as the API says, for the lifetime chosen.
    pub unsafe fn new(value: T) -> Self {
        Self {
            value,
            call: PhantomData,
        }
    }

    /// # Safety
    /// `place` is NULL or readable; of its value what [`Self::new`] asks for.
    pub unsafe fn read(place: *const T) -> Option<Self> {
        // SAFETY: the contract above.
        let value = unsafe { place.as_ref() }?;
        // SAFETY: as above.
        Some(unsafe { Self::new(*value) })
    }
}

impl<T> Vouched<'_, *mut T> {
    /// A pointer that was left out.
    pub fn null() -> Self {
        Self {
            value: std::ptr::null_mut(),
            call: PhantomData,
        }
    }
}

impl<'a, T: Copy> Vouched<'a, &'a [T]> {
    /// # Safety
    /// As for [`slice()`]; of the elements what [`Self::new`] asks for.
    pub unsafe fn list(start: *const T, count: usize) -> Option<Self> {
        // SAFETY: the contract above.
        let list = unsafe { slice(start, count) }?;
        // SAFETY: as above.
        Some(unsafe { Self::new(list) })
    }

    /// The elements.
    pub fn elements(self) -> impl Iterator<Item = Vouched<'a, T>> {
        let list = self.value.iter();
        // SAFETY: the list is vouched for.
        list.map(|element| unsafe { Vouched::new(*element) })
    }
}

impl<T> Deref for Vouched<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// As [`Vouched`], for a structure that comes out again.
#[derive(Debug)]
pub struct InOut<'a, T> {
    /// The structure as it came in.
    pub given: Vouched<'a, T>,
    /// The place that it goes back to.
    pub place: Out<T>,
}

impl<T: Copy> InOut<'_, T> {
    /// # Safety
    /// `place` is NULL or readable and writable; of its value what [`Vouched::new`] asks for.
    pub unsafe fn new(place: *mut T) -> Option<Self> {
        // SAFETY: the contract above.
        let given = unsafe { Vouched::read(place) }?;
        // SAFETY: as above.
        let place = unsafe { Out::new(place) };
        Some(Self { given, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_cannot_be_is_none() {
        let one = 7_u64;
        // SAFETY: readable for one element; what is more is refused unread.
        let of = |count| unsafe { slice(&raw const one, count) };
        assert_eq!(of(1), Some(&[7][..]));
        assert_eq!(of(usize::MAX), None);
        assert_eq!(of(isize::MAX.cast_unsigned() / 8 + 1), None);
    }
}
