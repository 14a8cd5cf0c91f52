/* A libcuda.so.1 in front of another one, which writes down each call with its arguments, its answer, and what it wrote to the places that
 * it was given. It knows no function's type: a machine word that can be read from is taken for a place.
 *
 *   CALLS_REAL   the library that answers
 *   CALLS_FILE   where the calls go
 *   CALLS_TABLES not empty: the functions of export tables are written down too (the runtime library does not stand that: error 103)
 *
 * names.h has X(NAME) for each function that the library exports. calls_mark(TEXT) writes a line of the program's own.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

typedef uint64_t u64;
typedef u64 (*function)(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64);

enum { ARGUMENTS = 12, SHOWN = 6, PLACE = 48, STUBS = 4096 };

struct target {
    char name[80];
    function real;
};

static struct target targets[STUBS];
static int target_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static void *real;
static int tables;

static u64 pass(struct target *target, const u64 *a);

#define PARAMETERS u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j, u64 k, u64 l
#define WORDS { a, b, c, d, e, f, g, h, i, j, k, l }

/* Functions that are handed out by address, each with its number. */
#define STUB(n) static u64 stub_##n(PARAMETERS) { const u64 words[ARGUMENTS] = WORDS; return pass(&targets[0##n], words); }
#define EIGHT(M, n) M(n##0) M(n##1) M(n##2) M(n##3) M(n##4) M(n##5) M(n##6) M(n##7)
#define TIMES_64(M, n) EIGHT(M, n##0) EIGHT(M, n##1) EIGHT(M, n##2) EIGHT(M, n##3) EIGHT(M, n##4) EIGHT(M, n##5) EIGHT(M, n##6) EIGHT(M, n##7)
#define TIMES_512(M, n) TIMES_64(M, n##0) TIMES_64(M, n##1) TIMES_64(M, n##2) TIMES_64(M, n##3) TIMES_64(M, n##4) TIMES_64(M, n##5) \
    TIMES_64(M, n##6) TIMES_64(M, n##7)
#define TIMES_4096(M) TIMES_512(M, 0) TIMES_512(M, 1) TIMES_512(M, 2) TIMES_512(M, 3) TIMES_512(M, 4) TIMES_512(M, 5) TIMES_512(M, 6) \
    TIMES_512(M, 7)
TIMES_4096(STUB)
#define ADDRESS(n) stub_##n,
static const function stubs[STUBS] = { TIMES_4096(ADDRESS) };

static void start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void begin(void);
    pthread_once(&once, begin);
}

void begin(void)
{
    const char *file = getenv("CALLS_FILE"), *library = getenv("CALLS_REAL"), *with = getenv("CALLS_TABLES");
    tables = with != NULL && *with != '\0';
    if (library == NULL || (real = dlopen(library, RTLD_NOW | RTLD_LOCAL)) == NULL || file == NULL || (out = fopen(file, "ae")) == NULL) {
        fprintf(stderr, "calls: set CALLS_REAL to a library and CALLS_FILE to a file that can be written: %s\n", dlerror());
        _exit(3);
    }
    setvbuf(out, NULL, _IOFBF, 1 << 20);
}

__attribute__((destructor)) static void end(void)
{
    if (out != NULL)
        fflush(out);
}

void calls_mark(const char *text)
{
    start();
    pthread_mutex_lock(&lock);
    fprintf(out, "== %s\n", text);
    fflush(out);
    pthread_mutex_unlock(&lock);
}

/* stub NAME REAL: a function that passes calls to REAL and writes them down. */
static u64 stub(const char *name, u64 to)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    while (n < target_count && (u64)targets[n].real != to)
        n++;
    if (n == target_count && n < STUBS) {
        snprintf(targets[n].name, sizeof targets[n].name, "%s", name);
        targets[n].real = (function)to;
        target_count++;
    }
    pthread_mutex_unlock(&lock);
    return n < STUBS ? (u64)stubs[n] : to;
}

static size_t read_place(u64 address, unsigned char *bytes, size_t size)
{
    const struct iovec to = { bytes, size }, from = { (void *)address, size };
    if (address < 65536 || address >> 47 != 0)
        return 0;
    const ssize_t count = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    return count > 0 ? (size_t)count : size > 8 ? read_place(address, bytes, 8) : 0;
}

/* Addresses and handles differ from run to run, and are shown as P. */
static void word(u64 value)
{
    unsigned char byte;
    if (value >> 32 != 0 || read_place(value, &byte, 1) != 0)
        fputs("P", out);
    else
        fprintf(out, "%llx", (unsigned long long)value);
}

/* Text as it is, and of everything else the words that the call changed. */
static void place(const unsigned char *before, const unsigned char *after, size_t size)
{
    size_t text = 0;
    const char *between = "";
    while (text < size && isprint(after[text]))
        text++;
    if (text >= 4) {
        fprintf(out, "\"%.*s\"", (int)text, (const char *)after);
        return;
    }
    fputc('[', out);
    for (size_t at = 0; at + 8 <= size; at += 8) {
        if (memcmp(before + at, after + at, 8) != 0) {
            u64 value;
            memcpy(&value, after + at, 8);
            fprintf(out, "%s%d:", between, (int)at);
            /* A place of 32 bits has something else beside it. */
            if (memcmp(before + at + 4, after + at + 4, 4) == 0)
                value = (uint32_t)value;
            word(value);
            between = ",";
        }
    }
    fputc(']', out);
}

static void wrap_table(u64 where, const unsigned char *id)
{
    u64 *from = *(u64 **)where, *copy;
    char name[80];
    /* The first word is the table's size in bytes. */
    if (from == NULL || from[0] < 8 || from[0] > 8192 || from[0] % 8 != 0)
        return;
    if ((copy = malloc(from[0])) == NULL)
        return;
    copy[0] = from[0];
    for (u64 at = 1; at < from[0] / 8; at++) {
        snprintf(name, sizeof name, "table_%02x%02x%02x%02x_%d", id[0], id[1], id[2], id[3], (int)at);
        copy[at] = from[at] > 4096 ? stub(name, from[at]) : from[at];
    }
    *(u64 **)where = copy;
}

static u64 pass(struct target *target, const u64 *a)
{
    unsigned char after[SHOWN][PLACE], before[SHOWN][PLACE];
    size_t was[SHOWN], is[SHOWN];
    for (int n = 0; n < SHOWN; n++)
        was[n] = read_place(a[n], before[n], PLACE);
    const u64 answer = target->real(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    for (int n = 0; n < SHOWN; n++)
        is[n] = read_place(a[n], after[n], PLACE);
    const int is_lookup = strncmp(target->name, "cuGetProcAddress", 16) == 0;
    if (answer == 0 && is_lookup && *(u64 *)a[1] != 0)
        *(u64 *)a[1] = stub((const char *)a[0], *(u64 *)a[1]);
    if (answer == 0 && tables && strcmp(target->name, "cuGetExportTable") == 0)
        wrap_table(a[0], (const unsigned char *)a[1]);
    pthread_mutex_lock(&lock);
    fprintf(out, "%d %s", (int)syscall(SYS_gettid), target->name);
    for (int n = 0; n < SHOWN; n++) {
        fputc(' ', out);
        if (is[n] != 0 && was[n] == is[n])
            place(before[n], after[n], is[n]);
        else
            word(a[n]);
    }
    fprintf(out, " = %d\n", (int)answer);
    pthread_mutex_unlock(&lock);
    return answer;
}

#define X(NAME) \
    __attribute__((visibility("default"))) u64 NAME(PARAMETERS) \
    { \
        static struct target target = { .name = #NAME }; \
        const u64 words[ARGUMENTS] = WORDS; \
        start(); \
        if (target.real == NULL) \
            *(void **)&target.real = dlsym(real, #NAME); \
        return target.real == NULL ? 500 /* CUDA_ERROR_NOT_FOUND */ : pass(&target, words); \
    }
#include "names.h"
