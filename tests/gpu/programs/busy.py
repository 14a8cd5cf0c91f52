"""The driver interface by itself: holds device memory and goes on until it is killed, or, with `--doing check`, until its standard input
ends. Says `ready` once it is under way; ends with 3 when a call fails, and with 1 when a result is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import select
import sys
from collections.abc import Iterator

from driver_memory import COUNT, PTX, Driver, Refused

FAILED = 3
# What a copy moves at a time, and how many launches a graph has.
PIECE = 64 << 20
NODES = 1000
# Launches that nobody waits for.
STORM = 500


class Busy:
    """Memory, and something to do with it."""

    def __init__(self, megabytes: int) -> None:
        self.driver = driver = Driver()
        self.bytes = megabytes << 20
        self.memory = driver.allocate(self.bytes)
        # Memory that nobody has written may not be there yet.
        driver.call("cuMemsetD32_v2", self.memory, 0, ctypes.c_size_t(self.bytes // 4))
        self.function = driver.function(PTX + b"\0")
        self.stream = driver.stream()
        driver.synchronise()

    def launch(self, stream: ctypes.c_void_p | None) -> None:
        memory, count = ctypes.c_uint64(self.memory.value), ctypes.c_uint32(COUNT)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(count))
        grid = (COUNT + 255) // 256
        self.driver.call("cuLaunchKernel", self.function, grid, 1, 1, 256, 1, 1, 0, stream, parameters, None)

    def copies(self) -> Iterator[None]:
        size = min(PIECE, self.bytes)
        host = ctypes.create_string_buffer(size)
        while True:
            self.driver.call("cuMemcpyHtoDAsync_v2", self.memory, host, ctypes.c_size_t(size), self.stream)
            self.driver.call("cuMemcpyDtoHAsync_v2", host, self.memory, ctypes.c_size_t(size), self.stream)
            yield

    def launches(self) -> Iterator[None]:
        while True:
            for _ in range(STORM):
                self.launch(self.stream)
            yield

    def capture(self) -> Iterator[None]:
        while True:
            graph = ctypes.c_void_p()
            self.driver.call("cuStreamBeginCapture_v2", self.stream, 0)
            for _ in range(NODES):
                self.launch(self.stream)
                yield
            self.driver.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
            self.driver.call("cuGraphDestroy", graph)

    def check(self) -> Iterator[None]:
        while True:
            self.driver.call("cuMemsetD32_v2", self.memory, 41, ctypes.c_size_t(COUNT))
            self.launch(None)
            if set(self.driver.read(self.memory, COUNT)) != {42}:
                sys.exit("41 + 1 is not 42 any more")
            yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--doing", choices=("copies", "launches", "capture", "check"), required=True)
    parser.add_argument("--megabytes", type=int, default=1024, help="device memory to hold (default: %(default)s)")
    options = parser.parse_args()
    try:
        busy = Busy(options.megabytes)
        turns = getattr(busy, options.doing)()
        next(turns)
        print("ready", flush=True)
        for _ in turns:
            if options.doing == "check" and select.select([sys.stdin], [], [], 0)[0]:
                return 0
    except Refused as error:
        print(error, file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
