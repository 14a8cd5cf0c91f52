//! What graphs are: nodes, what each does, and what keeps them in order. Nothing here leaves the process.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use towline_backend::cuda::*;
use towline_client::cuda::Session;
use towline_wire::cuda::graph as described;

use super::capture::Captures;
use super::exec::Exec;
use super::user::{Held, Objects};

/// The bytes of `CUgraphEdgeData`.
pub(crate) type EdgeData = [u8; 8];
/// An edge without data: the later node waits for all of the earlier.
pub(crate) const WHOLE: EdgeData = [0; 8];

/// What a node stands behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dep {
    pub(crate) node: u64,
    pub(crate) data: EdgeData,
}

impl Dep {
    pub(crate) fn whole(node: u64) -> Self {
        Self { node, data: WHOLE }
    }
}

/// A structure of the API's, whose pointers are the application's business or the driver's own.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Given<T>(pub(crate) T);

// SAFETY: the pointers in it are used as the API says, by whatever thread that is.
unsafe impl<T> Send for Given<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Given<T> {}

/// Where rows of the application's memory lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostRows {
    pub(crate) start: usize,
    pub(crate) pitch: usize,
    pub(crate) slice: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

impl HostRows {
    /// All that lies between the first byte and the last.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        let last = self.slice * (self.depth - 1) + self.pitch * (self.height - 1) + self.width;
        self.start..self.start.saturating_add(last)
    }

    fn meets(&self, other: &Self) -> bool {
        let (one, two) = (self.range(), other.range());
        one.start < two.end && two.start < one.end
    }
}

/// What the client does when a launch comes to a node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deed {
    /// Calls a function of the application.
    Function(CUhostFn, usize),
    /// Sends what lies there.
    Fetch(HostRows),
    /// The same, where a step before it sees to it that what was brought there is in place.
    FetchSettled(HostRows),
    /// Takes what comes there.
    Take(HostRows),
    /// Copies from rows to rows.
    Move(HostRows, HostRows),
    /// Nothing: what came before must be in place first.
    Settle,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum Content {
    Kernel(Box<Kernel>),
    Copy(Box<Copy>),
    Fill(described::Fill),
    Host(CUhostFn, usize),
    /// A graph of the node's own.
    Child(u64),
    Empty,
    Wait(u64),
    Record(u64),
    Operations {
        context: u64,
        flags: u32,
        words: Vec<u64>,
    },
    Alloc(Box<Alloc>),
    Free(u64),
    Conditional(Box<Conditional>),
    /// Collectives of a context's device, as the server is told of them. To the application they are a graph of the node's own, whose nodes it
    /// cannot ask for.
    Collective(u64, Vec<u64>),
}

/// A launch.
#[derive(Clone)]
pub(crate) struct Kernel {
    pub(crate) work: described::Kernel,
    /// Where each parameter begins in the block.
    pub(crate) offsets: Arc<[u32]>,
    /// The addresses of the parameters, as the application was told of them.
    pub(crate) told: Vec<usize>,
    /// The function or kernel as the application named it.
    pub(crate) named: u64,
}

/// A copy.
#[derive(Clone)]
pub(crate) struct Copy {
    pub(crate) given: Given<CUDA_MEMCPY3D>,
    pub(crate) work: described::Work,
    pub(crate) deed: Option<Deed>,
}

/// An allocation.
#[derive(Clone)]
pub(crate) struct Alloc {
    pub(crate) given: Given<CUDA_MEM_ALLOC_NODE_PARAMS>,
    pub(crate) access: Arc<[Given<CUmemAccessDesc>]>,
}

/// A conditional node.
#[derive(Clone)]
pub(crate) struct Conditional {
    pub(crate) handle: u64,
    pub(crate) kind: u32,
    pub(crate) context: u64,
    pub(crate) bodies: Vec<u64>,
    /// The array of bodies that the application was told of.
    pub(crate) told: Arc<[Given<CUgraph>]>,
}

impl Content {
    pub(crate) fn kind(&self) -> CUgraphNodeType {
        match self {
            Self::Kernel(_) => CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Copy(_) => CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Fill(_) => CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Host(..) => CU_GRAPH_NODE_TYPE_HOST,
            Self::Child(_) | Self::Collective(..) => CU_GRAPH_NODE_TYPE_GRAPH,
            Self::Empty => CU_GRAPH_NODE_TYPE_EMPTY,
            Self::Wait(_) => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Self::Record(_) => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Self::Operations { .. } => CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            Self::Alloc(_) => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::Free(_) => CU_GRAPH_NODE_TYPE_MEM_FREE,
            Self::Conditional(_) => CU_GRAPH_NODE_TYPE_CONDITIONAL,
        }
    }

    /// The context in which a device does the node's work.
    pub(crate) fn device_context(&self) -> Option<u64> {
        match self {
            Self::Kernel(kernel) => Some(kernel.work.context),
            Self::Copy(copy) => match &copy.work {
                described::Work::Copy(work) => Some(work.context),
                _ => None,
            },
            Self::Fill(fill) => Some(fill.context),
            _ => None,
        }
    }

    /// Refuses to free other memory than this does.
    pub(crate) fn frees(&self, other: u64) -> Result<(), CUgraphExecUpdateResult> {
        match self {
            Self::Free(own) if *own == other => Ok(()),
            _ => Err(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED),
        }
    }

    /// Handles of a server's objects that the node names.
    fn names(&self) -> SmallVec<[u64; 3]> {
        match self {
            Self::Kernel(kernel) => smallvec![kernel.work.context],
            Self::Copy(copy) => match &copy.work {
                described::Work::Copy(work) => {
                    let mut names = smallvec![work.context];
                    for place in [work.source.place, work.destination.place] {
                        if let described::Place::Array(array) = place {
                            names.push(array);
                        }
                    }
                    names
                }
                _ => smallvec![],
            },
            Self::Fill(fill) => smallvec![fill.context],
            Self::Wait(event) | Self::Record(event) => smallvec![*event],
            Self::Operations { context, .. } => smallvec![*context],
            Self::Conditional(conditional) => smallvec![conditional.context],
            Self::Collective(context, _) => smallvec![*context],
            Self::Host(..) | Self::Child(_) | Self::Empty | Self::Alloc(_) | Self::Free(_) => {
                smallvec![]
            }
        }
    }

    /// Whether no body of a condition may have the node.
    fn is_barred_from_bodies(&self) -> bool {
        matches!(
            self,
            Self::Wait(_)
                | Self::Record(_)
                | Self::Operations { .. }
                | Self::Alloc(_)
                | Self::Free(_)
                | Self::Collective(..)
        )
    }

    /// The session whose objects the node names, if it names any. A graph is one server's: no node names objects of two.
    pub(crate) fn session(&self) -> Result<Option<u8>, CUresult> {
        let names = self.names();
        let mut sessions = names.iter().map(|name| Session::index_of(*name));
        let first = sessions.next();
        match sessions.all(|session| Some(session) == first) {
            true => Ok(first),
            false => Err(CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    /// Refuses a node that names objects of another session than its graph's.
    pub(crate) fn check_session(&self, session: u8) -> Result<(), CUresult> {
        match self.session()? {
            Some(own) if own != session => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Ok(()),
        }
    }

    /// What the server does for the node, and the client; for graphs in graphs there is no one thing.
    pub(crate) fn work(&self) -> (described::Work, Option<Deed>) {
        match self {
            Self::Kernel(kernel) => (described::Work::Kernel(kernel.work.clone()), None),
            Self::Copy(copy) => (copy.work.clone(), copy.deed),
            Self::Fill(fill) => (described::Work::Fill(*fill), None),
            Self::Host(function, data) => (
                described::Work::Call,
                Some(Deed::Function(*function, *data)),
            ),
            Self::Wait(event) => (described::Work::Wait(*event), None),
            Self::Record(event) => (described::Work::Record(*event), None),
            Self::Operations {
                context,
                flags,
                words,
            } => {
                let (context, flags, words) = (*context, *flags, words.clone());
                let work = described::Work::Operations {
                    context,
                    flags,
                    words,
                };
                (work, None)
            }
            Self::Alloc(_) => (described::Work::Alloc, None),
            Self::Free(address) => (described::Work::Free(*address), None),
            Self::Collective(_, words) => (described::Work::Collective(words.clone()), None),
            Self::Empty | Self::Child(_) | Self::Conditional(_) => (described::Work::Empty, None),
        }
    }
}

/// A node.
pub(crate) struct Node {
    pub(crate) graph: u64,
    pub(crate) local: u32,
    pub(crate) content: Content,
    pub(crate) before: Vec<Dep>,
    pub(crate) after: Vec<u64>,
}

/// A graph.
pub(crate) struct Graph {
    pub(crate) session: u8,
    pub(crate) id: u32,
    /// In the order in which they came.
    pub(crate) nodes: Vec<u64>,
    /// Those that stand behind none, in the order in which they came to that. The driver tells the last first (seen with 580.159).
    pub(crate) roots: Vec<u64>,
    next_local: u32,
    /// The node that has this graph.
    pub(crate) owner: Option<u64>,
    /// It lives on the server, and the context that it was anchored in.
    pub(crate) anchor: Option<u64>,
    /// It has nodes that allocate or free memory.
    pub(crate) allocates: bool,
    /// It was to have one that frees what is no graph's memory, which the driver counts nearly as one (seen with driver 580.159).
    pub(crate) freed_nothing: bool,
    /// Copies of nodes, by what they are copies of.
    origins: HashMap<u64, u64>,
    /// References to objects of the application.
    pub(crate) objects: Held,
}

impl Graph {
    /// Nothing can be taken out of it, and it is copied nowhere.
    fn is_fixed(&self) -> bool {
        self.allocates || self.freed_nothing
    }
}

/// All graphs of the process.
#[derive(Default)]
pub(crate) struct Graphs {
    pub(crate) graphs: HashMap<u64, Graph>,
    pub(crate) nodes: HashMap<u64, Node>,
    pub(crate) execs: HashMap<u64, Arc<Exec>>,
    pub(crate) captures: Captures,
    pub(crate) objects: Objects,
    /// Memory that launches have allocated, and nothing has freed.
    pub(crate) left: HashSet<u64>,
    /// The graph of each handle of a condition.
    pub(crate) conditions: HashMap<u64, u64>,
    next_id: u32,
    next_number: u64,
}

/// Most graphs of a server: fewer than it ends the session at.
const SERVER_GRAPHS: usize = (1 << 20) - (1 << 12);

impl Graphs {
    /// Refuses another graph that is to be the server's.
    pub(crate) fn expect_room(&self) -> Result<(), CUresult> {
        // Most are the client's alone: they are looked at only where they could be too many.
        let full = self.execs.len() + self.graphs.len() >= SERVER_GRAPHS && {
            let anchored = self.graphs.values().filter(|graph| graph.anchor.is_some());
            self.execs.len() + anchored.count() >= SERVER_GRAPHS
        };
        match full {
            true => Err(CUDA_ERROR_OUT_OF_MEMORY),
            false => Ok(()),
        }
    }
}

/// Handles of the process's own numbers, which no server mints.
const OWN_NUMBERS: u64 = 0x7c4c << 48;

/// A step of an executable graph.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) number: u64,
    pub(crate) content: Content,
    pub(crate) work: described::Work,
    pub(crate) deed: Option<Deed>,
}

/// A graph with those in it written out.
#[derive(Clone, Default)]
pub(crate) struct Flat {
    pub(crate) steps: Vec<Step>,
    pub(crate) edges: Vec<described::Edge>,
    /// Steps of the graph of each node that has one, which follow the node's own.
    pub(crate) children: HashMap<u64, usize>,
    /// Steps at the end that are no node's.
    pub(crate) guards: usize,
    /// References of the graphs in it, each with the place of its graph's first step, or of the node whose body it is.
    pub(crate) held: Vec<(usize, Arc<Held>)>,
}

impl Flat {
    /// What the server is told.
    pub(crate) fn description(&self) -> described::Graph {
        let node = |step: &Step| described::Node {
            number: step.number,
            work: step.work.clone(),
        };
        described::Graph {
            nodes: self.steps.iter().map(node).collect(),
            edges: self.edges.clone(),
        }
    }

    fn step(&mut self, number: u64, content: Content) -> u32 {
        let (work, deed) = content.work();
        self.steps.push(Step {
            number,
            content,
            work,
            deed,
        });
        (self.steps.len() - 1) as u32
    }

    fn edge(&mut self, from: u32, to: u32, data: EdgeData) {
        self.edges.push(described::Edge { from, to, data });
    }
}

impl Graphs {
    /// A number of a kind, for what lives here.
    pub(crate) fn number(&mut self, tag: u8) -> u64 {
        self.next_number += 1;
        OWN_NUMBERS | u64::from(tag) << 40 | self.next_number
    }

    pub(crate) fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn create(&mut self, session: u8, owner: Option<u64>) -> u64 {
        let number = self.number(GraphHandle::TAG);
        let graph = Graph {
            session,
            id: self.id(),
            nodes: Vec::new(),
            roots: Vec::new(),
            next_local: 0,
            owner,
            anchor: None,
            allocates: false,
            freed_nothing: false,
            origins: HashMap::new(),
            objects: Held::nothing(&self.objects),
        };
        self.graphs.insert(number, graph);
        number
    }

    pub(crate) fn graph(&self, number: u64) -> Result<&Graph, CUresult> {
        self.graphs.get(&number).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn graph_mut(&mut self, number: u64) -> Result<&mut Graph, CUresult> {
        self.graphs.get_mut(&number).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn node(&self, number: u64) -> Result<&Node, CUresult> {
        self.nodes.get(&number).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn node_mut(&mut self, number: u64) -> Result<&mut Node, CUresult> {
        self.nodes.get_mut(&number).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Whether nodes may stand behind these in a graph.
    pub(crate) fn check_deps(&self, graph: u64, deps: &[Dep]) -> Result<(), CUresult> {
        let mut seen = HashSet::new();
        for dep in deps {
            let node = self.node(dep.node)?;
            if node.graph != graph || !seen.insert(dep.node) || !is_edge(&node.content, dep.data) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// The graph that a graph lies in, over any number of nodes.
    pub(crate) fn root(&self, mut graph: u64) -> u64 {
        while let Some(owner) = self.graphs.get(&graph).and_then(|known| known.owner)
            && let Some(node) = self.nodes.get(&owner)
        {
            graph = node.graph;
        }
        graph
    }

    /// Refuses to end what a stream is captured into.
    pub(crate) fn expect_uncaptured(&self, graph: u64) -> Result<(), CUresult> {
        match self.captures.fill(graph) {
            true => Err(CUDA_ERROR_ILLEGAL_STATE),
            false => Ok(()),
        }
    }

    /// Whether a graph is the body of a conditional node.
    pub(crate) fn is_body(&self, graph: u64) -> bool {
        let owner = self.graphs.get(&graph).and_then(|graph| graph.owner);
        let owner = owner.and_then(|owner| self.nodes.get(&owner));
        owner.is_some_and(|owner| matches!(owner.content, Content::Conditional(_)))
    }

    /// Refuses a graph in graphs that allocates or frees memory, or that a server knows by number.
    pub(crate) fn check_child(&self, child: u64) -> Result<(), CUresult> {
        let inner = self.graph(child)?;
        match inner.anchor.is_some() || inner.is_fixed() {
            true => Err(CUDA_ERROR_NOT_SUPPORTED),
            false => Ok(()),
        }
    }

    /// Adds a node.
    pub(crate) fn add(
        &mut self,
        graph: u64,
        deps: &[Dep],
        content: Content,
    ) -> Result<u64, CUresult> {
        self.check_deps(graph, deps)?;
        let number = self.number(GraphNodeHandle::TAG);
        self.add_as(number, graph, deps, content)?;
        Ok(number)
    }

    /// Adds a node under a number.
    pub(crate) fn add_as(
        &mut self,
        number: u64,
        graph: u64,
        deps: &[Dep],
        content: Content,
    ) -> Result<(), CUresult> {
        let allocates = matches!(content, Content::Alloc(_) | Content::Free(_));
        self.settle_session(graph, &content)?;
        let known = self.graph_mut(graph)?;
        let local = known.next_local;
        known.next_local += 1;
        known.nodes.push(number);
        if deps.is_empty() {
            known.roots.push(number);
        }
        known.allocates |= allocates;
        for dep in deps {
            self.node_mut(dep.node)?.after.push(number);
        }
        let node = Node {
            graph,
            local,
            content,
            before: deps.to_vec(),
            after: Vec::new(),
        };
        self.nodes.insert(number, node);
        Ok(())
    }

    /// Sees to it that a node is of its graph's session. A graph that no server knows of and in which nothing is any server's is of the
    /// session of the first node that is.
    fn settle_session(&mut self, graph: u64, content: &Content) -> Result<(), CUresult> {
        let known = self.graph(graph)?;
        let own = content.session()?.filter(|own| *own != known.session);
        let Some(session) = own else {
            return Ok(());
        };
        let is_anyones = |number: &u64| {
            let node = self.nodes.get(number);
            node.is_some_and(|node| matches!(node.content, Content::Empty | Content::Host(..)))
        };
        if known.anchor.is_some() || known.owner.is_some() || !known.nodes.iter().all(is_anyones) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        self.graph_mut(graph)?.session = session;
        Ok(())
    }

    /// Adds an edge.
    pub(crate) fn tie(&mut self, graph: u64, to: u64, dep: Dep) -> Result<(), CUresult> {
        let (before, after) = (self.node(dep.node)?, self.node(to)?);
        let known = after.before.iter().any(|other| other.node == dep.node);
        if before.graph != graph
            || after.graph != graph
            || dep.node == to
            || known
            || !is_edge(&before.content, dep.data)
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.node_mut(dep.node)?.after.push(to);
        self.node_mut(to)?.before.push(dep);
        self.graph_mut(graph)?.roots.retain(|root| *root != to);
        Ok(())
    }

    /// Refuses to take nodes and edges away from a graph of which none may be.
    pub(crate) fn expect_loosable(&self, graph: u64) -> Result<(), CUresult> {
        match self.graph(graph)?.is_fixed() {
            true => Err(CUDA_ERROR_NOT_SUPPORTED),
            false => Ok(()),
        }
    }

    /// Takes an edge away.
    pub(crate) fn untie(&mut self, graph: u64, to: u64, from: u64) -> Result<(), CUresult> {
        if self.node(from)?.graph != graph {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let after = self.node_mut(to)?;
        let count = after.before.len();
        after.before.retain(|dep| dep.node != from);
        if after.before.len() == count {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if after.before.is_empty() {
            self.graph_mut(graph)?.roots.push(to);
        }
        self.node_mut(from)?.after.retain(|node| *node != to);
        Ok(())
    }

    /// Removes a node with its edges, and the graphs that are its own.
    pub(crate) fn remove_node(&mut self, number: u64) -> Result<(), CUresult> {
        let graph = self.node(number)?.graph;
        self.expect_loosable(graph)?;
        let Some(node) = self.nodes.remove(&number) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        for dep in &node.before {
            if let Some(before) = self.nodes.get_mut(&dep.node) {
                before.after.retain(|other| *other != number);
            }
        }
        let (mut freed, mut rest) = (Vec::new(), node.after.clone());
        while !rest.is_empty() {
            // The driver takes them from a list whose last fills the gap (seen with driver 580.159).
            let next = rest.swap_remove(0);
            if let Some(after) = self.nodes.get_mut(&next) {
                after.before.retain(|dep| dep.node != number);
                freed.extend(after.before.is_empty().then_some(next));
            }
        }
        let known = self.graph_mut(graph)?;
        known.nodes.retain(|other| *other != number);
        known.roots.retain(|other| *other != number);
        known.roots.extend(freed);
        self.end_content(&node.content);
        Ok(())
    }

    fn end_content(&mut self, content: &Content) {
        match content {
            Content::Child(graph) => drop(self.remove_graph(*graph)),
            Content::Conditional(conditional) => {
                for body in &conditional.bodies {
                    self.remove_graph(*body);
                }
            }
            _ => {}
        }
    }

    /// Addresses of memory that nodes of a graph allocate.
    pub(crate) fn allocations(&self, number: u64) -> Vec<u64> {
        let nodes = self.graph(number).map_or(&[][..], |graph| &graph.nodes);
        let address = |node: &u64| match &self.node(*node).ok()?.content {
            Content::Alloc(alloc) => Some(alloc.given.0.dptr),
            _ => None,
        };
        nodes.iter().filter_map(address).collect()
    }

    /// Removes a graph with all that is in it.
    pub(crate) fn remove_graph(&mut self, number: u64) -> Option<Graph> {
        let graph = self.graphs.remove(&number)?;
        self.conditions.retain(|_, of| *of != number);
        for node in &graph.nodes {
            if let Some(node) = self.nodes.remove(node) {
                self.end_content(&node.content);
            }
        }
        Some(graph)
    }

    /// Copies a graph. What the server knows of it by number cannot be copied.
    pub(crate) fn copy(&mut self, number: u64, owner: Option<u64>) -> Result<u64, CUresult> {
        let graph = self.graph(number)?;
        if graph.anchor.is_some() || graph.is_fixed() || self.is_body(number) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let (session, nodes) = (graph.session, graph.nodes.clone());
        let copy = self.create(session, owner);
        let mut origins = HashMap::new();
        for node in &nodes {
            origins.insert(*node, self.number(GraphNodeHandle::TAG));
        }
        for node in &nodes {
            let mut content = self.node(*node)?.content.clone();
            let at = origins.get(node).copied().unwrap_or(0);
            if let Content::Child(child) = content {
                content = Content::Child(self.copy(child, Some(at))?);
            }
            self.add_as(at, copy, &[], content)?;
        }
        for node in &nodes {
            let copied = |dep: &Dep| Dep {
                node: origins.get(&dep.node).copied().unwrap_or(0),
                data: dep.data,
            };
            let deps: Vec<Dep> = self.node(*node)?.before.iter().map(copied).collect();
            for dep in deps {
                self.tie(copy, origins.get(node).copied().unwrap_or(0), dep)?;
            }
        }
        let objects = self.graph(number)?.objects.clone();
        let copied = self.graph_mut(copy)?;
        (copied.origins, copied.objects) = (origins, objects);
        Ok(copy)
    }

    /// The copy of a node in a graph, if that has one.
    pub(crate) fn copy_of(&self, node: u64, graph: u64) -> Result<Option<u64>, CUresult> {
        self.node(node)?;
        let found = self.graph(graph)?.origins.get(&node).copied();
        Ok(found.filter(|copy| self.nodes.contains_key(copy)))
    }

    /// A graph with those in it written out; `Err` when it cannot be carried out in any order.
    pub(crate) fn flatten(&mut self, graph: u64) -> Result<Flat, CUresult> {
        let mut flat = Flat::default();
        self.write_out(graph, &mut flat)?;
        if !is_ordered(&flat) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.settle_between(&mut flat);
        Ok(flat)
    }

    /// Appends a graph's nodes; tells which steps begin it and which end it.
    fn write_out(&mut self, graph: u64, flat: &mut Flat) -> Result<(Vec<u32>, Vec<u32>), CUresult> {
        let known = self.graph(graph)?;
        let nodes = known.nodes.clone();
        if !known.objects.is_empty() {
            let held = Arc::new(known.objects.clone());
            flat.held.push((flat.steps.len(), held));
        }
        let mut places: HashMap<u64, (u32, u32)> = HashMap::new();
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for number in &nodes {
            let content = self.node(*number)?.content.clone();
            let place = match &content {
                Content::Child(child) => {
                    let child = *child;
                    let head = flat.step(*number, content);
                    let (begin, end) = self.write_out(child, flat)?;
                    let length = flat.steps.len() - head as usize - 1;
                    flat.children.insert(*number, length);
                    begin.iter().for_each(|at| flat.edge(head, *at, WHOLE));
                    let tail = self.number(GraphNodeHandle::TAG);
                    let tail = flat.step(tail, Content::Empty);
                    end.iter().for_each(|at| flat.edge(*at, tail, WHOLE));
                    if end.is_empty() {
                        flat.edge(head, tail, WHOLE);
                    }
                    (head, tail)
                }
                Content::Conditional(conditional) => {
                    let (handle, kind) = (conditional.handle, conditional.kind);
                    let (context, bodies) = (conditional.context, conditional.bodies.clone());
                    let at = flat.step(*number, content);
                    let mut described = Vec::new();
                    for body in bodies {
                        let body = self.flatten(body)?;
                        let is_barred = |step: &Step| {
                            step.deed.is_some() || step.content.is_barred_from_bodies()
                        };
                        if body.steps.iter().any(is_barred) {
                            // The driver's own rule: bodies touch the device alone (seen with driver 580.159).
                            return Err(CUDA_ERROR_INVALID_VALUE);
                        }
                        described.push(body.description());
                        let held = body.held.into_iter();
                        flat.held.extend(held.map(|(_, held)| (at as usize, held)));
                    }
                    if let Some(step) = flat.steps.last_mut() {
                        step.work = described::Work::Conditional {
                            handle,
                            kind,
                            context,
                            bodies: described,
                        };
                    }
                    (at, at)
                }
                _ => {
                    let at = flat.step(*number, content);
                    (at, at)
                }
            };
            places.insert(*number, place);
        }
        for number in &nodes {
            let node = self.node(*number)?;
            let Some((head, tail)) = places.get(number).copied() else {
                continue;
            };
            for dep in &node.before {
                if let Some((_, from)) = places.get(&dep.node) {
                    let is_child = matches!(self.node(dep.node)?.content, Content::Child(_));
                    // What a graph within ends with is waited for as a whole.
                    flat.edge(*from, head, if is_child { WHOLE } else { dep.data });
                }
            }
            if node.before.is_empty() {
                first.push(head);
            }
            if node.after.is_empty() {
                last.push(tail);
            }
        }
        Ok((first, last))
    }

    /// Bytes that the graph itself brings to the application's memory must be there before another node sends them: it asks first.
    fn settle_between(&mut self, flat: &mut Flat) {
        let targets: Vec<HostRows> = flat
            .steps
            .iter()
            .filter_map(|step| match step.deed {
                Some(Deed::Take(rows)) => Some(rows),
                _ => None,
            })
            .collect();
        for at in 0..flat.steps.len() {
            let Some(Deed::Fetch(rows)) = flat.steps.get(at).and_then(|step| step.deed) else {
                continue;
            };
            if !targets.iter().any(|target| target.meets(&rows)) {
                continue;
            }
            let number = self.number(GraphNodeHandle::TAG);
            if let Some(step) = flat.steps.get_mut(at) {
                step.deed = Some(Deed::FetchSettled(rows));
            }
            let guard = flat.step(number, Content::Host(None, 0));
            flat.guards += 1;
            if let Some(step) = flat.steps.last_mut() {
                step.deed = Some(Deed::Settle);
            }
            for edge in &mut flat.edges {
                if edge.to == at as u32 {
                    edge.to = guard;
                }
            }
            flat.edge(guard, at as u32, WHOLE);
        }
    }
}

/// Whether an edge of this kind may begin at a node.
fn is_edge(from: &Content, data: EdgeData) -> bool {
    let [from_port, to_port, kind, reserved @ ..] = data;
    let known = match u32::from(kind) {
        CU_GRAPH_DEPENDENCY_TYPE_DEFAULT => from_port == 0,
        CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC => {
            matches!(from, Content::Kernel(_)) && (1..=2).contains(&from_port)
        }
        _ => false,
    };
    known && to_port == 0 && reserved == [0; 5]
}

fn is_ordered(flat: &Flat) -> bool {
    let mut waiting = vec![0_usize; flat.steps.len()];
    let mut after: Vec<Vec<u32>> = vec![Vec::new(); flat.steps.len()];
    for edge in &flat.edges {
        if let Some(count) = waiting.get_mut(edge.to as usize) {
            *count += 1;
        }
        if let Some(list) = after.get_mut(edge.from as usize) {
            list.push(edge.to);
        }
    }
    let mut ready: Vec<usize> = (0..waiting.len())
        .filter(|at| waiting.get(*at) == Some(&0))
        .collect();
    let mut done = 0;
    while let Some(at) = ready.pop() {
        done += 1;
        for to in after.get(at).into_iter().flatten() {
            let to = *to as usize;
            if let Some(count) = waiting.get_mut(to) {
                *count -= 1;
                if *count == 0 {
                    ready.push(to);
                }
            }
        }
    }
    done == flat.steps.len()
}

/// An address as a pointer of the application's.
pub(crate) fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}
