//! `towline worker`: the process of one session. Started by `towline serve`, never by hand.

use std::process::ExitCode;

use towline_server::worker::cuda::{self, CudaOptions};
use towline_server::worker::nvml::{self, NvmlOptions};
use towline_server::worker::opencl::{self, OpenClOptions};
use towline_server::worker::process;

use crate::cli::{BackendKind, WorkerOptions};

pub(crate) fn run(options: WorkerOptions) -> anyhow::Result<ExitCode> {
    if options.backend.backend == BackendKind::Cuda {
        let options = CudaOptions {
            null: options.cuda == "null",
            driver: Some(options.cuda).filter(|driver| driver != "auto"),
            devices: options.backend.devices,
        };
        // The same device nodes are needed as for NVIDIA's OpenCL, and for NVML below.
        process::main(opencl::prepare, move || cuda::open(&options));
    }
    if options.backend.backend == BackendKind::Nvml {
        let options = NvmlOptions {
            null: options.nvml == "null",
            library: Some(options.nvml).filter(|library| library != "auto"),
            devices: options.backend.devices,
            visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        };
        process::monitor(opencl::prepare, move || nvml::open(&options));
    }
    let options = OpenClOptions {
        null: options.backend.backend == BackendKind::Null,
        vendors: options.backend.icd,
        devices: options.backend.devices,
    };
    process::main(opencl::prepare, move || opencl::open(&options))
}
