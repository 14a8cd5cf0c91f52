# libvirt's daemon where no system manager runs it; sourced by tests/node/libvirt-start and node-cluster.sh. Both have a file system that
# they may write to.
# shellcheck shell=bash

# libvirt_settings FOLDER [LINE...]: the daemon's configuration, for root without confinement. LINEs go to that of its QEMU driver.
libvirt_settings() {
  local folder=$1
  shift
  cat >"$folder/qemu.conf" <<'CONF'
user = "root"
group = "root"
namespaces = []
security_driver = "none"
cgroup_controllers = []
stdio_handler = "file"
CONF
  [[ $# -eq 0 ]] || printf '%s\n' "$@" >>"$folder/qemu.conf"
  printf '%s\n' 'unix_sock_group = "root"' 'auth_unix_ro = "none"' 'auth_unix_rw = "none"' >"$folder/libvirtd.conf"
}

# libvirt_user PASSWD GROUP: the user that Debian's driver wants to know, though nothing runs as it.
libvirt_user() {
  grep -q '^libvirt-qemu:' "$1" || echo 'libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin' >>"$1"
  grep -q '^libvirt-qemu:' "$2" || echo 'libvirt-qemu:x:64055:' >>"$2"
}

# libvirt_run LOG: starts it, and waits until it answers. Fails with what it said.
libvirt_run() {
  local log=$1 daemon
  virtlogd -d
  libvirtd >"$log" 2>&1 &
  daemon=$!
  until virsh -q -c qemu:///system version >/dev/null 2>&1; do
    kill -0 "$daemon" 2>/dev/null || { cat "$log"; fail "libvirtd does not start"; }
    sleep 0.5
  done
}
