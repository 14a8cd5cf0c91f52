//! Images: what transfers must know of them.

use super::*;

/// An image as transfers see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Image {
    pub(super) element: usize,
    /// Its second dimension counts layers, whose distance in host memory is the slice pitch.
    pub(super) layers_in_rows: bool,
}

impl Image {
    pub(super) fn new(format: &cl_image_format, desc: &cl_image_desc) -> Self {
        Self {
            element: element_size(format),
            layers_in_rows: desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY,
        }
    }
}

/// Bytes of one element (OpenCL API, 5.3.1.1): channels times their width, or a packed format's own.
#[allow(
    non_upper_case_globals,
    reason = "constants are spelled as the API spells them"
)]
fn element_size(format: &cl_image_format) -> usize {
    let channels = match format.image_channel_order {
        CL_R | CL_A | CL_Rx | CL_INTENSITY | CL_LUMINANCE | CL_DEPTH => 1,
        CL_RG | CL_RA | CL_RGx => 2,
        CL_RGB | CL_RGBx | CL_sRGB => 3,
        CL_DEPTH_STENCIL => 1,
        _ => 4,
    };
    match format.image_channel_data_type {
        CL_SNORM_INT8 | CL_UNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8 => channels,
        CL_SNORM_INT16 | CL_UNORM_INT16 | CL_SIGNED_INT16 | CL_UNSIGNED_INT16 | CL_HALF_FLOAT => {
            channels * 2
        }
        CL_SIGNED_INT32 | CL_UNSIGNED_INT32 | CL_FLOAT => channels * 4,
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 => 2,
        CL_UNORM_INT_101010 | CL_UNORM_INT_101010_2 | CL_UNORM_INT24 => 4,
        _ => channels * 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_the_size_of_their_channels() {
        let size = |order, kind| {
            element_size(&cl_image_format {
                image_channel_order: order,
                image_channel_data_type: kind,
            })
        };
        assert_eq!(size(CL_RGBA, CL_UNORM_INT8), 4);
        assert_eq!(size(CL_R, CL_FLOAT), 4);
        assert_eq!(size(CL_RG, CL_HALF_FLOAT), 4);
        assert_eq!(size(CL_RGBA, CL_FLOAT), 16);
        assert_eq!(size(CL_RGB, CL_UNORM_SHORT_565), 2);
    }
}
