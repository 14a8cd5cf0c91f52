#!/bin/sh
# Runs every MPI workload and fails if any result is wrong: `make check`, `make check-long`.
#
#   check.sh FOLDER MPIRUN quick|long      FOLDER holds the programs
set -u

folder=$1
mpirun=$2
tier=$3

. "$(dirname "$0")/environment.sh"

passed=0
failed=0

# run EXPECTED_STATUS RANKS PROGRAM ARGUMENT...
run() {
    expected=$1
    ranks=$2
    shift 2
    program=$1
    shift
    output=$(timeout 900 "$mpirun" -np "$ranks" "$folder/$program" "$@" 2>&1)
    status=$?
    result=$(echo "$output" | grep -m 1 "^${program%_*} class")
    if [ "$status" -eq "$expected" ]; then
        passed=$((passed + 1))
        echo "ok       $program -np $ranks $*${result:+: ${result#*: }}"
    else
        failed=$((failed + 1))
        echo "FAILED   $program -np $ranks $* (status $status, expected $expected)"
        echo "$output"
    fi
}

if [ "$tier" = quick ]; then
    for ranks in 1 2 4; do
        for program in cg ft is lj; do
            run 0 $ranks $program --class S
            run 0 $ranks $program --class W
        done
        run 0 $ranks lu --class S
        run 0 $ranks himeno --class XS
        run 0 $ranks himeno --class S --iterations 20
    done
    # A grid that is not square, one along a single axis, and numbers of ranks that are no powers of two.
    run 0 8 cg --class S
    run 0 6 lu --class S
    run 0 3 lj --class S
    run 0 6 himeno --class XS --grid 1x2x3
    run 0 2 lu --class W
    # The processor as an OpenCL device, where there is one; two ranks share it.
    if [ -x "$folder/lj_opencl" ]; then
        run 0 1 lj_opencl --class S
        run 0 2 lj_opencl --class S --steps 40
        run 77 1 lj_opencl --platform "no platform of this name"
    fi
    run 0 2 pingpong
    # Mistakes are told apart by their status.
    run 2 3 pingpong
    run 2 2 cg --class Z
    run 2 3 ft --class S
    run 2 3 is --class S
    run 2 2 himeno --grid 3x1x1
    run 2 2 himeno --iterations many
    run 2 2 lj --no-such-option
    run 2 8 lu --class S --class
else
    for ranks in 1 2 4; do
        for program in cg ft is lj; do
            run 0 $ranks $program --class A
        done
        run 0 $ranks himeno --class M
        run 0 $ranks lu --class W
    done
    run 0 2 lu --class A
    run 0 16 cg --class A
    run 0 16 ft --class A
    run 0 16 is --class A
    run 0 2 is --class B
fi

echo "$passed passed, 0 skipped, $failed failed"
[ "$failed" -eq 0 ]
