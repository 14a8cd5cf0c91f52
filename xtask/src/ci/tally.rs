//! Counting tests by what libtest prints.

use std::collections::BTreeMap;
use std::fmt;

use super::Outcome;

/// How many tests passed, failed and were skipped. A stage without tests counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Sums the result lines in a stage's log. What a stage did that no test shows (a build that broke, a process
    /// that was killed) counts as one failure.
    pub(super) fn of_stage(log: &str, outcome: &Outcome) -> Self {
        let mut sum = Self::default();
        for tally in log.lines().filter_map(Self::of_result_line) {
            sum.add(tally);
        }
        match outcome {
            Outcome::Failed { .. } if sum.failed == 0 => sum.failed = 1,
            Outcome::Passed if sum == Self::default() => sum.passed = 1,
            Outcome::Skipped { .. } => sum.skipped += 1,
            _ => {}
        }
        sum
    }

    /// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
    /// Tests that a filter left out count for nothing: another stage runs them.
    fn of_result_line(line: &str) -> Option<Self> {
        // What a test wrote without a line feed may stand before it.
        let (_, result) = line.split_once("test result: ")?;
        let (_, counts) = result.split_once(". ")?;
        let mut tally = Self::default();
        for count in counts.split("; ") {
            let Some((number, kind)) = count.split_once(' ') else {
                continue;
            };
            let field = match kind {
                "passed" => &mut tally.passed,
                "failed" => &mut tally.failed,
                "ignored" => &mut tally.skipped,
                _ => continue,
            };
            *field = number.parse().ok()?;
        }
        Some(tally)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// Why tests were skipped, with how many for each reason.
pub(super) fn skipped_tests(log: &str) -> BTreeMap<&str, u64> {
    let mut reasons = BTreeMap::new();
    for line in log.lines() {
        let verdict = line.strip_prefix("test ").and_then(|line| {
            // A test that wrote without a line feed may stand between.
            let (_, verdict) = line.rsplit_once(" ... ignored")?;
            Some(verdict)
        });
        if let Some(verdict) = verdict {
            // As libtest has it, and as libtest-mimic does.
            let reason = verdict
                .strip_prefix(", ")
                .or_else(|| verdict.strip_prefix(" (")?.strip_suffix(')'));
            let reason = reason.unwrap_or("no reason given");
            *reasons.entry(reason).or_default() += 1;
        }
    }
    reasons
}

/// The tests that failed, by name, with the lines that each wrote.
pub(super) fn failed_tests(log: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut tests = BTreeMap::<_, Vec<_>>::new();
    // The test whose lines follow.
    let mut writing = None;
    for line in log.lines() {
        let verdict = line
            .strip_prefix("test ")
            .and_then(|line| line.strip_suffix(" ... FAILED"));
        let heading = line
            .strip_prefix("---- ")
            .and_then(|line| line.strip_suffix(" stdout ----"));
        if let Some(name) = verdict.or(heading) {
            tests.entry(name).or_default();
            writing = heading;
        } else if line == "failures:" {
            writing = None;
        } else if let Some(lines) = writing.and_then(|name| tests.get_mut(name)) {
            lines.push(line);
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
running 2 tests
test frame::tests::short_header_is_an_error ... ok
test frame::tests::zero_length_is_an_error ... FAILED

failures:

---- frame::tests::zero_length_is_an_error stdout ----
thread panicked

failures:
    frame::tests::zero_length_is_an_error

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.12s

running 3 tests
noise without a line feed test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    fn failed() -> Outcome {
        Outcome::Failed {
            reason: "exit status: 101".to_owned(),
        }
    }

    #[test]
    fn result_lines_of_all_test_programs_are_summed() {
        assert_eq!(
            Tally::of_stage(LOG, &failed()),
            Tally {
                passed: 3,
                failed: 1,
                skipped: 1
            }
        );
    }

    #[test]
    fn skipped_tests_are_counted_by_reason() {
        let log = "\
test a ... ignored, no GPU
test b::c ... ok
test d ... ignored
test e    ... ignored (no GPU)
";
        let reasons: Vec<_> = skipped_tests(log).into_iter().collect();
        assert_eq!(reasons, [("no GPU", 2), ("no reason given", 1)]);
    }

    #[test]
    fn a_stage_without_tests_counts_once() {
        let passed = Tally::of_stage("Finished `dev` profile\n", &Outcome::Passed);
        assert_eq!(
            passed,
            Tally {
                passed: 1,
                failed: 0,
                skipped: 0
            }
        );
        let skipped = Tally::of_stage(
            "",
            &Outcome::Skipped {
                reason: "no clippy".to_owned(),
            },
        );
        assert_eq!(
            skipped,
            Tally {
                passed: 0,
                failed: 0,
                skipped: 1
            }
        );
    }

    #[test]
    fn a_failure_beside_passing_tests_is_not_lost() {
        let log = "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
                   error: test failed: signal 11\n";
        assert_eq!(
            Tally::of_stage(log, &failed()),
            Tally {
                passed: 5,
                failed: 1,
                skipped: 0
            }
        );
    }

    #[test]
    fn lines_that_only_look_like_results_count_nothing() {
        for line in [
            "test result",
            "test result: ok",
            "test result: ok. many passed; 0 failed",
            "5 passed; 0 failed",
        ] {
            assert_eq!(Tally::of_result_line(line), None, "{line:?}");
        }
    }

    #[test]
    fn failed_tests_come_with_what_they_wrote() {
        let tests = failed_tests(LOG);
        let lines: Vec<_> = tests["frame::tests::zero_length_is_an_error"]
            .iter()
            .filter(|line| !line.is_empty())
            .collect();
        assert_eq!(lines, [&"thread panicked"]);
        assert_eq!(tests.len(), 1);
    }

    #[test]
    fn a_test_whose_verdict_another_process_wrote_into_is_named_too() {
        let log = LOG.replace("is_an_error ... FAILED", "is_an_error ... noise\nFAILED");
        assert!(failed_tests(&log).contains_key("frame::tests::zero_length_is_an_error"));
    }

    #[test]
    fn the_sum_is_printed_in_the_form_that_is_looked_for() {
        let tally = Tally {
            passed: 12,
            failed: 0,
            skipped: 3,
        };
        assert_eq!(tally.to_string(), "12 passed, 0 failed, 3 skipped");
    }
}
