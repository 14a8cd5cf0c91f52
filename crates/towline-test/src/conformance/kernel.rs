//! Kernels and their arguments.

use std::ptr;

use super::call::*;
use super::fixture::{Fixture, KERNELS};
use super::rules;
use towline_backend::opencl::*;

rules![kernel:
    argument_index_past_the_last_is_invalid_arg_index,
    argument_information_names_the_arguments,
    argument_information_without_the_option_may_be_missing_but_not_wrong,
    argument_of_wrong_size_for_memory_is_invalid_arg_size,
    argument_null_for_memory_is_a_null_pointer,
    arguments_are_taken_at_the_launch,
    bytes_for_a_value_argument_are_needed,
    clone_has_the_arguments_of_its_source,
    clone_keeps_its_arguments_when_the_source_changes,
    clone_takes_a_value_that_its_source_had_before,
    constant_argument_is_read,
    kernel_answers_what_it_is,
    kernel_info_sizes_hold,
    kernel_info_unknown_query_is_invalid_value,
    kernel_null_name_is_invalid_value,
    kernel_of_an_unbuilt_program_is_invalid_program_executable,
    kernel_with_an_unknown_name_is_invalid_kernel_name,
    kernels_in_program_are_all_of_them,
    kernels_in_program_with_too_little_room_is_invalid_value,
    local_argument_gives_memory_to_each_group,
    local_argument_of_no_bytes_is_invalid_arg_size,
    local_argument_with_a_value_is_invalid_arg_value,
    narrow_arguments_arrive_whole,
    preferred_multiple_is_in_the_group_limit,
    required_group_size_is_answered,
    structure_arrives_by_value,
    vector_of_three_arrives,
    work_group_info_null_device_is_the_only_one,
    work_group_info_sizes_hold,
];

fn argument_index_past_the_last_is_invalid_arg_index(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"scale")?;
    assert_eq!(cl.arg(&kernel, 2, &1_u32).code(), CL_INVALID_ARG_INDEX);
    Ok(())
}

fn argument_information_names_the_arguments(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.compiler, "the device has no compiler")?;
    let context = cl.context()?;
    let program = cl.program(
        &context,
        "kernel void k(global const uint *from, float4 by, local int *room) {}",
    )?;
    cl.build_with(&program, c"-cl-kernel-arg-info")?;
    let kernel = cl.kernel(&program, c"k")?;
    let text = |index, query| {
        info!(cl, clGetKernelArgInfo(kernel.raw(), index, query)).map(|answer| answer.text())
    };
    let number = |index, query| {
        info!(cl, clGetKernelArgInfo(kernel.raw(), index, query)).map(|answer| answer.number())
    };
    assert_eq!(
        (
            text(0, CL_KERNEL_ARG_NAME)?.as_str(),
            text(0, CL_KERNEL_ARG_TYPE_NAME)?.as_str()
        ),
        ("from", "uint*")
    );
    assert_eq!(
        (
            text(1, CL_KERNEL_ARG_NAME)?.as_str(),
            text(1, CL_KERNEL_ARG_TYPE_NAME)?.as_str()
        ),
        ("by", "float4")
    );
    assert_eq!(
        number(0, CL_KERNEL_ARG_ADDRESS_QUALIFIER)?,
        u64::from(CL_KERNEL_ARG_ADDRESS_GLOBAL)
    );
    assert_eq!(
        number(1, CL_KERNEL_ARG_ADDRESS_QUALIFIER)?,
        u64::from(CL_KERNEL_ARG_ADDRESS_PRIVATE)
    );
    assert_eq!(
        number(2, CL_KERNEL_ARG_ADDRESS_QUALIFIER)?,
        u64::from(CL_KERNEL_ARG_ADDRESS_LOCAL)
    );
    assert_eq!(
        number(0, CL_KERNEL_ARG_TYPE_QUALIFIER)?,
        CL_KERNEL_ARG_TYPE_CONST
    );
    assert_eq!(text(3, CL_KERNEL_ARG_NAME).code(), CL_INVALID_ARG_INDEX);
    Ok(())
}

fn argument_information_without_the_option_may_be_missing_but_not_wrong(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"scale")?;
    let name = info!(cl, clGetKernelArgInfo(kernel.raw(), 1, CL_KERNEL_ARG_NAME))
        .map(|answer| answer.text());
    let missing = name.code() == CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
    assert!(missing || name.as_deref() == Ok("factor"), "{name:?}");
    Ok(())
}

fn argument_of_wrong_size_for_memory_is_invalid_arg_size(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    assert_eq!(cl.arg(&kernel, 0, &0_u32).code(), CL_INVALID_ARG_SIZE);
    Ok(())
}

fn argument_null_for_memory_is_a_null_pointer(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"is_null")?;
    let out = cl.buffer_of(&context, &[0_u32])?;
    cl.arg_mem(&kernel, 0, &out)?;
    call!(
        cl,
        clSetKernelArg(kernel.raw(), 1, size_of::<cl_mem>(), ptr::null())
    )?;
    cl.launch(&queue, &kernel, 1)?;
    let of_null = cl.read::<u32>(&queue, &out, 0, 1)?;
    cl.arg_mem(&kernel, 1, &out)?;
    cl.launch(&queue, &kernel, 1)?;
    assert_eq!(
        (of_null, cl.read::<u32>(&queue, &out, 0, 1)?),
        (vec![1], vec![2])
    );
    Ok(())
}

fn arguments_are_taken_at_the_launch(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"scale")?;
    let gate = cl.user_event(&context)?;
    let buffers = [
        cl.buffer_of(&context, &[1_u32; 4])?,
        cl.buffer_of(&context, &[1_u32; 4])?,
    ];
    cl.marker(&queue, &[&gate])?;
    cl.arg_mem(&kernel, 0, &buffers[0])?;
    cl.arg(&kernel, 1, &3_u32)?;
    cl.launch(&queue, &kernel, 4)?;
    cl.arg_mem(&kernel, 0, &buffers[1])?;
    cl.arg(&kernel, 1, &5_u32)?;
    cl.launch(&queue, &kernel, 4)?;
    cl.set(&gate, CL_COMPLETE)?;
    assert_eq!(cl.read::<u32>(&queue, &buffers[0], 0, 4)?, [3; 4]);
    assert_eq!(cl.read::<u32>(&queue, &buffers[1], 0, 4)?, [5; 4]);
    Ok(())
}

fn bytes_for_a_value_argument_are_needed(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"scale")?;
    let set = call!(cl, clSetKernelArg(kernel.raw(), 1, 4, ptr::null()));
    assert_eq!(set.code(), CL_INVALID_ARG_VALUE);
    Ok(())
}

fn clone_has_the_arguments_of_its_source(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (2, 1),
        "the device is older than OpenCL 2.1",
    )?;
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"scale")?;
    let buffer = cl.buffer_of(&context, &[2_u32; 4])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.arg(&kernel, 1, &7_u32)?;
    let clone = create!(cl, clCloneKernel(kernel.raw()))?;
    cl.launch(&queue, &clone, 4)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [14; 4]);
    Ok(())
}

fn clone_keeps_its_arguments_when_the_source_changes(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (2, 1),
        "the device is older than OpenCL 2.1",
    )?;
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"scale")?;
    let buffer = cl.buffer_of(&context, &[2_u32; 4])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.arg(&kernel, 1, &7_u32)?;
    let clone = create!(cl, clCloneKernel(kernel.raw()))?;
    cl.arg(&kernel, 1, &100_u32)?;
    kernel.release()?;
    cl.launch(&queue, &clone, 4)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [14; 4]);
    Ok(())
}

fn clone_takes_a_value_that_its_source_had_before(cl: &Fixture) -> Verdict {
    cl.requires(
        cl.caps.version >= (2, 1),
        "the device is older than OpenCL 2.1",
    )?;
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"scale")?;
    let buffer = cl.buffer_of(&context, &[2_u32; 4])?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.arg(&kernel, 1, &7_u32)?;
    cl.arg(&kernel, 1, &5_u32)?;
    let clone = create!(cl, clCloneKernel(kernel.raw()))?;
    cl.launch(&queue, &clone, 4)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [10; 4]);
    cl.arg(&clone, 1, &7_u32)?;
    cl.launch(&queue, &clone, 4)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [70; 4]);
    cl.launch(&queue, &kernel, 4)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [350; 4]);
    cl.arg(&kernel, 1, &7_u32)?;
    cl.launch(&queue, &kernel, 4)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 4)?, [2450; 4]);
    Ok(())
}

fn constant_argument_is_read(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"lookup")?;
    let (out, table) = (
        cl.buffer(&context, 16)?,
        cl.buffer_of(&context, &[1_u32, 2, 3, 4])?,
    );
    cl.arg_mem(&kernel, 0, &out)?;
    cl.arg_mem(&kernel, 1, &table)?;
    cl.launch(&queue, &kernel, 4)?;
    assert_eq!(cl.read::<u32>(&queue, &out, 0, 4)?, [4, 3, 2, 1]);
    Ok(())
}

fn kernel_answers_what_it_is(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.build(&context, KERNELS)?;
    let kernel = cl.kernel(&program, c"scale")?;
    let ask = |query| info!(cl, clGetKernelInfo(kernel.raw(), query));
    assert_eq!(ask(CL_KERNEL_FUNCTION_NAME)?.text(), "scale");
    assert_eq!(ask(CL_KERNEL_NUM_ARGS)?.number(), 2);
    assert_eq!(
        ask(CL_KERNEL_CONTEXT)?.number(),
        context.raw().addr() as u64
    );
    assert_eq!(
        ask(CL_KERNEL_PROGRAM)?.number(),
        program.raw().addr() as u64
    );
    assert_eq!(ask(CL_KERNEL_REFERENCE_COUNT)?.number(), 1);
    Ok(())
}

fn kernel_info_sizes_hold(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"scale")?;
    let name = sizes!(cl, clGetKernelInfo(kernel.raw(), CL_KERNEL_FUNCTION_NAME));
    let count = sizes!(cl, clGetKernelInfo(kernel.raw(), CL_KERNEL_NUM_ARGS));
    assert_eq!((name, count), (Sizes::of(6), Sizes::of(4)));
    Ok(())
}

fn kernel_info_unknown_query_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"scale")?;
    assert_eq!(
        info!(cl, clGetKernelInfo(kernel.raw(), 0x7777)).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn kernel_null_name_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.build(&context, KERNELS)?;
    assert_eq!(
        create!(cl, clCreateKernel(program.raw(), ptr::null())).code(),
        CL_INVALID_VALUE
    );
    Ok(())
}

fn kernel_of_an_unbuilt_program_is_invalid_program_executable(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.program(&context, KERNELS)?;
    assert_eq!(
        cl.kernel(&program, c"scale").code(),
        CL_INVALID_PROGRAM_EXECUTABLE
    );
    Ok(())
}

fn kernel_with_an_unknown_name_is_invalid_kernel_name(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.build(&context, KERNELS)?;
    assert_eq!(
        cl.kernel(&program, c"scalex").code(),
        CL_INVALID_KERNEL_NAME
    );
    assert_eq!(cl.kernel(&program, c"").code(), CL_INVALID_KERNEL_NAME);
    Ok(())
}

fn kernels_in_program_are_all_of_them(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.build(
        &context,
        "kernel void a(global int *x) {} kernel void b() {} kernel void c(int y) {}",
    )?;
    let mut count = 0;
    call!(
        cl,
        clCreateKernelsInProgram(program.raw(), 0, ptr::null_mut(), &raw mut count)
    )?;
    let mut raw = vec![ptr::null_mut(); count as usize];
    call!(
        cl,
        clCreateKernelsInProgram(program.raw(), count, raw.as_mut_ptr(), ptr::null_mut())
    )?;
    let kernels: Vec<Owned<cl_kernel>> = raw
        .into_iter()
        .map(|kernel| Owned::new(&cl.api, kernel))
        .collect();
    let names: Result<Vec<String>, Status> = kernels
        .iter()
        .map(|kernel| Ok(info!(cl, clGetKernelInfo(kernel.raw(), CL_KERNEL_FUNCTION_NAME))?.text()))
        .collect();
    let mut names = names?;
    names.sort();
    assert_eq!(names, ["a", "b", "c"]);
    Ok(())
}

fn kernels_in_program_with_too_little_room_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.build(
        &context,
        "kernel void a(global int *x) {} kernel void b() {}",
    )?;
    let mut one = ptr::null_mut();
    let made = call!(
        cl,
        clCreateKernelsInProgram(program.raw(), 1, &raw mut one, ptr::null_mut())
    );
    assert_eq!(made.code(), CL_INVALID_VALUE);
    Ok(())
}

fn local_argument_gives_memory_to_each_group(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.group_limit >= 4, "the device has no groups of four")?;
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"turn")?;
    let input = cl.buffer_of(&context, &(0..16).collect::<Vec<u32>>())?;
    let output = cl.buffer(&context, 64)?;
    cl.arg_mem(&kernel, 0, &input)?;
    cl.arg_mem(&kernel, 1, &output)?;
    call!(cl, clSetKernelArg(kernel.raw(), 2, 16, ptr::null()))?;
    let range = super::fixture::Range {
        global: &[16],
        local: &[4],
        ..Default::default()
    };
    cl.launch_over(&queue, &kernel, range)?;
    let turned = [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12];
    assert_eq!(cl.read::<u32>(&queue, &output, 0, 16)?, turned);
    Ok(())
}

fn local_argument_of_no_bytes_is_invalid_arg_size(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"turn")?;
    let set = call!(cl, clSetKernelArg(kernel.raw(), 2, 0, ptr::null()));
    assert_eq!(set.code(), CL_INVALID_ARG_SIZE);
    Ok(())
}

fn local_argument_with_a_value_is_invalid_arg_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"turn")?;
    assert_eq!(cl.arg(&kernel, 2, &64_u64).code(), CL_INVALID_ARG_VALUE);
    Ok(())
}

fn narrow_arguments_arrive_whole(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"narrow")?;
    let out = cl.buffer(&context, 12)?;
    cl.arg_mem(&kernel, 0, &out)?;
    cl.arg(&kernel, 1, &-5_i8)?;
    cl.arg(&kernel, 2, &-3000_i16)?;
    cl.arg(&kernel, 3, &[7_u8, 0, 0, 9])?;
    cl.launch(&queue, &kernel, 1)?;
    assert_eq!(cl.read::<i32>(&queue, &out, 0, 3)?, [-5, -3000, 9007]);
    Ok(())
}

fn preferred_multiple_is_in_the_group_limit(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let ask = |query| {
        info!(
            cl,
            clGetKernelWorkGroupInfo(kernel.raw(), cl.device(), query)
        )
    };
    let multiple = ask(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE)?.number();
    let limit = ask(CL_KERNEL_WORK_GROUP_SIZE)?.number();
    assert!(multiple >= 1 && multiple <= limit && limit <= cl.caps.group_limit as u64);
    Ok(())
}

fn required_group_size_is_answered(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.build(&context, KERNELS)?;
    let (bound, free) = (
        cl.kernel(&program, c"required")?,
        cl.kernel(&program, c"add_one")?,
    );
    let query = CL_KERNEL_COMPILE_WORK_GROUP_SIZE;
    let bound = info!(
        cl,
        clGetKernelWorkGroupInfo(bound.raw(), cl.device(), query)
    )?
    .words();
    let free = info!(cl, clGetKernelWorkGroupInfo(free.raw(), cl.device(), query))?.words();
    assert_eq!((bound, free), (vec![4, 2, 1], vec![0, 0, 0]));
    Ok(())
}

fn structure_arrives_by_value(cl: &Fixture) -> Verdict {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Mixed {
        small: i8,
        middle: i32,
        large: i64,
    }
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"by_value")?;
    let out = cl.buffer(&context, 24)?;
    let value = Mixed {
        small: -1,
        middle: 1 << 20,
        large: -(1 << 40),
    };
    cl.arg_mem(&kernel, 0, &out)?;
    cl.arg(&kernel, 1, &value)?;
    cl.launch(&queue, &kernel, 1)?;
    assert_eq!(
        cl.read::<i64>(&queue, &out, 0, 3)?,
        [-1, 1 << 20, -(1 << 40)]
    );
    Ok(())
}

fn vector_of_three_arrives(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let kernel = cl.kernel_of(&context, c"three")?;
    let out = cl.buffer(&context, 12)?;
    cl.arg_mem(&kernel, 0, &out)?;
    // A float3 takes the room of a float4.
    cl.arg(&kernel, 1, &[1.5_f32, -2.5, 3.5, 0.0])?;
    cl.launch(&queue, &kernel, 1)?;
    assert_eq!(cl.read::<f32>(&queue, &out, 0, 3)?, [1.5, -2.5, 3.5]);
    Ok(())
}

fn work_group_info_null_device_is_the_only_one(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let ask = |device| {
        info!(
            cl,
            clGetKernelWorkGroupInfo(kernel.raw(), device, CL_KERNEL_WORK_GROUP_SIZE)
        )
    };
    assert_eq!(ask(ptr::null_mut())?, ask(cl.device())?);
    Ok(())
}

fn work_group_info_sizes_hold(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let kernel = cl.kernel_of(&context, c"add_one")?;
    let limit = sizes!(
        cl,
        clGetKernelWorkGroupInfo(kernel.raw(), cl.device(), CL_KERNEL_WORK_GROUP_SIZE)
    );
    let local = sizes!(
        cl,
        clGetKernelWorkGroupInfo(kernel.raw(), cl.device(), CL_KERNEL_LOCAL_MEM_SIZE)
    );
    assert_eq!((limit, local), (Sizes::of(8), Sizes::of(8)));
    Ok(())
}
