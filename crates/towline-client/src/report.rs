//! What `towline run --report` prints at exit of a session: where its time went. Who prints it, and when, is each library's own.

use std::fmt::Write as _;
use std::time::Duration;

use crate::access::is_trusted;
use crate::meter::{Meter, Waits};

/// `1` asks for the report.
pub const VARIABLE: &str = "TOWLINE_REPORT";

/// Names the file whose presence tells `towline run` that a library of ours has started.
pub const MARK_VARIABLE: &str = "TOWLINE_REPORT_MARK";

/// Whether the environment asks for the report of the library that is starting.
pub fn wanted() -> bool {
    let wanted = std::env::var(VARIABLE).is_ok_and(|value| value == "1");
    if let Some(mark) = std::env::var_os(MARK_VARIABLE).filter(|_| wanted && is_trusted()) {
        // A set-user-id program makes no files of its caller's choice.
        // Without the mark the report has a wrong line more.
        let _ = std::fs::File::create(mark);
    }
    wanted
}

/// One session's figures.
#[derive(Debug)]
pub struct Figures<'a> {
    /// The server.
    pub server: &'a str,
    /// Requests posted.
    pub requests: u64,
    /// Sent and received.
    pub bytes: (u64, u64),
    /// Sent to other servers directly.
    pub peer_bytes: u64,
    /// Waits by API call.
    pub waits: Vec<(&'static str, Waits)>,
    /// What the network alone takes, where it was measured.
    pub round_trip: Option<Duration>,
    /// How long the server waited for its device because this client waited.
    pub device: Option<Duration>,
    /// Why the session is over before the program is.
    pub lost: Option<&'a str>,
}

impl<'a> Figures<'a> {
    /// What a session's meter has counted.
    pub fn of(server: &'a str, meter: &Meter, lost: Option<&'a str>) -> Self {
        Self {
            server,
            requests: meter.requests(),
            bytes: meter.bytes(),
            peer_bytes: meter.peer_bytes(),
            waits: meter.waits().into_iter().collect(),
            round_trip: None,
            device: None,
            lost,
        }
    }

    /// The lines of the report, of a session of which so much time has passed.
    pub fn render(mut self, total: Duration) -> String {
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
