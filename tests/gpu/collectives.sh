#!/usr/bin/env bash
# NCCL between two GPUs: natively, through one server with both, and through two servers with one each (collectives.py).
#
#   collectives.sh pack FOLDER              on the machine that builds: towline and its libraries, stripped
#   collectives.sh run FOLDER [OPTION...]   on the machine with the GPUs. PYTHON names an interpreter with PyTorch; options go to
#                                           collectives.py
#
# Multicast of NVLink stays off: on machines whose GPUs others share, a program that uses it can put all of them out of service.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
die() { echo "collectives.sh: $*" >&2; exit 1; }
command=${1:-}
folder=${2:?collectives.sh needs a folder}
case $command in
pack)
    mkdir -p "$folder"
    for file in towline libtowline_{cuda,nccl,nvml,opencl}.so; do
        strip -o "$folder/$file" "target/release/$file" || die "cargo build --release --locked comes first"
    done
    ;;
run)
    folder=$(cd "$folder" && pwd)
    shift 2
    export TOWLINE_LIBRARY=$folder NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
    exec "${PYTHON:-python3}" tests/gpu/collectives.py --folder "$folder" "$@"
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
    exit 2
    ;;
esac
