# Within tests/node/drive-function: the host's side.
#
#   drive-function.sh TOWLINE once|all KERNEL INITRAMFS
set -euo pipefail
towline=$1
mode=$2
kernel=$3
initramfs=$4

# shellcheck source=tests/node/host-state.sh
. "$TOWLINE_NODE_TESTS/host-state.sh"
physical=0000:01:00.0
function=0000:01:00.1
shared=0000:04:00.0
devices=/sys/bus/pci/devices
# refused WORDS COMMAND...: the command fails and says these words.
refused() {
  local words=$1
  shift
  "$@" >/run/out 2>&1 && fail "not refused: $*"
  grep -qF -- "$words" /run/out || { cat /run/out; fail "'$*' does not say: $words"; }
}

cat >/run/request.toml <<'REQUEST'
vms = 1
drives = 1
cores = 1
memory = "128 MiB"
exclude = ["0000:04:00.0"]
REQUEST
remember
"$towline" node inspect | grep -F "$physical" | grep -F "0 of 4 virtual functions" || fail "the drive's functions are not seen"

# --- what cannot be ------------------------------------------------------------------------------------------------------

sed 's/exclude.*/only = ["'$shared'"]/' /run/request.toml >/run/shared.toml
refused "would be in one IOMMU group with it and 0000:03:00.0" "$towline" node apply /run/shared.toml
# So it is: the kernel puts the function into the group of the port.
echo 0 >$devices/$shared/sriov_drivers_autoprobe
echo 1 >$devices/$shared/sriov_numvfs
group() { basename "$(readlink "$devices/$1/iommu_group")"; }
[[ $(group $shared/virtfn0) == "$(group 0000:03:00.0)" ]] || fail "the function is in a group of its own"
echo 0 >$devices/$shared/sriov_numvfs
echo 1 >$devices/$shared/sriov_drivers_autoprobe

sed 's/drives = 1/drives = 5/' /run/request.toml >/run/many.toml
refused "4 functions of drives of 5" "$towline" node apply /run/many.toml

# A plan that asks the kernel for what it refuses: more than there are, and another number without none in between.
"$towline" node plan --json /run/request.toml >/run/plan.json
numbers() { sed '/sriov_numvfs/{n;s/"from": "[0-9]*"/"from": "'"$1"'"/;n;s/"to": "[0-9]*"/"to": "'"$2"'"/}' /run/plan.json >/run/other.json; }
numbers 0 99
refused "sriov_numvfs: Numerical result out of range" "$towline" node apply --plan /run/other.json
"$towline" node undo >/dev/null
compare "a plan for too many functions"
echo 0 >$devices/$physical/sriov_drivers_autoprobe
echo 2 >$devices/$physical/sriov_numvfs
sed -i '/sriov_drivers_autoprobe/{n;s/"from": "1"/"from": "0"/}' /run/plan.json
refused "found 2, neither as before nor as planned" "$towline" node apply --plan /run/plan.json
"$towline" node undo >/dev/null
numbers 2 1
refused "sriov_numvfs: Device or resource busy" "$towline" node apply --plan /run/other.json
grep -qF "$physical is held: 2 virtual functions" /run/out || { cat /run/out; fail "it is not told by what"; }
"$towline" node undo >/dev/null
echo 0 >$devices/$physical/sriov_numvfs
echo 1 >$devices/$physical/sriov_drivers_autoprobe
compare "plans that were refused"

# --- what can --------------------------------------------------------------------------------------------------------------

printf '%-512s' 'written on the host' | dd of=/dev/nvme0n1 bs=512 oflag=direct status=none
"$towline" node apply /run/request.toml || fail "apply"
[[ $(basename "$(readlink $devices/$function/driver)") == vfio-pci ]] || fail "the function is not set aside"
"$towline" node apply /run/request.toml | grep -qx 'The host is as planned.' || fail "apply again"

mkdir /run/pages
mount -t hugetlbfs pages /run/pages
qemu-system-x86_64 -accel kvm -cpu host -nodefaults -nographic -no-reboot -serial file:/run/machine \
  -object memory-backend-file,id=memory,mem-path=/run/pages,size=128M,prealloc=on -m 128 -machine q35,memory-backend=memory \
  -device "vfio-pci,host=$function" -kernel "$kernel" -initrd "$initramfs" \
  -append "console=ttyS0 quiet panic=-1 no_timer_check" >/run/qemu 2>&1 &
machine=$!
until grep -q 'machine: written' /run/machine 2>/dev/null; do
  kill -0 "$machine" 2>/dev/null || { cat /run/qemu /run/machine; fail "the machine does not start"; }
  sleep 0.5
done
tr -d '\r' </run/machine | sed -n 's/ *$//; s/.*machine:/machine:/p'
grep -q 'host says: written on the host' /run/machine || fail "the machine does not read what the host has written"
[[ $(dd if=/dev/nvme0n1 bs=512 skip=1 count=1 iflag=direct status=none) == "written in the machine"* ]] ||
  fail "the host does not read what the machine has written"

# Nothing is taken from under a machine.
refused "$function is in use: qemu-system-x86 ($machine) has /dev/vfio/" "$towline" node undo
[[ $(basename "$(readlink $devices/$function/driver)") == vfio-pci ]] || fail "the function was taken all the same"
printf 'goodbye\0' | dd of=/dev/nvme0n1 bs=512 seek=2 conv=sync oflag=direct status=none
wait "$machine" || { cat /run/qemu; fail "the machine ends with an error"; }
grep -q 'machine: ends' /run/machine || fail "the machine ends by itself"
umount /run/pages
rmdir /run/pages
"$towline" node undo || fail "undo"
compare undo

if [[ $mode == all ]]; then
  few_interrupts
  remember
  killed_everywhere /run/request.toml 20
fi
say "drive-function: passed"
