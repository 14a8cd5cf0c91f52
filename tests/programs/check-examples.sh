#!/usr/bin/env bash
# Builds the examples of docs/examples.md and runs each against a server with a CUDA device in software: `make test`.
#
#   check-examples.sh FOLDER      FOLDER holds towline and its libraries
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
binaries=$(cd "$1" && pwd)
built=${CARGO_TARGET_DIR:-$root/target}/debug/examples
cd "$root"

scratch=$(mktemp -d)
server=
stop() {
  [[ -z $server ]] || { kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  rm -rf "$scratch"
}
trap stop EXIT

# serve ADDRESS: a server there, whose address it leaves in $address.
serve() {
  rm -f "$scratch/ready"
  setpriv --pdeathsig TERM "$binaries/towline" serve --listen "$1" --ready-file "$scratch/ready" --cuda soft 2>"$scratch/log" &
  server=$!
  for ((tenths = 0; tenths < 300; tenths++)); do
    [[ ! -s $scratch/ready ]] || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  [[ -s $scratch/ready ]] || { cat "$scratch/log" >&2; exit 1; }
  address=$(<"$scratch/ready")
}

# expect TEXT COMMAND...: the command succeeds and prints the text.
expect() {
  local text=$1 printed
  shift
  printed=$(timeout 120 "$@" 2>&1) || { printf 'FAILED: %s\n%s\n' "$*" "$printed"; cat "$scratch/log" >&2 || true; exit 1; }
  [[ $printed == *"$text"* ]] || { printf 'FAILED: %s\nprinted\n%s\nand not %s\n' "$*" "$printed" "$text"; exit 1; }
  printf 'ok: %s\n' "$printed"
}

# All of the workspace, as `cargo test` builds them: another choice of packages means other features, and minutes.
cargo build --workspace --examples --locked
cc -Wall -Wextra -Werror -O2 -o "$scratch/vector_add" crates/towline-opencl/examples/vector_add.c -lOpenCL
cc -shared -fPIC -O2 -fvisibility=hidden -I crates/towline-transport/include -o "$scratch/libtowline_unix.so" \
  crates/towline-transport/examples/unix_socket.c

expect '10000 bytes went to the device' "$built/backend_of_ten_calls"
expect '0 to 2: 9600320 bytes' "$built/read_trace" crates/towline-place/examples/trace

serve 127.0.0.1:0
expect 'Towline software device: 1048576 of 1048576 numbers are right' "$binaries/towline" run --server "$address" -- "$built/saxpy"
expect '1048576 of 1048576 sums are right' "$binaries/towline" run --server "$address" -- "$scratch/vector_add" Towline
kill -TERM "$server"
wait "$server" || true
server=

export TOWLINE_TRANSPORTS=$scratch/libtowline_unix.so
serve "unix://$scratch/towline.sock"
expect '1048576 of 1048576 sums are right' "$binaries/towline" run --server "$address" -- "$scratch/vector_add" Towline
