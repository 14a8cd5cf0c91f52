//! Command queues. Order inside a queue is kept by its provider.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_backend::opencl::*;

use crate::arena::{Kind, Object, Ref, get, live_at};
use crate::batch::Batch;
use crate::context::{Context, Part};
use crate::device::Device;
use crate::event::Event;
use crate::info;
use crate::platform::{Platform, QueueCalls};
use crate::raw::{Answer, Shared, check, create, pairs, provider};
use crate::timeline;

/// A command queue.
pub(crate) struct Queue {
    pub(crate) context: Ref<Context>,
    pub(crate) device: Ref<Device>,
    /// Which part of the context the device is in.
    pub(crate) part: usize,
    pub(crate) raw: Shared<_cl_command_queue>,
    pub(crate) properties: cl_command_queue_properties,
    /// The commands of late that have no event.
    pub(crate) batch: Mutex<Arc<Batch>>,
    array: Vec<cl_queue_properties>,
    size: Option<cl_uint>,
    /// Events of its commands that the application was given, in that order, of an in-order queue of a session. Some have ended.
    given: Mutex<Vec<Shared<_cl_event>>>,
}

impl Object for Queue {
    type Raw = _cl_command_queue;
    const KIND: Kind = Kind::Queue;
    const INVALID: cl_int = CL_INVALID_COMMAND_QUEUE;
}

impl Queue {
    /// The part of the context that the queue works on.
    #[inline]
    pub(crate) fn part(&self) -> &Part {
        &self.context.parts[self.part]
    }

    /// Whether its commands run one after another.
    pub(crate) fn in_order(&self) -> bool {
        self.properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0
    }

    /// Whether its commands are timed.
    pub(crate) fn profiles(&self) -> bool {
        self.properties & CL_QUEUE_PROFILING_ENABLE != 0
    }

    fn given(&self) -> MutexGuard<'_, Vec<Shared<_cl_event>>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an event that the application is given of a command on the queue.
    pub(crate) fn note_given(&self, event: cl_event) {
        if !self.in_order() || self.part().provider.session.is_none() {
            return;
        }
        let mut given = self.given();
        if given.len() >= 64 && given.len().is_power_of_two() {
            let lives = |event: &Shared<_cl_event>| live_at(event.0.addr());
            given.retain(|event| lives(event).is_some_and(|(kind, _)| kind == Kind::Event as u32));
        }
        given.push(Shared(event));
    }

    /// Whether an event of the application's shows that a command of this in-order queue has not ended.
    pub(crate) fn shows_open(&self) -> bool {
        loop {
            let last = self.given().last().copied();
            let Some(last) = last else {
                return false;
            };
            // Without the lock: asking for a status may lead to anything that waits for the event.
            let event = get::<Event>(last.0).ok();
            let event = event.filter(|event| event.count() > 0 && event.is_of(self));
            if event.as_ref().is_some_and(|event| !event.over()) {
                return true;
            }
            let mut given = self.given();
            let place = given.iter().rposition(|known| known.0 == last.0);
            if event.is_some() {
                // Those that came before it have ended, too.
                given.drain(..place.map_or(0, |place| place + 1));
                return false;
            }
            place.map(|place| given.remove(place));
        }
    }

    /// Refuses a queue that only kernels enqueue to.
    #[inline]
    pub(crate) fn expect_host(&self) -> Result<(), cl_int> {
        if self.properties & CL_QUEUE_ON_DEVICE == 0 {
            Ok(())
        } else {
            Err(CL_INVALID_COMMAND_QUEUE)
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.part().queue_closed(self.raw);
        provider!(self.part().provider.api, clReleaseCommandQueue(self.raw.0));
    }
}

/// The queue behind a handle, if the host may enqueue to it.
#[inline]
pub(crate) fn host_queue(handle: cl_command_queue) -> Result<Ref<Queue>, cl_int> {
    let queue = get::<Queue>(handle)?;
    queue.expect_host()?;
    Ok(queue)
}

/// What a new queue shall be.
struct Wanted {
    properties: cl_command_queue_properties,
    size: Option<cl_uint>,
    /// It takes more than bits to describe.
    listed: bool,
}

fn wanted(device: &Device, list: Option<&[cl_queue_properties]>) -> Result<Wanted, cl_int> {
    let mut wanted = Wanted {
        properties: 0,
        size: None,
        listed: false,
    };
    let hint = |name: cl_queue_properties, known: cl_queue_properties, extension: &str| {
        name == known && device.limits.has(extension)
    };
    for (name, value) in pairs(list) {
        if name == CL_QUEUE_PROPERTIES as cl_queue_properties {
            wanted.properties = value;
        } else if name == CL_QUEUE_SIZE as cl_queue_properties {
            let most = || {
                let name = CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE;
                info::uint(&device.provider.device_bytes(device.raw, name))
            };
            if device.limits.device_queues && value > most().into() {
                return Err(CL_INVALID_VALUE);
            }
            wanted.size = Some(value as cl_uint);
            wanted.listed = true;
        } else if hint(name, CL_QUEUE_PRIORITY_KHR, "cl_khr_priority_hints")
            || hint(name, CL_QUEUE_THROTTLE_KHR, "cl_khr_throttle_hints")
        {
            wanted.listed = true;
        } else {
            return Err(CL_INVALID_VALUE);
        }
    }
    let on_device = wanted.properties & CL_QUEUE_ON_DEVICE != 0;
    wanted.listed |= on_device;
    let known = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
        | CL_QUEUE_PROFILING_ENABLE
        | CL_QUEUE_ON_DEVICE
        | CL_QUEUE_ON_DEVICE_DEFAULT;
    if wanted.properties & !known != 0
        || (on_device && wanted.properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0)
        || (!on_device && wanted.properties & CL_QUEUE_ON_DEVICE_DEFAULT != 0)
        || (!on_device && wanted.size.is_some())
    {
        return Err(CL_INVALID_VALUE);
    }
    let host_bits = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
    if (on_device && !device.limits.device_queues)
        || (!on_device && wanted.properties & host_bits & !device.limits.queue_properties != 0)
    {
        return Err(CL_INVALID_QUEUE_PROPERTIES);
    }
    Ok(wanted)
}

fn open(
    context: Ref<Context>,
    device: cl_device_id,
    list: Option<&[cl_queue_properties]>,
    array: Vec<cl_queue_properties>,
) -> Result<cl_command_queue, cl_int> {
    let device = get::<Device>(device)?;
    let part = context.part_of_whole(&device).ok_or(CL_INVALID_DEVICE)?;
    let wanted = wanted(&device, list)?;
    let owner = &context.parts[part];
    let raw = if wanted.listed {
        let list = list.map_or(std::ptr::null(), <[_]>::as_ptr);
        create!(
            owner.provider.api,
            clCreateCommandQueueWithProperties(owner.raw.0, device.raw.0, list)
        )
    } else {
        create!(
            owner.provider.api,
            clCreateCommandQueue(
                owner.raw.0,
                device.raw.0,
                timeline::of_queue(wanted.properties)
            )
        )
    }?;
    let default = wanted.properties & CL_QUEUE_ON_DEVICE_DEFAULT != 0;
    let queue = Ref::new(Queue {
        context: context.clone(),
        device: device.clone(),
        part,
        raw: Shared(raw),
        properties: wanted.properties,
        batch: Mutex::default(),
        array,
        size: wanted.size,
        given: Mutex::default(),
    })?
    .publish();
    if wanted.properties & CL_QUEUE_ON_DEVICE == 0 {
        owner.queue_opened(Shared(raw));
    }
    if default {
        set_default(&context, &device, queue);
    }
    Ok(queue)
}

fn set_default(context: &Context, device: &Ref<Device>, queue: cl_command_queue) {
    let mut defaults = context
        .default_queues
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    defaults.retain(|(of, _)| of.0 != device.handle());
    defaults.push((Shared(device.handle()), Shared(queue)));
}

impl QueueCalls for Platform {
    unsafe fn clCreateCommandQueue(
        &self,
        context: cl_context,
        device: cl_device_id,
        properties: cl_command_queue_properties,
    ) -> Result<cl_command_queue, cl_int> {
        let context = get::<Context>(context)?;
        if properties & (CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT) != 0 {
            return Err(CL_INVALID_VALUE);
        }
        let list = [CL_QUEUE_PROPERTIES as cl_queue_properties, properties, 0];
        open(context, device, Some(&list), Vec::new())
    }

    unsafe fn clCreateCommandQueueWithProperties(
        &self,
        context: cl_context,
        device: cl_device_id,
        properties: Option<&[cl_queue_properties]>,
    ) -> Result<cl_command_queue, cl_int> {
        let context = get::<Context>(context)?;
        open(
            context,
            device,
            properties,
            properties.unwrap_or(&[]).to_vec(),
        )
    }

    unsafe fn clSetDefaultDeviceCommandQueue(
        &self,
        context: cl_context,
        device: cl_device_id,
        command_queue: cl_command_queue,
    ) -> Result<(), cl_int> {
        let has_queues = |device: &Ref<Device>| device.limits.device_queues;
        if !self.devices().iter().any(has_queues) {
            return Err(CL_INVALID_OPERATION);
        }
        let context = get::<Context>(context)?;
        let device = get::<Device>(device)?;
        if !context.has(&device) {
            return Err(CL_INVALID_DEVICE);
        }
        let queue = get::<Queue>(command_queue)?;
        if !device.limits.device_queues {
            return Err(CL_INVALID_OPERATION);
        }
        if !queue.context.is(&context)
            || !queue.device.is(&device)
            || queue.properties & CL_QUEUE_ON_DEVICE == 0
        {
            return Err(CL_INVALID_COMMAND_QUEUE);
        }
        let part = queue.part();
        check(provider!(
            part.provider.api,
            clSetDefaultDeviceCommandQueue(part.raw.0, device.raw.0, queue.raw.0)
        ))?;
        set_default(&context, &device, command_queue);
        Ok(())
    }

    unsafe fn clRetainCommandQueue(&self, command_queue: cl_command_queue) -> Result<(), cl_int> {
        get::<Queue>(command_queue)?.retain();
        Ok(())
    }

    unsafe fn clReleaseCommandQueue(&self, command_queue: cl_command_queue) -> Result<(), cl_int> {
        let queue = get::<Queue>(command_queue)?;
        if queue.release()? && queue.properties & CL_QUEUE_ON_DEVICE == 0 {
            // Releasing flushes; events that outlive the queue depend on it.
            provider!(queue.part().provider.api, clFlush(queue.raw.0));
        }
        Ok(())
    }

    unsafe fn clGetCommandQueueInfo(
        &self,
        command_queue: cl_command_queue,
        param_name: cl_command_queue_info,
        answer: Answer,
    ) -> Result<(), cl_int> {
        let queue = get::<Queue>(command_queue)?;
        match param_name {
            CL_QUEUE_CONTEXT => answer.value(queue.context.handle()),
            CL_QUEUE_DEVICE => answer.value(queue.device.handle()),
            CL_QUEUE_REFERENCE_COUNT => answer.value(queue.count()),
            CL_QUEUE_PROPERTIES => answer.value(queue.properties),
            CL_QUEUE_PROPERTIES_ARRAY => answer.slice(&queue.array),
            CL_QUEUE_SIZE => {
                if queue.properties & CL_QUEUE_ON_DEVICE == 0 {
                    return Err(CL_INVALID_COMMAND_QUEUE);
                }
                match queue.size {
                    Some(size) => answer.value(size),
                    None => {
                        answer.bytes(&queue.device.provider.device_bytes(
                            queue.device.raw,
                            CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE,
                        ))
                    }
                }
            }
            CL_QUEUE_DEVICE_DEFAULT => {
                let defaults = queue
                    .context
                    .default_queues
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let default = defaults
                    .iter()
                    .find(|(device, _)| device.0 == queue.device.handle())
                    .map_or(std::ptr::null_mut(), |(_, queue)| queue.0);
                answer.value::<*mut c_void>(default.cast())
            }
            _ => Err(CL_INVALID_VALUE),
        }
    }

    unsafe fn clFlush(&self, command_queue: cl_command_queue) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        check(provider!(queue.part().provider.api, clFlush(queue.raw.0)))
    }

    unsafe fn clFinish(&self, command_queue: cl_command_queue) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        check(provider!(queue.part().provider.api, clFinish(queue.raw.0)))
    }
}
