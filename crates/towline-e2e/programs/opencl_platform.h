/* The platform that programs which ask for answers use: Towline's where it is, else the first. */
#ifndef OPENCL_PLATFORM_H
#define OPENCL_PLATFORM_H

#include <CL/cl.h>
#include <CL/cl_icd.h>

#include <string.h>

/* NULL where there is none. */
static cl_platform_id chosen_platform(void)
{
    cl_platform_id platforms[8];
    cl_uint found = 0;
    if (clGetPlatformIDs(8, platforms, &found) != CL_SUCCESS || found == 0)
        return NULL;
    for (cl_uint at = 0; at < found && at < 8; at++) {
        char name[64] = "";
        clGetPlatformInfo(platforms[at], CL_PLATFORM_NAME, sizeof name, name, NULL);
        if (strcmp(name, "Towline") == 0)
            return platforms[at];
    }
    return platforms[0];
}

/* Its functions without the loader, which judges NULL handles itself. */
static const struct _cl_icd_dispatch *functions_of(cl_platform_id platform)
{
    return *(const struct _cl_icd_dispatch *const *)platform;
}

#endif
