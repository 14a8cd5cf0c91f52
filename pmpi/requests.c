#include "requests.h"

#include <stdlib.h>

#define BUCKETS 4096

struct entry {
    struct entry *next;
    MPI_Request request;
    struct message message;
    uint64_t number; /* in the events */
    enum request_kind kind;
    bool persistent, active;
};

static struct entry *buckets[BUCKETS], *spare;
static uint64_t numbers;

/* Handles are pointers in one MPI and integers in another. */
static struct entry **bucket_of(MPI_Request request)
{
    const uint64_t bits = (uint64_t)(intptr_t)request * UINT64_C(0x9e3779b97f4a7c15);
    return &buckets[bits >> 52];
}

static struct entry **find(MPI_Request request)
{
    struct entry **at = bucket_of(request);
    while (*at != NULL && (*at)->request != request)
        at = &(*at)->next;
    return at;
}

static struct entry *add(MPI_Request request, enum request_kind kind, struct message message)
{
    struct entry *entry = spare;
    if (entry != NULL)
        spare = entry->next;
    else if ((entry = malloc(sizeof *entry)) == NULL)
        return NULL;
    *entry = (struct entry){.request = request, .kind = kind, .message = message};
    if (message.communicator != NULL)
        communicator_hold(message.communicator);
    struct entry **at = bucket_of(request);
    while (*at != NULL)
        at = &(*at)->next;
    return *at = entry;
}

static void take_out(struct entry **at)
{
    struct entry *entry = *at;
    *at = entry->next;
    if (entry->message.communicator != NULL)
        communicator_drop(entry->message.communicator);
    entry->next = spare;
    spare = entry;
}

/* ---- what is recorded ---- */

void count_send(struct message message)
{
    struct pair_counts *pair = trace_pair(world_rank(message.communicator, message.peer));
    if (pair != NULL) {
        pair->messages++;
        pair->bytes += message.bytes;
    }
}

/* Peers and tags are counted from 1, so that 0 is any. */
static void event_message(struct message message)
{
    const int peer = message.peer == MPI_ANY_SOURCE ? -1 : world_rank(message.communicator, message.peer);
    event_number(message.communicator->id);
    event_number((uint64_t)(peer + 1));
    event_number(message.tag == MPI_ANY_TAG ? 0 : (uint64_t)message.tag + 1);
    event_number(message.bytes);
}

static struct message resolved(struct message message, const MPI_Status *status)
{
    if (status != NULL) {
        message.peer = status->MPI_SOURCE;
        message.tag = status->MPI_TAG;
    }
    return message;
}

void record_send(struct message message)
{
    if (message.peer == MPI_PROC_NULL)
        return;
    count_send(message);
    event_begin(EVENT_SEND);
    event_message(message);
    event_end();
}

void record_recv(struct message message, const MPI_Status *status)
{
    if (message.peer == MPI_PROC_NULL)
        return;
    event_begin(EVENT_RECV);
    event_message(resolved(message, status));
    event_end();
}

static uint64_t event_start(enum event event, struct message message)
{
    event_begin(event);
    event_number(++numbers);
    event_message(message);
    event_end();
    return numbers;
}

uint64_t record_isend(struct message message)
{
    if (message.peer == MPI_PROC_NULL)
        return 0;
    count_send(message);
    return event_start(EVENT_ISEND, message);
}

static void event_done(enum event event, uint64_t number, int from, uint64_t tag)
{
    event_begin(event);
    event_number(number);
    event_number((uint64_t)from);
    event_number(tag);
    event_end();
}

void record_wait(uint64_t number)
{
    if (number != 0)
        event_done(EVENT_WAIT, number, 0, 0);
}

static void begin(struct entry *entry)
{
    entry->active = true;
    if (entry->kind == REQUEST_SEND)
        entry->number = record_isend(entry->message);
    else if (entry->kind == REQUEST_RECV)
        entry->number = event_start(EVENT_IRECV, entry->message);
}

/* ---- what requests live through ---- */

void request_started(MPI_Request request, enum request_kind kind, struct message message)
{
    if (message.peer == MPI_PROC_NULL && kind != REQUEST_OTHER)
        return;
    struct entry *entry = add(request, kind, message);
    if (entry != NULL)
        begin(entry);
}

void request_prepared(MPI_Request request, enum request_kind kind, struct message message)
{
    if (message.peer == MPI_PROC_NULL && kind != REQUEST_OTHER)
        return;
    struct entry *entry = add(request, kind, message);
    if (entry != NULL)
        entry->persistent = true;
}

void request_restarted(MPI_Request request)
{
    struct entry *entry = *find(request);
    if (entry != NULL && entry->persistent)
        begin(entry);
}

void request_completed(MPI_Request request, const MPI_Status *status)
{
    if (request == MPI_REQUEST_NULL)
        return;
    struct entry **at = find(request);
    struct entry *entry = *at;
    if (entry == NULL || !entry->active)
        return;
    entry->active = false;
    if (entry->kind != REQUEST_OTHER) {
        const struct message asked = entry->message;
        const bool anywhere = asked.peer == MPI_ANY_SOURCE || asked.tag == MPI_ANY_TAG;
        int cancelled = 0;
        if (status != NULL)
            PMPI_Test_cancelled(status, &cancelled);
        const bool known = anywhere && status != NULL && !cancelled && entry->kind == REQUEST_RECV;
        const struct message came = resolved(asked, known ? status : NULL);
        event_done(cancelled ? EVENT_CANCEL : EVENT_WAIT, entry->number,
                   known ? world_rank(came.communicator, came.peer) + 1 : 0, known ? (uint64_t)came.tag + 1 : 0);
    }
    if (!entry->persistent)
        take_out(at);
}

void request_freed(MPI_Request request)
{
    struct entry **at = find(request);
    if (*at != NULL)
        take_out(at);
}
