/*
 * The C ABI of Towline transport plugins, version 1.
 *
 * A plugin is a shared object that exports one function, towline_transport_v1, which returns a table of functions.
 * Towline loads it, checks the table, and then uses the transport for every address of its scheme. Objects are never
 * unloaded. docs/adding-a-transport.md walks through the example, examples/unix_socket.c.
 *
 * Rules for every function:
 *  - It may be called from any thread. On one connection, one thread sends, one receives, and any thread may call
 *    shutdown, all at the same time. On one listener, one thread accepts while another closes.
 *  - `error` is never NULL and arrives as an empty string. Whoever returns a status other than TOWLINE_OK or
 *    TOWLINE_WOULD_BLOCK may leave a text there, at most 255 bytes of UTF-8 and a NUL: what failed, for a person.
 *  - Results behind pointers are read only when TOWLINE_OK is returned.
 *  - Nothing may throw or longjmp across the call, and no signal (SIGPIPE!) may be raised by it.
 */
#ifndef TOWLINE_TRANSPORT_H
#define TOWLINE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOWLINE_TRANSPORT_ABI_VERSION 1u

/* What a function returns. */
#define TOWLINE_OK 0
/* Only try_send and try_recv: it would have to wait. */
#define TOWLINE_WOULD_BLOCK 1
/* The peer closed the connection, or shutdown was called; from listener_accept: listener_close was called. */
#define TOWLINE_CLOSED 2
/* The link broke: reset by the network, or the peer no longer answers. */
#define TOWLINE_LOST 3
/* Nobody listens at the address. */
#define TOWLINE_REFUSED 4
#define TOWLINE_TIMED_OUT 5
#define TOWLINE_UNREACHABLE 6
#define TOWLINE_ADDRESS_IN_USE 7
/* The text behind SCHEME:// is not one of this transport; `error` says what to write. */
#define TOWLINE_INVALID_ADDRESS 8
#define TOWLINE_UNSUPPORTED 9
/* Anything else; `error` says what. */
#define TOWLINE_FAILED 10

/* Bits of `capabilities`. */
/* A connection's descriptor can be passed to another process and adopted there; needs adopt and descriptor. */
#define TOWLINE_PASSES_DESCRIPTORS (UINT64_C(1) << 0)
/* Peers may be on another host, so that Towline insists on authentication. */
#define TOWLINE_CROSSES_HOSTS (UINT64_C(1) << 1)

typedef struct TowlineErrorV1 {
    char text[256];
} TowlineErrorV1;

typedef struct TowlineConnectOptionsV1 {
    /* sizeof of this structure where it was filled in; later versions append fields. */
    size_t struct_size;
    /* Bound for the whole attempt. */
    uint64_t timeout_ns;
    /* Size of the send and of the receive buffer; 0 leaves it to the transport. */
    size_t buffer_bytes;
    /* Give up when sent bytes stay unacknowledged for this long; 0 is never. */
    uint64_t unacknowledged_timeout_ns;
    /* Not 0: find out by probes, within 30 s, that an idle peer is gone. */
    int32_t keepalive;
} TowlineConnectOptionsV1;

typedef struct TowlineTransportV1 {
    /* TOWLINE_TRANSPORT_ABI_VERSION and sizeof(TowlineTransportV1). Anything may be appended later under the same
     * version, so Towline takes a larger structure and ignores what it does not know. */
    uint32_t abi_version;
    size_t struct_size;
    /* The URL scheme: lower-case letters, digits, '+', '-', '.', a letter first. */
    const char *scheme;
    uint64_t capabilities;

    /* `address` is what follows SCHEME:// in the URL. */
    int32_t (*connect)(const char *address, const TowlineConnectOptionsV1 *options, void **connection,
                       TowlineErrorV1 *error);
    int32_t (*listen)(const char *address, void **listener, TowlineErrorV1 *error);
    /* Takes over a connected descriptor, also where it fails. NULL without TOWLINE_PASSES_DESCRIPTORS. */
    int32_t (*adopt)(int32_t descriptor, void **connection, TowlineErrorV1 *error);

    /* Waits for a connection. */
    int32_t (*listener_accept)(void *listener, void **connection, TowlineErrorV1 *error);
    /* Writes the address to connect to (without SCHEME://, with a NUL) to text[0..size]; called once. */
    int32_t (*listener_address)(void *listener, char *text, size_t size, TowlineErrorV1 *error);
    /* Stops listening: a blocked listener_accept and all later ones return TOWLINE_CLOSED. May be called twice. */
    void (*listener_close)(void *listener);
    /* The last call for a listener; no other is in progress. Closes it where that was not done. */
    void (*listener_free)(void *listener);

    /* Sends all bytes of all parts, in order; waits while the peer does not read. */
    int32_t (*send)(void *connection, const struct iovec *parts, size_t count, TowlineErrorV1 *error);
    /* Sends what fits now; *sent >= 1, else TOWLINE_WOULD_BLOCK. `len` is at least 1. */
    int32_t (*try_send)(void *connection, const uint8_t *bytes, size_t len, size_t *sent, TowlineErrorV1 *error);
    /* Waits for at least one byte; *received == 0 means that the peer closed in order. `len` is at least 1. */
    int32_t (*recv)(void *connection, uint8_t *buffer, size_t len, size_t *received, TowlineErrorV1 *error);
    /* Like recv, but TOWLINE_WOULD_BLOCK where it would wait. */
    int32_t (*try_recv)(void *connection, uint8_t *buffer, size_t len, size_t *received, TowlineErrorV1 *error);
    /* Waits until recv would not: *readable = 1 then (also at the end and after a failure), 0 when timeout_ns passed
     * first; a negative timeout_ns waits for ever. */
    int32_t (*wait_readable)(void *connection, int64_t timeout_ns, int32_t *readable, TowlineErrorV1 *error);
    /* Ends both directions and wakes blocked calls of every thread; the peer still gets what was sent before. */
    void (*shutdown)(void *connection);
    /* Writes a name of the other end for logs and errors, with a NUL, to text[0..size]; called once. */
    int32_t (*peer)(void *connection, char *text, size_t size, TowlineErrorV1 *error);
    /* The descriptor to pass on; it stays the connection's, the same one until connection_free. Called once. NULL
     * without TOWLINE_PASSES_DESCRIPTORS. */
    int32_t (*descriptor)(void *connection);
    /* The last call for a connection; no other is in progress. Closes it, but does not end it for another process
     * that adopted a copy of its descriptor. */
    void (*connection_free)(void *connection);
} TowlineTransportV1;

/* The only symbol that a plugin needs to export, which it does also under -fvisibility=hidden. The table must stay valid and unchanged for ever. */
#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
const TowlineTransportV1 *towline_transport_v1(void);

#ifdef __cplusplus
}
#endif

#endif
