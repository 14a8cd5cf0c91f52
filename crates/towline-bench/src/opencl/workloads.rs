//! Whole programs: the four application kernels of the paper, run under each leg's environment.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::leg::Reading;
use super::legs::{CLEARED, LegKind, Legs};
use super::sections::{OPENCL, Row, Run};
use crate::cpu::{self, CpuSeconds};

/// A workload's last line, as `workloads/README.md` describes it.
#[derive(Debug, Deserialize)]
struct Line {
    devices: usize,
    total_ms: Time,
    compute_share: Option<f64>,
    launches: u64,
    check: String,
}

#[derive(Debug, Deserialize)]
struct Time {
    median: f64,
}

/// How long one run of a workload may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Exit status of a workload that the device cannot run.
const SKIPPED: i32 = 77;

/// A workload and how it is run.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) name: &'static str,
    /// "single", "double" or, where there is no choice, "none".
    pub(super) precision: &'static str,
    pub(super) size: u64,
    pub(super) iterations: usize,
    pub(super) devices: usize,
    pub(super) instances: usize,
    /// Compare the result with the CPU's.
    pub(super) check: bool,
}

/// Where the workloads lie: as named, below this folder, or beside the program.
pub(super) fn find(named: Option<&Path>) -> Option<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|program| Some(program.parent()?.join("workloads")));
    named
        .map(Path::to_owned)
        .into_iter()
        .chain(["build/workloads".into()])
        .chain(beside)
        .find(|folder| folder.join("sgemm").is_file())
}

/// Runs a job as one process of a leg.
pub(super) fn run_once(
    legs: &Legs<'_>,
    leg: LegKind,
    folder: &Path,
    job: &Job,
) -> anyhow::Result<(Reading, CpuSeconds)> {
    let mut command = Command::new(folder.join(job.name));
    command
        .args(["--json", "--size", &job.size.to_string()])
        .args(["--iterations", &job.iterations.to_string()])
        .args(["--instances", &job.instances.to_string()]);
    if job.precision != "none" {
        command.args(["--precision", job.precision]);
    }
    if !job.check {
        command.arg("--no-check");
    }
    let first = if leg == LegKind::Remote {
        legs.devices.1
    } else {
        legs.devices.0
    };
    if job.devices > 1 {
        command.args(["--devices", &job.devices.to_string()]);
    } else if first > 0 {
        command.args(["--device", &first.to_string()]);
    }
    if leg != LegKind::Native {
        legs.folders.towline_library()?;
        command.args(["--platform", "Towline"]);
    }
    for name in CLEARED {
        command.env_remove(name);
    }
    command
        .envs(leg.environment(legs.folders, &legs.servers))
        .stdin(Stdio::null());
    let pids = match leg {
        LegKind::Remote => legs.server_pids.as_slice(),
        _ => &[],
    };
    let server = || (!pids.is_empty()).then(|| cpu::of_trees(pids));
    let children = cpu::of_ended_children();
    let (server_before, machine_before) = (server(), cpu::of_machine());
    let start = Instant::now();
    let output = crate::child::output(&mut command, LIMIT)?;
    let wall_s = start.elapsed().as_secs_f64();
    let cpu = CpuSeconds {
        wall_s,
        client_s: cpu::of_ended_children() - children,
        server_s: server()
            .zip(server_before)
            .map(|(after, before)| (after - before).max(0.0)),
        system_s: cpu::of_machine() - machine_before,
    };
    if output.status.code() == Some(SKIPPED) {
        bail!("skipped: the device cannot run it");
    }
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} ended with {}: {}",
        job.name,
        output.status,
        said.trim()
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let line: Line = serde_json::from_str(text.lines().last().unwrap_or_default())
        .with_context(|| format!("{} printed no result", job.name))?;
    ensure!(
        line.check != "fail",
        "{} computed something wrong",
        job.name
    );
    ensure!(
        line.devices == job.devices,
        "{} used {} devices instead of {}",
        job.name,
        line.devices,
        job.devices
    );
    let mut reading = Reading::default();
    reading.values.insert("ms".into(), line.total_ms.median);
    reading
        .values
        .insert("launches".into(), line.launches as f64);
    reading.values.extend(
        line.compute_share
            .map(|share| ("compute_share".to_owned(), share)),
    );
    Ok((reading, cpu))
}

/// Name, precisions, sizes for a CPU device (short: `quick`), sizes for a GPU (the same).
type Plan = (
    &'static str,
    &'static [&'static str],
    [&'static [u64]; 2],
    [&'static [u64]; 2],
);

const BOTH: &[&str] = &["single", "double"];
const PLANS: [Plan; 4] = [
    (
        "sgemm",
        BOTH,
        [&[256, 512, 1024], &[512]],
        [&[1024, 2048, 4096], &[4096]],
    ),
    (
        "nbody",
        BOTH,
        [&[2048, 4096, 8192], &[4096]],
        [&[8192, 16_384, 65_536], &[65_536]],
    ),
    (
        "transpose",
        BOTH,
        [&[1024, 2048, 4096], &[2048]],
        [&[2048, 4096, 8192], &[8192]],
    ),
    (
        "smith_waterman",
        &["none"],
        [&[1024, 2048, 6144], &[1024]],
        [&[1024, 2048, 6144], &[1024, 6144]],
    ),
];

/// How often a process of a leg computes what took the slowest leg so long: short ones vary most, and starting a process takes longer.
fn iterations(slowest_ms: f64) -> usize {
    (400.0 / slowest_ms).clamp(3.0, 15.0) as usize
}

impl Run<'_> {
    /// Figures 9 to 11: time by problem size, and the share of kernels in it.
    pub(super) fn workloads(&mut self, folder: &Path) {
        let quick = usize::from(self.effort.quick);
        for (name, precisions, cpu_sizes, gpu_sizes) in PLANS {
            let sizes = if self.basis.gpu { gpu_sizes } else { cpu_sizes }[quick];
            for precision in precisions {
                if *precision == "double" && (!self.double || self.effort.quick) {
                    continue;
                }
                for size in sizes {
                    self.workload(folder, name, precision, *size, size == &sizes[0]);
                }
            }
        }
    }

    fn workload(
        &mut self,
        folder: &Path,
        name: &'static str,
        precision: &'static str,
        size: u64,
        smallest: bool,
    ) {
        let job = Job {
            name,
            precision,
            size,
            iterations: 1,
            devices: 1,
            instances: 1,
            check: false,
        };
        let mut warm_up = self.legs.wanted(&OPENCL);
        let mut slowest_ms = 0.0_f64;
        let title = format!("{name} {precision} {size}").replace(" none", "");
        // Each run measures after two of its own that it does not count, so the warm-up here checks instead; the
        // reference on the CPU takes long, so only for the smallest size.
        let turns = self.legs.take_turns(&title, &OPENCL, 3, |legs, leg| {
            let first = warm_up.contains(&leg);
            warm_up.retain(|other| *other != leg);
            let job = Job {
                check: first && smallest,
                iterations: if first { 1 } else { iterations(slowest_ms) },
                ..job.clone()
            };
            let ran = run_once(legs, leg, folder, &job)?;
            if let (true, Some(ms)) = (first, ran.0.values.get("ms")) {
                slowest_ms = slowest_ms.max(*ms);
            }
            Ok(ran)
        });
        self.report(
            &turns,
            Row {
                id: format!("workload.{name}.{precision}.{size}"),
                section: "Application kernels by problem size",
                title,
                paper: Some("Figures 9 to 11"),
                unit: "ms",
                value: ("ms", 1.0),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_less_time_is_computed_more_often() {
        let of = [0.0, 1.0, 40.0, 100.0, 1e4].map(iterations);
        assert_eq!(of, [15, 15, 10, 4, 3]);
    }

    #[test]
    fn result_line_is_understood() {
        let text = r#"{"workload":"sgemm","size":512,"precision":"single","devices":1,"device_name":"x",
            "platform":"y","iterations":3,"instances":1,"total_ms":{"median":52.1,"min":49.9,"max":52.2},
            "compute_share":null,"gflops":5.1,"launches":1,"check":"skipped","max_error":null}"#;
        let line: Line = serde_json::from_str(text).unwrap();
        assert_eq!((line.total_ms.median, line.compute_share), (52.1, None));
    }

    #[test]
    fn sizes_that_promises_name_are_measured_on_gpus() {
        let sizes = |name: &str| {
            let plan = PLANS.iter().find(|plan| plan.0 == name).unwrap();
            plan.3.map(|sizes| sizes.to_vec())
        };
        for (name, size) in [("sgemm", 4096), ("nbody", 65_536), ("smith_waterman", 6144)] {
            assert!(
                sizes(name).iter().all(|sizes| sizes.contains(&size)),
                "{name}"
            );
        }
    }
}
