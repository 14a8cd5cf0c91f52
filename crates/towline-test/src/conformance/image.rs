//! Images of every shape: transfers, fills, maps, copies, kernels.

use std::ptr;

use super::call::*;
use super::fixture::{Fixture, Range};
use super::rules;
use towline_backend::opencl::*;

rules![image:
    copy_between_images_moves_a_region,
    copy_from_buffer_to_image_and_back_keeps_the_texels,
    copy_of_different_formats_is_image_format_mismatch,
    fill_of_a_region_leaves_the_rest,
    formats_are_listed_and_one_of_them_is_rgba_unsigned,
    image_answers_its_shape,
    image_from_a_buffer_shares_its_texels,
    image_info_of_a_buffer_is_invalid_mem_object,
    image_info_sizes_hold,
    image_larger_than_the_device_allows_is_invalid_image_size,
    image_of_an_unknown_format_is_refused,
    image_starts_with_the_host_texels,
    image_without_height_is_refused,
    kernel_reads_through_a_sampler,
    kernel_writes_texels,
    map_shows_and_changes_texels_by_pitch,
    one_dimension_reads_back,
    one_dimensional_array_reads_back,
    read_past_the_end_is_invalid_value,
    read_with_a_row_pitch_spreads_the_rows,
    three_dimensions_read_back,
    two_dimensional_array_reads_back,
    two_dimensions_read_back,
    write_of_a_region_leaves_the_rest,
];

const RGBA: cl_image_format = cl_image_format {
    image_channel_order: CL_RGBA,
    image_channel_data_type: CL_UNSIGNED_INT8,
};

/// Texels of four bytes.
const TEXEL: usize = 4;

/// The description of an image of this shape.
fn shape(kind: cl_mem_object_type, width: usize, height: usize, depth: usize) -> cl_image_desc {
    let is_array = matches!(
        kind,
        CL_MEM_OBJECT_IMAGE1D_ARRAY | CL_MEM_OBJECT_IMAGE2D_ARRAY
    );
    cl_image_desc {
        image_type: kind,
        image_width: width,
        image_height: height,
        image_depth: if kind == CL_MEM_OBJECT_IMAGE3D {
            depth
        } else {
            0
        },
        image_array_size: if is_array { depth } else { 0 },
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        mem_object: ptr::null_mut(),
    }
}

fn create(
    cl: &Fixture,
    context: &Owned<cl_context>,
    format: cl_image_format,
    shape: cl_image_desc,
    texels: Option<&[u8]>,
) -> Result<Owned<cl_mem>, Status> {
    let flags = if texels.is_some() {
        CL_MEM_COPY_HOST_PTR
    } else {
        CL_MEM_READ_WRITE
    };
    let host = texels.map_or(ptr::null_mut(), |texels| texels.as_ptr().cast_mut().cast());
    create!(
        cl,
        clCreateImage(
            context.raw(),
            flags,
            &raw const format,
            &raw const shape,
            host
        )
    )
}

/// An image of RGBA texels of bytes; skips the rule on a device without images.
fn image(
    cl: &Fixture,
    context: &Owned<cl_context>,
    shape: cl_image_desc,
    texels: Option<&[u8]>,
) -> Result<Owned<cl_mem>, Stop> {
    cl.requires(cl.caps.images, "the device has no images")?;
    Ok(create(cl, context, RGBA, shape, texels)?)
}

fn read(
    cl: &Fixture,
    queue: &Owned<cl_command_queue>,
    image: &Owned<cl_mem>,
    origin: [usize; 3],
    region: [usize; 3],
    row_pitch: usize,
) -> Result<Vec<u8>, Status> {
    let row = if row_pitch == 0 {
        region[0] * TEXEL
    } else {
        row_pitch
    };
    let mut texels = vec![0xee_u8; row * region[1] * region[2]];
    let (to, none, event) = (texels.as_mut_ptr().cast(), ptr::null(), ptr::null_mut());
    call!(
        cl,
        clEnqueueReadImage(
            queue.raw(),
            image.raw(),
            CL_TRUE,
            origin.as_ptr(),
            region.as_ptr(),
            row_pitch,
            0,
            to,
            0,
            none,
            event
        )
    )?;
    Ok(texels)
}

fn write(
    cl: &Fixture,
    queue: &Owned<cl_command_queue>,
    image: &Owned<cl_mem>,
    origin: [usize; 3],
    region: [usize; 3],
    texels: &[u8],
) -> Result<(), Status> {
    let (from, none, event) = (texels.as_ptr().cast(), ptr::null(), ptr::null_mut());
    call!(
        cl,
        clEnqueueWriteImage(
            queue.raw(),
            image.raw(),
            CL_TRUE,
            origin.as_ptr(),
            region.as_ptr(),
            0,
            0,
            from,
            0,
            none,
            event
        )
    )
}

/// Texels that differ from each other.
fn pattern(count: usize) -> Vec<u8> {
    (0..count * TEXEL)
        .map(|byte| (byte * 7 % 251) as u8)
        .collect()
}

fn reads_back(
    cl: &Fixture,
    shape: cl_image_desc,
    region: [usize; 3],
) -> Result<(Vec<u8>, Vec<u8>), Stop> {
    let (context, queue) = cl.context_and_queue()?;
    let image = image(cl, &context, shape, None)?;
    let texels = pattern(region.iter().product());
    write(cl, &queue, &image, [0; 3], region, &texels)?;
    Ok((read(cl, &queue, &image, [0; 3], region, 0)?, texels))
}

fn copy_between_images_moves_a_region(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let square = shape(CL_MEM_OBJECT_IMAGE2D, 4, 4, 0);
    let from = image(cl, &context, square, Some(&pattern(16)))?;
    let to = image(cl, &context, square, Some(&[0; 64]))?;
    let (origin, target, region) = ([1, 2, 0], [0, 1, 0], [2_usize, 1, 1]);
    let (source, place, size) = (origin.as_ptr(), target.as_ptr(), region.as_ptr());
    cl.event(|event| {
        call!(
            cl,
            clEnqueueCopyImage(
                queue.raw(),
                from.raw(),
                to.raw(),
                source,
                place,
                size,
                0,
                ptr::null(),
                event
            )
        )
    })?;
    let row = read(cl, &queue, &to, [0, 1, 0], [4, 1, 1], 0)?;
    assert_eq!(
        (&row[..8], &row[8..]),
        (&pattern(16)[9 * TEXEL..11 * TEXEL], &[0; 8][..])
    );
    Ok(())
}

fn copy_from_buffer_to_image_and_back_keeps_the_texels(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let image = image(
        cl,
        &context,
        shape(CL_MEM_OBJECT_IMAGE2D, 4, 4, 0),
        Some(&[0; 64]),
    )?;
    let from = cl.buffer_of(&context, &pattern(16))?;
    let to = cl.buffer_of(&context, &[0_u8; 64])?;
    let (origin, region) = ([1_usize, 1, 0], [2_usize, 3, 1]);
    let (at, size) = (origin.as_ptr(), region.as_ptr());
    cl.event(|event| {
        call!(
            cl,
            clEnqueueCopyBufferToImage(
                queue.raw(),
                from.raw(),
                image.raw(),
                8,
                at,
                size,
                0,
                ptr::null(),
                event
            )
        )
    })?;
    cl.event(|event| {
        call!(
            cl,
            clEnqueueCopyImageToBuffer(
                queue.raw(),
                image.raw(),
                to.raw(),
                at,
                size,
                16,
                0,
                ptr::null(),
                event
            )
        )
    })?;
    let back = cl.read::<u8>(&queue, &to, 0, 64)?;
    assert_eq!(
        (&back[..16], &back[16..40], &back[40..]),
        (&[0; 16][..], &pattern(16)[8..32], &[0; 24][..])
    );
    Ok(())
}

fn copy_of_different_formats_is_image_format_mismatch(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let square = shape(CL_MEM_OBJECT_IMAGE2D, 4, 4, 0);
    let from = image(cl, &context, square, None)?;
    let floats = cl_image_format {
        image_channel_order: CL_RGBA,
        image_channel_data_type: CL_FLOAT,
    };
    let to = create(cl, &context, floats, square, None)?;
    let (origin, region) = ([0_usize; 3], [1_usize; 3]);
    let (at, size) = (origin.as_ptr(), region.as_ptr());
    let copied = cl.event(|event| {
        call!(
            cl,
            clEnqueueCopyImage(
                queue.raw(),
                from.raw(),
                to.raw(),
                at,
                at,
                size,
                0,
                ptr::null(),
                event
            )
        )
    });
    assert_eq!(copied.code(), CL_IMAGE_FORMAT_MISMATCH);
    Ok(())
}

fn fill_of_a_region_leaves_the_rest(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let image = image(
        cl,
        &context,
        shape(CL_MEM_OBJECT_IMAGE2D, 3, 2, 0),
        Some(&[0; 24]),
    )?;
    let (colour, origin, region) = ([1_u32, 2, 3, 4], [1_usize, 0, 0], [2_usize, 1, 1]);
    let (with, at, size) = (colour.as_ptr().cast(), origin.as_ptr(), region.as_ptr());
    cl.event(|event| {
        call!(
            cl,
            clEnqueueFillImage(
                queue.raw(),
                image.raw(),
                with,
                at,
                size,
                0,
                ptr::null(),
                event
            )
        )
    })?;
    let all = read(cl, &queue, &image, [0; 3], [3, 2, 1], 0)?;
    assert_eq!(
        all,
        [&[0; 4][..], &[1, 2, 3, 4, 1, 2, 3, 4], &[0; 12]].concat()
    );
    Ok(())
}

fn formats_are_listed_and_one_of_them_is_rgba_unsigned(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.images, "the device has no images")?;
    let context = cl.context()?;
    let (flags, kind, mut count) = (CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0);
    let none = ptr::null_mut();
    call!(
        cl,
        clGetSupportedImageFormats(context.raw(), flags, kind, 0, none, &raw mut count)
    )?;
    let mut formats = vec![
        cl_image_format {
            image_channel_order: 0,
            image_channel_data_type: 0
        };
        count as usize
    ];
    let (room, none) = (formats.as_mut_ptr(), ptr::null_mut());
    call!(
        cl,
        clGetSupportedImageFormats(context.raw(), flags, kind, count, room, none)
    )?;
    assert!(formats.contains(&RGBA), "{formats:?}");
    Ok(())
}

fn image_answers_its_shape(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let image = image(cl, &context, shape(CL_MEM_OBJECT_IMAGE3D, 5, 4, 3), None)?;
    let number =
        |query| info!(cl, clGetImageInfo(image.raw(), query)).map(|answer| answer.number());
    let kind = info!(cl, clGetMemObjectInfo(image.raw(), CL_MEM_TYPE))?.number();
    let sizes = [
        number(CL_IMAGE_WIDTH)?,
        number(CL_IMAGE_HEIGHT)?,
        number(CL_IMAGE_DEPTH)?,
    ];
    assert_eq!((kind, sizes), (u64::from(CL_MEM_OBJECT_IMAGE3D), [5, 4, 3]));
    assert_eq!(number(CL_IMAGE_ELEMENT_SIZE)?, TEXEL as u64);
    assert!(number(CL_IMAGE_ROW_PITCH)? >= 20 && number(CL_IMAGE_SLICE_PITCH)? >= 80);
    Ok(())
}

fn image_from_a_buffer_shares_its_texels(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.images, "the device has no images")?;
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &pattern(8))?;
    let line = cl_image_desc {
        mem_object: buffer.raw(),
        ..shape(CL_MEM_OBJECT_IMAGE1D_BUFFER, 8, 0, 0)
    };
    let image = create(cl, &context, RGBA, line, None)?;
    let parent = info!(
        cl,
        clGetMemObjectInfo(image.raw(), CL_MEM_ASSOCIATED_MEMOBJECT)
    )?
    .number();
    let kernel_source = "kernel void k(read_only image1d_buffer_t from, global uint *to) {
        uint4 texel = read_imageui(from, (int)get_global_id(0)); to[get_global_id(0)] = texel.x + 1000 * texel.w; }";
    let program = cl.build(&context, kernel_source)?;
    let kernel = cl.kernel(&program, c"k")?;
    let out = cl.buffer(&context, 32)?;
    cl.arg_mem(&kernel, 0, &image)?;
    cl.arg_mem(&kernel, 1, &out)?;
    cl.launch(&queue, &kernel, 8)?;
    let sums: Vec<u32> = pattern(8)
        .as_chunks::<TEXEL>()
        .0
        .iter()
        .map(|texel| u32::from(texel[0]) + 1000 * u32::from(texel[3]))
        .collect();
    assert_eq!(parent, buffer.raw().addr() as u64);
    assert_eq!(cl.read::<u32>(&queue, &out, 0, 8)?, sums);
    Ok(())
}

fn image_info_of_a_buffer_is_invalid_mem_object(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.images, "the device has no images")?;
    let context = cl.context()?;
    let buffer = cl.buffer(&context, 16)?;
    assert_eq!(
        info!(cl, clGetImageInfo(buffer.raw(), CL_IMAGE_WIDTH)).code(),
        CL_INVALID_MEM_OBJECT
    );
    Ok(())
}

fn image_info_sizes_hold(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let image = image(cl, &context, shape(CL_MEM_OBJECT_IMAGE2D, 4, 4, 0), None)?;
    let format = sizes!(cl, clGetImageInfo(image.raw(), CL_IMAGE_FORMAT));
    let width = sizes!(cl, clGetImageInfo(image.raw(), CL_IMAGE_WIDTH));
    assert_eq!((format, width), (Sizes::of(8), Sizes::of(8)));
    Ok(())
}

fn image_larger_than_the_device_allows_is_invalid_image_size(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.images, "the device has no images")?;
    let context = cl.context()?;
    let limit = info!(
        cl,
        clGetDeviceInfo(cl.device(), CL_DEVICE_IMAGE2D_MAX_WIDTH)
    )?
    .number() as usize;
    let made = create(
        cl,
        &context,
        RGBA,
        shape(CL_MEM_OBJECT_IMAGE2D, limit + 1, 1, 0),
        None,
    );
    assert_eq!(made.code(), CL_INVALID_IMAGE_SIZE);
    Ok(())
}

fn image_of_an_unknown_format_is_refused(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.images, "the device has no images")?;
    let context = cl.context()?;
    let unknown = cl_image_format {
        image_channel_order: 0x7777,
        image_channel_data_type: CL_FLOAT,
    };
    let made = create(
        cl,
        &context,
        unknown,
        shape(CL_MEM_OBJECT_IMAGE2D, 4, 4, 0),
        None,
    );
    assert_eq!(made.code(), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    Ok(())
}

fn image_starts_with_the_host_texels(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let image = image(
        cl,
        &context,
        shape(CL_MEM_OBJECT_IMAGE2D, 5, 3, 0),
        Some(&pattern(15)),
    )?;
    assert_eq!(read(cl, &queue, &image, [0; 3], [5, 3, 1], 0)?, pattern(15));
    Ok(())
}

fn image_without_height_is_refused(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.images, "the device has no images")?;
    let context = cl.context()?;
    let code = create(
        cl,
        &context,
        RGBA,
        shape(CL_MEM_OBJECT_IMAGE2D, 4, 0, 0),
        None,
    )
    .code();
    assert!(
        code == CL_INVALID_IMAGE_SIZE || code == CL_INVALID_IMAGE_DESCRIPTOR,
        "{code:?}"
    );
    Ok(())
}

fn kernel_reads_through_a_sampler(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let image = image(
        cl,
        &context,
        shape(CL_MEM_OBJECT_IMAGE2D, 4, 2, 0),
        Some(&pattern(8)),
    )?;
    let source = "kernel void k(read_only image2d_t from, sampler_t how, global uint *to) {
        int at = get_global_id(0); to[at] = read_imageui(from, how, (int2)(at, 1)).y; }";
    let program = cl.build(&context, source)?;
    let kernel = cl.kernel(&program, c"k")?;
    let edge = create!(
        cl,
        clCreateSampler(
            context.raw(),
            CL_FALSE,
            CL_ADDRESS_CLAMP_TO_EDGE,
            CL_FILTER_NEAREST
        )
    )?;
    let out = cl.buffer(&context, 24)?;
    cl.arg_mem(&kernel, 0, &image)?;
    cl.arg(&kernel, 1, &edge.raw())?;
    cl.arg_mem(&kernel, 2, &out)?;
    cl.launch(&queue, &kernel, 6)?;
    // Past the edge the last texel repeats.
    let second: Vec<u32> = [4, 5, 6, 7, 7, 7]
        .iter()
        .map(|at| pattern(8)[at * TEXEL + 1].into())
        .collect();
    assert_eq!(cl.read::<u32>(&queue, &out, 0, 6)?, second);
    Ok(())
}

fn kernel_writes_texels(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let image = image(cl, &context, shape(CL_MEM_OBJECT_IMAGE2D, 3, 2, 0), None)?;
    let source = "kernel void k(write_only image2d_t to) {
        int2 at = (int2)(get_global_id(0), get_global_id(1)); write_imageui(to, at, (uint4)(at.x, at.y, 7, 8)); }";
    let program = cl.build(&context, source)?;
    let kernel = cl.kernel(&program, c"k")?;
    cl.arg_mem(&kernel, 0, &image)?;
    cl.launch_over(
        &queue,
        &kernel,
        Range {
            global: &[3, 2],
            ..Range::default()
        },
    )?;
    let all: Vec<u8> = (0..2)
        .flat_map(|y| (0..3).flat_map(move |x| [x, y, 7, 8]))
        .collect();
    assert_eq!(read(cl, &queue, &image, [0; 3], [3, 2, 1], 0)?, all);
    Ok(())
}

fn map_shows_and_changes_texels_by_pitch(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let image = image(
        cl,
        &context,
        shape(CL_MEM_OBJECT_IMAGE2D, 4, 3, 0),
        Some(&pattern(12)),
    )?;
    let (origin, region) = ([1_usize, 1, 0], [2_usize, 2, 1]);
    let (mut pitch, mut code) = (0, UNSET);
    let (at, size, flags) = (origin.as_ptr(), region.as_ptr(), CL_MAP_READ | CL_MAP_WRITE);
    let (of, on, none) = (image.raw(), queue.raw(), ptr::null());
    let no_slices = ptr::null_mut();
    let event = ptr::null_mut();
    // SAFETY: live handles, and locals for pitch and code.
    let mapped = unsafe {
        cl.api.clEnqueueMapImage(
            on,
            of,
            CL_TRUE,
            flags,
            at,
            size,
            &raw mut pitch,
            no_slices,
            0,
            none,
            event,
            &raw mut code,
        )
    };
    assert_eq!(Code(code), CL_SUCCESS);
    let mapped: *mut u8 = mapped.cast();
    // SAFETY: the second row of the region, two texels wide, is mapped at the pitch that the call gave.
    let row = unsafe { std::slice::from_raw_parts_mut(mapped.wrapping_add(pitch), 2 * TEXEL) };
    let seen = row.to_vec();
    row.fill(9);
    cl.unmap(&queue, &image, mapped)?;
    let last = read(cl, &queue, &image, [0, 2, 0], [4, 1, 1], 0)?;
    let before = &pattern(12)[8 * TEXEL..];
    assert_eq!(seen, before[4..12]);
    assert_eq!(last, [&before[..4], &[9; 8], &before[12..]].concat());
    Ok(())
}

fn one_dimension_reads_back(cl: &Fixture) -> Verdict {
    let (read, written) = reads_back(cl, shape(CL_MEM_OBJECT_IMAGE1D, 17, 0, 0), [17, 1, 1])?;
    assert_eq!(read, written);
    Ok(())
}

fn one_dimensional_array_reads_back(cl: &Fixture) -> Verdict {
    let (read, written) = reads_back(cl, shape(CL_MEM_OBJECT_IMAGE1D_ARRAY, 9, 0, 4), [9, 4, 1])?;
    assert_eq!(read, written);
    Ok(())
}

fn read_past_the_end_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let image = image(cl, &context, shape(CL_MEM_OBJECT_IMAGE2D, 4, 4, 0), None)?;
    assert_eq!(
        read(cl, &queue, &image, [2, 0, 0], [3, 1, 1], 0).code(),
        CL_INVALID_VALUE
    );
    assert_eq!(
        read(cl, &queue, &image, [0, 0, 1], [1, 1, 1], 0).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn read_with_a_row_pitch_spreads_the_rows(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let image = image(
        cl,
        &context,
        shape(CL_MEM_OBJECT_IMAGE2D, 2, 2, 0),
        Some(&pattern(4)),
    )?;
    let spread = read(cl, &queue, &image, [0; 3], [2, 2, 1], 12)?;
    assert_eq!(
        (&spread[..8], &spread[12..20]),
        (&pattern(4)[..8], &pattern(4)[8..])
    );
    assert_eq!(spread[8..12], [0xee; 4]);
    Ok(())
}

fn three_dimensions_read_back(cl: &Fixture) -> Verdict {
    let (read, written) = reads_back(cl, shape(CL_MEM_OBJECT_IMAGE3D, 5, 4, 3), [5, 4, 3])?;
    assert_eq!(read, written);
    Ok(())
}

fn two_dimensional_array_reads_back(cl: &Fixture) -> Verdict {
    let (read, written) = reads_back(cl, shape(CL_MEM_OBJECT_IMAGE2D_ARRAY, 5, 4, 3), [5, 4, 3])?;
    assert_eq!(read, written);
    Ok(())
}

fn two_dimensions_read_back(cl: &Fixture) -> Verdict {
    let (read, written) = reads_back(cl, shape(CL_MEM_OBJECT_IMAGE2D, 33, 17, 0), [33, 17, 1])?;
    assert_eq!(read, written);
    Ok(())
}

fn write_of_a_region_leaves_the_rest(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let image = image(
        cl,
        &context,
        shape(CL_MEM_OBJECT_IMAGE2D, 3, 2, 0),
        Some(&[0; 24]),
    )?;
    write(cl, &queue, &image, [1, 1, 0], [2, 1, 1], &[5; 8])?;
    let all = read(cl, &queue, &image, [0; 3], [3, 2, 1], 0)?;
    assert_eq!(all, [&[0; 16][..], &[5; 8]].concat());
    Ok(())
}
