//! Generates the contract of each API and the native function table from `api/`.

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
    "clEnqueueFillBuffer",
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

/// Commands that the adapter gives to a serial vendor as they are, when their turn has come.
const PLAIN: &[&str] = &[
    "clEnqueueReadBuffer",
    "clEnqueueReadBufferRect",
    "clEnqueueWriteBuffer",
    "clEnqueueWriteBufferRect",
    "clEnqueueCopyBuffer",
    "clEnqueueCopyBufferRect",
    "clEnqueueReadImage",
    "clEnqueueWriteImage",
    "clEnqueueFillImage",
    "clEnqueueCopyImage",
    "clEnqueueCopyImageToBuffer",
    "clEnqueueCopyBufferToImage",
];

/// What the host-memory device implements.
const IMPLEMENTED: &[&str] = &[
    "clBuildProgram",
    "clCloneKernel",
    "clCreateBuffer",
    "clCreateBufferWithProperties",
    "clCreateCommandQueue",
    "clCreateCommandQueueWithProperties",
    "clCreateContext",
    "clCreateContextFromType",
    "clCreateKernel",
    "clCreateKernelsInProgram",
    "clCreateProgramWithBuiltInKernels",
    "clCreateProgramWithSource",
    "clCreateSubBuffer",
    "clCreateUserEvent",
    "clEnqueueBarrier",
    "clEnqueueBarrierWithWaitList",
    "clEnqueueCopyBuffer",
    "clEnqueueCopyBufferRect",
    "clEnqueueFillBuffer",
    "clEnqueueMapBuffer",
    "clEnqueueMarker",
    "clEnqueueMarkerWithWaitList",
    "clEnqueueMigrateMemObjects",
    "clEnqueueNDRangeKernel",
    "clEnqueueReadBuffer",
    "clEnqueueReadBufferRect",
    "clEnqueueTask",
    "clEnqueueUnmapMemObject",
    "clEnqueueWaitForEvents",
    "clEnqueueWriteBuffer",
    "clEnqueueWriteBufferRect",
    "clFinish",
    "clFlush",
    "clGetCommandQueueInfo",
    "clGetContextInfo",
    "clGetDeviceAndHostTimer",
    "clGetDeviceIDs",
    "clGetDeviceInfo",
    "clGetEventInfo",
    "clGetEventProfilingInfo",
    "clGetHostTimer",
    "clGetKernelArgInfo",
    "clGetKernelInfo",
    "clGetKernelWorkGroupInfo",
    "clGetMemObjectInfo",
    "clGetPlatformIDs",
    "clGetPlatformInfo",
    "clGetProgramBuildInfo",
    "clGetProgramInfo",
    "clGetSupportedImageFormats",
    "clReleaseCommandQueue",
    "clReleaseContext",
    "clReleaseDevice",
    "clReleaseEvent",
    "clReleaseKernel",
    "clReleaseMemObject",
    "clReleaseProgram",
    "clRetainCommandQueue",
    "clRetainContext",
    "clRetainDevice",
    "clRetainEvent",
    "clRetainKernel",
    "clRetainMemObject",
    "clRetainProgram",
    "clSetContextDestructorCallback",
    "clSetEventCallback",
    "clSetKernelArg",
    "clSetMemObjectDestructorCallback",
    "clSetUserEventStatus",
    "clUnloadPlatformCompiler",
    "clWaitForEvents",
];

fn main() {
    for name in ["cuda", "nvml"] {
        write(&towline_api::load_for_build(name));
    }
    let api = towline_api::load_for_build("opencl");
    write(&api);
    towline_api::write_for_build(
        "opencl_serial.rs",
        &towline_api::emit::backend::emit_serial(&api, "OpenClApi", SCHEDULED, PLAIN),
    );
    towline_api::write_for_build(
        "opencl_null.rs",
        &towline_api::emit::backend::emit_methods(&api, "OpenClApi", "NullOpenCl", IMPLEMENTED),
    );
    let order = format!(
        "/// Order of the loader's dispatch table.\npub(super) const ICD_DISPATCH: &[&str] = &{:?};\n",
        api.dispatch_order
    );
    towline_api::write_for_build("opencl_order.rs", &order);
}

/// The contract and the vendor's table of one API.
fn write(api: &towline_api::Api) {
    let contract = api.dialect().contract;
    let code = towline_api::emit::backend::emit_trait(api, contract);
    towline_api::write_for_build(&format!("{}_api.rs", api.name), &code);
    let code = towline_api::emit::backend::emit_native(api, contract);
    towline_api::write_for_build(&format!("{}_native.rs", api.name), &code);
}
