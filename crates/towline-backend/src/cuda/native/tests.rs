use std::path::PathBuf;
use std::process::Command;

use super::*;

/// A driver of three functions: one is found by its version, one as a symbol, and one stands under a name that means another function in
/// an older version.
const DRIVER_IN_C: &str = r#"
    #include <stddef.h>
    #include <string.h>
    int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
    int cuDeviceGetCount(int *count) { *count = 3; return 0; }
    int cuMemAlloc(unsigned *at, unsigned size) { *at = size; return 1; }
    static int version(int *version) { *version = 12040; return 0; }
    static int allocate(unsigned long long *at, size_t size) { *at = 0x700000000000 + size; return 0; }
    int cuGetProcAddress_v2(const char *name, void **found, int since, unsigned long long flags, int *said) {
        *found = NULL;
        *said = 1;
        if (!strcmp(name, "cuDriverGetVersion") && since == 2020) *found = version;
        if (!strcmp(name, "cuMemAlloc") && since == 3020) *found = allocate;
        if (*found == NULL) return 500;
        *said = 0;
        return 0;
    }
"#;

/// The driver in C, compiled; the folder is removed by the caller.
fn compiled() -> (PathBuf, PathBuf) {
    let folder = std::env::temp_dir().join(format!("towline-driver-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let (source, library) = (folder.join("driver.c"), folder.join("libdriver.so"));
    std::fs::write(&source, DRIVER_IN_C).expect("the folder was just made");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", "-w", "-o"])
        .args([&library, &source])
        .status()
        .expect("the C compiler that Rust links with is there");
    assert!(status.success());
    (folder, library)
}

#[test]
fn functions_are_found_by_version_and_else_by_symbol() {
    let (folder, library) = compiled();
    let name = library
        .to_str()
        .expect("temporary folders have plain names");
    let driver = NativeCuda::from_library(name).expect("it has cuInit");
    std::fs::remove_dir_all(&folder).expect("it was just made");
    let (mut version, mut count, mut address) = (0, 0, 0);
    // SAFETY: no pointer, no handle.
    assert_eq!(unsafe { driver.cuInit(0) }, CUDA_SUCCESS);
    // SAFETY: a place to write to.
    let status = unsafe { driver.cuDriverGetVersion(&raw mut version) };
    assert_eq!((status, version), (CUDA_SUCCESS, 12040));
    // SAFETY: as above.
    let status = unsafe { driver.cuDeviceGetCount(&raw mut count) };
    assert_eq!((status, count), (CUDA_SUCCESS, 3));
    // SAFETY: as above. The symbol `cuMemAlloc_v2` is not there; the versioned name is.
    let status = unsafe { driver.cuMemAlloc_v2(&raw mut address, 16) };
    assert_eq!((status, address), (CUDA_SUCCESS, 0x7000_0000_0010));
    // SAFETY: as above.
    let status = unsafe { driver.cuMemAllocManaged(&raw mut address, 16, 1) };
    assert_eq!(status, CUDA_ERROR_NOT_SUPPORTED);
}

#[test]
fn a_library_that_is_no_driver_is_refused_by_name() {
    let error = NativeCuda::from_library("libc.so.6").err();
    assert!(matches!(
        error,
        Some(NativeError::NotADriver {
            symbol: "cuInit",
            ..
        })
    ));
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let error = NativeCuda::from_library("libtowline-nowhere.so")
        .err()
        .map(|error| error.to_string());
    assert!(error.is_some_and(|text| text.contains("libtowline-nowhere.so")));
}

#[test]
fn what_the_driver_lacks_is_not_supported() {
    let driver = NativeCuda {
        functions: Functions::default(),
    };
    let mut version = 7;
    // SAFETY: a place to write to.
    let status = unsafe { driver.cuDriverGetVersion(&raw mut version) };
    assert_eq!((status, version), (CUDA_ERROR_NOT_SUPPORTED, 7));
}

#[test]
fn every_function_is_asked_for_under_a_symbol_of_the_driver() {
    let mut strangers = Vec::new();
    let _ = Functions::load(&mut |name, _| {
        if !PROC_SYMBOLS.iter().any(|symbol| symbol.name == name) {
            strangers.push(name);
        }
        ptr::null()
    });
    assert!(strangers.is_empty(), "{strangers:?}");
}
