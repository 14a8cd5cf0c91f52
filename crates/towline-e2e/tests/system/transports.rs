//! Transports that are no part of Towline carry whole sessions.

use std::path::Path;
use std::process::Command;

use crate::support::{Client, Server, workload};

/// The example of `towline-transport`: sockets of this host, in one file of C.
fn compile_example(object: &Path) {
    let transport = Path::new(env!("CARGO_MANIFEST_DIR")).join("../towline-transport");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-I"])
        .arg(transport.join("include"))
        .arg("-o")
        .arg(object)
        .arg(transport.join("examples/unix_socket.c"))
        .status()
        .expect("a C compiler is installed");
    assert!(status.success(), "the example does not compile");
}

#[test]
fn program_runs_over_a_transport_from_a_shared_object() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let object = folder.path().join("libtowline_unix.so");
    compile_example(&object);
    let object = object.to_str().expect("plain letters");
    let address = format!("unix://{}/socket", folder.path().display());
    let plugins = ("TOWLINE_TRANSPORTS", object);
    let _server = Server::start_with(&["--listen", &address], &[plugins]);
    let finished = Client::with_options(&["--server", &address], workload("vector_add"))
        .args(&["--platform", "Towline"])
        .env(plugins.0, plugins.1)
        .run();
    assert!(
        finished.status.success(),
        "{:?} {}",
        finished.lines,
        finished.errors
    );
}
