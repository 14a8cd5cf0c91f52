/*
 * Shares an event with other programs: makes one and says by what it is opened, or opens the one that it is given. Then it "records" it
 * behind what never comes, or "waits": when it is told to go on it says whether the event has passed, and when it has.
 */
#include "driver.h"

typedef struct {
    unsigned char bytes[64];
} handle;

static void *made(void)
{
    void *event;
    handle named;
    CALL(cuEventCreate, (void **, unsigned), &event, 6);
    CALL(cuIpcGetEventHandle, (handle *, void *), &named, event);
    printf("handle ");
    for (size_t i = 0; i < sizeof named.bytes; i++)
        printf("%02x", named.bytes[i]);
    printf("\n");
    return event;
}

static void *opened(const char *text)
{
    void *event;
    handle named;
    for (size_t i = 0; i < sizeof named.bytes; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            exit(4);
        named.bytes[i] = (unsigned char)byte;
    }
    CALL(cuIpcOpenEventHandle, (void **, handle), &event, named);
    printf("opened\n");
    return event;
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_device();
    void *stream = make_cuda_stream();
    if (count < 2)
        return 4;
    void *event = count > 2 ? opened(arguments[2]) : made();
    if (strcmp(arguments[1], "records") == 0) {
        const uint64_t flag = device_memory(4);
        CALL(cuMemsetD32_v2, (uint64_t, unsigned, size_t), flag, 0, 1);
        CALL(cuStreamWaitValue32_v2, (void *, uint64_t, uint32_t, unsigned), stream, flag, 1, 1);
        CALL(cuEventRecord, (void *, void *), event, stream);
        printf("recorded\n");
        return getchar() == EOF;
    }
    if (getchar() == EOF)
        return 4;
    printf("state %d\n", STATUS(cuEventQuery, (void *), event));
    CALL(cuStreamWaitEvent, (void *, void *, unsigned), stream, event, 0);
    printf("waits\n");
    CALL(cuStreamSynchronize, (void *), stream);
    CALL(cuEventSynchronize, (void *), event);
    printf("passed\n");
    return 0;
}
