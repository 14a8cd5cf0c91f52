//! Servers as their last answers tell of them, and rates between answers.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use towline_wire::control::{SessionStatus, Status};

use super::feed::Told;

/// Rates that are kept of the past.
const HISTORY: usize = 8;
/// Longest time that the answer of a busy server takes.
const PATIENCE: Duration = Duration::from_secs(6);

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    /// Its address, without the usual.
    pub(super) address: String,
    /// Its last answer; none before the first, and where it failed since.
    pub(super) told: Option<Told>,
    /// Reason for which it does not answer.
    pub(super) failure: Option<String>,
    /// Time at which it was last heard of, or first asked.
    heard: Instant,
    /// Time between two questions.
    interval: Duration,
    sessions: BTreeMap<u64, Pace>,
    tenants: BTreeMap<String, Pace>,
}

/// Sums since some moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Sums {
    /// Since the same moment.
    ms: u64,
    device_time_us: u64,
    launches: u64,
    bytes: u64,
}

/// Work between two answers, for each second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Seconds of device time: 1 where one device was busy all the time.
    pub(super) busy: f64,
    pub(super) launches: f64,
    pub(super) bytes: f64,
}

/// Rates now and before.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    last: Sums,
    /// The newest is the last one.
    past: VecDeque<Rates>,
}

impl Pace {
    /// The rates now; none before a second answer.
    pub(super) fn now(&self) -> Option<Rates> {
        self.past.back().copied()
    }

    /// Rates of the past, the oldest first.
    pub(super) fn past(&self) -> impl Iterator<Item = Rates> {
        self.past.iter().copied()
    }

    fn new(first: Sums) -> Self {
        Self {
            last: first,
            past: VecDeque::new(),
        }
    }

    fn follow(&mut self, sums: Sums) {
        let Some(ms) = sums.ms.checked_sub(self.last.ms) else {
            // The server, or the name, has another one now.
            *self = Self::new(sums);
            return;
        };
        if ms == 0 {
            return;
        }
        let seconds = ms as f64 / 1000.0;
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let rates = Rates {
            busy: rate(sums.device_time_us, self.last.device_time_us) / 1e6,
            launches: rate(sums.launches, self.last.launches),
            bytes: rate(sums.bytes, self.last.bytes),
        };
        self.last = sums;
        if self.past.len() == HISTORY {
            self.past.pop_front();
        }
        self.past.push_back(rates);
    }
}

impl Server {
    /// One that is asked for the first time.
    pub(super) fn new(address: String, interval: Duration) -> Self {
        Self {
            address,
            told: None,
            failure: None,
            heard: Instant::now(),
            interval,
            sessions: BTreeMap::new(),
            tenants: BTreeMap::new(),
        }
    }

    /// Takes an answer, or the reason why there is none.
    pub(super) fn hear(&mut self, told: Result<Told, String>) {
        self.heard = Instant::now();
        match told {
            Ok(told) => {
                self.follow(&told.status);
                self.told = Some(told);
                self.failure = None;
            }
            Err(reason) => {
                self.told = None;
                self.failure = Some(reason);
            }
        }
    }

    /// Time since its last answer, or since it was first asked.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }

    /// Whether an answer should have come.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.silence(now) > self.interval + PATIENCE
    }

    pub(super) fn sessions(&self) -> &[SessionStatus] {
        self.told
            .as_ref()
            .map_or(&[], |told| told.status.sessions.as_slice())
    }

    pub(super) fn pace_of_session(&self, id: u64) -> Option<&Pace> {
        self.sessions.get(&id)
    }

    pub(super) fn pace_of_tenant(&self, name: &str) -> Option<&Pace> {
        self.tenants.get(name)
    }

    /// Of all its sessions together.
    pub(super) fn rates(&self) -> Rates {
        let rates = self.sessions.values().filter_map(Pace::now);
        rates.fold(Rates::default(), |sum, rates| Rates {
            busy: sum.busy + rates.busy,
            launches: sum.launches + rates.launches,
            bytes: sum.bytes + rates.bytes,
        })
    }

    fn follow(&mut self, status: &Status) {
        let sessions = status.sessions.iter().map(|session| {
            let sums = Sums {
                ms: session.age_ms,
                device_time_us: session.device_time_us,
                launches: session.launches,
                bytes: session.received_bytes.saturating_add(session.sent_bytes),
            };
            (session.session_id, sums)
        });
        follow_all(&mut self.sessions, sessions);
        let tenants = status.tenants.iter().map(|tenant| {
            let sums = Sums {
                ms: status.uptime_ms,
                device_time_us: tenant.device_time_us,
                ..Sums::default()
            };
            (tenant.name.clone(), sums)
        });
        follow_all(&mut self.tenants, tenants);
    }
}

/// Takes the sums of those that there are; the others are forgotten.
fn follow_all<K: Ord>(paces: &mut BTreeMap<K, Pace>, sums: impl Iterator<Item = (K, Sums)>) {
    let mut before = std::mem::take(paces);
    for (key, sums) in sums {
        let pace = match before.remove(&key) {
            Some(mut pace) => {
                pace.follow(sums);
                pace
            }
            None => Pace::new(sums),
        };
        paces.insert(key, pace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(age_ms: u64, device_time_us: u64, launches: u64, bytes: u64) -> Told {
        let session = SessionStatus {
            session_id: 7,
            age_ms,
            device_time_us,
            launches,
            received_bytes: bytes / 2,
            sent_bytes: bytes - bytes / 2,
            ..SessionStatus::default()
        };
        let status = Status {
            sessions: vec![session],
            ..Status::default()
        };
        Told {
            status,
            ..Told::default()
        }
    }

    fn server() -> Server {
        Server::new("gpu1".into(), Duration::from_secs(2))
    }

    fn rates(server: &Server) -> Option<Rates> {
        server.pace_of_session(7).and_then(Pace::now)
    }

    #[test]
    fn rates_are_differences_of_two_answers() {
        let mut server = server();
        server.hear(Ok(told(1000, 500_000, 10, 4096)));
        assert_eq!(rates(&server), None);
        server.hear(Ok(told(3000, 3_500_000, 50, 10_096)));
        let expected = Rates {
            busy: 1.5,
            launches: 20.0,
            bytes: 3000.0,
        };
        assert_eq!(rates(&server), Some(expected));
        assert_eq!(server.rates(), expected);
    }

    #[test]
    fn answer_of_same_moment_keeps_rates() {
        let mut server = server();
        server.hear(Ok(told(1000, 0, 0, 0)));
        server.hear(Ok(told(2000, 1_000_000, 0, 0)));
        server.hear(Ok(told(2000, 1_000_000, 0, 0)));
        assert_eq!(rates(&server).map(|rates| rates.busy), Some(1.0));
    }

    #[test]
    fn session_of_restarted_server_begins_anew() {
        let mut server = server();
        server.hear(Ok(told(9000, 9_000_000, 9, 9)));
        server.hear(Ok(told(500, 100_000, 1, 1)));
        assert_eq!(rates(&server), None);
        server.hear(Ok(told(1500, 200_000, 1, 1)));
        assert_eq!(rates(&server).map(|rates| rates.busy), Some(0.1));
    }

    #[test]
    fn past_rates_are_bounded() {
        let mut server = server();
        for answer in 0..3 * HISTORY as u64 {
            server.hear(Ok(told(answer * 1000, answer * answer * 1_000_000, 0, 0)));
        }
        let pace = server.pace_of_session(7).unwrap();
        let past: Vec<f64> = pace.past().map(|rates| rates.busy).collect();
        assert_eq!(past.len(), HISTORY);
        assert!(past.is_sorted(), "{past:?}");
    }

    #[test]
    fn server_is_late_beyond_its_interval() {
        let server = server();
        let after = |seconds| server.is_late(Instant::now() + Duration::from_secs(seconds));
        assert_eq!([after(1), after(60)], [false, true]);
    }

    #[test]
    fn failed_server_shows_no_sessions() {
        let mut server = server();
        server.hear(Ok(told(1000, 0, 0, 0)));
        assert_eq!(server.sessions().len(), 1);
        server.hear(Err("connection refused".into()));
        assert!(server.sessions().is_empty());
        assert_eq!(server.failure.as_deref(), Some("connection refused"));
    }
}
