/* Makes buffers and writes to them until the platform refuses, and says what it answers then. */
#include "program.h"

enum { BYTES = 16 << 20, MOST = 1024 };

int main(void)
{
    static char bytes[BYTES];
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    for (int count = 0; count < MOST; count++) {
        cl_int status;
        const cl_mem buffer = clCreateBuffer(towline.context, CL_MEM_READ_WRITE, BYTES, NULL, &status);
        if (status == CL_SUCCESS)
            status = clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, BYTES, bytes, 0, NULL, NULL);
        if (status != CL_SUCCESS) {
            printf("refused with %d\n", status);
            return 0;
        }
    }
    printf("never refused\n");
    return 0;
}
