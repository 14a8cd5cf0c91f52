//! Images: what transfers must know of them.

use super::*;

/// An image as transfers see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Image {
    pub(super) element: usize,
    /// Its second dimension counts layers, whose distance in host memory is the slice pitch.
    pub(super) layers_in_rows: bool,
    /// The flags that it was made with.
    pub(super) flags: cl_mem_flags,
}

impl Image {
    /// `None` for a format that there is not.
    pub(super) fn new(
        format: &cl_image_format,
        desc: &cl_image_desc,
        flags: cl_mem_flags,
    ) -> Option<Self> {
        Some(Self {
            flags,
            element: element_bytes(format)?,
            layers_in_rows: desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY,
        })
    }
}
