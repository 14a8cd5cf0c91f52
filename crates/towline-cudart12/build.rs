//! Generates the exported functions of this major version, and tells the linker what the library is.

use towline_api::emit::runtime as emit;

fn main() {
    let runtime = towline_api::runtime::load_for_build("cudart");
    towline_api::write_for_build("cudart_exports.rs", &emit::exports(&runtime, 12));
    for argument in [
        "-Wl,-soname,libcudart.so.12",
        // Programs ask for symbols of the version `libcudart.so.12`. The compiler's own list of exports cannot name one, and of the
        // linkers only GNU's gives every symbol the library's name as its version.
        "-fuse-ld=bfd",
        "-Wl,--default-symver",
        // The driver below keeps threads that outlive a program's dlclose.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
