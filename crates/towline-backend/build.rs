//! Generates the OpenCL contract and the native function table from `api/opencl/`.

/// What the adapter for serial vendors answers itself: queues, events, commands, and references to what commands use.
const SCHEDULED: &[&str] = &[
    "clCreateCommandQueue",
    "clCreateCommandQueueWithProperties",
    "clRetainCommandQueue",
    "clReleaseCommandQueue",
    "clGetCommandQueueInfo",
    "clFlush",
    "clFinish",
    "clRetainMemObject",
    "clReleaseMemObject",
    "clGetMemObjectInfo",
    "clSetMemObjectDestructorCallback",
    "clRetainSampler",
    "clReleaseSampler",
    "clGetSamplerInfo",
    "clCreateKernelsInProgram",
    "clRetainKernel",
    "clReleaseKernel",
    "clGetKernelInfo",
    "clSetKernelArg",
    "clCreateUserEvent",
    "clSetUserEventStatus",
    "clWaitForEvents",
    "clGetEventInfo",
    "clSetEventCallback",
    "clGetEventProfilingInfo",
    "clRetainEvent",
    "clReleaseEvent",
    "clEnqueueReadBuffer",
    "clEnqueueReadBufferRect",
    "clEnqueueWriteBuffer",
    "clEnqueueWriteBufferRect",
    "clEnqueueFillBuffer",
    "clEnqueueCopyBuffer",
    "clEnqueueCopyBufferRect",
    "clEnqueueReadImage",
    "clEnqueueWriteImage",
    "clEnqueueFillImage",
    "clEnqueueCopyImage",
    "clEnqueueCopyImageToBuffer",
    "clEnqueueCopyBufferToImage",
    "clEnqueueMapBuffer",
    "clEnqueueMapImage",
    "clEnqueueUnmapMemObject",
    "clEnqueueMigrateMemObjects",
    "clEnqueueNDRangeKernel",
    "clEnqueueTask",
    "clEnqueueMarkerWithWaitList",
    "clEnqueueBarrierWithWaitList",
    "clEnqueueMarker",
    "clEnqueueWaitForEvents",
    "clEnqueueBarrier",
];

fn main() {
    let api = towline_api::load_for_build("opencl");
    towline_api::write_for_build(
        "opencl_api.rs",
        &towline_api::emit::backend::emit_trait(&api, "OpenClApi"),
    );
    towline_api::write_for_build(
        "opencl_native.rs",
        &towline_api::emit::backend::emit_native(&api, "OpenClApi"),
    );
    towline_api::write_for_build(
        "opencl_serial.rs",
        &towline_api::emit::backend::emit_serial(&api, "OpenClApi", SCHEDULED),
    );
    let order = format!(
        "/// Order of the loader's dispatch table.\npub(super) const ICD_DISPATCH: &[&str] = &{:?};\n",
        api.dispatch_order
    );
    towline_api::write_for_build("opencl_order.rs", &order);
}
