//! Generates the exported functions and the sending half of the calls from `api/nvml/`, and tells the linker what the library is.

fn main() {
    let api = towline_api::load_for_build("nvml");
    towline_api::write_for_build("nvml_export.rs", &towline_api::emit::export::emit(&api));
    towline_api::write_for_build(
        "nvml_library.rs",
        &towline_api::emit::remote::emit(&api, "NvmlApi", "Library"),
    );
    // What programs hold of this library outlives their dlclose: it stays mapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
}
