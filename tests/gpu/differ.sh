#!/usr/bin/env bash
# Has random sequences of calls of the CUDA driver answered natively and through Towline, and compares.
#
#   differ.sh pack                           on the machine that builds: into build/gpu
#   differ.sh run [--over shm] [OPTION...]   on the machine with the GPU; options go to `differ.py compare`
#   differ.sh soft FOLDER                    anywhere: replays the cases on a device in software, and compares transports there.
#                                            FOLDER holds towline and its libraries
#
# Variables: DIFFER_SEEDS=FIRST:COUNT names the sequences of `soft`; TOWLINE_SERVE has options for the server, TOWLINE_RUN for `towline run`; PYTHON names the interpreter.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
packed=$root/build/gpu
differ=tests/gpu/differ
python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit "$1"; }
die() { echo "differ.sh: $*" >&2; exit 1; }

scratch=
others=()
# shellcheck source=tests/gpu/server.sh
source tests/gpu/server.sh
leave() {
  for server in "$server" "${others[@]}"; do stop; done
  [[ -z $scratch ]] || rm -rf "$scratch"
}

# program FILE: builds it.
program() { "${CC:-cc}" -std=c11 -Wall -Wextra -Werror -O1 -o "$1" "$differ/differ.c" -ldl -lpthread; }

pack() {
  local target=${CARGO_TARGET_DIR:-target}/release file
  # `towline run` knows a program's libraries by OpenCL's.
  cargo build --release --locked -p towline-cli -p towline-cuda -p towline-opencl
  mkdir -p "$packed"
  for file in towline libtowline_{cuda,opencl}.so; do strip -o "$packed/$file" "$target/$file"; done
  program "$packed/differ"
}

run() {
  local listen=127.0.0.1:0 options=() status=0
  while (($#)); do
    case $1 in
      --over)
        [[ ${2:-} != shm ]] || listen=shm
        shift 2
        ;;
      *) options+=("$1"); shift ;;
    esac
  done
  [[ -x $packed/towline && -x $packed/differ ]] || die "build/gpu is empty: run \`tests/gpu/differ.sh pack\`, and carry build/gpu here"
  scratch=$(mktemp -d)
  trap leave EXIT
  [[ $listen != shm ]] || listen=shm:$scratch/socket
  mkdir -p "$packed/out/differ"
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "nvidia-smi says nothing"
  # shellcheck disable=SC2086
  serve "$packed/towline" "$packed/out/differ/server.log" --backend off --listen "$listen" ${TOWLINE_SERVE:-}
  "$python" "$differ/differ.py" compare --program "$packed/differ" --out "$packed/out/differ" --side native= \
    --side "towline=TOWLINE_LIBRARY=$packed $packed/towline run --server $(<"$scratch/ready") ${TOWLINE_RUN:-} --" "${options[@]}" || status=$?
  exit "$status"
}

soft() {
  local folder listen other remote=() failed=0 seeds=${DIFFER_SEEDS:-1:1000}
  folder=$(cd "${1:?differ.sh soft needs the folder of towline and its libraries}" && pwd)
  scratch=$(mktemp -d)
  trap leave EXIT
  program "$scratch/differ"
  for listen in 127.0.0.1:0 "shm:$scratch/socket"; do
    serve "$folder/towline" "$scratch/log" --backend off --cuda soft --listen "$listen"
    remote+=("TOWLINE_LIBRARY=$folder TOWLINE_LOG=off $folder/towline run --server $(<"$scratch/ready") --")
    "$python" "$differ/differ.py" replay --program "$scratch/differ" --side "${listen%%:*}=${remote[-1]}" "$differ"/cases/*.txt || failed=1
    # Both are needed at once below.
    others+=("$server")
    server=
  done
  # What passes one transport, and what is sent as it comes, passes another, and waits.
  for other in "${remote[1]}" "TOWLINE_PIPELINE=0 TOWLINE_INLINE_BYTES=16 ${remote[0]}" "TOWLINE_PIPELINE=0 TOWLINE_STAGING=0 ${remote[1]}"; do
    "$python" "$differ/differ.py" compare --program "$scratch/differ" --side "tcp=${remote[0]}" --side "other=$other" \
      --seeds "$seeds" --seconds 60 --shorten-seconds 60 --out "$scratch/out" || failed=1
  done
  exit "$failed"
}

case ${1:-} in
  pack) pack ;;
  run) shift; run "$@" ;;
  soft) shift; soft "$@" ;;
  -h | --help) usage 0 ;;
  *) usage 2 >&2 ;;
esac
