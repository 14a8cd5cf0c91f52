//! Libraries of a program that uses devices of several servers: loaded once, known to each server that needs them.

mod support;

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use support::Machine;
use towline_backend::cuda::*;

const IMAGE: &CStr = c"towline null image\nkernel add_one\nkernel scale\nglobal table 4096";

const SHARED: CUfunction_attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
/// Nothing here takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(20);

fn ok(status: CUresult) {
    assert_eq!(status, CUDA_SUCCESS);
}

/// A library, loaded while the thread's context is the first device's.
fn library(machine: &Machine) -> CUlibrary {
    let mut library = null_mut();
    let (loaded, waits) = machine.costs(|driver| load(driver, IMAGE, &raw mut library));
    assert_eq!((loaded, waits), (CUDA_SUCCESS, 1));
    library
}

fn load(driver: &dyn CudaApi, image: &CStr, library: *mut CUlibrary) -> CUresult {
    let (image, none) = (image.as_ptr().cast::<c_void>(), null_mut());
    // SAFETY: the image ends with a NUL, and the library's place is the caller's.
    unsafe {
        driver.cuLibraryLoadData(
            library,
            image,
            none,
            null_mut(),
            0,
            none.cast(),
            null_mut(),
            0,
        )
    }
}

fn kernel(machine: &Machine, library: CUlibrary, name: &CStr) -> CUkernel {
    let mut kernel = null_mut();
    // SAFETY: the kernel is a local, and the name ends with a NUL.
    let (found, waits) = machine.costs(|driver| unsafe {
        driver.cuLibraryGetKernel(&raw mut kernel, library, name.as_ptr())
    });
    assert_eq!((found, waits), (CUDA_SUCCESS, 0));
    kernel
}

/// Launches `add_one` over one number.
fn add_one(driver: &dyn CudaApi, function: CUfunction, address: u64) -> CUresult {
    let (mut address, mut count) = (address, 1_u32);
    let mut params = [(&raw mut address).cast(), (&raw mut count).cast()];
    let (stream, params) = (null_mut(), params.as_mut_ptr());
    // SAFETY: both parameters have the kernel's sizes.
    unsafe { driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, null_mut()) }
}

fn number(machine: &Machine, address: u64) -> u32 {
    u32::from_ne_bytes(machine.bytes(address, 4).try_into().unwrap())
}

/// The dynamic shared memory that a kernel may have on a device, and what it costs to ask.
fn attribute(machine: &Machine, kernel: CUkernel, device: CUdevice) -> (i32, u64) {
    let mut value = -1;
    // SAFETY: the value is a local.
    let (asked, waits) = machine.costs(|driver| unsafe {
        driver.cuKernelGetAttribute(&raw mut value, SHARED, kernel, device)
    });
    assert_eq!(asked, CUDA_SUCCESS);
    (value, waits)
}

/// A number in the memory of each device.
fn zeros(machine: &Machine) -> Vec<u64> {
    let devices = 0..machine.contexts.len();
    let numbers = devices.map(|device| {
        machine.enter(device);
        machine.filled(&[0; 4])
    });
    let numbers = numbers.collect();
    machine.enter(0);
    numbers
}

#[test]
fn a_kernel_is_launched_on_every_server_and_each_is_sent_its_library_once() {
    let machine = Machine::with(&[1, 1, 1]);
    let kernel = kernel(&machine, library(&machine), c"add_one");
    let numbers = zeros(&machine);
    let mut waits = Vec::new();
    for device in [0, 1, 0, 1] {
        machine.enter(device);
        for _ in 0..3 {
            let (launched, cost) =
                machine.costs(|driver| add_one(driver, kernel.cast(), numbers[device]));
            ok(launched);
            waits.push(cost);
        }
    }
    // The first launch on a server waits for the driver's verdict, and on the second server for the library before.
    assert_eq!(waits, [1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    for device in [0, 1] {
        machine.enter(device);
        assert_eq!(number(&machine, numbers[device]), 6);
    }
    // What the third server was not asked for it is sent when it is.
    assert_eq!(attribute(&machine, kernel, 2), (0, 1));
    machine.leave();
}

#[test]
fn launches_with_attributes_name_the_kernel_of_the_streams_server() {
    let machine = Machine::with(&[1, 1]);
    let kernel = kernel(&machine, library(&machine), c"add_one");
    let numbers = zeros(&machine);
    machine.enter(1);
    let stream = machine.stream();
    // The thread's context is another server's than the stream.
    machine.enter(0);
    let (mut address, mut count) = (numbers[1], 1_u32);
    let mut params = [(&raw mut address).cast(), (&raw mut count).cast()];
    let config = CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        attrs: null_mut(),
        numAttrs: 0,
    };
    let (function, params) = (kernel.cast(), params.as_mut_ptr());
    let driver = &machine.driver;
    // SAFETY: both parameters have the kernel's sizes, here and below.
    ok(unsafe { driver.cuLaunchKernelEx(&raw const config, function, params, null_mut()) });
    // SAFETY: as above.
    ok(unsafe { driver.cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params) });
    // SAFETY: the stream lives.
    ok(unsafe { driver.cuStreamSynchronize(stream) });
    assert_eq!(number(&machine, numbers[1]), 2);
    machine.leave();
}

#[test]
fn a_kernels_function_and_a_librarys_module_are_those_of_the_current_context() {
    let machine = Machine::with(&[1, 1]);
    let library = library(&machine);
    let kernel = kernel(&machine, library, c"add_one");
    let numbers = zeros(&machine);
    let driver = &machine.driver;
    let mut functions = Vec::new();
    for device in [0, 1] {
        machine.enter(device);
        let (mut function, mut module, mut of, mut named) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        // SAFETY: all of them are locals, and the name ends with a NUL; here and below.
        ok(unsafe { driver.cuKernelGetFunction(&raw mut function, kernel) });
        // SAFETY: as above.
        ok(unsafe { driver.cuLibraryGetModule(&raw mut module, library) });
        // SAFETY: as above.
        ok(unsafe { driver.cuFuncGetModule(&raw mut of, function) });
        // SAFETY: as above.
        ok(unsafe { driver.cuModuleGetFunction(&raw mut named, module, c"add_one".as_ptr()) });
        assert_eq!(of, module);
        let mut again = null_mut();
        let (asked, waits) = machine.costs(|driver| {
            // SAFETY: the function is a local.
            unsafe { driver.cuKernelGetFunction(&raw mut again, kernel) }
        });
        assert_eq!((asked, waits, again), (CUDA_SUCCESS, 0, function));
        ok(add_one(driver, function, numbers[device]));
        ok(add_one(driver, named, numbers[device]));
        machine.synchronise();
        assert_eq!(number(&machine, numbers[device]), 2);
        functions.push((function, module));
    }
    assert_ne!(functions[0], functions[1]);
    // A function belongs to its context, which is another server's now.
    assert_eq!(
        add_one(driver, functions[0].0, numbers[1]),
        CUDA_ERROR_INVALID_HANDLE
    );
    let mut library_of = null_mut();
    // SAFETY: the library is a local.
    ok(unsafe { driver.cuKernelGetLibrary(&raw mut library_of, kernel) });
    assert_eq!(library_of, library);
    ok(add_one(driver, kernel.cast(), numbers[1]));
    machine.leave();
}

#[test]
fn a_variable_of_a_library_is_another_on_each_server() {
    let machine = Machine::with(&[1, 1]);
    let library = library(&machine);
    let place = |device| {
        machine.enter(device);
        let (mut address, mut size) = (0, 0);
        // SAFETY: both are locals, and the name ends with a NUL.
        let (found, waits) = machine.costs(|driver| unsafe {
            driver.cuLibraryGetGlobal(&raw mut address, &raw mut size, library, c"table".as_ptr())
        });
        assert_eq!((found, size), (CUDA_SUCCESS, 4096));
        (address, waits)
    };
    let (here, first) = place(0);
    let (there, second) = place(1);
    assert_ne!(here, there);
    // The second server is sent the library first.
    assert_eq!((first, second), (1, 2));
    assert_eq!((place(0), place(1)), ((here, 0), (there, 0)));
    for (address, value) in [(here, 3), (there, 4)] {
        // SAFETY: no host memory.
        ok(unsafe { machine.driver.cuMemsetD8_v2(address, value, 4096) });
    }
    assert_eq!(machine.bytes(here, 4096), [3; 4096]);
    assert_eq!(machine.bytes(there, 4096), [4; 4096]);
    machine.leave();
}

#[test]
fn attributes_are_each_devices_own() {
    let machine = Machine::with(&[2, 1]);
    let kernel = kernel(&machine, library(&machine), c"add_one");
    let attribute = |device| attribute(&machine, kernel, device);
    let set = |device, bytes| {
        machine.costs(|driver| {
            // SAFETY: no pointers.
            unsafe { driver.cuKernelSetAttribute(SHARED, bytes, kernel, device) }
        })
    };
    assert_eq!(set(0, 65536), (CUDA_SUCCESS, 1));
    assert_eq!((attribute(0), attribute(1)), ((65536, 0), (0, 0)));
    // Of the other server the library is asked for, which is sent it.
    assert_eq!(attribute(2), (0, 1));
    assert_eq!(set(2, 32768), (CUDA_SUCCESS, 1));
    assert_eq!(set(1, 65536), (CUDA_SUCCESS, 1));
    assert_eq!(set(1, 65536), (CUDA_SUCCESS, 0));
    assert_eq!(
        [0, 1, 2].map(attribute),
        [(65536, 0), (65536, 0), (32768, 0)]
    );
    // SAFETY: no pointers.
    let cache = machine.costs(|driver| unsafe {
        driver.cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 2)
    });
    assert_eq!(cache.0, CUDA_SUCCESS);
    let mut blocks = 0;
    machine.enter(2);
    let mut occupancy = || {
        let blocks = &raw mut blocks;
        // SAFETY: the count is a local.
        machine.costs(|driver| unsafe {
            driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel.cast(), 128, 0)
        })
    };
    assert_eq!(
        (occupancy(), occupancy()),
        ((CUDA_SUCCESS, 1), (CUDA_SUCCESS, 0))
    );
    assert_eq!(blocks, 2);
    machine.leave();
}

#[test]
fn a_graph_launches_the_kernel_of_its_server() {
    let machine = Machine::with(&[1, 1]);
    let kernel = kernel(&machine, library(&machine), c"add_one");
    let numbers = zeros(&machine);
    let driver = &machine.driver;
    for device in [1, 0] {
        machine.enter(device);
        let (mut address, mut count) = (numbers[device], 1_u32);
        let mut values = [(&raw mut address).cast(), (&raw mut count).cast()];
        let params = CUDA_KERNEL_NODE_PARAMS {
            func: null_mut(),
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: values.as_mut_ptr(),
            extra: null_mut(),
            kern: kernel,
            ctx: null_mut(),
        };
        let (mut graph, mut node, mut exec) = (null_mut(), null_mut(), null_mut());
        let mut told = CUDA_KERNEL_NODE_PARAMS {
            kern: null_mut(),
            ..params
        };
        // SAFETY: all handles are locals, and the parameters have the kernel's sizes; here and below.
        ok(unsafe { driver.cuGraphCreate(&raw mut graph, 0) });
        // SAFETY: as above.
        ok(unsafe {
            driver.cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, &raw const params)
        });
        // SAFETY: as above.
        ok(unsafe { driver.cuGraphKernelNodeGetParams_v2(node, &raw mut told) });
        assert_eq!((told.kern, told.func), (kernel, null_mut()));
        // SAFETY: as above.
        ok(unsafe { driver.cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) });
        // SAFETY: as above.
        ok(unsafe { driver.cuGraphLaunch(exec, null_mut()) });
        machine.synchronise();
        // Captured, it is the same.
        let stream = machine.stream();
        let (mut captured, mut again) = (null_mut(), null_mut());
        // SAFETY: as above.
        ok(unsafe { driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) });
        let values = values.as_mut_ptr();
        // SAFETY: as above.
        ok(unsafe {
            driver.cuLaunchKernel(
                kernel.cast(),
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                values,
                null_mut(),
            )
        });
        // SAFETY: as above.
        ok(unsafe { driver.cuStreamEndCapture(stream, &raw mut captured) });
        // SAFETY: as above.
        ok(unsafe { driver.cuGraphInstantiateWithFlags(&raw mut again, captured, 0) });
        // SAFETY: as above.
        ok(unsafe { driver.cuGraphLaunch(again, stream) });
        // SAFETY: as above.
        ok(unsafe { driver.cuStreamSynchronize(stream) });
        assert_eq!(number(&machine, numbers[device]), 2);
        for graph in [graph, captured] {
            // SAFETY: as above.
            ok(unsafe { driver.cuGraphDestroy(graph) });
        }
        for exec in [exec, again] {
            // SAFETY: as above.
            ok(unsafe { driver.cuGraphExecDestroy(exec) });
        }
    }
    machine.leave();
}

#[test]
fn kernels_are_listed_once_and_unloading_ends_the_library_everywhere() {
    let machine = Machine::with(&[1, 1]);
    let library = library(&machine);
    let numbers = zeros(&machine);
    let (mut count, mut kernels) = (0, [null_mut(); 3]);
    let driver = &machine.driver;
    // SAFETY: the count is a local.
    ok(unsafe { driver.cuLibraryGetKernelCount(&raw mut count, library) });
    // SAFETY: there is room for as many as said.
    ok(unsafe { driver.cuLibraryEnumerateKernels(kernels.as_mut_ptr(), 3, library) });
    assert_eq!(
        (count, kernels[0].is_null(), kernels[2]),
        (2, false, null_mut())
    );
    let mut function = null_mut();
    for device in [0, 1] {
        machine.enter(device);
        ok(add_one(driver, kernels[0].cast(), numbers[device]));
        // SAFETY: the function is a local.
        ok(unsafe { driver.cuKernelGetFunction(&raw mut function, kernels[0]) });
        machine.synchronise();
    }
    let objects = || machine.nulls.iter().map(|null| null.live_objects());
    let held: Vec<usize> = objects().collect();
    // SAFETY: no pointers.
    let (unloaded, waits) = machine.costs(|driver| unsafe { driver.cuLibraryUnload(library) });
    assert_eq!((unloaded, waits), (CUDA_SUCCESS, 0));
    let deadline = Instant::now() + PATIENCE;
    while !objects().zip(&held).all(|(now, before)| now < *before) {
        assert!(Instant::now() < deadline, "a server keeps the library");
        std::thread::sleep(Duration::from_millis(1));
    }
    for device in [0, 1] {
        machine.enter(device);
        for stale in [kernels[0].cast(), function] {
            assert_eq!(
                add_one(driver, stale, numbers[device]),
                CUDA_ERROR_INVALID_HANDLE
            );
        }
        assert_eq!(number(&machine, numbers[device]), 1);
    }
    // SAFETY: no pointers.
    let again = unsafe { driver.cuLibraryUnload(library) };
    assert_eq!(again, CUDA_ERROR_INVALID_HANDLE);
    machine.leave();
}

#[test]
fn what_a_server_refuses_is_the_status_of_the_call_that_needed_it() {
    let machine = Machine::with(&[1, 1]);
    let mut none = null_mut();
    let (refused, waits) = machine.costs(|driver| load(driver, c"nonsense", &raw mut none));
    assert_eq!((refused, waits), (CUDA_ERROR_INVALID_IMAGE, 1));
    let kernel = kernel(&machine, library(&machine), c"add_one");
    let numbers = zeros(&machine);
    machine.nulls[1].refuse_images(CUDA_ERROR_OUT_OF_MEMORY);
    machine.enter(1);
    let launch = || machine.costs(|driver| add_one(driver, kernel.cast(), numbers[1]));
    assert_eq!(launch(), (CUDA_ERROR_OUT_OF_MEMORY, 1));
    let mut name: *const c_char = null();
    // SAFETY: the name is a local.
    ok(unsafe { machine.driver.cuKernelGetName(&raw mut name, kernel) });
    machine.nulls[1].refuse_images(CUDA_SUCCESS);
    assert_eq!(launch(), (CUDA_SUCCESS, 2));
    machine.synchronise();
    assert_eq!(number(&machine, numbers[1]), 1);
    // The first server has not noticed.
    machine.enter(0);
    ok(add_one(&machine.driver, kernel.cast(), numbers[0]));
    assert_eq!(number(&machine, numbers[0]), 1);
    machine.leave();
}

#[test]
fn threads_that_need_a_library_at_once_have_it_sent_once() {
    let machine = Machine::with(&[1, 1]);
    let kernel = kernel(&machine, library(&machine), c"add_one").expose_provenance();
    let ask = || {
        let (mut value, kernel) = (-1, std::ptr::with_exposed_provenance_mut(kernel));
        let driver = &machine.driver;
        // SAFETY: the value is a local.
        ok(unsafe { driver.cuKernelGetAttribute(&raw mut value, SHARED, kernel, 1) });
    };
    let ((), waits) = machine.costs(|_| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(ask);
            }
        });
    });
    assert_eq!(waits, 1);
    machine.leave();
}
