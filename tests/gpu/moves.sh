#!/usr/bin/env bash
# Moves sessions between the servers of two GPUs, or of one and the same: results, pauses, and what a program gains that leaves a
# busy GPU (moves.py).
#
#   moves.sh run FOLDER [OPTION...]    on the machine with the GPUs. FOLDER holds towline, its libraries, and the programs `holds` (of
#                                      crates/towline-e2e/programs) and `sgemm` (of workloads/opencl); options go to moves.py
#   moves.sh cuda FOLDER [OPTION...]   the same for CUDA sessions (cuda_moves.py). FOLDER holds `cuda_steady`; PYTHON names an interpreter with
#                                      PyTorch and CuPy
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
die() { echo "moves.sh: $*" >&2; exit 1; }
[[ ${1:-} == run || ${1:-} == cuda ]] || { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2; exit 2; }
what=$1
folder=$(cd "${2:?moves.sh needs the folder of towline and the programs}" && pwd)
shift 2
export TOWLINE_LIBRARY=$folder
script=moves.py
[[ $what == run ]] || script=cuda_moves.py
python3 "tests/gpu/$script" --folder "$folder" "$@"
