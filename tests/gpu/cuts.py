#!/usr/bin/env python3
"""Has a PyTorch training run go on while all of its connections are cut again and again, and compares its losses with those of runs that
nothing disturbs: natively and through Towline.

`cuts.sh run` starts the server and calls this. It needs PyTorch with CUDA, and nothing else beside Python's standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import threading

import suite

TRAINING = """
import sys, time, torch
torch.manual_seed(7)
torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
layers = [torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(4)]
model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(64 * 64, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
print("begun", flush=True)
losses, began = [], time.perf_counter()
for step in range(int(sys.argv[1])):
    images = torch.randn(64, 3, 32, 32).cuda()
    labels = torch.randint(0, 10, (64,)).cuda()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
weights = torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()])
print(" ".join(loss.hex() for loss in losses), weights.double().sum().item().hex(), f"{time.perf_counter() - began:.3f}")
"""


class Relay:
    """A way to a server that breaks when it is told to."""

    def __init__(self, server: str) -> None:
        host, port = server.removeprefix("tcp://").rsplit(":", 1)
        self.server = (host, int(port))
        self.ends: list[socket.socket] = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(self.server)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # Closing it is a reset.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with self.lock:
                self.ends += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    @staticmethod
    def carry(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 18):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        with self.lock:
            ends, self.ends = self.ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Cutter:
    """Cuts all connections of a relay again and again."""

    def __init__(self, relay: Relay, every: float, seed: int) -> None:
        self.relay, self.every = relay, every
        self.pauses = random.Random(seed)
        self.over = threading.Event()
        self.cuts = 0
        self.thread = threading.Thread(target=self.cut)

    def cut(self) -> None:
        while not self.over.wait(self.pauses.uniform(0.1, 1.9) * self.every):
            self.relay.cut()
            self.cuts += 1


def train(before: list[str], steps: int, cutter: Cutter | None = None) -> tuple[str, float]:
    """The digits of all losses and of the weights' sum, and seconds."""
    command = [*before, sys.executable, "-c", TRAINING, str(steps)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        begun = program.stdout.readline()
        if begun and cutter:
            cutter.thread.start()
        said = program.stdout.read()
    if begun and cutter:
        cutter.over.set()
        cutter.thread.join()
    if program.returncode != 0:
        sys.exit(f"cuts.py: {' '.join(command[:4])} ... ended with {program.returncode}")
    digits, _, seconds = said.strip().rpartition(" ")
    return digits, float(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--remote", required=True, help="command and options of `towline run`, separated by tabs, without --server")
    parser.add_argument("--server", required=True, help="address of a server over TCP")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", type=float, default=0.05, help="mean seconds between two cuts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="where to write the figures")
    options = parser.parse_args()
    relay = Relay(options.server)
    remote = [*options.remote.split("\t"), "--server", relay.address, "--"]
    native = [train([], options.steps) for _ in range(2)]
    calm = train(remote, options.steps)
    os.environ["TOWLINE_LOG"] = "error"
    cutter = Cutter(relay, options.every, options.seed)
    cut = train(remote, options.steps, cutter)
    figures = {
        "schema": 1,
        "kind": "cuts",
        "machine": suite.machine(),
        "steps": options.steps,
        "cuts": cutter.cuts,
        "native_s": [seconds for _, seconds in native],
        "remote_s": calm[1],
        "cut_s": cut[1],
        "native_repeats_itself": native[0][0] == native[1][0],
        "remote_equals_native": calm[0] == native[0][0],
        "cut_equals_remote": cut[0] == calm[0],
    }
    print(json.dumps(figures, indent=2))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    if not figures["cut_equals_remote"]:
        sys.exit("cuts.py: the losses of the run that was cut differ")


if __name__ == "__main__":
    main()
