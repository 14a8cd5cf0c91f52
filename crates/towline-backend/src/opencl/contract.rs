//! What implementations of the contract share: reading what a caller passes, and giving answers by the API's rules.

use std::ptr;

use super::*;

/// Longest list that is read from a caller: ends a list without end before memory does.
const LIST_LIMIT: usize = 1 << 16;

pub(super) fn status(result: Result<(), cl_int>) -> cl_int {
    result.err().unwrap_or(CL_SUCCESS)
}

pub(super) fn handle<H>(number: usize) -> *mut H {
    ptr::without_provenance_mut(number)
}

pub(super) fn require(condition: bool, error: cl_int) -> Result<(), cl_int> {
    if condition { Ok(()) } else { Err(error) }
}

/// Writes where the caller asked for it.
///
/// # Safety
/// `at` is NULL or writable.
pub(super) unsafe fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: the caller's contract.
        unsafe { at.write(value) };
    }
}

/// Answers a creating call.
///
/// # Safety
/// `errcode_ret` is NULL or writable.
pub(super) unsafe fn created<H>(result: Result<usize, cl_int>, errcode_ret: *mut cl_int) -> *mut H {
    // SAFETY: the caller's contract.
    unsafe { put(errcode_ret, result.err().unwrap_or(CL_SUCCESS)) };
    result.map_or(ptr::null_mut(), handle)
}

/// The elements of a list; none and NULL go together, else `error`.
///
/// # Safety
/// `first` is NULL or readable for `count` elements.
pub(super) unsafe fn list<T: Copy>(
    first: *const T,
    count: usize,
    error: cl_int,
) -> Result<Vec<T>, cl_int> {
    require(
        first.is_null() == (count == 0) && count <= LIST_LIMIT,
        error,
    )?;
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's contract; an API list may be unaligned only where the C program already broke the rules.
    Ok(unsafe { std::slice::from_raw_parts(first, count) }.to_vec())
}

/// A list of name and value pairs with the zero that ends it; empty for NULL.
///
/// # Safety
/// `first` is NULL or a list that ends with a zero name.
pub(super) unsafe fn pairs<T: Copy + Default + PartialEq>(
    first: *const T,
) -> Result<Vec<T>, cl_int> {
    let mut all = Vec::new();
    while !first.is_null() {
        // SAFETY: the caller's contract: the list has not ended yet.
        let name = unsafe { first.wrapping_add(all.len()).read() };
        all.push(name);
        if name == T::default() {
            break;
        }
        // SAFETY: as above: every name has a value.
        all.push(unsafe { first.wrapping_add(all.len()).read() });
        require(all.len() < LIST_LIMIT, CL_INVALID_VALUE)?;
    }
    Ok(all)
}

/// Three sizes.
///
/// # Safety
/// `at` is NULL or readable for three elements.
pub(super) unsafe fn triple(at: *const usize) -> Result<[usize; 3], cl_int> {
    require(!at.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: the caller's contract.
    Ok(unsafe { at.cast::<[usize; 3]>().read() })
}

/// Where an answer goes.
pub(super) struct Asked {
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
}

impl Asked {
    /// The last three parameters of every info query.
    pub(super) fn new(size: usize, value: *mut c_void, size_ret: *mut usize) -> Self {
        Self {
            size,
            value,
            size_ret,
        }
    }

    /// Gives the answer.
    ///
    /// # Safety
    /// The contract of the query: `value` is NULL or writable for `size` bytes, `size_ret` NULL or writable.
    pub(super) unsafe fn answer(self, bytes: &[u8]) -> Result<(), cl_int> {
        if !self.value.is_null() {
            if self.size < bytes.len() {
                return Err(CL_INVALID_VALUE);
            }
            // SAFETY: the caller's contract; the room was just checked.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.value.cast(), bytes.len())
            };
        }
        if !self.size_ret.is_null() {
            // SAFETY: the caller's contract.
            unsafe { self.size_ret.write(bytes.len()) };
        }
        Ok(())
    }
}

/// The bytes of a scalar or of a list of them.
pub(super) trait Bytes {
    fn bytes(&self) -> Vec<u8>;
}

macro_rules! scalars {
    ($($scalar:ty)*) => {$(
        impl Bytes for $scalar {
            fn bytes(&self) -> Vec<u8> {
                self.to_ne_bytes().to_vec()
            }
        }
    )*};
}

scalars!(u32 i32 u64 i64 usize);

impl<T: Bytes> Bytes for [T] {
    fn bytes(&self) -> Vec<u8> {
        self.iter().flat_map(Bytes::bytes).collect()
    }
}

/// A text with its NUL.
pub(super) fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}
