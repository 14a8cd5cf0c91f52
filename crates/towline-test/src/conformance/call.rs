//! Raw calls made readable: a status that knows its call, handles that release themselves, answers that know their type.

use std::ffi::c_void;
use std::fmt;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;

use towline_backend::opencl::*;

/// A status code that prints its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code(pub cl_int);

impl fmt::Debug for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match status_name(self.0) {
            Some(name) => write!(out, "{name} ({})", self.0),
            None => write!(out, "{}", self.0),
        }
    }
}

impl PartialEq<cl_int> for Code {
    fn eq(&self, other: &cl_int) -> bool {
        self.0 == *other
    }
}

/// What a call answered instead of success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The call.
    pub call: &'static str,
    /// Its answer.
    pub code: Code,
}

/// The code of a result, success included.
pub trait Codes {
    /// `CL_SUCCESS` or the error.
    fn code(&self) -> Code;
}

impl<T> Codes for Result<T, Status> {
    fn code(&self) -> Code {
        self.as_ref()
            .err()
            .map_or(Code(CL_SUCCESS), |status| status.code)
    }
}

/// Why a rule did not reach its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// A call that had to succeed did not.
    Failed(String),
    /// The rule does not apply to the device.
    Skipped(String),
}

impl From<Status> for Stop {
    #[track_caller]
    fn from(status: Status) -> Self {
        let Status { call, code } = status;
        Self::Failed(format!(
            "{call} answered {code:?} at {}",
            Location::caller()
        ))
    }
}

/// How a rule ends.
pub type Verdict = Result<(), Stop>;

/// The status of the call of this name.
pub(super) fn checked(call: &'static str, code: cl_int) -> Result<(), Status> {
    match code {
        CL_SUCCESS => Ok(()),
        code => Err(Status {
            call,
            code: Code(code),
        }),
    }
}

/// A call that answers with a status.
macro_rules! call {
    ($cl:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let api: &dyn towline_backend::opencl::OpenClApi = &*$cl.api;
        // SAFETY: rules pass live or NULL handles, and pointers that are good for what the call does with them.
        let status = unsafe { api.$name($($argument),*) };
        $crate::conformance::call::checked(stringify!($name), status)
    }};
}

/// A call that creates an object, without its last parameter.
macro_rules! create {
    ($cl:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let api: &dyn towline_backend::opencl::OpenClApi = &*$cl.api;
        let mut code = $crate::conformance::call::UNSET;
        // SAFETY: rules pass live or NULL handles, and pointers that are good for what the call does with them.
        let raw = unsafe { api.$name($($argument,)* &raw mut code) };
        $crate::conformance::call::created(&$cl.api, stringify!($name), raw, code)
    }};
}

/// An info query, without its last three parameters.
macro_rules! info {
    ($cl:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let api: &dyn towline_backend::opencl::OpenClApi = &*$cl.api;
        $crate::conformance::call::query(stringify!($name), &mut |size, value, size_ret| {
            // SAFETY: rules pass live or NULL handles; the answer's place is as large as it says.
            unsafe { api.$name($($argument,)* size, value, size_ret) }
        })
    }};
}

/// The shape of an info query's last three parameters, to see how it treats them.
macro_rules! sizes {
    ($cl:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let api: &dyn towline_backend::opencl::OpenClApi = &*$cl.api;
        $crate::conformance::call::observe(&mut |size, value, size_ret| {
            // SAFETY: rules pass live or NULL handles; the answer's place is as large as it says.
            unsafe { api.$name($($argument,)* size, value, size_ret) }
        })
    }};
}

pub(super) use {call, create, info, sizes};

/// What an error code is before a call writes it: no call answers this.
pub(super) const UNSET: cl_int = 77;

/// A handle that can be released.
pub trait Handle: Copy + 'static {
    /// Gives up one reference.
    ///
    /// # Safety
    /// The caller has a reference to give up.
    unsafe fn release(self, api: &dyn OpenClApi) -> cl_int;

    /// Whether there is none.
    fn is_null(self) -> bool;
}

macro_rules! handles {
    ($($handle:ident: $release:ident;)*) => {$(
        impl Handle for $handle {
            unsafe fn release(self, api: &dyn OpenClApi) -> cl_int {
                // SAFETY: the caller's contract.
                unsafe { api.$release(self) }
            }

            fn is_null(self) -> bool {
                self.is_null()
            }
        }
    )*};
}

handles! {
    cl_command_queue: clReleaseCommandQueue;
    cl_context: clReleaseContext;
    cl_device_id: clReleaseDevice;
    cl_event: clReleaseEvent;
    cl_kernel: clReleaseKernel;
    cl_mem: clReleaseMemObject;
    cl_program: clReleaseProgram;
    cl_sampler: clReleaseSampler;
}

/// A handle with one reference, which goes with it.
pub struct Owned<H: Handle> {
    api: Arc<dyn OpenClApi>,
    raw: H,
}

/// An event with one reference.
pub type Event = Owned<cl_event>;

// SAFETY: OpenCL objects may be used from any thread; the exception, setting arguments of one kernel, is the rules' to keep.
unsafe impl<H: Handle> Send for Owned<H> {}
// SAFETY: as above.
unsafe impl<H: Handle> Sync for Owned<H> {}

impl<H: Handle> Owned<H> {
    /// Takes over a reference.
    pub fn new(api: &Arc<dyn OpenClApi>, raw: H) -> Self {
        Self {
            api: api.clone(),
            raw,
        }
    }

    /// The handle, which stays owned.
    pub fn raw(&self) -> H {
        self.raw
    }

    /// Releases now, and tells how that went.
    pub fn release(self) -> Result<(), Status> {
        // SAFETY: the reference that this value owns; it is given up only here.
        let status = unsafe { self.raw.release(&*self.api) };
        std::mem::forget(self);
        checked("release", status)
    }
}

impl<H: Handle> Drop for Owned<H> {
    fn drop(&mut self) {
        // SAFETY: the reference that this value owns.
        let _ = unsafe { self.raw.release(&*self.api) };
    }
}

/// The object that a creating call answered with.
pub(super) fn created<H: Handle>(
    api: &Arc<dyn OpenClApi>,
    call: &'static str,
    raw: H,
    code: cl_int,
) -> Result<Owned<H>, Status> {
    assert_ne!(code, UNSET, "{call} left its error code unwritten");
    assert_eq!(
        code != CL_SUCCESS,
        raw.is_null(),
        "{call} answered {:?} and {} object",
        Code(code),
        if raw.is_null() { "no" } else { "an" }
    );
    checked(call, code).map(|()| Owned::new(api, raw))
}

/// The last three parameters of an info query.
type Query<'a> = &'a mut dyn FnMut(usize, *mut c_void, *mut usize) -> cl_int;

/// An info query's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer(pub(super) Vec<u8>);

impl Answer {
    /// A number of four or eight bytes.
    pub(super) fn number(&self) -> u64 {
        let mut wide = [0; 8];
        assert!(
            matches!(self.0.len(), 4 | 8),
            "{} bytes are no number",
            self.0.len()
        );
        wide[..self.0.len()].copy_from_slice(&self.0);
        u64::from_le_bytes(wide)
    }

    /// A status.
    pub(super) fn code(&self) -> Code {
        Code(self.number() as u32 as cl_int)
    }

    /// Numbers of eight bytes each: sizes, properties, handles.
    pub(super) fn words(&self) -> Vec<u64> {
        let (words, rest) = self.0.as_chunks::<8>();
        assert!(rest.is_empty(), "no list of words");
        words.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    /// Text up to its NUL.
    pub(super) fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0);
        String::from_utf8_lossy(&self.0[..end.unwrap_or(self.0.len())]).into_owned()
    }
}

/// Asks for the size, then for the answer.
pub(super) fn query(call: &'static str, ask: Query<'_>) -> Result<Answer, Status> {
    let mut size = 0;
    checked(call, ask(0, ptr::null_mut(), &raw mut size))?;
    let mut answer = vec![0; size];
    if size > 0 {
        checked(call, ask(size, answer.as_mut_ptr().cast(), ptr::null_mut()))?;
    }
    Ok(Answer(answer))
}

/// How an info query treats the room it is given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Asked for the size alone.
    pub(super) size_alone: Code,
    /// The size.
    pub(super) size: usize,
    /// Given exactly that.
    pub(super) exact: Code,
    /// Given more: what it answered and says it wrote.
    pub(super) larger: (Code, usize),
    /// Given one byte less.
    pub(super) smaller: Code,
}

impl Sizes {
    /// What the specification wants for an answer of `size` bytes.
    pub(super) fn of(size: usize) -> Self {
        Self {
            size_alone: Code(CL_SUCCESS),
            size,
            exact: Code(CL_SUCCESS),
            larger: (Code(CL_SUCCESS), size),
            smaller: Code(CL_INVALID_VALUE),
        }
    }
}

/// Asks in all ways.
pub(super) fn observe(ask: Query<'_>) -> Sizes {
    let mut size = 0;
    let size_alone = ask(0, ptr::null_mut(), &raw mut size);
    let mut answer = vec![0_u8; size + 64];
    let exact = ask(size, answer.as_mut_ptr().cast(), ptr::null_mut());
    let mut written = 0;
    let larger = ask(size + 64, answer.as_mut_ptr().cast(), &raw mut written);
    let smaller = ask(
        size.saturating_sub(1),
        answer.as_mut_ptr().cast(),
        ptr::null_mut(),
    );
    Sizes {
        size_alone: Code(size_alone),
        size,
        exact: Code(exact),
        larger: (Code(larger), written),
        smaller: Code(smaller),
    }
}
