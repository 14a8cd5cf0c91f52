# Within tests/node/guest-limits: a server with control groups.
#
#   guest-limits.sh FOLDER PROGRAMS
set -euo pipefail
bin=$1
programs=$2
groups=/sys/fs/cgroup/towline

fail() {
  printf 'FAILED: %s\n' "$*"
  cat /run/server || true
  exit 1
}
until_true() {
  for _ in $(seq 300); do
    ! "$@" || return 0
    sleep 0.2
  done
  fail "$*"
}
serve() {
  rm -f /run/ready
  "$bin/towline" serve --listen tcp://127.0.0.1:0 --backend null --cuda null --session-host-memory 128M --session-cpus 0.5 \
    --session-processes 200 --ready-file /run/ready >/run/server 2>&1 &
  server=$!
  until_true test -s /run/ready
  address=$(head -n 1 /run/ready)
}
none_left() { ! compgen -G "$groups/session-*" >/run/left; }
holds() { grep -q "$2" "$groups"/session-*/"$1"; }

mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
serve
other() {
  "$bin/towline" run --server "$address" "$programs/cuda_busy" waits >/run/other 2>&1 &
  other=$!
  until_true grep -q busy /run/other
}
other
holds memory.max 134217728 || fail "the group's memory"
holds pids.max 200 || fail "the group's processes"
holds cpu.max "50000 100000" || fail "the group's processors"
holds cgroup.procs . || fail "the worker is not in its group"
"$bin/towline" status --server "$address" --json >/run/status
for limit in host_memory_bytes processes cpu_percent; do
  grep -A3 "\"$limit\": {" /run/status | grep -q '"enforced_by": "cgroup"' || { cat /run/status; fail "status of $limit"; }
done

# A session that takes more loses its worker to the kernel, hears why, and no other one notices.
"$bin/towline" run --server "$address" "$programs/hoards" >/run/hoards 2>&1 || true
grep -q 'session-host-memory' /run/hoards || { cat /run/hoards; fail "no word of the limit"; }
kill -0 "$other" || fail "the other session"
kill "$other"
until_true none_left

# What a killed server leaves, the next one removes.
other
kill -9 "$server"
wait "$server" || true
mkdir "$groups/session-1-1"
serve
until_true none_left
echo 'guest-limits: passed'
