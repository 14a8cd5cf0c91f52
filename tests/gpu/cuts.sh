#!/usr/bin/env bash
# Has a PyTorch training run go on through cuts of all its connections (cuts.py), and measures what sessions that outlive cuts cost.
#
#   cuts.sh run FOLDER [OPTION...]    on the machine with the GPU. FOLDER holds towline and its libraries; options go to cuts.py
#
# Variables: PYTHON names the interpreter that has PyTorch.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
die() { echo "cuts.sh: $*" >&2; exit 1; }
[[ ${1:-} == run ]] || { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2; exit 2; }
folder=$(cd "${2:?cuts.sh run needs the folder of towline and its libraries}" && pwd)
shift 2
export TOWLINE_LIBRARY=$folder
scratch=$(mktemp -d)
# shellcheck source=tests/gpu/server.sh
source tests/gpu/server.sh
trap 'stop; rm -rf "$scratch"' EXIT

serve "$folder/towline" "$scratch/log" --backend off --listen 127.0.0.1:0
"${PYTHON:-python3}" tests/gpu/cuts.py --server "$(<"$scratch/ready")" --remote "$folder/towline"$'\t'run "$@"
stop
for grace in 0 60 0 60; do
  serve "$folder/towline" "$scratch/log" --backend off --listen 127.0.0.1:0 --grace "$grace"
  echo "--grace $grace"
  "$folder/towline" bench cuda --server "$(<"$scratch/ready")" --legs remote --only launch,small,bandwidth --quick 2>/dev/null
  stop
done
