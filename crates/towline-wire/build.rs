//! Generates the OpenCL messages from `api/opencl/`.

fn main() {
    let api = towline_api::load_for_build("opencl");
    towline_api::write_for_build("opencl_types.rs", &towline_api::emit::types::emit(&api));
    towline_api::write_for_build("opencl_messages.rs", &towline_api::emit::codec::emit(&api));
}
