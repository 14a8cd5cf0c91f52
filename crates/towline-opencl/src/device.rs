//! Devices: those of the providers and the parts that applications divide them into.
//!
//! What a device says about itself is passed through byte by byte, except handles, references and what cannot work from here:
//! functions of the host as kernels, fine-grained sharing of memory, sharing with other APIs.

use std::sync::Arc;

use smallvec::SmallVec;
use towline_backend::opencl::*;

use crate::arena::{Kind, Object, Ref, get};
use crate::info;
use crate::platform::{DeviceCalls, Platform};
use crate::providers::Provider;
use crate::raw::{Answer, Out, OutList, Shared, check, provider};

/// What calls are validated against without asking the device again.
pub(crate) struct Limits {
    pub(crate) kind: cl_device_type,
    pub(crate) version: (u32, u32),
    pub(crate) max_work_group: usize,
    pub(crate) max_work_items: SmallVec<[usize; 3]>,
    pub(crate) non_uniform_groups: bool,
    pub(crate) max_alloc: u64,
    pub(crate) base_align: usize,
    pub(crate) queue_properties: cl_command_queue_properties,
    pub(crate) device_queues: bool,
    pub(crate) images: Option<ImageLimits>,
    pub(crate) svm: cl_device_svm_capabilities,
    pub(crate) takes_il: bool,
    pub(crate) pipes: bool,
    pub(crate) max_pipe_packet: u32,
    pub(crate) extensions: Vec<String>,
    /// Tells the vendor platforms of one provider apart: their devices share no context.
    pub(crate) family: Vec<u8>,
}

/// How large images may be.
pub(crate) struct ImageLimits {
    pub(crate) width_2d: usize,
    pub(crate) height_2d: usize,
    pub(crate) width_3d: usize,
    pub(crate) height_3d: usize,
    pub(crate) depth_3d: usize,
    pub(crate) buffer: usize,
    pub(crate) array: usize,
    pub(crate) pitch_alignment: u32,
    pub(crate) base_alignment: u32,
}

impl Limits {
    fn read(provider: &Provider, device: Shared<_cl_device_id>) -> Self {
        let bytes = |name| provider.device_bytes(device, name);
        let text = |name| {
            String::from_utf8_lossy(&bytes(name))
                .trim_end_matches('\0')
                .to_string()
        };
        let version = parse_version(&text(CL_DEVICE_VERSION)).unwrap_or((1, 0));
        let images = (info::uint(&bytes(CL_DEVICE_IMAGE_SUPPORT)) != 0).then(|| ImageLimits {
            width_2d: info::size(&bytes(CL_DEVICE_IMAGE2D_MAX_WIDTH)),
            height_2d: info::size(&bytes(CL_DEVICE_IMAGE2D_MAX_HEIGHT)),
            width_3d: info::size(&bytes(CL_DEVICE_IMAGE3D_MAX_WIDTH)),
            height_3d: info::size(&bytes(CL_DEVICE_IMAGE3D_MAX_HEIGHT)),
            depth_3d: info::size(&bytes(CL_DEVICE_IMAGE3D_MAX_DEPTH)),
            buffer: info::size(&bytes(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE)),
            array: info::size(&bytes(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE)),
            pitch_alignment: info::uint(&bytes(CL_DEVICE_IMAGE_PITCH_ALIGNMENT)),
            base_alignment: info::uint(&bytes(CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT)),
        });
        Self {
            kind: info::ulong(&bytes(CL_DEVICE_TYPE)),
            version,
            max_work_group: info::size(&bytes(CL_DEVICE_MAX_WORK_GROUP_SIZE)),
            max_work_items: info::values(
                &bytes(CL_DEVICE_MAX_WORK_ITEM_SIZES),
                usize::from_ne_bytes,
            )
            .collect(),
            non_uniform_groups: version >= (2, 0)
                && (version < (3, 0)
                    || info::uint(&bytes(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT)) != 0),
            max_alloc: info::ulong(&bytes(CL_DEVICE_MAX_MEM_ALLOC_SIZE)),
            base_align: (info::uint(&bytes(CL_DEVICE_MEM_BASE_ADDR_ALIGN)) / 8).max(1) as usize,
            queue_properties: info::ulong(&bytes(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES)),
            device_queues: info::uint(&bytes(CL_DEVICE_MAX_ON_DEVICE_QUEUES)) != 0,
            images,
            // Windows cannot map single pages where a server's allocation is.
            svm: match cfg!(unix) {
                true => info::ulong(&bytes(CL_DEVICE_SVM_CAPABILITIES)),
                false => 0,
            } & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER,
            takes_il: bytes(CL_DEVICE_IL_VERSION)
                .iter()
                .any(|byte| !matches!(byte, 0 | b' ')),
            pipes: info::uint(&bytes(CL_DEVICE_MAX_PIPE_ARGS)) != 0
                && (version < (3, 0) || info::uint(&bytes(CL_DEVICE_PIPE_SUPPORT)) != 0),
            max_pipe_packet: info::uint(&bytes(CL_DEVICE_PIPE_MAX_PACKET_SIZE)),
            extensions: text(CL_DEVICE_EXTENSIONS)
                .split_whitespace()
                .filter(|extension| info::lets_through(extension))
                .map(str::to_string)
                .collect(),
            family: bytes(CL_DEVICE_PLATFORM),
        }
    }

    /// Whether an extension is advertised.
    pub(crate) fn has(&self, extension: &str) -> bool {
        self.extensions.iter().any(|known| known == extension)
    }
}

/// The numbers in `OpenCL 3.0 ...`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let numbers = text.strip_prefix("OpenCL ")?.split_whitespace().next()?;
    let (major, minor) = numbers.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// A device.
pub(crate) struct Device {
    pub(crate) provider: Arc<Provider>,
    pub(crate) raw: Shared<_cl_device_id>,
    pub(crate) limits: Limits,
    platform: Shared<_cl_platform_id>,
    /// The device that this is a part of.
    pub(crate) parent: Option<Ref<Device>>,
}

impl Object for Device {
    type Raw = _cl_device_id;
    const KIND: Kind = Kind::Device;
    const INVALID: cl_int = CL_INVALID_DEVICE;
}

impl Device {
    /// A device as its provider has it.
    pub(crate) fn whole(
        provider: &Arc<Provider>,
        raw: cl_device_id,
        platform: cl_platform_id,
    ) -> Self {
        Self {
            limits: Limits::read(provider, Shared(raw)),
            provider: Arc::clone(provider),
            raw: Shared(raw),
            platform: Shared(platform),
            parent: None,
        }
    }

    fn part_of(parent: &Ref<Self>, raw: cl_device_id) -> Self {
        Self {
            limits: Limits {
                // The provider tells it of whole devices.
                family: parent.limits.family.clone(),
                ..Limits::read(&parent.provider, Shared(raw))
            },
            provider: Arc::clone(&parent.provider),
            raw: Shared(raw),
            platform: parent.platform,
            parent: Some(parent.clone()),
        }
    }

    /// Whether both can be in one context of their provider.
    pub(crate) fn shares_context_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.provider, &other.provider) && self.limits.family == other.limits.family
    }

    fn forward(&self, name: cl_device_info, answer: &Answer) -> Result<(), cl_int> {
        let (room, value, needed) = answer.parts();
        check(provider!(
            self.provider.api,
            clGetDeviceInfo(self.raw.0, name, room, value, needed)
        ))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.parent.is_some() {
            provider!(self.provider.api, clReleaseDevice(self.raw.0));
        }
    }
}

/// Looks up the devices of a call's list.
pub(crate) fn list(devices: &[cl_device_id]) -> Result<Vec<Ref<Device>>, cl_int> {
    devices.iter().map(|&device| get(device)).collect()
}

/// Queries about what is masked: handles for sharing with other APIs, semaphores, command buffers.
fn masked(name: cl_device_info) -> bool {
    matches!(name, 0x204C..=0x204F | 0x2052 | 0x12A9..=0x12AB)
}

impl DeviceCalls for Platform {
    unsafe fn clGetDeviceIDs(
        &self,
        platform: cl_platform_id,
        device_type: cl_device_type,
        num_entries: cl_uint,
        devices: OutList<cl_device_id>,
        num_devices: Out<cl_uint>,
    ) -> Result<(), cl_int> {
        self.expect(platform)?;
        if (num_entries == 0 && devices.wanted()) || (!devices.wanted() && !num_devices.wanted()) {
            return Err(CL_INVALID_VALUE);
        }
        let found = select(self.devices(), device_type)?;
        devices.fill(found.iter().map(|device| device.handle()));
        num_devices.set(found.len() as cl_uint);
        Ok(())
    }

    unsafe fn clGetDeviceInfo(
        &self,
        device: cl_device_id,
        param_name: cl_device_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let device = get::<Device>(device)?;
        match param_name {
            CL_DEVICE_PLATFORM => answer.value(device.platform.0),
            CL_DEVICE_PARENT_DEVICE => answer.value(
                device
                    .parent
                    .as_ref()
                    .map_or(std::ptr::null_mut(), Ref::handle),
            ),
            CL_DEVICE_REFERENCE_COUNT => {
                answer.value(device.parent.as_ref().map_or(1, |_| device.count()))
            }
            CL_DEVICE_SVM_CAPABILITIES if device.limits.version >= (2, 0) => {
                answer.value(device.limits.svm)
            }
            CL_DEVICE_EXECUTION_CAPABILITIES => answer.value(
                info::ulong(&device.provider.device_bytes(device.raw, param_name))
                    & !CL_EXEC_NATIVE_KERNEL,
            ),
            CL_DEVICE_EXTENSIONS => answer.text(&device.limits.extensions.join(" ")),
            CL_DEVICE_EXTENSIONS_WITH_VERSION => {
                let bytes = device.provider.device_bytes(device.raw, param_name);
                if bytes.is_empty() {
                    return device.forward(param_name, &answer);
                }
                let kept: Vec<u8> = bytes
                    .as_chunks::<{ size_of::<cl_name_version>() }>()
                    .0
                    .iter()
                    .filter(|entry| {
                        let name: Vec<u8> = entry[size_of::<cl_version>()..]
                            .iter()
                            .copied()
                            .take_while(|&byte| byte != 0)
                            .collect();
                        info::lets_through(&String::from_utf8_lossy(&name))
                    })
                    .flatten()
                    .copied()
                    .collect();
                answer.bytes(&kept)
            }
            // A session's device has memory of its own machine, whatever it shares there.
            CL_DEVICE_HOST_UNIFIED_MEMORY if device.provider.session.is_some() => {
                answer.value(CL_FALSE)
            }
            _ if masked(param_name) => Err(CL_INVALID_VALUE),
            _ => device.forward(param_name, &answer),
        }
    }

    unsafe fn clCreateSubDevices(
        &self,
        in_device: cl_device_id,
        properties: *const cl_device_partition_property,
        num_devices: cl_uint,
        out_devices: OutList<cl_device_id>,
        num_devices_ret: Out<cl_uint>,
    ) -> Result<(), cl_int> {
        let device = get::<Device>(in_device)?;
        if properties.is_null()
            || (!out_devices.wanted() && !num_devices_ret.wanted())
            || (out_devices.wanted() && num_devices == 0)
        {
            return Err(CL_INVALID_VALUE);
        }
        let mut count = 0;
        check(provider!(
            device.provider.api,
            clCreateSubDevices(
                device.raw.0,
                properties,
                0,
                std::ptr::null_mut(),
                &raw mut count
            )
        ))?;
        if !out_devices.wanted() {
            num_devices_ret.set(count);
            return Ok(());
        }
        if num_devices < count {
            return Err(CL_INVALID_VALUE);
        }
        // The caller's room may be any number.
        let mut raws = vec![std::ptr::null_mut(); count as usize];
        check(provider!(
            device.provider.api,
            clCreateSubDevices(
                device.raw.0,
                properties,
                count,
                raws.as_mut_ptr(),
                &raw mut count
            )
        ))?;
        raws.truncate(count as usize);
        let parts = raws
            .into_iter()
            .map(|raw| Ref::new(Device::part_of(&device, raw)))
            .collect::<Result<Vec<_>, _>>()?;
        num_devices_ret.set(count);
        out_devices.fill(parts.into_iter().map(Ref::publish));
        Ok(())
    }

    unsafe fn clRetainDevice(&self, device: cl_device_id) -> Result<(), cl_int> {
        let device = get::<Device>(device)?;
        if device.parent.is_some() {
            device.retain();
        }
        Ok(())
    }

    unsafe fn clReleaseDevice(&self, device: cl_device_id) -> Result<(), cl_int> {
        let device = get::<Device>(device)?;
        if device.parent.is_some() {
            device.release()?;
        }
        Ok(())
    }
}

/// The devices of the given kinds.
pub(crate) fn select(
    devices: &[Ref<Device>],
    kinds: cl_device_type,
) -> Result<Vec<Ref<Device>>, cl_int> {
    let known = CL_DEVICE_TYPE_DEFAULT
        | CL_DEVICE_TYPE_CPU
        | CL_DEVICE_TYPE_GPU
        | CL_DEVICE_TYPE_ACCELERATOR
        | CL_DEVICE_TYPE_CUSTOM;
    if kinds == 0 || (kinds != CL_DEVICE_TYPE_ALL && kinds & !known != 0) {
        return Err(CL_INVALID_DEVICE_TYPE);
    }
    let found: Vec<Ref<Device>> = devices
        .iter()
        .enumerate()
        .filter(|(index, device)| {
            let kind = device.limits.kind & !CL_DEVICE_TYPE_DEFAULT;
            if kinds == CL_DEVICE_TYPE_ALL {
                kind & CL_DEVICE_TYPE_CUSTOM == 0
            } else {
                kind & kinds != 0 || (kinds & CL_DEVICE_TYPE_DEFAULT != 0 && *index == 0)
            }
        })
        .map(|(_, device)| device.clone())
        .collect();
    if found.is_empty() {
        Err(CL_DEVICE_NOT_FOUND)
    } else {
        Ok(found)
    }
}
