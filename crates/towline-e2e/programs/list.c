/* Says whether there is a platform Towline and how many devices it has. */
#include "program.h"

int main(void)
{
    const cl_platform_id platform = find_towline();
    if (platform == NULL) {
        say("no platform");
        return 0;
    }
    cl_uint count = 0;
    const cl_int status = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &count);
    printf("status %d, %u devices\n", status, count);
    return 0;
}
