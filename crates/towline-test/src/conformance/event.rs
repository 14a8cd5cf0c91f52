//! Events: status, wait lists, user events, callbacks, profiling.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::call::*;
use super::fixture::{Fixture, Record, Waits};
use super::rules;
use towline_backend::opencl::*;

rules![event:
    callback_after_completion_comes_at_once,
    callback_for_queued_is_invalid_value,
    callback_of_a_failed_event_gets_the_error,
    callback_that_takes_its_time_holds_up_no_other_queue,
    callback_without_function_is_invalid_value,
    callbacks_for_all_statuses_come_in_order,
    command_behind_a_failed_event_fails_and_does_nothing,
    command_event_answers_with_its_command,
    command_event_cannot_be_set,
    command_waits_for_its_user_event,
    event_info_sizes_hold,
    event_info_unknown_query_is_invalid_value,
    event_released_early_still_completes,
    failed_user_event_has_that_status,
    non_blocking_read_is_there_after_wait,
    profiling_of_a_user_event_is_not_available,
    profiling_times_ascend,
    profiling_without_the_property_is_not_available,
    user_event_answers_as_submitted,
    user_event_callback_comes_when_set,
    user_event_null_context_is_invalid_context,
    user_event_set_to_running_is_invalid_value,
    user_event_set_twice_is_invalid_operation,
    wait_for_a_failed_event_is_an_error,
    wait_for_a_null_event_is_invalid_event,
    wait_for_events_of_two_contexts_is_invalid_context,
    wait_for_none_is_invalid_value,
    wait_list_count_without_list_is_refused,
    wait_list_of_another_context_is_invalid_context,
    wait_list_without_count_is_refused,
    wait_list_with_a_null_event_is_refused,
    waiting_threads_all_wake,
];

/// A registration of the record for one status.
fn on_status(cl: &Fixture, event: &Event, at: cl_int, record: &Arc<Record>) -> Result<(), Status> {
    let function = Some(Record::event_callback as unsafe extern "C" fn(_, _, _));
    call!(
        cl,
        clSetEventCallback(event.raw(), at, function, record.user_data())
    )
}

fn callback_after_completion_comes_at_once(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let event = cl.marker(&queue, &[])?;
    cl.finish(&queue)?;
    let record = Arc::default();
    on_status(cl, &event, CL_COMPLETE, &record)?;
    assert_eq!(record.wait_for(1), [CL_COMPLETE]);
    Ok(())
}

fn callback_for_queued_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    let function = Some(Record::event_callback as unsafe extern "C" fn(_, _, _));
    let set = call!(
        cl,
        clSetEventCallback(event.raw(), CL_QUEUED, function, ptr::null_mut())
    );
    assert_eq!(set.code(), CL_INVALID_VALUE);
    Ok(())
}

fn callback_of_a_failed_event_gets_the_error(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    let record = Arc::default();
    on_status(cl, &event, CL_COMPLETE, &record)?;
    cl.set(&event, -42)?;
    assert_eq!(record.wait_for(1), [-42]);
    Ok(())
}

fn callback_that_takes_its_time_holds_up_no_other_queue(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let other = cl.queue(&context, 0)?;
    let buffer = cl.buffer_of(&context, &[1_u32; 4])?;
    let event = cl.marker(&queue, &[])?;
    let record = Arc::<Record>::default();
    let function = Some(Record::slow_event_callback as unsafe extern "C" fn(_, _, _));
    let gate = record.clone();
    // A callback may run in the thread that sets it, so that thread is not the one that goes on.
    let words = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = call!(
                cl,
                clSetEventCallback(event.raw(), CL_COMPLETE, function, record.user_data())
            );
        });
        let words = cl.read::<u32>(&other, &buffer, 0, 4);
        gate.is_open.store(true, Ordering::Release);
        words
    });
    assert_eq!(words?, [1; 4]);
    assert_eq!(gate.wait_for(1), [CL_COMPLETE]);
    Ok(())
}

fn callback_without_function_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    let set = call!(
        cl,
        clSetEventCallback(event.raw(), CL_COMPLETE, None, ptr::null_mut())
    );
    assert_eq!(set.code(), CL_INVALID_VALUE);
    Ok(())
}

fn callbacks_for_all_statuses_come_in_order(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let gate = cl.user_event(&context)?;
    let buffer = cl.buffer(&context, 16)?;
    let event = cl.write_later(&queue, &buffer, &[1_u32; 4], &[&gate])?;
    let record = Arc::default();
    on_status(cl, &event, CL_SUBMITTED, &record)?;
    on_status(cl, &event, CL_RUNNING, &record)?;
    on_status(cl, &event, CL_COMPLETE, &record)?;
    cl.set(&gate, CL_COMPLETE)?;
    cl.finish(&queue)?;
    assert_eq!(record.wait_for(3), [CL_SUBMITTED, CL_RUNNING, CL_COMPLETE]);
    Ok(())
}

fn command_behind_a_failed_event_fails_and_does_nothing(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let gate = cl.user_event(&context)?;
    let buffer = cl.buffer_of(&context, &[1_u32; 4])?;
    let event = cl.write_later(&queue, &buffer, &[2_u32; 4], &[&gate])?;
    cl.set(&gate, -7)?;
    let waited = cl.wait(&[&event]);
    assert_eq!(waited.code(), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    assert!(cl.status(&event)?.0 < 0);
    let other = cl.queue(&context, 0)?;
    assert_eq!(cl.read::<u32>(&other, &buffer, 0, 4)?, [1; 4]);
    Ok(())
}

fn command_event_answers_with_its_command(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let buffer = cl.buffer(&context, 16)?;
    let data = [0_u32; 4];
    let event = cl.write_later(&queue, &buffer, &data, &[])?;
    let number =
        |query| info!(cl, clGetEventInfo(event.raw(), query)).map(|answer| answer.number());
    assert_eq!(
        number(CL_EVENT_COMMAND_TYPE)?,
        u64::from(CL_COMMAND_WRITE_BUFFER)
    );
    assert_eq!(number(CL_EVENT_COMMAND_QUEUE)?, queue.raw().addr() as u64);
    assert_eq!(number(CL_EVENT_CONTEXT)?, context.raw().addr() as u64);
    Ok(cl.finish(&queue)?)
}

fn command_event_cannot_be_set(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let event = cl.marker(&queue, &[])?;
    assert_eq!(cl.set(&event, CL_COMPLETE).code(), CL_INVALID_EVENT);
    Ok(cl.finish(&queue)?)
}

fn command_waits_for_its_user_event(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let gate = cl.user_event(&context)?;
    let buffer = cl.buffer_of(&context, &[1_u32; 4])?;
    let data = [2_u32; 4];
    let event = cl.write_later(&queue, &buffer, &data, &[&gate])?;
    call!(cl, clFlush(queue.raw()))?;
    let other = cl.queue(&context, 0)?;
    let before = cl.read::<u32>(&other, &buffer, 0, 4)?;
    let status = cl.status(&event)?;
    cl.set(&gate, CL_COMPLETE)?;
    cl.wait(&[&event])?;
    assert!(status.0 > CL_COMPLETE, "{status:?}");
    assert_eq!(
        (before, cl.read::<u32>(&other, &buffer, 0, 4)?),
        (vec![1; 4], vec![2; 4])
    );
    Ok(())
}

fn event_info_sizes_hold(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    let status = sizes!(
        cl,
        clGetEventInfo(event.raw(), CL_EVENT_COMMAND_EXECUTION_STATUS)
    );
    let owner = sizes!(cl, clGetEventInfo(event.raw(), CL_EVENT_CONTEXT));
    assert_eq!((status, owner), (Sizes::of(4), Sizes::of(8)));
    Ok(())
}

fn event_info_unknown_query_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    assert_eq!(
        info!(cl, clGetEventInfo(event.raw(), 0x7777)).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn event_released_early_still_completes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let gate = cl.user_event(&context)?;
    let buffer = cl.buffer_of(&context, &[1_u32; 4])?;
    let data = [2_u32; 4];
    cl.write_later(&queue, &buffer, &data, &[&gate])?
        .release()?;
    cl.set(&gate, CL_COMPLETE)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [2; 4]);
    Ok(())
}

fn failed_user_event_has_that_status(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    cl.set(&event, -1234)?;
    assert_eq!(cl.status(&event)?, -1234);
    Ok(())
}

fn non_blocking_read_is_there_after_wait(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let words: Vec<u32> = (0..100_000).collect();
    let buffer = cl.buffer_of(&context, &words)?;
    let mut read = vec![0_u32; words.len()];
    let event = cl.read_later(&queue, &buffer, &mut read, &[])?;
    cl.wait(&[&event])?;
    assert!(read == words, "the words are not there");
    Ok(())
}

fn profile(cl: &Fixture, event: &Event, query: cl_profiling_info) -> Result<u64, Status> {
    info!(cl, clGetEventProfilingInfo(event.raw(), query)).map(|answer| answer.number())
}

fn profiling_of_a_user_event_is_not_available(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    cl.set(&event, CL_COMPLETE)?;
    let time = profile(cl, &event, CL_PROFILING_COMMAND_END);
    assert_eq!(time.code(), CL_PROFILING_INFO_NOT_AVAILABLE);
    Ok(())
}

fn profiling_times_ascend(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let queue = cl.queue(&context, CL_QUEUE_PROFILING_ENABLE)?;
    let buffer = cl.buffer(&context, 4096)?;
    let data = [3_u8; 4096];
    let first = cl.write_later(&queue, &buffer, &data, &[])?;
    let second = cl.write_later(&queue, &buffer, &data, &[])?;
    cl.finish(&queue)?;
    let times = [
        profile(cl, &first, CL_PROFILING_COMMAND_QUEUED)?,
        profile(cl, &first, CL_PROFILING_COMMAND_SUBMIT)?,
        profile(cl, &first, CL_PROFILING_COMMAND_START)?,
        profile(cl, &first, CL_PROFILING_COMMAND_END)?,
        profile(cl, &second, CL_PROFILING_COMMAND_END)?,
    ];
    assert!(times.is_sorted() && times[0] > 0, "{times:?}");
    Ok(())
}

fn profiling_without_the_property_is_not_available(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let event = cl.marker(&queue, &[])?;
    cl.finish(&queue)?;
    let time = profile(cl, &event, CL_PROFILING_COMMAND_END);
    assert_eq!(time.code(), CL_PROFILING_INFO_NOT_AVAILABLE);
    Ok(())
}

fn user_event_answers_as_submitted(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    let number =
        |query| info!(cl, clGetEventInfo(event.raw(), query)).map(|answer| answer.number());
    assert_eq!(number(CL_EVENT_COMMAND_TYPE)?, u64::from(CL_COMMAND_USER));
    assert_eq!(
        (number(CL_EVENT_COMMAND_QUEUE)?, cl.status(&event)?),
        (0, Code(CL_SUBMITTED))
    );
    Ok(cl.set(&event, CL_COMPLETE)?)
}

fn user_event_callback_comes_when_set(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    let record = Arc::<Record>::default();
    on_status(cl, &event, CL_COMPLETE, &record)?;
    let before = record.wait_for(0);
    cl.set(&event, CL_COMPLETE)?;
    assert_eq!((before, record.wait_for(1)), (vec![], vec![CL_COMPLETE]));
    Ok(())
}

fn user_event_null_context_is_invalid_context(cl: &Fixture) -> Verdict {
    let made = create!(cl, clCreateUserEvent(ptr::null_mut()));
    assert_eq!(made.code(), CL_INVALID_CONTEXT);
    Ok(())
}

fn user_event_set_to_running_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    assert_eq!(cl.set(&event, CL_RUNNING).code(), CL_INVALID_VALUE);
    Ok(cl.set(&event, CL_COMPLETE)?)
}

fn user_event_set_twice_is_invalid_operation(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    cl.set(&event, CL_COMPLETE)?;
    assert_eq!(cl.set(&event, -1).code(), CL_INVALID_OPERATION);
    assert_eq!(cl.status(&event)?, CL_COMPLETE);
    Ok(())
}

fn wait_for_a_failed_event_is_an_error(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let event = cl.user_event(&context)?;
    cl.set(&event, -5)?;
    assert_eq!(
        cl.wait(&[&event]).code(),
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    );
    Ok(())
}

fn wait_for_a_null_event_is_invalid_event(cl: &Fixture) -> Verdict {
    let none: cl_event = ptr::null_mut();
    assert_eq!(
        call!(cl, clWaitForEvents(1, &raw const none)).code(),
        CL_INVALID_EVENT
    );
    Ok(())
}

fn wait_for_events_of_two_contexts_is_invalid_context(cl: &Fixture) -> Verdict {
    let (first, second) = (cl.context()?, cl.context()?);
    let (one, two) = (cl.user_event(&first)?, cl.user_event(&second)?);
    cl.set(&one, CL_COMPLETE)?;
    cl.set(&two, CL_COMPLETE)?;
    assert_eq!(cl.wait(&[&one, &two]).code(), CL_INVALID_CONTEXT);
    Ok(())
}

fn wait_for_none_is_invalid_value(cl: &Fixture) -> Verdict {
    assert_eq!(
        call!(cl, clWaitForEvents(0, ptr::null())).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn wait_list_count_without_list_is_refused(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let marked = call!(
        cl,
        clEnqueueMarkerWithWaitList(queue.raw(), 1, ptr::null(), ptr::null_mut())
    );
    assert_eq!(marked.code(), CL_INVALID_EVENT_WAIT_LIST);
    Ok(())
}

fn wait_list_of_another_context_is_invalid_context(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let other = cl.context()?;
    let event = cl.user_event(&other)?;
    let marked = cl.marker(&queue, &[&event]);
    cl.set(&event, CL_COMPLETE)?;
    assert_eq!(marked.code(), CL_INVALID_CONTEXT);
    Ok(())
}

fn wait_list_without_count_is_refused(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let event = cl.user_event(&context)?;
    let waits = Waits::new(&[&event]);
    let marked = call!(
        cl,
        clEnqueueMarkerWithWaitList(queue.raw(), 0, waits.list(), ptr::null_mut())
    );
    cl.set(&event, CL_COMPLETE)?;
    assert_eq!(marked.code(), CL_INVALID_EVENT_WAIT_LIST);
    Ok(())
}

fn wait_list_with_a_null_event_is_refused(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let none: cl_event = ptr::null_mut();
    let (list, event) = (&raw const none, ptr::null_mut());
    let marked = call!(cl, clEnqueueMarkerWithWaitList(queue.raw(), 1, list, event));
    assert_eq!(marked.code(), CL_INVALID_EVENT_WAIT_LIST);
    Ok(())
}

fn waiting_threads_all_wake(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let gate = cl.user_event(&context)?;
    let event = cl.marker(&queue, &[&gate])?;
    let woken: Vec<_> = std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..8).map(|_| scope.spawn(|| cl.wait(&[&event]))).collect();
        let set = cl.set(&gate, CL_COMPLETE);
        waiters
            .into_iter()
            .map(|waiter| waiter.join().expect("a waiter does not panic"))
            .chain([set])
            .collect()
    });
    assert_eq!(woken, [Ok(()); 9]);
    Ok(())
}
