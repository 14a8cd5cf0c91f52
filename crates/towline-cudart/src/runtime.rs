//! The driver, its devices and their primary contexts, and which of them the calling thread uses.
//!
//! Nothing starts before the first call that needs it. A thread that has a context of the driver API current uses that one; any other
//! gets the primary context of its device.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use towline_backend::cuda::*;

use crate::call;
use crate::code::Code;
use crate::types::*;

thread_local! {
    /// The device that the thread chose; 0 for one that did not.
    static DEVICE: Cell<i32> = const { Cell::new(0) };
}

/// What a call ends with when it does not succeed.
pub(crate) type Outcome<T = ()> = Result<T, cudaError_t>;

/// The driver's status as an outcome. Both sides number their errors alike.
pub(crate) fn check(status: CUresult) -> Outcome {
    if status == CUDA_SUCCESS {
        Ok(())
    } else {
        Err(status)
    }
}

/// An outcome as what the C function returns.
pub(crate) fn status(call: impl FnOnce() -> Outcome) -> cudaError_t {
    match call() {
        Ok(()) => cudaSuccess,
        Err(error) => error,
    }
}

/// A lock whose holder may have panicked: what these locks guard is whole after every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One device.
#[derive(Default)]
struct Device {
    /// Its primary context, once retained.
    context: Mutex<Option<Context>>,
    /// The one before it was reset, which other threads may still have current.
    before: Mutex<Option<Context>>,
    /// Flags for it.
    flags: AtomicI32,
    /// It was reset, from when on nothing is said of what its context maps until it has one.
    was_reset: AtomicBool,
    /// The error after which its context is of no use any more.
    sticky: AtomicI32,
}

/// A context of the driver, which any thread may make current.
#[derive(Clone, Copy)]
struct Context(CUcontext);

// SAFETY: a context is a name to the driver, which does its own locking.
unsafe impl Send for Context {}

/// The runtime of one process.
pub struct Runtime {
    major: u32,
    /// The driver's library, which may not have been initialised.
    driver: OnceLock<Outcome<NativeCuda>>,
    /// The devices, once it has been.
    devices: OnceLock<Outcome<Vec<Device>>>,
    pub(crate) code: Code,
}

impl Runtime {
    /// The runtime of a major version. It loads nothing before it is used.
    pub(crate) fn new(major: u32) -> Self {
        Self {
            major,
            driver: OnceLock::new(),
            devices: OnceLock::new(),
            code: Code::default(),
        }
    }

    /// The major version of the library that this is.
    pub(crate) fn major(&self) -> u32 {
        self.major
    }

    /// The version whose interface this library has.
    pub(crate) fn version(&self) -> i32 {
        match self.major {
            12 => 12_090,
            _ => 13_000,
        }
    }

    fn driver(&self) -> Outcome<&NativeCuda> {
        let open = || {
            NativeCuda::from_any_library("libcuda.so.1").map_err(|error| {
                log::warn!("{error}; run the program with `towline run`, or install a driver");
                cudaErrorInsufficientDriver
            })
        };
        self.driver
            .get_or_init(open)
            .as_ref()
            .map_err(|error| *error)
    }

    fn devices(&self) -> Outcome<&[Device]> {
        let devices = self.devices.get_or_init(|| {
            let devices = begin(self.driver()?, self.version())?;
            let count = devices.len();
            log::info!("CUDA runtime {}: {count} devices", self.version());
            Ok(devices)
        });
        devices.as_deref().map_err(|error| *error)
    }

    /// The driver, whatever is current.
    pub(crate) fn start(&self) -> Outcome<&NativeCuda> {
        self.devices()?;
        self.driver()
    }

    /// The driver with a context that is current on this thread.
    pub(crate) fn enter(&self) -> Outcome<&NativeCuda> {
        let driver = self.start()?;
        let mut current = std::ptr::null_mut();
        call!(driver.cuCtxGetCurrent(&raw mut current));
        if current.is_null() {
            self.make_current(DEVICE.get())?;
        } else if let Some(device) = self.device_reset_under(current) {
            self.make_current(device)?;
        }
        self.code.load_managed(driver);
        Ok(driver)
    }

    /// The device whose primary context this was, where another thread has reset it.
    fn device_reset_under(&self, context: CUcontext) -> Option<i32> {
        let is = |device: &&Device| {
            let before = lock(&device.before).as_ref().map(|before| before.0);
            before == Some(context) && lock(&device.context).is_none()
        };
        let all = (0..).zip(self.devices().ok()?);
        let mut reset = all.filter(|(_, device)| device.was_reset.load(Ordering::Relaxed));
        reset
            .find(|(_, device)| is(device))
            .map(|(ordinal, _)| ordinal)
    }

    /// How many devices there are.
    pub(crate) fn device_count(&self) -> Outcome<i32> {
        i32::try_from(self.devices()?.len()).map_err(|_| cudaErrorUnknown)
    }

    /// The driver's handle of a device.
    pub(crate) fn device(&self, ordinal: i32) -> Outcome<CUdevice> {
        self.state(ordinal)?;
        let driver = self.driver()?;
        let mut device = 0;
        call!(driver.cuDeviceGet(&raw mut device, ordinal));
        Ok(device)
    }

    fn state(&self, ordinal: i32) -> Outcome<&Device> {
        let devices = self.devices()?;
        let device = usize::try_from(ordinal).ok().and_then(|at| devices.get(at));
        device.ok_or(cudaErrorInvalidDevice)
    }

    /// The device of the calling thread: that of its current context, else the one that it chose.
    pub(crate) fn thread_device(&self) -> Outcome<i32> {
        let driver = self.start()?;
        let mut current = std::ptr::null_mut();
        call!(driver.cuCtxGetCurrent(&raw mut current));
        if current.is_null() {
            return Ok(DEVICE.get());
        }
        let mut device = 0;
        call!(driver.cuCtxGetDevice(&raw mut device));
        // A device's handle is its number, with every driver there is; a foreign one would still be told by its number.
        Ok(device)
    }

    /// Chooses the calling thread's device without starting it.
    pub(crate) fn choose(&self, ordinal: i32) -> Outcome {
        self.state(ordinal)?;
        DEVICE.set(ordinal);
        Ok(())
    }

    /// Makes a device's primary context current on this thread.
    pub(crate) fn make_current(&self, ordinal: i32) -> Outcome {
        let context = self.primary(ordinal)?;
        let driver = self.start()?;
        call!(driver.cuCtxSetCurrent(context));
        Ok(())
    }

    /// The primary context of a device.
    pub(crate) fn primary(&self, ordinal: i32) -> Outcome<CUcontext> {
        let device = self.device(ordinal)?;
        let state = self.state(ordinal)?;
        let driver = self.start()?;
        let mut context = lock(&state.context);
        if let Some(Context(context)) = *context {
            return Ok(context);
        }
        let flags = state.flags.load(Ordering::Relaxed);
        if flags != 0 {
            // Another user of the context may have set its flags, and then they stay.
            // SAFETY: plain numbers.
            let _ = unsafe { driver.cuDevicePrimaryCtxSetFlags_v2(device, flags.cast_unsigned()) };
        }
        let mut retained = std::ptr::null_mut();
        call!(driver.cuDevicePrimaryCtxRetain(&raw mut retained, device));
        *context = Some(Context(retained));
        Ok(retained)
    }

    /// Flags for a device's primary context, from when it starts, or now.
    pub(crate) fn set_flags(&self, ordinal: i32, flags: u32) -> Outcome {
        let device = self.device(ordinal)?;
        let state = self.state(ordinal)?;
        state.flags.store(flags.cast_signed(), Ordering::Relaxed);
        let driver = self.start()?;
        if lock(&state.context).is_some() {
            call!(driver.cuDevicePrimaryCtxSetFlags_v2(device, flags));
        }
        Ok(())
    }

    /// Whether a device was reset.
    pub(crate) fn was_reset(&self, ordinal: i32) -> Outcome<bool> {
        Ok(self.state(ordinal)?.was_reset.load(Ordering::Relaxed))
    }

    /// Destroys what the process has on the thread's device.
    pub(crate) fn reset(&self) -> Outcome {
        let ordinal = self.thread_device()?;
        let device = self.device(ordinal)?;
        let state = self.state(ordinal)?;
        let driver = self.start()?;
        let mut context = lock(&state.context);
        if let Some(before) = context.take() {
            *lock(&state.before) = Some(before);
            call!(driver.cuCtxSetCurrent(std::ptr::null_mut()));
            call!(driver.cuDevicePrimaryCtxRelease_v2(device));
        }
        call!(driver.cuDevicePrimaryCtxReset_v2(device));
        state.flags.store(0, Ordering::Relaxed);
        state.was_reset.store(true, Ordering::Relaxed);
        self.code.show_again();
        state.sticky.store(cudaSuccess, Ordering::Relaxed);
        Ok(())
    }

    /// Takes note of an error after which a device's context is of no use.
    pub(crate) fn note(&self, error: cudaError_t) {
        if !is_sticky(error) {
            return;
        }
        // An error of this kind comes from a driver that has started; asking it again would only tell the same.
        if let Some(Ok(devices)) = self.devices.get() {
            let device = usize::try_from(DEVICE.get()).ok();
            if let Some(device) = device.and_then(|at| devices.get(at)) {
                device.sticky.store(error, Ordering::Relaxed);
            }
        }
    }

    /// The error after which the thread's device is of no use, if there was one.
    pub(crate) fn sticky(&self) -> cudaError_t {
        match self.devices.get() {
            Some(Ok(_)) => self
                .state(DEVICE.get())
                .map_or(cudaSuccess, |device| device.sticky.load(Ordering::Relaxed)),
            _ => cudaSuccess,
        }
    }

    /// The version of CUDA that the driver supports; 0 without a driver. Initialises nothing: a program may fork after it.
    pub(crate) fn driver_version(&self) -> i32 {
        self.driver().and_then(version_of).unwrap_or(0)
    }

    /// Answers a call that this library does not have, and says so once in the log.
    pub(crate) fn refuse(&self, name: &'static str) -> cudaError_t {
        log::warn!(
            "{name} is not supported by Towline's CUDA runtime; docs/coverage/cudart.md lists what is"
        );
        cudaErrorNotSupported
    }
}

/// Errors that a context does not recover from.
fn is_sticky(error: cudaError_t) -> bool {
    matches!(
        error,
        cudaErrorECCUncorrectable
            | cudaErrorIllegalAddress
            | cudaErrorLaunchTimeout
            | cudaErrorAssert
            | cudaErrorHardwareStackError
            | cudaErrorIllegalInstruction
            | cudaErrorMisalignedAddress
            | cudaErrorInvalidAddressSpace
            | cudaErrorInvalidPc
            | cudaErrorLaunchFailure
    )
}

fn version_of(driver: &NativeCuda) -> Outcome<i32> {
    let mut version = 0;
    call!(driver.cuDriverGetVersion(&raw mut version));
    Ok(version)
}

/// Initialises the driver.
fn begin(driver: &NativeCuda, wanted: i32) -> Outcome<Vec<Device>> {
    let version = version_of(driver);
    call!(driver.cuInit(0));
    let version = version?;
    // Within a major version an older driver will do, as with NVIDIA's runtime.
    if version < wanted / 1000 * 1000 {
        log::warn!("the driver is of CUDA {version}, this runtime of {wanted}");
        return Err(cudaErrorInsufficientDriver);
    }
    let mut count = 0;
    call!(driver.cuDeviceGetCount(&raw mut count));
    if count <= 0 {
        return Err(cudaErrorNoDevice);
    }
    Ok((0..count).map(|_| Device::default()).collect())
}
