/*
 * Compiles a kernel of native code, which makes system calls as a hostile one would: in the folder where a worker keeps compiled kernels,
 * where PoCL of that worker looks for those of later sessions.
 *
 *   keeps plant    leaves a file there, and says "planted"
 *   keeps look     says "found" or "none"
 *   keeps fill     writes there until that fails, says "full" and how many MiB it wrote
 */
#include "program.h"

#define MIB (1 << 20)

static const char *const source =
    "long call(long number, long a, long b, long c) {\n"
    "    long answer;\n"
    "    __asm__ volatile(\"syscall\" : \"=a\"(answer) : \"a\"(number), \"D\"(a), \"S\"(b), \"d\"(c) : \"rcx\", \"r11\", \"memory\");\n"
    "    return answer;\n"
    "}\n"
    "kernel void keeps(global char *path, global char *bytes, long flags, long most, global long *answer) {\n"
    "    const long file = call(2, (long)path, flags, 0600);\n"
    "    answer[0] = file;\n"
    "    answer[1] = 0;\n"
    "    while (file >= 0 && answer[1] < most && call(1, file, (long)bytes, 1 << 20) > 0)\n"
    "        answer[1]++;\n"
    "}\n";

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "look";
    const int plants = strcmp(what, "plant") == 0, fills = strcmp(what, "fill") == 0;
    /* O_WRONLY | O_CREAT, or O_RDONLY. */
    const cl_long flags = plants || fills ? 0101 : 0;
    const cl_long most = plants ? 1 : fills ? 1 << 20 : 0;
    char path[64] = "/tmp/home/kernels/planted.so";
    cl_long answer[2] = {0};

    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_kernel kernel = make_kernel(&towline, source, "keeps");
    const cl_mem name = make_buffer(&towline, sizeof path), bytes = make_buffer(&towline, MIB);
    const cl_mem told = make_buffer(&towline, sizeof answer);
    CHECK(clEnqueueWriteBuffer(queue, name, CL_TRUE, 0, sizeof path, path, 0, NULL, NULL));
    CHECK(clSetKernelArg(kernel, 0, sizeof name, &name));
    CHECK(clSetKernelArg(kernel, 1, sizeof bytes, &bytes));
    CHECK(clSetKernelArg(kernel, 2, sizeof flags, &flags));
    CHECK(clSetKernelArg(kernel, 3, sizeof most, &most));
    CHECK(clSetKernelArg(kernel, 4, sizeof told, &told));
    const size_t one = 1;
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    CHECK(clEnqueueReadBuffer(queue, told, CL_TRUE, 0, sizeof answer, answer, 0, NULL, NULL));
    if (fills)
        printf("full %lld\n", (long long)answer[1]);
    else if (plants)
        puts(answer[1] == 1 ? "planted" : "refused");
    else
        puts(answer[0] >= 0 ? "found" : "none");
    fflush(stdout);
    if (argc > 2)
        wait_for_word();
    return 0;
}
