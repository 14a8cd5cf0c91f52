//! The API of the host-memory device: a method for each call, named as the call, beside the others of its kind of object. What
//! several of them need is here.

mod buffer;
mod context;
mod event;
mod kernel;
mod platform;
mod program;
mod queue;
mod transfer;

use std::sync::Arc;

use super::super::contract::*;
use super::super::handles::{Alive, Kind};
use super::super::scheduler::{Order, Work};
use super::super::*;
use super::NullOpenCl;
use super::kernels::{Kernel, Program};
use super::memory::Memory;
use super::registry::{Context, Event, Object, Queue};

/// A queue and the wait list of a command for it.
type Target = (Arc<Queue>, Vec<Arc<Event>>);

/// Gives a list of handles where a call asks for a count, a list, or both.
///
/// # Safety
/// `out` is NULL or has room for `room` handles, `count` is NULL or writable.
unsafe fn give_list<H>(all: &[usize], room: usize, out: *mut *mut H, count: *mut cl_uint) {
    // SAFETY: the caller's contract.
    unsafe { put(count, all.len() as cl_uint) };
    if !out.is_null() {
        for (index, number) in all.iter().take(room).enumerate() {
            // SAFETY: the caller's contract: `index` is below `room`.
            let slot = unsafe { out.add(index) };
            // SAFETY: as above.
            unsafe { slot.write(handle(*number)) };
        }
    }
}

include!(concat!(env!("OUT_DIR"), "/opencl_null.rs"));

impl NullOpenCl {
    fn alive(&self) -> Alive {
        Alive::new(&self.shared.scheduler.live)
    }

    fn get<T: Kind<Object>, H>(&self, handle: *mut H) -> Result<Arc<T>, cl_int> {
        self.shared.registry.get(handle)
    }

    fn references<H>(&self, handle: *mut H) -> Vec<u8> {
        self.shared.registry.references(handle).bytes()
    }

    fn device(&self, device: cl_device_id) -> Result<usize, cl_int> {
        let known = self
            .devices
            .iter()
            .position(|known| *known == device.addr());
        known.ok_or(CL_INVALID_DEVICE)
    }

    fn checked_platform(&self, platform: cl_platform_id) -> Result<(), cl_int> {
        let is_ours = platform.is_null() || platform.addr() == self.platform;
        require(is_ours, CL_INVALID_PLATFORM)
    }

    fn devices_of(&self, device_type: cl_device_type) -> Result<&[usize], cl_int> {
        const KINDS: cl_device_type = CL_DEVICE_TYPE_DEFAULT
            | CL_DEVICE_TYPE_CPU
            | CL_DEVICE_TYPE_GPU
            | CL_DEVICE_TYPE_ACCELERATOR
            | CL_DEVICE_TYPE_CUSTOM;
        let is_known = device_type == CL_DEVICE_TYPE_ALL || device_type & !KINDS == 0;
        require(is_known && device_type != 0, CL_INVALID_DEVICE_TYPE)?;
        let found = if device_type & CL_DEVICE_TYPE_ACCELERATOR != 0 {
            self.devices.as_slice()
        } else if device_type & CL_DEVICE_TYPE_DEFAULT != 0 {
            self.devices.get(..1).unwrap_or_default()
        } else {
            &[]
        };
        require(!found.is_empty(), CL_DEVICE_NOT_FOUND)?;
        Ok(found)
    }

    /// A buffer that a command of `queue` may use.
    fn buffer(&self, queue: &Queue, buffer: cl_mem) -> Result<Arc<Memory>, cl_int> {
        let buffer: Arc<Memory> = self.get(buffer)?;
        require(
            Arc::ptr_eq(&buffer.context, &queue.context),
            CL_INVALID_CONTEXT,
        )?;
        Ok(buffer)
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
        let queue: Arc<Queue> = self.get(queue)?;
        // SAFETY: the caller's contract.
        let events = unsafe { list(events, count as usize, CL_INVALID_EVENT_WAIT_LIST) }?;
        let mut waits = Vec::with_capacity(events.len());
        for event in events {
            let event: Arc<Event> = self.get(event).map_err(|_| CL_INVALID_EVENT_WAIT_LIST)?;
            require(
                Arc::ptr_eq(&event.context, &queue.context),
                CL_INVALID_CONTEXT,
            )?;
            waits.push(event);
        }
        Ok((queue, waits))
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
        let made = queue.enqueue(&self.shared.scheduler, command, waits, order, work);
        if !event.is_null() {
            let published = handle(self.shared.registry.publish(made.clone()));
            // SAFETY: the caller's contract.
            unsafe { event.write(published) };
        }
        if blocking != CL_FALSE && self.shared.scheduler.wait_for(&made) < 0 {
            return Err(made.status());
        }
        Ok(())
    }
}

/// Reference counts of all kinds but queues, whose end has a thread to tell.
macro_rules! counted {
    ($($retain:ident $release:ident $kind:ident $handle:ident;)*) => {$(
        unsafe fn $retain(&self, object: $handle) -> cl_int {
            status(self.shared.registry.retain::<$kind, _>(object))
        }

        unsafe fn $release(&self, object: $handle) -> cl_int {
            status(self.shared.registry.release::<$kind, _>(object).map(drop))
        }
    )*};
}

#[allow(non_snake_case)]
impl NullOpenCl {
    counted! {
        clRetainContext clReleaseContext Context cl_context;
        clRetainEvent clReleaseEvent Event cl_event;
        clRetainKernel clReleaseKernel Kernel cl_kernel;
        clRetainMemObject clReleaseMemObject Memory cl_mem;
        clRetainProgram clReleaseProgram Program cl_program;
    }
}
