//! Figures 12 and 13: speed-up over 1, 2, 4, ... devices, each behind a server process of its own.

use std::path::Path;

use super::leg::Reading;
use super::legs::LegKind;
use super::sections::{Row, Run};
use super::workloads::{Job, run_once};
use crate::cpu::CpuSeconds;
use crate::server::{Server, ServerSpec, free_ports};

/// What scales.
struct Scaled {
    name: &'static str,
    precision: &'static str,
    cpu_size: u64,
    gpu_size: u64,
    instances: usize,
    /// Every device adds work instead of sharing it.
    adds_work: bool,
}

const fn scaled(
    name: &'static str,
    precision: &'static str,
    cpu_size: u64,
    gpu_size: u64,
    instances: usize,
) -> Scaled {
    Scaled {
        name,
        precision,
        cpu_size,
        gpu_size,
        instances,
        adds_work: false,
    }
}

/// On GPUs, sizes at which the kernels outweigh what no number of devices shortens. Of n-body that is the last work-groups of a launch,
/// which leave most of a device idle: its sizes give each of two H200s, of 132 multiprocessors, 24 or 12 work-groups of 256 for each.
const JOBS: [Scaled; 6] = [
    scaled("sgemm", "single", 512, 12_288, 2),
    scaled("nbody", "single", 4096, 2 * 132 * 24 * 256, 1),
    scaled("transpose", "single", 2048, 8192, 2),
    Scaled {
        adds_work: true,
        ..scaled("smith_waterman", "none", 1024, 6144, 2)
    },
    scaled("nbody", "double", 4096, 2 * 132 * 12 * 256, 1),
    scaled("sgemm", "double", 512, 8192, 2),
];

/// How many devices are tried: 1, 2, 4, ... up to what there is.
fn counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |count| Some(count * 2))
        .take_while(|count| *count < most)
        .collect();
    counts.push(most);
    counts
}

/// The servers of a scaling run: one GPU each or, on a CPU device, one core each. All are each other's peers.
pub(super) fn start_servers(
    spec: &ServerSpec,
    gpu: bool,
    most: usize,
    scratch: &Path,
) -> anyhow::Result<Vec<Server>> {
    let ports = free_ports(most)?;
    (0..most)
        .map(|number| {
            let others = ports.iter().filter(|port| **port != ports[number]);
            let own = ServerSpec {
                device: gpu.then_some(number),
                cpus: (!gpu).then(|| number.to_string()),
                port: ports[number],
                peers: others.copied().collect(),
                ..spec.clone()
            };
            Server::start(&own, scratch)
        })
        .collect()
}

impl Run<'_> {
    /// Runs every workload over more and more devices; the legs' servers are `servers` from then on.
    pub(super) fn scaling(&mut self, folder: &Path, servers: &[Server]) {
        // On a CPU the native device is all cores at once: there is nothing like it to compare with.
        let legs: &[LegKind] = if self.basis.gpu {
            &[LegKind::Native, LegKind::Remote]
        } else {
            &[LegKind::Remote]
        };
        let counts = counts(servers.len());
        if counts.len() < 2 {
            return;
        }
        self.legs.server_pids = servers.iter().map(Server::pid).collect();
        self.legs.devices = (0, 0);
        for scaled in JOBS {
            let (name, precision) = (scaled.name, scaled.precision);
            if precision == "double" && (!self.double || self.effort.quick) {
                continue;
            }
            let size = match self.basis.gpu {
                true => scaled.gpu_size,
                false => scaled.cpu_size,
            };
            let title = format!("{name} {precision} {size}").replace(" none", "");
            self.legs.progress.tell(format!("  {title}"));
            let mut addresses = Vec::new();
            addresses.extend(servers.iter().map(|server| server.address.clone()));
            let turns =
                self.legs
                    .take_turns(&format!("scaling of {title}"), legs, 3, |legs, leg| {
                        let mut whole = Reading::default();
                        let mut cpu = CpuSeconds::default();
                        let mut alone_ms = None;
                        for count in &counts {
                            legs.servers = addresses[..*count].join(",");
                            let job = Job {
                                name,
                                precision,
                                size,
                                iterations: 1,
                                devices: *count,
                                instances: scaled.instances,
                                check: false,
                            };
                            let (reading, used) = run_once(legs, leg, folder, &job)?;
                            cpu.add(&used);
                            let ms = reading.values.get("ms").copied().unwrap_or(f64::NAN);
                            let alone = *alone_ms.get_or_insert(ms);
                            let work = if scaled.adds_work { *count as f64 } else { 1.0 };
                            whole
                                .values
                                .insert(format!("speedup {count}"), work * alone / ms);
                        }
                        Ok((whole, cpu))
                    });
            for count in &counts[1..] {
                let value = format!("speedup {count}");
                for (id, what, unit, scale) in [
                    ("speedup", "speed-up", "x", 1.0),
                    ("scaling", "efficiency", "of 1", 1.0 / *count as f64),
                ] {
                    self.report(
                        &turns,
                        Row {
                            id: format!("{id}.{name}.{precision}.{count}"),
                            section: "Speed-up over devices, a server process each",
                            title: format!("{title}, {count} devices: {what}"),
                            paper: Some(if precision == "double" {
                                "Figure 13"
                            } else {
                                "Figure 12"
                            }),
                            unit,
                            value: (&value, scale),
                        },
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_and_all() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(8), [1, 2, 4, 8]);
    }
}
