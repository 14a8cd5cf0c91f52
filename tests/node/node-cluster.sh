# Within tests/node/node-cluster: the host's side.
#
#   node-cluster.sh TOWLINE KERNEL INITRAMFS
set -euo pipefail
towline=$1
kernel=$2
initramfs=$3

# shellcheck source=tests/node/host-state.sh
. "$TOWLINE_NODE_TESTS/host-state.sh"
# shellcheck source=tests/node/libvirt.sh
. "$TOWLINE_NODE_TESTS/libvirt.sh"
echo emulated >/proc/sys/kernel/hostname
pages=/sys/devices/system/node

cat >/run/request.toml <<'REQUEST'
vms = 2
gpus = 1
vfs = 1
cores = 1
memory = "256 MiB"
affinity = "strict"
exclude = ["0000:45:00.0"]
REQUEST
cat >/run/cluster.toml <<'CLUSTER'
[cluster]
ssh_keys = ["ssh-ed25519 AAAA somebody"]
first_address = "10.77.0.10"

[settings]
images = "/run/images"
bridge = "br0"
uefi = false
vsock = false

[[host]]
facts = "host.json"
request = "request.toml"
CLUSTER
# As a host of machines has it, whether prepared for devices or not.
modprobe -a bridge tun
ip link add br0 type bridge
ip link set dev br0 up
mkdir /dev/hugepages
mount -t hugetlbfs pages /dev/hugepages
libvirt_settings /etc/libvirt 'hugetlbfs_mount = "/dev/hugepages"'
libvirt_user /etc/passwd /etc/group
mkdir -p /run/libvirt /var/lib/libvirt/qemu /var/log/libvirt/qemu
libvirt_run /run/libvirtd.log
say "libvirt is there after $SECONDS s"

# --- the plan ------------------------------------------------------------------------------------------------------------

remember
sed 's/^exclude.*/only = ["0000:45:00.0"]/; s/^gpus.*//' /run/request.toml >/run/switch.toml
"$towline" node plan /run/switch.toml >/run/out && fail "functions below a switch without ACS were planned"
grep -qF "the virtual functions of 0000:45:00.0 would be in one IOMMU group with it and 0000:44:00.0" /run/out ||
  { cat /run/out; fail "it is not told why those below the switch cannot be had"; }
"$towline" node inspect --json >/run/host.json
"$towline" node plan --json /run/request.toml >/run/plan.json || fail "no plan"
python3 - >/run/machines <<'PLAN'
import json
for vm in json.load(open("/run/plan.json"))["vms"]:
    [cell], [function], [gpu] = vm["cells"], vm["vfs"], vm["gpus"]
    [cpu], [host_cpu] = cell["cpus"], cell["host_cpus"]
    print(vm["name"], cell["node"], cpu, host_cpu, cell["memory_kib"], function["physical"], function["address"], function["mac"], gpu)
PLAN
cat /run/machines
[[ $(awk '{ print $1, $2 }' /run/machines | xargs) == "node0 0 node1 1" ]] || fail "the machines are not on a node each"
"$towline" vm cluster /run/cluster.toml --out /run/cluster

# --- the host, prepared --------------------------------------------------------------------------------------------------

"$towline" node apply /run/request.toml || fail "apply"
"$towline" node apply /run/request.toml | grep -qx 'The host is as planned.' || fail "apply again"
while read -r name node _ _ memory_kib physical function mac gpu; do
  for device in "$function" "$gpu"; do
    [[ $(basename "$(readlink "/sys/bus/pci/devices/$device/driver")") == vfio-pci ]] || fail "$device is not set aside"
    [[ $(cat "/sys/bus/pci/devices/$device/numa_node") == "$node" ]] || fail "$device of $name is not on node $node"
  done
  ip link show dev "$(ls "/sys/bus/pci/devices/$physical/net")" | grep -q "vf 0 .*$mac" || fail "$function has not the address $mac"
  [[ $(cat "$pages/node$node/hugepages/hugepages-2048kB/free_hugepages") == $((memory_kib / 2048)) ]] || fail "no pages for $name"
done </run/machines
say "prepared after $SECONDS s"

# --- the machines --------------------------------------------------------------------------------------------------------

mkdir /run/images
virtual_machine=(--bios --no-vsock --images /run/images --bridge br0)
"$towline" vm define "${virtual_machine[@]}" /run/request.toml || fail "libvirt refuses the machines"
while read -r name _; do
  "$towline" vm xml "${virtual_machine[@]}" --only "$name" /run/request.toml | diff - "/run/cluster/$name/domain.xml" ||
    fail "the cluster's $name is another than the host's"
  cp "/run/cluster/$name/$name-seed.iso" /run/images/
  python3 - "/run/images/$name.qcow2" <<'DISK'
# An empty disk: header, one table of reference counts, one block of them, one table of clusters.
import struct, sys
cluster = 1 << 16
with open(sys.argv[1], "wb") as disk:
    disk.write(struct.pack(">IIQIIQIIQQIIQ", 0x514649FB, 2, 0, 0, 16, 1 << 20, 0, 1, 3 * cluster, cluster, 1, 0, 0))
    disk.seek(cluster)
    disk.write(struct.pack(">Q", 2 * cluster))
    disk.seek(2 * cluster)
    disk.write(struct.pack(">4H", 1, 1, 1, 1))
    disk.truncate(4 * cluster)
DISK
  # What takes the place of the system on that disk.
  virsh -q -c qemu:///system dumpxml --inactive "$name" |
    sed "s|</os>|<kernel>$kernel</kernel><initrd>$initramfs</initrd><cmdline>console=ttyS0 quiet panic=-1 no_timer_check</cmdline></os>|" \
      >/run/domain.xml
  virsh -q -c qemu:///system define /run/domain.xml
  "$towline" vm start "$name" || { cat "/var/log/libvirt/qemu/$name.log"; fail "$name does not start"; }
  # Also shown here: should it hang, that is all there will be.
  tee "/run/console.$name" <"$(virsh -q -c qemu:///system ttyconsole "$name")" 2>/dev/null &
  say "$name started after $SECONDS s"
done </run/machines

# until_told WORDS: all machines have.
until_told() {
  local name
  while read -r name _; do
    until grep -q "machine $name: $1" "/run/console.$name"; do
      [[ -e /run/libvirt/qemu/$name.pid ]] || { cat "/run/console.$name" "/var/log/libvirt/qemu/$name.log"; fail "$name is gone"; }
      sleep 0.5
    done
  done </run/machines
}
until_told done
say "the machines have done their part after $SECONDS s"
cat /run/console.* | tr -d '\r' | sed -n 's/.*\(machine node[01]:\)/\1/p' >/run/told
told() { grep -qE "^machine $1\$" /run/told || fail "no machine says: $1"; }
others=(node1 node0)
while read -r name node cpu host_cpu memory_kib _ function mac gpu; do
  told "$name: function $mac at .*"
  told "$name: display at .* of 64 MiB has 0x656E696C 0x70776F74"
  told "$name: has 1 processors, .*"
  told "$name: reaches ${others[node]} over its function: 5 of 5"
  told "$name: reaches ${others[node]} over the bridge: 5 of 5"
  # The memory is the node's that the plan says, all of it, and nothing else of it is.
  pid=$(cat "/run/libvirt/qemu/$name.pid")
  found=$(awk '/ huge / { for (i = 1; i <= NF; i++) if ($i ~ /^N[0-9]+=/) { split(substr($i, 2), n, "="); sum[n[1]] += n[2] } }
    END { for (node in sum) print node, sum[node] }' "/proc/$pid/numa_maps")
  [[ $found == "$node $((memory_kib / 2048))" ]] || { cat "/proc/$pid/numa_maps"; fail "$name has huge pages of nodes: $found"; }
  [[ $(cat "$pages/node$node/hugepages/hugepages-2048kB/free_hugepages") == 0 ]] || fail "node $node has pages left"
  allowed() { sed -n 's/^Cpus_allowed_list:\t//p' "$1/status"; }
  [[ $(allowed "/proc/$pid") == "$host_cpu" ]] || fail "$name's hypervisor runs on $(allowed "/proc/$pid")"
  for thread in /proc/"$pid"/task/*; do
    [[ $(cat "$thread/comm") != CPU* ]] || [[ $(allowed "$thread") == "$cpu" ]] || fail "$name's processor runs on $(allowed "$thread")"
  done
done </run/machines
"$towline" node undo >/run/out 2>&1 && fail "undone under a machine"
grep -qF "is in use: qemu-system-x86 ($pid) has /dev/vfio/" /run/out || { cat /run/out; fail "undo does not name who has the last device"; }

"$towline" vm stop node0 node1
for name in node0 node1; do
  while [[ -e /run/libvirt/qemu/$name.pid ]]; do sleep 0.5; done
  tr -d '\r' <"/run/console.$name" | grep -q "machine $name: ends" || { cat "/run/console.$name"; fail "$name does not end by itself"; }
done
"$towline" vm undefine node0 node1
[[ -z $(virsh -q -c qemu:///system list --all) ]] || fail "libvirt still knows machines"
say "stopped after $SECONDS s"

# --- and back --------------------------------------------------------------------------------------------------------------

"$towline" node undo || fail "undo"
compare undo
say "node-cluster: passed"
