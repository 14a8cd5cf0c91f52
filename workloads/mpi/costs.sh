#!/bin/sh
# Counts what the NPB programs and Himeno cost a core, for the assumptions of `cargo xtask study`: instructions, misses of
# the first cache and bytes to and from memory for each operation that NPB and Himeno count.
#
#   costs.sh [FOLDER]       builds into FOLDER (../../build/costs) and takes some minutes; needs valgrind
#
# Callgrind simulates the caches of an Intel Xeon E5645: 32 KiB of the first level, and of the last the sixth of 12 MiB that a
# core of a full socket has, or less where the problem is smaller. Dirty lines that leave the cache are counted, and prefetching
# is not: it moves traffic, and makes little of it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../build/costs}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# GCC of 2011 left such loops scalar; the one function that is measured from one call to the next is not taken apart.
make --no-print-directory -s -C "$here" BUILD="$folder" \
    CFLAGS='-O3 -g -fno-tree-vectorize -fno-inline-functions-called-once'

# count NAME OPERATIONS CACHE FUNCTION COMMAND...: what happens between the first two calls of FUNCTION
count() {
    name=$1 operations=$2 cache=$3 function=$4
    shift 4
    rm -f "$folder/$name".out*
    valgrind --tool=callgrind --cache-sim=yes --simulate-wb=yes --I1=32768,4,64 --D1=32768,8,64 --LL="$cache,16,64" \
        --dump-before="$function" --callgrind-out-file="$folder/$name.out" "$@" >"$folder/$name.log" 2>&1 &
    child=$!
    # The third file is complete when the fourth begins, or when the program has ended.
    while kill -0 $child 2>/dev/null && [ ! -s "$folder/$name.out.3" ]; do sleep 1; done
    kill -9 $child 2>/dev/null || true
    wait $child 2>/dev/null || true
    awk -v name="$name" -v operations="$operations" '
        /^events:/ { for (i = 2; i <= NF; i++) place[$i] = i - 1 }
        /^(summary|totals):/ { for (i = 2; i <= NF; i++) value[i - 1] = $i }
        END {
            lines = value[place["DLmr"]] + value[place["DLmw"]] + value[place["DLdmr"]] + value[place["DLdmw"]]
            printf "%-8s %12.2f %14.3f %12.2f\n", name, value[place["Ir"]] / operations,
                (value[place["D1mr"]] + value[place["D1mw"]]) / operations, 64 * lines / operations
        }' "$folder/$name.out.2"
}

printf '%-8s %12s %14s %12s\n' PROGRAM INSTRUCTIONS L1_MISSES BYTES
# Small problems in a cache that is as much smaller: at each, what one pass goes through is larger than the cache, and what is
# used again soon is not, as at class C on 16 ranks.
npb_cg='BEGIN { printf "%.0f", 2 * 7000 * (3 + 72 + 25 * (5 + 72) + 3) }'
npb_ft='BEGIN { n = 262144; l = log(n); printf "%.0f", n * (14.8157 + 7.19641 * l + (5.23518 + 7.21113 * l) * 6) }'
npb_lu='BEGIN { n = 33; printf "%.0f", 1984.77 * n ^ 3 - 10923.3 * n ^ 2 + 27770.9 * n - 144010 }'
count cg "$(awk "$npb_cg")" 1048576 power_step "$folder/cg" --class W
count ft "$(awk "$npb_ft")" 524288 bench_now "$folder/ft" --class S
count is 8388608 2097152 rank_keys "$folder/is" --class A
count lu "$(awk "$npb_lu")" 524288 iterate "$folder/lu" --class W
# Three iterations, with which it finds out its speed.
count himeno "$(awk 'BEGIN { printf "%.0f", 3 * 34 * 126 * 62 * 62 }')" 262144 bench_now "$folder/himeno" --class S
