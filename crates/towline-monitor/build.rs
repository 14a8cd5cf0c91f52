//! Generates the exported functions and the sending half of the calls from `api/nvml/`.

fn main() {
    let api = towline_api::load_for_build("nvml");
    towline_api::write_for_build("nvml_export.rs", &towline_api::emit::export::emit(&api));
    towline_api::write_for_build(
        "nvml_library.rs",
        &towline_api::emit::remote::emit(&api, "NvmlApi", "Library"),
    );
}
