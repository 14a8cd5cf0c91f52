# What the scripts within tests/node/emulated-host share: what a host is like, and that undo leaves it so. Needs `towline`; sourced.
# shellcheck shell=bash

say() { printf '%s\n' "$*"; }
fail() {
  say "FAILED: $*"
  exit 1
}

# Everything that a step can change, and what would be left behind if it were not taken back.
state() {
  # Few processes: each costs much where everything is emulated.
  find /sys/bus/pci/devices/*/driver -prune -printf '%p %l\n'
  grep -H . /sys/bus/pci/devices/*/driver_override /sys/bus/pci/devices/*/sriov_numvfs /sys/bus/pci/devices/*/sriov_drivers_autoprobe || true
  sha256sum /sys/bus/pci/devices/*/config
  grep . /sys/devices/system/node/node*/hugepages/*/nr_hugepages /proc/irq/*/smp_affinity_list /sys/class/net/*/flags
  ls /dev/vfio /etc/modprobe.d /etc/udev/rules.d 2>/dev/null || true
  awk '{print $1}' /proc/modules | sort
  ls /var/lib/towline-node 2>/dev/null | grep -v '^lock$' || true
  local drive
  for drive in /dev/nvme?; do
    [[ -c $drive ]] || continue
    nvme primary-ctrl-caps "$drive" -o json
    nvme list-secondary "$drive" -o json
  done
}

# The folder of the journal and its lock stay.
remember() {
  "$towline" node undo >/dev/null
  state >/run/before
}

compare() {
  state >/run/after
  diff /run/before /run/after || fail "$1 left the host other than it was"
}

# few_interrupts: all but two of the interrupts that a plan would move go to the first processor, where hypervisors are. Each more makes a
# plan three changes longer, and is like the others.
few_interrupts() {
  local list left=2
  for list in /proc/irq/*/smp_affinity_list; do
    [[ $(cat "$list") != 0 ]] || continue
    left=$((left - 1))
    # Some cannot be moved.
    [[ $left -ge 0 ]] || echo 0 >"$list" || true
  done 2>/dev/null
}

# killed_everywhere REQUEST LEAST: apply is killed before each of its changes and undone; then undo before each of its own. Each makes more
# than LEAST changes. What it says tells where it hangs, should it.
killed_everywhere() {
  local request=$1 least=$2 change=0
  while ! "$towline" node apply --die-at "$change" "$request" >/run/out 2>&1; do
    "$towline" node undo >/run/out 2>&1 || { cat /run/out; fail "undo after a kill at change $change"; }
    compare "undo after a kill at change $change"
    say "apply killed at change $change, after $SECONDS s"
    change=$((change + 1))
    [[ $change -lt 200 ]] || fail "apply never ends"
  done
  [[ $change -gt $least ]] || fail "apply makes $change changes only"
  "$towline" node undo --die-at 0 >/run/out 2>&1 && fail "undo changes nothing"
  # Each goes on where the one before was killed, and one change further.
  change=1
  while ! "$towline" node undo --die-at 1 >/run/out 2>&1; do
    say "undo killed at change $change, after $SECONDS s"
    change=$((change + 1))
    [[ $change -lt 200 ]] || fail "undo never ends"
  done
  [[ $change -gt $least ]] || fail "undo makes $change changes only"
  compare "undo killed at each of its changes"
}
