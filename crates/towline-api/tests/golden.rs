//! What is generated for each shape of argument, held to a file per shape, so that a change of an emitter shows as what it changes.
//!
//! After such a change, `TOWLINE_BLESS=1 cargo test -p towline-api --test golden` writes the files again; read their difference.

use std::path::{Path, PathBuf};

use towline_api::Api;
use towline_api::emit::show;
use towline_api::model::Call;

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn shapes() -> Api {
    towline_api::load(&tests().join("declarations"), "shapes").unwrap()
}

/// `clInputBytes` has the file `input_bytes.rs`.
fn file(call: &Call) -> String {
    let mut name = String::new();
    for letter in call.name.trim_start_matches("cl").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name + ".rs"
}

#[test]
fn generated_code_is_as_the_golden_files_have_it() {
    let (api, folder) = (shapes(), tests().join("golden"));
    let bless = std::env::var_os("TOWLINE_BLESS").is_some();
    let mut changed = Vec::new();
    for call in &api.calls {
        let (path, generated) = (folder.join(file(call)), show(&api, call));
        if bless {
            std::fs::write(&path, &generated).unwrap();
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != generated {
            changed.push(file(call));
        }
    }
    assert!(
        changed.is_empty(),
        "not as in tests/golden/: {changed:?}; run with TOWLINE_BLESS=1 and read the difference"
    );
}

#[test]
fn every_golden_file_belongs_to_a_shape() {
    let api = shapes();
    let known: Vec<_> = api.calls.iter().map(file).collect();
    for entry in std::fs::read_dir(tests().join("golden")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "{name} belongs to no declared call");
    }
}

#[test]
fn generated_code_is_rust() {
    let api = shapes();
    let whole = [
        towline_api::emit::types::emit(&api),
        towline_api::emit::codec::emit(&api),
        towline_api::emit::backend::emit_trait(&api, "Contract"),
        towline_api::emit::backend::emit_native(&api, "Contract"),
        towline_api::emit::backend::emit_methods(&api, "Contract", "Backend", &["clForward"]),
        towline_api::emit::backend::emit_serial(&api, "Contract", &["clForward"]),
        towline_api::emit::remote::emit(&api, "Contract"),
        towline_api::emit::dispatch::emit(&api),
        towline_api::emit::stub::emit(&api),
        towline_api::emit::stub::emit_platform(&api, "Contract", "Platform"),
    ];
    for code in whole {
        let parsed = syn::parse_file(&code);
        assert!(parsed.is_ok(), "{:?} in\n{code}", parsed.err());
    }
}
