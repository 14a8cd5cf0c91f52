//! The vendor's own library, loaded at run time. What it lacks answers "not supported".

use std::ffi::c_void;
use std::ptr;

use super::*;

include!(concat!(env!("OUT_DIR"), "/nvml_native.rs"));

/// What the vendor's library is called where nobody names one.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Why the vendor's library could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NvmlError {
    /// The library cannot be loaded.
    #[error("cannot load the NVML library {library}")]
    Load {
        /// Its name or path.
        library: String,
        /// Why.
        #[source]
        source: libloading::Error,
    },
    /// The library is no NVML.
    #[error("{library} is no NVML library: it lacks {symbol}")]
    NotNvml {
        /// Its name or path.
        library: String,
        /// What is missing.
        symbol: &'static str,
    },
    /// It is the one that gives programs the devices of servers.
    #[error(
        "{library} is Towline's own library, not the vendor's NVML: a server would be a client of itself; take its folder out of \
         LD_LIBRARY_PATH, or name the vendor's with --nvml"
    )]
    OwnLibrary {
        /// Its name or path.
        library: String,
    },
}

/// The vendor's library of this host.
pub struct NativeNvml {
    functions: Functions,
}

impl NativeNvml {
    /// Loads the library under its usual name. It is not started: `nvmlInit` does that.
    pub fn open() -> Result<Self, NvmlError> {
        Self::from_library(LIBRARY)
    }

    /// Loads a library by name or path.
    pub fn from_library(name: &str) -> Result<Self, NvmlError> {
        // SAFETY: loading runs the vendor's initialisers, which is what the user asked for by naming the library.
        let library =
            unsafe { libloading::Library::new(name) }.map_err(|source| NvmlError::Load {
                library: name.into(),
                source,
            })?;
        // Its threads and exit handlers may outlive us: unloading it is never safe.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        let symbol = |name: &str| {
            // SAFETY: the address is only compared and passed on; its type comes from the declaration.
            let found = unsafe { library.get::<*const c_void>(name) };
            found.map_or(ptr::null(), |symbol| *symbol)
        };
        if !symbol(crate::OWN_LIBRARY_SYMBOL).is_null() {
            return Err(NvmlError::OwnLibrary {
                library: name.into(),
            });
        }
        if symbol("nvmlInit_v2").is_null() {
            return Err(NvmlError::NotNvml {
                library: name.into(),
                symbol: "nvmlInit_v2",
            });
        }
        Ok(Self {
            functions: Functions::load(&mut |name, _| symbol(name)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = NativeNvml::from_library("libnobody-has-this.so.1").err();
        assert!(
            error.is_some_and(|error| error.to_string().contains("libnobody-has-this.so.1")),
            "no error, or without the name"
        );
    }

    #[test]
    fn a_library_of_something_else_is_no_nvml() {
        assert!(matches!(
            NativeNvml::from_library("libc.so.6"),
            Err(NvmlError::NotNvml { .. })
        ));
    }
}
