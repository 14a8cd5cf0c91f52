#!/usr/bin/env bash
# Compares a program's calls of the CUDA driver, natively and through Towline: which, in which order, and with what answers.
#
#   calls.sh [--over shm] [--out DIR] [OPTION...] -- PROGRAM...
#
# On the machine with the GPU, with build/gpu from `differ.sh pack` carried along. OPTIONs go to calls.py: `--mark TEXT`, `--lines N`,
# `--all-threads`. A program makes marks by `calls_mark(TEXT)` of libcuda.so.1, in Python by ctypes. CC names the compiler.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
packed=$root/build/gpu
calls=tests/gpu/calls

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit "$1"; }
die() { echo "calls.sh: $*" >&2; exit 1; }

scratch=
# shellcheck source=tests/gpu/server.sh
source tests/gpu/server.sh
leave() {
  stop
  [[ -z $scratch ]] || rm -rf "$scratch"
}

# front LIBRARY FOLDER: a driver in FOLDER that passes calls to LIBRARY.
front() {
  mkdir -p "$2"
  nm -D --defined-only "$1" | awk '$3 ~ /^cu[A-Z]/ { sub(/@.*/, "", $3); print "X(" $3 ")" }' | sort -u >"$2/names.h"
  "${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -O1 -fPIC -shared -fno-builtin "-I$2" -o "$2/libcuda.so.1" "$calls/calls.c" -ldl -lpthread
}

listen=127.0.0.1:0 out=$packed/out/calls options=()
while (($#)); do
  case $1 in
    --over) [[ ${2:-} != shm ]] || listen=; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --) shift; break ;;
    -h | --help) usage 0 ;;
    *) options+=("$1"); shift ;;
  esac
done
(($#)) || usage 2 >&2
[[ -x $packed/towline ]] || die "build/gpu is empty: run \`tests/gpu/differ.sh pack\`, and carry build/gpu here"
native=$(ldconfig -p | awk '/libcuda\.so\.1 .*x86-64/ { print $NF; exit }')
[[ -n $native ]] || die "this machine has no libcuda.so.1"
scratch=$(mktemp -d)
trap leave EXIT
mkdir -p "$out"
rm -f "$out"/{native,towline}.log
front "$native" "$scratch/native"
front "$packed/libtowline_cuda.so" "$scratch/towline"
serve "$packed/towline" "$out/server.log" --backend off --listen "${listen:-shm:$scratch/socket}"
CALLS_REAL=$native CALLS_FILE=$out/native.log LD_LIBRARY_PATH=$scratch/native "$@" >"$out/native.out"
# `towline run` puts its own libraries first: the driver in front of them stands before these.
# shellcheck disable=SC2016
CALLS_REAL=$packed/libtowline_cuda.so CALLS_FILE=$out/towline.log FRONT=$scratch/towline TOWLINE_LIBRARY=$packed \
  "$packed/towline" run --server "$(<"$scratch/ready")" -- sh -c 'LD_LIBRARY_PATH=$FRONT:$LD_LIBRARY_PATH exec "$@"' sh "$@" >"$out/towline.out"
cmp -s "$out/native.out" "$out/towline.out" || echo "the programs' outputs differ: $out/native.out, $out/towline.out"
PYTHONDONTWRITEBYTECODE=1 "${PYTHON:-python3}" "$calls/calls.py" "$out/native.log" "$out/towline.log" "${options[@]}"
