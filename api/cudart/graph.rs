//! Graphs.

extern "C" {
    /// Makes an empty graph.
    #[call(driver = "cuGraphCreate")]
    fn cudaGraphCreate(pGraph: *mut cudaGraph_t, flags: u32) -> cudaError_t;

    /// Destroys a graph.
    #[call(driver = "cuGraphDestroy")]
    fn cudaGraphDestroy(graph: cudaGraph_t) -> cudaError_t;

    /// Copies a graph.
    #[call(driver = "cuGraphClone")]
    fn cudaGraphClone(pGraphClone: *mut cudaGraph_t, originalGraph: cudaGraph_t) -> cudaError_t;

    /// Removes a node.
    #[call(driver = "cuGraphDestroyNode")]
    fn cudaGraphDestroyNode(node: cudaGraphNode_t) -> cudaError_t;

    /// Adds a node of any kind, with the data of edges.
    #[call(symbol_12 = "cudaGraphAddNode_v2")]
    fn cudaGraphAddNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        dependencyData: *const cudaGraphEdgeData,
        numDependencies: usize,
        nodeParams: *mut cudaGraphNodeParams,
    ) -> cudaError_t;

    /// Adds a node of any kind.
    #[call(only = 12, symbol = "cudaGraphAddNode")]
    fn cudaGraphAddNode_v1(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        nodeParams: *mut cudaGraphNodeParams,
    ) -> cudaError_t;

    /// Changes a node of any kind.
    #[call]
    fn cudaGraphNodeSetParams(
        node: cudaGraphNode_t,
        nodeParams: *mut cudaGraphNodeParams,
    ) -> cudaError_t;

    /// Tells the parameters of a node of any kind.
    #[call(refused, only = 13)]
    fn cudaGraphNodeGetParams(
        node: cudaGraphNode_t,
        nodeParams: *mut cudaGraphNodeParams,
    ) -> cudaError_t;

    /// Changes a node of any kind in an instance.
    #[call]
    fn cudaGraphExecNodeSetParams(
        graphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        nodeParams: *mut cudaGraphNodeParams,
    ) -> cudaError_t;

    /// Adds the launch of a kernel.
    #[call]
    fn cudaGraphAddKernelNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        pNodeParams: *const cudaKernelNodeParams,
    ) -> cudaError_t;

    /// Tells what a node launches.
    #[call]
    fn cudaGraphKernelNodeGetParams(
        node: cudaGraphNode_t,
        pNodeParams: *mut cudaKernelNodeParams,
    ) -> cudaError_t;

    /// Changes what a node launches.
    #[call]
    fn cudaGraphKernelNodeSetParams(
        node: cudaGraphNode_t,
        pNodeParams: *const cudaKernelNodeParams,
    ) -> cudaError_t;

    /// Changes what a node launches in an instance.
    #[call]
    fn cudaGraphExecKernelNodeSetParams(
        hGraphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        pNodeParams: *const cudaKernelNodeParams,
    ) -> cudaError_t;

    /// Copies the attributes of a launch to another.
    #[call(driver = "cuGraphKernelNodeCopyAttributes")]
    fn cudaGraphKernelNodeCopyAttributes(
        hDst: cudaGraphNode_t,
        hSrc: cudaGraphNode_t,
    ) -> cudaError_t;

    /// Tells an attribute of a launch.
    #[call(driver = "cuGraphKernelNodeGetAttribute")]
    fn cudaGraphKernelNodeGetAttribute(
        hNode: cudaGraphNode_t,
        attr: cudaLaunchAttributeID,
        value_out: *mut cudaLaunchAttributeValue,
    ) -> cudaError_t;

    /// Sets an attribute of a launch.
    #[call(driver = "cuGraphKernelNodeSetAttribute")]
    fn cudaGraphKernelNodeSetAttribute(
        hNode: cudaGraphNode_t,
        attr: cudaLaunchAttributeID,
        value: *const cudaLaunchAttributeValue,
    ) -> cudaError_t;

    /// Adds a copy of a box.
    #[call(by = self.add_copy(pGraphNode, graph, (pDependencies, numDependencies), &self.boxed(pCopyParams)?))]
    fn cudaGraphAddMemcpyNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        pCopyParams: *const cudaMemcpy3DParms,
    ) -> cudaError_t;

    /// Adds a copy.
    #[call(by = self.add_copy(pGraphNode, graph, (pDependencies, numDependencies), &line(dst, src, count, kind)?))]
    fn cudaGraphAddMemcpyNode1D(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        dst: *mut c_void,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Adds a copy to a variable of the device.
    #[call(by = self.add_copy(pGraphNode, graph, (pDependencies, numDependencies), &line(self.symbol_to_write(symbol, offset, count, kind)?, src, count, kind)?))]
    fn cudaGraphAddMemcpyNodeToSymbol(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        symbol: *const c_void,
        src: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Adds a copy from a variable of the device.
    #[call(by = self.add_copy(pGraphNode, graph, (pDependencies, numDependencies), &line(dst, self.symbol_to_read(symbol, offset, count, kind)?, count, kind)?))]
    fn cudaGraphAddMemcpyNodeFromSymbol(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        dst: *mut c_void,
        symbol: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Tells what a node copies.
    #[call]
    fn cudaGraphMemcpyNodeGetParams(
        node: cudaGraphNode_t,
        pNodeParams: *mut cudaMemcpy3DParms,
    ) -> cudaError_t;

    /// Changes what a node copies, to a box.
    #[call(by = self.set_copy(node, &self.boxed(pNodeParams)?))]
    fn cudaGraphMemcpyNodeSetParams(
        node: cudaGraphNode_t,
        pNodeParams: *const cudaMemcpy3DParms,
    ) -> cudaError_t;

    /// Changes what a node copies.
    #[call(by = self.set_copy(node, &line(dst, src, count, kind)?))]
    fn cudaGraphMemcpyNodeSetParams1D(
        node: cudaGraphNode_t,
        dst: *mut c_void,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Changes what a node copies, to a variable of the device.
    #[call(by = self.set_copy(node, &line(self.symbol_to_write(symbol, offset, count, kind)?, src, count, kind)?))]
    fn cudaGraphMemcpyNodeSetParamsToSymbol(
        node: cudaGraphNode_t,
        symbol: *const c_void,
        src: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Changes what a node copies, from a variable of the device.
    #[call(by = self.set_copy(node, &line(dst, self.symbol_to_read(symbol, offset, count, kind)?, count, kind)?))]
    fn cudaGraphMemcpyNodeSetParamsFromSymbol(
        node: cudaGraphNode_t,
        dst: *mut c_void,
        symbol: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Changes what a node copies in an instance, to a box.
    #[call(by = self.set_exec_copy(hGraphExec, node, &self.boxed(pNodeParams)?))]
    fn cudaGraphExecMemcpyNodeSetParams(
        hGraphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        pNodeParams: *const cudaMemcpy3DParms,
    ) -> cudaError_t;

    /// Changes what a node copies in an instance.
    #[call(by = self.set_exec_copy(hGraphExec, node, &line(dst, src, count, kind)?))]
    fn cudaGraphExecMemcpyNodeSetParams1D(
        hGraphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        dst: *mut c_void,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Changes what a node copies in an instance, to a variable of the device.
    #[call(by = self.set_exec_copy(hGraphExec, node, &line(self.symbol_to_write(symbol, offset, count, kind)?, src, count, kind)?))]
    fn cudaGraphExecMemcpyNodeSetParamsToSymbol(
        hGraphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        symbol: *const c_void,
        src: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Changes what a node copies in an instance, from a variable of the device.
    #[call(by = self.set_exec_copy(hGraphExec, node, &line(dst, self.symbol_to_read(symbol, offset, count, kind)?, count, kind)?))]
    fn cudaGraphExecMemcpyNodeSetParamsFromSymbol(
        hGraphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        dst: *mut c_void,
        symbol: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Adds a fill.
    #[call]
    fn cudaGraphAddMemsetNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        pMemsetParams: *const cudaMemsetParams,
    ) -> cudaError_t;

    /// Tells what a node fills.
    #[call(driver = "cuGraphMemsetNodeGetParams")]
    fn cudaGraphMemsetNodeGetParams(
        node: cudaGraphNode_t,
        pNodeParams: *mut cudaMemsetParams,
    ) -> cudaError_t;

    /// Changes what a node fills.
    #[call(driver = "cuGraphMemsetNodeSetParams")]
    fn cudaGraphMemsetNodeSetParams(
        node: cudaGraphNode_t,
        pNodeParams: *const cudaMemsetParams,
    ) -> cudaError_t;

    /// Changes what a node fills in an instance.
    #[call]
    fn cudaGraphExecMemsetNodeSetParams(
        hGraphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        pNodeParams: *const cudaMemsetParams,
    ) -> cudaError_t;

    /// Adds a function of the host.
    #[call(driver = "cuGraphAddHostNode")]
    fn cudaGraphAddHostNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        pNodeParams: *const cudaHostNodeParams,
    ) -> cudaError_t;

    /// Tells which function a node calls.
    #[call(driver = "cuGraphHostNodeGetParams")]
    fn cudaGraphHostNodeGetParams(
        node: cudaGraphNode_t,
        pNodeParams: *mut cudaHostNodeParams,
    ) -> cudaError_t;

    /// Changes which function a node calls.
    #[call(driver = "cuGraphHostNodeSetParams")]
    fn cudaGraphHostNodeSetParams(
        node: cudaGraphNode_t,
        pNodeParams: *const cudaHostNodeParams,
    ) -> cudaError_t;

    /// Changes which function a node calls in an instance.
    #[call(driver = "cuGraphExecHostNodeSetParams")]
    fn cudaGraphExecHostNodeSetParams(
        hGraphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        pNodeParams: *const cudaHostNodeParams,
    ) -> cudaError_t;

    /// Adds a graph.
    #[call(driver = "cuGraphAddChildGraphNode")]
    fn cudaGraphAddChildGraphNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        childGraph: cudaGraph_t,
    ) -> cudaError_t;

    /// Gives the graph that is a node.
    #[call(driver = "cuGraphChildGraphNodeGetGraph")]
    fn cudaGraphChildGraphNodeGetGraph(
        node: cudaGraphNode_t,
        pGraph: *mut cudaGraph_t,
    ) -> cudaError_t;

    /// Changes the graph that is a node in an instance.
    #[call(driver = "cuGraphExecChildGraphNodeSetParams")]
    fn cudaGraphExecChildGraphNodeSetParams(
        hGraphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        childGraph: cudaGraph_t,
    ) -> cudaError_t;

    /// Adds a node that does nothing.
    #[call(driver = "cuGraphAddEmptyNode")]
    fn cudaGraphAddEmptyNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
    ) -> cudaError_t;

    /// Adds the recording of an event.
    #[call(driver = "cuGraphAddEventRecordNode")]
    fn cudaGraphAddEventRecordNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        event: cudaEvent_t,
    ) -> cudaError_t;

    /// Tells which event a node records.
    #[call(driver = "cuGraphEventRecordNodeGetEvent")]
    fn cudaGraphEventRecordNodeGetEvent(
        node: cudaGraphNode_t,
        event_out: *mut cudaEvent_t,
    ) -> cudaError_t;

    /// Changes which event a node records.
    #[call(driver = "cuGraphEventRecordNodeSetEvent")]
    fn cudaGraphEventRecordNodeSetEvent(node: cudaGraphNode_t, event: cudaEvent_t) -> cudaError_t;

    /// Changes which event a node records in an instance.
    #[call(driver = "cuGraphExecEventRecordNodeSetEvent")]
    fn cudaGraphExecEventRecordNodeSetEvent(
        hGraphExec: cudaGraphExec_t,
        hNode: cudaGraphNode_t,
        event: cudaEvent_t,
    ) -> cudaError_t;

    /// Adds the wait for an event.
    #[call(driver = "cuGraphAddEventWaitNode")]
    fn cudaGraphAddEventWaitNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        event: cudaEvent_t,
    ) -> cudaError_t;

    /// Tells which event a node waits for.
    #[call(driver = "cuGraphEventWaitNodeGetEvent")]
    fn cudaGraphEventWaitNodeGetEvent(
        node: cudaGraphNode_t,
        event_out: *mut cudaEvent_t,
    ) -> cudaError_t;

    /// Changes which event a node waits for.
    #[call(driver = "cuGraphEventWaitNodeSetEvent")]
    fn cudaGraphEventWaitNodeSetEvent(node: cudaGraphNode_t, event: cudaEvent_t) -> cudaError_t;

    /// Changes which event a node waits for in an instance.
    #[call(driver = "cuGraphExecEventWaitNodeSetEvent")]
    fn cudaGraphExecEventWaitNodeSetEvent(
        hGraphExec: cudaGraphExec_t,
        hNode: cudaGraphNode_t,
        event: cudaEvent_t,
    ) -> cudaError_t;

    /// Adds signals to foreign semaphores.
    #[call(driver = "cuGraphAddExternalSemaphoresSignalNode")]
    fn cudaGraphAddExternalSemaphoresSignalNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        nodeParams: *const cudaExternalSemaphoreSignalNodeParams,
    ) -> cudaError_t;

    /// Tells what a node signals.
    #[call(driver = "cuGraphExternalSemaphoresSignalNodeGetParams")]
    fn cudaGraphExternalSemaphoresSignalNodeGetParams(
        hNode: cudaGraphNode_t,
        params_out: *mut cudaExternalSemaphoreSignalNodeParams,
    ) -> cudaError_t;

    /// Changes what a node signals.
    #[call(driver = "cuGraphExternalSemaphoresSignalNodeSetParams")]
    fn cudaGraphExternalSemaphoresSignalNodeSetParams(
        hNode: cudaGraphNode_t,
        nodeParams: *const cudaExternalSemaphoreSignalNodeParams,
    ) -> cudaError_t;

    /// Changes what a node signals in an instance.
    #[call(driver = "cuGraphExecExternalSemaphoresSignalNodeSetParams")]
    fn cudaGraphExecExternalSemaphoresSignalNodeSetParams(
        hGraphExec: cudaGraphExec_t,
        hNode: cudaGraphNode_t,
        nodeParams: *const cudaExternalSemaphoreSignalNodeParams,
    ) -> cudaError_t;

    /// Adds waits for foreign semaphores.
    #[call(driver = "cuGraphAddExternalSemaphoresWaitNode")]
    fn cudaGraphAddExternalSemaphoresWaitNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        nodeParams: *const cudaExternalSemaphoreWaitNodeParams,
    ) -> cudaError_t;

    /// Tells what foreign semaphores a node waits for.
    #[call(driver = "cuGraphExternalSemaphoresWaitNodeGetParams")]
    fn cudaGraphExternalSemaphoresWaitNodeGetParams(
        hNode: cudaGraphNode_t,
        params_out: *mut cudaExternalSemaphoreWaitNodeParams,
    ) -> cudaError_t;

    /// Changes what foreign semaphores a node waits for.
    #[call(driver = "cuGraphExternalSemaphoresWaitNodeSetParams")]
    fn cudaGraphExternalSemaphoresWaitNodeSetParams(
        hNode: cudaGraphNode_t,
        nodeParams: *const cudaExternalSemaphoreWaitNodeParams,
    ) -> cudaError_t;

    /// Changes what foreign semaphores a node waits for in an instance.
    #[call(driver = "cuGraphExecExternalSemaphoresWaitNodeSetParams")]
    fn cudaGraphExecExternalSemaphoresWaitNodeSetParams(
        hGraphExec: cudaGraphExec_t,
        hNode: cudaGraphNode_t,
        nodeParams: *const cudaExternalSemaphoreWaitNodeParams,
    ) -> cudaError_t;

    /// Adds an allocation.
    #[call(driver = "cuGraphAddMemAllocNode")]
    fn cudaGraphAddMemAllocNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        nodeParams: *mut cudaMemAllocNodeParams,
    ) -> cudaError_t;

    /// Tells what a node allocates.
    #[call(driver = "cuGraphMemAllocNodeGetParams")]
    fn cudaGraphMemAllocNodeGetParams(
        node: cudaGraphNode_t,
        params_out: *mut cudaMemAllocNodeParams,
    ) -> cudaError_t;

    /// Adds a release of memory.
    #[call(driver = "cuGraphAddMemFreeNode")]
    fn cudaGraphAddMemFreeNode(
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        dptr: *mut c_void,
    ) -> cudaError_t;

    /// Tells what a node frees.
    #[call(driver = "cuGraphMemFreeNodeGetParams")]
    fn cudaGraphMemFreeNodeGetParams(node: cudaGraphNode_t, dptr_out: *mut c_void) -> cudaError_t;

    /// Gives back memory that graphs do not use.
    #[call(bare = "cuDeviceGraphMemTrim")]
    fn cudaDeviceGraphMemTrim(device: i32) -> cudaError_t;

    /// Tells something about memory of graphs.
    #[call(bare = "cuDeviceGetGraphMemAttribute")]
    fn cudaDeviceGetGraphMemAttribute(
        device: i32,
        attr: cudaGraphMemAttributeType,
        value: *mut c_void,
    ) -> cudaError_t;

    /// Sets something about memory of graphs.
    #[call(bare = "cuDeviceSetGraphMemAttribute")]
    fn cudaDeviceSetGraphMemAttribute(
        device: i32,
        attr: cudaGraphMemAttributeType,
        value: *mut c_void,
    ) -> cudaError_t;

    /// Makes the value that a conditional node looks at.
    #[call]
    fn cudaGraphConditionalHandleCreate(
        pHandle_out: *mut cudaGraphConditionalHandle,
        graph: cudaGraph_t,
        defaultLaunchValue: u32,
        flags: u32,
    ) -> cudaError_t;

    /// Makes the value that a conditional node looks at, for an execution context.
    #[call(only = 13)]
    fn cudaGraphConditionalHandleCreate_v2(
        pHandle_out: *mut cudaGraphConditionalHandle,
        graph: cudaGraph_t,
        ctx: cudaExecutionContext_t,
        defaultLaunchValue: u32,
        flags: u32,
    ) -> cudaError_t;

    /// Lists the nodes.
    #[call(driver = "cuGraphGetNodes")]
    fn cudaGraphGetNodes(
        graph: cudaGraph_t,
        nodes: *mut cudaGraphNode_t,
        numNodes: *mut usize,
    ) -> cudaError_t;

    /// Lists the nodes that depend on none.
    #[call(driver = "cuGraphGetRootNodes")]
    fn cudaGraphGetRootNodes(
        graph: cudaGraph_t,
        pRootNodes: *mut cudaGraphNode_t,
        pNumRootNodes: *mut usize,
    ) -> cudaError_t;

    /// Lists the edges with their data.
    #[call(driver = "cuGraphGetEdges_v2", symbol_12 = "cudaGraphGetEdges_v2")]
    fn cudaGraphGetEdges(
        graph: cudaGraph_t,
        from: *mut cudaGraphNode_t,
        to: *mut cudaGraphNode_t,
        edgeData: *mut cudaGraphEdgeData,
        numEdges: *mut usize,
    ) -> cudaError_t;

    /// Lists the edges.
    #[call(driver = "cuGraphGetEdges", only = 12, symbol = "cudaGraphGetEdges")]
    fn cudaGraphGetEdges_v1(
        graph: cudaGraph_t,
        from: *mut cudaGraphNode_t,
        to: *mut cudaGraphNode_t,
        numEdges: *mut usize,
    ) -> cudaError_t;

    /// Lists what a node depends on, with the data of edges.
    #[call(
        driver = "cuGraphNodeGetDependencies_v2",
        symbol_12 = "cudaGraphNodeGetDependencies_v2"
    )]
    fn cudaGraphNodeGetDependencies(
        node: cudaGraphNode_t,
        pDependencies: *mut cudaGraphNode_t,
        edgeData: *mut cudaGraphEdgeData,
        pNumDependencies: *mut usize,
    ) -> cudaError_t;

    /// Lists what a node depends on.
    #[call(
        driver = "cuGraphNodeGetDependencies",
        only = 12,
        symbol = "cudaGraphNodeGetDependencies"
    )]
    fn cudaGraphNodeGetDependencies_v1(
        node: cudaGraphNode_t,
        pDependencies: *mut cudaGraphNode_t,
        pNumDependencies: *mut usize,
    ) -> cudaError_t;

    /// Lists what depends on a node, with the data of edges.
    #[call(
        driver = "cuGraphNodeGetDependentNodes_v2",
        symbol_12 = "cudaGraphNodeGetDependentNodes_v2"
    )]
    fn cudaGraphNodeGetDependentNodes(
        node: cudaGraphNode_t,
        pDependentNodes: *mut cudaGraphNode_t,
        edgeData: *mut cudaGraphEdgeData,
        pNumDependentNodes: *mut usize,
    ) -> cudaError_t;

    /// Lists what depends on a node.
    #[call(
        driver = "cuGraphNodeGetDependentNodes",
        only = 12,
        symbol = "cudaGraphNodeGetDependentNodes"
    )]
    fn cudaGraphNodeGetDependentNodes_v1(
        node: cudaGraphNode_t,
        pDependentNodes: *mut cudaGraphNode_t,
        pNumDependentNodes: *mut usize,
    ) -> cudaError_t;

    /// Adds edges with their data.
    #[call(
        driver = "cuGraphAddDependencies_v2",
        symbol_12 = "cudaGraphAddDependencies_v2"
    )]
    fn cudaGraphAddDependencies(
        graph: cudaGraph_t,
        from: *const cudaGraphNode_t,
        to: *const cudaGraphNode_t,
        edgeData: *const cudaGraphEdgeData,
        numDependencies: usize,
    ) -> cudaError_t;

    /// Adds edges.
    #[call(
        driver = "cuGraphAddDependencies",
        only = 12,
        symbol = "cudaGraphAddDependencies"
    )]
    fn cudaGraphAddDependencies_v1(
        graph: cudaGraph_t,
        from: *const cudaGraphNode_t,
        to: *const cudaGraphNode_t,
        numDependencies: usize,
    ) -> cudaError_t;

    /// Removes edges with their data.
    #[call(
        driver = "cuGraphRemoveDependencies_v2",
        symbol_12 = "cudaGraphRemoveDependencies_v2"
    )]
    fn cudaGraphRemoveDependencies(
        graph: cudaGraph_t,
        from: *const cudaGraphNode_t,
        to: *const cudaGraphNode_t,
        edgeData: *const cudaGraphEdgeData,
        numDependencies: usize,
    ) -> cudaError_t;

    /// Removes edges.
    #[call(
        driver = "cuGraphRemoveDependencies",
        only = 12,
        symbol = "cudaGraphRemoveDependencies"
    )]
    fn cudaGraphRemoveDependencies_v1(
        graph: cudaGraph_t,
        from: *const cudaGraphNode_t,
        to: *const cudaGraphNode_t,
        numDependencies: usize,
    ) -> cudaError_t;

    /// Finds the copy of a node in a copied graph.
    #[call(driver = "cuGraphNodeFindInClone")]
    fn cudaGraphNodeFindInClone(
        pNode: *mut cudaGraphNode_t,
        originalNode: cudaGraphNode_t,
        clonedGraph: cudaGraph_t,
    ) -> cudaError_t;

    /// Tells a node's kind.
    #[call(driver = "cuGraphNodeGetType")]
    fn cudaGraphNodeGetType(node: cudaGraphNode_t, pType: *mut cudaGraphNodeType) -> cudaError_t;

    /// Gives the graph of a node.
    #[call(driver = "cuGraphNodeGetContainingGraph", only = 13)]
    fn cudaGraphNodeGetContainingGraph(
        hNode: cudaGraphNode_t,
        phGraph: *mut cudaGraph_t,
    ) -> cudaError_t;

    /// Tells a node's number in its graph.
    #[call(driver = "cuGraphNodeGetLocalId", only = 13)]
    fn cudaGraphNodeGetLocalId(hNode: cudaGraphNode_t, nodeId: *mut u32) -> cudaError_t;

    /// Tells the number by which tools know a node.
    #[call(driver = "cuGraphNodeGetToolsId", only = 13)]
    fn cudaGraphNodeGetToolsId(hNode: cudaGraphNode_t, toolsNodeId: *mut u64) -> cudaError_t;

    /// Tells a graph's number.
    #[call(driver = "cuGraphGetId", only = 13)]
    fn cudaGraphGetId(hGraph: cudaGraph_t, graphID: *mut u32) -> cudaError_t;

    /// Tells an instance's number.
    #[call(driver = "cuGraphExecGetId", only = 13)]
    fn cudaGraphExecGetId(hGraphExec: cudaGraphExec_t, graphID: *mut u32) -> cudaError_t;

    /// Tells whether a node of an instance runs.
    #[call(driver = "cuGraphNodeGetEnabled")]
    fn cudaGraphNodeGetEnabled(
        hGraphExec: cudaGraphExec_t,
        hNode: cudaGraphNode_t,
        isEnabled: *mut u32,
    ) -> cudaError_t;

    /// Has a node of an instance run or not.
    #[call(driver = "cuGraphNodeSetEnabled")]
    fn cudaGraphNodeSetEnabled(
        hGraphExec: cudaGraphExec_t,
        hNode: cudaGraphNode_t,
        isEnabled: u32,
    ) -> cudaError_t;

    /// Makes an instance that can be launched.
    #[call(driver = "cuGraphInstantiateWithFlags")]
    fn cudaGraphInstantiate(
        pGraphExec: *mut cudaGraphExec_t,
        graph: cudaGraph_t,
        flags: u64,
    ) -> cudaError_t;

    /// Makes an instance that can be launched, with flags.
    #[call(driver = "cuGraphInstantiateWithFlags")]
    fn cudaGraphInstantiateWithFlags(
        pGraphExec: *mut cudaGraphExec_t,
        graph: cudaGraph_t,
        flags: u64,
    ) -> cudaError_t;

    /// Makes an instance that can be launched, with parameters.
    #[call(driver = "cuGraphInstantiateWithParams", ptsz)]
    fn cudaGraphInstantiateWithParams(
        pGraphExec: *mut cudaGraphExec_t,
        graph: cudaGraph_t,
        instantiateParams: *mut cudaGraphInstantiateParams,
    ) -> cudaError_t;

    /// Destroys an instance.
    #[call(driver = "cuGraphExecDestroy")]
    fn cudaGraphExecDestroy(graphExec: cudaGraphExec_t) -> cudaError_t;

    /// Tells an instance's flags.
    #[call(driver = "cuGraphExecGetFlags")]
    fn cudaGraphExecGetFlags(graphExec: cudaGraphExec_t, flags: *mut u64) -> cudaError_t;

    /// Changes an instance to what a graph says.
    #[call(driver = "cuGraphExecUpdate_v2")]
    fn cudaGraphExecUpdate(
        hGraphExec: cudaGraphExec_t,
        hGraph: cudaGraph_t,
        resultInfo: *mut cudaGraphExecUpdateResultInfo,
    ) -> cudaError_t;

    /// Brings an instance to the device.
    #[call(driver = "cuGraphUpload", ptsz)]
    fn cudaGraphUpload(graphExec: cudaGraphExec_t, stream: cudaStream_t) -> cudaError_t;

    /// Launches an instance.
    #[call(driver = "cuGraphLaunch", ptsz)]
    fn cudaGraphLaunch(graphExec: cudaGraphExec_t, stream: cudaStream_t) -> cudaError_t;

    /// Writes a graph as a drawing.
    #[call(driver = "cuGraphDebugDotPrint")]
    fn cudaGraphDebugDotPrint(graph: cudaGraph_t, path: *const c_char, flags: u32) -> cudaError_t;

    /// Makes an object that graphs can own.
    #[call(bare = "cuUserObjectCreate")]
    fn cudaUserObjectCreate(
        object_out: *mut cudaUserObject_t,
        ptr: *mut c_void,
        destroy: cudaHostFn_t,
        initialRefcount: u32,
        flags: u32,
    ) -> cudaError_t;

    /// Counts further owners of an object.
    #[call(bare = "cuUserObjectRetain")]
    fn cudaUserObjectRetain(object: cudaUserObject_t, count: u32) -> cudaError_t;

    /// Counts fewer owners of an object.
    #[call(bare = "cuUserObjectRelease")]
    fn cudaUserObjectRelease(object: cudaUserObject_t, count: u32) -> cudaError_t;

    /// Gives a graph a share of an object.
    #[call(driver = "cuGraphRetainUserObject")]
    fn cudaGraphRetainUserObject(
        graph: cudaGraph_t,
        object: cudaUserObject_t,
        count: u32,
        flags: u32,
    ) -> cudaError_t;

    /// Takes a graph's share of an object.
    #[call(driver = "cuGraphReleaseUserObject")]
    fn cudaGraphReleaseUserObject(
        graph: cudaGraph_t,
        object: cudaUserObject_t,
        count: u32,
    ) -> cudaError_t;
}
