//! ptxas as judge of syntax: what it accepts of the instructions that we know, we accept; what it refuses, we refuse; and what we print, it
//! accepts. Where the two part on purpose stands in `differences.rs`, with the reason. Without ptxas these tests say so and pass.

mod differences;
mod matrices;
mod oracle;
mod statements;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use oracle::{Oracle, Verdict};
use towline_ptx::fatbin::{Container, EntryKind};
use towline_ptx::ir::{Body, Program};
use towline_ptx::ptx::{self, Module};

/// Why we refuse a statement, if we do.
fn refusal(head: &str, declared: &str, statement: &str) -> Option<String> {
    let text = format!(
        "{head}.visible .entry k(.param .u64 given) {{\n{declared}\n{statement}\nret;\n}}\n"
    );
    let module = match Module::parse(&text) {
        Ok(module) => module,
        Err(error) => return Some(error.to_string()),
    };
    match Program::link(&[module]) {
        Ok(program) => program
            .functions
            .into_iter()
            .find_map(|function| match function.body {
                Body::Refused(error) => Some(error.to_string()),
                _ => None,
            }),
        Err(error) => Some(error.to_string()),
    }
}

/// Holds our verdicts against those of ptxas: what ptxas accepts.
fn compare(oracle: &Oracle, all: &[String], name: &str, met: &mut [bool]) -> usize {
    let declared = statements::declarations();
    let verdicts = oracle.statements(statements::HEAD, &declared, all);
    let mut unexpected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut accepted = 0;
    for (statement, verdict) in all.iter().zip(&verdicts) {
        accepted += usize::from(*verdict == Verdict::Accepted);
        let ours = refusal(statements::HEAD, &declared, statement);
        let difference = match (verdict, &ours) {
            (Verdict::Accepted, Some(why)) => format!("refused: {why}"),
            (Verdict::Refused(why), None) => format!("accepted, and ptxas says: {why}"),
            _ => continue,
        };
        let wider = ours.is_none();
        if let Some(known) = differences::find(statement, wider) {
            met[known] = true;
            continue;
        }
        let opcode = statement.split(['.', ' ', ';']).next().unwrap_or_default();
        let list = unexpected.entry(opcode.to_owned()).or_default();
        list.push(format!("{statement}  -- {difference}"));
    }
    let count: usize = unexpected.values().map(Vec::len).sum();
    let mut report = String::new();
    for list in unexpected.values() {
        for line in list.iter().take(12) {
            let _ = writeln!(report, "{line}");
        }
        if list.len() > 12 {
            let _ = writeln!(report, "... and {} more", list.len() - 12);
        }
    }
    assert!(
        count == 0,
        "{count} of {} {name} differ:\n{report}",
        all.len()
    );
    println!("{name}: {}, of which {accepted} are right", all.len());
    accepted
}

#[test]
fn statements_are_judged_as_ptxas_judges_them() {
    let Some(oracle) = Oracle::find("statements") else {
        return;
    };
    let mut met = vec![false; differences::KNOWN.len()];
    let by_hand: Vec<_> = statements::BY_HAND
        .iter()
        .map(|one| one.to_string())
        .collect();
    compare(&oracle, &by_hand, "statements by hand", &mut met);
    let on_matrices = compare(
        &oracle,
        &matrices::all(),
        "statements on matrices",
        &mut met,
    );
    assert!(on_matrices > 250, "{on_matrices} are right");
    let textures = include_str!("textures.txt").lines();
    let textures: Vec<_> = textures.map(str::to_owned).collect();
    compare(&oracle, &textures, "textures and surfaces", &mut met);
    let all = statements::modifiers();
    let accepted = compare(&oracle, &all, "statements", &mut met);
    assert!(accepted > 1500, "{accepted} are right");
    let declared = statements::declarations();
    let ours = |one: &&String| refusal(statements::HEAD, &declared, one).is_none();
    let right: Vec<_> = all.iter().filter(ours).map(String::as_str).collect();
    let mutated = statements::mutated(&right);
    compare(
        &oracle,
        &mutated,
        "statements with one operand changed",
        &mut met,
    );
    // What no longer differs must leave the list.
    let known = differences::KNOWN.iter().zip(met);
    let unused: Vec<_> = known
        .filter(|(_, met)| !met)
        .map(|(known, _)| known)
        .collect();
    assert!(
        unused.is_empty(),
        "nothing differs so any more: {unused:#?}"
    );
}

#[test]
fn what_is_printed_is_right_for_ptxas() {
    let Some(oracle) = Oracle::find("printed") else {
        return;
    };
    let mut count = 0;
    for (name, text) in sources() {
        let module = Module::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut module = module;
        // This ptxas knows no older devices, whose PTX is PTX all the same.
        let old = |target: &&str| {
            target
                .strip_prefix("sm_")
                .is_some_and(|number| number < "75" && number.len() == 2)
        };
        if module.target.first().is_some_and(old) {
            module.target = vec!["sm_75"];
            module.version = module.version.max((7, 0));
        }
        let target = module.target.first().expect("a target");
        let judged = oracle.module(&module.to_string(), target);
        assert_eq!(judged, Ok(()), "{name}, printed");
        let program = Program::link(&[module]);
        let program = program.unwrap_or_else(|error| panic!("{name}: {error}"));
        for function in program.functions {
            if let Body::Refused(error) = function.body {
                // By name, and nothing of it is wrong.
                let known = error.message.contains("not supported");
                assert!(known, "{name}, {}: {error}", function.name);
            }
        }
        count += 1;
    }
    println!("{count} modules printed as ptxas takes them");
    assert!(count >= 15, "{count} modules");
}

/// PTX by compilers and by hand: what is in the repository, and the files of the folder that `TOWLINE_PTX_SOURCES` names.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    for file in files(&root.join("crates/towline-ptx/tests/data"), "fatbin") {
        let bytes = std::fs::read(&file).expect("a file");
        let container = Container::parse(&bytes).expect("a container");
        for program in container.programs().expect("whole programs") {
            if program.kind == EntryKind::Ptx {
                let image = program.image().expect("an image");
                let name = format!("{} for {}", file.display(), program.arch);
                all.push((name, ptx::text(&image).expect("text").to_owned()));
            }
        }
    }
    let folders = [
        "workloads/mpi/lj",
        "crates/towline-soft/src",
        "crates/towline-bench/src/cuda",
        "crates/towline-e2e/programs/ptx",
    ];
    let mut folders: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    folders.extend(std::env::var_os("TOWLINE_PTX_SOURCES").map(Into::into));
    for folder in folders {
        for file in files(&folder, "ptx") {
            let bytes = std::fs::read(&file).expect("a file");
            let text = ptx::text(&bytes).expect("text").to_owned();
            all.push((file.display().to_string(), text));
        }
    }
    all
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}
