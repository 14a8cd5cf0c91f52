//! What a source measured over time, and the energy of an interval in it.

/// A gap between samples beyond which nothing is said about the time in it: sampling is at 1 Hz or faster.
const LONGEST_GAP_S: f64 = 2.5;

/// One sample of a source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sample {
    /// Power at this moment.
    Watts(f64),
    /// Energy since some moment in the past; it goes up, or starts anew at `range`.
    Joules { total: f64, range: Option<f64> },
}

/// Energy used since the first sample, by time (seconds since 1970).
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    points: Vec<(f64, f64)>,
    last: Option<Sample>,
}

impl Series {
    /// Adds a sample. One that is not later than the last is left out, and one after a counter was set back starts from there.
    pub(super) fn add(&mut self, at_s: f64, sample: Sample) {
        let finite = match sample {
            Sample::Watts(watts) => watts.is_finite() && watts >= 0.0,
            Sample::Joules { total, .. } => total.is_finite(),
        };
        if !finite {
            return;
        }
        let Some(&(before_s, energy)) = self.points.last() else {
            self.points.push((at_s, 0.0));
            self.last = Some(sample);
            return;
        };
        if at_s <= before_s {
            return;
        }
        let used = match (self.last, sample) {
            (Some(Sample::Watts(before)), Sample::Watts(now)) => {
                (before + now) / 2.0 * (at_s - before_s)
            }
            (Some(Sample::Joules { total: before, .. }), Sample::Joules { total, range }) => {
                let used = total - before;
                if used >= 0.0 {
                    used
                } else {
                    range.map_or(0.0, |range| (used + range).max(0.0))
                }
            }
            _ => 0.0,
        };
        self.points.push((at_s, energy + used));
        self.last = Some(sample);
    }

    /// Samples that were taken.
    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    /// When the last sample was taken.
    pub(super) fn last_s(&self) -> Option<f64> {
        self.points.last().map(|point| point.0)
    }

    /// Energy of an interval, which samples must enclose without long gaps.
    pub(super) fn joules(&self, from_s: f64, to_s: f64) -> Option<f64> {
        let begin = self.points.iter().rposition(|point| point.0 <= from_s)?;
        let end = self.points.iter().position(|point| point.0 >= to_s)?;
        let within = self.points.get(begin..=end)?;
        let holds = within
            .windows(2)
            .all(|pair| pair[1].0 - pair[0].0 <= LONGEST_GAP_S);
        (holds && to_s > from_s).then(|| self.at(to_s) - self.at(from_s))
    }

    /// Energy up to a moment, between two samples as if power were even.
    fn at(&self, at_s: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 < at_s);
        match (after.checked_sub(1), self.points.get(after)) {
            (Some(before), Some(&(later_s, later))) => {
                let (before_s, before) = self.points[before];
                before + (later - before) * (at_s - before_s) / (later_s - before_s)
            }
            (_, Some(&(_, energy))) => energy,
            (_, None) => self.points.last().map_or(0.0, |point| point.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(samples: &[(f64, Sample)]) -> Series {
        let mut series = Series::default();
        for (at_s, sample) in samples {
            series.add(*at_s, *sample);
        }
        series
    }

    #[test]
    fn even_power_gives_power_times_time() {
        let samples: Vec<_> = (0..=10)
            .map(|second| (f64::from(second), Sample::Watts(50.0)))
            .collect();
        assert_eq!(series(&samples).joules(2.5, 6.5), Some(200.0));
    }

    #[test]
    fn counter_that_starts_anew_goes_on() {
        let counter = |total| Sample::Joules {
            total,
            range: Some(100.0),
        };
        let series = series(&[
            (0.0, counter(80.0)),
            (1.0, counter(95.0)),
            (2.0, counter(10.0)),
        ]);
        assert_eq!(series.joules(0.0, 2.0), Some(30.0));
    }

    #[test]
    fn time_that_no_sample_encloses_is_unknown() {
        let series = series(&[(1.0, Sample::Watts(5.0)), (2.0, Sample::Watts(5.0))]);
        assert_eq!(series.joules(0.5, 1.5), None);
        assert_eq!(series.joules(1.5, 2.5), None);
        assert_eq!(series.joules(1.0, 2.0), Some(5.0));
    }

    #[test]
    fn gap_in_the_samples_is_unknown() {
        let series = series(&[
            (0.0, Sample::Watts(5.0)),
            (1.0, Sample::Watts(5.0)),
            (9.0, Sample::Watts(5.0)),
        ]);
        assert_eq!(series.joules(0.5, 8.0), None);
        assert_eq!(series.joules(0.0, 1.0), Some(5.0));
    }

    #[test]
    fn samples_that_are_no_power_are_left_out() {
        let mut series = Series::default();
        series.add(0.0, Sample::Watts(f64::NAN));
        series.add(0.0, Sample::Watts(-3.0));
        assert_eq!(series.len(), 0);
    }
}
