/* Offers events to other processes until that is refused a hundred times, and says with what. */
#include "driver.h"

#define MOST 65536
#define REFUSALS 100

typedef struct {
    unsigned char bytes[64];
} handle;

int main(void)
{
    open_device();
    int offered = 0, refused = 0, status = 0;
    for (int i = 0; i < MOST && refused < REFUSALS; i++) {
        void *event;
        handle named;
        CALL(cuEventCreate, (void **, unsigned), &event, 6);
        const int answer = STATUS(cuIpcGetEventHandle, (handle *, void *), &named, event);
        if (answer == 0) {
            offered++;
            continue;
        }
        status = answer;
        refused++;
        /* Its page would be an open file. */
        CALL(cuEventDestroy_v2, (void *), event);
    }
    printf("offered %d, refused %d times with %d\n", offered, refused, status);
    return 0;
}
