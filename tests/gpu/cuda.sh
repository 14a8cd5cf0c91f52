#!/usr/bin/env bash
# Checks and measures CUDA through Towline on an NVIDIA GPU, natively and through a server on the same machine, in turns.
#
#   cuda.sh pack                            on the machine that builds
#   cuda.sh run [OPTION...] [-- OPTION...]  on the machine with the GPU and its driver
#   cuda.sh list                            names the parts
#
# Options of run; what follows -- goes to `towline bench cuda`:
#   --only PART,...   parts, or groups: workloads, python; `check` (make check through Towline), `cudart` (the same, linked with
#                     libcudart.so and Towline's own behind it, without the handshake), `bench` (towline bench cuda);
#                     and, only when they are named, `energy` (towline bench energy of the two applications, some minutes) and
#                     `kills` (programs and workers killed while they are busy: how soon memory is back), `ranks` (NCCL between
#                     two processes, which is refused through Towline and must not hang) and `meets` (host and running kernels use
#                     pinned memory at once; --over shm)
#   --over shm        programs reach the server through shared memory rather than loopback TCP
#   --over tls        programs reach it by loopback TCP with a token, and so encrypted
#   --link RATE,DELAY  programs reach it over such a link, which a relay on this machine makes (10G,200us: 200 us each way)
#   --cores N         hold the programs to N cores
#   --rounds N        rounds of each part, instead of what it has
#   --seconds N       start nothing after N seconds
#   --sides SIDE      only native, or only towline
#   --out DIR         where results and logs go (default build/gpu/out)
#
# Variables: NVCC names the compiler (workloads are compiled where it is: by pack, else by run); PYTHON the interpreter
# that has PyTorch and the others; TOWLINE_SERVE options for the server, TOWLINE_RUN for `towline run`, TOWLINE_ENERGY for
# `towline bench energy` (default --warm-up 10 --idle 5).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
packed=build/gpu

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit "$1"; }
die() { echo "cuda.sh: $*" >&2; exit 1; }
title() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

# build_workloads FOLDER LIBRARIES: with the compiler of this machine, if it has one.
# A second folder beside it holds them linked with libcudart.so, which is Towline's of the folder LIBRARIES.
build_workloads() {
  local nvcc=${NVCC:-nvcc} libraries=$2 link
  command -v "$nvcc" >/dev/null || return 1
  make --no-print-directory -j"$(nproc)" -C workloads/cuda BUILD="$1" NVCC="$nvcc" >/dev/null
  link=$(mktemp -d)
  ln -s "$libraries/libtowline_cudart13.so" "$link/libcudart.so"
  make --no-print-directory -j"$(nproc)" -C workloads/cuda BUILD="$1-shared" NVCC="$nvcc" CUDART=shared LIBRARIES="-L$link" >/dev/null
  rm -rf "$1/objects" "$1-shared/objects" "$link"
}

pack() {
  local target=${CARGO_TARGET_DIR:-target}/release
  cargo build --release --locked -p towline-cli -p towline-cuda -p towline-cudart12 -p towline-cudart13 -p towline-nccl -p towline-nvml -p towline-opencl
  mkdir -p "$packed"
  for file in towline libtowline_{cuda,cudart12,cudart13,nccl,nvml,opencl}.so; do strip -o "$packed/$file" "$target/$file"; done
  build_workloads "$root/$packed/workloads/cuda" "$root/$packed" || echo "no ${NVCC:-nvcc}: the workloads are compiled where they run"
  make --no-print-directory -C crates/towline-e2e/programs OPENCL_LIBS= BUILD="$root/$packed/programs" "$root/$packed/programs/cuda_meets"
  du -sh "$packed"
}

relay=
scratch=
# shellcheck source=tests/gpu/server.sh
source tests/gpu/server.sh
leave() {
  [[ -z $relay ]] || { kill -TERM "$relay" 2>/dev/null || true; wait "$relay" 2>/dev/null || true; }
  stop
  [[ -z $scratch ]] || rm -rf "$scratch"
}

# relay_over LINK: has the programs reach the server through a relay.
relay_over() {
  local tenths address
  address=$(<"$scratch/ready")
  "$towline" bench proxy --to "${address#tcp://}" --link "$1" >"$scratch/relay" 2>"$out/relay.log" &
  relay=$!
  for ((tenths = 0; tenths < 100; tenths++)); do
    [[ ! -s $scratch/relay ]] || break
    sleep 0.1
  done
  head -n 1 "$scratch/relay" >"$scratch/ready"
  [[ -s $scratch/ready ]] || { cat "$scratch/relay" "$out/relay.log" >&2; die "the relay did not start"; }
}

# energy PROGRAM: Table II of the rCUDA paper natively, Table III through Towline. Client and server are one machine here, so the
# processors count as the client's and the GPU as the server's; natively both are the client's.
energy() {
  local program=$1 side sources command
  for side in native towline; do
    sources=(--client nvml,rapl) command=("$programs/$program")
    [[ $side == native ]] || { sources=(--client rapl --server nvml) command=("${remote[@]}" "$programs/$program"); }
    echo "$program, $side:"
    # shellcheck disable=SC2086
    timeout 280 "$towline" bench energy "${sources[@]}" --json "$out/energy-$program-$side.json" \
      ${TOWLINE_ENERGY:---warm-up 10 --idle 5} -- "${command[@]}" --no-check || failed=1
  done
}

# ranks COMMAND...: NCCL between two processes, which end with 0 natively, and with 4 where it is refused.
ranks() {
  local side status started expected=(0 4) command=()
  for side in native towline; do
    [[ $side == native ]] || command=("$@")
    started=$SECONDS status=0
    timeout 240 "${command[@]}" "${PYTHON:-python3}" tests/gpu/programs/torch_nccl.py --ranks 2 >"$out/ranks-$side.log" 2>&1 || status=$?
    echo "$side: ended with $status after $((SECONDS - started)) s"
    tail -n 6 "$out/ranks-$side.log"
    [[ $status == "${expected[0]}" ]] || echo "wrong: it should end with ${expected[0]}"
    expected=("${expected[@]:1}")
  done
}

# meets COMMAND...: a program whose kernels and host use pinned memory at once says the same natively and through Towline.
meets() {
  local program=$root/$packed/programs/cuda_meets
  timeout 60 "$program" >"$out/meets-native.txt" 2>&1 || { echo "wrong: natively it fails"; cat "$out/meets-native.txt"; return; }
  timeout 60 "$@" "$program" >"$out/meets-towline.txt" 2>&1 || echo "wrong: it fails"
  cat "$out/meets-towline.txt"
  diff "$out/meets-native.txt" "$out/meets-towline.txt" >/dev/null || { echo "wrong: natively"; cat "$out/meets-native.txt"; }
}

# wants PART: whether --only names it, or nothing.
wants() { [[ -z $only || ,$only, == *,$1,* ]]; }

run() {
  local only= suite=() bench=() seconds= over=tcp link= listen failed=0
  out=$root/$packed/out
  while (($#)); do
    case $1 in
      --out) out=${2:?--out needs a folder}; shift 2 ;;
      --only) only=${2:?--only needs names}; shift 2 ;;
      --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
      --over) over=${2:?--over needs tcp, tls or shm}; shift 2 ;;
      --link) link=${2:?--link needs RATE,DELAY}; shift 2 ;;
      --cores | --rounds | --sides) suite+=("$1" "${2:?$1 needs a value}"); shift 2 ;;
      --) shift; bench=("$@"); break ;;
      *) usage 2 >&2 ;;
    esac
  done
  towline=$root/$packed/towline
  [[ -x $towline ]] || die "$packed is empty: run \`tests/gpu/cuda.sh pack\` where Rust is, and carry $packed here"
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  scratch=$(mktemp -d)
  trap leave EXIT
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "nvidia-smi says nothing"
  local programs=$root/$packed/workloads/cuda
  if [[ ! -x $programs/vector_add ]]; then
    programs=$scratch/workloads
    build_workloads "$programs" "$root/$packed" || { echo "no workloads: none are packed, and there is no ${NVCC:-nvcc}"; failed=1; }
  fi
  case $over in
    tcp) listen=127.0.0.1:0 ;;
    tls)
      listen=127.0.0.1:0
      (umask 077 && head -c 32 /dev/urandom | base64 >"$scratch/token")
      TOWLINE_SERVE="${TOWLINE_SERVE:-} --token-file $scratch/token" TOWLINE_RUN="${TOWLINE_RUN:-} --token-file $scratch/token"
      ;;
    shm) listen=shm:$scratch/socket ;;
    *) die "--over is tcp, tls or shm, and not $over" ;;
  esac
  # Options are words, not one word.
  # shellcheck disable=SC2086
  serve "$towline" "$out/server.log" --listen "$listen" ${TOWLINE_SERVE:-}
  [[ -z $link ]] || { over=$link; relay_over "$link"; }
  export TOWLINE_LIBRARY=$root/$packed
  # shellcheck disable=SC2206
  local remote=("$towline" run --server "$(<"$scratch/ready")" ${TOWLINE_RUN:-} --)
  if wants check && [[ -x $programs/vector_add ]]; then
    title "workloads at small sizes through Towline"
    timeout 300 workloads/cuda/check.sh "$programs" "${remote[@]}" | tee "$out/check.txt" | grep -v '^ok ' || true
    tail -n 1 "$out/check.txt" | grep -q ' 0 failed$' || failed=1
  fi
  # Programs of nvcc whose runtime is Towline's, on a GPU whose driver is not asked to identify itself.
  if wants cudart; then
    title "programs with Towline's runtime library, without the handshake"
    # shellcheck disable=SC2206
    local own=("$towline" run --cudart --no-cudart-handshake --server "$(<"$scratch/ready")" ${TOWLINE_RUN:-} --)
    if [[ -x $programs-shared/vector_add ]]; then
      timeout 300 workloads/cuda/check.sh "$programs-shared" "${own[@]}" | tee "$out/cudart-check.txt" | grep -v '^ok ' || true
      tail -n 1 "$out/cudart-check.txt" | grep -q ' 0 failed$' || failed=1
    fi
  fi
  # Every name that is not a section of its own is the suite's.
  local names
  names=$(tr , '\n' <<<"$only" | grep -vx -e check -e cudart -e bench -e energy -e kills -e ranks -e meets | paste -sd, || true)
  if [[ -z $only || -n $names ]]; then
    title "programs"
    [[ -z $seconds ]] || suite+=(--seconds "$((seconds > SECONDS ? seconds - SECONDS : 1))")
    python3 tests/gpu/suite.py --workloads "$programs" --python "${PYTHON:-python3}" --server-pid "$server" --over "$over" --out "$out" \
      --remote "$(IFS=$'\t'; echo "${remote[*]}")" --only "$names" "${suite[@]}" | tee "$out/programs.txt" || failed=1
  fi
  if wants bench; then
    title "measurements"
    [[ -z $seconds ]] || bench+=(--seconds "$((seconds > SECONDS ? seconds - SECONDS : 1))")
    timeout 540 "$towline" bench cuda --json "$out/cuda.json" "${bench[@]}" | tee "$out/cuda.txt" || failed=1
  fi
  if [[ ,$only, == *,energy,* ]]; then
    title "energy"
    energy lennard_jones
    energy sw_search
  fi
  if [[ ,$only, == *,kills,* ]]; then
    title "kills"
    timeout 240 python3 tests/gpu/kills.py --towline "$towline" --server "$(<"$scratch/ready")" --over "$over" --out "$out" \
      --remote "$(IFS=$'\t'; echo "${remote[*]}")" | tee "$out/kills.txt" || failed=1
  fi
  if [[ ,$only, == *,ranks,* ]]; then
    title "ranks"
    ranks "${remote[@]}" | tee "$out/ranks.txt"
    ! grep -q '^wrong' "$out/ranks.txt" || failed=1
  fi
  if [[ ,$only, == *,meets,* ]]; then
    title "pinned memory at once"
    [[ $over == shm ]] || die "kernels that run and the host meet over shared memory only: --over shm"
    meets "${remote[@]}" | tee "$out/meets.txt"
    ! grep -q '^wrong' "$out/meets.txt" || failed=1
  fi
  title "done"
  exit "$failed"
}

case ${1:-} in
  pack) pack ;;
  run) shift; run "$@" ;;
  list) exec python3 tests/gpu/suite.py --list ;;
  -h | --help) usage 0 ;;
  *) usage 2 >&2 ;;
esac
