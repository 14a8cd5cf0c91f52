"""The driver interface by itself: linking, values that streams wait for, managed, pinned and registered memory, and memory and events of
another process. Each part says what it found; a part that the driver refuses says with which error.

Run it alone to look at one part: `driver_memory.py --part ipc`.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable

import harness

PTX = rb"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry add_one(.param .u64 memory, .param .u32 count)
{
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<4>;
    ld.param.u64 %d1, [memory]; ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p, %r2, %r1;
    @%p ret;
    mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2;
    ld.global.u32 %r5, [%d3]; add.u32 %r5, %r5, 1; st.global.u32 [%d3], %r5;
    ret;
}
"""
COUNT = 1 << 16


class Refused(Exception):
    """The driver has answered an error."""


class Driver:
    """The driver's functions; a status other than 0 is an exception."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            print(f"skipped: {error}", file=sys.stderr)
            sys.exit(harness.SKIPPED)
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def status(self, name: str, *arguments: object) -> int:
        return int(getattr(self.library, name)(*arguments))

    def call(self, name: str, *arguments: object) -> None:
        status = self.status(name, *arguments)
        if status != 0:
            raise Refused(f"{name}: {status}")

    def attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, 0)
        return value.value

    def allocate(self, size: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream

    def read(self, address: ctypes.c_uint64, count: int) -> list[int]:
        numbers = (ctypes.c_uint32 * count)()
        self.call("cuMemcpyDtoH_v2", numbers, address, ctypes.c_size_t(4 * count))
        return list(numbers)

    def function(self, image: bytes | ctypes.c_void_p) -> ctypes.c_void_p:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"add_one")
        return function

    def add(self, function: ctypes.c_void_p, address: int, count: int = COUNT) -> None:
        memory, length = ctypes.c_uint64(address), ctypes.c_uint32(count)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(length))
        blocks = (count + 255) // 256
        self.call("cuLaunchKernel", function, blocks, 1, 1, 256, 1, 1, 0, None, parameters, None)

    def synchronise(self) -> None:
        self.call("cuCtxSynchronize")


def link(driver: Driver) -> object:
    """Links PTX twice: broken, where the logs matter, and whole."""
    error, info = ctypes.create_string_buffer(4096), ctypes.create_string_buffer(4096)
    names = (ctypes.c_int * 6)(5, 6, 3, 4, 2, 12)
    values = (ctypes.c_void_p * 6)(ctypes.addressof(error), 4096, ctypes.addressof(info), 4096, 0, 1)
    state = ctypes.c_void_p()
    driver.call("cuLinkCreate_v2", 6, names, values, ctypes.byref(state))
    broken = b"mov r1, r2;\0"
    size = ctypes.c_size_t(len(broken))
    refused = driver.status("cuLinkAddData_v2", state, 1, broken, size, b"broken", 0, None, None)
    said = {"status": refused, "log": len(error.value) > 0, "size": values[1]}
    driver.call("cuLinkDestroy", state)
    values = (ctypes.c_void_p * 6)(ctypes.addressof(error), 4096, ctypes.addressof(info), 4096, 0, 1)
    driver.call("cuLinkCreate_v2", 6, names, values, ctypes.byref(state))
    text = PTX + b"\0"
    driver.call("cuLinkAddData_v2", state, 1, text, ctypes.c_size_t(len(text)), b"whole", 0, None, None)
    image, size = ctypes.c_void_p(), ctypes.c_size_t()
    driver.call("cuLinkComplete", state, ctypes.byref(image), ctypes.byref(size))
    function = driver.function(image)
    driver.call("cuLinkDestroy", state)
    memory = driver.allocate(4 * COUNT)
    driver.call("cuMemsetD32_v2", memory, 5, ctypes.c_size_t(COUNT))
    driver.add(function, memory.value)
    return {"broken": said, "sizes_after": [values[1], values[3]], "result": sum(driver.read(memory, COUNT))}


def values(driver: Driver) -> object:
    """A stream waits for a value that another stream writes."""
    flag = driver.allocate(4096)
    driver.call("cuMemsetD32_v2", flag, 0, ctypes.c_size_t(1024))
    driver.synchronise()
    waiting, writing = driver.stream(), driver.stream()
    there = ctypes.c_uint64(flag.value + 4)
    driver.call("cuStreamWaitValue32_v2", waiting, flag, 7, 0)
    driver.call("cuStreamWriteValue32_v2", waiting, there, 9, 0)
    before = driver.status("cuStreamQuery", waiting)
    driver.call("cuStreamWriteValue32_v2", writing, flag, 7, 0)
    driver.call("cuStreamSynchronize", waiting)
    unknown = driver.status("cuStreamWriteValue32_v2", writing, ctypes.c_uint64(0x1000), 1, 0)
    odd = driver.status("cuStreamWriteValue32_v2", writing, ctypes.c_uint64(flag.value + 2), 1, 0)
    flush = driver.status("cuStreamWaitValue32_v2", writing, flag, 7, 1 << 30)
    return {"before": before, "after": driver.read(flag, 2), "unknown": unknown, "odd": odd, "flush": flush}


def host_memory(driver: Driver, address: int, kernel: ctypes.c_void_p) -> list[int]:
    numbers = (ctypes.c_uint32 * COUNT).from_address(address)
    for index in range(0, COUNT, 97):
        numbers[index] = index
    found = []
    for _ in range(3):
        driver.add(kernel, address)
        driver.synchronise()
        found.append(sum(numbers))
        numbers[1] += 10
    return found


def managed(driver: Driver) -> object:
    """Host and kernel take turns on managed memory."""
    address = ctypes.c_uint64()
    driver.call("cuMemAllocManaged", ctypes.byref(address), ctypes.c_size_t(4 * COUNT), 1)
    found = host_memory(driver, address.value, driver.function(PTX + b"\0"))
    driver.call("cuMemFree_v2", address)
    return found


def mapped(driver: Driver) -> object:
    """Host and kernel take turns on pinned memory."""
    place, device = ctypes.c_void_p(), ctypes.c_uint64()
    driver.call("cuMemHostAlloc", ctypes.byref(place), ctypes.c_size_t(4 * COUNT), 2)
    driver.call("cuMemHostGetDevicePointer_v2", ctypes.byref(device), place, 0)
    ctypes.memset(place, 0, 4 * COUNT)
    found = host_memory(driver, place.value or 0, driver.function(PTX + b"\0"))
    driver.call("cuMemFreeHost", place)
    return {"same_address": device.value == place.value, "found": found}


def registered(driver: Driver) -> object:
    """Host and kernel take turns on memory of the program's own: one number, and many, both beside others."""
    kernel, found = driver.function(PTX + b"\0"), []
    for count, before in ((1, 5), (COUNT, 3)):
        own = (ctypes.c_uint32 * (count + 2 * before))()
        start, device = ctypes.c_void_p(ctypes.addressof(own) + 4 * before), ctypes.c_uint64()
        driver.call("cuMemHostRegister_v2", start, ctypes.c_size_t(4 * count), 2)
        driver.call("cuMemHostGetDevicePointer_v2", ctypes.byref(device), start, 0)
        for _ in range(3):
            own[before] += 10
            own[before - 1] += 1
            driver.add(kernel, device.value, count)
            driver.synchronise()
            found.append([own[before], sum(own)])
        driver.call("cuMemHostUnregister", start)
    return found


class Handle(ctypes.Structure):
    """What names memory or an event to another process."""

    _fields_ = [("bytes", ctypes.c_char * 64)]


def other(number: int) -> None:
    """The other process of `ipc`."""
    peer = socket.socket(fileno=number)
    driver = Driver()
    data, files, _, _ = socket.recv_fds(peer, 192, 2)
    memory, event, pointer = (Handle.from_buffer_copy(data[at : at + 64]) for at in (0, 64, 128))
    driver.library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    driver.library.cuIpcOpenEventHandle.argtypes = [ctypes.c_void_p, Handle]
    answer: dict[str, object] = {}
    address, recorded, physical = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_uint64()
    answer["memory"] = driver.status("cuIpcOpenMemHandle_v2", ctypes.byref(address), memory, 1)
    if answer["memory"] == 0:
        answer["found"] = sum(driver.read(address, COUNT))
        driver.add(driver.function(PTX + b"\0"), address.value)
        driver.synchronise()
        answer["close"] = driver.status("cuIpcCloseMemHandle", address)
    answer["event"] = driver.status("cuIpcOpenEventHandle", ctypes.byref(recorded), event)
    if answer["event"] == 0:
        # Recorded behind a wait that the first process ends when it hears from here.
        answer["early"] = driver.status("cuEventQuery", recorded)
        stream = driver.stream()
        driver.call("cuStreamWaitEvent", stream, recorded, 0)
        answer["behind"] = driver.status("cuStreamQuery", stream)
        peer.send(b"go")
        answer["passed"] = driver.status("cuEventSynchronize", recorded)
        answer["stream"] = driver.status("cuStreamSynchronize", stream)
        answer["late"] = driver.status("cuEventQuery", recorded)
    if files:
        file = ctypes.c_void_p(files[0])
        answer["physical"] = driver.status("cuMemImportFromShareableHandle", ctypes.byref(physical), file, 1)
    if len(files) > 1:
        pool, inside = ctypes.c_void_p(), ctypes.c_uint64()
        file, flags = ctypes.c_void_p(files[1]), ctypes.c_ulonglong(0)
        answer["pool"] = driver.status("cuMemPoolImportFromShareableHandle", ctypes.byref(pool), file, 1, flags)
        if answer["pool"] == 0:
            answer["pointer"] = driver.status("cuMemPoolImportPointer", ctypes.byref(inside), pool, ctypes.byref(pointer))
            if answer["pointer"] == 0:
                answer["pooled"] = sum(driver.read(inside, COUNT))
                answer["free"] = driver.status("cuMemFreeAsync", inside, None)
                driver.synchronise()
            answer["destroy"] = driver.status("cuMemPoolDestroy", pool)
    peer.send(json.dumps(answer).encode())


class Location(ctypes.Structure):
    """Where memory is."""

    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    """What physical memory is to be."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class PoolProperties(ctypes.Structure):
    """What a pool is to be."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("security", ctypes.c_void_p),
        ("most", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    ]


def pooled(driver: Driver) -> tuple[int, Handle]:
    """A pool as a file, and an allocation of it by name."""
    pool, memory, file, pointer = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int(-1), Handle()
    wanted = PoolProperties(type=1, handles=1, location=Location(1, 0))
    driver.call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(wanted))
    size = ctypes.c_size_t(4 * COUNT)
    driver.call("cuMemAllocFromPoolAsync", ctypes.byref(memory), size, pool, None)
    driver.call("cuMemsetD32_v2", memory, 5, ctypes.c_size_t(COUNT))
    driver.synchronise()
    driver.call("cuMemPoolExportToShareableHandle", ctypes.byref(file), pool, 1, ctypes.c_ulonglong(0))
    driver.call("cuMemPoolExportPointer", ctypes.byref(pointer), memory)
    return file.value, pointer


def ipc(driver: Driver) -> object:
    """Memory, an event, physical memory and a pool go to another process."""
    # First: what follows keeps a stream waiting, and so whoever waits for all of them.
    try:
        pool, pointer = pooled(driver)
        more = [pool]
    except Refused as refused:
        print(refused, file=sys.stderr)
        pointer, more = Handle(), []
    memory, event = driver.allocate(4 * COUNT), ctypes.c_void_p()
    driver.call("cuMemsetD32_v2", memory, 3, ctypes.c_size_t(COUNT))
    driver.call("cuEventCreate", ctypes.byref(event), 6)
    flag, held, other_stream = driver.allocate(8), driver.stream(), driver.stream()
    driver.call("cuMemsetD32_v2", flag, 0, ctypes.c_size_t(2))
    driver.synchronise()
    driver.call("cuStreamWaitValue32_v2", held, flag, 1, 1)
    driver.call("cuEventRecord", event, held)
    named, recorded = Handle(), Handle()
    driver.call("cuIpcGetMemHandle", ctypes.byref(named), memory)
    driver.call("cuIpcGetEventHandle", ctypes.byref(recorded), event)
    driver.library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    again = ctypes.c_uint64()
    own = driver.status("cuIpcOpenMemHandle_v2", ctypes.byref(again), named, 1)
    physical, file = ctypes.c_uint64(), ctypes.c_int(-1)
    wanted = Properties(type=1, handles=1, location=Location(1, 0))
    size = ctypes.c_size_t(2 << 20)
    driver.call("cuMemCreate", ctypes.byref(physical), size, ctypes.byref(wanted), ctypes.c_ulonglong(0))
    driver.call("cuMemExportToShareableHandle", ctypes.byref(file), physical, 1, ctypes.c_ulonglong(0))
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    program = [sys.executable, __file__, "--other", str(theirs.fileno())]
    child = os.posix_spawn(sys.executable, program, dict(os.environ))
    theirs.close()
    socket.send_fds(ours, [bytes(named) + bytes(recorded) + bytes(pointer)], [file.value, *more])
    said = ours.recv(4096)
    if said == b"go":
        driver.call("cuStreamWriteValue32_v2", other_stream, flag, 1, 0)
        said = ours.recv(4096)
    answer = json.loads(said or b"null")
    driver.call("cuStreamWriteValue32_v2", other_stream, flag, 1, 0)
    os.waitpid(child, 0)
    return {"own": own, "other": answer, "result": sum(driver.read(memory, COUNT))}


def pools(driver: Driver) -> object:
    """How much a pool keeps of what it got back, after many waits and one more: nothing."""
    pool, kept = ctypes.c_void_p(), []
    driver.call("cuDeviceGetDefaultMemPool", ctypes.byref(pool), 0)
    stream = driver.stream()
    kernel, small = driver.function(PTX), driver.allocate(4 * COUNT)
    driver.call("cuMemsetD32_v2", small, 0, ctypes.c_size_t(COUNT))
    for _ in range(40):
        driver.add(kernel, small.value)
        driver.call("cuStreamSynchronize", None)
        driver.synchronise()
    for wait in (("cuStreamSynchronize", stream), ("cuStreamSynchronize", None), ("cuCtxSynchronize",)):
        memory, reserved = ctypes.c_uint64(), ctypes.c_uint64()
        driver.call("cuMemAllocAsync", ctypes.byref(memory), ctypes.c_size_t(64 << 20), stream)
        driver.call("cuMemsetD32Async", memory, 1, ctypes.c_size_t(COUNT), stream)
        driver.call("cuMemFreeAsync", memory, stream)
        driver.call(*wait)
        driver.call("cuMemPoolGetAttribute", pool, 5, ctypes.byref(reserved))
        kept.append(reserved.value)
    return {"kept": kept, "sum": sum(driver.read(small, COUNT))}


PARTS: dict[str, Callable[[Driver], object]] = {
    "link": link,
    "pools": pools,
    "values": values,
    "managed": managed,
    "mapped": mapped,
    "registered": registered,
    "ipc": ipc,
}


def main() -> None:
    parser = harness.arguments(__doc__, steps=1, rounds=1)
    parser.add_argument("--part", choices=sorted(PARTS), help="only this part")
    parser.add_argument("--other", type=int, help="for the program itself")
    options = parser.parse_args()
    if options.other is not None:
        other(options.other)
        return
    driver = Driver()
    clock = harness.Clock("driver_memory", options)
    found: dict[str, object] = {}
    for name, part in PARTS.items():
        if options.part in (None, name):
            try:
                found[name] = part(driver)
            except Refused as refused:
                found[name] = str(refused)
            clock.first_result()
    # Errors and results count, not what the compiler says about itself.
    results = harness.Results()
    results.add(array.array("B", json.dumps(found, sort_keys=True).encode()))
    clock.report(results, parts=found)


if __name__ == "__main__":
    main()
