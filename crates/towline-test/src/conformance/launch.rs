//! Launches: ranges, groups, offsets and what is refused.

use std::ptr;

use super::call::*;
use super::fixture::{Fixture, KERNELS, Range};
use super::rules;
use towline_backend::opencl::*;

rules![launch:
    group_larger_than_the_device_allows_is_invalid_work_group_size,
    group_of_no_items_is_invalid_work_group_size,
    group_that_differs_from_the_required_is_invalid_work_group_size,
    group_that_does_not_divide_the_range_is_refused_or_runs_the_rest,
    groups_have_their_own_local_ids,
    kernel_of_another_context_is_invalid_context,
    kernel_runs_on_a_part_of_a_buffer,
    launch_of_a_null_kernel_is_invalid_kernel,
    launch_with_an_unset_argument_is_invalid_kernel_args,
    offset_shifts_the_ids,
    print_succeeds,
    range_in_three_dimensions_covers_all,
    range_in_two_dimensions_covers_all,
    range_of_four_dimensions_is_invalid_work_dimension,
    range_of_no_dimensions_is_invalid_work_dimension,
    range_of_no_items_does_nothing,
    required_group_size_is_used,
    task_runs_once,
];

fn group_larger_than_the_device_allows_is_invalid_work_group_size(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let buffer = cl.buffer(&context, 4)?;
    let size = 2 * cl.caps.group_limit;
    cl.arg_mem(&kernel, 0, &buffer)?;
    let range = Range {
        global: &[size],
        local: &[size],
        ..Range::default()
    };
    let code = cl.launch_over(&queue, &kernel, range).code();
    assert!(
        code == CL_INVALID_WORK_GROUP_SIZE || code == CL_INVALID_WORK_ITEM_SIZE,
        "{code:?}"
    );
    Ok(())
}

fn group_of_no_items_is_invalid_work_group_size(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let buffer = cl.buffer(&context, 64)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    let range = Range {
        global: &[16],
        local: &[0],
        ..Range::default()
    };
    assert_eq!(
        cl.launch_over(&queue, &kernel, range).code(),
        CL_INVALID_WORK_GROUP_SIZE
    );
    Ok(())
}

fn group_that_differs_from_the_required_is_invalid_work_group_size(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"required")?;
    let buffer = cl.buffer(&context, 256)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    let range = Range {
        global: &[8, 8],
        local: &[2, 4],
        ..Range::default()
    };
    assert_eq!(
        cl.launch_over(&queue, &kernel, range).code(),
        CL_INVALID_WORK_GROUP_SIZE
    );
    Ok(())
}

fn group_that_does_not_divide_the_range_is_refused_or_runs_the_rest(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.group_limit >= 4, "the device has no groups of four")?;
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let buffer = cl.buffer_of(&context, &[0_u32; 10])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    let range = Range {
        global: &[10],
        local: &[4],
        ..Range::default()
    };
    let code = cl.launch_over(&queue, &kernel, range).code();
    let runs = if code == CL_SUCCESS { 1 } else { 0 };
    assert!(
        code == CL_SUCCESS || code == CL_INVALID_WORK_GROUP_SIZE,
        "{code:?}"
    );
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 10)?, [runs; 10]);
    Ok(())
}

fn groups_have_their_own_local_ids(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.group_limit >= 4, "the device has no groups of four")?;
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"groups")?;
    let buffer = cl.buffer(&context, 32)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.launch_over(
        &queue,
        &kernel,
        Range {
            global: &[8],
            local: &[4],
            ..Range::default()
        },
    )?;
    assert_eq!(
        cl.read::<u32>(&queue, &buffer, 0, 8)?,
        [0, 1, 2, 3, 1000, 1001, 1002, 1003]
    );
    Ok(())
}

fn kernel_of_another_context_is_invalid_context(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let other = cl.context()?;
    let kernel = cl.kernel_of(&other, c"add_one")?;
    let buffer = cl.buffer(&other, 16)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    assert_eq!(cl.launch(&queue, &kernel, 4).code(), CL_INVALID_CONTEXT);
    Ok(())
}

fn kernel_runs_on_a_part_of_a_buffer(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let words = cl.caps.sub_buffer_align.div_ceil(4);
    let whole = cl.buffer_of(&context, &vec![1_u32; words + 4])?;
    let part = cl.part(&whole, CL_MEM_READ_WRITE, words * 4, 16)?;
    cl.arg_mem(&kernel, 0, &part)?;
    cl.launch(&queue, &kernel, 3)?;
    assert_eq!(
        cl.read::<u32>(&queue, &whole, words * 4 - 4, 5)?,
        [1, 2, 2, 2, 1]
    );
    Ok(())
}

fn launch_of_a_null_kernel_is_invalid_kernel(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    let (size, none, list, event) = (1, ptr::null(), ptr::null(), ptr::null_mut());
    let kernel = ptr::null_mut();
    let launched = call!(
        cl,
        clEnqueueNDRangeKernel(
            queue.raw(),
            kernel,
            1,
            none,
            &raw const size,
            none,
            0,
            list,
            event
        )
    );
    assert_eq!(launched.code(), CL_INVALID_KERNEL);
    Ok(())
}

fn launch_with_an_unset_argument_is_invalid_kernel_args(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"scale")?;
    let buffer = cl.buffer(&context, 16)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    assert_eq!(cl.launch(&queue, &kernel, 4).code(), CL_INVALID_KERNEL_ARGS);
    Ok(())
}

fn offset_shifts_the_ids(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"ids")?;
    let buffer = cl.buffer(&context, 16)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.launch_over(
        &queue,
        &kernel,
        Range {
            global: &[4],
            offset: &[1000],
            ..Range::default()
        },
    )?;
    assert_eq!(
        cl.read::<u32>(&queue, &buffer, 0, 4)?,
        [1000, 1001, 1002, 1003]
    );
    Ok(())
}

fn print_succeeds(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let source =
        r#"kernel void say(int n) { if (n > 100) printf("conformance: %d %s\n", n, "text"); }"#;
    let program = cl.build(&context, source)?;
    let kernel = cl.kernel(&program, c"say")?;
    cl.arg(&kernel, 0, &1_i32)?;
    let event = cl.launch(&queue, &kernel, 2)?;
    cl.finish(&queue)?;
    assert_eq!(cl.status(&event)?, CL_COMPLETE);
    Ok(())
}

fn range_in_three_dimensions_covers_all(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"ids3")?;
    let buffer = cl.buffer(&context, 96)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.launch_over(
        &queue,
        &kernel,
        Range {
            global: &[3, 4, 2],
            ..Range::default()
        },
    )?;
    let all: Vec<u32> = (0..2)
        .flat_map(|z| (0..4).flat_map(move |y| (0..3).map(move |x| z * 10000 + y * 100 + x)))
        .collect();
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 24)?, all);
    Ok(())
}

fn range_in_two_dimensions_covers_all(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"ids2")?;
    let buffer = cl.buffer(&context, 24)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.launch_over(
        &queue,
        &kernel,
        Range {
            global: &[3, 2],
            ..Range::default()
        },
    )?;
    assert_eq!(
        cl.read::<u32>(&queue, &buffer, 0, 6)?,
        [0, 1, 2, 100, 101, 102]
    );
    Ok(())
}

fn range_of_four_dimensions_is_invalid_work_dimension(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let buffer = cl.buffer(&context, 16)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    let range = Range {
        global: &[1, 1, 1, 1],
        ..Range::default()
    };
    assert_eq!(
        cl.launch_over(&queue, &kernel, range).code(),
        CL_INVALID_WORK_DIMENSION
    );
    Ok(())
}

fn range_of_no_dimensions_is_invalid_work_dimension(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let buffer = cl.buffer(&context, 16)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    assert_eq!(
        cl.launch_over(&queue, &kernel, Range::default()).code(),
        CL_INVALID_WORK_DIMENSION
    );
    Ok(())
}

fn range_of_no_items_does_nothing(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (2, 1),
        "before OpenCL 2.1 a range of no items is an error",
    )?;
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let buffer = cl.buffer_of(&context, &[5_u32; 4])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    let event = cl.launch(&queue, &kernel, 0)?;
    cl.wait(&[&event])?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [5; 4]);
    Ok(())
}

fn required_group_size_is_used(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"required")?;
    let buffer = cl.buffer(&context, 64)?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.launch_over(
        &queue,
        &kernel,
        Range {
            global: &[8, 2],
            local: &[4, 2],
            ..Range::default()
        },
    )?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 16)?, [42; 16]);
    Ok(())
}

fn task_runs_once(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let program = cl.build(&context, KERNELS)?;
    let kernel = cl.kernel(&program, c"add_one")?;
    let buffer = cl.buffer_of(&context, &[1_u32; 2])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    let event = cl.event(|event| {
        call!(
            cl,
            clEnqueueTask(queue.raw(), kernel.raw(), 0, ptr::null(), event)
        )
    })?;
    cl.wait(&[&event])?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 2)?, [2, 1]);
    Ok(())
}
