# For the tests of packages: `source` it. Sets `root`, `scratch` and `arch`, and stops at the end what was started.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
arch=x86_64
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
scratch=$(mktemp -d)
chmod 755 "$scratch"
servers=()
cleanups=()
at_end() {
  local server
  for server in "${servers[@]}"; do
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  done
  local command
  for command in "${cleanups[@]}"; do $command || true; done
  rm -rf --one-file-system "$scratch"
}
trap at_end EXIT

say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }
fail() {
  say "FAILED: $*" >&2
  exit 1
}
skip() {
  say "SKIPPED: $*" >&2
  exit 77
}
need() {
  local tool
  for tool in "$@"; do command -v "$tool" >/dev/null || skip "this machine has no $tool (scripts/setup long installs it)"; done
}

# start_server TOWLINE OPTION...: a server on a free port; its address goes to `address`.
start_server() {
  local towline=$1 ready=$scratch/ready.${#servers[@]}
  shift
  setpriv --pdeathsig TERM "$towline" serve --listen 127.0.0.1:0 --ready-file "$ready" "$@" >"$ready.log" 2>&1 &
  servers+=($!)
  wait_for test -s "$ready" || { cat "$ready.log" >&2; fail "the server does not start"; }
  address=$(<"$ready")
}

# wait_for COMMAND...: until it succeeds, at most 60 s.
wait_for() {
  local tenths
  for ((tenths = 0; tenths < 600; tenths++)); do
    ! "$@" || return 0
    sleep 0.1
  done
  return 1
}

# build_programs [CC]: programs that know nothing of Towline go to $scratch: of CUDA's driver and runtime API, of OpenCL and of NVML.
build_programs() {
  make --silent -C "$root/crates/towline-e2e/programs" CC="${1:-cc}" BUILD="$scratch" "$scratch"/{cuda_ptx,cudart_saxpy,list,nvml}
  make --silent -C "$root/workloads/opencl" CC="${1:-cc}" BUILD="$scratch" "$scratch/vector_add"
  cp -r "$root/crates/towline-e2e/programs/ptx" "$scratch/"
}

# use_devices RUN...: those programs, each started by `RUN... -- PROGRAM`, find devices and give right results.
use_devices() {
  use '65536 results, 0 wrong' "$@" -- "$scratch/cuda_ptx" "$scratch/ptx"
  use '65536 numbers, 0 wrong' "$@" --cudart -- "$scratch/cudart_saxpy" 12
  use 'status 0, 1 devices' "$@" -- "$scratch/list"
}

# use LINE COMMAND...: it succeeds and says LINE.
use() {
  local line=$1
  shift
  timeout 300 "$@" >"$scratch/out" 2>&1 && grep -q "$line" "$scratch/out" || fail "$*: $(cat "$scratch/out")"
}
