//! Where devices come from: sessions on servers, and with `--with-local` the vendor libraries of this host.

use std::sync::Arc;

use towline_backend::opencl::*;
use towline_client::opencl::Remote;

use crate::farewell;
use crate::raw::Shared;
use crate::report;

/// One source of devices.
pub struct Provider {
    /// What messages call it: a server's address, or "local".
    pub name: String,
    /// Its calls.
    pub api: Arc<dyn OpenClApi>,
    /// Its devices, by its own handles.
    pub devices: Vec<cl_device_id>,
    /// It runs in this process: host pointers and callbacks mean there what they mean here.
    pub local: bool,
    /// The session behind it, if it is one.
    pub(crate) session: Option<Arc<Remote>>,
}

// SAFETY: device handles may be used from any thread.
unsafe impl Send for Provider {}
// SAFETY: as above.
unsafe impl Sync for Provider {}

impl Provider {
    /// A provider over every device of a platform that `api` has.
    ///
    /// # Safety
    /// `platform` is a live platform of `api`.
    pub unsafe fn of_platform(
        name: &str,
        api: Arc<dyn OpenClApi>,
        platform: cl_platform_id,
        local: bool,
    ) -> Result<Self, cl_int> {
        let mut count = 0;
        crate::raw::check(crate::raw::provider!(
            api,
            clGetDeviceIDs(
                platform,
                CL_DEVICE_TYPE_ALL,
                0,
                std::ptr::null_mut(),
                &raw mut count
            )
        ))?;
        let mut devices = vec![std::ptr::null_mut(); count as usize];
        crate::raw::check(crate::raw::provider!(
            api,
            clGetDeviceIDs(
                platform,
                CL_DEVICE_TYPE_ALL,
                count,
                devices.as_mut_ptr(),
                std::ptr::null_mut()
            )
        ))?;
        Ok(Self {
            name: name.into(),
            api,
            devices,
            local,
            session: None,
        })
    }

    /// The providers that a session is: one for each vendor of the server, since vendors do not share contexts natively either.
    pub fn of_session(session: &Arc<Remote>) -> Vec<Self> {
        let provider = |(_, devices): (cl_platform_id, Vec<cl_device_id>)| Self {
            name: session.server().into(),
            api: Arc::clone(session) as Arc<dyn OpenClApi>,
            devices,
            local: false,
            session: Some(Arc::clone(session)),
        };
        session.platforms().into_iter().map(provider).collect()
    }

    /// The resolution of the host timer that the device's vendor has, in nanoseconds; 0 for none.
    pub(crate) fn timer_resolution(&self, device: Shared<_cl_device_id>) -> cl_ulong {
        let mut platform: cl_platform_id = std::ptr::null_mut();
        let mut resolution: cl_ulong = 0;
        let status = crate::raw::provider!(
            self.api,
            clGetDeviceInfo(
                device.0,
                CL_DEVICE_PLATFORM,
                size_of::<cl_platform_id>(),
                (&raw mut platform).cast(),
                std::ptr::null_mut()
            )
        );
        if status != CL_SUCCESS {
            return 0;
        }
        let status = crate::raw::provider!(
            self.api,
            clGetPlatformInfo(
                platform,
                CL_PLATFORM_HOST_TIMER_RESOLUTION,
                size_of::<cl_ulong>(),
                (&raw mut resolution).cast(),
                std::ptr::null_mut()
            )
        );
        if status == CL_SUCCESS { resolution } else { 0 }
    }

    /// The bytes that answer a device query; empty where the device has no answer.
    pub(crate) fn device_bytes(
        &self,
        device: Shared<_cl_device_id>,
        name: cl_device_info,
    ) -> Vec<u8> {
        let mut size = 0;
        let status = crate::raw::provider!(
            self.api,
            clGetDeviceInfo(device.0, name, 0, std::ptr::null_mut(), &raw mut size)
        );
        if status != CL_SUCCESS {
            return Vec::new();
        }
        let mut bytes = vec![0; size];
        let status = crate::raw::provider!(
            self.api,
            clGetDeviceInfo(
                device.0,
                name,
                size,
                bytes.as_mut_ptr().cast(),
                std::ptr::null_mut()
            )
        );
        if status != CL_SUCCESS {
            bytes.clear();
        }
        bytes
    }
}

/// This host's own devices come first in the platform (`towline run --with-local`).
const WITH_LOCAL: &str = "TOWLINE_WITH_LOCAL";
/// Where this host's vendors are registered, when `towline run` has put a folder of its own in that place.
const LOCAL_VENDORS: &str = "TOWLINE_LOCAL_ICD_VENDORS";
/// Where vendors are registered otherwise.
const USUAL_VENDORS: &str = "/etc/OpenCL/vendors";

/// The providers that the environment names: this host's vendors where wanted, then every server that answers. A server that does not
/// is reported once and left out: the others serve.
pub(crate) fn load() -> Vec<Provider> {
    let mut providers = Vec::new();
    if std::env::var(WITH_LOCAL).is_ok_and(|value| value == "1") {
        providers.extend(local());
    }
    let mut sessions = Vec::new();
    for session in towline_client::environment::sessions() {
        match session {
            Ok(remote) => {
                providers.extend(Provider::of_session(&remote));
                sessions.push(remote);
            }
            // Programs of CUDA load OpenCL too, by hwloc for instance, and have nothing to do with its absence.
            Err(error) if error.source.is_for_want_of_devices() => log::info!("{error}"),
            Err(error) => eprintln!("towline: {error}"),
        }
    }
    report::watch(&sessions);
    farewell::keep(&sessions);
    providers
}

fn local() -> Vec<Provider> {
    let folder = std::env::var(LOCAL_VENDORS).unwrap_or_else(|_| USUAL_VENDORS.into());
    let ours = |library: &str| library.contains("libtowline_opencl");
    let native = match NativeOpenCl::from_vendors(std::path::Path::new(&folder), &ours) {
        Ok(native) => native,
        Err(error) => {
            eprintln!("towline: this host's own devices are left out: {error}");
            return Vec::new();
        }
    };
    let platforms: Vec<cl_platform_id> = native.platforms().collect();
    let api = SerialOpenCl::where_needed(native);
    let providers = platforms.into_iter().filter_map(|platform| {
        let api = Arc::clone(&api);
        // SAFETY: the platform is the native library's own.
        unsafe { Provider::of_platform("local", api, platform, true) }.ok()
    });
    providers
        .filter(|provider| !provider.devices.is_empty())
        .collect()
}
