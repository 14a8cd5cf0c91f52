//! A driver beside a worker on a device that needs no GPU, and calls as tests like to make them.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

use towline_backend::cuda::*;
use towline_client::cuda::Session;
use towline_cuda::Driver;
use towline_soft::{SoftCuda, SoftOptions};
use towline_transport::memory::MemoryTransport;
use towline_transport::{Address, ConnectOptions, Transport};
use towline_worker::{Counters, CudaEngine, Limits, SideLane};

/// The kernels of the host-memory device.
const IMAGE: &CStr =
    c"towline null image\nkernel add_one\nkernel scale\nkernel count_down\nkernel fault";

/// The same kernels for devices that run PTX.
const PTX: &CStr = c".version 8.0\n.target sm_75\n.address_size 64\n\
.visible .entry add_one(.param .u64 data, .param .u32 count) { .reg .b64 d, e; .reg .b32 i, n, x, t; .reg .pred p;\n\
 ld.param.u64 d, [data]; ld.param.u32 n, [count]; mov.u32 i, %tid.x; mov.u32 t, %ntid.x;\n\
 next: setp.ge.u32 p, i, n; @p ret; mul.wide.u32 e, i, 4; add.u64 e, e, d; ld.global.u32 x, [e]; add.u32 x, x, 1;\n\
 st.global.u32 [e], x; add.u32 i, i, t; bra next; }\n\
.visible .entry scale(.param .u64 data, .param .u32 count, .param .u32 factor) { .reg .b64 d, e; .reg .b32 i, n, x, t, f;\n\
 .reg .pred p; ld.param.u64 d, [data]; ld.param.u32 n, [count]; ld.param.u32 f, [factor]; mov.u32 i, %tid.x; mov.u32 t, %ntid.x;\n\
 next: setp.ge.u32 p, i, n; @p ret; mul.wide.u32 e, i, 4; add.u64 e, e, d; ld.global.u32 x, [e]; mul.lo.u32 x, x, f;\n\
 st.global.u32 [e], x; add.u32 i, i, t; bra next; }\n\
.visible .entry fault() { .reg .b64 d; mov.u64 d, 64; st.global.u64 [d], d; ret; }";

/// What needs the device's part of CUDA's runtime library, which a vendor's driver does not bring.
const CONDITION: &CStr = c".version 8.0\n.target sm_75\n.address_size 64\n\
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n\
.visible .entry count_down(.param .u64 data, .param .u64 condition) { .reg .b64 d, c; .reg .b32 x; .reg .pred p;\n\
 mov.u32 x, %tid.x; setp.ne.u32 p, x, 0; @p ret; ld.param.u64 d, [data]; ld.param.u64 c, [condition]; ld.global.u32 x, [d];\n\
 sub.u32 x, x, 1; st.global.u32 [d], x; { .param .b64 handle; .param .b32 value; st.param.b64 [handle], c;\n\
 st.param.b32 [value], x; call.uni cudaGraphSetConditional, (handle, value); } ret; }";

/// What the worker serves.
enum Device {
    Null(Arc<NullCuda>),
    /// Whose memory is asked for as a program asks.
    Other,
}

/// A driver whose primary context is the thread's, with a module's functions.
pub(crate) struct Bench {
    pub(crate) driver: Driver,
    session: Arc<Session>,
    device: Device,
    pub(crate) context: CUcontext,
    pub(crate) add_one: CUfunction,
    pub(crate) scale: CUfunction,
    pub(crate) count_down: CUfunction,
}

// SAFETY: handles may be used from any thread.
unsafe impl Sync for Bench {}
// SAFETY: as above.
unsafe impl Send for Bench {}

/// A call that has to succeed.
#[track_caller]
pub(crate) fn ok(status: CUresult) {
    assert_eq!(status_name(status), Some("CUDA_SUCCESS"));
}

impl Bench {
    /// On the device in host memory.
    pub(crate) fn on_null() -> Self {
        let null = Arc::new(NullCuda::new(1));
        let api: Arc<dyn CudaApi> = Arc::clone(&null) as _;
        Self::on(Device::Null(null), api, [IMAGE, IMAGE])
    }

    /// On a device in software.
    pub(crate) fn on_soft() -> Self {
        let options = SoftOptions {
            memory_bytes: 64 << 20,
            host_threads: Some(2),
            ..SoftOptions::default()
        };
        let api: Arc<dyn CudaApi> = Arc::new(SoftCuda::new(options).expect("memory"));
        Self::on(Device::Other, api, [PTX, CONDITION])
    }

    /// A loop in a graph that begins with its first turn: its body, and the handle of its condition.
    pub(crate) fn while_node(&self, graph: CUgraph) -> (CUgraph, CUgraphConditionalHandle) {
        let mut handle = 0;
        // SAFETY: the place is a local.
        ok(unsafe {
            self.driver
                .cuGraphConditionalHandleCreate(&raw mut handle, graph, null_mut(), 1, 1)
        });
        let (status, told) = self.loop_of(graph, handle);
        ok(status);
        // SAFETY: there is one body.
        let body = unsafe { told.read() };
        (body, handle)
    }

    /// Adds a loop with a condition's handle: the status, and the place of its body.
    pub(crate) fn loop_of(
        &self,
        graph: CUgraph,
        handle: CUgraphConditionalHandle,
    ) -> (CUresult, *mut CUgraph) {
        let mut params = CUgraphNodeParams {
            r#type: CU_GRAPH_NODE_TYPE_CONDITIONAL,
            reserved0: [0; 3],
            either: CUgraphNodeParams_either { reserved1: [0; 29] },
            reserved2: 0,
        };
        params.either.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle,
            r#type: CU_GRAPH_COND_TYPE_WHILE,
            size: 1,
            phGraph_out: null_mut(),
            ctx: null_mut(),
        };
        let mut node = null_mut();
        // SAFETY: both are locals.
        let status = unsafe {
            self.driver
                .cuGraphAddNode_v2(&raw mut node, graph, null(), null(), 0, &raw mut params)
        };
        // SAFETY: the kind says that it is this.
        (status, unsafe { params.either.conditional }.phGraph_out)
    }

    /// On what the server offers that `TOWLINE_SERVERS` names: NVIDIA's driver, where that is there.
    pub(crate) fn on_server() -> Self {
        let address = std::env::var("TOWLINE_SERVERS").expect("TOWLINE_SERVERS names a server");
        let address: Address = address.parse().expect("TOWLINE_SERVERS is one address");
        let session = Session::connect(&address, None).expect("the server answers");
        Self::over(Device::Other, Arc::new(session), [PTX, CONDITION])
    }

    fn on(device: Device, api: Arc<dyn CudaApi>, images: [&CStr; 2]) -> Self {
        let engine = CudaEngine::open(api, false, &|_, _| true, 0).expect("there is a device");
        let snapshot = engine.snapshot().to_vec();
        let transport = MemoryTransport::new();
        let address: Address = "memory://server".parse().expect("it is well formed");
        let listener = transport.listen(&address).expect("the name is free");
        let mut pairs: Vec<_> = (0..3)
            .map(|_| {
                let ours = transport.connect(&address, &ConnectOptions::default());
                let theirs = listener.accept().expect("somebody has connected");
                (ours.expect("the listener is there"), theirs)
            })
            .collect();
        let (command, lane) = pairs.remove(0);
        let (lanes, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut theirs = theirs.into_iter().map(SideLane::Payload);
        std::thread::spawn(move || {
            let limits = Limits {
                chunk_bytes: 64 << 10,
            };
            let counters = Arc::new(Counters::default());
            // How it ends is for other tests.
            let _ = engine.run(lane, move || theirs.next(), limits, counters);
        });
        let session = Session::over_lanes("test", command, lanes, &snapshot, 64 << 10);
        let session = Arc::new(session.expect("the snapshot decodes"));
        Self::over(device, session, images)
    }

    fn over(device: Device, session: Arc<Session>, images: [&CStr; 2]) -> Self {
        let mut bench = Self {
            driver: Driver::over(vec![Arc::clone(&session)], None),
            session,
            device,
            context: null_mut(),
            add_one: null_mut(),
            scale: null_mut(),
            count_down: null_mut(),
        };
        // SAFETY: no pointers.
        ok(unsafe { bench.driver.cuInit(0) });
        let place = &raw mut bench.context;
        // SAFETY: the context is a place of ours.
        ok(unsafe { bench.driver.cuDevicePrimaryCtxRetain(place, 0) });
        bench.enter();
        let load = |image: &CStr| {
            let mut module = null_mut();
            let place = &raw mut module;
            // SAFETY: the image is text that ends.
            let status = unsafe { bench.driver.cuModuleLoadData(place, image.as_ptr().cast()) };
            (status, module)
        };
        let [(status, module), (conditional, other)] = images.map(load);
        ok(status);
        let find = |module: CUmodule, name: &CStr| {
            let mut function = null_mut();
            let place = &raw mut function;
            // SAFETY: the name ends; the module was just loaded.
            ok(unsafe {
                bench
                    .driver
                    .cuModuleGetFunction(place, module, name.as_ptr())
            });
            function
        };
        let found = (find(module, c"add_one"), find(module, c"scale"));
        // Only rules of conditions fail without it.
        let count_down = match conditional {
            CUDA_SUCCESS => find(other, c"count_down"),
            _ => null_mut(),
        };
        (bench.add_one, bench.scale) = found;
        bench.count_down = count_down;
        bench
    }

    /// Makes the context the calling thread's.
    pub(crate) fn enter(&self) {
        // SAFETY: the context lives.
        ok(unsafe { self.driver.cuCtxSetCurrent(self.context) });
    }

    /// Bytes of memory that the device holds.
    pub(crate) fn held(&self) -> usize {
        match &self.device {
            Device::Null(null) => null.allocated_bytes(),
            Device::Other => {
                let (mut free, mut total) = (0, 0);
                // SAFETY: both are locals.
                ok(unsafe { self.driver.cuMemGetInfo_v2(&raw mut free, &raw mut total) });
                total - free
            }
        }
    }

    /// What it holds once that is no more than so much, or after a while.
    pub(crate) fn held_at_last(&self, expected: usize) -> usize {
        let mut looks = 0..1000;
        while self.held() > expected && looks.next().is_some() {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.held()
    }

    /// Waits that calls cost.
    pub(crate) fn waits(&self) -> u64 {
        self.session.meter().round_trips()
    }

    pub(crate) fn stream(&self, flags: u32) -> CUstream {
        let mut stream = null_mut();
        // SAFETY: the stream is a local.
        ok(unsafe { self.driver.cuStreamCreate(&raw mut stream, flags) });
        stream
    }

    pub(crate) fn event(&self) -> CUevent {
        let mut event = null_mut();
        // SAFETY: the event is a local.
        ok(unsafe { self.driver.cuEventCreate(&raw mut event, 0) });
        event
    }

    pub(crate) fn allocate(&self, size: usize) -> u64 {
        let mut address = 0;
        // SAFETY: the address is a local.
        ok(unsafe { self.driver.cuMemAlloc_v2(&raw mut address, size) });
        address
    }

    pub(crate) fn write(&self, address: u64, numbers: &[u32]) {
        let size = size_of_val(numbers);
        // SAFETY: the numbers are readable.
        ok(unsafe {
            self.driver
                .cuMemcpyHtoD_v2(address, numbers.as_ptr().cast(), size)
        });
        // Streams that keep no order with the default one must find it there.
        // SAFETY: has no pointers.
        ok(unsafe { self.driver.cuCtxSynchronize() });
    }

    pub(crate) fn read(&self, address: u64, count: usize) -> Vec<u32> {
        let mut numbers = vec![0_u32; count];
        let place = numbers.as_mut_ptr().cast();
        // SAFETY: there is room for as many.
        ok(unsafe { self.driver.cuMemcpyDtoH_v2(place, address, count * 4) });
        numbers
    }

    pub(crate) fn begin(&self, stream: CUstream, mode: CUstreamCaptureMode) -> CUresult {
        // SAFETY: has no pointers.
        unsafe { self.driver.cuStreamBeginCapture_v2(stream, mode) }
    }

    pub(crate) fn end(&self, stream: CUstream) -> (CUresult, CUgraph) {
        let mut graph = null_mut();
        // SAFETY: the graph is a local.
        let status = unsafe { self.driver.cuStreamEndCapture(stream, &raw mut graph) };
        (status, graph)
    }

    #[track_caller]
    pub(crate) fn captured(&self, stream: CUstream, enqueue: impl FnOnce()) -> CUgraph {
        ok(self.begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        enqueue();
        let (status, graph) = self.end(stream);
        ok(status);
        graph
    }

    pub(crate) fn state(&self, stream: CUstream) -> (CUresult, CUstreamCaptureStatus) {
        let mut state = 99;
        // SAFETY: the state is a local.
        let status = unsafe { self.driver.cuStreamIsCapturing(stream, &raw mut state) };
        (status, state)
    }

    /// `add_one` over so many numbers.
    pub(crate) fn add_one(&self, stream: CUstream, address: u64, count: u32) -> CUresult {
        let (mut address, mut count) = (address, count);
        let mut params: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut count).cast()];
        let params = params.as_mut_ptr();
        // SAFETY: the kernel has two parameters of these sizes.
        unsafe {
            self.driver.cuLaunchKernel(
                self.add_one,
                1,
                1,
                1,
                32,
                1,
                1,
                0,
                stream,
                params,
                null_mut(),
            )
        }
    }

    pub(crate) fn record(&self, event: CUevent, stream: CUstream) -> CUresult {
        // SAFETY: has no pointers.
        unsafe { self.driver.cuEventRecord(event, stream) }
    }

    pub(crate) fn wait_event(&self, stream: CUstream, event: CUevent) -> CUresult {
        // SAFETY: has no pointers.
        unsafe { self.driver.cuStreamWaitEvent(stream, event, 0) }
    }

    pub(crate) fn synchronise(&self, stream: CUstream) -> CUresult {
        // SAFETY: has no pointers.
        unsafe { self.driver.cuStreamSynchronize(stream) }
    }

    pub(crate) fn graph(&self) -> CUgraph {
        let mut graph = null_mut();
        // SAFETY: the graph is a local.
        ok(unsafe { self.driver.cuGraphCreate(&raw mut graph, 0) });
        graph
    }

    /// A launch of `function` with an address and a number.
    pub(crate) fn kernel<R>(
        &self,
        function: CUfunction,
        address: u64,
        numbers: [u32; 2],
        with: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS) -> R,
    ) -> R {
        let (mut address, mut numbers) = (address, numbers);
        let mut params: [*mut c_void; 3] = [
            (&raw mut address).cast(),
            numbers.as_mut_ptr().cast(),
            numbers.as_mut_ptr().wrapping_add(1).cast(),
        ];
        let params = CUDA_KERNEL_NODE_PARAMS {
            func: function,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: params.as_mut_ptr(),
            extra: null_mut(),
            kern: null_mut(),
            ctx: null_mut(),
        };
        with(&raw const params)
    }

    pub(crate) fn add_kernel(
        &self,
        graph: CUgraph,
        before: &[CUgraphNode],
        function: CUfunction,
        address: u64,
        numbers: [u32; 2],
    ) -> CUgraphNode {
        let mut node = null_mut();
        ok(self.kernel(function, address, numbers, |params| {
            // SAFETY: all is as long as it says.
            unsafe {
                self.driver.cuGraphAddKernelNode_v2(
                    &raw mut node,
                    graph,
                    before.as_ptr(),
                    before.len(),
                    params,
                )
            }
        }));
        node
    }

    /// A copy of bytes, whose sides are told by their kinds.
    pub(crate) fn copy(
        &self,
        from: (CUmemorytype, u64),
        to: (CUmemorytype, u64),
        size: usize,
    ) -> CUDA_MEMCPY3D {
        let host = |(_, address): (CUmemorytype, u64)| {
            std::ptr::with_exposed_provenance_mut::<c_void>(address as usize)
        };
        CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: from.0,
            srcHost: host(from),
            srcDevice: from.1,
            srcArray: null_mut(),
            reserved0: null_mut(),
            srcPitch: 0,
            srcHeight: 0,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: to.0,
            dstHost: host(to),
            dstDevice: to.1,
            dstArray: null_mut(),
            reserved1: null_mut(),
            dstPitch: 0,
            dstHeight: 0,
            WidthInBytes: size,
            Height: 1,
            Depth: 1,
        }
    }

    pub(crate) fn add_copy(
        &self,
        graph: CUgraph,
        before: &[CUgraphNode],
        copy: &CUDA_MEMCPY3D,
    ) -> CUgraphNode {
        let mut node = null_mut();
        // SAFETY: all is as long as it says.
        ok(unsafe {
            self.driver.cuGraphAddMemcpyNode(
                &raw mut node,
                graph,
                before.as_ptr(),
                before.len(),
                copy,
                null_mut(),
            )
        });
        node
    }

    pub(crate) fn add_host(
        &self,
        graph: CUgraph,
        before: &[CUgraphNode],
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> CUgraphNode {
        let mut node = null_mut();
        let params = CUDA_HOST_NODE_PARAMS {
            r#fn: Some(function),
            userData: data,
        };
        // SAFETY: all is as long as it says.
        ok(unsafe {
            self.driver.cuGraphAddHostNode(
                &raw mut node,
                graph,
                before.as_ptr(),
                before.len(),
                &raw const params,
            )
        });
        node
    }

    pub(crate) fn instantiate(&self, graph: CUgraph) -> CUgraphExec {
        let mut exec = null_mut();
        // SAFETY: the place is a local.
        ok(unsafe {
            self.driver
                .cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)
        });
        exec
    }

    #[track_caller]
    pub(crate) fn launch(&self, exec: CUgraphExec, stream: CUstream) {
        // SAFETY: has no pointers.
        ok(unsafe { self.driver.cuGraphLaunch(exec, stream) });
    }

    pub(crate) fn nodes(&self, graph: CUgraph) -> Vec<CUgraphNode> {
        let mut count = 0;
        // SAFETY: the count is a local.
        ok(unsafe {
            self.driver
                .cuGraphGetNodes(graph, null_mut(), &raw mut count)
        });
        let mut nodes = vec![null_mut(); count];
        let place = nodes.as_mut_ptr();
        // SAFETY: there is room for as many.
        ok(unsafe { self.driver.cuGraphGetNodes(graph, place, &raw mut count) });
        nodes
    }

    pub(crate) fn destroy(&self, graph: CUgraph, exec: CUgraphExec) {
        // SAFETY: has no pointers.
        ok(unsafe { self.driver.cuGraphDestroy(graph) });
        // SAFETY: has no pointers.
        ok(unsafe { self.driver.cuGraphExecDestroy(exec) });
    }

    pub(crate) fn kind(&self, node: CUgraphNode) -> CUgraphNodeType {
        let mut kind = 99;
        // SAFETY: the kind is a local.
        ok(unsafe { self.driver.cuGraphNodeGetType(node, &raw mut kind) });
        kind
    }

    pub(crate) fn tie(&self, graph: CUgraph, from: CUgraphNode, to: CUgraphNode) -> CUresult {
        // SAFETY: one edge.
        unsafe {
            self.driver
                .cuGraphAddDependencies(graph, &raw const from, &raw const to, 1)
        }
    }

    pub(crate) fn empty(&self, graph: CUgraph, before: &[CUgraphNode]) -> CUgraphNode {
        let mut node = null_mut();
        let list = if before.is_empty() {
            null()
        } else {
            before.as_ptr()
        };
        // SAFETY: all is as long as it says.
        ok(unsafe {
            self.driver
                .cuGraphAddEmptyNode(&raw mut node, graph, list, before.len())
        });
        node
    }
}
