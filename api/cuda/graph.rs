//! Graphs. What they are is the client's; a server learns of one when it is made executable (`GraphInstantiate`), which waits for its
//! verdict, and of its launches.

extern "C" {
    /// Creates an empty graph.
    #[call(id = 0x0c01, local, since = "10.0")]
    fn cuGraphCreate(#[out] phGraph: *mut CUgraph, flags: u32) -> CUresult;

    /// Ends a graph.
    #[call(id = 0x0c02, local, since = "10.0")]
    fn cuGraphDestroy(hGraph: CUgraph) -> CUresult;

    /// Copies a graph.
    #[call(id = 0x0c03, local, since = "10.0")]
    fn cuGraphClone(#[out] phGraphClone: *mut CUgraph, originalGraph: CUgraph) -> CUresult;

    /// Finds the copy of a node in a copied graph.
    #[call(id = 0x0c04, local, since = "10.0")]
    fn cuGraphNodeFindInClone(
        #[out(place)] phNode: *mut CUgraphNode,
        hOriginalNode: CUgraphNode,
        hClonedGraph: CUgraph,
    ) -> CUresult;

    /// Adds a kernel launch to a graph: the form without a context.
    #[call(id = 0x0c05, local, manual(client), since = "10.0")]
    fn cuGraphAddKernelNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        #[input] nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult;

    /// Adds a kernel launch to a graph.
    #[call(id = 0x0c06, local, manual(client), since = "12.0")]
    fn cuGraphAddKernelNode_v2(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        #[input] nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult;

    /// Tells the launch of a kernel node: the form without a context.
    #[call(id = 0x0c07, local, since = "10.0")]
    fn cuGraphKernelNodeGetParams(
        hNode: CUgraphNode,
        #[out] nodeParams: *mut CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult;

    /// Tells the launch of a kernel node.
    #[call(id = 0x0c08, local, since = "12.0")]
    fn cuGraphKernelNodeGetParams_v2(
        hNode: CUgraphNode,
        #[out] nodeParams: *mut CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult;

    /// Replaces the launch of a kernel node: the form without a context.
    #[call(id = 0x0c09, local, manual(client), since = "10.0")]
    fn cuGraphKernelNodeSetParams(
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult;

    /// Replaces the launch of a kernel node.
    #[call(id = 0x0c0a, local, manual(client), since = "12.0")]
    fn cuGraphKernelNodeSetParams_v2(
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult;

    /// Copies the launch attributes of a kernel node to another.
    #[call(id = 0x0c0b, local, since = "11.0")]
    fn cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode) -> CUresult;

    /// Tells a launch attribute of a kernel node.
    #[call(id = 0x0c0c, local, manual(client), since = "11.0")]
    fn cuGraphKernelNodeGetAttribute(
        hNode: CUgraphNode,
        attr: CUkernelNodeAttrID,
        #[out] value_out: *mut CUlaunchAttributeValue,
    ) -> CUresult;

    /// Sets a launch attribute of a kernel node.
    #[call(id = 0x0c0d, local, manual(client), since = "11.0")]
    fn cuGraphKernelNodeSetAttribute(
        hNode: CUgraphNode,
        attr: CUkernelNodeAttrID,
        #[input] value: *const CUlaunchAttributeValue,
    ) -> CUresult;

    /// Adds a copy to a graph.
    #[call(id = 0x0c0e, local, manual(client), since = "10.0")]
    fn cuGraphAddMemcpyNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        #[input(nullable)] copyParams: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
    ) -> CUresult;

    /// Tells the copy of a node.
    #[call(id = 0x0c0f, local, since = "10.0")]
    fn cuGraphMemcpyNodeGetParams(
        hNode: CUgraphNode,
        #[out] nodeParams: *mut CUDA_MEMCPY3D,
    ) -> CUresult;

    /// Replaces the copy of a node.
    #[call(id = 0x0c10, local, manual(client), since = "10.0")]
    fn cuGraphMemcpyNodeSetParams(
        hNode: CUgraphNode,
        #[input(nullable)] nodeParams: *const CUDA_MEMCPY3D,
    ) -> CUresult;

    /// Adds a fill to a graph.
    #[call(id = 0x0c11, local, manual(client), since = "10.0")]
    fn cuGraphAddMemsetNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        #[input] memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) -> CUresult;

    /// Tells the fill of a node.
    #[call(id = 0x0c12, local, since = "10.0")]
    fn cuGraphMemsetNodeGetParams(
        hNode: CUgraphNode,
        #[out] nodeParams: *mut CUDA_MEMSET_NODE_PARAMS,
    ) -> CUresult;

    /// Replaces the fill of a node.
    #[call(id = 0x0c13, local, manual(client), since = "10.0")]
    fn cuGraphMemsetNodeSetParams(
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_MEMSET_NODE_PARAMS,
    ) -> CUresult;

    /// Adds a call of the application's function to a graph.
    #[call(id = 0x0c14, local, manual(client), since = "10.0")]
    fn cuGraphAddHostNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        #[input] nodeParams: *const CUDA_HOST_NODE_PARAMS,
    ) -> CUresult;

    /// Tells the function of a node.
    #[call(id = 0x0c15, local, since = "10.0")]
    fn cuGraphHostNodeGetParams(
        hNode: CUgraphNode,
        #[out] nodeParams: *mut CUDA_HOST_NODE_PARAMS,
    ) -> CUresult;

    /// Replaces the function of a node.
    #[call(id = 0x0c16, local, manual(client), since = "10.0")]
    fn cuGraphHostNodeSetParams(
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_HOST_NODE_PARAMS,
    ) -> CUresult;

    /// Adds a graph to a graph.
    #[call(id = 0x0c17, local, manual(client), since = "10.0")]
    fn cuGraphAddChildGraphNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies, nullable)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        childGraph: CUgraph,
    ) -> CUresult;

    /// Tells the graph of a node.
    #[call(id = 0x0c18, local, since = "10.0")]
    fn cuGraphChildGraphNodeGetGraph(hNode: CUgraphNode, #[out] phGraph: *mut CUgraph) -> CUresult;

    /// Adds a node that only orders others.
    #[call(id = 0x0c19, local, since = "10.0")]
    fn cuGraphAddEmptyNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
    ) -> CUresult;

    /// Adds the recording of an event to a graph.
    #[call(id = 0x0c1a, local, since = "11.1")]
    fn cuGraphAddEventRecordNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        event: CUevent,
    ) -> CUresult;

    /// Tells the event that a node records.
    #[call(id = 0x0c1b, local, since = "11.1")]
    fn cuGraphEventRecordNodeGetEvent(
        hNode: CUgraphNode,
        #[out] event_out: *mut CUevent,
    ) -> CUresult;

    /// Replaces the event that a node records.
    #[call(id = 0x0c1c, local, since = "11.1")]
    fn cuGraphEventRecordNodeSetEvent(hNode: CUgraphNode, event: CUevent) -> CUresult;

    /// Adds the wait for an event to a graph.
    #[call(id = 0x0c1d, local, since = "11.1")]
    fn cuGraphAddEventWaitNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        event: CUevent,
    ) -> CUresult;

    /// Tells the event that a node waits for.
    #[call(id = 0x0c1e, local, since = "11.1")]
    fn cuGraphEventWaitNodeGetEvent(hNode: CUgraphNode, #[out] event_out: *mut CUevent)
    -> CUresult;

    /// Replaces the event that a node waits for.
    #[call(id = 0x0c1f, local, since = "11.1")]
    fn cuGraphEventWaitNodeSetEvent(hNode: CUgraphNode, event: CUevent) -> CUresult;

    /// Adds the signal of external semaphores to a graph.
    #[call(id = 0x0c20, unsupported, since = "11.2")]
    fn cuGraphAddExternalSemaphoresSignalNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        #[input] nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
    ) -> CUresult;

    /// Tells the semaphores that a node signals.
    #[call(id = 0x0c21, unsupported, since = "11.2")]
    fn cuGraphExternalSemaphoresSignalNodeGetParams(
        hNode: CUgraphNode,
        #[out] params_out: *mut CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
    ) -> CUresult;

    /// Replaces the semaphores that a node signals.
    #[call(id = 0x0c22, unsupported, since = "11.2")]
    fn cuGraphExternalSemaphoresSignalNodeSetParams(
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
    ) -> CUresult;

    /// Adds the wait for external semaphores to a graph.
    #[call(id = 0x0c23, unsupported, since = "11.2")]
    fn cuGraphAddExternalSemaphoresWaitNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        #[input] nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    ) -> CUresult;

    /// Tells the semaphores that a node waits for.
    #[call(id = 0x0c24, unsupported, since = "11.2")]
    fn cuGraphExternalSemaphoresWaitNodeGetParams(
        hNode: CUgraphNode,
        #[out] params_out: *mut CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    ) -> CUresult;

    /// Replaces the semaphores that a node waits for.
    #[call(id = 0x0c25, unsupported, since = "11.2")]
    fn cuGraphExternalSemaphoresWaitNodeSetParams(
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    ) -> CUresult;

    /// Adds waits for and writes of values to a graph.
    #[call(id = 0x0c26, local, manual(client), since = "11.7")]
    fn cuGraphAddBatchMemOpNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        #[input] nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult;

    /// Tells the values of a node.
    #[call(id = 0x0c27, local, since = "11.7")]
    fn cuGraphBatchMemOpNodeGetParams(
        hNode: CUgraphNode,
        #[out] nodeParams_out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult;

    /// Replaces the values of a node.
    #[call(id = 0x0c28, local, manual(client), since = "11.7")]
    fn cuGraphBatchMemOpNodeSetParams(
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult;

    /// Adds an allocation to a graph.
    #[call(id = 0x0c29, local, manual(client), since = "11.4")]
    fn cuGraphAddMemAllocNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        #[inout] nodeParams: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> CUresult;

    /// Tells the allocation of a node.
    #[call(id = 0x0c2a, local, since = "11.4")]
    fn cuGraphMemAllocNodeGetParams(
        hNode: CUgraphNode,
        #[out] params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> CUresult;

    /// Adds the end of an allocation to a graph.
    #[call(id = 0x0c2b, local, since = "11.4")]
    fn cuGraphAddMemFreeNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        dptr: CUdeviceptr,
    ) -> CUresult;

    /// Tells the address that a node frees.
    #[call(id = 0x0c2c, local, since = "11.4")]
    fn cuGraphMemFreeNodeGetParams(
        hNode: CUgraphNode,
        #[out] dptr_out: *mut CUdeviceptr,
    ) -> CUresult;

    /// Adds a node of any kind to a graph: CUDA 12.2's form, without edge data.
    #[call(id = 0x0c2d, local, manual(client), since = "12.2")]
    fn cuGraphAddNode(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        numDependencies: usize,
        #[inout] nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;

    /// Adds a node of any kind to a graph: CUDA 12.3's form.
    #[call(id = 0x0c2e, local, manual(client), since = "12.3")]
    fn cuGraphAddNode_v2(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        #[input(len = numDependencies, nullable)] dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        #[inout] nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;

    /// Adds a node of any kind to a graph.
    #[call(id = 0x0c2f, local, manual(client), since = "13.4")]
    fn cuGraphAddNode_v3(
        #[out] phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        #[input(len = numDependencies)] dependencies: *const CUgraphNode,
        #[input(len = numDependencies, nullable)] dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        #[inout] nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;

    /// Tells the parameters of any node.
    #[call(id = 0x0c30, local, since = "13.2")]
    fn cuGraphNodeGetParams(
        hNode: CUgraphNode,
        #[out] nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;

    /// Replaces the parameters of any node.
    #[call(
        id = 0x0c31,
        local,
        manual(client),
        since = "13.4",
        alias = "cuGraphNodeSetParams@12.2"
    )]
    fn cuGraphNodeSetParams_v2(
        hNode: CUgraphNode,
        #[input] nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;

    /// Creates the value that a conditional node looks at.
    #[call(id = 0x0c32, local, since = "12.3")]
    fn cuGraphConditionalHandleCreate(
        #[out] pHandle_out: *mut CUgraphConditionalHandle,
        hGraph: CUgraph,
        ctx: CUcontext,
        defaultLaunchValue: u32,
        flags: u32,
    ) -> CUresult;

    /// Tells the kind of a node.
    #[call(id = 0x0c33, local, since = "10.0")]
    fn cuGraphNodeGetType(hNode: CUgraphNode, #[out] r#type: *mut CUgraphNodeType) -> CUresult;

    /// Tells the graph that a node is in.
    #[call(id = 0x0c34, local, since = "13.1")]
    fn cuGraphNodeGetContainingGraph(hNode: CUgraphNode, #[out] phGraph: *mut CUgraph) -> CUresult;

    /// Tells a node's number in its graph.
    #[call(id = 0x0c35, local, since = "13.1")]
    fn cuGraphNodeGetLocalId(hNode: CUgraphNode, #[out] nodeId: *mut u32) -> CUresult;

    /// Tells a node's number for tools.
    #[call(id = 0x0c36, local, since = "13.1")]
    fn cuGraphNodeGetToolsId(hNode: CUgraphNode, #[out] toolsNodeId: *mut u64) -> CUresult;

    /// Tells a graph's number.
    #[call(id = 0x0c37, local, since = "13.1")]
    fn cuGraphGetId(hGraph: CUgraph, #[out] graphId: *mut u32) -> CUresult;

    /// Tells an executable graph's number.
    #[call(id = 0x0c38, local, since = "13.1")]
    fn cuGraphExecGetId(hGraphExec: CUgraphExec, #[out] graphId: *mut u32) -> CUresult;

    /// Lists the nodes of a graph.
    #[call(id = 0x0c39, local, manual(client), since = "10.0")]
    fn cuGraphGetNodes(
        hGraph: CUgraph,
        #[out(len = numNodes, nullable)] nodes: *mut CUgraphNode,
        #[inout] numNodes: *mut usize,
    ) -> CUresult;

    /// Lists the nodes that depend on none.
    #[call(id = 0x0c3a, local, manual(client), since = "10.0")]
    fn cuGraphGetRootNodes(
        hGraph: CUgraph,
        #[out(len = numRootNodes, nullable)] rootNodes: *mut CUgraphNode,
        #[inout] numRootNodes: *mut usize,
    ) -> CUresult;

    /// Lists the edges of a graph: the form without edge data.
    #[call(id = 0x0c3b, local, manual(client), since = "10.0")]
    fn cuGraphGetEdges(
        hGraph: CUgraph,
        #[out(len = numEdges, nullable)] from: *mut CUgraphNode,
        #[out(len = numEdges, nullable)] to: *mut CUgraphNode,
        #[inout] numEdges: *mut usize,
    ) -> CUresult;

    /// Lists the edges of a graph.
    #[call(id = 0x0c3c, local, manual(client), since = "12.3")]
    fn cuGraphGetEdges_v2(
        hGraph: CUgraph,
        #[out(len = numEdges, nullable)] from: *mut CUgraphNode,
        #[out(len = numEdges, nullable)] to: *mut CUgraphNode,
        #[out(len = numEdges, nullable)] edgeData: *mut CUgraphEdgeData,
        #[inout] numEdges: *mut usize,
    ) -> CUresult;

    /// Lists what a node depends on: the form without edge data.
    #[call(id = 0x0c3d, local, manual(client), since = "10.0")]
    fn cuGraphNodeGetDependencies(
        hNode: CUgraphNode,
        #[out(len = numDependencies, nullable)] dependencies: *mut CUgraphNode,
        #[inout] numDependencies: *mut usize,
    ) -> CUresult;

    /// Lists what a node depends on.
    #[call(id = 0x0c3e, local, manual(client), since = "12.3")]
    fn cuGraphNodeGetDependencies_v2(
        hNode: CUgraphNode,
        #[out(len = numDependencies, nullable)] dependencies: *mut CUgraphNode,
        #[out(len = numDependencies, nullable)] edgeData: *mut CUgraphEdgeData,
        #[inout] numDependencies: *mut usize,
    ) -> CUresult;

    /// Lists what depends on a node: the form without edge data.
    #[call(id = 0x0c3f, local, manual(client), since = "10.0")]
    fn cuGraphNodeGetDependentNodes(
        hNode: CUgraphNode,
        #[out(len = numDependentNodes, nullable)] dependentNodes: *mut CUgraphNode,
        #[inout] numDependentNodes: *mut usize,
    ) -> CUresult;

    /// Lists what depends on a node.
    #[call(id = 0x0c40, local, manual(client), since = "12.3")]
    fn cuGraphNodeGetDependentNodes_v2(
        hNode: CUgraphNode,
        #[out(len = numDependentNodes, nullable)] dependentNodes: *mut CUgraphNode,
        #[out(len = numDependentNodes, nullable)] edgeData: *mut CUgraphEdgeData,
        #[inout] numDependentNodes: *mut usize,
    ) -> CUresult;

    /// Adds edges to a graph: the form without edge data.
    #[call(id = 0x0c41, local, manual(client), since = "10.0")]
    fn cuGraphAddDependencies(
        hGraph: CUgraph,
        #[input(len = numDependencies)] from: *const CUgraphNode,
        #[input(len = numDependencies)] to: *const CUgraphNode,
        numDependencies: usize,
    ) -> CUresult;

    /// Adds edges to a graph.
    #[call(id = 0x0c42, local, since = "12.3")]
    fn cuGraphAddDependencies_v2(
        hGraph: CUgraph,
        #[input(len = numDependencies)] from: *const CUgraphNode,
        #[input(len = numDependencies)] to: *const CUgraphNode,
        #[input(len = numDependencies, nullable)] edgeData: *const CUgraphEdgeData,
        numDependencies: usize,
    ) -> CUresult;

    /// Removes edges from a graph: the form without edge data.
    #[call(id = 0x0c43, local, manual(client), since = "10.0")]
    fn cuGraphRemoveDependencies(
        hGraph: CUgraph,
        #[input(len = numDependencies)] from: *const CUgraphNode,
        #[input(len = numDependencies)] to: *const CUgraphNode,
        numDependencies: usize,
    ) -> CUresult;

    /// Removes edges from a graph.
    #[call(id = 0x0c44, local, since = "12.3")]
    fn cuGraphRemoveDependencies_v2(
        hGraph: CUgraph,
        #[input(len = numDependencies)] from: *const CUgraphNode,
        #[input(len = numDependencies)] to: *const CUgraphNode,
        #[input(len = numDependencies, nullable)] edgeData: *const CUgraphEdgeData,
        numDependencies: usize,
    ) -> CUresult;

    /// Removes a node from its graph.
    #[call(id = 0x0c45, local, since = "10.0")]
    fn cuGraphDestroyNode(hNode: CUgraphNode) -> CUresult;

    /// Makes a graph executable: CUDA 11's form, with a log.
    #[call(
        id = 0x0c46,
        local,
        manual(client),
        since = "11.0",
        alias = "cuGraphInstantiate@10.0"
    )]
    fn cuGraphInstantiate_v2(
        #[out(place)] phGraphExec: *mut CUgraphExec,
        hGraph: CUgraph,
        #[out(nullable)] phErrorNode: *mut CUgraphNode,
        #[out(bytes = bufferSize, nullable)] logBuffer: *mut c_char,
        bufferSize: usize,
    ) -> CUresult;

    /// Makes a graph executable.
    #[call(id = 0x0c47, local, manual(client), since = "11.4")]
    fn cuGraphInstantiateWithFlags(
        #[out(place)] phGraphExec: *mut CUgraphExec,
        hGraph: CUgraph,
        flags: u64,
    ) -> CUresult;

    /// Makes a graph executable, and uploads it if wanted.
    #[call(
        id = 0x0c48,
        local,
        manual(client),
        since = "12.0",
        per_thread = "cuGraphInstantiateWithParams_ptsz@12.0"
    )]
    fn cuGraphInstantiateWithParams(
        #[out] phGraphExec: *mut CUgraphExec,
        hGraph: CUgraph,
        #[inout] instantiateParams: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) -> CUresult;

    /// Tells the flags that a graph was made executable with.
    #[call(id = 0x0c49, local, since = "12.0")]
    fn cuGraphExecGetFlags(hGraphExec: CUgraphExec, #[out] flags: *mut cuuint64_t) -> CUresult;

    /// Brings an executable graph to the device ahead of its launch.
    #[call(
        id = 0x0c4a,
        local,
        since = "11.1",
        per_thread = "cuGraphUpload_ptsz@11.1"
    )]
    fn cuGraphUpload(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult;

    /// Launches an executable graph.
    #[call(
        id = 0x0c4b,
        local,
        manual(client),
        since = "10.0",
        per_thread = "cuGraphLaunch_ptsz@10.0"
    )]
    fn cuGraphLaunch(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult;

    /// Ends an executable graph.
    #[call(id = 0x0c4c, local, since = "10.0")]
    fn cuGraphExecDestroy(hGraphExec: CUgraphExec) -> CUresult;

    /// Changes an executable graph to be like another: CUDA 10's form.
    #[call(id = 0x0c4d, local, manual(client), since = "10.2")]
    fn cuGraphExecUpdate(
        hGraphExec: CUgraphExec,
        hGraph: CUgraph,
        #[out(nullable)] hErrorNode_out: *mut CUgraphNode,
        #[out(nullable)] updateResult_out: *mut CUgraphExecUpdateResult,
    ) -> CUresult;

    /// Changes an executable graph to be like another.
    #[call(id = 0x0c4e, local, manual(client), since = "12.0")]
    fn cuGraphExecUpdate_v2(
        hGraphExec: CUgraphExec,
        hGraph: CUgraph,
        #[out(nullable)] resultInfo: *mut CUgraphExecUpdateResultInfo,
    ) -> CUresult;

    /// Replaces a launch in an executable graph: the form without a context.
    #[call(id = 0x0c4f, local, manual(client), since = "10.1")]
    fn cuGraphExecKernelNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult;

    /// Replaces a launch in an executable graph.
    #[call(id = 0x0c50, local, manual(client), since = "12.0")]
    fn cuGraphExecKernelNodeSetParams_v2(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult;

    /// Replaces a copy in an executable graph.
    #[call(id = 0x0c51, local, manual(client), since = "10.2")]
    fn cuGraphExecMemcpyNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        #[input(nullable)] copyParams: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
    ) -> CUresult;

    /// Replaces a fill in an executable graph.
    #[call(id = 0x0c52, local, manual(client), since = "10.2")]
    fn cuGraphExecMemsetNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        #[input] memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) -> CUresult;

    /// Replaces a function in an executable graph.
    #[call(id = 0x0c53, local, manual(client), since = "10.2")]
    fn cuGraphExecHostNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_HOST_NODE_PARAMS,
    ) -> CUresult;

    /// Replaces a child in an executable graph.
    #[call(id = 0x0c54, local, since = "11.1")]
    fn cuGraphExecChildGraphNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        childGraph: CUgraph,
    ) -> CUresult;

    /// Replaces a recorded event in an executable graph.
    #[call(id = 0x0c55, local, since = "11.1")]
    fn cuGraphExecEventRecordNodeSetEvent(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        event: CUevent,
    ) -> CUresult;

    /// Replaces an event waited for in an executable graph.
    #[call(id = 0x0c56, local, since = "11.1")]
    fn cuGraphExecEventWaitNodeSetEvent(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        event: CUevent,
    ) -> CUresult;

    /// Replaces signalled semaphores in an executable graph.
    #[call(id = 0x0c57, unsupported, since = "11.2")]
    fn cuGraphExecExternalSemaphoresSignalNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
    ) -> CUresult;

    /// Replaces semaphores waited for in an executable graph.
    #[call(id = 0x0c58, unsupported, since = "11.2")]
    fn cuGraphExecExternalSemaphoresWaitNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    ) -> CUresult;

    /// Replaces values in an executable graph.
    #[call(id = 0x0c59, local, manual(client), since = "11.7")]
    fn cuGraphExecBatchMemOpNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        #[input] nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult;

    /// Replaces any node's parameters in an executable graph.
    #[call(id = 0x0c5a, local, manual(client), since = "12.2")]
    fn cuGraphExecNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        #[input] nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;

    /// Switches a node of an executable graph on or off.
    #[call(id = 0x0c5b, local, since = "11.6")]
    fn cuGraphNodeSetEnabled(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        isEnabled: u32,
    ) -> CUresult;

    /// Tells whether a node of an executable graph is on.
    #[call(id = 0x0c5c, local, since = "11.6")]
    fn cuGraphNodeGetEnabled(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        #[out] isEnabled: *mut u32,
    ) -> CUresult;

    /// Writes a graph as a drawing for people.
    #[call(id = 0x0c5d, local, manual(client), since = "11.3")]
    fn cuGraphDebugDotPrint(
        hGraph: CUgraph,
        #[input(cstr)] path: *const c_char,
        flags: u32,
    ) -> CUresult;

    /// Wraps something of the application that graphs keep alive.
    #[call(id = 0x0c5e, local, since = "11.3")]
    fn cuUserObjectCreate(
        #[out] object_out: *mut CUuserObject,
        #[user_data] ptr: *mut c_void,
        #[callback] destroy: CUhostFn,
        initialRefcount: u32,
        flags: u32,
    ) -> CUresult;

    /// Adds references to such an object.
    #[call(id = 0x0c5f, local, since = "11.3")]
    fn cuUserObjectRetain(object: CUuserObject, count: u32) -> CUresult;

    /// Drops references to such an object; the last one calls its destructor.
    #[call(id = 0x0c60, local, manual(client), since = "11.3")]
    fn cuUserObjectRelease(object: CUuserObject, count: u32) -> CUresult;

    /// Lets a graph keep such an object alive.
    #[call(id = 0x0c61, local, since = "11.3")]
    fn cuGraphRetainUserObject(
        graph: CUgraph,
        object: CUuserObject,
        count: u32,
        flags: u32,
    ) -> CUresult;

    /// Ends that.
    #[call(id = 0x0c62, local, manual(client), since = "11.3")]
    fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: u32) -> CUresult;
}
