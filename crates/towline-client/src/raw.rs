//! Between C pointers and what the codec takes.

use std::ffi::{CStr, c_char};

use smallvec::SmallVec;

/// `count` elements at `start`; `None` when it is NULL, unless nothing is counted, and where so many cannot be.
///
/// # Safety
/// `start` is NULL or readable for `count` elements as long as the result lives.
pub unsafe fn slice<'a, T>(start: *const T, count: usize) -> Option<&'a [T]> {
    if start.is_null() {
        return (count == 0).then_some(&[]);
    }
    if count > isize::MAX.cast_unsigned() / size_of::<T>().max(1) {
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
