# The machines of tests/node/emulated-host: each function sets `machine`, QEMU's arguments, and may add to `modules`.
# shellcheck shell=bash disable=SC2034

# Two NUMA nodes, each with a root complex, and an Intel IOMMU, which comes before what it translates for. An AMD processor has nested
# KVM in QEMU's emulation, an Intel one has not.
two_nodes() {
  local memory=$1
  modules+=(kvm_amd)
  machine=(
    -machine "q35,kernel-irqchip=split" -accel "tcg,thread=multi" -cpu "EPYC-Rome,-la57" -smp 4 -m "$memory"
    -device "intel-iommu,intremap=on,caching-mode=on,device-iotlb=on"
    -object "memory-backend-ram,id=m0,size=$((memory / 2))M" -object "memory-backend-ram,id=m1,size=$((memory / 2))M"
    -numa "node,nodeid=0,cpus=0-1,memdev=m0" -numa "node,nodeid=1,cpus=2-3,memdev=m1"
    -device "pxb-pcie,id=complex0,bus=pcie.0,bus_nr=32,numa_node=0"
    -device "pxb-pcie,id=complex1,bus=pcie.0,bus_nr=64,numa_node=1"
  )
}

# A host with a virtio GPU on a root port of its own on each node.
machine_host() {
  two_nodes 3072
  machine+=(
    -device "pcie-root-port,id=port0,bus=complex0,chassis=1" -device "pcie-root-port,id=port1,bus=complex1,chassis=2"
    -device "virtio-gpu-pci,bus=port0,ats=on" -device "virtio-gpu-pci,bus=port1,ats=on"
  )
}

# A virtual machine like any other: no IOMMU, no devices but those that it is started with. Processes that are its devices see its memory.
machine_guest() {
  machine=(
    -machine "q35,memory-backend=memory" -accel "tcg,thread=multi" -cpu "EPYC-Rome,-la57" -smp 2 -m 1024
    -object "memory-backend-memfd,id=memory,size=1024M,share=on"
  )
}

# A host with two NVMe drives that have virtual functions, on one node: 0000:01:00.0 on a root port of its own, and another below a switch
# without ACS, whose functions cannot be kept apart.
machine_drives() {
  "$qemu" -device nvme,help 2>/dev/null | grep -q sriov_max_vfs || skip "the nvme device of $qemu has no virtual functions (7.1 or newer has)"
  local index functions="max_ioqpairs=64,msix_qsize=65,sriov_max_vfs=4,sriov_vq_flexible=8,sriov_vi_flexible=4"
  modules+=(kvm_amd nvme)
  machine=(
    -machine "q35,kernel-irqchip=split" -accel "tcg,thread=multi" -cpu "EPYC-Rome,-la57" -smp 2 -m 3072
    -device "intel-iommu,intremap=on,caching-mode=on,device-iotlb=on"
    -device "pcie-root-port,id=port0,bus=pcie.0,chassis=1,slot=1" -device "pcie-root-port,id=port1,bus=pcie.0,chassis=2,slot=2"
    -device "x3130-upstream,id=upstream,bus=port1"
    -device "xio3130-downstream,id=port2,bus=upstream,chassis=3,slot=0"
  )
  for index in 0 1; do
    truncate --size 16M "$work/drive$index"
    machine+=(
      -drive "if=none,id=drive$index,format=raw,file=$work/drive$index"
      -device "nvme-subsys,id=subsystem$index,nqn=nqn.2026-01.org.towline:drive$index"
      -device "nvme,id=nvme$index,serial=drive$index,subsys=subsystem$index,bus=port$((index * 2)),$functions"
      -device "nvme-ns,drive=drive$index,bus=nvme$index,nsid=1,shared=on"
    )
  done
}

# A host with an adapter that has virtual functions and a display with 64 MiB of memory of its own, as stand-in for a GPU, on each node;
# the adapters, 0000:21:00.0 and 0000:41:00.0, are on one network. Another adapter is below a switch without ACS: 0000:45:00.0.
machine_cluster() {
  local node
  two_nodes 4096
  modules+=(igb)
  for node in 0 1; do
    machine+=(
      -device "pcie-root-port,id=port$node,bus=complex$node,chassis=$((2 * node + 1))"
      -device "pcie-root-port,id=place$node,bus=complex$node,chassis=$((2 * node + 2))"
      -netdev "hubport,id=network$node,hubid=0" -device "igb,bus=port$node,netdev=network$node,mac=52:54:00:00:00:0$node"
      -device "bochs-display,bus=place$node,vgamem=64M"
    )
  done
  machine+=(
    -device "pcie-root-port,id=port2,bus=complex1,chassis=5" -device "x3130-upstream,id=upstream,bus=port2"
    -device "xio3130-downstream,id=port3,bus=upstream,chassis=6,slot=0" -device "igb,bus=port3,mac=52:54:00:00:00:02"
  )
}
