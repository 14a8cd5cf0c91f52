//! Generates the jumps from `api/nvml/`, and tells the linker what the library is and which one it needs.

use towline_api::{emit::export, jumps};

/// Functions that the library exports beside the declared calls.
const FURTHER: [&str; 2] = ["nvmlErrorString", "nvmlInternalGetExportTable"];

fn main() {
    let nvml = towline_api::load_for_build("nvml");
    jumps::build("libnvidia-ml.so.1", &export::jumps(&nvml, &FURTHER));
}
