//! Queues, and commands that only wait.

use std::ptr;
use std::sync::Arc;

use super::super::super::contract::*;
use super::super::super::scheduler::Order;
use super::super::super::*;
use super::super::registry::{Context, Queue};

#[allow(non_snake_case, clippy::too_many_arguments)]
impl NullOpenCl {
    fn queue(
        &self,
        context: cl_context,
        device: cl_device_id,
        properties: cl_command_queue_properties,
        property_list: Vec<cl_queue_properties>,
    ) -> Result<usize, cl_int> {
        const KNOWN: cl_command_queue_properties = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
            | CL_QUEUE_PROFILING_ENABLE
            | CL_QUEUE_ON_DEVICE
            | CL_QUEUE_ON_DEVICE_DEFAULT;
        let context: Arc<Context> = self.get(context)?;
        self.device(device)?;
        require(context.devices.contains(&device.addr()), CL_INVALID_DEVICE)?;
        require(properties & !KNOWN == 0, CL_INVALID_VALUE)?;
        let on_device = CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT;
        require(properties & on_device == 0, CL_INVALID_QUEUE_PROPERTIES)?;
        let (handle, queue) = self.shared.registry.add(|handle| {
            let alive = self.alive();
            Queue::new(
                handle,
                context,
                device.addr(),
                properties,
                property_list,
                !self.unified,
                alive,
            )
        });
        if let Err(error) = queue.start(&self.shared.scheduler, "null-queue") {
            log::warn!("no thread for a queue of the host-memory device: {error}");
            let _ = self
                .shared
                .registry
                .release::<Queue, _>(self::handle::<c_void>(handle));
            return Err(CL_OUT_OF_RESOURCES);
        }
        Ok(handle)
    }

    pub(super) unsafe fn clCreateCommandQueue(
        &self,
        context: cl_context,
        device: cl_device_id,
        properties: cl_command_queue_properties,
        errcode_ret: *mut cl_int,
    ) -> cl_command_queue {
        let made = self.queue(context, device, properties, Vec::new());
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
            let mut bits = 0;
            for pair in list.as_chunks::<2>().0.iter() {
                match *pair {
                    [name, value] if name == cl_queue_properties::from(CL_QUEUE_PROPERTIES) => {
                        bits = value;
                    }
                    _ => return Err(CL_INVALID_VALUE),
                }
            }
            self.queue(context, device, bits, list)
        })();
        // SAFETY: the caller's contract.
        unsafe { created(made, errcode_ret) }
    }

    pub(super) unsafe fn clRetainCommandQueue(&self, command_queue: cl_command_queue) -> cl_int {
        status(self.shared.registry.retain::<Queue, _>(command_queue))
    }

    pub(super) unsafe fn clReleaseCommandQueue(&self, command_queue: cl_command_queue) -> cl_int {
        let last = self.shared.registry.release::<Queue, _>(command_queue);
        status(last.map(|queue| {
            if let Some(queue) = queue {
                queue.released(&self.shared.scheduler);
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
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        status(self.get::<Queue, _>(command_queue).and_then(|object| {
            let answer = match param_name {
                CL_QUEUE_CONTEXT => object.context.handle.bytes(),
                CL_QUEUE_DEVICE => object.device.bytes(),
                CL_QUEUE_REFERENCE_COUNT => self.references(command_queue),
                CL_QUEUE_PROPERTIES => object.properties.bytes(),
                CL_QUEUE_PROPERTIES_ARRAY => object.property_list.bytes(),
                CL_QUEUE_DEVICE_DEFAULT => 0_usize.bytes(),
                CL_QUEUE_SIZE => return Err(CL_INVALID_COMMAND_QUEUE),
                _ => return Err(CL_INVALID_VALUE),
            };
            // SAFETY: the caller's contract.
            unsafe { asked.answer(&answer) }
        }))
    }

    pub(super) unsafe fn clFlush(&self, command_queue: cl_command_queue) -> cl_int {
        // A queue's thread takes commands up as they come.
        status(self.get::<Queue, _>(command_queue).map(drop))
    }

    pub(super) unsafe fn clFinish(&self, command_queue: cl_command_queue) -> cl_int {
        let queue = self.get::<Queue, _>(command_queue);
        status(queue.map(|queue| queue.finish(&self.shared.scheduler)))
    }

    pub(super) unsafe fn clEnqueueMarkerWithWaitList(
        &self,
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let how = (CL_COMMAND_MARKER, Order::Marker, CL_FALSE);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, Box::new(|| Ok(()))) }
        })())
    }

    pub(super) unsafe fn clEnqueueBarrierWithWaitList(
        &self,
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        status((|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let how = (CL_COMMAND_BARRIER, Order::Barrier, CL_FALSE);
            // SAFETY: the caller's contract.
            unsafe { self.submit(target, how, event, Box::new(|| Ok(()))) }
        })())
    }

    pub(super) unsafe fn clEnqueueMarker(
        &self,
        command_queue: cl_command_queue,
        event: *mut cl_event,
    ) -> cl_int {
        if event.is_null() {
            return CL_INVALID_VALUE;
        }
        // SAFETY: the caller's contract, passed on.
        unsafe { self.clEnqueueMarkerWithWaitList(command_queue, 0, ptr::null(), event) }
    }

    pub(super) unsafe fn clEnqueueBarrier(&self, command_queue: cl_command_queue) -> cl_int {
        let none = ptr::null_mut();
        // SAFETY: the caller's contract, passed on.
        unsafe { self.clEnqueueBarrierWithWaitList(command_queue, 0, ptr::null(), none) }
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
        let none = ptr::null_mut();
        // SAFETY: the caller's contract, passed on.
        unsafe { self.clEnqueueBarrierWithWaitList(command_queue, num_events, event_list, none) }
    }
}
