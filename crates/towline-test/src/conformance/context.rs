//! Contexts and command queues.

use std::ptr;

use super::call::*;
use super::fixture::{Fixture, Record};
use super::rules;
use towline_backend::opencl::*;

rules![context:
    context_answers_with_its_devices,
    context_destructor_callbacks_run_in_reverse_order,
    context_echoes_its_properties,
    context_from_type_has_devices_of_that_type,
    context_info_sizes_hold,
    context_info_unknown_query_is_invalid_value,
    context_null_device_is_invalid_device,
    context_unknown_property_is_invalid_property,
    context_user_data_without_callback_is_invalid_value,
    context_with_a_foreign_platform_is_invalid_platform,
    context_without_devices_is_invalid_value,
    default_queue_is_in_order_and_unprofiled,
    finish_null_queue_is_invalid_command_queue,
    flush_null_queue_is_invalid_command_queue,
    flush_of_an_idle_queue_succeeds,
    queue_answers_with_its_context_and_device,
    queue_echoes_its_property_list,
    queue_info_sizes_hold,
    queue_info_unknown_query_is_invalid_value,
    queue_null_context_is_invalid_context,
    queue_null_device_is_invalid_device,
    queue_properties_list_unknown_name_is_invalid_value,
    queue_unknown_property_bits_are_invalid_value,
    queue_without_list_has_an_empty_one,
    release_null_context_is_invalid_context,
];

fn context_answers_with_its_devices(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let devices = info!(cl, clGetContextInfo(context.raw(), CL_CONTEXT_DEVICES))?.words();
    let count = info!(cl, clGetContextInfo(context.raw(), CL_CONTEXT_NUM_DEVICES))?.number();
    assert_eq!((devices, count), (vec![cl.device().addr() as u64], 1));
    Ok(())
}

fn context_destructor_callbacks_run_in_reverse_order(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (3, 0),
        "the device is older than OpenCL 3.0",
    )?;
    unsafe extern "C" fn second(_context: cl_context, user_data: *mut std::ffi::c_void) {
        // SAFETY: the rule keeps the record alive until both callbacks came.
        unsafe { &*user_data.cast::<Record>() }.add(2);
    }
    unsafe extern "C" fn first(_context: cl_context, user_data: *mut std::ffi::c_void) {
        // SAFETY: as above.
        unsafe { &*user_data.cast::<Record>() }.add(1);
    }
    // Leaked on purpose: a callback that comes too late must find it.
    let record: &'static Record = Box::leak(Box::default());
    let user_data = ptr::from_ref(record).cast_mut().cast();
    let context = cl.context()?;
    call!(
        cl,
        clSetContextDestructorCallback(context.raw(), Some(first), user_data)
    )?;
    call!(
        cl,
        clSetContextDestructorCallback(context.raw(), Some(second), user_data)
    )?;
    context.release()?;
    assert_eq!(record.wait_for(2), [2, 1]);
    Ok(())
}

fn context_echoes_its_properties(cl: &Fixture) -> Verdict {
    let list = [
        CL_CONTEXT_PLATFORM,
        cl.platform.addr() as cl_context_properties,
        0,
    ];
    let device = cl.device();
    let user = ptr::null_mut();
    let context = create!(
        cl,
        clCreateContext(list.as_ptr(), 1, &raw const device, None, user)
    )?;
    let echoed = info!(cl, clGetContextInfo(context.raw(), CL_CONTEXT_PROPERTIES))?.words();
    assert_eq!(echoed, list.map(|word| word as u64));
    Ok(())
}

fn context_from_type_has_devices_of_that_type(cl: &Fixture) -> Verdict {
    let list = [
        CL_CONTEXT_PLATFORM,
        cl.platform.addr() as cl_context_properties,
        0,
    ];
    let kind = info!(cl, clGetDeviceInfo(cl.device(), CL_DEVICE_TYPE))?.number();
    let kind = kind & !CL_DEVICE_TYPE_DEFAULT;
    let user = ptr::null_mut();
    let context = create!(cl, clCreateContextFromType(list.as_ptr(), kind, None, user))?;
    let devices = info!(cl, clGetContextInfo(context.raw(), CL_CONTEXT_DEVICES))?.words();
    assert!(devices.contains(&(cl.device().addr() as u64)));
    Ok(())
}

fn context_info_sizes_hold(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let devices = sizes!(cl, clGetContextInfo(context.raw(), CL_CONTEXT_DEVICES));
    let count = sizes!(
        cl,
        clGetContextInfo(context.raw(), CL_CONTEXT_REFERENCE_COUNT)
    );
    assert_eq!((devices, count), (Sizes::of(8), Sizes::of(4)));
    Ok(())
}

fn context_info_unknown_query_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    assert_eq!(
        info!(cl, clGetContextInfo(context.raw(), 0x7777)).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn context_null_device_is_invalid_device(cl: &Fixture) -> Verdict {
    let device = ptr::null_mut();
    let user = ptr::null_mut();
    let made = create!(
        cl,
        clCreateContext(ptr::null(), 1, &raw const device, None, user)
    );
    assert_eq!(made.code(), CL_INVALID_DEVICE);
    Ok(())
}

fn context_unknown_property_is_invalid_property(cl: &Fixture) -> Verdict {
    let list = [0x7777, 1, 0];
    let device = cl.device();
    let user = ptr::null_mut();
    let made = create!(
        cl,
        clCreateContext(list.as_ptr(), 1, &raw const device, None, user)
    );
    assert_eq!(made.code(), CL_INVALID_PROPERTY);
    Ok(())
}

fn context_user_data_without_callback_is_invalid_value(cl: &Fixture) -> Verdict {
    let mut data = 0_u32;
    let device = cl.device();
    let user = (&raw mut data).cast();
    let made = create!(
        cl,
        clCreateContext(ptr::null(), 1, &raw const device, None, user)
    );
    assert_eq!(made.code(), CL_INVALID_VALUE);
    Ok(())
}

fn context_with_a_foreign_platform_is_invalid_platform(cl: &Fixture) -> Verdict {
    // A device is no platform; an implementation that looks at what it is given sees that.
    let list = [
        CL_CONTEXT_PLATFORM,
        cl.device().addr() as cl_context_properties,
        0,
    ];
    let device = cl.device();
    let user = ptr::null_mut();
    let made = create!(
        cl,
        clCreateContext(list.as_ptr(), 1, &raw const device, None, user)
    );
    assert_eq!(made.code(), CL_INVALID_PLATFORM);
    Ok(())
}

fn context_without_devices_is_invalid_value(cl: &Fixture) -> Verdict {
    let user = ptr::null_mut();
    let made = create!(cl, clCreateContext(ptr::null(), 0, ptr::null(), None, user));
    assert_eq!(made.code(), CL_INVALID_VALUE);
    Ok(())
}

fn default_queue_is_in_order_and_unprofiled(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let properties = info!(cl, clGetCommandQueueInfo(queue.raw(), CL_QUEUE_PROPERTIES))?;
    assert_eq!(properties.number(), 0);
    Ok(())
}

fn finish_null_queue_is_invalid_command_queue(cl: &Fixture) -> Verdict {
    assert_eq!(
        call!(cl, clFinish(ptr::null_mut())).code(),
        CL_INVALID_COMMAND_QUEUE
    );
    Ok(())
}

fn flush_null_queue_is_invalid_command_queue(cl: &Fixture) -> Verdict {
    assert_eq!(
        call!(cl, clFlush(ptr::null_mut())).code(),
        CL_INVALID_COMMAND_QUEUE
    );
    Ok(())
}

fn flush_of_an_idle_queue_succeeds(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    call!(cl, clFlush(queue.raw()))?;
    Ok(cl.finish(&queue)?)
}

fn queue_answers_with_its_context_and_device(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let its_context = info!(cl, clGetCommandQueueInfo(queue.raw(), CL_QUEUE_CONTEXT))?.number();
    let its_device = info!(cl, clGetCommandQueueInfo(queue.raw(), CL_QUEUE_DEVICE))?.number();
    assert_eq!(its_context, context.raw().addr() as u64);
    assert_eq!(its_device, cl.device().addr() as u64);
    Ok(())
}

fn queue_echoes_its_property_list(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (3, 0),
        "the device is older than OpenCL 3.0",
    )?;
    let context = cl.context()?;
    let list = [
        cl_queue_properties::from(CL_QUEUE_PROPERTIES),
        CL_QUEUE_PROFILING_ENABLE,
        0,
    ];
    let made = create!(
        cl,
        clCreateCommandQueueWithProperties(context.raw(), cl.device(), list.as_ptr())
    );
    let queue = made?;
    let echoed = info!(
        cl,
        clGetCommandQueueInfo(queue.raw(), CL_QUEUE_PROPERTIES_ARRAY)
    )?;
    let bits = info!(cl, clGetCommandQueueInfo(queue.raw(), CL_QUEUE_PROPERTIES))?;
    assert_eq!(
        (echoed.words().as_slice(), bits.number()),
        (&list[..], CL_QUEUE_PROFILING_ENABLE)
    );
    Ok(())
}

fn queue_info_sizes_hold(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let context = sizes!(cl, clGetCommandQueueInfo(queue.raw(), CL_QUEUE_CONTEXT));
    let count = sizes!(
        cl,
        clGetCommandQueueInfo(queue.raw(), CL_QUEUE_REFERENCE_COUNT)
    );
    assert_eq!((context, count), (Sizes::of(8), Sizes::of(4)));
    Ok(())
}

fn queue_info_unknown_query_is_invalid_value(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    assert_eq!(
        info!(cl, clGetCommandQueueInfo(queue.raw(), 0x7777)).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn queue_null_context_is_invalid_context(cl: &Fixture) -> Verdict {
    let made = create!(cl, clCreateCommandQueue(ptr::null_mut(), cl.device(), 0));
    assert_eq!(made.code(), CL_INVALID_CONTEXT);
    Ok(())
}

fn queue_null_device_is_invalid_device(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let made = create!(cl, clCreateCommandQueue(context.raw(), ptr::null_mut(), 0));
    assert_eq!(made.code(), CL_INVALID_DEVICE);
    Ok(())
}

fn queue_properties_list_unknown_name_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let list = [0x7777, 1, 0];
    let made = create!(
        cl,
        clCreateCommandQueueWithProperties(context.raw(), cl.device(), list.as_ptr())
    );
    assert_eq!(made.code(), CL_INVALID_VALUE);
    Ok(())
}

fn queue_unknown_property_bits_are_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    assert_eq!(cl.queue(&context, 1 << 40).code(), CL_INVALID_VALUE);
    Ok(())
}

fn queue_without_list_has_an_empty_one(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (3, 0),
        "the device is older than OpenCL 3.0",
    )?;
    let (_context, queue) = cl.context_and_queue()?;
    let echoed = info!(
        cl,
        clGetCommandQueueInfo(queue.raw(), CL_QUEUE_PROPERTIES_ARRAY)
    )?;
    assert_eq!(echoed, Answer(Vec::new()));
    Ok(())
}

fn release_null_context_is_invalid_context(cl: &Fixture) -> Verdict {
    assert_eq!(
        call!(cl, clReleaseContext(ptr::null_mut())).code(),
        CL_INVALID_CONTEXT
    );
    Ok(())
}
