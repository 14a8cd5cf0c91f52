//! Medians and spread. Ratios are taken pair by pair within a repetition and summarised with their own spread, never averaged.

use serde::{Deserialize, Serialize};

/// What repeated measurements of one quantity say.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Summary {
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there are.
    pub n: usize,
}

impl Summary {
    /// Summarises; `None` if there is nothing, or something that is no number.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        };
        Some(Self {
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            n: sorted.len(),
        })
    }
}

/// The median of measurements that are there.
pub fn median(values: &[f64]) -> Option<f64> {
    Summary::of(values).map(|summary| summary.median)
}

/// Ratios of what was measured in the same repetition; repetitions in which one of the two is missing or zero are left out.
pub fn paired_ratios(values: &[Option<f64>], bases: &[Option<f64>]) -> Vec<f64> {
    values
        .iter()
        .zip(bases)
        .filter_map(|(value, base)| match (value, base) {
            (Some(value), Some(base)) if *base != 0.0 => Some(value / base),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        let odd = Summary::of(&[9.0, 1.0, 5.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max, odd.n), (5.0, 1.0, 9.0, 3));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn one_outlier_moves_the_maximum_only() {
        let calm = Summary::of(&[1.0, 1.1, 1.2, 1.3, 1.4]).unwrap();
        let disturbed = Summary::of(&[1.0, 1.1, 1.2, 1.3, 900.0]).unwrap();
        assert_eq!(calm.median, disturbed.median);
        assert_eq!(disturbed.max, 900.0);
    }

    #[test]
    fn nothing_and_no_number_have_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[f64::INFINITY]), None);
    }

    #[test]
    fn ratios_are_of_the_same_repetition() {
        // The machine is three times slower in the second repetition, for both.
        let ratios = paired_ratios(&[Some(2.0), Some(6.0)], &[Some(1.0), Some(3.0)]);
        assert_eq!(ratios, [2.0, 2.0]);
    }

    #[test]
    fn repetitions_without_a_partner_have_no_ratio() {
        let ratios = paired_ratios(
            &[Some(2.0), None, Some(8.0), Some(1.0)],
            &[Some(1.0), Some(1.0), Some(2.0), Some(0.0)],
        );
        assert_eq!(ratios, [2.0, 4.0]);
    }
}
