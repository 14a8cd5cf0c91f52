#!/bin/sh
# Runs every workload at small sizes, on one device and on all, and fails if any fails: `make check`. Needs a GPU.
#
#   check.sh FOLDER [COMMAND...]      FOLDER holds the programs; COMMAND goes before each, as in `towline run --server X --`
#   SMALL=1 check.sh ...              at sizes for a device in software
set -u

folder=$1
shift

passed=0
skipped=0
failed=0
# What goes before each program, kept apart from the programs' own arguments.
before=$*

# run EXPECTED_STATUS PROGRAM ARGUMENT...
run() {
    expected=$1
    program=$2
    shift 2
    # The command is words, not one word.
    # shellcheck disable=SC2086
    output=$($before "$folder/$program" "$@" 2>&1)
    status=$?
    if [ "$status" -eq "$expected" ]; then
        passed=$((passed + 1))
        echo "ok       $program $*"
    elif [ "$status" -eq 77 ]; then
        skipped=$((skipped + 1))
        echo "skipped  $program $*"
    else
        failed=$((failed + 1))
        echo "FAILED   $program $* (status $status, expected $expected)"
        echo "$output"
    fi
}

if [ -n "${SMALL:-}" ]; then
    run 0 vector_add 1000
    run 0 saxpy
    run 0 tensor_cores
    run 0 textures
    for devices in 1 all; do
        for precision in single double; do
            run 0 sgemm --devices $devices --precision $precision --size 67
            run 0 sgemm --devices $devices --precision $precision --size 37 --instances 3 --host-memory pageable
            run 0 nbody --devices $devices --precision $precision --size 150 --steps 3
            run 0 nbody --devices $devices --precision $precision --size 60 --steps 3 --instances 3
            run 0 transpose --devices $devices --precision $precision --size 117
            run 0 transpose --devices $devices --precision $precision --size 31 --instances 3 --host-memory pageable
            run 0 lennard_jones --devices $devices --precision $precision --size 6 --steps 10
        done
        for method in wavefront tiled; do
            run 0 smith_waterman --devices $devices --method $method --size 100
            run 0 smith_waterman --devices $devices --method $method --size 64 --instances 3
            run 0 smith_waterman --devices $devices --method $method --size 1
        done
        run 0 sw_search --devices $devices --size 20
        run 0 sw_search --devices $devices --size 30 --query 5 --host-memory pageable
    done
else
    run 0 vector_add
    run 0 vector_add 1000
    run 0 saxpy
    run 0 tensor_cores
    run 0 textures

    # Odd sizes leave partial tiles at the edges; a size below the tile leaves nothing else.
    for devices in 1 all; do
        for precision in single double; do
            run 0 sgemm --devices $devices --precision $precision --size 193
            run 0 sgemm --devices $devices --precision $precision --size 37 --instances 3 --host-memory pageable
            run 0 nbody --devices $devices --precision $precision --size 1000 --steps 5
            run 0 nbody --devices $devices --precision $precision --size 100 --steps 3 --instances 3
            run 0 transpose --devices $devices --precision $precision --size 517
            run 0 transpose --devices $devices --precision $precision --size 31 --instances 3 --host-memory pageable
            run 0 lennard_jones --devices $devices --precision $precision --size 10 --steps 200
            run 0 lennard_jones --devices $devices --precision $precision --size 6 --steps 150 --rebuild 0
        done
        for method in wavefront tiled; do
            run 0 smith_waterman --devices $devices --method $method --size 500
            run 0 smith_waterman --devices $devices --method $method --size 64 --instances 3
            run 0 smith_waterman --devices $devices --method $method --size 300 --score-only
            run 0 smith_waterman --devices $devices --method $method --size 1
        done
        run 0 sw_search --devices $devices --size 20000
        run 0 sw_search --devices $devices --size 70 --query 5 --host-memory pageable
    done
fi

# Mistakes are told apart by their status.
run 2 sgemm --size nonsense
run 2 sgemm --size 0
run 2 sgemm --precision half
run 2 sgemm --no-such-option
run 2 nbody --devices 1000000
run 2 transpose --device 1000000
run 2 smith_waterman --devices all --device 0
run 2 lennard_jones --size 5

echo "$passed passed, $skipped skipped, $failed failed"
[ "$failed" -eq 0 ]
