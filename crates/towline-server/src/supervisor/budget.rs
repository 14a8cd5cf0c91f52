//! How the supervisor divides the descriptors that it may have: sessions first, then what sessions share, so that no client's offers,
//! images or connections keep others from getting in.

use super::MAX_UNPROVEN;

/// Descriptors of one session in the supervisor: its control connection, its worker's channel, log and process, and lanes on their way
/// to it.
const PER_SESSION: usize = 8;
/// Connections without a session that have not been counted, listeners, files, namespaces of jobs, and workers that are being started.
const OTHERS: usize = MAX_UNPROVEN + 512;

/// See the module's text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Budget {
    /// The sessions that there are descriptors for, of those that are wanted.
    pub(super) sessions: u32,
    /// The most that there are descriptors for, should more be wanted later.
    pub(super) most: u32,
    /// Descriptors of offers.
    pub(super) offers: usize,
    /// Descriptors of images.
    pub(super) images: usize,
}

impl Budget {
    /// Divides `limit` descriptors where at most so many sessions and queries are wanted.
    pub(super) fn of(limit: u64, max_sessions: u32, max_queries: usize) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let rest = limit - (OTHERS + max_queries).min(limit / 2);
        let possible = rest / 4 * 3 / PER_SESSION;
        let sessions = max_sessions.min(u32::try_from(possible).unwrap_or(u32::MAX));
        let left = rest - sessions as usize * PER_SESSION;
        let (offers, images) = (left / 2, left / 4);
        let more = (left - offers - images) / PER_SESSION;
        Self {
            sessions,
            most: sessions.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)),
            offers,
            images,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_together_stay_below_the_limit() {
        for limit in [0, 1, 64, 256, 1024, 4096, 20_000, 524_288, u64::MAX] {
            for wanted in [1, 32, 1000, 4096] {
                let budget = Budget::of(limit, wanted, 256);
                let parts = [
                    budget.most as usize * PER_SESSION,
                    budget.offers,
                    budget.images,
                ];
                let sum: u128 = parts.iter().map(|part| *part as u128).sum();
                assert!(sum <= u128::from(limit), "{limit}: {budget:?}");
                assert!(budget.sessions <= wanted);
            }
        }
    }

    #[test]
    fn usual_limits_are_enough_for_the_usual_number_of_sessions() {
        assert_eq!(Budget::of(1024, 32, 256).sessions, 32);
        assert_eq!(Budget::of(1024, 32, 256).most, 40);
        assert_eq!(Budget::of(20_000, 1000, 256).sessions, 1000);
        assert_eq!(Budget::of(20_000, 4096, 256).sessions, 1779);
    }
}
