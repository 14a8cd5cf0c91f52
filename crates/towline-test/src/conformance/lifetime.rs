//! Reference counts, and objects released in odd orders.

use super::call::*;
use super::fixture::{Fixture, KERNELS};
use super::rules;
use towline_backend::opencl::*;

rules![lifetime:
    buffer_released_behind_its_last_command_is_written,
    buffer_released_while_a_kernel_has_it_as_argument_still_works,
    context_released_first_leaves_its_objects_usable,
    event_outlives_its_queue,
    kernel_keeps_its_program,
    parent_released_first_leaves_the_part_usable,
    queue_released_with_work_pending_runs_it,
    reference_count_of_a_buffer_follows,
    reference_count_of_a_kernel_follows,
    reference_count_of_a_queue_follows,
    reference_count_of_an_event_follows,
    thousands_of_buffers_come_and_go,
];

fn buffer_released_behind_its_last_command_is_written(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let gate = cl.user_event(&context)?;
    let (from, to) = (
        cl.buffer_of(&context, &[6_u32; 64])?,
        cl.buffer(&context, 256)?,
    );
    cl.marker(&queue, &[&gate])?;
    cl.copy(&queue, (&from, 0), (&to, 0), 256)?;
    from.release()?;
    cl.set(&gate, CL_COMPLETE)?;
    assert_eq!(cl.read::<u32>(&queue, &to, 0, 64)?, [6; 64]);
    Ok(())
}

fn buffer_released_while_a_kernel_has_it_as_argument_still_works(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"copy")?;
    let gate = cl.user_event(&context)?;
    let (from, to) = (
        cl.buffer_of(&context, &[8_u32; 64])?,
        cl.buffer(&context, 256)?,
    );
    cl.marker(&queue, &[&gate])?;
    cl.arg_mem(&kernel, 0, &from)?;
    cl.arg_mem(&kernel, 1, &to)?;
    cl.launch(&queue, &kernel, 64)?;
    from.release()?;
    kernel.release()?;
    cl.set(&gate, CL_COMPLETE)?;
    assert_eq!(cl.read::<u32>(&queue, &to, 0, 64)?, [8; 64]);
    Ok(())
}

fn context_released_first_leaves_its_objects_usable(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer_of(&context, &[1_u32; 4])?;
    context.release()?;
    cl.write(&queue, &buffer, 0, &[2_u32])?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [2, 1, 1, 1]);
    queue.release()?;
    Ok(buffer.release()?)
}

fn event_outlives_its_queue(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    let data = [1_u32; 4];
    let event = cl.write_later(&queue, &buffer, &data, &[])?;
    cl.finish(&queue)?;
    queue.release()?;
    buffer.release()?;
    context.release()?;
    assert_eq!(cl.status(&event)?, CL_COMPLETE);
    Ok(cl.wait(&[&event])?)
}

fn kernel_keeps_its_program(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let program = cl.build(&context, KERNELS)?;
    let kernel = cl.kernel(&program, c"add_one")?;
    program.release()?;
    let buffer = cl.buffer_of(&context, &[1_u32; 4])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.launch(&queue, &kernel, 4)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [2; 4]);
    Ok(())
}

fn parent_released_first_leaves_the_part_usable(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let align = cl.caps.sub_buffer_align;
    let whole = cl.buffer_of(&context, &vec![3_u8; 2 * align])?;
    let part = cl.part(&whole, CL_MEM_READ_WRITE, align, align)?;
    whole.release()?;
    cl.write(&queue, &part, 0, &[4_u8])?;
    assert_eq!(cl.read::<u8>(&queue, &part, 0, 2)?, [4, 3]);
    Ok(())
}

fn queue_released_with_work_pending_runs_it(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let other = cl.queue(&context, 0)?;
    let buffer = cl.buffer_of(&context, &[1_u32; 4])?;
    let data = [2_u32; 4];
    let event = cl.write_later(&queue, &buffer, &data, &[])?;
    queue.release()?;
    cl.wait(&[&event])?;
    assert_eq!(cl.read::<u32>(&other, &buffer, 0, 4)?, [2; 4]);
    Ok(())
}

fn reference_count_of_a_buffer_follows(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let buffer = cl.buffer(&context, 16)?;
    let count = || {
        info!(cl, clGetMemObjectInfo(buffer.raw(), CL_MEM_REFERENCE_COUNT))
            .map(|answer| answer.number())
    };
    let first = count()?;
    call!(cl, clRetainMemObject(buffer.raw()))?;
    let more = count()?;
    call!(cl, clReleaseMemObject(buffer.raw()))?;
    assert_eq!((first, more, count()?), (1, 2, 1));
    Ok(())
}

fn reference_count_of_a_kernel_follows(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let count = || {
        info!(cl, clGetKernelInfo(kernel.raw(), CL_KERNEL_REFERENCE_COUNT))
            .map(|answer| answer.number())
    };
    let first = count()?;
    call!(cl, clRetainKernel(kernel.raw()))?;
    let more = count()?;
    call!(cl, clReleaseKernel(kernel.raw()))?;
    assert_eq!((first, more, count()?), (1, 2, 1));
    Ok(())
}

fn reference_count_of_a_queue_follows(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let count = || {
        info!(
            cl,
            clGetCommandQueueInfo(queue.raw(), CL_QUEUE_REFERENCE_COUNT)
        )
        .map(|answer| answer.number())
    };
    let first = count()?;
    call!(cl, clRetainCommandQueue(queue.raw()))?;
    let more = count()?;
    call!(cl, clReleaseCommandQueue(queue.raw()))?;
    assert_eq!((first, more, count()?), (1, 2, 1));
    Ok(())
}

fn reference_count_of_an_event_follows(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    let count = || {
        info!(cl, clGetEventInfo(event.raw(), CL_EVENT_REFERENCE_COUNT))
            .map(|answer| answer.number())
    };
    let first = count()?;
    call!(cl, clRetainEvent(event.raw()))?;
    let more = count()?;
    call!(cl, clReleaseEvent(event.raw()))?;
    assert_eq!((first, more, count()?), (1, 2, 1));
    Ok(cl.set(&event, CL_COMPLETE)?)
}

fn thousands_of_buffers_come_and_go(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    for step in 0..3000_u32 {
        let buffer = cl.buffer(&context, 1 << 20)?;
        if step % 500 == 0 {
            cl.write(&queue, &buffer, 0, &[step])?;
            assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 1)?, [step]);
        }
    }
    Ok(())
}
