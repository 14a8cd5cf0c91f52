//! Generates the exported functions and the sending half of the calls from `api/nvml/`, and tells the linker what the library is.

fn main() {
    let api = towline_api::load_for_build("nvml");
    towline_api::write_for_build("nvml_export.rs", &towline_api::emit::export::emit(&api));
    towline_api::write_for_build(
        "nvml_library.rs",
        &towline_api::emit::remote::emit(&api, "NvmlApi", "Library"),
    );
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os != "linux") {
        return;
    }
    // What programs hold of this library outlives their dlclose: it stays mapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // A constructor may call us while its thread holds the loader's lock, which glibc also takes for every thread that has locals to end.
    // Without this function the standard library keeps them itself, as it may where the library stays mapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym=__cxa_thread_atexit_impl=0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
}
