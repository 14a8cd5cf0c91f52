/* Writes 64 MiB again and again, until it is killed. */
#include "program.h"

#define BYTES ((size_t)64 << 20)

int main(void)
{
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_mem buffer = make_buffer(&towline, BYTES);
    char *source = malloc(BYTES);
    if (source == NULL)
        return 4;
    memset(source, 7, BYTES);
    say("writing");
    for (;;)
        CHECK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, BYTES, source, 0, NULL, NULL));
}
