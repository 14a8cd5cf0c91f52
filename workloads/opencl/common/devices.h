/*
 * Platform, devices, context and queues of a workload, and the error handling of OpenCL calls.
 *
 * Every error ends the program with a message that names the call and the error: a workload has nothing to
 * recover.
 */
#ifndef WORKLOADS_DEVICES_H
#define WORKLOADS_DEVICES_H

#include "options.h"

#include <CL/cl.h>

/* One context over all chosen devices, one in-order queue for each. */
struct devices {
    const struct options *options;
    char platform_name[256];
    char name[256]; /* of the first device; says so when others differ */
    cl_context context;
    cl_uint count;
    cl_device_id *ids;
    cl_command_queue *queues;
};

/* Opens the devices that the options name. With --list prints what there is and exits. */
void devices_open(struct devices *devices, const struct options *options);
void devices_close(struct devices *devices);

/* Exits with EXIT_SKIPPED when the options ask for double precision and a device has none. */
void devices_require_precision(const struct devices *devices);

/* Exits with EXIT_SKIPPED when a device cannot run work-groups of `items` work-items. */
void devices_require_group_size(const struct devices *devices, size_t items);

/* True when every chosen device is a GPU. */
bool devices_are_gpus(const struct devices *devices);

/* Compiles `source` for all devices; on failure prints the build log. */
cl_program program_build(const struct devices *devices, const char *source, const char *build_options);
cl_kernel kernel_create(cl_program program, const char *name);
cl_mem buffer_create(const struct devices *devices, cl_mem_flags flags, size_t bytes);

/* Sets argument `index` of a kernel from a variable. */
#define SET_ARGUMENT(kernel, index, variable) \
    CL_CHECK(clSetKernelArg((kernel), (index), sizeof(variable), &(variable)))

/* For calls that return their status. */
#define CL_CHECK(call) cl_check_status((call), #call, __FILE__, __LINE__)
/* For calls that write their status through a pointer: CL_CHECK_STATUS(status, "clCreateBuffer"). */
#define CL_CHECK_STATUS(status, call) cl_check_status((status), (call), __FILE__, __LINE__)

void cl_check_status(cl_int status, const char *call, const char *file, int line);
const char *cl_error_name(cl_int status);

/* Page-aligned host memory, the kindest to any driver's transfers. Never NULL; free() it. */
void *host_allocate(size_t bytes);

#endif
