#!/usr/bin/env bash
# Runs molecular dynamics (lj) on the GPUs of Towline servers, ranks under `mpirun`, and compares it with the same motion on the
# processor and natively on this machine's OpenCL device: `make test`.
#
#   check-towline.sh FOLDER      FOLDER holds towline and its libraries; `make OPENCL=1` has built the programs
#
# The CUDA program runs on devices in software, where there is a cuda.h to build it with: below CUDA_HOME, else the one that
# scripts/setup installed in build/cuda-toolkit.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
binaries=$(cd "$1" && pwd)
towline=$binaries/towline
programs=$root/build/workloads/mpi
mpirun=$(command -v mpirun.openmpi || echo mpirun)
# shellcheck source=environment.sh
. "$here/environment.sh"

# shellcheck source=servers.sh
. "$here/servers.sh"

# run NAME COMMAND...: its line of JSON goes to NAME.json, what is said beside it to NAME.errors
run() {
  local name=$1 status=0
  shift
  timeout 300 "$@" --class S --json >"$scratch/$name.json" 2>"$scratch/$name.errors" || status=$?
  [[ $status -ne 0 ]] || return 0
  echo "FAILED   $name: status $status from: $* --class S --json"
  cat "$scratch/$name.json" "$scratch/$name.errors"
  for log in "$scratch"/*.log; do echo "$log:"; tail -n 20 "$log"; done
  exit 1
}

# compare NAME KIND RANKS BUSY...: with what the processor computed, and what the same device computes natively if it is OpenCL's.
# BUSY is how many ranks' work each server has, in the servers' order.
compare() {
  python3 - "$scratch" "$@" <<'PYTHON'
import json, pathlib, re, sys

scratch, name, kind, ranks, *busy = pathlib.Path(sys.argv[1]), *sys.argv[2:]
remote, cpu, native = (json.loads((scratch / f"{run}.json").read_text()) for run in (name, f"cpu-{ranks}", f"native-{ranks}"))
figures = ("temperature", "potential", "pressure", "total")
wrong = []
if remote["ranks"] != int(ranks) or not remote["device"].startswith(f"{kind}: ") or remote["check"] != "pass":
    wrong.append(f"it is not a checked run of {ranks} ranks on {kind}: {remote}")
# Rounding to single precision is 6e-8; 100 steps make less than 1e-6 of it.
for figure in figures:
    if not abs(remote[figure] - cpu[figure]) < 1e-5:
        wrong.append(f"{figure} is {remote[figure]}, and {cpu[figure]} on the processor")
    if kind == "opencl" and remote[figure] != native[figure]:
        wrong.append(f"{figure} is {remote[figure]}, and natively {native[figure]}: it is the same device")
# What each rank's `towline run --report` says of each server: a rank uses one of them, by its number on the node.
worked = {}
errors = (scratch / f"{name}.errors").read_text()
for server, requests in re.findall(r"towline: (\S+): (\d+) requests", errors):
    worked[server] = worked.get(server, 0) + (int(requests) > 0)
if [str(count) for count in worked.values()] != busy:
    wrong.append(f"ranks at work on each server: {worked}, and not {', '.join(busy)}")
# A wait a step, for the forces; one for those at the start, and one for the build of the kernel. CUDA's copies from and to memory
# that is not pinned wait as they do natively: twice more for sums, and for the lists, which are long, at the start and every 20
# steps; and so do its context, module, first launch and five allocations.
limit = remote["iterations"] + 2 + (0 if kind == "opencl" else 15)
waits = [int(count) for count in re.findall(r"waited (\d+) times", errors) if int(count) > 0]
if len(waits) != int(ranks) or max(waits, default=0) > limit:
    wrong.append(f"ranks waited {waits} times, and not {limit} at most")
print(f"{'FAILED' if wrong else 'ok':8} {name}: {ranks} ranks on {kind}, temperature {remote['temperature']}, {max(waits, default=0)} waits a rank")
if wrong:
    print(*wrong, errors, sep="\n")
    sys.exit(1)
PYTHON
}

for ranks in 2 3; do
  run "cpu-$ranks" "$mpirun" -np "$ranks" "$programs/lj"
  run "native-$ranks" "$mpirun" -np "$ranks" "$programs/lj_opencl"
done

start_server a --cuda off
a=$address
start_server b --cuda off
b=$address
run one-server "$mpirun" -np 2 "$towline" run --server "$a" --report -- "$programs/lj_opencl" --platform Towline
compare one-server opencl 2 2
run two-servers "$mpirun" -np 2 "$towline" run --server "$a,$b" --report -- "$programs/lj_opencl" --platform Towline
compare two-servers opencl 2 1 1
run three-ranks "$mpirun" -np 3 "$towline" run --server "$a,$b" --report -- "$programs/lj_opencl" --platform Towline
compare three-ranks opencl 3 2 1
# The launcher hands the environment on to its ranks.
run launcher-within "$towline" run --server "$a,$b" --report -- "$mpirun" -np 2 "$programs/lj_opencl" --platform Towline
compare launcher-within opencl 2 1 1

cuda=${CUDA_HOME:-}
if [[ -z $cuda ]]; then
  for found in "$root"/build/cuda-toolkit/lib/python3*/site-packages/nvidia/cu13 /usr/local/cuda; do
    [[ -n $cuda || ! -f $found/include/cuda.h ]] || cuda=$found
  done
fi
if [[ ! -f $cuda/include/cuda.h ]]; then
  echo "skipped  lj_cuda: there is no cuda.h; scripts/setup test installs one, unless TOWLINE_NVCC=no says not to"
  exit 0
fi
# Where the linker finds -lcuda: ours, by the driver's name.
mkdir "$scratch/lib"
ln -s "$binaries/libtowline_cuda.so" "$scratch/lib/libcuda.so"
make --no-print-directory -C "$here" OPENCL=1 CUDA=1 CUDA_HOME="$cuda" CUDA_LIBS="-L$scratch/lib -lcuda"
start_server c --backend off --cuda soft:2 --kernel-time-limit 120
c=$address
start_server d --backend off --cuda soft --kernel-time-limit 120
d=$address
run cuda-one-server "$mpirun" -np 2 "$towline" run --server "$c" --report -- "$programs/lj_cuda"
compare cuda-one-server cuda 2 2
run cuda-two-servers "$mpirun" -np 3 "$towline" run --server "$d,$c" --report -- "$programs/lj_cuda"
compare cuda-two-servers cuda 3 1 2
