//! The promises of the project about one GPU with client and server on its host, as limits that follow from the same run.

use crate::report::{BarResult, Figure};

/// What goes between client and server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Between {
    /// TCP over loopback.
    Loopback,
    /// Shared memory.
    Shared,
    /// Something that nothing is promised about.
    Other,
}

/// What limits depend on besides the figure itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Basis {
    pub(super) gpu: bool,
    pub(super) between: Between,
    /// Median of a 64-byte round trip over plain TCP.
    pub(super) round_trip_us: Option<f64>,
}

/// How a limit follows. Times are in the figure's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    AtMost(f64),
    AtLeast(f64),
    /// At most so much more than native.
    NativePlus(f64),
    /// At most so much more than native and a TCP round trip (microseconds).
    NativePlusRoundTrip(f64),
    /// At most native times this.
    NativeTimes(f64),
    /// At least native times this.
    AtLeastNativeTimes(f64),
}

/// Judges a figure by the promise about it.
pub(super) fn judge(figure: &mut Figure, basis: &Basis) {
    if !basis.gpu || basis.between == Between::Other {
        return;
    }
    let shared = basis.between == Between::Shared;
    if let Some((rule, promise)) = bar(&figure.id, shared) {
        figure.bars.extend(hold(figure, rule, promise, basis));
    }
}

fn hold(figure: &Figure, rule: Rule, promise: String, basis: &Basis) -> Option<BarResult> {
    let median = |name: &str| figure.legs.get(name).map(|leg| leg.summary.median);
    let value = median("remote")?;
    let native = || median("native");
    let (limit, at_least) = match rule {
        Rule::AtMost(limit) => (limit, false),
        Rule::AtLeast(limit) => (limit, true),
        Rule::NativePlus(more) => (native()? + more, false),
        Rule::NativePlusRoundTrip(more) => (native()? + basis.round_trip_us? + more, false),
        Rule::NativeTimes(factor) => (native()? * factor, false),
        Rule::AtLeastNativeTimes(factor) => (native()? * factor, true),
    };
    let pass = if at_least {
        value >= limit
    } else {
        value <= limit
    };
    Some(BarResult {
        promise,
        leg: "remote".into(),
        value,
        limit,
        pass,
    })
}

/// The promise about a figure, over shared memory or loopback.
fn bar(id: &str, shared: bool) -> Option<(Rule, String)> {
    let parts: Vec<&str> = id.split('.').collect();
    let times = |what: &str, over_shm: f64, over_tcp: f64| {
        let factor = if shared { over_shm } else { over_tcp };
        Some((
            Rule::NativeTimes(factor),
            format!("{what}: at most native x {factor}"),
        ))
    };
    match parts.as_slice() {
        ["launch", "burst", "issue"] => times("launch issue in bursts", 0.7, 1.0),
        ["launch", "sustained"] => times("120,000 launches", 1.05, 1.10),
        ["launch", "sync"] if shared => Some((
            Rule::NativePlus(2.5),
            "launch + sync: at most native + 2.5 us".into(),
        )),
        ["launch", "sync"] => Some((
            Rule::NativePlusRoundTrip(6.0),
            "launch + sync: at most native + one TCP round trip + 6 us".into(),
        )),
        ["memory", "allocate_free"] => times("malloc + free", 0.2, 0.2),
        ["bandwidth", _, "pinned", "1GiB"] if shared => Some((
            Rule::AtLeastNativeTimes(0.98),
            "pinned, 1 GiB: at least native x 0.98".into(),
        )),
        ["bandwidth", _, "pinned", "1GiB"] => Some((
            Rule::AtLeast(14.0),
            "pinned, 1 GiB: at least 14 GB/s".into(),
        )),
        ["graph", "replay"] => times("100 graph replays", 1.02, 1.05),
        ["start", "warm"] => times("process start, warm", 1.2, 1.3),
        ["clients", _, "launches"] => Some((
            Rule::AtLeastNativeTimes(1.0),
            "clients together: at least as many native processes".into(),
        )),
        ["clients", "1", "spread"] => None,
        ["clients", _, "spread"] => Some((Rule::AtMost(0.1), "equal clients within 10 %".into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cpu::CpuSeconds;
    use crate::report::Leg;
    use crate::stats::Summary;

    fn judged(id: &str, native: f64, remote: f64, basis: Basis) -> Vec<(f64, bool)> {
        let leg = |value: f64| Leg {
            summary: Summary::of(&[value]).unwrap(),
            cpu: CpuSeconds::default(),
            compute_share: None,
        };
        let mut figure = Figure {
            id: id.into(),
            section: String::new(),
            title: String::new(),
            paper: None,
            unit: String::new(),
            legs: BTreeMap::from([
                ("native".into(), leg(native)),
                ("remote".into(), leg(remote)),
            ]),
            ratios: BTreeMap::new(),
            bars: Vec::new(),
        };
        judge(&mut figure, &basis);
        let bars = figure.bars.iter();
        bars.map(|bar| (bar.limit, bar.pass)).collect()
    }

    const LOOPBACK: Basis = Basis {
        gpu: true,
        between: Between::Loopback,
        round_trip_us: Some(9.0),
    };
    const SHARED: Basis = Basis {
        between: Between::Shared,
        ..LOOPBACK
    };

    #[test]
    fn round_trips_are_allowed_over_tcp_only() {
        assert_eq!(judged("launch.sync", 5.0, 20.5, LOOPBACK), [(20.0, false)]);
        assert_eq!(judged("launch.sync", 5.0, 7.4, SHARED), [(7.5, true)]);
    }

    #[test]
    fn bandwidth_must_reach_its_limit() {
        let id = "bandwidth.write.pinned.1GiB";
        assert_eq!(judged(id, 55.0, 13.9, LOOPBACK), [(14.0, false)]);
        assert_eq!(judged(id, 50.0, 49.5, SHARED), [(49.0, true)]);
        assert_eq!(judged("bandwidth.write.pinned.1MiB", 50.0, 1.0, SHARED), []);
    }

    #[test]
    fn nothing_is_promised_without_a_gpu_or_elsewhere() {
        let null = Basis {
            gpu: false,
            ..LOOPBACK
        };
        let elsewhere = Basis {
            between: Between::Other,
            ..LOOPBACK
        };
        assert_eq!(judged("launch.sustained", 1.0, 99.0, null), []);
        assert_eq!(judged("launch.sustained", 1.0, 99.0, elsewhere), []);
    }

    #[test]
    fn one_client_is_equal_to_itself() {
        assert_eq!(judged("clients.1.spread", 0.0, 0.0, LOOPBACK), []);
        assert_eq!(
            judged("clients.4.spread", 0.3, 0.2, LOOPBACK),
            [(0.1, false)]
        );
    }
}
