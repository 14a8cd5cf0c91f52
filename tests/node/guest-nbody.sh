# Within tests/node/guest-session: a program of this machine on its host's server.
#
#   guest-nbody.sh FOLDER WORKLOADS TOKEN SIZE [CONFORMANCE]
set -euo pipefail
bin=$1
workloads=$2
export TOWLINE_TOKEN_FILE=$3
size=$4
conformance=${5:-}

fail() {
  printf 'FAILED: %s\n' "$*"
  exit 1
}

[[ -c /dev/virtio-ports/org.towline.0 && -c /dev/virtio-ports/org.towline.1 ]] || fail "this machine has no ports"
# No address is given: the machine finds its host's server by itself.
"$bin/towline" devices | tee /run/devices
grep -q 'virtio-serial' /run/devices || fail "the server was found some other way"

"$bin/towline" run "$workloads/nbody" --platform Towline --size "$size" --iterations 5 --json | tee /run/out
grep -q '"check":"pass"' /run/out || fail "the result"
printf 'over virtio-serial in the machine: %s\n' "$(sed 's/.*"median":\([0-9.]*\).*/\1 ms/' /run/out)"

# A process has a port at a time: two at once take one each.
pids=()
for number in 1 2; do
  "$bin/towline" run "$workloads/nbody" --platform Towline --size 256 --iterations 1 --json >"/run/out.$number" 2>&1 &
  pids+=($!)
done
for number in 1 2; do
  wait "${pids[number - 1]}" || { cat "/run/out.$number"; fail "process $number of two"; }
done

# Killed in the middle: whoever takes the port next is served as if nothing had been.
for _ in 1 2 3; do
  "$bin/towline" run "$workloads/nbody" --platform Towline --size 4096 --iterations 100 --no-check >/dev/null 2>&1 &
  victim=$!
  sleep 0.7
  kill -9 "$victim"
  wait "$victim" || true
  "$bin/towline" devices >/run/devices || fail "after a process was killed"
done

# Whoever does not know the token is not let in, as over every way in.
echo 'not the token that it should be' >/run/other
chmod 600 /run/other
"$bin/towline" devices --token-file /run/other >/run/out 2>&1 && fail "let in without the token"
grep -q 'token' /run/out || { cat /run/out; fail "no word of the token"; }

if [[ -n $conformance ]]; then
  modprobe vsock_loopback || fail "no loopback for vsock"
  "$conformance" every_registry_entry --nocapture >/run/out 2>&1 || { cat /run/out; fail "a transport breaks a rule"; }
  ! grep SKIPPED /run/out || fail "vsock was skipped"
  # A session over it as well.
  "$bin/towline" serve --listen vsock:local:7140 --backend null --cuda off --no-jail --ready-file /run/ready >/run/server 2>&1 &
  server=$!
  until [[ -s /run/ready ]]; do
    kill -0 "$server" || { cat /run/server; fail "no server on vsock"; }
    sleep 0.2
  done
  "$bin/towline" devices --server vsock:local:7140 || fail "no session over vsock"
  kill "$server"
  # Where others could reach it, a token is asked for.
  env -u TOWLINE_TOKEN_FILE "$bin/towline" serve --listen vsock:any:7141 --backend null --cuda off --no-jail >/run/out 2>&1 && fail "open to every machine"
  grep -q 'token' /run/out || { cat /run/out; fail "no word of the token"; }
fi
echo 'guest-session: passed'
