//! Generates the jumps from `api/nccl/`, and tells the linker what the library is and which one it needs.

use towline_api::{emit, jumps, runtime};

fn main() {
    let nccl = runtime::load_for_build("nccl");
    jumps::build("libnccl.so.2", &emit::nccl::symbols(&nccl));
}
