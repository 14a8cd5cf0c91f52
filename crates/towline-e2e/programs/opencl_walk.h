/*
 * Things that the operations of opencl_walk.c share: the state of a sequence, handles chosen by a word, and commands with their order.
 */
#ifndef OPENCL_WALK_H
#define OPENCL_WALK_H

#undef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include "opencl_platform.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORDS 10
#define HOST_BYTES 16384
#define UNWRITTEN ((void *)0x5e5e5e5e)
#define COUNT(array) (sizeof(array) / sizeof(array)[0])
/* One of a list, by a word. */
#define PICK(word, ...) ((const size_t[]){__VA_ARGS__}[(word) % COUNT(((const size_t[]){__VA_ARGS__}))])

enum { CONTEXTS = 2, QUEUES = 3, MEMS = 6, PROGRAMS = 3, KERNELS = 4, EVENTS = 4, SAMPLERS = 2, SHARED = 3, MAPS = 3, SUBS = 2, ARGS = 5 };

static const struct _cl_icd_dispatch *cl;
static cl_platform_id platform;
static cl_device_id devices[8];
static cl_uint device_count;
static int spans, with_svm;

/* Where an argument of a kernel stands, for what may run without harm. */
struct argument {
    int is_set;
    size_t value;  /* of a number, or of the local memory's size */
    int mem, shared;
    unsigned birth;
};

struct mem {
    cl_mem handle;
    unsigned birth;
    size_t size, width, height, depth;
    cl_mem_flags flags;
    int references, is_image, parent, shared;
    unsigned shared_birth;
    unsigned char *host;
};

static struct state {
    cl_context contexts[CONTEXTS];
    struct { cl_command_queue handle; int context, out_of_order, references; } queues[QUEUES];
    struct mem mems[MEMS];
    struct { cl_program handle; int references, source, is_compiled; } programs[PROGRAMS];
    struct { cl_kernel handle; int references, which; struct argument args[ARGS]; } kernels[KERNELS];
    struct { cl_event handle; int references, is_user, is_pending, context; } events[EVENTS];
    struct { cl_sampler handle; int references; } samplers[SAMPLERS];
    struct { unsigned char *memory; size_t size; int context, is_mapped; unsigned birth; } shared[SHARED];
    struct { unsigned char *memory; int mem; size_t size; int writes; } maps[MAPS];
    cl_device_id subs[SUBS];
    int last_queue;
    cl_event last;
    unsigned births;
    unsigned char *host;
    unsigned char *kept[256];
    int kept_count;
} s;

static unsigned words[WORDS];
static int word_at;
static atomic_int called, called_for_mem, called_for_event;
static int expected_calls;

static unsigned word(void)
{
    return word_at < WORDS ? words[word_at++] : 0;
}

static void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
}

static void status(cl_int code)
{
    say(" = %d", code);
}

static unsigned hash(const void *bytes, size_t size)
{
    unsigned sum = 2166136261u;
    for (size_t at = 0; at < size; at++)
        sum = (sum ^ ((const unsigned char *)bytes)[at]) * 16777619u;
    return sum;
}

static const char *name_of(const void *handle)
{
    static char name[32];
    if (handle == NULL)
        return "null";
    if (handle == UNWRITTEN)
        return "unwritten";
#define SEEK(array, member, text)                                                                                                        \
    for (size_t at = 0; at < COUNT(s.array); at++)                                                                                       \
        if ((const void *)s.array[at] member == handle) {                                                                                \
            snprintf(name, sizeof name, text "%zu", at);                                                                                 \
            return name;                                                                                                                 \
        }
    SEEK(contexts, , "context")
    SEEK(queues, .handle, "queue")
    SEEK(mems, .handle, "mem")
    SEEK(programs, .handle, "program")
    SEEK(kernels, .handle, "kernel")
    SEEK(events, .handle, "event")
    SEEK(samplers, .handle, "sampler")
    SEEK(subs, , "sub")
    if (handle == (const void *)platform)
        return "platform";
    for (cl_uint at = 0; at < device_count; at++)
        if (handle == (const void *)devices[at])
            return "device";
    return "set";
}

/* ---- Handles by a word: mostly the slot's, seldom NULL. */
static cl_context context_by(unsigned w) { return w % 16 == 15 ? NULL : s.contexts[w % 8 == 7]; }
static int queue_slot(unsigned w) { return (int)(w % 4 == 3 ? w / 4 % QUEUES : w % 3); }
static int mem_slot(unsigned w) { return (int)(w % MEMS); }
static cl_mem mem_by(unsigned w) { return w % 32 == 31 ? NULL : s.mems[mem_slot(w)].handle; }
static cl_program program_by(unsigned w) { return w % 32 == 31 ? NULL : s.programs[w % PROGRAMS].handle; }
static cl_kernel kernel_by(unsigned w) { return w % 32 == 31 ? NULL : s.kernels[w % KERNELS].handle; }
static cl_event event_by(unsigned w) { return w % 16 == 15 ? NULL : s.events[w % EVENTS].handle; }
static cl_sampler sampler_by(unsigned w) { return w % 16 == 15 ? NULL : s.samplers[w % SAMPLERS].handle; }
static cl_device_id device_by(unsigned w)
{
    if (w % 16 == 15)
        return NULL;
    if (w % 16 == 14)
        return s.subs[w / 16 % SUBS];
    return devices[w % device_count];
}

static void release_slot_mem(int at)
{
    struct mem *mem = &s.mems[at];
    for (; mem->handle != NULL && mem->references > 0; mem->references--)
        cl->clReleaseMemObject(mem->handle);
    mem->handle = NULL;
}

/* What waits for user events would wait for ever. */
static void settle(void)
{
    for (int at = 0; at < EVENTS; at++)
        if (s.events[at].is_user && s.events[at].is_pending && s.events[at].handle != NULL) {
            cl->clSetUserEventStatus(s.events[at].handle, CL_COMPLETE);
            s.events[at].is_pending = 0;
        }
}

static void finish_all(void)
{
    settle();
    for (int at = 0; at < QUEUES; at++)
        if (s.queues[at].handle != NULL)
            cl->clFinish(s.queues[at].handle);
}

/* ---- Commands: each behind the one before, whatever its queue. */
struct command {
    int slot, is_blocking, wants_event, is_well_formed;
    cl_command_queue queue;
    cl_uint count;
    const cl_event *list;
    cl_event made;
};

static struct command command(int can_block)
{
    static cl_event waits[3];
    struct command c = {.made = UNWRITTEN};
    const unsigned which = word(), how = word();
    c.slot = queue_slot(which);
    c.queue = which % 32 == 31 ? NULL : s.queues[c.slot].handle;
    c.is_blocking = can_block && how % 2 == 0;
    if (c.is_blocking)
        settle();
    if (c.queue != NULL && s.last_queue >= 0 && (s.queues[c.slot].out_of_order || s.last_queue != c.slot)) {
        if (s.last != NULL && s.queues[s.last_queue].context == s.queues[c.slot].context)
            waits[c.count++] = s.last;
        else
            finish_all();
    }
    switch (how / 2 % 16) {
    case 12: /* an event of a slot */
    case 13:
        waits[c.count++] = event_by(how / 32);
        break;
    case 14:
        c.list = how & 64 ? &s.last : NULL;
        c.count = how & 64 ? 0 : 1;
        break;
    }
    if (how / 2 % 16 != 14 && c.count > 0)
        c.list = waits;
    c.is_well_formed = how / 2 % 16 != 14 && (c.count == 0 || waits[c.count - 1] != NULL);
    c.wants_event = how / 2 % 4 != 1;
    say(" %s wait %u%s", name_of(c.queue), c.count, c.is_blocking ? " blocking" : "");
    return c;
}

static cl_event *event_of(struct command *c)
{
    return c->wants_event ? &c->made : NULL;
}

static void commanded(struct command *c, cl_int code)
{
    status(code);
    if (c->wants_event)
        say(" event %s", c->made == UNWRITTEN ? "unwritten" : c->made == NULL ? "null" : "made");
    if (code != CL_SUCCESS)
        return;
    if (s.last != NULL)
        cl->clReleaseEvent(s.last);
    s.last = c->wants_event ? c->made : NULL;
    s.last_queue = c->slot;
    const unsigned keep = word();
    if (s.last != NULL && keep % 2 == 1) {
        const int at = (int)(keep / 2 % EVENTS);
        if (s.events[at].is_pending)
            settle();
        for (; s.events[at].handle != NULL && s.events[at].references > 0; s.events[at].references--)
            cl->clReleaseEvent(s.events[at].handle);
        cl->clRetainEvent(s.last);
        s.events[at].handle = s.last;
        s.events[at].references = 1;
        s.events[at].is_user = 0;
        s.events[at].context = s.queues[c->slot].context;
    }
}

static void created(const void *handle, cl_int code)
{
    say(" = %s %d", handle == NULL ? "null" : "made", code);
}

#endif
