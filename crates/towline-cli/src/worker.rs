//! `towline worker`: the process of one session. Started by `towline serve`, never by hand.

use std::process::ExitCode;

use towline_server::worker::opencl::{self, OpenClOptions};
use towline_server::worker::process;

use crate::cli::{BackendKind, WorkerOptions};

pub(crate) fn run(options: WorkerOptions) -> anyhow::Result<ExitCode> {
    let options = OpenClOptions {
        null: options.backend.backend == BackendKind::Null,
        vendors: options.backend.icd,
        devices: options.backend.devices,
    };
    process::main(opencl::prepare, move || opencl::open(&options))
}
