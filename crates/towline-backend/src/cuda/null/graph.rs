//! What nodes of graphs do on the host-memory device. Which there are, and in which order, is kept by [`Graphs`]; a launch is one
//! command of its stream.

use std::sync::Weak;

use super::device::{self, Place};
use super::streams::Mark;
use super::*;
use crate::cuda::graphs::{Exec, GraphDevice, Graphs, Kept, Task};

/// What a node does.
#[derive(Clone)]
pub enum Work {
    Empty,
    Kernel(Arc<Kernel>, Vec<u8>),
    Copy(Memory),
    Fill(CUDA_MEMSET_NODE_PARAMS),
    Host(CUhostFn, usize),
    Record(Arc<Event>),
    Wait(Arc<Event>),
    Operations(Vec<[u64; 6]>),
    Allocate(Arc<Room>),
    Free,
}

/// A copy; the pointers in it are used when it runs.
#[derive(Clone, Copy)]
pub struct Memory(CUDA_MEMCPY3D);

// SAFETY: the contract of memcpy nodes: host memory is valid whenever the graph runs, from whatever thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Memory that a node allocates, which ends with its graph.
pub struct Room {
    state: Weak<Mutex<State>>,
    address: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(state) = self.state.upgrade() {
            let mut state = unlocked(&state);
            state.rooms.remove(&self.address);
            state.memory.remove(&self.address);
        }
    }
}

/// The value of a conditional handle: what launches begin with, and what it is now.
#[derive(Clone, Copy)]
pub(super) struct Condition {
    default: Option<u32>,
    pub(super) value: u32,
}

/// A conditional handle of a graph.
struct Entry {
    state: Weak<Mutex<State>>,
    number: u64,
}

impl Entry {
    fn with(&self, go: impl FnOnce(&mut HashMap<u64, Condition>)) {
        if let Some(state) = self.state.upgrade() {
            go(&mut unlocked(&state).conditions);
        }
    }
}

impl Kept for Entry {
    fn begin(&self) {
        self.with(|all| {
            if let Some(condition) = all.get_mut(&self.number) {
                condition.value = condition.default.unwrap_or(condition.value);
            }
        });
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.with(|all| {
            all.remove(&self.number);
        });
    }
}

fn unlocked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most turns of bodies in a launch: a test that goes wrong ends.
const TURNS: usize = 100_000;

/// Carries out what a launch does.
fn carry_out(state: &Mutex<State>, tasks: &[Arc<Task<Work>>]) -> CUresult {
    let turns = std::cell::Cell::new(0);
    let value = |handle: u64| {
        let state = unlocked(state);
        state.conditions.get(&handle).map_or(0, |it| it.value)
    };
    let may_go_on = || {
        turns.set(turns.get() + 1);
        match turns.get() > TURNS {
            true => Err(CUDA_ERROR_LAUNCH_TIMEOUT),
            false => Ok(()),
        }
    };
    let run = |work: &Work| match run(state, work) {
        CUDA_SUCCESS => Ok(()),
        status => Err(status),
    };
    let mut tasks = tasks.iter();
    let outcome = tasks.try_for_each(|task| task.carry_out(&run, &value, &may_go_on));
    outcome.err().unwrap_or(CUDA_SUCCESS)
}

fn run(state: &Mutex<State>, work: &Work) -> CUresult {
    match work {
        Work::Kernel(kernel, arguments) => kernel.run(state, arguments),
        Work::Copy(copy) => copy_box(state, &copy.0),
        Work::Fill(fill) => {
            let element = fill.value.to_le_bytes();
            let pattern = element.get(..fill.elementSize as usize).unwrap_or(&element);
            let row = pattern.repeat(fill.width);
            let rows = 0..fill.height.max(1) as u64;
            let failed = rows.map(|row_at| {
                let at = fill.dst + row_at * fill.pitch as u64;
                device::write(state, at, &row)
            });
            failed
                .into_iter()
                .find(|status| *status != CUDA_SUCCESS)
                .unwrap_or(CUDA_SUCCESS)
        }
        Work::Host(function, data) => {
            if let Some(function) = function {
                // SAFETY: the contract of host nodes: the function may be called with its data when the graph comes to it.
                unsafe { function(std::ptr::with_exposed_provenance_mut(*data)) };
            }
            CUDA_SUCCESS
        }
        Work::Operations(operations) => {
            for operation in operations {
                let status = operate(state, operation);
                if status != CUDA_SUCCESS {
                    return status;
                }
            }
            CUDA_SUCCESS
        }
        _ => CUDA_SUCCESS,
    }
}

fn copy_box(state: &Mutex<State>, copy: &CUDA_MEMCPY3D) -> CUresult {
    let at = |x: usize, y: usize, z: usize, pitch: usize, height: usize, row: (usize, usize)| {
        (((z + row.1) * height + y + row.0) * pitch + x) as u64
    };
    let mut bytes = vec![0_u8; copy.WidthInBytes];
    for row in (0..copy.Depth).flat_map(|z| (0..copy.Height).map(move |y| (y, z))) {
        let from = at(
            copy.srcXInBytes,
            copy.srcY,
            copy.srcZ,
            copy.srcPitch,
            copy.srcHeight,
            row,
        );
        let to = at(
            copy.dstXInBytes,
            copy.dstY,
            copy.dstZ,
            copy.dstPitch,
            copy.dstHeight,
            row,
        );
        let status = match copy.srcMemoryType {
            CU_MEMORYTYPE_HOST => {
                let source = copy.srcHost.cast::<u8>().wrapping_add(from as usize);
                // SAFETY: the contract of memcpy nodes: the box is readable.
                unsafe { bytes.as_mut_ptr().copy_from(source, copy.WidthInBytes) };
                CUDA_SUCCESS
            }
            _ => {
                let place = Place(bytes.as_mut_ptr());
                device::read(state, copy.srcDevice + from, copy.WidthInBytes, place)
            }
        };
        if status != CUDA_SUCCESS {
            return status;
        }
        let status = match copy.dstMemoryType {
            CU_MEMORYTYPE_HOST => {
                let target = copy.dstHost.cast::<u8>().wrapping_add(to as usize);
                // SAFETY: as above: writable.
                unsafe { target.copy_from(bytes.as_ptr(), copy.WidthInBytes) };
                CUDA_SUCCESS
            }
            _ => device::write(state, copy.dstDevice + to, &bytes),
        };
        if status != CUDA_SUCCESS {
            return status;
        }
    }
    CUDA_SUCCESS
}

impl GraphDevice for NullCuda {
    type Work = Work;
    type Place = Mark;

    fn graphs<T>(&self, go: impl FnOnce(&mut Graphs<Self>) -> T) -> T {
        go(&mut self.graph_lock())
    }

    fn fresh(&self) -> usize {
        Self::fresh(self)
    }

    fn empty_work(&self) -> Work {
        Work::Empty
    }

    unsafe fn kernel_work(&self, params: *const CUDA_KERNEL_NODE_PARAMS) -> Result<Work, CUresult> {
        // SAFETY: the contract of the call: a description of a launch.
        let params = unsafe { *params };
        let handle = match params.func.addr() {
            0 => params.kern.addr(),
            function => function,
        };
        let kernel = self.kernel(handle)?;
        let threads = u64::from(params.blockDimX) * u64::from(params.blockDimY);
        if params.gridDimX == 0 || threads == 0 || threads > 1024 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the contract of the call.
        let arguments = unsafe { device::arguments(&kernel, params.kernelParams, params.extra) };
        Ok(Work::Kernel(
            kernel,
            arguments.ok_or(CUDA_ERROR_INVALID_VALUE)?,
        ))
    }

    unsafe fn set_kernel_attribute(
        &self,
        _work: &mut Work,
        _attribute: CUkernelNodeAttrID,
        _value: *const CUlaunchAttributeValue,
    ) -> Result<(), CUresult> {
        Ok(())
    }

    unsafe fn copy_work(&self, copy: *const CUDA_MEMCPY3D) -> Result<Work, CUresult> {
        // SAFETY: the contract of the call: a description of a copy.
        let copy = unsafe { *copy };
        let known = |kind| matches!(kind, CU_MEMORYTYPE_HOST | CU_MEMORYTYPE_DEVICE);
        if !known(copy.srcMemoryType) || !known(copy.dstMemoryType) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Work::Copy(Memory(copy)))
    }

    unsafe fn fill_work(&self, fill: *const CUDA_MEMSET_NODE_PARAMS) -> Result<Work, CUresult> {
        // SAFETY: the contract of the call.
        Ok(Work::Fill(unsafe { *fill }))
    }

    unsafe fn host_work(&self, params: *const CUDA_HOST_NODE_PARAMS) -> Result<Work, CUresult> {
        // SAFETY: the contract of the call: a description of a function.
        let params = unsafe { *params };
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
        // SAFETY: the contract of the call: a description of operations.
        let params = unsafe { *params };
        let one = |index: usize| {
            let place = params.paramArray.cast::<[u64; 6]>().wrapping_add(index);
            // SAFETY: as above: as many as it says.
            unsafe { place.read() }
        };
        let operations = (0..params.count as usize).map(one);
        Ok(Work::Operations(operations.collect()))
    }

    unsafe fn allocation_work(
        &self,
        params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> Result<Work, CUresult> {
        // SAFETY: the contract of the call: parameters that are read and written.
        let params = unsafe { &mut *params };
        let memory = Allocation::new(params.bytesize);
        let address = memory.address();
        params.dptr = address;
        {
            let mut state = self.lock();
            state.memory.insert(address, memory);
            state.rooms.insert(address);
        }
        let state = Arc::downgrade(&self.state);
        Ok(Work::Allocate(Arc::new(Room { state, address })))
    }

    fn free_work(&self, _address: CUdeviceptr) -> Result<Work, CUresult> {
        Ok(Work::Free)
    }

    fn condition(&self, default: Option<u32>) -> Result<(u64, Arc<dyn Kept>), CUresult> {
        let number = self.fresh() as u64;
        let condition = Condition { default, value: 0 };
        self.lock().conditions.insert(number, condition);
        let state = Arc::downgrade(&self.state);
        Ok((number, Arc::new(Entry { state, number })))
    }

    fn launch(&self, exec: &Arc<Exec<Self>>, stream: CUstream) -> Result<(), CUresult> {
        let queue = self.queue(stream)?;
        match self.streams.status() {
            CUDA_SUCCESS => {}
            failed => return Err(failed),
        }
        let (tasks, kept) = (exec.tasks(), exec.kept());
        let (mut waits, mut records) = (Vec::new(), Vec::new());
        for task in &tasks {
            match &**task {
                Task::Plain(Work::Wait(event)) => waits.push(Arc::clone(event)),
                Task::Plain(Work::Record(event)) => records.push(Arc::clone(event)),
                _ => {}
            }
        }
        for event in waits {
            self.streams.wait_event(&queue, &event);
        }
        let (state, streams) = (Arc::clone(&self.state), Arc::clone(&self.streams));
        let work = move || {
            kept.iter().for_each(|kept| kept.begin());
            streams.note(carry_out(&state, &tasks));
        };
        let mut last = exec.last();
        self.streams.push_behind(&queue, &mut last, Box::new(work));
        drop(last);
        for event in records {
            self.streams.record(&queue, &event);
        }
        Ok(())
    }
}
