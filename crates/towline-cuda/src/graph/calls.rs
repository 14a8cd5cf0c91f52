//! The calls.

use std::ffi::{c_char, c_void};
use std::ptr::null;

use towline_backend::cuda::*;

use super::model::{Content, pointer};
use super::params::{is_node_attribute, kernel_of_v1};
use super::places::{edges_at, host_at, tell_deps, tell_edges, tell_nodes, value_of, words_of};
use super::{graph_handle, node_handle};
use crate::driver::{Driver, GraphCalls, status, tell};

impl GraphCalls for Driver {
    unsafe fn cuGraphCreate(&self, phGraph: *mut CUgraph, flags: u32) -> CUresult {
        let told = self.create_graph(flags);
        // SAFETY: the caller's contract.
        unsafe { tell(phGraph, told) }
    }

    unsafe fn cuGraphDestroy(&self, hGraph: CUgraph) -> CUresult {
        status(self.destroy_graph(hGraph.addr() as u64))
    }

    unsafe fn cuGraphClone(&self, phGraphClone: *mut CUgraph, originalGraph: CUgraph) -> CUresult {
        let told = self
            .with_graphs(|graphs| graphs.copy(originalGraph.addr() as u64, None))
            .map(graph_handle);
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphClone, told) }
    }

    unsafe fn cuGraphNodeFindInClone(
        &self,
        phNode: *mut CUgraphNode,
        hOriginalNode: CUgraphNode,
        hClonedGraph: CUgraph,
    ) -> CUresult {
        let (node, graph) = (hOriginalNode.addr() as u64, hClonedGraph.addr() as u64);
        match self.with_graphs(|graphs| graphs.copy_of(node, graph)) {
            // SAFETY: the caller's contract.
            Ok(Some(copy)) => unsafe { tell(phNode, Ok(node_handle(copy))) },
            Ok(None) => {
                // SAFETY: as above: NULL or writable. A graph without a copy leaves NULL (seen with driver 580.159).
                unsafe { crate::raw::fill(phNode, 1, [node_handle(0)].into_iter()) };
                CUDA_ERROR_INVALID_VALUE
            }
            Err(status) => status,
        }
    }

    unsafe fn cuGraphAddKernelNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let Some(params) = (unsafe { nodeParams.as_ref() }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let params = kernel_of_v1(params);
        let params = &raw const params;
        // SAFETY: the caller's contract, passed on.
        unsafe {
            GraphCalls::cuGraphAddKernelNode_v2(
                self,
                phGraphNode,
                hGraph,
                dependencies,
                numDependencies,
                params,
            )
        }
    }

    unsafe fn cuGraphAddKernelNode_v2(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let deps = unsafe { super::dependencies(dependencies, null(), numDependencies) };
        let added = deps.and_then(|deps| {
            // SAFETY: the caller's contract.
            let content = unsafe { self.kernel_at(nodeParams) }?;
            self.add_content(hGraph, &deps, content)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphKernelNodeGetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: *mut CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| graphs.node_mut(hNode.addr() as u64)?.tell_kernel());
        let told = told.map(|told| CUDA_KERNEL_NODE_PARAMS_v1 {
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
        });
        // SAFETY: the caller's contract.
        unsafe { tell(nodeParams, told) }
    }

    unsafe fn cuGraphKernelNodeGetParams_v2(
        &self,
        hNode: CUgraphNode,
        nodeParams: *mut CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| graphs.node_mut(hNode.addr() as u64)?.tell_kernel());
        // SAFETY: the caller's contract.
        unsafe { tell(nodeParams, told) }
    }

    unsafe fn cuGraphKernelNodeSetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let Some(params) = (unsafe { nodeParams.as_ref() }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let params = kernel_of_v1(params);
        // SAFETY: the caller's contract, passed on.
        unsafe { GraphCalls::cuGraphKernelNodeSetParams_v2(self, hNode, &raw const params) }
    }

    unsafe fn cuGraphKernelNodeSetParams_v2(
        &self,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let params = unsafe { nodeParams.as_ref() };
        let number = hNode.addr() as u64;
        let known = self.with_graphs(|graphs| match &graphs.node(number)?.content {
            Content::Kernel(_) => params.ok_or(CUDA_ERROR_INVALID_VALUE),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        });
        status(known.and_then(|params| {
            // SAFETY: the caller's contract.
            let content = unsafe { self.given_kernel(params) }?;
            self.replace_content(hNode, content)
        }))
    }

    unsafe fn cuGraphKernelNodeCopyAttributes(
        &self,
        dst: CUgraphNode,
        src: CUgraphNode,
    ) -> CUresult {
        status(self.with_graphs(|graphs| {
            let words = match &graphs.node(src.addr() as u64)?.content {
                Content::Kernel(kernel) => kernel.work.attributes.clone(),
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            };
            match &mut graphs.node_mut(dst.addr() as u64)?.content {
                Content::Kernel(kernel) => kernel.work.attributes = words,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            Ok(())
        }))
    }

    unsafe fn cuGraphKernelNodeGetAttribute(
        &self,
        hNode: CUgraphNode,
        attr: CUkernelNodeAttrID,
        value_out: *mut CUlaunchAttributeValue,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| match &graphs.node(hNode.addr() as u64)?.content {
            Content::Kernel(kernel) if is_node_attribute(attr) => {
                let words = kernel.attribute(attr).unwrap_or(&[0; 8]);
                Ok(value_of(words))
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        });
        // SAFETY: the caller's contract.
        unsafe { tell(value_out, told) }
    }

    unsafe fn cuGraphKernelNodeSetAttribute(
        &self,
        hNode: CUgraphNode,
        attr: CUkernelNodeAttrID,
        value: *const CUlaunchAttributeValue,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let Some(value) = (unsafe { value.as_ref() }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        if attr == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        let words = words_of(value);
        status(self.with_graphs(
            |graphs| match &mut graphs.node_mut(hNode.addr() as u64)?.content {
                Content::Kernel(kernel) if is_node_attribute(attr) => {
                    kernel.set_attribute(attr, words);
                    Ok(())
                }
                _ => Err(CUDA_ERROR_INVALID_VALUE),
            },
        ))
    }

    unsafe fn cuGraphAddMemcpyNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        copyParams: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let deps = unsafe { super::dependencies(dependencies, null(), numDependencies) };
        let added = deps.and_then(|deps| {
            // SAFETY: the caller's contract.
            let content = unsafe { self.copy_at(copyParams, ctx) }?;
            self.add_content(hGraph, &deps, content)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphMemcpyNodeGetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: *mut CUDA_MEMCPY3D,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| match &graphs.node(hNode.addr() as u64)?.content {
            Content::Copy(copy) => Ok(copy.given.0),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        });
        // SAFETY: the caller's contract.
        unsafe { tell(nodeParams, told) }
    }

    unsafe fn cuGraphMemcpyNodeSetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_MEMCPY3D,
    ) -> CUresult {
        let context = self.context_of_node(hNode);
        // SAFETY: the caller's contract.
        let content = context.and_then(|context| unsafe { self.copy_at(nodeParams, context) });
        status(content.and_then(|content| self.replace_content(hNode, content)))
    }

    unsafe fn cuGraphAddMemsetNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let deps = unsafe { super::dependencies(dependencies, null(), numDependencies) };
        let added = deps.and_then(|deps| {
            // SAFETY: the caller's contract.
            let content = unsafe { self.fill_at(memsetParams, ctx) }?;
            self.add_content(hGraph, &deps, content)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphMemsetNodeGetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: *mut CUDA_MEMSET_NODE_PARAMS,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| graphs.node(hNode.addr() as u64)?.tell_fill());
        // SAFETY: the caller's contract.
        unsafe { tell(nodeParams, told) }
    }

    unsafe fn cuGraphMemsetNodeSetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_MEMSET_NODE_PARAMS,
    ) -> CUresult {
        let context = self.context_of_node(hNode);
        // SAFETY: the caller's contract.
        let content = context.and_then(|context| unsafe { self.fill_at(nodeParams, context) });
        status(content.and_then(|content| self.replace_content(hNode, content)))
    }

    unsafe fn cuGraphAddHostNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_HOST_NODE_PARAMS,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let deps = unsafe { super::dependencies(dependencies, null(), numDependencies) };
        let added = deps.and_then(|deps| {
            // SAFETY: the caller's contract.
            let content = unsafe { host_at(nodeParams) }?;
            self.add_content(hGraph, &deps, content)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphHostNodeGetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: *mut CUDA_HOST_NODE_PARAMS,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| match &graphs.node(hNode.addr() as u64)?.content {
            Content::Host(function, data) => Ok(CUDA_HOST_NODE_PARAMS {
                r#fn: *function,
                userData: pointer(*data),
            }),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        });
        // SAFETY: the caller's contract.
        unsafe { tell(nodeParams, told) }
    }

    unsafe fn cuGraphHostNodeSetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_HOST_NODE_PARAMS,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let content = unsafe { host_at(nodeParams) };
        status(content.and_then(|content| self.replace_content(hNode, content)))
    }

    unsafe fn cuGraphAddChildGraphNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        childGraph: CUgraph,
    ) -> CUresult {
        // A graph that can be in none is refused whatever it is to stand behind.
        let child = self.with_graphs(|graphs| graphs.check_child(childGraph.addr() as u64));
        // SAFETY: the caller's contract.
        let deps = child
            .and_then(|()| unsafe { super::dependencies(dependencies, null(), numDependencies) });
        let added = deps.and_then(|deps| {
            self.add_child(
                hGraph,
                &deps,
                childGraph,
                CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE,
            )
        });
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphChildGraphNodeGetGraph(
        &self,
        hNode: CUgraphNode,
        phGraph: *mut CUgraph,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| match &graphs.node(hNode.addr() as u64)?.content {
            Content::Child(graph) => Ok(graph_handle(*graph)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        });
        // SAFETY: the caller's contract.
        unsafe { tell(phGraph, told) }
    }

    unsafe fn cuGraphAddEmptyNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let deps = unsafe { super::dependencies(dependencies, null(), numDependencies) };
        let added = deps.and_then(|deps| self.add_content(hGraph, &deps, Content::Empty));
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphAddEventRecordNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        event: CUevent,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let deps = unsafe { super::dependencies(dependencies, null(), numDependencies) };
        let added = deps.and_then(|deps| {
            let event = self.event_number(event)?;
            self.add_content(hGraph, &deps, Content::Record(event))
        });
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphEventRecordNodeGetEvent(
        &self,
        hNode: CUgraphNode,
        event_out: *mut CUevent,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| match &graphs.node(hNode.addr() as u64)?.content {
            Content::Record(event) => Ok(pointer(*event as usize).cast()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        });
        // SAFETY: the caller's contract.
        unsafe { tell(event_out, told) }
    }

    unsafe fn cuGraphEventRecordNodeSetEvent(
        &self,
        hNode: CUgraphNode,
        event: CUevent,
    ) -> CUresult {
        let event = self.event_number(event);
        status(event.and_then(|event| self.replace_content(hNode, Content::Record(event))))
    }

    unsafe fn cuGraphAddEventWaitNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        event: CUevent,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let deps = unsafe { super::dependencies(dependencies, null(), numDependencies) };
        let added = deps.and_then(|deps| {
            let event = self.event_number(event)?;
            self.add_content(hGraph, &deps, Content::Wait(event))
        });
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphEventWaitNodeGetEvent(
        &self,
        hNode: CUgraphNode,
        event_out: *mut CUevent,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| match &graphs.node(hNode.addr() as u64)?.content {
            Content::Wait(event) => Ok(pointer(*event as usize).cast()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        });
        // SAFETY: the caller's contract.
        unsafe { tell(event_out, told) }
    }

    unsafe fn cuGraphEventWaitNodeSetEvent(&self, hNode: CUgraphNode, event: CUevent) -> CUresult {
        let event = self.event_number(event);
        status(event.and_then(|event| self.replace_content(hNode, Content::Wait(event))))
    }

    unsafe fn cuGraphAddBatchMemOpNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let deps = unsafe { super::dependencies(dependencies, null(), numDependencies) };
        let added = deps.and_then(|deps| {
            // SAFETY: the caller's contract.
            let content = unsafe { self.operations_at(nodeParams) }?;
            self.add_content(hGraph, &deps, content)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphBatchMemOpNodeGetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams_out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult {
        let told =
            self.with_graphs(|graphs| graphs.node_mut(hNode.addr() as u64)?.tell_operations());
        // SAFETY: the caller's contract.
        unsafe { tell(nodeParams_out, told) }
    }

    unsafe fn cuGraphBatchMemOpNodeSetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let content = unsafe { self.operations_at(nodeParams) };
        status(content.and_then(|content| self.replace_content(hNode, content)))
    }

    unsafe fn cuGraphAddMemAllocNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let deps = unsafe { super::dependencies(dependencies, null(), numDependencies) };
        let added = deps.and_then(|deps| {
            // SAFETY: the caller's contract.
            let params = unsafe { nodeParams.as_mut() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            // SAFETY: as above.
            let access = unsafe { super::access_of(params.accessDescs, params.accessDescCount) }?;
            let graph = hGraph.addr() as u64;
            let (node, address) = self.add_allocation(graph, &deps, params, access)?;
            params.dptr = address;
            Ok(node_handle(node))
        });
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphMemAllocNodeGetParams(
        &self,
        hNode: CUgraphNode,
        params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| match &graphs.node(hNode.addr() as u64)?.content {
            Content::Alloc(alloc) => {
                let mut told = alloc.given.0;
                told.accessDescs = alloc.access.as_ptr().cast();
                Ok(told)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        });
        // SAFETY: the caller's contract.
        unsafe { tell(params_out, told) }
    }

    unsafe fn cuGraphAddMemFreeNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        dptr: CUdeviceptr,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let deps = unsafe { super::dependencies(dependencies, null(), numDependencies) };
        let added = deps.and_then(|deps| {
            let content = self.free_content(dptr)?;
            self.add_content(hGraph, &deps, content)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphMemFreeNodeGetParams(
        &self,
        hNode: CUgraphNode,
        dptr_out: *mut CUdeviceptr,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| match &graphs.node(hNode.addr() as u64)?.content {
            Content::Free(address) => Ok(*address),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        });
        // SAFETY: the caller's contract.
        unsafe { tell(dptr_out, told) }
    }

    unsafe fn cuGraphAddNode(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult {
        // SAFETY: the caller's contract, passed on.
        unsafe {
            GraphCalls::cuGraphAddNode_v2(
                self,
                phGraphNode,
                hGraph,
                dependencies,
                null(),
                numDependencies,
                nodeParams,
            )
        }
    }

    unsafe fn cuGraphAddNode_v2(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let deps = unsafe { super::dependencies(dependencies, dependencyData, numDependencies) };
        // SAFETY: as above.
        let added = deps.and_then(|deps| unsafe { self.add_any(hGraph, &deps, nodeParams) });
        // SAFETY: as above.
        unsafe { tell(phGraphNode, added) }
    }

    unsafe fn cuGraphAddNode_v3(
        &self,
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult {
        // SAFETY: the caller's contract, passed on.
        unsafe {
            GraphCalls::cuGraphAddNode_v2(
                self,
                phGraphNode,
                hGraph,
                dependencies,
                dependencyData,
                numDependencies,
                nodeParams,
            )
        }
    }

    unsafe fn cuGraphNodeGetParams(
        &self,
        hNode: CUgraphNode,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| graphs.node_mut(hNode.addr() as u64)?.tell());
        // SAFETY: the caller's contract.
        unsafe { tell(nodeParams, told) }
    }

    unsafe fn cuGraphNodeSetParams_v2(
        &self,
        hNode: CUgraphNode,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let content = unsafe { self.any_at(nodeParams) };
        status(content.and_then(|content| self.replace_content(hNode, content)))
    }

    unsafe fn cuGraphConditionalHandleCreate(
        &self,
        pHandle_out: *mut CUgraphConditionalHandle,
        hGraph: CUgraph,
        ctx: CUcontext,
        defaultLaunchValue: u32,
        flags: u32,
    ) -> CUresult {
        let told = self.create_condition(hGraph.addr() as u64, ctx, defaultLaunchValue, flags);
        // SAFETY: the caller's contract.
        unsafe { tell(pHandle_out, told) }
    }

    unsafe fn cuGraphNodeGetType(
        &self,
        hNode: CUgraphNode,
        r#type: *mut CUgraphNodeType,
    ) -> CUresult {
        let told = self.with_graphs(|graphs| Ok(graphs.node(hNode.addr() as u64)?.content.kind()));
        // SAFETY: the caller's contract.
        unsafe { tell(r#type, told) }
    }

    unsafe fn cuGraphNodeGetContainingGraph(
        &self,
        hNode: CUgraphNode,
        phGraph: *mut CUgraph,
    ) -> CUresult {
        let told =
            self.with_graphs(|graphs| Ok(graph_handle(graphs.node(hNode.addr() as u64)?.graph)));
        // SAFETY: the caller's contract.
        unsafe { tell(phGraph, told) }
    }

    unsafe fn cuGraphNodeGetLocalId(&self, hNode: CUgraphNode, nodeId: *mut u32) -> CUresult {
        let told = self.with_graphs(|graphs| Ok(graphs.node(hNode.addr() as u64)?.local));
        // SAFETY: the caller's contract.
        unsafe { tell(nodeId, told) }
    }

    unsafe fn cuGraphNodeGetToolsId(&self, hNode: CUgraphNode, toolsNodeId: *mut u64) -> CUresult {
        let told = self.with_graphs(|graphs| {
            let node = graphs.node(hNode.addr() as u64)?;
            let graph = graphs.graph(node.graph)?;
            Ok(u64::from(graph.id) << 32 | u64::from(node.local))
        });
        // SAFETY: the caller's contract.
        unsafe { tell(toolsNodeId, told) }
    }

    unsafe fn cuGraphGetId(&self, hGraph: CUgraph, graphId: *mut u32) -> CUresult {
        let told = self.with_graphs(|graphs| Ok(graphs.graph(hGraph.addr() as u64)?.id));
        // SAFETY: the caller's contract.
        unsafe { tell(graphId, told) }
    }

    unsafe fn cuGraphExecGetId(&self, hGraphExec: CUgraphExec, graphId: *mut u32) -> CUresult {
        let told = self.exec(hGraphExec).map(|exec| exec.id);
        // SAFETY: the caller's contract.
        unsafe { tell(graphId, told) }
    }

    unsafe fn cuGraphGetNodes(
        &self,
        hGraph: CUgraph,
        nodes: *mut CUgraphNode,
        numNodes: *mut usize,
    ) -> CUresult {
        let list = self.with_graphs(|graphs| Ok(graphs.graph(hGraph.addr() as u64)?.nodes.clone()));
        // SAFETY: the caller's contract.
        status(list.and_then(|list| unsafe { tell_nodes(&list, nodes, numNodes) }))
    }

    unsafe fn cuGraphGetRootNodes(
        &self,
        hGraph: CUgraph,
        rootNodes: *mut CUgraphNode,
        numRootNodes: *mut usize,
    ) -> CUresult {
        let list = self.with_graphs(|graphs| {
            let nodes = &graphs.graph(hGraph.addr() as u64)?.nodes;
            let root = |node: &&u64| graphs.node(**node).is_ok_and(|node| node.before.is_empty());
            Ok(nodes.iter().filter(root).copied().collect::<Vec<_>>())
        });
        // SAFETY: the caller's contract.
        status(list.and_then(|list| unsafe { tell_nodes(&list, rootNodes, numRootNodes) }))
    }

    unsafe fn cuGraphGetEdges(
        &self,
        hGraph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        numEdges: *mut usize,
    ) -> CUresult {
        let edges = self.edges(hGraph);
        // SAFETY: the caller's contract.
        status(edges.and_then(|edges| unsafe { tell_edges(&edges, from, to, None, numEdges) }))
    }

    unsafe fn cuGraphGetEdges_v2(
        &self,
        hGraph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        edgeData: *mut CUgraphEdgeData,
        numEdges: *mut usize,
    ) -> CUresult {
        let edges = self.edges(hGraph);
        let data = Some(edgeData);
        // SAFETY: the caller's contract.
        status(edges.and_then(|edges| unsafe { tell_edges(&edges, from, to, data, numEdges) }))
    }

    unsafe fn cuGraphNodeGetDependencies(
        &self,
        hNode: CUgraphNode,
        dependencies: *mut CUgraphNode,
        numDependencies: *mut usize,
    ) -> CUresult {
        let deps = self.before(hNode);
        // SAFETY: the caller's contract.
        status(
            deps.and_then(|deps| unsafe { tell_deps(&deps, dependencies, None, numDependencies) }),
        )
    }

    unsafe fn cuGraphNodeGetDependencies_v2(
        &self,
        hNode: CUgraphNode,
        dependencies: *mut CUgraphNode,
        edgeData: *mut CUgraphEdgeData,
        numDependencies: *mut usize,
    ) -> CUresult {
        let deps = self.before(hNode);
        let data = Some(edgeData);
        // SAFETY: the caller's contract.
        status(
            deps.and_then(|deps| unsafe { tell_deps(&deps, dependencies, data, numDependencies) }),
        )
    }

    unsafe fn cuGraphNodeGetDependentNodes(
        &self,
        hNode: CUgraphNode,
        dependentNodes: *mut CUgraphNode,
        numDependentNodes: *mut usize,
    ) -> CUresult {
        let deps = self.after(hNode);
        // SAFETY: the caller's contract.
        status(
            deps.and_then(|deps| unsafe {
                tell_deps(&deps, dependentNodes, None, numDependentNodes)
            }),
        )
    }

    unsafe fn cuGraphNodeGetDependentNodes_v2(
        &self,
        hNode: CUgraphNode,
        dependentNodes: *mut CUgraphNode,
        edgeData: *mut CUgraphEdgeData,
        numDependentNodes: *mut usize,
    ) -> CUresult {
        let deps = self.after(hNode);
        let data = Some(edgeData);
        // SAFETY: the caller's contract.
        status(
            deps.and_then(|deps| unsafe {
                tell_deps(&deps, dependentNodes, data, numDependentNodes)
            }),
        )
    }

    unsafe fn cuGraphAddDependencies(
        &self,
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        numDependencies: usize,
    ) -> CUresult {
        // SAFETY: the caller's contract, passed on.
        unsafe {
            GraphCalls::cuGraphAddDependencies_v2(self, hGraph, from, to, null(), numDependencies)
        }
    }

    unsafe fn cuGraphAddDependencies_v2(
        &self,
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edgeData: *const CUgraphEdgeData,
        numDependencies: usize,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let edges = unsafe { edges_at(from, to, edgeData, numDependencies) };
        status(edges.and_then(|edges| {
            self.with_graphs(|graphs| {
                let graph = hGraph.addr() as u64;
                graphs.graph(graph)?;
                edges
                    .iter()
                    .try_for_each(|(dep, to)| graphs.tie(graph, *to, *dep))
            })
        }))
    }

    unsafe fn cuGraphRemoveDependencies(
        &self,
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        numDependencies: usize,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let edges = unsafe { edges_at(from, to, null(), numDependencies) };
        status(edges.and_then(|edges| {
            self.with_graphs(|graphs| {
                let graph = hGraph.addr() as u64;
                graphs.graph(graph)?;
                edges
                    .iter()
                    .try_for_each(|(dep, to)| graphs.untie(graph, *to, dep.node))
            })
        }))
    }

    unsafe fn cuGraphRemoveDependencies_v2(
        &self,
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edgeData: *const CUgraphEdgeData,
        numDependencies: usize,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let edges = unsafe { edges_at(from, to, edgeData, numDependencies) };
        status(edges.and_then(|edges| {
            self.with_graphs(|graphs| {
                let graph = hGraph.addr() as u64;
                graphs.graph(graph)?;
                edges.iter().try_for_each(|(dep, to)| {
                    // An edge is known by its data too.
                    let after = graphs.node(*to)?;
                    if !after.before.contains(dep) {
                        return Err(CUDA_ERROR_INVALID_VALUE);
                    }
                    graphs.untie(graph, *to, dep.node)
                })
            })
        }))
    }

    unsafe fn cuGraphDestroyNode(&self, hNode: CUgraphNode) -> CUresult {
        status(self.with_graphs(|graphs| graphs.remove_node(hNode.addr() as u64)))
    }

    unsafe fn cuGraphInstantiate_v2(
        &self,
        phGraphExec: *mut CUgraphExec,
        hGraph: CUgraph,
        phErrorNode: *mut CUgraphNode,
        logBuffer: *mut c_char,
        bufferSize: usize,
    ) -> CUresult {
        let made = self.instantiate(hGraph.addr() as u64, 0, std::ptr::null_mut());
        let node = made.as_ref().err().map_or(0, |unmade| unmade.node);
        // SAFETY: the caller's contract; either may be NULL.
        unsafe { crate::raw::fill(phErrorNode, 1, [node_handle(node)].into_iter()) };
        // SAFETY: as above.
        unsafe { super::empty_log(logBuffer, bufferSize) };
        // SAFETY: as above.
        unsafe { tell(phGraphExec, made.map_err(|unmade| unmade.status)) }
    }

    unsafe fn cuGraphInstantiateWithFlags(
        &self,
        phGraphExec: *mut CUgraphExec,
        hGraph: CUgraph,
        flags: u64,
    ) -> CUresult {
        if flags & u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0 {
            // That needs a stream, which this form has not.
            return CUDA_ERROR_INVALID_VALUE;
        }
        let made = self.instantiate(hGraph.addr() as u64, flags, std::ptr::null_mut());
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphExec, made.map_err(|unmade| unmade.status)) }
    }

    unsafe fn cuGraphInstantiateWithParams(
        &self,
        phGraphExec: *mut CUgraphExec,
        hGraph: CUgraph,
        instantiateParams: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let Some(params) = (unsafe { instantiateParams.as_mut() }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let made = self.instantiate(hGraph.addr() as u64, params.flags, params.hUploadStream);
        let (result, node) = match &made {
            Ok(_) => (CUDA_GRAPH_INSTANTIATE_SUCCESS, 0),
            Err(unmade) => (unmade.result, unmade.node),
        };
        (params.result_out, params.hErrNode_out) = (result, node_handle(node));
        // SAFETY: the caller's contract.
        unsafe { tell(phGraphExec, made.map_err(|unmade| unmade.status)) }
    }

    unsafe fn cuGraphExecGetFlags(
        &self,
        hGraphExec: CUgraphExec,
        flags: *mut cuuint64_t,
    ) -> CUresult {
        let told = self.exec(hGraphExec).map(|exec| exec.flags);
        // SAFETY: the caller's contract.
        unsafe { tell(flags, told) }
    }

    unsafe fn cuGraphUpload(&self, hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult {
        status(self.upload(hGraphExec, hStream))
    }

    unsafe fn cuGraphLaunch(&self, hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult {
        status(self.launch_graph(hGraphExec, hStream))
    }

    unsafe fn cuGraphExecDestroy(&self, hGraphExec: CUgraphExec) -> CUresult {
        status(self.destroy_exec(hGraphExec))
    }

    unsafe fn cuGraphExecUpdate(
        &self,
        hGraphExec: CUgraphExec,
        hGraph: CUgraph,
        hErrorNode_out: *mut CUgraphNode,
        updateResult_out: *mut CUgraphExecUpdateResult,
    ) -> CUresult {
        let (said, result, node) = match self.update_told(hGraphExec, hGraph) {
            Ok(told) => told,
            Err(status) => return status,
        };
        // SAFETY: the caller's contract; either may be NULL.
        unsafe { crate::raw::fill(hErrorNode_out, 1, [node_handle(node)].into_iter()) };
        // SAFETY: as above.
        unsafe { crate::raw::fill(updateResult_out, 1, [result].into_iter()) };
        said
    }

    unsafe fn cuGraphExecUpdate_v2(
        &self,
        hGraphExec: CUgraphExec,
        hGraph: CUgraph,
        resultInfo: *mut CUgraphExecUpdateResultInfo,
    ) -> CUresult {
        let (said, result, node) = match self.update_told(hGraphExec, hGraph) {
            Ok(told) => told,
            Err(status) => return status,
        };
        let told = CUgraphExecUpdateResultInfo {
            result,
            errorNode: node_handle(node),
            errorFromNode: std::ptr::null_mut(),
        };
        // SAFETY: the caller's contract.
        unsafe { crate::raw::fill(resultInfo, 1, [told].into_iter()) };
        said
    }

    unsafe fn cuGraphExecKernelNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let Some(params) = (unsafe { nodeParams.as_ref() }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let params = kernel_of_v1(params);
        let params = &raw const params;
        // SAFETY: the caller's contract, passed on.
        unsafe { GraphCalls::cuGraphExecKernelNodeSetParams_v2(self, hGraphExec, hNode, params) }
    }

    unsafe fn cuGraphExecKernelNodeSetParams_v2(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let content = unsafe { self.kernel_at(nodeParams) };
        status(content.and_then(|content| self.change_node(hGraphExec, hNode, content)))
    }

    unsafe fn cuGraphExecMemcpyNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        copyParams: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let content = unsafe { self.copy_at(copyParams, ctx) };
        status(content.and_then(|content| self.change_node(hGraphExec, hNode, content)))
    }

    unsafe fn cuGraphExecMemsetNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let content = unsafe { self.fill_at(memsetParams, ctx) };
        status(content.and_then(|content| self.change_node(hGraphExec, hNode, content)))
    }

    unsafe fn cuGraphExecHostNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_HOST_NODE_PARAMS,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let content = unsafe { host_at(nodeParams) };
        status(content.and_then(|content| self.change_node(hGraphExec, hNode, content)))
    }

    unsafe fn cuGraphExecChildGraphNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        childGraph: CUgraph,
    ) -> CUresult {
        status(self.update_child(hGraphExec, hNode, childGraph.addr() as u64))
    }

    unsafe fn cuGraphExecEventRecordNodeSetEvent(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        event: CUevent,
    ) -> CUresult {
        let content = self.event_number(event).map(Content::Record);
        status(content.and_then(|content| self.change_node(hGraphExec, hNode, content)))
    }

    unsafe fn cuGraphExecEventWaitNodeSetEvent(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        event: CUevent,
    ) -> CUresult {
        let content = self.event_number(event).map(Content::Wait);
        status(content.and_then(|content| self.change_node(hGraphExec, hNode, content)))
    }

    unsafe fn cuGraphExecBatchMemOpNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let content = unsafe { self.operations_at(nodeParams) };
        status(content.and_then(|content| self.change_node(hGraphExec, hNode, content)))
    }

    unsafe fn cuGraphExecNodeSetParams(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let Some(params) = (unsafe { nodeParams.as_ref() }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        if params.r#type == CU_GRAPH_NODE_TYPE_GRAPH {
            // SAFETY: the kind says that it is this.
            let child = unsafe { params.either.graph }.graph;
            return status(self.update_child(hGraphExec, hNode, child.addr() as u64));
        }
        // SAFETY: the caller's contract.
        let content = unsafe { self.given(params) };
        status(content.and_then(|content| self.change_node(hGraphExec, hNode, content)))
    }

    unsafe fn cuGraphNodeSetEnabled(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        isEnabled: u32,
    ) -> CUresult {
        status(self.enable(hGraphExec, hNode, isEnabled))
    }

    unsafe fn cuGraphNodeGetEnabled(
        &self,
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        isEnabled: *mut u32,
    ) -> CUresult {
        let told = self.is_enabled(hGraphExec, hNode);
        // SAFETY: the caller's contract.
        unsafe { tell(isEnabled, told) }
    }

    unsafe fn cuGraphDebugDotPrint(
        &self,
        hGraph: CUgraph,
        path: *const c_char,
        flags: u32,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let Some(path) = (unsafe { crate::raw::text(path) }) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        status(self.draw_graph(hGraph, path, flags))
    }

    unsafe fn cuUserObjectCreate(
        &self,
        object_out: *mut CUuserObject,
        ptr: *mut c_void,
        destroy: CUhostFn,
        initialRefcount: u32,
        flags: u32,
    ) -> CUresult {
        let told = self.create_object(ptr.expose_provenance(), destroy, initialRefcount, flags);
        // SAFETY: the caller's contract.
        unsafe { tell(object_out, told) }
    }

    unsafe fn cuUserObjectRetain(&self, object: CUuserObject, count: u32) -> CUresult {
        status(self.with_graphs(|graphs| graphs.objects.retain(object.addr() as u64, count)))
    }

    unsafe fn cuUserObjectRelease(&self, object: CUuserObject, count: u32) -> CUresult {
        status(
            self.ready()
                .and_then(|_| self.release_object(object.addr() as u64, count)),
        )
    }

    unsafe fn cuGraphRetainUserObject(
        &self,
        graph: CUgraph,
        object: CUuserObject,
        count: u32,
        flags: u32,
    ) -> CUresult {
        status(self.with_graphs(|graphs| {
            let (graph, object) = (graph.addr() as u64, object.addr() as u64);
            graphs.graph(graph)?;
            match flags {
                0 => graphs.objects.retain(object, count)?,
                // The caller's own references become the graph's.
                CU_GRAPH_USER_OBJECT_MOVE if count > 0 => graphs.objects.check(object)?,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            *graphs.graph_mut(graph)?.objects.entry(object).or_default() += count;
            Ok(())
        }))
    }

    unsafe fn cuGraphReleaseUserObject(
        &self,
        graph: CUgraph,
        object: CUuserObject,
        count: u32,
    ) -> CUresult {
        let number = object.addr() as u64;
        let held = self.with_graphs(|graphs| {
            let objects = &mut graphs.graph_mut(graph.addr() as u64)?.objects;
            let held = objects.get_mut(&number).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            *held = held.checked_sub(count).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            if *held == 0 {
                objects.remove(&number);
            }
            Ok(())
        });
        status(held.and_then(|()| self.release_object(number, count)))
    }
}
