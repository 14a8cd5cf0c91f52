//! Graphs: what their nodes do here. Which there are, and in which order, is kept by [`Graphs`].
//!
//! A launch is a command of its stream that carries out the nodes one after another. Where a node records or waits for an event, the
//! launch is cut there, so that other streams see the event passed no earlier than a GPU would have them see it.
#![allow(unsafe_code, reason = "the contract is the C interface")]

use std::ffi::c_void;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use towline_backend::cuda::graphs::{Exec, GraphDevice, Graphs, Kept, Task};
use towline_backend::cuda::*;

use super::copy::{Copying, Filling};
use super::launch::{Plan, Shape};
use super::operations::Operations;
use super::streams::{Event, Place};
use super::{Context, SoftCuda, fresh, lock};
use crate::memory::{Arena, Purpose};
use crate::messages::Messages;

/// What a node does.
#[derive(Clone)]
pub enum Work {
    Empty,
    Kernel(Box<Plan>),
    Copy(Copying),
    Fill(Filling),
    Host(CUhostFn, usize),
    Record(Arc<Event>),
    Wait(Arc<Event>),
    Operations(Operations),
    Allocate(Arc<Room>),
    Free(u64),
}

/// Addresses that an allocation of a graph keeps as long as the graph, or an executable one made of it, lives.
pub struct Room {
    arena: Arc<Arena>,
    address: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.arena.let_go(self.address, Purpose::Graph);
    }
}

/// The value of a conditional handle, which is the address where it lies: kernels write it there.
struct Condition {
    arena: Arc<Arena>,
    address: u64,
    default: Option<u32>,
}

impl Kept for Condition {
    fn begin(&self) {
        if let Some(default) = self.default
            && let Some(span) = self.arena.range(self.address, 4)
        {
            span.write(self.address, &default.to_le_bytes());
        }
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        self.arena.free(self.address, Purpose::Image);
    }
}

/// Part of a launch: what is one command of the stream.
enum Part {
    Tasks(Vec<Arc<Task<Work>>>),
    Record(Arc<Event>),
    Wait(Arc<Event>),
}

/// What every part of a launch needs.
#[derive(Clone)]
struct Running {
    arena: Arc<Arena>,
    context: Arc<Context>,
    limit: Option<Duration>,
    messages: Arc<Messages>,
}

fn done(status: CUresult) -> Result<(), CUresult> {
    match status {
        CUDA_SUCCESS => Ok(()),
        status => Err(status),
    }
}

impl Running {
    fn run(&self, work: &Work) -> Result<(), CUresult> {
        match work {
            Work::Kernel(plan) => done(plan.as_ref().clone().run()),
            Work::Copy(copying) => done(copying.run(&self.arena)),
            Work::Fill(filling) => done(filling.run(&self.arena)),
            Work::Host(Some(function), data) => {
                let data: *mut c_void = std::ptr::with_exposed_provenance_mut(*data);
                // SAFETY: the contract of host nodes: the function may be called with its data when the graph comes to it.
                unsafe { function(data) };
                Ok(())
            }
            Work::Operations(operations) => done(operations.run(&self.arena, &self.context)),
            Work::Allocate(room) => match self.arena.wake(room.address) {
                true => Ok(()),
                // It was not given back since it was last allocated.
                false => Err(CUDA_ERROR_INVALID_VALUE),
            },
            Work::Free(address) => match self.arena.rest(*address, Purpose::Graph) {
                true => Ok(()),
                false => Err(CUDA_ERROR_INVALID_VALUE),
            },
            Work::Empty | Work::Host(None, _) | Work::Record(_) | Work::Wait(_) => Ok(()),
        }
    }

    fn carry_out(&self, tasks: &[Arc<Task<Work>>]) -> CUresult {
        let deadline = self
            .limit
            .and_then(|limit| Instant::now().checked_add(limit));
        let value = |handle: u64| {
            let mut value = [0; 4];
            if let Some(span) = self.arena.range(handle, 4) {
                span.read(handle, &mut value);
            }
            u32::from_le_bytes(value)
        };
        let may_go_on = || {
            self.context.may_go_on()?;
            match deadline.is_some_and(|deadline| Instant::now() > deadline) {
                true => {
                    self.messages.tell("a graph", "time limit", || {
                        "a graph ran longer than the server's limit (--kernel-time-limit): its bodies are repeated too often".into()
                    });
                    Err(CUDA_ERROR_LAUNCH_TIMEOUT)
                }
                false => Ok(()),
            }
        };
        let run = |work: &Work| self.run(work);
        let outcome = tasks.iter().try_for_each(|task| {
            may_go_on()?;
            task.carry_out(&run, &value, &may_go_on)
        });
        outcome.err().unwrap_or(CUDA_SUCCESS)
    }
}

/// The parts of a launch, in order.
fn parts(tasks: Vec<Arc<Task<Work>>>) -> Vec<Part> {
    let mut parts = Vec::new();
    for task in tasks {
        match &*task {
            Task::Plain(Work::Record(event)) => parts.push(Part::Record(Arc::clone(event))),
            Task::Plain(Work::Wait(event)) => parts.push(Part::Wait(Arc::clone(event))),
            _ => match parts.last_mut() {
                Some(Part::Tasks(tasks)) => tasks.push(task),
                _ => parts.push(Part::Tasks(vec![task])),
            },
        }
    }
    parts
}

impl SoftCuda {
    fn graph_lock(&self) -> MutexGuard<'_, Graphs<Self>> {
        lock(&self.graphs)
    }

    /// What graphs hold of a device's memory, and what of it may be used now.
    pub(super) fn graph_memory(
        &self,
        device: CUdevice,
        which: CUgraphMem_attribute,
    ) -> Result<u64, CUresult> {
        let marks = self.arena.graph_marks(self.check_device(device)?);
        Ok(match which {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => marks.used.now,
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => marks.used.high,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => marks.reserved.now,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => marks.reserved.high,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// A mark can only be begun anew.
    pub(super) fn set_graph_memory(
        &self,
        device: CUdevice,
        which: CUgraphMem_attribute,
        value: u64,
    ) -> Result<(), CUresult> {
        let device = self.check_device(device)?;
        match which {
            _ if value != 0 => return Err(CUDA_ERROR_INVALID_VALUE),
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => {
                self.arena.reset_graph_mark(device, |marks| &mut marks.used);
            }
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => {
                self.arena
                    .reset_graph_mark(device, |marks| &mut marks.reserved);
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}

impl GraphDevice for SoftCuda {
    type Work = Work;
    type Place = Place;

    fn graphs<T>(&self, go: impl FnOnce(&mut Graphs<Self>) -> T) -> T {
        go(&mut self.graph_lock())
    }

    fn fresh(&self) -> usize {
        fresh()
    }

    fn empty_work(&self) -> Work {
        Work::Empty
    }

    unsafe fn kernel_work(&self, params: *const CUDA_KERNEL_NODE_PARAMS) -> Result<Work, CUresult> {
        // SAFETY: the caller's contract: a description of a launch.
        let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let handle = match params.func.addr() {
            0 => params.kern.addr(),
            function => function,
        };
        let context = match params.ctx.is_null() {
            true => self.context()?,
            false => self.find_context(params.ctx.addr())?,
        };
        let function = self.function(handle)?;
        let shape = Shape {
            grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
            block: [params.blockDimX, params.blockDimY, params.blockDimZ],
            dynamic_bytes: params.sharedMemBytes,
            cooperative: false,
        };
        // SAFETY: the caller's contract.
        let block = unsafe { self.parameters(&function, params.kernelParams, params.extra) }?;
        let plan = self.plan(&function, shape, &context, block)?;
        Ok(Work::Kernel(Box::new(plan)))
    }

    unsafe fn set_kernel_attribute(
        &self,
        work: &mut Work,
        attribute: CUkernelNodeAttrID,
        value: *const CUlaunchAttributeValue,
    ) -> Result<(), CUresult> {
        let Work::Kernel(plan) = work else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        // SAFETY: the caller's contract: 64 bytes.
        let words = unsafe { value.cast::<[u32; 3]>().read_unaligned() };
        plan.take_attribute(attribute, words)
    }

    fn inherit(&self, before: &Work, work: &mut Work) -> Result<(), CUresult> {
        match (before, work) {
            (Work::Kernel(before), Work::Kernel(plan)) => plan.inherit(before),
            _ => Ok(()),
        }
    }

    unsafe fn copy_work(&self, copy: *const CUDA_MEMCPY3D) -> Result<Work, CUresult> {
        // SAFETY: the caller's contract: a description of a copy.
        let copy = unsafe { copy.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let copying = self.copying(copy)?;
        copying.check(&self.arena)?;
        Ok(Work::Copy(copying))
    }

    unsafe fn fill_work(&self, fill: *const CUDA_MEMSET_NODE_PARAMS) -> Result<Work, CUresult> {
        // SAFETY: the caller's contract: a description of a fill.
        let fill = unsafe { fill.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let element = fill.value.to_le_bytes();
        let element = match fill.elementSize {
            1 | 2 | 4 => element.get(..fill.elementSize as usize),
            _ => None,
        };
        let rows = super::copy::Rows {
            pitch: fill.pitch,
            width: fill.width,
            height: fill.height.max(1),
        };
        let element = element.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let filling = Filling::of(fill.dst, element, rows)?;
        filling.check(&self.arena)?;
        Ok(Work::Fill(filling))
    }

    unsafe fn host_work(&self, params: *const CUDA_HOST_NODE_PARAMS) -> Result<Work, CUresult> {
        // SAFETY: the caller's contract: a description of a function.
        let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(Work::Host(params.r#fn, params.userData.expose_provenance()))
    }

    fn record_work(&self, event: CUevent) -> Result<Work, CUresult> {
        self.event(event).map(Work::Record)
    }

    fn wait_work(&self, event: CUevent) -> Result<Work, CUresult> {
        self.event(event).map(Work::Wait)
    }

    unsafe fn operations_work(
        &self,
        params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> Result<Work, CUresult> {
        // SAFETY: the caller's contract: a description of operations.
        let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: as above: as many as it says.
        let operations = unsafe { Operations::of(params.paramArray, params.count) }?;
        Ok(Work::Operations(operations))
    }

    unsafe fn allocation_work(
        &self,
        params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> Result<Work, CUresult> {
        use super::virtual_memory::Number;
        // SAFETY: the caller's contract: parameters that are read and written.
        let params = unsafe { params.as_mut() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let location = &params.poolProps.location;
        let device = self.located(location.r#type, location.number())?;
        let bytes = params.bytesize as u64;
        if bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let room = bytes <= self.free_bytes(device);
        let held = room.then(|| self.arena.hold(bytes, device, Purpose::Graph));
        let address = held.flatten().ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        params.dptr = address;
        Ok(Work::Allocate(Arc::new(Room {
            arena: Arc::clone(&self.arena),
            address,
        })))
    }

    fn free_work(&self, address: CUdeviceptr) -> Result<Work, CUresult> {
        match self.arena.is_kept(address, Purpose::Graph) {
            true => Ok(Work::Free(address)),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn condition(&self, default: Option<u32>) -> Result<(u64, Arc<dyn Kept>), CUresult> {
        let device = self.context()?.device as u32;
        let address = self.arena.allocate(4, device, Purpose::Image);
        let address = address.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        if let Some(span) = self.arena.range(address, 4) {
            span.write(address, &[0; 4]);
        }
        let arena = Arc::clone(&self.arena);
        let kept = Condition {
            arena,
            address,
            default,
        };
        Ok((address, Arc::new(kept)))
    }

    fn launch(&self, exec: &Arc<Exec<Self>>, stream: CUstream) -> Result<(), CUresult> {
        let queue = self.queue(stream)?;
        let running = Running {
            arena: Arc::clone(&self.arena),
            context: Arc::clone(queue.context()),
            limit: self.time_limit(),
            messages: Arc::clone(&self.messages),
        };
        // Executable graphs do not overlap with themselves: a launch stands behind the one before it.
        let mut last = exec.last();
        let (kept, held) = (exec.kept(), Arc::clone(exec));
        let begin = move || {
            kept.iter().for_each(|kept| kept.begin());
            // What the graph holds stays until the launch ends.
            drop(held);
            CUDA_SUCCESS
        };
        let mut place =
            self.streams
                .push_after(&queue, last.take().into_iter().collect(), Box::new(begin));
        for part in parts(exec.tasks()) {
            match part {
                Part::Tasks(tasks) => {
                    let running = running.clone();
                    let work = move || running.carry_out(&tasks);
                    place = self.streams.follow(&queue, Vec::new(), Box::new(work));
                }
                Part::Record(event) => self.streams.record_within(&queue, &event),
                Part::Wait(event) => {
                    let after = event.place().into_iter().collect();
                    place = self
                        .streams
                        .follow(&queue, after, Box::new(|| CUDA_SUCCESS));
                }
            }
        }
        *last = Some(place);
        Ok(())
    }
}

/// The methods of the contract that are about memory of graphs: an `impl` cannot be in two files.
macro_rules! graph_memory_calls {
    () => {
        unsafe fn cuDeviceGetGraphMemAttribute(
            &self,
            device: CUdevice,
            which: CUgraphMem_attribute,
            place: *mut c_void,
        ) -> CUresult {
            answer(place.cast::<u64>(), self.graph_memory(device, which))
        }
        unsafe fn cuDeviceSetGraphMemAttribute(
            &self,
            device: CUdevice,
            which: CUgraphMem_attribute,
            value: *mut c_void,
        ) -> CUresult {
            // SAFETY: the contract of the call: 64 bits, which every attribute of this kind has.
            let value = unsafe { value.cast::<u64>().read() };
            status(self.set_graph_memory(device, which, value))
        }
        unsafe fn cuDeviceGraphMemTrim(&self, device: CUdevice) -> CUresult {
            // Addresses that graphs keep are theirs; nothing else is held back.
            status(self.check_device(device).map(drop))
        }
    };
}
pub(super) use graph_memory_calls;
