//! The study of a 32-node GPU cluster again, simulated: its programs, counts of tasks and placements, and what it found.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{ITERATIONS, Run, Simulator};
use crate::cluster::preset;
use crate::gpus::{self, Pool};
use crate::program::declared::Kernel;
use crate::score::{Sockets, score};
use crate::{Matrix, Policy, Result};

/// One simulated run.
#[derive(Clone, Debug)]
pub struct Row {
    pub network: &'static str,
    pub program: &'static str,
    pub tasks: usize,
    /// n of the n-core round robin.
    pub turn: u32,
    /// What the score of [`crate::score`] says, for comparison.
    pub estimate_s: f64,
    /// Of the whole program, or why there is none.
    pub seconds: Result<f64, String>,
}

/// A point of the study before it is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub network: &'static str,
    pub kernel: Kernel,
    pub tasks: usize,
    pub turn: u32,
}

/// The study's network, and the one that the comparison of networks (ours, not the study's) adds.
pub const NETWORKS: [&str; 2] = ["study-qdr", "study-gbe"];

/// Everything the study ran, on these networks.
pub fn points(networks: &[&'static str]) -> Vec<Point> {
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
pub fn run(simulator: &Simulator, point: Point) -> Result<Row> {
    let cluster = preset::cluster(point.network)?;
    let program = point.kernel.program(point.tasks)?;
    let matrix = Matrix::of(&program);
    // 512 tasks on 384 cores: two hardware threads per core.
    let placement = Policy::RoundRobin(point.turn).place(&cluster, point.tasks, true)?;
    let sockets = Sockets::default();
    let assignment = gpus::assign_if_used(&cluster, &matrix, &placement, Pool::Local)?;
    let mut estimate = score(&cluster, &matrix, &sockets, &placement)?;
    if let Some(gpus) = &assignment {
        estimate.add_gpus(gpus);
    }
    let ran = simulator.run(
        &cluster,
        &program,
        &sockets,
        &placement,
        assignment.as_ref(),
        ITERATIONS,
    );
    Ok(Row {
        network: point.network,
        program: point.kernel.name(),
        tasks: point.tasks,
        turn: point.turn,
        estimate_s: estimate.total_s,
        seconds: ran
            .map(|run: Run| run.seconds)
            .map_err(|error| error.to_string()),
    })
}

/// Heading of the table, with tabs.
pub const HEADING: &str =
    "network\tprogram\ttasks\tplacement\tseconds\tmflops\testimate_s\terror\n";

impl Row {
    /// MFLOPS as Himeno counts them; none of other programs.
    pub fn mflops(&self) -> Option<f64> {
        let ops = self
            .program
            .starts_with("himeno")
            .then(|| himeno_ops(self.tasks))?;
        self.seconds
            .as_ref()
            .ok()
            .map(|seconds| ops / seconds / 1e6)
    }

    pub fn line(&self) -> String {
        let (seconds, error) = match &self.seconds {
            Ok(seconds) => (format!("{seconds:.6}"), String::new()),
            Err(error) => (String::new(), error.replace(['\t', '\n'], " ")),
        };
        let mflops = self
            .mflops()
            .map_or(String::new(), |mflops| format!("{mflops:.0}"));
        format!(
            "{}\t{}\t{}\trr:{}\t{seconds}\t{mflops}\t{:.6}\t{error}\n",
            self.network, self.program, self.tasks, self.turn, self.estimate_s
        )
    }
}

impl Row {
    /// A line of the table; none if it is no whole line of a run that succeeded.
    pub fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.split('\t').collect();
        let [network, program, tasks, placement, seconds, _, estimate, _] = cells[..] else {
            return None;
        };
        Some(Self {
            network: NETWORKS.into_iter().find(|known| *known == network)?,
            program: Kernel::named(program).ok()?.name(),
            tasks: tasks.parse().ok()?,
            turn: placement.strip_prefix("rr:")?.parse().ok()?,
            estimate_s: estimate.parse().ok()?,
            seconds: Ok(seconds.parse().ok()?),
        })
    }
}

fn himeno_ops(tasks: usize) -> f64 {
    let program = Kernel::Himeno.program(tasks).expect("it ran");
    (0..tasks).map(|rank| program.ops(rank)).sum()
}

/// A finding of the study and whether it comes out here.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub claim: &'static str,
    pub reproduced: bool,
    pub figures: String,
}

/// The study's findings against its network's rows.
pub fn findings(rows: &[Row]) -> Vec<Finding> {
    let table = Table(rows);
    vec![
        table.best("FT: 1-core round robin is best throughout", "ft", 1.0),
        table.best("CG: 1-core round robin is mostly best", "cg", 0.5),
        table.best("LU: 1-core round robin is best", "lu", 1.0),
        table.best(
            "Himeno (GCC): 1-core round robin is mostly best",
            "himeno",
            0.5,
        ),
        table.best(
            "Himeno (Intel): 1-core round robin is mostly best",
            "himeno-intel",
            0.5,
        ),
        table.gap("FT: about 20 s between placements at 16 tasks", "ft"),
        table.gap("LU: about 20 s between placements at 16 tasks", "lu"),
        table.indifferent(),
        table.starved(),
        table.peak(
            "Himeno peaks at 256 cores as GCC compiles it",
            "himeno",
            256,
        ),
        table.peak(
            "Himeno peaks at 128 cores as Intel's compiler does",
            "himeno-intel",
            128,
        ),
        table.same_height(),
        table.gain(
            "STMV: CPU+GPU gains about 5.5 times at few cores, and less with more",
            "stmv",
            4.0,
            7.5,
        ),
        table.gain(
            "ATPase: CPU+GPU makes no great difference (at most 1.6 times)",
            "atpase",
            0.0,
            1.6,
        ),
        table.turns(
            "ATPase with GPUs: 1- and 2-core round robin do not differ",
            "atpase-gpu",
        ),
        table.turns(
            "STMV with GPUs: 1- and 2-core round robin do not differ",
            "stmv-gpu",
        ),
    ]
}

struct Table<'a>(&'a [Row]);

/// Differences below this are what the study calls error.
const SAME: f64 = 0.05;

impl Table<'_> {
    fn seconds(&self, program: &str, tasks: usize, turn: u32) -> Option<f64> {
        let is_it = |row: &&Row| {
            (row.program, row.tasks, row.turn, row.network) == (program, tasks, turn, NETWORKS[0])
        };
        self.0.iter().find(is_it)?.seconds.as_ref().ok().copied()
    }

    fn sizes(&self, program: &str) -> Vec<usize> {
        let mut sizes: Vec<usize> = self
            .0
            .iter()
            .filter(|row| row.program == program)
            .map(|row| row.tasks)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Those of the study's three placements that were run: turns of 2 are not in its figures of CPU programs.
    fn placements(&self, program: &str, tasks: usize) -> Vec<(u32, f64)> {
        let of = |turn| {
            self.seconds(program, tasks, turn)
                .map(|seconds| (turn, seconds))
        };
        [1, 6, 12].into_iter().filter_map(of).collect()
    }

    fn best(&self, claim: &'static str, program: &str, share: f64) -> Finding {
        let (mut won, mut all, mut figures) = (0, 0, Vec::new());
        for tasks in self.sizes(program) {
            let placements = self.placements(program, tasks);
            let Some(best) = placements.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
                continue;
            };
            let first = placements[0];
            all += 1;
            // A tie within half a percent is not lost.
            won += usize::from(first.0 == 1 && first.1 <= best.1 * 1.005);
            figures.push(format!(
                "{tasks}: rr:{} {:+.1} %",
                best.0,
                100.0 * (first.1 / best.1 - 1.0)
            ));
        }
        Finding {
            claim,
            reproduced: all > 0 && won as f64 >= share * all as f64,
            figures: format!(
                "best at {won} of {all} sizes; best and by how much 1-core is behind it, {}",
                figures.join(", ")
            ),
        }
    }

    fn gap(&self, claim: &'static str, program: &str) -> Finding {
        let seconds: Vec<f64> = self
            .placements(program, 16)
            .iter()
            .map(|(_, seconds)| *seconds)
            .collect();
        let (least, most) = range(&seconds);
        Finding {
            claim,
            reproduced: (10.0..=40.0).contains(&(most - least)),
            figures: format!("{least:.1} to {most:.1} s: {:.1} s", most - least),
        }
    }

    fn indifferent(&self) -> Finding {
        let mut figures = Vec::new();
        let mut worst = 0.0_f64;
        for tasks in self.sizes("is") {
            let seconds: Vec<f64> = self
                .placements("is", tasks)
                .iter()
                .map(|(_, seconds)| *seconds)
                .collect();
            let (least, most) = range(&seconds);
            worst = worst.max(most - least);
            figures.push(format!("{tasks}: {least:.2} to {most:.2} s"));
        }
        Finding {
            claim: "IS: placements differ by no more than error (under 1 s; its figure ends at 4 s)",
            reproduced: worst < 1.0,
            figures: figures.join(", "),
        }
    }

    fn starved(&self) -> Finding {
        let mut figures = Vec::new();
        let mut slower = true;
        for tasks in [16, 32, 64, 128] {
            let (Some(one), Some(twelve)) = (
                self.seconds("himeno", tasks, 1),
                self.seconds("himeno", tasks, 12),
            ) else {
                slower = false;
                continue;
            };
            slower &= twelve > one * (1.0 + SAME);
            figures.push(format!("{tasks}: {:.2} times slower", twelve / one));
        }
        Finding {
            claim: "12-core round robin starves Himeno of memory bandwidth",
            reproduced: slower,
            figures: figures.join(", "),
        }
    }

    /// The size at which 1-core round robin computes fastest, and how fast.
    fn top(&self, program: &str) -> Option<(usize, f64)> {
        let rows = self
            .0
            .iter()
            .filter(|row| row.program == program && row.turn == 1 && row.network == NETWORKS[0]);
        let rates = rows.filter_map(|row| row.mflops().map(|rate| (row.tasks, rate)));
        rates.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn peak(&self, claim: &'static str, program: &str, tasks: usize) -> Finding {
        let rows = self
            .0
            .iter()
            .filter(|row| row.program == program && row.turn == 1 && row.network == NETWORKS[0]);
        let rates: Vec<String> = rows
            .filter_map(|row| {
                row.mflops()
                    .map(|rate| format!("{}: {:.0} GFLOPS", row.tasks, rate / 1e3))
            })
            .collect();
        Finding {
            claim,
            reproduced: self.top(program).is_some_and(|(at, _)| at == tasks),
            figures: rates.join(", "),
        }
    }

    fn same_height(&self) -> Finding {
        let tops = (self.top("himeno"), self.top("himeno-intel"));
        let (reproduced, figures) = match tops {
            (Some((_, gcc)), Some((_, intel))) => (
                (gcc / intel - 1.0).abs() < 0.1,
                format!("{:.0} and {:.0} GFLOPS", gcc / 1e3, intel / 1e3),
            ),
            _ => (false, "no peak".to_owned()),
        };
        Finding {
            claim: "Both compilers' peaks are about as high",
            reproduced,
            figures,
        }
    }

    fn gain(&self, claim: &'static str, program: &str, least: f64, most: f64) -> Finding {
        let with = format!("{program}-gpu");
        let gains: Vec<(usize, f64)> = self
            .sizes(program)
            .into_iter()
            .filter_map(|tasks| {
                Some((
                    tasks,
                    self.seconds(program, tasks, 1)? / self.seconds(&with, tasks, 1)?,
                ))
            })
            .collect();
        let inside = match (gains.first(), gains.last()) {
            (Some((_, first)), Some((_, last))) => {
                (least..=most).contains(first) && (least == 0.0 || last < first)
            }
            _ => false,
        };
        let figures: Vec<String> = gains
            .iter()
            .map(|(tasks, gain)| format!("{tasks}: {gain:.2}"))
            .collect();
        Finding {
            claim,
            reproduced: inside,
            figures: figures.join(", "),
        }
    }

    fn turns(&self, claim: &'static str, program: &str) -> Finding {
        let mut worst = 0.0_f64;
        for tasks in self.sizes(program) {
            if let (Some(one), Some(two)) = (
                self.seconds(program, tasks, 1),
                self.seconds(program, tasks, 2),
            ) {
                worst = worst.max((two / one - 1.0).abs());
            }
        }
        Finding {
            claim,
            reproduced: worst < SAME && !self.sizes(program).is_empty(),
            figures: format!("at most {:.1} %", 100.0 * worst),
        }
    }
}

fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (
        least.min(f64::MAX),
        values.iter().copied().fold(0.0, f64::max),
    )
}

/// Network, program and tasks.
type Key<'a> = (&'a str, &'a str, usize);

/// Kendall's rank correlation between estimates and simulated times of the placements of each program, size and network; its
/// mean, and how many groups there are. Placements whose times differ by less than a percent are equal.
pub fn agreement(rows: &[Row]) -> (f64, usize) {
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

/// The page about a run of the study: what was asked, what came out, finding by finding.
pub fn page(rows: &[Row]) -> String {
    let failed = rows.iter().filter(|row| row.seconds.is_err()).count();
    let (tau, groups) = agreement(rows);
    let mut text = String::from("| finding of the study | here | figures |\n| --- | --- | --- |\n");
    for finding in findings(rows) {
        let here = if finding.reproduced {
            "reproduced"
        } else {
            "**not reproduced**"
        };
        let _ = writeln!(text, "| {} | {here} | {} |", finding.claim, finding.figures);
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

    fn row(program: &'static str, tasks: usize, turn: u32, seconds: f64) -> Row {
        Row {
            network: NETWORKS[0],
            program,
            tasks,
            turn,
            estimate_s: seconds * 2.0,
            seconds: Ok(seconds),
        }
    }

    #[test]
    fn findings_follow_the_rows() {
        let mut rows = vec![
            row("ft", 16, 1, 50.0),
            row("ft", 16, 6, 60.0),
            row("ft", 16, 12, 72.0),
        ];
        let find = |rows: &[Row], start: &str| {
            let all = findings(rows);
            all.into_iter()
                .find(|finding| finding.claim.starts_with(start))
                .unwrap()
                .reproduced
        };
        assert!(find(&rows, "FT: 1-core") && find(&rows, "FT: about 20 s"));
        assert!(!find(&rows, "LU"), "nothing is no finding");
        rows[0].seconds = Ok(65.0);
        assert!(!find(&rows, "FT: 1-core"));
        rows[0].seconds = Err("it died".to_owned());
        assert!(!find(&rows, "FT: 1-core"), "a failed run is not scored");
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
