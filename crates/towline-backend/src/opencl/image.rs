//! Formats of images, which both ends of a transfer must measure alike.

use super::*;

/// Bytes of one element of an image (OpenCL API, 5.3.1.1), or nothing where order and type of the channels do not go together.
///
/// Vendors are not asked: PoCL 3.1 answers `CL_IMAGE_ELEMENT_SIZE` with the size of one channel.
#[allow(
    non_upper_case_globals,
    reason = "constants are spelled as the API spells them"
)]
pub fn element_bytes(format: &cl_image_format) -> Option<usize> {
    let channels = match format.image_channel_order {
        CL_R | CL_A | CL_INTENSITY | CL_LUMINANCE | CL_DEPTH | CL_Rx => 1,
        CL_RG | CL_RA | CL_RGx => 2,
        CL_RGB | CL_RGBx | CL_sRGB | CL_sRGBx => 3,
        CL_RGBA | CL_BGRA | CL_ARGB | CL_ABGR | CL_sRGBA | CL_sBGRA => 4,
        CL_DEPTH_STENCIL => 1,
        _ => return None,
    };
    let bytes = match format.image_channel_data_type {
        CL_SNORM_INT8 | CL_UNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8 => 1,
        CL_SNORM_INT16 | CL_UNORM_INT16 | CL_SIGNED_INT16 | CL_UNSIGNED_INT16 | CL_HALF_FLOAT => 2,
        CL_SIGNED_INT32 | CL_UNSIGNED_INT32 | CL_FLOAT => 4,
        // Packed types hold the whole texel.
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 => return (channels == 3).then_some(2),
        CL_UNORM_INT_101010 => return (channels == 3).then_some(4),
        CL_UNORM_INT_101010_2 => return (channels == 4).then_some(4),
        CL_UNORM_INT24 => {
            return (format.image_channel_order == CL_DEPTH_STENCIL).then_some(4);
        }
        _ => return None,
    };
    let eight_bits = bytes == 1;
    match format.image_channel_order {
        // These orders exist for packed types only, or for bytes only.
        CL_RGB | CL_RGBx => None,
        CL_BGRA | CL_ARGB | CL_ABGR if !eight_bits => None,
        CL_sRGB | CL_sRGBx | CL_sRGBA | CL_sBGRA
            if format.image_channel_data_type != CL_UNORM_INT8 =>
        {
            None
        }
        CL_DEPTH if !matches!(format.image_channel_data_type, CL_UNORM_INT16 | CL_FLOAT) => None,
        CL_DEPTH_STENCIL if format.image_channel_data_type == CL_FLOAT => Some(8),
        CL_DEPTH_STENCIL => None,
        CL_INTENSITY | CL_LUMINANCE
            if !matches!(
                format.image_channel_data_type,
                CL_UNORM_INT8
                    | CL_UNORM_INT16
                    | CL_SNORM_INT8
                    | CL_SNORM_INT16
                    | CL_HALF_FLOAT
                    | CL_FLOAT
            ) =>
        {
            None
        }
        _ => Some(channels * bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(order: cl_channel_order, kind: cl_channel_type) -> Option<usize> {
        element_bytes(&cl_image_format {
            image_channel_order: order,
            image_channel_data_type: kind,
        })
    }

    #[test]
    fn elements_have_the_size_of_their_channels() {
        assert_eq!(bytes(CL_R, CL_UNORM_INT8), Some(1));
        assert_eq!(bytes(CL_RG, CL_HALF_FLOAT), Some(4));
        assert_eq!(bytes(CL_RGBA, CL_UNORM_INT8), Some(4));
        assert_eq!(bytes(CL_RGBA, CL_FLOAT), Some(16));
        // The x of these is no memory: a border's alpha alone.
        assert_eq!(bytes(CL_RGx, CL_UNORM_INT8), Some(2));
        assert_eq!(bytes(CL_sRGBx, CL_UNORM_INT8), Some(3));
    }

    #[test]
    fn packed_elements_have_the_size_of_the_whole() {
        assert_eq!(bytes(CL_RGB, CL_UNORM_SHORT_565), Some(2));
        assert_eq!(bytes(CL_RGBA, CL_UNORM_INT_101010_2), Some(4));
        assert_eq!(bytes(CL_DEPTH_STENCIL, CL_UNORM_INT24), Some(4));
        assert_eq!(bytes(CL_DEPTH_STENCIL, CL_FLOAT), Some(8));
    }

    #[test]
    fn channels_that_do_not_go_together_have_no_size() {
        assert_eq!(bytes(0, CL_FLOAT), None);
        assert_eq!(bytes(CL_R, 0), None);
        assert_eq!(bytes(CL_RGB, CL_UNORM_INT8), None);
        assert_eq!(bytes(CL_BGRA, CL_FLOAT), None);
    }
}
