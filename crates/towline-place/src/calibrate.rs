//! What a socket is worth to n copies of a program: measured, and fitted by one number.
//!
//! Copies run side by side, each on a core of one socket. If each had the socket's memory to itself, n copies would take as long as one.
//! Their rate, against one copy's, is the curve; the *saturation* is the cores' worth of work at which it stops growing.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use towline_sys::process::tie_to_starter;

use crate::{Error, Result};

/// Most copies: of a large socket.
pub const MAX_COPIES: usize = 256;

/// A measured curve and its fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// With 1, 2, ... copies: seconds of the slowest, the least of all repetitions.
    pub seconds: Vec<f64>,
    /// Cores' worth of work: n times the first over the n-th.
    pub capacity: Vec<f64>,
    /// Cores' worth of work at which it stops growing, by the fit.
    pub saturation: f64,
    /// Root of the mean square of the fit's relative errors.
    pub error: f64,
}

impl Curve {
    /// Fits what was measured.
    pub fn of(seconds: Vec<f64>) -> Result<Self> {
        let first = seconds.first().copied().unwrap_or(0.0);
        if !seconds.iter().all(|time| time.is_finite() && *time > 0.0) || first == 0.0 {
            return Err(Error::Measurement(
                "a copy took no time at all: measure a longer program".to_owned(),
            ));
        }
        let capacity: Vec<f64> = (1..)
            .zip(&seconds)
            .map(|(n, time)| f64::from(n) * first / time)
            .collect();
        let (saturation, error) = fit(&capacity);
        Ok(Self {
            seconds,
            capacity,
            saturation,
            error,
        })
    }

    /// Whether the socket had more to give at the end of the curve.
    pub fn is_open(&self) -> bool {
        self.saturation >= self.capacity.len() as f64 * 0.98
    }
}

/// The saturation with the least squares of relative errors against `min(n, saturation)`, and the root of their mean.
fn fit(capacity: &[f64]) -> (f64, f64) {
    let error = |saturation: f64| -> f64 {
        let square =
            |(n, measured): (u32, &f64)| (f64::from(n).min(saturation) / measured - 1.0).powi(2);
        let sum: f64 = (1..).zip(capacity).map(square).sum();
        (sum / capacity.len() as f64).sqrt()
    };
    // One dimension, without surprises: every hundredth of a core.
    let steps = 100..=100 * capacity.len() as u32;
    let candidates = steps.map(|step| f64::from(step) / 100.0);
    let best = candidates.map(|saturation| (saturation, error(saturation)));
    best.min_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or((1.0, 0.0))
}

/// The cores of the socket that core 0 is on, one hardware thread each, by the numbers of the system.
pub fn socket_cores() -> Result<Vec<usize>> {
    let read = |cpu: usize, what: &str| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}")).ok()
    };
    let package = read(0, "physical_package_id");
    let (mut cores, mut seen) = (Vec::new(), Vec::new());
    for cpu in 0..crate::cluster::MAX_PER_NODE as usize {
        let Some(core) = read(cpu, "core_id") else {
            continue;
        };
        if read(cpu, "physical_package_id") == package && !seen.contains(&core) {
            seen.push(core);
            cores.push(cpu);
        }
    }
    match cores.is_empty() {
        true => Err(Error::Measurement(
            "this system does not tell its cores in /sys/devices/system/cpu".to_owned(),
        )),
        false => Ok(cores),
    }
}

/// Runs 1 to `cores.len()` copies of a command, each on its core, `repetitions` times; the least time of each count is kept.
///
/// With no command, each copy is a triad over arrays larger than caches.
pub fn measure(
    command: &[String],
    cores: &[usize],
    repetitions: usize,
    limit: Duration,
) -> Result<Curve> {
    if cores.is_empty() || cores.len() > MAX_COPIES {
        return Err(Error::Size(format!(
            "{} copies; 1 to {MAX_COPIES} are possible",
            cores.len()
        )));
    }
    let mut seconds = Vec::new();
    for copies in 1..=cores.len() {
        let mut least = f64::INFINITY;
        for _ in 0..repetitions.max(1) {
            least = least.min(once(command, &cores[..copies], limit)?);
        }
        seconds.push(least);
    }
    Curve::of(seconds)
}

/// Seconds until the last copy has ended.
fn once(command: &[String], cores: &[usize], limit: Duration) -> Result<f64> {
    let start = Instant::now();
    let mut copies = Vec::new();
    for core in cores {
        match launch(command, *core) {
            Ok(child) => copies.push(child),
            Err(error) => {
                end(&mut copies);
                return Err(error);
            }
        }
    }
    while let Some(copy) = copies.last_mut() {
        match copy.try_wait() {
            Ok(Some(status)) if status.success() => drop(copies.pop()),
            Ok(None) if start.elapsed() < limit => std::thread::sleep(Duration::from_micros(500)),
            ended => {
                end(&mut copies);
                return Err(Error::Measurement(match ended {
                    Ok(Some(status)) => format!("a copy of the program ended with {status}"),
                    Ok(None) => format!(
                        "a copy of the program still runs after {} s",
                        limit.as_secs()
                    ),
                    Err(error) => format!("cannot wait for a copy of the program: {error}"),
                }));
            }
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

fn launch(command: &[String], core: usize) -> Result<Child> {
    let fail = |error: std::io::Error| Error::Tool {
        program: "taskset".to_owned(),
        reason: format!("{error}; it is part of util-linux"),
    };
    let mut taskset = Command::new("taskset");
    taskset.args(["--cpu-list", &core.to_string()]);
    match command.is_empty() {
        false => taskset.args(command),
        true => {
            let this = std::env::current_exe().map_err(fail)?;
            taskset.arg(this).args(["calibrate", "--triad"])
        }
    };
    tie_to_starter(&mut taskset)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(fail)
}

fn end(copies: &mut Vec<Child>) {
    for mut copy in copies.drain(..) {
        let _ = copy.kill();
        let _ = copy.wait();
    }
}

/// Elements of each of the triad's arrays: together 192 MB, beyond any cache of a core's share.
const ELEMENTS: usize = 8 << 20;

/// `a = b + s * c` over and over: what a copy does when no program is given. Answers a sum, so that nothing is left out.
pub fn triad(turns: u32) -> f64 {
    let (b, c) = (vec![1.0_f64; ELEMENTS], vec![2.0_f64; ELEMENTS]);
    let mut a = vec![0.0_f64; ELEMENTS];
    for turn in 0..turns {
        let scale = f64::from(turn);
        for ((a, b), c) in a.iter_mut().zip(&b).zip(&c) {
            *a = b + scale * c;
        }
        std::hint::black_box(&mut a);
    }
    a.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saturating_curve_gives_its_saturation() {
        // Two and a half cores' worth: from the third copy on, all take longer.
        let seconds = (1..=6)
            .map(|n: u32| 10.0 * (f64::from(n) / 2.5).max(1.0))
            .collect();
        let curve = Curve::of(seconds).unwrap();
        assert_eq!((curve.saturation, curve.is_open()), (2.5, false));
        assert!(curve.error < 1e-9);
    }

    #[test]
    fn noise_moves_the_fit_a_little_and_shows_in_its_error() {
        let noise = [1.0, 1.03, 0.98, 1.04, 0.97, 1.02];
        let seconds = (1..=6)
            .zip(noise)
            .map(|(n, noise)| noise * (f64::from(n) / 3.2).max(1.0))
            .collect();
        let curve = Curve::of(seconds).unwrap();
        assert!((curve.saturation - 3.2).abs() < 0.15, "{curve:?}");
        assert!(curve.error > 0.005 && curve.error < 0.05);
    }

    #[test]
    fn a_program_bound_by_arithmetic_leaves_the_curve_open() {
        assert!(Curve::of(vec![1.0; 4]).unwrap().is_open());
        assert!(Curve::of(vec![0.0, 1.0]).is_err());
        assert!(Curve::of(Vec::new()).is_err());
    }

    #[test]
    fn copies_are_run_and_failures_are_told() {
        let run = |script: &str, limit| {
            let command = ["sh", "-c", script].map(str::to_owned);
            measure(&command, &[0], 1, limit)
        };
        let long = Duration::from_secs(60);
        assert_eq!(run("true", long).unwrap().capacity, [1.0]);
        assert!(run("exit 3", long).unwrap_err().to_string().contains('3'));
        assert!(
            run("sleep 100", Duration::from_millis(50))
                .unwrap_err()
                .to_string()
                .contains("still runs")
        );
    }
}
