# Within tests/node/emulated-host: apply and undo on a real kernel, killed at every change.
#
#   apply-undo.sh TOWLINE once|all
#
# `once` applies, checks, undoes and compares. `all` also kills apply before each of its changes, undoes and compares.
set -euo pipefail
towline=$1
mode=$2

# shellcheck source=tests/node/host-state.sh
. "$TOWLINE_NODE_TESTS/host-state.sh"

cat >/run/request.toml <<'REQUEST'
vms = 2
gpus = 1
cores = 1
memory = "64 MiB"
REQUEST

"$towline" node plan /run/request.toml || fail "no plan"
remember

"$towline" node apply /run/request.toml || fail "apply"
for device in 0000:21:00.0 0000:41:00.0; do
  [[ $(basename "$(readlink "/sys/bus/pci/devices/$device/driver")") == vfio-pci ]] || fail "$device is not set aside"
done
[[ $(cat /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages) == 32 ]] || fail "no huge pages on node 1"
[[ $(ls /dev/vfio | wc -l) == 3 ]] || fail "no groups in /dev/vfio"
"$towline" node apply /run/request.toml | grep -qx 'The host is as planned.' || fail "apply again"

# Somebody has a group open: nothing is taken from under them.
sleep 1000 9<>"/dev/vfio/$(basename "$(readlink /sys/bus/pci/devices/0000:21:00.0/iommu_group)")" &
holder=$!
until [[ $(readlink "/proc/$holder/fd/9") == /dev/vfio/* && $(cat "/proc/$holder/comm") == sleep ]]; do
  kill -0 "$holder" || fail "the group cannot be opened"
done
"$towline" node inspect >/run/out
grep -q "sleep ($holder) has /dev/vfio" /run/out || { cat /run/out; fail "the holder of a group is not seen"; }
state >/run/applied
"$towline" node undo >/run/out 2>&1 && fail "a device was taken back from who has it"
grep -q "0000:21:00.0 is in use: sleep ($holder) has /dev/vfio.*shut the machine down first" /run/out || { cat /run/out; fail "undo does not name the holder"; }
state | diff /run/applied - || fail "what was refused was begun all the same"
kill "$holder"
wait "$holder" || true

"$towline" node undo || fail "undo"
compare undo

# What the kernel refuses is told with its words.
echo 'vms = 1
cores = 1
memory = "64 GiB"' >/run/large.toml
"$towline" node plan /run/large.toml >/run/out && fail "more memory than there is was planned"
grep -q 'would help' /run/out || fail "no remedy for too little memory"

[[ $mode != all ]] || killed_everywhere /run/request.toml 20
say "apply-undo: passed"
