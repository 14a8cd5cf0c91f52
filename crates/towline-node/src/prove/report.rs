//! What came out: for people and as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::Side;
use super::cause::{Finding, State};
use super::facts::{Difference, differences};
use super::run::{Results, Skipped};
use super::spec::{Case, Spec};
use super::stats::{Interval, efficiency, interval};

/// What came out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// Whether the two sides may be compared. If not, there is no efficiency.
    pub is_comparable: bool,
    /// In what they differ.
    pub differences: Vec<Difference>,
    /// What was run.
    pub cases: Vec<CaseReport>,
    /// What could not be run.
    pub skipped: Vec<Skipped>,
    /// The share of native that was hoped for.
    pub goal: f64,
    /// Where it is less: what was looked for, and what was seen.
    pub findings: Vec<Finding>,
}

/// What came out of one case.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CaseReport {
    /// Which.
    pub case: Case,
    /// The unit of the figures.
    pub unit: String,
    /// Natively.
    pub native: Option<Interval>,
    /// In the machines.
    pub vm: Option<Interval>,
    /// The share of native that the machines reach.
    pub efficiency: Option<Interval>,
    /// How much more than on the fewest nodes there is natively.
    pub native_growth: Option<f64>,
    /// And in the machines.
    pub vm_growth: Option<f64>,
    /// What the study found.
    pub study: Option<f64>,
    /// Of what.
    pub study_of: String,
    /// Runs that failed, and why the last one did.
    pub failures: usize,
    /// Why the last one did.
    pub last_failure: Option<String>,
}

impl CaseReport {
    /// Whether less came out than was hoped for: the whole interval lies below.
    #[must_use]
    pub fn is_short(&self, goal: f64) -> bool {
        self.efficiency.is_some_and(|share| share.high < goal)
    }
}

/// Draws up the report. `look` looks for causes; it is called only where something falls short.
pub fn report(spec: &Spec, results: &Results, look: impl FnOnce() -> Vec<Finding>) -> Report {
    let stage = &results.stage;
    let differences = differences(&stage.native, &stage.vm, &spec.may_differ);
    let is_comparable = differences.iter().all(|difference| difference.is_allowed);
    let mut cases: Vec<CaseReport> = spec
        .cases()
        .into_iter()
        .filter(|(case, _)| results.runs.iter().any(|run| run.case == *case))
        .map(|(case, _)| case_report(case, results, is_comparable))
        .collect();
    grow(&mut cases);
    let is_short = cases.iter().any(|case| case.is_short(spec.goal));
    Report {
        is_comparable,
        differences,
        skipped: stage.skipped.clone(),
        goal: spec.goal,
        findings: if is_short { look() } else { Vec::new() },
        cases,
    }
}

fn case_report(case: Case, results: &Results, is_comparable: bool) -> CaseReport {
    let runs = || results.runs.iter().filter(|run| run.case == case);
    let figures = |side| -> BTreeMap<u32, f64> {
        runs()
            .filter(|run| run.side == side)
            .filter_map(|run| Some((run.number, run.figure?)))
            .collect()
    };
    let (native, vm) = (figures(Side::Native), figures(Side::Vm));
    let pairs: Vec<(f64, f64)> = native
        .iter()
        .filter_map(|(number, &native)| Some((native, *vm.get(number)?)))
        .collect();
    let of =
        |figures: &BTreeMap<u32, f64>| interval(&figures.values().copied().collect::<Vec<_>>());
    let figure = case.kind.figure();
    let study = case.kind.study(case.per_gpu);
    let failed: Vec<&str> = runs().filter_map(|run| run.failure.as_deref()).collect();
    CaseReport {
        unit: figure.unit.to_owned(),
        native: of(&native),
        vm: of(&vm),
        efficiency: efficiency(&pairs, figure.is_rate).filter(|_| is_comparable),
        native_growth: None,
        vm_growth: None,
        study: study.as_ref().map(|study| study.share),
        study_of: study.map_or_else(String::new, |study| study.of.to_owned()),
        failures: failed.len(),
        last_failure: failed.last().map(|&reason| reason.to_owned()),
        case,
    }
}

/// How much more there is than on the fewest nodes.
fn grow(cases: &mut [CaseReport]) {
    let before = cases.to_vec();
    for report in cases {
        let alike = |other: &&CaseReport| {
            let (a, b) = (&report.case, &other.case);
            (a.kind, &a.size, a.per_gpu) == (b.kind, &b.size, b.per_gpu)
        };
        let Some(first) = before
            .iter()
            .filter(alike)
            .min_by_key(|other| other.case.nodes)
        else {
            continue;
        };
        if first.case.nodes == report.case.nodes {
            continue;
        }
        let is_rate = report.case.kind.figure().is_rate;
        let growth = |now: Option<Interval>, then: Option<Interval>| {
            let (now, then) = (now?.mean, then?.mean);
            Some(if is_rate { now / then } else { then / now })
        };
        report.native_growth = growth(report.native, first.native);
        report.vm_growth = growth(report.vm, first.vm);
    }
}

impl Report {
    /// The report for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for difference in &self.differences {
            let verdict = match difference.is_allowed {
                true => "differs, as the specification allows",
                false => "NOT COMPARABLE",
            };
            let _ = writeln!(text, "{verdict}: {difference}");
        }
        if !self.is_comparable {
            text.push_str(
                "There is no efficiency: make the two sides alike, or name in may_differ what may differ.\n",
            );
        }
        let rows: Vec<[String; 6]> = self.cases.iter().map(row).collect();
        let head = [
            "benchmark",
            "natively",
            "in machines",
            "unit",
            "of native",
            "in the study",
        ]
        .map(str::to_owned);
        let widths: Vec<usize> = (0..6)
            .map(|column| {
                let cells = rows.iter().chain([&head]).filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        if !rows.is_empty() {
            for row in [&head].into_iter().chain(&rows) {
                let cells: Vec<String> = row
                    .iter()
                    .zip(&widths)
                    .map(|(cell, &width)| format!("{cell:width$}"))
                    .collect();
                let _ = writeln!(text, "{}", cells.join("  ").trim_end());
            }
        }
        self.growth(&mut text);
        self.gpudirect(&mut text);
        for case in self.cases.iter().filter(|case| case.failures > 0) {
            let reason = case.last_failure.as_deref().unwrap_or_default();
            let _ = writeln!(
                text,
                "{} runs failed: {}: {reason}",
                case.failures, case.case
            );
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "not run: {}: {}", skipped.kind.name(), skipped.reason);
        }
        self.causes(&mut text);
        text
    }

    fn growth(&self, text: &mut String) {
        for case in &self.cases {
            if let (Some(native), Some(vm)) = (case.native_growth, case.vm_growth) {
                let _ = writeln!(
                    text,
                    "growth: {}: {native:.2} times natively, {vm:.2} in machines",
                    case.case
                );
            }
        }
    }

    /// What GPUDirect is worth, on both sides.
    fn gpudirect(&self, text: &mut String) {
        use super::benchmark::Kind;
        for with in self
            .cases
            .iter()
            .filter(|case| case.case.kind == Kind::HoomdLjGpudirect)
        {
            let plain = Case {
                kind: Kind::HoomdLj,
                ..with.case.clone()
            };
            let Some(without) = self.cases.iter().find(|case| case.case == plain) else {
                continue;
            };
            let gain = |with: Option<Interval>, without: Option<Interval>| match (with, without) {
                (Some(with), Some(without)) => {
                    format!("{:+.1} %", (with.mean / without.mean - 1.0) * 100.0)
                }
                _ => "unknown".to_owned(),
            };
            let _ = writeln!(
                text,
                "GPUDirect on {} nodes: {} natively, {} in machines; +9 % in the study",
                with.case.nodes,
                gain(with.native, without.native),
                gain(with.vm, without.vm)
            );
        }
    }

    fn causes(&self, text: &mut String) {
        let goal = self.goal * 100.0;
        let short: Vec<String> = self
            .cases
            .iter()
            .filter(|case| case.is_short(self.goal))
            .map(|case| case.case.to_string())
            .collect();
        if short.is_empty() {
            return;
        }
        let _ = writeln!(text, "below {goal:.0} % of native: {}", short.join("; "));
        let found = |state| {
            self.findings
                .iter()
                .filter(move |finding| finding.state == state)
        };
        for finding in found(State::Found) {
            let _ = writeln!(
                text,
                "cause: {} ({}): {}\n  helps: {}",
                finding.cause, finding.machine, finding.evidence, finding.remedy
            );
        }
        if found(State::Found).next().is_none() {
            text.push_str("no known cause was seen\n");
        }
        for finding in found(State::Unseen) {
            let _ = writeln!(
                text,
                "not looked at: {} ({}): {}",
                finding.cause, finding.machine, finding.evidence
            );
        }
        let clear: BTreeSet<&str> = found(State::Clear)
            .map(|finding| finding.cause.as_str())
            .collect();
        for cause in clear {
            let _ = writeln!(text, "looked for, and not so: {cause}");
        }
    }
}

fn row(case: &CaseReport) -> [String; 6] {
    let figure = |found: Option<Interval>| {
        found.map_or_else(
            || "none".to_owned(),
            |found| {
                format!(
                    "{:.4} ± {:.2} %",
                    found.mean,
                    (found.high - found.mean) / found.mean * 100.0
                )
            },
        )
    };
    let share = case.efficiency.map_or_else(
        || "unknown".to_owned(),
        |share| {
            format!(
                "{:.1} % ({:.1} to {:.1})",
                share.mean * 100.0,
                share.low * 100.0,
                share.high * 100.0
            )
        },
    );
    let study = case.study.map_or_else(String::new, |share| {
        format!("{:.1} % ({})", share * 100.0, case.study_of)
    });
    [
        case.case.to_string(),
        figure(case.native),
        figure(case.vm),
        case.unit.clone(),
        share,
        study,
    ]
}
