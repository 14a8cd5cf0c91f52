# Within tests/node/emulated-host: apply and undo on a real kernel, killed at every change.
#
#   apply-undo.sh TOWLINE once|all
#
# `once` applies, checks, undoes and compares. `all` also kills apply before each of its changes, undoes and compares.
set -euo pipefail
towline=$1
mode=$2

say() { printf '%s\n' "$*"; }
fail() {
  say "FAILED: $*"
  exit 1
}

# Everything that a step of this request can change, and what would be left behind if it were not taken back.
state() {
  # Few processes: each costs much where everything is emulated.
  find /sys/bus/pci/devices/*/driver -prune -printf '%p %l\n'
  grep -H . /sys/bus/pci/devices/*/driver_override
  sha256sum /sys/bus/pci/devices/*/config
  grep . /sys/devices/system/node/node*/hugepages/*/nr_hugepages /proc/irq/*/smp_affinity_list
  ls /dev/vfio /etc/modprobe.d /etc/udev/rules.d 2>/dev/null || true
  awk '{print $1}' /proc/modules | sort
  ls /var/lib/towline/node 2>/dev/null | grep -v '^lock$' || true
}

compare() {
  state >/run/after
  diff /run/before /run/after || fail "$1 left the host other than it was"
}

cat >/run/request.toml <<'REQUEST'
vms = 2
gpus = 1
cores = 1
memory = "64 MiB"
REQUEST

"$towline" node plan /run/request.toml || fail "no plan"
# The folder and its lock stay.
"$towline" node undo >/dev/null
state >/run/before

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

if [[ $mode == all ]]; then
  change=0
  while ! "$towline" node apply --die-at "$change" /run/request.toml >/run/out 2>&1; do
    "$towline" node undo >/run/out 2>&1 || { cat /run/out; fail "undo after a kill at change $change"; }
    compare "undo after a kill at change $change"
    change=$((change + 1))
    [[ $change -lt 200 ]] || fail "apply never ends"
  done
  say "killed at $change changes"
  [[ $change -gt 20 ]] || fail "apply makes $change changes only"
  change=0
  while ! "$towline" node undo --die-at "$change" >/run/out 2>&1; do
    change=$((change + 1))
    [[ $change -lt 200 ]] || fail "undo never ends"
  done
  compare "undo killed at each of its changes"
fi
say "apply-undo: passed"
