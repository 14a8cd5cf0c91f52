//! Libraries that are nothing but jumps into our driver library: what their build scripts write, and tell the linker.

use std::env;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that the jumps go to, as our driver library is called.
const DRIVER: &str = "libcuda.so.1";

/// Writes `jumps.rs`, with a jump for each symbol to the one of the driver library beside it, and tells the linker how the library is
/// called and which one it needs.
pub fn build(name: &str, symbols: &[(String, String)]) {
    crate::write_for_build("jumps.rs", &emit(symbols));
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let driver = import_library(symbols);
    for argument in [
        // Nothing uses the standard library, and of the linkers only GNU's leaves it out: 30 kB instead of 330.
        "-fuse-ld=bfd",
        &format!("-Wl,-soname,{name}"),
        "-Wl,--no-as-needed",
        &driver.to_string_lossy(),
        // The link to this library that `towline run` makes lies beside a link to the driver library: they come together wherever a
        // program's LD_LIBRARY_PATH points. Only the older form of the path is looked at before that variable.
        "-Wl,-rpath,$ORIGIN",
        "-Wl,--disable-new-dtags",
        // The driver library has threads that outlive a program's dlclose.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}

/// The functions of such a library: each jumps to the driver library's, with arguments, stack and return address as they are.
pub fn emit(symbols: &[(String, String)]) -> String {
    let mut out = String::new();
    for (symbol, target) in symbols {
        let _ = writeln!(out, "jump!({symbol}, \"{target}\");");
    }
    out
}

/// Makes a library with the driver's name and the functions that the jumps go to, for the linker alone.
#[allow(
    clippy::panic,
    reason = "a build script reports its failure by panicking"
)]
fn import_library(symbols: &[(String, String)]) -> PathBuf {
    let folder = env::var_os("OUT_DIR").unwrap_or_default();
    let source = Path::new(&folder).join("driver.c");
    let library = Path::new(&folder).join(DRIVER);
    let mut targets: Vec<_> = symbols.iter().map(|(_, target)| target).collect();
    targets.sort();
    targets.dedup();
    let functions = targets.iter();
    let functions: String = functions
        .map(|target| format!("void {target}(void) {{}}\n"))
        .collect();
    if let Err(error) = std::fs::write(&source, functions) {
        panic!("cannot write {}: {error}", source.display());
    }
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
