//! Generates the client's half of the OpenCL calls from `api/opencl/`.

fn main() {
    let api = towline_api::load_for_build("opencl");
    towline_api::write_for_build(
        "opencl_remote.rs",
        &towline_api::emit::remote::emit(&api, "OpenClApi", "Remote"),
    );
}
