//! Generates the dispatchers from `api/`.

fn main() {
    for name in ["opencl", "cuda", "nvml"] {
        let api = towline_api::load_for_build(name);
        let code = towline_api::emit::dispatch::emit(&api);
        towline_api::write_for_build(&format!("{name}_dispatch.rs"), &code);
    }
}
