//! Queues: the vendor's for what a device is asked, ours for what is enqueued.

use std::sync::Arc;

use super::super::contract::{Asked, Bytes, created, pairs, status};
use super::super::handles::Alive;
use super::super::scheduler::Order;
use super::super::*;
use super::objects::{CommandQueue, Queue, Vendored};
use super::{Serial, turn};

#[allow(non_snake_case)]
impl Serial {
    /// A queue of ours for one of the vendor's.
    fn queue(
        &self,
        (context, device): (cl_context, cl_device_id),
        properties: cl_command_queue_properties,
        property_list: Vec<cl_queue_properties>,
        made: cl_command_queue,
    ) -> Result<usize, cl_int> {
        let handle = made.expose_provenance();
        let native = self.native.clone();
        let vendored = Arc::new(Vendored::new(handle, move || {
            // SAFETY: the last reference to the queue.
            unsafe { native.clReleaseCommandQueue(std::ptr::with_exposed_provenance_mut(handle)) };
        }));
        let queue = Arc::new(Queue::new(
            handle,
            context.addr(),
            device.addr(),
            properties,
            property_list,
            false,
            Alive::new(&self.scheduler.live),
        ));
        if let Err(error) = queue.start(&self.scheduler, "serial-queue") {
            log::warn!("no thread for a queue: {error}");
            return Err(CL_OUT_OF_RESOURCES);
        }
        self.name(handle, CommandQueue { vendored, queue });
        Ok(handle)
    }

    pub(super) unsafe fn clCreateCommandQueue(
        &self,
        context: cl_context,
        device: cl_device_id,
        properties: cl_command_queue_properties,
        errcode_ret: *mut cl_int,
    ) -> cl_command_queue {
        let made = (|| {
            let _turn = turn::take();
            let mut code = CL_SUCCESS;
            // SAFETY: the caller's contract; the code is a local.
            let made = unsafe {
                self.native
                    .clCreateCommandQueue(context, device, properties, &raw mut code)
            };
            super::check(code)?;
            self.queue((context, device), properties, Vec::new(), made)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    pub(super) unsafe fn clCreateCommandQueueWithProperties(
        &self,
        context: cl_context,
        device: cl_device_id,
        properties: *const cl_queue_properties,
        errcode_ret: *mut cl_int,
    ) -> cl_command_queue {
        let made = (|| {
            // SAFETY: the caller's contract.
            let list = unsafe { pairs(properties) }?;
            let name = cl_queue_properties::from(CL_QUEUE_PROPERTIES);
            let bits = list.as_chunks::<2>().0.iter().find(|pair| pair[0] == name);
            let bits = bits.map_or(0, |pair| pair[1]);
            let _turn = turn::take();
            let mut code = CL_SUCCESS;
            // SAFETY: the caller's contract; the code is a local.
            let made = unsafe {
                self.native.clCreateCommandQueueWithProperties(
                    context,
                    device,
                    properties,
                    &raw mut code,
                )
            };
            super::check(code)?;
            self.queue((context, device), bits, list, made)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    pub(super) unsafe fn clRetainCommandQueue(&self, command_queue: cl_command_queue) -> cl_int {
        status(self.registry.retain::<CommandQueue, _>(command_queue))
    }

    pub(super) unsafe fn clReleaseCommandQueue(&self, command_queue: cl_command_queue) -> cl_int {
        let last = self.registry.release::<CommandQueue, _>(command_queue);
        status(last.map(|last| {
            if let Some(last) = last {
                last.queue.released(&self.scheduler);
            }
        }))
    }

    pub(super) unsafe fn clGetCommandQueueInfo(
        &self,
        command_queue: cl_command_queue,
        param_name: cl_command_queue_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        if let Err(error) = self.get::<CommandQueue, _>(command_queue) {
            return error;
        }
        if param_name == CL_QUEUE_REFERENCE_COUNT {
            let references = self.registry.references(command_queue).bytes();
            let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
            // SAFETY: the caller's contract.
            return status(unsafe { asked.answer(&references) });
        }
        let _turn = turn::take();
        // SAFETY: the caller's contract, passed on.
        unsafe {
            self.native.clGetCommandQueueInfo(
                command_queue,
                param_name,
                param_value_size,
                param_value,
                param_value_size_ret,
            )
        }
    }

    pub(super) unsafe fn clFlush(&self, command_queue: cl_command_queue) -> cl_int {
        // A queue's thread takes commands up as they come.
        status(self.get::<CommandQueue, _>(command_queue).map(drop))
    }

    pub(super) unsafe fn clFinish(&self, command_queue: cl_command_queue) -> cl_int {
        let queue = self.get::<CommandQueue, _>(command_queue);
        status(queue.map(|queue| queue.queue.finish(&self.scheduler)))
    }

    pub(super) unsafe fn clEnqueueMarkerWithWaitList(
        &self,
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        let how = (CL_COMMAND_MARKER, Order::Marker, CL_FALSE);
        let list = (num_events_in_wait_list, event_wait_list);
        // SAFETY: the caller's contract, passed on.
        unsafe { self.point(command_queue, list, event, how) }
    }

    pub(super) unsafe fn clEnqueueBarrierWithWaitList(
        &self,
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        let how = (CL_COMMAND_BARRIER, Order::Barrier, CL_FALSE);
        let list = (num_events_in_wait_list, event_wait_list);
        // SAFETY: the caller's contract, passed on.
        unsafe { self.point(command_queue, list, event, how) }
    }

    /// A command that does nothing.
    ///
    /// # Safety
    /// The list is NULL or readable for its count, `event` NULL or writable.
    unsafe fn point(
        &self,
        queue: cl_command_queue,
        (count, events): (cl_uint, *const cl_event),
        event: *mut cl_event,
        how: (cl_command_type, Order, cl_bool),
    ) -> cl_int {
        // SAFETY: the caller's contract.
        let target = unsafe { self.target(queue, count, events) };
        // SAFETY: as above.
        status(
            target
                .and_then(|target| unsafe { self.submit(target, how, event, Box::new(|| Ok(()))) }),
        )
    }

    pub(super) unsafe fn clEnqueueMarker(
        &self,
        command_queue: cl_command_queue,
        event: *mut cl_event,
    ) -> cl_int {
        if event.is_null() {
            return CL_INVALID_VALUE;
        }
        let none = std::ptr::null();
        // SAFETY: the caller's contract, passed on.
        unsafe { self.clEnqueueMarkerWithWaitList(command_queue, 0, none, event) }
    }

    pub(super) unsafe fn clEnqueueBarrier(&self, command_queue: cl_command_queue) -> cl_int {
        let none = std::ptr::null_mut();
        // SAFETY: the caller's contract, passed on.
        unsafe { self.clEnqueueBarrierWithWaitList(command_queue, 0, std::ptr::null(), none) }
    }

    pub(super) unsafe fn clEnqueueWaitForEvents(
        &self,
        command_queue: cl_command_queue,
        num_events: cl_uint,
        event_list: *const cl_event,
    ) -> cl_int {
        if num_events == 0 || event_list.is_null() {
            return CL_INVALID_VALUE;
        }
        let none = std::ptr::null_mut();
        // SAFETY: the caller's contract, passed on.
        unsafe { self.clEnqueueBarrierWithWaitList(command_queue, num_events, event_list, none) }
    }
}
