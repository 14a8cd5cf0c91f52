//! The vendor's own driver, loaded at run time.
//!
//! A function is looked up by base name and version through the driver's `cuGetProcAddress`, so that it is the one whose signature was
//! declared; a driver older than that function (CUDA 11.3), and a name that it does not know, is asked for the symbol itself. What the
//! driver lacks answers "not supported".

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use super::*;

include!(concat!(env!("OUT_DIR"), "/cuda_native.rs"));

/// What the vendor's library is called where nobody names one.
const DRIVER: &str = "libcuda.so.1";

/// Why the vendor's library could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// The library cannot be loaded.
    #[error("cannot load the CUDA driver library {library}")]
    Load {
        /// Its name or path.
        library: String,
        /// Why.
        #[source]
        source: libloading::Error,
    },
    /// It is the one that gives programs the devices of servers.
    #[error(
        "{library} is Towline's own library, not the vendor's driver: a server would be a client of itself; take its folder out \
         of LD_LIBRARY_PATH, or name the vendor's with --cuda"
    )]
    OwnLibrary {
        /// Its name or path.
        library: String,
    },
    /// The library is no driver.
    #[error("{library} is no CUDA driver library: it lacks {symbol}")]
    NotADriver {
        /// Its name or path.
        library: String,
        /// What is missing.
        symbol: &'static str,
    },
}

/// The vendor's driver of this host.
pub struct NativeCuda {
    functions: Functions,
}

type GetProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut u32) -> c_int;
type GetProcAddressV1 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;

/// How a driver is asked for its functions.
struct Lookup {
    library: &'static libloading::Library,
    by_version: Option<GetProcAddress>,
    by_version_v1: Option<GetProcAddressV1>,
}

impl NativeCuda {
    /// Loads the driver under its usual name. The driver is not started: `cuInit` does that.
    pub fn open() -> Result<Self, NativeError> {
        Self::from_library(DRIVER)
    }

    /// Loads a vendor's driver by name or path.
    pub fn from_library(name: &str) -> Result<Self, NativeError> {
        let lookup = Lookup::load(name)?;
        if !lookup.symbol(crate::OWN_LIBRARY_SYMBOL).is_null() {
            return Err(NativeError::OwnLibrary {
                library: name.into(),
            });
        }
        Self::found(name, &lookup)
    }

    /// Loads whatever library a program would find by this name, Towline's own too: what measures programs does.
    pub fn from_any_library(name: &str) -> Result<Self, NativeError> {
        Self::found(name, &Lookup::load(name)?)
    }

    fn found(name: &str, lookup: &Lookup) -> Result<Self, NativeError> {
        if lookup.symbol("cuInit").is_null() {
            return Err(NativeError::NotADriver {
                library: name.into(),
                symbol: "cuInit",
            });
        }
        Ok(Self {
            functions: Functions::load(&mut |name, _| lookup.function(name)),
        })
    }
}

impl Lookup {
    fn load(name: &str) -> Result<Self, NativeError> {
        // SAFETY: loading runs the vendor's initialisers, which is what the user asked for by naming the library.
        let library =
            unsafe { libloading::Library::new(name) }.map_err(|source| NativeError::Load {
                library: name.into(),
                source,
            })?;
        // The driver keeps threads and exit handlers: unloading it is never safe.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        Ok(Self::new(library))
    }

    fn new(library: &'static libloading::Library) -> Self {
        let mut lookup = Self {
            library,
            by_version: None,
            by_version_v1: None,
        };
        let found = lookup.symbol("cuGetProcAddress_v2");
        // SAFETY: the driver's symbol of this name has this type since CUDA 12; NULL is `None`.
        lookup.by_version =
            unsafe { std::mem::transmute::<*const c_void, Option<GetProcAddress>>(found) };
        let found = lookup.symbol("cuGetProcAddress");
        // SAFETY: the driver's symbol of this name has this type since CUDA 11.3; NULL is `None`.
        lookup.by_version_v1 =
            unsafe { std::mem::transmute::<*const c_void, Option<GetProcAddressV1>>(found) };
        lookup
    }

    /// The function that a declaration means, or NULL.
    fn function(&self, name: &str) -> *const c_void {
        let Some(symbol) = PROC_SYMBOLS.iter().find(|symbol| symbol.name == name) else {
            return self.symbol(name);
        };
        let found = self.versioned(symbol);
        if found.is_null() {
            self.symbol(name)
        } else {
            found
        }
    }

    /// What the driver gives for a base name and version, or NULL.
    fn versioned(&self, symbol: &ProcSymbol) -> *const c_void {
        let Ok(base) = CString::new(symbol.base) else {
            return ptr::null();
        };
        let mut found = ptr::null_mut();
        let mut said = CU_GET_PROC_ADDRESS_SUCCESS;
        let flags = u64::from(CU_GET_PROC_ADDRESS_LEGACY_STREAM);
        let status = if let Some(ask) = self.by_version {
            // SAFETY: a NUL-terminated name and two places to write to.
            unsafe {
                ask(
                    base.as_ptr(),
                    &raw mut found,
                    symbol.since,
                    flags,
                    &raw mut said,
                )
            }
        } else if let Some(ask) = self.by_version_v1 {
            // SAFETY: a NUL-terminated name and a place to write to.
            unsafe { ask(base.as_ptr(), &raw mut found, symbol.since, flags) }
        } else {
            return ptr::null();
        };
        if status == CUDA_SUCCESS && said == CU_GET_PROC_ADDRESS_SUCCESS {
            found
        } else {
            ptr::null()
        }
    }

    /// An exported symbol, or NULL.
    fn symbol(&self, name: &str) -> *const c_void {
        // SAFETY: the address is only compared and passed on; its type comes from the declaration.
        let found = unsafe { self.library.get::<*const c_void>(name) };
        found.map_or(ptr::null(), |symbol| *symbol)
    }
}

#[cfg(test)]
mod tests;
