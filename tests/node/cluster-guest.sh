#!/bin/busybox sh
# A machine of tests/node/node-cluster: says what it has, reaches the others, and ends when it is asked to. It reads cloud-init's files
# as far as it needs them.
export PATH=/bin
/bin/busybox --install /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod "/modules/$module"; done

mkdir /seed
until mount -t iso9660 -o ro /dev/sr0 /seed 2>/dev/null; do sleep 0.2; done
name=$(sed -n 's/.*"local-hostname": "\(.*\)".*/\1/p' /seed/meta-data)
tell() { echo "machine $name: $*"; }
# The address follows in a line of its own.
address=$(sed -n '/"addresses"/{n;s/.*"\(.*\)".*/\1/p;}' /seed/network-config)
management=$(sed -n 's/.*"macaddress": "\(.*\)".*/\1/p' /seed/network-config)
# The names of all, as they are to be added to /etc/hosts.
sed -n 's/^ *"\([0-9.]* [a-z0-9-]*\\n.*\)"$/\1/p' /seed/user-data | sed 's/\\n/\n/g' | grep . >/hosts

# When somebody presses the power button.
for event in /sys/class/input/event*; do
  [ "$(cat "$event/device/name")" = "Power Button" ] || continue
  { dd "if=/dev/input/${event##*/}" bs=24 count=1 >/dev/null 2>&1; tell ends; poweroff -f; } &
done

number=${address%/*}
number=${number##*.}
for interface in /sys/class/net/*; do
  interface=${interface##*/}
  [ -e "/sys/class/net/$interface/device" ] || continue
  driver=$(basename "$(readlink "/sys/class/net/$interface/device/driver")")
  mac=$(cat "/sys/class/net/$interface/address")
  if [ "$mac" = "$management" ]; then
    ip address add "$address" dev "$interface"
  elif [ "$driver" = igbvf ]; then
    tell "function $mac at $(basename "$(readlink "/sys/class/net/$interface/device")")"
    ip address add "10.78.0.$number/24" dev "$interface"
  fi
  ip link set dev "$interface" up
done
for device in /sys/bus/pci/devices/*; do
  [ "$(cat "$device/class")" = 0x038000 ] || continue
  # Its memory keeps what is written there, at both ends. (devmem takes the next page along for the last words of one.)
  echo 1 >"$device/enable"
  start=$(head -n 1 "$device/resource" | cut -d' ' -f1)
  end=$(head -n 1 "$device/resource" | cut -d' ' -f2)
  last=$((end - 63))
  devmem "$last" 32 0x70776f74
  devmem "$start" 32 0x656e696c
  tell "display at ${device##*/} of $(((end - start + 1) >> 20)) MiB has $(devmem "$start" 32) $(devmem "$last" 32)"
done
tell "has $(nproc) processors, $(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo) MiB"

# reach WHAT ADDRESS: first until there is an answer at all, for the other may not be there yet.
reach() {
  until ping -c 1 -W 2 "$2" >/dev/null 2>&1; do sleep 0.2; done
  tell "$1 $(ping -c 5 -W 30 "$2" | sed -n 's/^\(.*\) packets transmitted, \(.*\) packets received.*/\2 of \1/p')"
}
while read -r other other_name; do
  [ "$other_name" != "$name" ] || continue
  reach "reaches $other_name over its function:" "10.78.0.${other##*.}"
  reach "reaches $other_name over the bridge:" "$other"
done </hosts
tell done
# The button ends it.
while :; do sleep 1000; done
