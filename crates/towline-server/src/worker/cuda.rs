//! The CUDA engine in a worker process: loads the driver that the command line names, and joins the engine of `towline-worker` to the
//! lanes that the supervisor passes.

use std::sync::Arc;

use towline_backend::cuda::{CudaApi, NativeCuda, NullCuda};

use super::lanes::{self, is_selected};
use super::process::{Engine, EngineError, Session};

/// What to open.
#[derive(Clone, Debug, Default)]
pub struct CudaOptions {
    /// The driver's library, by name or path; `None`: the system's.
    pub driver: Option<String>,
    /// Not a driver but a device in host memory: for tests.
    pub null: bool,
    /// Devices to offer, by number or part of their name. Empty: all.
    pub devices: Vec<String>,
}

/// Loads the driver and looks at its devices.
pub fn open(options: &CudaOptions) -> Result<Box<dyn Engine>, EngineError> {
    let api: Arc<dyn CudaApi> = match &options.driver {
        _ if options.null => Arc::new(NullCuda::new(1)),
        None => Arc::new(NativeCuda::open()?),
        Some(library) => Arc::new(NativeCuda::from_library(library)?),
    };
    let selected = |number: usize, name: &str| is_selected(&options.devices, number, name);
    let engine = towline_worker::CudaEngine::open(api, !options.null, &selected)?;
    // Kernels print to the client, not to whoever started the server.
    engine.capture_output()?;
    Ok(Box::new(CudaEngine(engine)))
}

struct CudaEngine(towline_worker::CudaEngine);

impl Engine for CudaEngine {
    fn snapshot(&self) -> Vec<u8> {
        self.0.snapshot().to_vec()
    }

    fn run(self: Box<Self>, session: Session) -> Result<(), EngineError> {
        let Session {
            parameters,
            lanes,
            counters,
        } = session;
        let Some((command, further)) = lanes::of(lanes) else {
            return Ok(());
        };
        let limits = towline_worker::Limits {
            chunk_bytes: parameters.chunk_bytes,
        };
        Ok(self.0.run(command, further, limits, counters)?)
    }
}
