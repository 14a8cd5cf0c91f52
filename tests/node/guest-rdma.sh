# Within tests/node/guest-rdma: the transport `rdma` on the kernel's RDMA in software.
#
#   guest-rdma.sh FOLDER WORKLOADS PROGRAMS PTX CONFORMANCE
set -euo pipefail
bin=$1
workloads=$2
programs=$3
ptx=$4
conformance=$5
# shellcheck source=tests/node/rdma-device.sh
. "$TOWLINE_NODE_TESTS/rdma-device.sh"
address=rdma://10.77.0.1:7140

fail() {
  printf 'FAILED: %s\n' "$*"
  cat /run/out /run/server || true
  exit 1
}
until_true() {
  for _ in $(seq 150); do
    ! "$@" || return 0
    sleep 0.2
  done
  fail "$*"
}
# sends NAME COMMAND...: the command succeeds, and the device sends while it runs.
sends() {
  local name=$1 before
  shift
  before=$(rdma_packets)
  "$@" >/run/out 2>&1 || fail "$name"
  printf '%s: %d packets, at %s s\n' "$name" $(($(rdma_packets) - before)) "$(cut -d' ' -f1 /proc/uptime)"
  [[ $(rdma_packets) -gt $before ]] || fail "$name: the device has sent nothing"
}

# Without a device the scheme says what is missing.
"$bin/towline" devices --server "$address" >/run/out 2>&1 && fail "a server without a device"
grep -q 'cannot use RDMA' /run/out || fail "no word of the device"

modprobe veth
ip link add v0 type veth peer name v1
ip link set v1 mtu 4200 up
rdma_device v0 10.77.0.1

export TOWLINE_TEST_RDMA=10.77.0.1
sends "conformance" "$conformance" rdma --nocapture
grep -q 'test result: ok. 4 passed' /run/out || fail "conformance"
# 30 MiB through a lane, there and back: as messages they would be 1,900.
messages=$(rdma_messages)
sends "pinned memory" "$conformance" pinned_memory
messages=$(($(rdma_messages) - messages))
[[ $messages -lt 1000 ]] || fail "$messages messages: payload is not one-sided"

serve() {
  rm -f /run/ready
  "$bin/towline" serve --listen "$address" "$@" --ready-file /run/ready >/run/server 2>&1 &
  server=$!
  until_true test -s /run/ready
}
(umask 077; head -c 32 /dev/urandom | base64 >/run/token)
export TOWLINE_TOKEN_FILE=/run/token TOWLINE_SERVERS=$address
serve --cuda soft
sends "n-body" "$bin/towline" run "$workloads/nbody" --platform Towline --size 256 --iterations 1 --json
grep -q '"check":"pass"' /run/out || fail "n-body's result"
sends "CUDA" "$bin/towline" run "$programs/cuda_ptx" "$ptx"
grep -q '65536 results, 0 wrong' /run/out || fail "CUDA's results"
kill "$server"
wait "$server" || true

# Kills, in the clear, on devices in host memory.
serve --backend null --cuda null --no-encryption
export TOWLINE_NO_ENCRYPTION=1
for program in transfers cuda_transfers; do
  sends "$program" "$bin/towline" run "$programs/$program"
  grep -q right /run/out || fail "$program"
done
has_sent() { [[ $(rdma_packets) -gt $1 ]]; }
# begin WORK: a program in the midst of its work.
begin() {
  local before
  before=$(rdma_packets)
  "$bin/towline" run "$programs/cuda_busy" "$1" >/run/busy 2>&1 &
  busy=$!
  until_true has_sent $((before + 1000))
}
no_session() { "$bin/towline" status --json >/run/status && ! grep -q cuda_busy /run/status; }
for work in launches copies; do
  begin "$work"
  kill -9 "$busy"
  wait "$busy" || true
  until_true no_session
done
begin copies
kill -9 "$server"
timeout 60 tail --pid="$busy" -f /dev/null || fail "the program hangs when its server is killed"
wait "$busy" || true
grep -q '^failed' /run/busy || { cat /run/busy; fail "no call of the program has failed"; }

# The command for hardware, on this device.
TOWLINE_FABRIC_PROGRAMS=$programs "$TOWLINE_NODE_TESTS/../fabric/measure" "$bin" here 10.77.0.1 || fail "tests/fabric/measure"

# A user who may lock too little memory hears of it.
serve --backend null --cuda null --no-encryption
cp /run/token /run/readable
chown nobody /run/readable
setpriv --reuid nobody --regid nogroup --clear-groups bash -c 'HOME=/tmp; ulimit -l 64; exec "$@"' _ \
  "$bin/towline" devices --token-file /run/readable >/run/out 2>&1 && fail "64 KiB of locked memory were enough"
grep -q 'ulimit -l unlimited' /run/out || fail "no word of the limit"
setpriv --reuid nobody --regid nogroup --clear-groups bash -c 'HOME=/tmp; ulimit -l 4096; exec "$@"' _ \
  "$bin/towline" devices --token-file /run/readable >/run/out 2>&1 || fail "4 MiB of locked memory are too little"
echo 'guest-rdma: passed'
