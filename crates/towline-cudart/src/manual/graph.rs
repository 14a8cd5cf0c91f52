//! Nodes of graphs whose parameters the runtime describes in its own way: launches, copies and fills.

use std::ffi::c_void;

use towline_backend::cuda::*;

use crate::describe::{End, Piece, element_bytes};
use crate::runtime::{Outcome, Runtime, status};
use crate::types::*;
use crate::{call, get, put};

const ORIGIN: cudaPos = cudaPos { x: 0, y: 0, z: 0 };

impl Runtime {
    /// A launch as the driver describes it.
    fn launch_params(&self, params: &cudaKernelNodeParams) -> Outcome<CUDA_KERNEL_NODE_PARAMS> {
        let (_, func) = self.function(params.func)?;
        let (grid, block) = (params.gridDim, params.blockDim);
        Ok(CUDA_KERNEL_NODE_PARAMS {
            func,
            gridDimX: grid.x,
            gridDimY: grid.y,
            gridDimZ: grid.z,
            blockDimX: block.x,
            blockDimY: block.y,
            blockDimZ: block.z,
            sharedMemBytes: params.sharedMemBytes,
            kernelParams: params.kernelParams,
            extra: params.extra,
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        })
    }

    pub unsafe fn cudaGraphAddKernelNode(
        &self,
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        pNodeParams: *const cudaKernelNodeParams,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let params = self.launch_params(&get!(pNodeParams))?;
            call!(driver.cuGraphAddKernelNode_v2(
                pGraphNode,
                graph,
                pDependencies,
                numDependencies,
                &raw const params
            ));
            Ok(())
        })
    }

    pub unsafe fn cudaGraphKernelNodeGetParams(
        &self,
        node: cudaGraphNode_t,
        pNodeParams: *mut cudaKernelNodeParams,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let mut found = CUDA_KERNEL_NODE_PARAMS {
                func: std::ptr::null_mut(),
                gridDimX: 0,
                gridDimY: 0,
                gridDimZ: 0,
                blockDimX: 0,
                blockDimY: 0,
                blockDimZ: 0,
                sharedMemBytes: 0,
                kernelParams: std::ptr::null_mut(),
                extra: std::ptr::null_mut(),
                kern: std::ptr::null_mut(),
                ctx: std::ptr::null_mut(),
            };
            call!(driver.cuGraphKernelNodeGetParams_v2(node, &raw mut found));
            let func = self.code.host(driver, found.func, found.kern)?;
            put!(
                pNodeParams,
                cudaKernelNodeParams {
                    func: std::ptr::with_exposed_provenance_mut(func),
                    gridDim: dim3 {
                        x: found.gridDimX,
                        y: found.gridDimY,
                        z: found.gridDimZ,
                    },
                    blockDim: dim3 {
                        x: found.blockDimX,
                        y: found.blockDimY,
                        z: found.blockDimZ,
                    },
                    sharedMemBytes: found.sharedMemBytes,
                    kernelParams: found.kernelParams,
                    extra: found.extra,
                }
            );
            Ok(())
        })
    }

    pub unsafe fn cudaGraphKernelNodeSetParams(
        &self,
        node: cudaGraphNode_t,
        pNodeParams: *const cudaKernelNodeParams,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let params = self.launch_params(&get!(pNodeParams))?;
            call!(driver.cuGraphKernelNodeSetParams_v2(node, &raw const params));
            Ok(())
        })
    }

    pub unsafe fn cudaGraphExecKernelNodeSetParams(
        &self,
        hGraphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        pNodeParams: *const cudaKernelNodeParams,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let params = self.launch_params(&get!(pNodeParams))?;
            call!(driver.cuGraphExecKernelNodeSetParams_v2(hGraphExec, node, &raw const params));
            Ok(())
        })
    }

    /// Adds a node that copies.
    pub(crate) fn add_copy(
        &self,
        node: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        (dependencies, count): (*const cudaGraphNode_t, usize),
        copy: &CUDA_MEMCPY3D,
    ) -> Outcome {
        let (driver, context) = self.context()?;
        call!(driver.cuGraphAddMemcpyNode(node, graph, dependencies, count, copy, context));
        Ok(())
    }

    /// Changes what a node copies.
    pub(crate) fn set_copy(&self, node: cudaGraphNode_t, copy: &CUDA_MEMCPY3D) -> Outcome {
        let driver = self.enter()?;
        call!(driver.cuGraphMemcpyNodeSetParams(node, copy));
        Ok(())
    }

    /// Changes what a node copies in an executable graph.
    pub(crate) fn set_exec_copy(
        &self,
        exec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        copy: &CUDA_MEMCPY3D,
    ) -> Outcome {
        let (driver, context) = self.context()?;
        call!(driver.cuGraphExecMemcpyNodeSetParams(exec, node, copy, context));
        Ok(())
    }

    /// The copy that a structure describes.
    pub(crate) fn boxed(&self, parms: *const cudaMemcpy3DParms) -> Outcome<CUDA_MEMCPY3D> {
        let parms = get!(parms);
        self.piece(&parms)?.described(parms.kind)
    }

    pub unsafe fn cudaGraphMemcpyNodeGetParams(
        &self,
        node: cudaGraphNode_t,
        pNodeParams: *mut cudaMemcpy3DParms,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let mut found = line(std::ptr::null_mut(), std::ptr::null(), 0, cudaMemcpyDefault)?;
            call!(driver.cuGraphMemcpyNodeGetParams(node, &raw mut found));
            let told = told(driver, &found)?;
            put!(pNodeParams, told);
            Ok(())
        })
    }

    pub unsafe fn cudaGraphAddMemsetNode(
        &self,
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        pMemsetParams: *const cudaMemsetParams,
    ) -> cudaError_t {
        status(|| {
            let (driver, context) = self.context()?;
            call!(driver.cuGraphAddMemsetNode(
                pGraphNode,
                graph,
                pDependencies,
                numDependencies,
                pMemsetParams.cast(),
                context
            ));
            Ok(())
        })
    }

    pub unsafe fn cudaGraphExecMemsetNodeSetParams(
        &self,
        hGraphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        pNodeParams: *const cudaMemsetParams,
    ) -> cudaError_t {
        status(|| {
            let (driver, context) = self.context()?;
            call!(driver.cuGraphExecMemsetNodeSetParams(
                hGraphExec,
                node,
                pNodeParams.cast(),
                context
            ));
            Ok(())
        })
    }

    /// Parameters of a node of any kind as the driver describes them. Launches, copies and fills differ; the others are alike.
    fn any(&self, given: *const cudaGraphNodeParams) -> Outcome<CUgraphNodeParams> {
        let given = get!(given);
        // SAFETY: any bits are words.
        let words = unsafe { given.params.reserved1 };
        let mut params = CUgraphNodeParams {
            r#type: given.kind,
            reserved0: given.reserved0,
            either: CUgraphNodeParams_either { reserved1: words },
            reserved2: given.reserved2,
        };
        match given.kind {
            CU_GRAPH_NODE_TYPE_KERNEL => {
                // SAFETY: the kind says that this member is meant; any bits are numbers.
                let found = self.launch_params(&unsafe { given.params.kernel })?;
                params.either.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
                    func: found.func,
                    gridDimX: found.gridDimX,
                    gridDimY: found.gridDimY,
                    gridDimZ: found.gridDimZ,
                    blockDimX: found.blockDimX,
                    blockDimY: found.blockDimY,
                    blockDimZ: found.blockDimZ,
                    sharedMemBytes: found.sharedMemBytes,
                    kernelParams: found.kernelParams,
                    extra: found.extra,
                    kern: std::ptr::null_mut(),
                    ctx: std::ptr::null_mut(),
                };
            }
            CU_GRAPH_NODE_TYPE_MEMCPY => {
                // SAFETY: as above.
                let parms = unsafe { given.params.memcpy }.copyParams;
                let (_, context) = self.context()?;
                params.either.memcpy = CUDA_MEMCPY_NODE_PARAMS {
                    flags: 0,
                    reserved: 0,
                    copyCtx: context,
                    copyParams: self.piece(&parms)?.described(parms.kind)?,
                };
            }
            CU_GRAPH_NODE_TYPE_MEMSET => {
                // SAFETY: as above.
                let fill = unsafe { given.params.memset };
                let (_, context) = self.context()?;
                params.either.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
                    dst: super::memory::address(fill.dst),
                    pitch: fill.pitch,
                    value: fill.value,
                    elementSize: fill.elementSize,
                    width: fill.width,
                    height: fill.height,
                    ctx: context,
                };
            }
            _ => {}
        }
        Ok(params)
    }

    /// Writes back what the driver told about a new node: the address of an allocation, the graphs of a condition.
    fn told_back(given: *mut cudaGraphNodeParams, params: &CUgraphNodeParams) -> Outcome {
        if matches!(
            params.r#type,
            CU_GRAPH_NODE_TYPE_MEM_ALLOC | CU_GRAPH_NODE_TYPE_CONDITIONAL
        ) {
            let mut back = get!(given);
            // SAFETY: any bits are words.
            back.params.reserved1 = unsafe { params.either.reserved1 };
            put!(given, back);
        }
        Ok(())
    }

    pub unsafe fn cudaGraphAddNode(
        &self,
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        dependencyData: *const cudaGraphEdgeData,
        numDependencies: usize,
        nodeParams: *mut cudaGraphNodeParams,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let mut params = self.any(nodeParams)?;
            call!(driver.cuGraphAddNode_v2(
                pGraphNode,
                graph,
                pDependencies,
                dependencyData,
                numDependencies,
                &raw mut params
            ));
            Self::told_back(nodeParams, &params)
        })
    }

    pub unsafe fn cudaGraphAddNode_v1(
        &self,
        pGraphNode: *mut cudaGraphNode_t,
        graph: cudaGraph_t,
        pDependencies: *const cudaGraphNode_t,
        numDependencies: usize,
        nodeParams: *mut cudaGraphNodeParams,
    ) -> cudaError_t {
        let none = std::ptr::null();
        // SAFETY: the caller's contract.
        unsafe {
            self.cudaGraphAddNode(
                pGraphNode,
                graph,
                pDependencies,
                none,
                numDependencies,
                nodeParams,
            )
        }
    }

    pub unsafe fn cudaGraphNodeSetParams(
        &self,
        node: cudaGraphNode_t,
        nodeParams: *mut cudaGraphNodeParams,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let mut params = self.any(nodeParams)?;
            call!(driver.cuGraphNodeSetParams_v2(node, &raw mut params));
            Ok(())
        })
    }

    pub unsafe fn cudaGraphExecNodeSetParams(
        &self,
        graphExec: cudaGraphExec_t,
        node: cudaGraphNode_t,
        nodeParams: *mut cudaGraphNodeParams,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let mut params = self.any(nodeParams)?;
            call!(driver.cuGraphExecNodeSetParams(graphExec, node, &raw mut params));
            Ok(())
        })
    }
}

/// A copy of bytes.
pub(crate) fn line(
    dst: *mut c_void,
    src: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
) -> Outcome<CUDA_MEMCPY3D> {
    let piece = Piece {
        source: End::Memory(src, count, 1),
        source_at: ORIGIN,
        target: End::Memory(dst, count, 1),
        target_at: ORIGIN,
        extent: cudaExtent {
            width: count,
            height: 1,
            depth: 1,
        },
        bytes: true,
    };
    piece.described(kind)
}

/// A copy as the runtime describes it.
fn told(driver: &NativeCuda, copy: &CUDA_MEMCPY3D) -> Outcome<cudaMemcpy3DParms> {
    let unit = |array: CUarray| -> Outcome<Option<usize>> {
        if array.is_null() {
            return Ok(None);
        }
        let found = super::array::descriptor(driver, array)?;
        element_bytes(found.Format, found.NumChannels).map(Some)
    };
    let (from, to) = (unit(copy.srcArray)?, unit(copy.dstArray)?);
    let width = from.or(to).unwrap_or(1).max(1);
    let memory = |kind, host: *const c_void, device, pitch, rows| {
        let ptr = match kind {
            CU_MEMORYTYPE_HOST => host.cast_mut(),
            CU_MEMORYTYPE_ARRAY => std::ptr::null_mut(),
            _ => super::memory::pointer(device),
        };
        cudaPitchedPtr {
            ptr,
            pitch,
            xsize: pitch,
            ysize: rows,
        }
    };
    let kind = match (copy.srcMemoryType, copy.dstMemoryType) {
        (CU_MEMORYTYPE_UNIFIED, _) | (_, CU_MEMORYTYPE_UNIFIED) => cudaMemcpyDefault,
        (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST) => cudaMemcpyHostToHost,
        (CU_MEMORYTYPE_HOST, _) => cudaMemcpyHostToDevice,
        (_, CU_MEMORYTYPE_HOST) => cudaMemcpyDeviceToHost,
        _ => cudaMemcpyDeviceToDevice,
    };
    Ok(cudaMemcpy3DParms {
        srcArray: copy.srcArray,
        srcPos: cudaPos {
            x: copy.srcXInBytes / from.unwrap_or(1).max(1),
            y: copy.srcY,
            z: copy.srcZ,
        },
        srcPtr: memory(
            copy.srcMemoryType,
            copy.srcHost,
            copy.srcDevice,
            copy.srcPitch,
            copy.srcHeight,
        ),
        dstArray: copy.dstArray,
        dstPos: cudaPos {
            x: copy.dstXInBytes / to.unwrap_or(1).max(1),
            y: copy.dstY,
            z: copy.dstZ,
        },
        dstPtr: memory(
            copy.dstMemoryType,
            copy.dstHost,
            copy.dstDevice,
            copy.dstPitch,
            copy.dstHeight,
        ),
        extent: cudaExtent {
            width: copy.WidthInBytes / width,
            height: copy.Height,
            depth: copy.Depth,
        },
        kind,
    })
}
