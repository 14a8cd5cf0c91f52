/* The shape of a wrapper: runs a call of MPI, and records what it did when it succeeded. */
#ifndef TOWLINE_TRACED_H
#define TOWLINE_TRACED_H

#define TRACED(call, record)           \
    const bool traced = trace_enter(); \
    const int status_ = (call);        \
    if (traced) {                      \
        trace_leave();                 \
        if (status_ == MPI_SUCCESS) {  \
            record;                    \
        }                              \
        trace_resume();                \
    }                                  \
    return status_

#endif
