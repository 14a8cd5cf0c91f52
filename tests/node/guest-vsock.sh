# Within tests/node/guest-vsock: a program of this machine on its host's server.
#
#   guest-vsock.sh FOLDER WORKLOADS TOKEN SIZE
set -euo pipefail
bin=$1
workloads=$2
export TOWLINE_TOKEN_FILE=$3
size=$4

fail() {
  printf 'FAILED: %s\n' "$*"
  exit 1
}

[[ -c /dev/vsock ]] || fail "this machine has no vsock"
# No address is given: the chassis names the port of its host's server.
"$bin/towline" devices | tee /run/devices
grep -q "vsock://host:7140" /run/devices || fail "the server was found some other way"

"$bin/towline" run "$workloads/nbody" --platform Towline --size "$size" --iterations 5 --json | tee /run/out
grep -q '"check":"pass"' /run/out || fail "the result"
printf 'over vsock in the machine: %s\n' "$(sed 's/.*"median":\([0-9.]*\).*/\1 ms/' /run/out)"

# Any number of processes at once.
pids=()
for number in $(seq 6); do
  "$bin/towline" run "$workloads/nbody" --platform Towline --size 256 --iterations 1 --json >"/run/out.$number" 2>&1 &
  pids+=($!)
done
for number in $(seq 6); do
  wait "${pids[number - 1]}" || { cat "/run/out.$number"; fail "process $number of six"; }
done

# Whoever does not know the token is not let in.
echo 'not the token that it should be' >/run/other
chmod 600 /run/other
"$bin/towline" devices --token-file /run/other >/run/out 2>&1 && fail "let in without the token"
grep -q 'token' /run/out || { cat /run/out; fail "no word of the token"; }

# Nobody listens on another port: told at once.
"$bin/towline" devices --server vsock:host:7141 >/run/out 2>&1 && fail "a server where none is"
grep -q "vsock://host:7141" /run/out || { cat /run/out; fail "no word of the server"; }
echo 'guest-vsock: passed'
