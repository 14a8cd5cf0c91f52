//! A thin layer over the C calls for one device: objects release themselves, statuses become errors, slices bound what calls touch.
//!
//! It adds nothing to the calls that are measured but a check of the status.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::rc::Rc;

use anyhow::Context as _;
use towline_backend::opencl::*;

use crate::report::Device as DeviceFacts;

/// Why a measurement could not be made.
#[derive(Debug)]
pub(super) struct ClError {
    call: &'static str,
    status: cl_int,
    log: String,
}

impl std::fmt::Display for ClError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match status_name(self.status) {
            Some(name) => write!(formatter, "{} answers {name}", self.call)?,
            None => write!(formatter, "{} answers {}", self.call, self.status)?,
        }
        match self.log.trim() {
            "" => Ok(()),
            log => write!(formatter, ": {log}"),
        }
    }
}

impl std::error::Error for ClError {}

fn check(call: &'static str, status: cl_int) -> Result<(), ClError> {
    match status {
        CL_SUCCESS => Ok(()),
        status => Err(ClError {
            call,
            status,
            log: String::new(),
        }),
    }
}

/// A library, its platform and the chosen device.
pub(super) struct Opencl {
    api: NativeOpenCl,
    pub(super) platform: cl_platform_id,
    pub(super) device: cl_device_id,
}

impl Opencl {
    /// The device of this number, counted over all platforms of the libraries.
    pub(super) fn open(libraries: &[PathBuf], index: usize) -> anyhow::Result<Rc<Self>> {
        let api = load(libraries)?;
        let mut devices = Vec::new();
        for platform in platforms(&api)? {
            let found = self::devices(&api, platform)?;
            devices.extend(found.into_iter().map(|device| (platform, device)));
        }
        Self::choose(api, &devices, index)
    }

    /// The device of this number in a list.
    pub(super) fn choose(
        api: NativeOpenCl,
        devices: &[(cl_platform_id, cl_device_id)],
        index: usize,
    ) -> anyhow::Result<Rc<Self>> {
        let (platform, device) = *devices.get(index).with_context(|| {
            format!(
                "there is no device {index}: the library has {}",
                devices.len()
            )
        })?;
        Ok(Rc::new(Self {
            api,
            platform,
            device,
        }))
    }

    pub(super) fn facts(&self) -> DeviceFacts {
        let text = |name| {
            let bytes = self.device_info(name);
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        };
        let number = |name| {
            let mut bytes = self.device_info(name);
            bytes.resize(8, 0);
            bytes.try_into().map_or(0, u64::from_le_bytes)
        };
        DeviceFacts {
            name: text(CL_DEVICE_NAME),
            platform: self.platform_name(),
            driver: text(CL_DRIVER_VERSION),
            version: text(CL_DEVICE_VERSION),
            gpu: number(CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU != 0,
            double: number(CL_DEVICE_DOUBLE_FP_CONFIG) != 0,
        }
    }

    fn platform_name(&self) -> String {
        let mut bytes = [0_u8; 256];
        // SAFETY: a live platform, and room as given.
        let status = unsafe {
            self.api.clGetPlatformInfo(
                self.platform,
                CL_PLATFORM_NAME,
                bytes.len(),
                bytes.as_mut_ptr().cast(),
                ptr::null_mut(),
            )
        };
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        match status {
            CL_SUCCESS => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        }
    }

    fn device_info(&self, name: cl_device_info) -> Vec<u8> {
        let mut size = 0;
        // SAFETY: a live device; with no room given, only the size is written.
        let status = unsafe {
            self.api
                .clGetDeviceInfo(self.device, name, 0, ptr::null_mut(), &raw mut size)
        };
        if status != CL_SUCCESS {
            return Vec::new();
        }
        let mut bytes = vec![0; size];
        // SAFETY: a live device, and room as given.
        let status = unsafe {
            self.api.clGetDeviceInfo(
                self.device,
                name,
                size,
                bytes.as_mut_ptr().cast(),
                ptr::null_mut(),
            )
        };
        if status == CL_SUCCESS {
            bytes
        } else {
            Vec::new()
        }
    }

    pub(super) fn max_allocation(&self) -> u64 {
        let bytes = self.device_info(CL_DEVICE_MAX_MEM_ALLOC_SIZE);
        bytes.try_into().map_or(0, u64::from_le_bytes)
    }

    pub(super) fn compute_units(&self) -> u32 {
        let bytes = self.device_info(CL_DEVICE_MAX_COMPUTE_UNITS);
        bytes.try_into().map_or(1, u32::from_le_bytes)
    }

    pub(super) fn context(self: &Rc<Self>) -> Result<Context, ClError> {
        let mut status = CL_SUCCESS;
        // SAFETY: one live device; no properties, no callback.
        let raw = unsafe {
            self.api.clCreateContext(
                ptr::null(),
                1,
                &raw const self.device,
                None,
                ptr::null_mut(),
                &raw mut status,
            )
        };
        check("clCreateContext", status)?;
        let opencl = Rc::clone(self);
        Ok(Context { raw, opencl })
    }
}

/// Loads libraries; their first call makes most of their initialisation.
pub(super) fn load(libraries: &[PathBuf]) -> anyhow::Result<NativeOpenCl> {
    let names: Vec<String> = libraries
        .iter()
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    match libraries {
        [folder] if Path::is_dir(folder) => Ok(NativeOpenCl::from_vendors(folder, &|_| false)?),
        _ => Ok(NativeOpenCl::from_libraries(&names)?),
    }
}

pub(super) fn platforms(api: &NativeOpenCl) -> Result<Vec<cl_platform_id>, ClError> {
    let mut count = 0;
    // SAFETY: with no room given, only the count is written.
    let status = unsafe { api.clGetPlatformIDs(0, ptr::null_mut(), &raw mut count) };
    check("clGetPlatformIDs", status)?;
    let mut found = vec![ptr::null_mut(); count as usize];
    // SAFETY: room as given.
    let status = unsafe { api.clGetPlatformIDs(count, found.as_mut_ptr(), ptr::null_mut()) };
    check("clGetPlatformIDs", status)?;
    Ok(found)
}

pub(super) fn devices(
    api: &NativeOpenCl,
    platform: cl_platform_id,
) -> Result<Vec<cl_device_id>, ClError> {
    let mut count = 0;
    // SAFETY: a live platform; with no room given, only the count is written.
    let status = unsafe {
        api.clGetDeviceIDs(
            platform,
            CL_DEVICE_TYPE_ALL,
            0,
            ptr::null_mut(),
            &raw mut count,
        )
    };
    if status == CL_DEVICE_NOT_FOUND {
        return Ok(Vec::new());
    }
    check("clGetDeviceIDs", status)?;
    let mut found = vec![ptr::null_mut(); count as usize];
    // SAFETY: a live platform, and room as given.
    let status = unsafe {
        api.clGetDeviceIDs(
            platform,
            CL_DEVICE_TYPE_ALL,
            count,
            found.as_mut_ptr(),
            ptr::null_mut(),
        )
    };
    check("clGetDeviceIDs", status)?;
    Ok(found)
}

/// An object that is released when its value is dropped.
macro_rules! releases {
    ($object:ident, $release:ident) => {
        impl Drop for $object {
            fn drop(&mut self) {
                // SAFETY: the one reference that this value holds.
                let status = unsafe { self.opencl.api.$release(self.raw) };
                if let Err(error) = check(stringify!($release), status) {
                    log::warn!("{error}");
                }
            }
        }
    };
}

/// A context of one device.
pub(super) struct Context {
    raw: cl_context,
    opencl: Rc<Opencl>,
}
releases!(Context, clReleaseContext);

/// An in-order queue.
pub(super) struct Queue {
    raw: cl_command_queue,
    opencl: Rc<Opencl>,
}
releases!(Queue, clReleaseCommandQueue);

/// A program.
pub(super) struct Program {
    raw: cl_program,
    opencl: Rc<Opencl>,
}
releases!(Program, clReleaseProgram);

/// A kernel.
pub(super) struct Kernel {
    raw: cl_kernel,
    opencl: Rc<Opencl>,
}
releases!(Kernel, clReleaseKernel);

/// A buffer.
pub(super) struct Buffer {
    raw: cl_mem,
    len_bytes: usize,
    opencl: Rc<Opencl>,
}
releases!(Buffer, clReleaseMemObject);

impl Context {
    pub(super) fn queue(&self) -> Result<Queue, ClError> {
        let mut status = CL_SUCCESS;
        // SAFETY: a live context and its device.
        let raw = unsafe {
            self.opencl
                .api
                .clCreateCommandQueue(self.raw, self.opencl.device, 0, &raw mut status)
        };
        check("clCreateCommandQueue", status)?;
        let opencl = Rc::clone(&self.opencl);
        Ok(Queue { raw, opencl })
    }

    pub(super) fn buffer(&self, len_bytes: usize) -> Result<Buffer, ClError> {
        let mut status = CL_SUCCESS;
        // SAFETY: a live context; no host memory.
        let raw = unsafe {
            self.opencl.api.clCreateBuffer(
                self.raw,
                CL_MEM_READ_WRITE,
                len_bytes,
                ptr::null_mut(),
                &raw mut status,
            )
        };
        check("clCreateBuffer", status)?;
        let opencl = Rc::clone(&self.opencl);
        Ok(Buffer {
            raw,
            len_bytes,
            opencl,
        })
    }

    pub(super) fn program(&self, source: &str) -> Result<Program, ClError> {
        let mut status = CL_SUCCESS;
        let mut text = source.as_ptr().cast();
        let length = source.len();
        // SAFETY: a live context and one string with its length.
        let raw = unsafe {
            self.opencl.api.clCreateProgramWithSource(
                self.raw,
                1,
                &raw mut text,
                &raw const length,
                &raw mut status,
            )
        };
        check("clCreateProgramWithSource", status)?;
        let opencl = Rc::clone(&self.opencl);
        Ok(Program { raw, opencl })
    }
}

impl Program {
    pub(super) fn build(&self) -> Result<(), ClError> {
        // SAFETY: a live program and device; no options, no callback.
        let status = unsafe {
            self.opencl.api.clBuildProgram(
                self.raw,
                1,
                &raw const self.opencl.device,
                c"".as_ptr(),
                None,
                ptr::null_mut(),
            )
        };
        check("clBuildProgram", status).map_err(|error| ClError {
            log: self.build_log(),
            ..error
        })
    }

    fn build_log(&self) -> String {
        let mut bytes = vec![0_u8; 4096];
        // SAFETY: a live program and device, and room as given.
        let status = unsafe {
            self.opencl.api.clGetProgramBuildInfo(
                self.raw,
                self.opencl.device,
                CL_PROGRAM_BUILD_LOG,
                bytes.len(),
                bytes.as_mut_ptr().cast(),
                ptr::null_mut(),
            )
        };
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        match status {
            CL_SUCCESS => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        }
    }

    pub(super) fn kernel(&self, name: &str) -> Result<Kernel, ClError> {
        let name = CString::new(name).unwrap_or_default();
        let mut status = CL_SUCCESS;
        // SAFETY: a live program and a NUL-terminated name.
        let raw = unsafe {
            self.opencl
                .api
                .clCreateKernel(self.raw, name.as_ptr(), &raw mut status)
        };
        check("clCreateKernel", status)?;
        let opencl = Rc::clone(&self.opencl);
        Ok(Kernel { raw, opencl })
    }
}

impl Kernel {
    /// Sets a plain value.
    #[inline]
    pub(super) fn set<T: Copy>(&self, index: cl_uint, value: T) -> Result<(), ClError> {
        // SAFETY: a live kernel, and a value of the size given.
        let status = unsafe {
            self.opencl.api.clSetKernelArg(
                self.raw,
                index,
                size_of::<T>(),
                ptr::from_ref(&value).cast(),
            )
        };
        check("clSetKernelArg", status)
    }

    /// Sets a buffer.
    #[inline]
    pub(super) fn set_buffer(&self, index: cl_uint, buffer: &Buffer) -> Result<(), ClError> {
        self.set(index, buffer.raw)
    }
}

impl Queue {
    #[inline]
    pub(super) fn launch(&self, kernel: &Kernel, global: usize) -> Result<(), ClError> {
        // SAFETY: live objects of one context whose arguments are all set; one dimension; no wait list and no event.
        let status = unsafe {
            self.opencl.api.clEnqueueNDRangeKernel(
                self.raw,
                kernel.raw,
                1,
                ptr::null(),
                &raw const global,
                ptr::null(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        check("clEnqueueNDRangeKernel", status)
    }

    /// Like [`Self::launch`], with a work-group size.
    pub(super) fn launch_groups(
        &self,
        kernel: &Kernel,
        global: usize,
        local: usize,
    ) -> Result<(), ClError> {
        // SAFETY: as for `launch`; one work-group size.
        let status = unsafe {
            self.opencl.api.clEnqueueNDRangeKernel(
                self.raw,
                kernel.raw,
                1,
                ptr::null(),
                &raw const global,
                &raw const local,
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        check("clEnqueueNDRangeKernel", status)
    }

    #[inline]
    pub(super) fn finish(&self) -> Result<(), ClError> {
        // SAFETY: a live queue.
        check("clFinish", unsafe { self.opencl.api.clFinish(self.raw) })
    }

    /// Writes, and waits for what the specification says a blocking write waits for.
    #[inline]
    pub(super) fn write(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), ClError> {
        // SAFETY: the call blocks, so `data` outlives its use.
        unsafe { self.enqueue_write(buffer, offset, data, CL_TRUE) }
    }

    /// Reads, and waits for the data.
    #[inline]
    pub(super) fn read(
        &self,
        buffer: &Buffer,
        offset: usize,
        data: &mut [u8],
    ) -> Result<(), ClError> {
        // SAFETY: the call blocks, so `data` outlives its use.
        unsafe { self.enqueue_read(buffer, offset, data, CL_TRUE) }
    }

    /// Writes without waiting when `blocking` is false.
    ///
    /// # Safety
    /// `data` stays untouched until the queue has finished.
    #[inline]
    pub(super) unsafe fn enqueue_write(
        &self,
        buffer: &Buffer,
        offset: usize,
        data: &[u8],
        blocking: cl_bool,
    ) -> Result<(), ClError> {
        debug_assert!(offset + data.len() <= buffer.len_bytes);
        // SAFETY: live objects; the caller's contract for `data`; no wait list and no event.
        let status = unsafe {
            self.opencl.api.clEnqueueWriteBuffer(
                self.raw,
                buffer.raw,
                blocking,
                offset,
                data.len(),
                data.as_ptr().cast::<c_void>(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        check("clEnqueueWriteBuffer", status)
    }

    /// Reads without waiting when `blocking` is false.
    ///
    /// # Safety
    /// `data` stays untouched until the queue has finished.
    #[inline]
    pub(super) unsafe fn enqueue_read(
        &self,
        buffer: &Buffer,
        offset: usize,
        data: &mut [u8],
        blocking: cl_bool,
    ) -> Result<(), ClError> {
        debug_assert!(offset + data.len() <= buffer.len_bytes);
        // SAFETY: live objects; the caller's contract for `data`; no wait list and no event.
        let status = unsafe {
            self.opencl.api.clEnqueueReadBuffer(
                self.raw,
                buffer.raw,
                blocking,
                offset,
                data.len(),
                data.as_mut_ptr().cast::<c_void>(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        check("clEnqueueReadBuffer", status)
    }
}
