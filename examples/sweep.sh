#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --ntasks=2
#SBATCH --time=00:10:00
#SBATCH --output=sweep-%j.out
#
# A map over every file of a real directory tree, one queued step a file, then a reduce step over what they found:
# how many lines, words and #define lines the C headers below a folder have, and which five files define the most.
#
#   sweep.sh [FOLDER]        default: the kernel's user-space headers
#
# The result can be checked without Garrick:  find FOLDER -name '*.h' -print0 | xargs -0 cat | wc -lw

set -euo pipefail
tree=${1:-/usr/include/linux}
work=$(mktemp -d "${TMPDIR:-/tmp}/sweep.XXXXXX")
trap 'rm -rf "$work"' EXIT

n=0
while IFS= read -r -d '' file; do
    n=$((n + 1))
    # Handed to the job's own step manager, which runs it when a CPU is free; srun returns at once.
    srun --async -n1 --exact --output="$work/$n" \
        sh -c 'echo "$(grep -c "^[[:blank:]]*#[[:blank:]]*define" "$0") $(wc -lw "$0")"' "$file" >"$work/submitted"
done < <(find "$tree" -name '*.h' -print0 | sort -z)

swait                       # until the queue is empty
echo "$n files mapped under $tree"

# The reduce step: one ordinary srun.
srun -n1 awk '
    { files++; defines += $1; lines += $2; words += $3; by[$4] = $1 }
    END {
        printf "files %d\nlines %d\nwords %d\ndefines %d\n", files, lines, words, defines
        for (f in by) printf "%7d %s\n", by[f], f | "sort -k1,1nr -k2 | head -5"
    }' "$work"/[0-9]*
