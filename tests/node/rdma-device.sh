# An RDMA device in software on a network device; sourced by tests/node/guest-rdma.sh.
# shellcheck shell=bash

# rdma_device NETWORK ADDRESS: makes rxe0.
rdma_device() {
  local module
  # Without the last one rxe refuses devices and does not say why.
  for module in rdma_rxe rdma_ucm crc32_generic; do modprobe "$module"; done
  ip address add "$2/24" dev "$1"
  ip link set "$1" mtu 4200 up
  rdma link add rxe0 type rxe netdev "$1"
}

# rdma_messages: what it has sent by messages, rather than by writes or reads.
rdma_messages() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rdma_sends; }

# rdma_packets: what the device has sent.
rdma_packets() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }
