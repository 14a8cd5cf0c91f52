//! Means and their intervals.

use serde::{Deserialize, Serialize};

/// A mean of several figures and how sure it is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// The mean of all lies between this
    pub low: f64,
    /// and this, in 95 of 100 cases; both are the mean where there is only one figure.
    pub high: f64,
    /// Of how many.
    pub count: usize,
}

/// Student's t for 95 %, both sides, by degrees of freedom from 1.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The mean of figures with its 95 % interval; `None` of none.
#[must_use]
pub fn interval(figures: &[f64]) -> Option<Interval> {
    let count = figures.len();
    let mean = figures.iter().sum::<f64>() / count as f64;
    let freedom = count.checked_sub(1)?;
    let half = match freedom {
        0 => 0.0,
        _ => {
            let variance = figures
                .iter()
                .map(|figure| (figure - mean).powi(2))
                .sum::<f64>()
                / freedom as f64;
            let t = T.get(freedom - 1).copied().unwrap_or(1.96);
            t * (variance / count as f64).sqrt()
        }
    };
    Some(Interval {
        mean,
        low: mean - half,
        high: mean + half,
        count,
    })
}

/// The share of native that the machines reach: of each pair of runs that followed each other, then the mean of these. What slows
/// both runs of a pair down cancels out.
#[must_use]
pub fn efficiency(pairs: &[(f64, f64)], is_rate: bool) -> Option<Interval> {
    let shares: Vec<f64> = pairs
        .iter()
        .map(|&(native, vm)| if is_rate { vm / native } else { native / vm })
        .filter(|share| share.is_finite())
        .collect();
    interval(&shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_the_tables() {
        // Mean 5, standard deviation 2 (n - 1: 2.138), 8 figures: t = 2.365.
        let found = interval(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert!(
            (found.mean - 5.0).abs() < 1e-9 && (found.high - 6.7877).abs() < 1e-3,
            "{found:?}"
        );
        assert!((found.high + found.low - 10.0).abs() < 1e-9);
        assert_eq!(interval(&[]), None);
        let one = interval(&[3.0]).unwrap();
        assert_eq!((one.low, one.high), (3.0, 3.0));
    }

    #[test]
    fn a_share_is_of_native_whether_more_or_less_is_better() {
        let rate = efficiency(&[(100.0, 98.0), (200.0, 196.0)], true).unwrap();
        assert!((rate.mean - 0.98).abs() < 1e-9 && rate.high - rate.low < 1e-9);
        let time = efficiency(&[(49.0, 50.0), (98.0, 100.0)], false).unwrap();
        assert!((time.mean - 0.98).abs() < 1e-9);
    }

    #[test]
    fn what_slows_both_runs_of_a_pair_cancels_out() {
        let pairs = [(100.0, 97.0), (50.0, 48.5), (80.0, 77.6)];
        let found = efficiency(&pairs, true).unwrap();
        assert!((found.mean - 0.97).abs() < 1e-9 && found.high - found.low < 1e-6);
    }
}
