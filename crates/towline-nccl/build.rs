//! Generates the jumps from `api/nccl/`, and tells the linker what the library is and which one it needs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use towline_api::emit::nccl as emit;
use towline_api::runtime::Runtime;

/// The library that the jumps go to, as our driver library is called.
const DRIVER: &str = "libcuda.so.1";

fn main() {
    let nccl = towline_api::runtime::load_for_build("nccl");
    towline_api::write_for_build("nccl_jumps.rs", &emit::jumps(&nccl));
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let driver = import_library(&nccl, &folder);
    for argument in [
        // Nothing uses the standard library, and of the linkers only GNU's leaves it out: 30 kB instead of 330.
        "-fuse-ld=bfd",
        "-Wl,-soname,libnccl.so.2",
        "-Wl,--no-as-needed",
        &driver.to_string_lossy(),
        // `towline run` preloads the link to this library that lies beside a link to the driver library: they come together wherever a
        // program's LD_LIBRARY_PATH points. Only the older form of the path is looked at before that variable.
        "-Wl,-rpath,$ORIGIN",
        "-Wl,--disable-new-dtags",
        // The driver library has threads that outlive a program's dlclose.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}

/// Makes a library with the driver's name and the functions that the jumps go to, for the linker alone.
fn import_library(nccl: &Runtime, folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("driver.c"), folder.join(DRIVER));
    let functions: String = nccl
        .functions
        .iter()
        .map(|function| format!("void {}(void) {{}}\n", emit::exported(function)))
        .collect();
    std::fs::write(&source, functions).expect("cargo made the folder");
    // Cargo names the linker that it was told to use for the target, which is a C compiler. For others it leaves that to rustc: `cc`.
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let status = Command::new(&linker)
        .args(["-shared", "-fPIC", "-nostdlib"])
        .arg(format!("-Wl,-soname,{DRIVER}"))
        .arg("-o")
        .args([&library, &source])
        .status();
    match status {
        Ok(status) if status.success() => library,
        outcome => panic!("{} could not link: {outcome:?}", linker.display()),
    }
}
