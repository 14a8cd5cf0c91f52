//! Asking ptxas: what it says of a module, and of many statements at once. The tests of `towline-soft` use this file too.
#![allow(dead_code, reason = "neither user needs all of it")]

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The newest target that devices in software say they are, and a version of PTX that this ptxas knows.
pub(crate) const TARGET: &str = "sm_90";
/// Statements of one call of ptxas.
const BATCH: usize = 600;
/// Statements of one function of it.
const FUNCTION: usize = 200;
/// Calls of it at once.
const THREADS: usize = 2;
/// Most calls of ptxas for one batch: each but the last finds something to refuse.
const ROUNDS_LIMIT: usize = 400;

/// What ptxas says of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accepted,
    /// Why not.
    Refused(String),
    /// It is right, but not for this target or version. Of those we ask nothing: a device in software looks at neither.
    OfOthers,
}

/// A ptxas that was found.
#[derive(Debug)]
pub(crate) struct Oracle {
    program: OsString,
    folder: PathBuf,
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Oracle {
    /// `TOWLINE_PTXAS` names it; else it is the one that `scripts/setup` installed, else the one in `PATH`.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let installed = std::fs::read_dir(root.join("build/cuda-toolkit/lib")).ok();
        let installed = installed.into_iter().flatten().flatten();
        let installed = installed.map(|python| {
            python
                .path()
                .join("site-packages/nvidia/cu13/bin/ptxas")
                .into()
        });
        let candidates = std::env::var_os("TOWLINE_PTXAS").into_iter();
        let candidates = candidates.chain(installed).chain(["ptxas".into()]);
        let works = |program: &OsString| {
            let mut command = Command::new(program);
            let command = command
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let program = candidates.into_iter().find(works);
        let Some(program) = program else {
            // Past the test harness, which swallows what tests that pass print.
            let _ = writeln!(
                std::io::stderr(),
                "\nSKIPPED {name}: there is no ptxas; `scripts/setup test` installs it, or set TOWLINE_PTXAS"
            );
            return None;
        };
        let folder = format!("towline-ptxas-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("a folder for what ptxas reads");
        Some(Self { program, folder })
    }

    /// What ptxas prints of a module, or `Ok`.
    pub(crate) fn module(&self, text: &str, target: &str) -> Result<(), String> {
        self.numbered(0, text, target)
    }

    fn numbered(&self, number: usize, text: &str, target: &str) -> Result<(), String> {
        let file = self.folder.join(format!("{number}.ptx"));
        std::fs::write(&file, text).expect("the folder is there");
        let output = Command::new(&self.program)
            .args(["--compile-only", "-O0", "-arch", target, "-o"])
            .arg(self.folder.join(format!("{number}.cubin")))
            .arg(&file)
            .output();
        let output = output.expect("ptxas starts, as it did before");
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = [output.stdout, output.stderr].concat();
                Err(String::from_utf8_lossy(&said).into_owned())
            }
        }
    }

    /// What it says of each of these statements, one line each, behind `head` and `declared`, which opens and ends no function.
    pub(crate) fn statements(&self, head: &str, declared: &str, all: &[String]) -> Vec<Verdict> {
        let batches: Vec<_> = all.chunks(BATCH).collect();
        let next = AtomicUsize::new(0);
        let done = Mutex::new(vec![Vec::new(); batches.len()]);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(batch) = batches.get(index) else {
                            return;
                        };
                        let verdicts = self.batch(index, head, declared, batch);
                        done.lock().expect("no thread panics with it")[index] = verdicts;
                    }
                });
            }
        });
        done.into_inner().expect("no thread panicked").concat()
    }

    fn batch(&self, number: usize, head: &str, declared: &str, batch: &[String]) -> Vec<Verdict> {
        let mut verdicts = vec![Verdict::Accepted; batch.len()];
        for _ in 0..ROUNDS_LIMIT {
            let (text, lines) = module_of(head, declared, batch, &verdicts);
            let Err(said) = self.numbered(number, &text, TARGET) else {
                return verdicts;
            };
            let mut found = false;
            for line in said.lines() {
                let Some((place, message)) = complaint(line) else {
                    continue;
                };
                let Some(&index) = lines.get(&place) else {
                    continue;
                };
                found = true;
                let foreign = of_others(message);
                match &mut verdicts[index] {
                    Verdict::Refused(_) => {}
                    verdict if foreign => *verdict = Verdict::OfOthers,
                    verdict => *verdict = Verdict::Refused(message.to_owned()),
                }
            }
            if !found {
                return self.halves(number, head, declared, batch, &said);
            }
        }
        panic!(
            "ptxas did not come to an end with {} statements",
            batch.len()
        );
    }

    /// ptxas complains and does not say where.
    fn halves(
        &self,
        number: usize,
        head: &str,
        declared: &str,
        batch: &[String],
        said: &str,
    ) -> Vec<Verdict> {
        if let [_] = batch {
            return vec![Verdict::Refused(said.trim().to_owned())];
        }
        let (left, right) = batch.split_at(batch.len() / 2);
        [left, right]
            .iter()
            .flat_map(|half| self.batch(number, head, declared, half))
            .collect()
    }
}

/// A module of all statements that were not refused yet, and which of them stands on which line.
fn module_of(
    head: &str,
    declared: &str,
    batch: &[String],
    verdicts: &[Verdict],
) -> (String, HashMap<usize, usize>) {
    let mut text = head.to_owned();
    let mut lines = HashMap::new();
    let mut line = 1 + head.matches('\n').count();
    for (function, statements) in batch.chunks(FUNCTION).enumerate() {
        let start = format!(".visible .entry k{function}(.param .u64 given) {{\n{declared}\n");
        line += start.matches('\n').count();
        text += &start;
        for (index, statement) in (function * FUNCTION..).zip(statements) {
            if verdicts[index] == Verdict::Accepted {
                lines.insert(line, index);
                text += statement;
                text.push('\n');
                line += 1;
            }
        }
        text += "ret;\n}\n";
        line += 2;
    }
    (text, lines)
}

/// `ptxas FILE, line 8; error   : MESSAGE`
fn complaint(line: &str) -> Option<(usize, &str)> {
    let (file, rest) = line.split_once(", line ")?;
    // A place in the text that ptxas puts in for `wmma`.
    if file.ends_with("<builtin>") {
        return None;
    }
    let (place, rest) = rest.split_once(';')?;
    let (severity, message) = rest.split_once(':')?;
    let serious = matches!(severity.trim(), "error" | "fatal");
    serious.then_some((place.parse().ok()?, message.trim()))
}

/// Whether a complaint is about the target or the version alone.
fn of_others(message: &str) -> bool {
    [
        "not supported on .target",
        "requires .target",
        "requires PTX ISA",
        "requires .version",
    ]
    .iter()
    .any(|words| message.contains(words))
}
