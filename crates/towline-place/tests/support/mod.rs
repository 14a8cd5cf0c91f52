//! What tests with real launchers share: where ranks should be, and where they say they are.

// Each test program uses its part of this.
#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use towline_place::{Cluster, Placement};

/// By rank: `NODE`, or `NODE CORES`.
pub(crate) type Places = BTreeMap<usize, String>;

/// What ranks said in lines `at RANK PLACE`.
pub(crate) fn said(text: &str) -> Places {
    let lines = text.lines().filter_map(|line| line.strip_prefix("at "));
    lines
        .map(|line| {
            let (rank, place) = line.split_once(' ').unwrap();
            (rank.parse().unwrap(), place.trim_end().to_owned())
        })
        .collect()
}

/// The node of each rank.
pub(crate) fn nodes(cluster: &Cluster, placement: &Placement) -> Places {
    let node = |slot: &towline_place::Slot| cluster.nodes[slot.node as usize].name.clone();
    placement.slots.iter().map(node).enumerate().collect()
}

/// The node and the core of each rank.
pub(crate) fn nodes_and_cores(cluster: &Cluster, placement: &Placement) -> Places {
    let mut places = nodes(cluster, placement);
    for (rank, place) in &mut places {
        *place += &format!(" {}", placement.slots[*rank].core);
    }
    places
}

/// The program that says where its ranks are, built into a folder by an MPI's compiler.
pub(crate) fn mpi_program(compiler: &str, package: &str, folder: &Path) -> PathBuf {
    require(compiler, package);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/where.c");
    let program = folder.join(format!("where.{compiler}"));
    let status = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(&source)
        .status()
        .unwrap();
    assert!(status.success(), "{compiler} does not build where.c");
    program
}

/// A test that needs a program says where to get it.
pub(crate) fn require(program: &str, package: &str) {
    assert!(
        is_there(program),
        "{program} is missing: install {package}, or run `scripts/setup test`"
    );
}

/// Whether all these programs, separated by blanks, are there.
pub(crate) fn is_there(programs: &str) -> bool {
    let found = |program| {
        let command = format!("command -v {program}");
        let found = Command::new("sh").args(["-c", &command]).output().unwrap();
        found.status.success()
    };
    programs.split(' ').all(found)
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().unwrap().stdout == b"0\n"
}
