//! Generates the dispatchers from `api/`.

fn main() {
    let cuda = towline_api::load_for_build("cuda");
    towline_api::write_for_build(
        "cuda_dispatch.rs",
        &towline_api::emit::dispatch::emit(&cuda),
    );
    let api = towline_api::load_for_build("opencl");
    towline_api::write_for_build(
        "opencl_dispatch.rs",
        &towline_api::emit::dispatch::emit(&api),
    );
}
