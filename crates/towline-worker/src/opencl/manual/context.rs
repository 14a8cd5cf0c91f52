//! Contexts, with the vendor's messages about them, and devices.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::ProtocolError;
use towline_wire::push::Push;

use crate::decode::broken;
use crate::opencl::session::Session;
use crate::opencl::shared::{Raw, Shared};

/// What a vendor's message needs to find its way. Vendors may call back as long as the context lives, so it is never freed.
struct Notice {
    shared: Weak<Shared>,
    context: u64,
}

/// Most new devices of one partition.
const PARTITION_LIMIT: u32 = 1024;

impl Session {
    pub(crate) fn clCreateContext(
        &mut self,
        number: u64,
        request: wire::CreateContext<'_>,
    ) -> Result<(), ProtocolError> {
        let mut status = CL_SUCCESS;
        let mut native: cl_context = std::ptr::null_mut();
        match self.natives(
            request.devices.iter().map(|handle| handle.0),
            wire::DeviceHandle::TAG,
        )? {
            Err(failed) => status = failed,
            Ok(devices) => {
                let notice = Notice {
                    shared: Arc::downgrade(&self.shared),
                    context: request.created.0,
                };
                let (callback, data): (Option<unsafe extern "C" fn(_, _, _, _)>, *mut c_void) =
                    match request.notify {
                        true => (Some(notify), Box::into_raw(Box::new(notice)).cast()),
                        false => (None, std::ptr::null_mut()),
                    };
                // SAFETY: the devices are live; NULL properties leave the platform to the devices.
                native = unsafe {
                    self.api.clCreateContext(
                        std::ptr::null(),
                        devices.len() as cl_uint,
                        devices.as_ptr(),
                        callback,
                        data,
                        &raw mut status,
                    )
                };
            }
        }
        self.born(
            request.created.0,
            wire::ContextHandle::TAG,
            native.cast(),
            status,
        )?;
        self.settle(number, <wire::CreateContext<'_> as Request<'_>>::ID, status);
        Ok(())
    }

    pub(crate) fn PartitionDevice(
        &mut self,
        number: u64,
        request: wire::PartitionDevice<'_>,
    ) -> Result<(), ProtocolError> {
        let mut count: cl_uint = 0;
        let status = match self.native(request.in_device.0, wire::DeviceHandle::TAG)? {
            Err(status) => status,
            Ok(device) => {
                let properties: Vec<cl_device_partition_property> = request
                    .properties
                    .iter()
                    .map(|value| value as cl_device_partition_property)
                    .chain([0])
                    .collect();
                let mut made: Vec<cl_device_id> =
                    vec![std::ptr::null_mut(); request.room.min(PARTITION_LIMIT) as usize];
                // SAFETY: the device is live, the list ends with zero, the room is the vector's.
                let status = unsafe {
                    self.api.clCreateSubDevices(
                        device.cast(),
                        properties.as_ptr(),
                        made.len() as cl_uint,
                        if made.is_empty() {
                            std::ptr::null_mut()
                        } else {
                            made.as_mut_ptr()
                        },
                        &raw mut count,
                    )
                };
                if status == CL_SUCCESS {
                    let mut entered = Ok(());
                    for (index, device) in made.iter().take(count as usize).enumerate() {
                        let id = request.first.wrapping_add(index as u64);
                        let tag = wire::DeviceHandle::TAG;
                        match entered {
                            Ok(()) => entered = self.born(id, tag, device.cast(), status),
                            Err(_) => self.release(tag, Raw(device.cast())),
                        }
                    }
                    entered?;
                }
                status
            }
        };
        self.reply(
            number,
            status,
            &wire::PartitionDeviceReply {
                count: count.into(),
            },
        );
        Ok(())
    }

    pub(crate) fn NameDevices(
        &mut self,
        _number: u64,
        request: wire::NameDevices<'_>,
    ) -> Result<(), ProtocolError> {
        let tag = wire::DeviceHandle::TAG;
        let taken: Result<Vec<_>, _> = request
            .devices
            .iter()
            .map(|device| self.table.remove(device.0, tag))
            .collect();
        for (entry, name) in taken.map_err(broken)?.into_iter().zip(request.names.iter()) {
            self.table.insert(name, tag, entry).map_err(broken)?;
        }
        Ok(())
    }

    pub(crate) fn DeviceTimers(
        &mut self,
        number: u64,
        request: wire::DeviceTimers,
    ) -> Result<(), ProtocolError> {
        let (mut device_time, mut host_time) = (0, 0);
        let status = match self.native(request.device.0, wire::DeviceHandle::TAG)? {
            Err(status) => status,
            // SAFETY: the device is live, both answers are locals.
            Ok(device) => unsafe {
                self.api.clGetDeviceAndHostTimer(
                    device.cast(),
                    &raw mut device_time,
                    &raw mut host_time,
                )
            },
        };
        let reply = wire::DeviceTimersReply {
            device_timestamp: Some(device_time),
            host_timestamp: Some(host_time),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    /// The native objects of a list; `Err` inside when the creation of one failed.
    pub(crate) fn natives<T>(
        &self,
        ids: impl Iterator<Item = u64>,
        tag: u8,
    ) -> Result<Result<SmallVec<[*mut T; 8]>, i32>, ProtocolError> {
        let mut list = SmallVec::new();
        for id in ids {
            match self.native(id, tag)? {
                Ok(raw) => list.push(raw.cast()),
                Err(status) => return Ok(Err(status)),
            }
        }
        Ok(Ok(list))
    }
}

unsafe extern "C" fn notify(
    text: *const c_char,
    _private: *const c_void,
    _size: usize,
    data: *mut c_void,
) {
    // SAFETY: `data` is the notice that was registered and is never freed.
    let notice = unsafe { &*data.cast::<Notice>() };
    let Some(shared) = notice.shared.upgrade() else {
        return;
    };
    if text.is_null() {
        return;
    }
    // SAFETY: the vendor gives a NUL-terminated text.
    let text = unsafe { CStr::from_ptr(text) };
    shared.push(&Push::Notice {
        context: notice.context,
        text: text.to_bytes(),
    });
}
