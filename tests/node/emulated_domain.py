#!/usr/bin/env python3
"""Makes a domain of `towline vm` one that QEMU can emulate here: emulated_domain.py XML KERNEL INITRAMFS CONSOLE SOCKET.

What takes hardware goes: KVM, huge pages, pinning, UEFI, disks, networks, vsock. Each passed-through function is replaced by an emulated
one at the same address, so that the tree of buses stays as it was.
"""

import sys
import xml.etree.ElementTree as ET

NAMESPACE = "{http://libvirt.org/schemas/domain/qemu/1.0}"
CELL_KIB = 256 << 10


def drop(parent: ET.Element, *names: str) -> None:
    for name in names:
        for child in parent.findall(name):
            parent.remove(child)


def main() -> None:
    source, kernel, initramfs, console, socket = sys.argv[1:]
    domain = ET.parse(source).getroot()
    domain.set("type", "qemu")
    drop(domain, "memoryBacking", "cputune", "numatune", NAMESPACE + "commandline", NAMESPACE + "override")
    os = domain.find("os")
    os.attrib.pop("firmware", None)
    for name, text in [("kernel", kernel), ("initrd", initramfs), ("cmdline", "console=ttyS0 quiet panic=-1 no_timer_check")]:
        ET.SubElement(os, name).text = text
    drop(domain.find("features"), "pmu")
    cpu = domain.find("cpu")
    cells = cpu.find("numa").findall("cell")
    for name in ("topology", "cache", "maxphysaddr"):
        drop(cpu, name)
    cpu.attrib.clear()
    cpu.set("mode", "custom")
    ET.SubElement(cpu, "model").text = "qemu64"
    for number, cell in enumerate(cells):
        cell.set("cpus", str(number))
        cell.set("memory", str(CELL_KIB))
    domain.find("vcpu").text = str(len(cells))
    domain.find("memory").text = str(CELL_KIB * len(cells))
    drop(domain, "clock")
    devices = domain.find("devices")
    drop(devices, "disk", "interface", "serial", "console", "vsock", "iommu")
    for controller in devices.findall("controller"):
        drop(controller, "pcihole64")
    for channel in devices.findall("channel"):
        channel.find("source").set("path", socket)
    for device in devices.findall("hostdev"):
        devices.remove(device)
        stand_in = ET.SubElement(devices, "rng", model="virtio")
        ET.SubElement(stand_in, "backend", model="random").text = "/dev/urandom"
        stand_in.append(device.find("address"))
    serial = ET.SubElement(devices, "serial", type="file")
    ET.SubElement(serial, "source", path=console)
    ET.SubElement(serial, "target", port="0")
    sys.stdout.write(ET.tostring(domain, encoding="unicode"))


if __name__ == "__main__":
    main()
