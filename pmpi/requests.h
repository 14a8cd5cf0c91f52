/*
 * Requests under way: what a completed request was.
 *
 * An MPI library may give the same handle to several requests that are complete already, so a handle may stand for
 * several entries; the oldest completes first.
 */
#ifndef TOWLINE_REQUESTS_H
#define TOWLINE_REQUESTS_H

#include "communicators.h"

enum request_kind { REQUEST_SEND, REQUEST_RECV, REQUEST_OTHER };

/* A send or receive as it was asked for. */
struct message {
    struct communicator *communicator;
    int peer; /* in the communicator, or MPI_ANY_SOURCE */
    int tag;  /* or MPI_ANY_TAG */
    uint64_t bytes;
};

/* Records the start of a request and remembers it. */
void request_started(MPI_Request request, enum request_kind kind, struct message message);
/* Remembers a persistent one; nothing is under way yet. */
void request_prepared(MPI_Request request, enum request_kind kind, struct message message);
/* A persistent one was started. */
void request_restarted(MPI_Request request);
/* The handle as it was before the call that completed it; `status` tells where a message from anywhere came from. */
void request_completed(MPI_Request request, const MPI_Status *status);
/* Freed without waiting: a persistent one ends, another goes on unseen. */
void request_freed(MPI_Request request);

/* Counts a message that this rank sends. */
void count_send(struct message message);
void record_send(struct message message);
/* A send without a request of the program; the number is for record_wait. */
uint64_t record_isend(struct message message);
void record_wait(uint64_t number);
/* `status` is NULL when the source and the tag are those that were asked for. */
void record_recv(struct message message, const MPI_Status *status);

#endif
