#!/usr/bin/env bash
# Builds every workload with nvcc, linked with libcudart.so, and runs them on devices in software with Towline's own libcudart.so:
# `make test`. Exits with 77 where there is no nvcc.
#
#   check-soft.sh FOLDER      FOLDER holds towline and its libraries
#
# NVCC names the compiler; else it is the one that scripts/setup installed in build/cuda-toolkit, else the one in PATH.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
binaries=$(cd "$1" && pwd)
build=$root/build/workloads/cuda-soft

nvcc=${NVCC:-}
if [[ -z $nvcc ]]; then
  for found in "$root"/build/cuda-toolkit/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
    [[ ! -x $found ]] || nvcc=$found
  done
fi
nvcc=${nvcc:-nvcc}
if ! command -v "$nvcc" >/dev/null; then
  echo "there is no nvcc: scripts/setup test installs one, unless TOWLINE_NVCC=no says not to"
  exit 77
fi

scratch=$(mktemp -d)
server=
stop() {
  [[ -z $server ]] || { kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  rm -rf "$scratch"
}
trap stop EXIT

# Where the linker finds -lcudart: ours.
mkdir "$scratch/lib"
ln -s "$binaries/libtowline_cudart13.so" "$scratch/lib/libcudart.so"
# PTX alone: a device in software runs nothing else. For 8.0, since one workload reduces over warps.
make --no-print-directory -j"$(nproc)" -C "$root/workloads/cuda" BUILD="$build" NVCC="$nvcc" CUDART=shared \
  LIBRARIES="-L$scratch/lib" GENCODE="-gencode arch=compute_80,code=compute_80"

setpriv --pdeathsig TERM "$binaries/towline" serve --listen 127.0.0.1:0 --ready-file "$scratch/ready" --backend off --cuda soft:2 \
  --kernel-time-limit 120 2>"$scratch/log" &
server=$!
for ((tenths = 0; tenths < 300; tenths++)); do
  [[ ! -s $scratch/ready ]] || break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
[[ -s $scratch/ready ]] || { cat "$scratch/log" >&2; exit 1; }

SMALL=1 "$root/workloads/cuda/check.sh" "$build" timeout 120 "$binaries/towline" run --cudart --server "$(<"$scratch/ready")" -- || {
  cat "$scratch/log" >&2
  exit 1
}
