//! Device code that a server knows already: it does not travel again, and loading it costs no wait more.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

mod support;

use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::Arc;

use support::{ADD_ONE, Machine};
use towline_backend::cuda::*;
use towline_worker::Images;

/// Code of at least so many bytes, with a kernel, that no other has.
fn code(bytes: usize, name: &str) -> CString {
    let mut text = String::from("towline null image\nkernel add_one\n");
    while text.len() < bytes {
        text.push_str("nothing but words of ");
        text.push_str(name);
        text.push('\n');
    }
    CString::new(text).unwrap()
}

/// Loads it as a library, or as a module, and computes with it: waits, and bytes that left the client.
fn load(machine: &Machine, image: &CString, library: bool) -> (u64, u64) {
    machine.enter(0);
    let sent = || machine.sessions[0].meter().bytes().0;
    let before = sent();
    let mut object = null_mut::<std::ffi::c_void>();
    let place = &raw mut object;
    // SAFETY: the image is a string, and the place a local.
    let (loaded, waits) = machine.costs(|driver| unsafe {
        let (image, none) = (image.as_ptr().cast(), null_mut());
        match library {
            true => driver.cuLibraryLoadData(
                place.cast(),
                image,
                none,
                null_mut(),
                0,
                null_mut(),
                null_mut(),
                0,
            ),
            false => driver.cuModuleLoadData(place.cast(), image),
        }
    });
    assert_eq!(loaded, CUDA_SUCCESS);
    let bytes = sent() - before;
    let mut function = null_mut::<std::ffi::c_void>();
    let place = &raw mut function;
    // SAFETY: the object is live, and the place a local.
    let found = unsafe {
        let driver = &machine.driver;
        match library {
            true => driver.cuLibraryGetKernel(place.cast(), object.cast(), c"add_one".as_ptr()),
            false => driver.cuModuleGetFunction(place.cast(), object.cast(), c"add_one".as_ptr()),
        }
    };
    assert_eq!(found, CUDA_SUCCESS);
    let memory = machine.filled(&41_u32.to_ne_bytes());
    let (mut address, mut count) = (memory, 1_u32);
    let mut params = [(&raw mut address).cast(), (&raw mut count).cast()];
    // SAFETY: the parameters are those of the kernel.
    let launched = unsafe {
        let (list, none) = (params.as_mut_ptr(), null_mut());
        let driver = &machine.driver;
        driver.cuLaunchKernel(function.cast(), 1, 1, 1, 1, 1, 1, 0, null_mut(), list, none)
    };
    assert_eq!(launched, CUDA_SUCCESS);
    assert_eq!(machine.bytes(memory, 4), 42_u32.to_ne_bytes());
    // SAFETY: no pointers.
    assert_eq!(unsafe { machine.driver.cuMemFree_v2(memory) }, CUDA_SUCCESS);
    (waits, bytes)
}

/// Waits until the server has kept so many bytes: it does that when the client has its answer.
fn kept(images: &Images, bytes: usize) {
    for _ in 0..2000 {
        if images.held_bytes() >= bytes as u64 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the image is not kept");
}

const SIZE: usize = 200_000;

#[test]
fn what_one_program_brought_another_names_only_and_neither_waits_more_than_once() {
    let (null, images) = (
        Arc::new(NullCuda::new(1)),
        Arc::new(Images::in_memory(1 << 20)),
    );
    let image = code(SIZE, "one");
    let first = Machine::with_images(&null, &images);
    let (waits, bytes) = load(&first, &image, true);
    assert_eq!(waits, 1);
    assert!(bytes > SIZE as u64, "{bytes}");
    kept(&images, SIZE);
    let second = Machine::with_images(&null, &images);
    for library in [true, false] {
        let (waits, bytes) = load(&second, &image, library);
        assert_eq!(waits, 1);
        assert!(bytes < 1000, "{bytes}");
    }
    let (waits, bytes) = load(&second, &code(SIZE, "another"), false);
    assert_eq!(waits, 1);
    assert!(bytes > SIZE as u64, "it is not the same");
    Machine::leave_all(vec![first, second]);
}

#[test]
fn what_was_changed_since_is_sent() {
    let (null, images) = (
        Arc::new(NullCuda::new(1)),
        Arc::new(Images::in_memory(1 << 20)),
    );
    let machine = Machine::with_images(&null, &images);
    let image = code(SIZE, "one");
    load(&machine, &image, false);
    kept(&images, SIZE);
    let mut changed = image.into_bytes();
    changed[SIZE - 3] = b'!';
    let (_, bytes) = load(&machine, &CString::new(changed).unwrap(), false);
    assert!(bytes > SIZE as u64, "{bytes}");
    machine.leave();
}

#[test]
fn small_code_and_code_for_a_server_of_this_host_is_sent_and_not_kept() {
    let (null, images) = (
        Arc::new(NullCuda::new(1)),
        Arc::new(Images::in_memory(1 << 20)),
    );
    let machine = Machine::with_images(&null, &images);
    assert_eq!(load(&machine, &code(10_000, "small"), true).0, 1);
    let near = Machine::with_images_on_this_host(&null, &images);
    assert_eq!(load(&near, &code(SIZE, "near"), true).0, 1);
    Machine::leave_all(vec![machine, near]);
    assert_eq!(images.held_bytes(), 0);
}

#[test]
fn attribute_of_unloaded_function_is_asked_once() {
    let machine = Machine::new();
    let (mut module, mut function) = (null_mut(), null_mut());
    // SAFETY: the image ends with a NUL; the handles are locals.
    let found = unsafe {
        let driver = &machine.driver;
        [
            driver.cuModuleLoadData(&raw mut module, ADD_ONE.as_ptr().cast()),
            driver.cuModuleGetFunction(&raw mut function, module, c"add_one".as_ptr()),
        ]
    };
    assert_eq!(found, [CUDA_SUCCESS; 2]);
    let attribute = CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES;
    let asked = || {
        let mut bytes = -1;
        let (told, waits) = machine.costs(|driver| {
            // SAFETY: the place is a local.
            unsafe { driver.cuFuncGetAttribute(&raw mut bytes, attribute, function) }
        });
        (told, bytes, waits)
    };
    // The function is loaded, and then the driver asked.
    assert_eq!(asked(), (CUDA_SUCCESS, 0, 2));
    assert_eq!(asked(), (CUDA_SUCCESS, 0, 0));
    machine.leave();
}

#[test]
fn what_the_driver_refuses_is_refused_again_from_what_was_kept() {
    let (null, images) = (
        Arc::new(NullCuda::new(1)),
        Arc::new(Images::in_memory(1 << 20)),
    );
    let machine = Machine::with_images(&null, &images);
    let image = code(SIZE, "refused");
    let refused = || {
        let mut module = null_mut();
        let image = image.as_ptr().cast();
        // SAFETY: the image is a string, and the module a local.
        unsafe { machine.driver.cuModuleLoadData(&raw mut module, image) }
    };
    null.refuse_images(CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(refused(), CUDA_ERROR_INVALID_IMAGE);
    kept(&images, SIZE);
    assert_eq!(refused(), CUDA_ERROR_INVALID_IMAGE);
    machine.leave();
}
