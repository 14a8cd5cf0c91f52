#!/usr/bin/env bash
# Moves OpenCL sessions between the servers of two GPUs, or of one and the same: results, pauses, and what a program gains that leaves a
# busy GPU (moves.py).
#
#   moves.sh run FOLDER [OPTION...]    on the machine with the GPUs. FOLDER holds towline, its libraries, and the programs `holds` (of
#                                      crates/towline-e2e/programs) and `sgemm` (of workloads/opencl); options go to moves.py
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
die() { echo "moves.sh: $*" >&2; exit 1; }
[[ ${1:-} == run ]] || { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2; exit 2; }
folder=$(cd "${2:?moves.sh run needs the folder of towline and the programs}" && pwd)
shift 2
export TOWLINE_LIBRARY=$folder
python3 tests/gpu/moves.py --folder "$folder" "$@"
