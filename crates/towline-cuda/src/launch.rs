//! Launches.

use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use smallvec::SmallVec;
use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::raw::Vouched;

use crate::collective::refuse_between_ranks;
use crate::driver::{Acting, Driver, LaunchCalls, read};
use crate::graph::{Captured, kernel_content};
use crate::image::Known;
use crate::occupancy::{Question, launch_words};
use crate::pack::Arguments;
use crate::timeline;

/// Words of a launch attribute on the wire: its number and its 64 bytes.
pub(crate) const ATTRIBUTE_WORDS: usize = 9;

pub(crate) type Attributes = SmallVec<[u64; 2 * ATTRIBUTE_WORDS]>;

/// Grid, blocks and shared memory of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

impl Driver {
    pub(crate) fn function(&self, number: u64) -> Result<Known, CUresult> {
        self.ready()?;
        let found = read(&self.functions).find(number);
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Refuses a launch that any device refuses; `together` is whether all blocks are to run at once.
    pub(crate) fn check(
        &self,
        known: &Known,
        shape: Shape,
        together: bool,
        device: CUdevice,
    ) -> Result<(), CUresult> {
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
        let exceeds = |value: u64, attribute| {
            let most = self.attribute_of(known, device, attribute);
            most.is_ok_and(|most| u64::try_from(most).is_ok_and(|most| value > most))
        };
        let shared = u64::from(shape.shared_bytes);
        if exceeds(threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) {
            let any = u64::from(most(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
            let registers = self.attribute_of(known, device, CU_FUNC_ATTRIBUTE_NUM_REGS);
            let room = most(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
            let most = registers.map_or(any, |each| most_by_registers(each as u32, room));
            return match threads > most && threads <= any {
                true => Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
                false => Err(CUDA_ERROR_INVALID_VALUE),
            };
        }
        match exceeds(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
            // Not one block of those finds room (seen with driver 580.159).
            true if together => Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE),
            true => Err(CUDA_ERROR_INVALID_VALUE),
            false => Ok(()),
        }
    }

    pub(crate) fn launch(
        &self,
        function: CUfunction,
        shape: Shape,
        stream: CUstream,
        attributes: Attributes,
        arguments: Arguments<'_>,
    ) -> Result<(), CUresult> {
        let (acting, stream, captured) = self.enqueue_on(stream)?;
        let named = function.addr() as u64;
        let known = self.function(named)?;
        if ![0, acting.context.number].contains(&known.context) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let (known, number) = self.function_at(known, named, &acting)?;
        let mut given = attributes.as_chunks::<ATTRIBUTE_WORDS>().0.iter();
        let cooperative = u64::from(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
        let together = given.any(|[id, value, ..]| *id == cooperative && *value as u32 != 0);
        // That there are no parameters comes before that the blocks find no room (seen with driver 580.159).
        let lacks_parameters = arguments.are_missing() && {
            let wanted = self.parameters(&known);
            wanted.is_ok_and(|wanted| !wanted.is_empty())
        };
        let together = together && captured.is_none() && !lacks_parameters;
        let fits = self.check(&known, shape, together, acting.context.device);
        // Unlike most mistakes this one costs a capture (seen with driver 580.159).
        fits.inspect_err(|_| captured.iter().for_each(Captured::invalidate))?;
        let mut block = arguments.pack(|| self.parameters(&known))?;
        self.before_launch(&acting, &mut block)?;
        let device = acting.context.device;
        let configuration = |grid: Option<[u32; 3]>| {
            let mut hasher = DefaultHasher::new();
            let (context, block, shared) = (acting.context.number, shape.block, shape.shared_bytes);
            (known.index, context, block, shared, &attributes, grid).hash(&mut hasher);
            hasher.finish()
        };
        let (any_grid, this_grid) = (configuration(None), || configuration(Some(shape.grid)));
        let is_accepted = || known.accepted(any_grid) || known.accepted(this_grid());
        if let Some(captured) = captured {
            let is_plain = attributes.is_empty() && required_cluster(&known, device).is_none();
            if !is_plain && !is_accepted() {
                let verdict = acting.judge_captured(&known, number, shape, &attributes);
                verdict.map_err(|(status, ends)| {
                    if ends {
                        captured.invalidate();
                    }
                    status
                })?;
            }
            let context = acting.context.number;
            let words = attributes_of_node(&known, device, &attributes);
            let places = self.parameters(&known)?;
            let names = [named, number];
            let content = kernel_content(&known, places, names, context, shape, words, &block)?;
            return captured.add_kernel(content);
        }
        let posting = acting.context.mirrored.posting();
        self.before_work(&acting, stream)?;
        let [grid_x, grid_y, grid_z] = shape.grid;
        let [block_x, block_y, block_z] = shape.block;
        macro_rules! request {
            ($message:ident) => {
                wire::$message {
                    function: wire::FunctionHandle(number),
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
        let begun = timeline::begin(&acting, stream);
        if is_accepted() {
            acting.post(&request!(Launch))?;
        } else {
            refuse_between_ranks(&known)?;
            acting.call_for("cuLaunchKernel", &request!(LaunchFirst))?;
            known.accept(match is_judged_by_grid(&known, device, &attributes) {
                true => this_grid(),
                false => any_grid,
            });
        }
        timeline::end(begun, &acting, stream, || {
            String::from_utf8_lossy(&known.facts().name).into_owned()
        });
        acting.touch(stream);
        drop(posting);
        acting.after_launch(stream)
    }
}

impl Acting<'_> {
    /// Behind a launch: waits for it where the program's environment asks for that, so that its failure is the launch's own.
    #[inline]
    pub(crate) fn after_launch(&self, stream: wire::StreamHandle) -> Result<(), CUresult> {
        static BLOCKING: LazyLock<bool> = LazyLock::new(|| {
            let set = std::env::var("CUDA_LAUNCH_BLOCKING");
            set.is_ok_and(|value| value.trim().parse().is_ok_and(|number: i32| number != 0))
        });
        match *BLOCKING {
            true => self.synchronise(stream),
            false => Ok(()),
        }
    }
}

/// The most threads for which a multiprocessor has registers: they are given to four warps at once, and eight to a thread.
fn most_by_registers(each: u32, room: u32) -> u64 {
    match each.checked_next_multiple_of(8) {
        Some(each @ 1..) => u64::from(room / 32 / each / 4) * 128,
        _ => u64::MAX,
    }
}

/// Whether the driver may refuse a launch for its grid, though it accepted one with another grid: blocks that run together need room, and
/// clusters have to divide the grid.
fn is_judged_by_grid(known: &Known, device: CUdevice, attributes: &Attributes) -> bool {
    let mut given = attributes.as_chunks::<ATTRIBUTE_WORDS>().0.iter();
    let is_together = |[id, ..]: &[u64; ATTRIBUTE_WORDS]| {
        matches!(
            *id as CUlaunchAttributeID,
            CU_LAUNCH_ATTRIBUTE_COOPERATIVE
                | CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
                | CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION
        )
    };
    given.any(is_together) || required_cluster(known, device).is_some()
}

/// The clusters that a function is compiled for, or that it was told to have: no launch of it has others.
pub(crate) fn required_cluster(known: &Known, device: CUdevice) -> Option<[u32; 3]> {
    let sides = [
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
    ];
    let sides = sides.map(|side| known.attribute(device, side).unwrap_or(0));
    (sides[0] > 0).then(|| sides.map(|side| side.max(1) as u32))
}

/// The attributes of a captured launch that its node has to be told: the driver refuses clusters of a node whose function requires some
/// (seen with driver 580.159), and preferred ones that are none.
fn attributes_of_node(known: &Known, device: CUdevice, attributes: &Attributes) -> Vec<u64> {
    let requires = required_cluster(known, device).is_some();
    let given = attributes.as_chunks::<ATTRIBUTE_WORDS>().0.iter();
    let told = given.filter(|[id, value, ..]| match *id as CUlaunchAttributeID {
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => !requires,
        CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION => *value as u32 != 0,
        _ => true,
    });
    told.flatten().copied().collect()
}

/// The words of a launch attribute's value.
pub(crate) fn words_of(value: &CUlaunchAttributeValue) -> [u64; ATTRIBUTE_WORDS - 1] {
    // SAFETY: the union's bytes are what travels; the application has filled those that count.
    let bytes = unsafe { value.pad }.map(|byte| byte as u8);
    let mut words = [0; ATTRIBUTE_WORDS - 1];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// Events that a launch's attributes name, with flags for their recording.
type LaunchEvents = SmallVec<[(CUevent, i32); 1]>;

/// The shape and the attributes of a configuration, and the events that are to be recorded with the launch.
fn configured(
    config: Vouched<'_, CUlaunchConfig>,
) -> Result<(Shape, Attributes, LaunchEvents), CUresult> {
    let shape = Shape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared_bytes: config.sharedMemBytes,
    };
    // SAFETY: the list is as long as the configuration says, which is vouched for.
    let list = unsafe { crate::raw::slice(config.attrs.cast_const(), config.numAttrs as usize) };
    let (mut words, mut events) = (Attributes::new(), LaunchEvents::new());
    for attribute in list.ok_or(CUDA_ERROR_INVALID_VALUE)? {
        let event = match attribute.id {
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT => {
                // SAFETY: the attribute says that this part of the union counts.
                let given = unsafe { attribute.value.programmaticEvent };
                Some((given.event, given.flags))
            }
            CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                // SAFETY: as above.
                let given = unsafe { attribute.value.launchCompletionEvent };
                Some((given.event, given.flags))
            }
            _ => None,
        };
        if let Some(event) = event {
            events.push(event);
            continue;
        }
        let value = words_of(&attribute.value);
        let is_updatable = attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
        if is_updatable && value[0] as u32 != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        words.push(u64::from(attribute.id));
        words.extend(value);
    }
    Ok((shape, words, events))
}

impl Driver {
    /// Refuses events that no launch can record, as the driver documents it.
    fn check_launch_events(&self, events: &LaunchEvents) -> Result<(), CUresult> {
        for (event, flags) in events {
            if *flags != 0 || !self.event(*event)?.is_of_launches() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }
}

impl LaunchCalls for Driver {
    fn cuLaunchKernel(
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
        kernelParams: Vouched<'_, *mut *mut c_void>,
        extra: Vouched<'_, *mut *mut c_void>,
    ) -> Result<(), CUresult> {
        let shape = Shape {
            grid: [gridDimX, gridDimY, gridDimZ],
            block: [blockDimX, blockDimY, blockDimZ],
            shared_bytes: sharedMemBytes,
        };
        let arguments = Arguments::Given(kernelParams, extra);
        self.launch(f, shape, hStream, Attributes::new(), arguments)
    }

    fn cuLaunchKernelEx(
        &self,
        config: Vouched<'_, CUlaunchConfig>,
        f: CUfunction,
        kernelParams: Vouched<'_, *mut *mut c_void>,
        extra: Vouched<'_, *mut *mut c_void>,
    ) -> Result<(), CUresult> {
        let (shape, attributes, events) = configured(config)?;
        self.check_launch_events(&events)?;
        let arguments = Arguments::Given(kernelParams, extra);
        self.launch(f, shape, config.hStream, attributes, arguments)?;
        // When all of the kernel's blocks have begun, or say so, is known to the device alone. That it has ended is the latest that an
        // event of either kind may wait for.
        let record = |(event, _)| self.record(event, config.hStream, 0);
        events.into_iter().try_for_each(record)
    }

    fn cuLaunchCooperativeKernel(
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
        kernelParams: Vouched<'_, *mut *mut c_void>,
    ) -> Result<(), CUresult> {
        let shape = Shape {
            grid: [gridDimX, gridDimY, gridDimZ],
            block: [blockDimX, blockDimY, blockDimZ],
            shared_bytes: sharedMemBytes,
        };
        let mut attributes = Attributes::from_elem(0, ATTRIBUTE_WORDS);
        attributes[0] = u64::from(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
        attributes[1] = 1;
        let arguments = Arguments::Given(kernelParams, Vouched::null());
        self.launch(f, shape, hStream, attributes, arguments)
    }

    unsafe fn cuLaunchHostFunc(
        &self,
        hStream: CUstream,
        r#fn: CUhostFn,
        userData: *mut c_void,
    ) -> Result<(), CUresult> {
        self.launch_host_function(hStream, r#fn, userData)
    }

    unsafe fn cuLaunchHostFunc_v2(
        &self,
        hStream: CUstream,
        r#fn: CUhostFn,
        userData: *mut c_void,
        syncMode: u32,
    ) -> Result<(), CUresult> {
        // Both ways of waiting are the server's own here.
        match syncMode {
            CU_HOST_TASK_BLOCKING | CU_HOST_TASK_SPINWAIT => {
                self.launch_host_function(hStream, r#fn, userData)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuFuncSetBlockShape(
        &self,
        hfunc: CUfunction,
        x: i32,
        y: i32,
        z: i32,
    ) -> Result<(), CUresult> {
        self.set_block(hfunc, [x, y, z])
    }

    fn cuFuncSetSharedSize(&self, hfunc: CUfunction, bytes: u32) -> Result<(), CUresult> {
        self.set_shared(hfunc, bytes)
    }

    fn cuParamSetSize(&self, hfunc: CUfunction, numbytes: u32) -> Result<(), CUresult> {
        self.set_parameter_size(hfunc, numbytes)
    }

    fn cuParamSeti(&self, hfunc: CUfunction, offset: i32, value: u32) -> Result<(), CUresult> {
        self.set_parameter(hfunc, offset, &value.to_ne_bytes())
    }

    fn cuParamSetf(&self, hfunc: CUfunction, offset: i32, value: f32) -> Result<(), CUresult> {
        self.set_parameter(hfunc, offset, &value.to_ne_bytes())
    }

    fn cuParamSetv(&self, hfunc: CUfunction, offset: i32, ptr: &[u8]) -> Result<(), CUresult> {
        self.set_parameter(hfunc, offset, ptr)
    }

    fn cuParamSetTexRef(
        &self,
        hfunc: CUfunction,
        _texunit: i32,
        _hTexRef: CUtexref,
    ) -> Result<(), CUresult> {
        // Textures are found by name: this has done nothing for long.
        self.function(hfunc.addr() as u64).map(drop)
    }

    fn cuLaunch(&self, f: CUfunction) -> Result<(), CUresult> {
        self.launch_old(f, 1, 1, std::ptr::null_mut())
    }

    fn cuLaunchGrid(
        &self,
        f: CUfunction,
        grid_width: i32,
        grid_height: i32,
    ) -> Result<(), CUresult> {
        self.launch_old(f, grid_width, grid_height, std::ptr::null_mut())
    }

    fn cuLaunchGridAsync(
        &self,
        f: CUfunction,
        grid_width: i32,
        grid_height: i32,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.launch_old(f, grid_width, grid_height, hStream)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &self,
        func: CUfunction,
        blockSize: i32,
        dynamicSMemSize: usize,
    ) -> Result<i32, CUresult> {
        self.active_blocks(func, blockSize, dynamicSMemSize, 0)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &self,
        func: CUfunction,
        blockSize: i32,
        dynamicSMemSize: usize,
        flags: u32,
    ) -> Result<i32, CUresult> {
        self.active_blocks(func, blockSize, dynamicSMemSize, flags)
    }

    unsafe fn cuOccupancyMaxPotentialBlockSize(
        &self,
        func: CUfunction,
        blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
        dynamicSMemSize: usize,
        blockSizeLimit: i32,
    ) -> Result<(i32, i32), CUresult> {
        // SAFETY: the caller's contract is the other's.
        unsafe {
            LaunchCalls::cuOccupancyMaxPotentialBlockSizeWithFlags(
                self,
                func,
                blockSizeToDynamicSMemSize,
                dynamicSMemSize,
                blockSizeLimit,
                0,
            )
        }
    }

    unsafe fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        &self,
        func: CUfunction,
        blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
        dynamicSMemSize: usize,
        blockSizeLimit: i32,
        flags: u32,
    ) -> Result<(i32, i32), CUresult> {
        let shared_of = |threads| match blockSizeToDynamicSMemSize {
            // SAFETY: the caller's contract: the function may be called with any block size.
            Some(shared_of) => unsafe { shared_of(threads) },
            None => dynamicSMemSize,
        };
        let (threads, blocks) = self.best_block(func, shared_of, blockSizeLimit, flags)?;
        Ok((blocks, threads))
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        &self,
        func: CUfunction,
        numBlocks: i32,
        blockSize: i32,
    ) -> Result<usize, CUresult> {
        let (Ok(blocks @ 1..), Ok(threads @ 1..)) =
            (u64::try_from(numBlocks), u64::try_from(blockSize))
        else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let bytes = self.occupancy(Question::SharedMemory, func, &[blocks, threads])?;
        Ok(bytes as usize)
    }

    fn cuOccupancyMaxPotentialClusterSize(
        &self,
        func: CUfunction,
        config: Vouched<'_, CUlaunchConfig>,
    ) -> Result<i32, CUresult> {
        let (shape, attributes, _) = configured(config)?;
        let words = launch_words(shape, &attributes);
        Ok(self.occupancy(Question::LargestCluster, func, &words)? as i32)
    }

    fn cuOccupancyMaxActiveClusters(
        &self,
        func: CUfunction,
        config: Vouched<'_, CUlaunchConfig>,
    ) -> Result<i32, CUresult> {
        let (shape, attributes, _) = configured(config)?;
        let words = launch_words(shape, &attributes);
        Ok(self.occupancy(Question::ActiveClusters, func, &words)? as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As GPUs tell of functions with so many registers.
    #[test]
    fn registers_limit_the_threads_of_a_block() {
        let most = [0, 32, 64, 80, 128, 255].map(|each| most_by_registers(each, 65_536));
        assert_eq!(most, [u64::MAX, 2048, 1024, 768, 512, 256]);
    }
}
