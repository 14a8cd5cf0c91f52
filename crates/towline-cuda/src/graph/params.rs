//! Parameters of nodes: what the application gives, and what it is told.

use std::ffi::c_void;

use towline_backend::cuda::*;
use towline_client::raw::Vouched;
use towline_wire::cuda::facts::Parameter;
use towline_wire::cuda::graph::{self as described, Operand, Place};

use super::model::{Content, Copy, Deed, Dep, Given, Graphs, HostRows, Kernel, Node, pointer};
use crate::collective::refuse_between_ranks;
use crate::driver::{Driver, lock, read};
use crate::image::Known;
use crate::launch::{ATTRIBUTE_WORDS, Shape, required_cluster};
use crate::operations;
use crate::pack::{Arguments, Block};

/// Attributes that nodes have; the others are a launch's alone.
const NODE_ATTRIBUTES: [CUlaunchAttributeID; 11] = [
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
    CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE,
];

pub(crate) fn is_node_attribute(attribute: CUlaunchAttributeID) -> bool {
    NODE_ATTRIBUTES.contains(&attribute)
}

impl Kernel {
    /// Takes another launch's parameters. Attributes are not among them.
    pub(crate) fn replace(&mut self, mut new: Self) {
        if new.offsets == self.offsets && new.work.params.len() == self.work.params.len() {
            // Programs go on using the addresses that they were told.
            self.work.params.copy_from_slice(&new.work.params);
            std::mem::swap(&mut new.work.params, &mut self.work.params);
            std::mem::swap(&mut new.told, &mut self.told);
        }
        std::mem::swap(&mut new.work.attributes, &mut self.work.attributes);
        *self = new;
    }

    /// The words of an attribute's value.
    pub(crate) fn attribute(&self, wanted: CUlaunchAttributeID) -> Option<&[u64]> {
        let all = self.work.attributes.as_chunks::<ATTRIBUTE_WORDS>().0;
        let found = all.iter().find(|words| words[0] == u64::from(wanted));
        found.map(|words| &words[1..])
    }

    pub(crate) fn set_attribute(&mut self, wanted: CUlaunchAttributeID, value: [u64; 8]) {
        let all = self.work.attributes.as_chunks_mut::<ATTRIBUTE_WORDS>().0;
        let known = all.iter_mut().find(|words| words[0] == u64::from(wanted));
        match known {
            Some(words) => words[1..].copy_from_slice(&value),
            None => {
                self.work.attributes.push(u64::from(wanted));
                self.work.attributes.extend(value);
            }
        }
    }
}

/// A launch as a node has it: of a function as the application named it, and by its number on the server.
pub(crate) fn kernel_content(
    known: &Known,
    places: &[Parameter],
    [named, number]: [u64; 2],
    context: u64,
    shape: Shape,
    attributes: Vec<u64>,
    block: &Block,
) -> Result<Content, CUresult> {
    refuse_between_ranks(known)?;
    // The application is told where each parameter lies in the block, so each has to.
    if block.len() < places.last().map_or(0, Parameter::end) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Content::Kernel(Box::new(Kernel {
        work: described::Kernel {
            function: number,
            context,
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared_bytes,
            attributes,
            params: block.to_vec(),
        },
        offsets: places.iter().map(|parameter| parameter.offset).collect(),
        told: Vec::new(),
        named,
    })))
}

impl Driver {
    /// The clusters that the function of a node requires; none of a node that is no launch.
    pub(super) fn required_cluster_of(
        &self,
        node: CUgraphNode,
    ) -> Result<Option<[u32; 3]>, CUresult> {
        let launch = self.with_node(node, |node| match &node.content {
            Content::Kernel(kernel) => Ok(Some((kernel.named, kernel.work.context))),
            _ => Ok(None),
        })?;
        let Some((named, context)) = launch else {
            return Ok(None);
        };
        // A function or a context that is gone requires nothing more.
        let (Ok(known), Ok(context)) = (self.function(named), self.context(context)) else {
            return Ok(None);
        };
        Ok(required_cluster(&known, context.device))
    }

    /// A launch as a node has it.
    pub(crate) fn given_kernel(
        &self,
        params: Vouched<'_, CUDA_KERNEL_NODE_PARAMS>,
    ) -> Result<Content, CUresult> {
        self.ready()?;
        let named = match params.func.addr() as u64 {
            0 => params.kern.addr() as u64,
            function => function,
        };
        let known = self.function(named)?;
        let context = match (params.ctx.is_null(), known.context) {
            (true, of_function @ 1..) => self.context(of_function)?,
            _ => self.context_or_current(params.ctx)?,
        };
        let acting = self.acting_in(context)?;
        let (known, number) = self.function_at(known, named, &acting)?;
        let shape = Shape {
            grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
            block: [params.blockDimX, params.blockDimY, params.blockDimZ],
            shared_bytes: params.sharedMemBytes,
        };
        self.check(&known, shape, false, acting.context.device)?;
        if let Some(cluster) = required_cluster(&known, acting.context.device) {
            let mut sides = shape.grid.iter().zip(cluster);
            if !sides.all(|(blocks, of)| blocks.is_multiple_of(of)) {
                return Err(CUDA_ERROR_INVALID_CLUSTER_SIZE);
            }
        }
        let lists = [params.kernelParams, params.extra];
        // SAFETY: the parameters are vouched for.
        let [list, extra] = lists.map(|list| unsafe { Vouched::new(list) });
        let mut block = Arguments::Given(list, extra).pack(|| self.parameters(&known))?;
        self.before_launch(&acting, &mut block)?;
        let (names, context) = ([named, number], acting.context.number);
        let content = kernel_content(
            &known,
            self.parameters(&known)?,
            names,
            context,
            shape,
            Vec::new(),
            &block,
        )?;
        Ok(content)
    }

    /// Refuses memory of another server than a node's, which that one's driver does not reach.
    fn check_near(&self, context: u64, address: u64) -> Result<(), CUresult> {
        let acting = self.acting_in(self.context(context)?)?;
        match self.apart(&acting, &[self.home(&acting, address)])? {
            true => Err(CUDA_ERROR_NOT_SUPPORTED),
            false => Ok(()),
        }
    }

    /// A copy as a node has it.
    pub(crate) fn copy_content(
        &self,
        copy: &CUDA_MEMCPY3D,
        context: u64,
    ) -> Result<Content, CUresult> {
        let (width, height, depth) = (copy.WidthInBytes, copy.Height, copy.Depth);
        // Unlike a copy, a node copies something (seen with driver 580.159).
        if width == 0 || height == 0 || depth == 0 || copy.srcLOD != 0 || copy.dstLOD != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let side = |kind, device: u64, host: *const c_void, array: CUarray| {
            let device_side = |address| match address {
                0 => Err(CUDA_ERROR_INVALID_VALUE),
                address => Ok((Place::Device(address), 0)),
            };
            let host_side = |address: usize| match self.device_side(address as u64, 1)? {
                Some(there) => device_side(there),
                None if address == 0 => Err(CUDA_ERROR_INVALID_VALUE),
                None => Ok((Place::Client, address)),
            };
            match kind {
                CU_MEMORYTYPE_HOST => host_side(host.expose_provenance()),
                CU_MEMORYTYPE_DEVICE if self.is_host(device) => host_side(device as usize),
                CU_MEMORYTYPE_DEVICE => {
                    self.expect_on_device(device)?;
                    device_side(device)
                }
                CU_MEMORYTYPE_UNIFIED if read(&self.memory).is_device(device) => {
                    device_side(device)
                }
                CU_MEMORYTYPE_UNIFIED => host_side(device as usize),
                CU_MEMORYTYPE_ARRAY if !array.is_null() => {
                    Ok((Place::Array(array.addr() as u64), 0))
                }
                _ => Err(CUDA_ERROR_INVALID_VALUE),
            }
        };
        let (source, from_host) = side(
            copy.srcMemoryType,
            copy.srcDevice,
            copy.srcHost,
            copy.srcArray,
        )?;
        let (destination, to_host) = side(
            copy.dstMemoryType,
            copy.dstDevice,
            copy.dstHost.cast_const(),
            copy.dstArray,
        )?;
        let pitched = |pitch: usize, x: usize| match pitch {
            0 => Ok(x.saturating_add(width)),
            pitch if pitch >= x.saturating_add(width) => Ok(pitch),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        };
        let sliced = |rows: usize| if rows == 0 { height } else { rows };
        let operand = |place, [x, y, z, pitch, rows]: [usize; 5]| -> Result<_, CUresult> {
            let pitch = match place {
                Place::Array(_) => pitch,
                _ => pitched(pitch, x)?,
            };
            let rows = sliced(rows);
            Ok((
                Operand {
                    place,
                    x: x as u64,
                    y: y as u64,
                    z: z as u64,
                    level: 0,
                    pitch: pitch as u64,
                    height: rows as u64,
                },
                HostRows {
                    start: ((z * rows + y) * pitch).saturating_add(x),
                    pitch,
                    slice: pitch * rows,
                    width,
                    height,
                    depth,
                },
            ))
        };
        let from = [
            copy.srcXInBytes,
            copy.srcY,
            copy.srcZ,
            copy.srcPitch,
            copy.srcHeight,
        ];
        let to = [
            copy.dstXInBytes,
            copy.dstY,
            copy.dstZ,
            copy.dstPitch,
            copy.dstHeight,
        ];
        let (mut source, mut from_rows) = operand(source, from)?;
        let (mut destination, mut to_rows) = operand(destination, to)?;
        from_rows.start = from_rows.start.wrapping_add(from_host);
        to_rows.start = to_rows.start.wrapping_add(to_host);
        for side in [source.place, destination.place] {
            if let Place::Device(address) = side {
                self.check_near(context, address)?;
            }
        }
        let deed = match (source.place, destination.place) {
            (Place::Client, Place::Client) => Some(Deed::Move(from_rows, to_rows)),
            (Place::Client, _) => Some(Deed::Fetch(from_rows)),
            (_, Place::Client) => Some(Deed::Take(to_rows)),
            _ => None,
        };
        // Where in the application's memory it is, the server need not know.
        for side in [&mut source, &mut destination] {
            if side.place == Place::Client {
                *side = Operand::default();
            }
        }
        let work = match deed {
            Some(Deed::Move(..)) => described::Work::Call,
            _ => described::Work::Copy(described::Copy {
                source,
                destination,
                width: width as u64,
                height: height as u64,
                depth: depth as u64,
                context,
            }),
        };
        Ok(Content::Copy(Box::new(Copy {
            given: Given(*copy),
            work,
            deed,
        })))
    }

    /// A fill as a node has it.
    pub(crate) fn fill_content(
        &self,
        fill: &CUDA_MEMSET_NODE_PARAMS,
        context: u64,
    ) -> Result<Content, CUresult> {
        match fill.dst {
            0 => Err(CUDA_ERROR_INVALID_VALUE),
            address => {
                self.expect_on_device(address)?;
                self.captured_fill(fill, context)
            }
        }
    }

    /// As [`Self::fill_content`], of a captured stream, where NULL is found out when the graph is made executable (seen with driver
    /// 580.159).
    pub(crate) fn captured_fill(
        &self,
        fill: &CUDA_MEMSET_NODE_PARAMS,
        context: u64,
    ) -> Result<Content, CUresult> {
        let size = u64::from(fill.elementSize);
        let row = fill.width.checked_mul(fill.elementSize as usize);
        let fits = |row: usize| fill.height <= 1 || fill.pitch >= row;
        let known = matches!(fill.elementSize, 1 | 2 | 4)
            && fill.dst.is_multiple_of(size)
            && fill.width > 0
            && fill.height > 0
            && row.is_some_and(fits);
        if !known {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let address = match self.is_host(fill.dst) {
            true => self.device_pointer(fill.dst)?,
            false => fill.dst,
        };
        self.check_near(context, address)?;
        Ok(Content::Fill(described::Fill {
            address,
            pitch: fill.pitch as u64,
            value: fill.value,
            element_size: fill.elementSize,
            width: fill.width as u64,
            height: fill.height as u64,
            context,
        }))
    }

    /// Operations as a node has them.
    pub(crate) fn given_operations(
        &self,
        params: Vouched<'_, CUDA_BATCH_MEM_OP_NODE_PARAMS>,
    ) -> Result<Content, CUresult> {
        let context = self.context_or_current(params.ctx)?.number;
        if params.flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the list is as long as the parameters say, which are vouched for.
        let list = unsafe { crate::raw::slice(params.paramArray, params.count as usize) };
        let words = operations::words(list.ok_or(CUDA_ERROR_INVALID_VALUE)?)?;
        self.check_operations(context, &words, true)?;
        Ok(Content::Operations {
            context,
            flags: params.flags,
            words,
        })
    }

    /// What any kind of node is given, but those that make something else on the way.
    pub(crate) fn given(
        &self,
        params: Vouched<'_, CUgraphNodeParams>,
    ) -> Result<Content, CUresult> {
        match params.r#type {
            CU_GRAPH_NODE_TYPE_KERNEL => {
                // SAFETY: in this and the others the kind says which part of the union counts.
                let given = unsafe { params.either.kernel };
                // SAFETY: the pointers are those of the parameters.
                self.given_kernel(unsafe { Vouched::new(kernel_of_v3(&given)) })
            }
            CU_GRAPH_NODE_TYPE_MEMCPY => {
                // SAFETY: as above.
                let given = unsafe { params.either.memcpy };
                if given.flags != 0 {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                let context = self.context_or_current(given.copyCtx)?;
                self.copy_content(&given.copyParams, context.number)
            }
            CU_GRAPH_NODE_TYPE_MEMSET => {
                // SAFETY: as above.
                let given = unsafe { params.either.memset };
                let context = self.context_or_current(given.ctx)?;
                let fill = CUDA_MEMSET_NODE_PARAMS {
                    dst: given.dst,
                    pitch: given.pitch,
                    value: given.value,
                    elementSize: given.elementSize,
                    width: given.width,
                    height: given.height,
                };
                self.fill_content(&fill, context.number)
            }
            CU_GRAPH_NODE_TYPE_HOST => {
                // SAFETY: as above.
                let given = unsafe { params.either.host };
                host_content(given.r#fn, given.userData)
            }
            CU_GRAPH_NODE_TYPE_EMPTY => Ok(Content::Empty),
            CU_GRAPH_NODE_TYPE_WAIT_EVENT => {
                // SAFETY: as above.
                let given = unsafe { params.either.eventWait };
                self.event_number(given.event).map(Content::Wait)
            }
            CU_GRAPH_NODE_TYPE_EVENT_RECORD => {
                // SAFETY: as above.
                let given = unsafe { params.either.eventRecord };
                self.event_number(given.event).map(Content::Record)
            }
            CU_GRAPH_NODE_TYPE_MEM_FREE => {
                // SAFETY: as above.
                let given = unsafe { params.either.free };
                self.free_content(given.dptr)
            }
            CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => {
                // SAFETY: as above.
                let given = unsafe { params.either.memOp };
                let params = CUDA_BATCH_MEM_OP_NODE_PARAMS {
                    ctx: given.ctx,
                    count: given.count,
                    paramArray: given.paramArray,
                    flags: given.flags,
                };
                // SAFETY: the pointers are those of the parameters.
                self.given_operations(unsafe { Vouched::new(params) })
            }
            // The last type that there is.
            kind if kind <= CU_GRAPH_NODE_TYPE_CONDITIONAL => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    pub(crate) fn event_number(&self, event: CUevent) -> Result<u64, CUresult> {
        if event.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match self.event(event)?.is_shareable() {
            // A graph would record it without telling the others.
            true => Err(CUDA_ERROR_NOT_SUPPORTED),
            false => Ok(event.addr() as u64),
        }
    }

    /// As [`Self::free_content`], for a node of a graph behind others of it.
    pub(super) fn free_content_in(
        &self,
        graph: CUgraph,
        deps: &[Dep],
        address: u64,
    ) -> Result<Content, CUresult> {
        let number = graph.addr() as u64;
        let freed = |graphs: &Graphs| {
            let is_it = |node: &u64| match graphs.nodes.get(node).map(|node| &node.content) {
                Some(Content::Free(freed)) => *freed == address,
                _ => false,
            };
            graphs
                .graph(number)
                .is_ok_and(|graph| graph.nodes.iter().any(is_it))
        };
        // Once a graph (seen with driver 580.159).
        if freed(&lock(&self.graphs)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.free_content(address).inspect_err(|_| {
            let graphs = &mut lock(&self.graphs);
            if graphs.check_deps(number, deps).is_ok()
                && let Ok(graph) = graphs.graph_mut(number)
            {
                graph.freed_nothing = true;
            }
        })
    }

    pub(crate) fn free_content(&self, address: u64) -> Result<Content, CUresult> {
        self.ready()?;
        match read(&self.memory).find(address) {
            Some((start, range)) if start == address && range.of_graph => {
                Ok(Content::Free(address))
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

pub(crate) fn host_content(function: CUhostFn, data: *mut c_void) -> Result<Content, CUresult> {
    let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(Content::Host(Some(function), data.expose_provenance()))
}

fn kernel_of_v3(given: &CUDA_KERNEL_NODE_PARAMS_v3) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: given.func,
        gridDimX: given.gridDimX,
        gridDimY: given.gridDimY,
        gridDimZ: given.gridDimZ,
        blockDimX: given.blockDimX,
        blockDimY: given.blockDimY,
        blockDimZ: given.blockDimZ,
        sharedMemBytes: given.sharedMemBytes,
        kernelParams: given.kernelParams,
        extra: given.extra,
        kern: given.kern,
        ctx: given.ctx,
    }
}

/// CUDA 11's form as the later one.
pub(crate) fn kernel_of_v1<'a>(
    given: Vouched<'a, CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Vouched<'a, CUDA_KERNEL_NODE_PARAMS> {
    let later = CUDA_KERNEL_NODE_PARAMS {
        func: given.func,
        gridDimX: given.gridDimX,
        gridDimY: given.gridDimY,
        gridDimZ: given.gridDimZ,
        blockDimX: given.blockDimX,
        blockDimY: given.blockDimY,
        blockDimZ: given.blockDimZ,
        sharedMemBytes: given.sharedMemBytes,
        kernelParams: given.kernelParams,
        extra: given.extra,
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    };
    // SAFETY: the pointers are those of the earlier form.
    unsafe { Vouched::new(later) }
}

impl Node {
    /// The launch of a node. The addresses that it tells are the node's own until it changes.
    pub(crate) fn tell_kernel(&mut self) -> Result<CUDA_KERNEL_NODE_PARAMS, CUresult> {
        let Content::Kernel(kernel) = &mut self.content else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let start = kernel.work.params.as_mut_ptr().expose_provenance();
        // In place: the application may still hold what it was told before.
        kernel.told.resize(kernel.offsets.len(), 0);
        for (told, offset) in kernel.told.iter_mut().zip(&*kernel.offsets) {
            *told = start + *offset as usize;
        }
        let none = std::ptr::null_mut();
        let handle = pointer(kernel.named as usize);
        let (func, kern) = match (kernel.named >> 40) as u8 == KernelHandle::TAG {
            true => (none, handle),
            false => (handle, none),
        };
        let [grid_x, grid_y, grid_z] = kernel.work.grid;
        let [block_x, block_y, block_z] = kernel.work.block;
        Ok(CUDA_KERNEL_NODE_PARAMS {
            func: func.cast(),
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: kernel.work.shared_bytes,
            kernelParams: match kernel.told.is_empty() {
                true => std::ptr::null_mut(),
                false => kernel.told.as_mut_ptr().cast(),
            },
            extra: std::ptr::null_mut(),
            kern: kern.cast(),
            ctx: pointer(kernel.work.context as usize).cast(),
        })
    }

    pub(crate) fn tell_fill(&self) -> Result<CUDA_MEMSET_NODE_PARAMS, CUresult> {
        let Content::Fill(fill) = &self.content else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        Ok(CUDA_MEMSET_NODE_PARAMS {
            dst: fill.address,
            pitch: fill.pitch as usize,
            value: fill.value,
            elementSize: fill.element_size,
            width: fill.width as usize,
            height: fill.height as usize,
        })
    }

    pub(crate) fn tell_operations(&mut self) -> Result<CUDA_BATCH_MEM_OP_NODE_PARAMS, CUresult> {
        let Content::Operations {
            context,
            flags,
            words,
        } = &mut self.content
        else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        Ok(CUDA_BATCH_MEM_OP_NODE_PARAMS {
            ctx: pointer(*context as usize).cast(),
            count: (words.len() / operations::WORDS) as u32,
            paramArray: words.as_mut_ptr().cast(),
            flags: *flags,
        })
    }

    /// The parameters of any node.
    pub(crate) fn tell(&mut self) -> Result<CUgraphNodeParams, CUresult> {
        let mut params = CUgraphNodeParams {
            r#type: self.content.kind(),
            reserved0: [0; 3],
            either: CUgraphNodeParams_either { reserved1: [0; 29] },
            reserved2: 0,
        };
        let either = &mut params.either;
        match &self.content {
            Content::Kernel(_) => {
                let told = self.tell_kernel()?;
                either.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
                    func: told.func,
                    gridDimX: told.gridDimX,
                    gridDimY: told.gridDimY,
                    gridDimZ: told.gridDimZ,
                    blockDimX: told.blockDimX,
                    blockDimY: told.blockDimY,
                    blockDimZ: told.blockDimZ,
                    sharedMemBytes: told.sharedMemBytes,
                    kernelParams: told.kernelParams,
                    extra: told.extra,
                    kern: told.kern,
                    ctx: told.ctx,
                };
            }
            Content::Copy(copy) => {
                let context = match &copy.work {
                    described::Work::Copy(copy) => copy.context,
                    _ => 0,
                };
                either.memcpy = CUDA_MEMCPY_NODE_PARAMS {
                    flags: 0,
                    reserved: 0,
                    copyCtx: pointer(context as usize).cast(),
                    copyParams: copy.given.0,
                };
            }
            Content::Fill(fill) => {
                let told = self.tell_fill()?;
                either.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
                    dst: told.dst,
                    pitch: told.pitch,
                    value: told.value,
                    elementSize: told.elementSize,
                    width: told.width,
                    height: told.height,
                    ctx: pointer(fill.context as usize).cast(),
                };
            }
            Content::Host(function, data) => {
                either.host = CUDA_HOST_NODE_PARAMS_v2 {
                    r#fn: *function,
                    userData: pointer(*data),
                    syncMode: 0,
                    either: CUDA_HOST_NODE_PARAMS_v2_either {
                        ctx: std::ptr::null_mut(),
                    },
                };
            }
            Content::Child(graph) => {
                either.graph = CUDA_CHILD_GRAPH_NODE_PARAMS {
                    graph: pointer(*graph as usize).cast(),
                    ownership: CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE,
                };
            }
            Content::Empty => {}
            Content::Wait(event) => {
                either.eventWait = CUDA_EVENT_WAIT_NODE_PARAMS {
                    event: pointer(*event as usize).cast(),
                };
            }
            Content::Record(event) => {
                either.eventRecord = CUDA_EVENT_RECORD_NODE_PARAMS {
                    event: pointer(*event as usize).cast(),
                    either: CUDA_EVENT_RECORD_NODE_PARAMS_either {
                        ctx: std::ptr::null_mut(),
                    },
                };
            }
            Content::Operations { .. } => {
                let told = self.tell_operations()?;
                either.memOp = CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 {
                    ctx: told.ctx,
                    count: told.count,
                    paramArray: told.paramArray,
                    flags: told.flags,
                };
            }
            Content::Alloc(alloc) => {
                let given = alloc.given.0;
                either.alloc = CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
                    poolProps: given.poolProps,
                    accessDescs: alloc.access.as_ptr().cast(),
                    accessDescCount: alloc.access.len(),
                    bytesize: given.bytesize,
                    dptr: given.dptr,
                };
            }
            Content::Free(address) => {
                either.free = CUDA_MEM_FREE_NODE_PARAMS { dptr: *address };
            }
            Content::Conditional(conditional) => {
                either.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
                    handle: conditional.handle,
                    r#type: conditional.kind,
                    size: conditional.bodies.len() as u32,
                    phGraph_out: conditional.told.as_ptr().cast_mut().cast(),
                    ctx: pointer(conditional.context as usize).cast(),
                };
            }
            Content::Collective(..) => return Err(CUDA_ERROR_NOT_SUPPORTED),
        }
        Ok(params)
    }
}
