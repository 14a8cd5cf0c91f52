//! The power of NVIDIA GPUs, by NVML: the energy counter where the GPU has one, else the power of the moment.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

use anyhow::{Context, bail};
use libloading::Library;

use super::series::Sample;

/// Where NVIDIA's driver puts it.
const LIBRARY: &str = "libnvidia-ml.so.1";

type Init = unsafe extern "C" fn() -> c_int;
type Count = unsafe extern "C" fn(*mut c_uint) -> c_int;
type ByIndex = unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int;
type Energy = unsafe extern "C" fn(*mut c_void, *mut c_ulonglong) -> c_int;
type Power = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_int;
type Words = unsafe extern "C" fn(c_int) -> *const c_char;

/// GPUs of this machine.
pub(super) struct Nvml {
    library: Library,
    gpus: Vec<*mut c_void>,
    /// All of them count energy.
    counters: bool,
}

// SAFETY: NVML may be called from any thread, and its handles are not bound to one.
unsafe impl Send for Nvml {}

impl Nvml {
    /// One GPU, or all.
    pub(super) fn open(index: Option<u32>) -> anyhow::Result<Self> {
        // SAFETY: loading runs the vendor's initialisers, which is what asking for this source means.
        let library = unsafe { Library::new(LIBRARY) }.context("NVML cannot be loaded")?;
        let mut nvml = Self {
            library,
            gpus: Vec::new(),
            counters: true,
        };
        let init: Init = nvml.function("nvmlInit_v2")?;
        // SAFETY: the function of this name takes nothing.
        nvml.check("nvmlInit", unsafe { init() })?;
        let count_of: Count = nvml.function("nvmlDeviceGetCount_v2")?;
        let mut count = 0;
        // SAFETY: the count is written to a local.
        nvml.check("nvmlDeviceGetCount", unsafe { count_of(&raw mut count) })?;
        let wanted = match index {
            Some(index) if index >= count => bail!("there is no GPU {index}: NVML has {count}"),
            Some(index) => index..index + 1,
            None => 0..count,
        };
        let by_index: ByIndex = nvml.function("nvmlDeviceGetHandleByIndex_v2")?;
        for index in wanted {
            let mut gpu = ptr::null_mut();
            // SAFETY: the handle is written to a local.
            let status = unsafe { by_index(index, &raw mut gpu) };
            nvml.check("nvmlDeviceGetHandleByIndex", status)?;
            nvml.gpus.push(gpu);
        }
        if nvml.gpus.is_empty() {
            bail!("NVML has no GPU");
        }
        nvml.counters = nvml.joules().is_ok();
        Ok(nvml)
    }

    pub(super) fn sample(&mut self) -> anyhow::Result<Sample> {
        if self.counters {
            let total = self.joules()?;
            return Ok(Sample::Joules { total, range: None });
        }
        let read: Power = self.function("nvmlDeviceGetPowerUsage")?;
        let mut total = 0.0;
        for gpu in &self.gpus {
            let mut milliwatts = 0;
            // SAFETY: a handle of NVML's, and a local to write to.
            let status = unsafe { read(*gpu, &raw mut milliwatts) };
            self.check("nvmlDeviceGetPowerUsage", status)?;
            total += f64::from(milliwatts) * 1e-3;
        }
        Ok(Sample::Watts(total))
    }

    /// Energy since the driver was loaded.
    fn joules(&self) -> anyhow::Result<f64> {
        let read: Energy = self.function("nvmlDeviceGetTotalEnergyConsumption")?;
        let mut total = 0.0;
        for gpu in &self.gpus {
            let mut millijoules = 0;
            // SAFETY: a handle of NVML's, and a local to write to.
            let status = unsafe { read(*gpu, &raw mut millijoules) };
            self.check("nvmlDeviceGetTotalEnergyConsumption", status)?;
            total += millijoules as f64 * 1e-3;
        }
        Ok(total)
    }

    fn function<T: Copy>(&self, name: &str) -> anyhow::Result<T> {
        // SAFETY: each caller names the type that NVML's documentation gives this function.
        let found = unsafe { self.library.get::<T>(name) };
        Ok(*found.with_context(|| format!("{LIBRARY} lacks {name}"))?)
    }

    fn check(&self, call: &str, status: c_int) -> anyhow::Result<()> {
        if status == 0 {
            return Ok(());
        }
        let words = self.function::<Words>("nvmlErrorString").map(|words| {
            // SAFETY: takes any number, and gives a constant.
            let text = unsafe { words(status) };
            // SAFETY: NVML's texts end with NUL.
            let text = unsafe { std::ffi::CStr::from_ptr(text) };
            text.to_string_lossy().into_owned()
        });
        bail!("{call}: {} ({status})", words.unwrap_or_default())
    }
}
