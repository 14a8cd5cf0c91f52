//! The study of a 32-node GPU cluster again, simulated: its programs, counts of tasks and placements, and what it found.

mod command;
mod findings;
mod sensitivity;

use std::collections::BTreeMap;
use std::fmt::Write;

use towline_place::cluster::preset;
use towline_place::gpus::{self, Assignment, Pool};
use towline_place::program::declared::assumed::ASSUMPTIONS;
use towline_place::program::declared::{Assumed, Kernel, Quantity};
use towline_place::score::{Sockets, score};
use towline_place::simulate::{ITERATIONS, Run, Simulator};
use towline_place::{Cluster, Matrix, Placement, Policy, Program, Result};

pub(crate) use self::command::{Options, run};
use self::findings::{Finding, findings};

/// One simulated run.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) network: &'static str,
    pub(super) program: &'static str,
    pub(super) tasks: usize,
    /// n of the n-core round robin.
    pub(super) turn: u32,
    /// The assumption that was varied, and how many times as large it was.
    pub(super) varied: Option<(Quantity, f64)>,
    /// The verdict of [`towline_place::score`], for comparison.
    pub(super) estimate_s: f64,
    /// Of the whole program, or why there is none.
    pub(super) seconds: Result<f64, String>,
}

/// A point of the study before it is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) network: &'static str,
    pub(super) kernel: Kernel,
    pub(super) tasks: usize,
    pub(super) turn: u32,
    pub(super) varied: Option<(Quantity, f64)>,
}

/// The study's network, and the one that the comparison of networks (ours, not the study's) adds.
pub(super) const NETWORKS: [&str; 2] = ["study-qdr", "study-gbe"];

/// Everything the study ran, on these networks.
pub(super) fn points(networks: &[&'static str]) -> Vec<Point> {
    let mut points = Vec::new();
    for &network in networks {
        for (_, kernel) in Kernel::ALL {
            let (sizes, turns): (&[usize], &[u32]) = match kernel {
                Kernel::Cg | Kernel::Ft | Kernel::Is | Kernel::Lu => {
                    (&[16, 32, 64, 128, 256, 512], &[1, 2, 6, 12])
                }
                Kernel::Himeno | Kernel::HimenoIntel => {
                    (&[16, 32, 64, 128, 256, 384, 512], &[1, 2, 6, 12])
                }
                _ => (&[16, 32, 64, 128, 256], &[1, 2]),
            };
            for &tasks in sizes {
                points.extend(turns.iter().map(|&turn| Point {
                    network,
                    kernel: *kernel,
                    tasks,
                    turn,
                    varied: None,
                }));
            }
        }
    }
    // Small ones first: a run that is cut short has most of the table.
    points.sort_by_key(|point| {
        (
            networks
                .iter()
                .position(|network| *network == point.network),
            point.tasks,
        )
    });
    points
}

/// Runs one point. What the simulator cannot do is in the row.
pub(super) fn run_point(simulator: &Simulator, point: Point) -> Result<Row> {
    let Posed {
        cluster,
        program,
        placement,
        gpus,
        estimate_s,
    } = pose(point)?;
    let ran = simulator.run(
        &cluster,
        &program,
        &Sockets::default(),
        &placement,
        gpus.as_ref(),
        ITERATIONS,
    );
    let seconds = ran
        .map(|run: Run| run.seconds)
        .map_err(|error| error.to_string());
    Ok(Row::of(point, estimate_s, seconds))
}

/// The same with the estimate in the simulator's place: no more than a look at it.
pub(super) fn estimate(point: Point) -> Result<Row> {
    let estimate_s = pose(point)?.estimate_s;
    Ok(Row::of(point, estimate_s, Ok(estimate_s)))
}

/// What a point is about.
struct Posed {
    cluster: Cluster,
    program: Program,
    placement: Placement,
    gpus: Option<Assignment>,
    estimate_s: f64,
}

fn pose(point: Point) -> Result<Posed> {
    let assumed = point
        .varied
        .map_or(Assumed::default(), |(quantity, factor)| {
            Assumed::varied(quantity, factor)
        });
    let mut cluster = preset::cluster(point.network)?;
    assumed.apply(&mut cluster);
    let program = point.kernel.program_assuming(point.tasks, assumed)?;
    let matrix = Matrix::of(&program);
    // 512 tasks on 384 cores: two hardware threads per core.
    let placement = Policy::RoundRobin(point.turn).place(&cluster, point.tasks, true)?;
    let gpus = gpus::assign_if_used(&cluster, &matrix, &placement, Pool::Local)?;
    let mut estimate = score(&cluster, &matrix, &Sockets::default(), &placement)?;
    if let Some(gpus) = &gpus {
        estimate.add_gpus(gpus);
    }
    Ok(Posed {
        cluster,
        program,
        placement,
        gpus,
        estimate_s: estimate.total_s,
    })
}

impl Row {
    fn of(point: Point, estimate_s: f64, seconds: Result<f64, String>) -> Self {
        Self {
            network: point.network,
            program: point.kernel.name(),
            tasks: point.tasks,
            turn: point.turn,
            varied: point.varied,
            estimate_s,
            seconds,
        }
    }
}

/// Heading of the table, with tabs.
pub(super) const HEADING: &str =
    "network\tprogram\ttasks\tplacement\tvaried\tseconds\tmflops\testimate_s\terror\n";

impl Row {
    /// MFLOPS as Himeno counts them; none of other programs.
    pub(super) fn mflops(&self) -> Option<f64> {
        let ops = self
            .program
            .starts_with("himeno")
            .then(|| himeno_ops(self.tasks))?;
        self.seconds
            .as_ref()
            .ok()
            .map(|seconds| ops / seconds / 1e6)
    }

    pub(super) fn line(&self) -> String {
        let (seconds, error) = match &self.seconds {
            Ok(seconds) => (format!("{seconds:.6}"), String::new()),
            Err(error) => (String::new(), error.replace(['\t', '\n'], " ")),
        };
        let mflops = self
            .mflops()
            .map_or(String::new(), |mflops| format!("{mflops:.0}"));
        let varied = self.varied.map_or(String::new(), |(quantity, factor)| {
            format!("{} x{factor}", quantity.assumption().name)
        });
        format!(
            "{}\t{}\t{}\trr:{}\t{varied}\t{seconds}\t{mflops}\t{:.6}\t{error}\n",
            self.network, self.program, self.tasks, self.turn, self.estimate_s
        )
    }
}

impl Row {
    pub(super) fn is_of(&self, point: &Point) -> bool {
        (
            self.network,
            self.program,
            self.tasks,
            self.turn,
            self.varied,
        ) == (
            point.network,
            point.kernel.name(),
            point.tasks,
            point.turn,
            point.varied,
        )
    }

    /// A line of the table; none if it is no whole line of a run that succeeded.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.split('\t').collect();
        let [
            network,
            program,
            tasks,
            placement,
            varied,
            seconds,
            _,
            estimate,
            _,
        ] = cells[..]
        else {
            return None;
        };
        Some(Self {
            network: NETWORKS.into_iter().find(|known| *known == network)?,
            program: Kernel::named(program).ok()?.name(),
            tasks: tasks.parse().ok()?,
            turn: placement.strip_prefix("rr:")?.parse().ok()?,
            varied: match varied.split_once(" x") {
                Some((name, factor)) => Some((Quantity::named(name).ok()?, factor.parse().ok()?)),
                None if varied.is_empty() => None,
                None => return None,
            },
            estimate_s: estimate.parse().ok()?,
            seconds: Ok(seconds.parse().ok()?),
        })
    }
}

fn himeno_ops(tasks: usize) -> f64 {
    let program = Kernel::Himeno.program(tasks).expect("it ran");
    (0..tasks).map(|rank| program.ops(rank)).sum()
}

/// Network, program and tasks.
type Key<'a> = (&'a str, &'a str, usize);

/// Kendall's rank correlation between estimates and simulated times of the placements of each program, size and network; its
/// mean, and how many groups there are. Placements whose times differ by less than a percent are equal.
pub(super) fn agreement(rows: &[Row]) -> (f64, usize) {
    let mut groups: BTreeMap<Key<'_>, Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows {
        if let Ok(seconds) = &row.seconds {
            let group = groups
                .entry((row.network, row.program, row.tasks))
                .or_default();
            group.push((row.estimate_s, *seconds));
        }
    }
    let order = |a: f64, b: f64| {
        if (a / b - 1.0).abs() < 0.01 {
            0.0
        } else {
            (a - b).signum()
        }
    };
    let mut all = Vec::new();
    for group in groups.into_values() {
        let (mut agree, mut pairs) = (0.0, 0.0);
        for (index, a) in group.iter().enumerate() {
            for b in &group[index + 1..] {
                let (estimated, simulated) = (order(a.0, b.0), order(a.1, b.1));
                if estimated != 0.0 && simulated != 0.0 {
                    agree += estimated * simulated;
                    pairs += 1.0;
                }
            }
        }
        if pairs > 0.0 {
            all.push(agree / pairs);
        }
    }
    (all.iter().sum::<f64>() / all.len().max(1) as f64, all.len())
}

/// What is assumed, as a table.
pub(super) fn assumptions() -> String {
    let mut text =
        String::from("| assumption | value | earlier | source |\n| --- | --- | --- | --- |\n");
    for assumption in ASSUMPTIONS {
        let value = |value: f64| {
            let (scaled, prefix) = match value {
                _ if value >= 1e9 => (value / 1e9, "G"),
                _ if value >= 1e6 => (value / 1e6, "M"),
                _ if value < 1e-3 => (value * 1e6, "u"),
                _ => (value, ""),
            };
            format!("{scaled:.2} {prefix}{}", assumption.unit)
        };
        let earlier = match assumption.earlier == assumption.value {
            true => "the same".to_owned(),
            false => value(assumption.earlier),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {earlier} | {} |",
            assumption.name,
            value(assumption.value).trim_end(),
            assumption.source
        );
    }
    text
}

/// The page about a run of the study: what was asked, what came out, finding by finding.
pub(super) fn page(rows: &[Row]) -> String {
    let is_usual = |row: &&Row| row.varied.is_none();
    let rows: Vec<Row> = rows.iter().filter(is_usual).cloned().collect();
    let failed = rows.iter().filter(|row| row.seconds.is_err()).count();
    let (tau, groups) = agreement(&rows);
    let mut text = String::from(
        "| finding of the study | criterion | here | figures |\n| --- | --- | --- | --- |\n",
    );
    for finding in findings(&rows) {
        let here = match (finding.missing(&rows), finding.reproduced) {
            (0, true) => "reproduced".to_owned(),
            (0, false) => "**not reproduced**".to_owned(),
            (missing, _) => format!("not run: {missing} of its points are missing"),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {here} | {} |",
            finding.claim, finding.criterion, finding.figures
        );
    }
    let _ = writeln!(
        text,
        "\n{} points, {failed} of them failed. Order of placements by the estimate against the simulator's: Kendall's tau {tau:.2}, \
         the mean over {groups} programs, sizes and networks (placements within 1 % count as equal).",
        rows.len()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn row(program: &'static str, tasks: usize, turn: u32, seconds: f64) -> Row {
        Row {
            network: NETWORKS[0],
            program,
            tasks,
            turn,
            varied: None,
            estimate_s: seconds * 2.0,
            seconds: Ok(seconds),
        }
    }

    #[test]
    fn agreement_is_one_when_orders_are_the_same() {
        let rows = vec![
            row("ft", 16, 1, 50.0),
            row("ft", 16, 6, 60.0),
            row("ft", 16, 12, 72.0),
        ];
        assert_eq!(agreement(&rows), (1.0, 1));
        let mut turned = rows.clone();
        turned
            .iter_mut()
            .for_each(|row| row.estimate_s = -row.estimate_s + 1000.0);
        assert_eq!(agreement(&turned).0, -1.0);
    }

    #[test]
    fn a_failed_run_is_a_line_without_a_time() {
        let mut failed = row("ft", 16, 1, 1.0);
        failed.seconds = Err("a\nb".to_owned());
        assert_eq!(
            failed.line().split('\t').count(),
            HEADING.split('\t').count()
        );
        assert!(failed.line().contains("a b"));
    }

    #[test]
    fn lines_read_back() {
        let again = Row::parse(row("ft", 16, 6, 60.25).line().trim_end_matches('\n')).unwrap();
        assert_eq!(
            (again.program, again.tasks, again.turn, again.seconds),
            ("ft", 16, 6, Ok(60.25))
        );
        assert!(Row::parse("study-qdr\tft\t16\trr:1").is_none());
    }

    #[test]
    fn the_study_has_its_points() {
        let points = points(&NETWORKS[..1]);
        assert_eq!(points.len(), 4 * 6 * 4 + 2 * 7 * 4 + 4 * 5 * 2);
    }
}
