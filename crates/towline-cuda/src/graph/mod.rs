//! Graphs, and streams that are captured into them.
//!
//! A graph is the process's own: building it, asking about it, and capturing it cost no message. The server learns of it when it is made
//! executable, which waits for the driver's verdict, and is told of launches one way.

mod calls;
mod capture;
mod draw;
mod exec;
mod model;
mod params;
mod places;
mod user;

use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::raw::{InOut, Vouched};

pub(crate) use capture::{Captured, Meeting, Place as OnStream, edge_bytes};
pub(crate) use model::{Content, Dep, Graphs};
pub(crate) use params::kernel_content;

use crate::driver::{Driver, lock, write};
use crate::memory::Range;
use crate::virtual_memory::number_of;
use model::{Alloc, Conditional, Given, Node, WHOLE, pointer};

/// Most graphs of a conditional node.
const BODY_LIMIT: u32 = 128;

fn node_handle(number: u64) -> CUgraphNode {
    pointer(number as usize).cast()
}

fn graph_handle(number: u64) -> CUgraph {
    pointer(number as usize).cast()
}

/// What nodes stand behind, as a call gives it.
pub(crate) fn dependencies(nodes: &[CUgraphNode], data: Option<&[CUgraphEdgeData]>) -> Vec<Dep> {
    let data = data.unwrap_or_default();
    let with_data = nodes.iter().enumerate().map(|(at, node)| Dep {
        node: node.addr() as u64,
        data: data.get(at).map_or(WHOLE, edge_bytes),
    });
    with_data.collect()
}

impl Driver {
    pub(crate) fn create_graph(&self, flags: u32) -> Result<CUgraph, CUresult> {
        self.ready()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Without a context the first server's: a graph that is built for another is built in that one's context.
        let session = self.current().map_or(0, |context| context.session);
        Ok(graph_handle(lock(&self.graphs).create(session, None)))
    }

    pub(crate) fn destroy_graph(&self, graph: u64) -> Result<(), CUresult> {
        self.ready()?;
        let ended = {
            let mut graphs = lock(&self.graphs);
            if graphs.graph(graph)?.owner.is_some() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            graphs.expect_uncaptured(graph)?;
            graphs.remove_graph(graph)
        };
        let Some(ended) = ended else {
            return Ok(());
        };
        if let Some(anchor) = ended.anchor
            && let Ok(acting) = self.context(anchor).and_then(|it| self.acting_in(it))
        {
            acting.post(&wire::GraphAnchorEnd {
                graph: wire::GraphHandle(graph),
            })?;
        }
        Ok(())
    }

    pub(crate) fn add_content(
        &self,
        graph: CUgraph,
        deps: &[Dep],
        content: Content,
    ) -> Result<CUgraphNode, CUresult> {
        self.ready()?;
        let mut graphs = lock(&self.graphs);
        graphs
            .add(graph.addr() as u64, deps, content)
            .map(node_handle)
    }

    /// Replaces what a node does; its kind stays.
    pub(crate) fn replace_content(
        &self,
        node: CUgraphNode,
        content: Content,
    ) -> Result<(), CUresult> {
        let mut graphs = lock(&self.graphs);
        let graph = graphs.node(node.addr() as u64)?.graph;
        content.check_session(graphs.graph(graph)?.session)?;
        let node = graphs.node_mut(node.addr() as u64)?;
        match (&mut node.content, content) {
            (Content::Kernel(old), Content::Kernel(new)) => old.replace(*new),
            (old, new) if old.kind() == new.kind() => node.content = new,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }

    pub(crate) fn add_child(
        &self,
        graph: CUgraph,
        deps: &[Dep],
        child: CUgraph,
        ownership: CUgraphChildGraphNodeOwnership,
    ) -> Result<CUgraphNode, CUresult> {
        self.ready()?;
        let mut graphs = lock(&self.graphs);
        let (graph, child) = (graph.addr() as u64, child.addr() as u64);
        graphs.check_child(child)?;
        graphs.check_deps(graph, deps)?;
        let (session, inner) = (graphs.graph(graph)?.session, graphs.graph(child)?);
        if graph == child || inner.session != session {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let owned = inner.owner.is_some();
        let node = graphs.number(GraphNodeHandle::TAG);
        let own = match ownership {
            CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE => graphs.copy(child, Some(node))?,
            CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE if !owned => {
                graphs.graph_mut(child)?.owner = Some(node);
                child
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        graphs.add_as(node, graph, deps, Content::Child(own))?;
        Ok(node_handle(node))
    }

    /// Has a graph live on the server from now on.
    fn anchor(&self, graph: u64) -> Result<crate::driver::Acting<'_>, CUresult> {
        let (session, owner, anchor) = {
            let graphs = lock(&self.graphs);
            let known = graphs.graph(graph)?;
            if known.anchor.is_none() {
                graphs.expect_room()?;
            }
            (known.session, known.owner, known.anchor)
        };
        let acting = self.acting_for(session)?;
        if owner.is_some() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if anchor.is_none() {
            acting.post(&wire::GraphAnchor {
                graph: wire::GraphHandle(graph),
            })?;
            lock(&self.graphs).graph_mut(graph)?.anchor = Some(acting.context.number);
        }
        Ok(acting)
    }

    /// Adds an allocation; tells the node's number and the address.
    pub(crate) fn add_allocation(
        &self,
        graph: u64,
        deps: &[Dep],
        params: &CUDA_MEM_ALLOC_NODE_PARAMS,
        access: &[CUmemAccessDesc],
    ) -> Result<(u64, u64), CUresult> {
        let props = &params.poolProps;
        if params.bytesize == 0
            || props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED
            || props.handleTypes != CU_MEM_HANDLE_TYPE_NONE
            || props.location.r#type != CU_MEM_LOCATION_TYPE_DEVICE
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        lock(&self.graphs).check_deps(graph, deps)?;
        let device = self.device(number_of(&props.location))?;
        let acting = self.anchor(graph)?;
        if device.session != acting.context.session {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut words = Vec::new();
        for one in access {
            if one.location.r#type != CU_MEM_LOCATION_TYPE_DEVICE {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let to = self.device(number_of(&one.location))?;
            if to.session != device.session {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let kind = u64::from(one.location.r#type);
            words.extend([kind, to.ordinal as u64, u64::from(one.flags)]);
        }
        let node = lock(&self.graphs).number(GraphNodeHandle::TAG);
        let request = wire::GraphAlloc {
            graph: wire::GraphHandle(graph),
            node,
            device: device.ordinal,
            size: params.bytesize as u64,
            words: words.len() as u32,
            access: wire::List::Values(&words),
        };
        let body = acting.call_for("cuGraphAddMemAllocNode", &request)?;
        let reply = wire::GraphAllocReply::decode(&body).map_err(|_| acting.malformed())?;
        let address = reply.address.ok_or(CUDA_ERROR_UNKNOWN)?;
        self.claim(acting.context.session, address, params.bytesize)?;
        let range = Range {
            of_graph: true,
            ..Range::device(&acting.context, params.bytesize, self.new_id())
        };
        write(&self.memory).insert(address, range);
        let mut given = *params;
        given.dptr = address;
        let content = Content::Alloc(Box::new(Alloc {
            given: Given(given),
            access: access.iter().copied().map(Given).collect(),
        }));
        lock(&self.graphs).add_as(node, graph, deps, content)?;
        Ok((node, address))
    }

    /// An allocation on the current device, for a captured cuMemAllocAsync.
    pub(crate) fn allocation_of(
        &self,
        size: usize,
        device: CUdevice,
    ) -> CUDA_MEM_ALLOC_NODE_PARAMS {
        CUDA_MEM_ALLOC_NODE_PARAMS {
            poolProps: CUmemPoolProps {
                allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
                handleTypes: CU_MEM_HANDLE_TYPE_NONE,
                location: CUmemLocation {
                    r#type: CU_MEM_LOCATION_TYPE_DEVICE,
                    either: CUmemLocation_either { id: device },
                },
                win32SecurityAttributes: std::ptr::null_mut(),
                maxSize: 0,
                usage: 0,
                gpuDirectRDMACapable: 0,
                reserved: [0; 53],
            },
            accessDescs: std::ptr::null(),
            accessDescCount: 0,
            bytesize: size,
            dptr: 0,
        }
    }

    pub(crate) fn create_condition(
        &self,
        graph: u64,
        context: CUcontext,
        default: u32,
        flags: u32,
    ) -> Result<u64, CUresult> {
        self.ready()?;
        if flags & !CU_GRAPH_COND_ASSIGN_DEFAULT != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let is_known = lock(&self.graphs).graph(graph).map(drop);
        is_known?;
        let context = self.context_or_current(context)?;
        // Those of bodies are had of the graph that they lie in.
        let root = lock(&self.graphs).root(graph);
        if context.session != self.anchor(root)?.context.session {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let acting = self.acting_in(context)?;
        let request = wire::GraphCondition {
            graph: wire::GraphHandle(root),
            default,
            flags,
        };
        let body = acting.call_for("cuGraphConditionalHandleCreate", &request)?;
        let reply = wire::GraphConditionReply::decode(&body).map_err(|_| acting.malformed())?;
        let handle = reply.handle.ok_or(CUDA_ERROR_UNKNOWN)?;
        lock(&self.graphs).conditions.insert(handle, root);
        Ok(handle)
    }

    fn add_conditional(
        &self,
        graph: u64,
        deps: &[Dep],
        params: &mut CUDA_CONDITIONAL_NODE_PARAMS,
    ) -> Result<u64, CUresult> {
        let sizes = match params.r#type {
            CU_GRAPH_COND_TYPE_IF => 1..=2,
            CU_GRAPH_COND_TYPE_WHILE => 1..=1,
            CU_GRAPH_COND_TYPE_SWITCH => 1..=BODY_LIMIT,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        if !sizes.contains(&params.size) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let context = self.context_or_current(params.ctx)?.number;
        let mut graphs = lock(&self.graphs);
        let of = graphs.conditions.get(&params.handle).copied();
        if of.is_none_or(|of| graphs.root(of) != graphs.root(graph)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // A handle is of one node (seen with driver 580.159).
        let has_it = |node: &Node| match &node.content {
            Content::Conditional(conditional) => conditional.handle == params.handle,
            _ => false,
        };
        if graphs.nodes.values().any(has_it) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        graphs.check_deps(graph, deps)?;
        let session = graphs.graph(graph)?.session;
        let node = graphs.number(GraphNodeHandle::TAG);
        let bodies: Vec<u64> = (0..params.size)
            .map(|_| graphs.create(session, Some(node)))
            .collect();
        let told = bodies.iter().map(|body| Given(graph_handle(*body)));
        let told: Arc<[Given<CUgraph>]> = told.collect();
        params.phGraph_out = told.as_ptr().cast_mut().cast();
        let content = Content::Conditional(Box::new(Conditional {
            handle: params.handle,
            kind: params.r#type,
            context,
            bodies,
            told,
        }));
        graphs.add_as(node, graph, deps, content)?;
        Ok(node)
    }

    /// Adds a node of any kind.
    pub(crate) fn add_any(
        &self,
        graph: CUgraph,
        deps: &[Dep],
        params: InOut<'_, CUgraphNodeParams>,
    ) -> Result<CUgraphNode, CUresult> {
        self.ready()?;
        let number = graph.addr() as u64;
        let mut told = *params.given;
        let node = match told.r#type {
            CU_GRAPH_NODE_TYPE_GRAPH => {
                // SAFETY: in this and the others the kind says which part of the union counts.
                let given = unsafe { told.either.graph };
                return self.add_child(graph, deps, given.graph, given.ownership);
            }
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                // SAFETY: as above.
                let mut given = unsafe { told.either.alloc };
                let asked = CUDA_MEM_ALLOC_NODE_PARAMS {
                    poolProps: given.poolProps,
                    accessDescs: given.accessDescs,
                    accessDescCount: given.accessDescCount,
                    bytesize: given.bytesize,
                    dptr: 0,
                };
                // SAFETY: the pointers are those of the parameters.
                let access = access_of(unsafe { Vouched::new(asked) })?;
                let (node, address) = self.add_allocation(number, deps, &asked, access)?;
                given.dptr = address;
                told.either.alloc = given;
                node
            }
            CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                // SAFETY: as above.
                let mut given = unsafe { told.either.conditional };
                let node = self.add_conditional(number, deps, &mut given)?;
                told.either.conditional = given;
                node
            }
            CU_GRAPH_NODE_TYPE_MEM_FREE => {
                // SAFETY: as above.
                let given = unsafe { told.either.free };
                return self.add_content(
                    graph,
                    deps,
                    self.free_content_in(graph, deps, given.dptr)?,
                );
            }
            _ => return self.add_content(graph, deps, self.given(params.given)?),
        };
        params.place.set(told);
        Ok(node_handle(node))
    }

    pub(crate) fn draw_graph(
        &self,
        graph: CUgraph,
        path: &[u8],
        flags: u32,
    ) -> Result<(), CUresult> {
        use std::os::unix::ffi::OsStrExt;
        self.ready()?;
        let text = draw::draw(self, &lock(&self.graphs), graph.addr() as u64, flags)?;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
        std::fs::write(path, text).map_err(|error| {
            log::error!("cannot write a graph to {}: {error}", path.display());
            CUDA_ERROR_OPERATING_SYSTEM
        })
    }
}

/// Which devices are to reach an allocation.
pub(crate) fn access_of<'a>(
    params: Vouched<'a, CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> Result<&'a [CUmemAccessDesc], CUresult> {
    // SAFETY: the list is as long as the parameters say, which are vouched for.
    let access = unsafe { crate::raw::slice(params.accessDescs, params.accessDescCount) };
    access.ok_or(CUDA_ERROR_INVALID_VALUE)
}
