//! What is assumed of the study's programs and machines, each value with where it comes from.
//!
//! Counts and sizes of messages follow from specifications and stand with the programs. Here is what does not: how fast a core
//! is with each program, and what memory, links and GPUs carry. No value was chosen by what comes out; docs/study.md lists them
//! with their earlier values, and varies each ([`Assumed::varied`]).

use crate::{Cluster, Error, Result};

/// One of the assumed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Speed of NPB's CG on a core.
    CgSpeed,
    /// Memory traffic of CG for each operation.
    CgBytes,
    /// Speed of NPB's FT on a core.
    FtSpeed,
    /// Memory traffic of FT for each operation.
    FtBytes,
    /// Speed of NPB's IS on a core.
    IsSpeed,
    /// Memory traffic of IS for each operation.
    IsBytes,
    /// Speed of NPB's LU on a core.
    LuSpeed,
    /// Memory traffic of LU for each operation.
    LuBytes,
    /// Speed of Himeno's benchmark on a core.
    HimenoSpeed,
    /// The same, built by Intel's compiler.
    HimenoIntelSpeed,
    /// Memory traffic of Himeno's benchmark for each operation.
    HimenoBytes,
    /// Time of molecular dynamics for the near pairs of an atom in a step.
    MdPairs,
    /// Its time for the rest of an atom's step.
    MdOther,
    /// Its time for the far forces of an atom in a step.
    MdLong,
    /// Its time on a GPU for an atom in a step.
    MdGpu,
    /// Bandwidth of a socket's memory.
    MemoryBandwidth,
    /// Bandwidth of messages within a node.
    MessageBandwidth,
    /// Bandwidth between the sockets of a node.
    SocketLink,
    /// Bandwidth of a node's link.
    NetworkBandwidth,
    /// Latency of the network.
    NetworkLatency,
    /// Bandwidth between GPU and host.
    GpuLink,
    /// Gain by two threads on a core.
    ThreadsGain,
}

/// A value and its history.
#[derive(Clone, Copy, Debug)]
pub struct Assumption {
    /// The quantity.
    pub quantity: Quantity,
    /// Its name in options and reports.
    pub name: &'static str,
    /// Its unit; empty for a ratio.
    pub unit: &'static str,
    /// Its value.
    pub value: f64,
    /// What was assumed before costs were derived; the same for what had a source already.
    pub earlier: f64,
    /// The source of the value.
    pub source: &'static str,
    /// Names of declared programs start with it; empty: all.
    pub of: &'static str,
}

/// The clock of the study's processors, an Intel Xeon E5645.
const CLOCK: f64 = 2.4e9;
/// Instructions in a cycle as long as caches answer: of the four that these processors can end, what compiled loops reach.
const PER_CYCLE: f64 = 1.5;
/// Cycles until the second cache answers, as measured on this family; what lies further away is brought ahead.
const MISS_CYCLES: f64 = 10.0;
/// Of one core, as measured on this family with three channels of DDR3-1333.
const CORE_BANDWIDTH: f64 = 12e9;

/// Operations per second of one core with so many instructions, misses of the first cache and bytes of memory for each.
const fn core_speed(instructions: f64, misses: f64, bytes: f64) -> f64 {
    let computes = CLOCK / (instructions / PER_CYCLE + misses * MISS_CYCLES);
    let streams = CORE_BANDWIDTH / bytes;
    if computes < streams {
        computes
    } else {
        streams
    }
}

const COUNTED: &str = "instructions and first-cache misses of our own program by workloads/mpi/costs.sh, 1.5 instructions and 10 cycles a miss at 2.4 GHz";
const TRAFFIC: &str =
    "bytes of our own program by workloads/mpi/costs.sh, with a sixth of the processor's cache";
const NAMD: &str = "NVIDIA's report on NAMD 2.9 of November 2012: ApoA1's 92,224 atoms at 1.37 ns a day on 16 cores of 3.1 GHz, hence \
     14.1 us an atom and step on a core of 2.4 GHz";

const HIMENO_BYTES: f64 = 2.41;

/// FT's passes over memory do not grow with the problem, and its operations do: from 64 to 512 points an edge.
const FT_BYTES: f64 = 3.84 * 95.2 / 140.2;

/// All of them. Speeds are operations per second of a core with a socket to itself, as each program counts operations.
pub const ASSUMPTIONS: &[Assumption] = &[
    Assumption {
        quantity: Quantity::CgSpeed,
        name: "cg-speed",
        unit: "op/s",
        value: core_speed(3.63, 0.351, 6.18),
        earlier: 0.42e9,
        source: COUNTED,
        of: "cg",
    },
    Assumption {
        quantity: Quantity::CgBytes,
        name: "cg-bytes",
        unit: "B/op",
        value: 6.18,
        earlier: 15.0,
        source: TRAFFIC,
        of: "cg",
    },
    Assumption {
        quantity: Quantity::FtSpeed,
        name: "ft-speed",
        unit: "op/s",
        value: core_speed(3.35, 0.042, FT_BYTES),
        earlier: 0.75e9,
        source: COUNTED,
        of: "ft",
    },
    Assumption {
        quantity: Quantity::FtBytes,
        name: "ft-bytes",
        unit: "B/op",
        value: FT_BYTES,
        earlier: 6.7,
        source: TRAFFIC,
        of: "ft",
    },
    Assumption {
        quantity: Quantity::IsSpeed,
        name: "is-speed",
        unit: "op/s",
        value: core_speed(34.56, 0.721, 33.40),
        earlier: 0.04e9,
        source: COUNTED,
        of: "is",
    },
    Assumption {
        quantity: Quantity::IsBytes,
        name: "is-bytes",
        unit: "B/op",
        value: 33.40,
        earlier: 60.0,
        source: TRAFFIC,
        of: "is",
    },
    Assumption {
        quantity: Quantity::LuSpeed,
        name: "lu-speed",
        unit: "op/s",
        value: core_speed(3.10, 0.010, 0.74),
        earlier: 1.0e9,
        source: COUNTED,
        of: "lu",
    },
    Assumption {
        quantity: Quantity::LuBytes,
        name: "lu-bytes",
        unit: "B/op",
        value: 0.74,
        earlier: 4.0,
        source: TRAFFIC,
        of: "lu",
    },
    Assumption {
        quantity: Quantity::HimenoSpeed,
        name: "himeno-speed",
        unit: "op/s",
        value: core_speed(1.71, 0.034, HIMENO_BYTES),
        earlier: 1.7e9,
        source: COUNTED,
        of: "himeno",
    },
    Assumption {
        quantity: Quantity::HimenoIntelSpeed,
        name: "himeno-intel-speed",
        unit: "op/s",
        value: CORE_BANDWIDTH / HIMENO_BYTES,
        earlier: 3.4e9,
        source: "a vectorized loop takes what one core can stream: 12 GB/s, as AnandTech measured on this family",
        of: "himeno-intel",
    },
    Assumption {
        quantity: Quantity::HimenoBytes,
        name: "himeno-bytes",
        unit: "B/op",
        value: HIMENO_BYTES,
        earlier: 100.0 / 34.0,
        source: TRAFFIC,
        of: "himeno",
    },
    Assumption {
        quantity: Quantity::MdPairs,
        name: "md-pairs",
        unit: "s",
        value: 0.87 * MD_STEP_S,
        earlier: 22_000.0 / 1.2e9,
        source: NAMD,
        of: "md",
    },
    Assumption {
        quantity: Quantity::MdOther,
        name: "md-other",
        unit: "s",
        value: 0.10 * MD_STEP_S,
        earlier: 2_600.0 / 1.2e9,
        source: "the same; a tenth of a step, as such programs commonly spend on bonds and integration",
        of: "md",
    },
    Assumption {
        quantity: Quantity::MdLong,
        name: "md-long",
        unit: "s",
        value: 4.0 * 0.03 * MD_STEP_S,
        earlier: 3_000.0 / 1.2e9,
        source: "the same; the rest, every fourth step",
        of: "md",
    },
    Assumption {
        quantity: Quantity::MdGpu,
        name: "md-gpu",
        unit: "s",
        // 2.63 ns a day are 32.9 ms a step. An M2050 has 1,030 of an M2090's 1,331 GFLOPS.
        value: 0.0329 / 92_224.0 * 1331.0 / 1030.0,
        earlier: 22_000.0 / 1.2e9 / 14.0,
        source: "the same report: 2.63 ns a day with one M2090 beside, all of a step its; an M2050 by peak rates",
        of: "md",
    },
    Assumption {
        quantity: Quantity::MemoryBandwidth,
        name: "memory-bandwidth",
        unit: "B/s",
        value: 20e9,
        earlier: 20e9,
        source: "of a socket; half of what STREAM gives two sockets of this family with DDR3-1333",
        of: "",
    },
    Assumption {
        quantity: Quantity::MessageBandwidth,
        name: "message-bandwidth",
        unit: "B/s",
        value: 5e9,
        earlier: 5e9,
        source: "a quarter of it: each byte of a message within a socket is read and written twice",
        of: "",
    },
    Assumption {
        quantity: Quantity::SocketLink,
        name: "socket-link",
        unit: "B/s",
        value: 8e9,
        earlier: 8e9,
        source: "QuickPath of 5.86 GT/s is 11.7 GB/s a direction, two thirds of which are data",
        of: "",
    },
    Assumption {
        quantity: Quantity::NetworkBandwidth,
        name: "network-bandwidth",
        unit: "B/s",
        value: 3.2e9,
        earlier: 3.2e9,
        source: "of MPI over QDR adapters on PCI Express 2.0 x8, as makers stated it",
        of: "",
    },
    Assumption {
        quantity: Quantity::NetworkLatency,
        name: "network-latency",
        unit: "s",
        value: 1.3e-6,
        earlier: 1.3e-6,
        source: "the same",
        of: "",
    },
    Assumption {
        quantity: Quantity::GpuLink,
        name: "gpu-link",
        unit: "B/s",
        value: 5.5e9,
        earlier: 5.5e9,
        source: "PCI Express 2.0 x16 is 8 GB/s, of which transfers from pinned memory commonly reach 5.5 to 6",
        of: "md",
    },
    Assumption {
        quantity: Quantity::ThreadsGain,
        name: "threads-gain",
        unit: "",
        value: 1.1,
        earlier: 1.1,
        source: "what two hardware threads of this family commonly give such programs",
        of: "",
    },
];

/// Core seconds of an atom and step.
const MD_STEP_S: f64 = 14.1e-6;

/// The assumed values, one of them perhaps varied.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Assumed {
    varied: Option<(Quantity, f64)>,
}

impl Quantity {
    /// The one of this name.
    pub fn named(name: &str) -> Result<Self> {
        let known = ASSUMPTIONS
            .iter()
            .find(|assumption| assumption.name == name);
        known.map(|assumption| assumption.quantity).ok_or_else(|| {
            let names: Vec<&str> = ASSUMPTIONS
                .iter()
                .map(|assumption| assumption.name)
                .collect();
            Error::Size(format!(
                "there is no assumption `{name}`; there are {}",
                names.join(", ")
            ))
        })
    }

    /// Its entry in [`ASSUMPTIONS`].
    pub fn assumption(self) -> &'static Assumption {
        ASSUMPTIONS
            .iter()
            .find(|assumption| assumption.quantity == self)
            .expect("every quantity is in the table, as a test shows")
    }
}

impl Assumption {
    /// Whether a declared program's time depends on it.
    pub fn concerns(&self, program: &str) -> bool {
        match self.of {
            "" => true,
            "md" => program.starts_with("atpase") || program.starts_with("stmv"),
            "himeno" if self.quantity == Quantity::HimenoSpeed => program == "himeno",
            of => program.starts_with(of),
        }
    }
}

impl Assumed {
    /// All values as they are, but this one so many times as large.
    pub fn varied(quantity: Quantity, factor: f64) -> Self {
        Self {
            varied: Some((quantity, factor)),
        }
    }

    fn factor(self, quantity: Quantity) -> f64 {
        match self.varied {
            Some((varied, factor)) if varied == quantity => factor,
            _ => 1.0,
        }
    }

    /// The value of a quantity, varied if it is the one.
    pub fn of(self, quantity: Quantity) -> f64 {
        quantity.assumption().value * self.factor(quantity)
    }

    /// A preset with the varied value; those that are as they are, are the preset's own.
    pub fn apply(self, cluster: &mut Cluster) {
        let factor = |quantity| self.factor(quantity);
        cluster.network.bandwidth *= factor(Quantity::NetworkBandwidth);
        cluster.network.latency_s *= factor(Quantity::NetworkLatency);
        cluster.memory.bandwidth *= factor(Quantity::MessageBandwidth);
        cluster.memory.socket_link *= factor(Quantity::SocketLink);
        cluster.gpu.link *= factor(Quantity::GpuLink);
        for node in &mut cluster.nodes {
            node.memory_bandwidth *= factor(Quantity::MemoryBandwidth);
            // What is gained is varied, not what one thread does.
            node.threads_gain = 1.0 + (node.threads_gain - 1.0) * factor(Quantity::ThreadsGain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::preset;

    #[test]
    fn what_the_preset_says_is_what_is_listed() {
        let cluster = preset::cluster("study-qdr").unwrap();
        let of = |quantity| Assumed::default().of(quantity);
        let node = &cluster.nodes[0];
        let pairs = [
            (cluster.network.bandwidth, Quantity::NetworkBandwidth),
            (cluster.network.latency_s, Quantity::NetworkLatency),
            (cluster.memory.bandwidth, Quantity::MessageBandwidth),
            (cluster.memory.socket_link, Quantity::SocketLink),
            (cluster.gpu.link, Quantity::GpuLink),
            (node.memory_bandwidth, Quantity::MemoryBandwidth),
            (node.threads_gain, Quantity::ThreadsGain),
        ];
        for (preset, quantity) in pairs {
            assert!(
                (preset / of(quantity) - 1.0).abs() < 1e-9,
                "{quantity:?}: {preset}"
            );
        }
    }

    #[test]
    fn one_value_is_varied_and_the_others_stay() {
        let assumed = Assumed::varied(Quantity::CgSpeed, 0.7);
        let usual = Assumed::default();
        assert_eq!(
            assumed.of(Quantity::CgSpeed),
            0.7 * usual.of(Quantity::CgSpeed)
        );
        assert_eq!(assumed.of(Quantity::CgBytes), usual.of(Quantity::CgBytes));
        let (mut varied, preset) = (
            preset::cluster("study-qdr").unwrap(),
            preset::cluster("study-qdr").unwrap(),
        );
        assumed.apply(&mut varied);
        assert_eq!(varied, preset);
        Assumed::varied(Quantity::MemoryBandwidth, 1.3).apply(&mut varied);
        assert!((varied.nodes[0].memory_bandwidth / 26e9 - 1.0).abs() < 1e-9);
        assert_eq!(varied.network, preset.network);
    }

    #[test]
    fn a_core_is_bound_by_what_it_computes_or_by_what_it_can_stream() {
        assert_eq!(core_speed(1.5, 0.0, 1.0), 2.4e9);
        assert_eq!(core_speed(1.5, 0.0, 10.0), 1.2e9);
        assert!(core_speed(1.5, 0.1, 1.0) < 1.21e9);
    }

    #[test]
    fn assumptions_have_names_of_their_own_and_concern_a_program() {
        for assumption in ASSUMPTIONS {
            assert_eq!(
                Quantity::named(assumption.name).unwrap(),
                assumption.quantity
            );
            let concerned = crate::program::declared::Kernel::ALL
                .iter()
                .any(|(name, _)| assumption.concerns(name));
            assert!(concerned, "{}", assumption.name);
        }
        assert!(Quantity::named("luck").is_err());
    }
}
