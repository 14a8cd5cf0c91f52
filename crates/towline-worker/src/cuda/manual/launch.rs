//! Launches, and functions of the application in a stream's order.

use std::ffi::c_void;
use std::sync::Arc;

use smallvec::SmallVec;
use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::error::ProtocolError;

use crate::cuda::recent::Found;
use crate::cuda::session::{Session, unknown};
use crate::cuda::shared::{Layout, Shared, lock};
use crate::cuda::streams::{Places, Target};
use crate::decode::aligned;
use crate::link::Raw;
use crate::turns::Admission;

/// 64-bit words of a launch attribute: its number, and its 64 bytes.
const ATTRIBUTE_WORDS: usize = size_of::<CUlaunchAttribute>() / size_of::<u64>();

/// In the answer about a captured launch, beside its status: the capture is worth nothing afterwards.
const CAPTURE_ENDS: i64 = 1 << 32;

/// How a launch is laid out on the device.
#[derive(Clone, Copy)]
struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
}

/// Parameters as the client has packed them.
type Block = SmallVec<[u128; 8]>;
/// Where each of them lies; `None` where that is not known, of a function that was loaded without its facts.
type Pointers = Option<SmallVec<[*mut c_void; 16]>>;

fn pointers(layout: Option<&Layout>, block: &Block) -> Pointers {
    let start = block.as_ptr().cast_mut().cast::<u8>();
    let place = |offset: &u32| start.wrapping_add(*offset as usize).cast();
    layout.map(|layout| layout.offsets.iter().map(place).collect())
}

/// Launches. The driver copies parameters and attributes before it returns.
fn launch(
    api: &dyn CudaApi,
    function: Raw,
    stream: CUstream,
    shape: Shape,
    attributes: &mut [u64],
    (block, mut size): (&Block, usize),
    pointers: &mut Pointers,
) -> CUresult {
    let start = block.as_ptr().cast_mut();
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_POINTER),
        start.cast(),
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_SIZE),
        (&raw mut size).cast(),
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_END),
    ];
    // Parameter by parameter where it can be: the driver takes 10 to 20 % longer for a block (3.06 us to 3.38 us and more with driver
    // 580.159 on an H200).
    let (params, block) = match pointers {
        Some(pointers) => (pointers.as_mut_ptr(), std::ptr::null_mut()),
        None => (std::ptr::null_mut(), extra.as_mut_ptr()),
    };
    let Shape {
        grid,
        block: threads,
        shared_bytes,
    } = shape;
    if attributes.is_empty() {
        // SAFETY: the function is live; its parameters lie in a block that has the size of its layout, or that `extra` says.
        return unsafe {
            api.cuLaunchKernel(
                function.0.cast(),
                grid[0],
                grid[1],
                grid[2],
                threads[0],
                threads[1],
                threads[2],
                shared_bytes,
                stream,
                params,
                block,
            )
        };
    }
    let config = config(shape, stream, attributes);
    // SAFETY: as above; the configuration's attributes are as many as it says.
    unsafe { api.cuLaunchKernelEx(&raw const config, function.0.cast(), params, block) }
}

/// The table with the grouping of multiprocessors, and its size with the drivers that this is known to be right for.
const GROUPING_TABLE: u128 = 0x1734dc26_800d_4745_8726_c0f1e7dd8bca;
const GROUPING_BYTES: usize = 136;
/// The function of the table that gives two lists, of a byte for each pair of multiprocessors.
const GROUPING_SLOT: usize = 4;

/// How the multiprocessors of the current context's device are grouped.
fn grouping(api: &dyn CudaApi, device: CUdevice) -> Result<[Vec<u8>; 2], CUresult> {
    type Lists = unsafe extern "C" fn(*mut *mut u8, *mut *mut u8) -> CUresult;
    let id = CUuuid {
        bytes: GROUPING_TABLE.to_be_bytes().map(|byte| byte as _),
    };
    let mut table: *const c_void = std::ptr::null();
    // SAFETY: one place for the table.
    let status = unsafe { api.cuGetExportTable(&raw mut table, &raw const id) };
    if status != CUDA_SUCCESS || table.is_null() {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    // SAFETY: the driver's tables begin with their size.
    let bytes = unsafe { table.cast::<usize>().read() };
    if bytes != GROUPING_BYTES {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut processors = 0;
    let attribute = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    // SAFETY: one place for the count.
    let status = unsafe { api.cuDeviceGetAttribute(&raw mut processors, attribute, device) };
    if status != CUDA_SUCCESS {
        return Err(status);
    }
    let slot = table.cast::<Option<Lists>>().wrapping_add(GROUPING_SLOT);
    // SAFETY: a table of this size has the slot.
    let lists = unsafe { slot.read() }.ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
    let (mut first, mut second) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: two places for the lists.
    let status = unsafe { lists(&raw mut first, &raw mut second) };
    if status != CUDA_SUCCESS || first.is_null() || second.is_null() {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let length = usize::try_from(processors).unwrap_or(0).div_ceil(2);
    // The lists stay: who should free them is not known, and each session asks once.
    let copied = [first, second].map(|list| {
        // SAFETY: the driver has given a byte for each pair of multiprocessors.
        unsafe { std::slice::from_raw_parts(list, length) }.to_vec()
    });
    Ok(copied)
}

fn config(shape: Shape, stream: CUstream, attributes: &mut [u64]) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: shape.grid[0],
        gridDimY: shape.grid[1],
        gridDimZ: shape.grid[2],
        blockDimX: shape.block[0],
        blockDimY: shape.block[1],
        blockDimZ: shape.block[2],
        sharedMemBytes: shape.shared_bytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr().cast(),
        numAttrs: (attributes.len() / ATTRIBUTE_WORDS) as u32,
    }
}

impl Shared {
    /// Waits until a function of the application has returned, or the session is over.
    pub(crate) fn wait_returned(&self, function: u64) {
        let functions = &self.functions;
        self.streams
            .wait_until(|| lock(functions).get(&function).is_none_or(|done| *done));
        lock(functions).remove(&function);
    }
}

impl Session {
    /// A function by its number or its kernel's.
    fn function(
        &self,
        function: wire::FunctionHandle,
    ) -> Result<Result<Raw, CUresult>, ProtocolError> {
        Ok(self.native(function.0, wire::FunctionHandle::TAG)?.map(Raw))
    }

    /// Attributes as the driver takes them: handles among them become the driver's.
    pub(super) fn attributes(
        &self,
        words: &wire::List<'_, u64>,
    ) -> Result<Result<Vec<u64>, CUresult>, ProtocolError> {
        if words.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let mut words: Vec<u64> = words.iter().collect();
        if !words.len().is_multiple_of(ATTRIBUTE_WORDS) {
            return Ok(Err(CUDA_ERROR_INVALID_VALUE));
        }
        for attribute in words.as_chunks_mut::<ATTRIBUTE_WORDS>().0 {
            let [id, event, ..] = attribute;
            match *id as u32 {
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
                | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                    match self.native(*event, wire::EventHandle::TAG)? {
                        Ok(native) => *event = native.addr() as u64,
                        Err(status) => return Ok(Err(status)),
                    }
                }
                // A node that the launch gives out, and that no message names.
                CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => {
                    return Ok(Err(CUDA_ERROR_NOT_SUPPORTED));
                }
                _ => {}
            }
        }
        Ok(Ok(words))
    }

    /// Launches, or parks the launch; with `verdict` the client waits for the status.
    fn start_launch(
        &mut self,
        number: u64,
        request: &wire::Launch<'_>,
        verdict: bool,
    ) -> Result<(), ProtocolError> {
        let call = <wire::Launch<'_> as Request<'_>>::ID;
        let status = match self.launch_or_park(number, call, request, verdict)? {
            Ok(None) => return Ok(()),
            Ok(Some(status)) | Err(status) => status,
        };
        if verdict {
            self.reply(number, status, &wire::LaunchFirstReply {});
        } else {
            self.shared.settle(number, call, request.stream.0, status);
        }
        Ok(())
    }

    /// Looks a launch's function and stream up.
    #[cold]
    fn find_launch(
        &self,
        function: wire::FunctionHandle,
        stream: wire::StreamHandle,
    ) -> Result<Result<Found, CUresult>, ProtocolError> {
        let (target, function) = match (self.target(stream)?, self.function(function)?) {
            (Ok(target), Ok(function)) => (target, function),
            (Err(status), _) | (_, Err(status)) => return Ok(Err(status)),
        };
        Ok(Ok(Found {
            function,
            layout: self.shared.layout(function),
            target,
        }))
    }

    /// The status of a launch, or none while it is parked. This is what programs do most: what is done here takes its time from each.
    fn launch_or_park(
        &mut self,
        number: u64,
        call: u16,
        request: &wire::Launch<'_>,
        verdict: bool,
    ) -> Result<Result<Option<CUresult>, CUresult>, ProtocolError> {
        let (at, on) = (request.function, request.stream);
        let changes = self.table.changes();
        let known = match self.recent.find(at, on, self.acting.as_ref(), changes) {
            None => match self.find_launch(at, on)? {
                Ok(found) => {
                    self.recent.keep(at, on, found, changes);
                    self.recent.find(at, on, self.acting.as_ref(), changes)
                }
                Err(status) => return Ok(Err(status)),
            },
            known => known,
        };
        let Some(Found {
            function,
            layout,
            target,
        }) = known
        else {
            return Ok(Err(CUDA_ERROR_INVALID_CONTEXT));
        };
        let function = *function;
        let mut attributes = match self.attributes(&request.attributes)? {
            Ok(attributes) => attributes,
            Err(status) => return Ok(Err(status)),
        };
        let shape = Shape {
            grid: [request.grid_x, request.grid_y, request.grid_z],
            block: [request.block_x, request.block_y, request.block_z],
            shared_bytes: request.shared_bytes,
        };
        let size = request.params.len();
        if layout.as_ref().is_some_and(|layout| layout.bytes > size) {
            return Ok(Err(CUDA_ERROR_INVALID_VALUE));
        }
        let block = aligned(request.params);
        let admission = match self.shared.is_clear(target, &[]) {
            true => self.shared.admit(target),
            false => Admission::Held,
        };
        if admission != Admission::Held {
            let status = self.run(target, |shared, target| {
                launch(
                    &*shared.api,
                    function,
                    target.stream(),
                    shape,
                    &mut attributes,
                    (&block, size),
                    &mut pointers(layout.as_deref(), &block),
                )
            });
            let counts = admission == Admission::Counted;
            self.shared.launched(target, counts);
            return Ok(Ok(Some(status)));
        }
        let layout = layout.clone();
        let target = target.clone();
        let go = move |shared: &Arc<Shared>, target: &Target| {
            let counts = shared.wait_for_turn(target);
            let status = launch(
                &*shared.api,
                function,
                target.stream(),
                shape,
                &mut attributes,
                (&block, size),
                &mut pointers(layout.as_deref(), &block),
            );
            shared.launched(target, counts);
            if !verdict {
                return status;
            }
            shared.reply(number, status, &wire::LaunchFirstReply {});
            CUDA_SUCCESS
        };
        self.park(number, call, &target, Places::new(), go);
        Ok(Ok(None))
    }

    pub(crate) fn Launch(
        &mut self,
        number: u64,
        request: wire::Launch<'_>,
    ) -> Result<(), ProtocolError> {
        self.start_launch(number, &request, false)
    }

    pub(crate) fn LaunchFirst(
        &mut self,
        number: u64,
        request: wire::LaunchFirst<'_>,
    ) -> Result<(), ProtocolError> {
        let request = wire::Launch {
            function: request.function,
            stream: request.stream,
            grid_x: request.grid_x,
            grid_y: request.grid_y,
            grid_z: request.grid_z,
            block_x: request.block_x,
            block_y: request.block_y,
            block_z: request.block_z,
            shared_bytes: request.shared_bytes,
            attribute_words: request.attribute_words,
            attributes: request.attributes,
            size: request.size,
            params: request.params,
        };
        self.start_launch(number, &request, true)
    }

    pub(crate) fn HostFunction(
        &mut self,
        number: u64,
        request: wire::HostFunction,
    ) -> Result<(), ProtocolError> {
        let call = <wire::HostFunction as Request<'_>>::ID;
        let target = match self.target(request.stream)? {
            Ok(target) => target,
            Err(status) => {
                self.shared.settle(number, call, request.stream.0, status);
                return Ok(());
            }
        };
        let function = request.function;
        lock(&self.shared.functions).insert(function, false);
        let call_out = move |shared: &Arc<Shared>, target: &Target| {
            let reached = match shared.mark(target) {
                Err(status) => status,
                Ok(mark) => {
                    // SAFETY: the event is ours.
                    let status = unsafe { shared.api.cuEventSynchronize(mark.0.cast()) };
                    target.context.give_event(mark);
                    status
                }
            };
            shared.settle_before_answer();
            shared.tell(function, reached);
            shared.flush();
            match reached {
                CUDA_SUCCESS => shared.wait_returned(function),
                // The client does not call it, or tells it of the failure and answers nothing.
                _ => drop(lock(&shared.functions).remove(&function)),
            }
            CUDA_SUCCESS
        };
        self.park(number, call, &target, Places::new(), call_out);
        Ok(())
    }

    pub(crate) fn HostDone(
        &mut self,
        _number: u64,
        request: wire::HostDone,
    ) -> Result<(), ProtocolError> {
        match lock(&self.shared.functions).get_mut(&request.function) {
            Some(done) => *done = true,
            None => return Err(unknown("pending function", request.function)),
        }
        self.shared.streams.wake();
        Ok(())
    }

    pub(crate) fn Grouping(
        &mut self,
        number: u64,
        request: wire::Grouping,
    ) -> Result<(), ProtocolError> {
        let lists = match &self.acting {
            None => Err(CUDA_ERROR_INVALID_CONTEXT),
            Some(context) => grouping(&*self.api, context.device),
        };
        let (status, [first, second]) = match lists {
            Ok(lists) if lists.iter().all(|list| list.len() as u64 <= request.room) => {
                (CUDA_SUCCESS, lists)
            }
            Ok(_) => (CUDA_ERROR_INVALID_VALUE, Default::default()),
            Err(status) => (status, Default::default()),
        };
        let reply = wire::GroupingReply {
            first: Some(&first),
            second: Some(&second),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    /// `kind` 0 asks for the most active clusters, 1 for the largest cluster: `words` are grid, block and shared memory, then attributes.
    /// 2 asks for active blocks: threads of a block, dynamic shared memory, flags. 3 asks for dynamic shared memory: blocks, threads.
    pub(crate) fn Occupancy(
        &mut self,
        number: u64,
        request: wire::Occupancy<'_>,
    ) -> Result<(), ProtocolError> {
        let mut answer = 0_i64;
        let status = self.occupancy(&request, &mut answer)?;
        let reply = wire::OccupancyReply {
            answer: Some(answer),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    fn occupancy(
        &self,
        request: &wire::Occupancy<'_>,
        answer: &mut i64,
    ) -> Result<CUresult, ProtocolError> {
        let function: CUfunction = match self.function(request.function)? {
            Ok(function) => function.0.cast(),
            Err(status) => return Ok(status),
        };
        let words: Vec<u64> = request.words.iter().collect();
        let mut count = 0_i32;
        let status = match (request.kind, words.as_slice()) {
            (kind @ (0 | 1 | 4), [gx, gy, gz, bx, by, bz, shared, attributes @ ..]) => {
                let shape = Shape {
                    grid: [*gx as u32, *gy as u32, *gz as u32],
                    block: [*bx as u32, *by as u32, *bz as u32],
                    shared_bytes: *shared as u32,
                };
                let mut attributes = match self.attributes(&wire::List::Values(attributes))? {
                    Ok(attributes) => attributes,
                    Err(status) => return Ok(status),
                };
                if kind == 4 {
                    let function = Raw(function.cast());
                    *answer = self.captured_launch(function, shape, &mut attributes);
                    return Ok(CUDA_SUCCESS);
                }
                let config = config(shape, std::ptr::null_mut(), &mut attributes);
                let (config, place) = (&raw const config, &raw mut count);
                if kind == 0 {
                    // SAFETY: the function is live, the configuration's attributes are as many as it says; one place for the count.
                    unsafe {
                        self.api
                            .cuOccupancyMaxActiveClusters(place, function, config)
                    }
                } else {
                    // SAFETY: as above.
                    unsafe {
                        self.api
                            .cuOccupancyMaxPotentialClusterSize(place, function, config)
                    }
                }
            }
            // SAFETY: the function is live; one place for the count.
            (2, [threads, dynamic, flags]) => unsafe {
                self.api
                    .cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                        &raw mut count,
                        function,
                        *threads as i32,
                        *dynamic as usize,
                        *flags as u32,
                    )
            },
            (3, [blocks, threads]) => {
                let mut bytes = 0_usize;
                // SAFETY: as above.
                let status = unsafe {
                    self.api.cuOccupancyAvailableDynamicSMemPerBlock(
                        &raw mut bytes,
                        function,
                        *blocks as i32,
                        *threads as i32,
                    )
                };
                *answer = bytes as i64;
                return Ok(status);
            }
            _ => CUDA_ERROR_INVALID_VALUE,
        };
        *answer = i64::from(count);
        Ok(status)
    }

    /// The driver's status for a launch on a stream that captures, and [`CAPTURE_ENDS`] where that costs the capture: asked of a stream
    /// and a graph that are for this alone, with parameters of zeros, which nothing reads. Where it cannot be asked the launch passes, and is
    /// judged when the graph is made executable.
    fn captured_launch(&self, function: Raw, shape: Shape, attributes: &mut [u64]) -> i64 {
        let api = &*self.api;
        let Some(layout) = self.shared.layout(function) else {
            return 0;
        };
        let block = aligned(&vec![0; layout.bytes]);
        let mut stream: CUstream = std::ptr::null_mut();
        // SAFETY: one place for the stream.
        if unsafe { api.cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING) } != CUDA_SUCCESS {
            return 0;
        }
        let mut answer = 0;
        // SAFETY: the stream is ours.
        let begun = unsafe { api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) };
        if begun == CUDA_SUCCESS {
            let parameters = (&block, layout.bytes);
            let mut pointers = pointers(Some(&layout), &block);
            let status = launch(
                api,
                function,
                stream,
                shape,
                attributes,
                parameters,
                &mut pointers,
            );
            let mut graph: CUgraph = std::ptr::null_mut();
            // SAFETY: the stream is ours; one place for the graph.
            let ended = unsafe { api.cuStreamEndCapture(stream, &raw mut graph) };
            if !graph.is_null() {
                // SAFETY: the graph is ours.
                unsafe { api.cuGraphDestroy(graph) };
            }
            let ends = if ended == CUDA_SUCCESS {
                0
            } else {
                CAPTURE_ENDS
            };
            answer = i64::from(status) | ends;
        }
        // SAFETY: the stream is ours, and ends once.
        unsafe { api.cuStreamDestroy_v2(stream) };
        answer
    }
}
