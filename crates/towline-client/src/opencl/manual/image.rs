//! Images.

use super::*;

impl Remote {
    unsafe fn create_image(
        &self,
        context: cl_context,
        properties: Option<&[u64]>,
        flags: cl_mem_flags,
        format: *const cl_image_format,
        desc: *const cl_image_desc,
    ) -> Result<cl_mem, cl_int> {
        // SAFETY: the caller's contract: NULL or readable.
        let format = *unsafe { raw::slice(format, 1) }
            .and_then(<[_]>::first)
            .ok_or(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        // SAFETY: as above.
        let desc = *unsafe { raw::slice(desc, 1) }
            .and_then(<[_]>::first)
            .ok_or(CL_INVALID_IMAGE_DESCRIPTOR)?;
        let created = wire::MemHandle(self.mint(wire::MemHandle::TAG));
        let image = Image::new(&format, &desc, flags).ok_or(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        // Pitches describe a host pointer, which does not travel, or a buffer, which does.
        let mut wire_desc = wire::ImageDesc::from(desc);
        if desc.mem_object.is_null() {
            (wire_desc.image_row_pitch, wire_desc.image_slice_pitch) = (0, 0);
        }
        let (context, flags) = (
            wire::ContextHandle::from_raw(context),
            (flags & !HOST_FLAGS) as u64,
        );
        let image_format = wire::ImageFormat::from(format);
        match properties {
            None => {
                let request = wire::CreateImage {
                    context,
                    flags,
                    image_format,
                    image_desc: wire_desc,
                    created,
                };
                self.post(&request)?;
                self.made(created.0, &request);
            }
            Some(list) => {
                let request = wire::CreateImageWithProperties {
                    context,
                    properties: Some(wire::List::Values(list)),
                    flags,
                    image_format,
                    image_desc: wire_desc,
                    created,
                };
                self.post(&request)?;
                self.made(created.0, &request);
            }
        }
        lock(&self.images).insert(created.0, image);
        Ok(created.to_raw())
    }
}

#[allow(non_snake_case, clippy::too_many_arguments)]
impl ImageCalls for Remote {
    unsafe fn clCreateImage(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        image_format: *const cl_image_format,
        image_desc: *const cl_image_desc,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        let _ = host_ptr;
        // SAFETY: the caller's contract of the C function.
        let result = unsafe { self.create_image(context, None, flags, image_format, image_desc) };
        // SAFETY: the caller's contract of the C function.
        unsafe { created(result, errcode_ret) }
    }

    unsafe fn clCreateImageWithProperties(
        &self,
        context: cl_context,
        properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        image_format: *const cl_image_format,
        image_desc: *const cl_image_desc,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_mem {
        let _ = host_ptr;
        // SAFETY: the caller's contract of the C function.
        let list = unsafe { raw::pairs(properties.cast()) };
        // SAFETY: the caller's contract of the C function.
        let result =
            unsafe { self.create_image(context, list.as_deref(), flags, image_format, image_desc) };
        // SAFETY: the caller's contract of the C function.
        unsafe { created(result, errcode_ret) }
    }
}
