//! `towline worker`: the process of one session. Started by `towline serve`, never by hand.

use std::process::ExitCode;

use towline_server::worker::cuda::{self, CudaDriver, CudaOptions, SoftOptions, SoftTier};
use towline_server::worker::nvml::{self, NvmlOptions};
use towline_server::worker::opencl::{self, OpenClOptions};
use towline_server::worker::process;

use crate::cli::{BackendKind, TierChoice, WorkerOptions};
use crate::serve::soft_devices;

pub(crate) fn run(options: WorkerOptions) -> anyhow::Result<ExitCode> {
    if options.backend.backend == BackendKind::Cuda {
        let soft = soft_devices(&options.cuda)?.map(|devices| SoftOptions {
            devices,
            memory_bytes: options.soft.soft_memory,
            capability: options.soft.soft_capability,
            launch_bytes: options.soft.soft_launch_memory,
            tier: match options.soft.soft_tier {
                TierChoice::Auto => SoftTier::Auto,
                TierChoice::Interpreter => SoftTier::Interpreter,
                TierChoice::Jit => SoftTier::Jit,
            },
            ..SoftOptions::default()
        });
        let driver = match (options.cuda.as_str(), soft) {
            (_, Some(soft)) => CudaDriver::Soft(soft),
            ("null", _) => CudaDriver::Null,
            ("auto", _) => CudaDriver::System,
            _ => CudaDriver::Library(options.cuda),
        };
        let options = CudaOptions {
            driver,
            devices: options.backend.devices,
            ready_contexts: options.ready_contexts,
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
