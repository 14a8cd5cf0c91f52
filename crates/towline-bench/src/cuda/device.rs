//! One device through the driver interface, loaded by name: as much of it as the measurements need.
//!
//! The null device takes no PTX but an image of its own with the same kernel, so that a run works where there is no GPU. Used in this
//! process it has only what a worker calls, which is less than programs do: copies that wait are made of ones that do not.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use anyhow::Context as _;
use towline_backend::cuda::{
    CUDA_SUCCESS, CUcontext, CUdevice, CUdeviceptr, CUfunction, CUgraph, CUgraphExec, CUmodule,
    CUresult, CUstream, CudaApi, NativeCuda, NullCuda,
};

use crate::report::Device;

/// The kernel's source for GPUs.
const PTX: &str = include_str!("kernels.ptx");
/// The same for the null device.
const NULL_IMAGE: &str = "towline null image\nkernel add_one\n";
/// Name of a driver that is not loaded but built in: the null device.
pub(super) const NULL: &str = "null";
/// Streams that are ordered with the default stream, on which copies that wait run: such a copy from pageable memory may return before
/// its bytes have arrived.
const ORDERED: u32 = 0;
/// Captures that forbid nothing to other threads.
const RELAXED: u32 = 2;

/// What a call answered.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {name} ({status})")]
pub(super) struct CudaError {
    call: &'static str,
    status: CUresult,
    name: String,
}

pub(super) type Result<T> = std::result::Result<T, CudaError>;

/// A driver, its first device or another, and that device's primary context, which is current.
pub(super) struct Cuda {
    api: Box<dyn CudaApi>,
    device: CUdevice,
    stream: CUstream,
    /// The null device, in this process.
    null: bool,
}

/// Makes a call. What it reads and writes are locals of the caller, or what values here own; handles come from such values.
macro_rules! call {
    ($api:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let api: &dyn CudaApi = &*$api;
        // SAFETY: as the macro says of its uses.
        let status = unsafe { api.$name($($argument),*) };
        check(api, stringify!($name), status)
    }};
}

#[inline]
fn check(api: &dyn CudaApi, call: &'static str, status: CUresult) -> Result<()> {
    if status == CUDA_SUCCESS {
        return Ok(());
    }
    Err(CudaError {
        call,
        status,
        name: error_name(api, status),
    })
}

#[cold]
fn error_name(api: &dyn CudaApi, status: CUresult) -> String {
    let mut name: *const c_char = ptr::null();
    // SAFETY: the name is written to a local.
    let found = unsafe { api.cuGetErrorName(status, &raw mut name) };
    if found != CUDA_SUCCESS || name.is_null() {
        return "an unknown error".into();
    }
    // SAFETY: the driver's names are constants that end with NUL.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_string_lossy().into_owned()
}

impl Cuda {
    /// Loads a driver by name or path, and starts it.
    pub(super) fn open(driver: &str, index: usize) -> anyhow::Result<Self> {
        let api: Box<dyn CudaApi> = match driver {
            NULL => Box::new(NullCuda::new(1)),
            name => Box::new(NativeCuda::from_any_library(name)?),
        };
        call!(api, cuInit(0))?;
        let mut device: CUdevice = Default::default();
        let mut count = 0_i32;
        call!(api, cuDeviceGetCount(&raw mut count))?;
        let index = i32::try_from(index)
            .ok()
            .filter(|index| *index < count)
            .with_context(|| format!("there is no device {index}: the driver has {count}"))?;
        call!(api, cuDeviceGet(&raw mut device, index))?;
        Ok(Self {
            api,
            device,
            stream: ptr::null_mut(),
            null: driver == NULL,
        })
    }

    /// Makes the primary context current, and a stream.
    pub(super) fn start(&mut self) -> Result<()> {
        let mut context: CUcontext = ptr::null_mut();
        call!(
            self.api,
            cuDevicePrimaryCtxRetain(&raw mut context, self.device)
        )?;
        call!(self.api, cuCtxSetCurrent(context))?;
        let mut stream: CUstream = ptr::null_mut();
        call!(self.api, cuStreamCreate(&raw mut stream, ORDERED))?;
        self.stream = stream;
        Ok(())
    }

    pub(super) fn facts(&self) -> Device {
        let mut name = [0_u8; 256];
        let mut version = 0_i32;
        let length = name.len() as i32 - 1;
        let named = call!(
            self.api,
            cuDeviceGetName(name.as_mut_ptr().cast(), length, self.device)
        );
        let versioned = call!(self.api, cuDriverGetVersion(&raw mut version));
        let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Device {
            name: named.map_or(String::new(), |()| {
                String::from_utf8_lossy(text).into_owned()
            }),
            platform: "CUDA".into(),
            driver: versioned.map_or(String::new(), |()| {
                format!("{}.{}", version / 1000, version % 1000 / 10)
            }),
            version: String::new(),
            gpu: !String::from_utf8_lossy(text)
                .to_lowercase()
                .contains("null"),
            double: true,
        }
    }

    /// Bytes of memory that are free.
    pub(super) fn free_bytes(&self) -> Result<usize> {
        let (mut free, mut total) = (0, 0);
        call!(self.api, cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        Ok(free)
    }

    /// Loads the kernel. Images of different salts are different to every cache.
    pub(super) fn kernel(&self, salt: u64) -> Result<Kernel> {
        let load = |text: &str| -> Result<CUmodule> {
            let image = std::ffi::CString::new(text).unwrap_or_default();
            let mut module: CUmodule = ptr::null_mut();
            call!(
                self.api,
                cuModuleLoadDataEx(
                    &raw mut module,
                    image.as_ptr().cast(),
                    0,
                    ptr::null_mut(),
                    ptr::null_mut()
                )
            )?;
            Ok(module)
        };
        let salted = format!("{PTX}\n// {salt:016x}\n.visible .global .u32 salt_{salt:x};\n");
        // Only the null device takes the second; on others the first one's error is the one to tell.
        let module = load(&salted).or_else(|error| {
            load(&format!("{NULL_IMAGE}global salt_{salt:x} 4\n")).map_err(|_| error)
        })?;
        let mut function: CUfunction = ptr::null_mut();
        if self.null {
            call!(
                self.api,
                cuModuleEnumerateFunctions(&raw mut function, 1, module)
            )?;
        } else {
            call!(
                self.api,
                cuModuleGetFunction(&raw mut function, module, c"add_one".as_ptr())
            )?;
        }
        Ok(Kernel { function })
    }

    #[inline]
    pub(super) fn launch(&self, kernel: &Kernel, address: CUdeviceptr, count: u32) -> Result<()> {
        let (mut address, mut count) = (address, count);
        let mut parameters: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut count).cast()];
        call!(
            self.api,
            cuLaunchKernel(
                kernel.function,
                count.div_ceil(128),
                1,
                1,
                count.min(128),
                1,
                1,
                0,
                self.stream,
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        )
    }

    pub(super) fn finish(&self) -> Result<()> {
        call!(self.api, cuStreamSynchronize(self.stream))
    }

    /// Waits for every stream.
    pub(super) fn finish_all(&self) -> Result<()> {
        call!(self.api, cuCtxSynchronize())
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<CUdeviceptr> {
        let mut address: CUdeviceptr = Default::default();
        call!(self.api, cuMemAlloc_v2(&raw mut address, bytes))?;
        Ok(address)
    }

    pub(super) fn free(&self, address: CUdeviceptr) -> Result<()> {
        call!(self.api, cuMemFree_v2(address))
    }

    /// A copy that waits.
    pub(super) fn write(&self, to: CUdeviceptr, from: &[u8]) -> Result<()> {
        if self.null {
            call!(
                self.api,
                cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.stream)
            )?;
            return self.finish();
        }
        call!(
            self.api,
            cuMemcpyHtoD_v2(to, from.as_ptr().cast(), from.len())
        )
    }

    /// A copy that waits.
    pub(super) fn read(&self, to: &mut [u8], from: CUdeviceptr) -> Result<()> {
        if self.null {
            call!(
                self.api,
                cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), self.stream)
            )?;
            return self.finish();
        }
        call!(
            self.api,
            cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from, to.len())
        )
    }

    /// A copy that does not wait, from memory that stays as it is until the stream has finished.
    pub(super) fn start_write(&self, to: CUdeviceptr, from: &Pinned) -> Result<()> {
        call!(
            self.api,
            cuMemcpyHtoDAsync_v2(to, from.address.cast_const(), from.bytes, self.stream)
        )
    }

    /// A copy that does not wait, into memory that nobody touches until the stream has finished.
    pub(super) fn start_read(&self, to: &Pinned, from: CUdeviceptr) -> Result<()> {
        call!(
            self.api,
            cuMemcpyDtoHAsync_v2(to.address, from, to.bytes, self.stream)
        )
    }

    pub(super) fn pin(&self, bytes: usize) -> Result<Pinned> {
        let mut address = ptr::null_mut();
        call!(self.api, cuMemHostAlloc(&raw mut address, bytes, 0))?;
        Ok(Pinned { address, bytes })
    }

    pub(super) fn unpin(&self, memory: Pinned) -> Result<()> {
        call!(self.api, cuMemFreeHost(memory.address))
    }

    /// A graph of what `record` does on the stream.
    pub(super) fn capture(&self, record: impl FnOnce() -> Result<()>) -> Result<CUgraphExec> {
        call!(self.api, cuStreamBeginCapture_v2(self.stream, RELAXED))?;
        let recorded = record();
        let mut graph: CUgraph = ptr::null_mut();
        call!(self.api, cuStreamEndCapture(self.stream, &raw mut graph))?;
        recorded?;
        let mut executable: CUgraphExec = ptr::null_mut();
        call!(
            self.api,
            cuGraphInstantiateWithFlags(&raw mut executable, graph, 0)
        )?;
        call!(self.api, cuGraphDestroy(graph))?;
        Ok(executable)
    }

    #[inline]
    pub(super) fn replay(&self, graph: CUgraphExec) -> Result<()> {
        call!(self.api, cuGraphLaunch(graph, self.stream))
    }
}

/// The kernel `add_one`.
pub(super) struct Kernel {
    function: CUfunction,
}

/// Pinned host memory. It is given back by hand, since that can fail.
pub(super) struct Pinned {
    address: *mut c_void,
    bytes: usize,
}

impl Pinned {
    /// The bytes; nothing may be under way from or into them.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the driver gave so many bytes, which this value owns alone, and no copy is under way.
        unsafe { std::slice::from_raw_parts_mut(self.address.cast(), self.bytes) }
    }
}
