//! Images: created without contents, which travel as writes.

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::ProtocolError;

use super::memory::{IMAGE_FLAGS, plain};
use crate::session::Session;

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
            }
        }
        self.born(created, wire::MemHandle::TAG, native.cast(), status)?;
        self.settle(number, call, status);
        Ok(())
    }
}

/// Bytes of one element of an image. From its format: PoCL 3.1 answers `CL_IMAGE_ELEMENT_SIZE` with the size of one channel.
pub(super) fn element_bytes(api: &dyn OpenClApi, image: cl_mem) -> Result<usize, cl_int> {
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
        format_bytes(&format).ok_or(CL_IMAGE_FORMAT_NOT_SUPPORTED)
    } else {
        Err(status)
    }
}

/// Bytes of one element (OpenCL API, 5.3.1.1): channels times their width, or a packed format's own.
#[allow(
    non_upper_case_globals,
    reason = "constants are spelled as the API spells them"
)]
fn format_bytes(format: &cl_image_format) -> Option<usize> {
    let channels = match format.image_channel_order {
        CL_R | CL_A | CL_Rx | CL_INTENSITY | CL_LUMINANCE | CL_DEPTH | CL_DEPTH_STENCIL => 1,
        CL_RG | CL_RA | CL_RGx => 2,
        CL_RGB | CL_RGBx | CL_sRGB => 3,
        CL_RGBA | CL_BGRA | CL_ARGB | CL_ABGR | CL_sRGBx | CL_sRGBA | CL_sBGRA => 4,
        _ => return None,
    };
    Some(match format.image_channel_data_type {
        CL_SNORM_INT8 | CL_UNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8 => channels,
        CL_SNORM_INT16 | CL_UNORM_INT16 | CL_SIGNED_INT16 | CL_UNSIGNED_INT16 | CL_HALF_FLOAT => {
            channels * 2
        }
        CL_SIGNED_INT32 | CL_UNSIGNED_INT32 | CL_FLOAT => channels * 4,
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 => 2,
        CL_UNORM_INT_101010 | CL_UNORM_INT_101010_2 | CL_UNORM_INT24 => 4,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_the_size_of_their_channels() {
        let bytes = |order, kind| {
            format_bytes(&cl_image_format {
                image_channel_order: order,
                image_channel_data_type: kind,
            })
        };
        assert_eq!(bytes(CL_R, CL_UNORM_INT8), Some(1));
        assert_eq!(bytes(CL_RG, CL_HALF_FLOAT), Some(4));
        assert_eq!(bytes(CL_RGBA, CL_FLOAT), Some(16));
        assert_eq!(bytes(CL_RGB, CL_UNORM_SHORT_565), Some(2));
        assert_eq!(bytes(CL_DEPTH_STENCIL, CL_UNORM_INT24), Some(4));
        assert_eq!(bytes(0, CL_FLOAT), None);
        assert_eq!(bytes(CL_R, 0), None);
    }
}
