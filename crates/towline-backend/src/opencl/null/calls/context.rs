//! Contexts.

use super::super::super::contract::*;
use super::super::super::handles::{Destructor, Destructors};
use super::super::super::*;
use super::super::registry::Context;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl NullOpenCl {
    fn context(
        &self,
        properties: Vec<cl_context_properties>,
        devices: Vec<usize>,
    ) -> Result<usize, cl_int> {
        for pair in properties.as_chunks::<2>().0.iter() {
            match pair {
                [CL_CONTEXT_PLATFORM, platform] => {
                    self.checked_platform(handle(*platform as usize))?;
                }
                [CL_CONTEXT_INTEROP_USER_SYNC, _] => {}
                _ => return Err(CL_INVALID_PROPERTY),
            }
        }
        let make = |handle| Context {
            handle,
            devices,
            properties,
            destructors: Destructors::default(),
            _alive: self.alive(),
        };
        Ok(self.shared.registry.add(make).0)
    }

    pub(super) unsafe fn clCreateContext(
        &self,
        properties: *const cl_context_properties,
        num_devices: cl_uint,
        devices: *const cl_device_id,
        pfn_notify: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>,
        user_data: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_context {
        let made = (|| {
            // SAFETY: the caller's contract.
            let properties = unsafe { pairs(properties) }?;
            require(num_devices > 0, CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            let devices = unsafe { list(devices, num_devices as usize, CL_INVALID_VALUE) }?;
            require(
                pfn_notify.is_some() || user_data.is_null(),
                CL_INVALID_VALUE,
            )?;
            let mut all = Vec::new();
            for device in devices {
                self.device(device)?;
                if !all.contains(&device.addr()) {
                    all.push(device.addr());
                }
            }
            self.context(properties, all)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    pub(super) unsafe fn clCreateContextFromType(
        &self,
        properties: *const cl_context_properties,
        device_type: cl_device_type,
        pfn_notify: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>,
        user_data: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_context {
        let made = (|| {
            // SAFETY: the caller's contract.
            let properties = unsafe { pairs(properties) }?;
            require(
                pfn_notify.is_some() || user_data.is_null(),
                CL_INVALID_VALUE,
            )?;
            self.context(properties, self.devices_of(device_type)?.to_vec())
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    pub(super) unsafe fn clGetContextInfo(
        &self,
        context: cl_context,
        param_name: cl_context_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Context, _>(context).and_then(|object| {
            let answer = match param_name {
                CL_CONTEXT_REFERENCE_COUNT => self.references(context),
                CL_CONTEXT_NUM_DEVICES => (object.devices.len() as cl_uint).bytes(),
                CL_CONTEXT_DEVICES => object.devices.bytes(),
                CL_CONTEXT_PROPERTIES => object.properties.bytes(),
                _ => return Err(CL_INVALID_VALUE),
            };
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    pub(super) unsafe fn clSetContextDestructorCallback(
        &self,
        context: cl_context,
        pfn_notify: Option<unsafe extern "C" fn(cl_context, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int {
        status(self.get::<Context, _>(context).and_then(|object| {
            let function = pfn_notify.ok_or(CL_INVALID_VALUE)?;
            let destructor = Destructor::new(function, context, user_data);
            object.destructors.add(destructor);
            Ok(())
        }))
    }
}
