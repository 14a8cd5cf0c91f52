//! Generates the jumps, and tells the linker what the library is and that it needs the driver library.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let nccl = towline_api::runtime::load_for_build("nccl");
    let code = towline_api::emit::nccl::jumps(&nccl);
    towline_api::write_for_build("nccl_jumps.rs", &code);
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        let driver = empty_driver();
        for argument in [
            "-Wl,-soname,libnccl.so.2",
            "-Wl,--no-as-needed",
            &driver.to_string_lossy(),
            "-Wl,-z,nodelete",
            // The only thing in it that would need the standard library.
            "-Wl,--defsym=rust_eh_personality=0",
        ] {
            println!("cargo::rustc-cdylib-link-arg={argument}");
        }
    }
}

/// A library with the driver's name and nothing in it: the linker notes the name.
#[allow(
    clippy::panic,
    reason = "a build script reports its failure by panicking"
)]
fn empty_driver() -> PathBuf {
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let (source, library) = (folder.join("empty.s"), folder.join("libcuda.so"));
    let linker = std::env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let written = std::fs::write(&source, ".section .note.GNU-stack,\"\",%progbits\n");
    let made = written.and_then(|()| {
        Command::new(linker)
            .args(["-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o"])
            .args([&library, &source])
            .status()
    });
    match made {
        Ok(status) if status.success() => library,
        outcome => panic!("cannot link an empty library: {outcome:?}"),
    }
}
