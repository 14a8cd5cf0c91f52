//! How runs become a result: the method of the rCUDA paper (section III-C). The slowest and the fastest run are dropped, time and
//! average power of the others are averaged, and their product is the energy.
//!
//! What cannot be read is missing everywhere, and a total that lacks a part says so.

use serde::{Deserialize, Serialize};

/// A figure for each side and for both.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Sides {
    /// Of the client; null is unknown.
    pub client: Side,
    /// Of the server.
    pub server: Side,
    /// Of both: of what is known.
    pub total: Side,
}

/// One figure.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Side {
    /// Null where nothing could be read.
    pub value: Option<f64>,
    /// Something that belongs to it is not in the value.
    pub partial: bool,
}

impl Sides {
    /// Both sides of a system, and their total. A side that does not exist is `None`.
    pub fn new(client: Option<Side>, server: Option<Side>) -> Self {
        let present = [client, server].into_iter().flatten();
        let known: Vec<f64> = present.clone().filter_map(|side| side.value).collect();
        let total = Side {
            value: (!known.is_empty()).then(|| known.iter().sum()),
            partial: present
                .into_iter()
                .any(|side| side.partial || side.value.is_none()),
        };
        Self {
            client: client.unwrap_or_default(),
            server: server.unwrap_or_default(),
            total,
        }
    }

    fn map(self, change: impl Fn(f64) -> f64) -> Self {
        let side = |side: Side| Side {
            value: side.value.map(&change),
            ..side
        };
        Self {
            client: side(self.client),
            server: side(self.server),
            total: side(self.total),
        }
    }
}

/// One run of the program.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Repetition {
    /// How long it took.
    pub time_s: f64,
    /// Average power meanwhile.
    pub power_w: Sides,
    /// Whether it counts: the slowest and the fastest do not.
    pub kept: bool,
}

/// What all runs say.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Outcome {
    /// Mean time of the runs that count.
    pub time_s: f64,
    /// Mean of their average power.
    pub power_w: Sides,
    /// Power times time.
    pub energy_j: Sides,
}

/// Marks the slowest and the fastest run; `None` if then none is left.
pub(super) fn outcome(runs: &mut [Repetition]) -> Option<Outcome> {
    let order = |runs: &[Repetition]| {
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by(|a, b| runs[*a].time_s.total_cmp(&runs[*b].time_s));
        order
    };
    let order = order(runs);
    let kept = order.get(1..order.len().checked_sub(1)?)?;
    for (index, run) in runs.iter_mut().enumerate() {
        run.kept = kept.contains(&index);
    }
    let kept: Vec<&Repetition> = runs.iter().filter(|run| run.kept).collect();
    if kept.is_empty() {
        return None;
    }
    let count = kept.len() as f64;
    let time_s = kept.iter().map(|run| run.time_s).sum::<f64>() / count;
    let mean = |pick: fn(&Sides) -> Side| -> Side {
        let values: Option<Vec<f64>> = kept.iter().map(|run| pick(&run.power_w).value).collect();
        Side {
            value: values.map(|values| values.iter().sum::<f64>() / count),
            partial: kept.iter().any(|run| pick(&run.power_w).partial),
        }
    };
    let power_w = Sides {
        client: mean(|sides| sides.client),
        server: mean(|sides| sides.server),
        total: mean(|sides| sides.total),
    };
    Some(Outcome {
        time_s,
        power_w,
        energy_j: power_w.map(|watts| watts * time_s),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(value: f64) -> Option<Side> {
        Some(Side {
            value: Some(value),
            partial: false,
        })
    }

    fn run(time_s: f64, client: Option<f64>, server: f64) -> Repetition {
        let client = Some(Side {
            value: client,
            partial: false,
        });
        Repetition {
            time_s,
            power_w: Sides::new(client, known(server)),
            kept: false,
        }
    }

    #[test]
    fn slowest_and_fastest_run_do_not_count() {
        let mut runs: Vec<Repetition> = [
            (9.0, 500.0),
            (2.0, 40.0),
            (1.0, 900.0),
            (4.0, 60.0),
            (3.0, 50.0),
        ]
        .map(|(time_s, watts)| run(time_s, Some(10.0), watts))
        .into();
        let outcome = outcome(&mut runs).unwrap();
        assert_eq!(outcome.time_s, 3.0);
        assert_eq!(outcome.power_w.server.value, Some(50.0));
        assert_eq!(outcome.power_w.total.value, Some(60.0));
        assert_eq!(outcome.energy_j.total.value, Some(180.0));
        let kept: Vec<bool> = runs.iter().map(|run| run.kept).collect();
        assert_eq!(kept, [false, true, false, true, true]);
    }

    #[test]
    fn unknown_side_stays_unknown_and_makes_the_total_partial() {
        let mut runs = [1.0, 2.0, 3.0].map(|time_s| run(time_s, None, 100.0));
        let outcome = outcome(&mut runs).unwrap();
        assert_eq!(outcome.power_w.client.value, None);
        assert_eq!(outcome.energy_j.client.value, None);
        assert_eq!(outcome.energy_j.total.value, Some(200.0));
        assert!(outcome.energy_j.total.partial);
    }

    #[test]
    fn total_of_one_whole_side_is_whole() {
        assert!(!Sides::new(known(5.0), None).total.partial);
        let part = Some(Side {
            value: Some(5.0),
            partial: true,
        });
        assert!(Sides::new(known(5.0), part).total.partial);
        assert_eq!(Sides::new(None, None).total.value, None);
    }

    #[test]
    fn two_runs_leave_nothing_to_average() {
        let mut runs = [1.0, 2.0].map(|time_s| run(time_s, Some(1.0), 1.0));
        assert_eq!(outcome(&mut runs), None);
        assert_eq!(outcome(&mut []), None);
    }
}
