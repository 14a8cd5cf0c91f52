#!/usr/bin/env bash
# Gives an MPI that knows CUDA pointers to memory of devices in software (device/device.c), ranks on one server and on two: `make test-long`.
#
#   check-device.sh FOLDER      FOLDER holds towline and its libraries
#
# The MPI is PyPI's Open MPI 5 with PyPI's UCX, which has the parts for CUDA; scripts/setup long installs both in build/openmpi5. An
# Open MPI that was itself built for CUDA, in the folder TOWLINE_CUDA_MPI, runs too, and computes on the memory in collectives.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
binaries=$(cd "$1" && pwd)
towline=$binaries/towline
openmpi5=${TOWLINE_OPENMPI5:-$root/build/openmpi5}
# shellcheck source=environment.sh
. "$here/environment.sh"

skip() {
  echo "skipped  device: $*"
  exit 77
}

cuda=${CUDA_HOME:-}
if [[ -z $cuda ]]; then
  for found in "$root"/build/cuda-toolkit/lib/python3*/site-packages/nvidia/cu13 /usr/local/cuda; do
    [[ -n $cuda || ! -f $found/include/cuda.h ]] || cuda=$found
  done
fi
[[ -f $cuda/include/cuda.h ]] || skip "there is no cuda.h; scripts/setup test installs one, unless TOWLINE_NVCC=no says not to"
ucx=
for found in "$openmpi5"/lib/python3*/site-packages/libucx/lib; do
  [[ ! -d $found ]] || ucx=$found
done
[[ -x $openmpi5/bin/mpicc && -n $ucx ]] || skip "there is no Open MPI 5 with UCX for CUDA; scripts/setup long installs it from PyPI"
# Open MPI 5's own launcher now and then waits for ever when all that it started has ended.
mpirun=$(command -v mpirun.openmpi) || skip "there is no mpirun.openmpi to launch it with"

# shellcheck source=servers.sh
. "$here/servers.sh"

# run NAME PART COMMAND...: it has to be right, and to say that it used PART
run() {
  local name=$1 part=$2 status=0
  shift 2
  timeout 200 "$@" >"$scratch/$name.out" 2>&1 || status=$?
  if [[ $status -eq 0 ]] && grep -q 'check pass' "$scratch/$name.out" && grep -q "$part" "$scratch/$name.out"; then
    echo "ok       device: $name"
    return
  fi
  echo "FAILED   device: $name: status $status: $*"
  cat "$scratch/$name.out"
  for log in "$scratch"/*.log; do echo "$log:"; tail -n 20 "$log"; done
  exit 1
}

# build FOLDER MPICC sets `program`
build() {
  program=$1/device
  make --no-print-directory -C "$here" BUILD="$1" MPICC="$2" CUDA=1 CUDA_HOME="$cuda" CUDA_LIBS="-L$scratch/lib -lcuda" "$program"
}

# Where the linker finds -lcuda: ours, by the driver's name.
mkdir "$scratch/lib"
ln -s "$binaries/libtowline_cuda.so" "$scratch/lib/libcuda.so"
device=(--backend off --kernel-time-limit 120 --cuda)
start_server a "${device[@]}" soft:2
a=$address
start_server b "${device[@]}" soft
b=$address

build "$root/build/workloads/mpi-openmpi5" "$openmpi5/bin/mpicc"
# on RANKS SERVERS OPTION... sets `command`. UCX is the one with parts for CUDA, and may use any of its transports, where Open MPI would
# have only those of fast networks.
ranks=(env OPAL_PREFIX="$openmpi5" OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any OMPI_MCA_osc=^ucx
  UCX_PROTO_INFO=used LD_LIBRARY_PATH="$ucx")
on() {
  local count=$1 servers=$2
  shift 2
  command=(-np "$count" "${ranks[@]}" "$towline" run --server "$servers" -- "$program" "$@")
}

# What UCX is refused as handles between programs, it stages through the host.
on 2 "$a" --device 0
run "two ranks on one device" cuda_copy "$mpirun" "${command[@]}"
on 4 "$a"
run "four ranks on two devices of a server" cuda_copy "$mpirun" "${command[@]}"
# What the one offers, the other has no way to open.
on 1 "$b"
apart=("${command[@]}")
on 1 "$a"
run "a rank on each of two servers" cuda_copy "$mpirun" "${apart[@]}" : "${command[@]}"
ranks+=(UCX_TLS=^cuda_ipc)
on 4 "$b,$a"
run "four ranks on two servers, staged from the start" cuda_copy "$mpirun" "${command[@]}"

if [[ -n ${TOWLINE_CUDA_MPI:-} ]]; then
  build "$root/build/workloads/mpi-cuda" "$TOWLINE_CUDA_MPI/bin/mpicc"
  mpirun=$TOWLINE_CUDA_MPI/bin/mpirun
  # Where handles are refused, this one says so at length.
  ranks=(env LD_LIBRARY_PATH="$TOWLINE_CUDA_MPI/lib" OMPI_MCA_btl=self,smcuda OMPI_MCA_btl_smcuda_use_cuda_ipc=0)
  on 2 "$a" --device 0 --collectives
  run "Open MPI's own support, two ranks on one device" "" "$mpirun" "${command[@]}"
  on 4 "$b,$a" --collectives
  run "Open MPI's own support, four ranks on two servers" "" "$mpirun" "${command[@]}"
fi

# Nothing is left of ranks that have ended.
for log in "$scratch"/[ab].log; do
  begun=$(grep -cE 'session [0-9]+: device \(pid' "$log" || true)
  for ((tenths = 0; tenths < 100; tenths++)); do
    ended=$(grep -cE 'session [0-9]+: ended' "$log" || true)
    [[ $begun -ne $ended ]] || break
    sleep 0.1
  done
  [[ $begun -gt 0 && $begun -eq $ended ]] || { echo "FAILED   device: of $begun sessions $ended have ended"; cat "$log"; exit 1; }
done
