/*
 * One process that builds an OpenCL program and runs a kernel of it, and says how long that took:
 *
 *   builds PLATFORM FUNCTIONS SALT [BINARY]      prints "setup SETUP build BUILD launch LAUNCH right|wrong", in milliseconds
 *
 * With BINARY, a file, the program is made from that, and where there is none it is written in the end. The source has a kernel of 20 lines for each of FUNCTIONS, and with another SALT another source. BUILD is from
 * the program's creation until clBuildProgram has returned, LAUNCH from clCreateKernel until the result of the first launch has been read,
 * and SETUP what comes before.
 */
#include <CL/cl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINES 18
#define ITEMS 64

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void check(cl_int status, const char *call)
{
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s: status %d\n", call, status);
        exit(3);
    }
}

static char *source_of(int functions, int salt)
{
    char *source = malloc((size_t)functions * (LINES + 2) * 64 + 1), *end = source;
    if (source == NULL)
        exit(4);
    for (int f = 0; f < functions; f++) {
        end += sprintf(end, "kernel void f%d(global int *a) { int x = a[get_global_id(0)] + %d;\n", f, salt);
        for (int line = 0; line < LINES; line++)
            end += sprintf(end, "    x = x * %d + (x >> %d) + %d;\n", 2 * line + 3, line % 7 + 1, f + line);
        end += sprintf(end, "    a[get_global_id(0)] = x; }\n");
    }
    return source;
}

/* What the first kernel makes of a number. */
static int expected(int x, int salt)
{
    x += salt;
    for (int line = 0; line < LINES; line++)
        x = (int)((unsigned)x * (unsigned)(2 * line + 3) + (unsigned)(x >> (line % 7 + 1)) + (unsigned)line);
    return x;
}

/* The program from a file, or NULL if there is none. */
static cl_program read_binary(cl_context context, cl_device_id device, const char *path)
{
    FILE *file = path == NULL ? NULL : fopen(path, "rb");
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    const size_t size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(size);
    if (bytes == NULL || fread(bytes, 1, size, file) != size)
        exit(4);
    fclose(file);
    const unsigned char *binary = bytes;
    cl_int status;
    const cl_program program = clCreateProgramWithBinary(context, 1, &device, &size, &binary, NULL, &status);
    check(status, "clCreateProgramWithBinary");
    free(bytes);
    return program;
}

static void write_binary(cl_program program, const char *path)
{
    size_t size = 0;
    check(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL), "clGetProgramInfo");
    unsigned char *bytes = malloc(size);
    check(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL), "clGetProgramInfo");
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        exit(4);
    free(bytes);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    const char *path = argc > 4 ? argv[4] : NULL;
    const int functions = atoi(argv[2]), salt = atoi(argv[3]);
    char *text = source_of(functions, salt);
    const char *source = text;
    const double start = now();
    cl_platform_id platforms[8];
    cl_uint count = 0;
    check(clGetPlatformIDs(8, platforms, &count), "clGetPlatformIDs");
    cl_device_id device = NULL;
    for (cl_uint i = 0; i < count && i < 8; i++) {
        char name[256] = "";
        check(clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL), "clGetPlatformInfo");
        if (strcmp(name, argv[1]) == 0)
            check(clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    }
    cl_int status;
    const cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    const cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    check(status, "clCreateCommandQueue");

    const double before = now();
    cl_program program = read_binary(context, device, path);
    const int from_source = program == NULL;
    if (from_source) {
        program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
        check(status, "clCreateProgramWithSource");
    }
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");

    const double built = now();
    const cl_kernel kernel = clCreateKernel(program, "f0", &status);
    check(status, "clCreateKernel");
    cl_int values[ITEMS];
    for (int i = 0; i < ITEMS; i++)
        values[i] = i;
    const cl_mem memory =
        clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof values, values, &status);
    check(status, "clCreateBuffer");
    check(clSetKernelArg(kernel, 0, sizeof memory, &memory), "clSetKernelArg");
    const size_t items = ITEMS;
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
    check(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL), "clEnqueueReadBuffer");
    const double ran = now();

    int right = 1;
    for (int i = 0; i < ITEMS; i++)
        right &= values[i] == expected(i, salt);
    printf("setup %.3f build %.3f launch %.3f %s\n", before - start, built - before, ran - built, right ? "right" : "wrong");
    if (from_source && path != NULL)
        write_binary(program, path);
    free(text);
    return right ? 0 : 1;
}
