//! The conformance suite: what an OpenCL device promises, one rule at a time.
//!
//! A rule is a function over a [`Fixture`], named by condition and outcome. The run over the vendor's own library defines what is
//! right; the same rules over Towline show that a program cannot tell the difference. A rule that does not apply to a device is
//! reported as ignored, with the reason; one that a vendor is known to break is listed with the fixture
//! ([`Fixture::deviations`]) and reported likewise.
//!
//! A test target without harness runs the suite over one or more fixtures:
//!
//! ```no_run
//! use std::sync::Arc;
//! use towline_backend::opencl::NullOpenCl;
//! use towline_test::conformance::Fixture;
//!
//! towline_test::suite! { "null" => Fixture::first(Arc::new(NullOpenCl::new(1))) }
//! ```

mod buffer;
mod call;
mod context;
mod device;
mod event;
mod fixture;
mod image;
mod kernel;
mod launch;
mod lifetime;
mod map;
mod order;
mod partition;
mod program;
mod sampler;
mod svm;
mod threads;
mod transfer;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

pub use call::{Code, Codes, Event, Handle, Owned, Status, Stop, Verdict};
pub use fixture::{Caps, Deviation, Fixture};

/// Longest that a rule may take; one that hangs fails by name, and the others go on.
const RULE_LIMIT: Duration = Duration::from_secs(120);

thread_local! {
    /// Where this thread last panicked.
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// One thing that OpenCL promises.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Condition and outcome, behind the module that has it.
    pub name: &'static str,
    /// The check.
    pub check: fn(&Fixture) -> Verdict,
}

/// Lists a module's rules; a rule that is forgotten is a function that nobody uses, which the compiler reports.
macro_rules! rules {
    ($module:ident: $($rule:ident),* $(,)?) => {
        pub(super) const RULES: &[$crate::conformance::Rule] = &[$(
            $crate::conformance::Rule {
                name: concat!(stringify!($module), "::", stringify!($rule)),
                check: $rule,
            },
        )*];
    };
}
use rules;

/// All rules.
pub fn all_rules() -> impl Iterator<Item = Rule> {
    [
        buffer::RULES,
        context::RULES,
        device::RULES,
        event::RULES,
        image::RULES,
        kernel::RULES,
        launch::RULES,
        lifetime::RULES,
        map::RULES,
        order::RULES,
        partition::RULES,
        program::RULES,
        sampler::RULES,
        svm::RULES,
        threads::RULES,
        transfer::RULES,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The rules as tests over one fixture; a fixture that cannot be had is one failing test that says why.
pub fn trials(target: &str, fixture: Result<Fixture, String>) -> Vec<Trial> {
    match fixture {
        Ok(fixture) => {
            let fixture = Arc::new(fixture);
            let trial = |rule: Rule| {
                let fixture = fixture.clone();
                Trial::ignorable_test(format!("{target}::{}", rule.name), move || {
                    match judge(rule, fixture) {
                        Ok(()) => Ok(Completion::Completed),
                        Err(Stop::Skipped(reason)) => Ok(Completion::ignored_with(reason)),
                        Err(Stop::Failed(message)) => Err(Failed::from(message)),
                    }
                })
            };
            all_rules().map(trial).collect()
        }
        Err(reason) => vec![Trial::test(format!("{target}::fixture"), || {
            Err(Failed::from(reason))
        })],
    }
}

/// Runs tests as the command line asks; what [`suite!`](crate::suite) expands to.
pub fn run(trials: Vec<Trial>) -> ExitCode {
    // A failed rule is reported once, with the place: not by a backtrace in the middle of the list.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|place| format!(" at {place}"));
        PANICKED_AT.set(place.unwrap_or_default());
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The `main` of a test target that runs the suite over the fixtures named.
#[macro_export]
macro_rules! suite {
    ($($target:literal => $fixture:expr),+ $(,)?) => {
        fn main() -> std::process::ExitCode {
            let mut trials = Vec::new();
            $( trials.extend($crate::conformance::trials($target, $fixture)); )+
            $crate::conformance::run(trials)
        }
    };
}

/// Runs one rule on a thread of its own, so that a hang is a failure too, and weighs the outcome against known deviations.
fn judge(rule: Rule, fixture: Arc<Fixture>) -> Verdict {
    let deviation = fixture.deviation(rule.name);
    if let Some(Deviation::Fatal(why)) = deviation {
        return Err(Stop::Skipped(format!("known deviation: {why}")));
    }
    let (send, receive) = channel();
    let runner = std::thread::Builder::new().name(rule.name.into());
    let spawned = runner.spawn(move || {
        let verdict = catch_unwind(AssertUnwindSafe(|| (rule.check)(&fixture)));
        let _ = send.send(verdict.unwrap_or_else(|payload| {
            let text = payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).into()));
            let text = text.unwrap_or_else(|| "it panicked".into());
            Err(Stop::Failed(text + &PANICKED_AT.take()))
        }));
    });
    spawned.map_err(|error| Stop::Failed(format!("no thread for the rule: {error}")))?;
    let verdict = receive.recv_timeout(RULE_LIMIT).unwrap_or_else(|error| {
        Err(Stop::Failed(match error {
            RecvTimeoutError::Timeout => {
                format!("it did not end within {} s", RULE_LIMIT.as_secs())
            }
            RecvTimeoutError::Disconnected => "its thread ended without a verdict".into(),
        }))
    });
    match (verdict, deviation) {
        (Err(Stop::Failed(_)), Some(Deviation::Differs(why))) => {
            Err(Stop::Skipped(format!("known deviation: {why}")))
        }
        (Ok(()), Some(Deviation::Differs(why))) => Err(Stop::Failed(format!(
            "the rule holds now: take it off the fixture's deviations ({why})"
        ))),
        (verdict, _) => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_backend::opencl::NullOpenCl;

    fn fixture(deviations: &'static [(&'static str, Deviation)]) -> Arc<Fixture> {
        let fixture = Fixture::first(Arc::new(NullOpenCl::new(1))).expect("it has a device");
        Arc::new(Fixture {
            deviations,
            ..fixture
        })
    }

    const BROKEN: Rule = Rule {
        name: "a::broken",
        check: |_| panic!("as planned"),
    };
    const KEPT: Rule = Rule {
        name: "a::kept",
        check: |_| Ok(()),
    };
    const SKIPPED: Rule = Rule {
        name: "a::skipped",
        check: |_| Err(Stop::Skipped("no such thing".into())),
    };

    #[test]
    fn a_broken_rule_fails_with_what_it_found() {
        let verdict = judge(BROKEN, fixture(&[]));
        assert_eq!(verdict, Err(Stop::Failed("as planned".into())));
    }

    #[test]
    fn a_rule_that_does_not_apply_is_skipped_with_its_reason() {
        let verdict = judge(SKIPPED, fixture(&[]));
        assert_eq!(verdict, Err(Stop::Skipped("no such thing".into())));
    }

    #[test]
    fn a_known_deviation_is_skipped_until_the_rule_holds() {
        let known = judge(
            BROKEN,
            fixture(&[("a::broken", Deviation::Differs("vendor bug"))]),
        );
        let gone = judge(
            KEPT,
            fixture(&[("a::kept", Deviation::Differs("vendor bug"))]),
        );
        let why = "known deviation: vendor bug".into();
        assert_eq!(known, Err(Stop::Skipped(why)));
        assert!(matches!(gone, Err(Stop::Failed(_))));
    }

    #[test]
    fn rule_names_are_unique() {
        let mut names: Vec<_> = all_rules().map(|rule| rule.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
