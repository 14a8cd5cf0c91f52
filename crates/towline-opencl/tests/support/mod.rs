//! OpenCL in few words, over a platform made of native providers.

#![allow(dead_code, unused_macros, reason = "each test file uses its own part")]

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use towline_backend::opencl::*;
use towline_client::opencl::Remote;
use towline_opencl::{Platform, Provider};
use towline_test::pair::Pair;

/// The CPU device that tests run on.
pub(crate) const POCL: &str = "libpocl.so.2";
/// An interpreter of kernels: a second, very different device.
pub(crate) const OCLGRIND: &str = "/usr/lib/oclgrind/liboclgrind-rt-icd.so";

/// Calls the platform and expects success.
macro_rules! ok {
    ($cl:expr, $call:ident ( $($argument:expr),* $(,)? )) => {{
        // SAFETY: tests pass live handles and pointers to their own data.
        let status = unsafe { $cl.platform.$call($($argument),*) };
        assert_eq!(status, CL_SUCCESS, "{} answered {:?}", stringify!($call), status_name(status));
    }};
}

/// Calls the platform and answers its status.
macro_rules! status {
    ($cl:expr, $call:ident ( $($argument:expr),* $(,)? )) => {{
        // SAFETY: tests pass live handles, or pointers that are none, and pointers to their own data.
        unsafe { $cl.platform.$call($($argument),*) }
    }};
}

/// Calls a function of the platform that creates an object: the object or the status.
macro_rules! make {
    ($cl:expr, $call:ident ( $($argument:expr),* $(,)? )) => {{
        let mut status = 1;
        // SAFETY: tests pass live handles and pointers to their own data.
        let made = unsafe { $cl.platform.$call($($argument,)* &raw mut status) };
        if status == CL_SUCCESS { Ok(made) } else { Err(status) }
    }};
}

/// A platform and a context over all of its devices.
pub(crate) struct Cl {
    pub(crate) platform: Platform,
    pub(crate) devices: Vec<cl_device_id>,
    pub(crate) context: cl_context,
}

/// A loaded vendor library.
struct Library {
    name: String,
    api: Arc<dyn OpenClApi>,
    platform: cl_platform_id,
}

// SAFETY: a platform's handle may be used from any thread.
unsafe impl Send for Library {}

/// A vendor library, loaded and enumerated once: the first calls of some are not safe from several threads.
pub(crate) fn library(name: &str) -> (Arc<dyn OpenClApi>, cl_platform_id) {
    static LOADED: Mutex<Vec<Library>> = Mutex::new(Vec::new());
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = loaded.iter().find(|known| known.name == name) {
        return (Arc::clone(&known.api), known.platform);
    }
    let native = NativeOpenCl::from_libraries(&[name.into()])
        .unwrap_or_else(|error| panic!("{error}: the tests need this library"));
    let platform = native.platforms().next();
    let platform = platform.unwrap_or_else(|| panic!("{name} has no platform"));
    let api = SerialOpenCl::where_needed(native);
    let mut count = 0;
    // SAFETY: only the count is written.
    unsafe { api.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, null_mut(), &raw mut count) };
    loaded.push(Library {
        name: name.into(),
        api: Arc::clone(&api),
        platform,
    });
    (api, platform)
}

/// Providers of these vendor libraries, each a provider of its own.
pub(crate) fn providers(libraries: &[&str], local: bool) -> Vec<Provider> {
    libraries
        .iter()
        .map(|name| {
            let (native, platform) = library(name);
            // SAFETY: the platform was just named by its library.
            unsafe { Provider::of_platform(name, native, platform, local) }
                .unwrap_or_else(|status| panic!("{name} has no devices: {status}"))
        })
        .collect()
}

/// A session with a worker of its own on PoCL.
pub(crate) fn session() -> Arc<Remote> {
    session_on(POCL)
}

/// A session with a worker of its own on this vendor's library.
pub(crate) fn session_on(name: &str) -> Arc<Remote> {
    static PAIRS: Mutex<Vec<Pair>> = Mutex::new(Vec::new());
    let pair = Pair::new(library(name).0);
    let remote = Arc::clone(&pair.remote);
    // Workers live as long as the process: tests end while callbacks may still be on their way.
    let mut pairs = PAIRS.lock().unwrap_or_else(PoisonError::into_inner);
    pairs.push(pair);
    remote
}

impl Cl {
    /// One context over one device of each library.
    pub(crate) fn new(libraries: &[&str]) -> Self {
        Self::over(providers(libraries, true))
    }

    /// One context over all devices of the providers.
    pub(crate) fn over(providers: Vec<Provider>) -> Self {
        let platform = Platform::with_providers(providers);
        let mut handle = null_mut();
        // SAFETY: room for one platform.
        let status = unsafe { platform.clGetPlatformIDs(1, &raw mut handle, null_mut()) };
        assert_eq!(status, CL_SUCCESS);
        let mut count = 0;
        // SAFETY: only the count is written.
        unsafe {
            platform.clGetDeviceIDs(handle, CL_DEVICE_TYPE_ALL, 0, null_mut(), &raw mut count)
        };
        let mut devices = vec![null_mut(); count as usize];
        // SAFETY: room for all devices.
        let status = unsafe {
            platform.clGetDeviceIDs(
                handle,
                CL_DEVICE_TYPE_ALL,
                count,
                devices.as_mut_ptr(),
                null_mut(),
            )
        };
        assert_eq!(status, CL_SUCCESS);
        let mut cl = Self {
            platform,
            devices,
            context: null_mut(),
        };
        cl.context = make!(
            cl,
            clCreateContext(
                null(),
                cl.devices.len() as cl_uint,
                cl.devices.as_ptr(),
                None,
                null_mut()
            )
        )
        .expect("a context over all devices");
        cl
    }

    /// An in-order queue on the device of this index.
    pub(crate) fn queue(&self, device: usize) -> cl_command_queue {
        make!(
            self,
            clCreateCommandQueue(self.context, self.devices[device], 0)
        )
        .expect("a queue")
    }

    /// A buffer without contents.
    pub(crate) fn buffer(&self, size: usize) -> cl_mem {
        make!(
            self,
            clCreateBuffer(self.context, CL_MEM_READ_WRITE, size, null_mut())
        )
        .expect("a buffer")
    }

    /// A buffer with contents.
    pub(crate) fn buffer_of(&self, flags: cl_mem_flags, values: &mut [u32]) -> cl_mem {
        make!(
            self,
            clCreateBuffer(
                self.context,
                flags,
                size_of_val(values),
                values.as_mut_ptr().cast()
            )
        )
        .expect("a buffer")
    }

    /// A program built for all devices.
    pub(crate) fn program(&self, source: &str) -> cl_program {
        let source = CString::new(source).expect("no NUL");
        let mut strings = [source.as_ptr()];
        let program = make!(
            self,
            clCreateProgramWithSource(self.context, 1, strings.as_mut_ptr(), null())
        )
        .expect("a program");
        ok!(
            self,
            clBuildProgram(program, 0, null(), null(), None, null_mut())
        );
        program
    }

    /// A kernel of a program.
    pub(crate) fn kernel(&self, program: cl_program, name: &str) -> cl_kernel {
        let name = CString::new(name).expect("no NUL");
        make!(self, clCreateKernel(program, name.as_ptr())).expect("a kernel")
    }

    /// Sets an argument to a plain value or a handle.
    pub(crate) fn arg<T: Copy>(&self, kernel: cl_kernel, index: u32, value: T) {
        ok!(
            self,
            clSetKernelArg(kernel, index, size_of::<T>(), (&raw const value).cast())
        );
    }

    /// Launches a kernel over one dimension.
    pub(crate) fn launch(&self, queue: cl_command_queue, kernel: cl_kernel, count: usize) {
        ok!(
            self,
            clEnqueueNDRangeKernel(
                queue,
                kernel,
                1,
                null(),
                &raw const count,
                null(),
                0,
                null(),
                null_mut()
            )
        );
    }

    /// Reads a buffer from its beginning and waits.
    pub(crate) fn read(&self, queue: cl_command_queue, buffer: cl_mem, count: usize) -> Vec<u32> {
        let mut values = vec![0_u32; count];
        ok!(
            self,
            clEnqueueReadBuffer(
                queue,
                buffer,
                CL_TRUE,
                0,
                count * 4,
                values.as_mut_ptr().cast(),
                0,
                null(),
                null_mut()
            )
        );
        values
    }

    /// Writes a buffer from its beginning and waits.
    pub(crate) fn write(&self, queue: cl_command_queue, buffer: cl_mem, values: &[u32]) {
        ok!(
            self,
            clEnqueueWriteBuffer(
                queue,
                buffer,
                CL_TRUE,
                0,
                size_of_val(values),
                values.as_ptr().cast(),
                0,
                null(),
                null_mut()
            )
        );
    }

    /// One plain value of an event.
    pub(crate) fn event_info<T: Copy + Default>(&self, event: cl_event, name: cl_event_info) -> T {
        let mut value = T::default();
        ok!(
            self,
            clGetEventInfo(
                event,
                name,
                size_of::<T>(),
                (&raw mut value).cast::<c_void>(),
                null_mut()
            )
        );
        value
    }

    /// One plain value of a memory object.
    pub(crate) fn mem_info<T: Copy>(&self, mem: cl_mem, name: cl_mem_info, start: T) -> T {
        let mut value = start;
        ok!(
            self,
            clGetMemObjectInfo(
                mem,
                name,
                size_of::<T>(),
                (&raw mut value).cast::<c_void>(),
                null_mut()
            )
        );
        value
    }
}

/// Adds `n` to every element, and can copy one buffer into another.
pub(crate) const ADD: &str = "
    __kernel void add(__global uint *values, uint n) { values[get_global_id(0)] += n; }
    __kernel void copy(__global const uint *from, __global uint *to) {
        to[get_global_id(0)] = from[get_global_id(0)];
    }
";
