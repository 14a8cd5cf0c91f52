//! The calls.

use std::ffi::c_void;

use towline_backend::cuda::*;
use towline_client::raw::{InOut, Out, OutList, Vouched};

use super::model::{Content, pointer};
use super::params::{host_content, is_node_attribute, kernel_of_v1};
use super::places::{edges_of, tell_deps, tell_edges, tell_nodes, value_of};
use super::{access_of, graph_handle, node_handle};
use crate::driver::{Driver, GraphCalls, lock};
use crate::launch::words_of;

impl GraphCalls for Driver {
    fn cuGraphCreate(&self, flags: u32) -> Result<CUgraph, CUresult> {
        self.create_graph(flags)
    }

    fn cuGraphDestroy(&self, hGraph: CUgraph) -> Result<(), CUresult> {
        self.destroy_graph(hGraph.addr() as u64)
    }

    fn cuGraphClone(&self, originalGraph: CUgraph) -> Result<CUgraph, CUresult> {
        self.with_graphs(|graphs| graphs.copy(originalGraph.addr() as u64, None))
            .map(graph_handle)
    }

    fn cuGraphNodeFindInClone(
        &self,
        phNode: Out<CUgraphNode>,
        hOriginalNode: CUgraphNode,
        hClonedGraph: CUgraph,
    ) -> Result<(), CUresult> {
        let (node, graph) = (hOriginalNode.addr() as u64, hClonedGraph.addr() as u64);
        let copy = self.with_graphs(|graphs| graphs.copy_of(node, graph))?;
        // A graph without a copy leaves NULL (seen with driver 580.159).
        phNode.set(node_handle(copy.unwrap_or(0)));
        match copy {
            Some(_) if phNode.wanted() => Ok(()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuGraphAddKernelNode(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        nodeParams: Vouched<'_, CUDA_KERNEL_NODE_PARAMS_v1>,
    ) -> Result<CUgraphNode, CUresult> {
        GraphCalls::cuGraphAddKernelNode_v2(self, hGraph, dependencies, kernel_of_v1(nodeParams))
    }

    fn cuGraphAddKernelNode_v2(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        nodeParams: Vouched<'_, CUDA_KERNEL_NODE_PARAMS>,
    ) -> Result<CUgraphNode, CUresult> {
        let content = self.given_kernel(nodeParams)?;
        self.add_node(hGraph, dependencies, content)
    }

    fn cuGraphKernelNodeGetParams(
        &self,
        hNode: CUgraphNode,
    ) -> Result<CUDA_KERNEL_NODE_PARAMS_v1, CUresult> {
        let told = GraphCalls::cuGraphKernelNodeGetParams_v2(self, hNode)?;
        Ok(CUDA_KERNEL_NODE_PARAMS_v1 {
            // This form has no place for a kernel of its own.
            func: if told.func.is_null() {
                told.kern.cast()
            } else {
                told.func
            },
            gridDimX: told.gridDimX,
            gridDimY: told.gridDimY,
            gridDimZ: told.gridDimZ,
            blockDimX: told.blockDimX,
            blockDimY: told.blockDimY,
            blockDimZ: told.blockDimZ,
            sharedMemBytes: told.sharedMemBytes,
            kernelParams: told.kernelParams,
            extra: told.extra,
        })
    }

    fn cuGraphKernelNodeGetParams_v2(
        &self,
        hNode: CUgraphNode,
    ) -> Result<CUDA_KERNEL_NODE_PARAMS, CUresult> {
        self.with_node(hNode, |node| node.tell_kernel())
    }

    fn cuGraphKernelNodeSetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: Vouched<'_, CUDA_KERNEL_NODE_PARAMS_v1>,
    ) -> Result<(), CUresult> {
        GraphCalls::cuGraphKernelNodeSetParams_v2(self, hNode, kernel_of_v1(nodeParams))
    }

    fn cuGraphKernelNodeSetParams_v2(
        &self,
        hNode: CUgraphNode,
        nodeParams: Vouched<'_, CUDA_KERNEL_NODE_PARAMS>,
    ) -> Result<(), CUresult> {
        self.with_node(hNode, |node| match &node.content {
            Content::Kernel(_) => Ok(()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })?;
        self.replace_content(hNode, self.given_kernel(nodeParams)?)
    }

    fn cuGraphKernelNodeCopyAttributes(
        &self,
        dst: CUgraphNode,
        src: CUgraphNode,
    ) -> Result<(), CUresult> {
        self.with_graphs(|graphs| {
            let words = match &graphs.node(src.addr() as u64)?.content {
                Content::Kernel(kernel) => kernel.work.attributes.clone(),
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            };
            match &mut graphs.node_mut(dst.addr() as u64)?.content {
                Content::Kernel(kernel) => kernel.work.attributes = words,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            Ok(())
        })
    }

    fn cuGraphKernelNodeGetAttribute(
        &self,
        hNode: CUgraphNode,
        attr: CUkernelNodeAttrID,
    ) -> Result<CUlaunchAttributeValue, CUresult> {
        let required = self.required_cluster_of(hNode)?;
        self.with_node(hNode, |node| match (&node.content, required) {
            (Content::Kernel(_), Some([width, height, depth]))
                if attr == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION =>
            {
                let first = u64::from(width) | u64::from(height) << 32;
                Ok(value_of(&[first, u64::from(depth), 0, 0, 0, 0, 0, 0]))
            }
            (Content::Kernel(kernel), _) if is_node_attribute(attr) => {
                Ok(value_of(kernel.attribute(attr).unwrap_or(&[0; 8])))
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuGraphKernelNodeSetAttribute(
        &self,
        hNode: CUgraphNode,
        attr: CUkernelNodeAttrID,
        value: Vouched<'_, CUlaunchAttributeValue>,
    ) -> Result<(), CUresult> {
        if attr == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let requires = self.required_cluster_of(hNode)?.is_some();
        if requires && attr == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION {
            return Err(CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        self.with_node(hNode, |node| match &mut node.content {
            Content::Kernel(kernel) if is_node_attribute(attr) => {
                kernel.set_attribute(attr, words_of(&value));
                Ok(())
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuGraphAddMemcpyNode(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        copyParams: Option<Vouched<'_, CUDA_MEMCPY3D>>,
        ctx: CUcontext,
    ) -> Result<CUgraphNode, CUresult> {
        let is_body = lock(&self.graphs).is_body(hGraph.addr() as u64);
        if let Some(copy) = copyParams.as_ref().filter(|_| is_body) {
            self.reach_pins(copy)?;
        }
        let content = self.copy_in(ctx, copyParams)?;
        self.add_node(hGraph, dependencies, content)
    }

    fn cuGraphMemcpyNodeGetParams(&self, hNode: CUgraphNode) -> Result<CUDA_MEMCPY3D, CUresult> {
        self.with_node(hNode, |node| match &node.content {
            Content::Copy(copy) => Ok(copy.given.0),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuGraphMemcpyNodeSetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: Option<Vouched<'_, CUDA_MEMCPY3D>>,
    ) -> Result<(), CUresult> {
        let context = self.context_of_node(hNode)?;
        self.replace_content(hNode, self.copy_in(context, nodeParams)?)
    }

    fn cuGraphAddMemsetNode(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        memsetParams: &CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) -> Result<CUgraphNode, CUresult> {
        let content = self.fill_in(ctx, memsetParams)?;
        self.add_node(hGraph, dependencies, content)
    }

    fn cuGraphMemsetNodeGetParams(
        &self,
        hNode: CUgraphNode,
    ) -> Result<CUDA_MEMSET_NODE_PARAMS, CUresult> {
        self.with_node(hNode, |node| node.tell_fill())
    }

    fn cuGraphMemsetNodeSetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: &CUDA_MEMSET_NODE_PARAMS,
    ) -> Result<(), CUresult> {
        let context = self.context_of_node(hNode)?;
        self.replace_content(hNode, self.fill_in(context, nodeParams)?)
    }

    fn cuGraphAddHostNode(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        nodeParams: Vouched<'_, CUDA_HOST_NODE_PARAMS>,
    ) -> Result<CUgraphNode, CUresult> {
        let content = host_content(nodeParams.r#fn, nodeParams.userData)?;
        self.add_node(hGraph, dependencies, content)
    }

    fn cuGraphHostNodeGetParams(
        &self,
        hNode: CUgraphNode,
    ) -> Result<CUDA_HOST_NODE_PARAMS, CUresult> {
        self.with_node(hNode, |node| match &node.content {
            Content::Host(function, data) => Ok(CUDA_HOST_NODE_PARAMS {
                r#fn: *function,
                userData: pointer(*data),
            }),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuGraphHostNodeSetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: Vouched<'_, CUDA_HOST_NODE_PARAMS>,
    ) -> Result<(), CUresult> {
        let content = host_content(nodeParams.r#fn, nodeParams.userData)?;
        self.replace_content(hNode, content)
    }

    fn cuGraphAddChildGraphNode(
        &self,
        hGraph: CUgraph,
        dependencies: Option<&[CUgraphNode]>,
        _numDependencies: usize,
        childGraph: CUgraph,
    ) -> Result<CUgraphNode, CUresult> {
        // A graph that can be in none is refused whatever it is to stand behind.
        self.with_graphs(|graphs| graphs.check_child(childGraph.addr() as u64))?;
        let deps = super::dependencies(dependencies.ok_or(CUDA_ERROR_INVALID_VALUE)?, None);
        self.add_child(
            hGraph,
            &deps,
            childGraph,
            CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE,
        )
    }

    fn cuGraphChildGraphNodeGetGraph(&self, hNode: CUgraphNode) -> Result<CUgraph, CUresult> {
        self.with_node(hNode, |node| match &node.content {
            Content::Child(graph) => Ok(graph_handle(*graph)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuGraphAddEmptyNode(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
    ) -> Result<CUgraphNode, CUresult> {
        self.add_node(hGraph, dependencies, Content::Empty)
    }

    fn cuGraphAddEventRecordNode(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        event: CUevent,
    ) -> Result<CUgraphNode, CUresult> {
        let content = Content::Record(self.event_number(event)?);
        self.add_node(hGraph, dependencies, content)
    }

    fn cuGraphEventRecordNodeGetEvent(&self, hNode: CUgraphNode) -> Result<CUevent, CUresult> {
        self.with_node(hNode, |node| match &node.content {
            Content::Record(event) => Ok(EventHandle(*event).to_raw()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuGraphEventRecordNodeSetEvent(
        &self,
        hNode: CUgraphNode,
        event: CUevent,
    ) -> Result<(), CUresult> {
        self.replace_content(hNode, Content::Record(self.event_number(event)?))
    }

    fn cuGraphAddEventWaitNode(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        event: CUevent,
    ) -> Result<CUgraphNode, CUresult> {
        let content = Content::Wait(self.event_number(event)?);
        self.add_node(hGraph, dependencies, content)
    }

    fn cuGraphEventWaitNodeGetEvent(&self, hNode: CUgraphNode) -> Result<CUevent, CUresult> {
        self.with_node(hNode, |node| match &node.content {
            Content::Wait(event) => Ok(EventHandle(*event).to_raw()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuGraphEventWaitNodeSetEvent(
        &self,
        hNode: CUgraphNode,
        event: CUevent,
    ) -> Result<(), CUresult> {
        self.replace_content(hNode, Content::Wait(self.event_number(event)?))
    }

    fn cuGraphAddBatchMemOpNode(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        nodeParams: Vouched<'_, CUDA_BATCH_MEM_OP_NODE_PARAMS>,
    ) -> Result<CUgraphNode, CUresult> {
        let content = self.given_operations(nodeParams)?;
        self.add_node(hGraph, dependencies, content)
    }

    fn cuGraphBatchMemOpNodeGetParams(
        &self,
        hNode: CUgraphNode,
    ) -> Result<CUDA_BATCH_MEM_OP_NODE_PARAMS, CUresult> {
        self.with_node(hNode, |node| node.tell_operations())
    }

    fn cuGraphBatchMemOpNodeSetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: Vouched<'_, CUDA_BATCH_MEM_OP_NODE_PARAMS>,
    ) -> Result<(), CUresult> {
        self.replace_content(hNode, self.given_operations(nodeParams)?)
    }

    fn cuGraphAddMemAllocNode(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        nodeParams: InOut<'_, CUDA_MEM_ALLOC_NODE_PARAMS>,
    ) -> Result<CUgraphNode, CUresult> {
        let deps = super::dependencies(dependencies, None);
        let mut params = *nodeParams.given;
        let access = access_of(nodeParams.given)?;
        let (node, address) = self.add_allocation(hGraph.addr() as u64, &deps, &params, access)?;
        params.dptr = address;
        nodeParams.place.set(params);
        Ok(node_handle(node))
    }

    fn cuGraphMemAllocNodeGetParams(
        &self,
        hNode: CUgraphNode,
    ) -> Result<CUDA_MEM_ALLOC_NODE_PARAMS, CUresult> {
        self.with_node(hNode, |node| match &node.content {
            Content::Alloc(alloc) => {
                let mut told = alloc.given.0;
                told.accessDescs = alloc.access.as_ptr().cast();
                Ok(told)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuGraphAddMemFreeNode(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        dptr: CUdeviceptr,
    ) -> Result<CUgraphNode, CUresult> {
        let deps = super::dependencies(dependencies, None);
        let content = self.free_content_in(hGraph, &deps, dptr)?;
        self.add_content(hGraph, &deps, content)
    }

    fn cuGraphMemFreeNodeGetParams(&self, hNode: CUgraphNode) -> Result<CUdeviceptr, CUresult> {
        self.with_node(hNode, |node| match &node.content {
            Content::Free(address) => Ok(*address),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuGraphAddNode(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        nodeParams: InOut<'_, CUgraphNodeParams>,
    ) -> Result<CUgraphNode, CUresult> {
        GraphCalls::cuGraphAddNode_v2(self, hGraph, dependencies, None, nodeParams)
    }

    fn cuGraphAddNode_v2(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        dependencyData: Option<&[CUgraphEdgeData]>,
        nodeParams: InOut<'_, CUgraphNodeParams>,
    ) -> Result<CUgraphNode, CUresult> {
        let deps = super::dependencies(dependencies, dependencyData);
        self.add_any(hGraph, &deps, nodeParams)
    }

    fn cuGraphAddNode_v3(
        &self,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        dependencyData: Option<&[CUgraphEdgeData]>,
        nodeParams: InOut<'_, CUgraphNodeParams>,
    ) -> Result<CUgraphNode, CUresult> {
        GraphCalls::cuGraphAddNode_v2(self, hGraph, dependencies, dependencyData, nodeParams)
    }

    fn cuGraphNodeGetParams(&self, hNode: CUgraphNode) -> Result<CUgraphNodeParams, CUresult> {
        self.with_node(hNode, |node| node.tell())
    }

    fn cuGraphNodeSetParams_v2(
        &self,
        hNode: CUgraphNode,
        nodeParams: Vouched<'_, CUgraphNodeParams>,
    ) -> Result<(), CUresult> {
        self.replace_content(hNode, self.given(nodeParams)?)
    }

    fn cuGraphConditionalHandleCreate(
        &self,
        hGraph: CUgraph,
        ctx: CUcontext,
        defaultLaunchValue: u32,
        flags: u32,
    ) -> Result<CUgraphConditionalHandle, CUresult> {
        self.create_condition(hGraph.addr() as u64, ctx, defaultLaunchValue, flags)
    }

    fn cuGraphNodeGetType(&self, hNode: CUgraphNode) -> Result<CUgraphNodeType, CUresult> {
        self.with_node(hNode, |node| Ok(node.content.kind()))
    }

    fn cuGraphNodeGetContainingGraph(&self, hNode: CUgraphNode) -> Result<CUgraph, CUresult> {
        self.with_node(hNode, |node| Ok(graph_handle(node.graph)))
    }

    fn cuGraphNodeGetLocalId(&self, hNode: CUgraphNode) -> Result<u32, CUresult> {
        self.with_node(hNode, |node| Ok(node.local))
    }

    fn cuGraphNodeGetToolsId(&self, hNode: CUgraphNode) -> Result<u64, CUresult> {
        self.with_graphs(|graphs| {
            let node = graphs.node(hNode.addr() as u64)?;
            let graph = graphs.graph(node.graph)?;
            Ok(u64::from(graph.id) << 32 | u64::from(node.local))
        })
    }

    fn cuGraphGetId(&self, hGraph: CUgraph) -> Result<u32, CUresult> {
        self.with_graphs(|graphs| Ok(graphs.graph(hGraph.addr() as u64)?.id))
    }

    fn cuGraphExecGetId(&self, hGraphExec: CUgraphExec) -> Result<u32, CUresult> {
        self.exec(hGraphExec).map(|exec| exec.id)
    }

    fn cuGraphGetNodes(
        &self,
        hGraph: CUgraph,
        nodes: OutList<CUgraphNode>,
        numNodes: &mut usize,
    ) -> Result<(), CUresult> {
        let list =
            self.with_graphs(|graphs| Ok(graphs.graph(hGraph.addr() as u64)?.nodes.clone()))?;
        tell_nodes(&list, &nodes, numNodes)
    }

    fn cuGraphGetRootNodes(
        &self,
        hGraph: CUgraph,
        rootNodes: OutList<CUgraphNode>,
        numRootNodes: &mut usize,
    ) -> Result<(), CUresult> {
        let list = self.with_graphs(|graphs| {
            Ok(graphs
                .graph(hGraph.addr() as u64)?
                .roots
                .iter()
                .rev()
                .copied()
                .collect::<Vec<_>>())
        })?;
        tell_nodes(&list, &rootNodes, numRootNodes)
    }

    fn cuGraphGetEdges(
        &self,
        hGraph: CUgraph,
        from: OutList<CUgraphNode>,
        to: OutList<CUgraphNode>,
        numEdges: &mut usize,
    ) -> Result<(), CUresult> {
        GraphCalls::cuGraphGetEdges_v2(self, hGraph, from, to, OutList::none(), numEdges)
    }

    fn cuGraphGetEdges_v2(
        &self,
        hGraph: CUgraph,
        from: OutList<CUgraphNode>,
        to: OutList<CUgraphNode>,
        edgeData: OutList<CUgraphEdgeData>,
        numEdges: &mut usize,
    ) -> Result<(), CUresult> {
        tell_edges(&self.edges(hGraph)?, &from, &to, &edgeData, numEdges)
    }

    fn cuGraphNodeGetDependencies(
        &self,
        hNode: CUgraphNode,
        dependencies: OutList<CUgraphNode>,
        numDependencies: &mut usize,
    ) -> Result<(), CUresult> {
        GraphCalls::cuGraphNodeGetDependencies_v2(
            self,
            hNode,
            dependencies,
            OutList::none(),
            numDependencies,
        )
    }

    fn cuGraphNodeGetDependencies_v2(
        &self,
        hNode: CUgraphNode,
        dependencies: OutList<CUgraphNode>,
        edgeData: OutList<CUgraphEdgeData>,
        numDependencies: &mut usize,
    ) -> Result<(), CUresult> {
        let deps = self.with_node(hNode, |node| Ok(node.before.clone()))?;
        tell_deps(&deps, &dependencies, &edgeData, numDependencies)
    }

    fn cuGraphNodeGetDependentNodes(
        &self,
        hNode: CUgraphNode,
        dependentNodes: OutList<CUgraphNode>,
        numDependentNodes: &mut usize,
    ) -> Result<(), CUresult> {
        GraphCalls::cuGraphNodeGetDependentNodes_v2(
            self,
            hNode,
            dependentNodes,
            OutList::none(),
            numDependentNodes,
        )
    }

    fn cuGraphNodeGetDependentNodes_v2(
        &self,
        hNode: CUgraphNode,
        dependentNodes: OutList<CUgraphNode>,
        edgeData: OutList<CUgraphEdgeData>,
        numDependentNodes: &mut usize,
    ) -> Result<(), CUresult> {
        tell_deps(
            &self.after(hNode)?,
            &dependentNodes,
            &edgeData,
            numDependentNodes,
        )
    }

    fn cuGraphAddDependencies(
        &self,
        hGraph: CUgraph,
        from: &[CUgraphNode],
        to: &[CUgraphNode],
    ) -> Result<(), CUresult> {
        GraphCalls::cuGraphAddDependencies_v2(self, hGraph, from, to, None)
    }

    fn cuGraphAddDependencies_v2(
        &self,
        hGraph: CUgraph,
        from: &[CUgraphNode],
        to: &[CUgraphNode],
        edgeData: Option<&[CUgraphEdgeData]>,
    ) -> Result<(), CUresult> {
        self.with_graphs(|graphs| {
            let graph = hGraph.addr() as u64;
            graphs.graph(graph)?;
            edges_of(from, to, edgeData).try_for_each(|(dep, to)| graphs.tie(graph, to, dep))
        })
    }

    fn cuGraphRemoveDependencies(
        &self,
        hGraph: CUgraph,
        from: &[CUgraphNode],
        to: &[CUgraphNode],
    ) -> Result<(), CUresult> {
        self.with_graphs(|graphs| {
            let graph = hGraph.addr() as u64;
            graphs.expect_loosable(graph)?;
            edges_of(from, to, None).try_for_each(|(dep, to)| graphs.untie(graph, to, dep.node))
        })
    }

    fn cuGraphRemoveDependencies_v2(
        &self,
        hGraph: CUgraph,
        from: &[CUgraphNode],
        to: &[CUgraphNode],
        edgeData: Option<&[CUgraphEdgeData]>,
    ) -> Result<(), CUresult> {
        self.with_graphs(|graphs| {
            let graph = hGraph.addr() as u64;
            graphs.expect_loosable(graph)?;
            edges_of(from, to, edgeData).try_for_each(|(dep, to)| {
                // An edge is known by its data too.
                if !graphs.node(to)?.before.contains(&dep) {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                graphs.untie(graph, to, dep.node)
            })
        })
    }

    fn cuGraphDestroyNode(&self, hNode: CUgraphNode) -> Result<(), CUresult> {
        self.with_graphs(|graphs| {
            let node = hNode.addr() as u64;
            let graph = graphs.node(node)?.graph;
            graphs.expect_loosable(graph)?;
            graphs.expect_uncaptured(graph)?;
            graphs.remove_node(node)
        })
    }

    fn cuGraphInstantiate_v2(
        &self,
        phGraphExec: Out<CUgraphExec>,
        hGraph: CUgraph,
        phErrorNode: Out<CUgraphNode>,
        logBuffer: OutList<u8>,
    ) -> Result<(), CUresult> {
        if !phGraphExec.wanted() {
            self.current()?;
            self.safe_in_captures()?;
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let made = self.instantiate(hGraph.addr() as u64, 0, std::ptr::null_mut());
        let node = made.as_ref().err().map_or(0, |unmade| unmade.node);
        phErrorNode.set(node_handle(node));
        // The driver's words stay on the server.
        logBuffer.set(0, 0);
        phGraphExec.set(made.map_err(|unmade| unmade.status)?);
        Ok(())
    }

    fn cuGraphInstantiateWithFlags(
        &self,
        phGraphExec: Out<CUgraphExec>,
        hGraph: CUgraph,
        flags: u64,
    ) -> Result<(), CUresult> {
        self.ready()?;
        // An upload needs a stream, which this form has not.
        let upload = u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
        if flags & upload != 0 || flags & !super::exec::INSTANTIATE_FLAGS != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.current()?;
        self.safe_in_captures()?;
        if !phGraphExec.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let made = self.instantiate(hGraph.addr() as u64, flags, std::ptr::null_mut());
        phGraphExec.set(made.map_err(|unmade| unmade.status)?);
        Ok(())
    }

    fn cuGraphInstantiateWithParams(
        &self,
        hGraph: CUgraph,
        instantiateParams: &mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) -> Result<CUgraphExec, CUresult> {
        let params = instantiateParams;
        let made = self.instantiate(hGraph.addr() as u64, params.flags, params.hUploadStream);
        let (result, node) = match &made {
            Ok(_) => (CUDA_GRAPH_INSTANTIATE_SUCCESS, 0),
            Err(unmade) => (unmade.result, unmade.node),
        };
        (params.result_out, params.hErrNode_out) = (result, node_handle(node));
        made.map_err(|unmade| unmade.status)
    }

    fn cuGraphExecGetFlags(&self, hGraphExec: CUgraphExec) -> Result<cuuint64_t, CUresult> {
        // Whether nodes have priorities is not told, nor whether it was to be uploaded (seen with driver 580.159).
        let told = !u64::from(
            CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
        );
        self.exec(hGraphExec).map(|exec| exec.flags & told)
    }

    fn cuGraphUpload(&self, hGraphExec: CUgraphExec, hStream: CUstream) -> Result<(), CUresult> {
        self.upload(hGraphExec, hStream)
    }

    fn cuGraphLaunch(&self, hGraphExec: CUgraphExec, hStream: CUstream) -> Result<(), CUresult> {
        self.launch_graph(hGraphExec, hStream)
    }

    fn cuGraphExecDestroy(&self, hGraphExec: CUgraphExec) -> Result<(), CUresult> {
        self.safe_in_captures()?;
        self.destroy_exec(hGraphExec)
    }

    fn cuGraphExecUpdate(
        &self,
        hGraphExec: CUgraphExec,
        hGraph: CUgraph,
        hErrorNode_out: Out<CUgraphNode>,
        updateResult_out: Out<CUgraphExecUpdateResult>,
    ) -> Result<(), CUresult> {
        let (said, result, node) = self.update_told(hGraphExec, hGraph)?;
        hErrorNode_out.set(node_handle(node));
        updateResult_out.set(result);
        said
    }

    fn cuGraphExecUpdate_v2(
        &self,
        hGraphExec: CUgraphExec,
        hGraph: CUgraph,
        resultInfo: Out<CUgraphExecUpdateResultInfo>,
    ) -> Result<(), CUresult> {
        let (said, result, node) = self.update_told(hGraphExec, hGraph)?;
        resultInfo.set(CUgraphExecUpdateResultInfo {
            result,
            errorNode: node_handle(node),
            errorFromNode: std::ptr::null_mut(),
        });
        said
    }

    fn cuGraphExecKernelNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: Vouched<'_, CUDA_KERNEL_NODE_PARAMS_v1>,
    ) -> Result<(), CUresult> {
        GraphCalls::cuGraphExecKernelNodeSetParams_v2(
            self,
            hGraphExec,
            hNode,
            kernel_of_v1(nodeParams),
        )
    }

    fn cuGraphExecKernelNodeSetParams_v2(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: Vouched<'_, CUDA_KERNEL_NODE_PARAMS>,
    ) -> Result<(), CUresult> {
        self.change_node(hGraphExec, hNode, self.given_kernel(nodeParams)?)
    }

    fn cuGraphExecMemcpyNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        copyParams: Option<Vouched<'_, CUDA_MEMCPY3D>>,
        ctx: CUcontext,
    ) -> Result<(), CUresult> {
        self.change_node(hGraphExec, hNode, self.copy_in(ctx, copyParams)?)
    }

    fn cuGraphExecMemsetNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        memsetParams: &CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) -> Result<(), CUresult> {
        self.change_node(hGraphExec, hNode, self.fill_in(ctx, memsetParams)?)
    }

    fn cuGraphExecHostNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: Vouched<'_, CUDA_HOST_NODE_PARAMS>,
    ) -> Result<(), CUresult> {
        let content = host_content(nodeParams.r#fn, nodeParams.userData)?;
        self.change_node(hGraphExec, hNode, content)
    }

    fn cuGraphExecChildGraphNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        childGraph: CUgraph,
    ) -> Result<(), CUresult> {
        self.update_child(hGraphExec, hNode, childGraph.addr() as u64)
    }

    fn cuGraphExecEventRecordNodeSetEvent(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        event: CUevent,
    ) -> Result<(), CUresult> {
        let content = Content::Record(self.event_number(event)?);
        self.change_node(hGraphExec, hNode, content)
    }

    fn cuGraphExecEventWaitNodeSetEvent(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        event: CUevent,
    ) -> Result<(), CUresult> {
        let content = Content::Wait(self.event_number(event)?);
        self.change_node(hGraphExec, hNode, content)
    }

    fn cuGraphExecBatchMemOpNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: Vouched<'_, CUDA_BATCH_MEM_OP_NODE_PARAMS>,
    ) -> Result<(), CUresult> {
        self.change_node(hGraphExec, hNode, self.given_operations(nodeParams)?)
    }

    fn cuGraphExecNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: Vouched<'_, CUgraphNodeParams>,
    ) -> Result<(), CUresult> {
        if nodeParams.r#type == CU_GRAPH_NODE_TYPE_GRAPH {
            // SAFETY: the kind says that it is this.
            let child = unsafe { nodeParams.either.graph }.graph;
            return self.update_child(hGraphExec, hNode, child.addr() as u64);
        }
        self.change_node(hGraphExec, hNode, self.given(nodeParams)?)
    }

    fn cuGraphNodeSetEnabled(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        isEnabled: u32,
    ) -> Result<(), CUresult> {
        self.enable(hGraphExec, hNode, isEnabled)
    }

    fn cuGraphNodeGetEnabled(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
    ) -> Result<u32, CUresult> {
        self.is_enabled(hGraphExec, hNode)
    }

    fn cuGraphDebugDotPrint(
        &self,
        hGraph: CUgraph,
        path: &[u8],
        flags: u32,
    ) -> Result<(), CUresult> {
        self.draw_graph(hGraph, path, flags)
    }

    unsafe fn cuUserObjectCreate(
        &self,
        ptr: *mut c_void,
        destroy: CUhostFn,
        initialRefcount: u32,
        flags: u32,
    ) -> Result<CUuserObject, CUresult> {
        self.create_object(ptr.expose_provenance(), destroy, initialRefcount, flags)
    }

    fn cuUserObjectRetain(&self, object: CUuserObject, count: u32) -> Result<(), CUresult> {
        self.with_graphs(|graphs| graphs.objects.retain(object.addr() as u64, count))
    }

    fn cuUserObjectRelease(&self, object: CUuserObject, count: u32) -> Result<(), CUresult> {
        self.with_graphs(|graphs| graphs.objects.release(object.addr() as u64, count))
    }

    fn cuGraphRetainUserObject(
        &self,
        graph: CUgraph,
        object: CUuserObject,
        count: u32,
        flags: u32,
    ) -> Result<(), CUresult> {
        self.with_graphs(|graphs| {
            let (graph, object) = (graph.addr() as u64, object.addr() as u64);
            graphs.graph(graph)?;
            match flags {
                0 => graphs.objects.retain(object, count)?,
                // The caller's own references become the graph's.
                CU_GRAPH_USER_OBJECT_MOVE if count > 0 => graphs.objects.check(object)?,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            graphs.graph_mut(graph)?.objects.take(object, count);
            Ok(())
        })
    }

    fn cuGraphReleaseUserObject(
        &self,
        graph: CUgraph,
        object: CUuserObject,
        count: u32,
    ) -> Result<(), CUresult> {
        self.with_graphs(|graphs| {
            let graph = graphs.graph_mut(graph.addr() as u64)?;
            graph.objects.release(object.addr() as u64, count)
        })
    }
}
