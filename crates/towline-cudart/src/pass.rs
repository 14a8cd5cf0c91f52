//! How a parameter goes on to the driver, whose type for it has another name and the same bits.

use std::ffi::c_void;

use towline_backend::cuda::{
    CUasyncCallback, CUhostFn, CUipcEventHandle, CUipcMemHandle, CUlogsCallback, CUmemLocation,
    CUstreamCallback,
};

/// A value as the driver takes it.
pub(crate) trait Pass<T> {
    /// The same bits in the driver's type.
    fn pass(self) -> T;
}

macro_rules! as_it_is {
    ($($ty:ty),*) => {$(
        impl Pass<$ty> for $ty {
            fn pass(self) -> $ty {
                self
            }
        }
    )*};
}

as_it_is!(
    i32,
    u32,
    u64,
    usize,
    CUasyncCallback,
    CUhostFn,
    CUipcEventHandle,
    CUipcMemHandle,
    CUlogsCallback,
    CUmemLocation,
    CUstreamCallback
);

impl Pass<u64> for u32 {
    fn pass(self) -> u64 {
        self.into()
    }
}

/// A count that is signed on one side only. What is negative is too many for the driver.
impl Pass<u32> for i32 {
    fn pass(self) -> u32 {
        self.cast_unsigned()
    }
}

/// An address of the device, which C programs hold as a pointer.
impl Pass<u64> for *mut c_void {
    fn pass(self) -> u64 {
        self.addr() as u64
    }
}

impl Pass<u64> for *const c_void {
    fn pass(self) -> u64 {
        self.addr() as u64
    }
}

impl<T, U> Pass<*mut U> for *mut T {
    fn pass(self) -> *mut U {
        self.cast()
    }
}

impl<T, U> Pass<*const U> for *mut T {
    fn pass(self) -> *const U {
        self.cast_const().cast()
    }
}

impl<T, U> Pass<*const U> for *const T {
    fn pass(self) -> *const U {
        self.cast()
    }
}

/// C is not strict about what a function only reads.
impl<T, U> Pass<*mut U> for *const T {
    fn pass(self) -> *mut U {
        self.cast_mut().cast()
    }
}
