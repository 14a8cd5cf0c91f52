/* Loads as many different images as it is told to, too large to be sent with the request, and says what a kernel of each has computed. */
#include "driver.h"

#include <unistd.h>

#define BYTES (96 << 10)

int main(int count, char **arguments)
{
    static char image[BYTES + 256];
    const int most = count > 1 ? atoi(arguments[1]) : 0;
    open_device();
    void *stream = make_cuda_stream(), *module = NULL, *function;
    const uint64_t memory = device_memory(4096);
    CALL(cuMemsetD32_v2, (uint64_t, unsigned, size_t), memory, 0, 1);
    CALL(cuCtxSynchronize, (void), );
    for (int i = 0; i < most; i++) {
        if (module != NULL)
            CALL(cuModuleUnload, (void *), module);
        int at = sprintf(image, "towline null image\nkernel add_one\n");
        while (at < BYTES)
            at += sprintf(image + at, "global of_%d_%d_%0200d 4\n", (int)getpid(), i, at);
        CALL(cuModuleLoadData, (void **, const void *), &module, image);
        CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "add_one");
        if (launch_add_one(function, stream, memory, 1) != 0)
            return 4;
    }
    uint32_t value = 0;
    CALL(cuStreamSynchronize, (void *), stream);
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), &value, memory, sizeof value);
    printf("computed %u\n", value);
    return 0;
}
