//! Generates the types, and the methods of the calls that are only passed on, from `api/cudart/`.

use towline_api::emit::runtime as emit;

fn main() {
    let runtime = towline_api::runtime::load_for_build("cudart");
    towline_api::write_for_build("cudart_types.rs", &emit::types(&runtime));
    towline_api::write_for_build("cudart_methods.rs", &emit::methods(&runtime));
}
