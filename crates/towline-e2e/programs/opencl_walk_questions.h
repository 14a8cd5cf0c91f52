/*
 * Operations of opencl_walk.c that ask about objects, and say the answers.
 */
#ifndef OPENCL_WALK_QUESTIONS_H
#define OPENCL_WALK_QUESTIONS_H

#include "opencl_walk.h"

enum { BYTES, HANDLES, SIZE_ONLY };
struct question {
    cl_uint name;
    int kind;
};

static const struct question CONTEXT_INFO[] = {{CL_CONTEXT_REFERENCE_COUNT, SIZE_ONLY}, {CL_CONTEXT_PROPERTIES, SIZE_ONLY}, {0x7777, BYTES}};
static const struct question QUEUE_INFO[] = {{CL_QUEUE_CONTEXT, HANDLES}, {CL_QUEUE_DEVICE, HANDLES}, {CL_QUEUE_PROPERTIES, BYTES},
                                             {CL_QUEUE_PROPERTIES_ARRAY, BYTES}, {CL_QUEUE_SIZE, BYTES}, {CL_QUEUE_DEVICE_DEFAULT, HANDLES}, {0x7777, BYTES}};
static const struct question MEM_INFO[] = {{CL_MEM_TYPE, BYTES}, {CL_MEM_FLAGS, BYTES}, {CL_MEM_SIZE, BYTES}, {CL_MEM_HOST_PTR, SIZE_ONLY},
                                           {CL_MEM_MAP_COUNT, BYTES}, {CL_MEM_CONTEXT, HANDLES}, {CL_MEM_ASSOCIATED_MEMOBJECT, HANDLES},
                                           {CL_MEM_OFFSET, BYTES}, {CL_MEM_USES_SVM_POINTER, BYTES}, {CL_MEM_PROPERTIES, BYTES}, {0x7777, BYTES}};
static const struct question IMAGE_INFO[] = {{CL_IMAGE_FORMAT, BYTES}, {CL_IMAGE_ELEMENT_SIZE, BYTES}, {CL_IMAGE_ROW_PITCH, BYTES}, {CL_IMAGE_SLICE_PITCH, BYTES},
                                             {CL_IMAGE_WIDTH, BYTES}, {CL_IMAGE_HEIGHT, BYTES}, {CL_IMAGE_DEPTH, BYTES}, {CL_IMAGE_ARRAY_SIZE, BYTES},
                                             {CL_IMAGE_BUFFER, HANDLES}, {CL_IMAGE_NUM_MIP_LEVELS, BYTES}, {CL_IMAGE_NUM_SAMPLES, BYTES}, {0x7777, BYTES}};
static const struct question PROGRAM_INFO[] = {{CL_PROGRAM_SOURCE, BYTES}, {CL_PROGRAM_CONTEXT, HANDLES}, {CL_PROGRAM_NUM_KERNELS, BYTES},
                                               {CL_PROGRAM_KERNEL_NAMES, BYTES}, {CL_PROGRAM_IL, BYTES}, {0x7777, BYTES}};
static const struct question BUILD_INFO[] = {{CL_PROGRAM_BUILD_STATUS, BYTES}, {CL_PROGRAM_BUILD_OPTIONS, BYTES}, {CL_PROGRAM_BINARY_TYPE, BYTES},
                                             {CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, BYTES}, {0x7777, BYTES}};
static const struct question KERNEL_INFO[] = {{CL_KERNEL_FUNCTION_NAME, BYTES}, {CL_KERNEL_NUM_ARGS, BYTES}, {CL_KERNEL_CONTEXT, HANDLES},
                                              {CL_KERNEL_PROGRAM, HANDLES}, {CL_KERNEL_ATTRIBUTES, BYTES}, {0x7777, BYTES}};
static const struct question ARG_INFO[] = {{CL_KERNEL_ARG_ADDRESS_QUALIFIER, BYTES}, {CL_KERNEL_ARG_ACCESS_QUALIFIER, BYTES}, {CL_KERNEL_ARG_TYPE_NAME, BYTES},
                                           {CL_KERNEL_ARG_TYPE_QUALIFIER, BYTES}, {CL_KERNEL_ARG_NAME, BYTES}, {0x7777, BYTES}};
static const struct question GROUP_INFO[] = {{CL_KERNEL_WORK_GROUP_SIZE, BYTES}, {CL_KERNEL_COMPILE_WORK_GROUP_SIZE, BYTES}, {CL_KERNEL_LOCAL_MEM_SIZE, BYTES},
                                             {CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, BYTES}, {CL_KERNEL_PRIVATE_MEM_SIZE, BYTES}, {0x7777, BYTES}};
static const struct question EVENT_INFO[] = {{CL_EVENT_COMMAND_QUEUE, HANDLES}, {CL_EVENT_COMMAND_TYPE, BYTES}, {CL_EVENT_CONTEXT, HANDLES}, {0x7777, BYTES}};
static const struct question SAMPLER_INFO[] = {{CL_SAMPLER_CONTEXT, HANDLES}, {CL_SAMPLER_NORMALIZED_COORDS, BYTES}, {CL_SAMPLER_ADDRESSING_MODE, BYTES},
                                               {CL_SAMPLER_FILTER_MODE, BYTES}, {0x7777, BYTES}};
static const struct question DEVICE_INFO[] = {{CL_DEVICE_TYPE, BYTES}, {CL_DEVICE_MAX_WORK_ITEM_SIZES, BYTES}, {CL_DEVICE_NAME, BYTES}, {CL_DEVICE_IMAGE_SUPPORT, BYTES},
                                              {CL_DEVICE_PARENT_DEVICE, HANDLES}, {CL_DEVICE_PARTITION_PROPERTIES, BYTES}, {CL_DEVICE_PARTITION_TYPE, BYTES},
                                              {CL_DEVICE_MEM_BASE_ADDR_ALIGN, BYTES}, {CL_DEVICE_MAX_COMPUTE_UNITS, BYTES}, {0x7777, BYTES}};
static const struct question PROFILE_INFO[] = {{CL_PROFILING_COMMAND_QUEUED, SIZE_ONLY}, {CL_PROFILING_COMMAND_END, SIZE_ONLY}, {0x7777, SIZE_ONLY}};

static void ask(void)
{
    const unsigned about = word(), which = word(), name = word(), room = word();
    unsigned char answer[4096];
    memset(answer, 0x5e, sizeof answer);
    size_t size = 0x5e5e;
    const size_t space = PICK(room, sizeof answer, sizeof answer, 0, 1, 8);
    void *place = room / 5 % 4 == 3 || space == 0 ? NULL : answer;
    size_t *length = room / 20 % 8 == 7 ? NULL : &size;
    cl_int code = 0;
    struct question q = {0, 0};
#define ASK(list, call, ...)                                                                                                             \
    q = list[name % COUNT(list)];                                                                                                        \
    code = cl->call(__VA_ARGS__, q.name, space, place, length);                                                                          \
    break
    switch (about % 13) {
    case 0: ASK(MEM_INFO, clGetMemObjectInfo, mem_by(which));
    case 1:
        if (s.mems[mem_slot(which)].handle != NULL && !s.mems[mem_slot(which)].is_image)
            return;
        ASK(IMAGE_INFO, clGetImageInfo, mem_by(which));
    case 2: ASK(QUEUE_INFO, clGetCommandQueueInfo, which % 16 == 15 ? NULL : s.queues[queue_slot(which)].handle);
    case 3: ASK(PROGRAM_INFO, clGetProgramInfo, program_by(which));
    case 4: ASK(BUILD_INFO, clGetProgramBuildInfo, program_by(which), device_by(which / 32));
    case 5: ASK(KERNEL_INFO, clGetKernelInfo, kernel_by(which));
    case 6: ASK(ARG_INFO, clGetKernelArgInfo, kernel_by(which), (cl_uint)PICK(which / 32, 0, 1, 2, 77));
    case 7: ASK(GROUP_INFO, clGetKernelWorkGroupInfo, kernel_by(which), with_svm && which / 32 % 4 == 3 ? NULL : device_by(which / 32));
    case 8:
        if (event_by(which) == NULL)
            return;
        ASK(EVENT_INFO, clGetEventInfo, event_by(which));
    case 9: ASK(SAMPLER_INFO, clGetSamplerInfo, sampler_by(which));
    case 10:
        if (context_by(which) == NULL)
            return;
        ASK(CONTEXT_INFO, clGetContextInfo, context_by(which));
    case 11: ASK(DEVICE_INFO, clGetDeviceInfo, which % 4 == 3 ? s.subs[0] : device_by(which));
    default:
        if (event_by(which) == NULL)
            return;
        finish_all();
        ASK(PROFILE_INFO, clGetEventProfilingInfo, event_by(which));
    }
    say(" of %u name %x room %zu", about % 13, q.name, place == NULL ? 0 : space);
    status(code);
    if (length != NULL)
        say(" size %zd", (ssize_t)size);
    if (place == NULL)
        return;
    if (q.kind == HANDLES && code == CL_SUCCESS) {
        const void *handle;
        memcpy(&handle, answer, sizeof handle);
        say(" %s", name_of(handle));
    } else if (q.kind == BYTES)
        say(" bytes %08x", hash(answer, sizeof answer));
}

static void image_formats(void)
{
    const unsigned which = word(), how = word();
    cl_image_format formats[256];
    memset(formats, 0x5e, sizeof formats);
    cl_uint count = 0x5e;
    if (!with_svm)
        return;
    status(cl->clGetSupportedImageFormats(context_by(which), PICK(how, CL_MEM_READ_WRITE, CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY, CL_MEM_KERNEL_READ_AND_WRITE),
                                          (cl_mem_object_type)PICK(how / 4, CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE3D, CL_MEM_OBJECT_BUFFER, 0x7777),
                                          (cl_uint)PICK(how / 16, 256, 0, 2), how / 16 % 3 == 1 ? NULL : formats, how / 64 % 4 == 3 ? NULL : &count));
    say(" count %u bytes %08x", count, hash(formats, sizeof formats));
}

static void timers(void)
{
    const unsigned how = word();
    cl_ulong device = 0, host = 0;
    status(how % 2 ? cl->clGetHostTimer(devices[0], &host) : cl->clGetDeviceAndHostTimer(devices[0], &device, &host));
}

#endif
