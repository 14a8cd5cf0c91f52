#!/usr/bin/env bash
# Has random sequences of calls of the CUDA driver, or of the runtime library, answered natively and through Towline, and compares.
#
#   differ.sh pack                           on the machine that builds: into build/gpu
#   differ.sh run [--api runtime] [--over shm] [OPTION...]
#                                            on the machine with the GPU; options go to `differ.py compare`
#   differ.sh soft FOLDER                    anywhere: replays the cases on devices in software, and compares transports there.
#                                            FOLDER holds towline and its libraries
#
# Variables: DIFFER_SEEDS=FIRST:COUNT names the sequences of `soft`; DIFFER_CUDART is NVIDIA's libcudart.so.12 or .13, where none is found;
# TOWLINE_SERVE has options for the server, TOWLINE_RUN for `towline run`; PYTHON names the interpreter.
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
  cargo build --release --locked -p towline-cli -p towline-cuda -p towline-opencl -p towline-cudart12 -p towline-cudart13
  mkdir -p "$packed"
  for file in towline libtowline_{cuda,opencl,cudart12,cudart13}.so; do strip -o "$packed/$file" "$target/$file"; done
  program "$packed/differ"
}

# cudart: NVIDIA's runtime library, of pip's packages or the toolkit.
cudart() {
  local folder file packages
  read -ra packages < <("$python" -c 'import site; print(*site.getsitepackages(), site.getusersitepackages())')
  for folder in "${packages[@]}" "$root"/build/cuda-toolkit/lib/python3*/site-packages; do
    for file in ${DIFFER_CUDART:-} "$folder"/nvidia/{cuda_runtime,cu13}/lib/libcudart.so.1[23] /usr/local/cuda/lib64/libcudart.so.1[23]; do
      [[ ! -f $file ]] || { realpath -s "$file"; return; }
    done
  done
  die "NVIDIA's libcudart.so.12 or .13 is not found: install pip's nvidia-cuda-runtime, or name it by DIFFER_CUDART"
}

run() {
  local listen=127.0.0.1:0 options=() status=0 api=driver runtime= through own=()
  while (($#)); do
    case $1 in
      --api)
        api=${2:?--api needs driver or runtime}
        options+=(--api "$api")
        shift 2
        ;;
      --over)
        [[ ${2:-} != shm ]] || listen=shm
        shift 2
        ;;
      *) options+=("$1"); shift ;;
    esac
  done
  [[ -x $packed/towline && -x $packed/differ ]] || die "build/gpu is empty: run \`tests/gpu/differ.sh pack\`, and carry build/gpu here"
  if [[ $api == runtime ]]; then
    runtime=$(cudart)
    echo "NVIDIA's runtime library: $runtime"
  fi
  scratch=$(mktemp -d)
  trap leave EXIT
  [[ $listen != shm ]] || listen=shm:$scratch/socket
  mkdir -p "$packed/out/differ"
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "nvidia-smi says nothing"
  if [[ -z ${CUDA_VISIBLE_DEVICES:-} && $(nvidia-smi -L 2>/dev/null | wc -l) -gt 1 ]]; then options+=(--devices 2); fi
  # shellcheck disable=SC2086
  serve "$packed/towline" "$packed/out/differ/server.log" --backend off --listen "$listen" ${TOWLINE_SERVE:-}
  through="$packed/towline run --server $(<"$scratch/ready") ${TOWLINE_RUN:-}"
  if [[ -n $runtime ]]; then
    export DIFFER_RUNTIME=$runtime
    own=(--side "own=TOWLINE_LIBRARY=$packed DIFFER_RUNTIME=${runtime##*/} $through --cudart --")
  fi
  "$python" "$differ/differ.py" compare --program "$packed/differ" --out "$packed/out/differ" --side native= \
    --side "towline=TOWLINE_LIBRARY=$packed $through --" "${own[@]}" "${options[@]}" || status=$?
  exit "$status"
}

# replay API FILE...: cases through the last server of `soft`.
replay() {
  "$python" "$differ/differ.py" replay --api "$1" --program "$scratch/differ" --side "${listen%%:*}=${remote[-1]}" "${@:2}" || failed=1
}

# compare SIDE API: with the first server.
compare() {
  "$python" "$differ/differ.py" compare --api "$2" --devices 2 --program "$scratch/differ" --side "tcp=${remote[0]}" --side "other=$1" \
    --seeds "$seeds" --seconds 60 --shorten-seconds 60 --out "$scratch/out" || failed=1
}

soft() {
  local folder listen other remote=() failed=0 seeds=${DIFFER_SEEDS:-1:1000}
  folder=$(cd "${1:?differ.sh soft needs the folder of towline and its libraries}" && pwd)
  scratch=$(mktemp -d)
  trap leave EXIT
  program "$scratch/differ"
  for listen in 127.0.0.1:0 "shm:$scratch/socket"; do
    serve "$folder/towline" "$scratch/log" --backend off --cuda soft:2 --listen "$listen"
    # NVIDIA's runtime library runs on no device in software, ours does.
    remote+=("TOWLINE_LIBRARY=$folder TOWLINE_LOG=off DIFFER_RUNTIME=libcudart.so.13 $folder/towline run --cudart --server $(<"$scratch/ready") --")
    replay driver "$differ"/cases/*.txt
    replay runtime "$differ"/cases/runtime/*.txt
    # Both are needed at once below.
    others+=("$server")
    server=
  done
  # What passes one transport, and what is sent as it comes, passes another, and waits.
  for other in "${remote[1]}" "TOWLINE_PIPELINE=0 TOWLINE_INLINE_BYTES=16 ${remote[0]}" "TOWLINE_PIPELINE=0 TOWLINE_STAGING=0 ${remote[1]}"; do
    compare "$other" driver
  done
  compare "${remote[1]}" runtime
  exit "$failed"
}

case ${1:-} in
  pack) pack ;;
  run) shift; run "$@" ;;
  soft) shift; soft "$@" ;;
  -h | --help) usage 0 ;;
  *) usage 2 >&2 ;;
esac
