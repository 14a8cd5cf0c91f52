/*
 * A Towline transport over Unix-domain sockets: unix:///run/towline.sock. For clients on the server's own host, where
 * the permissions of a file are the access control.
 *
 * It is also the example of a transport plugin in C; docs/adding-a-transport.md walks through it. To build and use it:
 *
 *     cc -shared -fPIC -O2 -fvisibility=hidden -I crates/towline-transport/include -o libtowline_unix.so \
 *         crates/towline-transport/examples/unix_socket.c
 */
#define _GNU_SOURCE
#include "towline_transport.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct connection {
    int fd;
    char peer[160];
};

struct listener {
    int fd;
    atomic_bool closed;
    struct sockaddr_un address;
    /* Of the socket file, so that only our own is removed. */
    dev_t device;
    ino_t inode;
};

static int32_t fail(int32_t status, TowlineErrorV1 *error, const char *action)
{
    snprintf(error->text, sizeof error->text, "%s: %s", action, strerror(errno));
    return status;
}

/* The status for an errno of an established connection. */
static int32_t fail_established(TowlineErrorV1 *error, const char *action)
{
    return fail(errno == EPIPE || errno == ECONNRESET ? TOWLINE_CLOSED : TOWLINE_FAILED, error, action);
}

static int32_t parse(const char *text, struct sockaddr_un *address, TowlineErrorV1 *error)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (text[0] != '/' || strlen(text) >= sizeof address->sun_path) {
        snprintf(error->text, sizeof error->text,
                 "write an absolute path of at most %zu bytes, for example unix:///run/towline.sock",
                 sizeof address->sun_path - 1);
        return TOWLINE_INVALID_ADDRESS;
    }
    memcpy(address->sun_path, text, strlen(text));
    return TOWLINE_OK;
}

/* Makes a connection of a descriptor, which it takes in any case. */
static int32_t wrap(int fd, const char *path, void **connection, TowlineErrorV1 *error)
{
    struct connection *made = calloc(1, sizeof *made);
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (!made || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        int32_t status = fail(TOWLINE_FAILED, error, "take over the socket");
        free(made);
        close(fd);
        return status;
    }
    made->fd = fd;
    snprintf(made->peer, sizeof made->peer, "unix://%s (process %ld)", path, (long)peer.pid);
    *connection = made;
    return TOWLINE_OK;
}

static int32_t unix_connect(const char *text, const TowlineConnectOptionsV1 *options, void **connection,
                            TowlineErrorV1 *error)
{
    struct sockaddr_un address;
    int32_t status = parse(text, &address, error);
    if (status != TOWLINE_OK)
        return status;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(TOWLINE_FAILED, error, "make a socket");

    if (options->buffer_bytes > 0) {
        int bytes = options->buffer_bytes > INT_MAX ? INT_MAX : (int)options->buffer_bytes;
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }
    /* On a Unix socket, connect waits for room in the listener's backlog no longer than a send may wait. The kernel
     * takes 0 for "for ever", so the shortest wait is one microsecond. Keepalive and acknowledgements have no
     * meaning here: this kernel knows when the peer is gone. */
    uint64_t us = options->timeout_ns / 1000 > 0 ? options->timeout_ns / 1000 : 1;
    struct timeval limit = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    int result;
    do
        result = connect(fd, (struct sockaddr *)&address, sizeof address);
    while (result != 0 && errno == EINTR);
    if (result != 0) {
        switch (errno) {
        case ENOENT:
        case ECONNREFUSED:
            status = TOWLINE_REFUSED;
            break;
        case EAGAIN:
            status = TOWLINE_TIMED_OUT;
            break;
        default:
            status = TOWLINE_FAILED;
        }
        fail(status, error, "connect");
        close(fd);
        return status;
    }
    limit = (struct timeval){0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return wrap(fd, text, connection, error);
}

/* Whether the socket file of a listener that died is in the way. */
static int is_stale(const struct sockaddr_un *address)
{
    struct stat file;
    if (lstat(address->sun_path, &file) != 0 || !S_ISSOCK(file.st_mode))
        return 0;
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return 0;
    int refused = connect(probe, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED;
    close(probe);
    return refused;
}

static int32_t unix_listen(const char *text, void **out, TowlineErrorV1 *error)
{
    struct sockaddr_un address;
    int32_t status = parse(text, &address, error);
    if (status != TOWLINE_OK)
        return status;
    struct listener *listener = calloc(1, sizeof *listener);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!listener || fd < 0) {
        status = fail(TOWLINE_FAILED, error, "make a socket");
        goto failed;
    }
    int result = bind(fd, (struct sockaddr *)&address, sizeof address);
    if (result != 0 && errno == EADDRINUSE && is_stale(&address) && unlink(address.sun_path) == 0)
        result = bind(fd, (struct sockaddr *)&address, sizeof address);
    if (result != 0) {
        status = fail(errno == EADDRINUSE ? TOWLINE_ADDRESS_IN_USE : TOWLINE_FAILED, error, "bind");
        goto failed;
    }
    struct stat file;
    if (listen(fd, SOMAXCONN) != 0 || lstat(address.sun_path, &file) != 0) {
        status = fail(TOWLINE_FAILED, error, "listen");
        unlink(address.sun_path);
        goto failed;
    }
    listener->fd = fd;
    listener->address = address;
    listener->device = file.st_dev;
    listener->inode = file.st_ino;
    *out = listener;
    return TOWLINE_OK;

failed:
    if (fd >= 0)
        close(fd);
    free(listener);
    return status;
}

static int32_t unix_adopt(int32_t fd, void **connection, TowlineErrorV1 *error)
{
    struct sockaddr_un address = {0};
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0 || address.sun_family != AF_UNIX) {
        snprintf(error->text, sizeof error->text, "the descriptor is no Unix socket");
        close(fd);
        return TOWLINE_FAILED;
    }
    /* The name of the accepting end; a connecting end has none. */
    return wrap(fd, address.sun_path, connection, error);
}

static int32_t listener_accept(void *object, void **connection, TowlineErrorV1 *error)
{
    struct listener *listener = object;
    for (;;) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            return wrap(fd, listener->address.sun_path, connection, error);
        if (atomic_load(&listener->closed))
            return TOWLINE_CLOSED;
        if (errno != EINTR && errno != ECONNABORTED)
            return fail(TOWLINE_FAILED, error, "accept");
    }
}

static int32_t listener_address(void *object, char *text, size_t size, TowlineErrorV1 *error)
{
    struct listener *listener = object;
    (void)error;
    snprintf(text, size, "%s", listener->address.sun_path);
    return TOWLINE_OK;
}

static void listener_close(void *object)
{
    struct listener *listener = object;
    struct stat file;
    if (atomic_exchange(&listener->closed, 1))
        return;
    /* Wakes accept; close would not. */
    shutdown(listener->fd, SHUT_RDWR);
    if (lstat(listener->address.sun_path, &file) == 0 && file.st_dev == listener->device &&
        file.st_ino == listener->inode)
        unlink(listener->address.sun_path);
}

static void listener_free(void *object)
{
    struct listener *listener = object;
    listener_close(listener);
    close(listener->fd);
    free(listener);
}

static int32_t unix_send(void *object, const struct iovec *parts, size_t count, TowlineErrorV1 *error)
{
    struct connection *connection = object;
    size_t skip = 0; /* bytes of parts[0] that are sent already */
    while (count > 0) {
        ssize_t sent;
        if (skip > 0) {
            sent = send(connection->fd, (const char *)parts->iov_base + skip, parts->iov_len - skip, MSG_NOSIGNAL);
        } else {
            /* sendmsg does not write to the parts; only its type says that it might. */
            struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count < IOV_MAX ? count : IOV_MAX};
            sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
        }
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            return fail_established(error, "send");
        }
        skip += (size_t)sent;
        while (count > 0 && skip >= parts->iov_len) {
            skip -= parts->iov_len;
            parts++;
            count--;
        }
    }
    return TOWLINE_OK;
}

static int32_t unix_try_send(void *object, const uint8_t *bytes, size_t len, size_t *sent, TowlineErrorV1 *error)
{
    struct connection *connection = object;
    ssize_t result;
    do
        result = send(connection->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (result < 0 && errno == EINTR);
    if (result < 0)
        return errno == EAGAIN ? TOWLINE_WOULD_BLOCK : fail_established(error, "send");
    *sent = (size_t)result;
    return TOWLINE_OK;
}

static int32_t receive(struct connection *connection, uint8_t *buffer, size_t len, int flags, size_t *received,
                       TowlineErrorV1 *error)
{
    ssize_t result;
    do
        result = recv(connection->fd, buffer, len, flags);
    while (result < 0 && errno == EINTR);
    if (result < 0)
        return errno == EAGAIN ? TOWLINE_WOULD_BLOCK : fail_established(error, "receive");
    *received = (size_t)result;
    return TOWLINE_OK;
}

static int32_t unix_recv(void *object, uint8_t *buffer, size_t len, size_t *received, TowlineErrorV1 *error)
{
    return receive(object, buffer, len, 0, received, error);
}

static int32_t unix_try_recv(void *object, uint8_t *buffer, size_t len, size_t *received, TowlineErrorV1 *error)
{
    return receive(object, buffer, len, MSG_DONTWAIT, received, error);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int32_t unix_wait_readable(void *object, int64_t timeout_ns, int32_t *readable, TowlineErrorV1 *error)
{
    struct connection *connection = object;
    struct pollfd poller = {.fd = connection->fd, .events = POLLIN};
    int64_t start = now_ns();
    for (;;) {
        int64_t left = timeout_ns - (now_ns() - start);
        if (left < 0)
            left = 0;
        struct timespec limit = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        int ready = ppoll(&poller, 1, timeout_ns < 0 ? NULL : &limit, NULL);
        if (ready >= 0) {
            *readable = ready > 0;
            return TOWLINE_OK;
        }
        if (errno != EINTR)
            return fail(TOWLINE_FAILED, error, "wait");
    }
}

static void unix_shutdown(void *object)
{
    struct connection *connection = object;
    shutdown(connection->fd, SHUT_RDWR);
}

static int32_t unix_peer(void *object, char *text, size_t size, TowlineErrorV1 *error)
{
    struct connection *connection = object;
    (void)error;
    snprintf(text, size, "%s", connection->peer);
    return TOWLINE_OK;
}

static int32_t unix_descriptor(void *object)
{
    struct connection *connection = object;
    return connection->fd;
}

static void connection_free(void *object)
{
    struct connection *connection = object;
    close(connection->fd);
    free(connection);
}

static const TowlineTransportV1 transport = {
    .abi_version = TOWLINE_TRANSPORT_ABI_VERSION,
    .struct_size = sizeof(TowlineTransportV1),
    .scheme = "unix",
    .capabilities = TOWLINE_PASSES_DESCRIPTORS,
    .connect = unix_connect,
    .listen = unix_listen,
    .adopt = unix_adopt,
    .listener_accept = listener_accept,
    .listener_address = listener_address,
    .listener_close = listener_close,
    .listener_free = listener_free,
    .send = unix_send,
    .try_send = unix_try_send,
    .recv = unix_recv,
    .try_recv = unix_try_recv,
    .wait_readable = unix_wait_readable,
    .shutdown = unix_shutdown,
    .peer = unix_peer,
    .descriptor = unix_descriptor,
    .connection_free = connection_free,
};

const TowlineTransportV1 *towline_transport_v1(void)
{
    return &transport;
}
