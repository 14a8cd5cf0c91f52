//! Copies, fills and rectangles.

use std::ptr;

use super::call::*;
use super::fixture::Fixture;
use super::rules;
use towline_backend::opencl::*;

rules![transfer:
    copy_between_buffers_moves_the_bytes,
    copy_between_overlapping_parts_is_mem_copy_overlap,
    copy_of_another_context_is_invalid_context,
    copy_past_the_end_is_invalid_value,
    copy_that_overlaps_is_mem_copy_overlap,
    copy_within_a_buffer_moves_the_bytes,
    fill_pattern_of_odd_size_is_invalid_value,
    fill_range_that_the_pattern_does_not_divide_is_invalid_value,
    fill_range_past_the_end_is_invalid_value,
    fill_repeats_the_pattern_and_leaves_the_rest,
    fill_takes_the_pattern_at_the_call,
    fill_with_the_largest_pattern_repeats_it,
    migrate_keeps_the_bytes,
    migrate_of_nothing_is_invalid_value,
    rect_copy_moves_a_box,
    rect_copy_that_overlaps_is_mem_copy_overlap,
    rect_of_no_bytes_is_invalid_value,
    rect_past_the_end_is_invalid_value,
    rect_pitch_below_the_row_is_invalid_value,
    rect_read_gives_a_window,
    rect_read_in_three_dimensions_gives_a_box,
    rect_write_leaves_what_is_outside,
    slice_pitch_no_multiple_of_the_row_is_invalid_value,
];

fn copy_between_buffers_moves_the_bytes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let from = cl.buffer_of(&context, &[1_u8, 2, 3, 4, 5, 6])?;
    let to = cl.buffer_of(&context, &[0_u8; 6])?;
    cl.copy(&queue, (&from, 1), (&to, 2), 3)?;
    assert_eq!(cl.read::<u8>(&queue, &to, 0, 6)?, [0, 0, 2, 3, 4, 0]);
    Ok(())
}

fn copy_between_overlapping_parts_is_mem_copy_overlap(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let align = cl.caps.sub_buffer_align;
    let whole = cl.buffer(&context, 3 * align)?;
    let first = cl.part(&whole, CL_MEM_READ_WRITE, 0, 2 * align)?;
    let second = cl.part(&whole, CL_MEM_READ_WRITE, align, 2 * align)?;
    let copied = cl.copy(&queue, (&first, 0), (&second, 0), 2 * align);
    assert_eq!(copied.code(), CL_MEM_COPY_OVERLAP);
    Ok(())
}

fn copy_of_another_context_is_invalid_context(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let other = cl.context()?;
    let (from, to) = (cl.buffer(&other, 16)?, cl.buffer(&context, 16)?);
    assert_eq!(
        cl.copy(&queue, (&from, 0), (&to, 0), 16).code(),
        CL_INVALID_CONTEXT
    );
    Ok(())
}

fn copy_past_the_end_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let (from, to) = (cl.buffer(&context, 16)?, cl.buffer(&context, 8)?);
    assert_eq!(
        cl.copy(&queue, (&from, 0), (&to, 0), 9).code(),
        CL_INVALID_VALUE
    );
    assert_eq!(
        cl.copy(&queue, (&from, 12), (&to, 0), 5).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn copy_that_overlaps_is_mem_copy_overlap(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    assert_eq!(
        cl.copy(&queue, (&buffer, 0), (&buffer, 4), 8).code(),
        CL_MEM_COPY_OVERLAP
    );
    Ok(())
}

fn copy_within_a_buffer_moves_the_bytes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &[1_u8, 2, 3, 4])?;
    cl.copy(&queue, (&buffer, 0), (&buffer, 2), 2)?;
    assert_eq!(cl.read::<u8>(&queue, &buffer, 0, 4)?, [1, 2, 1, 2]);
    Ok(())
}

fn fill_pattern_of_odd_size_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 12)?;
    assert_eq!(
        cl.fill(&queue, &buffer, &[1_u8, 2, 3], 0, 12).code(),
        CL_INVALID_VALUE
    );
    assert_eq!(
        cl.fill::<u8>(&queue, &buffer, &[], 0, 12).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn fill_range_that_the_pattern_does_not_divide_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    assert_eq!(
        cl.fill(&queue, &buffer, &[1_u32], 2, 8).code(),
        CL_INVALID_VALUE
    );
    assert_eq!(
        cl.fill(&queue, &buffer, &[1_u32], 4, 6).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn fill_range_past_the_end_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    assert_eq!(
        cl.fill(&queue, &buffer, &[1_u32], 8, 12).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn fill_repeats_the_pattern_and_leaves_the_rest(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &[0_u8; 12])?;
    cl.fill(&queue, &buffer, &[1_u8, 2], 4, 6)?;
    assert_eq!(
        cl.read::<u8>(&queue, &buffer, 0, 12)?,
        [0, 0, 0, 0, 1, 2, 1, 2, 1, 2, 0, 0]
    );
    Ok(())
}

fn fill_takes_the_pattern_at_the_call(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &[0_u32; 4])?;
    let gate = cl.user_event(&context)?;
    cl.marker(&queue, &[&gate])?;
    let mut pattern = [7_u32];
    cl.fill(&queue, &buffer, &pattern, 0, 16)?;
    pattern[0] = 8;
    std::hint::black_box(&pattern);
    cl.set(&gate, CL_COMPLETE)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [7; 4]);
    Ok(())
}

fn fill_with_the_largest_pattern_repeats_it(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let pattern: Vec<u8> = (0..128).collect();
    let buffer = cl.buffer(&context, 384)?;
    cl.fill(&queue, &buffer, &pattern, 0, 384)?;
    assert_eq!(cl.read::<u8>(&queue, &buffer, 0, 384)?, pattern.repeat(3));
    Ok(())
}

fn migrate_keeps_the_bytes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &[3_u32; 4])?;
    let memory = buffer.raw();
    let migrated = cl.event(|event| {
        call!(
            cl,
            clEnqueueMigrateMemObjects(queue.raw(), 1, &raw const memory, 0, 0, ptr::null(), event)
        )
    })?;
    cl.wait(&[&migrated])?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [3; 4]);
    Ok(())
}

fn migrate_of_nothing_is_invalid_value(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let event = ptr::null_mut();
    let migrated = call!(
        cl,
        clEnqueueMigrateMemObjects(queue.raw(), 0, ptr::null(), 0, 0, ptr::null(), event)
    );
    assert_eq!(migrated.code(), CL_INVALID_VALUE);
    Ok(())
}

/// A rectangle of one side of a copy: origin, row pitch, slice pitch.
type Side = ([usize; 3], usize, usize);

fn read_rect(
    cl: &Fixture,
    queue: &Owned<cl_command_queue>,
    (buffer, device): (&Owned<cl_mem>, Side),
    (data, host): (&mut [u8], Side),
    region: [usize; 3],
) -> Result<(), Status> {
    let (origin, host_origin, region) = (device.0.as_ptr(), host.0.as_ptr(), region.as_ptr());
    let (to, none, event) = (data.as_mut_ptr().cast(), ptr::null(), ptr::null_mut());
    call!(
        cl,
        clEnqueueReadBufferRect(
            queue.raw(),
            buffer.raw(),
            CL_TRUE,
            origin,
            host_origin,
            region,
            device.1,
            device.2,
            host.1,
            host.2,
            to,
            0,
            none,
            event
        )
    )
}

fn write_rect(
    cl: &Fixture,
    queue: &Owned<cl_command_queue>,
    (buffer, device): (&Owned<cl_mem>, Side),
    (data, host): (&[u8], Side),
    region: [usize; 3],
) -> Result<(), Status> {
    let (origin, host_origin, region) = (device.0.as_ptr(), host.0.as_ptr(), region.as_ptr());
    let (from, none, event) = (data.as_ptr().cast(), ptr::null(), ptr::null_mut());
    call!(
        cl,
        clEnqueueWriteBufferRect(
            queue.raw(),
            buffer.raw(),
            CL_TRUE,
            origin,
            host_origin,
            region,
            device.1,
            device.2,
            host.1,
            host.2,
            from,
            0,
            none,
            event
        )
    )
}

fn copy_rect(
    cl: &Fixture,
    queue: &Owned<cl_command_queue>,
    (from, source): (&Owned<cl_mem>, Side),
    (to, target): (&Owned<cl_mem>, Side),
    region: [usize; 3],
) -> Result<Event, Status> {
    let (origin, target_origin, region) = (source.0.as_ptr(), target.0.as_ptr(), region.as_ptr());
    cl.event(|event| {
        call!(
            cl,
            clEnqueueCopyBufferRect(
                queue.raw(),
                from.raw(),
                to.raw(),
                origin,
                target_origin,
                region,
                source.1,
                source.2,
                target.1,
                target.2,
                0,
                ptr::null(),
                event
            )
        )
    })
}

/// A place with pitches to be worked out from the region.
const START: Side = ([0, 0, 0], 0, 0);

fn rect_copy_moves_a_box(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let bytes: Vec<u8> = (0..16).collect();
    let from = cl.buffer_of(&context, &bytes)?;
    let to = cl.buffer_of(&context, &[99_u8; 12])?;
    copy_rect(
        cl,
        &queue,
        (&from, ([1, 1, 0], 4, 0)),
        (&to, ([0, 1, 0], 3, 0)),
        [2, 2, 1],
    )?;
    let moved = [99, 99, 99, 5, 6, 99, 9, 10, 99, 99, 99, 99];
    assert_eq!(cl.read::<u8>(&queue, &to, 0, 12)?, moved);
    Ok(())
}

fn rect_copy_that_overlaps_is_mem_copy_overlap(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 64)?;
    let copied = copy_rect(
        cl,
        &queue,
        (&buffer, ([0, 0, 0], 8, 0)),
        (&buffer, ([1, 1, 0], 8, 0)),
        [4, 4, 1],
    );
    assert_eq!(copied.code(), CL_MEM_COPY_OVERLAP);
    Ok(())
}

fn rect_of_no_bytes_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 64)?;
    let read = read_rect(
        cl,
        &queue,
        (&buffer, START),
        (&mut [0; 64], START),
        [0, 1, 1],
    );
    assert_eq!(read.code(), CL_INVALID_VALUE);
    Ok(())
}

fn rect_past_the_end_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    let side = ([2, 0, 0], 4, 0);
    let read = read_rect(
        cl,
        &queue,
        (&buffer, side),
        (&mut [0; 64], START),
        [3, 4, 1],
    );
    let write = write_rect(cl, &queue, (&buffer, side), (&[0; 64], START), [3, 4, 1]);
    assert_eq!(
        (read.code(), write.code()),
        (Code(CL_INVALID_VALUE), Code(CL_INVALID_VALUE))
    );
    Ok(())
}

fn rect_pitch_below_the_row_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 64)?;
    let narrow = ([0, 0, 0], 3, 0);
    let device = read_rect(
        cl,
        &queue,
        (&buffer, narrow),
        (&mut [0; 64], START),
        [4, 2, 1],
    );
    let host = read_rect(
        cl,
        &queue,
        (&buffer, START),
        (&mut [0; 64], narrow),
        [4, 2, 1],
    );
    assert_eq!(
        (device.code(), host.code()),
        (Code(CL_INVALID_VALUE), Code(CL_INVALID_VALUE))
    );
    Ok(())
}

fn rect_read_gives_a_window(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let bytes: Vec<u8> = (0..20).collect();
    let buffer = cl.buffer_of(&context, &bytes)?;
    let mut window = [77_u8; 12];
    let host = ([1, 0, 0], 4, 0);
    read_rect(
        cl,
        &queue,
        (&buffer, ([1, 1, 0], 5, 0)),
        (&mut window, host),
        [3, 3, 1],
    )?;
    assert_eq!(window, [77, 6, 7, 8, 77, 11, 12, 13, 77, 16, 17, 18]);
    Ok(())
}

fn rect_read_in_three_dimensions_gives_a_box(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let bytes: Vec<u8> = (0..60).collect();
    let buffer = cl.buffer_of(&context, &bytes)?;
    let mut inside = [0_u8; 8];
    // Rows of 4 bytes, slices of 20: the box starts at byte 1 of row 2 of slice 1.
    read_rect(
        cl,
        &queue,
        (&buffer, ([1, 2, 1], 4, 20)),
        (&mut inside, START),
        [2, 2, 2],
    )?;
    assert_eq!(inside, [29, 30, 33, 34, 49, 50, 53, 54]);
    Ok(())
}

fn rect_write_leaves_what_is_outside(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &[0_u8; 12])?;
    write_rect(
        cl,
        &queue,
        (&buffer, ([1, 1, 0], 4, 0)),
        (&[1, 2, 3, 4], START),
        [2, 2, 1],
    )?;
    assert_eq!(
        cl.read::<u8>(&queue, &buffer, 0, 12)?,
        [0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0]
    );
    Ok(())
}

fn slice_pitch_no_multiple_of_the_row_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 64)?;
    let odd = ([0, 0, 0], 4, 10);
    let read = read_rect(cl, &queue, (&buffer, odd), (&mut [0; 64], START), [4, 2, 2]);
    assert_eq!(read.code(), CL_INVALID_VALUE);
    Ok(())
}
