//! No argument of an application ends its session: what no server can mean anything by fails, and everything else goes on.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr::{null, null_mut, without_provenance_mut};

use support::Machine;
use towline_backend::cuda::*;
use towline_cuda::Driver;

on_every_device! {
    handles_of_nothing_leave_the_session_alive
    unknown_attributes_are_invalid
    lists_without_room_are_invalid
    empty_file_is_no_image
    profiler_calls_need_the_driver_started
    copies_beyond_their_memory_are_refused
    copies_take_device_memory_for_host_memory
    hints_about_caches_leave_no_failure
    wrong_arguments_are_told_as_on_a_gpu
    calls_beside_captures_are_told_as_on_a_gpu
    mistakes_are_told_at_the_call
    priorities_of_streams_can_be_set
    first_wrong_argument_is_told_as_on_a_gpu
    memory_is_described_as_on_a_gpu
}

/// Handles that mean nothing, something else, or nothing any more.
fn handles(machine: &Machine) -> Vec<usize> {
    let driver = &machine.driver;
    let stream = machine.stream();
    let ended = machine.stream();
    let (mut event, mut pool) = (null_mut(), null_mut());
    let image = c".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n";
    let mut module = null_mut();
    // SAFETY: the places are locals, and the image is a string.
    unsafe {
        assert_eq!(driver.cuStreamDestroy_v2(ended), CUDA_SUCCESS);
        assert_eq!(driver.cuEventCreate(&raw mut event, 0), CUDA_SUCCESS);
        // A device may have neither pools nor take this image.
        let _ = driver.cuDeviceGetDefaultMemPool(&raw mut pool, 0);
        let _ = driver.cuModuleLoadData(&raw mut module, image.as_ptr().cast());
    }
    let known = [
        stream.addr(),
        ended.addr(),
        event.addr(),
        pool.addr(),
        module.addr(),
    ];
    let near = known.iter().map(|handle| handle.wrapping_add(1));
    let tag = 0xff_u64 << 40;
    let odd = [3, 0x10, 0x7fff_dead_beef, usize::MAX, 1 << 63, tag as usize];
    known.iter().copied().chain(near).chain(odd).collect()
}

/// Calls with a handle where it does not belong, each of which must return.
fn misuse(driver: &Driver, raw: usize) {
    fn of<T>(raw: usize) -> *mut T {
        without_provenance_mut(raw)
    }
    let (mut word, mut wide, mut size) = (0_i32, 0_u64, 0_usize);
    let mut object = null_mut::<c_void>();
    let (word, wide, size, object) = (&raw mut word, &raw mut wide, &raw mut size, &raw mut object);
    let name = c"k".as_ptr();
    // SAFETY: every place is a local; handles are looked up and never followed.
    unsafe {
        driver.cuStreamSynchronize(of(raw));
        driver.cuStreamQuery(of(raw));
        driver.cuStreamWaitEvent(of(raw), of(raw), 0);
        driver.cuStreamWaitEvent(null_mut(), of(raw), 0);
        driver.cuStreamGetPriority(of(raw), word);
        driver.cuStreamGetFlags(of(raw), word.cast());
        driver.cuStreamGetCtx(of(raw), object.cast());
        driver.cuStreamBeginCapture_v2(of(raw), CU_STREAM_CAPTURE_MODE_RELAXED);
        driver.cuStreamEndCapture(of(raw), object.cast());
        driver.cuEventRecord(of(raw), of(raw));
        driver.cuEventRecord(of(raw), null_mut());
        driver.cuEventQuery(of(raw));
        driver.cuEventSynchronize(of(raw));
        driver.cuEventElapsedTime_v2(word.cast(), of(raw), of(raw));
        driver.cuModuleGetFunction(object.cast(), of(raw), name);
        driver.cuModuleGetGlobal_v2(wide, size, of(raw), name);
        driver.cuModuleGetTexRef(object.cast(), of(raw), name);
        driver.cuModuleGetSurfRef(object.cast(), of(raw), name);
        driver.cuLibraryGetKernel(object.cast(), of(raw), name);
        driver.cuLibraryGetModule(object.cast(), of(raw));
        driver.cuLibraryGetGlobal(wide, size, of(raw), name);
        driver.cuLibraryGetManaged(wide, size, of(raw), name);
        driver.cuKernelGetFunction(object.cast(), of(raw));
        driver.cuKernelGetAttribute(word, 0, of(raw), 0);
        driver.cuFuncGetAttribute(word, 0, of(raw));
        driver.cuFuncSetAttribute(of(raw), 8, 1024);
        driver.cuFuncSetCacheConfig(of(raw), 1);
        driver.cuFuncGetModule(object.cast(), of(raw));
        driver.cuFuncGetParamInfo(of(raw), 0, size, size);
        driver.cuLaunchKernel(
            of(raw),
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            null_mut(),
            null_mut(),
            null_mut(),
        );
        driver.cuLaunchKernel(
            of(raw),
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            of(raw),
            null_mut(),
            null_mut(),
        );
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(word, of(raw), 32, 0);
        driver.cuMemPoolTrimTo(of(raw), 0);
        driver.cuMemPoolGetAttribute(of(raw), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, wide.cast());
        driver.cuMemPoolSetAttribute(of(raw), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, wide.cast());
        driver.cuMemAllocFromPoolAsync(wide, 64, of(raw), null_mut());
        driver.cuDeviceSetMemPool(0, of(raw));
        driver.cuMemAllocAsync(wide, 64, of(raw));
        driver.cuMemFreeAsync(raw as u64, null_mut());
        driver.cuMemFree_v2(raw as u64);
        driver.cuMemGetAddressRange_v2(wide, size, raw as u64);
        driver.cuArray3DGetDescriptor_v2(object.cast(), of(raw));
        driver.cuArrayDestroy(of(raw));
        driver.cuMipmappedArrayGetLevel(object.cast(), of(raw), 0);
        driver.cuMipmappedArrayDestroy(of(raw));
        driver.cuTexObjectDestroy(raw as u64);
        driver.cuSurfObjectDestroy(raw as u64);
        driver.cuTexRefGetAddress_v2(wide, of(raw));
        driver.cuGraphAddEmptyNode(object.cast(), of(raw), null(), 0);
        driver.cuGraphInstantiateWithFlags(object.cast(), of(raw), 0);
        driver.cuGraphLaunch(of(raw), null_mut());
        driver.cuGraphDestroy(of(raw));
        driver.cuGraphExecDestroy(of(raw));
        driver.cuLinkComplete(of(raw), object, size);
        driver.cuLinkDestroy(of(raw));
        driver.cuMemRelease(raw as u64);
        driver.cuMemUnmap(raw as u64, 4096);
        driver.cuMemAddressFree(raw as u64, 4096);
        driver.cuMemMap(raw as u64, 4096, 0, raw as u64, 0);
        driver.cuIpcCloseMemHandle(raw as u64);
        driver.cuCtxGetDevice_v2(word, of(raw));
        driver.cuCtxSynchronize_v2(of(raw));
        driver.cuCtxEnablePeerAccess(of(raw), 0);
        driver.cuStreamWaitValue32_v2(of(raw), raw as u64, 0, 0);
    }
}

fn handles_of_nothing_leave_the_session_alive(machine: Machine) {
    for raw in handles(&machine) {
        misuse(&machine.driver, raw);
        machine.enter(0);
        // SAFETY: no pointers.
        unsafe { machine.driver.cuCtxSynchronize() };
        let lost = machine.sessions[0].lost();
        assert_eq!(lost, None, "after a call with {raw:#x}");
    }
    machine.end();
}

fn unknown_attributes_are_invalid(machine: Machine) {
    let (driver, memory) = (&machine.driver, machine.allocate(64));
    let mut word = 0_u64;
    let place = (&raw mut word).cast::<c_void>();
    let of_pointer = |attribute| {
        // SAFETY: the place is a local of 64 bits.
        unsafe { driver.cuPointerGetAttribute(place, attribute, memory) }
    };
    assert_eq!([0, 99].map(of_pointer), [CUDA_ERROR_INVALID_VALUE; 2]);
    assert_eq!(of_pointer(CU_POINTER_ATTRIBUTE_MAPPING_SIZE), CUDA_SUCCESS);
    assert_eq!(word, 64);
    let (mut unknown, mut places) = ([99], [place]);
    let unknown = unknown.as_mut_ptr();
    // SAFETY: one attribute and one place.
    let told = unsafe { driver.cuPointerGetAttributes(1, unknown, places.as_mut_ptr(), memory) };
    assert_eq!(told, CUDA_ERROR_INVALID_VALUE);
    let of_device = |attribute| {
        let mut value = 0;
        // SAFETY: the value is a local.
        unsafe { driver.cuDeviceGetAttribute(&raw mut value, attribute, 0) }
    };
    let unknown = [0, 100_000].map(of_device);
    assert_eq!(unknown, [CUDA_ERROR_INVALID_VALUE; 2]);
    // SAFETY: no pointers.
    assert_eq!(unsafe { driver.cuMemFree_v2(memory) }, CUDA_SUCCESS);
    machine.leave();
}

fn lists_without_room_are_invalid(machine: Machine) {
    let driver = &machine.driver;
    let (mut graph, mut node, mut count) = (null_mut(), null_mut(), 0);
    // SAFETY: the handles are locals.
    unsafe {
        assert_eq!(driver.cuGraphCreate(&raw mut graph, 0), CUDA_SUCCESS);
        let added = driver.cuGraphAddEmptyNode(&raw mut node, graph, null(), 0);
        assert_eq!(added, CUDA_SUCCESS);
    }
    let mut found = without_provenance_mut(7);
    // SAFETY: nothing is to be written to the list.
    let listed = unsafe {
        let (found, count) = (&raw mut found, &raw mut count);
        [
            driver.cuGraphGetNodes(graph, found, count),
            driver.cuGraphGetRootNodes(graph, found, count),
            driver.cuGraphNodeGetDependencies(node, found, count),
            driver.cuGraphGetEdges(graph, found, found, count),
        ]
    };
    assert_eq!(listed, [CUDA_ERROR_INVALID_VALUE; 4]);
    assert_eq!((found.addr(), count), (7, 0));
    // SAFETY: the graph is live.
    assert_eq!(unsafe { driver.cuGraphDestroy(graph) }, CUDA_SUCCESS);
    machine.leave();
}

fn empty_file_is_no_image(machine: Machine) {
    let driver = &machine.driver;
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = std::ffi::CString::new(file.path().to_str().unwrap()).unwrap();
    let mut link = null_mut();
    let (none, values) = (null_mut(), null_mut());
    // SAFETY: no options; the path is a string.
    let added = unsafe {
        assert_eq!(
            driver.cuLinkCreate_v2(0, none, values, &raw mut link),
            CUDA_SUCCESS
        );
        let added = driver.cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, path.as_ptr(), 0, none, values);
        assert_eq!(driver.cuLinkDestroy(link), CUDA_SUCCESS);
        added
    };
    assert_eq!(added, CUDA_ERROR_INVALID_IMAGE);
    machine.leave();
}

fn profiler_calls_need_the_driver_started(machine: Machine) {
    let calls = |driver: &Driver| {
        let file = c"x".as_ptr();
        // SAFETY: the names are strings.
        unsafe {
            [
                driver.cuProfilerStart(),
                driver.cuProfilerStop(),
                driver.cuProfilerInitialize(file, file, 0),
            ]
        }
    };
    let done = [CUDA_SUCCESS, CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED];
    assert_eq!(calls(&machine.driver), done);
    let idle = Driver::over(machine.sessions.clone(), None);
    assert_eq!(calls(&idle), [CUDA_ERROR_NOT_INITIALIZED; 3]);
    machine.end();
}

/// The device in host memory has no reset.
#[test]
fn primary_context_is_of_use_after_a_reset() {
    let machine = Machine::on_soft();
    for round in 0..3 {
        let place = machine.filled(&[round; 64]);
        let stream = machine.stream();
        assert_eq!(machine.bytes(place, 64), [round; 64]);
        // SAFETY: no pointers; the context is the primary one of the device.
        unsafe {
            assert_eq!(machine.driver.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
            assert_eq!(
                machine.driver.cuStreamSynchronize(stream),
                CUDA_ERROR_CONTEXT_IS_DESTROYED
            );
            // As the runtime library does before it asks for the context again.
            let again = machine.driver.cuCtxSetCurrent(machine.contexts[0]);
            assert_eq!(again, CUDA_SUCCESS);
            let mut context = null_mut();
            let again = machine.driver.cuDevicePrimaryCtxRetain(&raw mut context, 0);
            assert_eq!((again, context), (CUDA_SUCCESS, machine.contexts[0]));
        }
        machine.enter(0);
    }
    assert_eq!(machine.sessions[0].lost(), None);
    machine.leave();
}

/// A kernel without parameters.
fn kernel(driver: &Driver) -> CUfunction {
    let image = c".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n";
    let (mut module, mut function) = (null_mut(), null_mut());
    // SAFETY: the image and the name are strings; the places are locals.
    let found = unsafe {
        [
            driver.cuModuleLoadData(&raw mut module, image.as_ptr().cast()),
            driver.cuModuleGetFunction(&raw mut function, module, c"k".as_ptr()),
        ]
    };
    assert_eq!(found, [CUDA_SUCCESS; 2]);
    function
}

#[test]
fn attributes_of_builds_cannot_be_set() {
    let machine = Machine::on_soft();
    let driver = &machine.driver;
    let function = kernel(driver);
    for attribute in CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK..=CU_FUNC_ATTRIBUTE_CACHE_MODE_CA {
        let mut value = 0;
        // SAFETY: the place is a local.
        let told = unsafe { driver.cuFuncGetAttribute(&raw mut value, attribute, function) };
        // SAFETY: no pointers.
        let set = unsafe { driver.cuFuncSetAttribute(function, attribute, value) };
        assert_eq!(
            (told, set),
            (CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE),
            "{attribute}"
        );
    }
    machine.end();
}

#[test]
fn cooperative_launch_of_larger_grid_is_refused() {
    let machine = Machine::on_soft();
    let (driver, stream) = (&machine.driver, machine.stream());
    let function = kernel(driver);
    let launch = |grid| {
        // SAFETY: the kernel has no parameters.
        unsafe {
            driver.cuLaunchCooperativeKernel(function, grid, 1, 1, 32, 1, 1, 0, stream, null_mut())
        }
    };
    assert_eq!(launch(1), CUDA_SUCCESS);
    assert_eq!(launch(1 << 20), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    let (again, waits) = machine.costs(|_| launch(1));
    assert_eq!((again, waits), (CUDA_SUCCESS, 0));
    machine.synchronise();
    machine.end();
}

fn copies_beyond_their_memory_are_refused(machine: Machine) {
    let place = machine.filled(&[0; 64]);
    let mut host = [0_u8; 64];
    let driver = &machine.driver;
    for size in [4 << 20, usize::MAX / 2, usize::MAX] {
        // SAFETY: refused before anything is read or written.
        let outcomes = unsafe {
            [
                driver.cuMemcpyHtoD_v2(place, host.as_ptr().cast(), size),
                driver.cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), place, size),
                driver.cuMemcpyDtoD_v2(place, place, size),
                driver.cuMemcpy(place, host.as_ptr().expose_provenance() as u64, size),
            ]
        };
        assert_eq!(outcomes, [CUDA_ERROR_INVALID_VALUE; 4], "{size} bytes");
    }
    assert_eq!(machine.bytes(place, 64), [0; 64]);
    machine.end();
}

fn copies_take_device_memory_for_host_memory(machine: Machine) {
    let (from, to) = (machine.filled(&[1; 64]), machine.filled(&[0; 64]));
    let (driver, stream) = (&machine.driver, machine.stream());
    let host = |address: u64| without_provenance_mut::<c_void>(address as usize);
    let area = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: host(from),
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        WidthInBytes: 16,
        Height: 2,
        // SAFETY: zeros are one.
        ..unsafe { std::mem::zeroed() }
    };
    // SAFETY: both are memory of the device.
    let boxed = unsafe { driver.cuMemcpy2D_v2(&raw const area) };
    assert_eq!(boxed, CUDA_SUCCESS);
    assert_eq!(machine.bytes(to, 64), [[1; 32], [0; 32]].concat());
    let copies: [&dyn Fn() -> CUresult; 4] = [
        // SAFETY: both are memory of the device.
        &|| unsafe { driver.cuMemcpyHtoD_v2(to, host(from), 64) },
        // SAFETY: as above.
        &|| unsafe { driver.cuMemcpyHtoDAsync_v2(to, host(from), 64, stream) },
        // SAFETY: as above.
        &|| unsafe { driver.cuMemcpyDtoH_v2(host(to), from, 64) },
        // SAFETY: as above.
        &|| unsafe { driver.cuMemcpyDtoHAsync_v2(host(to), from, 64, stream) },
    ];
    for copy in copies {
        // SAFETY: the memory has so many bytes.
        let cleared = unsafe { driver.cuMemsetD8_v2(to, 0, 64) };
        assert_eq!(cleared, CUDA_SUCCESS);
        assert_eq!(machine.bytes(to, 64), [0; 64]);
        assert_eq!(copy(), CUDA_SUCCESS);
        // SAFETY: has no pointers.
        assert_eq!(unsafe { driver.cuStreamSynchronize(stream) }, CUDA_SUCCESS);
        assert_eq!(machine.bytes(to, 64), [1; 64]);
    }
    machine.end();
}

fn hints_about_caches_leave_no_failure(machine: Machine) {
    let driver = &machine.driver;
    // SAFETY: no pointers.
    let done = unsafe {
        [
            driver.cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_SHARED),
            driver.cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE),
            driver.cuCtxResetPersistingL2Cache(),
            driver.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096),
            driver.cuCtxSynchronize(),
        ]
    };
    assert_eq!(done, [CUDA_SUCCESS; 5]);
    // SAFETY: no pointers.
    let refused = unsafe {
        [
            driver.cuCtxSetCacheConfig(77),
            driver.cuCtxSetSharedMemConfig(77),
        ]
    };
    assert_eq!(refused, [CUDA_ERROR_INVALID_VALUE; 2]);
    let mut config = 77;
    // SAFETY: the place is a local.
    let asked = unsafe { driver.cuCtxGetCacheConfig(&raw mut config) };
    assert_eq!((asked, config), (CUDA_SUCCESS, CU_FUNC_CACHE_PREFER_SHARED));
    // SAFETY: no pointers.
    assert_eq!(unsafe { driver.cuCtxSynchronize() }, CUDA_SUCCESS);
    machine.leave();
}

/// As an H100 with driver 580.159 answered.
fn wrong_arguments_are_told_as_on_a_gpu(machine: Machine) {
    let (driver, stream) = (&machine.driver, machine.stream());
    let memory = machine.filled(&[7; 256]);
    let (mut graph, mut node, mut event) = (null_mut(), null_mut(), null_mut());
    let mut name = null();
    let mut host = [0_u8; 64];
    let from_array = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_ARRAY,
        dstMemoryType: CU_MEMORYTYPE_HOST,
        dstHost: host.as_mut_ptr().cast(),
        WidthInBytes: 16,
        Height: 1,
        // SAFETY: zeros are one.
        ..unsafe { std::mem::zeroed() }
    };
    let mut device_pointer = 0;
    // SAFETY: the places are locals, and the rest is refused before it is followed.
    let answers = unsafe {
        assert_eq!(driver.cuGraphCreate(&raw mut graph, 0), CUDA_SUCCESS);
        assert_eq!(driver.cuEventCreate(&raw mut event, 0), CUDA_SUCCESS);
        [
            driver.cuGraphAddEventRecordNode(&raw mut node, graph, null(), 0, null_mut()),
            driver.cuGraphAddEventWaitNode(&raw mut node, graph, null(), 0, null_mut()),
            driver.cuStreamWaitEvent(stream, event, 2),
            driver.cuStreamWaitEvent(stream, null_mut(), 2),
            driver.cuMemHostUnregister(null_mut()),
            driver.cuMemHostGetDevicePointer_v2(&raw mut device_pointer, null_mut(), 0),
            driver.cuFuncGetName(&raw mut name, null_mut()),
            driver.cuMemsetD2D32_v2(memory, 0, 9, 16, 4),
            driver.cuMemcpy2D_v2(&raw const from_array),
        ]
    };
    assert_eq!(answers, [CUDA_ERROR_INVALID_VALUE; 9]);
    assert_eq!(machine.bytes(memory, 256), [7; 256]);
    // SAFETY: both are live.
    let ended = unsafe {
        [
            driver.cuGraphDestroy(graph),
            driver.cuEventDestroy_v2(event),
        ]
    };
    assert_eq!(ended, [CUDA_SUCCESS; 2]);
    machine.leave();
}

/// The statuses are an H100's, with driver 580.159.
fn first_wrong_argument_is_told_as_on_a_gpu(machine: Machine) {
    let (driver, stream) = (&machine.driver, machine.stream());
    let (mut event, mut function) = (null_mut(), without_provenance_mut(7));
    let mut context = null_mut();
    // SAFETY: the places are locals, and the rest is refused before it is followed.
    let answers = unsafe {
        assert_eq!(driver.cuEventCreate(&raw mut event, 0), CUDA_SUCCESS);
        let answers = [
            driver.cuEventElapsedTime_v2(null_mut(), null_mut(), null_mut()),
            driver.cuModuleGetFunction(&raw mut function, null_mut(), null()),
            driver.cuModuleGetGlobal_v2(null_mut(), null_mut(), null_mut(), c"a".as_ptr()),
            driver.cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL),
            driver.cuGraphRemoveDependencies(null_mut(), null(), null(), 0),
            driver.cuEventDestroy_v2(event),
            driver.cuCtxPopCurrent_v2(&raw mut context),
            driver.cuMemsetD2D16_v2(0, 64, 9, 4, 2),
            driver.cuCtxPushCurrent_v2(context),
        ];
        assert_eq!(function.addr(), 7);
        answers
    };
    let expected = [
        CUDA_ERROR_INVALID_HANDLE,
        CUDA_ERROR_INVALID_HANDLE,
        CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_ILLEGAL_STATE,
        CUDA_ERROR_INVALID_VALUE,
        CUDA_SUCCESS,
        CUDA_SUCCESS,
        CUDA_ERROR_INVALID_CONTEXT,
        CUDA_SUCCESS,
    ];
    assert_eq!(answers, expected);
    machine.leave();
}

/// Flags are an H100's, with driver 580.159, and as wide as there; memory of no bytes has no address.
fn memory_is_described_as_on_a_gpu(machine: Machine) {
    let (driver, stream) = (&machine.driver, machine.stream());
    let memory = machine.allocate(64);
    let (mut mapped, mut flags, mut of_context) = (0xeeee_eeee_u32, 0, 0);
    let (mut host, mut nothing) = (null_mut(), 7);
    // SAFETY: the places are locals, and the host memory is live.
    let answers = unsafe {
        let place = (&raw mut mapped).cast();
        let attribute = CU_POINTER_ATTRIBUTE_MAPPED;
        [
            driver.cuPointerGetAttribute(place, attribute, memory),
            driver.cuMemHostAlloc(&raw mut host, 64, CU_MEMHOSTALLOC_PORTABLE),
            driver.cuMemHostGetFlags(&raw mut flags, host),
            driver.cuMemFreeHost(host),
            driver.cuCtxGetFlags(&raw mut of_context),
            driver.cuMemAllocAsync(&raw mut nothing, 0, stream),
            driver.cuMemFreeAsync(nothing, stream),
        ]
    };
    assert_eq!(answers, [CUDA_SUCCESS; 7]);
    assert_eq!((mapped, flags, of_context, nothing), (1, 3, 8, 0));
    machine.leave();
}

/// The statuses of the calls are an H100's, with driver 580.159. That the capture is worth nothing afterwards is the rule of other calls.
fn calls_beside_captures_are_told_as_on_a_gpu(machine: Machine) {
    let (driver, stream) = (&machine.driver, machine.stream());
    let (mut flags, mut id, mut priority) = (0, 0, 0);
    let captured = |mode, call: &mut dyn FnMut() -> CUresult| {
        // SAFETY: the stream is live, and the capture's graph is nobody's.
        unsafe {
            assert_eq!(driver.cuStreamBeginCapture_v2(stream, mode), CUDA_SUCCESS);
            [call(), driver.cuStreamEndCapture(stream, null_mut())]
        }
    };
    let refused = [
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    ];
    let relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the places are locals.
    unsafe {
        let flags = &mut || driver.cuStreamGetFlags(stream, &raw mut flags);
        assert_eq!(captured(relaxed, flags), refused);
        let id = &mut || driver.cuStreamGetId(stream, &raw mut id);
        assert_eq!(captured(relaxed, id), refused);
        let priority = &mut || driver.cuStreamGetPriority(stream, &raw mut priority);
        assert_eq!(captured(relaxed, priority), [CUDA_SUCCESS; 2]);
        let mut value = 0_u64;
        let place = (&raw mut value).cast();
        let pool = &mut || driver.cuMemPoolGetAttribute(null_mut(), 4, place);
        assert_eq!(captured(CU_STREAM_CAPTURE_MODE_GLOBAL, pool), refused);
        let pool = &mut || driver.cuMemPoolGetAttribute(null_mut(), 4, place);
        let harmless = [CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS];
        assert_eq!(captured(relaxed, pool), harmless);
    }
    machine.leave();
}

/// The statuses are a GPU's, with driver 580.159.
fn mistakes_are_told_at_the_call(machine: Machine) {
    let (driver, mut own, mut pinned) = (&machine.driver, vec![1_u8; 4096], null_mut());
    let (device, host) = (machine.allocate(4096), own.as_mut_ptr().cast::<c_void>());
    // SAFETY: the memory is live, for all of them.
    unsafe {
        let allocated = driver.cuMemHostAlloc(&raw mut pinned, 4096, 0);
        assert_eq!(allocated, CUDA_SUCCESS);
        let there = without_provenance_mut(device as usize);
        let refused = [
            driver.cuMemHostRegister_v2(pinned, 4096, 0),
            driver.cuMemHostRegister_v2(there, 4096, 0),
        ];
        assert_eq!(refused, [CUDA_ERROR_INVALID_VALUE; 2]);
        assert_eq!(driver.cuMemHostRegister_v2(host, 4096, 0), CUDA_SUCCESS);
        let again = driver.cuMemHostRegister_v2(host, 4096, 0);
        assert_eq!(again, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        let taken = [
            driver.cuMemHostUnregister(host),
            driver.cuMemFreeHost(pinned),
            driver.cuTexObjectDestroy(0),
            driver.cuSurfObjectDestroy(0x1234),
        ];
        assert_eq!(taken, [CUDA_SUCCESS; 4]);
    }
    machine.leave();
}

/// The nearest that there is, as a GPU has it with driver 580.159.
fn priorities_of_streams_can_be_set(machine: Machine) {
    let (driver, stream) = (&machine.driver, machine.stream());
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: the places are locals.
    let asked = unsafe { driver.cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest) };
    assert_eq!(asked, CUDA_SUCCESS);
    for (wanted, told) in [
        (greatest, greatest),
        (greatest - 7, greatest),
        (least + 3, least),
    ] {
        let (mut value, mut now) = (CUlaunchAttributeValue { pad: [0; 64] }, 99);
        value.priority = wanted;
        // SAFETY: the value is a whole one; the place is a local.
        let statuses = unsafe {
            [
                driver.cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &raw const value),
                driver.cuStreamGetPriority(stream, &raw mut now),
            ]
        };
        assert_eq!((statuses, now), ([CUDA_SUCCESS; 2], told));
    }
    machine.leave();
}
