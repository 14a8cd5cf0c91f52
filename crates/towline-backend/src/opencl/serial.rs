//! The asynchronous rules of OpenCL over a vendor that has only synchronous ones.
//!
//! Some vendors carry out commands inside a call: whoever flushes, finishes or waits runs the queue from its head, and stands still
//! where the head waits for a user event. Nor do they bear several threads. Oclgrind 21.10 is such a *serial* vendor: its `clFlush`
//! returns when the queue is empty, kernels that run at the same time in one process lose work-items, and a callback that is set
//! after the event's end is never called. Whoever relies on the specification, as the worker's lane does, hangs.
//!
//! [`SerialOpenCl`] stands before the vendors' libraries. Objects of other vendors pass by. Of a serial one's it keeps queues and
//! events itself, on the [scheduler]:
//!
//! - a command is a closure with copies of what the caller may change after the call, kernel arguments included, and references to
//!   the objects that it uses. When all that it waits for has ended, its queue's thread gives it to the vendor, alone, and finishes
//!   the vendor's queue;
//! - events are ours; the vendor's never leave this module. Wait lists and user events do not reach the vendor;
//! - one thread at a time is in the vendor (the [turn]). Enqueueing, flushing and all of events need no turn. Other calls do, and
//!   so may wait for the command that is running, but for none that has not begun;
//! - a mapped range is memory of ours, since the address must be known before the vendor maps: filled when the map's turn comes,
//!   taken over when the unmap's comes (see [map]).
//!
//! What only the vendor can judge about a command is the status of its event. Commands beyond OpenCL 1.2's are refused.

mod buffer;
mod event;
mod kernel;
mod map;
mod objects;
mod queue;
mod turn;

use std::sync::Arc;

use super::contract::{list, require, status, triple};
use super::handles::{Kind, Registry, is_minted};
use super::native::first;
use super::scheduler::{Order, Scheduler, Work};
use super::*;
use objects::{CommandQueue, Event, Kernel, Memory, Object, Sampler, Shape, Vendored};

include!(concat!(env!("OUT_DIR"), "/opencl_serial.rs"));

/// Vendors of which one or more compute inside a call; see the module.
pub struct SerialOpenCl {
    serial: Serial,
}

impl SerialOpenCl {
    /// The vendors as they are, or behind the adapter if one of them needs it.
    pub fn where_needed(native: NativeOpenCl) -> Arc<dyn OpenClApi> {
        if native.has_serial() {
            Arc::new(Self::new(native))
        } else {
            Arc::new(native)
        }
    }

    fn new(native: NativeOpenCl) -> Self {
        Self {
            serial: Serial {
                native: Arc::new(native),
                registry: Arc::default(),
                scheduler: Arc::new(Scheduler::new()),
            },
        }
    }

    /// Whether the adapter answers for this object.
    fn is_serial(&self, object: *mut c_void) -> bool {
        is_minted(object.addr()) || self.serial.native.is_serial(object)
    }

    /// The turn at the object's vendor, where it takes turns.
    fn turn(&self, object: *mut c_void) -> Option<turn::Turn> {
        self.is_serial(object).then(turn::take)
    }
}

impl Drop for SerialOpenCl {
    fn drop(&mut self) {
        self.serial.scheduler.close();
    }
}

/// The serial vendors' half, with a method for each call that it answers itself, named as the call.
struct Serial {
    native: Arc<NativeOpenCl>,
    registry: Arc<Registry<Object>>,
    scheduler: Arc<Scheduler>,
}

/// A queue and the wait list of a command for it.
type Target = (Arc<CommandQueue>, Vec<Arc<Event>>);

/// An address of the application's that a command uses on its queue's thread.
///
/// OpenCL leaves it to the application that the memory is good until the command has ended.
#[derive(Clone, Copy)]
struct Host(*mut c_void);

// SAFETY: the pointer is only a value here; who reads or writes through it upholds the API's contract, on any thread.
unsafe impl Send for Host {}

impl Host {
    fn new(at: *const c_void) -> Result<Self, cl_int> {
        require(!at.is_null(), CL_INVALID_VALUE)?;
        Ok(Self(at.cast_mut()))
    }

    fn at(self) -> *mut c_void {
        self.0
    }
}

/// One plain answer of a query, or zero.
fn ask<T: Copy + Default>(query: impl FnOnce(usize, *mut c_void) -> cl_int) -> T {
    let mut value = T::default();
    let status = query(size_of::<T>(), (&raw mut value).cast());
    if status == CL_SUCCESS {
        value
    } else {
        T::default()
    }
}

impl Serial {
    fn get<T: Kind<Object>, H>(&self, handle: *mut H) -> Result<Arc<T>, cl_int> {
        self.registry.get(handle)
    }

    /// A memory object that a command at a queue may use.
    fn memory(&self, at: &CommandQueue, mem: cl_mem) -> Result<Arc<Memory>, cl_int> {
        let memory: Arc<Memory> = self.get(mem)?;
        require(memory.context == at.queue.context, CL_INVALID_CONTEXT)?;
        Ok(memory)
    }

    /// The queue and wait list of a command.
    ///
    /// # Safety
    /// `events` is NULL or readable for `count` handles.
    unsafe fn target(
        &self,
        queue: cl_command_queue,
        count: cl_uint,
        events: *const cl_event,
    ) -> Result<Target, cl_int> {
        let queue: Arc<CommandQueue> = self.get(queue)?;
        // SAFETY: the caller's contract.
        let events = unsafe { list(events, count as usize, CL_INVALID_EVENT_WAIT_LIST) }?;
        let mut waits = Vec::with_capacity(events.len());
        for event in events {
            let event: Arc<Event> = self.get(event).map_err(|_| CL_INVALID_EVENT_WAIT_LIST)?;
            require(event.context == queue.queue.context, CL_INVALID_CONTEXT)?;
            waits.push(event);
        }
        Ok((queue, waits))
    }

    /// The work of a command that the vendor carries out. `call` enqueues it to the vendor, on the queue that it is given, and puts
    /// the vendor's event where it is told; it is called in a turn.
    fn work(
        &self,
        at: &CommandQueue,
        call: impl FnOnce(&NativeOpenCl, cl_command_queue, *mut cl_event) -> cl_int + Send + 'static,
    ) -> Work {
        let native = self.native.clone();
        let vendored = at.vendored.clone();
        Box::new(move || {
            let _turn = turn::take();
            let queue = vendored.handle();
            let mut done = std::ptr::null_mut();
            check(call(&native, queue, &raw mut done))?;
            // SAFETY: the queue is live: `vendored` holds it.
            let finished = unsafe { native.clFinish(queue) };
            if done.is_null() {
                return check(finished);
            }
            // SAFETY: the vendor just gave this event.
            let ended: cl_int = ask(|size, value| unsafe {
                let name = CL_EVENT_COMMAND_EXECUTION_STATUS;
                native.clGetEventInfo(done, name, size, value, std::ptr::null_mut())
            });
            // SAFETY: as above; this is its only reference.
            unsafe { native.clReleaseEvent(done) };
            check(finished)?;
            check(ended.min(CL_SUCCESS))
        })
    }

    /// Enqueues `work`, gives its event, and waits where the call is to wait.
    ///
    /// # Safety
    /// `event` is NULL or writable.
    unsafe fn submit(
        &self,
        (queue, waits): Target,
        (command, order, blocking): (cl_command_type, Order, cl_bool),
        event: *mut cl_event,
        work: Work,
    ) -> Result<(), cl_int> {
        let made = queue
            .queue
            .enqueue(&self.scheduler, command, waits, order, work);
        if !event.is_null() {
            let published = contract::handle(self.registry.publish(made.clone()));
            // SAFETY: the caller's contract.
            unsafe { event.write(published) };
        }
        if blocking != CL_FALSE && self.scheduler.wait_for(&made) < 0 {
            return Err(made.status());
        }
        Ok(())
    }

    /// Takes a new object of the vendor's into the books. The caller has the turn.
    fn adopt<H: Adopt>(&self, made: *mut H) {
        if !made.is_null() {
            H::adopt(self, made);
        }
    }

    fn name<T: Kind<Object>>(&self, handle: usize, object: T) {
        self.registry.name(handle, Arc::new(object));
    }
}

fn check(status: cl_int) -> Result<(), cl_int> {
    require(status == CL_SUCCESS, status)
}

/// A kind of object that the vendor creates.
trait Adopt: Sized {
    /// Books the object, if commands can use it.
    fn adopt(_serial: &Serial, _made: *mut Self) {}
}

impl Adopt for _cl_context {}
impl Adopt for _cl_program {}

impl Adopt for _cl_sampler {
    fn adopt(serial: &Serial, made: cl_sampler) {
        let handle = made.expose_provenance();
        let native = serial.native.clone();
        let release = move || {
            // SAFETY: the last reference to the sampler.
            unsafe { native.clReleaseSampler(std::ptr::with_exposed_provenance_mut(handle)) };
        };
        let sampler = Sampler {
            _vendored: Vendored::new(handle, release),
        };
        serial.name(handle, sampler);
    }
}

impl Adopt for _cl_kernel {
    fn adopt(serial: &Serial, made: cl_kernel) {
        let handle = made.expose_provenance();
        let native = serial.native.clone();
        let none = std::ptr::null_mut();
        // SAFETY: the kernel was just made.
        let count: cl_uint = ask(|size, value| unsafe {
            native.clGetKernelInfo(made, CL_KERNEL_NUM_ARGS, size, value, none)
        });
        // SAFETY: as above.
        let context = ask(|size, value| unsafe {
            native.clGetKernelInfo(made, CL_KERNEL_CONTEXT, size, value, none)
        });
        let release = move || {
            // SAFETY: the last reference to the kernel.
            unsafe { native.clReleaseKernel(std::ptr::with_exposed_provenance_mut(handle)) };
        };
        let kernel = Kernel {
            vendored: Vendored::new(handle, release),
            context,
            required_group: required_group(&serial.native, made, context),
            arguments: vec![None; count as usize].into(),
        };
        serial.name(handle, kernel);
    }
}

/// The work-group size that a kernel's source demands; zeros for none.
fn required_group(native: &NativeOpenCl, kernel: cl_kernel, context: usize) -> [usize; 3] {
    let none = std::ptr::null_mut();
    let context = std::ptr::with_exposed_provenance_mut(context);
    // The answer is the same for all devices.
    let mut devices = [0_usize; 64];
    let (room, first) = (size_of_val(&devices), devices.as_mut_ptr().cast());
    // SAFETY: the kernel's context; the list is a local.
    unsafe { native.clGetContextInfo(context, CL_CONTEXT_DEVICES, room, first, none) };
    let device = std::ptr::with_exposed_provenance_mut(devices[0]);
    // SAFETY: the kernel was just made; the device is its context's.
    ask(|size, value| unsafe {
        let name = CL_KERNEL_COMPILE_WORK_GROUP_SIZE;
        native.clGetKernelWorkGroupInfo(kernel, device, name, size, value, none)
    })
}

impl Adopt for _cl_mem {
    fn adopt(serial: &Serial, made: cl_mem) {
        let handle = made.expose_provenance();
        let native = serial.native.clone();
        let none = std::ptr::null_mut();
        // SAFETY: the object was just made.
        let info =
            |name, size, value| unsafe { native.clGetMemObjectInfo(made, name, size, value, none) };
        // SAFETY: as above.
        let image =
            |name, size, value| unsafe { native.clGetImageInfo(made, name, size, value, none) };
        let kind: cl_mem_object_type = ask(|size, value| info(CL_MEM_TYPE, size, value));
        let flags: cl_mem_flags = ask(|size, value| info(CL_MEM_FLAGS, size, value));
        let host: usize = ask(|size, value| info(CL_MEM_HOST_PTR, size, value));
        let context = ask(|size, value| info(CL_MEM_CONTEXT, size, value));
        let shape = if kind == CL_MEM_OBJECT_BUFFER || kind == CL_MEM_OBJECT_PIPE {
            Shape::Buffer {
                size: ask(|size, value| info(CL_MEM_SIZE, size, value)),
            }
        } else {
            let size = |name| ask::<usize>(|size, value| image(name, size, value));
            let or = |pitch, tight| if pitch == 0 { tight } else { pitch };
            let element = size(CL_IMAGE_ELEMENT_SIZE);
            let is_array_of_rows = kind == CL_MEM_OBJECT_IMAGE1D_ARRAY;
            let rows = size(CL_IMAGE_HEIGHT).max(1);
            // Oclgrind (21.10) says zero for the pitches of an image without memory of the application's.
            let row_pitch = or(size(CL_IMAGE_ROW_PITCH), size(CL_IMAGE_WIDTH) * element);
            let has_slices = is_array_of_rows
                || kind == CL_MEM_OBJECT_IMAGE2D_ARRAY
                || kind == CL_MEM_OBJECT_IMAGE3D;
            let slice_pitch = if has_slices {
                let rows = if is_array_of_rows { 1 } else { rows };
                or(size(CL_IMAGE_SLICE_PITCH), row_pitch * rows)
            } else {
                0
            };
            Shape::Image {
                element,
                row_pitch,
                slice_pitch,
                is_array_of_rows,
            }
        };
        let host = (flags & CL_MEM_USE_HOST_PTR != 0 && host != 0).then_some(host);
        let release = {
            let native = native.clone();
            move || {
                // SAFETY: the last reference to the object.
                unsafe { native.clReleaseMemObject(std::ptr::with_exposed_provenance_mut(handle)) };
            }
        };
        let vendored = Vendored::new(handle, release);
        serial.name(handle, Memory::new(vendored, context, shape, host));
    }
}
