//! Many threads in one context.

use super::call::*;
use super::fixture::{Fixture, KERNELS};
use super::rules;
use towline_backend::opencl::*;

rules![threads:
    threads_share_a_context_with_a_queue_each,
    threads_share_a_queue,
    threads_create_and_release_objects_at_once,
    threads_wait_for_each_others_events,
];

/// What each of these threads came to.
fn all<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count)
            .map(|index| scope.spawn(move || work(index)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread does not panic"))
            .collect()
    })
}

fn threads_share_a_context_with_a_queue_each(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.build(&context, KERNELS)?;
    let results = all(6, |index| -> Result<Vec<u32>, Status> {
        let queue = cl.queue(&context, 0)?;
        let kernel = cl.kernel(&program, c"add_one")?;
        let buffer = cl.buffer_of(&context, &[index as u32; 64])?;
        cl.arg_mem(&kernel, 0, &buffer)?;
        for _ in 0..50 {
            cl.launch(&queue, &kernel, 64)?;
        }
        cl.read::<u32>(&queue, &buffer, 0, 64)
    });
    for (index, result) in results.into_iter().enumerate() {
        assert_eq!(result?, vec![index as u32 + 50; 64]);
    }
    Ok(())
}

fn threads_share_a_queue(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let results = all(6, |index| -> Result<bool, Status> {
        let buffer = cl.buffer(&context, 4096)?;
        let mut is_right = true;
        for step in 0..40_u32 {
            let word = index as u32 * 1000 + step;
            cl.write(&queue, &buffer, 0, &[word; 1024])?;
            is_right &= cl.read::<u32>(&queue, &buffer, 0, 1024)? == [word; 1024];
        }
        Ok(is_right)
    });
    assert_eq!(results, [Ok(true); 6]);
    Ok(())
}

fn threads_create_and_release_objects_at_once(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let results = all(6, |_| -> Result<(), Status> {
        for _ in 0..200 {
            let buffer = cl.buffer(&context, 4096)?;
            let event = cl.user_event(&context)?;
            call!(cl, clRetainContext(context.raw()))?;
            cl.set(&event, CL_COMPLETE)?;
            buffer.release()?;
            call!(cl, clReleaseContext(context.raw()))?;
        }
        Ok(())
    });
    assert_eq!(results, [Ok(()); 6]);
    Ok(())
}

fn threads_wait_for_each_others_events(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let events = [
        cl.user_event(&context)?,
        cl.user_event(&context)?,
        cl.user_event(&context)?,
    ];
    // Each thread waits for the one before it, then lets the next one go.
    let results = all(4, |index| -> Result<(), Status> {
        if index > 0 {
            cl.wait(&[&events[index - 1]])?;
        }
        match events.get(index) {
            Some(event) => cl.set(event, CL_COMPLETE),
            None => Ok(()),
        }
    });
    assert_eq!(results, [Ok(()); 4]);
    Ok(())
}
