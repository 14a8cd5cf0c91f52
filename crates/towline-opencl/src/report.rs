//! What `towline run --report` prints at exit: where the time of each session went.
//!
//! Goes to standard error, so that a program's output stays its own. Local devices are called directly and not counted.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use towline_client::meter::Waits;
use towline_client::opencl::Remote;

use crate::callback;

/// `1` asks for the report.
const VARIABLE: &str = "TOWLINE_REPORT";

struct Watched {
    since: Instant,
    sessions: Vec<(Arc<Remote>, Option<Duration>)>,
}

static WATCHED: OnceLock<Watched> = OnceLock::new();

/// Reports on these sessions at exit, if the environment asks for it. Costs a round trip with each server then, to know what the
/// network alone takes.
pub(crate) fn watch(sessions: &[Arc<Remote>]) {
    let wanted = std::env::var(VARIABLE).is_ok_and(|value| value == "1");
    if !wanted || sessions.is_empty() {
        return;
    }
    let measured = |remote: &Arc<Remote>| (Arc::clone(remote), remote.round_trip());
    let watched = Watched {
        since: Instant::now(),
        sessions: sessions.iter().map(measured).collect(),
    };
    if WATCHED.set(watched).is_ok() {
        // SAFETY: the function takes nothing and the library stays mapped until the process ends.
        if unsafe { libc::atexit(print) } != 0 {
            log::warn!(
                "there will be no report: the C library takes no more functions for the exit"
            );
        }
    }
}

extern "C" fn print() {
    let Some(watched) = WATCHED.get().filter(|_| !callback::forked()) else {
        return;
    };
    let text = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let total = watched.since.elapsed();
        let sessions = watched.sessions.iter();
        sessions
            .map(|(remote, round_trip)| {
                let meter = remote.meter();
                let figures = Figures {
                    server: remote.server(),
                    requests: meter.requests(),
                    bytes: meter.bytes(),
                    peer_bytes: meter.peer_bytes(),
                    waits: meter.waits().into_iter().collect(),
                    round_trip: *round_trip,
                    device: device_time(remote),
                    lost: remote.lost(),
                };
                figures.render(total)
            })
            .collect::<String>()
    }));
    // Whoever closed standard error wants no report.
    let _ = std::io::stderr().write_all(text.unwrap_or_default().as_bytes());
}

/// How long the end of a program may take for a server's answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks the server for its device's share; `None` when it does not answer soon, since no program may hang on its way out.
fn device_time(remote: &Arc<Remote>) -> Option<Duration> {
    let (sender, answer) = channel();
    let asked = Arc::clone(remote);
    let asking = std::thread::Builder::new().spawn(move || {
        // Whoever gave up waiting has dropped the other end.
        let _ = sender.send(asked.usage().ok());
    });
    let (_lane, device) = asking.ok().and(answer.recv_timeout(PATIENCE).ok()?)?;
    Some(device)
}

/// One session's figures.
struct Figures<'a> {
    server: &'a str,
    requests: u64,
    /// Sent and received.
    bytes: (u64, u64),
    /// Sent to other servers directly.
    peer_bytes: u64,
    waits: Vec<(&'static str, Waits)>,
    round_trip: Option<Duration>,
    /// How long the server waited for its device because this client waited.
    device: Option<Duration>,
    lost: Option<&'a str>,
}

impl Figures<'_> {
    fn render(mut self, total: Duration) -> String {
        self.waits
            .sort_by_key(|(name, waits)| (std::cmp::Reverse(waits.time), *name));
        let count: u64 = self.waits.iter().map(|(_, waits)| waits.count).sum();
        let time: Duration = self.waits.iter().map(|(_, waits)| waits.time).sum();
        let mut text = format!(
            "towline: {}: {} requests, {} sent, {} received in {}\n",
            self.server,
            self.requests,
            bytes(self.bytes.0),
            bytes(self.bytes.1),
            duration(total)
        );
        if self.peer_bytes > 0 {
            let _ = writeln!(
                text,
                "towline:   sent to other servers directly: {}",
                bytes(self.peer_bytes)
            );
        }
        if let Some(why) = self.lost {
            let _ = writeln!(text, "towline:   the session was lost: {why}");
        }
        let _ = write!(text, "towline:   waited {count} times, {}", duration(time));
        if let Some(each) = self.round_trip.filter(|_| count > 0) {
            let network = each
                .saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
                .min(time);
            let rest = time - network;
            let _ = write!(
                text,
                ": network {} ({} each), ",
                duration(network),
                duration(each)
            );
            let _ = match self.device.map(|device| device.min(rest)) {
                Some(device) => write!(
                    text,
                    "device {}, server and transfers {}",
                    duration(device),
                    duration(rest - device)
                ),
                None => write!(text, "server and device {}", duration(rest)),
            };
        }
        text.push('\n');
        for (name, waits) in &self.waits {
            let _ = writeln!(
                text,
                "towline:   {name:32}{:>9} x {:>10}  {:>10}",
                waits.count,
                duration(waits.time / u32::try_from(waits.count.max(1)).unwrap_or(u32::MAX)),
                duration(waits.time)
            );
        }
        text
    }
}

fn duration(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{:.1} us", seconds * 1e6),
    }
}

fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{count} B"),
        _ => format!("{value:.1} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(count: u64, ms: u64) -> Waits {
        Waits {
            count,
            time: Duration::from_millis(ms),
        }
    }

    #[test]
    fn the_longest_waits_come_first_and_the_network_has_its_share() {
        let figures = Figures {
            server: "tcp://gpu1:7140",
            requests: 117,
            bytes: (3 << 20, 512),
            peer_bytes: 0,
            waits: vec![("clBuildProgram", waits(1, 30)), ("clFinish", waits(9, 60))],
            round_trip: Some(Duration::from_millis(1)),
            device: Some(Duration::from_millis(65)),
            lost: None,
        };
        assert_eq!(
            figures.render(Duration::from_millis(1500)),
            "towline: tcp://gpu1:7140: 117 requests, 3.0 MiB sent, 512 B received in 1.50 s\n\
             towline:   waited 10 times, 90.00 ms: network 10.00 ms (1.00 ms each), device 65.00 ms, server and transfers 15.00 ms\n\
             towline:   clFinish                                9 x    6.67 ms    60.00 ms\n\
             towline:   clBuildProgram                          1 x   30.00 ms    30.00 ms\n"
        );
    }

    #[test]
    fn the_network_takes_no_more_than_was_waited() {
        let figures = Figures {
            server: "a",
            requests: 0,
            bytes: (0, 0),
            peer_bytes: 0,
            waits: vec![("clFinish", waits(100, 5))],
            round_trip: Some(Duration::from_millis(1)),
            device: None,
            lost: Some("the worker died"),
        };
        let text = figures.render(Duration::from_secs(1));
        assert!(
            text.contains("network 5.00 ms") && text.contains("device 0.0 us"),
            "{text}"
        );
        assert!(text.contains("lost: the worker died"), "{text}");
    }
}
