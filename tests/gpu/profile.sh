#!/usr/bin/env bash
# Says where the processor time of a session's worker goes: in which call of the driver, and in whose code.
#
#   profile.sh pack                             on the machine that builds: this machine's perf, and Towline with its symbols
#   profile.sh run [OPTION...] [-- PROGRAM...]  on the machine with the GPU and its driver; PROGRAM runs through Towline
#
# Options of run:
#   --over tcp     the program reaches the server through loopback TCP rather than shared memory
#   --after N      look N seconds after the program's start (default 2)
#   --for N        look for N seconds (default 1)
#   --out DIR      where logs go (default build/gpu/out)
#
# Without PROGRAM it is `towline bench cuda --only launch`. TOWLINE_SERVE has options for the server. perf samples by the clock, since
# virtual machines have no other counters; it unwinds the driver's code by its tables, so callers are known through it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
packed=$root/build/gpu/profile

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit "$1"; }
die() { echo "profile.sh: $*" >&2; exit 1; }

scratch=
program=
# shellcheck source=tests/gpu/server.sh
source tests/gpu/server.sh
leave() {
  [[ -z $program ]] || { kill "$program" 2>/dev/null || true; wait "$program" 2>/dev/null || true; }
  stop
  [[ -z $scratch ]] || rm -rf "$scratch"
}

pack() {
  local target=${CARGO_TARGET_DIR:-target}/release perf file
  perf=$(readlink -f "$(command -v perf)") || die "there is no perf: apt-get install linux-perf"
  cargo build --release --locked -p towline-cli -p towline-cuda -p towline-nvml -p towline-opencl
  mkdir -p "$packed/lib"
  cp -L "$perf" "$packed/perf"
  # Not the C library, which belongs to the other machine's loader.
  ldd "$perf" | awk '$3 ~ /^\// && $1 !~ /^lib(c|m|pthread|dl|rt)\.so/ { print $3 }' | xargs -I{} cp -L {} "$packed/lib"
  for file in towline libtowline_{cuda,nvml,opencl}.so; do strip -g -o "$packed/$file" "$target/$file"; done
  du -sh "$packed"
}

# report OPTION...: rows of perf's report with their share, without what takes less than half a percent.
report() {
  LD_LIBRARY_PATH=$packed/lib timeout 120 "$packed/perf" report -i "$scratch/perf" -g none --percent-limit 0.5 "$@" 2>/dev/null |
    grep -E '^ +[0-9]' | sed 's/ *- *- *$//' || true
}

run() {
  local out=$root/build/gpu/out over=shm after=2 during=1 listen workers command=()
  while (($#)); do
    case $1 in
      --over) over=${2:?--over needs tcp or shm}; shift 2 ;;
      --after) after=${2:?--after needs seconds}; shift 2 ;;
      --for) during=${2:?--for needs seconds}; shift 2 ;;
      --out) out=${2:?--out needs a folder}; shift 2 ;;
      --) shift; command=("$@"); break ;;
      *) usage 2 >&2 ;;
    esac
  done
  [[ -x $packed/perf ]] || die "build/gpu/profile is empty: run \`tests/gpu/profile.sh pack\` where Rust is, and carry build/gpu here"
  mkdir -p "$out"
  scratch=$(mktemp -d)
  trap leave EXIT
  case $over in
    tcp) listen=127.0.0.1:0 ;;
    shm) listen=shm:$scratch/socket ;;
    *) die "--over is tcp or shm, and not $over" ;;
  esac
  # Options are words, not one word.
  # shellcheck disable=SC2086
  serve "$packed/towline" "$out/server.log" --listen "$listen" ${TOWLINE_SERVE:-}
  if ((${#command[@]})); then
    "$packed/towline" run --server "$(<"$scratch/ready")" -- "${command[@]}" >"$out/program.txt" 2>&1 &
  else
    "$packed/towline" bench cuda --only launch --legs remote --server "$(<"$scratch/ready")" >"$out/program.txt" 2>&1 &
  fi
  program=$!
  sleep "$after"
  kill -0 "$program" 2>/dev/null || { tail -n 5 "$out/program.txt" >&2; die "the program ended within $after s"; }
  workers=$(pgrep -d , -P "$server" -f 'backend cuda') || die "the server has no worker for CUDA"
  LD_LIBRARY_PATH=$packed/lib "$packed/perf" record -q -e cpu-clock -F 2500 --call-graph dwarf,8192 -o "$scratch/perf" -p "$workers" \
    -- sleep "$during" >"$out/perf.log" 2>&1 || { tail -n 5 "$out/perf.log" >&2; die "perf cannot look at the worker"; }
  echo "whose code"
  report --no-children --sort dso
  echo "calls, with what they call"
  report --children --sort symbol | grep -E '\[\.\] _?(cu[A-Z]|clEnqueue|cl[A-Z]|towline)|as towline' | head -n 20
  echo "functions"
  report --no-children --sort dso,symbol | head -n 20
}

case ${1:-} in
  pack) pack ;;
  run) shift; run "$@" ;;
  -h | --help) usage 0 ;;
  *) usage 2 >&2 ;;
esac
