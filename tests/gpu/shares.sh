#!/usr/bin/env bash
# Measures shares of a GPU's time between tenants of one server (shares.py).
#
#   shares.sh pack FOLDER              on the machine that builds: towline, its libraries and the program, stripped
#   shares.sh run FOLDER [OPTION...]   on the machine with the GPU; options go to shares.py. Without a GPU: --cuda soft:1 --rounds 100000
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
die() { echo "shares.sh: $*" >&2; exit 1; }
command=${1:-}
folder=${2:?shares.sh needs a folder}
case $command in
pack)
    mkdir -p "$folder"
    for file in towline libtowline_{cuda,nvml,opencl}.so; do
        strip -o "$folder/$file" "target/release/$file" || die "cargo build --release --locked comes first"
    done
    make -s -C crates/towline-e2e/programs BUILD="$(realpath "$folder")" "$(realpath "$folder")/cuda_counts"
    ;;
run)
    folder=$(cd "$folder" && pwd)
    shift 2
    export TOWLINE_LIBRARY=$folder
    exec python3 "${SHARES:-tests/gpu/shares.py}" --folder "$folder" "$@"
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
    exit 2
    ;;
esac
