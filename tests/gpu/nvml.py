#!/usr/bin/env python3
"""Compares what NVML says natively and through Towline, with nvidia-ml-py (`pip install nvidia-ml-py`).

    nvml.py dump > native.json
    towline run --server HOST -- nvml.py dump > remote.json
    nvml.py compare native.json remote.json

`dump` asks every device every question that takes the device alone. `compare` prints what differs: answers that change by
themselves (power, clocks, times) may, by their values; a status that differs is listed first. The exit status is 1 when a call is
answered natively and neither answered nor known to be refused through Towline.
"""

import ctypes
import inspect
import json
import sys

# Not passed on: what names the server's processors, device nodes and parts, or other sessions.
REFUSED = (
    "AddressingMode", "Affinity", "BBX", "BridgeChip", "ClkMon", "Encoder", "FBCSessions", "Gpm", "GpuFabricInfo", "Gpu_instance",
    "GpuInstance", "IrqNum", "MinorNumber", "NumaNode", "Numa", "Pdi", "Process", "RemappedRows_v2", "Repair", "RetiredPages",
    "Thermal", "DynamicPstates", "TgpMode", "PowerMizer", "Vgpu", "Grid", "Hostname", "EventTypes", "MigDevice", "DriverModel",
    "NvLinkInfo", "Bw", "Unrepairable", "BankRemapper", "MemoryLimits", "UniqueUncorrected", "Accounting", "Profile",
)  # fmt: skip


def plain(value: object) -> object:
    """An answer as JSON has it."""
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, (list, tuple, ctypes.Array)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, (int, float, str)) or value is None else str(type(value))


def dump() -> dict:
    import pynvml

    pynvml.nvmlInit()
    answers: dict = {
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "nvml": pynvml.nvmlSystemGetNVMLVersion(),
        "cuda": pynvml.nvmlSystemGetCudaDriverVersion_v2(),
        "devices": [],
    }
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        device: dict = {}
        for name in sorted(dir(pynvml)):
            ask = getattr(pynvml, name)
            if not name.startswith("nvmlDeviceGet") or "HandleBy" in name or not callable(ask):
                continue
            parameters = inspect.signature(ask).parameters.values()
            if len([one for one in parameters if one.default is one.empty]) != 1:
                continue
            try:
                device[name] = {"answer": plain(ask(handle))}
            except pynvml.NVMLError as error:
                device[name] = {"status": error.value}
            except Exception as error:  # what the binding itself cannot do is no answer
                device[name] = {"status": type(error).__name__}
        answers["devices"].append(device)
    return answers


def compare(native: dict, remote: dict) -> int:
    missing = 0
    for name in ("driver", "nvml", "cuda"):
        if native[name] != remote[name]:
            print(f"{name}: {native[name]} natively, {remote[name]} through Towline")
    for index, (one, other) in enumerate(zip(native["devices"], remote["devices"], strict=False)):
        for call, said in one.items():
            heard = other.get(call, {"status": "not asked"})
            if "answer" in said and "status" in heard:
                known = any(part in call for part in REFUSED)
                missing += not known
                print(f"{index} {call}: answered natively, {heard['status']} through Towline{' (as documented)' if known else ''}")
            elif said.get("status") != heard.get("status"):
                print(f"{index} {call}: {said.get('status')} natively, {heard.get('status')} through Towline")
        for call, said in one.items():
            heard = other.get(call, {})
            if "answer" in said and "answer" in heard and said != heard:
                print(f"{index} {call}: {said['answer']} natively, {heard['answer']} through Towline")
    print(f"{len(native['devices'])} devices natively, {len(remote['devices'])} through Towline; {missing} calls are missing")
    return 1 if missing else 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["dump"]:
            json.dump(dump(), sys.stdout, indent=1)
        case ["compare", first, second]:
            with open(first) as native, open(second) as remote:
                sys.exit(compare(json.load(native), json.load(remote)))
        case _:
            sys.exit(__doc__)
