/*
 * A context over a device that gets lost (the first) and one that stays. Says what each answers after the test has
 * taken the first one's server away.
 */
#include "program.h"

int main(void)
{
    const struct towline towline = open_towline();
    const cl_command_queue lost = make_queue(&towline, 0), kept = make_queue(&towline, 1);
    const cl_mem first = make_buffer(&towline, sizeof(int)), second = make_buffer(&towline, sizeof(int));
    int value = 7;
    CHECK(clEnqueueWriteBuffer(lost, first, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    CHECK(clEnqueueWriteBuffer(kept, second, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    say("ready");
    wait_for_word();
    value = 0;
    printf("lost %d\n", clEnqueueReadBuffer(lost, first, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    const cl_int status = clEnqueueReadBuffer(kept, second, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
    printf("kept %d %d\n", status, value);
    return 0;
}
