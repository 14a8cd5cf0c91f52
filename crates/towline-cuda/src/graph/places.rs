//! What callers pass and what they are told: parameters of nodes, lists of nodes and edges, values of attributes.

use std::ffi::c_void;

use towline_backend::cuda::*;
use towline_client::raw::{OutList, Vouched};

use super::capture::edge_data;
use super::exec::is_plain;
use super::model::{Content, Dep, Graphs, Node, WHOLE, pointer};
use super::node_handle;
use crate::driver::{Driver, lock, read};

pub(super) fn value_of(words: &[u64]) -> CUlaunchAttributeValue {
    let mut pad = [0; 64];
    for (bytes, word) in pad.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes().map(|byte| byte as c_char);
    }
    CUlaunchAttributeValue { pad }
}

/// Tells a list of nodes, or how many there are. As natively, a list without room is refused.
pub(super) fn tell_nodes(
    list: &[u64],
    nodes: &OutList<CUgraphNode>,
    count: &mut usize,
) -> Result<(), CUresult> {
    if !nodes.wanted() {
        *count = list.len();
        return Ok(());
    }
    let room = nodes.room();
    if room == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // What is left of the room is nothing.
    let told = list.iter().copied().chain(std::iter::repeat(0));
    nodes.fill(told.map(node_handle));
    *count = room.min(list.len());
    Ok(())
}

/// As [`tell_nodes`], with data of edges where there is a place for it. Without one, data that says something would be lost.
pub(super) fn tell_deps(
    deps: &[Dep],
    nodes: &OutList<CUgraphNode>,
    data: &OutList<CUgraphEdgeData>,
    count: &mut usize,
) -> Result<(), CUresult> {
    let list: Vec<u64> = deps.iter().map(|dep| dep.node).collect();
    let mut all = deps.iter().map(|dep| dep.data);
    if nodes.wanted() && data.wanted() {
        data.fill(all.map(edge_data));
    } else if nodes.wanted() && !all.all(is_plain) {
        return Err(CUDA_ERROR_LOSSY_QUERY);
    }
    tell_nodes(&list, nodes, count)
}

pub(super) fn tell_edges(
    edges: &[(Dep, u64)],
    from: &OutList<CUgraphNode>,
    to: &OutList<CUgraphNode>,
    data: &OutList<CUgraphEdgeData>,
    count: &mut usize,
) -> Result<(), CUresult> {
    if from.wanted() != to.wanted() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let ends: Vec<u64> = edges.iter().map(|(_, to)| *to).collect();
    let deps: Vec<Dep> = edges.iter().map(|(dep, _)| *dep).collect();
    tell_nodes(&ends, to, &mut count.clone())?;
    // Unlike a node's edges, places for more than there are become zeros (seen with driver 580.159).
    data.fill(std::iter::repeat_n(edge_data(WHOLE), data.room()));
    tell_deps(&deps, from, data, count)
}

/// Edges as a call gives them.
pub(super) fn edges_of(
    from: &[CUgraphNode],
    to: &[CUgraphNode],
    data: Option<&[CUgraphEdgeData]>,
) -> impl Iterator<Item = (Dep, u64)> {
    let deps = super::dependencies(from, data).into_iter();
    deps.zip(to.iter().map(|node| node.addr() as u64))
}

impl Driver {
    /// Does something with the process's graphs.
    pub(super) fn with_graphs<T>(
        &self,
        go: impl FnOnce(&mut Graphs) -> Result<T, CUresult>,
    ) -> Result<T, CUresult> {
        self.ready()?;
        go(&mut lock(&self.graphs))
    }

    /// Does something with a node.
    pub(super) fn with_node<T>(
        &self,
        node: CUgraphNode,
        go: impl FnOnce(&mut Node) -> Result<T, CUresult>,
    ) -> Result<T, CUresult> {
        self.with_graphs(|graphs| go(graphs.node_mut(node.addr() as u64)?))
    }

    /// Adds a node behind others.
    pub(super) fn add_node(
        &self,
        graph: CUgraph,
        dependencies: &[CUgraphNode],
        content: Content,
    ) -> Result<CUgraphNode, CUresult> {
        self.add_content(graph, &super::dependencies(dependencies, None), content)
    }

    /// A copy in a context, or the current one; where there is none, its memory's, or any (seen with driver 580.159).
    pub(super) fn copy_in(
        &self,
        context: CUcontext,
        copy: Option<Vouched<'_, CUDA_MEMCPY3D>>,
    ) -> Result<Content, CUresult> {
        let found = match self.context_or_current(context) {
            Err(CUDA_ERROR_INVALID_CONTEXT) if context.is_null() => {
                let copy = copy.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?;
                let ranges = read(&self.memory);
                let mut sides = [copy.dstDevice, copy.srcDevice].into_iter();
                let known = sides.find_map(|side| ranges.find(side).map(|(_, it)| it.context));
                drop(ranges);
                match known.filter(|known| *known != 0) {
                    Some(known) => known,
                    None => self.session_for_any()?.context.number,
                }
            }
            found => found?.number,
        };
        let copy = copy.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        self.copy_content(&copy, found)
    }

    /// Has kernels reach the pinned memory of a copy in the body of a condition, which the device makes alone.
    pub(crate) fn reach_pins(&self, copy: &CUDA_MEMCPY3D) -> Result<(), CUresult> {
        let place = |kind, host: *const c_void, device| match kind {
            CU_MEMORYTYPE_HOST => host.addr() as u64,
            CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => device,
            _ => 0,
        };
        let from = place(copy.srcMemoryType, copy.srcHost, copy.srcDevice);
        let to = place(
            copy.dstMemoryType,
            copy.dstHost.cast_const(),
            copy.dstDevice,
        );
        let mut pinned = [from, to].into_iter().filter(|side| self.is_host(*side));
        pinned.try_for_each(|side| self.device_pointer(side).map(|_| ()))
    }

    /// A fill in a context, or in that of its memory, which pools' has not (seen with driver 580.159).
    pub(super) fn fill_in(
        &self,
        context: CUcontext,
        fill: &CUDA_MEMSET_NODE_PARAMS,
    ) -> Result<Content, CUresult> {
        self.ready()?;
        let of_memory = match read(&self.memory).find(fill.dst) {
            Some((_, range)) if context.is_null() && range.of_pool => {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            Some((_, range)) if context.is_null() => Some(range.context),
            _ => None,
        };
        let context = match of_memory.filter(|context| *context != 0) {
            Some(context) => context,
            None => self.context_or_current(context)?.number,
        };
        self.fill_content(fill, context)
    }

    /// The context of a copy or fill.
    pub(super) fn context_of_node(&self, node: CUgraphNode) -> Result<CUcontext, CUresult> {
        use towline_wire::cuda::graph::Work;
        let number = self.with_graphs(|graphs| {
            Ok(match &graphs.node(node.addr() as u64)?.content {
                Content::Fill(fill) => fill.context,
                Content::Copy(copy) => match &copy.work {
                    Work::Copy(copy) => copy.context,
                    _ => 0,
                },
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            })
        })?;
        Ok(pointer(number as usize).cast())
    }

    pub(super) fn edges(&self, graph: CUgraph) -> Result<Vec<(Dep, u64)>, CUresult> {
        self.with_graphs(|graphs| {
            let mut edges = Vec::new();
            for number in &graphs.graph(graph.addr() as u64)?.nodes {
                for to in &graphs.node(*number)?.after {
                    let before = graphs.node(*to)?.before.iter();
                    let own = before.filter(|dep| dep.node == *number);
                    edges.extend(own.map(|dep| (*dep, *to)));
                }
            }
            Ok(edges)
        })
    }

    pub(super) fn after(&self, node: CUgraphNode) -> Result<Vec<Dep>, CUresult> {
        let number = node.addr() as u64;
        self.with_graphs(|graphs| {
            let after = &graphs.node(number)?.after;
            let edge = |to: &u64| {
                let before = &graphs.node(*to).ok()?.before;
                let dep = before.iter().find(|dep| dep.node == number)?;
                Some(Dep {
                    node: *to,
                    data: dep.data,
                })
            };
            Ok(after.iter().filter_map(edge).collect())
        })
    }

    /// Updates an executable graph, and tells how that went; nothing is told of what is none, and by what is no graph.
    pub(super) fn update_told(
        &self,
        exec: CUgraphExec,
        graph: CUgraph,
    ) -> Result<(Result<(), CUresult>, CUgraphExecUpdateResult, u64), CUresult> {
        let exec = self.exec(exec)?;
        lock(&self.graphs).graph(graph.addr() as u64).map(drop)?;
        Ok(match self.update(&exec, graph.addr() as u64) {
            Ok(()) => (Ok(()), CU_GRAPH_EXEC_UPDATE_SUCCESS, 0),
            Err(unchanged) => (Err(unchanged.status), unchanged.result, unchanged.node),
        })
    }
}
