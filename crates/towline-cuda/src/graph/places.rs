//! What callers pass and what they are told: parameters of nodes, lists of nodes and edges, values of attributes.

use std::ptr::null;

use towline_backend::cuda::*;

use super::capture::edge_data;
use super::exec::is_plain;
use super::model::{Content, Dep, Graphs, WHOLE, pointer};
use super::node_handle;
use super::params::host_content;
use crate::driver::{Driver, lock, read};

/// The words of a launch attribute's value.
pub(super) fn words_of(value: &CUlaunchAttributeValue) -> [u64; 8] {
    // SAFETY: the union's bytes are what counts; the application has filled those that do.
    let bytes = unsafe { value.pad };
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(bytes.map(|byte| byte as u8));
    }
    words
}

pub(super) fn value_of(words: &[u64]) -> CUlaunchAttributeValue {
    let mut pad = [0; 64];
    for (bytes, word) in pad.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes().map(|byte| byte as c_char);
    }
    CUlaunchAttributeValue { pad }
}

/// Tells a list of nodes, or how many there are. As natively, a list without room is refused.
///
/// # Safety
/// `count` is NULL or readable and writable; `nodes` is NULL or writable for as many as it says.
pub(super) unsafe fn tell_nodes(
    list: &[u64],
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> Result<(), CUresult> {
    // SAFETY: the caller's contract.
    let count = unsafe { count.as_mut() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if nodes.is_null() {
        *count = list.len();
        return Ok(());
    }
    let room = *count;
    if room == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // What is left of the room is nothing.
    let told = list.iter().copied().chain(std::iter::repeat(0));
    // SAFETY: the caller's contract.
    unsafe { crate::raw::fill(nodes, room, told.take(room).map(node_handle)) };
    *count = room.min(list.len());
    Ok(())
}

/// As [`tell_nodes`], with data of edges where there is a place for it.
///
/// # Safety
/// As for [`tell_nodes`]; the data's place is NULL or writable for as many too.
pub(super) unsafe fn tell_deps(
    deps: &[Dep],
    nodes: *mut CUgraphNode,
    data: Option<*mut CUgraphEdgeData>,
    count: *mut usize,
) -> Result<(), CUresult> {
    let list: Vec<u64> = deps.iter().map(|dep| dep.node).collect();
    // SAFETY: the caller's contract.
    let room = unsafe { count.as_ref() }.copied().unwrap_or(0);
    if !nodes.is_null() {
        // SAFETY: as above.
        unsafe { tell_data(deps.iter().map(|dep| dep.data), data, room) }?;
    }
    // SAFETY: as above.
    unsafe { tell_nodes(&list, nodes, count) }
}

/// Tells data of edges. Where there is no place for data that says something, the answer would be wrong.
///
/// # Safety
/// The place is NULL or writable for `room`.
unsafe fn tell_data(
    all: impl Iterator<Item = [u8; 8]> + Clone,
    place: Option<*mut CUgraphEdgeData>,
    room: usize,
) -> Result<(), CUresult> {
    match place.filter(|place| !place.is_null()) {
        None if all.clone().all(is_plain) => Ok(()),
        None => Err(CUDA_ERROR_LOSSY_QUERY),
        Some(place) => {
            let told = all
                .chain(std::iter::repeat(WHOLE))
                .take(room)
                .map(edge_data);
            // SAFETY: the caller's contract.
            unsafe { crate::raw::fill(place, room, told) };
            Ok(())
        }
    }
}

/// # Safety
/// As for [`tell_deps`], for both places of nodes.
pub(super) unsafe fn tell_edges(
    edges: &[(Dep, u64)],
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: Option<*mut CUgraphEdgeData>,
    count: *mut usize,
) -> Result<(), CUresult> {
    if from.is_null() != to.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's contract.
    let mut room = unsafe { count.as_ref() }.copied().unwrap_or(0);
    let ends: Vec<u64> = edges.iter().map(|(_, to)| *to).collect();
    if !to.is_null() {
        // SAFETY: as above.
        unsafe { tell_nodes(&ends, to, &raw mut room) }?;
    }
    let deps: Vec<Dep> = edges.iter().map(|(dep, _)| *dep).collect();
    // SAFETY: as above.
    unsafe { tell_deps(&deps, from, data, count) }
}

/// # Safety
/// `from` and `to` are readable for `count`, and so is `data` unless it is NULL.
pub(super) unsafe fn edges_at(
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<Vec<(Dep, u64)>, CUresult> {
    // SAFETY: the caller's contract.
    let deps = unsafe { super::dependencies(from, data, count) }?;
    // SAFETY: as above.
    let to = unsafe { super::dependencies(to, null(), count) }?;
    let pairs = deps.into_iter().zip(to);
    Ok(pairs.map(|(dep, to)| (dep, to.node)).collect())
}

/// # Safety
/// NULL, or a description of a function.
pub(super) unsafe fn host_at(params: *const CUDA_HOST_NODE_PARAMS) -> Result<Content, CUresult> {
    // SAFETY: the caller's contract.
    let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    host_content(params.r#fn, params.userData)
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

    /// # Safety
    /// NULL, or a description of a launch.
    pub(super) unsafe fn kernel_at(
        &self,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> Result<Content, CUresult> {
        self.ready()?;
        // SAFETY: the caller's contract.
        let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: as above.
        unsafe { self.given_kernel(params) }
    }

    /// # Safety
    /// NULL, or a description of a copy.
    pub(super) unsafe fn copy_at(
        &self,
        copy: *const CUDA_MEMCPY3D,
        context: CUcontext,
    ) -> Result<Content, CUresult> {
        let context = self.context_or_current(context)?.number;
        // SAFETY: the caller's contract.
        let copy = unsafe { copy.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        self.copy_content(copy, context)
    }

    /// # Safety
    /// NULL, or a description of a fill.
    pub(super) unsafe fn fill_at(
        &self,
        fill: *const CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext,
    ) -> Result<Content, CUresult> {
        self.ready()?;
        // SAFETY: the caller's contract.
        let fill = unsafe { fill.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let context = match self.context_or_current(context) {
            Ok(context) => context.number,
            // Without any context it is that of the memory (seen with driver 580.159).
            Err(status) => match read(&self.memory).find(fill.dst) {
                Some((_, range)) if context.is_null() => range.context,
                _ => return Err(status),
            },
        };
        self.fill_content(fill, context)
    }

    /// # Safety
    /// NULL, or a description of operations.
    pub(super) unsafe fn operations_at(
        &self,
        params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> Result<Content, CUresult> {
        // SAFETY: the caller's contract.
        let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: as above.
        unsafe { self.given_operations(params) }
    }

    /// # Safety
    /// NULL, or parameters of a node.
    pub(super) unsafe fn any_at(
        &self,
        params: *const CUgraphNodeParams,
    ) -> Result<Content, CUresult> {
        // SAFETY: the caller's contract.
        let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: as above.
        unsafe { self.given(params) }
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
                let before = graphs.node(*number)?.before.iter();
                edges.extend(before.map(|dep| (*dep, *number)));
            }
            Ok(edges)
        })
    }

    pub(super) fn before(&self, node: CUgraphNode) -> Result<Vec<Dep>, CUresult> {
        self.with_graphs(|graphs| Ok(graphs.node(node.addr() as u64)?.before.clone()))
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

    /// Updates an executable graph, and tells how that went; nothing is told of what is no executable graph.
    pub(super) fn update_told(
        &self,
        exec: CUgraphExec,
        graph: CUgraph,
    ) -> Result<(CUresult, CUgraphExecUpdateResult, u64), CUresult> {
        let exec = self.exec(exec)?;
        Ok(match self.update(&exec, graph.addr() as u64) {
            Ok(()) => (CUDA_SUCCESS, CU_GRAPH_EXEC_UPDATE_SUCCESS, 0),
            Err(unchanged) => (unchanged.status, unchanged.result, unchanged.node),
        })
    }
}
