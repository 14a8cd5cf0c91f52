#include "record.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Events are written into this much of their file at a time. */
#define WINDOW_BYTES (UINT64_C(1) << 20)
#define DEFAULT_EVENT_BYTES (UINT64_C(1) << 30)

static struct {
    bool on, locked;
    clockid_t clock; /* for the time between calls */
    struct counts_header *header;
    struct pair_counts *pairs;
    struct collective_counts *collectives;
    size_t counts_bytes;
    int communicators; /* descriptor of rank-N.comms */
    uint64_t start_ns;
    pthread_t thread; /* the first that called */
    /* Events. */
    int events;
    uint8_t *window;
    uint64_t window_at; /* where in the file it begins */
    uint64_t used;      /* within the window */
    uint64_t event_limit;
    bool event_open, events_stopped;
} trace = {.communicators = -1, .events = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static __thread int depth;
static __thread bool seen; /* this thread has called before */
static __thread uint64_t resumed_ns, entered_ns, between_ns;
static __thread uint64_t computed_ns; /* since the last event */

static uint64_t now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/* ---- around every call ---- */

bool trace_enter(void)
{
    if (!trace.on || depth > 0)
        return false;
    depth++;
    entered_ns = now_ns(CLOCK_MONOTONIC);
    const uint64_t now = trace.clock == CLOCK_MONOTONIC ? entered_ns : now_ns(trace.clock);
    /* What a thread did before its first call is not this program's way between two calls. */
    between_ns = seen ? now - resumed_ns : 0;
    computed_ns += between_ns;
    return true;
}

void trace_leave(void)
{
    const uint64_t now = now_ns(CLOCK_MONOTONIC);
    if (trace.locked)
        pthread_mutex_lock(&lock);
    if (!seen) {
        seen = true;
        if (!pthread_equal(trace.thread, pthread_self()))
            trace_note(NOTE_THREADS);
    }
    struct counts_header *header = trace.header;
    header->mpi_ns += now - entered_ns;
    header->compute_ns += between_ns;
    header->seconds_ns = now - trace.start_ns;
    header->calls++;
}

void trace_resume(void)
{
    if (trace.locked)
        pthread_mutex_unlock(&lock);
    depth--;
    resumed_ns = now_ns(trace.clock);
}

void trace_note(enum note note)
{
    if (trace.header != NULL)
        trace.header->notes |= note;
}

/* ---- counters ---- */

struct pair_counts *trace_pair(int world_rank)
{
    if (world_rank < 0 || (uint32_t)world_rank >= trace.header->ranks) {
        trace_note(NOTE_SPAWN);
        return NULL;
    }
    return &trace.pairs[world_rank];
}

void trace_collective(uint32_t communicator, enum collective call, int world_root, uint64_t bytes)
{
    const uint32_t hash = (communicator * UINT32_C(0x9e3779b1)) ^ ((uint32_t)call << 20) ^ (uint32_t)(world_root * 31);
    for (uint32_t probe = 0; probe < COLLECTIVE_SLOTS; probe++) {
        struct collective_counts *slot = &trace.collectives[(hash + probe) % COLLECTIVE_SLOTS];
        if (slot->used == 0) {
            slot->communicator = communicator;
            slot->call = call;
            slot->root = world_root;
            slot->used = 1;
        }
        if (slot->communicator == communicator && slot->call == (uint32_t)call && slot->root == world_root) {
            slot->calls++;
            slot->bytes += bytes;
            return;
        }
    }
    trace_note(NOTE_TABLE_FULL);
}

/* ---- events ---- */

static void stop_events(enum note why)
{
    trace.events_stopped = true;
    trace_note(why);
}

/* Moves the window on, over room that the disk has: a hole in a mapped file would end the program when it is full. */
static bool next_window(void)
{
    const uint64_t at = trace.window == NULL ? 0 : trace.window_at + WINDOW_BYTES;
    if (at + WINDOW_BYTES > trace.event_limit) {
        stop_events(NOTE_EVENTS_LIMIT);
        return false;
    }
    if (posix_fallocate(trace.events, (off_t)at, (off_t)WINDOW_BYTES) != 0) {
        stop_events(NOTE_EVENTS_WRITE);
        return false;
    }
    void *window = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, trace.events, (off_t)at);
    if (window == MAP_FAILED) {
        stop_events(NOTE_EVENTS_WRITE);
        return false;
    }
    if (trace.window != NULL)
        munmap(trace.window, WINDOW_BYTES);
    trace.window = window;
    trace.window_at = at;
    trace.used = 0;
    return true;
}

static void event_byte(uint8_t byte)
{
    if (trace.events_stopped)
        return;
    if ((trace.window == NULL || trace.used == WINDOW_BYTES) && !next_window())
        return;
    trace.window[trace.used++] = byte;
}

void event_number(uint64_t number)
{
    for (; number >= 128; number >>= 7)
        event_byte((uint8_t)(number | 128));
    event_byte((uint8_t)number);
}

/* The time between calls since the last event goes with the next: not every call makes one. */
void event_begin(enum event event)
{
    event_byte((uint8_t)event);
    event_number(computed_ns);
    computed_ns = 0;
}

/* Only whole events count. */
void event_end(void)
{
    if (trace.events_stopped) {
        trace.header->events_lost++;
        return;
    }
    trace.header->events++;
    trace.header->event_bytes = trace.window_at + trace.used;
}

void trace_write_communicator(const uint32_t *words, size_t count)
{
    const char *at = (const char *)words;
    size_t left = count * sizeof *words;
    while (left > 0) {
        const ssize_t written = write(trace.communicators, at, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            trace_note(NOTE_TABLE_FULL);
            return;
        }
        at += written;
        left -= (size_t)written;
    }
}

/* ---- start and end ---- */

void trace_check_family(void)
{
    /* The handle of MPI_COMM_WORLD: an object in Open MPI, a number in MPICH. */
    const bool is_openmpi = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") != NULL;
#ifdef TOWLINE_MPI_openmpi
    const bool fits = is_openmpi;
#else
    const bool fits = !is_openmpi;
#endif
    if (fits)
        return;
    fprintf(stderr, "towline trace: this program uses %s: trace it with --mpi %s\n", is_openmpi ? "Open MPI" : "MPICH",
            is_openmpi ? "openmpi" : "mpich");
    _exit(125);
}

static int create(const char *folder, int rank, const char *kind)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/rank-%d.%s", folder, rank, kind) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

static void complain(int rank, const char *what)
{
    const int error = errno;
    if (error == EEXIST) {
        if (rank == 0)
            fprintf(stderr, "towline trace: this is the second MPI program of the command; only the first is traced\n");
    } else {
        fprintf(stderr, "towline trace: rank %d is not traced: could not %s: %s\n", rank, what, strerror(error));
    }
}

static void describe(struct counts_header *header)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    gethostname(header->host, sizeof header->host - 1);
    const ssize_t read = readlink("/proc/self/exe", header->program, sizeof header->program - 1);
    if (read > 0)
        header->program[read] = '\0';
    if (PMPI_Get_library_version(library, &length) == MPI_SUCCESS)
        snprintf(header->mpi, sizeof header->mpi, "%.*s", (int)strcspn(library, ",\n"), library);
}

static bool map_counts(const char *folder, int rank, int ranks)
{
    trace.counts_bytes = HEADER_BYTES + (size_t)ranks * sizeof(struct pair_counts) +
                         COLLECTIVE_SLOTS * sizeof(struct collective_counts);
    const int file = create(folder, rank, "counts");
    if (file < 0) {
        complain(rank, "create its file");
        return false;
    }
    errno = posix_fallocate(file, 0, (off_t)trace.counts_bytes);
    void *memory = MAP_FAILED;
    if (errno == 0)
        memory = mmap(NULL, trace.counts_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        complain(rank, "make room in its file");
    close(file);
    if (memory == MAP_FAILED)
        return false;
    trace.header = memory;
    trace.pairs = (struct pair_counts *)((char *)memory + HEADER_BYTES);
    trace.collectives = (struct collective_counts *)(trace.pairs + ranks);
    return true;
}

/*
 * A thread's processor time takes a system call, several times what the wall clock takes. It is needed where ranks share
 * processors: there a rank that waits for its turn does not compute.
 */
static clockid_t choose_clock(void)
{
    const char *wanted = getenv("TOWLINE_TRACE_CLOCK");
    if (wanted != NULL && strcmp(wanted, "cpu") == 0)
        return CLOCK_THREAD_CPUTIME_ID;
    if (wanted != NULL && strcmp(wanted, "wall") == 0)
        return CLOCK_MONOTONIC;
    MPI_Comm node;
    int neighbours = 1;
    if (PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) == MPI_SUCCESS) {
        PMPI_Comm_size(node, &neighbours);
        PMPI_Comm_free(&node);
    }
    return neighbours > sysconf(_SC_NPROCESSORS_ONLN) ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
}

static uint64_t event_limit(void)
{
    const char *text = getenv("TOWLINE_TRACE_EVENT_BYTES");
    return text != NULL ? strtoull(text, NULL, 10) : DEFAULT_EVENT_BYTES;
}

void trace_start(void)
{
    const char *folder = getenv("TOWLINE_TRACE_DIR");
    int rank = 0, ranks = 0, level = MPI_THREAD_SINGLE;
    MPI_Comm parent = MPI_COMM_NULL;
    if (folder == NULL || trace.on)
        return;
    /* Spawned processes have a world of their own. */
    if (PMPI_Comm_get_parent(&parent) == MPI_SUCCESS && parent != MPI_COMM_NULL)
        return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    /* All ranks take part in the choice, also those that cannot write. */
    trace.clock = choose_clock();
    if (!map_counts(folder, rank, ranks))
        return;
    trace.communicators = create(folder, rank, "comms");
    trace.event_limit = event_limit();
    trace.events = create(folder, rank, "events");
    if (trace.communicators < 0)
        trace_note(NOTE_TABLE_FULL);
    if (trace.events < 0)
        stop_events(NOTE_EVENTS_WRITE);
    PMPI_Query_thread(&level);
    trace.locked = level == MPI_THREAD_MULTIPLE;
    trace.thread = pthread_self();

    struct counts_header *header = trace.header;
    header->version = 1;
    header->rank = (uint32_t)rank;
    header->ranks = (uint32_t)ranks;
    header->collective_slots = COLLECTIVE_SLOTS;
    header->state = STATE_RUNNING;
    describe(header);
    /* Last: a file without it is none. */
    memcpy(header->magic, "TWLCOUNT", sizeof header->magic);
    trace.start_ns = now_ns(CLOCK_MONOTONIC);
    trace.on = true;
    seen = true;
    resumed_ns = now_ns(trace.clock);
}

bool trace_is_on(void)
{
    return trace.on;
}

void trace_stop(enum rank_state state)
{
    if (!trace.on)
        return;
    if (trace.locked)
        pthread_mutex_lock(&lock);
    struct counts_header *header = trace.header;
    if (depth == 0)
        header->compute_ns += now_ns(trace.clock) - resumed_ns;
    header->seconds_ns = now_ns(CLOCK_MONOTONIC) - trace.start_ns;
    header->state = state;
    trace.on = false;
    if (trace.window != NULL)
        munmap(trace.window, WINDOW_BYTES);
    /* What the last window has too much. */
    if (trace.events >= 0 && ftruncate(trace.events, (off_t)header->event_bytes) == 0)
        close(trace.events);
    if (trace.communicators >= 0)
        close(trace.communicators);
    munmap(trace.header, trace.counts_bytes);
    trace.header = NULL;
    if (trace.locked)
        pthread_mutex_unlock(&lock);
}
