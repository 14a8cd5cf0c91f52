#!/usr/bin/env bash
# Runs Numba's kernels on a device in software: `make test`. Exits with 77 where there is no Numba.
#
#   check-numba.sh FOLDER      FOLDER holds towline and its libraries
#
# PYTHON names an interpreter that has Numba; else it is the one that scripts/setup installed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
binaries=$(cd "$1" && pwd)
python=${PYTHON:-$root/build/cuda-toolkit/bin/python}
if ! "$python" -c 'import numba' 2>/dev/null; then
  echo "there is no Numba: scripts/setup test installs it, unless TOWLINE_NVCC=no says not to"
  exit 77
fi

scratch=$(mktemp -d)
server=
stop() {
  [[ -z $server ]] || { kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  rm -rf "$scratch"
}
trap stop EXIT
setpriv --pdeathsig TERM "$binaries/towline" serve --listen 127.0.0.1:0 --ready-file "$scratch/ready" --backend off --cuda soft \
  2>"$scratch/log" &
server=$!
for ((tenths = 0; tenths < 300; tenths++)); do
  [[ ! -s $scratch/ready ]] || break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
[[ -s $scratch/ready ]] || { cat "$scratch/log" >&2; exit 1; }

timeout 300 "$binaries/towline" run --server "$(<"$scratch/ready")" -- "$python" "$root/tests/programs/numba_kernels.py" \
  "$root/build/ptx" || {
  cat "$scratch/log" >&2
  exit 1
}
