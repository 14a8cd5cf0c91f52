//! Generates the messages of each API from `api/`.

fn main() {
    for name in ["opencl", "cuda", "nvml"] {
        let api = towline_api::load_for_build(name);
        let types = towline_api::emit::types::emit(&api);
        towline_api::write_for_build(&format!("{name}_types.rs"), &types);
        let messages = towline_api::emit::codec::emit(&api);
        towline_api::write_for_build(&format!("{name}_messages.rs"), &messages);
        if name == "cuda" {
            let symbols = towline_api::emit::symbols::emit(&api);
            towline_api::write_for_build("cuda_symbols.rs", &symbols);
        }
    }
}
