//! What is generated for each shape of argument, held to a file per shape, so that a change of an emitter shows as what it changes.
//!
//! After such a change, `TOWLINE_BLESS=1 cargo test -p towline-api --test golden` writes the files again; read their difference.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use towline_api::Api;
use towline_api::emit::{
    backend, codec, dispatch, export, nccl, remote, runtime, show, stub, symbols, types,
};
use towline_api::model::Call;
use towline_api::runtime::{Function, Runtime};

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The shapes of each dialect, with the folder of their golden files.
fn shapes() -> [(Api, PathBuf); 3] {
    let load = |name| towline_api::load(&tests().join("declarations"), name).unwrap();
    let golden = tests().join("golden");
    [
        (load("shapes"), golden.clone()),
        (load("cuda"), golden.join("cuda")),
        (load("nvml"), golden.join("nvml")),
    ]
}

/// The functions of a library that is written over another, with the folder of their golden files.
fn functions(name: &str) -> (Runtime, PathBuf) {
    let declared = towline_api::runtime::load(&tests().join("declarations"), name).unwrap();
    (declared, tests().join("golden").join(name))
}

/// Every golden file and what it is to hold.
fn files() -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for (api, folder) in shapes() {
        let calls = api.calls.iter();
        all.extend(calls.map(|call| (folder.join(file(call)), show(&api, call))));
    }
    let mut add = |name, prefix: &str, show: fn(&Function) -> String| {
        let (declared, folder) = functions(name);
        let file = |function: &Function| snake(function.name.trim_start_matches(prefix));
        let functions = declared.functions.iter();
        all.extend(functions.map(|function| (folder.join(file(function)), show(function))));
    };
    add("cudart", "cuda", runtime::show);
    add("nccl", "nccl", nccl::show);
    all
}

/// `clInputBytes` has the file `input_bytes.rs`.
fn file(call: &Call) -> String {
    snake(call.message().trim_end_matches("V2"))
}

fn snake(words: &str) -> String {
    let mut name = String::new();
    for letter in words.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name + ".rs"
}

#[test]
fn generated_code_is_as_the_golden_files_have_it() {
    let bless = std::env::var_os("TOWLINE_BLESS").is_some();
    let mut changed = Vec::new();
    for (path, generated) in files() {
        if bless {
            std::fs::write(&path, &generated).unwrap();
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != generated {
            changed.push(path);
        }
    }
    assert!(
        changed.is_empty(),
        "not as generated: {changed:?}; run with TOWLINE_BLESS=1 and read the difference"
    );
}

#[test]
fn every_golden_file_belongs_to_a_shape() {
    let known: Vec<_> = files().into_iter().map(|(path, _)| path).collect();
    let folders: BTreeSet<_> = known.iter().filter_map(|path| path.parent()).collect();
    for folder in folders {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            assert!(
                path.is_dir() || known.contains(&path),
                "{} belongs to no declared call",
                path.display()
            );
        }
    }
}

fn assert_rust(parts: impl IntoIterator<Item = String>) {
    for code in parts {
        let parsed = syn::parse_file(&code);
        assert!(parsed.is_ok(), "{:?} in\n{code}", parsed.err());
    }
}

#[test]
fn generated_code_is_rust() {
    for (api, _) in shapes() {
        assert_rust([
            types::emit(&api),
            codec::emit(&api),
            backend::emit_trait(&api, "Contract"),
            backend::emit_native(&api, "Contract"),
            remote::emit(&api, "Contract", "Remote"),
            dispatch::emit(&api),
        ]);
    }
}

#[test]
fn what_only_one_dialect_has_is_rust() {
    let [(opencl, _), (cuda, _), (nvml, _)] = shapes();
    assert_rust([
        backend::emit_methods(&opencl, "Contract", "Backend", &["clForward"]),
        backend::emit_serial(&opencl, "Contract", &["clForward"], &["clEnqueueCommand"]),
        stub::emit(&opencl),
        stub::emit_platform(&opencl, "Contract", "Platform"),
        export::emit(&cuda),
        export::emit(&nvml),
        symbols::emit(&cuda),
    ]);
    let (declared, _) = functions("cudart");
    let (collectives, _) = functions("nccl");
    assert_rust([
        runtime::types(&collectives),
        nccl::exports(&collectives),
        towline_api::jumps::emit(&nccl::symbols(&collectives)),
        runtime::methods(&declared),
        runtime::exports(&declared, 12),
        runtime::exports(&declared, 13),
    ]);
}

#[test]
fn what_is_planned_has_its_message_and_no_half() {
    let [_, (cuda, _), _] = shapes();
    assert!(codec::emit(&cuda).contains("struct Planned"));
    assert!(backend::emit_trait(&cuda, "Contract").contains("fn cuPlanned"));
    assert!(!remote::emit(&cuda, "Contract", "Driver").contains("cuPlanned"));
    assert!(!dispatch::emit(&cuda).contains("cuPlanned"));
}

#[test]
fn what_no_client_may_is_refused_as_such_and_has_no_message() {
    let [.., (nvml, _)] = shapes();
    assert!(backend::emit_trait(&nvml, "Contract").contains("NO_PERMISSION as nvmlReturn_t"));
    assert!(!codec::emit(&nvml).contains("struct Denied"));
}

#[test]
fn answers_that_never_change_are_listed() {
    let [.., (nvml, _)] = shapes();
    assert!(codec::emit(&nvml).contains("FIXED_CALLS: &[u16] = &[0x0103]"));
}
