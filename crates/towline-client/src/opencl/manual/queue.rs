//! Queues.

use super::*;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl QueueCalls for Remote {
    unsafe fn clSetDefaultDeviceCommandQueue(
        &self,
        context: cl_context,
        device: cl_device_id,
        command_queue: cl_command_queue,
    ) -> cl_int {
        let request = wire::SetDefaultDeviceCommandQueue {
            context: wire::ContextHandle::from_raw(context),
            device: wire::DeviceHandle::from_raw(device),
            command_queue: wire::CommandQueueHandle::from_raw(command_queue),
        };
        let posted = self.post(&request);
        if posted.is_ok() {
            let key = (request.context.0, request.device.0);
            self.recipes.set_default(key, request.command_queue.0);
        }
        status_of(posted)
    }

    unsafe fn clFinish(&self, command_queue: cl_command_queue) -> cl_int {
        self.finish(command_queue)
    }
}
