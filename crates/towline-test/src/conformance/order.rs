//! Order between commands: in-order visibility, dependencies, markers, barriers, many launches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::call::*;
use super::fixture::{Fixture, Range, Record};
use super::rules;
use towline_backend::opencl::*;

rules![order:
    barrier_holds_later_commands_back,
    blocking_read_sees_a_chain_of_non_blocking_writes,
    dependency_across_two_queues_holds,
    dependency_in_an_out_of_order_queue_holds,
    diamond_of_dependencies_is_summed_once_each,
    finish_waits_for_everything,
    host_memory_may_be_reused_once_a_write_is_complete,
    in_order_commands_wait_for_the_one_before,
    in_order_kernels_see_each_others_writes,
    launches_behind_a_spinning_kernel_are_accepted,
    many_small_launches_all_run,
    marker_completes_after_all_commands_before,
    marker_with_a_wait_list_waits_for_it_alone,
    older_barrier_and_marker_calls_order_likewise,
    out_of_order_commands_may_pass_one_that_waits,
    read_waits_for_a_write_of_another_queue,
    spinning_kernel_is_released_by_a_write_from_another_thread,
];

fn barrier_holds_later_commands_back(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let queue = cl.out_of_order(&context)?;
    let gate = cl.user_event(&context)?;
    let buffer = cl.buffer_of(&context, &[1_u32; 4])?;
    let data = [2_u32; 4];
    cl.barrier(&queue, &[&gate])?;
    let behind = cl.write_later(&queue, &buffer, &data, &[])?;
    call!(cl, clFlush(queue.raw()))?;
    std::thread::sleep(Duration::from_millis(20));
    let before = cl.status(&behind)?;
    cl.set(&gate, CL_COMPLETE)?;
    cl.finish(&queue)?;
    assert!(before.0 > CL_COMPLETE, "{before:?}");
    assert_eq!(cl.status(&behind)?, CL_COMPLETE);
    Ok(())
}

fn blocking_read_sees_a_chain_of_non_blocking_writes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 4096)?;
    let chain: Vec<Vec<u32>> = (0..50).map(|step| vec![step; 1024]).collect();
    for data in &chain {
        cl.write_later(&queue, &buffer, data, &[])?;
    }
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 1024)?, vec![49; 1024]);
    Ok(())
}

fn dependency_across_two_queues_holds(cl: &Fixture) -> Verdict {
    let (context, first) = cl.context_and_queue()?;
    let second = cl.queue(&context, 0)?;
    let kernel = cl.kernel_of(&context, c"scale")?;
    let buffer = cl.buffer_of(&context, &[1_u32; 64])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.arg(&kernel, 1, &3_u32)?;
    let mut last = cl.marker(&first, &[])?;
    for step in 0..10 {
        let queue = if step % 2 == 0 { &second } else { &first };
        last = cl.launch_over(
            queue,
            &kernel,
            Range {
                global: &[64],
                waits: &[&last],
                ..Range::default()
            },
        )?;
        call!(cl, clFlush(queue.raw()))?;
    }
    cl.wait(&[&last])?;
    assert_eq!(
        cl.read::<u32>(&first, &buffer, 0, 64)?,
        vec![3_u32.pow(10); 64]
    );
    Ok(())
}

fn dependency_in_an_out_of_order_queue_holds(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let queue = cl.out_of_order(&context)?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let buffer = cl.buffer(&context, 4000)?;
    let data = vec![10_u32; 1000];
    let written = cl.write_later(&queue, &buffer, &data, &[])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    let range = Range {
        global: &[1000],
        waits: &[&written],
        ..Range::default()
    };
    let added = cl.launch_over(&queue, &kernel, range)?;
    let mut read = vec![0_u32; 1000];
    let done = cl.read_later(&queue, &buffer, &mut read, &[&added])?;
    cl.wait(&[&done])?;
    assert_eq!(read, vec![11; 1000]);
    Ok(())
}

fn diamond_of_dependencies_is_summed_once_each(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let queue = cl.out_of_order(&context)?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let buffer = cl.buffer_of(&context, &[0_u32; 256])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    let step = |offset: usize, waits: &[&Event]| {
        let (global, offset) = ([128], [offset]);
        cl.launch_over(
            &queue,
            &kernel,
            Range {
                global: &global,
                offset: &offset,
                waits,
                ..Range::default()
            },
        )
    };
    let top = step(0, &[])?;
    let (left, right) = (step(0, &[&top])?, step(128, &[&top])?);
    let bottom = step(64, &[&left, &right])?;
    cl.wait(&[&bottom])?;
    let sums = [vec![2; 64], vec![3; 64], vec![2; 64], vec![1; 64]].concat();
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 256)?, sums);
    Ok(())
}

fn finish_waits_for_everything(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 1 << 20)?;
    let mut data = vec![0_u8; 1 << 20];
    let mut events = Vec::new();
    for step in 0..20_u8 {
        events.push(cl.fill(&queue, &buffer, &[step], 0, 1 << 20)?);
    }
    events.push(cl.read_later(&queue, &buffer, &mut data, &[])?);
    cl.finish(&queue)?;
    for event in &events {
        assert_eq!(cl.status(event)?, CL_COMPLETE);
    }
    assert!(data.iter().all(|byte| *byte == 19));
    Ok(())
}

fn host_memory_may_be_reused_once_a_write_is_complete(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffers = [cl.buffer(&context, 40_000)?, cl.buffer(&context, 40_000)?];
    let mut data = vec![1_u32; 10_000];
    let written = cl.write_later(&queue, &buffers[0], &data, &[])?;
    cl.wait(&[&written])?;
    data.fill(2);
    cl.write(&queue, &buffers[1], 0, &data)?;
    assert_eq!(
        cl.read::<u32>(&queue, &buffers[0], 0, 10_000)?,
        vec![1; 10_000]
    );
    assert_eq!(
        cl.read::<u32>(&queue, &buffers[1], 0, 10_000)?,
        vec![2; 10_000]
    );
    Ok(())
}

fn in_order_commands_wait_for_the_one_before(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let gate = cl.user_event(&context)?;
    let buffer = cl.buffer_of(&context, &[1_u32; 4])?;
    cl.marker(&queue, &[&gate])?;
    let data = [2_u32; 4];
    let behind = cl.write_later(&queue, &buffer, &data, &[])?;
    call!(cl, clFlush(queue.raw()))?;
    std::thread::sleep(Duration::from_millis(20));
    let before = cl.status(&behind)?;
    cl.set(&gate, CL_COMPLETE)?;
    cl.finish(&queue)?;
    assert!(before.0 > CL_COMPLETE, "{before:?}");
    Ok(())
}

fn in_order_kernels_see_each_others_writes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let program = cl.build(&context, super::fixture::KERNELS)?;
    let (add, scale) = (
        cl.kernel(&program, c"add_one")?,
        cl.kernel(&program, c"scale")?,
    );
    let buffer = cl.buffer_of(&context, &[0_u32; 256])?;
    cl.arg_mem(&add, 0, &buffer)?;
    cl.arg_mem(&scale, 0, &buffer)?;
    cl.arg(&scale, 1, &2_u32)?;
    for _ in 0..10 {
        cl.launch(&queue, &add, 256)?;
        cl.launch(&queue, &scale, 256)?;
    }
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 256)?, vec![2046; 256]);
    Ok(())
}

fn launches_behind_a_spinning_kernel_are_accepted(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let gate = cl.user_event(&context)?;
    let buffer = cl.buffer_of(&context, &[0_u32; 1])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.marker(&queue, &[&gate])?;
    let start = Instant::now();
    for _ in 0..2000 {
        cl.launch(&queue, &kernel, 1)?;
    }
    let enqueued = start.elapsed();
    cl.set(&gate, CL_COMPLETE)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 1)?, [2000]);
    assert!(enqueued < Duration::from_secs(20), "{enqueued:?}");
    Ok(())
}

fn many_small_launches_all_run(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let buffer = cl.buffer_of(&context, &[0_u32; 16])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    for _ in 0..5000 {
        cl.launch(&queue, &kernel, 16)?;
    }
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 16)?, [5000; 16]);
    Ok(())
}

fn marker_completes_after_all_commands_before(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let queue = cl.out_of_order(&context)?;
    let gate = cl.user_event(&context)?;
    let buffer = cl.buffer(&context, 16)?;
    let data = [1_u32; 4];
    let first = cl.write_later(&queue, &buffer, &data, &[&gate])?;
    let marker = cl.marker(&queue, &[])?;
    call!(cl, clFlush(queue.raw()))?;
    std::thread::sleep(Duration::from_millis(20));
    let before = cl.status(&marker)?;
    cl.set(&gate, CL_COMPLETE)?;
    cl.wait(&[&marker])?;
    assert!(before.0 > CL_COMPLETE, "{before:?}");
    assert_eq!(cl.status(&first)?, CL_COMPLETE);
    Ok(())
}

fn marker_with_a_wait_list_waits_for_it_alone(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let queue = cl.out_of_order(&context)?;
    let (gate, key) = (cl.user_event(&context)?, cl.user_event(&context)?);
    let buffer = cl.buffer(&context, 16)?;
    let data = [1_u32; 4];
    let held = cl.write_later(&queue, &buffer, &data, &[&gate])?;
    let marker = cl.marker(&queue, &[&key])?;
    cl.set(&key, CL_COMPLETE)?;
    cl.wait(&[&marker])?;
    let still = cl.status(&held)?;
    cl.set(&gate, CL_COMPLETE)?;
    cl.finish(&queue)?;
    assert!(still.0 > CL_COMPLETE, "{still:?}");
    Ok(())
}

fn older_barrier_and_marker_calls_order_likewise(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let queue = cl.out_of_order(&context)?;
    let gate = cl.user_event(&context)?;
    let buffer = cl.buffer(&context, 16)?;
    let data = [1_u32; 4];
    let held = cl.write_later(&queue, &buffer, &data, &[&gate])?;
    call!(cl, clEnqueueBarrier(queue.raw()))?;
    let marker = cl.event(|event| call!(cl, clEnqueueMarker(queue.raw(), event)))?;
    call!(cl, clFlush(queue.raw()))?;
    std::thread::sleep(Duration::from_millis(20));
    let before = [cl.status(&held)?, cl.status(&marker)?];
    cl.set(&gate, CL_COMPLETE)?;
    cl.wait(&[&marker])?;
    assert!(
        before.iter().all(|status| status.0 > CL_COMPLETE),
        "{before:?}"
    );
    assert_eq!(cl.status(&held)?, CL_COMPLETE);
    Ok(())
}

fn out_of_order_commands_may_pass_one_that_waits(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let queue = cl.out_of_order(&context)?;
    let gate = cl.user_event(&context)?;
    let (held, free) = (cl.buffer(&context, 16)?, cl.buffer(&context, 16)?);
    let data = [1_u32; 4];
    let waiting = cl.write_later(&queue, &held, &data, &[&gate])?;
    let passing = cl.write_later(&queue, &free, &data, &[])?;
    cl.wait(&[&passing])?;
    let still = cl.status(&waiting)?;
    cl.set(&gate, CL_COMPLETE)?;
    cl.finish(&queue)?;
    assert!(still.0 > CL_COMPLETE, "{still:?}");
    Ok(())
}

fn read_waits_for_a_write_of_another_queue(cl: &Fixture) -> Verdict {
    let (context, first) = cl.context_and_queue()?;
    let second = cl.queue(&context, 0)?;
    let gate = cl.user_event(&context)?;
    let buffer = cl.buffer_of(&context, &[1_u32; 4])?;
    let data = [2_u32; 4];
    let written = cl.write_later(&first, &buffer, &data, &[&gate])?;
    call!(cl, clFlush(first.raw()))?;
    let mut read = [0_u32; 4];
    let record = Arc::<Record>::default();
    let done = cl.read_later(&second, &buffer, &mut read, &[&written])?;
    let function = Some(Record::event_callback as unsafe extern "C" fn(_, _, _));
    call!(
        cl,
        clSetEventCallback(done.raw(), CL_COMPLETE, function, record.user_data())
    )?;
    call!(cl, clFlush(second.raw()))?;
    cl.set(&gate, CL_COMPLETE)?;
    assert_eq!(record.wait_for(1), [CL_COMPLETE]);
    assert_eq!(read, [2; 4]);
    Ok(())
}

fn spinning_kernel_is_released_by_a_write_from_another_thread(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.units > 1,
        "the device has one compute unit: a kernel that spins has it to itself",
    )?;
    let (context, queue) = cl.context_and_queue()?;
    let other = cl.queue(&context, 0)?;
    let kernel = cl.kernel_of(&context, c"spin")?;
    let flag = cl.buffer_of(&context, &[0_u32])?;
    cl.arg_mem(&kernel, 0, &flag)?;
    let event = cl.launch(&queue, &kernel, 1)?;
    call!(cl, clFlush(queue.raw()))?;
    let (waited, written) = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| cl.wait(&[&event]));
        let written = cl.write(&other, &flag, 0, &[1_u32]);
        (waiter.join().expect("the waiter does not panic"), written)
    });
    assert_eq!((waited, written), (Ok(()), Ok(())));
    Ok(())
}
