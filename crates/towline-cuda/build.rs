//! Generates the exported functions and the sending half of the calls from `api/cuda/`, those of NCCL from
//! `api/nccl/`, and tells the linker what the library is.

fn main() {
    let api = towline_api::load_for_build("cuda");
    towline_api::write_for_build("cuda_export.rs", &towline_api::emit::export::emit(&api));
    towline_api::write_for_build(
        "cuda_driver.rs",
        &towline_api::emit::remote::emit(&api, "CudaApi", "Driver"),
    );
    let nccl = towline_api::runtime::load_for_build("nccl");
    towline_api::write_for_build("nccl_types.rs", &towline_api::emit::runtime::types(&nccl));
    towline_api::write_for_build("nccl_exports.rs", &towline_api::emit::nccl::exports(&nccl));
    // Threads of this library outlive a program's dlclose: it stays mapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // A constructor may call us while its thread holds the loader's lock, which glibc also takes for every thread that has locals to end.
    // Without this function the standard library keeps them itself, as it may where the library stays mapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym=__cxa_thread_atexit_impl=0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
