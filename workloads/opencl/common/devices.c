#include "devices.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_ALIGNMENT 4096

/* The loader's answer when no vendor is installed (cl_khr_icd); <CL/cl.h> does not have it. */
#define PLATFORM_NOT_FOUND_KHR (-1001)

/* Set by devices_open, so that messages can begin with the workload's name. */
static const char *program_name = "workload";

const char *cl_error_name(cl_int status)
{
    static const struct {
        cl_int status;
        const char *name;
    } names[] = {
#define NAME(error) {error, #error}
        NAME(CL_SUCCESS),
        NAME(CL_DEVICE_NOT_FOUND),
        NAME(CL_DEVICE_NOT_AVAILABLE),
        NAME(CL_COMPILER_NOT_AVAILABLE),
        NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE),
        NAME(CL_OUT_OF_RESOURCES),
        NAME(CL_OUT_OF_HOST_MEMORY),
        NAME(CL_PROFILING_INFO_NOT_AVAILABLE),
        NAME(CL_MEM_COPY_OVERLAP),
        NAME(CL_IMAGE_FORMAT_MISMATCH),
        NAME(CL_IMAGE_FORMAT_NOT_SUPPORTED),
        NAME(CL_BUILD_PROGRAM_FAILURE),
        NAME(CL_MAP_FAILURE),
        NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET),
        NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
        NAME(CL_COMPILE_PROGRAM_FAILURE),
        NAME(CL_LINKER_NOT_AVAILABLE),
        NAME(CL_LINK_PROGRAM_FAILURE),
        NAME(CL_DEVICE_PARTITION_FAILED),
        NAME(CL_KERNEL_ARG_INFO_NOT_AVAILABLE),
        NAME(CL_INVALID_VALUE),
        NAME(CL_INVALID_DEVICE_TYPE),
        NAME(CL_INVALID_PLATFORM),
        NAME(CL_INVALID_DEVICE),
        NAME(CL_INVALID_CONTEXT),
        NAME(CL_INVALID_QUEUE_PROPERTIES),
        NAME(CL_INVALID_COMMAND_QUEUE),
        NAME(CL_INVALID_HOST_PTR),
        NAME(CL_INVALID_MEM_OBJECT),
        NAME(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR),
        NAME(CL_INVALID_IMAGE_SIZE),
        NAME(CL_INVALID_SAMPLER),
        NAME(CL_INVALID_BINARY),
        NAME(CL_INVALID_BUILD_OPTIONS),
        NAME(CL_INVALID_PROGRAM),
        NAME(CL_INVALID_PROGRAM_EXECUTABLE),
        NAME(CL_INVALID_KERNEL_NAME),
        NAME(CL_INVALID_KERNEL_DEFINITION),
        NAME(CL_INVALID_KERNEL),
        NAME(CL_INVALID_ARG_INDEX),
        NAME(CL_INVALID_ARG_VALUE),
        NAME(CL_INVALID_ARG_SIZE),
        NAME(CL_INVALID_KERNEL_ARGS),
        NAME(CL_INVALID_WORK_DIMENSION),
        NAME(CL_INVALID_WORK_GROUP_SIZE),
        NAME(CL_INVALID_WORK_ITEM_SIZE),
        NAME(CL_INVALID_GLOBAL_OFFSET),
        NAME(CL_INVALID_EVENT_WAIT_LIST),
        NAME(CL_INVALID_EVENT),
        NAME(CL_INVALID_OPERATION),
        NAME(CL_INVALID_GL_OBJECT),
        NAME(CL_INVALID_BUFFER_SIZE),
        NAME(CL_INVALID_MIP_LEVEL),
        NAME(CL_INVALID_GLOBAL_WORK_SIZE),
        NAME(CL_INVALID_PROPERTY),
        NAME(CL_INVALID_IMAGE_DESCRIPTOR),
        NAME(CL_INVALID_COMPILER_OPTIONS),
        NAME(CL_INVALID_LINKER_OPTIONS),
        NAME(CL_INVALID_DEVICE_PARTITION_COUNT),
#undef NAME
        {PLATFORM_NOT_FOUND_KHR, "CL_PLATFORM_NOT_FOUND_KHR"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].status == status)
            return names[i].name;
    }
    return "unknown OpenCL error";
}

void cl_check_status(cl_int status, const char *call, const char *file, int line)
{
    if (status == CL_SUCCESS)
        return;
    fprintf(stderr, "%s: %s (%d) from %s at %s:%d\n", program_name, cl_error_name(status), (int)status,
            call, file, line);
    exit(EXIT_OPENCL_ERROR);
}

void *host_allocate(size_t bytes)
{
    const size_t rounded = (bytes / HOST_ALIGNMENT + 1) * HOST_ALIGNMENT;
    void *memory = rounded > bytes ? aligned_alloc(HOST_ALIGNMENT, rounded) : NULL;
    if (memory == NULL) {
        fprintf(stderr, "%s: no host memory for %zu bytes; use a smaller --size\n", program_name, bytes);
        exit(EXIT_OPENCL_ERROR);
    }
    return memory;
}

static bool contains_ignoring_case(const char *text, const char *part)
{
    for (; *text != '\0'; text++) {
        size_t i = 0;
        while (part[i] != '\0' && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (part[i] == '\0')
            return true;
    }
    return *part == '\0';
}

static void platform_text(cl_platform_id platform, cl_platform_info what, char *text, size_t capacity)
{
    size_t length = 0;
    CL_CHECK(clGetPlatformInfo(platform, what, 0, NULL, &length));
    char *whole = host_allocate(length + 1);
    CL_CHECK(clGetPlatformInfo(platform, what, length, whole, NULL));
    whole[length] = '\0';
    snprintf(text, capacity, "%s", whole);
    free(whole);
}

static void device_name(cl_device_id device, char *text, size_t capacity)
{
    size_t length = 0;
    CL_CHECK(clGetDeviceInfo(device, CL_DEVICE_NAME, 0, NULL, &length));
    char *whole = host_allocate(length + 1);
    CL_CHECK(clGetDeviceInfo(device, CL_DEVICE_NAME, length, whole, NULL));
    whole[length] = '\0';
    snprintf(text, capacity, "%s", whole);
    free(whole);
}

static bool platform_matches(cl_platform_id platform, const char *part)
{
    char text[256];
    if (part == NULL)
        return true;
    platform_text(platform, CL_PLATFORM_NAME, text, sizeof text);
    if (contains_ignoring_case(text, part))
        return true;
    platform_text(platform, CL_PLATFORM_VENDOR, text, sizeof text);
    return contains_ignoring_case(text, part);
}

/* All platforms, in the loader's order; free() the result. */
static cl_platform_id *all_platforms(cl_uint *count)
{
    *count = 0;
    const cl_int status = clGetPlatformIDs(0, NULL, count);
    if (status == PLATFORM_NOT_FOUND_KHR || (status == CL_SUCCESS && *count == 0)) {
        fprintf(stderr,
                "%s: no OpenCL platform: install a driver (Debian: pocl-opencl-icd for the CPU) and check "
                "/etc/OpenCL/vendors or OCL_ICD_VENDORS\n",
                program_name);
        exit(EXIT_OPENCL_ERROR);
    }
    CL_CHECK_STATUS(status, "clGetPlatformIDs");
    cl_platform_id *platforms = host_allocate(*count * sizeof *platforms);
    CL_CHECK(clGetPlatformIDs(*count, platforms, NULL));
    return platforms;
}

/* All devices of a platform; free() the result. None is not an error. */
static cl_device_id *all_devices(cl_platform_id platform, cl_uint *count)
{
    *count = 0;
    const cl_int status = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, count);
    if (status == CL_DEVICE_NOT_FOUND)
        *count = 0;
    else
        CL_CHECK_STATUS(status, "clGetDeviceIDs");
    cl_device_id *ids = host_allocate(*count * sizeof *ids);
    if (*count > 0)
        CL_CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, *count, ids, NULL));
    return ids;
}

static void list(void)
{
    cl_uint platform_count;
    cl_platform_id *platforms = all_platforms(&platform_count);
    for (cl_uint p = 0; p < platform_count; p++) {
        char text[256];
        platform_text(platforms[p], CL_PLATFORM_NAME, text, sizeof text);
        printf("%s\n", text);
        cl_uint device_count;
        cl_device_id *ids = all_devices(platforms[p], &device_count);
        for (cl_uint d = 0; d < device_count; d++) {
            device_name(ids[d], text, sizeof text);
            printf("  %u: %s\n", d, text);
        }
        free(ids);
    }
    free(platforms);
}

/* The first platform that matches and has devices. */
static cl_device_id *choose_platform(const struct options *options, cl_platform_id *chosen, cl_uint *count)
{
    cl_uint platform_count;
    cl_platform_id *platforms = all_platforms(&platform_count);
    for (cl_uint p = 0; p < platform_count; p++) {
        if (!platform_matches(platforms[p], options->platform))
            continue;
        cl_device_id *ids = all_devices(platforms[p], count);
        if (*count > 0) {
            *chosen = platforms[p];
            free(platforms);
            return ids;
        }
        free(ids);
    }
    if (options->platform != NULL)
        fprintf(stderr, "%s: no platform with a device matches '%s'; --list shows what there is\n",
                program_name, options->platform);
    else
        fprintf(stderr, "%s: no platform has a device; --list shows what there is\n", program_name);
    exit(EXIT_OPENCL_ERROR);
}

void devices_open(struct devices *devices, const struct options *options)
{
    program_name = options->workload;
    if (options->list) {
        list();
        exit(EXIT_PASSED);
    }
    cl_platform_id platform = NULL;
    cl_uint available;
    cl_device_id *ids = choose_platform(options, &platform, &available);
    cl_uint first = 0, count = available;
    if (options->device != ANY_DEVICE) {
        if (options->device >= available)
            usage_error(options, "--device %zu: the platform has %u device%s, counted from 0",
                        options->device, available, available == 1 ? "" : "s");
        first = (cl_uint)options->device;
        count = 1;
    } else if (options->devices != ALL_DEVICES) {
        if (options->devices > available)
            usage_error(options, "--devices %zu: the platform has only %u", options->devices, available);
        count = (cl_uint)options->devices;
    }
    memmove(ids, ids + first, count * sizeof *ids);

    *devices = (struct devices){.options = options, .count = count, .ids = ids};
    platform_text(platform, CL_PLATFORM_NAME, devices->platform_name, sizeof devices->platform_name);
    device_name(ids[0], devices->name, sizeof devices->name);
    for (cl_uint d = 1; d < count; d++) {
        char other[sizeof devices->name];
        device_name(ids[d], other, sizeof other);
        if (strcmp(other, devices->name) != 0) {
            const char *suffix = " and others";
            const size_t room = sizeof devices->name - strlen(suffix) - 1;
            devices->name[strlen(devices->name) < room ? strlen(devices->name) : room] = '\0';
            strcat(devices->name, suffix);
            break;
        }
    }

    cl_int status;
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    devices->context = clCreateContext(properties, count, ids, NULL, NULL, &status);
    CL_CHECK_STATUS(status, "clCreateContext");
    devices->queues = host_allocate(count * sizeof *devices->queues);
    for (cl_uint d = 0; d < count; d++) {
        devices->queues[d] = clCreateCommandQueue(devices->context, ids[d], 0, &status);
        CL_CHECK_STATUS(status, "clCreateCommandQueue");
    }
}

void devices_close(struct devices *devices)
{
    for (cl_uint d = 0; d < devices->count; d++)
        CL_CHECK(clReleaseCommandQueue(devices->queues[d]));
    CL_CHECK(clReleaseContext(devices->context));
    free(devices->queues);
    free(devices->ids);
}

/* The skip shows in the JSON as well, so that a table of results has no silent holes. */
static _Noreturn void skip(const struct devices *devices, const char *reason)
{
    const struct options *options = devices->options;
    fprintf(stderr, "%s: skipped: %s\n", options->workload, reason);
    printf("{\"workload\":\"%s\",\"size\":%zu,\"check\":\"skipped\",\"reason\":\"%s\"}\n",
           options->workload, options->size, reason);
    exit(EXIT_SKIPPED);
}

void devices_require_precision(const struct devices *devices)
{
    if (devices->options->precision == PRECISION_SINGLE)
        return;
    for (cl_uint d = 0; d < devices->count; d++) {
        cl_device_fp_config config = 0;
        const cl_int status =
            clGetDeviceInfo(devices->ids[d], CL_DEVICE_DOUBLE_FP_CONFIG, sizeof config, &config, NULL);
        /* An OpenCL 1.1 device without cl_khr_fp64 does not know the question. */
        if (status != CL_INVALID_VALUE)
            CL_CHECK_STATUS(status, "clGetDeviceInfo(CL_DEVICE_DOUBLE_FP_CONFIG)");
        if (status != CL_SUCCESS || config == 0)
            skip(devices, "a device has no double precision (cl_khr_fp64)");
    }
}

void devices_require_group_size(const struct devices *devices, size_t items)
{
    for (cl_uint d = 0; d < devices->count; d++) {
        size_t largest = 0;
        CL_CHECK(clGetDeviceInfo(devices->ids[d], CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof largest, &largest,
                                 NULL));
        if (largest < items)
            skip(devices, "a device cannot run work-groups of the size that the kernel needs");
    }
}

bool devices_are_gpus(const struct devices *devices)
{
    for (cl_uint d = 0; d < devices->count; d++) {
        cl_device_type type = 0;
        CL_CHECK(clGetDeviceInfo(devices->ids[d], CL_DEVICE_TYPE, sizeof type, &type, NULL));
        if ((type & CL_DEVICE_TYPE_GPU) == 0)
            return false;
    }
    return true;
}

static void print_build_log(const struct devices *devices, cl_program program)
{
    for (cl_uint d = 0; d < devices->count; d++) {
        cl_build_status build_status = CL_BUILD_NONE;
        CL_CHECK(clGetProgramBuildInfo(program, devices->ids[d], CL_PROGRAM_BUILD_STATUS,
                                       sizeof build_status, &build_status, NULL));
        if (build_status == CL_BUILD_SUCCESS)
            continue;
        size_t length = 0;
        CL_CHECK(clGetProgramBuildInfo(program, devices->ids[d], CL_PROGRAM_BUILD_LOG, 0, NULL, &length));
        char *log = host_allocate(length + 1);
        CL_CHECK(clGetProgramBuildInfo(program, devices->ids[d], CL_PROGRAM_BUILD_LOG, length, log, NULL));
        log[length] = '\0';
        fprintf(stderr, "%s: build log of device %u:\n%s\n", program_name, d, log);
        free(log);
    }
}

cl_program program_build(const struct devices *devices, const char *source, const char *build_options)
{
    cl_int status;
    cl_program program = clCreateProgramWithSource(devices->context, 1, &source, NULL, &status);
    CL_CHECK_STATUS(status, "clCreateProgramWithSource");
    status = clBuildProgram(program, devices->count, devices->ids, build_options, NULL, NULL);
    if (status == CL_BUILD_PROGRAM_FAILURE)
        print_build_log(devices, program);
    CL_CHECK_STATUS(status, "clBuildProgram");
    return program;
}

cl_kernel kernel_create(cl_program program, const char *name)
{
    cl_int status;
    cl_kernel kernel = clCreateKernel(program, name, &status);
    CL_CHECK_STATUS(status, "clCreateKernel");
    return kernel;
}

cl_mem buffer_create(const struct devices *devices, cl_mem_flags flags, size_t bytes)
{
    cl_int status;
    cl_mem buffer = clCreateBuffer(devices->context, flags, bytes, NULL, &status);
    if (status != CL_SUCCESS)
        fprintf(stderr, "%s: cannot create a buffer of %zu bytes; a smaller --size may fit\n", program_name,
                bytes);
    CL_CHECK_STATUS(status, "clCreateBuffer");
    return buffer;
}
