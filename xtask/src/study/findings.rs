//! What the study found, each with a criterion, against simulated rows.
//!
//! Criteria follow from the study's words and figures alone. They were fixed before the programs' costs were derived, and are
//! not to be changed for what comes out.

use super::{NETWORKS, Point, Row, points};

/// Shares of time below this are taken for nothing when a best placement is asked for.
const LEAD: f64 = 0.01;

/// "About 20 s", as two figures whose axes end at 60 and 160 s can be read.
const ABOUT_20_S: std::ops::RangeInclusive<f64> = 15.0..=25.0;

/// "Error" of a figure whose axis ends at 4 s: a twentieth of it.
const IS_ERROR_S: f64 = 0.2;

/// What is starved is slower by so much.
const STARVED: f64 = 0.10;

/// A peak stands out of its neighbours, which the figures show, by so much.
const PEAK: f64 = 0.02;

/// Two peaks of about the same height.
const SAME_HEIGHT: f64 = 0.05;

/// "About 5.5 times", and the other program's gain: its axis ends there.
const STMV_GAIN: std::ops::RangeInclusive<f64> = 4.5..=6.5;
const ATPASE_GAIN: f64 = 1.6;

/// Two curves that lie on each other.
const NO_DIFFERENCE: f64 = 0.03;

/// A finding of the study and whether it comes out here.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    /// A word to name it by in tables.
    pub(super) name: &'static str,
    pub(super) claim: &'static str,
    /// What has to be the case.
    pub(super) criterion: &'static str,
    pub(super) reproduced: bool,
    pub(super) figures: String,
    /// Points of the study that it takes.
    needs: Vec<Need>,
}

/// Runs of one program that a finding takes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Need {
    program: &'static str,
    /// Counts of tasks; none are all.
    tasks: &'static [usize],
    turns: &'static [u32],
}

impl Finding {
    /// The number of its points without a row: with one missing there is no saying whether it comes out.
    pub(super) fn missing(&self, rows: &[Row]) -> usize {
        let has_row = |point: &Point| {
            rows.iter().any(|row| {
                (row.network, row.program, row.tasks, row.turn)
                    == (point.network, point.kernel.name(), point.tasks, point.turn)
            })
        };
        let is_needed = |point: &Point| {
            self.needs.iter().any(|need| {
                need.program == point.kernel.name()
                    && (need.tasks.is_empty() || need.tasks.contains(&point.tasks))
                    && need.turns.contains(&point.turn)
            })
        };
        let points = points(&NETWORKS[..1]);
        points
            .iter()
            .filter(|point| is_needed(point) && !has_row(point))
            .count()
    }
}

/// The study's three placements of CPU programs.
const TURNS: &[u32] = &[1, 6, 12];

fn all_of(program: &'static str, turns: &'static [u32]) -> Need {
    Need {
        program,
        tasks: &[],
        turns,
    }
}

fn smallest_of(program: &'static str) -> Need {
    Need {
        program,
        tasks: &[16],
        turns: TURNS,
    }
}

/// The study's findings against its network's rows.
pub(super) fn findings(rows: &[Row]) -> Vec<Finding> {
    let table = Table(rows);
    let throughout = "1-core round robin is ahead of 6- and 12-core by at least 1 % at every size";
    let mostly = "1-core round robin is ahead of 6- and 12-core by at least 1 % at more than half of the sizes";
    let gap = "the best and the worst of 1-, 6- and 12-core at 16 tasks are 15 to 25 s apart";
    let peak =
        "with 1-core round robin it computes faster there than at any other size, by at least 2 %";
    let turns = "at most 3 % between them at any size";
    vec![
        table.best(
            "ft-best",
            "FT: 1-core round robin is best throughout",
            throughout,
            "ft",
            1.0,
        ),
        table.best(
            "cg-best",
            "CG: 1-core round robin is best, with exceptions",
            mostly,
            "cg",
            0.5,
        ),
        table.best(
            "lu-best",
            "LU: 1-core round robin is best, as for CG",
            mostly,
            "lu",
            0.5,
        ),
        table.best(
            "himeno-best",
            "Himeno (GCC): 1-core round robin is mostly best",
            mostly,
            "himeno",
            0.5,
        ),
        table.best(
            "himeno-intel-best",
            "Himeno (Intel): 1-core round robin is mostly best",
            mostly,
            "himeno-intel",
            0.5,
        ),
        table.gap(
            "ft-gap",
            "FT: about 20 s between placements at 16 tasks",
            gap,
            "ft",
        ),
        table.gap(
            "lu-gap",
            "LU: about 20 s between placements at 16 tasks",
            gap,
            "lu",
        ),
        table.lesser_gap(),
        table.indifferent(),
        table.starved(),
        table.peak(
            "himeno-peak",
            "Himeno peaks at 256 cores as GCC compiles it",
            peak,
            "himeno",
            256,
        ),
        table.peak(
            "himeno-intel-peak",
            "Himeno peaks at 128 cores as Intel's compiler does",
            peak,
            "himeno-intel",
            128,
        ),
        table.same_height(),
        table.large_gain(),
        table.small_gain(),
        table.turns(
            "atpase-turns",
            "ATPase with GPUs: 1- and 2-core round robin do not differ",
            turns,
            "atpase-gpu",
        ),
        table.turns(
            "stmv-turns",
            "STMV with GPUs: 1- and 2-core round robin do not differ",
            turns,
            "stmv-gpu",
        ),
    ]
}

struct Table<'a>(&'a [Row]);

impl Table<'_> {
    fn seconds(&self, program: &str, tasks: usize, turn: u32) -> Option<f64> {
        let is_it = |row: &&Row| {
            (row.program, row.tasks, row.turn, row.network) == (program, tasks, turn, NETWORKS[0])
        };
        self.0.iter().find(is_it)?.seconds.as_ref().ok().copied()
    }

    fn sizes(&self, program: &str) -> Vec<usize> {
        let of_it = |row: &&Row| row.program == program && row.network == NETWORKS[0];
        let mut sizes: Vec<usize> = self.0.iter().filter(of_it).map(|row| row.tasks).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The study's three placements, if all were run: turns of 2 are not in its figures of CPU programs.
    fn placements(&self, program: &str, tasks: usize) -> Option<[(u32, f64); 3]> {
        let of = |turn| Some((turn, self.seconds(program, tasks, turn)?));
        Some([of(1)?, of(6)?, of(12)?])
    }

    fn spread(&self, program: &str, tasks: usize) -> Option<(f64, f64)> {
        let seconds = self.placements(program, tasks)?.map(|(_, seconds)| seconds);
        let least = seconds.into_iter().fold(f64::INFINITY, f64::min);
        Some((least, seconds.into_iter().fold(0.0, f64::max)))
    }

    /// `share`: of the sizes that must be won, more than; 1 is all.
    fn best(
        &self,
        name: &'static str,
        claim: &'static str,
        criterion: &'static str,
        program: &'static str,
        share: f64,
    ) -> Finding {
        let (mut won, mut whole, mut figures) = (0_usize, true, Vec::new());
        let sizes = self.sizes(program);
        for &tasks in &sizes {
            let Some([first, six, twelve]) = self.placements(program, tasks) else {
                whole = false;
                continue;
            };
            let other = if six.1 < twelve.1 { six } else { twelve };
            let ahead = other.1 / first.1 - 1.0;
            won += usize::from(ahead >= LEAD);
            figures.push(format!("{tasks}: {:+.1} % (rr:{})", 100.0 * ahead, other.0));
        }
        let enough = if share < 1.0 {
            won as f64 > share * sizes.len() as f64
        } else {
            won == sizes.len()
        };
        Finding {
            name,
            claim,
            criterion,
            reproduced: whole && !sizes.is_empty() && enough,
            figures: format!(
                "at {won} of {} sizes; the better of the others is slower by {}",
                sizes.len(),
                figures.join(", ")
            ),
            needs: vec![all_of(program, TURNS)],
        }
    }

    fn gap(
        &self,
        name: &'static str,
        claim: &'static str,
        criterion: &'static str,
        program: &'static str,
    ) -> Finding {
        let spread = self.spread(program, 16);
        Finding {
            name,
            claim,
            criterion,
            reproduced: spread.is_some_and(|(least, most)| ABOUT_20_S.contains(&(most - least))),
            figures: spread.map_or(NO_FIGURES.to_owned(), |(least, most)| {
                format!("{least:.1} to {most:.1} s: {:.1} s", most - least)
            }),
            needs: vec![smallest_of(program)],
        }
    }

    fn lesser_gap(&self) -> Finding {
        let share = |program| {
            self.spread(program, 16)
                .map(|(least, most)| most / least - 1.0)
        };
        let shares = (share("lu"), share("cg"));
        let (reproduced, figures) = match shares {
            (Some(lu), Some(cg)) => (
                lu < cg,
                format!("{:.1} % and {:.1} %", 100.0 * lu, 100.0 * cg),
            ),
            _ => (false, NO_FIGURES.to_owned()),
        };
        Finding {
            name: "lu-less",
            claim: "LU: placements differ less than for CG",
            criterion: "the worst of 1-, 6- and 12-core is behind the best by a smaller share at 16 tasks",
            reproduced,
            figures,
            needs: vec![smallest_of("lu"), smallest_of("cg")],
        }
    }

    fn indifferent(&self) -> Finding {
        let spreads: Vec<(usize, Option<(f64, f64)>)> = self
            .sizes("is")
            .into_iter()
            .map(|tasks| (tasks, self.spread("is", tasks)))
            .collect();
        let small = |spread: &Option<(f64, f64)>| {
            spread.is_some_and(|(least, most)| most - least < IS_ERROR_S)
        };
        let figure = |(tasks, spread): &(usize, Option<(f64, f64)>)| {
            let (least, most) = (*spread)?;
            Some(format!("{tasks}: {least:.2} to {most:.2} s"))
        };
        let figures: Vec<String> = spreads.iter().filter_map(figure).collect();
        Finding {
            name: "is-same",
            claim: "IS: placements differ by no more than error",
            criterion: "less than 0.2 s between 1-, 6- and 12-core at every size: a twentieth of the figure's axis",
            reproduced: !spreads.is_empty() && spreads.iter().all(|(_, spread)| small(spread)),
            figures: figures.join(", "),
            needs: vec![all_of("is", TURNS)],
        }
    }

    fn starved(&self) -> Finding {
        let slower: Vec<(usize, Option<f64>)> = [16, 32, 64, 128]
            .map(|tasks| {
                let of = |turn| self.seconds("himeno", tasks, turn);
                (tasks, of(12).zip(of(1)).map(|(twelve, one)| twelve / one))
            })
            .into();
        let figures: Vec<String> = slower
            .iter()
            .filter_map(|(tasks, times)| Some(format!("{tasks}: {:.2} times slower", (*times)?)))
            .collect();
        let is_starved =
            |(_, times): &(usize, Option<f64>)| times.is_some_and(|times| times >= 1.0 + STARVED);
        Finding {
            name: "himeno-starved",
            claim: "12-core round robin starves Himeno (GCC) of memory bandwidth",
            criterion: "it is slower than 1-core by at least 10 % at 16, 32, 64 and 128 tasks",
            reproduced: slower.iter().all(is_starved),
            figures: figures.join(", "),
            needs: vec![Need {
                program: "himeno",
                tasks: &[16, 32, 64, 128],
                turns: &[1, 12],
            }],
        }
    }

    /// With 1-core round robin: tasks and GFLOPS.
    fn rates(&self, program: &str) -> Vec<(usize, f64)> {
        let rate = |row: &Row| {
            let is_it = row.program == program && row.turn == 1 && row.network == NETWORKS[0];
            is_it
                .then(|| row.mflops())?
                .map(|rate| (row.tasks, rate / 1e3))
        };
        self.0.iter().filter_map(rate).collect()
    }

    fn peak(
        &self,
        name: &'static str,
        claim: &'static str,
        criterion: &'static str,
        program: &'static str,
        tasks: usize,
    ) -> Finding {
        let rates = self.rates(program);
        let there = rates.iter().find(|(at, _)| *at == tasks);
        let stands_out = |there: &(usize, f64)| {
            let mut others = rates.iter().filter(|(at, _)| *at != tasks).peekable();
            others.peek().is_some() && others.all(|(_, rate)| there.1 >= rate * (1.0 + PEAK))
        };
        let figures: Vec<String> = rates
            .iter()
            .map(|(tasks, rate)| format!("{tasks}: {rate:.0} GFLOPS"))
            .collect();
        Finding {
            name,
            claim,
            criterion,
            reproduced: there.is_some_and(stands_out),
            figures: figures.join(", "),
            needs: vec![all_of(program, &[1])],
        }
    }

    fn same_height(&self) -> Finding {
        let top = |program| {
            let rates = self.rates(program);
            let (_, rate) = rates.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
            Some(rate)
        };
        let (reproduced, figures) = match (top("himeno"), top("himeno-intel")) {
            (Some(gcc), Some(intel)) => (
                (gcc / intel - 1.0).abs() <= SAME_HEIGHT,
                format!("{gcc:.0} and {intel:.0} GFLOPS"),
            ),
            _ => (false, NO_FIGURES.to_owned()),
        };
        Finding {
            name: "himeno-height",
            claim: "Both compilers' peaks are about as high",
            criterion: "the highest rates over all sizes are within 5 % of each other",
            reproduced,
            figures,
            needs: vec![all_of("himeno", &[1]), all_of("himeno-intel", &[1])],
        }
    }

    /// How many times as fast with GPUs, at each size.
    fn gains(&self, program: &str) -> Vec<(usize, f64)> {
        let with = format!("{program}-gpu");
        let gain = |tasks| {
            let of = |program| self.seconds(program, tasks, 1);
            Some((tasks, of(program)? / of(&with)?))
        };
        self.sizes(program).into_iter().filter_map(gain).collect()
    }

    fn large_gain(&self) -> Finding {
        let gains = self.gains("stmv");
        let most = gains.iter().map(|(_, gain)| *gain).fold(0.0, f64::max);
        let falls = gains.len() > 1 && gains.windows(2).all(|pair| pair[1].1 < pair[0].1);
        Finding {
            name: "stmv-gain",
            claim: "STMV: CPU+GPU gains about 5.5 times at few cores, and less with more",
            criterion: "the largest gain is 4.5 to 6.5, and it falls from each size to the next",
            reproduced: STMV_GAIN.contains(&most) && falls,
            figures: list(&gains),
            needs: vec![all_of("stmv", &[1]), all_of("stmv-gpu", &[1])],
        }
    }

    fn small_gain(&self) -> Finding {
        let gains = self.gains("atpase");
        Finding {
            name: "atpase-gain",
            claim: "ATPase: CPU+GPU makes no great difference",
            criterion: "the gain is at most 1.6, where the figure's axis ends, at every size",
            reproduced: !gains.is_empty() && gains.iter().all(|(_, gain)| *gain <= ATPASE_GAIN),
            figures: list(&gains),
            needs: vec![all_of("atpase", &[1]), all_of("atpase-gpu", &[1])],
        }
    }

    fn turns(
        &self,
        name: &'static str,
        claim: &'static str,
        criterion: &'static str,
        program: &'static str,
    ) -> Finding {
        let difference = |tasks| {
            let of = |turn| self.seconds(program, tasks, turn);
            Some((of(2)? / of(1)? - 1.0).abs())
        };
        let differences: Option<Vec<f64>> =
            self.sizes(program).into_iter().map(difference).collect();
        let worst = differences
            .filter(|all| !all.is_empty())
            .map(|all| all.into_iter().fold(0.0, f64::max));
        Finding {
            name,
            claim,
            criterion,
            reproduced: worst.is_some_and(|worst| worst <= NO_DIFFERENCE),
            figures: worst.map_or(NO_FIGURES.to_owned(), |worst| {
                format!("at most {:.1} %", 100.0 * worst)
            }),
            needs: vec![all_of(program, &[1, 2])],
        }
    }
}

const NO_FIGURES: &str = "not all was run";

fn list(gains: &[(usize, f64)]) -> String {
    let figures: Vec<String> = gains
        .iter()
        .map(|(tasks, gain)| format!("{tasks}: {gain:.2}"))
        .collect();
    figures.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    fn holds(rows: &[Row], name: &str) -> bool {
        let all = findings(rows);
        all.iter()
            .find(|finding| finding.name == name)
            .unwrap()
            .reproduced
    }

    #[test]
    fn missing_points_of_a_finding_are_counted() {
        let rows = [row("ft", 16, 1, 50.0), row("ft", 16, 12, 72.0)];
        let missing = |name| {
            let all = findings(&rows);
            all.iter()
                .find(|finding| finding.name == name)
                .unwrap()
                .missing(&rows)
        };
        assert_eq!((missing("ft-gap"), missing("ft-best")), (1, 16));
        assert_eq!((missing("lu-less"), missing("himeno-starved")), (6, 8));
        assert_eq!((missing("stmv-turns"), missing("stmv-gain")), (10, 10));
    }

    #[test]
    fn findings_follow_the_rows() {
        let mut rows = vec![
            row("ft", 16, 1, 50.0),
            row("ft", 16, 6, 60.0),
            row("ft", 16, 12, 72.0),
        ];
        assert!(holds(&rows, "ft-best") && holds(&rows, "ft-gap"));
        assert!(!holds(&rows, "lu-best"), "nothing is no finding");
        rows[0].seconds = Ok(59.9);
        assert!(!holds(&rows, "ft-best"), "a tie is no lead");
        assert!(!holds(&rows, "ft-gap"), "12 s are not about 20 s");
        rows[0].seconds = Err("it died".to_owned());
        assert!(!holds(&rows, "ft-best"), "a failed run is not scored");
    }

    #[test]
    fn a_plateau_is_no_peak() {
        let rows = |at_512| {
            vec![
                row("himeno", 128, 1, 8.0),
                row("himeno", 256, 1, 4.0),
                row("himeno", 512, 1, at_512),
            ]
        };
        assert!(holds(&rows(4.5), "himeno-peak"));
        assert!(!holds(&rows(4.04), "himeno-peak"));
        assert!(!holds(&rows(3.0), "himeno-peak"));
    }

    #[test]
    fn a_gain_must_be_large_and_fall_all_the_way() {
        let rows = |gains: [f64; 3]| {
            let mut rows = Vec::new();
            for (tasks, gain) in [16, 32, 64].into_iter().zip(gains) {
                rows.push(row("stmv", tasks, 1, 10.0 * gain));
                rows.push(row("stmv-gpu", tasks, 1, 10.0));
            }
            rows
        };
        assert!(holds(&rows([5.5, 5.0, 3.0]), "stmv-gain"));
        assert!(!holds(&rows([5.5, 5.6, 3.0]), "stmv-gain"));
        assert!(!holds(&rows([7.0, 5.0, 3.0]), "stmv-gain"));
    }
}
