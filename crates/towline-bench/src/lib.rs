//! Measurements: what a network gives ([`net`]), and what remote OpenCL and CUDA cost against native ([`opencl`], [`cuda`]),
//! in time and in energy ([`energy`]).
//!
//! The program that mounts [`Options`] as its subcommand `bench` is also what every leg of a measurement runs: the environment of
//! a process decides which OpenCL or CUDA it sees, so each leg is a child of its own, started again from `/proc/self/exe`. Legs take turns,
//! repetition by repetition, so that a change of the machine's speed falls on all of them; figures are medians with their spread,
//! ratios are taken within a turn, and CPU seconds stand beside them.

#![warn(missing_docs)]

mod child;
mod cpu;
pub mod cuda;
pub mod energy;
mod library;
mod machine;
pub mod net;
pub mod opencl;
pub mod peer;
pub mod proxy;
pub mod report;
mod server;
pub mod soft;
pub mod stats;
pub mod table;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// `towline bench`.
#[derive(Args, Debug)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure latency and bandwidth between this machine and servers
    Net(net::Options),
    /// Measure OpenCL native, through Towline on this machine, and through a server
    Opencl(opencl::Options),
    /// Measure CUDA's driver interface natively and through a server
    Cuda(cuda::Options),
    /// Measure CUDA devices in software: the interpreter, compiled kernels, and what compiling takes
    Soft(soft::Options),
    /// Measure time, average power and energy of a program
    Energy(energy::Options),
    /// Record the power of this machine for `towline bench energy` on another
    Power(energy::PowerOptions),
    /// Relay TCP connections as a link of a given speed and delay would
    Proxy(proxy::Options),
    /// Answer the plain TCP measurements of another machine
    Peer(peer::Options),
    /// Measure one leg; started by `towline bench opencl`
    #[command(hide = true)]
    Leg(opencl::LegOptions),
    /// Measure one leg; started by `towline bench cuda`
    #[command(hide = true)]
    CudaLeg(cuda::LegOptions),
}

/// Runs the measurement that `options` name.
pub fn run(options: Options) -> anyhow::Result<ExitCode> {
    match options.what {
        What::Net(options) => net::run(&options),
        What::Opencl(options) => opencl::run(&options),
        What::Cuda(options) => cuda::run(&options),
        What::Soft(options) => soft::run(&options),
        What::Energy(options) => energy::run(&options),
        What::Power(options) => energy::record(&options),
        What::Proxy(options) => proxy::run(&options),
        What::Peer(options) => peer::run(&options),
        What::Leg(options) => opencl::run_leg(&options),
        What::CudaLeg(options) => cuda::run_leg(&options),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn declaration_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sections_and_legs_are_lists() {
        let line = [
            "bench",
            "opencl",
            "--only",
            "launch,small",
            "--legs",
            "native,remote",
        ];
        assert!(Cli::try_parse_from(line).is_ok());
        let error = Cli::try_parse_from(["bench", "opencl", "--only", "lunch"]).unwrap_err();
        assert!(error.to_string().contains("launch"), "{error}");
    }

    #[test]
    fn wrong_link_says_what_to_write() {
        let error = Cli::try_parse_from(["bench", "opencl", "--link", "1G"]).unwrap_err();
        assert!(error.to_string().contains("RATE,DELAY"), "{error}");
    }
}
