//! Links of device code: what is linked runs, what the compiler says is where the application wants it, and what waits is counted.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

mod support;

use std::ffi::{CStr, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use support::Machine;
use towline_backend::cuda::*;
use towline_cuda::Driver;

const ADDS: &CStr = c"towline null image\nkernel add_one";
const SCALES: &CStr = c"towline null image\nkernel scale";

fn begin(driver: &Driver) -> CUlinkState {
    let mut link = null_mut();
    // SAFETY: the link is a local.
    let begun = unsafe { driver.cuLinkCreate_v2(0, null_mut(), null_mut(), &raw mut link) };
    assert_eq!(begun, CUDA_SUCCESS);
    link
}

fn add(driver: &Driver, link: CUlinkState, code: &[u8]) -> CUresult {
    let (data, name) = (code.as_ptr().cast_mut().cast(), c"part".as_ptr());
    let kind = CU_JIT_INPUT_PTX;
    // SAFETY: the code is readable for its length.
    unsafe {
        driver.cuLinkAddData_v2(
            link,
            kind,
            data,
            code.len(),
            name,
            0,
            null_mut(),
            null_mut(),
        )
    }
}

fn complete(driver: &Driver, link: CUlinkState) -> (CUresult, *mut c_void, usize) {
    let (mut image, mut size) = (null_mut(), 0);
    // SAFETY: both are locals.
    let status = unsafe { driver.cuLinkComplete(link, &raw mut image, &raw mut size) };
    (status, image, size)
}

fn end(driver: &Driver, link: CUlinkState) -> CUresult {
    // SAFETY: no pointers.
    unsafe { driver.cuLinkDestroy(link) }
}

fn function(driver: &Driver, module: CUmodule, name: &CStr) -> CUresult {
    let mut found = null_mut();
    // SAFETY: the function is a local.
    unsafe { driver.cuModuleGetFunction(&raw mut found, module, name.as_ptr()) }
}

#[test]
fn what_was_linked_loads_and_each_step_waits_once() {
    let machine = Machine::new();
    let (link, waits) = machine.costs(begin);
    assert_eq!(waits, 1);
    let (added, waits) = machine.costs(|driver| {
        let first = add(driver, link, ADDS.to_bytes_with_nul());
        (first, add(driver, link, SCALES.to_bytes_with_nul()))
    });
    assert_eq!((added, waits), ((CUDA_SUCCESS, CUDA_SUCCESS), 2));
    let ((status, image, size), waits) = machine.costs(|driver| complete(driver, link));
    assert_eq!((status, waits), (CUDA_SUCCESS, 1));
    // SAFETY: the image is there while the link is.
    let linked = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) };
    assert_eq!(
        linked,
        b"towline null image\nkernel add_one\nkernel scale\0"
    );
    let mut module = null_mut();
    // SAFETY: the image ends with a NUL.
    let loaded = unsafe { machine.driver.cuModuleLoadData(&raw mut module, image) };
    assert_eq!(loaded, CUDA_SUCCESS);
    let (ended, waits) = machine.costs(|driver| end(driver, link));
    assert_eq!((ended, waits), (CUDA_SUCCESS, 0));
    assert_eq!(function(&machine.driver, module, c"add_one"), CUDA_SUCCESS);
    assert_eq!(function(&machine.driver, module, c"scale"), CUDA_SUCCESS);
    machine.leave();
}

#[test]
fn a_link_is_completed_on_the_thread_that_added_to_it() {
    let machine = Machine::new();
    let (driver, context) = (&machine.driver, machine.contexts[0].expose_provenance());
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Their waits have the session's threads change places.
        for _ in 0..3 {
            scope.spawn(move || {
                // SAFETY: the context was made.
                unsafe { driver.cuCtxSetCurrent(with_exposed_provenance_mut(context)) };
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: no pointers.
                    unsafe { driver.cuCtxSynchronize() };
                }
            });
        }
        let linked = (0..200).map(|_| {
            let link = begin(&machine.driver);
            let added = add(&machine.driver, link, ADDS.to_bytes_with_nul());
            let (completed, ..) = complete(&machine.driver, link);
            (added, completed, end(&machine.driver, link))
        });
        let linked: Vec<_> = linked.collect();
        over.store(true, Ordering::Relaxed);
        let wanted = (CUDA_SUCCESS, CUDA_SUCCESS, CUDA_SUCCESS);
        assert_eq!(linked, vec![wanted; 200]);
    });
    machine.leave();
}

#[test]
fn code_that_needs_payload_lanes_and_files_is_linked_too() {
    let machine = Machine::new();
    let link = begin(&machine.driver);
    let mut large = ADDS.to_bytes().to_vec();
    large.resize(3 << 20, b'\n');
    assert_eq!(add(&machine.driver, link, &large), CUDA_SUCCESS);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), SCALES.to_bytes()).unwrap();
    let path = std::ffi::CString::new(file.path().to_str().unwrap()).unwrap();
    let kind = CU_JIT_INPUT_PTX;
    // SAFETY: the path is a string.
    let added = unsafe {
        let (driver, path) = (&machine.driver, path.as_ptr());
        driver.cuLinkAddFile_v2(link, kind, path, 0, null_mut(), null_mut())
    };
    assert_eq!(added, CUDA_SUCCESS);
    let (status, _, size) = complete(&machine.driver, link);
    assert_eq!(status, CUDA_SUCCESS);
    assert_eq!(size, (3 << 20) + b"\nkernel scale\0".len());
    let nothing = c"/nowhere/at/all";
    // SAFETY: the path is a string.
    let missing = unsafe {
        let (driver, path) = (&machine.driver, nothing.as_ptr());
        driver.cuLinkAddFile_v2(link, kind, path, 0, null_mut(), null_mut())
    };
    assert_eq!(missing, CUDA_ERROR_FILE_NOT_FOUND);
    assert_eq!(end(&machine.driver, link), CUDA_SUCCESS);
    machine.leave();
}

#[test]
fn what_the_compiler_says_is_where_the_application_wants_it() {
    let machine = Machine::new();
    let (mut error, mut info) = ([0xff_u8; 64], [0xff_u8; 9]);
    let mut options = [
        CU_JIT_ERROR_LOG_BUFFER,
        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        CU_JIT_INFO_LOG_BUFFER,
        CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        CU_JIT_WALL_TIME,
        CU_JIT_MAX_REGISTERS,
    ];
    let mut values: [*mut c_void; 6] = [
        error.as_mut_ptr().cast(),
        without_provenance_mut(error.len()),
        info.as_mut_ptr().cast(),
        without_provenance_mut(info.len()),
        null_mut(),
        without_provenance_mut(32),
    ];
    let mut link = null_mut();
    // SAFETY: options and values are as many as said.
    let begun = unsafe {
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        machine
            .driver
            .cuLinkCreate_v2(6, options, values, &raw mut link)
    };
    assert_eq!(begun, CUDA_SUCCESS);
    let refused = add(&machine.driver, link, b"mov r1, r2;\0");
    assert_eq!(refused, CUDA_ERROR_INVALID_PTX);
    assert_eq!(&error[..21], b"part is no null image");
    assert_eq!((error[21], values[1].addr()), (0, 21));
    assert_eq!(
        add(&machine.driver, link, ADDS.to_bytes_with_nul()),
        CUDA_SUCCESS
    );
    assert_eq!(complete(&machine.driver, link).0, CUDA_SUCCESS);
    // Cut to its room, NUL included.
    assert_eq!((&info, values[3].addr()), (b"linked 1\0", 8));
    assert_eq!(values[4].addr() as u32, 0.5_f32.to_bits());
    assert_eq!(end(&machine.driver, link), CUDA_SUCCESS);
    machine.leave();
}

#[test]
fn a_load_tells_remarks_errors_and_time() {
    let machine = Machine::new();
    let (mut error, mut info) = ([0xff_u8; 64], [0xff_u8; 64]);
    let mut load = |image: &CStr| {
        let mut options = [
            CU_JIT_ERROR_LOG_BUFFER,
            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            CU_JIT_INFO_LOG_BUFFER,
            CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values: [*mut c_void; 4] = [
            error.as_mut_ptr().cast(),
            without_provenance_mut(error.len()),
            info.as_mut_ptr().cast(),
            without_provenance_mut(info.len()),
        ];
        let mut module = null_mut();
        let (options, values_at) = (options.as_mut_ptr(), values.as_mut_ptr());
        let image = image.as_ptr().cast();
        let driver = &machine.driver;
        // SAFETY: the image ends with a NUL; options and values are as many as said.
        let status =
            unsafe { driver.cuModuleLoadDataEx(&raw mut module, image, 4, options, values_at) };
        (status, values[1].addr(), values[3].addr())
    };
    // How much of each log is filled is told in place of its size.
    assert_eq!(load(ADDS), (CUDA_SUCCESS, 0, 9));
    assert_eq!(load(c"no image"), (CUDA_ERROR_INVALID_IMAGE, 21, 0));
    assert_eq!(&error[..22], b"this is no null image\0");
    // Nothing is remarked of what does not load.
    assert_eq!(&info[..9], b"\0 kernels");
    machine.leave();
}

#[test]
fn what_is_no_link_and_what_is_nothing_is_refused() {
    let machine = Machine::new();
    let link = begin(&machine.driver);
    assert_eq!(add(&machine.driver, link, b""), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(complete(&machine.driver, link).0, CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(end(&machine.driver, link), CUDA_SUCCESS);
    assert_eq!(end(&machine.driver, link), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(add(&machine.driver, link, b"x"), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(
        complete(&machine.driver, null_mut()).0,
        CUDA_ERROR_INVALID_HANDLE
    );
    machine.leave();
}

#[test]
fn a_link_that_is_left_open_ends_with_its_context_or_session() {
    let machine = Machine::new();
    let mut context = null_mut();
    // SAFETY: the context is a local.
    let made = unsafe { machine.driver.cuCtxCreate_v2(&raw mut context, 0, 0) };
    assert_eq!(made, CUDA_SUCCESS);
    let link = begin(&machine.driver);
    // SAFETY: the context was made just now.
    let ended = unsafe { machine.driver.cuCtxDestroy_v2(context) };
    assert_eq!(ended, CUDA_SUCCESS);
    machine.enter(0);
    assert_eq!(end(&machine.driver, link), CUDA_SUCCESS);
    begin(&machine.driver);
    machine.leave();
}
