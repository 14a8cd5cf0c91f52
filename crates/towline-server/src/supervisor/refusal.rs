//! Connections that were refused: all are counted, few are logged one by one, so that a flood of them fills no log. So it is with what
//! clients of a tenant ask for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::audit::{Audit, Event};
use super::{lock, spawn};

/// How many are logged one by one within a period.
const IN_FULL: u64 = 5;
/// How long a period is; what else came in it takes one line at its end.
const PERIOD: Duration = Duration::from_secs(30);

/// Requests of a tenant's clients that are logged within a period.
const REQUESTS: u64 = 100;

/// Keeps what a tenant's clients ask for, and may ask for without end, from filling the log.
#[derive(Debug, Default)]
pub(super) struct Requests(Mutex<Period>);

#[derive(Debug, Default)]
struct Period {
    began: Option<Instant>,
    count: u64,
}

impl Requests {
    /// Whether another one is logged. The first that is logged after others were not says so.
    pub(super) fn admit(&self) -> bool {
        let (admitted, dropped) = lock(&self.0).admit(Instant::now());
        if dropped > 0 {
            log::info!("{dropped} more requests of a tenant were not logged");
        }
        admitted
    }
}

impl Period {
    /// Whether another one is logged, and how many were not in the last period.
    fn admit(&mut self, now: Instant) -> (bool, u64) {
        let mut dropped = 0;
        if self.began.is_none_or(|began| now - began >= PERIOD) {
            dropped = self.count.saturating_sub(REQUESTS);
            *self = Self {
                began: Some(now),
                count: 0,
            };
        }
        self.count += 1;
        (self.count <= REQUESTS, dropped)
    }
}

/// All refusals of a supervisor.
pub(super) struct Refusals {
    state: Arc<Mutex<State>>,
    audit: Option<Arc<Audit>>,
}

#[derive(Default)]
struct State {
    /// Since the start, by kind.
    counts: BTreeMap<&'static str, u64>,
    /// In this period, if there is one: it begins with a refusal.
    in_period: Option<u64>,
    /// The last one.
    last: String,
    /// The tenant that it named.
    tenant: Option<String>,
}

/// What came in a period.
struct Summary {
    count: u64,
    last: String,
    tenant: Option<String>,
}

impl Summary {
    /// The line for what was not logged by itself.
    fn line(&self) -> Option<String> {
        let more = self.count.saturating_sub(IN_FULL);
        let (seconds, last) = (PERIOD.as_secs(), &self.last);
        (more > 0).then(|| {
            format!("{more} more connections were refused within {seconds} s; the last: {last}")
        })
    }
}

impl State {
    /// Counts one; whether it is logged by itself, and whether a period begins with it.
    fn add(&mut self, kind: &'static str) -> (bool, bool) {
        *self.counts.entry(kind).or_default() += 1;
        let before = self.in_period.unwrap_or(0);
        let begins = self.in_period.is_none();
        self.in_period = Some(before + 1);
        (before < IN_FULL, begins)
    }

    /// Ends the period.
    fn end_period(&mut self) -> Option<Summary> {
        Some(Summary {
            count: self.in_period.take()?,
            last: std::mem::take(&mut self.last),
            tenant: self.tenant.take(),
        })
    }
}

impl Refusals {
    pub(super) fn new(audit: Option<Arc<Audit>>) -> Self {
        Self {
            state: Arc::default(),
            audit,
        }
    }

    /// Since the start.
    pub(super) fn count(&self) -> u64 {
        lock(&self.state).counts.values().sum()
    }

    /// Since the start, by kind.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.state).counts.clone()
    }

    /// A connection was refused, whose client had named `tenant`; proven or not.
    pub(super) fn note(
        &self,
        peer: &str,
        tenant: Option<&str>,
        kind: &'static str,
        reason: &dyn fmt::Display,
    ) {
        let reason = match tenant {
            Some(tenant) => format!("{reason} (tenant `{tenant}`)"),
            None => reason.to_string(),
        };
        let mut state = lock(&self.state);
        let (in_full, begins) = state.add(kind);
        state.last = format!("{peer}: {reason}");
        state.tenant = tenant.map(str::to_owned);
        drop(state);
        if in_full {
            log::info!("{peer}: {reason}");
        }
        if begins {
            let (state, audit) = (Arc::clone(&self.state), self.audit.clone());
            let end = move || {
                std::thread::sleep(PERIOD);
                let summary = lock(&state).end_period();
                let Some(summary) = summary else { return };
                if let Some(line) = summary.line() {
                    log::info!("{line}");
                }
                if let Some(audit) = audit {
                    audit.tell(&Event::Refused {
                        count: summary.count,
                        last: &summary.last,
                        tenant: summary.tenant.as_deref(),
                    });
                }
            };
            if let Err(error) = spawn("refusals", end) {
                log::debug!("{error}: {}", error.source);
                lock(&self.state).end_period();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_beyond_the_limit_are_not_logged() {
        let (mut period, now) = (Period::default(), Instant::now());
        let admitted = (0..1000).filter(|_| period.admit(now).0).count();
        assert_eq!(admitted as u64, REQUESTS);
        assert_eq!(period.admit(now + PERIOD), (true, 1000 - REQUESTS));
        assert_eq!(period.admit(now + 2 * PERIOD), (true, 0));
    }

    #[test]
    fn flood_of_refusals_takes_a_few_lines_and_one_more() {
        let mut state = State::default();
        let added: Vec<_> = (0..1000).map(|_| state.add("Lane")).collect();
        let in_full = added.iter().filter(|(in_full, _)| *in_full).count();
        let periods = added.iter().filter(|(_, begins)| *begins).count();
        assert_eq!((in_full as u64, periods), (IN_FULL, 1));
        state.last = "192.0.2.1:5: no token".into();
        let line = state.end_period().unwrap().line().unwrap();
        assert!(
            line.starts_with("995 more") && line.ends_with("192.0.2.1:5: no token"),
            "{line}"
        );
        assert_eq!(
            state.add("Peer"),
            (true, true),
            "the next period begins anew"
        );
        assert_eq!(state.end_period().unwrap().line(), None);
        assert!(state.end_period().is_none());
        assert_eq!(state.counts, [("Lane", 1000), ("Peer", 1)].into());
    }
}
