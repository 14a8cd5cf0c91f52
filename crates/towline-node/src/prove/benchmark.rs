//! The known benchmarks: their commands, and how what they print is read.
//!
//! In a command are filled in: `{mpirun}`, `{programs}` and `{bind}` of the side, `{size}`, `{nodes}`, `{gpus}` of all nodes,
//! `{ranks}` of all nodes, `{per_node}`, `{hosts}`, `{length}` (edge of a cube of cells for LAMMPS), `{x}`, `{y}`, `{z}`
//! (copies of Rhodopsin's 32000 atoms). Names of the command line are those that LAMMPS and HOOMD document.

use serde::{Deserialize, Serialize};

use super::Side;
use super::spec::{Benchmark, Case, Spec};

/// A known benchmark.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Our Lennard-Jones fluid on processors, by MPI
    Lj,
    /// The same on GPUs
    LjCuda,
    /// Our Lennard-Jones fluid on one GPU, with no MPI
    LennardJones,
    /// Time of the smallest message between two nodes
    Latency,
    /// Large messages between two nodes
    Bandwidth,
    /// From the host's memory into the GPU's
    CopyIn,
    /// From the GPU's memory into the host's
    CopyOut,
    /// Large messages between the GPUs of two nodes (OSU's `osu_bw D D`)
    Gpudirect,
    /// LAMMPS, its Lennard-Jones benchmark
    LammpsLj,
    /// LAMMPS, its Rhodopsin benchmark
    LammpsRhodo,
    /// HOOMD-blue, a Lennard-Jones fluid, GPUDirect off
    HoomdLj,
    /// The same, GPUDirect on
    HoomdLjGpudirect,
}

/// What a figure is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Figure {
    /// Its unit.
    pub unit: &'static str,
    /// Whether more is better; else less is.
    pub is_rate: bool,
}

/// What the study found, as shares of native.
pub struct Study {
    /// The share.
    pub share: f64,
    /// Of what.
    pub of: &'static str,
}

impl Kind {
    /// What it is called in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lj => "lj",
            Self::LjCuda => "lj-cuda",
            Self::LennardJones => "lennard-jones",
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::CopyIn => "copy-in",
            Self::CopyOut => "copy-out",
            Self::Gpudirect => "gpudirect",
            Self::LammpsLj => "lammps-lj",
            Self::LammpsRhodo => "lammps-rhodo",
            Self::HoomdLj => "hoomd-lj",
            Self::HoomdLjGpudirect => "hoomd-lj-gpudirect",
        }
    }

    /// What its figure is.
    #[must_use]
    pub fn figure(self) -> Figure {
        let (unit, is_rate) = match self {
            Self::Lj | Self::LjCuda => ("million atom steps/s", true),
            Self::LennardJones => ("ms", false),
            Self::Latency => ("us", false),
            Self::Bandwidth | Self::Gpudirect => ("MB/s", true),
            Self::CopyIn | Self::CopyOut => ("GB/s", true),
            Self::LammpsLj | Self::LammpsRhodo => ("million atom steps/s", true),
            Self::HoomdLj | Self::HoomdLjGpudirect => ("steps/s", true),
        };
        Figure { unit, is_rate }
    }

    /// Whether the number of processes for each GPU means something to it.
    #[must_use]
    pub fn takes_ranks(self) -> bool {
        matches!(
            self,
            Self::Lj
                | Self::LjCuda
                | Self::LammpsLj
                | Self::LammpsRhodo
                | Self::HoomdLj
                | Self::HoomdLjGpudirect
        )
    }

    /// The fewest nodes that it means something on.
    #[must_use]
    pub fn least_nodes(self) -> u32 {
        match self {
            Self::Latency | Self::Bandwidth | Self::Gpudirect => 2,
            _ => 1,
        }
    }

    /// The most nodes that it runs on.
    #[must_use]
    pub fn most_nodes(self) -> u32 {
        match self {
            Self::Latency | Self::Bandwidth | Self::Gpudirect => 2,
            Self::LennardJones | Self::CopyIn | Self::CopyOut => 1,
            _ => u32::MAX,
        }
    }

    /// Its sizes where none are named: the study's, for what the study ran.
    #[must_use]
    pub fn sizes(self) -> Vec<String> {
        let sizes: &[&str] = match self {
            Self::Lj | Self::LjCuda => &["A"],
            Self::LennardJones => &["65536"],
            Self::LammpsLj => &[
                "2k", "4k", "8k", "16k", "32k", "64k", "128k", "256k", "512k",
            ],
            Self::LammpsRhodo => &["32k", "64k", "128k", "256k", "512k"],
            Self::HoomdLj | Self::HoomdLjGpudirect => &["256k"],
            _ => &[""],
        };
        sizes.iter().map(|&size| size.to_owned()).collect()
    }

    /// What the study found for the same.
    #[must_use]
    pub fn study(self, per_gpu: u32) -> Option<Study> {
        let (share, of) = match (self, per_gpu) {
            (Self::LammpsLj, 1) => (1.0, "LAMMPS LJ 1:1, all sizes"),
            (Self::LammpsLj, _) => (0.985, "LAMMPS LJ 8:1, all sizes"),
            (Self::LammpsRhodo, _) => (0.964, "LAMMPS Rhodopsin, all sizes; 99.3 % at 512k"),
            (Self::HoomdLj, _) => (0.984, "HOOMD LJ 256k, 4 nodes"),
            (Self::HoomdLjGpudirect, _) => (0.985, "HOOMD LJ 256k with GPUDirect, 4 nodes"),
            _ => return None,
        };
        Some(Study { share, of })
    }

    fn command(self) -> &'static str {
        match self {
            Self::Lj => "{bind} {mpirun} {programs}/lj --class {size} --json",
            Self::LjCuda => "{bind} {mpirun} {programs}/lj_cuda --class {size} --json",
            Self::LennardJones => "{bind} {programs}/lennard_jones --size {size} --json",
            Self::Latency | Self::Bandwidth => "{bind} {mpirun} {programs}/pingpong --json",
            Self::CopyIn => "{bind} nvbandwidth -t host_to_device_memcpy_ce",
            Self::CopyOut => "{bind} nvbandwidth -t device_to_host_memcpy_ce",
            Self::Gpudirect => "{bind} {mpirun} osu_bw -m 4194304:4194304 D D",
            Self::LammpsLj => {
                "cd \"${LAMMPS_BENCH:-/usr/share/lammps/bench}\" && {bind} {mpirun} lmp -sf gpu -pk gpu {gpus_per_node} -log none \
                 -var x {length} -var y {length} -var z {length} -in in.lj"
            }
            Self::LammpsRhodo => {
                "cd \"${LAMMPS_BENCH:-/usr/share/lammps/bench}\" && {bind} {mpirun} lmp -sf gpu -pk gpu {gpus_per_node} -log none \
                 -var x {x} -var y {y} -var z {z} -in in.rhodo.scaled"
            }
            // Open MPI's and MVAPICH's switches for memory of GPUs.
            Self::HoomdLj => {
                "export OMPI_MCA_btl_openib_want_cuda_gdr=0 UCX_IB_GPU_DIRECT_RDMA=n MV2_USE_GPUDIRECT=0; \
                 {bind} {mpirun} python3 {programs}/hoomd_lj.py --particles {size}"
            }
            Self::HoomdLjGpudirect => {
                "export OMPI_MCA_btl_openib_want_cuda_gdr=1 UCX_IB_GPU_DIRECT_RDMA=y MV2_USE_GPUDIRECT=1; \
                 {bind} {mpirun} python3 {programs}/hoomd_lj.py --particles {size}"
            }
        }
    }

    /// What has to be installed for it; its absence is a reason to leave it out, and no failure.
    #[must_use]
    pub fn needs(self) -> Option<&'static str> {
        match self {
            Self::CopyIn | Self::CopyOut => Some("nvbandwidth"),
            Self::Gpudirect => Some("osu_bw"),
            Self::LammpsLj | Self::LammpsRhodo => Some("lmp"),
            Self::HoomdLj | Self::HoomdLjGpudirect => Some("python3 -c 'import hoomd'"),
            Self::Lj => Some("{programs}/lj"),
            Self::LjCuda => Some("{programs}/lj_cuda"),
            Self::LennardJones => Some("{programs}/lennard_jones"),
            Self::Latency | Self::Bandwidth => Some("{programs}/pingpong"),
        }
    }

    /// A line of shell that succeeds where the benchmark is installed.
    #[must_use]
    pub fn probe(self, programs: &str) -> String {
        let needs = self
            .needs()
            .unwrap_or("true")
            .replace("{programs}", programs);
        match needs.contains(' ') {
            true => needs,
            false => format!("command -v {needs} >/dev/null"),
        }
    }

    /// The figure in what the benchmark printed.
    ///
    /// # Errors
    ///
    /// When there is none, or the benchmark says that its result is wrong.
    pub fn read(self, text: &str) -> Result<f64, String> {
        let found = match self {
            Self::Lj | Self::LjCuda => json(text, "matom_steps_per_s")?,
            Self::LennardJones => json(text, "total_ms/median")?,
            Self::Latency => json(text, "latency_us")?,
            Self::Bandwidth => json(text, "bandwidth_mb_per_s")?,
            Self::CopyIn | Self::CopyOut => after(text, "SUM ", 1),
            Self::Gpudirect => after(text, "4194304", 0),
            Self::LammpsLj | Self::LammpsRhodo => lammps(text),
            Self::HoomdLj | Self::HoomdLjGpudirect => after(text, "TPS:", 0),
        };
        found
            .filter(|figure| figure.is_finite() && *figure > 0.0)
            .ok_or_else(|| format!("there is no figure of {} in what it printed", self.name()))
    }
}

/// A figure of the JSON object that our benchmarks print as a line; one whose check failed has none.
fn json(text: &str, path: &str) -> Result<Option<f64>, String> {
    let mut objects = text
        .lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let Some(object) = objects.next_back() else {
        return Ok(None);
    };
    match object.get("check").and_then(serde_json::Value::as_str) {
        Some("pass" | "skipped") | None => {}
        Some(check) => return Err(format!("its result is wrong (check: {check})")),
    }
    Ok(object
        .pointer(&format!("/{path}"))
        .and_then(serde_json::Value::as_f64))
}

/// The word of this number behind a mark, in the last line that begins with it.
fn after(text: &str, mark: &str, skipped: usize) -> Option<f64> {
    let line = text
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix(mark))?;
    line.split_whitespace().nth(skipped)?.parse().ok()
}

/// `Loop time of 2.3 on 8 procs for 100 steps with 32000 atoms`: million atom steps per second.
fn lammps(text: &str) -> Option<f64> {
    let line = text
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("Loop time of "))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let before = |name: &str| {
        let at = words.iter().position(|&word| word == name)?;
        words.get(at.checked_sub(1)?)?.parse::<f64>().ok()
    };
    let seconds: f64 = words.first()?.parse().ok()?;
    Some(before("steps")? * before("atoms")? / seconds / 1e6)
}

/// Atoms: `512k` and `32000`.
fn atoms(size: &str) -> Option<u64> {
    let (number, unit) = match size.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1000),
        None => (size, 1),
    };
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)
        .filter(|&atoms| atoms > 0)
}

/// The command of a case on a side.
///
/// # Errors
///
/// When the size is none of this benchmark.
pub fn command(
    spec: &Spec,
    side: Side,
    case: &Case,
    benchmark: &Benchmark,
) -> Result<String, String> {
    let nodes = spec.side(side);
    let per_node = case.per_gpu.saturating_mul(spec.gpus.max(1));
    let ranks = match case.kind {
        Kind::Latency | Kind::Bandwidth | Kind::Gpudirect => 2,
        _ => per_node.saturating_mul(case.nodes),
    };
    let per_node = ranks.checked_div(case.nodes).unwrap_or(1).max(1);
    let hosts: Vec<String> = nodes
        .hosts
        .iter()
        .take(case.nodes as usize)
        .map(|host| format!("{host}:{per_node}"))
        .collect();
    let hosts = match hosts.is_empty() {
        true => format!("localhost:{per_node}"),
        false => hosts.join(","),
    };
    let mut text = benchmark
        .command
        .clone()
        .unwrap_or_else(|| case.kind.command().to_owned());
    let mut size = case.size.clone();
    if matches!(
        case.kind,
        Kind::LammpsLj | Kind::LammpsRhodo | Kind::HoomdLj | Kind::HoomdLjGpudirect
    ) {
        let atoms = atoms(&case.size)
            .ok_or_else(|| format!("`{}` is no number of atoms: write it like 512k", case.size))?;
        size = atoms.to_string();
        // in.lj has 4 atoms to a cell, and 20 cells to an edge where the factor is 1: 32000 atoms.
        let factor = (atoms as f64 / 32_000.0).cbrt();
        text = text.replace("{length}", &format!("{factor:.4}"));
        // Rhodopsin is copied whole: as near a cube as powers of two are.
        let copies = (atoms / 32_000).max(1).next_power_of_two().trailing_zeros();
        let edge = |more: u32| 1_u64 << (copies / 3 + u32::from(copies % 3 > more));
        for (name, more) in [("{x}", 0), ("{y}", 1), ("{z}", 2)] {
            text = text.replace(name, &edge(more).to_string());
        }
    }
    let numbers = [
        ("{mpirun}", nodes.mpirun.clone()),
        ("{bind}", nodes.bind.clone()),
        ("{programs}", nodes.programs.clone()),
        ("{size}", size),
        ("{nodes}", case.nodes.to_string()),
        ("{gpus}", spec.gpus.saturating_mul(case.nodes).to_string()),
        ("{gpus_per_node}", spec.gpus.max(1).to_string()),
        ("{ranks}", ranks.to_string()),
        ("{per_node}", per_node.to_string()),
        ("{hosts}", hosts),
    ];
    // What launches has names in it too, so that it comes first.
    for (name, value) in numbers {
        text = text.replace(name, &value);
    }
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_programs_print() {
        let lj = r#"{"workload":"lj","matom_steps_per_s":0.973405,"check":"pass"}"#;
        assert_eq!(Kind::Lj.read(&format!("noise\n{lj}\n")), Ok(0.973_405));
        let wrong = lj.replace("pass", "fail");
        assert!(Kind::Lj.read(&wrong).unwrap_err().contains("wrong"));
        let lammps = "Loop time of 2.5 on 8 procs for 100 steps with 32000 atoms\n\nPerformance: 1 tau/day\n";
        assert_eq!(Kind::LammpsLj.read(lammps), Ok(1.28));
        let osu = "# OSU MPI-CUDA Bandwidth Test\n# Size      Bandwidth (MB/s)\n4194304             12045.33\n";
        assert_eq!(Kind::Gpudirect.read(osu), Ok(12045.33));
        let copies = "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0\n 0     55.64\n\nSUM host_to_device_memcpy_ce 55.64\n";
        assert_eq!(Kind::CopyIn.read(copies), Ok(55.64));
        assert_eq!(Kind::HoomdLj.read("TPS: 812.5\n"), Ok(812.5));
        for kind in [
            Kind::Lj,
            Kind::LammpsRhodo,
            Kind::Gpudirect,
            Kind::HoomdLj,
            Kind::CopyOut,
        ] {
            for text in [
                "",
                "{}",
                "Loop time of x on",
                "TPS:",
                "SUM",
                "4194304",
                "{\"matom_steps_per_s\":-1}",
            ] {
                assert!(kind.read(text).is_err(), "{kind:?} {text}");
            }
        }
    }

    fn filled(kind: Kind, size: &str, per_gpu: u32, nodes: u32) -> String {
        let text = "gpus = 1\nnodes = [1, 2]\n[native]\nreach = [[], [\"ssh\", \"b\"]]\nhosts = [\"a\", \"b\"]\nbind = \"numactl -N 1\"\n\
                    [vm]\nreach = [[], []]\nhosts = [\"c\", \"d\"]\n[[benchmark]]\nkind = \"lj\"\n";
        let spec = Spec::parse(text).unwrap();
        let case = Case {
            kind,
            size: size.to_owned(),
            per_gpu,
            nodes,
        };
        command(&spec, Side::Native, &case, &spec.benchmark[0]).unwrap()
    }

    #[test]
    fn commands_have_everything_filled_in() {
        assert_eq!(
            filled(Kind::Lj, "A", 8, 2),
            "numactl -N 1 mpirun -np 16 --host a:8,b:8 --map-by ppr:8:node /usr/local/libexec/towline/lj --class A --json"
        );
        assert!(filled(Kind::Bandwidth, "", 1, 2).contains("-np 2 --host a:1,b:1"));
        for kind in [
            Kind::LammpsLj,
            Kind::LammpsRhodo,
            Kind::HoomdLj,
            Kind::Gpudirect,
            Kind::CopyIn,
        ] {
            let text = filled(kind, "512k", 1, 2).replace("${LAMMPS_BENCH", "");
            assert!(!text.contains('{'), "{text}");
        }
    }

    #[test]
    fn sizes_become_what_lammps_copies() {
        let rhodo = |size| {
            let text = filled(Kind::LammpsRhodo, size, 1, 1);
            let at = text.find("-var x").unwrap();
            text[at..].split(" -in").next().unwrap().to_owned()
        };
        assert_eq!(rhodo("32k"), "-var x 1 -var y 1 -var z 1");
        assert_eq!(rhodo("64k"), "-var x 2 -var y 1 -var z 1");
        assert_eq!(rhodo("512k"), "-var x 4 -var y 2 -var z 2");
        assert!(filled(Kind::LammpsLj, "256k", 1, 1).contains("-var x 2.0000"));
    }
}
