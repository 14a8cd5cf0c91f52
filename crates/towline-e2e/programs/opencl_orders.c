/*
 * Tells in which order a library checks the arguments of its commands: every command of transfers is called with each of its faults and with
 * each pair of them, a line each. Two libraries that check in the same order write the same lines. What PoCL reads through (NULL regions,
 * some NULL handles of copies), what it takes against the specification (pitches, empty regions of images, flags of maps) and an empty copy of
 * a buffer, which it refuses, are not asked for.
 */
#undef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#include "opencl_platform.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define BUFFER_BYTES 1024

static const struct _cl_icd_dispatch *cl;

static struct arguments {
    cl_command_queue queue;
    cl_mem from, to, image_from, image_to;
    cl_bool is_blocking;
    cl_map_flags flags;
    size_t offset, size, origin[3], region[3], pitch, slice;
    size_t pattern_size;
    void *memory, *shared, *shared_to;
    const void *pattern;
    cl_uint count;
    const cl_event *list;
} right, a;

static cl_event null_event[1], foreign_event[1];
static cl_kernel kernel, foreign_kernel;
static cl_mem foreign_buffer, foreign_image, other_format, buffer;
static unsigned char host[1 << 16];

/* ---- Faults, each of one field. */
static void queue_null(void) { a.queue = NULL; }
static void from_null(void) { a.from = a.image_from = NULL; }
static void from_foreign(void) { a.from = foreign_buffer, a.image_from = foreign_image; }
static void from_buffer(void) { a.image_from = buffer; }
static void to_null(void) { a.to = a.image_to = NULL; }
static void to_foreign(void) { a.to = foreign_buffer, a.image_to = foreign_image; }
static void to_buffer(void) { a.image_to = buffer; }
static void to_other_format(void) { a.image_to = other_format; }
static void to_is_from(void) { a.to = a.from, a.image_to = a.image_from; }
static void waits_no_list(void) { a.count = 1; }
static void waits_no_count(void) { a.list = foreign_event; }
static void waits_null(void) { a.count = 1, a.list = null_event; }
static void waits_foreign(void) { a.count = 1, a.list = foreign_event; }
static void offset_beyond(void) { a.offset = BUFFER_BYTES, a.origin[0] = 4096; }
static void offset_odd(void) { a.offset = 3; }
static void size_none(void) { a.size = 0, a.region[1] = 0; }
static void size_beyond(void) { a.size = 4 * BUFFER_BYTES, a.region[0] = 4096; }
static void memory_null(void) { a.memory = NULL; }
static void shared_null(void) { a.shared = NULL; }
static void shared_to_null(void) { a.shared_to = NULL; }
static void shared_overlaps(void) { a.shared_to = (char *)a.shared + 8; }
static void kernel_null(void) { kernel = NULL; }
static void kernel_foreign(void) { kernel = foreign_kernel; }
static void pitch_small(void) { a.pitch = 1; }
static void slice_odd(void) { a.slice = 7; }
static void flags_unknown(void) { a.flags = 1 << 20; }
static void pattern_null(void) { a.pattern = NULL; }
static void pattern_odd(void) { a.pattern_size = 3; }

enum {
    QUEUE = 1, FROM = 2, TO = 4, WAITS = 8, OFFSET = 16, SIZE = 32, MEMORY = 64, PITCH = 128, FLAGS = 256, PATTERN = 512, SHARED = 1024,
    SHARED_TO = 2048, KERNEL = 4096,
    /* Asked for only of commands that name these too. */
    IMAGES = 1 << 16, NULLS = 1 << 17, TO_NULLS = 1 << 18, EMPTY = 1 << 19, MARKS = IMAGES | NULLS | TO_NULLS | EMPTY
};

static const struct fault {
    const char *name;
    void (*make)(void);
    int fields;
} FAULTS[] = {
    {"queue-null", queue_null, QUEUE},
    {"from-null", from_null, FROM | NULLS},
    {"from-foreign", from_foreign, FROM},
    {"from-buffer", from_buffer, FROM | IMAGES},
    {"to-null", to_null, TO | TO_NULLS},
    {"to-foreign", to_foreign, TO},
    {"to-buffer", to_buffer, TO | IMAGES},
    {"to-other-format", to_other_format, TO | IMAGES},
    {"to-is-from", to_is_from, TO},
    {"waits-no-list", waits_no_list, WAITS},
    {"waits-no-count", waits_no_count, WAITS},
    {"waits-null", waits_null, WAITS},
    {"waits-foreign", waits_foreign, WAITS},
    {"offset-beyond", offset_beyond, OFFSET},
    {"offset-odd", offset_odd, OFFSET},
    {"size-none", size_none, SIZE | EMPTY},
    {"size-beyond", size_beyond, SIZE},
    {"memory-null", memory_null, MEMORY},
    {"shared-null", shared_null, SHARED},
    {"shared-to-null", shared_to_null, SHARED_TO},
    {"shared-overlaps", shared_overlaps, SHARED_TO},
    {"kernel-null", kernel_null, KERNEL | NULLS},
    {"kernel-foreign", kernel_foreign, KERNEL},
    {"pitch-small", pitch_small, PITCH},
    {"slice-odd", slice_odd, PITCH},
    {"flags-unknown", flags_unknown, FLAGS},
    {"pattern-null", pattern_null, PATTERN | NULLS},
    {"pattern-odd", pattern_odd, PATTERN},
};

/* ---- Commands */
static const size_t ZERO[3];

static cl_int read_buffer(void) { return cl->clEnqueueReadBuffer(a.queue, a.from, a.is_blocking, a.offset, a.size, a.memory, a.count, a.list, NULL); }
static cl_int write_buffer(void) { return cl->clEnqueueWriteBuffer(a.queue, a.from, a.is_blocking, a.offset, a.size, a.memory, a.count, a.list, NULL); }
static cl_int read_box(void)
{
    return cl->clEnqueueReadBufferRect(a.queue, a.from, a.is_blocking, a.origin, ZERO, a.region, a.pitch, a.slice, 0, 0, a.memory, a.count, a.list, NULL);
}
static cl_int write_box(void)
{
    return cl->clEnqueueWriteBufferRect(a.queue, a.from, a.is_blocking, a.origin, ZERO, a.region, a.pitch, a.slice, 0, 0, a.memory, a.count, a.list, NULL);
}
static cl_int fill_buffer(void) { return cl->clEnqueueFillBuffer(a.queue, a.from, a.pattern, a.pattern_size, a.offset, a.size, a.count, a.list, NULL); }
static cl_int copy_buffer(void) { return cl->clEnqueueCopyBuffer(a.queue, a.from, a.to, a.offset, 512, a.size, a.count, a.list, NULL); }
static cl_int copy_box(void)
{
    return cl->clEnqueueCopyBufferRect(a.queue, a.from, a.to, a.origin, ZERO, a.region, a.pitch, a.slice, 0, 0, a.count, a.list, NULL);
}
static cl_int read_image(void)
{
    return cl->clEnqueueReadImage(a.queue, a.image_from, a.is_blocking, a.origin, a.region, a.pitch, a.slice, a.memory, a.count, a.list, NULL);
}
static cl_int write_image(void)
{
    return cl->clEnqueueWriteImage(a.queue, a.image_from, a.is_blocking, a.origin, a.region, a.pitch, a.slice, a.memory, a.count, a.list, NULL);
}
static cl_int fill_image(void) { return cl->clEnqueueFillImage(a.queue, a.image_from, a.pattern, a.origin, a.region, a.count, a.list, NULL); }
static cl_int copy_image(void) { return cl->clEnqueueCopyImage(a.queue, a.image_from, a.image_to, a.origin, ZERO, a.region, a.count, a.list, NULL); }
static cl_int image_to_buffer(void) { return cl->clEnqueueCopyImageToBuffer(a.queue, a.image_from, a.to, a.origin, a.region, 64, a.count, a.list, NULL); }
static cl_int buffer_to_image(void) { return cl->clEnqueueCopyBufferToImage(a.queue, a.from, a.image_to, a.offset, ZERO, a.region, a.count, a.list, NULL); }
static cl_int map_buffer(void)
{
    cl_int code = 77;
    void *mapped = cl->clEnqueueMapBuffer(a.queue, a.from, CL_TRUE, a.flags, a.offset, a.size, a.count, a.list, NULL, &code);
    if (mapped != NULL)
        cl->clEnqueueUnmapMemObject(a.queue, a.from, mapped, 0, NULL, NULL);
    return code;
}
static cl_int map_image(void)
{
    cl_int code = 77;
    size_t row = 0, slice = 0;
    void *mapped = cl->clEnqueueMapImage(a.queue, a.image_from, CL_TRUE, a.flags, a.origin, a.region, &row, &slice, a.count, a.list, NULL, &code);
    if (mapped != NULL)
        cl->clEnqueueUnmapMemObject(a.queue, a.image_from, mapped, 0, NULL, NULL);
    return code;
}
static cl_int migrate(void) { return cl->clEnqueueMigrateMemObjects(a.queue, 1, &a.from, a.flags == CL_MAP_READ ? 0 : a.flags, a.count, a.list, NULL); }
static cl_int unmap(void) { return cl->clEnqueueUnmapMemObject(a.queue, a.from, a.memory, a.count, a.list, NULL); }
static cl_int shared_copy(void) { return cl->clEnqueueSVMMemcpy(a.queue, a.is_blocking, a.shared_to, a.shared, a.size, a.count, a.list, NULL); }
static cl_int shared_fill(void) { return cl->clEnqueueSVMMemFill(a.queue, a.shared, a.pattern, a.pattern_size, a.size, a.count, a.list, NULL); }
static cl_int shared_map(void)
{
    const cl_int code = cl->clEnqueueSVMMap(a.queue, a.is_blocking, a.flags, a.shared, a.size, a.count, a.list, NULL);
    if (code == CL_SUCCESS)
        cl->clEnqueueSVMUnmap(a.queue, a.shared, 0, NULL, NULL);
    return code;
}
static cl_int shared_unmap(void) { return cl->clEnqueueSVMUnmap(a.queue, a.shared, a.count, a.list, NULL); }
static cl_int shared_migrate(void)
{
    const void *list[] = {a.shared};
    return cl->clEnqueueSVMMigrateMem(a.queue, 1, list, NULL, a.flags == CL_MAP_READ ? 0 : a.flags, a.count, a.list, NULL);
}
static cl_int launch(void)
{
    const size_t global[] = {a.size};
    return cl->clEnqueueNDRangeKernel(a.queue, kernel, 1, NULL, global, NULL, a.count, a.list, NULL);
}
static cl_int marker(void) { return cl->clEnqueueMarkerWithWaitList(a.queue, a.count, a.list, NULL); }
static cl_int barrier(void) { return cl->clEnqueueBarrierWithWaitList(a.queue, a.count, a.list, NULL); }

static const struct {
    const char *name;
    cl_int (*call)(void);
    int fields;
} COMMANDS[] = {
    {"ReadBuffer", read_buffer, QUEUE | FROM | NULLS | WAITS | OFFSET | SIZE | MEMORY | EMPTY},
    {"WriteBuffer", write_buffer, QUEUE | FROM | NULLS | WAITS | OFFSET | SIZE | MEMORY | EMPTY},
    {"ReadBufferRect", read_box, QUEUE | FROM | NULLS | WAITS | OFFSET | SIZE | MEMORY | PITCH | EMPTY},
    {"WriteBufferRect", write_box, QUEUE | FROM | NULLS | WAITS | OFFSET | SIZE | MEMORY | PITCH | EMPTY},
    {"FillBuffer", fill_buffer, QUEUE | FROM | NULLS | WAITS | OFFSET | SIZE | PATTERN | EMPTY},
    {"CopyBuffer", copy_buffer, QUEUE | FROM | NULLS | TO | TO_NULLS | WAITS | OFFSET | SIZE},
    {"CopyBufferRect", copy_box, QUEUE | FROM | TO | WAITS | OFFSET | SIZE | PITCH | EMPTY},
    {"ReadImage", read_image, QUEUE | FROM | NULLS | WAITS | OFFSET | SIZE | MEMORY | IMAGES},
    {"WriteImage", write_image, QUEUE | FROM | NULLS | WAITS | OFFSET | SIZE | MEMORY | IMAGES},
    {"FillImage", fill_image, QUEUE | FROM | NULLS | WAITS | OFFSET | SIZE | PATTERN | IMAGES},
    {"CopyImage", copy_image, QUEUE | FROM | NULLS | TO | TO_NULLS | WAITS | OFFSET | SIZE | IMAGES | EMPTY},
    {"CopyImageToBuffer", image_to_buffer, QUEUE | FROM | NULLS | TO | WAITS | OFFSET | SIZE | EMPTY},
    {"CopyBufferToImage", buffer_to_image, QUEUE | FROM | NULLS | TO | TO_NULLS | WAITS | OFFSET | SIZE | EMPTY},
    {"MapBuffer", map_buffer, QUEUE | FROM | NULLS | WAITS | OFFSET | SIZE | EMPTY},
    {"MapImage", map_image, QUEUE | FROM | NULLS | WAITS | OFFSET | SIZE | IMAGES},
    {"MigrateMemObjects", migrate, QUEUE | FROM | NULLS | WAITS | FLAGS},
    {"UnmapMemObject", unmap, QUEUE | FROM | NULLS | WAITS | MEMORY},
    {"SVMMemcpy", shared_copy, QUEUE | WAITS | SIZE | EMPTY | SHARED | SHARED_TO},
    {"SVMMemFill", shared_fill, QUEUE | WAITS | SIZE | EMPTY | SHARED | PATTERN},
    {"SVMMap", shared_map, QUEUE | WAITS | SIZE | EMPTY | SHARED},
    {"SVMUnmap", shared_unmap, QUEUE | WAITS | SHARED},
    {"SVMMigrateMem", shared_migrate, QUEUE | WAITS | SHARED | FLAGS},
    {"NDRangeKernel", launch, SIZE | EMPTY | KERNEL},
    {"MarkerWithWaitList", marker, QUEUE | WAITS},
    {"BarrierWithWaitList", barrier, QUEUE | WAITS},
};

static cl_context new_context(cl_platform_id platform, cl_device_id *device)
{
    cl_int code = 77;
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    if (cl->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, device, NULL) != CL_SUCCESS)
        return NULL;
    return cl->clCreateContext(properties, 1, device, NULL, NULL, &code);
}

static cl_kernel new_kernel(cl_context context)
{
    cl_int code = 77;
    const char *source = "kernel void nothing(void) {}";
    const cl_program program = cl->clCreateProgramWithSource(context, 1, &source, NULL, &code);
    if (cl->clBuildProgram(program, 0, NULL, NULL, NULL, NULL) != CL_SUCCESS)
        return NULL;
    return cl->clCreateKernel(program, "nothing", &code);
}

static cl_mem new_image(cl_context context, cl_channel_type type)
{
    cl_int code = 77;
    const cl_image_format format = {CL_RGBA, type};
    const cl_image_desc shape = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    return cl->clCreateImage(context, CL_MEM_READ_WRITE, &format, &shape, NULL, &code);
}

int main(void)
{
    const cl_platform_id platform = chosen_platform();
    if (platform == NULL)
        return 4;
    cl = functions_of(platform);
    cl_device_id device;
    const cl_context context = new_context(platform, &device), other = new_context(platform, &device);
    cl_int code = 77;
    const cl_float pattern[4] = {1, 2, 3, 4};
    right = (struct arguments){.queue = cl->clCreateCommandQueueWithProperties(context, device, NULL, &code),
                               .from = cl->clCreateBuffer(context, CL_MEM_READ_WRITE, BUFFER_BYTES, NULL, &code),
                               .to = cl->clCreateBuffer(context, CL_MEM_READ_WRITE, BUFFER_BYTES, NULL, &code),
                               .image_from = new_image(context, CL_FLOAT),
                               .image_to = new_image(context, CL_FLOAT),
                               .is_blocking = CL_TRUE,
                               .flags = CL_MAP_READ,
                               .size = 64,
                               .region = {4, 2, 1},
                               .pattern_size = 4,
                               .memory = host,
                               .shared = cl->clSVMAlloc(context, CL_MEM_READ_WRITE, 4096, 0),
                               .shared_to = cl->clSVMAlloc(context, CL_MEM_READ_WRITE, 4096, 0),
                               .pattern = pattern};
    buffer = right.from;
    foreign_buffer = cl->clCreateBuffer(other, CL_MEM_READ_WRITE, BUFFER_BYTES, NULL, &code);
    foreign_image = new_image(other, CL_FLOAT);
    other_format = new_image(context, CL_UNSIGNED_INT8);
    foreign_kernel = new_kernel(other);
    const cl_kernel right_kernel = new_kernel(context);
    foreign_event[0] = cl->clCreateUserEvent(other, &code);
    if (code != CL_SUCCESS || right.queue == NULL || other_format == NULL || right_kernel == NULL || foreign_kernel == NULL)
        return 4;
    for (size_t command = 0; command < COUNT(COMMANDS); command++)
        for (size_t first = 0; first < COUNT(FAULTS); first++)
            for (size_t second = first; second < COUNT(FAULTS); second++) {
                const struct fault *one = &FAULTS[first], *two = &FAULTS[second];
                const int fields = COMMANDS[command].fields;
                if ((one->fields & ~fields) != 0 || (two->fields & ~fields) != 0)
                    continue;
                if (one != two && (one->fields & two->fields & ~MARKS) != 0)
                    continue;
                a = right;
                kernel = right_kernel;
                one->make();
                two->make();
                printf("%s %s", COMMANDS[command].name, one->name);
                if (one != two)
                    printf(" %s", two->name);
                fflush(stdout);
                printf(" = %d\n", COMMANDS[command].call());
            }
    /* PoCL may abort where a process ends while a kernel is compiled. */
    return cl->clFinish(right.queue) == CL_SUCCESS ? 0 : 1;
}
