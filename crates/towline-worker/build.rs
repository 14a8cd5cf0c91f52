//! Generates the dispatcher from `api/opencl/`.

fn main() {
    let api = towline_api::load_for_build("opencl");
    towline_api::write_for_build(
        "opencl_dispatch.rs",
        &towline_api::emit::dispatch::emit(&api),
    );
}
