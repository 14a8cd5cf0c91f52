//! The vendor's own OpenCL, loaded at run time: a small ICD loader of our own.
//!
//! A worker names the vendor libraries it wants (or takes those of the vendors folder); each one's functions come from the dispatch
//! table that its objects begin with, as the ICD convention has it. No other loader stands between, so a client's process can use
//! its local devices without entering the loader that called it, and a server never finds Towline's own ICD again.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use super::*;

include!(concat!(env!("OUT_DIR"), "/opencl_native.rs"));
include!(concat!(env!("OUT_DIR"), "/opencl_order.rs"));

/// Why vendor libraries could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// The library cannot be loaded.
    #[error("cannot load the OpenCL vendor library {library}")]
    Load {
        /// Its name or path.
        library: String,
        /// Why.
        #[source]
        source: libloading::Error,
    },
    /// No library gave a platform.
    #[error(
        "no OpenCL platform found in {folder}: install a vendor's OpenCL (on Debian, pocl-opencl-icd makes the CPU a device) \
         or name its library with --icd"
    )]
    NoPlatform {
        /// Where was looked.
        folder: String,
    },
    /// The library is no ICD.
    #[error("{library} is no OpenCL ICD: it lacks {symbol}")]
    NotAnIcd {
        /// Its name or path.
        library: String,
        /// What is missing.
        symbol: &'static str,
    },
    /// The vendors folder cannot be read.
    #[error("cannot read the vendors folder {folder}")]
    Vendors {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// One vendor platform.
struct Vendor {
    platform: cl_platform_id,
    dispatch: *const c_void,
    functions: Functions,
    /// It carries out commands inside the calls that wait for them, and bears one thread at a time.
    is_serial: bool,
}

/// Names of platforms that are serial; see [`super::SerialOpenCl`].
const SERIAL: &[&str] = &["Oclgrind"];

/// The devices of this host's vendor libraries.
pub struct NativeOpenCl {
    vendors: Vec<Vendor>,
}

// SAFETY: OpenCL entry points are thread-safe by specification; the pointers are to the vendors' immutable tables and platforms.
unsafe impl Send for NativeOpenCl {}
// SAFETY: as above.
unsafe impl Sync for NativeOpenCl {}

type GetAddress = unsafe extern "C" fn(*const c_char) -> *const c_void;
type GetPlatforms = unsafe extern "C" fn(cl_uint, *mut cl_platform_id, *mut cl_uint) -> cl_int;
type GetPlatformText =
    unsafe extern "C" fn(cl_platform_id, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
type GetAddressForPlatform = unsafe extern "C" fn(cl_platform_id, *const c_char) -> *const c_void;

impl NativeOpenCl {
    /// Loads the libraries that the `.icd` files of `folder` name, leaving out those that cannot be loaded (with a logged line) and
    /// those for which `skip` says so.
    pub fn from_vendors(folder: &Path, skip: &dyn Fn(&str) -> bool) -> Result<Self, NativeError> {
        let listing = std::fs::read_dir(folder).map_err(|source| NativeError::Vendors {
            folder: folder.into(),
            source,
        })?;
        let mut files: Vec<PathBuf> = listing
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .collect();
        files.sort();
        let mut libraries = Vec::new();
        for file in files
            .iter()
            .filter(|file| file.extension().is_some_and(|extension| extension == "icd"))
        {
            match std::fs::read_to_string(file) {
                Ok(text) => {
                    libraries.extend(text.lines().next().map(|line| line.trim().to_string()))
                }
                Err(error) => log::warn!("leaving out {}: {error}", file.display()),
            }
        }
        libraries.retain(|library| !library.is_empty() && !skip(library));
        let mut native = Self {
            vendors: Vec::new(),
        };
        for library in &libraries {
            if let Err(error) = native.add(library) {
                let cause = std::error::Error::source(&error)
                    .map(|cause| format!(": {cause}"))
                    .unwrap_or_default();
                log::warn!("leaving out a vendor: {error}{cause}");
            }
        }
        native.checked(&folder.display().to_string())
    }

    /// Loads exactly these libraries; any failure is an error.
    pub fn from_libraries(libraries: &[String]) -> Result<Self, NativeError> {
        let mut native = Self {
            vendors: Vec::new(),
        };
        for library in libraries {
            native.add(library)?;
        }
        native.checked(&libraries.join(", "))
    }

    fn checked(self, folder: &str) -> Result<Self, NativeError> {
        if self.vendors.is_empty() {
            Err(NativeError::NoPlatform {
                folder: folder.into(),
            })
        } else {
            Ok(self)
        }
    }

    /// The vendors' platforms, in order.
    pub fn platforms(&self) -> impl Iterator<Item = cl_platform_id> + '_ {
        self.vendors.iter().map(|vendor| vendor.platform)
    }

    /// Whether the adapter for serial vendors is needed.
    pub(super) fn has_serial(&self) -> bool {
        self.vendors.iter().any(|vendor| vendor.is_serial)
    }

    /// Whether the object's vendor is serial.
    pub(super) fn is_serial(&self, object: *mut c_void) -> bool {
        self.vendor(object).is_serial
    }

    fn add(&mut self, name: &str) -> Result<(), NativeError> {
        let fail = |source| NativeError::Load {
            library: name.into(),
            source,
        };
        // SAFETY: loading runs the vendor's initialisers, which is what the user asked for by naming the library.
        let library = unsafe { libloading::Library::new(name) }.map_err(fail)?;
        // Vendor libraries keep threads and exit handlers: unloading them is never safe.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        let missing = |symbol| NativeError::NotAnIcd {
            library: name.into(),
            symbol,
        };
        // SAFETY: the ICD convention gives this symbol this type.
        let address = unsafe { library.get::<GetAddress>("clGetExtensionFunctionAddress") }
            .map_err(|_| missing("clGetExtensionFunctionAddress"))?;
        // SAFETY: the argument is a NUL-terminated name.
        let platforms = unsafe { address(c"clIcdGetPlatformIDsKHR".as_ptr()) };
        // SAFETY: the ICD convention gives the function of this name this type; NULL is `None`.
        let platforms =
            unsafe { std::mem::transmute::<*const c_void, Option<GetPlatforms>>(platforms) };
        let platforms = platforms.ok_or_else(|| missing("clIcdGetPlatformIDsKHR"))?;
        let mut count = 0;
        // SAFETY: with no room given, only the count is written.
        let status = unsafe { platforms(0, ptr::null_mut(), &raw mut count) };
        if status != CL_SUCCESS || count == 0 {
            log::info!(
                "{name} has no platform here ({})",
                status_name(status).unwrap_or("no devices")
            );
            return Ok(());
        }
        let mut found = vec![ptr::null_mut(); count as usize];
        // SAFETY: `found` has room for `count` platforms.
        let status = unsafe { platforms(count, found.as_mut_ptr(), ptr::null_mut()) };
        if status != CL_SUCCESS {
            return Ok(());
        }
        for platform in found {
            // SAFETY: every ICD object begins with the address of the vendor's dispatch table.
            let dispatch = unsafe { platform.cast::<*const c_void>().read() };
            let functions = functions(platform, dispatch, *address);
            let name = functions.clGetPlatformInfo.and_then(|info| {
                // SAFETY: the vendor's function for its own platform.
                platform_text(|room, text| unsafe {
                    info(platform, CL_PLATFORM_NAME, room, text, ptr::null_mut())
                })
            });
            self.vendors.push(Vendor {
                platform,
                dispatch,
                functions,
                is_serial: name.is_some_and(|name| SERIAL.contains(&name.as_str())),
            });
        }
        Ok(())
    }

    /// The vendor whose table `object` begins with.
    #[inline]
    fn vendor(&self, object: *mut c_void) -> &Vendor {
        let first = &self.vendors[0];
        if self.vendors.len() == 1 || object.is_null() {
            return first;
        }
        // SAFETY: the caller's contract: the object is live, and every ICD object begins with its dispatch table.
        let dispatch = unsafe { object.cast::<*const c_void>().read() };
        self.vendors
            .iter()
            .find(|vendor| vendor.dispatch == dispatch)
            .unwrap_or(first)
    }
}

/// Fills a vendor's table: core functions from the dispatch table as far as the platform's version says that it reaches, extension
/// functions by name.
fn functions(platform: cl_platform_id, dispatch: *const c_void, address: GetAddress) -> Functions {
    let entry = |name: &str| -> *const c_void {
        let Some(index) = ICD_DISPATCH.iter().position(|known| *known == name) else {
            return ptr::null();
        };
        // SAFETY: the entry lies inside the vendor's table: the caller asks only for functions of the platform's version.
        let at = unsafe { dispatch.cast::<*const c_void>().add(index) };
        // SAFETY: as above; tables are immutable.
        unsafe { at.read() }
    };
    let mut by_platform = None;
    let mut version = (1, 0);
    // SAFETY: clGetPlatformInfo has been in the table since 1.0 and has this type; NULL is `None`.
    let info = unsafe {
        std::mem::transmute::<*const c_void, Option<GetPlatformText>>(entry("clGetPlatformInfo"))
    };
    if let Some(info) = info {
        // SAFETY: the room given is the buffer's.
        let text = platform_text(|room, text| unsafe {
            info(platform, CL_PLATFORM_VERSION, room, text, ptr::null_mut())
        });
        version = text
            .and_then(|text| parse_version(&text))
            .unwrap_or(version);
    }
    if version >= (1, 2) {
        // SAFETY: the function has been in the table since 1.2 and has this type; NULL is `None`.
        by_platform = unsafe {
            std::mem::transmute::<*const c_void, Option<GetAddressForPlatform>>(entry(
                "clGetExtensionFunctionAddressForPlatform",
            ))
        };
    }
    Functions::load(&mut |name, since| {
        if since != "extension" {
            let wanted = since
                .split_once('.')
                .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
            return if wanted.is_some_and(|wanted: (u32, u32)| wanted <= version) {
                entry(name)
            } else {
                ptr::null()
            };
        }
        let Ok(name) = CString::new(name) else {
            return ptr::null();
        };
        match by_platform {
            // SAFETY: a live platform and a NUL-terminated name.
            Some(lookup) => unsafe { lookup(platform, name.as_ptr()) },
            // SAFETY: a NUL-terminated name.
            None => unsafe { address(name.as_ptr()) },
        }
    })
}

/// What a platform says of itself, by a query that takes the room and where to put it.
fn platform_text(query: impl FnOnce(usize, *mut c_void) -> cl_int) -> Option<String> {
    let mut text = [0_u8; 256];
    let status = query(text.len() - 1, text.as_mut_ptr().cast());
    let text = CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?;
    (status == CL_SUCCESS).then(|| text.to_owned())
}

/// The numbers in `OpenCL 3.0 PoCL ...`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let numbers = text.strip_prefix("OpenCL ")?.split_whitespace().next()?;
    let (major, minor) = numbers.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The first object of a list, or NULL.
pub(super) fn first<T>(list: *const *mut T) -> *mut c_void {
    if list.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's contract: a list that is not NULL has at least one element where the call names an object by it.
    unsafe { list.read() }.cast()
}

impl ManualNative for NativeOpenCl {
    unsafe fn clGetPlatformIDs(
        &self,
        num_entries: cl_uint,
        platforms: *mut cl_platform_id,
        num_platforms: *mut cl_uint,
    ) -> cl_int {
        if (num_entries == 0 && !platforms.is_null())
            || (platforms.is_null() && num_platforms.is_null())
        {
            return CL_INVALID_VALUE;
        }
        if !num_platforms.is_null() {
            // SAFETY: the caller's contract: writable when it is not NULL.
            unsafe { num_platforms.write(self.vendors.len() as cl_uint) };
        }
        if !platforms.is_null() {
            for (index, platform) in self.platforms().take(num_entries as usize).enumerate() {
                // SAFETY: the caller's contract: room for `num_entries`.
                let slot = unsafe { platforms.add(index) };
                // SAFETY: as above.
                unsafe { slot.write(platform) };
            }
        }
        CL_SUCCESS
    }

    unsafe fn clIcdGetPlatformIDsKHR(
        &self,
        num_entries: cl_uint,
        platforms: *mut cl_platform_id,
        num_platforms: *mut cl_uint,
    ) -> cl_int {
        // SAFETY: the caller's contract, passed on.
        unsafe { ManualNative::clGetPlatformIDs(self, num_entries, platforms, num_platforms) }
    }

    unsafe fn clGetExtensionFunctionAddress(&self, _func_name: *const c_char) -> *mut c_void {
        ptr::null_mut()
    }

    unsafe fn clCreateContextFromType(
        &self,
        properties: *const cl_context_properties,
        device_type: cl_device_type,
        pfn_notify: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>,
        user_data: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_context {
        // SAFETY: the caller's contract: NULL or a list that ends with a zero name.
        let platform = unsafe { context_platform(properties) };
        match self.vendor(platform).functions.clCreateContextFromType {
            // SAFETY: the caller's contract, passed on.
            Some(function) => unsafe {
                function(properties, device_type, pfn_notify, user_data, errcode_ret)
            },
            None => ptr::null_mut(),
        }
    }

    unsafe fn clUnloadCompiler(&self) -> cl_int {
        CL_SUCCESS
    }
}

/// The platform that a context's properties name, or NULL.
///
/// # Safety
/// `properties` is NULL or a list of pairs that ends with a zero name.
unsafe fn context_platform(properties: *const cl_context_properties) -> *mut c_void {
    let mut at = properties;
    while !at.is_null() {
        // SAFETY: the caller's contract: the list has not ended yet.
        let pair = unsafe { at.cast::<[cl_context_properties; 2]>().read_unaligned() };
        if pair[0] == 0 {
            break;
        }
        if pair[0] == CL_CONTEXT_PLATFORM as cl_context_properties {
            return ptr::with_exposed_provenance_mut(pair[1] as usize);
        }
        // SAFETY: as above: another pair or the end follows.
        at = unsafe { at.add(2) };
    }
    ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_platforms_text() {
        assert_eq!(parse_version("OpenCL 3.0 PoCL 3.1"), Some((3, 0)));
        assert_eq!(parse_version("OpenCL 1.2 "), Some((1, 2)));
        assert_eq!(parse_version("CUDA 12"), None);
    }

    #[test]
    fn an_empty_vendors_folder_says_what_to_install() {
        let folder = std::env::temp_dir().join(format!("towline-vendors-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let error = NativeOpenCl::from_vendors(&folder, &|_| false)
            .err()
            .expect("nothing to load");
        std::fs::remove_dir(&folder).expect("it was just made");
        assert!(
            matches!(&error, NativeError::NoPlatform { .. })
                && error.to_string().contains("pocl-opencl-icd")
        );
    }

    #[test]
    fn a_library_that_is_no_icd_is_refused_by_name() {
        let error = NativeOpenCl::from_libraries(&["libc.so.6".into()])
            .err()
            .expect("libc is no ICD");
        assert!(matches!(error, NativeError::NotAnIcd { .. }));
    }
}
