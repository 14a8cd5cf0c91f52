//! Generates the OpenCL contract and the native function table from `api/opencl/`.

fn main() {
    let api = towline_api::load_for_build("opencl");
    towline_api::write_for_build(
        "opencl_api.rs",
        &towline_api::emit::backend::emit_trait(&api, "OpenClApi"),
    );
    towline_api::write_for_build(
        "opencl_native.rs",
        &towline_api::emit::backend::emit_native(&api, "OpenClApi"),
    );
    let order = format!(
        "/// Order of the loader's dispatch table.\npub(super) const ICD_DISPATCH: &[&str] = &{:?};\n",
        api.dispatch_order
    );
    towline_api::write_for_build("opencl_order.rs", &order);
}
