//! Launches in the way of CUDA 3 and before: shape and parameters are a function's, and stay from launch to launch.

use std::collections::HashMap;
use std::sync::Mutex;

use towline_backend::cuda::*;

use crate::driver::{Driver, lock};
use crate::launch::{Attributes, Shape};
use crate::pack::Arguments;

/// Most bytes of parameters, as old devices have it.
const PARAMETER_LIMIT: usize = 4096;

/// What was set for each function, by number.
pub(crate) type OldLaunches = Mutex<HashMap<u64, OldLaunch>>;

/// How a function is launched next.
#[derive(Clone)]
pub(crate) struct OldLaunch {
    block: [u32; 3],
    shared_bytes: u32,
    parameters: Vec<u8>,
    /// Bytes of the parameters, once they were said.
    size: usize,
}

impl Default for OldLaunch {
    fn default() -> Self {
        Self {
            block: [1; 3],
            shared_bytes: 0,
            parameters: Vec::new(),
            size: 0,
        }
    }
}

impl Driver {
    fn set_old(
        &self,
        function: CUfunction,
        set: impl FnOnce(&mut OldLaunch) -> Result<(), CUresult>,
    ) -> Result<(), CUresult> {
        let number = function.addr() as u64;
        self.function(number)?;
        set(lock(&self.old_launches).entry(number).or_default())
    }

    pub(crate) fn set_block(&self, function: CUfunction, sides: [i32; 3]) -> Result<(), CUresult> {
        let sides = sides.map(|side| u32::try_from(side).unwrap_or(0));
        if sides.contains(&0) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.set_old(function, |launch| {
            launch.block = sides;
            Ok(())
        })
    }

    pub(crate) fn set_shared(&self, function: CUfunction, bytes: u32) -> Result<(), CUresult> {
        self.set_old(function, |launch| {
            launch.shared_bytes = bytes;
            Ok(())
        })
    }

    pub(crate) fn set_parameter_size(
        &self,
        function: CUfunction,
        bytes: u32,
    ) -> Result<(), CUresult> {
        if bytes as usize > PARAMETER_LIMIT {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.set_old(function, |launch| {
            launch.size = bytes as usize;
            Ok(())
        })
    }

    pub(crate) fn set_parameter(
        &self,
        function: CUfunction,
        offset: i32,
        bytes: &[u8],
    ) -> Result<(), CUresult> {
        let start = usize::try_from(offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let end = start.saturating_add(bytes.len());
        if end > PARAMETER_LIMIT {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.set_old(function, |launch| {
            if launch.parameters.len() < end {
                launch.parameters.resize(end, 0);
            }
            if let Some(place) = launch.parameters.get_mut(start..end) {
                place.copy_from_slice(bytes);
            }
            Ok(())
        })
    }

    pub(crate) fn launch_old(
        &self,
        function: CUfunction,
        width: i32,
        height: i32,
        stream: CUstream,
    ) -> Result<(), CUresult> {
        self.enqueue_on(stream)?;
        let number = function.addr() as u64;
        self.function(number)?;
        let known = lock(&self.old_launches).get(&number).cloned();
        let mut launch = known.unwrap_or_default();
        launch.parameters.resize(launch.size, 0);
        let side = |side| u32::try_from(side).map_err(|_| CUDA_ERROR_INVALID_VALUE);
        let shape = Shape {
            grid: [side(width)?, side(height)?, 1],
            block: launch.block,
            shared_bytes: launch.shared_bytes,
        };
        let arguments = Arguments::Packed(&launch.parameters);
        self.launch(function, shape, stream, Attributes::new(), arguments)
    }
}
