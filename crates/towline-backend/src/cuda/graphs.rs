//! Graphs of devices that are ours: which nodes there are, what stands before what, and what an executable graph carries out in which
//! order. What a node does is the device's own ([`GraphDevice::Work`]); [`graph_calls`](crate::graph_calls) makes the contract's methods
//! of it.
//!
//! A launch carries out one node after another, in an order that the edges allow: branches of a graph may run at once on a GPU, and
//! need not.

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::discriminant;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::*;

/// A device whose graphs are kept here.
pub trait GraphDevice: Sized {
    /// What a node does. What is to end with the node, and with executable graphs made of it, is dropped with this.
    type Work: Clone + Send + Sync + 'static;
    /// A place in a stream.
    type Place: Send + 'static;

    /// Does something with the graphs, which nobody else does meanwhile.
    fn graphs<T>(&self, go: impl FnOnce(&mut Graphs<Self>) -> T) -> T;

    /// A number for a handle.
    fn fresh(&self) -> usize;

    /// A node that does nothing.
    fn empty_work(&self) -> Self::Work;

    /// A launch.
    ///
    /// # Safety
    ///
    /// The contract of the call with these parameters; so for the others.
    unsafe fn kernel_work(
        &self,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> Result<Self::Work, CUresult>;

    /// Takes an attribute of a launch.
    ///
    /// # Safety
    ///
    /// As above.
    unsafe fn set_kernel_attribute(
        &self,
        work: &mut Self::Work,
        attribute: CUkernelNodeAttrID,
        value: *const CUlaunchAttributeValue,
    ) -> Result<(), CUresult>;

    /// Other parameters come to a node that does `before`: what of it is no parameter stays.
    fn inherit(&self, _before: &Self::Work, _work: &mut Self::Work) -> Result<(), CUresult> {
        Ok(())
    }

    /// A copy.
    ///
    /// # Safety
    ///
    /// As above.
    unsafe fn copy_work(&self, copy: *const CUDA_MEMCPY3D) -> Result<Self::Work, CUresult>;

    /// A fill.
    ///
    /// # Safety
    ///
    /// As above.
    unsafe fn fill_work(
        &self,
        fill: *const CUDA_MEMSET_NODE_PARAMS,
    ) -> Result<Self::Work, CUresult>;

    /// A function of the host's.
    ///
    /// # Safety
    ///
    /// As above.
    unsafe fn host_work(
        &self,
        params: *const CUDA_HOST_NODE_PARAMS,
    ) -> Result<Self::Work, CUresult>;

    /// An event is recorded.
    fn record_work(&self, event: CUevent) -> Result<Self::Work, CUresult>;

    /// An event is waited for.
    fn wait_work(&self, event: CUevent) -> Result<Self::Work, CUresult>;

    /// Values are written and waited for.
    ///
    /// # Safety
    ///
    /// As above.
    unsafe fn operations_work(
        &self,
        params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> Result<Self::Work, CUresult>;

    /// Memory is allocated: at which address is told in the parameters.
    ///
    /// # Safety
    ///
    /// As above.
    unsafe fn allocation_work(
        &self,
        params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> Result<Self::Work, CUresult>;

    /// Memory is given back.
    fn free_work(&self, address: CUdeviceptr) -> Result<Self::Work, CUresult>;

    /// Makes a conditional handle, and what lives as long as its graph does.
    fn condition(&self, default: Option<u32>) -> Result<(u64, Arc<dyn Kept>), CUresult>;

    /// Launches what an executable graph does now.
    fn launch(&self, exec: &Arc<Exec<Self>>, stream: CUstream) -> Result<(), CUresult>;
}

/// What a graph keeps until it ends, and executable graphs made of it do.
pub trait Kept: Any + Send + Sync {
    /// A launch begins.
    fn begin(&self);
}

/// All graphs of a device.
pub struct Graphs<D: GraphDevice> {
    graphs: HashMap<usize, Graph>,
    nodes: HashMap<usize, Node<D::Work>>,
    execs: HashMap<usize, Arc<Exec<D>>>,
    /// Conditional handles by number, and the graph of each.
    conditions: HashMap<u64, usize>,
}

impl<D: GraphDevice> Default for Graphs<D> {
    fn default() -> Self {
        Self {
            graphs: HashMap::new(),
            nodes: HashMap::new(),
            execs: HashMap::new(),
            conditions: HashMap::new(),
        }
    }
}

#[derive(Default)]
struct Graph {
    /// Nodes in the order in which they came.
    nodes: Vec<usize>,
    edges: HashSet<(usize, usize)>,
    /// Bodies of conditional nodes.
    bodies: Vec<usize>,
    kept: Vec<Arc<dyn Kept>>,
}

struct Node<W> {
    graph: usize,
    content: Content<W>,
}

#[derive(Clone)]
enum Content<W> {
    Plain(W),
    /// Handle, kind, and the graphs of its bodies.
    Conditional(u64, CUgraphConditionalNodeType, Vec<usize>),
}

/// What a step of a launch does.
pub enum Task<W> {
    /// What a node says.
    Plain(W),
    /// One of the bodies, or none of them, as the value of a handle says.
    Conditional(u64, CUgraphConditionalNodeType, Vec<Vec<Task<W>>>),
}

/// An executable graph.
pub struct Exec<D: GraphDevice> {
    /// In an order that the edges allow.
    steps: Mutex<Vec<Step<D::Work>>>,
    kept: Vec<Arc<dyn Kept>>,
    /// Where the latest launch ends: the next one stands behind it.
    last: Mutex<Option<D::Place>>,
}

struct Step<W> {
    node: usize,
    task: Arc<Task<W>>,
    enabled: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<W> Task<W> {
    /// Carries it out: `run` does what a node says, `value` tells that of a handle, and `may_go_on` is asked before each turn of a body.
    pub fn carry_out(
        &self,
        run: &dyn Fn(&W) -> Result<(), CUresult>,
        value: &dyn Fn(u64) -> u32,
        may_go_on: &dyn Fn() -> Result<(), CUresult>,
    ) -> Result<(), CUresult> {
        let (handle, kind, bodies) = match self {
            Self::Plain(work) => return run(work),
            Self::Conditional(handle, kind, bodies) => (*handle, *kind, bodies),
        };
        let turn = |body: usize| {
            may_go_on()?;
            let tasks = bodies.get(body).into_iter().flatten();
            for task in tasks {
                task.carry_out(run, value, may_go_on)?;
            }
            Ok(())
        };
        match kind {
            CU_GRAPH_COND_TYPE_WHILE => {
                while value(handle) != 0 {
                    turn(0)?;
                }
                Ok(())
            }
            CU_GRAPH_COND_TYPE_SWITCH => turn(value(handle) as usize),
            _ => turn(usize::from(value(handle) == 0)),
        }
    }
}

impl<D: GraphDevice> Graphs<D> {
    /// Graphs and executable graphs that live; bodies of nodes are not counted.
    pub fn live(&self) -> usize {
        let bodies: usize = self.graphs.values().map(|graph| graph.bodies.len()).sum();
        self.graphs.len() - bodies + self.execs.len()
    }

    fn graph(&mut self, graph: usize) -> Result<&mut Graph, CUresult> {
        let found = self.graphs.get_mut(&graph);
        found.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn node(&mut self, node: usize) -> Result<&mut Node<D::Work>, CUresult> {
        let found = self.nodes.get_mut(&node);
        found.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn is_in(&self, graph: usize, node: usize) -> bool {
        let known = self.nodes.get(&node);
        known.is_some_and(|node| node.graph == graph)
    }

    fn exec(&self, exec: usize) -> Result<Arc<Exec<D>>, CUresult> {
        let found = self.execs.get(&exec).cloned();
        found.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn destroy(&mut self, graph: usize) -> Result<(), CUresult> {
        let ended = self.graphs.remove(&graph).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        for node in &ended.nodes {
            self.nodes.remove(node);
        }
        self.conditions.retain(|_, home| *home != graph);
        for body in ended.bodies {
            self.destroy(body)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        graph: usize,
        before: &[usize],
        node: usize,
        content: Content<D::Work>,
    ) -> Result<(), CUresult> {
        if !before.iter().all(|before| self.is_in(graph, *before)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let known = self.graph(graph)?;
        known
            .edges
            .extend(before.iter().map(|before| (*before, node)));
        known.nodes.push(node);
        self.nodes.insert(node, Node { graph, content });
        Ok(())
    }

    fn end_node(&mut self, node: usize) -> Result<(), CUresult> {
        let ended = self.nodes.remove(&node).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let graph = self.graph(ended.graph)?;
        graph.nodes.retain(|other| *other != node);
        graph
            .edges
            .retain(|(from, to)| *from != node && *to != node);
        if let Content::Conditional(_, _, bodies) = ended.content {
            graph.bodies.retain(|body| !bodies.contains(body));
            for body in bodies {
                self.destroy(body)?;
            }
        }
        Ok(())
    }

    /// An edge comes or goes.
    fn tie(&mut self, graph: usize, edge: (usize, usize), comes: bool) -> Result<(), CUresult> {
        let known = self.is_in(graph, edge.0) && self.is_in(graph, edge.1);
        let graph = self.graph(graph)?;
        let changed = known
            && edge.0 != edge.1
            && match comes {
                true => graph.edges.insert(edge),
                false => graph.edges.remove(&edge),
            };
        changed.then_some(()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// A graph's nodes in an order that its edges allow; `None` when there is none.
    fn ordered(graph: &Graph) -> Option<Vec<usize>> {
        let mut waiting: HashMap<usize, usize> = HashMap::new();
        let mut behind: HashMap<usize, Vec<usize>> = HashMap::new();
        for (from, to) in &graph.edges {
            *waiting.entry(*to).or_default() += 1;
            behind.entry(*from).or_default().push(*to);
        }
        let first = graph.nodes.iter().copied();
        let mut ready: VecDeque<usize> = first.filter(|node| !waiting.contains_key(node)).collect();
        let mut order = Vec::with_capacity(graph.nodes.len());
        while let Some(node) = ready.pop_front() {
            order.push(node);
            for next in behind.get(&node).into_iter().flatten() {
                let left = waiting.get_mut(next)?;
                *left -= 1;
                if *left == 0 {
                    ready.push_back(*next);
                }
            }
        }
        (order.len() == graph.nodes.len()).then_some(order)
    }

    /// What the nodes of a graph do, in order, and what is kept for them.
    fn tasks(
        &self,
        graph: usize,
        kept: &mut Vec<Arc<dyn Kept>>,
    ) -> Option<Vec<(usize, Task<D::Work>)>> {
        let graph = self.graphs.get(&graph)?;
        kept.extend(graph.kept.iter().cloned());
        let order = Self::ordered(graph)?;
        let mut tasks = Vec::with_capacity(order.len());
        for node in order {
            let task = match &self.nodes.get(&node)?.content {
                Content::Plain(work) => Task::Plain(work.clone()),
                Content::Conditional(handle, kind, graphs) => {
                    let mut bodies = Vec::with_capacity(graphs.len());
                    for body in graphs {
                        let tasks = self.tasks(*body, kept)?;
                        bodies.push(tasks.into_iter().map(|(_, task)| task).collect());
                    }
                    Task::Conditional(*handle, *kind, bodies)
                }
            };
            tasks.push((node, task));
        }
        Some(tasks)
    }

    fn instantiate(&mut self, graph: usize, exec: usize) -> Result<(), CUresult> {
        let mut kept = Vec::new();
        let tasks = self.tasks(graph, &mut kept);
        let tasks = tasks.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // As the driver has it: memory that a graph allocates is one executable graph's at a time.
        let taken = |one: &Arc<dyn Kept>| {
            let mut all = self.execs.values().flat_map(|exec| &exec.kept);
            all.any(|other| Arc::ptr_eq(one, other))
        };
        if kept.iter().any(taken) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let steps = tasks.into_iter().map(|(node, task)| Step {
            node,
            task: Arc::new(task),
            enabled: AtomicBool::new(true),
        });
        let exec_of = Exec {
            steps: Mutex::new(steps.collect()),
            kept,
            last: Mutex::default(),
        };
        self.execs.insert(exec, Arc::new(exec_of));
        Ok(())
    }
}

impl<D: GraphDevice> Exec<D> {
    /// What a launch does now, in order; a later change is for later launches.
    pub fn tasks(&self) -> Vec<Arc<Task<D::Work>>> {
        let steps = lock(&self.steps);
        let enabled = steps.iter().filter(|it| it.enabled.load(Ordering::Acquire));
        enabled.map(|step| Arc::clone(&step.task)).collect()
    }

    /// What is to be told when a launch begins.
    pub fn kept(&self) -> Vec<Arc<dyn Kept>> {
        self.kept.clone()
    }

    /// The place where the latest launch ends. Held while another one is enqueued.
    pub fn last(&self) -> MutexGuard<'_, Option<D::Place>> {
        lock(&self.last)
    }

    fn set(&self, device: &D, node: usize, mut work: D::Work) -> Result<(), CUresult> {
        let mut steps = lock(&self.steps);
        let step = steps.iter_mut().find(|step| step.node == node);
        let step = step.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        match &*step.task {
            Task::Plain(before) if discriminant(before) == discriminant(&work) => {
                device.inherit(before, &mut work)?;
                step.task = Arc::new(Task::Plain(work));
                Ok(())
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Does what a graph of the same nodes does now.
    fn become_like(&self, tasks: Vec<(usize, Task<D::Work>)>) -> Result<(), CUresult> {
        let mut steps = lock(&self.steps);
        let mut tasks: HashMap<usize, Task<D::Work>> = tasks.into_iter().collect();
        let nodes: HashSet<usize> = steps.iter().map(|step| step.node).collect();
        if nodes != tasks.keys().copied().collect() {
            return Err(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        }
        for step in steps.iter_mut() {
            if let Some(task) = tasks.remove(&step.node) {
                step.task = Arc::new(task);
            }
        }
        Ok(())
    }

    fn enable(&self, node: usize, on: bool) -> Result<(), CUresult> {
        let steps = lock(&self.steps);
        let step = steps.iter().find(|step| step.node == node);
        let step = step.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        step.enabled.store(on, Ordering::Release);
        Ok(())
    }
}

/// What [`graph_calls`](crate::graph_calls) is made of: handles and lists of the caller's, and outcomes.
pub mod calls {
    use super::*;

    /// The status of an outcome.
    pub fn status(outcome: Result<(), CUresult>) -> CUresult {
        outcome.err().unwrap_or(CUDA_SUCCESS)
    }

    fn handle<T>(number: usize) -> *mut T {
        std::ptr::without_provenance_mut(number)
    }

    fn put<T>(place: *mut T, value: T) {
        if !place.is_null() {
            // SAFETY: the contract of every call here: places for answers are writable.
            unsafe { place.write(value) };
        }
    }

    /// So many nodes of the caller's.
    fn nodes(list: *const CUgraphNode, count: usize) -> Vec<usize> {
        let one = |index: usize| {
            // SAFETY: the contract of the call: so many nodes.
            unsafe { list.wrapping_add(index).read() }.addr()
        };
        (0..count).map(one).collect()
    }

    /// Makes a graph.
    ///
    /// # Safety
    ///
    /// The contract of the driver's call: what pointers name is readable, or writable, as it says.
    pub unsafe fn create<D: GraphDevice>(device: &D, place: *mut CUgraph) -> CUresult {
        let graph = device.fresh();
        device.graphs(|all| all.graphs.insert(graph, Graph::default()));
        put(place, handle(graph));
        CUDA_SUCCESS
    }

    /// Ends a graph.
    pub fn destroy<D: GraphDevice>(device: &D, graph: CUgraph) -> CUresult {
        status(device.graphs(|all| all.destroy(graph.addr())))
    }

    /// Adds a node.
    ///
    /// # Safety
    ///
    /// The contract of the driver's call: what pointers name is readable, or writable, as it says.
    pub unsafe fn add<D: GraphDevice>(
        device: &D,
        place: *mut CUgraphNode,
        graph: CUgraph,
        (before, count): (*const CUgraphNode, usize),
        work: Result<D::Work, CUresult>,
    ) -> CUresult {
        status(work.and_then(|work| {
            let (node, before) = (device.fresh(), nodes(before, count));
            let content = Content::Plain(work);
            device.graphs(|all| all.add(graph.addr(), &before, node, content))?;
            put(place, handle(node));
            Ok(())
        }))
    }

    /// Adds a conditional node with graphs for its bodies.
    ///
    /// # Safety
    ///
    /// The contract of the driver's call: what pointers name is readable, or writable, as it says.
    pub unsafe fn add_conditional<D: GraphDevice>(
        device: &D,
        place: *mut CUgraphNode,
        graph: CUgraph,
        (before, count): (*const CUgraphNode, usize),
        params: *mut CUgraphNodeParams,
    ) -> CUresult {
        // SAFETY: the contract of the call: parameters that are read and written.
        let Some(params) = (unsafe { params.as_mut() }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        if params.r#type != CU_GRAPH_NODE_TYPE_CONDITIONAL {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        // SAFETY: the kind says that it is this.
        let mut asked = unsafe { params.either.conditional };
        if asked.r#type > CU_GRAPH_COND_TYPE_SWITCH || asked.size == 0 {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let node = device.fresh();
        let bodies: Vec<usize> = (0..asked.size).map(|_| device.fresh()).collect();
        let (graph, before) = (graph.addr(), nodes(before, count));
        let content = Content::Conditional(asked.handle, asked.r#type, bodies.clone());
        let added = device.graphs(|all| {
            if !all.conditions.contains_key(&asked.handle) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            all.add(graph, &before, node, content)?;
            for body in &bodies {
                all.graphs.insert(*body, Graph::default());
            }
            all.graph(graph)?.bodies.extend(&bodies);
            Ok(())
        });
        if let Err(status) = added {
            return status;
        }
        let told: Box<[CUgraph]> = bodies.iter().map(|body| handle(*body)).collect();
        // The driver's own array: it lives as long as the process.
        asked.phGraph_out = Box::leak(told).as_mut_ptr();
        params.either.conditional = asked;
        put(place, handle(node));
        CUDA_SUCCESS
    }

    /// Makes a conditional handle of a graph.
    ///
    /// # Safety
    ///
    /// The contract of the driver's call: what pointers name is readable, or writable, as it says.
    pub unsafe fn create_condition<D: GraphDevice>(
        device: &D,
        place: *mut CUgraphConditionalHandle,
        graph: CUgraph,
        default: u32,
        flags: u32,
    ) -> CUresult {
        let default = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT != 0).then_some(default);
        status(device.condition(default).and_then(|(number, kept)| {
            device.graphs(|all| {
                all.graph(graph.addr())?.kept.push(kept);
                all.conditions.insert(number, graph.addr());
                Ok::<(), CUresult>(())
            })?;
            put(place, number);
            Ok(())
        }))
    }

    /// Ends a node.
    pub fn end_node<D: GraphDevice>(device: &D, node: CUgraphNode) -> CUresult {
        status(device.graphs(|all| all.end_node(node.addr())))
    }

    /// Edges come or go.
    ///
    /// # Safety
    ///
    /// The contract of the driver's call: what pointers name is readable, or writable, as it says.
    pub unsafe fn tie<D: GraphDevice>(
        device: &D,
        graph: CUgraph,
        (from, to): (*const CUgraphNode, *const CUgraphNode),
        count: usize,
        comes: bool,
    ) -> CUresult {
        let edges = nodes(from, count).into_iter().zip(nodes(to, count));
        let edges: Vec<_> = edges.collect();
        status(device.graphs(|all| {
            let mut edges = edges.into_iter();
            edges.try_for_each(|edge| all.tie(graph.addr(), edge, comes))
        }))
    }

    /// Replaces what a node does.
    pub fn set<D: GraphDevice>(
        device: &D,
        node: CUgraphNode,
        work: Result<D::Work, CUresult>,
    ) -> CUresult {
        status(work.and_then(|mut work| {
            device.graphs(|all| {
                let content = &mut all.node(node.addr())?.content;
                if let Content::Plain(before) = content {
                    device.inherit(before, &mut work)?;
                }
                *content = Content::Plain(work);
                Ok(())
            })
        }))
    }

    /// Changes what a node does.
    pub fn change<D: GraphDevice>(
        device: &D,
        node: CUgraphNode,
        change: impl FnOnce(&mut D::Work) -> Result<(), CUresult>,
    ) -> CUresult {
        status(
            device.graphs(|all| match &mut all.node(node.addr())?.content {
                Content::Plain(work) => change(work),
                Content::Conditional(..) => Err(CUDA_ERROR_INVALID_VALUE),
            }),
        )
    }

    /// Replaces what a node of an executable graph does.
    pub fn set_in<D: GraphDevice>(
        device: &D,
        exec: CUgraphExec,
        node: CUgraphNode,
        work: Result<D::Work, CUresult>,
    ) -> CUresult {
        status(work.and_then(|work| {
            let exec = device.graphs(|all| all.exec(exec.addr()))?;
            exec.set(device, node.addr(), work)
        }))
    }

    /// Has an executable graph become like the graph that it was made of.
    pub fn update<D: GraphDevice>(device: &D, exec: CUgraphExec, graph: CUgraph) -> CUresult {
        status(device.graphs(|all| {
            let tasks = all.tasks(graph.addr(), &mut Vec::new());
            let tasks = tasks.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            all.exec(exec.addr())?.become_like(tasks)
        }))
    }

    /// Switches a node of an executable graph on or off.
    pub fn enable<D: GraphDevice>(
        device: &D,
        exec: CUgraphExec,
        node: CUgraphNode,
        on: u32,
    ) -> CUresult {
        let exec = device.graphs(|all| all.exec(exec.addr()));
        status(exec.and_then(|exec| exec.enable(node.addr(), on != 0)))
    }

    /// Makes an executable graph.
    ///
    /// # Safety
    ///
    /// The contract of the driver's call: what pointers name is readable, or writable, as it says.
    pub unsafe fn instantiate<D: GraphDevice>(
        device: &D,
        place: *mut CUgraphExec,
        graph: CUgraph,
        params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) -> CUresult {
        let exec = device.fresh();
        let made = device.graphs(|all| all.instantiate(graph.addr(), exec));
        // SAFETY: the contract of the call.
        if let Some(params) = unsafe { params.as_mut() } {
            params.result_out = match made {
                Ok(()) => CUDA_GRAPH_INSTANTIATE_SUCCESS,
                Err(_) => CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE,
            };
        }
        if made.is_ok() {
            put(place, handle(exec));
        }
        status(made)
    }

    /// Whether there is an executable graph.
    pub fn upload<D: GraphDevice>(device: &D, exec: CUgraphExec) -> CUresult {
        status(device.graphs(|all| all.exec(exec.addr())).map(drop))
    }

    /// Launches an executable graph.
    pub fn launch<D: GraphDevice>(device: &D, exec: CUgraphExec, stream: CUstream) -> CUresult {
        let exec = device.graphs(|all| all.exec(exec.addr()));
        status(exec.and_then(|exec| device.launch(&exec, stream)))
    }

    /// Ends an executable graph; launches that came before are carried out.
    pub fn end_exec<D: GraphDevice>(device: &D, exec: CUgraphExec) -> CUresult {
        let ended = device.graphs(|all| all.execs.remove(&exec.addr()));
        status(ended.map(drop).ok_or(CUDA_ERROR_INVALID_VALUE))
    }
}

/// The contract's methods for graphs of a [`GraphDevice`]: an `impl` cannot be in two files.
#[macro_export]
macro_rules! graph_calls {
    () => {
        unsafe fn cuGraphCreate(
            &self,
            graph: *mut $crate::cuda::CUgraph,
            _flags: u32,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::create(self, graph) }
        }
        unsafe fn cuGraphDestroy(&self, graph: $crate::cuda::CUgraph) -> $crate::cuda::CUresult {
            $crate::cuda::graphs::calls::destroy(self, graph)
        }
        unsafe fn cuGraphAddEmptyNode(
            &self,
            node: *mut $crate::cuda::CUgraphNode,
            graph: $crate::cuda::CUgraph,
            before: *const $crate::cuda::CUgraphNode,
            count: usize,
        ) -> $crate::cuda::CUresult {
            let work = Ok($crate::cuda::graphs::GraphDevice::empty_work(self));
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::add(self, node, graph, (before, count), work) }
        }
        unsafe fn cuGraphAddKernelNode_v2(
            &self,
            node: *mut $crate::cuda::CUgraphNode,
            graph: $crate::cuda::CUgraph,
            before: *const $crate::cuda::CUgraphNode,
            count: usize,
            params: *const $crate::cuda::CUDA_KERNEL_NODE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::kernel_work(self, params) };
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::add(self, node, graph, (before, count), work) }
        }
        unsafe fn cuGraphAddMemcpyNode(
            &self,
            node: *mut $crate::cuda::CUgraphNode,
            graph: $crate::cuda::CUgraph,
            before: *const $crate::cuda::CUgraphNode,
            count: usize,
            copy: *const $crate::cuda::CUDA_MEMCPY3D,
            _context: $crate::cuda::CUcontext,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::copy_work(self, copy) };
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::add(self, node, graph, (before, count), work) }
        }
        unsafe fn cuGraphAddMemsetNode(
            &self,
            node: *mut $crate::cuda::CUgraphNode,
            graph: $crate::cuda::CUgraph,
            before: *const $crate::cuda::CUgraphNode,
            count: usize,
            fill: *const $crate::cuda::CUDA_MEMSET_NODE_PARAMS,
            _context: $crate::cuda::CUcontext,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::fill_work(self, fill) };
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::add(self, node, graph, (before, count), work) }
        }
        unsafe fn cuGraphAddHostNode(
            &self,
            node: *mut $crate::cuda::CUgraphNode,
            graph: $crate::cuda::CUgraph,
            before: *const $crate::cuda::CUgraphNode,
            count: usize,
            params: *const $crate::cuda::CUDA_HOST_NODE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::host_work(self, params) };
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::add(self, node, graph, (before, count), work) }
        }
        unsafe fn cuGraphAddEventRecordNode(
            &self,
            node: *mut $crate::cuda::CUgraphNode,
            graph: $crate::cuda::CUgraph,
            before: *const $crate::cuda::CUgraphNode,
            count: usize,
            event: $crate::cuda::CUevent,
        ) -> $crate::cuda::CUresult {
            let work = $crate::cuda::graphs::GraphDevice::record_work(self, event);
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::add(self, node, graph, (before, count), work) }
        }
        unsafe fn cuGraphAddEventWaitNode(
            &self,
            node: *mut $crate::cuda::CUgraphNode,
            graph: $crate::cuda::CUgraph,
            before: *const $crate::cuda::CUgraphNode,
            count: usize,
            event: $crate::cuda::CUevent,
        ) -> $crate::cuda::CUresult {
            let work = $crate::cuda::graphs::GraphDevice::wait_work(self, event);
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::add(self, node, graph, (before, count), work) }
        }
        unsafe fn cuGraphAddBatchMemOpNode(
            &self,
            node: *mut $crate::cuda::CUgraphNode,
            graph: $crate::cuda::CUgraph,
            before: *const $crate::cuda::CUgraphNode,
            count: usize,
            params: *const $crate::cuda::CUDA_BATCH_MEM_OP_NODE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::operations_work(self, params) };
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::add(self, node, graph, (before, count), work) }
        }
        unsafe fn cuGraphKernelNodeSetAttribute(
            &self,
            node: $crate::cuda::CUgraphNode,
            attribute: $crate::cuda::CUkernelNodeAttrID,
            value: *const $crate::cuda::CUlaunchAttributeValue,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::graphs::calls::change(self, node, |work| {
                // SAFETY: the caller's contract.
                unsafe {
                    $crate::cuda::graphs::GraphDevice::set_kernel_attribute(
                        self, work, attribute, value,
                    )
                }
            })
        }
        unsafe fn cuGraphAddMemAllocNode(
            &self,
            node: *mut $crate::cuda::CUgraphNode,
            graph: $crate::cuda::CUgraph,
            before: *const $crate::cuda::CUgraphNode,
            count: usize,
            params: *mut $crate::cuda::CUDA_MEM_ALLOC_NODE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::allocation_work(self, params) };
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::add(self, node, graph, (before, count), work) }
        }
        unsafe fn cuGraphAddMemFreeNode(
            &self,
            node: *mut $crate::cuda::CUgraphNode,
            graph: $crate::cuda::CUgraph,
            before: *const $crate::cuda::CUgraphNode,
            count: usize,
            address: $crate::cuda::CUdeviceptr,
        ) -> $crate::cuda::CUresult {
            let work = $crate::cuda::graphs::GraphDevice::free_work(self, address);
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::add(self, node, graph, (before, count), work) }
        }
        unsafe fn cuGraphAddNode_v2(
            &self,
            node: *mut $crate::cuda::CUgraphNode,
            graph: $crate::cuda::CUgraph,
            before: *const $crate::cuda::CUgraphNode,
            _edges: *const $crate::cuda::CUgraphEdgeData,
            count: usize,
            params: *mut $crate::cuda::CUgraphNodeParams,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe {
                $crate::cuda::graphs::calls::add_conditional(
                    self,
                    node,
                    graph,
                    (before, count),
                    params,
                )
            }
        }
        unsafe fn cuGraphConditionalHandleCreate(
            &self,
            handle: *mut $crate::cuda::CUgraphConditionalHandle,
            graph: $crate::cuda::CUgraph,
            _context: $crate::cuda::CUcontext,
            default: u32,
            flags: u32,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe {
                $crate::cuda::graphs::calls::create_condition(self, handle, graph, default, flags)
            }
        }
        unsafe fn cuGraphDestroyNode(
            &self,
            node: $crate::cuda::CUgraphNode,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::graphs::calls::end_node(self, node)
        }
        unsafe fn cuGraphAddDependencies(
            &self,
            graph: $crate::cuda::CUgraph,
            from: *const $crate::cuda::CUgraphNode,
            to: *const $crate::cuda::CUgraphNode,
            count: usize,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::tie(self, graph, (from, to), count, true) }
        }
        unsafe fn cuGraphAddDependencies_v2(
            &self,
            graph: $crate::cuda::CUgraph,
            from: *const $crate::cuda::CUgraphNode,
            to: *const $crate::cuda::CUgraphNode,
            _data: *const $crate::cuda::CUgraphEdgeData,
            count: usize,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::tie(self, graph, (from, to), count, true) }
        }
        unsafe fn cuGraphRemoveDependencies(
            &self,
            graph: $crate::cuda::CUgraph,
            from: *const $crate::cuda::CUgraphNode,
            to: *const $crate::cuda::CUgraphNode,
            count: usize,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::tie(self, graph, (from, to), count, false) }
        }
        unsafe fn cuGraphRemoveDependencies_v2(
            &self,
            graph: $crate::cuda::CUgraph,
            from: *const $crate::cuda::CUgraphNode,
            to: *const $crate::cuda::CUgraphNode,
            _data: *const $crate::cuda::CUgraphEdgeData,
            count: usize,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::tie(self, graph, (from, to), count, false) }
        }
        unsafe fn cuGraphKernelNodeSetParams_v2(
            &self,
            node: $crate::cuda::CUgraphNode,
            params: *const $crate::cuda::CUDA_KERNEL_NODE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::kernel_work(self, params) };
            $crate::cuda::graphs::calls::set(self, node, work)
        }
        unsafe fn cuGraphExecKernelNodeSetParams_v2(
            &self,
            exec: $crate::cuda::CUgraphExec,
            node: $crate::cuda::CUgraphNode,
            params: *const $crate::cuda::CUDA_KERNEL_NODE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::kernel_work(self, params) };
            $crate::cuda::graphs::calls::set_in(self, exec, node, work)
        }
        unsafe fn cuGraphMemcpyNodeSetParams(
            &self,
            node: $crate::cuda::CUgraphNode,
            copy: *const $crate::cuda::CUDA_MEMCPY3D,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::copy_work(self, copy) };
            $crate::cuda::graphs::calls::set(self, node, work)
        }
        unsafe fn cuGraphExecMemcpyNodeSetParams(
            &self,
            exec: $crate::cuda::CUgraphExec,
            node: $crate::cuda::CUgraphNode,
            copy: *const $crate::cuda::CUDA_MEMCPY3D,
            _context: $crate::cuda::CUcontext,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::copy_work(self, copy) };
            $crate::cuda::graphs::calls::set_in(self, exec, node, work)
        }
        unsafe fn cuGraphMemsetNodeSetParams(
            &self,
            node: $crate::cuda::CUgraphNode,
            fill: *const $crate::cuda::CUDA_MEMSET_NODE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::fill_work(self, fill) };
            $crate::cuda::graphs::calls::set(self, node, work)
        }
        unsafe fn cuGraphExecMemsetNodeSetParams(
            &self,
            exec: $crate::cuda::CUgraphExec,
            node: $crate::cuda::CUgraphNode,
            fill: *const $crate::cuda::CUDA_MEMSET_NODE_PARAMS,
            _context: $crate::cuda::CUcontext,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::fill_work(self, fill) };
            $crate::cuda::graphs::calls::set_in(self, exec, node, work)
        }
        unsafe fn cuGraphHostNodeSetParams(
            &self,
            node: $crate::cuda::CUgraphNode,
            params: *const $crate::cuda::CUDA_HOST_NODE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::host_work(self, params) };
            $crate::cuda::graphs::calls::set(self, node, work)
        }
        unsafe fn cuGraphExecHostNodeSetParams(
            &self,
            exec: $crate::cuda::CUgraphExec,
            node: $crate::cuda::CUgraphNode,
            params: *const $crate::cuda::CUDA_HOST_NODE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::host_work(self, params) };
            $crate::cuda::graphs::calls::set_in(self, exec, node, work)
        }
        unsafe fn cuGraphEventRecordNodeSetEvent(
            &self,
            node: $crate::cuda::CUgraphNode,
            event: $crate::cuda::CUevent,
        ) -> $crate::cuda::CUresult {
            let work = $crate::cuda::graphs::GraphDevice::record_work(self, event);
            $crate::cuda::graphs::calls::set(self, node, work)
        }
        unsafe fn cuGraphExecEventRecordNodeSetEvent(
            &self,
            exec: $crate::cuda::CUgraphExec,
            node: $crate::cuda::CUgraphNode,
            event: $crate::cuda::CUevent,
        ) -> $crate::cuda::CUresult {
            let work = $crate::cuda::graphs::GraphDevice::record_work(self, event);
            $crate::cuda::graphs::calls::set_in(self, exec, node, work)
        }
        unsafe fn cuGraphEventWaitNodeSetEvent(
            &self,
            node: $crate::cuda::CUgraphNode,
            event: $crate::cuda::CUevent,
        ) -> $crate::cuda::CUresult {
            let work = $crate::cuda::graphs::GraphDevice::wait_work(self, event);
            $crate::cuda::graphs::calls::set(self, node, work)
        }
        unsafe fn cuGraphExecEventWaitNodeSetEvent(
            &self,
            exec: $crate::cuda::CUgraphExec,
            node: $crate::cuda::CUgraphNode,
            event: $crate::cuda::CUevent,
        ) -> $crate::cuda::CUresult {
            let work = $crate::cuda::graphs::GraphDevice::wait_work(self, event);
            $crate::cuda::graphs::calls::set_in(self, exec, node, work)
        }
        unsafe fn cuGraphBatchMemOpNodeSetParams(
            &self,
            node: $crate::cuda::CUgraphNode,
            params: *const $crate::cuda::CUDA_BATCH_MEM_OP_NODE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::operations_work(self, params) };
            $crate::cuda::graphs::calls::set(self, node, work)
        }
        unsafe fn cuGraphExecBatchMemOpNodeSetParams(
            &self,
            exec: $crate::cuda::CUgraphExec,
            node: $crate::cuda::CUgraphNode,
            params: *const $crate::cuda::CUDA_BATCH_MEM_OP_NODE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            let work = unsafe { $crate::cuda::graphs::GraphDevice::operations_work(self, params) };
            $crate::cuda::graphs::calls::set_in(self, exec, node, work)
        }
        unsafe fn cuGraphNodeSetEnabled(
            &self,
            exec: $crate::cuda::CUgraphExec,
            node: $crate::cuda::CUgraphNode,
            on: u32,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::graphs::calls::enable(self, exec, node, on)
        }
        unsafe fn cuGraphInstantiateWithParams(
            &self,
            exec: *mut $crate::cuda::CUgraphExec,
            graph: $crate::cuda::CUgraph,
            params: *mut $crate::cuda::CUDA_GRAPH_INSTANTIATE_PARAMS,
        ) -> $crate::cuda::CUresult {
            // SAFETY: the caller's contract.
            unsafe { $crate::cuda::graphs::calls::instantiate(self, exec, graph, params) }
        }
        unsafe fn cuGraphExecUpdate_v2(
            &self,
            exec: $crate::cuda::CUgraphExec,
            graph: $crate::cuda::CUgraph,
            _told: *mut $crate::cuda::CUgraphExecUpdateResultInfo,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::graphs::calls::update(self, exec, graph)
        }
        unsafe fn cuGraphUpload(
            &self,
            exec: $crate::cuda::CUgraphExec,
            _stream: $crate::cuda::CUstream,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::graphs::calls::upload(self, exec)
        }
        unsafe fn cuGraphLaunch(
            &self,
            exec: $crate::cuda::CUgraphExec,
            stream: $crate::cuda::CUstream,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::graphs::calls::launch(self, exec, stream)
        }
        unsafe fn cuGraphExecDestroy(
            &self,
            exec: $crate::cuda::CUgraphExec,
        ) -> $crate::cuda::CUresult {
            $crate::cuda::graphs::calls::end_exec(self, exec)
        }
    };
}
