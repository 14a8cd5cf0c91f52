//! Launches.

use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};

use smallvec::SmallVec;
use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::driver::{Driver, LaunchCalls, read, status, tell};
use crate::image::Known;
use crate::pack;

/// Words of a launch attribute on the wire: its number and its 64 bytes.
const ATTRIBUTE_WORDS: usize = 9;

type Attributes = SmallVec<[u64; 2 * ATTRIBUTE_WORDS]>;

/// Grid, blocks and shared memory of a launch.
#[derive(Clone, Copy)]
struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
}

impl Driver {
    pub(crate) fn function(&self, number: u64) -> Result<Known, CUresult> {
        self.ready()?;
        let found = read(&self.functions).find(number);
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// What any device refuses is refused here.
    fn check(&self, known: &Known, shape: Shape, device: CUdevice) -> Result<(), CUresult> {
        let facts = self.device(device)?;
        let most = |attribute| facts.attribute(attribute) as u32;
        let fits = |value: u32, attribute| value > 0 && value <= most(attribute);
        let dimensions = [
            (shape.grid[0], CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
            (shape.grid[1], CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
            (shape.grid[2], CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            (shape.block[0], CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
            (shape.block[1], CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
            (shape.block[2], CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
        ];
        if !dimensions
            .iter()
            .all(|(value, attribute)| fits(*value, *attribute))
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let threads: u64 = shape.block.iter().map(|size| u64::from(*size)).product();
        let most = known.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        match most {
            Some(most) if threads > most as u64 => Err(CUDA_ERROR_INVALID_VALUE),
            _ => Ok(()),
        }
    }

    /// # Safety
    /// The contract of cuLaunchKernel.
    unsafe fn launch(
        &self,
        function: CUfunction,
        shape: Shape,
        stream: CUstream,
        attributes: Attributes,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Result<(), CUresult> {
        let known = self.function(function.addr() as u64)?;
        let (acting, stream) = self.on(stream)?;
        self.check(&known, shape, acting.context.device)?;
        // SAFETY: the caller's contract.
        let block = unsafe { pack::pack(known.facts(), params, extra) }?;
        let mut hasher = DefaultHasher::new();
        (known.index, shape.block, shape.shared_bytes, &attributes).hash(&mut hasher);
        let configuration = hasher.finish();
        let [grid_x, grid_y, grid_z] = shape.grid;
        let [block_x, block_y, block_z] = shape.block;
        macro_rules! request {
            ($message:ident) => {
                wire::$message {
                    function: wire::FunctionHandle::from_raw(function),
                    stream,
                    grid_x,
                    grid_y,
                    grid_z,
                    block_x,
                    block_y,
                    block_z,
                    shared_bytes: shape.shared_bytes,
                    attribute_words: attributes.len() as u32,
                    attributes: wire::List::Values(&attributes),
                    size: block.len() as u64,
                    params: &block,
                }
            };
        }
        if known.accepted(configuration) {
            acting.post(&request!(Launch))?;
        } else {
            acting.call_for("cuLaunchKernel", &request!(LaunchFirst))?;
            known.accept(configuration);
        }
        acting.touch(stream);
        Ok(())
    }

    /// The words of launch attributes; those that name an event are recorded by the client, which they are not yet.
    ///
    /// # Safety
    /// `config` is a launch configuration.
    unsafe fn attributes(config: &CUlaunchConfig) -> Result<Attributes, CUresult> {
        // SAFETY: the caller's contract.
        let list =
            unsafe { crate::raw::slice(config.attrs.cast_const(), config.numAttrs as usize) };
        let mut words = Attributes::new();
        for attribute in list.ok_or(CUDA_ERROR_INVALID_VALUE)? {
            if matches!(
                attribute.id,
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
                    | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
            ) {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            words.push(u64::from(attribute.id));
            // SAFETY: the union's bytes are what travels; the application has filled those that count.
            let bytes = unsafe { attribute.value.pad };
            for word in bytes.as_chunks::<8>().0.iter() {
                let word: [u8; 8] = std::array::from_fn(|at| word[at] as u8);
                words.push(u64::from_le_bytes(word));
            }
        }
        Ok(words)
    }

    fn occupancy<'a, R: Request<'a>, T>(
        &self,
        request: &R,
        decode: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<T, CUresult> {
        let acting = self.session_for(0)?;
        let body = acting.call(request)?;
        decode(&body).ok_or_else(|| acting.malformed())
    }
}

impl LaunchCalls for Driver {
    unsafe fn cuLaunchKernel(
        &self,
        f: CUfunction,
        gridDimX: u32,
        gridDimY: u32,
        gridDimZ: u32,
        blockDimX: u32,
        blockDimY: u32,
        blockDimZ: u32,
        sharedMemBytes: u32,
        hStream: CUstream,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CUresult {
        let shape = Shape {
            grid: [gridDimX, gridDimY, gridDimZ],
            block: [blockDimX, blockDimY, blockDimZ],
            shared_bytes: sharedMemBytes,
        };
        // SAFETY: the caller's contract.
        status(unsafe { self.launch(f, shape, hStream, Attributes::new(), kernelParams, extra) })
    }

    unsafe fn cuLaunchKernelEx(
        &self,
        config: *const CUlaunchConfig,
        f: CUfunction,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let Some(config) = (unsafe { config.as_ref() }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let shape = Shape {
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared_bytes: config.sharedMemBytes,
        };
        // SAFETY: the caller's contract.
        let attributes = match unsafe { Self::attributes(config) } {
            Ok(attributes) => attributes,
            Err(status) => return status,
        };
        // SAFETY: the caller's contract.
        status(unsafe { self.launch(f, shape, config.hStream, attributes, kernelParams, extra) })
    }

    unsafe fn cuLaunchCooperativeKernel(
        &self,
        f: CUfunction,
        gridDimX: u32,
        gridDimY: u32,
        gridDimZ: u32,
        blockDimX: u32,
        blockDimY: u32,
        blockDimZ: u32,
        sharedMemBytes: u32,
        hStream: CUstream,
        kernelParams: *mut *mut c_void,
    ) -> CUresult {
        let shape = Shape {
            grid: [gridDimX, gridDimY, gridDimZ],
            block: [blockDimX, blockDimY, blockDimZ],
            shared_bytes: sharedMemBytes,
        };
        let mut attributes = Attributes::from_elem(0, ATTRIBUTE_WORDS);
        attributes[0] = u64::from(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
        attributes[1] = 1;
        let none = std::ptr::null_mut();
        // SAFETY: the caller's contract.
        status(unsafe { self.launch(f, shape, hStream, attributes, kernelParams, none) })
    }

    unsafe fn cuLaunchHostFunc(
        &self,
        hStream: CUstream,
        r#fn: CUhostFn,
        userData: *mut c_void,
    ) -> CUresult {
        status(self.launch_host_function(hStream, r#fn, userData))
    }

    unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &self,
        numBlocks: *mut i32,
        func: CUfunction,
        blockSize: i32,
        dynamicSMemSize: usize,
    ) -> CUresult {
        let request = wire::OccupancyMaxActiveBlocksPerMultiprocessor {
            func: wire::FunctionHandle::from_raw(func),
            blockSize,
            dynamicSMemSize: dynamicSMemSize as u64,
        };
        let blocks = self.occupancy(&request, |body| {
            wire::OccupancyMaxActiveBlocksPerMultiprocessorReply::decode(body)
                .ok()?
                .numBlocks
        });
        // SAFETY: the caller's contract.
        unsafe { tell(numBlocks, blocks) }
    }

    unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &self,
        numBlocks: *mut i32,
        func: CUfunction,
        blockSize: i32,
        dynamicSMemSize: usize,
        flags: u32,
    ) -> CUresult {
        let request = wire::OccupancyMaxActiveBlocksPerMultiprocessorWithFlags {
            func: wire::FunctionHandle::from_raw(func),
            blockSize,
            dynamicSMemSize: dynamicSMemSize as u64,
            flags,
        };
        let blocks = self.occupancy(&request, |body| {
            wire::OccupancyMaxActiveBlocksPerMultiprocessorWithFlagsReply::decode(body)
                .ok()?
                .numBlocks
        });
        // SAFETY: the caller's contract.
        unsafe { tell(numBlocks, blocks) }
    }

    unsafe fn cuOccupancyAvailableDynamicSMemPerBlock(
        &self,
        dynamicSmemSize: *mut usize,
        func: CUfunction,
        numBlocks: i32,
        blockSize: i32,
    ) -> CUresult {
        let request = wire::OccupancyAvailableDynamicSMemPerBlock {
            func: wire::FunctionHandle::from_raw(func),
            numBlocks,
            blockSize,
        };
        let bytes = self.occupancy(&request, |body| {
            wire::OccupancyAvailableDynamicSMemPerBlockReply::decode(body)
                .ok()?
                .dynamicSmemSize
        });
        // SAFETY: the caller's contract.
        unsafe { tell(dynamicSmemSize, bytes.map(|bytes| bytes as usize)) }
    }
}
