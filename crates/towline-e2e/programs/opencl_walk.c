/*
 * Plays sequences of OpenCL calls, and says of each call what it answered. A sequence is lines on standard input: "seq NAME", then an
 * operation and its words a line. Words choose among the arguments of an operation: 0 is the plainest choice, so that a shorter or
 * smaller sequence means something too. Two runs over libraries that behave alike write the same lines.
 *
 * What the specification leaves open, and what PoCL answers against it (NULL handles in some calls, empty regions, contradicting flags),
 * is not asked for. Commands are ordered by events or by waiting, kernels stay within their buffers,
 * dead handles and handles of other kinds are not used, and host memory that the device owns is not looked at.
 *
 *   opencl_walk DEVICE KIND    DEVICE: first, last, or all (a context over every device, queues on each in turn);
 *                              KIND: svm, or plain, without what only one device has: shared memory, binaries, sub-devices
 *   opencl_walk --operations     names, each with its weight
 */
#include "opencl_walk.h"
#include "opencl_walk_questions.h"

/* ---- Contexts, queues, devices */
static void CALLBACK_context(cl_context context, void *data) { (void)context; (void)data; called++; }
static void call_program(cl_program program, void *data) { (void)program; (void)data; called++; }
static void call_event(cl_event event, cl_int code, void *data) { (void)event; (void)data; (void)code; called_for_event++; }
static void call_mem(cl_mem mem, void *data) { (void)mem; (void)data; called_for_mem++; }

static void create_context(void)
{
    const int at = word() % 8 == 7;
    const unsigned how = word();
    cl_context_properties given[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    if (how % 16 == 15)
        given[0] = 0x7777;
    cl_int code = 77;
    if (s.contexts[at] != NULL)
        return;
    const cl_context made = cl->clCreateContext(how % 2 ? given : NULL, how % 16 == 13 ? 0 : spans ? device_count : 1,
                                                how % 16 == 11 ? NULL : devices, NULL, how % 16 == 9 ? &code : NULL, &code);
    created(made, code);
    s.contexts[at] = made;
}

static void create_queue(void)
{
    const int at = queue_slot(word());
    const unsigned which = word(), how = word(), old = word();
    cl_queue_properties given[] = {CL_QUEUE_PROPERTIES, PICK(how, 0, 1, 2, 3, 0, 2, 1 << 20), 0};
    if (how / 8 % 16 == 15)
        given[0] = 0x1234;
    cl_int code = 77;
    if (at == 1)
        given[1] |= CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    const cl_context context = context_by(which);
    const cl_device_id device = device_by(with_svm ? old : (unsigned)at);
    const cl_command_queue made = old % 4 == 1 ? cl->clCreateCommandQueue(context, device, given[1], &code)
                                               : cl->clCreateCommandQueueWithProperties(context, device, how / 8 % 4 == 3 ? NULL : given, &code);
    say(" %s %s", name_of(context), name_of(device));
    created(made, code);
    if (made == NULL)
        return;
    finish_all();
    for (; s.queues[at].handle != NULL && s.queues[at].references > 0; s.queues[at].references--)
        cl->clReleaseCommandQueue(s.queues[at].handle);
    if (s.last_queue == at)
        s.last_queue = -1;
    s.queues[at].handle = made;
    s.queues[at].references = 1;
    s.queues[at].context = which % 8 == 7;
    s.queues[at].out_of_order = given[1] & 1 && !(how / 8 % 4 == 3 && old % 4 != 1);
}

static void set_default_queue(void)
{
    const unsigned which = word(), device = word(), queue = word();
    status(cl->clSetDefaultDeviceCommandQueue(context_by(which), device_by(device), queue % 4 == 3 ? NULL : s.queues[queue % QUEUES].handle));
}

static void create_sub_devices(void)
{
    const unsigned how = word(), room = word();
    cl_device_partition_property given[][5] = {
        {CL_DEVICE_PARTITION_EQUALLY, 1, 0},
        {CL_DEVICE_PARTITION_BY_COUNTS, 1, CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0},
        {CL_DEVICE_PARTITION_EQUALLY, 4096, 0},
        {CL_DEVICE_PARTITION_BY_COUNTS, 4096, CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0},
        {CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN, CL_DEVICE_AFFINITY_DOMAIN_NUMA, 0},
        {0x9999, 1, 0},
        {CL_DEVICE_PARTITION_EQUALLY, 0, 0},
        {0},
    };
    if (!with_svm)
        return;
    cl_device_id made[64];
    for (size_t at = 0; at < COUNT(made); at++)
        made[at] = UNWRITTEN;
    cl_uint count = 0x5e;
    const cl_uint entries = room / 4 % 8 == 5 ? 0 : (cl_uint)PICK(room, 64, 0, 1, 64);
    const cl_int code = cl->clCreateSubDevices(room / 4 % 16 == 15 ? NULL : devices[0], room / 4 % 16 == 14 ? NULL : given[how % COUNT(given)],
                                               entries, room / 4 % 8 == 5 ? NULL : made, room / 4 % 8 == 3 ? NULL : &count);
    status(code);
    say(" count %u first %s", count, made[0] == UNWRITTEN ? "unwritten" : "written");
    for (size_t at = 0; code == CL_SUCCESS && at < COUNT(made) && made[at] != UNWRITTEN; at++) {
        if (at < SUBS && s.subs[at] == NULL)
            s.subs[at] = made[at];
        else
            cl->clReleaseDevice(made[at]);
    }
}

static void retain_device(void)
{
    const unsigned which = word();
    const cl_device_id device = which % 16 == 14 ? s.subs[0] : device_by(which);
    status(cl->clRetainDevice(device));
    status(cl->clReleaseDevice(device));
}

/* ---- Memory objects */
static int new_mem(unsigned w)
{
    const int at = mem_slot(w);
    for (int map = 0; map < MAPS; map++)
        if (s.maps[map].memory != NULL && s.maps[map].mem == at)
            return -1;
    for (int child = 0; child < MEMS; child++)
        if (s.mems[child].handle != NULL && s.mems[child].parent == at)
            return -1;
    return at;
}

static struct mem *keep_mem(int at, cl_mem made)
{
    struct mem *mem = &s.mems[at];
    if (made == NULL)
        return NULL;
    finish_all();
    release_slot_mem(at);
    *mem = (struct mem){.handle = made, .birth = ++s.births, .references = 1, .parent = -1, .shared = -1};
    return mem;
}

/* Memory that a device may own until the sequence ends. */
static unsigned char *host_block(unsigned seed)
{
    unsigned char *block = aligned_alloc(4096, HOST_BYTES);
    if (s.kept_count == COUNT(s.kept))
        exit(3);
    s.kept[s.kept_count++] = block;
    for (size_t at = 0; at < HOST_BYTES; at++)
        block[at] = (unsigned char)(at * 7 + seed);
    return block;
}

static cl_mem_flags flags_by(unsigned w)
{
    return PICK(w, CL_MEM_READ_WRITE, 0, CL_MEM_COPY_HOST_PTR, CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_ONLY,
                CL_MEM_WRITE_ONLY, CL_MEM_COPY_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_READ_ONLY,
                CL_MEM_HOST_WRITE_ONLY, CL_MEM_USE_HOST_PTR | CL_MEM_READ_ONLY, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY,
                CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, 1u << 30, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS,
                CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, CL_MEM_USE_HOST_PTR, CL_MEM_USE_HOST_PTR);
}

static void create_buffer(void)
{
    const int at = new_mem(word());
    const unsigned which = word(), how = word(), of = word(), host = word();
    /* PoCL reads through a NULL context here. */
    if (at < 0 || context_by(which) == NULL)
        return;
    const cl_mem_flags flags = flags_by(how);
    const size_t size = PICK(of, 4096, 256, 64, 1024, 100, 4, 1, 8192, 0, (size_t)1 << 50);
    int wants = (flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0;
    if (host % 16 == 15)
        wants = !wants;
    unsigned char *memory = wants ? host_block(of + how) : NULL;
    int shared = -1;
    if (with_svm && flags & CL_MEM_USE_HOST_PTR && wants && host % 16 < 8 && host % 2 == 1 && s.shared[host / 2 % SHARED].memory != NULL) {
        /* Over a part, the whole, or more than the allocation. */
        shared = (int)(host / 2 % SHARED);
        memory = s.shared[shared].memory;
        finish_all();
    }
    cl_int code = 77;
    const cl_mem_properties none[] = {0}, some[] = {0x4321, 1, 0};
    if (wants && size > HOST_BYTES)
        return;
    const cl_mem made = how / 32 % 4 == 3
                            ? cl->clCreateBufferWithProperties(context_by(which), PICK(host / 16, 0, 1, 2) == 0   ? NULL
                                                                                  : PICK(host / 16, 0, 1, 2) == 1 ? none
                                                                                                                  : some,
                                                               flags, size, memory, &code)
                            : cl->clCreateBuffer(context_by(which), flags, size, memory, &code);
    say(" size %zu flags %llx%s", size, (unsigned long long)flags, shared >= 0 ? " shared" : memory != NULL ? " host" : "");
    created(made, code);
    struct mem *mem = keep_mem(at, made);
    if (mem == NULL)
        return;
    mem->size = size;
    mem->flags = flags;
    if (shared >= 0 && flags & CL_MEM_USE_HOST_PTR) {
        mem->shared = shared;
        mem->shared_birth = s.shared[shared].birth;
    }
    mem->host = memory;
    /* What a buffer begins with is only known if it was given. */
    if (memory == NULL && s.queues[0].handle != NULL) {
        const unsigned char zero = 0;
        if (cl->clEnqueueFillBuffer(s.queues[0].handle, made, &zero, 1, 0, size, 0, NULL, NULL) == CL_SUCCESS)
            cl->clFinish(s.queues[0].handle);
        else
            release_slot_mem(at);
    } else if (memory == NULL)
        release_slot_mem(at);
}

static void create_sub_buffer(void)
{
    const int at = new_mem(word());
    const unsigned from = word(), how = word(), where = word(), of = word();
    const int parent = mem_slot(from);
    if (at < 0 || at == parent)
        return;
    const cl_buffer_region region = {PICK(where, 0, 128, 256, 1024, 4, 1, 4096), PICK(of, 64, 128, 256, 1024, 4, 0, 8192)};
    const cl_mem_flags flags = PICK(how, 0, CL_MEM_READ_WRITE, CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY, CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_NO_ACCESS,
                                    CL_MEM_USE_HOST_PTR, CL_MEM_COPY_HOST_PTR);
    cl_int code = 77;
    const cl_mem made = cl->clCreateSubBuffer(mem_by(from), flags, of / 8 % 8 == 7 ? 0x1111 : CL_BUFFER_CREATE_TYPE_REGION,
                                              where / 8 % 16 == 15 ? NULL : &region, &code);
    say(" of mem%d at %zu size %zu flags %llx", parent, region.origin, region.size, (unsigned long long)flags);
    created(made, code);
    const struct mem of_parent = s.mems[parent];
    struct mem *mem = keep_mem(at, made);
    if (mem == NULL)
        return;
    mem->size = region.size;
    mem->parent = parent;
    mem->flags = of_parent.flags | flags;
    mem->shared = of_parent.shared;
    mem->shared_birth = of_parent.shared_birth;
}

static void create_image(void)
{
    const int at = new_mem(word());
    const unsigned which = word(), how = word(), kind = word(), of = word(), host = word();
    const cl_mem_flags flags = flags_by(how);
    const cl_mem_flags pairs[] = {CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR,
                                  CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS};
    for (size_t pair = 0; pair < COUNT(pairs); pair++)
        if ((flags & pairs[pair]) == pairs[pair])
            return;
    if (at < 0 || flags & 1u << 30)
        return;
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    if (of % 4 == 3)
        format.image_channel_data_type = CL_UNSIGNED_INT32;
    cl_image_desc desc = {.image_type = (cl_mem_object_type)PICK(kind, CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE3D,
                                                                 CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE1D_ARRAY)};
    desc.image_width = PICK(of / 16, 8, 16, 4, 1);
    desc.image_height = desc.image_type == CL_MEM_OBJECT_IMAGE1D || desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 0 : PICK(of / 64, 8, 4);
    desc.image_depth = desc.image_type == CL_MEM_OBJECT_IMAGE3D ? 4 : 0;
    desc.image_array_size = desc.image_type == CL_MEM_OBJECT_IMAGE2D_ARRAY || desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 3 : 0;
    const int from_buffer = kind / 8 % 8 == 7;
    if (from_buffer) {
        desc.image_type = host % 2 ? CL_MEM_OBJECT_IMAGE1D_BUFFER : CL_MEM_OBJECT_IMAGE2D;
        desc.mem_object = s.mems[host / 2 % MEMS].handle;
        /* PoCL reads rows of images that have none. */
        if (desc.image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER)
            desc.image_height = 0;
        if (desc.mem_object == NULL || s.mems[host / 2 % MEMS].is_image || (int)(host / 2 % MEMS) == at)
            return;
    }
    const size_t element = format.image_channel_data_type == CL_UNSIGNED_INT32 ? 16 : 4;
    int wants = (flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0 && !from_buffer;
    if (host % 16 == 15)
        wants = !wants;
    if (wants && host % 4 == 3)
        desc.image_row_pitch = desc.image_width * element * 2;
    unsigned char *memory = wants ? host_block(of + how) : NULL;
    cl_int code = 77;
    const cl_mem made = cl->clCreateImage(context_by(which), flags, host / 32 % 8 == 7 ? NULL : &format, host / 32 % 8 == 6 ? NULL : &desc, memory, &code);
    say(" kind %x %zux%zux%zu format %x flags %llx%s%s", desc.image_type, desc.image_width, desc.image_height, desc.image_depth,
        format.image_channel_data_type, (unsigned long long)flags, memory != NULL ? " host" : "", from_buffer ? " of buffer" : "");
    created(made, code);
    struct mem *mem = keep_mem(at, made);
    if (mem == NULL)
        return;
    mem->is_image = 1;
    mem->flags = flags;
    mem->width = desc.image_width;
    mem->height = desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 3 : desc.image_height ? desc.image_height : 1;
    mem->depth = desc.image_depth ? desc.image_depth : desc.image_type == CL_MEM_OBJECT_IMAGE2D_ARRAY ? 3 : 1;
    mem->size = mem->width * mem->height * mem->depth * element;
    if (from_buffer) {
        mem->parent = (int)(host / 2 % MEMS);
        return;
    }
    const cl_uint color[4] = {0};
    const size_t origin[3] = {0}, region[3] = {mem->width, mem->height, mem->depth};
    if (memory == NULL && s.queues[0].handle != NULL &&
        cl->clEnqueueFillImage(s.queues[0].handle, made, color, origin, region, 0, NULL, NULL) == CL_SUCCESS)
        cl->clFinish(s.queues[0].handle);
    else if (memory == NULL)
        release_slot_mem(at);
}

static void create_pipe(void)
{
    const unsigned which = word(), of = word();
    cl_int code = 77;
    const cl_mem made = cl->clCreatePipe(context_by(which), 0, (cl_uint)PICK(of, 4, 0), 16, NULL, &code);
    created(made, code);
    if (made != NULL)
        cl->clReleaseMemObject(made);
}

static void create_sampler(void)
{
    const int at = (int)(word() % SAMPLERS);
    const unsigned which = word(), how = word();
    cl_int code = 77;
    const cl_sampler_properties given[] = {CL_SAMPLER_NORMALIZED_COORDS, CL_FALSE, CL_SAMPLER_ADDRESSING_MODE, CL_ADDRESS_CLAMP,
                                           how % 8 == 7 ? 0x4444 : CL_SAMPLER_FILTER_MODE, CL_FILTER_NEAREST, 0};
    const cl_sampler made = how % 2 ? cl->clCreateSamplerWithProperties(context_by(which), given, &code)
                                    : cl->clCreateSampler(context_by(which), CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &code);
    created(made, code);
    if (made == NULL)
        return;
    finish_all();
    if (s.samplers[at].handle != NULL)
        cl->clReleaseSampler(s.samplers[at].handle);
    s.samplers[at].handle = made;
    /* Kernels that have the old one for an argument must not run. */
    for (int kernel = 0; kernel < KERNELS; kernel++)
        if (s.kernels[kernel].which == 4)
            s.kernels[kernel].args[1].birth = ~0u;
}

static void mem_callback(void)
{
    const unsigned which = word(), how = word();
    status(cl->clSetMemObjectDestructorCallback(mem_by(which), how % 8 == 7 ? NULL : call_mem, NULL));
}

/* ---- Programs and kernels */
static const char *const SOURCES[] = {
    "kernel void add(global uint *a, uint n, uint v) { size_t i = get_global_id(0); if (i < n && !get_global_id(1) && !get_global_id(2)) a[i] += v; }\n"
    "kernel void copy(global const uint *a, global uint *b, uint n) { size_t i = get_global_id(0); if (i < n && !get_global_id(1) && !get_global_id(2)) b[i] = a[i]; }\n"
    "kernel void turn(global uint *a, local uint *t, uint n) { size_t i = get_global_id(0); t[get_local_id(0)] = i; barrier(CLK_LOCAL_MEM_FENCE); if (i < n && !get_global_id(1) && !get_global_id(2)) a[i] += t[get_local_id(0)]; }\n"
    "kernel void take(global uint *a, constant uint *c, uint n, uint4 v) { size_t i = get_global_id(0); if (i < n && !get_global_id(1) && !get_global_id(2)) a[i] = c[i] + v.x + v.w; }\n"
    "kernel void look(read_only image2d_t i, sampler_t s, global uint *o, uint n) { size_t x = get_global_id(0); if (x < n && !get_global_id(1) && !get_global_id(2)) o[x] = read_imageui(i, s, (int2)(x % 8, x / 8)).y; }\n",
    "kernel void add(global uint *a, uint n, uint v) { size_t i = get_global_id(0); if (i < n && !get_global_id(1) && !get_global_id(2)) a[i] += v VALUE; }\n",
    "",
    "kernel void broken(global uint *a) { a[0] = ; }\n",
    "uint other(uint v); uint other(uint v) { return v * 3; }\n",
};

static const char *const KERNEL_NAMES[] = {"add", "copy", "turn", "take", "look"};
/* G: buffer, U: number, L: local, C: constant, V: vector, I: image, S: sampler */
static const char *const KERNEL_ARGS[] = {"GUU", "GGU", "GLU", "GCUV", "ISGU"};
static const int COUNT_AT[] = {1, 2, 2, 2, 3};

static void release_slot_program(int at)
{
    for (; s.programs[at].handle != NULL && s.programs[at].references > 0; s.programs[at].references--)
        cl->clReleaseProgram(s.programs[at].handle);
    s.programs[at].handle = NULL;
}

static void keep_program(int at, cl_program made, int source)
{
    if (made == NULL)
        return;
    release_slot_program(at);
    s.programs[at].handle = made;
    s.programs[at].references = 1;
    s.programs[at].source = source;
    s.programs[at].is_compiled = 0;
}

static void create_program(void)
{
    const int at = (int)(word() % PROGRAMS);
    const unsigned which = word(), of = word(), how = word();
    const int source = (int)PICK(of, 0, 0, 1, 2, 3, 4, 0, 2);
    const char *strings[] = {SOURCES[source], how % 32 == 31 ? NULL : "\n"};
    const size_t lengths[] = {strlen(SOURCES[source]), 0};
    cl_int code = 77;
    const cl_program made = cl->clCreateProgramWithSource(context_by(which), how % 32 == 30 ? 0 : 1 + how % 2, how % 32 == 29 ? NULL : strings,
                                                          how / 2 % 2 ? lengths : NULL, &code);
    say(" source %d", source);
    created(made, code);
    keep_program(at, made, source);
}

static void create_program_otherwise(void)
{
    const int at = (int)(word() % PROGRAMS);
    const unsigned which = word(), how = word(), from = word();
    cl_int code = 77, each = 77;
    cl_program made = NULL;
    const unsigned char junk[] = "this is no binary of any device";
    if (how % 4 == 0) {
        if (!with_svm)
            return;
        const cl_program source = s.programs[from % PROGRAMS].handle;
        size_t size = 0;
        if (source == NULL || cl->clGetProgramInfo(source, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) != CL_SUCCESS || size == 0)
            return;
        unsigned char *binary = malloc(size);
        unsigned char *binaries[] = {binary};
        if (cl->clGetProgramInfo(source, CL_PROGRAM_BINARIES, sizeof binaries, binaries, NULL) == CL_SUCCESS)
            made = cl->clCreateProgramWithBinary(context_by(which), 1, devices, &size, (const unsigned char **)binaries, &each, &code);
        free(binary);
        say(" own binary");
    } else if (how % 4 == 1) {
        const unsigned char *binaries[] = {how % 64 == 49 ? NULL : junk};
        const size_t lengths[] = {how % 64 == 33 ? 0 : sizeof junk};
        made = cl->clCreateProgramWithBinary(context_by(which), how % 64 == 17 ? 0 : 1, how % 64 == 21 ? NULL : devices,
                                             how % 64 == 25 ? NULL : lengths, how % 64 == 29 ? NULL : binaries,
                                             how % 64 == 37 ? NULL : &each, &code);
        say(" junk");
    } else if (how % 4 == 2) {
        made = cl->clCreateProgramWithBuiltInKernels(context_by(which), how % 64 == 18 ? 0 : 1, devices, how % 64 == 34 ? NULL : "no.such.kernel",
                                                     &code);
        say(" built in");
    } else {
        made = cl->clCreateProgramWithIL(context_by(which), how % 64 == 19 ? NULL : (const void *)junk, how % 64 == 35 ? 0 : sizeof junk, &code);
        say(" IL");
    }
    say(" each %d", each);
    created(made, code);
    keep_program(at, made, s.programs[from % PROGRAMS].source);
}

static void build_program(void)
{
    const unsigned which = word(), how = word(), options = word(), list = word();
    static const char *const OPTIONS[] = {"-D VALUE=+1", NULL, "", "-cl-kernel-arg-info -D VALUE=", "-no-such-option", "-D VALUE=+2 -cl-mad-enable"};
    const char *given = OPTIONS[options % COUNT(OPTIONS)];
    const cl_uint count = (cl_uint)PICK(list, 0, 0, 0, 1, 1, 0, 1);
    const cl_device_id *devices_given = list % 7 == 3 || list % 7 == 5 ? devices : NULL;
    const cl_program program = program_by(which);
    say(" %s", name_of(program));
    s.programs[which % PROGRAMS].is_compiled = how % 4 == 3;
    if (how % 4 == 3)
        status(cl->clCompileProgram(program, count, devices_given, given, 0, NULL, NULL, NULL, NULL));
    else if (how % 16 == 14)
        status(cl->clBuildProgram(program, count, devices_given, given, NULL, (void *)&called));
    else
        status(cl->clBuildProgram(program, count, devices_given, given, NULL, NULL));
}

static void link_programs(void)
{
    const int at = (int)(word() % PROGRAMS);
    const unsigned which = word(), first = word(), how = word();
    const cl_program inputs[] = {program_by(first), program_by(first / 32)};
    if (inputs[0] == NULL || inputs[1] == NULL)
        return;
    cl_int code = 77;
    const cl_program made = cl->clLinkProgram(context_by(which), 0, NULL, how % 16 == 15 ? "-no-such-option" : how % 2 ? "" : NULL,
                                              how % 16 == 13 ? 0 : 1 + how % 2, how % 16 == 11 ? NULL : inputs, NULL, NULL, &code);
    say(" %s", name_of(inputs[0]));
    created(made, code);
    const int source = s.programs[first % PROGRAMS].source;
    keep_program(at, made, source);
}

static void release_slot_kernel(int at)
{
    for (; s.kernels[at].handle != NULL && s.kernels[at].references > 0; s.kernels[at].references--)
        cl->clReleaseKernel(s.kernels[at].handle);
    s.kernels[at].handle = NULL;
}

static void create_kernel(void)
{
    const int at = (int)(word() % KERNELS);
    const unsigned from = word(), which = word(), how = word();
    const int name = (int)PICK(which, 0, 1, 2, 3, 4);
    cl_int code = 77;
    cl_kernel made;
    if (how % 16 == 13) {
        made = cl->clCloneKernel(kernel_by(which), &code);
        say(" clone");
        created(made, code);
        if (made != NULL && (int)(which % KERNELS) != at) {
            release_slot_kernel(at);
            s.kernels[at] = s.kernels[which % KERNELS];
            s.kernels[at].handle = made;
            s.kernels[at].references = 1;
        } else if (made != NULL)
            cl->clReleaseKernel(made);
        return;
    }
    if (s.programs[from % PROGRAMS].is_compiled)
        return;
    made = cl->clCreateKernel(program_by(from), how % 16 == 15 ? NULL : how % 16 == 14 ? "no_such_kernel" : KERNEL_NAMES[name], &code);
    say(" %s", KERNEL_NAMES[name]);
    created(made, code);
    if (made == NULL)
        return;
    release_slot_kernel(at);
    memset(&s.kernels[at], 0, sizeof s.kernels[at]);
    s.kernels[at].handle = made;
    s.kernels[at].references = 1;
    s.kernels[at].which = name;
}

static void kernels_in_program(void)
{
    const unsigned from = word(), room = word();
    cl_kernel made[8];
    for (size_t at = 0; at < COUNT(made); at++)
        made[at] = UNWRITTEN;
    cl_uint count = 0x5e;
    if (s.programs[from % PROGRAMS].is_compiled)
        return;
    const cl_int code = cl->clCreateKernelsInProgram(program_by(from), room / 4 % 4 == 1 ? 0 : (cl_uint)PICK(room, 8, 0, 1, 8), room / 4 % 4 == 1 ? NULL : made,
                                                     room / 16 % 8 == 7 ? NULL : &count);
    status(code);
    say(" count %u", count);
    /* PoCL writes a handle of nothing where the program has no kernel. */
    size_t kernels = 0;
    if (cl->clGetProgramInfo(program_by(from), CL_PROGRAM_NUM_KERNELS, sizeof kernels, &kernels, NULL) != CL_SUCCESS || kernels == 0)
        return;
    say(" first %s", made[0] == UNWRITTEN ? "unwritten" : "written");
    for (size_t at = 0; code == CL_SUCCESS && at < COUNT(made) && made[at] != UNWRITTEN; at++)
        cl->clReleaseKernel(made[at]);
}

static void set_arg(void)
{
    const int at = (int)(word() % KERNELS);
    const unsigned which = word(), value = word(), how = word();
    const cl_kernel kernel = s.kernels[at].handle;
    const char *kinds = KERNEL_ARGS[s.kernels[at].which];
    const cl_uint index = which % 32 == 31 ? 77 : which % (cl_uint)strlen(kinds);
    if (kernel == NULL)
        return;
    const char kind = index == 77 ? 'U' : kinds[index];
    struct argument *argument = index == 77 ? NULL : &s.kernels[at].args[index];
    struct argument next = {.is_set = 1, .mem = -1, .shared = -1};
    cl_uint number[4] = {(cl_uint)PICK(value, 16, 4, 0, 1, 64), 2, 3, 4};
    const void *given = number;
    size_t size = 4;
    cl_mem mem = NULL;
    cl_sampler sampler = NULL;
    switch (kind) {
    case 'G':
    case 'C':
    case 'I':
        mem = s.mems[value % MEMS].handle;
        if (mem == NULL || s.mems[value % MEMS].is_image != (kind == 'I'))
            return;
        next.mem = (int)(value % MEMS);
        next.birth = s.mems[next.mem].birth;
        given = &mem;
        size = sizeof mem;
        if (how % 16 == 15 && kind != 'I') {
            given = NULL;
            next.mem = -1;
        }
        break;
    case 'S':
        sampler = s.samplers[value % SAMPLERS].handle;
        if (sampler == NULL)
            return;
        given = &sampler;
        size = sizeof sampler;
        break;
    case 'L':
        given = how % 16 == 15 ? number : NULL;
        size = PICK(value, 1024, 256, 0, 4096);
        next.value = size;
        break;
    case 'V':
        size = 16;
        break;
    default:
        next.value = number[0];
        if (how % 16 == 15)
            given = NULL;
    }
    if (how % 16 == 14 && kind != 'L')
        size = kind == 'V' ? 12 : kind == 'U' ? 8 : 4;
    if (how % 16 == 13 && kind != 'L')
        size = 0;
    const cl_int code = cl->clSetKernelArg(kernel, index, size, given);
    say(" kernel%d %s %u %c size %zu%s", at, KERNEL_NAMES[s.kernels[at].which], index, kind, size, given == NULL ? " null" : "");
    status(code);
    if (code == CL_SUCCESS && argument != NULL) {
        *argument = next;
        /* What a size that does not fit leaves in a number is open. */
        if (kind != 'L' && how % 16 >= 13)
            argument->birth = ~0u;
    }
}

static void set_arg_svm(void)
{
    const int at = (int)(word() % KERNELS);
    const unsigned which = word(), value = word(), how = word();
    const char *kinds = KERNEL_ARGS[s.kernels[at].which];
    const int shared = (int)(value % SHARED);
    if (!with_svm || s.kernels[at].handle == NULL)
        return;
    const cl_uint index = which % 32 == 31 ? 77 : which % (cl_uint)strlen(kinds);
    if (index != 77 && kinds[index] != 'G' && kinds[index] != 'C')
        return;
    if (s.shared[shared].memory == NULL && how % 8 != 7)
        return;
    const cl_int code = cl->clSetKernelArgSVMPointer(s.kernels[at].handle, index, s.shared[shared].memory);
    say(" kernel%d %u shared%d%s", at, index, shared, s.shared[shared].memory == NULL ? " null" : "");
    status(code);
    if (code == CL_SUCCESS && index != 77)
        s.kernels[at].args[index] = (struct argument){.is_set = 1, .mem = -1, .shared = shared, .birth = s.shared[shared].memory == NULL ? ~0u : s.shared[shared].birth};
}

static void set_exec_info(void)
{
    const unsigned which = word(), how = word(), value = word();
    void *list[] = {s.shared[value % SHARED].memory};
    cl_bool fine = CL_FALSE;
    if (!with_svm || list[0] == NULL)
        return;
    if (how % 4 == 3)
        status(cl->clSetKernelExecInfo(kernel_by(which), CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, sizeof fine, &fine));
    else
        status(cl->clSetKernelExecInfo(kernel_by(which), CL_KERNEL_EXEC_INFO_SVM_PTRS,
                                       sizeof list, list));
}

static int is_mapped_for_writing(int mem)
{
    for (int at = 0; at < MAPS; at++)
        if (s.maps[at].memory != NULL && s.maps[at].mem == mem)
            return 1;
    return 0;
}

/* Whether the kernel stays within memory that is there. */
static int is_harmless(int at)
{
    const int which = s.kernels[at].which;
    const char *kinds = KERNEL_ARGS[which];
    const struct argument *args = s.kernels[at].args;
    const size_t bytes = 4 * args[COUNT_AT[which]].value;
    for (size_t index = 0; index < strlen(kinds); index++) {
        const struct argument *argument = &args[index];
        if (!argument->is_set)
            continue;
        if (argument->birth == ~0u)
            return 0;
        if (kinds[index] == 'G' || kinds[index] == 'C' || kinds[index] == 'I') {
            if (argument->mem >= 0) {
                const struct mem *mem = &s.mems[argument->mem];
                if (mem->handle == NULL || mem->birth != argument->birth || is_mapped_for_writing(argument->mem))
                    return 0;
                if (mem->parent >= 0 && is_mapped_for_writing(mem->parent))
                    return 0;
                if (mem->shared >= 0 && (s.shared[mem->shared].birth != mem->shared_birth || s.shared[mem->shared].is_mapped))
                    return 0;
                if (kinds[index] != 'I' && bytes > mem->size)
                    return 0;
                /* A device writes only what it may. */
                if (kinds[index] == 'G' && mem->flags & CL_MEM_READ_ONLY && !(which == 1 && index == 0))
                    return 0;
                if (mem->flags & CL_MEM_WRITE_ONLY)
                    return 0;
            } else if (argument->shared >= 0) {
                if (s.shared[argument->shared].memory == NULL || s.shared[argument->shared].birth != argument->birth ||
                    bytes > s.shared[argument->shared].size || s.shared[argument->shared].is_mapped)
                    return 0;
            } else
                return 0;
        }
        if (kinds[index] == 'L' && argument->value < 1024)
            return 0;
    }
    /* One memory for both sides of a copy is a race. */
    if (which == 1 || which == 3) {
        const struct argument *a = &args[0], *b = &args[1];
        if (a->is_set && b->is_set && (a->mem == b->mem || a->shared >= 0 || b->shared >= 0 || (a->mem >= 0 && (s.mems[a->mem].parent >= 0 || s.mems[a->mem].shared >= 0)) ||
            (b->mem >= 0 && (s.mems[b->mem].parent >= 0 || s.mems[b->mem].shared >= 0))))
            return 0;
    }
    return 1;
}

static void launch(void)
{
    const int at = (int)(word() % KERNELS);
    const unsigned range = word(), group = word();
    const cl_uint dims = (cl_uint)PICK(range / 8, 1, 1, 2, 3, 1, 1, 0, 4);
    const size_t global[] = {PICK(range, 16, 64, 1, 16, 7, 256, 0, 32), 2, 2, 1}, offset[] = {0, 0, 0, 0};
    const size_t local[] = {PICK(group / 4, 1, 8, 16, 5, 100000, 4), 1, 1, 1};
    if (s.kernels[at].handle == NULL || !is_harmless(at))
        return;
    struct command c = command(0);
    /* PoCL reads through a NULL queue here, and looks at no wait list. */
    if (c.queue == NULL || !c.is_well_formed)
        return;
    const size_t *groups = group % 4 < 2 ? NULL : local;
    cl_int code;
    if (range / 64 % 4 == 3)
        code = cl->clEnqueueTask(c.queue, s.kernels[at].handle, c.count, c.list, event_of(&c));
    else
        code = cl->clEnqueueNDRangeKernel(c.queue, s.kernels[at].handle, dims, range / 64 % 4 == 1 ? offset : NULL,
                                          group / 32 % 8 == 7 ? NULL : global, groups, c.count, c.list, event_of(&c));
    say(" %s dims %u global %zu local %zu", KERNEL_NAMES[s.kernels[at].which], dims, global[0], groups == NULL ? 0 : groups[0]);
    commanded(&c, code);
}

/* ---- Transfers */
static int is_busy(int slot)
{
    const struct mem *mem = &s.mems[slot];
    if (is_mapped_for_writing(slot) || (mem->parent >= 0 && is_mapped_for_writing(mem->parent)))
        return 1;
    for (int child = 0; child < MEMS; child++)
        if (s.mems[child].handle != NULL && s.mems[child].parent == slot && is_mapped_for_writing(child))
            return 1;
    if (mem->shared >= 0 && (s.shared[mem->shared].birth != mem->shared_birth || s.shared[mem->shared].is_mapped || s.shared[mem->shared].memory == NULL))
        return 1;
    return 0;
}

static size_t offset_by(unsigned w) { return PICK(w, 0, 4, 64, 128, 16, 1, 4096, 8192); }
static size_t size_by(unsigned w) { return PICK(w, 64, 16, 4, 256, 1, 100, 0, 4096, 16384); }

static void read_or_write(int writes)
{
    const unsigned which = word(), where = word(), of = word(), how = word();
    const cl_mem mem = mem_by(which);
    if (is_busy(mem_slot(which)))
        return;
    if (mem != NULL && s.mems[mem_slot(which)].is_image)
        return;
    struct command c = command(1);
    /* Each command has host memory of its own. */
    unsigned char *memory = how % 32 == 31 ? NULL : writes ? host_block(how) : s.host + (how % 8) * 2048;
    size_t size = size_by(of);
    if (!writes && size > 2048)
        size = 2048;
    cl_int code;
    if (how / 32 % 4 == 3) {
        const size_t origin[] = {offset_by(where) % 128, 0, 0}, host[] = {0, 0, 0}, region[] = {PICK(of, 16, 4, 1, 300), PICK(of / 8, 2, 1, 4), PICK(of / 32, 1, 2)};
        const size_t pitch = PICK(where / 8, 0, 32, 64, 7), slice = PICK(where / 32, 0, 0, 256, 3);
        code = writes ? cl->clEnqueueWriteBufferRect(c.queue, mem, c.is_blocking, origin, host, region, pitch, slice, 0, 0, memory, c.count, c.list, event_of(&c))
                      : cl->clEnqueueReadBufferRect(c.queue, mem, c.is_blocking, origin, host, region, pitch, slice, 0, 0, memory, c.count, c.list, event_of(&c));
        say(" rect %zu region %zu %zu %zu pitches %zu %zu", origin[0], region[0], region[1], region[2], pitch, slice);
    } else {
        code = writes ? cl->clEnqueueWriteBuffer(c.queue, mem, c.is_blocking, offset_by(where), size, memory, c.count, c.list, event_of(&c))
                      : cl->clEnqueueReadBuffer(c.queue, mem, c.is_blocking, offset_by(where), size, memory, c.count, c.list, event_of(&c));
        say(" at %zu size %zu", offset_by(where), size);
    }
    say(" %s%s", name_of(mem), memory == NULL ? " null" : "");
    commanded(&c, code);
    if (!writes && code == CL_SUCCESS && c.is_blocking)
        say(" bytes %08x", hash(memory, 2048));
}

static void read_buffer(void) { read_or_write(0); }
static void write_buffer(void) { read_or_write(1); }

static void fill_buffer(void)
{
    const unsigned which = word(), where = word(), of = word(), how = word();
    if (is_busy(mem_slot(which)))
        return;
    if (mem_by(which) != NULL && s.mems[mem_slot(which)].is_image)
        return;
    struct command c = command(0);
    const unsigned char pattern[256] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const size_t length = PICK(how, 4, 1, 16, 128, 3, 0, 256, 8);
    const cl_int code = cl->clEnqueueFillBuffer(c.queue, mem_by(which), how / 8 % 16 == 15 ? NULL : pattern, length, offset_by(where), size_by(of), c.count, c.list, event_of(&c));
    say(" %s at %zu size %zu pattern %zu", name_of(mem_by(which)), offset_by(where), size_by(of), length);
    commanded(&c, code);
}

static void copy_buffer(void)
{
    const unsigned from = word(), to = word(), where = word(), of = word();
    if (is_busy(mem_slot(from)) || is_busy(mem_slot(to)))
        return;
    if (s.mems[mem_slot(from)].is_image || s.mems[mem_slot(to)].is_image)
        return;
    struct command c = command(0);
    cl_int code;
    if (of / 16 % 4 == 3) {
        if (mem_by(from) == NULL || mem_by(to) == NULL)
            return;
        const size_t origin[] = {offset_by(where) % 32, 0, 0}, other[] = {offset_by(where / 8) % 32, PICK(where / 64, 0, 2), 0}, region[] = {PICK(of, 16, 4, 1), PICK(of / 4, 2, 1, 4), 1};
        code = cl->clEnqueueCopyBufferRect(c.queue, mem_by(from), mem_by(to), origin, other, region, 32, 0, 32, 0, c.count, c.list, event_of(&c));
        say(" rect");
    } else
        code = cl->clEnqueueCopyBuffer(c.queue, mem_by(from), mem_by(to), offset_by(where), offset_by(where / 8), size_by(of) ? size_by(of) : 64, c.count, c.list, event_of(&c));
    say(" %s", name_of(mem_by(from)));
    say(" to %s at %zu %zu size %zu", name_of(mem_by(to)), offset_by(where), offset_by(where / 8), size_by(of));
    commanded(&c, code);
}

static void image_command(void)
{
    const unsigned which = word(), how = word(), where = word(), of = word();
    const int slot = mem_slot(which);
    const struct mem *mem = &s.mems[slot];
    if (is_busy(slot) || mem->handle == NULL || !mem->is_image)
        return;
    struct command c = command(1);
    const size_t origin[] = {PICK(where, 0, 1, 2, 0, 100), PICK(where / 8, 0, 0, 1), 0};
    const size_t region[] = {PICK(of, 1, 2, mem->width, 4, mem->width + 1), PICK(of / 8, 1, mem->height, 2), PICK(of / 32, 1, mem->depth, 1, 2)};
    const cl_uint color[4] = {how, 2, 3, 4};
    unsigned char *memory = how / 8 % 8 == 7 ? NULL : how % 8 == 0 ? s.host + (how / 64 % 4) * 4096 : host_block(how);
    const size_t pitch = PICK(how / 64, 0, 0, 256);
    cl_int code;
    int other = (int)(how / 16 % MEMS);
    switch (how % 8) {
    case 0:
        code = cl->clEnqueueReadImage(c.queue, mem->handle, CL_TRUE, origin, region, pitch == 256 && mem->depth > 1 ? 0 : pitch, 0, memory, c.count, c.list, event_of(&c));
        settle();
        break;
    case 1:
    case 2:
        code = cl->clEnqueueWriteImage(c.queue, mem->handle, c.is_blocking, origin, region, pitch == 256 && mem->depth > 1 ? 0 : pitch, 0, memory, c.count, c.list, event_of(&c));
        break;
    case 3:
    case 4:
        code = cl->clEnqueueFillImage(c.queue, mem->handle, memory == NULL ? NULL : color, origin, region, c.count, c.list, event_of(&c));
        break;
    case 5:
        if (is_busy(other) || other == slot)
            return;
        code = cl->clEnqueueCopyImage(c.queue, mem->handle, s.mems[other].handle, origin, origin, region, c.count, c.list, event_of(&c));
        break;
    case 6:
        /* PoCL copies past the buffer's end. */
        if (is_busy(other) || (s.mems[other].handle != NULL && (s.mems[other].is_image || offset_by(of) + mem->size > s.mems[other].size)))
            return;
        code = cl->clEnqueueCopyImageToBuffer(c.queue, mem->handle, s.mems[other].handle, origin, region, offset_by(of), c.count, c.list, event_of(&c));
        break;
    default:
        if (is_busy(other) || (s.mems[other].handle != NULL && (s.mems[other].is_image || offset_by(of) + mem->size > s.mems[other].size)))
            return;
        code = cl->clEnqueueCopyBufferToImage(c.queue, s.mems[other].handle, mem->handle, offset_by(of), origin, region, c.count, c.list, event_of(&c));
    }
    say(" kind %u mem%d %zu %zu region %zu %zu %zu other %s pitch %zu%s", how % 8, slot, origin[0], origin[1], region[0], region[1], region[2],
        how % 8 >= 5 ? name_of(s.mems[other].handle) : "", pitch, memory == NULL ? " null" : "");
    commanded(&c, code);
    if (how % 8 == 0 && code == CL_SUCCESS)
        say(" bytes %08x", hash(memory, 4096));
}

static void migrate(void)
{
    const unsigned which = word(), how = word();
    const cl_mem list[] = {mem_by(which), mem_by(which / 8)};
    if (is_busy(mem_slot(which)) || is_busy(mem_slot(which / 8)))
        return;
    struct command c = command(0);
    const cl_int code = cl->clEnqueueMigrateMemObjects(c.queue, (cl_uint)PICK(how, 1, 2, 1, 0), how / 4 % 8 == 7 ? NULL : list,
                                                       PICK(how / 32, 0, CL_MIGRATE_MEM_OBJECT_HOST, 1 << 20), c.count, c.list, event_of(&c));
    commanded(&c, code);
}

/* ---- Maps */
static void map(void)
{
    const int at = (int)(word() % MAPS);
    const unsigned which = word(), how = word(), where = word(), of = word();
    const int slot = mem_slot(which);
    const struct mem *mem = &s.mems[slot];
    if (s.maps[at].memory != NULL || is_busy(slot) || mem->handle == NULL)
        return;
    struct command c = command(1);
    c.is_blocking = 1;
    settle();
    /* What is left of an invalidated region must be written; of an image this writes a row. */
    const cl_map_flags flags = PICK(how, CL_MAP_READ, CL_MAP_WRITE, CL_MAP_READ | CL_MAP_WRITE, mem->is_image ? CL_MAP_WRITE : CL_MAP_WRITE_INVALIDATE_REGION);
    cl_int code = 77;
    unsigned char *memory;
    size_t size, row = 0x5e, slice = 0x5e;
    if (mem->is_image) {
        const size_t origin[] = {0, 0, 0}, region[] = {mem->width, mem->height, mem->depth};
        memory = cl->clEnqueueMapImage(c.queue, mem->handle, CL_TRUE, flags, origin, region, how / 16 % 16 == 15 ? NULL : &row, &slice, c.count, c.list, event_of(&c), &code);
        size = mem->width * 4;
        say(" image");
    } else {
        size = size_by(of);
        memory = cl->clEnqueueMapBuffer(c.queue, mem->handle, CL_TRUE, flags, offset_by(where), size, c.count, c.list, event_of(&c), &code);
        say(" at %zu size %zu", offset_by(where), size);
    }
    say(" mem%d flags %llx %s", slot, (unsigned long long)flags, memory == NULL ? "null" : "memory");
    commanded(&c, code);
    if (memory == NULL)
        return;
    if (mem->host != NULL && mem->flags & CL_MEM_USE_HOST_PTR && !mem->is_image)
        say(" lies at %td", memory - mem->host);
    if (flags != CL_MAP_WRITE_INVALIDATE_REGION)
        say(" bytes %08x", hash(memory, size));
    if (flags != CL_MAP_READ)
        memset(memory, (int)(how + where + of), size);
    s.maps[at].memory = memory;
    s.maps[at].mem = slot;
    s.maps[at].size = size;
    s.maps[at].writes = flags != CL_MAP_READ;
}

static void unmap(void)
{
    const int at = (int)(word() % MAPS);
    const unsigned how = word();
    if (s.maps[at].memory == NULL)
        return;
    struct command c = command(0);
    void *memory = how % 32 == 31 ? NULL : how % 32 == 30 ? (void *)s.host : s.maps[at].memory;
    const cl_int code = cl->clEnqueueUnmapMemObject(c.queue, s.mems[s.maps[at].mem].handle, memory, c.count, c.list, event_of(&c));
    say(" mem%d %s", s.maps[at].mem, memory == NULL ? "null" : "");
    commanded(&c, code);
    if (code == CL_SUCCESS)
        s.maps[at].memory = NULL;
}

/* ---- Shared virtual memory */
static int is_shared_used(int at)
{
    for (int mem = 0; mem < MEMS; mem++)
        if (s.mems[mem].handle != NULL && s.mems[mem].shared == at && s.mems[mem].shared_birth == s.shared[at].birth)
            return 1;
    return 0;
}

static int is_shared_busy(int at)
{
    if (s.shared[at].is_mapped)
        return 1;
    for (int mem = 0; mem < MEMS; mem++)
        if (s.mems[mem].handle != NULL && s.mems[mem].shared == at && is_mapped_for_writing(mem))
            return 1;
    return 0;
}

static void svm_alloc(void)
{
    const int at = (int)(word() % SHARED);
    const unsigned which = word(), how = word(), of = word();
    if (!with_svm || s.shared[at].memory != NULL)
        return;
    const size_t size = PICK(of, 4096, 64, 256, 1024, 1, 0, (size_t)1 << 50);
    unsigned char *memory = cl->clSVMAlloc(context_by(which), PICK(how, CL_MEM_READ_WRITE, 0, CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY), size,
                                           (cl_uint)PICK(of / 8, 0, 64, 128, 3, 4096));
    say(" size %zu flags %u align %u %s", size, how % 6, of / 8 % 5, memory == NULL ? "null" : "memory");
    if (memory == NULL)
        return;
    s.shared[at].memory = memory;
    s.shared[at].size = size;
    s.shared[at].context = which % 8 == 7;
    s.shared[at].birth = ++s.births;
    s.shared[at].is_mapped = 0;
    const unsigned char zero = 0;
    for (int queue = 0; queue < QUEUES; queue++)
        if (s.queues[queue].handle != NULL && s.queues[queue].context == s.shared[at].context) {
            settle();
            if (cl->clEnqueueSVMMemFill(s.queues[queue].handle, memory, &zero, 1, size, 0, NULL, NULL) == CL_SUCCESS) {
                cl->clFinish(s.queues[queue].handle);
                return;
            }
        }
    cl->clSVMFree(s.contexts[s.shared[at].context], memory);
    s.shared[at].memory = NULL;
}

static void svm_free(void)
{
    const int at = (int)(word() % SHARED);
    const unsigned how = word();
    if (!with_svm || s.shared[at].memory == NULL || is_shared_used(at))
        return;
    finish_all();
    if (how % 4 == 3) {
        void *list[] = {s.shared[at].memory};
        struct command c = command(0);
        if (c.queue != NULL && s.queues[c.slot].context != s.shared[at].context)
            return;
        const cl_int code = cl->clEnqueueSVMFree(c.queue, how % 32 == 31 ? 0 : 1, how % 64 == 27 ? NULL : list, NULL, NULL, c.count, c.list, event_of(&c));
        commanded(&c, code);
        if (code == CL_SUCCESS)
            s.shared[at].memory = NULL;
        finish_all();
    } else {
        cl->clSVMFree(s.contexts[s.shared[at].context], how % 8 == 6 ? NULL : s.shared[at].memory);
        if (how % 8 != 6)
            s.shared[at].memory = NULL;
    }
    say(" shared%d", at);
}

static void svm_command(void)
{
    const int at = (int)(word() % SHARED);
    const unsigned how = word(), of = word(), other = word();
    unsigned char *memory = s.shared[at].memory;
    if (!with_svm || (memory == NULL && how % 16 != 15))
        return;
    struct command c = command(1);
    if (c.queue != NULL && memory != NULL && s.queues[c.slot].context != s.shared[at].context)
        return;
    size_t size = size_by(of);
    if (memory != NULL && size > s.shared[at].size)
        size = s.shared[at].size;
    if (how % 8 < 4 && memory != NULL && is_shared_busy(at))
        return;
    cl_int code;
    const unsigned char pattern[256] = {9, 8, 7, 6, 5, 4, 3, 2, 1};
    unsigned char *host = s.host + (other % 4) * 2048;
    if (size > 2048)
        size = 2048;
    unsigned char *old = host_block(other);
    int second = (int)(other / 4 % SHARED);
    switch (how % 8) {
    case 0:
        code = cl->clEnqueueSVMMemcpy(c.queue, c.is_blocking, memory, old, size, c.count, c.list, event_of(&c));
        break;
    case 1:
        c.is_blocking = 1;
        settle();
        code = cl->clEnqueueSVMMemcpy(c.queue, CL_TRUE, host, memory, size, c.count, c.list, event_of(&c));
        break;
    case 2: {
        const size_t length = PICK(other, 1, 4, 16, 3, 0, 128);
        code = cl->clEnqueueSVMMemFill(c.queue, memory, other / 8 % 8 == 7 ? NULL : pattern, length, size, c.count, c.list, event_of(&c));
        say(" pattern %zu", length);
        break;
    }
    case 3:
        if (s.shared[second].memory == NULL || s.shared[second].context != s.shared[at].context || is_shared_busy(second))
            return;
        if (size > s.shared[second].size)
            size = s.shared[second].size;
        code = cl->clEnqueueSVMMemcpy(c.queue, c.is_blocking, memory, s.shared[second].memory, size, c.count, c.list, event_of(&c));
        say(" from shared%d", second);
        break;
    case 4: /* host to host */
        c.is_blocking = 1;
        settle();
        code = cl->clEnqueueSVMMemcpy(c.queue, CL_TRUE, host, old, size, c.count, c.list, event_of(&c));
        break;
    case 5: {
        if (memory != NULL && is_shared_busy(at))
            return;
        c.is_blocking = 1;
        settle();
        const cl_map_flags flags = PICK(other, CL_MAP_READ, CL_MAP_WRITE, CL_MAP_READ | CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION);
        code = cl->clEnqueueSVMMap(c.queue, CL_TRUE, flags, memory, size, c.count, c.list, event_of(&c));
        if (code == CL_SUCCESS && memory != NULL) {
            s.shared[at].is_mapped = 1;
            if (flags != CL_MAP_WRITE_INVALIDATE_REGION)
                say(" bytes %08x", hash(memory, size));
            if (flags != CL_MAP_READ)
                memset(memory, (int)of, size);
        }
        break;
    }
    case 6:
        if (memory != NULL && !s.shared[at].is_mapped)
            return;
        code = cl->clEnqueueSVMUnmap(c.queue, memory, c.count, c.list, event_of(&c));
        if (code == CL_SUCCESS)
            s.shared[at].is_mapped = 0;
        break;
    default: {
        const void *list[] = {memory};
        code = cl->clEnqueueSVMMigrateMem(c.queue, other % 8 == 7 ? 0 : 1, other % 8 == 6 ? NULL : list, NULL, other % 8 == 5 ? 1 << 20 : 0, c.count, c.list, event_of(&c));
    }
    }
    say(" kind %u shared%d size %zu", how % 8, at, size);
    commanded(&c, code);
    if ((how % 8 == 1 || how % 8 == 4) && code == CL_SUCCESS)
        say(" bytes %08x", hash(host, 2048));
}

/* ---- Events, order */
static void create_user_event(void)
{
    const int at = (int)(word() % EVENTS);
    const unsigned which = word();
    cl_int code = 77;
    const cl_event made = cl->clCreateUserEvent(context_by(which), &code);
    created(made, code);
    if (made == NULL)
        return;
    if (s.events[at].is_pending)
        settle();
    for (; s.events[at].handle != NULL && s.events[at].references > 0; s.events[at].references--)
        cl->clReleaseEvent(s.events[at].handle);
    s.events[at].handle = made;
    s.events[at].references = s.events[at].is_user = s.events[at].is_pending = 1;
    s.events[at].context = which % 8 == 7;
}

static void set_user_event(void)
{
    const unsigned which = word(), how = word();
    const cl_event event = event_by(which);
    const cl_int value = (cl_int)PICK(how, CL_COMPLETE, CL_COMPLETE, CL_COMPLETE, CL_RUNNING, 7, CL_COMPLETE, CL_SUBMITTED);
    const cl_int code = cl->clSetUserEventStatus(event, value);
    say(" %s %d", name_of(event), value);
    status(code);
    if (code == CL_SUCCESS)
        s.events[which % EVENTS].is_pending = 0;
}

static void wait_events(void)
{
    const unsigned which = word(), how = word();
    const cl_event list[] = {event_by(which), event_by(which / 16)};
    settle();
    status(cl->clWaitForEvents((cl_uint)PICK(how, 1, 2, 1, 0), how / 4 % 8 == 7 ? NULL : list));
}

static void event_callback(void)
{
    const unsigned which = word(), how = word();
    const cl_event event = event_by(which);
    const cl_int code = cl->clSetEventCallback(event, (cl_int)PICK(how, CL_COMPLETE, CL_COMPLETE, CL_COMPLETE, 77), how / 4 % 8 == 7 ? NULL : call_event, NULL);
    say(" %s", name_of(event));
    status(code);
    expected_calls += code == CL_SUCCESS;
}

static void marker(void)
{
    const unsigned how = word();
    struct command c = command(0);
    cl_int code;
    switch (how % 8) {
    case 5:
        c.count = 0;
        code = cl->clEnqueueMarker(c.queue, event_of(&c));
        break;
    case 6:
        c.wants_event = 0;
        code = cl->clEnqueueBarrier(c.queue);
        break;
    case 0:
    case 1:
        code = cl->clEnqueueMarkerWithWaitList(c.queue, c.count, c.list, event_of(&c));
        break;
    default:
        code = cl->clEnqueueBarrierWithWaitList(c.queue, c.count, c.list, event_of(&c));
    }
    say(" kind %u", how % 8);
    commanded(&c, code);
}

static void flush(void)
{
    const unsigned which = word(), how = word();
    const cl_command_queue queue = which % 16 == 15 ? NULL : s.queues[queue_slot(which)].handle;
    settle();
    say(" %s", name_of(queue));
    status(how % 2 ? cl->clFlush(queue) : cl->clFinish(queue));
}

/* ---- Lifetimes */
static void retain(void)
{
    const unsigned kind = word(), which = word();
    const int release = word() % 2;
    cl_int code = 0;
#define COUNTED(call, slot)                                                                                                              \
    if ((slot).handle == NULL) {                                                                                                         \
        status(cl->clRetain##call(NULL));                                                                                                \
        return;                                                                                                                          \
    }                                                                                                                                    \
    code = release ? cl->clRelease##call((slot).handle) : cl->clRetain##call((slot).handle);                                             \
    (slot).references += release ? -1 : 1;                                                                                               \
    if ((slot).references == 0)                                                                                                          \
        (slot).handle = NULL;
    switch (kind % 6) {
    case 0: {
        const int at = mem_slot(which);
        if (release && s.mems[at].references == 1 && new_mem(which) < 0)
            return;
        if (release)
            finish_all();
        COUNTED(MemObject, s.mems[at])
        break;
    }
    case 1: {
        const int at = (int)(which % EVENTS);
        if (release)
            settle();
        COUNTED(Event, s.events[at])
        break;
    }
    case 2:
        COUNTED(Program, s.programs[which % PROGRAMS])
        break;
    case 3:
        COUNTED(Kernel, s.kernels[which % KERNELS])
        break;
    case 4:
        if (s.samplers[which % SAMPLERS].handle != NULL) {
            code = cl->clRetainSampler(s.samplers[which % SAMPLERS].handle);
            cl->clReleaseSampler(s.samplers[which % SAMPLERS].handle);
        } else
            code = cl->clRetainSampler(NULL);
        break;
    default: {
        const int at = queue_slot(which);
        if (s.queues[at].references == 1 && release) {
            finish_all();
            if (s.last_queue == at)
                s.last_queue = -1;
        }
        COUNTED(CommandQueue, s.queues[at])
    }
    }
    say(" kind %u %u %s", kind % 6, which, release ? "release" : "retain");
    status(code);
}

static void program_callback(void)
{
    const unsigned which = word(), how = word();
    const cl_program program = program_by(which);
    say(" %s", name_of(program));
    status(cl->clSetProgramReleaseCallback(program, how % 8 == 7 ? NULL : call_program, NULL));
}

static void context_callback(void)
{
    const unsigned which = word(), how = word();
    status(cl->clSetContextDestructorCallback(context_by(which), how % 8 == 7 ? NULL : CALLBACK_context, NULL));
}

static const struct operation {
    const char *name;
    void (*play)(void);
    unsigned weight;
} OPERATIONS[] = {
    {"CreateContext", create_context, 2},
    {"CreateQueue", create_queue, 4},
    {"SetDefaultQueue", set_default_queue, 1},
    {"CreateSubDevices", create_sub_devices, 2},
    {"RetainDevice", retain_device, 1},
    {"CreateBuffer", create_buffer, 10},
    {"CreateSubBuffer", create_sub_buffer, 5},
    {"CreateImage", create_image, 6},
    {"CreatePipe", create_pipe, 1},
    {"CreateSampler", create_sampler, 2},
    {"MemCallback", mem_callback, 2},
    {"CreateProgram", create_program, 4},
    {"CreateProgramOtherwise", create_program_otherwise, 2},
    {"BuildProgram", build_program, 4},
    {"LinkPrograms", link_programs, 1},
    {"CreateKernel", create_kernel, 6},
    {"KernelsInProgram", kernels_in_program, 1},
    {"SetArg", set_arg, 20},
    {"SetArgSvm", set_arg_svm, 5},
    {"SetExecInfo", set_exec_info, 2},
    {"Launch", launch, 14},
    {"ReadBuffer", read_buffer, 10},
    {"WriteBuffer", write_buffer, 10},
    {"FillBuffer", fill_buffer, 5},
    {"CopyBuffer", copy_buffer, 6},
    {"ImageCommand", image_command, 10},
    {"Migrate", migrate, 2},
    {"Map", map, 8},
    {"Unmap", unmap, 8},
    {"SvmAlloc", svm_alloc, 6},
    {"SvmFree", svm_free, 3},
    {"SvmCommand", svm_command, 12},
    {"CreateUserEvent", create_user_event, 3},
    {"SetUserEvent", set_user_event, 3},
    {"WaitEvents", wait_events, 3},
    {"EventCallback", event_callback, 3},
    {"Marker", marker, 4},
    {"Flush", flush, 3},
    {"Retain", retain, 5},
    {"ProgramCallback", program_callback, 1},
    {"ContextCallback", context_callback, 1},
    {"Ask", ask, 20},
    {"ImageFormats", image_formats, 1},
    {"Timers", timers, 1},
};

static void begin(const char *name)
{
    memset(&s, 0, sizeof s);
    s.last_queue = -1;
    for (int at = 0; at < MEMS; at++)
        s.mems[at].parent = s.mems[at].shared = -1;
    for (int at = 0; at < SHARED; at++)
        s.shared[at].memory = NULL;
    s.host = calloc(1, HOST_BYTES);
    called = called_for_mem = called_for_event = expected_calls = 0;
    printf("seq %s", name);
}

/* Callbacks come from threads of the library. */
static void wait_for(atomic_int *count, int wanted)
{
    for (int tries = 0; tries < 300 && *count < wanted; tries++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void end(void)
{
    static unsigned char bytes[HOST_BYTES];
    finish_all();
    say("host %08x\n", hash(s.host, HOST_BYTES));
    for (int at = 0; at < EVENTS; at++) {
        cl_int code = 77;
        if (s.events[at].handle == NULL)
            continue;
        cl->clGetEventInfo(s.events[at].handle, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof code, &code, NULL);
        say("event%d %d\n", at, code);
    }
    for (int at = 0; at < MAPS; at++)
        if (s.maps[at].memory != NULL && s.queues[0].handle != NULL)
            say("unmap %d\n", cl->clEnqueueUnmapMemObject(s.queues[0].handle, s.mems[s.maps[at].mem].handle, s.maps[at].memory, 0, NULL, NULL));
    finish_all();
    memset(s.maps, 0, sizeof s.maps);
    for (int at = 0; at < SHARED; at++)
        for (int queue = 0; s.shared[at].is_mapped && queue < QUEUES; queue++)
            if (s.queues[queue].handle != NULL && s.queues[queue].context == s.shared[at].context) {
                say("unmap %d\n", cl->clEnqueueSVMUnmap(s.queues[queue].handle, s.shared[at].memory, 0, NULL, NULL));
                s.shared[at].is_mapped = 0;
            }
    finish_all();
    for (int at = 0; at < MEMS; at++) {
        const struct mem *mem = &s.mems[at];
        if (mem->handle == NULL || is_busy(at))
            continue;
        for (int queue = 0; queue < QUEUES; queue++) {
            if (s.queues[queue].handle == NULL)
                continue;
            memset(bytes, 0, sizeof bytes);
            const size_t origin[3] = {0}, region[3] = {mem->width, mem->height, mem->depth};
            const cl_int code = mem->is_image ? cl->clEnqueueReadImage(s.queues[queue].handle, mem->handle, CL_TRUE, origin, region, 0, 0, bytes, 0, NULL, NULL)
                                              : cl->clEnqueueReadBuffer(s.queues[queue].handle, mem->handle, CL_TRUE, 0, mem->size, bytes, 0, NULL, NULL);
            say("mem%d by queue%d %d %08x\n", at, queue, code, hash(bytes, sizeof bytes));
        }
    }
    wait_for(&called_for_event, expected_calls);
    say("calls of events %d\n", called_for_event);
    if (s.last != NULL)
        cl->clReleaseEvent(s.last);
    for (int at = 0; at < EVENTS; at++)
        for (; s.events[at].handle != NULL && s.events[at].references > 0; s.events[at].references--)
            cl->clReleaseEvent(s.events[at].handle);
    for (int at = 0; at < KERNELS; at++)
        release_slot_kernel(at);
    for (int at = 0; at < PROGRAMS; at++)
        release_slot_program(at);
    for (int at = MEMS - 1; at >= 0; at--)
        release_slot_mem(at);
    for (int at = 0; at < SAMPLERS; at++)
        if (s.samplers[at].handle != NULL)
            cl->clReleaseSampler(s.samplers[at].handle);
    for (int at = 0; at < SHARED; at++)
        if (s.shared[at].memory != NULL)
            cl->clSVMFree(s.contexts[s.shared[at].context], s.shared[at].memory);
    for (int at = 0; at < QUEUES; at++)
        for (; s.queues[at].handle != NULL && s.queues[at].references > 0; s.queues[at].references--)
            cl->clReleaseCommandQueue(s.queues[at].handle);
    for (int at = 0; at < SUBS; at++)
        if (s.subs[at] != NULL)
            cl->clReleaseDevice(s.subs[at]);
    for (int at = 0; at < CONTEXTS; at++)
        if (s.contexts[at] != NULL)
            cl->clReleaseContext(s.contexts[at]);
    for (int at = 0; at < s.kept_count; at++)
        free(s.kept[at]);
    free(s.host);
    say("end\n");
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--operations") == 0) {
        for (size_t at = 0; at < COUNT(OPERATIONS); at++)
            printf("%s %u\n", OPERATIONS[at].name, OPERATIONS[at].weight);
        return 0;
    }
    if (count != 3)
        return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    platform = chosen_platform();
    if (platform == NULL)
        return 4;
    cl = functions_of(platform);
    if (cl->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 8, devices, &device_count) != CL_SUCCESS || device_count == 0)
        return 4;
    spans = strcmp(arguments[1], "all") == 0;
    if (strcmp(arguments[1], "last") == 0)
        devices[0] = devices[device_count - 1];
    if (!spans)
        device_count = 1;
    with_svm = strcmp(arguments[2], "svm") == 0;
    char line[512];
    int is_open = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *rest = NULL, *name = strtok_r(line, " \n", &rest);
        if (name == NULL)
            continue;
        if (strcmp(name, "seq") == 0) {
            if (is_open)
                end();
            is_open = 1;
            begin(strtok_r(NULL, " \n", &rest));
            say("\n");
            continue;
        }
        memset(words, 0, sizeof words);
        word_at = 0;
        for (int at = 0; at < WORDS; at++) {
            const char *text = strtok_r(NULL, " \n", &rest);
            words[at] = text == NULL ? 0 : (unsigned)strtoul(text, NULL, 10);
        }
        for (size_t at = 0; is_open && at < COUNT(OPERATIONS); at++)
            if (strcmp(OPERATIONS[at].name, name) == 0) {
                say("%s", name);
                fflush(stdout);
                OPERATIONS[at].play();
                say("\n");
            }
    }
    if (is_open)
        end();
    return 0;
}
