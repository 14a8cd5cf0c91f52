/* Carries out sequences of calls of the CUDA driver or of the runtime library, read as text, and prints what each call answered: the
 * status, and every byte that it wrote. Handles are printed by their names, addresses by object and offset, so that two runs of one text
 * can be compared.
 *
 *   differ [--library NAME] [--runtime NAME] [--timeout SECONDS] FILE
 *
 * DIFFER_RUNTIME names the runtime library too, and comes first, so that a side of a comparison may have its own.
 *
 * The text is in README.md. The process that reads it never loads the driver: batches of sequences run in forked children, and a sequence
 * that ends its child (a signal, or one that takes too long) costs the others nothing.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef uint64_t u64;

enum {
    /* In registers, and in all. */
    MAX_REGISTERS = 6,
    MAX_ARGUMENTS = 14,
    MAX_THREADS = 4,
    MAX_SLOTS = 512,
    MAX_FIELDS = 96,
    ARENA_BYTES = 1 << 20,
    OUTPUT_BYTES = 8 << 20,
    MAX_NAMED = 4096,
    DUMP_BYTES = 1 << 20,
    UNTOUCHED = 0xcd,
    BATCH = 400,
};

/* What the children say lies in memory that outlives them. */
struct shared {
    volatile size_t length;
    volatile size_t sequence;
    volatile int dead_context;
    char text[OUTPUT_BYTES];
};

/* An object with a name in the text: a letter for its kind, and a number; and the context that was current when it was made. */
struct slot {
    char kind;
    int number;
    u64 value, context;
    size_t size;
    int alive;
    unsigned age;
};

struct field {
    char type;
    size_t offset, size;
};

/* A block of memory that a call was given. */
struct block {
    unsigned char *memory;
    unsigned char before[2048];
    size_t size;
    struct field fields[MAX_FIELDS];
    int count;
    char shape; /* '@' for a place of output, '{' for a structure */
};

struct named {
    u64 value;
    int number;
};

static struct shared *shared;
static struct slot slots[MAX_SLOTS];
static int slot_count;
static unsigned age;
static unsigned char *arena;
static size_t arena_used;
static struct block blocks[MAX_ARGUMENTS * 4];
static int block_count;
static struct named named[MAX_NAMED];
static int named_count;
static u64 callbacks;
static const char *library_name = "libcuda.so.1", *runtime_name;
static void *library, *runtime;
static unsigned timeout_s = 20;

static const char PTX[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 8 .b8 table[64];\n"
    ".visible .const .align 4 .b32 fixed = 7;\n"
    ".visible .entry add_one(.param .u64 data, .param .u32 count) { .reg .b64 %d<3>; .reg .b32 %r<6>; .reg .pred %p<2>;\n"
    "ld.param.u64 %d0, [data]; ld.param.u32 %r0, [count]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x;\n"
    "mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r3, %r2, %r1;\n"
    "setp.ge.u32 %p0, %r1, %r0; @%p0 ret; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %d0;\n"
    "ld.global.u32 %r4, [%d1]; add.u32 %r4, %r4, 1; st.global.u32 [%d1], %r4; ret; }\n"
    ".visible .entry scale(.param .u64 data, .param .u32 count, .param .u32 factor) { .reg .b64 %d<3>; .reg .b32 %r<6>;\n"
    ".reg .pred %p<2>; ld.param.u64 %d0, [data]; ld.param.u32 %r0, [count]; ld.param.u32 %r5, [factor]; mov.u32 %r1, %tid.x;\n"
    "setp.ge.u32 %p0, %r1, %r0; @%p0 ret; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %d0;\n"
    "ld.global.u32 %r4, [%d1]; mul.lo.u32 %r4, %r4, %r5; st.global.u32 [%d1], %r4; ret; }\n"
    ".visible .entry nothing() { ret; }\n"
    ".visible .entry shares(.param .u64 data) { .reg .b64 %d<3>; .reg .b32 %r<3>; .shared .align 4 .b8 own[64];\n"
    "ld.param.u64 %d0, [data]; mov.u32 %r0, 11; st.shared.u32 [own], %r0; ld.shared.u32 %r1, [own]; st.global.u32 [%d0], %r1; ret; }\n";
/* Two variables that the host sees as well, of which other modules see one. */
static const char MANAGED_PTX[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".global .attribute(.managed) .align 4 .u32 own = 10;\n.visible .global .attribute(.managed) .align 4 .u32 seen = 100;\n"
    ".visible .entry raise(.param .u64 data) { .reg .b64 %d<1>; .reg .b32 %r<2>; ld.param.u64 %d0, [data];\n"
    "ld.global.u32 %r0, [%d0]; add.u32 %r0, %r0, 20; st.global.u32 [%d0], %r0;\n"
    "ld.global.u32 %r1, [seen]; add.u32 %r1, %r1, 30; st.global.u32 [seen], %r1; ret; }\n";
static const char SMALL_PTX[] = ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry other() { ret; }\n";
static const char BROKEN_PTX[] = ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry broken( { ret; }\n";
static const char GARBAGE[] = "this is no image of a module, however long one looks at it";

static void say(const char *format, ...)
{
    va_list list;
    const size_t room = OUTPUT_BYTES - shared->length;
    va_start(list, format);
    const int count = vsnprintf(shared->text + shared->length, room, format, list);
    va_end(list);
    if (count > 0 && (size_t)count < room)
        shared->length += (size_t)count;
}

static void die(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "differ: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    _exit(3);
}

static int is_runtime(const char *name)
{
    return strncmp(name, "cuda", 4) == 0;
}

static void *find(const char *name)
{
    void **from = is_runtime(name) ? &runtime : &library;
    char plain[96];
    if (*from == NULL && (*from = dlopen(from == &runtime ? runtime_name : library_name, RTLD_NOW)) == NULL)
        die("%s", dlerror());
    void *found = dlsym(*from, name);
    /* CUDA 13 has the newer form of CUDA 12 under the plain name. */
    const char *version = found == NULL && is_runtime(name) ? strstr(name, "_v") : NULL;
    if (version != NULL) {
        snprintf(plain, sizeof plain, "%.*s", (int)(version - name), name);
        found = dlsym(*from, plain);
    }
    return found;
}

static int invoke(const char *name, const u64 *a)
{
    typedef int (*function)(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64);
    function call;
    *(void **)&call = find(name);
    if (call == NULL)
        return -1;
    /* Integers and pointers only, so that arguments in excess do no harm. */
    return call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13]);
}

#define INVOKE(name, ...) invoke(name, (u64[MAX_ARGUMENTS]){__VA_ARGS__})

static u64 number_of(const void *pointer)
{
    return (u64)(uintptr_t)pointer;
}

static void *pointer_of(u64 number)
{
    return (void *)(uintptr_t)number;
}

/* Functions of the application. What they leave is the same in any order, since that of two streams is nobody's. */
static void on_host(void *data)
{
    callbacks += 1 + 16 * number_of(data);
}

static void on_stream(void *stream, int status, void *data)
{
    (void)stream;
    callbacks += 1 + 16 * number_of(data) + 4096 * (u64)status;
}

static void *carve(size_t size)
{
    size = (size + 31) & ~(size_t)15;
    if (arena_used + size > ARENA_BYTES)
        die("a sequence needs too much memory");
    void *memory = arena + arena_used;
    arena_used += size;
    return memory;
}

static int is_memory(char kind)
{
    return strchr("mvnhaw", kind) != NULL;
}

static struct slot *slot_of(char kind, int number)
{
    for (int at = 0; at < slot_count; at++)
        if (slots[at].kind == kind && slots[at].number == number)
            return &slots[at];
    if (slot_count == MAX_SLOTS)
        die("too many objects");
    struct slot *slot = &slots[slot_count++];
    *slot = (struct slot){.kind = kind, .number = number};
    return slot;
}

/* Says what a word of output is: an object, a place in one, a number, or the nth value unknown so far. */
static void say_word(u64 value)
{
    const struct slot *best = NULL;
    u64 sentinel;
    memset(&sentinel, UNTOUCHED, sizeof sentinel);
    if (value == sentinel) {
        say("-");
        return;
    }
    for (int at = 0; at < slot_count && value != 0; at++) {
        const struct slot *slot = &slots[at];
        const int inside = is_memory(slot->kind) ? value >= slot->value && value < slot->value + slot->size + (slot->size == 0)
                                                 : value == slot->value;
        if (slot->alive && inside && (best == NULL || slot->age > best->age))
            best = slot;
    }
    if (best != NULL) {
        say("%c%d", best->kind, best->number);
        if (value != best->value)
            say("+%llu", (unsigned long long)(value - best->value));
        return;
    }
    if (value < 1 << 20 || value + 4096 < 4096 + 4096) {
        say("%lld", (long long)value);
        return;
    }
    for (int at = 0; at < named_count; at++)
        if (named[at].value == value) {
            say("#%d", named[at].number);
            return;
        }
    if (named_count < MAX_NAMED) {
        named[named_count] = (struct named){value, named_count};
        say("#%d", named_count);
        named_count++;
    }
}

static u64 load(const unsigned char *at, size_t size)
{
    u64 value = 0;
    memcpy(&value, at, size);
    return value;
}

static void say_bytes(const unsigned char *bytes, size_t size)
{
    int runs = 0;
    u64 hash = 0xcbf29ce484222325u;
    for (size_t at = 0; at < size; at++)
        hash = (hash ^ bytes[at]) * 0x100000001b3u;
    say("[%zu %016llx", size, (unsigned long long)hash);
    for (size_t at = 0; at < size && runs < 16; runs++) {
        size_t end = at + 1;
        while (end < size && bytes[end] == bytes[at])
            end++;
        say(end - at > 1 ? " %02x*%zu" : " %02x", bytes[at], end - at);
        at = end;
    }
    say("]");
}

static void say_field(const struct field *field, const unsigned char *memory)
{
    const unsigned char *at = memory + field->offset;
    size_t changed = 0;
    switch (field->type) {
    case 'd': {
        const uint32_t value = (uint32_t)load(at, 4);
        if (value == 0xcdcdcdcdu)
            say("-");
        else
            say("%d", (int)value);
        break;
    }
    case 'q':
    case 'p':
        say_word(load(at, 8));
        break;
    case '#': {
        const u64 value = load(at, field->size);
        for (int k = 0; k < named_count; k++)
            if (named[k].value == (value ^ 0x5a5a000000000000u)) {
                say("#%d", named[k].number);
                return;
            }
        if (named_count < MAX_NAMED) {
            named[named_count] = (struct named){value ^ 0x5a5a000000000000u, named_count};
            say("#%d", named_count++);
        }
        break;
    }
    case 's':
        say("\"%.*s\"", (int)strnlen((const char *)at, field->size), (const char *)at);
        break;
    case 'z': {
        const char *told = pointer_of(load(at, 8));
        u64 sentinel;
        memset(&sentinel, UNTOUCHED, sizeof sentinel);
        if (number_of(told) == sentinel || told == NULL)
            say(told == NULL ? "NULL" : "-");
        else
            say("\"%s\"", told);
        break;
    }
    case '?':
        for (size_t k = 0; k < field->size; k++)
            changed += at[k] != UNTOUCHED;
        say(changed ? "written" : "-");
        break;
    default:
        say_bytes(at, field->size);
    }
}

/* Reading of arguments. */

static const char *text;

static void expect(char wanted)
{
    if (*text != wanted)
        die("'%c' is expected at: %s", wanted, text);
    text++;
}

static long long number(void)
{
    char *end;
    const long long value = text[0] == '0' && text[1] == 'x' ? (long long)strtoull(text, &end, 16) : strtoll(text, &end, 10);
    if (end == text)
        die("a number is expected at: %s", text);
    text = end;
    return value;
}

static int is_slot(const char *at)
{
    return islower((unsigned char)at[0]) && isdigit((unsigned char)at[1]);
}

static struct slot *a_slot(void)
{
    const char kind = *text++;
    return slot_of(kind, (int)number());
}

struct ends {
    struct slot *born[MAX_ARGUMENTS];
    u64 *places[MAX_ARGUMENTS];
    size_t sizes[MAX_ARGUMENTS];
    int births;
    struct slot *gone;
};

/* Arguments as the calling convention of x86-64 has them. */
struct arguments {
    u64 values[MAX_ARGUMENTS];
    int registers, stack;
};

static u64 argument(struct ends *ends);

static struct block *a_block(char shape)
{
    if (block_count == MAX_ARGUMENTS * 4)
        die("too many structures");
    struct block *block = &blocks[block_count++];
    *block = (struct block){.shape = shape};
    return block;
}

static void add_field(struct block *block, char type, size_t offset, size_t size)
{
    if (block->count == MAX_FIELDS)
        die("too many fields");
    block->fields[block->count++] = (struct field){type, offset, size};
    block->size = offset + size;
}

/* A place for output: @q @d @p for a word, @p8 for eight, @z for a string's address; @s32 for text, @b16 for bytes, @#8 for a number that
 * only has to be another or the same, @?4 for what differs from run to run. */
static u64 a_place(void)
{
    struct block *block = a_block('@');
    const char type = *text++;
    size_t count = isdigit((unsigned char)*text) ? (size_t)number() : 1;
    if (strchr("qpdz", type) != NULL) {
        const size_t size = type == 'd' ? 4 : 8;
        for (size_t at = 0; at < count; at++)
            add_field(block, type, at * size, size);
        block->size = count * size;
    } else {
        add_field(block, type, 0, count);
    }
    block->memory = carve(block->size + 16);
    memset(block->memory, UNTOUCHED, block->size + 16);
    return number_of(block->memory);
}

/* {d:1,q:m0,z:16,...}: a structure, in which d is aligned to 4 and q to 8 bytes, w and c are 2 and 1 bytes, and z so many zeros. */
static u64 a_structure(struct ends *ends)
{
    unsigned char memory[2048];
    struct block *block = a_block('{');
    size_t offset = 0;
    memset(memory, 0, sizeof memory);
    while (*text != '}') {
        const char type = *text++;
        expect(':');
        if (type == 'z') {
            offset += (size_t)number();
        } else {
            const size_t size = type == 'd' ? 4 : type == 'w' ? 2 : type == 'c' ? 1 : 8;
            const u64 value = argument(ends);
            offset = (offset + size - 1) / size * size;
            if (offset + size > sizeof memory)
                die("a structure is too large");
            memcpy(memory + offset, &value, size);
            if (size >= 4)
                add_field(block, size == 4 ? 'd' : 'q', offset, size);
            offset += size;
        }
        if (*text == ',')
            text++;
    }
    expect('}');
    if (offset > sizeof memory)
        die("a structure is too large");
    block->size = offset;
    block->memory = carve(offset + 16);
    memcpy(block->memory, memory, offset);
    memcpy(block->before, memory, offset);
    return number_of(block->memory);
}

static void pass(struct arguments *to, const u64 *words, int count)
{
    const int held = count <= 2 && to->registers + count <= MAX_REGISTERS;
    int *used = held ? &to->registers : &to->stack;
    u64 *place = to->values + (held ? 0 : MAX_REGISTERS) + *used;
    *used += count;
    if (to->stack > MAX_ARGUMENTS - MAX_REGISTERS)
        die("too many arguments");
    memcpy(place, words, (size_t)count * sizeof *words);
}

/* (d:1,q:2): a structure by value. */
static void pass_structure(struct arguments *to, struct ends *ends)
{
    u64 words[MAX_ARGUMENTS] = {0};
    size_t offset = 0;
    while (*text != ')') {
        const size_t size = *text++ == 'd' ? 4 : 8;
        expect(':');
        const u64 value = argument(ends);
        offset = (offset + size - 1) / size * size;
        if (offset + size > sizeof words)
            die("a structure is too large");
        memcpy((unsigned char *)words + offset, &value, size);
        offset += size;
        if (*text == ',')
            text++;
    }
    expect(')');
    pass(to, words, (int)((offset + 7) / 8));
}

/* ^[q:m0,d:16]: an array of pointers to values. */
static u64 pointers(struct ends *ends)
{
    u64 *list = carve(32 * sizeof *list);
    int count = 0;
    expect('[');
    while (*text != ']') {
        const char type = *text++;
        expect(':');
        const u64 value = argument(ends);
        unsigned char *place = carve(8);
        memcpy(place, &value, type == 'd' ? 4 : 8);
        if (count == 31)
            die("too many parameters");
        list[count++] = number_of(place);
        if (*text == ',')
            text++;
    }
    expect(']');
    return number_of(list);
}

static u64 a_word(void)
{
    static const struct {
        const char *name;
        const void *value;
    } words[] = {{"ptx", PTX}, {"small", SMALL_PTX}, {"managed", MANAGED_PTX}, {"broken", BROKEN_PTX}, {"garbage", GARBAGE}, {"empty", ""}};
    char name[16];
    size_t length = 0;
    while (islower((unsigned char)*text) && length + 1 < sizeof name)
        name[length++] = *text++;
    name[length] = 0;
    for (size_t at = 0; at < sizeof words / sizeof *words; at++)
        if (strcmp(words[at].name, name) == 0)
            return number_of(words[at].value);
    if (strcmp(name, "host") == 0) {
        void (*function)(void *) = on_host;
        return number_of(*(void **)&function);
    }
    if (strcmp(name, "stream") == 0) {
        void (*function)(void *, int, void *) = on_stream;
        return number_of(*(void **)&function);
    }
    die("nothing is named %s", name);
    return 0;
}

static u64 argument(struct ends *ends)
{
    switch (*text) {
    case '&': {
        text++;
        if (ends->births == MAX_ARGUMENTS)
            die("too many results");
        struct slot *slot = a_slot();
        u64 *place = carve(sizeof *place);
        memset(place, UNTOUCHED, sizeof *place);
        ends->born[ends->births] = slot;
        ends->places[ends->births] = place;
        ends->sizes[ends->births] = 0;
        if (*text == ':') {
            text++;
            ends->sizes[ends->births] = (size_t)number();
        }
        ends->births++;
        return number_of(place);
    }
    case '~':
        text++;
        ends->gone = a_slot();
        return ends->gone->value;
    case '@':
        text++;
        return a_place();
    case '{':
        text++;
        return a_structure(ends);
    case '^':
        text++;
        return pointers(ends);
    case '$':
        text++;
        return a_word();
    case '"': {
        char *copy = carve(256);
        size_t length = 0;
        text++;
        while (*text != '"' && *text != 0 && length < 255)
            copy[length++] = *text++;
        copy[length] = 0;
        expect('"');
        return number_of(copy);
    }
    case 'N':
        if (strncmp(text, "NULL", 4) != 0)
            die("what is %s", text);
        text += 4;
        return 0;
    default:
        break;
    }
    if (!is_slot(text))
        return (u64)number();
    const u64 value = a_slot()->value;
    const u64 offset = *text == '+' || *text == '-' ? (u64)number() : 0;
    /* Places in what was never made are NULL: nobody checks other small numbers. */
    return value == 0 ? 0 : value + offset;
}

/* The object is there, and memory has the same contents everywhere. */
static void bring(struct slot *slot, u64 value, size_t size)
{
    int device = 0;
    slot->value = value;
    slot->size = size;
    slot->alive = value != 0;
    slot->age = ++age;
    slot->context = 0;
    INVOKE("cuCtxGetCurrent", number_of(&slot->context));
    if (slot->alive && strchr("mv", slot->kind) != NULL && slot->size > 0) {
        u64 mode = 2;
        INVOKE("cuCtxGetDevice", number_of(&device));
        INVOKE("cuThreadExchangeStreamCaptureMode", number_of(&mode));
        INVOKE("cuMemsetD8Async", slot->value, 0x40 + (u64)slot->number, slot->size, slot_of('s', 99 - device)->value);
        INVOKE("cuStreamSynchronize", slot_of('s', 99 - device)->value);
        INVOKE("cuThreadExchangeStreamCaptureMode", number_of(&mode));
    }
    if (slot->alive && slot->kind == 'n')
        memset(pointer_of(value), 0x50 + slot->number, slot->size);
}

/* Objects of a context end with it. */
static void end_context(u64 context, const char *kinds)
{
    for (int at = 0; at < slot_count; at++)
        if (slots[at].context == context && strchr(kinds, slots[at].kind) != NULL)
            slots[at].alive = 0;
}

static void give_birth(const struct ends *ends, int status)
{
    u64 sentinel;
    memset(&sentinel, UNTOUCHED, sizeof sentinel);
    for (int at = 0; at < ends->births; at++) {
        struct slot *slot = ends->born[at];
        const u64 value = *ends->places[at];
        if (status != 0 || value == sentinel) {
            if (value != sentinel) {
                say(" ");
                say_word(value);
            }
            continue;
        }
        if (value == 0)
            say(" 0");
        if (value % 256 != 0 && slot->kind == 'm')
            say(" %c%d is not aligned", slot->kind, slot->number);
        bring(slot, value, ends->sizes[at]);
    }
}

static void say_blocks(void)
{
    for (int at = 0; at < block_count; at++) {
        const struct block *block = &blocks[at];
        if (block->shape == '@') {
            for (int k = 0; k < block->count; k++) {
                say(" ");
                say_field(&block->fields[k], block->memory);
            }
            for (size_t k = 0; k < 16; k++)
                if (block->memory[block->size + k] != UNTOUCHED) {
                    say(" OVERRUN");
                    break;
                }
            continue;
        }
        for (int k = 0; k < block->count; k++) {
            const struct field *field = &block->fields[k];
            if (memcmp(block->memory + field->offset, block->before + field->offset, field->size) != 0) {
                say(" .%d=", k);
                say_field(field, block->memory);
            }
        }
    }
}

/* host hN SIZE: memory of the application. fill hN VALUE: other contents. */
static void make_host(void)
{
    struct slot *slot = a_slot();
    expect(' ');
    slot->size = (size_t)number();
    slot->value = number_of(aligned_alloc(4096, (slot->size + 4095) / 4096 * 4096));
    slot->alive = 1;
    slot->age = ++age;
    for (size_t at = 0; at < slot->size; at++)
        ((unsigned char *)pointer_of(slot->value))[at] = (unsigned char)(at / 16 * 7 + (size_t)slot->number);
    say("\n");
}

static void fill_host(void)
{
    const struct slot *slot = a_slot();
    expect(' ');
    const int value = (int)number();
    if (slot->alive && slot->value != 0 && strchr("hnvw", slot->kind) != NULL)
        memset(pointer_of(slot->value), value, slot->size);
    say("\n");
}

/* A field of the last call's structure. */
static u64 a_field(void)
{
    expect(' ');
    const size_t at = (size_t)number();
    for (int k = 0; k < block_count; k++)
        if (blocks[k].shape == '{' && at < (size_t)blocks[k].count)
            return load(blocks[k].memory + blocks[k].fields[at].offset, 8);
    return 0;
}

/* body yN FIELD: the graph to which a field leads. */
static void take_body(void)
{
    struct slot *slot = a_slot();
    const u64 place = a_field();
    bring(slot, place == 0 ? 0 : load(pointer_of(place), 8), 0);
    say(" = %s\n", slot->value == 0 ? "none" : "a graph");
}

/* take mN:SIZE FIELD: the object that a field names. */
static void take_field(void)
{
    struct slot *slot = a_slot();
    expect(':');
    const size_t size = (size_t)number();
    bring(slot, a_field(), size);
    say(" = %s\n", slot->value == 0 ? "none" : "an object");
}

/* Whether a call's status may be one of two because it depends on time. */
static int depends_on_time(const char *name)
{
    const char *rest = name + (is_runtime(name) ? 4 : 2);
    return strcmp(rest, "StreamQuery") == 0 || strcmp(rest, "EventQuery") == 0;
}

/* Words of ours. Before a call the number of its thread may stand: t1:cuCtxSynchronize. */
static const struct word {
    const char *name;
    void (*go)(void);
} words_of_ours[] = {{"host ", make_host}, {"fill ", fill_host}, {"body ", take_body}, {"take ", take_field}};

static const struct word *our_word(const char *line)
{
    for (size_t at = 0; at < sizeof words_of_ours / sizeof *words_of_ours; at++)
        if (strncmp(line, words_of_ours[at].name, 5) == 0)
            return &words_of_ours[at];
    return NULL;
}

static const char *without_thread(const char *line)
{
    return line[0] == 't' && isdigit((unsigned char)line[1]) && line[2] == ':' ? line + 3 : line;
}

static int is_call(const char *line)
{
    line = without_thread(line);
    return line[0] == 'c' && line[1] == 'u' && (isupper((unsigned char)line[2]) || is_runtime(line));
}

static void perform_here(const void *given)
{
    const char *const line = without_thread(given);
    char name[96];
    struct arguments arguments = {.registers = 0};
    struct ends ends = {.births = 0};
    size_t length = strcspn(line, " ");
    if (length >= sizeof name)
        die("a name is too long: %s", line);
    memcpy(name, line, length);
    name[length] = 0;
    say("  %s", (const char *)given);
    text = line + length;
    const struct word *ours = our_word(line);
    if (ours != NULL) {
        expect(' ');
        ours->go();
        return;
    }
    block_count = 0;
    while (*text == ' ') {
        text++;
        if (*text == '(') {
            text++;
            pass_structure(&arguments, &ends);
        } else {
            const u64 value = argument(&ends);
            pass(&arguments, &value, 1);
        }
    }
    if (*text != 0)
        die("what is %s in %s", text, line);
    say(" =");
    if (strncmp(name, "cudaGetError", 12) == 0) {
        const char *(*tell)(u64);
        *(void **)&tell = find(name);
        say(" 0 \"%s\"\n", tell(arguments.values[0]));
        return;
    }
    u64 context = 0;
    if (strcmp(name, "cudaDeviceReset") == 0)
        INVOKE("cuCtxGetCurrent", number_of(&context));
    const int status = invoke(name, arguments.values);
    const int late = status == 600 && depends_on_time(name);
    say(" %d", late ? 0 : status);
    /* The thread's last error tells of each failure; that a stream has work to do is none. */
    if (late && is_runtime(name))
        INVOKE("cudaGetLastError", 0);
    else if (status != 0 && is_runtime(name) && strstr(name, "LastError") == NULL)
        say(" last %d", INVOKE("cudaPeekAtLastError", 0));
    give_birth(&ends, status);
    say_blocks();
    say("\n");
    if (status != 0)
        return;
    if (ends.gone != NULL)
        ends.gone->alive = 0;
    if (ends.gone != NULL && ends.gone->kind == 'c')
        end_context(ends.gone->value, "mvnsedf");
    if (context != 0)
        end_context(context, "mvnsedflrpaw");
}

/* Threads. Each carries out calls that it is handed, one at a time and one thread at a time, so that the order is the text's. */

static struct thread {
    pthread_t id;
    int started;
    void (*go)(const void *);
    const void *argument;
    sem_t given, done;
} threads[MAX_THREADS];

static void *serve(void *given)
{
    struct thread *self = given;
    for (;;) {
        while (sem_wait(&self->given) != 0)
            ;
        if (self->go == NULL)
            return NULL;
        self->go(self->argument);
        sem_post(&self->done);
    }
}

/* Has a thread do something, and waits. The first is the one that reads the text. */
static void hand(int number, void (*go)(const void *), const void *argument)
{
    if (number == 0) {
        go(argument);
        return;
    }
    struct thread *thread = &threads[number];
    if (!thread->started) {
        sem_init(&thread->given, 0, 0);
        sem_init(&thread->done, 0, 0);
        if (pthread_create(&thread->id, NULL, serve, thread) != 0)
            die("no thread");
        thread->started = 1;
    }
    thread->go = go;
    thread->argument = argument;
    sem_post(&thread->given);
    while (sem_wait(&thread->done) != 0)
        ;
}

static void end_threads(void)
{
    for (int at = 1; at < MAX_THREADS; at++)
        if (threads[at].started) {
            threads[at].go = NULL;
            sem_post(&threads[at].given);
            pthread_join(threads[at].id, NULL);
            threads[at].started = 0;
        }
}

static void perform(const char *line)
{
    const int number = without_thread(line) == line ? 0 : line[1] - '0';
    if (number >= MAX_THREADS)
        die("too many threads: %s", line);
    hand(number, perform_here, line);
}

/* Calls that only the thread that began a capture may make. */
static void end_captures(const void *unused)
{
    u64 mode = 2, graph;
    (void)unused;
    INVOKE("cuThreadExchangeStreamCaptureMode", number_of(&mode));
    for (int at = 0; at < slot_count; at++) {
        const struct slot *slot = &slots[at];
        uint32_t state = 0;
        if (slot->kind == 's' && slot->alive && INVOKE("cuStreamIsCapturing", slot->value, number_of(&state)) == 0 && state != 0) {
            graph = 0;
            if (INVOKE("cuStreamEndCapture", slot->value, number_of(&graph)) == 0 && graph != 0)
                INVOKE("cuGraphDestroy", graph);
        }
    }
}

/* Objects below this number are a sequence's own; the others are of the prologue. */
enum { LASTING = 90 };

/* The current context reaches no other's memory in the next sequence. */
static void end_peers(void)
{
    for (int at = 0; at < slot_count && slot_of('c', 97)->alive; at++)
        if (slots[at].kind == 'c' && slots[at].alive)
            INVOKE("cuCtxDisablePeerAccess", slots[at].value);
}

static void end_sequence(void)
{
    static const struct {
        char kind;
        const char *driver, *runtime;
    } ends[] = {{'x', "cuGraphExecDestroy", "cudaGraphExecDestroy"},
                {'g', "cuGraphDestroy", "cudaGraphDestroy"},
                {'s', "cuStreamDestroy_v2", "cudaStreamDestroy"},
                {'e', "cuEventDestroy_v2", "cudaEventDestroy"},
                {'m', "cuMemFree_v2", "cudaFree"},
                {'v', "cuMemFree_v2", "cudaFree"},
                {'n', "cuMemFreeHost", "cudaFreeHost"},
                {'p', "cuMemPoolDestroy", "cudaMemPoolDestroy"},
                {'d', "cuModuleUnload", "cuModuleUnload"},
                {'l', "cuLibraryUnload", "cudaLibraryUnload"},
                {'c', "cuCtxDestroy_v2", "cuCtxDestroy_v2"}};
    u64 mode = 0, popped;
    /* Whatever the sequence did to the thread, the first context is its own again. */
    for (int at = MAX_THREADS - 1; at >= 0; at--)
        if (at == 0 || threads[at].started)
            hand(at, end_captures, NULL);
    end_threads();
    for (int at = 0; at < 8 && INVOKE("cuCtxPopCurrent_v2", number_of(&popped)) == 0; at++)
        ;
    INVOKE("cuCtxPushCurrent_v2", slot_of('c', 99)->value);
    for (int at = 0; at < slot_count; at++)
        if (slots[at].kind == 'c' && slots[at].alive && slots[at].number < 99 && INVOKE("cuCtxPushCurrent_v2", slots[at].value) == 0) {
            say("  c%d = %d\n", slots[at].number, INVOKE("cuCtxSynchronize", 0));
            end_peers();
            INVOKE("cuCtxPopCurrent_v2", number_of(&popped));
        }
    end_peers();
    const int status = INVOKE("cuCtxSynchronize", 0);
    say("  at the end = %d callbacks %llx\n", status, (unsigned long long)callbacks);
    static unsigned char copy[DUMP_BYTES];
    for (int at = 0; at < slot_count; at++) {
        const struct slot *slot = &slots[at];
        if (!slot->alive || slot->size == 0 || slot->size > DUMP_BYTES || strchr("mvnhw", slot->kind) == NULL)
            continue;
        /* What a fault leaves of memory that the host shares is nobody's promise. */
        if (status != 0 && strchr("vnw", slot->kind) != NULL)
            continue;
        int copied = 0;
        if (slot->kind == 'm')
            copied = INVOKE("cuMemcpyDtoH_v2", number_of(copy), slot->value, slot->size);
        else
            memcpy(copy, pointer_of(slot->value), slot->size);
        say("  %c%d = %d ", slot->kind, slot->number, copied);
        if (copied == 0)
            say_bytes(copy, slot->size);
        say("\n");
    }
    shared->dead_context = status != 0;
    for (size_t kind = 0; kind < sizeof ends / sizeof *ends; kind++)
        for (int at = slot_count - 1; at >= 0; at--)
            if (slots[at].kind == ends[kind].kind && slots[at].alive && slots[at].number < LASTING)
                INVOKE(runtime_name != NULL ? ends[kind].runtime : ends[kind].driver, slots[at].value);
    for (int at = 0; at < slot_count; at++)
        if (slots[at].kind == 'h' && slots[at].alive && slots[at].number < LASTING) {
            INVOKE("cuMemHostUnregister", slots[at].value);
            free(pointer_of(slots[at].value));
        }
    INVOKE("cuThreadExchangeStreamCaptureMode", number_of(&mode));
    if (runtime_name != NULL) {
        INVOKE("cudaSetDevice", 0);
        INVOKE("cudaGetLastError", 0);
    }
    int kept = 0;
    for (int at = 0; at < slot_count; at++)
        if (slots[at].number >= LASTING)
            slots[kept++] = slots[at];
    slot_count = kept;
    named_count = 0;
    callbacks = 0;
    arena_used = 0;
}

/* Sequences of the file. */

struct sequence {
    char *name;
    char **lines;
    size_t count;
    int fresh;
};

static struct sequence *sequences;
static size_t sequence_count;

static void read_sequences(FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    struct sequence *open = NULL;
    while ((length = getline(&line, &room, file)) >= 0) {
        while (length > 0 && isspace((unsigned char)line[length - 1]))
            line[--length] = 0;
        const char *at = line + strspn(line, " ");
        char *answer = strstr(line, " = ");
        if (answer != NULL)
            *answer = 0;
        if (*at == 0 || *at == '#')
            continue;
        if (strncmp(at, "sequence ", 9) == 0) {
            sequences = realloc(sequences, (sequence_count + 1) * sizeof *sequences);
            open = &sequences[sequence_count++];
            *open = (struct sequence){.name = strdup(at + 9)};
            char *fresh = strstr(open->name, " fresh");
            if (fresh != NULL)
                *fresh = 0, open->fresh = 1;
        } else if (strcmp(at, "end") == 0) {
            open = NULL;
        } else if (open != NULL && (is_call(at) || our_word(at) != NULL)) {
            open->lines = realloc(open->lines, (open->count + 1) * sizeof *open->lines);
            open->lines[open->count++] = strdup(at);
        }
    }
    free(line);
}

static void stop_here(int number)
{
    (void)number;
    _exit(0x40);
}

static void run(const struct sequence *sequence)
{
    alarm(timeout_s);
    for (size_t at = 0; at < sequence->count; at++)
        perform(sequence->lines[at]);
}

/* Runs sequences from one on in a child; returns the number of the next. */
static size_t run_batch(size_t first)
{
    shared->length = 0;
    shared->sequence = first;
    shared->dead_context = 0;
    const pid_t child = fork();
    if (child < 0)
        die("fork: %s", strerror(errno));
    if (child == 0) {
        signal(SIGALRM, stop_here);
        arena = malloc(ARENA_BYTES);
        if (arena == NULL)
            die("no memory");
        const int fresh = sequences[first].fresh;
        if (!fresh) {
            run(&sequences[0]);
            for (const char *at = shared->text; (at = strstr(at, " = ")) != NULL; at += 3)
                if (at[3] != '0')
                    die("the prologue fails:\n%.*s", (int)shared->length, shared->text);
            shared->length = 0;
            arena_used = 0;
        }
        for (size_t at = first; at < sequence_count && at < first + BATCH; at++) {
            if (at > first && (sequences[at].fresh || fresh))
                break;
            shared->sequence = at;
            say("sequence %s%s\n", sequences[at].name, fresh ? " fresh" : "");
            run(&sequences[at]);
            if (fresh)
                end_threads();
            else
                end_sequence();
            say("end\n");
            fwrite(shared->text, 1, shared->length, stdout);
            fflush(stdout);
            shared->length = 0;
            shared->sequence = at + 1;
            if (shared->dead_context)
                break;
        }
        _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    const size_t reached = shared->sequence;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return reached;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
        exit(3);
    /* The sequence that was under way ended its child. */
    fwrite(shared->text, 1, shared->length, stdout);
    if (WIFSIGNALED(status))
        printf("\n  died of signal %d\nend\n", WTERMSIG(status));
    else if (WEXITSTATUS(status) == 0x40)
        printf("\n  did not end\nend\n");
    else
        printf("\n  exited with %d\nend\n", WEXITSTATUS(status));
    fflush(stdout);
    return reached + 1;
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    for (int at = 1; at < argc; at++) {
        if (strcmp(argv[at], "--library") == 0 && at + 1 < argc)
            library_name = argv[++at];
        else if (strcmp(argv[at], "--runtime") == 0 && at + 1 < argc)
            runtime_name = argv[++at];
        else if (strcmp(argv[at], "--timeout") == 0 && at + 1 < argc)
            timeout_s = (unsigned)atoi(argv[++at]);
        else
            path = argv[at];
    }
    if (getenv("DIFFER_RUNTIME") != NULL)
        runtime_name = getenv("DIFFER_RUNTIME");
    FILE *file = path == NULL ? stdin : fopen(path, "r");
    if (file == NULL)
        die("%s: %s", path, strerror(errno));
    read_sequences(file);
    if (sequence_count == 0)
        die("no sequences: the first is the prologue");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap: %s", strerror(errno));
    for (size_t at = 1; at < sequence_count;)
        at = run_batch(at);
    return 0;
}
