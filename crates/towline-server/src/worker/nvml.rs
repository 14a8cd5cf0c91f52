//! The monitor in a worker process: loads the NVML library that the command line names, and answers what clients ask of its devices.

use std::sync::Arc;
use std::time::Instant;

use towline_backend::nvml::{NativeNvml, NullNvml, NvmlApi};
use towline_wire::control::{NvmlAnswers, NvmlQuestions};
use towline_worker::NvmlMonitor;

use super::lanes::is_selected;
use super::process::{EngineError, Monitor};

/// What to open.
#[derive(Clone, Debug, Default)]
pub struct NvmlOptions {
    /// The library, by name or path; `None`: the system's.
    pub library: Option<String>,
    /// Not a library but the figures of the device in host memory: for tests.
    pub null: bool,
    /// Devices to tell of, by number or part of their name. Empty: all.
    pub devices: Vec<String>,
    /// What `CUDA_VISIBLE_DEVICES` says on this server: what CUDA does not offer, NVML does not tell of.
    pub visible: Option<String>,
}

/// Starts the library and looks at its devices.
pub fn open(options: &NvmlOptions) -> Result<Box<dyn Monitor>, EngineError> {
    let api: Arc<dyn NvmlApi> = match &options.library {
        _ if options.null => Arc::new(NullNvml::new(1)),
        None => Arc::new(NativeNvml::open()?),
        Some(library) => Arc::new(NativeNvml::from_library(library)?),
    };
    let selected = |number: usize, name: &str, uuid: &str| {
        is_visible(options.visible.as_deref(), number, uuid)
            && is_selected(&options.devices, number, name)
    };
    Ok(Box::new(OpenMonitor(NvmlMonitor::open(api, &selected)?)))
}

/// Whether `CUDA_VISIBLE_DEVICES` names a device, by number or the start of its UUID, before the first that is neither.
fn is_visible(visible: Option<&str>, number: usize, uuid: &str) -> bool {
    let Some(list) = visible else {
        return true;
    };
    let words = list.split(',').map(str::trim);
    let mut words = words.take_while(|word| {
        word.parse::<usize>().is_ok() || word.starts_with("GPU-") || word.starts_with("MIG-")
    });
    words.any(|word| match word.parse::<usize>() {
        Ok(wanted) => wanted == number,
        Err(_) => uuid.to_lowercase().starts_with(&word.to_lowercase()),
    })
}

struct OpenMonitor(NvmlMonitor);

impl Monitor for OpenMonitor {
    fn snapshot(&self) -> Vec<u8> {
        self.0.snapshot().to_vec()
    }

    fn answer(&mut self, questions: &NvmlQuestions) -> NvmlAnswers {
        self.0.answer(questions, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cuda_does_not_see_is_not_told_of() {
        let uuid = "GPU-12ab";
        assert!(is_visible(None, 3, uuid));
        assert!(is_visible(Some("0,3"), 3, uuid));
        assert!(is_visible(Some("GPU-12"), 3, uuid));
        assert!(!is_visible(Some("MIG-9, 2"), 3, uuid));
        assert!(!is_visible(Some("0,-1,3"), 3, uuid));
        assert!(!is_visible(Some(""), 0, uuid));
    }
}
