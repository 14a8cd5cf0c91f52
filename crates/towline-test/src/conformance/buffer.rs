//! Buffers and sub-buffers: creation, flags, plain reads and writes.

use std::ptr;
use std::sync::Arc;

use super::call::*;
use super::fixture::{Fixture, Record};
use super::rules;
use towline_backend::opencl::*;

rules![buffer:
    alloc_host_ptr_buffer_is_usable,
    buffer_answers_what_it_was_made_with,
    buffer_info_sizes_hold,
    buffer_info_unknown_query_is_invalid_value,
    buffer_null_context_is_invalid_context,
    buffer_of_no_bytes_is_invalid_buffer_size,
    buffer_larger_than_the_device_allows_is_invalid_buffer_size,
    buffer_with_contradicting_access_flags_is_invalid_value,
    buffer_with_use_and_copy_host_ptr_is_invalid_value,
    copy_host_ptr_takes_the_bytes_at_the_call,
    copy_host_ptr_without_pointer_is_invalid_host_ptr,
    destructor_callback_comes_after_the_last_release,
    host_no_access_buffer_refuses_reads_and_writes,
    host_pointer_without_flag_is_invalid_host_ptr,
    host_read_only_buffer_refuses_writes,
    host_write_only_buffer_refuses_reads,
    large_write_reads_back_whole,
    part_answers_with_its_parent_and_offset,
    part_of_a_part_is_invalid_mem_object,
    part_of_no_bytes_is_invalid_buffer_size,
    part_past_the_end_is_invalid_value,
    part_shares_bytes_with_its_parent,
    part_that_widens_access_is_invalid_value,
    part_with_misaligned_offset_is_refused,
    properties_echo_an_empty_list,
    read_null_buffer_is_invalid_mem_object,
    read_null_pointer_is_invalid_value,
    read_null_queue_is_invalid_command_queue,
    read_past_the_end_is_invalid_value,
    read_with_a_buffer_of_another_context_is_invalid_context,
    use_host_ptr_answers_with_the_pointer,
    use_host_ptr_starts_with_the_bytes,
    write_at_an_offset_leaves_the_rest,
    write_offset_that_overflows_is_invalid_value,
    write_past_the_end_is_invalid_value,
    write_then_read_gives_the_bytes,
];

fn alloc_host_ptr_buffer_is_usable(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_with(&context, CL_MEM_ALLOC_HOST_PTR, 16, ptr::null_mut())?;
    cl.write(&queue, &buffer, 0, &[1_u32, 2, 3, 4])?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [1, 2, 3, 4]);
    Ok(())
}

fn buffer_answers_what_it_was_made_with(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let buffer = cl.buffer_with(&context, CL_MEM_READ_ONLY, 100, ptr::null_mut())?;
    let number =
        |query| info!(cl, clGetMemObjectInfo(buffer.raw(), query)).map(|answer| answer.number());
    assert_eq!(number(CL_MEM_TYPE)?, u64::from(CL_MEM_OBJECT_BUFFER));
    assert_eq!(number(CL_MEM_FLAGS)?, CL_MEM_READ_ONLY);
    assert_eq!(number(CL_MEM_SIZE)?, 100);
    assert_eq!(number(CL_MEM_CONTEXT)?, context.raw().addr() as u64);
    assert_eq!(
        (number(CL_MEM_HOST_PTR)?, number(CL_MEM_MAP_COUNT)?),
        (0, 0)
    );
    assert_eq!(
        (number(CL_MEM_OFFSET)?, number(CL_MEM_ASSOCIATED_MEMOBJECT)?),
        (0, 0)
    );
    Ok(())
}

fn buffer_info_sizes_hold(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let buffer = cl.buffer(&context, 16)?;
    let size = sizes!(cl, clGetMemObjectInfo(buffer.raw(), CL_MEM_SIZE));
    let kind = sizes!(cl, clGetMemObjectInfo(buffer.raw(), CL_MEM_TYPE));
    assert_eq!((size, kind), (Sizes::of(8), Sizes::of(4)));
    Ok(())
}

fn buffer_info_unknown_query_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let buffer = cl.buffer(&context, 16)?;
    assert_eq!(
        info!(cl, clGetMemObjectInfo(buffer.raw(), 0x7777)).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn buffer_null_context_is_invalid_context(cl: &Fixture) -> Verdict {
    let made = create!(
        cl,
        clCreateBuffer(ptr::null_mut(), CL_MEM_READ_WRITE, 16, ptr::null_mut())
    );
    assert_eq!(made.code(), CL_INVALID_CONTEXT);
    Ok(())
}

fn buffer_of_no_bytes_is_invalid_buffer_size(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    assert_eq!(cl.buffer(&context, 0).code(), CL_INVALID_BUFFER_SIZE);
    Ok(())
}

fn buffer_larger_than_the_device_allows_is_invalid_buffer_size(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let limit = info!(
        cl,
        clGetDeviceInfo(cl.device(), CL_DEVICE_MAX_MEM_ALLOC_SIZE)
    )?
    .number();
    assert_eq!(
        cl.buffer(&context, limit as usize + 1).code(),
        CL_INVALID_BUFFER_SIZE
    );
    Ok(())
}

fn buffer_with_contradicting_access_flags_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let none = ptr::null_mut();
    let access = cl.buffer_with(&context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 16, none);
    let host = cl.buffer_with(
        &context,
        CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS,
        16,
        none,
    );
    assert_eq!(
        (access.code(), host.code()),
        (Code(CL_INVALID_VALUE), Code(CL_INVALID_VALUE))
    );
    Ok(())
}

fn buffer_with_use_and_copy_host_ptr_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let mut bytes = [0_u8; 16];
    let both = CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR;
    let made = cl.buffer_with(&context, both, 16, bytes.as_mut_ptr().cast());
    assert_eq!(made.code(), CL_INVALID_VALUE);
    Ok(())
}

fn copy_host_ptr_takes_the_bytes_at_the_call(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let mut words = vec![5_u32; 1000];
    let buffer = cl.buffer_of(&context, &words)?;
    words.fill(6);
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 1000)?, vec![5; 1000]);
    Ok(())
}

fn copy_host_ptr_without_pointer_is_invalid_host_ptr(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let made = cl.buffer_with(&context, CL_MEM_COPY_HOST_PTR, 16, ptr::null_mut());
    assert_eq!(made.code(), CL_INVALID_HOST_PTR);
    Ok(())
}

fn destructor_callback_comes_after_the_last_release(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let buffer = cl.buffer(&context, 16)?;
    let record = Arc::<Record>::default();
    let function = Some(Record::memory_callback as unsafe extern "C" fn(_, _));
    call!(
        cl,
        clSetMemObjectDestructorCallback(buffer.raw(), function, record.user_data())
    )?;
    call!(cl, clRetainMemObject(buffer.raw()))?;
    call!(cl, clReleaseMemObject(buffer.raw()))?;
    assert_eq!(record.wait_for(0), []);
    buffer.release()?;
    assert_eq!(record.wait_for(1), [CL_COMPLETE]);
    Ok(())
}

fn host_no_access_buffer_refuses_reads_and_writes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_with(&context, CL_MEM_HOST_NO_ACCESS, 16, ptr::null_mut())?;
    assert_eq!(
        cl.read::<u8>(&queue, &buffer, 0, 16).code(),
        CL_INVALID_OPERATION
    );
    assert_eq!(
        cl.write(&queue, &buffer, 0, &[0_u8; 16]).code(),
        CL_INVALID_OPERATION
    );
    assert_eq!(
        cl.map(&queue, &buffer, CL_MAP_READ, 0, 16).code(),
        CL_INVALID_OPERATION
    );
    Ok(())
}

fn host_pointer_without_flag_is_invalid_host_ptr(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let mut bytes = [0_u8; 16];
    let made = cl.buffer_with(&context, CL_MEM_READ_WRITE, 16, bytes.as_mut_ptr().cast());
    assert_eq!(made.code(), CL_INVALID_HOST_PTR);
    Ok(())
}

fn host_read_only_buffer_refuses_writes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_with(&context, CL_MEM_HOST_READ_ONLY, 16, ptr::null_mut())?;
    assert_eq!(
        cl.write(&queue, &buffer, 0, &[0_u8; 16]).code(),
        CL_INVALID_OPERATION
    );
    assert_eq!(
        cl.map(&queue, &buffer, CL_MAP_WRITE, 0, 16).code(),
        CL_INVALID_OPERATION
    );
    assert_eq!(cl.read::<u8>(&queue, &buffer, 0, 16).code(), CL_SUCCESS);
    Ok(())
}

fn host_write_only_buffer_refuses_reads(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_with(&context, CL_MEM_HOST_WRITE_ONLY, 16, ptr::null_mut())?;
    assert_eq!(
        cl.read::<u8>(&queue, &buffer, 0, 16).code(),
        CL_INVALID_OPERATION
    );
    assert_eq!(
        cl.map(&queue, &buffer, CL_MAP_READ, 0, 16).code(),
        CL_INVALID_OPERATION
    );
    assert_eq!(cl.write(&queue, &buffer, 0, &[0_u8; 16]).code(), CL_SUCCESS);
    Ok(())
}

fn large_write_reads_back_whole(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let words: Vec<u32> = (0..3_000_001_u32)
        .map(|word| word.wrapping_mul(2_654_435_761))
        .collect();
    let buffer = cl.buffer(&context, size_of_val(words.as_slice()))?;
    cl.write(&queue, &buffer, 0, &words)?;
    assert!(
        cl.read::<u32>(&queue, &buffer, 0, words.len())? == words,
        "the words differ"
    );
    Ok(())
}

fn part_answers_with_its_parent_and_offset(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let align = cl.caps.sub_buffer_align;
    let whole = cl.buffer(&context, 4 * align)?;
    let part = cl.part(&whole, CL_MEM_READ_WRITE, align, 2 * align)?;
    let number =
        |query| info!(cl, clGetMemObjectInfo(part.raw(), query)).map(|answer| answer.number());
    assert_eq!(
        number(CL_MEM_ASSOCIATED_MEMOBJECT)?,
        whole.raw().addr() as u64
    );
    assert_eq!(number(CL_MEM_OFFSET)?, align as u64);
    assert_eq!(number(CL_MEM_SIZE)?, 2 * align as u64);
    Ok(())
}

fn part_of_a_part_is_invalid_mem_object(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let align = cl.caps.sub_buffer_align;
    let whole = cl.buffer(&context, 4 * align)?;
    let part = cl.part(&whole, CL_MEM_READ_WRITE, 0, 2 * align)?;
    assert_eq!(
        cl.part(&part, CL_MEM_READ_WRITE, 0, align).code(),
        CL_INVALID_MEM_OBJECT
    );
    Ok(())
}

fn part_of_no_bytes_is_invalid_buffer_size(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let whole = cl.buffer(&context, 256)?;
    assert_eq!(
        cl.part(&whole, CL_MEM_READ_WRITE, 0, 0).code(),
        CL_INVALID_BUFFER_SIZE
    );
    Ok(())
}

fn part_past_the_end_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let align = cl.caps.sub_buffer_align;
    let whole = cl.buffer(&context, 2 * align)?;
    assert_eq!(
        cl.part(&whole, CL_MEM_READ_WRITE, align, align + 1).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn part_shares_bytes_with_its_parent(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let align = cl.caps.sub_buffer_align;
    let whole = cl.buffer_of(&context, &vec![1_u8; 2 * align])?;
    let part = cl.part(&whole, CL_MEM_READ_WRITE, align, align)?;
    cl.write(&queue, &part, 0, &[2_u8; 3])?;
    assert_eq!(
        cl.read::<u8>(&queue, &whole, align - 1, 5)?,
        [1, 2, 2, 2, 1]
    );
    cl.write(&queue, &whole, align, &[3_u8; 2])?;
    assert_eq!(cl.read::<u8>(&queue, &part, 0, 4)?, [3, 3, 2, 1]);
    Ok(())
}

fn part_that_widens_access_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let whole = cl.buffer_with(&context, CL_MEM_READ_ONLY, 256, ptr::null_mut())?;
    assert_eq!(
        cl.part(&whole, CL_MEM_WRITE_ONLY, 0, 128).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn part_with_misaligned_offset_is_refused(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.sub_buffer_align > 1, "the device aligns to bytes")?;
    let context = cl.context()?;
    let whole = cl.buffer(&context, 4 * cl.caps.sub_buffer_align)?;
    let part = cl.part(&whole, CL_MEM_READ_WRITE, 1, 16);
    assert_eq!(part.code(), CL_MISALIGNED_SUB_BUFFER_OFFSET);
    Ok(())
}

fn properties_echo_an_empty_list(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (3, 0),
        "the device is older than OpenCL 3.0",
    )?;
    let context = cl.context()?;
    let (none, flags) = (ptr::null_mut(), CL_MEM_READ_WRITE);
    let plain = cl.buffer(&context, 16)?;
    let listed = create!(
        cl,
        clCreateBufferWithProperties(context.raw(), ptr::null(), flags, 16, none)
    )?;
    let of_plain = info!(cl, clGetMemObjectInfo(plain.raw(), CL_MEM_PROPERTIES))?;
    let of_listed = info!(cl, clGetMemObjectInfo(listed.raw(), CL_MEM_PROPERTIES))?;
    assert_eq!(
        (of_plain, of_listed),
        (Answer(Vec::new()), Answer(Vec::new()))
    );
    Ok(())
}

fn read_null_buffer_is_invalid_mem_object(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let mut bytes = [0_u8; 16];
    let (buffer, to) = (ptr::null_mut(), bytes.as_mut_ptr().cast());
    let (none, event) = (ptr::null(), ptr::null_mut());
    let read = call!(
        cl,
        clEnqueueReadBuffer(queue.raw(), buffer, CL_TRUE, 0, 16, to, 0, none, event)
    );
    assert_eq!(read.code(), CL_INVALID_MEM_OBJECT);
    Ok(())
}

fn read_null_pointer_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    let (to, none, event) = (ptr::null_mut(), ptr::null(), ptr::null_mut());
    let read = call!(
        cl,
        clEnqueueReadBuffer(
            queue.raw(),
            buffer.raw(),
            CL_TRUE,
            0,
            16,
            to,
            0,
            none,
            event
        )
    );
    assert_eq!(read.code(), CL_INVALID_VALUE);
    Ok(())
}

fn read_null_queue_is_invalid_command_queue(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let buffer = cl.buffer(&context, 16)?;
    let mut bytes = [0_u8; 16];
    let (queue, to) = (ptr::null_mut(), bytes.as_mut_ptr().cast());
    let (none, event) = (ptr::null(), ptr::null_mut());
    let read = call!(
        cl,
        clEnqueueReadBuffer(queue, buffer.raw(), CL_TRUE, 0, 16, to, 0, none, event)
    );
    assert_eq!(read.code(), CL_INVALID_COMMAND_QUEUE);
    Ok(())
}

fn read_past_the_end_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    assert_eq!(
        cl.read::<u8>(&queue, &buffer, 8, 9).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn read_with_a_buffer_of_another_context_is_invalid_context(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let other = cl.context()?;
    let buffer = cl.buffer(&other, 16)?;
    assert_eq!(
        cl.read::<u8>(&queue, &buffer, 0, 16).code(),
        CL_INVALID_CONTEXT
    );
    Ok(())
}

fn use_host_ptr_answers_with_the_pointer(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let mut words = vec![0_u64; 64];
    let host = words.as_mut_ptr();
    let buffer = cl.buffer_with(&context, CL_MEM_USE_HOST_PTR, 512, host.cast())?;
    let answer = info!(cl, clGetMemObjectInfo(buffer.raw(), CL_MEM_HOST_PTR))?.number();
    assert_eq!(answer, host.addr() as u64);
    Ok(())
}

fn use_host_ptr_starts_with_the_bytes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let mut words: Vec<u32> = (0..256).collect();
    let host = words.as_mut_ptr().cast();
    let buffer = cl.buffer_with(&context, CL_MEM_USE_HOST_PTR, 1024, host)?;
    assert_eq!(
        cl.read::<u32>(&queue, &buffer, 0, 256)?,
        (0..256).collect::<Vec<u32>>()
    );
    Ok(())
}

fn write_at_an_offset_leaves_the_rest(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &[1_u8; 8])?;
    cl.write(&queue, &buffer, 3, &[9_u8, 8])?;
    assert_eq!(
        cl.read::<u8>(&queue, &buffer, 0, 8)?,
        [1, 1, 1, 9, 8, 1, 1, 1]
    );
    assert_eq!(cl.read::<u8>(&queue, &buffer, 2, 3)?, [1, 9, 8]);
    Ok(())
}

fn write_offset_that_overflows_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    assert_eq!(
        cl.write(&queue, &buffer, usize::MAX - 3, &[0_u8; 8]).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn write_past_the_end_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    assert_eq!(
        cl.write(&queue, &buffer, 0, &[0_u8; 17]).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn write_then_read_gives_the_bytes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 12)?;
    cl.write(&queue, &buffer, 0, &[7_u32, 8, 9])?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 3)?, [7, 8, 9]);
    Ok(())
}
