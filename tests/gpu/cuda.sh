#!/usr/bin/env bash
# Checks CUDA through Towline on an NVIDIA GPU: programs compiled there, natively and through a server on the same machine.
#
#   cuda.sh pack                on the machine that builds
#   cuda.sh run [--out DIR]     on the machine with the GPU, its driver and nvcc
#
# Variables: NVCC names the compiler, PYTHON the interpreter whose PyTorch is tried, where it has one.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
packed=build/gpu
programs=(vector_add saxpy)

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit "$1"; }
die() { echo "cuda.sh: $*" >&2; exit 1; }

pack() {
  local target=${CARGO_TARGET_DIR:-target}/release
  cargo build --release --locked -p towline-cli -p towline-cuda -p towline-opencl
  mkdir -p "$packed"
  for file in towline libtowline_cuda.so libtowline_opencl.so; do strip -o "$packed/$file" "$target/$file"; done
  du -sh "$packed"
}

server=
scratch=
stop() {
  [[ -z $server ]] || { kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  [[ -z $scratch ]] || rm -rf "$scratch"
}

failed=0
# check WHERE PROGRAM COMMAND...: runs it with a time limit; a line of the table says how it went.
check() {
  local where=$1 program=$2 status=0 began=$EPOCHREALTIME
  shift 2
  timeout 120 "$@" >"$out/$program-$where.txt" 2>&1 || status=$?
  local ms=$(((${EPOCHREALTIME/./} - ${began/./}) / 1000))
  if ((status == 0)); then
    printf '%-12s %-8s ok      %6s ms\n' "$program" "$where" "$ms"
  else
    printf '%-12s %-8s FAILED  %6s ms  (status %s)\n' "$program" "$where" "$ms" "$status"
    tail -n 20 "$out/$program-$where.txt"
    failed=1
  fi
}

run() {
  out=$root/$packed/out
  while (($#)); do
    case $1 in
      --out) out=${2:?--out needs a folder}; shift 2 ;;
      *) usage 2 >&2 ;;
    esac
  done
  local towline=$root/$packed/towline nvcc=${NVCC:-nvcc} python=${PYTHON:-python3} tenths program
  [[ -x $towline ]] || die "$packed is empty: run \`tests/gpu/cuda.sh pack\` where Rust is, and carry $packed here"
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  scratch=$(mktemp -d)
  trap stop EXIT
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "nvidia-smi says nothing"
  for program in "${programs[@]}"; do
    "$nvcc" -O2 -cudart static -o "$scratch/$program" "workloads/cuda/$program/$program.cu"
  done
  "$towline" serve --listen 127.0.0.1:0 --ready-file "$scratch/ready" 2>"$out/server.log" &
  server=$!
  for ((tenths = 0; tenths < 300; tenths++)); do
    [[ ! -s $scratch/ready ]] || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  [[ -s $scratch/ready ]] || { cat "$out/server.log" >&2; die "the server did not start"; }
  local remote=(env TOWLINE_LIBRARY="$root/$packed" "$towline" run --server "$(<"$scratch/ready")" --)
  for program in "${programs[@]}"; do
    check native "$program" "$scratch/$program"
    check towline "$program" "${remote[@]}" "$scratch/$program"
  done
  cat >"$scratch/tensors.py" <<'PY'
import torch

a = torch.arange(1024, dtype=torch.float32, device="cuda")
assert (a + a).sum().item() == 1023 * 1024
b = torch.ones(64, 64, device="cuda") @ torch.full((64, 64), 2.0, device="cuda")
assert b[3, 5].item() == 128.0
print("tensors are right on", torch.cuda.get_device_name(0))
PY
  if "$python" -c 'import torch' 2>/dev/null; then
    check native pytorch "$python" "$scratch/tensors.py"
    check towline pytorch "${remote[@]}" "$python" "$scratch/tensors.py"
  else
    echo "pytorch      skipped: $python has none"
  fi
  exit "$failed"
}

case ${1:-} in
  pack) pack ;;
  run) shift; run "$@" ;;
  -h | --help) usage 0 ;;
  *) usage 2 >&2 ;;
esac
