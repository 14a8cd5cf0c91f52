#!/usr/bin/env bash
# Measures OpenCL over links of several speeds and delays, one JSON file per link.
#
#   bench/shaped.sh [--out DIR] [--link RATE,DELAY]... [-- OPTION...]      options go to `towline bench opencl`
#
# As root on a kernel with netem: client and server in two network namespaces, joined by a shaped pair of interfaces.
# Elsewhere: the relay of `towline bench opencl --link`. TOWLINE names the program (default: target/release/towline).
# Leaves no namespace and no process behind.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
towline=${TOWLINE:-${CARGO_TARGET_DIR:-$root/target}/release/towline}
out=$root/build/bench
links=()
options=()

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit "$1"; }
while (($#)); do
  case $1 in
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --link) links+=("${2:?--link needs RATE,DELAY}"); shift 2 ;;
    --) shift; options=("$@"); break ;;
    -h | --help) usage 0 ;;
    *) echo "shaped.sh: unknown option $1" >&2; usage 2 >&2 ;;
  esac
done
((${#links[@]})) || links=("400M,200us" "1G,100us" "10G,50us" "100G,20us")
[[ -x $towline ]] || { echo "shaped.sh: $towline is not built: cargo build --release -p towline-cli -p towline-opencl" >&2; exit 1; }
mkdir -p "$out"

near=towline-near-$$
far=towline-far-$$
pids=()

clean_up() {
  local pid
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
  ip netns delete "$near" 2>/dev/null || true
  ip netns delete "$far" 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Whether this kernel shapes as we need: tried out in a namespace that ends with the command.
has_netem() {
  ((EUID == 0)) && command -v ip tc unshare >/dev/null &&
    unshare --net sh -c 'ip link add a type veth peer name b && tc qdisc add dev a root netem delay 1ms rate 1gbit' 2>/dev/null
}

# in_namespaces RATE DELAY: two namespaces, 10.99.0.1 and 10.99.0.2, each side shaping what it sends.
make_namespaces() {
  local side
  ip netns add "$near"
  ip netns add "$far"
  ip link add near netns "$near" type veth peer name far netns "$far"
  for side in near far; do
    local name=${!side} address=10.99.0.1
    [[ $side == near ]] || address=10.99.0.2
    ip -n "$name" addr add "$address/24" dev "$side"
    ip -n "$name" link set "$side" up
    ip -n "$name" link set lo up
    # 100,000 packets: more than the fastest link has under way.
    ip netns exec "$name" tc qdisc add dev "$side" root netem delay "$2" rate "${1,,}bit" limit 100000
  done
}

# start NAME COMMAND...: in the far namespace; waits for its first line of output in $scratch/NAME.
start() {
  local name=$1 tenths
  shift
  ip netns exec "$far" "$@" >"$scratch/$name" 2>"$scratch/$name.log" &
  pids+=($!)
  for ((tenths = 0; tenths < 200; tenths++)); do
    [[ ! -s $scratch/$name ]] || return 0
    sleep 0.1
  done
  echo "shaped.sh: $name did not start; it said:" >&2
  cat "$scratch/$name.log" >&2
  exit 1
}

for link in "${links[@]}"; do
  file=$out/opencl-${link/,/-}.json
  echo "== $link -> $file"
  if has_netem; then
    scratch=$(mktemp -d)
    make_namespaces "${link%,*}" "${link#*,}"
    start server "$towline" serve --listen 10.99.0.2:7140 --insecure
    start peer "$towline" bench peer --listen 10.99.0.2:7141
    ip netns exec "$near" "$towline" bench opencl --server 10.99.0.2:7140 --peer 10.99.0.2:7141 --json "$file" "${options[@]}"
    clean_up
    rm -rf "$scratch"
  else
    "$towline" bench opencl --link "$link" --json "$file" "${options[@]}"
  fi
done
