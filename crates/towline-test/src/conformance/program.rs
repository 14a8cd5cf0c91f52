//! Programs: from source, from binaries, compiled and linked, and what the compiler says.

use std::ptr;
use std::sync::Arc;

use super::call::*;
use super::fixture::{Fixture, KERNELS, Record};
use super::rules;
use towline_backend::opencl::*;

rules![program:
    binary_runs_like_its_source,
    binary_that_is_none_is_invalid_binary,
    build_answers_success_for_its_device,
    build_callback_comes_once_built,
    build_options_are_echoed,
    build_options_define_macros,
    build_with_a_callback_less_user_data_is_invalid_value,
    build_with_unknown_options_is_invalid_build_options,
    built_program_lists_its_kernels,
    compile_and_link_make_a_program_that_runs,
    compile_finds_headers_by_name,
    empty_source_builds,
    failed_build_answers_with_a_log,
    failed_compile_is_compile_program_failure,
    failed_link_is_link_program_failure,
    null_source_is_invalid_value,
    program_answers_with_its_source,
    program_can_be_built_again,
    program_info_sizes_hold,
    program_null_context_is_invalid_context,
    source_in_pieces_is_joined,
    unbuilt_program_answers_build_none,
    unbuilt_program_has_an_empty_log,
    unload_of_the_compiler_succeeds,
];

const ADD: &str = "kernel void add(global uint *buf) { buf[get_global_id(0)] += AMOUNT; }";

/// Runs a kernel over four words that start at 1.
fn run(
    cl: &Fixture,
    context: &Owned<cl_context>,
    kernel: &Owned<cl_kernel>,
) -> Result<Vec<u32>, Status> {
    let queue = cl.queue(context, 0)?;
    let buffer = cl.buffer_of(context, &[1_u32; 4])?;
    cl.arg_mem(kernel, 0, &buffer)?;
    cl.launch(&queue, kernel, 4)?;
    cl.read::<u32>(&queue, &buffer, 0, 4)
}

fn binary_of(cl: &Fixture, program: &Owned<cl_program>) -> Result<Vec<u8>, Status> {
    let size = info!(cl, clGetProgramInfo(program.raw(), CL_PROGRAM_BINARY_SIZES))?.words()[0];
    let mut binary = vec![0_u8; size as usize];
    let mut place = binary.as_mut_ptr();
    let (at, none) = ((&raw mut place).cast(), ptr::null_mut());
    call!(
        cl,
        clGetProgramInfo(
            program.raw(),
            CL_PROGRAM_BINARIES,
            size_of::<usize>(),
            at,
            none
        )
    )?;
    Ok(binary)
}

fn from_binary(
    cl: &Fixture,
    context: &Owned<cl_context>,
    binary: &[u8],
) -> (Result<Owned<cl_program>, Status>, Code) {
    let (device, size, mut at) = (cl.device(), binary.len(), binary.as_ptr());
    let mut status = UNSET;
    let program = create!(
        cl,
        clCreateProgramWithBinary(
            context.raw(),
            1,
            &raw const device,
            &raw const size,
            &raw mut at,
            &raw mut status
        )
    );
    (program, Code(status))
}

fn binary_runs_like_its_source(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let built = cl.build(&context, KERNELS)?;
    let binary = binary_of(cl, &built)?;
    let (program, status) = from_binary(cl, &context, &binary);
    let program = program?;
    cl.build_with(&program, c"")?;
    assert_eq!(status, CL_SUCCESS);
    assert_eq!(
        run(cl, &context, &cl.kernel(&program, c"add_one")?)?,
        [2; 4]
    );
    Ok(())
}

fn binary_that_is_none_is_invalid_binary(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.compiler, "the device has no programs of its own")?;
    let context = cl.context()?;
    let (program, _) = from_binary(cl, &context, b"this is no program at all, of any kind");
    assert_eq!(program.code(), CL_INVALID_BINARY);
    Ok(())
}

fn build_answers_success_for_its_device(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.build(&context, KERNELS)?;
    let ask = |query| info!(cl, clGetProgramBuildInfo(program.raw(), cl.device(), query));
    assert_eq!(ask(CL_PROGRAM_BUILD_STATUS)?.code(), CL_BUILD_SUCCESS);
    assert_eq!(
        ask(CL_PROGRAM_BINARY_TYPE)?.number(),
        u64::from(CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
    );
    Ok(())
}

fn build_callback_comes_once_built(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.compiler, "the device has no compiler")?;
    let context = cl.context()?;
    let program = cl.program(&context, KERNELS)?;
    let record = Arc::<Record>::default();
    let function = Some(Record::program_callback as unsafe extern "C" fn(_, _));
    let (device, options) = (cl.device(), ptr::null());
    call!(
        cl,
        clBuildProgram(
            program.raw(),
            1,
            &raw const device,
            options,
            function,
            record.user_data()
        )
    )?;
    assert_eq!(record.wait_for(1), [CL_COMPLETE]);
    assert_eq!(
        run(cl, &context, &cl.kernel(&program, c"add_one")?)?,
        [2; 4]
    );
    Ok(())
}

fn build_options_are_echoed(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.compiler, "the device has no compiler")?;
    let context = cl.context()?;
    let program = cl.program(&context, ADD)?;
    cl.build_with(&program, c"-D AMOUNT=4 -cl-mad-enable")?;
    let echoed = info!(
        cl,
        clGetProgramBuildInfo(program.raw(), cl.device(), CL_PROGRAM_BUILD_OPTIONS)
    )?;
    assert_eq!(echoed.text().trim(), "-D AMOUNT=4 -cl-mad-enable");
    Ok(())
}

fn build_options_define_macros(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.compiler, "the device has no compiler")?;
    let context = cl.context()?;
    let program = cl.program(&context, ADD)?;
    cl.build_with(&program, c"-DAMOUNT=41")?;
    assert_eq!(run(cl, &context, &cl.kernel(&program, c"add")?)?, [42; 4]);
    Ok(())
}

fn build_with_a_callback_less_user_data_is_invalid_value(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.compiler, "the device has no compiler")?;
    let context = cl.context()?;
    let program = cl.program(&context, KERNELS)?;
    let mut data = 0_u32;
    let (device, options, user) = (cl.device(), ptr::null(), (&raw mut data).cast());
    let built = call!(
        cl,
        clBuildProgram(program.raw(), 1, &raw const device, options, None, user)
    );
    assert_eq!(built.code(), CL_INVALID_VALUE);
    Ok(())
}

fn build_with_unknown_options_is_invalid_build_options(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.compiler, "the device has no compiler")?;
    let context = cl.context()?;
    let program = cl.program(&context, KERNELS)?;
    assert_eq!(
        cl.build_with(&program, c"-cl-no-such-option").code(),
        CL_INVALID_BUILD_OPTIONS
    );
    Ok(())
}

fn built_program_lists_its_kernels(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.build(&context, "kernel void one() {} kernel void two() {}")?;
    let count = info!(cl, clGetProgramInfo(program.raw(), CL_PROGRAM_NUM_KERNELS))?.number();
    let names = info!(cl, clGetProgramInfo(program.raw(), CL_PROGRAM_KERNEL_NAMES))?.text();
    let mut names: Vec<_> = names.split(';').collect();
    names.sort_unstable();
    assert_eq!((count, names), (2, vec!["one", "two"]));
    Ok(())
}

fn compile(
    cl: &Fixture,
    program: &Owned<cl_program>,
    headers: &[(&Owned<cl_program>, &std::ffi::CStr)],
) -> Result<(), Status> {
    let raw: Vec<cl_program> = headers.iter().map(|(header, _)| header.raw()).collect();
    let mut names: Vec<_> = headers.iter().map(|(_, name)| name.as_ptr()).collect();
    let none = headers.is_empty();
    let programs = if none { ptr::null() } else { raw.as_ptr() };
    let names = if none {
        ptr::null_mut()
    } else {
        names.as_mut_ptr()
    };
    let (device, count, user) = (cl.device(), headers.len() as cl_uint, ptr::null_mut());
    call!(
        cl,
        clCompileProgram(
            program.raw(),
            1,
            &raw const device,
            ptr::null(),
            count,
            programs,
            names,
            None,
            user
        )
    )
}

fn link(
    cl: &Fixture,
    context: &Owned<cl_context>,
    programs: &[&Owned<cl_program>],
) -> Result<Owned<cl_program>, Status> {
    let raw: Vec<cl_program> = programs.iter().map(|program| program.raw()).collect();
    let (device, count, user) = (cl.device(), raw.len() as cl_uint, ptr::null_mut());
    let (options, list) = (ptr::null(), raw.as_ptr());
    let mut code = UNSET;
    let of = context.raw();
    // SAFETY: live handles, and a local for the code. A failed link may give a program all the same, for its log.
    let linked = unsafe {
        cl.api.clLinkProgram(
            of,
            1,
            &raw const device,
            options,
            count,
            list,
            None,
            user,
            &raw mut code,
        )
    };
    let linked = (!linked.is_null()).then(|| Owned::new(&cl.api, linked));
    checked("clLinkProgram", code)?;
    Ok(linked.expect("a link that succeeds gives a program"))
}

fn compile_and_link_make_a_program_that_runs(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.linker, "the device has no linker")?;
    let context = cl.context()?;
    let main = cl.program(
        &context,
        "uint more(uint); kernel void add(global uint *buf) { buf[get_global_id(0)] = more(buf[get_global_id(0)]); }",
    )?;
    let other = cl.program(&context, "uint more(uint value) { return value + 10; }")?;
    compile(cl, &main, &[])?;
    compile(cl, &other, &[])?;
    let linked = link(cl, &context, &[&main, &other])?;
    assert_eq!(run(cl, &context, &cl.kernel(&linked, c"add")?)?, [11; 4]);
    Ok(())
}

fn compile_finds_headers_by_name(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.linker, "the device has no linker")?;
    let context = cl.context()?;
    let header = cl.program(&context, "#define AMOUNT 5\n")?;
    let deeper = cl.program(&context, "#define TWICE (2 * AMOUNT)\n")?;
    let main = cl.program(
        &context,
        "#include \"amount.h\"\n#include \"inner/twice.h\"\n\
         kernel void add(global uint *buf) { buf[get_global_id(0)] += TWICE; }",
    )?;
    compile(
        cl,
        &main,
        &[(&header, c"amount.h"), (&deeper, c"inner/twice.h")],
    )?;
    let linked = link(cl, &context, &[&main])?;
    assert_eq!(run(cl, &context, &cl.kernel(&linked, c"add")?)?, [11; 4]);
    Ok(())
}

fn failed_build_answers_with_a_log(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.compiler, "the device has no compiler")?;
    let context = cl.context()?;
    let program = cl.program(
        &context,
        "kernel void broken(global int *x) { x[0] = no_such_name; }",
    )?;
    let built = cl.build_with(&program, c"");
    let status = info!(
        cl,
        clGetProgramBuildInfo(program.raw(), cl.device(), CL_PROGRAM_BUILD_STATUS)
    )?;
    let log = cl.build_log(&program)?;
    assert_eq!(
        (built.code(), status.code()),
        (Code(CL_BUILD_PROGRAM_FAILURE), Code(CL_BUILD_ERROR))
    );
    assert!(log.contains("no_such_name"), "{log}");
    Ok(())
}

fn failed_compile_is_compile_program_failure(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.linker, "the device has no linker")?;
    let context = cl.context()?;
    let program = cl.program(&context, "#include \"not_given.h\"\n")?;
    assert_eq!(
        compile(cl, &program, &[]).code(),
        CL_COMPILE_PROGRAM_FAILURE
    );
    Ok(())
}

fn failed_link_is_link_program_failure(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.linker, "the device has no linker")?;
    let context = cl.context()?;
    let source = "uint same(uint value) { return value; }";
    let (one, two) = (cl.program(&context, source)?, cl.program(&context, source)?);
    compile(cl, &one, &[])?;
    compile(cl, &two, &[])?;
    assert_eq!(
        link(cl, &context, &[&one, &two]).code(),
        CL_LINK_PROGRAM_FAILURE
    );
    Ok(())
}

/// A length of zero is that of the text up to its NUL, on the way to the vendor too.
fn empty_source_builds(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.compiler, "the device has no compiler")?;
    let context = cl.context()?;
    for length in [None, Some(0)] {
        let mut text = c"".as_ptr();
        let lengths = length.as_ref().map_or(ptr::null(), ptr::from_ref);
        let made = create!(
            cl,
            clCreateProgramWithSource(context.raw(), 1, &raw mut text, lengths)
        );
        let program = made?;
        cl.build_with(&program, c"")?;
        let names = info!(cl, clGetProgramInfo(program.raw(), CL_PROGRAM_KERNEL_NAMES))?.text();
        let source = info!(cl, clGetProgramInfo(program.raw(), CL_PROGRAM_SOURCE))?.text();
        assert_eq!((names.as_str(), source.as_str()), ("", ""));
    }
    Ok(())
}

fn null_source_is_invalid_value(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let mut text = ptr::null();
    let none = create!(
        cl,
        clCreateProgramWithSource(context.raw(), 0, ptr::null_mut(), ptr::null())
    );
    let null = create!(
        cl,
        clCreateProgramWithSource(context.raw(), 1, &raw mut text, ptr::null())
    );
    assert_eq!(
        (none.code(), null.code()),
        (Code(CL_INVALID_VALUE), Code(CL_INVALID_VALUE))
    );
    Ok(())
}

fn program_answers_with_its_source(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.program(&context, KERNELS)?;
    let ask = |query| info!(cl, clGetProgramInfo(program.raw(), query));
    assert_eq!(ask(CL_PROGRAM_SOURCE)?.text(), KERNELS);
    assert_eq!(
        ask(CL_PROGRAM_CONTEXT)?.number(),
        context.raw().addr() as u64
    );
    assert_eq!(
        ask(CL_PROGRAM_DEVICES)?.words(),
        [cl.device().addr() as u64]
    );
    assert_eq!(ask(CL_PROGRAM_NUM_DEVICES)?.number(), 1);
    Ok(())
}

fn program_can_be_built_again(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.compiler, "the device has no compiler")?;
    let context = cl.context()?;
    let program = cl.program(&context, ADD)?;
    cl.build_with(&program, c"-DAMOUNT=1")?;
    cl.build_with(&program, c"-DAMOUNT=2")?;
    assert_eq!(run(cl, &context, &cl.kernel(&program, c"add")?)?, [3; 4]);
    Ok(())
}

fn program_info_sizes_hold(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.program(&context, KERNELS)?;
    let source = sizes!(cl, clGetProgramInfo(program.raw(), CL_PROGRAM_SOURCE));
    let devices = sizes!(cl, clGetProgramInfo(program.raw(), CL_PROGRAM_DEVICES));
    let status = sizes!(
        cl,
        clGetProgramBuildInfo(program.raw(), cl.device(), CL_PROGRAM_BUILD_STATUS)
    );
    assert_eq!(
        (source, devices, status),
        (Sizes::of(KERNELS.len() + 1), Sizes::of(8), Sizes::of(4))
    );
    Ok(())
}

fn program_null_context_is_invalid_context(cl: &Fixture) -> Verdict {
    let mut text = c"kernel void k() {}".as_ptr();
    let made = create!(
        cl,
        clCreateProgramWithSource(ptr::null_mut(), 1, &raw mut text, ptr::null())
    );
    assert_eq!(made.code(), CL_INVALID_CONTEXT);
    Ok(())
}

fn source_in_pieces_is_joined(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let mut pieces = [
        c"kernel void".as_ptr(),
        c" k(int a, IGNORED".as_ptr(),
        c"int b) {}".as_ptr(),
    ];
    // A length of zero is that of the text up to its NUL.
    let lengths = [0, 10, 0];
    let made = create!(
        cl,
        clCreateProgramWithSource(context.raw(), 3, pieces.as_mut_ptr(), lengths.as_ptr())
    );
    let program = made?;
    let source = info!(cl, clGetProgramInfo(program.raw(), CL_PROGRAM_SOURCE))?.text();
    assert_eq!(source, "kernel void k(int a, int b) {}");
    Ok(())
}

fn unbuilt_program_answers_build_none(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.program(&context, KERNELS)?;
    let status = info!(
        cl,
        clGetProgramBuildInfo(program.raw(), cl.device(), CL_PROGRAM_BUILD_STATUS)
    )?;
    assert_eq!(status.code(), CL_BUILD_NONE);
    Ok(())
}

fn unbuilt_program_has_an_empty_log(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let program = cl.program(&context, KERNELS)?;
    assert_eq!(cl.build_log(&program)?, "");
    Ok(())
}

fn unload_of_the_compiler_succeeds(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.compiler, "the device has no compiler")?;
    let context = cl.context()?;
    call!(cl, clUnloadPlatformCompiler(cl.platform))?;
    let program = cl.build(&context, KERNELS)?;
    assert_eq!(
        run(cl, &context, &cl.kernel(&program, c"add_one")?)?,
        [2; 4]
    );
    Ok(())
}
