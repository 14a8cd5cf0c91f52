//! Single kernels without driver, context and streams: to measure the tiers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::exec::{LAUNCH_LIMIT, Launch, run};
use crate::image::{Image, Kernel};
use crate::jit::Compiled;
use crate::memory::{Arena, Purpose};

/// Bytes of addresses for what a measurement allocates.
const ADDRESSES: u64 = 1 << 30;

/// One kernel of a module.
#[derive(Debug)]
pub struct Subject {
    arena: Arc<Arena>,
    kernel: Kernel,
    code: Option<Arc<Compiled>>,
}

/// How a kernel is launched.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Threads of the host.
    pub host_threads: usize,
    /// By the compiled code, or else by the interpreter.
    pub compiled: bool,
}

impl Subject {
    /// Loads a module's text; the kernel is not compiled yet.
    pub fn new(text: &str, kernel: &str) -> Result<Self, String> {
        let arena = Arc::new(Arena::reserve(ADDRESSES).map_err(|error| error.to_string())?);
        let image = Image::load(text.to_owned(), &arena, 0).map_err(|error| error.to_string())?;
        let image = Arc::new(image);
        let id = image
            .program
            .kernel(kernel)
            .ok_or("there is no such kernel")?;
        let kernel = image.kernel(id).map_err(|why| why.to_string())?;
        Ok(Self {
            arena,
            kernel,
            code: None,
        })
    }

    /// Compiles it; gives the time that took, and the bytes of the code.
    pub fn compile(&mut self) -> Result<(Duration, usize), String> {
        let code = Compiled::new(&self.kernel).map_err(|why| why.to_string())?;
        let made = (code.took, code.code_bytes);
        self.code = Some(Arc::new(code));
        Ok(made)
    }

    /// Memory of the device with these contents.
    pub fn memory(&self, bytes: &[u8]) -> Result<u64, String> {
        let len = bytes.len() as u64;
        let address = self.arena.allocate(len, 0, Purpose::Device);
        let address = address.ok_or("there is no memory left")?;
        match self.arena.range(address, len) {
            Some(span) if span.write(address, bytes) => Ok(address),
            _ => Err("what was allocated cannot be written".to_owned()),
        }
    }

    /// Gives memory back.
    pub fn free(&self, address: u64) {
        self.arena.free(address, Purpose::Device);
    }

    /// What the device's memory holds.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), String> {
        match self.arena.range(address, to.len() as u64) {
            Some(span) if span.read(address, to) => Ok(()),
            _ => Err("nothing of that length is allocated there".to_owned()),
        }
    }

    /// Launches it and waits. Gives the instructions of threads that the interpreter carried out: none, if it was compiled.
    pub fn launch(&self, shape: Shape, parameters: &[u8]) -> Result<u64, String> {
        let code = match (shape.compiled, &self.code) {
            (false, _) => None,
            (true, Some(code)) => Some(Arc::clone(code)),
            (true, None) => return Err("the kernel was not compiled".to_owned()),
        };
        let launch = launch(self.kernel.clone(), code, &self.arena, shape, parameters);
        run(&launch).map_err(|fault| fault.to_string())?;
        Ok(launch.executed.load(Ordering::Relaxed))
    }
}

fn launch(
    kernel: Kernel,
    code: Option<Arc<Compiled>>,
    arena: &Arc<Arena>,
    shape: Shape,
    parameters: &[u8],
) -> Arc<Launch> {
    Arc::new(Launch {
        shared_bytes: kernel.dynamic_start(),
        dynamic_bytes: 0,
        kernel,
        code,
        arena: Arc::clone(arena),
        textures: Default::default(),
        device: 0,
        grid: shape.grid,
        block: shape.block,
        parameters: parameters.to_vec(),
        resident_blocks: 1024,
        workspace: 0,
        number: 1,
        host_threads: shape.host_threads,
        heap_bytes: 0,
        memory_limit: LAUNCH_LIMIT,
        started: Instant::now(),
        deadline: None,
        executed: AtomicU64::new(0),
        cancelled: Arc::new(AtomicBool::new(false)),
        print: Arc::new(|_: &[u8]| {}),
    })
}

/// Runs one thread of a kernel that takes a pointer.
#[cfg(test)]
pub(crate) fn run_once(
    kernel: Kernel,
    code: Arc<Compiled>,
    arena: &Arc<Arena>,
) -> Result<(), String> {
    let shape = Shape {
        grid: [1; 3],
        block: [1; 3],
        host_threads: 1,
        compiled: true,
    };
    let launch = launch(kernel, Some(code), arena, shape, &[0; 8]);
    run(&launch).map_err(|fault| fault.to_string())
}
