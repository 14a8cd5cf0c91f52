/* Loads device code of 400 KB, the same each time, and has its kernel add 1. */
#include "driver.h"

enum { SIZE = 400000 };

int main(void)
{
    static const char head[] = "towline null image\nkernel add_one\n", filler[] = "nothing but words\n";
    char *image = malloc(SIZE + sizeof filler);
    if (image == NULL)
        return 4;
    size_t at = sizeof head - 1;
    memcpy(image, head, at);
    for (; at < SIZE; at += sizeof filler - 1)
        memcpy(image + at, filler, sizeof filler);
    open_device();
    void *module, *function, *stream = make_cuda_stream();
    CALL(cuModuleLoadData, (void **, const void *), &module, image);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "add_one");
    uint32_t number = 41;
    const uint64_t memory = device_memory(sizeof number);
    CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), memory, &number, sizeof number);
    CALL(cuCtxSynchronize, (void), );
    if (launch_add_one(function, stream, memory, 1) != 0)
        return 5;
    CALL(cuStreamSynchronize, (void *), stream);
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), &number, memory, sizeof number);
    printf("%u\n", number);
    return 0;
}
