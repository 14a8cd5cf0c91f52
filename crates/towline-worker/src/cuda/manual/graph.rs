//! Graphs: made executable, changed, launched, ended.

use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::cuda::collective::decode_operations;
use towline_wire::cuda::graph::{self as described, Place};
use towline_wire::error::{CloseCode, ProtocolError};

use crate::code::{Coded, GRAPH_FACTOR};
use crate::cuda::graph::{Anchor, Call, Exec, Kernel, Kind, Making, Ready, Refused, Work};
use crate::cuda::session::{Session, unknown};
use crate::cuda::shared::{Shared, lock};
use crate::cuda::streams::{Places, Target};
use crate::decode::aligned;
use crate::link::Raw;

type Resolved<T> = Result<Result<T, Refused>, ProtocolError>;

/// Unwraps what may be a refusal, and leaves with it.
macro_rules! or_refuse {
    ($resolved:expr, $node:expr) => {
        match $resolved {
            Ok(found) => found,
            Err(status) => return Ok(Err((status, $node))),
        }
    };
}

fn encoded<'a, M: Message<'a>>(message: &M) -> Vec<u8> {
    let mut body = Vec::new();
    message.encode(&mut body);
    body
}

impl Session {
    /// A context of a description: 0 is the one acted in.
    fn context_of(&self, context: u64) -> Result<Result<Raw, CUresult>, ProtocolError> {
        if context != 0 {
            return Ok(self.native(context, wire::ContextHandle::TAG)?.map(Raw));
        }
        let acting = self.acting.as_ref().map(|context| context.native);
        Ok(acting.ok_or(CUDA_ERROR_INVALID_CONTEXT))
    }

    fn ready(&self, graph: described::Graph) -> Resolved<Ready> {
        let mut ready = Ready {
            nodes: Vec::with_capacity(graph.nodes.len()),
            edges: graph.edges,
        };
        for node in graph.nodes {
            let work = match self.ready_work(node.number, node.work)? {
                Ok(work) => work,
                Err(refused) => return Ok(Err(refused)),
            };
            ready.nodes.push((node.number, work));
        }
        Ok(Ok(ready))
    }

    fn ready_work(&self, number: u64, work: described::Work) -> Resolved<Work> {
        Ok(Ok(match work {
            described::Work::Empty => Work::Empty,
            described::Work::Kernel(kernel) => {
                let function = self.native(kernel.function, wire::FunctionHandle::TAG)?;
                let is_kernel = self.table.entry(kernel.function, wire::KernelHandle::TAG);
                let function = Raw(or_refuse!(function, number));
                let layout = self.shared.layout(function);
                let fits = layout
                    .as_ref()
                    .is_none_or(|it| it.bytes <= kernel.params.len());
                let attributes = self.attributes(&List::Values(&kernel.attributes))?;
                if !fits {
                    return Ok(Err((CUDA_ERROR_INVALID_VALUE, number)));
                }
                Work::Kernel(Box::new(Kernel {
                    function,
                    is_kernel: is_kernel.is_ok(),
                    context: or_refuse!(self.context_of(kernel.context)?, number),
                    grid: kernel.grid,
                    block: kernel.block,
                    shared_bytes: kernel.shared_bytes,
                    attributes: or_refuse!(attributes, number),
                    size: kernel.params.len(),
                    params: aligned(&kernel.params),
                    layout,
                }))
            }
            described::Work::Copy(copy) => {
                let mut arrays = [Raw(std::ptr::null_mut()); 2];
                for (array, side) in arrays.iter_mut().zip([copy.source, copy.destination]) {
                    if let Place::Array(handle) = side.place {
                        let native = self.native(handle, wire::ArrayHandle::TAG)?;
                        *array = Raw(or_refuse!(native, number));
                    }
                }
                let context = or_refuse!(self.context_of(copy.context)?, number);
                Work::Copy(copy, arrays, context)
            }
            described::Work::Fill(fill) => {
                Work::Fill(fill, or_refuse!(self.context_of(fill.context)?, number))
            }
            described::Work::Call => Work::Call,
            described::Work::Record(event) => {
                let native = self.native(event, wire::EventHandle::TAG)?;
                Work::Record(Raw(or_refuse!(native, number)))
            }
            described::Work::Wait(event) => {
                let native = self.native(event, wire::EventHandle::TAG)?;
                Work::Wait(Raw(or_refuse!(native, number)))
            }
            described::Work::Operations {
                context,
                flags,
                words,
            } => {
                let context = or_refuse!(self.context_of(context)?, number);
                Work::Operations(context, flags, words)
            }
            described::Work::Alloc => Work::Alloc,
            described::Work::Free(address) => Work::Free(address),
            described::Work::Conditional {
                handle,
                kind,
                context,
                bodies,
            } => {
                let context = or_refuse!(self.context_of(context)?, number);
                let mut ready = Vec::with_capacity(bodies.len());
                for body in bodies {
                    match self.ready(body)? {
                        Ok(body) => ready.push(body),
                        Err(refused) => return Ok(Err(refused)),
                    }
                }
                Work::Conditional(handle, kind, context, ready)
            }
            described::Work::Collective(words) => {
                let operations = decode_operations(&words)
                    .map_err(|error| ProtocolError::new(CloseCode::Malformed, error.to_string()))?;
                let captured = self.captured(operations).ok_or(CUDA_ERROR_INVALID_VALUE);
                Work::Collective(or_refuse!(captured, number))
            }
        }))
    }

    fn new_graph(&self, number: u64) -> Result<(), ProtocolError> {
        let graphs = lock(&self.shared.graphs);
        let refused =
            |code, text: &str| Err(ProtocolError::new(code, format!("{text} {number:#x}")));
        if number == 0 || graphs.has(number) || self.shared.has_code(Coded::Graph(number)) {
            return refused(
                CloseCode::DuplicateHandle,
                "a graph has the number already:",
            );
        }
        if !graphs.has_room() {
            return refused(CloseCode::LimitExceeded, "too many graphs for another:");
        }
        Ok(())
    }

    fn exec(&self, number: u64) -> Result<Arc<Exec>, ProtocolError> {
        let found = lock(&self.shared.graphs).exec(number);
        found.ok_or_else(|| unknown("executable graph", number))
    }

    fn anchor(&self, number: u64) -> Result<Anchor, ProtocolError> {
        let found = lock(&self.shared.graphs).anchors.get(&number).cloned();
        found.ok_or_else(|| unknown("graph", number))
    }

    pub(crate) fn GraphAnchor(
        &mut self,
        number: u64,
        request: wire::GraphAnchor,
    ) -> Result<(), ProtocolError> {
        let call = <wire::GraphAnchor as Request<'_>>::ID;
        self.new_graph(request.graph.0)?;
        let context = self.acting.as_ref().map_or(0, |context| context.id);
        match Anchor::new(&*self.api, context) {
            Ok(anchor) => {
                let mut graphs = lock(&self.shared.graphs);
                graphs.anchors.insert(request.graph.0, anchor);
            }
            // What is asked of it fails for want of it.
            Err(status) => self.settle(number, call, status),
        }
        Ok(())
    }

    pub(crate) fn GraphAnchorEnd(
        &mut self,
        _number: u64,
        request: wire::GraphAnchorEnd,
    ) -> Result<(), ProtocolError> {
        let ended = lock(&self.shared.graphs).anchors.remove(&request.graph.0);
        if let Some(anchor) = ended {
            lock(&anchor.built).destroy(&*self.api);
        }
        Ok(())
    }

    pub(crate) fn GraphAlloc(
        &mut self,
        number: u64,
        request: wire::GraphAlloc<'_>,
    ) -> Result<(), ProtocolError> {
        let anchor = self.anchor(request.graph.0)?;
        let mut address = 0;
        let status = match self.device(request.device) {
            Err(status) => status,
            Ok(device) => self.add_allocation(&anchor, device, &request, &mut address)?,
        };
        let reply = wire::GraphAllocReply {
            address: Some(address),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    fn add_allocation(
        &self,
        anchor: &Anchor,
        device: CUdevice,
        request: &wire::GraphAlloc<'_>,
        address: &mut CUdeviceptr,
    ) -> Result<CUresult, ProtocolError> {
        let located = |kind: u32, id: i32| CUmemLocation {
            r#type: kind,
            either: CUmemLocation_either { id },
        };
        let words: Vec<u64> = request.access.iter().collect();
        let mut access = Vec::new();
        for [kind, place, flags] in words.as_chunks::<3>().0 {
            let id = match self.device(*place as i32) {
                Ok(device) if *kind as u32 == CU_MEM_LOCATION_TYPE_DEVICE => device,
                Err(status) if *kind as u32 == CU_MEM_LOCATION_TYPE_DEVICE => return Ok(status),
                _ => *place as i32,
            };
            access.push(CUmemAccessDesc {
                location: located(*kind as u32, id),
                flags: *flags as u32,
            });
        }
        let mut params = CUDA_MEM_ALLOC_NODE_PARAMS {
            poolProps: CUmemPoolProps {
                allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
                handleTypes: CU_MEM_HANDLE_TYPE_NONE,
                location: located(CU_MEM_LOCATION_TYPE_DEVICE, device),
                win32SecurityAttributes: std::ptr::null_mut(),
                maxSize: 0,
                usage: 0,
                gpuDirectRDMACapable: 0,
                reserved: [0; 53],
            },
            accessDescs: access.as_ptr(),
            accessDescCount: access.len(),
            bytesize: request.size as usize,
            dptr: 0,
        };
        let mut built = lock(&anchor.built);
        if built.has(request.node) {
            let text = format!("a node has the number {:#x} already", request.node);
            return Err(ProtocolError::new(CloseCode::DuplicateHandle, text));
        }
        let mut node: CUgraphNode = std::ptr::null_mut();
        let graph = built.graph.0.cast();
        // SAFETY: one place for the node, no dependencies; the list of who has access is as long as it says.
        let status = unsafe {
            self.api.cuGraphAddMemAllocNode(
                &raw mut node,
                graph,
                std::ptr::null(),
                0,
                &raw mut params,
            )
        };
        if status == CUDA_SUCCESS {
            let mut devices = lock(&self.shared.graph_devices);
            if !devices.contains(&device) {
                devices.push(device);
            }
            drop(devices);
            built.allocated(request.node, Raw(node.cast()));
            *address = params.dptr;
        }
        Ok(status)
    }

    pub(crate) fn GraphCondition(
        &mut self,
        number: u64,
        request: wire::GraphCondition,
    ) -> Result<(), ProtocolError> {
        let anchor = self.anchor(request.graph.0)?;
        let mut handle = 0;
        let status = match &self.acting {
            None => CUDA_ERROR_INVALID_CONTEXT,
            Some(context) => {
                let graph = lock(&anchor.built).graph;
                // SAFETY: one place for the handle; graph and context are live.
                unsafe {
                    self.api.cuGraphConditionalHandleCreate(
                        &raw mut handle,
                        graph.0.cast(),
                        context.native.0.cast(),
                        request.default,
                        request.flags,
                    )
                }
            }
        };
        let reply = wire::GraphConditionReply {
            handle: Some(handle),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn GraphMake(
        &mut self,
        number: u64,
        request: wire::GraphMake<'_>,
    ) -> Result<(), ProtocolError> {
        self.new_graph(request.exec)?;
        let anchor = match request.graph.0 {
            0 => None,
            graph => Some(self.anchor(graph)?),
        };
        let ready = self.ready(described::Graph::decode(request.description)?)?;
        let stream = self.target(request.stream)?.map_err(|status| (status, 0));
        let context = self.acting.clone().ok_or((CUDA_ERROR_INVALID_CONTEXT, 0));
        let all = ready.and_then(|ready| Ok((ready, stream?, context?)));
        let (flags, exec) = (request.flags, request.exec);
        let bytes = request.description.len() as u64 * GRAPH_FACTOR;
        let home = self.acting.as_ref().map_or(0, |context| context.id);
        let code = Coded::Graph(exec);
        let is_charged = self.shared.charge_code(code, home, bytes);
        self.wait(move |shared| {
            let made = match all {
                Err(refused) => Err((refused, CUDA_GRAPH_INSTANTIATE_ERROR)),
                Ok((ready, target, context)) => {
                    let making = Making {
                        anchor,
                        ready,
                        flags,
                        stream: target.native,
                        exec,
                    };
                    match context.enter(&*shared.api) {
                        CUDA_SUCCESS if !is_charged => {
                            Err(((CUDA_ERROR_OUT_OF_MEMORY, 0), CUDA_GRAPH_INSTANTIATE_ERROR))
                        }
                        CUDA_SUCCESS => shared.make_graph(&context, making),
                        status => Err(((status, 0), CUDA_GRAPH_INSTANTIATE_ERROR)),
                    }
                }
            };
            if made.is_err() {
                // Before the client knows that the number is free.
                shared.credit_code(code);
            }
            let ((status, node), result) =
                made.map_or_else(|refused| refused, |()| ((CUDA_SUCCESS, 0), 0));
            let reply = wire::GraphMakeReply {
                result: Some(result),
                error_node: Some(node),
            };
            shared.answer(number, status, &encoded(&reply));
        });
        Ok(())
    }

    pub(crate) fn GraphChange(
        &mut self,
        number: u64,
        request: wire::GraphChange<'_>,
    ) -> Result<(), ProtocolError> {
        let exec = self.exec(request.exec)?;
        let ready = self.ready(described::Graph::decode(request.changes)?)?;
        self.wait(move |shared| {
            let changed = ready.and_then(|ready| shared.change_graph(&exec, ready));
            let (status, node) = changed.err().unwrap_or((CUDA_SUCCESS, 0));
            let reply = wire::GraphChangeReply {
                error_node: Some(node),
            };
            shared.answer(number, status, &encoded(&reply));
        });
        Ok(())
    }

    pub(crate) fn GraphAdjust(
        &mut self,
        number: u64,
        request: wire::GraphAdjust<'_>,
    ) -> Result<(), ProtocolError> {
        let call = <wire::GraphAdjust<'_> as Request<'_>>::ID;
        let exec = self.exec(request.exec)?;
        let changes = described::Graph::decode(request.changes)?;
        let is_launch = |node: &described::Node| matches!(node.work, described::Work::Kernel(_));
        if !changes.nodes.iter().all(is_launch) {
            return Err(unknown("launch to adjust in graph", request.exec));
        }
        let ready = self.ready(changes)?;
        let settled = match (self.target(request.stream)?, ready) {
            (Err(status), _) | (Ok(_), Err((status, _))) => Err(status),
            (Ok(target), Ok(ready)) => Ok((target, ready)),
        };
        match settled {
            Err(status) => self.shared.settle(number, call, request.stream.0, status),
            Ok((target, ready)) => {
                let exec = exec.park(&self.shared);
                let go = move |shared: &Arc<Shared>, _: &Target| {
                    let changed = shared.change_now(&exec, ready);
                    changed.err().map_or(CUDA_SUCCESS, |(status, _)| status)
                };
                self.issue(number, call, &target, Places::new(), go);
            }
        }
        Ok(())
    }

    pub(crate) fn GraphEnable(
        &mut self,
        number: u64,
        request: wire::GraphEnable,
    ) -> Result<(), ProtocolError> {
        let exec = self.exec(request.exec)?;
        self.wait(move |shared| {
            let status = shared.enable_node(&exec, request.node, request.enabled);
            shared.reply(number, status, &wire::GraphEnableReply {});
        });
        Ok(())
    }

    pub(crate) fn GraphBring(
        &mut self,
        number: u64,
        request: wire::GraphBring,
    ) -> Result<(), ProtocolError> {
        let call = <wire::GraphBring as Request<'_>>::ID;
        let exec = self.exec(request.exec)?;
        match self.target(request.stream)? {
            Err(status) => self.shared.settle(number, call, request.stream.0, status),
            Ok(target) => {
                let exec = exec.park(&self.shared);
                let go = move |shared: &Arc<Shared>, target: &Target| exec.bring(shared, target);
                self.issue(number, call, &target, Places::new(), go);
            }
        }
        Ok(())
    }

    pub(crate) fn GraphRun(
        &mut self,
        number: u64,
        request: wire::GraphRun<'_>,
    ) -> Result<(), ProtocolError> {
        let call = <wire::GraphRun<'_> as Request<'_>>::ID;
        let exec = self.exec(request.exec)?;
        let pairs: Vec<u64> = request.calls.iter().collect();
        let Some(expecting) = exec.expecting(&pairs) else {
            return Err(unknown("node that calls the client in graph", request.exec));
        };
        for (call, number) in expecting.iter().filter(|(_, number)| *number != 0) {
            match call.kind {
                Kind::Function => drop(lock(&self.shared.functions).insert(*number, false)),
                Kind::Send => self.shared.read_started(*number),
                Kind::Fetch => {}
            }
        }
        let target = match self.target(request.stream)? {
            Ok(target) => target,
            Err(status) => {
                let fail = |(call, number): &(Arc<Call>, u64)| {
                    call.fail(&self.shared, *number, status);
                };
                expecting.iter().for_each(fail);
                self.shared.settle(number, call, request.stream.0, status);
                return Ok(());
            }
        };
        let communicators = exec.communicators();
        // Ranks come to operations of one communicator in the same order.
        let after = communicators.iter().flat_map(|one| one.places()).collect();
        let exec = exec.park(&self.shared);
        let go = move |shared: &Arc<Shared>, target: &Target| {
            exec.launch(shared, target, (number, call), &expecting)
        };
        if self.issue_launch(number, call, &target, after, go) {
            self.shared.put_behind(&communicators, target.key);
        }
        Ok(())
    }

    pub(crate) fn GraphEnd(
        &mut self,
        _number: u64,
        request: wire::GraphEnd,
    ) -> Result<(), ProtocolError> {
        let taken = lock(&self.shared.graphs).take_exec(request.exec);
        let code = self.shared.take_code(Coded::Graph(request.exec));
        let exec = taken.ok_or_else(|| unknown("executable graph", request.exec))?;
        let (ending, idle) = (Arc::clone(&exec), exec.is_idle());
        // Without its context it has ended with that.
        let end = move |shared: &Shared, how: fn(&Exec, &dyn CudaApi)| {
            if let Some(context) = exec.context()
                && context.enter(&*shared.api) == CUDA_SUCCESS
            {
                how(&exec, &*shared.api);
            }
        };
        if idle {
            // Now: of a graph that allocates memory the driver makes one executable graph at a time. Its memory of the host goes on a thread,
            // since the driver waits there for other graphs, and those for functions of the application.
            end(&self.shared, Exec::destroy);
            if ending.has_memory() {
                self.shared
                    .start(move |shared| end(shared, Exec::release_memory));
            }
            return Ok(());
        }
        self.shared.start(move |shared| {
            // At the session's end too: the device may not be done with the memory, which goes with the process then.
            if shared.streams.wait_until(|| ending.is_idle()) || ending.is_idle() {
                end(shared, Exec::end);
            }
            drop(code);
        });
        Ok(())
    }
}
