//! Device code that a program registers before `main`: fat binaries, and the kernels and variables in them by their host shadows.
//!
//! Registering notes names only. A binary is given to the driver when the first of its kernels or variables is used, as one library for
//! all devices: which of its images suits a device, and where a variable lies there, is the driver's to say.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use towline_backend::cuda::*;

use crate::call;
use crate::runtime::{Outcome, lock};
use crate::types::*;

/// What a wrapper of a fat binary begins with.
const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// The longest name of a kernel or variable; C++ makes long ones.
const NAME_LIMIT: usize = 1 << 20;

/// The first words of what `__cudaRegisterFatBinary` is given.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const c_void,
}

/// One registered binary.
struct Binary {
    /// Address of the program's wrapper; `Err` where that is none.
    image: Outcome<usize>,
    library: Mutex<Library>,
}

/// The library of a binary.
#[derive(Default)]
struct Library {
    /// The driver's library, or why there never will be one.
    made: Option<Outcome<usize>>,
    /// Devices that it has no code for.
    lacking: Vec<CUdevice>,
}

/// A kernel and the function that stands for it in host code.
pub(crate) struct Kernel {
    binary: Arc<Binary>,
    name: CString,
    found: Mutex<Option<usize>>,
}

/// A variable of the device and its shadow in host code.
pub(crate) struct Variable {
    binary: Arc<Binary>,
    name: CString,
    pub(crate) size: usize,
    /// Where the program keeps the address of a managed variable.
    pointer: Option<usize>,
    /// The reason that it was last not placed, if it is managed.
    failed: AtomicI32,
    /// Its address, if it is managed: that is how host code names it.
    shown: AtomicU64,
}

/// What a program says of a variable.
pub(crate) struct Shadow {
    pub(crate) address: usize,
    pub(crate) size: usize,
    /// Whether `address` is that of the pointer to a managed variable.
    pub(crate) managed: bool,
}

/// Registered by addresses of the host. Where two objects share one, as with templates, what came first is meant as long as it is there.
type ByHost<T> = HashMap<usize, Vec<Arc<T>>>;

#[derive(Default)]
struct Registered {
    /// By handle.
    binaries: HashMap<usize, Arc<Binary>>,
    /// By the address of the host's function.
    kernels: ByHost<Kernel>,
    /// The same, by the handles that launches come with.
    handles: HashMap<usize, Arc<Kernel>>,
    /// By the address of the host's shadow.
    variables: ByHost<Variable>,
    /// Kernels of the driver that the program got from this library, which it may pass where a function is asked for.
    known: HashSet<usize>,
}

/// All that is registered.
#[derive(Default)]
pub(crate) struct Code {
    registered: RwLock<Registered>,
    /// Counts the times that managed variables came to wait for their addresses.
    waiting: AtomicU64,
    /// That count when they were placed last; locked while they are placed.
    placed: Mutex<u64>,
    /// The same number, for those who need not wait.
    seen: AtomicU64,
}

/// The one that an address of the host means.
fn meant<T>(by_host: &ByHost<T>, host: usize) -> Option<&Arc<T>> {
    by_host.get(&host)?.first()
}

/// Forgets what is of a binary.
fn drop_of<T>(by_host: &mut ByHost<T>, is_of: impl Fn(&T) -> bool) {
    by_host.retain(|_, all| {
        all.retain(|one| !is_of(one));
        !all.is_empty()
    });
}

impl Code {
    fn read(&self) -> RwLockReadGuard<'_, Registered> {
        self.registered
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Registered> {
        let registered = self.registered.write();
        registered.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a binary and answers its handle.
    ///
    /// # Safety
    /// `wrapper` is NULL or points to a wrapper that stays until the binary is forgotten.
    pub(crate) unsafe fn register(&self, wrapper: *const c_void) -> usize {
        let image = if wrapper.is_null() {
            Err(cudaErrorInvalidKernelImage)
        } else {
            // SAFETY: the caller's contract. Compilers align it; nothing relies on that.
            let seen = unsafe { wrapper.cast::<Wrapper>().read_unaligned() };
            verdict(seen).map(|()| wrapper.expose_provenance())
        };
        let binary = Arc::new(Binary {
            image,
            library: Mutex::default(),
        });
        let handle = Arc::as_ptr(&binary).addr();
        self.write().binaries.insert(handle, binary);
        handle
    }

    /// Forgets a binary with its kernels and variables, and answers the library that it became.
    pub(crate) fn forget(&self, handle: usize) -> Option<CUlibrary> {
        let mut registered = self.write();
        let binary = registered.binaries.remove(&handle)?;
        let is_of = |other: &Arc<Binary>| Arc::ptr_eq(other, &binary);
        drop_of(&mut registered.kernels, |kernel| is_of(&kernel.binary));
        drop_of(&mut registered.variables, |one| is_of(&one.binary));
        registered
            .handles
            .retain(|_, kernel| !is_of(&kernel.binary));
        self.wait_for_addresses(&registered);
        // The image goes, and nobody who found something of it before shall load it now.
        let gone = Some(Err(cudaErrorInvalidResourceHandle));
        let library = std::mem::replace(&mut lock(&binary.library).made, gone);
        let library = library.and_then(Result::ok);
        library.map(std::ptr::with_exposed_provenance_mut)
    }

    /// Ties a kernel to a function of the host.
    pub(crate) fn add_kernel(&self, handle: usize, host: usize, name: CString) {
        let mut registered = self.write();
        let Some(binary) = registered.binaries.get(&handle).cloned() else {
            log::warn!("kernel {name:?} is registered for code that is not");
            return;
        };
        let kernel = Arc::new(Kernel {
            binary,
            name,
            found: Mutex::new(None),
        });
        let own = Arc::as_ptr(&kernel).addr();
        registered.handles.insert(own, Arc::clone(&kernel));
        registered.kernels.entry(host).or_default().push(kernel);
    }

    /// Ties a variable to its shadow.
    pub(crate) fn add_variable(&self, handle: usize, shadow: &Shadow, name: CString) {
        let mut registered = self.write();
        let Some(binary) = registered.binaries.get(&handle).cloned() else {
            log::warn!("variable {name:?} is registered for code that is not");
            return;
        };
        let variable = Variable {
            binary,
            name,
            size: shadow.size,
            pointer: shadow.managed.then_some(shadow.address),
            failed: AtomicI32::new(cudaSuccess),
            shown: AtomicU64::new(0),
        };
        let there = registered.variables.entry(shadow.address).or_default();
        there.push(Arc::new(variable));
        if shadow.managed {
            self.waiting.fetch_add(1, Ordering::Release);
        }
    }

    /// The name by which a launch asks for a function's kernel.
    pub(crate) fn handle(&self, host: usize) -> Option<usize> {
        let registered = self.read();
        let kernel = meant(&registered.kernels, host)?;
        Some(Arc::as_ptr(kernel).addr())
    }

    /// Takes note of a kernel that the program got from the driver.
    pub(crate) fn know(&self, kernel: CUkernel) {
        if !kernel.is_null() {
            self.write().known.insert(kernel.expose_provenance());
        }
    }

    /// The driver's kernel for what a program passes as one: a function of the host, a handle, or the driver's kernel itself, which the
    /// program may have from this library or from the driver.
    pub(crate) fn kernel(&self, driver: &NativeCuda, passed: usize) -> Outcome<CUkernel> {
        let registered = self.read();
        let kernel = meant(&registered.kernels, passed);
        let kernel = kernel.or_else(|| registered.handles.get(&passed)).cloned();
        let is_known = registered.known.contains(&passed);
        drop(registered);
        match kernel {
            Some(kernel) => kernel.find(driver),
            None if is_known => Ok(std::ptr::with_exposed_provenance_mut(passed)),
            None => self.drivers(driver, passed),
        }
    }

    /// A kernel that the program got from the driver. A vendor's driver follows whatever it is given: it is not asked about functions of the
    /// program.
    fn drivers(&self, driver: &NativeCuda, passed: usize) -> Outcome<CUkernel> {
        if passed == 0 || is_in_object(passed) {
            return Err(cudaErrorInvalidDeviceFunction);
        }
        let kernel = std::ptr::with_exposed_provenance_mut(passed);
        let mut library = std::ptr::null_mut();
        // SAFETY: a place to write to; what is no function of the program's is the driver's kernel by the contract of the call.
        let found = unsafe { driver.cuKernelGetLibrary(&raw mut library, kernel) };
        if found != CUDA_SUCCESS {
            return Err(cudaErrorInvalidDeviceFunction);
        }
        self.know(kernel);
        Ok(kernel)
    }

    /// Whether this is a function of the program's that stands for a kernel.
    pub(crate) fn is_symbol(&self, passed: usize) -> bool {
        self.read().kernels.contains_key(&passed)
    }

    /// The host's function for what a node launches.
    pub(crate) fn host(
        &self,
        driver: &NativeCuda,
        function: CUfunction,
        kernel: CUkernel,
    ) -> Outcome<usize> {
        let candidates: Vec<(usize, usize)> = {
            let registered = self.read();
            let kernels = registered.kernels.iter();
            let found =
                kernels.filter_map(|(host, all)| Some((*host, (*lock(&all.first()?.found))?)));
            found.collect()
        };
        let same = candidates.iter().find(|(_, found)| *found == kernel.addr());
        let host = same.or_else(|| {
            candidates.iter().find(|(_, found)| {
                let mut own = std::ptr::null_mut();
                let found = std::ptr::with_exposed_provenance_mut(*found);
                // A kernel that this device lacks is not the one.
                // SAFETY: a place to write to, and a kernel of the driver's.
                let told = unsafe { driver.cuKernelGetFunction(&raw mut own, found) };
                told == CUDA_SUCCESS && own == function
            })
        });
        if let Some((host, _)) = host {
            return Ok(*host);
        }
        let is_known = self.read().known.contains(&kernel.addr());
        is_known
            .then(|| kernel.expose_provenance())
            .ok_or(cudaErrorInvalidDeviceFunction)
    }

    /// A variable by its shadow.
    pub(crate) fn variable(&self, shadow: *const c_void) -> Outcome<Arc<Variable>> {
        let registered = self.read();
        let mut all = registered.variables.values().flatten();
        let found = meant(&registered.variables, shadow.addr());
        let is_shown = |one: &&Arc<Variable>| {
            !shadow.is_null() && one.shown.load(Ordering::Relaxed) == shadow.addr() as u64
        };
        let found = found.or_else(|| all.find(is_shown)).cloned();
        found.ok_or(cudaErrorInvalidSymbol)
    }

    /// A device was reset, with what its context showed of managed variables: the next context shows them again.
    pub(crate) fn show_again(&self) {
        self.wait_for_addresses(&self.read());
    }

    fn wait_for_addresses(&self, registered: &Registered) {
        let mut variables = registered.variables.values().flatten();
        if variables.any(|variable| variable.pointer.is_some()) {
            self.waiting.fetch_add(1, Ordering::Release);
        }
    }

    /// Gives managed variables their addresses, where some were registered since the last time. One that has no place fails its own calls.
    pub(crate) fn load_managed(&self, driver: &NativeCuda) {
        if self.seen.load(Ordering::Acquire) == self.waiting.load(Ordering::Acquire) {
            return;
        }
        let mut placed = lock(&self.placed);
        // Read before the list: what is registered from now on is for the next time.
        let waiting = self.waiting.load(Ordering::Acquire);
        if *placed == waiting {
            return;
        }
        for variable in self.managed(|_| true) {
            // It keeps what went wrong.
            let _ = self.show(driver, &variable);
        }
        *placed = waiting;
        self.seen.store(waiting, Ordering::Release);
    }

    /// Whether the managed variables of a binary have their addresses; those that had no place are tried once more.
    pub(crate) fn has_managed(&self, driver: &NativeCuda, handle: usize) -> Outcome {
        let is_missing = |variable: &Variable| {
            Arc::as_ptr(&variable.binary).addr() == handle
                && variable.failed.load(Ordering::Relaxed) != cudaSuccess
        };
        let mut missing = self.managed(is_missing).into_iter();
        missing.try_for_each(|variable| self.show(driver, &variable))
    }

    fn managed(&self, wanted: impl Fn(&Variable) -> bool) -> Vec<Arc<Variable>> {
        let registered = self.read();
        let variables = registered.variables.values();
        let managed = variables.filter_map(|all| all.first());
        let managed = managed.filter(|one| one.pointer.is_some() && wanted(one));
        managed.cloned().collect()
    }

    /// Tells the program the address of a managed variable.
    fn show(&self, driver: &NativeCuda, variable: &Arc<Variable>) -> Outcome {
        let placed = variable.place(driver);
        let error = placed.err().unwrap_or(cudaSuccess);
        if variable.failed.swap(error, Ordering::Relaxed) != error && error != cudaSuccess {
            let error = crate::manual::error::name(error);
            log::warn!(
                "the managed variable {:?} has no place: {error}",
                variable.name
            );
        }
        let (address, _) = placed?;
        variable.shown.store(address, Ordering::Relaxed);
        // Held while the address is written: a binary that has not been forgotten is still there.
        let registered = self.read();
        let pointer = variable.pointer.unwrap_or_default();
        if meant(&registered.variables, pointer).is_some_and(|one| Arc::ptr_eq(one, variable)) {
            let pointer = std::ptr::with_exposed_provenance_mut::<u64>(pointer);
            if !pointer.is_null() {
                // SAFETY: the program registered the place for this address, and unregisters the binary before it goes.
                unsafe { pointer.write(address) };
            }
        }
        Ok(())
    }
}

/// Whether the program or one of its libraries lies at an address.
fn is_in_object(address: usize) -> bool {
    let mut told = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: looks an address up, whatever it is, and has a place for what is told.
    let found = unsafe { libc::dladdr(std::ptr::without_provenance(address), told.as_mut_ptr()) };
    found != 0
}

/// Whether a wrapper is one.
fn verdict(wrapper: Wrapper) -> Outcome {
    let Wrapper {
        magic,
        version,
        data,
    } = wrapper;
    if magic == WRAPPER_MAGIC && matches!(version, 1 | 2) && !data.is_null() {
        return Ok(());
    }
    log::error!(
        "the program registers device code that is no fat binary (magic {magic:#010x}, version {version}): \
         it was damaged, or made by a compiler that this library does not know"
    );
    Err(cudaErrorInvalidKernelImage)
}

/// The name that a program registers something by.
///
/// # Safety
/// `name` is NULL or a string.
pub(crate) unsafe fn name(name: *const c_char) -> Option<CString> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's contract.
    let name = unsafe { CStr::from_ptr(name) };
    (name.count_bytes() < NAME_LIMIT).then(|| name.to_owned())
}

impl Binary {
    /// The library that the driver made of it, once for all devices.
    fn library(&self, driver: &NativeCuda) -> Outcome<CUlibrary> {
        let mut library = lock(&self.library);
        let made = match library.made {
            Some(made) => made,
            None => {
                let mut device = 0;
                call!(driver.cuCtxGetDevice(&raw mut device));
                if library.lacking.contains(&device) {
                    return Err(cudaErrorNoKernelImageForDevice);
                }
                let made = self.load(driver);
                match made {
                    Ok(_) | Err(cudaErrorInvalidKernelImage | cudaErrorInvalidPtx) => {
                        library.made = Some(made);
                    }
                    Err(cudaErrorNoKernelImageForDevice) => library.lacking.push(device),
                    // It may be there the next time.
                    Err(_) => {}
                }
                made
            }
        };
        made.map(std::ptr::with_exposed_provenance_mut)
    }

    fn load(&self, driver: &NativeCuda) -> Outcome<usize> {
        let image = std::ptr::with_exposed_provenance::<c_void>(self.image?);
        let mut library = std::ptr::null_mut();
        let none = std::ptr::null_mut();
        let nones = std::ptr::null_mut();
        call!(driver.cuLibraryLoadData(
            &raw mut library,
            image,
            none,
            nones,
            0,
            std::ptr::null_mut(),
            nones,
            0
        ));
        Ok(library.expose_provenance())
    }
}

impl Kernel {
    fn find(&self, driver: &NativeCuda) -> Outcome<CUkernel> {
        let mut found = lock(&self.found);
        if let Some(kernel) = *found {
            return Ok(std::ptr::with_exposed_provenance_mut(kernel));
        }
        let library = self.binary.library(driver)?;
        let mut kernel = std::ptr::null_mut();
        // SAFETY: a place to write to, and a string.
        let status =
            unsafe { driver.cuLibraryGetKernel(&raw mut kernel, library, self.name.as_ptr()) };
        match status {
            CUDA_SUCCESS => {
                *found = Some(kernel.expose_provenance());
                Ok(kernel)
            }
            CUDA_ERROR_NOT_FOUND => {
                log::warn!("the program's device code has no kernel {:?}", self.name);
                Err(cudaErrorInvalidDeviceFunction)
            }
            error => Err(error),
        }
    }
}

impl Variable {
    /// Where the variable lies on the current device, and its size.
    pub(crate) fn place(&self, driver: &NativeCuda) -> Outcome<(CUdeviceptr, usize)> {
        let library = self.binary.library(driver)?;
        let (mut address, mut size) = (0, 0);
        let name = self.name.as_ptr();
        let status = if self.pointer.is_none() {
            // SAFETY: places to write to, and a string.
            unsafe { driver.cuLibraryGetGlobal(&raw mut address, &raw mut size, library, name) }
        } else {
            // SAFETY: as above.
            unsafe { driver.cuLibraryGetManaged(&raw mut address, &raw mut size, library, name) }
        };
        match status {
            CUDA_SUCCESS => Ok((address, size)),
            CUDA_ERROR_NOT_FOUND => {
                log::warn!("the program's device code has no variable {:?}", self.name);
                Err(cudaErrorInvalidSymbol)
            }
            error => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
