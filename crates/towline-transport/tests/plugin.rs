//! The plugin ABI from the other side: objects compiled by the system's C compiler.

#![cfg(unix)]

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use towline_transport::conformance::{self, Fixture};
use towline_transport::plugin::{
    self, PluginTransport, TowlineConnectOptionsV1, TowlineErrorV1, TowlineTransportV1, status,
};
use towline_transport::{Capabilities, Registry, TransportError};

fn crate_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn compile(source: &Path, output: &Path, arguments: &[&str]) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(crate_file("include"))
        .args(arguments)
        .arg("-o")
        .args([output, source])
        .status()
        .unwrap_or_else(|error| {
            panic!("cannot run the C compiler `{compiler}` (set CC to another): {error}")
        });
    assert!(status.success(), "{} does not compile", source.display());
}

/// A shared object of a table that is like the example's, but for the fields in `changes`.
fn load_changed(changes: &str) -> Result<PluginTransport, TransportError> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("changed.c");
    let example = crate_file("examples/unix_socket.c");
    let text = format!(
        "#define towline_transport_v1 unchanged\n#include \"{}\"\n#undef towline_transport_v1\n\
         const TowlineTransportV1 *towline_transport_v1(void) {{\n\
         static TowlineTransportV1 changed; changed = *unchanged(); {changes}; return &changed; }}\n",
        example.display()
    );
    std::fs::write(&source, text).unwrap();
    let object = folder.path().join("changed.so");
    // The header declares the function under the name that the macro gave it; the second one has no prototype.
    compile(&source, &object, &["-shared", "-fPIC"]);
    PluginTransport::load(&object)
}

fn refusal(changes: &str) -> String {
    load_changed(changes)
        .err()
        .expect("it must be refused")
        .to_string()
}

#[test]
fn example_in_c_upholds_every_rule() {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("libtowline_unix.so");
    compile(
        &crate_file("examples/unix_socket.c"),
        &object,
        &["-shared", "-fPIC", "-O1", "-fvisibility=hidden"],
    );
    let registry = Registry::new();
    let transport = registry.load(&object).unwrap();
    assert_eq!(registry.schemes().last(), Some(&"unix"));
    assert_eq!(
        transport.capabilities(),
        Capabilities {
            passes_descriptors: true,
            crosses_hosts: false,
            over_network: false,
        }
    );
    let sockets = folder.path().to_owned();
    conformance::check(&Fixture::new(transport, move |number| {
        format!("unix://{}/socket-{number}", sockets.display())
    }));
    let again = registry.load(&object).err().expect("the scheme is taken");
    assert!(
        matches!(again, TransportError::SchemeTaken { .. }),
        "{again}"
    );
}

#[test]
fn plugin_says_what_address_to_write() {
    let transport = load_changed("(void)0").unwrap();
    let error =
        towline_transport::Transport::listen(&transport, &"unix://relative".parse().unwrap()).err();
    let text = error.expect("it is no absolute path").to_string();
    assert!(
        text.contains("`unix://relative` is not an address: write an absolute path"),
        "{text}"
    );
}

#[test]
fn other_abi_version_is_refused_with_both_versions() {
    let text = refusal("changed.abi_version = 7; changed.connect = 0");
    assert!(
        text.contains("version 7") && text.contains("speaks version 1"),
        "{text}"
    );
}

#[test]
fn table_that_is_too_small_is_refused() {
    assert!(refusal("changed.struct_size -= 1").contains("set struct_size to sizeof"));
}

#[test]
fn larger_table_of_a_later_release_is_taken() {
    assert!(load_changed("changed.struct_size += 64").is_ok());
}

#[test]
fn missing_function_is_named() {
    assert!(refusal("changed.try_recv = 0").contains("no function `try_recv`"));
    assert!(refusal("changed.adopt = 0").contains("no function `adopt`"));
}

#[test]
fn functions_for_descriptors_may_be_absent_where_none_are_passed() {
    let transport =
        load_changed("changed.capabilities = 0; changed.adopt = 0; changed.descriptor = 0")
            .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sockets = folder.path().to_owned();
    conformance::check(&Fixture::new(
        std::sync::Arc::new(transport),
        move |number| format!("unix://{}/socket-{number}", sockets.display()),
    ));
}

#[test]
fn bad_scheme_is_refused() {
    assert!(refusal("changed.scheme = \"Unix\"").contains("a scheme has lower-case letters"));
    assert!(refusal("changed.scheme = 0").contains("names no scheme"));
}

#[test]
fn what_is_no_plugin_is_refused() {
    let text = PluginTransport::load(Path::new("/no/such/object.so"))
        .err()
        .unwrap()
        .to_string();
    assert!(
        text.starts_with("transport plugin /no/such/object.so: cannot be opened"),
        "{text}"
    );

    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.so");
    std::fs::write(&garbage, "not an object").unwrap();
    let text = PluginTransport::load(&garbage).err().unwrap().to_string();
    assert!(text.contains("cannot be loaded"), "{text}");

    let source = folder.path().join("other.c");
    std::fs::write(&source, "int something_else = 1;\n").unwrap();
    let object = folder.path().join("other.so");
    compile(&source, &object, &["-shared", "-fPIC"]);
    let text = PluginTransport::load(&object).err().unwrap().to_string();
    assert!(text.contains("exports no `towline_transport_v1`"), "{text}");
}

#[test]
fn header_and_rust_agree_on_every_field() {
    let folder = tempfile::tempdir().unwrap();
    let mut c =
        String::from("#include <stdio.h>\n#include \"towline_transport.h\"\nint main(void) {\n");
    let mut rust = String::new();
    macro_rules! fields {
        ($structure:ident: $($field:ident)*) => {
            writeln!(c, r#"printf("{0} %zu\n", sizeof({0}));"#, stringify!($structure)).unwrap();
            writeln!(rust, "{} {}", stringify!($structure), size_of::<$structure>()).unwrap();
            $(
                writeln!(c, r#"printf("{1} %zu\n", offsetof({0}, {1}));"#, stringify!($structure), stringify!($field))
                    .unwrap();
                writeln!(rust, "{} {}", stringify!($field), offset_of!($structure, $field)).unwrap();
            )*
        };
    }
    macro_rules! constants {
        ($($name:literal $value:expr),* $(,)?) => {$(
            writeln!(c, r#"printf("{0} %llu\n", (unsigned long long)TOWLINE_{0});"#, $name).unwrap();
            writeln!(rust, "{} {}", $name, $value).unwrap();
        )*};
    }
    fields!(TowlineErrorV1: text);
    fields!(TowlineConnectOptionsV1: struct_size timeout_ns buffer_bytes unacknowledged_timeout_ns keepalive);
    fields!(TowlineTransportV1: abi_version struct_size scheme capabilities connect listen adopt listener_accept
        listener_address listener_close listener_free send try_send recv try_recv wait_readable shutdown peer
        descriptor connection_free);
    constants!(
        "TRANSPORT_ABI_VERSION" plugin::ABI_VERSION,
        "PASSES_DESCRIPTORS" plugin::PASSES_DESCRIPTORS,
        "CROSSES_HOSTS" plugin::CROSSES_HOSTS,
        "OK" status::OK,
        "WOULD_BLOCK" status::WOULD_BLOCK,
        "CLOSED" status::CLOSED,
        "LOST" status::LOST,
        "REFUSED" status::REFUSED,
        "TIMED_OUT" status::TIMED_OUT,
        "UNREACHABLE" status::UNREACHABLE,
        "ADDRESS_IN_USE" status::ADDRESS_IN_USE,
        "INVALID_ADDRESS" status::INVALID_ADDRESS,
        "UNSUPPORTED" status::UNSUPPORTED,
        "FAILED" status::FAILED,
    );
    c.push_str("return 0; }\n");
    let source = folder.path().join("layout.c");
    std::fs::write(&source, c).unwrap();
    let program = folder.path().join("layout");
    compile(&source, &program, &[]);
    let output = Command::new(&program).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), rust);
}
