//! The library: servers, the devices that they bring, and whose a handle is.

use std::collections::HashSet;
use std::ffi::c_char;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use towline_backend::nvml as wire;
use towline_backend::nvml::*;
use towline_client::environment;
use towline_client::nvml::Monitor;
use towline_wire::nvml::snapshot;

include!(concat!(env!("OUT_DIR"), "/nvml_library.rs"));

/// What NVML tells of the devices of every server that the environment names.
#[derive(Default)]
pub struct Library {
    /// How often it was initialised, less how often shut down.
    uses: AtomicU32,
    /// Held by the call that begins or ends a use, so that the servers are there for as long as there are uses.
    changing: Mutex<()>,
    servers: RwLock<Option<Arc<Servers>>>,
    /// Sets of events that live, by handle.
    pub(crate) event_sets: Mutex<HashSet<usize>>,
    pub(crate) next_event_set: AtomicU64,
}

/// The servers that answer.
#[derive(Default)]
pub(crate) struct Servers {
    pub(crate) devices: Vec<Device>,
    /// Of the oldest driver.
    pub(crate) driver_version: Vec<u8>,
    pub(crate) nvml_version: Vec<u8>,
    pub(crate) cuda_version: i32,
}

/// A device of a server.
pub(crate) struct Device {
    pub(crate) handle: wire::DeviceHandle,
    /// The server's place among those that the environment names: its PCI domain, as in CUDA.
    pub(crate) domain: u16,
    pub(crate) facts: snapshot::Device,
    pub(crate) monitor: Arc<Monitor>,
}

static PROCESS: AtomicPtr<Library> = AtomicPtr::new(std::ptr::null_mut());
/// Uses that a forked child has from its parent.
static INHERITED_USES: AtomicU32 = AtomicU32::new(0);

/// The process's library. It is never freed: calls of other threads may be under way when the process forks.
pub(crate) fn process() -> &'static Library {
    let known = PROCESS.load(Ordering::Acquire);
    // SAFETY: what is stored there was leaked below.
    if let Some(library) = unsafe { known.as_ref() } {
        return library;
    }
    let uses = AtomicU32::new(INHERITED_USES.load(Ordering::Relaxed));
    let fresh: &'static Library = Box::leak(Box::new(Library {
        uses,
        ..Library::default()
    }));
    let place = std::ptr::from_ref(fresh).cast_mut();
    let raced = PROCESS.compare_exchange(known, place, Ordering::AcqRel, Ordering::Acquire);
    match raced {
        Ok(_) => fresh,
        // SAFETY: another thread leaked and stored its own.
        Err(other) => unsafe { other.as_ref() }.unwrap_or(fresh),
    }
}

/// In a child after fork: its parent's connections are not its own, and locks may be held by threads that are gone. The child begins
/// anew, as initialised as its parent was. Does nothing that a child after fork must not.
#[cfg(unix)]
pub(crate) fn forked() {
    let parents = PROCESS.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: what is stored there was leaked.
    if let Some(library) = unsafe { parents.as_ref() } {
        INHERITED_USES.store(library.uses.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes an outcome to where the caller wants it.
///
/// # Safety
/// `target` is NULL or writable.
pub(crate) unsafe fn tell<T>(target: *mut T, outcome: Result<T, nvmlReturn_t>) -> nvmlReturn_t {
    match outcome {
        Err(NVML_ERROR_UNINITIALIZED) => NVML_ERROR_UNINITIALIZED,
        _ if target.is_null() => NVML_ERROR_INVALID_ARGUMENT,
        Err(status) => status,
        Ok(value) => {
            // SAFETY: the caller's contract.
            unsafe { target.write(value) };
            NVML_SUCCESS
        }
    }
}

/// Writes text with its NUL, where there is room for all of it.
///
/// # Safety
/// `target` is NULL or writable for `room` bytes.
pub(crate) unsafe fn tell_text(
    target: *mut c_char,
    room: u32,
    outcome: Result<Vec<u8>, nvmlReturn_t>,
) -> nvmlReturn_t {
    let mut text = match outcome {
        Ok(text) => text,
        Err(status) => return status,
    };
    text.push(0);
    if target.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if text.len() > room as usize {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller's contract; there is room for all of it.
    unsafe { crate::raw::fill(target.cast::<u8>(), text.len(), text.into_iter()) };
    NVML_SUCCESS
}

/// Writes a list and its length; the length alone where there is no room for all of it.
///
/// # Safety
/// `count` is NULL, or readable and writable; `list` is NULL or writable for what `count` says.
pub(crate) unsafe fn tell_list<T>(
    count: *mut u32,
    list: *mut T,
    outcome: Result<Vec<T>, nvmlReturn_t>,
) -> nvmlReturn_t {
    let values = match outcome {
        Ok(values) => values,
        Err(status) => return status,
    };
    if count.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: the caller's contract.
    let room = unsafe { count.read() } as usize;
    // SAFETY: as above.
    unsafe { count.write(values.len() as u32) };
    if values.is_empty() {
        return NVML_SUCCESS;
    }
    if room < values.len() {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    if list.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: the caller's contract; there is room for all of them.
    unsafe { crate::raw::fill(list, values.len(), values.into_iter()) };
    NVML_SUCCESS
}

impl Library {
    /// A library over what these servers tell, each with its place among those that were named. Initialised once.
    pub fn over(monitors: Vec<(u16, Arc<Monitor>)>) -> Self {
        let library = Self::default();
        library.uses.store(1, Ordering::Relaxed);
        library.replace(Some(Arc::new(Servers::of(monitors))));
        library
    }

    /// Begins a use: asks the servers if nobody uses it yet. `empty` allows that none answers.
    pub(crate) fn initialise(&self, empty: bool) -> nvmlReturn_t {
        let _one = lock(&self.changing);
        if self.uses.load(Ordering::Acquire) == 0 {
            let servers = from_environment();
            if servers.devices.is_empty() && !empty {
                return NVML_ERROR_DRIVER_NOT_LOADED;
            }
            self.replace(Some(Arc::new(servers)));
        }
        self.uses.fetch_add(1, Ordering::AcqRel);
        NVML_SUCCESS
    }

    /// Ends a use; the last one closes the connections.
    pub(crate) fn shut_down(&self) -> nvmlReturn_t {
        let _one = lock(&self.changing);
        match self.uses.load(Ordering::Acquire) {
            0 => return NVML_ERROR_UNINITIALIZED,
            1 => self.replace(None),
            _ => {}
        }
        self.uses.fetch_sub(1, Ordering::AcqRel);
        NVML_SUCCESS
    }

    fn replace(&self, servers: Option<Arc<Servers>>) {
        *self.servers.write().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    /// The servers, once the application has initialised the library.
    pub(crate) fn ready(&self) -> Result<Arc<Servers>, nvmlReturn_t> {
        if self.uses.load(Ordering::Acquire) == 0 {
            return Err(NVML_ERROR_UNINITIALIZED);
        }
        let known = self
            .servers
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(servers) = known {
            return Ok(servers);
        }
        // A child after fork, whose parent had initialised it.
        let servers = Arc::new(from_environment());
        self.replace(Some(Arc::clone(&servers)));
        Ok(servers)
    }

    /// Whose a handle is.
    pub(crate) fn device<T>(
        &self,
        device: nvmlDevice_t,
        tell: impl FnOnce(&Device) -> Result<T, nvmlReturn_t>,
    ) -> Result<T, nvmlReturn_t> {
        let servers = self.ready()?;
        tell(servers.device(device)?)
    }

    /// The server that a handle's device is on.
    pub(crate) fn session_for(&self, handle: u64) -> Result<Asking, nvmlReturn_t> {
        let handle = wire::DeviceHandle(handle).to_raw();
        let monitor = self.device(handle, |device| Ok(Arc::clone(&device.monitor)))?;
        Ok(Asking { monitor })
    }
}

/// A call on its way.
pub(crate) struct Asking {
    pub(crate) monitor: Arc<Monitor>,
}

impl Asking {
    pub(crate) fn call<'a, R: Request<'a>>(&self, request: &R) -> Result<Vec<u8>, nvmlReturn_t> {
        self.monitor.call(request)
    }

    pub(crate) fn malformed(&self) -> nvmlReturn_t {
        log::error!("{}: an answer that does not decode", self.monitor.server());
        NVML_ERROR_UNKNOWN
    }
}

impl Servers {
    fn of(monitors: Vec<(u16, Arc<Monitor>)>) -> Self {
        let mut servers = Self::default();
        for (domain, monitor) in monitors {
            let snapshot = monitor.snapshot();
            // Programs are told of what every server has.
            servers.driver_version = older(&servers.driver_version, &snapshot.driver_version);
            servers.nvml_version = older(&servers.nvml_version, &snapshot.nvml_version);
            servers.cuda_version = match servers.cuda_version {
                0 => snapshot.cuda_version,
                version => version.min(snapshot.cuda_version),
            };
            for facts in &snapshot.devices {
                servers.devices.push(Device {
                    handle: wire::DeviceHandle::of(domain, facts.number),
                    domain,
                    facts: facts.clone(),
                    monitor: Arc::clone(&monitor),
                });
            }
        }
        servers
    }

    /// The device of a handle.
    pub(crate) fn device(&self, device: nvmlDevice_t) -> Result<&Device, nvmlReturn_t> {
        let handle = wire::DeviceHandle::from_raw(device);
        let found = self.devices.iter().find(|known| known.handle == handle);
        found.ok_or(NVML_ERROR_INVALID_ARGUMENT)
    }
}

/// The older of two versions, number by number; one that is empty is none.
fn older(one: &[u8], other: &[u8]) -> Vec<u8> {
    let numbers = |text: &[u8]| -> Vec<u64> {
        let text = String::from_utf8_lossy(text).into_owned();
        text.split('.')
            .map(|part| part.parse().unwrap_or(0))
            .collect()
    };
    let first = one.is_empty() || (!other.is_empty() && numbers(other) < numbers(one));
    if first { other.to_vec() } else { one.to_vec() }
}

fn from_environment() -> Servers {
    let mut monitors = Vec::new();
    let mut named = false;
    for (place, monitor) in (0..).zip(environment::monitors()) {
        named = true;
        match monitor {
            Ok(monitor) => monitors.push((place, monitor)),
            Err(unreachable) => {
                let mut text = unreachable.to_string();
                let mut source = std::error::Error::source(&unreachable);
                while let Some(cause) = source.and_then(std::error::Error::source) {
                    text = format!("{text}: {cause}");
                    source = Some(cause);
                }
                log::warn!("{text}");
            }
        }
    }
    if !named {
        log::error!(
            "no NVML device: no server is named; run the program with `towline run --server HOST`, or set {}",
            environment::SERVERS
        );
    }
    Servers::of(monitors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_version_is_told() {
        assert_eq!(older(b"580.159", b"99.1"), b"99.1");
        assert_eq!(older(b"580.65.06", b"580.159"), b"580.65.06");
        assert_eq!(older(b"", b"580.159"), b"580.159");
        assert_eq!(older(b"580.159", b""), b"580.159");
    }

    #[test]
    fn nothing_is_told_before_the_start() {
        let library = Library::default();
        assert_eq!(library.ready().err(), Some(NVML_ERROR_UNINITIALIZED));
        assert_eq!(library.shut_down(), NVML_ERROR_UNINITIALIZED);
    }

    #[test]
    fn each_use_ends_by_itself() {
        let library = Library::over(Vec::new());
        assert_eq!(library.initialise(false), NVML_SUCCESS);
        assert_eq!(library.shut_down(), NVML_SUCCESS);
        assert!(library.ready().is_ok());
        assert_eq!(library.shut_down(), NVML_SUCCESS);
        assert_eq!(library.ready().err(), Some(NVML_ERROR_UNINITIALIZED));
    }
}
