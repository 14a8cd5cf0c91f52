//! The driver through its contract: a program's life, order between streams, what is refused.

#![allow(non_snake_case, reason = "fields of the C API are named as there")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use super::*;

mod arrays;
mod ends;
mod hostile;
mod links;
mod memory;
mod messages;
mod rules;
mod textures;

const PROGRAM: &CStr = c".version 8.0\n.target sm_75\n.address_size 64\n.visible .global .align 4 .b32 factor = 3;\n\
.visible .entry scale(.param .u64 data, .param .u32 count) { .reg .b64 d, e; .reg .b32 i, n, x, f; .reg .pred p;\n\
 ld.param.u64 d, [data]; ld.param.u32 n, [count]; mov.u32 i, %ctaid.x; mov.u32 x, %ntid.x; mov.u32 f, %tid.x;\n\
 mad.lo.u32 i, i, x, f; setp.ge.u32 p, i, n; @p ret; mul.wide.u32 e, i, 4; add.u64 d, d, e; ld.global.u32 x, [d];\n\
 ld.global.u32 f, [factor]; mul.lo.u32 x, x, f; st.global.u32 [d], x; ret; }\n\
.visible .entry wait(.param .u64 flag) { .reg .b64 d; .reg .b32 x; .reg .pred p; ld.param.u64 d, [flag];\n\
 again: ld.volatile.global.u32 x, [d]; setp.eq.u32 p, x, 0; @p bra again; ret; }\n\
.visible .entry wild(.param .u64 at) { .reg .b64 d; ld.param.u64 d, [at]; st.global.u64 [d], d; ret; }\n\
.visible .entry textures() { wgmma.fence.sync.aligned; ret; }\n\
.visible .entry forever() { again: bra again; }\n\
.visible .entry sync(.param .u64 at) { .reg .b64 d, w; .reg .b32 x, hi, lo; .reg .pred p; ld.param.u64 d, [at];\n\
 mov.u32 hi, %envreg1; mov.u32 lo, %envreg2; mov.b64 w, {lo, hi}; atom.global.add.u32 x, [w+4], 1;\n\
 again: ld.volatile.global.u32 x, [w+4]; setp.lt.u32 p, x, 4; @p bra again; red.global.add.u32 [d], 1; ret; }";

fn check(status: CUresult) {
    assert_eq!(status, CUDA_SUCCESS);
}

/// Devices with a current context on this thread.
fn devices(options: SoftOptions) -> SoftCuda {
    let options = SoftOptions {
        memory_bytes: 64 << 20,
        host_threads: Some(2),
        ..options
    };
    let cuda = SoftCuda::with_print(options, Arc::new(|_: &[u8]| {})).expect("memory");
    let mut context = null_mut();
    // SAFETY: one place for the context.
    check(unsafe { cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0) });
    // SAFETY: the context is live.
    check(unsafe { cuda.cuCtxSetCurrent(context) });
    cuda
}

fn module(cuda: &SoftCuda, image: &CStr) -> Result<CUmodule, CUresult> {
    let mut module = null_mut();
    let image = image.as_ptr().cast();
    // SAFETY: an image that ends with a NUL, and no options.
    match unsafe { cuda.cuModuleLoadDataEx(&raw mut module, image, 0, null_mut(), null_mut()) } {
        CUDA_SUCCESS => Ok(module),
        status => Err(status),
    }
}

fn function(cuda: &SoftCuda, module: CUmodule, name: &CStr) -> CUfunction {
    let mut function = null_mut();
    // SAFETY: the module is live, the name ends with a NUL.
    check(unsafe { cuda.cuModuleGetFunction(&raw mut function, module, name.as_ptr()) });
    function
}

fn allocate(cuda: &SoftCuda, bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    // SAFETY: one place for the address.
    check(unsafe { cuda.cuMemAlloc_v2(&raw mut address, bytes) });
    address
}

fn stream(cuda: &SoftCuda) -> CUstream {
    let mut stream = null_mut();
    // SAFETY: one place for the stream.
    check(unsafe { cuda.cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING) });
    stream
}

fn launch(
    cuda: &SoftCuda,
    function: CUfunction,
    (grid, block): (u32, u32),
    stream: CUstream,
    parameters: &mut [u64],
) -> CUresult {
    let mut places: Vec<*mut c_void> = parameters
        .iter_mut()
        .map(|one| (&raw mut *one).cast())
        .collect();
    let places = places.as_mut_ptr();
    // SAFETY: an address for each parameter, each of at least its size.
    unsafe {
        cuda.cuLaunchKernel(
            function,
            grid,
            1,
            1,
            block,
            1,
            1,
            0,
            stream,
            places,
            null_mut(),
        )
    }
}

fn upload(cuda: &SoftCuda, to: CUdeviceptr, words: &[u32], stream: CUstream) {
    let from = words.as_ptr().cast();
    // SAFETY: so many words are readable.
    check(unsafe { cuda.cuMemcpyHtoDAsync_v2(to, from, size_of_val(words), stream) });
}

fn download(cuda: &SoftCuda, from: CUdeviceptr, count: usize, stream: CUstream) -> Vec<u32> {
    let mut words = vec![0_u32; count];
    let to = words.as_mut_ptr().cast();
    // SAFETY: room for so many words until the stream is done.
    check(unsafe { cuda.cuMemcpyDtoHAsync_v2(to, from, count * 4, stream) });
    check(synchronize(cuda, stream));
    words
}

fn synchronize(cuda: &SoftCuda, stream: CUstream) -> CUresult {
    // SAFETY: the stream is live.
    unsafe { cuda.cuStreamSynchronize(stream) }
}

#[test]
fn a_kernel_computes_what_was_copied_in() {
    let cuda = devices(SoftOptions::default());
    let module = module(&cuda, PROGRAM).expect("a module");
    let scale = function(&cuda, module, c"scale");
    let stream = stream(&cuda);
    let numbers: Vec<u32> = (0..1000).collect();
    let data = allocate(&cuda, 4000);
    upload(&cuda, data, &numbers, stream);
    check(launch(&cuda, scale, (8, 128), stream, &mut [data, 999]));
    let found = download(&cuda, data, 1000, stream);
    let tripled = numbers.iter().map(|number| number * 3);
    let expected: Vec<u32> = tripled.take(999).chain([999]).collect();
    assert_eq!(found, expected);
    let (mut address, mut bytes) = (0, 0);
    let name = c"factor".as_ptr();
    // SAFETY: the module is live; one place for each answer.
    check(unsafe { cuda.cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, name) });
    assert_eq!((download(&cuda, address, 1, stream), bytes), (vec![3], 4));
    // SAFETY: the address is the program's.
    check(unsafe { cuda.cuMemFree_v2(data) });
    // SAFETY: as above, and now it is not.
    assert_eq!(unsafe { cuda.cuMemFree_v2(data) }, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: the module is live.
    check(unsafe { cuda.cuModuleUnload(module) });
    assert_eq!(cuda.live_allocations(), 0);
}

#[test]
fn streams_go_on_beside_a_kernel_that_waits() {
    let cuda = devices(SoftOptions::default());
    let module = module(&cuda, PROGRAM).expect("a module");
    let wait = function(&cuda, module, c"wait");
    let (waiting, other) = (stream(&cuda), stream(&cuda));
    let flag = allocate(&cuda, 4);
    check(launch(&cuda, wait, (1, 1), waiting, &mut [flag]));
    // SAFETY: the stream is live.
    let now = unsafe { cuda.cuStreamQuery(waiting) };
    assert_eq!(now, CUDA_ERROR_NOT_READY);
    let (mut before, mut after) = (null_mut(), null_mut());
    for event in [&mut before, &mut after] {
        // SAFETY: one place for the event.
        check(unsafe { cuda.cuEventCreate(event, 0) });
    }
    // SAFETY: event and stream are live.
    check(unsafe { cuda.cuEventRecord(before, other) });
    // SAFETY: as above.
    check(unsafe { cuda.cuEventRecord(after, waiting) });
    // SAFETY: as above.
    assert_eq!(unsafe { cuda.cuEventQuery(after) }, CUDA_ERROR_NOT_READY);
    upload(&cuda, flag, &[1], other);
    // SAFETY: as above.
    check(unsafe { cuda.cuEventSynchronize(after) });
    let mut milliseconds = -1.0;
    // SAFETY: one place for the time.
    check(unsafe { cuda.cuEventElapsedTime_v2(&raw mut milliseconds, before, after) });
    assert!(milliseconds >= 0.0);
}

#[test]
fn pinned_memory_is_read_when_the_stream_comes_to_it() {
    let cuda = devices(SoftOptions::default());
    let module = module(&cuda, PROGRAM).expect("a module");
    let wait = function(&cuda, module, c"wait");
    let (waiting, other) = (stream(&cuda), stream(&cuda));
    let (flag, data) = (allocate(&cuda, 4), allocate(&cuda, 4));
    let mut pinned = null_mut();
    // SAFETY: one place for the pointer.
    check(unsafe { cuda.cuMemHostAlloc(&raw mut pinned, 4, 0) });
    let word = pinned.cast::<u32>();
    check(launch(&cuda, wait, (1, 1), waiting, &mut [flag]));
    // SAFETY: so many bytes are allocated.
    check(unsafe { cuda.cuMemcpyHtoDAsync_v2(data, pinned, 4, waiting) });
    // SAFETY: nobody reads it yet.
    unsafe { word.write(77) };
    upload(&cuda, flag, &[1], other);
    assert_eq!(download(&cuda, data, 1, waiting), [77]);
    // SAFETY: the memory is ours.
    check(unsafe { cuda.cuMemFreeHost(pinned) });
}

#[test]
fn a_wild_write_spoils_its_context_and_no_other() {
    let cuda = devices(SoftOptions {
        devices: 2,
        ..SoftOptions::default()
    });
    let program = module(&cuda, PROGRAM).expect("a module");
    let wild = function(&cuda, program, c"wild");
    let stream = stream(&cuda);
    check(launch(&cuda, wild, (1, 1), stream, &mut [64]));
    assert_eq!(synchronize(&cuda, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    let mut address = 0;
    // SAFETY: one place for the address.
    let later = unsafe { cuda.cuMemAlloc_v2(&raw mut address, 4) };
    assert_eq!(later, CUDA_ERROR_ILLEGAL_ADDRESS);
    let mut context = null_mut();
    // SAFETY: one place for the context, which becomes current.
    check(unsafe { cuda.cuCtxCreate_v2(&raw mut context, 0, 1) });
    allocate(&cuda, 4);
    module(&cuda, PROGRAM).expect("a module");
}

#[test]
fn what_cannot_run_is_refused_when_it_is_launched() {
    let cuda = devices(SoftOptions::default());
    let module = module(&cuda, PROGRAM).expect("a module");
    let textures = function(&cuda, module, c"textures");
    let scale = function(&cuda, module, c"scale");
    let default = null_mut();
    let refused = launch(&cuda, textures, (1, 1), default, &mut []);
    assert_eq!(refused, CUDA_ERROR_NO_BINARY_FOR_GPU);
    for shape in [(0, 1), (1, 0), (1, 1025)] {
        let refused = launch(&cuda, scale, shape, default, &mut [0, 0]);
        assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
    }
    check(launch(&cuda, scale, (1, 1), default, &mut [0, 0]));
    check(synchronize(&cuda, default));
}

#[test]
fn bad_images_are_refused_and_said_why() {
    let cuda = devices(SoftOptions::default());
    for (image, expected) in [
        (c".version 8.0 .target sm_75 .entry", CUDA_ERROR_INVALID_PTX),
        (
            c".version 8.0 .target sm_75 .extern .func gone(); .entry k() { call gone; }",
            CUDA_ERROR_INVALID_PTX,
        ),
        (
            c".version 8.0 .target sm_75 .global .b8 large[99999999999];",
            CUDA_ERROR_OUT_OF_MEMORY,
        ),
    ] {
        assert_eq!(module(&cuda, image), Err(expected), "{image:?}");
    }
    let mut text = [0 as c_char; 100];
    let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [
        text.as_mut_ptr().cast::<c_void>(),
        std::ptr::without_provenance_mut(text.len()),
    ];
    let image = c".version 8.0 .target sm_75\n nonsense".as_ptr().cast();
    let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
    let mut module = null_mut();
    // SAFETY: the log has the room that is said.
    let status = unsafe { cuda.cuModuleLoadDataEx(&raw mut module, image, 2, options, values) };
    assert_eq!(status, CUDA_ERROR_INVALID_PTX);
    // SAFETY: the log ends with a NUL.
    let said = unsafe { CStr::from_ptr(text.as_ptr()) };
    let said = said.to_str().expect("text");
    assert!(
        said.starts_with("ptxas application ptx input, line 2; error   : "),
        "{said}"
    );
    // Machine code alone: a header of an ELF file for 64 bits without sections.
    let mut elf = [0_u8; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    // SAFETY: the image is as long as its header says.
    let status = unsafe {
        cuda.cuModuleLoadDataEx(
            &raw mut module,
            elf.as_ptr().cast(),
            0,
            null_mut(),
            null_mut(),
        )
    };
    assert_eq!(status, CUDA_ERROR_NO_BINARY_FOR_GPU);
}

#[test]
fn endless_kernels_end_at_the_limit_of_time_or_with_their_context() {
    let cuda = devices(SoftOptions {
        time_limit: Some(Duration::from_millis(20)),
        ..SoftOptions::default()
    });
    let program = module(&cuda, PROGRAM).expect("a module");
    let forever = function(&cuda, program, c"forever");
    check(launch(&cuda, forever, (1, 32), null_mut(), &mut []));
    assert_eq!(synchronize(&cuda, null_mut()), CUDA_ERROR_LAUNCH_TIMEOUT);

    let cuda = devices(SoftOptions::default());
    let program = module(&cuda, PROGRAM).expect("a module");
    let forever = function(&cuda, program, c"forever");
    check(launch(&cuda, forever, (1, 32), null_mut(), &mut []));
    let running = cuda.queue(null_mut()).expect("a stream");
    // SAFETY: no pointers.
    check(unsafe { cuda.cuDevicePrimaryCtxRelease_v2(0) });
    // Its thread ends only if the kernel does.
    assert_eq!(cuda.streams.wait(&running), Ok(()));
}

#[test]
fn memory_has_its_size_and_no_more() {
    let cuda = devices(SoftOptions::default());
    let (mut free, mut total) = (0, 0);
    // SAFETY: a place for each.
    check(unsafe { cuda.cuMemGetInfo_v2(&raw mut free, &raw mut total) });
    assert_eq!((free, total), (64 << 20, 64 << 20));
    let first = allocate(&cuda, 40 << 20);
    let mut address = 0;
    // SAFETY: one place for the address.
    let refused = unsafe { cuda.cuMemAlloc_v2(&raw mut address, 30 << 20) };
    assert_eq!(refused, CUDA_ERROR_OUT_OF_MEMORY);
    // SAFETY: the addresses are checked by the driver.
    let outside = unsafe { cuda.cuMemsetD8Async(first + 1, 0, 40 << 20, null_mut()) };
    assert_eq!(outside, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: as above.
    check(unsafe { cuda.cuMemsetD32Async(first, 0xabcd, 10, null_mut()) });
    // SAFETY: as above.
    check(unsafe { cuda.cuMemsetD2D16Async(first, 12, 7, 2, 3, null_mut()) });
    let seven = 7 << 16 | 7;
    let expected = [seven, 0xabcd, 0xabcd, seven, 0xabcd, 0xabcd, seven, 0xabcd];
    assert_eq!(download(&cuda, first, 8, null_mut()), expected);
}

#[test]
fn boxes_are_copied_row_by_row() {
    let cuda = devices(SoftOptions::default());
    let (from, to) = (allocate(&cuda, 256), allocate(&cuda, 256));
    upload(&cuda, from, &(0..64).collect::<Vec<u32>>(), null_mut());
    // SAFETY: the driver checks addresses.
    check(unsafe { cuda.cuMemsetD8Async(to, 0xff, 256, null_mut()) });
    // Two slices of two rows of two numbers, from (1, 1, 0) in 4 by 4 to (0, 0, 0) in 2 by 3.
    let copy = CUDA_MEMCPY3D {
        srcXInBytes: 4,
        srcY: 1,
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        srcPitch: 16,
        srcHeight: 4,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        dstPitch: 8,
        dstHeight: 3,
        WidthInBytes: 8,
        Height: 2,
        Depth: 2,
        // SAFETY: numbers and pointers may all be zero.
        ..unsafe { std::mem::zeroed() }
    };
    // SAFETY: the copy is described.
    check(unsafe { cuda.cuMemcpy3DAsync_v2(&raw const copy, null_mut()) });
    let none = u32::MAX;
    let expected = [5, 6, 9, 10, none, none, 21, 22, 25, 26, none];
    assert_eq!(download(&cuda, to, 11, null_mut()), expected);
    let too_deep = CUDA_MEMCPY3D { Depth: 9, ..copy };
    // SAFETY: as above.
    let refused = unsafe { cuda.cuMemcpy3DAsync_v2(&raw const too_deep, null_mut()) };
    assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn cooperative_kernels_find_a_place_to_meet() {
    let cuda = devices(SoftOptions::default());
    let module = module(&cuda, PROGRAM).expect("a module");
    let sync = function(&cuda, module, c"sync");
    let mut data = allocate(&cuda, 4);
    let start = |grid, data: &mut u64| launch_with(&cuda, sync, (grid, 1), TOGETHER, data);
    check(start(4, &mut data));
    assert_eq!(download(&cuda, data, 1, null_mut()), [4]);
    assert_eq!(
        start(1000, &mut data),
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
    );
}

#[test]
fn only_clusters_of_one_block_run() {
    let cuda = devices(SoftOptions::default());
    let text = |size: u32, name: &str| {
        format!(
            ".visible .entry {name}(.param .u64 at) .reqnctapercluster {size}, 1, 1 {{ .reg .b64 d; ld.param.u64 d, [at];\n\
             barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; red.global.add.u32 [d], 1; ret; }}\n"
        )
    };
    let head = ".version 8.0\n.target sm_90\n.address_size 64\n";
    let image = format!("{head}{}{}\0", text(1, "one"), text(2, "two"));
    let image = CStr::from_bytes_with_nul(image.as_bytes()).expect("a NUL at the end");
    let module = module(&cuda, image).expect("a module");
    let [one, two] = [c"one", c"two"].map(|name| function(&cuda, module, name));
    let mut data = allocate(&cuda, 4);
    let of = |blocks: u64| {
        [
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.into(),
            1_u64 << 32 | blocks,
            1,
        ]
    };
    check(launch_with(&cuda, one, (4, 32), of(1), &mut data));
    assert_eq!(download(&cuda, data, 1, null_mut()), [128]);
    let refused = launch_with(&cuda, one, (4, 32), of(2), &mut data);
    assert_eq!(refused, CUDA_ERROR_NOT_SUPPORTED);
    let refused = launch_with(&cuda, two, (4, 32), of(1), &mut data);
    assert_eq!(refused, CUDA_ERROR_NO_BINARY_FOR_GPU);
}

/// The attribute of cooperative launches.
const TOGETHER: [u64; 3] = [CU_LAUNCH_ATTRIBUTE_COOPERATIVE as u64, 1, 0];

/// A launch of a kernel with one parameter, with an attribute.
fn launch_with(
    cuda: &SoftCuda,
    function: CUfunction,
    (grid, block): (u32, u32),
    words: [u64; 3],
    data: &mut u64,
) -> CUresult {
    let mut attribute = [0_u64; size_of::<CUlaunchAttribute>() / 8];
    attribute[..3].copy_from_slice(&words);
    let config = CUlaunchConfig {
        gridDimX: grid,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: block,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: null_mut(),
        attrs: attribute.as_mut_ptr().cast(),
        numAttrs: 1,
    };
    let mut places: [*mut c_void; 1] = [(&raw mut *data).cast()];
    let places = places.as_mut_ptr();
    // SAFETY: the configuration has one attribute, the kernel one parameter.
    unsafe { cuda.cuLaunchKernelEx(&raw const config, function, places, null_mut()) }
}

#[test]
fn kernels_and_devices_describe_themselves() {
    let cuda = devices(SoftOptions {
        capability: (8, 6),
        ..SoftOptions::default()
    });
    let module = module(&cuda, PROGRAM).expect("a module");
    let scale = function(&cuda, module, c"scale");
    let parameter = |index| cuda.parameter(scale.addr(), index);
    assert_eq!(parameter(0), Ok((0, 8)));
    assert_eq!(parameter(1), Ok((8, 4)));
    assert_eq!(parameter(2), Err(CUDA_ERROR_INVALID_VALUE));
    let most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert_eq!(cuda.function_attribute(scale.addr(), most), Ok(48 << 10));
    check(
        cuda.set_function_attribute(scale.addr(), most, 90 << 10)
            .map_or_else(|status| status, |()| CUDA_SUCCESS),
    );
    assert_eq!(cuda.function_attribute(scale.addr(), most), Ok(90 << 10));
    let too_much = cuda.set_function_attribute(scale.addr(), most, 100 << 10);
    assert_eq!(too_much, Err(CUDA_ERROR_INVALID_VALUE));
    let major = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    assert_eq!(cuda.device_attribute(0, major), Ok(8));
    assert_eq!(
        cuda.device_attribute(1, major),
        Err(CUDA_ERROR_INVALID_DEVICE)
    );
    let mut name = [0 as c_char; 8];
    // SAFETY: room for so many bytes.
    check(unsafe { cuda.cuDeviceGetName(name.as_mut_ptr(), 8, 0) });
    // SAFETY: the name ends with a NUL.
    assert_eq!(unsafe { CStr::from_ptr(name.as_ptr()) }, c"Towline");
    let library = cuda
        .load_library(PROGRAM.to_bytes(), &link::Logs::default())
        .expect("a library");
    let mut kernel = null_mut();
    let name: *const c_char = c"wild".as_ptr();
    // SAFETY: the library is live, the name ends with a NUL.
    check(unsafe {
        cuda.cuLibraryGetKernel(
            &raw mut kernel,
            std::ptr::without_provenance_mut(library),
            name,
        )
    });
    let mut nothing: CUfunction = null_mut();
    // SAFETY: as above.
    let missing = unsafe { cuda.cuModuleGetFunction(&raw mut nothing, module, c"none".as_ptr()) };
    assert_eq!(missing, CUDA_ERROR_NOT_FOUND);
}

#[test]
fn devices_reach_each_other_once_and_not_themselves() {
    let cuda = devices(SoftOptions {
        devices: 2,
        ..SoftOptions::default()
    });
    let mut contexts = [null_mut(); 2];
    for (device, context) in (0..).zip(&mut contexts) {
        // SAFETY: one place for the context.
        check(unsafe { cuda.cuDevicePrimaryCtxRetain(context, device) });
    }
    let [own, peer] = contexts;
    assert_eq!(
        cuda.disable_peer(peer),
        Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
    );
    assert_eq!(cuda.enable_peer(peer, 0), Ok(()));
    assert_eq!(
        cuda.enable_peer(peer, 0),
        Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    );
    assert_eq!(cuda.enable_peer(own, 0), Err(CUDA_ERROR_INVALID_DEVICE));
    assert_eq!(cuda.enable_peer(peer, 1), Err(CUDA_ERROR_INVALID_VALUE));
    assert_eq!(cuda.disable_peer(peer), Ok(()));
}
