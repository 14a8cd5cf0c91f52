//! Pictures and plans of described machines, against committed files.
//!
//! After a change, `TOWLINE_BLESS=1 cargo test -p towline-node --test golden` writes the files again; read their difference.

mod shape;

use std::fs;
use std::path::Path;

use shape::Shape;
use towline_node::{Root, inspect, picture};

/// Compares with `tests/golden/NAME`, or writes it when told to.
fn compare(name: &str, text: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("TOWLINE_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    match fs::read_to_string(&path) {
        Ok(expected) if expected == text => Ok(()),
        Ok(_) => Err(format!("{name} is now\n{text}")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

#[test]
fn pictures_are_as_the_golden_files_have_them() {
    let differences: Vec<String> = shape::names()
        .iter()
        .filter_map(|name| {
            let shape = Shape::named(name);
            let host = inspect(&Root::new(shape.folder()));
            compare(&format!("{name}.picture"), &picture(&host, false)).err()
        })
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
