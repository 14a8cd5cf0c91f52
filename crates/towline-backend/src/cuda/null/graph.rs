//! Graphs of the host-memory device: what nodes do is kept as it was given, and carried out in an order that the edges allow, as one
//! command of the stream that a graph is launched into.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;

use super::device::{self, Place};
use super::streams::Mark;
use super::*;

/// A graph.
#[derive(Default)]
pub(super) struct Graph {
    /// Nodes in the order in which they came.
    nodes: Vec<usize>,
    edges: HashSet<(usize, usize)>,
    /// Allocations that nodes made; they end with the graph.
    memory: Vec<u64>,
    /// Bodies of conditional nodes.
    bodies: Vec<usize>,
    conditions: Vec<u64>,
}

/// A node, in whichever graph.
#[derive(Clone)]
pub(super) struct Node {
    graph: usize,
    work: Work,
}

#[derive(Clone)]
pub(super) enum Work {
    Empty,
    Kernel(Arc<Kernel>, Vec<u8>),
    Copy(Memory),
    Fill(CUDA_MEMSET_NODE_PARAMS),
    Host(CUhostFn, usize),
    Record(Arc<Event>),
    Wait(Arc<Event>),
    Operations(Vec<[u64; 6]>),
    Free,
    Conditional(u64, u32, Vec<usize>),
}

/// A copy; the pointers in it are used when it runs.
#[derive(Clone, Copy)]
pub(super) struct Memory(CUDA_MEMCPY3D);

// SAFETY: the contract of memcpy nodes: host memory is valid whenever the graph runs, from whatever thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// An executable graph.
pub(super) struct Exec {
    /// Nodes in an order that the edges allow.
    steps: Mutex<Vec<Step>>,
    /// The latest launch: the next one stands behind it.
    last: Mutex<Option<Mark>>,
}

struct Step {
    node: usize,
    work: Arc<Task>,
    enabled: AtomicBool,
}

/// What a step does once bodies of conditional nodes are in order too.
enum Task {
    Plain(Work),
    Conditional(u64, u32, Vec<Vec<Task>>),
}

/// The value of a conditional handle: what launches begin with, and what it is now.
#[derive(Clone, Copy)]
pub(super) struct Condition {
    default: Option<u32>,
    pub(super) value: u32,
}

fn ordered(state: &State, graph: &Graph) -> Option<Vec<usize>> {
    let mut waiting: HashMap<usize, usize> = graph.nodes.iter().map(|node| (*node, 0)).collect();
    for (_, to) in &graph.edges {
        *waiting.get_mut(to)? += 1;
    }
    let mut order = Vec::with_capacity(graph.nodes.len());
    let mut ready: Vec<usize> = graph.nodes.iter().rev().copied().collect();
    ready.retain(|node| waiting.get(node) == Some(&0));
    while let Some(node) = ready.pop() {
        order.push(node);
        for (from, to) in &graph.edges {
            if *from == node {
                let left = waiting.get_mut(to)?;
                *left -= 1;
                if *left == 0 {
                    ready.push(*to);
                }
            }
        }
    }
    let whole = order.iter().all(|node| state.nodes.contains_key(node));
    (order.len() == graph.nodes.len() && whole).then_some(order)
}

fn task(state: &State, work: &Work) -> Option<Task> {
    let Work::Conditional(handle, kind, bodies) = work else {
        return Some(Task::Plain(work.clone()));
    };
    let body = |graph: &usize| {
        let graph = state.graphs.get(graph)?;
        let order = ordered(state, graph)?;
        let tasks = order.iter();
        tasks
            .map(|node| task(state, &state.nodes.get(node)?.work))
            .collect()
    };
    let bodies: Option<Vec<_>> = bodies.iter().map(body).collect();
    Some(Task::Conditional(*handle, *kind, bodies?))
}

fn unlocked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most turns of a while node: a test that goes wrong ends.
const TURNS: usize = 100_000;

fn carry_out(state: &Mutex<State>, task: &Task) -> CUresult {
    match task {
        Task::Plain(work) => run(state, work),
        Task::Conditional(handle, kind, bodies) => {
            let value = || {
                unlocked(state)
                    .conditions
                    .get(handle)
                    .map_or(0, |it| it.value)
            };
            let go = |at: usize| {
                let tasks = bodies.get(at).into_iter().flatten();
                let failed = tasks.map(|task| carry_out(state, task));
                failed
                    .into_iter()
                    .find(|status| *status != CUDA_SUCCESS)
                    .unwrap_or(CUDA_SUCCESS)
            };
            match *kind {
                CU_GRAPH_COND_TYPE_WHILE => {
                    for _ in 0..TURNS {
                        if value() == 0 {
                            return CUDA_SUCCESS;
                        }
                        match go(0) {
                            CUDA_SUCCESS => {}
                            failed => return failed,
                        }
                    }
                    CUDA_ERROR_LAUNCH_TIMEOUT
                }
                CU_GRAPH_COND_TYPE_SWITCH => go(value() as usize),
                _ => go(usize::from(value() == 0)),
            }
        }
    }
}

fn run(state: &Mutex<State>, work: &Work) -> CUresult {
    match work {
        Work::Kernel(kernel, arguments) => kernel.run(state, arguments),
        Work::Copy(copy) => copy_box(state, &copy.0),
        Work::Fill(fill) => {
            let element = fill.value.to_le_bytes();
            let pattern = element.get(..fill.elementSize as usize).unwrap_or(&element);
            let row = pattern.repeat(fill.width);
            let rows = 0..fill.height.max(1) as u64;
            let failed = rows.map(|row_at| {
                let at = fill.dst + row_at * fill.pitch as u64;
                device::write(state, at, &row)
            });
            failed
                .into_iter()
                .find(|status| *status != CUDA_SUCCESS)
                .unwrap_or(CUDA_SUCCESS)
        }
        Work::Host(function, data) => {
            if let Some(function) = function {
                // SAFETY: the contract of host nodes: the function may be called with its data when the graph comes to it.
                unsafe { function(std::ptr::with_exposed_provenance_mut(*data)) };
            }
            CUDA_SUCCESS
        }
        Work::Operations(operations) => {
            for operation in operations {
                let status = operate(state, operation);
                if status != CUDA_SUCCESS {
                    return status;
                }
            }
            CUDA_SUCCESS
        }
        _ => CUDA_SUCCESS,
    }
}

fn copy_box(state: &Mutex<State>, copy: &CUDA_MEMCPY3D) -> CUresult {
    let at = |x: usize, y: usize, z: usize, pitch: usize, height: usize, row: (usize, usize)| {
        (((z + row.1) * height + y + row.0) * pitch + x) as u64
    };
    let mut bytes = vec![0_u8; copy.WidthInBytes];
    for row in (0..copy.Depth).flat_map(|z| (0..copy.Height).map(move |y| (y, z))) {
        let from = at(
            copy.srcXInBytes,
            copy.srcY,
            copy.srcZ,
            copy.srcPitch,
            copy.srcHeight,
            row,
        );
        let to = at(
            copy.dstXInBytes,
            copy.dstY,
            copy.dstZ,
            copy.dstPitch,
            copy.dstHeight,
            row,
        );
        let status = match copy.srcMemoryType {
            CU_MEMORYTYPE_HOST => {
                let source = copy.srcHost.cast::<u8>().wrapping_add(from as usize);
                // SAFETY: the contract of memcpy nodes: the box is readable.
                unsafe { bytes.as_mut_ptr().copy_from(source, copy.WidthInBytes) };
                CUDA_SUCCESS
            }
            _ => {
                let place = Place(bytes.as_mut_ptr());
                device::read(state, copy.srcDevice + from, copy.WidthInBytes, place)
            }
        };
        if status != CUDA_SUCCESS {
            return status;
        }
        let status = match copy.dstMemoryType {
            CU_MEMORYTYPE_HOST => {
                let target = copy.dstHost.cast::<u8>().wrapping_add(to as usize);
                // SAFETY: as above: writable.
                unsafe { target.copy_from(bytes.as_ptr(), copy.WidthInBytes) };
                CUDA_SUCCESS
            }
            _ => device::write(state, copy.dstDevice + to, &bytes),
        };
        if status != CUDA_SUCCESS {
            return status;
        }
    }
    CUDA_SUCCESS
}

pub(super) fn copied(copy: *const CUDA_MEMCPY3D) -> Result<Work, CUresult> {
    // SAFETY: the contract of the call: a description of a copy.
    let copy = unsafe { *copy };
    let known = |kind| matches!(kind, CU_MEMORYTYPE_HOST | CU_MEMORYTYPE_DEVICE);
    if !known(copy.srcMemoryType) || !known(copy.dstMemoryType) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Work::Copy(Memory(copy)))
}

pub(super) fn host(params: *const CUDA_HOST_NODE_PARAMS) -> Work {
    // SAFETY: the contract of the call: a description of a function.
    let params = unsafe { *params };
    Work::Host(params.r#fn, params.userData.expose_provenance())
}

fn result(done: Result<(), CUresult>) -> CUresult {
    done.err().unwrap_or(CUDA_SUCCESS)
}

impl NullCuda {
    pub(super) fn kernel_work(
        &self,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> Result<Work, CUresult> {
        // SAFETY: the contract of the call: a description of a launch.
        let params = unsafe { *params };
        let handle = match params.func.addr() {
            0 => params.kern.addr(),
            function => function,
        };
        let kernel = self.kernel(handle)?;
        let threads = u64::from(params.blockDimX) * u64::from(params.blockDimY);
        if params.gridDimX == 0 || threads == 0 || threads > 1024 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the contract of the call.
        let arguments = unsafe { device::arguments(&kernel, params.kernelParams, params.extra) };
        Ok(Work::Kernel(
            kernel,
            arguments.ok_or(CUDA_ERROR_INVALID_VALUE)?,
        ))
    }

    pub(super) fn operations(&self, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Work {
        // SAFETY: the contract of the call: a description of operations.
        let params = unsafe { *params };
        let one = |index: usize| {
            let place = params.paramArray.cast::<[u64; 6]>().wrapping_add(index);
            // SAFETY: as above: as many as it says.
            unsafe { place.read() }
        };
        Work::Operations((0..params.count as usize).map(one).collect())
    }

    pub(super) fn add(
        &self,
        place: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        work: Result<Work, CUresult>,
    ) -> CUresult {
        let work = match work {
            Ok(work) => work,
            Err(status) => return status,
        };
        let handle = self.fresh();
        let mut state = self.lock();
        let Some(known) = state.graphs.get_mut(&graph.addr()) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        for index in 0..count {
            // SAFETY: the contract of the call: so many dependencies.
            let before = unsafe { dependencies.wrapping_add(index).read() }.addr();
            if !known.nodes.contains(&before) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            known.edges.insert((before, handle));
        }
        known.nodes.push(handle);
        let graph = graph.addr();
        state.nodes.insert(handle, Node { graph, work });
        put(place, std::ptr::without_provenance_mut(handle));
        CUDA_SUCCESS
    }

    pub(super) fn replace(&self, node: CUgraphNode, work: Result<Work, CUresult>) -> CUresult {
        result(work.and_then(|work| {
            let mut state = self.lock();
            let node = state.nodes.get_mut(&node.addr());
            node.ok_or(CUDA_ERROR_INVALID_VALUE)?.work = work;
            Ok(())
        }))
    }

    pub(super) fn replace_in(
        &self,
        exec: CUgraphExec,
        node: CUgraphNode,
        work: Result<Work, CUresult>,
    ) -> CUresult {
        result(work.and_then(|work| {
            let exec = self.executable(exec)?;
            let mut steps = exec.steps.lock().unwrap_or_else(PoisonError::into_inner);
            let step = steps.iter_mut().find(|step| step.node == node.addr());
            let step = step.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let same = matches!(
                (&*step.work, &work),
                (Task::Plain(Work::Kernel(..)), Work::Kernel(..))
                    | (Task::Plain(Work::Copy(_)), Work::Copy(_))
                    | (Task::Plain(Work::Fill(_)), Work::Fill(_))
                    | (Task::Plain(Work::Host(..)), Work::Host(..))
                    | (Task::Plain(Work::Record(_)), Work::Record(_))
                    | (Task::Plain(Work::Wait(_)), Work::Wait(_))
                    | (Task::Plain(Work::Operations(_)), Work::Operations(_))
            );
            if !same {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            step.work = Arc::new(Task::Plain(work));
            Ok(())
        }))
    }

    pub(super) fn executable(&self, exec: CUgraphExec) -> Result<Arc<Exec>, CUresult> {
        let found = self.lock().execs.get(&exec.addr()).cloned();
        found.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(super) fn create_graph(&self) -> usize {
        let handle = self.fresh();
        self.lock().graphs.insert(handle, Graph::default());
        handle
    }

    pub(super) fn end_graph(&self, graph: usize) -> CUresult {
        let mut state = self.lock();
        let Some(ended) = state.graphs.remove(&graph) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        state.nodes.retain(|_, node| node.graph != graph);
        for address in &ended.memory {
            state.memory.remove(address);
        }
        for condition in &ended.conditions {
            state.conditions.remove(condition);
        }
        drop(state);
        for body in ended.bodies {
            self.end_graph(body);
        }
        CUDA_SUCCESS
    }

    /// An edge between two nodes comes or goes.
    fn tie(&self, graph: CUgraph, from: CUgraphNode, to: CUgraphNode, comes: bool) -> CUresult {
        let (edge, mut state) = ((from.addr(), to.addr()), self.lock());
        let Some(graph) = state.graphs.get_mut(&graph.addr()) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let both = [edge.0, edge.1];
        if !both.iter().all(|node| graph.nodes.contains(node)) || edge.0 == edge.1 {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let changed = match comes {
            true => graph.edges.insert(edge),
            false => graph.edges.remove(&edge),
        };
        match changed {
            true => CUDA_SUCCESS,
            false => CUDA_ERROR_INVALID_VALUE,
        }
    }

    pub(super) fn tie_all(
        &self,
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        count: usize,
        comes: bool,
    ) -> CUresult {
        for index in 0..count {
            // SAFETY: the contract of the call: so many nodes.
            let from = unsafe { from.wrapping_add(index).read() };
            // SAFETY: as above.
            let to = unsafe { to.wrapping_add(index).read() };
            let status = self.tie(graph, from, to, comes);
            if status != CUDA_SUCCESS {
                return status;
            }
        }
        CUDA_SUCCESS
    }

    pub(super) fn end_node(&self, node: usize) -> CUresult {
        let mut state = self.lock();
        let Some(ended) = state.nodes.remove(&node) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        if let Some(graph) = state.graphs.get_mut(&ended.graph) {
            graph.nodes.retain(|other| *other != node);
            graph
                .edges
                .retain(|(from, to)| *from != node && *to != node);
        }
        CUDA_SUCCESS
    }

    pub(super) fn enable(&self, exec: CUgraphExec, node: CUgraphNode, on: bool) -> CUresult {
        result(self.executable(exec).and_then(|exec| {
            let steps = exec.steps.lock().unwrap_or_else(PoisonError::into_inner);
            let step = steps.iter().find(|step| step.node == node.addr());
            let step = step.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            step.enabled.store(on, Ordering::Release);
            Ok(())
        }))
    }

    pub(super) fn create_condition(
        &self,
        handle: *mut CUgraphConditionalHandle,
        graph: CUgraph,
        default: u32,
        flags: u32,
    ) -> CUresult {
        let number = self.fresh() as u64;
        let mut state = self.lock();
        let Some(graph) = state.graphs.get_mut(&graph.addr()) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        graph.conditions.push(number);
        let condition = Condition {
            default: (flags & CU_GRAPH_COND_ASSIGN_DEFAULT != 0).then_some(default),
            value: 0,
        };
        state.conditions.insert(number, condition);
        put(handle, number);
        CUDA_SUCCESS
    }

    pub(super) fn instantiate(&self, place: *mut CUgraphExec, graph: CUgraph) -> CUresult {
        let handle = self.fresh();
        let mut state = self.lock();
        let Some(known) = state.graphs.get(&graph.addr()) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let Some(order) = ordered(&state, known) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let mut steps = Vec::new();
        for node in order {
            let work = state.nodes.get(&node).map(|node| &node.work);
            let Some(work) = work.and_then(|work| task(&state, work)) else {
                return CUDA_ERROR_INVALID_VALUE;
            };
            let enabled = AtomicBool::new(true);
            steps.push(Step {
                node,
                work: Arc::new(work),
                enabled,
            });
        }
        let (steps, last) = (Mutex::new(steps), Mutex::new(None));
        state.execs.insert(handle, Arc::new(Exec { steps, last }));
        put(place, std::ptr::without_provenance_mut(handle));
        CUDA_SUCCESS
    }

    pub(super) fn launch_graph(&self, exec: CUgraphExec, stream: CUstream) -> CUresult {
        let (exec, queue) = match (self.executable(exec), self.queue(stream)) {
            (Ok(exec), Ok(queue)) => (exec, queue),
            (Err(status), _) | (_, Err(status)) => return status,
        };
        let failed = self.streams.status();
        if failed != CUDA_SUCCESS {
            return failed;
        }
        let (mut waits, mut records) = (Vec::new(), Vec::new());
        // What nodes do now: a later change is for later launches.
        let tasks: Vec<Arc<Task>> = {
            let steps = exec.steps.lock().unwrap_or_else(PoisonError::into_inner);
            for step in steps.iter() {
                match &*step.work {
                    Task::Plain(Work::Wait(event)) => waits.push(Arc::clone(event)),
                    Task::Plain(Work::Record(event)) => records.push(Arc::clone(event)),
                    _ => {}
                }
            }
            let enabled = steps.iter().filter(|it| it.enabled.load(Ordering::Acquire));
            enabled.map(|step| Arc::clone(&step.work)).collect()
        };
        for event in waits {
            self.streams.wait_event(&queue, &event);
        }
        let (state, streams) = (Arc::clone(&self.state), Arc::clone(&self.streams));
        let work = move || {
            for condition in unlocked(&state).conditions.values_mut() {
                condition.value = condition.default.unwrap_or(condition.value);
            }
            for task in &tasks {
                let status = carry_out(&state, task);
                if status != CUDA_SUCCESS {
                    return streams.note(status);
                }
            }
        };
        let mut last = exec.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.streams.push_behind(&queue, &mut last, Box::new(work));
        drop(last);
        for event in records {
            self.streams.record(&queue, &event);
        }
        CUDA_SUCCESS
    }

    pub(super) fn add_conditional(
        &self,
        place: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *mut CUgraphNodeParams,
    ) -> CUresult {
        // SAFETY: the contract of the call: parameters that are read and written.
        let params = unsafe { &mut *params };
        if params.r#type != CU_GRAPH_NODE_TYPE_CONDITIONAL {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        // SAFETY: the kind says that it is this.
        let mut asked = unsafe { params.either.conditional };
        if !self.lock().conditions.contains_key(&asked.handle) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let bodies: Vec<usize> = (0..asked.size).map(|_| self.create_graph()).collect();
        let told = bodies.iter();
        let told: Box<[CUgraph]> = told
            .map(|body| std::ptr::without_provenance_mut(*body))
            .collect();
        // The driver's own array: it lives as long as the process.
        asked.phGraph_out = Box::leak(told).as_mut_ptr();
        params.either.conditional = asked;
        if let Some(graph) = self.lock().graphs.get_mut(&graph.addr()) {
            graph.bodies.extend(&bodies);
        }
        let work = Work::Conditional(asked.handle, asked.r#type, bodies);
        self.add(place, graph, dependencies, count, Ok(work))
    }

    pub(super) fn add_allocation(
        &self,
        place: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> CUresult {
        // SAFETY: the contract of the call: parameters that are read and written.
        let params = unsafe { &mut *params };
        let memory = Allocation::new(params.bytesize);
        params.dptr = memory.address();
        let mut state = self.lock();
        if let Some(graph) = state.graphs.get_mut(&graph.addr()) {
            graph.memory.push(params.dptr);
            state.memory.insert(params.dptr, memory);
        }
        drop(state);
        self.add(place, graph, dependencies, count, Ok(Work::Empty))
    }
}

/// The methods of the contract: an `impl` cannot be in two files.
macro_rules! methods {
    () => {
        unsafe fn cuGraphCreate(&self, graph: *mut CUgraph, _flags: u32) -> CUresult {
            put(graph, std::ptr::without_provenance_mut(self.create_graph()));
            CUDA_SUCCESS
        }
        unsafe fn cuGraphDestroy(&self, graph: CUgraph) -> CUresult {
            self.end_graph(graph.addr())
        }
        unsafe fn cuGraphAddEmptyNode(
            &self,
            node: *mut CUgraphNode,
            graph: CUgraph,
            before: *const CUgraphNode,
            count: usize,
        ) -> CUresult {
            self.add(node, graph, before, count, Ok(Work::Empty))
        }
        unsafe fn cuGraphAddKernelNode_v2(
            &self,
            node: *mut CUgraphNode,
            graph: CUgraph,
            before: *const CUgraphNode,
            count: usize,
            params: *const CUDA_KERNEL_NODE_PARAMS,
        ) -> CUresult {
            self.add(node, graph, before, count, self.kernel_work(params))
        }
        unsafe fn cuGraphKernelNodeSetAttribute(
            &self,
            _node: CUgraphNode,
            _attribute: CUkernelNodeAttrID,
            _value: *const CUlaunchAttributeValue,
        ) -> CUresult {
            CUDA_SUCCESS
        }
        unsafe fn cuGraphAddMemcpyNode(
            &self,
            node: *mut CUgraphNode,
            graph: CUgraph,
            before: *const CUgraphNode,
            count: usize,
            copy: *const CUDA_MEMCPY3D,
            _context: CUcontext,
        ) -> CUresult {
            self.add(node, graph, before, count, graph::copied(copy))
        }
        unsafe fn cuGraphAddMemsetNode(
            &self,
            node: *mut CUgraphNode,
            graph: CUgraph,
            before: *const CUgraphNode,
            count: usize,
            fill: *const CUDA_MEMSET_NODE_PARAMS,
            _context: CUcontext,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            self.add(node, graph, before, count, Ok(Work::Fill(unsafe { *fill })))
        }
        unsafe fn cuGraphAddHostNode(
            &self,
            node: *mut CUgraphNode,
            graph: CUgraph,
            before: *const CUgraphNode,
            count: usize,
            params: *const CUDA_HOST_NODE_PARAMS,
        ) -> CUresult {
            self.add(node, graph, before, count, Ok(graph::host(params)))
        }
        unsafe fn cuGraphAddEventRecordNode(
            &self,
            node: *mut CUgraphNode,
            graph: CUgraph,
            before: *const CUgraphNode,
            count: usize,
            event: CUevent,
        ) -> CUresult {
            self.add(
                node,
                graph,
                before,
                count,
                self.event(event).map(Work::Record),
            )
        }
        unsafe fn cuGraphAddEventWaitNode(
            &self,
            node: *mut CUgraphNode,
            graph: CUgraph,
            before: *const CUgraphNode,
            count: usize,
            event: CUevent,
        ) -> CUresult {
            self.add(
                node,
                graph,
                before,
                count,
                self.event(event).map(Work::Wait),
            )
        }
        unsafe fn cuGraphAddBatchMemOpNode(
            &self,
            node: *mut CUgraphNode,
            graph: CUgraph,
            before: *const CUgraphNode,
            count: usize,
            params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
        ) -> CUresult {
            self.add(node, graph, before, count, Ok(self.operations(params)))
        }
        unsafe fn cuGraphAddMemAllocNode(
            &self,
            node: *mut CUgraphNode,
            graph: CUgraph,
            before: *const CUgraphNode,
            count: usize,
            params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
        ) -> CUresult {
            self.add_allocation(node, graph, before, count, params)
        }
        unsafe fn cuGraphAddMemFreeNode(
            &self,
            node: *mut CUgraphNode,
            graph: CUgraph,
            before: *const CUgraphNode,
            count: usize,
            _address: CUdeviceptr,
        ) -> CUresult {
            self.add(node, graph, before, count, Ok(Work::Free))
        }
        unsafe fn cuGraphAddNode_v2(
            &self,
            node: *mut CUgraphNode,
            graph: CUgraph,
            before: *const CUgraphNode,
            _edges: *const CUgraphEdgeData,
            count: usize,
            params: *mut CUgraphNodeParams,
        ) -> CUresult {
            self.add_conditional(node, graph, before, count, params)
        }
        unsafe fn cuGraphConditionalHandleCreate(
            &self,
            handle: *mut CUgraphConditionalHandle,
            graph: CUgraph,
            _context: CUcontext,
            default: u32,
            flags: u32,
        ) -> CUresult {
            self.create_condition(handle, graph, default, flags)
        }
        unsafe fn cuGraphDestroyNode(&self, node: CUgraphNode) -> CUresult {
            self.end_node(node.addr())
        }
        unsafe fn cuGraphAddDependencies(
            &self,
            graph: CUgraph,
            from: *const CUgraphNode,
            to: *const CUgraphNode,
            count: usize,
        ) -> CUresult {
            self.tie_all(graph, from, to, count, true)
        }
        unsafe fn cuGraphAddDependencies_v2(
            &self,
            graph: CUgraph,
            from: *const CUgraphNode,
            to: *const CUgraphNode,
            _data: *const CUgraphEdgeData,
            count: usize,
        ) -> CUresult {
            self.tie_all(graph, from, to, count, true)
        }
        unsafe fn cuGraphRemoveDependencies(
            &self,
            graph: CUgraph,
            from: *const CUgraphNode,
            to: *const CUgraphNode,
            count: usize,
        ) -> CUresult {
            self.tie_all(graph, from, to, count, false)
        }
        unsafe fn cuGraphKernelNodeSetParams_v2(
            &self,
            node: CUgraphNode,
            params: *const CUDA_KERNEL_NODE_PARAMS,
        ) -> CUresult {
            self.replace(node, self.kernel_work(params))
        }
        unsafe fn cuGraphMemcpyNodeSetParams(
            &self,
            node: CUgraphNode,
            copy: *const CUDA_MEMCPY3D,
        ) -> CUresult {
            self.replace(node, graph::copied(copy))
        }
        unsafe fn cuGraphMemsetNodeSetParams(
            &self,
            node: CUgraphNode,
            fill: *const CUDA_MEMSET_NODE_PARAMS,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            self.replace(node, Ok(Work::Fill(unsafe { *fill })))
        }
        unsafe fn cuGraphHostNodeSetParams(
            &self,
            node: CUgraphNode,
            params: *const CUDA_HOST_NODE_PARAMS,
        ) -> CUresult {
            self.replace(node, Ok(graph::host(params)))
        }
        unsafe fn cuGraphEventRecordNodeSetEvent(
            &self,
            node: CUgraphNode,
            event: CUevent,
        ) -> CUresult {
            self.replace(node, self.event(event).map(Work::Record))
        }
        unsafe fn cuGraphEventWaitNodeSetEvent(
            &self,
            node: CUgraphNode,
            event: CUevent,
        ) -> CUresult {
            self.replace(node, self.event(event).map(Work::Wait))
        }
        unsafe fn cuGraphBatchMemOpNodeSetParams(
            &self,
            node: CUgraphNode,
            params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
        ) -> CUresult {
            self.replace(node, Ok(self.operations(params)))
        }
        unsafe fn cuGraphExecKernelNodeSetParams_v2(
            &self,
            exec: CUgraphExec,
            node: CUgraphNode,
            params: *const CUDA_KERNEL_NODE_PARAMS,
        ) -> CUresult {
            self.replace_in(exec, node, self.kernel_work(params))
        }
        unsafe fn cuGraphExecMemcpyNodeSetParams(
            &self,
            exec: CUgraphExec,
            node: CUgraphNode,
            copy: *const CUDA_MEMCPY3D,
            _context: CUcontext,
        ) -> CUresult {
            self.replace_in(exec, node, graph::copied(copy))
        }
        unsafe fn cuGraphExecMemsetNodeSetParams(
            &self,
            exec: CUgraphExec,
            node: CUgraphNode,
            fill: *const CUDA_MEMSET_NODE_PARAMS,
            _context: CUcontext,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            self.replace_in(exec, node, Ok(Work::Fill(unsafe { *fill })))
        }
        unsafe fn cuGraphExecHostNodeSetParams(
            &self,
            exec: CUgraphExec,
            node: CUgraphNode,
            params: *const CUDA_HOST_NODE_PARAMS,
        ) -> CUresult {
            self.replace_in(exec, node, Ok(graph::host(params)))
        }
        unsafe fn cuGraphExecEventRecordNodeSetEvent(
            &self,
            exec: CUgraphExec,
            node: CUgraphNode,
            event: CUevent,
        ) -> CUresult {
            self.replace_in(exec, node, self.event(event).map(Work::Record))
        }
        unsafe fn cuGraphExecEventWaitNodeSetEvent(
            &self,
            exec: CUgraphExec,
            node: CUgraphNode,
            event: CUevent,
        ) -> CUresult {
            self.replace_in(exec, node, self.event(event).map(Work::Wait))
        }
        unsafe fn cuGraphExecBatchMemOpNodeSetParams(
            &self,
            exec: CUgraphExec,
            node: CUgraphNode,
            params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
        ) -> CUresult {
            self.replace_in(exec, node, Ok(self.operations(params)))
        }
        unsafe fn cuGraphNodeSetEnabled(
            &self,
            exec: CUgraphExec,
            node: CUgraphNode,
            enabled: u32,
        ) -> CUresult {
            self.enable(exec, node, enabled != 0)
        }
        unsafe fn cuGraphInstantiateWithParams(
            &self,
            exec: *mut CUgraphExec,
            graph: CUgraph,
            params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
        ) -> CUresult {
            let made = self.instantiate(exec, graph);
            let said = if made == CUDA_SUCCESS {
                CUDA_GRAPH_INSTANTIATE_SUCCESS
            } else {
                CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
            };
            // SAFETY: the contract of the call: what is told goes there.
            unsafe { (*params).result_out = said };
            made
        }
        unsafe fn cuGraphUpload(&self, exec: CUgraphExec, _stream: CUstream) -> CUresult {
            self.executable(exec).err().unwrap_or(CUDA_SUCCESS)
        }
        unsafe fn cuGraphLaunch(&self, exec: CUgraphExec, stream: CUstream) -> CUresult {
            self.launch_graph(exec, stream)
        }
        unsafe fn cuGraphExecDestroy(&self, exec: CUgraphExec) -> CUresult {
            match self.lock().execs.remove(&exec.addr()) {
                Some(_) => CUDA_SUCCESS,
                None => CUDA_ERROR_INVALID_VALUE,
            }
        }
    };
}
pub(super) use methods;
