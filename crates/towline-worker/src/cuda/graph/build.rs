//! A described graph in the driver.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use towline_backend::cuda::*;
use towline_wire::cuda::graph::{Copy, Edge, Fill, Operand, Place};

use super::call::{Call, Kind};
use crate::cuda::collective::{Captured, Communicator};
use crate::cuda::context::Context;
use crate::cuda::shared::{Layout, Shared};
use crate::link::Raw;

/// Words of a launch attribute: its number, and its 64 bytes.
pub(crate) const ATTRIBUTE_WORDS: usize = size_of::<CUlaunchAttribute>() / size_of::<u64>();
/// Words of an operation.
const OPERATION_WORDS: usize = 6;

/// A refusal, and the number of the node that stands in the way, 0 for none.
pub(crate) type Refused = (CUresult, u64);

/// A description with the driver's objects.
#[derive(Default)]
pub(crate) struct Ready {
    pub(crate) nodes: Vec<(u64, Work)>,
    pub(crate) edges: Vec<Edge>,
}

/// What a node does, with the driver's objects.
pub(crate) enum Work {
    Empty,
    Kernel(Box<Kernel>),
    /// With the arrays that it reads and writes, and its context.
    Copy(Copy, [Raw; 2], Raw),
    Fill(Fill, Raw),
    Call,
    Record(Raw),
    Wait(Raw),
    Operations(Raw, u32, Vec<u64>),
    Alloc,
    Free(u64),
    Conditional(u64, u32, Raw, Vec<Ready>),
    Collective(Vec<Captured>),
}

/// A launch.
pub(crate) struct Kernel {
    pub(crate) function: Raw,
    /// It is a kernel, which stands for a function of its context.
    pub(crate) is_kernel: bool,
    pub(crate) context: Raw,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) attributes: Vec<u64>,
    pub(crate) params: SmallVec<[u128; 8]>,
    pub(crate) size: usize,
    /// Where the parameters lie, where that is known.
    pub(crate) layout: Option<Arc<Layout>>,
}

/// A graph in the driver.
pub(crate) struct Built {
    pub(crate) graph: Raw,
    nodes: HashMap<u64, Placed>,
    edges: HashMap<(u64, u64), [u8; 8]>,
}

/// A node in the driver, or two: one of ours, and a copy.
struct Placed {
    node: Raw,
    call: Option<Raw>,
    /// The call comes first.
    fetches: bool,
    bodies: Vec<Built>,
    /// Of a launch.
    attributes: Vec<u64>,
    /// Of its collectives.
    communicators: Vec<Weak<Communicator>>,
}

impl Placed {
    fn new(node: Raw) -> Self {
        Self {
            node,
            call: None,
            fetches: false,
            bodies: Vec::new(),
            attributes: Vec::new(),
            communicators: Vec::new(),
        }
    }

    fn head(&self) -> Raw {
        self.call.filter(|_| self.fetches).unwrap_or(self.node)
    }

    fn tail(&self) -> Raw {
        self.call.filter(|_| !self.fetches).unwrap_or(self.node)
    }
}

/// Calls of an executable graph, by the client's number of their nodes.
pub(crate) type Calls = HashMap<u64, Arc<Call>>;

/// Who builds.
pub(crate) struct Builder<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) context: &'a Arc<Context>,
    pub(crate) calls: Calls,
}

fn done(status: CUresult) -> Result<(), CUresult> {
    match status {
        CUDA_SUCCESS => Ok(()),
        status => Err(status),
    }
}

fn with_params<T>(kernel: &mut Kernel, go: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS) -> T) -> T {
    let mut size = kernel.size;
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_POINTER),
        kernel.params.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_SIZE),
        (&raw mut size).cast(),
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_END),
    ];
    // Parameter by parameter where it can be, as for launches.
    let start = kernel.params.as_mut_ptr().cast::<u8>();
    let offsets = kernel
        .layout
        .iter()
        .flat_map(|layout| layout.offsets.iter());
    let mut places: SmallVec<[*mut c_void; 32]> = offsets
        .map(|offset| start.wrapping_add(*offset as usize).cast())
        .collect();
    let (params, block) = match kernel.layout {
        Some(_) => (places.as_mut_ptr(), std::ptr::null_mut()),
        None => (std::ptr::null_mut(), extra.as_mut_ptr()),
    };
    let none = std::ptr::null_mut();
    let (func, kern) = match kernel.is_kernel {
        true => (none, kernel.function.0),
        false => (kernel.function.0, none),
    };
    let params = CUDA_KERNEL_NODE_PARAMS {
        func: func.cast(),
        gridDimX: kernel.grid[0],
        gridDimY: kernel.grid[1],
        gridDimZ: kernel.grid[2],
        blockDimX: kernel.block[0],
        blockDimY: kernel.block[1],
        blockDimZ: kernel.block[2],
        sharedMemBytes: kernel.shared_bytes,
        kernelParams: params,
        extra: block,
        kern: kern.cast(),
        ctx: kernel.context.0.cast(),
    };
    go(&raw const params)
}

fn memset(fill: &Fill) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: fill.address,
        pitch: fill.pitch as usize,
        value: fill.value,
        elementSize: fill.element_size,
        width: fill.width as usize,
        height: fill.height as usize,
    }
}

/// The copy as the driver takes it; the client's side of it is `staging`, where the rows lie end to end.
fn memcpy(copy: &Copy, [from_array, to_array]: [Raw; 2], staging: *mut c_void) -> CUDA_MEMCPY3D {
    let packed = Operand {
        pitch: copy.width,
        height: copy.height,
        ..Operand::default()
    };
    let side = |operand: &Operand| match operand.place {
        Place::Client => (CU_MEMORYTYPE_HOST, 0, packed),
        Place::Device(address) => (CU_MEMORYTYPE_DEVICE, address, *operand),
        Place::Array(_) => (CU_MEMORYTYPE_ARRAY, 0, *operand),
    };
    let (from_kind, from_address, from) = side(&copy.source);
    let (to_kind, to_address, to) = side(&copy.destination);
    CUDA_MEMCPY3D {
        srcXInBytes: from.x as usize,
        srcY: from.y as usize,
        srcZ: from.z as usize,
        srcLOD: from.level as usize,
        srcMemoryType: from_kind,
        srcHost: staging,
        srcDevice: from_address,
        srcArray: from_array.0.cast(),
        reserved0: std::ptr::null_mut(),
        srcPitch: from.pitch as usize,
        srcHeight: from.height as usize,
        dstXInBytes: to.x as usize,
        dstY: to.y as usize,
        dstZ: to.z as usize,
        dstLOD: to.level as usize,
        dstMemoryType: to_kind,
        dstHost: staging,
        dstDevice: to_address,
        dstArray: to_array.0.cast(),
        reserved1: std::ptr::null_mut(),
        dstPitch: to.pitch as usize,
        dstHeight: to.height as usize,
        WidthInBytes: copy.width as usize,
        Height: copy.height as usize,
        Depth: copy.depth as usize,
    }
}

fn edge_data([from_port, to_port, kind, reserved @ ..]: [u8; 8]) -> CUgraphEdgeData {
    CUgraphEdgeData {
        from_port,
        to_port,
        r#type: kind,
        reserved,
    }
}

fn with_operations<T>(
    context: Raw,
    flags: u32,
    words: &mut [u64],
    go: impl FnOnce(*const CUDA_BATCH_MEM_OP_NODE_PARAMS) -> T,
) -> T {
    let params = CUDA_BATCH_MEM_OP_NODE_PARAMS {
        ctx: context.0.cast(),
        count: (words.len() / OPERATION_WORDS) as u32,
        paramArray: words.as_mut_ptr().cast(),
        flags,
    };
    go(&raw const params)
}

impl Built {
    /// An empty graph.
    pub(crate) fn new(api: &dyn CudaApi) -> Result<Self, CUresult> {
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: one place for the graph.
        done(unsafe { api.cuGraphCreate(&raw mut graph, 0) })?;
        Ok(Self::of(Raw(graph.cast())))
    }

    fn of(graph: Raw) -> Self {
        Self {
            graph,
            nodes: HashMap::new(),
            edges: HashMap::new(),
        }
    }

    /// Notes an allocation that was added.
    pub(crate) fn allocated(&mut self, number: u64, node: Raw) {
        self.nodes.insert(number, Placed::new(node));
    }

    /// The communicators of its collectives.
    pub(crate) fn communicators(&self) -> Vec<Weak<Communicator>> {
        let own = |placed: &Placed| {
            let inside = placed.bodies.iter().flat_map(Self::communicators);
            let all = placed.communicators.iter().cloned().chain(inside);
            all.collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.nodes.values().flat_map(own).collect();
        all.sort_by_key(Weak::as_ptr);
        all.dedup_by(|one, other| Weak::ptr_eq(one, other));
        all
    }

    /// Whether there is a node of this number.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.nodes.contains_key(&number)
    }

    /// The driver's node of a number.
    pub(crate) fn node(&self, number: u64) -> Option<Raw> {
        self.nodes.get(&number).map(|placed| placed.node)
    }

    /// The number of a driver's node, 0 if it has none.
    pub(crate) fn number_of(&self, node: CUgraphNode) -> u64 {
        let is = |raw: Raw| raw.0.addr() == node.addr();
        let found = self
            .nodes
            .iter()
            .find(|(_, placed)| is(placed.node) || placed.call.is_some_and(is));
        found.map_or(0, |(number, _)| *number)
    }

    pub(crate) fn destroy(&self, api: &dyn CudaApi) {
        // SAFETY: the graph is ours, and ends once.
        unsafe { api.cuGraphDestroy(self.graph.0.cast()) };
    }
}

impl Builder<'_> {
    fn api(&self) -> &dyn CudaApi {
        &*self.shared.api
    }

    /// Makes the driver's graph be as described: what it has and the description lacks goes, the rest is set or added.
    pub(crate) fn build(
        &mut self,
        built: &mut Built,
        ready: Ready,
        is_body: bool,
    ) -> Result<(), Refused> {
        let Ready { nodes, edges } = ready;
        let numbers: Vec<u64> = nodes.iter().map(|(number, _)| *number).collect();
        let at = |index: u32| numbers.get(index as usize).copied().unwrap_or(0);
        let wanted: HashMap<(u64, u64), [u8; 8]> = edges
            .iter()
            .map(|edge| ((at(edge.from), at(edge.to)), edge.data))
            .collect();
        self.drop_edges(built, &wanted)?;
        let known: HashSet<u64> = numbers.iter().copied().collect();
        let gone: Vec<u64> = built.nodes.keys().copied().collect();
        for number in gone.into_iter().filter(|number| !known.contains(number)) {
            if let Some(placed) = built.nodes.remove(&number) {
                for node in [Some(placed.node), placed.call].into_iter().flatten() {
                    // SAFETY: the node is the graph's, and ends once.
                    let status = unsafe { self.api().cuGraphDestroyNode(node.0.cast()) };
                    done(status).map_err(|status| (status, number))?;
                }
                built
                    .edges
                    .retain(|(from, to), _| *from != number && *to != number);
            }
        }
        for (number, work) in nodes {
            let placed = match built.nodes.remove(&number) {
                Some(placed) => self.set(placed, number, work),
                None => self.add(built.graph, number, work, is_body),
            };
            built
                .nodes
                .insert(number, placed.map_err(|status| (status, number))?);
        }
        for edge in &edges {
            let (from, to) = (at(edge.from), at(edge.to));
            if built.edges.insert((from, to), edge.data).is_none() {
                let (Some(before), Some(after)) = (built.nodes.get(&from), built.nodes.get(&to))
                else {
                    return Err((CUDA_ERROR_INVALID_VALUE, to));
                };
                self.tie(built.graph, before.tail(), after.head(), edge.data)
                    .map_err(|status| (status, to))?;
            }
        }
        Ok(())
    }

    fn drop_edges(
        &self,
        built: &mut Built,
        wanted: &HashMap<(u64, u64), [u8; 8]>,
    ) -> Result<(), Refused> {
        let has = built.edges.iter();
        let gone = has.filter(|(edge, data)| wanted.get(edge) != Some(data));
        let gone: Vec<_> = gone.map(|(edge, data)| (*edge, *data)).collect();
        for ((from, to), data) in gone {
            built.edges.remove(&(from, to));
            if let (Some(before), Some(after)) = (built.nodes.get(&from), built.nodes.get(&to)) {
                self.untie(built.graph, before.tail(), after.head(), data)
                    .map_err(|status| (status, to))?;
            }
        }
        Ok(())
    }

    fn tie(&self, graph: Raw, from: Raw, to: Raw, data: [u8; 8]) -> Result<(), CUresult> {
        let (from, to): (CUgraphNode, CUgraphNode) = (from.0.cast(), to.0.cast());
        let graph = graph.0.cast();
        let (from, to) = (&raw const from, &raw const to);
        if data == [0; 8] {
            // SAFETY: one edge, between nodes of the graph.
            return done(unsafe { self.api().cuGraphAddDependencies(graph, from, to, 1) });
        }
        let data = edge_data(data);
        let data = &raw const data;
        // SAFETY: as above, with the edge's data.
        done(unsafe {
            self.api()
                .cuGraphAddDependencies_v2(graph, from, to, data, 1)
        })
    }

    fn untie(&self, graph: Raw, from: Raw, to: Raw, data: [u8; 8]) -> Result<(), CUresult> {
        let (from, to): (CUgraphNode, CUgraphNode) = (from.0.cast(), to.0.cast());
        let graph = graph.0.cast();
        let (from, to) = (&raw const from, &raw const to);
        if data == [0; 8] {
            // SAFETY: one edge, between nodes of the graph.
            return done(unsafe { self.api().cuGraphRemoveDependencies(graph, from, to, 1) });
        }
        let data = edge_data(data);
        let data = &raw const data;
        // SAFETY: as above, with the edge's data, by which the driver knows it too.
        done(unsafe {
            self.api()
                .cuGraphRemoveDependencies_v2(graph, from, to, data, 1)
        })
    }

    /// Sets attributes of a launch in a graph that are not as they were; one that is gone is as none.
    fn set_attributes(&self, node: Raw, before: &[u64], now: &[u64]) -> Result<(), CUresult> {
        let [before, now] = [before, now].map(|words| words.as_chunks::<ATTRIBUTE_WORDS>().0);
        let is_gone = |[id, ..]: &&[u64; ATTRIBUTE_WORDS]| !now.iter().any(|one| one[0] == *id);
        let gone = before.iter().filter(is_gone).map(|[id, ..]| {
            let mut none = [0; ATTRIBUTE_WORDS];
            none[0] = *id;
            none
        });
        let new = now.iter().filter(|one| !before.contains(one)).copied();
        for [id, value @ ..] in gone.chain(new) {
            let (node, value) = (node.0.cast(), value.as_ptr().cast());
            // SAFETY: the node is live; the value has 64 bytes.
            done(unsafe {
                self.api()
                    .cuGraphKernelNodeSetAttribute(node, id as u32, value)
            })?;
        }
        Ok(())
    }

    fn call(&mut self, number: u64, kind: Kind, size: u64) -> Result<Arc<Call>, CUresult> {
        let call = Call::new(self.shared, self.context, kind, size)?;
        if let Some(before) = self.calls.insert(number, Arc::clone(&call)) {
            // Two nodes of one number: the client's mistake.
            before.release(self.api());
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(call)
    }

    fn staged(&mut self, number: u64, copy: &Copy) -> Result<Option<Arc<Call>>, CUresult> {
        let kind = match (copy.source.place, copy.destination.place) {
            (Place::Client, Place::Client) => return Err(CUDA_ERROR_INVALID_VALUE),
            (Place::Client, _) => Kind::Fetch,
            (_, Place::Client) => Kind::Send,
            _ => return Ok(None),
        };
        let size = copy.bytes().filter(|size| *size > 0);
        self.call(number, kind, size.ok_or(CUDA_ERROR_INVALID_VALUE)?)
            .map(Some)
    }

    fn add_call(&self, graph: Raw, call: &Call) -> Result<Raw, CUresult> {
        let mut node: CUgraphNode = std::ptr::null_mut();
        let params = call.params();
        // SAFETY: one place for the node; the call outlives it.
        done(unsafe {
            self.api().cuGraphAddHostNode(
                &raw mut node,
                graph.0.cast(),
                std::ptr::null(),
                0,
                &raw const params,
            )
        })?;
        Ok(Raw(node.cast()))
    }

    fn add(
        &mut self,
        graph: Raw,
        number: u64,
        work: Work,
        is_body: bool,
    ) -> Result<Placed, CUresult> {
        let mut node: CUgraphNode = std::ptr::null_mut();
        let (place, none) = (&raw mut node, std::ptr::null());
        let mut communicators = Vec::new();
        let native: CUgraph = graph.0.cast();
        let api = Arc::clone(&self.shared.api);
        let status = match work {
            // SAFETY: in this and the others: one place for the node, no dependencies; objects are live.
            Work::Empty => unsafe { api.cuGraphAddEmptyNode(place, native, none, 0) },
            Work::Kernel(mut kernel) => {
                // SAFETY: as above; the parameters end as they must.
                let added = with_params(&mut kernel, |params| unsafe {
                    api.cuGraphAddKernelNode_v2(place, native, none, 0, params)
                });
                done(added)?;
                let node = Raw(node.cast());
                self.set_attributes(node, &[], &kernel.attributes)?;
                return Ok(Placed {
                    attributes: kernel.attributes,
                    ..Placed::new(node)
                });
            }
            Work::Copy(copy, arrays, context) => {
                if is_body && copy.is_of_client() {
                    return Err(CUDA_ERROR_NOT_SUPPORTED);
                }
                let staged = self.staged(number, &copy)?;
                let staging = staged
                    .as_ref()
                    .map_or(std::ptr::null_mut(), |it| it.staging.0);
                let params = memcpy(&copy, arrays, staging);
                let (params, context) = (&raw const params, context.0.cast());
                // SAFETY: as above.
                done(unsafe { api.cuGraphAddMemcpyNode(place, native, none, 0, params, context) })?;
                let mut placed = Placed::new(Raw(node.cast()));
                if let Some(call) = staged {
                    placed.fetches = call.kind == Kind::Fetch;
                    placed.call = Some(self.add_call(graph, &call)?);
                    let inner = match placed.fetches {
                        true => (placed.head(), placed.node),
                        false => (placed.node, placed.tail()),
                    };
                    self.tie(graph, inner.0, inner.1, [0; 8])?;
                }
                return Ok(placed);
            }
            Work::Fill(fill, context) => {
                let params = memset(&fill);
                let (params, context) = (&raw const params, context.0.cast());
                // SAFETY: as above.
                unsafe { api.cuGraphAddMemsetNode(place, native, none, 0, params, context) }
            }
            Work::Call => {
                let call = self.call(number, Kind::Function, 0)?;
                return self.add_call(graph, &call).map(Placed::new);
            }
            // SAFETY: as above.
            Work::Record(event) => unsafe {
                api.cuGraphAddEventRecordNode(place, native, none, 0, event.0.cast())
            },
            // SAFETY: as above.
            Work::Wait(event) => unsafe {
                api.cuGraphAddEventWaitNode(place, native, none, 0, event.0.cast())
            },
            Work::Operations(context, flags, mut words) => {
                // SAFETY: as above; there are as many operations as it says.
                with_operations(context, flags, &mut words, |params| unsafe {
                    api.cuGraphAddBatchMemOpNode(place, native, none, 0, params)
                })
            }
            // Such a node is there from the beginning.
            Work::Alloc => CUDA_ERROR_INVALID_VALUE,
            // SAFETY: as above; the driver judges the address.
            Work::Free(address) => unsafe {
                api.cuGraphAddMemFreeNode(place, native, none, 0, address)
            },
            Work::Conditional(handle, kind, context, bodies) => {
                return self.add_conditional(graph, handle, kind, context, bodies);
            }
            Work::Collective(operations) => {
                let child = self.shared.capture_collectives(&operations)?;
                let child: CUgraph = child.0.cast();
                // SAFETY: as above; the driver copies the graph.
                let status = unsafe { api.cuGraphAddChildGraphNode(place, native, none, 0, child) };
                // SAFETY: the graph is ours, and ends once.
                unsafe { api.cuGraphDestroy(child) };
                communicators.extend(operations.iter().map(Captured::communicator));
                status
            }
        };
        done(status)?;
        Ok(Placed {
            communicators,
            ..Placed::new(Raw(node.cast()))
        })
    }

    fn add_conditional(
        &mut self,
        graph: Raw,
        handle: u64,
        kind: u32,
        context: Raw,
        bodies: Vec<Ready>,
    ) -> Result<Placed, CUresult> {
        let mut node: CUgraphNode = std::ptr::null_mut();
        let conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle,
            r#type: kind,
            size: bodies.len() as u32,
            phGraph_out: std::ptr::null_mut(),
            ctx: context.0.cast(),
        };
        let mut params = CUgraphNodeParams {
            r#type: CU_GRAPH_NODE_TYPE_CONDITIONAL,
            reserved0: [0; 3],
            either: CUgraphNodeParams_either { reserved1: [0; 29] },
            reserved2: 0,
        };
        params.either.conditional = conditional;
        // SAFETY: one place for the node, no dependencies; the value is the graph's.
        done(unsafe {
            self.api().cuGraphAddNode_v2(
                &raw mut node,
                graph.0.cast(),
                std::ptr::null(),
                std::ptr::null(),
                0,
                &raw mut params,
            )
        })?;
        // SAFETY: the kind says that it is this.
        let told = unsafe { params.either.conditional }.phGraph_out;
        let mut placed = Placed::new(Raw(node.cast()));
        for (index, ready) in bodies.into_iter().enumerate() {
            if told.is_null() {
                return Err(CUDA_ERROR_UNKNOWN);
            }
            // SAFETY: the driver tells as many graphs as were asked for.
            let body = unsafe { told.wrapping_add(index).read() };
            let mut built = Built::of(Raw(body.cast()));
            self.build(&mut built, ready, true)
                .map_err(|(status, _)| status)?;
            placed.bodies.push(built);
        }
        Ok(placed)
    }

    /// Replaces what a node of a graph does.
    fn set(&mut self, mut placed: Placed, number: u64, work: Work) -> Result<Placed, CUresult> {
        if let Work::Conditional(_, _, _, bodies) = work {
            for (built, ready) in placed.bodies.iter_mut().zip(bodies) {
                self.build(built, ready, true)
                    .map_err(|(status, _)| status)?;
            }
            return Ok(placed);
        }
        let attributes = match &work {
            Work::Kernel(kernel) => kernel.attributes.clone(),
            _ => Vec::new(),
        };
        self.change(None, &placed.parts(), number, work)?;
        self.set_attributes(placed.node, &placed.attributes, &attributes)?;
        placed.attributes = attributes;
        Ok(placed)
    }

    /// Replaces what a node of an executable graph does.
    pub(crate) fn change_in(
        &mut self,
        exec: Raw,
        built: &Built,
        number: u64,
        work: Work,
    ) -> Result<(), CUresult> {
        let placed = built.nodes.get(&number).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        self.change(Some(exec), &placed.parts(), number, work)
    }

    fn change(
        &mut self,
        exec: Option<Raw>,
        (native, call_node, fetches): &(Raw, Option<Raw>, bool),
        number: u64,
        work: Work,
    ) -> Result<(), CUresult> {
        let node: CUgraphNode = native.0.cast();
        let api = Arc::clone(&self.shared.api);
        let exec: Option<CUgraphExec> = exec.map(|exec| exec.0.cast());
        done(match (work, exec) {
            (Work::Empty | Work::Alloc | Work::Free(_), _) => CUDA_SUCCESS,
            (Work::Kernel(mut kernel), exec) => {
                with_params(&mut kernel, |params| match exec {
                    // SAFETY: in this and the others: node and objects are live; parameters end as they must.
                    Some(exec) => unsafe {
                        api.cuGraphExecKernelNodeSetParams_v2(exec, node, params)
                    },
                    // SAFETY: as above.
                    None => unsafe { api.cuGraphKernelNodeSetParams_v2(node, params) },
                })
            }
            (Work::Copy(copy, arrays, context), exec) => {
                let staged = self.staged(number, &copy)?;
                let same = match (&staged, call_node) {
                    (None, None) => true,
                    (Some(call), Some(_)) => (call.kind == Kind::Fetch) == *fetches,
                    _ => false,
                };
                if !same {
                    // Where a copy's sides lie cannot change.
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                let staging = staged
                    .as_ref()
                    .map_or(std::ptr::null_mut(), |it| it.staging.0);
                let params = memcpy(&copy, arrays, staging);
                let (params, context) = (&raw const params, context.0.cast());
                done(match exec {
                    // SAFETY: as above.
                    Some(exec) => unsafe {
                        api.cuGraphExecMemcpyNodeSetParams(exec, node, params, context)
                    },
                    // SAFETY: as above.
                    None => unsafe { api.cuGraphMemcpyNodeSetParams(node, params) },
                })?;
                match (staged, call_node) {
                    (Some(call), Some(at)) => self.set_call(exec, at.0.cast(), &call),
                    _ => CUDA_SUCCESS,
                }
            }
            (Work::Fill(fill, context), exec) => {
                let params = memset(&fill);
                let (params, context) = (&raw const params, context.0.cast());
                match exec {
                    // SAFETY: as above.
                    Some(exec) => unsafe {
                        api.cuGraphExecMemsetNodeSetParams(exec, node, params, context)
                    },
                    // SAFETY: as above.
                    None => unsafe { api.cuGraphMemsetNodeSetParams(node, params) },
                }
            }
            // Which function it is, the client knows.
            (Work::Call, Some(_)) => CUDA_SUCCESS,
            (Work::Call, None) => {
                let call = self.call(number, Kind::Function, 0)?;
                self.set_call(None, node, &call)
            }
            // SAFETY: as above.
            (Work::Record(event), Some(exec)) => unsafe {
                api.cuGraphExecEventRecordNodeSetEvent(exec, node, event.0.cast())
            },
            // SAFETY: as above.
            (Work::Record(event), None) => unsafe {
                api.cuGraphEventRecordNodeSetEvent(node, event.0.cast())
            },
            // SAFETY: as above.
            (Work::Wait(event), Some(exec)) => unsafe {
                api.cuGraphExecEventWaitNodeSetEvent(exec, node, event.0.cast())
            },
            // SAFETY: as above.
            (Work::Wait(event), None) => unsafe {
                api.cuGraphEventWaitNodeSetEvent(node, event.0.cast())
            },
            (Work::Operations(context, flags, mut words), exec) => {
                with_operations(context, flags, &mut words, |params| match exec {
                    // SAFETY: as above; there are as many operations as it says.
                    Some(exec) => unsafe {
                        api.cuGraphExecBatchMemOpNodeSetParams(exec, node, params)
                    },
                    // SAFETY: as above.
                    None => unsafe { api.cuGraphBatchMemOpNodeSetParams(node, params) },
                })
            }
            // Nothing sets what such a node does: it is as it was.
            (Work::Collective(_), None) => CUDA_SUCCESS,
            (Work::Conditional(..) | Work::Collective(_), _) => CUDA_ERROR_NOT_SUPPORTED,
        })
    }

    fn set_call(&self, exec: Option<CUgraphExec>, node: CUgraphNode, call: &Call) -> CUresult {
        let params = call.params();
        match exec {
            // SAFETY: the call outlives the executable graph.
            Some(exec) => unsafe {
                self.api()
                    .cuGraphExecHostNodeSetParams(exec, node, &raw const params)
            },
            // SAFETY: the call outlives what is made of the graph, and every making sets it anew.
            None => unsafe { self.api().cuGraphHostNodeSetParams(node, &raw const params) },
        }
    }
}

impl Placed {
    fn parts(&self) -> (Raw, Option<Raw>, bool) {
        (self.node, self.call, self.fetches)
    }
}
