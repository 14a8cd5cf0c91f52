//! The pointers of the C API as Rust values: slices in, places out. The generated glue makes them; everything behind is safe code.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};

use towline_backend::opencl::*;
pub(crate) use towline_client::raw::{Out, OutList};

/// Where the answer to an info query goes: the rule about room is the same for every query.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    room: usize,
    value: *mut c_void,
    needed: *mut usize,
}

impl Answer {
    /// # Safety
    /// `value` is NULL or writable for `room` bytes, `needed` is NULL or writable, for as long as the answer lives.
    pub(crate) unsafe fn new(room: usize, value: *mut c_void, needed: *mut usize) -> Self {
        Self {
            room,
            value,
            needed,
        }
    }

    /// The three parameters, for a provider that answers.
    pub(crate) fn parts(&self) -> (usize, *mut c_void, *mut usize) {
        (self.room, self.value, self.needed)
    }

    /// Where the value goes; NULL when only its size is asked for.
    pub(crate) fn value_pointer(&self) -> *mut c_void {
        self.value
    }

    /// States the size of a value; true when the caller gave room and wants the value too.
    pub(crate) fn announce(&self, size: usize) -> Result<bool, cl_int> {
        if !self.value.is_null() && self.room < size {
            return Err(CL_INVALID_VALUE);
        }
        // SAFETY: the contract of `new`.
        unsafe { Out::new(self.needed) }.set(size);
        Ok(!self.value.is_null())
    }

    /// Answers with bytes.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), cl_int> {
        if self.announce(bytes.len())? {
            // SAFETY: `announce` says that the caller gave room for all of them; the application's memory overlaps none of ours.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.value.cast(), bytes.len())
            };
        }
        Ok(())
    }

    /// Answers with one plain value.
    pub(crate) fn value<T: Copy>(&self, value: T) -> Result<(), cl_int> {
        self.slice(&[value])
    }

    /// Answers with several plain values.
    pub(crate) fn slice<T: Copy>(&self, values: &[T]) -> Result<(), cl_int> {
        if self.announce(size_of_val(values))? {
            // SAFETY: as in `bytes`; plain values are copied byte by byte, so alignment does not matter.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    values.as_ptr().cast::<u8>(),
                    self.value.cast(),
                    size_of_val(values),
                )
            };
        }
        Ok(())
    }

    /// Answers with text and its NUL.
    pub(crate) fn text(&self, text: &str) -> Result<(), cl_int> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(&bytes)
    }
}

/// A pointer of a provider or of the application that other threads may hold.
#[derive(Debug)]
pub(crate) struct Shared<T>(pub(crate) *mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: the pointer is only passed on; OpenCL objects may be used from any thread, and the application promises as much for its
// own pointers by handing them to an API with threads.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

/// # Safety
/// `pointer` is NULL or readable for the lifetime chosen.
pub(crate) unsafe fn one<'a, T>(pointer: *const T) -> Option<&'a T> {
    // SAFETY: the contract above.
    unsafe { pointer.as_ref() }
}

/// `count` values; `None` for NULL, and where so many cannot be.
///
/// # Safety
/// `pointer` is NULL or readable for `count` values for the lifetime chosen.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: usize) -> Option<&'a [T]> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the contract above.
    unsafe { towline_client::raw::slice(pointer, count) }
}

/// # Safety
/// `pointer` is NULL or a NUL-terminated string for the lifetime chosen.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the contract above.
    Some(unsafe { CStr::from_ptr(pointer) })
}

/// A list of pairs with its terminator.
///
/// # Safety
/// `pointer` is NULL or a list of pairs that ends with a zero name, for the lifetime chosen.
pub(crate) unsafe fn list<'a, T: Copy + PartialEq + Default>(pointer: *const T) -> Option<&'a [T]> {
    if pointer.is_null() {
        return None;
    }
    let mut len = 0;
    loop {
        // SAFETY: the contract above: the list has not ended yet.
        let name = unsafe { pointer.add(len) };
        // SAFETY: as above.
        if unsafe { name.read() } == T::default() {
            break;
        }
        len += 2;
    }
    // SAFETY: as above: everything up to and with the terminator is readable.
    Some(unsafe { std::slice::from_raw_parts(pointer, len + 1) })
}

/// The pairs of a list.
pub(crate) fn pairs<T: Copy>(list: Option<&[T]>) -> impl Iterator<Item = (T, T)> + '_ {
    list.unwrap_or(&[])
        .as_chunks::<2>()
        .0
        .iter()
        .map(|pair| (pair[0], pair[1]))
}

/// The C function's result.
pub(crate) fn status(result: Result<(), cl_int>) -> cl_int {
    match result {
        Ok(()) => CL_SUCCESS,
        Err(status) => status,
    }
}

thread_local! {
    /// The status that goes out beside the object that this thread's call answers.
    static BESIDE: Cell<cl_int> = const { Cell::new(CL_SUCCESS) };
}

/// Has the object that this call answers go out with a status that is none of success.
pub(crate) fn tell_beside(status: cl_int) {
    BESIDE.set(status);
}

/// The C function's result and status.
///
/// # Safety
/// `errcode` is NULL or writable.
pub(crate) unsafe fn created<T>(result: Result<*mut T, cl_int>, errcode: *mut cl_int) -> *mut T {
    // SAFETY: the contract above.
    let errcode = unsafe { Out::new(errcode) };
    match result {
        Ok(created) => {
            errcode.set(BESIDE.replace(CL_SUCCESS));
            created
        }
        Err(status) => {
            errcode.set(status);
            std::ptr::null_mut()
        }
    }
}

/// A provider's status as a result.
pub(crate) fn check(status: cl_int) -> Result<(), cl_int> {
    if status == CL_SUCCESS {
        Ok(())
    } else {
        Err(status)
    }
}

/// Calls a provider. The one place that says why these calls are sound.
macro_rules! provider {
    ($api:expr, $call:ident ( $($argument:expr),* $(,)? )) => {{
        // SAFETY: handles passed are that provider's own and live, since the caller holds the objects they belong to; pointers are
        // locals of the caller, memory that it keeps until the command is complete, or the application's under its own contract.
        unsafe { $api.$call($($argument),*) }
    }};
}

/// Calls a provider that creates an object: the object, or the status.
macro_rules! create {
    ($api:expr, $call:ident ( $($argument:expr),* $(,)? )) => {{
        let mut status = towline_backend::opencl::CL_SUCCESS;
        let object = $crate::raw::provider!($api, $call($($argument,)* &raw mut status));
        if status == towline_backend::opencl::CL_SUCCESS && !object.is_null() {
            Ok(object)
        } else if status == towline_backend::opencl::CL_SUCCESS {
            Err(towline_backend::opencl::CL_OUT_OF_HOST_MEMORY)
        } else {
            Err(status)
        }
    }};
}

pub(crate) use create;
pub(crate) use provider;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_beside_a_failure_goes_out_with_both() {
        let mut object = 0_u8;
        let made = &raw mut object;
        tell_beside(CL_LINK_PROGRAM_FAILURE);
        let told = [made, made].map(|made| {
            let mut status = 1;
            // SAFETY: the status is a local.
            let object = unsafe { created(Ok(made), &raw mut status) };
            (object, status)
        });
        // The next object's status is its own.
        assert_eq!(told, [(made, CL_LINK_PROGRAM_FAILURE), (made, CL_SUCCESS)]);
    }
}
