/*
 * Has a kernel exhaust something of the server's host, as native code can, and OpenCL on a processor is that: "processes", "threads",
 * "files", "memory", "processors", "descriptors", or the "log". Says how that was refused, or with what the session ended, and waits
 * until the test says something.
 */
#include "program.h"

/* Things that are refused so often are exhausted. */
#define REFUSALS 100
/* Where nothing is refused: 2 GiB at most. */
#define MOST 2048
#define LINES 20000

static const char SOURCE[] =
    "long call(long number, long a, long b, long c, long d, long e, long f) {\n"
    "    long answer;\n"
    "    __asm__ volatile(\"mov %5, %%r10\\n\\tmov %6, %%r8\\n\\tmov %7, %%r9\\n\\tsyscall\"\n"
    "                     : \"=a\"(answer) : \"a\"(number), \"D\"(a), \"S\"(b), \"d\"(c), \"r\"(d), \"r\"(e), \"r\"(f)\n"
    "                     : \"rcx\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\");\n"
    "    return answer;\n"
    "}\n"
    /* The thread has no stack: it sleeps, or counts. */
    "long thread(long counts) {\n"
    "    long answer;\n"
    "    __asm__ volatile(\"xor %%edx, %%edx\\n\\txor %%r10d, %%r10d\\n\\txor %%r8d, %%r8d\\n\\tsyscall\\n\\ttest %%rax, %%rax\\n\\tjnz 3f\\n\"\n"
    "                     \"1:\\ttest %4, %4\\n\\tjnz 1b\\n2:\\tmov $34, %%eax\\n\\tsyscall\\n\\tjmp 2b\\n3:\"\n"
    "                     : \"=a\"(answer) : \"a\"(56L), \"D\"(0x50f00L), \"S\"(0L), \"r\"(counts)\n"
    "                     : \"rcx\", \"rdx\", \"r8\", \"r10\", \"r11\", \"memory\");\n"
    "    return answer;\n"
    "}\n"
    "long process(void) {\n"
    "    long child = call(57, 0, 0, 0, 0, 0, 0);\n"
    "    while (child == 0)\n"
    "        if (call(57, 0, 0, 0, 0, 0, 0) < 0)\n"
    "            call(34, 0, 0, 0, 0, 0, 0);\n"
    "    return child;\n"
    "}\n"
    "long memory(void) {\n"
    "    long bytes = 1 << 20, at = call(9, 0, bytes, 3, 0x22, -1, 0);\n"
    "    for (long page = 0; at > 0 && page < bytes; page += 4096)\n"
    "        *(volatile char *)(at + page) = 1;\n"
    "    return at;\n"
    "}\n"
    "__kernel void exhaust(int what, __global char *text, __global long *answers) {\n"
    "    long file = what == 2 ? call(2, (long)text, 0x41, 0600, 0, 0, 0) : 2, answer = file;\n"
    "    while (answers[1] < REFUSALS && answers[2] < (what == 5 ? LINES : MOST)) {\n"
    "        answer = what == 0   ? process()\n"
    "                 : what == 1 ? thread(0)\n"
    "                 : what == 2 ? call(1, file, (long)text, 1 << 20, 0, 0, 0)\n"
    "                 : what == 3 ? memory()\n"
    "                 : what == 4 ? thread(1)\n"
    "                 : what == 6 ? call(32, file, 0, 0, 0, 0, 0)\n"
    "                             : call(1, file, (long)text, 11, 0, 0, 0);\n"
    "        answers[answer < 0 ? 1 : 2]++;\n"
    "        if (answer < 0)\n"
    "            answers[0] = answer;\n"
    "    }\n"
    "    while (what == 4)\n"
    "        ((__global volatile long *)answers)[3]++;\n"
    "}\n";

int main(int count, char **arguments)
{
    static const char *const names[] = {"processes", "threads", "files", "memory", "processors", "log", "descriptors"};
    static char text[1 << 20] = "/tmp/full\n\n";
    cl_int what = 0;
    while (count == 2 && what < 7 && strcmp(arguments[1], names[what]) != 0)
        what++;
    if (count != 2 || what == 7)
        return 2;
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_mem words = make_buffer(&towline, sizeof text), buffer = make_buffer(&towline, 4 * sizeof(cl_long));
    cl_long answers[4] = {0};
    /* A name, or a line of a log. */
    text[9] = what == 5 ? '\n' : '\0';
    CHECK(clEnqueueWriteBuffer(queue, words, CL_TRUE, 0, sizeof text, text, 0, NULL, NULL));
    CHECK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof answers, answers, 0, NULL, NULL));
    char source[sizeof SOURCE + 128];
    snprintf(source, sizeof source, "#define REFUSALS %d\n#define MOST %d\n#define LINES %d\n%s", REFUSALS, MOST, LINES, SOURCE);
    const cl_kernel kernel = make_kernel(&towline, source, "exhaust");
    CHECK(clSetKernelArg(kernel, 0, sizeof what, &what));
    CHECK(clSetKernelArg(kernel, 1, sizeof words, &words));
    CHECK(clSetKernelArg(kernel, 2, sizeof buffer, &buffer));
    launch(queue, kernel, 1);
    CHECK(clFlush(queue));
    say("launched");
    const cl_int status = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof answers, answers, 0, NULL, NULL);
    if (status == CL_SUCCESS)
        printf("exhausted with %d, refused %d times\n", (int)answers[0], (int)answers[1]);
    else
        printf("exhausted with status %d\n", status);
    fflush(stdout);
    wait_for_word();
    return 0;
}
