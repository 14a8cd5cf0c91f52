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

/// The greatest of the handles that mean default streams.
const LAST_DEFAULT_STREAM: usize = 2;

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
    /// The one before it was reset or ended otherwise, which threads may still have current.
    before: Mutex<Option<Context>>,
    /// Flags for it.
    flags: AtomicI32,
    /// It was reset, from when on nothing is said of what its context maps until it has one.
    was_reset: AtomicBool,
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

    /// The thread's current context, or NULL.
    fn current(&self) -> Outcome<CUcontext> {
        let driver = self.start()?;
        let mut current = std::ptr::null_mut();
        call!(driver.cuCtxGetCurrent(&raw mut current));
        Ok(current)
    }

    /// The driver with a context that is current on this thread.
    pub(crate) fn enter(&self) -> Outcome<&NativeCuda> {
        let driver = self.start()?;
        let current = self.current()?;
        if current.is_null() {
            self.make_current(DEVICE.get())?;
        } else if let Some(device) = self.device_reset_under(current) {
            self.make_current(device)?;
        }
        self.code.load_managed(driver);
        Ok(driver)
    }

    /// The driver for a call in a stream, whose context does not become the thread's (seen with NVIDIA's library over driver 580.159).
    pub(crate) fn enter_for(&self, stream: cudaStream_t) -> Outcome<&NativeCuda> {
        // Default streams are those of the thread's context.
        if stream.addr() > LAST_DEFAULT_STREAM {
            self.start()
        } else {
            self.enter()
        }
    }

    /// The device whose primary context this was, where that has ended.
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
        if self.current()?.is_null() {
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

    /// Destroys what the process has on the thread's device. A context that the program made itself keeps what it has, and the device
    /// as well while such a one is current.
    pub(crate) fn reset(&self) -> Outcome {
        let ordinal = self.thread_device()?;
        let device = self.device(ordinal)?;
        let state = self.state(ordinal)?;
        let driver = self.start()?;
        let current = self.current()?;
        if self.is_programs_own(current, state, device)? {
            return Ok(());
        }
        let mut context = lock(&state.context);
        let held = context.take();
        // The program may hold it alone, and have it current.
        if let Some(before) = held.or((!current.is_null()).then_some(Context(current))) {
            *lock(&state.before) = Some(before);
            call!(driver.cuCtxSetCurrent(std::ptr::null_mut()));
        }
        if held.is_some() {
            release(driver, device);
        }
        call!(driver.cuDevicePrimaryCtxReset_v2(device));
        state.flags.store(0, Ordering::Relaxed);
        state.was_reset.store(true, Ordering::Relaxed);
        self.code.show_again();
        Ok(())
    }

    /// Whether the thread's current context is neither the device's primary one nor was it: the program made it.
    fn is_programs_own(
        &self,
        current: CUcontext,
        state: &Device,
        device: CUdevice,
    ) -> Outcome<bool> {
        let driver = self.start()?;
        let is_current = |context: &Mutex<Option<Context>>| {
            let context = lock(context);
            context.is_some_and(|context| context.0 == current)
        };
        if current.is_null() || is_current(&state.context) || is_current(&state.before) {
            return Ok(false);
        }
        // The program may have retained the primary one itself, which then lives.
        if !is_active(driver, device)? {
            return Ok(true);
        }
        let mut primary = std::ptr::null_mut();
        call!(driver.cuDevicePrimaryCtxRetain(&raw mut primary, device));
        release(driver, device);
        Ok(primary != current)
    }

    /// Forgets primary contexts that the program ended by the driver API, so that the next call which needs one starts it anew. Answers
    /// whether there were any.
    pub(crate) fn forget_ended(&self) -> bool {
        let Some(Ok(devices)) = self.devices.get() else {
            return false;
        };
        let devices = (0..).zip(devices);
        let ended = devices.filter(|(ordinal, state)| {
            let forgotten = self.forget_if_ended(*ordinal, state);
            forgotten.unwrap_or(false)
        });
        let is_any = ended.count() > 0;
        if is_any {
            self.code.show_again();
        }
        is_any
    }

    fn forget_if_ended(&self, ordinal: i32, state: &Device) -> Outcome<bool> {
        let device = self.device(ordinal)?;
        let driver = self.start()?;
        let mut context = lock(&state.context);
        if context.is_none() || is_active(driver, device)? {
            return Ok(false);
        }
        *lock(&state.before) = context.take();
        release(driver, device);
        state.was_reset.store(true, Ordering::Relaxed);
        Ok(true)
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

/// Whether a device's primary context lives.
fn is_active(driver: &NativeCuda, device: CUdevice) -> Outcome<bool> {
    let (mut flags, mut active) = (0, 0);
    call!(driver.cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active));
    Ok(active != 0)
}

/// Gives up a use of a device's primary context. A program that released more often than it retained has taken it already.
fn release(driver: &NativeCuda, device: CUdevice) {
    // SAFETY: a plain number.
    let _ = unsafe { driver.cuDevicePrimaryCtxRelease_v2(device) };
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
