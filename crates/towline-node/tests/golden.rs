//! Pictures and plans of described machines, against committed files.
//!
//! After a change, `TOWLINE_BLESS=1 cargo test -p towline-node --test golden` writes the files again; read their difference.

mod shape;

use std::fs;
use std::path::Path;

use shape::Shape;
use towline_node::{Request, Root, inspect, picture, plan};

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

/// The requests, as `SHAPE--VARIANT`.
fn requests() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn plans_are_as_the_golden_files_have_them() {
    let differences: Vec<String> = requests()
        .iter()
        .filter_map(|name| {
            let (shape, _) = name.split_once("--").unwrap();
            let shape = Shape::named(shape);
            let host = inspect(&Root::new(shape.folder()));
            let file = format!("{}/tests/plans/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            let request = Request::parse(&fs::read_to_string(file).unwrap()).unwrap();
            let plan = plan(&host, &request);
            let text = format!("{}---\n{}", plan.text(), plan.difference());
            compare(&format!("{name}.plan"), &text).err()
        })
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_shape_has_a_plan() {
    let planned = requests();
    for shape in shape::names() {
        assert!(
            planned
                .iter()
                .any(|name| name.starts_with(&format!("{shape}--"))),
            "{shape}"
        );
    }
}
