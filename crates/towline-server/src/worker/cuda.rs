//! The CUDA engine in a worker process: loads the driver that the command line names, and joins the engine of `towline-worker` to the
//! lanes that the supervisor passes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use towline_backend::cuda::{CudaApi, NativeCuda, NullCuda};
use towline_backend::nccl::NativeNccl;
use towline_soft::{SoftCuda, SoftNccl};
pub use towline_soft::{SoftOptions, SoftTier};

use super::lanes::{self, is_selected};
use super::process::{Engine, EngineError, Session};
use super::protocol::CollectivesGrant;

/// What to open.
#[derive(Clone, Debug, Default)]
pub struct CudaOptions {
    /// What carries out the calls.
    pub driver: CudaDriver,
    /// Devices to offer, by number or part of their name. Empty: all.
    pub devices: Vec<String>,
    /// Devices on which a context is made before a client has come.
    pub ready_contexts: usize,
}

/// What carries out CUDA calls.
#[derive(Clone, Debug, Default)]
pub enum CudaDriver {
    /// The system's driver.
    #[default]
    System,
    /// A driver's library, by name or path.
    Library(String),
    /// Devices in software.
    Soft(SoftOptions),
    /// Not a driver but a device in host memory: for tests.
    Null,
}

/// Loads the driver and looks at its devices.
pub fn open(options: &CudaOptions) -> Result<Box<dyn Engine>, EngineError> {
    if matches!(options.driver, CudaDriver::System | CudaDriver::Library(_)) {
        towline_sys::process::shift_drivers_addresses();
    }
    let mut software = None;
    let (api, genuine): (Arc<dyn CudaApi>, bool) = match &options.driver {
        CudaDriver::System => (Arc::new(NativeCuda::open()?), true),
        CudaDriver::Library(library) => (Arc::new(NativeCuda::from_library(library)?), true),
        CudaDriver::Soft(soft) => {
            let soft = Arc::new(SoftCuda::new(soft.clone())?);
            software = Some(Arc::clone(&soft));
            (soft, false)
        }
        CudaDriver::Null => (Arc::new(NullCuda::new(1)), false),
    };
    let selected = |number: usize, name: &str| is_selected(&options.devices, number, name);
    let engine = towline_worker::CudaEngine::open(api, genuine, &selected, options.ready_contexts)?;
    // Kernels print to the client, not to whoever started the server.
    engine.capture_output()?;
    Ok(Box::new(CudaEngine { engine, software }))
}

/// An error with its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

struct CudaEngine {
    engine: towline_worker::CudaEngine,
    /// A device in software ends kernels by itself, at an exact place.
    software: Option<Arc<SoftCuda>>,
}

impl Engine for CudaEngine {
    fn snapshot(&self) -> Vec<u8> {
        self.engine.snapshot().to_vec()
    }

    fn prepare(&mut self) {
        self.engine.make_contexts();
    }

    fn run(self: Box<Self>, session: Session) -> Result<(), EngineError> {
        let Session {
            parameters,
            lanes,
            counters,
            broker,
        } = session;
        let Some((command, further)) = lanes::of(lanes) else {
            return Ok(());
        };
        let limits = towline_worker::Limits {
            chunk_bytes: parameters.chunk_bytes,
        };
        if let Some(software) = &self.software {
            let limit = counters.kernel_time_ms.swap(0, Ordering::Relaxed);
            software.set_time_limit(Duration::from_millis(limit));
        }
        let mut engine = self.engine.with_broker(broker);
        if let Some(devices) = &parameters.devices {
            engine = engine.with_devices(devices);
        }
        if let Some(CollectivesGrant { library }) = parameters.collectives {
            let software = self.software.clone();
            engine = engine.with_collectives(Box::new(move || match &software {
                Some(software) => Ok(Arc::new(SoftNccl::new(Arc::clone(software) as _))),
                None => match NativeNccl::from_library(&library) {
                    Ok(native) => Ok(Arc::new(native)),
                    Err(error) => Err(describe(&error)),
                },
            }));
        }
        Ok(engine.run(command, further, limits, counters)?)
    }
}
