/* A kernel includes files of a folder that only this process knows: given as the argument, and by the working folder. */
#include "program.h"

static const char SOURCE[] =
    "#include \"value.h\"\n"
    "#include <deeper/other.h>\n"
    "__kernel void tell(__global int *out) { out[0] = VALUE; out[1] = OTHER; }";

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    cl_int status;
    const char *source = SOURCE;
    const cl_program program = clCreateProgramWithSource(towline.context, 1, &source, NULL, &status);
    CHECK(status);
    char options[4096];
    snprintf(options, sizeof options, "-DUNUSED=1 -I %s", argv[1]);
    status = clBuildProgram(program, 0, NULL, options, NULL, NULL);
    if (status != CL_SUCCESS) {
        char log[8192] = "";
        clGetProgramBuildInfo(program, towline.devices[0], CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        fprintf(stderr, "%s\n", log);
    }
    CHECK(status);
    char told[4096] = "";
    CHECK(clGetProgramBuildInfo(program, towline.devices[0], CL_PROGRAM_BUILD_OPTIONS, sizeof told, told, NULL));
    printf("options are %s\n", strcmp(told, options) == 0 ? "the program's own" : told);
    const cl_kernel kernel = clCreateKernel(program, "tell", &status);
    CHECK(status);
    const cl_mem out = clCreateBuffer(towline.context, CL_MEM_WRITE_ONLY, 8, NULL, &status);
    CHECK(status);
    CHECK(clSetKernelArg(kernel, 0, sizeof out, &out));
    launch(queue, kernel, 1);
    int values[2];
    CHECK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
    printf("%d %d\n", values[0], values[1]);
    return 0;
}
