#!/usr/bin/env bash
# Has kills.py kill programs and workers that are busy with devices in software.
#
#   kills-soft.sh FOLDER    the folder with towline and its libraries
set -euo pipefail

folder=$(cd "${1:?kills-soft.sh needs the folder of towline}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scratch=$(mktemp -d)
# shellcheck source=tests/gpu/server.sh
source tests/gpu/server.sh
trap 'stop; rm -rf "$scratch"' EXIT
die() { echo "kills-soft.sh: $*" >&2; exit 1; }

export PYTHONDONTWRITEBYTECODE=1 TOWLINE_LIBRARY=$folder
for listen in 127.0.0.1:0 "shm:$scratch/socket"; do
  serve "$folder/towline" "$scratch/log" --cuda soft --listen "$listen"
  address=$(<"$scratch/ready")
  # What it tells of sessions that were lost is what it is for.
  timeout 200 python3 tests/gpu/kills.py --towline "$folder/towline" --server "$address" --memory workers --server-pid "$server" \
    --sides towline --megabytes 512 --rounds 1 --remote "$(printf '%s\t' "$folder/towline" run --server "$address")--" 2>"$scratch/errors" ||
    { cat "$scratch/errors" "$scratch/log" >&2; die "over $listen"; }
  stop
done
