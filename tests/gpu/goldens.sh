#!/usr/bin/env bash
# Has an NVIDIA GPU say what is right for devices in software: what every instruction of PTX leaves, and the rules that devices are
# held to. Takes less than a minute.
#
#   goldens.sh pack               on the machine that builds: what `run` asks rules with, into build/gpu
#   goldens.sh run [--out DIR]    on the machine with the GPU and its driver, in the same checkout with build/gpu carried along
#   goldens.sh soft FOLDER        compares devices in software with the committed record, tests/gpu/goldens: `make test`.
#                                 FOLDER holds towline and its libraries
#
# `run` leaves in DIR (default build/gpu/out) `goldens.txt` and `goldens.bin`, to be committed in tests/gpu/goldens, and `rules.txt`.
# Without build/gpu it asks no rules, and says so. PYTHON names the interpreter.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
packed=$root/build/gpu
python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit "$1"; }
die() { echo "goldens.sh: $*" >&2; exit 1; }

scratch=
# shellcheck source=tests/gpu/server.sh
source tests/gpu/server.sh
leave() { stop; [[ -z $scratch ]] || rm -rf "$scratch"; }

pack() {
  local target=${CARGO_TARGET_DIR:-target} test file
  cargo build --release --locked -p towline-cli
  mkdir -p "$packed/rules"
  strip -o "$packed/towline" "$target/release/towline"
  for test in graphs operations written; do
    file=$(cargo test --release --locked -p towline-cuda --test "$test" --no-run 2>&1 | sed -n 's/.*Executable .*(\(.*\))/\1/p')
    [[ -x $file ]] || die "cargo does not say where the test $test is"
    strip -o "$packed/rules/$test" "$file"
  done
  du -sh "$packed/towline" "$packed/rules"
}

# Each rule in a process of its own, so that one that fails does not sink the others.
rules() {
  local test names rule why
  # One rule counts the device's memory: no worker that waits for the next session may take some meanwhile.
  serve "$packed/towline" "$1/rules-server.log" --listen 127.0.0.1:0 --backend off --ready-contexts 0
  for test in graphs operations written; do
    names=$("$packed/rules/$test" --list --ignored --format terse served:: | sed -n 's/: test$//p') || true
    [[ -n $names ]] || echo "FAILED  $test has no rules to ask, or does not run here: pack it where the C library is no newer"
    for rule in $names; do
      if why=$(TOWLINE_SERVERS=$(<"$scratch/ready") timeout 60 "$packed/rules/$test" --ignored --exact "$rule" 2>&1); then
        echo "ok      $test $rule"
      else
        echo "FAILED  $test $rule"
        grep -A 4 panicked <<<"$why" | sed 's/^/        /' || tail -n 5 <<<"$why" | sed 's/^/        /'
      fi
    done
  done >"$1/rules.txt"
  stop
  grep -v '^ok ' "$1/rules.txt" || true
  echo "rules: $(grep -c '^ok ' "$1/rules.txt") passed, $(grep -c '^FAILED ' "$1/rules.txt") failed"
  ! grep -q '^FAILED ' "$1/rules.txt"
}

run() {
  local out=$packed/out failed=0
  while (($#)); do
    case $1 in
      --out) out=${2:?--out needs a folder}; shift 2 ;;
      *) usage 2 >&2 ;;
    esac
  done
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  scratch=$(mktemp -d)
  trap leave EXIT
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "nvidia-smi says nothing"
  timeout 300 "$python" tests/gpu/goldens.py record --out "$out" | tee "$out/goldens-table.txt" || failed=1
  if [[ -x $packed/towline && -d $packed/rules ]]; then
    rules "$out" || failed=1
  else
    echo "no rules: build/gpu lacks them; run \`tests/gpu/goldens.sh pack\` where Rust is, and carry build/gpu here"
  fi
  exit "$failed"
}

soft() {
  local binaries tier failed=0
  binaries=$(cd "${1:?the folder of towline and its libraries}" && pwd)
  scratch=$(mktemp -d)
  trap leave EXIT
  for tier in interpreter jit; do
    echo "== $tier"
    serve "$binaries/towline" "$scratch/log" --listen 127.0.0.1:0 --backend off --cuda soft --soft-tier "$tier" --kernel-time-limit 60
    timeout 600 "$binaries/towline" run --server "$(<"$scratch/ready")" -- "$python" tests/gpu/goldens.py compare --digests "$scratch/$tier" || failed=1
    stop
  done
  # Both must leave the same at least where results are known to differ from the GPU's.
  diff "$scratch/interpreter" "$scratch/jit" || { echo "!! the tiers leave different results"; failed=1; }
  exit "$failed"
}

case ${1:-} in
  pack) pack ;;
  run) shift; run "$@" ;;
  soft) shift; soft "$@" ;;
  -h | --help) usage 0 ;;
  *) usage 2 >&2 ;;
esac
