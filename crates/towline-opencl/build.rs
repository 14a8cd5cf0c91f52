//! Generates the exported functions and the glue to the platform from `api/opencl/`, and tells the linker what the library is.

fn main() {
    let api = towline_api::load_for_build("opencl");
    towline_api::write_for_build("opencl_stub.rs", &towline_api::emit::stub::emit(&api));
    towline_api::write_for_build(
        "opencl_platform.rs",
        &towline_api::emit::stub::emit_platform(&api, "OpenClApi", "Platform"),
    );
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os != "linux") {
        return;
    }
    // Threads of this library outlive a loader's dlclose: it stays mapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // A constructor may call us while its thread holds the loader's lock, which glibc also takes for every thread that has locals to end.
    // Without this function the standard library keeps them itself, as it may where the library stays mapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym=__cxa_thread_atexit_impl=0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtowline_opencl.so");
}
