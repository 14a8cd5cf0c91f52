#!/usr/bin/env bash
# Checks and measures OpenCL through Towline on an NVIDIA GPU. See README.md beside this file.
#
#   opencl.sh pack                                  on the machine that builds
#   opencl.sh run [--out DIR] [-- OPTION...]        on the machine with the GPU
#
# Variables: TOWLINE_GPU_ICD names another vendor library, TOWLINE_GPU_CHECK=0 leaves the checks out.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
packed=build/gpu
icd=${TOWLINE_GPU_ICD:-libnvidia-opencl.so.1}
workloads=(vector_add sgemm nbody transpose smith_waterman)

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit "$1"; }
die() { echo "opencl.sh: $*" >&2; exit 1; }
title() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

pack() {
  local target=${CARGO_TARGET_DIR:-target}/release loader
  cargo build --release --locked -p towline-cli -p towline-opencl
  make --no-print-directory -C workloads/opencl
  rm -rf "$packed"
  mkdir -p "$packed/workloads" "$packed/lib"
  strip -o "$packed/towline" "$target/towline"
  strip -o "$packed/libtowline_opencl.so" "$target/libtowline_opencl.so"
  for program in "${workloads[@]}" span; do
    strip -o "$packed/workloads/$program" "build/workloads/$program"
  done
  # The loader of this machine, which obeys OCL_ICD_VENDORS: NVIDIA's own is often missing or too old for that.
  loader=$(ldd build/workloads/span | sed -n 's/.*libOpenCL\.so\.1 => \(\S*\).*/\1/p')
  [[ -n $loader ]] || die "the workloads are not linked to a libOpenCL.so.1"
  cp -L "$loader" "$packed/lib/libOpenCL.so.1"
  du -sh "$packed"
}

pids=()
scratch=
stop() {
  local pid
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  [[ -z $scratch ]] || rm -rf "$scratch"
}

# serve NAME ARGUMENT...: sets `address` to where the server listens.
serve() {
  local name=$1 ready tenths pid
  shift
  ready=$scratch/$name
  "$towline" serve --listen 127.0.0.1:0 --ready-file "$ready" --icd "$scratch/vendors" "$@" 2>"$out/$name.log" &
  pid=$!
  pids+=("$pid")
  for ((tenths = 0; tenths < 300; tenths++)); do
    [[ ! -s $ready ]] || break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  [[ -s $ready ]] || { cat "$out/$name.log" >&2; die "server $name did not start"; }
  address=$(<"$ready")
}

both=
failed=0
# check COMMAND...: runs it with a time limit and says how it went.
check() {
  local status=0 what=native
  [[ $1 != "$towline" ]] || what=Towline
  for word in "$@"; do
    [[ $word == "$programs"/* ]] && what+=" ${word##*/}" || [[ $what != *' '* ]] || what+=" $word"
  done
  timeout 60 "$@" >"$scratch/output" 2>&1 || status=$?
  case $status in
    0) echo "ok       $what" ;;
    77) echo "skipped  $what" ;;
    *) echo "FAILED   $what (status $status)"; cat "$scratch/output"; failed=1 ;;
  esac
}

# Workloads built here if this machine can, so that its own headers and compiler are proven too; else those that were packed.
choose_workloads() {
  programs=$root/$packed/workloads
  local built=$scratch/workloads include=
  [[ ! -e /usr/local/cuda/include/CL/cl.h ]] || include=-I/usr/local/cuda/include
  if make --no-print-directory -C workloads/opencl BUILD="$built" CPPFLAGS="$include" \
    OPENCL_LIBS="$root/$packed/lib/libOpenCL.so.1" >"$out/workloads.log" 2>&1; then
    programs=$built
    echo "workloads: built here"
  else
    echo "workloads: as packed (building here failed: $out/workloads.log)"
  fi
}

checks() {
  local remote program
  title "devices"
  serve a
  both=$address
  serve b
  both+=,$address
  timeout 60 "$towline" devices --server "$both" || failed=1
  remote=("$towline" run --server "$both" --)
  title "checks against the CPU, natively and on two servers"
  for program in "${workloads[@]}"; do
    check "${native[@]}" "$programs/$program"
    check "${remote[@]}" "$programs/$program" --platform Towline
  done
  local precision
  for precision in single double; do
    for program in sgemm nbody transpose; do
      check "${remote[@]}" "$programs/$program" --platform Towline --devices all --precision "$precision"
    done
  done
  check "${remote[@]}" "$programs/smith_waterman" --platform Towline --devices all --method tiled
  check "${remote[@]}" "$programs/span" --platform Towline --size 1M --rounds 5
  check "${remote[@]}" "$programs/span" --platform Towline --size 1 --rounds 3
  title "a session ends when its client is killed"
  "${remote[@]}" "$programs/nbody" --platform Towline --iterations 100000 --no-check >/dev/null 2>&1 &
  local client=$!
  sleep 3
  sessions_are 1 || { echo "FAILED   no session while a client runs"; failed=1; }
  kill -KILL "$client" 2>/dev/null || true
  wait "$client" 2>/dev/null || true
  sleep 1
  if sessions_are 0; then echo "ok       no session is left after a second"; else echo "FAILED   a session is left"; failed=1; fi
  check "${remote[@]}" "$programs/vector_add" --platform Towline
}

# sessions_are 0|1: whether each server has none, or some.
sessions_are() {
  local none
  timeout 20 "$towline" status --server "$both" --json >"$out/status.json" || return 1
  none=$(grep -c '"sessions": \[\]' "$out/status.json" || true)
  if (($1 == 0)); then ((none == 2)); else ((none == 0)); fi
}

run() {
  out=$root/$packed/out
  local options=()
  while (($#)); do
    case $1 in
      --out) out=${2:?--out needs a folder}; shift 2 ;;
      --) shift; options=("$@"); break ;;
      *) usage 2 >&2 ;;
    esac
  done
  towline=$root/$packed/towline
  [[ -x $towline ]] || die "$packed is empty: run \`tests/gpu/opencl.sh pack\` where Rust is, and carry $packed here"
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  scratch=$(mktemp -d)
  trap stop EXIT
  export LD_LIBRARY_PATH=$root/$packed/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  mkdir "$scratch/vendors"
  echo "$icd" >"$scratch/vendors/native.icd"
  native=(env OCL_ICD_VENDORS="$scratch/vendors" OPENCL_VENDOR_PATH="$scratch/vendors")
  title "machine"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "nvidia-smi says nothing"
  choose_workloads
  [[ ${TOWLINE_GPU_CHECK:-1} == 0 ]] || checks
  title "measurements"
  timeout 330 "$towline" bench opencl --icd "$icd" --workloads "$programs" --json "$out/opencl.json" "${options[@]}" |
    tee "$out/opencl.txt" || failed=1
  title "done"
  exit "$failed"
}

case ${1:-} in
  pack) pack ;;
  run) shift; run "$@" ;;
  -h | --help) usage 0 ;;
  *) usage 2 >&2 ;;
esac
