//! The one platform, "Towline", and the devices behind it.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Once, OnceLock};

use towline_backend::opencl::*;

use crate::arena::{Kind, Object, Ref, get};
use crate::device::Device;
use crate::info;
use crate::providers::{self, Provider};
use crate::raw::{self, Answer, Out, OutList};

include!(concat!(env!("OUT_DIR"), "/opencl_platform.rs"));

/// What the platform's handle leads to: nothing that one platform has and another has not.
pub(crate) struct PlatformHandle;

impl Object for PlatformHandle {
    type Raw = _cl_platform_id;
    const KIND: Kind = Kind::Platform;
    const INVALID: cl_int = CL_INVALID_PLATFORM;
}

/// The platform. One per process for applications; tests make their own.
pub struct Platform {
    handle: OnceLock<Option<Ref<PlatformHandle>>>,
    devices: OnceLock<Vec<Ref<Device>>>,
}

/// The platform of this process; it connects to its providers when devices are first asked for.
pub(crate) fn process() -> &'static Platform {
    static PROCESS: Platform = Platform {
        handle: OnceLock::new(),
        devices: OnceLock::new(),
    };
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        let filter = env_logger::Env::new().filter_or("TOWLINE_LOG", "warn");
        // Lost sessions and the like must reach a person. This library has a logger of its own: the application's is another copy
        // of `log`, and ours is out of its way.
        let _ = env_logger::Builder::from_env(filter)
            .format_target(false)
            .try_init();
        crate::callback::watch_fork();
        crate::timeline::start();
    });
    &PROCESS
}

impl Platform {
    /// A platform over exactly these providers.
    pub fn with_providers(providers: Vec<Provider>) -> Self {
        let platform = Self {
            handle: OnceLock::new(),
            devices: OnceLock::new(),
        };
        let devices = platform.adopt(providers);
        // A platform just made has no devices yet.
        let _ = platform.devices.set(devices);
        platform
    }

    /// The platform of this process over exactly these providers; `None` where it has devices already. For programs that are linked with
    /// this library instead of loading it.
    pub fn of_process(providers: Vec<Provider>) -> Option<&'static Self> {
        let platform = process();
        let devices = platform.adopt(providers);
        platform.devices.set(devices).ok().map(|()| platform)
    }

    fn adopt(&self, providers: Vec<Provider>) -> Vec<Ref<Device>> {
        let handle = self.own_handle();
        let mut devices = Vec::new();
        for provider in providers {
            let provider = Arc::new(provider);
            for &raw in &provider.devices {
                match Ref::new(Device::whole(&provider, raw, handle)) {
                    Ok(device) => devices.push(device),
                    Err(_) => log::error!("leaving out a device of {}: no room", provider.name),
                }
            }
        }
        devices
    }

    /// Its handle; NULL when there is no address space for handles.
    pub(crate) fn own_handle(&self) -> cl_platform_id {
        self.handle
            .get_or_init(|| Ref::new(PlatformHandle).ok())
            .as_ref()
            .map_or(std::ptr::null_mut(), Ref::handle)
    }

    /// Its devices, connecting to their providers the first time.
    pub(crate) fn devices(&self) -> &[Ref<Device>] {
        self.devices.get_or_init(|| self.adopt(providers::load()))
    }

    /// The coarsest resolution of the vendors' host timers; 0 where one of them has none.
    fn timer_resolution(&self) -> cl_ulong {
        let resolutions = self
            .devices()
            .iter()
            .map(|device| device.provider.timer_resolution(device.raw));
        let resolutions: Vec<cl_ulong> = resolutions.collect();
        match resolutions.contains(&0) {
            true => 0,
            false => resolutions.into_iter().max().unwrap_or(0),
        }
    }

    /// Refuses a platform that is not this one; NULL stands for it.
    pub(crate) fn expect(&self, platform: cl_platform_id) -> Result<(), cl_int> {
        if platform.is_null() || platform == self.own_handle() {
            Ok(())
        } else {
            Err(CL_INVALID_PLATFORM)
        }
    }
}

impl PlatformCalls for Platform {
    unsafe fn clGetPlatformIDs(
        &self,
        num_entries: cl_uint,
        platforms: OutList<cl_platform_id>,
        num_platforms: Out<cl_uint>,
    ) -> Result<(), cl_int> {
        if (num_entries == 0 && platforms.wanted())
            || (!platforms.wanted() && !num_platforms.wanted())
        {
            return Err(CL_INVALID_VALUE);
        }
        let handle = self.own_handle();
        if handle.is_null() {
            return Err(CL_OUT_OF_HOST_MEMORY);
        }
        platforms.fill([handle]);
        num_platforms.set(1);
        Ok(())
    }

    unsafe fn clGetPlatformInfo(
        &self,
        platform: cl_platform_id,
        param_name: cl_platform_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        self.expect(platform)?;
        match param_name {
            CL_PLATFORM_PROFILE => answer.text("FULL_PROFILE"),
            CL_PLATFORM_VERSION => {
                answer.text(concat!("OpenCL 3.0 Towline ", env!("CARGO_PKG_VERSION")))
            }
            CL_PLATFORM_NAME | CL_PLATFORM_VENDOR => answer.text("Towline"),
            CL_PLATFORM_ICD_SUFFIX_KHR => answer.text("towline"),
            CL_PLATFORM_EXTENSIONS => answer.text("cl_khr_icd"),
            CL_PLATFORM_EXTENSIONS_WITH_VERSION => {
                answer.slice(&[info::name_version("cl_khr_icd", 1, 0, 0)])
            }
            CL_PLATFORM_NUMERIC_VERSION => answer.value(info::version(3, 0, 0)),
            CL_PLATFORM_HOST_TIMER_RESOLUTION => answer.value(self.timer_resolution()),
            _ => Err(CL_INVALID_VALUE),
        }
    }

    unsafe fn clGetExtensionFunctionAddress(&self, func_name: Option<&CStr>) -> *mut c_void {
        crate::stub::lookup(func_name)
    }

    unsafe fn clGetExtensionFunctionAddressForPlatform(
        &self,
        platform: cl_platform_id,
        func_name: Option<&CStr>,
    ) -> *mut c_void {
        if self.expect(platform).is_err() {
            return std::ptr::null_mut();
        }
        crate::stub::lookup(func_name)
    }
}

impl ExtensionCalls for Platform {
    unsafe fn clIcdGetPlatformIDsKHR(
        &self,
        num_entries: cl_uint,
        platforms: OutList<cl_platform_id>,
        num_platforms: Out<cl_uint>,
    ) -> Result<(), cl_int> {
        // SAFETY: the caller's contract, passed on.
        unsafe { PlatformCalls::clGetPlatformIDs(self, num_entries, platforms, num_platforms) }
    }

    unsafe fn clTerminateContextKHR(&self, context: cl_context) -> Result<(), cl_int> {
        // No device here offers termination (cl_khr_terminate_context is masked), which is this error in that extension.
        get::<crate::context::Context>(context)?;
        Err(CL_INVALID_OPERATION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_is_described_without_a_provider() {
        let platform = Platform::with_providers(Vec::new());
        let mut text = [0_u8; 64];
        let mut size = 0;
        // SAFETY: the room given is the buffer's.
        let status = unsafe {
            OpenClApi::clGetPlatformInfo(
                &platform,
                platform.own_handle(),
                CL_PLATFORM_NAME,
                text.len(),
                text.as_mut_ptr().cast(),
                &raw mut size,
            )
        };
        assert_eq!((status, &text[..size]), (CL_SUCCESS, &b"Towline\0"[..]));
    }

    #[test]
    fn an_answer_that_does_not_fit_is_an_invalid_value() {
        let platform = Platform::with_providers(Vec::new());
        let mut text = [0_u8; 7];
        // SAFETY: the room given is the buffer's.
        let status = unsafe {
            OpenClApi::clGetPlatformInfo(
                &platform,
                platform.own_handle(),
                CL_PLATFORM_NAME,
                text.len(),
                text.as_mut_ptr().cast(),
                std::ptr::null_mut(),
            )
        };
        assert_eq!(status, CL_INVALID_VALUE);
    }

    #[test]
    fn a_platform_without_providers_has_no_devices() {
        let platform = Platform::with_providers(Vec::new());
        let mut count = 7;
        // SAFETY: only the count is written.
        let status = unsafe {
            OpenClApi::clGetDeviceIDs(
                &platform,
                platform.own_handle(),
                CL_DEVICE_TYPE_ALL,
                0,
                std::ptr::null_mut(),
                &raw mut count,
            )
        };
        assert_eq!(status, CL_DEVICE_NOT_FOUND);
    }
}
