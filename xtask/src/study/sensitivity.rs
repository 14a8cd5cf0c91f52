//! Which findings outlive a change of an assumption.

use std::collections::BTreeSet;
use std::fmt::Write;

use towline_place::program::declared::Quantity;
use towline_place::program::declared::assumed::ASSUMPTIONS;

use super::{Finding, NETWORKS, Point, Row, findings, points};

/// How many times as large each assumed value is made.
pub(super) const FACTORS: [f64; 2] = [0.7, 1.3];

/// Most tasks of what is looked at: beyond, estimate and simulator part. Himeno's findings need all its sizes.
const MOST: usize = 128;

fn is_part(program: &str, tasks: usize, turn: u32) -> bool {
    let gpus_turn = program.ends_with("-gpu") && turn == 2;
    (tasks <= MOST || program.starts_with("himeno")) && (turn != 2 || gpus_turn)
}

/// What has to be run: every point as it is, and with each value varied that concerns it.
pub(super) fn variations() -> Vec<Point> {
    let mut base = points(&NETWORKS[..1]);
    base.retain(|point| is_part(point.kernel.name(), point.tasks, point.turn));
    let mut all = base.clone();
    for assumption in ASSUMPTIONS {
        let concerned = |point: &&Point| {
            let program = point.kernel.name();
            // Hardware threads count where there are more tasks than cores.
            let threads = assumption.quantity != Quantity::ThreadsGain || point.tasks > 384;
            threads && assumption.concerns(program)
        };
        for factor in FACTORS {
            all.extend(base.iter().filter(concerned).map(|point| Point {
                varied: Some((assumption.quantity, factor)),
                ..*point
            }));
        }
    }
    all
}

/// The findings where one value is other than assumed: rows with it, and for the rest those without.
fn findings_with(rows: &[Row], varied: Option<(Quantity, f64)>) -> Vec<Finding> {
    let again: Vec<Row> = rows
        .iter()
        .filter(|row| varied.is_some() && row.varied == varied)
        .cloned()
        .collect();
    let key = |row: &Row| (row.network, row.program, row.tasks, row.turn);
    let known: BTreeSet<_> = again.iter().map(key).collect();
    let rest = rows
        .iter()
        .filter(|row| row.varied.is_none() && !known.contains(&key(row)))
        .cloned();
    findings(&again.iter().cloned().chain(rest).collect::<Vec<_>>())
}

/// A table of findings that change with an assumption, and the names of those that never do.
pub(super) fn page(rows: &[Row]) -> String {
    let base = findings_with(rows, None);
    let mut text = String::from("| assumption | 30 % less | 30 % more |\n| --- | --- | --- |\n");
    let mut moved = BTreeSet::new();
    for assumption in ASSUMPTIONS {
        let cells = FACTORS.map(|factor| {
            let varied = Some((assumption.quantity, factor));
            if !rows.iter().any(|row| row.varied == varied) {
                return "not run".to_owned();
            }
            let changes: Vec<String> = base
                .iter()
                .zip(findings_with(rows, varied))
                .filter(|(before, after)| before.reproduced != after.reproduced)
                .map(|(_, after)| {
                    moved.insert(after.name);
                    let sign = if after.reproduced { "+" } else { "-" };
                    format!("{sign}{}", after.name)
                })
                .collect();
            match changes.is_empty() {
                true => "no change".to_owned(),
                false => changes.join(", "),
            }
        });
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            assumption.name, cells[0], cells[1]
        );
    }
    let names = |reproduced: bool| -> String {
        let firm: Vec<&str> = base
            .iter()
            .filter(|finding| finding.reproduced == reproduced && !moved.contains(finding.name))
            .map(|finding| finding.name)
            .collect();
        match firm.is_empty() {
            true => "none".to_owned(),
            false => firm.join(", "),
        }
    };
    let _ = writeln!(
        text,
        "\nReproduced whichever value is 30 % off: {}.\nNot reproduced whichever is: {}.",
        names(true),
        names(false)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    #[test]
    fn every_assumption_is_varied_both_ways_and_only_where_it_matters() {
        let all = variations();
        for assumption in ASSUMPTIONS {
            for factor in FACTORS {
                let of_it: Vec<&Point> = all
                    .iter()
                    .filter(|point| point.varied == Some((assumption.quantity, factor)))
                    .collect();
                assert!(!of_it.is_empty(), "{} x{factor}", assumption.name);
                assert!(
                    of_it
                        .iter()
                        .all(|point| assumption.concerns(point.kernel.name()))
                );
            }
        }
    }

    #[test]
    fn a_finding_that_falls_with_an_assumption_is_named() {
        let mut rows = Vec::new();
        for (turn, seconds) in [(1, 50.0), (6, 60.0), (12, 70.0)] {
            rows.push(row("ft", 16, turn, seconds));
            rows.push(Row {
                varied: Some((Quantity::FtBytes, 0.7)),
                ..row("ft", 16, turn, 50.0)
            });
        }
        let text = page(&rows);
        let line = text
            .lines()
            .find(|line| line.starts_with("| ft-bytes"))
            .unwrap();
        assert!(
            line.contains("-ft-best") && line.ends_with("| not run |"),
            "{text}"
        );
        assert!(!text.contains("off: ft-best"));
    }
}
