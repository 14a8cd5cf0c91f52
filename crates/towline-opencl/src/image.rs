//! Images: formats, shapes, pitches, and the queries about them.

use std::ffi::c_void;
use std::sync::PoisonError;

use towline_backend::opencl::*;

use crate::arena::{Ref, get};
use crate::coherence::Access;
use crate::context::Context;
use crate::device::Device;
use crate::memory::{
    Beginning, Form, Mem, buffer, check_flags, check_host_ptr, check_properties, inherit,
    or_default, with_default_access,
};
use crate::platform::{ImageCalls, Platform};
use crate::raw::{Answer, Out, OutList, check, provider};

/// An image as the application describes it, without the object it is made from.
#[derive(Clone, Copy, Default)]
pub(crate) struct Desc {
    pub(crate) image_type: cl_mem_object_type,
    image_width: usize,
    image_height: usize,
    image_depth: usize,
    image_array_size: usize,
    image_row_pitch: usize,
    image_slice_pitch: usize,
}

/// The shape of an image.
pub(crate) struct Shape {
    pub(crate) format: cl_image_format,
    pub(crate) desc: Desc,
    pub(crate) element_size: usize,
    /// Pitches of the application's memory behind it, without zeros.
    pub(crate) row_pitch: usize,
    pub(crate) slice_pitch: usize,
}

impl Shape {
    fn kind(&self) -> cl_mem_object_type {
        self.desc.image_type
    }

    /// Whether there is a pitch between slices or layers.
    pub(crate) fn has_slices(&self) -> bool {
        matches!(
            self.kind(),
            CL_MEM_OBJECT_IMAGE3D | CL_MEM_OBJECT_IMAGE2D_ARRAY | CL_MEM_OBJECT_IMAGE1D_ARRAY
        )
    }

    /// All of it, as commands name regions.
    pub(crate) fn region(&self) -> [usize; 3] {
        let desc = &self.desc;
        match self.kind() {
            CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_BUFFER => [desc.image_width, 1, 1],
            CL_MEM_OBJECT_IMAGE1D_ARRAY => [desc.image_width, desc.image_array_size, 1],
            CL_MEM_OBJECT_IMAGE2D => [desc.image_width, desc.image_height, 1],
            CL_MEM_OBJECT_IMAGE2D_ARRAY => {
                [desc.image_width, desc.image_height, desc.image_array_size]
            }
            _ => [desc.image_width, desc.image_height, desc.image_depth],
        }
    }

    /// Pitches without gaps.
    pub(crate) fn packed_pitches(&self) -> (usize, usize) {
        let row = self.desc.image_width * self.element_size;
        let slice = match self.kind() {
            CL_MEM_OBJECT_IMAGE3D | CL_MEM_OBJECT_IMAGE2D_ARRAY => row * self.desc.image_height,
            CL_MEM_OBJECT_IMAGE1D_ARRAY => row,
            _ => row * self.region()[1],
        };
        (row, slice)
    }

    /// Bytes of a region without gaps.
    pub(crate) fn packed_size(&self, region: &[usize]) -> Option<usize> {
        region
            .iter()
            .try_fold(self.element_size, |size, &len| size.checked_mul(len))
    }

    /// Where a texel lies in memory of these pitches.
    pub(crate) fn place_of(
        &self,
        origin: &[usize; 3],
        row_pitch: usize,
        slice_pitch: usize,
    ) -> usize {
        let x = origin[0] * self.element_size;
        if self.kind() == CL_MEM_OBJECT_IMAGE1D_ARRAY {
            return x + origin[1] * slice_pitch;
        }
        x + origin[1] * row_pitch + origin[2] * slice_pitch
    }

    /// The slice pitch as commands take it: zero where there are no slices.
    pub(crate) fn slice_argument(&self, slice_pitch: usize) -> usize {
        if self.has_slices() { slice_pitch } else { 0 }
    }

    /// Whether a command may name this region.
    pub(crate) fn expect_region(&self, origin: &[usize], region: &[usize]) -> Result<(), cl_int> {
        let all = self.region();
        for axis in 0..3 {
            match origin[axis].checked_add(region[axis]) {
                Some(end) if region[axis] > 0 && end <= all[axis] => {}
                _ => return Err(CL_INVALID_VALUE),
            }
        }
        Ok(())
    }

    /// Whether pitches of host memory fit the region; zero means no gaps.
    pub(crate) fn expect_host_pitches(
        &self,
        region: &[usize],
        row_pitch: usize,
        slice_pitch: usize,
    ) -> Result<(), cl_int> {
        let row = region[0] * self.element_size;
        if row_pitch != 0 && row_pitch < row {
            return Err(CL_INVALID_VALUE);
        }
        let layers_in_rows = self.kind() == CL_MEM_OBJECT_IMAGE1D_ARRAY;
        let (rows, slices) = if layers_in_rows {
            (1, region[1])
        } else {
            (region[1], region[2])
        };
        let least = row_pitch.max(row).checked_mul(rows);
        let least = least.ok_or(CL_INVALID_VALUE)?;
        if slice_pitch != 0 && (!self.has_slices() || slice_pitch < least) {
            return Err(CL_INVALID_VALUE);
        }
        // The region must lie within the address space.
        let reached = slice_pitch.max(least).checked_mul(slices);
        reached.map(drop).ok_or(CL_INVALID_VALUE)
    }

    /// What writing a region does to the image.
    pub(crate) fn access_to(&self, region: &[usize]) -> Access {
        if region == self.region() {
            Access::Replace
        } else {
            Access::Modify
        }
    }

    /// Copies the application's contents, at its pitches, to memory without gaps.
    pub(crate) fn pack(&self, from: *mut c_void, to: *mut c_void) {
        let (row, slice) = self.packed_pitches();
        let [_, height, depth] = self.region();
        for z in 0..depth {
            for y in 0..height {
                let origin = [0, y, z];
                let source = self.place_of(&origin, self.row_pitch, self.slice_pitch);
                let target = self.place_of(&origin, row, slice);
                // SAFETY: the application's contract: `from` holds the image at its pitches; `to` holds it without gaps and is new.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        from.wrapping_byte_add(source).cast::<u8>(),
                        to.wrapping_byte_add(target).cast::<u8>(),
                        row,
                    )
                };
            }
        }
    }

    /// The description for a provider.
    pub(crate) fn desc_on_provider(
        &self,
        parent: cl_mem,
        packed: bool,
        empty: bool,
    ) -> cl_image_desc {
        let own = self.desc;
        let pitched = !parent.is_null() || !(packed || empty);
        cl_image_desc {
            image_type: own.image_type,
            image_width: own.image_width,
            image_height: own.image_height,
            image_depth: own.image_depth,
            image_array_size: own.image_array_size,
            image_row_pitch: if pitched { own.image_row_pitch } else { 0 },
            image_slice_pitch: if pitched { own.image_slice_pitch } else { 0 },
            num_mip_levels: 0,
            num_samples: 0,
            mem_object: parent,
        }
    }
}

/// Checks pitches of a new image: given only with host memory, and without overlap.
fn pitches(desc: &Desc, element: usize, host: bool) -> Result<(usize, usize), cl_int> {
    let row = desc
        .image_width
        .checked_mul(element)
        .ok_or(CL_INVALID_IMAGE_SIZE)?;
    if (desc.image_row_pitch != 0
        && (!host || desc.image_row_pitch < row || !desc.image_row_pitch.is_multiple_of(element)))
        || (desc.image_slice_pitch != 0 && !host)
    {
        return Err(CL_INVALID_IMAGE_DESCRIPTOR);
    }
    let row = desc.image_row_pitch.max(row);
    let rows = match desc.image_type {
        CL_MEM_OBJECT_IMAGE2D | CL_MEM_OBJECT_IMAGE3D | CL_MEM_OBJECT_IMAGE2D_ARRAY => {
            desc.image_height
        }
        _ => 1,
    };
    let slice = row.checked_mul(rows).ok_or(CL_INVALID_IMAGE_SIZE)?;
    let sliced = matches!(
        desc.image_type,
        CL_MEM_OBJECT_IMAGE3D | CL_MEM_OBJECT_IMAGE2D_ARRAY | CL_MEM_OBJECT_IMAGE1D_ARRAY
    );
    if sliced
        && desc.image_slice_pitch != 0
        && (desc.image_slice_pitch < slice || !desc.image_slice_pitch.is_multiple_of(row))
    {
        return Err(CL_INVALID_IMAGE_DESCRIPTOR);
    }
    Ok((
        row,
        if sliced {
            desc.image_slice_pitch.max(slice)
        } else {
            slice
        },
    ))
}

/// Checks the size of a new image against what at least one device can hold.
fn check_size(context: &Context, desc: &Desc) -> Result<(), cl_int> {
    let needs_height = !matches!(
        desc.image_type,
        CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_ARRAY | CL_MEM_OBJECT_IMAGE1D_BUFFER
    );
    let array = matches!(
        desc.image_type,
        CL_MEM_OBJECT_IMAGE1D_ARRAY | CL_MEM_OBJECT_IMAGE2D_ARRAY
    );
    let deep = desc.image_type == CL_MEM_OBJECT_IMAGE3D;
    if desc.image_width == 0
        || (needs_height && desc.image_height == 0)
        || (array && desc.image_array_size == 0)
        || (deep && desc.image_depth == 0)
    {
        return Err(CL_INVALID_IMAGE_SIZE);
    }
    let (w, h) = (desc.image_width, desc.image_height);
    let fits = context
        .devices
        .iter()
        .filter_map(|device| device.limits.images.as_ref())
        .any(|limits| {
            let layers = !array || desc.image_array_size <= limits.array;
            layers
                && match desc.image_type {
                    CL_MEM_OBJECT_IMAGE1D_BUFFER => w <= limits.buffer,
                    CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_ARRAY => w <= limits.width_2d,
                    CL_MEM_OBJECT_IMAGE3D => {
                        w <= limits.width_3d
                            && h <= limits.height_3d
                            && desc.image_depth <= limits.depth_3d
                    }
                    _ => w <= limits.width_2d && h <= limits.height_2d,
                }
        });
    if fits {
        Ok(())
    } else {
        Err(CL_INVALID_IMAGE_SIZE)
    }
}

fn create(
    context: cl_context,
    properties: Option<&[cl_mem_properties]>,
    flags: cl_mem_flags,
    format: Option<&cl_image_format>,
    desc: Option<&cl_image_desc>,
    host_ptr: *mut c_void,
) -> Result<cl_mem, cl_int> {
    let context = get::<Context>(context)?;
    check_properties(properties)?;
    check_flags(flags)?;
    let format = *format.ok_or(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
    let element = element_bytes(&format).ok_or(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
    let given = desc.ok_or(CL_INVALID_IMAGE_DESCRIPTOR)?;
    let desc = Desc {
        image_type: given.image_type,
        image_width: given.image_width,
        image_height: given.image_height,
        image_depth: given.image_depth,
        image_array_size: given.image_array_size,
        image_row_pitch: given.image_row_pitch,
        image_slice_pitch: given.image_slice_pitch,
    };
    if !(CL_MEM_OBJECT_IMAGE2D..=CL_MEM_OBJECT_IMAGE1D_BUFFER).contains(&desc.image_type)
        || given.num_mip_levels != 0
        || given.num_samples != 0
    {
        return Err(CL_INVALID_IMAGE_DESCRIPTOR);
    }
    if context
        .devices
        .iter()
        .all(|device| device.limits.images.is_none())
    {
        return Err(CL_INVALID_OPERATION);
    }
    if desc.image_type == CL_MEM_OBJECT_IMAGE2D
        && buffer(given.mem_object).is_ok()
        && !context
            .devices
            .iter()
            .any(|device| images_of_buffers(device))
    {
        return Err(CL_INVALID_OPERATION);
    }
    check_size(&context, &desc)?;
    let parent = match (given.mem_object.is_null(), given.image_type) {
        (true, CL_MEM_OBJECT_IMAGE1D_BUFFER) => return Err(CL_INVALID_IMAGE_DESCRIPTOR),
        (true, _) => None,
        (false, CL_MEM_OBJECT_IMAGE1D_BUFFER | CL_MEM_OBJECT_IMAGE2D) => {
            Some(get::<Mem>(given.mem_object).map_err(|_| CL_INVALID_IMAGE_DESCRIPTOR)?)
        }
        (false, _) => return Err(CL_INVALID_IMAGE_DESCRIPTOR),
    };
    let Some(parent) = parent else {
        check_host_ptr(flags, host_ptr)?;
        let (row_pitch, slice_pitch) = pitches(&desc, element, !host_ptr.is_null())?;
        expect_format(
            &context,
            with_default_access(flags),
            desc.image_type,
            &format,
        )?;
        let shape = Shape {
            format,
            desc,
            element_size: element,
            row_pitch,
            slice_pitch,
        };
        let [_, height, depth] = shape.region();
        let size = match desc.image_type {
            CL_MEM_OBJECT_IMAGE1D_ARRAY => slice_pitch.checked_mul(height),
            _ => slice_pitch.checked_mul(depth),
        };
        return Beginning {
            context,
            form: Form::Image(shape),
            flags: or_default(flags),
            size: size.ok_or(CL_INVALID_IMAGE_SIZE)?,
            host_ptr,
            svm: None,
            parent: None,
            offset: 0,
            properties: properties.unwrap_or(&[]).to_vec(),
        }
        .open();
    };
    if !parent.context.is(&context) {
        return Err(CL_INVALID_CONTEXT);
    }
    let flags = inherit(&parent, flags)?;
    if !host_ptr.is_null() {
        return Err(CL_INVALID_HOST_PTR);
    }
    let (row_pitch, slice_pitch, size) = from_memory(&context, &parent, &format, &desc, element)?;
    expect_format(
        &context,
        with_default_access(flags),
        desc.image_type,
        &format,
    )?;
    let host_ptr = parent.host_ptr.0;
    Beginning {
        context,
        form: Form::Image(Shape {
            format,
            desc,
            element_size: element,
            row_pitch,
            slice_pitch,
        }),
        flags,
        size,
        host_ptr,
        svm: None,
        offset: 0,
        parent: Some(parent),
        properties: properties.unwrap_or(&[]).to_vec(),
    }
    .open()
}

/// Whether the device makes two-dimensional images from buffers.
fn images_of_buffers(device: &Device) -> bool {
    let images = device.limits.images.as_ref();
    images.is_some_and(|images| images.pitch_alignment != 0)
        && (device.limits.has("cl_khr_image2d_from_buffer") || device.limits.version >= (2, 0))
}

/// Checks an image that is made from a buffer or from another image; answers row pitch, slice pitch and size.
fn from_memory(
    context: &Context,
    parent: &Mem,
    format: &cl_image_format,
    desc: &Desc,
    element: usize,
) -> Result<(usize, usize, usize), cl_int> {
    let row = desc.image_width * element;
    if let Form::Image(other) = &parent.form {
        // The same texels under another order: sizes must agree, and the application gives no pitches.
        if desc.image_type != CL_MEM_OBJECT_IMAGE2D
            || other.kind() != CL_MEM_OBJECT_IMAGE2D
            || other.desc.image_width != desc.image_width
            || other.desc.image_height != desc.image_height
        {
            return Err(CL_INVALID_IMAGE_DESCRIPTOR);
        }
        if other.format.image_channel_data_type != format.image_channel_data_type
            || other.element_size != element
        {
            return Err(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
        }
        return Ok((other.row_pitch, other.slice_pitch, parent.size));
    }
    if !parent.is_buffer() {
        return Err(CL_INVALID_IMAGE_DESCRIPTOR);
    }
    if desc.image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER {
        return if row <= parent.size {
            Ok((row, row, row))
        } else {
            Err(CL_INVALID_IMAGE_SIZE)
        };
    }
    let pitch = desc.image_row_pitch.max(row);
    let able = context.devices.iter().any(|device| {
        let pitched = device.limits.images.as_ref().is_some_and(|images| {
            pitch.is_multiple_of(images.pitch_alignment as usize * element)
                && (parent.offset / element).is_multiple_of(images.base_alignment.max(1) as usize)
        });
        images_of_buffers(device) && pitched
    });
    if !able || desc.image_row_pitch != 0 && desc.image_row_pitch < row {
        return Err(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    }
    match pitch.checked_mul(desc.image_height) {
        Some(size) if size <= parent.size => Ok((pitch, size, size)),
        _ => Err(CL_INVALID_IMAGE_SIZE),
    }
}

/// The formats that every provider of the context offers for such images; asked for once.
fn formats(
    context: &Context,
    flags: cl_mem_flags,
    image_type: cl_mem_object_type,
) -> Result<Vec<cl_image_format>, cl_int> {
    let key = (flags, image_type);
    let mut cache = context
        .formats
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = cache.get(&key) {
        return Ok(known.clone());
    }
    let mut common: Option<Vec<cl_image_format>> = None;
    for part in &context.parts {
        if part
            .devices
            .iter()
            .all(|device| device.limits.images.is_none())
        {
            continue;
        }
        let api = &part.provider.api;
        let mut count = 0;
        check(provider!(
            api,
            clGetSupportedImageFormats(
                part.raw.0,
                flags,
                image_type,
                0,
                std::ptr::null_mut(),
                &raw mut count
            )
        ))?;
        let empty = cl_image_format {
            image_channel_order: 0,
            image_channel_data_type: 0,
        };
        let mut offered = vec![empty; count as usize];
        if count > 0 {
            check(provider!(
                api,
                clGetSupportedImageFormats(
                    part.raw.0,
                    flags,
                    image_type,
                    count,
                    offered.as_mut_ptr(),
                    std::ptr::null_mut()
                )
            ))?;
        }
        common = Some(match common {
            None => offered,
            Some(mut common) => {
                common.retain(|format| offered.contains(format));
                common
            }
        });
    }
    let common = common.unwrap_or_default();
    cache.insert(key, common.clone());
    Ok(common)
}

fn expect_format(
    context: &Context,
    flags: cl_mem_flags,
    image_type: cl_mem_object_type,
    format: &cl_image_format,
) -> Result<(), cl_int> {
    let access = flags & (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY);
    if formats(context, access, image_type)?.contains(format) {
        Ok(())
    } else {
        Err(CL_IMAGE_FORMAT_NOT_SUPPORTED)
    }
}

fn plain_desc(image_type: cl_mem_object_type) -> cl_image_desc {
    cl_image_desc {
        image_type,
        image_width: 0,
        image_height: 0,
        image_depth: 0,
        image_array_size: 0,
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        mem_object: std::ptr::null_mut(),
    }
}

/// The older functions have one error for sizes and pitches.
fn as_size(status: cl_int) -> cl_int {
    match status {
        CL_INVALID_IMAGE_DESCRIPTOR => CL_INVALID_IMAGE_SIZE,
        other => other,
    }
}

impl ImageCalls for Platform {
    unsafe fn clCreateImage(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        image_format: Option<&cl_image_format>,
        image_desc: Option<&cl_image_desc>,
        host_ptr: *mut c_void,
    ) -> Result<cl_mem, cl_int> {
        create(context, None, flags, image_format, image_desc, host_ptr)
    }

    unsafe fn clCreateImageWithProperties(
        &self,
        context: cl_context,
        properties: Option<&[cl_mem_properties]>,
        flags: cl_mem_flags,
        image_format: Option<&cl_image_format>,
        image_desc: Option<&cl_image_desc>,
        host_ptr: *mut c_void,
    ) -> Result<cl_mem, cl_int> {
        create(
            context,
            properties,
            flags,
            image_format,
            image_desc,
            host_ptr,
        )
    }

    unsafe fn clCreateImage2D(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        image_format: Option<&cl_image_format>,
        image_width: usize,
        image_height: usize,
        image_row_pitch: usize,
        host_ptr: *mut c_void,
    ) -> Result<cl_mem, cl_int> {
        let desc = cl_image_desc {
            image_width,
            image_height,
            image_row_pitch,
            ..plain_desc(CL_MEM_OBJECT_IMAGE2D)
        };
        create(context, None, flags, image_format, Some(&desc), host_ptr).map_err(as_size)
    }

    unsafe fn clCreateImage3D(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        image_format: Option<&cl_image_format>,
        image_width: usize,
        image_height: usize,
        image_depth: usize,
        image_row_pitch: usize,
        image_slice_pitch: usize,
        host_ptr: *mut c_void,
    ) -> Result<cl_mem, cl_int> {
        // This function wants real depth; `clCreateImage` does not.
        if image_depth <= 1 {
            return Err(CL_INVALID_IMAGE_SIZE);
        }
        let desc = cl_image_desc {
            image_width,
            image_height,
            image_depth,
            image_row_pitch,
            image_slice_pitch,
            ..plain_desc(CL_MEM_OBJECT_IMAGE3D)
        };
        create(context, None, flags, image_format, Some(&desc), host_ptr).map_err(as_size)
    }

    unsafe fn clGetSupportedImageFormats(
        &self,
        context: cl_context,
        flags: cl_mem_flags,
        image_type: cl_mem_object_type,
        num_entries: cl_uint,
        image_formats: OutList<cl_image_format>,
        num_image_formats: Out<cl_uint>,
    ) -> Result<(), cl_int> {
        let context = get::<Context>(context)?;
        if !(CL_MEM_OBJECT_IMAGE2D..=CL_MEM_OBJECT_IMAGE1D_BUFFER).contains(&image_type)
            || (num_entries == 0 && image_formats.wanted())
        {
            return Err(CL_INVALID_VALUE);
        }
        if flags & CL_MEM_KERNEL_READ_AND_WRITE == 0 {
            check_flags(flags)?;
        }
        let formats = formats(&context, flags, image_type)?;
        num_image_formats.set(formats.len() as cl_uint);
        image_formats.fill(formats);
        Ok(())
    }

    unsafe fn clGetImageInfo(
        &self,
        image: cl_mem,
        param_name: cl_image_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let mem = get::<Mem>(image)?;
        let shape = mem.shape()?;
        let desc = &shape.desc;
        let kind = shape.kind();
        let only = |kinds: &[cl_mem_object_type], value: usize| {
            answer.value(if kinds.contains(&kind) { value } else { 0 })
        };
        match param_name {
            CL_IMAGE_FORMAT => answer.value(shape.format),
            CL_IMAGE_ELEMENT_SIZE => answer.value(shape.element_size),
            CL_IMAGE_ROW_PITCH => answer.value(shape.row_pitch),
            CL_IMAGE_SLICE_PITCH => answer.value(if shape.has_slices() {
                shape.slice_pitch
            } else {
                0
            }),
            CL_IMAGE_WIDTH => answer.value(desc.image_width),
            CL_IMAGE_HEIGHT => only(
                &[
                    CL_MEM_OBJECT_IMAGE2D,
                    CL_MEM_OBJECT_IMAGE3D,
                    CL_MEM_OBJECT_IMAGE2D_ARRAY,
                ],
                desc.image_height,
            ),
            CL_IMAGE_DEPTH => only(&[CL_MEM_OBJECT_IMAGE3D], desc.image_depth),
            CL_IMAGE_ARRAY_SIZE => only(
                &[CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE2D_ARRAY],
                desc.image_array_size,
            ),
            CL_IMAGE_BUFFER => answer.value(
                mem.parent
                    .as_ref()
                    .filter(|parent| parent.is_buffer())
                    .map_or(std::ptr::null_mut(), Ref::handle),
            ),
            CL_IMAGE_NUM_MIP_LEVELS | CL_IMAGE_NUM_SAMPLES => answer.value::<cl_uint>(0),
            _ => Err(CL_INVALID_VALUE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitches_need_host_memory_and_room_for_a_row() {
        let mut desc = Desc {
            image_type: CL_MEM_OBJECT_IMAGE2D,
            image_width: 4,
            image_height: 2,
            ..Desc::default()
        };
        assert_eq!(pitches(&desc, 4, false), Ok((16, 32)));
        desc.image_row_pitch = 12;
        assert_eq!(pitches(&desc, 4, true), Err(CL_INVALID_IMAGE_DESCRIPTOR));
        desc.image_row_pitch = 32;
        assert_eq!(pitches(&desc, 4, true), Ok((32, 64)));
        assert_eq!(pitches(&desc, 4, false), Err(CL_INVALID_IMAGE_DESCRIPTOR));
    }

    #[test]
    fn host_memory_of_a_region_ends_within_the_address_space() {
        let shape = |image_type| Shape {
            format: cl_image_format {
                image_channel_order: CL_RGBA,
                image_channel_data_type: CL_UNORM_INT8,
            },
            desc: Desc {
                image_type,
                image_width: 4,
                image_height: 4,
                image_depth: 4,
                image_array_size: 4,
                ..Desc::default()
            },
            element_size: 4,
            row_pitch: 16,
            slice_pitch: 64,
        };
        let (deep, region) = (shape(CL_MEM_OBJECT_IMAGE3D), [4, 4, 4]);
        assert_eq!(deep.expect_host_pitches(&region, 0, 0), Ok(()));
        assert_eq!(deep.expect_host_pitches(&region, 32, 128), Ok(()));
        let beyond = usize::MAX / 4 + 1;
        let refused = Err(CL_INVALID_VALUE);
        assert_eq!(deep.expect_host_pitches(&region, beyond, 0), refused);
        assert_eq!(deep.expect_host_pitches(&region, 0, beyond), refused);
        let rows = shape(CL_MEM_OBJECT_IMAGE1D_ARRAY);
        assert_eq!(rows.expect_host_pitches(&[4, 4, 1], 0, 32), Ok(()));
        assert_eq!(rows.expect_host_pitches(&[4, 4, 1], 0, beyond), refused);
    }
}
