# What the initramfs of an emulated machine is made of; sourced by tests/node/emulated-host, libvirt-start and drive-function.
# shellcheck shell=bash

# initramfs_modules KERNEL FOLDER MODULE...: busybox, and the modules with those that they need, in FOLDER/modules/order's order.
initramfs_modules() {
  local kernel=$1 folder=$2 version module
  shift 2
  version=$(ls "$kernel/lib/modules")
  mkdir -p "$folder"/{bin,modules,proc,sys,dev}
  cp "$(command -v busybox)" "$folder/bin/busybox"
  for module in "$@"; do
    modprobe -d "$kernel" -S "$version" --show-depends "$module"
  done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r module; do
    cp "$module" "$folder/modules/"
    basename "$module" >>"$folder/modules/order"
  done
}

# initramfs_pack FOLDER FILE
initramfs_pack() { (cd "$1" && find . | cpio --quiet -o -H newc | gzip -1) >"$2"; }
