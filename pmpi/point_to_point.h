/* What the wrappers of C and of Fortran share about messages. */
#ifndef TOWLINE_POINT_TO_POINT_H
#define TOWLINE_POINT_TO_POINT_H

#include "requests.h"

/* Bytes of `count` elements; 0 for arguments that MPI refuses. */
uint64_t bytes_of(int count, MPI_Datatype type);
struct message message_of(MPI_Comm comm, int peer, int tag, int count, MPI_Datatype type);
/* A send and a receive at once, as events: the send begins, the receive takes place, the send ends. */
void record_sendrecv(struct message sent, struct message received, const MPI_Status *status);

/* Room of this thread for `count` requests and statuses; NULL when there is no memory. */
MPI_Request *scratch_requests(int count);
MPI_Status *scratch_statuses(int count);

#endif
