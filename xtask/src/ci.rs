//! `cargo xtask ci`: runs the stages of a tier one after the other and counts what passed. Stages that leave a processor idle run in a
//! second row beside the first.
//!
//! A stage that fails does not stop the later ones, except those that need what it was to build: one run tells
//! everything that is wrong. What failed is told once more at the end, where the tail of a log has it. The last line of
//! the output is the sum, `<n> passed, <m> failed, <k> skipped`.

mod lints;
mod stage;
mod tally;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use self::stage::{STAGES, Stage};
use self::tally::{Tally, failed_tests, skipped_tests};
use crate::workspace::Workspace;

/// How much of a failed stage's log is shown where no test of it failed.
const TAIL_LINES: usize = 40;

/// How much is shown of what a failed test wrote.
const TEST_LINES: usize = 20;

/// Lines of the report of a failed stage that are shown once more: its first, and the first or the last of its log.
const SUMMARY_LINES: usize = 12;

/// The status of a stage that finds that this machine lacks what it takes.
const SKIPPED: i32 = 77;

/// How much to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tier {
    /// What a developer waits for: format, lints, unit tests
    Check,
    /// What every change must pass
    Test,
    /// What a release must pass as well: minutes of fuzzing, Miri, slow tests
    Long,
}

/// What became of a stage.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Failed { reason: String },
    Passed,
    Skipped { reason: String },
}

/// What stages find in their environment.
struct Surroundings {
    binaries: PathBuf,
    lints: &'static str,
}

/// Outcomes of the stages so far.
#[derive(Default)]
struct Results {
    total: Tally,
    reasons: BTreeMap<String, u64>,
    passed: Vec<&'static str>,
    failed: Vec<&'static str>,
    skipped: Vec<&'static str>,
    /// Beginnings of the reports of stages that failed.
    failures: String,
}

impl Results {
    fn is_known(&self, name: &str) -> bool {
        [&self.passed, &self.failed, &self.skipped]
            .iter()
            .any(|names| names.contains(&name))
    }
}

/// One run of stages.
struct Run<'a> {
    workspace: &'a Workspace,
    surroundings: Surroundings,
    logs: PathBuf,
    stages: Vec<&'static Stage>,
    results: Mutex<Results>,
    changed: Condvar,
}

pub(crate) fn run(workspace: &Workspace, tier: Tier, only: &[String]) -> Result<ExitCode> {
    let logs = workspace.build_dir().join("ci");
    fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let run = Run {
        workspace,
        surroundings: Surroundings {
            binaries: workspace.metadata()?.target_directory.join("release"),
            lints: lints::of_the_compiler(workspace),
        },
        logs,
        stages: select(tier, only)?,
        results: Mutex::default(),
        changed: Condvar::new(),
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| run.row(true));
        run.row(false);
    });
    let results = run.results.into_inner().expect("no row panics");
    println!(
        "\n{} stages in {}",
        run.stages.len(),
        seconds(start.elapsed())
    );
    if !results.skipped.is_empty() {
        println!("skipped: {}", results.skipped.join(", "));
    }
    if !results.reasons.is_empty() {
        let mut reasons: Vec<(String, u64)> = results.reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        println!("skipped, by reason:");
        for (reason, count) in reasons {
            println!("{count:6}  {reason}");
        }
    }
    if !results.failed.is_empty() {
        println!("failed: {}", results.failed.join(", "));
        print!("{}", results.failures);
    }
    println!("{}", results.total);
    Ok(if results.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Run<'_> {
    fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock().expect("no row panics")
    }

    /// Runs the stages of a row. Stages need only earlier ones, so that the rows cannot wait for each other in a circle.
    fn row(&self, beside: bool) {
        let of_row = |(_, stage): &(usize, &&Stage)| stage.beside == beside;
        for (index, stage) in self.stages.iter().enumerate().filter(of_row) {
            let missing = self.await_needs(stage);
            println!(
                "[{}/{}] {}: {}",
                index + 1,
                self.stages.len(),
                stage.name,
                stage.command
            );
            let start = Instant::now();
            let log = self.logs.join(format!("{}.log", stage.name));
            let outcome = match missing {
                Some(need) => Outcome::Skipped {
                    reason: format!("it needs {need}, which did not pass"),
                },
                None => run_stage(self.workspace, stage, &self.surroundings, &log).unwrap_or_else(
                    |error| Outcome::Failed {
                        reason: format!("{error:#}"),
                    },
                ),
            };
            self.record(stage, outcome, &log, start.elapsed());
        }
    }

    /// Waits for what a stage needs, as far as it is to run, and answers what of it did not pass.
    fn await_needs(&self, stage: &Stage) -> Option<&'static str> {
        let needs = || stage.needs.iter().copied();
        let is_due = |need: &str| self.stages.iter().any(|other| other.name == need);
        let results = self
            .changed
            .wait_while(self.results(), |results| {
                needs().any(|need| is_due(need) && !results.is_known(need))
            })
            .expect("no row panics");
        needs().find(|need| results.failed.contains(need) || results.skipped.contains(need))
    }

    fn record(&self, stage: &Stage, outcome: Outcome, log: &Path, took: Duration) {
        let text = log_of(&outcome, log);
        let (tally, report) = report(self.workspace, stage, &outcome, (log, &text), took);
        let mut results = self.results();
        print!("{report}");
        results.total.add(tally);
        for (reason, count) in skipped_tests(&text) {
            *results.reasons.entry(reason.to_owned()).or_insert(0) += count;
        }
        let names = match outcome {
            Outcome::Failed { .. } => {
                results.failures.push_str(&summary(&report));
                &mut results.failed
            }
            Outcome::Passed => &mut results.passed,
            Outcome::Skipped { reason } => {
                *results.reasons.entry(reason).or_insert(0) += 1;
                &mut results.skipped
            }
        };
        names.push(stage.name);
        drop(results);
        self.changed.notify_all();
    }
}

fn select(tier: Tier, only: &[String]) -> Result<Vec<&'static Stage>> {
    if let Some(unknown) = only
        .iter()
        .find(|name| STAGES.iter().all(|stage| stage.name != **name))
    {
        let names: Vec<_> = STAGES.iter().map(|stage| stage.name).collect();
        bail!(
            "there is no stage `{unknown}`; there are {}",
            names.join(", ")
        );
    }
    Ok(STAGES
        .iter()
        .filter(|stage| match only {
            [] => stage.tiers.contains(&tier),
            names => names.iter().any(|name| name == stage.name),
        })
        .collect())
}

fn run_stage(
    workspace: &Workspace,
    stage: &Stage,
    surroundings: &Surroundings,
    log: &Path,
) -> Result<Outcome> {
    if let Some(tool) = stage.tools.iter().find(|tool| !tool.is_there(workspace)) {
        return Ok(Outcome::Skipped {
            reason: format!("this machine has {tool}"),
        });
    }
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let errors = file
        .try_clone()
        .context("cannot duplicate the log's descriptor")?;
    // `timeout` runs the stage in a process group of its own and ends the whole group; `setpriv` has it do so too
    // when this process ends, by Ctrl-C for one.
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "TERM", "timeout", "--kill-after", "10"])
        .arg(stage.limit_s.to_string())
        .args(["sh", "-c", stage.command])
        .env("CARGO_TERM_COLOR", "never")
        .env("TERM", "dumb")
        // Where the whole-system tests find what the stage `build` built.
        .env("TOWLINE_BIN_DIR", &surroundings.binaries)
        .env("TOWLINE_LINTS", surroundings.lints)
        // What the `make` that started us was told is not for the one that a stage runs.
        .env_remove("MAKEFLAGS")
        .current_dir(workspace.root())
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .status()
        .context("cannot run setpriv and timeout, of util-linux and coreutils")?;
    Ok(match status.code() {
        Some(0) => Outcome::Passed,
        // As test programs of others say it.
        Some(SKIPPED) => Outcome::Skipped {
            reason: "it cannot run on this machine; its log says why".to_owned(),
        },
        Some(124 | 137) => Outcome::Failed {
            reason: format!("still running after {} s", stage.limit_s),
        },
        _ => Outcome::Failed {
            reason: status.to_string(),
        },
    })
}

/// Output of a stage. A stage that did not run has left no log, but an earlier run may have.
fn log_of(outcome: &Outcome, log: &Path) -> String {
    match outcome {
        Outcome::Skipped { .. } => String::new(),
        _ => fs::read(log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default(),
    }
}

/// A stage's part of the sum, and the lines that tell of its outcome.
fn report(
    workspace: &Workspace,
    stage: &Stage,
    outcome: &Outcome,
    (log, text): (&Path, &str),
    took: Duration,
) -> (Tally, String) {
    let (name, took) = (stage.name, seconds(took));
    let tally = Tally::of_stage(text, outcome);
    let reason = match outcome {
        Outcome::Passed => return (tally, format!("      {name}: ok, {took} ({tally})\n")),
        Outcome::Skipped { reason } => {
            return (tally, format!("      {name}: skipped: {reason}\n"));
        }
        Outcome::Failed { reason } => reason,
    };
    let mut lines = vec![format!("{name}: FAILED, {took} ({tally}): {reason}")];
    let tests = failed_tests(text);
    for (name, output) in &tests {
        lines.push(format!("failed test: {name}"));
        lines.extend(
            output
                .iter()
                .take(TEST_LINES)
                .map(|line| format!("| {line}")),
        );
    }
    // A failure beside tests stands at the log's end. Below failed tests there would be those that passed.
    if tests.is_empty() {
        let all: Vec<_> = text.lines().collect();
        let tail = &all[all.len().saturating_sub(TAIL_LINES)..];
        lines.extend(tail.iter().map(|line| format!("| {line}")));
    }
    let log = log.strip_prefix(workspace.root()).unwrap_or(log);
    lines.push(format!("the whole log is {}", log.display()));
    let report = lines.iter().map(|line| format!("      {line}\n")).collect();
    (tally, report)
}

/// Lines of a report to show once more. Where tests failed the first ones name them; of a log the last lines tell.
fn summary(report: &str) -> String {
    let lines: Vec<_> = report.split_inclusive('\n').collect();
    let left_out = lines.len().saturating_sub(SUMMARY_LINES);
    match report.contains("failed test: ") {
        true => lines.iter().take(SUMMARY_LINES).copied().collect(),
        false => {
            let tail = lines.iter().skip(1 + left_out);
            lines.iter().take(1).chain(tail).copied().collect()
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::stage::{STAGE, Tool};
    use super::*;

    fn names(tier: Tier, only: &[&str]) -> Vec<&'static str> {
        let only: Vec<_> = only.iter().map(|&name| name.to_owned()).collect();
        select(tier, &only)
            .unwrap()
            .iter()
            .map(|stage| stage.name)
            .collect()
    }

    #[test]
    fn check_is_a_part_of_what_every_change_must_pass() {
        let test = names(Tier::Test, &[]);
        assert!(test.contains(&"clippy") && test.contains(&"licences"));
        assert!(names(Tier::Check, &[]).len() < test.len());
    }

    #[test]
    fn long_leaves_out_nothing_of_test() {
        let long = names(Tier::Long, &[]);
        assert!(
            names(Tier::Test, &[])
                .iter()
                .all(|name| long.contains(name))
        );
    }

    #[test]
    fn named_stages_run_in_any_tier() {
        assert_eq!(names(Tier::Check, &["docs", "fmt"]), ["fmt", "docs"]);
    }

    #[test]
    fn what_failed_is_summed_up_by_tests_or_by_the_end_of_the_log() {
        let log = (1..=40).map(|line| format!("| line {line}\n"));
        let report: String = ["tests: FAILED\n".to_owned()]
            .into_iter()
            .chain(log)
            .collect();
        let hung = summary(&report);
        assert!(hung.starts_with("tests: FAILED\n| line 30\n"), "{hung}");
        assert!(hung.ends_with("| line 40\n"), "{hung}");
        let failed = summary(&report.replacen("| line 1\n", "failed test: a\n", 1));
        assert!(failed.contains("failed test: a\n"), "{failed}");
        assert_eq!(failed.lines().count(), hung.lines().count());
        assert_eq!(summary("a: FAILED\n| b\n"), "a: FAILED\n| b\n");
    }

    #[test]
    fn an_unknown_stage_is_an_error_that_lists_the_known() {
        let error = select(Tier::Test, &["clipy".to_owned()])
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("`clipy`") && error.contains("clippy"),
            "{error}"
        );
    }

    fn outcome_of(stage: &Stage) -> (Outcome, String) {
        let workspace = Workspace::locate().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("stage.log");
        let surroundings = Surroundings {
            binaries: directory.path().to_owned(),
            lints: "-D warnings",
        };
        let outcome = run_stage(&workspace, stage, &surroundings, &log).unwrap();
        (outcome, fs::read_to_string(log).unwrap_or_default())
    }

    #[test]
    fn both_streams_of_a_stage_go_to_its_log() {
        let (outcome, log) = outcome_of(&Stage {
            command: "echo out; echo error >&2",
            ..STAGE
        });
        assert_eq!(outcome, Outcome::Passed);
        assert_eq!(log, "out\nerror\n");
    }

    #[test]
    fn a_stage_is_told_where_the_binaries_are() {
        let (outcome, log) = outcome_of(&Stage {
            command: "test -d \"$TOWLINE_BIN_DIR\" && echo there",
            ..STAGE
        });
        assert_eq!((outcome, log.as_str()), (Outcome::Passed, "there\n"));
    }

    #[test]
    fn a_stage_fails_with_its_exit_status() {
        let (outcome, _) = outcome_of(&Stage {
            command: "exit 3",
            ..STAGE
        });
        assert_eq!(
            outcome,
            Outcome::Failed {
                reason: "exit status: 3".to_owned()
            }
        );
    }

    #[test]
    fn a_stage_that_hangs_is_ended_with_all_that_it_started() {
        let (outcome, log) = outcome_of(&Stage {
            command: "sleep 600 & echo $!; wait",
            limit_s: 1,
            ..STAGE
        });
        assert_eq!(
            outcome,
            Outcome::Failed {
                reason: "still running after 1 s".to_owned()
            }
        );
        let started = Path::new("/proc").join(log.trim());
        let deadline = Instant::now() + Duration::from_secs(10);
        while started.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!started.exists(), "process {} still runs", log.trim());
    }

    #[test]
    fn a_stage_says_itself_that_it_cannot_run_here() {
        let (outcome, _) = outcome_of(&Stage {
            command: "exit 77",
            ..STAGE
        });
        assert!(matches!(outcome, Outcome::Skipped { .. }), "{outcome:?}");
    }

    #[test]
    fn a_stage_is_skipped_for_want_of_its_tool() {
        let (outcome, _) = outcome_of(&Stage {
            command: "exit 3",
            tools: &[Tool::Command("no-such-program-at-all")],
            ..STAGE
        });
        let reason = "this machine has no `no-such-program-at-all`".to_owned();
        assert_eq!(outcome, Outcome::Skipped { reason });
    }

    #[test]
    fn a_stage_beside_waits_for_what_it_needs() {
        const BUILT: Stage = Stage {
            name: "built",
            command: "sleep 0.3",
            ..STAGE
        };
        const BROKEN: Stage = Stage {
            name: "broken",
            command: "exit 3",
            ..STAGE
        };
        const BESIDE: Stage = Stage {
            name: "beside",
            needs: &["built"],
            beside: true,
            command: "true",
            ..STAGE
        };
        const VAIN: Stage = Stage {
            name: "vain",
            needs: &["broken"],
            ..BESIDE
        };
        let workspace = Workspace::locate().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let run = Run {
            workspace: &workspace,
            surroundings: Surroundings {
                binaries: directory.path().to_owned(),
                lints: "-D warnings",
            },
            logs: directory.path().to_owned(),
            stages: vec![&BUILT, &BROKEN, &BESIDE, &VAIN],
            results: Mutex::default(),
            changed: Condvar::new(),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run.row(true));
            run.row(false);
        });
        let results = run.results.into_inner().unwrap();
        assert_eq!(results.passed, ["built", "beside"]);
        assert_eq!(results.failed, ["broken"]);
        assert!(results.failures.contains("broken: FAILED"));
        assert_eq!(results.skipped, ["vain"]);
    }

    #[test]
    fn a_stage_needs_only_stages_that_run_before_it_in_every_tier_of_its_own() {
        for (index, stage) in STAGES.iter().enumerate() {
            for need in stage.needs {
                let needed = STAGES[..index].iter().find(|earlier| earlier.name == *need);
                let needed = needed.unwrap_or_else(|| {
                    panic!("{} needs {need}, which is not before it", stage.name)
                });
                assert!(
                    stage.tiers.iter().all(|tier| needed.tiers.contains(tier)),
                    "{}",
                    stage.name
                );
            }
        }
    }
}
