//! Device code that a program registers before `main`: fat binaries, and the kernels and variables in them by their host shadows.
//!
//! Registering notes names only. A binary is given to the driver when the first of its kernels or variables is used, as one library for
//! all devices: which of its images suits a device, and where a variable lies there, is the driver's to say.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
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
    library: Mutex<Option<Outcome<usize>>>,
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
}

/// What a program says of a variable.
pub(crate) struct Shadow {
    pub(crate) address: usize,
    pub(crate) size: usize,
    /// Whether `address` is that of the pointer to a managed variable.
    pub(crate) managed: bool,
}

#[derive(Default)]
struct Registered {
    /// By handle.
    binaries: HashMap<usize, Arc<Binary>>,
    /// By the address of the host's function.
    kernels: HashMap<usize, Arc<Kernel>>,
    /// The same, by the handles that launches come with.
    handles: HashMap<usize, Arc<Kernel>>,
    /// By the address of the host's shadow.
    variables: HashMap<usize, Arc<Variable>>,
    /// Kernels of the driver that the program got from this library, which it may pass where a function is asked for.
    known: HashSet<usize>,
}

/// All that is registered.
#[derive(Default)]
pub(crate) struct Code {
    registered: RwLock<Registered>,
    /// Whether managed variables wait for their addresses.
    waiting: AtomicBool,
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
            library: Mutex::new(None),
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
        registered
            .kernels
            .retain(|_, kernel| !is_of(&kernel.binary));
        registered
            .handles
            .retain(|_, kernel| !is_of(&kernel.binary));
        registered
            .variables
            .retain(|_, variable| !is_of(&variable.binary));
        let library = lock(&binary.library).take();
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
        registered.kernels.insert(host, kernel);
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
        };
        registered
            .variables
            .insert(shadow.address, Arc::new(variable));
        if shadow.managed {
            self.waiting.store(true, Ordering::Release);
        }
    }

    /// The name by which a launch asks for a function's kernel.
    pub(crate) fn handle(&self, host: usize) -> Option<usize> {
        let registered = self.read();
        let kernel = registered.kernels.get(&host)?;
        Some(Arc::as_ptr(kernel).addr())
    }

    /// Takes note of a kernel that the program got from the driver.
    pub(crate) fn know(&self, kernel: CUkernel) {
        if !kernel.is_null() {
            self.write().known.insert(kernel.expose_provenance());
        }
    }

    /// The driver's kernel for what a program passes as one: a function of the host, a handle, or the driver's kernel itself.
    pub(crate) fn kernel(&self, driver: &NativeCuda, passed: usize) -> Outcome<CUkernel> {
        let registered = self.read();
        let kernel = registered.kernels.get(&passed);
        let kernel = kernel.or_else(|| registered.handles.get(&passed)).cloned();
        let is_known = registered.known.contains(&passed);
        drop(registered);
        match kernel {
            Some(kernel) => kernel.find(driver),
            None if is_known => Ok(std::ptr::with_exposed_provenance_mut(passed)),
            None => Err(cudaErrorInvalidDeviceFunction),
        }
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
        let registered: Vec<_> = {
            let registered = self.read();
            let kernels = registered.kernels.iter();
            kernels
                .map(|(host, kernel)| (*host, Arc::clone(kernel)))
                .collect()
        };
        for (host, candidate) in registered {
            let Some(found) = *lock(&candidate.found) else {
                continue;
            };
            if found == kernel.addr() {
                return Ok(host);
            }
            let mut own = std::ptr::null_mut();
            let found = std::ptr::with_exposed_provenance_mut(found);
            call!(driver.cuKernelGetFunction(&raw mut own, found));
            if own == function {
                return Ok(host);
            }
        }
        let is_known = self.read().known.contains(&kernel.addr());
        is_known
            .then(|| kernel.expose_provenance())
            .ok_or(cudaErrorInvalidDeviceFunction)
    }

    /// A variable by its shadow.
    pub(crate) fn variable(&self, shadow: *const c_void) -> Outcome<Arc<Variable>> {
        let found = self.read().variables.get(&shadow.addr()).cloned();
        found.ok_or(cudaErrorInvalidSymbol)
    }

    /// A device was reset, with what its context showed of managed variables: the next context shows them again.
    pub(crate) fn show_again(&self) {
        let registered = self.read();
        let mut variables = registered.variables.values();
        if variables.any(|variable| variable.pointer.is_some()) {
            self.waiting.store(true, Ordering::Release);
        }
    }

    /// Gives managed variables their addresses, where some were registered since the last time.
    pub(crate) fn load_managed(&self, driver: &NativeCuda) -> Outcome {
        if !self.waiting.load(Ordering::Acquire) {
            return Ok(());
        }
        let managed: Vec<_> = self
            .read()
            .variables
            .values()
            .filter(|variable| variable.pointer.is_some())
            .cloned()
            .collect();
        for variable in managed {
            let (address, _) = variable.place(driver)?;
            let pointer = variable.pointer.unwrap_or_default();
            let pointer = std::ptr::with_exposed_provenance_mut::<u64>(pointer);
            if !pointer.is_null() {
                // SAFETY: the program registered the place for this address, and unregisters the binary before it goes.
                unsafe { pointer.write(address) };
            }
        }
        self.waiting.store(false, Ordering::Release);
        Ok(())
    }
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
        let made = match *library {
            Some(made) => made,
            None => {
                let made = self.load(driver);
                // Memory may be there the next time; nothing else changes.
                if made != Err(cudaErrorMemoryAllocation) {
                    *library = Some(made);
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
