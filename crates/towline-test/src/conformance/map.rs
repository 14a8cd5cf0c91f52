//! Mapping buffers into host memory.

use std::ptr;
use std::time::{Duration, Instant};

use super::call::*;
use super::fixture::Fixture;
use super::rules;
use towline_backend::opencl::*;

rules![map:
    map_count_follows_maps_and_unmaps,
    map_of_a_part_shows_its_bytes,
    map_of_no_bytes_is_invalid_value,
    map_past_the_end_is_invalid_value,
    map_shows_what_a_kernel_wrote,
    map_shows_the_bytes_of_its_range,
    map_with_unknown_flags_is_invalid_value,
    map_without_blocking_is_valid_once_its_event_is_complete,
    nested_maps_for_reading_show_the_same_bytes,
    two_maps_of_disjoint_ranges_are_written_by_their_own_unmap,
    unmap_of_a_foreign_pointer_is_invalid_value,
    unmap_of_another_buffer_is_invalid_value,
    unmap_waits_for_a_barrier,
    use_host_ptr_map_is_inside_the_host_memory,
    use_host_ptr_memory_shows_device_writes_after_a_map,
    write_invalidate_map_is_written_back,
    write_invalidate_with_read_is_invalid_value,
    writes_through_a_map_are_seen_by_a_kernel,
    writes_through_a_map_are_seen_once_unmapped,
];

/// The bytes behind a mapping.
fn seen(at: *mut u8, size: usize) -> Vec<u8> {
    // SAFETY: rules pass mappings that are live and this long.
    unsafe { std::slice::from_raw_parts(at, size) }.to_vec()
}

/// Writes through a mapping.
fn store(at: *mut u8, bytes: &[u8]) {
    // SAFETY: rules pass mappings that are live, for writing and at least this long.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
}

fn map_count(cl: &Fixture, buffer: &Owned<cl_mem>) -> Result<u64, Status> {
    info!(cl, clGetMemObjectInfo(buffer.raw(), CL_MEM_MAP_COUNT)).map(|answer| answer.number())
}

/// Nothing here takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(20);

fn map_count_follows_maps_and_unmaps(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 64)?;
    let first = cl.map(&queue, &buffer, CL_MAP_READ, 0, 16)?;
    let second = cl.map(&queue, &buffer, CL_MAP_READ, 32, 16)?;
    let both = map_count(cl, &buffer)?;
    cl.unmap(&queue, &buffer, first)?;
    cl.unmap(&queue, &buffer, second)?;
    cl.finish(&queue)?;
    // PoCL (3.1) counts an unmap some time after it has told its end.
    let start = Instant::now();
    while map_count(cl, &buffer)? != 0 && start.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    assert_eq!((both, map_count(cl, &buffer)?), (2, 0));
    Ok(())
}

fn map_of_a_part_shows_its_bytes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let align = cl.caps.sub_buffer_align;
    let mut bytes = vec![1_u8; align];
    bytes.extend([2_u8; 16]);
    let whole = cl.buffer_of(&context, &bytes)?;
    let part = cl.part(&whole, CL_MEM_READ_WRITE, align, 16)?;
    let mapped = cl.map(&queue, &part, CL_MAP_READ | CL_MAP_WRITE, 4, 8)?;
    assert_eq!(seen(mapped, 8), [2; 8]);
    store(mapped, &[3; 8]);
    cl.unmap(&queue, &part, mapped)?;
    assert_eq!(cl.read::<u8>(&queue, &whole, align + 2, 4)?, [2, 2, 3, 3]);
    Ok(())
}

fn map_of_no_bytes_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    assert_eq!(
        cl.map(&queue, &buffer, CL_MAP_READ, 0, 0).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn map_past_the_end_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    assert_eq!(
        cl.map(&queue, &buffer, CL_MAP_READ, 8, 9).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn map_shows_what_a_kernel_wrote(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"ids")?;
    let buffer = cl.buffer(&context, 16)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.launch(&queue, &kernel, 4)?;
    let mapped = cl.map(&queue, &buffer, CL_MAP_READ, 4, 8)?;
    assert_eq!(seen(mapped, 8), [1, 0, 0, 0, 2, 0, 0, 0]);
    cl.unmap(&queue, &buffer, mapped)?;
    Ok(cl.finish(&queue)?)
}

fn map_shows_the_bytes_of_its_range(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let bytes: Vec<u8> = (0..64).collect();
    let buffer = cl.buffer_of(&context, &bytes)?;
    let mapped = cl.map(&queue, &buffer, CL_MAP_READ, 10, 20)?;
    assert_eq!(seen(mapped, 20), bytes[10..30]);
    cl.unmap(&queue, &buffer, mapped)?;
    Ok(cl.finish(&queue)?)
}

fn map_with_unknown_flags_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    assert_eq!(
        cl.map(&queue, &buffer, 1 << 20, 0, 16).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn map_without_blocking_is_valid_once_its_event_is_complete(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &[1_u8; 16])?;
    let gate = cl.user_event(&context)?;
    cl.write_later(&queue, &buffer, &[2_u8; 16], &[&gate])?;
    let (mut event, mut code) = (ptr::null_mut(), UNSET);
    let (of, at, none) = (queue.raw(), buffer.raw(), ptr::null());
    // SAFETY: live handles, and locals for event and code.
    let mapped = unsafe {
        cl.api.clEnqueueMapBuffer(
            of,
            at,
            CL_FALSE,
            CL_MAP_READ,
            0,
            16,
            0,
            none,
            &raw mut event,
            &raw mut code,
        )
    };
    assert_eq!(Code(code), CL_SUCCESS);
    let event = Owned::new(&cl.api, event);
    let before = cl.status(&event)?;
    cl.set(&gate, CL_COMPLETE)?;
    cl.wait(&[&event])?;
    assert_ne!(before, Code(CL_COMPLETE));
    assert_eq!(seen(mapped.cast(), 16), [2; 16]);
    cl.unmap(&queue, &buffer, mapped.cast())?;
    Ok(cl.finish(&queue)?)
}

fn nested_maps_for_reading_show_the_same_bytes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let bytes: Vec<u8> = (0..64).collect();
    let buffer = cl.buffer_of(&context, &bytes)?;
    let outer = cl.map(&queue, &buffer, CL_MAP_READ, 0, 64)?;
    let inner = cl.map(&queue, &buffer, CL_MAP_READ, 16, 16)?;
    assert_eq!(seen(inner, 16), bytes[16..32]);
    cl.unmap(&queue, &buffer, inner)?;
    cl.finish(&queue)?;
    assert_eq!(seen(outer, 64), bytes);
    cl.unmap(&queue, &buffer, outer)?;
    Ok(cl.finish(&queue)?)
}

fn two_maps_of_disjoint_ranges_are_written_by_their_own_unmap(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &[0_u8; 32])?;
    let low = cl.map(&queue, &buffer, CL_MAP_WRITE, 0, 8)?;
    let high = cl.map(&queue, &buffer, CL_MAP_WRITE, 16, 8)?;
    store(low, &[1; 8]);
    store(high, &[2; 8]);
    cl.unmap(&queue, &buffer, high)?;
    cl.unmap(&queue, &buffer, low)?;
    let all = cl.read::<u8>(&queue, &buffer, 0, 32)?;
    assert_eq!(all, [[1; 8], [0; 8], [2; 8], [0; 8]].concat());
    Ok(())
}

fn unmap_of_a_foreign_pointer_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    let mut foreign = [0_u8; 16];
    assert_eq!(
        cl.unmap(&queue, &buffer, foreign.as_mut_ptr()).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn unmap_of_another_buffer_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let (mine, other) = (cl.buffer(&context, 16)?, cl.buffer(&context, 16)?);
    let mapped = cl.map(&queue, &mine, CL_MAP_READ, 0, 16)?;
    let wrong = cl.unmap(&queue, &other, mapped).code();
    cl.unmap(&queue, &mine, mapped)?;
    cl.finish(&queue)?;
    assert_eq!(wrong, CL_INVALID_VALUE);
    Ok(())
}

fn unmap_waits_for_a_barrier(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let queue = cl.out_of_order(&context)?;
    let gate = cl.user_event(&context)?;
    let buffer = cl.buffer(&context, 16)?;
    let mapped = cl.map(&queue, &buffer, CL_MAP_READ, 0, 16)?;
    cl.barrier(&queue, &[&gate])?;
    let ended = cl.event(|event| {
        let (memory, none) = (buffer.raw(), ptr::null());
        call!(
            cl,
            clEnqueueUnmapMemObject(queue.raw(), memory, mapped.cast(), 0, none, event)
        )
    })?;
    call!(cl, clFlush(queue.raw()))?;
    std::thread::sleep(Duration::from_millis(20));
    let before = cl.status(&ended)?;
    cl.set(&gate, CL_COMPLETE)?;
    cl.finish(&queue)?;
    assert!(before.0 > CL_COMPLETE, "{before:?}");
    Ok(())
}

fn use_host_ptr_map_is_inside_the_host_memory(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let mut words = vec![0_u64; 64];
    let host: *mut u8 = words.as_mut_ptr().cast();
    let buffer = cl.buffer_with(&context, CL_MEM_USE_HOST_PTR, 512, host.cast())?;
    let mapped = cl.map(&queue, &buffer, CL_MAP_READ, 24, 100)?;
    cl.unmap(&queue, &buffer, mapped)?;
    cl.finish(&queue)?;
    assert_eq!(mapped.addr(), host.addr() + 24);
    Ok(())
}

fn use_host_ptr_memory_shows_device_writes_after_a_map(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let mut words = vec![1_u32; 64];
    let host = words.as_mut_ptr();
    let buffer = cl.buffer_with(&context, CL_MEM_USE_HOST_PTR, 256, host.cast())?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.launch(&queue, &kernel, 64)?;
    let mapped = cl.map(&queue, &buffer, CL_MAP_READ, 0, 256)?;
    assert_eq!(seen(mapped, 256), 2_u32.to_le_bytes().repeat(64));
    cl.unmap(&queue, &buffer, mapped)?;
    Ok(cl.finish(&queue)?)
}

fn write_invalidate_map_is_written_back(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &[1_u8; 16])?;
    let mapped = cl.map(&queue, &buffer, CL_MAP_WRITE_INVALIDATE_REGION, 4, 8)?;
    store(mapped, &[5; 8]);
    cl.unmap(&queue, &buffer, mapped)?;
    let all = cl.read::<u8>(&queue, &buffer, 0, 16)?;
    assert_eq!(all, [1, 1, 1, 1, 5, 5, 5, 5, 5, 5, 5, 5, 1, 1, 1, 1]);
    Ok(())
}

fn write_invalidate_with_read_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    let flags = CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION;
    assert_eq!(
        cl.map(&queue, &buffer, flags, 0, 16).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn writes_through_a_map_are_seen_by_a_kernel(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let buffer = cl.buffer_of(&context, &[0_u32; 4])?;
    let mapped = cl.map(&queue, &buffer, CL_MAP_WRITE, 0, 16)?;
    store(mapped, &9_u32.to_le_bytes().repeat(4));
    cl.unmap(&queue, &buffer, mapped)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.launch(&queue, &kernel, 4)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [10; 4]);
    Ok(())
}

fn writes_through_a_map_are_seen_once_unmapped(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &[1_u8; 8])?;
    let mapped = cl.map(&queue, &buffer, CL_MAP_WRITE, 2, 4)?;
    store(mapped, &[7, 7, 7, 7]);
    cl.unmap(&queue, &buffer, mapped)?;
    assert_eq!(
        cl.read::<u8>(&queue, &buffer, 0, 8)?,
        [1, 1, 7, 7, 7, 7, 1, 1]
    );
    Ok(())
}
