//! Calls of long ago, and corners of contexts and devices: each answers as it does natively, or says what there is not.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

mod support;

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use support::Machine;
use towline_backend::cuda::*;

const IMAGE: &CStr = c"towline null image\nkernel scale";

fn number(machine: &Machine, address: CUdeviceptr) -> u32 {
    u32::from_ne_bytes(machine.bytes(address, 4).try_into().unwrap())
}

#[test]
fn a_launch_takes_what_was_set_for_its_function_before() {
    let machine = Machine::new();
    let (driver, memory) = (&machine.driver, machine.filled(&7_u32.to_ne_bytes()));
    let (mut module, mut scale) = (null_mut(), null_mut());
    let address = memory.to_ne_bytes();
    // SAFETY: the image ends with a NUL; handles are locals; the address has eight bytes.
    let set = unsafe {
        [
            driver.cuModuleLoadData(&raw mut module, IMAGE.as_ptr().cast()),
            driver.cuModuleGetFunction(&raw mut scale, module, c"scale".as_ptr()),
            driver.cuFuncSetBlockShape(scale, 32, 1, 1),
            driver.cuFuncSetSharedSize(scale, 0),
            driver.cuParamSetSize(scale, 16),
            driver.cuParamSetv(scale, 0, address.as_ptr().cast_mut().cast(), 8),
            driver.cuParamSeti(scale, 8, 1),
            driver.cuParamSeti(scale, 12, 3),
            driver.cuLaunch(scale),
            driver.cuLaunchGrid(scale, 1, 1),
            driver.cuLaunchGridAsync(scale, 1, 1, null_mut()),
            driver.cuParamSetTexRef(scale, 0, null_mut()),
            driver.cuFuncSetSharedMemConfig(scale, 1),
        ]
    };
    assert_eq!(set, [CUDA_SUCCESS; 13]);
    machine.synchronise();
    assert_eq!(number(&machine, memory), 7 * 27);
    // SAFETY: no pointers.
    let refused = unsafe {
        [
            driver.cuFuncSetBlockShape(scale, 0, 1, 1),
            driver.cuFuncSetBlockShape(scale, 1, -1, 1),
            driver.cuParamSetSize(scale, 1 << 20),
            driver.cuParamSeti(scale, -1, 0),
            driver.cuParamSeti(scale, 4094, 0),
            driver.cuParamSetv(scale, 0, null_mut(), 4),
            driver.cuLaunchGrid(scale, 0, 1),
            driver.cuLaunchGrid(scale, -1, 1),
        ]
    };
    assert_eq!(refused, [CUDA_ERROR_INVALID_VALUE; 8]);
    // SAFETY: no pointers.
    let unknown = unsafe {
        [
            driver.cuLaunch(null_mut()),
            driver.cuParamSetSize(null_mut(), 4),
        ]
    };
    assert_eq!(unknown, [CUDA_ERROR_INVALID_HANDLE; 2]);
    // SAFETY: the memory was allocated above.
    unsafe { driver.cuMemFree_v2(memory) };
    machine.leave();
}

#[test]
fn a_context_ends_with_the_last_of_its_users() {
    let machine = Machine::new();
    let driver = &machine.driver;
    let (mut context, mut again, mut current) = (null_mut(), null_mut(), null_mut());
    // SAFETY: all are locals.
    let made = unsafe {
        [
            driver.cuCtxCreate_v3(&raw mut context, null_mut(), 0, 0, 0),
            driver.cuCtxAttach(&raw mut again, 0),
            driver.cuCtxDetach(context),
            driver.cuCtxGetCurrent(&raw mut current),
        ]
    };
    assert_eq!(
        (made, again, current),
        ([CUDA_SUCCESS; 4], context, context)
    );
    // SAFETY: as above.
    let ended = unsafe {
        [
            driver.cuCtxDetach(machine.contexts[0]),
            driver.cuCtxDetach(context),
            driver.cuCtxSetCurrent(context),
        ]
    };
    let expected = [
        CUDA_ERROR_INVALID_CONTEXT,
        CUDA_SUCCESS,
        CUDA_ERROR_INVALID_CONTEXT,
    ];
    assert_eq!(ended, expected);
    machine.leave();
}

#[test]
fn contexts_have_flags_and_are_bound_to_whole_devices() {
    let machine = Machine::new();
    let driver = &machine.driver;
    let mut flags = 0;
    // SAFETY: the flags are a local.
    let set = unsafe {
        let set = driver.cuCtxSetFlags(CU_CTX_SCHED_YIELD);
        [set, driver.cuCtxGetFlags(&raw mut flags)]
    };
    assert_eq!((set, flags), ([CUDA_SUCCESS; 2], 10));
    let mut affinity = CUexecAffinityParam {
        r#type: 0,
        param: CUexecAffinityParam_param {
            smCount: CUexecAffinitySmCount { val: 4 },
        },
    };
    let mut context = null_mut();
    // SAFETY: all are locals.
    let refused = unsafe {
        let affinity = &raw mut affinity;
        [
            driver.cuCtxCreate_v3(&raw mut context, affinity, 1, 0, 0),
            driver.cuCtxGetExecAffinity(affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT),
            driver.cuCtxSetFlags(CU_CTX_SCHED_YIELD | CU_CTX_SCHED_SPIN),
            driver.cuCtxGetExecAffinity(affinity, CU_EXEC_AFFINITY_TYPE_MAX),
        ]
    };
    let expected = [
        CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
        CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
        CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_INVALID_VALUE,
    ];
    assert_eq!(refused, expected);
    let mut params = CUctxCreateParams {
        execAffinityParams: null_mut(),
        numExecAffinityParams: 0,
        cigParams: null_mut(),
    };
    // SAFETY: all are locals.
    let made = unsafe { driver.cuCtxCreate_v4(&raw mut context, &raw mut params, 0, 0) };
    assert_eq!(made, CUDA_SUCCESS);
    // SAFETY: the context was made just now.
    assert_eq!(unsafe { driver.cuCtxDestroy_v2(context) }, CUDA_SUCCESS);
    machine.leave();
}

#[test]
fn programs_with_32_bits_for_sizes_and_addresses_get_what_fits() {
    let machine = Machine::new();
    let driver = &machine.driver;
    let (mut total, mut free, mut of_device) = (0, 0, 0);
    let (mut address, mut host) = (0, null_mut());
    // SAFETY: all are locals.
    let told = unsafe {
        [
            driver.cuMemGetInfo(&raw mut free, &raw mut total),
            driver.cuDeviceTotalMem(&raw mut of_device, 0),
            driver.cuMemAllocHost(&raw mut host, 100),
            driver.cuMemFreeHost(host),
        ]
    };
    assert_eq!(
        (told, total, of_device),
        ([CUDA_SUCCESS; 4], u32::MAX, u32::MAX)
    );
    // SAFETY: as above.
    let refused = unsafe {
        [
            driver.cuMemAlloc(&raw mut address, 100),
            driver.cuMemFree(0x1000),
            driver.cuMemGetAddressRange(null_mut(), null_mut(), 0x1000),
        ]
    };
    let expected = [
        CUDA_ERROR_OUT_OF_MEMORY,
        CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_NOT_FOUND,
    ];
    assert_eq!((refused, address), (expected, 0));
    machine.leave();
}

#[test]
fn devices_have_no_atomics_beyond_themselves_and_tell_what_graphs_hold() {
    let machine = Machine::with(&[2]);
    let driver = &machine.driver;
    let operations = [CU_ATOMIC_OPERATION_INTEGER_ADD, CU_ATOMIC_OPERATION_CAS];
    let mut capabilities = [77; 2];
    // SAFETY: both lists are as long as said.
    let told = unsafe {
        let (capabilities, operations) = (capabilities.as_mut_ptr(), operations.as_ptr());
        [
            driver.cuDeviceGetHostAtomicCapabilities(capabilities, operations, 2, 0),
            driver.cuDeviceGetP2PAtomicCapabilities(capabilities, operations, 2, 0, 1),
            driver.cuDeviceGetP2PAtomicCapabilities(capabilities, operations, 2, 1, 1),
            driver.cuDeviceGetHostAtomicCapabilities(capabilities, null(), 2, 0),
            driver.cuDeviceGetHostAtomicCapabilities(capabilities, operations, 2, 9),
        ]
    };
    let expected = [
        CUDA_SUCCESS,
        CUDA_SUCCESS,
        CUDA_ERROR_INVALID_DEVICE,
        CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_INVALID_DEVICE,
    ];
    assert_eq!((told, capabilities), (expected, [0; 2]));
    let mut value = 77_u64;
    let place = (&raw mut value).cast();
    let used = CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT;
    // SAFETY: the value has 64 bits.
    let ((), waits) = machine.costs(|driver| unsafe {
        let told = driver.cuDeviceGetGraphMemAttribute(1, used, place);
        assert_eq!(told, CUDA_SUCCESS);
    });
    assert_eq!((value, waits), (0, 1));
    // SAFETY: as above.
    let status = unsafe {
        [
            driver.cuDeviceSetGraphMemAttribute(1, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, place),
            driver.cuDeviceSetGraphMemAttribute(1, used, place),
            driver.cuDeviceGetGraphMemAttribute(5, used, place),
            driver.cuDeviceGraphMemTrim(1),
        ]
    };
    let expected = [
        CUDA_SUCCESS,
        CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_INVALID_DEVICE,
        CUDA_SUCCESS,
    ];
    assert_eq!(status, expected);
    machine.leave();
}

#[test]
fn a_function_of_the_application_is_called_however_its_stream_waits() {
    unsafe extern "C" fn raise(data: *mut std::ffi::c_void) {
        // SAFETY: the caller passes the number below.
        unsafe { data.cast::<u32>().write(5) };
    }
    let machine = Machine::new();
    let (stream, mut called) = (machine.stream(), 0_u32);
    let data = (&raw mut called).cast();
    let driver = &machine.driver;
    // SAFETY: the number lives until the stream is done.
    let status = unsafe {
        [
            driver.cuLaunchHostFunc_v2(stream, Some(raise), data, CU_HOST_TASK_SPINWAIT),
            driver.cuStreamSynchronize(stream),
            driver.cuLaunchHostFunc_v2(stream, Some(raise), data, 7),
        ]
    };
    assert_eq!(
        status,
        [CUDA_SUCCESS, CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE]
    );
    assert_eq!(called, 5);
    machine.leave();
}
