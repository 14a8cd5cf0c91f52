#!/usr/bin/env bash
# Measures how long software CUDA sessions take that are asked for at the same moment: one line per number of sessions,
# with the milliseconds until the middle one and the last had its result, and the server's processor seconds.
#
#   bench/burst.sh [COUNT]...          default: 1 10 100 300 1000
#
# TOWLINE_BIN_DIR names the folder of the binaries (default: target/release). Leaves no process behind.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$(cd "${TOWLINE_BIN_DIR:-${CARGO_TARGET_DIR:-$root/target}/release}" && pwd)
(($#)) || set -- 1 10 100 300 1000
[[ -x $bin/towline ]] || { echo "burst.sh: $bin/towline is not built: cargo build --release -p towline-cli -p towline-cuda -p towline-opencl" >&2; exit 1; }

work=$(mktemp -d)
server=
clean_up() {
  if [[ -n $server ]]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
  fi
}
trap 'clean_up; rm -rf "$work"' EXIT
chmod 711 "$work"
make --silent -C "$root/crates/towline-e2e/programs" BUILD="$work" "$work/cuda_burst"

printf 'sessions\tright\tmiddle_ms\tlast_ms\tserver_cpu_s\n'
ticks=$(getconf CLK_TCK)
for count in "$@"; do
  TMPDIR=$work "$bin/towline" serve --listen 127.0.0.1:0 --backend off --cuda soft --max-sessions 4096 \
    --ready-file "$work/ready" >"$work/log" 2>&1 &
  server=$!
  until [[ -s $work/ready ]]; do
    kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
    sleep 0.05
  done
  said=$("$bin/towline" run --server "$(<"$work/ready")" -- "$work/cuda_burst" "$count" </dev/null 2>"$work/errors" | head -1) || true
  # What the server and its ended workers used: fields 14 to 17, counted from the pid.
  used=$(awk -v ticks="$ticks" '{ sub(/.*\) /, ""); print ($12 + $13 + $14 + $15) / ticks }' "/proc/$server/stat")
  sed -E "s/^([0-9]+) right of ([0-9]+): ([0-9]+) ms, ([0-9]+) ms$/\2\t\1\t\3\t\4\t$used/" <<<"$said"
  clean_up
done
