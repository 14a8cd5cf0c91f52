//! Images: created without contents, which travel as writes.

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::ProtocolError;

use super::memory::{IMAGE_FLAGS, plain};
use crate::link::Charge;
use crate::opencl::session::Session;

impl Session {
    pub(crate) fn clCreateImage(
        &mut self,
        number: u64,
        request: wire::CreateImage,
    ) -> Result<(), ProtocolError> {
        let created = request.created.0;
        let call = <wire::CreateImage as Request<'_>>::ID;
        self.create_image(
            number,
            call,
            created,
            true,
            request.context,
            request.flags,
            request.image_format,
            request.image_desc,
        )
    }

    pub(crate) fn clCreateImageWithProperties(
        &mut self,
        number: u64,
        request: wire::CreateImageWithProperties<'_>,
    ) -> Result<(), ProtocolError> {
        let created = request.created.0;
        let call = <wire::CreateImageWithProperties<'_> as Request<'_>>::ID;
        self.create_image(
            number,
            call,
            created,
            plain(request.properties),
            request.context,
            request.flags,
            request.image_format,
            request.image_desc,
        )
    }

    /// Bytes of a memory object.
    fn bytes_of(&self, memory: cl_mem) -> u64 {
        let mut bytes = 0_usize;
        // SAFETY: the object is live; the answer is one size.
        unsafe {
            self.api.clGetMemObjectInfo(
                memory,
                CL_MEM_SIZE,
                size_of::<usize>(),
                (&raw mut bytes).cast(),
                std::ptr::null_mut(),
            )
        };
        bytes as u64
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "two calls share it, each with its own request"
    )]
    fn create_image(
        &mut self,
        number: u64,
        call: u16,
        created: u64,
        plain: bool,
        context: wire::ContextHandle,
        flags: u64,
        format: wire::ImageFormat,
        desc: wire::ImageDesc,
    ) -> Result<(), ProtocolError> {
        let mut status = CL_SUCCESS;
        let mut native: cl_mem = std::ptr::null_mut();
        let parent = self.native(desc.mem_object.0, wire::MemHandle::TAG)?;
        match (self.native(context.0, wire::ContextHandle::TAG)?, parent) {
            (Err(failed), _) | (_, Err(failed)) => status = failed,
            (Ok(_), Ok(_)) if !plain => status = CL_INVALID_PROPERTY,
            (Ok(_), Ok(_)) if flags as cl_mem_flags & !IMAGE_FLAGS != 0 => {
                status = CL_INVALID_VALUE;
            }
            (Ok(context), Ok(parent)) => {
                let format = format.to_raw();
                let mut desc = desc.to_raw();
                desc.mem_object = parent.cast();
                // SAFETY: the context is live, format and description are locals, no host pointer is named by the flags.
                native = unsafe {
                    self.api.clCreateImage(
                        context.cast(),
                        flags as cl_mem_flags,
                        &raw const format,
                        &raw const desc,
                        std::ptr::null_mut(),
                        &raw mut status,
                    )
                };
                // What is an image of a buffer has its memory.
                if !native.is_null() && desc.mem_object.is_null() {
                    (native, status) =
                        match Charge::new(&self.shared.counters, self.bytes_of(native)) {
                            Some(charge) => self.charged(native, status, charge),
                            None => {
                                // SAFETY: the image was made just now, and is in no table.
                                unsafe { self.api.clReleaseMemObject(native) };
                                (std::ptr::null_mut(), CL_MEM_OBJECT_ALLOCATION_FAILURE)
                            }
                        };
                }
            }
        }
        self.born(created, wire::MemHandle::TAG, native.cast(), status)?;
        self.settle(number, call, status);
        Ok(())
    }
}

/// Bytes of one element of an image, from its format.
pub(super) fn element_of(api: &dyn OpenClApi, image: cl_mem) -> Result<usize, cl_int> {
    let mut format = cl_image_format {
        image_channel_order: 0,
        image_channel_data_type: 0,
    };
    // SAFETY: the image is live or NULL; the answer is one format.
    let status = unsafe {
        api.clGetImageInfo(
            image,
            CL_IMAGE_FORMAT,
            size_of::<cl_image_format>(),
            (&raw mut format).cast(),
            std::ptr::null_mut(),
        )
    };
    if status == CL_SUCCESS {
        element_bytes(&format).ok_or(CL_IMAGE_FORMAT_NOT_SUPPORTED)
    } else {
        Err(status)
    }
}
