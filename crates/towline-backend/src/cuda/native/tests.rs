use super::*;

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
