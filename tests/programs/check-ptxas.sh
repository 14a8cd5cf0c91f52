#!/usr/bin/env bash
# Has ptxas judge what towline-ptx prints of what compilers write: all kernels of workloads/cuda by nvcc, for two targets, and Numba's.
# `make test`. Exits with 77 where there is no nvcc.
#
# NVCC names the compiler; else it is the one that scripts/setup installed. Numba's PTX is what check-numba.sh left. TOWLINE_PTX_SOURCES
# names a folder of more.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$root/build/ptx
nvcc=${NVCC:-}
for found in "$root"/build/cuda-toolkit/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
  [[ -n $nvcc || ! -x $found ]] || nvcc=$found
done
nvcc=${nvcc:-nvcc}
if ! command -v "$nvcc" >/dev/null; then
  echo "there is no nvcc: scripts/setup test installs one, unless TOWLINE_NVCC=no says not to"
  exit 77
fi
export TOWLINE_PTXAS=${TOWLINE_PTXAS:-$(dirname "$(command -v "$nvcc")")/ptxas}

mkdir -p "$folder"
# What did not change is not compiled again.
for source in "$root"/workloads/cuda/*/*.cu; do
  for target in 80 90; do
    ptx=$folder/$(basename "$(dirname "$source")")-$(basename "$source" .cu)-$target.ptx
    [[ $ptx -nt $source ]] || "$nvcc" -ptx -arch="compute_$target" -o "$ptx" "$source"
  done
done
compgen -G "$folder/numba-*.ptx" >/dev/null || echo "SKIPPED Numba's kernels: tests/programs/check-numba.sh leaves them"
[[ -z ${TOWLINE_PTX_SOURCES:-} ]] || cp "$TOWLINE_PTX_SOURCES"/*.ptx "$folder"

cd "$root"
TOWLINE_PTX_SOURCES=$folder cargo test --locked --workspace --test ptxas what_is_printed -- --nocapture
