//! The lane thread's own state: the table of handles, and the helpers that the generated dispatcher stands on.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;
use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_session::{Addresses, Entry, Table};
use towline_wire::error::ProtocolError;
use towline_wire::push::Push;

use super::completion::{Debts, Watched, when_complete};
use super::manual::Expected;
use super::manual::include::IncludeTree;
use super::manual::ring::Ring;
use super::shared::{Raw, Shared};
use crate::code::CodeCharge;
use crate::decode::broken;
use crate::link::Charge;
use crate::turns::Admission;
use crate::waiters::Job;

/// One client's session, driven by the lane thread.
pub(crate) struct Session {
    pub(crate) api: Arc<dyn OpenClApi>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) table: Table<Raw>,
    /// The queue that the present request names.
    named_queue: Cell<Raw>,
    /// What transfers need to know of a queue, by native queue.
    pub(crate) queues: Addresses<Queue>,
    /// By native queue, whether commands have come.
    commanded: Addresses<Arc<AtomicBool>>,
    /// Pinned memory for transfers, by native queue; `None` where the vendor gives none.
    pub(crate) rings: Addresses<Option<Ring>>,
    /// Written data that the vendor may still read, oldest first.
    pub(crate) kept: std::collections::VecDeque<Kept>,
    pub(crate) kept_bytes: u64,
    /// Bytes of inline writes given back, and how many of them the client knows of.
    pub(crate) retired: (u64, u64),
    /// Shared virtual memory: address to length and context.
    pub(crate) svm: BTreeMap<u64, Svm>,
    /// The first command's event of each transfer of several commands, by the number of the event that ends it: for the times when it began.
    pub(crate) first_parts: HashMap<u64, Raw>,
    /// User events whose status has not been set, with a reference each.
    pub(crate) open_events: HashMap<u64, Raw>,
    /// Files that programs include, by the client's numbers.
    pub(crate) includes: HashMap<u64, Arc<IncludeTree>>,
    /// What kernels expect of their arguments, by native kernel.
    pub(crate) arguments: Addresses<Vec<Expected>>,
    /// Arguments that could not be set to the values that the client takes them to have, with the reasons, by native kernel.
    pub(crate) unset: Addresses<SmallVec<[(u32, cl_int); 1]>>,
    /// The native program of each native kernel, which holds it.
    programs: Addresses<usize>,
    /// Charges for programs that were released and kernels hold, by native program.
    outlived: Addresses<CodeCharge>,
    /// Of the session, in their order.
    devices: Vec<Raw>,
    /// The request launches on the device of this place, and the launch counts.
    launching: Option<u32>,
    /// Answers that the vendor's threads owe.
    pub(crate) debts: Debts,
    /// What the client's latest request waits for, until the lane's thread or another takes it up.
    pub(crate) waiting: Option<Job>,
    pub(crate) goodbye: bool,
}

/// A queue as transfers see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) native: Raw,
    pub(crate) context: Raw,
    /// The device has memory of its own.
    pub(crate) discrete: bool,
    pub(crate) in_order: bool,
    /// Its commands are timed.
    pub(crate) profiles: bool,
    pub(crate) device: Raw,
    /// The device's place among those of the session; a part of a device has the device's.
    pub(crate) place: u32,
}

/// Data of an inline write, kept until its command is complete.
pub(crate) struct Kept {
    pub(crate) done: Raw,
    pub(crate) data: Box<[u8]>,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, devices: &[(u64, Raw)]) -> Self {
        let mut table = Table::default();
        for (id, device) in devices {
            // The numbers are the snapshot's own: distinct and not zero.
            let _ = table.insert(*id, wire::DeviceHandle::TAG, Entry::Live(*device));
        }
        Self {
            api: Arc::clone(&shared.api),
            shared,
            table,
            named_queue: Cell::new(Raw(std::ptr::null_mut())),
            queues: Addresses::default(),
            commanded: Addresses::default(),
            rings: Addresses::default(),
            kept: std::collections::VecDeque::new(),
            kept_bytes: 0,
            retired: (0, 0),
            svm: BTreeMap::new(),
            first_parts: HashMap::new(),
            open_events: HashMap::new(),
            includes: HashMap::new(),
            programs: Addresses::default(),
            outlived: Addresses::default(),
            arguments: Addresses::default(),
            unset: Addresses::default(),
            devices: devices.iter().map(|(_, device)| *device).collect(),
            launching: None,
            debts: Debts::default(),
            waiting: None,
            goodbye: false,
        }
    }

    /// The native object of a handle; `Err` inside when its creation failed, or when it is no handle where there must be one. For
    /// devices and memory objects some calls take NULL.
    #[inline]
    pub(crate) fn native(
        &self,
        id: u64,
        tag: u8,
    ) -> Result<Result<*mut c_void, i32>, ProtocolError> {
        if id == 0 {
            // Several vendors read through a NULL that has no place in a call.
            return Ok(match tag {
                wire::ContextHandle::TAG => Err(CL_INVALID_CONTEXT),
                wire::CommandQueueHandle::TAG => Err(CL_INVALID_COMMAND_QUEUE),
                wire::EventHandle::TAG => Err(CL_INVALID_EVENT),
                wire::KernelHandle::TAG => Err(CL_INVALID_KERNEL),
                wire::ProgramHandle::TAG => Err(CL_INVALID_PROGRAM),
                wire::SamplerHandle::TAG => Err(CL_INVALID_SAMPLER),
                _ => Ok(std::ptr::null_mut()),
            });
        }
        match self.table.entry(id, tag) {
            Ok(Entry::Live(raw)) => {
                if tag == wire::CommandQueueHandle::TAG {
                    self.named_queue.set(raw);
                }
                Ok(Ok(raw.0))
            }
            Ok(Entry::Failed(_)) if tag == wire::EventHandle::TAG => {
                Ok(Err(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST))
            }
            Ok(Entry::Failed(status)) => Ok(Err(status)),
            Err(error) => Err(broken(error)),
        }
    }

    /// The native kernel of a handle, for a call that uses its arguments: the vendor still has the old value of one that could not be set.
    pub(crate) fn native_with_arguments(
        &self,
        kernel: u64,
    ) -> Result<Result<*mut c_void, i32>, ProtocolError> {
        let native = self.native(kernel, wire::KernelHandle::TAG)?;
        let unset = |raw: *mut c_void| self.unset.get(&raw.addr())?.first();
        Ok(native.and_then(|raw| unset(raw).map_or(Ok(raw), |(_, status)| Err(*status))))
    }

    /// Notes how setting an argument ended that the client takes for set.
    pub(crate) fn note_argument(&mut self, kernel: *mut c_void, index: u32, status: cl_int) {
        if status == CL_SUCCESS && self.unset.is_empty() {
            return;
        }
        let unset = self.unset.entry(kernel.addr()).or_default();
        unset.retain(|(known, _)| *known != index);
        if status != CL_SUCCESS {
            unset.push((index, status));
        }
    }

    /// Enters what a creating call gave.
    pub(crate) fn born(
        &mut self,
        id: u64,
        tag: u8,
        native: *mut c_void,
        status: i32,
    ) -> Result<(), ProtocolError> {
        if tag == wire::ProgramHandle::TAG {
            // Not from source: nobody knows what it does.
            self.shared.printing.expect();
        }
        self.enter(id, tag, native, status)
    }

    /// As [`Self::born`], for a program of which is known whether it may print.
    pub(crate) fn born_program(
        &mut self,
        id: u64,
        native: cl_program,
        status: i32,
        prints: bool,
    ) -> Result<(), ProtocolError> {
        if prints {
            self.shared.printing.expect();
        }
        self.enter(id, wire::ProgramHandle::TAG, native.cast(), status)
    }

    fn enter(
        &mut self,
        id: u64,
        tag: u8,
        native: *mut c_void,
        status: i32,
    ) -> Result<(), ProtocolError> {
        let entry = if native.is_null() {
            Entry::Failed(failure(status))
        } else {
            Entry::Live(Raw(native))
        };
        if tag == wire::CommandQueueHandle::TAG && !native.is_null() {
            let queue = self.describe(native.cast());
            let commanded = self.shared.watch_queue(&queue);
            self.commanded.insert(native.addr(), commanded);
            self.queues.insert(native.addr(), queue);
        }
        if let Err(error) = self.table.insert(id, tag, entry) {
            if !native.is_null() {
                self.release(tag, Raw(native));
            }
            return Err(broken(error));
        }
        if tag == wire::KernelHandle::TAG && !native.is_null() {
            self.programs
                .insert(native.addr(), self.program_of(native.cast()));
        }
        Ok(())
    }

    fn program_of(&self, kernel: cl_kernel) -> usize {
        let mut program: cl_program = std::ptr::null_mut();
        let (place, size) = (&raw mut program, size_of::<cl_program>());
        let none = std::ptr::null_mut();
        // SAFETY: the kernel is live; the answer is one program.
        unsafe {
            self.api
                .clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, size, place.cast(), none)
        };
        program.addr()
    }

    fn is_held(&self, program: usize) -> bool {
        self.programs.values().any(|held| *held == program)
    }

    /// Whether a command gets an event: the client has asked for one, or somebody measures how long commands take.
    pub(crate) fn wants_event(&self, asked: bool) -> bool {
        asked || self.launching.is_some() || self.shared.are_commands_watched()
    }

    /// A command was enqueued, with an event where one [is wanted](Self::wants_event).
    pub(crate) fn enqueued(
        &mut self,
        handle: Option<wire::EventHandle>,
        native: cl_event,
        status: i32,
    ) -> Result<(), ProtocolError> {
        if let Some(commanded) = self.commanded.get(&self.named_queue.get().0.addr()) {
            commanded.store(true, Ordering::Release);
            self.shared.link.work_comes();
        }
        if !native.is_null() && self.shared.are_commands_watched() {
            self.shared.watch_command(native);
        }
        if let Some(place) = self.launching.take() {
            self.shared.launched(place, native);
        }
        match handle {
            None if native.is_null() => {}
            None => self.shared.release_event(Raw(native.cast())),
            handle => self.born_event(handle, native, status)?,
        }
        Ok(())
    }

    /// Enters the event of a command, on the queue that the request names, and arranges that the client hears of its end.
    pub(crate) fn born_event(
        &mut self,
        handle: Option<wire::EventHandle>,
        native: cl_event,
        status: i32,
    ) -> Result<(), ProtocolError> {
        let Some(handle) = handle else { return Ok(()) };
        self.born(handle.0, wire::EventHandle::TAG, native.cast(), status)?;
        if native.is_null() {
            self.shared.event_failed(handle.0, failure(status));
        } else {
            let queue = self.named_queue.get().0;
            let watch = self.watched(queue.cast());
            let profiles = self
                .queues
                .get(&queue.addr())
                .is_some_and(|known| known.profiles);
            // A transfer in several parts began with another event.
            let timed = profiles && !self.first_parts.contains_key(&handle.0);
            self.shared.report_event(handle.0, native, watch, timed);
        }
        Ok(())
    }

    /// The queue, if a thread waits for its events; `None` where the vendor's callbacks tell. Those of GPUs come late.
    pub(crate) fn watched(&self, queue: cl_command_queue) -> Option<Watched> {
        let known = self.queues.get(&queue.addr())?;
        known.discrete.then_some(Watched {
            queue: queue.addr(),
            in_order: known.in_order,
        })
    }

    /// Ends a handle's life; the call itself has released the native object.
    pub(crate) fn destroy(&mut self, id: u64, tag: u8) -> Result<(), ProtocolError> {
        if tag == wire::EventHandle::TAG {
            self.abandon_event(id);
            if let Some(first) = self.first_parts.remove(&id) {
                self.shared.release_event(first);
            }
        }
        let mut code = None;
        if tag == wire::ProgramHandle::TAG {
            self.includes.remove(&id);
            code = self.shared.take_code(id.into());
        }
        match self.table.remove(id, tag) {
            Ok(Entry::Live(raw)) if tag == wire::CommandQueueHandle::TAG => {
                self.queues.remove(&raw.0.addr());
                self.commanded.remove(&raw.0.addr());
                self.shared.unwatch_queue(raw);
                self.rings.remove(&raw.0.addr());
                Ok(())
            }
            Ok(Entry::Live(raw)) if tag == wire::KernelHandle::TAG => {
                self.arguments.remove(&raw.0.addr());
                self.unset.remove(&raw.0.addr());
                let program = self.programs.remove(&raw.0.addr()).unwrap_or(0);
                if self.outlived.contains_key(&program) && !self.is_held(program) {
                    self.outlived.remove(&program);
                }
                Ok(())
            }
            Ok(Entry::Live(raw)) if tag == wire::ProgramHandle::TAG => {
                let program = raw.0.addr();
                if let Some(code) = code.filter(|_| self.is_held(program)) {
                    self.outlived.insert(program, code);
                }
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(broken(error)),
        }
    }

    /// Tells the client of a posted request that failed.
    #[inline]
    pub(crate) fn settle(&mut self, number: u64, call: u16, status: i32) {
        if status < 0 {
            self.settle_on(number, call, 0, status);
        }
    }

    /// As [`Self::settle`], naming the queue whose next wait reports it.
    pub(crate) fn settle_on(&mut self, number: u64, call: u16, queue: u64, status: i32) {
        // A read's failure is told instead of its data.
        if status < 0 && call != <wire::Read<'_> as Request<'_>>::ID {
            log::debug!(
                "request {number} ({}) failed: {}",
                wire::call_name(call).unwrap_or("?"),
                wire::status_name(status).unwrap_or("?")
            );
            self.shared.post(&Push::Failed {
                number,
                call,
                queue,
                status,
            });
        }
    }

    /// Waits for the device for the client's sake, not on the lane.
    pub(crate) fn wait(&mut self, wait: impl FnOnce() + Send + 'static) {
        // Whatever comes last in a frame is most likely what a blocked client waits for: it gets the thread that is awake.
        if let Some(earlier) = self.waiting.replace(Box::new(wait)) {
            self.shared.waiters.run(earlier);
        }
    }

    /// Answers a request.
    pub(crate) fn reply<'a>(&mut self, number: u64, status: i32, body: &impl Message<'a>) {
        self.shared.reply(number, status, body);
    }

    /// What transfers need to know of a new queue.
    fn describe(&self, queue: cl_command_queue) -> Queue {
        let mut context: cl_context = std::ptr::null_mut();
        let mut device: cl_device_id = std::ptr::null_mut();
        let mut properties: cl_command_queue_properties = 0;
        let mut unified: cl_bool = 0;
        let mut kind: cl_device_type = 0;
        let ask = |query, size, value| {
            // SAFETY: the queue was just created; `value` has room for `size` bytes.
            unsafe {
                self.api
                    .clGetCommandQueueInfo(queue, query, size, value, std::ptr::null_mut())
            }
        };
        ask(
            CL_QUEUE_CONTEXT,
            size_of::<cl_context>(),
            (&raw mut context).cast(),
        );
        ask(
            CL_QUEUE_DEVICE,
            size_of::<cl_device_id>(),
            (&raw mut device).cast(),
        );
        ask(
            CL_QUEUE_PROPERTIES,
            size_of::<cl_command_queue_properties>(),
            (&raw mut properties).cast(),
        );
        let ask = |query, size, value| {
            // SAFETY: the device is live as long as its queue; `value` has room for `size` bytes.
            unsafe {
                self.api
                    .clGetDeviceInfo(device, query, size, value, std::ptr::null_mut())
            }
        };
        ask(
            CL_DEVICE_HOST_UNIFIED_MEMORY,
            size_of::<cl_bool>(),
            (&raw mut unified).cast(),
        );
        ask(
            CL_DEVICE_TYPE,
            size_of::<cl_device_type>(),
            (&raw mut kind).cast(),
        );
        Queue {
            native: Raw(queue.cast()),
            context: Raw(context.cast()),
            discrete: unified == 0 && kind & (CL_DEVICE_TYPE_CPU as cl_device_type) == 0,
            in_order: properties
                & (CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as cl_command_queue_properties)
                == 0,
            profiles: properties & (CL_QUEUE_PROFILING_ENABLE as cl_command_queue_properties) != 0,
            device: Raw(device.cast()),
            place: self.place_of(device),
        }
    }

    /// The place of a device among those of the session, or of the device that it is a part of.
    fn place_of(&self, device: cl_device_id) -> u32 {
        let mut at = device;
        while !at.is_null() {
            let place = self.devices.iter().position(|known| known.0.cast() == at);
            if let Some(place) = place {
                return place as u32;
            }
            let mut parent: cl_device_id = std::ptr::null_mut();
            // SAFETY: the device is live; the answer is one device.
            unsafe {
                self.api.clGetDeviceInfo(
                    at,
                    CL_DEVICE_PARENT_DEVICE,
                    size_of::<cl_device_id>(),
                    (&raw mut parent).cast(),
                    std::ptr::null_mut(),
                )
            };
            at = parent;
        }
        u32::MAX
    }

    /// Carries out a request that launches, in the session's turn on the device.
    pub(crate) fn dispatch_launch(
        &mut self,
        number: u64,
        id: u16,
        body: &[u8],
    ) -> Result<(), ProtocolError> {
        let queue = wire::EnqueueNDRangeKernel::decode(body)?.command_queue;
        let native = self.native(queue.0, wire::CommandQueueHandle::TAG)?;
        let queue = native.ok().and_then(|raw| self.queues.get(&raw.addr()));
        if let Some(queue) = queue.copied()
            && self.shared.counters.turns.asks(queue.place)
        {
            let admission = self.shared.counters.turns.admit(queue.place);
            let has_gate = admission == Admission::Held && self.shared.hold_queue(&queue);
            let counts = has_gate || admission == Admission::Counted;
            self.launching = counts.then_some(queue.place);
        }
        let done = self.dispatch(number, id, body);
        if let Some(place) = self.launching.take() {
            self.shared.launched(place, std::ptr::null_mut());
        }
        done
    }

    /// Frees shared virtual memory behind everything that has been enqueued in its context: commands may still use it.
    pub(crate) fn free_svm(&self, memory: Svm) {
        let freed = memory.memory;
        let context = freed.context;
        let queues = self.queues.values();
        for queue in queues.filter(|queue| queue.context == context) {
            let queue: cl_command_queue = queue.native.0.cast();
            let mut marker: cl_event = std::ptr::null_mut();
            // SAFETY: the queue is live: it leaves the list when it is released.
            unsafe {
                self.api
                    .clEnqueueMarkerWithWaitList(queue, 0, std::ptr::null(), &raw mut marker)
            };
            if marker.is_null() {
                // Without a marker nobody knows when its commands end: the memory stays until the process does.
                std::mem::forget(Arc::clone(&freed));
                continue;
            }
            // SAFETY: as above. A marker that nobody flushes is never complete.
            unsafe { self.api.clFlush(queue) };
            let (shared, held) = (Arc::clone(&self.shared), Arc::clone(&freed));
            let event = Raw(marker.cast());
            let told = when_complete(&*self.api, marker, move |_| {
                let event = event;
                drop(held);
                shared.release_event(event);
            });
            if told.is_err() {
                std::mem::forget(Arc::clone(&freed));
                self.shared.release_event(event);
            }
        }
    }

    /// Gives a native object back.
    pub(crate) fn release(&self, tag: u8, raw: Raw) {
        let api = &self.api;
        match tag {
            // SAFETY: the table owned this reference.
            wire::ContextHandle::TAG => unsafe { api.clReleaseContext(raw.0.cast()) },
            // SAFETY: as above.
            wire::CommandQueueHandle::TAG => unsafe { api.clReleaseCommandQueue(raw.0.cast()) },
            // SAFETY: as above.
            wire::MemHandle::TAG => unsafe { api.clReleaseMemObject(raw.0.cast()) },
            // SAFETY: as above.
            wire::SamplerHandle::TAG => unsafe { api.clReleaseSampler(raw.0.cast()) },
            // SAFETY: as above.
            wire::ProgramHandle::TAG => unsafe { api.clReleaseProgram(raw.0.cast()) },
            // SAFETY: as above.
            wire::KernelHandle::TAG => unsafe { api.clReleaseKernel(raw.0.cast()) },
            // SAFETY: as above.
            wire::EventHandle::TAG => unsafe { api.clReleaseEvent(raw.0.cast()) },
            // SAFETY: as above; a root device has no references to count.
            wire::DeviceHandle::TAG => unsafe { api.clReleaseDevice(raw.0.cast()) },
            _ => CL_SUCCESS,
        };
    }

    /// Gives everything back, in an order that no vendor minds. For a worker process its end does the same; in-process tests look.
    pub(crate) fn release_all(&mut self) {
        self.rings.clear();
        self.debts.forget(&self.shared);
        self.shared.unwatch_queues();
        let tags = [
            wire::EventHandle::TAG,
            wire::KernelHandle::TAG,
            wire::ProgramHandle::TAG,
            wire::SamplerHandle::TAG,
            wire::MemHandle::TAG,
            wire::CommandQueueHandle::TAG,
            wire::ContextHandle::TAG,
            wire::DeviceHandle::TAG,
        ];
        self.abandon_events();
        for first in std::mem::take(&mut self.first_parts).into_values() {
            self.shared.release_event(first);
        }
        for kept in std::mem::take(&mut self.kept) {
            // SAFETY: the event's reference is ours. A failed wait leaves nothing to do: the data must outlive the command either way.
            unsafe { self.api.clWaitForEvents(1, (&raw const kept.done.0).cast()) };
            self.shared.release_event(kept.done);
        }
        for memory in std::mem::take(&mut self.svm).into_values() {
            self.free_svm(memory);
        }
        for tag in tags {
            for entry in self.table.drain(tag) {
                if let Entry::Live(raw) = entry {
                    self.release(tag, raw);
                }
            }
        }
        self.shared.forget_events();
    }
}

/// Memory that is shared with the device; given back when the client has freed it, and the last command and buffer that use it let go.
pub(crate) struct SvmMemory {
    pub(crate) api: Arc<dyn OpenClApi>,
    pub(crate) address: u64,
    /// One reference is its own.
    pub(crate) context: Raw,
    pub(crate) _charge: Charge,
}

/// Shared virtual memory of the session.
pub(crate) struct Svm {
    pub(crate) bytes: usize,
    pub(crate) memory: Arc<SvmMemory>,
}

impl Drop for SvmMemory {
    fn drop(&mut self) {
        let memory = std::ptr::with_exposed_provenance_mut(self.address as usize);
        // SAFETY: the memory came from this context and is freed once; every command that may use it is complete.
        unsafe { self.api.clSVMFree(self.context.0.cast(), memory) };
        // SAFETY: the reference came with the memory.
        unsafe { self.api.clReleaseContext(self.context.0.cast()) };
    }
}

/// A status that says failure: a vendor that gives NULL with success is out of resources.
fn failure(status: i32) -> i32 {
    if status < 0 {
        status
    } else {
        CL_OUT_OF_RESOURCES
    }
}
