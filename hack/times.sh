#!/usr/bin/env bash
# Prints how long targets of the Makefile and levels of the ladder take, and each test of them above five seconds:
#
#   times.sh unit system level-4 …      all of `make test` and `make test-node` where none is named
#
# What has passed before runs again. Wall clock and CPU are in seconds.
set -uo pipefail
cd "$(dirname "$0")/.."
export ANEW=1 V=1
targets=("$@")
[ $# != 0 ] || targets=(verify unit race search packages clusters oracle-short alerts level-{2,3,4,6} level-fault)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
TIMEFORMAT='%R %U %S'
printf '| Target | Wall clock | CPU | Tests above 5 s |\n|---|---:|---:|---|\n'
for target in "${targets[@]}"; do
  case $target in
  level-*) run=(bash hack/node/level.sh "${target#level-}") ;;
  *) run=(make -s "$target" VERBOSE="-v -count=1") ;;
  esac
  took=$({ time "${run[@]}" >"$log" 2>&1 || echo "FAILED: ${run[*]}" >&3; } 3>&2 2>&1)
  awk -v target="$target" -v took="$took" '
    match($0, /^ *--- PASS: [^ ]+ \(/) { split($0, part, /[ ()]+/); name = $3; s = $4; gsub(/[(s)]/, "", s)
      if (s > 5) slow = slow (slow ? ", " : "") "`" name "` " int(s + .5) }
    END { split(took, t, " "); printf "| `%s` | %d | %d | %s |\n", target, t[1] + .5, t[2] + t[3] + .5, slow }' "$log"
done
