//! Shared virtual memory, where the device has it.

use std::ffi::c_void;
use std::ptr;

use super::call::*;
use super::fixture::Fixture;
use super::rules;
use towline_backend::opencl::*;

rules![svm:
    allocations_share_pages_and_end_alone,
    buffer_larger_than_its_allocation_is_invalid_buffer_size,
    buffer_over_an_allocation_is_the_same_memory,
    copy_between_host_places_copies,
    copy_of_no_bytes_is_invalid_value,
    free_of_null_does_nothing,
    kernel_follows_pointers_between_allocations,
    kernel_writes_are_seen_through_a_map,
    memcpy_and_fill_move_bytes,
    mapped_writes_are_seen_by_a_kernel,
    memory_is_aligned_as_asked,
    null_copy_is_invalid_value,
    of_no_bytes_is_null,
];

/// Shared memory that frees itself.
struct Shared<'a> {
    cl: &'a Fixture,
    context: &'a Owned<cl_context>,
    at: *mut c_void,
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        let context = self.context.raw();
        // SAFETY: allocated in this context, and rules finish their queue before.
        unsafe { self.cl.api.clSVMFree(context, self.at) };
    }
}

fn allocate<'a>(
    cl: &'a Fixture,
    context: &'a Owned<cl_context>,
    size: usize,
    alignment: cl_uint,
) -> Result<Shared<'a>, Stop> {
    cl.requires(
        cl.caps.svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER != 0,
        "the device has no shared virtual memory",
    )?;
    let of = context.raw();
    // SAFETY: a live context.
    let at = unsafe { cl.api.clSVMAlloc(of, CL_MEM_READ_WRITE, size, alignment) };
    assert!(!at.is_null(), "clSVMAlloc gave nothing");
    Ok(Shared { cl, context, at })
}

fn map(
    cl: &Fixture,
    queue: &Owned<cl_command_queue>,
    shared: &Shared<'_>,
    size: usize,
) -> Result<(), Status> {
    let (flags, none, event) = (CL_MAP_READ | CL_MAP_WRITE, ptr::null(), ptr::null_mut());
    call!(
        cl,
        clEnqueueSVMMap(queue.raw(), CL_TRUE, flags, shared.at, size, 0, none, event)
    )
}

fn unmap(cl: &Fixture, queue: &Owned<cl_command_queue>, shared: &Shared<'_>) -> Result<(), Status> {
    call!(
        cl,
        clEnqueueSVMUnmap(queue.raw(), shared.at, 0, ptr::null(), ptr::null_mut())
    )
}

/// The words of shared memory that is mapped.
fn words<'a>(shared: &'a mut Shared<'_>, count: usize) -> &'a mut [u32] {
    // SAFETY: rules call this while the memory is mapped and at least this long; the borrow keeps slices apart.
    unsafe { std::slice::from_raw_parts_mut(shared.at.cast(), count) }
}

/// A buffer over shared memory.
fn buffer_over(
    cl: &Fixture,
    context: &Owned<cl_context>,
    at: *mut c_void,
    size: usize,
) -> Result<Owned<cl_mem>, Status> {
    let flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR;
    create!(cl, clCreateBuffer(context.raw(), flags, size, at))
}

fn allocations_share_pages_and_end_alone(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let mut kept = (0..64)
        .map(|_| allocate(cl, &context, 64, 0))
        .collect::<Result<Vec<_>, _>>()?;
    let mut index = 0;
    kept.retain(|_| {
        index += 1;
        index % 3 == 0
    });
    for (value, shared) in kept.iter_mut().enumerate() {
        map(cl, &queue, shared, 64)?;
        words(shared, 16).fill(value as u32);
        unmap(cl, &queue, shared)?;
    }
    for (value, shared) in kept.iter_mut().enumerate() {
        map(cl, &queue, shared, 64)?;
        assert_eq!(words(shared, 16), [value as u32; 16]);
        unmap(cl, &queue, shared)?;
    }
    Ok(cl.finish(&queue)?)
}

fn buffer_over_an_allocation_is_the_same_memory(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let mut shared = allocate(cl, &context, 64, 0)?;
    map(cl, &queue, &shared, 64)?;
    words(&mut shared, 16).fill(5);
    unmap(cl, &queue, &shared)?;
    let buffer = buffer_over(cl, &context, shared.at, 64)?;
    let uses = info!(
        cl,
        clGetMemObjectInfo(buffer.raw(), CL_MEM_USES_SVM_POINTER)
    )?;
    assert_eq!(uses.number(), 1);
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 16)?, [5; 16]);
    let kernel = cl.kernel_of(&context, c"add_one")?;
    cl.arg_mem(&kernel, 0, &buffer)?;
    cl.launch(&queue, &kernel, 16)?;
    map(cl, &queue, &shared, 64)?;
    assert_eq!(words(&mut shared, 16), [6; 16]);
    words(&mut shared, 16).fill(8);
    unmap(cl, &queue, &shared)?;
    call!(cl, clSetKernelArgSVMPointer(kernel.raw(), 0, shared.at))?;
    cl.launch(&queue, &kernel, 16)?;
    assert_eq!(cl.read::<u32>(&queue, &buffer, 0, 16)?, [9; 16]);
    Ok(())
}

fn buffer_larger_than_its_allocation_is_invalid_buffer_size(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let shared = allocate(cl, &context, 64, 0)?;
    let made = buffer_over(cl, &context, shared.at, 65);
    assert_eq!(made.map(drop).code(), CL_INVALID_BUFFER_SIZE);
    Ok(())
}

fn copy_between_host_places_copies(cl: &Fixture) -> Verdict {
    let (_context, queue) = cl.context_and_queue()?;
    cl.requires(cl.caps.svm != 0, "the device has no shared virtual memory")?;
    let (from, mut to) = ([7_u32; 16], [0_u32; 16]);
    let (source, target) = (from.as_ptr().cast(), to.as_mut_ptr().cast());
    let (none, event) = (ptr::null(), ptr::null_mut());
    call!(
        cl,
        clEnqueueSVMMemcpy(queue.raw(), CL_TRUE, target, source, 64, 0, none, event)
    )?;
    assert_eq!(to, from);
    Ok(())
}

fn copy_of_no_bytes_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let shared = allocate(cl, &context, 64, 0)?;
    let host = [0_u8; 1];
    let (from, none, event) = (host.as_ptr().cast(), ptr::null(), ptr::null_mut());
    let copied = call!(
        cl,
        clEnqueueSVMMemcpy(queue.raw(), CL_TRUE, shared.at, from, 0, 0, none, event)
    );
    assert_eq!(copied.code(), CL_INVALID_VALUE);
    Ok(())
}

fn free_of_null_does_nothing(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.svm != 0, "the device has no shared virtual memory")?;
    let context = cl.context()?;
    let of = context.raw();
    // SAFETY: NULL is allowed.
    unsafe { cl.api.clSVMFree(of, ptr::null_mut()) };
    Ok(())
}

fn kernel_follows_pointers_between_allocations(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let (outer, mut inner) = (
        allocate(cl, &context, 64, 0)?,
        allocate(cl, &context, 64, 0)?,
    );
    let source = "kernel void k(global uint * global *outer) { (*outer)[get_global_id(0)] = 40 + get_global_id(0); }";
    let program = cl.build(&context, source)?;
    let kernel = cl.kernel(&program, c"k")?;
    map(cl, &queue, &outer, 8)?;
    // SAFETY: mapped for writing, and eight bytes long at least.
    unsafe { outer.at.cast::<*mut c_void>().write(inner.at) };
    unmap(cl, &queue, &outer)?;
    call!(cl, clSetKernelArgSVMPointer(kernel.raw(), 0, outer.at))?;
    let (name, list) = (CL_KERNEL_EXEC_INFO_SVM_PTRS, (&raw const inner.at).cast());
    call!(
        cl,
        clSetKernelExecInfo(kernel.raw(), name, size_of::<*mut c_void>(), list)
    )?;
    cl.launch(&queue, &kernel, 4)?;
    map(cl, &queue, &inner, 16)?;
    assert_eq!(words(&mut inner, 4), [40, 41, 42, 43]);
    unmap(cl, &queue, &inner)?;
    call!(
        cl,
        clSetKernelExecInfo(kernel.raw(), name, 0, std::ptr::null())
    )?;
    Ok(cl.finish(&queue)?)
}

fn kernel_writes_are_seen_through_a_map(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let mut shared = allocate(cl, &context, 64, 0)?;
    let kernel = cl.kernel_of(&context, c"ids")?;
    call!(cl, clSetKernelArgSVMPointer(kernel.raw(), 0, shared.at))?;
    cl.launch(&queue, &kernel, 16)?;
    map(cl, &queue, &shared, 64)?;
    assert_eq!(words(&mut shared, 16), (0..16).collect::<Vec<u32>>());
    unmap(cl, &queue, &shared)?;
    Ok(cl.finish(&queue)?)
}

fn memcpy_and_fill_move_bytes(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let shared = allocate(cl, &context, 64, 0)?;
    let pattern = 7_u32;
    let (from, none, event) = ((&raw const pattern).cast(), ptr::null(), ptr::null_mut());
    call!(
        cl,
        clEnqueueSVMMemFill(queue.raw(), shared.at, from, 4, 64, 0, none, event)
    )?;
    let mut host = [0_u32; 16];
    let to = host.as_mut_ptr().cast();
    call!(
        cl,
        clEnqueueSVMMemcpy(queue.raw(), CL_TRUE, to, shared.at, 64, 0, none, event)
    )?;
    assert_eq!(host, [7; 16]);
    Ok(())
}

fn mapped_writes_are_seen_by_a_kernel(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let mut shared = allocate(cl, &context, 64, 0)?;
    let out = cl.buffer(&context, 64)?;
    let kernel = cl.kernel_of(&context, c"copy")?;
    map(cl, &queue, &shared, 64)?;
    words(&mut shared, 16).fill(11);
    unmap(cl, &queue, &shared)?;
    call!(cl, clSetKernelArgSVMPointer(kernel.raw(), 0, shared.at))?;
    cl.arg_mem(&kernel, 1, &out)?;
    cl.launch(&queue, &kernel, 16)?;
    assert_eq!(cl.read::<u32>(&queue, &out, 0, 16)?, [11; 16]);
    Ok(())
}

fn memory_is_aligned_as_asked(cl: &Fixture) -> Verdict {
    let context = cl.context()?;
    let shared = allocate(cl, &context, 100, 64)?;
    assert_eq!(shared.at.addr() % 64, 0);
    Ok(())
}

fn null_copy_is_invalid_value(cl: &Fixture) -> Verdict {
    let (context, queue) = cl.context_and_queue()?;
    let shared = allocate(cl, &context, 64, 0)?;
    let (from, none, event) = (ptr::null(), ptr::null(), ptr::null_mut());
    let copied = call!(
        cl,
        clEnqueueSVMMemcpy(queue.raw(), CL_TRUE, shared.at, from, 64, 0, none, event)
    );
    assert_eq!(copied.code(), CL_INVALID_VALUE);
    Ok(())
}

fn of_no_bytes_is_null(cl: &Fixture) -> Verdict {
    cl.requires(cl.caps.svm != 0, "the device has no shared virtual memory")?;
    let context = cl.context()?;
    let of = context.raw();
    // SAFETY: a live context.
    let at = unsafe { cl.api.clSVMAlloc(of, CL_MEM_READ_WRITE, 0, 0) };
    assert!(at.is_null());
    Ok(())
}
