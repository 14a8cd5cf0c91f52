#include "point_to_point.h"
#include "traced.h"

#include <stdlib.h>

uint64_t bytes_of(int count, MPI_Datatype type)
{
    int size = 0;
    if (count <= 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) != MPI_SUCCESS || size < 0)
        return 0;
    return (uint64_t)count * (uint64_t)size;
}

struct message message_of(MPI_Comm comm, int peer, int tag, int count, MPI_Datatype type)
{
    return (struct message){communicator_of(comm), peer, tag, bytes_of(count, type)};
}

void record_sendrecv(struct message sent, struct message received, const MPI_Status *status)
{
    const uint64_t number = record_isend(sent);
    record_recv(received, status);
    record_wait(number);
}

/* ---- room for arrays ---- */

static __thread struct {
    void *memory;
    size_t bytes;
} requests_room, statuses_room;

MPI_Request *scratch_requests(int count)
{
    const size_t bytes = (size_t)(count > 0 ? count : 1) * sizeof(MPI_Request);
    if (bytes > requests_room.bytes) {
        free(requests_room.memory);
        requests_room.memory = malloc(bytes);
        requests_room.bytes = requests_room.memory != NULL ? bytes : 0;
    }
    return requests_room.memory;
}

MPI_Status *scratch_statuses(int count)
{
    const size_t bytes = (size_t)(count > 0 ? count : 1) * sizeof(MPI_Status);
    if (bytes > statuses_room.bytes) {
        free(statuses_room.memory);
        statuses_room.memory = malloc(bytes);
        statuses_room.bytes = statuses_room.memory != NULL ? bytes : 0;
    }
    return statuses_room.memory;
}

/* The handles as they are before a call that may take them away. */
static MPI_Request *handles_before(bool traced, int count, const MPI_Request requests[])
{
    MPI_Request *before = traced ? scratch_requests(count) : NULL;
    for (int i = 0; before != NULL && i < count; i++)
        before[i] = requests[i];
    return before;
}

/* ---- sends ---- */

#define SEND(name)                                                                                              \
    EXPORT int MPI_##name(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)     \
    {                                                                                                           \
        TRACED(PMPI_##name(buffer, count, type, to, tag, comm), record_send(message_of(comm, to, tag, count, type))); \
    }

SEND(Send)
SEND(Ssend)
SEND(Bsend)
SEND(Rsend)

#define ISEND(name)                                                                                         \
    EXPORT int MPI_##name(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, \
                          MPI_Request *request)                                                             \
    {                                                                                                       \
        TRACED(PMPI_##name(buffer, count, type, to, tag, comm, request),                                    \
               request_started(*request, REQUEST_SEND, message_of(comm, to, tag, count, type)));            \
    }

ISEND(Isend)
ISEND(Issend)
ISEND(Ibsend)
ISEND(Irsend)

#define SEND_INIT(name)                                                                                     \
    EXPORT int MPI_##name(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, \
                          MPI_Request *request)                                                             \
    {                                                                                                       \
        TRACED(PMPI_##name(buffer, count, type, to, tag, comm, request),                                    \
               request_prepared(*request, REQUEST_SEND, message_of(comm, to, tag, count, type)));           \
    }

SEND_INIT(Send_init)
SEND_INIT(Ssend_init)
SEND_INIT(Bsend_init)
SEND_INIT(Rsend_init)

/* ---- receives ---- */

EXPORT int MPI_Recv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    TRACED(PMPI_Recv(buffer, count, type, from, tag, comm, known),
           record_recv(message_of(comm, from, tag, count, type), known));
}

EXPORT int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    TRACED(PMPI_Irecv(buffer, count, type, from, tag, comm, request),
           request_started(*request, REQUEST_RECV, message_of(comm, from, tag, count, type)));
}

EXPORT int MPI_Recv_init(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                         MPI_Request *request)
{
    TRACED(PMPI_Recv_init(buffer, count, type, from, tag, comm, request),
           request_prepared(*request, REQUEST_RECV, message_of(comm, from, tag, count, type)));
}

EXPORT int MPI_Sendrecv(const void *sent, int sent_count, MPI_Datatype sent_type, int to, int sent_tag, void *received,
                        int received_count, MPI_Datatype received_type, int from, int received_tag, MPI_Comm comm,
                        MPI_Status *status)
{
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    TRACED(PMPI_Sendrecv(sent, sent_count, sent_type, to, sent_tag, received, received_count, received_type, from,
                         received_tag, comm, known),
           record_sendrecv(message_of(comm, to, sent_tag, sent_count, sent_type),
                           message_of(comm, from, received_tag, received_count, received_type), known));
}

EXPORT int MPI_Sendrecv_replace(void *buffer, int count, MPI_Datatype type, int to, int sent_tag, int from,
                                int received_tag, MPI_Comm comm, MPI_Status *status)
{
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    TRACED(PMPI_Sendrecv_replace(buffer, count, type, to, sent_tag, from, received_tag, comm, known),
           record_sendrecv(message_of(comm, to, sent_tag, count, type), message_of(comm, from, received_tag, count, type),
                           known));
}

/* ---- matched probes: the message is received by its own handle, without its communicator ---- */

#define MATCHED 64

static struct {
    MPI_Message message;
    struct communicator *communicator;
} matched[MATCHED];

static void message_matched(MPI_Message message, MPI_Comm comm)
{
    for (int i = 0; i < MATCHED; i++) {
        if (matched[i].communicator == NULL) {
            matched[i].message = message;
            matched[i].communicator = communicator_of(comm);
            communicator_hold(matched[i].communicator);
            return;
        }
    }
    trace_note(NOTE_TABLE_FULL);
}

/* What a matched message is; without a communicator when that is not known. */
static struct message take_matched(MPI_Message message, int count, MPI_Datatype type)
{
    for (int i = 0; i < MATCHED; i++) {
        if (matched[i].communicator != NULL && matched[i].message == message) {
            struct communicator *communicator = matched[i].communicator;
            matched[i].communicator = NULL;
            /* The caller uses it at once; its communicator lives as long as the program has it. */
            if (communicator->references > 1)
                communicator_drop(communicator);
            return (struct message){communicator, MPI_ANY_SOURCE, MPI_ANY_TAG, bytes_of(count, type)};
        }
    }
    trace_note(NOTE_PARTITIONED);
    return (struct message){.communicator = NULL};
}

EXPORT int MPI_Mprobe(int from, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status)
{
    TRACED(PMPI_Mprobe(from, tag, comm, message, status), message_matched(*message, comm));
}

EXPORT int MPI_Improbe(int from, int tag, MPI_Comm comm, int *found, MPI_Message *message, MPI_Status *status)
{
    TRACED(PMPI_Improbe(from, tag, comm, found, message, status), if (*found) message_matched(*message, comm));
}

EXPORT int MPI_Mrecv(void *buffer, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status)
{
    const MPI_Message before = *message;
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    TRACED(PMPI_Mrecv(buffer, count, type, message, known), {
        const struct message asked = take_matched(before, count, type);
        if (asked.communicator != NULL)
            record_recv(asked, known);
    });
}

EXPORT int MPI_Imrecv(void *buffer, int count, MPI_Datatype type, MPI_Message *message, MPI_Request *request)
{
    const MPI_Message before = *message;
    TRACED(PMPI_Imrecv(buffer, count, type, message, request), {
        const struct message asked = take_matched(before, count, type);
        if (asked.communicator != NULL)
            request_started(*request, REQUEST_RECV, asked);
    });
}

EXPORT int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    TRACED(PMPI_Probe(from, tag, comm, status), (void)0);
}

EXPORT int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *found, MPI_Status *status)
{
    TRACED(PMPI_Iprobe(from, tag, comm, found, status), (void)0);
}

/* ---- requests ---- */

EXPORT int MPI_Start(MPI_Request *request)
{
    TRACED(PMPI_Start(request), request_restarted(*request));
}

EXPORT int MPI_Startall(int count, MPI_Request requests[])
{
    TRACED(PMPI_Startall(count, requests), for (int i = 0; i < count; i++) request_restarted(requests[i]));
}

EXPORT int MPI_Request_free(MPI_Request *request)
{
    const MPI_Request before = *request;
    TRACED(PMPI_Request_free(request), request_freed(before));
}

EXPORT int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    const MPI_Request before = *request;
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    TRACED(PMPI_Wait(request, known), request_completed(before, known));
}

EXPORT int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    const MPI_Request before = *request;
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    TRACED(PMPI_Test(request, done, known), if (*done) request_completed(before, known));
}

/* Statuses of the program, or others where it does not want any. */
static MPI_Status *statuses_or_own(int count, MPI_Status *statuses)
{
    MPI_Status *own = statuses == MPI_STATUSES_IGNORE ? scratch_statuses(count) : NULL;
    return own != NULL ? own : statuses;
}

static void completed_all(int count, const MPI_Request *before, const MPI_Status *statuses)
{
    for (int i = 0; before != NULL && i < count; i++)
        request_completed(before[i], statuses == MPI_STATUSES_IGNORE ? NULL : &statuses[i]);
}

static void completed_some(int count, const int *which, const MPI_Request *before, const MPI_Status *statuses)
{
    for (int i = 0; before != NULL && count != MPI_UNDEFINED && i < count; i++)
        request_completed(before[which[i]], statuses == MPI_STATUSES_IGNORE ? NULL : &statuses[i]);
}

/* Calls over arrays of requests have their handles copied ahead, and some statuses, so they begin before the call. */
#define TRACED_ARRAY(count, requests, call, record)                             \
    const bool traced = trace_enter();                                          \
    MPI_Request *before = handles_before(traced, count, requests);              \
    const int status_ = (call);                                                 \
    if (traced) {                                                               \
        trace_leave();                                                          \
        if (status_ == MPI_SUCCESS) {                                           \
            record;                                                             \
        }                                                                       \
        trace_resume();                                                         \
    }                                                                           \
    return status_

EXPORT int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
    MPI_Status *known = statuses_or_own(count, statuses);
    TRACED_ARRAY(count, requests, PMPI_Waitall(count, requests, known), completed_all(count, before, known));
}

EXPORT int MPI_Testall(int count, MPI_Request requests[], int *done, MPI_Status statuses[])
{
    MPI_Status *known = statuses_or_own(count, statuses);
    TRACED_ARRAY(count, requests, PMPI_Testall(count, requests, done, known),
                 if (*done) completed_all(count, before, known));
}

EXPORT int MPI_Waitany(int count, MPI_Request requests[], int *which, MPI_Status *status)
{
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    TRACED_ARRAY(count, requests, PMPI_Waitany(count, requests, which, known),
                 if (before != NULL && *which != MPI_UNDEFINED) request_completed(before[*which], known));
}

EXPORT int MPI_Testany(int count, MPI_Request requests[], int *which, int *done, MPI_Status *status)
{
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    TRACED_ARRAY(count, requests, PMPI_Testany(count, requests, which, done, known),
                 if (before != NULL && *done && *which != MPI_UNDEFINED) request_completed(before[*which], known));
}

EXPORT int MPI_Waitsome(int count, MPI_Request requests[], int *done, int which[], MPI_Status statuses[])
{
    MPI_Status *known = statuses_or_own(count, statuses);
    TRACED_ARRAY(count, requests, PMPI_Waitsome(count, requests, done, which, known),
                 completed_some(*done, which, before, known));
}

EXPORT int MPI_Testsome(int count, MPI_Request requests[], int *done, int which[], MPI_Status statuses[])
{
    MPI_Status *known = statuses_or_own(count, statuses);
    TRACED_ARRAY(count, requests, PMPI_Testsome(count, requests, done, which, known),
                 completed_some(*done, which, before, known));
}
