//! The promises of the project, as limits that follow from what the same run measured natively and over plain TCP.

use crate::report::{BarResult, Figure};

/// What limits depend on besides the figure itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Basis {
    /// The device is a GPU: other promises hold than for a CPU device.
    pub(super) gpu: bool,
    /// Client and server talk over loopback, which the promises about servers are for.
    pub(super) loopback: bool,
    /// Median of a 64-byte round trip over plain TCP.
    pub(super) round_trip_us: Option<f64>,
    /// Bytes per second of plain TCP, the worse direction.
    pub(super) tcp_bytes_per_s: Option<f64>,
}

/// How a limit follows. Times are in the figure's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// At most so much more than native.
    NativePlus(f64),
    /// At most so much more than native and a TCP round trip (microseconds).
    NativePlusRoundTrip(f64),
    /// At most native times this.
    NativeTimes(f64),
    /// At least this share of plain TCP, and no less than this much.
    ShareOfTcp(f64, f64),
    /// At most native, and moving so many bytes at 90 % of plain TCP (milliseconds).
    NativePlusMoving(u64),
}

/// A leg, its rule and the promise in words.
type Bar = (&'static str, Rule, String);

/// Judges a figure by every promise about it.
pub(super) fn judge(figure: &mut Figure, basis: &Basis) {
    figure.bars = bars(&figure.id, basis.gpu)
        .into_iter()
        .filter(|(leg, ..)| basis.loopback || *leg == "local")
        .filter_map(|(leg, rule, promise)| hold(figure, leg, rule, promise, basis))
        .collect();
}

fn hold(
    figure: &Figure,
    leg: &str,
    rule: Rule,
    promise: String,
    basis: &Basis,
) -> Option<BarResult> {
    let median = |name: &str| figure.legs.get(name).map(|leg| leg.summary.median);
    let value = median(leg)?;
    let (limit, at_least) = match rule {
        Rule::AtMost(limit) => (limit, false),
        Rule::AtLeast(limit) => (limit, true),
        Rule::NativePlus(more) => (median("native")? + more, false),
        Rule::NativePlusRoundTrip(more) => (median("native")? + basis.round_trip_us? + more, false),
        Rule::NativeTimes(factor) => (median("native")? * factor, false),
        Rule::ShareOfTcp(share, floor) => ((median("tcp")? * share).max(floor), true),
        Rule::NativePlusMoving(bytes) => {
            let moving_ms = bytes as f64 / (0.9 * basis.tcp_bytes_per_s?) * 1e3;
            (median("native")? + moving_ms, false)
        }
    };
    let pass = if at_least {
        value >= limit
    } else {
        value <= limit
    };
    Some(BarResult {
        promise,
        leg: leg.into(),
        value,
        limit,
        pass,
    })
}

/// The promises about a figure.
fn bars(id: &str, gpu: bool) -> Vec<Bar> {
    let remote = |rule, promise: &str| vec![("remote", rule, promise.to_owned())];
    let parts: Vec<&str> = id.split('.').collect();
    match (parts.as_slice(), gpu) {
        (["launch", "burst7", "issue"], true) => remote(
            Rule::NativePlus(1.0),
            "7 arguments + enqueue in bursts: at most native + 1 us",
        ),
        (["launch", "sustained7"], true) => {
            remote(Rule::NativeTimes(1.1), "sustained: at most native x 1.1")
        }
        (["launch", "streamed" | "sustained7"], false) => remote(
            Rule::NativePlus(5.0),
            "streamed launch: at most native + 5 us",
        ),
        (["launch", "finish"], _) => {
            let more = if gpu { 6.0 } else { 25.0 };
            remote(
                Rule::NativePlusRoundTrip(more),
                &format!("launch + finish: at most native + one TCP round trip + {more} us"),
            )
        }
        (["small", "write_kernel_read"], false) => remote(
            Rule::NativePlus(60.0),
            "write 4 KiB + kernel + read 4 KiB: at most native + 60 us",
        ),
        (["bandwidth", _, _, "64MiB" | "256MiB"], true) => remote(
            Rule::ShareOfTcp(0.9, 14.0),
            "at least 90 % of as many plain TCP streams, and 14 GB/s",
        ),
        (["bandwidth", _, _, "256MiB"], false) => remote(
            Rule::ShareOfTcp(0.8, 0.0),
            "at least 80 % of as many plain TCP streams",
        ),
        (["start", "devices"], false) => remote(
            Rule::AtMost(20.0),
            "client start to device list: at most 20 ms",
        ),
        (["idle", "server"], _) => remote(
            Rule::NativePlus(0.1),
            "no CPU use when idle: at most what the vendor's library uses natively, and 0.1 ms/s",
        ),
        (["idle", _], _) => remote(Rule::AtMost(0.1), "no CPU use when idle: at most 0.1 ms/s"),
        (["workload", name, precision, size], _) => workload_bars(name, precision, size, gpu),
        (["scaling", name, _, _], true) => match *name {
            "nbody" => remote(Rule::AtLeast(0.98), "n-body: at least 98 % efficiency"),
            "sgemm" => remote(Rule::AtLeast(0.8), "SGEMM: at least 80 % efficiency"),
            _ => Vec::new(),
        },
        (["speedup", "transpose" | "smith_waterman", _, _], true) => remote(
            Rule::AtLeast(1.0),
            "several devices are never slower than one",
        ),
        _ => Vec::new(),
    }
}

fn workload_bars(name: &str, precision: &str, size: &str, gpu: bool) -> Vec<Bar> {
    let size: u64 = size.parse().unwrap_or(0);
    let times = |factor: f64| {
        let percent = (factor - 1.0) * 100.0;
        vec![(
            "remote",
            Rule::NativeTimes(factor),
            format!("at most {percent:.0} % over native"),
        )]
    };
    let mut bars = match (name, gpu) {
        ("sgemm", true) if precision == "single" && size == 4096 => times(1.02),
        ("nbody", true) if precision == "single" && size == 65_536 => times(1.02),
        ("smith_waterman", true) if size == 6144 => times(1.10),
        ("smith_waterman", false) => {
            // Two launches per base pair.
            let more_ms = 2.0 * size as f64 * 5e-3;
            vec![(
                "remote",
                Rule::NativePlus(more_ms),
                "at most native + 5 us per launch".to_owned(),
            )]
        }
        ("transpose", true) => {
            let element = if precision == "double" { 8 } else { 4 };
            vec![(
                "remote",
                Rule::NativePlusMoving(2 * size * size * element),
                "at the bandwidth bound: native + its bytes at 90 % of plain TCP".to_owned(),
            )]
        }
        ("sgemm" | "nbody" | "transpose", false) => times(1.10),
        _ => Vec::new(),
    };
    bars.push((
        "local",
        Rule::NativeTimes(1.01),
        "local devices: at most 1 % over native".to_owned(),
    ));
    bars
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cpu::CpuSeconds;
    use crate::report::Leg;
    use crate::stats::Summary;

    fn figure(id: &str, medians: &[(&str, f64)]) -> Figure {
        let leg = |value: f64| Leg {
            summary: Summary::of(&[value]).unwrap(),
            cpu: CpuSeconds::default(),
            compute_share: None,
        };
        Figure {
            id: id.into(),
            section: String::new(),
            title: String::new(),
            paper: None,
            unit: String::new(),
            legs: medians
                .iter()
                .map(|(name, value)| ((*name).to_owned(), leg(*value)))
                .collect(),
            ratios: BTreeMap::new(),
            bars: Vec::new(),
        }
    }

    fn judged(id: &str, gpu: bool, medians: &[(&str, f64)]) -> Vec<(f64, bool)> {
        let basis = Basis {
            gpu,
            loopback: true,
            round_trip_us: Some(14.0),
            tcp_bytes_per_s: Some(10e9),
        };
        let mut figure = figure(id, medians);
        judge(&mut figure, &basis);
        figure
            .bars
            .iter()
            .map(|bar| (bar.limit, bar.pass))
            .collect()
    }

    #[test]
    fn round_trip_is_allowed_once() {
        let medians = [("native", 9.0), ("remote", 28.9)];
        assert_eq!(judged("launch.finish", true, &medians), [(29.0, true)]);
        let medians = [("native", 9.0), ("remote", 48.1)];
        assert_eq!(judged("launch.finish", false, &medians), [(48.0, false)]);
    }

    #[test]
    fn bandwidth_is_held_against_tcp_and_the_floor() {
        let id = "bandwidth.write.nonblocking.256MiB";
        let medians = [("remote", 13.0), ("tcp", 15.0)];
        assert_eq!(judged(id, true, &medians), [(14.0, false)]);
        let medians = [("remote", 2.5), ("tcp", 3.0)];
        assert_eq!(judged(id, false, &medians), [(3.0 * 0.8, true)]);
        assert_eq!(
            judged("bandwidth.write.nonblocking.4KiB", false, &medians),
            []
        );
    }

    #[test]
    fn smith_waterman_may_cost_five_microseconds_per_launch() {
        let id = "workload.smith_waterman.none.6144";
        let medians = [("native", 300.0), ("remote", 361.0)];
        let limits = judged(id, false, &medians);
        assert!(
            (limits[0].0 - 361.44).abs() < 1e-9 && limits[0].1,
            "{limits:?}"
        );
    }

    #[test]
    fn missing_leg_is_no_verdict() {
        assert_eq!(judged("launch.finish", true, &[("native", 9.0)]), []);
        assert_eq!(judged("launch.finish", true, &[("remote", 9.0)]), []);
    }

    #[test]
    fn other_links_have_no_promises_about_servers() {
        let medians = [("native", 100.0), ("local", 100.5), ("remote", 190.0)];
        let mut figure = figure("workload.sgemm.single.1024", &medians);
        judge(&mut figure, &Basis::default());
        let legs: Vec<&str> = figure.bars.iter().map(|bar| bar.leg.as_str()).collect();
        assert_eq!(legs, ["local"]);
    }

    #[test]
    fn local_devices_are_held_to_native() {
        let id = "workload.sgemm.single.1024";
        let medians = [("native", 100.0), ("local", 100.5), ("remote", 109.0)];
        assert_eq!(
            judged(id, false, &medians),
            [(100.0 * 1.1, true), (100.0 * 1.01, true)]
        );
    }
}
